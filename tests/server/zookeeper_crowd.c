/* zookeeper_crowd.c: what a hand-off costs a server when very many wait: 50 processes with
 * 20 tickets each, mixed in the line, so that each process knows nothing of most tickets
 * before its own. A hand-off is told to those that it may let in, and read by them: not by
 * every process, and not once for each ticket that waits. */
#include "zookeeper_counts.h"
#include "zookeeper_fault.h"

#include <fcntl.h>
#include <holdfast/async.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    PROCESSES = 50,
    WAITERS = 20,
    PERMITS = 3,
    HANDS = 50,
    QUARTER_MS = 2500 /* of the ttl */
};
#define CROWD_TTL "ttl=10s"

struct crowd { /* pipes between the processes */
    const hf_request *req;
    int next[2]; /* a byte in it: whoever holds and reads it releases */
    int told[2]; /* a byte for each grant */
    int end[2];  /* readable when all is over */
};

/* Of one process of the crowd. */
static hf_lease *held[WAITERS]; /* the oldest first */
static size_t nheld;

static void on_grant(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    const struct crowd *k = user;

    (void)err;
    hf_op_free(op);
    if (rc == HF_ECLOSED)
        return;
    CHECK_RC(rc, 0);
    held[nheld++] = lease;
    CHECK_NUM(write(k->told[1], "", 1), ==, 1);
}

static void release_oldest(void)
{
    hf_lease *l = held[0];

    memmove(held, held + 1, --nheld * sizeof(held[0]));
    CHECK_RC(hf_release_start(l, NULL, NULL, NULL, E()), 0);
}

static void wait_in_line(void *arg)
{
    struct crowd *k = arg;
    hf_client *c;
    hf_op *op;
    char byte;

    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    for (int i = 0; i < WAITERS; i++)
        CHECK_RC(hf_acquire_start(c, nm("n"), HF_FOREVER, k->req, on_grant, k, &op, E()),
                 0);
    for (;;) {
        struct pollfd p[] = { { .fd = hf_client_fd(c), .events = POLLIN },
                              { .fd = k->end[0], .events = POLLIN },
                              { .fd = nheld > 0 ? k->next[0] : -1, .events = POLLIN } };

        CHECK_NUM(poll(p, 3, -1), >, 0);
        if (p[1].revents)
            break;
        if (nheld > 0 && read(k->next[0], &byte, 1) == 1) /* another may have been faster */
            release_oldest();
        CHECK(hf_client_process(c) >= 0);
    }
    hf_close(c);
}

static struct counts ask(void)
{
    return counts_of(&servers->servers[0]);
}

static void await_grant(const struct crowd *k)
{
    struct pollfd p = { .fd = k->told[0], .events = POLLIN };
    char byte;

    CHECK_NUM(poll(&p, 1, LIMIT_MS), ==, 1);
    CHECK_NUM(read(k->told[0], &byte, 1), ==, 1);
}

/* Until nothing is asked for any more: then all that is to be watched is. */
static void settle(void)
{
    struct counts before, after = ask();

    do {
        before = after;
        STAYS(true, 200);
        after = ask();
    } while (after.watches != before.watches ||
             after.requests > before.requests + PROCESSES);
}

static void hand_over(const struct crowd *k, int64_t events, int64_t reads)
{
    struct counts before = ask(), after;
    int64_t own;

    for (int i = 0; i < HANDS; i++) {
        CHECK_NUM(write(k->next[1], "", 1), ==, 1);
        await_grant(k);
    }
    settle();
    after = ask();
    /* by itself: a proof of life in each quarter, and a look at what is waited for */
    own = 2 * PROCESSES * (1 + (after.at_ms - before.at_ms) / QUARTER_MS);
    printf("# per hand-off: %.1f events, %.1f reads, %.1f writes, %.0f bytes; by itself "
           "%.1f\n",
           (double)(after.events - before.events) / HANDS,
           (double)(after.reads - before.reads) / HANDS,
           (double)(after.writes - before.writes) / HANDS,
           (double)(after.bytes - before.bytes) / HANDS, (double)own / HANDS);
    CHECK_NUM(after.connections, ==, PROCESSES + 1); /* and the one that looks */
    CHECK_NUM(after.events - before.events, <=, events * HANDS);
    CHECK_NUM(after.reads - before.reads, <=, reads * HANDS + own);
    CHECK_NUM(after.writes - before.writes, <=, HANDS + own);
}

static void crowd(const hf_request *req, size_t holders, int64_t events, int64_t reads)
{
    struct crowd k = { .req = req };
    pid_t pids[PROCESSES];
    hf_client *looker;

    use_one(CROWD_TTL);
    CHECK_NUM(pipe2(k.next, O_NONBLOCK), ==, 0);
    CHECK_NUM(pipe(k.told), ==, 0);
    CHECK_NUM(pipe(k.end), ==, 0);
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = proc_start(wait_in_line, &k);
    looker = opened();
    AWAIT(line_is(looker, nm("n"), holders, PROCESSES * WAITERS - holders));
    for (size_t i = 0; i < holders; i++)
        await_grant(&k);
    settle();
    hand_over(&k, events, reads);
    CHECK_NUM(write(k.end[1], "", 1), ==, 1);
    for (int i = 0; i < PROCESSES; i++)
        proc_end(pids[i]);
    closed(looker);
    for (int i = 0; i < 2; i++) {
        close(k.next[i]);
        close(k.told[i]);
        close(k.end[i]);
    }
    done();
}

/* To the owner and the next; the next lists the line, or reads one name more. */
static void crowd_waits(void)
{
    crowd(NULL, 1, 2, 2);
}

/* To the owner, and to those whose places the ticket fills; now and then to one more, which
 * has not heard of the hand-off before. */
static void crowd_waits_for_permits(void)
{
    crowd(HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = PERMITS), PERMITS,
          2 * PERMITS, 2 * PERMITS);
}

const struct test_case crowd_cases[] = {
    { "crowd_waits", crowd_waits, ON_BLOCKING, 0, CASE_LONG },
    { "crowd_waits_for_permits", crowd_waits_for_permits, ON_BLOCKING, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
