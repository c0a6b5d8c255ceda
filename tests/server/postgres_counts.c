/* postgres_counts.c: what a PostgreSQL server is asked to do, counted by itself: statements
 * (pg_stat_statements), connections, messages, row versions. */
#include "postgres_counts.h"

#include <stdio.h>

enum { PAIRS = 200 };

struct server server;

void begin_with(const char *config)
{
    postgres_init(&server);
    if (config)
        postgres_config(&server, "%s", config);
    postgres_run(&server);
    snprintf(rig.place->url, sizeof(rig.place->url),
             "postgres://holdfast@127.0.0.1:%d/postgres", server.port);
}

static void begin(void)
{
    begin_with(NULL);
}

void end(void)
{
    postgres_remove(&server);
}

int64_t calls(const char *function)
{
    return postgres_number(&server,
                           "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE "
                           "query LIKE 'SELECT%%holdfast.%s(%%'",
                           function);
}

int64_t connections(void)
{
    return postgres_number(&server, "SELECT count(*) FROM pg_stat_activity WHERE "
                                    "application_name = 'holdfast'");
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
    before = postgres_work(&server);
    for (int i = 0; i < PAIRS; i++)
        given(taken(c, nm("n"), req));
    /* besides: the sweep that falls to somebody, and LISTEN when it takes half a second */
    CHECK_NUM(postgres_work(&server) - before, <=, 2 * PAIRS + 4);
    CHECK_NUM(calls("join"), ==, PAIRS + 1);
    CHECK_NUM(calls("leave"), ==, PAIRS + 1);
    CHECK_NUM(connections(), <=, 2);
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
    c = opened();
    d = opened();
    l = taken(c, nm("n"), req);
    CHECK_RC(tried(d, nm("m"), req), 0);
    before = postgres_work(&server);
    for (int i = 0; i < 10; i++)
        CHECK_RC(tried(d, nm("n"), req), HF_EBUSY);
    CHECK_NUM(postgres_work(&server) - before, ==, 10);
    CHECK_NUM(postgres_number(&server, "SELECT count(*) FROM holdfast.ticket"), ==, 1);
    given(l);
    closed(c);
    closed(d);
    end();
}

/* Whoever waits is told, and asks nothing meanwhile. Many waiters: two connections. */
static void waiting(void)
{
    enum { WAITERS = 50 };
    const hf_request *req = HF_REQUEST(.ttl_ms = LONG_MS);
    hf_client *c, *d;
    struct pend *p[WAITERS];
    hf_lease *l;
    int64_t before;

    begin();
    c = opened();
    d = opened();
    l = taken(c, nm("n"), req);
    for (int i = 0; i < WAITERS; i++)
        p[i] = queued(d, nm("n"), (size_t)i + 1, req);
    AWAIT(calls("wait") > 0); /* the look after LISTEN */
    CHECK_NUM(connections(), <=, 4);
    before = calls("wait") + calls("join");
    STAYS(!pend_done(p[0]), 500);
    CHECK_NUM(calls("wait") + calls("join"), ==, before);
    given(l);
    for (int i = 0; i < WAITERS; i++)
        given(pend_granted(p[i]));
    CHECK_NUM(calls("wait") + calls("join"), <=, before + 2); /* grants come by message */
    CHECK_NUM(calls("leave"), ==, WAITERS + 1);
    closed(c);
    closed(d);
    end();
}

/* The row of a line is updated in place: its page has room for the next version. */
static void row_versions(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = LONG_MS);
    hf_client *c;

    begin();
    c = opened();
    for (int i = 0; i < 2 * PAIRS; i++)
        given(taken(c, nm("n"), req));
    closed(c);
    AWAIT(postgres_number(&server,
                          "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname "
                          "= 'line' AND schemaname = 'holdfast'") >= 4 * PAIRS);
    CHECK_NUM(postgres_number(&server, "SELECT 100 * n_tup_hot_upd / n_tup_upd FROM "
                                       "pg_stat_user_tables WHERE relname = 'line' AND "
                                       "schemaname = 'holdfast'"),
              >=, 95);
    CHECK_NUM(postgres_number(&server, "SELECT pg_relation_size('holdfast.line') / 8192"),
              <=, 4);
    end();
}

/* A session that began with empty tables finds its rows by an index when they are full. */
static void plans(void)
{
    hf_client *c;
    char name[32];

    begin();
    c = opened();
    given(taken(c, nm("n"), NULL));
    postgres_do(&server, "VACUUM ANALYZE");
    for (int i = 0; i < PAIRS; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        given(taken(c, nm(name), HF_REQUEST(.ttl_ms = LONG_MS)));
    }
    closed(c);
    AWAIT(postgres_number(&server,
                          "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname "
                          "= 'line' AND schemaname = 'holdfast'") >= 2 * PAIRS);
    CHECK_NUM(postgres_number(&server,
                              "SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE "
                              "relname IN ('line', 'ticket', 'crowd')"),
              <=, PAIRS);
    end();
}

/* What must read a whole table seems dear to a planner that was told to avoid that, and
 * would be compiled, which takes seconds and cannot be interrupted. The compiler is in the
 * server's memory then. */
static void not_compiled(void)
{
    hf_client *c;

    begin();
    c = opened();
    given(taken(c, nm("n"), NULL));
    CHECK_NUM(postgres_number(&server,
                              "SELECT (holdfast.sweep(600000))[1] * 0 + "
                              "position('llvm' IN pg_read_file('/proc/self/maps'))"),
              ==, 0);
    closed(c);
    end();
}

static const struct test_case cases[] = {
    { "a-pair", a_pair, ON_ALL, 0, 0 },
    { "a-try", a_try, ON_ALL, 0, 0 },
    { "waiting", waiting, ON_ALL, 0, 0 },
    { "row-versions", row_versions, ON_ALL, 0, 0 },
    { "plans", plans, ON_ALL, 0, 0 },
    { "not-compiled", not_compiled, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};

extern const struct test_case postgres_crowd_cases[];

const struct test_case *const tables[] = { cases, postgres_crowd_cases, NULL };
