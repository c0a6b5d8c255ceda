/* cancel.c: waits that are ended from outside, and grants that meet them on the way
 * (G7). A call that failed leaves nothing in the line, whichever came first.
 */
#include "rig.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/time.h>

static void cancel_fired(void)
{
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), NULL), *none = NULL;
    hf_cancel *stop = NULL;
    struct pend *p[3];

    CHECK_RC(hf_cancel_new(&stop, E()), 0);
    for (size_t i = 0; i < 3; i++)
        p[i] = queued(b, nm("n"), i + 1, HF_REQUEST(.cancel = stop));
    STAYS(!pend_done(p[0]), 50);
    hf_cancel_fire(stop);
    for (int i = 0; i < 3; i++)
        CHECK_RC(pend_end(p[i], NULL), HF_ECANCELED);
    await_line(a, nm("n"), 1, 0); /* the tickets leave behind the calls that gave up */
    CHECK_RC(
        rig.face->acquire(b, nm("n"), HF_FOREVER, HF_REQUEST(.cancel = stop), &none, E()),
        HF_ECANCELED); /* stays fired */
    CHECK(!none && line_is(a, nm("n"), 1, 0));
    hf_cancel_reset(stop);
    p[0] = queued(b, nm("n"), 1, HF_REQUEST(.cancel = stop));
    given(l);
    l = pend_granted(p[0]);
    hf_cancel_fire(stop); /* a grant that was told is not taken back */
    CHECK_RC(hf_lease_check(l), 0);
    CHECK(line_is(a, nm("n"), 1, 0));
    given(l);
    hf_cancel_free(stop);
    closed(a);
    closed(b);
}

static hf_cancel *in_handler;

static void on_signal(int sig)
{
    (void)sig;
    hf_cancel_fire(in_handler);
}

static void cancel_from_signal_handler(void)
{
    struct sigaction act = { .sa_handler = on_signal };
    hf_client *c = opened();
    hf_lease *l = taken(c, nm("n"), NULL);
    struct pend *p;

    CHECK_RC(hf_cancel_new(&in_handler, E()), 0);
    CHECK(sigaction(SIGUSR1, &act, NULL) == 0);
    p = queued(c, nm("n"), 1, HF_REQUEST(.cancel = in_handler));
    CHECK(raise(SIGUSR1) == 0);
    CHECK_RC(pend_end(p, NULL), HF_ECANCELED);
    await_line(c, nm("n"), 1, 0);
    given(l);
    hf_cancel_free(in_handler);
    closed(c);
}

static void cancel_op(void)
{
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), NULL);
    struct pend *p = queued(b, nm("n"), 1, NULL), *q = queued(b, nm("n"), 2, NULL);

    hf_op_cancel(p->op);
    CHECK_RC(pend_end(p, NULL), HF_ECANCELED);
    AWAIT(line_is(a, nm("n"), 1, 1));
    given(l);
    AWAIT(pend_done(q));
    hf_op_cancel(q->op); /* too late: nothing happens, and no second callback */
    given(pend_granted(q));
    CHECK(line_is(a, nm("n"), 0, 0));
    closed(a);
    closed(b);
}

static void *release_now(void *arg)
{
    given(arg);
    return NULL;
}

/* Release and cancel at the same moment. Which one wins is chance; that the line is
 * empty in the end is not. */
static void cancel_meets_grant(void)
{
    hf_client *a = opened(), *b = opened();
    hf_cancel *stop = NULL;
    int granted = 0;

    CHECK_RC(hf_cancel_new(&stop, E()), 0);
    for (int i = 0; i < 200; i++) {
        hf_lease *l = taken(a, nm("n"), NULL), *got = NULL;
        struct pend *p = queued(b, nm("n"), 1, HF_REQUEST(.cancel = stop));
        pthread_t t;
        int rc;

        CHECK(pthread_create(&t, NULL, release_now, l) == 0);
        hf_cancel_fire(stop);
        rc = pend_end(p, &got);
        pthread_join(t, NULL);
        CHECK(rc == 0 || rc == HF_ECANCELED);
        if (rc == 0) {
            granted++;
            given(got);
        }
        /* the ticket leaves behind the call that gave up */
        AWAIT(line_is(a, nm("n"), 0, 0));
        hf_cancel_reset(stop);
    }
    printf("granted %d of 200\n", granted);
    hf_cancel_free(stop);
    closed(a);
    closed(b);
}

struct told {
    int calls, rc;
    hf_lease *lease;
};

static void on_told(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    struct told *t = user;

    (void)op;
    CHECK((rc < 0) == (err && err->code == rc));
    t->calls++;
    t->rc = rc;
    t->lease = l;
}

static void settle(hf_client *c)
{
    int rc = hf_client_process(c);

    CHECK(rc >= 0);
}

static bool empty_after_settling(hf_client *c, hf_client *other, const char *name)
{
    settle(c);
    return line_is(other, name, 0, 0);
}

/* Nobody drives the client: the store grants, and the wait is given up before that is
 * known. `free_it`: by hf_op_free, after which the callback must never run. */
static void grant_after_giving_up(bool free_it)
{
    hf_client *a = opened(), *c = NULL;
    hf_lease *l = taken(a, nm("n"), NULL);
    struct told told = { 0 };
    hf_op *op = NULL;

    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    CHECK_RC(hf_acquire_start(c, nm("n"), HF_FOREVER, NULL, on_told, &told, &op, E()), 0);
    AWAIT((settle(c), line_is(a, nm("n"), 1, 1)));
    given(l);
    AWAIT(line_is(a, nm("n"), 1, 0)); /* granted, and its owner does not know */
    CHECK_NUM(told.calls, ==, 0);
    if (free_it)
        hf_op_free(op);
    else
        hf_op_cancel(op);
    AWAIT(free_it ? empty_after_settling(c, a, nm("n")) : (settle(c), told.calls == 1));
    if (!free_it) {
        hf_op_free(op);
        CHECK_RC(told.rc, HF_ECANCELED);
        CHECK(!told.lease);
    }
    AWAIT(empty_after_settling(c, a, nm("n")));
    CHECK_NUM(told.calls, ==, free_it ? 0 : 1);
    CHECK_RC(tried(a, nm("n"), NULL), 0);
    hf_close(c);
    closed(a);
}

static void grant_after_cancel(void)
{
    grant_after_giving_up(false);
}

static void grant_after_op_free(void)
{
    grant_after_giving_up(true);
}

static void give_back(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    (void)op;
    (void)rc;
    (void)err;
    atomic_fetch_add((atomic_int *)user, 1);
    if (l)
        hf_release_start(l, NULL, NULL, NULL, NULL);
}

static void op_freed_early(void)
{
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), NULL);
    atomic_int calls = 0;
    hf_op *op = NULL;

    CHECK_RC(hf_acquire_start(b, nm("n"), HF_FOREVER, NULL, give_back, &calls, &op, E()),
             0);
    await_line(a, nm("n"), 1, 1);
    hf_op_free(op);
    AWAIT(line_is(a, nm("n"), 1, 0));
    given(l);
    CHECK_RC(tried(a, nm("n"), NULL), 0);
    CHECK_NUM(calls, ==, 0);
    for (int i = 0; i < 200; i++) { /* at any moment, also while the callback runs */
        CHECK_RC(
            hf_acquire_start(b, nm("m"), HF_FOREVER, NULL, give_back, &calls, &op, E()), 0);
        if (i % 2)
            sched_yield();
        hf_op_free(op);
    }
    AWAIT(line_is(a, nm("m"), 0, 0));
    CHECK_NUM(calls, <=, 200);
    closed(b);
    closed(a);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int sig)
{
    (void)sig;
    alarms = alarms + 1;
}

/* Signals are the application's business: a wait goes on. */
static void signals_do_not_interrupt(void)
{
    struct sigaction act = { .sa_handler = on_alarm };
    struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), NULL), *none = NULL;
    int64_t start = now_ms();

    CHECK(sigaction(SIGALRM, &act, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 1; i == 1 || alarms <= 10; i++) {
        CHECK_RC(rig.face->acquire(b, nm("n"), 500, NULL, &none, E()), HF_ETIMEDOUT);
        CHECK_NUM(now_ms() - start, >=, i * 500 - 1);
        CHECK_WITHIN(start, LIMIT_MS);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    given(l);
    closed(a);
    closed(b);
}

const struct test_case cancel_cases[] = {
    { "cancel-fired", cancel_fired, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "cancel-from-signal-handler", cancel_from_signal_handler, ON_ALL, HF_CAP_LINE, 0 },
    { "cancel-op", cancel_op, ON_ASYNC, HF_CAP_LINE, 0 },
    { "cancel-meets-grant", cancel_meets_grant, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "grant-after-cancel", grant_after_cancel, ON_ALL, HF_CAP_LINE, 0 },
    { "grant-after-op-free", grant_after_op_free, ON_ALL, HF_CAP_LINE, 0 },
    { "op-freed-early", op_freed_early, ON_ASYNC, HF_CAP_LINE, 0 },
    { "signals-do-not-interrupt", signals_do_not_interrupt, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
