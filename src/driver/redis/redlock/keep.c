/* keep.c: keeping a key that is held on most nodes, and giving it to the others.
 *
 *   granted, or extended on n/2 + 1 nodes -> held from the sending on
 *                       -> nodes that do not have it are given it, at once and in growing
 *                       steps -> so many have lost it that no majority is left: lost
 *
 * Why the others too: a holder with a bare majority loses it as soon as one of these nodes
 * forgets, by a clock that is stepped or a restart; the sooner the rest has the key, the
 * shorter is that time.
 *
 * Giving it never counts in the round that found it missing: a holder that slept past its
 * time, while another had and gave back the key, would otherwise find it free everywhere
 * and believe that it had never lost it. It is given only while a majority surely has it,
 * and for no longer than that; so whatever the next renewal finds, nobody else can have
 * been granted it meanwhile. What is on its way when the lock is given back is followed by
 * the giving back on the same connection, and is not sent again (ballot.c). The answer of a
 * node that has just been started does not count: it may remember our key and have
 * forgotten another's (redlock.c). */
#include "driver/redis/redlock/redlock.h"

enum { SPREAD_US = 2000, SPREADS_MOST = 8, LEAST_US = 5000 };

int64_t hf__redlock_left_us(const struct bid *b)
{
    return b->kept_at + b->kept_ms * 1000 - drift_us(b->kept_ms) - redis_now(b->redis);
}

/* Those that have not voted yet will: somebody has to read it. */
static bool unheard(const struct bid *b)
{
    for (unsigned i = 0; i < b->round.n; i++)
        if (b->round.nodes[i].vote == ANSWER_NONE)
            return true;
    return false;
}

static void plan(struct bid *b)
{
    int64_t step = b->missing ? SPREAD_US : hf__redlock_node_us(b);

    step <<= 2 * (b->spreads < SPREADS_MOST ? b->spreads : SPREADS_MOST);
    if ((b->missing == 0 && !unheard(b)) || hf__redlock_left_us(b) < step + LEAST_US)
        hf__redlock_bid_timer(b, LOOP_NEVER);
    else
        hf__redlock_bid_timer(b, redis_now(b->redis) + step);
}

void hf__redlock_spread(struct bid *b, uint32_t nodes)
{
    for (unsigned i = 0; i < b->redis->nnodes; i++)
        if (nodes & b->missing & 1u << i && hf__redlock_left_us(b) >= LEAST_US &&
            !hf__redlock_lags(b, i) && hf__redlock_send(b, BALLOT_ASSERT, i, 0))
            b->mine |= 1u << i;
    b->spreads++;
    plan(b);
}

void hf__redlock_kept(struct bid *b, int64_t at, int64_t ms)
{
    b->kept_at = at;
    b->kept_ms = ms;
    b->spreads = 0;
    plan(b);
}

void hf__redlock_lacks(struct bid *b, unsigned i, bool lacks)
{
    uint32_t before = b->missing;

    b->missing = lacks ? before | 1u << i : before & ~(1u << i);
    if (b->missing & ~before)
        b->spreads = 0;
    plan(b);
}

void hf__redlock_asserted(struct bid *b, unsigned i, const redisReply *reply)
{
    if (hf__redis_reply_number(reply, 0) != 1)
        return; /* not yet; or what was given before has come */
    b->missing &= ~(1u << i);
    plan(b);
}

void hf__redlock_extended(struct bid *b, unsigned i, const redisReply *reply)
{
    const struct redis *r = b->redis;
    unsigned need = hf__redlock_need(r);
    int64_t said = reply && reply->type == REDIS_REPLY_INTEGER ? reply->integer : -2;
    bool counts = hf__redlock_counts(r, r->voters[i]);

    if (said == 1) {
        b->alive += counts;
        b->missing &= ~(1u << i);
    } else {
        b->missing |= 1u << i;
    }
    if (said == 1 && counts && b->alive == need) {
        hf__redlock_kept(b, b->renewal_at, b->renewal_ms);
        ev_alive(b->t->own, b->renewal_at, b->renewal_ms);
        hf__redlock_spread(b, b->missing);
    } else if ((said == 0 || said == -1) && ++b->lost == r->nnodes - need + 1) {
        hf__redlock_kept(b, 0, 0);
        ev_dead(b->t->own);
    } else if (said != 1 && b->alive >= need) {
        hf__redlock_spread(b, 1u << i);
    }
}

void hf__redlock_renew(struct store *s, struct life *const *lives, size_t n)
{
    struct redis *r = redis_of(s);

    for (size_t i = 0; i < n; i++) {
        struct ticket *t = life_ticket(lives[i]);
        struct bid *b = t->drv_ptr;

        if (!b || b->state != BID_HELD)
            continue;
        b->renewal++;
        b->renewal_at = redis_now(r);
        b->renewal_ms = lives[i]->ttl_ms;
        b->alive = b->lost = 0;
        for (unsigned k = 0; k < r->nnodes; k++)
            if (!hf__redlock_send(b, BALLOT_EXTEND, k, b->renewal))
                b->missing |= 1u << k;
    }
}
