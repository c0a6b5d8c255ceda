/* redis_answers.c: answers that are lost with their connection, and requests that reach the
 * server later than the next connection. Each case is a defect that reading found, in the
 * situation that showed it: while the answer is on its way somebody else breaks the lock,
 * the server is out of memory, or rights are missing.
 */
#include "redis_fault.h"

#include <string.h>

/* What was kept has reached the server, and been executed: it serves a connection that is
 * new after those that had something to say. */
static void let_go(void)
{
    proxy_freeze(proxy, PROXY_PRESENT | PROXY_FUTURE, 0);
    AWAIT(proxy_kept(proxy, PROXY_UP) == 0);
    redis_do(&server, "PING");
}

/* The answers on their way are lost with their connections, and new ones pass. */
static void lose_answers(void)
{
    proxy_drop(proxy);
    proxy_freeze(proxy, PROXY_PRESENT | PROXY_FUTURE, 0);
}

/* A join is granted, its answer is lost, and meanwhile the hold is marked as broken: it
 * ends when the store says so. A join that is repeated must not believe in a whole ttl from
 * then on (G1). */
static void broken_before_known(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = 2 * SHORT_MS);
    struct pend *first, *second;
    hf_client *a, *b;
    hf_lease *l = NULL, *next;
    struct seen s;
    bool ended;

    use_proxied_server("");
    a = connected_by_proxy("", LIMIT_MS);
    b = opened_directly();
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
    first = begun(a, nm("n"), HF_FOREVER, req);
    AWAIT(see(b, nm("n"), 0, &s));
    CHECK_RC(hf_evict(b, nm("n"), s.id, 0, E()), 0);
    second = queued(b, nm("n"), 1, req);
    AWAIT(!see(b, nm("n"), 0, &s) || s.expires_ms < SHORT_MS / 2);
    lose_answers();
    next = pend_granted(second);
    ended = pend_done(first); /* or it waits again, behind the second */
    if (ended && pend_end(first, &l) == 0)
        CHECK_RC(hf_lease_check(l), HF_ELOST);
    CHECK_RC(hf_lease_check(next), 0);
    given(next);
    if (!ended) { /* then, or it is told that it was taken out */
        int rc = pend_end(first, &l);

        CHECK(rc == 0 || rc == HF_EEVICTED);
        if (rc == 0)
            given(l);
    } else if (l)
        CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    AWAIT(line_is(b, nm("n"), 0, 0));
    closed(a);
    closed(b);
    done();
}

/* Holds something, and hears no answer any more. Only the connection for commands is
 * frozen: that for messages is opened later, by a long hold; where the machine was slower
 * than that, anew. */
static hf_client *holds_unanswered(hf_lease **ret_held)
{
    for (;;) {
        size_t before = proxy_accepted(proxy);
        hf_client *c = connected_by_proxy("", 2 * LIMIT_MS);

        *ret_held = taken(c, nm("held"), ENDLESS);
        proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
        if (proxy_accepted(proxy) == before + 1)
            return c;
        proxy_freeze(proxy, PROXY_PRESENT, 0);
        given(*ret_held);
        closed(c);
    }
}

/* A message overtakes the answer to the join: what it says about the hold is not lost (G6).
 */
static void broken_before_answered(void)
{
    struct pend *p;
    hf_client *a, *b;
    hf_lease *held, *l = NULL, *next;
    struct seen s;
    size_t heard;

    use_proxied_server("");
    a = holds_unanswered(&held);
    b = opened_directly();
    AWAIT(redis_text(&server, "PUBSUB CHANNELS")[0]);
    p = begun(a, nm("n"), 2 * LIMIT_MS, ENDLESS);
    AWAIT(see(b, nm("n"), 0, &s));
    heard = proxy_passed(proxy, PROXY_DOWN);
    CHECK_RC(hf_evict(b, nm("n"), s.id, HF_EVICT_NOW, E()), 0);
    next = taken(b, nm("n"), ENDLESS);
    AWAIT(proxy_passed(proxy, PROXY_DOWN) > heard);
    proxy_freeze(proxy, PROXY_PRESENT, 0);
    if (pend_end(p, &l) == 0) {
        AWAIT(hf_lease_check(l) == HF_ELOST);
        CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    }
    CHECK_RC(hf_lease_check(next), 0);
    given(next);
    given(held);
    closed(a);
    closed(b);
    done();
}

/* The join is under way on the first connection; the second is cut while it is greeted; on
 * the third all goes well. The first must have been killed: its join may not come any more
 * (G7). */
static void late_join_two_connections_ago(void)
{
    hf_client *a, *direct;
    struct pend *p;

    use_proxied_server("");
    a = connected_by_proxy("", SILENCE_MS);
    direct = opened_directly();
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
    proxy_cut_after(proxy, 300); /* its number is told by then, INFO is not over */
    p = begun(a, nm("n"), LIMIT_MS, ENDLESS);
    AWAIT(proxy_cuts(proxy) > 0);
    proxy_cut_after(proxy, -1);
    given(pend_granted(p));
    CHECK(line_is(direct, nm("n"), 0, 0));
    closed(a);
    let_go();
    CHECK(line_is(direct, nm("n"), 0, 0));
    closed(direct);
    done();
}

/* The same if the second connection led to a replica, which was refused. */
static void late_join_around_a_replica(void)
{
    static struct server replica;
    hf_client *a, *direct;
    struct pend *p;

    use_proxied_server("");
    redis_init(&replica);
    redis_config(&replica, "replicaof 127.0.0.1 %d", server.port);
    redis_run(&replica);
    AWAIT(strcmp(redis_info(&replica, "master_link_status"), "up") == 0);
    a = connected_by_proxy("", SILENCE_MS);
    direct = opened_directly();
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
    proxy_aim(proxy, replica.port);
    p = begun(a, nm("n"), LIMIT_MS, ENDLESS);
    AWAIT(redis_calls(&replica, "client|setname") > 1);
    proxy_aim(proxy, server.port);
    given(pend_granted(p));
    CHECK(line_is(direct, nm("n"), 0, 0));
    closed(a);
    let_go();
    CHECK(line_is(direct, nm("n"), 0, 0));
    closed(direct);
    server_remove(&replica);
    done();
}

/* A user who may not ask for the number of its connection cannot have the old one killed:
 * then it leaves again until a join of that cannot matter any more (G7). */
static void late_join_without_number(void)
{
    hf_client *a, *direct;
    struct pend *p;
    hf_lease *l = NULL;
    int rc;

    use_proxied_server("");
    redis_do(&server, "ACL SETUSER u on >p ~* &* +@all -client|id");
    a = connected_by_proxy("u:p@", SILENCE_MS);
    direct = opened_directly();
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
    p = begun(a, nm("n"), 6 * SILENCE_MS, ENDLESS);
    AWAIT(pend_done(p));
    rc = pend_end(p, &l);
    if (rc == 0)
        rc = rig.face->release(l, E());
    CHECK(rc == 0 || rc == HF_EUNKNOWN || rc == HF_ETIMEDOUT || rc == HF_EUNREACHABLE);
    AWAIT(line_is(direct, nm("n"), 0, 0));
    CHECK_NUM(proxy_kept(proxy, PROXY_UP), >, 0);
    let_go();
    AWAIT(line_is(direct, nm("n"), 0, 0));
    closed(a);
    closed(direct);
    done();
}

/* A join got through, its answer was lost, and when it is repeated the server is out of
 * memory. It may fail, but then nothing of it may be left in line (G7). */
static void repeated_join_refused(void)
{
    hf_client *a, *direct;

    use_proxied_server("");
    a = connected_by_proxy("", LIMIT_MS);
    direct = opened_directly();
    for (size_t holders = 0; holders < 2; holders++) {
        hf_lease *held = holders ? taken(direct, nm("n"), ENDLESS) : NULL, *l = NULL;
        struct pend *p;

        proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
        p = begun(a, nm("n"), 4 * SILENCE_MS, ENDLESS);
        AWAIT(line_is(direct, nm("n"), 1, holders));
        redis_do(&server, "CONFIG SET maxmemory 1");
        lose_answers();
        if (pend_end(p, &l) == 0) {
            CHECK_RC(hf_lease_check(l), 0);
            CHECK(!held && line_is(direct, nm("n"), 1, 0));
            given(l);
        } else {
            CHECK(last_error()->code == HF_EFULL ||
                  (held && last_error()->code == HF_ETIMEDOUT));
        }
        AWAIT(line_is(direct, nm("n"), holders, 0));
        redis_do(&server, "CONFIG SET maxmemory 0");
        if (held)
            given(held);
        AWAIT(line_is(direct, nm("n"), 0, 0));
    }
    closed(a);
    closed(direct);
    done();
}

/* The same, and the server refuses to leave, too, as a new master does that has no replica
 * yet (min-replicas-to-write). Whoever waits is told; when the server takes writes again
 * nothing is left in line (G7, G11). */
static void repeated_join_and_leave_refused(void)
{
    hf_client *a, *direct;
    hf_lease *l = NULL;
    struct pend *p;

    use_proxied_server("");
    a = connected_by_proxy("", LIMIT_MS);
    direct = opened_directly();
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
    p = begun(a, nm("n"), HF_FOREVER, ENDLESS);
    AWAIT(line_is(direct, nm("n"), 1, 0));
    redis_do(&server, "CONFIG SET min-replicas-to-write 1");
    lose_answers();
    AWAIT(pend_done(p));
    CHECK_RC(pend_end(p, &l), HF_EREPLICAS);
    redis_do(&server, "CONFIG SET min-replicas-to-write 0");
    AWAIT(line_is(direct, nm("n"), 0, 0));
    closed(a);
    closed(direct);
    done();
}

const struct test_case redis_answers_cases[] = {
    { "broken-before-known", broken_before_known, ON_ALL, 0, 0 },
    { "broken-before-answered", broken_before_answered, ON_ALL, 0, 0 },
    { "late-join-two-connections-ago", late_join_two_connections_ago, ON_ALL, 0, 0 },
    { "late-join-around-a-replica", late_join_around_a_replica, ON_ALL, 0, 0 },
    { "late-join-without-number", late_join_without_number, ON_ALL, 0, 0 },
    { "repeated-join-refused", repeated_join_refused, ON_ALL, 0, 0 },
    { "repeated-join-and-leave-refused", repeated_join_and_leave_refused, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
