/* postgres_operator.c: servers as others have set them up: search paths that lead astray,
 * other encodings, few rights, few connections, durability that was turned off, and
 * sessions of others that lock our rows. */
#include "postgres_fault.h"

#include <holdfast/tool.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void use_role(const char *role, const char *database)
{
    snprintf(rig.place->url, sizeof(rig.place->url), "postgres://%s@127.0.0.1:%d/%s", role,
             server.port, database);
}

static void hand_over(hf_client *a, hf_client *b)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = 60000);
    hf_lease *l = taken(a, nm("h"), req);
    struct pend *p = queued(b, nm("h"), 1, req);

    given(l);
    given(pend_granted(p));
}

/* Of everything some. */
static void works(void)
{
    hf_client *a = opened(), *b = opened();

    hand_over(a, b);
    given(taken(a, nm("\xc3\xa4\xe2\x82\xac\xf0\x9f\x94\x92"),
                HF_REQUEST(.note = "\xe2\x82\xac")));
    AWAIT(line_is(a, nm("h"), 0, 0));
    closed(a);
    closed(b);
}

/* ---- names inside the functions --------------------------------------------------- */

/* Functions and operators of a schema that comes first, or fit better than those of the
 * server. */
static void path_leads_astray(void)
{
    static const char *const types[][3] = {
        { "*", "numeric", "int4" }, { "||", "text", "int8" }, { "||", "int8[]", "int8" },
        { "=", "bytea", "bytea" },  { "=", "int8", "int8" },  { "+", "int8", "int8" },
        { "<=", "int8", "int8" },   { "<>", "int8", "int4" }, { "=", "text", "text" },
    };

    use_plain_server("");
    postgres_do(
        &server,
        "CREATE SCHEMA astray;"
        "CREATE FUNCTION astray.fail(bool) RETURNS bool LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'led astray'; END $$;"
        "CREATE FUNCTION astray.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS"
        " $$ SELECT CASE WHEN astray.fail(true) THEN pg_catalog.now() END $$;"
        "CREATE FUNCTION astray.pg_backend_pid() RETURNS int LANGUAGE sql AS"
        " $$ SELECT CASE WHEN astray.fail(true) THEN 1 END $$;"
        "CREATE FUNCTION astray.pg_notify(text, text) RETURNS void LANGUAGE sql AS"
        " $$ SELECT CASE WHEN astray.fail(true) THEN NULL END::void $$;"
        "CREATE FUNCTION astray.current_setting(text) RETURNS text LANGUAGE sql AS"
        " $$ SELECT CASE WHEN astray.fail(true) THEN '' END $$");
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        postgres_do(
            &server,
            "CREATE FUNCTION astray.f%zu(%s, %s) RETURNS %s LANGUAGE sql AS $$ SELECT"
            " NULL::%s FROM (SELECT astray.fail(true)) x WHERE fail $$;"
            " CREATE OPERATOR astray.%s (FUNCTION = astray.f%zu, LEFTARG = %s,"
            " RIGHTARG = %s)",
            i, types[i][1], types[i][2],
            strchr("=<", types[i][0][0]) ? "bool" : types[i][1],
            strchr("=<", types[i][0][0]) ? "bool" : types[i][1], types[i][0], i,
            types[i][1], types[i][2]);
    postgres_do(&server, "CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app;"
                         "GRANT USAGE ON SCHEMA astray TO app;"
                         "ALTER ROLE app SET search_path = astray, pg_catalog");
    use_role("app", "postgres");
    works();
    postgres_do(&server, "ALTER ROLE app SET search_path = astray");
    end_sessions();
    works();
    done();
}

/* ---- other encodings and readings of text ------------------------------------------ */

static void encodings(void)
{
    static const char *const known[] = { "LATIN2", "SQL_ASCII", "EUC_JP", "KOI8R" };

    postgres_init(&server);
    postgres_config(&server, "standard_conforming_strings = off\nbytea_output = escape\n"
                             "escape_string_warning = on");
    use_server("");
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        postgres_do(&server,
                    "CREATE DATABASE \"%s\" ENCODING '%s' TEMPLATE template0 LC_COLLATE 'C'"
                    " LC_CTYPE 'C'",
                    known[i], known[i]);
        use_role("holdfast", known[i]);
        works();
    }
    done();
}

/* ---- rights ------------------------------------------------------------------------ */

/* An administrator has made the schema, and it is the user's; nothing else is. */
static void schema_is_given(void)
{
    use_plain_server("");
    postgres_do(&server,
                "CREATE ROLE app LOGIN; REVOKE ALL ON DATABASE postgres FROM PUBLIC;"
                "GRANT CONNECT ON DATABASE postgres TO app;"
                "CREATE SCHEMA holdfast AUTHORIZATION app");
    use_role("app", "postgres");
    works();
    done();
}

/* The schema is there, and was made by another user. */
static void schema_is_anothers(void)
{
    hf_client *c;
    hf_lease *l = NULL;
    char *text = NULL;

    use_plain_server("");
    works();
    postgres_do(&server, "CREATE ROLE app LOGIN");
    use_role("app", "postgres");
    c = opened();
    CHECK_RC(rig.face->acquire(c, nm("n"), LIMIT_MS, NULL, &l, E()), HF_EAUTH);
    CHECK(strstr(last_error()->text, "holdfast schema"));
    closed(c);
    CHECK_RC(hf_admin_text(rig.place->url, &text, E()), 0);
    postgres_do(&server, "%s", text); /* once more, as an upgrade is done */
    free(text);
    works();
    postgres_do(&server, "INSERT INTO holdfast.format VALUES (99)");
    c = opened();
    CHECK_RC(rig.face->acquire(c, nm("n"), LIMIT_MS, NULL, &l, E()), HF_EVERSION);
    CHECK(strstr(last_error()->text, "99"));
    closed(c);
    done();
}

static void *comes(void *arg)
{
    hf_client *c = opened();

    (void)arg;
    given(taken(c, nm("n"), NULL));
    closed(c);
    return NULL;
}

static void one_of_ten(void *arg)
{
    comes(arg);
}

/* Ten processes find no schema. */
static void ten_at_once(void)
{
    pid_t pids[10];

    use_plain_server("");
    for (int i = 0; i < 10; i++)
        pids[i] = proc_start(one_of_ten, NULL);
    for (int i = 0; i < 10; i++)
        proc_end(pids[i]);
    CHECK_NUM(tickets(), ==, 0);
    CHECK_NUM(postgres_number(&server, "SELECT count(*) FROM holdfast.mark"), ==, 1024);
    done();
}

/* ---- few connections ---------------------------------------------------------------- */

/* There is none for messages: who waits looks, and does not ask for one all the time. */
static void none_for_messages(void)
{
    hf_client *a, *b;
    int64_t start;
    size_t before;

    use_proxied_server("");
    works();
    a = opened();
    postgres_do(&server, "CREATE ROLE app LOGIN CONNECTION LIMIT 1;"
                         "GRANT ALL ON SCHEMA holdfast TO app;"
                         "GRANT ALL ON ALL TABLES IN SCHEMA holdfast TO app");
    snprintf(rig.place->url, sizeof(rig.place->url), "postgres://app@127.0.0.1:%d/postgres",
             proxy_port(proxy));
    before = proxy_accepted(proxy);
    b = prompted();
    start = now_ms();
    hand_over(a, b);
    CHECK_WITHIN(start, 15000);                 /* before the safety look, 20 s later */
    AWAIT(proxy_accepted(proxy) >= before + 6); /* it has been refused several times */
    STAYS(true, 2000);
    before = proxy_accepted(proxy);
    STAYS(true, 4000);
    CHECK_NUM(proxy_accepted(proxy) - before, <=, 2);
    closed(a);
    closed(b);
    done();
}

/* ---- rows that others lock ----------------------------------------------------------- */

/* A session of somebody else has locked the row of one line, for long. What this client has
 * in other lines goes on: all share one connection. */
static void stuck(const char *params)
{
    hf_client *c;
    struct pend *p;
    hf_lease *l;
    PGconn *lock;

    use_plain_server("");
    c = opened();
    given(taken(c, nm("n"), NULL)); /* makes the schema */
    closed(c);
    strcat(rig.place->url, params);
    c = prompted();
    given(taken(c, nm("n"), NULL));
    l = taken(c, nm("m"), HF_REQUEST(.ttl_ms = SHORT_MS));
    lock = lock_line(nm("n"));
    p = begun(c, nm("n"), LIMIT_MS, NULL);
    STAYS(hf_lease_check(l) == 0, 2 * SHORT_MS);
    AWAIT(tried(c, nm("other"), NULL) == 0);
    CHECK(!pend_done(p));
    unlock_line(lock);
    given(pend_granted(p));
    given(l);
    closed(c);
    CHECK_NUM(tickets(), ==, 0);
    done();
}

static void one_line_is_stuck(void)
{
    stuck("?connect_timeout=20s");
}

/* The server gives up waiting for the row after a second: so long the client waits, too. */
static void stuck_for_longer(void)
{
    stuck("?connect_timeout=900ms");
}

static bool is_slow(hf_client *c)
{
    int64_t start = now_ms();

    given(taken(c, nm("n"), NULL));
    return now_ms() - start > 900; /* the server lets it wait for a second */
}

/* A table that only the sweep uses is locked, by an administrator who rewrites it, say. The
 * sweep gives up, and is not sent again: it is in the way of all other calls. */
static void sweep_is_stuck(void)
{
    enum { SWEEPERS = 12 }; /* each sweeps within its first minute */
    int64_t until = now_ms() + 2 * LIMIT_MS;
    hf_client *c[SWEEPERS];
    int i, slow = 0;
    PGconn *lock;

    use_plain_server("");
    for (i = 0; i < SWEEPERS; i++) {
        c[i] = opened();
        given(taken(c[i], nm("n"), NULL));
    }
    lock = lock_table("holdfast.mutex");
    for (i = 0; !is_slow(c[i]); i = (i + 1) % SWEEPERS)
        CHECK(now_ms() < until);
    for (until = now_ms() + 4000; now_ms() < until;)
        slow += is_slow(c[i]);
    CHECK_NUM(slow, <=, 1);
    unlock_line(lock);
    for (i = 0; i < SWEEPERS; i++)
        closed(c[i]);
    done();
}

static bool waits_for_lock(const char *application)
{
    return postgres_number(&server,
                           "SELECT count(*) FROM pg_stat_activity WHERE application_name = "
                           "'%s' AND wait_event_type = 'Lock'",
                           application) == 1;
}

static int64_t deadlocks(void)
{
    return postgres_number(&server,
                           "SELECT deadlocks FROM pg_stat_database WHERE datname = "
                           "'postgres'");
}

static void *give(void *lease)
{
    given(lease);
    return NULL;
}

/* The release has locked the line and wants the ticket; another has that, and wants the
 * line. */
static void release_and_meet(hf_client *c, PGconn *other)
{
    hf_lease *l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 60000));
    pthread_t t;

    PQclear(PQexec(other, "BEGIN; SELECT 1 FROM holdfast.ticket FOR UPDATE"));
    CHECK(pthread_create(&t, NULL, give, l) == 0);
    AWAIT(waits_for_lock("holdfast"));
    CHECK_NUM(PQsendQuery(other, "UPDATE holdfast.line SET touched = touched"), ==, 1);
    PQclear(PQgetResult(other));
    PQclear(PQgetResult(other));
    PQclear(PQexec(other, "ROLLBACK"));
    pthread_join(t, NULL);
    CHECK_NUM(tickets(), ==, 0);
}

/* 40P01: the release is repeated. The server looks for deadlocks once, half a second after
 * the release began to wait: on a busy machine the other may come later than that. */
static void deadlock_of_server(void)
{
    hf_client *c;
    PGconn *other;
    char info[300];

    postgres_init(&server);
    postgres_config(&server, "deadlock_timeout = 500");
    use_server("");
    c = opened();
    given(taken(c, nm("n"), NULL));
    snprintf(info, sizeof(info),
             "host=%s port=%d user=holdfast dbname=postgres application_name=other"
             " options='-c deadlock_timeout=1h'",
             server.dir, server.port);
    other = PQconnectdb(info);
    CHECK(PQstatus(other) == CONNECTION_OK);
    AWAIT((release_and_meet(c, other), deadlocks() > 0));
    PQfinish(other);
    closed(c);
    done();
}

/* ---- durability ----------------------------------------------------------------------- */

/* What was answered survives a crash, though the server was told not to wait for the disk.
 */
static void commit_is_not_awaited(void)
{
    hf_client *c;
    hf_lease *l;

    postgres_init(&server);
    postgres_config(&server, "synchronous_commit = off\nwal_writer_delay = 10s\n"
                             "wal_writer_flush_after = 0");
    use_server("");
    c = opened();
    given(taken(c, nm("m"), NULL));
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 60000));
    postgres_kill(&server);
    postgres_run(&server);
    CHECK_NUM(tickets(), ==, 1);
    AWAIT(tried(c, nm("m"), NULL) == 0);
    CHECK_RC(tried(c, nm("n"), NULL), HF_EBUSY);
    given(l);
    closed(c);
    done();
}

static void fsync_is_off(void)
{
    hf_client *c;

    postgres_init(&server);
    postgres_config(&server, "fsync = off");
    use_server("");
    c = opened_with(HF_OPTIONS(.log = hear, .user = (void *)"fsync"));
    given(taken(c, nm("n"), NULL));
    end_sessions();
    AWAIT(tried(c, nm("n"), NULL) == 0);
    CHECK_NUM(atomic_load(&warned), ==, 1); /* once */
    closed(c);
    done();
}

const struct test_case postgres_operator_cases[] = {
    { "path-leads-astray", path_leads_astray, ON_ALL, 0, 0 },
    { "encodings", encodings, ON_ALL, 0, 0 },
    { "schema-is-given", schema_is_given, ON_ALL, 0, 0 },
    { "schema-is-anothers", schema_is_anothers, ON_ALL, 0, 0 },
    { "ten-at-once", ten_at_once, ON_ALL, 0, 0 },
    { "none-for-messages", none_for_messages, ON_ALL, 0, 0 },
    { "one-line-is-stuck", one_line_is_stuck, ON_ALL, 0, 0 },
    { "stuck-for-longer", stuck_for_longer, ON_ALL, 0, 0 },
    { "sweep-is-stuck", sweep_is_stuck, ON_BLOCKING, 0, CASE_LONG },
    { "deadlock-of-server", deadlock_of_server, ON_ALL, 0, 0 },
    { "commit-is-not-awaited", commit_is_not_awaited, ON_ALL, 0, 0 },
    { "fsync-is-off", fsync_is_off, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
