/* zookeeper_found.c: a case for every defect that was found in the driver by hostile
 * reading. Each failed before its repair. */
#include "zookeeper_fault.h"

#include "proto/jute.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char other_ticket[] = "/fault/n/_c_0123456789abcdef0123456789abcdef-lock-";

static void delete_all(struct hand *h)
{
    char path[1024];
    const char *first;

    while (*(first = hand_children(h, "/fault/n"))) {
        snprintf(path, sizeof(path), "/fault/n/%.*s", (int)strcspn(first, "\n"), first);
        CHECK_NUM(hand_delete(h, path), ==, 0);
    }
    CHECK_NUM(hand_delete(h, "/fault/n"), ==, 0);
}

/* Tickets of others, from number 0 on. */
static void made_anew(struct hand *h, int tickets)
{
    CHECK_NUM(hand_create(h, "/fault/n", JUTE_PERSISTENT), ==, 0);
    for (int i = 0; i < tickets; i++)
        CHECK_NUM(hand_create(h, other_ticket, JUTE_EPHEMERAL_SEQUENTIAL), ==, 0);
}

/* ---- a line that is made anew ---------------------------------------------------- */

struct result {
    bool done;
    int rc;
    hf_lease *l;
};

static void on_done(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    struct result *r = user;

    (void)op;
    (void)err;
    r->rc = rc;
    r->l = l;
    r->done = true;
}

static hf_op *start(hf_client *c, const hf_request *req, struct result *r)
{
    hf_op *op;

    CHECK_RC(hf_acquire_start(c, "n", HF_FOREVER, req, on_done, r, &op, E()), 0);
    return op;
}

static hf_client *driven_by_hand(void)
{
    hf_client *c = NULL;

    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    return c;
}

static void drive(hf_client *c, int64_t ms)
{
    for (int64_t until = now_ms() + ms; now_ms() < until;)
        CHECK(hf_client_wait(c, 5) >= 0);
}

/* A waiter of ours is gone with all of its line, which others have made anew meanwhile:
 * the number of our next one follows upon it as if nothing had happened. The client is
 * driven by hand, so that it joins before it hears of anything. */
static void line_made_anew(void)
{
    hf_client *c;
    struct hand h;
    struct result a = { 0 }, b = { 0 };
    hf_op *first, *second;

    use_one("ttl=20s");
    h = hand_open(servers->servers[0].port, 10000);
    CHECK_NUM(hand_create(&h, "/fault", JUTE_PERSISTENT), ==, 0);
    made_anew(&h, 1);
    c = driven_by_hand();
    first = start(c, NULL, &a);
    while (count_lines(hand_children(&h, "/fault/n")) < 2)
        drive(c, 1);
    drive(c, 10); /* it has heard that it waits */
    CHECK(!a.done);
    delete_all(&h);
    made_anew(&h, 2);
    second = start(c, NULL, &b);
    drive(c, 1000);
    CHECK(a.done && !b.done); /* two of others stand before it */
    CHECK_RC(a.rc, HF_EEVICTED);
    CHECK_NUM(count_lines(hand_children(&h, "/fault/n")), ==, 3);
    hf_op_free(first);
    hf_op_free(second);
    hand_close(&h);
    hf_close(c);
    done();
}

/* Many of one name are unanswered when the connection is lost: they are looked for
 * together, not each by a list of all of them. */
static void many_unanswered(void)
{
    enum { MANY = 500, MOST_BYTES = 2000 * MANY };
    static struct result all[MANY];
    hf_op *ops[MANY];
    hf_client *c;
    struct hand h;
    size_t passed;
    int64_t until = now_ms() + LIMIT_MS;

    use_one_by_proxy("ttl=50s");
    h = hand_open(servers->servers[0].port, 60000);
    c = driven_by_hand();
    ops[0] = start(c, NULL, &all[0]);
    while (!all[0].done)
        drive(c, 1); /* it holds, and the others wait */
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
    for (size_t i = 1; i < MANY; i++)
        ops[i] = start(c, NULL, &all[i]);
    while (count_lines(hand_children(&h, "/fault/n")) < MANY) {
        CHECK_NUM(now_ms(), <, until);
        drive(c, 1);
    }
    proxy_drop(proxy);
    proxy_freeze(proxy, PROXY_PRESENT, 0);
    passed = proxy_passed(proxy, PROXY_DOWN);
    CHECK_RC(hf_release_start(all[0].l, NULL, NULL, NULL, E()), 0);
    until = now_ms() + LIMIT_MS;
    while (!all[1].done) { /* the first of those that were found again */
        CHECK_NUM(now_ms(), <, until);
        drive(c, 1);
    }
    CHECK_NUM(proxy_passed(proxy, PROXY_DOWN) - passed, <, MOST_BYTES);
    CHECK_NUM(count_lines(hand_children(&h, "/fault/n")), ==, MANY - 1);
    for (size_t i = 0; i < MANY; i++)
        hf_op_free(ops[i]);
    hand_close(&h);
    hf_close(c);
    done();
}

/* A ticket is a ticket, however long its name. */
static void long_name(void)
{
    hf_client *c;
    struct hand h;
    struct pend *p;
    char path[2048] = "/fault/n/";

    use_one("ttl=8s");
    h = hand_open(servers->servers[0].port, 10000);
    c = opened();
    given(taken(c, "n", NULL));
    memset(path + strlen(path), 'x', 1500);
    strcat(path, "-lock-");
    CHECK_NUM(hand_create(&h, path, JUTE_EPHEMERAL_SEQUENTIAL), ==, 0);
    CHECK(line_is(c, "n", 1, 0));
    CHECK_RC(tried(c, "n", NULL), HF_EBUSY);
    p = queued(c, "n", 1, NULL);
    STAYS(!pend_done(p), 200);
    hand_close(&h);
    given(pend_granted(p));
    closed(c);
    done();
}

/* ---- what is changed and given up at the same time ------------------------------- */

/* The answer to a downgrade is late; the lock is released meanwhile. */
static void share_then_release(void)
{
    hf_client *c, *direct;
    hf_lease *l;
    int rc;

    use_one_by_proxy("ttl=30s&connect_timeout=2s");
    c = prompted();
    direct = opened_directly(0);
    l = taken(c, "n", NULL);
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
    CHECK_RC(hf_lease_downgrade(l, E()), HF_EUNKNOWN);
    rc = rig.face->release(l, E());
    CHECK(rc == 0 || rc == HF_EUNKNOWN);
    proxy_freeze(proxy, PROXY_PRESENT, 0);
    AWAIT(line_is(direct, "n", 0, 0)); /* it does not stay as a shared one */
    CHECK_RC(tried(direct, "n", NULL), 0);
    closed(c);
    closed(direct);
    done();
}

struct change {
    hf_lease *l;
    int (*call)(hf_lease *, hf_error *);
};

static int write_note(hf_lease *l, hf_error *err)
{
    return hf_lease_note(l, "new note", err);
}

static void *change(void *arg)
{
    struct change *c = arg;

    CHECK_RC(c->call(c->l, E()), 0);
    return NULL;
}

/* The mark is written while a change of the holder's is on its way, and must not be
 * overwritten by it. */
static void mark_and(int (*call)(hf_lease *, hf_error *))
{
    struct two t;
    struct change c;
    struct seen s;
    pthread_t thread;
    size_t kept;

    use_one_by_proxy("ttl=6s&connect_timeout=10s");
    t = hold_and_wait();
    AWAIT(see(t.b, "n", 0, &s));
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP | PROXY_DOWN);
    kept = proxy_kept(proxy, PROXY_UP);
    c = (struct change){ t.held, call };
    CHECK(pthread_create(&thread, NULL, change, &c) == 0);
    AWAIT(proxy_kept(proxy, PROXY_UP) > kept);
    CHECK_RC(hf_evict(t.b, "n", s.id, 0, E()), 0);
    proxy_freeze(proxy, PROXY_PRESENT, 0);
    CHECK(pthread_join(thread, NULL) == 0);
    AWAIT(told.risk > 0);
    CHECK(see(t.b, "n", 0, &s) && s.broken);
    AWAIT(hf_lease_state(t.held) == HF_LOST);
    two_lost(&t);
    done();
}

static void mark_and_note(void)
{
    mark_and(write_note);
}

static void mark_and_downgrade(void)
{
    mark_and(hf_lease_downgrade);
}

/* The servers have forgotten the session long before its time: all that it held is told. */
static void marked_and_forgotten(void)
{
    struct two t;
    struct seen s;
    hf_lease *other;

    use_one("ttl=50s");
    t = hold_and_wait();
    other = taken(t.a, "other", NULL);
    CHECK(see(t.b, "n", 0, &s));
    CHECK_RC(hf_evict(t.b, "n", s.id, 0, E()), 0);
    AWAIT(told.risk == 1);
    doctor("forget");
    AWAIT(hf_lease_state(other) == HF_LOST);
    AWAIT(told.lost == 1);
    CHECK_RC(rig.face->release(other, E()), HF_ELOST);
    two_lost(&t);
    done();
}

/* mode=ephemeral: the one that waits tries when the node is gone, and the connection is
 * lost at any byte from there on: it may have made the node, and does not know it. */
static void ephemeral_cut(void)
{
    enum { LONGEST = 320, STEP = 16 };
    hf_client *a, *b;
    hf_lease *l;
    struct pend *p;
    size_t cuts;

    use_one_by_proxy("ttl=50s&mode=ephemeral");
    a = opened_past();
    b = opened_at(rig.place->url);
    for (long bytes = 0; bytes < LONGEST; bytes += STEP) {
        l = taken(a, "n", NULL);
        p = begun(b, "n", HF_FOREVER, NULL);
        AWAIT(zk_number(&servers->servers[0], "wchs", "Total watches:") ==
              2); /* it waits */
        cuts = proxy_cuts(proxy);
        proxy_cut_after(proxy, bytes);
        given(l);
        AWAIT(proxy_cuts(proxy) > cuts || pend_done(p));
        proxy_cut_after(proxy, -1);
        given(pend_granted(p));
    }
    closed(a);
    closed(b);
    done();
}

/* ---- servers and rights ---------------------------------------------------------- */

static void *half(void *arg)
{
    int fd, listening = *(int *)arg;
    char in[256];

    while ((fd = accept(listening, NULL, NULL)) >= 0)
        if (recv(fd, in, sizeof(in), 0) > 0)
            send(fd, "\0\0\0\x25\0\0", 6,
                 MSG_NOSIGNAL); /* and no more, and it stays open */
    return NULL;
}

/* One server says half of its greeting: then the other one is taken. */
static void half_a_greeting(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_t thread;
    char url[200];

    CHECK(bind(fd, (struct sockaddr *)&a, len) == 0 && listen(fd, 16) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &len) == 0);
    CHECK(pthread_create(&thread, NULL, half, &fd) == 0);
    use_one("");
    snprintf(url, sizeof(url),
             "zk://127.0.0.1:%d,127.0.0.1:%d/fault?ttl=8s&connect_timeout=10s",
             ntohs(a.sin_port), servers->servers[0].port);
    for (int i = 0; i < 2; i++) { /* the order is another each time */
        hf_client *c = opened_at(url);

        given(taken(c, "n", NULL));
        closed(c);
    }
    shutdown(fd, SHUT_RDWR);
    CHECK(pthread_join(thread, NULL) == 0);
    close(fd);
    done();
}

enum { READ = 1, CREATE = 4, ADMIN = 16, ALL = 31 };

static void no_right_to_make(void)
{
    static const char *const modes[] = { "line", "ephemeral" };
    struct hand h;
    hf_lease *l = NULL;

    use_one("");
    h = hand_open(servers->servers[0].port, 10000);
    CHECK_NUM(hand_create(&h, "/closed", JUTE_PERSISTENT), ==, 0);
    CHECK_NUM(hand_allow(&h, "/closed", READ), ==, 0);
    for (size_t i = 0; i < 2; i++) {
        char url[200];
        hf_client *c;

        snprintf(url, sizeof(url), "zk://127.0.0.1:%d/closed/in?%s&mode=%s",
                 servers->servers[0].port, TTL, modes[i]);
        c = opened_at(url);
        CHECK_RC(rig.face->acquire(c, "n", LIMIT_MS, NULL, &l, E()), HF_EAUTH);
        CHECK_RC(rig.face->acquire(c, "n", 0, NULL, &l, E()), HF_EAUTH);
        closed(c);
    }
    hand_close(&h);
    done();
}

/* A ticket that may not be deleted is not forgotten: it goes as soon as it may. */
static void no_right_to_delete(void)
{
    const hf_request *permits = HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = 3);
    struct hand h;
    hf_client *a, *b;
    hf_lease *l, *none = NULL;

    use_one("ttl=4s");
    h = hand_open(servers->servers[0].port, 10000);
    a = opened();
    b = opened();
    l = taken(a, "n", NULL);
    CHECK_NUM(hand_allow(&h, "/fault/n", READ | CREATE | ADMIN), ==, 0);
    CHECK_RC(rig.face->acquire(b, "n", LIMIT_MS, permits, &none, E()), HF_EAUTH);
    CHECK(line_is(a, "n", 1, 1));
    CHECK_RC(rig.face->release(l, E()), HF_EUNKNOWN);
    CHECK_NUM(hand_allow(&h, "/fault/n", ALL), ==, 0);
    AWAIT(line_is(a, "n", 0, 0));
    hand_close(&h);
    closed(a);
    closed(b);
    done();
}

/* ---- what counts as a renewal ---------------------------------------------------- */

/* A request is on its way for nearly T/4, and the next one is sent when its answer has
 * come. Between their arrivals there may have been no heartbeat by which the leader would
 * hear of the first: it does not count yet, however long ago it was sent. */
static void slow_request(void)
{
    enum { T = 12000 };
    hf_client *c;
    hf_lease *l;
    int64_t sent;

    use_one_by_proxy("ttl=12s");
    c = prompted();
    l = taken(c, "n", NULL);
    for (;;) {
        AWAIT(hf_lease_remaining_ms(l) < T / 2); /* the next renewal is due */
        proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
        AWAIT(proxy_kept(proxy, PROXY_UP) > 0);
        sent = now_ms();
        while (now_ms() < sent + T / 4 - 400)
            nap();
        if (hf_lease_remaining_ms(l) < T / 3)
            break;
        proxy_freeze(proxy, PROXY_PRESENT,
                     0); /* it had come through before that: once more */
    }
    proxy_freeze(proxy, PROXY_PRESENT, 0);
    while (now_ms() < sent + T / 4 + 5)
        nap();
    given(taken(c, "other", NULL));
    CHECK_NUM(hf_lease_remaining_ms(l), <, T - (now_ms() - sent) - T / 8);
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    closed(c);
    done();
}

/* ---- how much is asked ----------------------------------------------------------- */

/* After a pause no renewal counts for a while; that is not asked about without a pause. */
static void patient_after_a_pause(void)
{
    struct kid k;
    hf_client *c;
    int64_t before;

    use_one("ttl=12s");
    k = kid_new();
    c = opened();
    CHECK_RC(kid_acquire(&k, 0, "n", LIMIT_MS, NULL, NULL), 0);
    CHECK_RC(kid_release(&k, 0).rc, 0);
    kid_stop(&k);
    STAYS(line_is(c, "n", 0, 0), 9500);
    kid_continue(&k);
    before = zk_number(&servers->servers[0], "srvr", "Received: ");
    CHECK_RC(kid_acquire(&k, 0, "n", LIMIT_MS, NULL, NULL), 0);
    CHECK_NUM(zk_number(&servers->servers[0], "srvr", "Received: ") - before, <, 100);
    kid_end(&k);
    closed(c);
    done();
}

const struct test_case zookeeper_found_cases[] = {
    { "line-made-anew", line_made_anew, ON_ALL, 0, 0 },
    { "many-unanswered", many_unanswered, ON_ALL, 0, 0 },
    { "long-name", long_name, ON_ALL, 0, 0 },
    { "share-then-release", share_then_release, ON_ALL, 0, 0 },
    { "mark-and-note", mark_and_note, ON_ALL, 0, 0 },
    { "mark-and-downgrade", mark_and_downgrade, ON_ALL, 0, 0 },
    { "marked-and-forgotten", marked_and_forgotten, ON_ALL, 0, 0 },
    { "ephemeral-cut", ephemeral_cut, ON_ALL, 0, 0 },
    { "half-a-greeting", half_a_greeting, ON_ALL, 0, 0 },
    { "no-right-to-make", no_right_to_make, ON_ALL, 0, 0 },
    { "no-right-to-delete", no_right_to_delete, ON_ALL, 0, 0 },
    { "slow-request", slow_request, ON_ALL, 0, 0 },
    { "patient-after-a-pause", patient_after_a_pause, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
