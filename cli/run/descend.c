/* descend.c: finds and ends every process that a command has left on the machine.
 *
 * How it goes well: first the tree below the command is stopped and killed, which takes
 * little time. Then one pass over /proc finds what belongs to the run: the command, the
 * children of the supervisor (it is a subreaper, so orphans come to it), whatever carries
 * the run's word in its environment, its life descriptor or its process group, and all
 * children of those. New ones are stopped first, until a pass finds nothing new: a
 * stopped parent makes no children and keeps those it has, so the tree cannot grow or
 * fall apart under our hands. Then all are killed, and the caller comes back until a pass
 * finds none.
 *
 * How it goes wrong: a process that left group and session, closed our descriptor,
 * cleared its environment and lost its parent is found only while the supervisor lives,
 * or if the supervisor had seen it (descend_note). A process of another user may not be
 * signalled. Without a /proc of our own PID namespace only the group and the command
 * itself are reached.
 *
 * Runs in the guard too, which may have been forked from a program with threads: no
 * malloc, no stdio, only system calls and static memory. Upholds G1 for what `run`
 * starts.
 */
#include "descend.h"

#include "procfs.h"

#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { TABLE = 1 << 16, TREE = 1 << 12, ROUNDS = 50 };

/* Untouched, so without cost, until something must be ended. */
static struct proc table[TABLE];
static size_t ntable;
static bool cut; /* the table was too small */
static struct {
    uint64_t start;
    pid_t pid;
} halted[TABLE];
static size_t nhalted;

uint64_t descend_ticks(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
    return (uint64_t)t.tv_sec * hz + (uint64_t)t.tv_nsec / (1000000000u / hz);
}

static bool in_list(const struct kin *list, const struct proc *p)
{
    for (int i = 0; i < FAMILY_KIN && list[i].pid; i++)
        if (list[i].pid == p->pid && list[i].start == p->start)
            return true;
    return false;
}

static bool is_ours(int proc, const struct family *f, const struct proc *p)
{
    if (p->pid == f->child || (f->supervisor && p->ppid == f->supervisor))
        return true;
    if (f->group && p->group == f->group && p->session == f->session)
        return true;
    if (in_list(f->orphans, p))
        return true;
    return (f->life_fd >= 0 && proc_has_socket(proc, p->pid, f->life_fd, f->life_ino)) ||
           (f->word[0] && proc_has_word(proc, p->pid, f->word));
}

/* /proc lists processes by number, so the table is in order. */
static const struct proc *find(pid_t pid)
{
    size_t low = 0, high = ntable;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (table[mid].pid < pid)
            low = mid + 1;
        else
            high = mid;
    }
    return low < ntable && table[low].pid == pid ? &table[low] : NULL;
}

static void take(int proc, const struct family *f, pid_t pid, pid_t self)
{
    struct proc p;
    if (pid <= 1 || pid == self || pid == f->supervisor || pid == f->guard)
        return;
    if (!proc_read(proc, pid, &p) || p.start < f->since)
        return;
    if (ntable == TABLE) {
        cut = true;
        return;
    }
    if (in_list(f->strangers, &p))
        return;
    p.ours = is_ours(proc, f, &p);
    table[ntable++] = p;
}

/* Children of ours are ours, whatever they did to their group or environment. */
static void spread(void)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < ntable; i++) {
            if (table[i].ours)
                continue;
            const struct proc *parent = find(table[i].ppid);
            if (parent && parent->ours)
                table[i].ours = more = true;
        }
    }
}

static bool scan(const struct family *f)
{
    struct proc_list l;
    pid_t self = getpid();
    int proc = proc_open();
    ntable = 0;
    cut = proc < 0 || !proc_shows_all(proc);
    if (proc < 0)
        return false;
    for (pid_t pid = proc_first(&l, proc, 0); pid; pid = proc_next(&l))
        take(proc, f, pid, self);
    proc_end(&l);
    close(proc);
    spread();
    return true;
}

/* ---- the quick way: down the tree ------------------------------------------------ */

static pid_t tree[TREE];
static size_t ntree;

static bool is_stranger(int proc, const struct family *f, pid_t pid)
{
    struct proc p;
    if (pid <= 1 || pid == f->guard || pid == getpid())
        return true;
    return !proc_read(proc, pid, &p) || p.start < f->since || in_list(f->strangers, &p);
}

static void add_children_of(int proc, const struct family *f, pid_t pid, pid_t thread)
{
    size_t n = proc_children(proc, pid, thread, tree + ntree, TREE - ntree), kept = ntree;
    for (size_t i = ntree; i < ntree + n; i++)
        if (!is_stranger(proc, f, tree[i]))
            tree[kept++] = tree[i];
    ntree = kept;
}

/* The command and whatever hangs below it, without looking at the rest of the machine: on a
 * busy one a pass over /proc takes a while, and reading the environment of a process waits
 * for it. With `stop` each is stopped before its children are read, so none can come
 * after. */
static void find_tree(int proc, const struct family *f, bool stop)
{
    ntree = 0;
    if (f->child)
        tree[ntree++] = f->child;
    if (f->supervisor)
        add_children_of(proc, f, f->supervisor, f->supervisor);
    for (size_t i = 0; i < ntree; i++) {
        struct proc_list l;
        if (stop)
            kill(tree[i], SIGSTOP);
        for (pid_t t = proc_first(&l, proc, tree[i]); t; t = proc_next(&l))
            add_children_of(proc, f, tree[i], t);
        proc_end(&l);
    }
}

static int signal_tree(int sig) /* how many may not be signalled */
{
    int denied = 0;
    for (size_t i = 0; i < ntree; i++)
        denied += kill(tree[i], sig) < 0 && errno == EPERM;
    return denied;
}

static int without_proc(const struct family *f, int sig)
{
    if (f->group && kill(-f->group, sig) == 0)
        return 1;
    return f->child && kill(f->child, sig) == 0;
}

int descend_signal(const struct family *f, int sig)
{
    int n = 0;
    if (!scan(f))
        return without_proc(f, sig);
    for (size_t i = 0; i < ntable; i++)
        if (table[i].ours && (kill(table[i].pid, sig) == 0 || errno == EPERM))
            n++;
    return n;
}

void descend_ask(const struct family *f)
{
    int proc = proc_open();
    if (proc < 0) {
        without_proc(f, SIGTERM);
        without_proc(f, SIGCONT);
        return;
    }
    find_tree(proc, f, false);
    close(proc);
    signal_tree(SIGTERM);
    signal_tree(SIGCONT);
}

static bool halt(const struct proc *p)
{
    for (size_t i = 0; i < nhalted; i++)
        if (halted[i].pid == p->pid && halted[i].start == p->start)
            return false;
    if (nhalted == TABLE)
        nhalted = 0;
    halted[nhalted].pid = p->pid;
    halted[nhalted++].start = p->start;
    kill(p->pid, SIGSTOP);
    return true;
}

int descend_kill(const struct family *f, struct ending *ret)
{
    int left = 0, denied = 0, proc = proc_open();
    *ret = (struct ending){ .whole = false };
    if (proc >= 0) {
        find_tree(proc, f, true);
        ret->denied = signal_tree(SIGKILL);
        close(proc);
    }
    /* New ones are stopped first, until a pass finds nobody new: one that runs could fork
     * a child that no pass has seen. */
    for (int round = 0, more = 1; more && round < ROUNDS; round++) {
        more = 0;
        if (!scan(f))
            return without_proc(f, SIGKILL);
        for (size_t i = 0; i < ntable; i++)
            if (table[i].ours && halt(&table[i]))
                more = 1;
    }
    for (size_t i = 0; i < ntable; i++) {
        if (!table[i].ours)
            continue;
        if (kill(table[i].pid, SIGKILL) < 0 && errno == EPERM)
            denied++;
        else
            left++;
    }
    /* one of the group whose parent has gone, and which /proc hides from us */
    if (f->group && kill(-f->group, 0) < 0 && errno == EPERM && !denied)
        denied = 1;
    if (ret->denied < denied)
        ret->denied = denied;
    ret->whole = !cut;
    return left;
}

bool descend_note(const struct family *f, struct kin list[FAMILY_KIN])
{
    pid_t pids[FAMILY_KIN], self = getpid();
    struct proc p;
    int n = 0, proc = proc_open();
    if (proc < 0)
        return false;
    size_t count = proc_children(proc, self, self, pids, FAMILY_KIN);
    for (size_t i = 0; i < count; i++) {
        if (pids[i] == f->child || pids[i] == f->guard || !proc_read(proc, pids[i], &p))
            continue;
        list[n].start = p.start;
        list[n++].pid = pids[i];
    }
    if (n < FAMILY_KIN)
        list[n].pid = 0;
    close(proc);
    return count == FAMILY_KIN;
}
