/* conn.c: one connection: MariaDB Connector/C as the transport of a link (kit/link.h).
 *
 * The library does one thing at a time on a connection, and stops in the middle of it, on
 * a stack of its own, when the socket is not ready: a step. begin() starts one, proceed()
 * goes on with it, ended() says what follows. Nothing of ours runs on that other stack, and
 * any thread may go on with a step, because the loop has one driver at a time.
 *
 *   CONNECT, then for each call: [PREPARE] EXECUTE [FETCH ... NEXT ...] answer
 *                                error: ROLLBACK, then the answer
 *
 * A call is one statement that is prepared at its first use, so arguments are never part of
 * a text. A procedure sends its row, and then that it has ended, after its commit: only
 * that makes an answer (G7). An error of the server is an answer; one of the library (2000
 * to 2999) is none: nobody knows. KILL QUERY may leave a transaction open: so ROLLBACK
 * comes first, before anything else can be sent.
 *
 * Calls that wait for their turn are in `backlog`. Joins come last: many of them must not
 * keep renewals and looks waiting.
 *
 * Closing: a step is never abandoned, because memory that is only known on its stack would
 * be lost. Its socket is shut down, and the step goes on until it has failed.
 *
 * Names are looked up by src/net, because the library would block the loop for it. Only if
 * the server's certificate is to be verified the library gets the name itself, and looks it
 * up once more: it has no other way to learn which name the certificate must have. */
#include "driver/mysql/mysql.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errmsg.h>
#include <errno.h>
#include <fcntl.h>
#include <mysqld_error.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NUMBERS_MAX = 3 + SQL_RENEW_MOST, STACK = 256 * 1024, ROWS_KEPT = 16 * 1024 };
enum { IDLE = -1, ENDS_MOST = 1000 };

static const char *const texts[MY_VERBS] = {
    [SQL_JOIN] = "CALL holdfast_join(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    [SQL_WAIT] = "CALL holdfast_wait(?,?,?,?,?)",
    [SQL_LEAVE] = "CALL holdfast_leave(?,?,?,?)",
    [SQL_RENEW] = "CALL holdfast_renew(?,?,?,?)",
    [SQL_AMEND] = "CALL holdfast_amend(?,?,?,?,?,?,?,?)",
    [SQL_LOOK] = "CALL holdfast_look(?,?,?,?,?,?)",
    [SQL_LIST] = "CALL holdfast_list(?,?,?,?,?)",
    [SQL_CELL] = "CALL holdfast_cell_do(?,?,?,?,?,?,?,?,?,?)",
    [SQL_EVICT] = "CALL holdfast_evict(?,?,?,?)",
    [SQL_KEEP] = "CALL holdfast_keep(?,?,?,?,?)",
    [SQL_SWEEP] = "CALL holdfast_sweep(?)",
    [MY_HELLO] = "SELECT VERSION(), @@read_only OR @@innodb_read_only,"
                 " @@innodb_flush_log_at_trx_commit,"
                 " (SELECT COUNT(*) FROM information_schema.global_variables"
                 "  WHERE variable_name='WSREP_ON' AND variable_value='ON'),"
                 " IS_USED_LOCK(CONCAT('hf_s_', HEX(@holdfast_client := ?))),"
                 " @holdfast_wake := ?",
    [MY_END] = "KILL ?",
    [MY_OWN] = "SELECT GET_LOCK(CONCAT('hf_s_', HEX(@holdfast_client)), ? / 1000)",
    [MY_SHAPE] = "SELECT MAX(version), (SELECT COUNT(*) FROM information_schema.routines"
                 " WHERE routine_schema=DATABASE() AND routine_name IN ('holdfast_join',"
                 "'holdfast_wait','holdfast_leave','holdfast_renew','holdfast_amend','"
                 "holdfast_look',"
                 "'holdfast_list','holdfast_cell_do','holdfast_evict','holdfast_keep',"
                 "'holdfast_sweep')) FROM holdfast_format",
    [MY_MAKE] = "SELECT GET_LOCK(CONCAT('holdfast_', DATABASE()), 0)",
    [MY_MADE] = "SELECT RELEASE_LOCK(CONCAT('holdfast_', DATABASE()))",
    [MY_AWAIT] = "CALL holdfast_await(?,?,?,?,?)",
    [MY_NOTICES] = "CALL holdfast_notices(?)",
};

static struct my_conn *conn_at(const struct link *k)
{
    return container_of(k, struct my_conn, link);
}

static struct env *env_of(const struct my_conn *c)
{
    return c->of->sql.store.env;
}

/* ---- errors ---------------------------------------------------------------------- */

/* UNDONE: because of others or of a limit; it is sent again. GONE: the session ends, the
 * server has become read-only, or the schema has gone: another connection finds out. */
enum { UNDONE = 1, GONE = 2 };

struct error_kind {
    unsigned error;
    int code, what;
};

static struct error_kind kind_of(unsigned error)
{
    static const struct error_kind kinds[] = {
        { ER_ACCESS_DENIED_ERROR, HF_EAUTH, 0 },
        { ER_DBACCESS_DENIED_ERROR, HF_EAUTH, 0 },
        { ER_TABLEACCESS_DENIED_ERROR, HF_EAUTH, 0 },
        { ER_COLUMNACCESS_DENIED_ERROR, HF_EAUTH, 0 },
        { ER_PROCACCESS_DENIED_ERROR, HF_EAUTH, 0 },
        { ER_SPECIFIC_ACCESS_DENIED_ERROR, HF_EAUTH, 0 },
        { ER_MUST_CHANGE_PASSWORD_LOGIN, HF_EAUTH, 0 },
        { ER_HOST_NOT_PRIVILEGED, HF_EAUTH, 0 },
        { ER_ACCESS_DENIED_NO_PASSWORD_ERROR, HF_EAUTH, 0 },
        { ER_BAD_DB_ERROR, HF_EINVAL, 0 },
        { ER_DISK_FULL, HF_EFULL, 0 },
        { ER_OUTOFMEMORY, HF_EFULL, 0 },
        { ER_OUT_OF_RESOURCES, HF_EFULL, 0 },
        { ER_RECORD_FILE_FULL, HF_EFULL, 0 },
        { ER_NOT_KEYFILE, HF_EDAMAGED, 0 },
        { ER_CRASHED_ON_USAGE, HF_EDAMAGED, 0 },
        { ER_INDEX_CORRUPT, HF_EDAMAGED, 0 },
        { ER_CON_COUNT_ERROR, HF_EUNREACHABLE, 0 },
        { ER_TOO_MANY_USER_CONNECTIONS, HF_EUNREACHABLE, 0 },
        { ER_USER_LIMIT_REACHED, HF_EUNREACHABLE, 0 },
        { ER_HOST_IS_BLOCKED, HF_EUNREACHABLE, 0 },
        { ER_LOCK_DEADLOCK, HF_EPROTO, UNDONE },
        { ER_LOCK_WAIT_TIMEOUT, HF_EPROTO, UNDONE },
        { ER_QUERY_INTERRUPTED, HF_EPROTO, UNDONE },
        { ER_STATEMENT_TIMEOUT, HF_EPROTO, UNDONE },
        { ER_CHECKREAD, HF_EPROTO, UNDONE },
        { ER_UNKNOWN_STMT_HANDLER, HF_EPROTO, UNDONE },
        { ER_NEED_REPREPARE, HF_EPROTO, UNDONE },
        { ER_SERVER_SHUTDOWN, HF_EUNREACHABLE, GONE },
        { ER_CONNECTION_KILLED, HF_EUNREACHABLE, GONE },
        { ER_OPTION_PREVENTS_STATEMENT, HF_EUNREACHABLE, GONE },
        { ER_READ_ONLY_MODE, HF_EUNREACHABLE, GONE },
        { ER_NO_SUCH_TABLE, HF_EPROTO, GONE },
        { ER_SP_DOES_NOT_EXIST, HF_EPROTO, GONE },
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].error == error)
            return kinds[i];
    if (error >= CR_MIN_ERROR && error <= CR_MAX_ERROR) /* of the library */
        return (struct error_kind){ error, HF_EUNREACHABLE, GONE };
    return (struct error_kind){ error, HF_EPROTO, 0 };
}

/* While we greet, tables that are missing are made. */
static bool ends_session(const struct my_conn *c)
{
    /* It may have been stopped behind its COMMIT: then it was done, and must not be done
     * twice. So it counts as unanswered. */
    if ((c->error == ER_QUERY_INTERRUPTED || c->error == ER_STATEMENT_TIMEOUT) && c->call &&
        c->call->type->verb == SQL_CELL)
        return true;
    return kind_of(c->error).what == GONE &&
           (!c->call || c->call->type->verb < SQL_VERBS || c->error != ER_NO_SUCH_TABLE);
}

static void keep_error(struct my_conn *c, unsigned error, const char *text)
{
    c->error = error ? error : CR_UNKNOWN_ERROR;
    hf__escape(c->error_text, sizeof c->error_text, text, strlen(text));
}

static void make_error(const struct my_conn *c, hf_error *err)
{
    hf__fail(err, kind_of(c->error).code, 0, c->of->sql.shown, "%s (%u)", c->error_text,
             c->error);
}

/* ---- steps ----------------------------------------------------------------------- */

static MYSQL_STMT *stmt_of(const struct my_conn *c)
{
    return c->stmts[c->call->type->verb];
}

static int begin_connect(struct my_conn *);

/* 0: it has ended; else what is waited for. */
static int begin(struct my_conn *c, enum my_step step)
{
    const char *text;
    size_t len;

    c->step = step;
    switch (step) {
    case STEP_CONNECT:
        return begin_connect(c);
    case STEP_PREPARE:
        text = texts[c->call->type->verb];
        return mysql_stmt_prepare_start(&c->ret, stmt_of(c), text, strlen(text));
    case STEP_EXECUTE:
        return mysql_stmt_execute_start(&c->ret, stmt_of(c));
    case STEP_FETCH:
        return mysql_stmt_fetch_start(&c->ret, stmt_of(c));
    case STEP_NEXT:
        return mysql_stmt_next_result_start(&c->ret, stmt_of(c));
    case STEP_QUERY:
        text = hf__mysql_script(c->call, &len);
        return mysql_real_query_start(&c->ret, c->my, text, len);
    case STEP_ROLLBACK:
        return mysql_real_query_start(&c->ret, c->my, "ROLLBACK", 8);
    default:
        return 0;
    }
}

static int proceed(struct my_conn *c, int events)
{
    switch (c->step) {
    case STEP_CONNECT:
        return mysql_real_connect_cont(&c->connected, c->my, events);
    case STEP_PREPARE:
        return mysql_stmt_prepare_cont(&c->ret, stmt_of(c), events);
    case STEP_EXECUTE:
        return mysql_stmt_execute_cont(&c->ret, stmt_of(c), events);
    case STEP_FETCH:
        return mysql_stmt_fetch_cont(&c->ret, stmt_of(c), events);
    case STEP_NEXT:
        return mysql_stmt_next_result_cont(&c->ret, stmt_of(c), events);
    case STEP_QUERY:
    case STEP_ROLLBACK:
        return mysql_real_query_cont(&c->ret, c->my, events);
    default:
        return 0;
    }
}

/* ---- closing --------------------------------------------------------------------- */

/* The library reads it until the step has ended. */
static void forget_password(struct my_conn *c)
{
    if (c->password)
        explicit_bzero(c->password, PASSWORD_MAX + 1);
    free(c->password);
    c->password = NULL;
}

static void close_my(struct link *k)
{
    struct my_conn *c = conn_at(k);
    struct env *env = env_of(c);

    env->unwatch(env, &c->watch);
    env->timer(env, &c->connect_timer, LOOP_NEVER);
    hf__resolve_cancel(c->resolve);
    c->resolve = NULL;
    if (c->step != STEP_NONE) {
        shutdown((int)mysql_get_socket(c->my), SHUT_RDWR);
        for (int i = 0; i < ENDS_MOST; i++)
            if (proceed(c, MYSQL_WAIT_READ | MYSQL_WAIT_WRITE | MYSQL_WAIT_EXCEPT) == 0)
                break;
    }
    forget_password(c);
    if (c->my)
        mysql_close(c->my);
    for (size_t i = 0; i < MY_VERBS; i++) {
        if (c->stmts[i])
            mysql_stmt_close(c->stmts[i]);
        c->stmts[i] = NULL;
    }
    c->my = c->connected = NULL;
    c->step = STEP_NONE;
    c->call = NULL;
    c->prepared = 0;
    c->error = 0;
    c->up = c->begun = c->busy = c->running = false;
}

/* Not inside open, close and send. */
static void lost(struct my_conn *c, const hf_error *err)
{
    hf_error copy = *err;

    close_my(&c->link);
    hf__link_lost(&c->link, &copy);
}

static void lost_by_error(struct my_conn *c)
{
    hf_error err;

    make_error(c, &err);
    if (c->up || err.code == HF_EPROTO)
        err.code = HF_EUNREACHABLE; /* the next greeting tells if we are refused for good */
    lost(c, &err);
}

static void run(struct my_conn *, int events);

/* It is time to begin, or too late. */
static void connect_fired(struct timer *t)
{
    struct my_conn *c = container_of(t, struct my_conn, connect_timer);
    struct env *env = env_of(c);
    hf_error err;

    if (c->my && c->step == STEP_NONE) {
        env->timer(env, &c->connect_timer, c->connect_by);
        run(c, begin(c, STEP_CONNECT));
        hf__mysql_flush(c->of);
        return;
    }
    hf__fail(&err, HF_EUNREACHABLE, 0, c->of->sql.shown, "no connection within %lld ms",
             (long long)c->of->sql.open.connect_ms);
    lost(c, &err);
    hf__mysql_flush(c->of);
}

/* ---- opening --------------------------------------------------------------------- */

static void set_tls(const struct my_conn *c)
{
    const struct mysql *m = c->of;
    my_bool yes = 1;

    if (m->tls == TLS_OFF)
        return;
    if (m->ssl_ca)
        mysql_options(c->my, MYSQL_OPT_SSL_CA, m->ssl_ca);
    if (m->ssl_cert)
        mysql_options(c->my, MYSQL_OPT_SSL_CERT, m->ssl_cert);
    if (m->ssl_key)
        mysql_options(c->my, MYSQL_OPT_SSL_KEY, m->ssl_key);
    if (m->tls != TLS_IF_OFFERED)
        mysql_options(c->my, MYSQL_OPT_SSL_ENFORCE, &yes);
    if (m->tls == TLS_VERIFY)
        mysql_options(c->my, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &yes);
}

/* A limit of the server must not end an idle session, nor keep an open transaction of a
 * client that has stopped. */
static void set_options(struct my_conn *c)
{
    static const char *const first[] = {
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET SESSION autocommit=1, wait_timeout=31536000, max_statement_time=0,"
        " idle_transaction_timeout=5, idle_write_transaction_timeout=5,"
        " innodb_lock_wait_timeout=10, lock_wait_timeout=10, group_concat_max_len=1048576",
    };
    unsigned int no = 0;
    size_t stack = STACK;

    mysql_options(c->my, MYSQL_OPT_NONBLOCK, &stack);
    mysql_options(c->my, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    mysql_options(c->my, MYSQL_OPT_LOCAL_INFILE, &no);
    mysql_options4(c->my, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", "holdfast");
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        mysql_options(c->my, MYSQL_INIT_COMMAND, first[i]);
}

static int begin_connect(struct my_conn *c)
{
    struct mysql *m = c->of;
    const struct sockaddr_storage *at = &m->address.at;
    const char *host = c->ip;
    hf_error err;

    c->connected = NULL;
    c->password = malloc(PASSWORD_MAX + 1);
    if (!c->password || hf__login_password(&m->sql.open.login, c->password, &err) < 0) {
        keep_error(c, ER_ACCESS_DENIED_ERROR, c->password ? err.text : "no memory");
        return 0;
    }
    set_options(c);
    if (m->socket)
        host = NULL;
    else if (at->ss_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)at)->sin6_addr, c->ip,
                  sizeof c->ip);
    else
        inet_ntop(AF_INET, &((const struct sockaddr_in *)at)->sin_addr, c->ip,
                  sizeof c->ip);
    set_tls(c);
    if (m->tls == TLS_VERIFY && m->host)
        host = m->host->host;
    return mysql_real_connect_start(&c->connected, c->my, host, m->sql.open.login.user,
                                    c->password, m->database, m->host ? m->host->port : 0,
                                    m->socket, CLIENT_MULTI_RESULTS);
}

/* It begins in a turn of the loop: here it may not fail yet. */
static int start(struct my_conn *c, hf_error *err)
{
    struct env *env = env_of(c);

    c->my = mysql_init(NULL);
    if (!c->my)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a connection");
    c->error = 0;
    env->timer(env, &c->connect_timer, env->now(env));
    return 0;
}

/* Another one each time: one of them may be dead. */
static void choose(struct mysql *m, struct addresses *list)
{
    m->address = list->a[m->turn / m->sql.open.nhosts % list->n];
    m->turn++;
    free(list);
}

static void looked_up(void *user, struct addresses *list, const hf_error *why)
{
    struct my_conn *c = user;
    hf_error err = *why;
    int rc = list ? 0 : why->code;

    c->resolve = NULL;
    if (list)
        choose(c->of, list);
    else
        c->of->turn++;
    if (rc == 0)
        rc = start(c, &err);
    if (rc < 0)
        lost(c, &err);
    hf__mysql_flush(c->of);
}

static int open_my(struct link *k, int64_t ms, hf_error *err)
{
    struct my_conn *c = conn_at(k);
    struct mysql *m = c->of;
    struct env *env = env_of(c);
    struct addresses *list;
    int rc = 0;

    c->connect_by = env->now(env) + ms * 1000;
    if (c == &m->commands && !m->socket) { /* the others go where it went */
        m->host = &m->sql.open.hosts[m->turn % m->sql.open.nhosts];
        rc = hf__resolve_numeric(&list, m->host->host, m->host->port);
        if (rc == 0)
            choose(m, list);
    }
    if (rc == 0)
        return start(c, err);
    if (rc != HF_ENOENT)
        return hf__fail(err, rc, 0, NULL, "no memory for a connection");
    rc = hf__resolve_begin(&c->resolve, env, m->host->host, m->host->port, looked_up, c,
                           err);
    if (rc == 0)
        env->timer(env, &c->connect_timer, c->connect_by);
    return rc;
}

/* ---- sending --------------------------------------------------------------------- */

static size_t size_of(const struct sql_arg *a)
{
    return a->kind == SQL_INT ? sizeof a->number : a->kind == SQL_INTS ? 8 * a->n : a->n;
}

static void put_arg(char *to, const struct sql_arg *a)
{
    const int64_t *n = a->at;

    if (a->kind == SQL_INT)
        memcpy(to, &a->number, sizeof a->number);
    else if (a->kind == SQL_BYTES && a->n > 0)
        memcpy(to, a->at, a->n);
    for (size_t i = 0; a->kind == SQL_INTS && i < a->n; i++) {
        uint64_t big = htobe64((uint64_t)n[i]);

        memcpy(to + 8 * i, &big, sizeof big);
    }
}

/* Copied: what they point to does not stay until the statement is prepared. */
static int copy_args(struct my_conn *c, const struct sql_args *a)
{
    size_t need = 0, at = 0;
    char *bytes;

    for (size_t i = 0; i < a->n; i++)
        need += size_of(&a->at[i]);
    if (need >= c->args_room) {
        bytes = realloc(c->args, 2 * need + 1);
        if (!bytes)
            return HF_ENOMEM;
        c->args = bytes;
        c->args_room = 2 * need + 1;
    }
    memset(c->binds, 0, sizeof c->binds);
    for (size_t i = 0; i < a->n; i++) {
        MYSQL_BIND *b = &c->binds[i];

        put_arg(c->args + at, &a->at[i]);
        b->buffer = c->args + at;
        b->buffer_type = a->at[i].kind == SQL_INT ? MYSQL_TYPE_LONGLONG : MYSQL_TYPE_BLOB;
        b->buffer_length = c->lengths[i] = size_of(&a->at[i]);
        b->length = &c->lengths[i];
        at += size_of(&a->at[i]);
    }
    c->nargs = a->n;
    return 0;
}

static int send_my(struct link *k, struct link_call *call)
{
    struct my_conn *c = conn_at(k);
    struct sql_call *q = container_of(call, struct sql_call, call);
    struct sql_args a = { .n = 0 };
    int rc;

    q->type->build(&c->of->sql, q, &a);
    if (a.nothing)
        return HF_ENOENT;
    rc = copy_args(c, &a);
    if (rc < 0)
        return rc;
    c->call = q;
    c->busy = true;
    return 0;
}

void hf__mysql_send(struct my_conn *c, struct sql_call *q)
{
    if (c->busy && link_open(&c->link))
        list_push(&c->backlog[q->type->verb != SQL_JOIN], &q->call.node);
    else
        hf__link_send(&c->link, &q->call);
}

/* NULL: there is none. */
static struct sql_call *next_in_backlog(struct my_conn *c)
{
    struct list *n = list_pop(&c->backlog[1]);

    if (!n)
        n = list_pop(&c->backlog[0]);
    return n ? container_of(n, struct sql_call, call.node) : NULL;
}

static void send_more(struct my_conn *c)
{
    struct sql_call *q;

    while (!c->busy && (q = next_in_backlog(c)) != NULL)
        hf__link_send(&c->link, &q->call);
}

/* ---- answers --------------------------------------------------------------------- */

static const void *reply_bytes(const struct sql_reply *r, size_t row, size_t column,
                               size_t *n)
{
    const struct my_rows *rows = r->own;
    const struct my_span *at;

    *n = 0;
    if (row >= rows->rows || column >= rows->columns)
        return "";
    at = &rows->spans[row * rows->columns + column];
    *n = at->len;
    return rows->bytes + at->at;
}

/* Every value has a NUL behind it. */
static int64_t reply_number(const struct sql_reply *r, size_t row, size_t column)
{
    size_t n;

    return strtoll(reply_bytes(r, row, column, &n), NULL, 10);
}

static bool make_room(struct my_rows *r, size_t bytes)
{
    void *p;

    if (r->used + bytes + 1 > r->room) {
        p = realloc(r->bytes, 2 * (r->used + bytes + 1));
        if (!p)
            return false;
        r->bytes = p;
        r->room = 2 * (r->used + bytes + 1);
    }
    if ((r->rows + 1) * r->columns > r->nspans) {
        p = realloc(r->spans, 2 * (r->rows + 1) * r->columns * sizeof *r->spans);
        if (!p)
            return false;
        r->spans = p;
        r->nspans = 2 * (r->rows + 1) * r->columns;
    }
    return true;
}

static bool read_value(struct my_rows *r, MYSQL_STMT *stmt, unsigned column,
                       unsigned long len)
{
    struct my_span *span;
    MYSQL_BIND b = { .buffer_type = MYSQL_TYPE_BLOB, .buffer_length = len };

    if (!make_room(r, len))
        return false;
    b.buffer = r->bytes + r->used;
    if (len > 0 && mysql_stmt_fetch_column(stmt, &b, column, 0) != 0)
        return false;
    span = &r->spans[r->rows * r->columns + column];
    span->at = r->used;
    span->len = len;
    r->bytes[r->used + len] = '\0';
    r->used += len + 1;
    return true;
}

/* Only the lengths are asked for: values are read when there is room for them. */
static bool bind_row(struct my_conn *c)
{
    MYSQL_BIND binds[COLUMNS_MAX];

    c->rows.columns = mysql_stmt_field_count(stmt_of(c));
    if (c->rows.columns > COLUMNS_MAX)
        return false;
    memset(binds, 0, sizeof binds);
    for (size_t i = 0; i < c->rows.columns; i++) {
        binds[i].buffer_type = MYSQL_TYPE_BLOB;
        binds[i].length = &c->lengths_of[i];
        binds[i].is_null = &c->nulls[i];
    }
    return mysql_stmt_bind_result(stmt_of(c), binds) == 0;
}

/* Numbers become texts. */
static bool read_row(struct my_conn *c)
{
    for (unsigned i = 0; i < c->rows.columns; i++)
        if (!read_value(&c->rows, stmt_of(c), i, c->nulls[i] ? 0 : c->lengths_of[i]))
            return false;
    c->rows.rows++;
    return true;
}

/* "1,2,3" */
static size_t read_numbers(const char *text, int64_t *numbers)
{
    size_t n = 0;
    char *end;

    while (*text && n < NUMBERS_MAX) {
        numbers[n++] = strtoll(text, &end, 10);
        if (end == text)
            return 0;
        text = *end == ',' ? end + 1 : end;
    }
    return n;
}

static bool has_news(const struct my_conn *c, const struct sql_call *q)
{
    return c->rows.rows == 1 && c->rows.columns == 2 &&
           (q->type->verb < SQL_VERBS || (int)q->type->verb >= MY_AWAIT);
}

static void forget_rows(struct my_conn *c)
{
    free(c->rows.bytes);
    free(c->rows.spans);
    memset(&c->rows, 0, sizeof c->rows);
}

/* What it was is over, for good or bad. */
static void answered(struct my_conn *c)
{
    struct sql_call *q = c->call;
    struct sql_reply reply = { .own = &c->rows };
    int64_t numbers[NUMBERS_MAX];
    const char *news = NULL;
    size_t len = 0;

    c->begun = false;
    c->call = NULL;
    hf__link_answered(&c->link);
    if (c->error && q->type->verb < SQL_VERBS && kind_of(c->error).what == UNDONE) {
        if (c->error == ER_UNKNOWN_STMT_HANDLER)
            c->prepared = 0;
        c->busy = false;
        hf__sql_later(&c->of->sql, q, SQL_LATER_US);
        return;
    }
    if (c->error) {
        make_error(c, &reply.err);
        reply.code = reply.err.code;
    } else {
        reply.rows = c->rows.rows;
        if (has_news(c, q)) {
            reply.n = read_numbers(c->rows.bytes + c->rows.spans[0].at, numbers);
            reply.numbers = numbers;
            news = reply_bytes(&reply, 0, 1, &len);
        }
    }
    hf__sql_answer(&c->of->sql, q, &reply);
    if (news && link_open(&c->link))
        hf__mysql_news(c->of, news, len);
    if (c->rows.room > ROWS_KEPT)
        forget_rows(c);
    c->busy = false;
}

/* ---- what follows a step --------------------------------------------------------- */

static int execute(struct my_conn *c)
{
    unsigned verb = c->call->type->verb;

    c->begun = true;
    c->error = 0;
    c->rows.rows = c->rows.columns = c->rows.used = 0;
    if (verb == MY_SCRIPT)
        return begin(c, STEP_QUERY);
    if (!c->stmts[verb])
        c->stmts[verb] = mysql_stmt_init(c->my);
    if (!c->stmts[verb]) {
        keep_error(c, CR_OUT_OF_MEMORY, "no memory for a statement");
        return IDLE;
    }
    if (!(c->prepared & 1u << verb))
        return begin(c, STEP_PREPARE);
    mysql_stmt_bind_param(stmt_of(c), c->binds);
    return begin(c, STEP_EXECUTE);
}

static int failed(struct my_conn *c)
{
    if (c->step == STEP_ROLLBACK) { /* a transaction may be open: not with this one */
        keep_error(c, CR_SERVER_LOST, mysql_error(c->my));
        return IDLE;
    }
    if (c->step == STEP_QUERY)
        keep_error(c, mysql_errno(c->my), mysql_error(c->my));
    else
        keep_error(c, mysql_stmt_errno(stmt_of(c)), mysql_stmt_error(stmt_of(c)));
    return ends_session(c) ? IDLE : begin(c, STEP_ROLLBACK);
}

static int no_room(struct my_conn *c)
{
    keep_error(c, CR_OUT_OF_MEMORY, "no memory for an answer");
    return IDLE;
}

static int more(struct my_conn *c)
{
    return mysql_stmt_more_results(stmt_of(c)) ? begin(c, STEP_NEXT) : IDLE;
}

/* Rows of the first result that has any. */
static int executed(struct my_conn *c)
{
    if (mysql_stmt_field_count(stmt_of(c)) == 0 || c->rows.columns > 0)
        return more(c);
    return bind_row(c) ? begin(c, STEP_FETCH) : no_room(c);
}

static int fetched(struct my_conn *c)
{
    if (c->ret == MYSQL_NO_DATA)
        return more(c);
    return read_row(c) ? begin(c, STEP_FETCH) : no_room(c);
}

static int connect_ended(struct my_conn *c)
{
    forget_password(c);
    if (!c->connected && !c->error)
        keep_error(c, mysql_errno(c->my), mysql_error(c->my));
    return IDLE;
}

/* The next step, as begin() says; IDLE: there is none. */
static int ended(struct my_conn *c)
{
    switch (c->step) {
    case STEP_CONNECT:
        return connect_ended(c);
    case STEP_PREPARE:
        if (c->ret != 0)
            return failed(c);
        c->prepared |= 1u << c->call->type->verb;
        return execute(c);
    case STEP_EXECUTE:
        return c->ret != 0 ? failed(c) : executed(c);
    case STEP_FETCH:
        return c->ret == 1 ? failed(c) : fetched(c);
    case STEP_NEXT: /* -1: there is none */
        return c->ret > 0 ? failed(c) : c->ret < 0 ? IDLE : executed(c);
    default:
        return c->ret != 0 ? failed(c) : IDLE;
    }
}

static int watch(struct my_conn *c, int events)
{
    struct env *env = env_of(c);
    uint32_t e = 0;

    c->events = events;
    if (events & MYSQL_WAIT_READ)
        e |= EPOLLIN;
    if (events & MYSQL_WAIT_WRITE)
        e |= EPOLLOUT;
    if (events & MYSQL_WAIT_EXCEPT)
        e |= EPOLLPRI;
    return env->watch(env, &c->watch, (int)mysql_get_socket(c->my), e);
}

static void connected(struct my_conn *c)
{
    struct env *env = env_of(c);

    env->timer(env, &c->connect_timer, LOOP_NEVER);
    c->up = true;
    hf__link_opened(&c->link);
}

/* Goes on until the socket must be waited for, or nothing is left to do. */
static void run(struct my_conn *c, int events)
{
    struct env *env = env_of(c);

    c->running = true; /* what follows may flush */
    for (;;) {
        while (events == 0)
            events = ended(c);
        if (events > 0)
            break;
        c->step = STEP_NONE;
        if (c->error && (!c->up || ends_session(c))) {
            lost_by_error(c);
            return;
        }
        if (!c->up)
            connected(c);
        else if (c->begun)
            answered(c);
        send_more(c);
        if (!c->up)
            return; /* given up meanwhile */
        if (!c->call || !link_open(&c->link)) {
            events = MYSQL_WAIT_READ; /* nothing should come */
            break;
        }
        events = execute(c);
    }
    c->running = false;
    if (!c->up) /* the library opens and closes sockets as it likes: the number may stay */
        env->unwatch(env, &c->watch);
    if (watch(c, events) < 0) {
        keep_error(c, CR_OUT_OF_MEMORY, "a socket cannot be watched");
        lost_by_error(c);
    }
}

static void flush_my(struct link *k)
{
    struct my_conn *c = conn_at(k);

    if (c->up && !c->running && c->step == STEP_NONE && c->call && !c->begun)
        run(c, execute(c));
}

/* Between calls a server says nothing but that it ends the session; TLS may have something
 * to say by itself. */
static void unasked(struct my_conn *c)
{
    struct env *env = env_of(c);
    char byte;
    ssize_t n = recv((int)mysql_get_socket(c->my), &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0 && errno == EAGAIN)
        return;
    if (n > 0 && mysql_get_ssl_cipher(c->my)) {
        env->unwatch(env, &c->watch);
        return;
    }
    keep_error(c, CR_SERVER_GONE_ERROR, "the server has ended the connection");
    lost_by_error(c);
}

static void on_ready(struct watch *w, uint32_t events)
{
    struct my_conn *c = container_of(w, struct my_conn, watch);
    int e = 0;

    if (events & (EPOLLERR | EPOLLHUP))
        e = c->events;
    if (events & EPOLLIN)
        e |= MYSQL_WAIT_READ;
    if (events & EPOLLOUT)
        e |= MYSQL_WAIT_WRITE;
    if (events & EPOLLPRI)
        e |= MYSQL_WAIT_EXCEPT;
    if (c->step == STEP_NONE)
        unasked(c);
    else
        run(c, proceed(c, e & c->events));
    hf__mysql_flush(c->of);
}

static bool read_my(struct link *k)
{
    struct my_conn *c = conn_at(k);
    struct link_call *before = hf__link_oldest(k);
    struct pollfd p = { .events = POLLIN };

    if (!c->up || c->step == STEP_NONE || !(c->events & MYSQL_WAIT_READ))
        return false;
    p.fd = (int)mysql_get_socket(c->my);
    if (poll(&p, 1, 0) > 0)
        run(c, proceed(c, MYSQL_WAIT_READ));
    return c->up && hf__link_oldest(k) != before;
}

static const struct link_transport transport = { open_my, close_my, send_my, flush_my,
                                                 read_my };

/* ---- what the link tells --------------------------------------------------------- */

static int64_t limit_ms(const struct link *k)
{
    return conn_at(k)->limit_ms;
}

static void greet(struct link *k)
{
    conn_at(k)->greet(conn_at(k));
}

static void down(struct link *k, const hf_error *err)
{
    struct mysql *m = conn_at(k)->of;
    hf_error last = *err;

    if (k != &m->commands.link) {
        hf__mysql_waker_lost(conn_at(k));
        return;
    }
    m->unended = m->unended || (m->sql.up && !m->owned);
    m->owned = m->making = false;
    hf__mysql_wake_down(m, err);
    if (m->sql.served && last.code != HF_EVERSION) /* what refuses us now may pass */
        last.code = HF_EUNREACHABLE;
    hf__sql_down(&m->sql, &last);
}

static void unanswered(struct link *k, struct link_call *call)
{
    hf__sql_answer(&conn_at(k)->of->sql, container_of(call, struct sql_call, call), NULL);
}

static void link_lost(struct link *k, const hf_error *err)
{
    struct my_conn *c = conn_at(k);
    struct sql_call *q;

    (void)err;
    while ((q = next_in_backlog(c)) != NULL)
        hf__sql_answer(&c->of->sql, q, NULL);
}

static const struct link_events events = { limit_ms, greet, down, unanswered, link_lost };

/* ---- for the other files and ../sql ---------------------------------------------- */

void hf__mysql_conn_init(struct my_conn *c, struct mysql *m,
                         void (*greeting)(struct my_conn *))
{
    c->of = m;
    c->greet = greeting;
    c->limit_ms = m->sql.open.connect_ms;
    list_init(&c->backlog[0]);
    list_init(&c->backlog[1]);
    watch_init(&c->watch, on_ready);
    timer_init(&c->connect_timer, connect_fired);
    hf__link_init(&c->link, m->sql.store.env, &transport, &events, &m->dirty,
                  m->sql.open.connect_ms);
    c->link.where = m->sql.shown;
    c->link.choices =
        2 * m->sql.open.nhosts; /* a name may have an address of each family */
}

void hf__mysql_conn_done(struct my_conn *c)
{
    struct link_call *call;
    struct sql_call *q;

    if (!c->of)
        return;
    hf__link_done(&c->link);
    while ((call = hf__link_take(&c->link)) != NULL)
        free(container_of(call, struct sql_call, call));
    while ((q = next_in_backlog(c)) != NULL)
        free(q);
    free(c->args);
    forget_rows(c);
}

/* The socket is the parent's: what the library says at its end must not reach the server.
 */
void hf__mysql_conn_forked(struct my_conn *c)
{
    int fd = c->my ? (int)mysql_get_socket(c->my) : -1, null;

    hf__resolve_forked(c->resolve);
    c->resolve = NULL;
    if (fd < 0)
        return;
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup3(null, fd, O_CLOEXEC);
        close(null);
    } else {
        close(fd);
    }
}

void hf__mysql_flush(struct mysql *m)
{
    hf__scripted_flush(&m->sql.scripted);
    hf__link_flush(&m->dirty);
}

static void wire_send(struct sql *s, struct sql_call *q)
{
    hf__mysql_send(&mysql_of(s)->commands, q);
}

static void wire_listen(struct sql *s)
{
    hf__mysql_notices(mysql_of(s));
}

const struct sql_wire hf__mysql_wire = {
    .send = wire_send, .number = reply_number, .bytes = reply_bytes, .listen = wire_listen
};
