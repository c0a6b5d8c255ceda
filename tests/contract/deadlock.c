/* deadlock.c: G10. A circle of owners that wait for each other is found and one of them,
 * the one who joined last, is told; whatever could still end by itself is left alone.
 */
#include "rig.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
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

enum { HELD = 20 };

static hf_lease *nth_taken(hf_client *c, int owner, int n)
{
    char name[8];

    snprintf(name, sizeof name, "%d-%02d", owner, n);
    return taken(c, nm(name), OWNED(owner));
}

static bool some_done(struct pend *p[], int n, int *ret)
{
    for (*ret = 0; *ret < n; ++*ret)
        if (pend_done(p[*ret]))
            return true;
    return false;
}

/* A ticket carries at most 16 of the names that its owner holds. Here the circle runs
 * through the first of 20, for each owner in `rich`. Who gives in depends on what they
 * see, and when; on a busy machine two may. */
static void circle_of_many(int first, int n, unsigned rich)
{
    hf_client *c = opened();
    hf_lease *held[3][HELD] = { { NULL } }, *l;
    struct pend *p[3];
    int victim;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < (rich & 1u << i ? HELD : 1); k++)
            held[i][k] = nth_taken(c, first + i, k);
    for (int i = 0; i < n; i++) {
        char next[8];

        snprintf(next, sizeof next, "%d-00", first + (i + 1) % n);
        p[i] = queued(c, nm(next), 1, OWNED(first + i));
    }
    AWAIT(some_done(p, n, &victim));
    for (int i = 0; i < n; i++) { /* each frees whom the next in this order waits for */
        int who = (victim - i + n) % n, rc = pend_end(p[who], &l);

        CHECK_RC(rc, i > 0 && rc == 0 ? 0 : HF_EDEADLK);
        if (rc == 0)
            given(l);
        for (int k = 0; k < HELD && held[who][k]; k++)
            given(held[who][k]);
    }
    closed(c);
}

static void deadlock_many_held(void)
{
    circle_of_many(1, 2, 1u << 0 | 1u << 1);
    circle_of_many(3, 3, 1u << 1); /* 5, the last to wait, does not see what 4 holds */
}

/* The circle runs through queues in which others stand before and behind. */
static void deadlock_in_queues(void)
{
    hf_client *c = opened();
    hf_lease *a = taken(c, nm("a"), OWNED(1)), *b = taken(c, nm("b"), OWNED(2));
    struct pend *other[4], *first, *last;

    other[0] = queued(c, nm("a"), 1, OWNED(11));
    other[1] = queued(c, nm("b"), 1, OWNED(12));
    first = queued(c, nm("b"), 2, OWNED(1));
    other[2] = queued(c, nm("b"), 3, OWNED(13));
    last = queued(c, nm("a"), 2, OWNED(2));
    other[3] = queued(c, nm("a"), 3, OWNED(14));
    CHECK_RC(pend_end(last, NULL), HF_EDEADLK);
    for (int i = 0; i < 4; i++)
        CHECK(!pend_done(other[i])); /* who stands behind a deadlock is in none */
    given(b);
    given(pend_granted(other[1]));
    given(pend_granted(first));
    given(pend_granted(other[2]));
    given(a);
    given(pend_granted(other[0]));
    given(pend_granted(other[3]));
    closed(c);
}

/* Completed not by a join but by a grant: owner 1, who waits for b, comes to hold g, for
 * which the holder of b waits. Its own ticket does not say so. */
static void deadlock_by_grant(void)
{
    hf_client *c = opened();
    hf_lease *b = taken(c, nm("b"), OWNED(2)), *g = taken(c, nm("g"), OWNED(3)),
             *got = NULL;
    struct pend *p[2], *inner;
    int victim;

    p[0] = queued(c, nm("b"), 1, OWNED(1));
    inner = queued(c, nm("g"), 1, OWNED(1));
    p[1] = queued(c, nm("g"), 2, OWNED(2));
    STAYS(!pend_done(p[0]) && !pend_done(p[1]), WALKS_MS / 2);
    given(g);
    g = pend_granted(inner);
    AWAIT(some_done(p, 2, &victim));
    CHECK_RC(pend_end(p[victim], NULL), HF_EDEADLK);
    given(victim == 0 ? g : b);
    if (pend_end(p[1 - victim], &got) == 0) /* else both gave in: rare, and allowed */
        given(got);
    given(victim == 0 ? b : g);
    closed(c);
}

/* The same with one more between them, who joins last: owner 2 would be the victim, but
 * cannot see that the one that waits for it holds g. So owner 1 gives in when it has seen
 * the same deadlock twice. Whoever stands at i waits for what i - 1 holds. */
static void deadlock_not_seen_by_victim(void)
{
    hf_client *c = opened();
    hf_lease *b = taken(c, nm("b"), OWNED(2)), *d = taken(c, nm("d"), OWNED(3)),
             *g = taken(c, nm("g"), OWNED(4)), *held[3], *got = NULL;
    struct pend *p[3], *inner;
    int victim;

    p[0] = queued(c, nm("b"), 1, OWNED(1));
    inner = queued(c, nm("g"), 1, OWNED(1));
    p[1] = queued(c, nm("g"), 2, OWNED(3));
    p[2] = queued(c, nm("d"), 1, OWNED(2));
    given(g);
    held[0] = pend_granted(inner);
    held[1] = d;
    held[2] = b;
    AWAIT(some_done(p, 3, &victim));
    CHECK_RC(pend_end(p[victim], NULL), HF_EDEADLK);
    given(held[victim]);
    for (int i = victim + 1; i < victim + 3; i++) {
        if (pend_end(p[i % 3], &got) == 0) /* else two gave in: rare, and allowed */
            given(got);
        given(held[i % 3]);
    }
    closed(c);
}

/* Owner 3 waits on two threads, holds nothing, and keeps owner 1 waiting by its place in
 * the queue of b alone. Owner 4, who joins last, would be the victim, but cannot see that:
 * no ticket says that owner 3 stands in b, too. So one of those who see it gives in. */
static void deadlock_by_a_place(void)
{
    hf_client *c = opened();
    hf_lease *held[] = { taken(c, nm("a"), OWNED(1)), taken(c, nm("e"), OWNED(1)),
                         taken(c, nm("b"), OWNED(2)), taken(c, nm("d"), OWNED(4)) };
    struct pend *p[5];
    hf_lease *got;
    int victim, told = 0;

    p[0] = queued(c, nm("b"), 1, OWNED(3));
    p[1] = queued(c, nm("b"), 2, OWNED(1));
    p[2] = queued(c, nm("d"), 1, OWNED(3));
    p[3] = queued(c, nm("a"), 1, OWNED(2));
    p[4] = queued(c, nm("e"), 1, OWNED(4));
    AWAIT(some_done(p, 5, &victim));
    for (int i = 0; i < 4; i++)
        given(held[i]);
    for (int i = 0; i < 5; i++) {
        int rc = pend_end(p[i], &got);

        CHECK_RC(rc, rc == 0 ? 0 : HF_EDEADLK);
        if (rc == 0)
            given(got);
        told += rc < 0;
    }
    CHECK_NUM(told, >, 0);
    closed(c);
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

enum { CLIMBERS = 8 };

struct load {
    hf_client *client;
    atomic_int number;
    atomic_int walks; /* waits that were long enough for one */
    int64_t until;
};

/* Always in the order of names, so there is never a deadlock. Each has a name of its own
 * and then wants its neighbour's: chains of owners that hold and wait, long enough to walk.
 */
static void *climb(void *arg)
{
    static const char *const names[] = { "1", "2", "3", "4", "5", "6",
                                         "7", "8", "a", "b", "c", "d" };
    enum { NAMES = sizeof names / sizeof names[0] };
    struct load *load = arg;
    int me = atomic_fetch_add(&load->number, 1);
    unsigned seed = (unsigned)me + 1;

    while (now_ms() < load->until) {
        hf_lease *l[NAMES] = { NULL };

        for (int i = me; i < NAMES; i++) {
            int64_t began = now_ms();

            if (i > me + 1 && (i < CLIMBERS || rand_r(&seed) % 2))
                continue;
            l[i] = taken(load->client, nm(names[i]), OWNED(me + 1));
            if (i > me && now_ms() - began > 1100)
                atomic_fetch_add(&load->walks, 1);
            nanosleep(&(struct timespec){ 0, 120000000 }, NULL);
        }
        for (int i = me; i < NAMES; i++)
            if (l[i])
                given(l[i]);
    }
    return NULL;
}

static void no_false_alarm(void)
{
    struct load load = { .client = opened(), .until = now_ms() + 8000 };

    in_threads(CLIMBERS, climb, &load); /* taken() fails on HF_EDEADLK */
    CHECK_NUM(load.walks, >, 0);
    closed(load.client);
}

const struct test_case deadlock_cases[] = {
    { "deadlock-of-two", deadlock_of_two, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "deadlock-of-three", deadlock_of_three, ON_ALL, HF_CAP_LINE, CASE_LONG },
    { "deadlock-many-held", deadlock_many_held, ON_ALL, HF_CAP_LINE, 0 },
    { "deadlock-in-queues", deadlock_in_queues, ON_ALL, HF_CAP_LINE, 0 },
    { "deadlock-by-grant", deadlock_by_grant, ON_ALL, HF_CAP_LINE, 0 },
    { "deadlock-not-seen-by-victim", deadlock_not_seen_by_victim, ON_ALL, HF_CAP_LINE, 0 },
    { "deadlock-by-a-place", deadlock_by_a_place, ON_ALL, HF_CAP_LINE, CASE_LONG },
    { "deadlock-of-processes", deadlock_of_processes, ON_ALL, HF_CAP_LINE, 0 },
    { "deadlock-of-threads", deadlock_of_threads, ON_BLOCKING, HF_CAP_LINE, 0 },
    { "permit-circle-is-none", permit_circle_is_none, ON_ALL, HF_CAP_LINE | HF_CAP_PERMITS,
      CASE_LONG },
    { "permit-circle-found", permit_circle_found, ON_ALL, HF_CAP_LINE | HF_CAP_PERMITS, 0 },
    { "no-false-alarm", no_false_alarm, ON_ALL, HF_CAP_LINE, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
