/* mysql_fault.c: what goes wrong with MariaDB, one case each.
 *
 *     fault-mysql [--face blocking|callback|foreign] [--jobs N] [--list] [--verbose]
 *     [CASE...]
 *
 * Each case starts the server it breaks, in its own process. */
#include "broken.h"
#include "mariadb.h"
#include "proxy.h"
#include "rig.h"

#include <holdfast/recipes.h>
#include <holdfast/tool.h>
#include <mysql.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHORT_MS = TEST_SANITIZED ? 6000 : 3000 }; /* a ttl that ends within a test */

static struct server server;
static struct proxy *proxy;

static void set_url(int port, const char *params)
{
    snprintf(rig.place->url, sizeof(rig.place->url),
             "mysql://holdfast@127.0.0.1:%d/holdfast%s", port, params);
}

static hf_client *opened_at(const char *url)
{
    hf_client *c = NULL;

    CHECK_RC(rig.face->open(url, NULL, &c, E()), 0);
    return c;
}

static hf_client *opened_directly(void)
{
    char url[128];

    snprintf(url, sizeof(url), "mysql://holdfast@127.0.0.1:%d/holdfast", server.port);
    return opened_at(url);
}

static void use_server(const char *params)
{
    mariadb_run(&server);
    set_url(server.port, params);
}

static void use_plain_server(const char *params)
{
    mariadb_make(&server);
    use_server(params);
}

/* The schema is there: making it takes longer than the time-outs here. */
static void use_proxied_server(const char *params)
{
    hf_client *c;

    mariadb_begin(&server);
    c = opened_directly();
    given(taken(c, nm("first"), NULL));
    closed(c);
    proxy = proxy_new(server.port);
    set_url(proxy_port(proxy), params);
}

static void done(void)
{
    if (proxy)
        proxy_free(proxy);
    server_remove(&server);
}

static int64_t tickets(void)
{
    return mariadb_number(&server, "SELECT COUNT(*) FROM holdfast_ticket");
}

/* The counts of every line are those of its tickets, as schema.sql says. */
static bool lines_whole(void)
{
    return mariadb_number(&server,
                          "SELECT COUNT(*) FROM holdfast_line l LEFT JOIN (SELECT line,"
                          " SUM(state = 1) n, SUM(state = 0) nw,"
                          " SUM(IF(state = 1, weight, 0)) total,"
                          " MIN(IF(state = 1, expiry, NULL)) soonest"
                          " FROM holdfast_ticket GROUP BY line) t ON t.line = l.id"
                          " WHERE l.n <> COALESCE(t.n, 0) OR l.nw <> COALESCE(t.nw, 0)"
                          " OR l.total <> COALESCE(t.total, 0) OR l.soonest > t.soonest"
                          " OR (l.n > 0 AND l.total > l.cap)") == 0;
}

/* Sessions of the library: KILL CONNECTION, or KILL QUERY. Returns how many. */
static int64_t kill_all(const char *what, const char *condition)
{
    return mariadb_number(&server,
                          "BEGIN NOT ATOMIC DECLARE n INT DEFAULT 0;"
                          " FOR p IN (SELECT id FROM information_schema.processlist"
                          "  WHERE user = 'holdfast' %s) DO"
                          "  BEGIN DECLARE CONTINUE HANDLER FOR 1094 BEGIN END;"
                          "   EXECUTE IMMEDIATE CONCAT('KILL %s ', p.id); SET n = n + 1;"
                          "  END; END FOR; SELECT n; END",
                          condition, what);
}

static int64_t status_of(const char *name)
{
    return mariadb_number(&server,
                          "SELECT variable_value FROM information_schema.global_status"
                          " WHERE variable_name = '%s'",
                          name);
}

static int64_t waiting_for_rows(void)
{
    return status_of("INNODB_ROW_LOCK_CURRENT_WAITS");
}

static MYSQL *lock_line(void)
{
    MYSQL *c = mysql_init(NULL);

    CHECK(mysql_real_connect(c, NULL, "root", "", "holdfast", 0, server.socket, 0));
    CHECK(mysql_query(c, "START TRANSACTION") == 0);
    CHECK(mysql_query(
              c, "UPDATE holdfast_line SET kind = kind + 0, touched = touched + 1") == 0);
    return c;
}

static void unlock_line(MYSQL *c)
{
    CHECK(mysql_query(c, "ROLLBACK") == 0);
    mysql_close(c);
}

/* One holds, one waits; each with a client of its own. */
struct two {
    hf_client *a, *b;
    hf_lease *held;
    struct pend *waits;
    uint64_t fence; /* of held */
};

static struct two hold_and_wait(int64_t ttl_ms)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = ttl_ms);
    struct two t = { .a = prompted(), .b = opened() };

    t.held = taken(t.a, nm("n"), req);
    t.fence = hf_lease_fence(t.held);
    t.waits = queued(t.b, nm("n"), 1, req);
    return t;
}

/* Nothing was lost: still one holder and one waiter; the release admits it, with a greater
 * fence, and the line is empty in the end. */
static void two_go_on(struct two *t)
{
    hf_lease *next;

    CHECK_RC(hf_lease_check(t->held), 0);
    CHECK(!pend_done(t->waits));
    given(t->held);
    next = pend_granted(t->waits);
    CHECK_NUM(hf_lease_fence(next), >, t->fence);
    given(next);
    AWAIT(line_is(t->b, nm("n"), 0, 0));
    closed(t->a);
    closed(t->b);
    CHECK_NUM(tickets(), ==, 0);
    CHECK(lines_whole());
}

static bool both_answer(struct two *t)
{
    return tried(t->a, nm("a"), NULL) == 0 && tried(t->b, nm("b"), NULL) == 0;
}

/* ---- sessions that end ----------------------------------------------------------- */

/* The holder keeps its lease, the waiter its place. */
static void sessions_end(void)
{
    struct two t;

    use_plain_server("");
    t = hold_and_wait(60000);
    for (int i = 0; i < 3; i++) {
        CHECK_NUM(kill_all("CONNECTION", ""), >=, 2);
        AWAIT(both_answer(&t));
    }
    two_go_on(&t);
    done();
}

/* In the midst of a statement, which waits for the row of the line. */
static void ended_in_statement(const char *what)
{
    hf_client *c;
    struct pend *p;
    hf_lease *l;
    MYSQL *lock;

    use_plain_server("");
    c = opened();
    given(taken(c, nm("n"), NULL));
    lock = lock_line();
    p = begun(c, nm("n"), LIMIT_MS, NULL);
    AWAIT(waiting_for_rows() == 1);
    CHECK_NUM(kill_all(what, "AND command = 'Execute'"), ==, 1);
    AWAIT(waiting_for_rows() == 1); /* it is repeated */
    CHECK(!pend_done(p));
    unlock_line(lock);
    l = pend_granted(p);
    CHECK_NUM(tickets(), ==, 1);
    given(l);
    CHECK_NUM(tickets(), ==, 0);
    closed(c);
    done();
}

static void killed_in_statement(void)
{
    ended_in_statement("CONNECTION");
}

/* No transaction may stay open behind it. */
static void interrupted_in_statement(void)
{
    ended_in_statement("QUERY");
}

static void *count_one(void *client)
{
    int64_t n;

    return (void *)(intptr_t)hf_count(client, nm("n"), 1, &n, E());
}

static int64_t sum(void)
{
    return mariadb_number(&server, "SELECT COALESCE(MAX(CAST(data AS INT)), 0) FROM "
                                   "holdfast_cell");
}

static int64_t waiting_for_us(void)
{
    return mariadb_number(&server, "SELECT COUNT(*) FROM information_schema.processlist"
                                   " WHERE user = 'holdfast' AND state = 'User lock'");
}

/* Interrupted before its COMMIT, while it waits for the row; and behind it, where the
 * change is done and only the answer is missing. Then it must not be done again. For that
 * the procedure is given a place behind its COMMIT where it waits for a lock of ours. */
static void interrupted_cell(void)
{
    hf_client *c;
    MYSQL *lock;
    pthread_t thread;
    void *rc;

    use_plain_server("");
    c = opened();
    CHECK(count_one(c) == NULL);
    CHECK_NUM(sum(), ==, 1);
    lock = lock_line();
    CHECK(pthread_create(&thread, NULL, count_one, c) == 0);
    AWAIT(waiting_for_rows() == 1);
    CHECK_NUM(kill_all("QUERY", "AND command = 'Execute'"), ==, 1);
    unlock_line(lock);
    CHECK(pthread_join(thread, &rc) == 0);
    CHECK((intptr_t)rc == 0 || (intptr_t)rc == HF_EUNKNOWN);
    CHECK_NUM(sum(), ==, 1 + ((intptr_t)rc == 0));
    AWAIT(tried(c, nm("m"), NULL) == 0);
    mariadb_do(&server, "UPDATE holdfast_cell SET data = '1'");

    mariadb_do(&server,
               "BEGIN NOT ATOMIC"
               " DECLARE p, b LONGTEXT;"
               " SELECT param_list, body INTO p, b FROM mysql.proc"
               "  WHERE db = 'holdfast' AND name = 'holdfast_cell_do';"
               " EXECUTE IMMEDIATE CONCAT('CREATE OR REPLACE PROCEDURE holdfast_cell_do(',"
               "  p, ') SQL SECURITY INVOKER ', REPLACE(b, 'COMMIT;',"
               "  'COMMIT; SET v_rc = v_rc * GET_LOCK(''behind'', 600) * "
               "RELEASE_LOCK(''behind'');'));"
               " END");
    lock = mysql_init(NULL);
    CHECK(mysql_real_connect(lock, NULL, "root", "", "holdfast", 0, server.socket, 0));
    CHECK(mysql_query(lock, "DO GET_LOCK('behind', 0)") == 0);
    CHECK(pthread_create(&thread, NULL, count_one, c) == 0);
    AWAIT(waiting_for_us() == 1);
    CHECK_NUM(sum(), ==, 2); /* it is done */
    CHECK_NUM(kill_all("QUERY", "AND state = 'User lock'"), ==, 1);
    mysql_close(lock);
    CHECK(pthread_join(thread, &rc) == 0);
    CHECK_RC((int)(intptr_t)rc, HF_EUNKNOWN);
    CHECK_NUM(sum(), ==, 2);
    AWAIT(tried(c, nm("m"), NULL) == 0);
    CHECK(count_one(c) == NULL);
    CHECK_NUM(sum(), ==, 3);
    closed(c);
    done();
}

/* A crash, and its recovery: what was answered is there. */
static void server_crashes(void)
{
    struct two t;

    use_plain_server("");
    t = hold_and_wait(60000);
    server_kill(&server);
    mariadb_run(&server);
    AWAIT(both_answer(&t));
    two_go_on(&t);
    done();
}

static void server_stops(void)
{
    struct two t;

    use_plain_server("?connect_timeout=3s");
    t = hold_and_wait(60000);
    server_freeze(&server);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), 4000);
    server_continue(&server);
    AWAIT(both_answer(&t));
    two_go_on(&t);
    done();
}

/* ---- strange settings ------------------------------------------------------------ */

struct overlap {
    atomic_int inside, overlaps;
    atomic_llong fence;
};

static struct overlap *overlap;

static void contend(void *arg)
{
    hf_client *c = opened();

    (void)arg;
    for (int i = 0; i < 25; i++) {
        hf_lease *l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 60000));

        if (atomic_fetch_add(&overlap->inside, 1) > 0)
            atomic_fetch_add(&overlap->overlaps, 1);
        if (atomic_exchange(&overlap->fence, (long long)hf_lease_fence(l)) >=
            (long long)hf_lease_fence(l))
            atomic_fetch_add(&overlap->overlaps, 1);
        atomic_fetch_sub(&overlap->inside, 1);
        given(l);
    }
    closed(c);
}

/* Ten processes on one line; also the first ones to come, so that they make the schema. */
static void exclude_each_other(void)
{
    pid_t pids[10];

    overlap = shared_new(sizeof(*overlap));
    for (int i = 0; i < 10; i++)
        pids[i] = proc_start(contend, NULL);
    for (int i = 0; i < 10; i++)
        proc_end(pids[i]);
    CHECK_NUM(atomic_load(&overlap->overlaps), ==, 0);
    CHECK_NUM(tickets(), ==, 0);
    CHECK(lines_whole());
    shared_free(overlap, sizeof(*overlap));
}

/* Limits that end statements and sessions, another level, another mode. */
static void limits_are_low(void)
{
    struct two t;

    mariadb_make(&server);
    mariadb_config(&server, "innodb-lock-wait-timeout=1");
    mariadb_config(&server, "wait-timeout=1");
    mariadb_config(&server, "interactive-timeout=1");
    mariadb_config(&server, "lock-wait-timeout=1");
    mariadb_config(&server, "max-statement-time=1");
    mariadb_config(&server, "idle-transaction-timeout=1");
    mariadb_config(&server, "transaction-isolation=SERIALIZABLE");
    mariadb_config(&server, "sql-mode=ANSI,ORACLE,NO_BACKSLASH_ESCAPES");
    mariadb_config(&server, "default-time-zone=+05:30");
    mariadb_config(&server, "autocommit=0");
    use_server("?connect_timeout=20s");
    exclude_each_other();
    t = hold_and_wait(SHORT_MS);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), 2 * SHORT_MS);
    two_go_on(&t);
    done();
}

/* Who was idle for longer than the server allows. */
static void idle_then_acquire(void)
{
    hf_client *c;

    mariadb_make(&server);
    mariadb_config(&server, "wait-timeout=1");
    use_server("");
    c = opened();
    given(taken(c, nm("n"), NULL));
    sleep(3); /* it is this time that is tested */
    given(taken(c, nm("n"), NULL));
    closed(c);
    done();
}

static void clock_stepped_back(void)
{
    hf_client *c;
    hf_lease *l;
    uint64_t fence;

    mariadb_make(&server);
    server_clock_able(&server);
    use_server("");
    c = opened();
    l = taken(c, nm("n"), NULL);
    fence = hf_lease_fence(l);
    given(l);
    server_clock_step(&server, -3600 * 1000);
    l = taken(c, nm("n"), NULL);
    CHECK_NUM(hf_lease_fence(l), ==, fence + 1);
    given(l);
    /* also when the line has gone in between */
    mariadb_do(&server, "UPDATE holdfast_line SET touched = 0");
    CHECK_NUM(mariadb_number(&server, "CALL holdfast_sweep(0)"), >=, 0);
    CHECK_NUM(mariadb_number(&server, "SELECT COUNT(*) FROM holdfast_line"), ==, 0);
    l = taken(c, nm("n"), NULL);
    CHECK_NUM(hf_lease_fence(l), ==, fence + 2);
    given(l);
    closed(c);
    done();
}

static void swept(void)
{
    hf_client *c;
    hf_lease *l;

    use_plain_server("");
    c = opened();
    given(taken(c, nm("gone"), NULL));
    l = taken(c, nm("held"), NULL);
    mariadb_do(&server, "UPDATE holdfast_line SET touched = 0");
    mariadb_do(&server, "CALL holdfast_sweep(600000)");
    CHECK_NUM(mariadb_number(&server, "SELECT COUNT(*) FROM holdfast_line"), ==, 1);
    CHECK(line_is(c, nm("held"), 1, 0));
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    closed(c);
    done();
}

static void *give(void *lease)
{
    given(lease);
    return NULL;
}

/* Our release has the row of the line and wants that of the ticket; another session has
 * that one, and wants the line: the server undoes one of both, ours, because it has changed
 * less, and it is sent again. */
static void deadlock_of_rows(void)
{
    hf_client *c;
    MYSQL *other = mysql_init(NULL);
    pthread_t thread;
    hf_lease *l;

    use_plain_server("");
    c = opened();
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 60000));
    CHECK(mysql_real_connect(other, NULL, "root", "", "holdfast", 0, server.socket, 0));
    CHECK(mysql_query(other, "START TRANSACTION") == 0);
    CHECK(mysql_query(other, "UPDATE holdfast_mark SET fence = fence + 1") == 0);
    CHECK(mysql_query(other, "UPDATE holdfast_ticket SET sent = sent + 1") == 0);
    CHECK_NUM(status_of("INNODB_DEADLOCKS"), ==, 0);
    CHECK(pthread_create(&thread, NULL, give, l) == 0);
    AWAIT(waiting_for_rows() == 1);
    CHECK(mysql_query(other, "UPDATE holdfast_line SET touched = touched + 1") == 0);
    CHECK_NUM(status_of("INNODB_DEADLOCKS"), ==, 1);
    CHECK(mysql_query(other, "COMMIT") == 0);
    mysql_close(other);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_NUM(tickets(), ==, 0);
    CHECK(lines_whole());
    closed(c);
    done();
}

/* ---- who may ---------------------------------------------------------------------- */

static void expect_refusal(const char *url, int code, const char *word)
{
    hf_client *c = opened_at(url);
    hf_lease *l = NULL;

    CHECK_RC(rig.face->acquire(c, nm("n"), LIMIT_MS, NULL, &l, E()), code);
    CHECK(strstr(last_error()->text, word));
    closed(c);
}

/* What is printed for an administrator is enough. */
static void rights_missing(void)
{
    char url[256], *text = NULL;
    hf_client *c;

    use_plain_server("");
    mariadb_do(&server, "CREATE DATABASE `a``b`; CREATE USER app@'%%';"
                        " GRANT SELECT ON `a``b`.* TO app@'%%'");
    snprintf(url, sizeof(url), "mariadb://app@127.0.0.1:%d/a%%60b", server.port);
    expect_refusal(url, HF_EAUTH, "holdfast schema");
    CHECK_RC(hf_admin_text(url, &text, E()), 0);
    mariadb_script(&server, text);
    free(text);
    c = opened_at(url);
    given(taken(c, nm("'; DROP TABLE holdfast_line; -- \\"), NULL));
    given(taken(c, nm("n"), NULL));
    closed(c);
    done();
}

static void password_wrong(void)
{
    char url[256];

    use_plain_server("");
    mariadb_do(&server, "CREATE USER app@'%%' IDENTIFIED BY 'right';"
                        " GRANT ALL ON holdfast.* TO app@'%%'");
    snprintf(url, sizeof(url), "mysql://app:wrong@127.0.0.1:%d/holdfast", server.port);
    expect_refusal(url, HF_EAUTH, "denied");
    CHECK(!strstr(last_error()->text, "wrong"));
    snprintf(url, sizeof(url), "mysql://app:right@127.0.0.1:%d/nosuch", server.port);
    expect_refusal(url, HF_EAUTH, "nosuch");
    snprintf(url, sizeof(url), "mysql://app:right@127.0.0.1:%d/holdfast", server.port);
    closed(opened_at(url));
    done();
}

/* By the socket; and what a URL may not say. */
static void by_socket(void)
{
    char url[512];
    hf_client *c;

    use_plain_server("");
    snprintf(url, sizeof(url), "mysql://holdfast@/holdfast?socket=%s", server.socket);
    c = opened_at(url);
    given(taken(c, nm("n"), NULL));
    closed(c);
    CHECK_RC(rig.face->open("mysql://h/", NULL, &c, E()), HF_EINVAL);
    CHECK_RC(rig.face->open("mysql:///db", NULL, &c, E()), HF_EINVAL);
    CHECK_RC(rig.face->open("mysql://h/db?socket=/s", NULL, &c, E()), HF_EINVAL);
    CHECK_RC(rig.face->open("mysql://h/db?ssl=perhaps", NULL, &c, E()), HF_EINVAL);
    CHECK_RC(rig.face->open("mysql://h/db?frobnicate=1", NULL, &c, E()), HF_EINVAL);
    CHECK_RC(rig.face->open("mysql://h/db?tls_ca=/ca.pem", NULL, &c, E()), HF_EINVAL);
    CHECK(strstr(last_error()->text, "ssl_ca"));
    done();
}

/* Refused at first, waited out later. */
static void read_only(void)
{
    struct two t;

    use_plain_server("");
    t = hold_and_wait(60000);
    mariadb_do(&server, "SET GLOBAL read_only=1");
    kill_all("CONNECTION", "");
    expect_refusal(rig.place->url, HF_ENOTSUP, "read-only");
    CHECK_RC(hf_lease_check(t.held), 0);
    mariadb_do(&server, "SET GLOBAL read_only=0");
    AWAIT(both_answer(&t));
    two_go_on(&t);
    done();
}

/* It says that it is another one. */
static void not_mariadb(void)
{
    mariadb_make(&server);
    mariadb_config(&server, "version=8.0.99");
    use_server("");
    expect_refusal(rig.place->url, HF_ENOTSUP, "MySQL 8.0.99");
    done();
}

/* The connection that waits is the one too many, then the one for commands. */
static void too_many_clients(void)
{
    hf_client *c, *d, *late;
    hf_lease *l, *none = NULL;
    struct pend *p;

    use_plain_server("");
    given(taken(c = opened(), nm("n"), NULL)); /* makes the schema */
    closed(c);
    mariadb_do(&server, "CREATE USER app@'%%' WITH MAX_USER_CONNECTIONS 2;"
                        " GRANT ALL ON holdfast.* TO app@'%%'");
    snprintf(rig.place->url, sizeof(rig.place->url),
             "mysql://app@127.0.0.1:%d/holdfast?connect_timeout=3s", server.port);
    c = opened();
    d = opened();
    l = taken(c, nm("n"), NULL);
    p = queued(d, nm("n"), 1, NULL); /* it looks from time to time */
    late = opened();
    CHECK_RC(rig.face->acquire(late, nm("m"), LIMIT_MS, NULL, &none, E()), HF_EUNREACHABLE);
    CHECK(strstr(last_error()->text, "max_user_connections"));
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    given(pend_granted(p));
    closed(c);
    closed(d);
    AWAIT(tried(late, nm("m"), NULL) == 0);
    closed(late);
    done();
}

/* ---- the network ----------------------------------------------------------------- */

static void release_is_under_way(void)
{
    hf_client *direct;

    use_proxied_server("?" BROKEN_TIMEOUT);
    direct = opened_directly();
    release_breaks(&proxy, 1, direct);
    closed(direct);
    done();
}

static void timeout_is_short(void)
{
    use_proxied_server("?" SHORT_TIMEOUT);
    short_timeout(proxy);
    done();
}

/* The join is committed, and its answer is lost with the connection. */
static void answer_is_cut(void)
{
    hf_client *c;
    struct pend *p;
    hf_lease *l;

    use_proxied_server("");
    c = opened();
    given(taken(c, nm("n"), NULL));
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
    p = begun(c, nm("n"), LIMIT_MS, NULL);
    AWAIT(tickets() == 1);
    CHECK(!pend_done(p));
    proxy_drop(proxy);
    l = pend_granted(p);
    CHECK_NUM(tickets(), ==, 1); /* the same one */
    given(l);
    CHECK_NUM(tickets(), ==, 0);
    closed(c);
    done();
}

/* A join is held back by the network, its client gives up on the connection, and leaves on
 * another one: the old one was ended before, so what comes late leaves nothing. */
static void join_comes_late(void)
{
    hf_client *c, *direct;
    hf_lease *l = NULL;

    use_proxied_server("?connect_timeout=1s");
    direct = opened_directly();
    c = opened();
    given(taken(c, nm("n"), NULL));
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
    CHECK_RC(rig.face->acquire(c, nm("n"), 200, HF_REQUEST(.ttl_ms = 60000), &l, E()),
             HF_ETIMEDOUT);
    AWAIT(proxy_accepted(proxy) >= 2 && tried(c, nm("other"), NULL) == 0);
    proxy_freeze(proxy, PROXY_PRESENT, 0);
    STAYS(line_is(direct, nm("n"), 0, 0), 500);
    CHECK_NUM(tickets(), ==, 0);
    closed(c);
    closed(direct);
    done();
}

static void wake_is_poll(void)
{
    hf_client *a, *b;
    hf_lease *l;
    struct pend *p;

    use_plain_server("?wake=poll");
    a = opened();
    b = opened();
    l = taken(a, nm("n"), HF_REQUEST(.ttl_ms = 600000));
    p = queued(b, nm("n"), 1, HF_REQUEST(.ttl_ms = 600000));
    CHECK_NUM(mariadb_number(&server, "SELECT COUNT(*) FROM information_schema.processlist"
                                      " WHERE user = 'holdfast'"),
              ==, 2); /* no connection that waits */
    given(l);
    given(pend_granted(p)); /* long before the safety look, 200 s later */
    closed(a);
    closed(b);
    done();
}

static const struct test_case cases[] = {
    { "sessions-end", sessions_end, ON_ALL, 0, 0 },
    { "killed-in-statement", killed_in_statement, ON_ALL, 0, 0 },
    { "interrupted-in-statement", interrupted_in_statement, ON_ALL, 0, 0 },
    { "interrupted-cell", interrupted_cell, ON_BLOCKING, 0, 0 },
    { "server-crashes", server_crashes, ON_ALL, 0, 0 },
    { "server-stops", server_stops, ON_ALL, 0, 0 },
    { "limits-are-low", limits_are_low, ON_ALL, 0, 0 },
    { "idle-then-acquire", idle_then_acquire, ON_ALL, 0, 0 },
    { "clock-stepped-back", clock_stepped_back, ON_ALL, 0, 0 },
    { "swept", swept, ON_ALL, 0, 0 },
    { "deadlock-of-rows", deadlock_of_rows, ON_BLOCKING, 0, 0 },
    { "rights-missing", rights_missing, ON_ALL, 0, 0 },
    { "password-wrong", password_wrong, ON_ALL, 0, 0 },
    { "by-socket", by_socket, ON_ALL, 0, 0 },
    { "read-only", read_only, ON_ALL, 0, 0 },
    { "not-mariadb", not_mariadb, ON_ALL, 0, 0 },
    { "too-many-clients", too_many_clients, ON_ALL, 0, 0 },
    { "release-breaks", release_is_under_way, ON_ALL, 0, 0 },
    { "short-timeout", timeout_is_short, ON_ALL, 0, 0 },
    { "answer-is-cut", answer_is_cut, ON_ALL, 0, 0 },
    { "join-comes-late", join_comes_late, ON_ALL, 0, 0 },
    { "wake-is-poll", wake_is_poll, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};

const struct test_case *const tables[] = { cases, NULL };
