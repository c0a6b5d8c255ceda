/* once.c: work that is done one time: at most one at a time, never again once its success
 * is recorded, and again after a failure, a crash or a loss.
 */
#include "recipes.h"
#include "sanitizer.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Among many processes the one that works may not run for seconds. */
enum {
    RUNNERS = TEST_SANITIZED ? 16 : 50,
    FAILURES = 3,
    SHORT_MS = 2000,
    CROWD_MS = 10000
};

struct runs {
    atomic_int inside, begun, succeeded, done, at_once;
};
static struct runs *runs;

/* The first ones fail, the next one dies at it. */
static int work(hf_lease *l, void *user)
{
    int n = atomic_fetch_add(&runs->begun, 1);

    CHECK_RC(hf_lease_check(l), 0);
    CHECK(user == runs);
    CHECK_NUM(atomic_fetch_add(&runs->inside, 1), ==, 0);
    usleep(2000); /* so that others would get in */
    atomic_fetch_sub(&runs->inside, 1);
    if (n == FAILURES)
        kill(getpid(), SIGKILL);
    return n < FAILURES ? 7 : 0;
}

static void run_once(void *arg)
{
    const hf_request req = { .size = sizeof req, .ttl_ms = ttl_of(CROWD_MS) };
    hf_client *c = opened();
    int rc, result;

    do {
        result = 0;
        rc = hf_once(c, arg, 0, LIMIT_MS, &req, work, runs, &result, E());
        CHECK(rc == 0 || rc == 1);
    } while (rc == 0 && result == 7);
    atomic_fetch_add(rc == 0 ? &runs->succeeded : &runs->done, 1);
    closed(c);
}

/* The calls block, in every face: hf_once has no other form. */
static void once_processes(void)
{
    const char *name = nm("n");
    pid_t pids[RUNNERS];
    int status, killed = 0;

    runs = shared(sizeof *runs);
    for (int i = 0; i < RUNNERS; i++)
        pids[i] = proc_start(run_once, (void *)(uintptr_t)name);
    for (int i = 0; i < RUNNERS; i++) {
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0) || WIFSIGNALED(status));
    }
    CHECK_NUM(killed, ==, 1);
    CHECK_NUM(runs->begun, ==, FAILURES + 2);
    CHECK_NUM(runs->succeeded, ==, 1);
    CHECK_NUM(runs->done, ==, RUNNERS - 2);
}

static void once_wait(void)
{
    hf_client *c = opened(), *other = opened();
    struct later l = {
        .what = LATER_BEGIN, .client = other, .name = nm("n"), .wait_ms = LIMIT_MS
    };
    struct later again = l;
    hf_lease *mine = NULL, *none = NULL;

    CHECK_RC(r_begin(c, nm("n"), 0, 0, NULL, &mine), 0);
    CHECK_RC(r_begin(other, nm("n"), 0, 0, NULL, &none), HF_EBUSY);
    CHECK_RC(r_begin(other, nm("n"), 0, 100, NULL, &none), HF_ETIMEDOUT);
    later_start(&l);
    await_line(c, nm("n"), 1, 1);
    given(mine); /* it failed: the next one tries */
    CHECK_RC(later_end(&l), 0);
    mine = l.lease;
    CHECK_RC(hf_lease_check(mine), 0);
    again.client = c;
    later_start(&again);
    await_line(c, nm("n"), 1, 1);
    CHECK_RC(r_done(mine), 0);
    CHECK_RC(later_end(&again), 1);
    CHECK(!again.lease && !none);
    await_line(c, nm("n"), 0, 0);
    CHECK_RC(r_begin(c, nm("n"), 0, 0, NULL, &none), 1);
    CHECK_RC(r_forget(c, nm("n")), 1);
    CHECK_RC(r_forget(c, nm("n")), 0);
    CHECK_RC(r_begin(c, nm("n"), 0, 0, NULL, &mine), 0);
    CHECK_RC(r_done(mine), 0);
    closed(c);
    closed(other);
}

/* The lock is the same as that of hf_acquire; whoever waits for it hears of the mark all
 * the same. */
static void once_told_in_the_queue(void)
{
    hf_client *c = opened(), *other = opened();
    hf_lease *held = taken(c, nm("n"), NULL);
    struct later l = {
        .what = LATER_BEGIN, .client = other, .name = nm("n"), .wait_ms = HF_FOREVER
    };

    later_start(&l);
    await_line(c, nm("n"), 1, 1);
    record_put(c, nm("n"), "once 5");
    CHECK_RC(later_end(&l), 1);
    await_line(c, nm("n"), 1, 0);
    given(held);
    closed(c);
    closed(other);
}

static void once_lost(void)
{
    const hf_request brief = { .size = sizeof brief,
                               .ttl_ms = ttl_of(SHORT_MS),
                               .flags = HF_NO_RENEW };
    hf_client *c = opened(), *other = opened();
    hf_lease *late = NULL, *mine = NULL, *none = NULL;
    char mark[64];

    CHECK_RC(r_begin(c, nm("n"), 0, 0, &brief, &late), 0);
    CHECK_RC(r_begin(other, nm("n"), 0, LIMIT_MS, NULL, &mine), 0); /* when it is lost */
    CHECK_RC(r_done(late), HF_ELOST);
    CHECK(record_is(c, nm("n"), NULL));
    snprintf(mark, sizeof mark, "once %llu", (unsigned long long)hf_lease_fence(mine));
    CHECK_RC(r_done(mine), 0);
    CHECK(record_is(c, nm("n"), mark));
    CHECK_RC(r_begin(c, nm("n"), 0, 0, NULL, &none), 1);
    /* held, but somebody else has written: nothing is overwritten */
    CHECK_RC(r_begin(c, nm("m"), 0, 0, NULL, &mine), 0);
    record_put(other, nm("m"), "once 5");
    CHECK_RC(r_done(mine), HF_ELOST);
    CHECK(record_is(c, nm("m"), "once 5"));
    await_line(c, nm("m"), 0, 0);
    closed(c);
    closed(other);
}

static void once_expiry(void)
{
    hf_client *c = opened();
    hf_lease *l = NULL;
    int64_t start;

    CHECK_RC(r_begin(c, nm("n"), INT64_MAX, 0, NULL, &l), HF_ENOTSUP);
    CHECK_RC(r_begin(c, nm("n"), SHORT_MS, 0, NULL, &l), 0);
    start = now_ms();
    CHECK_RC(r_done(l), 0);
    CHECK_RC(r_begin(c, nm("n"), SHORT_MS, 0, NULL, &l), 1);
    AWAIT(r_begin(c, nm("n"), 0, 0, NULL, &l) == 0);
    CHECK_NUM(now_ms() - start, >=, SHORT_MS);
    CHECK_RC(r_done(l), 0);
    closed(c);
}

const struct test_case once_cases[] = {
    { "once-processes", once_processes, ON_ALL, HF_CAP_CELL, CASE_OWN_STORE | CASE_LONG },
    { "once-wait", once_wait, ON_ALL, HF_CAP_CELL | HF_CAP_LINE, CASE_TOPOLOGY },
    { "once-told-in-the-queue", once_told_in_the_queue, ON_ALL, HF_CAP_CELL | HF_CAP_LINE,
      0 },
    { "once-lost", once_lost, ON_ALL, HF_CAP_CELL, 0 },
    { "once-expiry", once_expiry, ON_ALL, HF_CAP_CELL | HF_CAP_CELL_EXPIRY, 0 },
    { NULL, NULL, 0, 0, 0 },
};
