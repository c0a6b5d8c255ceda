/* postgres.c: the least that a PostgreSQL server could do for the same, by libpq.
 *
 *   a pair      two updates of one row, prepared, each a transaction that is awaited
 *   in flight   the same in pipeline mode by one connection, so many under way at once
 *   a hand-off  one update, and one NOTIFY to the other's connection
 *   mode=       a pair: the bare statements of that mode, prepared, in two trips
 *
 * The rows are in a table of each worker's, which goes in the end. They are as durable as
 * the library's: the server's settings decide. */
#include "bench.h"

#include <libpq-fe.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLIGHT_MOST = 256 };

struct raw {
    PGconn *commands, *messages;
    char table[64], peer[64];
};

static int broken(const PGconn *c)
{
    const char *text = PQerrorMessage(c);

    cli_say("bench: the server: %.*s", (int)strcspn(text, "\n"), text);
    return EXIT_UNREACHABLE;
}

static int judge(const PGconn *c, PGresult *r)
{
    ExecStatusType status = PQresultStatus(r);

    PQclear(r);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ? 0 : broken(c);
}

static int run(PGconn *c, const char *text)
{
    return judge(c, PQexec(c, text));
}

/* ---- opening --------------------------------------------------------------------- */

static void ignore_notice(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}

/* Parameters are ours, and libpq does not know them. */
static int enter(PGconn **ret, const char *url)
{
    char plain[512];

    snprintf(plain, sizeof plain, "%.*s", (int)strcspn(url, "?"), url);
    *ret = PQconnectdb(plain);
    if (!*ret || PQstatus(*ret) != CONNECTION_OK)
        return broken(*ret);
    PQsetNoticeProcessor(*ret, ignore_notice, NULL);
    return 0;
}

static int raw_open(struct worker *w)
{
    struct raw *r = w->raw = calloc(1, sizeof *r);
    char text[1024];
    int status;

    if (!r) {
        cli_say("out of memory");
        return EXIT_SYSTEM;
    }
    snprintf(r->table, sizeof r->table, "holdfast_bench_%d_%d", (int)getppid(), w->index);
    snprintf(r->peer, sizeof r->peer, "holdfast_bench_%d_%d", (int)getppid(), 1 - w->index);
    status = enter(&r->commands, w->bench->url);
    if (status == 0)
        status = enter(&r->messages, w->bench->url);
    snprintf(text, sizeof text,
             "CREATE TABLE %s (id int PRIMARY KEY, n int8) WITH (fillfactor = 50);"
             " INSERT INTO %s SELECT i, 0 FROM generate_series(0, %d) i;"
             " PREPARE one AS UPDATE %s SET n = n + 1 WHERE id = $1;"
             " PREPARE hold AS SELECT n FROM %s WHERE id = $1 FOR UPDATE NOWAIT;"
             " PREPARE key AS SELECT pg_try_advisory_lock($1);"
             " PREPARE unkey AS SELECT pg_advisory_unlock($1)",
             r->table, r->table, FLIGHT_MOST, r->table, r->table);
    if (status == 0)
        status = run(r->commands, text);
    snprintf(text, sizeof text, "LISTEN %s", r->table);
    return status ? status : run(r->messages, text);
}

static void raw_close(struct worker *w)
{
    struct raw *r = w->raw;
    char text[128];

    if (!r)
        return;
    snprintf(text, sizeof text, "DROP TABLE IF EXISTS %s", r->table);
    if (r->commands)
        PQclear(PQexec(r->commands, text));
    PQfinish(r->commands);
    PQfinish(r->messages);
    free(r);
    w->raw = NULL;
}

/* ---- pairs ----------------------------------------------------------------------- */

static int update(struct raw *r)
{
    static const char *const values[] = { "0" };

    return judge(r->commands, PQexecPrepared(r->commands, "one", 1, values, NULL, NULL, 0));
}

static int raw_pair(struct worker *w)
{
    int status = update(w->raw);

    return status ? status : update(w->raw);
}

/* ---- hand-off -------------------------------------------------------------------- */

static int look(struct worker *w)
{
    struct raw *r = w->raw;
    char text[128];

    snprintf(text, sizeof text, "SELECT n FROM %s WHERE id = 0", r->table);
    return judge(r->commands, PQexec(r->commands, text));
}

static int give(struct worker *w)
{
    struct raw *r = w->raw;
    const char *const values[] = { r->peer };
    int status = update(r);

    return status ? status
                  : judge(r->commands, PQexecParams(r->commands, "SELECT pg_notify($1, '')",
                                                    1, NULL, values, NULL, NULL, 0));
}

static int take(struct worker *w)
{
    struct raw *r = w->raw;
    struct pollfd p = { .fd = PQsocket(r->messages), .events = POLLIN };
    PGnotify *n;

    while ((n = PQnotifies(r->messages)) == NULL)
        if (poll(&p, 1, 10000) != 1 || PQconsumeInput(r->messages) != 1)
            return broken(r->messages);
    PQfreemem(n);
    return 0;
}

static int raw_turns(struct worker *w, int64_t until)
{
    static const struct bench_turn turn = { look, give, take };

    return bench_turns(w, &turn, until);
}

/* ---- many in flight -------------------------------------------------------------- */

struct flight {
    struct raw *raw;
    struct slice *slice;
    struct {
        int64_t since;
        bool holds, over;
    } slot[FLIGHT_MOST];
    int n, next, flying;
    int64_t until;
};

static int send_one(struct flight *f, int i)
{
    PGconn *c = f->raw->commands;
    char id[16];
    const char *const values[] = { id };

    snprintf(id, sizeof id, "%d", i);
    return PQsendQueryPrepared(c, "one", 1, values, NULL, NULL, 0) == 1 &&
                   PQpipelineSync(c) == 1
               ? 0
               : broken(c);
}

/* The result, the end of it, the end of its transaction. */
static int receive_one(struct flight *f)
{
    PGconn *c = f->raw->commands;
    int status = judge(c, PQgetResult(c));
    PGresult *sync;

    PQclear(PQgetResult(c));
    sync = PQgetResult(c);
    if (status == 0 && PQresultStatus(sync) != PGRES_PIPELINE_SYNC)
        status = broken(c);
    PQclear(sync);
    return status;
}

/* Answers come in the order of the requests, so the slots take turns for ever. */
static int landed(struct flight *f)
{
    int i = f->next, status = receive_one(f);
    int64_t now = bench_now();

    if (f->slot[i].holds) {
        f->slice->pairs++;
        samples_add(&f->slice->samples, (double)(now - f->slot[i].since) / 1e3);
        f->slot[i].since = now;
        f->slot[i].over = now >= f->until;
        f->flying -= f->slot[i].over;
    }
    if (status == 0 && !f->slot[i].over)
        status = send_one(f, i);
    f->slot[i].holds = !f->slot[i].holds;
    do
        f->next = (f->next + 1) % f->n;
    while (f->flying > 0 && f->slot[f->next].over);
    return status;
}

static int raw_flight(struct worker *w, int n, int64_t until)
{
    struct raw *r = w->raw;
    struct flight f = { .raw = r, .slice = w->slice, .until = until };
    int64_t start = bench_now();
    int status = PQenterPipelineMode(r->commands) == 1 ? 0 : broken(r->commands);

    f.n = f.flying = n < FLIGHT_MOST ? n : FLIGHT_MOST;
    for (int i = 0; i < f.n && status == 0; i++) {
        f.slot[i].since = start;
        status = send_one(&f, i);
    }
    while (status == 0 && f.flying > 0)
        status = landed(&f);
    w->slice->ns = bench_now() - start;
    PQexitPipelineMode(r->commands);
    return status;
}

/* ---- other modes ----------------------------------------------------------------- */

/* Three at most, in one trip; NULL: none. */
static int trip(struct raw *r, const char *before, const char *prepared, const char *after)
{
    static const char *const values[] = { "0" };
    PGconn *c = r->commands;
    int n = 1 + (before != NULL) + (after != NULL), status = 0;

    if ((before && PQsendQueryParams(c, before, 0, NULL, NULL, NULL, NULL, 0) != 1) ||
        PQsendQueryPrepared(c, prepared, 1, values, NULL, NULL, 0) != 1 ||
        (after && PQsendQueryParams(c, after, 0, NULL, NULL, NULL, NULL, 0) != 1) ||
        PQpipelineSync(c) != 1)
        return broken(c);
    for (int i = 0; i < n && status == 0; i++) {
        status = judge(c, PQgetResult(c));
        PQclear(PQgetResult(c)); /* the end of it */
    }
    PQclear(PQgetResult(c)); /* the end of the trip */
    return status;
}

static int modes_open(struct worker *w)
{
    int status = raw_open(w);
    PGconn *c = status ? NULL : ((struct raw *)w->raw)->commands;

    return status || PQenterPipelineMode(c) == 1 ? status : broken(c);
}

static void modes_close(struct worker *w)
{
    if (w->raw && ((struct raw *)w->raw)->commands)
        PQexitPipelineMode(((struct raw *)w->raw)->commands);
    raw_close(w);
}

static int pessimistic_pair(struct worker *w)
{
    int status = trip(w->raw, "BEGIN", "hold", NULL);

    return status ? status : trip(w->raw, NULL, "one", "COMMIT");
}

static int advisory_pair(struct worker *w)
{
    int status = trip(w->raw, NULL, "key", NULL);

    return status ? status : trip(w->raw, NULL, "unkey", NULL);
}

/* ---- for whom -------------------------------------------------------------------- */

static bool has_mode(const char *url, const char *mode)
{
    const char *params = strchr(url, '?');

    return strncmp(url, "postgres", 8) == 0 &&
           (mode ? params && strcmp(params, mode) == 0 : !params);
}

static bool serves(const char *url)
{
    return has_mode(url, NULL);
}

static bool serves_pessimistic(const char *url)
{
    return has_mode(url, "?mode=pessimistic");
}

static bool serves_advisory(const char *url)
{
    return has_mode(url, "?mode=advisory");
}

const struct bench_raw bench_raw_postgres = { .serves = serves,
                                              .open = raw_open,
                                              .close = raw_close,
                                              .pair = raw_pair,
                                              .turns = raw_turns,
                                              .flight = raw_flight,
                                              .pair_most = 2,
                                              .turns_most = 2,
                                              .flight_most = 1 / 0.5 };

const struct bench_raw bench_raw_postgres_pessimistic = { .serves = serves_pessimistic,
                                                          .open = modes_open,
                                                          .close = modes_close,
                                                          .pair = pessimistic_pair,
                                                          .pair_most = 1.15 };

const struct bench_raw bench_raw_postgres_advisory = { .serves = serves_advisory,
                                                       .open = modes_open,
                                                       .close = modes_close,
                                                       .pair = advisory_pair,
                                                       .pair_most = 1.15 };
