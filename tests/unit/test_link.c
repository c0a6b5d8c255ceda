/* test_link.c: one connection on a transport that does what the test says: every state,
 * loss in each, calls that cannot be sent, pauses, late answers, missing memory. What
 * happens is written down, one word per event, and compared. */
#include "fake_clock.h"
#include "kit/link.h"
#include "unit.h"

#include <stdbool.h>

enum { CONNECT_MS = 8000, LIMIT_MS = 1000, CALLS = 16 };

static struct {
    int64_t limit_ms, opened_with_ms;
    uint32_t dice;
    struct list dirty;
    struct link k;
    char log[1000];
    hf_error err;
    int open_rc, send_rc; /* what the transport answers */
    int64_t retry_us;     /* in `lost`: sets the timer itself */
    bool lost_in_flush;
    int answer_in_read; /* so many calls are answered when the link reads */
    bool bytes_in_read; /* a part of an answer is there */
    struct link_call calls[CALLS];
    int times[CALLS]; /* how often each was answered, or told that it is not */
    int send_again;   /* in `unanswered`: sends so many more */
    size_t next;      /* the first call that was not used */
} w;

static void note(const char *, ...) __attribute__((format(printf, 1, 2)));

static void note(const char *fmt, ...)
{
    size_t n = strlen(w.log);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(w.log + n, sizeof w.log - n, fmt, ap);
    va_end(ap);
    assert_true(strlen(w.log) + 1 < sizeof w.log);
}

#define happened(text)                                                                     \
    do {                                                                                   \
        assert_string_equal(w.log, text);                                                  \
        w.log[0] = '\0';                                                                   \
    } while (0)

/* ---- the world ------------------------------------------------------------------- */

static void env_random(struct env *e, void *buf, size_t n)
{
    (void)e;
    memcpy(buf, &w.dice, n);
}

/* ---- the transport --------------------------------------------------------------- */

static int number(const struct link_call *c)
{
    return (int)(c - w.calls);
}

static int fake_open(struct link *k, int64_t ms, hf_error *err)
{
    (void)k;
    note("open ");
    w.opened_with_ms = ms;
    return w.open_rc < 0 ? hf__fail(err, w.open_rc, 0, "there", "cannot open") : 0;
}

static void fake_close(struct link *k)
{
    (void)k;
    note("close ");
}

static int fake_send(struct link *k, struct link_call *c)
{
    (void)k;
    if (w.send_rc == 0)
        note("send%d ", number(c));
    return w.send_rc;
}

static void fake_flush(struct link *k)
{
    if (!w.lost_in_flush)
        return;
    w.lost_in_flush = false;
    hf__link_lost(k, &w.err);
}

static void answer(void)
{
    struct link_call *c = hf__link_oldest(&w.k);

    assert_non_null(c);
    hf__link_answered(&w.k);
    w.times[number(c)]++;
    note("answer%d ", number(c));
}

static bool fake_read(struct link *k)
{
    bool heard = w.answer_in_read > 0 || w.bytes_in_read;

    (void)k;
    note("read ");
    while (w.answer_in_read > 0) {
        w.answer_in_read--;
        answer();
    }
    w.bytes_in_read = false;
    return heard;
}

/* ---- the driver ------------------------------------------------------------------ */

static int64_t limit_ms(const struct link *k)
{
    (void)k;
    return w.limit_ms;
}

static void greet(struct link *k)
{
    assert_int_equal(k->state, LINK_GREETING);
    note("greet ");
}

static void down(struct link *k, const hf_error *err)
{
    assert_int_equal(k->state, LINK_CLOSED);
    note("down(%s) ", err->text);
}

static void send(int i)
{
    char before[sizeof w.log];

    w.next = (size_t)i + 1 > w.next ? (size_t)i + 1 : w.next;
    strcpy(before, w.log);
    hf__link_send(&w.k, &w.calls[i]);
    /* nothing but the sending itself */
    assert_int_equal(strncmp(w.log, before, strlen(before)), 0);
    assert_null(strstr(w.log + strlen(before), "un"));
    assert_null(strstr(w.log + strlen(before), "down"));
}

static void unanswered(struct link *k, struct link_call *c)
{
    (void)k;
    w.times[number(c)]++;
    note("un%d ", number(c));
    if (w.send_again > 0) {
        w.send_again--;
        send((int)w.next);
    }
}

static void lost(struct link *k, const hf_error *err)
{
    assert_int_equal(k->state, LINK_CLOSED);
    assert_string_equal(err->where, "there");
    note("lost ");
    if (w.retry_us > 0)
        clk.env.timer(&clk.env, &k->retry, clk.now + w.retry_us);
}

static const struct link_transport transport = { fake_open, fake_close, fake_send,
                                                 fake_flush, fake_read };
static const struct link_events events = { limit_ms, greet, down, unanswered, lost };

static int begin(void **state)
{
    (void)state;
    memset(&w, 0, sizeof w);
    clock_start(1000000000, env_random);
    w.limit_ms = LIMIT_MS;
    list_init(&w.dirty);
    hf__link_init(&w.k, &clk.env, &transport, &events, &w.dirty, CONNECT_MS);
    w.k.where = "there";
    hf__fail(&w.err, HF_EUNREACHABLE, 0, "there", "broke");
    return 0;
}

/* Every call that was sent has been answered once, and nothing is left to be done. */
static int end(void **state)
{
    (void)state;
    for (size_t i = 0; i < w.next; i++)
        assert_int_equal(w.times[i], 1);
    hf__link_done(&w.k);
    assert_true(clock_next() == LOOP_NEVER);
    assert_true(list_empty(&w.dirty));
    return 0;
}

static void go(enum link_state to)
{
    if (to >= LINK_OPENING)
        hf__link_start(&w.k);
    if (to >= LINK_GREETING)
        hf__link_opened(&w.k);
    if (to >= LINK_SETTLING)
        hf__link_settle(&w.k);
    if (to >= LINK_UP)
        hf__link_up(&w.k);
    assert_int_equal(w.k.state, to);
    w.log[0] = '\0';
}

/* ---- cases ----------------------------------------------------------------------- */

static void it_goes_from_state_to_state(void **state)
{
    (void)state;
    assert_int_equal(w.k.state, LINK_CLOSED);
    hf__link_start(&w.k);
    assert_int_equal(w.k.state, LINK_OPENING);
    assert_int_equal(w.opened_with_ms, LIMIT_MS);
    hf__link_start(&w.k); /* it is on its way */
    happened("open ");
    hf__link_opened(&w.k);
    happened("greet ");
    hf__link_settle(&w.k);
    assert_int_equal(w.k.state, LINK_SETTLING);
    hf__link_up(&w.k);
    send(0);
    send(1);
    happened("send0 send1 ");
    assert_int_equal(w.calls[0].sent_at, clk.now);
    hf__link_flush(&w.dirty);
    answer();
    answer();
    assert_null(hf__link_oldest(&w.k));
    happened("answer0 answer1 ");
}

static void loss_is_told_in_order_in_each_state(void **state)
{
    for (enum link_state s = LINK_GREETING; s <= LINK_UP; s++) {
        begin(state);
        go(s);
        send(0);
        send(1);
        happened("send0 send1 ");
        hf__link_lost(&w.k, &w.err);
        happened("down(broke) un0 un1 lost ");
        clock_pass(20000, NULL);
        happened("open ");
        end(state);
    }
    begin(state);
    go(LINK_OPENING);
    hf__link_lost(&w.k, &w.err);
    happened("down(broke) lost ");
    clock_pass(20000, NULL);
    happened("open ");
}

static void loss_inside_a_flush_is_told_once(void **state)
{
    (void)state;
    go(LINK_UP);
    send(0);
    w.lost_in_flush = true;
    hf__link_flush(&w.dirty);
    happened("send0 down(broke) un0 lost ");
}

static void what_cannot_be_sent_is_unanswered_at_the_next_flush(void **state)
{
    (void)state;
    send(0); /* closed */
    happened("");
    hf__link_flush(&w.dirty);
    happened("un0 ");
    go(LINK_OPENING);
    send(1);
    hf__link_flush(&w.dirty);
    happened("un1 ");
    hf__link_opened(&w.k);
    hf__link_up(&w.k);
    w.log[0] = '\0';
    w.send_rc = HF_ENOENT; /* what it was about has gone: the link goes on */
    send(2);
    w.send_rc = 0;
    send(3);
    w.next = 5;
    hf__link_refuse(&w.k, &w.calls[4]); /* there is no way for it */
    happened("send3 ");
    hf__link_flush(&w.dirty);
    happened("un2 un4 ");
    assert_int_equal(w.k.state, LINK_UP);
    answer();
    happened("answer3 ");
}

static void or_in_the_next_turn_if_nobody_flushes(void **state)
{
    (void)state;
    send(0);
    clock_pass(0, NULL);
    happened("un0 ");
    go(LINK_UP);
    hf__link_fail(&w.k, HF_EPROTO, "nonsense");
    happened("");
    clock_pass(0, NULL);
    happened("close down(nonsense) lost ");
}

/* One that asks again when it has no answer is refused again, not inside and not twice. */
static void asking_again_is_refused_later(void **state)
{
    (void)state;
    go(LINK_UP);
    send(0);
    w.send_again = 3;
    hf__link_lost(&w.k, &w.err);
    happened("send0 down(broke) un0 lost ");
    hf__link_flush(&w.dirty);
    happened("un1 un2 un3 ");
}

static void a_broken_link_is_given_up_at_the_flush(void **state)
{
    (void)state;
    hf__link_fail(&w.k, HF_EPROTO, "nonsense"); /* there is nothing to give up */
    hf__link_flush(&w.dirty);
    happened("");
    go(LINK_UP);
    send(0);
    hf__link_fail(&w.k, HF_EPROTO, "nonsense %d", 1);
    hf__link_fail(&w.k, HF_EPROTO, "nonsense %d", 2); /* the first reason counts */
    assert_false(link_open(&w.k));
    send(1);
    happened("send0 ");
    hf__link_flush(&w.dirty);
    happened("close down(nonsense 1) un0 un1 lost ");
    clock_pass(20000, NULL);
    happened("open ");
    assert_false(w.k.broken);
}

static void dropping_is_at_once(void **state)
{
    (void)state;
    hf__link_drop(&w.k, &w.err); /* it is not open */
    happened("");
    go(LINK_UP);
    send(0);
    hf__link_drop(&w.k, &w.err);
    happened("send0 close down(broke) un0 lost ");
}

static void without_memory_everything_is_given_up(void **state)
{
    (void)state;
    go(LINK_UP);
    send(0);
    w.send_rc = HF_ENOMEM;
    send(1);
    w.send_rc = 0;
    send(2);
    happened("send0 ");
    hf__link_flush(&w.dirty);
    happened("close down(no memory for a request) un0 un1 un2 lost ");
    assert_int_equal(w.k.why.code, HF_ENOMEM);
}

static void a_peer_that_takes_nothing_is_given_up(void **state)
{
    (void)state;
    go(LINK_UP);
    w.send_rc = HF_EUNREACHABLE;
    send(0);
    hf__link_flush(&w.dirty);
    happened("close down(it takes nothing more) un0 lost ");
}

static void one_that_cannot_be_opened_is_lost_later(void **state)
{
    (void)state;
    w.open_rc = HF_ENOMEM;
    hf__link_start(&w.k);
    happened("open ");
    clock_pass(0, NULL);
    happened("close down(cannot open) lost ");
    w.open_rc = 0;
    clock_pass(20000, NULL);
    happened("open ");
    assert_int_equal(w.k.state, LINK_OPENING);
}

/* ---- pauses ---------------------------------------------------------------------- */

/* Fails once more; how long is it until the next try? */
static int64_t pause_after_failure(void)
{
    int64_t began = clk.now;

    hf__link_lost(&w.k, &w.err);
    w.log[0] = '\0';
    assert_true(clock_next() != LOOP_NEVER);
    clock_pass(clock_next() > clk.now ? clock_next() - clk.now : 0, NULL);
    happened("open ");
    return clk.now - began;
}

static void pauses_are_within_their_bounds(void **state)
{
    static const int64_t connect_ms[] = { 1, 50, 100, 160, 1000, 8000, 60000 };
    static const uint32_t dice[] = { 0, 12345, UINT32_MAX };

    for (size_t i = 0; i < sizeof connect_ms / sizeof *connect_ms; i++)
        for (size_t d = 0; d < sizeof dice / sizeof *dice; d++) {
            int64_t most = connect_ms[i] * 1000 / 8, want = 20000;

            most = most > 1000000 ? 1000000 : most < 1000 ? 1000 : most;
            begin(state);
            w.k.connect_ms = connect_ms[i];
            w.dice = dice[d];
            go(LINK_OPENING);
            for (int n = 0; n < 12; n++, want *= 2) {
                int64_t pause = pause_after_failure();

                want = want < most ? want : most;
                assert_in_range(pause, want / 2, want - 1);
                /* a call that waits for connect_ms has seen several tries */
                assert_true(connect_ms[i] < 8 || pause * 8 <= connect_ms[i] * 1000);
            }
            end(state);
        }
    begin(state);
}

static void pauses_begin_anew_when_it_was_up(void **state)
{
    (void)state;
    go(LINK_OPENING);
    for (int n = 0; n < 5; n++)
        assert_in_range(pause_after_failure(), (20000 << n) / 2, (20000 << n) - 1);
    hf__link_opened(&w.k);
    hf__link_up(&w.k);
    w.log[0] = '\0';
    assert_in_range(pause_after_failure(), 10000, 19999);
    pause_after_failure();
    hf__link_forgive(&w.k);
    assert_in_range(pause_after_failure(), 10000, 19999);
}

static void each_server_is_tried_before_there_is_a_pause(void **state)
{
    (void)state;
    w.k.choices = 3;
    go(LINK_OPENING);
    assert_int_equal(pause_after_failure(), 0);
    assert_int_equal(pause_after_failure(), 0);
    assert_in_range(pause_after_failure(), 10000, 19999);
    assert_in_range(pause_after_failure(), 20000, 39999);
}

static void the_driver_may_choose_when_to_try_again(void **state)
{
    (void)state;
    go(LINK_UP);
    w.retry_us = 123456;
    assert_int_equal(pause_after_failure(), 123456);
}

static void one_that_is_not_wanted_stays_closed(void **state)
{
    (void)state;
    go(LINK_UP);
    w.k.wanted = false;
    hf__link_lost(&w.k, &w.err);
    assert_true(clock_next() == LOOP_NEVER);
    hf__link_start(&w.k);
    hf__link_lost(&w.k, &w.err);
    w.k.wanted = false; /* in the pause */
    w.log[0] = '\0';
    clock_pass(10000000, NULL);
    happened("");
}

/* ---- late answers ---------------------------------------------------------------- */

static void an_answer_that_does_not_come_ends_it(void **state)
{
    (void)state;
    go(LINK_UP);
    send(0);
    clock_pass(LIMIT_MS * 500, NULL);
    send(1); /* the oldest counts */
    happened("send0 send1 ");
    clock_pass(LIMIT_MS * 500 - 1, NULL);
    happened("");
    clock_pass(1, NULL);
    happened("read close down(no answer within 1000 ms) un0 un1 lost ");
}

static void a_greeting_that_does_not_come_ends_it(void **state)
{
    (void)state;
    w.limit_ms = 300;
    go(LINK_GREETING);
    clock_pass(299999, NULL);
    happened("");
    clock_pass(1, NULL);
    happened("read close down(no answer within 300 ms) lost ");
}

static void a_server_that_goes_on_answering_is_not_given_up(void **state)
{
    (void)state;
    go(LINK_UP);
    for (int i = 0; i < 5; i++)
        send(i);
    for (int i = 0; i < 5; i++) {
        clock_pass(LIMIT_MS * 900, NULL);
        answer();
    }
    happened("send0 send1 send2 send3 send4 answer0 answer1 answer2 answer3 answer4 ");
    clock_pass(LIMIT_MS * 10000, NULL);
    happened("");
    assert_true(clock_next() == LOOP_NEVER);
    send(5);
    clock_pass(LIMIT_MS * 1000, NULL);
    happened("send5 read close down(no answer within 1000 ms) un5 lost ");
}

/* Nobody drove the loop for an hour: the answer is found before the time is looked at. */
static void what_has_come_by_then_is_in_time(void **state)
{
    (void)state;
    go(LINK_UP);
    send(0);
    send(1);
    clk.now += 3600000000;
    w.answer_in_read = 1;
    clock_pass(0, NULL);
    happened("send0 send1 read answer0 ");
    assert_int_equal(w.k.state, LINK_UP);
    clk.now += 3600000000;
    w.answer_in_read = 1;
    clock_pass(0, NULL);
    happened("read answer1 ");
    clock_pass(LIMIT_MS * 2000, NULL);
    happened("");
}

static void a_part_of_an_answer_is_read_on(void **state)
{
    (void)state;
    go(LINK_UP);
    send(0);
    clk.now += LIMIT_MS * 1000;
    w.bytes_in_read = true;
    clock_pass(0, NULL);
    happened("send0 read read close down(no answer within 1000 ms) un0 lost ");
}

static void a_limit_that_becomes_shorter_counts_for_the_next_call(void **state)
{
    (void)state;
    w.limit_ms = 60000;
    go(LINK_GREETING);
    w.limit_ms = 200;
    hf__link_settle(&w.k);
    send(0);
    clock_pass(200000, NULL);
    happened("send0 read close down(no answer within 200 ms) un0 lost ");
}

/* ---- the end --------------------------------------------------------------------- */

static void the_end_tells_nothing(void **state)
{
    struct link none;

    (void)state;
    memset(&none, 0, sizeof none);
    hf__link_done(&none);
    go(LINK_UP);
    send(0);
    w.send_rc = HF_ENOENT;
    send(1);
    w.log[0] = '\0';
    hf__link_done(&w.k);
    clock_pass(100000000, NULL);
    happened("close ");
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(hf__link_take(&w.k), &w.calls[i]);
        w.times[i]++;
    }
    assert_null(hf__link_take(&w.k));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(it_goes_from_state_to_state),
        CASE(loss_is_told_in_order_in_each_state),
        CASE(loss_inside_a_flush_is_told_once),
        CASE(what_cannot_be_sent_is_unanswered_at_the_next_flush),
        CASE(or_in_the_next_turn_if_nobody_flushes),
        CASE(asking_again_is_refused_later),
        CASE(a_broken_link_is_given_up_at_the_flush),
        CASE(dropping_is_at_once),
        CASE(without_memory_everything_is_given_up),
        CASE(a_peer_that_takes_nothing_is_given_up),
        CASE(one_that_cannot_be_opened_is_lost_later),
        CASE(pauses_are_within_their_bounds),
        CASE(pauses_begin_anew_when_it_was_up),
        CASE(each_server_is_tried_before_there_is_a_pause),
        CASE(the_driver_may_choose_when_to_try_again),
        CASE(one_that_is_not_wanted_stays_closed),
        CASE(an_answer_that_does_not_come_ends_it),
        CASE(a_greeting_that_does_not_come_ends_it),
        CASE(a_server_that_goes_on_answering_is_not_given_up),
        CASE(what_has_come_by_then_is_in_time),
        CASE(a_part_of_an_answer_is_read_on),
        CASE(a_limit_that_becomes_shorter_counts_for_the_next_call),
        CASE(the_end_tells_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
