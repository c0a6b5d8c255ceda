/* exclusion.c: G1 as a user sees it. An unprotected counter loses updates unless the
 * lock works; the control shows that it does lose them without. Also counted: whether
 * somebody was inside already, and whether fences grew in the order of the holds (G2).
 */
#include "rig.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { WORKERS = 6, ROUNDS = 100, CONTROL_ROUNDS = 2000 };

struct tally { /* in memory shared by all processes of the case */
    volatile long count;
    volatile int inside, overlaps;
    volatile uint64_t fence;
    const char *name; /* NULL: without the lock */
    hf_client *client;
    long rounds;
};

static struct tally *tally_new(const char *name, long rounds)
{
    struct tally *t =
        mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(t != MAP_FAILED);
    t->name = name;
    t->rounds = rounds;
    return t;
}

static void bump(struct tally *t)
{
    long was = t->count;

    sched_yield();
    t->count = was + 1;
}

static void one_round(struct tally *t, hf_client *c)
{
    hf_lease *l = taken(c, t->name, NULL);
    uint64_t fence = hf_lease_fence(l);

    if (t->inside++)
        t->overlaps++;
    CHECK(fence > t->fence);
    t->fence = fence;
    bump(t);
    t->inside--;
    given(l);
}

static void *work_thread(void *arg)
{
    struct tally *t = arg;

    for (long i = 0; i < t->rounds; i++)
        one_round(t, t->client);
    return NULL;
}

static void *work_own_client(void *arg)
{
    struct tally *t = arg;
    hf_client *c = opened();

    for (long i = 0; i < t->rounds; i++)
        one_round(t, c);
    closed(c);
    return NULL;
}

static void work_process(void *arg)
{
    work_own_client(arg);
}

static void work_unlocked(void *arg)
{
    struct tally *t = arg;

    for (long i = 0; i < t->rounds; i++)
        bump(t);
}

static long run_processes(struct tally *t, void (*body)(void *))
{
    pid_t pids[WORKERS];

    for (int i = 0; i < WORKERS; i++)
        pids[i] = proc_start(body, t);
    for (int i = 0; i < WORKERS; i++)
        proc_end(pids[i]);
    return t->count;
}

static void exclusion_threads(void)
{
    struct tally *t = tally_new(nm("n"), ROUNDS);

    t->client = opened();
    in_threads(WORKERS, work_thread, t);
    CHECK_NUM(t->count, ==, WORKERS * ROUNDS);
    CHECK_NUM(t->overlaps, ==, 0);
    CHECK(line_is(t->client, t->name, 0, 0));
    closed(t->client);
}

static void exclusion_clients(void)
{
    struct tally *t = tally_new(nm("n"), ROUNDS);

    in_threads(WORKERS, work_own_client, t);
    CHECK_NUM(t->count, ==, WORKERS * ROUNDS);
    CHECK_NUM(t->overlaps, ==, 0);
}

static void exclusion_processes(void)
{
    struct tally *t = tally_new(nm("n"), ROUNDS);

    CHECK_NUM(run_processes(t, work_process), ==, WORKERS * ROUNDS);
    CHECK_NUM(t->overlaps, ==, 0);
}

/* The same counter without the lock must lose updates, or the cases above prove nothing. */
static void exclusion_control(void)
{
    for (int i = 0; i < 100; i++) {
        struct tally *t = tally_new(NULL, CONTROL_ROUNDS);
        bool lost = run_processes(t, work_unlocked) < WORKERS * CONTROL_ROUNDS;

        munmap(t, sizeof(*t));
        if (lost)
            return;
    }
    check_failed(__FILE__, __LINE__, "an unprotected counter never lost an update");
}

static void shared_and_exclusive(void)
{
    const hf_request *read = HF_REQUEST(.mode = HF_READ),
                     *write = HF_REQUEST(.mode = HF_WRITE);
    hf_client *a = opened(), *b = opened();
    hf_lease *r1, *r2, *m;

    m = taken(a, nm("n"), NULL);
    CHECK_RC(tried(b, nm("n"), read), HF_EBUSY);
    CHECK_RC(tried(b, nm("n"), write), HF_EBUSY);
    given(m);
    r1 = taken(a, nm("n"), read);
    r2 = taken(b, nm("n"), read);
    CHECK_RC(tried(b, nm("n"), NULL), HF_EBUSY);
    CHECK_RC(tried(b, nm("n"), write), HF_EBUSY);
    given(r1);
    CHECK_RC(tried(a, nm("n"), NULL), HF_EBUSY);
    given(r2);
    CHECK_RC(tried(a, nm("n"), write), 0);
    CHECK(line_is(a, nm("n"), 0, 0));
    closed(a);
    closed(b);
}

struct crowd {
    hf_client *client;
    const char *name;
    atomic_int number, readers, writers;
};

static void *reader_or_writer(void *arg)
{
    struct crowd *w = arg;
    bool writes = atomic_fetch_add(&w->number, 1) % 3 == 0;
    const hf_request *req = HF_REQUEST(.mode = writes ? HF_WRITE : HF_READ);

    for (int i = 0; i < ROUNDS; i++) {
        hf_lease *l = taken(w->client, w->name, req);

        if (writes) {
            CHECK_NUM(atomic_fetch_add(&w->writers, 1), ==, 0);
            CHECK_NUM(atomic_load(&w->readers), ==, 0);
        } else {
            atomic_fetch_add(&w->readers, 1);
            CHECK_NUM(atomic_load(&w->writers), ==, 0);
        }
        sched_yield();
        atomic_fetch_sub(writes ? &w->writers : &w->readers, 1);
        given(l);
    }
    return NULL;
}

/* Each of the crowd has a fixed number of turns, and all must come to their end. */
static void readers_and_writers(void)
{
    struct crowd w = { .client = opened(), .name = nm("n") };

    in_threads(9, reader_or_writer, &w);
    CHECK(line_is(w.client, w.name, 0, 0));
    closed(w.client);
}

static void writer_not_passed(void)
{
    const hf_request *read = HF_REQUEST(.mode = HF_READ),
                     *write = HF_REQUEST(.mode = HF_WRITE);
    hf_client *c = opened();
    hf_lease *l = taken(c, nm("n"), read);
    struct pend *w1 = queued(c, nm("n"), 1, write), *r = queued(c, nm("n"), 2, read),
                *w2 = queued(c, nm("n"), 3, write);

    STAYS(!pend_done(w1) && !pend_done(r) && !pend_done(w2), 100);
    given(l);
    l = pend_granted(w1);
    CHECK(!pend_done(r) && !pend_done(w2));
    given(l);
    l = pend_granted(r);
    CHECK(!pend_done(w2));
    given(l);
    given(pend_granted(w2));
    CHECK(line_is(c, nm("n"), 0, 0));
    closed(c);
}

const struct test_case exclusion_cases[] = {
    { "exclusion-threads", exclusion_threads, ON_ALL, HF_CAP_FENCE, CASE_TOPOLOGY },
    { "exclusion-clients", exclusion_clients, ON_ALL, HF_CAP_FENCE, 0 },
    { "exclusion-processes", exclusion_processes, ON_ALL, HF_CAP_FENCE, CASE_TOPOLOGY },
    { "exclusion-control", exclusion_control, ON_BLOCKING, 0, 0 },
    { "shared-and-exclusive", shared_and_exclusive, ON_ALL, HF_CAP_SHARED, CASE_TOPOLOGY },
    { "readers-and-writers", readers_and_writers, ON_ALL, HF_CAP_SHARED, 0 },
    { "writer-not-passed", writer_not_passed, ON_ALL, HF_CAP_SHARED | HF_CAP_LINE, 0 },
    { NULL, NULL, 0, 0, 0 },
};
