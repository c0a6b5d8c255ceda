/* confirm.c: replicas=N: what a server has written for us counts when N replicas have it.
 *
 * A grant, and a renewal, that only the master knows is worth nothing if another server
 * takes its place: the next is admitted there, while we believe that we hold (G1). So the
 * answers of joins, looks that found a grant, and renewals wait here.
 *
 * WAIT counts every write of its connection before it, so one is enough for all that was
 * answered before it was sent; what is answered while it is under way waits for the next.
 * It stops its connection, so it comes in small pieces, and other requests go between. Each
 * answer waits for at most replica_timeout. Then a grant is given back (the core leaves,
 * after HF_EREPLICAS), and a renewal has not been one: the core asks again, and if that
 * does not help the hold is lost at its deadline. If the connection is lost there is no
 * answer. */
#include "driver/redis/redis.h"

#include <stdlib.h>

enum { PIECE_MS = 10 };

struct replica_request {
    struct request q;
    struct node *node; /* it answers all its requests before it is freed */
};

static struct replica_request *of(struct request *q)
{
    return container_of(q, struct replica_request, q);
}

static void build(struct redis *r, struct request *q, struct command *c)
{
    int64_t ms = PIECE_MS;

    list_for(n, &r->unconfirmed) {
        const struct unconfirmed *u = container_of(n, struct unconfirmed, on);
        int64_t left = (u->until - redis_now(r)) / 1000;

        if (u->node == of(q)->node && left < ms)
            ms = left < 1 ? 1 : left;
    }
    hf__redis_command_begin(c, 3);
    hf__redis_command_text(c, "WAIT");
    hf__redis_command_number(c, r->replicas);
    hf__redis_command_number(c, ms);
}

/* Those at this node: all (err), or those that the answered WAIT was for. */
static void tell(struct redis *r, const struct node *node, int64_t replicas,
                 const hf_error *lost)
{
    struct list todo, *n;
    hf_error few;

    hf__fail(&few, HF_EREPLICAS, 0, r->shown,
             "%lld of at least %lld replicas had it within %lld ms; it is given back",
             (long long)replicas, (long long)r->replicas, (long long)r->replica_ms);
    list_init(&todo);
    list_for_safe(at, &r->unconfirmed) {
        struct unconfirmed *u = container_of(at, struct unconfirmed, on);

        if (u->node != node || (!lost && !u->counted))
            continue;
        u->counted = false;
        if (lost || replicas >= r->replicas || redis_now(r) >= u->until) {
            list_remove(at);
            list_push(&todo, at);
        }
    }
    while ((n = list_pop(&todo)) != NULL) {
        struct unconfirmed *u = container_of(n, struct unconfirmed, on);

        u->tell(r, u, lost ? lost : replicas >= r->replicas ? NULL : &few);
        free(u);
    }
}

static void send_wait(struct redis *, struct node *);

static void answer(struct redis *r, struct request *q, const redisReply *reply)
{
    struct node *node = of(q)->node;
    hf_error lost;

    if (!reply)
        hf__redis_reply_error(r, NULL, &lost);
    tell(r, node, reply && reply->type == REDIS_REPLY_INTEGER ? (int64_t)reply->integer : 0,
         reply ? NULL : &lost);
    if (reply)
        send_wait(r, node);
}

/* Unless nobody waits there, or one is under way. */
static void send_wait(struct redis *r, struct node *node)
{
    static const struct request_type type = { build, answer, false };
    struct request *q;
    bool any = false;
    hf_error err;

    list_for(n, &r->unconfirmed) {
        const struct unconfirmed *u = container_of(n, struct unconfirmed, on);

        if (u->node == node && u->counted)
            return;
        any = any || u->node == node;
    }
    if (!any)
        return;
    q = hf__redis_request_new(&type, sizeof(struct replica_request), 0);
    if (!q) {
        hf__fail(&err, HF_ENOMEM, 0, r->shown, "no memory for a request");
        hf__redis_conn_drop(&node->commands, &err); /* then everything is repeated */
        tell(r, node, 0, &err);
        return;
    }
    list_for(n, &r->unconfirmed) {
        struct unconfirmed *u = container_of(n, struct unconfirmed, on);

        u->counted = u->counted || u->node == node;
    }
    of(q)->node = node;
    hf__redis_conn_send(&node->commands, q);
}

void hf__redis_confirm(struct redis *r, struct unconfirmed *u, unsigned bucket)
{
    hf_error err;

    u->node = hf__redis_node_of(r, bucket);
    u->until = redis_now(r) + r->replica_ms * 1000;
    if (!u->node) {
        hf__redis_reply_error(r, NULL, &err);
        u->tell(r, u, &err);
        free(u);
        return;
    }
    list_push(&r->unconfirmed, &u->on);
    send_wait(r, u->node);
}

void hf__redis_confirm_done(struct redis *r)
{
    struct list *n;

    while ((n = list_pop(&r->unconfirmed)) != NULL)
        free(container_of(n, struct unconfirmed, on));
}
