/* core_harness.c: see core_harness.h. */
#include "core_harness.h"

#include "core/url.h"

struct core_world w;

static void env_random(struct env *e, void *buf, size_t n)
{
    (void)e;
    memset(buf, 0, n);
    w.random++;
    memcpy(buf, &w.random, n < sizeof w.random ? n : sizeof w.random);
}

static int fake_open(struct store **ret, const struct url *u, struct env *e, hf_error *err)
{
    extern const struct hf_driver fake;

    (void)u;
    (void)err;
    w.store = (struct store){ .driver = &fake,
                              .env = e,
                              .caps = 0x7ff,
                              .least_ttl_ms = 10,
                              .most_ttl_ms = 1000000,
                              .least_cell_ttl_ms = 2000,
                              .most_cell_ttl_ms = 60000,
                              .name_max = 512 };
    *ret = &w.store;
    return 0;
}

static void fake_close(struct store *s)
{
    (void)s;
}

static void fake_shut(struct store *s)
{
    (void)s;
    w.shuts++;
}

static void fake_join(struct store *s, struct ticket *t)
{
    (void)s;
    w.joined = t;
    w.joins++;
}

static void fake_leave(struct store *s, struct ticket *t)
{
    (void)s;
    w.left = t;
    w.leaves++;
}

static int fake_stalled(struct store *s, const struct ticket *t, hf_error *err)
{
    (void)s;
    assert_ptr_equal(t, w.joined);
    return w.stalled ? hf__fail(err, w.stalled, 0, NULL, "somebody is in the way") : 0;
}

static void fake_amend(struct store *s, struct ticket *t)
{
    (void)s;
    w.amended = t;
}

static void fake_renew(struct store *s, struct life *const *l, size_t n)
{
    (void)s;
    w.renewals++;
    w.nrenewed = n < 8 ? n : 8;
    memcpy(w.renewed, l, w.nrenewed * sizeof *l);
}

static void fake_cell(struct store *s, struct cell *c)
{
    (void)s;
    (void)c;
    w.cells++;
}

static void fake_look(struct store *s, struct look *l)
{
    (void)s;
    w.looked = l;
    w.looks++;
}

static void fake_stop(struct store *s, struct look *l, struct cell *c)
{
    (void)s;
    (void)l;
    (void)c;
    w.stops++;
}

const struct hf_driver fake = { .name = "fake",
                                .schemes = "fake",
                                .open = fake_open,
                                .shut = fake_shut,
                                .close = fake_close,
                                .join = fake_join,
                                .leave = fake_leave,
                                .amend = fake_amend,
                                .renew = fake_renew,
                                .look = fake_look,
                                .cell = fake_cell,
                                .stop = fake_stop,
                                .stalled = fake_stalled };

static void op_done(struct hf_op *op)
{
    w.done = op;
}

static void op_seen(struct hf_op *op)
{
    (void)op;
    w.seen++;
}

static void lease_changed(struct hf_lease *l)
{
    (void)l;
    w.changes++;
}

static const struct host host = { op_done, op_seen, lease_changed, NULL };

int core_setup(void **state)
{
    static const hf_options none = HF_OPTIONS_INIT;
    static const uint32_t alive = 1;
    struct url url;

    (void)state;
    memset(&w, 0, sizeof w);
    w.c.alive = &alive;
    clock_start(1000 * (int64_t)SEC, env_random);
    if (hf__url_parse(&url, "fake:?ttl=9s&connect_timeout=3s", NULL) < 0)
        return -1;
    return hf__client_init(&w.c, &fake, &url, &none, &clk.env, &host, NULL);
}

int core_teardown(void **state)
{
    (void)state;
    hf__client_done(&w.c);
    hf__url_done(&w.c.url);
    assert_null(heap_first(&clk.timers));
    return 0;
}

static void run(void)
{
    hf__client_run(&w.c);
}

void core_pass(int64_t us)
{
    clock_pass(us, run);
}

void core_start(struct hf_op *op, hf_error *err, int64_t wait_ms, const hf_request *req)
{
    const char *name = "n";
    struct acquire_spec r;

    assert_int_equal(hf__check_request(&w.c, req, false, &r, err), 0);
    hf__op_init(op, &w.c, OP_ACQUIRE, err);
    assert_int_equal(hf__acquire(op, &name, 1, wait_ms, &r), 0);
}

void core_release(struct hf_lease *l)
{
    hf__release(NULL, l, 0);
    free(l);
    if (w.left)
        ev_left(w.left, 0);
}

struct hf_lease *core_hold(int64_t wait_ms, const hf_request *req)
{
    struct hf_op op;

    core_start(&op, NULL, wait_ms, req);
    ev_granted(w.joined, 7, clk.now);
    assert_true(op.done);
    assert_int_equal(op.rc, 0);
    return op.lease;
}
