/* async.c: the rules of callbacks (rule 5, async.h). One thread and no other drives
 * here, as in a program with an event loop: what the faces do with a driving thread must
 * also work without one.
 */
#include "rig.h"

#include <poll.h>
#include <stdatomic.h>

static hf_client *undriven(void)
{
    hf_client *c = NULL;

    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    return c;
}

/* One turn in the manner of the face. */
static void turn(hf_client *c)
{
    struct pollfd p = { .fd = hf_client_fd(c), .events = POLLIN };
    int rc = 0;

    if (rig.face == &face_callback)
        rc = hf_client_wait(c, 20);
    else if (poll(&p, 1, 20) == 1)
        rc = hf_client_process(c);
    CHECK(rc >= 0);
}

#define TURN_UNTIL(c, cond) AWAIT((turn(c), (cond)))

struct told {
    int calls, rc;
    hf_lease *lease;
    bool inside_start;
    pthread_t thread;
};

static void on_told(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    struct told *t = user;

    (void)op;
    (void)err;
    CHECK(!t->inside_start); /* never inside the call that starts it */
    t->calls++;
    t->rc = rc;
    t->lease = l;
    t->thread = pthread_self();
}

static void start(hf_client *c, const char *name, int64_t wait_ms, struct told *t,
                  hf_op **op)
{
    t->inside_start = true;
    CHECK_RC(hf_acquire_start(c, name, wait_ms, NULL, on_told, t, op, E()), 0);
    t->inside_start = false;
}

static void single_threaded_loop(void)
{
    hf_client *c = undriven();
    struct told a = { 0 }, b = { 0 }, busy = { 0 }, late = { 0 }, rel = { 0 };
    hf_op *ops[5] = { NULL };

    start(c, nm("n"), HF_FOREVER, &a, &ops[0]);
    CHECK_NUM(a.calls, ==, 0);
    TURN_UNTIL(c, a.calls == 1);
    CHECK_RC(a.rc, 0);
    CHECK(pthread_equal(a.thread, pthread_self()));
    start(c, nm("n"), 0, &busy, &ops[1]);
    start(c, nm("n"), 100, &late, &ops[2]);
    start(c, nm("n"), HF_FOREVER, &b, &ops[3]);
    TURN_UNTIL(c, busy.calls && late.calls);
    CHECK_RC(busy.rc, HF_EBUSY);
    CHECK_RC(late.rc, HF_ETIMEDOUT);
    CHECK(!busy.lease && !late.lease && !b.calls);
    rel.inside_start = true;
    CHECK_RC(hf_release_start(a.lease, on_told, &rel, &ops[4], E()), 0);
    rel.inside_start = false;
    TURN_UNTIL(c, rel.calls == 1 && b.calls == 1);
    CHECK_RC(rel.rc, 0);
    CHECK_RC(b.rc, 0);
    CHECK_RC(hf_release_start(b.lease, NULL, NULL, NULL, E()), 0);
    TURN_UNTIL(c, line_is(c, nm("n"), 0, 0));
    CHECK(a.calls == 1 && b.calls == 1 && busy.calls == 1 && late.calls == 1);
    for (int i = 0; i < 5; i++)
        hf_op_free(ops[i]);
    hf_close(c);
}

/* The descriptor is readable when there is something to do, and quiet when there is not. */
static void descriptor_tells(void)
{
    hf_client *a = undriven(), *b = undriven();
    struct pollfd p = { .fd = hf_client_fd(b), .events = POLLIN };
    struct told ta = { 0 }, tb = { 0 };
    hf_op *oa = NULL, *ob = NULL;

    start(a, nm("n"), 0, &ta, &oa);
    TURN_UNTIL(a, ta.calls == 1);
    CHECK_RC(ta.rc, 0);
    start(b, nm("n"), HF_FOREVER, &tb, &ob);
    TURN_UNTIL(b, line_is(a, nm("n"), 1, 1));
    AWAIT(hf_client_process(b) == 0 && poll(&p, 1, 0) == 0); /* all done, and quiet */
    CHECK_RC(hf_release_start(ta.lease, NULL, NULL, NULL, E()), 0);
    AWAIT((hf_client_process(a), poll(&p, 1, 0) == 1));
    CHECK_NUM(tb.calls, ==, 0);
    AWAIT((hf_client_process(b), tb.calls == 1));
    CHECK_RC(tb.rc, 0);
    CHECK(hf_client_fd(b) == p.fd);
    CHECK_RC(hf_release_start(tb.lease, NULL, NULL, NULL, E()), 0);
    hf_op_free(oa);
    hf_op_free(ob);
    hf_close(a);
    hf_close(b);
}

/* Callbacks of one process() may start, cancel, release and free. */
struct chain {
    hf_client *client;
    int left;
    bool done;
};

static void on_chain(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    struct chain *ch = user;
    hf_op *next = NULL, *spare = NULL;

    (void)err;
    CHECK_RC(rc, 0);
    CHECK_RC(hf_release_start(l, NULL, NULL, NULL, E()), 0);
    hf_op_free(op);
    if (ch->left-- == 0) {
        ch->done = true;
        return;
    }
    CHECK_RC(
        hf_acquire_start(ch->client, nm("n"), HF_FOREVER, NULL, on_chain, ch, &next, E()),
        0);
    CHECK_RC(hf_acquire_start(ch->client, nm("m"), HF_FOREVER, NULL, on_told,
                              &(struct told){ 0 }, &spare, E()),
             0);
    hf_op_cancel(spare);
    hf_op_free(spare); /* so its callback never runs */
}

static void chained_in_callbacks(void)
{
    struct chain ch = { .client = undriven(), .left = 100 };
    hf_op *op = NULL;

    CHECK_RC(
        hf_acquire_start(ch.client, nm("n"), HF_FOREVER, NULL, on_chain, &ch, &op, E()), 0);
    TURN_UNTIL(ch.client, ch.done);
    TURN_UNTIL(ch.client,
               line_is(ch.client, nm("n"), 0, 0) && line_is(ch.client, nm("m"), 0, 0));
    hf_close(ch.client);
}

static void try_to_block(hf_client *c)
{
    hf_lease *none = NULL;
    hf_list *list = NULL;
    const char *name = nm("m");

    CHECK_RC(hf_acquire(c, name, 0, NULL, &none, E()), HF_EREENTRANT);
    CHECK_RC(hf_acquire(c, name, HF_FOREVER, NULL, &none, E()), HF_EREENTRANT);
    CHECK_RC(hf_acquire_all(c, &name, 1, 0, NULL, &none, E()), HF_EREENTRANT);
    CHECK_RC(hf_look(c, name, &list, E()), HF_EREENTRANT);
    CHECK_RC(hf_ls(c, NULL, 0, &list, E()), HF_EREENTRANT);
    CHECK_RC(hf_client_process(c), HF_EREENTRANT);
    CHECK_RC(hf_client_wait(c, 0), HF_EREENTRANT);
    CHECK(!none && !list);
}

static void on_blocking(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    struct told *t = user;
    int own;

    (void)op;
    (void)err;
    CHECK_RC(rc, 0);
    try_to_block((hf_client *)(void *)t->lease);
    own = hf_release_start(l, NULL, NULL, NULL, E());
    CHECK_RC(own, 0);
    t->calls++;
}

static void no_blocking_in_callback(void)
{
    hf_client *c = undriven();
    struct told t = { .lease = (hf_lease *)(void *)c };
    hf_op *op = NULL;

    CHECK_RC(hf_acquire_start(c, nm("n"), 0, NULL, on_blocking, &t, &op, E()), 0);
    TURN_UNTIL(c, t.calls == 1);
    hf_op_free(op);
    CHECK(line_is(c, nm("m"), 0, 0));
    hf_close(c);
}

static struct {
    hf_client *client;
    atomic_int calls;
} keeper;

static void on_change_blocking(hf_lease *l, int state, void *user)
{
    (void)l;
    (void)state;
    (void)user;
    try_to_block(keeper.client);
    atomic_fetch_add(&keeper.calls, 1);
}

/* The same on the resident thread of HF_DRIVE_PROMPT. */
static void no_blocking_on_keeper(void)
{
    hf_client *other = opened();
    hf_lease *l;
    struct seen s;

    keeper.client = prompted();
    l = taken(keeper.client, nm("n"), NULL);
    CHECK_RC(hf_lease_on_change(l, on_change_blocking, NULL, E()), 0);
    CHECK(see(other, nm("n"), 0, &s));
    CHECK_RC(hf_evict(other, nm("n"), s.id, HF_EVICT_NOW, E()), 0);
    AWAIT(keeper.calls > 0);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(keeper.client);
    closed(other);
}

/* Ends that come with hf_close: each callback once, with HF_ECLOSED, before it returns. */
static void closed_under_operations(void)
{
    enum { N = 20 };
    hf_client *a = opened(), *c = undriven();
    hf_lease *l = taken(a, nm("n"), NULL);
    struct told t[N] = { { 0 } };
    hf_op *ops[N];

    for (int i = 0; i < N; i++)
        start(c, nm("n"), HF_FOREVER, &t[i], &ops[i]);
    TURN_UNTIL(c, line_is(a, nm("n"), 1, N));
    hf_close(c);
    for (int i = 0; i < N; i++) {
        CHECK_NUM(t[i].calls, ==, 1);
        CHECK_RC(t[i].rc, HF_ECLOSED);
        CHECK(!t[i].lease);
        hf_op_free(ops[i]);
    }
    CHECK(line_is(a, nm("n"), 1, 0));
    given(l);
    closed(a);
}

enum { LINGER_TTL_MS = 2000 * TEST_SLOW };

/* The default drive: whoever waits for callbacks drives, and runs one that takes long. The
 * lease that it brought must be renewed all the same. */
static void lingers(hf_op *op, int rc, hf_lease *l, const hf_error *e, void *user)
{
    int64_t end = now_ms() + 3 * LINGER_TTL_MS;
    int *done = user;

    (void)op;
    (void)e;
    CHECK_RC(rc, 0);
    while (now_ms() < end) {
        CHECK_RC(hf_lease_check(l), 0);
        nap();
    }
    CHECK_RC(hf_release_start(l, NULL, NULL, NULL, E()), 0);
    *done = 1;
}

static void renewed_during_callback(void)
{
    hf_client *c = NULL;
    hf_op *op = NULL;
    int done = 0;

    CHECK_RC(hf_open(rig.place->url, NULL, &c, E()), 0);
    CHECK_RC(hf_acquire_start(c, nm("n"), LIMIT_MS, HF_REQUEST(.ttl_ms = LINGER_TTL_MS),
                              lingers, &done, &op, E()),
             0);
    while (!done)
        CHECK_NUM(hf_client_wait(c, LIMIT_MS), >=, 0);
    hf_op_free(op);
    hf_close(c);
}

const struct test_case async_cases[] = {
    { "renewed-during-callback", renewed_during_callback, ON_BLOCKING, HF_CAP_TTL, 0 },
    { "single-threaded-loop", single_threaded_loop, ON_ASYNC, HF_CAP_LINE, CASE_TOPOLOGY },
    { "descriptor-tells", descriptor_tells, ON_ASYNC, HF_CAP_LINE, 0 },
    { "chained-in-callbacks", chained_in_callbacks, ON_ASYNC, HF_CAP_LINE, 0 },
    { "no-blocking-in-callback", no_blocking_in_callback, ON_ASYNC, 0, 0 },
    { "no-blocking-on-keeper", no_blocking_on_keeper, ON_BLOCKING, 0, 0 },
    { "closed-under-operations", closed_under_operations, ON_ASYNC, HF_CAP_LINE, 0 },
    { NULL, NULL, 0, 0, 0 },
};
