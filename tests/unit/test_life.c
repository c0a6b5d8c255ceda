/* The core: validity, loss grades, renewal: what a life promises and when it ends (G1, G6).
 */
#include "core_harness.h"

static void deadline_counts_from_the_sending(void **state)
{
    struct hf_op op;
    int64_t sent = clk.now;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, NULL);
    clk.now += SEC;
    ev_granted(w.joined, 7, sent);
    clk.now = hf__until(sent, TTL) - 1;
    assert_int_equal(hf_lease_check(op.lease), 0);
    clk.now++;
    assert_int_equal(hf_lease_check(op.lease), HF_ELOST);
    assert_int_equal(hf__deadline(sent, TTL), sent + TTL * 1000 - TTL * 10 - 2000);
    assert_true(clk.now < hf__deadline(sent, TTL));
    core_release(op.lease);
}

static void renewed_at_a_third_and_repeated(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    int64_t sent;

    (void)state;
    core_pass(2 * SEC);
    assert_int_equal(w.renewals, 0);
    core_pass(SEC);
    assert_int_equal(w.renewals, 1);
    sent = clk.now;
    core_pass(2 * SEC); /* ttl/8 is 1.125 s: repeated once */
    assert_int_equal(w.renewals, 2);
    ev_alive(w.renewed[0], sent, TTL);
    assert_int_equal(hf_lease_state(l), HF_HELD);
    clk.now = hf__until(sent, TTL) - 1;
    assert_int_equal(hf_lease_check(l), 0);
    core_release(l);
}

static void at_risk_then_lost_before_the_deadline(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    int64_t sent = clk.now;

    (void)state;
    core_pass(6 * SEC - 1);
    assert_int_equal(hf_lease_state(l), HF_HELD);
    core_pass(1);
    assert_int_equal(hf_lease_state(l), HF_AT_RISK);
    assert_int_equal(hf_lease_check(l), 0);
    assert_int_equal(w.leaves, 0);
    core_pass(hf__deadline(sent, TTL) - 1 - clk.now);
    assert_int_equal(hf_lease_state(l), HF_LOST); /* told before G1's deadline (G6) */
    assert_int_equal(w.leaves, 1);
    ev_alive(w.joined->own, clk.now, TTL); /* an answer that comes now changes nothing */
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    ev_left(w.left, 0);
    w.left = NULL;
    core_release(l);
}

static void at_risk_and_held_again(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);

    (void)state;
    core_pass(7 * SEC);
    assert_int_equal(hf_lease_state(l), HF_AT_RISK);
    ev_alive(w.renewed[0], clk.now, TTL);
    assert_int_equal(hf_lease_state(l), HF_HELD);
    core_release(l);
}

static void grant_by_another_counts_from_our_last_answer(void **state)
{
    struct hf_op op;
    struct life *wait;
    int64_t sent = clk.now;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, NULL);
    wait = hf__life_new(&w.store, LIFE_WAIT, TTL);
    hf__hang(w.joined, wait);
    ev_alive(wait, sent, TTL);
    ev_waiting(w.joined, 3, -1);
    clk.now += 2 * SEC;
    ev_granted(w.joined, 8, wait->sent_at);
    hf__life_free(wait);
    assert_true(op.done);
    assert_int_equal(w.renewals, 0); /* more than half is left */
    clk.now = hf__deadline(sent, TTL);
    assert_int_equal(hf_lease_check(op.lease), HF_ELOST);
    core_release(op.lease);
}

static void waiter_without_answer_asks_less_often(void **state)
{
    struct hf_op op;
    struct life *wait;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, NULL);
    wait = hf__life_new(&w.store, LIFE_WAIT, 100);
    hf__hang(w.joined, wait);
    ev_alive(wait, clk.now, 100);
    ev_waiting(w.joined, 3, -1);
    core_pass(SEC / 10);
    assert_in_range(w.renewals, 4, 6); /* within its ttl every eighth of it */
    core_pass(600 * (int64_t)SEC);
    /* then at most every five seconds, not 48,000 times */
    assert_in_range(w.renewals, 100, 250);
    ev_alive(wait, clk.now, 100);
    core_pass(SEC / 10);
    ev_granted(w.joined, 8, clk.now);
    hf__life_free(wait);
    assert_true(op.done);
    core_release(op.lease);
}

static void short_grant_renews_thin_grant_confirms(void **state)
{
    struct hf_op op;
    int64_t sent = clk.now;

    (void)state;
    core_start(&op, NULL, HF_FOREVER, NULL);
    clk.now += 5 * SEC;
    ev_granted(w.joined, 8, sent);
    hf__client_run(&w.c);
    assert_true(op.done);
    assert_int_equal(w.renewals, 1);
    core_release(op.lease);

    w.left = NULL;
    sent = clk.now;
    core_start(&op, NULL, HF_FOREVER, NULL);
    clk.now += 8 * SEC;
    ev_granted(w.joined, 9, sent);
    hf__client_run(&w.c);
    assert_false(op.done);
    assert_int_equal(w.renewals, 2);
    ev_alive(w.renewed[0], clk.now, TTL);
    assert_true(op.done);
    assert_int_equal(op.rc, 0);
    core_release(op.lease);
}

static void late_answer_does_not_revive(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    int64_t sent = clk.now;

    (void)state;
    clk.now = hf__until(sent, TTL); /* nobody has driven us since */
    ev_alive(w.joined->own, sent + SEC, TTL);
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    hf__client_run(&w.c);
    ev_left(w.left, 0);
    w.left = NULL;
    core_release(l);
}

static void max_hold_gives_the_place_up(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, HF_REQUEST(.max_hold_ms = 2000));

    (void)state;
    core_pass(2 * SEC - 1);
    assert_int_equal(hf_lease_check(l), 0);
    core_pass(2);
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    assert_int_equal(w.leaves, 1);
    ev_left(w.left, 0);
    w.left = NULL;
    core_release(l);
}

static void marked_hold_is_at_risk_and_ends_at_its_deadline(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    int64_t sent = clk.now;

    (void)state;
    ev_marked(w.joined);
    assert_int_equal(hf_lease_state(l), HF_AT_RISK);
    assert_int_equal(hf_lease_check(l), 0);
    core_pass(5 * SEC);
    assert_int_equal(w.renewals, 0);
    core_pass(hf__deadline(sent, TTL) - clk.now);
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    ev_left(w.left, 0);
    w.left = NULL;
    core_release(l);
}

/* A session serves the others that hang on it, and is renewed for them. */
static void one_of_two_is_marked(void)
{
    struct life *session = hf__life_new(&w.store, LIFE_WIDE, TTL);
    struct hf_op op[2];
    struct ticket *t[2];
    int64_t sent = clk.now;

    for (int i = 0; i < 2; i++) {
        core_start(&op[i], NULL, HF_FOREVER, NULL);
        t[i] = w.joined;
        assert_true(w.store.shares_lives == !t[i]->own);
        hf__hang(t[i], session);
        ev_alive(session, sent, TTL);
        ev_granted(t[i], 7, sent);
        assert_int_equal(op[i].rc, 0);
    }
    ev_marked(t[0]);
    assert_ptr_equal(t[0]->life, t[0]->own);
    assert_int_equal(hf_lease_state(op[0].lease), HF_AT_RISK);
    assert_int_equal(hf_lease_state(op[1].lease), HF_HELD);
    w.nrenewed = 0;
    core_pass(4 * SEC);
    assert_int_equal(w.nrenewed, 1);
    assert_ptr_equal(w.renewed[0], session);
    ev_alive(session, clk.now, TTL);
    core_pass(hf__deadline(sent, TTL) - clk.now);
    assert_int_equal(hf_lease_check(op[0].lease), HF_ELOST);
    assert_int_equal(hf_lease_check(op[1].lease), 0);
    assert_ptr_equal(w.left, t[0]);
    ev_left(t[0], 0);
    w.left = NULL;
    core_release(op[0].lease);
    core_release(op[1].lease);
    hf__life_free(session);
}

static void marked_hold_leaves_the_life_that_others_share(void **state)
{
    (void)state;
    one_of_two_is_marked();
    w.store.shares_lives = true; /* it gets its own life with the mark */
    one_of_two_is_marked();
}

/* hf_release after hf_close: the driver's close has freed the store. */
static void marked_hold_is_released_after_its_store_was_closed(void **state)
{
    struct life *session;
    struct hf_op op;

    (void)state;
    w.store.shares_lives = true;
    session = hf__life_new(&w.store, LIFE_WIDE, TTL);
    core_start(&op, NULL, HF_FOREVER, NULL);
    hf__hang(w.joined, session);
    ev_alive(session, clk.now, TTL);
    ev_granted(w.joined, 7, clk.now);
    ev_marked(w.joined);
    assert_ptr_not_equal(w.joined->life, session);
    hf__client_shut(&w.c);
    hf__client_done(&w.c);
    hf__life_free(session);
    memset(&w.store, 0, sizeof w.store);
    hf__release(NULL, op.lease, 0);
    assert_true(list_empty(&w.c.holds));
    free(op.lease);
}

static void dead_life_loses_the_hold_at_once(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);

    (void)state;
    assert_int_equal(hf_lease_check(l), 0);
    ev_dead(w.joined->own);
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    hf__client_run(&w.c);
    assert_int_equal(w.leaves, 1);
    ev_left(w.left, 0);
    w.left = NULL;
    core_release(l);
}

static void no_renew_is_not_renewed(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, HF_REQUEST(.flags = HF_NO_RENEW));
    struct hf_op op;
    int64_t sent;

    (void)state;
    core_pass(5 * SEC);
    assert_int_equal(w.renewals, 0);
    sent = clk.now;
    hf__op_init(&op, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&op, l->parts[0].hold, 3000), 0);
    assert_int_equal(w.renewals, 1);
    ev_alive(w.renewed[0], sent, 3000);
    assert_true(op.done);
    assert_int_equal(hf_lease_check(l), 0);
    core_pass(3 * SEC);
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    ev_left(w.left, 0);
    w.left = NULL;
    core_release(l);
}

static void shorter_ttl_counts_from_its_sending(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    struct hf_op op;
    int64_t sent = clk.now;

    (void)state;
    core_pass(2 * SEC);
    hf__op_init(&op, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&op, l->parts[0].hold, 1000), 0);
    /* of an earlier request, for the time it asked for */
    ev_alive(w.renewed[0], sent, TTL);
    assert_false(op.done);
    core_pass(SEC); /* no answer: the store may have ended it by now (G1) */
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_ELOST);
    ev_left(w.left, HF_EUNKNOWN);
    /* or it has never heard of that request: the leave is repeated until then */
    core_pass(7 * SEC);
    assert_int_equal(w.c.unsettled, 1);
    ev_left(w.left, 0);
    w.left = NULL;
    core_release(l);
}

/* An earlier request was answered after a shorter time was asked for: that one counts from
 * its own sending, not from the earlier one's. */
static void shorter_ttl_is_not_counted_from_an_earlier_request(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    struct hf_op op;
    int64_t sent, asked;

    (void)state;
    core_pass(3 * SEC);
    sent = clk.now;
    clk.now += 2 * SEC;
    asked = clk.now;
    hf__op_init(&op, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&op, l->parts[0].hold, TTL / 2), 0);
    ev_alive(w.renewed[0], sent, TTL);
    clk.now = hf__until(asked, TTL / 2) - 1;
    assert_int_equal(hf_lease_check(l), 0);
    clk.now++;
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    ev_alive(w.renewed[0], asked, TTL / 2);
    core_release(l);
}

static void renewal_by_hand_is_not_answered_by_an_earlier_one(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);
    struct hf_op op;
    int64_t sent;

    (void)state;
    core_pass(3 * SEC);
    assert_int_equal(w.renewals, 1);
    sent = clk.now;
    clk.now += SEC / 2;
    hf__op_init(&op, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&op, l->parts[0].hold, 0), 0);
    assert_int_equal(w.renewals, 2);
    ev_alive(w.renewed[0], sent, TTL);
    assert_false(op.done);
    ev_alive(w.renewed[0], clk.now, TTL);
    assert_true(op.done);
    assert_int_equal(op.rc, 0);
    core_release(l);
}

static void no_renew_is_not_renewed_after_the_store_was_away(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, HF_REQUEST(.flags = HF_NO_RENEW));
    struct hf_op op;

    (void)state;
    ev_store(&w.store, STORE_DOWN, NULL);
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.renewals, 0);
    hf__op_init(&op, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&op, l->parts[0].hold, 0), 0);
    ev_store(&w.store, STORE_DOWN, NULL);
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.renewals, 2); /* but what was asked for is repeated */
    ev_alive(w.renewed[0], clk.now, TTL);
    assert_true(op.done);
    core_release(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CORE_TEST(deadline_counts_from_the_sending),
        CORE_TEST(renewed_at_a_third_and_repeated),
        CORE_TEST(at_risk_then_lost_before_the_deadline),
        CORE_TEST(at_risk_and_held_again),
        CORE_TEST(grant_by_another_counts_from_our_last_answer),
        CORE_TEST(waiter_without_answer_asks_less_often),
        CORE_TEST(short_grant_renews_thin_grant_confirms),
        CORE_TEST(late_answer_does_not_revive),
        CORE_TEST(max_hold_gives_the_place_up),
        CORE_TEST(marked_hold_is_at_risk_and_ends_at_its_deadline),
        CORE_TEST(marked_hold_leaves_the_life_that_others_share),
        CORE_TEST(marked_hold_is_released_after_its_store_was_closed),
        CORE_TEST(dead_life_loses_the_hold_at_once),
        CORE_TEST(no_renew_is_not_renewed),
        CORE_TEST(shorter_ttl_counts_from_its_sending),
        CORE_TEST(shorter_ttl_is_not_counted_from_an_earlier_request),
        CORE_TEST(renewal_by_hand_is_not_answered_by_an_earlier_one),
        CORE_TEST(no_renew_is_not_renewed_after_the_store_was_away),
    };

    return cmocka_run_group_tests_name("life", tests, NULL, NULL);
}
