/* rate.c: at most n starts in any window, by the store's clock.
 */
#include "recipes.h"

enum { PER_MS = 400, STARTERS = 3, STARTS = 3, N = 3 };

static void start_often(void *arg)
{
    hf_client *c = opened();

    for (int i = 0; i < STARTS; i++)
        CHECK_RC(r_rate(c, arg, N, PER_MS, LIMIT_MS, NULL), 0);
    closed(c);
}

/* So many starts take so many windows, but one, at least. */
static void rate_window(void)
{
    const char *name = nm("n");
    pid_t pids[STARTERS];
    int64_t start;

    start = now_ms();
    for (int i = 0; i < STARTERS; i++)
        pids[i] = proc_start(start_often, (void *)(uintptr_t)name);
    for (int i = 0; i < STARTERS; i++)
        proc_end(pids[i]);
    CHECK_NUM(now_ms() - start, >=, (STARTERS * STARTS - 1) / N * PER_MS);
}

static void rate_full(void)
{
    hf_client *c = opened(), *other = opened();
    struct seen s;

    for (int i = 0; i < N; i++)
        CHECK_RC(
            r_rate(i % 2 ? c : other, nm("n"), N, 60000, 0, HF_REQUEST(.note = "one more")),
            0);
    CHECK_RC(r_rate(c, nm("n"), N, 60000, 0, NULL), HF_EBUSY);
    CHECK_RC(r_rate(c, nm("n"), N, 60000, 100, NULL), HF_ETIMEDOUT);
    CHECK_RC(r_rate(c, nm("n"), N + 1, 60000, 0, NULL), HF_EMISMATCH);
    closed(other); /* what was started stays */
    await_line(c, nm("n"), N, 0);
    CHECK(see(c, nm("n"), 0, &s));
    CHECK(s.kept && s.expires_ms > 30000 && s.expires_ms <= 60000);
    CHECK_STR(s.note, "one more");
    CHECK_RC(hf_evict(c, nm("n"), s.id, 0, E()), 0);
    CHECK_RC(r_rate(c, nm("n"), N, 60000, LIMIT_MS, NULL), 0); /* there is room again */
    CHECK_RC(r_rate(c, nm("n"), N, 60000, 0, NULL), HF_EBUSY);
    closed(c);
}

const struct test_case rate_cases[] = {
    { "rate-window", rate_window, ON_ALL, HF_CAP_PERMITS | HF_CAP_KEEP, 0 },
    { "rate-full", rate_full, ON_ALL, HF_CAP_PERMITS | HF_CAP_KEEP | HF_CAP_LINE,
      CASE_TOPOLOGY },
    { NULL, NULL, 0, 0, 0 },
};
