/* fence.c: G2. Each grant of a name has a greater fence than all before it, whatever
 * happened between the two: release, crash, another client, the end of everybody who had
 * it open.
 */
#include "rig.h"

static void next_fence(hf_client *c, uint64_t *last)
{
    hf_lease *l = taken(c, nm("n"), NULL);

    CHECK_NUM(hf_lease_fence(l), >, *last);
    CHECK(hf_lease_fence(l) == hf_lease_fence_of(l, nm("n")));
    CHECK(hf_lease_fence_of(l, nm("another")) == 0);
    *last = hf_lease_fence(l);
    given(l);
}

static void fence_grows(void)
{
    struct kid kids[2] = { kid_new(), kid_new() };
    const hf_request *req =
        HF_REQUEST(.ttl_ms = ttl_of(rig.setup->traits & SETUP_SEES_DEATH ? 60000 : 2000));
    uint64_t last = 0, fence;
    hf_client *c;

    CHECK_RC(kid_acquire(&kids[0], 0, nm("n"), LIMIT_MS, req, &last), 0);
    CHECK(last > 0);
    CHECK_RC(kid_release(&kids[0], 0).rc, 0);
    CHECK_RC(kid_acquire(&kids[1], 0, nm("n"), LIMIT_MS, req, &fence), 0);
    CHECK_NUM(fence, >, last);
    last = fence;
    kid_kill(&kids[1]);
    c = opened();
    next_fence(c, &last); /* over a crash */
    for (int i = 0; i < 50; i++)
        next_fence(c, &last);
    closed(c);
    c = opened();
    next_fence(c, &last);
    closed(c);
    kid_end(&kids[0]);
    rig.setup->restart(rig.place); /* nobody has it open now */
    c = opened();
    next_fence(c, &last);
    closed(c);
}

/* Somebody who barges is granted before those who wait, and his fence is smaller than
 * theirs for that reason: the order of fences is the order of grants, not of joining. */
static void fence_with_barging(void)
{
    enum { ALL = 3 };
    const hf_request *one = HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = ALL),
                     *all = HF_REQUEST(.mode = HF_PERMITS, .permits = ALL, .capacity = ALL),
                     *barge = HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = ALL,
                                         .flags = HF_BARGE);
    hf_client *c = opened(), *d = opened();
    hf_lease *first = taken(c, nm("n"), one), *barger, *last;
    struct pend *waits = queued(c, nm("n"), 1, all);
    uint64_t barged;

    CHECK_RC(tried(d, nm("n"), one), HF_EBUSY); /* there is room, but also a queue */
    barger = taken(d, nm("n"), barge);
    CHECK(!pend_done(waits));
    barged = hf_lease_fence(barger);
    CHECK_NUM(barged, >, hf_lease_fence(first));
    CHECK(line_is(c, nm("n"), 2, 1));
    given(first);
    given(barger);
    last = pend_granted(waits);
    CHECK_NUM(hf_lease_fence(last), >, barged);
    CHECK_RC(tried(d, nm("n"), barge), HF_EBUSY); /* no room: barging does not help */
    given(last);
    CHECK(line_is(c, nm("n"), 0, 0));
    closed(c);
    closed(d);
}

struct pile {
    hf_client *client;
    const char *name;
    volatile uint64_t last;
};

static void *barge_often(void *arg)
{
    struct pile *p = arg;

    for (int i = 0; i < 100; i++) {
        hf_lease *l =
            taken(p->client, p->name, i % 2 ? HF_REQUEST(.flags = HF_BARGE) : NULL);

        CHECK(hf_lease_fence(l) > p->last);
        p->last = hf_lease_fence(l);
        given(l);
    }
    return NULL;
}

static void fence_under_barging(void)
{
    struct pile p = { .client = opened(), .name = nm("n") };

    in_threads(6, barge_often, &p);
    CHECK(line_is(p.client, p.name, 0, 0));
    closed(p.client);
}

const struct test_case fence_cases[] = {
    { "fence-grows", fence_grows, ON_ALL, HF_CAP_FENCE, CASE_OWN_STORE | CASE_TOPOLOGY },
    { "fence-with-barging", fence_with_barging, ON_ALL,
      HF_CAP_FENCE | HF_CAP_BARGE | HF_CAP_PERMITS | HF_CAP_LINE, 0 },
    { "fence-under-barging", fence_under_barging, ON_ALL, HF_CAP_FENCE | HF_CAP_BARGE, 0 },
    { NULL, NULL, 0, 0, 0 },
};
