/* facts.c: what a lease and a wait say about themselves (names, mode, ticket, loss,
 * position), and what a name says about its line in one word.
 */
#include "rig.h"

#include <string.h>

enum { SHORT_MS = 3000 };

static void names_and_mode(void)
{
    const char *const names[] = { nm("c"), nm("a"), nm("b"), nm("a") };
    hf_client *c = opened();
    hf_lease *l = NULL;

    CHECK_RC(rig.face->acquire_all(c, names, 4, LIMIT_MS, NULL, &l, E()), 0);
    CHECK_NUM(hf_lease_count(l), ==, 3);
    CHECK_STR(hf_lease_name_at(l, 0), nm("a"));
    CHECK_STR(hf_lease_name_at(l, 1), nm("b"));
    CHECK_STR(hf_lease_name_at(l, 2), nm("c"));
    CHECK(!hf_lease_name_at(l, 3) && !hf_lease_ticket_at(l, 3));
    CHECK(hf_lease_name(l) == hf_lease_name_at(l, 0));
    CHECK(hf_lease_ticket(l) == hf_lease_ticket_at(l, 0));
    CHECK(strcmp(hf_lease_ticket_at(l, 0), hf_lease_ticket_at(l, 1)) != 0);
    CHECK_NUM(hf_lease_mode(l), ==, HF_WRITE);
    CHECK_NUM(hf_lease_permits(l), ==, 0);
    given(l);
    l = taken(c, nm("n"), NULL);
    CHECK_NUM(hf_lease_count(l), ==, 1);
    CHECK_STR(hf_lease_name_at(l, 0), nm("n"));
    given(l);
    CHECK_NUM(hf_lease_count(NULL), ==, 0);
    CHECK(!hf_lease_name_at(NULL, 0) && !hf_lease_ticket(NULL));
    CHECK_RC(hf_lease_mode(NULL), HF_EINVAL);
    CHECK_NUM(hf_lease_permits(NULL), ==, 0);
    closed(c);
}

static void mode_shared(void)
{
    const hf_request *read = HF_REQUEST(.mode = HF_READ, .owner = 7);
    const char *const names[] = { nm("a"), nm("n") };
    hf_client *c = opened();
    hf_lease *w = taken(c, nm("n"), HF_REQUEST(.mode = HF_MUTEX, .owner = 7)), *r,
             *both = NULL;

    CHECK_NUM(hf_lease_mode(w), ==, HF_WRITE);
    r = taken(c, nm("n"), read);
    CHECK_NUM(hf_lease_mode(r), ==, HF_WRITE); /* of the hold that it has entered again */
    given(r);
    CHECK_RC(rig.face->acquire_all(c, names, 2, LIMIT_MS, read, &both, E()), 0);
    CHECK_NUM(hf_lease_mode(both), ==, HF_READ); /* one of them */
    given(both);
    CHECK_RC(rig.face->downgrade(w, E()), 0);
    CHECK_NUM(hf_lease_mode(w), ==, HF_READ);
    given(w);
    closed(c);
}

static void mode_permits(void)
{
    hf_client *c = opened();
    hf_lease *l =
        taken(c, nm("n"), HF_REQUEST(.mode = HF_PERMITS, .permits = 3, .capacity = 5));

    CHECK_NUM(hf_lease_mode(l), ==, HF_PERMITS);
    CHECK_NUM(hf_lease_permits(l), ==, 3);
    given(l);
    closed(c);
}

/* The id is the one that others see. */
static void ticket_shown(void)
{
    hf_client *c = opened();
    hf_lease *l = taken(c, nm("n"), NULL);
    char id[64];
    struct seen s;

    CHECK(see(c, nm("n"), 0, &s));
    CHECK_STR(hf_lease_ticket(l), s.id);
    strcpy(id, hf_lease_ticket(l));
    CHECK_RC(rig.face->evict(c, nm("n"), id, HF_EVICT_NOW, E()), 0);
    AWAIT(hf_lease_check(l) == HF_ELOST);
    CHECK_STR(hf_lease_ticket(l), id);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(c);
}

/* ---- waiting for the loss -------------------------------------------------------- */

struct loss {
    hf_lease *lease;
    int64_t wait_ms;
    int rc;
};

static void *wait_for_loss(void *arg)
{
    struct loss *w = arg;

    w->rc = hf_lease_wait(w->lease, w->wait_ms, E());
    return NULL;
}

/* In the middle of it: two threads, and a break that comes from outside. */
static void wait_lost(void)
{
    hf_client *c = opened(), *other = opened();
    hf_lease *l = taken(c, nm("n"), NULL);
    struct loss w[2] = { { l, HF_FOREVER, 1 }, { l, LIMIT_MS, 1 } };
    pthread_t threads[2];
    int64_t start = now_ms();
    struct seen s;

    CHECK_RC(hf_lease_wait(l, 0, E()), 0);
    CHECK_RC(hf_lease_wait(l, 100, E()), 0);
    CHECK_NUM(now_ms() - start, >=, 99);
    CHECK_RC(hf_lease_wait(NULL, 0, E()), HF_EINVAL);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, wait_for_loss, &w[i]) == 0);
    CHECK(see(other, nm("n"), 0, &s));
    CHECK_RC(rig.face->evict(other, nm("n"), s.id, HF_EVICT_NOW, E()), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK_RC(w[i].rc, HF_ELOST);
    }
    CHECK_RC(hf_lease_wait(l, HF_FOREVER, E()), HF_ELOST);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(c);
    closed(other);
}

/* By its own clock, alone: the thread that waits drives, and renews. */
static void wait_drives(void)
{
    hf_client *c = NULL;
    hf_lease *l = NULL, *last = NULL;
    int64_t start = now_ms();

    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    CHECK_RC(hf_acquire(c, nm("n"), LIMIT_MS, HF_REQUEST(.ttl_ms = SHORT_MS), &l, E()), 0);
    CHECK_RC(hf_lease_wait(l, 2 * SHORT_MS, E()), 0);
    CHECK_RC(hf_lease_check(l), 0); /* two ttls later */
    start = now_ms();
    CHECK_RC(hf_acquire(c, nm("m"), LIMIT_MS,
                        HF_REQUEST(.ttl_ms = SHORT_MS, .flags = HF_NO_RENEW), &last, E()),
             0);
    CHECK_RC(hf_lease_wait(last, HF_FOREVER, E()), HF_ELOST);
    CHECK_NUM(now_ms() - start, >=, SHORT_MS * 90 / 100);
    CHECK_RC(hf_lease_check(last), HF_ELOST);
    CHECK_RC(hf_release(last, E()), HF_ELOST);
    CHECK_RC(hf_release(l, E()), 0);
    hf_close(c);
}

static void wait_closed(void)
{
    hf_client *c = NULL;
    hf_lease *l = NULL;
    struct loss w = { NULL, HF_FOREVER, 1 };
    pthread_t thread;

    CHECK_RC(hf_open(rig.place->url, NULL, &c, E()), 0);
    CHECK_RC(hf_acquire(c, nm("n"), LIMIT_MS, NULL, &l, E()), 0);
    CHECK_RC(hf_lease_wait(l, 1, E()), 0);
    w.lease = l;
    CHECK(pthread_create(&thread, NULL, wait_for_loss, &w) == 0);
    for (int i = 0; i < 20; i++)
        nap(); /* mostly it sleeps by then; if not, it finds the client closed */
    hf_close(c);
    pthread_join(thread, NULL);
    CHECK_RC(w.rc, HF_ECLOSED);
    CHECK_RC(hf_release(l, E()), HF_ECLOSED);
}

/* ---- the own position ------------------------------------------------------------ */

static uint32_t position(const struct pend *p)
{
    uint32_t at = 77;
    int64_t age = -77;

    CHECK_RC(hf_op_position(p->op, &at, &age), 0);
    CHECK(at == 0 ? age == -1 : age >= 0 && age < 2 * LIMIT_MS);
    return at;
}

/* As it was told at joining; the head of the queue learns of that at its next look at the
 * latest, but on ZooKeeper and etcd, where a ticket hears only of the one before it. */
static void own_position(void)
{
    bool looks =
        strncmp(rig.place->url, "zk", 2) != 0 && strncmp(rig.place->url, "etcd", 4) != 0;
    const hf_request *req = HF_REQUEST(.ttl_ms = ttl_of(SHORT_MS));
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), req);
    struct pend *first = queued(a, nm("n"), 1, req), *second = queued(b, nm("n"), 2, req),
                *third = queued(a, nm("n"), 3, req);

    AWAIT(position(first) == 1 && position(second) == 2 && position(third) == 3);
    CHECK_RC(hf_op_position(first->op, NULL, NULL), 0);
    CHECK_RC(hf_op_position(NULL, NULL, NULL), HF_EINVAL);
    given(l);
    AWAIT(pend_done(first));
    CHECK_NUM(position(first), ==, 0);
    l = pend_granted(first);
    AWAIT(position(second) == 1 || (!looks && position(second) == 2));
    CHECK(position(third) == 2 || position(third) == 3);
    given(l);
    given(pend_granted(second));
    given(pend_granted(third));
    closed(a);
    closed(b);
}

/* ---- one word about a name ------------------------------------------------------- */

static void state_of_lock(void)
{
    struct kid k = kid_new();
    hf_client *c = opened();
    hf_lease *l;

    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_FREE);
    l = taken(c, nm("n"), NULL);
    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_TAKEN);
    CHECK_RC(rig.face->state(c, nm("m"), E()), HF_FREE);
    given(l);
    AWAIT(rig.face->state(c, nm("n"), E()) == HF_FREE);
    CHECK_RC(
        kid_acquire(&k, 0, nm("n"), LIMIT_MS, HF_REQUEST(.ttl_ms = ttl_of(SHORT_MS)), NULL),
        0);
    AWAIT(rig.face->state(c, nm("n"), E()) == HF_TAKEN);
    kid_kill(&k); /* nobody comes by, and still it is free one day */
    AWAIT(rig.face->state(c, nm("n"), E()) == HF_FREE);
    CHECK_RC(rig.face->state(c, "", E()), HF_EINVAL);
    CHECK_RC(rig.face->state(c, NULL, E()), HF_EINVAL);
    CHECK_RC(hf_name_state(NULL, nm("n"), E()), HF_EINVAL);
    closed(c);
}

static void state_of_readers(void)
{
    const hf_request *read = HF_REQUEST(.mode = HF_READ);
    hf_client *c = opened();
    hf_lease *a = taken(c, nm("n"), read), *b;
    struct pend *w;

    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_SHARED);
    b = taken(c, nm("n"), read);
    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_SHARED);
    w = queued(c, nm("n"), 1, NULL);
    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_SHARED); /* whoever waits */
    given(a);
    given(b);
    a = pend_granted(w);
    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_TAKEN);
    CHECK_RC(rig.face->downgrade(a, E()), 0);
    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_SHARED);
    given(a);
    closed(c);
}

static void state_of_permits(void)
{
    const hf_request *two = HF_REQUEST(.mode = HF_PERMITS, .permits = 2, .capacity = 4);
    const hf_request *three = HF_REQUEST(.mode = HF_PERMITS, .permits = 3, .capacity = 4);
    hf_client *c = opened();
    hf_lease *a = taken(c, nm("n"), two), *b;
    struct pend *p = queued(c, nm("n"), 1, three);

    /* two are left, and not enough */
    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_SHARED);
    given(a);
    b = pend_granted(p);
    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_SHARED);
    given(b);
    a = taken(c, nm("n"), two);
    b = taken(c, nm("n"), two);
    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_TAKEN);
    given(a);
    given(b);
    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_FREE);
    closed(c);
}

const struct test_case facts_cases[] = {
    { "names-and-mode", names_and_mode, ON_ALL, 0, 0 },
    { "mode-shared", mode_shared, ON_ALL, HF_CAP_SHARED, 0 },
    { "mode-permits", mode_permits, ON_ALL, HF_CAP_PERMITS, 0 },
    { "ticket-shown", ticket_shown, ON_ALL, 0, 0 },
    { "wait-lost", wait_lost, ON_ALL, 0, 0 },
    { "wait-drives", wait_drives, ON_BLOCKING, HF_CAP_TTL, 0 },
    { "wait-closed", wait_closed, ON_BLOCKING, 0, 0 },
    { "own-position", own_position, ON_ASYNC, HF_CAP_LINE, 0 },
    { "state-of-lock", state_of_lock, ON_ALL, 0, CASE_TOPOLOGY },
    { "state-of-readers", state_of_readers, ON_ALL, HF_CAP_LINE | HF_CAP_SHARED, 0 },
    { "state-of-permits", state_of_permits, ON_ALL, HF_CAP_LINE | HF_CAP_PERMITS, 0 },
    { NULL, NULL, 0, 0, 0 },
};
