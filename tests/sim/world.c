/* world.c: the true clock, the steps, processes and what befalls them.
 *
 * The next step is the earliest of: an event in the queue, a core timer of some
 * client, the next act of the plan. What concerns a process that stands still waits
 * until it goes on. When the plan is done all faults end (`quiet`); then everybody
 * must be served within a bound, everything is closed, and nothing may be left
 * anywhere. */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STORM = 20000, STANDSTILL = 1000000 };

struct world w;
int hf__mutant;
const char *const line_names[LINES] = { "n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7" };

static struct ev *ev_pool;
static struct snap *snap_pool;

/* ---- saying ---------------------------------------------------------------------- */

/* What was said a moment ago (renewals, mostly) is not said again. */
static bool said(const char *text)
{
    static uint64_t last[32];
    static unsigned n;
    uint64_t hash = hf__hash(text, strlen(text));

    for (unsigned i = 0; i < 32; i++)
        if (last[i] == hash)
            return true;
    last[n++ % 32] = hash;
    return false;
}

void say(const char *fmt, ...)
{
    char text[300];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!said(text))
        printf("# %10.3f ms  %s\n", (double)w.now / US, text);
}

void violate(const char *id, const char *fmt, ...)
{
    va_list ap;

    if (w.broke)
        return;
    w.broke = id;
    va_start(ap, fmt);
    vsnprintf(w.why, sizeof w.why, fmt, ap);
    va_end(ap);
    SAY("%s is broken: %s", id, w.why);
}

int64_t longest_ttl(void)
{
    int64_t ms = 0;

    for (int i = 0; i < w.plan->nttls; i++)
        ms = w.plan->ttl_ms[i] > ms ? w.plan->ttl_ms[i] : ms;
    return ms;
}

uint64_t draw(uint64_t below)
{
    w.rng = w.rng * 6364136223846793005u + 1442695040888963407u;
    return (w.rng >> 33) % below;
}

/* ---- the queue of events --------------------------------------------------------- */

struct ev *new_event(enum ev_kind kind, int64_t at)
{
    struct ev *e = ev_pool;

    if (e)
        ev_pool = e->next;
    else if ((e = malloc(sizeof *e)) == NULL)
        abort();
    e->kind = kind;
    e->at = at;
    e->lease = NULL;
    e->m.snap = NULL;
    e->m.names = NULL;
    return e;
}

void free_event(struct ev *e)
{
    free_names(e->m.names);
    e->next = ev_pool;
    ev_pool = e;
}

static bool before(const struct ev *a, const struct ev *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

/* In its old turn among those of the same time. */
static void push_again(struct ev *e)
{
    size_t i = w.nheap++;

    if (w.nheap > STORM)
        violate("liveness", "%zu messages are under way: one brings forth more", w.nheap);
    if (w.nheap > w.heap_room) {
        w.heap_room = w.heap_room ? w.heap_room * 2 : 1024;
        w.heap = realloc(w.heap, w.heap_room * sizeof *w.heap);
        if (!w.heap)
            abort();
    }
    for (; i > 0 && before(e, w.heap[(i - 1) / 4]); i = (i - 1) / 4)
        w.heap[i] = w.heap[(i - 1) / 4];
    w.heap[i] = e;
}

void push_event(struct ev *e)
{
    e->seq = ++w.seq;
    push_again(e);
}

static struct ev *pop_event(void)
{
    struct ev *top = w.heap[0], *last = w.heap[--w.nheap];
    size_t i = 0;

    while (4 * i + 1 < w.nheap) {
        size_t least = 4 * i + 1;

        for (size_t k = least + 1; k < 4 * i + 5 && k < w.nheap; k++)
            if (before(w.heap[k], w.heap[least]))
                least = k;
        if (!before(w.heap[least], last))
            break;
        w.heap[i] = w.heap[least];
        i = least;
    }
    w.heap[i] = last;
    return top;
}

struct snap *new_snap(void)
{
    struct snap *s = snap_pool;

    if (s)
        snap_pool = s->next;
    else if ((s = malloc(sizeof *s)) == NULL)
        abort();
    s->n = 0;
    return s;
}

void free_snap(struct snap *s)
{
    if (!s)
        return;
    s->next = snap_pool;
    snap_pool = s;
}

/* ---- clocks ---------------------------------------------------------------------- */

int64_t proc_now(const struct proc *p)
{
    int64_t d = w.now - p->base_t;

    return p->base_p + d + d * p->ppm / 1000000;
}

static int64_t true_time(const struct proc *p, int64_t at)
{
    int64_t d = (at - p->base_p) * 1000000 / (1000000 + p->ppm);

    if (at <= p->base_p)
        return p->base_t;
    while (p->base_p + d + d * p->ppm / 1000000 < at)
        d++;
    return p->base_t + d;
}

bool can(const struct proc *p)
{
    return p->paused_until <= w.now;
}

void touch(struct sim_client *c)
{
    const struct proc *p = &w.procs[c->proc];
    struct heap_node *n = heap_first(&c->timers);
    int64_t at = n && c->open ? true_time(p, n->key) : INT64_MAX;

    if (n && at < p->paused_until)
        at = p->paused_until;
    w.next_true[c->proc * SLOTS + c->slot] = at;
}

/* ---- steps ----------------------------------------------------------------------- */

static void dispatch(struct ev *e)
{
    struct sim_client *c = NULL;
    struct proc *p = NULL;

    if (e->kind == E_TO_CLIENT || e->kind == E_OPENED || e->kind == E_BREAK ||
        e->kind == E_SHUT || e->kind == E_CLOSED || e->kind == E_AGAIN ||
        e->kind == E_HANGS)
        c = w.by_id[e->id];
    if (e->kind == E_RELEASE)
        c = e->lease->gen == e->n ? e->lease->c : NULL;
    p = c ? &w.procs[c->proc] : NULL;
    if (p && !can(p)) { /* it will see this when it goes on */
        e->at = p->paused_until;
        push_again(e);
        return;
    }
    w.current = c ? c->proc : -1;
    switch (e->kind) {
    case E_TO_STORE:
        store_receive(&e->m);
        break;
    case E_TO_CLIENT:
        if (c)
            driver_receive(c, &e->m);
        else
            free_snap(e->m.snap);
        break;
    case E_RELEASE:
        if (c)
            work_release(e->lease, 0);
        break;
    case E_OPENED:
        if (c && wire_to(c, e->m.line)->epoch == e->n)
            hf__link_opened(&wire_to(c, e->m.line)->link);
        break;
    case E_BREAK:
        if (c && wire_to(c, e->m.line)->epoch == e->n)
            net_cut(wire_to(c, e->m.line), 0);
        break;
    case E_SWEEP:
        store_sweep(e->id);
        break;
    case E_SESSION:
        if (e->n == w.sessions[e->id].inc)
            store_session(e->id);
        break;
    case E_SHUT:
        if (c && !c->shutting)
            work_shut(c, e->n);
        break;
    case E_CLOSED:
        if (c && c->shutting && !c->core.shut) { /* its leaves have taken too long */
            struct ev *again = new_event(E_CLOSED, w.now + 250 * US);

            hf__client_end_session(&c->core);
            again->id = c->id;
            push_event(again);
        } else if (c && c->shutting) {
            int proc = c->proc, slot = c->slot;

            close_client(c);
            c = w.quiet ? NULL : open_client(proc, slot);
        }
        break;
    case E_AGAIN:
        if (c)
            sender_again(c, &e->m);
        break;
    case E_NOTHING:
        break;
    case E_TOLD:
        sender_understood(e);
        break;
    case E_HANGS:
        if (c && wire_to(c, e->m.line)->epoch == e->n && !w.quiet)
            part_cut(wire_to(c, e->m.line), e->m.ttl_ms * US);
        break;
    case E_STORE_UP:
        w.store_up = true;
        break;
    case E_RESTART:
        if (!w.quiet && !w.procs[e->id].alive && w.ids + SLOTS <= IDS) {
            tally_sight(S_STARTED);
            process_start(e->id);
        }
        break;
    }
    if (c)
        settle(c);
    w.current = -1;
    free_event(e);
}

static void fire_timer(int at)
{
    struct sim_client *c = w.procs[at / SLOTS].clients[at % SLOTS];
    struct heap_node *n = heap_first(&c->timers);
    struct timer *t = container_of(n, struct timer, node);

    w.current = c->proc;
    hf__heap_remove(&c->timers, n);
    t->fire(t);
    settle(c);
    w.current = -1;
}

/* Everything comes to an end without time passing: what goes on and on at one moment
 * does not. */
static void moves_on(void)
{
    if (w.now != w.moment) {
        w.moment = w.now;
        w.moment_steps = w.steps;
    } else if (w.steps - w.moment_steps > STANDSTILL) {
        violate("liveness", "a million steps, and no time has passed");
    }
}

static bool step(void)
{
    int64_t at = w.nheap ? w.heap[0]->at : INT64_MAX;
    int timer = -1;

    for (int i = 0; i < w.plan->procs * SLOTS; i++)
        if (w.next_true[i] < at ||
            (w.next_true[i] == at && at < INT64_MAX && draw(2) == 0)) {
            at = w.next_true[i];
            timer = i;
        }
    while (w.next_act < w.plan->n && w.plan->acts[w.next_act].dropped)
        w.next_act++;
    if (w.next_act < w.plan->n && w.plan->acts[w.next_act].at <= at) {
        const struct act *a = &w.plan->acts[w.next_act++];

        w.now = a->at > w.now ? a->at : w.now;
        if (a->kind >= A_CUT)
            process_fault(a);
        else
            work_act(a);
    } else if (!w.quiet && w.next_act == w.plan->n && at >= w.plan->end) {
        w.now = w.plan->end > w.now ? w.plan->end : w.now;
        process_quiet();
    } else if (timer >= 0) {
        w.now = at > w.now ? at : w.now;
        fire_timer(timer);
    } else if (w.nheap) {
        w.now = at > w.now ? at : w.now;
        dispatch(pop_event());
    } else {
        return false;
    }
    w.steps++;
    oracle_full();
    oracle_knots();
    oracle_links();
    moves_on();
    return true;
}

static void close_all(void)
{
    for (int i = 0; i < PROCS; i++)
        for (int k = 0; k < SLOTS; k++)
            if (!w.broke && w.procs[i].clients[k]) {
                oracle_end_of_client(w.procs[i].clients[k]);
                close_client(w.procs[i].clients[k]);
            }
}

/* Everybody is served, then nothing may be left in the lines: neither what was left,
 * nor, one ttl later, what belonged to the dead. */
static void finish(void)
{
    /* a clock that was set back keeps what was in the lines for so much longer */
    int64_t bound = w.quiet_at + (6 * longest_ttl() + 120000) * US + w.set_back;

    while (!w.broke && (w.ops > 0 || w.leases > 0) && step())
        if (w.now > bound)
            violate("liveness",
                    "%zu operations and %zu leases are not done %lld s after the "
                    "last fault",
                    w.ops, w.leases, (long long)(w.now - w.quiet_at) / 1000000);
    if (!w.broke && (w.ops > 0 || w.leases > 0))
        violate("liveness", "%zu operations and %zu leases are not done and never will be",
                w.ops, w.leases);
    bound = w.now > w.asleep_till ? w.now : w.asleep_till;
    bound += (2 * longest_ttl() + 20000) * US + w.set_back;
    while (!w.broke && w.now < bound && step())
        ;
    w.now = bound > w.now ? bound : w.now;
    if (!w.broke && !store_empty())
        violate("G7", "something is left in a line one ttl after everybody has left");
    if (!w.broke)
        oracle_full();
    if (!w.broke)
        close_all();
}

static void clear_world(void)
{
    struct ev **heap = w.heap;
    size_t room = w.heap_room;

    memset(&w, 0, sizeof w);
    w.heap = heap;
    w.heap_room = room;
    w.current = -1;
    for (int i = 0; i < PROCS; i++)
        list_init(&w.procs[i].blocks);
    for (int i = 0; i < PROCS * SLOTS; i++)
        w.next_true[i] = INT64_MAX;
}

static void end_world(void)
{
    while (w.nheap) {
        struct ev *e = w.heap[--w.nheap];

        free_snap(e->m.snap);
        free_event(e);
    }
    while (w.late) {
        struct ev *e = w.late;

        w.late = e->next;
        free_event(e);
    }
    work_done();
    mem_reset();
    store_done();
}

void run_world(const struct plan *p, int mutant, bool trace)
{
    clear_world();
    hf__mutant = mutant;
    w.plan = p;
    w.trace = trace;
    w.rng = mix(p->seed ^ p->salt ^ 0x51);
    w.now = 1000;
    w.wall = (int64_t)1700000000 * 1000000;
    w.forgot_at = -1;
    store_init();
    for (int i = 0; i < p->procs; i++)
        process_start(i);
    while (!w.broke && !w.quiet && step())
        ;
    finish();
    end_world();
}
