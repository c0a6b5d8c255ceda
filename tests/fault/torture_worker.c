/* torture_worker.c: one process that does everything to the lines, and writes down what it
 * is told.
 *
 * A few threads, each with a client of its own (which it closes and opens again, also with
 * leases out) and one that all share. Each holds the records of torture_oracle.c up to date
 * while it holds. It may be killed or stopped at any instruction.
 *
 * Goes wrong: an answer that the call may not give here, or a check that says "held"
 * although the resource has seen a later holder: says so and ends with status 1.
 */
#include "torture.h"

#include "check.h"

#include <errno.h>
#include <holdfast/async.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 4, DEPTH = 2 };

/* The last one is longer than what fits into a key of the embedded store. */
#define LONG8(x) x x x x x x x x
const char *const line_names[LINES] = { "t/a", "t/b \xc3\xa4\xe2\x82\xac/\"'", "t/c",
                                        "t/" LONG8(LONG8("1234567")), "t/permits" };

struct grip { /* one lease, and its records */
    hf_client *client;
    hf_lease *lease;
    struct held *records[LOCKS];
    unsigned lines[LOCKS];
    size_t n;
    int64_t ttl_ms;
    uint64_t id;
    bool exclusive;
    unsigned weight;
};

struct thread {
    unsigned seed;
    hf_client *own;
    hf_cancel *cancel;
    bool prompt; /* its client has a thread of its own, which may run callbacks */
    int depth;   /* leases that this thread holds */
};

static const struct torture *setting;
static hf_client *common;
static struct thread threads[THREADS_MAX];

static unsigned below(struct thread *t, unsigned n)
{
    return (unsigned)rand_r(&t->seed) % n;
}

static bool one_in(struct thread *t, unsigned n)
{
    return below(t, n) == 0;
}

static void pause_us(int64_t us)
{
    nanosleep(&(struct timespec){ us / 1000000, us % 1000000 * 1000 }, NULL);
}

_Noreturn static void violation(unsigned line, const char *what, uint64_t fence, int rc)
{
    atomic_store(&area->failed, 1);
    printf("# pid %d: %s: %s, fence %llu, %s %s\n", (int)getpid(), line_names[line], what,
           (unsigned long long)fence, hf_errname(rc), last_error()->text);
    events_print(line, 0);
    _exit(1);
}

static hf_client *open_client(struct thread *t)
{
    hf_options options = HF_OPTIONS_INIT;
    hf_client *c = NULL;
    int rc;

    t->prompt = one_in(t, 3);
    options.drive = t->prompt ? HF_DRIVE_PROMPT : HF_DRIVE_CALLER;
    options.spin_us = one_in(t, 2) ? 10000 : 0; /* killed and stopped while it polls */
    while ((rc = hf_open(setting->url, &options, &c, E())) == HF_EBUSYSTORE)
        atomic_fetch_add(&area->blocked, 1);
    CHECK_RC(rc, 0);
    return c;
}

/* ---- while holding --------------------------------------------------------------- */

static void record(struct grip *g)
{
    int64_t from = now_us();

    for (size_t i = 0; i < g->n; i++)
        g->records[i] = held_add(g->lines[i], g->id,
                                 hf_lease_fence_of(g->lease, line_names[g->lines[i]]),
                                 g->exclusive, g->weight, from);
}

static void till(struct grip *g, int64_t at)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->records[i])
            atomic_store(&g->records[i]->till, at);
}

static bool still_held(struct grip *g)
{
    int64_t at = now_us();

    if (hf_lease_check(g->lease) != 0)
        return false;
    till(g, at);
    return true;
}

/* The resource behind a lock. It is asked without looking at the lease first. */
static void use_resource(struct grip *g, unsigned line)
{
    uint64_t fence = hf_lease_fence_of(g->lease, line_names[line]);
    uint64_t last = atomic_load(&area->resource[line]);

    while (last <= fence)
        if (!g->exclusive ||
            atomic_compare_exchange_weak(&area->resource[line], &last, fence))
            return;
    atomic_fetch_add(&area->refused, 1);
    if (hf_lease_check(g->lease) == 0)
        violation(line, "held, but the resource has seen a later one", fence, 0);
}

static void dawdle(struct thread *t, const struct grip *g)
{
    unsigned what = below(t, 3000);

    if (what == 0)
        pause_us((int64_t)below(t, 1500) * g->ttl_ms); /* up to 1.5 ttl */
    else if (what < 20)
        pause_us(below(t, 20000));
    else if (what < 100)
        pause_us(below(t, 1000));
    else if (what < 1000)
        sched_yield();
}

/* Returns false when the lease has been lost. */
static bool inside(struct thread *t, struct grip *g)
{
    unsigned steps = 1 + below(t, 12);

    record(g);
    for (unsigned i = 0; i < steps; i++) {
        if (!still_held(g)) {
            atomic_fetch_add(&area->lost, 1);
            event_add(LOST, g->lines[0], getpid(), 0, hf_lease_fence(g->lease));
            return false;
        }
        dawdle(t, g);
        for (size_t k = 0; k < g->n; k++)
            if (g->lines[k] != PERMITS)
                use_resource(g, g->lines[k]);
    }
    return still_held(g);
}

/* ---- ending ---------------------------------------------------------------------- */

static void ended(const struct grip *g, enum what what, int rc, uint64_t fence)
{
    event_add(what, g->lines[0], getpid(), rc, fence);
    if (rc != 0 && rc != HF_ELOST && rc != HF_EUNKNOWN)
        violation(g->lines[0], "a release must not answer this", fence, rc);
}

static void keep(struct thread *t, struct grip *g)
{
    uint64_t fence = hf_lease_fence(g->lease);
    int64_t at = now_us(), keep_ms = 1 + below(t, 300);
    int rc = hf_release_after(g->lease, keep_ms, E());

    if (rc == 0 && !area->breaks)
        till(g, at + keep_ms * 1000);
    ended(g, KEPT, rc, fence);
}

static void downgrade(struct thread *t, struct grip *g)
{
    int rc = hf_lease_downgrade(g->lease, E());

    event_add(DOWN, g->lines[0], getpid(), rc, hf_lease_fence(g->lease));
    if (rc == 0) {
        g->exclusive = false;
        inside(t, g);
    } else if (rc != HF_ELOST && rc != HF_EBUSYSTORE && rc != HF_EUNKNOWN) {
        violation(g->lines[0], "a downgrade must not answer this", 0, rc);
    }
}

static void finish(struct thread *t, struct grip *g)
{
    uint64_t fence;

    t->depth--;
    if (one_in(t, 40) && still_held(g)) {
        keep(t, g);
        return;
    }
    if (g->exclusive && g->lines[0] != PERMITS && one_in(t, 6))
        downgrade(t, g);
    fence = hf_lease_fence(g->lease);
    ended(g, RELEASED, hf_release(g->lease, E()), fence);
}

/* ---- asking ---------------------------------------------------------------------- */

static int64_t patience(struct thread *t)
{
    switch (below(t, 4)) {
    case 0:
        return 0;
    case 1:
        return 1 + below(t, 300);
    default:
        return HF_FOREVER;
    }
}

static hf_request make_request(struct thread *t, struct grip *g)
{
    hf_request r = HF_REQUEST_INIT;

    memset(g, 0, sizeof(*g));
    g->id = atomic_fetch_add(&area->ids, 1) + 1;
    g->ttl_ms = r.ttl_ms = 300 + below(t, 1700);
    g->weight = 1;
    g->exclusive = one_in(t, 2);
    r.mode = g->exclusive ? HF_WRITE : HF_READ;
    r.flags = (one_in(t, 4) ? HF_BARGE : 0) | (one_in(t, 8) ? HF_NO_RENEW : 0);
    r.max_hold_ms = one_in(t, 8) ? 1 + below(t, 400) : 0;
    r.owner = one_in(t, 8) ? HF_OWNER_THREAD : HF_OWNER_CALL;
    r.note = one_in(t, 8) ? "a note" : NULL;
    r.cancel = one_in(t, 4) ? t->cancel : NULL;
    if (r.cancel)
        hf_cancel_reset(t->cancel);
    return r;
}

static void make_permits(struct thread *t, struct grip *g, hf_request *r)
{
    g->lines[0] = PERMITS;
    g->exclusive = false;
    g->weight = 1 + below(t, CAPACITY);
    r->mode = HF_PERMITS;
    r->permits = g->weight;
    r->capacity = CAPACITY;
}

/* Whether that answer is one that this call may give. */
static void judge(struct thread *t, struct grip *g, const hf_request *r, int64_t wait_ms,
                  int rc)
{
    bool right = rc == 0 || rc == HF_EBUSYSTORE || (rc == HF_EBUSY && wait_ms == 0) ||
                 (rc == HF_ETIMEDOUT && wait_ms != HF_FOREVER) ||
                 (rc == HF_ECANCELED && r->cancel) ||
                 (rc == HF_EDEADLK && (t->depth > 0 || g->n > 1)) ||
                 (rc == HF_ELOST && g->n > 1) || (rc == HF_EEVICTED && area->breaks);

    event_add(rc == 0 ? GRANTED : FAILED, g->lines[0], getpid(), rc,
              rc == 0 ? hf_lease_fence(g->lease) : 0);
    if (!right)
        violation(g->lines[0], "an acquire must not answer this", 0, rc);
    if (rc == HF_EDEADLK)
        atomic_fetch_add(&area->deadlocks, 1);
    if (rc == HF_EBUSYSTORE)
        atomic_fetch_add(&area->blocked, 1);
    t->depth += rc == 0;
}

static hf_client *either(struct thread *t)
{
    return one_in(t, 2) ? t->own : common;
}

static int take(struct thread *t, hf_client *client, struct grip *g, const hf_request *r)
{
    int64_t wait_ms = patience(t);
    int rc;

    g->n = 1;
    g->client = client;
    event_add(ASKS, g->lines[0], getpid(), 0, 0);
    rc = hf_acquire(client, line_names[g->lines[0]], wait_ms, r, &g->lease, E());
    judge(t, g, r, wait_ms, rc);
    return rc;
}

/* A second lease inside the first, in any order of names, but never of the same name; of
 * the same client, because what another client of the process holds is not known to the
 * one that looks for a deadlock. */
static void more_inside(struct thread *t, const struct grip *outer)
{
    struct grip g;
    hf_request r = make_request(t, &g);

    g.lines[0] = below(t, LOCKS);
    if (g.lines[0] == outer->lines[0])
        make_permits(t, &g, &r);
    if (g.lines[0] == outer->lines[0] || take(t, outer->client, &g, &r) != 0)
        return;
    inside(t, &g);
    finish(t, &g);
}

static void one_lock(struct thread *t)
{
    struct grip g;
    hf_request r = make_request(t, &g);

    g.lines[0] = below(t, LOCKS);
    if (one_in(t, 4))
        make_permits(t, &g, &r);
    if (take(t, either(t), &g, &r) != 0)
        return;
    if (inside(t, &g) && one_in(t, 12))
        more_inside(t, &g);
    finish(t, &g);
}

static void several(struct thread *t)
{
    const char *names[LOCKS];
    struct grip g;
    hf_request r = make_request(t, &g);
    int64_t wait_ms = patience(t);
    int rc;

    for (unsigned i = 0; i < LOCKS; i++)
        if (one_in(t, 2) || (i == LOCKS - 1 && g.n == 0)) {
            g.lines[g.n] = i;
            names[g.n++] = line_names[i];
        }
    event_add(ASKS, g.lines[0], getpid(), 0, 0);
    rc = hf_acquire_all(either(t), names, g.n, wait_ms, &r, &g.lease, E());
    judge(t, &g, &r, wait_ms, rc);
    if (rc != 0)
        return;
    inside(t, &g);
    finish(t, &g);
}

/* ---- callbacks ------------------------------------------------------------------- */

struct started {
    atomic_int done;
    int rc;
    hf_lease *lease;
};

static void on_done(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct started *s = user;

    (void)op;
    (void)err;
    s->rc = rc;
    s->lease = lease;
    atomic_store(&s->done, 1);
}

/* Only on the own client: somebody must be there to run the callback. */
static void started_lock(struct thread *t)
{
    struct started s = { .rc = 0 };
    struct grip g;
    hf_request r = make_request(t, &g);
    int64_t wait_ms = patience(t), until;
    hf_op *op = NULL;
    int rc;

    g.n = 1;
    g.lines[0] = below(t, LOCKS);
    rc = hf_acquire_start(t->own, line_names[g.lines[0]], wait_ms, &r, on_done, &s, &op,
                          E());
    CHECK_RC(rc, 0);
    until = now_ms() + below(t, 200);
    while (!s.done && now_ms() < until)
        hf_client_wait(t->own, 10);
    if (!s.done && !t->prompt && one_in(t, 2)) { /* else it may be running just now */
        hf_op_free(op);
        return;
    }
    if (!s.done)
        hf_op_cancel(op);
    while (!s.done)
        hf_client_wait(t->own, 100);
    hf_op_free(op);
    g.lease = s.lease;
    if (s.rc != HF_ECANCELED)
        judge(t, &g, &r, wait_ms, s.rc);
    if (s.rc != 0)
        return;
    inside(t, &g);
    finish(t, &g);
}

/* ---- and the rest ---------------------------------------------------------------- */

/* Marks any ticket: a hold may then only end at its expiry, what is kept ends at once. */
static void look_and_break(struct thread *t)
{
    unsigned line = below(t, LINES);
    hf_list *list = NULL;
    int rc = hf_look(either(t), line_names[line], &list, E());

    if (rc != 0 && rc != HF_EBUSYSTORE)
        violation(line, "a look must not answer this", 0, rc);
    if (rc == 0 && hf_list_count(list) > 0 && area->breaks && one_in(t, 4)) {
        const hf_line *l = hf_list_at(list, 0);
        size_t n = hf_line_tickets(l);
        const hf_ticket *who = n ? hf_line_ticket(l, below(t, (unsigned)n)) : NULL;

        rc = who ? hf_evict(either(t), line_names[line], hf_ticket_id(who), 0, E()) : 0;
        if (rc != 0 && rc != HF_ENOENT && rc != HF_EBUSYSTORE)
            violation(line, "a break must not answer this", 0, rc);
    }
    hf_list_free(list);
}

/* What a child does with what it has inherited: it may not do anything with it, and what
 * it does on its own is its own. */
_Noreturn static void child(struct thread *t, struct grip *g)
{
    hf_client *c = NULL;
    hf_lease *l = NULL;

    CHECK(hf_lease_check(g->lease) != 0);
    CHECK_RC(hf_acquire(t->own, line_names[0], 0, NULL, &l, E()), HF_EFORKED);
    if (TEST_SANITIZED)
        _exit(0);
    if (one_in(t, 2))
        hf_release(g->lease, NULL);
    if (one_in(t, 2))
        hf_close(t->own);
    if (one_in(t, 2) && hf_open(setting->url, NULL, &c, E()) == 0) {
        int rc = hf_acquire(c, line_names[0], 20, HF_REQUEST(.ttl_ms = 300), &l, E());

        /* evicted: another worker may have chosen its ticket */
        CHECK(rc == 0 || rc == HF_ETIMEDOUT || rc == HF_EBUSYSTORE || rc == HF_EEVICTED);
        if (one_in(t, 2))
            hf_close(c);
    }
    _exit(0);
}

static void fork_inside(struct thread *t)
{
    struct grip g;
    hf_request r = make_request(t, &g);
    pid_t pid, me = getpid();
    int status;

    g.lines[0] = below(t, LOCKS);
    r.owner = HF_OWNER_CALL;
    if (take(t, either(t), &g, &r) != 0)
        return;
    CHECK((pid = fork()) >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != me)
            _exit(0);
        child(t, &g);
    }
    inside(t, &g);
    while (waitpid(pid, &status, 0) < 0)
        CHECK(errno == EINTR);
    if (status != 0)
        violation(g.lines[0], "a child of its ended badly", 0, status);
    finish(t, &g);
}

/* With a lease out: closing gives its place back, the handle stays. */
static void reopen(struct thread *t)
{
    struct grip g;
    hf_request r = make_request(t, &g);
    bool held = false;

    g.lines[0] = below(t, LOCKS);
    g.n = 1;
    if (one_in(t, 2) &&
        hf_acquire(t->own, line_names[g.lines[0]], 0, &r, &g.lease, E()) == 0) {
        t->depth++;
        held = true;
        inside(t, &g);
    }
    hf_close(t->own);
    if (held) {
        if (hf_lease_check(g.lease) == 0)
            violation(g.lines[0], "held after hf_close", hf_lease_fence(g.lease), 0);
        hf_release(g.lease, NULL);
        t->depth--;
    }
    t->own = open_client(t);
}

static void *run(void *arg)
{
    struct thread *t = arg;

    while (!area->stop) {
        switch (below(t, 32)) {
        case 0:
            reopen(t);
            break;
        case 1:
            fork_inside(t);
            break;
        case 2:
        case 3:
            look_and_break(t);
            break;
        case 4:
        case 5:
        case 6:
            started_lock(t);
            break;
        case 7:
        case 8:
        case 9:
        case 10:
            several(t);
            break;
        default:
            one_lock(t);
        }
    }
    return NULL;
}

/* The storm of signals: fires a cancel token now and then, and interrupts everything. */
static void on_signal(int sig)
{
    static atomic_uint n;
    unsigned i = atomic_fetch_add(&n, 1) % THREADS_MAX;
    int saved = errno;

    (void)sig;
    if (threads[i].cancel)
        hf_cancel_fire(threads[i].cancel);
    errno = saved;
}

void worker(const struct torture *how)
{
    struct sigaction act = { .sa_handler = on_signal };
    pthread_t ids[THREADS_MAX];

    setting = how;
    threads[0].seed = how->seed;
    common = open_client(&threads[0]);
    for (int i = 0; i < how->threads; i++) {
        threads[i].seed = how->seed * 31 + (unsigned)i;
        threads[i].own = open_client(&threads[i]);
        CHECK_RC(hf_cancel_new(&threads[i].cancel, E()), 0);
    }
    sigaction(SIGUSR1, &act, NULL);
    for (int i = 0; i < how->threads; i++)
        CHECK(pthread_create(&ids[i], NULL, run, &threads[i]) == 0);
    for (int i = 0; i < how->threads; i++)
        pthread_join(ids[i], NULL);
    signal(SIGUSR1, SIG_IGN);
    hf_close(common);
    for (int i = 0; i < how->threads; i++) {
        hf_close(threads[i].own);
        hf_cancel_free(threads[i].cancel);
    }
    exit(0);
}
