/* redis_server.c: faults of the server itself: killed, without memory of its past, stopped,
 * its clock moved, its scripts and its data taken away. G1, G2, G6, and that who waits is
 * served.
 */
#include "redis_fault.h"

#include <stdatomic.h>

/* Everything answered was on disk: nobody loses anything, also not over the next renewals.
 */
static void killed_and_back(void)
{
    struct two t;

    use_plain_server();
    t = hold_and_wait(5 * SHORT_MS);
    for (int i = 0; i < 2; i++) {
        redis_restart(&server);
        two_renewed(&t);
    }
    two_go_on(&t);
    done();
}

/* It has forgotten everything, so it may admit the waiter at once: the holder is told, and
 * the fence, which starts from the clock then, still grows (G2). */
static void killed_and_empty(void)
{
    struct two t;

    use_plain_server();
    t = hold_and_wait(SHORT_MS);
    redis_restart_empty(&server);
    two_lost(&t);
    done();
}

/* Fences over a restart without memory, one after another. */
static void fence_without_memory(void)
{
    uint64_t last = 0;
    hf_client *c;

    use_plain_server();
    c = opened();
    for (int i = 0; i < 5; i++) {
        hf_lease *l = taken(c, nm("n"), NULL);

        CHECK_NUM(hf_lease_fence(l), >, last);
        last = hf_lease_fence(l);
        given(l);
        redis_restart_empty(&server);
    }
    closed(c);
    done();
}

static void step_clock(int64_t ms)
{
    server_clock_step(&server, ms);
}

static void use_stepped_server(void)
{
    redis_init(&server);
    server_clock_able(&server);
    use_server();
}

/* The store's times lie in its future now: nobody loses anything, the fence grows by the
 * mark alone, by one, which only exact numbers can (2^50 and more). */
static void clock_back(int64_t ms)
{
    struct two t;
    hf_lease *l;
    uint64_t last = 0;

    use_stepped_server();
    t = hold_and_wait(SHORT_MS);
    step_clock(-ms);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), 2 * SHORT_MS);
    two_go_on(&t);
    t.a = opened();
    for (int i = 0; i < 20; i++) {
        l = taken(t.a, nm("n"), NULL);
        if (last && ms >= 60000)
            CHECK_NUM(hf_lease_fence(l), ==, last + 1);
        CHECK_NUM(hf_lease_fence(l), >, last);
        CHECK_NUM(hf_lease_fence(l), >, t.fence);
        last = hf_lease_fence(l);
        given(l);
    }
    closed(t.a);
    done();
}

static void clock_back_3s(void)
{
    clock_back(3000);
}

static void clock_back_60s(void)
{
    clock_back(60000);
}

/* A holder that dies when the clock has gone back blocks for so much longer, and no more.
 */
static void clock_back_and_dead(void)
{
    struct kid k;
    hf_client *c;
    struct pend *p;

    use_stepped_server();
    k = kid_new();
    c = opened();
    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS, HF_REQUEST(.ttl_ms = SHORT_MS), NULL),
             0);
    p = queued(c, nm("n"), 1, NULL);
    step_clock(-3000);
    kid_kill(&k);
    given(pend_granted(p));
    closed(c);
    done();
}

/* Less than the ttl is left of nothing: nobody loses anything. */
static void clock_forward_within(void)
{
    struct two t;

    use_stepped_server();
    t = hold_and_wait(20000);
    step_clock(3000);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), 1000);
    two_go_on(&t);
    done();
}

/* For the store the hold and the waiter's life are over. The one case in which two may
 * believe that they hold, until the first asks: the fence is what protects then. It asks
 * within its renewal period, a third of the ttl; by its own clock it would know after two
 * thirds at the earliest, each time. On a busy machine one time in ten is enough. */
static void clock_forward(int64_t ms, int64_t ttl_ms)
{
    struct two t;
    int64_t stepped, took = ttl_ms;

    use_stepped_server();
    for (int i = 0; took >= ttl_ms * 2 / 3; i++) {
        CHECK_NUM(i, <, 10);
        t = hold_and_wait(ttl_ms);
        step_clock(ms);
        stepped = now_ms();
        AWAIT(hf_lease_state(t.held) == HF_LOST);
        took = now_ms() - stepped;
        two_lost(&t);
    }
    done();
}

static void clock_forward_3s(void)
{
    clock_forward(3000, 2500);
}

static void clock_forward_60s(void)
{
    clock_forward(60000, 15000);
}

/* Stopped for two ttls: the holder knows by its own clock that it has lost, before anybody
 * else can have the place, and the waiter is served when the server is back. */
static void frozen_for_two_ttls(void)
{
    struct two t;
    int64_t frozen, held_until = 0, asked;

    use_plain_server();
    t = hold_and_wait(SHORT_MS);
    server_freeze(&server);
    frozen = now_ms();
    for (asked = now_ms(); hf_lease_check(t.held) == 0; asked = now_ms()) {
        held_until = asked;
        CHECK(!pend_done(t.waits));
        nap();
    }
    CHECK_NUM(held_until - frozen, <=, SHORT_MS);
    STAYS(!pend_done(t.waits), 2 * SHORT_MS - (now_ms() - frozen));
    server_continue(&server);
    two_lost(&t);
    done();
}

/* Stopped for less than what was left: nobody loses anything. */
static void frozen_for_a_moment(void)
{
    struct two t;

    use_plain_server();
    t = hold_and_wait(4 * SHORT_MS);
    server_freeze(&server);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), SHORT_MS);
    server_continue(&server);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), 4 * SHORT_MS);
    two_go_on(&t);
    done();
}

/* Scripts are known by name, and the server forgets the names: they are told again,
 * whatever the request is. */
static void scripts_flushed(void)
{
    struct two t;
    hf_client *c;

    use_plain_server();
    t = hold_and_wait(SHORT_MS);
    redis_do(&server, "SCRIPT FLUSH");
    STAYS(hf_lease_check(t.held) == 0, 2 * SHORT_MS); /* renewals */
    redis_do(&server, "SCRIPT FLUSH");
    CHECK(line_is(t.b, nm("n"), 1, 1));
    redis_do(&server, "SCRIPT FLUSH");
    two_go_on(&t); /* leave */
    c = opened();
    for (int i = 0; i < 20; i++) {
        redis_do(&server, "SCRIPT FLUSH");
        given(taken(c, nm("n"), NULL));
    }
    closed(c);
    done();
}

static void note_time(hf_lease *l, int state, void *user)
{
    (void)l;
    if (state == HF_LOST)
        atomic_store((_Atomic int64_t *)user, now_ms());
}

/* The server is gone for good, and nobody calls: who listens is told before the lock can be
 * another's. */
static void killed_and_told(void)
{
    _Atomic int64_t told = 0;
    int64_t taken_at;
    hf_client *c;
    hf_lease *l;

    use_plain_server();
    c = opened();
    taken_at = now_ms();
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = SHORT_MS));
    CHECK_RC(hf_lease_on_change(l, note_time, &told, E()), 0);
    server_kill(&server);
    AWAIT(atomic_load(&told) != 0);
    CHECK_RC(hf_lease_check(l), HF_ELOST);
    /* by the clock, not because of the connection */
    CHECK_NUM(told - taken_at, >=, SHORT_MS / 2);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(c);
    done();
}

/* Everything is gone: the holder is told within its renewal period, and by the callback
 * too. */
static void flushed_while_held(void)
{
    enum { TTL_MS = 12000 };
    _Atomic int64_t told = 0;
    struct two t;
    int64_t flushed;

    use_plain_server();
    t = hold_and_wait(TTL_MS);
    CHECK_RC(hf_lease_on_change(t.held, note_time, &told, E()), 0);
    flushed = now_ms();
    redis_do(&server, "FLUSHALL");
    AWAIT(atomic_load(&told) != 0);
    CHECK_NUM(told - flushed, <, TTL_MS * 2 / 3); /* when it would know by its own clock */
    two_lost(&t);
    done();
}

const struct test_case redis_server_cases[] = {
    { "killed-and-back", killed_and_back, ON_ALL, 0, 0 },
    { "killed-and-empty", killed_and_empty, ON_ALL, 0, 0 },
    { "fence-without-memory", fence_without_memory, ON_ALL, 0, 0 },
    { "clock-back-3s", clock_back_3s, ON_ALL, 0, 0 },
    { "clock-back-60s", clock_back_60s, ON_ALL, 0, 0 },
    { "clock-back-and-dead", clock_back_and_dead, ON_ALL, 0, 0 },
    { "clock-forward-within-ttl", clock_forward_within, ON_ALL, 0, 0 },
    { "clock-forward-3s", clock_forward_3s, ON_ALL, 0, 0 },
    { "clock-forward-60s", clock_forward_60s, ON_ALL, 0, 0 },
    { "frozen-for-two-ttls", frozen_for_two_ttls, ON_ALL, 0, 0 },
    { "frozen-for-a-moment", frozen_for_a_moment, ON_ALL, 0, 0 },
    { "scripts-flushed", scripts_flushed, ON_ALL, 0, 0 },
    { "killed-and-told", killed_and_told, ON_ALL, 0, 0 },
    { "flushed-while-held", flushed_while_held, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
