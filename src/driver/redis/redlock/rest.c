/* rest.c: a round was lost: until when is the next one, or is that the end?
 *
 * Nobody is in line. Those who wait hear of keys that holdfast's holders give back, and try
 * then; for others they try when the key in their way expires, and in growing steps with
 * full jitter. A round in which no majority was against us may be a split vote: then the
 * steps are short. What a lost round gives back is not told, because those who wait would
 * wake each other for ever while somebody else has the majority.
 *
 * A try has a few rounds; who would wait for nodes that do not count yet is told so
 * instead. */
#include "driver/redis/redlock/redlock.h"

#include <string.h>

enum {
    REST_LEAST_US = 50000,
    SPLIT_LEAST_US = 4000,
    SOON_US = 2000,
    TRY_ROUNDS = 4,
    TRY_US = 1000000
};

static void refuse(struct bid *b, int rc)
{
    const struct redis *r = b->redis;
    struct ticket *t = b->t;
    hf_error err;

    if (rc != HF_EBUSY)
        rc = hf__redlock_too_few(r, b, &err);
    else if (b->foreign)
        hf__fail(&err, rc, 0, r->open.shown, "the key '%s' is a %s, not a lock", t->name,
                 b->type);
    else
        hf__fail(&err, rc, 0, r->open.shown, "'%s' is held by somebody else", t->name);
    hf__redlock_bid_end(b);
    ev_gone(t, rc, -1, &err);
}

/* Full jitter between 50 ms and the time of a renewal, but when the key in the way expires,
 * then. Sooner if nobody may have it, or if it was given back while the round was under
 * way. */
static int64_t rest_us(const struct bid *b)
{
    bool split = hf__redis_round_votes(&b->round, ANSWER_NO) < hf__redlock_need(b->redis);
    int64_t least = split ? SPLIT_LEAST_US : REST_LEAST_US,
            most = renewals_us(b->t->ttl_ms, 1);
    int64_t step = least << (b->tries < 10 ? b->tries : 10);
    struct env *env = b->redis->store.env;
    uint32_t dice;

    env->random(env, &dice, sizeof dice);
    if (b->told)
        return dice % SOON_US;
    if (step > most)
        step = most > least ? most : least;
    step = (split ? 0 : least) + (int64_t)(dice % (uint32_t)(step + 1));
    if (b->free_in_ms >= 0 && b->free_in_ms * 1000 + SOON_US < step)
        step = b->free_in_ms * 1000 + (int64_t)(dice % SOON_US);
    return step;
}

void hf__redlock_bid_wait(struct bid *b)
{
    hf__redlock_bid_timer(b, redis_now(b->redis) + rest_us(b));
}

static unsigned able(const struct redis *r)
{
    unsigned n = 0;

    for (unsigned i = 0; i < r->nnodes; i++)
        n += node_up(r->voters[i]) && hf__redlock_counts(r, r->voters[i]);
    return n;
}

/* Nodes that are there have not answered in time. */
static bool slow(const struct bid *b)
{
    unsigned n = 0;

    for (unsigned i = 0; i < b->redis->nnodes; i++)
        n += node_up(b->redis->voters[i]) && b->round.nodes[i].vote == ANSWER_FAILED;
    return n > 0;
}

/* A few rounds; more if that was a moment in which nodes were slow, since what they take is
 * short. */
static bool tried_enough(const struct bid *b)
{
    return b->tries >= TRY_ROUNDS &&
           (!slow(b) || redis_now(b->redis) >= b->began_at + TRY_US);
}

/* A try ends when a majority is against it, or after a few rounds. Whoever comes while
 * nodes that have just been started make a majority impossible is told so, not left to wait
 * for them; and so is everybody if nodes without which there is none refuse, twice in a
 * row. */
void hf__redlock_bid_rest(struct bid *b)
{
    struct redis *r = b->redis;
    struct ticket *t = b->t;
    unsigned need = hf__redlock_need(r), no = hf__redis_round_votes(&b->round, ANSWER_NO);
    bool hopeless = !b->waiting && no == 0 && r->up && able(r) < need;

    b->state = BID_RESTS;
    b->denials = hf__redlock_denied(b) ? b->denials + 1 : 0;
    if (t->try_only && (no >= need || b->foreign || tried_enough(b))) {
        refuse(b, no > 0 ? HF_EBUSY : HF_EUNREACHABLE);
        return;
    }
    if (hopeless || b->denials > 1) {
        refuse(b, HF_EUNREACHABLE);
        return;
    }
    hf__redlock_bid_wait(b);
    b->told = false;
    if (!t->try_only) {
        b->waiting = true;
        hf__redlock_listen(r, t);
        ev_waiting(t, 0, -1);
    }
}

/* A key was given back: those who wait for it try, not all at the same moment. */
static void wake(struct bid *b)
{
    struct env *env = b->redis->store.env;
    uint32_t dice;

    b->tries = 0;
    if (b->state == BID_VOTES || b->state == BID_CLEAN) {
        b->told = true; /* perhaps after the node has voted */
    } else if (b->state == BID_RESTS) {
        env->random(env, &dice, sizeof dice);
        hf__redlock_bid_timer(b, redis_now(b->redis) +
                                     (b->redis->nnodes > 1 ? dice % SOON_US : 0));
    }
}

void hf__redlock_told(struct redis *r, const char *channel, size_t len)
{
    for (size_t i = 0; i <= r->scripted.seats.mask; i++)
        for (struct map_node *m = r->scripted.seats.slots[i]; m; m = m->next) {
            struct ticket *t = container_of(m, struct ticket, drv_node);
            struct bid *b = t->drv_ptr;
            char name[KEY_MAX + 32], key[KEY_MAX];

            if (b && b->listening &&
                hf__redlock_channel(name, key,
                                    hf__redlock_key(r, key, t->name, t->name_len)) == len &&
                memcmp(name, channel, len) == 0)
                wake(b);
        }
}

/* What it wanted to have again later is lost with its connection: the server may be started
 * again, and a round is about the run that it began with. */
void hf__redlock_cut(struct redis *r, const struct node *n)
{
    for (unsigned k = 0; k < r->nnodes; k++)
        if (r->voters[k] == n)
            hf__redis_conn_later_lost(r, (int)k);
    for (size_t i = 0; i <= r->scripted.seats.mask; i++)
        for (struct map_node *m = r->scripted.seats.slots[i]; m; m = m->next) {
            struct bid *b = container_of(m, struct ticket, drv_node)->drv_ptr;

            for (unsigned k = 0; b && k < r->nnodes; k++)
                if (r->voters[k] == n)
                    hf__redis_round_cut(&b->round, k);
        }
}
