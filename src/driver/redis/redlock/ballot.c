/* ballot.c: what a bid asks of one node: take the key, raise the mark, extend, take it
 * again, give it back.
 *
 * Giving back is compare-and-delete: DELIFEQ or DELEX where the server has it, which costs
 * half of the script, else the script. Those who wait are told by PUBLISH then, right
 * behind it: what comes between the two harms nobody, and if the connection breaks there
 * they find out by looking. A server that knows the command and does not let us use it
 * (ACL) gets the script, from then on.
 *
 * What a node could not be told to give back, because its connection was lost or there was
 * none, it is told when it is there again, unless its time is over by then: the bid may be
 * long gone (G7).
 *
 * A request may have to be repeated: a server that has forgotten a script answers NOSCRIPT,
 * and gets its text. Meanwhile the bid may have given the key back, and a taking that comes
 * behind that would leave it there. So what is out of date is not sent again; and it is
 * answered like a lost one. */
#include "driver/redis/redlock/redlock.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_MAX = 12 };

static struct ballot *of(struct redis_call *q)
{
    return container_of(q, struct ballot, q);
}

static struct bid *bid_of(struct redis *r, const struct ballot *k)
{
    const struct ticket *t = hf__seat_find(&r->scripted.seats, k->token);

    return t ? t->drv_ptr : NULL;
}

/* The name of this run of the server: marks of another one may be older than what it knew.
 */
static void put_run(struct command *c, const struct node *n)
{
    const char *run = n->always ? "always" : n->run_id;

    hf__redis_command_arg(c, run, strnlen(run, RUN_MAX));
}

static void put_bucket(struct command *c, const struct ballot *k)
{
    char bucket[8];

    snprintf(bucket, sizeof bucket, "%03x",
             hf__redis_bucket(k->text + k->value_len, k->key_len));
    hf__redis_command_text(c, bucket);
}

static void build_lock(struct redis *r, const struct ballot *k, struct command *c)
{
    const char *key = k->text + k->value_len;

    hf__redis_request_script(c, &k->q, SCRIPT_LOCK, 2, 6);
    hf__redis_command_arg(c, key, k->key_len);
    hf__redis_command_text(c, hf__redlock_marks);
    hf__redis_command_arg(c, k->text, k->value_len);
    hf__redis_command_number(c, k->ttl_ms);
    hf__redis_command_number(c, k->kind == BALLOT_LOCK ? (int64_t)k->candidate : 0);
    put_run(c, r->voters[k->q.bucket]);
    put_bucket(c, k);
    hf__redis_command_text(c, k->kind == BALLOT_LOCK && r->nnodes == 1 ? "1" : "");
}

static void build_raise(struct redis *r, const struct ballot *k, struct command *c)
{
    hf__redis_request_script(c, &k->q, SCRIPT_RAISE, 2, 5);
    hf__redis_command_arg(c, k->text + k->value_len, k->key_len);
    hf__redis_command_text(c, hf__redlock_marks);
    hf__redis_command_arg(c, k->text, k->value_len);
    hf__redis_command_number(c, (int64_t)k->candidate);
    put_run(c, r->voters[k->q.bucket]);
    put_bucket(c, k);
    if (k->floor > 0)
        hf__redis_command_number(c, (int64_t)k->floor);
    else
        hf__redis_command_text(c, "");
}

static void build_free(const struct ballot *k, struct command *c)
{
    const char *key = k->text + k->value_len;
    char channel[KEY_MAX + 32];

    if (k->by != FREES_BY_SCRIPT) {
        hf__redis_command_begin(c, k->by == FREES_BY_DELEX ? 4 : 3);
        hf__redis_command_text(c, k->by == FREES_BY_DELEX ? "DELEX" : "DELIFEQ");
        hf__redis_command_arg(c, key, k->key_len);
        if (k->by == FREES_BY_DELEX)
            hf__redis_command_text(c, "IFEQ");
        hf__redis_command_arg(c, k->text, k->value_len);
        return;
    }
    hf__redis_request_script(c, &k->q, SCRIPT_FREE, 1, 3);
    hf__redis_command_arg(c, key, k->key_len);
    hf__redis_command_arg(c, k->text, k->value_len);
    hf__redis_command_number(c, k->ttl_ms);
    hf__redis_command_arg(c, channel,
                          k->tell ? hf__redlock_channel(channel, key, k->key_len) : 0);
}

static void build(struct redis *r, struct redis_call *q, struct command *c)
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
        hf__redis_command_arg(c, k->text, k->value_len);
        hf__redis_command_number(c, k->ttl_ms);
        break;
    case BALLOT_FREE:
        build_free(k, c);
        break;
    }
}

bool hf__redlock_lags(const struct bid *b, unsigned i)
{
    const struct link_call *c = hf__link_oldest(&b->redis->voters[i]->commands.link);

    return c && c->sent_at + hf__redlock_node_us(b) < redis_now(b->redis);
}

/* Of any round: it is worth knowing who has no mark. */
static void note_mark(struct redis *r, const struct ballot *k, const redisReply *reply)
{
    int64_t what = hf__redis_reply_number(reply, 1);

    if (k->kind != BALLOT_LOCK || !reply || reply->type == REDIS_REPLY_ERROR)
        return;
    r->blank &= ~(1u << k->q.bucket);
    if (reply->type == REDIS_REPLY_ARRAY && (what == MARK_NONE || what == MARK_OLD))
        r->blank |= 1u << k->q.bucket;
}

static void answer(struct redis *, struct redis_call *, const redisReply *);

static const struct request_type type = { build, answer, .line = true };

/* Not if the key is of another type: then it is not ours. The bid may be gone: a majority
 * that let it go is enough for that. */
static bool goes_by_script(struct redis *r, const struct ballot *k, const redisReply *reply)
{
    size_t size = sizeof *k + k->value_len + k->key_len;
    struct redis_call *q;

    if (k->by == FREES_BY_SCRIPT || !reply || reply->type != REDIS_REPLY_ERROR ||
        strncmp(reply->str, "WRONGTYPE", 9) == 0)
        return false;
    r->voters[k->q.bucket]->frees = FREES_BY_SCRIPT;
    q = hf__redis_request_new(&type, size, k->q.bucket);
    if (!q)
        return false;
    memcpy((char *)q + sizeof *q, (const char *)k + sizeof *q, size - sizeof *q);
    of(q)->by = FREES_BY_SCRIPT;
    hf__redis_conn_send(&r->voters[k->q.bucket]->commands, q);
    return true;
}

/* ---- what could not be said ------------------------------------------------------ */

struct debt { /* redis.debts */
    struct list node;
    bool tell;
    unsigned bucket;
    int64_t until;
    size_t value_len, key_len;
    char text[];
};

static void owe(struct redis *r, const struct ballot *k)
{
    size_t len = k->value_len + k->key_len;
    struct debt *d = r->closing ? NULL : malloc(sizeof *d + len);

    if (!d)
        return; /* it expires */
    list_init(&d->node);
    d->tell = k->tell;
    d->bucket = k->q.bucket;
    d->until = k->until;
    d->value_len = k->value_len;
    d->key_len = k->key_len;
    memcpy(d->text, k->text, len);
    list_push(&r->debts, &d->node);
}

static void pay(struct node *n, const struct debt *d)
{
    size_t len = d->value_len + d->key_len;
    struct redis_call *q =
        hf__redis_request_new(&type, sizeof(struct ballot) + len, d->bucket);

    if (!q)
        return;
    of(q)->kind = BALLOT_FREE; /* of no bid: its token is nobody's */
    of(q)->tell = d->tell;
    of(q)->until = d->until;
    of(q)->value_len = d->value_len;
    of(q)->key_len = d->key_len;
    memcpy(of(q)->text, d->text, len);
    hf__redis_conn_send(&n->commands, q);
}

void hf__redlock_ready(struct node *n)
{
    struct redis *r = n->redis;

    list_for_safe(l, &r->debts) {
        struct debt *d = container_of(l, struct debt, node);

        if (r->voters[d->bucket] != n)
            continue;
        list_remove(&d->node);
        if (d->until > redis_now(r))
            pay(n, d);
        free(d);
    }
}

void hf__redlock_debts_end(struct redis *r)
{
    struct list *n;

    while ((n = list_pop(&r->debts)) != NULL)
        free(container_of(n, struct debt, node));
}

static void answer(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct bid *b;

    note_mark(r, of(q), reply);
    if (goes_by_script(r, of(q), reply))
        return;
    if (of(q)->kind == BALLOT_FREE && !reply && of(q)->ttl_ms == 0)
        owe(r, of(q));
    b = bid_of(r, of(q));
    if (b)
        hf__redlock_answer(b, of(q), reply);
}

static int64_t time_of(const struct bid *b, enum ballot_kind kind)
{
    switch (kind) {
    case BALLOT_LOCK:
    case BALLOT_RAISE:
        break;
    case BALLOT_EXTEND:
        return b->renewal_ms;
    case BALLOT_ASSERT:
        return hf__redlock_left_us(b) / 1000;
    case BALLOT_FREE:
        return b->state == BID_LEAVES && b->t->keep_ms > 0 ? b->t->keep_ms : 0;
    }
    return b->t->ttl_ms;
}

static struct ballot *ballot_new(struct bid *b, enum ballot_kind kind, struct node *n,
                                 unsigned i)
{
    char key[KEY_MAX];
    size_t key_len = hf__redlock_key(b->redis, key, b->t->name, b->t->name_len);
    struct redis_call *q =
        hf__redis_request_new(&type, sizeof(struct ballot) + b->value_len + key_len, i);
    struct ballot *k = q ? of(q) : NULL;

    if (!k)
        return NULL;
    k->kind = kind;
    memcpy(k->token, b->t->token, HF_TOKEN);
    k->candidate = b->round.candidate;
    k->floor = b->round.nodes[i].blank ? hf__redis_round_floor(&b->round) : 0;
    k->prompt = !hf__redlock_lags(b, i);
    k->ttl_ms = time_of(b, kind);
    k->tell = b->state == BID_LEAVES && k->ttl_ms == 0;
    k->by = n && k->ttl_ms == 0 ? n->frees : FREES_BY_SCRIPT;
    if (kind == BALLOT_FREE)
        k->until = redis_now(b->redis) +
                   1000 * (b->t->ttl_ms > b->renewal_ms ? b->t->ttl_ms : b->renewal_ms);
    k->value_len = b->value_len;
    k->key_len = key_len;
    memcpy(k->text, b->value, b->value_len);
    memcpy(k->text + b->value_len, key, key_len);
    return k;
}

void hf__redlock_owe(struct bid *b, unsigned i)
{
    struct ballot *k = ballot_new(b, BALLOT_FREE, NULL, i);

    if (k && k->ttl_ms == 0)
        owe(b->redis, k);
    free(k);
}

/* ---- telling those who wait, where no script does it ----------------------------- */

struct news {
    struct redis_call q;
    size_t len;
    char channel[];
};

static void build_news(struct redis *r, struct redis_call *q, struct command *c)
{
    const struct news *s = container_of(q, struct news, q);

    (void)r;
    hf__redis_command_begin(c, 3);
    hf__redis_command_text(c, "PUBLISH");
    hf__redis_command_arg(c, s->channel, s->len);
    hf__redis_command_text(c, "");
}

static void publish(struct conn *conn, unsigned i, const char *channel, size_t len)
{
    static const struct request_type news = { .build = build_news,
                                              .answer = hf__redis_answer_ignored };
    struct redis_call *q = hf__redis_request_new(&news, sizeof(struct news) + len, i);

    if (!q)
        return; /* they find out by looking */
    container_of(q, struct news, q)->len = len;
    memcpy(container_of(q, struct news, q)->channel, channel, len);
    hf__redis_conn_send(conn, q);
}

bool hf__redlock_send(struct bid *b, enum ballot_kind kind, unsigned i, uint64_t number)
{
    struct node *n = hf__redis_node_of(b->redis, i);
    struct ballot *k = n ? ballot_new(b, kind, n, i) : NULL;
    char channel[KEY_MAX + 32];
    size_t len = 0;

    if (!k)
        return false;
    k->number = number;
    if (k->by != FREES_BY_SCRIPT && k->tell)
        len = hf__redlock_channel(channel, k->text + k->value_len, k->key_len);
    hf__redis_conn_send(&n->commands, &k->q);
    if (len > 0)
        publish(&n->commands, i, channel, len);
    return true;
}

/* 48 random digits, the token and what the round draws; and who it is, for those who look.
 */
void hf__redlock_value(struct bid *b)
{
    const struct ticket *t = b->t;
    int n;

    hf__hex(b->value, t->token, HF_TOKEN);
    hf__hex(b->value + 2 * HF_TOKEN, &t->drv[2], sizeof t->drv[2]);
    n = snprintf(b->value + VALUE_HEX, sizeof b->value - VALUE_HEX,
                 " %s %" PRId64 " %" PRIx64 "-%" PRIx64 " %s",
                 b->redis->open.host[0] ? b->redis->open.host : "-", b->redis->open.pid,
                 t->owner.process, t->owner.number, t->note);
    b->value_len = VALUE_HEX + (size_t)n;
}
