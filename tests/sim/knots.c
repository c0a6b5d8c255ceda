/* knots.c: the invariant about deadlocks (G10): who is stuck, as the store has it, and
 * whether a walk that reports a deadlock is right.
 *
 * The same question that src/core/reduce.c answers, asked in another way: of the whole
 * store, at the true time, and by owners: who can go on, and who could if others did.
 * That every deadlock ends the end of a run shows (liveness). That it ends soon is
 * looked at in runs in which nothing goes wrong. */
#include "sim.h"

#include <string.h>

struct knot_of {
    struct owner owner[ROWS]; /* of waiting tickets */
    uint64_t newest[ROWS];    /* its last ticket, */
    uint64_t asked[ROWS];     /* and when it asked for it */
    int waiting[ROWS];        /* how many it waits by */
    int fitting[ROWS];        /* how many of these will be granted */
    bool all[ROWS];           /* it may go on only when all of them are */
    bool any;                 /* it surely goes on when any of them is */
    bool free[ROWS];          /* will go on */
    bool behind[ROWS];        /* waits for the one that is looked at */
    int n;
};

static int index_of(const struct knot_of *k, struct owner o)
{
    for (int i = 0; i < k->n; i++)
        if (owner_same(k->owner[i], o))
            return i;
    return -1;
}

static bool waits(const struct st *s)
{
    return w.plan->family == ORDERED ? !s->prefix : !s->held;
}

/* Nobody's, or its owner has perhaps left, and could not tell the store so, or did before
 * it came. */
static bool cannot_leave(const struct st *s)
{
    struct sim_client *c = w.by_id[s->id];

    if (!c || s->leave_refused || s->held_up || (w.plan->parts && !wire_to(c, s->line)->up))
        return true;
    list_for(n, &c->core.holds) {
        const struct hold *h = container_of(n, struct hold, node);

        if (h->state == TICKET_LEAVING &&
            memcmp(h->t.token, &s->token, sizeof s->token) == 0)
            return true;
    }
    return false;
}

/* A thread waits in one place, by the ticket that it asked for last, whenever the store did
 * that: older ones are on their way out. An owner that acts on several threads waits in
 * several. And what a client has left behind that was closed or killed, what it gave up
 * and could not tell the store yet, or what the store would not let go, cannot be told from
 * a wait: G10 excludes false alarms for what its owner still uses. */
static bool waits_by(const struct knot_of *k, int who, const struct st *s)
{
    return waits(s) && (k->all[who] || s->seq == k->newest[who]);
}

/* Its owner will see that the line is of another kind or N, and withdraw it. */
static bool refused(const struct line *l, const struct st *s)
{
    const struct list *n = list_first(&l->queue);
    const struct st *head = n ? container_of(n, struct st, node) : s;

    return w.plan->family == ORDERED &&
           (head->lk != s->lk || head->capacity != s->capacity);
}

/* Which tickets of this line will be granted once those have left that can go on? */
static void relax(struct knot_of *k, const struct line *l)
{
    const struct list *lists[2] = { &l->holders, &l->queue };
    int64_t ahead = 0;

    for (int i = 0; i < 2; i++)
        list_for(n, lists[i]) {
            const struct st *s = container_of(n, struct st, node);
            int who = index_of(k, s->owner);

            if (who < 0 || k->free[who])
                continue;
            if (waits_by(k, who, s) && (refused(l, s) || ahead + s->weight <= s->capacity))
                k->fitting[who]++;
            ahead += s->weight;
        }
}

/* One more can go on: all that it waits by will be granted. */
static bool set_free(struct knot_of *k)
{
    bool changed = false;

    memset(k->fitting, 0, (size_t)k->n * sizeof k->fitting[0]);
    for (int i = 0; i < w.plan->lines; i++)
        relax(k, &w.lines[i]);
    for (int i = 0; i < k->n; i++)
        if (!k->free[i] && k->fitting[i] >= (k->all[i] && !k->any ? k->waiting[i] : 1))
            k->free[i] = changed = true;
    return changed;
}

/* Who is stuck, as the store has it now. */
static void find_knots(struct knot_of *k, bool any)
{
    k->n = 0;
    k->any = any;
    for (int i = 0; i < w.plan->lines; i++)
        list_for(n, &w.lines[i].queue) {
            const struct st *s = container_of(n, struct st, node);

            int who = index_of(k, s->owner);

            if (!waits(s) || owner_none(s->owner) || (who < 0 && k->n == ROWS))
                continue;
            if (who < 0) {
                who = k->n++;
                k->owner[who] = s->owner;
                k->newest[who] = k->asked[who] = 0;
                k->waiting[who] = 0;
                k->all[who] = w.plan->busy;
            }
            k->waiting[who]++;
            k->all[who] = k->all[who] || cannot_leave(s);
            if (s->asked > k->asked[who]) {
                k->asked[who] = s->asked;
                k->newest[who] = s->seq;
            }
        }
    memset(k->free, 0, (size_t)k->n * sizeof k->free[0]);
    while (set_free(k))
        ;
}

/* Who waits behind `me`, or behind somebody who does? */
static bool line_up(struct knot_of *k, const struct line *l, int me)
{
    const struct list *lists[2] = { &l->holders, &l->queue };
    bool blocked = false, changed = false;

    for (int i = 0; i < 2; i++)
        list_for(n, lists[i]) {
            const struct st *s = container_of(n, struct st, node);
            int who = index_of(k, s->owner);

            if (who < 0 || k->free[who])
                continue;
            if (blocked && !k->behind[who] && waits_by(k, who, s))
                k->behind[who] = changed = true;
            blocked = blocked || who == me || k->behind[who];
        }
    return changed;
}

/* Is it part of a knot? Who would go on if all those did that do not wait for it stands
 * behind a knot of others, at most. */
static bool is_tied(struct knot_of *k, struct owner o)
{
    int me = index_of(k, o);
    bool more = me >= 0;

    memset(k->behind, 0, sizeof k->behind);
    while (more) {
        more = false;
        for (int i = 0; i < w.plan->lines; i++)
            more = line_up(k, &w.lines[i], me) || more;
    }
    for (int i = 0; i < k->n; i++)
        k->free[i] = k->free[i] || (i != me && !k->behind[i]);
    while (set_free(k))
        ;
    return me >= 0 && !k->free[me];
}

/* Long enough for a walk, and for one more of somebody whose ticket is out of date; far
 * less than a walk's longest pause. */
static int64_t found_within(void)
{
    const struct plan *p = w.plan;

    /* owners that act on several threads may change what they hold between two readings */
    return (p->busy ? 30000 : 10000) * US +
           (p->busy ? 200 : 60) * (2 * p->delay_us + 2 * p->jitter_us + p->look_us);
}

/* Which waiting tickets are in a knot now, and since when? */
void oracle_knots(void)
{
    static struct knot_of k;
    struct tied now[ROWS];
    int n = 0;

    /* who does not know of its grant does not know what it keeps others from */
    if (!w.plan->calm || w.plan->wake_lost_ppm > 0 || w.now < w.tied_look)
        return;
    w.tied_look = w.now + 1000 * US;
    find_knots(&k, true);
    for (int i = 0; i < k.n; i++) {
        static struct knot_of mine;

        if (k.free[i])
            continue;
        find_knots(&mine, true);
        if (!is_tied(&mine, k.owner[i]))
            continue;
        now[n] = (struct tied){ k.newest[i], w.now };
        for (int j = 0; j < w.ntied; j++)
            if (w.tied[j].seq == now[n].seq)
                now[n].since = w.tied[j].since;
        if (now[n].since < w.last_victim)
            now[n].since = w.last_victim; /* one after the other */
        if (w.now - now[n].since > found_within())
            violate("G10", "a deadlock is not found for %lld s",
                    (long long)(w.now - now[n].since) / 1000000);
        n++;
    }
    memcpy(w.tied, now, (size_t)n * sizeof now[0]);
    w.ntied = n;
}

/* For all that its client knows. Then a lock is refused at once, without a walk (G9).
 * There may be no lease: an acquire of several names has one of them, and waits for
 * another. */
static bool holds_it_itself(const struct sim_op *o)
{
    list_for(n, &o->c->core.holds) {
        const struct hold *h = container_of(n, struct hold, node);
        int i = (line_of(h->t.name) - o->act.line + w.plan->lines) % w.plan->lines;

        if (h->t.owner.number == o->thread->number && i < o->act.lines &&
            atomic_load(&h->until_at) > proc_now(&w.procs[o->c->proc]))
            return true;
    }
    return false;
}

/* A walk has read all lines once, and will now read them again. What it will find
 * unchanged is so at this moment: a deadlock that it reports must be there now, whatever
 * comes later (G10). */
void hf__sim_read_once(const struct hold *h)
{
    static struct knot_of k;
    struct sim_op *o = container_of(h->op, struct sim_op, op);

    find_knots(&k, false);
    o->walked = o->op.next + 1;
    o->stuck = is_tied(&k, h->t.owner);
}

void oracle_deadlock(const struct sim_op *o)
{
    bool walked = o->walked == o->op.next + 1;

    tally_sight(walked ? S_DEADLOCK : S_REFUSED_OWN);
    w.last_victim = w.now;
    if (walked ? o->stuck : o->thread && holds_it_itself(o))
        return;
    violate("G10", "%s: a deadlock is reported to thread %d, and there is none",
            line_names[o->act.line], o->thread ? (int)o->thread->number : 0);
}
