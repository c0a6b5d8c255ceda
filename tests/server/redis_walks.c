/* redis_walks.c: what the search for deadlocks costs a server when very many wait, each of
 * them holding something: 50 processes of 20 owners that have waited for more than a
 * minute. And a deadlock that comes about then is found soon all the same (G10). */
#include "counts.h"

#include <holdfast/async.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

enum {
    PROCESSES = 50,
    OWNERS = 20,
    LONG_WAIT_MS = 64000, /* by then a walk is made about once a minute */
    MEASURED_MS = 20000,
    READS_PER_SECOND = 50,
    FOUND_MS = 5000
};

struct crowd {
    int number;
    int go, end; /* pipes: readable when it is to begin, and to end */
};

static void ended(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    (void)op;
    (void)err;
    (void)user;
    if (rc == 0)
        hf_release_start(l, NULL, NULL, NULL, NULL);
}

static void wait_in_line(void *arg)
{
    const struct crowd *k = arg;
    struct pollfd go = { .fd = k->go, .events = POLLIN };
    struct pollfd p = { .fd = k->end, .events = POLLIN };
    hf_client *c;
    hf_lease *held[OWNERS];
    hf_op *ops[OWNERS];
    hf_error e;

    CHECK_NUM(poll(&go, 1, -1), ==, 1);
    CHECK_RC(hf_open(rig.place->url, NULL, &c, &e), 0);
    for (int i = 0; i < OWNERS; i++) {
        uint64_t owner = (uint64_t)i + 1;
        char name[64];

        snprintf(name, sizeof(name), "own/%d/%d", k->number, i);
        CHECK_RC(hf_acquire(c, name, HF_FOREVER, HF_REQUEST(.owner = owner), &held[i], &e),
                 0);
        CHECK_RC(hf_acquire_start(c, "hot", HF_FOREVER, HF_REQUEST(.owner = owner), ended,
                                  NULL, &ops[i], &e),
                 0);
    }
    while (poll(&p, 1, 0) == 0)
        CHECK_NUM(hf_client_wait(c, 200), >=, 0);
    for (int i = 0; i < OWNERS; i++) {
        hf_op_free(ops[i]);
        hf_release(held[i], NULL);
    }
    hf_close(c);
}

/* A look at a line is two HGETALL, but for the one that is read up to a ticket. */
static int64_t reads(void)
{
    return calls("hgetall") / 2;
}

static struct pend *found_soon(hf_client *c)
{
    hf_lease *x = taken(c, "x", HF_REQUEST(.owner = 1002));
    struct pend *behind =
        queued(c, "hot", PROCESSES * OWNERS + 1, HF_REQUEST(.owner = 1002));
    int64_t began = now_ms();

    CHECK_RC(pend_end(begun(c, "x", HF_FOREVER, HF_REQUEST(.owner = 1001)), NULL),
             HF_EDEADLK);
    printf("a deadlock was found after %lld ms\n", (long long)(now_ms() - began));
    CHECK_WITHIN(began, FOUND_MS * TEST_SLOW);
    given(x);
    return behind;
}

static void nested_waiters(void)
{
    struct crowd k[PROCESSES];
    pid_t pids[PROCESSES];
    hf_client *c;
    hf_lease *hot;
    struct pend *behind;
    int64_t before, n;
    int go[2], done[2];

    begin();
    CHECK_NUM(pipe(go), ==, 0);
    CHECK_NUM(pipe(done), ==, 0);
    for (int i = 0; i < PROCESSES; i++) {
        k[i] = (struct crowd){ i, go[0], done[0] };
        pids[i] = proc_start(wait_in_line, &k[i]);
    }
    c = prompted();
    hot = taken(c, "hot", HF_REQUEST(.owner = 1001));
    CHECK_NUM(write(go[1], "", 1), ==, 1);
    await_line(c, "hot", 1, PROCESSES * OWNERS);
    STAYS(true, LONG_WAIT_MS);
    before = reads();
    STAYS(true, MEASURED_MS);
    n = reads() - before;
    printf("%d who wait and hold something: %lld lines read in %d s\n", PROCESSES * OWNERS,
           (long long)n, MEASURED_MS / 1000);
    CHECK_NUM(n, >, 0); /* else they do not look at all */
    CHECK_NUM(n, <=, READS_PER_SECOND * MEASURED_MS / 1000);
    behind = found_soon(c);
    CHECK_NUM(write(done[1], "", 1), ==, 1);
    for (int i = 0; i < PROCESSES; i++)
        proc_end(pids[i]);
    given(hot);
    given(pend_granted(behind));
    closed(c);
    for (int i = 0; i < 2; i++) {
        close(go[i]);
        close(done[i]);
    }
    end();
}

const struct test_case walk_cases[] = {
    { "nested_waiters", nested_waiters, ON_CALLBACK, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
