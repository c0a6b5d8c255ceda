/* conn.c: what the connections of all SQL databases have in common; see conn.h.
 *
 * Calls that the library cannot take yet wait in `backlog`. Renewals come first: each of
 * the others may wait for a row that somebody has locked. Joins come last: many of them
 * must not keep looks waiting. (What follows the join of a ticket comes after its answer
 * anyway: kit/scripted.)
 *
 * An answer is given exactly once, and only for a transaction that has ended; a library
 * that does not know what became of one says that the connection is lost, and the link
 * tells that the call has no answer (G7). A statement that changed nothing is sent again a
 * little later, but for a sweep: the next one does it; on a connection of a session the
 * session decides. */
#include "driver/sql/conn.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPARE_TRIES = 4, SPARE_US = 10000000 };

static const struct sql_wire *wire_of(const struct sql_conn *c)
{
    return c->sql->wire;
}

const char *hf__sql_text(const struct sql_conn *c, unsigned verb)
{
    const char *own = wire_of(c)->texts[c->sql->mode][verb];

    return own ? own : wire_of(c)->texts[SQL_LINE][verb];
}

/* ---- connecting ------------------------------------------------------------------ */

static int open_conn(struct link *k, int64_t ms, hf_error *err)
{
    struct sql_conn *c = sql_conn_at(k);
    int rc = wire_of(c)->open(c, ms, err);

    if (rc < 0)
        sql_env(c)->timer(sql_env(c), &c->timer, LOOP_NEVER);
    return rc;
}

static void timer_fired(struct timer *t)
{
    struct sql_conn *c = container_of(t, struct sql_conn, timer);
    hf_error err;

    if (!wire_of(c)->due(c)) {
        hf__fail(&err, HF_EUNREACHABLE, 0, c->sql->shown, "no connection within %lld ms",
                 (long long)c->sql->open.connect_ms);
        hf__sql_conn_lost(c, &err);
    }
    hf__sql_flush(&c->sql->store);
}

static void looked_up(void *user, struct addresses *list, const hf_error *why)
{
    struct sql_conn *c = user;
    hf_error err = *why;

    c->resolve = NULL;
    if (wire_of(c)->found(c, list, &err) < 0)
        hf__sql_conn_lost(c, &err);
    hf__sql_flush(&c->sql->store);
}

int hf__sql_look_up(struct sql_conn *c, const struct opening_host *h,
                    struct addresses **ret, hf_error *err)
{
    int rc = hf__resolve_numeric(ret, h->host, h->port);

    if (rc == 0)
        return 0;
    *ret = NULL;
    if (rc == HF_ENOENT)
        return hf__resolve_begin(&c->resolve, sql_env(c), h->host, h->port, looked_up, c,
                                 err);
    return hf__fail(err, rc, 0, NULL, "no memory for a connection");
}

bool hf__sql_ip(char ip[SQL_IP], const struct address *a)
{
    const void *at = a->at.ss_family == AF_INET6
                         ? (const void *)&((const struct sockaddr_in6 *)&a->at)->sin6_addr
                         : (const void *)&((const struct sockaddr_in *)&a->at)->sin_addr;

    return inet_ntop(a->at.ss_family, at, ip, SQL_IP) != NULL;
}

/* ---- the socket ------------------------------------------------------------------ */

int hf__sql_conn_watch(struct sql_conn *c, uint32_t events)
{
    return sql_env(c)->watch(sql_env(c), &c->watch, wire_of(c)->socket(c), events);
}

static void on_ready(struct watch *w, uint32_t events)
{
    struct sql_conn *c = container_of(w, struct sql_conn, watch);

    wire_of(c)->ready(c, events);
    hf__sql_flush(&c->sql->store);
}

static void close_conn(struct link *k)
{
    struct sql_conn *c = sql_conn_at(k);
    struct env *env = sql_env(c);

    if (c->watch.fd >= 0 && wire_of(c)->socket(c) == c->watch.fd)
        env->unwatch(env, &c->watch);
    else
        env->forget(env, &c->watch); /* the library has closed it when the server had */
    env->timer(env, &c->timer, LOOP_NEVER);
    hf__resolve_cancel(c->resolve);
    c->resolve = NULL;
    wire_of(c)->close(c);
    c->up = false;
    c->prepared = 0;
    c->flying = 0;
}

void hf__sql_conn_lost(struct sql_conn *c, const hf_error *err)
{
    hf_error copy = *err;

    close_conn(&c->link);
    hf__link_lost(&c->link, &copy);
}

/* The socket is the parent's: what the library says at its end must not reach the server.
 */
static void conn_forked(struct sql_conn *c)
{
    int fd = wire_of(c)->socket(c), null;

    hf__resolve_forked(c->resolve);
    c->resolve = NULL;
    if (fd < 0)
        return;
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup3(null, fd, O_CLOEXEC);
        close(null);
    } else {
        close(fd);
    }
}

void hf__sql_forked(struct store *store)
{
    list_for(n, &sql_of(store)->conns)
        conn_forked(container_of(n, struct sql_conn, all));
}

/* ---- calls ----------------------------------------------------------------------- */

static unsigned turn_of(const struct sql_call *q)
{
    return q->type->verb == SQL_RENEW ? 0 : q->type->verb == SQL_JOIN ? SQL_TURNS - 1 : 1;
}

void hf__sql_conn_send(struct sql_conn *c, struct sql_call *q)
{
    q->on = c;
    if (c->flying >= wire_of(c)->most && link_open(&c->link))
        list_push(&c->backlog[turn_of(q)], &q->call.node);
    else
        hf__link_send(&c->link, &q->call);
}

/* NULL: there was no memory for it. */
static void say(struct sql_conn *c, struct sql_call *q)
{
    if (q)
        hf__sql_conn_send(c, q);
    else
        hf__link_fail(&c->link, HF_ENOMEM, "no memory for a connection");
}

void hf__sql_conn_say(struct sql_conn *c, const struct sql_type *type)
{
    say(c, hf__sql_call(type, NULL));
}

void hf__sql_say_later(struct sql *s, const struct sql_type *type, int64_t us)
{
    struct sql_call *q = hf__sql_call(type, NULL);

    if (q)
        hf__sql_later(s, q, us);
    else
        say(s->commands, NULL);
}

/* NULL: there is none. */
static struct sql_call *next_in_backlog(struct sql_conn *c)
{
    struct list *n = NULL;

    for (unsigned i = 0; i < SQL_TURNS && !n; i++)
        n = list_pop(&c->backlog[i]);
    return n ? container_of(n, struct sql_call, call.node) : NULL;
}

void hf__sql_conn_more(struct sql_conn *c)
{
    struct sql_call *q;

    while (c->flying < wire_of(c)->most && (q = next_in_backlog(c)) != NULL)
        hf__sql_conn_send(c, q);
}

static int send_call(struct link *k, struct link_call *call)
{
    struct sql_conn *c = sql_conn_at(k);
    struct sql_call *q = container_of(call, struct sql_call, call);
    struct sql_args a = { .n = 0 };
    int rc;

    if (q->type->build)
        q->type->build(c->sql, q, &a);
    if (a.nothing)
        return HF_ENOENT;
    rc = wire_of(c)->send(c, q, &a);
    if (rc == 0)
        c->flying++;
    return rc;
}

static void flush_conn(struct link *k)
{
    if (sql_conn_at(k)->up)
        wire_of(sql_conn_at(k))->flush(sql_conn_at(k));
}

static bool read_conn(struct link *k)
{
    struct sql_conn *c = sql_conn_at(k);
    struct link_call *before = hf__link_oldest(k);

    if (c->up)
        wire_of(c)->read(c);
    return c->up && hf__link_oldest(k) != before;
}

static const struct link_transport transport = { open_conn, close_conn, send_call,
                                                 flush_conn, read_conn };

void hf__sql_conn_answered(struct sql_conn *c, struct sql_reply *reply)
{
    struct sql_call *q = container_of(hf__link_oldest(&c->link), struct sql_call, call);
    bool undone = reply->fate == SQL_UNDONE || reply->fate == SQL_LOCKED;

    hf__link_answered(&c->link);
    if (undone && !c->session && q->type->verb < SQL_VERBS && q->type->verb != SQL_SWEEP) {
        hf__sql_later(c->sql, q,
                      reply->fate == SQL_LOCKED ? wire_of(c)->locked_us : SQL_LATER_US);
        return;
    }
    if (undone && c->session)
        reply->err.code = reply->fate == SQL_LOCKED ? HF_EBUSY : HF_EUNREACHABLE;
    reply->code = reply->err.code;
    reply->wire = wire_of(c);
    hf__sql_answer(c->sql, q, reply);
}

/* ---- what the link tells --------------------------------------------------------- */

static int64_t limit_ms(const struct link *k)
{
    const struct sql_conn *c = sql_conn_at(k);
    int64_t ms = c->limit_ms;

    if (c->session)
        return ms + hf__sql_session_patience(c->session, k);
    if (k->state == LINK_UP && ms < wire_of(c)->least_ms)
        ms = wire_of(c)->least_ms;
    return ms;
}

static void greet(struct link *k)
{
    sql_conn_at(k)->greet(sql_conn_at(k));
}

static void down(struct link *k, const hf_error *err)
{
    struct sql_conn *c = sql_conn_at(k);
    hf_error last = *err;

    if (c->session)
        return;
    wire_of(c)->down(c, err);
    if (c != c->sql->commands)
        return;
    if (c->sql->served && last.code != HF_EVERSION) /* what refuses us now may pass */
        last.code = HF_EUNREACHABLE;
    hf__sql_down(c->sql, &last);
}

static void unanswered(struct link *k, struct link_call *call)
{
    hf__sql_answer(sql_conn_at(k)->sql, container_of(call, struct sql_call, call), NULL);
}

static void lost(struct link *k, const hf_error *err)
{
    struct sql_conn *c = sql_conn_at(k);
    struct sql_call *q;

    while ((q = next_in_backlog(c)) != NULL)
        hf__sql_answer(c->sql, q, NULL);
    if (c->session)
        hf__sql_session_lost(c->session, err);
    else if (c->spare && k->wanted && k->failed > SPARE_TRIES)
        /* the server may have too many clients already */
        k->env->timer(k->env, &k->retry, sql_now(c->sql) + hf__sql_about(c->sql, SPARE_US));
}

static const struct link_events events = { limit_ms, greet, down, unanswered, lost };

/* ---- life ------------------------------------------------------------------------ */

void hf__sql_conn_init(struct sql_conn *c, struct sql *s,
                       void (*greeting)(struct sql_conn *))
{
    c->sql = s;
    c->greet = greeting;
    c->limit_ms = s->open.connect_ms;
    for (unsigned i = 0; i < SQL_TURNS; i++)
        list_init(&c->backlog[i]);
    watch_init(&c->watch, on_ready);
    timer_init(&c->timer, timer_fired);
    list_push(&s->conns, &c->all);
    hf__link_init(&c->link, s->store.env, &transport, &events, &s->dirty,
                  s->open.connect_ms);
    c->link.where = s->shown;
    if (s->wire->turns > 0)
        c->link.choices = s->wire->turns * s->open.nhosts;
}

void hf__sql_conn_done(struct sql_conn *c)
{
    struct link_call *call;
    struct sql_call *q;

    hf__link_done(&c->link);
    while ((call = hf__link_take(&c->link)) != NULL)
        free(container_of(call, struct sql_call, call));
    while ((q = next_in_backlog(c)) != NULL)
        free(q);
    wire_of(c)->done(c);
    list_remove(&c->all);
}

struct sql_conn *hf__sql_conn_attach(struct sql_session *ses)
{
    const struct sql_wire *wire = ses->sql->wire;
    struct sql_conn *c = calloc(1, wire->conn_size);

    if (!c)
        return NULL;
    hf__sql_conn_init(c, ses->sql, wire->attach);
    c->session = ses;
    hf__link_start(&c->link);
    c->link.wanted = false; /* once */
    return c;
}

/* ---- greetings ------------------------------------------------------------------- */

void hf__sql_conn_refused(struct sql_conn *c, const struct sql_reply *reply)
{
    hf_error err;

    if (hf__sql_refusal(c->sql, reply, &err) == HF_EPROTO)
        err.code = HF_EUNREACHABLE;
    if (err.code == HF_EAUTH)
        hf__link_fail(&c->link, HF_EAUTH, "%s: " SQL_TO_ADMINISTRATOR, err.text);
    else
        hf__link_break(&c->link, &err);
}

bool hf__sql_is_row(struct sql_conn *c, const struct sql_reply *reply)
{
    if (reply && reply->code == 0 && reply->rows == 1)
        return true;
    if (reply)
        hf__sql_conn_refused(c, reply);
    return false;
}

int hf__sql_passing(const struct sql *s)
{
    return s->served || s->open.nhosts > 1 ? HF_EUNREACHABLE : HF_ENOTSUP;
}

bool hf__sql_is_shape(struct sql_conn *c, const struct sql_reply *reply, int64_t format,
                      int64_t routines)
{
    int64_t version = sql_number_at(reply, 0, 0);

    if (version != format)
        hf__link_fail(&c->link, HF_EVERSION,
                      "the schema has version %lld, and this is for version %lld%s",
                      (long long)version, (long long)format,
                      version < format ? ": end all clients of the older version, and run "
                                         "what 'holdfast schema' prints"
                                       : "");
    else if (sql_number_at(reply, 0, 1) < routines)
        hf__link_fail(
            &c->link, HF_EVERSION,
            "routines of the schema are missing, or this user may not execute them: run "
            "what 'holdfast schema' prints");
    else
        return true;
    return false;
}

void hf__sql_greeted(struct sql *s, bool echoes)
{
    if (echoes)
        echo_up(&s->echo, sql_now(s));
    s->echo.lost_ms = 0;
    hf__link_up(&s->commands->link);
    hf__sql_up(s);
}
