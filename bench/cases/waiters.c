/* waiters.c: does a longer queue cost more?
 *
 * One process, one client, callbacks. N waiters stand behind a holder; from then on each
 * one that is granted releases and joins anew at the end, so the queue keeps its length
 * while hand-offs are counted. Lengths take turns in rounds. What 10 waiters take is the
 * measure for the rest; of a server, its own count of the time in
 * a call is told too. Memory is what the allocator has in use beside the names (no
 * waiter has a note here): the bench itself keeps nothing for each. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { SIZES = 4, ROUNDS = 5, SIZE_LIMITED = 10000, AT_ONCE = 64 };

static const size_t sizes[SIZES] = { 10, 100, 1000, 10000 };

struct queue {
    hf_client *client;
    char name[128];
    size_t waiting;
    int64_t last, until;
    struct slice *slice;
    struct worker worker; /* asks the server what it has spent, if there is one */
    int status;
};

/* Of one length of the queue. */
struct figure {
    struct tally tally;
    double bytes;       /* of each waiter */
    double us_per_call; /* of the server */
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

/* A server answers in order, so with the answer to this all who joined stand in the
 * queue. */
static int settle(struct queue *q)
{
    hf_list *list;
    hf_error err;
    char name[sizeof q->name + 8];

    snprintf(name, sizeof name, "%s/nobody", q->name);
    if (hf_look(q->client, name, &list, &err) < 0)
        return cli_fail(&err);
    hf_list_free(list);
    return 0;
}

/* Fills the queue behind a holder of our own; the bytes for each waiter beyond its name.
 */
static int fill(struct queue *q, size_t n, hf_lease **ret, double *ret_bytes)
{
    double before, after;
    hf_error err;

    if (hf_acquire(q->client, q->name, 0, NULL, ret, &err) < 0)
        return cli_fail(&err);
    q->status = settle(q);
    before = bench_memory();
    for (size_t i = 0; i < n && q->status == 0; i++) {
        q->status = join(q);
        if (q->status == 0 && (i % AT_ONCE == AT_ONCE - 1 || i == n - 1))
            q->status = settle(q);
    }
    after = bench_memory();
    /* an allocator that does not count (that of a sanitizer) says nothing */
    if (after > before)
        *ret_bytes =
            (double)(int64_t)((after - before) / (double)n - (double)strlen(q->name));
    return q->status;
}

/* What the server has spent since the last time, for each call. The least is kept: the
 * server counts by the clock, so what others take of its processor is in it too. */
static void note_spent(struct queue *q, double last[2], struct figure *f)
{
    const struct bench_raw *raw = q->worker.bench->raw;
    double us, calls;

    if (q->status || !raw || !raw->spent)
        return;
    q->status = raw->spent(&q->worker, &us, &calls);
    if (q->status)
        return;
    if (f && calls > last[1] && !(f->us_per_call <= (us - last[0]) / (calls - last[1])))
        f->us_per_call = (us - last[0]) / (calls - last[1]);
    last[0] = us;
    last[1] = calls;
}

static int one_slice(struct queue *q, size_t n, int64_t ns, struct figure *f)
{
    hf_lease *lease = NULL;
    double spent[2] = { 0, 0 };
    bool counting = true;

    memset(q->slice, 0, sizeof *q->slice);
    if (fill(q, n, &lease, &f->bytes) == 0) {
        note_spent(q, spent, NULL);
        q->last = bench_now();
        q->until = q->last + ns;
    }
    if (lease)
        hf_release_start(lease, NULL, NULL, NULL, NULL);
    /* past `until` nobody joins anew, and the queue empties itself */
    while (q->waiting > 0 && q->status == 0) {
        if (hf_client_wait(q->client, 10000) < 0)
            q->status = EXIT_BUG;
        if (counting && bench_now() >= q->until) {
            note_spent(q, spent, f);
            counting = false;
        }
    }
    if (q->status == 0)
        tally_add(&f->tally, q->slice, 1);
    return q->status;
}

static int measure(const struct bench *b, struct queue *q, struct figure *f)
{
    int64_t ns = b->time_ns / (SIZES * ROUNDS);
    int status = 0;

    for (int r = 0; r < ROUNDS; r++) {
        bench_progress(b, "waiters", r, ROUNDS);
        for (int i = 0; i < SIZES && status == 0; i++)
            status = one_slice(q, sizes[i], ns, &f[i]);
    }
    return status;
}

static void report_one(const struct bench *b, struct figure *f, struct figure *least,
                       size_t size)
{
    struct bench_row row = { .threads = 1, .processes = 1 };

    bench_fill(&row, "waiters", &f->tally, &least->tally);
    snprintf(row.setup, sizeof row.setup, "%zu waiters", size);
    row.extra[0].key = "waiters";
    row.extra[0].value = (double)size;
    row.extra[1].key = "bytes_per_waiter";
    row.extra[1].value = f->bytes;
    if (size == SIZE_LIMITED) {
        row.limit_of = "bytes_per_waiter";
        row.value = f->bytes;
        row.limit = 1024;
    }
    bench_print(b, &row);
}

/* How long the server takes for a call while so many wait. */
static void report_server(const struct bench *b, const struct figure *f, size_t size)
{
    struct bench_row row = { .name = "waiters", .threads = 1, .processes = 1 };

    row.rate = 1e6 / f->us_per_call;
    row.p50 = row.p99 = row.raw = row.raw_p50 = row.ratio = NAN;
    snprintf(row.setup, sizeof row.setup, "%zu, server", size);
    row.extra[0].key = "waiters";
    row.extra[0].value = (double)size;
    row.extra[1].key = "server_us_per_call";
    row.extra[1].value = f->us_per_call;
    row.limit_of = row.extra[1].key;
    row.value = row.extra[1].value;
    row.limit = 50;
    bench_print(b, &row);
}

int bench_waiters(const struct bench *b)
{
    struct queue q = { .slice = calloc(1, sizeof *q.slice),
                       .worker = { .bench = b, .fd = -1 } };
    struct figure *f = calloc(SIZES, sizeof *f);
    int status = EXIT_SYSTEM;

    snprintf(q.name, sizeof q.name, "%s/waiters", b->prefix);
    if (q.slice && f)
        status = bench_open(b, HF_DRIVE_APP, 0, &q.client);
    else
        cli_say("out of memory");
    for (int i = 0; f && i < SIZES; i++)
        f[i].bytes = f[i].us_per_call = NAN;
    if (status == 0 && b->raw && b->raw->spent)
        status = b->raw->open(&q.worker);
    if (status == 0)
        status = measure(b, &q, f);
    hf_close(q.client);
    if (b->raw && b->raw->spent)
        b->raw->close(&q.worker);
    for (int i = 0; status == 0 && i < SIZES; i++)
        report_one(b, &f[i], &f[0], sizes[i]);
    for (int i = 0; status == 0 && i < SIZES; i++)
        if (isfinite(f[i].us_per_call))
            report_server(b, &f[i], sizes[i]);
    free(f);
    free(q.slice);
    return status;
}
