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
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1, MAKING_US = 50000, VERSION_LEAST = 1006 };
enum server_column { VERSION, READ_ONLY, FLUSH, GALERA, OLD };
enum { WARN_FLUSH = 1, WARN_GALERA = 2, WARN_NO_END = 4 };

static void warn(struct mysql *m, unsigned which, const char *text)
{
    if (!(m->warned & which))
        hf__sql_warn(&m->sql, "%s", text);
    m->warned |= which;
}

static void no_args(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    (void)s;
    (void)q;
    (void)a;
}

static void say(struct mysql *m, const struct sql_type *type)
{
    struct sql_call *q = hf__sql_call(type, sizeof *q);

    if (q)
        hf__mysql_send(&m->commands, q);
    else
        hf__link_fail(&m->commands.link, HF_ENOMEM, "no memory for a connection");
}

/* Of an answer that is no good one. */
static void refused(struct mysql *m, const struct sql_reply *reply)
{
    hf_error err;

    if (hf__sql_refusal(&m->sql, reply, &err) == HF_EPROTO)
        err.code = HF_EUNREACHABLE;
    hf__link_break(&m->commands.link, &err);
}

/* ---- the connection before this one ---------------------------------------------- */

static void answer_own(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct mysql *m = mysql_of(s);

    (void)q;
    if (!reply)
        return;
    m->owned = reply->code == 0 && reply->rows == 1 && s->wire->number(reply, 0, 0) == 1;
    if (!m->owned)
        warn(m, WARN_NO_END,
             "an old connection could not be ended: giving up after a lost connection "
             "takes one ttl");
    if (!m->owned || m->unended || (m->warned & WARN_GALERA))
        echo_up(&s->echo, sql_now(s)); /* joins of it may still come to be executed */
    m->unended = false;
    s->echo.lost_ms = 0;
    hf__link_up(&m->commands.link);
    hf__sql_up(s);
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
    static const struct sql_type type = { (enum sql_verb)MY_OWN, build_own, answer_own };

    say(m, &type);
}

struct end_call {
    struct sql_call q;
    int64_t session;
};

static void build_end(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    (void)s;
    sql_int(a, container_of(q, struct end_call, q)->session);
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
    static const struct sql_type type = { (enum sql_verb)MY_END, build_end, answer_end };
    struct sql_call *q;

    hf__link_settle(&m->commands.link);
    if (m->old == 0) {
        own(m);
        return;
    }
    q = hf__sql_call(&type, sizeof(struct end_call));
    if (!q) {
        hf__link_fail(&m->commands.link, HF_ENOMEM, "no memory for a connection");
        return;
    }
    container_of(q, struct end_call, q)->session = m->old;
    hf__mysql_send(&m->commands, q);
}

/* ---- the schema ------------------------------------------------------------------ */

static void ask_shape(struct mysql *);

static void answer_made(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    (void)q;
    if (reply)
        ask_shape(mysql_of(s));
}

/* The parts of schema.sql end with a line of "$$"; the first line is for the tool of an
 * administrator. */
#define END_OF_PART "\n$$\n"

struct script_call {
    struct sql_call q;
    const char *at;
};

const char *hf__mysql_script(const struct sql_call *q, size_t *ret_len)
{
    const char *at = container_of(q, struct script_call, q)->at;

    *ret_len = (size_t)(strstr(at, END_OF_PART) - at);
    return at;
}

static void make(struct mysql *, const char *at);

static void answer_script(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct mysql *m = mysql_of(s);

    (void)q;
    if (!reply)
        return;
    if (reply->code == HF_EAUTH)
        hf__link_fail(&m->commands.link, HF_EAUTH,
                      "there are no tables of holdfast, and this user may not make them "
                      "(%s): what an administrator runs is printed by 'holdfast schema'",
                      reply->err.text);
    else if (reply->code < 0)
        hf__link_fail(&m->commands.link, HF_EUNREACHABLE,
                      "the schema could not be made: %s", reply->err.text);
    else
        make(m, strstr(container_of(q, struct script_call, q)->at, END_OF_PART) +
                    strlen(END_OF_PART));
}

static void make(struct mysql *m, const char *at)
{
    static const struct sql_type type = { (enum sql_verb)MY_SCRIPT, no_args,
                                          answer_script };
    static const struct sql_type made = { (enum sql_verb)MY_MADE, no_args, answer_made };
    struct sql_call *q;

    m->made = true;
    if (!strstr(at, END_OF_PART)) {
        say(m, &made);
        return;
    }
    q = hf__sql_call(&type, sizeof(struct script_call));
    if (!q) {
        hf__link_fail(&m->commands.link, HF_ENOMEM, "no memory for a connection");
        return;
    }
    container_of(q, struct script_call, q)->at = at;
    hf__mysql_send(&m->commands, q);
}

static void answer_make(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct mysql *m = mysql_of(s);
    struct sql_call *again;

    if (!reply)
        return;
    if (reply->code < 0 || reply->rows != 1) {
        refused(m, reply);
        return;
    }
    m->making = s->wire->number(reply, 0, 0) == 1;
    if (m->making) {
        ask_shape(m); /* somebody may have made it meanwhile */
        return;
    }
    again = hf__sql_call(q->type, sizeof *again);
    if (again)
        hf__sql_later(s, again, MAKING_US); /* another client is at it */
    else
        hf__link_fail(&m->commands.link, HF_ENOMEM, "no memory for a connection");
}

static void answer_shape(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    static const struct sql_type lock = { (enum sql_verb)MY_MAKE, no_args, answer_make };
    struct mysql *m = mysql_of(s);
    int64_t version = 0;

    (void)q;
    if (!reply)
        return;
    if (reply->code == 0 && reply->rows == 1) {
        version = s->wire->number(reply, 0, 0); /* 0: it is not complete */
    } else if (m->commands.error != ER_NO_SUCH_TABLE) {
        refused(m, reply);
        return;
    }
    if (version == 0 && !m->making)
        say(m, &lock);
    else if (version == 0 && !m->made)
        make(m, strchr(hf__mysql_schema, '\n') + 1);
    else if (version != FORMAT)
        hf__link_fail(&m->commands.link, HF_EVERSION,
                      "the schema has version %lld, and this is for version %d",
                      (long long)version, FORMAT);
    else if (s->wire->number(reply, 0, 1) < SQL_SWEEP + 1) /* a procedure for each */
        hf__link_fail(&m->commands.link, HF_EVERSION,
                      "procedures of holdfast are missing: run what 'holdfast schema' "
                      "prints");
    else
        settle(m);
}

static void ask_shape(struct mysql *m)
{
    static const struct sql_type shape = { (enum sql_verb)MY_SHAPE, no_args, answer_shape };

    say(m, &shape);
}

/* ---- who is there ---------------------------------------------------------------- */

static bool unfit(struct mysql *m, const struct sql_reply *reply)
{
    struct sql *s = &m->sql;
    int passing = s->served || s->open.nhosts > 1 ? HF_EUNREACHABLE : HF_ENOTSUP;
    const char *version;
    unsigned major = 0, minor = 0;
    size_t n;

    version = s->wire->bytes(reply, 0, VERSION, &n);
    if (!strstr(version, "MariaDB"))
        hf__link_fail(&m->commands.link, HF_ENOTSUP,
                      "it is MySQL %s: only MariaDB is supported", version);
    else if (sscanf(version, "%u.%u", &major, &minor) != 2 ||
             major * 100 + minor < VERSION_LEAST)
        hf__link_fail(&m->commands.link, HF_ENOTSUP,
                      "MariaDB %s is too old: 10.6 or later is needed", version);
    else if (s->wire->number(reply, 0, READ_ONLY))
        hf__link_fail(&m->commands.link, passing, "it is read-only");
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

    (void)q;
    if (!reply)
        return;
    if (reply->code < 0 || reply->rows != 1) {
        refused(m, reply);
        return;
    }
    if (unfit(m, reply))
        return;
    if (s->wire->number(reply, 0, FLUSH) != 1)
        warn(m, WARN_FLUSH,
             "innodb_flush_log_at_trx_commit is not 1: a crash may take back what was "
             "granted");
    if (s->wire->number(reply, 0, GALERA)) {
        warn(m, WARN_GALERA,
             "it is a Galera cluster: who waits looks from time to time, and giving up "
             "after "
             "a lost connection takes one ttl");
        m->polls = true;
        s->heard = false;
    }
    m->old = s->wire->number(reply, 0, OLD);
    m->made = false;
    ask_shape(m);
}

void hf__mysql_greet(struct my_conn *c)
{
    static const struct sql_type hello = { (enum sql_verb)MY_HELLO, build_hello,
                                           answer_hello };

    say(c->of, &hello);
}
