/* greet.c: what is said on a new connection before the store is up.
 *
 *   HELLO   which server it is, how it is set, and which session has the user lock of this
 *           client: that of our connection before this one
 *   END     ends that session: KILL, by the number that the server gave for this lock
 *   OWN     takes the lock. It is free when the old session has rolled back and gone, so
 *           that no request of it can be executed any more (G7)
 *   SHAPE   the version of the schema; if there is none:
 *   MAKE    a user lock, so that of many clients one makes it; then SHAPE again
 *   SCRIPT  schema.sql, part by part; MADE gives the lock back
 *
 * If the lock cannot be had in time, what was lost may be executed for as long as its ttl,
 * and until then "not there" is not believed of a leave. The same in a Galera cluster: the
 * old session may be on another node, and user locks are each node's own; there who waits
 * looks from time to time.
 *
 * A server that is read-only is refused at first; once the store has been up, or if the URL
 * names several, it is waited out. */
#include "driver/mysql/mysql.h"

#include <mysqld_error.h>
#include <stdio.h>
#include <string.h>

enum { FORMAT = 2, PROCEDURES = 26, MAKING_US = 50000, VERSION_LEAST = 1006 };
enum server_column { VERSION, READ_ONLY, FLUSH, GALERA, OLD };
enum { WARN_FLUSH = 1, WARN_GALERA = 2, WARN_NO_END = 4 };

/* ---- the connection before this one ---------------------------------------------- */

static void answer_own(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct mysql *m = mysql_of(s);

    (void)q;
    if (!reply)
        return;
    m->owned = reply->code == 0 && reply->rows == 1 && sql_number_at(reply, 0, 0) == 1;
    if (!m->owned)
        hf__sql_warn_once(s, WARN_NO_END, SQL_NO_END);
    hf__sql_greeted(s, !m->owned || m->unended || (s->warned & WARN_GALERA));
    m->unended = false;
    if (s->scripted.seats.count > 0)
        hf__sql_listen(s);
}

static void build_own(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    (void)q;
    sql_int(a, s->open.connect_ms / 2);
}

static void own(struct mysql *m)
{
    static const struct sql_type type = { MY_OWN, build_own, answer_own };

    hf__sql_conn_say(m->sql.commands, &type);
}

static void build_end(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    (void)q;
    sql_int(a, mysql_of(s)->old);
}

/* It may have gone by itself. */
static void answer_end(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    (void)q;
    if (reply)
        own(mysql_of(s));
}

static void settle(struct mysql *m)
{
    static const struct sql_type type = { MY_END, build_end, answer_end };

    hf__link_settle(&m->sql.commands->link);
    if (m->old == 0)
        own(m);
    else
        hf__sql_conn_say(m->sql.commands, &type);
}

/* ---- a session of a ticket ------------------------------------------------------- */

/* A replica has user locks of its own: nobody on the primary would see them. */
static void answer_attach(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    enum { REPLICA, ID, OWNED, SESSION };

    (void)s;
    if (!hf__sql_is_row(q->on, reply))
        return;
    if (sql_number_at(reply, 0, REPLICA) || sql_number_at(reply, 0, OWNED) != 1) {
        hf__sql_conn_refused(q->on, reply);
        return;
    }
    hf__link_up(&q->on->link);
    hf__sql_session_up(q->on->session, sql_number_at(reply, 0, ID),
                       sql_number_at(reply, 0, SESSION));
}

/* The session's name is drawn here. Numbers that a server gives begin anew when it is
 * started, UUID_SHORT() too if it is started twice within a second: then an old session
 * that is to be ended would have the name of a new one, which may hold. */
static void build_attach(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    uint64_t name;

    (void)q;
    s->store.env->random(s->store.env, &name, sizeof name);
    sql_int(a, (int64_t)(name >> 1));
}

void hf__mysql_attach_greet(struct sql_conn *c)
{
    static const struct sql_type attach = { MY_ATTACH, build_attach, answer_attach };

    hf__sql_conn_say(c, &attach);
}

/* ---- the schema ------------------------------------------------------------------ */

static void answer_shape(struct sql *, struct sql_call *, const struct sql_reply *);
static const struct sql_type shape = { MY_SHAPE, NULL, answer_shape };

static void answer_made(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    mysql_of(s)->making = false;
    if (reply)
        hf__sql_conn_say(q->on, &shape);
}

/* The parts of schema.sql end with a line of "$$"; the first line is for the tool of an
 * administrator. */
#define END_OF_PART "\n$$\n"

const char *hf__mysql_script(const struct mysql *m, size_t *ret_len)
{
    *ret_len = (size_t)(strstr(m->script, END_OF_PART) - m->script);
    return m->script;
}

static void make(struct mysql *, const char *at);

static void answer_script(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct mysql *m = mysql_of(s);

    if (!reply)
        return;
    if (reply->code == HF_EAUTH)
        hf__link_fail(&q->on->link, HF_EAUTH,
                      "there are no tables of holdfast, and this user may not make them "
                      "(%s): " SQL_TO_ADMINISTRATOR,
                      reply->err.text);
    else if (reply->code < 0)
        hf__link_fail(&q->on->link, HF_EUNREACHABLE, "the schema could not be made: %s",
                      reply->err.text);
    else
        make(m, strstr(m->script, END_OF_PART) + strlen(END_OF_PART));
}

static const struct sql_type made = { MY_MADE, NULL, answer_made };

static void make(struct mysql *m, const char *at)
{
    static const struct sql_type part = { MY_SCRIPT, NULL, answer_script };

    m->made = true;
    m->script = at;
    hf__sql_conn_say(m->sql.commands, strstr(at, END_OF_PART) ? &part : &made);
}

static void answer_make(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct mysql *m = mysql_of(s);

    if (!hf__sql_is_row(q->on, reply))
        return;
    m->making = sql_number_at(reply, 0, 0) == 1;
    if (m->making)
        hf__sql_conn_say(q->on, &shape); /* somebody may have made it meanwhile */
    else
        hf__sql_say_later(s, &shape, MAKING_US); /* another client is at it */
}

/* Whoever has the lock gives it back, also if there was nothing to make: others wait. */
static void answer_shape(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    static const struct sql_type lock = { MY_MAKE, NULL, answer_make };
    struct mysql *m = mysql_of(s);
    bool none = reply && m->commands.error == ER_NO_SUCH_TABLE;

    if (!none && !hf__sql_is_row(q->on, reply))
        return;
    none = none || sql_number_at(reply, 0, 0) == 0; /* 0: it is not complete */
    if (none && !m->made && !m->making)
        hf__sql_conn_say(q->on, &lock);
    else if (none && !m->made)
        make(m, strchr(hf__mysql_schema, '\n') + 1);
    else if (m->making)
        hf__sql_conn_say(q->on, &made);
    else if (hf__sql_is_shape(q->on, reply, FORMAT, PROCEDURES))
        settle(m);
}

/* ---- who is there ---------------------------------------------------------------- */

static bool unfit(struct sql_conn *c, const struct sql_reply *reply)
{
    unsigned major = 0, minor = 0;
    size_t n;
    const char *version = sql_bytes_at(reply, 0, VERSION, &n);

    if (!strstr(version, "MariaDB"))
        hf__link_fail(&c->link, HF_ENOTSUP, "it is MySQL %s: only MariaDB is supported",
                      version);
    else if (sscanf(version, "%u.%u", &major, &minor) != 2 ||
             major * 100 + minor < VERSION_LEAST)
        hf__link_fail(&c->link, HF_ENOTSUP,
                      "MariaDB %s is too old: 10.6 or later is needed", version);
    else if (sql_number_at(reply, 0, READ_ONLY))
        hf__link_fail(&c->link, hf__sql_passing(c->sql),
                      "it is read-only: locks need a server that can be written to");
    else if (sql_number_at(reply, 0, GALERA) && sql_has_sessions(c->sql))
        hf__link_fail(&c->link, HF_ENOTSUP,
                      "it is a Galera cluster: locks of a session are each node's own");
    else if (sql_number_at(reply, 0, GALERA) && mysql_of(c->sql)->fast)
        hf__link_fail(&c->link, HF_ENOTSUP,
                      "it is a Galera cluster: crash=fast needs user locks, which are each "
                      "node's own");
    else
        return false;
    return true;
}

static void build_hello(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    (void)q;
    sql_bytes(a, s->client, SQL_CLIENT);
    sql_int(a, !mysql_of(s)->polls);
}

static void answer_hello(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct mysql *m = mysql_of(s);

    if (!hf__sql_is_row(q->on, reply) || unfit(q->on, reply))
        return;
    if (sql_number_at(reply, 0, FLUSH) != 1)
        hf__sql_warn_once(
            &m->sql, WARN_FLUSH,
            "innodb_flush_log_at_trx_commit is not 1: a crash may take back what was "
            "granted");
    if (sql_number_at(reply, 0, GALERA)) {
        hf__sql_warn_once(
            &m->sql, WARN_GALERA,
            "it is a Galera cluster: who waits looks from time to time, and giving up "
            "after a lost connection takes one ttl");
        m->polls = true;
        s->heard = false;
    }
    m->old = sql_number_at(reply, 0, OLD);
    m->made = false;
    hf__sql_conn_say(q->on, &shape);
}

void hf__mysql_greet(struct sql_conn *c)
{
    static const struct sql_type hello = { MY_HELLO, build_hello, answer_hello };

    hf__mysql_fast_up(mysql_of(c->sql));
    hf__sql_conn_say(c, &hello);
}

void hf__mysql_down(struct sql_conn *c, const hf_error *err)
{
    struct mysql *m = mysql_of(c->sql);

    if (c != c->sql->commands) {
        hf__mysql_waker_lost(c);
        return;
    }
    m->unended = m->unended || (m->sql.up && !m->owned);
    m->owned = m->making = false;
    hf__mysql_wake_down(m, err);
    hf__mysql_session_gone(m);
}
