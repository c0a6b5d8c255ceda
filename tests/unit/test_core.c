/* The core: late grants, unknown answers, refusals, re-entry, several names. */
#include "core_harness.h"

static void late_grant_after_time_out_is_left(void **state)
{
    struct hf_op op;
    hf_error err = { 0 };
    struct ticket *t;

    (void)state;
    core_start(&op, &err, 400, NULL);
    t = w.joined;
    core_pass(2 * SEC / 5);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_ETIMEDOUT);
    assert_int_equal(err.code, HF_ETIMEDOUT);
    assert_int_equal(w.leaves, 1);
    assert_ptr_equal(w.left, t);
    ev_granted(t, 9, clk.now);
    assert_int_equal(w.c.unsettled, 1);
    ev_left(t, 0);
    assert_int_equal(w.c.unsettled, 0);
    assert_true(list_empty(&w.c.holds));
}

/* The limit is the caller's, the reason the driver's. */
static void a_stalled_join_says_why(void **state)
{
    struct hf_op op;
    hf_error err = { 0 };

    (void)state;
    w.stalled = HF_EBUSYSTORE;
    core_start(&op, &err, 500, NULL);
    core_pass(SEC);
    assert_int_equal(op.rc, HF_ETIMEDOUT);
    assert_non_null(strstr(err.text, "not granted in time: somebody is in the way"));
    ev_left(w.left, 0);
    core_start(&op, &err, 0, NULL);
    core_pass(4 * SEC); /* the connect time-out */
    assert_int_equal(op.rc, HF_EBUSYSTORE);
    assert_int_equal(err.code, HF_EBUSYSTORE);
    assert_non_null(strstr(err.text, "somebody is in the way"));
    ev_left(w.left, 0);
    w.stalled = 0;
    core_start(&op, &err, 0, NULL);
    core_pass(4 * SEC);
    assert_int_equal(op.rc, HF_EUNREACHABLE);
    ev_left(w.left, 0);
}

/* A part of the store may be unreachable, and nobody says so: that is no busy lock. */
static void a_join_without_an_answer_is_no_busy_lock(void **state)
{
    struct hf_op op;
    hf_error err = { 0 };

    (void)state;
    w.store.starts_down = true; /* it is a server */
    core_start(&op, &err, 2000, NULL);
    core_pass(2 * SEC);
    assert_int_equal(op.rc, HF_EUNREACHABLE);
    assert_non_null(strstr(err.text, "did not answer"));
    ev_left(w.left, 0);
    core_start(&op, &err, 100, NULL); /* too short to tell */
    core_pass(SEC / 10);
    assert_int_equal(op.rc, HF_ETIMEDOUT);
    ev_left(w.left, 0);
    core_start(&op, &err, 2000, NULL);
    ev_waiting(w.joined, 1, -1);
    core_pass(2 * SEC);
    assert_int_equal(op.rc, HF_ETIMEDOUT);
    ev_left(w.left, 0);
}

static void unknown_leave_is_repeated_for_one_ttl(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    struct hf_op op;

    (void)state;
    hf__op_init(&op, &w.c, OP_RELEASE, NULL);
    hf__release(&op, l, 0);
    free(l);
    assert_false(op.done);
    ev_left(w.left, HF_EUNKNOWN);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_EUNKNOWN);
    for (int i = 0; i < 8; i++) {
        core_pass(SEC);
        assert_int_equal(w.leaves, i + 2);
        ev_left(w.left, HF_EUNKNOWN);
    }
    assert_int_equal(w.c.unsettled, 1);
    /* nine seconds since the last request that could have kept it: not quite yet */
    core_pass(SEC);
    ev_left(w.left, HF_EUNKNOWN);
    assert_int_equal(w.c.unsettled, 1);
    /* now; but a late join may have put it there again, and only a leave takes that out */
    core_pass(SEC);
    assert_int_equal(w.leaves, 11);
    assert_int_equal(w.c.unsettled, 1);
    ev_left(w.left, HF_EUNKNOWN);
    assert_int_equal(w.c.unsettled, 0); /* out by its ttl */
    assert_true(list_empty(&w.c.holds));
}

/* Waiting tickets share a life: what keeps one of them in line keeps them all. */
static void unknown_leave_of_a_waiter_is_repeated_while_others_wait(void **state)
{
    struct hf_op op, next;
    struct ticket *t;

    (void)state;
    core_start(&op, NULL, 1000, NULL);
    t = w.joined;
    ev_waiting(t, 1, -1);
    core_pass(SEC);
    assert_int_equal(op.rc, HF_ETIMEDOUT);
    ev_left(t, HF_EUNKNOWN);
    for (int i = 0; i < 4; i++) {
        core_pass(SEC);
        ev_left(t, HF_EUNKNOWN);
    }
    core_start(&next, NULL, HF_FOREVER, NULL); /* may have renewed the life that t is on */
    for (int i = 0; i < 8; i++) {
        core_pass(SEC);
        assert_ptr_equal(w.left, t);
        ev_left(t, HF_EUNKNOWN);
    }
    assert_int_equal(w.c.unsettled, 1);
    ev_left(t, 0);
    assert_int_equal(w.c.unsettled, 0);
    ev_granted(w.joined, 9, clk.now);
    w.left = NULL;
    core_release(next.lease);
}

/* A driver may do what was called for later: the shared life counts from then. */
static void a_join_that_was_put_off_keeps_the_others_longer(void **state)
{
    struct life *l = hf__life_new(&w.store, LIFE_WAIT, TTL);
    struct hf_op op, next;
    struct ticket *t, *u;

    (void)state;
    core_start(&op, NULL, 1000, NULL);
    t = w.joined;
    hf__hang(t, l);
    ev_alive(l, clk.now, TTL);
    ev_waiting(t, 1, -1);
    core_pass(SEC);
    hf__hang(t, t->own); /* the driver knows it no more */
    ev_left(t, HF_EUNKNOWN);
    core_start(&next, NULL, HF_FOREVER, NULL);
    u = w.joined;
    for (int i = 0; i < 5; i++) {
        core_pass(SEC);
        ev_left(t, HF_EUNKNOWN);
    }
    hf__hang(u, l); /* called for five seconds ago, done now */
    ev_alive(l, clk.now, TTL);
    ev_waiting(u, 2, -1);
    hf__cancel(&next, HF_ECANCELED);
    hf__client_run(&w.c);
    ev_left(u, 0);
    for (int i = 0; i < 8; i++) {
        core_pass(SEC);
        assert_int_equal(w.c.unsettled, 1);
        ev_left(t, HF_EUNKNOWN);
    }
    ev_left(t, 0);
    hf__life_free(l);
}

static void waiter_whose_place_is_gone_joins_again(void **state)
{
    unsigned char first[HF_TOKEN];
    struct hf_op op;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, NULL);
    memcpy(first, w.joined->token, HF_TOKEN);
    ev_waiting(w.joined, 1, -1);
    ev_gone(w.joined, HF_ELOST, 0, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.joins, 2);
    assert_memory_not_equal(w.joined->token, first, HF_TOKEN);
    ev_granted(w.joined, 5, clk.now);
    assert_true(op.done);
    core_release(op.lease);
}

static const hf_error too_many = { .code = HF_EBUSYSTORE, .text = "too many clients" };

/* What cannot be in line for a while joins again after that time, as often as it takes. */
static void delayed_join_comes_when_its_time_has_come(void **state)
{
    unsigned char first[HF_TOKEN];
    struct hf_op op;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, NULL);
    memcpy(first, w.joined->token, HF_TOKEN);
    ev_gone(w.joined, HF_EBUSYSTORE, 2000, &too_many);
    core_pass(1999 * 1000);
    assert_int_equal(w.joins, 1);
    core_pass(1000);
    assert_int_equal(w.joins, 2);
    assert_memory_not_equal(w.joined->token, first, HF_TOKEN);
    ev_waiting(w.joined, 1, -1);
    ev_gone(w.joined, HF_EBUSYSTORE, 500, NULL);
    core_pass(500 * 1000);
    assert_int_equal(w.joins, 3);
    ev_granted(w.joined, 5, clk.now);
    assert_true(op.done);
    assert_int_equal(op.rc, 0);
    assert_int_equal(w.leaves, 0);
    core_release(op.lease);
}

/* Nothing is sent for a ticket that is in no line. */
static void delayed_join_is_given_up(void **state)
{
    hf_error err = { 0 };
    struct hf_op op;

    (void)state;
    core_start(&op, &err, 1000, NULL);
    ev_gone(w.joined, HF_EBUSYSTORE, 2000, &too_many);
    core_pass(SEC);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_ETIMEDOUT);
    assert_non_null(strstr(err.text, "too many clients"));
    assert_true(list_empty(&w.c.holds));
    core_start(&op, &err, HF_FOREVER, NULL);
    ev_gone(w.joined, HF_EBUSYSTORE, 2000, NULL);
    hf__cancel(&op, HF_ECANCELED);
    assert_true(list_empty(&w.c.holds));
    core_start(&op, &err, HF_FOREVER, NULL);
    ev_gone(w.joined, HF_EBUSYSTORE, 2000, &too_many);
    hf__cancel(&op, HF_ECLOSED);
    hf__client_shut(&w.c);
    assert_true(list_empty(&w.c.holds));
    assert_int_equal(w.leaves, 0);
}

/* The reason is that of the last time; who has been in line since timed out for another. */
static void delay_that_is_past_is_no_reason(void **state)
{
    hf_error err = { 0 };
    struct hf_op op;

    (void)state;
    core_start(&op, &err, 5000, NULL);
    ev_gone(w.joined, HF_EBUSYSTORE, 100, &too_many);
    core_pass(SEC);
    assert_int_equal(w.joins, 2);
    ev_waiting(w.joined, 1, -1);
    core_pass(5 * SEC);
    assert_int_equal(op.rc, HF_ETIMEDOUT);
    assert_null(strstr(err.text, "too many clients"));
    ev_left(w.left, 0);
}

static void hold_that_is_gone_a_while_is_lost(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);

    (void)state;
    ev_gone(w.joined, HF_EBUSYSTORE, 1000, NULL);
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    core_pass(2 * SEC);
    assert_int_equal(w.joins, 1);
    hf__release(NULL, l, 0);
    free(l);
}

/* Whoever was evicted does not stand in line again: neither one that waits nor one whose
 * grant was not told yet. */
static void evicted_waiter_is_told(void **state)
{
    struct hf_op op;

    (void)state;
    for (int confirming = 0; confirming < 2; confirming++) {
        core_start(&op, NULL, HF_FOREVER, NULL);
        clk.now += SEC;
        if (confirming)
            ev_granted(w.joined, 5, clk.now - 8 * (int64_t)SEC);
        else
            ev_waiting(w.joined, 1, -1);
        assert_false(op.done);
        if (confirming)
            ev_marked(w.joined);
        else
            ev_gone(w.joined, HF_EEVICTED, -1, NULL);
        assert_int_equal(op.rc, HF_EEVICTED);
        hf__client_run(&w.c);
        ev_left(w.left, 0);
        assert_true(list_empty(&w.c.holds));
    }
    assert_int_equal(w.joins, 2);
    assert_int_equal(w.leaves, 2);
}

static void evicted_hold_is_lost(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);

    (void)state;
    ev_gone(w.joined, HF_EEVICTED, -1, NULL);
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    assert_int_equal(w.leaves, 0);
    assert_int_equal(hf__release(NULL, l, 0), HF_ELOST);
    free(l);
}

static void refused_join_tells_why(void **state)
{
    struct hf_op op;
    hf_error err = { 0 }, why = { .code = HF_EMISMATCH, .text = "in use as permits" };

    (void)state;
    core_start(&op, &err, HF_FOREVER, NULL);
    ev_gone(w.joined, HF_EMISMATCH, -1, &why);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_EMISMATCH);
    assert_string_equal(err.text, why.text);
    assert_true(list_empty(&w.c.holds));
}

/* It stood in line when it was refused: it may do so still. */
static void refused_waiter_is_left(void **state)
{
    struct hf_op op;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, NULL);
    ev_waiting(w.joined, 1, -1);
    ev_gone(w.joined, HF_EAUTH, -1, NULL);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_EAUTH);
    hf__client_run(&w.c);
    assert_int_equal(w.leaves, 1);
    ev_left(w.left, HF_EUNKNOWN); /* refused, too: repeated */
    core_pass(SEC);
    assert_int_equal(w.leaves, 2);
    ev_left(w.left, 0);
    assert_true(list_empty(&w.c.holds));
}

/* The first join had no answer, and may have been taken. */
static void repeated_join_that_is_refused_is_left(void **state)
{
    hf_error down = { .code = HF_EUNREACHABLE };
    struct hf_op op;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, NULL);
    ev_store(&w.store, STORE_DOWN, &down);
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.joins, 2);
    ev_gone(w.joined, HF_EFULL, -1, NULL);
    assert_int_equal(op.rc, HF_EFULL);
    hf__client_run(&w.c);
    assert_int_equal(w.leaves, 1);
    ev_left(w.left, 0);
    assert_true(list_empty(&w.c.holds));
}

static void lost_hold_is_not_kept(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);

    (void)state;
    clk.now += 9 * SEC; /* nobody has driven us */
    assert_int_equal(hf__release(NULL, l, 60000), HF_ELOST);
    free(l);
    assert_int_equal(w.left->keep_ms, 0);
    ev_left(w.left, 0);
}

/* The store may have given the place to another before the leave came, which then found
 * nothing to keep: it is answered all the same. */
static void kept_is_known_only_before_the_deadline(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    struct hf_op op;

    (void)state;
    hf__op_init(&op, &w.c, OP_RELEASE, NULL);
    hf__release(&op, l, 60000);
    free(l);
    ev_left(w.left, 0);
    assert_true(op.done);
    assert_int_equal(op.rc, 0);

    l = core_hold(HF_FOREVER, NULL);
    clk.now += 7 * SEC; /* nobody has renewed it */
    hf__op_init(&op, &w.c, OP_RELEASE, NULL);
    hf__release(&op, l, 60000);
    free(l);
    clk.now += 5 * SEC / 2;
    ev_left(w.left, 0);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_EUNKNOWN);
    assert_true(list_empty(&w.c.holds));
}

static void error_text_is_of_this_call(void **state)
{
    hf_error err = { .code = HF_ECANCELED, .text = "of an earlier call" };
    struct hf_op op;

    (void)state;
    core_start(&op, &err, HF_FOREVER, NULL);
    hf__cancel(&op, HF_ECANCELED);
    assert_string_equal(err.text, hf_strerror(HF_ECANCELED));
    hf__client_run(&w.c);
    ev_left(w.left, 0);
}

static void several_names_are_not_granted_with_one_lost(void **state)
{
    const char *const names[] = { "a", "b" };
    struct ticket *first;
    struct acquire_spec r;
    struct hf_op op;

    (void)state;
    assert_int_equal(hf__check_request(&w.c, NULL, false, &r, NULL), 0);
    hf__op_init(&op, &w.c, OP_ACQUIRE, NULL);
    assert_int_equal(hf__acquire(&op, names, 2, HF_FOREVER, &r), 0);
    first = w.joined;
    ev_granted(first, 7, clk.now);
    hf__client_run(&w.c);
    assert_ptr_not_equal(w.joined, first);
    ev_dead(first->own); /* while it waits for the second */
    hf__client_run(&w.c);
    assert_ptr_equal(w.left, first);
    ev_left(first, 0);
    ev_granted(w.joined, 8, clk.now);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_ELOST);
    hf__client_run(&w.c);
    assert_ptr_equal(w.left, w.joined); /* all of them or none */
    ev_left(w.left, 0);
    assert_true(list_empty(&w.c.holds));
}

static void reentry_by_owner_makes_no_traffic(void **state)
{
    struct hf_lease *a = core_hold(HF_FOREVER, HF_REQUEST(.owner = 5)), *b;
    struct hf_op op;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, HF_REQUEST(.owner = 5, .mode = HF_READ));
    assert_true(op.done);
    b = op.lease;
    assert_int_equal(w.joins, 1);
    assert_int_equal(hf_lease_fence(b), 7);
    hf__release(NULL, a, 0);
    free(a);
    assert_int_equal(w.leaves, 0);
    assert_int_equal(hf_lease_check(b), 0);
    core_release(b);
    assert_int_equal(w.leaves, 1);
}

static void lost_hold_is_not_reentered(void **state)
{
    struct hf_lease *a = core_hold(HF_FOREVER, HF_REQUEST(.owner = 5));
    struct hf_op op;

    (void)state;
    ev_dead(w.joined->own);
    core_start(&op, NULL, HF_FOREVER, HF_REQUEST(.owner = 5));
    assert_false(op.done);
    assert_int_equal(w.joins, 2);
    hf__cancel(&op, HF_ECANCELED);
    hf__client_run(&w.c);
    list_for_safe(n, &w.c.holds)
        ev_left(&container_of(n, struct hold, node)->t, 0);
    w.left = NULL;
    core_release(a);
}

/* Nobody turned the loop, so nobody was told; the hold is over all the same (G9). */
static void expired_hold_is_not_reentered(void **state)
{
    struct hf_lease *a = core_hold(HF_FOREVER, HF_REQUEST(.owner = 5));
    struct ticket *first = w.joined;
    struct hf_op op;

    (void)state;
    clk.now = hf__until(clk.now, TTL);
    core_start(&op, NULL, HF_FOREVER, HF_REQUEST(.owner = 5));
    assert_false(op.done);
    assert_ptr_not_equal(w.joined, first);
    hf__cancel(&op, HF_ECANCELED);
    hf__client_run(&w.c);
    ev_left(w.left, 0);
    w.left = NULL;
    core_release(a);
}

static void bad_requests_change_nothing(void **state)
{
    hf_request bad[] = {
        { .size = 4 },
        { .size = sizeof(hf_request), .mode = 4 },
        { .size = sizeof(hf_request), .flags = 8 },
        { .size = sizeof(hf_request), .reserved = 1 },
        { .size = sizeof(hf_request), .permits = 1 },
        { .size = sizeof(hf_request), .mode = HF_PERMITS, .permits = 0, .capacity = 3 },
        { .size = sizeof(hf_request), .mode = HF_PERMITS, .permits = 4, .capacity = 3 },
        { .size = sizeof(hf_request), .mode = HF_PERMITS, .permits = 1, .capacity = 0 },
        { .size = sizeof(hf_request), .ttl_ms = -1 },
        { .size = sizeof(hf_request), .max_hold_ms = -1 },
        { .size = sizeof(hf_request), .note = "\xff" },
    };
    unsigned char bigger[sizeof(hf_request) + 8] = { 0 };
    struct acquire_spec r;
    hf_error err;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(hf__check_request(&w.c, &bad[i], false, &r, &err), HF_EINVAL);
    bad[0] = (hf_request){ .size = sizeof(hf_request), .ttl_ms = 9 };
    assert_int_equal(hf__check_request(&w.c, &bad[0], false, &r, &err), HF_ENOTSUP);
    bigger[0] = sizeof bigger;
    assert_int_equal(hf__check_request(&w.c, (const void *)bigger, false, &r, &err), 0);
    bigger[sizeof bigger - 1] = 1;
    assert_int_equal(hf__check_request(&w.c, (const void *)bigger, false, &r, &err),
                     HF_EINVAL);
    assert_int_equal(w.joins, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CORE_TEST(late_grant_after_time_out_is_left),
        CORE_TEST(a_stalled_join_says_why),
        CORE_TEST(a_join_without_an_answer_is_no_busy_lock),
        CORE_TEST(unknown_leave_is_repeated_for_one_ttl),
        CORE_TEST(unknown_leave_of_a_waiter_is_repeated_while_others_wait),
        CORE_TEST(a_join_that_was_put_off_keeps_the_others_longer),
        CORE_TEST(waiter_whose_place_is_gone_joins_again),
        CORE_TEST(delayed_join_comes_when_its_time_has_come),
        CORE_TEST(delayed_join_is_given_up),
        CORE_TEST(delay_that_is_past_is_no_reason),
        CORE_TEST(hold_that_is_gone_a_while_is_lost),
        CORE_TEST(evicted_waiter_is_told),
        CORE_TEST(evicted_hold_is_lost),
        CORE_TEST(refused_join_tells_why),
        CORE_TEST(refused_waiter_is_left),
        CORE_TEST(repeated_join_that_is_refused_is_left),
        CORE_TEST(lost_hold_is_not_kept),
        CORE_TEST(kept_is_known_only_before_the_deadline),
        CORE_TEST(error_text_is_of_this_call),
        CORE_TEST(several_names_are_not_granted_with_one_lost),
        CORE_TEST(reentry_by_owner_makes_no_traffic),
        CORE_TEST(lost_hold_is_not_reentered),
        CORE_TEST(expired_hold_is_not_reentered),
        CORE_TEST(bad_requests_change_nothing),
    };

    return cmocka_run_group_tests_name("core", tests, NULL, NULL);
}
