/* kept.c: places that hf_release_after has left: kept for longer, for less, broken; and
 * what is not such a place is not touched.
 */
#include "rig.h"

#include <stdatomic.h>
#include <string.h>

enum { SHORT_MS = 3000 };

/* Its id, in `id`. */
static uint64_t keep(hf_client *c, int64_t ms, char id[64])
{
    hf_lease *l = taken(c, nm("n"), HF_REQUEST(.note = "kept"));
    uint64_t fence = hf_lease_fence(l);

    strcpy(id, hf_lease_ticket(l));
    CHECK_RC(rig.face->release_after(l, ms, E()), 0);
    return fence;
}

static void kept_for_longer(void)
{
    hf_client *c = opened(), *other = opened();
    int64_t start = now_ms(), left;
    struct pend *p;
    struct seen s;
    uint64_t fence;
    char id[64];

    fence = keep(c, SHORT_MS, id);
    p = queued(c, nm("n"), 1, NULL);
    CHECK_RC(hf_keep_renew(other, nm("n"), id, 3 * SHORT_MS, E()), 0); /* by anybody */
    left = now_ms();
    CHECK(see(other, nm("n"), 0, &s));
    CHECK_STR(s.id, id);
    CHECK_STR(s.note, "kept");
    CHECK(s.kept && s.fence == fence && s.position == 0);
    CHECK_NUM(s.expires_ms, <=, 3 * SHORT_MS);
    /* both rounded down */
    CHECK_NUM(s.expires_ms, >=, 3 * SHORT_MS - (now_ms() - start) - 2);
    CHECK_RC(rig.face->state(other, nm("n"), E()), HF_TAKEN);
    AWAIT(pend_done(p));
    CHECK_NUM(p->ended_ms - start, >=, 3 * SHORT_MS - 10);
    CHECK_NUM(p->ended_ms - left, >=, 2 * SHORT_MS);
    given(pend_granted(p));
    CHECK_RC(hf_keep_renew(c, nm("n"), id, SHORT_MS, E()), HF_ENOENT); /* over */
    CHECK(line_is(c, nm("n"), 0, 0));
    closed(c);
    closed(other);
}

/* Who waits is told, and does not look at the old time only. */
static void kept_for_less(void)
{
    hf_client *c = opened(), *other = opened();
    int64_t start = now_ms();
    struct pend *p;
    char id[64];

    keep(c, 10 * LIMIT_MS, id);
    p = queued(other, nm("n"), 1, HF_REQUEST(.ttl_ms = 6 * LIMIT_MS));
    CHECK_RC(hf_keep_renew(c, nm("n"), id, 300, E()), 0);
    AWAIT(pend_done(p));
    CHECK_NUM(p->ended_ms - start, <, LIMIT_MS);
    given(pend_granted(p));
    closed(c);
    closed(other);
}

/* Nobody has that id; it holds; it waits; it is over; it was broken first. */
static void only_kept_ones(void)
{
    static const char nobody[] = "00000000000000000000000000000000";
    const hf_request *ends = HF_REQUEST(.ttl_ms = SHORT_MS, .flags = HF_NO_RENEW);
    hf_client *c = opened(), *other = opened();
    hf_lease *l;
    struct pend *p;
    struct seen s;
    char id[64];

    CHECK_RC(hf_keep_renew(c, nm("n"), nobody, SHORT_MS, E()), HF_ENOENT);
    keep(c, 500, id);
    CHECK_RC(hf_keep_renew(c, nm("n"), nobody, SHORT_MS, E()), HF_ENOENT);
    CHECK_RC(hf_keep_renew(c, nm("another"), id, SHORT_MS, E()), HF_ENOENT);
    CHECK_RC(hf_keep_renew(c, nm("n"), "x", SHORT_MS, E()), HF_EINVAL);
    CHECK_RC(hf_keep_renew(c, nm("n"), NULL, SHORT_MS, E()), HF_EINVAL);
    CHECK_RC(hf_keep_renew(c, nm("n"), id, 0, E()), HF_EINVAL);
    CHECK_RC(hf_keep_renew(c, nm("n"), id, -1, E()), HF_EINVAL);
    AWAIT(rig.face->state(other, nm("n"), E()) == HF_FREE);
    CHECK_RC(hf_keep_renew(c, nm("n"), id, SHORT_MS, E()), HF_ENOENT);
    l = taken(c, nm("n"), ends);
    p = queued(other, nm("n"), 1, NULL);
    CHECK(see(other, nm("n"), 1, &s));
    CHECK_RC(hf_keep_renew(c, nm("n"), s.id, LIMIT_MS, E()), HF_ENOENT);
    CHECK_RC(hf_keep_renew(c, nm("n"), hf_lease_ticket(l), LIMIT_MS, E()), HF_ENOENT);
    CHECK(see(other, nm("n"), 0, &s) && !s.kept && s.expires_ms <= SHORT_MS);
    given(pend_granted(p)); /* at its ttl, as before */
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(c);
    closed(other);
}

/* A held ticket becomes a kept one, for longer than its ttl. Not a waiting or a broken one,
 * nor one whose time is over. */
static void kept_orphan(void)
{
    struct kid kid = kid_new();
    hf_client *c = opened(), *other = opened();
    int64_t start;
    struct pend *p;
    struct seen s;
    uint64_t fence;
    hf_lease *l;
    char id[64];

    CHECK_RC(kid_acquire(&kid, 0, nm("n"), 0,
                         HF_REQUEST(.ttl_ms = SHORT_MS, .note = "dead"), &fence),
             0);
    kid_stop(&kid); /* as good as dead, on every store */
    start = now_ms();
    p = queued(other, nm("n"), 1, NULL);
    CHECK(see(c, nm("n"), 1, &s));
    CHECK_RC(hf_keep_orphan(c, nm("n"), s.id, LIMIT_MS, E()), HF_ENOENT);
    CHECK(see(c, nm("n"), 0, &s));
    strcpy(id, s.id);
    CHECK_RC(hf_keep_orphan(c, nm("n"), id, 0, E()), HF_EINVAL);
    CHECK_RC(hf_keep_orphan(c, nm("n"), id, 2 * SHORT_MS, E()), 0);
    CHECK(see(c, nm("n"), 0, &s));
    CHECK(s.kept && s.fence == fence && s.position == 0);
    CHECK_STR(s.id, id);
    CHECK_STR(s.note, "dead");
    AWAIT(pend_done(p));
    CHECK_NUM(p->ended_ms - start, >=, 2 * SHORT_MS - 10);
    given(pend_granted(p));
    CHECK_RC(hf_keep_orphan(c, nm("n"), id, SHORT_MS, E()), HF_ENOENT); /* over */
    kid_kill(&kid);
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = SHORT_MS));
    strcpy(id, hf_lease_ticket(l));
    CHECK_RC(rig.face->evict(other, nm("n"), id, 0, E()), 0);
    CHECK_RC(hf_keep_orphan(other, nm("n"), id, LIMIT_MS, E()), HF_ENOENT); /* broken */
    given(l);
    closed(c);
    closed(other);
}

/* An owner that lives after all loses it at its next renewal. */
static void kept_orphan_lives(void)
{
    hf_client *c = opened(), *other = opened();
    hf_lease *l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = SHORT_MS));

    CHECK_RC(hf_keep_orphan(other, nm("n"), hf_lease_ticket(l), 10 * LIMIT_MS, E()), 0);
    AWAIT(hf_lease_check(l) == HF_ELOST);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(c);
    closed(other);
}

/* It is nobody's: breaking it needs no owner to be told. */
static void kept_and_broken(void)
{
    hf_client *c = opened();
    char id[64];

    keep(c, 10 * LIMIT_MS, id);
    CHECK_RC(rig.face->evict(c, nm("n"), id, 0, E()), 0);
    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_FREE);
    CHECK_RC(hf_keep_renew(c, nm("n"), id, SHORT_MS, E()), HF_ENOENT);
    given(taken(c, nm("n"), NULL));
    closed(c);
}

struct entries {
    hf_client *client;
    atomic_bool stop;
};

/* Into the hold of owner 7 and out again, whenever there is one that can be entered. */
static void *enter_again(void *arg)
{
    struct entries *e = arg;

    while (!atomic_load(&e->stop)) {
        int rc = tried(e->client, nm("n"), HF_REQUEST(.owner = 7));

        CHECK(rc == 0 || rc == HF_EBUSY);
    }
    return NULL;
}

/* What is said to be kept is kept, also if somebody enters the hold at that moment. */
static void kept_or_entered(void)
{
    struct entries e = { .client = opened() };
    hf_client *other = opened();
    int64_t until = now_ms() + LIMIT_MS / 3; /* a store may need some ms for each */
    pthread_t thread;
    struct seen s;
    int kept = 0;

    CHECK(pthread_create(&thread, NULL, enter_again, &e) == 0);
    for (int i = 0; (i < 5000 && now_ms() < until) || kept < 20; i++) {
        hf_lease *l = taken(e.client, nm("n"), HF_REQUEST(.owner = 7));
        uint64_t fence = hf_lease_fence(l);
        int rc = rig.face->release_after(l, 10 * LIMIT_MS, E());

        if (rc < 0) { /* somebody is inside */
            CHECK_RC(rc, HF_EBUSY);
            given(l);
            continue;
        }
        CHECK(see(other, nm("n"), 0, &s) && s.kept && s.fence == fence);
        CHECK_RC(rig.face->evict(other, nm("n"), s.id, HF_EVICT_NOW, E()), 0);
        kept++;
    }
    atomic_store(&e.stop, true);
    pthread_join(thread, NULL);
    closed(e.client);
    closed(other);
}

const struct test_case kept_cases[] = {
    { "kept-for-longer", kept_for_longer, ON_ALL, HF_CAP_KEEP | HF_CAP_LINE,
      CASE_TOPOLOGY },
    { "kept-for-less", kept_for_less, ON_ALL, HF_CAP_KEEP | HF_CAP_LINE | HF_CAP_TTL, 0 },
    { "only-kept-ones", only_kept_ones, ON_ALL, HF_CAP_KEEP | HF_CAP_LINE | HF_CAP_TTL, 0 },
    { "kept-orphan", kept_orphan, ON_ALL, HF_CAP_KEEP | HF_CAP_LINE | HF_CAP_TTL, 0 },
    { "kept-orphan-lives", kept_orphan_lives, ON_ALL,
      HF_CAP_KEEP | HF_CAP_LINE | HF_CAP_TTL, 0 },
    { "kept-or-entered", kept_or_entered, ON_ALL, HF_CAP_KEEP | HF_CAP_LINE, 0 },
    { "kept-and-broken", kept_and_broken, ON_ALL, HF_CAP_KEEP | HF_CAP_LINE, 0 },
    { NULL, NULL, 0, 0, 0 },
};
