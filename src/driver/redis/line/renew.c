/* renew.c: proving that holders live, many in one script. In a cluster a script touches one
 * slot, so those of one bucket go together, and so they do where a proxy says CROSSSLOT;
 * while the slot is being moved (TRYAGAIN) only scripts of a single key are served, and
 * they go one by one. An error or a lost connection answers nothing, and the core repeats.
 */
#include "driver/redis/redis.h"

#include <string.h>

enum { SHORTENED = 4 }; /* of renew.lua */

static void build(struct redis *r, struct redis_call *q, struct command *c)
{
    struct scripted_renewal *k = q->about;
    size_t n = hf__scripted_trim(&r->scripted, k);
    char key[KEY_MAX];

    c->nothing = n == 0; /* all have left meanwhile */
    q->divisible = n > 1;
    hf__redis_request_script(c, q, SCRIPT_RENEW, n, 2 * n);
    for (size_t i = 0; i < n; i++) {
        const struct ticket *t = hf__scripted_holder(&r->scripted, k->holds[i].token);

        hf__redis_command_arg(c, key,
                              hf__redis_bucket_key(r, key, 'l', t->name, t->name_len));
    }
    for (size_t i = 0; i < n; i++) {
        hf__redis_command_arg(c, k->holds[i].token, HF_TOKEN);
        hf__redis_command_number(c, k->holds[i].ttl_ms);
    }
}

static bool has_renewed(const redisReply *reply)
{
    for (size_t i = 0; i < reply->elements; i++)
        if (hf__redis_reply_number(reply, i) == RENEWED ||
            hf__redis_reply_number(reply, i) == SHORTENED)
            return true;
    return false;
}

static void answer(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct scripted_renewal *k = q->about;
    unsigned char renewed[LINES_PER_SCRIPT];
    struct env *env = r->store.env;
    hf_error err;
    bool whole;

    if (k->n > 1 && (hf__redis_reply_apart(r, reply) || reply_starts(reply, "TRYAGAIN"))) {
        hf__scripted_split(&r->scripted, k);
        return;
    }
    if (reply && reply->type == REDIS_REPLY_ERROR) {
        hf__redis_reply_error(r, reply, &err);
        env->log(env, HF_LOG_WARN, NULL, err.text);
    }
    whole = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == k->n;
    for (size_t i = 0; whole && i < k->n; i++) { /* renew.lua and the kit count alike */
        renewed[i] = (unsigned char)hf__redis_reply_number(reply, i);
        if (renewed[i] == SHORTENED) {
            renewed[i] = RENEWED;
            hf__redis_tell_first(r, hf__scripted_holder(&r->scripted, k->holds[i].token));
        }
        if (renewed[i] == RENEWED && q->unsafe)
            renewed[i] = RENEWED_UNSAID;
    }
    hf__scripted_renewed(&r->scripted, k, q->call.sent_at, whole ? renewed : NULL);
}

void hf__redis_send_renewal(struct scripted *s, struct scripted_renewal *k)
{
    static const struct request_type type = { build, answer, true, has_renewed };
    const struct ticket *t = hf__seat_find(&s->seats, k->holds[0].token);

    if (!t || !hf__redis_ask(redis_at(s), &type, k, ticket_bucket(t)))
        hf__scripted_renewed(s, k, 0, NULL);
}

unsigned hf__redis_shard(struct scripted *s, const struct ticket *t)
{
    return redis_at(s)->apart ? ticket_bucket(t) : 0;
}

void hf__redis_still_there(struct redis *r, int bucket)
{
    for (size_t i = 0; i <= r->scripted.seats.mask; i++)
        for (struct map_node *m = r->scripted.seats.slots[i]; m; m = m->next) {
            const struct ticket *t = container_of(m, struct ticket, drv_node);

            if (!t->own->marked && (bucket < 0 || ticket_bucket(t) == (unsigned)bucket))
                hf__scripted_ask(&r->scripted, t);
        }
}
