/* zookeeper_nodes.c: what others do to our nodes, rights, and how much is asked of a
 * server. */
#include "zookeeper_fault.h"

#include "proto/jute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The path of one of the children of the line. */
static void ticket_path(struct hand *h, size_t i, char path[1024])
{
    const char *at = hand_children(h, "/fault/n");

    while (i-- > 0)
        at = strchr(at, '\n') + 1;
    snprintf(path, 1024, "/fault/n/%.*s", (int)strcspn(at, "\n"), at);
}

static void node_deleted_under_holder(void)
{
    struct two t;
    struct hand h;
    char path[1024];

    use_one("");
    h = hand_open(servers->servers[0].port, 10000);
    t.a = opened_directly(0);
    t.b = opened_directly(0);
    t.held = taken(t.a, "n", NULL);
    t.fence = hf_lease_fence(t.held);
    ticket_path(&h, 0, path);
    t.waits = queued(t.b, "n", 1, NULL);
    CHECK_NUM(hand_delete(&h, path), ==, 0);
    two_lost(&t);
    hand_close(&h);
    done();
}

/* A node of another program may have a name of any length. */
static void evicted_behind_a_long_name(void)
{
    enum { LONG = 100000 };
    char *path = malloc(LONG + 64);
    hf_client *a, *b;
    struct pend *p;
    struct hand h;
    struct seen s;
    hf_lease *l;

    CHECK(path);
    use_one("");
    h = hand_open(servers->servers[0].port, 10000);
    a = opened_directly(0);
    b = opened_directly(0);
    l = taken(a, "n", NULL);
    strcpy(path, "/fault/n/");
    memset(path + strlen(path), 'y', LONG);
    strcpy(path + LONG, "-lock-");
    CHECK_NUM(hand_create(&h, path, JUTE_EPHEMERAL_SEQUENTIAL), ==, 0);
    p = begun(b, "n", LIMIT_MS, NULL);
    AWAIT(see(a, "n", 2, &s));
    CHECK_RC(hf_evict(a, "n", s.id, 0, E()), 0);
    CHECK_RC(pend_end(p, NULL), HF_EEVICTED);
    given(l);
    hand_close(&h);
    free(path);
    closed(a);
    closed(b);
    done();
}

/* Whoever deletes the node of a waiter evicts it: its call ends. */
static void node_deleted_under_waiter(void)
{
    hf_client *a, *b, *c;
    struct pend *p, *q;
    struct hand h;
    char path[1024];
    hf_lease *l;

    use_one("");
    h = hand_open(servers->servers[0].port, 10000);
    a = opened_directly(0);
    b = opened_directly(0);
    c = opened_directly(0);
    l = taken(a, "n", NULL);
    p = queued(b, "n", 1, NULL);
    q = queued(c, "n", 2, NULL);
    for (size_t i = 0; i < 3; i++) { /* that whose name has its token */
        ticket_path(&h, i, path);
        if (strstr(path, "0000000001"))
            break;
    }
    CHECK_NUM(hand_delete(&h, path), ==, 0);
    CHECK_RC(pend_end(p, NULL), HF_EEVICTED);
    CHECK(line_is(a, "n", 1, 1));
    given(l);
    given(pend_granted(q));
    hand_close(&h);
    closed(a);
    closed(b);
    closed(c);
    done();
}

/* Everything below the line, and the line itself. */
static void parent_deleted(void)
{
    struct two t;
    struct hand h;
    char path[1024];
    int rc;

    use_one("");
    h = hand_open(servers->servers[0].port, 10000);
    t = hold_and_wait();
    do {
        for (size_t n = count_lines(hand_children(&h, "/fault/n")); n > 0; n--) {
            ticket_path(&h, 0, path);
            hand_delete(&h, path);
        }
    } while (hand_delete(&h, "/fault/n") == JUTE_NOT_EMPTY);
    AWAIT(hf_lease_state(t.held) == HF_LOST);
    CHECK_RC(rig.face->release(t.held, E()), HF_ELOST);
    rc = pend_end(t.waits, &t.held);
    if (rc == 0) { /* before the end of its node */
        CHECK_NUM(hf_lease_fence(t.held), >, t.fence);
        rc = rig.face->release(t.held, E());
        CHECK(rc == 0 || rc == HF_ELOST);
    } else {
        CHECK_RC(rc, HF_EEVICTED);
    }
    given(taken(t.a, "n", NULL)); /* everything is there again */
    AWAIT(line_is(t.b, "n", 0, 0));
    hand_close(&h);
    closed(t.a);
    closed(t.b);
    done();
}

/* Other children are no tickets; foreign tickets are. */
static void foreign_children(void)
{
    hf_client *c;
    struct hand h;
    hf_lease *l;
    struct pend *p;
    char path[1200];
    static const char *const others[] = {
        "x", "lock", "_other", "latch-0000000001", "__READ__", "0000000001", "lock-1"
    };

    use_one("");
    h = hand_open(servers->servers[0].port, 10000);
    c = opened_directly(0);
    l = taken(c, "n", NULL);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        snprintf(path, sizeof(path), "/fault/n/%s", others[i]);
        CHECK_NUM(hand_create(&h, path, JUTE_EPHEMERAL), ==, 0);
    }
    CHECK(line_is(c, "n", 1, 0));
    snprintf(path, sizeof(path), "/fault/n/_c_0123456789abcdef0123456789abcdef-lock-");
    CHECK_NUM(hand_create(&h, path, JUTE_EPHEMERAL_SEQUENTIAL), ==, 0);
    CHECK(line_is(c, "n", 1, 1));
    p = queued(c, "n", 2, NULL);
    given(l);
    AWAIT(line_is(c, "n", 1, 1));
    CHECK(!pend_done(p)); /* the foreign one holds */
    hand_close(&h);
    given(pend_granted(p));
    closed(c);
    done();
}

static void rights(void)
{
    hf_client *with, *without, *other;
    hf_lease *l, *none = NULL;
    char url[200];
    int n;

    use_one("auth=locker:s3cret");
    with = opened();
    without = opened_directly(0);
    n = snprintf(url, sizeof(url), "zk://locker:s3cret@127.0.0.1:%d/fault?%s",
                 servers->servers[0].port, TTL);
    CHECK(n < (int)sizeof(url));
    other = opened_at(url);
    l = taken(with, "n", NULL);
    CHECK_RC(tried(other, "n", NULL), HF_EBUSY);
    CHECK_RC(rig.face->acquire(without, "n", 0, NULL, &none, E()), HF_EAUTH);
    CHECK_RC(rig.face->acquire(without, "n", HF_FOREVER, NULL, &none, E()), HF_EAUTH);
    CHECK(!strstr(last_error()->text, "s3cret") && !strstr(last_error()->where, "s3cret"));
    given(l);
    given(taken(other, "n", NULL));
    closed(with);
    closed(without);
    closed(other);
    done();
}

/* ---- how much is asked ----------------------------------------------------------- */

static int64_t received(void)
{
    return zk_number(&servers->servers[0], "srvr", "Received: ");
}

static void pairs_cost(void)
{
    enum { PAIRS = 200 };
    hf_client *c;
    int64_t before;

    use_one("ttl=50s"); /* renewals are few */
    c = opened();
    given(taken(c, "n", NULL));
    before = received();
    for (int i = 0; i < PAIRS; i++)
        given(taken(c, "n", NULL));
    /* create2 and delete; nobody else is there, so no list is needed but for the first */
    CHECK_NUM(received() - before, <=, 2 * PAIRS + 20);
    CHECK_NUM(received() - before, >=, 2 * PAIRS);
    before = received();
    {
        hf_lease *l = taken(c, "n", NULL);
        int64_t zxid = zk_number(&servers->servers[0], "srvr", "Zxid: ");

        for (int i = 0; i < PAIRS; i++)
            CHECK_RC(tried(c, "n", NULL), HF_EBUSY);
        CHECK_NUM(zk_number(&servers->servers[0], "srvr", "Zxid: "), ==,
                  zxid); /* none wrote */
        given(l);
    }
    closed(c);
    done();
}

static int64_t cost_of_hand_offs(const char *name, int waiters, int hand_offs)
{
    hf_client *c = opened_at(rig.place->url);
    hf_lease *l = taken(c, name, NULL);
    struct pend **p = calloc((size_t)waiters, sizeof(*p));
    int64_t cost;

    CHECK(p);
    for (int i = 0; i < waiters; i++)
        p[i] = begun(c, name, HF_FOREVER, NULL);
    await_line(c, name, 1, (size_t)waiters);
    STAYS(true, 300); /* every node of our own is being watched */
    cost = received();
    for (int i = 0; i < hand_offs; i++) {
        given(l);
        for (int k = 0; k < waiters; k++) /* the callback face grants in order */
            if (p[k] && pend_done(p[k])) {
                l = pend_granted(p[k]);
                p[k] = NULL;
                break;
            } else if (k == waiters - 1) {
                k = -1;
                nap();
            }
    }
    cost = received() - cost;
    given(l);
    for (int k = 0; k < waiters; k++)
        if (p[k])
            given(pend_granted(p[k]));
    free(p);
    closed(c);
    return cost;
}

/* One connection, and a hand-off costs the same in a queue of 10 and of 1,000. */
static void queue_cost(void)
{
    enum { HAND_OFFS = 8 };
    int64_t few, many;

    use_one("ttl=8s");
    few = cost_of_hand_offs("few", 10, HAND_OFFS);
    many = cost_of_hand_offs("many", 1000, HAND_OFFS);
    fprintf(stderr, "%d hand-offs: %lld packets with 10 waiters, %lld with 1,000\n",
            HAND_OFFS, (long long)few, (long long)many);
    CHECK_NUM(many, <=, few + 20);
    done();
}

const struct test_case zookeeper_nodes_cases[] = {
    { "node-deleted-under-holder", node_deleted_under_holder, ON_ALL, 0, 0 },
    { "node-deleted-under-waiter", node_deleted_under_waiter, ON_ALL, 0, 0 },
    { "evicted-behind-a-long-name", evicted_behind_a_long_name, ON_ALL, 0, 0 },
    { "parent-deleted", parent_deleted, ON_ALL, 0, 0 },
    { "foreign-children", foreign_children, ON_ALL, 0, 0 },
    { "rights", rights, ON_ALL, 0, 0 },
    { "pairs-cost", pairs_cost, ON_ALL, 0, 0 },
    { "queue-cost", queue_cost, ON_CALLBACK, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
