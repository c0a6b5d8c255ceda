/* mariadb.c: makes, starts and asks MariaDB servers. Goes wrong: a server that does not
 * answer in time fails the test, and its log is printed. */
#include "mariadb.h"

#include "check.h"

#include <mysql.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char base_config[] = "[mariadbd]\n"
                                  "bind-address=127.0.0.1\n"
                                  "skip-name-resolve\n"
                                  "max-connections=300\n"
                                  "innodb-buffer-pool-size=32M\n"
                                  "innodb-log-file-size=16M\n"
                                  "innodb-fast-shutdown=2\n"
                                  "innodb-use-native-aio=0\n"
                                  "performance-schema=off\n";

static const char first_statements[] = "CREATE DATABASE IF NOT EXISTS holdfast;\n"
                                       "CREATE USER IF NOT EXISTS holdfast@'%';\n"
                                       "GRANT ALL ON holdfast.* TO holdfast@'%';\n";

void mariadb_make(struct server *s)
{
    char command[1024];

    server_init(s, "mariadb");
    snprintf(s->socket, sizeof(s->socket), "%s/socket", s->dir);
    snprintf(command, sizeof(command),
             "cd '%s' && mariadb-install-db --no-defaults --datadir='%s/data' --tmpdir='%s'"
             " --auth-root-authentication-method=normal --skip-test-db --skip-name-resolve"
             " --innodb-log-file-size=16M --innodb-use-native-aio=0 --user=$(id -un) "
             ">made.log 2>&1",
             s->dir, s->dir, s->dir);
    if (system(command) != 0)
        check_failed(__FILE__, __LINE__, "failed: %s", command);
    file_put(s->dir, "config", "w", base_config);
    file_put(s->dir, "first.sql", "w", first_statements);
    mariadb_config(s, "datadir=%s/data", s->dir);
    mariadb_config(s, "tmpdir=%s", s->dir); /* not shared: servers fall over each other */
    mariadb_config(s, "socket=%s", s->socket);
    mariadb_config(s, "port=%d", s->port);
    mariadb_config(s, "pid-file=%s/pid", s->dir);
    mariadb_config(s, "init-file=%s/first.sql", s->dir);
}

void mariadb_config(struct server *s, const char *option, ...)
{
    char text[512];
    va_list ap;
    int n;

    va_start(ap, option);
    n = vsnprintf(text, sizeof(text) - 1, option, ap);
    va_end(ap);
    CHECK(n > 0 && n < (int)sizeof(text) - 1);
    strcpy(text + n, "\n");
    file_put(s->dir, "config", "a", text);
}

/* NULL: nobody there. */
static MYSQL *enter(struct server *s)
{
    unsigned seconds = (unsigned)(LIMIT_MS / 1000);
    MYSQL *c = mysql_init(NULL);

    CHECK(c);
    mysql_options(c, MYSQL_OPT_CONNECT_TIMEOUT, &seconds);
    mysql_options(c, MYSQL_INIT_COMMAND, "SET SESSION max_statement_time=0");
    if (mysql_real_connect(c, NULL, "root", "", "holdfast", 0, s->socket,
                           CLIENT_MULTI_STATEMENTS))
        return c;
    mysql_close(c);
    return NULL;
}

static bool answers(struct server *s)
{
    MYSQL *c;

    server_must_run(s);
    c = enter(s);
    if (c)
        mysql_close(c);
    return c != NULL;
}

void mariadb_run(struct server *s)
{
    char defaults[300], user[] = "--user=root";
    char *argv[] = { (char *)"mariadbd", defaults, getuid() == 0 ? user : NULL, NULL };

    snprintf(defaults, sizeof(defaults), "--defaults-file=%s/config", s->dir);
    unlink(s->socket);
    server_spawn(s, "/usr/sbin/mariadbd", argv);
    AWAIT(answers(s));
}

void mariadb_begin(struct server *s)
{
    mariadb_make(s);
    mariadb_run(s);
}

/* ---- asking ---------------------------------------------------------------------- */

/* A procedure ends with a result without rows. */
static void read_result(MYSQL *c, int64_t *ret)
{
    MYSQL_RES *r = mysql_store_result(c);
    MYSQL_ROW row = r ? mysql_fetch_row(r) : NULL;

    if (row)
        *ret = row[0] ? strtoll(row[0], NULL, 10) : 0;
    if (r)
        mysql_free_result(r);
}

static int64_t __attribute__((format(printf, 2, 0)))
ask(struct server *s, const char *fmt, va_list ap)
{
    static char text[1 << 16];
    MYSQL *c = enter(s);
    int64_t number = 0;
    int rc;

    if (!c)
        check_failed(__FILE__, __LINE__, "the server on port %d is not there", s->port);
    CHECK(vsnprintf(text, sizeof(text), fmt, ap) < (int)sizeof(text));
    rc = mysql_query(c, text);
    while (rc == 0) {
        read_result(c, &number);
        rc = mysql_next_result(c);
    }
    if (rc > 0)
        check_failed(__FILE__, __LINE__, "%s: %s", text, mysql_error(c));
    mysql_close(c);
    return number;
}

void mariadb_do(struct server *s, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    ask(s, fmt, ap);
    va_end(ap);
}

int64_t mariadb_number(struct server *s, const char *fmt, ...)
{
    int64_t number;
    va_list ap;

    va_start(ap, fmt);
    number = ask(s, fmt, ap);
    va_end(ap);
    return number;
}

void mariadb_script(struct server *s, const char *text)
{
    char command[512];
    FILE *f;

    snprintf(command, sizeof(command), "mariadb --no-defaults -S '%s' -u root >/dev/null",
             s->socket);
    f = popen(command, "w");
    CHECK(f);
    CHECK(fputs(text, f) >= 0);
    CHECK(pclose(f) == 0);
}

int64_t mariadb_work(struct server *s)
{
    return mariadb_number(s, "SELECT variable_value FROM information_schema.global_status"
                             " WHERE variable_name='COM_STMT_EXECUTE'");
}
