/* spin.c: polling before a sleep: what core/spin.h decides from, and the poll itself.
 *
 * The poll is a sleep of no length, again and again: the same epoll instance, so timers,
 * wakes of other threads and the descriptors of other callers end it as they end a sleep,
 * and nothing gets later by it. It is made without the client's lock.
 *
 * What the machine is like is asked by a thread that is about to poll, at most once a
 * second: how many processors the process may use (its affinity, and the quota of its
 * control group), and whether its group was throttled. If it was, or one processor is all,
 * nobody polls for a second. The group's files are read where version 2 of control groups
 * is mounted at /sys/fs/cgroup; elsewhere only the affinity counts. That a thread lost its
 * processor shows as a long time between two polls; then, and after a poll in vain, the
 * kernel is asked whether that has happened to it in the last few milliseconds.
 *
 * The budget is the process's. A forked child begins with a whole one: it cannot use the
 * clients of its parent, so hf_open is where it comes by first. */
#include "api/api.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LOOK_US = 1000000, GAP_US = 40, FRESH_US = 10000, TEXT = 512 };

static struct spin_budget budget;
static _Atomic int64_t looked_at;   /* when the machine was asked last; 0: never */
static _Atomic long long throttled; /* how often our group was, as it was read last */
static atomic_int process;

void hf__spin_open(hf_client *c, int64_t us)
{
    int pid = (int)getpid();

    for (size_t i = 0; i < SPINS; i++)
        c->spins[i].most_us = us < 0 ? 0 : us > 0 ? us : SPIN_AUTO_US;
    if (atomic_exchange(&process, pid) == pid)
        return;
    atomic_store(&budget.whole_at, 0);
    atomic_store(&budget.pause_till, 0);
    atomic_store(&looked_at, 0);
    atomic_store(&throttled, 0);
}

/* ---- the machine ----------------------------------------------------------------- */

static bool read_text(const char *path, char text[TEXT])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, TEXT - 1);

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* A file of our control group. */
static bool read_group(const char *file, char text[TEXT])
{
    char path[TEXT + 64], *name, *end;

    if (!read_text("/proc/self/cgroup", text) || !(name = strstr(text, "0::/")))
        return false;
    name += 3;
    end = strchr(name, '\n');
    if (end)
        *end = '\0';
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", name, file);
    return read_text(path, text);
}

static bool one_processor(void)
{
    char text[TEXT];
    long long quota, period;
    cpu_set_t may;

    if (sched_getaffinity(0, sizeof may, &may) == 0 && CPU_COUNT(&may) < 2)
        return true;
    return read_group("cpu.max", text) && sscanf(text, "%lld %lld", &quota, &period) == 2 &&
           quota <= period;
}

/* How often our group has used up its quota; 0: not known. */
static long long throttles(void)
{
    const char key[] = "nr_throttled ";
    char text[TEXT];
    const char *at = read_group("cpu.stat", text) ? strstr(text, key) : NULL;

    return at ? strtoll(at + sizeof key - 1, NULL, 10) : 0;
}

static void look_at_machine(int64_t now)
{
    int64_t last = atomic_load(&looked_at);
    long long times;

    if ((last != 0 && now - last < LOOK_US) ||
        !atomic_compare_exchange_strong(&looked_at, &last, now))
        return;
    times = throttles();
    if ((atomic_exchange(&throttled, times) < times && last != 0) || one_processor())
        hf__spin_pause(&budget, now);
}

static _Thread_local struct {
    long times; /* that this thread had to give its processor to another */
    int64_t at; /* when that was asked */
} switches;

/* Has it had to since that was asked last? */
static bool preempted(int64_t now)
{
    long was = switches.times;
    struct rusage r;

    if (getrusage(RUSAGE_THREAD, &r) < 0)
        return true;
    switches.times = r.ru_nivcsw;
    switches.at = now;
    return switches.times > was;
}

/* ---- polling --------------------------------------------------------------------- */

int64_t hf__spin_begin(const struct spin *s, int64_t now)
{
    return s ? hf__spin_for(s, &budget, now) : 0;
}

int hf__spin_poll(const struct loop *l, struct epoll_event *evs, int n, int64_t us,
                  int64_t begin)
{
    int64_t now = begin, last;
    bool torn = false;
    int got;

    look_at_machine(begin);
    if (begin < atomic_load(&budget.pause_till))
        return 0;
    if (begin - switches.at > FRESH_US)
        preempted(begin); /* what was before this poll is not its fault */
    do {
        got = hf__loop_sleep(l, evs, n, 0);
        last = now;
        now = hf__loop_now();
        torn = torn || now - last > GAP_US;
    } while (got == 0 && now - begin < us);
    if ((torn || got == 0) && preempted(now))
        hf__spin_pause(&budget, now);
    return got;
}

void hf__spin_end(struct spin *s, int64_t polled_us, bool slept, int64_t took_us)
{
    if (polled_us > 0)
        hf__spin_polled(s, &budget, slept ? polled_us : took_us, !slept, hf__loop_now());
    else
        hf__spin_slept(s, took_us);
}
