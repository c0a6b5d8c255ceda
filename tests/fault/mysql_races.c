/* mysql_races.c: races.h at every isolation level.
 *
 * The procedures are called by hand. A procedure commits by itself: so before each COMMIT
 * the schema is given a gate, a user lock of ours. The first session stops there until the
 * second one has come. What the server undoes is sent again, as the driver does.
 *
 * The short ways of the driver, and what follows if they find no row, are two procedures
 * more (short_ways), which the races also go through, by one client and by two. */
#include "driver/mysql/short.h"
#include "mysql_fault.h"
#include "races.h"

#include <holdfast/tool.h>
#include <mysql.h>
#include <mysqld_error.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum way { WAY_SHORT, WAY_LONG, WAY_TWO_CLIENTS, WAYS };

enum { TRY = 1 };

static MYSQL *sessions[2], *gate;
static enum way way;

/* 'a' is of the first client, and so is the first session; all others of the second, or of
 * the same one. */
static int client_of(char token)
{
    return way == WAY_TWO_CLIENTS && token != 'a' ? 2 : 1;
}

static void go_way(int which)
{
    char text[80];

    way = (enum way)which;
    snprintf(text, sizeof text, "SET @holdfast_client = X'%016d'", client_of('b'));
    CHECK(mysql_query(sessions[1], text) == 0);
}

/* ---- statements ------------------------------------------------------------------ */

static MYSQL *enter(void)
{
    MYSQL *c = mysql_init(NULL);

    CHECK(mysql_real_connect(c, NULL, "root", "", "holdfast", 0, server.socket, 0));
    CHECK(mysql_query(c, "SET @holdfast_client = X'0000000000000001', @holdfast_wake = 0,"
                         " max_statement_time = 0, @gate = 0") == 0);
    return c;
}

/* One after which `token` is in line, if there is room; 0: it holds, 2: busy. */
static const char *join(char token, int ttl_ms, int flags)
{
    static char text[2][400];
    static int next;

    next = !next;
    snprintf(text[next], sizeof(text[next]),
             "CALL %s_join('', 'n', UNHEX(MD5('%c')), 0, 2147483648, 2147483648, %d,"
             " %d, X'%016d', 1, 1, 1, 'h', '', '')",
             way == WAY_SHORT ? "short" : "holdfast", token, ttl_ms, flags,
             client_of(token));
    return text[next];
}

static const char *leave(char token)
{
    static const char *const names[] = { "short_leave", "holdfast_leave_some",
                                         "short_leave" };
    static char text[200];

    snprintf(text, sizeof(text), "CALL %s('', 'n', UNHEX(MD5('%c')), 0)", names[way],
             token);
    return text;
}

/* The first number of the answer; -1: undone. */
static int called(MYSQL *c, const char *text)
{
    int number = -1, rc = mysql_query(c, text);

    while (rc == 0) {
        MYSQL_RES *r = mysql_store_result(c);
        MYSQL_ROW row = r ? mysql_fetch_row(r) : NULL;

        if (row)
            number = atoi(row[0]);
        mysql_free_result(r);
        rc = mysql_next_result(c);
    }
    if (rc > 0 && mysql_errno(c) != ER_LOCK_DEADLOCK &&
        mysql_errno(c) != ER_LOCK_WAIT_TIMEOUT && mysql_errno(c) != ER_CHECKREAD)
        check_failed(__FILE__, __LINE__, "%s: %s", text, mysql_error(c));
    return rc > 0 ? -1 : number;
}

static int asked(int session, const char *text)
{
    int number;

    while ((number = called(sessions[session], text)) < 0)
        ;
    return number;
}

static int64_t number(const char *query)
{
    return mariadb_number(&server, "%s", query);
}

/* The line is named by its number: a subquery in a CALL may lock. */
static const char *renew(char token, int sent, int ttl_ms)
{
    static char text[300];

    snprintf(text, sizeof(text),
             "CALL holdfast_renew(%d, UNHEX('%016llx'), UNHEX(MD5('%c')),"
             " UNHEX('%016x'))",
             sent, (unsigned long long)number("SELECT id FROM holdfast_line"), token,
             (unsigned)ttl_ms);
    return text;
}

/* ---- meeting --------------------------------------------------------------------- */

struct errand {
    MYSQL *c;
    const char *text;
    int got;
    atomic_bool done;
    pthread_t thread;
};

static void *go(void *arg)
{
    struct errand *e = arg;

    mysql_thread_init();
    e->got = called(e->c, e->text);
    atomic_store(&e->done, true);
    mysql_thread_end();
    return NULL;
}

static void send_off(struct errand *e, MYSQL *c, const char *text)
{
    *e = (struct errand){ .c = c, .text = text };
    CHECK(pthread_create(&e->thread, NULL, go, e) == 0);
}

static int64_t at_gate(void)
{
    return number("SELECT COUNT(*) FROM information_schema.processlist"
                  " WHERE state = 'User lock'");
}

/* It waits for a row, or has been answered. */
static bool blocked(const struct errand *e)
{
    return atomic_load(&e->done) || waiting_for_rows() == 1;
}

static struct errand one;

/* The first does one thing and does not commit. */
static void begin(const char *text)
{
    CHECK(mysql_query(gate, "DO GET_LOCK('gate', 0)") == 0);
    CHECK(mysql_query(sessions[0], "SET @gate = 1") == 0);
    send_off(&one, sessions[0], text);
    AWAIT(at_gate() == 1);
}

/* The second wants another thing. Returns what it gets after the first one's commit. */
static int come(const char *text)
{
    struct errand other;

    send_off(&other, sessions[1], text);
    AWAIT(blocked(&other));
    CHECK(mysql_query(gate, "DO RELEASE_LOCK('gate')") == 0);
    CHECK(pthread_join(one.thread, NULL) == 0);
    CHECK_NUM(one.got, >=, 0);
    CHECK(pthread_join(other.thread, NULL) == 0);
    return other.got < 0 ? asked(1, text) : other.got;
}

static void clear(void)
{
    mariadb_do(&server, "DELETE FROM holdfast_ticket; DELETE FROM holdfast_crowd;"
                        " DELETE FROM holdfast_line");
}

static const struct race_store store;

/* ---- races of this store --------------------------------------------------------- */

/* The lock of a ticket is another session's: nobody is in line without one, and who comes
 * again when it is free is. */
static bool lock_is_taken(void)
{
    bool undone;

    clear();
    CHECK_NUM(asked(0, "SELECT GET_LOCK(CONCAT('hf_', UPPER(MD5('a'))), 0)"), ==, 1);
    CHECK(mysql_query(sessions[1], "SET @holdfast_wake = 1") == 0);
    undone = called(sessions[1], join('a', RACE_LONG_MS, 0)) < 0 &&
             number("SELECT COUNT(*) FROM " MARIADB_TICKETS) == 0;
    CHECK_NUM(asked(0, "SELECT RELEASE_LOCK(CONCAT('hf_', UPPER(MD5('a'))))"), ==, 1);
    CHECK_NUM(asked(1, join('a', RACE_LONG_MS, 0)), ==, 0);
    undone = undone && asked(1, "SELECT IS_USED_LOCK(CONCAT('hf_', UPPER(MD5('a'))))") > 0;
    CHECK_NUM(asked(1, leave('a')), ==, 1);
    CHECK(mysql_query(sessions[1], "SET @holdfast_wake = 0") == 0);
    return undone && asked(1, "SELECT IS_FREE_LOCK(CONCAT('hf_', UPPER(MD5('a'))))") == 1 &&
           lines_whole();
}

/* One of two that wait leaves, called by another client: nobody is let in. */
static bool waiter_leaves(void)
{
    int got;

    clear();
    CHECK_NUM(asked(0, join('a', RACE_LONG_MS, 0)), ==, 0);
    CHECK_NUM(asked(0, join('b', RACE_LONG_MS, 0)), ==, 1);
    CHECK_NUM(asked(0, join('c', RACE_LONG_MS, 0)), ==, 1);
    CHECK(mysql_query(sessions[1], "SET @holdfast_client = X'0000000000000002'") == 0);
    got = asked(1, leave('c'));
    CHECK(mysql_query(sessions[1], "SET @holdfast_client = X'0000000000000001'") == 0);
    return got == 1 && number(store.tickets) == 2 && number(store.holders) == 1 &&
           lines_whole();
}

/* 'b' waits for `ttl_ms` behind 'a', in the row of the line. */
static void fold_two(int ttl_ms)
{
    go_way(WAY_TWO_CLIENTS);
    clear();
    CHECK_NUM(asked(0, join('a', RACE_LONG_MS, 0)), ==, 0);
    CHECK_NUM(asked(1, join('b', ttl_ms, 0)), ==, 1);
    CHECK_NUM(number("SELECT COUNT(*) FROM holdfast_line WHERE w_token <> ''"), ==, 1);
}

static bool handed_on(void)
{
    int64_t fence;

    fold_two(RACE_LONG_MS);
    number("UPDATE holdfast_line SET fence = fence + 3600000000");
    fence = number(store.line_fence);
    return asked(0, leave('a')) == 1 && number(store.line_fence) > fence &&
           number(store.tickets) == 1 && number(store.holders) == 1 && lines_whole() &&
           asked(0, leave('a')) == 0 && asked(1, leave('b')) == 1 &&
           number(store.tickets) == 0 && lines_whole();
}

/* A renewal of the hold gives both rows of their own; a third one comes behind them. */
static bool unfolded(void)
{
    bool good;

    fold_two(RACE_LONG_MS);
    good = asked(0, renew('a', 1, RACE_LONG_MS)) == 1 && number(store.tickets) == 2 &&
           lines_whole();
    CHECK_NUM(asked(1, join('c', RACE_LONG_MS, 0)), ==, 1);
    CHECK_NUM(asked(0, leave('a')), ==, 1);
    return good && number(store.tickets) == 2 && lines_whole() &&
           asked(1, leave('b')) == 1 && asked(1, leave('c')) == 1;
}

/* Nobody is let in by one that is not there, nor by the one that waits. */
static bool another_leaves(void)
{
    bool good;

    fold_two(RACE_LONG_MS);
    good = asked(0, leave('x')) == 0 && number(store.tickets) == 2 &&
           number(store.holders) == 1 && lines_whole();
    return good && asked(1, leave('b')) == 1 && number(store.holders) == 1 &&
           asked(0, join('a', RACE_LONG_MS, TRY)) == 0 && lines_whole();
}

/* Who waits has died: the line is free. */
static bool waiter_is_over(void)
{
    fold_two(RACE_TTL_MS);
    AWAIT(number("SELECT w_till < CAST(1000000 * UNIX_TIMESTAMP(SYSDATE(6)) AS SIGNED)"
                 " FROM holdfast_line") == 1);
    return asked(0, leave('a')) == 1 && number(store.tickets) == 0 && lines_whole();
}

/* The hold has ended by itself: the one that waits goes before a new one. */
static bool holder_is_over(void)
{
    go_way(WAY_TWO_CLIENTS);
    clear();
    CHECK_NUM(asked(0, join('a', RACE_TTL_MS, 0)), ==, 0);
    CHECK_NUM(asked(1, join('b', RACE_LONG_MS, 0)), ==, 1);
    AWAIT(number("SELECT soonest < CAST(1000000 * UNIX_TIMESTAMP(SYSDATE(6)) AS SIGNED)"
                 " FROM holdfast_line") == 1);
    return asked(0, join('c', RACE_LONG_MS, TRY)) == 2 && asked(0, leave('a')) == 0 &&
           number(store.tickets) == 1 && number(store.holders) == 1 && lines_whole() &&
           asked(1, leave('b')) == 1;
}

/* A join of the one that waits, sent again, and one that comes late, when it holds. */
static bool joined_again(void)
{
    fold_two(RACE_LONG_MS);
    return asked(1, join('b', RACE_LONG_MS, 0)) == 1 && number(store.tickets) == 2 &&
           lines_whole() && asked(0, leave('a')) == 1 &&
           asked(1, join('b', RACE_LONG_MS, 0)) == 0 && number(store.tickets) == 1 &&
           lines_whole();
}

/* What the session of client 2 that waits for 'a' is told since this fence: a grant? */
static bool told_since(int64_t fence)
{
    char text[200];
    MYSQL_RES *r;
    MYSQL_ROW row;
    bool told;

    snprintf(text, sizeof text,
             "CALL holdfast_await(X'%016d', UNHEX(MD5('a')), %lld, %lld, 1)",
             client_of('b'), (long long)number("SELECT id FROM holdfast_line"),
             (long long)fence);
    CHECK(mysql_query(sessions[1], text) == 0);
    r = mysql_store_result(sessions[1]);
    CHECK(r && (row = mysql_fetch_row(r)) != NULL);
    told = row[1][0] == 'g';
    mysql_free_result(r);
    while (mysql_next_result(sessions[1]) == 0)
        mysql_free_result(mysql_store_result(sessions[1]));
    CHECK(mysql_query(sessions[1], "SET @holdfast_wake = 0") == 0);
    return told;
}

/* Who got in is told, also if the clock was set back since it joined, in the row of the
 * line or in one of its own; but not who was in before. */
static bool told_by_fence(void)
{
    int64_t fence;
    bool good = true;

    for (int i = 0; i < 2 && good; i++) {
        fold_two(RACE_LONG_MS);
        if (i > 0) /* it has a row of its own */
            CHECK_NUM(asked(1, join('b', RACE_LONG_MS, 0)), ==, 1);
        fence = number(store.line_fence);
        CHECK(mysql_query(sessions[0], "SET timestamp = UNIX_TIMESTAMP() - 60") == 0);
        CHECK_NUM(asked(0, leave('a')), ==, 1);
        CHECK(mysql_query(sessions[0], "SET timestamp = DEFAULT") == 0);
        good = told_since(fence) && !told_since(number(store.line_fence));
        if (i > 0 && good) {
            CHECK_NUM(asked(1, renew('b', 1, RACE_LONG_MS)), ==, 1);
            good = told_since(fence) && !told_since(number(store.line_fence));
        }
    }
    return good;
}

static const struct race more_races[] = {
    { "lock is taken", lock_is_taken },   { "waiter leaves", waiter_leaves },
    { "handed on", handed_on },           { "unfolded", unfolded },
    { "another leaves", another_leaves }, { "waiter is over", waiter_is_over },
    { "holder is over", holder_is_over }, { "joined again", joined_again },
    { "told by fence", told_by_fence },   { NULL, NULL },
};

/* ---- the schema without one of its locks or conditions ---------------------------- */

/* SERIALIZABLE makes every read a locking one. */
enum { LEVELS_PLAIN = LEVEL_READ_COMMITTED | LEVEL_REPEATABLE_READ };

static const struct mutation mutations[] = {
    { "the short join locks nothing",
      "v_token, v_client FROM holdfast_line x\n"
      "        WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;",
      "v_token, v_client FROM holdfast_line x\n"
      "        WHERE x.ns = p_ns AND x.name = p_name;",
      LEVELS_PLAIN },
    { "the short leave locks nothing",
      "v_held FROM holdfast_line x\n"
      "        WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;",
      "v_held FROM holdfast_line x\n"
      "        WHERE x.ns = p_ns AND x.name = p_name;",
      LEVELS_PLAIN },
    { "expired tickets are chosen before they are locked",
      "DELETE FROM holdfast_ticket WHERE line = l.id AND state = 1 AND expiry <= p_now;",
      "SELECT x.token INTO v_token FROM holdfast_ticket x WHERE x.line = l.id AND"
      " x.state = 1 AND x.expiry <= p_now LIMIT 1;"
      " DELETE FROM holdfast_ticket WHERE line = l.id AND token = v_token;",
      LEVELS_PLAIN },
    { "a renewal locks nothing", "AND x.state = 1 FOR UPDATE;", "AND x.state = 1;",
      LEVELS_PLAIN },
    { "a renewal that does not wait locks nothing",
      "AND x.state = 1 FOR UPDATE SKIP LOCKED;", "AND x.state = 1;", LEVELS_PLAIN },
    { "the sweep leaves no mark",
      "UPDATE holdfast_mark m SET fence = GREATEST(m.fence, l.fence)",
      "UPDATE holdfast_mark m SET fence = m.fence", LEVELS_ALL },
    { "a new line does not read the mark", "SET x.fence = m.fence", "SET x.fence = x.fence",
      LEVELS_ALL },
    { "a late renewal shortens",
      "expiry = IF(v_sent > p_sent, GREATEST(x.expiry, v_end), v_end)", "expiry = v_end",
      LEVELS_ALL },
    { "a shorter renewal is not told to the line",
      "UPDATE holdfast_line x SET soonest = LEAST(x.soonest, v_end) WHERE x.id = v_line;",
      "SET p_said = 0;", LEVELS_ALL },
    { "a late join shortens",
      "UPDATE holdfast_ticket x SET expiry = GREATEST(x.expiry, v_end), ttl = "
      "GREATEST(x.ttl, p_ttl)\n                WHERE x.line = l.id AND x.token = p_token;",
      "UPDATE holdfast_ticket x SET expiry = v_end WHERE x.line = l.id AND"
      " x.token = p_token;",
      LEVELS_ALL },
    { "a grant leaves the line's row as it is",
      "UPDATE holdfast_line x SET kind = p_kind, cap = p_cap, n = 1,",
      "UPDATE holdfast_line x SET kind = p_kind, cap = p_cap,", LEVELS_ALL },
    { "the shortest join takes what is taken", "AND n = 0 AND nw = 0", "AND nw = 0",
      LEVELS_ALL },
    { "the shortest leave forgets who waits", "AND token = p_token AND nw = 0",
      "AND token = p_token", LEVELS_ALL },
    { "the shortest leave ends another's hold", "AND token = p_token AND nw = 0",
      "AND token <> '' AND nw = 0", LEVELS_ALL },
    { "a renewal does not know of folded holds",
      "CALL holdfast_unfold(l);\n    END IF;\n    IF p_wait > 0 THEN\n        SELECT "
      "x.flags",
      "END IF;\n    IF p_wait > 0 THEN\n        SELECT x.flags", LEVELS_PLAIN },
    { "a folded hold has no end", "v_token NOT IN ('', p_token) AND v_soonest > v_now",
      "v_token NOT IN ('', p_token)", LEVELS_ALL },
    { "who waits behind a folded hold is not counted",
      "UPDATE holdfast_line x SET nw = 1, seq", "UPDATE holdfast_line x SET seq",
      LEVELS_ALL },
    { "a hand-off lets somebody in for one that is not the folded hold",
      "p_keep = 0 AND v_held IN ('', p_token) THEN",
      "p_keep = 0 THEN SET v_held = p_token;", LEVELS_ALL },
    { "a hand-off lets somebody in for one that waited",
      "DELETE FROM holdfast_ticket WHERE line = v_line AND token = p_token AND state = 1;",
      "DELETE FROM holdfast_ticket WHERE line = v_line AND token = p_token;", LEVELS_ALL },
    { "who waits is lost when the hold is unfolded",
      "INSERT INTO holdfast_ticket VALUES (l.id, l.w_token, 0,",
      "INSERT IGNORE INTO holdfast_ticket VALUES (l.id, l.token, 0,", LEVELS_ALL },
    { "a folded one that waits gets no time of its own",
      "REPLACE INTO holdfast_crowd VALUES (l.id, l.w_client, l.w_ttl, l.w_till, 1)",
      "REPLACE INTO holdfast_crowd VALUES (l.id, l.w_client, l.w_ttl, 0, 1)", LEVELS_ALL },
    { "a folded one is let in by any leave", "AND x.token = p_token AND p_keep = 0",
      "AND p_keep = 0", LEVELS_ALL },
    { "a folded one is let in when its time is over", "x.w_token <> '' AND x.w_till >",
      "x.w_token <> '' AND x.w_till + 1e15 >", LEVELS_ALL },
    { "the short leave forgets those that are not folded", "AND (x.nw = 0 OR (",
      "AND (x.nw > -1 OR (", LEVELS_ALL },
    { "a folded one holds and waits", "hints = x.w_hints, w_token = ''",
      "hints = x.w_hints", LEVELS_ALL },
    { "a folded one has the fence before", "x.fence, GREATEST(x.fence + 1,",
      "x.fence, LEAST(x.fence,", LEVELS_ALL },
    { "a second one is folded over the first", "ELSEIF v_nw = 0 AND v_token NOT IN",
      "ELSEIF v_token NOT IN", LEVELS_ALL },
    { "a folded grant is told by the clock", "x.client = p_client AND x.fence > p_since",
      "x.client = p_client AND x.granted >= p_since", LEVELS_ALL },
    { "a grant is told by the clock", "            AND x.fence > p_since AND x.number > 0;",
      "            AND x.granted > p_since AND x.number > 0;", LEVELS_ALL },
    { "a ticket without its lock", "AND p_must > 0 THEN", "AND p_must > 1 THEN",
      LEVELS_ALL },
    { NULL, NULL, NULL, 0 },
};

static void make(const char *schema)
{
    mariadb_script(&server, schema);
}

/* `text` with a parameter for each "?". */
static void fill(FILE *f, const char *text, const char *const *names,
                 const unsigned char *order)
{
    for (; *text; text++) {
        if (*text == '?')
            fputs(names[*order++], f);
        else
            fputc(*text, f);
    }
}

/* What the driver does by itself. */
static void short_ways(FILE *f)
{
    static const char *const join_names[] = { "p_ns",     "p_name",    "p_token", "p_kind",
                                              "p_cap",    "p_weight",  "p_ttl",   "p_flags",
                                              "p_client", "p_process", "p_owner", "p_pid",
                                              "p_host",   "p_note",    "p_hints" };
    static const unsigned char take[] = { MY_TAKE_ARGS }, give[] = { MY_GIVE_ARGS };
    static const char otherwise[] =
        ";\nIF ROW_COUNT() = 1 THEN COMMIT; SELECT %d, ''; ELSE ROLLBACK; CALL %s; END IF;"
        " END\n$$\n";

    fputs("CREATE OR REPLACE PROCEDURE short_join(p_ns BLOB, p_name BLOB, p_token BLOB,"
          " p_kind BIGINT, p_cap BIGINT, p_weight BIGINT, p_ttl BIGINT, p_flags BIGINT,"
          " p_client BLOB, p_process BIGINT, p_owner BIGINT, p_pid BIGINT, p_host BLOB,"
          " p_note BLOB, p_hints BLOB) SQL SECURITY INVOKER BEGIN START TRANSACTION;\n",
          f);
    fill(f, MY_TAKE_TEXT, join_names, take);
    fprintf(f, otherwise, 0,
            "holdfast_join(p_ns, p_name, p_token, p_kind, p_cap, p_weight, p_ttl, p_flags,"
            " p_client, p_process, p_owner, p_pid, p_host, p_note, p_hints)");
    fputs("CREATE OR REPLACE PROCEDURE short_leave(p_ns BLOB, p_name BLOB, p_token BLOB,"
          " p_keep BIGINT) SQL SECURITY INVOKER BEGIN START TRANSACTION;\n",
          f);
    fill(f, MY_GIVE_TEXT, join_names, give);
    fprintf(f, otherwise, 1, "holdfast_leave(p_ns, p_name, p_token, p_keep)");
}

/* A copy of the schema, with a gate before each COMMIT. */
static char *gated(const char *text)
{
    static const char commit[] = "COMMIT;";
    static const char stop[] = "IF @gate = 1 THEN DO GET_LOCK('gate', 600);"
                               " DO RELEASE_LOCK('gate'); END IF; ";
    const char *last = strstr(text, "DELIMITER ;");
    char *copy = NULL, *whole = NULL;
    size_t len;
    FILE *f = open_memstream(&whole, &len);

    CHECK(f && last);
    fprintf(f, "%.*s", (int)(last - text), text);
    short_ways(f);
    fputs(last, f);
    CHECK(fclose(f) == 0);
    f = open_memstream(&copy, &len);
    CHECK(f);
    text = whole;
    for (const char *at; (at = strstr(text, commit)) != NULL; text = at + strlen(commit))
        fprintf(f, "%.*s%s%s", (int)(at - text), text, stop, commit);
    fputs(text, f);
    CHECK(fclose(f) == 0);
    free(whole);
    return copy;
}

static const struct race_store store = {
    .join = join,
    .leave = leave,
    .renew = renew,
    .sweep = "CALL holdfast_sweep(600000)",
    .asked = asked,
    .begin = begin,
    .come = come,
    .number = number,
    .clear = clear,
    .lines_whole = lines_whole,
    .left_ms = "SELECT (CAST(MIN(expiry) AS SIGNED) - CAST(1000000 *"
               " UNIX_TIMESTAMP(SYSDATE(6)) AS SIGNED)) DIV 1000 FROM " MARIADB_TICKETS,
    .tickets = "SELECT COUNT(*) FROM " MARIADB_TICKETS,
    .holders = "SELECT COUNT(*) FROM " MARIADB_TICKETS " WHERE state = 1",
    .line_fence = "SELECT fence FROM holdfast_line",
    .ticket_fence = "SELECT fence FROM " MARIADB_TICKETS,
    .to_sweep = "UPDATE holdfast_line SET touched = 0, fence = 1000000 *"
                " (UNIX_TIMESTAMP() + 3600)",
    .make = make,
    .go = go_way,
    .ways = WAYS,
    .more = more_races,
    .mutations = mutations,
};

static void races_at(const char *name, unsigned level)
{
    char *text = NULL, *copy;

    mariadb_make(&server);
    mariadb_config(&server, "transaction-isolation=%s", name);
    use_server("");
    CHECK_RC(hf_admin_text(rig.place->url, &text, E()), 0);
    copy = gated(text);
    make(copy);
    for (int i = 0; i < 2; i++)
        sessions[i] = enter();
    gate = enter();
    races_run(&store, level, copy);
    for (int i = 0; i < 2; i++)
        mysql_close(sessions[i]);
    mysql_close(gate);
    free(copy);
    free(text);
    done();
}

static void at_read_committed(void)
{
    races_at("READ-COMMITTED", LEVEL_READ_COMMITTED);
}

static void at_repeatable_read(void)
{
    races_at("REPEATABLE-READ", LEVEL_REPEATABLE_READ);
}

static void at_serializable(void)
{
    races_at("SERIALIZABLE", LEVEL_SERIALIZABLE);
}

const struct test_case mysql_race_cases[] = {
    { "races-read-committed", at_read_committed, ON_ALL, 0, CASE_LONG },
    { "races-repeatable-read", at_repeatable_read, ON_ALL, 0, CASE_LONG },
    { "races-serializable", at_serializable, ON_ALL, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
