/* ticket.c: joining, leaving, amending.
 *
 *   join -> fence: granted | 'w' waits (wait.c) | refused
 *
 * A leave that comes while the join is unanswered waits for that answer: on one connection
 * it would be executed after it, but a join may be repeated (NOSCRIPT, a moved slot) and
 * must not come behind its own leave. If the answer never comes, both are unknown: the core
 * repeats the leave, and the node kills the old connection before it is up again (G7).
 *
 * A message about a ticket may overtake the answer to its join, on the other connection:
 * then the ticket looks as soon as it hangs on its waiting life.
 *
 * With replicas=N a grant is told only when N replicas have what the owner's own request
 * wrote: WAIT counts the writes of its own connection, so a grant by another's release is
 * confirmed by a look, which writes. Too few: the ticket leaves, and the call fails with
 * HF_EREPLICAS. */
#include "driver/redis/redis.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD_FORMAT = 1, HEAD_LEN = 34, WAIT_PIECE_MS = 10 };

struct ticket_request {
    struct request q;
    struct ticket *t;              /* join, leave: it stays until they are answered */
    unsigned char token[HF_TOKEN]; /* amend, WAIT: it may have left */
    uint64_t fence;                /* WAIT */
    int64_t granted_sent_at;
    /* WAIT: it stops the connection, so it comes in small pieces until then */
    int64_t until;
};

static struct ticket_request *of(struct request *q)
{
    return container_of(q, struct ticket_request, q);
}

/* ---- who sits here --------------------------------------------------------------- */

static uint64_t token_hash(const void *token)
{
    uint64_t h;

    memcpy(&h, token, sizeof h);
    return h;
}

struct ticket *hf__redis_seat_find(struct redis *r, const void *token)
{
    uint64_t hash = token_hash(token);

    for (struct map_node *n = map_chain(&r->tickets, hash); n; n = n->next) {
        struct ticket *t = container_of(n, struct ticket, drv_node);

        if (n->hash == hash && memcmp(t->token, token, HF_TOKEN) == 0)
            return t;
    }
    return NULL;
}

void hf__redis_seat_in(struct redis *r, struct ticket *t)
{
    if (hf__redis_seat_find(r, t->token) == t)
        return;
    hf__map_insert(&r->tickets, &t->drv_node, token_hash(t->token));
    t->drv[0] = 0;
    t->drv[1] = SEAT_KNOWN;
}

static void off_wait(struct redis *r, struct ticket *t)
{
    struct life *l = t->life;

    if (!l || l->kind != LIFE_WAIT)
        return;
    hf__hang(t, &t->own);
    hf__redis_wait_drop(r, l);
}

void hf__redis_seat_out(struct redis *r, struct ticket *t)
{
    if (hf__redis_seat_find(r, t->token) == t)
        hf__map_remove(&r->tickets, &t->drv_node);
    off_wait(r, t);
    t->drv[0] = t->drv[1] = 0;
}

/* ---- building -------------------------------------------------------------------- */

/* The header of a line in which nobody else is, as far as it is known before the server's
 * time is: format, kind, capacity, sum, holders, waiters, sequence (line.lua). */
static void build_head(unsigned char head[HEAD_LEN], const struct ticket *t)
{
    memset(head, 0, HEAD_LEN);
    head[0] = HEAD_FORMAT;
    head[1] = (unsigned char)t->kind;
    for (size_t i = 0; i < 8; i++) {
        head[2 + i] = (unsigned char)((uint64_t)t->capacity >> 8 * (7 - i));
        head[10 + i] = (unsigned char)((uint64_t)t->weight >> 8 * (7 - i));
    }
    head[21] = 1;
}

static void build_join(struct redis *r, struct request *q, struct command *c)
{
    const struct ticket *t = of(q)->t;
    const char *flags = t->try_only ? t->barge ? "tb" : "t" : t->barge ? "b" : "";
    unsigned char head[HEAD_LEN], whose[CLIENT_ID + RECORD_MAX];

    build_head(head, t);
    memcpy(whose, r->client, CLIENT_ID);
    hf__redis_line_script(r, c, q, SCRIPT_JOIN, t->name, t->name_len, *flags ? 5 : 4);
    hf__redis_command_arg(c, t->token, HF_TOKEN);
    hf__redis_command_arg(c, head, sizeof head);
    hf__redis_command_number(c, t->ttl_ms);
    hf__redis_command_arg(c, whose,
                          CLIENT_ID + hf__redis_record_write(whose + CLIENT_ID, r, t));
    if (*flags)
        hf__redis_command_text(c, flags);
}

static void build_leave(struct redis *r, struct request *q, struct command *c)
{
    const struct ticket *t = of(q)->t;

    hf__redis_line_script(r, c, q, SCRIPT_LEAVE, t->name, t->name_len,
                          t->keep_ms > 0 ? 2 : 1);
    hf__redis_command_arg(c, t->token, HF_TOKEN);
    if (t->keep_ms > 0)
        hf__redis_command_number(c, t->keep_ms);
}

static void build_amend(struct redis *r, struct request *q, struct command *c)
{
    const struct ticket *t = hf__redis_seat_find(r, of(q)->token);
    unsigned char record[RECORD_MAX];

    if (!t) {
        c->nothing = true; /* it has left since */
        return;
    }
    hf__redis_line_script(r, c, q, SCRIPT_AMEND, t->name, t->name_len, 3);
    hf__redis_command_arg(c, t->token, HF_TOKEN);
    hf__redis_command_number(c, t->weight);
    hf__redis_command_arg(c, record, hf__redis_record_write(record, r, t));
}

static void build_replicas(struct redis *r, struct request *q, struct command *c)
{
    int64_t ms = (of(q)->until - redis_now(r)) / 1000;

    hf__redis_command_begin(c, 3);
    hf__redis_command_text(c, "WAIT");
    hf__redis_command_number(c, r->replicas);
    hf__redis_command_number(c, ms < 1 ? 1 : ms > WAIT_PIECE_MS ? WAIT_PIECE_MS : ms);
}

/* ---- leaving --------------------------------------------------------------------- */

static void answer_leave(struct redis *r, struct request *q, const redisReply *reply)
{
    struct ticket *t = of(q)->t;
    struct node *n = hf__redis_node_of(r, q->bucket);
    bool there = reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    bool settled = reply && reply->type == REDIS_REPLY_INTEGER;

    if (settled && n && redis_now(r) < n->echo_until && (!there || (t->drv[1] & SEAT_ECHO)))
        settled = false; /* its join may still come */
    hf__redis_seat_out(r, t);
    ev_left(t, settled ? 0 : HF_EUNKNOWN);
}

static const struct request_type leave_type = { build_leave, answer_leave, true };

static void send_leave(struct redis *r, struct ticket *t)
{
    struct request *q = hf__redis_request_new(&leave_type, sizeof(struct ticket_request),
                                              hf__redis_bucket(t->name, t->name_len));

    if (!q) {
        hf__redis_seat_out(r, t);
        ev_left(t, HF_EUNKNOWN);
        return;
    }
    of(q)->t = t;
    t->drv[1] |= SEAT_LEAVING;
    hf__redis_request_send(r, q);
}

void hf__redis_leave(struct store *s, struct ticket *t)
{
    struct redis *r = redis_of(s);

    if (t->drv[1] & SEAT_JOINING)
        t->drv[1] |= SEAT_LEAVE;
    else if (!(t->drv[1] & SEAT_LEAVING))
        send_leave(r, t);
}

/* ---- replicas -------------------------------------------------------------------- */

struct giving_back {
    struct ticket_request k;
    hf_error why;
};

/* Out of the line, then the caller learns why. */
static void answer_give_back(struct redis *r, struct request *q, const redisReply *reply)
{
    struct ticket *t = of(q)->t;
    const hf_error *why = &container_of(of(q), struct giving_back, k)->why;
    bool settled = reply && reply->type == REDIS_REPLY_INTEGER;

    t->drv[1] &= ~(uint64_t)SEAT_JOINING;
    if (t->drv[1] & SEAT_LEAVE) {
        hf__redis_seat_out(r, t);
        ev_left(t, settled ? 0 : HF_EUNKNOWN);
    } else if (settled) {
        hf__redis_seat_out(r, t);
        ev_gone(t, why->code, -1, why);
    } /* else the core repeats join or look, which find it again */
}

/* Without memory even to say so the connection is given up: then everything is repeated. */
static void start_over(struct redis *r, unsigned bucket)
{
    struct node *n = hf__redis_node_of(r, bucket);
    hf_error err;

    hf__fail(&err, HF_ENOMEM, 0, r->shown, "no memory for a request");
    if (n)
        hf__redis_conn_drop(&n->commands, &err);
}

static void give_back(struct redis *r, struct ticket *t, const hf_error *why)
{
    static const struct request_type type = { build_leave, answer_give_back, true };
    struct request *q = hf__redis_request_new(&type, sizeof(struct giving_back),
                                              hf__redis_bucket(t->name, t->name_len));

    if (!q) {
        start_over(r, hf__redis_bucket(t->name, t->name_len));
        return;
    }
    of(q)->t = t;
    container_of(of(q), struct giving_back, k)->why = *why;
    t->drv[1] |= SEAT_JOINING; /* a leave waits for this */
    hf__redis_request_send(r, q);
}

static void await_replicas(struct redis *, struct ticket *, uint64_t fence, int64_t sent_at,
                           int64_t until);

static void answer_replicas(struct redis *r, struct request *q, const redisReply *reply)
{
    struct ticket *t = hf__redis_seat_find(r, of(q)->token);
    struct life *l = t ? t->life : NULL;
    hf_error err;

    if (!t || !reply || (t->drv[1] & (SEAT_LEAVE | SEAT_LEAVING | SEAT_JOINING)))
        return;
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer < r->replicas &&
        redis_now(r) < of(q)->until) {
        await_replicas(r, t, of(q)->fence, of(q)->granted_sent_at, of(q)->until);
        return;
    }
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < r->replicas) {
        hf__fail(&err, HF_EREPLICAS, 0, r->shown,
                 "%lld of at least %lld replicas had the grant within %lld ms; it was "
                 "given back",
                 reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0,
                 (long long)r->replicas, (long long)r->replica_ms);
        give_back(r, t, &err);
        return;
    }
    hf__redis_wake_holder(r, t);
    ev_granted(t, of(q)->fence, of(q)->granted_sent_at);
    if (l && l->kind == LIFE_WAIT)
        hf__redis_wait_drop(r, l);
}

static void await_replicas(struct redis *r, struct ticket *t, uint64_t fence,
                           int64_t sent_at, int64_t until)
{
    static const struct request_type type = { build_replicas, answer_replicas, false };
    struct request *q = hf__redis_request_new(&type, sizeof(struct ticket_request),
                                              hf__redis_bucket(t->name, t->name_len));

    if (!q) {
        start_over(r, hf__redis_bucket(t->name, t->name_len));
        return;
    }
    memcpy(of(q)->token, t->token, HF_TOKEN);
    of(q)->fence = fence;
    of(q)->granted_sent_at = sent_at;
    of(q)->until = until;
    hf__redis_request_send(r, q);
}

/* The store has granted it; sent_at is of the request that set the expiry it has. */
void hf__redis_seat_granted(struct redis *r, struct ticket *t, uint64_t fence,
                            int64_t sent_at)
{
    struct life *l = t->life;

    if (r->replicas > 0) {
        await_replicas(r, t, fence, sent_at, redis_now(r) + r->replica_ms * 1000);
        return;
    }
    hf__redis_wake_holder(r, t);
    ev_granted(t, fence, sent_at);
    if (l && l->kind == LIFE_WAIT)
        hf__redis_wait_drop(r, l);
}

/* ---- joining --------------------------------------------------------------------- */

static void joined_waiting(struct redis *r, struct ticket *t, const struct request *q,
                           const redisReply *reply)
{
    struct wait *w = hf__redis_wait_get(r, t);
    bool woken = t->drv[1] & SEAT_WOKEN;

    t->drv[1] &= ~(uint64_t)SEAT_WOKEN;
    if (!w) {
        start_over(r, q->bucket);
        return;
    }
    hf__redis_wait_hang(r, t, w, (uint64_t)hf__redis_reply_number(reply, 3));
    if (q->sent_at >= w->life->sent_at)
        w->till = hf__redis_reply_number(reply, 1);
    w->pins++;
    ev_alive(w->life, q->sent_at, w->life->ttl_ms);
    ev_waiting(t, (uint32_t)hf__redis_reply_number(reply, 4),
               hf__redis_reply_number(reply, 2));
    hf__redis_wake_listen(r, q->bucket);
    if (woken)
        hf__redis_wait_look(r, w);
    w->pins--;
    hf__redis_wait_drop(r, w->life);
}

/* A message that came before may have said that it was broken: then we ask. */
static void joined_holding(struct redis *r, struct ticket *t, const struct request *q,
                           const redisReply *reply)
{
    bool woken = t->drv[1] & SEAT_WOKEN;
    unsigned char token[HF_TOKEN];

    memcpy(token, t->token, HF_TOKEN);
    t->drv[1] &= ~(uint64_t)SEAT_WOKEN;
    hf__redis_seat_granted(r, t, (uint64_t)reply->integer, q->sent_at);
    t = hf__redis_seat_find(r, token);
    if (woken && t)
        hf__redis_still_holds(r, t);
}

static void refuse(struct redis *r, struct ticket *t, int why, const hf_error *err)
{
    bool leaving = t->drv[1] & SEAT_LEAVE;

    hf__redis_seat_out(r, t);
    if (leaving)
        ev_left(t, 0);
    else
        ev_gone(t, why, -1, err);
}

static void lost_join(struct redis *r, struct ticket *t, unsigned bucket)
{
    struct node *n = r->topology == TOPOLOGY_CLUSTER ? r->buckets[bucket] : r->one;

    t->drv[1] |= SEAT_ECHO;
    if (n && n->echo_ms < t->ttl_ms)
        n->echo_ms = t->ttl_ms;
    if (t->drv[1] & SEAT_LEAVE) {
        hf__redis_seat_out(r, t);
        ev_left(t, HF_EUNKNOWN);
    }
}

static void mismatch(struct redis *r, struct ticket *t, const redisReply *reply)
{
    hf_error err;

    hf__mismatch(&err, r->shown, t->name, (enum line_kind)hf__redis_reply_number(reply, 1),
                 hf__redis_reply_number(reply, 2));
    refuse(r, t, HF_EMISMATCH, &err);
}

static void answer_join(struct redis *r, struct request *q, const redisReply *reply)
{
    struct ticket *t = of(q)->t;
    hf_error err;

    t->drv[1] &= ~(uint64_t)SEAT_JOINING;
    if (!reply) {
        lost_join(r, t, q->bucket);
    } else if (hf__redis_reply_is(reply, 0, "b")) {
        refuse(r, t, HF_EBUSY, NULL);
    } else if (hf__redis_reply_is(reply, 0, "x")) {
        refuse(r, t, HF_EEVICTED, NULL);
    } else if (hf__redis_reply_is(reply, 0, "m")) {
        mismatch(r, t, reply);
    } else if (reply->type != REDIS_REPLY_INTEGER && !hf__redis_reply_is(reply, 0, "w")) {
        hf__redis_reply_error(r, reply, &err);
        if (t->drv[1] & SEAT_ECHO) /* a lost one of its joins may have got through */
            give_back(r, t, &err);
        else
            refuse(r, t, err.code, &err);
    } else if (t->drv[1] & SEAT_LEAVE) {
        send_leave(r, t);
    } else if (reply->type == REDIS_REPLY_INTEGER) {
        joined_holding(r, t, q, reply);
    } else {
        joined_waiting(r, t, q, reply);
    }
}

void hf__redis_join(struct store *s, struct ticket *t)
{
    static const struct request_type type = { build_join, answer_join, true };
    struct redis *r = redis_of(s);
    struct request *q;
    hf_error err;

    hf__redis_seat_in(r, t);
    if (t->drv[1] & SEAT_JOINING)
        return; /* under way */
    q = hf__redis_request_new(&type, sizeof(struct ticket_request),
                              hf__redis_bucket(t->name, t->name_len));
    if (!q) {
        hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a request");
        refuse(r, t, HF_ENOMEM, &err);
        return;
    }
    of(q)->t = t;
    t->drv[1] |= SEAT_JOINING;
    hf__redis_request_send(r, q);
}

/* ---- amending -------------------------------------------------------------------- */

static void answer_amend(struct redis *r, struct request *q, const redisReply *reply)
{
    struct ticket *t = hf__redis_seat_find(r, of(q)->token);
    hf_error err;

    if (!t || !reply)
        return; /* the core repeats it */
    if (reply->type == REDIS_REPLY_INTEGER)
        ev_amended(t, reply->integer == 1 ? 0 : HF_ELOST);
    else
        ev_amended(t, hf__redis_reply_error(r, reply, &err));
}

void hf__redis_amend(struct store *s, struct ticket *t)
{
    static const struct request_type type = { build_amend, answer_amend, true };
    struct redis *r = redis_of(s);
    struct request *q = hf__redis_request_new(&type, sizeof(struct ticket_request),
                                              hf__redis_bucket(t->name, t->name_len));

    if (!q) {
        ev_amended(t, HF_ENOMEM);
        return;
    }
    memcpy(of(q)->token, t->token, HF_TOKEN);
    hf__redis_request_send(r, q);
}
