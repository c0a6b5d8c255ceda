/* Whether a thread polls before it sleeps: core/spin.c, on numbers alone. */
#include "unit.h"

#include "core/spin.h"

enum { US = 100, SECOND = 1000000 };

static struct spin s;
static struct spin_budget b;

static int setup(void **state)
{
    (void)state;
    s = (struct spin){ .most_us = US };
    atomic_store(&b.whole_at, 0);
    atomic_store(&b.pause_till, 0);
    return 0;
}

static void trust(void)
{
    for (int i = 0; i < SPIN_TRUST; i++)
        hf__spin_slept(&s, US / 2);
}

static void polls_only_where_answers_are_near(void **state)
{
    (void)state;
    assert_int_equal(hf__spin_for(&s, &b, SECOND), 0);
    hf__spin_slept(&s, US);
    assert_int_equal(hf__spin_for(&s, &b, SECOND), 0);
    hf__spin_slept(&s, US);
    assert_int_equal(hf__spin_for(&s, &b, SECOND), US);
    hf__spin_slept(&s, US * SPIN_NEAR + 1); /* while it was not allowed to poll, say */
    assert_int_equal(hf__spin_for(&s, &b, SECOND), 0);
}

/* A machine on which every sleep takes longer than a poll would. */
static void slow_wakes_do_not_keep_it_from_polling(void **state)
{
    (void)state;
    for (int i = 0; i < SPIN_TRUST; i++)
        hf__spin_slept(&s, US * 3);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(hf__spin_for(&s, &b, SECOND), US);
        hf__spin_polled(&s, &b, US / 2, true, SECOND);
    }
    hf__spin_polled(&s, &b, US, false, SECOND);
    for (int i = 0; i < 2 * SPIN_TRUST; i++) {
        assert_int_equal(hf__spin_for(&s, &b, 2 * SECOND), 0);
        hf__spin_slept(&s, US * 3);
    }
    assert_int_equal(hf__spin_for(&s, &b, 2 * SECOND), US);
}

static void what_never_pays_is_tried_ever_more_rarely(void **state)
{
    int polls = 0;

    (void)state;
    for (int64_t i = 0; i < 100000; i++) {
        int64_t now = SECOND + i * US * 4;

        if (hf__spin_for(&s, &b, now) > 0) {
            hf__spin_polled(&s, &b, US, false, now + US);
            polls++;
        } else {
            hf__spin_slept(&s, US * 3);
        }
    }
    assert_in_range(polls, SPIN_VAIN, SPIN_VAIN + 100000 / (SPIN_TRUST << SPIN_VAIN));
}

static void never_is_never(void **state)
{
    (void)state;
    s.most_us = 0;
    for (int i = 0; i < 10; i++)
        hf__spin_slept(&s, 0);
    assert_int_equal(hf__spin_for(&s, &b, SECOND), 0);
}

static void a_poll_in_vain_ends_the_trust(void **state)
{
    (void)state;
    trust();
    hf__spin_polled(&s, &b, 10, true, SECOND);
    assert_int_equal(hf__spin_for(&s, &b, SECOND), US);
    hf__spin_polled(&s, &b, US, false, SECOND);
    for (int i = 0; i < 2 * SPIN_TRUST; i++) {
        assert_int_equal(hf__spin_for(&s, &b, SECOND), 0);
        hf__spin_slept(&s, 1);
    }
    assert_int_equal(hf__spin_for(&s, &b, SECOND), US);
}

/* However often it is asked, and whatever the answers before were. */
static void what_is_lost_is_a_twentieth_of_the_time(void **state)
{
    int64_t lost = 0, first = 0;

    (void)state;
    for (int64_t now = SECOND; now < 11 * SECOND; now += 40) {
        int64_t us;

        s.near = SPIN_TRUST << SPIN_VAIN;
        us = hf__spin_for(&s, &b, now);
        lost += us;
        if (us > 0)
            hf__spin_polled(&s, &b, us, false, now + us);
        if (now < 2 * SECOND)
            first = lost;
    }
    assert_in_range(first, SECOND / SPIN_SHARE, 2 * SECOND / SPIN_SHARE + US);
    assert_in_range(lost, 9 * SECOND / SPIN_SHARE, 11 * SECOND / SPIN_SHARE + US);
}

static void what_brought_the_answer_costs_nothing(void **state)
{
    int polls = 0;

    (void)state;
    for (int64_t now = SECOND; now < 2 * SECOND; now += US) {
        if (hf__spin_for(&s, &b, now) == 0) {
            hf__spin_slept(&s, US * 2);
            continue;
        }
        hf__spin_polled(&s, &b, US, true, now + US);
        polls++;
    }
    assert_int_equal(b.whole_at, 0);
    /* nor does it end, but for a sleep after each SPIN_PAID */
    assert_in_range(polls, SECOND / US - SECOND / US / SPIN_PAID - SPIN_TRUST, SECOND / US);
    assert_in_range(polls, 0, SECOND / US - SECOND / US / (SPIN_PAID + 1));
}

/* An answer that a sleeper has as soon is not worth the processor. */
static void what_saves_no_time_does_not_pay(void **state)
{
    (void)state;
    for (int i = 0; i < SPIN_TRUST; i++)
        hf__spin_slept(&s, 40);
    hf__spin_polled(&s, &b, 20, true, SECOND);
    assert_int_equal(hf__spin_for(&s, &b, SECOND), US);
    hf__spin_polled(&s, &b, 40, true, SECOND); /* one is no rule */
    assert_int_equal(hf__spin_for(&s, &b, SECOND), US);
    hf__spin_polled(&s, &b, 60, true, SECOND);
    assert_int_equal(hf__spin_for(&s, &b, SECOND), 0);
    assert_int_equal(b.whole_at, 0);
}

static void nobody_polls_after_a_preemption(void **state)
{
    (void)state;
    trust();
    hf__spin_pause(&b, SECOND);
    assert_int_equal(hf__spin_for(&s, &b, SECOND), 0);
    assert_int_equal(hf__spin_for(&s, &b, SECOND + SPIN_PAUSE_US - 1), 0);
    assert_int_equal(hf__spin_for(&s, &b, SECOND + SPIN_PAUSE_US), US);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(polls_only_where_answers_are_near, setup),
        cmocka_unit_test_setup(slow_wakes_do_not_keep_it_from_polling, setup),
        cmocka_unit_test_setup(what_never_pays_is_tried_ever_more_rarely, setup),
        cmocka_unit_test_setup(never_is_never, setup),
        cmocka_unit_test_setup(a_poll_in_vain_ends_the_trust, setup),
        cmocka_unit_test_setup(what_is_lost_is_a_twentieth_of_the_time, setup),
        cmocka_unit_test_setup(what_brought_the_answer_costs_nothing, setup),
        cmocka_unit_test_setup(what_saves_no_time_does_not_pay, setup),
        cmocka_unit_test_setup(nobody_polls_after_a_preemption, setup),
    };

    return cmocka_run_group_tests_name("spin", tests, NULL, NULL);
}
