/* zookeeper_stress.c: many processes that take, queue, give up, become shared and let go
 * at random, through connections that are cut and servers that are killed, with a
 * witness in shared memory: no two may hold that exclude each other (G1), and fences
 * grow (G2). Sessions outlive what is done to them here, so nothing may be lost. The
 * seed is printed; the schedule is the machine's. */
#include "zookeeper_fault.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NAMES = 3, WORKERS = 6, CAPACITY = 3, RUN_MS = 12000, PAUSE_MS = 2500 };
enum { ENOUGH = 200, LONGER_MS = 40000 }; /* a machine with too much to do gets more time */

struct witness { /* of one name */
    atomic_int writers, readers, permits;
    atomic_ullong fence; /* of the last exclusive holder */
};

static struct {
    struct witness names[NAMES];
    atomic_int stop, grants, lost, cuts;
} * seen;

/* What the workers do; the last name is that of permits. */
static struct {
    const char *names[NAMES];
    int threads, burst; /* burst: how often the same name, and a pause after it */
    bool exclusive;     /* all of it */
} plan = { { "a", "b/c", "p" }, 3, 1, false };
static unsigned seed;

static void enter_exclusive(struct witness *w, const hf_lease *l)
{
    unsigned long long last = atomic_exchange(&w->fence, hf_lease_fence(l));

    CHECK_NUM(atomic_fetch_add(&w->writers, 1), ==, 0);
    CHECK_NUM(atomic_load(&w->readers), ==, 0);
    CHECK_NUM(hf_lease_fence(l), >, last);
}

static void hold(struct witness *w, hf_lease *l, int mode, int permits)
{
    int pause_us = rand() % 3000, rc;

    atomic_fetch_add(&seen->grants, 1);
    CHECK_RC(hf_lease_check(l), 0);
    if (mode == HF_PERMITS) {
        CHECK_NUM(atomic_fetch_add(&w->permits, permits) + permits, <=, CAPACITY);
    } else if (mode == HF_READ) {
        atomic_fetch_add(&w->readers, 1);
        CHECK_NUM(atomic_load(&w->writers), ==, 0);
        CHECK_NUM(hf_lease_fence(l), >=, atomic_load(&w->fence));
    } else {
        enter_exclusive(w, l);
    }
    usleep((useconds_t)pause_us);
    if (mode == 0 && !plan.exclusive && rand() % 4 == 0) { /* becomes shared */
        atomic_fetch_add(&w->readers, 1);
        atomic_fetch_sub(&w->writers, 1);
        mode = HF_READ;
        rc = hf_lease_downgrade(l, E());
        CHECK(rc == 0 || rc == HF_EUNKNOWN); /* whichever: others may be in */
        usleep((useconds_t)pause_us);
        CHECK_NUM(atomic_load(&w->writers), ==, 0);
    }
    if (hf_lease_check(l) != 0)
        atomic_fetch_add(&seen->lost, 1);
    if (mode == HF_PERMITS)
        atomic_fetch_sub(&w->permits, permits);
    else
        atomic_fetch_sub(mode == HF_READ ? &w->readers : &w->writers, 1);
}

static void work_once(hf_client *c, size_t i)
{
    bool counted = i == NAMES - 1 && !plan.exclusive;
    int permits = counted ? 1 + rand() % CAPACITY : 0;
    int mode = counted ? HF_PERMITS : !plan.exclusive && rand() % 3 == 0 ? HF_READ : 0;
    const hf_request *req = HF_REQUEST(.mode = (uint32_t)mode, .permits = (uint32_t)permits,
                                       .capacity = counted ? CAPACITY : 0);
    static const int64_t waits[] = { 0, 5, 50, 20000, 20000, 20000 };
    hf_lease *l = NULL;
    int rc = hf_acquire(c, plan.names[i], waits[rand() % 6], req, &l, E());

    if (rc == HF_EBUSY || rc == HF_ETIMEDOUT || rc == HF_EUNREACHABLE)
        return;
    CHECK_RC(rc, 0);
    hold(&seen->names[i], l, mode, permits);
    rc = hf_release(l, E());
    CHECK(rc == 0 || rc == HF_EUNKNOWN);
}

static void *thread(void *arg)
{
    while (!atomic_load(&seen->stop)) {
        size_t i = (size_t)rand() % NAMES;
        int n = 1 + rand() % plan.burst;

        while (n-- > 0 && !atomic_load(&seen->stop))
            work_once(arg, i);
        if (plan.burst > 1)
            usleep((useconds_t)(rand() % 150000));
    }
    return NULL;
}

static void worker(void *arg)
{
    hf_client *c = NULL;

    srand(seed + (unsigned)(uintptr_t)arg);
    CHECK_RC(hf_open(rig.place->url, NULL, &c, E()), 0);
    in_threads(plan.threads, thread, c);
    hf_close(c);
    fflush(NULL);
    _exit(0); /* what the parent's proxies had allocated would look like leaks of ours */
}

static void run(void (*trouble)(void))
{
    pid_t pids[WORKERS];
    int64_t until;

    seed = (unsigned)time(NULL) ^ (unsigned)getpid();
    fprintf(stderr, "seed %u\n", seed);
    srand(seed);
    seen = shared_new(sizeof(*seen));
    for (int i = 0; i < WORKERS; i++)
        pids[i] = proc_start(worker, (void *)(uintptr_t)i);
    until = now_ms() + RUN_MS;
    while (now_ms() < until || (seen->grants <= ENOUGH && now_ms() < until + LONGER_MS)) {
        trouble();
        nap();
    }
    if (proxy)
        proxy_cut_after(proxy, -1); /* who ends can tell the server */
    atomic_store(&seen->stop, 1);
    for (int i = 0; i < WORKERS; i++)
        proc_end(pids[i]);
    fprintf(stderr, "%d grants, %d cuts\n", seen->grants, seen->cuts);
    CHECK_NUM(seen->grants, >, ENOUGH);
    CHECK_NUM(seen->lost, ==, 0);
    for (size_t i = 0; i < NAMES; i++)
        CHECK(seen->names[i].writers == 0 && seen->names[i].readers == 0 &&
              seen->names[i].permits == 0);
}

/* Nothing is left in line, whatever became of requests under way; by the end of a session
 * at the latest, if a client was closed while nobody answered. */
static void nothing_left(hf_client *c)
{
    int64_t until = now_ms() + 3 * LIMIT_MS;

    for (size_t i = 0; i < NAMES; i++)
        while (!line_is(c, plan.names[i], 0, 0)) {
            CHECK_NUM(now_ms(), <, until);
            nap();
        }
    closed(c);
}

static void cut_now_and_then(void)
{
    if (rand() % 50 == 0) {
        proxy_drop(proxy);
        atomic_fetch_add(&seen->cuts, 1);
    } else if (rand() % 100 == 0) {
        proxy_cut_after(proxy, rand() % 3000);
    } else if (rand() % 30 == 0) {
        proxy_cut_after(proxy, -1);
    }
}

__attribute__((unused)) static void stress_cut(void)
{
    use_one_by_proxy("ttl=24s");
    run(cut_now_and_then);
    CHECK_NUM(seen->cuts, >, 10);
    nothing_left(opened_directly(0));
    done();
}

/* Seldom: what is known of a quiet line goes with the connection. */
static void cut_seldom(void)
{
    if (rand() % 100 == 0) {
        proxy_drop(proxy);
        atomic_fetch_add(&seen->cuts, 1);
    }
}

/* Each name is used by one client for a while, then by others, and all lie below each
 * other: most grants follow from the answer to create alone (quiet.c), while the server
 * removes nodes of lines that are empty, and they are made again. */
__attribute__((unused)) static void stress_quiet(void)
{
    static const char often[] = "-Dznode.container.checkIntervalMs=50";

    plan.names[1] = "a/b";
    plan.names[2] = "a/b/c";
    plan.threads = 1;
    plan.burst = 30;
    CHECK(setenv("JAVA_TOOL_OPTIONS", often, 1) == 0);
    use_one_by_proxy("ttl=24s");
    CHECK(unsetenv("JAVA_TOOL_OPTIONS") == 0);
    run(cut_seldom);
    CHECK_NUM(seen->cuts, >, 2);
    nothing_left(opened_directly(0));
    done();
}

/* One node for each name, which only a read after its create says to be ours. */
__attribute__((unused)) static void stress_ephemeral(void)
{
    plan.exclusive = true;
    use_one_by_proxy("ttl=24s&mode=ephemeral");
    run(cut_now_and_then);
    CHECK_NUM(seen->cuts, >, 10);
    nothing_left(opened_past());
    done();
}

/* One server at a time is killed and started again; the ensemble goes on. The next one is
 * killed only some time after that one serves again: if a leader ends while a member that
 * has just come back is still writing what it was sent, ZooKeeper 3.8.0 forgets committed
 * changes (docs/guarantees.md), and nodes of living sessions are gone. */
static void kill_now_and_then(void)
{
    static int64_t next;
    static int victim = -1;
    static bool back = true;

    if (!back && !zk_serves(&servers->servers[victim]))
        return;
    if (!back)
        next = now_ms() + PAUSE_MS;
    back = true;
    if (now_ms() < next)
        return;
    next = now_ms() + PAUSE_MS;
    if (victim >= 0 && !server_runs(&servers->servers[victim])) {
        zk_run(servers, (size_t)victim);
        back = false;
        return;
    }
    victim = (victim + 1) % 3;
    server_kill(&servers->servers[victim]);
    atomic_fetch_add(&seen->cuts, 1);
}

__attribute__((unused)) static void stress_servers(void)
{
    use_three("ttl=24s", "");
    run(kill_now_and_then);
    CHECK_NUM(seen->cuts, >, 1);
    for (size_t i = 0; i < 3; i++)
        if (!server_runs(&servers->servers[i]))
            zk_run(servers, i);
    zk_await(servers, 0);
    nothing_left(opened_directly(0));
    done();
}

const struct test_case zookeeper_stress_cases[] = {
#if !TEST_TSAN /* in which a process that was forked beside threads may start none */
    { "stress-cut", stress_cut, ON_BLOCKING, 0, CASE_LONG },
#if !TEST_SANITIZED /* in which its allocator may be locked for ever (sanitizer.h) */
    { "stress-quiet", stress_quiet, ON_BLOCKING, 0, CASE_LONG },
    { "stress-ephemeral", stress_ephemeral, ON_BLOCKING, 0, CASE_LONG },
#endif
    { "stress-servers", stress_servers, ON_BLOCKING, 0, CASE_LONG },
#endif
    { NULL, NULL, 0, 0, 0 },
};
