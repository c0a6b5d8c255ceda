/* crew.c: processes that work in slices as they are told.
 *
 * Each child opens the store itself, says so over a socket pair, and then runs one slice
 * per order; what it counted stands in shared memory. Goes wrong: a child that fails has
 * said why and ends, which its parent sees as the end of the socket. A child whose parent
 * ends is killed: nothing of a bench outlives it. */
#include "bench.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct order {
    int64_t until, raw;
};

struct crew {
    int n;
    size_t size; /* of slices */
    struct {
        pid_t pid;
        int fd;
    } member[16];
    struct slice *slices; /* shared; one for each */
};

void *bench_shared(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

static int serve(struct worker *w, int fd, bench_work *work)
{
    int status = bench_open(w->bench, HF_DRIVE_CALLER, 0, &w->client);
    struct order order;

    if (status == 0 && w->bench->raw)
        status = w->bench->raw->open(w);
    while (status == 0) {
        if (write(fd, &status, sizeof status) != sizeof status)
            break;
        if (read(fd, &order, sizeof order) != sizeof order)
            break;
        status = work(w, order.raw, order.until);
    }
    hf_close(w->client);
    if (w->bench->raw)
        w->bench->raw->close(w);
    return status;
}

static int hire(struct crew *c, struct worker *w, bench_work *work)
{
    pid_t parent = getpid();
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        cli_say("cannot make a socket pair");
        return EXIT_SYSTEM;
    }
    c->member[c->n].pid = fork();
    if (c->member[c->n].pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(EXIT_SYSTEM);
        /* a copy of an elder's socket would hide the parent's end from it */
        for (int i = 0; i < c->n; i++)
            close(c->member[i].fd);
        close(pair[0]);
        _exit(serve(w, pair[1], work));
    }
    close(pair[1]);
    c->member[c->n].fd = pair[0];
    if (c->member[c->n].pid < 0) {
        close(pair[0]);
        cli_say("cannot make a process");
        return EXIT_SYSTEM;
    }
    c->n++;
    return 0;
}

/* Until every member has answered; the exit status of the first that did not. */
static int answers(struct crew *c)
{
    for (int i = 0; i < c->n; i++) {
        int status;

        if (recv(c->member[i].fd, &status, sizeof status, MSG_WAITALL) != sizeof status) {
            if (waitpid(c->member[i].pid, &status, 0) != c->member[i].pid)
                return EXIT_SYSTEM;
            c->member[i].pid = 0;
            return WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status)
                                                            : EXIT_SYSTEM;
        }
    }
    return 0;
}

int crew_start(struct crew **ret, const struct bench *b, int n, const char *name,
               void *shared, bench_work *work)
{
    struct crew *c = calloc(1, sizeof *c);
    int status = 0;

    if (c) {
        c->size = (size_t)n * sizeof *c->slices;
        c->slices = bench_shared(c->size);
    }
    if (!c || !c->slices) {
        free(c);
        cli_say("out of memory");
        return EXIT_SYSTEM;
    }
    for (int i = 0; i < n && status == 0; i++) {
        struct worker w = { .bench = b,
                            .index = i,
                            .fd = -1,
                            .name = name,
                            .shared = shared,
                            .slice = &c->slices[i] };

        status = hire(c, &w, work);
    }
    if (status == 0)
        status = answers(c);
    if (status) {
        crew_end(c);
        return status;
    }
    *ret = c;
    return 0;
}

int crew_slice(struct crew *c, bool raw, int64_t ns, struct tally *t)
{
    struct order order = { .until = bench_now() + ns, .raw = raw };
    int status;

    memset(c->slices, 0, c->size);
    for (int i = 0; i < c->n; i++)
        if (send(c->member[i].fd, &order, sizeof order, MSG_NOSIGNAL) != sizeof order)
            break; /* it has ended, which its missing answer says */
    status = answers(c);
    if (status == 0)
        tally_add(t, c->slices, (size_t)c->n);
    return status;
}

void crew_end(struct crew *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n; i++)
        close(c->member[i].fd);
    for (int i = 0; i < c->n; i++)
        if (c->member[i].pid > 0)
            waitpid(c->member[i].pid, NULL, 0);
    munmap(c->slices, c->size);
    free(c);
}
