/* redis_net.c: faults between client and server: replies cut in half, replies that never
 * come, requests that come late. An answer that never came is neither yes nor no (G7):
 * whatever happened to the request, nothing is left of a failed call, and nobody holds
 * beside a holder.
 */
#include "broken.h"
#include "redis_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *quick(void)
{
    static char params[64];

    snprintf(params, sizeof(params), "?connect_timeout=%dms", SILENCE_MS);
    return params;
}

/* Cuts the connection after each possible number of bytes of reply. The call survives it,
 * and there is never more than one ticket of it. */
static void cut_one(hf_client *c, hf_client *direct, long bytes)
{
    size_t cuts = proxy_cuts(proxy);
    struct pend *p;
    hf_lease *l;

    proxy_cut_after(proxy, bytes);
    p = begun(c, nm("n"), HF_FOREVER, NULL);
    AWAIT(pend_done(p) || proxy_cuts(proxy) > cuts);
    proxy_cut_after(proxy, -1);
    l = pend_granted(p);
    CHECK_RC(hf_lease_check(l), 0);
    CHECK(line_is(direct, nm("n"), 1, 0));
    release_cut(proxy, bytes, l);
    AWAIT(line_is(direct, nm("n"), 0, 0));
}

static void replies_cut(void)
{
    enum { LONGEST = 40 };
    hf_client *c, *direct;

    use_proxied_server("");
    c = opened();
    direct = opened_directly();
    for (long bytes = 0; bytes < LONGEST; bytes++)
        cut_one(c, direct, bytes);
    CHECK_NUM(proxy_cuts(proxy), >, LONGEST / 2); /* they were cut indeed */
    closed(c);
    closed(direct);
    done();
}

/* The same while the first connection is made: its greeting is cut. */
static void greeting_cut(void)
{
    enum { LONGEST = 60 };
    hf_client *direct;

    use_proxied_server("");
    direct = opened_directly();
    for (long bytes = 0; bytes < LONGEST; bytes += 3) {
        hf_client *c = opened();

        cut_one(c, direct, bytes);
        closed(c);
    }
    closed(direct);
    done();
}

/* The waiter's connections, both, at each byte, while it waits and while it is admitted. */
static void waiting_cut(void)
{
    hf_client *direct;

    use_proxied_server("");
    direct = opened_directly();
    for (long bytes = 0; bytes < 40; bytes += 5) {
        hf_client *c = opened();
        hf_lease *l = taken(direct, nm("n"), NULL);
        struct pend *p = queued(c, nm("n"), 1, HF_REQUEST(.ttl_ms = SHORT_MS));

        proxy_cut_after(proxy, bytes);
        given(l);
        AWAIT(pend_done(p) || proxy_open(proxy) < 2);
        proxy_cut_after(proxy, -1);
        given(pend_granted(p));
        AWAIT(line_is(direct, nm("n"), 0, 0));
        closed(c);
    }
    closed(direct);
    done();
}

/* It happened, and nobody is told: the call ends in its time, and what it did is undone. */
static void reply_never_comes(void)
{
    hf_client *c, *direct;
    hf_lease *l = NULL;
    int64_t start;
    int rc;

    use_proxied_server(quick());
    c = opened();
    direct = opened_directly();
    CHECK_RC(tried(c, nm("other"), NULL), 0); /* it is connected */
    for (int i = 0; i < 2; i++) {
        proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
        start = now_ms();
        rc = rig.face->acquire(c, nm("n"), i ? SILENCE_MS / 2 : 0, NULL, &l, E());
        CHECK_WITHIN(start, LIMIT_MS / 2);
        if (rc == 0) { /* on a new connection, which passes */
            CHECK_RC(hf_lease_check(l), 0);
            CHECK(line_is(direct, nm("n"), 1, 0));
            given(l);
        } else {
            CHECK(rc == HF_EUNREACHABLE || rc == HF_ETIMEDOUT || rc == HF_EUNKNOWN);
        }
        AWAIT(line_is(direct, nm("n"), 0, 0));
        AWAIT(tried(c, nm("n"), NULL) == 0);
        proxy_freeze(proxy, PROXY_PRESENT, 0);
        AWAIT(line_is(direct, nm("n"), 0, 0));
        l = NULL;
    }
    closed(c);
    closed(direct);
    done();
}

/* A black hole: no answer, no refusal, for nobody. The first call finds it out within the
 * time that was given for it; from then on it is known, and no call waits for it. */
static void black_hole(void)
{
    hf_client *c, *direct;
    hf_lease *l, *none = NULL;
    int64_t start;
    int rc;

    use_proxied_server(quick());
    c = prompted();
    direct = opened_directly();
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = SHORT_MS));
    proxy_freeze(proxy, PROXY_PRESENT | PROXY_FUTURE, PROXY_UP | PROXY_DOWN);
    start = now_ms();
    for (int i = 0; i < 2; i++) {
        rc = rig.face->acquire(c, nm("m"), i ? HF_FOREVER : 0, NULL, &none, E());
        CHECK_RC(rc, HF_EUNREACHABLE);
        CHECK(last_error()->retry == 1 && last_error()->where[0]);
        CHECK_WITHIN(start, LIMIT_MS / 2);
    }
    AWAIT(hf_lease_state(l) == HF_LOST);
    CHECK_WITHIN(start, LIMIT_MS / 2);
    given(taken(direct, nm("n"), NULL));
    proxy_freeze(proxy, PROXY_PRESENT | PROXY_FUTURE, 0);
    CHECK(rig.face->release(l, E()) < 0);
    AWAIT(tried(c, nm("n"), NULL) == 0);
    AWAIT(line_is(direct, nm("m"), 0, 0));
    closed(c);
    closed(direct);
    done();
}

/* While a holder's replies are held back: either it finds another way in time or it knows
 * that it has lost; nobody holds beside it. */
static void holder_unheard(void)
{
    hf_client *c, *direct;
    hf_lease *l, *next = NULL;
    int64_t start;

    use_proxied_server(quick());
    c = prompted();
    direct = opened_directly();
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 3 * SHORT_MS));
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
    start = now_ms();
    while (!next && now_ms() - start < 6 * SHORT_MS) {
        if (rig.face->acquire(direct, nm("n"), 0, NULL, &next, E()) == 0)
            CHECK_RC(hf_lease_check(l), HF_ELOST);
        nap();
    }
    CHECK(!next); /* one connection was silent, another was to be had */
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    AWAIT(line_is(direct, nm("n"), 0, 0));
    closed(c);
    closed(direct);
    done();
}

/* A join that reaches the server when its caller has long given up and left: nothing is in
 * line for longer than it takes to leave again, and surely not for its ttl. */
static void late_join(void)
{
    hf_client *c, *direct;
    hf_lease *l = NULL;
    struct pend *p;
    int rc;

    use_proxied_server(quick());
    c = opened();
    direct = opened_directly();
    for (int i = 0; i < 3; i++) {
        AWAIT(tried(c, nm("other"), NULL) == 0); /* it is connected */
        proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
        p = begun(c, nm("n"), SILENCE_MS / 2, HF_REQUEST(.ttl_ms = 60000));
        AWAIT(pend_done(p) || proxy_kept(proxy, PROXY_UP) > 0);
        AWAIT(pend_done(p));
        rc = pend_end(p, &l);
        if (rc == 0)
            given(l); /* on a new connection; the first request is still on its way */
        l = NULL;
        AWAIT(tried(c, nm("other"), NULL) == 0);
        CHECK(line_is(direct, nm("n"), 0, 0));
        proxy_freeze(proxy, PROXY_PRESENT, 0); /* now it arrives, if it can */
        AWAIT(proxy_kept(proxy, PROXY_UP) == 0);
        AWAIT(tried(direct, nm("n"), NULL) == 0);
        STAYS(line_is(direct, nm("n"), 0, 0), 300);
    }
    closed(c);
    closed(direct);
    done();
}

/* The same, and the client is closed before it arrives. What was not settled by then is out
 * by its ttl at the latest. */
/* Behind a proxy whose INFO does not say which run of a server this is, the old connection
 * cannot be ended: "not there" is not believed while the join may still come (G7). */
static void late_join_unknown_run(void)
{
    hf_client *c, *direct;
    struct pend *p;
    int64_t scripts;
    int clients;

    use_proxied_server(quick());
    proxy_hide(proxy, "run_id");
    c = opened();
    direct = opened_directly();
    AWAIT(tried(c, nm("other"), NULL) == 0);
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
    scripts = redis_calls(&server, "evalsha");
    p = begun(c, nm("n"), SILENCE_MS / 2, HF_REQUEST(.ttl_ms = 600000));
    AWAIT(pend_done(p));
    CHECK(pend_end(p, NULL) < 0);
    AWAIT(redis_calls(&server, "evalsha") > scripts); /* its leave, by a new connection */
    clients = atoi(redis_info(&server, "connected_clients"));
    proxy_freeze(proxy, PROXY_PRESENT, 0);
    AWAIT(atoi(redis_info(&server, "connected_clients")) < clients); /* it has arrived */
    AWAIT(line_is(direct, nm("n"), 0, 0));
    closed(c);
    closed(direct);
    done();
}

static void late_join_after_close(void)
{
    hf_client *c, *direct;
    struct pend *p;
    hf_lease *l = NULL;

    use_proxied_server(quick());
    c = opened();
    direct = opened_directly();
    CHECK_RC(tried(c, nm("other"), NULL), 0);
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
    p = begun(c, nm("n"), SILENCE_MS / 4, HF_REQUEST(.ttl_ms = SHORT_MS));
    AWAIT(pend_done(p));
    if (pend_end(p, &l) == 0)
        given(l);
    closed(c);
    proxy_freeze(proxy, PROXY_PRESENT, 0);
    AWAIT(proxy_kept(proxy, PROXY_UP) == 0);
    AWAIT(tried(direct, nm("n"), NULL) == 0);
    closed(direct);
    done();
}

/* A release that is lost on the way is repeated until it is known. */
static void lost_release(void)
{
    hf_client *c, *direct;
    hf_lease *l;
    int rc;

    use_proxied_server(quick());
    c = prompted();
    direct = opened_directly();
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 60000));
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
    rc = rig.face->release(l, E());
    CHECK(rc == 0 || rc == HF_EUNKNOWN);
    proxy_drop(proxy); /* what was kept is gone */
    AWAIT(line_is(direct, nm("n"), 0, 0));
    closed(c);
    closed(direct);
    done();
}

/* The message that a waiter was evicted is lost with its connection: the next look finds
 * out, also when nothing else of the line is left. It is neither granted nor in line again.
 */
static void evicted_unheard(void)
{
    hf_client *c, *direct;
    struct pend *p;
    struct seen s;
    hf_lease *l;

    use_proxied_server("");
    c = opened();
    direct = opened_directly();
    for (int empty = 0; empty < 2; empty++) {
        l = taken(direct, nm("n"), NULL);
        p = queued(c, nm("n"), 1, HF_REQUEST(.ttl_ms = 60000));
        CHECK(see(direct, nm("n"), 1, &s));
        proxy_refuse(proxy, true);
        proxy_drop(proxy);
        CHECK_RC(hf_evict(direct, nm("n"), s.id, 0, E()), 0);
        if (empty)
            given(l);
        CHECK(!pend_done(p));
        proxy_refuse(proxy, false);
        CHECK_RC(pend_end(p, NULL), HF_EEVICTED);
        if (!empty)
            given(l);
        AWAIT(line_is(direct, nm("n"), 0, 0));
    }
    closed(c);
    closed(direct);
    done();
}

/* A program that closes what it does not know has files of its own where our sockets were.
 */
static void close_all(void *arg)
{
    enum { LAST = 40 };
    char path[] = "/tmp/hf-foreign-XXXXXX";
    hf_client *c = NULL;
    hf_lease *l = NULL, *none;
    struct stat st;

    (void)arg;
    CHECK_RC(hf_open(rig.place->url, NULL, &c, E()), 0);
    CHECK_RC(hf_acquire(c, nm("n"), LIMIT_MS, NULL, &l, E()), 0);
    syscall(SYS_close_range, 3, ~0u, 0);
    CHECK(mkstemp(path) == 3);
    for (int fd = 4; fd <= LAST; fd++)
        CHECK(open(path, O_RDWR | O_APPEND) == fd);
    unlink(path);
    CHECK_RC(hf_acquire(c, nm("m"), LIMIT_MS, NULL, &none, E()), HF_ESYS);
    CHECK_RC(hf_lease_check(l), HF_ELOST);
    CHECK_RC(hf_release(l, E()), HF_ELOST);
    hf_close(c);
    for (int fd = 3; fd <= LAST; fd++)
        CHECK(fstat(fd, &st) == 0 && st.st_size == 0 && lseek(fd, 0, SEEK_CUR) == 0);
    _exit(0); /* what the driver had is left */
}

/* The same in a callback, with sockets of the program, before or after it has started
 * something. What callbacks start is sent when they have returned. */
struct closer {
    hf_client *client;
    bool starts_first;
    int rc[2]; /* of what it has started */
};

static void take_our_places(void)
{
    enum { LAST = 40 };
    int ends[2];

    syscall(SYS_close_range, 3, ~0u, 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && ends[0] == 3);
    for (int fd = 5; fd <= LAST; fd++)
        CHECK(dup(ends[1]) == fd);
}

static void told(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    (void)l;
    (void)err;
    *(int *)user = rc;
    hf_op_free(op);
}

static void close_and_start(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    struct closer *x = user;

    (void)err;
    CHECK_RC(rc, 0);
    hf_op_free(op);
    if (!x->starts_first)
        take_our_places();
    CHECK_RC(
        hf_acquire_start(x->client, nm("next"), LIMIT_MS, NULL, told, &x->rc[0], &op, E()),
        0);
    CHECK_RC(hf_release_start(l, told, &x->rc[1], &op, E()), 0);
    if (x->starts_first)
        take_our_places();
}

static void close_all_in_callback(void *arg)
{
    struct closer x = { .starts_first = arg != NULL, .rc = { 1, 1 } };
    const char *name = arg ? nm("late") : nm("early");
    char byte;
    hf_op *op;

    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &x.client, E()), 0);
    CHECK_RC(
        hf_acquire_start(x.client, name, LIMIT_MS, NULL, close_and_start, &x, &op, E()), 0);
    while ((x.rc[0] == 1 || x.rc[1] == 1) && hf_client_wait(x.client, LIMIT_MS) > 0)
        ;
    CHECK_RC(x.rc[0], HF_ESYS);
    CHECK(x.rc[1] == HF_ELOST || x.rc[1] == HF_ESYS);
    hf_close(x.client);
    CHECK(recv(3, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    _exit(0);
}

static void descriptors_closed(void)
{
    use_plain_server();
    proc_end(proc_start(close_all, NULL));
    proc_end(proc_start(close_all_in_callback, NULL));
    proc_end(proc_start(close_all_in_callback, rig.place));
    done();
}

const struct test_case redis_net_cases[] = {
    { "descriptors-closed", descriptors_closed, ON_BLOCKING, 0, 0 },
    { "replies-cut", replies_cut, ON_ALL, 0, CASE_LONG },
    { "greeting-cut", greeting_cut, ON_ALL, 0, CASE_LONG },
    { "waiting-cut", waiting_cut, ON_ALL, 0, CASE_LONG },
    { "reply-never-comes", reply_never_comes, ON_ALL, 0, 0 },
    { "black-hole", black_hole, ON_ALL, 0, 0 },
    { "holder-unheard", holder_unheard, ON_ALL, 0, 0 },
    { "late-join", late_join, ON_ALL, 0, CASE_LONG },
    { "late-join-unknown-run", late_join_unknown_run, ON_ALL, 0, 0 },
    { "late-join-after-close", late_join_after_close, ON_ALL, 0, 0 },
    { "lost-release", lost_release, ON_ALL, 0, 0 },
    { "evicted-unheard", evicted_unheard, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
