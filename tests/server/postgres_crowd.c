/* postgres_crowd.c: what a PostgreSQL server has to do, and to keep, when very many come:
 * ten thousand waiters of one process, fifty processes on one name, a million pairs, and a
 * client that comes back after a long rest. */
#include "postgres_counts.h"
#include "waiters.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t waiting(void)
{
    return postgres_number(&server, "SELECT coalesce(sum(nw), 0) FROM holdfast.line");
}

/* ---- ten thousand waiters of one process ------------------------------------------ */

enum { WAITERS = 1000, MOST_WAITERS = 10000 };

/* Two connections, and a hand-off is one statement. */
static void two_connections(void)
{
    int64_t before, waiters = rig.all ? MOST_WAITERS : WAITERS;

    begin_with(NULL);
    one_waits(waiters + 1, HF_REQUEST(.ttl_ms = LONG_MS));
    one_until_granted(1);
    AWAIT((hf_client_process(one.client), calls("wait") > 0 && waiting() == waiters));
    CHECK_NUM(connections(), ==, 2);
    before = calls("wait") + calls("join") + calls("leave");
    one_hands_over(20);
    /* one look may fall between: of the first waiter, when the hold ahead of it ends */
    CHECK_NUM(calls("wait") + calls("join") + calls("leave") - before, <=, 20 + 2);
    CHECK_NUM(connections(), ==, 2);
    hf_close(one.client);
    end();
}

/* ---- fifty processes ---------------------------------------------------------------- */

enum { PROCESSES = 50, EACH = 10, HANDS = 100 };

struct crowd {   /* pipes between the processes */
    int told[2]; /* a byte for each grant */
    int next[2]; /* a byte in it: whoever holds and reads it releases */
    int end[2];  /* readable when all is over */
};

static const struct crowd *crowd;

static void on_turn(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    one_granted(op, rc, l, err, user);
    if (rc == 0)
        CHECK_NUM(write(crowd->told[1], "", 1), ==, 1);
}

static void stand_in_line(void *arg)
{
    hf_op *op;
    char byte;

    crowd = arg;
    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &one.client, E()),
             0);
    for (int i = 0; i < EACH; i++)
        CHECK_RC(hf_acquire_start(one.client, nm("n"), HF_FOREVER,
                                  HF_REQUEST(.ttl_ms = LONG_MS), on_turn, NULL, &op, E()),
                 0);
    for (;;) {
        struct pollfd p[] = { { .fd = hf_client_fd(one.client), .events = POLLIN },
                              { .fd = crowd->end[0], .events = POLLIN },
                              { .fd = one.held ? crowd->next[0] : -1, .events = POLLIN } };

        CHECK_NUM(poll(p, 3, -1), >, 0);
        if (p[1].revents)
            break;
        if (p[2].revents && read(crowd->next[0], &byte, 1) == 1) {
            CHECK_RC(hf_release_start(one.held, NULL, NULL, NULL, E()), 0);
            one.held = NULL;
        }
        CHECK(hf_client_process(one.client) >= 0);
    }
    hf_close(one.client);
}

static void await_grant(const struct crowd *k)
{
    struct pollfd p = { .fd = k->told[0], .events = POLLIN };
    char byte;

    CHECK_NUM(poll(&p, 1, (int)LIMIT_MS), ==, 1);
    CHECK_NUM(read(k->told[0], &byte, 1), ==, 1);
}

/* A hand-off concerns two of them: the others ask nothing. */
static void fifty_processes(void)
{
    struct crowd k;
    pid_t pids[PROCESSES];
    int64_t looks, before;

    begin_with("max_connections = 150");
    CHECK(pipe(k.told) == 0 && pipe(k.next) == 0 && pipe(k.end) == 0);
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = proc_start(stand_in_line, &k);
    await_grant(&k);
    AWAIT(postgres_number(&server,
                          "SELECT (to_regclass('holdfast.line') IS NOT NULL)::int") &&
          waiting() == PROCESSES * EACH - 1);
    do { /* each has looked when it began to listen */
        looks = calls("wait");
        STAYS(true, 300);
    } while (calls("wait") != looks || looks < PROCESSES);
    CHECK_NUM(connections(), ==, 2 * PROCESSES);
    before = postgres_work(&server);
    for (int i = 0; i < HANDS; i++) {
        CHECK_NUM(write(k.next[1], "", 1), ==, 1);
        await_grant(&k);
    }
    CHECK_NUM(calls("leave"), ==, HANDS);
    /* besides the releases: sweeps, and looks at the end of the hold ahead */
    CHECK_NUM(postgres_work(&server) - before, <=, HANDS + HANDS / 10);
    CHECK_NUM(write(k.end[1], "", 1), ==, 1);
    for (int i = 0; i < PROCESSES; i++)
        proc_end(pids[i]);
    end();
}

/* ---- a million pairs ------------------------------------------------------------------ */

enum { FLYING = 64 };

struct flight {
    char name[32];
    hf_lease *lease;
};

static struct {
    struct flight all[FLYING];
    int64_t pairs, most;
    int flying;
} air;

static void take_off(struct flight *);

static void on_landed(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    (void)l;
    (void)err;
    hf_op_free(op);
    CHECK_RC(rc, 0);
    air.pairs++;
    air.flying--;
    take_off(user);
}

static void on_aloft(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    (void)err;
    hf_op_free(op);
    CHECK_RC(rc, 0);
    CHECK_RC(hf_release_start(l, on_landed, user, &op, E()), 0);
}

static void take_off(struct flight *f)
{
    hf_op *op;

    if (air.pairs + air.flying >= air.most)
        return;
    air.flying++;
    CHECK_RC(hf_acquire_start(one.client, f->name, HF_FOREVER,
                              HF_REQUEST(.ttl_ms = LONG_MS), on_aloft, f, &op, E()),
             0);
}

/* So many pairs more; returns how large the tables and their indexes are then. */
static int64_t after_pairs(int64_t n)
{
    air.most += n;
    for (int i = 0; i < FLYING; i++)
        take_off(&air.all[i]);
    while (air.flying > 0)
        CHECK(hf_client_wait(one.client, 1000) >= 0);
    return postgres_number(&server,
                           "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c"
                           " WHERE c.relnamespace = 'holdfast'::regnamespace AND"
                           " c.relkind = 'r'");
}

/* The tables become as large as the server lets them between two cleanings, and no larger.
 */
static void tables_stay_small(void)
{
    int64_t pairs = rig.all ? 1000000 : 2000, early, late;

    /* nothing here depends on the disk, and a million pairs do take their time */
    begin_with("autovacuum_naptime = 1s\nfsync = off");
    strcat(rig.place->url, "?connect_timeout=60s"); /* a busy machine may pause */
    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &one.client, E()),
             0);
    for (int i = 0; i < FLYING; i++)
        snprintf(air.all[i].name, sizeof(air.all[i].name), "n%d", i);
    early = after_pairs(pairs / 5);
    late = after_pairs(pairs - pairs / 5);
    hf_close(one.client);
    fprintf(stderr, "%lld pairs: %lld KiB, then %lld KiB\n", (long long)pairs,
            (long long)early / 1024, (long long)late / 1024);
    CHECK_NUM(late, <=, early + early / 2 + (1 << 20));
    AWAIT(postgres_number(&server,
                          "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname "
                          "= 'line' AND schemaname = 'holdfast'") >= 2 * pairs);
    CHECK_NUM(postgres_number(&server, "SELECT 100 * n_tup_hot_upd / n_tup_upd FROM "
                                       "pg_stat_user_tables WHERE relname = 'line' AND "
                                       "schemaname = 'holdfast'"),
              >=, 95);
    end();
}

/* Clients that followed a name, and went, leave nothing behind while the name is in use. */
static void followers_go(void)
{
    hf_client *c;

    begin_with(NULL);
    c = opened();
    given(taken(c, nm("n"), NULL));
    for (int i = 0; i < 10; i++) {
        postgres_do(&server,
                    "SELECT count(*) FROM holdfast.look('', convert_to('%s', 'UTF8'),"
                    " decode('%016x', 'hex'), 1, '', 1)",
                    nm("n"), i);
        STAYS(true, 5);
    }
    CHECK_NUM(postgres_number(&server, "SELECT count(*) FROM holdfast.follow"), <=, 1);
    closed(c);
    end();
}

/* ---- a long rest ------------------------------------------------------------------------ */

/* Nothing was sent meanwhile, and nothing is to be made up for. */
static void idle_acquire(void)
{
    hf_client *c;
    int64_t before, sweeps;

    begin_with(NULL);
    c = opened();
    given(taken(c, nm("n"), NULL));
    before = postgres_work(&server);
    STAYS(true, 3000);
    CHECK_NUM(postgres_work(&server) - before, <=, 3); /* LISTEN and its test */
    before = postgres_work(&server);
    sweeps = calls("sweep");
    given(taken(c, nm("n"), NULL));
    CHECK_NUM(postgres_work(&server) - before - (calls("sweep") - sweeps), ==, 2);
    closed(c);
    end();
}

/* The server has ended the session: a greeting, and the same. */
static void idle_and_ended(void)
{
    hf_client *c;
    int64_t before;

    begin_with("idle_session_timeout = 500");
    c = opened();
    given(taken(c, nm("n"), NULL));
    AWAIT(connections() == 0);
    before = postgres_work(&server);
    given(taken(c, nm("n"), NULL));
    CHECK_NUM(postgres_work(&server) - before, <=, 2 + 6);
    closed(c);
    end();
}

const struct test_case postgres_crowd_cases[] = {
    { "two-connections", two_connections, ON_ALL, 0, CASE_LONG },
    { "fifty-processes", fifty_processes, ON_ALL, 0, CASE_LONG },
    { "tables-stay-small", tables_stay_small, ON_ALL, 0, CASE_LONG },
    { "followers-go", followers_go, ON_ALL, 0, 0 },
    { "idle-acquire", idle_acquire, ON_ALL, 0, 0 },
    { "idle-and-ended", idle_and_ended, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
