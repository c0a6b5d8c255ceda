/* wait.c: the safety look: how it is asked, and what wait.lua answers. */
#include "driver/redis/redis.h"

#include <stdlib.h>

enum { LOST = 0, REVOKED = 1 }; /* of wait.lua */

struct look_request {
    struct request q;
    struct wait_life *w; /* it stays until the look is answered */
};

static struct look_request *of(struct request *q)
{
    return container_of(q, struct look_request, q);
}

static void build(struct redis *r, struct request *q, struct command *c)
{
    const struct wait_life *w = of(q)->w;

    hf__redis_line_script(r, c, q, SCRIPT_WAIT, w->name, w->name_len, 2 + w->n);
    hf__redis_command_arg(c, r->client, CLIENT_ID);
    hf__redis_command_number(c, w->life->ttl_ms);
    for (size_t i = 0; i < w->n; i++)
        hf__redis_command_arg(c, w->tokens[i], HF_TOKEN);
}

struct unconfirmed_look {
    struct unconfirmed u;
    struct wait_life *w;
    int64_t sent_at;
    struct scripted_looked look;
    struct scripted_place places[WAIT_CHUNK];
};

/* Also of a look that needs no confirmation. */
static void confirmed(struct redis *r, struct unconfirmed *u, const hf_error *err)
{
    struct unconfirmed_look *k = container_of(u, struct unconfirmed_look, u);

    for (size_t i = 0; err && i < k->w->n; i++)
        if (k->places[i].kind == PLACE_HELD)
            k->places[i] = (struct scripted_place){ .kind = PLACE_REFUSED,
                                                    .code = err->code,
                                                    .err = err };
    hf__scripted_looked(&r->scripted, k->w, k->sent_at,
                        err && err->code != HF_EREPLICAS ? NULL : &k->look);
}

static bool read_places(struct scripted_place *places, size_t n, const redisReply *reply)
{
    bool grants = false;

    for (size_t i = 0; i < n; i++) {
        int64_t state = hf__redis_reply_number(reply, 3 + i);

        places[i].kind = state < 0          ? PLACE_WAITS
                         : state == LOST    ? PLACE_LOST
                         : state == REVOKED ? PLACE_REFUSED
                                            : PLACE_HELD;
        places[i].code = HF_EEVICTED;
        places[i].position = state < 0 ? (uint32_t)-state : 0;
        places[i].fence = state > 0 ? (uint64_t)state : 0;
        grants = grants || places[i].kind == PLACE_HELD;
    }
    return grants;
}

static void answer(struct redis *r, struct request *q, const redisReply *reply)
{
    struct wait_life *w = of(q)->w;
    struct scripted_looked refused = { 0 };
    struct unconfirmed_look now = { .w = w, .sent_at = q->sent_at }, *later;
    hf_error err;
    bool grants;

    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 + w->n) {
        if (reply) {
            refused.code = hf__redis_reply_error(r, reply, &err);
            refused.err = &err;
        }
        hf__scripted_looked(&r->scripted, w, q->sent_at, reply ? &refused : NULL);
        return;
    }
    now.u.tell = confirmed;
    now.look.stamp = hf__redis_reply_number(reply, 0);
    now.look.renewed = now.look.stamp > 0;
    now.look.count = (size_t)hf__redis_reply_number(reply, 1);
    now.look.recheck_ms = hf__redis_reply_number(reply, 2);
    now.look.places = now.places;
    grants = read_places(now.places, w->n, reply);
    if (r->replicas == 0 || !grants) {
        confirmed(r, &now.u, NULL);
        return;
    }
    later = malloc(sizeof *later);
    if (!later) { /* they stay as they are, and are looked for again */
        hf__redis_conn_look_later(r);
        hf__scripted_looked(&r->scripted, w, q->sent_at, NULL);
        return;
    }
    *later = now;
    later->look.places = later->places;
    hf__redis_confirm(r, &later->u, q->bucket);
}

void hf__redis_send_look(struct scripted *s, struct wait_life *w)
{
    static const struct request_type type = { build, answer, true };
    struct request *q = hf__redis_request_new(&type, sizeof(struct look_request),
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
