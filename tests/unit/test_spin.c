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
    atomic_store(&b.alone, false);
    return 0;
}

static void trust(void)
{
    for (int i = 0; i < SPIN_TRUST; i++)
        hf__spin_slept(&s, US / 2);
}

static void polls_only_where_answers_are_fast(void **state)
{
    (void)state;
    assert_int_equal(hf__spin_for(&s, &b, SECOND), 0);
    hf__spin_slept(&s, US);
    assert_int_equal(hf__spin_for(&s, &b, SECOND), 0);
    hf__spin_slept(&s, US);
    assert_int_equal(hf__spin_for(&s, &b, SECOND), US);
    hf__spin_slept(&s, US + 1); /* while it was not allowed to poll, say */
    assert_int_equal(hf__spin_for(&s, &b, SECOND), 0);
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
    assert_int_equal(hf__spin_for(&s, &b, SECOND), 0);
    hf__spin_slept(&s, 1);
    assert_int_equal(hf__spin_for(&s, &b, SECOND), 0);
    hf__spin_slept(&s, 1);
    assert_int_equal(hf__spin_for(&s, &b, SECOND), US);
}

/* However often it is asked, and whatever the answers before were. */
static void what_is_lost_is_a_twentieth_of_the_time(void **state)
{
    int64_t lost = 0, first = 0;

    (void)state;
    for (int64_t now = SECOND; now < 11 * SECOND; now += 40) {
        int64_t us;

        trust();
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
    (void)state;
    trust();
    for (int64_t now = SECOND; now < 2 * SECOND; now += US) {
        assert_int_equal(hf__spin_for(&s, &b, now), US);
        hf__spin_polled(&s, &b, US, true, now + US);
    }
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

static void nobody_polls_on_the_only_processor(void **state)
{
    (void)state;
    trust();
    atomic_store(&b.alone, true);
    assert_int_equal(hf__spin_for(&s, &b, SECOND), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(polls_only_where_answers_are_fast, setup),
        cmocka_unit_test_setup(never_is_never, setup),
        cmocka_unit_test_setup(a_poll_in_vain_ends_the_trust, setup),
        cmocka_unit_test_setup(what_is_lost_is_a_twentieth_of_the_time, setup),
        cmocka_unit_test_setup(what_brought_the_answer_costs_nothing, setup),
        cmocka_unit_test_setup(nobody_polls_after_a_preemption, setup),
        cmocka_unit_test_setup(nobody_polls_on_the_only_processor, setup),
    };

    return cmocka_run_group_tests_name("spin", tests, NULL, NULL);
}
