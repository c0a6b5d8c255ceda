/* The core on a clock that we turn and a store that answers when we say so: validity, loss
 * grades, renewal, late grants, unknown answers, a store that goes away. */
#include "unit.h"

#include "core/core.h"
#include "core/url.h"

enum { TTL = 9000, SEC = 1000000 };

static struct {
    struct env env;
    struct store store;
    struct client c;
    struct heap timers;
    int64_t now;
    uint32_t random;
    bool full; /* no memory for timers */
    /* what the core asked of the store, and has not been answered */
    struct ticket *joined, *left, *amended;
    struct life *renewed[8];
    size_t nrenewed;
    int joins, leaves, renewals, changes;
    struct hf_op *done;
} w;

static int64_t env_now(struct env *e)
{
    (void)e;
    return w.now;
}

static void env_random(struct env *e, void *buf, size_t n)
{
    (void)e;
    memset(buf, 0, n);
    w.random++;
    memcpy(buf, &w.random, sizeof w.random);
}

static int env_reserve(struct env *e, int n)
{
    static int reserved;

    (void)e;
    if (n > 0 && w.full)
        return HF_ENOMEM;
    reserved += n;
    return reserved > 0 ? hf__heap_reserve(&w.timers, (size_t)reserved) : 0;
}

static void env_timer(struct env *e, struct timer *t, int64_t at)
{
    (void)e;
    if (at == LOOP_NEVER)
        hf__heap_remove(&w.timers, &t->node);
    else
        hf__heap_set(&w.timers, &t->node, at);
}

static int fake_open(struct store **ret, const struct url *u, struct env *e, hf_error *err)
{
    extern const struct hf_driver fake;

    (void)u;
    (void)err;
    w.store = (struct store){ .driver = &fake,
                              .env = e,
                              .caps = 0x7ff,
                              .least_ttl_ms = 10,
                              .most_ttl_ms = 1000000,
                              .name_max = 512 };
    *ret = &w.store;
    return 0;
}

static void fake_close(struct store *s)
{
    (void)s;
}

static void fake_join(struct store *s, struct ticket *t)
{
    (void)s;
    w.joined = t;
    w.joins++;
}

static void fake_leave(struct store *s, struct ticket *t)
{
    (void)s;
    w.left = t;
    w.leaves++;
}

static void fake_amend(struct store *s, struct ticket *t)
{
    (void)s;
    w.amended = t;
}

static void fake_renew(struct store *s, struct life *const *l, size_t n)
{
    (void)s;
    w.renewals++;
    w.nrenewed = n < 8 ? n : 8;
    memcpy(w.renewed, l, w.nrenewed * sizeof *l);
}

const struct hf_driver fake = { .name = "fake", .schemes = "fake", .open = fake_open,
                                .close = fake_close, .join = fake_join, .leave = fake_leave,
                                .amend = fake_amend, .renew = fake_renew };

static void op_done(struct hf_op *op)
{
    w.done = op;
}

static void op_seen(struct hf_op *op)
{
    (void)op;
}

static void lease_changed(struct hf_lease *l)
{
    (void)l;
    w.changes++;
}

static const struct host host = { op_done, op_seen, lease_changed, NULL };

static int setup(void **state)
{
    static const hf_options none = HF_OPTIONS_INIT;
    static const uint32_t alive = 1;
    struct url url;

    (void)state;
    memset(&w, 0, sizeof w);
    w.c.alive = &alive;
    w.now = 1000 * (int64_t)SEC;
    w.env = (struct env){ .now = env_now, .random = env_random, .reserve = env_reserve,
                          .timer = env_timer };
    if (hf__url_parse(&url, "fake:?ttl=9s&connect_timeout=3s", NULL) < 0)
        return -1;
    return hf__client_init(&w.c, &fake, &url, &none, &w.env, &host, NULL);
}

static int teardown(void **state)
{
    (void)state;
    hf__client_done(&w.c);
    hf__url_done(&w.c.url);
    hf__heap_done(&w.timers);
    return 0;
}

/* Turns the clock, running every timer on its way. */
static void pass(int64_t us)
{
    int64_t end = w.now + us;
    struct heap_node *n;

    while ((n = heap_first(&w.timers)) != NULL && n->key <= end) {
        struct timer *t = container_of(n, struct timer, node);

        if (n->key > w.now)
            w.now = n->key;
        hf__heap_remove(&w.timers, n);
        t->fire(t);
        hf__client_run(&w.c);
    }
    w.now = end;
}

static void start(struct hf_op *op, hf_error *err, int64_t wait_ms, const hf_request *req)
{
    const char *name = "n";
    struct request r;

    assert_int_equal(hf__check_request(&w.c, req, false, &r, err), 0);
    hf__op_init(op, &w.c, OP_ACQUIRE, err);
    assert_int_equal(hf__acquire(op, &name, 1, wait_ms, &r), 0);
}

static void release(struct hf_lease *l)
{
    hf__release(NULL, l, 0);
    free(l);
    if (w.left)
        ev_left(w.left, 0);
}

static struct hf_lease *hold(int64_t wait_ms, const hf_request *req)
{
    struct hf_op op;

    start(&op, NULL, wait_ms, req);
    ev_granted(w.joined, 7, w.now);
    assert_true(op.done);
    assert_int_equal(op.rc, 0);
    return op.lease;
}

/* ---- */

static void deadline_counts_from_the_sending(void **state)
{
    struct hf_op op;
    int64_t sent = w.now;

    (void)state;
    start(&op, NULL, HF_FOREVER, NULL);
    w.now += SEC;
    ev_granted(w.joined, 7, sent);
    w.now = hf__until(sent, TTL) - 1;
    assert_int_equal(hf_lease_check(op.lease), 0);
    w.now++;
    assert_int_equal(hf_lease_check(op.lease), HF_ELOST);
    assert_int_equal(hf__deadline(sent, TTL), sent + TTL * 1000 - TTL * 10 - 2000);
    assert_true(w.now < hf__deadline(sent, TTL));
    release(op.lease);
}

static void renewed_at_a_third_and_repeated(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, NULL);
    int64_t sent;

    (void)state;
    pass(2 * SEC);
    assert_int_equal(w.renewals, 0);
    pass(SEC);
    assert_int_equal(w.renewals, 1);
    sent = w.now;
    pass(2 * SEC); /* ttl/8 is 1.125 s: repeated once */
    assert_int_equal(w.renewals, 2);
    ev_alive(w.renewed[0], sent, TTL);
    assert_int_equal(hf_lease_state(l), HF_HELD);
    w.now = hf__until(sent, TTL) - 1;
    assert_int_equal(hf_lease_check(l), 0);
    release(l);
}

static void at_risk_then_lost_before_the_deadline(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, NULL);
    int64_t sent = w.now;

    (void)state;
    pass(6 * SEC - 1);
    assert_int_equal(hf_lease_state(l), HF_HELD);
    pass(1);
    assert_int_equal(hf_lease_state(l), HF_AT_RISK);
    assert_int_equal(hf_lease_check(l), 0);
    assert_int_equal(w.leaves, 0);
    pass(hf__deadline(sent, TTL) - 1 - w.now);
    assert_int_equal(hf_lease_state(l), HF_LOST); /* told before G1's deadline (G6) */
    assert_int_equal(w.leaves, 1);
    ev_alive(&w.joined->own, w.now, TTL); /* an answer that comes now changes nothing */
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    ev_left(w.left, 0);
    w.left = NULL;
    release(l);
}

static void at_risk_and_held_again(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, NULL);

    (void)state;
    pass(7 * SEC);
    assert_int_equal(hf_lease_state(l), HF_AT_RISK);
    ev_alive(w.renewed[0], w.now, TTL);
    assert_int_equal(hf_lease_state(l), HF_HELD);
    release(l);
}

static void grant_by_another_counts_from_our_last_answer(void **state)
{
    struct hf_op op;
    struct life *wait;
    int64_t sent = w.now;

    (void)state;
    start(&op, NULL, HF_FOREVER, NULL);
    wait = hf__life_new(&w.store, LIFE_WAIT, TTL);
    hf__hang(w.joined, wait);
    ev_alive(wait, sent, TTL);
    ev_waiting(w.joined, 3, -1);
    w.now += 2 * SEC;
    ev_granted(w.joined, 8, wait->sent_at);
    hf__life_free(wait);
    assert_true(op.done);
    assert_int_equal(w.renewals, 0); /* more than half is left */
    w.now = hf__deadline(sent, TTL);
    assert_int_equal(hf_lease_check(op.lease), HF_ELOST);
    release(op.lease);
}

static void waiter_without_answer_asks_less_often(void **state)
{
    struct hf_op op;
    struct life *wait;

    (void)state;
    start(&op, NULL, HF_FOREVER, NULL);
    wait = hf__life_new(&w.store, LIFE_WAIT, 100);
    hf__hang(w.joined, wait);
    ev_alive(wait, w.now, 100);
    ev_waiting(w.joined, 3, -1);
    pass(SEC / 10);
    assert_in_range(w.renewals, 4, 6); /* within its ttl every eighth of it */
    pass(600 * (int64_t)SEC);
    assert_in_range(w.renewals, 100, 250); /* then at most every five seconds, not 48,000 times */
    ev_alive(wait, w.now, 100);
    pass(SEC / 10);
    ev_granted(w.joined, 8, w.now);
    hf__life_free(wait);
    assert_true(op.done);
    release(op.lease);
}

static void short_grant_renews_thin_grant_confirms(void **state)
{
    struct hf_op op;
    int64_t sent = w.now;

    (void)state;
    start(&op, NULL, HF_FOREVER, NULL);
    w.now += 5 * SEC;
    ev_granted(w.joined, 8, sent);
    hf__client_run(&w.c);
    assert_true(op.done);
    assert_int_equal(w.renewals, 1);
    release(op.lease);

    w.left = NULL;
    sent = w.now;
    start(&op, NULL, HF_FOREVER, NULL);
    w.now += 8 * SEC;
    ev_granted(w.joined, 9, sent);
    hf__client_run(&w.c);
    assert_false(op.done);
    assert_int_equal(w.renewals, 2);
    ev_alive(w.renewed[0], w.now, TTL);
    assert_true(op.done);
    assert_int_equal(op.rc, 0);
    release(op.lease);
}

static void late_grant_after_time_out_is_left(void **state)
{
    struct hf_op op;
    hf_error err = { 0 };
    struct ticket *t;

    (void)state;
    start(&op, &err, 500, NULL);
    t = w.joined;
    pass(SEC);
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

static void unknown_leave_is_repeated_for_one_ttl(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, NULL);
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
        pass(SEC);
        assert_int_equal(w.leaves, i + 2);
        ev_left(w.left, HF_EUNKNOWN);
    }
    assert_int_equal(w.c.unsettled, 1);
    pass(SEC); /* nine seconds since the last request that could have kept it: not quite yet */
    ev_left(w.left, HF_EUNKNOWN);
    assert_int_equal(w.c.unsettled, 1);
    pass(SEC);
    assert_int_equal(w.c.unsettled, 0); /* out by its ttl */
    assert_true(list_empty(&w.c.holds));
}

/* Waiting tickets share a life: what keeps one of them in line keeps them all. */
static void unknown_leave_of_a_waiter_is_repeated_while_others_wait(void **state)
{
    struct hf_op op, next;
    struct ticket *t;

    (void)state;
    start(&op, NULL, 1000, NULL);
    t = w.joined;
    ev_waiting(t, 1, -1);
    pass(SEC);
    assert_int_equal(op.rc, HF_ETIMEDOUT);
    ev_left(t, HF_EUNKNOWN);
    for (int i = 0; i < 4; i++) {
        pass(SEC);
        ev_left(t, HF_EUNKNOWN);
    }
    start(&next, NULL, HF_FOREVER, NULL); /* may have renewed the life that t is on */
    for (int i = 0; i < 8; i++) {
        pass(SEC);
        assert_ptr_equal(w.left, t);
        ev_left(t, HF_EUNKNOWN);
    }
    assert_int_equal(w.c.unsettled, 1);
    ev_left(t, 0);
    assert_int_equal(w.c.unsettled, 0);
    ev_granted(w.joined, 9, w.now);
    w.left = NULL;
    release(next.lease);
}

static void late_answer_does_not_revive(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, NULL);
    int64_t sent = w.now;

    (void)state;
    w.now = hf__until(sent, TTL); /* nobody has driven us since */
    ev_alive(&w.joined->own, sent + SEC, TTL);
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    hf__client_run(&w.c);
    ev_left(w.left, 0);
    w.left = NULL;
    release(l);
}

static void waiter_whose_place_is_gone_joins_again(void **state)
{
    unsigned char first[HF_TOKEN];
    struct hf_op op;

    (void)state;
    start(&op, NULL, HF_FOREVER, NULL);
    memcpy(first, w.joined->token, HF_TOKEN);
    ev_waiting(w.joined, 1, -1);
    ev_gone(w.joined, HF_ELOST, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.joins, 2);
    assert_memory_not_equal(w.joined->token, first, HF_TOKEN);
    ev_granted(w.joined, 5, w.now);
    assert_true(op.done);
    release(op.lease);
}

static void refused_join_tells_why(void **state)
{
    struct hf_op op;
    hf_error err = { 0 }, why = { .code = HF_EMISMATCH, .text = "in use as permits" };

    (void)state;
    start(&op, &err, HF_FOREVER, NULL);
    ev_gone(w.joined, HF_EMISMATCH, &why);
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
    start(&op, NULL, HF_FOREVER, NULL);
    ev_waiting(w.joined, 1, -1);
    ev_gone(w.joined, HF_EAUTH, NULL);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_EAUTH);
    hf__client_run(&w.c);
    assert_int_equal(w.leaves, 1);
    ev_left(w.left, HF_EUNKNOWN); /* refused, too: repeated */
    pass(SEC);
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
    start(&op, NULL, HF_FOREVER, NULL);
    ev_store(&w.store, STORE_DOWN, &down);
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.joins, 2);
    ev_gone(w.joined, HF_EFULL, NULL);
    assert_int_equal(op.rc, HF_EFULL);
    hf__client_run(&w.c);
    assert_int_equal(w.leaves, 1);
    ev_left(w.left, 0);
    assert_true(list_empty(&w.c.holds));
}

/* What was sent before the store went away may be done as late as just before it is back. */
static void leave_is_repeated_however_long_the_store_was_away(void **state)
{
    hf_error down = { .code = HF_EUNREACHABLE };
    struct hf_op op;

    (void)state;
    start(&op, NULL, 1000, NULL);
    ev_waiting(w.joined, 1, -1);
    ev_store(&w.store, STORE_DOWN, &down);
    pass(SEC);
    assert_int_equal(op.rc, HF_ETIMEDOUT);
    assert_int_equal(w.leaves, 1);
    ev_left(w.left, HF_EUNKNOWN);
    pass(100 * SEC);
    assert_int_equal(w.leaves, 1); /* there is nobody to hear it */
    ev_store(&w.store, STORE_UP, NULL);
    hf__client_run(&w.c);
    assert_int_equal(w.leaves, 2);
    ev_left(w.left, 0);
    assert_true(list_empty(&w.c.holds));
}

static void max_hold_gives_the_place_up(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, HF_REQUEST(.max_hold_ms = 2000));

    (void)state;
    pass(2 * SEC - 1);
    assert_int_equal(hf_lease_check(l), 0);
    pass(2);
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    assert_int_equal(w.leaves, 1);
    ev_left(w.left, 0);
    w.left = NULL;
    release(l);
}

static void marked_hold_is_at_risk_and_ends_at_its_deadline(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, NULL);
    int64_t sent = w.now;

    (void)state;
    ev_dead(&w.joined->own, HF_EBUSY);
    assert_int_equal(hf_lease_state(l), HF_AT_RISK);
    assert_int_equal(hf_lease_check(l), 0);
    pass(5 * SEC);
    assert_int_equal(w.renewals, 0);
    pass(hf__deadline(sent, TTL) - w.now);
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    ev_left(w.left, 0);
    w.left = NULL;
    release(l);
}

static void dead_life_loses_the_hold_at_once(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, NULL);

    (void)state;
    assert_int_equal(hf_lease_check(l), 0);
    ev_dead(&w.joined->own, HF_ELOST);
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    hf__client_run(&w.c);
    assert_int_equal(w.leaves, 1);
    ev_left(w.left, 0);
    w.left = NULL;
    release(l);
}

static void no_renew_is_not_renewed(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, HF_REQUEST(.flags = HF_NO_RENEW));
    struct hf_op op;
    int64_t sent;

    (void)state;
    pass(5 * SEC);
    assert_int_equal(w.renewals, 0);
    sent = w.now;
    hf__op_init(&op, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&op, l->parts[0].hold, 3000), 0);
    assert_int_equal(w.renewals, 1);
    ev_alive(w.renewed[0], sent, 3000);
    assert_true(op.done);
    assert_int_equal(hf_lease_check(l), 0);
    pass(3 * SEC);
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    ev_left(w.left, 0);
    w.left = NULL;
    release(l);
}

static void shorter_ttl_counts_from_its_sending(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, NULL);
    struct hf_op op;
    int64_t sent = w.now;

    (void)state;
    pass(2 * SEC);
    hf__op_init(&op, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&op, l->parts[0].hold, 1000), 0);
    ev_alive(w.renewed[0], sent, TTL); /* of an earlier request, for the time it asked for */
    assert_false(op.done);
    pass(SEC); /* no answer: the store may have ended it by now (G1) */
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_ELOST);
    ev_left(w.left, HF_EUNKNOWN);
    pass(7 * SEC); /* or it has never heard of that request: the leave is repeated until then */
    assert_int_equal(w.c.unsettled, 1);
    ev_left(w.left, 0);
    w.left = NULL;
    release(l);
}

/* An earlier request was answered after a shorter time was asked for: that one counts from its own
 * sending, not from the earlier one's. */
static void shorter_ttl_is_not_counted_from_an_earlier_request(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, NULL);
    struct hf_op op;
    int64_t sent, asked;

    (void)state;
    pass(3 * SEC);
    sent = w.now;
    w.now += 2 * SEC;
    asked = w.now;
    hf__op_init(&op, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&op, l->parts[0].hold, TTL / 2), 0);
    ev_alive(w.renewed[0], sent, TTL);
    w.now = hf__until(asked, TTL / 2) - 1;
    assert_int_equal(hf_lease_check(l), 0);
    w.now++;
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    ev_alive(w.renewed[0], asked, TTL / 2);
    release(l);
}

static void renewal_by_hand_is_not_answered_by_an_earlier_one(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, NULL);
    struct hf_op op;
    int64_t sent;

    (void)state;
    pass(3 * SEC);
    assert_int_equal(w.renewals, 1);
    sent = w.now;
    w.now += SEC / 2;
    hf__op_init(&op, &w.c, OP_RENEW, NULL);
    assert_int_equal(hf__renew(&op, l->parts[0].hold, 0), 0);
    assert_int_equal(w.renewals, 2);
    ev_alive(w.renewed[0], sent, TTL);
    assert_false(op.done);
    ev_alive(w.renewed[0], w.now, TTL);
    assert_true(op.done);
    assert_int_equal(op.rc, 0);
    release(l);
}

static void no_renew_is_not_renewed_after_the_store_was_away(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, HF_REQUEST(.flags = HF_NO_RENEW));
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
    ev_alive(w.renewed[0], w.now, TTL);
    assert_true(op.done);
    release(l);
}

static void change_is_repeated_after_the_store_was_away(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, NULL);
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
    release(l);
}

static void try_that_is_not_answered_ends(void **state)
{
    hf_error err = { 0 };
    struct hf_op op;

    (void)state;
    start(&op, &err, 0, NULL);
    ev_store(&w.store, STORE_DOWN, NULL); /* after it was sent */
    pass(3 * SEC);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_EUNREACHABLE);
    assert_int_equal(w.leaves, 1); /* it may stand in the line (G7) */
    ev_left(w.left, 0);
    assert_true(list_empty(&w.c.holds));
}

static void release_without_memory_for_a_timer_is_forgotten(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, NULL);
    struct hf_op op;

    (void)state;
    hf__op_init(&op, &w.c, OP_RELEASE, NULL);
    w.full = true;
    hf__release(&op, l, 0);
    w.full = false;
    free(l);
    assert_true(op.done);
    assert_int_equal(op.rc, HF_EUNKNOWN);
    op.open = 77;
    ev_left(w.left, 0);
    assert_int_equal(op.open, 77); /* it is the caller's memory again */
    assert_true(list_empty(&w.c.holds));
}

static void lost_hold_is_not_kept(void **state)
{
    struct hf_lease *l = hold(HF_FOREVER, NULL);

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
    start(&op, &err, HF_FOREVER, NULL);
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
    ev_dead(&first->own, HF_ELOST); /* while it waits for the second */
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
    struct hf_lease *l = hold(HF_FOREVER, NULL);
    struct hf_op op;

    (void)state;
    ev_store(&w.store, STORE_DOWN, &down);
    start(&op, &err, HF_FOREVER, NULL);
    assert_int_equal(w.joins, 1);
    pass(3 * SEC);
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
    release(l);
}

static void reentry_by_owner_makes_no_traffic(void **state)
{
    struct hf_lease *a = hold(HF_FOREVER, HF_REQUEST(.owner = 5)), *b;
    struct hf_op op;

    (void)state;
    start(&op, NULL, HF_FOREVER, HF_REQUEST(.owner = 5, .mode = HF_READ));
    assert_true(op.done);
    b = op.lease;
    assert_int_equal(w.joins, 1);
    assert_int_equal(hf_lease_fence(b), 7);
    hf__release(NULL, a, 0);
    free(a);
    assert_int_equal(w.leaves, 0);
    assert_int_equal(hf_lease_check(b), 0);
    release(b);
    assert_int_equal(w.leaves, 1);
}

static void lost_hold_is_not_reentered(void **state)
{
    struct hf_lease *a = hold(HF_FOREVER, HF_REQUEST(.owner = 5));
    struct hf_op op;

    (void)state;
    ev_dead(&w.joined->own, HF_ELOST);
    start(&op, NULL, HF_FOREVER, HF_REQUEST(.owner = 5));
    assert_false(op.done);
    assert_int_equal(w.joins, 2);
    hf__cancel(&op, HF_ECANCELED);
    hf__client_run(&w.c);
    list_for_safe(n, &w.c.holds)
        ev_left(&container_of(n, struct hold, node)->t, 0);
    w.left = NULL;
    release(a);
}

/* Nobody turned the loop, so nobody was told; the hold is over all the same (G9). */
static void expired_hold_is_not_reentered(void **state)
{
    struct hf_lease *a = hold(HF_FOREVER, HF_REQUEST(.owner = 5));
    struct ticket *first = w.joined;
    struct hf_op op;

    (void)state;
    w.now = hf__until(w.now, TTL);
    start(&op, NULL, HF_FOREVER, HF_REQUEST(.owner = 5));
    assert_false(op.done);
    assert_ptr_not_equal(w.joined, first);
    hf__cancel(&op, HF_ECANCELED);
    hf__client_run(&w.c);
    ev_left(w.left, 0);
    w.left = NULL;
    release(a);
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
    assert_int_equal(hf__check_request(&w.c, (const void *)bigger, false, &r, &err), HF_EINVAL);
    assert_int_equal(w.joins, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(deadline_counts_from_the_sending),
        TEST(renewed_at_a_third_and_repeated),
        TEST(at_risk_then_lost_before_the_deadline),
        TEST(at_risk_and_held_again),
        TEST(grant_by_another_counts_from_our_last_answer),
        TEST(waiter_without_answer_asks_less_often),
        TEST(short_grant_renews_thin_grant_confirms),
        TEST(late_grant_after_time_out_is_left),
        TEST(unknown_leave_is_repeated_for_one_ttl),
        TEST(unknown_leave_of_a_waiter_is_repeated_while_others_wait),
        TEST(late_answer_does_not_revive),
        TEST(waiter_whose_place_is_gone_joins_again),
        TEST(refused_join_tells_why),
        TEST(refused_waiter_is_left),
        TEST(repeated_join_that_is_refused_is_left),
        TEST(leave_is_repeated_however_long_the_store_was_away),
        TEST(max_hold_gives_the_place_up),
        TEST(marked_hold_is_at_risk_and_ends_at_its_deadline),
        TEST(dead_life_loses_the_hold_at_once),
        TEST(no_renew_is_not_renewed),
        TEST(shorter_ttl_counts_from_its_sending),
        TEST(shorter_ttl_is_not_counted_from_an_earlier_request),
        TEST(renewal_by_hand_is_not_answered_by_an_earlier_one),
        TEST(no_renew_is_not_renewed_after_the_store_was_away),
        TEST(change_is_repeated_after_the_store_was_away),
        TEST(try_that_is_not_answered_ends),
        TEST(release_without_memory_for_a_timer_is_forgotten),
        TEST(lost_hold_is_not_kept),
        TEST(error_text_is_of_this_call),
        TEST(several_names_are_not_granted_with_one_lost),
        TEST(store_that_is_down_is_told_in_time_and_repeated_after),
        TEST(reentry_by_owner_makes_no_traffic),
        TEST(lost_hold_is_not_reentered),
        TEST(expired_hold_is_not_reentered),
        TEST(bad_requests_change_nothing),
    };

    return cmocka_run_group_tests_name("core", tests, NULL, NULL);
}
