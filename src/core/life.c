/* life.c: what the store watches to see that we live; when it is renewed, when a hold on it
 * is at risk, and when it is lost. Upholds G1, G4 (the safety look) and G6.
 *
 *   sent_at               ttl/3     2/3 ttl   deadline - lead        deadline  store
 *   |---------------------|---------|---------|----------------------|---------|
 *   renewed (its sending) renew     at risk   check: lost, and told  of G1     expires
 *
 * The deadline counts from the sending of the last answered request that renewed the life,
 * less drift (1 % + 2 ms): the store counted its ttl from the arrival of that request,
 * which is later, on a clock that may be faster by the drift. So at any time before the
 * deadline the store cannot have given the place away. We call it lost a little before
 * (lead), so that the news comes before the deadline if the process runs (G6).
 *
 * A driver may call a life at risk before its time (ev_risk), until it is next heard of.
 *
 * An unanswered renewal is repeated every ttl/8, later more rarely. Renewal times are
 * rounded down to a grid of ttl/64, so that many lives become due together and go out in
 * one batch. A waiting life is renewed at ttl/3 too; it has no deadline: if it expires, the
 * store says so at the next answer. When the first waiter of the line is to look again at
 * the expiry in front of it (recheck_at) only answers about that waiter change: an answer
 * about another ticket on the same life, such as the join of a second thread, knows nothing
 * of it. */
#include "core/core.h"
#include "core/mutate.h"

#include <stdlib.h>

enum { RETRY_LEAST_US = 10000, RETRY_MOST_US = 5000000 };

int64_t hf__deadline(int64_t sent_at, int64_t ttl_ms)
{
    return sent_at + ttl_ms * 1000 - (MUTANT(NO_DRIFT) ? 0 : drift_us(ttl_ms));
}

int64_t hf__until(int64_t sent_at, int64_t ttl_ms)
{
    int64_t lead = ttl_ms * 1000 / 64;

    lead = lead < 2000 ? 2000 : lead > 50000 ? 50000 : lead;
    return hf__deadline(sent_at, ttl_ms) - lead;
}

/* What has had no answer for longer than its ttl is not saved by haste: then less and less
 * often, so that a connection that stands still is not filled with repetitions. */
static int64_t retry_after(const struct life *l)
{
    int64_t us = l->ttl_ms * 1000 / 8, silence = l->tried_at - l->sent_at;

    if (l->sent_at > 0 && silence / 8 > us && us < RETRY_MOST_US)
        us = silence / 8 < RETRY_MOST_US ? silence / 8 : RETRY_MOST_US;
    return us < RETRY_LEAST_US ? RETRY_LEAST_US : us;
}

static void fired(struct timer *);

void hf__life_init(struct life *l, struct store *store, enum life_kind kind, int64_t ttl_ms)
{
    l->store = store;
    l->kind = kind;
    l->ttl_ms = l->given_ms = ttl_ms;
    l->sent_at = l->tried_at = l->recheck_at = l->asked_at = 0;
    l->asked = l->marked = l->dead = l->risk_told = l->lost_told = false;
    l->ntickets = 0;
    list_init(&l->tickets);
    list_init(&l->due);
    timer_init(&l->timer, fired);
}

struct life *hf__life_new(struct store *store, enum life_kind kind, int64_t ttl_ms)
{
    struct life *l = calloc(1, sizeof *l);

    if (l)
        hf__life_init(l, store, kind, ttl_ms);
    return l;
}

static void answered(struct client *c, struct life *l)
{
    if (l->asked)
        c->asked--;
    l->asked = false;
}

void hf__life_end(struct client *c, struct life *l)
{
    answered(c, l);
    list_remove(&l->due);
    c->env->timer(c->env, &l->timer, LOOP_NEVER);
}

void hf__life_free(struct life *l)
{
    if (!l)
        return;
    hf__life_end(l->store->client, l);
    free(l);
}

void hf__unhang(struct ticket *t)
{
    if (!t->life)
        return;
    list_remove(&t->on_life);
    if (--t->life->ntickets == 0)
        answered(t->life->store->client, t->life); /* nobody waits for that any more */
    t->life = NULL;
}

void hf__hang(struct ticket *t, struct life *l)
{
    hf__unhang(t);
    t->life = l;
    l->ntickets++;
    list_push(&l->tickets, &t->on_life);
}

void hf__life_renew(struct life *l)
{
    if (l->dead || l->marked)
        return;
    if (list_empty(&l->due))
        list_push(&l->store->client->due, &l->due);
}

void hf__life_ask(struct life *l, int64_t ttl_ms)
{
    int64_t now = l->store->env->now(l->store->env);

    l->ttl_ms = ttl_ms;
    l->asked_at = now;
    if (hf__deadline(now, ttl_ms) < hf__deadline(l->sent_at, l->given_ms)) {
        l->sent_at = now;
        l->given_ms = ttl_ms;
    }
    hf__life_plan(l);
}

/* A life of one ticket that its owner renews by hand, and does not renew just now. A grant
 * that waits to be confirmed is not held yet: its renewal is the core's, and is repeated.
 */
static bool by_hand(const struct life *l)
{
    const struct list *first = list_first(&l->tickets);

    return l->kind == LIFE_OWN && first &&
           hf__hold_by_hand(hold_of(container_of(first, struct ticket, on_life)));
}

static int64_t renew_at(const struct life *l)
{
    int64_t grid = l->ttl_ms * 1000 / 64 + 1, at;

    if (l->tried_at > l->sent_at)
        return l->tried_at + retry_after(l);
    at = l->sent_at + renewals_us(l->given_ms, 1);
    if (at / grid * grid > l->sent_at)
        at = at / grid * grid;
    return at;
}

static int64_t risk_at(const struct life *l)
{
    return l->sent_at + renewals_us(l->given_ms, 2);
}

static int64_t lost_at(const struct life *l)
{
    return hf__until(l->sent_at, l->given_ms) + (MUTANT(LATE_LOSS) ? l->given_ms * 100 : 0);
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Also where the store may end a hold sooner (no HF_CAP_DEADLINE): it ends it at its ttl at
 * the latest, so from then on nothing is believed. */
static bool carries_holds(const struct life *l)
{
    return l->kind != LIFE_WAIT;
}

void hf__life_plan(struct life *l)
{
    struct env *env = l->store->env;
    int64_t at = LOOP_NEVER;

    if (!l->dead && l->ntickets > 0) {
        if (!l->marked && l->store->client->up && !by_hand(l))
            at = renew_at(l);
        if (l->recheck_at > 0)
            at = sooner(at, l->recheck_at);
        if (carries_holds(l) && !l->risk_told && !by_hand(l))
            at = sooner(at, risk_at(l));
        if (carries_holds(l) && !l->lost_told)
            at = sooner(at, lost_at(l));
    }
    env->timer(env, &l->timer, at);
}

/* Calls for each ticket, which may go to another life or to none meanwhile. */
static void each_ticket(struct life *l, void (*call)(struct hold *, const void *),
                        const void *arg)
{
    struct list todo, *n;

    list_init(&todo);
    list_splice(&todo, &l->tickets);
    while ((n = list_pop(&todo)) != NULL) {
        list_push(&l->tickets, n);
        call(hold_of(container_of(n, struct ticket, on_life)), arg);
    }
}

static void past_deadline(struct hold *h, const void *arg)
{
    (void)arg;
    hf__hold_step(h, TICKET_DEADLINE, HF_ELOST, NULL);
}

static void at_risk(struct hold *h, const void *arg)
{
    (void)arg;
    if (h->state == TICKET_HELD)
        hf__hold_grade(h, HF_AT_RISK);
}

static void fired(struct timer *t)
{
    struct life *l = container_of(t, struct life, timer);
    int64_t now = l->store->env->now(l->store->env);

    if (carries_holds(l) && !l->lost_told && now >= lost_at(l)) {
        l->lost_told = true;
        each_ticket(l, past_deadline, NULL);
    }
    if (carries_holds(l) && !l->risk_told && !by_hand(l) && now >= risk_at(l)) {
        l->risk_told = true;
        each_ticket(l, at_risk, NULL);
    }
    if (l->recheck_at > 0 && now >= l->recheck_at) {
        l->recheck_at = 0;
        hf__life_renew(l);
    }
    if (!by_hand(l) && l->store->client->up && now >= renew_at(l)) {
        l->tried_at = now; /* even if the store is not asked in this turn: no busy loop */
        hf__life_renew(l);
    }
    hf__life_plan(l);
}

static void renewed(struct hold *h, const void *arg)
{
    const int64_t *now = arg;
    const struct life *l = h->t.life;
    int64_t left = hf__deadline(l->sent_at, l->given_ms) - *now;
    bool thin = carries_holds(l) && left * 4 < l->given_ms * 1000;

    if (h->state == TICKET_HELD) /* an old one may be answered, and renew little */
        hf__hold_grade(h,
                       l->marked || (carries_holds(l) && !by_hand(l) && *now >= risk_at(l))
                           ? HF_AT_RISK
                           : HF_HELD);
    hf__hold_step(h, thin ? TICKET_ALIVE_THIN : TICKET_ALIVE, 0, NULL);
    hf__op_renewed(h);
}

void ev_alive(struct life *l, int64_t sent_at, int64_t ttl_ms)
{
    int64_t now = l->store->env->now(l->store->env);

    answered(l->store->client, l);
    if (l->dead || sent_at < l->sent_at)
        return; /* an answer that was overtaken */
    if (sent_at < l->asked_at &&
        hf__deadline(l->asked_at, l->ttl_ms) < hf__deadline(sent_at, ttl_ms)) {
        sent_at = l->asked_at; /* a shorter time was asked for since (hf__life_ask) */
        ttl_ms = l->ttl_ms;
    }
    if (carries_holds(l) && l->sent_at > 0 && !l->lost_told && now >= lost_at(l)) {
        /* what is over is not revived by a late answer */
        each_ticket(l, past_deadline, NULL);
        if (l->dead)
            return;
    }
    l->sent_at = MUTANT(RECEIPT) ? now : sent_at;
    if (l->tried_at < sent_at)
        l->tried_at = sent_at;
    if (l->kind == LIFE_WAIT && l->store->client->waits_kept_at < sent_at)
        l->store->client->waits_kept_at = sent_at; /* later than it was called for */
    l->given_ms = ttl_ms;
    l->risk_told = l->lost_told = false;
    if (l->kind != LIFE_WAIT)
        each_ticket(l, renewed, &now);
    hf__life_plan(l);
}

void ev_risk(struct life *l)
{
    if (l->dead || l->risk_told || !carries_holds(l))
        return;
    l->risk_told = true;
    each_ticket(l, at_risk, NULL);
    hf__life_plan(l);
}

static void died(struct hold *h, const void *arg)
{
    (void)arg;
    hf__hold_step(h, TICKET_DEAD, HF_ELOST, NULL);
}

void ev_dead(struct life *l)
{
    answered(l->store->client, l);
    l->dead = true;
    hf__life_end(l->store->client, l);
    each_ticket(l, died, NULL);
    hf__life_plan(l);
}

/* A grant that waits to be confirmed cannot be any more, and nobody has been told of it:
 * the call ends as that of a waiter does. */
void ev_marked(struct ticket *t)
{
    struct hold *h = hold_of(t);
    const struct life *from = t->life;

    if (h->state == TICKET_CONFIRMING)
        hf__hold_step(h, TICKET_REFUSED_IN_LINE, HF_EEVICTED, NULL);
    if (h->state != TICKET_HELD || !from)
        return;
    if (!t->own && (t->own = hf__life_new(t->store, LIFE_OWN, t->ttl_ms)) == NULL) {
        hf__hold_step(h, TICKET_DEAD, HF_ELOST, NULL);
        return;
    }
    if (from != t->own) { /* which is renewed for the others on it */
        t->own->sent_at = from->sent_at;
        t->own->given_ms = from->given_ms;
        t->own->tried_at = from->tried_at;
        hf__hang(t, t->own);
    }
    answered(h->client, t->own);
    list_remove(&t->own->due);
    t->own->marked = t->own->risk_told = true;
    hf__hold_grade(h, HF_AT_RISK);
    hf__life_plan(t->own);
}
