/* cluster.c: which node serves which bucket.
 *
 *   seeds of the URL -> CLUSTER SLOTS from the first that answers -> a node for each master
 *
 * Seeds may be replicas, which know the map, too: they send us on (MOVED). The map is asked
 * for again when a server says MOVED, when a subscription ends because its slot has moved,
 * and while a node that it names is not to be reached. A bucket whose node is unreachable
 * has no way: what is asked of it is answered NULL, and when its node is back, or the map
 * names another, the core repeats everything that was unanswered (hf__redis_pulse). The
 * store is up when every node of the first map has been reached or tried. */
#include "driver/redis/redis.h"

#include <stdlib.h>
#include <string.h>

enum { AGAIN_US = 100000 };

struct cluster {
    struct redis *redis;
    struct timer again;
    bool asked, loaded, stale;
    unsigned turn; /* whose it is to be asked */
};

static void ask(struct redis *);

static void fired(struct timer *t)
{
    struct redis *r = container_of(t, struct cluster, again)->redis;

    ask(r);
    hf__redis_conn_flush(r);
}

static void ask_later(struct redis *r)
{
    struct env *env = r->store.env;

    if (!timer_armed(&r->cluster->again))
        env->timer(env, &r->cluster->again, env->now(env) + AGAIN_US);
}

struct node *hf__redis_cluster_node(struct redis *r, const char *host, uint16_t port)
{
    struct node *n;

    list_for(l, &r->nodes) {
        n = container_of(l, struct node, in_redis);
        if (n->port == port && strcmp(n->host, host) == 0)
            return n;
    }
    n = hf__redis_node_new(r, host, port, NULL);
    if (n)
        hf__redis_node_start(n);
    return n;
}

/* ---- the map --------------------------------------------------------------------- */

static bool slots_entry(const redisReply *e)
{
    return e->type == REDIS_REPLY_ARRAY && e->elements >= 3 &&
           e->element[0]->type == REDIS_REPLY_INTEGER &&
           e->element[1]->type == REDIS_REPLY_INTEGER &&
           e->element[2]->type == REDIS_REPLY_ARRAY && e->element[2]->elements >= 2 &&
           (e->element[2]->element[0]->type == REDIS_REPLY_STRING ||
            e->element[2]->element[0]->type == REDIS_REPLY_NIL) &&
           e->element[2]->element[1]->type == REDIS_REPLY_INTEGER;
}

/* The master of an entry; no host, or an empty one, is that of the server that answered. */
static struct node *entry_node(struct redis *r, const redisReply *e,
                               const struct node *teller)
{
    const redisReply *master = e->element[2];
    const char *host =
        master->element[0]->type == REDIS_REPLY_STRING && master->element[0]->len > 0
            ? master->element[0]->str
            : teller->host;
    long long port = master->element[1]->integer;

    return port > 0 && port < 65536 ? hf__redis_cluster_node(r, host, (uint16_t)port)
                                    : NULL;
}

/* The map says so. A teller may be behind: a node that is not to be reached does not take
 * the place of one that serves. True: the bucket had another node before. */
static bool place_bucket(struct redis *r, unsigned b, struct node *n)
{
    struct node *old = r->buckets[b];
    bool again = r->unheard[b];

    if (old == n ? !again : old && node_up(old) && n->tried && !node_up(n))
        return false;
    r->unheard[b] = false;
    r->buckets[b] = n;
    if (node_up(n) && r->bucket_wanted[b])
        hf__redis_wake_again(r, n, b);
    if (node_up(n) && again)
        hf__redis_follows_subscribe(r, n);
    return old != n;
}

/* Returns whether a bucket has got another node. */
static bool read_map(struct redis *r, const redisReply *reply, const struct node *teller)
{
    bool moved = false;

    list_for(l, &r->nodes)
        container_of(l, struct node, in_redis)->wanted = false;
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *e = reply->element[i];
        struct node *n = slots_entry(e) ? entry_node(r, e, teller) : NULL;

        if (!n)
            continue;
        n->wanted = true;
        for (unsigned b = 0; b < BUCKETS; b++) {
            long long slot = hf__redis_bucket_slot(b);

            if (slot >= e->element[0]->integer && slot <= e->element[1]->integer)
                moved = place_bucket(r, b, n) || moved;
        }
    }
    return moved;
}

static bool serves(const struct redis *r, const struct node *n)
{
    for (unsigned b = 0; b < BUCKETS; b++)
        if (r->buckets[b] == n)
            return true;
    return false;
}

/* Drops nodes that the map does not name, but none with which we are not done: the teller
 * may be behind, and what is under way there could be executed after we had gone (G7).
 * Returns whether there is one. */
static bool drop_unwanted(struct redis *r, const struct node *teller)
{
    bool left = false;

    list_for_safe(l, &r->nodes) {
        struct node *n = container_of(l, struct node, in_redis);

        if (n->wanted || n == teller)
            continue;
        if (node_up(n) && (serves(r, n) || hf__link_oldest(&n->commands.link))) {
            left = true;
            continue;
        }
        for (unsigned b = 0; b < BUCKETS; b++)
            if (r->buckets[b] == n)
                r->buckets[b] = NULL;
        hf__redis_conn_lose_all(n);
        hf__redis_node_free(n);
    }
    return left;
}

static bool all_tried(const struct redis *r)
{
    list_for(l, &r->nodes) {
        const struct node *n = container_of(l, struct node, in_redis);

        if (n->wanted && !node_up(n) && !n->tried)
            return false;
    }
    return true;
}

static bool any_away(const struct redis *r)
{
    list_for(l, &r->nodes) {
        const struct node *n = container_of(l, struct node, in_redis);

        if (n->wanted && !node_up(n))
            return true;
    }
    for (unsigned b = 0; b < BUCKETS; b++)
        if (!r->buckets[b])
            return true;
    return false;
}

bool hf__redis_cluster_up(const struct redis *r)
{
    if (!r->cluster || !r->cluster->loaded || (!r->up && !all_tried(r)))
        return false;
    list_for(l, &r->nodes) {
        const struct node *n = container_of(l, struct node, in_redis);

        if (n->wanted && node_up(n))
            return true;
    }
    return false;
}

/* ---- the question ---------------------------------------------------------------- */

struct question {
    struct redis_call q;
    struct node *teller;
};

static void build(struct redis *r, struct redis_call *q, struct command *c)
{
    (void)r;
    (void)q;
    hf__redis_command_begin(c, 2);
    hf__redis_command_text(c, "CLUSTER");
    hf__redis_command_text(c, "SLOTS");
}

static void answer(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct node *teller = container_of(q, struct question, q)->teller;
    struct cluster *c = r->cluster;
    hf_error err;

    c->asked = false;
    if (!reply) {
        ask_later(r);
    } else if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0) {
        if (reply->type == REDIS_REPLY_ERROR)
            hf__redis_reply_error(r, reply, &err);
        else
            hf__fail(&err, HF_EUNREACHABLE, 0, teller->shown,
                     "the cluster serves no slots");
        hf__redis_state(r, &err);
        ask_later(r);
    } else {
        bool moved = read_map(r, reply, teller), first = !c->loaded;
        bool left = drop_unwanted(r, teller);

        c->loaded = true;
        if (moved && !first)
            hf__redis_pulse(r);
        else
            hf__redis_state(r, NULL);
        if (any_away(r) || left || c->stale)
            ask_later(r);
        c->stale = false;
    }
}

/* Another node each time: one may be behind, or have left the cluster. NULL: none is up. */
static struct node *next_teller(struct redis *r)
{
    unsigned n = 0, turn;

    list_for(l, &r->nodes)
        n += node_up(container_of(l, struct node, in_redis));
    if (n == 0)
        return NULL;
    turn = r->cluster->turn++ % n;
    list_for(l, &r->nodes) {
        struct node *node = container_of(l, struct node, in_redis);

        if (node_up(node) && turn-- == 0)
            return node;
    }
    return NULL;
}

static void ask(struct redis *r)
{
    static const struct request_type type = { build, answer, false };
    struct redis_call *q;
    struct node *teller;

    if (r->cluster->asked) {
        r->cluster->stale = true;
        return;
    }
    teller = next_teller(r);
    if (!teller)
        return; /* the next that is greeted is asked */
    q = hf__redis_request_new(&type, sizeof(struct question), 0);
    if (!q) {
        ask_later(r);
        return;
    }
    container_of(q, struct question, q)->teller = teller;
    r->cluster->asked = true;
    hf__redis_conn_send(&teller->commands, q);
}

void hf__redis_cluster_stale(struct redis *r)
{
    ask_later(r);
}

void hf__redis_cluster_ready(struct node *n)
{
    struct redis *r = n->redis;

    for (unsigned b = 0; b < BUCKETS; b++)
        if (r->bucket_wanted[b] && r->buckets[b] == n)
            hf__redis_wake_again(r, n, b); /* its messages may have come all the time */
    ask(r);
    if (r->up)
        hf__redis_pulse(r);
    else
        hf__redis_state(r, NULL);
}

void hf__redis_cluster_moved(struct redis *r, unsigned slot, const char *host,
                             uint16_t port)
{
    struct node *n = hf__redis_cluster_node(r, host, port);

    if (!n)
        return;
    n->wanted = true;
    for (unsigned b = 0; b < BUCKETS; b++)
        if (hf__redis_bucket_slot(b) == slot && r->buckets[b] != n) {
            r->buckets[b] = n;
            if (r->bucket_wanted[b] && node_up(n))
                hf__redis_wake_again(r, n, b);
        }
    ask_later(r);
}

int hf__redis_cluster_start(struct redis *r, const struct url *url, uint16_t port,
                            hf_error *err)
{
    r->cluster = calloc(1, sizeof *r->cluster);
    if (!r->cluster)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a cluster");
    r->cluster->redis = r;
    timer_init(&r->cluster->again, fired);
    for (size_t i = 0; i < url->nhosts; i++)
        if (!hf__redis_cluster_node(r, url->hosts[i].host,
                                    url->hosts[i].port ? url->hosts[i].port : port))
            return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a connection");
    return 0;
}

void hf__redis_cluster_done(struct redis *r)
{
    struct env *env = r->store.env;

    if (!r->cluster)
        return;
    env->timer(env, &r->cluster->again, LOOP_NEVER);
    free(r->cluster);
    r->cluster = NULL;
}
