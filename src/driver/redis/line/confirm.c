/* confirm.c: replicas=N: what a server has written for us counts when N replicas have it.
 *
 * A grant, and a renewal, that only the master knows is worth nothing if another server
 * takes its place: the next is admitted there, while we believe that we hold (G1). So the
 * answers of joins, of looks that found a grant, and of renewals wait here before the kit
 * gets them.
 *
 * WAIT counts every write of its connection before it. So it goes to the node that has
 * written, which in a cluster need not be the one that has the slot now. One is enough for
 * all that was answered before it was sent; what is answered while it is under way waits
 * for the next. It stops its connection, so it comes in small pieces, and other requests go
 * between. Each answer waits for at most replica_timeout. Then a grant is given back (the
 * core leaves, after HF_EREPLICAS), and a renewal has not been one: the core asks again,
 * and if that does not help the hold is lost at its deadline. If the connection is lost
 * there is no answer. */
#include "driver/redis/redis.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_MS = 10 };

struct replica_request {
    struct redis_call q;
    struct node *node; /* it answers all its requests before it is freed */
};

static struct replica_request *of(struct redis_call *q)
{
    return container_of(q, struct replica_request, q);
}

static struct verdict *verdict_on(struct list *n)
{
    return container_of(n, struct verdict, on);
}

/* ---- handing over ---------------------------------------------------------------- */

static bool counts_on_replicas(const struct verdict *v)
{
    for (size_t i = 0; i < v->n; i++)
        if (v->k ? v->renewed[i] == RENEWED : v->places[i].kind == PLACE_HELD)
            return true;
    return false;
}

/* why: HF_EREPLICAS or HF_ENOMEM: what is granted is given back; else no answer will come;
 * NULL: confirmed. */
static void hand_over(struct redis *r, struct verdict *v, const hf_error *why)
{
    bool lost = why && why->code != HF_EREPLICAS && why->code != HF_ENOMEM;

    for (size_t i = 0; why && i < v->n; i++)
        if (v->k && v->renewed[i] == RENEWED)
            v->renewed[i] = RENEWED_UNSAID;
        else if (!v->k && v->places[i].kind == PLACE_HELD)
            v->places[i] = (struct scripted_place){
                .kind = lost ? PLACE_NOTHING : PLACE_REFUSED, .code = why->code, .err = why
            };
    if (lost && r->cluster)
        hf__redis_cluster_owes(r, v->bucket);
    v->look.places = v->places;
    if (v->t)
        hf__scripted_joined(&r->scripted, v->t, v->sent_at, v->places);
    else if (v->w)
        hf__scripted_looked(&r->scripted, v->w, v->sent_at, lost ? NULL : &v->look);
    else
        hf__scripted_renewed(&r->scripted, v->k, v->sent_at, v->renewed);
}

/* NULL: no memory */
static struct verdict *copy(const struct verdict *v)
{
    size_t places = v->k ? 0 : v->n * sizeof *v->places, renewed = v->k ? v->n : 0;
    struct verdict *new = malloc(sizeof *new + places + renewed);

    if (!new)
        return NULL;
    *new = *v;
    new->places = (struct scripted_place *)(new + 1);
    new->renewed = (unsigned char *)(new + 1);
    if (v->k)
        memcpy(new->renewed, v->renewed, renewed);
    else
        memcpy(new->places, v->places, places);
    return new;
}

/* ---- waiting for replicas -------------------------------------------------------- */

static void build(struct redis *r, struct redis_call *q, struct command *c)
{
    int64_t ms = PIECE_MS;

    list_for(n, &r->unconfirmed) {
        int64_t left = (verdict_on(n)->until - redis_now(r)) / 1000;

        if (verdict_on(n)->node == of(q)->node && left < ms)
            ms = left < 1 ? 1 : left;
    }
    hf__redis_command_begin(c, 3);
    hf__redis_command_text(c, "WAIT");
    hf__redis_command_number(c, r->replicas);
    hf__redis_command_number(c, ms);
}

/* Those at this node: all, if nothing will confirm them (`end` says why), else those that
 * were counted. */
static void tell(struct redis *r, const struct node *node, int64_t replicas,
                 const hf_error *end)
{
    struct list todo, *n;
    hf_error few;

    hf__fail(&few, HF_EREPLICAS, 0, r->shown,
             "%lld of at least %lld replicas had it within %lld ms; it is given back",
             (long long)replicas, (long long)r->replicas, (long long)r->replica_ms);
    list_init(&todo);
    list_for_safe(at, &r->unconfirmed) {
        struct verdict *v = verdict_on(at);

        if (v->node != node || (!end && !v->counted))
            continue;
        v->counted = false;
        if (end || replicas >= r->replicas || redis_now(r) >= v->until) {
            list_remove(at);
            list_push(&todo, at);
        }
    }
    while ((n = list_pop(&todo)) != NULL) {
        hand_over(r, verdict_on(n), end ? end : replicas >= r->replicas ? NULL : &few);
        free(verdict_on(n));
    }
}

static void send_wait(struct redis *, struct node *);

static void answer(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct node *node = of(q)->node;
    bool number = reply && reply->type == REDIS_REPLY_INTEGER;
    bool refused = reply && reply->type == REDIS_REPLY_ERROR;
    hf_error why = { 0 };

    if (!reply || refused)
        hf__redis_reply_error(r, reply, &why);
    if (refused)
        why.code = HF_EREPLICAS; /* it would be refused again */
    tell(r, node, number ? (int64_t)reply->integer : 0, why.code < 0 ? &why : NULL);
    if (reply)
        send_wait(r, node);
}

/* Unless nobody waits there, or one is under way. */
static void send_wait(struct redis *r, struct node *node)
{
    static const struct request_type type = { build, answer, false };
    struct redis_call *q;
    bool any = false;
    hf_error err;

    list_for(n, &r->unconfirmed) {
        if (verdict_on(n)->node == node && verdict_on(n)->counted)
            return;
        any = any || verdict_on(n)->node == node;
    }
    if (!any)
        return;
    q = hf__redis_request_new(&type, sizeof(struct replica_request), 0);
    if (!q) {
        hf__fail(&err, HF_EUNREACHABLE, 0, r->shown, "no memory for a request");
        hf__redis_conn_drop(&node->commands, &err); /* then everything is repeated */
        tell(r, node, 0, &err);
        return;
    }
    list_for(n, &r->unconfirmed)
        if (verdict_on(n)->node == node)
            verdict_on(n)->counted = true;
    of(q)->node = node;
    hf__redis_conn_send(&node->commands, q);
}

void hf__redis_answered(struct redis *r, struct verdict *v, const struct redis_call *q)
{
    struct verdict *later;
    hf_error err;

    if (r->replicas == 0 || !counts_on_replicas(v)) {
        hand_over(r, v, NULL);
        return;
    }
    hf__fail(&err, HF_ENOMEM, 0, r->shown, "no memory for an answer");
    v->node = q->at;
    v->bucket = q->bucket;
    v->until = redis_now(r) + r->replica_ms * 1000;
    v->counted = false;
    later = copy(v);
    if (!later) {
        hand_over(r, v, &err);
        return;
    }
    list_push(&r->unconfirmed, &later->on);
    send_wait(r, q->at);
}

void hf__redis_confirm_done(struct redis *r)
{
    struct list *n;

    while ((n = list_pop(&r->unconfirmed)) != NULL)
        free(verdict_on(n));
}
