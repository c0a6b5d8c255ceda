/* hf_client_stop: nobody waits any more and nothing new begins, what is held stays held.
 * src/api is compiled once more for this program, with its points at which threads may be
 * made to lose time (api/perturb.h). */
#include "drive_harness.h"

#include "api/perturb.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAITERS = 5, ROUNDS = 200 };

static _Thread_local unsigned shaken;

void hf__perturb(void)
{
    if (!shaken)
        return;
    shaken = shaken * 1103515245u + 12345u;
    if (shaken >> 16 & 1)
        sched_yield();
    if ((shaken >> 16 & 63) == 2)
        nap();
}

/* ---- who stops it ---------------------------------------------------------------- */

static void stop_in_handler(int sig)
{
    (void)sig;
    hf_client_stop(c);
}

static void by_signal(void)
{
    struct sigaction sa = { .sa_handler = stop_in_handler };

    sigaction(SIGUSR1, &sa, NULL);
    raise(SIGUSR1);
}

static void by_call(void)
{
    assert_int_equal(hf_client_stop(c), 0);
    assert_int_equal(hf_client_stop(c), 0);
}

/* ---- blocking calls -------------------------------------------------------------- */

static void refuses_what_is_new(void)
{
    const char *names[] = { "a", "b" };
    hf_error e = { 0 };
    hf_lease *l;
    hf_list *list;
    hf_op *op;

    assert_int_equal(hf_acquire(c, "a", HF_FOREVER, NULL, &l, &e), HF_ECLOSED);
    assert_string_equal(e.text, "the client is stopped");
    assert_int_equal(hf_acquire(c, "a", 0, NULL, &l, NULL), HF_ECLOSED);
    assert_int_equal(hf_acquire_all(c, names, 2, 0, NULL, &l, NULL), HF_ECLOSED);
    assert_int_equal(hf_acquire_start(c, "a", 0, NULL, granted, NULL, &op, &e), HF_ECLOSED);
    assert_int_equal(hf_look(c, "a", &list, NULL), HF_ECLOSED);
    assert_int_equal(hf_ls(c, "", 0, &list, NULL), HF_ECLOSED);
    assert_int_equal(hf_evict(c, "a", "00000000000000000000000000000000", 0, &e),
                     HF_ECLOSED);
}

static void still_works(hf_lease *l)
{
    assert_int_equal(hf_lease_check(l), 0);
    assert_int_equal(hf_lease_state(l), HF_HELD);
    assert_true(hf_lease_fence(l) > 0);
    assert_true(hf_lease_fd(l, NULL) >= 0);
    assert_int_equal(hf_lease_note(l, "stopping", NULL), 0);
    assert_int_equal(hf_lease_adopt(l, 7, NULL), 0);
    assert_int_equal(hf_lease_downgrade(l, NULL), 0);
}

static void ends_waits_and_keeps_holds(void (*stop)(void))
{
    hf_lease *x = hold(other, "x", 0), *kept = hold(c, "kept", SOON_MS),
             *last = hold(c, "y", 0);
    struct call k[WAITERS];

    for (int i = 0; i < WAITERS; i++) {
        k[i] = (struct call){ .name = "x", .wait_ms = HF_FOREVER };
        begin(&k[i]);
    }
    until_waiters("x", WAITERS);
    stop();
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(k[i].thread, NULL);
        assert_int_equal(k[i].rc, HF_ECLOSED);
        assert_string_equal(k[i].err.text, "the client is stopped");
    }
    until_waiters("x", 0);
    refuses_what_is_new();
    for (int64_t end = now_ms() + 2 * SOON_MS; now_ms() < end; nap())
        assert_int_equal(hf_lease_check(kept), 0);
    still_works(kept);
    assert_int_equal(hf_release(kept, NULL), 0);
    assert_int_equal(hf_release_after(last, 100, NULL), 0);
    assert_int_equal(hf_acquire(other, "y", PATIENCE_MS, NULL, &last, NULL), 0);
    hf_release(last, NULL);
    hf_release(hold(other, "kept", 0), NULL);
    hf_release(x, NULL);
}

static void stopped_by_a_thread(void **state)
{
    (void)state;
    ends_waits_and_keeps_holds(by_call);
}

static void stopped_by_a_signal_handler(void **state)
{
    (void)state;
    ends_waits_and_keeps_holds(by_signal);
}

static void stopped_with_nobody_inside(void **state)
{
    hf_lease *l = hold(c, "n", 0);

    (void)state;
    by_signal();
    refuses_what_is_new();
    assert_int_equal(hf_release(l, NULL), 0);
}

/* ---- at any moment --------------------------------------------------------------- */

static atomic_int rounds_done;

static void *lock_and_unlock(void *arg)
{
    char name[16];
    int rc = 0;

    shaken = (unsigned)(uintptr_t)arg | 1;
    while (rc == 0) {
        hf_lease *l;

        snprintf(name, sizeof name, "n%u", (shaken >> 8) % 3);
        rc = hf_acquire(c, name, HF_FOREVER, NULL, &l, NULL);
        if (rc == 0) {
            assert_int_equal(hf_lease_check(l), 0);
            assert_int_equal(hf_release(l, NULL), 0);
        }
    }
    rounds_done++;
    return (void *)(intptr_t)rc;
}

static void stopped_at_any_moment(void **state)
{
    unsigned seed = (unsigned)now_ms();

    print_message("seed %u\n", seed);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t t[WAITERS];

        for (uintptr_t i = 0; i < WAITERS; i++)
            assert_int_equal(pthread_create(&t[i], NULL, lock_and_unlock,
                                            (void *)(uintptr_t)rand_r(&seed)),
                             0);
        for (int i = rand_r(&seed) % 50; i > 0; i--)
            sched_yield();
        if (round % 2)
            by_signal();
        else
            by_call();
        for (int i = 0; i < WAITERS; i++) {
            void *rc;

            pthread_join(t[i], &rc);
            assert_int_equal((intptr_t)rc, HF_ECLOSED);
        }
        teardown(state);
        assert_int_equal(setup(state), 0);
    }
}

/* A handler that runs while another thread closes. */
static atomic_bool closing;

static void *stop_again_and_again(void *arg)
{
    (void)arg;
    while (!closing)
        hf_client_stop(c);
    return NULL;
}

static void stopped_up_to_the_close(void **state)
{
    for (int round = 0; round < ROUNDS / 4; round++) {
        pthread_t t;

        closing = false;
        assert_int_equal(pthread_create(&t, NULL, stop_again_and_again, NULL), 0);
        nap();
        closing = true; /* a call may be under way */
        pthread_join(t, NULL);
        teardown(state);
        assert_int_equal(setup(state), 0);
    }
}

/* ---- started operations ---------------------------------------------------------- */

static int closed_calls, seen_calls, seen_last;
static hf_op *acquire_op, *release_op;

static void closed(hf_op *op, int rc, hf_lease *l, const hf_error *e, void *user)
{
    hf_op *again;

    (void)user;
    assert_int_equal(rc, HF_ECLOSED);
    assert_int_equal(e->code, HF_ECLOSED);
    assert_null(l);
    closed_calls++;
    assert_int_equal(hf_acquire_start(c, "n", 0, NULL, closed, NULL, &again, NULL),
                     HF_ECLOSED);
    hf_op_free(op);
}

static void seen(hf_op *op, int rc, const hf_list *l, const hf_error *e, void *user)
{
    (void)op;
    (void)l;
    (void)e;
    (void)user;
    seen_calls++;
    seen_last = rc;
}

static void callbacks_run_once_after_the_stop(void **state)
{
    hf_lease *x = hold(other, "x", 0), *l = hold(c, "l", 0);
    struct pollfd p = { .fd = hf_client_fd(c), .events = POLLIN };
    struct call cb = { 0 };
    hf_op *watch;

    (void)state;
    closed_calls = seen_calls = 0;
    assert_int_equal(
        hf_acquire_start(c, "x", HF_FOREVER, NULL, closed, NULL, &acquire_op, NULL), 0);
    assert_int_equal(hf_watch_start(c, "x", seen, NULL, &watch, NULL), 0);
    while (hf_client_process(c) > 0 || poll(&p, 1, 100) == 1)
        ;
    assert_int_equal(closed_calls, 0);
    by_signal();
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1); /* with nobody inside, too */
    while (hf_client_process(c) > 0)
        ;
    assert_int_equal(closed_calls, 1);
    assert_int_equal(seen_last, HF_ECLOSED);
    hf_op_free(watch);
    assert_int_equal(hf_client_wait(c, 1), 0); /* a lease is held, and to be renewed */
    assert_int_equal(hf_release_start(l, granted, &cb, &release_op, NULL), 0);
    while (!cb.took_ms)
        assert_true(hf_client_wait(c, PATIENCE_MS) >= 0);
    assert_int_equal(cb.rc, 0);
    hf_op_free(release_op);
    /* nothing is left to wait for */
    assert_int_equal(hf_client_wait(c, HF_FOREVER), HF_ECLOSED);
    assert_int_equal(closed_calls, 1);
    hf_release(x, NULL);
}

static void *pump(void *arg)
{
    int rc;

    (void)arg;
    while ((rc = hf_client_wait(c, HF_FOREVER)) >= 0)
        ;
    return (void *)(intptr_t)rc;
}

/* Two of them, so that one follows: both end with the last lease. */
static void threads_that_wait_for_callbacks_end(void **state)
{
    hf_lease *l = hold(c, "l", 0);
    pthread_t t[2];
    void *rc;

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, pump, NULL), 0);
    nap();
    by_call();
    assert_int_equal(hf_release(l, NULL), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], &rc);
        assert_int_equal((intptr_t)rc, HF_ECLOSED);
    }
}

static atomic_int waiting_for_loss;

static void *await_loss(void *arg)
{
    hf_error e = { 0 };

    atomic_fetch_add(&waiting_for_loss, 1);
    return (void *)(intptr_t)hf_lease_wait(arg, HF_FOREVER, &e);
}

/* Those who wait for the loss of a lease, one leading and the others following, are ended
 * too; the lease stays. */
static void threads_that_wait_for_a_loss_end(void **state)
{
    hf_lease *l = hold(c, "x", 0);
    pthread_t t[3];
    void *rc;

    (void)state;
    atomic_store(&waiting_for_loss, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i], NULL, await_loss, l), 0);
    AWAIT(atomic_load(&waiting_for_loss) == 3);
    nap();
    hf_client_stop(c);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(t[i], &rc), 0);
        assert_int_equal((int)(intptr_t)rc, HF_ECLOSED);
    }
    assert_int_equal(hf_lease_check(l), 0);
    assert_int_equal(hf_release(l, NULL), 0);
}

static void give_back(hf_lease *l, int state, void *user)
{
    (void)user;
    if (state == HF_LOST)
        hf_release(l, NULL);
}

/* The last lease is given back in its callback, on the thread that tells: whoever waits for
 * callbacks of the stopped client need not wait any more. */
static void thread_that_waits_ends_with_the_last_lease(void **state)
{
    hf_lease *l = hold(c, "x", 0);
    int64_t began;

    (void)state;
    assert_int_equal(hf_lease_on_change(l, give_back, NULL, NULL), 0);
    hf_client_stop(c);
    evict("x", HF_EVICT_NOW);
    began = now_ms();
    assert_int_equal(hf_client_wait(c, HF_FOREVER), HF_ECLOSED);
    /* and not by the next timer, after 15 s */
    assert_true(now_ms() - began < 8000 * TEST_SLOW);
}

static void stop_in_callback(hf_op *op, int rc, hf_lease *l, const hf_error *e, void *user)
{
    (void)op;
    (void)e;
    assert_int_equal(rc, 0);
    assert_int_equal(hf_client_stop(c), 0);
    *(hf_lease **)user = l;
}

static void stopped_in_a_callback(void **state)
{
    hf_lease *x = hold(other, "x", 0), *got = NULL;
    hf_op *op;

    (void)state;
    closed_calls = 0;
    assert_int_equal(
        hf_acquire_start(c, "x", HF_FOREVER, NULL, closed, NULL, &acquire_op, NULL), 0);
    assert_int_equal(hf_acquire_start(c, "n", 0, NULL, stop_in_callback, &got, &op, NULL),
                     0);
    while (!got || !closed_calls)
        assert_true(hf_client_wait(c, PATIENCE_MS) > 0);
    hf_op_free(op);
    assert_int_equal(hf_lease_check(got), 0);
    assert_int_equal(hf_release(got, NULL), 0);
    hf_release(x, NULL);
}

/* ---- what it refuses itself ------------------------------------------------------ */

static void not_of_a_parent(void **state)
{
    int status;
    pid_t pid;

    (void)state;
    assert_int_equal(hf_client_stop(NULL), HF_EINVAL);
    pid = fork();
    if (pid == 0)
        _exit(hf_client_stop(c) == HF_EFORKED ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    hf_release(hold(c, "n", 0), NULL); /* nothing has happened here */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(stopped_by_a_thread),
        PROMPT(stopped_by_a_thread),
        TEST(stopped_by_a_signal_handler),
        PROMPT(stopped_by_a_signal_handler),
        TEST(stopped_with_nobody_inside),
        APP(stopped_with_nobody_inside),
        TEST(stopped_at_any_moment),
        TEST(stopped_up_to_the_close),
        TEST(callbacks_run_once_after_the_stop),
        APP(callbacks_run_once_after_the_stop),
        APP(threads_that_wait_for_callbacks_end),
        TEST(threads_that_wait_for_callbacks_end),
        TEST(threads_that_wait_for_a_loss_end),
        TEST(thread_that_waits_ends_with_the_last_lease),
        PROMPT(threads_that_wait_for_callbacks_end),
        TEST(stopped_in_a_callback),
        APP(stopped_in_a_callback),
        TEST(not_of_a_parent),
    };

    return cmocka_run_group_tests_name("stop", tests, make_folder, remove_folder);
}
