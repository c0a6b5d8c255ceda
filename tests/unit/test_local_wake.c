/* test_local_wake.c: how other processes learn that they hold: the message in the pipe, the
 * slot in the gate, the inbox. */
#include "local_harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void hand_over(void **state)
{
    struct child c = child_start(folder, stand_in_line, NULL), d;
    struct pass p;

    (void)state;
    assert_int_equal(child_hear(&c), 'h');
    pass_wait(&p, &a, "x");
    d = child_start(folder, stand_in_line, NULL);
    assert_int_equal(child_hear(&d), 'w');
    child_end(&c);
    side_until(&a, &p.granted);
    assert_int_equal(p.granted, 1);
    pass_leave(&p);
    assert_int_equal(child_hear(&d), 'h');
    child_end(&d);
}

/* Holds that many names, says h, and leaves them all when told. */
static void hold_many(struct child *c, const char *where, void *arg)
{
    size_t n = *(size_t *)arg;
    struct pass *p = calloc(n, sizeof *p);
    struct side s;
    char name[32];

    if (!p || side_open(&s, where, "") < 0)
        _exit(2);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "line/%zu", i);
        pass_init(&p[i], &s, name);
        if (pass_join(&p[i]) != 1)
            _exit(3);
    }
    child_say(c, 'h');
    child_hear(c);
    for (size_t i = 0; i < n; i++)
        if (pass_leave(&p[i]) != 0)
            _exit(4);
    child_say(c, 'l');
    child_hear(c);
    side_close(&s);
    free(p);
}

/* Another process held n names and has left them; we waited and have not turned our loop.
 */
static struct pass *waited_for_many(struct child *c, size_t n)
{
    struct pass *p = calloc(n, sizeof *p);
    char name[32];

    assert_non_null(p);
    *c = child_start(folder, hold_many, &n);
    assert_int_equal(child_hear(c), 'h');
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "line/%zu", i);
        pass_wait(&p[i], &a, name);
    }
    child_tell(c, 'l');
    assert_int_equal(child_hear(c), 'l');
    return p;
}

static void a_grant_comes_without_an_entry(void **state)
{
    struct shared *sh = local_of(a.store)->sh;
    struct child c;
    struct pass *p = waited_for_many(&c, 1), q;
    int alive = p->alive;

    (void)state;
    assert_int_equal(hf__local_gate_enter(sh, 1000, NULL), 0);
    side_until(&a, &p->granted); /* somebody is inside all the time */
    hf__local_gate_leave(sh);
    assert_ptr_equal(p->t.life, p->t.own);
    assert_int_equal(side_records(&a, TABLE_INBOX), 1); /* until a later entry */
    pass_renew(p);
    assert_int_equal(p->alive, alive + 1);
    pass_leave(p);
    pass_hold(&q, &a, "x");
    assert_int_equal(side_records(&a, TABLE_INBOX), 0);
    pass_leave(&q);
    child_end(&c);
    free(p);
}

/* The slot in which a grant to us would stand. */
static struct grant *our_slot(void)
{
    const struct local *ls = local_of(a.store);

    for (size_t i = 0; i < GATE_GRANTS; i++) {
        struct grant *g = &ls->sh->gate->grants[i];

        if (g->process == ls->sh->process && g->member == ls->member)
            return g;
    }
    fail_msg("the grant stands in no slot");
    return NULL;
}

/* The message is read later: with the next turn, or before the client waits again. */
static void a_taken_grant_leaves_nothing_in_the_pipe(void **state)
{
    const struct local *ls = local_of(a.store);

    (void)state;
    for (int again = 0; again < 2; again++) {
        struct child c, d;
        struct pass *p = waited_for_many(&c, 1), q;
        struct pollfd pipe = { ls->wakefd, POLLIN, 0 };

        side_until(&a, &p->granted);
        assert_int_equal(poll(&pipe, 1, 0), 1);
        if (again) {
            d = child_start(folder, stand_in_line, NULL);
            assert_int_equal(child_hear(&d), 'h');
            pass_wait(&q, &a, "x");
        } else
            side_turn(&a, hf__loop_now());
        assert_int_equal(poll(&pipe, 1, 0), 0);
        assert_int_equal(p->granted, 1);
        pass_leave(p);
        if (again) {
            pass_leave(&q);
            child_kill(&d, SIGKILL);
        }
        child_end(&c);
        free(p);
    }
}

/* As a writer leaves it that is killed in the middle, or one that told another member. */
static void a_slot_is_not_believed(void **state)
{
    (void)state;
    for (int others = 0; others < 2; others++) {
        struct child c;
        struct pass *p = waited_for_many(&c, 1);
        struct grant *g = our_slot();

        if (others)
            g->member++;
        else
            g->turn++;
        g->fence += 1000;
        side_until(&a, &p->granted);
        assert_true(pass_holds(p));
        assert_int_not_equal(p->t.fence, g->fence);
        pass_leave(p);
        child_end(&c);
        free(p);
    }
}

/* The next writer puts it right. */
static void a_torn_slot_is_used_again(void **state)
{
    struct child c;
    struct pass *p = waited_for_many(&c, 1);
    struct grant *g = our_slot();

    (void)state;
    g->turn++;
    side_until(&a, &p->granted);
    pass_leave(p);
    child_end(&c);
    free(p);
    p = waited_for_many(&c, 1);
    assert_int_equal(g->turn % 2, 0);
    side_until(&a, &p->granted);
    assert_int_equal(p->t.fence, g->fence);
    pass_leave(p);
    child_end(&c);
    free(p);
}

static void the_mail_of_grants_does_not_pile_up(void **state)
{
    enum { N = STALE_MAX + 8 }; /* few enough to come by message */
    struct child c;
    struct pass *p = waited_for_many(&c, N);

    (void)state;
    for (int i = 0; i < N; i++)
        side_until(&a, &p[i].granted);
    assert_int_equal(side_records(&a, TABLE_INBOX), N);
    for (int i = 0; i < N; i++)
        pass_leave(&p[i]);
    assert_int_equal(side_records(&a, TABLE_INBOX), 0);
    child_end(&c);
    free(p);
}

/* More grants than a pipe takes messages: the rest is found in the inbox. */
static void a_full_pipe_loses_no_grant(void **state)
{
    enum { N = 1000 };
    struct child c;
    struct pass *p = waited_for_many(&c, N);
    int64_t start = hf__loop_now();

    (void)state;
    for (int i = 0; i < N; i++) {
        side_until(&a, &p[i].granted);
        assert_int_equal(p[i].granted, 1);
        assert_int_equal(pass_leave(&p[i]), 0);
    }
    assert_true(hf__loop_now() - start < LIMIT_US);
    assert_int_equal(side_records(&a, TABLE_INBOX), 0);
    child_end(&c);
    free(p);
}

/* Killed between the commit of its release, which admits two readers, and waking them. */
static bool dies_before_poke;

void __real_hf__local_poke(struct local *);
void __wrap_hf__local_poke(struct local *);

void __wrap_hf__local_poke(struct local *ls)
{
    if (dies_before_poke)
        raise(SIGKILL);
    __real_hf__local_poke(ls);
}

static void release_and_die(struct child *c, const char *where, void *arg)
{
    struct side s;
    struct pass p;

    (void)arg;
    child_hold(&s, &p, where);
    child_say(c, 'h');
    child_hear(c);
    dies_before_poke = true;
    pass_leave(&p);
}

static void all_who_were_admitted_are_woken(void **state)
{
    struct child c = child_start(folder, release_and_die, NULL), d;
    struct pass p;

    (void)state;
    assert_int_equal(child_hear(&c), 'h');
    d = child_start(folder, stand_in_line, "shared"); /* this one watches the holder */
    assert_int_equal(child_hear(&d), 'w');
    pass_init(&p, &a, "x");
    pass_shared(&p);
    assert_int_equal(pass_join(&p), 0);
    child_tell(&c, 'l');
    assert_int_equal(child_hear(&d), 'h');
    side_until(&a, &p.granted);
    pass_leave(&p);
    child_end(&d);
    child_kill(&c, SIGKILL);
}

#define T(f) cmocka_unit_test_setup_teardown(f, alone_setup, alone_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(hand_over),
        T(a_grant_comes_without_an_entry),
        T(the_mail_of_grants_does_not_pile_up),
        T(a_taken_grant_leaves_nothing_in_the_pipe),
        T(a_slot_is_not_believed),
        T(a_torn_slot_is_used_again),
        T(a_full_pipe_loses_no_grant),
        T(all_who_were_admitted_are_woken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
