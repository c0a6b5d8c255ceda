/* signals.c: the supervisor's signals, read from a descriptor.
 *
 * How it goes well: what we care about is blocked and read by signalfd, so that no
 * handler exists: the child can share our memory until it runs the command, and finds the
 * mask and the dispositions that holdfast was started with (nohup stays nohup). A blocked
 * signal is queued even if it is ignored; while we wait for the lock such a signal is
 * dropped, later it is passed on and the command's own disposition decides.
 *
 * How it goes wrong: a signal that ended the command ends us too, without a second core
 * file. A script that called us sees that, and its own ^C: terminal.c.
 */
#include "run.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

static const int read_by_us[] = { SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT, SIGUSR1,
                                  SIGUSR2, SIGWINCH, SIGCONT, SIGCHLD };
enum { NREAD = sizeof read_by_us / sizeof *read_by_us };

static bool is_ignored(int sig)
{
    struct sigaction a;
    return sigaction(sig, NULL, &a) == 0 && a.sa_handler == SIG_IGN;
}

static sigset_t all_read(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < NREAD; i++)
        sigaddset(&set, read_by_us[i]);
    return set;
}

int signals_open(struct signals *s)
{
    sigset_t set = all_read();
    sigemptyset(&s->ignored);
    for (int i = 0; i < NREAD; i++)
        if (is_ignored(read_by_us[i]))
            sigaddset(&s->ignored, read_by_us[i]);
    s->chld_ignored = sigismember(&s->ignored, SIGCHLD) > 0;
    s->pipe_ignored = is_ignored(SIGPIPE);
    s->xfsz_ignored = is_ignored(SIGXFSZ);
    /* children of a process that ignores SIGCHLD leave no status */
    if (s->chld_ignored)
        signal(SIGCHLD, SIG_DFL);
    if (!s->pipe_ignored)
        signal(SIGPIPE, SIG_IGN);
    if (!s->xfsz_ignored)
        signal(SIGXFSZ, SIG_IGN);
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0)
        return -errno;
    sigaddset(&set, SIGTTOU);
    sigprocmask(SIG_BLOCK, &set, &s->mask);
    return 0;
}

/* In a group of its own the command is stopped by ^Z alone, and we see to the rest. In our
 * group ^Z stops us all at once, and the shell's SIGCONT continues us all: a stop of our
 * own, a moment later, could come after it. */
void signals_run(struct signals *s, bool own_group)
{
    sigset_t set = all_read();
    if (own_group)
        sigaddset(&set, SIGTSTP);
    signalfd(s->fd, &set, 0);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

void signals_wait(struct signals *s)
{
    sigset_t set = all_read();
    signalfd(s->fd, &set, 0);
    sigemptyset(&set);
    if (!sigismember(&s->mask, SIGTSTP))
        sigaddset(&set, SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

void signals_restore(const struct signals *s)
{
    if (s->chld_ignored)
        signal(SIGCHLD, SIG_IGN);
    if (!s->pipe_ignored)
        signal(SIGPIPE, SIG_DFL);
    if (!s->xfsz_ignored)
        signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, &s->mask, NULL);
}

int signals_next(const struct signals *s, bool *ret_sent)
{
    struct signalfd_siginfo info;
    if (read(s->fd, &info, sizeof info) != sizeof info)
        return 0;
    *ret_sent = info.ssi_code <= 0;
    return (int)info.ssi_signo;
}

bool signals_end_wait(const struct signals *s, int sig)
{
    if (sig == SIGCHLD || sig == SIGCONT || sig == SIGWINCH)
        return false;
    return sigismember(&s->ignored, sig) == 0;
}

/* The whole group stops, as it would have at the terminal: a script that called us would
 * else wait for us without its own shell knowing. The default action of SIGTSTP, SIGTTIN
 * and SIGTTOU does nothing to a group that no shell looks after; then SIGCONT does not
 * come either. */
bool signals_stop_group(int sig)
{
    struct sigaction dfl = { .sa_handler = SIG_DFL }, before;
    struct timespec now = { 0, 0 };
    sigset_t one, mask, cont;

    sigemptyset(&cont);
    sigaddset(&cont, SIGCONT);
    sigemptyset(&one);
    sigaddset(&one, sig);
    sigaction(sig, &dfl, &before);
    kill(0, sig);
    sigprocmask(SIG_UNBLOCK, &one, &mask); /* here we stop, and here we go on */
    sigprocmask(SIG_SETMASK, &mask, NULL);
    sigaction(sig, &before, NULL);
    /* taken here: passed on later it could undo the next ^Z */
    return sigtimedwait(&cont, NULL, &now) == SIGCONT;
}

_Noreturn void signals_die(int sig)
{
    struct rlimit none = { 0, 0 };
    sigset_t set;
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0); /* a core handler does not ask for the limit */
    signal(sig, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, sig);
    kill(getpid(), sig);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    _exit(128 + sig);
}
