/* cell.c: one small durable record per name beside its line: compare-and-put, add,
 * expiry, follow. Versions only grow, also over removal and expiry, so that an old
 * comparison can never succeed by chance. Cells are internal, so this file alone looks
 * below the headers.
 */
#include "api/cell.h"
#include "rig.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { ADDERS = 8, ADDS = 100, SHORT_MS = 2000 };

static struct cell cell_of(enum cell_verb verb, const char *name)
{
    struct cell c;

    memset(&c, 0, sizeof(c));
    c.verb = verb;
    c.name = name;
    c.name_len = strlen(name);
    return c;
}

static int put(hf_client *c, const char *name, const char *value, uint64_t if_version,
               int64_t ttl_ms, struct cell *ret)
{
    *ret = cell_of(CELL_PUT, name);
    ret->if_version = if_version;
    ret->ttl_ms = ttl_ms;
    ret->value_len = strlen(value);
    memcpy(ret->value, value, ret->value_len);
    return hf__cell_call(c, ret, E());
}

static struct cell got(hf_client *c, const char *name)
{
    struct cell cell = cell_of(CELL_GET, name);

    CHECK_RC(hf__cell_call(c, &cell, E()), 0);
    return cell;
}

static bool holds(const struct cell *cell, const char *value)
{
    return cell->version && cell->value_len == strlen(value) &&
           memcmp(cell->value, value, cell->value_len) == 0;
}

static void cell_compare_and_put(void)
{
    hf_client *a = opened(), *b = opened();
    const char *name = nm("n");
    struct cell cell = got(a, name), del = cell_of(CELL_DEL, name);
    hf_lease *l = taken(b, name, NULL); /* the line beside it is another thing */
    uint64_t first, second;

    CHECK_NUM(cell.version, ==, 0);
    CHECK_RC(put(a, name, "one", 0, 0, &cell), 0);
    first = cell.version;
    CHECK(first > 0);
    CHECK_RC(put(b, name, "other", 0, 0, &cell), HF_EBUSY);
    CHECK(holds(&cell, "one") && cell.version == first); /* it says what is there */
    CHECK_RC(put(b, name, "two", first, 0, &cell), 0);
    second = cell.version;
    CHECK(second > first);
    CHECK_RC(put(a, name, "late", first, 0, &cell), HF_EBUSY);
    CHECK(holds(&cell, "two"));
    del.if_version = first;
    CHECK_RC(hf__cell_call(a, &del, E()), HF_EBUSY);
    cell = got(a, name);
    CHECK(holds(&cell, "two") && cell.version == second);
    del = cell_of(CELL_DEL, name);
    del.if_version = second;
    CHECK_RC(hf__cell_call(a, &del, E()), 0);
    CHECK_NUM(got(b, name).version, ==, 0);
    CHECK_RC(put(a, name, "late", second, 0, &cell), HF_EBUSY);
    CHECK_RC(put(a, name, "three", 0, 0, &cell), 0);
    CHECK(cell.version > second);
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    cell = got(b, name);
    CHECK(holds(&cell, "three"));
    closed(a);
    closed(b);
}

static void cell_any_bytes(void)
{
    hf_client *c = opened();
    struct cell cell = cell_of(CELL_PUT, nm("n")), seen;

    cell.if_any = true;
    cell.value_len = HF_CELL_MAX;
    for (size_t i = 0; i < HF_CELL_MAX; i++)
        cell.value[i] = (unsigned char)i;
    CHECK_RC(hf__cell_call(c, &cell, E()), 0);
    seen = got(c, nm("n"));
    CHECK(seen.version == cell.version && seen.value_len == HF_CELL_MAX);
    CHECK(memcmp(seen.value, cell.value, HF_CELL_MAX) == 0);
    cell.value_len = 0;
    CHECK_RC(hf__cell_call(c, &cell, E()), 0); /* if_any: whatever is there */
    seen = got(c, nm("n"));
    CHECK(seen.version > 0 && seen.version == cell.version && seen.value_len == 0);
    closed(c);
}

static atomic_int *numbers; /* how often each sum was given out */

static void add_often(void *arg)
{
    hf_client *c = opened();

    for (int i = 0; i < ADDS; i++) {
        struct cell cell = cell_of(CELL_ADD, arg);

        cell.add = 1;
        CHECK_RC(hf__cell_call(c, &cell, E()), 0);
        CHECK(cell.number >= 1 && cell.number <= ADDERS * ADDS);
        atomic_fetch_add(&numbers[cell.number], 1);
    }
    closed(c);
}

static void cell_add(void)
{
    static char name[640];
    size_t size = (ADDERS * ADDS + 1) * sizeof(*numbers);
    pid_t pids[ADDERS];
    struct cell cell;
    hf_client *c;

    strcpy(name, nm("n"));
    numbers = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(numbers != MAP_FAILED);
    for (int i = 0; i < ADDERS; i++)
        pids[i] = proc_start(add_often, name);
    for (int i = 0; i < ADDERS; i++)
        proc_end(pids[i]);
    for (int i = 1; i <= ADDERS * ADDS; i++)
        CHECK_NUM(numbers[i], ==, 1); /* none lost, none twice */
    c = opened();
    cell = cell_of(CELL_ADD, name);
    cell.add = -10;
    CHECK_RC(hf__cell_call(c, &cell, E()), 0);
    CHECK_NUM(cell.number, ==, ADDERS * ADDS - 10);
    closed(c);
}

static void cell_expiry(void)
{
    hf_client *c = opened();
    int64_t start = now_ms();
    struct cell cell, add = cell_of(CELL_ADD, nm("sum"));
    uint64_t version;

    CHECK_RC(put(c, nm("n"), "soon gone", 0, SHORT_MS, &cell), 0);
    version = cell.version;
    cell = got(c, nm("n"));
    CHECK(holds(&cell, "soon gone"));
    AWAIT(got(c, nm("n")).version == 0);
    CHECK_NUM(now_ms() - start, >=, SHORT_MS);
    CHECK_RC(put(c, nm("n"), "again", version, 0, &cell), HF_EBUSY);
    CHECK_RC(put(c, nm("n"), "again", 0, 0, &cell), 0);
    CHECK(cell.version > version);
    add.add = 5;
    add.ttl_ms = SHORT_MS;
    CHECK_RC(hf__cell_call(c, &add, E()), 0);
    CHECK_NUM(add.number, ==, 5);
    AWAIT(got(c, nm("sum")).version == 0);
    add.ttl_ms = 0;
    CHECK_RC(hf__cell_call(c, &add, E()), 0);
    CHECK_NUM(add.number, ==, 5); /* from nothing once more */
    closed(c);
}

struct follower {
    atomic_int calls;
    atomic_ullong version;
    atomic_char first; /* of the value; 0: none */
};

static void on_seen(struct cell *cell, int rc, void *user)
{
    struct follower *f = user;

    CHECK_RC(rc, 0);
    atomic_store(&f->first, cell->version && cell->value_len ? (char)cell->value[0] : 0);
    atomic_store(&f->version, cell->version);
    atomic_fetch_add(&f->calls, 1);
}

static void cell_follow(void)
{
    hf_client *a = opened(), *b = opened();
    struct follower f = { 0 };
    struct cell followed = cell_of(CELL_GET, nm("n")), cell,
                del = cell_of(CELL_DEL, nm("n"));
    hf_op *op = NULL;
    int calls;

    CHECK_RC(hf__cell_follow(a, &followed, on_seen, &f, &op, E()), 0);
    AWAIT(f.calls >= 1);
    CHECK(f.version == 0);
    CHECK_RC(put(b, nm("n"), "x", 0, 0, &cell), 0); /* another client */
    AWAIT(f.version == cell.version && f.first == 'x');
    CHECK_RC(put(a, nm("n"), "y", cell.version, 0, &cell), 0); /* the same */
    AWAIT(f.version == cell.version && f.first == 'y');
    CHECK_RC(put(b, nm("m"), "z", 0, 0, &cell), 0); /* another name: not told */
    del.if_any = true;
    CHECK_RC(hf__cell_call(b, &del, E()), 0);
    AWAIT(f.version == 0 && f.first == 0);
    hf_op_free(op);
    calls = f.calls;
    CHECK_RC(put(b, nm("n"), "w", 0, 0, &cell), 0);
    STAYS(f.calls == calls, 200);
    closed(a);
    closed(b);
}

static void cell_ttl_limits(void)
{
    hf_client *c = opened();
    struct cell cell;

    CHECK_RC(put(c, nm("n"), "x", 0, INT64_MAX, &cell), HF_ENOTSUP);
    CHECK(strstr(last_error()->text, "this store takes "));
    CHECK_NUM(got(c, nm("n")).version, ==, 0);
    CHECK_RC(put(c, nm("n"), "x", 0, (int64_t)365 * 24 * 3600 * 1000, &cell), 0);
    closed(c);
}

const struct test_case cell_cases[] = {
    { "cell-compare-and-put", cell_compare_and_put, ON_ALL, HF_CAP_CELL, CASE_TOPOLOGY },
    { "cell-any-bytes", cell_any_bytes, ON_ALL, HF_CAP_CELL, 0 },
    { "cell-add", cell_add, ON_ALL, HF_CAP_CELL, CASE_TOPOLOGY },
    { "cell-ttl-limits", cell_ttl_limits, ON_ALL, HF_CAP_CELL | HF_CAP_CELL_EXPIRY, 0 },
    { "cell-expiry", cell_expiry, ON_ALL, HF_CAP_CELL | HF_CAP_CELL_EXPIRY, 0 },
    { "cell-follow", cell_follow, ON_ASYNC, HF_CAP_CELL, CASE_TOPOLOGY },
    { NULL, NULL, 0, 0, 0 },
};
