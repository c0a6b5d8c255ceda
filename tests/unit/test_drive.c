/* Who drives: leader, followers, keeper. Each case is a way in which such code has gone wrong
 * elsewhere: a leader that leaves without a successor, a deadline nobody serves, a renewal
 * nobody sends. On a real embedded store in a temporary folder. */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <holdfast/async.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static char folder[] = "/tmp/hf-drive-XXXXXX", url[64];
static hf_client *c, *other;

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(url, sizeof url, "local://%s", folder);
    return 0;
}

static int remove_folder(void **state)
{
    char cmd[128];

    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", folder);
    return system(cmd);
}

static int open_with(uint32_t drive)
{
    hf_options o = HF_OPTIONS_INIT;

    o.drive = drive;
    return hf_open(url, &o, &c, NULL) < 0 || hf_open(url, NULL, &other, NULL) < 0 ? -1 : 0;
}

static int setup(void **state)
{
    (void)state;
    return open_with(HF_DRIVE_CALLER);
}

static int setup_prompt(void **state)
{
    (void)state;
    return open_with(HF_DRIVE_PROMPT);
}

static int teardown(void **state)
{
    (void)state;
    hf_close(c);
    hf_close(other);
    c = other = NULL;
    return 0;
}

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void nap(void)
{
    poll(NULL, 0, 2);
}

/* Waits until the line of a name has that many waiters. */
static void until_waiters(const char *name, size_t n)
{
    int64_t end = now_ms() + 20000;
    size_t got = SIZE_MAX;

    while (got != n && now_ms() < end) {
        hf_list *l;

        assert_int_equal(hf_look(other, name, &l, NULL), 0);
        got = hf_line_waiters(hf_list_at(l, 0));
        hf_list_free(l);
        if (got != n)
            nap();
    }
    assert_int_equal(got, n);
}

struct call {
    const char *name;
    int64_t wait_ms;
    hf_cancel *cancel;
    int rc;
    hf_lease *lease;
    int64_t took_ms;
    pthread_t thread;
};

static void *run_call(void *arg)
{
    struct call *k = arg;
    int64_t start = now_ms();
    hf_request req = HF_REQUEST_INIT;

    req.cancel = k->cancel;
    k->rc = hf_acquire(c, k->name, k->wait_ms, &req, &k->lease, NULL);
    k->took_ms = now_ms() - start;
    return NULL;
}

static void begin(struct call *k)
{
    assert_int_equal(pthread_create(&k->thread, NULL, run_call, k), 0);
}

static hf_lease *hold(hf_client *by, const char *name, int64_t ttl_ms)
{
    hf_lease *l;
    hf_error e;

    if (hf_acquire(by, name, 0, HF_REQUEST(.ttl_ms = ttl_ms), &l, &e) < 0)
        fail_msg("%s: %s", name, e.text);
    return l;
}

static void leader_that_leaves_promotes_a_follower(void **state)
{
    hf_lease *x = hold(other, "x", 0), *y = hold(other, "y", 0);
    struct call a = { .name = "x", .wait_ms = 400 }, b = { .name = "y", .wait_ms = HF_FOREVER };

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
    struct call a = { .name = "x", .wait_ms = HF_FOREVER }, b = { .name = "y", .wait_ms = 300 };

    (void)state;
    begin(&a);
    until_waiters("x", 1);
    begin(&b);
    pthread_join(b.thread, NULL);
    assert_int_equal(b.rc, HF_ETIMEDOUT);
    assert_in_range(b.took_ms, 300, 10000);
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
    hf_lease *slow = hold(c, "slow", 600000), *quick = hold(c, "quick", 600);
    int64_t end = now_ms() + 2500;

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
    quick = hold(c, "quick", 600);
    for (end = now_ms() + 2000; now_ms() < end; nap())
        assert_int_equal(hf_lease_check(quick), 0);
    hf_release(quick, NULL);
    hf_release(x, NULL);
    pthread_join(a.thread, NULL);
    hf_release(a.lease, NULL);
}

static size_t threads(void)
{
    DIR *d = opendir("/proc/self/task");
    size_t n = 0;

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
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
    struct call a = { .name = "x", .wait_ms = 400 }, b = { .name = "y", .wait_ms = HF_FOREVER };
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
    assert_int_equal(hf_release(mine, NULL), HF_ECLOSED); /* the last handle: frees the rest */
    c = NULL;
    mine = hold(other, "mine", 0);
    hf_release(mine, NULL);
    hf_release(x, NULL);
}

static void granted(hf_op *op, int rc, hf_lease *l, const hf_error *e, void *user)
{
    struct call *k = user;

    (void)op;
    (void)e;
    k->rc = rc;
    k->lease = l;
    k->took_ms = 1;
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
    assert_int_equal(hf_acquire_start(c, "y", HF_FOREVER, NULL, granted, &cb, &op, NULL), 0);
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

static atomic_int told = -1;
static atomic_ulong told_by;

static void on_change(hf_lease *l, int state, void *user)
{
    (void)l;
    (void)user;
    told_by = (unsigned long)pthread_self();
    told = state;
}

static void resident_keeper_tells_loss_with_no_call_under_way(void **state)
{
    hf_lease *l = hold(c, "p", 0);
    hf_list *list;

    (void)state;
    told = -1;
    assert_int_equal(hf_lease_on_change(l, on_change, NULL, NULL), 0);
    assert_int_equal(hf_look(other, "p", &list, NULL), 0);
    assert_int_equal(hf_evict(other, "p", hf_ticket_id(hf_line_ticket(hf_list_at(list, 0), 0)),
                              HF_EVICT_NOW, NULL), 0);
    hf_list_free(list);
    for (int64_t end = now_ms() + 10000; told != HF_LOST && now_ms() < end;)
        nap();
    assert_int_equal(told, HF_LOST);
    assert_true(told_by != (unsigned long)pthread_self());
    assert_int_equal(hf_release(l, NULL), HF_ELOST);
}

static void resident_keeper_serves_blocking_calls(void **state)
{
    hf_lease *x = hold(other, "x", 0);
    struct call a = { .name = "x", .wait_ms = HF_FOREVER }, b = { .name = "x", .wait_ms = 200 };

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

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define PROMPT(f) cmocka_unit_test_setup_teardown(f, setup_prompt, teardown)

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
        PROMPT(resident_keeper_tells_loss_with_no_call_under_way),
        PROMPT(resident_keeper_serves_blocking_calls),
    };

    return cmocka_run_group_tests_name("drive", tests, make_folder, remove_folder);
}
