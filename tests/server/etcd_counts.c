/* etcd_counts.c: what etcd is asked to do, counted by the server itself (/metrics). */
#include "rig.h"
#include "setup_etcd.h"

#include <holdfast/async.h>
#include <stdio.h>
#include <string.h>

enum { CYCLES = 50, CLIENTS = 5, WAITERS = 4, MOMENT_MS = 40 };

static struct etcd_place *place;

static void start(void)
{
    place = etcd_place_new(1);
    etcd_start_all(place);
    etcd_url(place, rig.place->url, sizeof(rig.place->url), "/counts");
}

/* Messages of clients. */
static int64_t asked(void)
{
    return etcd_number(place, 0, "grpc_server_msg_received_total");
}

static int64_t written(void)
{
    return etcd_number(place, 0, "etcd_debugging_mvcc_put_total") +
           etcd_number(place, 0, "etcd_debugging_mvcc_delete_total");
}

/* Acquire and release: one transaction each. The key of one that is held for longer than a
 * moment is watched: a watch, a read, its end. */
static void cycles(void)
{
    int64_t before, since, slow = 0;
    hf_client *c;

    start();
    c = opened();
    given(taken(c, "n", NULL)); /* connects, and has a lease */
    before = asked();
    for (int i = 0; i < CYCLES; i++) {
        since = now_ms();
        given(taken(c, "n", NULL));
        slow += now_ms() - since >= MOMENT_MS;
    }
    CHECK_NUM(asked() - before, >=, 2 * CYCLES);
    CHECK_NUM(asked() - before, <=, 2 * CYCLES + 3 * slow);
    closed(c);
    etcd_place_stop(place);
}

/* A try that fails is one transaction that writes nothing; one that succeeds is one, too.
 */
static void tries(void)
{
    hf_client *a, *b;
    int64_t before, since, puts;
    hf_lease *l;

    start();
    a = prompted();
    b = opened();
    given(taken(b, "n", NULL));
    l = taken(a, "n", NULL);
    STAYS(hf_lease_check(l) == 0, 300); /* its own key is watched by now */
    before = asked();
    puts = written();
    for (int i = 0; i < CYCLES; i++)
        CHECK_RC(tried(b, "n", NULL), HF_EBUSY);
    CHECK_NUM(asked() - before, ==, CYCLES);
    CHECK_NUM(written(), ==, puts);
    given(l);
    before = asked();
    since = now_ms();
    CHECK_RC(tried(b, "n", NULL), 0); /* and given back */
    CHECK_NUM(asked() - before, <=, now_ms() - since < MOMENT_MS ? 2 : 5);
    closed(a);
    closed(b);
    etcd_place_stop(place);
}

/* Events of watches that the server has sent. */
static int64_t events(void)
{
    return etcd_number(place, 0, "etcd_debugging_mvcc_events_total");
}

/* Of many that wait in many clients a hand-off is told to two at most: who held, of its own
 * key, and who is next. */
static void one_is_woken(void)
{
    hf_client *c[CLIENTS], *a;
    struct pend *p[CLIENTS * WAITERS];
    hf_lease *l;
    int64_t before;
    size_t n = 0;

    start();
    a = opened();
    l = taken(a, "n", NULL);
    for (int i = 0; i < CLIENTS; i++)
        c[i] = prompted();
    for (int k = 0; k < WAITERS; k++)
        for (int i = 0; i < CLIENTS; i++, n++)
            p[n] = queued(c[i], "n", n + 1, NULL);
    for (size_t i = 0; i < n; i++) {
        before = events();
        given(l);
        l = pend_granted(p[i]);
        CHECK_NUM(events() - before, <=, 2);
    }
    given(l);
    for (int i = 0; i < CLIENTS; i++)
        closed(c[i]);
    closed(a);
    etcd_place_stop(place);
}

/* ---- order ----------------------------------------------------------------------- */

enum { JOINS = 200 };

static int next_join;

static void granted(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    (void)op;
    (void)err;
    CHECK_RC(rc, 0);
    CHECK_NUM((int)(intptr_t)user, ==, next_join);
    next_join++;
    CHECK_RC(hf_release_start(l, NULL, NULL, NULL, E()), 0);
}

/* The server executes the calls of one connection in any order: who joins first stands
 * first all the same. */
static void joins_in_order(void)
{
    hf_client *c = NULL;
    hf_op *op[JOINS];

    start();
    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    for (intptr_t i = 0; i < JOINS; i++)
        CHECK_RC(
            hf_acquire_start(c, "n", HF_FOREVER, NULL, granted, (void *)i, &op[i], E()), 0);
    while (next_join < JOINS)
        CHECK(hf_client_wait(c, 1000) >= 0);
    for (int i = 0; i < JOINS; i++)
        hf_op_free(op[i]);
    hf_close(c);
    etcd_place_stop(place);
}

static const struct test_case cases[] = {
    { "cycles", cycles, ON_BLOCKING, 0, 0 },
    { "tries", tries, ON_BLOCKING, 0, 0 },
    { "one-is-woken", one_is_woken, ON_BLOCKING, 0, 0 },
    { "joins-in-order", joins_in_order, ON_BLOCKING, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};

const struct test_case *const tables[] = { cases, NULL };
