/* server.c: starts, freezes, kills and removes servers, and keeps what they said.
 *
 * Goes well: silent. Goes wrong: a failed check prints the end of the log of every server
 * that is in use. Whether a server runs is read from /proc (it works in its own folder),
 * because the asking process need not be its parent, and a number alone may belong to
 * another by now.
 */
#include "server.h"

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PORT_LEAST = 10000, /* below and above the ports that the system gives by itself */
    PORT_COUNT = 10000,
    IN_USE_MAX = 256,
    TOLD_LINES = 20,
    TOLD_MAX = 8192
};

static const struct server *in_use[IN_USE_MAX];

/* ---- logs ------------------------------------------------------------------------ */

static void tell_one(const struct server *s)
{
    char path[256], text[TOLD_MAX + 1], *at;
    ssize_t n;
    off_t end;
    int fd, lines = 0;

    snprintf(path, sizeof(path), "%s/log", s->dir);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    end = lseek(fd, 0, SEEK_END);
    n = pread(fd, text, TOLD_MAX, end > TOLD_MAX ? end - TOLD_MAX : 0);
    close(fd);
    if (n <= 0)
        return;
    text[n] = 0;
    for (at = text + n - 1; at > text && (lines += at[-1] == '\n') <= TOLD_LINES; at--)
        ;
    for (at = strtok(at, "\n"); at; at = strtok(NULL, "\n"))
        dprintf(2, "%s %d: %s\n", s->name, s->port, at);
}

static void tell_all(void)
{
    for (size_t i = 0; i < IN_USE_MAX; i++)
        if (in_use[i])
            tell_one(in_use[i]);
}

static void note_use(const struct server *old, const struct server *now)
{
    for (size_t i = 0; i < IN_USE_MAX; i++)
        if (in_use[i] == old) {
            in_use[i] = now;
            return;
        }
    CHECK(old); /* else there are too many */
}

/* ---- folders and ports ----------------------------------------------------------- */

/* In memory if there is such a place: what a disk is busy with is not asked here. */
static void folder_new(char *dir, size_t size)
{
    const char *tmp = getenv("HF_TEST_MEMORY");
    char pattern[256], real[4096];

    if (!tmp)
        tmp = getenv("TMPDIR");
    snprintf(pattern, sizeof(pattern), "%s/holdfast-test-XXXXXX", tmp ? tmp : "/tmp");
    CHECK(mkdtemp(pattern));
    CHECK(realpath(pattern, real));
    CHECK(strlen(real) < size);
    strcpy(dir, real);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void folder_remove(const char *dir)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void file_put(const char *dir, const char *name, const char *mode, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, mode);
    CHECK(f);
    CHECK(fputs(text, f) >= 0);
    CHECK(fclose(f) == 0);
}

static bool can_bind(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    bool ok;

    CHECK(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    ok = bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
    close(fd);
    return ok;
}

/* Among tests the owner of a port is whoever has this name bound: it frees itself. */
static int claim(int port)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "holdfast-test-port-%d", port);

    CHECK(fd >= 0);
    if (bind(fd, (struct sockaddr *)&a,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0)
        return fd;
    CHECK(errno == EADDRINUSE);
    close(fd);
    return -1;
}

int port_reserve(int *ret_fd)
{
    static unsigned next;

    if (!next)
        next = (unsigned)getpid() * 37;
    for (int i = 0; i < PORT_COUNT; i++) {
        int port = PORT_LEAST + (int)(next++ % PORT_COUNT), fd = claim(port);

        if (fd >= 0 && can_bind(port) && can_bind(port + PORT_COUNT)) {
            *ret_fd = fd;
            return port;
        }
        if (fd >= 0)
            close(fd);
    }
    check_failed(__FILE__, __LINE__, "no free port");
}

/* ---- the struct ------------------------------------------------------------------ */

void *shared_new(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(at != MAP_FAILED);
    return at;
}

void shared_free(void *at, size_t size)
{
    munmap(at, size);
}

void server_init(struct server *s, const char *name)
{
    memset(s, 0, sizeof(*s));
    CHECK(strlen(name) < sizeof(s->name));
    strcpy(s->name, name);
    folder_new(s->dir, sizeof(s->dir));
    snprintf(s->socket, sizeof(s->socket), "%s/socket", s->dir);
    CHECK(strlen(s->socket) < sizeof(((struct sockaddr_un *)NULL)->sun_path));
    s->port = port_reserve(&s->reserved_fd);
    check_tell_on_failure(tell_all);
    note_use(NULL, s);
}

void server_remove(struct server *s)
{
    server_kill(s);
    note_use(s, NULL);
    folder_remove(s->dir);
    close(s->reserved_fd);
}

/* ---- the process ----------------------------------------------------------------- */

/* Between fork and exec of a process that may have threads: system calls only. */
_Noreturn static void become(const char *dir, const char *program, char *const argv[],
                             char *const env[], pid_t parent)
{
    sigset_t none;
    int fd;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || chdir(dir) < 0)
        _exit(126);
    fd = open("/dev/null", O_RDWR);
    dup2(fd, 0);
    fd = open("log", O_CREAT | O_APPEND | O_WRONLY, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    syscall(SYS_close_range, 3, ~0u, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(program, argv, env);
    dprintf(2, "cannot run %s: errno %d\n", program, errno);
    _exit(127);
}

void server_spawn(struct server *s, const char *program, char *const argv[])
{
    extern char **environ;
    char preload[512], file[256], *env[512];
    size_t n = 0;
    pid_t parent = getpid(), pid;

    CHECK(!server_runs(s));
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", CLOCKSHIM);
    snprintf(file, sizeof(file), "HF_CLOCK_FILE=%s/clock", s->dir);
    for (char **e = environ; *e; e++) {
        CHECK(n + 3 < sizeof(env) / sizeof(env[0]));
        env[n++] = *e;
    }
    if (s->clock) {
        env[n++] = preload;
        env[n++] = file;
    }
    env[n] = NULL;
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        become(s->dir, program, argv, env, parent);
    s->parent = parent;
    s->pid = pid;
}

void server_must_run(struct server *s)
{
    int status;

    if (s->parent == getpid() && waitpid(s->pid, &status, WNOHANG) == s->pid)
        check_failed(__FILE__, __LINE__, "%s on port %d ended by itself", s->name, s->port);
}

/* A zombie has no working folder any more. */
bool server_runs(const struct server *s)
{
    char link[64], dir[sizeof(s->dir) + 16];
    size_t own = strlen(s->dir);
    ssize_t n;

    if (!s->pid)
        return false;
    snprintf(link, sizeof(link), "/proc/%d/cwd", (int)s->pid);
    n = readlink(link, dir, sizeof(dir) - 1);
    if (n < 0)
        return false;
    dir[n] = 0;
    return strncmp(dir, s->dir, own) == 0 && (dir[own] == 0 || dir[own] == '/');
}

/* One that is not our child: its end is that of its last thread, which has its sockets as
 * well as the first. */
static void kill_other(const struct server *s)
{
    struct pollfd p = { .fd = (int)syscall(SYS_pidfd_open, s->pid, 0), .events = POLLIN };

    if (p.fd < 0)
        return;
    if (server_runs(s)) {
        CHECK(kill(s->pid, SIGKILL) == 0);
        CHECK(poll(&p, 1, (int)LIMIT_MS) == 1);
    }
    close(p.fd);
}

void server_kill(struct server *s)
{
    if (!s->pid)
        return;
    if (s->parent == getpid()) {
        kill(s->pid, SIGKILL);
        waitpid(s->pid, NULL, 0);
    } else {
        kill_other(s);
    }
    s->pid = 0;
}

static bool is_stopped(const struct server *s)
{
    char path[64], text[512], *end;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)s->pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    CHECK(n > 0);
    text[n] = 0;
    end = strrchr(text, ')');
    CHECK(end);
    return end[2] == 'T';
}

void server_freeze(struct server *s)
{
    CHECK(server_runs(s));
    CHECK(kill(s->pid, SIGSTOP) == 0);
    AWAIT(is_stopped(s));
}

void server_continue(struct server *s)
{
    CHECK(server_runs(s));
    CHECK(kill(s->pid, SIGCONT) == 0);
}

/* ---- its clock ------------------------------------------------------------------- */

void server_clock_able(struct server *s)
{
    char path[256];
    int64_t offset_us = 0;
    int fd;

    snprintf(path, sizeof(path), "%s/clock", s->dir);
    fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK(write(fd, &offset_us, sizeof(offset_us)) == (ssize_t)sizeof(offset_us));
    close(fd);
    s->clock = true;
}

void server_clock_step(struct server *s, int64_t ms)
{
    char path[256];
    int64_t offset_us;
    int fd;

    snprintf(path, sizeof(path), "%s/clock", s->dir);
    fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(pread(fd, &offset_us, sizeof(offset_us), 0) == (ssize_t)sizeof(offset_us));
    offset_us += ms * 1000;
    CHECK(pwrite(fd, &offset_us, sizeof(offset_us), 0) == (ssize_t)sizeof(offset_us));
    close(fd);
}
