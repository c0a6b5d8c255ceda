/* redis_many.c: a master that dies under Sentinel while a lock is held and while it is
 * waited for. What was replicated survives; what was not is
 * told as lost, and the fence orders the two holders (G2, G6).
 */
#include "redis_fault.h"

#include <stdio.h>
#include <string.h>

enum {
    DOWN_MS = 1500,     /* of who is to be given up */
    PATIENT_MS = 15000, /* where nobody is */
    FAILOVER_TTL_MS = 30000
};

static struct redis_place *many;

static void use_sentinel(int down_ms, const char *params)
{
    redis_sentinel_start(rig.place, down_ms);
    many = rig.place->own;
    strcat(rig.place->url, params);
}

static struct server *kill_master(void)
{
    struct server *old = redis_sentinel_master(many);

    server_kill(old);
    AWAIT(redis_sentinel_master(many) != old);
    AWAIT(strcmp(redis_info(redis_sentinel_master(many), "role"), "master") == 0);
    return old;
}

static void sentinel_failover(void)
{
    struct two t;
    struct server *old;

    use_sentinel(DOWN_MS, "");
    t = hold_and_wait(FAILOVER_TTL_MS);
    redis_replicated(many, redis_sentinel_master(many));
    old = kill_master();
    two_renewed(&t);
    redis_run(old); /* comes back as a replica, and nobody falls for it */
    two_go_on(&t);
    redis_place_stop(rig.place);
}

/* The hold never came to the new master: it is told as lost when the new master is found.
 */
static void sentinel_failover_unreplicated(void)
{
    hf_client *a, *b;
    hf_lease *l, *next;

    use_sentinel(DOWN_MS, "");
    a = prompted();
    b = opened();
    given(taken(a, nm("other"), NULL));
    given(taken(b, nm("other"), NULL));
    redis_replicated(many, redis_sentinel_master(many));
    for (size_t i = 1; i < many->data; i++)
        server_freeze(&many->servers[i]);
    redis_do(&many->servers[0], "CLIENT KILL TYPE replica"); /* nothing more gets through */
    l = taken(a, nm("n"), HF_REQUEST(.ttl_ms = FAILOVER_TTL_MS));
    server_kill(&many->servers[0]);
    for (size_t i = 1; i < many->data; i++)
        server_continue(&many->servers[i]);
    AWAIT(redis_sentinel_master(many) != &many->servers[0]);
    next = taken(b, nm("n"), NULL);
    CHECK_NUM(hf_lease_fence(next), >, hf_lease_fence(l));
    AWAIT(hf_lease_state(l) == HF_LOST);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    CHECK_RC(hf_lease_check(next), 0);
    given(next);
    closed(a);
    closed(b);
    redis_place_stop(rig.place);
}

/* replicas=2: a grant that fewer replicas have read is given back, and the call says so.
 * Meanwhile the same client releases at once. A renewal that too few have read is none: if
 * another server became master, it would let the hold end (G1). */
static void replicas_missing(void)
{
    enum { WAITS_MS = 8000 };
    const hf_request *req = HF_REQUEST(.ttl_ms = WAITS_MS / 2);
    hf_client *c;
    hf_lease *l = NULL, *other, *held;
    struct pend *p;

    use_sentinel(PATIENT_MS, "?replicas=2&replica_timeout=8s");
    redis_replicated(many, redis_sentinel_master(many));
    c = prompted();
    given(taken(c, nm("n"), NULL));
    held = taken(c, nm("held"), req);
    STAYS(hf_lease_check(held) == 0, WAITS_MS / 2);
    other = taken(c, nm("other"), NULL);
    server_freeze(&many->servers[2]);
    p = begun(c, nm("n"), LIMIT_MS, NULL);
    AWAIT(line_is(c, nm("n"), 1, 0));
    given(other);
    CHECK(!pend_done(p)); /* it did not wait for that */
    CHECK_RC(pend_end(p, &l), HF_EREPLICAS);
    CHECK(!l && strstr(last_error()->text, "replica"));
    CHECK_RC(hf_lease_check(held), HF_ELOST);
    AWAIT(line_is(c, nm("n"), 0, 0));
    CHECK_RC(rig.face->release(held, E()), HF_ELOST);
    server_continue(&many->servers[2]);
    AWAIT(tried(c, nm("n"), NULL) == 0);
    closed(c);
    redis_place_stop(rig.place);
}

/* replicas=1: one of the two may be unreachable: what is held is renewed, what is free is
 * granted. */
static void replicas_enough(void)
{
    hf_client *c;
    hf_lease *held;

    use_sentinel(PATIENT_MS, "?replicas=1&replica_timeout=8s");
    redis_replicated(many, redis_sentinel_master(many));
    c = prompted();
    held = taken(c, nm("held"), HF_REQUEST(.ttl_ms = SHORT_MS));
    server_freeze(&many->servers[2]);
    STAYS(hf_lease_check(held) == 0, 3 * SHORT_MS);
    given(taken(c, nm("n"), NULL));
    given(held);
    server_continue(&many->servers[2]);
    closed(c);
    redis_place_stop(rig.place);
}

static const char *numbered(const char *what, int i)
{
    char text[40];

    snprintf(text, sizeof(text), "%s%d", what, i);
    return nm(text);
}

/* Many grants wait for replicas at once: other requests of that connection wait for a piece
 * of one WAIT, not for a piece for each of them. */
static void replicas_missing_for_many(void)
{
    enum { MANY = 100, OTHERS = 10 };
    const hf_request *req = HF_REQUEST(.ttl_ms = FAILOVER_TTL_MS * 4);
    hf_client *c;
    hf_lease *others[OTHERS];
    struct pend *p[MANY];
    int64_t begin;

    use_sentinel(PATIENT_MS, "?replicas=2&replica_timeout=30s");
    redis_replicated(many, redis_sentinel_master(many));
    c = prompted();
    for (int i = 0; i < OTHERS; i++)
        others[i] = taken(c, numbered("other", i), req);
    server_freeze(&many->servers[2]);
    for (int i = 0; i < MANY; i++)
        p[i] = begun(c, numbered("n", i), LIMIT_MS, req);
    AWAIT(line_is(c, numbered("n", MANY - 1), 1, 0));
    begin = now_ms();
    for (int i = 0; i < OTHERS; i++)
        given(
            others[i]); /* each takes a round trip; with a piece for each grant, a second */
    CHECK_WITHIN(begin, 4000);
    server_continue(&many->servers[2]);
    for (int i = 0; i < MANY; i++)
        given(pend_granted(p[i]));
    closed(c);
    redis_place_stop(rig.place);
}

const struct test_case redis_many_cases[] = {
    { "sentinel-failover", sentinel_failover, ON_ALL, 0, CASE_LONG },
    { "sentinel-failover-unreplicated", sentinel_failover_unreplicated, ON_ALL, 0,
      CASE_LONG },
    { "replicas-missing", replicas_missing, ON_ALL, 0, CASE_LONG },
    { "replicas-enough", replicas_enough, ON_ALL, 0, CASE_LONG },
    { "replicas-missing-for-many", replicas_missing_for_many, ON_CALLBACK, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
