/* held.c: does it cost more to hold much?
 *
 * One client takes 10,000 and 100,000 names; beside them one more is acquired and released.
 * The measure is the same pair with nothing held before; what it takes after all were given
 * back is told too. Between the two the names are kept for longer than their ttl: those
 * that the client could not renew in time are counted as lost. Goes wrong: a slow store
 * holds as many names as it could give in a minute, and `held` says so. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 4, TTL_LEAST_MS = 3000 };

static const int64_t fill_most_ns = INT64_C(60000000000);

struct hoard {
    const struct bench *bench;
    struct worker worker;
    size_t want, n, lost;
    hf_lease **leases;
    int64_t ttl_ms, since;
    double bytes, take_us;
    double cpu; /* percent of one CPU, while the names were only kept */
};

static int take(struct hoard *h)
{
    double before = bench_memory(), after;
    int64_t start = bench_now();
    hf_error err;

    h->since = start;
    while (h->n < h->want && bench_now() - start < fill_most_ns) {
        char name[128];

        snprintf(name, sizeof name, "%s/held/%zu", h->bench->prefix, h->n);
        if (hf_acquire(h->worker.client, name, 0, NULL, &h->leases[h->n], &err) < 0)
            return cli_fail(&err);
        h->n++;
    }
    after = bench_memory();
    h->take_us = (double)(bench_now() - start) / 1e3 / (double)h->n;
    h->bytes =
        after > before ? (double)(int64_t)((after - before) / (double)h->n + 0.5) : NAN;
    return 0;
}

static double cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* A whole ttl where that is long: each is renewed equally often in it. */
static void keep_past_ttl(struct hoard *h)
{
    int64_t rest = h->bench->local ? h->since + h->ttl_ms * 1200000 - bench_now()
                                   : h->ttl_ms * 1000000;
    struct timespec t = { .tv_sec = rest / 1000000000, .tv_nsec = rest % 1000000000 };
    double before = cpu_ns();

    if (rest > 0)
        nanosleep(&t, NULL);
    h->cpu = rest > 0 ? (cpu_ns() - before) * 100 / (double)rest : NAN;
}

static void give_back(struct hoard *h)
{
    for (size_t i = 0; i < h->n; i++)
        h->lost += hf_lease_check(h->leases[i]) < 0;
    for (size_t i = 0; i < h->n; i++)
        hf_release(h->leases[i], NULL);
    h->n = 0;
}

static int slices(struct hoard *h, struct tally *t)
{
    int64_t ns = h->bench->time_ns / (3 * ROUNDS);
    int status = 0;

    for (int r = 0; r < ROUNDS && status == 0; r++) {
        memset(h->worker.slice, 0, sizeof *h->worker.slice);
        status = bench_pairs(&h->worker, false, bench_now() + ns);
        if (status == 0)
            tally_add(t, h->worker.slice, 1);
    }
    return status;
}

enum { BESIDE, BEFORE, AFTER, TALLIES };

static int measure(struct hoard *h, struct tally *t)
{
    size_t held;
    int status = slices(h, &t[BEFORE]);

    if (status == 0)
        status = take(h);
    held = h->n;
    if (status == 0)
        status = slices(h, &t[BESIDE]);
    if (status == 0)
        keep_past_ttl(h);
    give_back(h);
    h->n = held;
    if (status == 0)
        status = slices(h, &t[AFTER]);
    return status;
}

static void report(const struct hoard *h, struct tally *t)
{
    struct bench_row row = { .threads = 1, .processes = 1 };

    bench_fill(&row, "held", &t[BESIDE], &t[BEFORE]);
    snprintf(row.setup, sizeof row.setup, "%zu held", h->n);
    row.extra[0].key = "held";
    row.extra[0].value = (double)h->n;
    row.extra[1].key = "lost";
    row.extra[1].value = (double)h->lost;
    row.extra[2].key = "bytes_per_held";
    row.extra[2].value = h->bytes;
    row.extra[3].key = "take_us";
    row.extra[3].value = h->take_us;
    row.extra[4].key = "after_us";
    row.extra[4].value = 1e6 / tally_rate(&t[AFTER]);
    row.extra[5].key = "cpu_percent";
    row.extra[5].value = h->cpu;
    if (!h->bench->local) {
        row.limit_of = row.extra[5].key;
        row.value = h->cpu;
        row.limit = 5;
    }
    bench_print(h->bench, &row);
}

static int hold(const struct bench *b, size_t want)
{
    struct tally *t = calloc(TALLIES, sizeof *t);
    struct hoard h = { .bench = b, .want = want };
    /* 30 s at a server, unless time is short */
    int64_t ttl_ms = b->time_ns / 1000000 * (b->local ? 3 : 15);
    char name[128];
    int status = EXIT_SYSTEM;

    snprintf(name, sizeof name, "%s/beside", b->prefix);
    h.ttl_ms = ttl_ms < TTL_LEAST_MS ? TTL_LEAST_MS : ttl_ms;
    h.leases = calloc(want, sizeof *h.leases);
    h.worker = (struct worker){ .bench = b, .fd = -1, .name = name };
    h.worker.slice = calloc(1, sizeof *h.worker.slice);
    bench_progress(b, "held", 0, 1);
    if (!t || !h.leases || !h.worker.slice)
        cli_say("out of memory");
    else
        status = bench_open(b, HF_DRIVE_CALLER, h.ttl_ms, &h.worker.client);
    if (status == 0)
        status = measure(&h, t);
    hf_close(h.worker.client);
    if (status == 0)
        report(&h, t);
    free(h.worker.slice);
    free(h.leases);
    free(t);
    return status;
}

/* In a store of its own, if that is ours to choose: what 10,000 leave behind is not what
 * 100,000 begin with. */
static int hold_apart(const struct bench *b, size_t want)
{
    struct bench apart = *b;
    int status = EXIT_SYSTEM;

    if (!b->own)
        return hold(b, want);
    if (asprintf(&apart.url, "%s-%zu", b->url, want) < 0) {
        cli_say("out of memory");
        return status;
    }
    status = hold(&apart, want);
    free(apart.url);
    return status;
}

int bench_held(const struct bench *b)
{
    int status = hold_apart(b, 10000);

    return status ? status : hold_apart(b, 100000);
}
