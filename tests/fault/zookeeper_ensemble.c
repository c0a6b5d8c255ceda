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

/* While there is no leader a look may fail. */
static bool both_there(hf_client *c)
{
    hf_list *list = NULL;
    const hf_line *line;
    bool there;

    if (hf_look(c, "n", &list, NULL) < 0)
        return false;
    line = hf_list_at(list, 0);
    there = line && hf_line_holders(line) == 1 && hf_line_waiters(line) == 1;
    hf_list_free(list);
    return there;
}

/* A holder that has come to another server in time holds on; else it is told. */
static void killed(size_t which)
{
    struct two t;
    hf_lease *l;

    t = hold_and_wait();
    server_kill(&servers->servers[which]);
    AWAIT(hf_lease_state(t.held) == HF_LOST ||
          (hf_lease_state(t.held) == HF_HELD && both_there(t.b)));
    if (hf_lease_check(t.held) == 0) {
        CHECK(!pend_done(t.waits));
        given(t.held);
    } else {
        CHECK_RC(rig.face->release(t.held, E()), HF_ELOST);
    }
    l = pend_granted(t.waits);
    CHECK_NUM(hf_lease_fence(l), >, t.fence);
    given(l);
    AWAIT(line_is(t.b, "n", 0, 0));
    closed(t.a);
    closed(t.b);
}

static void leader_killed(void)
{
    use_three("ttl=6s");
    killed(zk_leader(servers));
    done();
}

static void follower_killed(void)
{
    use_three("");
    killed(follower(9));
    done();
}

static void no_quorum(bool longer)
{
    hf_client *c;
    hf_lease *l;
    size_t leader, other, one;
    uint64_t fence;
    int rc;

    use_three("");
    c = prompted();
    l = taken(c, "n", NULL);
    fence = hf_lease_fence(l);
    leader = zk_leader(servers);
    one = follower(9);
    other = 3 - leader - one;
    server_kill(&servers->servers[leader]);
    server_kill(&servers->servers[one]);
    if (longer) {
        AWAIT(hf_lease_state(l) == HF_LOST); /* by its own clock: nobody could tell it */
        rc = rig.face->release(l, E()); /* unknown: it comes before the news of the loss */
        CHECK(rc == HF_ELOST || rc == HF_EUNKNOWN);
    }
    zk_run(servers, leader);
    zk_run(servers, one);
    zk_await(servers, other);
    if (!longer) {
        rc = rig.face->release(l, E());
        CHECK(rc == 0 || rc == HF_ELOST || rc == HF_EUNKNOWN);
    }
    l = taken(c, "n", NULL);
    CHECK_NUM(hf_lease_fence(l), >, fence);
    given(l);
    AWAIT(line_is(c, "n", 0, 0));
    closed(c);
    done();
}

static void no_quorum_for_long(void)
{
    no_quorum(true);
}

static void no_quorum_for_short(void)
{
    no_quorum(false);
}

/* ---- servers that lose each other ------------------------------------------------------ */

enum {
    SHORT_MS = 1500
}; /* shorter than servers need to see that they have lost each other */

/* [i][k]: by which i reaches k */
static struct proxy *links[3][3], *elections[3][3];

static void use_linked(void)
{
    servers = zk_place_new(rig.place, 3);
    for (size_t i = 0; i < 3; i++) {
        zk_config(&servers->servers[i], "clientPort=%d", servers->servers[i].port);
        /* so long one waits for a leader that others still believed in when it voted */
        zk_config(&servers->servers[i], "initLimit=5");
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

static hf_client *opened_shortly(size_t server)
{
    char url[128];

    snprintf(url, sizeof(url), "zk://127.0.0.1:%d/fault?ttl=%dms&connect_timeout=60s",
             servers->servers[server].port, SHORT_MS);
    return opened_at(url);
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
    int64_t until = now_ms() + 5 * LIMIT_MS; /* an election may take its time */

    while (!pend_done(p)) {
        CHECK_NUM(now_ms(), <, until);
        nap();
    }
    CHECK_RC(hf_lease_check(l), HF_ELOST);
    return pend_granted(p);
}

/* The link between the follower that we talk to and the leader stands still. The leader ends
 * our session and admits the next, while the follower still answers whatever it can answer
 * alone. */
static void frozen_link(void)
{
    size_t leader, mine;
    hf_client *a, *b;
    struct hand h;
    hf_lease *l, *next;
    struct pend *p;

    use_linked();
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

/* The leader that we talk to loses its followers, which make another one. It answers for a
 * while as if it still were the leader. */
static void leader_cut_off(void)
{
    size_t leader, one;
    hf_client *a, *b;
    hf_lease *l, *next;
    struct pend *p;

    use_linked();
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

const struct test_case zookeeper_ensemble_cases[] = {
    { "leader-killed", leader_killed, ON_ALL, 0, CASE_LONG },
    { "follower-killed", follower_killed, ON_ALL, 0, CASE_LONG },
    { "no-quorum-for-long", no_quorum_for_long, ON_ALL, 0, CASE_LONG },
    { "no-quorum-for-short", no_quorum_for_short, ON_ALL, 0, CASE_LONG },
    { "frozen-link", frozen_link, ON_ALL, 0, CASE_LONG },
    { "leader-cut-off", leader_cut_off, ON_ALL, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
