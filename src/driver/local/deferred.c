/* deferred.c: verbs that find the gate closed are put off and tried again by a timer.
 *
 * A verb runs under the client's lock, and whoever is inside the gate may be stopped there
 * for as long as it likes. So an entry waits for the gate for WAIT_MS at most. If it stays
 * closed, the client counts it as shut, the verb is queued here, and so is every verb that
 * comes behind it, without asking the gate. A timer asks again, waiting RETRY_MS, with
 * pauses that grow to PAUSE_MOST; when it gets in, the queue runs in its order until it is
 * empty or the gate is closed once more. What has waited for its limit is answered without
 * the store (HF_EBUSYSTORE, with the name of the process that is inside).
 *
 * States of a client:
 *   open   nothing is queued; an entry may wait WAIT_MS
 *   shut   the timer is set; an entry fails at once (HF_EBUSYSTORE)
 *   retry  inside the timer's call: open, but an entry waits RETRY_MS only
 *   open -> shut     an entry waited in vain
 *   shut -> retry    the timer
 *   retry -> shut    an entry waited in vain
 *   retry -> open    the queue is empty
 * So a call from outside waits in vain once, however many verbs it causes, and no thread
 * is held up by the client's lock for longer than that.
 *
 * Why it is right:
 *  - A verb that returns HF_EBUSYSTORE has told nothing and has nothing of `of` in the
 *    store that was not there before: a gate that is closed lets nobody change anything,
 *    and what a verb does before its last entry (registering the process, removing the
 *    dead) is right by itself. So it is run again from its beginning.
 *  - Order (G3). While anything is queued the client is shut, so no verb overtakes another:
 *    two joins of one client stand in line as they were called.
 *  - One entry for each ticket, look, cell. A leave takes the join, amendment or look of
 *    its own ticket off the queue first: a join that never ran has left nothing in the
 *    line, and the leave is answered at once (G7). Before a ticket is forgotten (ev_left,
 *    ev_gone) its entry goes; likewise with `stop`. So no entry outlives what it is about.
 *  - An entry is taken off before its verb runs, because an answer may free `of`, and is
 *    put back at the head if there was no answer.
 *  - What no caller waits for (looking for a waiter, the inbox, renewals, follows) is
 * queued too, without a limit: each is done once however often it was asked for.
 *  - The time of a renewal or join that was put off is that of the entry in which it was
 *    done (tx.now), never that of the call (G1).
 *
 * Goes wrong: no memory for an entry: answered with HF_ENOMEM where somebody waits (a
 * leave: not settled, the core repeats it), else left to the safety look. While nobody
 * drives the loop (HF_DRIVE_APP) nothing is tried again, as no timer of the client runs.
 *
 * Upholds G11: no hang, whoever is stopped where.
 */
#include "driver/local/local.h"

#include <stdlib.h>

enum { WAIT_MS = 5, RETRY_MS = 1, PAUSE_LEAST_MS = 1, PAUSE_MOST_MS = 20 };

struct deferred {
    struct list node; /* in local->deferred */
    const struct verb *verb;
    void *of;
    int64_t end_at; /* LOOP_NEVER: no limit */
};

static int64_t now_of(const struct local *ls)
{
    return ls->store.env->now(ls->store.env);
}

static void retry_at(struct local *ls, int64_t at)
{
    ls->retry_at = at;
    ls->store.env->timer(ls->store.env, &ls->retry, at);
}

static void plan(struct local *ls)
{
    int64_t at = now_of(ls) + ls->pause_ms * 1000;

    retry_at(ls, at < ls->end_at ? at : ls->end_at);
}

static void now_shut(struct local *ls)
{
    if (ls->shut)
        return;
    ls->shut = true;
    plan(ls);
}

int hf__local_enter(struct local *ls, hf_error *err)
{
    int rc = ls->shut ? HF_EBUSYSTORE : hf__local_gate_try(ls->sh, ls->wait_ms, err);

    if (rc == HF_EBUSYSTORE)
        now_shut(ls);
    return rc;
}

int64_t hf__local_gate_limit(const struct local *ls, const void *of)
{
    (void)of;
    return ls->gate_ms;
}

/* ---- entries --------------------------------------------------------------------- */

static struct deferred *of_ticket(const struct ticket *t)
{
    return (struct deferred *)(uintptr_t)t->drv[2];
}

static struct deferred *find(const struct local *ls, const struct verb *v, const void *of)
{
    if (v->of_ticket)
        return of_ticket(of);
    list_for(n, &ls->deferred) {
        struct deferred *d = container_of(n, struct deferred, node);

        if (d->of == of)
            return d;
    }
    return NULL;
}

static void link_ticket(const struct deferred *d, const struct deferred *to)
{
    if (d->verb->of_ticket)
        ((struct ticket *)d->of)->drv[2] = (uint64_t)(uintptr_t)to;
}

static void take_off(struct deferred *d)
{
    list_remove(&d->node);
    link_ticket(d, NULL);
}

static void drop(struct deferred *d)
{
    take_off(d);
    if (d->verb->drop)
        d->verb->drop(d->of);
    free(d);
}

static void no_memory(struct local *ls, const struct verb *v, void *of)
{
    hf_error err;
    int rc = hf__fail(&err, HF_ENOMEM, 0, ls->sh->path, "no memory");

    if (v->fail)
        v->fail(ls, of, rc, &err);
    else if (v->drop)
        v->drop(of);
}

static struct deferred *add(struct local *ls, const struct verb *v, void *of)
{
    struct deferred *d = malloc(sizeof *d);

    if (!d)
        return NULL;
    *d = (struct deferred){ .verb = v, .of = of, .end_at = LOOP_NEVER };
    list_push(&ls->deferred, &d->node);
    link_ticket(d, d);
    return d;
}

void hf__local_defer(struct local *ls, const struct verb *v, void *of)
{
    struct deferred *d = find(ls, v, of);

    now_shut(ls);
    if (!d && (d = add(ls, v, of)) == NULL) {
        no_memory(ls, v, of);
        return;
    }
    if (!v->limit_ms) /* the one that is queued does as much */
        return;
    d->verb = v;
    /* The core's limit for the same call is as long and counts from a moment later. It must
     * not come first: it could not name the process. */
    d->end_at = now_of(ls) + v->limit_ms(ls, of) * 1000 - 1;
    if (d->end_at < ls->end_at)
        ls->end_at = d->end_at;
    if (ls->end_at < ls->retry_at)
        retry_at(ls, ls->end_at);
}

void hf__local_defer_drop_ticket(struct ticket *t)
{
    if (t->drv[2] != 0)
        drop(of_ticket(t));
}

bool hf__local_defer_has(const struct ticket *t, const struct verb *v)
{
    return t->drv[2] != 0 && of_ticket(t)->verb == v;
}

void hf__local_defer_drop(struct local *ls, const void *of)
{
    list_for_safe(n, &ls->deferred) {
        struct deferred *d = container_of(n, struct deferred, node);

        if (d->of == of)
            drop(d);
    }
}

/* ---- trying again ---------------------------------------------------------------- */

/* At the head. While it ran, the same may have been put off again further down. */
static void put_back(struct local *ls, struct deferred *d)
{
    struct deferred *again = find(ls, d->verb, d->of);

    if (again) {
        take_off(again);
        free(again);
    }
    list_insert_before(ls->deferred.next, &d->node);
    link_ticket(d, d);
}

static void run_queue(struct local *ls)
{
    struct list *n;

    while (!ls->shut && (n = list_first(&ls->deferred)) != NULL) {
        struct deferred *d = container_of(n, struct deferred, node);

        take_off(d);
        if (d->verb->run(ls, d->of) != HF_EBUSYSTORE) {
            free(d);
            continue;
        }
        now_shut(ls);
        put_back(ls, d);
    }
}

/* One whose limit has passed; NULL: none, and end_at is that of the next. */
static struct deferred *late(struct local *ls, int64_t now)
{
    int64_t next = LOOP_NEVER;

    list_for(n, &ls->deferred) {
        struct deferred *d = container_of(n, struct deferred, node);

        if (d->end_at <= now)
            return d;
        if (d->end_at < next)
            next = d->end_at;
    }
    ls->end_at = next;
    return NULL;
}

static void give_up(struct local *ls)
{
    int64_t now = now_of(ls);
    struct deferred *d;
    hf_error err;

    if (now < ls->end_at || !(d = late(ls, now)))
        return;
    hf__local_gate_blocked(ls->sh, &err);
    do {
        take_off(d);
        d->verb->fail(ls, d->of, HF_EBUSYSTORE, &err);
        free(d);
    } while ((d = late(ls, now)) != NULL);
}

static void retry(struct timer *t)
{
    struct local *ls = container_of(t, struct local, retry);
    int64_t wait_ms = ls->wait_ms;

    ls->retry_at = LOOP_NEVER;
    ls->shut = false;
    ls->wait_ms = RETRY_MS;
    ls->pause_ms = ls->pause_ms * 2 < PAUSE_MOST_MS ? ls->pause_ms * 2 : PAUSE_MOST_MS;
    run_queue(ls);
    ls->wait_ms = wait_ms;
    if (ls->shut) {
        give_up(ls);
        plan(ls);
    } else {
        ls->pause_ms = PAUSE_LEAST_MS;
        ls->end_at = LOOP_NEVER;
    }
}

/* ---- clients --------------------------------------------------------------------- */

void hf__local_defer_init(struct local *ls)
{
    list_init(&ls->deferred);
    timer_init(&ls->retry, retry);
    ls->wait_ms = ls->gate_ms < WAIT_MS ? ls->gate_ms : WAIT_MS;
    ls->pause_ms = PAUSE_LEAST_MS;
    ls->retry_at = ls->end_at = LOOP_NEVER;
}

void hf__local_defer_free(struct local *ls)
{
    struct list *n;

    while ((n = list_first(&ls->deferred)) != NULL)
        drop(container_of(n, struct deferred, node));
}

void hf__local_defer_done(struct local *ls)
{
    hf__local_defer_free(ls);
    retry_at(ls, LOOP_NEVER);
}
