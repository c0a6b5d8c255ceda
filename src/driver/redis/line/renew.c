/* renew.c: proving that holders live, many in one script, and waiters by their look.
 *
 * Tickets may leave while the request is under way, so it names them by token and they are
 * looked up again when the answer comes; what has left is not spoken of. In a cluster a
 * script touches one slot, and while a slot is being moved only a script of a single key is
 * served: so one line per script there. An error or a lost connection answers nothing, and
 * the core repeats. */
#include "driver/redis/redis.h"

#include <stdlib.h>
#include <string.h>

enum { LINES_PER_SCRIPT = 50 };

struct renewal {
    struct request q;
    size_t n;
    struct {
        unsigned char token[HF_TOKEN];
        int64_t ttl_ms;
    } holds[];
};

static struct renewal *of(struct request *q)
{
    return container_of(q, struct renewal, q);
}

static struct ticket *holder(struct redis *r, const unsigned char *token)
{
    struct ticket *t = hf__redis_seat_find(r, token);

    return t && t->life == &t->own && !(t->drv[1] & SEAT_LEAVING) ? t : NULL;
}

static void build(struct redis *r, struct request *q, struct command *c)
{
    struct renewal *k = of(q);
    char key[KEY_MAX];
    size_t n = 0;

    for (size_t i = 0; i < k->n; i++)
        if (holder(r, k->holds[i].token))
            k->holds[n++] = k->holds[i];
    k->n = n;
    c->nothing = n == 0; /* all have left meanwhile */
    hf__redis_request_script(c, q, SCRIPT_RENEW, n, 2 * n);
    for (size_t i = 0; i < n; i++) {
        const struct ticket *t = holder(r, k->holds[i].token);

        hf__redis_command_arg(c, key,
                              hf__redis_bucket_key(r, key, 'l', t->name, t->name_len));
    }
    for (size_t i = 0; i < n; i++) {
        hf__redis_command_arg(c, k->holds[i].token, HF_TOKEN);
        hf__redis_command_number(c, k->holds[i].ttl_ms);
    }
}

static void answer(struct redis *r, struct request *q, const redisReply *reply)
{
    const struct renewal *k = of(q);
    struct env *env = r->store.env;
    hf_error err;

    if (reply && reply->type == REDIS_REPLY_ERROR) {
        hf__redis_reply_error(r, reply, &err);
        env->log(env, HF_LOG_WARN, NULL, err.text);
    }
    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != k->n)
        return;
    for (size_t i = 0; i < k->n; i++) {
        struct ticket *t = holder(r, k->holds[i].token);

        if (!t)
            continue;
        switch (hf__redis_reply_number(reply, i)) {
        case 1:
            ev_alive(&t->own, q->sent_at, k->holds[i].ttl_ms);
            break;
        case 2:
            ev_marked(t);
            break;
        case 3:
            break;
        default:
            ev_dead(&t->own);
            break;
        }
    }
}

/* ask_only: nothing is renewed; are they still there? */
static void send_holds(struct redis *r, struct life *const *lives, size_t n, bool ask_only)
{
    static const struct request_type type = { build, answer, true };
    struct request *q = NULL;
    struct ticket *t;

    if (n == 0)
        return;
    t = container_of(lives[0], struct ticket, own);
    q = hf__redis_request_new(&type, sizeof(struct renewal) + n * sizeof of(q)->holds[0],
                              hf__redis_bucket(t->name, t->name_len));
    if (!q)
        return;
    for (size_t i = 0; i < n; i++) {
        t = container_of(lives[i], struct ticket, own);
        memcpy(of(q)->holds[i].token, t->token, HF_TOKEN);
        of(q)->holds[i].ttl_ms = ask_only ? 0 : lives[i]->ttl_ms;
    }
    of(q)->n = n;
    hf__redis_request_send(r, q);
}

void hf__redis_renew(struct store *s, struct life *const *lives, size_t n)
{
    struct redis *r = redis_of(s);
    struct life *batch[LINES_PER_SCRIPT];
    size_t most = r->topology == TOPOLOGY_CLUSTER ? 1 : LINES_PER_SCRIPT, k = 0;

    for (size_t i = 0; i < n; i++) {
        if (lives[i]->kind == LIFE_WAIT) {
            hf__redis_wait_look(r, wait_of(lives[i]));
            continue;
        }
        batch[k++] = lives[i];
        if (k == most) {
            send_holds(r, batch, k, false);
            k = 0;
        }
    }
    send_holds(r, batch, k, false);
}

void hf__redis_still_holds(struct redis *r, struct ticket *t)
{
    struct life *one = &t->own;

    if (t->life == one)
        send_holds(r, &one, 1, true);
}

void hf__redis_still_there(struct redis *r, int bucket)
{
    for (size_t i = 0; i <= r->tickets.mask; i++)
        for (struct map_node *m = r->tickets.slots[i]; m; m = m->next) {
            struct ticket *t = container_of(m, struct ticket, drv_node);

            if (!t->own.marked &&
                (bucket < 0 || hf__redis_bucket(t->name, t->name_len) == (unsigned)bucket))
                hf__redis_still_holds(r, t);
        }
}
