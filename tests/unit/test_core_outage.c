/* A store that cannot be reached or does not answer: what the core tells, and what it
 * repeats after UP. */
#include "core_harness.h"

/* The store goes away meanwhile: told within the connect time-out, or it joins on UP. */
static void delayed_join_while_the_store_is_down(void **state)
{
    hf_error down = { .code = HF_EUNREACHABLE };
    struct hf_op op;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, NULL);
    ev_gone(w.joined, HF_EBUSYSTORE, 1000, NULL);
    ev_store(&w.store, STORE_DOWN, &down);
    core_pass(2 * SEC);
    assert_int_equal(w.joins, 1);
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.joins, 2);
    ev_gone(w.joined, HF_EBUSYSTORE, 60000, NULL);
    ev_store(&w.store, STORE_DOWN, &down);
    core_pass(3 * SEC);
    assert_int_equal(op.rc, HF_EUNREACHABLE);
    assert_true(list_empty(&w.c.holds));
}

/* What was sent before the store went away may be done as late as just before it is back.
 */
static void leave_is_repeated_however_long_the_store_was_away(void **state)
{
    hf_error down = { .code = HF_EUNREACHABLE };
    struct hf_op op;

    (void)state;
    core_start(&op, NULL, 1000, NULL);
    ev_waiting(w.joined, 1, -1);
    ev_store(&w.store, STORE_DOWN, &down);
    core_pass(SEC);
    assert_int_equal(op.rc, HF_ETIMEDOUT);
    assert_int_equal(w.leaves, 1);
    ev_left(w.left, HF_EUNKNOWN);
    core_pass(100 * SEC);
    assert_int_equal(w.leaves, 1); /* there is nobody to hear it */
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.leaves, 2);
    ev_left(w.left, 0);
    assert_true(list_empty(&w.c.holds));
}

/* The same fault has one code, whether the wait is shorter or longer than the connect
 * time-out. */
static void unreachable_is_told_as_such_however_short_the_wait(void **state)
{
    hf_error down = { .code = HF_EUNREACHABLE, .text = "connection refused" };

    (void)state;
    ev_store(&w.store, STORE_DOWN, &down);
    for (int64_t wait_ms = 1000; wait_ms <= 10000; wait_ms += 9000) {
        hf_error err = { 0 };
        struct hf_op op;

        core_start(&op, &err, wait_ms, NULL);
        core_pass(4 * SEC);
        assert_true(op.done);
        assert_int_equal(op.rc, HF_EUNREACHABLE);
        assert_string_equal(err.text, "connection refused");
    }
    assert_true(list_empty(&w.c.holds));
}

static void connect_ends_when_the_store_is_up_or_refuses(void **state)
{
    hf_error away = { .code = HF_EUNREACHABLE, .text = "connection refused" }, err = { 0 };
    hf_error login = { .code = HF_EAUTH, .text = "wrong password" };
    struct hf_op op[3];

    (void)state;
    ev_store(&w.store, STORE_DOWN, &away);
    for (int i = 0; i < 3; i++) {
        hf__op_init(&op[i], &w.c, OP_CONNECT, &err);
        assert_int_equal(hf__connect(&op[i], i == 0 ? 10000 : HF_FOREVER), 0);
    }
    core_pass(9 * SEC); /* the connect time-out is 3 s: that is for other calls */
    assert_false(op[0].done);
    core_pass(SEC);
    assert_int_equal(op[0].rc, HF_EUNREACHABLE);
    assert_string_equal(err.text, "connection refused");
    hf__cancel(&op[1], HF_ECANCELED);
    core_pass(1000 * SEC);
    assert_false(op[2].done);
    ev_store(&w.store, STORE_DOWN, &login);
    assert_int_equal(op[2].rc, HF_EAUTH);
    assert_string_equal(err.text, "wrong password");
    hf__op_init(&op[0], &w.c, OP_CONNECT, &err);
    assert_int_equal(hf__connect(&op[0], HF_FOREVER), 0);
    assert_int_equal(op[0].rc, HF_EAUTH);
    ev_store(&w.store, STORE_DOWN, &away);
    hf__op_init(&op[0], &w.c, OP_CONNECT, &err);
    assert_int_equal(hf__connect(&op[0], HF_FOREVER), 0);
    assert_false(op[0].done);
    ev_store(&w.store, STORE_UP, NULL);
    assert_true(op[0].done);
    assert_int_equal(op[0].rc, 0);
    hf__client_stop(&w.c);
    assert_int_equal(hf__connect(&op[1], 0), HF_ECLOSED);
}

static void join_that_was_not_answered_before_the_store_went_away(void **state)
{
    hf_error down = { .code = HF_EUNREACHABLE };
    struct hf_op op;

    (void)state;
    core_start(&op, NULL, 1000, NULL);
    ev_store(&w.store, STORE_DOWN, &down);
    core_pass(SEC);
    assert_int_equal(op.rc, HF_EUNREACHABLE);
    ev_left(w.left, 0);
    core_start(&op, NULL, 1000, NULL); /* it comes back, and somebody else has the lock */
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    ev_waiting(w.joined, 1, -1);
    core_pass(SEC);
    assert_int_equal(op.rc, HF_ETIMEDOUT);
    ev_left(w.left, 0);
    assert_true(list_empty(&w.c.holds));
}

static void change_is_repeated_after_the_store_was_away(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    struct hf_op op;

    (void)state;
    ev_store(&w.store, STORE_DOWN, NULL);
    hf__op_init(&op, &w.c, OP_AMEND, NULL);
    assert_int_equal(hf__amend(&op, l->parts[0].hold, "note", false), 0);
    assert_null(w.amended);
    for (int i = 0; i < 2; i++) { /* not sent; sent and not answered */
        ev_store(&w.store, STORE_UP, NULL);
        hf__client_run(&w.c);
        assert_non_null(w.amended);
        ev_store(&w.store, STORE_DOWN, NULL);
        w.amended = NULL;
    }
    ev_amended(w.joined, 0);
    assert_true(op.done);
    assert_int_equal(op.rc, 0);
    core_release(l);
}

static void try_that_is_not_answered_ends(void **state)
{
    hf_error err = { 0 };
    struct hf_op op;

    (void)state;
    core_start(&op, &err, 0, NULL);
    ev_store(&w.store, STORE_DOWN, NULL); /* after it was sent */
    core_pass(3 * SEC);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_EUNREACHABLE);
    assert_int_equal(w.leaves, 1); /* it may stand in the line (G7) */
    ev_left(w.left, 0);
    assert_true(list_empty(&w.c.holds));
}

static void release_that_is_not_answered_is_forgotten(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    struct hf_op op;

    (void)state;
    hf__op_init(&op, &w.c, OP_RELEASE, NULL);
    hf__release(&op, l, 0);
    free(l);
    assert_false(op.done);
    core_pass(3 * SEC);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_EUNKNOWN);
    op.open = 77;
    ev_left(w.left, 0);
    assert_int_equal(op.open, 77); /* it is the caller's memory again */
    assert_true(list_empty(&w.c.holds));
}

static void no_verb_follows_the_end_of_the_session(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);

    (void)state;
    hf__client_shut(&w.c);
    assert_int_equal(w.leaves, 1);
    hf__client_end_session(&w.c); /* the leave has had no answer */
    assert_int_equal(w.shuts, 1);
    assert_false(w.c.shut_done);
    ev_store(&w.store, STORE_DOWN, NULL);
    ev_left(w.left, HF_EUNKNOWN);
    ev_store(&w.store, STORE_UP, NULL);
    core_pass(60 * (int64_t)SEC);
    assert_int_equal(w.leaves, 1);
    ev_shut(&w.store);
    assert_true(w.c.shut_done);
    hf__release(NULL, l, 0);
    free(l);
}

static void store_that_is_down_is_told_in_time_and_repeated_after(void **state)
{
    hf_error down = { .code = HF_EUNREACHABLE, .text = "connection refused" }, err = { 0 };
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    struct hf_op op;

    (void)state;
    ev_store(&w.store, STORE_DOWN, &down);
    core_start(&op, &err, HF_FOREVER, NULL);
    assert_int_equal(w.joins, 1);
    core_pass(3 * SEC);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_EUNREACHABLE);
    assert_string_equal(err.text, "connection refused");
    assert_int_equal(w.leaves, 0); /* the store has never heard of it */
    assert_int_equal(hf_lease_check(l), 0);
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.renewals, 1); /* at once */
    ev_alive(w.renewed[0], clk.now, TTL);
    assert_int_equal(hf_lease_state(l), HF_HELD);
    core_release(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CORE_TEST(delayed_join_while_the_store_is_down),
        CORE_TEST(leave_is_repeated_however_long_the_store_was_away),
        CORE_TEST(unreachable_is_told_as_such_however_short_the_wait),
        CORE_TEST(connect_ends_when_the_store_is_up_or_refuses),
        CORE_TEST(join_that_was_not_answered_before_the_store_went_away),
        CORE_TEST(change_is_repeated_after_the_store_was_away),
        CORE_TEST(try_that_is_not_answered_ends),
        CORE_TEST(release_that_is_not_answered_is_forgotten),
        CORE_TEST(no_verb_follows_the_end_of_the_session),
        CORE_TEST(store_that_is_down_is_told_in_time_and_repeated_after),
    };

    return cmocka_run_group_tests_name("core-outage", tests, NULL, NULL);
}
