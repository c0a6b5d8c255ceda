/* node.c: one server, and saying whether the store is up. Its connections are opened, and
 * opened again, by their links (kit/link.h); greet.c greets.
 *
 * Up means: logged in, a master, and no request of an older connection can be executed any
 * more (G7): the old connection is killed by its id before the store is said to be up.
 * Where the server does not let us (rights), an answer "not there" to a leave is not
 * believed until every join that was under way is over by its ttl.
 *
 * The second connection, for messages, is opened when a ticket first waits on this server.
 * When it was lost, messages may have been lost with it, so everybody who waits looks once
 * it is confirmed again (G4); until then the safety look finds grants.
 *
 * In a cluster one lost node does not make the store down: cluster.c. */
#include "driver/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void commands_lost(struct conn *);
static void messages_lost(struct conn *);

static void show(struct node *n)
{
    if (!n->host)
        snprintf(n->shown, sizeof n->shown, "%s", n->path ? n->path : n->redis->open.shown);
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
    n->port = port;
    hf__redis_conn_init(&n->commands, n);
    hf__redis_conn_init(&n->messages, n);
    if ((host && !(n->host = strdup(host))) || (path && !(n->path = strdup(path)))) {
        hf__redis_node_free(n);
        return NULL;
    }
    n->commands.greet = hf__redis_greet;
    n->commands.lost = commands_lost;
    n->messages.greet = hf__redis_wake_greet;
    n->messages.lost = messages_lost;
    n->messages.message = hf__redis_wake;
    show(n);
    list_push(&r->nodes, &n->in_redis);
    return n;
}

void hf__redis_node_free(struct node *n)
{
    if (!n)
        return;
    hf__redis_conn_done(&n->commands);
    hf__redis_conn_done(&n->messages);
    list_remove(&n->in_redis);
    free(n->host);
    free(n->path);
    free(n);
}

static void commands_lost(struct conn *conn)
{
    struct node *n = conn->node;
    struct redis *r = n->redis;

    if (n->old_id == 0)
        n->old_id = n->id;
    n->id = 0;
    n->messages.link.wanted = false; /* until it is up again */
    if (r->topology == TOPOLOGY_REDLOCK)
        hf__redlock_cut(r, n);
    else if (r->topology == TOPOLOGY_SENTINEL)
        hf__redis_sentinel_lost(r);
    else if (r->topology == TOPOLOGY_CLUSTER)
        hf__redis_cluster_ask_later(r);
}

/* Messages may be lost from now on. */
static void messages_lost(struct conn *conn)
{
    conn->node->asked_all = false;
}

void hf__redis_node_ready(struct node *n)
{
    struct redis *r = n->redis;

    hf__link_up(&n->commands.link);
    if (n->listen_wanted) {
        n->asked_all = n->messages.link.state == LINK_CLOSED;
        hf__link_start(&n->messages.link);
    }
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
    if (node_up(n))
        hf__link_start(&n->messages.link);
}

void hf__redis_node_aim(struct node *n, const char *host, uint16_t port)
{
    char *copy = strdup(host);

    if (!copy)
        return; /* what was known stays, and is tried again */
    free(n->host);
    n->host = copy;
    n->port = port;
    show(n);
}

/* Another server is the master now. Requests of the old one cannot reach this one. */
void hf__redis_node_move(struct node *n, const char *host, uint16_t port)
{
    hf_error err;

    hf__fail(&err, HF_EUNREACHABLE, 0, n->shown, "the master has moved to %s:%u", host,
             (unsigned)port);
    hf__link_drop(&n->messages.link, &err);
    hf__link_drop(&n->commands.link, &err);
    n->id = n->old_id = 0;
    hf__redis_node_aim(n, host, port);
    hf__link_forgive(&n->commands.link);
    hf__link_start(&n->commands.link);
}

struct node *hf__redis_node_of(struct redis *r, unsigned bucket)
{
    struct node *n = r->one       ? r->one
                     : r->cluster ? hf__redis_cluster_of(r, bucket)
                                  : r->voters[bucket];

    return n && node_up(n) ? n : NULL;
}

bool hf__redis_node_sharded(const struct node *n)
{
    return n->redis->topology == TOPOLOGY_CLUSTER && n->version >= 0x070000;
}

/* ---- up and down ----------------------------------------------------------------- */

void hf__redis_state(struct redis *r, const hf_error *err)
{
    bool up = r->one                            ? node_up(r->one)
              : r->topology == TOPOLOGY_CLUSTER ? hf__redis_cluster_up(r)
                                                : hf__redlock_up(r);

    if (!up) {
        hf_error all;

        r->up = false;
        if (r->topology == TOPOLOGY_REDLOCK)
            err = hf__redlock_why(r, err, &all);
        ev_store(&r->store, STORE_DOWN, err);
        hf__redis_conn_later_lost(r, -1);
    } else if (!r->up) {
        r->up = r->served = true;
        ev_store(&r->store, STORE_UP, NULL);
        hf__redis_follows_subscribe(r, NULL);
    }
}
