/* The callbacks of hf_lease_on_change: on which thread, beside what, and until when. */
#include "drive_harness.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- threads that cannot be made ------------------------------------------------- */

static atomic_bool no_threads;

int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *),
                          void *arg)
{
    return no_threads ? EAGAIN : __real_pthread_create(t, a, run, arg);
}

/* ---- a callback that we can hold up ---------------------------------------------- */

struct listener {
    atomic_int calls, last;
    atomic_ulong by;     /* the thread of the last call */
    atomic_bool runs;    /* it is in the callback */
    atomic_bool held_up; /* it stays there while this is true */
    atomic_int check;    /* what it was told there of the lease */
    atomic_bool named;
};

static void told(hf_lease *l, int state, void *user)
{
    struct listener *x = user;

    x->by = (unsigned long)pthread_self();
    x->last = state;
    x->calls++;
    x->runs = true;
    for (int64_t end = now_ms() + PATIENCE_MS; x->held_up && now_ms() < end;)
        nap();
    x->named = strcmp(hf_lease_name(l), "p") == 0;
    x->check = hf_lease_check(l);
    x->runs = false;
}

static bool by_us(const struct listener *x)
{
    return x->by == (unsigned long)pthread_self();
}

static hf_lease *listened(struct listener *x)
{
    hf_lease *l = hold(c, "p", 0);

    assert_int_equal(hf_lease_on_change(l, told, x, NULL), 0);
    return l;
}

/* ---- on which thread ------------------------------------------------------------- */

/* The ttl is 30 s: whoever does not listen hears of it after 10 s. */
static void told_with_no_call_under_way(void **state)
{
    struct listener x = { 0 };
    hf_lease *l = listened(&x);
    int64_t start = now_ms();

    (void)state;
    evict("p", HF_EVICT_NOW);
    AWAIT(x.last == HF_LOST);
    assert_in_range(now_ms() - start, 0, 5000);
    assert_false(by_us(&x));
    assert_int_equal(hf_release(l, NULL), HF_ELOST);
    assert_int_equal(x.calls, 1);
}

static void told_again_after_nobody_listened(void **state)
{
    for (int i = 0; i < 3; i++)
        told_with_no_call_under_way(state);
}

/* Who has asked for the descriptor drives by himself. */
static void told_in_process_once_the_descriptor_was_asked_for(void **state)
{
    struct listener x = { 0 };
    hf_lease *l = listened(&x);
    struct pollfd p = { .fd = hf_client_fd(c), .events = POLLIN };

    (void)state;
    evict("p", HF_EVICT_NOW);
    for (int64_t end = now_ms() + PATIENCE_MS; !x.calls && now_ms() < end;) {
        assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
        for (int i = 0; i < 20; i++, nap())
            assert_int_equal(x.calls, 0);
        assert_true(hf_client_process(c) >= 0);
    }
    assert_int_equal(x.last, HF_LOST);
    assert_true(by_us(&x));
    assert_int_equal(hf_release(l, NULL), HF_ELOST);
}

static void told_before_the_close_returns(void **state)
{
    struct listener x = { 0 };
    hf_lease *l = listened(&x);

    (void)state;
    hf_close(c);
    c = NULL;
    assert_int_equal(x.calls, 1);
    assert_int_equal(x.last, HF_LOST);
    assert_int_equal(hf_release(l, NULL), HF_ECLOSED);
}

static void registering_says_that_there_is_no_thread(void **state)
{
    struct listener x = { 0 };
    hf_lease *l = hold(c, "p", 0);
    hf_error e = { 0 };

    (void)state;
    no_threads = true;
    assert_int_equal(hf_lease_on_change(l, told, &x, &e), HF_ESYS);
    assert_int_equal(e.sys, EAGAIN);
    no_threads = false;
    assert_int_equal(hf_lease_on_change(l, told, &x, &e), 0);
    evict("p", HF_EVICT_NOW);
    AWAIT(x.last == HF_LOST);
    assert_int_equal(hf_release(l, NULL), HF_ELOST);
}

/* ---- a callback that takes long -------------------------------------------------- */

static void others_are_renewed_while_a_callback_lingers(void **state)
{
    struct listener x = { .held_up = true };
    hf_lease *kept = hold(c, "kept", SOON_MS), *l = listened(&x);

    (void)state;
    evict("p", HF_EVICT_NOW);
    AWAIT(x.runs);
    for (int64_t end = now_ms() + 3 * SOON_MS; now_ms() < end; nap())
        assert_int_equal(hf_lease_check(kept), 0);
    assert_true(x.runs);
    x.held_up = false;
    assert_int_equal(hf_release(l, NULL), HF_ELOST);
    assert_int_equal(hf_release(kept, NULL), 0);
}

static void second_change_waits_for_the_first_callback(void **state)
{
    struct listener x = { .held_up = true };
    hf_lease *l = listened(&x);

    (void)state;
    evict("p", 0);
    AWAIT(x.runs);
    evict("p", HF_EVICT_NOW);
    AWAIT(hf_lease_state(l) == HF_LOST);
    assert_int_equal(x.calls, 1);
    x.held_up = false;
    AWAIT(x.calls == 2);
    assert_int_equal(hf_release(l, NULL), HF_ELOST);
}

/* ---- until when ------------------------------------------------------------------ */

enum way { RELEASE, SILENCE, REPLACE, RELEASE_AFTER, WAYS };

struct end {
    enum way way;
    hf_lease *lease;
    struct listener *next;
    int rc;
    atomic_bool returned;
    pthread_t thread;
};

static void *end(void *arg)
{
    struct end *e = arg;

    if (e->way == RELEASE)
        e->rc = hf_release(e->lease, NULL);
    else if (e->way == RELEASE_AFTER)
        e->rc = hf_release_after(e->lease, 1000, NULL);
    else
        e->rc =
            hf_lease_on_change(e->lease, e->way == REPLACE ? told : NULL, e->next, NULL);
    e->returned = true;
    return NULL;
}

/* What `user` points at may be freed when the call has returned. */
static void no_callback_runs_after_it_was_ended(void **state)
{
    for (int way = 0; way < WAYS; way++) {
        struct listener *x = calloc(1, sizeof *x), y = { 0 };
        struct end e = { .way = (enum way)way, .next = &y };

        x->held_up = true;
        e.lease = listened(x);
        evict("p", HF_EVICT_NOW);
        AWAIT(x->runs);
        assert_int_equal(pthread_create(&e.thread, NULL, end, &e), 0);
        for (int i = 0; i < 20; i++, nap())
            assert_false(e.returned);
        x->held_up = false;
        AWAIT(e.returned);
        pthread_join(e.thread, NULL);
        assert_false(x->runs);
        assert_true(x->named); /* the lease was there until then */
        assert_int_equal(x->check, HF_ELOST);
        free(x);
        if (e.way == REPLACE)
            AWAIT(y.last == HF_LOST);
        if (e.way == REPLACE || e.way == SILENCE)
            assert_int_equal(hf_release(e.lease, NULL), HF_ELOST);
        else
            assert_int_equal(e.rc, HF_ELOST);
        teardown(state);
        assert_int_equal(setup(state), 0);
    }
}

/* In the callback itself, and in one about another lease, nobody waits. */
struct two {
    hf_lease *lease[2];
    atomic_int done;
};

static void give_both_back(hf_lease *l, int state, void *user)
{
    struct two *t = user;

    (void)l;
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hf_lease_on_change(t->lease[i], NULL, NULL, NULL), 0);
        hf_release(t->lease[i], NULL);
    }
    t->done++;
}

static void leases_given_back_in_a_callback(void **state)
{
    struct two t = { { hold(c, "p", 0), hold(c, "q", 0) }, 0 };

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(hf_lease_on_change(t.lease[i], give_both_back, &t, NULL), 0);
    evict("p", HF_EVICT_NOW);
    AWAIT(t.done == 1);
    hf_release(hold(other, "q", 0), NULL);
}

/* Two threads in hf_client_process(), each in the callback of a lease that the other gives
 * back. */
struct crossed {
    hf_lease *mine, *others;
    atomic_int *in;
    atomic_bool done;
};

static void give_the_other_back(hf_lease *l, int state, void *user)
{
    struct crossed *x = user;

    (void)l;
    (void)state;
    if (x->done)
        return;
    (*x->in)++;
    AWAIT(*x->in == 2);
    hf_lease_on_change(x->others, NULL, NULL, NULL);
    x->done = true;
}

static void *pump(void *arg)
{
    struct crossed *both = arg;

    for (int64_t stop = now_ms() + PATIENCE_MS;
         !(both[0].done && both[1].done) && now_ms() < stop;)
        hf_client_wait(c, 20);
    return NULL;
}

static void two_callbacks_that_end_each_other(void **state)
{
    atomic_int in = 0;
    struct crossed x[2] = { { .mine = hold(c, "p", 0), .in = &in },
                            { .mine = hold(c, "q", 0), .in = &in } };
    pthread_t t[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        x[i].others = x[1 - i].mine;
        assert_int_equal(hf_lease_on_change(x[i].mine, give_the_other_back, &x[i], NULL),
                         0);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, pump, x), 0);
    evict("p", HF_EVICT_NOW);
    evict("q", HF_EVICT_NOW);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < 2; i++) {
        assert_true(x[i].done);
        assert_int_equal(hf_release(x[i].mine, NULL), HF_ELOST);
    }
}

/* The thread that tells exists in the parent only, and was asleep there. */
static void forked_child_gives_a_lease_with_a_callback_back(void **state)
{
    struct listener x = { 0 };
    hf_lease *l = listened(&x);
    int status;
    pid_t pid;

    (void)state;
    for (int i = 0; i < 20; i++)
        nap(); /* so that it sleeps; if not, nothing is shown */
    pid = fork();
    if (pid == 0) {
        int rc = hf_release(l, NULL);

        alarm(30 * TEST_SLOW);
        hf_close(c);
        _exit(rc == HF_EFORKED ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(hf_lease_check(l), 0);
    assert_int_equal(hf_release(l, NULL), 0);
    assert_int_equal(x.calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(told_with_no_call_under_way),
        PROMPT(told_with_no_call_under_way),
        TEST(told_again_after_nobody_listened),
        TEST(told_in_process_once_the_descriptor_was_asked_for),
        APP(told_in_process_once_the_descriptor_was_asked_for),
        TEST(told_before_the_close_returns),
        PROMPT(told_before_the_close_returns),
        APP(told_before_the_close_returns),
        TEST(registering_says_that_there_is_no_thread),
        TEST(others_are_renewed_while_a_callback_lingers),
        PROMPT(others_are_renewed_while_a_callback_lingers),
        PROMPT(second_change_waits_for_the_first_callback),
        TEST(no_callback_runs_after_it_was_ended),
        TEST(leases_given_back_in_a_callback),
        PROMPT(leases_given_back_in_a_callback),
        APP(two_callbacks_that_end_each_other),
        TEST(forked_child_gives_a_lease_with_a_callback_back),
    };

    return cmocka_run_group_tests_name("callback", tests, make_folder, remove_folder);
}
