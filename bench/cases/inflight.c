/* inflight.c: one client, callbacks, 64 acquires and releases under way at any
 * time, each on a name of its own. The raw limit is the store's own scripts or
 * statements, sent without the library by one connection, as many at once; where that
 * cannot be had, the rate stands alone. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { FLIGHT = 64 };

struct flier {
    struct flight *flight;
    int64_t since;
    char name[96];
};

struct flight {
    struct worker worker; /* of the raw limit */
    hf_client *client;
    struct flier fliers[FLIGHT];
    int flying, status;
    int64_t until;
};

static void landed(struct flight *f, int rc, const hf_error *err)
{
    f->flying--;
    if (rc < 0 && f->status == 0)
        f->status = cli_fail(err);
}

static void start(struct flier *r);

static void released(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct flier *r = user;
    struct flight *f = r->flight;
    int64_t now = bench_now();

    (void)lease;
    hf_op_free(op);
    if (rc == 0) {
        f->worker.slice->pairs++;
        samples_add(&f->worker.slice->samples, (double)(now - r->since) / 1e3);
    }
    landed(f, rc, err);
    if (now < f->until && f->status == 0)
        start(r);
}

static void granted(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct flier *r = user;
    hf_error own;

    hf_op_free(op);
    if (rc < 0) {
        landed(r->flight, rc, err);
        return;
    }
    rc = hf_release_start(lease, released, r, &op, &own);
    if (rc < 0)
        landed(r->flight, rc, &own);
}

static void start(struct flier *r)
{
    struct flight *f = r->flight;
    hf_op *op;
    hf_error err;
    int rc;

    r->since = bench_now();
    f->flying++;
    rc = hf_acquire_start(f->client, r->name, HF_FOREVER, NULL, granted, r, &op, &err);
    if (rc < 0)
        landed(f, rc, &err);
}

static int our_flight(struct flight *f)
{
    int64_t begin = bench_now();

    for (int i = 0; i < FLIGHT && f->status == 0; i++)
        start(&f->fliers[i]);
    while (f->flying > 0 && f->status == 0)
        if (hf_client_wait(f->client, 10000) < 0)
            f->status = EXIT_BUG;
    f->worker.slice->ns = bench_now() - begin;
    return f->status;
}

static int slice(void *ctx, bool raw, int64_t ns, struct tally *t)
{
    struct flight *f = ctx;
    int status;

    memset(f->worker.slice, 0, sizeof *f->worker.slice);
    f->until = bench_now() + ns;
    status =
        raw ? f->worker.bench->raw->flight(&f->worker, FLIGHT, f->until) : our_flight(f);
    if (status == 0)
        tally_add(t, f->worker.slice, 1);
    return status;
}

static int measure(const struct bench *b, struct flight *f, struct tally *t)
{
    struct bench_row row = { .threads = 1, .processes = 1, .setup = "64 in flight" };
    struct tally *raw = b->raw && b->raw->flight ? &t[1] : NULL;
    int status = bench_open(b, HF_DRIVE_APP, 0, &f->client);

    if (status == 0 && raw)
        status = b->raw->open(&f->worker);
    if (status == 0)
        status = bench_alternate(b, "inflight", slice, f, &t[0], raw);
    hf_close(f->client);
    if (raw)
        b->raw->close(&f->worker);
    if (status)
        return status;
    bench_fill(&row, "inflight", &t[0], raw);
    if (raw)
        bench_limit(&row, b->raw->flight_most);
    bench_print(b, &row);
    return 0;
}

int bench_inflight(const struct bench *b)
{
    struct tally *t = calloc(2, sizeof *t);
    struct flight *f = calloc(1, sizeof *f);
    int status = EXIT_SYSTEM;

    if (f) {
        f->worker = (struct worker){ .bench = b, .fd = -1 };
        f->worker.slice = calloc(1, sizeof *f->worker.slice);
        for (int i = 0; i < FLIGHT; i++) {
            f->fliers[i].flight = f;
            snprintf(f->fliers[i].name, sizeof f->fliers[i].name, "%s/%d", b->prefix, i);
        }
    }
    if (t && f && f->worker.slice)
        status = measure(b, f, t);
    else
        cli_say("out of memory");
    if (f)
        free(f->worker.slice);
    free(f);
    free(t);
    return status;
}
