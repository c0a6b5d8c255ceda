/* evict.c: the small questions and orders about a line, each one script: how much of it is
 * taken, end a ticket by its token, let a kept one last for another time. Unanswered, they
 * end with HF_EUNREACHABLE. */
#include "driver/redis/redis.h"

/* ---- how much of it is taken ----------------------------------------------------- */

static void build_brief(struct redis *r, struct redis_call *q, struct command *c)
{
    const struct redis_query *k = redis_query_of(q);

    hf__redis_line_script(r, c, q, SCRIPT_BRIEF, k->name, k->name_len, 0);
}

static void answer_brief(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct query *query = &redis_query_of(q)->query;
    struct look *look = query->look;
    struct row row = { .oldest_ms = -1 };
    hf_error err;
    int rc = 0;

    if (!look)
        return; /* stopped */
    if (hf__redis_query_failed(reply) || reply->type != REDIS_REPLY_ARRAY ||
        reply->elements != 5) {
        rc = hf__redis_reply_error(r, reply, &err);
    } else {
        row.name = look->name;
        row.name_len = look->name_len;
        row.kind =
            hf__redis_reply_number(reply, 0) == LINE_PERMITS ? LINE_PERMITS : LINE_LOCK;
        row.capacity = hf__redis_reply_number(reply, 1);
        row.weight = hf__redis_reply_number(reply, 2);
        row.holders = (uint64_t)hf__redis_reply_number(reply, 3);
        row.waiters = (uint64_t)hf__redis_reply_number(reply, 4);
        if (row.holders > 0)
            ev_row(look, &row);
    }
    hf__query_end(query, rc, &err);
}

void hf__redis_brief(struct redis *r, struct look *look)
{
    static const struct request_type type = { build_brief, answer_brief, true };

    hf__redis_query_send(r, &type, look, NULL);
}

/* ---- evicting, and prolonging what is kept --------------------------------------- */

static void build_evict(struct redis *r, struct redis_call *q, struct command *c)
{
    const struct redis_query *k = redis_query_of(q);
    const struct look *look = k->query.look;

    if (!look) {
        c->nothing = true;
        return;
    }
    hf__redis_line_script(r, c, q, look->keep_ms > 0 ? SCRIPT_KEEP : SCRIPT_EVICT, k->name,
                          k->name_len, 2);
    hf__redis_command_arg(c, look->token, HF_TOKEN);
    hf__redis_command_number(c, look->keep_ms > 0 ? look->keep_ms : look->now);
}

static void answer_evict(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct query *query = &redis_query_of(q)->query;
    struct look *look = query->look;
    hf_error err;
    int rc = 0;

    if (!look)
        return;
    if (!reply || reply->type != REDIS_REPLY_INTEGER)
        rc = hf__redis_reply_error(r, reply, &err);
    else if (reply->integer == 0)
        rc = hf__fail(&err, HF_ENOENT, 0, r->shown, "no such %sticket in line '%s'",
                      look->keep_ms > 0 ? "kept " : "", look->name);
    hf__query_end(query, rc, &err);
}

void hf__redis_evict(struct store *s, struct look *look)
{
    static const struct request_type type = { build_evict, answer_evict, true };

    hf__redis_query_send(redis_of(s), &type, look, NULL);
}
