/* etcd_counts.c: what etcd is asked to do, counted by the server itself (/metrics); and the
 * command on it. */
#include "crowd.h"
#include "rows.h"
#include "setup_etcd.h"

#include <holdfast/async.h>
#include <stdio.h>
#include <string.h>

enum { CYCLES = 50, MOMENT_MS = 40 };

static struct etcd_place *place;

static void start(const char *params)
{
    char tail[64];

    place = etcd_place_new(1);
    etcd_start_all(place);
    snprintf(tail, sizeof(tail), "/counts%s", params);
    etcd_url(place, rig.place->url, sizeof(rig.place->url), tail);
}

/* Messages of clients. */
static int64_t asked(void)
{
    return etcd_number(place, 0, "grpc_server_msg_received_total");
}

static int64_t written(void)
{
    return etcd_number(place, 0, "etcd_mvcc_put_total") +
           etcd_number(place, 0, "etcd_mvcc_delete_total");
}

/* Acquire and release: one transaction each. The key of one that is held for longer than a
 * moment is watched: a watch, a read, its end. */
static void cycles(void)
{
    int64_t before, since, slow = 0;
    hf_client *c;

    start("");
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

/* Until hardly anything is asked for any more: all that is to be watched is, and what is
 * not to be is not. */
static void settle(int64_t most)
{
    int64_t before, after = asked();

    do {
        before = after;
        STAYS(true, 200);
        after = asked();
    } while (after > before + most);
}

/* A try that fails is one transaction that writes nothing; one that succeeds is one, too.
 */
static void tries(void)
{
    hf_client *a, *b;
    int64_t before, since, puts;
    hf_lease *l;

    start("");
    a = prompted();
    b = opened();
    given(taken(b, "n", NULL));
    l = taken(a, "n", NULL);
    STAYS(hf_lease_check(l) == 0, 300);
    settle(0); /* its own key is watched by now */
    before = asked();
    puts = written();
    for (int i = 0; i < CYCLES; i++)
        CHECK_RC(tried(b, "n", NULL), HF_EBUSY);
    CHECK_NUM(asked() - before, ==, CYCLES);
    CHECK_NUM(written(), ==, puts);
    given(l);
    settle(0); /* its watch is ended by a message of its own */
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

enum {
    PERMITS = 3,
    THIRD_MS = 20000, /* of the ttl */
    OWN = 3           /* messages of a client by itself in a third, at most */
};

/* Between two clients the end of the holder's key says all that the next one must know. */
static void handed_unread(void)
{
    static const char reads[] = "grpc_server_started_total{grpc_method=\"Range\"";
    hf_client *a, *b;
    struct pend *p;
    int64_t before;
    hf_lease *l;

    start("?ttl=60s");
    a = prompted();
    b = prompted();
    l = taken(a, "n", NULL);
    p = queued(b, "n", 1, NULL);
    settle(10);
    before = etcd_number(place, 0, reads);
    CHECK_NUM(before, >, 0); /* they are counted */
    given(l);
    l = pend_granted(p);
    CHECK_NUM(etcd_number(place, 0, reads), ==, before);
    given(l);
    closed(a);
    closed(b);
    etcd_place_stop(place);
}

static void hand_over(const hf_request *req, size_t holders, int64_t most_events,
                      int64_t most_messages)
{
    int64_t told, messages, puts, since, own;
    hf_client *looker;
    struct crowd k;

    start("?ttl=60s");
    looker = opened();
    crowd_start(&k, req, holders, looker);
    settle(10);
    told = events();
    messages = asked();
    puts = written();
    since = now_ms();
    crowd_hand_over(&k);
    settle(10);
    told = events() - told;
    messages = asked() - messages;
    puts = written() - puts;
    own = (int64_t)OWN * PROCESSES * (1 + (now_ms() - since) / THIRD_MS);
    printf("# per hand-off: %.1f events, %.1f messages, %.1f writes; by itself %.1f\n",
           (double)told / HANDS, (double)messages / HANDS, (double)puts / HANDS,
           (double)own / HANDS);
    CHECK_NUM(told, >=, HANDS); /* they are counted */
    CHECK_NUM(told, <=, most_events * HANDS);
    CHECK_NUM(messages, <=, most_messages * HANDS + own);
    CHECK_NUM(puts, ==, HANDS);
    CHECK_NUM(etcd_number(place, 0, "etcd_debugging_mvcc_watch_stream_total"), <=,
              PROCESSES + 1); /* one of each client, and of the looker */
    crowd_end(&k);
    closed(looker);
    etcd_place_stop(place);
}

/* Told are two at most: who held, of its own key, and who is next. The release is a
 * transaction, and a watch is ended; the next one looks at what stands before it, and at
 * its own key. */
static void one_is_woken(void)
{
    hand_over(NULL, 1, 2, 5);
}

/* Who held, and those whose places its ticket fills; now and then one more, which has not
 * heard of the hand-off before. */
static void few_are_woken(void)
{
    hand_over(HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = PERMITS), PERMITS,
              2 * PERMITS, 4 * PERMITS);
}

enum { MANY_PERMITS = 100, BEHIND = 200 };

static void not_granted(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    (void)op;
    (void)err;
    (void)user;
    CHECK(rc < 0 && !l);
}

/* Where a ticket waits for more than a few, its client watches the line itself. Whoever
 * joins behind all that it knows concerns nobody: the line is not read for each of them. */
static void joins_behind(void)
{
    const hf_request *req =
        HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = MANY_PERMITS);
    static const char sent[] = "etcd_network_client_grpc_sent_bytes_total";
    hf_client *holder, *c = NULL;
    hf_lease *held[MANY_PERMITS];
    hf_op *op[BEHIND];
    int64_t bytes, puts, until;

    start("?ttl=60s");
    holder = opened();
    for (int i = 0; i < MANY_PERMITS; i++)
        held[i] = taken(holder, "n", req);
    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    bytes = etcd_number(place, 0, sent);
    puts = written();
    for (int i = 0; i < BEHIND; i++)
        CHECK_RC(hf_acquire_start(c, "n", HF_FOREVER, req, not_granted, NULL, &op[i], E()),
                 0);
    AWAIT(hf_client_wait(c, 1) >= 0 && written() >= puts + BEHIND);
    for (until = now_ms() + 300; now_ms() < until;) /* what follows from that */
        CHECK(hf_client_wait(c, 10) >= 0);
    bytes = etcd_number(place, 0, sent) - bytes;
    printf("# %lld bytes for each join\n", (long long)bytes / BEHIND);
    CHECK_NUM(bytes / BEHIND, <, 20000);
    CHECK(line_is(holder, "n", MANY_PERMITS, BEHIND));
    for (int i = 0; i < BEHIND; i++)
        hf_op_free(op[i]);
    hf_close(c);
    for (int i = 0; i < MANY_PERMITS; i++)
        given(held[i]);
    closed(holder);
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

    start("");
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

/* ---- the command ----------------------------------------------------------------- */

#ifdef HOLDFAST
/* Every case of `holdfast bench` gives its rows, with the raw limit beside them. */
static void bench_rows(void)
{
    start("?ttl=20s");
    rows_of(rig.place->url, "etcd", "uncontended inflight contended hand-off");
    etcd_place_stop(place);
}

static void verbs(void)
{
    start("?ttl=8s");
    verbs_on(rig.place->url);
    etcd_place_stop(place);
}
#endif

static const struct test_case cases[] = {
    { "cycles", cycles, ON_BLOCKING, 0, 0 },
    { "tries", tries, ON_BLOCKING, 0, 0 },
    { "handed-unread", handed_unread, ON_BLOCKING, 0, 0 },
    { "one-is-woken", one_is_woken, ON_BLOCKING, 0, CASE_LONG },
    { "few-are-woken", few_are_woken, ON_BLOCKING, 0, CASE_LONG },
    { "joins-behind", joins_behind, ON_BLOCKING, 0, 0 },
    { "joins-in-order", joins_in_order, ON_BLOCKING, 0, 0 },
#ifdef HOLDFAST
    { "verbs", verbs, ON_BLOCKING, 0, CASE_LONG },
    { "bench-rows", bench_rows, ON_BLOCKING, 0, CASE_LONG },
#endif
    { NULL, NULL, 0, 0, 0 },
};

const struct test_case *const tables[] = { cases, NULL };
