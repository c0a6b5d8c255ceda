/* redlock.c: several independent Redis masters as one store: `redlock://h1,h2,h3`, with TLS
 * `redlocks://`; and the plain lock, the same with one: `redis://host?mode=plain`.
 *
 * The store is up when a majority of its nodes is. A vote counts only if the node cannot
 * have forgotten a key that somebody still counts on: it has been up for longer than
 * max_ttl, the longest ttl that anybody may ask for, or it writes every change to disk
 * before it answers (appendfsync always). With one node there is no such promise, and no
 * such guard. */
#include "driver/redis/redlock/redlock.h"
#include "util/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TTL_MS = 60000, LEAST_TTL_MS = 100, OTHERS_US = 200000 };

const char hf__redlock_marks[] = "holdfast:redlock:marks";

size_t hf__redlock_key(const struct redis *r, char key[KEY_MAX], const char *name,
                       size_t len)
{
    memcpy(key, r->prefix, r->prefix_len);
    memcpy(key + r->prefix_len, name, len);
    return r->prefix_len + len;
}

size_t hf__redlock_channel(char channel[KEY_MAX + 32], const char *key, size_t len)
{
    static const char start[] = "holdfast:redlock:free:";

    memcpy(channel, start, sizeof start - 1);
    memcpy(channel + sizeof start - 1, key, len);
    return sizeof start - 1 + len;
}

unsigned hf__redlock_need(const struct redis *r)
{
    return r->nnodes / 2 + 1;
}

bool hf__redlock_counts(const struct redis *r, const struct node *n)
{
    return !r->guard || n->always ||
           (n->may_look && redis_now(r) - n->started_at > r->max_ttl_ms * 1000);
}

/* ---- up and down ----------------------------------------------------------------- */

static unsigned count_up(const struct redis *r, bool *all_tried)
{
    unsigned up = 0;

    *all_tried = true;
    for (unsigned i = 0; i < r->nnodes; i++) {
        up += node_up(r->voters[i]);
        *all_tried = *all_tried && (node_up(r->voters[i]) || r->voters[i]->tried);
    }
    return up;
}

/* A majority is enough; but the others are waited for a moment at first, so that
 * short-lived clients use all nodes. */
bool hf__redlock_up(struct redis *r)
{
    struct env *env = r->store.env;
    bool all_tried, enough = count_up(r, &all_tried) >= hf__redlock_need(r);

    if (enough && !r->up && !all_tried && !r->patient) {
        if (!timer_armed(&r->listen_timer))
            env->timer(env, &r->listen_timer, env->now(env) + OTHERS_US);
        return false;
    }
    return enough;
}

static void others_fired(struct timer *t)
{
    struct redis *r = container_of(t, struct redis, listen_timer);

    r->patient = true;
    hf__redis_state(r, NULL);
    hf__redis_conn_flush(r);
}

/* ---- messages -------------------------------------------------------------------- */

static int64_t wait_of_guard(const struct redis *r, const struct node *n)
{
    return r->max_ttl_ms / 1000 - (redis_now(r) - n->started_at) / 1000000 + 1;
}

/* The advice first: there is not room for many nodes. */
static size_t advise(const struct redis *r, char *text, size_t size)
{
    int64_t longest = 0;
    bool blind = false;

    for (unsigned i = 0; i < r->nnodes; i++) {
        const struct node *n = r->voters[i];

        if (!node_up(n) || hf__redlock_counts(r, n))
            continue;
        blind = blind || !n->may_look;
        if (n->may_look && wait_of_guard(r, n) > longest)
            longest = wait_of_guard(r, n);
    }
    text[0] = '\0';
    if (blind)
        return (size_t)snprintf(text, size,
                                "; allow INFO (it tells since when they run), or set "
                                "restart_guard=off");
    if (longest > 0)
        return (size_t)snprintf(text, size,
                                "; wait %lld s, or set appendfsync always there, or "
                                "restart_guard=off",
                                (long long)longest);
    return 0;
}

static size_t describe(const struct redis *r, char *text, size_t size)
{
    size_t n = advise(r, text, size);

    for (unsigned i = 0; i < r->nnodes && n < size; i++) {
        const struct node *node = r->voters[i];

        if (!node_up(node))
            n +=
                (size_t)snprintf(text + n, size - n, "; %s cannot be reached", node->shown);
        else if (!hf__redlock_counts(r, node) && node->may_look)
            n += (size_t)snprintf(text + n, size - n, "; %s was started %lld s ago",
                                  node->shown,
                                  (long long)(redis_now(r) - node->started_at) / 1000000);
    }
    return n;
}

bool hf__redlock_denied(const struct bid *b)
{
    return (unsigned)__builtin_popcount(b->refused) >
           b->redis->nnodes - hf__redlock_need(b->redis);
}

int hf__redlock_too_few(const struct redis *r, const struct bid *b, hf_error *err)
{
    unsigned need = hf__redlock_need(r);
    int code = HF_EUNREACHABLE;
    char text[700];

    if ((!b || !hf__redlock_denied(b)) && describe(r, text, sizeof text) > 0) {
        /* that is why */
    } else if (b && b->said.code < 0) {
        code = b->said.code;
        snprintf(text, sizeof text, "; %s", b->said.text);
    } else {
        snprintf(text, sizeof text,
                 b && b->round.forgot
                     ? "; too few nodes have a mark: some have forgotten it, and others "
                       "that may know it did not answer"
                     : "; the others did not answer in time");
    }
    return hf__fail(err, code, 0, r->open.shown, "fewer than %u of %u nodes could vote%s",
                    need, r->nnodes, text);
}

const hf_error *hf__redlock_why(const struct redis *r, const hf_error *one, hf_error *all)
{
    bool all_tried;

    count_up(r, &all_tried);
    if (one && (r->nnodes == 1 || (all_tried && one->code != HF_EUNREACHABLE)))
        return one; /* a refusal, and no majority without it */
    hf__redlock_too_few(r, NULL, all);
    return all;
}

/* ---- hearing of keys that were given back ---------------------------------------- */

static size_t channel_of(const struct redis *r, char channel[KEY_MAX + 32],
                         const struct ticket *t)
{
    char key[KEY_MAX];

    return hf__redlock_channel(channel, key, hf__redlock_key(r, key, t->name, t->name_len));
}

void hf__redlock_listen(struct redis *r, struct ticket *t)
{
    struct bid *b = t->drv_ptr;
    char channel[KEY_MAX + 32];
    size_t len;

    if (b->listening)
        return;
    b->listening = true;
    len = channel_of(r, channel, t);
    for (unsigned i = 0; i < r->nnodes; i++) {
        hf__redis_wake_say(&r->voters[i]->messages, "SUBSCRIBE", channel, len);
        if (!r->voters[i]->listen_wanted)
            hf__redis_node_listen(r->voters[i]);
    }
}

static bool others_listen(struct redis *r, const struct ticket *t)
{
    for (size_t i = 0; i <= r->scripted.seats.mask; i++)
        for (struct map_node *m = r->scripted.seats.slots[i]; m; m = m->next) {
            const struct ticket *o = container_of(m, struct ticket, drv_node);
            const struct bid *b = o->drv_ptr;

            if (o != t && b && b->listening && o->name_len == t->name_len &&
                memcmp(o->name, t->name, t->name_len) == 0)
                return true;
        }
    return false;
}

void hf__redlock_unlisten(struct redis *r, struct ticket *t, bool was)
{
    char channel[KEY_MAX + 32];
    size_t len;

    if (!was || others_listen(r, t))
        return;
    len = channel_of(r, channel, t);
    for (unsigned i = 0; i < r->nnodes; i++)
        hf__redis_wake_say(&r->voters[i]->messages, "UNSUBSCRIBE", channel, len);
}

static void hears_greets(struct conn *conn)
{
    struct redis *r = conn->node->redis;

    for (size_t i = 0; i <= r->scripted.seats.mask; i++)
        for (struct map_node *m = r->scripted.seats.slots[i]; m; m = m->next) {
            const struct ticket *t = container_of(m, struct ticket, drv_node);
            const struct bid *b = t->drv_ptr;
            char channel[KEY_MAX + 32];

            if (b && b->listening)
                hf__redis_wake_say(conn, "SUBSCRIBE", channel, channel_of(r, channel, t));
        }
}

/* A message, or the confirmation of a subscription: what came before it was not heard. */
static void hears(struct conn *conn, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
        reply->element[1]->type == REDIS_REPLY_STRING &&
        (hf__redis_reply_is(reply, 0, "message") ||
         hf__redis_reply_is(reply, 0, "subscribe")))
        hf__redlock_told(conn->node->redis, reply->element[1]->str, reply->element[1]->len);
}

/* ---- opening --------------------------------------------------------------------- */

static bool is_redlock(const struct url *url)
{
    return strncmp(url->scheme, "redlock", 7) == 0;
}

static int read_options(struct redis *r, const struct url *url, hf_error *err)
{
    const char *guard = hf__url_param(url, "restart_guard"),
               *most = hf__url_param(url, "max_ttl");
    const char *path = url->path[0] == '/' ? url->path + 1 : url->path;
    bool several = is_redlock(url);
    int rc = hf__redis_read_opening(
        r, url, several ? "max_ttl restart_guard password_file" : "mode db password_file",
        err);

    r->max_ttl_ms = MAX_TTL_MS;
    r->guard = several && url->nhosts > 1;
    if (rc == 0 && most &&
        (!hf__parse_time(most, &r->max_ttl_ms) || r->max_ttl_ms < LEAST_TTL_MS))
        rc = hf__fail(err, HF_EINVAL, 0, url->shown, "URL: max_ttl=%s is not a time", most);
    if (rc == 0 && guard && strcmp(guard, "off") != 0 && strcmp(guard, "on") != 0)
        rc = hf__fail(err, HF_EINVAL, 0, url->shown, "URL: restart_guard is on or off");
    if (guard)
        r->guard = strcmp(guard, "off") != 0;
    if (rc == 0 && !several && hf__url_param(url, "db"))
        rc = hf__redis_read_number(url, "db=", hf__url_param(url, "db"), 1 << 20, &r->db,
                                   err);
    else if (rc == 0 && url->nhosts > 0 && *path)
        rc = hf__redis_read_number(url, "the database", path, 1 << 20, &r->db, err);
    if (r->guard)
        r->store.most_ttl_ms = r->max_ttl_ms;
    return rc;
}

static int add_nodes(struct redis *r, const struct url *url, hf_error *err)
{
    size_t n = url->nhosts > 0 ? url->nhosts : 1;

    for (size_t i = 0; i < n; i++) {
        const struct opening_host *h = r->open.nhosts > 0 ? &r->open.hosts[i] : NULL;
        struct node *node = hf__redis_node_new(r, h ? h->host : NULL, h ? h->port : 0,
                                               h ? NULL : url->path);

        if (!node)
            return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a connection");
        node->messages.greet = hears_greets;
        node->messages.message = hears;
        r->voters[r->nnodes++] = node;
    }
    for (size_t i = 0; i < n; i++)
        hf__link_start(&r->voters[i]->commands.link);
    return 0;
}

static void nothing_to_amend(struct store *s, struct ticket *t)
{
    (void)s;
    ev_amended(t, HF_ENOTSUP);
}

static void no_cells(struct store *s, struct cell *cell)
{
    hf_error err;

    hf__fail(&err, HF_ENOTSUP, 0, redis_of(s)->open.shown, "this store has no cells");
    ev_done(NULL, cell, HF_ENOTSUP, &err);
}

static const struct hf_driver redlock_driver = {
    .name = "redlock",
    .schemes = "redlock redlocks",
    .close = hf__redis_close,
    .join = hf__redlock_join,
    .leave = hf__redlock_leave,
    .amend = nothing_to_amend,
    .renew = hf__redlock_renew,
    .look = hf__redlock_look,
    .cell = no_cells,
    .evict = hf__redlock_evict,
    .stop = hf__redlock_stop,
    .flush = hf__redis_flush,
    .forked = hf__redis_forked,
};

int hf__redlock_open(struct redis *r, const struct url *url, hf_error *err)
{
    bool several = is_redlock(url);
    char ns[PREFIX_MAX - 16];
    int rc;

    if (strstr(url->scheme, "+sentinel") || strstr(url->scheme, "+cluster"))
        return hf__fail(err, HF_ENOTSUP, 0, url->shown, "URL: mode=plain takes one server");
    if (several ? url->nhosts == 0 || url->nhosts > ROUND_NODES - 1 : url->nhosts > 1)
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        several
                            ? "URL: redlock://h1,h2,h3 takes 1 to %d hosts"
                            : "URL: mode=plain takes one host (redlock:// takes up to %d)",
                        ROUND_NODES - 1);
    r->topology = TOPOLOGY_REDLOCK;
    timer_init(&r->listen_timer,
               others_fired); /* nobody is in line: no holders to listen */
    r->store.driver = &redlock_driver;
    r->store.caps = HF_CAP_DEADLINE | HF_CAP_FENCE | HF_CAP_KEEP | HF_CAP_TTL;
    rc = read_options(r, url, err);
    if (rc == 0 && hf__redis_bucket_escape(ns, sizeof ns, url->ns) < 0)
        rc = hf__fail(err, HF_EINVAL, 0, url->shown, "URL: the namespace is too long");
    if (rc == 0 && ns[0])
        r->prefix_len = (size_t)snprintf(r->prefix, sizeof r->prefix, "%s:", ns);
    if (rc == 0)
        rc = add_nodes(r, url, err);
    return rc;
}

void hf__redlock_close(struct redis *r)
{
    if (r->topology != TOPOLOGY_REDLOCK)
        return;
    for (size_t i = 0; i <= r->scripted.seats.mask; i++)
        for (struct map_node *m = r->scripted.seats.slots[i]; m; m = m->next) {
            struct ticket *t = container_of(m, struct ticket, drv_node);

            if (t->drv_ptr)
                hf__redlock_bid_free(t->drv_ptr);
            t->drv_ptr = NULL;
        }
    hf__redlock_looks_end(r);
    hf__redlock_debts_end(r);
}
