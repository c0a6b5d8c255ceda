/* life.c: how long a hold lasts. Renewal is kept up, and ends a hold when it ends (G1,
 * G5); max_hold, HF_NO_RENEW and hf_release_after put the end where the caller wants it.
 */
#include "rig.h"

#include <string.h>

enum { SHORT_MS = 3000 };

static void renewal_kept_up(void)
{
    hf_client *a = opened(), *b = opened();
    int64_t start = now_ms(), last = 0;
    hf_lease *l = taken(a, nm("n"), HF_REQUEST(.ttl_ms = SHORT_MS));
    int renewals = -1; /* the first sight of it is none */
    struct seen s;

    while (renewals < 3 || now_ms() < start + 3 * SHORT_MS) {
        CHECK(see(b, nm("n"), 0, &s));
        CHECK_NUM(s.expires_ms, <=, SHORT_MS);
        if (now_ms() + s.expires_ms > last + SHORT_MS / 10) {
            renewals++;
            last = now_ms() + s.expires_ms;
        }
        CHECK_RC(hf_lease_check(l), 0);
        CHECK_NUM(hf_lease_state(l), ==, HF_HELD);
        CHECK_NUM(now_ms(), <, start + LIMIT_MS);
        nap();
    }
    CHECK_RC(tried(b, nm("n"), NULL), HF_EBUSY);
    given(l);
    CHECK_RC(tried(b, nm("n"), NULL), 0);
    closed(a);
    closed(b);
}

/* The waiter's place is renewed too: it outlives many of its ttls in the queue. */
static void waiting_kept_up(void)
{
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), NULL);
    struct pend *p = queued(b, nm("n"), 1, HF_REQUEST(.ttl_ms = SHORT_MS));
    struct seen first, s;

    CHECK(see(a, nm("n"), 1, &first));
    STAYS(see(a, nm("n"), 1, &s) && s.position == 1 && !strcmp(s.id, first.id),
          3 * SHORT_MS);
    given(l);
    given(pend_granted(p));
    closed(a);
    closed(b);
}

static void max_hold(void)
{
    hf_client *a = opened(), *b = opened();
    int64_t start = now_ms();
    hf_lease *l =
        taken(a, nm("n"), HF_REQUEST(.ttl_ms = ttl_of(60000), .max_hold_ms = 400));
    hf_lease *next = pend_granted(begun(b, nm("n"), HF_FOREVER, NULL));

    CHECK_NUM(now_ms() - start, >=, 399);
    CHECK_RC(hf_lease_check(l), HF_ELOST);
    AWAIT(hf_lease_state(l) == HF_LOST);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    CHECK_RC(hf_lease_check(next), 0);
    CHECK(line_is(b, nm("n"), 1, 0));
    given(next);
    closed(a);
    closed(b);
}

static void no_renew_ends(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = SHORT_MS, .flags = HF_NO_RENEW);
    hf_client *a = opened(), *b = opened();
    int64_t start = now_ms(), held_until = start, asked;
    hf_lease *l = taken(a, nm("n"), req);
    struct pend *p = queued(b, nm("n"), 1, NULL);

    for (asked = start; hf_lease_check(l) == 0; asked = now_ms()) {
        held_until = asked;
        CHECK_NUM(asked, <, start + LIMIT_MS);
        nap();
    }
    CHECK_NUM(now_ms() - start, >=, SHORT_MS * 95 / 100);
    AWAIT(pend_done(p));
    CHECK_NUM(p->ended_ms, >=, held_until);
    given(pend_granted(p));
    CHECK_RC(rig.face->renew(l, 0, E()), HF_ELOST);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(a);
    closed(b);
}

static void renew_by_hand(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = ttl_of(SHORT_MS), .flags = HF_NO_RENEW);
    hf_client *a = opened(), *b = opened();
    int64_t start = now_ms();
    hf_lease *l = taken(a, nm("n"), req);
    const int64_t ttl = hf_lease_ttl_ms(l);
    uint64_t fence = hf_lease_fence(l);

    while (now_ms() < start + 5 * ttl / 2) {
        CHECK_RC(hf_lease_check(l), 0);
        CHECK_NUM(hf_lease_remaining_ms(l), <=, ttl);
        if (hf_lease_remaining_ms(l) < ttl / 2)
            CHECK_RC(rig.face->renew(l, 0, E()), 0);
        nap();
    }
    CHECK_RC(tried(b, nm("n"), NULL), HF_EBUSY);
    if (hf_client_caps(a) & HF_CAP_TTL) {
        CHECK_RC(rig.face->renew(l, 20000, E()), 0);
        CHECK_NUM(hf_lease_remaining_ms(l), >, 15000);
        CHECK_NUM(hf_lease_remaining_ms(l), <=, 20000);
        CHECK(hf_lease_fence(l) == fence);
        given(l);
    } else { /* a session that lives on: but the lease ends */
        CHECK_RC(rig.face->renew(l, ttl + 1, E()), HF_ENOTSUP);
        AWAIT(hf_lease_check(l) == HF_ELOST);
        CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    }
    closed(a);
    closed(b);
}

/* Of several names, held by tickets of different ttls, the least. */
static void ttl_given(void)
{
    const char *const names[] = { nm("a"), nm("b") };
    const hf_request *longer = HF_REQUEST(.ttl_ms = 20000, .owner = 7);
    hf_client *c = opened();
    hf_lease *l = taken(c, nm("n"), NULL), *all = NULL;

    CHECK_NUM(hf_lease_remaining_ms(l), <=, hf_lease_ttl_ms(l));
    given(l);
    if (hf_client_caps(c) & HF_CAP_TTL) {
        l = taken(c, names[1], HF_REQUEST(.ttl_ms = 9000, .owner = 7));
        CHECK_NUM(hf_lease_ttl_ms(l), ==, 9000);
        CHECK_RC(rig.face->acquire_all(c, names, 2, LIMIT_MS, longer, &all, E()), 0);
        CHECK_NUM(hf_lease_ttl_ms(all), ==, 9000);
        CHECK_RC(rig.face->renew(l, 30000, E()), 0);
        CHECK_NUM(hf_lease_ttl_ms(l), ==, 30000);
        CHECK_NUM(hf_lease_ttl_ms(all), ==, 20000);
        given(all);
        given(l);
    }
    closed(c);
}

/* Nobody drives: validity is judged by the clock, not by news. */
static void undriven_ends_by_itself(void)
{
    hf_client *c = NULL, *other = opened();
    hf_lease *l = NULL;
    int64_t start = now_ms();

    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    CHECK_RC(hf_acquire(c, nm("n"), 0, HF_REQUEST(.ttl_ms = SHORT_MS), &l, E()), 0);
    AWAIT(hf_lease_check(l) == HF_ELOST);
    CHECK_NUM(now_ms() - start, >=, SHORT_MS * 95 / 100);
    CHECK_NUM(hf_lease_state(l), ==, HF_LOST);
    given(taken(other, nm("n"), NULL));
    CHECK_RC(hf_release(l, E()), HF_ELOST);
    hf_close(c);
    closed(other);
}

static void kept_after_release(void)
{
    struct kid k = kid_new();
    hf_client *c = opened();
    struct pend *p;
    int64_t start;

    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS, HF_REQUEST(.ttl_ms = SHORT_MS), NULL),
             0);
    CHECK_RC(kid_keep(&k, 0, -1).rc, HF_EINVAL);
    CHECK_RC(kid_check(&k, 0).check, 0);
    start = now_ms();
    CHECK_RC(kid_keep(&k, 0, 5 * SHORT_MS / 2).rc, 0);
    CHECK_RC(kid_acquire(&k, 0, nm("n"), 0, NULL, NULL), HF_EBUSY);
    kid_end(&k); /* beyond the ttl and the end of the process */
    CHECK_RC(tried(c, nm("n"), NULL), HF_EBUSY);
    p = hf_client_caps(c) & HF_CAP_LINE ? queued(c, nm("n"), 1, NULL)
                                        : begun(c, nm("n"), LIMIT_MS, NULL);
    AWAIT(pend_done(p));
    CHECK_NUM(p->ended_ms - start, >=, 5 * SHORT_MS / 2);
    given(pend_granted(p));
    closed(c);
}

static void kept_by_last_handle_only(void)
{
    const hf_request *req = HF_REQUEST(.owner = 7);
    hf_client *c = opened();
    hf_lease *outer = taken(c, nm("n"), req), *inner = taken(c, nm("n"), req);
    struct seen s;

    CHECK_RC(rig.face->release_after(inner, 60000, E()), HF_EBUSY);
    CHECK_RC(hf_lease_check(inner), 0);
    given(inner);
    if (hf_client_caps(c) & HF_CAP_LINE) {
        CHECK(see(c, nm("n"), 0, &s) && !s.kept && s.owner[0]);
        CHECK_RC(rig.face->release_after(outer, SHORT_MS, E()), 0);
        CHECK(!see(c, nm("n"), 0, &s) || (s.kept && !s.owner[0])); /* nobody's */
    } else
        CHECK_RC(rig.face->release_after(outer, SHORT_MS, E()), 0);
    CHECK_RC(tried(c, nm("n"), req), HF_EBUSY); /* its owner cannot re-enter */
    given(taken(c, nm("n"), req));
    closed(c);
}

const struct test_case life_cases[] = {
    { "renewal-kept-up", renewal_kept_up, ON_ALL, HF_CAP_TTL | HF_CAP_LINE, CASE_TOPOLOGY },
    { "waiting-kept-up", waiting_kept_up, ON_ALL, HF_CAP_TTL | HF_CAP_LINE, 0 },
    { "max-hold", max_hold, ON_ALL, HF_CAP_LINE, 0 },
    { "no-renew-ends", no_renew_ends, ON_ALL, HF_CAP_TTL | HF_CAP_LINE, 0 },
    { "renew-by-hand", renew_by_hand, ON_ALL, 0, 0 },
    { "ttl-given", ttl_given, ON_ALL, 0, 0 },
    { "undriven-ends-by-itself", undriven_ends_by_itself, ON_BLOCKING, HF_CAP_TTL, 0 },
    { "kept-after-release", kept_after_release, ON_ALL, HF_CAP_KEEP | HF_CAP_TTL, 0 },
    { "kept-by-last-handle-only", kept_by_last_handle_only, ON_ALL, HF_CAP_KEEP, 0 },
    { NULL, NULL, 0, 0, 0 },
};
