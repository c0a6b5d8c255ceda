/* mysql_fault.c: what goes wrong with MariaDB, one case each.
 *
 *     fault-mysql [--face blocking|callback|foreign] [--jobs N] [--list] [--verbose]
 *     [CASE...]
 *
 * Each case starts the server it breaks, in its own process. */
#include "mysql_fault.h"

#include <holdfast/recipes.h>
#include <holdfast/tool.h>
#include <unistd.h>

void set_url(char *url, size_t size, int port, const char *params)
{
    snprintf(url, size, "mysql://holdfast@127.0.0.1:%d/holdfast%s", port, params);
}

void make_server(void)
{
    mariadb_make(&server);
}

void run_server(void)
{
    mariadb_run(&server);
}

void kill_server(void)
{
    server_kill(&server);
}

void remove_server(void)
{
    server_remove(&server);
}

int64_t tickets(void)
{
    return mariadb_number(&server, "SELECT COUNT(*) FROM " MARIADB_TICKETS);
}

int64_t line_rows(void)
{
    return mariadb_number(&server, "SELECT COUNT(*) FROM holdfast_line");
}

void age_and_sweep(int64_t ms)
{
    mariadb_do(&server, "UPDATE holdfast_line SET touched = 0");
    mariadb_do(&server, "CALL holdfast_sweep(%lld)", (long long)ms);
}

bool lines_whole(void)
{
    return mariadb_number(&server,
                          "SELECT COUNT(*) FROM holdfast_line l LEFT JOIN (SELECT line,"
                          " SUM(state = 1) n, SUM(state = 0) nw,"
                          " SUM(IF(state = 1, weight, 0)) total,"
                          " MIN(IF(state = 1, expiry, NULL)) soonest"
                          " FROM " MARIADB_TICKETS " GROUP BY line) t ON t.line = l.id"
                          " WHERE l.n <> COALESCE(t.n, 0) OR l.nw <> COALESCE(t.nw, 0)"
                          " OR l.total <> COALESCE(t.total, 0) OR l.soonest > t.soonest"
                          " OR (l.n > 0 AND l.total > l.cap) OR (l.token <> '' AND"
                          " (l.n <> 1 OR l.total <> l.cap OR l.soonest <> t.soonest))"
                          " OR (l.w_token <> '' AND (l.token = '' OR l.nw <> 1))") == 0;
}

void unfold(void)
{
    mariadb_do(&server, "BEGIN NOT ATOMIC DECLARE l ROW TYPE OF holdfast_line;"
                        " SELECT * INTO l FROM holdfast_line x WHERE x.token <> '';"
                        " CALL holdfast_unfold(l); END");
    CHECK_NUM(mariadb_number(&server, "SELECT COUNT(*) FROM holdfast_ticket"), ==, 1);
}

int64_t kill_all(const char *what, const char *condition)
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

int64_t end_sessions(void)
{
    return kill_all("CONNECTION", "");
}

static int64_t status_of(const char *name)
{
    return mariadb_number(&server,
                          "SELECT variable_value FROM information_schema.global_status"
                          " WHERE variable_name = '%s'",
                          name);
}

int64_t waiting_for_rows(void)
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

/* ---- sessions that end ----------------------------------------------------------- */

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

/* From now on this procedure waits for a lock of ours behind this statement. `number`: a
 * variable of it; only a SET of such a one fails when it is interrupted. */
static void wait_behind(const char *procedure, const char *statement, const char *number)
{
    mariadb_do(&server,
               "BEGIN NOT ATOMIC"
               " DECLARE p, b LONGTEXT;"
               " SELECT param_list, body INTO p, b FROM mysql.proc"
               "  WHERE db = 'holdfast' AND name = '%s';"
               " EXECUTE IMMEDIATE CONCAT('CREATE OR REPLACE PROCEDURE %s(',"
               "  p, ') SQL SECURITY INVOKER ', REPLACE(b, '%s',"
               "  '%s SET %s = %s * GET_LOCK(''behind'', 600) * RELEASE_LOCK(''behind'');'"
               "));"
               " END",
               procedure, procedure, statement, statement, number, number);
}

static MYSQL *keep_behind(void)
{
    MYSQL *lock = mysql_init(NULL);

    CHECK(mysql_real_connect(lock, NULL, "root", "", "holdfast", 0, server.socket, 0));
    CHECK(mysql_query(lock, "DO GET_LOCK('behind', 0)") == 0);
    return lock;
}

static void *give(void *lease)
{
    given(lease);
    return NULL;
}

/* Between two of its changes: KILL QUERY passes the handler of the procedure by, and its
 * transaction stays open. What comes next must not commit a half of it. */
static void interrupted_between_changes(void)
{
    hf_client *c;
    hf_lease *l;
    MYSQL *lock;
    pthread_t thread;

    use_plain_server("");
    c = opened();
    given(taken(c, nm("n"), NULL)); /* makes the schema */
    wait_behind("holdfast_leave_some", "SET v_answer = ROW_COUNT();", "v_answer");
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 60000));
    unfold();
    lock = keep_behind();
    CHECK(pthread_create(&thread, NULL, give, l) == 0);
    AWAIT(waiting_for_us() == 1);
    CHECK_NUM(kill_all("QUERY", "AND state = 'User lock'"), ==, 1);
    mysql_close(lock);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_NUM(tickets(), ==, 0);
    CHECK(lines_whole());
    CHECK_RC(tried(c, nm("n"), NULL), 0);
    closed(c);
    done();
}

/* A hand-off that is done, and whose user lock is not given back yet: the leave is sent
 * again, and who got in learns it by that, not by its safety look 200 s later. */
static void interrupted_hand_off(void)
{
    const hf_request longer = { .size = sizeof longer, .ttl_ms = 600000 };
    hf_client *a, *b;
    hf_lease *l;
    MYSQL *lock;
    pthread_t thread;
    struct pend *p;

    use_plain_server("");
    a = opened();
    b = opened();
    given(taken(a, nm("n"), NULL)); /* makes the schema */
    wait_behind("holdfast_leave", "IF ROW_COUNT() = 1 THEN", "p_keep");
    l = taken(a, nm("n"), &longer);
    p = queued(b, nm("n"), 1, &longer);
    CHECK_NUM(
        mariadb_number(&server, "SELECT COUNT(*) FROM holdfast_line WHERE w_token <> ''"),
        ==, 1);
    lock = keep_behind();
    CHECK(pthread_create(&thread, NULL, give, l) == 0);
    AWAIT(waiting_for_us() == 2); /* the other one is the waker */
    CHECK_NUM(
        mariadb_number(&server, "SELECT COUNT(*) FROM holdfast_line WHERE w_token = ''"),
        ==, 1);
    CHECK(!pend_done(p));
    CHECK_NUM(kill_all("QUERY", "AND state = 'User lock' AND info LIKE '%leave%'"), ==, 1);
    mysql_close(lock);
    CHECK(pthread_join(thread, NULL) == 0);
    given(pend_granted(p));
    CHECK_NUM(tickets(), ==, 0);
    CHECK(lines_whole());
    closed(a);
    closed(b);
    done();
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

    wait_behind("holdfast_cell_do", "COMMIT;", "v_rc");
    lock = keep_behind();
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
    exclude_each_other(10);
    t = hold_and_wait(SHORT_MS);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), 2 * SHORT_MS);
    two_go_on(&t);
    done();
}

static int64_t session(void)
{
    return mariadb_number(&server, "SELECT MAX(id) FROM information_schema.processlist"
                                   " WHERE user = 'holdfast'");
}

/* Who was idle for longer than the server allows has its session still. */
static void idle_then_acquire(void)
{
    hf_client *c;
    int64_t id;

    mariadb_make(&server);
    mariadb_config(&server, "wait-timeout=1");
    use_server("");
    c = opened();
    given(taken(c, nm("n"), NULL));
    id = session();
    sleep(3); /* it is this time that is tested */
    given(taken(c, nm("n"), NULL));
    CHECK_NUM(session(), ==, id);
    closed(c);
    done();
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
    unfold();
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
    c = opened_at(url, NULL);
    given(taken(c, nm("'; DROP TABLE holdfast_line; -- \\"), NULL));
    given(taken(c, nm("n"), NULL));
    closed(c);
    done();
}

/* Tables of version 1, with a line in use: refused, and nothing is changed; what an
 * administrator runs brings them to this version, and the line goes on. */
static void older_schema(void)
{
    hf_client *c;
    hf_lease *l;
    char *text = NULL;
    uint64_t fence;

    use_plain_server("");
    c = opened();
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 60000));
    fence = hf_lease_fence(l);
    given(l);
    closed(c);
    mariadb_do(
        &server,
        "ALTER TABLE holdfast_line DROP COLUMN head, DROP COLUMN fast,"
        " DROP COLUMN crc, DROP COLUMN token, DROP COLUMN number, DROP COLUMN joined,"
        " DROP COLUMN granted, DROP COLUMN ttl, DROP COLUMN client,"
        " DROP COLUMN process, DROP COLUMN owner, DROP COLUMN pid, DROP COLUMN host,"
        " DROP COLUMN note, DROP COLUMN hints;"
        " ALTER TABLE holdfast_ticket DROP COLUMN session;"
        " UPDATE holdfast_line SET fence = fence + 3600000000;"
        " UPDATE holdfast_format SET version = 1");
    expect_refusal(rig.place->url, HF_EVERSION, "holdfast schema");
    CHECK_NUM(mariadb_number(&server, "SELECT MAX(version) FROM holdfast_format"), ==, 1);
    CHECK_RC(hf_admin_text(rig.place->url, &text, E()), 0);
    mariadb_script(&server, text);
    free(text);
    c = opened();
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = SHORT_MS));
    CHECK_NUM(hf_lease_fence(l), >, fence + 3600000000);
    usleep(2000 * SHORT_MS); /* it is renewed: by the hash that the line was given */
    CHECK_RC(hf_lease_check(l), 0);
    CHECK_NUM(tickets(), ==, 1);
    given(l);
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
    closed(opened_at(url, NULL));
    done();
}

/* By the socket; and what a URL may not say. */
static void by_socket(void)
{
    char url[512];
    hf_client *c;

    use_plain_server("");
    snprintf(url, sizeof(url), "mysql://holdfast@/holdfast?socket=%s", server.socket);
    c = opened_at(url, NULL);
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
    end_sessions();
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
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 600000));
    p = queued(d, nm("n"), 1,
               HF_REQUEST(.ttl_ms = 600000)); /* it looks from time to time */
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
    { "killed-in-statement", killed_in_statement, ON_ALL, 0, 0 },
    { "interrupted-in-statement", interrupted_in_statement, ON_ALL, 0, 0 },
    { "interrupted-between-changes", interrupted_between_changes, ON_BLOCKING, 0, 0 },
    { "interrupted-hand-off", interrupted_hand_off, ON_BLOCKING, 0, 0 },
    { "interrupted-cell", interrupted_cell, ON_BLOCKING, 0, 0 },
    { "server-stops", server_stops, ON_ALL, 0, 0 },
    { "limits-are-low", limits_are_low, ON_ALL, 0, 0 },
    { "idle-then-acquire", idle_then_acquire, ON_ALL, 0, 0 },
    { "deadlock-of-rows", deadlock_of_rows, ON_BLOCKING, 0, 0 },
    { "rights-missing", rights_missing, ON_ALL, 0, 0 },
    { "older-schema", older_schema, ON_ALL, 0, 0 },
    { "password-wrong", password_wrong, ON_ALL, 0, 0 },
    { "by-socket", by_socket, ON_ALL, 0, 0 },
    { "read-only", read_only, ON_ALL, 0, 0 },
    { "not-mariadb", not_mariadb, ON_ALL, 0, 0 },
    { "too-many-clients", too_many_clients, ON_ALL, 0, 0 },
    { "wake-is-poll", wake_is_poll, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};

const struct test_case *const tables[] = { cases,
                                           sql_line_cases,
                                           mysql_race_cases,
                                           mysql_host_cases,
                                           mysql_mode_cases,
                                           mysql_crash_cases,
                                           mysql_folded_cases,
                                           sql_mode_cases,
                                           NULL };
