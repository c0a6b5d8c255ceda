/* zookeeper_program.c: another program that locks in ZooKeeper, moved over its standard
 * input, one order per line; it answers with lines on its standard output, the first of
 * which is "ready". It ends with the case at the latest. */
#include "zookeeper_fault.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void run(const char *const argv[], int in, int out)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in, 0);
    dup2(out, 1);
    execvp(argv[0], (char *const *)(void *)argv);
    _exit(127);
}

struct program program_start(const char *const argv[])
{
    struct program p;
    int to[2], from[2];

    CHECK(pipe(to) == 0 && pipe(from) == 0);
    p.pid = fork();
    CHECK(p.pid >= 0);
    if (p.pid == 0) {
        close(to[1]);
        close(from[0]);
        run(argv, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    p.to = fdopen(to[1], "w");
    p.from = fdopen(from[0], "r");
    CHECK(p.to && p.from);
    setvbuf(p.from, NULL, _IONBF, 0); /* so that program_answered() sees all there is */
    CHECK_STR(program_answer(&p), "ready");
    return p;
}

const char *program_answer(struct program *p)
{
    static char line[512];

    CHECK(fgets(line, sizeof(line), p->from)); /* else: is it installed? */
    line[strcspn(line, "\n")] = 0;
    return line;
}

bool program_answered(struct program *p)
{
    struct pollfd fd = { .fd = fileno(p->from), .events = POLLIN };

    return poll(&fd, 1, 0) != 0;
}

void program_ask(struct program *p, const char *order)
{
    CHECK(fprintf(p->to, "%s\n", order) > 0 && fflush(p->to) == 0);
}

const char *program_say(struct program *p, const char *order)
{
    program_ask(p, order);
    return program_answer(p);
}

void program_end(struct program *p)
{
    fclose(p->to);
    fclose(p->from);
    kill(p->pid, SIGKILL);
    CHECK(waitpid(p->pid, NULL, 0) == p->pid);
}
