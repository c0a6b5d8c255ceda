/* bench_waiters.c: does a longer queue cost more?
 *
 * One process, one client, callbacks. N waiters stand behind a holder; from then on each
 * one that is granted releases and joins anew at the end, so the queue keeps its length
 * while hand-offs are counted. Lengths take turns in rounds. What 10 waiters take is the
 * measure for the rest. Memory is what the allocator has in use beside the names (no
 * waiter has a note here): the bench itself keeps nothing for each. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { SIZES = 4, ROUNDS = 5, SIZE_LIMITED = 10000 };

static const size_t sizes[SIZES] = { 10, 100, 1000, 10000 };

struct queue {
    hf_client *client;
    char name[128];
    size_t waiting;
    int64_t last, until;
    struct slice *slice;
    int status;
};

static void granted(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user);

static int join(struct queue *q)
{
    hf_op *op;
    hf_error err;

    if (hf_acquire_start(q->client, q->name, HF_FOREVER, NULL, granted, q, &op, &err) < 0)
        return cli_fail(&err);
    q->waiting++;
    return 0;
}

static void granted(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct queue *q = user;
    int64_t now = bench_now();

    hf_op_free(op);
    q->waiting--;
    if (rc < 0) {
        if (q->status == 0)
            q->status = cli_fail(err);
        return;
    }
    if (now < q->until) {
        q->slice->pairs++;
        q->slice->ns += now - q->last;
        samples_add(&q->slice->samples, (double)(now - q->last) / 1e3);
        q->last = now;
    }
    hf_release_start(lease, NULL, NULL, NULL, NULL);
    if (now < q->until && q->status == 0)
        q->status = join(q);
}

/* Fills the queue behind a holder of our own; the bytes for each waiter beyond its name.
 */
static int fill(struct queue *q, size_t n, hf_lease **ret, double *ret_bytes)
{
    double before, after;
    hf_error err;

    if (hf_acquire(q->client, q->name, 0, NULL, ret, &err) < 0)
        return cli_fail(&err);
    before = bench_memory();
    for (size_t i = 0; i < n && q->status == 0; i++)
        q->status = join(q);
    while (hf_client_process(q->client) > 0)
        ;
    after = bench_memory();
    /* an allocator that does not count (that of a sanitizer) says nothing */
    if (after > before)
        *ret_bytes =
            (double)(int64_t)((after - before) / (double)n - (double)strlen(q->name));
    return q->status;
}

static int one_slice(struct queue *q, size_t n, int64_t ns, struct tally *t, double *bytes)
{
    hf_lease *lease = NULL;

    memset(q->slice, 0, sizeof *q->slice);
    if (fill(q, n, &lease, bytes) == 0) {
        q->last = bench_now();
        q->until = q->last + ns;
    }
    if (lease)
        hf_release_start(lease, NULL, NULL, NULL, NULL);
    /* past `until` nobody joins anew, and the queue empties itself */
    while (q->waiting > 0 && q->status == 0)
        if (hf_client_wait(q->client, 10000) < 0)
            q->status = EXIT_BUG;
    if (q->status == 0)
        tally_add(t, q->slice, 1);
    return q->status;
}

static int measure(const struct bench *b, struct queue *q, struct tally *t, double *bytes)
{
    int64_t ns = b->time_ns / (SIZES * ROUNDS);
    int status = 0;

    for (int r = 0; r < ROUNDS; r++) {
        bench_progress(b, "waiters", r, ROUNDS);
        for (int i = 0; i < SIZES && status == 0; i++)
            status = one_slice(q, sizes[i], ns, &t[i], &bytes[i]);
    }
    return status;
}

static void report(const struct bench *b, struct tally *t, const double *bytes)
{
    for (int i = 0; i < SIZES; i++) {
        struct bench_row row = { .threads = 1, .processes = 1 };

        bench_fill(&row, "waiters", &t[i], &t[0]);
        snprintf(row.setup, sizeof row.setup, "%zu waiters", sizes[i]);
        row.extra[0].key = "waiters";
        row.extra[0].value = (double)sizes[i];
        row.extra[1].key = "bytes_per_waiter";
        row.extra[1].value = bytes[i];
        if (sizes[i] == SIZE_LIMITED) {
            row.limit_of = "bytes_per_waiter";
            row.value = bytes[i];
            row.limit = 1024;
        }
        bench_print(b, &row);
    }
}

int bench_waiters(const struct bench *b)
{
    struct queue q = { .slice = calloc(1, sizeof *q.slice) };
    struct tally *t = calloc(SIZES, sizeof *t);
    double bytes[SIZES] = { NAN, NAN, NAN, NAN };
    int status;

    snprintf(q.name, sizeof q.name, "%s/waiters", b->prefix);
    if (!q.slice || !t) {
        cli_say("out of memory");
        status = EXIT_SYSTEM;
    } else {
        status = bench_open(b, HF_DRIVE_APP, 0, &q.client);
    }
    if (status == 0)
        status = measure(b, &q, t, bytes);
    hf_close(q.client);
    if (status == 0)
        report(b, t, bytes);
    free(t);
    free(q.slice);
    return status;
}
