/* zookeeper_crowd.c: what a hand-off costs a server of ZooKeeper when very many wait. */
#include "crowd.h"
#include "zookeeper_counts.h"
#include "zookeeper_fault.h"

#include <stdio.h>

enum {
    PERMITS = 3,
    QUARTER_MS = 5000, /* of the ttl */
    OWN = 4            /* requests of a client by itself in a quarter, at most */
};
#define CROWD_TTL "ttl=20s"

static struct counts ask(void)
{
    return counts_of(&servers->servers[0]);
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

    crowd_hand_over(k);
    settle();
    after = ask();
    /* by itself: a proof of life and a renewal, both with a sync, and a look at what is
     * waited for; a quarter may have begun before the count did */
    own = (int64_t)OWN * PROCESSES * (2 + (after.at_ms - before.at_ms) / QUARTER_MS);
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
    struct crowd k;
    hf_client *looker;

    use_one(CROWD_TTL);
    looker = opened();
    crowd_start(&k, req, holders, looker);
    settle();
    hand_over(&k, events, reads);
    crowd_end(&k);
    closed(looker);
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
