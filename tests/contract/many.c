/* many.c: 10,000 waiters of one name in one process. Each costs at most 1 KiB of memory
 * beyond its name and note and no descriptor, and a hand-off is as much work with 10,000
 * waiters as with 10. Work is counted, not timed: transactions or commands of the store,
 * and processor time only within a factor that work growing with the queue would leave far
 * behind.
 */
#include "rig.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { FEW = 10, MANY = 10000, HANDOFFS = 200, OVERHEAD = 1024 };

struct waiter {
    hf_op *op;
    hf_lease *lease;
    int rc;
};

struct queue {
    hf_client *client; /* driven by this thread alone */
    struct waiter waiters[MANY];
    int next;   /* the first that has no grant */
    int joined; /* the first that has not started */
    int n;      /* of waiters */
};

static struct queue q;

static void on_granted(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    struct waiter *w = user;

    (void)op;
    if (rc < 0)
        *E() = *err;
    CHECK_RC(rc, 0);
    CHECK(w == &q.waiters[q.next]); /* G3, 10,000 times */
    w->lease = l;
    q.next++;
}

static size_t tickets(void)
{
    hf_list *list = NULL;
    const hf_line *line;
    size_t n;

    CHECK_RC(hf_look(q.client, nm("n"), &list, E()), 0);
    line = hf_list_at(list, 0);
    n = line ? (size_t)(hf_line_holders(line) + hf_line_waiters(line)) : 0;
    hf_list_free(list);
    return n;
}

/* As long as some more come. Looking at all of them is work for the store, too. */
static void await_joined(void)
{
    int64_t until = now_ms() + LIMIT_MS;
    size_t had = 0, n;

    while ((n = tickets()) < (size_t)(q.joined - (q.next > 0 ? q.next - 1 : 0))) {
        until = n > had ? now_ms() + LIMIT_MS : until;
        had = n;
        CHECK_NUM(now_ms(), <, until);
        CHECK(hf_client_wait(q.client, n > 100 ? 200 : 5) >= 0);
    }
    AWAIT((hf_client_process(q.client) >= 0) &&
          line_is(q.client, nm("n"), 1, (size_t)(q.joined - q.next)));
}

static void join_until(int n)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = 600000);

    for (; q.joined < n; q.joined++) {
        struct waiter *w = &q.waiters[q.joined];

        CHECK_RC(hf_acquire_start(q.client, nm("n"), HF_FOREVER, req, on_granted, w, &w->op,
                                  E()),
                 0);
        if (q.joined % 64 == 0)
            CHECK(hf_client_process(q.client) >= 0);
    }
    await_joined();
}

static void hand_off(void)
{
    struct waiter *w = &q.waiters[q.next - 1];
    int before = q.next;

    CHECK_RC(hf_release_start(w->lease, NULL, NULL, NULL, E()), 0);
    hf_op_free(w->op);
    while (q.next == before)
        CHECK(hf_client_wait(q.client, 1000) >= 0);
    CHECK_NUM(q.next, ==, before + 1); /* and nobody else was woken */
}

struct cost {
    int64_t work, cpu_us;
};

static struct cost measure(void)
{
    struct timespec ts;
    struct cost c = { .work = rig.setup->work(rig.place) };

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    c.cpu_us = (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
    return c;
}

/* Joins are not part of it: `refill` keeps the queue at FEW between two hand-offs. */
static struct cost hand_offs(bool refill)
{
    struct cost sum = { 0, 0 };

    for (int i = 0; i < HANDOFFS; i++) {
        struct cost before, after;

        if (refill)
            join_until(q.next + FEW);
        before = measure();
        hand_off();
        after = measure();
        sum.work += after.work - before.work;
        sum.cpu_us += after.cpu_us - before.cpu_us;
    }
    return sum;
}

static size_t heap(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

/* What each of `more` takes beyond `before`. Answers that are just being read are not
 * theirs: when those have been freed it must fit. */
static void weigh(size_t before, size_t more)
{
    size_t limit = OVERHEAD + strlen(nm("n")) + 1, each;
    int64_t until = now_ms() + LIMIT_MS;

    do {
        CHECK(hf_client_wait(q.client, 5) >= 0);
        each = (heap() - before) / more;
    } while (each > limit && now_ms() < until && !TEST_SANITIZED);
    fprintf(stderr, "%zu bytes for each waiter\n", each);
    if (!TEST_SANITIZED)
        CHECK_NUM(each, <=, limit);
}

static void ten_thousand_waiters(void)
{
    size_t before, more;
    struct cost few, many;
    int fds;

    q.n = rig.all || !rig.setup->waiters ? MANY : rig.setup->waiters;
    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &q.client, E()), 0);
    join_until(1);
    AWAIT((hf_client_process(q.client), q.next == 1));
    few = hand_offs(true);
    join_until(q.next + FEW);
    fds = open_fds();
    before = heap();
    more = (size_t)(q.n - q.joined);
    join_until(q.n);
    CHECK_NUM(open_fds(), <=, fds + 2);
    weigh(before, more);
    many = hand_offs(false);
    fprintf(stderr,
            "%d hand-offs: %lld transactions, %lld us; with %d waiters %lld, %lld\n",
            HANDOFFS, (long long)few.work, (long long)few.cpu_us, q.n, (long long)many.work,
            (long long)many.cpu_us);
    /* Safety looks and signs of life fall between, the more the slower the machine is; what
     * is done for each waiter would be thousands. */
    CHECK_NUM(many.work, <=, few.work + few.work / 2 + 5);
    CHECK_NUM(many.cpu_us, <=, 4 * few.cpu_us + 10000 * TEST_SLOW);
    while (q.next < q.n)
        hand_off();
    CHECK_RC(hf_release_start(q.waiters[q.n - 1].lease, NULL, NULL, NULL, E()), 0);
    hf_op_free(q.waiters[q.n - 1].op);
    AWAIT((hf_client_process(q.client), line_is(q.client, nm("n"), 0, 0)));
    hf_close(q.client);
}

const struct test_case many_cases[] = {
    { "ten-thousand-waiters", ten_thousand_waiters, ON_CALLBACK, HF_CAP_LINE | HF_CAP_TTL,
      CASE_LONG | CASE_OWN_STORE },
    { NULL, NULL, 0, 0, 0 },
};
