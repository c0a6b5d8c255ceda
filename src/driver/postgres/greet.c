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
enum { WARN_FSYNC = 1, WARN_POOLER = 2, WARN_NO_END = 4, WARN_SILENT = 8 };

/* ---- the connection before this one ---------------------------------------------- */

static void finish(struct postgres *p, bool echoes)
{
    p->old.pid = 0;
    hf__sql_greeted(&p->sql, echoes);
    if (p->sql.listens)
        hf__postgres_listen(&p->sql);
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
    bool there = reply && reply->rows > 0 && sql_number_at(reply, 0, 0) == 0;

    (void)q;
    if (!reply)
        return;
    if (there && p->ends++ < ENDS_MOST) {
        end_old(p); /* it was just going by itself, perhaps */
        return;
    }
    if (there || reply->code < 0)
        hf__sql_warn_once(s, WARN_NO_END, SQL_NO_END);
    finish(p, there || reply->code < 0);
}

static void end_old(struct postgres *p)
{
    static const struct sql_type end = { SQL_END, build_end, answer_end };

    hf__sql_conn_say(p->sql.commands, &end);
}

static void settle(struct postgres *p)
{
    if (p->old.pid != 0 && p->commands.direct) {
        hf__link_settle(&p->sql.commands->link);
        p->ends = 0;
        end_old(p);
    } else {
        finish(p, true);
    }
}

/* ---- the schema ------------------------------------------------------------------ */

static void answer_shape(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    if (hf__sql_is_row(q->on, reply) && hf__sql_is_shape(q->on, reply, FORMAT, FUNCTIONS))
        settle(postgres_of(s));
}

static void ask_shape(struct sql_conn *c)
{
    static const struct sql_type shape = { PG_SHAPE, NULL, answer_shape };

    hf__sql_conn_say(c, &shape);
}

void hf__postgres_made(struct pg_conn *c, const char *state, const char *why)
{
    if (!state)
        ask_shape(&c->c);
    else if (strcmp(state, "42501") == 0)
        hf__link_fail(&c->c.link, HF_EAUTH,
                      "there is no schema holdfast, and this user may not make it "
                      "(%s): " SQL_TO_ADMINISTRATOR,
                      why);
    else
        hf__link_fail(&c->c.link, HF_EUNREACHABLE, "the schema could not be made: %s (%s)",
                      why, state);
}

/* ---- who is there ---------------------------------------------------------------- */

static bool unfit(struct sql_conn *c, const struct sql_reply *reply)
{
    int64_t version = sql_number_at(reply, 0, VERSION);

    if (version < VERSION_LEAST)
        hf__link_fail(&c->link, HF_ENOTSUP,
                      "PostgreSQL %lld is too old: 14 or later is needed",
                      (long long)version / 10000);
    else if (sql_number_at(reply, 0, RECOVERY))
        hf__link_fail(&c->link, hf__sql_passing(c->sql),
                      "it is a replica: locks need the primary server");
    else if (sql_number_at(reply, 0, READ_ONLY))
        hf__link_fail(&c->link, hf__sql_passing(c->sql),
                      "it is read-only: locks need a server that can be written to");
    else
        return false;
    return true;
}

/* A user that may not see when its session began could not find it again, either. */
static bool is_direct(struct sql_conn *c, const struct sql_reply *reply)
{
    return PQbackendPID(pg_conn_of(c)->pg) == (int)sql_number_at(reply, 0, PID) &&
           sql_number_at(reply, 0, STARTED) != 0;
}

static void answer_hello(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct postgres *p = postgres_of(s);
    struct sql_conn *c = s->commands;

    if (!hf__sql_is_row(c, reply) || unfit(c, reply))
        return;
    if (sql_number_at(reply, 0, BEING_MADE)) { /* they need not all do it, in turn */
        hf__sql_say_later(s, q->type, MAKING_US);
        return;
    }
    p->commands.direct = is_direct(c, reply);
    if (p->commands.direct) {
        p->session.pid = sql_number_at(reply, 0, PID);
        p->session.started = sql_number_at(reply, 0, STARTED);
    } else if (sql_has_sessions(s)) {
        hf__link_fail(
            &c->link, HF_ENOTSUP,
            "there is a pooler between, or this user may not see its own sessions: "
            "with this mode= neither may be so");
        return;
    } else {
        hf__sql_warn_once(
            s, WARN_POOLER,
            "there is a pooler between, or this user may not see its own sessions: giving "
            "up after a lost connection takes one ttl");
    }
    if (sql_number_at(reply, 0, NO_FSYNC) || sql_number_at(reply, 0, NO_PAGES))
        hf__sql_warn_once(
            s, WARN_FSYNC,
            "fsync or full_page_writes is off: a crash may take back what was granted");
    if (sql_number_at(reply, 0, MADE))
        ask_shape(c);
    else
        hf__postgres_make(&p->commands);
}

void hf__postgres_greet(struct sql_conn *c)
{
    static const struct sql_type hello = { PG_HELLO, NULL, answer_hello };

    hf__sql_conn_say(c, &hello);
}

/* ---- sessions of tickets --------------------------------------------------------- */

static void answer_attach(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    (void)s;
    if (!hf__sql_is_row(q->on, reply))
        return;
    if (!is_direct(q->on, reply)) {
        hf__sql_conn_refused(q->on, reply);
        return;
    }
    pg_conn_of(q->on)->direct = true;
    hf__link_up(&q->on->link);
    hf__sql_session_up(q->on->session, sql_number_at(reply, 0, PID),
                       sql_number_at(reply, 0, STARTED));
}

void hf__postgres_attach_greet(struct sql_conn *c)
{
    static const struct sql_type attach = { PG_ATTACH, NULL, answer_attach };

    hf__sql_conn_say(c, &attach);
}

/* ---- messages -------------------------------------------------------------------- */

static void build_notify(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    const struct postgres *p = postgres_of(s);

    (void)q;
    sql_bytes(a, p->channel, strlen(p->channel));
    sql_bytes(a, "h", 1);
}

/* A message to ourselves: whatever was sent before it has come, too, when it comes. */
static void test(struct postgres *p)
{
    static const struct sql_type notify = { PG_NOTIFY, build_notify, NULL };
    struct env *env = p->sql.store.env;

    if (timer_armed(&p->hello_timer))
        return;
    env->timer(env, &p->hello_timer, sql_now(&p->sql) + HELLO_US);
    p->sql.store.awaits = true; /* so that somebody reads it */
    hf__sql_conn_say(p->sql.commands, &notify);
}

static void answer_listen(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    if (reply && reply->code < 0) {
        hf__sql_conn_refused(q->on, reply);
    } else if (reply) {
        hf__link_up(&q->on->link);
        test(postgres_of(s));
    }
}

void hf__postgres_listen_greet(struct sql_conn *c)
{
    static const struct sql_type listen = { PG_LISTEN, NULL, answer_listen };

    hf__sql_conn_say(c, &listen);
}

void hf__postgres_listen(struct sql *s)
{
    struct postgres *p = postgres_of(s);

    if (p->polls || !s->up)
        return;
    if (p->messages.c.link.state == LINK_UP)
        test(p);
    else
        hf__link_start(&p->messages.c.link);
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
static void unheard(struct postgres *p)
{
    end_test(p);
    p->heard = false;
    if (p->sql.up && p->sql.heard)
        hf__sql_hears(&p->sql, false);
}

void hf__postgres_down(struct sql_conn *c, const hf_error *err)
{
    struct postgres *p = postgres_of(c->sql);

    if (c == &p->messages.c) {
        unheard(p);
        return;
    }
    if (p->old.pid == 0)
        p->old = p->session;
    p->session.pid = 0;
    p->messages.c.link.wanted = false; /* until it is up again */
    hf__link_break(&p->messages.c.link, err);
}

void hf__postgres_hello_fired(struct timer *t)
{
    struct postgres *p = container_of(t, struct postgres, hello_timer);

    if (p->heard) {
        hf__link_fail(&p->messages.c.link, HF_EUNREACHABLE, "no message comes any more");
    } else {
        hf__sql_warn_once(
            &p->sql, WARN_SILENT,
            "no message comes through, as behind a transaction pooler: who waits looks "
            "from time to time");
        settled(p, false);
    }
    hf__sql_flush(&p->sql.store);
}
