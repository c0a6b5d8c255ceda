/* zookeeper_ensemble.c: three servers of which some go away, stand still, or lose each
 * other. */
#include "zookeeper_fault.h"

#include <stdio.h>

/* The index of a follower; not `but`. */
static size_t follower(size_t but)
{
    size_t leader = zk_leader(servers);

    for (size_t i = 0; i < 3; i++)
        if (i != leader && i != but && server_runs(&servers->servers[i]))
            return i;
    return 0;
}

enum { ELECTION = 5 }; /* times LIMIT_MS: it may take its time */

/* The holder's session has been attached at another server. */
static bool elsewhere(size_t server)
{
    for (size_t i = 0; i < ZK_SERVERS; i++)
        if (i != server && proxy_passed(fronts[i], PROXY_DOWN) > 0)
            return true;
    return false;
}

/* The session is longer than an election: the holder holds on, through another server, and
 * nobody comes in beside it. */
static void killed(size_t which)
{
    struct two t = hold_at(which);
    int64_t until = now_ms() + ELECTION * LIMIT_MS;

    server_kill(&servers->servers[which]);
    while (!elsewhere(which) || !line_looks(t.b, 1, 1)) {
        CHECK_RC(hf_lease_check(t.held), 0);
        CHECK(!pend_done(t.waits));
        CHECK_NUM(now_ms(), <, until);
        nap();
    }
    AWAIT(hf_lease_state(t.held) == HF_HELD);
    CHECK_NUM(told.lost, ==, 0);
    AWAIT(told.held == told.risk); /* callbacks come behind, on a thread of their own */
    two_go_on(&t);
}

static void leader_killed(void)
{
    use_three("ttl=50s", "");
    killed(zk_leader(servers));
    done();
}

static void follower_killed(void)
{
    use_three("ttl=50s", "");
    killed(follower(9));
    done();
}

/* The servers but one, which the holder talks to. */
static size_t all_but_one(size_t others[2])
{
    others[0] = zk_leader(servers);
    others[1] = follower(9);
    return 3 - others[0] - others[1];
}

/* For longer than the session: the holder is told by its own clock, since nobody else could
 * tell it, and in time. The servers come back, and the next is admitted. */
static void no_quorum_for_long(void)
{
    size_t others[2], one;
    struct two t;
    int64_t killed_ms, until;
    int rc;

    use_three("", "");
    one = all_but_one(others);
    t = hold_at(one);
    server_kill(&servers->servers[others[0]]);
    server_kill(&servers->servers[others[1]]);
    killed_ms = now_ms();
    AWAIT(told.lost == 1);
    CHECK_NUM(told.risk, ==, 1);
    /* the deadline is no later than this, and the news comes before it */
    CHECK_NUM(told.lost_ms - killed_ms, <=, TTL_MS);
    CHECK_RC(hf_lease_check(t.held), HF_ELOST);
    CHECK(!pend_done(t.waits)); /* who should have admitted it? */
    rc = rig.face->release(t.held, E());
    CHECK(rc == HF_ELOST ||
          rc == HF_EUNKNOWN); /* its node is there until somebody ends it */
    zk_run(servers, others[0]);
    zk_run(servers, others[1]);
    until = now_ms() + ELECTION * LIMIT_MS;
    while (!pend_done(t.waits)) {
        CHECK_NUM(now_ms(), <, until);
        nap();
    }
    t.held = pend_granted(t.waits);
    CHECK_NUM(hf_lease_fence(t.held), >, t.fence);
    given(t.held);
    given(taken(t.a, "n", NULL)); /* with a new session */
    AWAIT(line_looks(t.b, 0, 0));
    closed(t.a);
    closed(t.b);
    done();
}

/* For less: at risk, then held again, and nothing is granted to anybody meanwhile. */
static void no_quorum_for_short(void)
{
    size_t others[2], one;
    hf_lease *none = NULL;
    struct two t;
    int64_t until;

    /* servers that were away for so long still believe in each other */
    use_three("ttl=24s", "syncLimit=80");
    one = all_but_one(others);
    t = hold_at(one);
    server_freeze(&servers->servers[others[0]]);
    server_freeze(&servers->servers[others[1]]);
    for (until = now_ms() + 2 * LIMIT_MS; told.risk == 0; nap())
        CHECK(now_ms() < until);
    CHECK(rig.face->acquire(t.b, "other", 10, NULL, &none, E()) < 0 && !none);
    CHECK_RC(hf_lease_check(t.held), 0);
    CHECK(!pend_done(t.waits));
    server_continue(&servers->servers[others[0]]);
    server_continue(&servers->servers[others[1]]);
    AWAIT(told.held == 1);
    CHECK_NUM(hf_lease_state(t.held), ==, HF_HELD);
    CHECK_NUM(told.risk, ==, 1);
    CHECK_NUM(told.lost, ==, 0);
    AWAIT(line_looks(t.b, 1, 1));
    two_go_on(&t);
    done();
}

/* ---- servers that lose each other ------------------------------------------------ */

enum { SHORT_MS = TEST_SANITIZED ? 8000 : 3000 };

/* [i][k]: by which i reaches k */
static struct proxy *links[3][3], *elections[3][3];

static void use_linked(const char *limits)
{
    servers = zk_place_new(rig.place, 3);
    for (size_t i = 0; i < 3; i++) {
        zk_config(&servers->servers[i], "clientPort=%d\n%s", servers->servers[i].port,
                  limits);
        for (size_t k = 0; k < 3; k++)
            if (i != k) {
                links[i][k] = proxy_new(servers->quorum[k]);
                servers->seen[i][k] = proxy_port(links[i][k]);
                elections[i][k] = proxy_new(servers->quorum[k] + 10000);
                servers->elects[i][k] = proxy_port(elections[i][k]);
            }
    }
    zk_ensemble(servers);
    zk_start_all(servers);
}

static void links_done(void)
{
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++)
            if (i != k) {
                proxy_free(links[i][k]);
                proxy_free(elections[i][k]);
            }
    done();
}

static hf_client *opened_by(int port, int ttl_ms)
{
    char url[128];

    snprintf(url, sizeof(url), "zk://127.0.0.1:%d/fault?ttl=%dms&connect_timeout=60s", port,
             ttl_ms);
    return opened_at(url);
}

static hf_client *opened_shortly(size_t server)
{
    return opened_by(servers->servers[server].port, SHORT_MS);
}

static void freeze_link(size_t from, size_t to, bool frozen)
{
    CHECK(proxy_passed(links[from][to], PROXY_UP) > 0); /* it is their link indeed */
    proxy_freeze(links[from][to], PROXY_PRESENT | PROXY_FUTURE,
                 frozen ? PROXY_UP | PROXY_DOWN : 0);
}

/* Everything between this server and the others. */
static void freeze_all(size_t server, bool frozen)
{
    unsigned directions = frozen ? PROXY_UP | PROXY_DOWN : 0;

    for (size_t i = 0; i < 3; i++) {
        if (i == server)
            continue;
        proxy_freeze(links[i][server], PROXY_PRESENT | PROXY_FUTURE, directions);
        proxy_freeze(links[server][i], PROXY_PRESENT | PROXY_FUTURE, directions);
        proxy_refuse(elections[i][server], frozen); /* they wait long for an answer there */
        proxy_refuse(elections[server][i], frozen);
        if (frozen) {
            proxy_drop(elections[i][server]);
            proxy_drop(elections[server][i]);
        }
    }
}

/* Whenever the one that waits is granted, the holder knows that it is out. */
static hf_lease *out_before(struct pend *p, hf_lease *l)
{
    int64_t until = now_ms() + ELECTION * LIMIT_MS;

    while (!pend_done(p)) {
        CHECK_NUM(now_ms(), <, until);
        nap();
    }
    CHECK_RC(hf_lease_check(l), HF_ELOST);
    return pend_granted(p);
}

/* The link between the follower that we talk to and the leader stands still. The leader
 * ends our session and admits the next, while the follower still answers whatever it can
 * answer alone. */
static void frozen_link(void)
{
    size_t leader, mine;
    hf_client *a, *b;
    struct hand h;
    hf_lease *l, *next;
    struct pend *p;

    use_linked("syncLimit=80"); /* the follower goes on for long */
    leader = zk_leader(servers);
    mine = follower(9);
    a = opened_shortly(mine);
    b = opened_shortly(leader);
    l = taken(a, "n", NULL);
    p = queued(b, "n", 1, NULL);
    h = hand_open(servers->servers[mine].port, 10000);
    freeze_link(mine, leader, true);
    next = out_before(p, l);
    CHECK(hand_ping(&h)); /* whoever believed in pings would hold it still */
    CHECK_RC(hf_lease_check(next), 0);
    freeze_link(mine, leader, false);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    given(next);
    closed(a);
    closed(b);
    links_done();
}

/* An idle client pings a follower that hears nothing of its leader, which therefore hears
 * nothing of us. Then the client makes a ticket: the leader agrees to it. The follower
 * hears of that behind all heartbeats that were on their way, and answers those, but its
 * answers come to nobody: the leader's clock for us stands where it was before. */
static void frozen_while_idle(void)
{
    enum { T = 10000 };
    size_t leader, mine;
    hf_client *a, *b;
    hf_lease *next;
    struct pend *p, *waits;
    struct proxy *link;
    int64_t until;

    use_linked("syncLimit=80");
    leader = zk_leader(servers);
    mine = follower(9);
    link = links[mine][leader];
    a = opened_by(servers->servers[mine].port, T);
    b = opened_by(servers->servers[leader].port, T);
    given(taken(a, "n", NULL));
    CHECK(proxy_passed(link, PROXY_UP) > 0); /* it is their link indeed */
    STAYS(true, T);                          /* what it has proved so far is too old */
    proxy_freeze(link, PROXY_PRESENT | PROXY_FUTURE, PROXY_DOWN);
    STAYS(true, T * 5 / 8);
    p = begun(a, "n", HF_FOREVER, NULL);
    AWAIT(line_is(b, "n", 1, 0));
    waits = queued(b, "n", 1, NULL);
    proxy_freeze(link, PROXY_PRESENT | PROXY_FUTURE, PROXY_UP | PROXY_DOWN);
    proxy_freeze(link, PROXY_PRESENT | PROXY_FUTURE, PROXY_UP);
    until = now_ms() + ELECTION * LIMIT_MS;
    while (!pend_done(waits)) {
        CHECK_NUM(now_ms(), <, until);
        nap();
    }
    CHECK(!pend_done(p));
    next = pend_granted(waits);
    CHECK_RC(hf_lease_check(next), 0);
    proxy_freeze(link, PROXY_PRESENT | PROXY_FUTURE, 0);
    given(next);
    given(pend_granted(p));
    closed(a);
    closed(b);
    links_done();
}

/* The leader that we talk to loses its followers, which make another one. It answers for a
 * while as if it still were the leader. */
static void leader_cut_off(void)
{
    size_t leader, one;
    hf_client *a, *b;
    hf_lease *l, *next;
    struct pend *p;

    /* so long one waits for a leader that others still believed in when it voted */
    use_linked("initLimit=5");
    leader = zk_leader(servers);
    one = follower(9);
    a = opened_shortly(leader);
    b = opened_shortly(one);
    l = taken(a, "n", NULL);
    p = queued(b, "n", 1, NULL);
    freeze_all(leader, true);
    next = out_before(p, l);
    CHECK_NUM(hf_lease_fence(next), >, hf_lease_fence(l));
    freeze_all(leader, false);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    given(next);
    closed(a);
    closed(b);
    links_done();
}

/* The same, but the others make a new one at once, and the old one does not notice for
 * long: all that time it answers syncs and takes sessions back. */
static void leader_deposed(void)
{
    enum { T = 4000 };
    size_t leader, others[2];
    hf_client *a, *b;
    hf_lease *l, *next;
    struct pend *p;

    use_linked("syncLimit=20");
    leader = zk_leader(servers);
    others[0] = follower(9);
    others[1] = 3 - leader - others[0];
    a = opened_by(servers->servers[leader].port, T);
    b = opened_by(servers->servers[others[0]].port, T);
    l = taken(a, "n", NULL);
    p = queued(b, "n", 1, NULL);
    freeze_all(leader, true);
    for (size_t i = 0; i < 2; i++)
        server_kill(&servers->servers[others[i]]);
    for (size_t i = 0; i < 2; i++)
        zk_run(servers, others[i]);
    next = out_before(p, l);
    CHECK_NUM(hf_lease_fence(next), >, hf_lease_fence(l));
    freeze_all(leader, false);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    given(next);
    closed(a);
    closed(b);
    links_done();
}

const struct test_case zookeeper_ensemble_cases[] = {
    { "leader-killed", leader_killed, ON_ALL, 0, CASE_LONG },
    { "follower-killed", follower_killed, ON_ALL, 0, CASE_LONG },
    { "no-quorum-for-long", no_quorum_for_long, ON_ALL, 0, CASE_LONG },
    { "no-quorum-for-short", no_quorum_for_short, ON_ALL, 0, CASE_LONG },
    { "frozen-link", frozen_link, ON_ALL, 0, CASE_LONG },
    { "frozen-while-idle", frozen_while_idle, ON_ALL, 0, CASE_LONG },
    { "leader-cut-off", leader_cut_off, ON_ALL, 0, CASE_LONG },
    { "leader-deposed", leader_deposed, ON_ALL, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
