/* test_local_threads.c: clients of one process on threads of their own: they share the
 * gate, the environment and the process's number, and nothing else. Meant for the thread
 * sanitizer too. */
#include "local_harness.h"
#include "sanitizer.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 400 };

static _Atomic int inside, violations;

struct worker {
    pthread_t thread;
    uint64_t random;
    /* the line of the first failure: cmocka's asserts are for the main thread */
    int failed;
};

#define CHECK(w, c)                                                                        \
    do                                                                                     \
        if (!(c) && !(w)->failed)                                                          \
            (w)->failed = __LINE__;                                                        \
    while (0)

static void one_round(struct worker *w, struct side *s)
{
    int64_t end = hf__loop_now() + 2 * LIMIT_US;
    struct pass p;

    pass_init(&p, s, "x");
    pass_join(&p);
    while (!p.granted && !p.gone && hf__loop_now() < end)
        side_turn(s, hf__loop_now() + 100000);
    CHECK(w, p.granted == 1);
    if (atomic_fetch_add(&inside, 1) != 0)
        atomic_fetch_add(&violations, 1);
    if (test_random(&w->random) % 2)
        pass_renew(&p);
    atomic_fetch_sub(&inside, 1);
    CHECK(w, pass_leave(&p) == 0);
}

static void *hammer(void *arg)
{
    struct worker *w = arg;
    struct side s;

    CHECK(w, side_open(&s, folder, "") == 0);
    for (int i = 0; i < ROUNDS && !w->failed; i++) {
        one_round(w, &s);
        if (test_random(&w->random) % 16 == 0) { /* close and open beside the others */
            side_close(&s);
            CHECK(w, side_open(&s, folder, "") == 0);
        }
    }
    if (!w->failed)
        side_close(&s);
    return NULL;
}

/* Takes many names, so that the map grows while the others are in it. */
static void *grow(void *arg)
{
    enum { N = 6000 };
    struct worker *w = arg;
    struct pass *p = calloc(N, sizeof *p);
    struct side s;
    char name[32];

    CHECK(w, p && side_open(&s, folder, "") == 0);
    for (int i = 0; i < N && !w->failed; i++) {
        snprintf(name, sizeof name, "n/%d", i);
        pass_init(&p[i], &s, name);
        CHECK(w, pass_join(&p[i]) == 1);
    }
    for (int i = 0; i < N && !w->failed; i++)
        CHECK(w, pass_leave(&p[i]) == 0);
    if (!w->failed)
        side_close(&s);
    free(p);
    return NULL;
}

static void run(void *(*const bodies[])(void *), size_t n, void (*beside)(void))
{
    uint64_t seed = test_seed();
    struct worker w[THREADS + 1];

    inside = violations = 0;
    for (size_t i = 0; i < n; i++) {
        w[i].random = test_random(&seed);
        w[i].failed = 0;
        assert_int_equal(pthread_create(&w[i].thread, NULL, bodies[i], &w[i]), 0);
    }
    if (beside)
        beside();
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(w[i].failed, 0);
    assert_int_equal(violations, 0);
}

static void threads_exclude_each_other(void **state)
{
    void *(*const bodies[])(void *) = { hammer, hammer, hammer, hammer, grow };

    (void)state;
    run(bodies, 5, NULL);
}

/* Forks at any moment of the others' work; each child opens the store for itself. */
#if !TEST_SANITIZED
static void fork_often(void)
{
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        int status;

        if (pid == 0) {
            struct side s;
            struct pass p;

            alarm(60);
            if (side_open(&s, folder, "") < 0)
                _exit(1);
            pass_init(&p, &s, "of a child");
            if (pass_join(&p) != 1 || pass_leave(&p) != 0)
                _exit(2);
            side_close(&s);
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

static void forks_beside_threads(void **state)
{
    void *(*const bodies[])(void *) = { hammer, hammer };

    (void)state;
    run(bodies, 2, fork_often);
}
#endif

/* ---- opening and closing beside each other --------------------------------------- */

/* One thread is held up while it enters or leaves the folder, as by a process that is
 * stopped there; for HELD_MS at most. */
enum { HELD_MS = 8000, SHORT_US = HELD_MS * 1000 / 2 };
enum { NOWHERE, ENTERING, LEAVING };
static _Atomic int hold_up_at;
static sem_t reached, go;

static void hold_up(int where)
{
    struct timespec end;
    int now = where;

    if (!atomic_compare_exchange_strong(&hold_up_at, &now, NOWHERE))
        return;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += HELD_MS / 1000;
    sem_post(&reached);
    sem_timedwait(&go, &end);
}

int __real_hf__local_folder_enter(struct shared *, int64_t, hf_error *);
int __wrap_hf__local_folder_enter(struct shared *, int64_t, hf_error *);
void __real_hf__local_process_end(struct shared *);
void __wrap_hf__local_process_end(struct shared *);

int __wrap_hf__local_folder_enter(struct shared *sh, int64_t limit_ms, hf_error *err)
{
    hold_up(ENTERING);
    return __real_hf__local_folder_enter(sh, limit_ms, err);
}

void __wrap_hf__local_process_end(struct shared *sh)
{
    hold_up(LEAVING);
    __real_hf__local_process_end(sh);
}

static void *open_and_leave_open(void *arg)
{
    struct side *s = arg;
    int rc = side_open(s, folder, "?connect_timeout=20s");

    return rc < 0 ? arg : NULL;
}

static void *close_it(void *arg)
{
    side_close(arg);
    return NULL;
}

/* One thread is held up in `folder`, on its way in or out. */
static void others_meanwhile(void)
{
    char *other = strdup(folder_file(folder, "../other"));
    int64_t began = hf__loop_now();
    struct side s;

    assert_int_equal(side_open(&s, other, ""), 0); /* another folder: at once */
    side_close(&s);
    assert_int_equal(side_open(&s, folder, "?connect_timeout=50ms"), HF_EBUSYSTORE);
#if !TEST_SANITIZED
    {
        pid_t pid = fork();
        int status;

        if (pid == 0) { /* nobody is held up in the child */
            alarm(60);
            _exit(side_open(&s, folder, "") == 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
#endif
    assert_true(hf__loop_now() - began < SHORT_US);
    free(other);
}

static void a_thread_held_up_in_one_folder(void **state)
{
    struct side first, second;
    pthread_t one, two;
    void *failed;

    (void)state;
    sem_init(&reached, 0, 0);
    sem_init(&go, 0, 0);
    hold_up_at = ENTERING;
    assert_int_equal(pthread_create(&one, NULL, open_and_leave_open, &first), 0);
    sem_wait(&reached);
    others_meanwhile();
    assert_int_equal(pthread_create(&two, NULL, open_and_leave_open, &second), 0);
    sem_post(&go);
    assert_int_equal(pthread_join(one, &failed), 0);
    assert_null(failed);
    assert_int_equal(pthread_join(two, &failed), 0);
    assert_null(failed);
    assert_ptr_equal(local_of(first.store)->sh, local_of(second.store)->sh);
    side_close(&second);

    hold_up_at = LEAVING;
    assert_int_equal(pthread_create(&one, NULL, close_it, &first), 0);
    sem_wait(&reached);
    others_meanwhile();
    assert_int_equal(pthread_create(&two, NULL, open_and_leave_open, &second), 0);
    sem_post(&go);
    assert_int_equal(pthread_join(one, NULL), 0);
    assert_int_equal(pthread_join(two, &failed), 0);
    assert_null(failed);
    side_close(&second);
}

#define T(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(threads_exclude_each_other),
#if !TEST_SANITIZED
        T(forks_beside_threads),
#endif
        T(a_thread_held_up_in_one_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
