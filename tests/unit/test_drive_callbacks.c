/* Callbacks and the threads that run them: a callback that takes long, starts more,
 * watches, or meets the end of its client. On a real embedded store in a temporary folder.
 */
#include "drive_harness.h"

static atomic_int seen_calls, seen_last, empty_handed;
static atomic_bool line_changed;

static void seen(hf_op *op, int rc, const hf_list *l, const hf_error *e, void *user)
{
    (void)op;
    (void)e;
    seen_last = rc;
    empty_handed += rc == 0 && !l;
    if (seen_calls++ > 0 || !user)
        return;
    *(atomic_bool *)user = true; /* now change it */
    for (int64_t end = now_ms() + 10000; !line_changed && now_ms() < end;)
        nap();
}

static void *change_line(void *arg)
{
    while (!*(atomic_bool *)arg)
        nap();
    hf_release(hold(c, "w", 0), NULL);
    hf_client_wait(c, 100); /* reads that it has changed, while the callback runs */
    line_changed = true;
    return NULL;
}

static void watch_is_told_once_more_of_a_change_during_its_callback(void **state)
{
    atomic_bool go = false;
    pthread_t t;
    hf_op *op;

    (void)state;
    seen_calls = empty_handed = 0;
    line_changed = false;
    assert_int_equal(pthread_create(&t, NULL, change_line, &go), 0);
    assert_int_equal(hf_watch_start(c, "w", seen, &go, &op, NULL), 0);
    while (seen_calls == 0)
        hf_client_wait(c, 200);
    for (int64_t end = now_ms() + SOON_MS; seen_calls < 2 && now_ms() < end;)
        hf_client_wait(c, 200);
    while (hf_client_wait(c, 200) > 0)
        ;
    pthread_join(t, NULL);
    assert_in_range(seen_calls, 2, 10);
    assert_int_equal(empty_handed, 0);
    hf_op_free(op);
}

static void watch_with_unseen_news_is_told_of_the_close(void **state)
{
    hf_op *op;

    (void)state;
    seen_calls = 0;
    assert_int_equal(hf_watch_start(c, "w", seen, NULL, &op, NULL), 0);
    hf_close(c);
    c = NULL;
    assert_int_equal(seen_calls, 1);
    assert_int_equal(seen_last, HF_ECLOSED);
    hf_op_free(op);
}

/* Relaxed, so that the thread sanitizer sees what the library itself orders. */
static atomic_bool lingers, is_freed;

static void linger(hf_op *op, int rc, const hf_list *l, const hf_error *e, void *user)
{
    (void)op;
    (void)rc;
    (void)l;
    (void)e;
    (void)user;
    atomic_store_explicit(&lingers, true, memory_order_relaxed);
    for (int64_t end = now_ms() + PATIENCE_MS;
         !atomic_load_explicit(&is_freed, memory_order_relaxed) && now_ms() < end;)
        nap();
}

static void *pump(void *arg)
{
    (void)arg;
    while (hf_client_wait(c, PATIENCE_MS) == 0)
        ;
    return NULL;
}

static void operation_is_freed_by_another_thread_while_its_callback_runs(void **state)
{
    pthread_t t;
    hf_op *op;

    (void)state;
    lingers = is_freed = false;
    assert_int_equal(hf_look_start(c, "w", linger, NULL, &op, NULL), 0);
    assert_int_equal(pthread_create(&t, NULL, pump, NULL), 0);
    AWAIT(atomic_load_explicit(&lingers, memory_order_relaxed));
    hf_op_free(op);
    atomic_store_explicit(&is_freed, true, memory_order_relaxed);
    pthread_join(t, NULL);
}

static atomic_bool follower_is_back;

static void *follow(void *arg)
{
    for (int i = 0; i < 50; i++) /* so that the other leads; if not, nothing is shown */
        nap();
    run_call(arg);
    follower_is_back = true;
    return NULL;
}

static void wait_for_the_follower(hf_op *op, int rc, hf_lease *l, const hf_error *e,
                                  void *user)
{
    (void)op;
    (void)e;
    assert_int_equal(rc, 0);
    hf_release(l, NULL);
    for (int64_t end = now_ms() + 10000; !follower_is_back && now_ms() < end;)
        nap();
    *(bool *)user = follower_is_back;
}

static void *release_later(void *lease)
{
    until_waiters("x", 1);
    hf_release(lease, NULL);
    return NULL;
}

/* No keeper here: only the thread in hf_client_wait and the one that follows it. */
static void callback_that_takes_long_does_not_stop_the_others(void **state)
{
    hf_lease *x = hold(other, "x", 0), *y = hold(other, "y", 0);
    struct call a = { .name = "x", .wait_ms = SOON_MS };
    pthread_t later;
    bool back = false;
    hf_op *op;

    (void)state;
    follower_is_back = false;
    assert_int_equal(
        hf_acquire_start(c, "y", HF_FOREVER, NULL, wait_for_the_follower, &back, &op, NULL),
        0);
    assert_int_equal(pthread_create(&later, NULL, release_later, y), 0);
    assert_int_equal(pthread_create(&a.thread, NULL, follow, &a), 0);
    while (hf_client_wait(c, 10000) == 0)
        ;
    pthread_join(a.thread, NULL);
    pthread_join(later, NULL);
    assert_true(back);
    assert_int_equal(a.rc, HF_ETIMEDOUT);
    hf_op_free(op);
    hf_release(x, NULL);
}

static int rounds;
static hf_op *round_op;

static void round_again(hf_op *op, int rc, hf_lease *l, const hf_error *e, void *user)
{
    (void)e;
    (void)user;
    hf_op_free(op);
    if (rc == HF_ECLOSED)
        return;
    hf_release(l, NULL);
    if (rounds++ < 1000)
        hf_acquire_start(c, "n", HF_FOREVER, NULL, round_again, NULL, &round_op, NULL);
}

static void process_returns_while_callbacks_start_more(void **state)
{
    struct pollfd p = { .fd = hf_client_fd(c), .events = POLLIN };

    (void)state;
    rounds = 0;
    assert_int_equal(
        hf_acquire_start(c, "n", HF_FOREVER, NULL, round_again, NULL, &round_op, NULL), 0);
    for (int i = 1; i <= 20; i++) {
        assert_int_equal(poll(&p, 1, 10000), 1); /* there is more to do, and it says so */
        assert_true(hf_client_process(c) > 0);
        assert_int_equal(rounds, i);
    }
}

static void waiting_no_time_still_processes(void **state)
{
    hf_lease *y = hold(other, "y", 0);
    struct call cb = { 0 };
    hf_op *op;

    (void)state;
    assert_int_equal(hf_acquire_start(c, "y", HF_FOREVER, NULL, granted, &cb, &op, NULL),
                     0);
    hf_release(y, NULL);
    for (int64_t end = now_ms() + 10000; !cb.took_ms && now_ms() < end; nap())
        assert_true(hf_client_wait(c, 0) >= 0);
    assert_int_equal(cb.took_ms, 1);
    hf_op_free(op);
    hf_release(cb.lease, NULL);
}

static void *wait_for_callbacks(void *rc)
{
    *(int *)rc = hf_client_wait(c, HF_FOREVER);
    return NULL;
}

static void waiting_for_callbacks_ends_with_the_client(void **state)
{
    /* if it has not begun by then, it finds a closed client */
    hf_lease *l = hold(c, "n", 0);
    pthread_t t;
    int rc = 1;

    (void)state;
    assert_int_equal(pthread_create(&t, NULL, wait_for_callbacks, &rc), 0);
    for (int i = 0; i < 20; i++)
        nap();
    hf_close(c);
    pthread_join(t, NULL);
    assert_int_equal(rc, HF_ECLOSED);
    assert_int_equal(hf_release(l, NULL), HF_ECLOSED);
    c = NULL;
}

static int release_rc;

static void release_in_close(hf_op *op, int rc, hf_lease *l, const hf_error *e, void *user)
{
    (void)op;
    (void)e;
    assert_int_equal(rc, 0);
    release_rc = hf_release_start(l, granted, user, &round_op, NULL);
}

static void release_started_while_closing_says_so(void **state)
{
    struct call cb = { 0 };
    hf_op *op;

    (void)state;
    release_rc = 0;
    assert_int_equal(
        hf_acquire_start(c, "n", HF_FOREVER, NULL, release_in_close, &cb, &op, NULL), 0);
    hf_close(c);
    c = NULL;
    assert_int_equal(release_rc, HF_ECLOSED); /* else its callback had to come */
    assert_int_equal(cb.took_ms, 0);
    hf_op_free(op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(watch_is_told_once_more_of_a_change_during_its_callback),
        TEST(watch_with_unseen_news_is_told_of_the_close),
        TEST(operation_is_freed_by_another_thread_while_its_callback_runs),
        APP(callback_that_takes_long_does_not_stop_the_others),
        APP(process_returns_while_callbacks_start_more),
        APP(waiting_no_time_still_processes),
        TEST(waiting_for_callbacks_ends_with_the_client),
        TEST(release_started_while_closing_says_so),
    };

    return cmocka_run_group_tests_name("drive-callbacks", tests, make_folder,
                                       remove_folder);
}
