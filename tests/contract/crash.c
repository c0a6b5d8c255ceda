/* crash.c: processes that are killed or stopped with a hold or a place in the queue. The
 * line moves on (G5), a place that was lost is never acted upon (G1, G6), and what the
 * loser does afterwards harms nobody (G8). Cases that stop processes have a store of
 * their own: one that is stopped at an unlucky moment may keep others from it for a
 * while.
 */
#include "rig.h"

#include <signal.h>
#include <unistd.h>

enum { SHORT_MS = 3000 };

/* Where the store sees a process die, its ttl must not matter. */
static const hf_request *mortal(void)
{
    static hf_request req = HF_REQUEST_INIT;

    req.ttl_ms = ttl_of(rig.setup->traits & SETUP_SEES_DEATH ? 600000 : SHORT_MS);
    return &req;
}

static void kill_holder(void)
{
    struct kid k = kid_new();
    hf_client *c = opened();
    struct pend *p;
    uint64_t fence = 0;
    hf_lease *l;

    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS, mortal(), &fence), 0);
    p = queued(c, nm("n"), 1, NULL);
    kid_kill(&k);
    l = pend_granted(p);
    CHECK_NUM(hf_lease_fence(l), >, fence);
    given(l);
    CHECK(line_is(c, nm("n"), 0, 0));
    closed(c);
}

/* Nobody was waiting when it died: the next to come finds the place free. */
static void kill_holder_then_try(void)
{
    struct kid k = kid_new();
    hf_client *c = opened();

    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS, mortal(), NULL), 0);
    kid_kill(&k);
    if ((rig.setup->traits & SETUP_SEES_DEATH) && !(rig.setup->traits & SETUP_DEATH_SOON))
        CHECK_RC(tried(c, nm("n"), NULL), 0);
    else
        AWAIT(tried(c, nm("n"), NULL) == 0);
    closed(c);
}

static void kill_waiter_in_the_middle(void)
{
    struct kid k = kid_new();
    hf_client *c = opened();
    hf_lease *l = taken(c, nm("n"), NULL);
    struct pend *last;

    kid_begin(&k, 0, nm("n"), HF_FOREVER, mortal());
    await_line(c, nm("n"), 1, 1);
    last = queued(c, nm("n"), 2, NULL);
    kid_kill(&k);
    given(l);
    given(pend_granted(last));
    AWAIT(line_is(c, nm("n"), 0, 0));
    closed(c);
}

/* Everybody else of a long queue dies at the same time. */
static void kill_all_ahead(void)
{
    struct kid kids[3] = { kid_new(), kid_new(), kid_new() };
    hf_client *c = opened();
    struct pend *p;

    CHECK_RC(kid_acquire(&kids[0], 0, nm("n"), LIMIT_MS, mortal(), NULL), 0);
    for (size_t i = 1; i < 3; i++) {
        kid_begin(&kids[i], 0, nm("n"), HF_FOREVER, mortal());
        await_line(c, nm("n"), 1, i);
    }
    p = queued(c, nm("n"), 3, NULL);
    for (int i = 2; i >= 0; i--)
        kill(kids[i].pid, SIGKILL);
    for (int i = 0; i < 3; i++)
        kid_kill(&kids[i]);
    given(pend_granted(p));
    closed(c);
}

static void stop_holder(void)
{
    struct kid k = kid_new();
    hf_client *c = opened();
    struct pend *p;
    struct answer a;
    hf_lease *l;
    int64_t asked, held_until;

    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS, HF_REQUEST(.ttl_ms = SHORT_MS), NULL),
             0);
    p = queued(c, nm("n"), 1, NULL);
    asked = now_ms();
    a = kid_check(&k, 0);
    CHECK_RC(a.check, 0);
    held_until = asked + a.remaining_ms;
    kid_stop(&k);
    AWAIT(pend_done(p));
    CHECK_NUM(p->ended_ms, >=, held_until); /* while it could say "held", nobody got it */
    l = pend_granted(p);
    CHECK_NUM(hf_lease_fence(l), >, a.fence);
    kid_continue(&k);
    a = kid_check(&k, 0); /* the first thing it does */
    CHECK_RC(a.check, HF_ELOST);
    CHECK_NUM(a.state, ==, HF_LOST);
    CHECK_NUM(a.remaining_ms, ==, 0);
    CHECK_RC(kid_release(&k, 0).rc, HF_ELOST);
    CHECK_RC(hf_lease_check(l), 0);
    CHECK(line_is(c, nm("n"), 1, 0));
    CHECK_RC(kid_acquire(&k, 0, nm("n"), 0, NULL, NULL), HF_EBUSY);
    given(l);
    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS, NULL, NULL), 0);
    kid_end(&k);
    closed(c);
}

static void stop_waiter_granted(void)
{
    struct kid k = kid_new();
    hf_client *c = opened();
    hf_lease *l = taken(c, nm("n"), NULL);
    struct pend *p;
    struct seen s;
    struct answer a;

    kid_begin(&k, 0, nm("n"), HF_FOREVER, HF_REQUEST(.ttl_ms = SHORT_MS));
    await_line(c, nm("n"), 1, 1);
    p = queued(c, nm("n"), 2, NULL);
    kid_stop(&k);
    given(l);
    if (see(c, nm("n"), 0, &s) && s.pid == k.pid && s.position == 0)
        CHECK(s.fence > 0); /* granted in its sleep, unless its time was up already */
    l = pend_granted(p);
    kid_continue(&k);
    /* it may not act on the grant it slept through, so it waits once more */
    await_line(c, nm("n"), 1, 1);
    STAYS(!kid_answered(&k), 200);
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    a = kid_answer(&k);
    CHECK_RC(a.rc, 0);
    CHECK_RC(kid_check(&k, 0).check, 0);
    CHECK_RC(kid_release(&k, 0).rc, 0);
    kid_end(&k);
    closed(c);
}

/* A child that the holder forked does not keep its place alive (G12). */
static void forked_child_outlives_holder(void)
{
    struct kid k = kid_new();
    hf_client *c = opened();
    struct pend *p;
    struct answer a;

    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS, mortal(), NULL), 0);
    a = kid_fork(&k);
    p = queued(c, nm("n"), 1, NULL);
    kid_kill(&k);
    given(pend_granted(p));
    CHECK(kill((pid_t)a.pid, SIGKILL) == 0); /* it was still there */
    closed(c);
}

/* Somebody who keeps copies of the life descriptors holds back the news of a death, and
 * gives it by closing them. */
static void guard_holds_news_back(void)
{
    struct kid k = kid_new();
    hf_client *c = opened();
    int fds[KID_LIFE_FDS], n;
    struct pend *p;

    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS, mortal(), NULL), 0);
    n = kid_life_fds(&k, fds);
    CHECK((n > 0) == ((rig.setup->traits & SETUP_SEES_DEATH) != 0));
    p = queued(c, nm("n"), 1, NULL);
    kid_kill(&k);
    if (n > 0) {
        STAYS(!pend_done(p), 1000);
        CHECK_RC(tried(c, nm("n"), NULL), HF_EBUSY);
    }
    for (int i = 0; i < n; i++)
        close(fds[i]);
    given(pend_granted(p));
    closed(c);
}

const struct test_case crash_cases[] = {
    { "kill-holder", kill_holder, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "kill-holder-then-try", kill_holder_then_try, ON_ALL, 0, 0 },
    { "kill-waiter-in-the-middle", kill_waiter_in_the_middle, ON_ALL, HF_CAP_LINE,
      CASE_TOPOLOGY },
    { "kill-all-ahead", kill_all_ahead, ON_ALL, HF_CAP_LINE, 0 },
    { "stop-holder", stop_holder, ON_ALL, HF_CAP_LINE | HF_CAP_TTL | HF_CAP_DEADLINE,
      CASE_OWN_STORE | CASE_TOPOLOGY },
    { "stop-waiter-granted", stop_waiter_granted, ON_ALL, HF_CAP_LINE | HF_CAP_TTL,
      CASE_OWN_STORE | CASE_TOPOLOGY },
    { "guard-holds-news-back", guard_holds_news_back, ON_ALL, HF_CAP_LINE, 0 },
    { "forked-child-outlives-holder", forked_child_outlives_holder, ON_ALL, HF_CAP_LINE,
      0 },
    { NULL, NULL, 0, 0, 0 },
};
