/* hf_close beside calls that are just coming in, and calls that must be one step. src/api
 * is compiled once more for this program, with its points at which a test may let others
 * run (api/perturb.h): here a thread can be stopped at one of them and go on when we say
 * so. */
#include "drive_harness.h"

#include "api/api.h"
#include "api/perturb.h"

#include <sched.h>

enum { THREADS = 6, ROUNDS = 300 };

/* ---- where a thread stands ------------------------------------------------------- */

static _Thread_local int stop_at; /* at which point from now on; 0: at none */
/* or: a state, to go on, yield or nap at each by chance */
static _Thread_local unsigned shaken;
static _Thread_local atomic_int *came; /* counted up at the first point of the call */
static atomic_bool stopped, go_on;

void hf__perturb(void)
{
    if (came) {
        atomic_fetch_add(came, 1);
        came = NULL;
    }
    if (stop_at > 0 && --stop_at == 0) {
        stopped = true;
        while (!go_on)
            nap();
    }
    if (shaken) {
        shaken = shaken * 1103515245u + 12345u;
        if (shaken >> 16 & 1)
            sched_yield();
        if ((shaken >> 16 & 31) == 2)
            nap();
    }
}

static void rewind_stop(void)
{
    stopped = go_on = false;
}

/* ---- calls that come in while the client is closed ------------------------------- */

enum kind { ACQUIRE, START, LOOK, PROCESS, WAIT, FD, KINDS };

struct entrant {
    enum kind kind;
    int rc;
    unsigned shaken;
    atomic_int *came;
    pthread_t thread;
};

static int one_call(enum kind kind)
{
    hf_list *list = NULL;
    hf_lease *l;
    hf_op *op;
    int rc;

    switch (kind) {
    case ACQUIRE:
        return hf_acquire(c, "n", HF_FOREVER, NULL, &l, NULL);
    case START:
        return hf_acquire_start(c, "n", HF_FOREVER, NULL, granted, &(struct call){ 0 }, &op,
                                NULL);
    case LOOK:
        rc = hf_look(c, "n", &list, NULL);
        hf_list_free(list);
        return rc;
    case PROCESS:
        return hf_client_process(c);
    case WAIT:
        return hf_client_wait(c, HF_FOREVER);
    default:
        return hf_client_fd(c);
    }
}

static void *come_in(void *arg)
{
    struct entrant *e = arg;

    came = e->came;
    shaken = e->shaken;
    stop_at = shaken ? 0 : 1;
    e->rc = one_call(e->kind);
    return NULL;
}

static atomic_bool closed;

static void *close_client(void *arg)
{
    (void)arg;
    hf_close(c);
    closed = true;
    return NULL;
}

static bool is_closing(void)
{
    bool closing;

    pthread_mutex_lock(&c->lock);
    closing = c->closing;
    pthread_mutex_unlock(&c->lock);
    return closing;
}

/* It waits for the lock, and nobody but itself knows. */
static void close_waits_for_a_call_that_waits_for_the_lock(void **state)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct entrant e = { .kind = (enum kind)kind };
        pthread_t closer;

        rewind_stop();
        closed = false;
        assert_int_equal(pthread_create(&e.thread, NULL, come_in, &e), 0);
        AWAIT(stopped);
        assert_int_equal(pthread_create(&closer, NULL, close_client, NULL), 0);
        AWAIT(is_closing()); /* else the call may end before hf_close begins */
        for (int i = 0; i < 20; i++) {
            nap();
            assert_false(closed);
        }
        go_on = true;
        pthread_join(e.thread, NULL);
        pthread_join(closer, NULL);
        assert_int_equal(e.rc, HF_ECLOSED);
        c = NULL;
        teardown(NULL);
        assert_int_equal(setup(state), 0);
    }
    rewind_stop();
}

/* With a lease that outlives the client the last one to go frees it, whoever that is. */
static void close_beside_calls_at_random_points(void **state)
{
    unsigned seed = (unsigned)now_ms();

    print_message("seed %u\n", seed);
    for (int round = 0; round < ROUNDS; round++) {
        struct entrant e[THREADS];
        hf_lease *l = round % 2 ? hold(c, "l", 0) : NULL;
        hf_lease *busy = hold(other, "n", 0);
        atomic_int n = 0;

        for (int i = 0; i < THREADS; i++) {
            e[i] = (struct entrant){ .kind = (enum kind)(rand_r(&seed) % KINDS),
                                     .shaken = (unsigned)rand_r(&seed) | 1,
                                     .came = &n };
            if (e[i].kind == START)
                e[i].kind = ACQUIRE; /* its operation would have to be given back */
            assert_int_equal(pthread_create(&e[i].thread, NULL, come_in, &e[i]), 0);
        }
        while (n < THREADS) /* they have all begun; where they are now nobody knows */
            sched_yield();
        hf_close(c);
        assert_int_equal(hf_release(l, NULL), l ? HF_ECLOSED : 0);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(e[i].thread, NULL);
            assert_true(e[i].rc == HF_ECLOSED || e[i].kind == LOOK ||
                        e[i].kind == PROCESS || e[i].kind == FD);
        }
        assert_int_equal(hf_release(busy, NULL), 0);
        c = NULL;
        teardown(NULL);
        assert_int_equal(setup(state), 0);
    }
}

/* ---- one step -------------------------------------------------------------------- */

struct keep {
    hf_lease *lease;
    int point, rc;
    atomic_bool done;
    pthread_t thread;
};

static void *keep(void *arg)
{
    struct keep *k = arg;

    stop_at = k->point;
    k->rc = hf_release_after(k->lease, 300, NULL);
    k->done = true;
    return NULL;
}

/* A second handle at any point of the call: either the place is kept, or it is held. */
static void release_after_keeps_or_refuses(void **state)
{
    const hf_request *mine = HF_REQUEST(.owner = 7);

    (void)state;
    for (int point = 1; point <= 8; point++) {
        struct keep k = { .point = point };
        hf_lease *second = NULL;
        int rc;

        rewind_stop();
        assert_int_equal(hf_acquire(c, "k", PATIENCE_MS, mine, &k.lease, NULL), 0);
        assert_int_equal(pthread_create(&k.thread, NULL, keep, &k), 0);
        AWAIT(stopped || k.done);
        rc = hf_acquire(c, "k", 0, mine, &second, NULL);
        go_on = true;
        pthread_join(k.thread, NULL);
        assert_true(rc == 0 ? k.rc == HF_EBUSY : rc == HF_EBUSY && k.rc == 0);
        if (rc == 0) {
            assert_int_equal(hf_release(k.lease, NULL), 0);
            assert_int_equal(hf_release(second, NULL), 0);
        }
    }
    rewind_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(close_waits_for_a_call_that_waits_for_the_lock),
        TEST(close_beside_calls_at_random_points),
        TEST(release_after_keeps_or_refuses),
    };

    return cmocka_run_group_tests_name("close", tests, make_folder, remove_folder);
}
