/* recipes.c: see recipes.h; and what is true of all recipes: what a store cannot do is
 * refused, a record of another recipe is not touched, an operation may be cancelled, freed
 * or closed over at any moment.
 */
#include "recipes.h"

#include "api/cell.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the faces ------------------------------------------------------------------- */

struct call {
    struct outcome out;
    hf_op *op;
};

static void ended(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    (void)op;
    outcome_set(user, rc, lease, err);
}

static int taken_from(struct call *k, int rc, int64_t *number, hf_lease **lease)
{
    if (rc == 0) {
        outcome_wait(&k->out);
        rc = k->out.rc;
        if (rc < 0)
            *E() = k->out.err;
        if (rc >= 0 && number)
            *number = hf_op_number(k->op);
        CHECK(!k->out.lease == !(rc == 0 && lease));
        if (rc == 0 && lease)
            *lease = k->out.lease;
        hf_op_free(k->op);
    }
    outcome_fini(&k->out);
    return rc;
}

#define FACE(blocking, start, number, lease)                                               \
    do {                                                                                   \
        struct call k_;                                                                    \
        if (!rig.face->async)                                                              \
            return blocking;                                                               \
        outcome_init(&k_.out);                                                             \
        return taken_from(&k_, start, number, lease);                                      \
    } while (0)
#define TOLD ended, &k_.out, &k_.op, E()

int r_count(hf_client *c, const char *name, int64_t by, int64_t *ret)
{
    FACE(hf_count(c, name, by, ret, E()), hf_count_start(c, name, by, TOLD), ret, NULL);
}

int r_next(hf_ids *ids, int64_t *ret)
{
    FACE(hf_ids_next(ids, ret, E()), hf_ids_next_start(ids, TOLD), ret, NULL);
}

int r_begin(hf_client *c, const char *name, int64_t keep_ms, int64_t wait_ms,
            const hf_request *req, hf_lease **ret)
{
    FACE(hf_once_begin(c, name, keep_ms, wait_ms, req, ret, E()),
         hf_once_begin_start(c, name, keep_ms, wait_ms, req, TOLD), NULL, ret);
}

int r_done(hf_lease *l)
{
    FACE(hf_once_done(l, E()), hf_once_done_start(l, TOLD), NULL, NULL);
}

int r_forget(hf_client *c, const char *name)
{
    FACE(hf_once_forget(c, name, E()), hf_once_forget_start(c, name, TOLD), NULL, NULL);
}

int r_rate(hf_client *c, const char *name, uint32_t n, int64_t per_ms, int64_t wait_ms,
           const hf_request *req)
{
    FACE(hf_rate(c, name, n, per_ms, wait_ms, req, E()),
         hf_rate_start(c, name, n, per_ms, wait_ms, req, TOLD), NULL, NULL);
}

int r_campaign(hf_client *c, const char *name, const char *value, int64_t wait_ms,
               hf_lease **ret)
{
    FACE(hf_campaign(c, name, value, wait_ms, NULL, ret, E()),
         hf_campaign_start(c, name, value, wait_ms, NULL, TOLD), NULL, ret);
}

struct led {
    struct outcome out;
    hf_leader_info info;
};

static void on_led(hf_op *op, int rc, const hf_leader_info *info, const hf_error *err,
                   void *user)
{
    struct led *l = user;

    (void)op;
    CHECK((rc == 0) == (info != NULL));
    if (info)
        l->info = *info;
    outcome_set(&l->out, rc, NULL, err);
}

int r_leader(hf_client *c, const char *name, hf_leader_info *ret)
{
    struct led l;
    hf_op *op;
    int rc;

    if (!rig.face->async)
        return hf_leader(c, name, ret, E());
    outcome_init(&l.out);
    rc = hf_leader_start(c, name, on_led, &l, &op, E());
    if (rc == 0) {
        outcome_wait(&l.out);
        rc = l.out.rc;
        if (rc < 0)
            *E() = l.out.err;
        else
            *ret = l.info;
        hf_op_free(op);
    }
    outcome_fini(&l.out);
    return rc;
}

int r_latch_set(hf_client *c, const char *name, int64_t n)
{
    FACE(hf_latch_set(c, name, n, E()), hf_latch_set_start(c, name, n, TOLD), NULL, NULL);
}

int r_latch_down(hf_client *c, const char *name, int64_t by, int64_t *left)
{
    FACE(hf_latch_down(c, name, by, left, E()), hf_latch_down_start(c, name, by, TOLD),
         left, NULL);
}

int r_latch_left(hf_client *c, const char *name, int64_t *ret)
{
    FACE(hf_latch_left(c, name, ret, E()), hf_latch_left_start(c, name, TOLD), ret, NULL);
}

int r_latch_wait(hf_client *c, const char *name, int64_t wait_ms, hf_cancel *cancel)
{
    FACE(hf_latch_wait(c, name, wait_ms, cancel, E()),
         hf_latch_wait_start(c, name, wait_ms, cancel, TOLD), NULL, NULL);
}

int r_latch_clear(hf_client *c, const char *name)
{
    FACE(hf_latch_clear(c, name, E()), hf_latch_clear_start(c, name, TOLD), NULL, NULL);
}

int r_barrier(hf_client *c, const char *name, uint32_t parties, int64_t wait_ms,
              const hf_request *req)
{
    FACE(hf_barrier(c, name, parties, wait_ms, req, E()),
         hf_barrier_start(c, name, parties, wait_ms, req, TOLD), NULL, NULL);
}

/* ---- in the background ----------------------------------------------------------- */

static int call_later(struct later *l)
{
    switch (l->what) {
    case LATER_BEGIN:
        return r_begin(l->client, l->name, 0, l->wait_ms, &l->req, &l->lease);
    case LATER_RATE:
        return r_rate(l->client, l->name, l->n, 60000, l->wait_ms, &l->req);
    case LATER_LATCH:
        return r_latch_wait(l->client, l->name, l->wait_ms, l->req.cancel);
    case LATER_BARRIER:
        return r_barrier(l->client, l->name, l->n, l->wait_ms, &l->req);
    }
    return HF_EBUG;
}

static void *run_later(void *arg)
{
    struct later *l = arg;

    l->rc = call_later(l);
    if (l->rc < 0)
        l->err = *last_error();
    atomic_store(&l->done, true);
    return NULL;
}

void later_start(struct later *l)
{
    l->req.size = sizeof l->req;
    CHECK(pthread_create(&l->thread, NULL, run_later, l) == 0);
}

int later_end(struct later *l)
{
    AWAIT(l->done);
    pthread_join(l->thread, NULL);
    if (l->rc < 0)
        *E() = l->err;
    return l->rc;
}

void *shared(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(p != MAP_FAILED);
    return p;
}

void record_put(hf_client *c, const char *name, const char *value)
{
    struct cell cell = { .verb = CELL_PUT, .name = name, .if_any = true };

    cell.name_len = strlen(name);
    cell.value_len = strlen(value);
    memcpy(cell.value, value, cell.value_len);
    CHECK_RC(hf__cell_call(c, &cell, E()), 0);
}

bool record_is(hf_client *c, const char *name, const char *value)
{
    struct cell cell = { .verb = CELL_GET, .name = name };

    cell.name_len = strlen(name);
    CHECK_RC(hf__cell_call(c, &cell, E()), 0);
    if (!value || cell.version == 0)
        return !value && cell.version == 0;
    return cell.value_len == strlen(value) &&
           memcmp(cell.value, value, cell.value_len) == 0;
}

/* ---- what a store cannot do ------------------------------------------------------ */

static void refused_or(int rc, uint32_t needs, int want)
{
    CHECK_RC(rc, (needs & ~rig.setup->caps) ? HF_ENOTSUP : want);
}

static void recipe_needs(void)
{
    hf_client *c = opened();
    hf_leader_info info;
    hf_lease *l = NULL;
    int64_t n;
    uint32_t cell = HF_CAP_CELL;

    CHECK_RC(tried(c, nm("n"), NULL), 0);
    refused_or(r_count(c, nm("count"), 1, &n), cell, 0);
    refused_or(r_begin(c, nm("once"), 0, 0, NULL, &l), cell, 0);
    if (l)
        given(l);
    l = NULL;
    refused_or(r_begin(c, nm("expires"), 5000, 0, NULL, &l), cell | HF_CAP_CELL_EXPIRY, 0);
    if (l)
        given(l);
    l = NULL;
    refused_or(r_forget(c, nm("once")), cell, 0);
    refused_or(r_rate(c, nm("rate"), 1, 1000, 0, NULL), HF_CAP_PERMITS | HF_CAP_KEEP, 0);
    refused_or(r_campaign(c, nm("elect"), "v", 0, &l), HF_CAP_LINE, 0);
    refused_or(r_leader(c, nm("elect"), &info), HF_CAP_LINE, 0);
    if (l)
        given(l);
    refused_or(r_latch_set(c, nm("latch"), 1), cell, 0);
    refused_or(r_latch_wait(c, nm("latch"), 0, NULL), cell, HF_EBUSY);
    refused_or(r_barrier(c, nm("barrier"), 1, 0, NULL), cell | HF_CAP_PERMITS | HF_CAP_LINE,
               0);
    CHECK_RC(tried(c, nm("once"), NULL), 0); /* nobody is left there */
    CHECK_RC(tried(c, nm("elect"), NULL), 0);
    CHECK_RC(tried(c, nm("barrier"), NULL), 0);
    closed(c);
}

static void recipe_mismatch(void)
{
    static const char *const records[] = {
        "7",          "once 5", "latch 1 2", "barrier 1 2 3", "something else",
        "latch 01 2", "once ",  ""
    };
    hf_client *c = opened();
    hf_lease *l = NULL;
    int64_t n;

    for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
        record_put(c, nm("n"), records[i]);
        if (i != 0)
            CHECK_RC(r_count(c, nm("n"), 1, &n), HF_EMISMATCH);
        if (i != 0)
            CHECK_RC(r_count(c, nm("n"), 0, &n), HF_EMISMATCH);
        if (i != 1) {
            CHECK_RC(r_begin(c, nm("n"), 0, 0, NULL, &l), HF_EMISMATCH);
            CHECK_RC(r_forget(c, nm("n")), HF_EMISMATCH);
        }
        if (i != 2) {
            CHECK_RC(r_latch_set(c, nm("n"), 2), HF_EMISMATCH);
            CHECK_RC(r_latch_down(c, nm("n"), 1, &n), HF_EMISMATCH);
            CHECK_RC(r_latch_left(c, nm("n"), &n), HF_EMISMATCH);
            CHECK_RC(r_latch_wait(c, nm("n"), HF_FOREVER, NULL), HF_EMISMATCH);
            CHECK_RC(r_latch_clear(c, nm("n")), HF_EMISMATCH);
        }
        if (i != 3)
            CHECK_RC(r_barrier(c, nm("n"), 1, 0, NULL),
                     (HF_CAP_PERMITS & ~rig.setup->caps) ? HF_ENOTSUP : HF_EMISMATCH);
        CHECK(record_is(c, nm("n"), records[i]));
    }
    CHECK_RC(tried(c, nm("n"), NULL), 0);
    closed(c);
}

static void recipe_arguments(void)
{
    const hf_request shared_lock = { .size = sizeof(hf_request), .mode = HF_READ };
    hf_client *c = opened();
    hf_lease *l = NULL;
    hf_ids *ids = NULL;
    int64_t n;

    CHECK_RC(r_count(c, nm("n"), -1, &n), HF_EINVAL);
    CHECK_RC(r_count(c, "", 1, &n), HF_EINVAL);
    CHECK_RC(hf_ids_open(c, nm("n"), 0, &ids, E()), HF_EINVAL);
    CHECK_RC(hf_ids_open(c, nm("n"), INT64_MAX, &ids, E()), HF_EINVAL);
    CHECK_RC(hf_ids_open(c, "", 1, &ids, E()), HF_EINVAL);
    CHECK_RC(r_begin(c, nm("n"), -1, 0, NULL, &l), HF_EINVAL);
    CHECK_RC(r_begin(c, nm("n"), 0, 0, &shared_lock, &l), HF_EINVAL);
    CHECK_RC(r_rate(c, nm("n"), 0, 1000, 0, NULL), HF_EINVAL);
    CHECK_RC(r_rate(c, nm("n"), 1, 0, 0, NULL), HF_EINVAL);
    CHECK_RC(r_rate(c, nm("n"), 1, 1000, 0, &shared_lock), HF_EINVAL);
    CHECK_RC(hf_campaign(c, nm("n"), "v", 0, HF_REQUEST(.note = "no"), &l, E()), HF_EINVAL);
    CHECK_RC(hf_campaign(c, nm("n"), "v", 0, &shared_lock, &l, E()), HF_EINVAL);
    CHECK_RC(r_latch_set(c, nm("n"), -1), HF_EINVAL);
    CHECK_RC(r_latch_down(c, nm("n"), 0, &n), HF_EINVAL);
    CHECK_RC(r_barrier(c, nm("n"), 0, 0, NULL), HF_EINVAL);
    CHECK_RC(r_barrier(c, nm("n"), 1025, 0, NULL), HF_EINVAL);
    CHECK(record_is(c, nm("n"), NULL));
    l = taken(c, nm("n"), NULL);
    CHECK_RC(r_done(l), HF_EINVAL); /* it is still ours */
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    closed(c);
}

/* ---- ended at any moment --------------------------------------------------------- */

enum { WAITING_CALLS = 4, STEPS = 12 };

struct told {
    int calls, rc;
};

static void on_told(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct told *t = user;

    (void)op;
    CHECK(rc >= 0 || (err && err->code == rc && err->text[0]));
    if (lease)
        CHECK_RC(hf_release_start(lease, NULL, NULL, NULL, E()), 0);
    t->calls++;
    t->rc = rc;
}

/* Each waits for something that does not come: once and rate for a place that `held` has.
 */
static void start_one(hf_client *c, int i, hf_cancel *cancel, struct told *t, hf_op **op)
{
    const hf_request req = { .size = sizeof req, .cancel = cancel };

    switch (i) {
    case 0:
        CHECK_RC(
            hf_once_begin_start(c, nm("once"), 0, HF_FOREVER, &req, on_told, t, op, E()),
            0);
        return;
    case 1:
        CHECK_RC(
            hf_rate_start(c, nm("rate"), 1, 60000, HF_FOREVER, &req, on_told, t, op, E()),
            0);
        return;
    case 2:
        CHECK_RC(
            hf_latch_wait_start(c, nm("latch"), HF_FOREVER, cancel, on_told, t, op, E()),
            0);
        return;
    default:
        CHECK_RC(
            hf_barrier_start(c, nm("barrier"), 2, HF_FOREVER, &req, on_told, t, op, E()),
            0);
    }
}

static void turn(hf_client *c, int turns)
{
    for (int i = 0; i < turns; i++)
        CHECK(hf_client_wait(c, 2) >= 0);
}

static void await_empty(hf_client *c, size_t once, size_t rate)
{
    await_line(c, nm("once"), once, 0);
    await_line(c, nm("rate"), rate, 0);
    await_line(c, nm("barrier"), 0, 0);
}

/* A client of HF_DRIVE_APP that nobody else drives: so many turns, then the end. */
static void recipe_ended_at_any_step(void)
{
    hf_client *beside = opened(), *c = NULL;
    hf_lease *once = taken(beside, nm("once"), NULL);
    hf_lease *rate = taken(beside, nm("rate"),
                           HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = 1));
    hf_cancel *cancel = NULL;

    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    CHECK_RC(hf_connect(c, LIMIT_MS, E()), 0);
    CHECK_RC(hf_cancel_new(&cancel, E()), 0);
    for (int way = 0; way < 3; way++)
        for (int turns = 0; turns < STEPS; turns += turns < 4 ? 1 : 4) {
            struct told told[WAITING_CALLS] = { { 0, 0 } };
            hf_op *ops[WAITING_CALLS];

            for (int i = 0; i < WAITING_CALLS; i++)
                start_one(c, i, way == 1 ? cancel : NULL, &told[i], &ops[i]);
            turn(c, turns);
            if (way == 1)
                hf_cancel_fire(cancel);
            for (int i = 0; i < WAITING_CALLS; i++) {
                if (way == 2)
                    hf_op_cancel(ops[i]);
                while (way != 0 && told[i].calls == 0)
                    turn(c, 1);
                hf_op_free(ops[i]);
                CHECK_NUM(told[i].calls, ==, way != 0);
                CHECK_RC(told[i].rc, way != 0 ? HF_ECANCELED : 0);
            }
            hf_cancel_reset(cancel);
        }
    turn(c, 4);
    for (int i = 0; i < WAITING_CALLS; i++) { /* freed, and then closed over at once */
        static struct told told;
        uint32_t position = 0;
        hf_op *op;

        start_one(c, i, NULL, &told, &op);
        while (i < 2 && position != 1) { /* in the line behind `beside` */
            turn(c, 1);
            CHECK_RC(hf_op_position(op, &position, NULL), 0);
        }
        hf_op_free(op);
        start_one(c, i, NULL, &told, &op);
        turn(c, i);
        hf_op_free(op);
        start_one(c, i, cancel, &told, &op);
        turn(c, i);
        hf_op_free(op);
    }
    hf_close(c);
    await_empty(beside, 1, 1);
    CHECK(record_is(beside, nm("once"), NULL) && record_is(beside, nm("latch"), NULL));
    given(once);
    given(rate);
    hf_cancel_free(cancel);
    closed(beside);
}

/* hf_close tells each once, whatever it has under way, and leaves nothing in the store. */
static void recipe_closed_over(void)
{
    hf_client *beside = opened();
    hf_lease *once = taken(beside, nm("once"), NULL);
    hf_lease *rate = taken(beside, nm("rate"),
                           HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = 1));

    for (int turns = 0; turns < STEPS; turns += turns < 4 ? 1 : 4) {
        struct told told[WAITING_CALLS] = { { 0, 0 } };
        hf_op *ops[WAITING_CALLS];
        hf_client *c = NULL;

        CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
        CHECK_RC(hf_connect(c, LIMIT_MS, E()), 0);
        for (int i = 0; i < WAITING_CALLS; i++)
            start_one(c, i, NULL, &told[i], &ops[i]);
        turn(c, turns);
        hf_close(c);
        for (int i = 0; i < WAITING_CALLS; i++) {
            CHECK_NUM(told[i].calls, ==, 1);
            CHECK_RC(told[i].rc, HF_ECLOSED);
            hf_op_free(ops[i]);
            CHECK_NUM(told[i].calls, ==, 1);
        }
        await_empty(beside, 1, 1);
    }
    given(once);
    given(rate);
    closed(beside);
}

static void recipe_stopped(void)
{
    hf_client *beside = opened(), *c = opened();
    hf_lease *once = taken(beside, nm("once"), NULL), *mine = NULL;
    hf_lease *rate = taken(beside, nm("rate"),
                           HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = 1));
    struct later l[WAITING_CALLS] = {
        { .what = LATER_BEGIN, .name = nm("once") },
        { .what = LATER_RATE, .name = nm("rate"), .n = 1 },
        { .what = LATER_LATCH, .name = nm("latch") },
        { .what = LATER_BARRIER, .name = nm("barrier"), .n = 2 },
    };
    int64_t n;

    CHECK_RC(r_begin(c, nm("mine"), 0, 0, NULL, &mine), 0);
    for (int i = 0; i < WAITING_CALLS; i++) {
        l[i].client = c;
        l[i].wait_ms = HF_FOREVER;
        later_start(&l[i]);
    }
    await_line(beside, nm("once"), 1, 1);
    await_line(beside, nm("rate"), 1, 1);
    await_line(beside, nm("barrier"), 1, 0);
    CHECK_RC(hf_client_stop(c), 0);
    for (int i = 0; i < WAITING_CALLS; i++)
        CHECK_RC(later_end(&l[i]), HF_ECLOSED);
    CHECK_RC(r_count(c, nm("count"), 1, &n), HF_ECLOSED);
    CHECK_RC(r_done(mine), 0); /* what is held can still be brought to its end */
    CHECK_RC(r_begin(beside, nm("mine"), 0, 0, NULL, &mine), 1);
    await_empty(beside, 1, 1);
    given(once);
    given(rate);
    closed(c);
    closed(beside);
}

/* In the child they only give memory back; the parent's go on. */
static void recipe_forked(void)
{
    hf_client *c = NULL;
    struct told told[WAITING_CALLS] = { { 0, 0 } };
    hf_op *ops[WAITING_CALLS];
    hf_lease *mine = NULL, *none = NULL;
    int64_t n;
    int status;
    pid_t pid;

    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    CHECK_RC(hf_once_begin(c, nm("mine"), 0, 0, NULL, &mine, E()), 0);
    for (int i = 0; i < WAITING_CALLS; i++)
        start_one(c, i, NULL, &told[i], &ops[i]);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        bool ok = hf_count(c, nm("n"), 1, &n, NULL) == HF_EFORKED &&
                  hf_once_begin(c, nm("n"), 0, 0, NULL, &none, NULL) == HF_EFORKED &&
                  hf_barrier(c, nm("n"), 1, 0, NULL, NULL) == HF_EFORKED &&
                  hf_once_done(mine, NULL) == HF_EFORKED;

        for (int i = 0; i < WAITING_CALLS; i++) {
            hf_op_cancel(ops[i]);
            ok = ok && hf_op_number(ops[i]) == 0;
            hf_op_free(ops[i]);
        }
        hf_close(c);
        _exit(ok ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int i = 0; i < WAITING_CALLS; i++) {
        hf_op_cancel(ops[i]);
        while (told[i].calls == 0)
            turn(c, 1);
        CHECK(told[i].rc == HF_ECANCELED || (i < 2 && told[i].rc == 0));
        hf_op_free(ops[i]);
    }
    CHECK_RC(hf_once_done(mine, E()), 0);
    hf_close(c);
}

/* ---- a store that does not answer ------------------------------------------------ */

enum { CONNECT_MS = 700 };
enum phase { OPENS, READY, BLOCKED, TRIED, UNBLOCKED };

static atomic_int *phase; /* of the process with the client, and of the case */

static bool no_answer(int rc)
{
    return rc == HF_EUNKNOWN || rc == HF_EUNREACHABLE || rc == HF_EBUSYSTORE;
}

static void ask_while_blocked(void *arg)
{
    hf_client *c = NULL;
    hf_lease *l = NULL;
    int64_t n = 0, kept = 77;
    char url[600];
    int done, rc;

    (void)arg;
    CHECK_RC(hf_open(url_with(CONNECT_MS, url), NULL, &c, E()), 0);
    CHECK_RC(hf_count(c, nm("count"), 1, &n, E()), 0);
    CHECK_RC(hf_latch_set(c, nm("latch"), 3, E()), 0);
    CHECK_RC(hf_once_begin(c, nm("once"), 0, 0, NULL, &l, E()), 0);
    atomic_store(phase, READY);
    AWAIT(*phase == BLOCKED);
    CHECK(no_answer(hf_count(c, nm("count"), 1, &kept, E())));
    CHECK(no_answer(hf_latch_down(c, nm("latch"), 1, &kept, E())));
    CHECK_NUM(kept, ==, 77);
    done = hf_once_done(l, E());
    /* where a hold is lost with its connection, that may be known first */
    CHECK(no_answer(done) || (done == HF_ELOST && (rig.setup->traits & SETUP_DEATH_SOON)));
    CHECK(no_answer(hf_latch_wait(c, nm("latch"), 0, NULL, E())));
    CHECK(no_answer(hf_barrier(c, nm("barrier"), 2, LIMIT_MS, NULL, E())));
    rc = hf_rate(c, nm("rate"), 1, 60000, 0, NULL, E());
    CHECK(no_answer(rc));
    atomic_store(phase, TRIED);
    AWAIT(*phase == UNBLOCKED);
    CHECK_RC(hf_connect(c, LIMIT_MS, E()), 0);
    CHECK_RC(hf_count(c, nm("count"), 1, &n, E()), 0);
    CHECK(n == 2 || n == 3); /* a gap at most */
    CHECK_RC(hf_latch_left(c, nm("latch"), &n, E()), 0);
    CHECK(n == 2 || n == 3);
    rc = hf_once_begin(c, nm("once"), 0, LIMIT_MS, NULL, &l, E());
    CHECK(rc == 0 || (rc == 1 && done == HF_EUNKNOWN));
    if (rc == 0)
        CHECK_RC(hf_once_done(l, E()), 0);
    await_line(c, nm("barrier"), 0, 0);
    await_line(c, nm("once"), 0, 0);
    CHECK_RC(hf_rate(c, nm("rate"), 1, 60000, LIMIT_MS, NULL, E()), 0);
    hf_close(c);
}

static void recipe_unanswered(void)
{
    pid_t pid;

    phase = shared(sizeof *phase);
    pid = proc_start(ask_while_blocked, NULL);
    AWAIT(*phase == READY);
    rig.setup->block(rig.place);
    atomic_store(phase, BLOCKED);
    AWAIT(*phase == TRIED);
    rig.setup->unblock(rig.place);
    atomic_store(phase, UNBLOCKED);
    proc_end(pid);
}

enum {
    ALL_CAPS = HF_CAP_CELL | HF_CAP_LINE | HF_CAP_PERMITS | HF_CAP_KEEP,
};

const struct test_case recipe_cases[] = {
    { "recipe-needs", recipe_needs, ON_ALL, 0, CASE_TOPOLOGY },
    { "recipe-mismatch", recipe_mismatch, ON_ALL, HF_CAP_CELL, 0 },
    { "recipe-arguments", recipe_arguments, ON_ALL, ALL_CAPS, 0 },
    { "recipe-ended-at-any-step", recipe_ended_at_any_step, ON_CALLBACK, ALL_CAPS, 0 },
    { "recipe-closed-over", recipe_closed_over, ON_CALLBACK, ALL_CAPS, 0 },
    { "recipe-stopped", recipe_stopped, ON_ALL, ALL_CAPS, 0 },
    { "recipe-forked", recipe_forked, ON_CALLBACK, ALL_CAPS, 0 },
    { "recipe-unanswered", recipe_unanswered, ON_BLOCKING | ON_CALLBACK, ALL_CAPS,
      CASE_OWN_STORE },
    { NULL, NULL, 0, 0, 0 },
};
