/* conn.c: one connection: libpq, in pipeline mode, as the library of a sql_conn.
 *
 * A call is one statement and a Sync, so it is a transaction of its own, and many are under
 * way. For each the server sends its rows, then what became of the commit, then that it is
 * ready: only that last message makes an answer. Rows of a statement whose commit failed
 * are overwritten by the error; if the connection breaks before it, nobody knows, and the
 * call stays unanswered (G7). An error that libpq made up itself has no SQLSTATE and is no
 * answer either, nor is one that ends the session.
 *
 * libpq never gives back what it needs for each call under way, so it is given FLYING_MOST
 * of them at a time.
 *
 * Statements are prepared at their first use if the session is ours alone. Behind a
 * transaction pooler they are sent as text every time.
 *
 * schema.sql has many statements, which only the simple protocol takes: pipeline mode is
 * left for it. */
#include "driver/postgres/postgres.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define NOT_PREPARED "26000"

enum {
    NUMBERS_MAX = 3 + SQL_RENEW_MOST,
    INT8_LEN = 8,
    NAME_LEN = 20,
    FLYING_MOST = 128,
    LEAST_MS = 1500, /* more than the lock_timeout of schema.sql */
    LOCKED_US =
        100000 /* another call is let in before a row that is locked is tried again */
};

/* ---- errors ---------------------------------------------------------------------- */

struct pg_kind hf__postgres_kind(const char *state)
{
    static const struct {
        const char *state; /* or its beginning */
        struct pg_kind kind;
    } kinds[] = {
        { "28", { HF_EAUTH, SQL_REFUSED } },
        { "42501", { HF_EAUTH, SQL_REFUSED } },
        { "3D000", { HF_EINVAL, SQL_REFUSED } },
        { "53100", { HF_EFULL, SQL_REFUSED } },
        { "53200", { HF_EFULL, SQL_REFUSED } },
        { "0A000", { HF_ENOTSUP, SQL_REFUSED } },
        { "XX001", { HF_EDAMAGED, SQL_REFUSED } },
        { "XX002", { HF_EDAMAGED, SQL_REFUSED } },
        { "40", { HF_EPROTO, SQL_UNDONE } }, /* 40001 serialization, 40P01 deadlock */
        { "55P03", { HF_EPROTO, SQL_LOCKED } },
        { "57014", { HF_EUNREACHABLE, SQL_UNDONE } }, /* statement limit */
        { NOT_PREPARED, { HF_EPROTO, SQL_UNDONE } },
        { "42P05", { HF_EPROTO, SQL_UNDONE } }, /* prepared already */
        { "57P", { HF_EUNREACHABLE, SQL_GONE } },
        { "08", { HF_EUNREACHABLE, SQL_GONE } },
        { "25006", { HF_EPROTO, SQL_GONE } },
        { "3F000", { HF_EPROTO, SQL_GONE } },
        { "42883", { HF_EPROTO, SQL_GONE } },
        { "53", { HF_EUNREACHABLE, SQL_REFUSED } },
        { "57", { HF_EUNREACHABLE, SQL_REFUSED } },
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(state, kinds[i].state, strlen(kinds[i].state)) == 0)
            return kinds[i].kind;
    /* without a state: of libpq itself */
    return (struct pg_kind){ HF_EPROTO, state[0] ? SQL_REFUSED : SQL_GONE };
}

static void close_pq(struct sql_conn *k)
{
    struct pg_conn *c = pg_conn_of(k);

    PQclear(c->result);
    c->result = NULL;
    PQfinish(c->pg);
    c->pg = NULL;
    c->making = c->direct = false;
}

static void done_pq(struct sql_conn *k)
{
    free(pg_conn_of(k)->addresses);
}

static int socket_of(const struct sql_conn *k)
{
    const PGconn *pg = container_of(k, struct pg_conn, c)->pg;

    return pg ? PQsocket(pg) : -1;
}

/* ---- sending --------------------------------------------------------------------- */

struct values { /* of the arguments, as libpq takes them */
    const char *at[SQL_ARGS];
    int len[SQL_ARGS], format[SQL_ARGS];
    uint64_t ints[SQL_ARGS];
    struct text lists; /* one after the other, each with its NUL */
    size_t list_at[SQL_ARGS];
};

static void write_list(struct values *v, size_t i, const struct sql_arg *a)
{
    const int64_t *n = a->at;

    v->list_at[i] = v->lists.len;
    hf__text_add(&v->lists, "{");
    for (size_t j = 0; j < a->n; j++)
        hf__text_add(&v->lists, "%s%lld", j > 0 ? "," : "", (long long)n[j]);
    hf__text_add(&v->lists, "}%c", '\0');
}

static bool write_values(struct values *v, const struct sql_args *a)
{
    for (size_t i = 0; i < a->n; i++) {
        v->format[i] = a->at[i].kind != SQL_INTS;
        if (a->at[i].kind == SQL_INT) {
            v->ints[i] = htobe64((uint64_t)a->at[i].number);
            v->at[i] = (const char *)&v->ints[i];
            v->len[i] = INT8_LEN;
        } else if (a->at[i].kind == SQL_BYTES) {
            v->at[i] = a->at[i].n > 0 ? a->at[i].at : "";
            v->len[i] = (int)a->at[i].n;
        } else {
            write_list(v, i, &a->at[i]);
        }
    }
    for (size_t i = 0; i < a->n && !v->lists.failed; i++)
        if (a->at[i].kind == SQL_INTS)
            v->at[i] = v->lists.buf + v->list_at[i];
    return !v->lists.failed;
}

/* LISTEN takes no parameters; the channel is made of digits. */
static bool send_listen(struct pg_conn *c)
{
    char text[64];

    snprintf(text, sizeof text, "LISTEN %s", postgres_of(c->c.sql)->channel);
    return PQsendQueryParams(c->pg, text, 0, NULL, NULL, NULL, NULL, 1) == 1;
}

static const char *name_of(char name[NAME_LEN], unsigned verb)
{
    snprintf(name, NAME_LEN, "holdfast%u", verb);
    return name;
}

/* If it turns out that it is prepared already, or is not, it is sent again, and from then
 * on we know. */
static bool prepares(struct pg_conn *c, unsigned verb)
{
    char name[NAME_LEN];

    if (!c->direct || (verb >= SQL_VERBS && verb < PG_BEGIN) ||
        (c->c.prepared & 1u << verb))
        return true;
    c->c.prepared |= 1u << verb;
    return PQsendPrepare(c->pg, name_of(name, verb), hf__sql_text(&c->c, verb), 0, NULL) ==
           1;
}

static bool send_statement(struct pg_conn *c, unsigned verb, int n, const struct values *v)
{
    char name[NAME_LEN];

    if (verb == PG_LISTEN)
        return send_listen(c);
    if (!prepares(c, verb))
        return false;
    return (c->c.prepared & 1u << verb
                ? PQsendQueryPrepared(c->pg, name_of(name, verb), n, v->at, v->len,
                                      v->format, 1)
                : PQsendQueryParams(c->pg, hf__sql_text(&c->c, verb), n, NULL, v->at,
                                    v->len, v->format, 1)) == 1;
}

/* What is sent before one Sync is one transaction and is answered together: the last result
 * counts, or the first error, and what comes after that is not executed. So nothing is
 * prepared behind a row lock, which may be refused. It lasts for as long as its
 * transaction, which is begun in the same trip. */
static bool send_before(struct pg_conn *c, unsigned verb, const struct values *v)
{
    if (c->c.sql->mode != SQL_PESSIMISTIC || (verb != SQL_TRY && verb != SQL_LOCK))
        return true;
    return prepares(c, verb) && send_statement(c, PG_BEGIN, 0, v) &&
           send_statement(c, verb == SQL_TRY ? PG_TRY_ROW : PG_LOCK_ROW, 2, v);
}

/* A statement for each kind of lock is shorter than one that chooses. */
static unsigned by_kind(const struct pg_conn *c, unsigned verb)
{
    if (!c->c.session || !c->c.session->shared)
        return verb;
    return verb == SQL_TRY       ? PG_TRY_SHARED
           : verb == SQL_LOCK    ? PG_LOCK_SHARED
           : verb == SQL_RELEASE ? PG_RELEASE_SHARED
                                 : verb;
}

static int send_pq(struct sql_conn *k, struct sql_call *q, struct sql_args *a)
{
    struct pg_conn *c = pg_conn_of(k);
    struct values v = { .lists = { 0 } };
    unsigned verb = q->type->verb;
    int rc = HF_EUNREACHABLE;

    if (!write_values(&v, a))
        rc = HF_ENOMEM;
    else if (send_before(c, verb, &v) &&
             send_statement(c, by_kind(c, verb), (int)a->n, &v) &&
             PQpipelineSync(c->pg) == 1)
        rc = 0;
    free(v.lists.buf);
    return rc;
}

static void flush_pq(struct sql_conn *k)
{
    struct pg_conn *c = pg_conn_of(k);
    int rc = PQflush(c->pg);

    if (rc < 0 || hf__sql_conn_watch(k, rc > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN) < 0)
        hf__postgres_lost(c);
}

/* ---- answers --------------------------------------------------------------------- */

static int64_t read_int(const char *at)
{
    uint64_t number;

    memcpy(&number, at, sizeof number);
    return (int64_t)be64toh(number);
}

/* An array of int8 in binary: dimensions, flags, type, length, lower bound (4 bytes each),
 * then each with its length. Returns how many; -1: it is none, or too long. */
static int read_numbers(const PGresult *res, int64_t *numbers)
{
    const char *at = PQgetvalue(res, 0, 0);
    int len = PQgetlength(res, 0, 0);
    uint32_t head[5] = { 0 };

    if (len < 12)
        return -1;
    memcpy(head, at, len < 20 ? 12 : 20);
    if (ntohl(head[0]) == 0)
        return 0;
    if (ntohl(head[0]) != 1 || ntohl(head[3]) > NUMBERS_MAX ||
        len != 20 + 12 * (int)ntohl(head[3]))
        return -1;
    for (size_t i = 0; i < ntohl(head[3]); i++)
        numbers[i] = read_int(at + 20 + 12 * i + 4);
    return (int)ntohl(head[3]);
}

static int64_t reply_number(const struct sql_reply *r, size_t row, size_t column)
{
    const PGresult *res = r->own;

    if ((int)column >= PQnfields(res) ||
        PQgetlength(res, (int)row, (int)column) != INT8_LEN)
        return 0;
    return read_int(PQgetvalue(res, (int)row, (int)column));
}

static const void *reply_bytes(const struct sql_reply *r, size_t row, size_t column,
                               size_t *n)
{
    const PGresult *res = r->own;

    *n = 0;
    if ((int)column >= PQnfields(res))
        return "";
    *n = (size_t)PQgetlength(res, (int)row, (int)column);
    return PQgetvalue(res, (int)row, (int)column);
}

static const char *state_of(const PGresult *res)
{
    const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

    return state ? state : "";
}

static void refusal(const struct pg_conn *c, const PGresult *res, hf_error *err)
{
    const char *text = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);
    int code = hf__postgres_kind(state_of(res)).code;

    if (text) {
        hf__fail(err, code, 0, c->c.sql->shown, "%s (%s)", text, state_of(res));
        return;
    }
    /* libpq's own, such as a connection that has ended: advice follows the first line */
    text = PQresultErrorMessage(res);
    hf__fail(err, code, 0, c->c.sql->shown, "%.*s", (int)strcspn(text, "\n"), text);
}

static bool is_error(const PGresult *res)
{
    return PQresultStatus(res) != PGRES_TUPLES_OK &&
           PQresultStatus(res) != PGRES_COMMAND_OK;
}

static void read_error(struct pg_conn *c, struct sql_reply *reply)
{
    refusal(c, c->result, &reply->err);
    reply->fate = hf__postgres_kind(state_of(c->result)).fate;
    if (strcmp(state_of(c->result), NOT_PREPARED) == 0)
        c->c.prepared = 0;
}

/* Its transaction has ended. */
static void answered(struct pg_conn *c)
{
    const struct link_call *first = hf__link_oldest(&c->c.link);
    struct sql_reply reply = { .own = c->result };
    int64_t numbers[NUMBERS_MAX];
    PGresult *res = c->result;

    c->c.flying--;
    if (!first || !res) {
        hf__link_fail(&c->c.link, HF_EPROTO, "an answer that nobody asked for");
        return;
    }
    if (is_error(res)) {
        read_error(c, &reply);
    } else if (PQresultStatus(res) == PGRES_TUPLES_OK) {
        reply.rows = (size_t)PQntuples(res);
        if (reply.rows == 1 && PQnfields(res) == 1) {
            int n = read_numbers(res, numbers);

            reply.numbers = numbers;
            reply.n = n < 0 ? 0 : (size_t)n;
        }
    }
    c->result = NULL;
    hf__sql_conn_answered(&c->c, &reply);
    PQclear(res);
}

/* One result. An error takes the place of rows: the commit has failed. */
static void take(struct pg_conn *c, PGresult *res)
{
    ExecStatusType status = PQresultStatus(res);
    hf_error err;

    if (status == PGRES_PIPELINE_SYNC) {
        answered(c);
    } else if (status == PGRES_PIPELINE_ABORTED) {
        ; /* because of the error before it */
    } else if (is_error(res) && hf__postgres_kind(state_of(res)).fate == SQL_GONE) {
        refusal(c, res, &err);
        err.code = HF_EUNREACHABLE; /* the next greeting tells if we are refused for good */
        hf__link_break(&c->c.link, &err);
    } else if (!c->result || !is_error(c->result)) {
        PQclear(c->result);
        c->result = res;
        return;
    }
    PQclear(res);
}

/* schema.sql has run, if no result is left. */
static void take_made(struct pg_conn *c, PGresult *res)
{
    const char *text = NULL;
    char state[6], line[300];

    if (res && is_error(res)) {
        PQclear(c->result);
        c->result = res;
        return;
    }
    PQclear(res);
    if (res)
        return;
    c->making = false;
    snprintf(state, sizeof state, "%s", c->result ? state_of(c->result) : "");
    if (c->result)
        text = PQresultErrorField(c->result, PG_DIAG_MESSAGE_PRIMARY);
    if (!text) /* of libpq itself, or there is none */
        text = PQresultErrorMessage(c->result);
    hf__postgres_first_line(line, sizeof line, text);
    if (PQenterPipelineMode(c->pg) != 1)
        snprintf(state, sizeof state, "08000");
    hf__postgres_made(c, c->result ? state : NULL, line);
    PQclear(c->result);
    c->result = NULL;
}

static void take_results(struct pg_conn *c)
{
    while (link_open(&c->c.link) && (c->making || hf__link_oldest(&c->c.link)) &&
           !PQisBusy(c->pg)) {
        PGresult *res = PQgetResult(c->pg);

        if (c->making)
            take_made(c, res);
        else if (res)
            take(c, res);
        else if (PQstatus(c->pg) == CONNECTION_BAD)
            break;
    }
}

/* A pooler may hand us a session that listens for another connection of ours: what comes
 * there by chance says nothing about what will come (greet.c). */
static void take_messages(struct pg_conn *c)
{
    struct postgres *p = postgres_of(c->c.sql);
    PGnotify *n;

    while (link_open(&c->c.link) && (n = PQnotifies(c->pg)) != NULL) {
        /* behind a pooler one of ours may come by the wrong connection, and only then */
        if (c == &p->messages && strcmp(n->relname, p->channel) == 0)
            hf__postgres_notified(p, n->extra);
        PQfreemem(n);
    }
}

/* What came before the end of the connection is still read. */
static void receive(struct sql_conn *k)
{
    struct pg_conn *c = pg_conn_of(k);
    bool good = PQconsumeInput(c->pg) == 1;

    take_results(c);
    take_messages(c);
    hf__sql_conn_more(k);
    if ((!good || PQstatus(c->pg) != CONNECTION_OK) && !k->link.broken)
        hf__postgres_lost(c);
}

static void ready_pq(struct sql_conn *k, uint32_t events)
{
    if (events & EPOLLOUT && k->up)
        hf__link_wrote(&k->link);
    if (k->up)
        receive(k);
    else
        hf__postgres_connect_step(pg_conn_of(k));
}

/* ---- the schema ------------------------------------------------------------------ */

void hf__postgres_make(struct pg_conn *c)
{
    c->making =
        PQexitPipelineMode(c->pg) == 1 && PQsendQuery(c->pg, hf__postgres_schema) == 1;
    if (!c->making)
        hf__link_fail(&c->c.link, HF_EUNREACHABLE, "%s", PQerrorMessage(c->pg));
    hf__link_wrote(&c->c.link);
}

const struct sql_wire hf__postgres_wire = {
    .driver = &hf__driver_postgres,
    .size = sizeof(struct postgres),
    .conn_size = sizeof(struct pg_conn),
    .texts = hf__postgres_texts,
    .most = FLYING_MOST,
    .locked_us = LOCKED_US,
    .least_ms = LEAST_MS,
    .follows = true,
    .read_url = hf__postgres_read_url,
    .begin = hf__postgres_begin,
    .end = hf__postgres_end,
    .listen = hf__postgres_listen,
    .attach = hf__postgres_attach_greet,
    .down = hf__postgres_down,
    .open = hf__postgres_connect,
    .found = hf__postgres_found,
    .due = hf__postgres_due,
    .ready = ready_pq,
    .send = send_pq,
    .flush = flush_pq,
    .read = receive,
    .close = close_pq,
    .done = done_pq,
    .socket = socket_of,
    .number = reply_number,
    .bytes = reply_bytes,
};
