/* wait.c: the safety look: how it is asked, and what wait.lua answers. */
#include "driver/redis/redis.h"

enum { LOST = 0, REVOKED = 1 }; /* of wait.lua */

struct look_request {
    struct redis_call q;
    struct wait_life *w; /* it stays until the look is answered */
};

static struct look_request *of(struct redis_call *q)
{
    return container_of(q, struct look_request, q);
}

static void build(struct redis *r, struct redis_call *q, struct command *c)
{
    const struct wait_life *w = of(q)->w;

    hf__redis_line_script(r, c, q, SCRIPT_WAIT, w->name, w->name_len, 2 + w->n);
    hf__redis_command_arg(c, r->client, CLIENT_ID);
    hf__redis_command_number(c, w->life->ttl_ms);
    for (size_t i = 0; i < w->n; i++)
        hf__redis_command_arg(c, w->tokens[i], HF_TOKEN);
}

static void read_place(struct scripted_place *p, int64_t state)
{
    p->kind = state < 0          ? PLACE_WAITS
              : state == LOST    ? PLACE_LOST
              : state == REVOKED ? PLACE_REFUSED
                                 : PLACE_HELD;
    p->code = HF_EEVICTED;
    p->err = NULL;
    p->position = state < 0 ? (uint32_t)-state : 0;
    p->fence = state > 0 ? (uint64_t)state : 0;
}

static void answer(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct wait_life *w = of(q)->w;
    struct scripted_place places[WAIT_CHUNK];
    struct verdict v = { .w = w, .sent_at = q->sent_at, .n = w->n, .places = places };
    struct scripted_looked refused = { 0 };
    hf_error err;

    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 + w->n) {
        refused.code = reply ? hf__redis_reply_error(r, reply, &err) : 0;
        refused.err = &err;
        hf__scripted_looked(&r->scripted, w, q->sent_at, reply ? &refused : NULL);
        return;
    }
    v.look.stamp = hf__redis_reply_number(reply, 0);
    v.look.renewed = v.look.stamp > 0;
    v.look.count = (size_t)hf__redis_reply_number(reply, 1);
    v.look.recheck_ms = hf__redis_reply_number(reply, 2);
    for (size_t i = 0; i < w->n; i++)
        read_place(&places[i], hf__redis_reply_number(reply, 3 + i));
    hf__redis_answered(r, &v, q);
}

void hf__redis_send_look(struct scripted *s, struct wait_life *w)
{
    static const struct request_type type = { build, answer, true };
    struct redis_call *q = hf__redis_request_new(&type, sizeof(struct look_request),
                                                 hf__redis_bucket(w->name, w->name_len));

    if (q) {
        of(q)->w = w;
        hf__redis_request_send(redis_at(s), q);
        return;
    }
    hf__redis_conn_look_later(redis_at(s)); /* what a message said does not come again */
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
