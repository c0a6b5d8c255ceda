/* cluster.c: which node serves which bucket.
 *
 *   seeds of the URL -> CLUSTER SLOTS from the first that answers -> a node for each master
 *
 * Seeds may be replicas, which know the map, too: they send us on (MOVED). The store is up
 * when every node of the first map has been reached or tried, and while one is.
 *
 * When the map is asked for again: a server has said MOVED, or has ended a subscription,
 * because a slot has moved; a connection was lost; a bucket owes, and its node is up; and
 * while a node that the map names is not up, one that it does not name is still there, or a
 * bucket is nobody's. A question that has no answer, or an error, is asked again; if no
 * node is up, the next that comes up is asked. Each time it is another node's turn: one may
 * be behind, or have left.
 *
 * Because the one that tells may be behind, its map changes less than it says: a node that
 * was tried and is not up does not take a bucket from one that is up; and of the nodes that
 * it does not name those stay that are up and serve a bucket or owe us an answer: what is
 * under way there could be executed after we had gone (G7). What a server says of itself
 * (MOVED) holds at once.
 *
 * A bucket has a way while the node of its slot is up. Without one, what is asked is
 * answered NULL. The core must repeat that, but only that: a client may hold a hundred
 * thousand names at the other nodes. Two flags of a bucket say what is to be done:
 *
 *   unheard  a server has ended a subscription: the slot went elsewhere, and may be back.
 *            The next map that places the bucket counts as a move, also to the same node.
 *   owes     its tickets are to be asked about again.
 *     set      before a request of the bucket is answered NULL, wherever it was sent (a
 *              slot that is being moved has two nodes); when the bucket moves; when its
 *              node comes up, which may have lost what it had
 *     cleared  in repeat(), if the bucket has a way: ev_back has just named its tickets,
 *              or UP, which names all
 *
 * Why nothing is forgotten: repeat() follows every map, and every node that comes up. A
 * bucket that owes gets its way by one of the two, or by MOVED, which asks for a map; and
 * if it begins to owe while it has a way, it asks for a map itself. What the core sends
 * after ev_back, and is answered NULL again, sets the flag again.
 *
 * Why messages are heard (G4): where a bucket is wanted its channel is subscribed to when
 * it moves to a node that is up, when its node comes up, and on every new connection for
 * messages; the confirmation makes everybody look who waits there (wake.c). Follows are
 * subscribed to again by repeat(), for every node with a bucket that owed. */
#include "driver/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AGAIN_US = 100000 };

struct cluster {
    struct redis *redis;
    struct timer again;
    bool asked, loaded, stale;
    unsigned turn;             /* whose it is to be asked */
    struct node *slots[SLOTS]; /* NULL: nobody's */
    bool owes[BUCKETS];
};

static void ask(struct redis *);

static void fired(struct timer *t)
{
    struct redis *r = container_of(t, struct cluster, again)->redis;

    ask(r);
    hf__redis_conn_flush(r);
}

void hf__redis_cluster_ask_later(struct redis *r)
{
    struct env *env = r->store.env;

    if (!timer_armed(&r->cluster->again))
        env->timer(env, &r->cluster->again, env->now(env) + AGAIN_US);
}

/* It, or a new one; NULL: no memory. */
static struct node *node_at(struct redis *r, const char *host, uint16_t port)
{
    struct node *n;

    node_for(old, r)
        if (old->port == port && strcmp(old->host, host) == 0)
            return old;
    n = hf__redis_node_new(r, host, port, NULL);
    if (n)
        hf__link_start(&n->commands.link);
    return n;
}

/* ---- the map --------------------------------------------------------------------- */

static bool slots_entry(const redisReply *e)
{
    return e->type == REDIS_REPLY_ARRAY && e->elements >= 3 &&
           e->element[0]->type == REDIS_REPLY_INTEGER &&
           e->element[1]->type == REDIS_REPLY_INTEGER && e->element[0]->integer >= 0 &&
           e->element[1]->integer < SLOTS && e->element[2]->type == REDIS_REPLY_ARRAY &&
           e->element[2]->elements >= 2 &&
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

    return port > 0 && port < 65536 ? node_at(r, host, (uint16_t)port) : NULL;
}

struct node *hf__redis_cluster_of(const struct redis *r, unsigned bucket)
{
    return r->cluster->slots[hf__redis_bucket_slot(bucket)];
}

/* It has got another node, or the same again: it is asked, and heard, there. */
static void bucket_moved(struct redis *r, unsigned bucket)
{
    struct node *n = hf__redis_node_of(r, bucket);

    r->cluster->owes[bucket] = true;
    r->unheard[bucket] = false;
    if (n && r->bucket_wanted[bucket])
        hf__redis_wake_again(r, n, bucket);
}

/* The map has placed it; `was`: where it was before. */
static void place_bucket(struct redis *r, unsigned bucket, struct node *was)
{
    struct node **at = &r->cluster->slots[hf__redis_bucket_slot(bucket)];

    if (*at != was && was && node_up(was) && (*at)->tried && !node_up(*at))
        *at = was;
    else if (*at != was || r->unheard[bucket])
        bucket_moved(r, bucket);
}

void hf__redis_cluster_read(struct redis *r, const redisReply *reply,
                            const struct node *teller)
{
    struct node *was[BUCKETS];

    for (unsigned b = 0; b < BUCKETS; b++)
        was[b] = hf__redis_cluster_of(r, b);
    node_for(n, r)
        n->wanted = false;
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *e = reply->element[i];
        struct node *n = slots_entry(e) ? entry_node(r, e, teller) : NULL;

        if (!n)
            continue;
        n->wanted = true;
        for (long long s = e->element[0]->integer; s <= e->element[1]->integer; s++)
            r->cluster->slots[s] = n;
    }
    for (unsigned b = 0; b < BUCKETS; b++)
        place_bucket(r, b, was[b]);
}

static bool serves(const struct redis *r, const struct node *n)
{
    for (unsigned b = 0; b < BUCKETS; b++)
        if (hf__redis_cluster_of(r, b) == n)
            return true;
    return false;
}

/* Drops the nodes that the map does not name and with which we are done. Returns whether
 * one is left. */
static bool drop_unwanted(struct redis *r, const struct node *teller)
{
    bool left = false;

    list_for_safe(l, &r->nodes) {
        struct node *n = node_in(l);

        if (n->wanted || n == teller)
            continue;
        if (node_up(n) && (serves(r, n) || hf__link_oldest(&n->commands.link))) {
            left = true;
            continue;
        }
        for (unsigned s = 0; s < SLOTS; s++)
            if (r->cluster->slots[s] == n)
                r->cluster->slots[s] = NULL;
        hf__redis_conn_lose_all(n);
        hf__redis_node_free(n);
    }
    return left;
}

static bool all_tried(const struct redis *r)
{
    node_for(n, r)
        if (n->wanted && !node_up(n) && !n->tried)
            return false;
    return true;
}

static bool any_away(const struct redis *r)
{
    node_for(n, r)
        if (n->wanted && !node_up(n))
            return true;
    for (unsigned b = 0; b < BUCKETS; b++)
        if (!hf__redis_cluster_of(r, b))
            return true;
    return false;
}

bool hf__redis_cluster_up(const struct redis *r)
{
    if (!r->cluster || !r->cluster->loaded || (!r->up && !all_tried(r)))
        return false;
    node_for(n, r)
        if (n->wanted && node_up(n))
            return true;
    return false;
}

/* ---- asking again ---------------------------------------------------------------- */

void hf__redis_cluster_owes(struct redis *r, unsigned bucket)
{
    r->cluster->owes[bucket] = true;
    if (hf__redis_node_of(r, bucket))
        hf__redis_cluster_ask_later(r); /* and then again */
}

static bool is_owed(struct redis *r, unsigned bucket)
{
    return r->cluster->owes[bucket] && hf__redis_node_of(r, bucket);
}

static bool concerns(struct store *s, const struct ticket *t)
{
    return is_owed(redis_of(s), ticket_bucket(t));
}

/* A node or a map has come. */
static void repeat(struct redis *r)
{
    bool was_up = r->up, any = false;

    hf__redis_state(r, NULL);
    if (!r->up)
        return;
    node_for(n, r) {
        bool owed = false;

        for (unsigned b = 0; b < BUCKETS && !owed; b++)
            owed = is_owed(r, b) && hf__redis_cluster_of(r, b) == n;
        if (owed && was_up) /* else UP has told it to all */
            hf__redis_follows_subscribe(r, n);
        any = any || owed;
    }
    if (any && was_up)
        ev_back(&r->store, concerns);
    for (unsigned b = 0; b < BUCKETS && any; b++)
        if (is_owed(r, b))
            r->cluster->owes[b] = false;
}

/* ---- the question ---------------------------------------------------------------- */

static void build(struct redis *r, struct redis_call *q, struct command *c)
{
    (void)r;
    (void)q;
    hf__redis_command_words(c, "CLUSTER SLOTS", 0);
}

static void answer(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct node *teller = q->at;
    struct cluster *c = r->cluster;
    hf_error err;

    c->asked = false;
    if (!reply) {
        hf__redis_cluster_ask_later(r);
    } else if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0) {
        if (reply->type == REDIS_REPLY_ERROR)
            hf__redis_reply_error(r, reply, &err);
        else
            hf__fail(&err, HF_EUNREACHABLE, 0, teller->shown,
                     "the cluster serves no slots");
        hf__redis_state(r, &err);
        hf__redis_cluster_ask_later(r);
    } else {
        bool left;

        hf__redis_cluster_read(r, reply, teller);
        c->loaded = true;
        left = drop_unwanted(r, teller);
        repeat(r);
        if (any_away(r) || left || c->stale)
            hf__redis_cluster_ask_later(r);
        c->stale = false;
    }
}

/* Another node each time: one may be behind, or have left the cluster. NULL: none is up. */
static struct node *next_teller(struct redis *r)
{
    unsigned n = 0, turn;

    node_for(node, r)
        n += node_up(node);
    if (n == 0)
        return NULL;
    turn = r->cluster->turn++ % n;
    node_for(node, r)
        if (node_up(node) && turn-- == 0)
            return node;
    return NULL;
}

static void ask(struct redis *r)
{
    static const struct request_type type = { .build = build, .answer = answer };
    struct node *teller;

    if (r->cluster->asked) {
        r->cluster->stale = true;
        return;
    }
    teller = next_teller(r);
    if (!teller)
        return; /* the next that is greeted is asked */
    r->cluster->asked = hf__redis_ask_on(&teller->commands, &type, NULL);
    if (!r->cluster->asked)
        hf__redis_cluster_ask_later(r);
}

void hf__redis_cluster_ready(struct node *n)
{
    struct redis *r = n->redis;

    for (unsigned b = 0; b < BUCKETS; b++)
        if (hf__redis_cluster_of(r, b) == n) {
            r->cluster->owes[b] = true;
            if (r->bucket_wanted[b]) /* its messages may have come all the time */
                hf__redis_wake_again(r, n, b);
        }
    ask(r);
    repeat(r);
}

static void slot_moved(struct redis *r, unsigned slot, struct node *n)
{
    n->wanted = true;
    if (r->cluster->slots[slot] != n) {
        r->cluster->slots[slot] = n;
        for (unsigned b = 0; b < BUCKETS; b++)
            if (hf__redis_bucket_slot(b) == slot)
                bucket_moved(r, b);
    }
    hf__redis_cluster_ask_later(r);
}

struct node *hf__redis_cluster_place(struct redis *r, const struct node *teller,
                                     const char *text)
{
    char word[8], place[256], *colon;
    struct node *n = NULL;
    unsigned slot;
    long port = 0;

    if (sscanf(text, "%7s %u %255s", word, &slot, place) == 3 && slot < SLOTS &&
        (colon = strrchr(place, ':')) != NULL) {
        port = strtol(colon + 1, NULL, 10);
        *colon = '\0';
    }
    if (port > 0 && port < 65536)
        n = node_at(r, place[0] ? place : teller->host, (uint16_t)port);
    if (!n)
        hf__redis_cluster_ask_later(r);
    else if (strcmp(word, "MOVED") == 0)
        slot_moved(r, slot, n);
    return n;
}

int hf__redis_cluster_start(struct redis *r, hf_error *err)
{
    r->cluster = calloc(1, sizeof *r->cluster);
    if (!r->cluster)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a cluster");
    r->cluster->redis = r;
    timer_init(&r->cluster->again, fired);
    for (size_t i = 0; i < r->open.nhosts; i++)
        if (!node_at(r, r->open.hosts[i].host, r->open.hosts[i].port))
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
