/* calls.c: how many system calls a blocking acquire and its release make. Counted from
 * outside, by tracing a process that does nothing else, in the thread that calls: one send
 * and one receive for each round trip, one sleep for each answer that is waited for, one
 * look at whether the descriptors are still ours for each call that sends (src/api/wait.c),
 * and nothing for each call besides. The table is that of docs/verification.md.
 *
 * On a machine that is slow just now there is more: heartbeats, votes that are late, a lock
 * that the keeper has. So there are several rounds, and for each system call the one with
 * the fewest counts: what is done in every call is done in every round. */
#include "rig.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAIRS = 32, ROUNDS = 8, WARM = 50, NUMBERS = 1024 };
enum { MARK = 47110815 }; /* no process has such a number */

struct most { /* for each pair */
    const char *setup;
    unsigned sends, receives, sleeps, looks;
};

/* Most of Redlock's answers come alone: then each is a sleep and a receive. The
 * library for MariaDB tries to read before it waits, and the end of a procedure may come
 * apart from its rows. */
static const struct most table[] = {
    { "local", 0, 0, 0, 0 },         { "redis", 2, 2, 2, 2 },
    { "redis-plain", 2, 2, 2, 2 },   { "redlock", 10, 10, 10, 2 },
    { "redlock-three", 6, 6, 6, 2 }, { "zookeeper", 2, 2, 2, 2 },
    { "etcd", 2, 2, 2, 2 },          { "postgres", 2, 2, 2, 2 },
    { "mysql", 2, 8, 4, 2 },
};

static unsigned counts[NUMBERS], fewest[NUMBERS];
static int64_t shortest_ms = INT64_MAX, began_ms;

/* What is left in `fewest` at the end is what nobody has asked for. */
static unsigned taken_of(size_t number)
{
    unsigned n = fewest[number];

    fewest[number] = 0;
    return n;
}

static void round_ends(unsigned round)
{
    int64_t now = now_ms();

    if (round > 0 && now - began_ms < shortest_ms)
        shortest_ms = now - began_ms;
    began_ms = now;
    for (size_t i = 0; i < NUMBERS; i++)
        if (round == 1 || counts[i] < fewest[i])
            fewest[i] = counts[i];
    memset(counts, 0, sizeof counts);
}

static void mark(void)
{
    syscall(SYS_getpgid, MARK);
}

static void pairs(hf_client *c, int n)
{
    hf_lease *l;

    for (int i = 0; i < n; i++) {
        if (hf_acquire(c, nm("n"), 10000, NULL, &l, NULL) < 0)
            _exit(2);
        hf_release(l, NULL);
    }
}

static void traced(void)
{
    hf_client *c;

    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
        _exit(3);
    raise(SIGSTOP);
    if (hf_open(rig.place->url, HF_OPTIONS(.spin_us = HF_SPIN_NEVER), &c, NULL) < 0)
        _exit(2);
    pairs(c, WARM); /* connects, loads scripts */
    mark();
    for (int i = 0; i < ROUNDS; i++) {
        pairs(c, PAIRS);
        mark();
    }
    _exit(0);
}

/* What the thread `main` calls between its marks. Returns how it ended. */
static int trace(pid_t main)
{
    struct __ptrace_syscall_info info;
    unsigned marks = 0;
    int status;
    pid_t tid;

    CHECK(waitpid(main, &status, __WALL) == main);
    if (!WIFSTOPPED(status))
        return status;
    CHECK(ptrace(PTRACE_SETOPTIONS, main, NULL,
                 PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL) == 0);
    ptrace(PTRACE_SYSCALL, main, NULL, NULL);
    while ((tid = waitpid(-1, &status, __WALL)) > 0) {
        int sig = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;

        if (!WIFSTOPPED(status) && tid == main)
            return status;
        if (!WIFSTOPPED(status))
            continue;
        if (tid == main && sig == (SIGTRAP | 0x80) &&
            ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof info, &info) > 0 &&
            info.op == PTRACE_SYSCALL_INFO_ENTRY) {
            if (info.entry.nr == SYS_getpgid && info.entry.args[0] == MARK)
                round_ends(marks++);
            else if (info.entry.nr < NUMBERS)
                counts[info.entry.nr]++;
        }
        if (sig == (SIGTRAP | 0x80) || sig == SIGTRAP || sig == SIGSTOP)
            sig = 0; /* of tracing; a new thread begins with a SIGSTOP */
        ptrace(PTRACE_SYSCALL, tid, NULL, sig);
    }
    return -1;
}

static unsigned looks(void)
{
    unsigned n = 0;

#ifdef SYS_fstat
    n += taken_of(SYS_fstat);
#endif
#ifdef SYS_newfstatat
    n += taken_of(SYS_newfstatat);
#endif
#ifdef SYS_statx
    n += taken_of(SYS_statx);
#endif
    return n;
}

static unsigned sleeps(void)
{
    unsigned n = taken_of(SYS_epoll_pwait);

#ifdef SYS_epoll_wait
    n += taken_of(SYS_epoll_wait);
#endif
    return n;
}

/* One more for each pair is too many, unless a pair takes long: timers fire meanwhile. */
static void at_most(const struct most *m)
{
    const int64_t slack = PAIRS / 2 + shortest_ms / 8;
    unsigned rest = 0;

    CHECK_NUM(taken_of(SYS_sendto), <=, m->sends * PAIRS + slack);
    CHECK_NUM(taken_of(SYS_recvfrom), <=, m->receives * PAIRS + slack);
    CHECK_NUM(sleeps(), <=, m->sleeps * PAIRS + slack);
    CHECK_NUM(looks(), <=, m->looks * PAIRS + slack);
    for (size_t i = 0; i < NUMBERS; i++) {
        if (fewest[i] > 0)
            fprintf(stderr, "system call %zu: %u times\n", i, fewest[i]);
        rest += fewest[i];
    }
    CHECK_NUM(rest, <=, slack);
}

static void system_calls(void)
{
    const struct most *m = NULL;
    pid_t pid;
    int status;

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (!strcmp(table[i].setup, rig.setup->name))
            m = &table[i];
    CHECK(m || (rig.setup->traits & SETUP_TOPOLOGY)); /* every store is counted */
    if (!m)
        return;
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        traced();
    status = trace(pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3) {
        fprintf(stderr, "tracing is not allowed here: nothing is counted\n");
        return;
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    at_most(m);
}

/* In one face, as it is the same calls in each: that in which every store is tested. */
const struct test_case calls_cases[] = {
    { "system-calls", system_calls, TEST_SANITIZED ? 0 : ON_CALLBACK, 0,
      CASE_OWN_STORE | CASE_TOPOLOGY },
    { NULL, NULL, 0, 0, 0 },
};
