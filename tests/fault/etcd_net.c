/* etcd_net.c: faults between client and member: replies cut at every byte, replies that
 * never come, requests that come late, silence for longer than a lease, processes and
 * members that stop. An answer that never came is neither yes nor no (G7). */
#include "broken.h"
#include "etcd_fault.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The call survives it, and there is never more than one ticket of it. */
static void cut_one(hf_client *c, hf_client *past, long bytes)
{
    size_t cuts = proxy_cuts(fronts[0]);
    struct pend *p;
    hf_lease *l;

    proxy_cut_after(fronts[0], bytes);
    p = begun(c, "n", HF_FOREVER, NULL);
    AWAIT(pend_done(p) || proxy_cuts(fronts[0]) > cuts);
    proxy_cut_after(fronts[0], -1);
    l = pend_granted(p);
    CHECK_RC(hf_lease_check(l), 0);
    CHECK(line_is(past, "n", 1, 0));
    release_cut(fronts[0], bytes, l);
    AWAIT(line_is(past, "n", 0, 0));
}

static void replies_cut(void)
{
    enum { LONGEST = 160, STEP = 4 };
    hf_client *c, *past;

    use_members(1, "");
    c = opened();
    past = opened_past();
    given(taken(c, "n", NULL));
    for (long bytes = 0; bytes < LONGEST; bytes += STEP)
        cut_one(c, past, bytes);
    CHECK_NUM(proxy_cuts(fronts[0]), >, LONGEST / STEP / 2); /* they were cut indeed */
    closed(c);
    closed(past);
    done();
}

/* Executed, and its answer never seen: found again by its key, not made twice. */
static void create_unanswered(void)
{
    hf_client *c, *past;
    struct pend *p;
    hf_lease *l;
    struct seen first, s;

    use_members(1, "");
    c = opened();
    past = opened_past();
    given(taken(c, "n", NULL));
    proxy_freeze(fronts[0], PROXY_PRESENT, PROXY_DOWN);
    p = begun(c, "n", HF_FOREVER, NULL);
    AWAIT(see(past, "n", 0, &first));
    CHECK(!pend_done(p));
    proxy_drop(fronts[0]);
    proxy_freeze(fronts[0], PROXY_PRESENT, 0);
    l = pend_granted(p);
    CHECK(see(past, "n", 0, &s));
    CHECK_STR(s.id, first.id);
    CHECK(hf_lease_fence(l) == first.fence);
    CHECK(line_is(past, "n", 1, 0));
    given(l);
    AWAIT(line_is(past, "n", 0, 0));
    closed(c);
    closed(past);
    done();
}

/* A join that comes when its caller has given up, and the client is long on another
 * connection: the lease is alive, so such a ticket would stand in line for ever. */
static void create_late(void)
{
    hf_client *c, *past;
    hf_lease *other;

    use_members(1, "&connect_timeout=1s");
    c = prompted();
    past = opened_past();
    other = taken(c, "other", NULL); /* the lease is used, and renewed */
    for (int i = 0; i < 10; i++) {
        hf_lease *l = NULL;

        proxy_freeze(fronts[0], PROXY_PRESENT, PROXY_UP);
        CHECK(rig.face->acquire(c, "n", 1500, NULL, &l, E()) < 0 || l);
        if (l)
            given(l);
        AWAIT(rig.face->state(c, "n", E()) == HF_FREE);
        proxy_freeze(fronts[0], PROXY_PRESENT, 0); /* now it comes */
        STAYS(line_is(past, "n", 0, 0), 200);
    }
    CHECK_RC(hf_lease_check(other), 0);
    given(other);
    closed(c);
    closed(past);
    done();
}

/* A release that comes when its client has gone on by another connection, and has another
 * ticket in that line: it must not end that one. */
static void delete_late(void)
{
    hf_client *c, *past;
    hf_lease *other;

    use_members(1, "&connect_timeout=1s");
    c = prompted();
    past = opened_past();
    other = taken(c, "other", NULL); /* the lease is used, and stays */
    for (int i = 0; i < 10; i++) {
        hf_lease *l = taken(c, "n", NULL);

        proxy_freeze(fronts[0], PROXY_PRESENT, PROXY_UP);
        rig.face->release(l, E());
        AWAIT(line_is(past, "n", 0, 0));
        l = taken(c, "n", NULL);
        proxy_freeze(fronts[0], PROXY_PRESENT, 0); /* now it comes */
        STAYS(line_is(past, "n", 1, 0), 200);
        CHECK_RC(hf_lease_check(l), 0);
        given(l);
    }
    CHECK_RC(hf_lease_check(other), 0);
    given(other);
    closed(c);
    closed(past);
    done();
}

/* The list for a new ticket is put off while another join is on its way. That one gives up
 * while its lease is still being granted: the list is sent all the same. */
static void list_put_off(void)
{
    enum { WAITERS = 20 };
    struct pend *waiters[WAITERS + 1], *other;
    hf_lease *l, *none = NULL;
    hf_client *c, *past;

    lease_s = 15;
    use_members(1, "");
    past = opened_past();
    c = prompted();
    l = taken(past, "n", NULL);
    for (int i = 0; i < WAITERS; i++)
        waiters[i] = queued(c, "n", (size_t)i + 1, NULL);
    proxy_freeze(fronts[0], PROXY_PRESENT, PROXY_DOWN);
    waiters[WAITERS] = begun(c, "n", LIMIT_MS, NULL);
    AWAIT(line_is(past, "n", 1, WAITERS + 1)); /* only the answer is missing */
    proxy_freeze(fronts[0], PROXY_PRESENT, PROXY_UP | PROXY_DOWN);
    other = begun(c, "n", 500, HF_REQUEST(.ttl_ms = 20000));
    STAYS(!pend_done(waiters[0]), 200);
    proxy_freeze(fronts[0], PROXY_PRESENT, PROXY_UP); /* the answer comes */
    STAYS(!pend_done(waiters[0]), 600);
    proxy_freeze(fronts[0], PROXY_PRESENT, 0);
    CHECK(pend_end(other, &none) < 0);
    given(l);
    for (int i = 0; i <= WAITERS; i++)
        given(pend_granted(waiters[i]));
    closed(c);
    closed(past);
    done();
}

/* A hold goes to a shorter ttl, and the connection is lost before that is answered. Another
 * hold has such a lease already, and it was renewed a while ago: the hold must not rely on
 * all of its ttl. */
enum { SHORT_S = 9, LONG_MS = 60000 };

static void *shortened(void *lease)
{
    CHECK_RC(rig.face->renew(lease, SHORT_S * 1000, E()), HF_EUNKNOWN);
    return NULL;
}

static void moved_and_cut(void)
{
    struct two t;
    pthread_t thread;
    hf_lease *other;

    lease_s = SHORT_S;
    use_members(1, "&connect_timeout=1s");
    t.a = prompted();
    t.b = opened_past();
    t.held = taken(t.a, "n", HF_REQUEST(.ttl_ms = LONG_MS));
    t.waits = begun(t.b, "n", 2 * LONG_MS, NULL);
    AWAIT(line_is(t.b, "n", 1, 1));
    other = taken(t.a, "other", NULL);
    STAYS(hf_lease_check(other) == 0, SHORT_S * 1000 / 3 - 700); /* not renewed yet */
    proxy_freeze(fronts[0], PROXY_PRESENT | PROXY_FUTURE, PROXY_DOWN);
    CHECK_NUM(pthread_create(&thread, NULL, shortened, t.held), ==, 0);
    STAYS(hf_lease_check(other) == 0, 200);
    proxy_freeze(fronts[0], PROXY_PRESENT | PROXY_FUTURE, PROXY_UP | PROXY_DOWN);
    CHECK_NUM(pthread_join(thread, NULL), ==, 0);
    AWAIT((two_are_right(&t), hf_lease_check(t.held) == HF_ELOST));
    CHECK_RC(hf_lease_check(other), HF_ELOST);
    proxy_drop(fronts[0]);
    proxy_freeze(fronts[0], PROXY_PRESENT | PROXY_FUTURE, 0);
    CHECK_RC(rig.face->release(other, E()), HF_ELOST);
    two_lost(&t);
    done();
}

/* A hold has gone to another ttl, the answer is lost with the connection, and its old lease
 * is ended meanwhile: it is lost, and its ticket does not stay behind on the new lease,
 * which is renewed for another hold. The answer to the keep-alive before is as long as the
 * server makes it, so the place of the cut is looked for. */
static bool is_on(long long lease)
{
    const char *at = strstr(ctl("get --prefix fault/n/ -w fields"), "\"Lease\" : ");
    long long on;

    CHECK(at && sscanf(at, "\"Lease\" : %lld", &on) == 1);
    return on == lease;
}

static void *lengthened(void *lease)
{
    rig.face->renew(lease, LONG_MS, E());
    return NULL;
}

static bool moved_then_revoked(hf_client *c, hf_client *past, long bytes)
{
    size_t cuts = proxy_cuts(fronts[0]);
    pthread_t thread;
    long long from;
    char key[256];
    hf_lease *l;
    bool moved;

    l = taken(c, "n", HF_REQUEST(.ttl_ms = 30000));
    from = lease_in(key_of(past, 0, key));
    STAYS(hf_lease_check(l) == 0, 300); /* its key is watched now */
    proxy_refuse(fronts[0], true);
    proxy_cut_after(fronts[0], bytes);
    CHECK_NUM(pthread_create(&thread, NULL, lengthened, l), ==, 0);
    AWAIT(proxy_cuts(fronts[0]) > cuts);
    proxy_cut_after(fronts[0], -1);
    moved = !is_on(from);
    if (moved)
        ctl("lease revoke %llx", from);
    proxy_refuse(fronts[0], false);
    CHECK_NUM(pthread_join(thread, NULL), ==, 0);
    if (moved)
        AWAIT(hf_lease_check(l) == HF_ELOST);
    rig.face->release(l, E());
    AWAIT(line_is(past, "n", 0, 0));
    return moved;
}

static void moved_and_revoked(void)
{
    hf_client *c, *past;
    hf_lease *other;
    int moved = 0;

    use_members(1, "");
    c = prompted();
    past = opened_past();
    other = taken(c, "other", HF_REQUEST(.ttl_ms = LONG_MS));
    for (long bytes = 24; bytes < 240 && moved < 3; bytes += 12)
        moved += moved_then_revoked(c, past, bytes);
    CHECK_NUM(moved, >, 0);
    CHECK_RC(hf_lease_check(other), 0);
    given(other);
    closed(c);
    closed(past);
    done();
}

/* The lease of a hold is ended by hand. That it is over, and that the create of another
 * ticket on it did nothing, is read at once: nobody proves such a lease any more, and the
 * ticket must not wait for that. */
static void *renewed(void *lease)
{
    rig.face->renew(lease, LONG_MS, E());
    return NULL;
}

static void create_on_ended(void)
{
    hf_client *c, *past;
    pthread_t thread;
    struct pend *p;
    char key[256];
    hf_lease *l;

    use_members(1, "");
    c = prompted();
    past = opened_past();
    l = taken(c, "n", HF_REQUEST(.ttl_ms = LONG_MS));
    proxy_drop(fronts[0]);
    AWAIT(strstr(ctl("get --prefix --keys-only fault//client/"), "client"));
    STAYS(hf_lease_check(l) == 0, 300);
    proxy_freeze(fronts[0], PROXY_PRESENT, PROXY_DOWN);
    ctl("lease revoke %llx", lease_in(key_of(past, 0, key)));
    CHECK_NUM(pthread_create(&thread, NULL, renewed, l), ==, 0);
    STAYS(hf_lease_check(l) == 0, 200);
    p = begun(c, "m", LIMIT_MS, HF_REQUEST(.ttl_ms = LONG_MS));
    STAYS(!pend_done(p), 200);
    proxy_freeze(fronts[0], PROXY_PRESENT, 0);
    CHECK_NUM(pthread_join(thread, NULL), ==, 0);
    AWAIT(pend_done(p));
    given(pend_granted(p));
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(c);
    closed(past);
    done();
}

static void *shortened_while_broken(void *lease)
{
    CHECK_RC(rig.face->renew(lease, SHORT_S * 1000, E()), 0);
    return NULL;
}

/* It hears that it was broken while it goes to a shorter ttl: it is renewed no more, and
 * must not rely on the lease that its key has left. */
static void moved_and_broken(void)
{
    hf_client *c, *past;
    pthread_t thread;
    hf_lease *l;

    use_members(1, "");
    c = prompted();
    past = opened_past();
    l = taken(c, "n", HF_REQUEST(.ttl_ms = LONG_MS));
    STAYS(hf_lease_check(l) == 0, 300); /* its key is watched now */
    proxy_freeze(fronts[0], PROXY_PRESENT, PROXY_DOWN);
    CHECK_RC(rig.face->evict(past, "n", hf_lease_ticket(l), 0, E()), 0);
    CHECK_NUM(pthread_create(&thread, NULL, shortened_while_broken, l), ==, 0);
    STAYS(hf_lease_check(l) == 0, 200);
    proxy_freeze(fronts[0], PROXY_PRESENT, 0);
    CHECK_NUM(pthread_join(thread, NULL), ==, 0);
    AWAIT(hf_lease_state(l) == HF_AT_RISK);
    CHECK_NUM(hf_lease_remaining_ms(l), <=, SHORT_S * 1000);
    given(l);
    closed(c);
    closed(past);
    done();
}

/* A hold that has gone to a shorter ttl is renewed in time. */
static void moved_and_renewed(void)
{
    struct two t;

    use_members(1, "");
    t.a = prompted();
    t.b = opened_past();
    t.held = taken(t.a, "n", HF_REQUEST(.ttl_ms = LONG_MS));
    t.waits = begun(t.b, "n", LONG_MS, NULL);
    AWAIT(line_is(t.b, "n", 1, 1));
    CHECK_RC(rig.face->renew(t.held, TTL_MS, E()), 0);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), TTL_MS * 3 / 2);
    two_go_on(&t);
    done();
}

static void silence_beyond_ttl(void)
{
    struct two t;

    use_members(1, "&connect_timeout=1s");
    t = hold_and_wait();
    proxy_freeze(fronts[0], PROXY_PRESENT | PROXY_FUTURE, PROXY_UP | PROXY_DOWN);
    AWAIT((two_are_right(&t), hf_lease_check(t.held) == HF_ELOST));
    AWAIT((two_are_right(&t), pend_done(t.waits)));
    proxy_freeze(fronts[0], PROXY_PRESENT | PROXY_FUTURE, 0);
    two_lost(&t);
    done();
}

static void silence_within_ttl(void)
{
    struct two t;

    use_members(1, "&connect_timeout=1s");
    t = hold_and_wait();
    proxy_freeze(fronts[0], PROXY_PRESENT | PROXY_FUTURE, PROXY_UP | PROXY_DOWN);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), TTL_MS / 3);
    proxy_freeze(fronts[0], PROXY_PRESENT | PROXY_FUTURE, 0);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), TTL_MS * 3 / 2);
    two_go_on(&t);
    done();
}

/* A process that stands still for longer than its lease. */
static void process_stopped(void)
{
    struct kid k;
    hf_client *b;
    struct pend *p;

    use_directly("");
    k = kid_new();
    CHECK_RC(kid_acquire(&k, 0, "n", LIMIT_MS, NULL, NULL), 0);
    b = opened_past();
    p = queued(b, "n", 1, NULL);
    kid_stop(&k);
    AWAIT(pend_done(p));
    kid_continue(&k);
    CHECK_RC(kid_check(&k, 0).check, HF_ELOST);
    CHECK_RC(kid_release(&k, 0).rc, HF_ELOST);
    CHECK_RC(kid_acquire(&k, 0, "m", LIMIT_MS, NULL, NULL), 0); /* it goes on */
    kid_end(&k);
    given(pend_granted(p));
    closed(b);
    done();
}

static void member_stopped(void)
{
    struct two t;

    use_members(1, "&connect_timeout=1s");
    t = hold_and_wait();
    server_freeze(&members->servers[0]);
    AWAIT((two_are_right(&t), hf_lease_check(t.held) == HF_ELOST));
    server_continue(&members->servers[0]);
    two_lost(&t);
    done();
}

static void member_killed(void)
{
    struct two t;

    lease_s = 15; /* a start may take a while */
    use_members(1, "");
    t = hold_and_wait();
    server_kill(&members->servers[0]);
    etcd_start_all(members); /* leases begin anew with all of their ttl */
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), TTL_MS * 3 / 2);
    two_go_on(&t);
    done();
}

/* Longer than any timer: the lease has been revoked, and the next acquire is as fast as
 * the first: a lease, a transaction, and one for the release, on the same connection. The
 * key of one that is held for longer than a moment is watched, and read. */
static void idle(void)
{
    static const char messages[] = "grpc_server_msg_received_total";
    hf_client *c;
    int64_t begun_ms, took_ms, asked;

    use_members(1, "");
    c = prompted();
    given(taken(c, "n", HF_REQUEST(.ttl_ms = 2000)));
    AWAIT(strstr(ctl("lease list"), "found 0 leases"));
    asked = etcd_number(members, 0, messages);
    begun_ms = now_ms();
    given(taken(c, "n", HF_REQUEST(.ttl_ms = 2000)));
    took_ms = now_ms() - begun_ms;
    asked = etcd_number(members, 0, messages) - asked;
    CHECK_NUM(took_ms, <, 1000 * TEST_SLOW);
    CHECK_NUM(asked, <=, took_ms < 40 ? 3 : 6);
    CHECK_NUM(proxy_accepted(fronts[0]), ==, 1);
    closed(c);
    AWAIT(strstr(ctl("lease list"), "found 0 leases"));
    done();
}

/* ---- etcd's own proxy ------------------------------------------------------------ */

/* It gives watches other numbers than were asked for: the end of one ticket would be taken
 * for that of another. So it is refused, and that is told before anybody holds. */
static void grpc_proxy(void)
{
    const char *program = getenv("HF_TEST_ETCD");
    char to[64], at[64];
    const char *const argv[] = { "etcd", "grpc-proxy", "start", to, at, NULL };
    struct server *proxy = shared_new(sizeof(*proxy));
    hf_client *c;
    int rc;

    use_directly("");
    server_init(proxy, "proxy");
    snprintf(to, sizeof(to), "--endpoints=127.0.0.1:%d", members->servers[0].port);
    snprintf(at, sizeof(at), "--listen-addr=127.0.0.1:%d", proxy->port);
    server_spawn(proxy, program ? program : "/usr/bin/etcd",
                 (char *const *)(uintptr_t)argv);
    snprintf(rig.place->url, sizeof(rig.place->url), "etcd://127.0.0.1:%d/fault",
             proxy->port);
    c = opened();
    AWAIT((rc = tried(c, "n", NULL)) != HF_EUNREACHABLE);
    CHECK_RC(rc, HF_EVERSION);
    CHECK(strstr(last_error()->text, "grpc-proxy"));
    closed(c);
    server_remove(proxy);
    shared_free(proxy, sizeof(*proxy));
    done();
}

const struct test_case etcd_net_cases[] = {
    { "replies-cut", replies_cut, ON_BLOCKING, 0, CASE_LONG },
    { "create-unanswered", create_unanswered, ON_BLOCKING, 0, 0 },
    { "create-late", create_late, ON_BLOCKING, 0, CASE_LONG },
    { "delete-late", delete_late, ON_BLOCKING, 0, CASE_LONG },
    { "list-put-off", list_put_off, ON_BLOCKING, 0, 0 },
    { "moved-and-cut", moved_and_cut, ON_BLOCKING, 0, CASE_LONG },
    { "moved-and-revoked", moved_and_revoked, ON_BLOCKING, 0, CASE_LONG },
    { "create-on-ended", create_on_ended, ON_BLOCKING, 0, 0 },
    { "moved-and-broken", moved_and_broken, ON_BLOCKING, 0, 0 },
    { "moved-and-renewed", moved_and_renewed, ON_BLOCKING, 0, 0 },
    { "silence-beyond-ttl", silence_beyond_ttl, ON_BLOCKING, 0, 0 },
    { "silence-within-ttl", silence_within_ttl, ON_BLOCKING, 0, 0 },
    { "process-stopped", process_stopped, ON_BLOCKING, 0, 0 },
    { "member-stopped", member_stopped, ON_BLOCKING, 0, 0 },
    { "member-killed", member_killed, ON_BLOCKING, 0, 0 },
    { "idle", idle, ON_BLOCKING, 0, CASE_LONG },
    { "grpc-proxy", grpc_proxy, ON_BLOCKING, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
