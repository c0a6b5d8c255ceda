/* redis_renewals.c: how many scripts prove that the holds of a client live: fifty holds by
 * one, in a cluster those of one bucket, and only at the node that was lost. */
#include "counts.h"
#include "setup_redis.h"

#include <stdio.h>
#include <string.h>

enum { HOLDS = 200, BATCH = 50, BUCKETS = 1024, MASTERS = 3, MANY = 3000 };

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

/* ---- a cluster ------------------------------------------------------------------- */

static int64_t of_all(int64_t (*count)(struct server *), struct redis_place *p)
{
    int64_t sum = 0;

    for (size_t i = 0; i < MASTERS; i++)
        sum += count(&p->servers[i]);
    return sum;
}

/* By how many scripts, after all connections were lost. */
static int64_t renewed(struct redis_place *p)
{
    int64_t before = of_all(settled, p);

    for (size_t i = 0; i < MASTERS; i++)
        cut(&p->servers[i]);
    AWAIT(of_all(scripts, p) > before);
    return of_all(settled, p) - before;
}

/* All holds are renewed at once, those of a bucket together. */
static void cluster_renewals(void)
{
    static hf_lease *leases[MANY];
    struct redis_place *p;
    hf_client *c;
    int64_t before;

    redis_cluster_start(rig.place, 15000);
    p = rig.place->own;
    c = prompted();
    take(c, leases, MANY);
    STAYS(true, 1000); /* it listens from then on */
    renewed(p);        /* the servers know the script from then on */
    before = renewed(p);
    printf("%d holds were renewed by %lld scripts\n", MANY, (long long)before);
    CHECK_NUM(before, >=, MANY / BATCH);
    CHECK_NUM(before, <=, BUCKETS + BUCKETS / 4);
    give(leases, MANY);
    closed(c);
    redis_place_stop(rig.place);
}

/* One node was lost and is back: those at the others go on undisturbed. */
static void cluster_node_back(void)
{
    static hf_lease *leases[MANY / 10];
    struct redis_place *p;
    hf_client *c;
    int64_t first, others;

    redis_cluster_start(rig.place, 15000);
    p = rig.place->own;
    c = prompted();
    take(c, leases, MANY / 10);
    STAYS(true, 1000);
    for (int i = 0; i < 3; i++) {
        others = of_all(settled, p);
        first = scripts(&p->servers[0]);
        others -= first;
        cut(&p->servers[0]);
        AWAIT(scripts(&p->servers[0]) > first);
        CHECK_NUM(of_all(settled, p) - scripts(&p->servers[0]), ==, others);
        CHECK_NUM(scripts(&p->servers[0]) - first, >=, MANY / 10 / MASTERS / BATCH);
    }
    give(leases, MANY / 10);
    closed(c);
    redis_place_stop(rig.place);
}

const struct test_case renewal_cases[] = {
    { "connections_lost", connections_lost, ON_ALL, 0, 0 },
    { "cluster_renewals", cluster_renewals, ON_ALL, 0, CASE_LONG },
    { "cluster_node_back", cluster_node_back, ON_ALL, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
