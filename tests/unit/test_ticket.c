/* The state machine of a ticket: paths, and properties of every (state, event). */
#include "unit.h"

#include "core/ticket.h"

enum { STATES = TICKET_OUT + 1, EVENTS = TICKET_STORE_UP + 1 };

static void walk(const int *path, size_t n)
{
    enum ticket_state s = TICKET_NEW;

    for (size_t i = 0; i < n; i += 3) {
        unsigned effects = hf__ticket_step(&s, (enum ticket_event)path[i]);

        assert_int_equal(s, path[i + 1]);
        assert_int_equal(effects, path[i + 2]);
    }
}

#define WALK(...)                                                                          \
    walk((const int[]){ __VA_ARGS__ }, sizeof((int[]){ __VA_ARGS__ }) / sizeof(int))

static void happy_paths(void **state)
{
    (void)state;
    WALK(TICKET_START, TICKET_JOINING, DO_JOIN, TICKET_GRANT, TICKET_HELD, TELL_GRANTED,
         TICKET_GIVE_UP, TICKET_LEAVING, DO_LEAVE, TICKET_LEFT, TICKET_OUT, TELL_OUT);
    WALK(TICKET_START, TICKET_JOINING, DO_JOIN, TICKET_TOLD_WAIT, TICKET_WAITING,
         TELL_WAITING, TICKET_GRANT_SHORT, TICKET_HELD, TELL_GRANTED | DO_RENEW);
}

static void thin_grant_is_confirmed_first(void **state)
{
    (void)state;
    WALK(TICKET_START, TICKET_JOINING, DO_JOIN, TICKET_TOLD_WAIT, TICKET_WAITING,
         TELL_WAITING, TICKET_GRANT_THIN, TICKET_CONFIRMING, DO_RENEW, TICKET_ALIVE_THIN,
         TICKET_CONFIRMING, DO_RENEW, TICKET_ALIVE, TICKET_HELD, TELL_GRANTED);
    WALK(TICKET_START, TICKET_JOINING, DO_JOIN, TICKET_GRANT_THIN, TICKET_CONFIRMING,
         DO_RENEW, TICKET_DEAD, TICKET_LEAVING, DO_AGAIN | DO_LEAVE);
}

static void late_grant_is_taken_back(void **state)
{
    (void)state;
    WALK(TICKET_START, TICKET_JOINING, DO_JOIN, TICKET_GIVE_UP, TICKET_LEAVING, DO_LEAVE,
         TICKET_GRANT, TICKET_LEAVING, 0, TICKET_LEFT_UNKNOWN, TICKET_LEAVING,
         TELL_UNSETTLED | DO_REPEAT_LATER, TICKET_REPEAT, TICKET_LEAVING, DO_LEAVE,
         TICKET_FORGOTTEN, TICKET_OUT, TELL_OUT);
}

static void place_that_is_gone_is_taken_anew(void **state)
{
    (void)state;
    WALK(TICKET_START, TICKET_JOINING, DO_JOIN, TICKET_TOLD_WAIT, TICKET_WAITING,
         TELL_WAITING, TICKET_GONE, TICKET_OUT, DO_AGAIN | TELL_OUT);
}

static void place_is_taken_anew_after_a_delay(void **state)
{
    (void)state;
    WALK(TICKET_START, TICKET_JOINING, DO_JOIN, TICKET_GONE_A_WHILE, TICKET_RETRYING,
         DO_RETRY, TICKET_STORE_UP, TICKET_RETRYING, 0, TICKET_START, TICKET_JOINING,
         DO_JOIN, TICKET_TOLD_WAIT, TICKET_WAITING, TELL_WAITING, TICKET_GONE_A_WHILE,
         TICKET_RETRYING, DO_RETRY, TICKET_GRANT, TICKET_RETRYING, 0, TICKET_GIVE_UP,
         TICKET_OUT, TELL_OUT);
    WALK(TICKET_START, TICKET_JOINING, DO_JOIN, TICKET_GRANT, TICKET_HELD, TELL_GRANTED,
         TICKET_GONE_A_WHILE, TICKET_OUT, TELL_LOST | TELL_OUT);
    WALK(TICKET_START, TICKET_JOINING, DO_JOIN, TICKET_GIVE_UP, TICKET_LEAVING, DO_LEAVE,
         TICKET_GONE_A_WHILE, TICKET_OUT, TELL_OUT);
}

static void what_may_stand_in_line_is_left_when_refused(void **state)
{
    (void)state;
    WALK(TICKET_START, TICKET_JOINING, DO_JOIN, TICKET_REFUSED, TICKET_OUT,
         TELL_REFUSED | TELL_OUT);
    WALK(TICKET_START, TICKET_JOINING, DO_JOIN, TICKET_TOLD_WAIT, TICKET_WAITING,
         TELL_WAITING, TICKET_REFUSED_IN_LINE, TICKET_LEAVING, TELL_REFUSED | DO_LEAVE,
         TICKET_REFUSED_IN_LINE, TICKET_LEAVING, 0, TICKET_LEFT, TICKET_OUT, TELL_OUT);
    WALK(TICKET_START, TICKET_JOINING, DO_JOIN, TICKET_GRANT, TICKET_HELD, TELL_GRANTED,
         TICKET_REFUSED_IN_LINE, TICKET_LEAVING, TELL_LOST | DO_LEAVE);
}

static void lost_hold_never_comes_back(void **state)
{
    (void)state;
    for (int e = 0; e < EVENTS; e++) {
        enum ticket_state s = TICKET_HELD;

        assert_true(hf__ticket_step(&s, TICKET_DEADLINE) & TELL_LOST);
        assert_int_equal(hf__ticket_step(&s, (enum ticket_event)e) & TELL_GRANTED, 0);
        assert_int_not_equal(s, TICKET_HELD);
    }
}

static void out_is_the_end(void **state)
{
    (void)state;
    for (int e = 0; e < EVENTS; e++) {
        enum ticket_state s = TICKET_OUT;

        assert_int_equal(hf__ticket_step(&s, (enum ticket_event)e), 0);
        assert_int_equal(s, TICKET_OUT);
    }
}

/* Whatever happens: what may be in the store is left or said to be gone; a grant is told
 * exactly on entering HELD, a loss exactly on leaving it unasked. */
static void every_step_is_sound(void **state)
{
    (void)state;
    for (int s0 = 0; s0 < STATES; s0++)
        for (int e = 0; e < EVENTS; e++) {
            enum ticket_state s = (enum ticket_state)s0;
            unsigned f = hf__ticket_step(&s, (enum ticket_event)e);

            assert_int_equal(!!(f & TELL_GRANTED), s0 != TICKET_HELD && s == TICKET_HELD);
            assert_int_equal(!!(f & TELL_OUT), s0 != TICKET_OUT && s == TICKET_OUT);
            if (f & TELL_LOST)
                assert_int_equal(s0, TICKET_HELD);
            if (s0 == TICKET_HELD && s != TICKET_HELD)
                assert_int_equal(!!(f & TELL_LOST), e != TICKET_GIVE_UP);
            if (s == TICKET_LEAVING && s0 != TICKET_LEAVING)
                assert_true(f & DO_LEAVE);
            assert_int_equal(!!(f & DO_RETRY),
                             s0 != TICKET_RETRYING && s == TICKET_RETRYING);
            if (f & DO_JOIN)
                assert_int_equal(s, TICKET_JOINING);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(happy_paths),
        cmocka_unit_test(thin_grant_is_confirmed_first),
        cmocka_unit_test(late_grant_is_taken_back),
        cmocka_unit_test(place_that_is_gone_is_taken_anew),
        cmocka_unit_test(place_is_taken_anew_after_a_delay),
        cmocka_unit_test(what_may_stand_in_line_is_left_when_refused),
        cmocka_unit_test(lost_hold_never_comes_back),
        cmocka_unit_test(out_is_the_end),
        cmocka_unit_test(every_step_is_sound),
    };

    return cmocka_run_group_tests_name("ticket", tests, NULL, NULL);
}
