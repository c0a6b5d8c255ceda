/* count.c: counters and ids: no number twice, none lost, among processes, threads and
 * handles; a forked child does not hand out its parent's.
 */
#include "recipes.h"
#include "sanitizer.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNTERS = TEST_SANITIZED ? 16 : 50, EACH = 6, BLOCK = 7, THREADS = 6, TAKES = 60 };

static atomic_int *given_out; /* how often each number was */

static void count_often(void *arg)
{
    hf_client *c = opened();
    int64_t n, last = 0;

    for (int i = 0; i < EACH; i++) {
        CHECK_RC(r_count(c, arg, 1, &n), 0);
        CHECK_NUM(n, >, last);
        CHECK_NUM(n, <=, COUNTERS * EACH);
        atomic_fetch_add(&given_out[n], 1);
        last = n;
    }
    closed(c);
}

static void count_processes(void)
{
    const char *name = nm("n");
    pid_t pids[COUNTERS];
    hf_client *c;
    int64_t n;

    given_out = shared((COUNTERS * EACH + 1) * sizeof *given_out);
    for (int i = 0; i < COUNTERS; i++)
        pids[i] = proc_start(count_often, (void *)(uintptr_t)name);
    for (int i = 0; i < COUNTERS; i++)
        proc_end(pids[i]);
    for (int i = 1; i <= COUNTERS * EACH; i++)
        CHECK_NUM(given_out[i], ==, 1);
    c = opened();
    CHECK_RC(r_count(c, name, 0, &n), 0); /* reads */
    CHECK_NUM(n, ==, COUNTERS * EACH);
    CHECK_RC(r_count(c, name, 1000, &n), 0);
    CHECK_NUM(n, ==, COUNTERS * EACH + 1000);
    CHECK_RC(r_count(c, nm("unused"), 0, &n), 0);
    CHECK(n == 0 && record_is(c, nm("unused"), NULL));
    CHECK_RC(r_count(c, name, INT64_MAX, &n), HF_EFULL);
    CHECK_RC(r_count(c, name, 0, &n), 0);
    CHECK_NUM(n, ==, COUNTERS * EACH + 1000);
    closed(c);
}

static hf_ids *both[2];

static void *take_often(void *arg)
{
    hf_ids *ids = both[(intptr_t)arg % 2];
    int64_t n, last = 0;

    for (int i = 0; i < TAKES; i++) {
        CHECK_RC(r_next(ids, &n), 0);
        CHECK(n > 0 && n < 4 * THREADS * TAKES);
        CHECK_NUM(n, >, last); /* they grow, for one who takes them one by one */
        atomic_fetch_add(&given_out[n], 1);
        last = n;
    }
    return NULL;
}

static void ids_threads(void)
{
    hf_client *c = opened(), *other = opened();
    pthread_t threads[THREADS];
    int64_t n = 0;
    int total = 0;

    given_out = shared(4 * THREADS * TAKES * sizeof *given_out);
    CHECK_RC(hf_ids_open(c, nm("n"), BLOCK, &both[0], E()), 0);
    CHECK_RC(hf_ids_open(other, nm("n"), 1, &both[1], E()), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, take_often, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4 * THREADS * TAKES; i++) {
        CHECK_NUM(given_out[i], <=, 1);
        total += given_out[i];
    }
    CHECK_NUM(total, ==, THREADS * TAKES);
    CHECK_RC(r_count(c, nm("n"), 1, &n), 0); /* the same counter */
    CHECK_NUM(n, >=, THREADS * TAKES + 1);
    CHECK_NUM(n, <=, THREADS * TAKES + BLOCK); /* what is left of a block at most */
    CHECK(given_out[n] == 0);
    hf_ids_close(both[0]);
    hf_ids_close(both[1]);
    hf_ids_close(NULL);
    closed(c);
    closed(other);
}

static void ids_fork(void)
{
    hf_client *c = opened();
    hf_ids *ids = NULL;
    int64_t n = 0, after = 0;
    pid_t pid;
    int status;

    CHECK_RC(hf_ids_open(c, nm("n"), 10, &ids, E()), 0);
    CHECK_RC(r_next(ids, &n), 0);
    CHECK_NUM(n, ==, 1);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        int64_t theirs = 77;
        hf_op *op = NULL;
        int rc = hf_ids_next(ids, &theirs, NULL);
        int started = hf_ids_next_start(ids, (hf_done *)(uintptr_t)1, NULL, &op, NULL);

        hf_ids_close(ids);
        _exit(rc == HF_EFORKED && started == HF_EFORKED && theirs == 77 ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    closed(c);
    CHECK_RC(hf_ids_next(ids, &after, E()), 0); /* reserved is reserved */
    CHECK_NUM(after, ==, 2);
    for (int i = 3; i <= 10; i++)
        CHECK_RC(hf_ids_next(ids, &after, E()), 0);
    CHECK_RC(hf_ids_next(ids, &after, E()), HF_ECLOSED);
    CHECK_NUM(after, ==, 10);
    hf_ids_close(ids);
}

struct id_told {
    int calls, rc;
    int64_t number;
};

static void on_id(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct id_told *t = user;

    CHECK(!lease && (rc == 0 || err));
    t->calls++;
    t->rc = rc;
    t->number = hf_op_number(op);
}

/* Started together on a client that nobody drives: the first, which asks for all, is freed;
 * and the ids are closed over those that wait. */
static void ids_freed(void)
{
    hf_client *c = NULL;
    hf_ids *ids = NULL;
    hf_op *ops[4];

    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    CHECK_RC(hf_connect(c, LIMIT_MS, E()), 0);
    CHECK_RC(hf_ids_open(c, nm("n"), 2, &ids, E()), 0);
    for (int round = 0; round < 2; round++) {
        struct id_told told[4] = { { 0, 0, 0 } };

        for (int i = 0; i < 4; i++)
            CHECK_RC(hf_ids_next_start(ids, on_id, &told[i], &ops[i], E()), 0);
        if (round == 0)
            hf_op_free(ops[0]);
        else
            hf_ids_close(ids);
        while (told[3].calls == 0)
            CHECK(hf_client_wait(c, LIMIT_MS) > 0);
        for (int i = round == 0; i < 4; i++) {
            CHECK_NUM(told[i].calls, ==, 1);
            CHECK(told[i].rc == 0 || (round == 1 && told[i].rc == HF_ECLOSED));
            CHECK(told[i].rc < 0 || i == 0 || told[i].number > told[i - 1].number);
            hf_op_free(ops[i]);
        }
    }
    hf_close(c);
}

const struct test_case count_cases[] = {
    { "count-processes", count_processes, ON_ALL, HF_CAP_CELL, CASE_OWN_STORE },
    { "ids-threads", ids_threads, ON_ALL, HF_CAP_CELL, 0 },
    { "ids-fork", ids_fork, ON_ALL, HF_CAP_CELL, 0 },
    { "ids-freed", ids_freed, ON_CALLBACK, HF_CAP_CELL, 0 },
    { NULL, NULL, 0, 0, 0 },
};
