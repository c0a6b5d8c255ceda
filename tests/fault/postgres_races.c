/* postgres_races.c: two transactions on one line, stopped where they meet. Each race is run
 * at every isolation level, on the schema as it is and on copies of it in which one lock or
 * condition is missing: those must be caught.
 *
 * The functions are called by hand, in two sessions: the first has its transaction open
 * while the second one comes, and then commits. What the server undoes (40001) is sent
 * again, as the driver does. */
#include "postgres_fault.h"

#include <holdfast/tool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TTL_MS = 500, LONG_MS = 60000 };

static PGconn *first, *second;

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
static const char *join(char token, int ttl_ms)
{
    static char text[2][400];
    static int next;

    next = !next;
    snprintf(text[next], sizeof(text[next]),
             "SELECT (holdfast.join('', 'n', decode(md5('%c'), 'hex'), 0, 2147483648,"
             " 2147483648, %d, 1, '\\x0000000000000001', 1, 1, 1, 'h', '', ''))[1]",
             token, ttl_ms);
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

static int asked(PGconn *c, const char *text)
{
    int number;

    while ((number = number_of(PQexec(c, text))) < 0)
        ;
    return number;
}

/* The first does one thing and does not commit. */
static void begin(const char *one)
{
    PQclear(PQexec(first, "BEGIN"));
    CHECK_NUM(number_of(PQexec(first, one)), >=, 0);
}

/* The second wants another thing. Returns what it gets after the first one's commit. */
static int come(const char *other)
{
    int number;

    CHECK_NUM(PQsendQuery(second, other), ==, 1);
    AWAIT((PQconsumeInput(second), !PQisBusy(second)) ||
          postgres_number(&server, "SELECT count(*) FROM pg_stat_activity WHERE "
                                   "wait_event_type = 'Lock'") == 1);
    PQclear(PQexec(first, "COMMIT"));
    number = number_of(PQgetResult(second));
    PQclear(PQgetResult(second));
    return number < 0 ? asked(second, other) : number;
}

static int meet(const char *one, const char *other)
{
    begin(one);
    return come(other);
}

/* How much of this hold is left. */
static int64_t left_ms(void)
{
    return postgres_number(&server, "SELECT (min(expiry) - holdfast.clock()) / 1000 FROM "
                                    "holdfast.ticket");
}

static void clear(void)
{
    postgres_do(&server, "DELETE FROM holdfast.ticket; DELETE FROM holdfast.line");
}

/* ---- races: true if all is well --------------------------------------------------- */

/* The line is there, and free. */
static bool two_join(void)
{
    int got;

    clear();
    CHECK_NUM(asked(first, join('x', TTL_MS)), ==, 0);
    CHECK_NUM(asked(first, leave('x')), ==, 1);
    got = meet(join('a', LONG_MS), join('b', LONG_MS));
    return got == 2 && lines_whole();
}

/* The line is not there: both make it. */
static bool two_begin(void)
{
    int got;

    clear();
    got = meet(join('a', LONG_MS), join('b', LONG_MS));
    return got == 2 && lines_whole();
}

static bool leave_and_join(void)
{
    int got;

    clear();
    CHECK_NUM(asked(first, join('a', LONG_MS)), ==, 0);
    got = meet(leave('a'), join('b', LONG_MS));
    return got == 0 && tickets() == 1 && lines_whole();
}

/* One that has left already leaves again while the next one comes. */
static bool late_leave_and_join(void)
{
    int got;

    clear();
    CHECK_NUM(asked(first, join('a', LONG_MS)), ==, 0);
    CHECK_NUM(asked(first, leave('a')), ==, 1);
    got = meet(join('b', LONG_MS), leave('a'));
    return got == 0 && asked(second, leave('a')) == 0 && tickets() == 1 && lines_whole();
}

/* The expiry that the second one sees is over; the renewal that moves it is not visible
 * yet. */
static bool renewal_first(void)
{
    int got;

    clear();
    CHECK_NUM(asked(first, join('a', TTL_MS)), ==, 0);
    begin(renew('a', 1, LONG_MS));
    AWAIT(left_ms() < 0);
    got = come(join('b', LONG_MS));
    return got == 2 && tickets() == 1 && left_ms() > TTL_MS && lines_whole();
}

/* It is over, and another has the place: it is not revived. */
static bool removal_first(void)
{
    int got;

    clear();
    CHECK_NUM(asked(first, join('a', TTL_MS)), ==, 0);
    AWAIT(left_ms() < 0);
    got = meet(join('b', LONG_MS), renew('a', 1, LONG_MS));
    return got == 0 && tickets() == 1 && lines_whole();
}

static bool leave_and_renew(void)
{
    int got;

    clear();
    CHECK_NUM(asked(first, join('a', LONG_MS)), ==, 0);
    got = meet(leave('a'), renew('a', 1, LONG_MS));
    return got == 0 && tickets() == 0 && lines_whole();
}

/* The line is swept while somebody comes; its fence is not given again. */
static bool swept_and_joined(void)
{
    int64_t fence;
    int got;

    clear();
    CHECK_NUM(asked(first, join('a', LONG_MS)), ==, 0);
    CHECK_NUM(asked(first, leave('a')), ==, 1);
    postgres_do(&server, "UPDATE holdfast.line SET touched = 0,"
                         " fence = holdfast.clock() + 3600000000");
    fence = postgres_number(&server, "SELECT fence FROM holdfast.line");
    got = meet("SELECT (holdfast.sweep(600000))[1]", join('b', LONG_MS));
    return got == 0 && tickets() == 1 && lines_whole() &&
           postgres_number(&server, "SELECT fence FROM holdfast.ticket") > fence;
}

/* What comes late, from a connection that was lost, takes nothing from its owner. */
static bool late_ones_shorten_nothing(void)
{
    bool good;

    clear();
    CHECK_NUM(asked(first, join('a', TTL_MS)), ==, 0);
    CHECK_NUM(asked(first, renew('a', 7, LONG_MS)), ==, 1);
    CHECK_NUM(asked(second, renew('a', 6, TTL_MS)), ==, 1);
    good = left_ms() > LONG_MS / 2;
    CHECK_NUM(asked(first, renew('a', 7, LONG_MS)), ==, 1);
    CHECK_NUM(asked(second, join('a', TTL_MS)), ==, 0);
    good = good && left_ms() > LONG_MS / 2;
    CHECK_NUM(asked(first, renew('a', 8, LONG_MS / 4)), ==, 1); /* its owner may */
    return good && left_ms() < LONG_MS / 2 && lines_whole();
}

static const struct race {
    const char *name;
    bool (*run)(void);
} races[] = {
    { "two join", two_join },
    { "two begin", two_begin },
    { "leave and join", leave_and_join },
    { "late leave and join", late_leave_and_join },
    { "renewal first", renewal_first },
    { "removal first", removal_first },
    { "leave and renew", leave_and_renew },
    { "swept and joined", swept_and_joined },
    { "late ones shorten nothing", late_ones_shorten_nothing },
};
enum { RACES = sizeof(races) / sizeof(*races) };

/* ---- the schema without one of its locks or conditions ---------------------------- */

static const struct mutation {
    const char *name, *what, *with;
    bool any_level; /* else only where a statement sees what was committed before it */
} mutations[] = {
    { "the short join tests a row that it has not locked",
      "WHERE x.ns = p_ns AND x.name = p_name AND x.n = 0 AND x.nw = 0",
      "WHERE x.id = (SELECT y.id FROM holdfast.line y WHERE y.ns = p_ns AND y.name = p_name"
      " AND y.n = 0 AND y.nw = 0)",
      false },
    { "the long join locks nothing", "WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;",
      "WHERE x.ns = p_ns AND x.name = p_name;", false },
    { "the short leave forgets to count again",
      "UPDATE holdfast.line x SET (n, sum) = (SELECT count(*), coalesce(sum(y.weight), 0)\n"
      "                FROM holdfast.ticket y WHERE y.line = l.id AND y.state = 1) WHERE "
      "x.id = l.id;",
      "", true },
    { "expired tickets are chosen before they are locked",
      "DELETE FROM holdfast.ticket x WHERE x.line = l.id AND x.state = 1 AND x.expiry <= "
      "p_now;",
      "DELETE FROM holdfast.ticket x WHERE x.line = l.id AND x.token = ANY (ARRAY(SELECT "
      "y.token FROM holdfast.ticket y WHERE y.line = l.id AND y.state = 1 AND y.expiry <= "
      "p_now));",
      false },
    { "the sweep leaves no mark",
      "UPDATE holdfast.mark m SET fence = greatest(m.fence, l.fence)",
      "UPDATE holdfast.mark m SET fence = m.fence", true },
    { "a removed ticket is renewed", "v_answer := CASE WHEN FOUND THEN 1 ELSE 0 END;",
      "v_answer := 1;", false },
    { "a late renewal shortens", "expiry = CASE WHEN x.sent > p_sent THEN",
      "expiry = CASE WHEN false THEN", true },
    { "a late join shortens",
      "UPDATE holdfast.ticket x SET expiry = greatest(x.expiry, v_end), ttl = "
      "greatest(x.ttl, p_ttl)\n            WHERE x.line = l.id AND x.token = p_token;",
      "UPDATE holdfast.ticket x SET expiry = v_end\n            WHERE x.line = l.id AND "
      "x.token = p_token;",
      true },
    { "a grant leaves the line's row as it is",
      "p_client, p_process, p_owner, p_pid, p_host, p_note, p_hints);\n"
      "            PERFORM holdfast.save(l, v_now, true);",
      "p_client, p_process, p_owner, p_pid, p_host, p_note, p_hints);", true },
};
enum { MUTATIONS = sizeof(mutations) / sizeof(*mutations) };

/* Puts the schema into the server, perhaps changed at one place. */
static void make_schema(const char *text, const struct mutation *m)
{
    const char *at = m ? strstr(text, m->what) : NULL;

    if (m && !at)
        check_failed(__FILE__, __LINE__, "no such place in the schema: %s", m->name);
    if (at)
        postgres_do(&server, "%.*s%s%s", (int)(at - text), text, m->with,
                    at + strlen(m->what));
    else
        postgres_do(&server, "%s", text);
}

static bool all_is_well(const char **ret_race)
{
    for (size_t i = 0; i < RACES; i++)
        if (!races[i].run()) {
            *ret_race = races[i].name;
            return false;
        }
    return true;
}

static void races_at(const char *level)
{
    const char *race = NULL;
    char *text = NULL;

    postgres_init(&server);
    postgres_config(&server, "default_transaction_isolation = '%s'", level);
    use_server("");
    CHECK_RC(hf_admin_text(rig.place->url, &text, E()), 0);
    make_schema(text, NULL);
    first = enter();
    second = enter();
    if (!all_is_well(&race))
        check_failed(__FILE__, __LINE__, "%s: %s", level, race);
    for (size_t i = 0; i < MUTATIONS; i++) {
        if (!mutations[i].any_level && strcmp(level, "read committed") != 0)
            continue;
        make_schema(text, &mutations[i]);
        if (all_is_well(&race))
            check_failed(__FILE__, __LINE__, "%s, not found: %s", level, mutations[i].name);
        fprintf(stderr, "%s: found by %s\n", mutations[i].name, race);
    }
    PQfinish(first);
    PQfinish(second);
    free(text);
    done();
}

static void at_read_committed(void)
{
    races_at("read committed");
}

static void at_repeatable_read(void)
{
    races_at("repeatable read");
}

static void at_serializable(void)
{
    races_at("serializable");
}

const struct test_case postgres_race_cases[] = {
    { "races-read-committed", at_read_committed, ON_ALL, 0, 0 },
    { "races-repeatable-read", at_repeatable_read, ON_ALL, 0, 0 },
    { "races-serializable", at_serializable, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
