/* setup_local.c: the embedded store, in a folder of its own.
 *
 * There is no server: starting makes a folder, stopping removes it. Restarting is
 * nothing but "nobody has it open", which the case sees to by closing its clients. To
 * block it, a process that does nothing but acquire and release is stopped until it
 * happens to be stopped inside the store's gate, which a second process finds out by
 * asking. Goes wrong: if that does not happen in a thousand stops, the case fails rather
 * than passing without having blocked.
 */
#include "check.h"
#include "setup.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void local_start(struct place *p)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(p->dir, sizeof(p->dir), "%s/holdfast-test-XXXXXX", tmp ? tmp : "/tmp");
    CHECK(mkdtemp(p->dir));
    snprintf(p->url, sizeof(p->url), "local://%s", p->dir);
    p->pid = 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void local_stop(struct place *p)
{
    char file[300];

    nftw(p->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    snprintf(file, sizeof(file), "%s.file", p->dir);
    unlink(file);
}

static void local_restart(struct place *p)
{
    (void)p;
}

static pid_t fork_bound(void)
{
    pid_t parent = getpid(), pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
    }
    return pid;
}

_Noreturn static void hammer(const char *url)
{
    hf_client *c = NULL;
    hf_lease *l = NULL;

    CHECK_RC(hf_open(url, NULL, &c, E()), 0);
    for (;;) {
        CHECK_RC(hf_acquire(c, "setup/hammer", 0, NULL, &l, E()), 0);
        CHECK_RC(hf_release(l, E()), 0);
    }
}

/* In a process of its own, so that the case's has no client yet. */
static bool is_blocked(const char *url, int ms)
{
    pid_t pid = fork_bound();
    int status;

    if (pid == 0) {
        char quick[600];
        hf_client *c = NULL;
        hf_lease *l = NULL;
        int rc;

        snprintf(quick, sizeof(quick), "%s?connect_timeout=%dms", url, ms);
        rc = hf_open(quick, NULL, &c, NULL);
        if (rc == 0)
            rc = hf_acquire(c, "setup/probe", 0, NULL, &l, NULL);
        _exit(rc == HF_EBUSYSTORE ? 42 : rc == 0 ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 42 || WEXITSTATUS(status) == 0));
    return WEXITSTATUS(status) == 42;
}

static void local_block(struct place *p)
{
    int status;

    p->pid = fork_bound();
    if (p->pid == 0)
        hammer(p->url);
    for (int i = 0; i < 1000; i++) {
        nap();
        CHECK(kill(p->pid, SIGSTOP) == 0);
        CHECK(waitpid(p->pid, &status, WUNTRACED) == p->pid && WIFSTOPPED(status));
        /* the second look: it was not somebody else, who only had to wait for a processor
         */
        if (is_blocked(p->url, 100) && is_blocked(p->url, 1000))
            return;
        CHECK(kill(p->pid, SIGCONT) == 0);
    }
    check_failed(__FILE__, __LINE__, "could not stop a process inside the store");
}

static void local_unblock(struct place *p)
{
    CHECK(kill(p->pid, SIGKILL) == 0);
    CHECK(waitpid(p->pid, NULL, 0) == p->pid);
    p->pid = 0;
}

/* A file where a folder must be. */
static void local_unusable(struct place *p, char *url, size_t size)
{
    char file[300];
    int fd;

    snprintf(file, sizeof(file), "%s.file", p->dir);
    fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    close(fd);
    snprintf(url, size, "local://%s", file);
}

/* The number of the last transaction, as both meta pages of an LMDB file carry it. */
static int64_t local_work(struct place *p)
{
    enum { PAGE = 4096, TXN_AT = 16 + 4 + 4 + 8 + 8 + 2 * 48 + 8 };
    char file[300];
    int64_t a = 0, b = 0;
    int fd;

    snprintf(file, sizeof(file), "%s/store", p->dir);
    fd = open(file, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(pread(fd, &a, sizeof(a), TXN_AT) == (ssize_t)sizeof(a));
    CHECK(pread(fd, &b, sizeof(b), PAGE + TXN_AT) == (ssize_t)sizeof(b));
    close(fd);
    return a > b ? a : b;
}

const struct setup setup_local = {
    .name = "local",
    .caps = HF_CAP_DEADLINE | HF_CAP_FIFO | HF_CAP_FENCE | HF_CAP_BARGE | HF_CAP_SHARED |
            HF_CAP_PERMITS | HF_CAP_LINE | HF_CAP_KEEP | HF_CAP_CELL | HF_CAP_CELL_EXPIRY |
            HF_CAP_TTL,
    .traits = SETUP_SEES_DEATH,
    .start = local_start,
    .stop = local_stop,
    .restart = local_restart,
    .block = local_block,
    .unblock = local_unblock,
    .unusable = local_unusable,
    .work = local_work,
};
