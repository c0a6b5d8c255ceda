/* statement.c: the statements of all verbs, by mode, and their arguments. Those of a line
 * are procedures of schema.sql. Arguments are never part of a text. */
#include "driver/mysql/mysql.h"
#include "driver/mysql/short.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum { PLAIN_MOST = 64 };

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
                 " @holdfast_galera := (SELECT COUNT(*) FROM"
                 "  information_schema.global_variables"
                 "  WHERE variable_name='WSREP_ON' AND variable_value='ON'),"
                 " IS_USED_LOCK(CONCAT('hf_s_', HEX(@holdfast_client := ?))),"
                 " @holdfast_wake := ? AND @holdfast_galera = 0",
    [MY_END] = "KILL ?",
    [MY_TAKE] = MY_TAKE_TEXT,
    [MY_GIVE] = MY_GIVE_TEXT,
    [MY_OWN] = "SELECT GET_LOCK(CONCAT('hf_s_', HEX(@holdfast_client)), ? / 1000)",
    [MY_SHAPE] =
        "SELECT MAX(version), (SELECT COUNT(*) FROM information_schema.routines"
        " WHERE routine_schema=DATABASE() AND routine_name IN ('holdfast_join',"
        "'holdfast_wait','holdfast_leave','holdfast_renew','holdfast_amend',"
        "'holdfast_look','holdfast_list','holdfast_cell_do','holdfast_evict',"
        "'holdfast_keep','holdfast_sweep','holdfast_await','holdfast_notices',"
        "'holdfast_claim','holdfast_seek','holdfast_drop','holdfast_prolong',"
        "'holdfast_peek','holdfast_row_of','holdfast_row_owner','holdfast_name',"
        "'holdfast_end','holdfast_row_look','holdfast_row_end','holdfast_key_look',"
        "'holdfast_key_end')) FROM holdfast_format",
    [MY_MAKE] = "SELECT GET_LOCK(CONCAT('holdfast_', DATABASE()), 0)",
    [MY_MADE] = "SELECT RELEASE_LOCK(CONCAT('holdfast_', DATABASE()))",
    [MY_AWAIT] = "CALL holdfast_await(?,?,?,?,?)",
    [MY_NOTICES] = "CALL holdfast_notices(?)",
    [MY_ATTACH] = "SELECT @@read_only OR @@innodb_read_only, CONNECTION_ID(),"
                  " GET_LOCK(CONCAT('hf_s_', @holdfast_session := ?), 0),"
                  " @holdfast_session",
    [SQL_END] = "CALL holdfast_end(?,?,?)",
    [SQL_CANCEL] = "CALL holdfast_end(?,?,-1)",
    [SQL_PROVE] = "SET SESSION wait_timeout = CAST(CEILING(? / 1000) AS UNSIGNED)",
};

/* With a mode; what is not here is as above. */
static const char *const optimistic[MY_VERBS] = {
    [SQL_JOIN] = "CALL holdfast_claim(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    [SQL_WAIT] = "CALL holdfast_seek(?,?,?,?,?,?,?,?,?,?,?)",
    [SQL_LEAVE] = "CALL holdfast_drop(?,?,?,?)",
    [SQL_RENEW] = "CALL holdfast_prolong(?,?,?,?)",
    [SQL_LOOK] = "CALL holdfast_peek(?,?)",
    [SQL_EVICT] = "CALL holdfast_drop(?,?,?,?)",
};

/* The time when it is read, and not when its statement began, unless the server was started
 * with sysdate-is-now. connect.c has set the time zone. */
#define TIME_NOW "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))"

/* Values are computed from the row when it is locked. */
#define ROW_LOCK                                                                           \
    "UPDATE holdfast_mutex x SET x.version=LAST_INSERT_ID(GREATEST(x.version+1," TIME_NOW  \
    ")), x.since=" TIME_NOW ", x.session=CONNECTION_ID(), x.label=? WHERE x.ns=? AND "     \
    "x.name=?"

/* A limit of 0 is NOWAIT. What waits is no call of a procedure: a KILL QUERY that comes at
 * the end of one may leave it without the last part of its answer. */
static const char *const pessimistic[MY_VERBS] = {
    [SQL_UNDO] = "ROLLBACK",
    [SQL_TRY] = "SET STATEMENT innodb_lock_wait_timeout=0 FOR " ROW_LOCK,
    [SQL_LOCK] = ROW_LOCK,
    [SQL_RELEASE] = "COMMIT",
    [SQL_MAKE] = "CALL holdfast_row_of(?,?)",
    [SQL_LOOK] = "CALL holdfast_row_look(?,?)",
    [SQL_EVICT] = "CALL holdfast_row_end(?,?,?)",
};

/* The key is in the manual: other programs use it, too. */
#define KEY "IF(?, ?, CONCAT('hf_', SHA1(CONCAT(?, X'00', ?))))"

static const char *const named[MY_VERBS] = {
    [SQL_UNDO] = "DO RELEASE_ALL_LOCKS()",
    [SQL_TRY] = "CALL holdfast_name(" KEY ",0,?)",
    [SQL_LOCK] = "CALL holdfast_name(" KEY ",31536000,?)",
    [SQL_RELEASE] = "DO RELEASE_LOCK(" KEY ")",
    [SQL_LOOK] = "CALL holdfast_key_look(" KEY ")",
    [SQL_EVICT] = "CALL holdfast_key_end(" KEY ",?)",
};

const char *const *const hf__mysql_texts[] = { texts, optimistic, pessimistic, named };

/* ---- arguments ------------------------------------------------------------------- */

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

/* KEY takes whether it is the name itself, and that; then what it is made of if not. */
static void put_key(struct sql_args *a)
{
    const struct sql_arg name = a->at[1];
    bool plain = a->at[0].n == 0 && name.n <= PLAIN_MOST &&
                 (name.n < 3 || memcmp(name.at, "hf_", 3) != 0) &&
                 (name.n < 9 || memcmp(name.at, "holdfast_", 9) != 0);

    for (size_t i = 0; i < name.n; i++)
        plain =
            plain && ((const char *)name.at)[i] > ' ' && ((const char *)name.at)[i] <= '~';
    memmove(a->at + 2, a->at, a->n * sizeof a->at[0]);
    a->n += 2;
    a->at[0] = (struct sql_arg){ .kind = SQL_INT, .number = plain };
    a->at[1] = name;
}

/* ROW_LOCK takes the label first. */
static void put_label(struct sql_args *a)
{
    const struct sql_arg label = a->at[2];

    memmove(a->at + 1, a->at, 2 * sizeof a->at[0]);
    a->at[0] = label;
}

static bool by_key(unsigned verb)
{
    return verb == SQL_TRY || verb == SQL_LOCK || verb == SQL_RELEASE || verb == SQL_LOOK ||
           verb == SQL_EVICT;
}

/* Copied: what they point to does not stay until the statement is prepared. */
int hf__mysql_bind(struct my_conn *c, unsigned verb, struct sql_args *a)
{
    size_t need = 0, at = 0;
    char *bytes;

    if (c->c.sql->mode == SQL_SERVER && by_key(verb))
        put_key(a);
    if (hf__mysql_locks_row(c, verb))
        put_label(a);
    for (size_t i = 0; i < a->n; i++)
        need += size_of(&a->at[i]);
    bytes = hf__mysql_grown(c->args, &c->args_room, need + 1, 1);
    if (!bytes)
        return HF_ENOMEM;
    c->args = bytes;
    memset(c->binds, 0, sizeof c->binds);
    for (size_t i = 0; i < a->n; i++) {
        MYSQL_BIND *b = &c->binds[i];

        put_arg(bytes + at, &a->at[i]);
        b->buffer = bytes + at;
        b->buffer_type = a->at[i].kind == SQL_INT ? MYSQL_TYPE_LONGLONG : MYSQL_TYPE_BLOB;
        b->buffer_length = c->lengths[i] = size_of(&a->at[i]);
        b->length = &c->lengths[i];
        at += size_of(&a->at[i]);
    }
    return 0;
}
