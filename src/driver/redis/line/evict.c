/* evict.c: the small questions and orders about a line, each one script: how much of it is
 * taken, end a ticket by its token, let a kept one last for another time. Unanswered, they
 * end with HF_EUNREACHABLE. */
#include "driver/redis/redis.h"

/* ---- how much of it is taken ----------------------------------------------------- */

static void build_brief(struct redis *r, const struct redis_query *k, struct command *c)
{
    hf__redis_line_script(r, c, &k->q, SCRIPT_BRIEF, k->name, k->name_len, 0);
}

static int read_brief(struct redis *r, struct redis_query *k, const redisReply *reply,
                      hf_error *err)
{
    struct row row = { .name = k->name, .name_len = k->name_len, .oldest_ms = -1 };

    if (hf__redis_query_failed(reply) || reply->type != REDIS_REPLY_ARRAY ||
        reply->elements != 5)
        return hf__redis_reply_error(r, reply, err);
    row.kind = reply_kind(reply);
    row.capacity = hf__redis_reply_number(reply, 1);
    row.weight = hf__redis_reply_number(reply, 2);
    row.holders = (uint64_t)hf__redis_reply_number(reply, 3);
    row.waiters = (uint64_t)hf__redis_reply_number(reply, 4);
    if (row.holders > 0)
        ev_row(k->query.look, &row);
    return 0;
}

void hf__redis_brief(struct redis *r, struct look *look)
{
    static const struct query_type type = { build_brief, read_brief };

    hf__redis_query_send(r, &type, look, NULL);
}

/* ---- evicting, and prolonging what is kept --------------------------------------- */

static void build_evict(struct redis *r, const struct redis_query *k, struct command *c)
{
    const struct look *look = k->query.look;

    hf__redis_line_script(r, c, &k->q, look->keep_ms > 0 ? SCRIPT_KEEP : SCRIPT_EVICT,
                          k->name, k->name_len, look->keep_ms > 0 ? 3 : 2);
    hf__redis_command_arg(c, look->token, HF_TOKEN);
    hf__redis_command_number(c, look->keep_ms > 0 ? look->keep_ms : look->now);
    if (look->keep_ms > 0)
        hf__redis_command_number(c, look->orphan);
}

static int read_evict(struct redis *r, struct redis_query *k, const redisReply *reply,
                      hf_error *err)
{
    if (!reply || reply->type != REDIS_REPLY_INTEGER)
        return hf__redis_reply_error(r, reply, err);
    if (reply->integer == 0)
        return hf__fail(err, HF_ENOENT, 0, r->shown, "no such %sticket in line '%s'",
                        k->query.look->keep_ms > 0 ? "kept " : "", k->name);
    return 0;
}

void hf__redis_evict(struct store *s, struct look *look)
{
    static const struct query_type type = { build_evict, read_evict };

    hf__redis_query_send(redis_of(s), &type, look, NULL);
}
