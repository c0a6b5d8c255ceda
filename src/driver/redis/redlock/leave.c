/* leave.c: giving a key back.
 *
 * On every node on which it may be ours, behind what was asked of it before; what does not
 * answer gives it up later, or by its ttl. A leave ends when a majority is free of it,
 * which lets the next one in; the others do it in the meantime, and whatever is asked of
 * them next comes behind it. Without a majority within the connect time-out it is not known
 * (HF_EUNKNOWN), and the core repeats it (G7).
 *
 * A place that is to be kept is kept when a majority had the key and keeps it: a node that
 * never had it, or has it no more, would let somebody else in. */
#include "driver/redis/redlock/redlock.h"

static bool keeps(const struct bid *b)
{
    return b->state == BID_LEAVES && b->t->keep_ms > 0;
}

/* On every node on which the key may be ours. */
void hf__redlock_free_all(struct bid *b)
{
    uint64_t number = ++b->number;

    b->open = b->prompt = b->freed = 0;
    for (unsigned i = 0; i < b->redis->nnodes; i++) {
        bool prompt = !hf__redlock_lags(b, i);

        if (!(b->mine & 1u << i)) {
            b->freed += !keeps(b);
            continue;
        }
        if (hf__redlock_send(b, BALLOT_FREE, i, number)) {
            b->open++;
            b->prompt += prompt;
        } else {
            hf__redlock_owe(b, i);
        }
    }
}

/* A majority that is free of it lets the next one in; one that keeps it lets nobody in. */
static bool has_left(const struct bid *b)
{
    return b->open == 0 || b->freed >= hf__redlock_need(b->redis);
}

static void left(struct bid *b)
{
    struct ticket *t = b->t;
    bool settled = b->freed >= hf__redlock_need(b->redis);

    hf__redlock_bid_end(b);
    ev_left(t, settled ? 0 : HF_EUNKNOWN);
}

static void leave_now(struct bid *b)
{
    b->state = BID_LEAVES;
    hf__redlock_free_all(b);
    if (has_left(b))
        left(b);
    else
        hf__redlock_bid_timer(b, redis_now(b->redis) + b->redis->open.connect_ms * 1000);
}

void hf__redlock_leave_late(struct bid *b)
{
    left(b);
}

void hf__redlock_leave(struct store *s, struct ticket *t)
{
    struct redis *r = redis_of(s);
    struct bid *b = t->drv_ptr;

    if (b && b->state == BID_LEAVES)
        return;
    if (!b && (b = hf__redlock_bid_new(r, t)) !=
                  NULL) { /* repeated: with the value of its last round */
        hf__redlock_value(b);
        b->mine = (1u << r->nnodes) - 1;
    }
    if (b)
        leave_now(b);
    else
        ev_left(t, HF_EUNKNOWN);
}

/* It is not there any more, or is kept. */
static bool is_settled(const struct bid *b, const redisReply *reply)
{
    if (keeps(b))
        return reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    return (reply && reply->type == REDIS_REPLY_INTEGER) ||
           reply_starts(reply, "WRONGTYPE"); /* somebody's list */
}

void hf__redlock_freed(struct bid *b, const struct ballot *k, const redisReply *reply)
{
    b->open--;
    b->prompt -= k->prompt;
    if (is_settled(b, reply)) {
        b->freed++;
        b->mine &= ~(1u << k->q.bucket);
    }
    if (b->state == BID_CLEAN && b->prompt == 0)
        hf__redlock_bid_rest(b);
    else if (b->state == BID_LEAVES && has_left(b))
        left(b);
}
