/* statistics.c: samples, medians and the alternating rounds. */
#include "bench.h"

#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const double bench_parts[BENCH_QUANTILES] = {
    0,   0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4,  0.45,
    0.5, 0.55, 0.6,  0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99, 0.999,
};

int64_t bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double bench_memory(void)
{
#if defined(__GLIBC__)
    struct mallinfo2 m = mallinfo2();

    return (double)m.uordblks + (double)m.hblkhd;
#else
    return NAN;
#endif
}

void samples_add(struct samples *s, double us)
{
    if (s->skip > 0) {
        s->skip--;
        return;
    }
    if (s->n == BENCH_SAMPLES) {
        for (size_t i = 0; i < BENCH_SAMPLES / 2; i++)
            s->us[i] = s->us[2 * i];
        s->n = BENCH_SAMPLES / 2;
        s->every = s->every ? 2 * s->every : 2;
    }
    s->us[s->n++] = us;
    s->skip = s->every ? s->every - 1 : 0;
}

void tally_add(struct tally *t, const struct slice *slices, size_t n)
{
    double rate = 0;

    for (size_t i = 0; i < n; i++) {
        if (slices[i].cpu_ns > 0) {
            t->cpu_us += (double)slices[i].cpu_ns / 1e3;
            t->pairs += (double)slices[i].pairs;
        }
        if (slices[i].ns > 0)
            rate += (double)slices[i].pairs * 1e9 / (double)slices[i].ns;
        for (size_t k = 0; k < slices[i].samples.n; k++)
            samples_add(&t->samples, slices[i].samples.us[k]);
    }
    if (t->rounds < BENCH_ROUNDS)
        t->rate[t->rounds++] = rate;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double tally_rate(const struct tally *t)
{
    double sorted[BENCH_ROUNDS];

    if (t->rounds == 0)
        return NAN;
    memcpy(sorted, t->rate, t->rounds * sizeof *sorted);
    qsort(sorted, t->rounds, sizeof *sorted, compare);
    return sorted[t->rounds / 2];
}

double samples_at(struct samples *s, double part)
{
    qsort(s->us, s->n, sizeof *s->us, compare);
    return s->n ? s->us[(size_t)((double)(s->n - 1) * part)] : NAN;
}

int bench_alternate(const struct bench *b, const char *what, bench_slice *slice, void *ctx,
                    struct tally *ours, struct tally *raw)
{
    int64_t ns = b->time_ns / (BENCH_ROUNDS * (raw ? 2 : 1));
    int status = 0;

    for (int r = 0; r < BENCH_ROUNDS && status == 0; r++) {
        bench_progress(b, what, r, BENCH_ROUNDS);
        /* whoever goes first finds the caches of the other: so they take turns in that
         * too */
        for (int k = 0; k < 2 && status == 0; k++) {
            bool is_raw = (r + k) % 2 == 0;

            if (!is_raw || raw)
                status = slice(ctx, is_raw, ns, is_raw ? raw : ours);
        }
    }
    return status;
}

static double cpu_of_pair(const struct tally *t)
{
    return t && t->pairs > 0 ? t->cpu_us / t->pairs : NAN;
}

void bench_fill(struct bench_row *row, const char *name, struct tally *ours,
                struct tally *raw)
{
    row->name = name;
    row->rate = tally_rate(ours);
    for (int i = 0; i < BENCH_QUANTILES; i++)
        row->quantiles[i] = samples_at(&ours->samples, bench_parts[i]);
    row->p50 = samples_at(&ours->samples, 0.5);
    row->p99 = samples_at(&ours->samples, 0.99);
    row->raw = raw ? tally_rate(raw) : NAN;
    row->raw_p50 = raw ? samples_at(&raw->samples, 0.5) : NAN;
    row->client_us = cpu_of_pair(ours);
    row->raw_client_us = cpu_of_pair(raw);
    row->ratio = raw && row->rate > 0 ? row->raw / row->rate : NAN;
}

/* Time of all processors, and of that the idle one, in ticks. False: not known. */
static bool read_ticks(double *all, double *idle)
{
    double t[8];
    FILE *f = fopen("/proc/stat", "re");
    int n = f ? fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &t[0], &t[1], &t[2], &t[3],
                       &t[4], &t[5], &t[6], &t[7])
              : 0;

    if (f)
        fclose(f);
    *all = 0;
    for (int i = 0; i < n; i++)
        *all += t[i];
    *idle = n == 8 ? t[3] + t[4] : 0;
    return n == 8;
}

void bench_machine(struct bench *b)
{
    const struct timespec while_ = { .tv_nsec = 200000000 };
    double all, idle, all_later, idle_later;
    bool known = read_ticks(&all, &idle);
    cpu_set_t may;

    b->processors = sched_getaffinity(0, sizeof may, &may) == 0 ? CPU_COUNT(&may) : 0;
    nanosleep(&while_, NULL);
    known = known && read_ticks(&all_later, &idle_later) && all_later > all;
    b->busy_percent =
        known ? 100 - 100 * (idle_later - idle) / (all_later - all) : (double)NAN;
}

void bench_limit(struct bench_row *row, double most)
{
    row->limit_of = "ratio_to_raw";
    row->value = row->ratio;
    row->limit = most;
}
