/* test_hold.c: holds on shared lives, changes that the store has not answered, and what a
 * store turns out to be able to do at its first UP. */
#include "core_harness.h"

/* Grants the ticket that joined last on a life of this kind; hf__life_free it at the end.
 */
static struct life *grant_on(enum life_kind kind, int64_t ttl_ms)
{
    struct life *l = hf__life_new(&w.store, kind, ttl_ms);

    assert_non_null(l);
    hf__hang(w.joined, l);
    ev_alive(l, clk.now, ttl_ms);
    ev_granted(w.joined, 7, clk.now);
    return l;
}

/* The session lives on, as one does that others renew. */
static void pass_alive(struct life *l, int64_t us)
{
    for (; us > 0; us -= SEC) {
        core_pass(us < SEC ? us : SEC);
        ev_alive(l, clk.now, l->ttl_ms);
    }
}

/* A give-back whose leave the store answers, and the end of a shared life. */
static void end(struct hf_lease *lease, struct life *l)
{
    if (w.left) {
        ev_left(w.left, 0);
        w.left = NULL;
    }
    core_release(lease);
    hf__life_free(l);
}

static void second_waiter_leaves_the_recheck_of_the_first(void **state)
{
    struct life *l = hf__life_new(&w.store, LIFE_WAIT, TTL);
    struct hf_op first, second;
    hf_error err;
    int before;

    (void)state;
    core_start(&first, &err, HF_FOREVER, NULL);
    hf__hang(w.joined, l);
    ev_alive(l, clk.now, TTL);
    ev_waiting(w.joined, 1, 2000); /* who is in front expires in 2 s */
    core_pass(1900000);
    core_start(&second, &err, HF_FOREVER, NULL);
    hf__hang(w.joined, l);
    ev_alive(l, clk.now, TTL);
    ev_waiting(w.joined, 2, -1);
    before = w.renewals;
    core_pass(200000);
    assert_int_equal(w.renewals, before + 1);
    hf__cancel(&first, HF_ECANCELED);
    hf__cancel(&second, HF_ECANCELED);
    hf__client_shut(&w.c);
    hf__client_done(&w.c);
    hf__life_free(l);
}

static void renewal_by_hand_on_a_session_counts_anew(void **state)
{
    struct hf_op op, renew;
    struct life *l;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, HF_REQUEST(.flags = HF_NO_RENEW));
    l = grant_on(LIFE_WIDE, TTL);
    assert_true(op.done);
    pass_alive(l, 5 * SEC);
    /* not the session's time */
    assert_in_range(hf_lease_remaining_ms(op.lease), 3000, 4000);
    hf__op_init(&renew, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&renew, op.lease->parts[0].hold, 0), 0);
    ev_alive(l, clk.now, TTL);
    assert_true(renew.done);
    assert_int_equal(renew.rc, 0);
    pass_alive(l, 8 * SEC); /* 13 s after the grant, 8 s after the renewal */
    assert_int_equal(hf_lease_check(op.lease), 0);
    assert_int_equal(w.leaves, 0);
    pass_alive(l, 2 * SEC);
    assert_int_equal(hf_lease_check(op.lease), HF_ELOST);
    assert_int_equal(w.leaves, 1);
    end(op.lease, l);
}

static void unconfirmed_grant_without_renewal_is_asked_again(void **state)
{
    struct life *l = hf__life_new(&w.store, LIFE_WAIT, TTL);
    struct ticket *t;
    struct hf_op op;
    int64_t sent = clk.now;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, HF_REQUEST(.flags = HF_NO_RENEW));
    t = w.joined;
    hf__hang(t, l);
    ev_alive(l, clk.now, TTL);
    ev_waiting(t, 1, -1);
    clk.now += 7 * SEC; /* stopped; meanwhile the place was granted */
    ev_granted(t, 7, sent);
    hf__client_run(&w.c);
    assert_int_equal(w.renewals, 1);
    assert_false(op.done);
    core_pass(3 * SEC); /* that one is not answered */
    assert_true(w.renewals > 1);
    ev_alive(t->own, clk.now, TTL);
    assert_true(op.done);
    assert_int_equal(op.rc, 0);
    core_release(op.lease);
    hf__life_free(l);
}

static void unanswered_renewal_by_hand_is_repeated(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, HF_REQUEST(.flags = HF_NO_RENEW));
    struct hf_op op;

    (void)state;
    core_pass(SEC);
    hf__op_init(&op, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&op, l->parts[0].hold, 0), 0);
    assert_int_equal(w.renewals, 1);
    core_pass(2 * SEC);
    assert_true(w.renewals > 1);
    ev_alive(w.renewed[0], clk.now, TTL);
    assert_true(op.done);
    assert_int_equal(op.rc, 0);
    w.renewals = 0;
    core_pass(5 * SEC); /* and then it is its owner's business again */
    assert_int_equal(w.renewals, 0);
    core_release(l);
}

static void adopt_is_told_when_the_store_is_back(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, HF_REQUEST(.owner = 1));
    struct hold *h = l->parts[0].hold;

    (void)state;
    ev_store(&w.store, STORE_DOWN, NULL);
    hf__hold_adopt(h, hf__owner_of_number(2), true);
    hf__client_run(&w.c);
    assert_null(w.amended);
    for (int i = 0; i < 2; i++) { /* not sent; sent, and its answer was lost */
        ev_store(&w.store, STORE_UP, NULL);
        hf__client_run(&w.c);
        assert_non_null(w.amended);
        ev_store(&w.store, STORE_DOWN, NULL);
        w.amended = NULL;
    }
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    ev_amended(w.amended, 0);
    w.amended = NULL;
    ev_store(&w.store, STORE_DOWN, NULL);
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_null(w.amended); /* answered: not repeated */
    core_release(l);
}

static void downgrade_of_unknown_outcome_is_repeated(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    struct hf_op op;

    (void)state;
    hf__op_init(&op, &w.c, OP_AMEND, NULL);
    assert_int_equal(hf__amend(&op, l->parts[0].hold, NULL, true), 0);
    ev_store(&w.store, STORE_DOWN, NULL);
    core_pass(4 * SEC);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_EUNKNOWN);
    w.amended = NULL;
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_non_null(w.amended); /* else readers would wait until the release */
    core_release(l);
}

static void answer_is_about_the_amend_it_belongs_to(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, HF_REQUEST(.owner = 1));
    struct hf_op op;

    (void)state;
    hf__hold_adopt(l->parts[0].hold, hf__owner_of_number(2), true);
    hf__client_run(&w.c);
    assert_non_null(w.amended);
    w.amended = NULL;
    hf__op_init(&op, &w.c, OP_AMEND, NULL);
    assert_int_equal(hf__amend(&op, l->parts[0].hold, "note", false), 0);
    assert_null(w.amended);  /* one at a time */
    ev_amended(w.joined, 0); /* that of the adoption */
    hf__client_run(&w.c);
    assert_false(op.done);
    assert_non_null(w.amended);
    ev_amended(w.amended, 0);
    assert_true(op.done);
    assert_int_equal(op.rc, 0);
    core_release(l);
}

static void other_ttl_on_a_shared_life_is_an_amend(void **state)
{
    struct hf_op op, renew;
    struct life *l, *longer = hf__life_new(&w.store, LIFE_WIDE, 20000);

    (void)state;
    core_start(&op, NULL, HF_FOREVER, HF_REQUEST(.ttl_ms = 5000));
    l = grant_on(LIFE_WIDE, 5000);
    hf__op_init(&renew, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&renew, op.lease->parts[0].hold, 20000), 0);
    assert_ptr_equal(w.amended, w.joined);
    assert_int_equal(w.amended->ttl_ms, 20000);
    hf__hang(w.amended, longer); /* as a driver does: another lease of the store */
    ev_alive(longer, clk.now, 20000);
    ev_amended(w.amended, 0);
    assert_true(renew.done);
    assert_int_equal(renew.rc, 0);
    assert_true(hf_lease_remaining_ms(op.lease) > 15000);
    end(op.lease, l);
    hf__life_free(longer);
}

static void shorter_ttl_on_a_shared_life_counts_from_its_sending(void **state)
{
    struct hf_op op, renew;
    struct life *l;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, HF_REQUEST(.ttl_ms = 8000));
    l = grant_on(LIFE_WIDE, 8000);
    hf__op_init(&renew, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&renew, op.lease->parts[0].hold, 2000), 0);
    assert_true(hf_lease_remaining_ms(op.lease) <= 2000); /* G1: the answer may be lost */
    ev_amended(w.amended, HF_ENOTSUP);                    /* refused: as before */
    assert_int_equal(renew.rc, HF_ENOTSUP);
    assert_true(hf_lease_remaining_ms(op.lease) > 7000);
    assert_int_equal(op.lease->parts[0].hold->t.ttl_ms, 8000);
    hf__op_init(&renew, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&renew, op.lease->parts[0].hold, 2000), 0);
    pass_alive(l, 2 * SEC); /* no answer */
    assert_int_equal(hf_lease_check(op.lease), HF_ELOST);
    assert_int_equal(renew.rc, HF_ELOST);
    end(op.lease, l);
}

/* Of a ticket that may be on either of two lives the earlier end counts, whatever renews
 * the old one. */
static void unanswered_move_to_another_ttl_is_not_trusted(void **state)
{
    struct hf_op op, renew;
    struct hold *h;
    struct life *l;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, HF_REQUEST(.ttl_ms = 9000));
    l = grant_on(LIFE_WIDE, 9000);
    h = op.lease->parts[0].hold;
    pass_alive(l, 5 * SEC);
    hf__op_init(&renew, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&renew, h, 5000), 0);
    ev_alive(l, clk.now, 9000); /* for the others on it */
    assert_true(hf_lease_remaining_ms(op.lease) <= 5000);
    pass_alive(l, 3 * SEC + SEC / 2);
    assert_int_equal(renew.rc, HF_EUNKNOWN);
    hf__op_init(&renew, &w.c, OP_RENEW, NULL);
    /* once more: the first may have been done */
    assert_int_equal(hf__renew(&renew, h, 5000), 0);
    ev_alive(l, clk.now, 9000);
    assert_false(renew.done);
    assert_true(hf_lease_remaining_ms(op.lease) <= 1500);
    ev_amended(w.joined, 0); /* of the first */
    hf__client_run(&w.c);
    assert_true(hf_lease_remaining_ms(op.lease) <= 1500);
    ev_amended(w.joined, 0);
    assert_true(renew.done);
    assert_true(hf_lease_remaining_ms(op.lease) > 1500);
    end(op.lease, l);
}

/* The first was sent, and a lost connection took its answer: it may have been done. */
static void refusal_of_a_repeated_move_says_nothing_about_the_first(void **state)
{
    struct hf_op op, renew;
    struct life *l;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, HF_REQUEST(.ttl_ms = 9000));
    l = grant_on(LIFE_WIDE, 9000);
    hf__op_init(&renew, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&renew, op.lease->parts[0].hold, 5000), 0);
    ev_store(&w.store, STORE_DOWN, NULL);
    w.amended = NULL;
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    ev_amended(w.amended, HF_EFULL);
    assert_int_equal(renew.rc, HF_EFULL);
    ev_alive(l, clk.now, 9000);
    assert_true(hf_lease_remaining_ms(op.lease) <= 5000);
    end(op.lease, l);
}

/* It was asked for while the store was down, and is refused when it is sent at last. */
static void refusal_of_a_move_that_was_not_sent_before_counts(void **state)
{
    struct hf_op op, renew;
    struct life *l;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, HF_REQUEST(.ttl_ms = 9000));
    l = grant_on(LIFE_WIDE, 9000);
    ev_store(&w.store, STORE_DOWN, NULL);
    hf__op_init(&renew, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&renew, op.lease->parts[0].hold, 5000), 0);
    assert_null(w.amended);
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    ev_amended(w.amended, HF_EFULL);
    ev_alive(l, clk.now, 9000);
    assert_true(hf_lease_remaining_ms(op.lease) > 8000);
    end(op.lease, l);
}

/* The driver has moved it to a life that nobody was on: who would renew that? */
static void life_that_a_hold_has_moved_to_is_renewed(void **state)
{
    struct hf_op op, renew;
    struct life *l, *shorter = hf__life_new(&w.store, LIFE_WIDE, 3000);

    (void)state;
    core_start(&op, NULL, HF_FOREVER, HF_REQUEST(.ttl_ms = 60000));
    l = grant_on(LIFE_WIDE, 60000);
    hf__op_init(&renew, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&renew, op.lease->parts[0].hold, 3000), 0);
    ev_alive(shorter, clk.now, 3000);
    hf__hang(w.amended, shorter);
    w.renewals = 0;
    ev_amended(w.amended, 0);
    core_pass(SEC + SEC / 4);
    assert_int_equal(w.renewals, 1);
    end(op.lease, l);
    hf__life_free(shorter);
}

static void late_answer_to_a_move_counts(void **state)
{
    struct hf_op op, renew;
    struct life *l;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, HF_REQUEST(.ttl_ms = 9000));
    l = grant_on(LIFE_WIDE, 9000);
    hf__op_init(&renew, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&renew, op.lease->parts[0].hold, 5000), 0);
    pass_alive(l, 3 * SEC + SEC / 2);
    assert_int_equal(renew.rc, HF_EUNKNOWN);
    ev_amended(w.joined, 0);
    pass_alive(l, 5 * SEC);
    assert_int_equal(hf_lease_check(op.lease), 0);
    end(op.lease, l);
}

/* An owner whose other threads are granted one thing after another still looks for a
 * deadlock. */
static void walk_is_not_put_off_by_grants(void **state)
{
    struct life *l = hf__life_new(&w.store, LIFE_WAIT, TTL);
    struct hf_lease *held = core_hold(HF_FOREVER, HF_REQUEST(.owner = 5));
    struct hf_op op;
    struct hold *h;

    (void)state;
    /* the harness knows one name */
    strcpy((char *)(uintptr_t)held->parts[0].hold->t.name, "m");
    core_start(&op, NULL, HF_FOREVER, HF_REQUEST(.owner = 6));
    h = hold_of(w.joined);
    h->t.owner = held->parts[0].hold->t.owner;
    hf__hang(w.joined, l);
    ev_alive(l, clk.now, TTL);
    ev_waiting(w.joined, 1, -1);
    for (int i = 0; i < 5; i++) {
        core_pass(SEC / 2);
        hf__walk_restart(h);
    }
    assert_int_equal(w.looks, 1);
    ev_done(w.looked, NULL, 0, NULL); /* nobody is there */
    for (int i = 0; i < 5; i++) {
        core_pass(SEC / 2);
        hf__walk_restart(h);
    }
    assert_int_equal(w.looks, 2);
    ev_done(w.looked, NULL, 0, NULL);
    hf__cancel(&op, HF_ECANCELED);
    hf__client_run(&w.c);
    ev_left(w.left, 0);
    w.left = NULL;
    core_release(held);
    hf__life_free(l);
}

static void uncertain_store_has_a_deadline_all_the_same(void **state)
{
    struct hf_lease *l;

    (void)state;
    w.c.caps &= ~(uint32_t)HF_CAP_DEADLINE;
    l = core_hold(HF_FOREVER, NULL);
    ev_store(&w.store, STORE_DOWN, NULL);
    core_pass(7 * SEC);
    assert_int_equal(hf_lease_check(l), 0);
    assert_int_equal(hf_lease_state(l), HF_AT_RISK);
    core_pass(2 * SEC);
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    assert_int_equal(hf_lease_state(l), HF_LOST);
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    if (w.left) {
        ev_left(w.left, 0);
        w.left = NULL;
    }
    core_release(l);
}

static void first_up_refuses_what_the_store_cannot_do(void **state)
{
    static const struct {
        uint32_t cap;
        hf_request req;
    } cases[] = {
        { HF_CAP_DEADLINE, { .size = sizeof(hf_request), .flags = HF_NEED_DEADLINE } },
        { HF_CAP_SHARED, { .size = sizeof(hf_request), .mode = HF_READ } },
        { HF_CAP_BARGE, { .size = sizeof(hf_request), .flags = HF_BARGE } },
        { HF_CAP_TTL, { .size = sizeof(hf_request), .ttl_ms = 4000 } },
        { HF_CAP_PERMITS,
          { .size = sizeof(hf_request), .mode = HF_PERMITS, .permits = 1, .capacity = 2 } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hf_op op;
        hf_error err;

        w.c.up = w.c.known = false;
        w.c.caps = w.store.caps = 0x7ff;
        core_start(&op, &err, HF_FOREVER, &cases[i].req);
        w.joins = 0;
        w.store.caps &= ~cases[i].cap;
        ev_store(&w.store, STORE_UP, NULL);
        hf__client_run(&w.c);
        assert_true(op.done);
        assert_int_equal(op.rc, HF_ENOTSUP);
        assert_int_equal(err.code, HF_ENOTSUP);
        assert_int_equal(w.joins, 0);
    }
    w.store.caps = 0x7ff;
}

static void first_up_tells_the_limits(void **state)
{
    struct hf_op op;
    hf_error err;

    (void)state;
    w.c.up = w.c.known = false;
    core_start(&op, &err, HF_FOREVER, HF_REQUEST(.ttl_ms = 1000));
    w.store.least_ttl_ms = 2000;
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(op.rc, HF_ENOTSUP);
    assert_non_null(strstr(err.text, "2000"));
}

/* Its place has gone with its session; it leaves, and would join again. */
static void up_refuses_who_would_join_again(void **state)
{
    struct life *l = hf__life_new(&w.store, LIFE_WIDE, TTL);
    struct hf_op op;
    hf_error err;

    (void)state;
    core_start(&op, &err, HF_FOREVER, HF_REQUEST(.flags = HF_NEED_DEADLINE));
    hf__hang(w.joined, l);
    ev_alive(l, clk.now, TTL);
    ev_waiting(w.joined, 1, -1);
    ev_dead(l);
    hf__client_run(&w.c);
    assert_int_equal(w.leaves, 1);
    ev_store(&w.store, STORE_DOWN, NULL);
    ev_left(w.left, HF_EUNKNOWN);
    w.store.caps &= ~(uint32_t)HF_CAP_DEADLINE;
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_ENOTSUP);
    assert_int_equal(w.leaves, 2);
    ev_left(w.left, 0);
    assert_true(list_empty(&w.c.holds));
    hf__life_free(l);
}

static void later_up_only_takes_away(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, HF_REQUEST(.flags = HF_NEED_DEADLINE));
    struct acquire_spec r;
    hf_error err;

    (void)state;
    ev_store(&w.store, STORE_DOWN, NULL);
    w.store.caps &= ~(uint32_t)(HF_CAP_DEADLINE | HF_CAP_SHARED); /* an older member */
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(hf_lease_state(l), HF_AT_RISK);
    assert_int_equal(hf_lease_check(l), 0);
    assert_int_equal(hf__check_request(&w.c, HF_REQUEST(.mode = HF_READ), false, &r, &err),
                     HF_ENOTSUP);
    ev_alive(w.renewed[0], clk.now, TTL);
    assert_int_equal(hf_lease_state(l), HF_AT_RISK);
    ev_store(&w.store, STORE_DOWN, NULL);
    w.store.caps = 0x7ff; /* the newer one again: it may change back at any time */
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(hf__check_request(&w.c, HF_REQUEST(.mode = HF_READ), false, &r, &err),
                     HF_ENOTSUP);
    assert_int_equal(hf_lease_state(l), HF_AT_RISK);
    core_release(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CORE_TEST(second_waiter_leaves_the_recheck_of_the_first),
        CORE_TEST(renewal_by_hand_on_a_session_counts_anew),
        CORE_TEST(unconfirmed_grant_without_renewal_is_asked_again),
        CORE_TEST(unanswered_renewal_by_hand_is_repeated),
        CORE_TEST(adopt_is_told_when_the_store_is_back),
        CORE_TEST(downgrade_of_unknown_outcome_is_repeated),
        CORE_TEST(answer_is_about_the_amend_it_belongs_to),
        CORE_TEST(other_ttl_on_a_shared_life_is_an_amend),
        CORE_TEST(shorter_ttl_on_a_shared_life_counts_from_its_sending),
        CORE_TEST(unanswered_move_to_another_ttl_is_not_trusted),
        CORE_TEST(refusal_of_a_repeated_move_says_nothing_about_the_first),
        CORE_TEST(refusal_of_a_move_that_was_not_sent_before_counts),
        CORE_TEST(life_that_a_hold_has_moved_to_is_renewed),
        CORE_TEST(late_answer_to_a_move_counts),
        CORE_TEST(walk_is_not_put_off_by_grants),
        CORE_TEST(uncertain_store_has_a_deadline_all_the_same),
        CORE_TEST(first_up_refuses_what_the_store_cannot_do),
        CORE_TEST(first_up_tells_the_limits),
        CORE_TEST(up_refuses_who_would_join_again),
        CORE_TEST(later_up_only_takes_away),
    };

    return cmocka_run_group_tests_name("hold", tests, NULL, NULL);
}
