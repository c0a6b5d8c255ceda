/* wait.c: the waiting lives: tickets of one client that wait in one line with one ttl share
 * one expiry in the store, and one look every ttl/3 proves them alive and finds what
 * messages lost.
 *
 * The look names the oldest few tickets. Grants leave the queue in its order, so if the
 * oldest still waits, no other was granted; if all that were named are out, the next few
 * are looked for. Somebody else may have evicted a ticket in the middle: the count of the
 * group tells, and then all are looked for, some at a time.
 *
 * G1 and the sending time of a grant. The store copied the group's expiry as it stood at
 * the grant. A grant that a look finds is renewed by that look, and counts from its
 * sending. A grant that a message tells carries the expiry it has: if that is the one which
 * our last answered request set, it counts from that request's sending; else some later
 * join or look of ours was answered before the message came, and it is looked for (wake.c).
 */
#include "driver/redis/redis.h"

#include <stdlib.h>
#include <string.h>

enum { OLDEST = 8, CHUNK = 64, EVICTED = 1 /* of wait.lua */ };

struct wait_request {
    struct request q;
    struct wait *w; /* pinned */
    size_t skip, n;
    unsigned char tokens[][HF_TOKEN];
};

static struct wait_request *of(struct request *q)
{
    return container_of(q, struct wait_request, q);
}

/* ---- finding --------------------------------------------------------------------- */

static uint64_t wait_hash(const struct redis *r, const struct ticket *t)
{
    return hf__hash_keyed(r->hash_key, t->name, t->name_len) ^
           (uint64_t)t->ttl_ms * 0x9e3779b97f4a7c15u;
}

struct wait *hf__redis_wait_get(struct redis *r, struct ticket *t)
{
    uint64_t hash = wait_hash(r, t);
    struct wait *w;

    for (struct map_node *n = map_chain(&r->waits, hash); n; n = n->next) {
        w = container_of(n, struct wait, node);
        if (n->hash == hash && w->life->ttl_ms == t->ttl_ms && w->name_len == t->name_len &&
            memcmp(w->name, t->name, t->name_len) == 0)
            return w;
    }
    w = calloc(1, sizeof *w + t->name_len);
    if (!w || (w->life = hf__life_new(&r->store, LIFE_WAIT, t->ttl_ms)) == NULL) {
        free(w);
        return NULL;
    }
    w->life->drv[1] = (uint64_t)(uintptr_t)w;
    w->bucket = hf__redis_bucket(t->name, t->name_len);
    w->name_len = t->name_len;
    memcpy(w->name, t->name, t->name_len);
    hf__map_insert(&r->waits, &w->node, hash);
    list_push(&r->all_waits, &w->all);
    return w;
}

void hf__redis_wait_drop(struct redis *r, struct life *l)
{
    struct wait *w = wait_of(l);

    if (l->ntickets > 0 || w->pins > 0)
        return;
    hf__map_remove(&r->waits, &w->node);
    list_remove(&w->all);
    hf__life_free(l);
    free(w);
}

/* In the order of the queue, which is nearly always that of the answers. */
void hf__redis_wait_hang(struct redis *r, struct ticket *t, struct wait *w, uint64_t number)
{
    struct life *old = t->life;
    struct list *at;

    t->drv[0] = number;
    if (old != w->life)
        hf__hang(t, w->life);
    if (old && old != w->life && old->kind == LIFE_WAIT)
        hf__redis_wait_drop(r, old);
    at = t->on_life.prev;
    while (at != &w->life->tickets &&
           container_of(at, struct ticket, on_life)->drv[0] > number)
        at = at->prev;
    if (at != t->on_life.prev) {
        list_remove(&t->on_life);
        list_insert_before(at->next, &t->on_life);
    }
}

/* ---- looking --------------------------------------------------------------------- */

static void build(struct redis *r, struct request *q, struct command *c)
{
    const struct wait_request *k = of(q);

    hf__redis_line_script(r, c, q, SCRIPT_WAIT, k->w->name, k->w->name_len, 2 + k->n);
    hf__redis_command_arg(c, r->client, CLIENT_ID);
    hf__redis_command_number(c, k->w->life->ttl_ms);
    for (size_t i = 0; i < k->n; i++)
        hf__redis_command_arg(c, k->tokens[i], HF_TOKEN);
}

static bool stays(const struct ticket *t)
{
    return !(t->drv[1] & (SEAT_LEAVE | SEAT_LEAVING | SEAT_JOINING));
}

static size_t count_waiting(const struct life *l)
{
    size_t n = 0;

    list_for(at, &l->tickets)
        n += stays(container_of(at, struct ticket, on_life));
    return n;
}

static void look_from(struct redis *, struct wait *, size_t skip, size_t most);

/* What became of each that was named. Returns how many of them still wait. */
static size_t tell_each(struct redis *r, const struct wait_request *k,
                        const redisReply *reply)
{
    size_t waiting = 0;

    for (size_t i = 0; i < k->n; i++) {
        struct ticket *t = hf__redis_seat_find(r, k->tokens[i]);
        int64_t state = hf__redis_reply_number(reply, 3 + i);

        if (!t || t->life != k->w->life || !stays(t))
            continue;
        if (state == 0 || state == EVICTED) {
            hf__redis_seat_out(r, t);
            ev_gone(t, state == 0 ? HF_ELOST : HF_EEVICTED, state == 0 ? 0 : -1, NULL);
        } else if (state < 0) {
            ev_waiting(t, (uint32_t)-state,
                       waiting++ == 0 ? hf__redis_reply_number(reply, 2) : -1);
        } else {
            hf__redis_seat_granted(r, t, (uint64_t)state, k->q.sent_at);
        }
    }
    return waiting;
}

static void looked(struct redis *r, const struct wait_request *k, const redisReply *reply)
{
    struct wait *w = k->w;
    int64_t till = hf__redis_reply_number(reply, 0);
    size_t left, waiting;

    if (till > 0) {
        if (k->q.sent_at >= w->life->sent_at)
            w->till = till; /* in a cluster an older answer may come later */
        ev_alive(w->life, k->q.sent_at, w->life->ttl_ms);
    }
    waiting = tell_each(r, k, reply);
    left = count_waiting(w->life);
    if (left == 0)
        return;
    if (w->again)
        look_from(r, w, 0, OLDEST);
    else if (waiting == 0 && k->skip < left)
        look_from(r, w, k->skip, CHUNK); /* those named are out: the next */
    else if (k->skip > 0 ? k->skip + waiting < left
                         : (size_t)hf__redis_reply_number(reply, 1) < left)
        look_from(r, w, k->skip + waiting, CHUNK); /* one in the middle is missing */
}

/* Rights, a damaged line, another format: who waits is told, and what stands in the store
 * ends by its ttl. Other errors may pass: the next look asks again. */
static void refused(struct redis *r, const struct wait_request *k, const redisReply *reply)
{
    hf_error err;
    int code = hf__redis_reply_error(r, reply, &err);

    if (code != HF_EAUTH && code != HF_EDAMAGED && code != HF_EVERSION)
        return;
    for (size_t i = 0; i < k->n; i++) {
        struct ticket *t = hf__redis_seat_find(r, k->tokens[i]);

        if (!t || t->life != k->w->life || !stays(t))
            continue;
        hf__redis_seat_out(r, t);
        ev_gone(t, code, -1, &err);
    }
}

static void answer(struct redis *r, struct request *q, const redisReply *reply)
{
    struct wait_request *k = of(q);
    struct wait *w = k->w;

    w->asked = false;
    if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 + k->n)
        looked(r, k, reply);
    else if (reply)
        refused(r, k, reply);
    w->pins--;
    hf__redis_wait_drop(r, w->life);
}

static size_t name_tokens(const struct wait *w, size_t skip, size_t most,
                          unsigned char (*tokens)[HF_TOKEN])
{
    size_t n = 0;

    list_for(at, &w->life->tickets) {
        const struct ticket *t = container_of(at, struct ticket, on_life);

        if (n == most)
            break;
        if (!stays(t) || (skip > 0 && skip-- > 0))
            continue;
        memcpy(tokens[n++], t->token, HF_TOKEN);
    }
    return n;
}

static void look_from(struct redis *r, struct wait *w, size_t skip, size_t most)
{
    static const struct request_type type = { build, answer, true };
    struct request *q;

    w->again = false;
    q = hf__redis_request_new(&type, sizeof(struct wait_request) + most * HF_TOKEN,
                              w->bucket);
    if (!q) { /* it may be the answer to a message that does not come again */
        hf__redis_conn_look_later(r);
        return;
    }
    of(q)->w = w;
    of(q)->skip = skip;
    of(q)->n = name_tokens(w, skip, most, of(q)->tokens);
    w->pins++;
    w->asked = true;
    hf__redis_request_send(r, q);
}

void hf__redis_wait_look(struct redis *r, struct wait *w)
{
    if (w->asked)
        w->again = true;
    else
        look_from(r, w, 0, OLDEST);
}

void hf__redis_wait_look_all(struct redis *r, int bucket)
{
    list_for_safe(n, &r->all_waits) {
        struct wait *w = container_of(n, struct wait, all);

        if (bucket < 0 || w->bucket == (unsigned)bucket)
            hf__redis_wait_look(r, w);
    }
}
