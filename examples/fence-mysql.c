/* fence-mysql.c: a row of MariaDB or MySQL that only the holder of a lock can write.
 *
 * The fence is a column of the row, and the statement that writes compares it: one atomic
 * step, whatever else runs. Goes well: see paused.h. Goes wrong: no row was found, so the
 * writer knows that another one holds the name now. CLIENT_FOUND_ROWS matters: else the
 * server counts rows that have changed, and to write the same again would look refused.
 *
 * Several statements are guarded by the first one of their transaction:
 *     UPDATE report SET fence = ? WHERE name = ? AND fence <= ?
 * keeps the row locked until the commit; if it found no row: ROLLBACK.
 *
 *     cc fence-mysql.c $(pkg-config --cflags --libs holdfast libmariadb) -pthread
 *     ./a.out mysql://me@127.0.0.1:3306/mydb
 *
 * The lock may be in any store (HOLDFAST_URL), the table in any database (the argument, or
 * the URL of the lock). A password is taken from $MYSQL_PWD.
 */
#include "paused.h"

#include <mysql.h>

struct resource {
    MYSQL *conn;
};

static char user[64], host[256], database[64];
static unsigned port;

static bool execute(struct resource *r, const char *sql)
{
    if (mysql_query(r->conn, sql) == 0)
        return true;
    fprintf(stderr, "%s\n", mysql_error(r->conn));
    return false;
}

struct resource *resource_open(void)
{
    struct resource *r = malloc(sizeof *r);

    if (!r)
        return NULL;
    r->conn = mysql_init(NULL);
    if (r->conn &&
        mysql_real_connect(r->conn, host, user, getenv("MYSQL_PWD"), database, port, NULL,
                           CLIENT_FOUND_ROWS) &&
        execute(r, "CREATE TABLE IF NOT EXISTS report (name varchar(64) PRIMARY KEY, "
                   "fence bigint unsigned NOT NULL, text varchar(64) NOT NULL) "
                   "ENGINE=InnoDB") &&
        execute(r, "INSERT IGNORE INTO report VALUES ('weekly', 0, '')"))
        return r;
    fprintf(stderr, "%s\n", r->conn ? mysql_error(r->conn) : "no memory");
    resource_close(r);
    return NULL;
}

static void bind_text(MYSQL_BIND *b, const char *text)
{
    *b = (MYSQL_BIND){ .buffer_type = MYSQL_TYPE_STRING,
                       .buffer = (void *)(uintptr_t)text,
                       .buffer_length = strlen(text) };
}

static void bind_number(MYSQL_BIND *b, uint64_t *number)
{
    *b = (MYSQL_BIND){ .buffer_type = MYSQL_TYPE_LONGLONG,
                       .buffer = number,
                       .is_unsigned = 1 };
}

int resource_write(struct resource *r, uint64_t fence, const char *text)
{
    static const char sql[] =
        "UPDATE report SET fence = ?, text = ? WHERE name = 'weekly' AND fence <= ?";
    MYSQL_STMT *statement = mysql_stmt_init(r->conn);
    MYSQL_BIND values[3];
    int found = -1;

    bind_number(&values[0], &fence);
    bind_text(&values[1], text);
    bind_number(&values[2], &fence);
    if (statement && mysql_stmt_prepare(statement, sql, sizeof sql - 1) == 0 &&
        mysql_stmt_bind_param(statement, values) == 0 && mysql_stmt_execute(statement) == 0)
        found = (int)mysql_stmt_affected_rows(statement);
    else
        fprintf(stderr, "%s\n", mysql_error(r->conn));
    if (statement)
        mysql_stmt_close(statement);
    return found;
}

void resource_read(struct resource *r, char *text, size_t size)
{
    MYSQL_RES *result = execute(r, "SELECT text FROM report WHERE name = 'weekly'")
                            ? mysql_store_result(r->conn)
                            : NULL;
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;

    snprintf(text, size, "%s", row && row[0] ? row[0] : "");
    mysql_free_result(result);
}

void resource_close(struct resource *r)
{
    mysql_close(r->conn);
    free(r);
}

int main(int argc, char **argv)
{
    const char *url = getenv("HOLDFAST_URL"), *where = argc > 1 ? argv[1] : url;
    const char *rest = where ? strstr(where, "://") : NULL;

    if (!rest || sscanf(rest, "://%63[^:@]@%255[^:/]:%u/%63[^?]", user, host, &port,
                        database) != 4) {
        fprintf(stderr, "usage: %s mysql://USER@HOST:PORT/DATABASE\n", argv[0]);
        return 1;
    }
    return paused_main(url);
}
