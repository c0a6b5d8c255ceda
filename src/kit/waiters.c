/* waiters.c: waiting lives: found by line and ttl, tickets in order, whom a look names. */
#include "kit/waiters.h"

#include "kit/mutate.h"

#include <stdlib.h>
#include <string.h>

int hf__waiters_init(struct waiters *ws, struct store *store)
{
    ws->store = store;
    list_init(&ws->all);
    store->env->random(store->env, ws->hash_key, sizeof ws->hash_key);
    return hf__map_init(&ws->by_line);
}

static void free_wait(struct waiters *ws, struct wait_life *w)
{
    hf__map_remove(&ws->by_line, &w->node);
    list_remove(&w->all);
    hf__life_free(w->life);
    if (w->tokens != w->oldest)
        free(w->tokens);
    free(w);
}

void hf__waiters_done(struct waiters *ws)
{
    if (!ws->store)
        return;
    list_for_safe(n, &ws->all)
        free_wait(ws, container_of(n, struct wait_life, all));
    hf__map_done(&ws->by_line);
    ws->store = NULL;
}

static bool belongs(const struct wait_life *w, const struct ticket *t)
{
    return (w->life->ttl_ms == t->ttl_ms || MUTANT(MIXED_LIVES)) &&
           w->name_len == t->name_len && memcmp(w->name, t->name, t->name_len) == 0;
}

struct wait_life *hf__wait_get(struct waiters *ws, const struct ticket *t)
{
    uint64_t ttl = MUTANT(MIXED_LIVES) ? 0 : (uint64_t)t->ttl_ms;
    uint64_t hash =
        hf__hash_keyed(ws->hash_key, t->name, t->name_len) ^ ttl * 0x9e3779b97f4a7c15u;
    struct wait_life *w;

    for (struct map_node *n = map_chain(&ws->by_line, hash); n; n = n->next) {
        w = container_of(n, struct wait_life, node);
        if (n->hash == hash && belongs(w, t))
            return w;
    }
    w = calloc(1, sizeof *w + t->name_len);
    if (!w || (w->life = hf__life_new(ws->store, LIFE_WAIT, t->ttl_ms)) == NULL) {
        free(w);
        return NULL;
    }
    w->life->drv[1] = (uint64_t)(uintptr_t)w;
    w->tokens = w->oldest;
    w->name_len = t->name_len;
    memcpy(w->name, t->name, t->name_len);
    hf__map_insert(&ws->by_line, &w->node, hash);
    list_push(&ws->all, &w->all);
    return w;
}

static void drop(struct waiters *ws, struct wait_life *w)
{
    if (w->life->ntickets == 0 && w->pins == 0)
        free_wait(ws, w);
}

void hf__wait_unpin(struct waiters *ws, struct wait_life *w)
{
    w->pins--;
    drop(ws, w);
}

/* The order of the queue is nearly always that of the answers. */
void hf__wait_hang(struct waiters *ws, struct ticket *t, struct wait_life *w,
                   uint64_t number)
{
    struct list *at;

    seat_of(t)->number = number;
    if (t->life != w->life) {
        hf__wait_off(ws, t);
        hf__hang(t, w->life);
    }
    at = t->on_life.prev;
    while (at != &w->life->tickets &&
           seat_of(container_of(at, struct ticket, on_life))->number > number)
        at = at->prev;
    if (at != t->on_life.prev) {
        list_remove(&t->on_life);
        list_insert_before(at->next, &t->on_life);
    }
}

void hf__wait_off(struct waiters *ws, struct ticket *t)
{
    struct wait_life *w;

    if (!ticket_waits(t))
        return;
    w = wait_life_of(t->life);
    hf__hang(t, t->own);
    drop(ws, w);
}

/* Answers of several connections may come in another order than that of their sending. */
void hf__wait_answered(struct wait_life *w, int64_t sent_at, int64_t stamp)
{
    if (sent_at < w->stamp_sent_at)
        return;
    w->stamp = stamp;
    w->stamp_sent_at = sent_at;
}

/* ---- whom a look names ----------------------------------------------------------- */

static size_t count_idle(const struct wait_life *w)
{
    size_t n = 0;

    list_for(at, &w->life->tickets)
        n += seat_idle(container_of(at, struct ticket, on_life));
    return n;
}

void hf__wait_name(struct wait_life *w, size_t skip, size_t most)
{
    if (w->tokens != w->oldest)
        free(w->tokens);
    w->tokens = most > WAIT_OLDEST ? malloc(most * HF_TOKEN) : NULL;
    if (!w->tokens) { /* without memory for more it goes on with a few */
        w->tokens = w->oldest;
        most = WAIT_OLDEST;
    }
    w->skip = skip;
    w->n = 0;
    list_for(at, &w->life->tickets) {
        const struct ticket *t = container_of(at, struct ticket, on_life);

        if (w->n == most)
            break;
        if (!seat_idle(t))
            continue;
        if (skip > 0)
            skip--;
        else
            memcpy(w->tokens[w->n++], t->token, HF_TOKEN);
    }
}

bool hf__wait_goes_on(const struct wait_life *w, size_t waiting, size_t count,
                      size_t *ret_skip)
{
    size_t left = count_idle(w);

    *ret_skip = w->skip + waiting;
    if (waiting == 0 && w->skip < left)
        return true; /* those that were named are out: the next ones */
    /* one in the middle is missing: after the first look by the store's count; a look that
     * follows goes on to the end */
    return w->skip > 0 ? w->skip + waiting < left : count < left;
}
