/* whole.c: calls made of several steps: all names or none, acquire-call-release,
 * downgrade. Each must look like one step from outside, whatever fails in the middle
 * (G1, G7).
 */
#include "rig.h"

#include <string.h>

static void all_or_none(void)
{
    const char *names[] = { nm("b"), nm("a"), nm("a"), nm("c") };
    hf_client *a = opened(), *b = opened();
    hf_lease *l = NULL, *busy;

    CHECK_RC(rig.face->acquire_all(a, names, 4, LIMIT_MS, NULL, &l, E()), 0);
    for (int i = 0; i < 4; i++) {
        CHECK(hf_lease_fence_of(l, names[i]) > 0);
        CHECK(line_is(b, names[i], 1, 0));
        CHECK_RC(tried(b, names[i], NULL), HF_EBUSY);
    }
    CHECK(hf_lease_fence_of(l, nm("d")) == 0);
    CHECK(hf_lease_fence(l) == hf_lease_fence_of(l, hf_lease_name(l)));
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    for (int i = 0; i < 4; i++)
        CHECK(line_is(b, names[i], 0, 0));
    for (int i = 0; i < 4; i++) { /* whichever of them is taken */
        l = NULL;
        busy = taken(b, names[i], NULL);
        CHECK_RC(rig.face->acquire_all(a, names, 4, 0, NULL, &l, E()), HF_EBUSY);
        CHECK_RC(rig.face->acquire_all(a, names, 4, 100, NULL, &l, E()), HF_ETIMEDOUT);
        CHECK(!l);
        for (int j = 0; j < 4; j++)
            AWAIT(line_is(b, names[j], strcmp(names[i], names[j]) == 0, 0));
        given(busy);
    }
    closed(a);
    closed(b);
}

struct both {
    hf_client *client;
    bool turned;
};

static void *take_both(void *arg)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct both *b = arg;
    const char *names[2];
    bool turned;

    pthread_mutex_lock(&lock);
    turned = b->turned = !b->turned;
    pthread_mutex_unlock(&lock);
    names[turned] = nm("a");
    names[!turned] = nm("b");
    for (int i = 0; i < 50; i++) {
        hf_lease *l = NULL;

        CHECK_RC(rig.face->acquire_all(b->client, names, 2, LIMIT_MS, NULL, &l, E()), 0);
        CHECK_RC(hf_lease_check(l), 0);
        given(l);
    }
    return NULL;
}

/* Names in opposite orders: the library sorts, so nobody blocks anybody. */
static void all_in_any_order(void)
{
    struct both b = { .client = opened() };

    in_threads(4, take_both, &b);
    CHECK(line_is(b.client, nm("a"), 0, 0) && line_is(b.client, nm("b"), 0, 0));
    closed(b.client);
}

static void all_lost_with_one(void)
{
    const char *names[] = { nm("a"), nm("b"), nm("c") };
    hf_client *a = prompted(), *b = opened();
    hf_lease *l = NULL;
    struct seen s;

    CHECK_RC(rig.face->acquire_all(a, names, 3, LIMIT_MS, NULL, &l, E()), 0);
    CHECK(see(b, names[1], 0, &s));
    CHECK_RC(rig.face->evict(b, names[1], s.id, HF_EVICT_NOW, E()), 0);
    AWAIT(hf_lease_check(l) == HF_ELOST);
    CHECK_NUM(hf_lease_state(l), ==, HF_LOST);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    for (int i = 0; i < 3; i++)
        given(taken(b, names[i], NULL));
    closed(a);
    closed(b);
}

struct visit {
    int calls;
    hf_client *other;
    bool evict;
};

static int body(hf_lease *l, void *user)
{
    struct visit *v = user;
    struct seen s;

    v->calls++;
    CHECK_RC(hf_lease_check(l), 0);
    CHECK_RC(tried(v->other, hf_lease_name(l), NULL), HF_EBUSY);
    if (v->evict) {
        CHECK(see(v->other, hf_lease_name(l), 0, &s));
        CHECK_RC(rig.face->evict(v->other, hf_lease_name(l), s.id, HF_EVICT_NOW, E()), 0);
        AWAIT(hf_lease_check(l) == HF_ELOST);
    }
    return 40 + v->calls;
}

static void with_body(void)
{
    hf_client *a = prompted();
    struct visit v = { .other = opened() };
    hf_lease *l;
    int ret = 0;

    CHECK_RC(hf_with(a, nm("n"), LIMIT_MS, NULL, body, &v, &ret, E()), 0);
    CHECK(v.calls == 1 && ret == 41);
    CHECK(line_is(a, nm("n"), 0, 0));
    CHECK_RC(hf_with(a, nm("n"), LIMIT_MS, NULL, body, &v, NULL, E()), 0);
    l = taken(v.other, nm("n"), NULL);
    CHECK_RC(hf_with(a, nm("n"), 0, NULL, body, &v, &ret, E()), HF_EBUSY);
    CHECK_RC(hf_with(a, nm("n"), 50, NULL, body, &v, &ret, E()), HF_ETIMEDOUT);
    CHECK(v.calls == 2 && ret == 41); /* not called, not written */
    given(l);
    v.evict = true;
    CHECK_RC(hf_with(a, nm("n"), LIMIT_MS, NULL, body, &v, &ret, E()), HF_ELOST);
    CHECK(v.calls == 3 && ret == 43);
    CHECK_RC(tried(v.other, nm("n"), NULL), 0);
    closed(a);
    closed(v.other);
}

static void downgrade(void)
{
    const hf_request *read = HF_REQUEST(.mode = HF_READ);
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), NULL), *r1, *r2;
    uint64_t fence = hf_lease_fence(l);
    struct pend *p1 = queued(b, nm("n"), 1, read), *p2 = queued(a, nm("n"), 2, read),
                *w = queued(b, nm("n"), 3, NULL);
    struct seen s;

    CHECK_RC(rig.face->downgrade(l, E()), 0);
    r1 = pend_granted(p1);
    r2 = pend_granted(p2);
    CHECK_RC(hf_lease_check(l), 0);
    CHECK(hf_lease_fence(l) == fence);
    CHECK(see(b, nm("n"), 0, &s) && s.mode == HF_READ && s.fence == fence);
    CHECK(line_is(a, nm("n"), 3, 1) && !pend_done(w));
    given(r1);
    given(r2);
    CHECK(!pend_done(w)); /* we still read */
    given(l);
    given(pend_granted(w));
    CHECK(line_is(a, nm("n"), 0, 0));
    closed(a);
    closed(b);
}

static void downgrade_needs_single_handle(void)
{
    const hf_request *write = HF_REQUEST(.mode = HF_WRITE, .owner = 7);
    hf_client *c = opened();
    hf_lease *outer = taken(c, nm("n"), write), *inner = taken(c, nm("n"), write);

    CHECK_RC(rig.face->downgrade(outer, E()), HF_EBUSY);
    CHECK_RC(tried(c, nm("n"), HF_REQUEST(.mode = HF_READ, .owner = 8)), HF_EBUSY);
    given(inner);
    CHECK_RC(rig.face->downgrade(outer, E()), 0);
    CHECK_RC(tried(c, nm("n"), HF_REQUEST(.mode = HF_READ, .owner = 8)), 0);
    CHECK_RC(tried(c, nm("n"), write), HF_EDEADLK); /* it reads now: no way back */
    given(outer);
    closed(c);
}

const struct test_case whole_cases[] = {
    { "all-or-none", all_or_none, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "all-in-any-order", all_in_any_order, ON_ALL, 0, 0 },
    { "all-lost-with-one", all_lost_with_one, ON_ALL, 0, 0 },
    { "with-body", with_body, ON_ALL, 0, 0 },
    { "downgrade", downgrade, ON_ALL, HF_CAP_SHARED | HF_CAP_LINE, 0 },
    { "downgrade-needs-single-handle", downgrade_needs_single_handle, ON_ALL, HF_CAP_SHARED,
      0 },
    { NULL, NULL, 0, 0, 0 },
};
