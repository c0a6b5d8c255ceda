/* deadlock.c: G10. A circle of owners that wait for each other is found and one of them,
 * the one who joined last, is told; whatever could still end by itself is left alone.
 */
#include "rig.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* Longer than it takes until every waiter has begun and repeated its walk. */
enum { WALKS_MS = 4000 };

#define OWNED(n) HF_REQUEST(.owner = (uint64_t)(n))

/* Owner i holds name i and wants name i+1; the last to ask closes the circle. */
static void circle(int n)
{
    static const char *const names[] = { "a", "b", "c" };
    hf_client *c = opened();
    hf_lease *held[3];
    struct pend *p[3];

    for (int i = 0; i < n; i++)
        held[i] = taken(c, nm(names[i]), OWNED(i + 1));
    for (int i = 0; i < n; i++)
        p[i] = queued(c, nm(names[(i + 1) % n]), 1, OWNED(i + 1));
    CHECK_RC(pend_end(p[n - 1], NULL), HF_EDEADLK);
    CHECK(last_error()->text[0]);
    STAYS(!pend_done(p[0]) && (n == 2 || !pend_done(p[1])), WALKS_MS / 2); /* only one */
    await_line(c, nm(names[0]), 1, 0);
    given(held[n - 1]);
    for (int i = n - 2; i >= 0; i--) { /* what the victim gave up unwinds the rest */
        given(pend_granted(p[i]));
        given(held[i]);
    }
    for (int i = 0; i < n; i++)
        CHECK(line_is(c, nm(names[i]), 0, 0));
    closed(c);
}

static void deadlock_of_two(void)
{
    circle(2);
}

static void deadlock_of_three(void)
{
    circle(3);
}

/* Over process borders; in the blocking face without naming owners: the thread is one. */
static void deadlock_of_processes(void)
{
    struct kid kids[2] = { kid_new(), kid_new() };
    const hf_request *req = rig.face->async ? OWNED(1) : NULL;
    hf_client *c = opened();

    CHECK_RC(kid_acquire(&kids[0], 0, nm("a"), LIMIT_MS, req, NULL), 0);
    CHECK_RC(kid_acquire(&kids[1], 0, nm("b"), LIMIT_MS, req, NULL), 0);
    kid_begin(&kids[0], 1, nm("b"), HF_FOREVER, req);
    await_line(c, nm("b"), 1, 1);
    kid_begin(&kids[1], 1, nm("a"), HF_FOREVER, req);
    CHECK_RC(kid_answer(&kids[1]).rc, HF_EDEADLK);
    STAYS(!kid_answered(&kids[0]), 500);
    CHECK_RC(kid_release(&kids[1], 0).rc, 0);
    CHECK_RC(kid_answer(&kids[0]).rc, 0);
    CHECK(line_is(c, nm("b"), 1, 0));
    for (int i = 0; i < 2; i++)
        kid_end(&kids[i]);
    closed(c);
}

struct crossing {
    hf_client *client;
    pthread_barrier_t both_hold;
    atomic_int number, victims;
};

static void *cross(void *arg)
{
    struct crossing *x = arg;
    int i = atomic_fetch_add(&x->number, 1);
    const char *first = i ? nm("b") : nm("a"), *second = i ? nm("a") : nm("b");
    hf_lease *l = taken(x->client, first, NULL), *m = NULL;
    int rc;

    pthread_barrier_wait(&x->both_hold);
    rc = hf_acquire(x->client, second, HF_FOREVER, NULL, &m, E());
    if (rc == HF_EDEADLK)
        atomic_fetch_add(&x->victims, 1);
    else
        CHECK_RC(rc, 0);
    if (m)
        given(m);
    given(l);
    return NULL;
}

/* Owners that nobody named: an ownerless blocking call belongs to its thread. */
static void deadlock_of_threads(void)
{
    struct crossing x = { .client = opened() };

    pthread_barrier_init(&x.both_hold, NULL, 2);
    in_threads(2, cross, &x);
    CHECK_NUM(x.victims, ==, 1);
    pthread_barrier_destroy(&x.both_hold);
    closed(x.client);
}

/* 1 holds a permit and wants the lock; 2 holds the lock and wants a permit: a circle.
 * But 3 holds the other permit and waits for nothing, so it can end. */
static void permit_circle_is_none(void)
{
    const char *permits = nm("permits"), *lock = nm("lock");
    hf_client *c = opened();
    hf_request one = {
        .size = sizeof(one), .mode = HF_PERMITS, .permits = 1, .capacity = 2
    };
    hf_lease *p1, *p3, *l2, *l;
    struct pend *w1, *w2;

    one.owner = 1;
    p1 = taken(c, permits, &one);
    one.owner = 3;
    p3 = taken(c, permits, &one);
    l2 = taken(c, lock, OWNED(2));
    w1 = queued(c, lock, 1, OWNED(1));
    one.owner = 2;
    w2 = queued(c, permits, 1, &one);
    STAYS(!pend_done(w1) && !pend_done(w2), WALKS_MS);
    given(p3);
    l = pend_granted(w2);
    given(l);
    given(l2);
    given(pend_granted(w1));
    given(p1);
    closed(c);
}

/* The same circle, when nobody is left who could end it. */
static void permit_circle_found(void)
{
    const char *permits = nm("permits"), *lock = nm("lock");
    hf_client *c = opened();
    hf_request one = {
        .size = sizeof(one), .mode = HF_PERMITS, .permits = 1, .capacity = 1
    };
    hf_lease *p1, *l2;
    struct pend *w1, *w2;

    one.owner = 1;
    p1 = taken(c, permits, &one);
    l2 = taken(c, lock, OWNED(2));
    w1 = queued(c, lock, 1, OWNED(1));
    one.owner = 2;
    w2 = queued(c, permits, 1, &one);
    CHECK_RC(pend_end(w2, NULL), HF_EDEADLK);
    CHECK(!pend_done(w1));
    given(l2);
    given(pend_granted(w1));
    given(p1);
    closed(c);
}

struct load {
    hf_client *client;
    atomic_int number;
    int64_t until;
};

/* Always in the order of names, so there is never a deadlock; held long enough that
 * waiters walk all the time. */
static void *climb(void *arg)
{
    static const char *const names[] = { "a", "b", "c", "d" };
    struct load *load = arg;
    uint64_t me = (uint64_t)atomic_fetch_add(&load->number, 1) + 1;
    unsigned seed = (unsigned)me;

    while (now_ms() < load->until) {
        hf_lease *l[4] = { NULL };

        for (int i = 0; i < 4; i++) {
            if (rand_r(&seed) % 2)
                continue;
            l[i] = taken(load->client, nm(names[i]), OWNED(me));
            nanosleep(&(struct timespec){ 0, 120000000 }, NULL);
        }
        for (int i = 0; i < 4; i++)
            if (l[i])
                given(l[i]);
    }
    return NULL;
}

static void no_false_alarm(void)
{
    struct load load = { .client = opened(), .until = now_ms() + 8000 };

    in_threads(8, climb, &load); /* taken() fails on HF_EDEADLK */
    closed(load.client);
}

const struct test_case deadlock_cases[] = {
    { "deadlock-of-two", deadlock_of_two, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "deadlock-of-three", deadlock_of_three, ON_ALL, HF_CAP_LINE, CASE_LONG },
    { "deadlock-of-processes", deadlock_of_processes, ON_ALL, HF_CAP_LINE, 0 },
    { "deadlock-of-threads", deadlock_of_threads, ON_BLOCKING, HF_CAP_LINE, 0 },
    { "permit-circle-is-none", permit_circle_is_none, ON_ALL, HF_CAP_LINE | HF_CAP_PERMITS,
      CASE_LONG },
    { "permit-circle-found", permit_circle_found, ON_ALL, HF_CAP_LINE | HF_CAP_PERMITS, 0 },
    { "no-false-alarm", no_false_alarm, ON_ALL, HF_CAP_LINE, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
