/* redlock_leave.c: giving a key back.
 *
 * On every node on which it may be ours, behind what was asked of it before; what does not answer
 * gives it up later, or by its ttl. A leave ends when a majority is free of it, which lets the next
 * one in, and all that answer fast have answered, so that nothing is left behind; without a majority
 * within the connect time-out it is not known (HF_EUNKNOWN), and the core repeats it (G7). */
#include "driver/redis/redlock.h"

/* On every node on which the key may be ours. */
void hf__redlock_free_all(struct bid *b)
{
    uint64_t number = ++b->number;

    b->sending = true;
    b->open = b->prompt = b->freed = 0;
    for (unsigned i = 0; i < b->redis->nnodes; i++) {
        bool prompt = !hf__redlock_lags(b, i);

        if (!(b->mine & 1u << i)) {
            b->freed++;
            continue;
        }
        b->open++;
        b->prompt += prompt;
        if (!hf__redlock_send(b, BALLOT_FREE, i, number)) {
            b->open--;
            b->prompt -= prompt;
        }
    }
    b->sending = false;
}

/* A majority that is free of it lets the next one in. The others are waited for too, so that nothing
 * is left behind, but not if they are slow. */
static bool has_left(const struct bid *b)
{
    bool free_enough = b->freed >= hf__redlock_need(b->redis);

    return b->open == 0 ||
           (free_enough &&
            (b->prompt == 0 || redis_now(b->redis) >= b->left_at + hf__redlock_node_us(b)));
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
    b->left_at = redis_now(b->redis);
    hf__redlock_free_all(b);
    if (has_left(b))
        left(b);
    else
        hf__redlock_bid_timer(b, b->left_at + hf__redlock_node_us(b));
}

/* Slow ones are enough to wait for only if there is no majority without them. */
void hf__redlock_leave_on(struct bid *b)
{
    int64_t limit = b->left_at + b->redis->connect_ms * 1000;

    if (has_left(b) || redis_now(b->redis) >= limit)
        left(b);
    else
        hf__redlock_bid_timer(b, limit);
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

void hf__redlock_freed(struct bid *b, const struct ballot *k, const redisReply *reply)
{
    b->open--;
    b->prompt -= k->prompt;
    if (reply && reply->type == REDIS_REPLY_INTEGER) {
        b->freed++;
        b->mine &= ~(1u << k->q.bucket);
    }
    if (b->sending)
        return;
    if (b->state == BID_CLEAN && b->prompt == 0)
        hf__redlock_bid_rest(b);
    else if (b->state == BID_LEAVES && has_left(b))
        left(b);
}
