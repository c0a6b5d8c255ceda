/* conn.c: one connection: MariaDB Connector/C, not blocking, as the library of a sql_conn.
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
 * Closing: a step is never abandoned, because memory that is only known on its stack would
 * be lost. Its socket is shut down, and the step goes on until it has failed. */
#include "driver/mysql/mysql.h"

#include <errmsg.h>
#include <errno.h>
#include <mysqld_error.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    IDLE = -1,
    ENDS_MOST = 1000,
    ROWS_KEPT = 16 * 1024,
    LEAST_MS = 1500, /* more than innodb_lock_wait_timeout in connect.c */
    LOCKED_US =
        100000 /* another call is let in before a row that is locked is tried again */
};

/* ---- errors ---------------------------------------------------------------------- */

struct error_kind {
    int code;
    enum sql_fate fate;
    unsigned errors[9]; /* 0 behind the last one */
};

static const struct error_kind *kind_of(unsigned error)
{
    static const struct error_kind kinds[] = {
        { HF_EAUTH,
          SQL_REFUSED,
          { ER_ACCESS_DENIED_ERROR, ER_DBACCESS_DENIED_ERROR, ER_TABLEACCESS_DENIED_ERROR,
            ER_COLUMNACCESS_DENIED_ERROR, ER_PROCACCESS_DENIED_ERROR,
            ER_SPECIFIC_ACCESS_DENIED_ERROR, ER_MUST_CHANGE_PASSWORD_LOGIN,
            ER_HOST_NOT_PRIVILEGED, ER_ACCESS_DENIED_NO_PASSWORD_ERROR } },
        { HF_EINVAL, SQL_REFUSED, { ER_BAD_DB_ERROR } },
        { HF_EFULL,
          SQL_REFUSED,
          { ER_DISK_FULL, ER_OUTOFMEMORY, ER_OUT_OF_RESOURCES, ER_RECORD_FILE_FULL } },
        { HF_EDAMAGED,
          SQL_REFUSED,
          { ER_NOT_KEYFILE, ER_CRASHED_ON_USAGE, ER_INDEX_CORRUPT } },
        { HF_EUNREACHABLE,
          SQL_REFUSED,
          { ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED,
            ER_HOST_IS_BLOCKED } },
        { HF_EPROTO, SQL_LOCKED, { ER_LOCK_WAIT_TIMEOUT } },
        { HF_EPROTO,
          SQL_UNDONE,
          { ER_LOCK_DEADLOCK, ER_QUERY_INTERRUPTED, ER_STATEMENT_TIMEOUT, ER_CHECKREAD,
            ER_UNKNOWN_STMT_HANDLER, ER_NEED_REPREPARE } },
        { HF_EUNREACHABLE,
          SQL_GONE,
          { ER_SERVER_SHUTDOWN, ER_CONNECTION_KILLED, ER_OPTION_PREVENTS_STATEMENT,
            ER_READ_ONLY_MODE } },
        { HF_EPROTO, SQL_GONE, { ER_NO_SUCH_TABLE, ER_SP_DOES_NOT_EXIST } },
    };
    static const struct error_kind of_library = { HF_EUNREACHABLE, SQL_GONE, { 0 } };
    static const struct error_kind other = { HF_EPROTO, SQL_REFUSED, { 0 } };
    enum { ERRORS = sizeof kinds->errors / sizeof *kinds->errors };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t j = 0; j < ERRORS && kinds[i].errors[j]; j++)
            if (kinds[i].errors[j] == error)
                return &kinds[i];
    return error >= CR_MIN_ERROR && error <= CR_MAX_ERROR ? &of_library : &other;
}

/* While we greet, tables that are missing are made. */
static bool ends_session(const struct my_conn *c)
{
    /* It may have been stopped behind its COMMIT: then it was done, and must not be done
     * twice. So it counts as unanswered. */
    if ((c->error == ER_QUERY_INTERRUPTED || c->error == ER_STATEMENT_TIMEOUT) && c->call &&
        c->call->type->verb == SQL_CELL)
        return true;
    return kind_of(c->error)->fate == SQL_GONE &&
           (!c->call || c->call->type->verb < SQL_VERBS || c->error != ER_NO_SUCH_TABLE);
}

void hf__mysql_keep_error(struct my_conn *c, unsigned error, const char *text)
{
    c->error = error ? error : CR_UNKNOWN_ERROR;
    hf__escape(c->error_text, sizeof c->error_text, text, strlen(text));
}

static void make_error(const struct my_conn *c, hf_error *err)
{
    hf__fail(err, kind_of(c->error)->code, 0, c->c.sql->shown, "%s (%u)", c->error_text,
             c->error);
}

/* ---- steps ----------------------------------------------------------------------- */

static MYSQL_STMT *stmt_of(const struct my_conn *c)
{
    return c->stmts[c->verb];
}

/* 0: it has ended; else what is waited for. */
static int begin(struct my_conn *c, enum my_step step)
{
    const char *text;
    size_t len;

    c->step = step;
    switch (step) {
    case STEP_CONNECT:
        return hf__mysql_connect_start(c);
    case STEP_PREPARE:
        text = hf__sql_text(&c->c, c->verb);
        return mysql_stmt_prepare_start(&c->ret, stmt_of(c), text, strlen(text));
    case STEP_EXECUTE:
        return mysql_stmt_execute_start(&c->ret, stmt_of(c));
    case STEP_FETCH:
        return mysql_stmt_fetch_start(&c->ret, stmt_of(c));
    case STEP_NEXT:
        return mysql_stmt_next_result_start(&c->ret, stmt_of(c));
    case STEP_QUERY:
        text = hf__mysql_script(mysql_of(c->c.sql), &len);
        return mysql_real_query_start(&c->ret, c->my, text, len);
    case STEP_ROLLBACK:
        return mysql_real_query_start(&c->ret, c->my, "ROLLBACK", 8);
    default:
        return 0;
    }
}

static int proceed(struct my_conn *c, int events)
{
    static int (*const conts[])(int *, MYSQL_STMT *, int) = {
        [STEP_PREPARE] = mysql_stmt_prepare_cont,
        [STEP_EXECUTE] = mysql_stmt_execute_cont,
        [STEP_FETCH] = mysql_stmt_fetch_cont,
        [STEP_NEXT] = mysql_stmt_next_result_cont,
    };

    if (c->step == STEP_CONNECT)
        return mysql_real_connect_cont(&c->connected, c->my, events);
    if (c->step == STEP_QUERY || c->step == STEP_ROLLBACK)
        return mysql_real_query_cont(&c->ret, c->my, events);
    return conts[c->step](&c->ret, stmt_of(c), events);
}

/* ---- closing --------------------------------------------------------------------- */

static int socket_of(const struct sql_conn *k)
{
    MYSQL *my = container_of(k, struct my_conn, c)->my;

    return my ? (int)mysql_get_socket(my) : -1;
}

static void close_my(struct sql_conn *k)
{
    struct my_conn *c = my_conn_of(k);

    if (k == k->sql->commands)
        hf__mysql_fast_down(mysql_of(k->sql));
    if (c->step != STEP_NONE) {
        shutdown(socket_of(k), SHUT_RDWR);
        for (int i = 0; i < ENDS_MOST; i++)
            if (proceed(c, MYSQL_WAIT_READ | MYSQL_WAIT_WRITE | MYSQL_WAIT_EXCEPT) == 0)
                break;
    }
    hf__mysql_forget_password(c);
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
    c->error = 0;
    c->begun = c->running = false;
}

static void done_my(struct sql_conn *k)
{
    free(my_conn_of(k)->args);
    hf__mysql_forget_rows(&my_conn_of(k)->rows);
}

static void lost_by_error(struct my_conn *c)
{
    hf_error err;

    make_error(c, &err);
    if (c->c.up || err.code == HF_EPROTO)
        err.code = HF_EUNREACHABLE; /* the next greeting tells if we are refused for good */
    hf__sql_conn_lost(&c->c, &err);
}

/* ---- calls ----------------------------------------------------------------------- */

static int send_my(struct sql_conn *k, struct sql_call *q, struct sql_args *a)
{
    struct my_conn *c = my_conn_of(k);
    int rc;

    c->verb = hf__mysql_shorten(c, q->type->verb, a);
    rc = hf__mysql_bind(c, c->verb, a);
    if (rc == 0)
        c->call = q;
    return rc;
}

static bool has_news(const struct my_conn *c)
{
    unsigned verb = c->call->type->verb;

    return !c->error && c->rows.rows == 1 && c->rows.columns == 2 &&
           (verb < SQL_VERBS || verb >= MY_AWAIT);
}

/* What it was is over, for good or bad. What is asked for meanwhile has to wait: `flying`.
 */
static void answered(struct my_conn *c)
{
    struct sql_reply reply = { .own = &c->rows };
    unsigned asked = c->call->type->verb;
    bool news = has_news(c);
    int64_t numbers[MY_NUMBERS];
    const char *text;
    size_t len;

    c->begun = false;
    c->call = NULL;
    if (c->error == ER_UNKNOWN_STMT_HANDLER)
        c->c.prepared = 0;
    if (c->error) {
        make_error(c, &reply.err);
        reply.fate = kind_of(c->error)->fate;
    } else {
        reply.rows = c->rows.rows;
    }
    if (news) {
        reply.n = hf__mysql_numbers(c->rows.bytes + c->rows.spans[0].at, numbers);
        reply.numbers = numbers;
        if (asked == SQL_JOIN && reply.n > 0)
            hf__mysql_joined(c, numbers[0]);
    } else if (!c->error && c->verb != asked) {
        reply.n =
            hf__mysql_short_answer(c, mysql_stmt_insert_id(c->stmts[c->verb]), numbers);
        reply.numbers = numbers;
    }
    hf__sql_conn_answered(&c->c, &reply);
    if (news && link_open(&c->c.link)) {
        text = hf__mysql_bytes(&reply, 0, 1, &len);
        hf__mysql_news(mysql_of(c->c.sql), text, len);
    }
    if (c->rows.room > ROWS_KEPT)
        hf__mysql_forget_rows(&c->rows);
    c->c.flying = 0;
}

/* ---- what follows a step --------------------------------------------------------- */

static int execute(struct my_conn *c)
{
    unsigned verb = c->verb;

    c->begun = true;
    c->error = 0;
    c->rows.rows = c->rows.columns = c->rows.used = 0;
    if (verb == MY_SCRIPT)
        return begin(c, STEP_QUERY);
    if (!c->stmts[verb])
        c->stmts[verb] = mysql_stmt_init(c->my);
    if (!c->stmts[verb]) {
        hf__mysql_keep_error(c, CR_OUT_OF_MEMORY, "no memory for a statement");
        return IDLE;
    }
    if (!(c->c.prepared & 1u << verb))
        return begin(c, STEP_PREPARE);
    mysql_stmt_bind_param(stmt_of(c), c->binds);
    return begin(c, STEP_EXECUTE);
}

static int failed(struct my_conn *c)
{
    if (c->step == STEP_ROLLBACK) { /* a transaction may be open: not with this one */
        hf__mysql_keep_error(c, CR_SERVER_LOST, mysql_error(c->my));
        return IDLE;
    }
    if (c->step == STEP_QUERY)
        hf__mysql_keep_error(c, mysql_errno(c->my), mysql_error(c->my));
    else
        hf__mysql_keep_error(c, mysql_stmt_errno(stmt_of(c)), mysql_stmt_error(stmt_of(c)));
    return ends_session(c) ? IDLE : begin(c, STEP_ROLLBACK);
}

static int no_room(struct my_conn *c)
{
    hf__mysql_keep_error(c, CR_OUT_OF_MEMORY, "no memory for an answer");
    return IDLE;
}

static int more(struct my_conn *c)
{
    return mysql_stmt_more_results(stmt_of(c)) ? begin(c, STEP_NEXT) : IDLE;
}

/* A short way has found no row: the long one, at once. */
static int long_way(struct my_conn *c)
{
    struct sql_args a = { .n = 0 };

    hf__mysql_missed(c);
    c->verb = c->call->type->verb;
    c->call->type->build(c->c.sql, c->call, &a);
    return hf__mysql_bind(c, c->verb, &a) < 0 ? no_room(c) : execute(c);
}

/* Rows of the first result that has any. */
static int executed(struct my_conn *c)
{
    if (c->verb != c->call->type->verb)
        return mysql_stmt_affected_rows(stmt_of(c)) == 1 ? IDLE : long_way(c);
    if (hf__mysql_locks_row(c, c->verb)) /* the fence is all that it answers */
        return mysql_stmt_affected_rows(stmt_of(c)) != 1 ||
                       hf__mysql_put_number(&c->rows, mysql_stmt_insert_id(stmt_of(c)))
                   ? IDLE
                   : no_room(c);
    if (mysql_stmt_field_count(stmt_of(c)) == 0 || c->rows.columns > 0)
        return more(c);
    return hf__mysql_bind_row(c, stmt_of(c)) ? begin(c, STEP_FETCH) : no_room(c);
}

static int fetched(struct my_conn *c)
{
    if (c->ret == MYSQL_NO_DATA)
        return more(c);
    return hf__mysql_read_row(c, stmt_of(c)) ? begin(c, STEP_FETCH) : no_room(c);
}

static int connect_ended(struct my_conn *c)
{
    hf__mysql_forget_password(c);
    if (!c->connected && !c->error)
        hf__mysql_keep_error(c, mysql_errno(c->my), mysql_error(c->my));
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
        c->c.prepared |= 1u << c->verb;
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
    c->events = events;
    return hf__sql_conn_watch(&c->c, (events & MYSQL_WAIT_READ ? EPOLLIN : 0u) |
                                         (events & MYSQL_WAIT_WRITE ? EPOLLOUT : 0u) |
                                         (events & MYSQL_WAIT_EXCEPT ? EPOLLPRI : 0u));
}

static void connected(struct my_conn *c)
{
    sql_env(&c->c)->timer(sql_env(&c->c), &c->c.timer, LOOP_NEVER);
    c->c.up = true;
    if (c->c.session)
        hf__mysql_keep_alive(socket_of(&c->c));
    hf__link_opened(&c->c.link);
}

/* Goes on until the socket must be waited for, or nothing is left to do. */
static void run(struct my_conn *c, int events)
{
    c->running = true; /* what follows may flush */
    for (;;) {
        while (events == 0)
            events = ended(c);
        if (events > 0)
            break;
        c->step = STEP_NONE;
        if (c->error && (!c->c.up || ends_session(c))) {
            lost_by_error(c);
            return;
        }
        if (!c->c.up)
            connected(c);
        else if (c->begun)
            answered(c);
        hf__sql_conn_more(&c->c);
        if (!c->c.up)
            return; /* given up meanwhile */
        if (!c->call || !link_open(&c->c.link)) {
            events = MYSQL_WAIT_READ; /* nothing should come */
            break;
        }
        events = execute(c);
    }
    c->running = false;
    if (watch(c, events) < 0) {
        hf__mysql_keep_error(c, CR_OUT_OF_MEMORY, "a socket cannot be watched");
        lost_by_error(c);
    }
}

/* The library closes and opens sockets as it likes while it connects, and the number may
 * stay: so it is not watched then. */
static void go_on(struct my_conn *c, int events)
{
    if (!c->c.up)
        sql_env(&c->c)->unwatch(sql_env(&c->c), &c->c.watch);
    run(c, proceed(c, events));
}

/* It is time to begin, or too late. */
static bool due(struct sql_conn *k)
{
    struct my_conn *c = my_conn_of(k);

    if (!c->my || c->step != STEP_NONE)
        return false;
    sql_env(k)->timer(sql_env(k), &k->timer, c->connect_by);
    run(c, begin(c, STEP_CONNECT));
    return true;
}

static void flush_my(struct sql_conn *k)
{
    struct my_conn *c = my_conn_of(k);

    if (!c->running && c->step == STEP_NONE && c->call && !c->begun)
        run(c, execute(c));
}

/* Between calls a server says nothing but that it ends the session; TLS may have something
 * to say by itself. */
static void unasked(struct my_conn *c)
{
    struct env *env = sql_env(&c->c);
    char byte;
    ssize_t n = recv(socket_of(&c->c), &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0 && errno == EAGAIN)
        return;
    if (n > 0 && mysql_get_ssl_cipher(c->my)) {
        env->unwatch(env, &c->c.watch);
        return;
    }
    hf__mysql_keep_error(c, CR_SERVER_GONE_ERROR, "the server has ended the connection");
    lost_by_error(c);
}

static void ready_my(struct sql_conn *k, uint32_t events)
{
    struct my_conn *c = my_conn_of(k);
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
        go_on(c, e & c->events);
}

static void read_my(struct sql_conn *k)
{
    struct my_conn *c = my_conn_of(k);
    struct pollfd p = { .events = POLLIN };

    if (c->step == STEP_NONE || !(c->events & MYSQL_WAIT_READ))
        return;
    p.fd = socket_of(k);
    if (poll(&p, 1, 0) > 0)
        go_on(c, MYSQL_WAIT_READ);
}

const struct sql_wire hf__mysql_wire = {
    .driver = &hf__driver_mysql,
    .size = sizeof(struct mysql),
    .conn_size = sizeof(struct my_conn),
    .texts = hf__mysql_texts,
    .most = 1,
    .turns = 2, /* a name may have an address of each family */
    .locked_us = LOCKED_US,
    .least_ms = LEAST_MS,
    .read_url = hf__mysql_read_url,
    .begin = hf__mysql_begin,
    .end = hf__mysql_end,
    .listen = hf__mysql_listen,
    .attach = hf__mysql_attach_greet,
    .down = hf__mysql_down,
    .open = hf__mysql_connect,
    .found = hf__mysql_found,
    .due = due,
    .ready = ready_my,
    .send = send_my,
    .flush = flush_my,
    .read = read_my,
    .close = close_my,
    .done = done_my,
    .socket = socket_of,
    .number = hf__mysql_number,
    .bytes = hf__mysql_bytes,
};
