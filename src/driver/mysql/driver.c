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

#define OPTIONS "wake socket ssl ssl_ca ssl_cert ssl_key password_file"

enum { PORT = 3306, DATABASE_MAX = 64 };

/* ---- the URL --------------------------------------------------------------------- */

static int no_memory(hf_error *err)
{
    return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
}

static int read_database(struct mysql *m, const struct url *url, hf_error *err)
{
    const char *path = url->path[0] == '/' ? url->path + 1 : url->path;

    if (!path[0])
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "URL: the database is missing: mysql://host/database");
    if (strlen(path) > DATABASE_MAX)
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "URL: the name of the database is longer than %d bytes",
                        DATABASE_MAX);
    m->database = strdup(path);
    return m->database ? 0 : no_memory(err);
}

static int read_place(struct mysql *m, const struct url *url, hf_error *err)
{
    const char *socket = hf__url_param(url, "socket");

    if (!socket && url->nhosts == 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: the server is missing");
    if (!socket)
        return 0;
    if (url->nhosts > 0 || socket[0] != '/')
        return hf__fail(
            err, HF_EINVAL, 0, url->shown,
            "URL: socket= is an absolute path, and takes the place of a server");
    m->socket = strdup(socket);
    return m->socket ? 0 : no_memory(err);
}

static int read_wake(struct mysql *m, const struct url *url, hf_error *err)
{
    const char *wake = hf__url_param(url, "wake");

    if (wake && strcmp(wake, "poll") != 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: wake=%s: only poll is known",
                        wake);
    m->polls = wake != NULL;
    m->sql.heard = !wake;
    return 0;
}

static int copy(char **to, const char *from, hf_error *err)
{
    *to = from ? strdup(from) : NULL;
    return from && !*to ? no_memory(err) : 0;
}

static int read_tls(struct mysql *m, const struct url *url, hf_error *err)
{
    const char *ssl = hf__url_param(url, "ssl");
    int rc = copy(&m->ssl_ca, hf__url_param(url, "ssl_ca"), err);

    if (ssl && strcmp(ssl, "off") != 0 && strcmp(ssl, "on") != 0 &&
        strcmp(ssl, "verify") != 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "URL: ssl=%s: it is off, on or verify", ssl);
    m->tls = !ssl                      ? TLS_IF_OFFERED
             : strcmp(ssl, "off") == 0 ? TLS_OFF
             : strcmp(ssl, "on") == 0  ? TLS_ON
                                       : TLS_VERIFY;
    if (rc == 0)
        rc = copy(&m->ssl_cert, hf__url_param(url, "ssl_cert"), err);
    return rc == 0 ? copy(&m->ssl_key, hf__url_param(url, "ssl_key"), err) : rc;
}

static int read_url(struct mysql *m, const struct url *url, hf_error *err)
{
    static const struct opening_rules rules = {
        .params = OPTIONS,
        .port = PORT,
        .tls_schemes = "another store: here they are ssl=, ssl_ca=, ssl_cert=, ssl_key=",
    };
    int rc = hf__opening_read(&m->sql.open, url, m->sql.store.env, &rules, err);

    m->sql.shown = m->sql.open.shown;
    if (rc == 0)
        rc = read_database(m, url, err);
    if (rc == 0)
        rc = read_place(m, url, err);
    if (rc == 0)
        rc = read_wake(m, url, err);
    return rc == 0 ? read_tls(m, url, err) : rc;
}

/* ---- opening and closing --------------------------------------------------------- */

static void free_mysql(struct mysql *m)
{
    hf__mysql_conn_done(&m->commands);
    hf__mysql_wake_done(m);
    free(m->ssl_ca);
    free(m->ssl_cert);
    free(m->ssl_key);
    free(m->database);
    free(m->socket);
    hf__sql_done(&m->sql);
    free(m);
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
    struct mysql *m = calloc(1, sizeof *m);
    int rc;

    if (!m)
        return no_memory(err);
    pthread_once(&once, prepare_library);
    m->sql.store.driver = &hf__driver_mysql;
    m->sql.wire = &hf__mysql_wire;
    list_init(&m->dirty);
    rc = hf__sql_init(&m->sql, url, env);
    if (rc < 0)
        no_memory(err);
    if (rc == 0)
        rc = read_url(m, url, err);
    if (rc < 0) {
        free_mysql(m);
        return rc;
    }
    hf__mysql_conn_init(&m->commands, m, hf__mysql_greet);
    hf__mysql_wake_init(m);
    hf__link_start(&m->commands.link);
    *ret = &m->sql.store;
    return 0;
}

static void mysql_shut(struct store *s)
{
    struct mysql *m = mysql_of(sql_of(s));
    struct list *n;

    while ((n = list_first(&m->sql.looks)) != NULL)
        hf__sql_stop(s, container_of(n, struct look, drv_node), NULL);
    while ((n = list_first(&m->sql.cells)) != NULL)
        hf__sql_stop(s, NULL, container_of(n, struct cell, drv_node));
    hf__mysql_flush(m);
    free_mysql(m);
}

static void mysql_flush(struct store *s)
{
    hf__mysql_flush(mysql_of(sql_of(s)));
}

static void mysql_forked(struct store *s)
{
    struct mysql *m = mysql_of(sql_of(s));

    hf__mysql_conn_forked(&m->commands);
    for (size_t i = 0; i < MY_WAKERS; i++)
        hf__mysql_conn_forked(&m->wakers[i].conn);
}

static void mysql_detail(char *text, size_t size)
{
    snprintf(text, size, "MariaDB 10.6 or later; Connector/C %s", mysql_get_client_info());
}

/* A name, as SQL quotes it. */
static void add_name(struct text *t, const char *name)
{
    hf__text_add(t, "`");
    for (; *name; name++)
        hf__text_add(t, *name == '`' ? "``" : "%c", *name);
    hf__text_add(t, "`");
}

/* Names are between backticks, where a backslash is nothing special. */
static char *mysql_admin(const struct url *url, hf_error *err)
{
    const char *path = url->path && url->path[0] == '/' ? url->path + 1 : "";
    struct text t = { 0 };
    char *made;

    if (path[0]) {
        hf__text_add(&t, "CREATE DATABASE IF NOT EXISTS ");
        add_name(&t, path);
        hf__text_add(&t, ";\nUSE ");
        add_name(&t, path);
        hf__text_add(&t, ";\n");
    }
    hf__text_add(&t, "%s", hf__mysql_schema);
    if (path[0] && url->user && url->user[0]) {
        hf__text_add(&t, "GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON ");
        add_name(&t, path);
        hf__text_add(&t, ".* TO ");
        add_name(&t, url->user);
        hf__text_add(&t, "@'%%'\n$$\n");
    }
    hf__text_add(&t, "DELIMITER ;\n");
    made = hf__text_take(&t);
    if (!made)
        no_memory(err);
    return made;
}

const struct hf_driver hf__driver_mysql = {
    .name = "mysql",
    .schemes = "mysql mariadb",
    .open = mysql_open,
    .close = mysql_shut,
    .join = hf__sql_join,
    .leave = hf__sql_leave,
    .amend = hf__sql_amend,
    .renew = hf__sql_renew,
    .look = hf__sql_look,
    .cell = hf__sql_cell,
    .evict = hf__sql_evict,
    .stop = hf__sql_stop,
    .flush = mysql_flush,
    .forked = mysql_forked,
    .detail = mysql_detail,
    .admin = mysql_admin,
};
