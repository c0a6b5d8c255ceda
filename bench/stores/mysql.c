/* mysql.c: the least that a MariaDB server could do for the same, by its own library.
 *
 *   a pair      two updates of one row, prepared, each a transaction that is awaited
 *   in flight   the same in a loop: the library has one statement under way at a time
 *   a hand-off  one update, and a user lock that the other's connection waits for
 *
 * Hand-off: each of both has one of two user locks. Who is on turn updates and gives its
 * lock back, which wakes the other. The first begins; when both have had their turn, the
 * locks have changed places.
 *
 * mode=pessimistic   the row is updated in a transaction, which is committed
 * mode=named         a user lock is taken and given back
 *
 * The rows are in a table of each worker's, which goes in the end. They are as durable as
 * the library's: the server's settings decide. */
#include "bench.h"

#include <mysql.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct raw {
    MYSQL *commands;
    MYSQL_STMT *update;
    char table[64];
    int mine; /* the lock that we have */
};

static int broken(const char *text)
{
    cli_say("bench: the server: %s", text);
    return EXIT_UNREACHABLE;
}

static int run(MYSQL *c, const char *text)
{
    MYSQL_RES *r;
    int rc = mysql_query(c, text);

    if (rc == 0 && (r = mysql_store_result(c)) != NULL)
        mysql_free_result(r);
    return rc == 0 ? 0 : broken(mysql_error(c));
}

/* ---- opening --------------------------------------------------------------------- */

struct place {
    char user[64], password[64], host[256], database[80];
    unsigned port;
};

/* scheme://user[:password]@host:port/database */
static bool read_url(const char *url, struct place *p)
{
    memset(p, 0, sizeof *p);
    return sscanf(url, "%*[a-z]://%63[^:@/]@%255[^:/]:%u/%79[^?]", p->user, p->host,
                  &p->port, p->database) == 4 ||
           sscanf(url, "%*[a-z]://%63[^:@/]:%63[^@/]@%255[^:/]:%u/%79[^?]", p->user,
                  p->password, p->host, &p->port, p->database) == 5;
}

static int enter(struct raw *r, const char *url)
{
    struct place p;

    r->commands = read_url(url, &p) ? mysql_init(NULL) : NULL;
    if (!r->commands)
        return broken("a URL of another form");
    return mysql_real_connect(r->commands, p.host, p.user, p.password, p.database, p.port,
                              NULL, CLIENT_MULTI_STATEMENTS)
               ? 0
               : broken(mysql_error(r->commands));
}

static int name_lock(const struct raw *r, const char *verb, int which, const char *rest)
{
    char text[128];

    snprintf(text, sizeof text, "SELECT %s('holdfast_bench_%d_%d'%s)", verb, (int)getppid(),
             which, rest);
    return run(r->commands, text);
}

static int prepare(struct raw *r)
{
    char text[160];

    snprintf(text, sizeof text,
             "CREATE OR REPLACE TABLE %s (id INT PRIMARY KEY, n BIGINT) ENGINE=InnoDB",
             r->table);
    if (run(r->commands, text))
        return EXIT_UNREACHABLE;
    snprintf(text, sizeof text, "INSERT INTO %s VALUES (0, 0)", r->table);
    if (run(r->commands, text))
        return EXIT_UNREACHABLE;
    snprintf(text, sizeof text, "UPDATE %s SET n = n + 1 WHERE id = 0", r->table);
    r->update = mysql_stmt_init(r->commands);
    return r->update && mysql_stmt_prepare(r->update, text, strlen(text)) == 0
               ? 0
               : broken(mysql_error(r->commands));
}

static int raw_open(struct worker *w)
{
    struct raw *r = w->raw = calloc(1, sizeof *r);
    int status;

    if (!r) {
        cli_say("out of memory");
        return EXIT_SYSTEM;
    }
    snprintf(r->table, sizeof r->table, "holdfast_bench_%d_%d", (int)getppid(), w->index);
    r->mine = w->index;
    status = enter(r, w->bench->url);
    if (status == 0)
        status = prepare(r);
    return status ? status : name_lock(r, "GET_LOCK", r->mine, ", 10");
}

static void raw_close(struct worker *w)
{
    struct raw *r = w->raw;
    char text[128];

    if (!r)
        return;
    snprintf(text, sizeof text, "DROP TABLE IF EXISTS %s", r->table);
    if (r->update)
        mysql_stmt_close(r->update);
    if (r->commands) {
        mysql_query(r->commands, text);
        mysql_close(r->commands);
    }
    free(r);
    w->raw = NULL;
}

/* ---- pairs ----------------------------------------------------------------------- */

static int update(struct raw *r)
{
    return mysql_stmt_execute(r->update) == 0 ? 0 : broken(mysql_stmt_error(r->update));
}

static int raw_pair(struct worker *w)
{
    int status = update(w->raw);

    return status ? status : update(w->raw);
}

static int raw_flight(struct worker *w, int n, int64_t until)
{
    int64_t start = bench_now(), now = start;
    int status = 0;

    (void)n;
    while (status == 0 && now < until) {
        int64_t begin = now;

        status = raw_pair(w);
        now = bench_now();
        w->slice->pairs++;
        samples_add(&w->slice->samples, (double)(now - begin) / 1e3);
    }
    w->slice->ns = now - start;
    return status;
}

/* ---- hand-off -------------------------------------------------------------------- */

static int look(struct worker *w)
{
    struct raw *r = w->raw;
    char text[128];

    snprintf(text, sizeof text, "SELECT n FROM %s WHERE id = 0", r->table);
    return run(r->commands, text);
}

static int give(struct worker *w)
{
    struct raw *r = w->raw;
    int status = update(r);

    if (status == 0)
        status = name_lock(r, "RELEASE_LOCK", r->mine, "");
    if (w->index == 1)
        r->mine = 1 - r->mine;
    return status;
}

static int take(struct worker *w)
{
    struct raw *r = w->raw;
    int status = name_lock(r, "GET_LOCK", 1 - r->mine, ", 10");

    if (w->index == 0)
        r->mine = 1 - r->mine;
    return status;
}

static int raw_turns(struct worker *w, int64_t until)
{
    static const struct bench_turn turn = { look, give, take };

    return bench_turns(w, &turn, until);
}

/* ---- other modes ----------------------------------------------------------------- */

/* What is sent together is one trip. */
static int trip(struct raw *r, const char *before, const char *after)
{
    char text[256];
    int rc;

    snprintf(text, sizeof text, "%s%s%s", before, r->table, after);
    for (rc = mysql_query(r->commands, text); rc == 0; rc = mysql_next_result(r->commands))
        mysql_free_result(mysql_store_result(r->commands));
    return rc < 0 ? 0 : broken(mysql_error(r->commands));
}

static int pessimistic_pair(struct worker *w)
{
    struct raw *r = w->raw;
    int status = trip(r, "START TRANSACTION; UPDATE ", " SET n = n + 1 WHERE id = 0");

    return status ? status : run(r->commands, "COMMIT");
}

static int named_pair(struct worker *w)
{
    int status = trip(w->raw, "SELECT GET_LOCK('", "', 0)");

    return status ? status : trip(w->raw, "SELECT RELEASE_LOCK('", "')");
}

/* ---- for whom -------------------------------------------------------------------- */

static bool has_mode(const char *url, const char *mode)
{
    const char *params = strchr(url, '?');
    struct place p;

    return (strncmp(url, "mysql:", 6) == 0 || strncmp(url, "mariadb:", 8) == 0) &&
           (mode ? params && strcmp(params, mode) == 0 : !params) && read_url(url, &p);
}

static bool serves(const char *url)
{
    return has_mode(url, NULL);
}

static bool serves_pessimistic(const char *url)
{
    return has_mode(url, "?mode=pessimistic");
}

static bool serves_named(const char *url)
{
    return has_mode(url, "?mode=named");
}

const struct bench_raw bench_raw_mysql = { .serves = serves,
                                           .open = raw_open,
                                           .close = raw_close,
                                           .pair = raw_pair,
                                           .turns = raw_turns,
                                           .flight = raw_flight,
                                           .pair_most = 2,
                                           .turns_most = 2,
                                           .flight_most = 1 / 0.5 };

const struct bench_raw bench_raw_mysql_pessimistic = { .serves = serves_pessimistic,
                                                       .open = raw_open,
                                                       .close = raw_close,
                                                       .pair = pessimistic_pair,
                                                       .pair_most = 1.15 };

/* No limit: ours also says for whom the lock is taken, which is a row more. */
const struct bench_raw bench_raw_mysql_named = {
    .serves = serves_named, .open = raw_open, .close = raw_close, .pair = named_pair
};
