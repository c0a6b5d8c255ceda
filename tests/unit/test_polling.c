/* Polling before a sleep: src/api/spin.c, on a machine of which the test decides how many
 * processors it has, whether they are taken away, and whether the control group of the
 * process was throttled. */
#include "drive_harness.h"

#include "api/api.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POLL_US = 200, TRIES = 200 };

static struct {
    int processors;
    const char *quota;     /* cpu.max; NULL: there is no control group */
    long throttled;        /* nr_throttled */
    bool busy;             /* others want the processor: ru_nivcsw grows */
    long preempted, asked; /* ru_nivcsw, and how often it was asked for */
} machine;

/* ---- the machine ----------------------------------------------------------------- */

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    (void)pid;
    memset(set, 0, size);
    for (int i = 0; i < machine.processors; i++)
        CPU_SET((size_t)i, set);
    return 0;
}

int __wrap_getrusage(int who, struct rusage *usage);
int __wrap_getrusage(int who, struct rusage *usage)
{
    assert_int_equal(who, RUSAGE_THREAD);
    memset(usage, 0, sizeof *usage);
    machine.preempted += machine.busy;
    usage->ru_nivcsw = machine.preempted;
    machine.asked++;
    return 0;
}

/* A pipe with this text in it. */
static int as_file(const char *text)
{
    int fd[2];

    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    assert_int_equal(write(fd[1], text, strlen(text)), strlen(text));
    close(fd[1]);
    return fd[0];
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
    char text[128];
    mode_t mode;
    va_list ap;

    if (strcmp(path, "/proc/self/cgroup") == 0)
        return as_file("1:cpu:/elsewhere\n0::/jobs/mine\n");
    if (strncmp(path, "/sys/fs/cgroup/", 15) == 0 && !machine.quota)
        return -1;
    if (strcmp(path, "/sys/fs/cgroup/jobs/mine/cpu.max") == 0) {
        snprintf(text, sizeof text, "%s 100000\n", machine.quota);
        return as_file(text);
    }
    if (strcmp(path, "/sys/fs/cgroup/jobs/mine/cpu.stat") == 0) {
        snprintf(text, sizeof text, "usage_usec 9\nnr_throttled %ld\n", machine.throttled);
        return as_file(text);
    }
    va_start(ap, flags);
    mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return __real_open64(path, flags, mode);
}

/* ---- what a thread does ---------------------------------------------------------- */

/* Whether it polls; and if so it does, in vain. */
static bool polls(void)
{
    struct spin s = { .most_us = POLL_US, .near = SPIN_TRUST };
    struct epoll_event ev;
    int64_t begin = hf__loop_now(), us = hf__spin_begin(&s, begin);
    long asked = machine.asked;

    if (us > 0) {
        assert_int_equal(hf__spin_poll(&c->loop, &ev, 1, us, begin), 0);
        hf__spin_end(&s, us, true, us);
    }
    return machine.asked > asked; /* a poll in vain ends with that question */
}

/* In a child; ends it if not. */
static void polls_soon(void)
{
    int64_t end = now_ms() + PATIENCE_MS;

    while (!polls())
        if (now_ms() > end)
            _exit(4);
}

/* The process as it is after hf_open in a new one. */
static void in_a_child(void (*body)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (hf_open(url, NULL, &c, NULL) < 0)
            _exit(2);
        body();
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static int machine_of_two(void **state)
{
    machine.processors = 2;
    machine.quota = NULL;
    machine.throttled = 0;
    return setup(state);
}

/* ---- cases ----------------------------------------------------------------------- */

static void do_two(void)
{
    if (!polls())
        _exit(3);
}

static void two_processors(void **state)
{
    (void)state;
    in_a_child(do_two);
}

static void not_once(void)
{
    for (int i = 0; i < TRIES; i++)
        if (polls())
            _exit(3);
}

static void nobody_polls_on_the_only_processor(void **state)
{
    (void)state;
    machine.processors = 1;
    in_a_child(not_once);
}

static void nor_where_the_group_may_use_but_one(void **state)
{
    (void)state;
    machine.quota = "100000";
    in_a_child(not_once);
}

static void a_larger_quota_is_no_obstacle(void **state)
{
    (void)state;
    machine.quota = "150000";
    in_a_child(do_two);
    machine.quota = "max";
    in_a_child(do_two);
}

static void then_given_two(void)
{
    not_once();
    machine.processors = 2;
    polls_soon();
}

static void a_second_processor_is_noticed(void **state)
{
    (void)state;
    machine.processors = 1;
    in_a_child(then_given_two);
}

static void then_preempted(void)
{
    do_two();
    machine.busy = true;
    do_two(); /* which learns of it */
    machine.busy = false;
    not_once();
    polls_soon();
}

static void nobody_polls_for_a_second_after_a_preemption(void **state)
{
    (void)state;
    in_a_child(then_preempted);
}

static void then_throttled(void)
{
    int64_t begin = now_ms();

    do_two();
    machine.throttled++;
    while (now_ms() <= begin + 1000) /* the group is asked once a second */
        nap();
    not_once();
    polls_soon();
}

static void nor_after_the_group_was_throttled(void **state)
{
    (void)state;
    machine.quota = "max";
    machine.throttled = 5; /* before */
    in_a_child(then_throttled);
}

/* Whether hf_client_wait polls if so many wait for a lock that this client has. */
static bool polls_for(size_t waiters)
{
    hf_lease *held = hold(c, "busy", 0);
    struct call unused = { 0 };
    hf_op *op[8];
    long asked;

    for (size_t i = 0; i < waiters; i++)
        assert_int_equal(
            hf_acquire_start(c, "busy", HF_FOREVER, NULL, granted, &unused, &op[i], NULL),
            0);
    c->spins[SPIN_CALLBACK] = (struct spin){ .most_us = POLL_US, .near = SPIN_TRUST };
    asked = machine.asked;
    hf_client_wait(c, 1);
    asked = machine.asked - asked;
    for (size_t i = 0; i < waiters; i++)
        hf_op_free(op[i]);
    hf_release(held, NULL);
    return asked > 0;
}

static void who_waits_for_many_answers_sleeps(void **state)
{
    (void)state;
    assert_true(polls_for(1));
    assert_false(polls_for(5));
}

/* A child has a budget of its own, whatever its parent has lost. */
static void a_child_begins_anew(void **state)
{
    int n = 0;

    (void)state;
    while (polls())
        assert_in_range(n++, 0, 100000); /* until it is used up: after some 250 */
    assert_in_range(n, 1, 100000);
    in_a_child(do_two);
}

int main(void)
{
#define MACHINE(f) cmocka_unit_test_setup_teardown(f, machine_of_two, teardown)
    const struct CMUnitTest tests[] = {
        MACHINE(two_processors),
        MACHINE(nobody_polls_on_the_only_processor),
        MACHINE(nor_where_the_group_may_use_but_one),
        MACHINE(a_larger_quota_is_no_obstacle),
        MACHINE(a_second_processor_is_noticed),
        MACHINE(nobody_polls_for_a_second_after_a_preemption),
        MACHINE(nor_after_the_group_was_throttled),
        MACHINE(who_waits_for_many_answers_sleeps),
        MACHINE(a_child_begins_anew), /* which uses up what this process has */
    };

    return cmocka_run_group_tests_name("polling", tests, make_folder, remove_folder);
}
