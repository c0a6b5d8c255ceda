/* renew.c: proving that we live, and the safety look.
 *
 * Held tickets are renewed in batches, one entry for up to 256 of them: a hold that is
 * there and has not expired gets `now + ttl`, a marked one is not renewed (HF_EBUSY), one
 * that is gone or has expired is lost; it is never revived, because another may have been
 * told that the place is free (G1). A waiting life is renewed in an entry of its own,
 * which also reads our inbox (whatever byte was lost, the grant is found here: G4), steps
 * the line (a dead or expired holder is dropped by whoever looks first) and sees whom to
 * watch.
 *
 * First of all the folder: if its path no longer leads to the files that we have open,
 * newcomers meet elsewhere and every hold of ours is lost.
 *
 * If the gate is closed nothing is answered. Those that were asked for are marked late, and
 * renewed as soon as the gate opens (deferred.c): the core would repeat them only after an
 * eighth of the ttl. Marks, not pointers, because tickets leave meanwhile, and a place that
 * is given up must not be renewed: its end would come later than the core has reckoned.
 */
#include "driver/local/local.h"

#include <stdlib.h>
#include <string.h>

struct batch {
    struct local *ls;
    struct life *lives[LIVES_PER_ENTRY];
    int results[LIVES_PER_ENTRY];
    size_t n, from, to;
    int64_t now;
    bool shut; /* some were marked late */
};

/* life.drv[0] of a life of one ticket is 1 while it is late. */
static void mark_late(struct life *l, bool late)
{
    if (l->kind == LIFE_WAIT)
        wait_of(l)->late = late;
    else
        l->drv[0] = late;
}

static struct ticket *first_on(const struct life *l)
{
    struct list *n = list_first(&l->tickets);

    return n ? container_of(n, struct ticket, on_life) : NULL;
}

static int renew_own(struct tx *tx, const struct life *life, int *result)
{
    const struct ticket *t = first_on(life);
    int64_t expires_at = tx->now + life->ttl_ms * 1000;
    struct local_holder *h;
    struct local_line *l;
    struct key k;
    int rc;

    *result = HF_ELOST;
    if (!t)
        return 0;
    hf__local_key_name(&k, TABLE_LINE, tx->ls->ns, t->name, t->name_len);
    if ((rc = hf__local_line_load(tx, &k, &l)) < 0)
        return rc;
    h = hf__local_line_find(l, t->token);
    if (!h || h->f.process == 0 || h->f.expires_at <= tx->now)
        return 0; /* 0: it was made a kept one (look.orphan) */
    *result = HF_EBUSY;
    if (h->f.flags & HOLDER_BROKEN)
        return 0;
    *result = 0;
    /* A shorter ttl: a client that waits for the old expiry must be told. */
    if (expires_at < h->f.expires_at && (rc = hf__local_head_look(tx, l)) < 0)
        return rc;
    h->f.expires_at = expires_at;
    return hf__local_line_save(tx, &k, l);
}

static int renew_batch(struct tx *tx, void *arg)
{
    struct batch *b = arg;

    b->now = tx->now;
    for (size_t i = b->from; i < b->to; i++) {
        int rc = renew_own(tx, b->lives[i], &b->results[i]);

        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Lives `from` to `to`. In a full store there may be pages for a few but not for all. */
static void send_part(struct batch *b, size_t from, size_t to)
{
    int rc;

    b->from = from;
    b->to = to;
    rc = hf__local_tx_run(b->ls, renew_batch, b, false, NULL);
    if (rc == HF_EFULL && to - from > 1) {
        send_part(b, from, from + (to - from) / 2);
        send_part(b, from + (to - from) / 2, to);
    }
    for (size_t i = from; i < to && rc == HF_EBUSYSTORE; i++)
        mark_late(b->lives[i], b->shut = true);
    if (rc < 0)
        return;
    hf__local_deliver(b->ls);
    for (size_t i = from; i < to; i++)
        if (b->results[i] == 0)
            ev_alive(b->lives[i], b->now, b->lives[i]->ttl_ms);
        else if (b->results[i] == HF_EBUSY && life_ticket(b->lives[i]))
            ev_marked(life_ticket(b->lives[i]));
        else
            ev_dead(b->lives[i]);
}

static void send_batch(struct batch *b)
{
    if (b->n > 0)
        send_part(b, 0, b->n);
    b->n = 0;
}

/* ---- waiting lives --------------------------------------------------------------- */

struct look_life {
    struct life *life;
    struct key key;
    bool dead, waits;
    unsigned char token[HF_TOKEN]; /* of the ticket that looks */
    struct queue_ahead ahead;
    int64_t now;
};

/* The life has expired: whoever of it still stands in the queue leaves it. */
static int end_waiting(struct tx *tx, struct look_life *k, struct local_line *l)
{
    int rc = 0;

    list_for(n, &k->life->tickets) {
        const struct ticket *t = container_of(n, struct ticket, on_life);
        const struct local_holder *h = hf__local_line_find(l, t->token);
        struct local_waiter w;

        if (h) {
            rc = hf__local_note(tx, INBOX_GRANTED, t->token, h->f.fence, h->f.expires_at);
        } else {
            rc = hf__local_queue_get(tx, t->drv[0], t->drv[1] - 1, &w);
            if (rc == 0 && l->f.id == t->drv[0])
                rc = hf__local_queue_remove(tx, l, w.seq);
            if (rc >= 0)
                rc = hf__local_note(tx, INBOX_EXPIRED, t->token, 0, 0);
        }
        if (rc < 0)
            return rc;
    }
    k->dead = true;
    if ((rc = hf__local_line_step(tx, &k->key, l)) < 0)
        return rc;
    return hf__local_line_save(tx, &k->key, l);
}

/* The first of its tickets that still waits looks for all. */
static int look_ahead(struct tx *tx, struct look_life *k, struct local_line *l)
{
    list_for(n, &k->life->tickets) {
        const struct ticket *t = container_of(n, struct ticket, on_life);
        struct local_waiter w;
        int rc;

        if (hf__local_line_find(l, t->token))
            continue; /* granted just now, or its entry has just been read */
        if ((rc = hf__local_queue_get(tx, t->drv[0], t->drv[1] - 1, &w)) < 0)
            return rc;
        if (rc == DB_NONE) {
            if ((rc = hf__local_note(tx, INBOX_EXPIRED, t->token, 0, 0)) < 0)
                return rc;
            continue;
        }
        k->waits = true;
        memcpy(k->token, t->token, sizeof k->token);
        return hf__local_queue_ahead(tx, l, &w, &k->ahead);
    }
    return 0;
}

static int look_life(struct tx *tx, void *arg)
{
    struct look_life *k = arg;
    struct life_fix fix;
    struct local_line *l;
    int rc;

    k->dead = k->waits = false;
    k->now = tx->now;
    if ((rc = hf__local_inbox_read(tx)) < 0 ||
        (rc = hf__local_line_load(tx, &k->key, &l)) < 0)
        return rc;
    if ((rc = hf__local_life_get(tx, tx->sh->process, k->life->drv[0], &fix)) < 0)
        return rc;
    if (rc == DB_NONE || fix.expires_at <= tx->now)
        return end_waiting(tx, k, l);
    if ((rc = hf__local_life_put(tx, k->life->drv[0], k->life->ttl_ms)) < 0 ||
        (rc = hf__local_line_step(tx, &k->key, l)) < 0 || (rc = look_ahead(tx, k, l)) < 0)
        return rc;
    return hf__local_line_save(tx, &k->key, l);
}

static int renew_waiting(struct local *ls, struct life *life)
{
    struct look_life k = { .life = life };
    struct ticket *t = first_on(life);
    uint64_t corpse = 0;
    int rc;

    if (!t)
        return 0;
    hf__local_key_name(&k.key, TABLE_LINE, ls->ns, t->name, t->name_len);
    if ((rc = hf__local_tx_run(ls, look_life, &k, false, NULL)) < 0)
        return rc;
    if (!k.dead)
        ev_alive(life, k.now, life->ttl_ms);
    t = k.waits ? hf__local_ticket_find(ls, k.token) : NULL;
    if (t)
        corpse = post_ticket(ls, t);
    hf__local_deliver(ls);
    if ((t = hf__local_ticket_find(ls, k.token)) != NULL && k.waits && t->life == life)
        ev_waiting(t, k.ahead.position, hf__local_recheck_ms(&k.ahead, k.now));
    if (corpse != 0)
        hf__local_attend(ls, k.token);
    return 0;
}

/* ---- the verb -------------------------------------------------------------------- */

static void all_lost(struct local *ls, struct life *const *lives, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (lives[i]->kind == LIFE_WAIT)
            hf__local_wait_unindex(ls, wait_of(lives[i]));
        ev_dead(lives[i]);
    }
}

/* A grant found with one life may empty another of the batch. */
static void pin(struct local *ls, struct life *const *lives, size_t n, bool on)
{
    for (size_t i = 0; i < n; i++) {
        if (lives[i]->kind != LIFE_WAIT)
            continue;
        if (on) {
            wait_of(lives[i])->pins++;
        } else {
            wait_of(lives[i])->pins--;
            hf__local_wait_drop(ls, lives[i]);
        }
    }
}

static int renew(struct local *ls, struct life *const *lives, size_t n)
{
    struct batch b = { .ls = ls };

    if (!hf__local_folder_same(ls->sh)) {
        all_lost(ls, lives, n);
        return 0;
    }
    pin(ls, lives, n, true);
    for (size_t i = 0; i < n; i++) {
        if (lives[i]->kind == LIFE_WAIT) {
            if (renew_waiting(ls, lives[i]) == HF_EBUSYSTORE)
                mark_late(lives[i], b.shut = true);
            continue;
        }
        b.lives[b.n++] = lives[i];
        if (b.n == LIVES_PER_ENTRY)
            send_batch(&b);
    }
    send_batch(&b);
    pin(ls, lives, n, false);
    return b.shut ? HF_EBUSYSTORE : 0;
}

/* Those that are late, and are so no more. One that is dead was given up by the core in
 * this very turn: its leave comes next. */
static size_t take_late(struct local *ls, struct life **lives)
{
    size_t n = 0;

    for (size_t i = 0; i <= ls->tickets.mask; i++)
        for (struct map_node *m = ls->tickets.slots[i]; m; m = m->next) {
            struct ticket *t = container_of(m, struct ticket, drv_node);

            if (t->life == t->own && t->own->drv[0] && !t->own->dead)
                lives[n++] = t->own;
        }
    list_for(w, &ls->all_waits)
        if (container_of(w, struct wait, all)->late)
            lives[n++] = container_of(w, struct wait, all)->life;
    for (size_t i = 0; i < n; i++)
        mark_late(lives[i], false);
    return n;
}

static int renew_late(struct local *ls, void *of)
{
    size_t room = ls->tickets.count;
    struct life **lives;
    int rc = 0;

    (void)of;
    list_for(w, &ls->all_waits)
        room++;
    lives = malloc(room * sizeof(struct life *) + 1);
    if (lives) /* else the core repeats them */
        rc = renew(ls, lives, take_late(ls, lives));
    free(lives);
    return rc;
}

static const struct verb late_verb = { .run = renew_late };

void hf__local_renew(struct store *store, struct life *const *lives, size_t n)
{
    struct local *ls = local_of(store);

    if (!atomic_load(&ls->sh->forked) && renew(ls, lives, n) == HF_EBUSYSTORE)
        hf__local_defer(ls, &late_verb, &ls->waits);
}
