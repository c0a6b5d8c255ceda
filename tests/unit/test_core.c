/* The core: late grants, unknown answers, refusals, a store that goes away, re-entry,
 * several names. */
#include "core_harness.h"

static void late_grant_after_time_out_is_left(void **state)
{
    struct hf_op op;
    hf_error err = { 0 };
    struct ticket *t;

    (void)state;
    core_start(&op, &err, 500, NULL);
    t = w.joined;
    core_pass(SEC);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_ETIMEDOUT);
    assert_int_equal(err.code, HF_ETIMEDOUT);
    assert_int_equal(w.leaves, 1);
    assert_ptr_equal(w.left, t);
    ev_granted(t, 9, w.now);
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
    core_pass(SEC);
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
    ev_granted(w.joined, 9, w.now);
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
    ev_alive(l, w.now, TTL);
    ev_waiting(t, 1, -1);
    core_pass(SEC);
    hf__hang(t, &t->own); /* the driver knows it no more */
    ev_left(t, HF_EUNKNOWN);
    core_start(&next, NULL, HF_FOREVER, NULL);
    u = w.joined;
    for (int i = 0; i < 5; i++) {
        core_pass(SEC);
        ev_left(t, HF_EUNKNOWN);
    }
    hf__hang(u, l); /* called for five seconds ago, done now */
    ev_alive(l, w.now, TTL);
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
    ev_granted(w.joined, 5, w.now);
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
    ev_granted(w.joined, 5, w.now);
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
        w.now += SEC;
        if (confirming)
            ev_granted(w.joined, 5, w.now - 8 * (int64_t)SEC);
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
    w.looked->again_at = w.now + 2 * SEC;
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

static void lost_hold_is_not_kept(void **state)
{
    struct hf_lease *l = core_hold(HF_FOREVER, NULL);

    (void)state;
    w.now += 9 * SEC; /* nobody has driven us */
    assert_int_equal(hf__release(NULL, l, 60000), HF_ELOST);
    free(l);
    assert_int_equal(w.left->keep_ms, 0);
    ev_left(w.left, 0);
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
    struct request r;
    struct hf_op op;

    (void)state;
    assert_int_equal(hf__check_request(&w.c, NULL, false, &r, NULL), 0);
    hf__op_init(&op, &w.c, OP_ACQUIRE, NULL);
    assert_int_equal(hf__acquire(&op, names, 2, HF_FOREVER, &r), 0);
    first = w.joined;
    ev_granted(first, 7, w.now);
    hf__client_run(&w.c);
    assert_ptr_not_equal(w.joined, first);
    ev_dead(&first->own); /* while it waits for the second */
    hf__client_run(&w.c);
    assert_ptr_equal(w.left, first);
    ev_left(first, 0);
    ev_granted(w.joined, 8, w.now);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_ELOST);
    hf__client_run(&w.c);
    assert_ptr_equal(w.left, w.joined); /* all of them or none */
    ev_left(w.left, 0);
    assert_true(list_empty(&w.c.holds));
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
    ev_alive(w.renewed[0], w.now, TTL);
    assert_int_equal(hf_lease_state(l), HF_HELD);
    core_release(l);
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
    ev_dead(&w.joined->own);
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
    w.now = hf__until(w.now, TTL);
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
    struct request r;
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
        CORE_TEST(a_follow_is_asked_again),
        CORE_TEST(a_follow_outlives_the_connection),
        CORE_TEST(an_error_ends_a_follow),
        CORE_TEST(a_list_has_a_limit_for_each_answer),
        CORE_TEST(a_stalled_join_says_why),
        CORE_TEST(unknown_leave_is_repeated_for_one_ttl),
        CORE_TEST(unknown_leave_of_a_waiter_is_repeated_while_others_wait),
        CORE_TEST(a_join_that_was_put_off_keeps_the_others_longer),
        CORE_TEST(waiter_whose_place_is_gone_joins_again),
        CORE_TEST(delayed_join_comes_when_its_time_has_come),
        CORE_TEST(delayed_join_is_given_up),
        CORE_TEST(delay_that_is_past_is_no_reason),
        CORE_TEST(delayed_join_while_the_store_is_down),
        CORE_TEST(hold_that_is_gone_a_while_is_lost),
        CORE_TEST(evicted_waiter_is_told),
        CORE_TEST(evicted_hold_is_lost),
        CORE_TEST(refused_join_tells_why),
        CORE_TEST(refused_waiter_is_left),
        CORE_TEST(repeated_join_that_is_refused_is_left),
        CORE_TEST(a_part_that_is_back_is_asked_alone),
        CORE_TEST(leave_is_repeated_however_long_the_store_was_away),
        CORE_TEST(unreachable_is_told_as_such_however_short_the_wait),
        CORE_TEST(connect_ends_when_the_store_is_up_or_refuses),
        CORE_TEST(join_that_was_not_answered_before_the_store_went_away),
        CORE_TEST(change_is_repeated_after_the_store_was_away),
        CORE_TEST(try_that_is_not_answered_ends),
        CORE_TEST(release_that_is_not_answered_is_forgotten),
        CORE_TEST(no_verb_follows_the_end_of_the_session),
        CORE_TEST(cell_outside_the_limits_is_refused),
        CORE_TEST(cell_is_refused_when_the_store_is_known),
        CORE_TEST(lost_hold_is_not_kept),
        CORE_TEST(error_text_is_of_this_call),
        CORE_TEST(several_names_are_not_granted_with_one_lost),
        CORE_TEST(store_that_is_down_is_told_in_time_and_repeated_after),
        CORE_TEST(reentry_by_owner_makes_no_traffic),
        CORE_TEST(lost_hold_is_not_reentered),
        CORE_TEST(expired_hold_is_not_reentered),
        CORE_TEST(bad_requests_change_nothing),
    };

    return cmocka_run_group_tests_name("core", tests, NULL, NULL);
}
