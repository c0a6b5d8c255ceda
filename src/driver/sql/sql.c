/* sql.c: the store as all SQL databases have it: its life, calls that are sent again, and
 * what messages say.
 *
 * Messages. A transaction that grants, revokes or marks a ticket of another client, or
 * makes it the first in the queue, notifies that client's channel when it commits. The
 * connection that listens is opened when a ticket first waits, a name is followed, or a
 * hold has lasted half a second; when it is confirmed, everybody looks: so a message is
 * either heard, or the look comes after it. A message that is lost is found by the safety
 * look (G4), and then it is tested whether messages still come. Where messages do not come
 * at all, behind a transaction pooler for one, the first of our waiting tickets in each
 * line looks every POLL_MS. */
#include "driver/sql/conn.h"
#include "util/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_TTL_MS = 100,
    LISTEN_US = 500000,
    LEAVE_US = 100000,
    POLL_MS = 200,
    SWEEP_US = 60000000,
    HOLDERS_LOOK_MOST = 1000
};

/* ---- calls ----------------------------------------------------------------------- */

struct sql_call *hf__sql_call_of(const struct sql_type *type, size_t size)
{
    struct sql_call *q = calloc(1, size);

    if (q)
        q->type = type;
    return q;
}

struct sql_call *hf__sql_call(const struct sql_type *type, void *about)
{
    struct sql_call *q = hf__sql_call_of(type, sizeof *q);

    if (q)
        q->about = about;
    return q;
}

/* The core also leaves while the store is down. On a connection that is still greeted such
 * a leave would overtake a join of the one before, which has not been ended yet (G7). */
void hf__sql_send(struct sql *s, struct sql_call *q)
{
    if (s->up)
        hf__sql_conn_send(s->commands, q);
    else
        hf__link_refuse(&s->commands->link, &q->call);
}

bool hf__sql_ask(struct sql *s, const struct sql_type *type, void *about)
{
    struct sql_call *q = hf__sql_call(type, about);

    if (q)
        hf__sql_send(s, q);
    return q != NULL;
}

void hf__sql_answer(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    if (q->type->answer)
        q->type->answer(s, q, reply);
    free(q);
}

int64_t hf__sql_about(const struct sql *s, int64_t time)
{
    uint32_t dice;

    s->store.env->random(s->store.env, &dice, sizeof dice);
    return time / 2 + dice % time;
}

void hf__sql_later(struct sql *s, struct sql_call *q, int64_t us)
{
    struct env *env = s->store.env;
    int64_t at = sql_now(s) + hf__sql_about(s, us);

    if (!timer_armed(&s->later_timer) || s->later_timer.node.key > at)
        env->timer(env, &s->later_timer, at);
    list_push(&s->later, &q->call.node);
}

static void later_fired(struct timer *t)
{
    struct sql *s = container_of(t, struct sql, later_timer);
    struct list todo, *n;

    list_init(&todo);
    list_splice(&todo, &s->later);
    while ((n = list_pop(&todo)) != NULL) /* of a greeting, too */
        hf__sql_conn_send(s->commands, container_of(n, struct sql_call, call.node));
    hf__sql_flush(&s->store);
}

const int64_t *hf__sql_numbers(const struct sql_reply *reply, size_t n)
{
    return reply && reply->code == 0 && reply->n == n ? reply->numbers : NULL;
}

int hf__sql_refusal(const struct sql *s, const struct sql_reply *reply, hf_error *err)
{
    if (!reply)
        return hf__fail(err, HF_EUNREACHABLE, 0, s->shown, "the connection was lost");
    if (reply->code == 0)
        return hf__fail(err, HF_EPROTO, 0, s->shown, "an answer of an unexpected form");
    *err = reply->err;
    return reply->code;
}

/* ---- lines that nobody uses ------------------------------------------------------ */

static void build_sweep(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    (void)s;
    (void)q;
    sql_int(a, 600000); /* ten minutes */
}

/* Not at open: a command that asks one thing and goes need not clean up. But if there are
 * only such, some of them do: `swept_at` begins at a random time. */
void hf__sql_sweep(struct sql *s)
{
    static const struct sql_type type = { SQL_SWEEP, build_sweep, NULL };

    if (sql_now(s) - s->swept_at < SWEEP_US)
        return;
    s->swept_at = sql_now(s);
    hf__sql_ask(s, &type, NULL);
}

/* ---- up and down ----------------------------------------------------------------- */

void hf__sql_up(struct sql *s)
{
    s->up = s->served = true;
    ev_store(&s->store, STORE_UP, NULL);
    hf__sql_sessions_up(s);
    hf__sql_sweep(s);
}

void hf__sql_down(struct sql *s, const hf_error *err)
{
    struct list *n;

    s->up = false;
    ev_store(&s->store, STORE_DOWN, err);
    while ((n = list_pop(&s->later)) != NULL)
        hf__sql_answer(s, container_of(n, struct sql_call, call.node), NULL);
}

void hf__sql_warn(struct sql *s, const char *fmt, ...)
{
    struct env *env = s->store.env;
    char text[512], line[900];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(line, sizeof line, "%s: %s", s->shown, text);
    env->log(env, HF_LOG_WARN, NULL, line);
}

void hf__sql_warn_once(struct sql *s, unsigned which, const char *text)
{
    if (!(s->warned & which))
        hf__sql_warn(s, "%s", text);
    s->warned |= which;
}

/* ---- messages -------------------------------------------------------------------- */

void hf__sql_listen(struct sql *s)
{
    s->listens = true;
    s->wire->listen(s);
}

static void listen_fired(struct timer *t)
{
    struct sql *s = container_of(t, struct sql, listen_timer);

    if (s->scripted.seats.count > 0) {
        hf__sql_listen(s);
        hf__sql_flush(&s->store);
    }
}

/* Those that were refused at one moment must not all come back at one moment. */
int64_t hf__sql_recheck(const struct sql *s, int64_t ms)
{
    int64_t most = s->mode == SQL_LINE ? POLL_MS : hf__sql_about(s, POLL_MS);

    return s->heard || (ms >= 0 && ms < most) ? ms : most;
}

/* Is each of ours still there? The others learn it when they are renewed. */
static void ask_holders(struct sql *s)
{
    if (s->scripted.seats.count > HOLDERS_LOOK_MOST)
        return;
    for (size_t i = 0; i <= s->scripted.seats.mask; i++)
        for (struct map_node *m = s->scripted.seats.slots[i]; m; m = m->next) {
            struct ticket *t = container_of(m, struct ticket, drv_node);

            if (!t->own->marked)
                hf__scripted_ask(&s->scripted, t);
        }
}

void hf__sql_hears(struct sql *s, bool heard)
{
    s->heard = heard;
    list_for_safe(n, &s->scripted.waiters.all)
        hf__scripted_look(&s->scripted, container_of(n, struct wait_life, all));
    if (!heard)
        return;
    ask_holders(s);
    list_for_safe(n, &s->looks)
        ev_changed(container_of(n, struct look, drv_node), NULL);
    list_for_safe(n, &s->cells)
        ev_changed(NULL, container_of(n, struct cell, drv_node));
}

static bool is_name(const char *name, size_t len, const char *hex)
{
    if (strlen(hex) != 2 * len)
        return false;
    for (size_t i = 0; i < len; i++)
        if (hf__hex_digit(hex[2 * i]) != (unsigned char)name[i] >> 4 ||
            hf__hex_digit(hex[2 * i + 1]) != ((unsigned char)name[i] & 15))
            return false;
    return true;
}

static void changed(struct sql *s, const char *hex)
{
    list_for_safe(n, &s->looks) {
        struct look *look = container_of(n, struct look, drv_node);

        if (is_name(look->name, look->name_len, hex))
            ev_changed(look, NULL);
    }
    list_for_safe(n, &s->cells) {
        struct cell *cell = container_of(n, struct cell, drv_node);

        if (is_name(cell->name, cell->name_len, hex))
            ev_changed(NULL, cell);
    }
    s->freed_at = sql_now(s);
    list_for_safe(n, &s->scripted.waiters.all) { /* without a line: it was freed */
        struct wait_life *w = container_of(n, struct wait_life, all);

        if (s->mode != SQL_LINE && is_name(w->name, w->name_len, hex))
            hf__scripted_look(&s->scripted, w);
    }
}

/* "g" token fence " " stamp, "x" token, "m" token, "l" token, "f" name; all but the numbers
 * in hexadecimal digits. Anybody may notify: what makes no sense is dropped, and what is a
 * lie about a token that is nobody's business is found out by the next renewal. */
void hf__sql_told(struct sql *s, const char *text)
{
    unsigned char token[HF_TOKEN];
    char hex[2 * HF_TOKEN + 1];
    unsigned long long fence = 0;
    long long stamp = 0;

    if (text[0] == 'f') {
        changed(s, text + 1);
        return;
    }
    snprintf(hex, sizeof hex, "%s", text[0] ? text + 1 : "");
    if (!hf__unhex(token, sizeof token, hex))
        return;
    if (text[0] == 'g' && sscanf(text + 1 + 2 * HF_TOKEN, "%llu %lld", &fence, &stamp) == 2)
        hf__scripted_told(&s->scripted, token, TOLD_GRANT, fence, stamp);
    else if (text[0] == 'x' || text[0] == 'm' || text[0] == 'l')
        hf__scripted_told(&s->scripted, token,
                          text[0] == 'x'   ? TOLD_REVOKED
                          : text[0] == 'm' ? TOLD_MARK
                                           : TOLD_LOOK,
                          0, 0);
}

/* A hold that is short is not worth a second connection. */
static void holds(struct sql *s)
{
    struct env *env = s->store.env;

    if (!s->listens && !timer_armed(&s->listen_timer))
        env->timer(env, &s->listen_timer, sql_now(s) + LISTEN_US);
}

void hf__sql_joined(struct sql *s, bool waits)
{
    if (!waits)
        holds(s);
    else if (!s->listens)
        hf__sql_listen(s);
    hf__sql_sweep(s);
}

static void leave_in(struct sql *s, int64_t us)
{
    struct env *env = s->store.env;

    if (s->wire->most == 1 && !timer_armed(&s->leave_timer))
        env->timer(env, &s->leave_timer, sql_now(s) + us);
}

/* Whoever drove now may not stay until the next step. */
static void leave_fired(struct timer *t)
{
    struct sql *s = container_of(t, struct sql, leave_timer);

    hf__sql_flush(&s->store);
    if (s->up && (hf__link_oldest(&s->commands->link) || !list_empty(&s->later)))
        leave_in(s, LEAVE_US);
}

/* Where a connection takes one call at a time a leave may be several steps: behind its join
 * or another call, prepared at first, the short way and then the long one. Its caller may
 * have gone: a timer makes somebody drive until it is settled. Not at once: mostly the
 * caller does, and a thread that wakes up for nothing is dear. */
void hf__sql_leaves(struct sql *s)
{
    leave_in(s, hf__link_oldest(&s->commands->link) ? LEAVE_US / 10 : LEAVE_US);
}

/* ---- life ------------------------------------------------------------------------ */

int hf__sql_read_mode(struct sql *s, const struct url *url, const char *server,
                      hf_error *err)
{
    static const uint32_t caps[] = { [SQL_OPTIMISTIC] = HF_CAP_DEADLINE | HF_CAP_FENCE,
                                     [SQL_PESSIMISTIC] = HF_CAP_FENCE,
                                     [SQL_SERVER] = HF_CAP_SHARED };
    const char *const names[] = { "line", "optimistic", "pessimistic", server };
    const char *mode = hf__url_param(url, "mode");

    for (unsigned i = 0; mode && i < sizeof names / sizeof *names; i++) {
        if (strcmp(mode, names[i]) != 0)
            continue;
        s->mode = (enum sql_mode)i;
        if (s->mode != SQL_LINE)
            s->store.caps = caps[i] | HF_CAP_CELL | HF_CAP_CELL_EXPIRY | HF_CAP_TTL;
        if (sql_has_sessions(s)) /* a server's limits are of 31 bits */
            s->store.most_ttl_ms = INT32_MAX;
        return 0;
    }
    return mode ? hf__fail(err, HF_EINVAL, 0, url->shown,
                           "URL: mode=%s: line, optimistic, pessimistic and %s are known",
                           mode, server)
                : 0;
}

int hf__sql_read_wake(const struct url *url, bool *ret_polls, hf_error *err)
{
    const char *wake = hf__url_param(url, "wake");

    *ret_polls = wake != NULL;
    return !wake || strcmp(wake, "poll") == 0
               ? 0
               : hf__fail(err, HF_EINVAL, 0, url->shown, "URL: wake=%s: only poll is known",
                          wake);
}

int hf__sql_no_memory(hf_error *err)
{
    return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
}

void hf__sql_quote(struct text *t, char quote, const char *name)
{
    hf__text_add(t, "%c", quote);
    for (; *name; name++)
        hf__text_add(t, *name == quote ? "%c%c" : "%c", *name, quote);
    hf__text_add(t, "%c", quote);
}

char *hf__sql_admin_text(struct text *t, hf_error *err)
{
    char *made = hf__text_take(t);

    if (!made)
        hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a text");
    return made;
}

const char *hf__sql_param(const struct sql *s, const char *key)
{
    for (size_t i = 0; i < s->nparams; i++)
        if (strcmp(s->params[i].key, key) == 0)
            return s->params[i].value;
    return NULL;
}

/* What is needed for every connection. 0 or HF_ENOMEM */
static int copy_url(struct sql *s, const struct url *url)
{
    s->ns = strdup(url->ns);
    s->ns_len = strlen(url->ns);
    s->database = strdup(url->path[0] == '/' ? url->path + 1 : url->path);
    s->params = calloc(url->nparams + 1, sizeof *s->params);
    if (!s->ns || !s->database || !s->params)
        return HF_ENOMEM;
    for (size_t i = 0; i < url->nparams; i++) {
        struct url_param *to = &s->params[s->nparams++];

        to->key = strdup(url->params[i].key);
        to->value = strdup(url->params[i].value);
        if (!to->key || !to->value)
            return HF_ENOMEM;
    }
    return 0;
}

static int init(struct sql *s, const struct url *url, struct env *env, hf_error *err)
{
    s->store.env = env;
    list_init(&s->conns);
    list_init(&s->dirty);
    list_init(&s->looks);
    list_init(&s->cells);
    list_init(&s->later);
    list_init(&s->sessions);
    list_init(&s->buried);
    timer_init(&s->later_timer, later_fired);
    timer_init(&s->listen_timer, listen_fired);
    timer_init(&s->leave_timer, leave_fired);
    s->store.starts_down = true;
    s->store.caps = HF_CAP_DEADLINE | HF_CAP_FIFO | HF_CAP_FENCE | HF_CAP_BARGE |
                    HF_CAP_SHARED | HF_CAP_PERMITS | HF_CAP_LINE | HF_CAP_KEEP |
                    HF_CAP_CELL | HF_CAP_CELL_EXPIRY | HF_CAP_TTL;
    s->store.least_ttl_ms = LEAST_TTL_MS;
    s->store.most_ttl_ms = (int64_t)366 * 24 * 3600 * 1000;
    s->store.least_cell_ttl_ms = 1;
    s->store.most_cell_ttl_ms = s->store.most_ttl_ms;
    s->store.name_max = HF_NAME_MAX;
    s->heard = true; /* nobody waits for messages yet */
    env->random(env, s->client, sizeof s->client);
    s->swept_at = sql_now(s) + SWEEP_US / 2 - hf__sql_about(s, SWEEP_US);
    if (copy_url(s, url) < 0 ||
        hf__scripted_init(&s->scripted, &hf__sql_scripted, &s->store) < 0)
        return hf__sql_no_memory(err);
    s->scripted.renew_most = SQL_RENEW_MOST;
    return s->wire->read_url(s, url, err);
}

/* Takes a store that is half made. */
static void free_store(struct sql *s)
{
    struct env *env = s->store.env;
    struct list *n;

    hf__sql_sessions_forget(s);
    hf__sql_bury(s);
    while ((n = list_first(&s->conns)) != NULL)
        hf__sql_conn_done(container_of(n, struct sql_conn, all));
    while ((n = list_pop(&s->later)) != NULL)
        free(container_of(n, struct sql_call, call.node));
    env->timer(env, &s->later_timer, LOOP_NEVER);
    env->timer(env, &s->listen_timer, LOOP_NEVER);
    env->timer(env, &s->leave_timer, LOOP_NEVER);
    s->wire->end(s);
    hf__scripted_done(&s->scripted);
    hf__opening_done(&s->open);
    for (size_t i = 0; i < s->nparams; i++) {
        if (s->params[i].value) /* it may be a password */
            explicit_bzero(s->params[i].value, strlen(s->params[i].value));
        free(s->params[i].value);
        free(s->params[i].key);
    }
    free(s->params);
    free(s->database);
    free(s->ns);
    free(s);
}

int hf__sql_open(const struct sql_wire *wire, struct store **ret, const struct url *url,
                 struct env *env, hf_error *err)
{
    struct sql *s = calloc(1, wire->size);
    int rc;

    if (!s)
        return hf__sql_no_memory(err);
    s->wire = wire;
    s->store.driver = wire->driver;
    rc = init(s, url, env, err);
    if (rc < 0) {
        free_store(s);
        return rc;
    }
    wire->begin(s);
    hf__link_start(&s->commands->link);
    *ret = &s->store;
    return 0;
}

void hf__sql_close(struct store *store)
{
    struct sql *s = sql_of(store);
    struct list *n;

    while ((n = list_first(&s->looks)) != NULL)
        hf__sql_stop(store, container_of(n, struct look, drv_node), NULL);
    while ((n = list_first(&s->cells)) != NULL)
        hf__sql_stop(store, NULL, container_of(n, struct cell, drv_node));
    hf__sql_flush(store);
    free_store(s);
}

void hf__sql_flush(struct store *store)
{
    struct sql *s = sql_of(store);

    hf__scripted_flush(&s->scripted);
    hf__link_flush(&s->dirty);
    hf__sql_bury(s);
}
