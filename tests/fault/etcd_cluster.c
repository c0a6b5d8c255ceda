/* etcd_cluster.c: three members: the leader or ours is killed, there is no majority, for
 * less or more than a lease lasts. */
#include "etcd_fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The holder's first connection is to this one. */
static struct two hold_at(size_t member)
{
    struct two t;

    for (size_t i = 0; i < ETCD_SERVERS; i++)
        proxy_refuse(fronts[i], i != member);
    t = hold_and_wait();
    for (size_t i = 0; i < ETCD_SERVERS; i++)
        proxy_refuse(fronts[i], false);
    return t;
}

static void killed(bool leader)
{
    struct two t;
    size_t at, victim;

    use_members(ETCD_SERVERS, "");
    at = etcd_leader(members);
    victim = leader ? at : (at + 1) % ETCD_SERVERS;
    t = hold_at(victim);
    server_kill(&members->servers[victim]);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), TTL_MS * 3 / 2);
    two_go_on(&t);
    done();
}

static void leader_killed(void)
{
    killed(true);
}

static void our_member_killed(void)
{
    killed(false);
}

static void no_majority(bool longer)
{
    struct two t;
    size_t leader;

    use_members(ETCD_SERVERS, "");
    leader = etcd_leader(members);
    t = hold_at(leader);
    for (size_t i = 0; i < ETCD_SERVERS; i++)
        if (i != leader)
            server_freeze(&members->servers[i]);
    if (longer)
        AWAIT((two_are_right(&t), hf_lease_check(t.held) == HF_ELOST));
    else
        STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), TTL_MS / 4);
    for (size_t i = 0; i < ETCD_SERVERS; i++)
        if (i != leader)
            server_continue(&members->servers[i]);
    if (longer) {
        two_lost(&t);
    } else {
        STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), TTL_MS * 3 / 2);
        two_go_on(&t);
    }
    done();
}

static void no_majority_briefly(void)
{
    no_majority(false);
}

static void no_majority_for_long(void)
{
    no_majority(true);
}

static struct proxy *peers[ETCD_SERVERS];

static void peers_apart(void)
{
    for (size_t i = 0; i < ETCD_SERVERS; i++) {
        peers[i] = proxy_new(members->servers[i].port + PEER);
        members->peer_port[i] = proxy_port(peers[i]);
    }
}

/* Nothing passes between this member and the others, and nobody is told so. Who asks is
 * said in a header of their requests. */
static void freeze_link(size_t member, const char *from)
{
    for (size_t i = 0; i < ETCD_SERVERS; i++)
        if (i != member)
            proxy_freeze_those(peers[i], from);
    proxy_freeze(peers[member], PROXY_PRESENT | PROXY_FUTURE,
                 from ? PROXY_UP | PROXY_DOWN : 0);
}

static unsigned long long id_of(size_t member)
{
    char name[16];
    const char *at, *list;

    snprintf(name, sizeof(name), ", m%zu,", member);
    list = ctl("member list");
    at = strstr(list, name);
    CHECK(at);
    while (at > list && at[-1] != '\n')
        at--;
    return strtoull(at, NULL, 16);
}

/* The leader and the others lose each other, and the holder reaches only that leader, which
 * does not know yet that it is none any more: does it hold together with the next one? */
static void frozen_link(void)
{
    char from[64];
    struct two t;
    size_t leader;

    before_start = peers_apart;
    use_members(ETCD_SERVERS, "");
    leader = etcd_leader(members);
    wait_at((leader + 1) % ETCD_SERVERS);
    t = hold_at(leader);
    for (size_t i = 0; i < ETCD_SERVERS; i++)
        proxy_refuse(fronts[i], i != leader);
    snprintf(from, sizeof(from), "X-Server-From: %llx", id_of(leader));
    freeze_link(leader, from);
    AWAIT((two_are_right(&t), pend_done(t.waits)));
    CHECK_RC(rig.face->release(t.held, E()), HF_ELOST);
    given(pend_granted(t.waits));
    AWAIT(line_is(t.b, "n", 0, 0));
    closed(t.b);
    freeze_link(leader, NULL);
    for (size_t i = 0; i < ETCD_SERVERS; i++)
        proxy_refuse(fronts[i], false);
    closed(t.a);
    for (size_t i = 0; i < ETCD_SERVERS; i++)
        proxy_free(peers[i]);
    done();
}

/* Ours is taken out of the cluster, and stops: another one is asked. */
static void member_removed(void)
{
    struct two t;

    setenv("ETCD_STRICT_RECONFIG_CHECK", "false", 1); /* at once, not after some seconds */
    use_members(ETCD_SERVERS, "");
    wait_at(0);
    t = hold_at(1);
    ctl("member remove %llx", id_of(1));
    AWAIT(!server_runs(&members->servers[1]));
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), TTL_MS * 3 / 2);
    two_go_on(&t);
    done();
}

/* While members come and go nobody holds together with another. */
static void rolling(void)
{
    hf_client *a, *b;
    uint64_t last = 0;

    use_members(ETCD_SERVERS, "");
    a = prompted();
    b = opened_past();
    for (size_t i = 0; i < ETCD_SERVERS; i++) {
        int64_t until = now_ms() + 1500;

        server_kill(&members->servers[i]);
        while (now_ms() < until) {
            hf_lease *l = taken(a, "n", NULL), *m = NULL;

            CHECK(hf_lease_fence(l) > last);
            last = hf_lease_fence(l);
            if (rig.face->acquire(b, "n", 0, NULL, &m, E()) == 0)
                CHECK_RC(hf_lease_check(l), HF_ELOST);
            rig.face->release(l, E());
            if (m)
                rig.face->release(m, E());
        }
        etcd_run(members, i);
        etcd_await(members, i);
    }
    closed(a);
    closed(b);
    done();
}

const struct test_case etcd_cluster_cases[] = {
    { "leader-killed", leader_killed, ON_BLOCKING, 0, 0 },
    { "our-member-killed", our_member_killed, ON_BLOCKING, 0, 0 },
    { "no-majority-briefly", no_majority_briefly, ON_BLOCKING, 0, 0 },
    { "no-majority-for-long", no_majority_for_long, ON_BLOCKING, 0, 0 },
    { "frozen-link", frozen_link, ON_BLOCKING, 0, CASE_LONG },
    { "member-removed", member_removed, ON_BLOCKING, 0, 0 },
    { "rolling", rolling, ON_BLOCKING, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
