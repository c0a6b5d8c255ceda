/* renew.c: proving that we live, and the safety look.
 *
 * Held tickets are renewed in batches, one entry for up to 256 of them: a hold that is
 * there and has not expired gets `now + ttl`, a marked one is not renewed (HF_EBUSY), one
 * that is gone or has expired is lost; it is never revived, because another may have been
 * told that the place is free (G1). A waiting life is renewed in an entry of its own,
 * which also reads our mail (whatever byte was lost, the grant is found here: G4), steps
 * the line (a dead or expired holder is dropped by whoever looks first) and sees whom to
 * watch.
 *
 * First of all the folder: if its path no longer leads to the files that we have open,
 * newcomers meet elsewhere and every hold of ours is lost.
 *
 * If the gate is blocked nothing is answered; the core repeats. The wait for the gate is
 * a part of the shortest ttl, so that the deadline can still be told in time (G6).
 */
#include "driver/local/local.h"

#include <string.h>

struct batch {
    struct local *ls;
    struct life *lives[LIVES_PER_ENTRY];
    int results[LIVES_PER_ENTRY];
    size_t n, from, to;
    int64_t now;
};

static struct ticket *first_on(const struct life *l)
{
    struct list *n = list_first(&l->tickets);

    return n ? container_of(n, struct ticket, on_life) : NULL;
}

static int renew_own(struct tx *tx, const struct life *life, int *result)
{
    const struct ticket *t = first_on(life);
    struct holder *h;
    struct line *l;
    struct key k;
    int rc;

    *result = HF_ELOST;
    if (!t)
        return 0;
    hf__key_name(&k, TABLE_LINE, tx->ls->ns, t->name, t->name_len);
    if ((rc = hf__line_load(tx, &k, &l)) < 0)
        return rc;
    h = hf__line_find(l, t->token);
    if (!h || h->f.expires_at <= tx->now)
        return 0;
    *result = HF_EBUSY;
    if (h->f.flags & HOLDER_BROKEN)
        return 0;
    *result = 0;
    h->f.expires_at = tx->now + life->ttl_ms * 1000;
    return hf__line_save(tx, &k, l);
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
static void send_part(struct batch *b, size_t from, size_t to, int64_t limit_ms)
{
    int rc;

    b->from = from;
    b->to = to;
    rc = hf__tx_run(b->ls, renew_batch, b, false, limit_ms, NULL);
    if (rc == HF_EFULL && to - from > 1) {
        send_part(b, from, from + (to - from) / 2, limit_ms);
        send_part(b, from + (to - from) / 2, to, limit_ms);
    }
    if (rc < 0)
        return;
    hf__deliver(b->ls);
    for (size_t i = from; i < to; i++)
        if (b->results[i] == 0)
            ev_alive(b->lives[i], b->now, b->lives[i]->ttl_ms);
        else if (b->results[i] == HF_EBUSY)
            ev_marked(container_of(b->lives[i], struct ticket, own));
        else
            ev_dead(b->lives[i]);
}

static void send_batch(struct batch *b, int64_t limit_ms)
{
    if (b->n > 0)
        send_part(b, 0, b->n, limit_ms);
    b->n = 0;
}

/* ---- waiting lives ----------------------------------------------------------------- */

struct look_life {
    struct life *life;
    struct key key;
    bool dead, waits;
    unsigned char token[HF_TOKEN]; /* of the ticket that looks */
    struct sight sight;
    int64_t now;
};

/* The life has expired: whoever of it still stands in the queue leaves it. */
static int end_waiting(struct tx *tx, struct look_life *k, struct line *l)
{
    int rc = 0;

    list_for (n, &k->life->tickets) {
        const struct ticket *t = container_of(n, struct ticket, on_life);
        const struct holder *h = hf__line_find(l, t->token);
        struct waiter w;

        if (h) {
            rc = hf__note(tx, MAIL_GRANTED, t->token, h->f.fence, h->f.expires_at);
        } else {
            rc = hf__queue_get(tx, t->drv[0], t->drv[1] - 1, &w);
            if (rc == 0 && l->f.id == t->drv[0])
                rc = hf__queue_remove(tx, l, w.seq);
            if (rc >= 0)
                rc = hf__note(tx, MAIL_EXPIRED, t->token, 0, 0);
        }
        if (rc < 0)
            return rc;
    }
    k->dead = true;
    if ((rc = hf__line_step(tx, &k->key, l)) < 0)
        return rc;
    return hf__line_save(tx, &k->key, l);
}

/* The first of its tickets that still waits looks for all. */
static int look_ahead(struct tx *tx, struct look_life *k, struct line *l)
{
    list_for (n, &k->life->tickets) {
        const struct ticket *t = container_of(n, struct ticket, on_life);
        struct waiter w;
        int rc;

        if (hf__line_find(l, t->token))
            continue; /* granted just now, or its mail has just been read */
        if ((rc = hf__queue_get(tx, t->drv[0], t->drv[1] - 1, &w)) < 0)
            return rc;
        if (rc == DB_NONE) {
            if ((rc = hf__note(tx, MAIL_EXPIRED, t->token, 0, 0)) < 0)
                return rc;
            continue;
        }
        k->waits = true;
        memcpy(k->token, t->token, sizeof k->token);
        return hf__sight_take(tx, l, &w, &k->sight);
    }
    return 0;
}

static int look_life(struct tx *tx, void *arg)
{
    struct look_life *k = arg;
    struct life_fix fix;
    struct line *l;
    int rc;

    k->dead = k->waits = false;
    k->now = tx->now;
    if ((rc = hf__mail_read(tx)) < 0 || (rc = hf__line_load(tx, &k->key, &l)) < 0)
        return rc;
    if ((rc = hf__life_get(tx, tx->sh->process, k->life->drv[0], &fix)) < 0)
        return rc;
    if (rc == DB_NONE || fix.expires_at <= tx->now)
        return end_waiting(tx, k, l);
    if ((rc = hf__life_put(tx, k->life->drv[0], k->life->ttl_ms)) < 0 ||
        (rc = hf__line_step(tx, &k->key, l)) < 0 || (rc = look_ahead(tx, k, l)) < 0)
        return rc;
    return hf__line_save(tx, &k->key, l);
}

static void renew_waiting(struct local *ls, struct life *life, int64_t limit_ms)
{
    struct look_life k = { .life = life };
    struct ticket *t = first_on(life);
    uint64_t corpse = 0;

    if (!t)
        return;
    hf__key_name(&k.key, TABLE_LINE, ls->ns, t->name, t->name_len);
    if (hf__tx_run(ls, look_life, &k, false, limit_ms, NULL) < 0)
        return;
    if (!k.dead)
        ev_alive(life, k.now, life->ttl_ms);
    t = k.waits ? hf__ticket_find(ls, k.token) : NULL;
    if (t)
        corpse = post_ticket(ls, t);
    hf__deliver(ls);
    if (corpse != 0 && hf__bury(ls, corpse, limit_ms) == 0)
        hf__attend(ls, k.token);
    else if ((t = hf__ticket_find(ls, k.token)) != NULL && k.waits && t->life == life)
        ev_waiting(t, k.sight.position, hf__recheck_ms(&k.sight, k.now));
}

/* ---- the verb ---------------------------------------------------------------------- */

static int64_t limit_of(const struct local *ls, struct life *const *lives, size_t n)
{
    int64_t limit = ls->gate_ms;

    for (size_t i = 0; i < n; i++)
        if (lives[i]->ttl_ms / 8 < limit)
            limit = lives[i]->ttl_ms / 8;
    return limit < 1 ? 1 : limit;
}

static void all_lost(struct local *ls, struct life *const *lives, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (lives[i]->kind == LIFE_WAIT)
            hf__wait_unindex(ls, wait_of(lives[i]));
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
            hf__wait_drop(ls, lives[i]);
        }
    }
}

void hf__local_renew(struct store *store, struct life *const *lives, size_t n)
{
    struct local *ls = local_of(store);
    struct batch b = { .ls = ls };
    int64_t limit_ms = limit_of(ls, lives, n);

    if (atomic_load(&ls->sh->forked))
        return;
    if (!hf__folder_same(ls->sh)) {
        all_lost(ls, lives, n);
        return;
    }
    pin(ls, lives, n, true);
    for (size_t i = 0; i < n; i++) {
        if (lives[i]->kind == LIFE_WAIT) {
            renew_waiting(ls, lives[i], limit_ms);
            continue;
        }
        b.lives[b.n++] = lives[i];
        if (b.n == LIVES_PER_ENTRY)
            send_batch(&b, limit_ms);
    }
    send_batch(&b, limit_ms);
    pin(ls, lives, n, false);
}
