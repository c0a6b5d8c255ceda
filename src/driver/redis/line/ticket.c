/* ticket.c: what the scripts are asked about tickets: join, leave, amend. Here is only how
 * a request is written and its answer read; what follows from it is kit/scripted.c. */
#include "driver/redis/redis.h"
#include "util/bytes.h"

#include <string.h>

enum { HEAD_LEN = 34 };

/* ---- joining --------------------------------------------------------------------- */

/* The header of a line in which nobody else is, as far as it is known before the server's
 * time is: format, kind, capacity, sum, holders, waiters, sequence (line.lua). */
static void build_head(unsigned char head[HEAD_LEN], const struct ticket *t)
{
    memset(head, 0, HEAD_LEN);
    head[0] = LINE_FORMAT;
    head[1] = (unsigned char)t->kind;
    bytes_put(head + 2, (uint64_t)t->capacity, 8);
    bytes_put(head + 10, (uint64_t)t->weight, 8);
    head[21] = 1;
}

static void build_join(struct redis *r, struct redis_call *q, struct command *c)
{
    const struct ticket *t = q->about;
    const char *flags = t->try_only ? t->barge ? "tb" : "t" : t->barge ? "b" : "";
    unsigned char head[HEAD_LEN], whose[CLIENT_ID + OWNER_RECORD_MAX];

    build_head(head, t);
    memcpy(whose, r->client, CLIENT_ID);
    hf__redis_line_script(r, c, q, SCRIPT_JOIN, t->name, t->name_len, *flags ? 5 : 4);
    hf__redis_command_arg(c, t->token, HF_TOKEN);
    hf__redis_command_arg(c, head, sizeof head);
    hf__redis_command_number(c, t->ttl_ms);
    hf__redis_command_arg(
        c, whose, CLIENT_ID + hf__owner_record_write(whose + CLIENT_ID, &r->open, t));
    if (*flags)
        hf__redis_command_text(c, flags);
}

static int mismatch(const struct redis *r, const struct ticket *t, const redisReply *reply,
                    hf_error *err)
{
    return hf__mismatch(err, r->open.shown, t->name,
                        (enum line_kind)hf__redis_reply_number(reply, 1),
                        hf__redis_reply_number(reply, 2));
}

/* For as long as its ttl a join that was lost with its connection may be executed, if the
 * server does not let us end that connection (greet.c). */
static void lost(struct node *by, const struct ticket *t)
{
    if (by) /* else it was not sent */
        echo_lost(&by->echo, t->ttl_ms);
}

static bool is_granted(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_INTEGER;
}

static void answer_join(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct scripted_place p = { .kind = PLACE_REFUSED };
    struct ticket *t = q->about;
    hf_error err;

    if (!reply) {
        p.kind = q->at ? PLACE_NOTHING : PLACE_UNSENT;
        lost(q->at, t);
    } else if (q->unsafe) {
        p.code = q->unsafe->code;
        p.err = q->unsafe;
    } else if (reply->type == REDIS_REPLY_INTEGER) {
        p.kind = PLACE_HELD;
        p.fence = (uint64_t)reply->integer;
        hf__redis_wake_holder(r, t);
    } else if (hf__redis_reply_is(reply, 0, "w")) {
        p.kind = PLACE_WAITS;
        p.stamp = hf__redis_reply_number(reply, 1);
        p.recheck_ms = hf__redis_reply_number(reply, 2);
        p.number = (uint64_t)hf__redis_reply_number(reply, 3);
        p.position = (uint32_t)hf__redis_reply_number(reply, 4);
    } else if (hf__redis_reply_is(reply, 0, "b")) {
        p.code = HF_EBUSY;
    } else if (hf__redis_reply_is(reply, 0, "x")) {
        p.code = HF_EEVICTED;
    } else {
        p.err = &err;
        p.code = hf__redis_reply_is(reply, 0, "m") ? mismatch(r, t, reply, &err)
                                                   : hf__redis_reply_error(r, reply, &err);
    }
    hf__scripted_joined(&r->scripted, t, q->call.sent_at, &p);
    if (p.kind == PLACE_WAITS)
        hf__redis_wake_listen(r, q->bucket);
}

void hf__redis_send_join(struct scripted *s, struct ticket *t)
{
    static const struct request_type type = { build_join, answer_join, true, is_granted };
    hf_error err;
    struct scripted_place p = { .kind = PLACE_REFUSED, .code = HF_ENOMEM, .err = &err };

    if (hf__redis_ask(redis_at(s), &type, t, ticket_bucket(t)))
        return;
    hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a request");
    hf__scripted_joined(s, t, 0, &p);
}

/* ---- leaving, amending ----------------------------------------------------------- */

static void build_leave(struct redis *r, struct redis_call *q, struct command *c)
{
    const struct ticket *t = q->about;

    hf__redis_line_script(r, c, q, SCRIPT_LEAVE, t->name, t->name_len,
                          t->keep_ms > 0 ? 2 : 1);
    hf__redis_command_arg(c, t->token, HF_TOKEN);
    if (t->keep_ms > 0)
        hf__redis_command_number(c, t->keep_ms);
}

static void answer_leave(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    hf__scripted_left(&r->scripted, q->about,
                      !reply                               ? LEFT_NOTHING
                      : reply->type != REDIS_REPLY_INTEGER ? LEFT_UNKNOWN
                      : reply->integer == 1                ? LEFT_OUT
                                                           : LEFT_NOT_THERE);
}

void hf__redis_send_leave(struct scripted *s, struct ticket *t)
{
    static const struct request_type type = { build_leave, answer_leave, .line = true };

    if (hf__redis_ask(redis_at(s), &type, t, ticket_bucket(t)))
        return;
    /* after UP it is repeated before its owner joins another line, where it would seem to
     * wait in both (G10) */
    hf__redis_no_memory(redis_at(s), ticket_bucket(t));
    hf__scripted_left(s, t, LEFT_UNKNOWN);
}

bool hf__redis_echoes(struct scripted *s, const struct ticket *t)
{
    struct redis *r = redis_at(s);
    const struct node *n = hf__redis_node_of(r, ticket_bucket(t));

    return n && redis_now(r) < n->echo.until;
}

struct amend_request {
    struct redis_call q;
    unsigned char token[HF_TOKEN]; /* the ticket may have left */
};

static struct amend_request *of(struct redis_call *q)
{
    return container_of(q, struct amend_request, q);
}

static void build_amend(struct redis *r, struct redis_call *q, struct command *c)
{
    const struct ticket *t = hf__seat_find(&r->scripted.seats, of(q)->token);
    unsigned char record[OWNER_RECORD_MAX];

    if (!t) {
        c->nothing = true; /* it has left since */
        return;
    }
    hf__redis_line_script(r, c, q, SCRIPT_AMEND, t->name, t->name_len, 3);
    hf__redis_command_arg(c, t->token, HF_TOKEN);
    hf__redis_command_number(c, t->weight);
    hf__redis_command_arg(c, record, hf__owner_record_write(record, &r->open, t));
}

static void answer_amend(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    hf_error err;

    if (!reply)
        return; /* the core repeats it */
    hf__scripted_amended(&r->scripted, of(q)->token,
                         reply->type != REDIS_REPLY_INTEGER
                             ? hf__redis_reply_error(r, reply, &err)
                         : reply->integer == 1 ? 0
                                               : HF_ELOST);
}

/* With the text of the script, if nobody may be there to read a NOSCRIPT. False: no memory
 */
static bool amend(struct redis *r, const struct request_type *type, const struct ticket *t,
                  bool text)
{
    struct redis_call *q =
        hf__redis_request_new(type, sizeof(struct amend_request), ticket_bucket(t));

    if (!q)
        return false;
    memcpy(of(q)->token, t->token, HF_TOKEN);
    q->text = text;
    hf__redis_request_send(r, q);
    return true;
}

void hf__redis_amend(struct store *s, struct ticket *t)
{
    static const struct request_type type = { build_amend, answer_amend, .line = true };

    if (!amend(redis_of(s), &type, t, false))
        ev_amended(t, HF_ENOMEM);
}

/* By amending nothing. If it is lost, who waits finds out by its safety look. */
void hf__redis_tell_first(struct redis *r, const struct ticket *t)
{
    static const struct request_type type = { build_amend, hf__redis_answer_ignored,
                                              .line = true };

    if (t)
        amend(r, &type, t, true);
}

/* ---- verbs ----------------------------------------------------------------------- */

void hf__redis_join(struct store *s, struct ticket *t)
{
    hf__scripted_join(&redis_of(s)->scripted, t);
}

void hf__redis_leave(struct store *s, struct ticket *t)
{
    hf__scripted_leave(&redis_of(s)->scripted, t);
}

void hf__redis_renew(struct store *s, struct life *const *lives, size_t n)
{
    hf__scripted_renew(&redis_of(s)->scripted, lives, n);
}
