/* election.c: one leader, whose value all can see; the next one when it resigns or dies.
 */
#include "recipes.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SHORT_MS = 2000, SEEN = 16 };

static void election_office(void)
{
    hf_client *c = opened(), *other = opened();
    hf_leader_info info = { .fence = 77 };
    hf_lease *l = NULL, *next = NULL;
    struct pend *p;

    CHECK_RC(r_leader(c, nm("n"), &info), HF_ENOENT);
    CHECK_NUM(info.fence, ==, 77);
    CHECK_RC(r_campaign(c, nm("n"), "http://a:1/", 0, &l), 0);
    CHECK_RC(r_leader(other, nm("n"), &info), 0);
    CHECK_STR(info.value, "http://a:1/");
    CHECK_NUM(info.fence, ==, hf_lease_fence(l));
    CHECK_NUM(info.pid, ==, getpid());
    CHECK(info.host[0] && info.age_ms >= 0 && info.age_ms < LIMIT_MS);
    CHECK_RC(r_campaign(other, nm("n"), "b", 0, &next), HF_EBUSY);
    CHECK_RC(hf_proclaim(l, "http://a:2/", E()), 0);
    CHECK_RC(r_leader(other, nm("n"), &info), 0);
    CHECK_STR(info.value, "http://a:2/");
    p = queued(other, nm("n"), 1, HF_REQUEST(.note = "b"));
    CHECK_RC(r_leader(other, nm("n"), &info), 0); /* who waits does not lead */
    CHECK_STR(info.value, "http://a:2/");
    CHECK_RC(hf_resign(l, E()), 0);
    next = pend_granted(p);
    CHECK_RC(r_leader(c, nm("n"), &info), 0);
    CHECK_STR(info.value, "b");
    CHECK_NUM(info.fence, ==, hf_lease_fence(next));
    CHECK_RC(hf_resign(next, E()), 0);
    CHECK_RC(r_leader(c, nm("n"), &info), HF_ENOENT);
    closed(c);
    closed(other);
}

/* Holders that do not lead. */
static void election_nobody(void)
{
    hf_client *c = opened();
    hf_leader_info info;
    hf_lease *l = taken(c, nm("shared"), HF_REQUEST(.mode = HF_READ));

    CHECK_RC(r_leader(c, nm("shared"), &info), HF_ENOENT);
    given(l);
    l = taken(c, nm("permits"),
              HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = 2));
    CHECK_RC(r_leader(c, nm("permits"), &info), HF_EMISMATCH);
    given(l);
    closed(c);
}

struct history {
    pthread_mutex_t lock;
    char values[SEEN][64]; /* "-": nobody */
    int n;
    atomic_int ended;
};

static void on_led(hf_op *op, int rc, const hf_leader_info *info, const hf_error *err,
                   void *user)
{
    struct history *h = user;

    (void)op;
    if (rc < 0) {
        CHECK(err && err->code == rc && !info);
        atomic_store(&h->ended, rc);
        return;
    }
    pthread_mutex_lock(&h->lock);
    CHECK(h->n < SEEN);
    snprintf(h->values[h->n++], sizeof h->values[0], "%.60s", info ? info->value : "-");
    pthread_mutex_unlock(&h->lock);
}

static bool last_is(struct history *h, const char *value)
{
    bool is;

    pthread_mutex_lock(&h->lock);
    is = h->n > 0 && strcmp(h->values[h->n - 1], value) == 0;
    pthread_mutex_unlock(&h->lock);
    return is;
}

static void election_observed(void)
{
    static struct history h = { .lock = PTHREAD_MUTEX_INITIALIZER };
    hf_client *c = opened(), *other = opened();
    hf_lease *l = NULL;
    struct pend *p;
    hf_op *op = NULL;
    int n;

    CHECK_RC(hf_observe_start(c, nm("n"), on_led, &h, &op, E()), 0);
    AWAIT(last_is(&h, "-"));
    CHECK_RC(r_campaign(other, nm("n"), "a", 0, &l), 0);
    AWAIT(last_is(&h, "a"));
    n = h.n;
    p = queued(other, nm("n"), 1, HF_REQUEST(.note = "b")); /* no news */
    STAYS(h.n == n, 200);
    CHECK_RC(rig.face->note(l, "a2", E()), 0);
    AWAIT(last_is(&h, "a2"));
    given(l);
    l = pend_granted(p);
    AWAIT(last_is(&h, "b"));
    given(l);
    AWAIT(last_is(&h, "-"));
    CHECK_RC(hf_client_stop(c), 0);
    AWAIT(h.ended == HF_ECLOSED);
    hf_op_free(op);
    closed(c);
    closed(other);
}

static void election_crash(void)
{
    struct kid k = kid_new(); /* no threads yet */
    hf_client *c = opened();
    hf_leader_info now = HF_LEADER_NONE, before;
    hf_lease *l = NULL;
    hf_cancel *cancel = NULL;

    CHECK_RC(hf_observe(c, nm("n"), &now, 0, NULL, &now, E()), HF_EBUSY);
    CHECK_RC(hf_observe(c, nm("n"), NULL, 50, NULL, &now, E()), HF_ETIMEDOUT);
    CHECK_RC(hf_cancel_new(&cancel, E()), 0);
    hf_cancel_fire(cancel);
    CHECK_RC(hf_observe(c, nm("n"), &now, HF_FOREVER, cancel, &now, E()), HF_ECANCELED);
    hf_cancel_free(cancel);
    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS,
                         HF_REQUEST(.ttl_ms = ttl_of(SHORT_MS), .note = "doomed"), NULL),
             0);
    CHECK_RC(hf_observe(c, nm("n"), &now, LIMIT_MS, NULL, &now, E()), 0);
    CHECK_STR(now.value, "doomed");
    kid_kill(&k);
    CHECK_RC(r_campaign(c, nm("n"), "heir", LIMIT_MS, &l), 0);
    before = now;
    CHECK_RC(hf_observe(c, nm("n"), &now, LIMIT_MS, NULL, &now, E()), 0);
    CHECK_STR(now.value, "heir");
    CHECK(now.fence > before.fence && now.pid == getpid());
    given(l);
    CHECK_RC(hf_observe(c, nm("n"), &now, LIMIT_MS, NULL, &now, E()), 0);
    CHECK_NUM(now.fence, ==, 0);
    closed(c);
}

const struct test_case election_cases[] = {
    { "election-office", election_office, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "election-nobody", election_nobody, ON_ALL,
      HF_CAP_LINE | HF_CAP_SHARED | HF_CAP_PERMITS, 0 },
    { "election-observed", election_observed, ON_ASYNC, HF_CAP_LINE, 0 },
    { "election-crash", election_crash, ON_ALL, HF_CAP_LINE, 0 },
    { NULL, NULL, 0, 0, 0 },
};
