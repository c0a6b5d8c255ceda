/* guard.c: a second process that makes sure the command is dead before the store can
 * grant its name to another, whatever happens to the supervisor (G1).
 *
 * How it goes well: forked before the store is opened, in its own session, every signal
 * blocked, it waits for the end of the socket pair or the deadline. It holds copies of
 * the descriptors by which the store sees that we live. In the end the supervisor kills
 * it.
 *
 * How it goes wrong: the supervisor dies: the pair ends, the guard kills the command with
 * all descendants, waits until they are gone, and ends; only then its copies are closed
 * and the store learns of our death. The supervisor is stopped or hangs: its
 * times pass without later ones. A grace before the deadline, while the lock is still held,
 * the guard sends TERM and CONT, so that an editor that was stopped with it (^Z) can save
 * its text; at the deadline it kills, as above. The guard itself dies:
 * the supervisor starts another. Both die: the child has PDEATHSIG, and the life descriptor
 * it inherited (local:) keeps the name.
 *
 * Its name and its arguments do not have the word holdfast in them: who kills by a pattern
 * (pkill -f 'holdfast run x') means the supervisor, and leaves the guard to do its work.
 *
 * Tickets. A store that sees no process die would keep the name taken for a ttl after the
 * command is dead. So the guard ends the tickets of the run itself, by their ids. A ticket
 * that is ended while something of the command still runs lets another in beside it; so all
 * of this must hold, and else the ttl decides (but if only the supervisor is known to be
 * dead, --at-least is kept up all the same: that lets nobody in):
 *  - The supervisor is dead: its pidfd, opened while it was our parent, says so. One that
 *    is stopped may go on and renew. The end of the pair alone proves nothing: a dying
 *    process closes its descriptors first, and on a busy machine the guard runs before it
 *    goes on. So its end is waited for, until the deadline.
 *  - The pass over /proc that found nothing left was over the /proc of our own namespace,
 *    with all users' processes in it, and the table was large enough (ending.whole). What
 *    is killed but not yet dead, in a system call of a file server, is still found.
 *  - In no pass there was a process that we may not signal. They are counted from the first
 *    on: later their parent may be dead, by which they were known.
 * What a pass cannot find (descend.c) runs on as it does when the ttl decides.
 *
 * The store's client needs memory and threads, so the guard becomes another program:
 * itself, by /proc/self/exe, which is this very file also after an upgrade. URL and ids are
 * in a sealed memfd (tickets.c), made at the grant: never in arguments, in an environment
 * or in the page, and the guard is not dumpable. Whatever goes wrong from there on leaves
 * the tickets to their ttl; an id that has ended is refused, so no other holder is harmed.
 * The supervisor's last requests cannot bring a ticket back: its token is never used twice.
 *
 * A second guard is forked from a process whose library may have threads: all code that
 * runs in a guard is async-signal-safe.
 */
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FDS_MAX = 8, SOCK = 0, LOOK_MS = 100, TITLE = 40 };

static const int64_t second = 1000000000;

int64_t guard_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * second + t.tv_nsec;
}

/* ---- in the guard ---------------------------------------------------------------- */

/* All that the guard knows; the deadline is on the shared page. */
struct watch {
    struct guard_page *page;
    int timer;      /* -1: could not be made, then we look now and then */
    int pidfd;      /* of the child; -1: not started yet */
    int supervisor; /* its pidfd; -1 */
    int tickets;    /* -1: none, or the store sees our end by itself */
    uint64_t life_ino;
};

static void arm(const struct watch *w, int64_t at)
{
    struct itimerspec t = { .it_value = { .tv_sec = at / second, .tv_nsec = at % second } };
    if (at == GUARD_NEVER)
        t.it_value.tv_sec = t.it_value.tv_nsec = 0;
    else if (at <= 0)
        t.it_value.tv_nsec = 1;
    timerfd_settime(w->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

/* Reads one message. False: the pair has ended. A newer pidfd or life descriptor never
 * comes; what is received stays open until we end. */
static bool receive(struct watch *w)
{
    char byte;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int) * FDS_MAX)];
    } control;
    struct iovec iov = { &byte, 1 };
    struct msghdr m = { .msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = &control,
                        .msg_controllen = sizeof control };
    ssize_t n = recvmsg(SOCK, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_type == SCM_RIGHTS) { /* the child's pidfd, then life descriptors */
        int fds[FDS_MAX];
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        struct stat st;
        memcpy(fds, CMSG_DATA(c), count * sizeof(int));
        if (byte == 't') {
            w->tickets = fds[0];
            return true;
        }
        w->pidfd = fds[0];
        if (count > 1 && fstat(fds[1], &st) == 0)
            w->life_ino = st.st_ino;
    }
    return true;
}

static bool has_ended(int pidfd)
{
    struct pollfd p = { .fd = pidfd, .events = POLLIN };
    return pidfd >= 0 && poll(&p, 1, 0) > 0;
}

static void pause_ms(long ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
    nanosleep(&t, NULL);
}

static struct family family_of(const struct watch *w)
{
    struct family f = w->page->family;
    f.life_ino = w->life_ino;
    if (has_ended(w->pidfd))
        f.child = 0;
    return f;
}

/* Each step only once; the supervisor may go on at any moment, and finds `termed`. */
static void ask_to_end(const struct watch *w)
{
    struct family f = family_of(w);
    atomic_store(&w->page->term_at, GUARD_NEVER);
    atomic_store(&w->page->termed, 1);
    descend_ask(&f);
}

static int64_t next_step(const struct guard_page *page)
{
    int64_t term_at = atomic_load(&page->term_at), kill_at = atomic_load(&page->deadline);
    if (!atomic_load(&page->running))
        return GUARD_NEVER;
    return term_at < kill_at ? term_at : kill_at;
}

/* Until nothing of the command is left. A dead supervisor's number is good for the first
 * round only: its children may not have been given away yet, later it may be a
 * stranger's. True: nothing is left for certain. */
static bool kill_all(const struct watch *w, bool supervisor_dead)
{
    struct family f = family_of(w);
    struct ending e;
    bool denied = false;
    atomic_store(&w->page->killed, 1);
    for (long ms = 1;; ms = ms < 50 ? ms * 2 : ms) {
        if (has_ended(w->pidfd))
            f.child = 0;
        int left = descend_kill(&f, &e);
        denied = denied || e.denied;
        if (left == 0)
            return e.whole && !denied;
        if (supervisor_dead)
            f.supervisor = 0;
        pause_ms(ms);
    }
}

/* Waits for the end of the supervisor, until the ttl is as good as over. */
static bool supervisor_ends(const struct watch *w)
{
    struct pollfd p = { .fd = w->supervisor, .events = POLLIN };
    int64_t rest = (atomic_load(&w->page->deadline) - guard_now()) / (second / 1000);
    rest = rest < 0 ? 0 : rest < INT_MAX ? rest : INT_MAX;
    return p.fd >= 0 && poll(&p, 1, (int)rest) > 0;
}

/* Becomes the program that ends the tickets; it has nothing of ours but them. */
static void end_tickets(const struct watch *w, bool certain)
{
    char *argv[] = { certain ? GUARD_ENDING : GUARD_KEEPING, NULL };
    int fd = w->tickets;
    if (fd < 0 || !supervisor_ends(w))
        return;
    fd = fcntl(fd, F_DUPFD, GUARD_TICKETS_FD); /* without O_CLOEXEC */
    if (fd < 0 || (fd != GUARD_TICKETS_FD && dup2(fd, GUARD_TICKETS_FD) < 0))
        return;
    close_range(0, GUARD_TICKETS_FD - 1, 0);
    close_range(GUARD_TICKETS_FD + 1, ~0u, 0);
    execve("/proc/self/exe", argv, environ);
}

/* What ps and pkill -f find. */
static void rename_self(const struct guard *g)
{
    char digits[24], *to = g->title;
    size_t n = 0;
    prctl(PR_SET_NAME, "hf-guard");
    if (g->title_room < TITLE)
        return;
    memset(to, 0, g->title_room);
    to = stpcpy(to, "hf-guard of ");
    for (long v = (long)g->page->family.supervisor; v; v /= 10)
        digits[n++] = (char)('0' + v % 10);
    while (n)
        *to++ = digits[--n];
}

static int pidfd_of_parent(const struct guard_page *page)
{
    int fd = (int)syscall(SYS_pidfd_open, page->family.supervisor, 0);
    return getppid() == page->family.supervisor ? fd : -1; /* it was not too late */
}

static _Noreturn void guard_main(const struct guard *g, int sock)
{
    struct guard_page *page = g->page;
    struct watch w = { .page = page, .pidfd = -1, .tickets = -1 };
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    /* nothing of the caller's stays open: the reader of a pipe would wait for our end */
    if (dup2(sock, SOCK) < 0)
        _exit(1);
    close_range(SOCK + 1, ~0u, 0);
    w.supervisor = pidfd_of_parent(page);
    prctl(PR_SET_DUMPABLE, 0);
    rename_self(g);
    setpriority(PRIO_PROCESS, 0, -10); /* if we may: it has a deadline and little to do */
    if (chdir("/") < 0) {              /* then a mount stays busy for as long as we live */
    }
    w.timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    for (;;) {
        struct pollfd p[2] = { { .fd = SOCK, .events = POLLIN },
                               { .fd = w.timer, .events = POLLIN } };
        arm(&w, next_step(page));
        poll(p, 2, w.timer < 0 ? LOOK_MS : -1);
        if (p[0].revents && !receive(&w)) {
            if (atomic_load(&page->running))
                end_tickets(&w, kill_all(&w, true));
            _exit(0);
        }
        if (guard_now() < next_step(page))
            continue;
        if (guard_now() >= atomic_load(&page->deadline)) {
            kill_all(&w, false);
            _exit(0);
        }
        ask_to_end(&w);
    }
}

/* ---- in the supervisor ----------------------------------------------------------- */

static void send_fds(const struct guard *g, char byte, const int *fds, size_t n)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int) * FDS_MAX)];
    } control;
    struct iovec iov = { &byte, 1 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control };
    struct cmsghdr *c = &control.head;

    m.msg_controllen = CMSG_SPACE(sizeof(int) * n);
    memset(&control, 0, sizeof control);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * n);
    memcpy(CMSG_DATA(c), fds, sizeof(int) * n);
    sendmsg(g->sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int guard_start(struct guard *g)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    /* not fork(): no handler of any library may run in the guard */
    pid_t pid = _Fork();
    if (pid == 0)
        guard_main(g, pair[1]);
    int rc = pid < 0 ? -errno : 0;
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return rc;
    }
    if (g->sock >= 0)
        close(g->sock);
    g->sock = pair[0];
    g->pid = pid;
    g->page->family.guard = pid;
    if (g->tickets >= 0)
        send_fds(g, 't', &g->tickets, 1);
    return 0;
}

int guard_open(struct guard *g)
{
    g->sock = g->tickets = -1;
    if (g->page) { /* opened again: nobody else has the page any more */
        memset(g->page, 0, sizeof *g->page);
    } else {
        /* the kernel puts the environment behind the arguments; nobody has changed it yet
         */
        g->title = program_invocation_name;
        if (environ && environ[0] && environ[0] > g->title)
            g->title_room = (size_t)(environ[0] - g->title);
        g->page = mmap(NULL, sizeof *g->page, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (g->page == MAP_FAILED)
            return -errno;
    }
    atomic_store(&g->page->deadline, GUARD_NEVER);
    atomic_store(&g->page->term_at, GUARD_NEVER);
    g->page->family.supervisor = getpid();
    g->page->family.life_fd = -1;
    siginfo_t info;
    /* of more than the list holds all must be older than the command: let a tick pass */
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        descend_note(&g->page->family, g->page->family.strangers))
        pause_ms(2000 / sysconf(_SC_CLK_TCK));
    return guard_start(g);
}

void guard_tell(const struct guard *g, int pidfd, const int *life, size_t nlife)
{
    int fds[FDS_MAX] = { pidfd };
    size_t n = nlife < FDS_MAX ? nlife : FDS_MAX - 1;
    memcpy(fds + 1, life, sizeof(int) * n);
    send_fds(g, 'c', fds, n + 1);
}

void guard_tickets(struct guard *g, int fd)
{
    g->tickets = fd;
    send_fds(g, 't', &fd, 1);
}

void guard_times(const struct guard *g, int64_t term_at, int64_t kill_at)
{
    int64_t before = next_step(g->page);
    atomic_store(&g->page->term_at, term_at);
    atomic_store(&g->page->deadline, kill_at);
    if (next_step(g->page) < before)
        send(g->sock, "d", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void guard_dismiss(const struct guard *g)
{
    atomic_store(&g->page->running, 0);
    if (g->pid)
        kill(g->pid, SIGKILL);
}

void guard_close(struct guard *g)
{
    guard_dismiss(g);
    while (g->pid && waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (g->sock >= 0)
        close(g->sock);
    if (g->tickets >= 0)
        close(g->tickets);
    *g = (struct guard){ .page = g->page,
                         .sock = -1,
                         .tickets = -1,
                         .title = g->title,
                         .title_room = g->title_room };
}
