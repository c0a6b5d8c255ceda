/* wait.c: the safety look: how it is asked, and what wait.lua answers. */
#include "driver/redis/redis.h"

enum { LOST = 0, REVOKED = 1, FIXED = 3 }; /* of wait.lua */

static void build(struct redis *r, struct redis_call *q, struct command *c)
{
    const struct wait_life *w = q->about;

    hf__redis_line_script(r, c, q, SCRIPT_WAIT, w->name, w->name_len, 2 + w->n);
    hf__redis_command_arg(c, r->client, CLIENT_ID);
    hf__redis_command_number(c, w->life->ttl_ms);
    for (size_t i = 0; i < w->n; i++)
        hf__redis_command_arg(c, w->tokens[i], HF_TOKEN);
}

/* unsafe: why a grant is given back; NULL: it is not. */
static struct scripted_place read_place(int64_t state, const hf_error *unsafe)
{
    struct scripted_place p = { .kind = PLACE_LOST };

    if (state < 0) {
        p.kind = PLACE_WAITS;
        p.position = (uint32_t)-state;
    } else if (state == REVOKED || (state != LOST && unsafe)) {
        p.kind = PLACE_REFUSED;
        p.code = state == REVOKED ? HF_EEVICTED : unsafe->code;
        p.err = state == REVOKED ? NULL : unsafe;
    } else if (state != LOST) {
        p.kind = PLACE_HELD;
        p.fence = (uint64_t)state;
    }
    return p;
}

static bool has_grant(const redisReply *reply)
{
    for (size_t i = FIXED; i < reply->elements; i++)
        if (hf__redis_reply_number(reply, i) > REVOKED)
            return true;
    return false;
}

static void answer(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct wait_life *w = q->about;
    struct scripted_place places[WAIT_CHUNK];
    struct scripted_looked l = { .places = places };
    hf_error err;

    if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == FIXED + w->n) {
        l.stamp = hf__redis_reply_number(reply, 0);
        l.renewed = l.stamp > 0;
        l.count = (size_t)hf__redis_reply_number(reply, 1);
        l.recheck_ms = hf__redis_reply_number(reply, 2);
        for (size_t i = 0; i < w->n; i++)
            places[i] = read_place(hf__redis_reply_number(reply, FIXED + i), q->unsafe);
    } else if (reply) {
        l.code = hf__redis_reply_error(r, reply, &err);
        l.err = &err;
    }
    hf__scripted_looked(&r->scripted, w, q->call.sent_at, reply ? &l : NULL);
}

void hf__redis_send_look(struct scripted *s, struct wait_life *w)
{
    static const struct request_type type = { build, answer, true, has_grant };
    unsigned bucket = hf__redis_bucket(w->name, w->name_len);

    if (hf__redis_ask(redis_at(s), &type, w, bucket))
        return;
    hf__redis_no_memory(redis_at(s), bucket); /* what a message said does not come again */
    hf__scripted_looked(s, w, 0, NULL);
}

void hf__redis_wait_look_all(struct redis *r, int bucket)
{
    list_for_safe(n, &r->scripted.waiters.all) {
        struct wait_life *w = container_of(n, struct wait_life, all);

        if (bucket < 0 || hf__redis_bucket(w->name, w->name_len) == (unsigned)bucket)
            hf__scripted_look(&r->scripted, w);
    }
}
