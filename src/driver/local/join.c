/* join.c: taking a place, and giving it up.
 *
 * The uncontended join is one look-up and one insertion, the uncontended leave one
 * look-up and one deletion, in the calling thread, without a system call. A kill before
 * the commit leaves nothing of a join (G7) and all of a hold; a kill after it leaves a
 * ticket whose process is dead. SIGSTOP inside makes the others wait, in deferred.c, until
 * their time limit. A full disk refuses the join with nothing changed, and does not refuse
 * the leave (db.c keeps pages for it).
 *
 * Twice: a join finds its token among the holders or in the queue and answers its present
 * place (rule 2); a leave that finds nothing has succeeded. Tokens are random and never
 * used again, so neither can touch another's ticket (G8).
 *
 * A try that finds no room first asks whether those in its way are dead: right after kill
 * -9 of the holder it must succeed. It asks outside the gate, removes the dead, and tries
 * once more.
 *
 * Upholds G1, G2, G3 (the end of the queue, unless barging), G7, G8.
 */
#include "driver/local/local.h"
#include "kit/opening.h"

#include "util/text.h"

#include <stdio.h>
#include <string.h>

enum { BURIALS = 8 }; /* of one try; dead ones may stand behind each other */
enum { LEAVE_MS = 100 };
enum outcome { GRANTED, WAITING, BUSY, MISMATCH };

struct join {
    struct ticket *t;
    struct key key;
    enum outcome outcome;
    uint64_t fence;
    int64_t now, expires_at;
    struct wait *wait;  /* the life it hangs on */
    struct wait *spare; /* a new one, if the old one will not do */
    uint64_t life;      /* the number of the wait's record */
    uint64_t line, seq;
    struct queue_ahead ahead;
    char text[200];        /* BUSY: which holder is in the way */
    enum line_kind in_use; /* MISMATCH: as what, with which capacity */
    int64_t capacity;
};

/* ---- inside the gate ------------------------------------------------------------- */

static bool fits(const struct local_line *l, const struct ticket *t)
{
    return t->weight <= l->f.capacity - l->sum;
}

static bool in_use(const struct local_line *l)
{
    return l->f.nholders > 0 || l->f.waiters > 0;
}

static bool of_kind(const struct local_line *l, const struct ticket *t)
{
    return l->f.kind == t->kind && l->f.capacity == t->capacity;
}

static int no_memory(struct tx *tx)
{
    return hf__fail(tx->err, HF_ENOMEM, 0, tx->sh->path, "no memory");
}

static int hold_now(struct tx *tx, struct join *j, struct local_line *l)
{
    const struct ticket *t = j->t;
    struct local_holder h = { .f = { .process = tx->sh->process,
                                     .member = tx->ls->member,
                                     .weight = t->weight,
                                     .expires_at = tx->now + t->ttl_ms * 1000,
                                     .joined_at = tx->now,
                                     .granted_at = tx->now,
                                     .owner = t->owner,
                                     .pid = tx->sh->pid,
                                     .note_len = (uint16_t)strlen(t->note) },
                              .note = t->note };
    int rc;

    memcpy(h.f.token, t->token, sizeof h.f.token);
    if ((h.f.fence = hf__local_line_fence(tx, &j->key)) == 0)
        return hf__fail(tx->err, HF_EDAMAGED, 0, tx->sh->path,
                        "a damaged fence; stop its users and remove the folder");
    if ((rc = hf__local_line_add(l, &h)) < 0)
        return no_memory(tx);
    j->outcome = GRANTED;
    j->fence = h.f.fence;
    j->expires_at = h.f.expires_at;
    /* The ticket that we passed must watch us now. */
    if ((rc = hf__local_head_look(tx, l)) < 0)
        return rc;
    return hf__local_line_save(tx, &j->key, l);
}

/* Chooses the life it will hang on, and renews that: it is our own request. */
static int pick_life(struct tx *tx, struct join *j)
{
    struct life_fix fix;
    int rc;

    j->wait = hf__local_wait_find(tx->ls, &j->key, j->t->ttl_ms);
    if (j->wait) {
        j->life = j->wait->life->drv[0];
        rc = hf__local_life_get(tx, tx->sh->process, j->life, &fix);
        if (rc < 0)
            return rc;
        if (rc == DB_NONE || fix.expires_at <= tx->now)
            j->wait = NULL;
    }
    if (!j->wait) {
        if (!j->spare && (j->spare = hf__local_wait_new(tx->ls, j->t->ttl_ms)) == NULL)
            return no_memory(tx);
        j->wait = j->spare;
        j->life = ++tx->sh->next_life;
    }
    return hf__local_life_put(tx, j->life, j->t->ttl_ms);
}

static int queue_up(struct tx *tx, struct join *j, struct local_line *l)
{
    const struct ticket *t = j->t;
    struct local_waiter w = { .f = { .format = RECORD_FORMAT,
                                     .flags = t->barge ? WAITER_BARGE : 0,
                                     .note_len = (uint16_t)strlen(t->note),
                                     .hints_len = (uint16_t)t->hints_len,
                                     .pid = tx->sh->pid,
                                     .process = tx->sh->process,
                                     .member = tx->ls->member,
                                     .weight = t->weight,
                                     .joined_at = tx->now,
                                     .owner = t->owner },
                              .note = t->note,
                              .hints = t->hints };
    int rc = pick_life(tx, j);

    if (rc < 0)
        return rc;
    if (l->f.id == 0)
        l->f.id = tx->sh->gate->next_line++;
    memcpy(w.f.token, t->token, sizeof w.f.token);
    w.f.life = j->life;
    w.seq = l->f.next_seq++;
    j->outcome = WAITING;
    j->line = l->f.id;
    j->seq = w.seq;
    if ((rc = hf__local_queue_join(tx, l, &w, &j->ahead)) < 0)
        return rc;
    return hf__local_line_save(tx, &j->key, l);
}

static void describe(struct join *j, const struct local_line *l, int64_t now)
{
    char note[64] = "";

    j->in_use = (enum line_kind)l->f.kind;
    j->capacity = l->f.capacity;
    if (l->f.nholders > 0) {
        const struct local_holder *h = &l->holders[0];

        hf__escape(note, sizeof note, h->note, h->f.note_len);
        snprintf(j->text, sizeof j->text, "held by process %u for %lld s%s%s%s", h->f.pid,
                 (long long)(now - h->f.granted_at) / 1000000, note[0] ? " (" : "", note,
                 note[0] ? ")" : "");
    } else
        snprintf(j->text, sizeof j->text, "others are waiting");
}

/* No, for now. What the step has put right meanwhile is worth keeping. */
static int refuse(struct tx *tx, struct join *j, struct local_line *l, bool changed)
{
    struct local_waiter head;
    int rc = 0;

    describe(j, l, tx->now);
    if (l->f.waiters > 0 && (rc = hf__local_queue_first(tx, l, &head)) == 0)
        rc = hf__local_seen_add(tx, head.f.process);
    for (size_t i = 0; i < l->f.nholders && i < SEEN_IN_TRY && rc == 0; i++)
        rc = hf__local_seen_add(tx, l->holders[i].f.process);
    if (rc < 0)
        return rc;
    return changed || tx->dirty ? hf__local_line_save(tx, &j->key, l) : TX_READ;
}

/* 1: in line already */
static int already(struct tx *tx, struct join *j, struct local_line *l)
{
    const struct local_holder *h = hf__local_line_find(l, j->t->token);
    struct local_waiter w;
    int rc;

    if (h) {
        j->outcome = GRANTED;
        j->fence = h->f.fence;
        j->expires_at = h->f.expires_at;
        return 1;
    }
    if (j->t->drv[1] == 0)
        return 0;
    if ((rc = hf__local_queue_get(tx, j->t->drv[0], j->t->drv[1] - 1, &w)) != 0)
        return rc < 0 ? rc : 0;
    j->outcome = WAITING;
    j->wait = NULL;
    rc = hf__local_queue_ahead(tx, l, &w, &j->ahead);
    return rc < 0 ? rc : 1;
}

/* Once a second: is this still the folder that others find? */
static int check_folder(const struct tx *tx)
{
    struct shared *sh = tx->sh;

    if (tx->now - atomic_load_explicit(&sh->checked_at, memory_order_relaxed) < 1000000)
        return 0;
    if (!hf__local_folder_same(sh))
        return hf__fail(tx->err, HF_EDAMAGED, 0, sh->path,
                        "the folder was removed or replaced while it was open");
    atomic_store(&sh->checked_at, tx->now);
    return 0;
}

static int join(struct tx *tx, void *arg)
{
    struct join *j = arg;
    const struct ticket *t = j->t;
    uint32_t holders;
    uint64_t waiters;
    struct local_line *l;
    int rc;

    j->now = tx->now;
    if ((rc = check_folder(tx)) < 0 || (rc = hf__local_line_load(tx, &j->key, &l)) < 0)
        return rc;
    holders = l->f.nholders;
    waiters = l->f.waiters;
    if (in_use(l) && (rc = already(tx, j, l)) != 0)
        return rc < 0 ? rc : tx->dirty ? hf__local_line_save(tx, &j->key, l) : TX_READ;
    if (in_use(l) && (waiters > 0 || !of_kind(l, t) || !fits(l, t)) &&
        ((rc = hf__local_line_clean(tx, l)) < 0 ||
         (rc = hf__local_line_step(tx, &j->key, l)) < 0))
        return rc;
    if (!in_use(l)) {
        l->f.kind = (uint8_t)t->kind;
        l->f.capacity = t->capacity;
    }
    j->outcome = of_kind(l, t) ? BUSY : MISMATCH;
    if (of_kind(l, t) && fits(l, t) && (l->f.waiters == 0 || t->barge))
        return hold_now(tx, j, l);
    if (j->outcome == MISMATCH || t->try_only)
        return refuse(tx, j, l, holders != l->f.nholders || waiters != l->f.waiters);
    return queue_up(tx, j, l);
}

/* ---- outside --------------------------------------------------------------------- */

int hf__local_prepare(struct local *ls, hf_error *err)
{
    int rc = ls->wakefd >= 0 ? 0 : hf__local_process_register(ls, err);

    return rc < 0 ? rc : hf__local_wake_open(ls, err);
}

static bool no_room(const struct join *j)
{
    return j->outcome == BUSY || j->outcome == MISMATCH;
}

static void gone(struct local *ls, struct ticket *t, int why, const hf_error *err)
{
    hf__local_ticket_out(ls, t);
    ev_gone(t, why, -1, err);
}

static void now_waits(struct local *ls, struct join *j)
{
    struct ticket *t = j->t;
    unsigned char token[HF_TOKEN];
    uint64_t corpse;

    memcpy(token, t->token, sizeof token);
    if (j->wait) { /* else it was in line already */
        struct life *l = j->wait->life;

        if (j->wait == j->spare) {
            l->drv[0] = j->life;
            j->spare = NULL;
        }
        hf__hang(t, l);
        hf__local_wait_index(ls, j->wait, &j->key);
        t->drv[0] = j->line;
        t->drv[1] = j->seq + 1;
        ev_alive(l, j->now, t->ttl_ms);
    }
    corpse = post_ticket(ls, t);
    hf__local_deliver(ls);
    ev_waiting(t, j->ahead.position, hf__local_recheck_ms(&j->ahead, j->now));
    if (corpse != 0)
        hf__local_attend(ls, token); /* which removes it if it is dead */
}

static void answer(struct local *ls, struct join *j, hf_error *err)
{
    struct ticket *t = j->t;

    switch (j->outcome) {
    case GRANTED:
        hf__local_ticket_granted(ls, t, j->fence, j->expires_at);
        hf__local_deliver(ls);
        break;
    case WAITING:
        now_waits(ls, j);
        break;
    case BUSY:
        hf__local_deliver(ls);
        hf__fail(err, HF_EBUSY, 0, ls->sh->path, "%s", j->text);
        gone(ls, t, HF_EBUSY, err);
        break;
    case MISMATCH:
        hf__local_deliver(ls);
        hf__mismatch(err, ls->sh->path, t->name, j->in_use, j->capacity);
        gone(ls, t, HF_EMISMATCH, err);
        break;
    }
}

static int try_join(struct local *ls, struct join *j, hf_error *err)
{
    int rc = ls->wakefd < 0 ? hf__local_prepare(ls, err) : 0;

    if (rc == 0)
        rc = hf__local_tx_run(ls, join, j, true, err);
    for (int n = 0; n < BURIALS && rc == 0 && no_room(j) && ls->nnotes + ls->npokes == 0;
         n++) {
        if (!hf__local_remove_dead_seen(ls))
            break;
        rc = hf__local_tx_run(ls, join, j, true, err);
    }
    return rc;
}

static int run_join(struct local *ls, void *of)
{
    struct join j;
    hf_error err;
    int rc;

    j.t = of;
    j.spare = NULL;
    hf__local_key_name(&j.key, TABLE_LINE, ls->ns, j.t->name, j.t->name_len);
    rc = try_join(ls, &j, &err);
    if (rc == 0) {
        hf__local_ticket_in(ls, j.t);
        answer(ls, &j, &err);
        if (j.outcome == WAITING)
            hf__local_wake_rest(ls);
    } else if (rc == HF_EFORKED)
        ev_gone(j.t, rc, -1, &err);
    else if (rc != HF_EBUSYSTORE)
        gone(ls, j.t, rc, &err);
    hf__local_wait_free(ls, j.spare);
    return rc == HF_EBUSYSTORE ? rc : 0;
}

static void fail_join(struct local *ls, void *of, int rc, const hf_error *err)
{
    gone(ls, of, rc, err);
}

static const struct verb join_verb = {
    .run = run_join, .fail = fail_join, .limit_ms = hf__local_gate_limit, .of_ticket = true
};

void hf__local_join(struct store *store, struct ticket *t)
{
    run_verb(local_of(store), &join_verb, t);
}

/* ---- leave ----------------------------------------------------------------------- */

struct leave {
    struct ticket *t;
    struct key key;
};

static int take_out(struct tx *tx, struct local_line *l, struct ticket *t)
{
    struct local_holder *h = hf__local_line_find(l, t->token);
    struct local_waiter w;
    int rc;

    if (h && t->keep_ms > 0)
        return hf__local_line_keep(tx, l, h, t->keep_ms);
    if (h) {
        hf__local_line_drop(l, (size_t)(h - l->holders));
        return 0;
    }
    if (t->drv[1] == 0 || l->f.id != t->drv[0])
        return DB_NONE;
    if ((rc = hf__local_queue_get(tx, t->drv[0], t->drv[1] - 1, &w)) != 0)
        return rc;
    return hf__local_queue_remove(tx, l, w.seq);
}

static int leave(struct tx *tx, void *arg)
{
    struct leave *v = arg;
    struct local_line *l;
    int rc;

    if ((rc = hf__local_line_load(tx, &v->key, &l)) < 0 || (rc = take_out(tx, l, v->t)) < 0)
        return rc;
    if (rc == DB_NONE)
        return TX_READ;
    if (v->t->drv[1] != 0 &&
        ((rc = hf__local_inbox_forget(tx, INBOX_GRANTED, v->t->token)) < 0 ||
         (rc = hf__local_inbox_forget(tx, INBOX_LOOK, v->t->token)) < 0))
        return rc;
    if ((rc = hf__local_line_step(tx, &v->key, l)) < 0)
        return rc;
    return hf__local_line_save(tx, &v->key, l);
}

/* Before a blocked gate it waits no longer than the ticket lives: then the line goes on
 * without it. */
static int64_t leave_limit(const struct local *ls, const void *of)
{
    const struct life *l = ((const struct ticket *)of)->life;
    int64_t rest;

    if (!l || l->sent_at == 0)
        return ls->gate_ms;
    rest = (l->sent_at - ls->store.env->now(ls->store.env)) / 1000 + l->given_ms;
    if (rest < LEAVE_MS)
        rest = LEAVE_MS;
    return rest < ls->gate_ms ? rest : ls->gate_ms;
}

/* It may be repeated, or given up without another word: we keep no pointer to it, and it
 * keeps what finds its place. */
static void fail_leave(struct local *ls, void *of, int rc, const hf_error *err)
{
    struct ticket *t = of;
    uint64_t line = t->drv[0], seq = t->drv[1];

    (void)rc;
    (void)err;
    hf__local_ticket_out(ls, t);
    t->drv[0] = line;
    t->drv[1] = seq;
    ev_left(t, HF_EUNKNOWN);
}

static int run_leave(struct local *ls, void *of)
{
    struct leave v;
    int rc;

    v.t = of;
    hf__local_key_name(&v.key, TABLE_LINE, ls->ns, v.t->name, v.t->name_len);
    rc = hf__local_tx_run(ls, leave, &v, false, NULL);
    if (rc == HF_EBUSYSTORE)
        return rc;
    if (rc == 0) {
        hf__local_poke(ls);
        hf__local_ticket_out(ls, v.t);
        hf__local_deliver(ls);
        ev_left(v.t, 0);
    } else if (rc == HF_EFORKED)
        ev_left(v.t, HF_EUNKNOWN);
    else
        fail_leave(ls, v.t, rc, NULL);
    return 0;
}

static const struct verb leave_verb = {
    .run = run_leave, .fail = fail_leave, .limit_ms = leave_limit, .of_ticket = true
};

void hf__local_leave(struct store *store, struct ticket *t)
{
    struct local *ls = local_of(store);
    bool waits = hf__local_defer_has(t, &join_verb); /* for the gate */

    hf__local_defer_drop_ticket(t);
    t->own->drv[0] = 0; /* nor is it to be renewed: see renew.c */
    if (waits && t->drv[1] == 0 && hf__local_ticket_find(ls, t->token) != t)
        ev_left(t, 0); /* that join never ran, and no other has */
    else
        run_verb(ls, &leave_verb, t);
}
