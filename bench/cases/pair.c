/* pair.c: acquire and release as fast as they go: alone, by threads of one client, by
 * processes. The raw limit is the least that the store takes for the same, without the
 * library: stores/. */
#include "bench.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONTENDERS = 4, BATCH_MOST = 64, BATCH_NS = 50000 };

int bench_open(const struct bench *b, uint32_t drive, int64_t ttl_ms, hf_client **ret)
{
    hf_error err;
    int rc = hf_open(b->url, HF_OPTIONS(.drive = drive, .ttl_ms = ttl_ms), ret, &err);

    return rc < 0 ? cli_fail(&err) : 0;
}

static int our_pair(struct worker *w)
{
    hf_lease *lease;
    hf_error err;

    if (hf_acquire(w->client, w->name, HF_FOREVER, NULL, &lease, &err) < 0 ||
        hf_release(lease, &err) < 0)
        return cli_fail(&err);
    return 0;
}

/* ---- pairs ----------------------------------------------------------------------- */

/* Only the first pair of each batch is timed: on both sides the clock must not be a
 * notable part of what it measures. */
static int64_t cpu_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int bench_pairs(struct worker *w, bool raw, int64_t until)
{
    int (*pair)(struct worker *) = raw ? w->bench->raw->pair : our_pair;
    int64_t start = bench_now(), now = start, cpu = cpu_now();
    int status = 0;

    while (status == 0 && now < until) {
        int64_t begin = now, one, batch;

        status = pair(w);
        one = bench_now() - begin + 1;
        samples_add(&w->slice->samples, (double)one / 1e3);
        batch = BATCH_NS / one < BATCH_MOST ? BATCH_NS / one : BATCH_MOST;
        w->slice->pairs++;
        for (; batch > 1 && status == 0; batch--) {
            status = pair(w);
            w->slice->pairs++;
        }
        now = bench_now();
    }
    w->slice->ns = now - start;
    w->slice->cpu_ns = cpu_now() - cpu;
    return status;
}

/* ---- threads --------------------------------------------------------------------- */

struct team {
    struct worker worker[CONTENDERS];
    struct slice *slices;
    int n;
    bool raw;
    int64_t until;
};

struct member {
    struct team *team;
    struct worker *worker;
};

static void *work_in_thread(void *arg)
{
    struct member *m = arg;

    m->worker->status = bench_pairs(m->worker, m->team->raw, m->team->until);
    return NULL;
}

static int team_slice(void *ctx, bool raw, int64_t ns, struct tally *t)
{
    struct team *team = ctx;
    struct member members[CONTENDERS];
    pthread_t threads[CONTENDERS];
    int started = 0, status = 0;

    memset(team->slices, 0, (size_t)team->n * sizeof *team->slices);
    team->raw = raw;
    team->until = bench_now() + ns;
    if (team->n == 1) {
        status = bench_pairs(&team->worker[0], raw, team->until);
    } else {
        for (; started < team->n; started++) {
            members[started] = (struct member){ team, &team->worker[started] };
            if (pthread_create(&threads[started], NULL, work_in_thread, &members[started]))
                break;
        }
        if (started < team->n) {
            cli_say("cannot make a thread");
            status = EXIT_SYSTEM;
        }
        for (int i = 0; i < started; i++) {
            pthread_join(threads[i], NULL);
            if (status == 0)
                status = team->worker[i].status;
        }
    }
    if (status == 0)
        tally_add(t, team->slices, (size_t)team->n);
    return status;
}

static int team_start(struct team *team, const struct bench *b, const char *name,
                      hf_client *client)
{
    int status = 0;

    team->slices = calloc((size_t)team->n, sizeof *team->slices);
    if (!team->slices) {
        cli_say("out of memory");
        return EXIT_SYSTEM;
    }
    for (int i = 0; i < team->n && i < CONTENDERS && status == 0; i++) {
        team->worker[i] = (struct worker){ .bench = b,
                                           .index = i,
                                           .client = client,
                                           .fd = -1,
                                           .name = name,
                                           .slice = &team->slices[i] };
        status = b->raw ? b->raw->open(&team->worker[i]) : 0;
    }
    return status;
}

static void team_end(struct team *team)
{
    for (int i = 0; i < team->n; i++)
        if (team->worker[i].bench && team->worker[i].bench->raw)
            team->worker[i].bench->raw->close(&team->worker[i]);
    free(team->slices);
}

/* ---- the cases ------------------------------------------------------------------- */

static int crew_slice_of(void *ctx, bool raw, int64_t ns, struct tally *t)
{
    return crew_slice(ctx, raw, ns, t);
}

static void finish(const struct bench *b, const char *name, struct tally *t, int threads,
                   int processes)
{
    struct bench_row row = { .threads = threads, .processes = processes };
    int n = threads > 1 ? threads : processes;

    bench_fill(&row, name, &t[0], b->raw ? &t[1] : NULL);
    row.raw_is = n == 1 && b->raw ? b->raw->is : NULL;
    snprintf(row.setup, sizeof row.setup, "%d %s%s%s%s", n,
             processes > 1 ? "process" : "thread",
             n == 1          ? ""
             : processes > 1 ? "es"
                             : "s",
             row.raw_is ? ", " : "", row.raw_is ? row.raw_is : "");
    if (n == 1 && b->raw && b->raw->pair_most > 0)
        bench_limit(&row, b->raw->pair_most);
    bench_print(b, &row);
}

static int by_threads(const struct bench *b, const char *what, int n, struct tally *t)
{
    struct team team = { .n = n };
    hf_client *client = NULL;
    char name[128];
    int status = bench_open(b, HF_DRIVE_CALLER, 0, &client);

    snprintf(name, sizeof name, "%s/%s", b->prefix, what);
    if (status == 0)
        status = team_start(&team, b, name, client);
    if (status == 0)
        status = bench_alternate(b, what, team_slice, &team, &t[0], b->raw ? &t[1] : NULL);
    team_end(&team);
    hf_close(client);
    if (status == 0)
        finish(b, what, t, n, 1);
    return status;
}

static int by_processes(const struct bench *b, const char *what, int n, struct tally *t)
{
    struct crew *crew = NULL;
    char name[128];
    int status;

    snprintf(name, sizeof name, "%s/%s", b->prefix, what);
    status = crew_start(&crew, b, n, name, NULL, bench_pairs);
    if (status == 0)
        status =
            bench_alternate(b, what, crew_slice_of, crew, &t[0], b->raw ? &t[1] : NULL);
    crew_end(crew);
    if (status == 0)
        finish(b, what, t, 1, n);
    return status;
}

typedef int measure(const struct bench *, const char *what, int n, struct tally *);

static int with_tallies(const struct bench *b, const char *what, int n, measure *m)
{
    struct tally *t = calloc(2, sizeof *t);
    int status = EXIT_SYSTEM;

    if (t)
        status = m(b, what, n, t);
    else
        cli_say("out of memory");
    free(t);
    return status;
}

static int beside(const struct bench *b, const struct bench_raw *raw)
{
    struct bench other = *b;

    other.raw = raw;
    return with_tallies(&other, "uncontended", 1, by_threads);
}

bool bench_polls;

static int beside_polling(const struct bench *b, const struct bench_raw *raw)
{
    struct bench_raw polling = *raw;
    int status;

    polling.pair_most = 0;
    polling.is = "polling";
    bench_polls = true;
    status = beside(b, &polling);
    bench_polls = false;
    return status;
}

int bench_uncontended(const struct bench *b)
{
    const struct bench_raw *raw = b->raw;
    int status = beside(b, raw);

    for (; status == 0 && raw; raw = raw->too) {
        if (raw != b->raw)
            status = beside(b, raw);
        if (status == 0 && raw->polls)
            status = beside_polling(b, raw);
    }
    return status;
}

int bench_contended(const struct bench *b)
{
    int status = with_tallies(b, "contended", CONTENDERS, by_threads);

    return status ? status : with_tallies(b, "contended", CONTENDERS, by_processes);
}
