/* fence-postgres.c: a row of PostgreSQL that only the holder of a lock can write.
 *
 * The fence is a column of the row, and the statement that writes compares it: one atomic
 * step, whatever else runs. Goes well: see paused.h. Goes wrong: no row was changed, so the
 * writer knows that another one holds the name now.
 *
 * Several statements are guarded by the first one of their transaction:
 *     UPDATE report SET fence = $2 WHERE name = $1 AND fence <= $2
 * keeps the row locked until the commit; if it changed no row: ROLLBACK.
 *
 *     cc fence-postgres.c $(pkg-config --cflags --libs holdfast libpq) -pthread
 *     ./a.out postgres://me@host/mydb
 *
 * The lock may be in any store (HOLDFAST_URL), the table in any database (the argument, or
 * the URL of the lock); here both may be the same server.
 */
#include "paused.h"

#include <inttypes.h>
#include <libpq-fe.h>

struct resource {
    PGconn *conn;
};

static const char *database;

static PGresult *execute(struct resource *r, const char *sql, int n,
                         const char *const *values)
{
    return PQexecParams(r->conn, sql, n, NULL, values, NULL, NULL, 0);
}

struct resource *resource_open(void)
{
    struct resource *r = malloc(sizeof *r);

    if (!r)
        return NULL;
    r->conn = PQconnectdb(database);
    PQclear(execute(r, "SET client_min_messages = warning", 0, NULL));
    PQclear(execute(r,
                    "CREATE TABLE IF NOT EXISTS report "
                    "(name text PRIMARY KEY, fence bigint NOT NULL, text text NOT NULL)",
                    0, NULL));
    if (PQstatus(r->conn) == CONNECTION_OK)
        return r;
    fprintf(stderr, "%s", PQerrorMessage(r->conn));
    resource_close(r);
    return NULL;
}

int resource_write(struct resource *r, uint64_t fence, const char *text)
{
    char number[24];
    const char *values[] = { "weekly", number, text };

    snprintf(number, sizeof number, "%" PRIu64, fence);
    PGresult *result = execute(r,
                               "INSERT INTO report AS old VALUES ($1, $2, $3) "
                               "ON CONFLICT (name) DO UPDATE "
                               "SET fence = excluded.fence, text = excluded.text "
                               "WHERE old.fence <= excluded.fence",
                               3, values);
    int changed = -1;
    if (PQresultStatus(result) == PGRES_COMMAND_OK)
        changed = atoi(PQcmdTuples(result));
    else
        fprintf(stderr, "%s", PQresultErrorMessage(result));
    PQclear(result);
    return changed;
}

void resource_read(struct resource *r, char *text, size_t size)
{
    PGresult *result = execute(r, "SELECT text FROM report WHERE name = 'weekly'", 0, NULL);

    snprintf(text, size, "%s", PQntuples(result) == 1 ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
}

void resource_close(struct resource *r)
{
    PQfinish(r->conn);
    free(r);
}

int main(int argc, char **argv)
{
    const char *url = getenv("HOLDFAST_URL");

    database = argc > 1 ? argv[1] : url ? url : "";
    return paused_main(url);
}
