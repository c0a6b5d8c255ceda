/* mysql_counts.c: what a MariaDB server is asked to do, counted by itself: statements and
 * connections. */
#include "crowd.h"
#include "mariadb.h"
#include "waiters.h"

#include <stdio.h>

enum { LONG_MS = 600000, PAIRS = 200 }; /* a ttl of which nothing is renewed meanwhile */

static struct server server;

static void begin(void)
{
    mariadb_begin(&server);
    snprintf(rig.place->url, sizeof(rig.place->url),
             "mysql://holdfast@127.0.0.1:%d/holdfast?connect_timeout=60s", server.port);
}

static void end(void)
{
    server_remove(&server);
}

static int64_t connections(void)
{
    return mariadb_number(&server, "SELECT COUNT(*) FROM information_schema.processlist"
                                   " WHERE user = 'holdfast'");
}

static int64_t connections_ever(void)
{
    return mariadb_number(&server, "SELECT total_connections FROM"
                                   " information_schema.user_statistics"
                                   " WHERE user = 'holdfast'");
}

/* One statement to acquire, one to release, on one connection. */
static void a_pair(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = LONG_MS);
    hf_client *c;
    int64_t before;

    begin();
    c = opened();
    given(taken(c, nm("n"), req));
    before = mariadb_work(&server);
    for (int i = 0; i < PAIRS; i++)
        given(taken(c, nm("n"), req));
    /* besides: the sweep that falls to somebody, and notices every two seconds */
    CHECK_NUM(mariadb_work(&server) - before, >=, 2 * PAIRS);
    CHECK_NUM(mariadb_work(&server) - before, <=, 2 * PAIRS + 10);
    CHECK_NUM(connections(), ==, 1);
    closed(c);
    end();
}

/* A failed try is one statement, and leaves nothing. */
static void a_try(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = LONG_MS);
    hf_client *c, *d;
    hf_lease *l;
    int64_t before;

    begin();
    d = opened();
    CHECK_RC(tried(d, nm("m"), req), 0);
    c = opened();
    l = taken(c, nm("n"), req);
    before = mariadb_work(&server);
    for (int i = 0; i < 10; i++)
        CHECK_RC(tried(d, nm("n"), req), HF_EBUSY);
    CHECK_NUM(mariadb_work(&server) - before, <=, 12); /* the holder may look for notices */
    CHECK_NUM(mariadb_number(&server, "SELECT COUNT(*) FROM " MARIADB_TICKETS), ==, 1);
    given(l);
    closed(c);
    closed(d);
    end();
}

/* Whoever waits is told, and asks nothing meanwhile but for notices. Many waiters on one
 * name: one connection more than the one for commands. */
static void waiting(void)
{
    enum { FEW = 50 };
    const hf_request *req = HF_REQUEST(.ttl_ms = LONG_MS);
    hf_client *c, *d;
    struct pend *p[FEW];
    hf_lease *l;
    int64_t before;

    begin();
    mariadb_do(&server, "SET GLOBAL userstat = 1");
    c = opened();
    d = opened();
    l = taken(c, nm("n"), req);
    for (int i = 0; i < FEW; i++)
        p[i] = queued(d, nm("n"), (size_t)i + 1, req);
    AWAIT(connections() == 3);
    before = mariadb_work(&server);
    STAYS(!pend_done(p[0]), 1000);
    CHECK_NUM(mariadb_work(&server) - before, <=, 3);
    given(l);
    for (int i = 0; i < FEW; i++)
        given(pend_granted(p[i]));
    /* for each one statement to leave; its answer admits the next */
    CHECK_NUM(mariadb_work(&server) - before, <=, FEW + 20);
    CHECK_NUM(connections_ever(), ==, 3);
    closed(c);
    closed(d);
    end();
}

static int64_t disk_tables(void)
{
    return mariadb_number(&server, "SELECT variable_value FROM"
                                   " information_schema.global_status"
                                   " WHERE variable_name = 'CREATED_TMP_DISK_TABLES'");
}

/* A look sorts nothing that the server would put into a file: holders of each kind, and a
 * queue, in their order. */
static void looks(void)
{
    const hf_request *some = HF_REQUEST(.ttl_ms = LONG_MS, .mode = HF_READ, .note = "s");
    const hf_request *all = HF_REQUEST(.ttl_ms = LONG_MS, .note = "x");
    hf_client *c, *d;
    hf_lease *l[3];
    struct pend *p[2];
    int64_t before;

    begin();
    c = opened();
    d = opened();
    l[0] = taken(c, nm("a"), all);
    l[1] = taken(c, nm("b"), some);
    l[2] = taken(d, nm("b"), some);
    p[0] = queued(d, nm("a"), 1, all);
    p[1] = queued(d, nm("b"), 1, all);
    CHECK(line_is(c, nm("a"), 1, 1) && line_is(c, nm("b"), 2, 1));
    before = disk_tables();
    for (int i = 0; i < PAIRS; i++)
        CHECK(line_is(c, nm(i % 2 ? "a" : "b"), i % 2 ? 1 : 2, 1));
    CHECK_NUM(disk_tables() - before, <, PAIRS / 10); /* our own questions make some */
    for (int i = 0; i < 3; i++)
        given(l[i]);
    for (int i = 0; i < 2; i++)
        given(pend_granted(p[i]));
    closed(c);
    closed(d);
    end();
}

/* ---- very many ---------------------------------------------------------------------- */

static int64_t waiters(void)
{
    return mariadb_number(&server, "SELECT COALESCE(SUM(nw), 0) FROM holdfast_line");
}

/* As long as some more come. */
static void drive_until_waiting(int64_t many)
{
    int64_t until = 0, had = -1, n;

    while ((n = waiters()) < many) {
        until = n > had ? now_ms() + LIMIT_MS : until;
        had = n;
        CHECK_NUM(now_ms(), <, until);
        for (int64_t end = now_ms() + 100; now_ms() < end;)
            CHECK(hf_client_wait(one.client, 20) >= 0);
    }
}

static int64_t locks_of_tickets(void)
{
    return mariadb_number(&server,
                          "SELECT COUNT(*) FROM " MARIADB_TICKETS
                          " WHERE IS_USED_LOCK(CONCAT('hf_', HEX(token))) IS NOT NULL");
}

static int64_t rows_read(void)
{
    return mariadb_number(&server, "SELECT SUM(variable_value) FROM"
                                   " information_schema.global_status"
                                   " WHERE variable_name IN ('HANDLER_READ_NEXT',"
                                   " 'HANDLER_READ_PREV')");
}

/* Ten thousand waiters of one process behind another's hold: three connections, and few
 * user locks, through all of which the server goes in every statement. */
static void three_connections(void)
{
    int64_t before, rows, many = rig.all ? 10000 : 1000;
    const hf_request *req = HF_REQUEST(.ttl_ms = LONG_MS);
    hf_client *c;
    hf_lease *l;

    begin();
    c = opened();
    l = taken(c, nm("n"), req);
    one_waits(many, req);
    drive_until_waiting(many);
    AWAIT((hf_client_process(one.client), connections() == 3));
    CHECK_NUM(locks_of_tickets(), >=, 2); /* of the hold, and of the last that waits */
    CHECK_NUM(locks_of_tickets(), <=, many / 10);
    before = mariadb_work(&server);
    rows = rows_read();
    given(l);
    one_until_granted(1);
    one_hands_over(20);
    CHECK_NUM(mariadb_work(&server) - before, <=, 21 + 10); /* notices besides */
    fprintf(stderr, "%lld rows were read\n", (long long)(rows_read() - rows));
    CHECK_NUM(rows_read() - rows, <=, many / 4);
    CHECK_NUM(connections(), ==, 3);
    hf_close(one.client);
    closed(c);
    end();
}

/* Of tickets of one client that stand in a row the last one has a lock. When it leaves, it
 * is the one in front of it: whoever is behind them is still told, and need not look. */
static void last_of_a_row(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = LONG_MS);
    hf_client *a, *b, *c;
    struct pend *first, *second, *third, *behind;
    hf_lease *l;
    int64_t before, since;

    begin();
    a = opened();
    b = opened();
    c = opened();
    l = taken(a, nm("n"), req);
    first = queued(b, nm("n"), 1, req);
    second = queued(b, nm("n"), 2, req);
    third = begun(b, nm("n"), 3000, req);
    AWAIT(waiters() == 3);
    CHECK_NUM(locks_of_tickets(), ==, 2);
    behind = queued(c, nm("n"), 4, req);
    CHECK_NUM(locks_of_tickets(), ==, 3);
    CHECK_RC(pend_end(third, NULL), HF_ETIMEDOUT);
    AWAIT(locks_of_tickets() == 3 && connections() == 5);
    since = now_ms();
    before = mariadb_work(&server);
    STAYS(!pend_done(behind), 3000);
    /* each of the three asks for notices; who looks does so five times a second */
    CHECK_NUM(mariadb_work(&server) - before, <=, 3 + 3 * (now_ms() - since) / 2000);
    given(l);
    given(pend_granted(first));
    given(pend_granted(second));
    given(pend_granted(behind));
    CHECK_NUM(locks_of_tickets(), ==, 0);
    closed(a);
    closed(b);
    closed(c);
    end();
}

/* A hand-off concerns two of them: the others ask for notices only, every two seconds. */
static void fifty_processes(void)
{
    struct crowd k;
    hf_client *looker;
    int64_t before;

    begin();
    mariadb_do(&server, "SET GLOBAL max_connections = 200");
    looker = opened();
    given(taken(looker, nm("first"), NULL)); /* makes the schema */
    crowd_start(&k, HF_REQUEST(.ttl_ms = LONG_MS), 1, looker);
    /* each waits on a second one, but perhaps the holder, if it came next, too */
    AWAIT(connections() >= 2 * PROCESSES);
    before = mariadb_work(&server);
    crowd_hand_over(&k);
    fprintf(stderr, "%d hand-offs: %lld statements\n", HANDS,
            (long long)(mariadb_work(&server) - before));
    crowd_end(&k);
    closed(looker);
    end();
}

/* Beyond eight contended names a client looks from time to time. */
static void many_names(void)
{
    enum { NAMES = 20 };
    const hf_request *req = HF_REQUEST(.ttl_ms = LONG_MS);
    hf_client *c, *d;
    struct pend *p[NAMES];
    hf_lease *l[NAMES];
    char name[32];

    begin();
    c = opened();
    d = opened();
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        l[i] = taken(c, nm(name), req);
        p[i] = queued(d, nm(name), 1, req);
    }
    CHECK_NUM(connections(), <=, 10);
    for (int i = NAMES - 1; i >= 0; i--) {
        given(l[i]);
        given(pend_granted(p[i]));
    }
    closed(c);
    closed(d);
    end();
}

static const struct test_case cases[] = {
    { "a-pair", a_pair, ON_ALL, 0, 0 },
    { "a-try", a_try, ON_ALL, 0, 0 },
    { "waiting", waiting, ON_ALL, 0, 0 },
    { "looks", looks, ON_ALL, 0, 0 },
    { "three-connections", three_connections, ON_ALL, 0, CASE_LONG },
    { "last-of-a-row", last_of_a_row, ON_ALL, 0, 0 },
    { "fifty-processes", fifty_processes, ON_ALL, 0, CASE_LONG },
    { "many-names", many_names, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};

const struct test_case *const tables[] = { cases, NULL };
