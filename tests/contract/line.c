/* line.c: who gets in when. First come, first served (G3), readers together, permits by
 * weight, kinds that do not mix, and failed calls that leave nothing behind (G7).
 */
#include "rig.h"

#include <stdio.h>
#include <string.h>

static void try_busy_leaves_nothing(void)
{
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), NULL);

    for (int i = 0; i < 3; i++) {
        CHECK_RC(tried(b, nm("n"), NULL), HF_EBUSY);
        CHECK(last_error()->code == HF_EBUSY && last_error()->text[0]);
        CHECK_RC(tried(a, nm("n"), HF_REQUEST(.mode = HF_READ, .owner = 5)), HF_EBUSY);
        CHECK(line_is(a, nm("n"), 1, 0));
    }
    CHECK_RC(rig.face->acquire(b, nm("n"), -5, NULL, &(hf_lease *){ NULL }, E()), HF_EBUSY);
    CHECK(line_is(a, nm("n"), 1, 0));
    given(l);
    CHECK(line_is(a, nm("n"), 0, 0));
    closed(a);
    closed(b);
}

static void timed_wait_ends(void)
{
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), NULL), *none = NULL;
    int64_t start = now_ms();

    CHECK_RC(rig.face->acquire(b, nm("n"), 300, NULL, &none, E()), HF_ETIMEDOUT);
    CHECK_NUM(now_ms() - start, >=, 299);
    CHECK_WITHIN(start, 300 + LIMIT_MS / 3);
    CHECK(!none && last_error()->retry == 1);
    await_line(a, nm("n"), 1, 0); /* the ticket leaves behind the call that gave up */
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    /* its join may be executed as late as now; the leave is behind it */
    AWAIT(tried(b, nm("n"), NULL) == 0);
    CHECK(line_is(a, nm("n"), 0, 0));
    closed(a);
    closed(b);
}

/* Beside others of the same client who wait for ever: whoever drives serves all deadlines.
 */
static void timed_wait_beside_others(void)
{
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), NULL), *none = NULL;
    struct pend *p = queued(b, nm("n"), 1, NULL), *q = queued(b, nm("n"), 2, NULL);

    for (int i = 0; i < 3; i++) {
        int64_t start = now_ms();

        CHECK_RC(rig.face->acquire(b, nm("n"), 100, NULL, &none, E()), HF_ETIMEDOUT);
        CHECK_NUM(now_ms() - start, >=, 99);
        CHECK_WITHIN(start, 100 + LIMIT_MS / 3);
        await_line(a, nm("n"), 1, 2);
    }
    given(l);
    given(pend_granted(p));
    given(pend_granted(q));
    closed(a);
    closed(b);
}

/* A resident thread and a caller that both want to drive, from the first moment on. */
static void prompt_from_the_start(void)
{
    hf_client *a = opened();
    hf_lease *l = taken(a, nm("n"), NULL), *none = NULL;

    for (int i = 0; i < 200; i++) {
        hf_client *b = prompted();
        int rc = rig.face->acquire(b, nm("n"), 2, NULL, &none, E());

        CHECK(rc == HF_ETIMEDOUT || rc == HF_EUNREACHABLE); /* not connected yet */
        CHECK_RC(tried(b, nm("m"), NULL), 0);
        closed(b);
    }
    given(l);
    closed(a);
}

/* Two clients of this process and two other processes. */
static void fifo(void)
{
    struct kid kids[2] = { kid_new(), kid_new() };
    hf_client *clients[2] = { opened(), opened() };
    const char *name = nm("n");
    hf_lease *l = taken(clients[0], name, NULL);
    uint64_t fence = hf_lease_fence(l);
    struct pend *pends[2];

    for (size_t i = 0; i < 2; i++) {
        kid_begin(&kids[i], 0, name, HF_FOREVER, NULL);
        await_line(clients[0], name, 1, 2 * i + 1);
        pends[i] = queued(clients[i], name, 2 * i + 2, NULL);
    }
    given(l);
    for (int i = 0; i < 2; i++) {
        struct answer a = kid_answer(&kids[i]);

        CHECK_RC(a.rc, 0);
        CHECK(a.fence > fence);
        CHECK(!pend_done(pends[i]) && (i == 1 || !kid_answered(&kids[1])));
        CHECK_RC(kid_release(&kids[i], 0).rc, 0);
        l = pend_granted(pends[i]);
        CHECK(hf_lease_fence(l) > a.fence);
        CHECK(i == 1 || !kid_answered(&kids[1]));
        fence = hf_lease_fence(l);
        given(l);
    }
    for (int i = 0; i < 2; i++) {
        kid_end(&kids[i]);
        closed(clients[i]);
    }
}

static void fifo_many(void)
{
    enum { N = 24 };
    hf_client *c = opened();
    const char *name = nm("n");
    hf_lease *l = taken(c, name, NULL);
    struct pend *pends[N];

    for (int i = 0; i < N; i++)
        pends[i] = queued(c, name, (size_t)i + 1, NULL);
    for (int i = 0; i < N; i++) {
        given(l);
        l = pend_granted(pends[i]);
        for (int j = i + 1; j < N; j++)
            CHECK(!pend_done(pends[j]));
    }
    given(l);
    CHECK(line_is(c, name, 0, 0));
    closed(c);
}

static void readers_enter_together(void)
{
    enum { N = 10 };
    const hf_request *read = HF_REQUEST(.mode = HF_READ);
    hf_client *a = opened(), *b = opened();
    const char *name = nm("n");
    hf_lease *w = taken(a, name, NULL), *l[N];
    struct pend *readers[N], *writer;
    uint64_t before = hf_lease_fence(w);

    for (int i = 0; i < N; i++)
        readers[i] = queued(i % 2 ? a : b, name, (size_t)i + 1, read);
    writer = queued(a, name, N + 1, HF_REQUEST(.mode = HF_WRITE));
    given(w);
    for (int i = 0; i < N; i++)
        l[i] = pend_granted(readers[i]);
    CHECK(line_is(a, name, N, 1));
    for (int i = 0; i < N; i++) {
        CHECK_RC(hf_lease_check(l[i]), 0);
        CHECK(hf_lease_fence(l[i]) > before); /* queued in this order, granted in it */
        before = hf_lease_fence(l[i]);
        CHECK(!pend_done(writer));
        given(l[i]);
    }
    given(pend_granted(writer));
    closed(a);
    closed(b);
}

#define PERMITS(k, n) HF_REQUEST(.mode = HF_PERMITS, .permits = (k), .capacity = (n))

static void permits_weights(void)
{
    hf_client *c = opened();
    const char *name = nm("n");
    hf_lease *three = taken(c, name, PERMITS(3, 5)), *two = taken(c, name, PERMITS(2, 5));
    struct pend *four, *one;
    hf_lease *l4, *l1;

    CHECK_RC(tried(c, name, PERMITS(1, 5)), HF_EBUSY);
    four = queued(c, name, 1, PERMITS(4, 5));
    one = queued(c, name, 2, PERMITS(1, 5));
    given(two); /* two are free; the head needs four, and nobody passes it */
    STAYS(!pend_done(four) && !pend_done(one), 200);
    CHECK_RC(tried(c, name, PERMITS(1, 5)), HF_EBUSY);
    given(three);
    l4 = pend_granted(four);
    l1 = pend_granted(one);
    CHECK(line_is(c, name, 2, 0));
    CHECK_RC(tried(c, name, PERMITS(1, 5)), HF_EBUSY);
    given(l4);
    CHECK_RC(tried(c, name, PERMITS(4, 5)), 0);
    CHECK_RC(tried(c, name, PERMITS(5, 5)), HF_EBUSY);
    given(l1);
    CHECK_RC(tried(c, name, PERMITS(5, 5)), 0);
    CHECK(line_is(c, name, 0, 0));
    closed(c);
}

static void permits_at_most(void)
{
    const uint32_t most = 1u << 31;
    hf_client *c = opened();
    const char *name = nm("n");
    hf_lease *l = taken(c, name, PERMITS(most - 1, most)),
             *one = taken(c, name, PERMITS(1, most));
    struct pend *all = queued(c, name, 1, PERMITS(most, most));

    CHECK_RC(tried(c, name, PERMITS(1, most)), HF_EBUSY);
    given(one);
    given(l);
    given(pend_granted(all));
    CHECK_RC(tried(c, name, PERMITS(most, most)), 0);
    CHECK(line_is(c, name, 0, 0));
    closed(c);
}

static void permits_middle_leaves(void)
{
    struct kid kids[3] = { kid_new(), kid_new(), kid_new() };
    hf_client *c = opened();
    const char *name = nm("n");
    struct pend *next, *after;
    hf_lease *l;

    for (int i = 0; i < 3; i++)
        CHECK_RC(kid_acquire(&kids[i], 0, name, LIMIT_MS, PERMITS(1, 3), NULL), 0);
    next = queued(c, name, 1, PERMITS(1, 3));
    after = queued(c, name, 2, PERMITS(1, 3));
    CHECK_RC(kid_release(&kids[1], 0).rc, 0);
    l = pend_granted(next);
    CHECK(line_is(c, name, 3, 1));
    CHECK(!pend_done(after));
    CHECK_RC(kid_release(&kids[0], 0).rc, 0);
    given(pend_granted(after));
    given(l);
    CHECK_RC(kid_release(&kids[2], 0).rc, 0);
    for (int i = 0; i < 3; i++)
        kid_end(&kids[i]);
    CHECK(line_is(c, name, 0, 0));
    closed(c);
}

static void refused_as_mismatch(hf_client *c, const char *name, const hf_request *req)
{
    hf_lease *none = NULL;

    CHECK_RC(tried(c, name, req), HF_EMISMATCH);
    CHECK_RC(rig.face->acquire(c, name, LIMIT_MS, req, &none, E()), HF_EMISMATCH);
    CHECK(!none && last_error()->text[0]);
    CHECK(line_is(c, name, 1, 0));
}

static void mismatch_refused(void)
{
    hf_client *a = opened(), *b = opened();
    const char *name = nm("n");
    hf_lease *l = taken(a, name, NULL);

    refused_as_mismatch(b, name, PERMITS(1, 3));
    given(l);
    l = taken(a, name, PERMITS(1, 3));
    refused_as_mismatch(b, name, PERMITS(1, 4));
    refused_as_mismatch(b, name, NULL);
    refused_as_mismatch(b, name, HF_REQUEST(.mode = HF_READ));
    CHECK_RC(hf_lease_check(l), 0);
    CHECK_RC(tried(b, name, PERMITS(2, 3)), 0);
    given(l);
    CHECK_RC(tried(b, name, PERMITS(2, 4)), 0);
    CHECK_RC(tried(b, name, NULL), 0);
    CHECK(line_is(a, name, 0, 0));
    closed(a);
    closed(b);
}

static void path_children_apart(void)
{
    static const char *const names[] = {
        "a", "a/", "a//b", "a/b", "a/b/c", "/a", "A", "b"
    };
    enum { N = sizeof(names) / sizeof(names[0]) };
    hf_client *a = opened(), *b = opened();
    hf_lease *l[N];

    for (int i = 0; i < N; i++)
        l[i] = taken(a, nm(names[i]), NULL);
    for (int i = 0; i < N; i++) {
        CHECK_RC(tried(b, nm(names[i]), NULL), HF_EBUSY);
        given(l[i]);
        for (int j = 0; j < N; j++)
            CHECK(line_is(b, nm(names[j]), j > i, 0));
        l[i] = taken(b, nm(names[i]), NULL);
        given(l[i]);
    }
    closed(a);
    closed(b);
}

/* The same, by way of a namespace in the URL. */
static void namespaces_apart(void)
{
    char url[600];
    hf_client *a = opened(), *b = NULL;
    const char *name = nm("n");
    hf_lease *l = taken(a, name, NULL), *m;

    snprintf(url, sizeof(url), "%s%cnamespace=other", rig.place->url,
             strchr(rig.place->url, '?') ? '&' : '?');
    CHECK_RC(rig.face->open(url, NULL, &b, E()), 0);
    CHECK(line_is(b, name, 0, 0));
    m = taken(b, name, NULL);
    CHECK_STR(hf_lease_name(m), name);
    given(l);
    CHECK(line_is(a, name, 0, 0));
    CHECK(line_is(b, name, 1, 0));
    CHECK_RC(tried(b, name, NULL), HF_EBUSY);
    given(m);
    closed(a);
    closed(b);
}

const struct test_case line_cases[] = {
    { "try-busy-leaves-nothing", try_busy_leaves_nothing, ON_ALL, HF_CAP_LINE,
      CASE_TOPOLOGY },
    { "timed-wait-ends", timed_wait_ends, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "timed-wait-beside-others", timed_wait_beside_others, ON_ALL, HF_CAP_LINE, 0 },
    { "prompt-from-the-start", prompt_from_the_start, ON_BLOCKING, 0, 0 },
    { "fifo", fifo, ON_ALL, HF_CAP_FIFO | HF_CAP_LINE, CASE_TOPOLOGY },
    { "fifo-many", fifo_many, ON_ALL, HF_CAP_FIFO | HF_CAP_LINE, 0 },
    { "readers-enter-together", readers_enter_together, ON_ALL, HF_CAP_SHARED | HF_CAP_LINE,
      0 },
    { "permits-weights", permits_weights, ON_ALL, HF_CAP_PERMITS | HF_CAP_LINE, 0 },
    { "permits-at-most", permits_at_most, ON_ALL, HF_CAP_PERMITS | HF_CAP_LINE, 0 },
    { "permits-middle-leaves", permits_middle_leaves, ON_ALL, HF_CAP_PERMITS | HF_CAP_LINE,
      CASE_TOPOLOGY },
    { "mismatch-refused", mismatch_refused, ON_ALL, HF_CAP_PERMITS, 0 },
    { "path-children-apart", path_children_apart, ON_ALL, 0, 0 },
    { "namespaces-apart", namespaces_apart, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
