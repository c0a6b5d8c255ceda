/* Questions of the core: cells, follows that are asked again, lists and their limits. */
#include "core_harness.h"

static void cell_outside_the_limits_is_refused(void **state)
{
    static const int64_t bad[] = { 1, 1999, 60001, INT64_MAX }, good[] = { 0, 2000, 60000 };
    struct cell cell = { .verb = CELL_PUT, .name = "n", .name_len = 1 };
    hf_error err = { 0 };
    struct hf_op op;
    struct ask a;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        hf__op_init(&op, &w.c, OP_ASK, &err);
        cell.ttl_ms = bad[i];
        assert_int_equal(hf__cell(&op, &a, &cell, &err), HF_ENOTSUP);
        assert_non_null(strstr(err.text, "2000 to 60000 ms"));
    }
    for (int i = 0; i < 3; i++) {
        hf__op_init(&op, &w.c, OP_ASK, &err);
        cell.ttl_ms = good[i];
        assert_int_equal(hf__cell(&op, &a, &cell, &err), 0);
        assert_int_equal(w.cells, i + 1);
        ev_done(NULL, &cell, 0, NULL);
        assert_true(op.done);
    }
}

/* As for locks: a request that was made before the store was reached is refused then. */
static void cell_is_refused_when_the_store_is_known(void **state)
{
    struct cell cell = { .verb = CELL_PUT, .name = "n", .name_len = 1 };
    hf_error err = { 0 };
    struct hf_op op;
    struct ask a;

    (void)state;
    w.c.up = w.c.known = false;
    hf__op_init(&op, &w.c, OP_ASK, &err);
    assert_int_equal(hf__cell(&op, &a, &cell, &err), 0);
    w.store.caps &= ~(uint32_t)HF_CAP_CELL;
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_ENOTSUP);
    assert_int_equal(w.cells, 0);
}

static void answer_look(int rc)
{
    ev_done(w.looked, NULL, rc, NULL);
    hf__client_run(&w.c);
}

static void watch(struct hf_op *op, struct ask *a)
{
    static const struct look what = { .name = "n", .name_len = 1, .follow = true };

    hf__op_init(op, &w.c, OP_WATCH, NULL);
    assert_int_equal(hf__ask(op, a, ASK_LOOK, &what, NULL), 0);
    assert_int_equal(w.looks, 1);
    answer_look(0);
    assert_int_equal(w.seen, 1);
}

static void unwatch(struct hf_op *op, struct ask *a)
{
    hf__ask_stop(a);
    hf_list_free(op->list);
    hf__op_done_with(op);
}

/* One question at a time; a change that comes meanwhile may not be in the answer. */
static void a_follow_is_asked_again(void **state)
{
    struct hf_op op;
    struct ask a;

    (void)state;
    watch(&op, &a);
    ev_changed(w.looked, NULL);
    ev_changed(w.looked, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.looks, 2);
    ev_changed(w.looked, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.looks, 2);
    answer_look(0);
    assert_int_equal(w.seen, 2);
    assert_int_equal(w.looks, 3);
    w.looked->again_at = clk.now + 2 * SEC;
    answer_look(0);
    assert_int_equal(w.looks, 3);
    core_pass(SEC);
    assert_int_equal(w.looks, 3);
    core_pass(2 * SEC);
    assert_int_equal(w.looks, 4);
    answer_look(0);
    core_pass(100 * SEC);
    assert_int_equal(w.looks, 4); /* again_at was for once */
    assert_int_equal(w.stops, 0);
    unwatch(&op, &a);
    assert_int_equal(w.stops, 1);
}

/* Down, up: asked anew, whether or not the question was on its way, and even if the driver
 * saw no change. Nothing is told while it is down, for however long. */
static void a_follow_outlives_the_connection(void **state)
{
    struct hf_op op;
    struct ask a;

    (void)state;
    watch(&op, &a);
    for (int busy = 0; busy < 2; busy++) {
        if (busy) {
            ev_changed(w.looked, NULL);
            hf__client_run(&w.c);
        }
        ev_store(&w.store, STORE_DOWN, NULL);
        if (busy)
            answer_look(HF_EUNREACHABLE);
        ev_changed(w.looked, NULL);
        core_pass(100 * SEC);
        assert_int_equal(w.looks, 1 + 2 * busy);
        assert_int_equal(w.seen, 1 + busy);
        assert_false(op.done);
        ev_store(&w.store, STORE_UP, NULL);
        hf__client_run(&w.c);
        assert_int_equal(w.looks, 2 + 2 * busy);
        answer_look(0);
        assert_int_equal(w.seen, 2 + busy);
    }
    /* queued when the store goes */
    ev_changed(w.looked, NULL);
    ev_store(&w.store, STORE_DOWN, NULL);
    core_pass(100 * SEC);
    assert_false(op.done);
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.looks, 5);
    /* one server of several: no DOWN tells of it */
    answer_look(HF_EUNREACHABLE);
    assert_int_equal(w.looks, 5);
    core_pass(2 * SEC);
    assert_int_equal(w.looks, 6);
    unwatch(&op, &a);
}

/* The limit for reaching the store ends with the first answer, also if the store is down
 * when it would have been over. */
static void a_follow_that_began_before_the_store_was_up_outlives_it(void **state)
{
    static const struct look what = { .name = "n", .name_len = 1, .follow = true };
    struct hf_op op;
    struct ask a;

    (void)state;
    ev_store(&w.store, STORE_DOWN, NULL);
    hf__op_init(&op, &w.c, OP_WATCH, NULL);
    assert_int_equal(hf__ask(&op, &a, ASK_LOOK, &what, NULL), 0);
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    answer_look(0);
    assert_int_equal(w.seen, 1);
    ev_store(&w.store, STORE_DOWN, NULL);
    core_pass(100 * SEC);
    assert_false(op.done);
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.looks, 2);
    answer_look(0);
    assert_int_equal(w.seen, 2);
    unwatch(&op, &a);
}

static void an_error_ends_a_follow(void **state)
{
    struct hf_op op;
    struct ask a;

    (void)state;
    watch(&op, &a);
    ev_changed(w.looked, NULL);
    hf__client_run(&w.c);
    answer_look(HF_EDAMAGED);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_EDAMAGED);
    assert_int_equal(w.stops, 1);
    ev_store(&w.store, STORE_DOWN, NULL);
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.looks, 2);
    unwatch(&op, &a);
    assert_int_equal(w.stops, 1);
}

static void row_of(const char *name)
{
    struct row row = { .name = name, .name_len = strlen(name), .holders = 1 };

    ev_row(w.looked, &row);
}

/* Each answer of the store renews the limit of a list; its end is sorted, and cut. */
static void a_list_has_a_limit_for_each_answer(void **state)
{
    static const struct look what = { .name = "", .list = true, .limit = 2 };
    struct hf_op op;
    struct ask a;

    (void)state;
    hf__op_init(&op, &w.c, OP_ASK, NULL);
    assert_int_equal(hf__ask(&op, &a, ASK_LOOK, &what, NULL), 0);
    for (int i = 0; i < 5; i++) {
        core_pass(2 * SEC); /* of 3 */
        ev_progress(w.looked);
    }
    assert_false(op.done);
    row_of("c");
    row_of("a");
    row_of("b");
    answer_look(0);
    assert_true(op.done);
    assert_int_equal(op.rc, 0);
    assert_int_equal(hf_list_count(op.list), 2);
    assert_string_equal(hf_line_name(hf_list_at(op.list, 0)), "a");
    assert_string_equal(hf_line_name(hf_list_at(op.list, 1)), "b");
    hf_list_free(op.list);

    hf__op_init(&op, &w.c, OP_ASK, NULL);
    assert_int_equal(hf__ask(&op, &a, ASK_LOOK, &what, NULL), 0);
    ev_progress(w.looked);
    core_pass(4 * SEC);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_EUNREACHABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CORE_TEST(a_follow_is_asked_again),
        CORE_TEST(a_follow_outlives_the_connection),
        CORE_TEST(a_follow_that_began_before_the_store_was_up_outlives_it),
        CORE_TEST(an_error_ends_a_follow),
        CORE_TEST(a_list_has_a_limit_for_each_answer),
        CORE_TEST(cell_outside_the_limits_is_refused),
        CORE_TEST(cell_is_refused_when_the_store_is_known),
    };

    return cmocka_run_group_tests_name("core-ask", tests, NULL, NULL);
}
