/* handoff.c: a lock goes to and fro between two processes, each on a CPU of its own.
 *
 * A hand-off is from the call that releases to the return of the acquire of one who stood
 * in line; a pair is one there and one back. That the other stands in line is looked at
 * before the release, and whoever has released joins again only when the other has it:
 * joining is not part of it, here and in the raw limit; `contended` has both. The raw limit
 * of each store is in stores/. For the raw limit each is pinned to a CPU of its own,
 * because a pair on one CPU takes a third of the time of one on two, and the scheduler
 * would choose for each anew. For ours they are not: a process that may use one CPU only
 * does not poll.
 *
 * Of a store where it matters when a client begins to listen there is a second row, with a
 * third process that writes something else. */
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
    bool disturbed;                 /* by a third one, against raw->turns_late */
    atomic_llong released_at, took; /* of the last hand-off */
};

int bench_lost_peer(void)
{
    cli_say("the other process of the hand-off has ended: %s", strerror(errno));
    return EXIT_SYSTEM;
}

static int say(const struct worker *w, char word)
{
    return send(w->fd, &word, 1, MSG_NOSIGNAL) == 1 ? 0 : bench_lost_peer();
}

static int hear(const struct worker *w, char *word)
{
    return recv(w->fd, word, 1, 0) == 1 ? 0 : bench_lost_peer();
}

int bench_meet(const struct worker *w, char *go)
{
    char other = 0;
    int status = say(w, *go);

    if (status == 0)
        status = hear(w, &other);
    *go = w->index == 0 ? *go : other;
    return status;
}

/* ---- ours ------------------------------------------------------------------------ */

/* Until the store shows that the other waits; and some more, as long as it takes to be told
 * what it waits for: on etcd it makes watches then, and reads what is watched. */
static int await_other(const struct worker *w)
{
    hf_error err;

    for (int seen = 0; seen < BENCH_LOOKS && hf_client_caps(w->client) & HF_CAP_LINE;) {
        hf_list *list = NULL;

        if (hf_look(w->client, w->name, &list, &err) < 0)
            return cli_fail(&err);
        if (hf_list_count(list) > 0)
            seen += hf_line_waiters(hf_list_at(list, 0)) > 0;
        hf_list_free(list);
    }
    return 0;
}

/* To the other, which says so when it has it. word: whether we stay in the game. */
static int give(const struct worker *w, hf_lease *lease, char word)
{
    struct table *table = w->shared;
    int status = await_other(w);
    hf_error err;
    char has;

    atomic_store(&table->released_at, bench_now());
    if (hf_release(lease, &err) < 0)
        return cli_fail(&err);
    if (status == 0)
        status = hear(w, &has);
    return status ? status : say(w, word);
}

/* From the other; word: whether it wants another. */
static int get(const struct worker *w, hf_lease **ret, int64_t *took, char *word)
{
    struct table *table = w->shared;
    hf_error err;
    int status;

    if (hf_acquire(w->client, w->name, HF_FOREVER, NULL, ret, &err) < 0)
        return cli_fail(&err);
    *took = bench_now() - atomic_load(&table->released_at);
    status = say(w, 'g');
    return status ? status : hear(w, word);
}

void bench_count_turns(struct worker *w, int64_t there, int64_t back)
{
    w->slice->pairs++;
    w->slice->ns += there + back;
    samples_add(&w->slice->samples, (double)(there + back) / 1e3);
}

/* The first begins with the lock, and ends the game. */
static int our_turns(struct worker *w, int64_t until)
{
    struct table *table = w->shared;
    char word = 'p', other;
    hf_lease *lease;
    hf_error err;
    int64_t took;
    int status;

    if (w->index == 0 && hf_acquire(w->client, w->name, HF_FOREVER, NULL, &lease, &err) < 0)
        return cli_fail(&err);
    status = bench_meet(w, &word);
    while (status == 0 && word == 'p') {
        if (w->index == 0) {
            word = bench_now() < until ? 'p' : 'q';
            status = give(w, lease, word);
            if (status == 0 && word == 'p')
                status = get(w, &lease, &took, &other);
            if (status == 0 && word == 'p')
                bench_count_turns(w, atomic_load(&table->took), took);
        } else {
            status = get(w, &lease, &took, &word);
            atomic_store(&table->took, took);
            if (status == 0 && word == 'p')
                status = give(w, lease, 'p');
            else if (status == 0 && hf_release(lease, &err) < 0)
                status = cli_fail(&err);
        }
    }
    return status;
}

/* ---- the raw limit of a server ---------------------------------------------------- */

int bench_tell(const struct worker *w, int64_t number)
{
    return send(w->fd, &number, sizeof number, MSG_NOSIGNAL) == sizeof number
               ? 0
               : bench_lost_peer();
}

int bench_told(const struct worker *w, int64_t *ret)
{
    return recv(w->fd, ret, sizeof *ret, MSG_WAITALL) == sizeof *ret ? 0
                                                                     : bench_lost_peer();
}

int bench_give(struct worker *w, const struct bench_turn *t, int64_t *took)
{
    int64_t at = bench_now();
    int status = t->give(w);

    if (status == 0)
        status = bench_tell(w, at);
    return status ? status : bench_told(w, took);
}

int bench_take(struct worker *w, const struct bench_turn *t, int64_t *took)
{
    int64_t given = 0, has;
    int status = t->take(w);

    has = bench_now();
    if (status == 0)
        status = bench_told(w, &given);
    *took = has - given;
    return status ? status : bench_tell(w, *took);
}

int bench_turn(struct worker *w, const struct bench_turn *t)
{
    int64_t took[2] = { 0, 0 };
    int status = 0;

    for (int turn = 0; turn < 2 && status == 0; turn++) {
        if (turn != w->index) {
            status = bench_take(w, t, &took[turn]);
            continue;
        }
        for (int i = 0; i < BENCH_LOOKS && status == 0; i++)
            status = t->look(w);
        if (status == 0)
            status = bench_give(w, t, &took[turn]);
    }
    if (status == 0 && w->index == 0)
        bench_count_turns(w, took[0], took[1]);
    return status;
}

int bench_turns(struct worker *w, const struct bench_turn *t, int64_t until)
{
    char go = 'p';
    int status = 0;

    while (status == 0 && go == 'p') {
        status = bench_turn(w, t);
        go = bench_now() < until ? 'p' : 'q';
        if (status == 0)
            status = bench_meet(w, &go);
    }
    return status;
}

/* ---- the two --------------------------------------------------------------------- */

/* To the first or second CPU that we may use, or to all of them; where there is one only,
 * it stays as it is. */
static void pin(int index, bool one_only)
{
    static cpu_set_t may;
    static int have;
    cpu_set_t one;
    int seen = 0;

    if (have == 0)
        have = sched_getaffinity(0, sizeof may, &may) < 0 ? 1 : CPU_COUNT(&may);
    if (have < 2)
        return;
    if (!one_only) {
        sched_setaffinity(0, sizeof may, &may);
        return;
    }
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &may) && seen++ == index)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* The third one, in a process of its own, is not at the table. */
static int disturb(struct worker *w, int64_t until)
{
    const struct table *table = w->shared;
    static bool away;

    if (!away) {
        close(table->sock[0]);
        close(table->sock[1]);
    }
    away = true;
    return w->bench->raw->disturb(w, until);
}

static int turns(struct worker *w, bool raw, int64_t until)
{
    const struct bench_raw *limit = w->bench->raw;
    struct table *table = w->shared;

    if (w->index == 2)
        return disturb(w, until);
    if (w->fd != table->sock[w->index]) {
        /* the peer's end must be only the peer's, else its death is not seen */
        close(table->sock[1 - w->index]);
        if (w->fd >= 0)
            close(w->fd);
        w->fd = table->sock[w->index];
    }
    pin(w->index, raw);
    return !raw               ? our_turns(w, until)
           : table->disturbed ? limit->turns_late(w, until)
                              : limit->turns(w, until);
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

    if (table->disturbed) {
        row.processes = 3;
        row.raw_is = "late watch";
        snprintf(row.setup, sizeof row.setup, "beside a writer");
    }
    snprintf(name, sizeof name, "%s/hand-off", b->prefix);
    status = crew_start(&crew, b, row.processes, name, table, turns);
    close(table->sock[0]);
    close(table->sock[1]);
    if (status == 0)
        status = bench_alternate(b, "hand-off", slice, crew, &t[0], limit ? &t[1] : NULL);
    crew_end(crew);
    if (status)
        return status;
    bench_fill(&row, "hand-off", &t[0], limit ? &t[1] : NULL);
    if (limit)
        bench_limit(&row, table->disturbed ? b->raw->late_most : b->raw->turns_most);
    bench_print(b, &row);
    return 0;
}

static int hand_off(const struct bench *b, bool disturbed)
{
    struct table *table = bench_shared(sizeof *table);
    struct tally *t = calloc(2, sizeof *t);
    int status = EXIT_SYSTEM;

    if (!table || !t) {
        cli_say("out of memory");
    } else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, table->sock) < 0) {
        cli_say("cannot make a socket pair: %s", strerror(errno));
    } else {
        table->disturbed = disturbed;
        status = measure(b, table, t);
    }
    free(t);
    if (table)
        munmap(table, sizeof *table);
    return status;
}

int bench_handoff(const struct bench *b)
{
    int status = hand_off(b, false);

    return status == 0 && b->raw && b->raw->turns_late ? hand_off(b, true) : status;
}
