/* etcd_cluster.c: three members: the leader or ours is killed, there is no majority, for
 * less or more than a lease lasts. */
#include "etcd_fault.h"

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
    { "rolling", rolling, ON_BLOCKING, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
