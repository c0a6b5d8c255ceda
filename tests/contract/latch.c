/* latch.c: it opens when all events are counted, and stays open.
 */
#include "recipes.h"

enum { PARTIES = 12, EACH = 3 };

static void latch_basics(void)
{
    hf_client *c = opened(), *other = opened();
    struct later l = {
        .what = LATER_LATCH, .client = other, .name = nm("n"), .wait_ms = LIMIT_MS
    };
    int64_t left = 77;

    CHECK_RC(r_latch_left(c, nm("n"), &left), HF_ENOENT);
    CHECK_RC(r_latch_down(c, nm("n"), 1, &left), HF_ENOENT);
    CHECK_NUM(left, ==, 77);
    later_start(&l); /* it is waited for before it is set */
    CHECK_RC(r_latch_set(c, nm("n"), 3), 0);
    CHECK_RC(r_latch_set(other, nm("n"), 3), 1);
    CHECK_RC(r_latch_set(other, nm("n"), 4), HF_EMISMATCH);
    CHECK_RC(r_latch_wait(c, nm("n"), 0, NULL), HF_EBUSY);
    CHECK_RC(r_latch_wait(c, nm("n"), 50, NULL), HF_ETIMEDOUT);
    CHECK_RC(r_latch_down(c, nm("n"), 2, &left), 0);
    CHECK_NUM(left, ==, 1);
    CHECK_RC(r_latch_set(c, nm("n"), 3), 1); /* which changes nothing */
    CHECK_RC(r_latch_left(other, nm("n"), &left), 0);
    CHECK_NUM(left, ==, 1);
    CHECK(!l.done);
    CHECK_RC(r_latch_down(c, nm("n"), 5, &left), 0);
    CHECK_NUM(left, ==, 0);
    CHECK_RC(later_end(&l), 0);
    CHECK_RC(r_latch_wait(c, nm("n"), 0, NULL), 0);
    CHECK_RC(r_latch_down(c, nm("n"), 1, &left), 0);
    CHECK_NUM(left, ==, 0);
    CHECK_RC(r_latch_clear(c, nm("n")), 1);
    CHECK_RC(r_latch_clear(c, nm("n")), 0);
    CHECK_RC(r_latch_wait(c, nm("n"), 0, NULL), HF_EBUSY);
    CHECK_RC(r_latch_set(c, nm("n"), 0), 0); /* open at once */
    CHECK_RC(r_latch_wait(c, nm("n"), 0, NULL), 0);
    closed(c);
    closed(other);
}

static void count_down(void *arg)
{
    hf_client *c = opened();
    int64_t left, before = INT64_MAX;

    CHECK(r_latch_set(c, arg, PARTIES * EACH) >= 0);
    for (int i = 0; i < EACH; i++) {
        CHECK_RC(r_latch_down(c, arg, 1, &left), 0);
        CHECK(left < before && left >= 0);
        before = left;
    }
    CHECK_RC(r_latch_wait(c, arg, LIMIT_MS, NULL), 0);
    CHECK_RC(r_latch_left(c, arg, &left), 0);
    CHECK_NUM(left, ==, 0);
    closed(c);
}

static void latch_processes(void)
{
    const char *name = nm("n");
    pid_t pids[PARTIES];

    for (int i = 0; i < PARTIES; i++)
        pids[i] = proc_start(count_down, (void *)(uintptr_t)name);
    for (int i = 0; i < PARTIES; i++)
        proc_end(pids[i]);
}

const struct test_case latch_cases[] = {
    { "latch-basics", latch_basics, ON_ALL, HF_CAP_CELL, CASE_TOPOLOGY },
    { "latch-processes", latch_processes, ON_ALL, HF_CAP_CELL, CASE_OWN_STORE },
    { NULL, NULL, 0, 0, 0 },
};
