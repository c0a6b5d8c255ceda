/* driver.c: the mysql driver's face: what a URL says, opening, closing, the table of verbs.
 * Opening only begins: names are looked up and the server is greeted by the loop, and the
 * core hears UP or why not. Closing is at once: what could be settled was settled before.
 */
#include "driver/mysql/mysql.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS "mode wake crash socket ssl ssl_ca ssl_cert ssl_key password_file"

enum { PORT = 3306, DATABASE_MAX = 64 };

/* ---- the URL --------------------------------------------------------------------- */

static int check_database(const struct sql *s, const struct url *url, hf_error *err)
{
    if (!s->database[0])
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "URL: the database is missing: mysql://host/database");
    if (strlen(s->database) > DATABASE_MAX)
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "URL: the name of the database is longer than %d bytes",
                        DATABASE_MAX);
    return 0;
}

static int read_place(struct mysql *m, const struct url *url, hf_error *err)
{
    m->socket = hf__sql_param(&m->sql, "socket");
    if (!m->socket && url->nhosts == 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: the server is missing");
    if (m->socket && (url->nhosts > 0 || m->socket[0] != '/'))
        return hf__fail(
            err, HF_EINVAL, 0, url->shown,
            "URL: socket= is an absolute path, and takes the place of a server");
    return 0;
}

static int read_wake(struct mysql *m, const struct url *url, hf_error *err)
{
    int rc = hf__sql_read_wake(url, &m->polls, err);

    m->polls = m->polls || m->sql.mode != SQL_LINE;
    m->sql.heard = !m->polls;
    return rc;
}

static int read_mode(struct mysql *m, const struct url *url, hf_error *err)
{
    int rc = hf__sql_read_mode(&m->sql, url, "named", err);

    m->sql.store.caps &= m->sql.mode == SQL_SERVER ? ~(uint32_t)HF_CAP_SHARED : UINT32_MAX;
    return rc;
}

static int read_tls(struct mysql *m, const struct url *url, hf_error *err)
{
    static const char *const words[] = {
        [TLS_OFF] = "off", [TLS_ON] = "on", [TLS_VERIFY] = "verify"
    };
    const char *ssl = hf__url_param(url, "ssl");

    m->tls = TLS_IF_OFFERED;
    for (unsigned i = TLS_OFF; ssl && i <= TLS_VERIFY; i++)
        if (strcmp(ssl, words[i]) == 0)
            m->tls = (enum my_tls)i;
    return !ssl || m->tls != TLS_IF_OFFERED
               ? 0
               : hf__fail(err, HF_EINVAL, 0, url->shown,
                          "URL: ssl=%s: it is off, on or verify", ssl);
}

int hf__mysql_read_url(struct sql *s, const struct url *url, hf_error *err)
{
    static const struct opening_rules rules = {
        .params = OPTIONS,
        .port = PORT,
        .tls_schemes = "another store: here they are ssl=, ssl_ca=, ssl_cert=, ssl_key=",
    };
    struct mysql *m = mysql_of(s);
    int rc = hf__opening_read(&s->open, url, s->store.env, &rules, err);

    s->shown = s->open.shown;
    if (rc == 0)
        rc = check_database(s, url, err);
    if (rc == 0)
        rc = read_place(m, url, err);
    if (rc == 0)
        rc = read_mode(m, url, err);
    if (rc == 0)
        rc = read_wake(m, url, err);
    if (rc == 0)
        rc = hf__mysql_read_crash(m, url, err);
    return rc == 0 ? read_tls(m, url, err) : rc;
}

/* ---- opening and closing --------------------------------------------------------- */

void hf__mysql_begin(struct sql *s)
{
    struct mysql *m = mysql_of(s);

    s->commands = &m->commands.c;
    hf__sql_conn_init(s->commands, s, hf__mysql_greet);
    hf__mysql_wake_init(m);
}

void hf__mysql_end(struct sql *s)
{
    hf__mysql_fast_done(mysql_of(s));
    hf__mysql_wake_done(s);
}

/* The library does it itself at the first connection, but not for two threads at once. What
 * it sets for SIGPIPE is not ours to set; it needs it only where send() knows no flag. */
static void prepare_library(void)
{
    struct sigaction before;

    sigaction(SIGPIPE, NULL, &before);
    mysql_library_init(0, NULL, NULL);
    sigaction(SIGPIPE, &before, NULL);
}

static int mysql_open(struct store **ret, const struct url *url, struct env *env,
                      hf_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, prepare_library);
    return hf__sql_open(&hf__mysql_wire, ret, url, env, err);
}

static void mysql_detail(char *text, size_t size)
{
    snprintf(text, size, "MariaDB 10.6 or later; Connector/C %s", mysql_get_client_info());
}

/* Names are between backticks, where a backslash is nothing special. */
static char *mysql_admin(const struct url *url, hf_error *err)
{
    const char *path = url->path && url->path[0] == '/' ? url->path + 1 : "";
    struct text t = { 0 };

    if (path[0]) {
        hf__text_add(&t, "CREATE DATABASE IF NOT EXISTS ");
        hf__sql_quote(&t, '`', path);
        hf__text_add(&t, ";\nUSE ");
        hf__sql_quote(&t, '`', path);
        hf__text_add(&t, ";\n");
    }
    hf__text_add(&t, "%s", hf__mysql_schema);
    if (path[0] && url->user && url->user[0]) {
        hf__text_add(&t, "GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON ");
        hf__sql_quote(&t, '`', path);
        hf__text_add(&t, ".* TO ");
        hf__sql_quote(&t, '`', url->user);
        hf__text_add(&t, "@'%%'\n$$\n");
    }
    hf__text_add(&t, "DELIMITER ;\n");
    return hf__sql_admin_text(&t, err);
}

const struct hf_driver hf__driver_mysql = {
    .name = "mysql",
    .schemes = "mysql mariadb",
    .open = mysql_open,
    SQL_DRIVER,
    .life_fds = hf__mysql_life_fds,
    .detail = mysql_detail,
    .admin = mysql_admin,
};
