/* redlock_keep.c: keeping a key that is held on most nodes.
 *
 *   extend on all nodes -> n/2 + 1 have it still: held from the sending on
 *                       -> nodes that had lost it are given it again, for the next renewal
 *                       -> so many have lost it that no majority is left: lost
 *
 * Giving it again never counts in the renewal that found it missing: a holder that slept past its
 * time, while another had and gave back the key, would otherwise find it free everywhere and believe
 * that it had never lost it. The answer of a node that has just been started does not count either:
 * it may remember our key and have forgotten another's (redlock.c). */
#include "driver/redis/redlock.h"

static void give_again(struct bid *b)
{
    struct redis *r = b->redis;

    if (redis_now(r) >= b->renewal_at + b->renewal_ms * 1000)
        return; /* these answers are old: the others may have lost it meanwhile */
    for (unsigned i = 0; i < r->nnodes; i++)
        if (b->missing & 1u << i && hf__redlock_send(b, BALLOT_ASSERT, i, 0))
            b->mine |= 1u << i;
    b->missing = 0;
}

void hf__redlock_extended(struct bid *b, unsigned i, const redisReply *reply)
{
    const struct redis *r = b->redis;
    unsigned need = hf__redlock_need(r);
    int64_t said = reply && reply->type == REDIS_REPLY_INTEGER ? reply->integer : -2;
    bool counts = hf__redlock_counts(r, r->buckets[i]);

    if (said == 1)
        b->alive += counts;
    if (said == 0)
        b->missing |= 1u << i;
    if (said == 1 && counts && b->alive == need)
        ev_alive(&b->t->own, b->renewal_at, b->renewal_ms);
    else if ((said == 0 || said == -1) && ++b->lost == r->nnodes - need + 1)
        ev_dead(&b->t->own, HF_ELOST);
    if (b->alive >= need)
        give_again(b);
}

void hf__redlock_renew(struct store *s, struct life *const *lives, size_t n)
{
    struct redis *r = redis_of(s);

    for (size_t i = 0; i < n; i++) {
        struct ticket *t = container_of(lives[i], struct ticket, own);
        struct bid *b = t->drv_ptr;

        if (!b || b->state != BID_HELD)
            continue;
        b->renewal++;
        b->renewal_at = redis_now(r);
        b->renewal_ms = lives[i]->ttl_ms;
        b->alive = b->lost = 0;
        b->missing = 0;
        for (unsigned k = 0; k < r->nnodes; k++)
            (void)hf__redlock_send(b, BALLOT_EXTEND, k, b->renewal);
    }
}
