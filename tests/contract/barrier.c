/* barrier.c: nobody passes before all have come; a party that dies or gives up wakes the
 * others; the next round does not mix with the last.
 */
#include "recipes.h"
#include "sanitizer.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MANY_PARTIES =
        TEST_SANITIZED ? 16 : 50, /* fifty of those starve a server beside them */
    MANY_ROUNDS = 12,
    SHORT_MS = 2000,
    NEEDS = HF_CAP_PERMITS | HF_CAP_CELL | HF_CAP_LINE
};

static struct {
    atomic_int *came; /* in each round */
    uint32_t parties;
    int rounds;
} plan;

static void meet(void *arg)
{
    hf_client *c = opened();

    for (int round = 0; round < plan.rounds; round++) {
        atomic_fetch_add(&plan.came[round], 1);
        CHECK_RC(r_barrier(c, arg, plan.parties, LIMIT_MS, NULL), 0);
        CHECK_NUM(plan.came[round], ==, plan.parties);
    }
    closed(c);
}

static void all_meet(uint32_t parties, int rounds)
{
    const char *name = nm("n");
    pid_t pids[MANY_PARTIES];
    hf_client *c;

    plan.came = shared((size_t)rounds * sizeof *plan.came);
    plan.parties = parties;
    plan.rounds = rounds;
    for (uint32_t i = 0; i < parties; i++)
        pids[i] = proc_start(meet, (void *)(uintptr_t)name);
    for (uint32_t i = 0; i < parties; i++)
        proc_end(pids[i]);
    c = opened();
    await_line(c, name, 0, 0);
    closed(c);
}

static void barrier_processes(void)
{
    all_meet(MANY_PARTIES, 2);
}

/* Few parties: whoever is early waits in the next round. */
static void barrier_rounds(void)
{
    all_meet(3, MANY_ROUNDS);
}

static struct later party(hf_client *c, uint32_t n)
{
    return (struct later){
        .what = LATER_BARRIER, .client = c, .name = nm("n"), .n = n, .wait_ms = LIMIT_MS
    };
}

static void barrier_given_up(void)
{
    hf_client *c = opened(), *other = opened();
    struct later a = party(c, 3), b = party(other, 3), again[3];
    hf_cancel *cancel = NULL;

    CHECK_RC(r_barrier(c, nm("alone"), 1, 0, NULL), 0);
    later_start(&a);
    await_line(c, nm("n"), 1, 0);
    CHECK_RC(r_barrier(c, nm("n"), 2, 0, NULL), HF_EMISMATCH);
    /* its time is over, by a token, or at once */
    b.wait_ms = SHORT_MS;
    later_start(&b);
    await_line(c, nm("n"), 2, 0);
    CHECK_RC(later_end(&b), HF_ETIMEDOUT);
    CHECK_RC(later_end(&a), HF_EPARTY);
    CHECK(last_error()->retry);
    await_line(c, nm("n"), 0, 0); /* places of this round would be counted in the next */
    CHECK_RC(hf_cancel_new(&cancel, E()), 0);
    a = party(c, 3);
    b = party(other, 3);
    b.req.cancel = cancel;
    later_start(&a);
    later_start(&b);
    await_line(c, nm("n"), 2, 0);
    hf_cancel_fire(cancel);
    CHECK_RC(later_end(&b), HF_ECANCELED);
    CHECK_RC(later_end(&a), HF_EPARTY);
    hf_cancel_free(cancel);
    await_line(c, nm("n"), 0, 0);
    a = party(c, 3);
    later_start(&a);
    await_line(c, nm("n"), 1, 0);
    CHECK_RC(r_barrier(other, nm("n"), 3, 0, NULL), HF_EBUSY);
    CHECK_RC(later_end(&a), HF_EPARTY);
    await_line(c, nm("n"), 0, 0);
    for (int i = 0; i < 3; i++) { /* and the next round is whole */
        again[i] = party(i ? c : other, 3);
        later_start(&again[i]);
    }
    for (int i = 0; i < 3; i++)
        CHECK_RC(later_end(&again[i]), 0);
    closed(c);
    closed(other);
}

static void die_at_it(void *arg)
{
    hf_client *c = opened();

    r_barrier(c, arg, 3, LIMIT_MS, HF_REQUEST(.ttl_ms = ttl_of(SHORT_MS)));
    check_failed(__FILE__, __LINE__, "it was to be killed");
}

static void barrier_party_killed(void)
{
    const char *name = nm("n");
    pid_t pid = proc_start(die_at_it, (void *)(uintptr_t)name); /* no threads yet */
    hf_client *c = opened();
    struct later a = party(c, 3), again[3];
    int status;

    await_line(c, name, 1, 0);
    later_start(&a);
    await_line(c, name, 2, 0);
    STAYS(!a.done, 1000); /* one that it has not seen yet it would not miss */
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    CHECK_RC(later_end(&a), HF_EPARTY);
    await_line(c, name, 0, 0);
    for (int i = 0; i < 3; i++) {
        again[i] = party(c, 3);
        later_start(&again[i]);
    }
    for (int i = 0; i < 3; i++)
        CHECK_RC(later_end(&again[i]), 0);
    closed(c);
}

/* Its place ends while it waits: it cannot know what becomes of the others, and they miss
 * it. */
static void barrier_lost(void)
{
    hf_client *c = opened(), *other = opened();
    struct later a = party(c, 3), b = party(other, 3);

    a.req.flags = HF_NO_RENEW;
    a.req.ttl_ms = ttl_of(SHORT_MS);
    later_start(&a);
    await_line(c, nm("n"), 1, 0);
    later_start(&b);
    CHECK_RC(later_end(&a), HF_ELOST);
    CHECK_RC(later_end(&b), HF_EPARTY);
    await_line(c, nm("n"), 0, 0);
    closed(c);
    closed(other);
}

static void on_end(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    (void)op;
    outcome_set(user, rc, lease, err);
}

/* A party of the round that opened, which does not run just now, finds its own round when
 * it runs again, however many of the next have been broken. */
static void barrier_late_reader(void)
{
    hf_client *c = opened(), *slow = NULL;
    struct outcome out;
    hf_op *op = NULL;

    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &slow, E()), 0);
    outcome_init(&out);
    CHECK_RC(hf_barrier_start(slow, nm("n"), 2, HF_FOREVER, NULL, on_end, &out, &op, E()),
             0);
    while (!line_is(c, nm("n"), 1, 0))
        CHECK(hf_client_wait(slow, 10) >= 0);
    CHECK_RC(r_barrier(c, nm("n"), 2, LIMIT_MS, NULL), 0); /* both have come */
    for (int i = 0; i < 2; i++) {
        await_line(c, nm("n"), 1, 0);
        CHECK_RC(r_barrier(c, nm("n"), 2, 50, NULL), HF_ETIMEDOUT);
    }
    CHECK(!outcome_done(&out));
    while (!outcome_done(&out))
        CHECK(hf_client_wait(slow, LIMIT_MS) >= 0);
    CHECK_RC(out.rc, 0);
    hf_op_free(op);
    outcome_fini(&out);
    hf_close(slow);
    await_line(c, nm("n"), 0, 0);
    closed(c);
}

const struct test_case barrier_cases[] = {
    { "barrier-processes", barrier_processes, ON_ALL, NEEDS, CASE_OWN_STORE | CASE_LONG },
    { "barrier-rounds", barrier_rounds, ON_ALL, NEEDS, CASE_TOPOLOGY },
    { "barrier-given-up", barrier_given_up, ON_ALL, NEEDS, 0 },
    { "barrier-party-killed", barrier_party_killed, ON_ALL, NEEDS, 0 },
    { "barrier-lost", barrier_lost, ON_ALL, NEEDS, 0 },
    { "barrier-late-reader", barrier_late_reader, ON_ALL, NEEDS, 0 },
    { NULL, NULL, 0, 0, 0 },
};
