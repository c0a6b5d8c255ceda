/* terminal.c: who may read the keyboard, and whom ^C reaches.
 *
 * How it goes well: stdin and stdout are our controlling terminal, we are its foreground
 * and lead our group, as a shell with job control starts us: the command gets a process
 * group of its own and the terminal, and the terminal comes back to us at its end. In the
 * foreground otherwise, as in `run ... | less` or in a script: the command stays in our
 * group, for the terminal belongs to the whole pipeline, and ^C must reach the script
 * without our guessing whether a signal came from the keyboard. In the background or
 * without a terminal: a group of its own, the terminal untouched.
 *
 * How it goes wrong: tcsetpgrp from the background would stop us: SIGTTOU stays blocked
 * in the supervisor, and in the child until it runs the command.
 */
#include "run.h"

#include <fcntl.h>
#include <unistd.h>

static bool is_ours(int fd)
{
    return tcgetpgrp(fd) >= 0;
}

void terminal_look(struct terminal *t)
{
    bool in = is_ours(STDIN_FILENO), out = is_ours(STDOUT_FILENO);
    *t = (struct terminal){ .fd = -1, .home = getpgrp(), .whole = in && out };
    if (in)
        t->fd = STDIN_FILENO;
    else if (out)
        t->fd = STDOUT_FILENO;
    else if (is_ours(STDERR_FILENO))
        t->fd = STDERR_FILENO;
    else
        t->fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    t->whole = t->whole && t->home == getpid();
    t->own_group = t->whole || !terminal_foreground(t);
}

bool terminal_foreground(const struct terminal *t)
{
    return t->fd >= 0 && tcgetpgrp(t->fd) == t->home;
}

void terminal_hand(struct terminal *t, pid_t group)
{
    if (t->whole && t->own_group && terminal_foreground(t))
        t->handed = tcsetpgrp(t->fd, group) == 0;
}

void terminal_take_back(struct terminal *t)
{
    if (t->handed)
        tcsetpgrp(t->fd, t->home);
    t->handed = false;
}
