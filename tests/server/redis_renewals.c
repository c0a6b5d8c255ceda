/* redis_renewals.c: how many scripts prove that the holds of a client live: fifty holds by
 * one, in a cluster those of one bucket, and only at the node that was lost. */
#include "counts.h"

#include <stdio.h>
#include <string.h>

enum { HOLDS = 200, BATCH = 50 };

static int64_t scripts(struct server *s)
{
    return redis_calls(s, "evalsha") + redis_calls(s, "eval");
}

/* Until nothing more is asked for a while. */
static int64_t settled(struct server *s)
{
    int64_t before;

    do {
        before = scripts(s);
        STAYS(true, 300);
    } while (scripts(s) != before);
    return before;
}

static void take(hf_client *c, hf_lease **leases, int n)
{
    for (int i = 0; i < n; i++) {
        char name[64];

        snprintf(name, sizeof(name), "held/%d", i);
        leases[i] = taken(c, name, HF_REQUEST(.ttl_ms = LONG_MS));
    }
}

static void give(hf_lease **leases, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK_RC(hf_lease_check(leases[i]), 0);
        given(leases[i]);
    }
}

static void cut(struct server *s)
{
    redis_do(s, "CLIENT KILL LADDR 127.0.0.1:%d", s->port);
}

/* ---- one server ------------------------------------------------------------------ */

/* When both connections were lost, UP renews every hold, and nothing else is asked about
 * them. When only messages were lost, every hold is asked about, many by one script. */
static void connections_lost(void)
{
    hf_lease *leases[HOLDS];
    hf_client *c;
    int64_t before;

    begin();
    c = prompted();
    take(c, leases, HOLDS);
    AWAIT(connections() == 2);
    before = settled(&server);
    cut(&server);
    AWAIT(scripts(&server) > before && connections() == 2);
    CHECK_NUM(settled(&server) - before, ==, HOLDS / BATCH);
    before = scripts(&server);
    redis_do(&server, "CLIENT KILL TYPE pubsub");
    AWAIT(scripts(&server) > before && connections() == 2);
    CHECK_NUM(settled(&server) - before, ==, HOLDS / BATCH);
    give(leases, HOLDS);
    closed(c);
    end();
}

const struct test_case renewal_cases[] = {
    { "connections_lost", connections_lost, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
