/* bench_handoff.c: a lock going to and fro between two processes, each on a CPU of its
 * own.
 *
 * Both acquire and release in a loop, so each finds the other waiting, or on its way
 * into the queue. A pair is from one grant to the next with the other's grant in
 * between: one hand-off there and one back. Where a process was not in the queue yet
 * when the other released, that one has it twice in a row; this is no hand-off and not
 * counted, neither as a pair nor as time. The raw limit is one byte there and back
 * over a unix socket: two wake-ups, as two hand-offs need; of a server, see
 * bench_redis.c. Both are pinned, because a pair on one CPU takes a third of the time
 * of one on two, and the scheduler would choose for each anew. */
#include "bench.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

struct table { /* shared by the two */
    int sock[2];
    atomic_int last; /* who had it last: index + 1 */
};

static int our_turns(struct worker *w, int64_t until)
{
    struct table *table = w->shared;
    int64_t now = bench_now(), mine = now;
    hf_lease *lease;
    hf_error err;

    while (now < until) {
        bool again;

        if (hf_acquire(w->client, w->name, HF_FOREVER, NULL, &lease, &err) < 0)
            return cli_fail(&err);
        now = bench_now();
        again = atomic_exchange(&table->last, w->index + 1) == w->index + 1;
        if (w->index == 0 && !again) {
            w->slice->pairs++;
            w->slice->ns += now - mine;
            samples_add(&w->slice->samples, (double)(now - mine) / 1e3);
        }
        mine = now;
        if (hf_release(lease, &err) < 0)
            return cli_fail(&err);
        if (again)
            sched_yield(); /* the other wants to join, perhaps on this CPU */
    }
    return 0;
}

static int lost_peer(void)
{
    cli_say("the other process of the hand-off has ended: %s", strerror(errno));
    return EXIT_SYSTEM;
}

int bench_socket_turns(struct worker *w, int64_t until)
{
    int64_t start = bench_now(), now = start;
    char byte = 'p';

    while (byte == 'p') {
        int64_t begin = now;

        /* the server echoes; the asker ends the game with another byte */
        if (w->index == 1 && read(w->fd, &byte, 1) != 1)
            return lost_peer();
        if (w->index == 0 && now >= until)
            byte = 'q';
        if (write(w->fd, &byte, 1) != 1 || (w->index == 0 && read(w->fd, &byte, 1) != 1))
            return lost_peer();
        now = bench_now();
        if (w->index == 0) {
            w->slice->pairs++;
            samples_add(&w->slice->samples, (double)(now - begin) / 1e3);
        }
    }
    w->slice->ns = now - start;
    return 0;
}

/* To the first or second CPU that we may use; where there is one only, it stays as it is.
 */
static void pin(int index)
{
    cpu_set_t may, one;
    int seen = 0;

    if (sched_getaffinity(0, sizeof may, &may) < 0 || CPU_COUNT(&may) < 2)
        return;
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &may) && seen++ == index)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static int turns(struct worker *w, bool raw, int64_t until)
{
    struct table *table = w->shared;

    if (w->fd != table->sock[w->index]) {
        /* the peer's end must be only the peer's, else its death is not seen */
        close(table->sock[1 - w->index]);
        if (w->fd >= 0)
            close(w->fd);
        w->fd = table->sock[w->index];
        pin(w->index);
    }
    return raw ? w->bench->raw->turns(w, until) : our_turns(w, until);
}

static int slice(void *ctx, bool raw, int64_t ns, struct tally *t)
{
    return crew_slice(ctx, raw, ns, t);
}

static int measure(const struct bench *b, struct table *table, struct tally *t)
{
    struct bench_row row = { .threads = 1, .processes = 2, .setup = "2 processes" };
    struct crew *crew = NULL;
    bool limit = b->raw && b->raw->turns;
    char name[128];
    int status;

    snprintf(name, sizeof name, "%s/hand-off", b->prefix);
    status = crew_start(&crew, b, 2, name, table, turns);
    close(table->sock[0]);
    close(table->sock[1]);
    if (status == 0)
        status = bench_alternate(b, "hand-off", slice, crew, &t[0], limit ? &t[1] : NULL);
    crew_end(crew);
    if (status)
        return status;
    bench_fill(&row, "hand-off", &t[0], limit ? &t[1] : NULL);
    if (limit)
        bench_limit(&row, b->raw->turns_most);
    bench_print(b, &row);
    return 0;
}

int bench_handoff(const struct bench *b)
{
    struct table *table = bench_shared(sizeof *table);
    struct tally *t = calloc(2, sizeof *t);
    int status = EXIT_SYSTEM;

    if (!table || !t)
        cli_say("out of memory");
    else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, table->sock) < 0)
        cli_say("cannot make a socket pair: %s", strerror(errno));
    else
        status = measure(b, table, t);
    free(t);
    if (table)
        munmap(table, sizeof *table);
    return status;
}
