/* look.c: questions and orders about one line, each by one script: who holds and who waits,
 * how much of it is taken, end a ticket by its token, let a kept one last for another time.
 * Nothing is changed by looking, and no expiry moves (rule 7). Unanswered, each ends with
 * HF_EUNREACHABLE. */
#include "driver/redis/redis.h"

#include <string.h>

bool hf__redis_query_failed(const redisReply *reply)
{
    return !reply || reply->type == REDIS_REPLY_ERROR || hf__redis_reply_is(reply, 0, "f");
}

static struct redis_query *of(struct redis_call *q)
{
    return container_of(q, struct redis_query, q);
}

static void build(struct redis *r, struct redis_call *q, struct command *c)
{
    const struct redis_query *k = of(q);

    c->nothing = !query_wanted(&k->query);
    if (!c->nothing)
        k->type->build(r, k, c);
}

static void answer(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct redis_query *k = of(q);
    hf_error err;

    if (query_wanted(&k->query))
        hf__query_end(&k->query, k->type->read(r, k, reply, &err), &err);
}

void hf__redis_query_send(struct redis *r, const struct query_type *type, struct look *look,
                          struct cell *cell)
{
    static const struct request_type request = { build, answer, .line = true };
    const char *name = look ? look->name : cell->name;
    size_t name_len = look ? look->name_len : cell->name_len;
    struct redis_call *q =
        hf__redis_request_new(&request, sizeof(struct redis_query) + name_len + 1,
                              hf__redis_bucket(name, name_len));
    struct redis_query *k;

    if (!q) {
        hf__query_refuse(look, cell, HF_ENOMEM, NULL, "no memory for a request");
        return;
    }
    k = of(q);
    k->type = type;
    k->name_len = name_len;
    memcpy(k->name, name, name_len);
    hf__query_begin(&k->query, look, cell);
    hf__redis_request_send(r, q);
}

/* ---- one line -------------------------------------------------------------------- */

static void build_look(struct redis *r, const struct redis_query *k, struct command *c)
{
    const struct look *look = k->query.look;

    hf__redis_line_script(r, c, &k->q, SCRIPT_LOOK, k->name, k->name_len,
                          look->no_notes ? 2 : 1);
    hf__redis_command_number(c, look->follow ? FOLLOW_MS : 0);
    if (look->no_notes)
        hf__redis_command_arg(c, look->token, look->front ? HF_TOKEN : 0);
}

static int read_look(struct redis *r, struct redis_query *k, const redisReply *reply,
                     hf_error *err)
{
    struct look *look = k->query.look;
    int64_t next_ms = -1;
    int rc = hf__redis_query_failed(reply)
                 ? hf__redis_reply_error(r, reply, err)
                 : hf__redis_line_rows(k->name, k->name_len, reply, look, &next_ms, err);

    look->again_at = hf__redis_follow_next(r, next_ms, false);
    return rc;
}

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

void hf__redis_look(struct store *s, struct look *look)
{
    static const struct query_type whole = { build_look, read_look };
    static const struct query_type brief = { build_brief, read_brief };
    struct redis *r = redis_of(s);

    if (look->follow)
        hf__redis_follow_start(r, look, NULL);
    if (look->list)
        hf__redis_list(r, look);
    else
        hf__redis_query_send(r, look->brief ? &brief : &whole, look, NULL);
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
        return hf__fail(err, HF_ENOENT, 0, r->open.shown, "no such %sticket in line '%s'",
                        k->query.look->keep_ms > 0 ? "kept " : "", k->name);
    return 0;
}

void hf__redis_evict(struct store *s, struct look *look)
{
    static const struct query_type type = { build_evict, read_evict };

    hf__redis_query_send(redis_of(s), &type, look, NULL);
}

/* ---- stopping -------------------------------------------------------------------- */

void hf__redis_stop(struct store *s, struct look *look, struct cell *cell)
{
    if (look ? look->follow : cell->follow)
        hf__redis_follow_end(redis_of(s), look, cell);
    hf__query_stop(look, cell);
}
