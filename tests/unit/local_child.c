/* local_child.c: the child processes of local_harness.h, and the namespaces that they
 * enter. */
#include "local_harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- children -------------------------------------------------------------------- */

struct child child_start(const char *where,
                         void (*body)(struct child *, const char *, void *), void *arg)
{
    int up[2], down[2];
    struct child c;
    pid_t parent = getpid();

    assert_int_equal(pipe2(up, 0), 0);
    assert_int_equal(pipe2(down, 0), 0);
    fflush(NULL);
    c.pid = fork();
    assert_true(c.pid >= 0);
    if (c.pid == 0) {
        struct child me = { getpid(), up[1], down[0] };

        close(up[0]);
        close(down[1]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        body(&me, where, arg);
        _exit(0);
    }
    close(up[1]);
    close(down[0]);
    c.tell = down[1];
    c.hear = up[0];
    return c;
}

void child_say(struct child *c, char byte)
{
    if (write(c->tell, &byte, 1) != 1)
        _exit(1);
}

void child_hold(struct side *s, struct pass *p, const char *where)
{
    if (side_open(s, where, "") < 0)
        _exit(2);
    pass_init(p, s, "x");
    if (pass_join(p) != 1)
        _exit(3);
}

void stand_in_line(struct child *c, const char *where, void *arg)
{
    struct side s;
    struct pass p;
    int64_t end = hf__loop_now() + 60 * 1000000;

    if (side_open(&s, where, "") < 0)
        _exit(2);
    pass_init(&p, &s, "x");
    if (arg)
        pass_shared(&p);
    if (pass_join(&p) == 0) {
        child_say(c, 'w');
        while (!p.granted && !p.gone) {
            struct pollfd fds[2] = { { c->hear, POLLIN, 0 }, { s.loop.epfd, POLLIN, 0 } };

            poll(fds, 2, 1000);
            if (fds[0].revents || hf__loop_now() > end)
                break;
            side_turn(&s, hf__loop_now());
        }
    }
    if (p.granted) {
        child_say(c, 'h');
        child_hear(c);
    }
    if (pass_leave(&p) != 0)
        _exit(3);
    side_close(&s);
}

void hold_without_descriptors(struct child *c, const char *where, void *arg)
{
    struct side s;
    struct pass p;

    (void)arg;
    child_hold(&s, &p, where);
    for (int fd = 3; fd < 256; fd++)
        if (fd != c->tell && fd != c->hear)
            close(fd);
    child_say(c, 'h');
    child_hear(c);
    _exit(0);
}

void child_tell(struct child *c, char byte)
{
    assert_int_equal(write(c->tell, &byte, 1), 1);
}

char child_hear(struct child *c)
{
    struct pollfd p = { .fd = c->hear, .events = POLLIN };
    char byte = 0;

    if (poll(&p, 1, LIMIT_US / 1000) != 1)
        return 0;
    return read(c->hear, &byte, 1) == 1 ? byte : 0;
}

void child_kill(struct child *c, int sig)
{
    assert_int_equal(kill(c->pid, sig), 0);
    if (sig == SIGSTOP) {
        assert_int_equal(waitpid(c->pid, NULL, WUNTRACED), c->pid);
        return;
    }
    if (sig == SIGCONT)
        return;
    assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
    close(c->tell);
    close(c->hear);
}

void child_end(struct child *c)
{
    int status;

    child_tell(c, 'q'); /* closing would not do: later children have copies of the pipe */
    close(c->tell);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(c->hear);
}

int in_child(int (*body)(const char *), const char *arg)
{
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0)
        _exit(body(arg));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        fail_msg("ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

bool file_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        close(fd);
    return good;
}

static bool map_id(const char *path, unsigned id)
{
    char text[32];

    snprintf(text, sizeof text, "%u %u 1\n", id, id);
    return file_write(path, text);
}

bool namespace_enter(int flags)
{
    const uid_t uid = geteuid();
    const gid_t gid = getegid();

    if (uid == 0)
        return unshare(flags) == 0;
    return unshare(CLONE_NEWUSER | flags) == 0 &&
           file_write("/proc/self/setgroups", "deny") &&
           map_id("/proc/self/uid_map", uid) && map_id("/proc/self/gid_map", gid);
}

bool root_change(const char *where)
{
    const char *root = folder_file(where, "../root");

    return mkdir(root, 0700) == 0 && namespace_enter(0) && chroot(root) == 0 &&
           chdir("/") == 0;
}
