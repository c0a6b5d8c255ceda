/* output.c: the figures as a table, or as one JSON object per line. Each row is
 * written as soon as it is known, so that an ended run leaves whole lines. */
#include "bench.h"

void bench_progress(const struct bench *b, const char *what, int done, int of)
{
    if (b->progress)
        fprintf(stderr, "\r%s: round %d of %d\033[K", what, done + 1, of);
}

void bench_quiet(const struct bench *b)
{
    if (b->progress)
        fputs("\r\033[K", stderr);
}

/* ---- JSON ------------------------------------------------------------------------ */

static void field(const char *key, double value, int digits)
{
    if (isfinite(value))
        printf(", \"%s\": %.*f", key, digits, value);
    else
        printf(", \"%s\": null", key);
}

/* Pairs of a part of the samples and the time that it did not exceed. */
static void print_quantiles(const struct bench_row *r)
{
    printf(", \"quantiles_us\": [");
    for (int i = 0; i < BENCH_QUANTILES; i++)
        printf("%s[%g, %.3f]", i ? ", " : "", bench_parts[i], r->quantiles[i]);
    printf("]");
}

static int extra_digits(double value)
{
    return isfinite(value) && (double)(int64_t)value < value ? 2 : 0;
}

static void print_json(const struct bench *b, const struct bench_row *r)
{
    printf("{\"case\": \"%s\", \"backend\": ", r->name);
    json_string(stdout, b->backend);
    printf(", \"threads\": %d, \"processes\": %d", r->threads, r->processes);
    field("pairs_per_s", r->rate, 1);
    field("p50_us", r->p50, 3);
    field("p99_us", r->p99, 3);
    if (isfinite(r->p50))
        print_quantiles(r);
    field("raw_pairs_per_s", r->raw, 1);
    field("ratio_to_raw", r->ratio, 3);
    field("raw_p50_us", r->raw_p50, 3);
    field("client_us", r->client_us, 2);
    field("raw_client_us", r->raw_client_us, 2);
    printf(", \"processors\": %d", b->processors);
    field("busy_percent", b->busy_percent, 0);
    if (r->raw_is)
        printf(", \"raw\": \"%s\"", r->raw_is);
    for (int i = 0; i < BENCH_EXTRAS && r->extra[i].key; i++)
        field(r->extra[i].key, r->extra[i].value, extra_digits(r->extra[i].value));
    if (r->limit_of) {
        printf(", \"limit_of\": \"%s\"", r->limit_of);
        field("limit", r->limit, 2);
        if (isfinite(r->value))
            printf(", \"met\": %s", r->value <= r->limit ? "true" : "false");
        else
            printf(", \"met\": null");
    }
    puts("}");
}

/* ---- a table --------------------------------------------------------------------- */

void bench_head(const struct bench *b)
{
    if (b->json)
        return;
    printf("store %s; %.1f s for each case; times in us; ratio = our time / raw time; "
           "CPU: ours for a pair\n",
           b->backend, (double)b->time_ns / 1e9);
    printf("%d processors, %.0f %% of their time used by others\n\n", b->processors,
           b->busy_percent);
    printf("%-12s %-19s %9s %9s %9s %9s %7s %7s  %s\n", "CASE", "WITH", "PAIRS/S", "P50",
           "P99", "RAW/S", "RATIO", "CPU", "TARGET");
}

static const char *cell(char *buf, size_t size, double value, int digits)
{
    if (isfinite(value))
        snprintf(buf, size, "%.*f", digits, value);
    else
        snprintf(buf, size, "-");
    return buf;
}

static void print_table(const struct bench_row *r)
{
    char rate[32], p50[32], p99[32], raw[32], ratio[32], cpu[32];
    bool of_ratio = r->limit_of && r->value == r->ratio;

    printf("%-12s %-19s %9s %9s %9s %9s %7s %7s", r->name, r->setup,
           cell(rate, sizeof rate, r->rate, 0), cell(p50, sizeof p50, r->p50, 2),
           cell(p99, sizeof p99, r->p99, 2), cell(raw, sizeof raw, r->raw, 0),
           cell(ratio, sizeof ratio, r->ratio, 2),
           cell(cpu, sizeof cpu, r->client_us > 0 ? r->client_us : (double)NAN, 1));
    if (r->limit_of && isfinite(r->value))
        printf("  %s%s<= %.*f: %s", of_ratio ? "" : r->limit_of, of_ratio ? "" : " ",
               of_ratio ? 2 : 0, r->limit, r->value <= r->limit ? "met" : "MISSED");
    putchar('\n');
    if (r->extra[0].key)
        printf("%-12s", "");
    for (int i = 0; i < BENCH_EXTRAS && r->extra[i].key; i++)
        printf("%s %s %s", i ? "," : "", r->extra[i].key,
               cell(rate, sizeof rate, r->extra[i].value, extra_digits(r->extra[i].value)));
    if (r->extra[0].key)
        putchar('\n');
}

void bench_print(const struct bench *b, const struct bench_row *r)
{
    bench_quiet(b);
    if (b->json)
        print_json(b, r);
    else
        print_table(r);
    fflush(stdout);
}
