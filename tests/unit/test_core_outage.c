/* A store that cannot be reached or does not answer: what the core tells, and what it
 * repeats after UP. */
#include "core_harness.h"

#include "kit/ordered.h"
#include "kit/scripted.h"

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
    op.done = false;
    ev_left(w.left, 0);
    assert_false(op.done); /* it is the caller's memory again */
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

static const struct ticket *back;

static bool is_back(struct store *s, const struct ticket *t)
{
    (void)s;
    return t == back;
}

/* One server of several is back: what it had to answer is asked again, and nothing else. */
static void a_part_that_is_back_is_asked_alone(void **state)
{
    hf_error down = { .code = HF_EUNREACHABLE };
    struct hf_op one, other;
    struct ticket *first;

    (void)state;
    core_start(&one, NULL, HF_FOREVER, NULL);
    first = w.joined;
    core_start(&other, NULL, HF_FOREVER, NULL);
    assert_int_equal(w.joins, 2);
    back = first;
    ev_back(&w.store, is_back);
    hf__client_run(&w.c);
    assert_int_equal(w.joins, 3);
    assert_ptr_equal(w.joined, first);
    ev_store(&w.store, STORE_DOWN, &down);
    ev_back(&w.store, is_back); /* UP will repeat all */
    hf__client_run(&w.c);
    assert_int_equal(w.joins, 3);
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.joins, 5);
    ev_gone(first, HF_EFULL, -1, NULL);
    hf__client_run(&w.c);
    ev_left(w.left, 0);
    ev_gone(w.joined, HF_EFULL, -1, NULL); /* the other, asked last */
    hf__client_run(&w.c);
    ev_left(w.left, 0);
    assert_true(list_empty(&w.c.holds));
}

/* A release whose leave has no answer waits until that part of the store is back. */
static void release_waits_for_a_part_of_the_store(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    struct hf_op op;

    (void)state;
    hf__op_init(&op, &w.c, OP_RELEASE, NULL);
    hf__release(&op, l, 0);
    free(l);
    ev_left(w.left, HF_EUNREACHABLE);
    assert_false(op.done);
    back = w.left;
    ev_back(&w.store, is_back);
    hf__client_run(&w.c);
    assert_int_equal(w.leaves, 2);
    ev_left(w.left, 0);
    assert_true(op.done);
    assert_int_equal(op.rc, 0);
    assert_true(list_empty(&w.c.holds));
}

/* That part of the store may do what was asked of it before as late as just before it is
 * back: a leave that has no answer is repeated for longer than a ttl. */
static void leave_without_answer_is_not_forgotten(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);

    (void)state;
    hf__release(NULL, l, 0);
    free(l);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(w.leaves, i + 1);
        ev_left(w.left, HF_EUNREACHABLE);
        assert_int_equal(w.c.unsettled, 1);
        core_pass(SEC);
    }
    back = w.left;
    ev_back(&w.store, is_back);
    ev_left(w.left, HF_EUNKNOWN); /* it may come a little later: now a ttl counts */
    assert_int_equal(w.c.unsettled, 1);
    core_pass(SEC);
    ev_left(w.left, 0);
    assert_true(list_empty(&w.c.holds));
}

static int leaves_sent;

static void send_join(struct scripted *s, struct ticket *t)
{
    (void)s;
    (void)t;
}

static void send_leave(struct scripted *s, struct ticket *t)
{
    leaves_sent++;
    hf__scripted_left(s, t, LEFT_NOTHING);
}

/* A join that could not be sent, of a name whose server is down: nothing is to be taken
 * out. Else who asks for it again and again would have ever more leaves to repeat. */
static void what_was_never_sent_is_not_left(void **state)
{
    static const struct scripted_ops ops = { .join = send_join, .leave = send_leave };
    struct scripted_place place = { .kind = PLACE_UNSENT };
    struct scripted s = { 0 };

    (void)state;
    assert_int_equal(hf__scripted_init(&s, &ops, &w.store), 0);
    for (int i = 0; i < 2; i++) {
        struct hf_op op;

        core_start(&op, NULL, SEC / 1000, NULL);
        hf__scripted_join(&s, w.joined);
        hf__scripted_joined(&s, w.joined, clk.now, &place);
        core_pass(2 * SEC);
        assert_true(op.done);
        assert_int_equal(w.leaves, i + 1);
        hf__scripted_leave(&s, w.left);
        assert_int_equal(leaves_sent, i);
        assert_int_equal(w.c.unsettled, i);
        place.kind = PLACE_NOTHING; /* it may come yet */
    }
    ev_left(w.left, 0);
    hf__scripted_done(&s);
    assert_true(list_empty(&w.c.holds));
}

static bool given_up;

static struct ordered_seat *no_seat(struct ordered *o, struct ticket *t)
{
    (void)o;
    (void)t;
    return NULL;
}

static void give_up(struct ordered *o)
{
    (void)o;
    given_up = true;
}

/* A leave for which there is no memory is repeated after UP, not in a second: its owner
 * could wait in another line by then, and seem to wait in both (G10). */
static void leave_without_memory_ends_the_connection(void **state)
{
    static const struct ordered_ops ops = { .seat = no_seat, .no_memory = give_up };
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    struct ordered o;

    (void)state;
    hf__ordered_init(&o, &ops, &w.store);
    o.up = true;
    hf__release(NULL, l, 0);
    free(l);
    hf__ordered_leave(&o, w.left);
    assert_true(given_up);
    assert_int_equal(w.c.unsettled, 1);
    core_pass(SEC);
    ev_left(w.left, 0);
    assert_true(list_empty(&w.c.holds));
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
        CORE_TEST(a_part_that_is_back_is_asked_alone),
        CORE_TEST(release_waits_for_a_part_of_the_store),
        CORE_TEST(leave_without_answer_is_not_forgotten),
        CORE_TEST(what_was_never_sent_is_not_left),
        CORE_TEST(leave_without_memory_ends_the_connection),
    };

    return cmocka_run_group_tests_name("core-outage", tests, NULL, NULL);
}
