/* Who drives: leader, followers, keeper. Each case is a way in which such code has gone
 * wrong elsewhere: a leader that leaves without a successor, a deadline nobody serves, a
 * renewal nobody sends. On a real embedded store in a temporary folder. */
#include "drive_harness.h"

#include "api/api.h"

#include <errno.h>
#include <holdfast/tool.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void leader_that_leaves_promotes_a_follower(void **state)
{
    hf_lease *x = hold(other, "x", 0), *y = hold(other, "y", 0);
    struct call a = { .name = "x", .wait_ms = SOON_MS },
                b = { .name = "y", .wait_ms = HF_FOREVER };

    (void)state;
    begin(&a);
    until_waiters("x", 1); /* a leads */
    begin(&b);
    until_waiters("y", 1);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.rc, HF_ETIMEDOUT);
    assert_int_equal(hf_release(y, NULL), 0);
    pthread_join(b.thread, NULL);
    assert_int_equal(b.rc, 0);
    hf_release(b.lease, NULL);
    hf_release(x, NULL);
}

static void leader_serves_the_deadlines_of_others(void **state)
{
    hf_lease *x = hold(other, "x", 0), *y = hold(other, "y", 0);
    struct call a = { .name = "x", .wait_ms = HF_FOREVER },
                b = { .name = "y", .wait_ms = 300 };

    (void)state;
    begin(&a);
    until_waiters("x", 1);
    begin(&b);
    pthread_join(b.thread, NULL);
    assert_int_equal(b.rc, HF_ETIMEDOUT);
    assert_in_range(b.took_ms, 300, 30000);
    until_waiters("y", 0);
    hf_release(x, NULL);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.rc, 0);
    hf_release(a.lease, NULL);
    hf_release(y, NULL);
}

static void operation_finished_by_another_thread_ends_the_leader(void **state)
{
    hf_lease *x = hold(c, "x", 0);
    struct call a = { .name = "x", .wait_ms = HF_FOREVER };

    (void)state;
    begin(&a);
    until_waiters("x", 1);
    assert_int_equal(hf_release(x, NULL), 0); /* same client: granted inside this call */
    pthread_join(a.thread, NULL);
    assert_int_equal(a.rc, 0);
    hf_release(a.lease, NULL);
}

static void keeper_renews_and_follows_an_earlier_timer(void **state)
{
    hf_lease *slow = hold(c, "slow", 600000), *quick = hold(c, "quick", SOON_MS);
    int64_t end = now_ms() + 5 * SOON_MS / 2;

    (void)state;
    while (now_ms() < end) {
        assert_int_equal(hf_lease_check(quick), 0);
        assert_int_equal(hf_lease_check(slow), 0);
        nap();
    }
    assert_int_equal(hf_release(quick, NULL), 0);
    assert_int_equal(hf_release(slow, NULL), 0);
}

static void keeper_renews_while_another_call_leads(void **state)
{
    hf_lease *x = hold(other, "x", 0), *quick;
    struct call a = { .name = "x", .wait_ms = HF_FOREVER };
    int64_t end;

    (void)state;
    begin(&a);
    until_waiters("x", 1); /* a sleeps in the loop; its own timers are seconds away */
    quick = hold(c, "quick", SOON_MS);
    for (end = now_ms() + 5 * SOON_MS / 2; now_ms() < end; nap())
        assert_int_equal(hf_lease_check(quick), 0);
    hf_release(quick, NULL);
    hf_release(x, NULL);
    pthread_join(a.thread, NULL);
    hf_release(a.lease, NULL);
}

static void keeper_ends_when_nothing_is_left_and_starts_again(void **state)
{
    size_t before = threads();
    int64_t end;
    hf_lease *l;

    (void)state;
    for (int i = 0; i < 2; i++) {
        l = hold(c, "k", 300);
        assert_int_equal(threads(), before + 1);
        hf_release(l, NULL);
        for (end = now_ms() + 10000; threads() > before && now_ms() < end; nap())
            ;
        assert_int_equal(threads(), before);
    }
}

static atomic_int signals;

static void count_signal(int sig)
{
    (void)sig;
    signals++;
}

static void signals_do_not_end_a_wait(void **state)
{
    struct sigaction sa = { .sa_handler = count_signal }; /* no SA_RESTART */
    hf_lease *x = hold(other, "x", 0);
    struct call a = { .name = "x", .wait_ms = HF_FOREVER };

    (void)state;
    signals = 0;
    sigaction(SIGUSR1, &sa, NULL);
    begin(&a);
    until_waiters("x", 1);
    for (int i = 0; i < 50; i++) {
        int had = signals;

        pthread_kill(a.thread, SIGUSR1);
        for (int64_t end = now_ms() + 10000; signals == had && now_ms() < end;)
            nap();
    }
    until_waiters("x", 1);
    hf_release(x, NULL);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.rc, 0);
    hf_release(a.lease, NULL);
}

static hf_cancel *button;

static void fire(int sig)
{
    (void)sig;
    hf_cancel_fire(button);
}

static void cancelled_from_a_signal_handler(void **state)
{
    struct sigaction sa = { .sa_handler = fire };
    hf_lease *x = hold(other, "x", 0);
    struct call a = { .name = "x", .wait_ms = HF_FOREVER }, b;

    (void)state;
    assert_int_equal(hf_cancel_new(&button, NULL), 0);
    a.cancel = button;
    b = a;
    sigaction(SIGUSR2, &sa, NULL);
    begin(&a);
    begin(&b); /* one button, two waits: one leads, one follows */
    until_waiters("x", 2);
    raise(SIGUSR2);
    pthread_join(a.thread, NULL);
    pthread_join(b.thread, NULL);
    assert_int_equal(a.rc, HF_ECANCELED);
    assert_int_equal(b.rc, HF_ECANCELED);
    until_waiters("x", 0);
    a.wait_ms = 0; /* it stays fired */
    run_call(&a);
    assert_int_equal(a.rc, HF_ECANCELED);
    hf_cancel_reset(button);
    run_call(&a);
    assert_int_equal(a.rc, HF_EBUSY);
    hf_cancel_free(button);
    hf_release(x, NULL);
}

/* Cancelling a thread in a call ends it only after the call: it takes no lead with it. */
static void cancelled_thread_does_not_take_the_lead_with_it(void **state)
{
    hf_lease *x = hold(other, "x", 0), *y;
    struct call a = { .name = "x", .wait_ms = SOON_MS },
                b = { .name = "y", .wait_ms = HF_FOREVER };
    void *end;

    (void)state;
    y = hold(other, "y", 0);
    begin(&a);
    until_waiters("x", 1);
    begin(&b);
    until_waiters("y", 1);
    pthread_cancel(a.thread);
    pthread_join(a.thread, &end);
    assert_int_equal(a.rc, HF_ETIMEDOUT); /* it came back from the call first */
    hf_release(y, NULL);
    pthread_join(b.thread, NULL);
    assert_int_equal(b.rc, 0);
    hf_release(b.lease, NULL);
    hf_release(x, NULL);
}

static void closing_ends_leader_and_followers(void **state)
{
    hf_lease *x = hold(other, "x", 0), *mine = hold(c, "mine", 0);
    struct call k[5];

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        k[i] = (struct call){ .name = "x", .wait_ms = HF_FOREVER };
        begin(&k[i]);
    }
    until_waiters("x", 5);
    hf_close(c);
    for (size_t i = 0; i < 5; i++) {
        pthread_join(k[i].thread, NULL);
        assert_int_equal(k[i].rc, HF_ECLOSED);
    }
    until_waiters("x", 0);
    assert_int_equal(hf_lease_check(mine), HF_ELOST);
    /* the last handle: frees the rest */
    assert_int_equal(hf_release(mine, NULL), HF_ECLOSED);
    c = NULL;
    mine = hold(other, "mine", 0);
    hf_release(mine, NULL);
    hf_release(x, NULL);
}

static void descriptor_tells_of_a_callback_while_another_thread_blocks(void **state)
{
    hf_lease *x = hold(other, "x", 0), *y = hold(other, "y", 0);
    struct call a = { .name = "x", .wait_ms = HF_FOREVER }, cb = { 0 };
    struct pollfd p = { .fd = hf_client_fd(c), .events = POLLIN };
    hf_op *op;

    (void)state;
    begin(&a);
    until_waiters("x", 1); /* a leads, and reads what the kernel has to say */
    assert_int_equal(hf_acquire_start(c, "y", HF_FOREVER, NULL, granted, &cb, &op, NULL),
                     0);
    until_waiters("y", 1);
    hf_release(y, NULL);
    for (int64_t end = now_ms() + 10000; !cb.took_ms && now_ms() < end;) {
        poll(&p, 1, 1000);
        assert_true(hf_client_process(c) >= 0);
    }
    assert_int_equal(cb.took_ms, 1);
    assert_int_equal(cb.rc, 0);
    hf_op_free(op);
    hf_release(cb.lease, NULL);
    hf_release(x, NULL);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.rc, 0);
    hf_release(a.lease, NULL);
}

/* A callback that the application has not fetched keeps its descriptor readable, and the
 * thread that leads asleep. */
static void waiting_callback_does_not_make_the_leader_spin(void **state)
{
    hf_lease *x = hold(other, "x", 0);
    struct call a = { .name = "x", .wait_ms = SOON_MS }, cb = { 0 };
    struct pollfd p = { .fd = hf_client_fd(c), .events = POLLIN };
    int64_t before;
    hf_op *op;

    (void)state;
    assert_int_equal(hf_acquire_start(c, "free", 0, NULL, granted, &cb, &op, NULL), 0);
    before = cpu_ms();
    begin(&a);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.rc, HF_ETIMEDOUT);
    assert_in_range(cpu_ms() - before, 0, SOON_MS / 3); /* spinning takes all of it */
    assert_int_equal(poll(&p, 1, 0), 1);
    assert_true(hf_client_process(c) > 0);
    assert_int_equal(cb.took_ms, 1);
    assert_int_equal(poll(&p, 1, 0), 0);
    hf_op_free(op);
    hf_release(cb.lease, NULL);
    hf_release(x, NULL);
}

static void resident_keeper_serves_blocking_calls(void **state)
{
    hf_lease *x = hold(other, "x", 0);
    struct call a = { .name = "x", .wait_ms = HF_FOREVER },
                b = { .name = "x", .wait_ms = 200 };

    (void)state;
    begin(&a);
    until_waiters("x", 1);
    begin(&b);
    pthread_join(b.thread, NULL);
    assert_int_equal(b.rc, HF_ETIMEDOUT);
    hf_release(x, NULL);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.rc, 0);
    hf_release(a.lease, NULL);
}

/* ---- a leader that is done before it sleeps -------------------------------------- */

/* the driver of `c`, but a look is answered when it is told to send */
static struct hf_driver slow;
static const struct hf_driver *real;
static struct look *look_kept;
static int look_flushes;

static void keep_look(struct store *s, struct look *l)
{
    (void)s;
    look_kept = l;
    look_flushes = 0;
}

/* The first time in the call itself, the second when it leads. */
static void flush_look(struct store *s)
{
    struct look *l = look_kept;

    (void)s;
    if (l && ++look_flushes == 2) {
        look_kept = NULL;
        ev_done(l, NULL, HF_EUNREACHABLE, NULL);
    }
}

static void operation_that_ends_before_the_leader_sleeps(void **state)
{
    hf_list *list;
    int64_t start = now_ms();

    (void)state;
    real = c->core.store->driver;
    slow = *real;
    slow.look = keep_look;
    slow.flush = flush_look;
    c->core.store->driver = &slow;
    alarm(60); /* with nothing to wait for it would sleep for ever */
    assert_int_equal(hf_look(c, "n", &list, NULL), HF_EUNREACHABLE);
    alarm(0);
    assert_in_range(now_ms() - start, 0, 4000); /* the connect time-out is 5 s */
    c->core.store->driver = real;
}

/* ---- and the rest ---------------------------------------------------------------- */

static int close_in_body(hf_lease *l, void *user)
{
    (void)l;
    (void)user;
    hf_close(c);
    c = NULL;
    return 5;
}

static void with_says_that_the_lock_was_lost(void **state)
{
    hf_error e = { 0 };
    int result = 0;

    (void)state;
    assert_int_equal(hf_with(c, "n", 0, NULL, close_in_body, NULL, &result, &e), HF_ELOST);
    assert_int_equal(e.code, HF_ELOST);
    assert_int_equal(result, 5);
}

static void adopted_lease_is_the_new_owners_for_all_who_look(void **state)
{
    hf_lease *l = hold(c, "n", 0);
    char owner[2][64];

    (void)state;
    for (int i = 0; i < 2; i++) {
        hf_list *list;

        assert_int_equal(hf_look(other, "n", &list, NULL), 0);
        snprintf(owner[i], sizeof owner[i], "%s",
                 hf_ticket_owner(hf_line_ticket(hf_list_at(list, 0), 0)));
        hf_list_free(list);
        assert_int_equal(hf_lease_adopt(l, 42, NULL), 0);
    }
    assert_string_not_equal(owner[0], owner[1]);
    hf_release(l, NULL);
}

static void owner_text_that_ends_in_the_middle(void **state)
{
    static const char *const texts[] = { "0000000000000005-1 a%4", "0000000000000005-1 a%",
                                         "0000000000000005-1 a%zz%00",
                                         "0000000000000005-1 " };
    hf_options o = HF_OPTIONS_INIT;
    hf_client *one;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *copy = strdup(texts[i]);

        o.owner = copy;
        assert_int_equal(hf_open(url, &o, &one, NULL), 0);
        hf_close(one);
        free(copy);
    }
}

static void button_fired_in_a_forked_child_wakes_nobody_for_ever(void **state)
{
    hf_lease *x = hold(other, "x", 0);
    struct call a = { .name = "x", .wait_ms = SOON_MS };
    int64_t before;
    pid_t child;

    (void)state;
    assert_int_equal(hf_cancel_new(&button, NULL), 0);
    a.cancel = button;
    begin(&a);
    until_waiters("x", 1);
    child = fork();
    if (child == 0) {
        hf_cancel_fire(button);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    before = cpu_ms();
    pthread_join(a.thread, NULL);
    assert_int_equal(a.rc, HF_ETIMEDOUT);
    assert_in_range(cpu_ms() - before, 0, SOON_MS / 3);
    hf_cancel_free(button);
    hf_release(x, NULL);
}

static void watched(hf_op *op, int rc, const hf_list *l, const hf_error *e, void *user)
{
    (void)op;
    (void)rc;
    (void)l;
    (void)e;
    (void)user;
}

static void forked_child_gives_everything_back(void **state)
{
    hf_lease *l = hold(c, "n", 0), *y = hold(other, "y", 0);
    struct call cb = { 0 };
    hf_op *ops[3];
    pid_t child;
    int status;

    (void)state;
    assert_int_equal(hf_lease_note(l, "note", NULL), 0);
    assert_int_equal(hf_watch_start(c, "n", watched, NULL, &ops[0], NULL), 0);
    assert_int_equal(
        hf_acquire_start(c, "y", HF_FOREVER, NULL, granted, &cb, &ops[1], NULL), 0);
    assert_int_equal(
        hf_acquire_start(c, "z", HF_FOREVER, NULL, granted, &cb, &ops[2], NULL), 0);
    child = fork();
    if (child == 0) { /* before the client itself: the driver knows some of them */
        int good = hf_release(l, NULL) == HF_EFORKED && hf_lease_check(y) == HF_EFORKED;

        for (size_t i = 0; i < 3; i++)
            hf_op_free(ops[i]);
        hf_close(c);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(hf_lease_check(l), 0);
    for (size_t i = 0; i < 3; i++)
        hf_op_free(ops[i]);
    assert_int_equal(hf_release(l, NULL), 0);
    assert_int_equal(hf_release(y, NULL), 0);
}

/* What may change errno though it succeeds, here does. */
static _Thread_local bool errno_lost;
int __real_pthread_mutex_unlock(pthread_mutex_t *);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *);

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
    int rc = __real_pthread_mutex_unlock(m);

    if (errno_lost)
        errno = 0;
    return rc;
}

/* These two have no hf_error: errno must not be overwritten on the way out. */
static void errno_says_that_there_is_no_descriptor_left(void **state)
{
    int free_fd = dup(0), fds[1];
    struct rlimit lim, none;

    (void)state;
    assert_true(free_fd >= 0);
    assert_int_equal(close(free_fd), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
    none = lim;
    none.rlim_cur = (rlim_t)free_fd;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    errno_lost = true;
    assert_int_equal(hf_client_life_fds(c, fds, 1), HF_ESYS);
    assert_int_equal(errno, EMFILE);
    assert_int_equal(hf_client_fd(c), HF_ESYS);
    assert_int_equal(errno, EMFILE);
    errno_lost = false;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
    assert_true(hf_client_fd(c) >= 0);
    assert_int_equal(hf_client_life_fds(c, fds, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(leader_that_leaves_promotes_a_follower),
        TEST(leader_serves_the_deadlines_of_others),
        TEST(operation_finished_by_another_thread_ends_the_leader),
        TEST(keeper_renews_and_follows_an_earlier_timer),
        TEST(keeper_renews_while_another_call_leads),
        TEST(keeper_ends_when_nothing_is_left_and_starts_again),
        TEST(signals_do_not_end_a_wait),
        TEST(cancelled_from_a_signal_handler),
        TEST(cancelled_thread_does_not_take_the_lead_with_it),
        TEST(closing_ends_leader_and_followers),
        TEST(descriptor_tells_of_a_callback_while_another_thread_blocks),
        TEST(waiting_callback_does_not_make_the_leader_spin),
        TEST(operation_that_ends_before_the_leader_sleeps),
        TEST(with_says_that_the_lock_was_lost),
        TEST(adopted_lease_is_the_new_owners_for_all_who_look),
        TEST(owner_text_that_ends_in_the_middle),
        TEST(button_fired_in_a_forked_child_wakes_nobody_for_ever),
        TEST(forked_child_gives_everything_back),
        APP(errno_says_that_there_is_no_descriptor_left),
        PROMPT(resident_keeper_serves_blocking_calls),
    };

    return cmocka_run_group_tests_name("drive", tests, make_folder, remove_folder);
}
