/* mysql_counts.c: what a MariaDB server is asked to do, counted by itself: statements and
 * connections. */
#include "mariadb.h"
#include "rig.h"

#include <stdio.h>

enum { LONG_MS = 600000, PAIRS = 200 }; /* a ttl of which nothing is renewed meanwhile */

static struct server server;

static void begin(void)
{
    mariadb_begin(&server);
    snprintf(rig.place->url, sizeof(rig.place->url),
             "mysql://holdfast@127.0.0.1:%d/holdfast", server.port);
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
    CHECK_NUM(mariadb_number(&server, "SELECT COUNT(*) FROM holdfast_ticket"), ==, 1);
    given(l);
    closed(c);
    closed(d);
    end();
}

/* Whoever waits is told, and asks nothing meanwhile but for notices. Many waiters on one
 * name: one connection more than the one for commands. */
static void waiting(void)
{
    enum { WAITERS = 50 };
    const hf_request *req = HF_REQUEST(.ttl_ms = LONG_MS);
    hf_client *c, *d;
    struct pend *p[WAITERS];
    hf_lease *l;
    int64_t before;

    begin();
    mariadb_do(&server, "SET GLOBAL userstat = 1");
    c = opened();
    d = opened();
    l = taken(c, nm("n"), req);
    for (int i = 0; i < WAITERS; i++)
        p[i] = queued(d, nm("n"), (size_t)i + 1, req);
    AWAIT(connections() == 3);
    before = mariadb_work(&server);
    STAYS(!pend_done(p[0]), 1000);
    CHECK_NUM(mariadb_work(&server) - before, <=, 3);
    given(l);
    for (int i = 0; i < WAITERS; i++)
        given(pend_granted(p[i]));
    /* for each one statement to leave; its answer admits the next */
    CHECK_NUM(mariadb_work(&server) - before, <=, WAITERS + 20);
    CHECK_NUM(connections_ever(), ==, 3);
    closed(c);
    closed(d);
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
    { "many-names", many_names, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};

const struct test_case *const tables[] = { cases, NULL };
