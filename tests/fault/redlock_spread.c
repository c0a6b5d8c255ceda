/* redlock_spread.c: a lock that was granted by a bare majority is given to the other nodes
 * as soon as they let it; and neither that nor a vote comes behind the giving back.
 * Everything here is over long before the first renewal. */
#include "redlock_fault.h"

#include <stdio.h>

static const char no_guard[] = "?restart_guard=off";

/* Renewed after 20 s; the steps in which it is given grow to 8 s. */
static const hf_request long_ttl = { .size = sizeof(hf_request), .ttl_ms = 60000 };

static void foreign_has(int i, int ms)
{
    redis_do(&servers[i], "SET %s theirs PX %d", nm("n"), ms);
}

/* The clock of one of a bare majority jumps. If that is all it had, the two nodes that
 * another kept from it and the one that forgot make a second holder. */
static void bare_majority_grows(void)
{
    hf_client *a, *b;
    hf_lease *l;
    int rc;

    use_nodes(FIVE, no_guard);
    a = opened();
    b = opened();
    await_marks(a);
    given(taken(b, nm("warm"), NULL));
    foreign_has(3, 300);
    foreign_has(4, 300);
    l = taken(a, nm("n"), &long_ttl);
    AWAIT(nodes_with(nm("n")) == FIVE && nodes_of(nm("n"), "theirs") == 0);
    server_clock_step(&servers[0], 3600000);
    AWAIT(nodes_with(nm("n")) == 4);
    rc = tried(b, nm("n"), NULL);
    CHECK(rc == HF_EBUSY || rc == HF_EUNREACHABLE); /* one that is slow has not voted */
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    await_gone(nm("n"));
    closed(a);
    closed(b);
    nodes_done();
}

/* Nodes that were not there when it was granted. */
static void absent_nodes_get_it(void)
{
    hf_client *c;
    hf_lease *l;

    use_nodes(3, no_guard);
    c = opened();
    await_marks(c);
    server_kill(&servers[1]);
    AWAIT(tried(c, nm("m"), NULL) == 0);
    l = taken(c, nm("n"), &long_ttl);
    CHECK_NUM(nodes_with(nm("n")), ==, 2);
    redis_run(&servers[1]);
    AWAIT(nodes_with(nm("n")) == 3);
    CHECK_NUM(redis_number(&servers[1], "PTTL %s", nm("n")), <=, 60000);
    given(l);
    await_gone(nm("n"));
    closed(c);
    nodes_done();
}

/* Given back at any moment of that: nothing stays. */
static void given_back_meanwhile(void)
{
    hf_client *c;

    use_nodes(FIVE, no_guard);
    c = opened();
    await_marks(c);
    for (int i = 0; i < 40; i++) {
        hf_lease *l;

        foreign_has(i % FIVE, 1 + i % 7);
        foreign_has((i + 2) % FIVE, 1 + i % 5);
        l = taken(c, nm("n"), &long_ttl);
        for (int k = 0; k < i % 4; k++)
            nap();
        given(l);
    }
    await_gone(nm("n"));
    STAYS(nodes_with(nm("n")) == 0, 100);
    closed(c);
    nodes_done();
}

/* ---- behind the giving back ------------------------------------------------------ */

/* Server 0 knows every script but that of the vote: an eviction brings it the others. */
static void forget_vote(hf_client *direct)
{
    struct seen x;

    for (int i = 0; i < 3; i++)
        redis_do(&servers[i], "SET %s theirs PX 60000", nm("x"));
    CHECK(see(direct, nm("x"), 0, &x));
    redis_do(&servers[0], "SCRIPT FLUSH");
    CHECK_RC(hf_evict(direct, nm("x"), x.id, HF_EVICT_NOW, E()), 0);
    AWAIT(redis_number(&servers[0], "EXISTS %s", nm("x")) == 0);
}

static hf_client *opened_directly(void)
{
    hf_client *c = NULL;
    char url[200];

    snprintf(url, sizeof(url), "redlock://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d%s",
             servers[0].port, servers[1].port, servers[2].port, no_guard);
    CHECK_RC(rig.face->open(url, NULL, &c, E()), 0);
    return c;
}

/* What asks server 0 for the key is on its way, the giving back comes behind it, and then
 * the server does the second and wants the text of the first. It must not get it: nobody
 * would give the key back any more. */
static void never_behind(bool vote)
{
    hf_client *c, *direct;
    hf_lease *l;
    int64_t evals;

    use_proxied_nodes(3, "?restart_guard=off&connect_timeout=60s");
    c = prompted();
    direct = opened_directly();
    await_marks(c);
    if (!vote)
        foreign_has(0, 600000); /* so it is given it later */
    else
        proxy_freeze(proxies[0], PROXY_PRESENT, PROXY_UP);
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 600000));
    if (!vote)
        proxy_freeze(proxies[0], PROXY_PRESENT, PROXY_UP);
    AWAIT(proxy_kept(proxies[0], PROXY_UP) > 0);
    redis_do(&servers[0], "DEL %s", nm("n"));
    forget_vote(direct);
    given(l);
    evals = redis_calls(&servers[0], "eval");
    proxy_freeze(proxies[0], PROXY_PRESENT, 0);
    AWAIT(tried(c, nm("m"), NULL) == 0 && redis_calls(&servers[0], "eval") > evals);
    STAYS(nodes_with(nm("n")) == 0, 200);
    closed(c);
    closed(direct);
    nodes_done();
}

static void vote_not_behind(void)
{
    never_behind(true);
}

static void spread_not_behind(void)
{
    never_behind(false);
}

const struct test_case redlock_spread_cases[] = {
    { "bare-majority-grows", bare_majority_grows, ON_ALL, 0, 0 },
    { "absent-nodes-get-it", absent_nodes_get_it, ON_ALL, 0, 0 },
    { "given-back-meanwhile", given_back_meanwhile, ON_ALL, 0, 0 },
    { "vote-not-behind", vote_not_behind, ON_ALL, 0, 0 },
    { "spread-not-behind", spread_not_behind, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
