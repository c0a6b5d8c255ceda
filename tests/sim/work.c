/* work.c: the applications: threads that acquire, hold, change and give back, as the
 * plan says.
 *
 * A thread that waits does nothing else, so what it holds is given back only after
 * its wait: that is how deadlocks come about. What belongs to no thread is started and
 * never waited for. The core is not called inside its own callbacks: what is done is
 * put on a list first. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sim_free(void *);

static struct sim_op *ops_pool;
static struct sim_lease *leases_pool;
static struct sim_op *done_first, **done_last = &done_first;

static struct sim_op *new_op(struct sim_client *c, const struct act *a, enum op_kind kind)
{
    struct sim_op *o = ops_pool;

    if (o)
        ops_pool = o->next;
    else if ((o = malloc(sizeof *o)) == NULL)
        abort();
    memset(o, 0, sizeof *o);
    o->c = c;
    o->act = *a;
    hf__op_init(&o->op, &c->core, kind, NULL);
    list_init(&o->on_client);
    list_push(&c->ops, &o->on_client);
    w.ops++;
    polls_begin(o);
    return o;
}

static void free_op(struct sim_op *o)
{
    list_remove(&o->on_client);
    w.ops--;
    o->next = ops_pool;
    ops_pool = o;
}

static struct sim_op *op_of(struct hf_op *op)
{
    return container_of(op, struct sim_op, op);
}

static void op_done(struct hf_op *op)
{
    struct sim_op *o = op_of(op);

    if (o->told)
        violate("liveness", "an operation is done twice");
    o->told = true;
    polls_end(o);
    if (op->kind == OP_ACQUIRE && op->rc == HF_EDEADLK)
        oracle_deadlock(o);
    o->next = NULL;
    *done_last = o;
    done_last = &o->next;
}

static void op_seen(struct hf_op *op)
{
    (void)op;
}

const struct host sim_host = { op_done, op_seen, oracle_lease_changed, NULL };

/* ---- leases ---------------------------------------------------------------------- */

static void plan_release(struct sim_lease *l, int64_t us)
{
    struct ev *e = new_event(E_RELEASE, w.now + us);

    e->lease = l;
    e->n = l->gen;
    push_event(e);
}

static void got(struct sim_op *o)
{
    struct sim_lease *l = leases_pool;
    uint32_t gen;

    if (l)
        leases_pool = l->next;
    else if ((l = calloc(1, sizeof *l)) == NULL)
        abort();
    gen = l->gen + 1;
    *l = (struct sim_lease){ .l = o->op.lease,
                             .c = o->c,
                             .thread = o->thread,
                             .gen = gen,
                             .identity = o->thread ? o->thread->identity : ++w.numbers,
                             .act = o->act };
    list_init(&l->on_client);
    list_init(&l->on_thread);
    list_push(&o->c->leases, &l->on_client);
    if (l->thread)
        list_push(&l->thread->leases, &l->on_thread);
    w.leases++;
    for (size_t i = 0; i < l->l->n; i++)
        oracle_told(l, l->l->parts[i].hold, l->l->n == 1);
    SAY("client %u: got %s, fence %llu", l->c->id, hf_lease_name(l->l),
        (unsigned long long)hf_lease_fence(l->l));
    plan_release(l, w.quiet ? 1 * US : l->act.hold_us);
}

static void free_lease(struct sim_lease *l)
{
    list_remove(&l->on_client);
    list_remove(&l->on_thread);
    l->gen++;
    w.leases--;
    l->next = leases_pool;
    leases_pool = l;
}

static void give_back(struct sim_lease *l, struct sim_op *o, int64_t keep_ms)
{
    struct hf_lease *lease = l->l;

    for (size_t i = 0; i < lease->n; i++)
        oracle_released(lease->parts[i].hold);
    free_lease(l);
    hf__release(o ? &o->op : NULL, lease, keep_ms);
    sim_free(lease);
}

void work_release(struct sim_lease *l, int64_t keep_ms)
{
    struct sim_op *o = NULL;

    if (l->changing || (l->thread && l->thread->waiting)) {
        l->overdue = true;
        return;
    }
    SAY("client %u: releases %s", l->c->id, hf_lease_name(l->l));
    if (l->act.rnd & 1)
        o = new_op(l->c, &l->act, OP_RELEASE);
    give_back(l, o, keep_ms);
}

static void release_overdue(struct list *leases)
{
    list_for(n, leases) {
        struct sim_lease *l = container_of(n, struct sim_lease, on_thread);

        if (l->overdue && !l->changing) {
            l->overdue = false;
            plan_release(l, 0);
        }
    }
}

/* ---- operations that are done ---------------------------------------------------- */

static void start_evict(struct sim_op *o)
{
    struct sim_op *e;
    const struct hf_line *line = hf_list_at(o->op.list, 0);
    struct look what = { .now = o->act.flags & F_NOW };

    if (!line || line->ntickets == 0 || o->c->shutting)
        return;
    e = new_op(o->c, &o->act, OP_ASK);
    what.name = line->name;
    what.name_len = line->name_len;
    memcpy(what.token, line->tickets[o->act.rnd % line->ntickets].token, HF_TOKEN);
    if (hf__ask(&e->op, &e->ask, ASK_EVICT, &what, NULL) < 0)
        free_op(e);
}

static void done(struct sim_op *o)
{
    switch (o->op.kind) {
    case OP_ACQUIRE:
        if (o->thread)
            o->thread->waiting = NULL;
        if (o->op.rc == 0) {
            got(o);
        } else {
            SAY("client %u: did not get %s: %s", o->c->id, line_names[o->act.line],
                hf_errname(o->op.rc));
        }
        if (o->thread)
            release_overdue(&o->thread->leases);
        break;
    case OP_AMEND:
    case OP_RENEW:
        o->lease->changing = false;
        if (o->lease->overdue) {
            o->lease->overdue = false;
            plan_release(o->lease, 0);
        }
        break;
    case OP_ASK:
        if (o->evict && o->op.rc == 0)
            start_evict(o);
        hf_list_free(o->op.list);
        break;
    default:
        break;
    }
    free_op(o);
}

void work_drain(void)
{
    while (done_first && !w.broke) {
        struct sim_op *o = done_first;
        struct sim_client *c = o->c;

        done_first = o->next;
        if (!done_first)
            done_last = &done_first;
        done(o);
        if (c->open)
            hf__client_run(&c->core);
    }
}

/* ---- acts ------------------------------------------------------------------------ */

static void make_request(struct acquire_spec *r, const struct act *a,
                         const struct sim_client *c, const struct sim_thread *t)
{
    int cap = w.plan->capacity[a->line];
    uint32_t caps = c->core.caps;

    memset(r, 0, sizeof *r);
    r->kind = cap ? LINE_PERMITS : LINE_LOCK;
    r->capacity = cap ? cap + (a->rnd % 100 == 7) : HF_FULL;
    r->weight = cap ? 1 + a->permits % cap : a->mode == HF_READ ? 1 : HF_FULL;
    r->barge = (a->flags & F_BARGE) && (caps & HF_CAP_BARGE);
    r->no_renew = a->flags & F_NO_RENEW;
    r->ttl_ms = w.plan->ttl_ms[caps & HF_CAP_TTL ? a->ttl : 0];
    r->max_hold_ms = a->flags & F_MAX_HOLD ? 1 + a->rnd % 2000 : 0;
    r->note = "";
    r->needs = a->rnd % 16 == 3 ? HF_CAP_DEADLINE : 0;
    if (!t)
        return;
    r->owner = (struct owner){ w.procs[c->proc].id | 1, t->number };
    r->reentrant = (a->flags & F_REENTRANT) || w.plan->busy;
    r->thread = r->reentrant ? 0 : t->number;
}

static const char *how_long(int64_t wait_ms)
{
    static char text[32];

    snprintf(text, sizeof text, "%lld ms", (long long)wait_ms);
    return wait_ms == HF_FOREVER ? "for ever" : wait_ms <= 0 ? "not at all" : text;
}

static void acquire(struct sim_client *c, const struct act *a)
{
    struct sim_thread *t =
        a->thread < THREADS ? &w.procs[c->proc].threads[a->thread] : NULL;
    const char *names[LINES];
    struct sim_op *o;
    struct acquire_spec r;
    int rc;

    if ((t && t->waiting) || w.ops > 60)
        return;
    for (int i = 0; i < a->lines; i++)
        names[i] = line_names[(a->line + i) % w.plan->lines];
    make_request(&r, a, c, t);
    if (hf__check_needs(&c->core, r.needs, r.ttl_ms, NULL) < 0)
        return;
    o = new_op(c, a, OP_ACQUIRE);
    o->thread = t;
    if (t && !w.plan->busy)
        t->waiting = o;
    SAY("client %u: %s %d acquires %s%s%s, waits %s", c->id, t ? "thread" : "nobody",
        t ? (int)t->number : 0, names[0], a->lines > 1 ? " and more" : "",
        r.kind == LINE_PERMITS ? ", permits"
        : r.weight == 1        ? ", shared"
                               : "",
        how_long(a->wait_ms));
    rc = hf__acquire(&o->op, names, a->lines, a->wait_ms, &r);
    if (c->core.stopped && rc != HF_ECLOSED)
        violate("G7", "client %u was stopped, and takes a place in %s", c->id, names[0]);
    if (rc < 0) {
        if (t)
            t->waiting = NULL;
        free_op(o);
    }
}

static struct sim_lease *pick_lease(struct sim_client *c, uint32_t rnd)
{
    struct sim_lease *l = NULL;
    unsigned k = 0;

    list_for(n, &c->leases)
        if (rnd % ++k == 0)
            l = container_of(n, struct sim_lease, on_client);
    return l && !l->changing && !(l->thread && l->thread->waiting) ? l : NULL;
}

static void cancel(struct sim_client *c, uint32_t rnd)
{
    struct sim_op *o = NULL;
    unsigned k = 0;

    list_for(n, &c->ops)
        if (rnd % ++k == 0)
            o = container_of(n, struct sim_op, on_client);
    if (o && !o->op.done && o->op.kind == OP_ACQUIRE)
        hf__cancel(&o->op, HF_ECANCELED);
}

static void change(struct sim_client *c, const struct act *a)
{
    struct sim_lease *l = pick_lease(c, a->rnd);
    struct hold *h = l ? l->l->parts[0].hold : NULL;
    struct sim_op *o;
    bool several;
    int rc;

    if (!l || l->l->n > 1)
        return;
    o = new_op(c, a, a->kind == A_RENEW ? OP_RENEW : OP_AMEND);
    o->lease = l;
    l->changing = true;
    several = hold_is_shared(h);
    if (a->kind == A_RENEW)
        rc = hf__renew(&o->op, h, c->core.caps & HF_CAP_TTL ? w.plan->ttl_ms[a->ttl] : 0);
    else
        rc =
            hf__amend(&o->op, h, a->kind == A_NOTE ? "note" : NULL, a->kind == A_DOWNGRADE);
    if (rc == 0 && a->kind == A_DOWNGRADE && several)
        violate("G9", "downgrade of %s with several handles", h->t.name);
    if (rc < 0) {
        l->changing = false;
        free_op(o);
    }
}

static void ask(struct sim_client *c, const struct act *a)
{
    struct sim_op *o = new_op(c, a, OP_ASK);
    const struct look what = { .name = line_names[a->line],
                               .name_len = strlen(line_names[a->line]),
                               .brief = a->kind == A_LOOK && a->rnd % 2 };

    o->evict = a->kind == A_EVICT;
    if (hf__ask(&o->op, &o->ask, ASK_LOOK, &what, NULL) < 0)
        free_op(o);
}

/* What it holds is given back by somebody else. */
static void thread_ends(struct proc *p, const struct act *a)
{
    struct sim_thread *t = &p->threads[a->thread % THREADS];
    struct list *n;

    if (t->waiting || w.plan->busy)
        return;
    while ((n = list_pop(&t->leases)) != NULL)
        container_of(n, struct sim_lease, on_thread)->thread = NULL;
    t->identity = ++w.numbers;
    if (!MUTANT(REUSED_THREAD))
        t->number = t->identity;
}

void work_end_ops(struct sim_client *c)
{
    list_for_safe(n, &c->ops) {
        struct sim_op *o = container_of(n, struct sim_op, on_client);

        if (!o->op.done)
            hf__cancel(&o->op, HF_ECLOSED);
    }
}

void work_shut(struct sim_client *c, uint32_t rnd)
{
    struct ev *e = new_event(E_CLOSED, w.now + (int64_t)(rnd % 1000) * US);

    SAY("client %u: closes", c->id);
    e->id = c->id;
    push_event(e);
    c->shutting = true;
    work_end_ops(c);
    hf__client_shut(&c->core);
    list_for(n, &c->leases)
        if (hf_lease_check(container_of(n, struct sim_lease, on_client)->l) == 0)
            violate("G1", "check says held after the close of client %u", c->id);
}

/* Waits end, holds stay; later, when some of them have been given back, it is closed. That
 * they stay is seen by the oracle, for which a stop is no cause of loss. */
static void stop(struct sim_client *c, const struct act *a)
{
    struct ev *e =
        new_event(E_SHUT, w.now + (int64_t)(a->rnd % (4 * w.plan->ttl_ms[0] + 1)) * US);

    e->id = c->id;
    e->n = a->rnd;
    push_event(e);
    hf__client_stop(&c->core);
    list_for_safe(n, &c->ops) {
        struct sim_op *o = container_of(n, struct sim_op, on_client);

        if (!o->op.done && (o->op.kind == OP_ACQUIRE || o->op.kind == OP_ASK))
            hf__cancel(&o->op, HF_ECLOSED);
    }
    list_for(n, &c->leases) {
        struct sim_lease *l = container_of(n, struct sim_lease, on_client);

        for (size_t i = 0; i < l->l->n; i++)
            if (l->l->parts[i].hold->state != TICKET_HELD && !l->l->parts[i].hold->lost)
                violate("G6", "client %u was stopped, and has given %s up", c->id,
                        l->l->parts[i].hold->t.name);
    }
}

void work_act(const struct act *a)
{
    struct proc *p = &w.procs[a->proc];
    struct sim_client *c = p->clients[a->slot];
    struct sim_lease *l;

    if (!p->alive || !can(p) || !c || !c->open || c->shutting)
        return;
    tally_act(a->kind);
    if (a->kind != A_ACQUIRE && a->kind != A_RELEASE && a->kind != A_SHUT)
        SAY("client %u: %s", c->id, act_word(a->kind));
    w.current = a->proc;
    switch (a->kind) {
    case A_ACQUIRE:
        acquire(c, a);
        break;
    case A_CANCEL:
        cancel(c, a->rnd);
        break;
    case A_RELEASE:
        if ((l = pick_lease(c, a->rnd)) != NULL)
            work_release(l, (a->flags & F_KEEP) && (c->core.caps & HF_CAP_KEEP) &&
                                    l->l->n == 1 && !hold_is_shared(l->l->parts[0].hold)
                                ? 1 + a->rnd % 3000
                                : 0);
        break;
    case A_THREAD_ENDS:
        thread_ends(p, a);
        break;
    case A_SHUT:
        work_shut(c, a->rnd);
        break;
    case A_STOP:
        stop(c, a);
        break;
    case A_LOOK:
        wrong_act(c, a->rnd);
        /* fall through */
    case A_EVICT:
        ask(c, a);
        break;
    default:
        change(c, a);
        break;
    }
    settle(c);
    w.current = -1;
}

/* ---- ends ------------------------------------------------------------------------ */

void work_drop_client(struct sim_client *c)
{
    struct list *n;

    while ((n = list_first(&c->ops)) != NULL) {
        struct sim_op *o = container_of(n, struct sim_op, on_client);

        if (o->thread && o->thread->waiting == o)
            o->thread->waiting = NULL;
        free_op(o);
    }
    while ((n = list_first(&c->leases)) != NULL) {
        struct sim_lease *l = container_of(n, struct sim_lease, on_client);
        struct hf_lease *lease = l->l;

        free_lease(l);
        if (c->core.closed) {
            hf__release(NULL, lease, 0);
            sim_free(lease);
        }
    }
}

void work_quiet(void)
{
    for (int i = 0; i < PROCS * SLOTS; i++) {
        struct sim_client *c = w.procs[i / SLOTS].clients[i % SLOTS];

        if (!c)
            continue;
        list_for(n, &c->leases)
            plan_release(container_of(n, struct sim_lease, on_client),
                         (int64_t)draw(50 * US));
    }
}

void work_done(void)
{
    for (int i = 0; i < PROCS * SLOTS; i++) {
        struct sim_client *c = w.procs[i / SLOTS].clients[i % SLOTS];

        if (!c)
            continue;
        c->core.closed = false; /* its memory goes as a whole */
        work_drop_client(c);
    }
    done_first = NULL;
    done_last = &done_first;
}
