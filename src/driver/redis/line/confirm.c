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

enum { PIECE_MS = 10 };

static struct redis_call *call_on(struct list *n)
{
    return container_of(n, struct redis_call, call.node);
}

static void build(struct redis *r, struct redis_call *q, struct command *c)
{
    int64_t ms = PIECE_MS;

    list_for(n, &r->unconfirmed) {
        int64_t left = (call_on(n)->until - redis_now(r)) / 1000;

        if (call_on(n)->at == q->at && left < ms)
            ms = left < 1 ? 1 : left;
    }
    hf__redis_command_words(c, "WAIT", 2);
    hf__redis_command_number(c, r->replicas);
    hf__redis_command_number(c, ms);
}

/* Those at this node: all, if nothing will confirm them (`end` says why; HF_EREPLICAS: what
 * is granted is given back, else they have no answer), or those that were counted. */
static void tell(struct redis *r, const struct node *node, int64_t replicas,
                 const hf_error *end)
{
    bool enough = replicas >= r->replicas;
    struct list todo, *n;
    hf_error few;

    hf__fail(&few, HF_EREPLICAS, 0, r->open.shown,
             "%lld of at least %lld replicas had it within %lld ms; it is given back",
             (long long)replicas, (long long)r->replicas, (long long)r->replica_ms);
    list_init(&todo);
    list_for_safe(at, &r->unconfirmed) {
        struct redis_call *q = call_on(at);

        if (q->at != node || (!end && !q->counted))
            continue;
        q->counted = false;
        if (end || enough || redis_now(r) >= q->until) {
            list_remove(at);
            list_push(&todo, at);
        }
    }
    while ((n = list_pop(&todo)) != NULL) {
        struct redis_call *q = call_on(n);

        q->unsafe = end ? end : enough ? NULL : &few;
        if (end && end->code != HF_EREPLICAS)
            hf__redis_request_lost(r, q);
        else
            hf__redis_request_end(r, q, q->reply);
    }
}

static void send_wait(struct redis *, struct node *);

static void answer(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct node *node = q->at;
    bool number = reply && reply->type == REDIS_REPLY_INTEGER;
    bool refused = reply && reply->type == REDIS_REPLY_ERROR;
    hf_error why = { 0 };

    node->counts = false;
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
    static const struct request_type type = { .build = build, .answer = answer };
    bool any = false;
    hf_error err;

    if (node->counts)
        return;
    list_for(n, &r->unconfirmed)
        if (call_on(n)->at == node)
            any = call_on(n)->counted = true;
    node->counts = any && hf__redis_ask_on(&node->commands, &type, NULL);
    if (any && !node->counts) {
        hf__fail(&err, HF_EUNREACHABLE, 0, r->open.shown, "no memory for a request");
        hf__link_break(&node->commands.link, &err); /* then everything is repeated */
        tell(r, node, 0, &err);
    }
}

void hf__redis_confirm(struct redis *r, struct redis_call *q)
{
    q->until = redis_now(r) + r->replica_ms * 1000;
    list_push(&r->unconfirmed, &q->call.node);
    send_wait(r, q->at);
}
