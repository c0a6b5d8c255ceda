/* loss.c: a hold that ends against its owner's will, and how he is told: by check, state,
 * descriptor and callback, in grades (G6). Breaking ends one ticket or nothing (G8).
 */
#include "rig.h"

#include <poll.h>
#include <stdatomic.h>
#include <string.h>

enum { SHORT_MS = 3000 };

struct news {
    atomic_int count, last, first;
};

static void on_change(hf_lease *l, int state, void *user)
{
    struct news *n = user;

    CHECK(l);
    if (atomic_fetch_add(&n->count, 1) == 0)
        atomic_store(&n->first, state);
    atomic_store(&n->last, state);
}

static bool readable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    return poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

/* Somebody else breaks what is held there now. */
static void broken(hf_client *by, const char *name, uint32_t flags)
{
    struct seen s;

    CHECK(see(by, name, 0, &s));
    CHECK(s.position == 0 && !s.broken);
    CHECK(s.fence > 0 || !(hf_client_caps(by) & HF_CAP_LINE));
    CHECK_RC(rig.face->evict(by, name, s.id, flags, E()), 0);
}

static void loss_told(void)
{
    hf_client *a = prompted(), *b = opened();
    hf_lease *l = taken(a, nm("n"), NULL);
    struct news news = { 0 };
    int fd = hf_lease_fd(l, E());

    CHECK(fd >= 0);
    CHECK(hf_lease_fd(l, E()) == fd);
    CHECK_RC(hf_lease_on_change(l, on_change, &news, E()), 0);
    STAYS(!readable(fd) && hf_lease_state(l) == HF_HELD && news.count == 0, 100);
    broken(b, nm("n"), HF_EVICT_NOW);
    AWAIT(hf_lease_check(l) == HF_ELOST);
    AWAIT(readable(fd));
    AWAIT(news.last == HF_LOST && news.count > 0);
    CHECK_NUM(hf_lease_state(l), ==, HF_LOST);
    CHECK_NUM(hf_lease_remaining_ms(l), ==, 0);
    CHECK(readable(fd)); /* level: looking does not take it away */
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(a);
    closed(b);
}

/* Whoever registers a callback is told, however the client is driven, and also while no
 * call is under way (blocking face: HF_DRIVE_CALLER, and nobody calls). */
static void loss_told_by_default(void)
{
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), NULL);
    struct news news = { 0 };

    CHECK_RC(hf_lease_on_change(l, on_change, &news, E()), 0);
    broken(b, nm("n"), HF_EVICT_NOW);
    AWAIT(news.last == HF_LOST && news.count > 0);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(a);
    closed(b);
}

static void loss_told_in_grades(void)
{
    hf_client *a = prompted(), *b = opened();
    hf_lease *l = taken(a, nm("n"), HF_REQUEST(.ttl_ms = SHORT_MS));
    struct news news = { 0 };
    int fd = hf_lease_fd(l, E());
    struct pend *p = queued(b, nm("n"), 1, NULL);
    int64_t held_until = 0, asked;

    CHECK_RC(hf_lease_on_change(l, on_change, &news, E()), 0);
    broken(b, nm("n"), 0);
    AWAIT(hf_lease_state(l) != HF_HELD);
    AWAIT(news.count >= 1 && readable(fd));
    CHECK_NUM(news.first, ==, HF_AT_RISK);
    for (asked = now_ms(); hf_lease_check(l) == 0; asked = now_ms()) {
        held_until = asked;
        nap();
    }
    CHECK(held_until > 0); /* at risk is not lost */
    AWAIT(news.last == HF_LOST);
    CHECK_NUM(news.count, ==, 2);
    CHECK_NUM(hf_lease_state(l), ==, HF_LOST);
    AWAIT(pend_done(p));
    CHECK_NUM(p->ended_ms, >=, held_until);
    given(pend_granted(p));
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(a);
    closed(b);
}

static void loss_callback_ended(void)
{
    hf_client *a = prompted(), *b = opened();
    hf_lease *l = taken(a, nm("n"), NULL);
    struct news news = { 0 };

    CHECK_RC(hf_lease_on_change(l, on_change, &news, E()), 0);
    CHECK_RC(hf_lease_on_change(l, NULL, NULL, E()), 0);
    broken(b, nm("n"), HF_EVICT_NOW);
    AWAIT(hf_lease_state(l) == HF_LOST);
    STAYS(news.count == 0, 200);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(a);
    closed(b);
}

/* Without HF_DRIVE_PROMPT the news may come late, but check still ends in time. */
static void loss_by_check(void)
{
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), HF_REQUEST(.ttl_ms = SHORT_MS)), *next;

    broken(b, nm("n"), 0);
    next = taken(b, nm("n"), NULL);
    CHECK_RC(hf_lease_check(l), HF_ELOST);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    given(next);
    closed(a);
    closed(b);
}

static void release_after_loss(void)
{
    hf_client *a = prompted(), *b = opened();
    hf_lease *l = taken(a, nm("n"), NULL), *next;

    broken(b, nm("n"), HF_EVICT_NOW);
    next = taken(b, nm("n"), NULL);
    AWAIT(hf_lease_check(l) == HF_ELOST);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    CHECK_RC(hf_lease_check(next), 0);
    CHECK(line_is(a, nm("n"), 1, 0));
    CHECK_RC(tried(a, nm("n"), NULL), HF_EBUSY);
    given(next);
    closed(a);
    closed(b);
}

static void break_marks(void)
{
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), HF_REQUEST(.ttl_ms = SHORT_MS)), *next;
    struct pend *p = queued(b, nm("n"), 1, NULL);
    int64_t start = now_ms(), held_until = 0, asked;
    struct seen s;

    broken(b, nm("n"), 0);
    if (see(b, nm("n"), 0, &s) && s.fence == hf_lease_fence(l))
        CHECK_NUM(s.broken, ==, 1);
    for (asked = now_ms(); hf_lease_check(l) == 0; asked = now_ms()) {
        held_until = asked;
        CHECK_NUM(asked, <, start + LIMIT_MS);
        nap();
    }
    CHECK(held_until > 0); /* it does not end at once */
    AWAIT(pend_done(p));
    CHECK_NUM(p->ended_ms, >=, held_until);
    next = pend_granted(p);
    CHECK_RC(hf_lease_check(l), HF_ELOST);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    CHECK_RC(hf_lease_check(next), 0);
    given(next);
    closed(a);
    closed(b);
}

static void break_now(void)
{
    hf_client *a = prompted(), *b = opened();
    hf_lease *l = taken(a, nm("n"), HF_REQUEST(.ttl_ms = ttl_of(600000))), *next;
    struct pend *p = queued(b, nm("n"), 1, NULL);

    broken(b, nm("n"), HF_EVICT_NOW);
    next = pend_granted(p);
    CHECK_NUM(hf_lease_fence(next), >, hf_lease_fence(l));
    AWAIT(hf_lease_check(l) == HF_ELOST);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    CHECK(line_is(b, nm("n"), 1, 0));
    given(next);
    closed(a);
    closed(b);
}

static void break_that_or_nothing(void)
{
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), NULL);
    int none = hf_client_caps(b) & HF_CAP_LINE ? HF_ENOENT : HF_ENOTSUP; /* of marks */
    struct seen s;
    char wrong[64];

    CHECK(see(b, nm("n"), 0, &s));
    given(l);
    CHECK_RC(rig.face->evict(b, nm("n"), s.id, HF_EVICT_NOW, E()), HF_ENOENT);
    l = taken(a, nm("n"), NULL);
    CHECK_RC(rig.face->evict(b, nm("n"), s.id, HF_EVICT_NOW, E()), HF_ENOENT);
    CHECK_RC(rig.face->evict(b, nm("n"), s.id, 0, E()), none);
    CHECK(see(b, nm("n"), 0, &s));
    CHECK_RC(rig.face->evict(b, nm("another"), s.id, HF_EVICT_NOW, E()), HF_ENOENT);
    strcpy(wrong, s.id);
    wrong[0] = wrong[0] == '0' ? '1' : '0';
    CHECK_RC(rig.face->evict(b, nm("n"), wrong, HF_EVICT_NOW, E()), HF_ENOENT);
    CHECK_RC(rig.face->evict(b, nm("n"), wrong, 0, E()), none);
    CHECK_RC(rig.face->evict(b, nm("n"), s.id, 1u << 20, E()), HF_EINVAL);
    STAYS(hf_lease_state(l) == HF_HELD && hf_lease_check(l) == 0, 100);
    CHECK(see(b, nm("n"), 0, &s) && !s.broken);
    given(l);
    closed(a);
    closed(b);
}

/* The waiter with this note is evicted: its call ends, and it does not stand in line again.
 */
static void evicted(hf_client *by, struct pend *p, const char *note, uint32_t flags,
                    size_t left)
{
    struct seen s;
    size_t i = 0;

    while (see(by, nm("n"), i, &s) && strcmp(s.note, note) != 0)
        i++;
    CHECK_STR(s.note, note);
    CHECK_NUM(s.position, >, 0);
    CHECK_RC(rig.face->evict(by, nm("n"), s.id, flags, E()), 0);
    CHECK_RC(pend_end(p, NULL), HF_EEVICTED);
    await_line(by, nm("n"), 1, left);
    STAYS(line_is(by, nm("n"), 1, left), 100);
    CHECK_RC(rig.face->evict(by, nm("n"), s.id, flags, E()), HF_ENOENT);
}

/* In the middle, at the end, and alone; of the holder's client and of another; marked,
 * which for a waiter is the same, and at once. */
static void break_waiter_as(const hf_request *as)
{
    hf_client *a = opened(), *b = opened(), *c = opened();
    hf_request with[3] = { *as, *as, *as };
    hf_lease *l = taken(a, nm("n"), as);

    with[0].note = "first";
    with[1].note = "second";
    with[2].note = "third";
    with[0].mode = as->mode == HF_READ ? HF_WRITE : as->mode;
    for (uint32_t flags = 0; flags <= HF_EVICT_NOW; flags += HF_EVICT_NOW) {
        struct pend *p[3];

        p[0] = queued(a, nm("n"), 1, &with[0]);
        p[1] = queued(b, nm("n"), 2, &with[1]);
        p[2] = queued(b, nm("n"), 3, &with[2]);
        evicted(c, p[1], "second", flags, 2);
        evicted(c, p[2], "third", flags, 1);
        evicted(c, p[0], "first", flags, 0);
        CHECK_RC(hf_lease_check(l), 0);
    }
    given(l);
    given(taken(b, nm("n"), as));
    closed(a);
    closed(b);
    closed(c);
}

static void break_waiter(void)
{
    break_waiter_as(HF_REQUEST(.mode = HF_MUTEX));
}

static void break_waiter_shared(void)
{
    break_waiter_as(HF_REQUEST(.mode = HF_READ));
}

static void break_waiter_permits(void)
{
    break_waiter_as(HF_REQUEST(.mode = HF_PERMITS, .permits = 2, .capacity = 3));
}

/* What stands behind it does not wait for it any more. */
static void break_waiter_in_the_way(void)
{
    hf_client *a = opened(), *b = opened(), *c = opened();
    hf_lease *l = taken(a, nm("n"), HF_REQUEST(.mode = HF_READ));
    struct pend *writer = queued(b, nm("n"), 1, HF_REQUEST(.note = "writer")),
                *reader = queued(c, nm("n"), 2, HF_REQUEST(.mode = HF_READ));
    struct seen s;

    CHECK(see(a, nm("n"), 1, &s));
    CHECK_STR(s.note, "writer");
    CHECK_RC(hf_evict(a, nm("n"), s.id, 0, E()), 0);
    CHECK_RC(pend_end(writer, NULL), HF_EEVICTED);
    given(pend_granted(reader));
    given(l);
    closed(a);
    closed(b);
    closed(c);
}

const struct test_case loss_cases[] = {
    { "loss-told", loss_told, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "loss-told-by-default", loss_told_by_default, ON_ALL, HF_CAP_LINE, 0 },
    { "loss-told-in-grades", loss_told_in_grades, ON_ALL, HF_CAP_LINE | HF_CAP_TTL, 0 },
    { "loss-callback-ended", loss_callback_ended, ON_ALL, HF_CAP_LINE, 0 },
    { "loss-by-check", loss_by_check, ON_ALL, HF_CAP_LINE | HF_CAP_TTL | HF_CAP_DEADLINE,
      0 },
    { "release-after-loss", release_after_loss, ON_ALL, 0, CASE_TOPOLOGY },
    { "break-marks", break_marks, ON_ALL, HF_CAP_LINE | HF_CAP_TTL, 0 },
    { "break-now", break_now, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "break-that-or-nothing", break_that_or_nothing, ON_ALL, 0, 0 },
    { "break-waiter", break_waiter, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "break-waiter-shared", break_waiter_shared, ON_ALL, HF_CAP_LINE | HF_CAP_SHARED, 0 },
    { "break-waiter-permits", break_waiter_permits, ON_ALL, HF_CAP_LINE | HF_CAP_PERMITS,
      0 },
    { "break-waiter-in-the-way", break_waiter_in_the_way, ON_ALL,
      HF_CAP_LINE | HF_CAP_SHARED, 0 },
    { NULL, NULL, 0, 0, 0 },
};
