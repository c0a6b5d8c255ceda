/* postgres_server.c: servers that end sessions, refuse us, are set strangely, or are made
 * anew. */
#include "postgres_fault.h"

#include <holdfast/tool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- sessions that end ----------------------------------------------------------- */

/* In the midst of a statement, which waits for the row of the line. */
static void ended_in_statement(void)
{
    hf_client *c;
    struct pend *p;
    hf_lease *l;
    PGconn *lock;

    use_plain_server("");
    c = opened();
    given(taken(c, nm("n"), NULL));
    lock = lock_line(nm("n"));
    p = begun(c, nm("n"), LIMIT_MS, NULL);
    AWAIT(postgres_number(&server, "SELECT count(*) FROM pg_stat_activity WHERE "
                                   "application_name = 'holdfast' AND wait_event_type = "
                                   "'Lock'") == 1);
    CHECK_NUM(end_sessions(), >=, 1);
    AWAIT(postgres_number(&server, "SELECT count(*) FROM pg_stat_activity WHERE "
                                   "application_name = 'holdfast' AND wait_event_type = "
                                   "'Lock'") == 1); /* it is repeated */
    CHECK(!pend_done(p));
    unlock_line(lock);
    l = pend_granted(p);
    CHECK_NUM(tickets(), ==, 1);
    given(l);
    CHECK_NUM(tickets(), ==, 0);
    closed(c);
    done();
}

/* A synchronous replica has all that was answered; the clients find it by themselves. */
static void replica_promoted(void)
{
    struct server replica, old;
    struct two t;

    use_plain_server("");
    postgres_replica(&replica, &server);
    postgres_do(&server, "ALTER SYSTEM SET synchronous_standby_names = '*'");
    postgres_do(&server, "SELECT pg_reload_conf()");
    AWAIT(postgres_number(&server, "SELECT count(*) FROM pg_stat_replication WHERE "
                                   "sync_state = 'sync'") == 1);
    snprintf(rig.place->url, sizeof(rig.place->url),
             "postgres://holdfast@127.0.0.1:%d,127.0.0.1:%d/postgres", replica.port,
             server.port);
    t = hold_and_wait(60000);
    postgres_kill(&server);
    CHECK_RC(hf_lease_check(t.held), 0);
    postgres_do(&replica, "ALTER SYSTEM RESET synchronous_standby_names");
    postgres_promote(&replica);
    old = server;
    server = replica;
    replica = old;
    AWAIT(both_answer(&t));
    two_go_on(&t);
    postgres_remove(&replica);
    done();
}

/* ---- strange settings ------------------------------------------------------------ */

static void excludes_at(const char *level)
{
    postgres_init(&server);
    postgres_config(&server, "default_transaction_isolation = '%s'", level);
    use_server("");
    exclude_each_other(6);
    done();
}

static void read_committed(void)
{
    excludes_at("read committed");
}

static void repeatable_read(void)
{
    excludes_at("repeatable read");
}

static void serializable(void)
{
    excludes_at("serializable");
}

/* Limits that end statements and sessions. */
static void limits_are_low(void)
{
    struct two t;

    postgres_init(&server);
    postgres_config(&server, "lock_timeout = 5\nstatement_timeout = 200\n"
                             "idle_session_timeout = 300\n"
                             "idle_in_transaction_session_timeout = 100\n"
                             "synchronous_commit = off\ndeadlock_timeout = 10");
    use_server("");
    exclude_each_other(6);
    t = hold_and_wait(SHORT_MS);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), 2 * SHORT_MS);
    two_go_on(&t);
    done();
}

/* A statement that runs into a limit of the server is sent again. */
static void limit_while_locked(void)
{
    hf_client *c;
    struct pend *p;
    PGconn *lock;

    postgres_init(&server);
    postgres_config(&server, "lock_timeout = 20");
    use_server("");
    c = opened();
    given(taken(c, nm("n"), NULL));
    lock = lock_line(nm("n"));
    p = begun(c, nm("n"), LIMIT_MS, NULL);
    STAYS(!pend_done(p), 300);
    unlock_line(lock);
    given(pend_granted(p));
    CHECK_NUM(tickets(), ==, 0);
    closed(c);
    done();
}

/* A hold that was renewed after that ends by the new time, and the line knows it. */
static void stepped_back_while_held(void)
{
    static const char end[] = "SELECT max(expiry) FROM holdfast.ticket";
    struct two t;
    int64_t before;

    postgres_init(&server);
    server_clock_able(&server);
    use_server("");
    t = hold_and_wait(SHORT_MS);
    before = postgres_number(&server, "%s", end);
    server_clock_step(&server, -3600 * 1000);
    AWAIT(postgres_number(&server, "%s", end) < before);
    CHECK(lines_whole());
    two_go_on(&t);
    done();
}

/* Every time is over: the holder is told at its next renewal, and whoever waited, too,
 * stands in line again. */
static void clock_stepped_forward(void)
{
    struct two t;
    hf_lease *next;

    postgres_init(&server);
    server_clock_able(&server);
    use_server("");
    t = hold_and_wait(SHORT_MS);
    server_clock_step(&server, 3600 * 1000);
    next = pend_granted(t.waits);
    CHECK_NUM(hf_lease_fence(next), >, t.fence);
    AWAIT(hf_lease_check(t.held) == HF_ELOST);
    CHECK_RC(hf_lease_check(next), 0);
    given(next);
    rig.face->release(t.held, E());
    AWAIT(tickets() == 0);
    CHECK(lines_whole());
    closed(t.a);
    closed(t.b);
    done();
}

/* ---- who may ---------------------------------------------------------------------- */

/* What is printed for an administrator is enough. */
static void rights_missing(void)
{
    char url[256], *text = NULL;
    hf_client *c;

    use_plain_server("");
    postgres_do(&server, "CREATE ROLE app LOGIN");
    snprintf(url, sizeof(url), "postgres://app@127.0.0.1:%d/postgres", server.port);
    expect_refusal(url, HF_EAUTH, "holdfast schema");
    CHECK_RC(hf_admin_text(url, &text, E()), 0);
    postgres_do(&server, "%s", text);
    free(text);
    c = opened_at(url, NULL);
    given(taken(c, nm("'; DROP SCHEMA holdfast CASCADE; --"), NULL));
    given(taken(c, nm("n"), NULL));
    closed(c);
    done();
}

static void password_wrong(void)
{
    char url[256];

    postgres_init(&server);
    ask_password();
    use_server("");
    postgres_do(&server, "CREATE ROLE app LOGIN PASSWORD 'right'");
    snprintf(url, sizeof(url), "postgres://app:wrong@127.0.0.1:%d/postgres", server.port);
    expect_refusal(url, HF_EAUTH, "password");
    CHECK(!strstr(last_error()->text, "wrong"));
    snprintf(url, sizeof(url), "postgres://app@127.0.0.1:%d/postgres", server.port);
    expect_refusal(url, HF_EAUTH, "password");
    snprintf(url, sizeof(url), "postgres://app:right@127.0.0.1:%d/nosuch", server.port);
    expect_refusal(url, HF_EINVAL, "nosuch");
    done();
}

static bool is_read_only(void)
{
    char info[256];
    PGconn *c;
    PGresult *r;
    bool on;

    snprintf(info, sizeof(info), "host=%s port=%d user=holdfast dbname=postgres",
             server.dir, server.port);
    c = PQconnectdb(info);
    r = PQexec(c, "SHOW transaction_read_only");
    on = PQntuples(r) == 1 && strcmp(PQgetvalue(r, 0, 0), "on") == 0;
    PQclear(r);
    PQfinish(c);
    return on;
}

/* By the socket in a folder; the user stands before it. */
static void by_socket(void)
{
    char url[512];
    hf_client *c;

    use_plain_server("");
    snprintf(url, sizeof(url), "postgres://holdfast@/postgres?host=%s&port=%d", server.dir,
             server.port);
    c = opened_at(url, NULL);
    given(taken(c, nm("n"), NULL));
    closed(c);
    snprintf(url, sizeof(url), "postgresql:///postgres?host=%s&port=%d&user=holdfast",
             server.dir, server.port);
    c = opened_at(url, NULL);
    given(taken(c, nm("n"), NULL));
    closed(c);
    CHECK_RC(rig.face->open("postgres://h/db?host=/run", NULL, &c, E()), HF_EINVAL);
    CHECK_RC(rig.face->open("postgres://h/db?frobnicate=1", NULL, &c, E()), HF_EINVAL);
    CHECK_RC(rig.face->open("postgres://h/db?tls_ca=/ca.pem", NULL, &c, E()), HF_EINVAL);
    CHECK(strstr(last_error()->text, "sslrootcert"));
    done();
}

/* Refused at first, waited out later. */
static void read_only(void)
{
    struct two t;

    use_plain_server("");
    t = hold_and_wait(60000);
    postgres_do(&server, "ALTER SYSTEM SET default_transaction_read_only = on");
    postgres_do(&server, "SELECT pg_reload_conf()");
    AWAIT(is_read_only());
    end_sessions();
    expect_refusal(rig.place->url, HF_ENOTSUP, "read-only");
    CHECK_RC(hf_lease_check(t.held), 0);
    postgres_do(&server, "ALTER SYSTEM RESET default_transaction_read_only");
    postgres_do(&server, "SELECT pg_reload_conf()");
    AWAIT(both_answer(&t));
    two_go_on(&t);
    done();
}

/* The connection for messages is the one too many, then the one for commands. */
static void too_many_clients(void)
{
    hf_client *c, *late;
    hf_lease *l = NULL;

    postgres_init(&server);
    postgres_config(&server, "max_connections = 6\nsuperuser_reserved_connections = 3");
    use_server("");
    postgres_do(&server, "CREATE ROLE app LOGIN");
    given(taken(c = opened(), nm("n"), NULL)); /* makes the schema */
    closed(c);
    postgres_do(&server, "ALTER ROLE app CONNECTION LIMIT 1;"
                         " GRANT ALL ON SCHEMA holdfast TO app;"
                         " GRANT ALL ON ALL TABLES IN SCHEMA holdfast TO app");
    snprintf(rig.place->url, sizeof(rig.place->url),
             "postgres://app@127.0.0.1:%d/postgres?connect_timeout=3s", server.port);
    c = opened();
    l = taken(c, nm("n"), NULL);
    late = opened();
    {
        hf_lease *none = NULL;

        CHECK_RC(rig.face->acquire(late, nm("m"), LIMIT_MS, NULL, &none, E()),
                 HF_EUNREACHABLE);
        CHECK(strstr(last_error()->text, "too many"));
    }
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    closed(c);
    AWAIT(tried(late, nm("m"), NULL) == 0);
    closed(late);
    done();
}

const struct test_case postgres_server_cases[] = {
    { "ended-in-statement", ended_in_statement, ON_ALL, 0, 0 },
    { "replica-promoted", replica_promoted, ON_ALL, 0, 0 },
    { "read-committed", read_committed, ON_ALL, 0, 0 },
    { "repeatable-read", repeatable_read, ON_ALL, 0, 0 },
    { "serializable", serializable, ON_ALL, 0, 0 },
    { "limits-are-low", limits_are_low, ON_ALL, 0, 0 },
    { "limit-while-locked", limit_while_locked, ON_ALL, 0, 0 },
    { "clock-stepped-forward", clock_stepped_forward, ON_ALL, 0, 0 },
    { "stepped-back-while-held", stepped_back_while_held, ON_ALL, 0, 0 },
    { "rights-missing", rights_missing, ON_ALL, 0, 0 },
    { "password-wrong", password_wrong, ON_ALL, 0, 0 },
    { "by-socket", by_socket, ON_ALL, 0, 0 },
    { "read-only", read_only, ON_ALL, 0, 0 },
    { "too-many-clients", too_many_clients, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
