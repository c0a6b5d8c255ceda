/* postgres_fault.c: how the fault tests start, ask and break PostgreSQL. */
#include "postgres_fault.h"

#include <stdio.h>
#include <string.h>

void set_url(char *url, size_t size, int port, const char *params)
{
    snprintf(url, size, "postgres://holdfast@127.0.0.1:%d/postgres%s", port, params);
}

void make_server(void)
{
    postgres_init(&server);
}

void run_server(void)
{
    postgres_run(&server);
}

void kill_server(void)
{
    postgres_kill(&server);
}

void remove_server(void)
{
    postgres_remove(&server);
}

int64_t end_sessions(void)
{
    return postgres_number(&server, "SELECT count(pg_terminate_backend(pid)) FROM "
                                    "pg_stat_activity WHERE application_name = 'holdfast'");
}

int64_t tickets(void)
{
    return postgres_number(&server, "SELECT count(*) FROM holdfast.ticket");
}

int64_t line_rows(void)
{
    return postgres_number(&server, "SELECT count(*) FROM holdfast.line");
}

void age_and_sweep(int64_t ms)
{
    postgres_do(&server, "UPDATE holdfast.line SET touched = 0");
    CHECK_NUM(postgres_number(&server, "SELECT (holdfast.sweep(%lld))[1]", (long long)ms),
              ==, 1);
}

bool lines_whole(void)
{
    return postgres_number(&server,
                           "SELECT count(*) FROM holdfast.line l, LATERAL (SELECT"
                           " count(*) FILTER (WHERE t.state = 1) n,"
                           " count(*) FILTER (WHERE t.state = 0) nw,"
                           " coalesce(sum(t.weight) FILTER (WHERE t.state = 1), 0) sum,"
                           " min(t.expiry) FILTER (WHERE t.state = 1) soonest"
                           " FROM holdfast.ticket t WHERE t.line = l.id) t"
                           " WHERE l.n <> t.n OR l.nw <> t.nw OR l.sum <> t.sum"
                           " OR l.soonest > t.soonest OR (l.n > 0 AND l.sum > l.cap)") == 0;
}

PGconn *begun_session(void)
{
    char info[512];
    PGconn *c;

    snprintf(info, sizeof(info), "host=%s port=%d user=holdfast dbname=postgres",
             server.dir, server.port);
    c = PQconnectdb(info);
    CHECK(PQstatus(c) == CONNECTION_OK);
    PQclear(PQexec(c, "BEGIN"));
    return c;
}

PGconn *lock_line(const char *name)
{
    const char *const values[] = { name };
    PGconn *c = begun_session();
    PGresult *r = PQexecParams(c,
                               "SELECT 1 FROM holdfast.line WHERE name = convert_to($1, "
                               "'UTF8') FOR UPDATE",
                               1, NULL, values, NULL, NULL, 0);

    CHECK(PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) == 1);
    PQclear(r);
    return c;
}

PGconn *lock_table(const char *name)
{
    PGconn *c = begun_session();
    char text[128];
    PGresult *r;

    snprintf(text, sizeof(text), "LOCK TABLE %s", name);
    r = PQexec(c, text);
    CHECK(PQresultStatus(r) == PGRES_COMMAND_OK);
    PQclear(r);
    return c;
}

void unlock_line(PGconn *c)
{
    PQclear(PQexec(c, "ROLLBACK"));
    PQfinish(c);
}

void ask_password(void)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/data", server.dir);
    file_put(path, "pg_hba.conf", "w",
             "local all all trust\nhost all holdfast 127.0.0.1/32 trust\n"
             "host all app 127.0.0.1/32 scram-sha-256\n");
}

atomic_int warned;

void hear(void *user, int level, const char *name, const char *text)
{
    (void)name;
    if (level == HF_LOG_WARN && strstr(text, user))
        atomic_fetch_add(&warned, 1);
}
