/* connect.c: how a connection of the library comes up: one address at a time, another one
 * for each attempt.
 *
 * Names are looked up by src/net, because the library would block the loop for it. Only if
 * the server's certificate is to be verified the library gets the name itself, and looks it
 * up once more: it has no other way to learn which name the certificate must have. */
#include "driver/mysql/mysql.h"

#include <mysqld_error.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

enum { STACK = 256 * 1024 };

/* ---- what the library is given --------------------------------------------------- */

static void set_file(MYSQL *my, enum mysql_option option, const char *path)
{
    if (path)
        mysql_options(my, option, path);
}

static void set_tls(const struct my_conn *c)
{
    const struct sql *s = c->c.sql;
    enum my_tls tls = mysql_of(c->c.sql)->tls;
    my_bool yes = 1;

    if (tls == TLS_OFF)
        return;
    set_file(c->my, MYSQL_OPT_SSL_CA, hf__sql_param(s, "ssl_ca"));
    set_file(c->my, MYSQL_OPT_SSL_CERT, hf__sql_param(s, "ssl_cert"));
    set_file(c->my, MYSQL_OPT_SSL_KEY, hf__sql_param(s, "ssl_key"));
    if (tls != TLS_IF_OFFERED)
        mysql_options(c->my, MYSQL_OPT_SSL_ENFORCE, &yes);
    if (tls == TLS_VERIFY)
        mysql_options(c->my, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &yes);
}

/* A limit of the server must not end an idle session, nor keep an open transaction of a
 * client that has stopped. A row that somebody else has locked is waited for a second: then
 * the call is undone, others get in, and it is sent again. */
static void set_options(struct my_conn *c)
{
    const char *const first[] = {
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET SESSION sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit=1,"
        " completion_type=NO_CHAIN,"
        " wait_timeout=31536000, max_statement_time=0,"
        " idle_transaction_timeout=5, idle_write_transaction_timeout=5,"
        " innodb_lock_wait_timeout=1, lock_wait_timeout=1, group_concat_max_len=1048576",
        /* one of a ticket: its transaction is open, its waits have no end; one that nobody
         * uses goes by itself */
        c->c.session ? "SET SESSION wait_timeout=60, idle_transaction_timeout=0,"
                       " idle_write_transaction_timeout=0,"
                       " idle_readonly_transaction_timeout=0,"
                       " innodb_lock_wait_timeout=100000000, lock_wait_timeout=10"
                     : NULL,
        /* a row lock lasts for as long as the transaction; statement.c has the clock */
        c->c.session && c->c.sql->mode == SQL_PESSIMISTIC
            ? "SET SESSION autocommit=0, time_zone='+00:00'"
            : NULL,
    };
    unsigned int no = 0, tcp = MYSQL_PROTOCOL_TCP; /* by itself "localhost" is no host */
    size_t stack = STACK;

    mysql_options(c->my, MYSQL_OPT_NONBLOCK, &stack);
    mysql_options(c->my, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    mysql_options(c->my, MYSQL_OPT_LOCAL_INFILE, &no);
    if (!mysql_of(c->c.sql)->socket)
        mysql_options(c->my, MYSQL_OPT_PROTOCOL, &tcp);
    mysql_options4(c->my, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", "holdfast");
    for (size_t i = 0; i < sizeof first / sizeof *first && first[i]; i++)
        mysql_options(c->my, MYSQL_INIT_COMMAND, first[i]);
}

/* The library reads it until the step has ended. */
void hf__mysql_forget_password(struct my_conn *c)
{
    if (c->password)
        explicit_bzero(c->password, PASSWORD_MAX + 1);
    free(c->password);
    c->password = NULL;
}

int hf__mysql_connect_start(struct my_conn *c)
{
    struct mysql *m = mysql_of(c->c.sql);
    const struct login *login = &m->sql.open.login;
    const char *host = m->socket ? NULL : c->ip;
    hf_error err;

    c->connected = NULL;
    c->password = malloc(PASSWORD_MAX + 1);
    if (!c->password || hf__login_password(login, c->password, &err) < 0) {
        hf__mysql_keep_error(c, ER_ACCESS_DENIED_ERROR,
                             c->password ? err.text : "no memory");
        return 0;
    }
    set_options(c);
    set_tls(c);
    if (!m->socket)
        hf__sql_ip(c->ip, &m->address);
    if (m->tls == TLS_VERIFY && m->host)
        host = m->host->host;
    return mysql_real_connect_start(&c->connected, c->my, host, login->user, c->password,
                                    m->sql.database, m->host ? m->host->port : 0, m->socket,
                                    CLIENT_MULTI_RESULTS);
}

/* A server that has gone without a word while we wait. */
void hf__mysql_keep_alive(int fd)
{
    static const int options[][3] = { { SOL_SOCKET, SO_KEEPALIVE, 1 },
                                      { IPPROTO_TCP, TCP_KEEPIDLE, 10 },
                                      { IPPROTO_TCP, TCP_KEEPINTVL, 5 },
                                      { IPPROTO_TCP, TCP_KEEPCNT, 3 },
                                      { IPPROTO_TCP, TCP_USER_TIMEOUT, 25000 } };

    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        (void)setsockopt(fd, options[i][0], options[i][1], &options[i][2], sizeof(int));
}

/* ---- where to -------------------------------------------------------------------- */

/* It begins in a turn of the loop: here it may not fail yet. */
static int start(struct my_conn *c, hf_error *err)
{
    struct env *env = sql_env(&c->c);

    c->my = mysql_init(NULL);
    if (!c->my)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a connection");
    c->error = 0;
    env->timer(env, &c->c.timer, env->now(env));
    return 0;
}

/* Another one each time: one of them may be dead. NULL: it has none. */
int hf__mysql_found(struct sql_conn *k, struct addresses *list, hf_error *err)
{
    struct mysql *m = mysql_of(k->sql);

    if (list)
        m->address = list->a[m->turn / k->sql->open.nhosts % list->n];
    m->turn++;
    free(list);
    return list ? start(my_conn_of(k), err) : err->code;
}

int hf__mysql_connect(struct sql_conn *k, int64_t ms, hf_error *err)
{
    struct my_conn *c = my_conn_of(k);
    struct mysql *m = mysql_of(k->sql);
    const struct opening *o = &k->sql->open;
    struct env *env = sql_env(k);
    struct addresses *list;
    int rc;

    if (k->link.failed < o->nhosts) /* one may be silent: each has its part */
        ms /= (int64_t)o->nhosts;
    c->connect_by = env->now(env) + ms * 1000;
    if (k != k->sql->commands || m->socket) /* the others go where it went */
        return start(c, err);
    m->host = &o->hosts[m->turn % o->nhosts];
    env->timer(env, &k->timer, c->connect_by);
    rc = hf__sql_look_up(k, m->host, &list, err);
    return rc == 0 && list ? hf__mysql_found(k, list, err) : rc;
}
