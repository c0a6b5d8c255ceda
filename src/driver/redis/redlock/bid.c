/* bid.c: taking a key on most of several independent servers, and giving it back.
 *
 *   a round: SET NX PX on all nodes at once -> n/2 + 1 yes, and the fence (round.h) -> held
 *                                           -> else: give back on all nodes, rest, try
 *                                           again
 *
 * Safety (G1). The lease counts from the sending of the round's first command, and only if
 * all of it, votes and fence, was done before the deadline that follows from it; so at
 * every moment at which it says held, a majority still has our key. Nodes that were started
 * less than max_ttl ago may have forgotten a key that another still counts on: their votes
 * do not count (redlock.c).
 *
 * Every round has a value of its own, and a lost round is given back on every node that was
 * asked, also those that did not answer: on one connection the giving back comes behind the
 * taking. With a connection that was lost between, the old one is killed before the node is
 * used again (greet.c), or the key expires. */
#include "driver/redis/redlock/redlock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_MS = 50 };

static void judge(struct bid *);
static void fired(struct timer *);

static struct env *env_of(const struct bid *b)
{
    return b->redis->store.env;
}

static int64_t now_of(const struct bid *b)
{
    return redis_now(b->redis);
}

void hf__redlock_bid_timer(struct bid *b, int64_t at)
{
    env_of(b)->timer(env_of(b), &b->timer, at);
}

/* How long one node may take: short against the ttl, so that a silent one costs little. A
 * single node has no others to go on with. */
int64_t hf__redlock_node_us(const struct bid *b)
{
    int64_t ttl = b->t->ttl_ms;

    if (b->redis->nnodes == 1)
        return (ttl / 2 < b->redis->open.connect_ms ? ttl / 2 : b->redis->open.connect_ms) *
               1000;
    return (ttl / 20 < NODE_MS ? ttl / 20 : NODE_MS) * 1000;
}

static int64_t deadline(const struct bid *b)
{
    return b->sent_at + b->t->ttl_ms * 1000 - drift_us(b->t->ttl_ms);
}

struct bid *hf__redlock_bid_new(struct redis *r, struct ticket *t)
{
    struct bid *b = calloc(1, sizeof *b);

    if (!b)
        return NULL;
    b->redis = r;
    b->t = t;
    b->free_in_ms = -1;
    b->began_at = redis_now(r);
    timer_init(&b->timer, fired);
    hf__seat_in(&r->scripted.seats, t);
    t->drv_ptr = b;
    return b;
}

void hf__redlock_bid_free(struct bid *b)
{
    hf__redlock_bid_timer(b, LOOP_NEVER);
    free(b);
}

void hf__redlock_bid_end(struct bid *b)
{
    struct redis *r = b->redis;
    struct ticket *t = b->t;
    bool listening = b->listening;

    t->drv_ptr = NULL;
    hf__redlock_bid_free(b);
    hf__seat_out(&r->scripted.seats, t);
    hf__redlock_unlisten(r, t, listening);
}

/* ---- a round --------------------------------------------------------------------- */

static void lose(struct bid *b)
{
    b->tries++;
    b->state = BID_CLEAN;
    hf__redlock_free_all(b);
    if (b->prompt == 0)
        hf__redlock_bid_rest(b);
    else
        hf__redlock_bid_timer(b, now_of(b) + hf__redlock_node_us(b));
}

/* A node that has forgotten its mark gets one from a winner, so that it can take part
 * again. */
static void seed(struct bid *b, unsigned i)
{
    if (hf__redis_round_seeds(&b->round, i))
        (void)hf__redlock_send(b, BALLOT_RAISE, i, b->number);
}

static void win(struct bid *b)
{
    struct redis *r = b->redis;
    struct ticket *t = b->t;

    if (b->round.candidate > r->highest)
        r->highest = b->round.candidate;
    if (now_of(b) >= deadline(b)) {
        lose(b); /* it took too long: other nodes may have given it away by now */
        return;
    }
    b->state = BID_HELD;
    b->missing = 0;
    for (unsigned i = 0; i < r->nnodes; i++)
        if (b->round.nodes[i].vote == ANSWER_NO || b->round.nodes[i].vote == ANSWER_FAILED)
            b->missing |= 1u << i;
    hf__redlock_kept(b, b->sent_at, t->ttl_ms);
    hf__redlock_unlisten(r, t, b->listening);
    b->listening = false;
    for (unsigned i = 0; i < r->nnodes; i++)
        seed(b, i);
    hf__hang(t, t->own);
    ev_granted(t, b->round.candidate, b->sent_at);
}

static void raise_all(struct bid *b)
{
    for (unsigned i = 0; i < b->round.n; i++)
        if (b->round.nodes[i].asked && !hf__redlock_send(b, BALLOT_RAISE, i, b->number))
            hf__redis_round_raised(&b->round, i, ANSWER_FAILED, -1);
    hf__redlock_bid_timer(b, now_of(b) + hf__redlock_node_us(b));
    judge(b);
}

static void judge(struct bid *b)
{
    switch (hf__redis_round_verdict(&b->round)) {
    case ROUND_WAITS:
        break;
    case ROUND_RAISE:
        raise_all(b);
        break;
    case ROUND_WON:
        win(b);
        break;
    case ROUND_LOST:
        lose(b);
        break;
    }
}

static void start_round(struct bid *b)
{
    struct redis *r = b->redis;
    uint64_t clock = (uint64_t)env_of(b)->wall(env_of(b));

    b->state = BID_VOTES;
    b->mine = 0;
    b->free_in_ms = -1;
    b->foreign = b->told = false;
    if (b->refused == 0)
        b->said.code = 0;
    b->number++;
    env_of(b)->random(env_of(b), &b->t->drv[2], sizeof b->t->drv[2]);
    hf__redlock_value(b);
    hf__redis_round_init(&b->round, r->nnodes, clock > r->highest ? clock : r->highest + 1);
    b->sent_at = now_of(b);
    for (unsigned i = 0; i < r->nnodes; i++) {
        b->round.nodes[i].counts = hf__redlock_counts(r, r->voters[i]);
        b->round.nodes[i].awaited =
            b->round.nodes[i].counts && (r->blank & 1u << i) && !hf__redlock_lags(b, i);
        if (hf__redlock_send(b, BALLOT_LOCK, i, b->number))
            b->mine |= 1u << i;
        else
            hf__redis_round_vote_failed(&b->round, i);
    }
    hf__redlock_bid_timer(b, b->sent_at + hf__redlock_node_us(b));
    judge(b);
}

static void fired(struct timer *t)
{
    struct bid *b = container_of(t, struct bid, timer);
    struct redis *r = b->redis;

    switch (b->state) {
    case BID_VOTES:
        hf__redis_round_time_over(&b->round);
        judge(b);
        break;
    case BID_CLEAN:
        hf__redlock_bid_rest(b);
        break;
    case BID_RESTS:
        if (r->up)
            start_round(b);
        else
            hf__redlock_bid_wait(b);
        break;
    case BID_LEAVES:
        hf__redlock_leave_late(b);
        break;
    case BID_HELD:
        hf__redlock_spread(b, b->missing);
        break;
    }
    hf__redis_conn_flush(r);
}

/* ---- answers --------------------------------------------------------------------- */

static void in_our_way(struct bid *b, const redisReply *reply)
{
    int64_t ms = hf__redis_reply_number(reply, 4);
    const redisReply *kind = reply->elements == 6 ? reply->element[5] : NULL;

    if (ms > b->free_in_ms)
        b->free_in_ms = ms;
    if (kind && kind->type == REDIS_REPLY_STRING && strcmp(kind->str, "string") != 0 &&
        strcmp(kind->str, "none") != 0) {
        b->foreign = true;
        snprintf(b->type, sizeof b->type, "%s", kind->str);
    }
}

static void voted(struct bid *b, const struct ballot *k, const redisReply *reply)
{
    unsigned i = k->q.bucket;
    bool taken = reply && reply->type == REDIS_REPLY_STRING;
    bool whole =
        taken || (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements >= 4);
    bool yes = taken || (whole && hf__redis_reply_number(reply, 0) == 1);
    uint64_t mark = taken ? k->candidate : (uint64_t)hf__redis_reply_number(reply, 2);
    int64_t what = taken ? MARK_TAKEN : hf__redis_reply_number(reply, 1);
    int64_t top = taken ? strtoll(reply->str, NULL, 10) : hf__redis_reply_number(reply, 3);

    if (!whole) {
        hf__redis_round_vote_failed(&b->round, i);
    } else {
        hf__redis_round_vote(&b->round, i, yes ? ANSWER_YES : ANSWER_NO,
                             (enum round_mark)what, mark, (uint64_t)top);
        if (mark > b->redis->highest)
            b->redis->highest = mark;
    }
    if (whole && !yes) {
        b->mine &= ~(1u << i);
        in_our_way(b, reply);
    }
    if (b->state == BID_VOTES) {
        judge(b);
    } else { /* a late one: the lock is held without it */
        hf__redlock_lacks(b, i, !yes);
        seed(b, i);
    }
}

static void raised(struct bid *b, unsigned i, const redisReply *reply)
{
    bool whole = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements >= 1;
    int64_t said = whole ? hf__redis_reply_number(reply, 0) : -1;

    hf__redis_round_raised(&b->round, i,
                           said == 1 ? ANSWER_YES
                           : whole   ? ANSWER_NO
                                     : ANSWER_FAILED,
                           said == 0 ? hf__redis_reply_number(reply, 1) : -1);
    judge(b);
}

bool hf__redlock_outdated(const struct bid *b, const struct ballot *k)
{
    switch (k->kind) {
    case BALLOT_LOCK:
    case BALLOT_RAISE:
        return (b->state != BID_VOTES && b->state != BID_HELD) || k->number != b->number;
    case BALLOT_EXTEND:
        return b->state != BID_HELD || k->number != b->renewal;
    case BALLOT_ASSERT:
        return b->state != BID_HELD || hf__redlock_left_us(b) <= 0;
    case BALLOT_FREE:
        break;
    }
    return (b->state != BID_CLEAN && b->state != BID_LEAVES) || k->number != b->number;
}

/* Also of a late one: the others may have ended the round. Errors that pass by themselves
 * do not come here, but HF_EUNREACHABLE and HF_EREPLICAS. */
static void hear_refusal(struct bid *b, unsigned i, const redisReply *reply)
{
    int code;

    if (!reply)
        return;
    b->refused &= ~(1u << i);
    if (reply->type != REDIS_REPLY_ERROR)
        return;
    code = hf__redis_reply_error(b->redis, reply, &b->said);
    if (code == HF_EAUTH || code == HF_EFULL || code == HF_EDAMAGED || code == HF_EPROTO)
        b->refused |= 1u << i;
}

void hf__redlock_answer(struct bid *b, const struct ballot *k, const redisReply *reply)
{
    if (k->kind == BALLOT_LOCK)
        hear_refusal(b, k->q.bucket, reply);
    if (hf__redlock_outdated(b, k))
        return;
    switch (k->kind) {
    case BALLOT_LOCK:
        voted(b, k, reply);
        break;
    case BALLOT_RAISE:
        if (b->state == BID_VOTES)
            raised(b, k->q.bucket, reply);
        break;
    case BALLOT_EXTEND:
        hf__redlock_extended(b, k->q.bucket, reply);
        break;
    case BALLOT_FREE:
        hf__redlock_freed(b, k, reply);
        break;
    case BALLOT_ASSERT:
        hf__redlock_asserted(b, k->q.bucket, reply);
        break;
    }
}

/* ---- verbs ----------------------------------------------------------------------- */

bool hf__redlock_reserved(const struct redis *r, const char *name, size_t name_len)
{
    char key[KEY_MAX];
    size_t len = hf__redlock_key(r, key, name, name_len);

    return len == strlen(hf__redlock_marks) && memcmp(key, hf__redlock_marks, len) == 0;
}

void hf__redlock_join(struct store *s, struct ticket *t)
{
    struct redis *r = redis_of(s);
    struct bid *b = t->drv_ptr;
    hf_error err;

    if (b)
        return; /* under way, or resting */
    if (hf__redlock_reserved(r, t->name, t->name_len)) {
        hf__fail(&err, HF_EINVAL, 0, r->open.shown, "'%s' is the key of the fences",
                 t->name);
        ev_gone(t, HF_EINVAL, -1, &err);
        return;
    }
    b = hf__redlock_bid_new(r, t);
    if (!b) {
        hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a ticket");
        ev_gone(t, HF_ENOMEM, -1, &err);
        return;
    }
    start_round(b);
}
