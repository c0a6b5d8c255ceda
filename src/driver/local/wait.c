/* wait.c: a client's tickets, the lives of those that wait, and looking for one of them.
 *
 * The waiting tickets of one client, line and ttl share a life: one record with one
 * expiry. A ticket that joins an old life renews it, which is its owner's own request. A
 * life that is found expired is not revived: tickets on it may have been dropped already.
 * It ends at its next renewal, and newcomers get a new one.
 *
 * G1 and the sending time of a grant. The store copied the expiry from the life as it
 * stood at the grant; the client may have renewed that life since. So the sending time is
 * not taken from the life but computed back from the expiry that the hold really has: the
 * store's expiry is always `now` of one of our own entries plus the ttl, and that `now`
 * is what we called the sending time of that entry.
 *
 * hf__local_attend is what a waiter does when it is told to look, or when a process that it
 * watches has died: step the line, see whether it holds, else whom to watch now. Each
 * process found dead is removed and the look repeated; that ends, because each turn has
 * one process fewer. If the gate is closed, the look comes as soon as it is open.
 */
#include "driver/local/local.h"
#include "kit/seats.h"

#include <stdlib.h>
#include <string.h>

/* ---- tickets --------------------------------------------------------------------- */

struct ticket *hf__local_ticket_find(struct local *ls, const unsigned char *token)
{
    return hf__seat_find(&ls->tickets, token);
}

void hf__local_ticket_in(struct local *ls, struct ticket *t)
{
    hf__seat_in(&ls->tickets, t);
}

static void off_wait(struct local *ls, struct ticket *t)
{
    struct life *l = t->life;

    if (!l || l->kind != LIFE_WAIT)
        return;
    hf__hang(t, t->own);
    hf__local_wait_drop(ls, l);
}

void hf__local_ticket_out(struct local *ls, struct ticket *t)
{
    hf__local_defer_drop_ticket(t);
    t->own->drv[0] = 0;
    hf__seat_out(&ls->tickets, t);
    hf__local_post_clear(ls, t->drv_ptr);
    t->drv_ptr = NULL;
    off_wait(ls, t);
    t->drv[0] = t->drv[1] = 0;
}

void hf__local_ticket_granted(struct local *ls, struct ticket *t, uint64_t fence,
                              int64_t expires_at)
{
    int64_t sent_at = expires_at - t->ttl_ms * 1000;

    hf__local_post_clear(ls, t->drv_ptr);
    t->drv_ptr = NULL;
    off_wait(ls, t);
    if (t->life != t->own)
        hf__hang(t, t->own);
    ev_granted(t, fence, sent_at);
}

/* ---- waiting lives --------------------------------------------------------------- */

static uint64_t wait_hash(const struct local *ls, const struct key *k, int64_t ttl_ms)
{
    return hf__hash_keyed(ls->hash_key, k->full, k->full_len) ^
           (uint64_t)ttl_ms * 0x9e3779b97f4a7c15u;
}

/* By the 64-bit hash of the name alone a life could be shared by two lines: so it asks a
 * ticket that is on it. */
static bool same_line(const struct wait *w, const struct local *ls, const struct key *k)
{
    const struct list *first = list_first(&w->life->tickets);
    const struct ticket *t;
    size_t ns = strlen(ls->ns) + (ls->ns[0] ? 1 : 0);

    if (!first)
        return false;
    t = container_of(first, struct ticket, on_life);
    return t->name_len == k->full_len - ns &&
           memcmp(t->name, k->full + ns, t->name_len) == 0;
}

struct wait *hf__local_wait_find(struct local *ls, const struct key *k, int64_t ttl_ms)
{
    uint64_t hash = wait_hash(ls, k, ttl_ms);

    for (struct map_node *n = map_chain(&ls->waits, hash); n; n = n->next) {
        struct wait *w = container_of(n, struct wait, node);

        if (n->hash == hash && w->life->ttl_ms == ttl_ms && same_line(w, ls, k))
            return w;
    }
    return NULL;
}

struct wait *hf__local_wait_new(struct local *ls, int64_t ttl_ms)
{
    struct wait *w = calloc(1, sizeof *w);

    if (!w || (w->life = hf__life_new(&ls->store, LIFE_WAIT, ttl_ms)) == NULL) {
        free(w);
        return NULL;
    }
    w->life->drv[1] = (uint64_t)(uintptr_t)w;
    list_push(&ls->all_waits, &w->all);
    return w;
}

void hf__local_wait_unindex(struct local *ls, struct wait *w)
{
    if (w->indexed)
        hf__map_remove(&ls->waits, &w->node);
    w->indexed = false;
}

void hf__local_wait_index(struct local *ls, struct wait *w, const struct key *k)
{
    struct wait *old = hf__local_wait_find(ls, k, w->life->ttl_ms);

    if (old == w)
        return;
    if (old)
        hf__local_wait_unindex(ls, old);
    hf__map_insert(&ls->waits, &w->node, wait_hash(ls, k, w->life->ttl_ms));
    w->indexed = true;
}

void hf__local_wait_free(struct local *ls, struct wait *w)
{
    if (!w)
        return;
    hf__local_wait_unindex(ls, w);
    list_remove(&w->all);
    hf__life_free(w->life);
    free(w);
}

void hf__local_wait_drop(struct local *ls, struct life *l)
{
    if (l->ntickets > 0 || wait_of(l)->pins > 0)
        return;
    hf__local_stale_add(ls, l->drv[0], NULL);
    hf__local_wait_free(ls, wait_of(l));
}

/* ---- records without use --------------------------------------------------------- */

/* It goes with our next join, or when there are many; else with our process. It is not
 * worth an entry, nor the time of a leave, for which the next one waits. */
void hf__local_stale_add(struct local *ls, uint64_t life, const unsigned char *token)
{
    void *stale = ls->stale;
    struct stale *s;

    if (hf__local_room(&stale, &ls->stale_room, ls->nstale + 1, sizeof *ls->stale) < 0)
        return;
    ls->stale = stale;
    s = &ls->stale[ls->nstale++];
    s->life = life;
    if (token)
        memcpy(s->token, token, HF_TOKEN);
}

int hf__local_stale_drop(struct tx *tx)
{
    int rc = 0;

    for (size_t i = tx->ls->nstale; i > 0 && rc == 0; i--) {
        const struct stale *s = &tx->ls->stale[i - 1];

        rc = s->life != 0 ? hf__local_life_del(tx, s->life)
                          : hf__local_inbox_forget(tx, INBOX_GRANTED, s->token);
    }
    return rc;
}

/* ---- looking --------------------------------------------------------------------- */

int64_t hf__local_recheck_ms(const struct queue_ahead *s, int64_t now)
{
    if (!s->first || s->earliest_at == LOOP_NEVER)
        return -1;
    return s->earliest_at <= now ? 1 : (s->earliest_at - now) / 1000 + 1;
}

struct attend {
    const struct ticket *t;
    struct key key;
    struct queue_ahead ahead;
    int64_t now;
    bool waits;
};

static int look_again(struct tx *tx, void *arg)
{
    struct attend *a = arg;
    const struct ticket *t = a->t;
    const struct local_holder *h;
    struct local_waiter w;
    struct local_line *l;
    int rc;

    a->waits = false;
    a->now = tx->now;
    if ((rc = hf__local_line_load(tx, &a->key, &l)) < 0 ||
        (rc = hf__local_line_step(tx, &a->key, l)) < 0)
        return rc;
    if ((h = hf__local_line_find(l, t->token)) != NULL) {
        /* The step has told it, or its entry is on the way: both are harmless twice. */
        if ((rc = hf__local_inbox_forget(tx, INBOX_GRANTED, t->token)) < 0 ||
            (rc = hf__local_note(tx, INBOX_GRANTED, t->token, h->f.fence,
                                 h->f.expires_at)) < 0)
            return rc;
    } else if (t->drv[1] == 0 ||
               (rc = hf__local_queue_get(tx, t->drv[0], t->drv[1] - 1, &w)) != 0) {
        if (rc < 0)
            return rc;
    } else {
        a->waits = true;
        if ((rc = hf__local_queue_ahead(tx, l, &w, &a->ahead)) < 0)
            return rc;
    }
    return tx->dirty ? hf__local_line_save(tx, &a->key, l) : TX_READ;
}

/* It, if it waits; NULL: it has left, or was granted. */
static struct ticket *waiting(struct local *ls, const unsigned char *token)
{
    struct ticket *t = hf__local_ticket_find(ls, token);

    return t && t->life && t->life->kind == LIFE_WAIT ? t : NULL;
}

static int run_attend(struct local *ls, void *of)
{
    struct attend a;
    unsigned char token[HF_TOKEN];
    struct ticket *t;
    uint64_t corpse = 0;
    int rc = 0;

    memcpy(token, ((struct ticket *)of)->token, sizeof token);
    do {
        if ((t = waiting(ls, token)) == NULL)
            return 0;
        a.t = t;
        hf__local_key_name(&a.key, TABLE_LINE, ls->ns, t->name, t->name_len);
        if ((rc = hf__local_tx_run(ls, look_again, &a, false, NULL)) < 0)
            break;
        corpse = a.waits ? post_ticket(ls, t) : 0;
        hf__local_deliver(ls);
        if (corpse != 0)
            rc = hf__local_remove_dead(ls, corpse);
    } while (corpse != 0 && rc == 0);
    if ((t = waiting(ls, token)) == NULL)
        return 0;
    if (rc == HF_EBUSYSTORE)
        return rc;
    if (rc == 0 && a.waits) /* else the safety look comes later */
        ev_waiting(t, a.ahead.position, hf__local_recheck_ms(&a.ahead, a.now));
    return 0;
}

static const struct verb attend_verb = { .run = run_attend, .of_ticket = true };

void hf__local_attend(struct local *ls, const unsigned char *token)
{
    struct ticket *t = waiting(ls, token);

    if (t)
        run_verb(ls, &attend_verb, t);
}
