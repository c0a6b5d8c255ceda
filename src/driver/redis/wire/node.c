/* node.c: one server: connecting, connecting again, and saying whether the store is up.
 *
 *   closed -> connecting -> greeting (greet.c) -> up -> lost -> (back-off) -> connecting
 *   ...
 *
 * Up means: logged in, a master, and no request of an older connection can be executed any
 * more (G7): the old connection is killed by its id before the store is said to be up.
 * Where the server does not let us (rights), an answer "not there" to a leave is not
 * believed until every join that was under way is over by its ttl.
 *
 * The second connection, for messages, is opened when a ticket first waits on this server.
 * When it was lost, messages may have been lost with it, so everybody who waits looks once
 * it is confirmed again (G4).
 *
 * In a cluster one lost node does not make the store down: when it is back, the store goes
 * down and up for a moment, and the core repeats what was unanswered. */
#include "driver/redis/redis.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BACK_OFF_US = 20000, BACK_OFF_MAX_US = 1000000 };

static void commands_down(struct conn *, const hf_error *);
static void messages_down(struct conn *, const hf_error *);
static void retry_fired(struct timer *);

static void show(struct node *n)
{
    if (!n->host)
        snprintf(n->shown, sizeof n->shown, "%s", n->path ? n->path : n->redis->shown);
    else
        snprintf(n->shown, sizeof n->shown, strchr(n->host, ':') ? "[%s]:%u" : "%s:%u",
                 n->host, (unsigned)n->port);
}

struct node *hf__redis_node_new(struct redis *r, const char *host, uint16_t port,
                                const char *path)
{
    struct node *n = calloc(1, sizeof *n);

    if (!n)
        return NULL;
    n->redis = r;
    list_init(&n->in_redis);
    timer_init(&n->retry, retry_fired);
    n->port = port;
    hf__redis_conn_init(&n->commands, n);
    hf__redis_conn_init(&n->messages, n);
    if ((host && !(n->host = strdup(host))) || (path && !(n->path = strdup(path)))) {
        hf__redis_node_free(n);
        return NULL;
    }
    n->commands.up = hf__redis_greet;
    n->commands.down = commands_down;
    n->messages.up = hf__redis_wake_greet;
    n->messages.down = messages_down;
    n->messages.message = hf__redis_wake;
    show(n);
    list_push(&r->nodes, &n->in_redis);
    return n;
}

void hf__redis_node_free(struct node *n)
{
    struct env *env;

    if (!n)
        return;
    env = n->redis->store.env;
    hf__redis_conn_done(&n->commands);
    hf__redis_conn_done(&n->messages);
    env->timer(env, &n->retry, LOOP_NEVER);
    list_remove(&n->in_redis);
    free(n->host);
    free(n->path);
    free(n);
}

/* With full jitter: many clients of a server that comes back do not come at once. */
static void try_later(struct node *n)
{
    struct env *env = n->redis->store.env;
    uint32_t dice;

    if (n->back_off_us == 0)
        n->back_off_us = BACK_OFF_US;
    env->random(env, &dice, sizeof dice);
    env->timer(env, &n->retry,
               env->now(env) + n->back_off_us / 2 + dice % (n->back_off_us / 2));
    if (n->back_off_us < BACK_OFF_MAX_US)
        n->back_off_us *= 2;
}

static void start(struct node *n, struct conn *conn)
{
    hf_error err;

    if (conn->stream.state == STREAM_CLOSED && hf__redis_conn_open(conn, &err) < 0) {
        hf__redis_state(n->redis, &err);
        try_later(n);
    }
}

void hf__redis_node_start(struct node *n)
{
    start(n, &n->commands);
}

static void retry_fired(struct timer *t)
{
    struct node *n = container_of(t, struct node, retry);

    if (n->commands.stream.state == STREAM_CLOSED)
        start(n, &n->commands);
    else if (n->up && n->listen_wanted)
        start(n, &n->messages);
}

static void commands_down(struct conn *conn, const hf_error *err)
{
    struct node *n = conn->node;
    struct redis *r = n->redis;

    n->up = false;
    n->tried = true;
    if (n->old_id == 0)
        n->old_id = n->id;
    n->id = 0;
    try_later(n);
    if (r->topology == TOPOLOGY_REDLOCK)
        hf__redlock_cut(r, n);
    hf__redis_state(r, err);
    if (r->topology == TOPOLOGY_SENTINEL)
        hf__redis_sentinel_lost(r);
    else if (r->topology == TOPOLOGY_CLUSTER)
        hf__redis_cluster_lost(n);
}

static void messages_down(struct conn *conn, const hf_error *err)
{
    struct node *n = conn->node;

    (void)
        /* waiting goes on by looking; what makes this one fail makes the other fail too */
        err;
    n->listening = false;
    if (n->listen_wanted && n->up)
        try_later(n);
}

void hf__redis_node_fail(struct node *n, int code, const char *fmt, ...)
{
    char text[600];
    hf_error err;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    hf__fail(&err, code, 0, n->shown, "%s", text);
    hf__redis_conn_drop(&n->commands, &err);
}

void hf__redis_node_ready(struct node *n)
{
    struct redis *r = n->redis;

    n->up = true;
    n->back_off_us = 0;
    if (n->listen_wanted)
        start(n, &n->messages);
    if (r->topology == TOPOLOGY_REDLOCK)
        hf__redlock_ready(n);
    if (r->topology == TOPOLOGY_CLUSTER)
        hf__redis_cluster_ready(n);
    else
        hf__redis_state(r, NULL);
}

void hf__redis_node_listen(struct node *n)
{
    n->listen_wanted = true;
    if (n->up)
        start(n, &n->messages);
}

/* Another server is the master now. Requests of the old one cannot reach this one. */
void hf__redis_node_move(struct node *n, const char *host, uint16_t port)
{
    char *copy = strdup(host);
    hf_error err;

    if (!copy)
        return;
    hf__fail(&err, HF_EUNREACHABLE, 0, n->shown, "the master has moved to %s:%u", host,
             (unsigned)port);
    if (!n->host || strcmp(n->host, host) != 0 || n->port != port) {
        hf__redis_conn_drop(&n->messages, &err);
        hf__redis_conn_drop(&n->commands, &err);
        n->id = n->old_id = 0;
    }
    free(n->host);
    n->host = copy;
    n->port = port;
    n->back_off_us = 0;
    show(n);
    hf__redis_node_start(n);
}

struct node *hf__redis_node_of(struct redis *r, unsigned bucket)
{
    struct node *n = r->one ? r->one : r->buckets[bucket];

    return n && n->up ? n : NULL;
}

/* ---- up and down ----------------------------------------------------------------- */

void hf__redis_state(struct redis *r, const hf_error *err)
{
    bool up = r->one                            ? r->one->up
              : r->topology == TOPOLOGY_CLUSTER ? hf__redis_cluster_up(r)
                                                : hf__redlock_up(r);

    if (!up) {
        hf_error all;

        r->up = false;
        hf__redis_conn_later_lost(r);
        if (r->topology == TOPOLOGY_REDLOCK)
            err = hf__redlock_why(r, err, &all);
        ev_store(&r->store, STORE_DOWN, err);
    } else if (!r->up) {
        r->up = true;
        ev_store(&r->store, STORE_UP, NULL);
        hf__redis_follows_subscribe(r, NULL);
    }
}

/* A node of several is back: what was asked of it is to be asked again. */
void hf__redis_pulse(struct redis *r)
{
    if (r->up) {
        hf_error err;

        r->up = false;
        hf__fail(&err, HF_EUNREACHABLE, 0, r->shown, "a node was lost");
        ev_store(&r->store, STORE_DOWN, &err);
    }
    hf__redis_state(r, NULL);
}
