/* spawn.c: from the supervisor to the running command.
 *
 * How it goes well: the child shares our memory until it runs the command (vfork), so
 * starting costs nothing that grows with the program. No handler exists and only system
 * calls are made there. It tells the guard of itself before the command exists. Order
 * matters: the death signal before anything, the group before the terminal, the mask
 * last.
 *
 * How it goes wrong: the supervisor dies meanwhile: PDEATHSIG, or the getppid check if it
 * was too early for that. The command cannot be run: its errno is left in the shared
 * page. The command is set-uid: the death signal is cleared and we may be unable to
 * signal it; or /proc cannot be used, and we shall not find its descendants: each is said
 * once.
 */
#include "run.h"

#include "procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Gives the command and its descendants a copy of the descriptor by which the store sees
 * that we live: should we and the guard both be killed, the name stays taken while one of
 * them lives. Under a number that scripts hardly ever use themselves; else any. */
static int inherit(int fd)
{
    int copy = fcntl(fd, F_DUPFD, 100);
    return copy >= 0 ? copy : fcntl(fd, F_DUPFD, 3);
}

static _Noreturn void child_main(struct run *r)
{
    struct guard_page *page = r->guard.page;
    pid_t self = getpid();

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != page->family.supervisor)
        _exit(EXIT_LOST);
    if (r->terminal.own_group && setpgid(0, 0) == 0)
        page->family.group = self;
    page->family.child = self;
    if (r->lease && r->nlife > 0)
        page->family.life_fd = inherit(r->life[0]);
    atomic_store(&page->running, 1);
    int pidfd = (int)syscall(SYS_pidfd_open, self, 0);
    guard_tell(&r->guard, pidfd, r->life, r->nlife);
    close(pidfd);
    terminal_hand(&r->terminal, self);
    signals_restore(&r->signals);
    execvp(r->opt.command[0], r->opt.command);
    page->exec_errno = errno;
    _exit(EXIT_NOTFOUND);
}

/* Its image is not ours to look at: it has rights that we have not. */
static bool is_foreign(int proc, pid_t child)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "%ld/exe", (long)child);
    return geteuid() != 0 && fstatat(proc, path, &st, 0) < 0 &&
           (errno == EACCES || errno == EPERM);
}

/* Says now what could not be helped then. */
static void warn_of_limits(const struct run *r, pid_t child)
{
    char shown[256];
    if (r->opt.on_lost == LOST_WARN)
        return;
    int proc = proc_open();
    cli_text(shown, sizeof shown, r->opt.command[0]);
    if (proc < 0)
        run_say(r,
                "warning: there is no /proc of this PID namespace: if the lock is lost, "
                "holdfast can stop only '%s' and its process group",
                shown);
    else if (is_foreign(proc, child))
        run_say(r,
                "warning: '%s' runs with rights of its own: if the lock is lost, holdfast "
                "may be unable to stop it",
                shown);
    if (proc >= 0)
        close(proc);
}

static int check_file(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return errno;
    return S_ISREG(st.st_mode) && access(path, X_OK) == 0 ? 0 : EACCES;
}

/* As execvp searches; but it says EACCES also if it only could not look into a folder. */
int spawn_check(const char *command)
{
    const char *path = getenv("PATH");
    char file[PATH_MAX];
    int found = ENOENT;
    if (!*command || strchr(command, '/'))
        return *command ? check_file(command) : ENOENT;
    for (const char *p = path ? path : "/bin:/usr/bin"; p;) {
        int len = (int)strcspn(p, ":");
        snprintf(file, sizeof file, "%.*s%s%s", len, p, len ? "/" : "", command);
        int rc = check_file(file);
        if (rc == 0)
            return 0;
        if (access(file, F_OK) == 0)
            found = rc;
        p = p[len] ? p + len + 1 : NULL;
    }
    return found;
}

pid_t spawn(struct run *r)
{
    struct family *f = &r->guard.page->family;
    f->session = getsid(0);
    f->since = descend_ticks();
    /* orphans of the command come to us and stay findable */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(NULL);
    pid_t pid = vfork();
    if (pid == 0)
        child_main(r);
    if (pid < 0)
        return -errno;
    if (!r->guard.page->exec_errno)
        warn_of_limits(r, pid);
    return pid;
}
