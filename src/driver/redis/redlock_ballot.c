/* redlock_ballot.c: what a bid asks of one node: take the key, raise the mark, extend, take it
 * again, give it back.
 *
 * A request may have to be repeated: a server that has forgotten a script answers NOSCRIPT, and
 * gets its text. Meanwhile the bid may have given the key back, and a taking that comes behind that
 * would leave it there. So what is out of date is not sent again; and it is answered like a lost
 * one. */
#include "driver/redis/redlock.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct ballot *of(struct request *q)
{
    return container_of(q, struct ballot, q);
}

static struct bid *bid_of(struct redis *r, const struct ballot *k)
{
    const struct ticket *t = hf__redis_seat_find(r, k->token);

    return t ? t->drv_ptr : NULL;
}

static void build_lock(struct redis *r, const struct ballot *k, struct command *c)
{
    const char *key = k->text + k->value_len;
    char run[16];

    hf__redlock_run(r->buckets[k->q.bucket], run);
    hf__redis_request_script(c, &k->q, SCRIPT_LOCK, 2, 5);
    hf__redis_command_arg(c, key, k->key_len);
    hf__redis_command_text(c, hf__redlock_mark);
    hf__redis_command_arg(c, k->text, k->value_len);
    hf__redis_command_number(c, k->ttl_ms);
    hf__redis_command_number(c, k->kind == BALLOT_LOCK ? (int64_t)k->candidate : 0);
    hf__redis_command_text(c, run);
    hf__redis_command_text(c, k->kind == BALLOT_LOCK && r->nnodes == 1 ? "1" : "");
}

static void build_raise(struct redis *r, const struct ballot *k, struct command *c)
{
    char run[16];

    hf__redlock_run(r->buckets[k->q.bucket], run);
    hf__redis_request_script(c, &k->q, SCRIPT_RAISE, 2, 4);
    hf__redis_command_arg(c, k->text + k->value_len, k->key_len);
    hf__redis_command_text(c, hf__redlock_mark);
    hf__redis_command_arg(c, k->text, VALUE_HEX);
    hf__redis_command_number(c, (int64_t)k->candidate);
    hf__redis_command_text(c, run);
    hf__redis_command_text(c, k->seed ? "1" : "");
}

static void build_free(const struct ballot *k, struct command *c)
{
    const char *key = k->text + k->value_len;
    char channel[KEY_MAX + 32];

    hf__redis_request_script(c, &k->q, SCRIPT_FREE, 1, 3);
    hf__redis_command_arg(c, key, k->key_len);
    hf__redis_command_arg(c, k->text, VALUE_HEX);
    hf__redis_command_number(c, k->ttl_ms);
    hf__redis_command_arg(c, channel,
                          k->tell ? hf__redlock_channel(channel, key, k->key_len) : 0);
}

static void build(struct redis *r, struct request *q, struct command *c)
{
    const struct ballot *k = of(q);
    const struct bid *b = bid_of(r, k);

    if (k->kind != BALLOT_FREE && (!b || hf__redlock_outdated(b, k))) {
        c->nothing = true;
        return;
    }
    switch (k->kind) {
    case BALLOT_LOCK:
    case BALLOT_ASSERT:
        build_lock(r, k, c);
        break;
    case BALLOT_RAISE:
        build_raise(r, k, c);
        break;
    case BALLOT_EXTEND:
        hf__redis_request_script(c, q, SCRIPT_EXTEND, 1, 2);
        hf__redis_command_arg(c, k->text + k->value_len, k->key_len);
        hf__redis_command_arg(c, k->text, VALUE_HEX);
        hf__redis_command_number(c, k->ttl_ms);
        break;
    case BALLOT_FREE:
        build_free(k, c);
        break;
    }
}

bool hf__redlock_lags(const struct bid *b, unsigned i)
{
    const struct list *n = list_first(&b->redis->buckets[i]->commands.sent);

    return n &&
           container_of(n, const struct request, node)->sent_at + hf__redlock_node_us(b) <
               redis_now(b->redis);
}

/* Of any round: it is worth knowing who has no mark. */
static void note_mark(struct redis *r, const struct ballot *k, const redisReply *reply)
{
    int64_t what = hf__redis_reply_number(reply, 1);

    if (k->kind != BALLOT_LOCK || !reply || reply->type != REDIS_REPLY_ARRAY)
        return;
    r->blank &= ~(1u << k->q.bucket);
    if (what == MARK_NONE || what == MARK_OLD)
        r->blank |= 1u << k->q.bucket;
}

static void answer(struct redis *r, struct request *q, const redisReply *reply)
{
    struct bid *b = bid_of(r, of(q));

    note_mark(r, of(q), reply);
    if (b)
        hf__redlock_answer(b, of(q), reply);
}

bool hf__redlock_send(struct bid *b, enum ballot_kind kind, unsigned i, uint64_t number)
{
    static const struct request_type type = { build, answer, true };
    struct redis *r = b->redis;
    struct node *n = hf__redis_node_of(r, i);
    char key[KEY_MAX];
    size_t key_len = hf__redlock_key(r, key, b->t->name, b->t->name_len);
    struct request *q =
        n ? hf__redis_request_new(&type, sizeof(struct ballot) + b->value_len + key_len, i)
          : NULL;
    struct ballot *k;

    if (!q)
        return false;
    k = of(q);
    k->kind = kind;
    memcpy(k->token, b->t->token, HF_TOKEN);
    k->number = number;
    k->candidate = b->round.candidate;
    k->seed = b->round.nodes[i].blank;
    k->tell = b->state == BID_LEAVES;
    k->prompt = !hf__redlock_lags(b, i);
    k->ttl_ms = kind == BALLOT_LOCK ? b->t->ttl_ms : b->renewal_ms;
    if (kind == BALLOT_FREE)
        k->ttl_ms = b->state == BID_LEAVES && b->t->keep_ms > 0 ? b->t->keep_ms : 0;
    k->value_len = b->value_len;
    k->key_len = key_len;
    memcpy(k->text, b->value, b->value_len);
    memcpy(k->text + b->value_len, key, key_len);
    hf__redis_conn_send(&n->commands, q);
    return true;
}

/* 48 random digits (the token, and what the round draws), by which scripts know it; and who it is,
 * for those who look. */
void hf__redlock_value(struct bid *b)
{
    const struct ticket *t = b->t;
    int n;

    hf__hex(b->value, t->token, HF_TOKEN);
    hf__hex(b->value + 2 * HF_TOKEN, &t->drv[2], sizeof t->drv[2]);
    n = snprintf(b->value + VALUE_HEX, sizeof b->value - VALUE_HEX, " %s %" PRId64 " %s",
                 b->redis->host[0] ? b->redis->host : "-", b->redis->pid, t->note);
    b->value_len = VALUE_HEX + (size_t)n;
}
