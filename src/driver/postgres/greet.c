/* greet.c: what is said on a new connection before the store is up, and how messages begin.
 *
 *   commands   HELLO: which server, which backend, how it is set
 *              schema.sql, if there is no schema; then its version
 *              END: the backend of our connection before this one is ended, by the number
 * and the time of start that the server itself gave, so that no request of it can be
 *              executed any more (G7); pg_terminate_backend waits until it has gone
 *   messages   LISTEN; then NOTIFY to ourselves, on the other connection, and it must be
 *              heard: a transaction pooler takes a LISTEN, and nothing ever comes. The same
 *              when a grant was found by a look, of which no message had come: if they no
 *              longer come, the connection is opened anew
 *
 * The number that libpq was given at login is that of the backend, or one that a pooler
 * made up. Then the backend serves others too, and is not ended: what was lost may be
 * executed for as long as its ttl, and until then "not there" is not believed of a leave.
 *
 * A server that is a replica or read-only is refused at first; once the store has been up,
 * or if the URL names several, it is waited out. */
#include "driver/postgres/postgres.h"

#include <string.h>

enum {
    VERSION_LEAST = 140000,
    FORMAT = 1,
    FUNCTIONS = 20, /* that PG_SHAPE counts */
    HELLO_US = 2000000,
    ENDS_MOST = 3,
    MAKING_US = 50000
};
enum hello_column {
    PID,
    STARTED,
    VERSION,
    RECOVERY,
    READ_ONLY,
    NO_FSYNC,
    NO_PAGES,
    MADE,
    BEING_MADE
};
#define TO_ADMINISTRATOR "what an administrator runs is printed by 'holdfast schema'"

enum { WARN_FSYNC = 1, WARN_POOLER = 2, WARN_NO_END = 4, WARN_SILENT = 8 };

static void warn(struct postgres *p, unsigned which, const char *text)
{
    if (!(p->warned & which))
        hf__sql_warn(&p->sql, "%s", text);
    p->warned |= which;
}

static void no_args(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    (void)s;
    (void)q;
    (void)a;
}

static void say(struct pg_conn *c, const struct sql_type *type)
{
    struct sql_call *q = hf__sql_call(type, sizeof *q);

    if (q)
        hf__postgres_send(c, q);
    else
        hf__link_fail(&c->link, HF_ENOMEM, "no memory for a connection");
}

struct attach_call {
    struct sql_call q;
    struct pg_conn *c;
};

/* Of an answer that is no good one. */
static void refused(struct sql *s, struct pg_conn *c, const struct sql_reply *reply)
{
    hf_error err;

    if (hf__sql_refusal(s, reply, &err) == HF_EPROTO)
        err.code = HF_EUNREACHABLE;
    if (err.code == HF_EAUTH)
        hf__link_fail(&c->link, HF_EAUTH, "%s: " TO_ADMINISTRATOR, err.text);
    else
        hf__link_break(&c->link, &err);
}

/* ---- the connection before this one ---------------------------------------------- */

static void finish(struct postgres *p)
{
    p->old.pid = 0;
    p->sql.echo.lost_ms = 0;
    hf__link_up(&p->commands.link);
    if (p->sql.listens && !p->polls)
        hf__link_start(&p->messages.link);
    hf__sql_up(&p->sql);
}

/* Joins of the old connection may still come to be executed. */
static void echoes(struct postgres *p)
{
    if (p->sql.echo.lost_ms > 0)
        echo_up(&p->sql.echo, sql_now(&p->sql));
}

static void build_end(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    const struct postgres *p = postgres_of(s);

    (void)q;
    sql_int(a, p->old.pid);
    sql_int(a, p->old.started);
    sql_int(a, s->open.connect_ms / 2 + 1);
}

static void end_old(struct postgres *);

static void answer_end(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct postgres *p = postgres_of(s);

    (void)q;
    if (!reply)
        return;
    if (reply->code == 0 && reply->rows > 0 && s->wire->number(reply, 0, 0) == 0 &&
        p->ends++ < ENDS_MOST) {
        end_old(p); /* it was just going by itself, perhaps */
        return;
    }
    if (reply->code < 0 || (reply->rows > 0 && s->wire->number(reply, 0, 0) == 0)) {
        echoes(p);
        warn(p, WARN_NO_END,
             "an old connection could not be ended: giving up after a lost connection "
             "takes one ttl");
    }
    finish(p);
}

static void end_old(struct postgres *p)
{
    static const struct sql_type end = { SQL_END, build_end, answer_end };

    say(&p->commands, &end);
}

static void settle(struct postgres *p)
{
    if (p->old.pid != 0 && p->commands.direct) {
        hf__link_settle(&p->commands.link);
        p->ends = 0;
        end_old(p);
        return;
    }
    echoes(p);
    finish(p);
}

/* ---- the schema ------------------------------------------------------------------ */

static void answer_shape(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct postgres *p = postgres_of(s);
    int64_t version;

    (void)q;
    if (!reply)
        return;
    if (reply->code < 0 || reply->rows != 1) {
        refused(s, &p->commands, reply);
        return;
    }
    version = s->wire->number(reply, 0, 0);
    if (version != FORMAT)
        hf__link_fail(&p->commands.link, HF_EVERSION,
                      "the schema holdfast has version %lld, and this is for version %d",
                      (long long)version, FORMAT);
    else if (s->wire->number(reply, 0, 1) < FUNCTIONS)
        hf__link_fail(&p->commands.link, HF_EVERSION,
                      "functions of the schema holdfast are missing: run what 'holdfast "
                      "schema' prints");
    else
        settle(p);
}

static void ask_shape(struct pg_conn *c)
{
    static const struct sql_type shape = { (enum sql_verb)PG_SHAPE, no_args, answer_shape };

    say(c, &shape);
}

void hf__postgres_made(struct pg_conn *c, const char *state, const char *why)
{
    if (!state)
        ask_shape(c);
    else if (strcmp(state, "42501") == 0)
        hf__link_fail(&c->link, HF_EAUTH,
                      "there is no schema holdfast, and this user may not make it "
                      "(%s): " TO_ADMINISTRATOR,
                      why);
    else
        hf__link_fail(&c->link, HF_EUNREACHABLE, "the schema could not be made: %s (%s)",
                      why, state);
}

/* ---- who is there ---------------------------------------------------------------- */

static bool unfit(struct postgres *p, const struct sql_reply *reply)
{
    struct sql *s = &p->sql;
    int64_t version = s->wire->number(reply, 0, VERSION);
    int passing = s->served || s->open.nhosts > 1 ? HF_EUNREACHABLE : HF_ENOTSUP;

    if (version < VERSION_LEAST)
        hf__link_fail(&p->commands.link, HF_ENOTSUP,
                      "PostgreSQL %lld is too old: 14 or later is needed",
                      (long long)version / 10000);
    else if (s->wire->number(reply, 0, RECOVERY))
        hf__link_fail(&p->commands.link, passing,
                      "it is a replica: locks need the primary server");
    else if (s->wire->number(reply, 0, READ_ONLY))
        hf__link_fail(&p->commands.link, passing, "it is read-only");
    else
        return false;
    return true;
}

/* Another client is at it: they need not all do it, one after the other. */
static void hello_again(struct sql *s, const struct sql_type *type)
{
    struct sql_call *q = hf__sql_call(type, sizeof *q);

    if (q)
        hf__sql_later(s, q, MAKING_US);
    else
        hf__link_fail(&postgres_of(s)->commands.link, HF_ENOMEM,
                      "no memory for a connection");
}

static void answer_hello(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct postgres *p = postgres_of(s);
    struct pg_conn *c = &p->commands;

    if (!reply)
        return;
    if (reply->code < 0 || reply->rows != 1) {
        refused(s, c, reply);
        return;
    }
    if (unfit(p, reply))
        return;
    if (s->wire->number(reply, 0, BEING_MADE)) {
        hello_again(s, q->type);
        return;
    }
    /* A user that may not see when its session began could not find it again, either. */
    c->direct = PQbackendPID(c->pg) == (int)s->wire->number(reply, 0, PID) &&
                s->wire->number(reply, 0, STARTED) != 0;
    if (c->direct) {
        p->session.pid = s->wire->number(reply, 0, PID);
        p->session.started = s->wire->number(reply, 0, STARTED);
    } else if (sql_has_sessions(s)) {
        hf__link_fail(
            &c->link, HF_ENOTSUP,
            "there is a pooler between, or this user may not see its own sessions: "
            "with this mode= neither may be so");
        return;
    } else {
        warn(p, WARN_POOLER,
             "there is a pooler between, or this user may not see its own sessions: giving "
             "up after a lost connection takes one ttl");
    }
    if (s->wire->number(reply, 0, NO_FSYNC) || s->wire->number(reply, 0, NO_PAGES))
        warn(p, WARN_FSYNC,
             "fsync or full_page_writes is off: a crash may take back what was granted");
    if (s->wire->number(reply, 0, MADE))
        ask_shape(c);
    else
        hf__postgres_make(c);
}

void hf__postgres_greet(struct pg_conn *c)
{
    static const struct sql_type hello = { (enum sql_verb)PG_HELLO, no_args, answer_hello };

    say(c, &hello);
}

/* ---- sessions of tickets --------------------------------------------------------- */

static void answer_attach(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct pg_conn *c = container_of(q, struct attach_call, q)->c;

    if (!reply)
        return;
    if (reply->code < 0 || reply->rows != 1 ||
        s->wire->number(reply, 0, PID) != PQbackendPID(c->pg) ||
        s->wire->number(reply, 0, STARTED) == 0) {
        refused(s, c, reply);
        return;
    }
    c->direct = true;
    hf__link_up(&c->link);
    hf__sql_session_up(&c->attached->ses, s->wire->number(reply, 0, PID),
                       s->wire->number(reply, 0, STARTED));
}

void hf__postgres_attach_greet(struct pg_conn *c)
{
    static const struct sql_type attach = { (enum sql_verb)PG_ATTACH, no_args,
                                            answer_attach };
    struct sql_call *q = hf__sql_call(&attach, sizeof(struct attach_call));

    if (!q) {
        hf__link_fail(&c->link, HF_ENOMEM, "no memory for a connection");
        return;
    }
    container_of(q, struct attach_call, q)->c = c;
    hf__postgres_send(c, q);
}

/* ---- messages -------------------------------------------------------------------- */

static void build_notify(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    const struct postgres *p = postgres_of(s);

    (void)q;
    sql_bytes(a, p->channel, strlen(p->channel));
    sql_bytes(a, "h", 1);
}

static void answer_notify(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    (void)s;
    (void)q;
    (void)reply; /* it is heard, or it is not */
}

/* A message to ourselves: whatever was sent before it has come, too, when it comes. */
void hf__postgres_test(struct postgres *p)
{
    static const struct sql_type notify = { (enum sql_verb)PG_NOTIFY, build_notify,
                                            answer_notify };
    struct env *env = p->sql.store.env;

    if (timer_armed(&p->hello_timer))
        return;
    env->timer(env, &p->hello_timer, sql_now(&p->sql) + HELLO_US);
    p->sql.store.awaits = true; /* so that somebody reads it */
    say(&p->commands, &notify);
}

static void answer_listen(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct postgres *p = postgres_of(s);

    (void)q;
    if (!reply)
        return;
    if (reply->code < 0) {
        refused(s, &p->messages, reply);
        return;
    }
    hf__link_up(&p->messages.link);
    hf__postgres_test(p);
}

void hf__postgres_listen_greet(struct pg_conn *c)
{
    static const struct sql_type listen = { (enum sql_verb)PG_LISTEN, no_args,
                                            answer_listen };

    say(c, &listen);
}

static void end_test(struct postgres *p)
{
    struct env *env = p->sql.store.env;

    env->timer(env, &p->hello_timer, LOOP_NEVER);
    p->sql.store.awaits = false;
}

static void settled(struct postgres *p, bool heard)
{
    end_test(p);
    hf__sql_hears(&p->sql, heard);
}

void hf__postgres_notified(struct postgres *p, const char *text)
{
    bool first = !p->heard || !p->sql.heard;

    p->heard = true;
    if (strcmp(text, "h") != 0)
        hf__sql_told(&p->sql, text);
    else if (first)
        settled(p, true);
    else
        end_test(p);
}

/* Until it is up again, if ever, whoever waits looks. If the other one is down, too, both
 * are opened again, and this is asked anew. */
void hf__postgres_unheard(struct postgres *p)
{
    end_test(p);
    p->heard = false;
    if (p->sql.up && p->sql.heard)
        hf__sql_hears(&p->sql, false);
}

void hf__postgres_hello_fired(struct timer *t)
{
    struct postgres *p = container_of(t, struct postgres, hello_timer);

    if (p->heard) {
        hf__link_fail(&p->messages.link, HF_EUNREACHABLE, "no message comes any more");
    } else {
        warn(p, WARN_SILENT,
             "no message comes through, as behind a transaction pooler: who waits looks "
             "from time to time");
        settled(p, false);
    }
    hf__postgres_flush(p);
}
