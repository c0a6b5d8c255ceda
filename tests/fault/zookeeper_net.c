/* zookeeper_net.c: faults between client and server: replies cut at every byte, replies
 * that never come, requests that come late, silence for longer than the session,
 * processes that stop, servers that send nonsense. An answer that never came is neither
 * yes nor no (G7). */
#include "broken.h"
#include "zookeeper_fault.h"

#include "proto/jute.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The call survives it, and there is never more than one ticket of it. */
static void cut_one(hf_client *c, hf_client *direct, long bytes)
{
    size_t cuts = proxy_cuts(proxy);
    struct pend *p;
    hf_lease *l;

    proxy_cut_after(proxy, bytes);
    p = begun(c, "n", HF_FOREVER, NULL);
    AWAIT(pend_done(p) || proxy_cuts(proxy) > cuts);
    proxy_cut_after(proxy, -1);
    l = pend_granted(p);
    CHECK_RC(hf_lease_check(l), 0);
    CHECK(line_is(direct, "n", 1, 0));
    release_cut(proxy, bytes, l);
    AWAIT(line_is(direct, "n", 0, 0));
}

static void replies_cut(void)
{
    enum { LONGEST = 420, STEP = 6 };
    hf_client *c, *direct;

    use_one_by_proxy("");
    c = opened();
    direct = opened_directly(0);
    given(taken(c, "n", NULL)); /* its levels are there */
    for (long bytes = 0; bytes < LONGEST; bytes += STEP)
        cut_one(c, direct, bytes);
    CHECK_NUM(proxy_cuts(proxy), >, LONGEST / STEP / 2); /* they were cut indeed */
    closed(c);
    closed(direct);
    done();
}

/* Executed, and its answer never seen: found again by its token, not made twice. */
static void create_unanswered(void)
{
    hf_client *c, *direct;
    struct pend *p;
    hf_lease *l;
    struct seen first, s;

    use_one_by_proxy("");
    c = opened();
    direct = opened_directly(0);
    given(taken(c, "n", NULL));
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
    p = begun(c, "n", HF_FOREVER, NULL);
    AWAIT(see(direct, "n", 0, &first));
    CHECK(!pend_done(p));
    proxy_drop(proxy);
    proxy_freeze(proxy, PROXY_PRESENT, 0);
    l = pend_granted(p);
    CHECK(see(direct, "n", 0, &s));
    CHECK_STR(s.id, first.id);
    CHECK(hf_lease_fence(l) == first.fence);
    CHECK(line_is(direct, "n", 1, 0));
    given(l);
    AWAIT(line_is(direct, "n", 0, 0));
    closed(c);
    closed(direct);
    done();
}

/* And the connection is lost again, at every byte, while it is being looked for. */
static void create_unanswered_twice(void)
{
    enum { LONGEST = 500, STEP = 20 };
    hf_client *c, *direct;
    struct pend *p;
    struct seen s;
    size_t cuts;
    hf_lease *l;

    use_one_by_proxy("ttl=8s");
    c = opened();
    direct = opened_directly(0);
    given(taken(c, "n", NULL));
    for (long bytes = 0; bytes < LONGEST; bytes += STEP) {
        proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
        p = begun(c, "n", HF_FOREVER, NULL);
        AWAIT(see(direct, "n", 0, &s));
        proxy_drop(proxy);
        cuts = proxy_cuts(proxy);
        proxy_cut_after(proxy, bytes);
        proxy_freeze(proxy, PROXY_PRESENT, 0);
        AWAIT(proxy_cuts(proxy) > cuts || pend_done(p));
        proxy_cut_after(proxy, -1);
        l = pend_granted(p);
        CHECK(hf_lease_fence(l) == s.fence);
        CHECK(line_is(direct, "n", 1, 0));
        given(l);
        AWAIT(line_is(direct, "n", 0, 0));
    }
    closed(c);
    closed(direct);
    done();
}

/* The request is on its way when the caller gives up; it must not come to anything. */
static void create_comes_late(void)
{
    hf_client *c, *direct;
    hf_lease *l = NULL;

    use_one_by_proxy("ttl=12s&connect_timeout=3s");
    c = opened();
    direct = opened_directly(0);
    given(taken(c, "n", NULL));
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
    CHECK_RC(rig.face->acquire(c, "n", 100, NULL, &l, E()), HF_ETIMEDOUT);
    CHECK(proxy_kept(proxy, PROXY_UP) > 0);
    proxy_freeze(proxy, PROXY_PRESENT, 0); /* and there it comes */
    AWAIT(tried(c, "n", NULL) == 0);       /* it came before this one, and has gone */
    STAYS(line_is(direct, "n", 0, 0), 1000);
    closed(c);
    closed(direct);
    done();
}

/* Both directions stand still for longer than the session: the server ends it. */
static void session_expired(void)
{
    struct two t;

    use_one_by_proxy("connect_timeout=3s");
    t = hold_and_wait();
    proxy_freeze(proxy, PROXY_PRESENT | PROXY_FUTURE, PROXY_UP | PROXY_DOWN);
    AWAIT(pend_done(t.waits));
    two_are_right(&t); /* whenever it is granted, the other one knows that it is out */
    AWAIT(told.lost == 1);
    CHECK_NUM(told.risk, ==, 1);
    CHECK_NUM(told.lost_ms, <=, t.waits->ended_ms); /* and was told before */
    proxy_freeze(proxy, PROXY_PRESENT | PROXY_FUTURE, 0);
    CHECK_RC(rig.face->release(t.held, E()), HF_ELOST);
    t.held = taken(t.a, "m", NULL); /* a new session */
    given(t.held);
    given(pend_granted(t.waits));
    closed(t.a);
    closed(t.b);
    done();
}

/* Shorter than the session: at risk, then held again. */
static void silence_in_time(void)
{
    struct two t;

    use_one_by_proxy("ttl=12s&connect_timeout=3s");
    t = hold_and_wait();
    proxy_freeze(proxy, PROXY_PRESENT | PROXY_FUTURE, PROXY_UP | PROXY_DOWN);
    AWAIT(told.risk == 1);
    CHECK_NUM(hf_lease_state(t.held), ==, HF_AT_RISK);
    CHECK_RC(hf_lease_check(t.held), 0);
    proxy_freeze(proxy, PROXY_PRESENT | PROXY_FUTURE, 0);
    AWAIT(told.held == 1);
    CHECK_NUM(hf_lease_state(t.held), ==, HF_HELD);
    CHECK_NUM(told.risk, ==, 1);
    CHECK_NUM(told.lost, ==, 0);
    two_go_on(&t);
    done();
}

static void process_stopped(void)
{
    struct kid k = kid_new();
    hf_client *c;
    struct pend *p;
    struct answer a;
    int64_t held_until;
    hf_lease *l;

    use_one("");
    k = kid_new();
    c = opened();
    CHECK_RC(kid_acquire(&k, 0, "n", LIMIT_MS, NULL, NULL), 0);
    p = queued(c, "n", 1, NULL);
    held_until = now_ms();
    a = kid_check(&k, 0);
    CHECK_RC(a.check, 0);
    held_until += a.remaining_ms;
    kid_stop(&k);
    AWAIT(pend_done(p));
    CHECK_NUM(p->ended_ms, >=, held_until);
    l = pend_granted(p);
    kid_continue(&k);
    a = kid_check(&k, 0);
    CHECK_RC(a.check, HF_ELOST);
    CHECK_RC(kid_release(&k, 0).rc, HF_ELOST);
    CHECK_RC(hf_lease_check(l), 0);
    CHECK(line_is(c, "n", 1, 0));
    given(l);
    CHECK_RC(kid_acquire(&k, 0, "n", LIMIT_MS, NULL, NULL), 0);
    kid_end(&k);
    closed(c);
    done();
}

/* The server tells a waiter of the end of its node, and closes the connection: all of it is
 * read when the process goes on. Nobody has evicted it: it stands in line again. */
static void waiter_stopped(void)
{
    struct kid k;
    hf_client *c;
    hf_lease *l;

    use_one("");
    k = kid_new();
    c = opened();
    l = taken(c, "n", NULL);
    for (int i = 0; i < 3; i++) {
        if (i == 0)
            kid_begin(&k, 0, "n", HF_FOREVER, NULL);
        AWAIT(line_is(c, "n", 1, 1));
        kid_stop(&k);
        AWAIT(line_is(c, "n", 1, 0));
        kid_continue(&k);
    }
    AWAIT(line_is(c, "n", 1, 1));
    CHECK(!kid_answered(&k));
    given(l);
    CHECK_RC(kid_answer(&k).rc, 0);
    kid_end(&k);
    closed(c);
    done();
}

static void server_stopped(void)
{
    struct two t;

    use_one("connect_timeout=3s");
    t = hold_and_wait();
    server_freeze(&servers->servers[0]);
    AWAIT(hf_lease_check(t.held) == HF_ELOST); /* by its own clock */
    server_continue(&servers->servers[0]);
    two_lost(&t);
    done();
}

/* ---- servers that are none ------------------------------------------------------- */

struct fake {
    const char *bytes;
    size_t len;
};

static int listen_fd;
static pthread_t listener;
static struct fake fake;

/* A greeting: a session of 2 s, number 5. */
static const char greeting[] = "\0\0\0\x25\0\0\0\0\0\0\x07\xd0\0\0\0\0\0\0\0\x05\0\0\0\x10"
                               "0123456789abcdef\0";
enum { GREETING = 41 };

static void *serve(void *arg)
{
    int fd;
    char in[256];

    (void)arg;
    while ((fd = accept(listen_fd, NULL, NULL)) >= 0) {
        if (recv(fd, in, sizeof(in), 0) > 0) {
            send(fd, fake.bytes, fake.len, MSG_NOSIGNAL);
            while (recv(fd, in, sizeof(in), 0) > 0) /* until it is given up */
                send(fd, fake.bytes, fake.len, MSG_NOSIGNAL);
        }
        close(fd);
    }
    return NULL;
}

static void fake_start(void *(*server)(void *), char url[128], const char *patience)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof(a);

    listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(listen_fd, (struct sockaddr *)&a, len) == 0 && listen(listen_fd, 16) == 0);
    CHECK(getsockname(listen_fd, (struct sockaddr *)&a, &len) == 0);
    snprintf(url, 128, "zk://127.0.0.1:%d/x?ttl=2s&connect_timeout=%s", ntohs(a.sin_port),
             patience);
    CHECK(pthread_create(&listener, NULL, server, NULL) == 0);
}

static void fake_end(void)
{
    shutdown(listen_fd, SHUT_RDWR);
    pthread_join(listener, NULL);
    close(listen_fd);
}

static void nonsense(void)
{
    static const struct fake fakes[] = {
        { "\xff\xff\xff\xff", 4 },     /* a negative length */
        { "\x7f\xff\xff\xff\0\0", 6 }, /* a length for all memory */
        { "\0\0\0\x10\0\0\0\0", 8 },   /* shorter than it says */
        { "\0\0\0\x04\0\0\0\0", 8 },   /* a greeting that is cut */
        { "HTTP/1.1 400 Bad Request\r\n\r\n", 28 },
        { "\0\0\0\x25\0\0\0\0\0\0\x07\xd0\0\0\0\0\0\0\0\x05\x7f\xff\xff\xff"
          "0123456789abcdef\0",
          41 },                 /* a password of 2 GB */
        { greeting, GREETING }, /* answers every request with a greeting */
    };
    char url[128];

    fake = fakes[0];
    fake_start(serve, url, "300ms");
    for (size_t i = 0; i < sizeof(fakes) / sizeof(fakes[0]); i++) {
        hf_client *c;
        hf_lease *l = NULL;
        int rc;

        fake = fakes[i];
        fprintf(stderr, "nonsense %zu\n", i);
        c = opened_at(url);
        rc = rig.face->acquire(c, "n", 1000, NULL, &l, E());
        CHECK(!l);
        CHECK(rc == HF_EUNREACHABLE || rc == HF_EPROTO || rc == HF_ETIMEDOUT);
        closed(c);
    }
    fake_end();
}

/* Answers writes as servers do if the session has just ended, or has moved to another: the
 * header says nothing of it, only the body does. */
static atomic_int refused_with, refused_proofs, other_requests;

static void *disown(void *arg)
{
    enum { REPLY = 4 + 16 + 22, OP_AT = 8 };
    unsigned char in[512], out[REPLY] = { [3] = REPLY - 4 };
    int fd;

    (void)arg;
    while ((fd = accept(listen_fd, NULL, NULL)) >= 0) {
        if (recv(fd, in, sizeof(in), 0) > 0)
            send(fd, greeting, GREETING, MSG_NOSIGNAL);
        while (recv(fd, in, sizeof(in), 0) > OP_AT + 4) {
            if (in[OP_AT + 3] != JUTE_MULTI) {
                atomic_fetch_add(&other_requests, 1);
                break;
            }
            atomic_fetch_add(&refused_proofs, 1);
            memcpy(out + 4, in + 4, 4); /* its number */
            memset(out + 20, 0xff, REPLY - 20);
            out[24] = 0; /* a part that failed; twice its error; and the end */
            out[28] = out[32] = (unsigned char)refused_with;
            out[37] = 1;
            send(fd, out, REPLY, MSG_NOSIGNAL);
        }
        close(fd);
    }
    return NULL;
}

static void proof_refused(void)
{
    static const int errors[] = { JUTE_EXPIRED, JUTE_MOVED };
    hf_lease *l = NULL;
    char url[128];

    fake_start(disown, url, "3s");
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        hf_client *c;

        refused_with = errors[i];
        refused_proofs = 0;
        c = opened_at(url);
        CHECK_RC(rig.face->acquire(c, "n", LIMIT_MS, NULL, &l, E()), HF_EUNREACHABLE);
        CHECK_NUM(refused_proofs, >, 1); /* it tries again, and believes none of them */
        CHECK_NUM(other_requests, ==, 0);
        closed(c);
    }
    fake_end();
}

/* A waiter is evicted while its connection is away; its session lives, so that is what has
 * become of it. Its session ends: its place is taken anew. */
static void evicted_unheard(void)
{
    hf_client *c, *direct;
    struct pend *p;
    struct seen s;
    hf_lease *l;

    use_one_by_proxy("");
    c = opened();
    direct = opened_directly(0);
    l = taken(direct, "n", NULL);
    for (int ends = 0; ends < 2; ends++) {
        p = queued(c, "n", 1, NULL);
        CHECK(see(direct, "n", 1, &s));
        proxy_refuse(proxy, true);
        proxy_drop(proxy);
        if (ends)
            AWAIT(line_is(direct, "n", 1, 0));
        else
            CHECK_RC(hf_evict(direct, "n", s.id, 0, E()), 0);
        CHECK(!pend_done(p));
        proxy_refuse(proxy, false);
        if (ends)
            AWAIT(line_is(direct, "n", 1, 1));
        else
            CHECK_RC(pend_end(p, NULL), HF_EEVICTED);
    }
    given(l);
    given(pend_granted(p));
    closed(c);
    closed(direct);
    done();
}

const struct test_case zookeeper_net_cases[] = {
    { "replies-cut", replies_cut, ON_ALL, 0, CASE_LONG },
    { "create-unanswered", create_unanswered, ON_ALL, 0, 0 },
    { "create-unanswered-twice", create_unanswered_twice, ON_ALL, 0, CASE_LONG },
    { "create-comes-late", create_comes_late, ON_ALL, 0, 0 },
    { "session-expired", session_expired, ON_ALL, 0, 0 },
    { "silence-in-time", silence_in_time, ON_ALL, 0, 0 },
    { "process-stopped", process_stopped, ON_ALL, 0, 0 },
    { "waiter-stopped", waiter_stopped, ON_ALL, 0, 0 },
    { "server-stopped", server_stopped, ON_ALL, 0, 0 },
    { "nonsense", nonsense, ON_ALL, 0, 0 },
    { "proof-refused", proof_refused, ON_ALL, 0, 0 },
    { "evicted-unheard", evicted_unheard, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
