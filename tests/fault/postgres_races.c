/* postgres_races.c: races.h at every isolation level.
 *
 * The functions are called by hand, in two sessions: the first has its transaction open
 * while the second one comes, and then commits. What the server undoes (40001) is sent
 * again, as the driver does. */
#include "postgres_fault.h"
#include "races.h"

#include <holdfast/tool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *sessions[2];

/* ---- statements ------------------------------------------------------------------ */

static PGconn *enter(void)
{
    char info[512];
    PGconn *c;

    snprintf(info, sizeof(info), "host=%s port=%d user=holdfast dbname=postgres",
             server.dir, server.port);
    c = PQconnectdb(info);
    CHECK(PQstatus(c) == CONNECTION_OK);
    return c;
}

/* One after which `token` is in line, if there is room; {0}: it holds, {2}: busy. */
static const char *join(char token, int ttl_ms, int flags)
{
    static char text[2][400];
    static int next;

    next = !next;
    snprintf(text[next], sizeof(text[next]),
             "SELECT (holdfast.join('', 'n', decode(md5('%c'), 'hex'), 0, 2147483648,"
             " 2147483648, %d, %d, '\\x0000000000000001', 1, 1, 1, 'h', '', ''))[1]",
             token, ttl_ms, flags);
    return text[next];
}

static const char *leave(char token)
{
    static char text[200];

    snprintf(text, sizeof(text),
             "SELECT (holdfast.leave('', 'n', decode(md5('%c'), 'hex'), 0))[1]", token);
    return text;
}

static const char *renew(char token, int sent, int ttl_ms)
{
    static char text[300];

    snprintf(text, sizeof(text),
             "SELECT (holdfast.renew(%d, ARRAY[(SELECT id FROM holdfast.line)],"
             " decode(md5('%c'), 'hex'), ARRAY[%d::int8]))[1]",
             sent, token, ttl_ms);
    return text;
}

/* -1: undone */
static int number_of(PGresult *r)
{
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    int number = -1;

    if (PQresultStatus(r) == PGRES_TUPLES_OK)
        number = atoi(PQgetvalue(r, 0, 0));
    else if (!state || strncmp(state, "40", 2) != 0)
        check_failed(__FILE__, __LINE__, "%s", PQresultErrorMessage(r));
    PQclear(r);
    return number;
}

static int asked(int session, const char *text)
{
    int number;

    while ((number = number_of(PQexec(sessions[session], text))) < 0)
        ;
    return number;
}

/* The first does one thing and does not commit. */
static void begin(const char *one)
{
    PQclear(PQexec(sessions[0], "BEGIN"));
    CHECK_NUM(number_of(PQexec(sessions[0], one)), >=, 0);
}

/* The second wants another thing. Returns what it gets after the first one's commit. */
static int come(const char *other)
{
    int number;

    CHECK_NUM(PQsendQuery(sessions[1], other), ==, 1);
    AWAIT((PQconsumeInput(sessions[1]), !PQisBusy(sessions[1])) ||
          postgres_number(&server, "SELECT count(*) FROM pg_stat_activity WHERE "
                                   "wait_event_type = 'Lock'") == 1);
    PQclear(PQexec(sessions[0], "COMMIT"));
    number = number_of(PQgetResult(sessions[1]));
    PQclear(PQgetResult(sessions[1]));
    return number < 0 ? asked(1, other) : number;
}

static int64_t number(const char *query)
{
    return postgres_number(&server, "%s", query);
}

static void clear(void)
{
    postgres_do(&server, "DELETE FROM holdfast.ticket; DELETE FROM holdfast.line");
}

/* ---- the schema without one of its locks or conditions ---------------------------- */

/* Most matter only where a statement sees what was committed before it. */
static const struct mutation mutations[] = {
    { "the short join tests a row that it has not locked",
      "WHERE x.ns = p_ns AND x.name = p_name AND x.n = 0 AND x.nw = 0",
      "WHERE x.id = (SELECT y.id FROM holdfast.line y WHERE y.ns = p_ns AND y.name = p_name"
      " AND y.n = 0 AND y.nw = 0)",
      LEVEL_READ_COMMITTED },
    { "the long join locks nothing", "WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;",
      "WHERE x.ns = p_ns AND x.name = p_name;", LEVEL_READ_COMMITTED },
    { "the short leave forgets to count again",
      "UPDATE holdfast.line x SET (n, sum) = (SELECT count(*), coalesce(sum(y.weight), 0)\n"
      "                FROM holdfast.ticket y WHERE y.line = l.id AND y.state = 1) WHERE "
      "x.id = l.id;",
      "", LEVELS_ALL },
    { "expired tickets are chosen before they are locked",
      "DELETE FROM holdfast.ticket x WHERE x.line = l.id AND x.state = 1 AND x.expiry <= "
      "p_now;",
      "DELETE FROM holdfast.ticket x WHERE x.line = l.id AND x.token = ANY (ARRAY(SELECT "
      "y.token FROM holdfast.ticket y WHERE y.line = l.id AND y.state = 1 AND y.expiry <= "
      "p_now));",
      LEVEL_READ_COMMITTED },
    { "the sweep leaves no mark",
      "UPDATE holdfast.mark m SET fence = greatest(m.fence, l.fence)",
      "UPDATE holdfast.mark m SET fence = m.fence", LEVELS_ALL },
    { "a removed ticket is renewed", "v_answer := CASE WHEN FOUND THEN 1 ELSE 0 END;",
      "v_answer := 1;", LEVEL_READ_COMMITTED },
    { "a late renewal shortens", "expiry = CASE WHEN x.sent > p_sent THEN",
      "expiry = CASE WHEN false THEN", LEVELS_ALL },
    { "a late join shortens",
      "UPDATE holdfast.ticket x SET expiry = greatest(x.expiry, v_end), ttl = "
      "greatest(x.ttl, p_ttl)\n            WHERE x.line = l.id AND x.token = p_token;",
      "UPDATE holdfast.ticket x SET expiry = v_end\n            WHERE x.line = l.id AND "
      "x.token = p_token;",
      LEVELS_ALL },
    { "a grant leaves the line's row as it is",
      "p_client, p_process, p_owner, p_pid, p_host, p_note, p_hints);\n"
      "            PERFORM holdfast.save(l, v_now, true);",
      "p_client, p_process, p_owner, p_pid, p_host, p_note, p_hints);", LEVELS_ALL },
    { NULL, NULL, NULL, 0 },
};

static void make(const char *schema)
{
    postgres_do(&server, "%s", schema);
}

static const struct race_store store = {
    .join = join,
    .leave = leave,
    .renew = renew,
    .sweep = "SELECT (holdfast.sweep(600000))[1]",
    .asked = asked,
    .begin = begin,
    .come = come,
    .number = number,
    .clear = clear,
    .lines_whole = lines_whole,
    .left_ms = "SELECT (min(expiry) - holdfast.clock()) / 1000 FROM holdfast.ticket",
    .tickets = "SELECT count(*) FROM holdfast.ticket",
    .holders = "SELECT count(*) FROM holdfast.ticket WHERE state = 1",
    .line_fence = "SELECT fence FROM holdfast.line",
    .ticket_fence = "SELECT fence FROM holdfast.ticket",
    .to_sweep =
        "UPDATE holdfast.line SET touched = 0, fence = holdfast.clock() + 3600000000"
        " RETURNING 1",
    .make = make,
    .mutations = mutations,
};

static void races_at(const char *name, unsigned level)
{
    char *text = NULL;

    postgres_init(&server);
    postgres_config(&server, "default_transaction_isolation = '%s'", name);
    use_server("");
    CHECK_RC(hf_admin_text(rig.place->url, &text, E()), 0);
    make(text);
    for (int i = 0; i < 2; i++)
        sessions[i] = enter();
    races_run(&store, level, text);
    for (int i = 0; i < 2; i++)
        PQfinish(sessions[i]);
    free(text);
    done();
}

static void at_read_committed(void)
{
    races_at("read committed", LEVEL_READ_COMMITTED);
}

static void at_repeatable_read(void)
{
    races_at("repeatable read", LEVEL_REPEATABLE_READ);
}

static void at_serializable(void)
{
    races_at("serializable", LEVEL_SERIALIZABLE);
}

const struct test_case postgres_race_cases[] = {
    { "races-read-committed", at_read_committed, ON_ALL, 0, 0 },
    { "races-repeatable-read", at_repeatable_read, ON_ALL, 0, 0 },
    { "races-serializable", at_serializable, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
