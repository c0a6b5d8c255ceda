/* session.c: locks that belong to a connection: mode=pessimistic (a row lock in an open
 * transaction) and the database's own locks (mode=advisory, mode=named).
 *
 * A ticket has a session, a connection of its own, from its join until it is out: so what
 * the server thinks of nesting never shows. One that was released cleanly serves the next
 * ticket. Beside them the commands connection controls: it looks, cancels and ends.
 *
 *   OPENING --> TRYING --> HELD --> LEAVING --> IDLE      the free path: one trip each
 *                  |         ^         |
 *                  v         |         v
 *               WAITING -----+      (cancelled: closed)
 *
 * TRYING    the statement that does not wait; so whoever must wait knows it, and that the
 *           server answers
 * WAITING   the one that waits. A leave cancels it over the commands connection, and puts
 *           behind it what gives the lock back if it was granted all the same: the answer
 *           to that settles it (G7). The cancel may come too early, and is repeated; it may
 *           come late and hit anything: such a session is never used again.
 * HELD      a statement every third of the ttl proves it, and sets the server's own limit
 *           for silent sessions to the ttl: a holder that is cut off ends by its ttl (G5)
 * ENDING    the connection is lost or makes no sense. The lock may be there for as long as
 *           the server's session is: that is ended, by the number and time of start that
 *           the server gave, before anybody is told that the ticket is out (G7).
 *
 * The server may end a session at any moment, and with it the hold: there is no
 * HF_CAP_DEADLINE. G1 counts as for every store: from the sending of the last answered
 * statement. A grant for which we have waited long is confirmed by such a statement first.
 */
#include "driver/sql/conn.h"
#include "util/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDLE_MOST = 4, TRIES = 10, RETRY_MS = 100, ENDS_MOST = 3, CANCEL_US = 20000 };

/* Its calls are about a session; their number is the ttl in ms. */
static struct sql_session *of(const struct sql_call *q)
{
    return q->about;
}

static bool by_rows(const struct sql_session *ses)
{
    return ses->sql->mode == SQL_PESSIMISTIC;
}

/* ---- coming and going ------------------------------------------------------------ */

static void bury(struct sql_session *ses)
{
    if (ses->t || ses->pins > 0 || !ses->lost)
        return;
    list_remove(&ses->all);
    list_push(&ses->sql->buried, &ses->all);
}

void hf__sql_bury(struct sql *s)
{
    struct list *n;

    while ((n = list_pop(&s->buried)) != NULL) {
        struct sql_session *ses = container_of(n, struct sql_session, all);

        if (ses->conn)
            hf__sql_conn_done(ses->conn);
        free(ses->conn);
        free(ses);
    }
}

static struct ticket *out(struct sql_session *ses)
{
    struct ticket *t = ses->t;

    t->drv_ptr = NULL;
    ses->t = NULL;
    return t;
}

static void drop(struct sql_session *ses, const hf_error *why)
{
    static const hf_error none = { .code = HF_ECLOSED };

    ses->once = true;
    if (ses->lost)
        bury(ses);
    else
        hf__link_break(&ses->conn->link, why ? why : &none);
}

static void rest(struct sql_session *ses)
{
    size_t idle = 0;

    list_for(n, &ses->sql->sessions)
        idle += container_of(n, struct sql_session, all)->state == SES_IDLE;
    ses->state = SES_IDLE;
    if (ses->once || idle >= IDLE_MOST)
        drop(ses, NULL);
}

static void left(struct sql_session *ses, int rc)
{
    struct ticket *t = out(ses);

    if (rc == 0)
        t->drv[0] = 0;
    ev_left(t, rc);
}

static void gone(struct sql_session *ses, const hf_error *why)
{
    bool passes = why->code == HF_EUNREACHABLE || why->code == HF_EFULL;
    struct ticket *t = out(ses);

    t->drv[0] = 0;
    ev_gone(t, why->code, passes ? hf__sql_about(ses->sql, RETRY_MS) : -1, why);
}

/* ---- ending the server's session ------------------------------------------------- */

static void build_end(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    const struct sql_session *ses = of(q);

    a->nothing = q->type->verb == SQL_CANCEL && !ses->t; /* it has settled already */
    sql_int(a, ses->pid);
    sql_int(a, ses->started);
    if (q->type->verb == SQL_END)
        sql_int(a, s->open.connect_ms / 2 + 1);
}

static void end(struct sql_session *);

/* Nothing of it is left. */
static void ended(struct sql_session *ses)
{
    ses->state = SES_ENDED;
    if (ses->leaving)
        left(ses, 0);
    else if (!ses->told)
        gone(ses, &ses->why);
    bury(ses); /* told: the leave is to come */
}

static void answer_end(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct sql_session *ses = of(q);
    bool failed =
        reply && (reply->code < 0 || (reply->rows > 0 && sql_number_at(reply, 0, 0) == 0));

    (void)s;
    ses->pins--;
    if (!ses->t)
        bury(ses);
    else if (failed && (++ses->tries < ENDS_MOST ||
                        (reply->code == 0 && !ses->leaving && !ses->told)))
        /* It was just going by itself, perhaps. A waiter has nobody else who would ask
         * again; the server takes its time for each. */
        end(ses);
    else if (reply && !failed)
        ended(ses);
    else if (ses->leaving) { /* the core calls again: the ticket has the number */
        left(ses, reply ? HF_EUNKNOWN : HF_EUNREACHABLE);
        bury(ses);
    } /* else after UP, or with its leave */
}

static const struct sql_type end_type = { SQL_END, build_end, answer_end };

/* false: no memory */
static bool control(struct sql_session *ses, const struct sql_type *type)
{
    bool sent = hf__sql_ask(ses->sql, type, ses);

    ses->pins += sent;
    return sent;
}

static void end(struct sql_session *ses)
{
    if (ses->pins > 0 || (ses->sql->up && control(ses, &end_type)) || !ses->leaving)
        return;
    left(ses, HF_EUNREACHABLE);
    bury(ses);
}

void hf__sql_sessions_up(struct sql *s)
{
    list_for_safe(n, &s->sessions) {
        struct sql_session *ses = container_of(n, struct sql_session, all);

        if (ses->state == SES_ENDING)
            end(ses);
    }
}

void hf__sql_session_lost(struct sql_session *ses, const hf_error *err)
{
    enum session_state was = ses->state;

    ses->lost = ses->once = true;
    if (ses->why.code == 0)
        ses->why = *err;
    if (!ses->t) {
        bury(ses);
    } else if (was == SES_OPENING) { /* nothing about the ticket was sent */
        gone(ses, &ses->why);
        bury(ses);
    } else {
        ses->state = SES_ENDING;
        ses->tries = 0;
        ses->leaving = ses->leaving || was == SES_LEAVING;
        ses->told = was == SES_HELD;
        end(ses);
        if (ses->told)
            ev_dead(ses->t->own); /* the core leaves */
    }
}

/* An answer that no session should give. */
static void fail(struct sql_session *ses, const struct sql_reply *reply)
{
    hf__sql_refusal(ses->sql, reply, &ses->why);
    drop(ses, &ses->why);
}

/* ---- what a session says --------------------------------------------------------- */

/* Who holds, for those that look. The note is cut: what is no ASCII might not be whole. */
static void add_label(struct sql_session *ses, struct sql_args *a)
{
    char hex[2 * HF_TOKEN + 1];

    hf__hex(hex, ses->t->token, HF_TOKEN);
    snprintf(ses->label, sizeof ses->label, "hf %s %s", hex, ses->t->note);
    for (char *p = ses->label; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
    sql_bytes(a, ses->label, strlen(ses->label));
}

static void build(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    struct sql_session *ses = of(q);
    unsigned verb = q->type->verb;

    if (verb == SQL_PROVE) {
        snprintf(ses->text, sizeof ses->text, "%lld", (long long)q->number);
        sql_bytes(a, ses->text, strlen(ses->text));
    }
    if (verb < SQL_TRY || (verb == SQL_RELEASE && by_rows(ses)))
        return; /* the transaction is committed, whatever it has locked */
    sql_bytes(a, s->ns, s->ns_len);
    sql_bytes(a, ses->t->name, ses->t->name_len);
    if (verb == SQL_TRY || verb == SQL_LOCK)
        add_label(ses, a);
}

static void answer(struct sql *, struct sql_call *, const struct sql_reply *);

#define TYPE(verb) [verb] = { verb, build, answer }
static const struct sql_type types[] = { TYPE(SQL_UNDO), TYPE(SQL_PROVE),   TYPE(SQL_TRY),
                                         TYPE(SQL_LOCK), TYPE(SQL_RELEASE), TYPE(SQL_SHARE),
                                         TYPE(SQL_MAKE) };

static void say(struct sql_session *ses, enum sql_verb verb)
{
    struct sql_call *q = hf__sql_call(&types[verb], ses);
    hf_error err;

    if (!q) {
        hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a request");
        drop(ses, &err);
        return;
    }
    if (ses->t)
        q->number = ses->state == SES_HELD ? ses->t->own->ttl_ms : ses->t->ttl_ms;
    if (verb == SQL_UNDO)
        ses->undos++;
    if (verb == SQL_PROVE)
        ses->ttl_ms = q->number;
    hf__sql_conn_send(ses->conn, q);
}

static void undo(struct sql_session *ses)
{
    if (by_rows(ses))
        say(ses, SQL_UNDO);
}

/* ---- taking ---------------------------------------------------------------------- */

static void begin(struct sql_session *ses, bool wait)
{
    struct ticket *t = ses->t;

    ses->state = wait ? SES_WAITING : SES_TRYING;
    t->drv[0] = (uint64_t)ses->pid;
    t->drv[1] = (uint64_t)ses->started;
    if (ses->ttl_ms != t->ttl_ms)
        say(ses, SQL_PROVE);
    say(ses, wait ? SQL_LOCK : SQL_TRY);
}

static void release(struct sql_session *ses)
{
    ses->state = SES_LEAVING;
    say(ses, SQL_RELEASE);
}

static void granted(struct sql_session *ses, uint64_t fence, int64_t sent_at)
{
    ses->fence = fence;
    if (ses->leaving) {
        release(ses);
    } else if (ses->state == SES_WAITING &&
               sql_now(ses->sql) - sent_at > ses->t->ttl_ms * 250) {
        ses->state = SES_CONFIRMING;
        say(ses, SQL_PROVE);
    } else {
        ses->state = SES_HELD;
        ev_granted(ses->t, fence, sent_at);
    }
}

static void busy(struct sql_session *ses)
{
    hf_error err;

    undo(ses);
    if (ses->leaving) {
        left(ses, 0);
        rest(ses);
    } else if (ses->t->try_only) {
        hf__fail(&err, HF_EBUSY, 0, ses->sql->shown, "'%s' is held", ses->t->name);
        gone(ses, &err);
        rest(ses);
    } else {
        begin(ses, true);
        ev_waiting(ses->t, 0, -1);
    }
}

/* Its row is not there (any more). */
static void make(struct sql_session *ses, const struct sql_reply *reply)
{
    bool wait = ses->state == SES_WAITING;

    if (++ses->tries > TRIES) {
        fail(ses, reply);
        return;
    }
    undo(ses);
    say(ses, SQL_MAKE);
    begin(ses, wait);
}

static void answer_lock(struct sql_session *ses, const struct sql_reply *reply,
                        int64_t sent_at)
{
    if (ses->state == SES_LEAVING)
        return; /* what settles it is behind it */
    if (reply->code == 0 && reply->rows == 1)
        granted(ses, (uint64_t)sql_number_at(reply, 0, 0), sent_at);
    else if (reply->code == 0 && by_rows(ses))
        make(ses, reply);
    else if (reply->code == 0 || reply->code == HF_EBUSY)
        busy(ses);
    else
        fail(ses, reply);
}

/* ---- holding, leaving ------------------------------------------------------------ */

static void proved(struct sql_session *ses, struct sql_call *q)
{
    if (ses->state == SES_CONFIRMING) {
        ses->state = SES_HELD;
        ev_granted(ses->t, ses->fence, q->call.sent_at);
    } else if (ses->state == SES_HELD) {
        ev_alive(ses->t->own, q->call.sent_at, q->number);
    }
}

static void answer(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct sql_session *ses = of(q);
    unsigned verb = q->type->verb;

    (void)s;
    if (verb == SQL_UNDO)
        ses->undos--;
    if (verb == SQL_SHARE)
        ses->sharing = false;
    if (!reply || ses->why.code != 0)
        return; /* it is lost, or will be */
    if (verb == SQL_TRY || verb == SQL_LOCK) {
        answer_lock(ses, reply, q->call.sent_at);
        return;
    }
    if (ses->state == SES_LEAVING && ses->once && !(verb == SQL_UNDO && ses->undos == 0))
        return; /* the cancel may have hit it: the last undo counts */
    if (reply->code < 0)
        fail(ses, reply);
    else if (verb == SQL_PROVE && ses->t)
        proved(ses, q);
    else if (verb == SQL_SHARE && ses->t)
        ev_amended(ses->t, 0);
    else if (ses->state == SES_LEAVING && (verb == SQL_RELEASE || ses->once)) {
        left(ses, 0);
        rest(ses);
    }
}

static void answer_cancel(struct sql *, struct sql_call *, const struct sql_reply *);

static const struct sql_type cancel_type = { SQL_CANCEL, build_end, answer_cancel };

/* If it came before the statement that waits, it ended nothing. */
static void cancel_again(struct sql_session *ses)
{
    struct sql_call *q = hf__sql_call(&cancel_type, ses);

    if (!q)
        return; /* without an answer the connection is given up */
    ses->pins++;
    hf__sql_later(ses->sql, q, CANCEL_US);
}

static void answer_cancel(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct sql_session *ses = of(q);

    (void)s;
    ses->pins--;
    if (!ses->t)
        bury(ses); /* it has settled already */
    else if (ses->state == SES_ENDING)
        end(ses); /* lost meanwhile */
    else if (!reply || reply->code < 0 || reply->rows != 1)
        drop(ses, NULL); /* then it is ended */
    else
        cancel_again(ses);
}

static void cancel(struct sql_session *ses)
{
    ses->state = SES_LEAVING;
    ses->once = true;
    say(ses, SQL_UNDO);
    if (!ses->sql->up || !control(ses, &cancel_type))
        drop(ses, NULL);
}

/* ---- verbs ----------------------------------------------------------------------- */

void hf__sql_session_up(struct sql_session *ses, int64_t pid, int64_t started)
{
    ses->pid = pid;
    ses->started = started;
    if (ses->t)
        begin(ses, false);
    else
        rest(ses);
}

int64_t hf__sql_session_patience(const struct sql_session *ses, const struct link *k)
{
    const struct link_call *first = hf__link_oldest(k);

    if (!first || ses->state != SES_WAITING)
        return 0;
    return (sql_now(ses->sql) - (first->sent_at > k->since ? first->sent_at : k->since)) /
           1000;
}

/* NULL: no memory */
static struct sql_session *new_session(struct sql *s, bool connect)
{
    struct sql_session *ses = calloc(1, sizeof *ses);

    if (!ses)
        return NULL;
    ses->sql = s;
    ses->conn = connect ? hf__sql_conn_attach(ses) : NULL;
    if (connect && !ses->conn) {
        free(ses);
        return NULL;
    }
    list_push(&s->sessions, &ses->all);
    return ses;
}

static struct sql_session *idle(struct sql *s)
{
    list_for(n, &s->sessions) {
        struct sql_session *ses = container_of(n, struct sql_session, all);

        if (ses->state == SES_IDLE && !ses->once)
            return ses;
    }
    return NULL;
}

void hf__sql_session_join(struct sql *s, struct ticket *t)
{
    struct sql_session *ses = t->drv_ptr;
    hf_error err;

    if (ses) {
        if (ses->state == SES_WAITING)
            ev_waiting(t, 0, -1);
        return;
    }
    t->drv[0] = 0;
    ses = idle(s);
    if (!ses)
        ses = new_session(s, true);
    if (!ses) {
        hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a connection");
        ev_gone(t, HF_ENOMEM, -1, &err);
        return;
    }
    t->drv_ptr = ses;
    ses->t = t;
    ses->leaving = ses->told = false;
    ses->shared = t->weight < HF_FULL;
    ses->sharing = false;
    ses->tries = 0;
    if (ses->state == SES_IDLE)
        begin(ses, false);
    hf__sql_sweep(s);
}

static void leave_forgotten(struct sql *s, struct ticket *t)
{
    struct sql_session *ses = t->drv[0] != 0 && s->up ? new_session(s, false) : NULL;

    if (!ses) {
        ev_left(t, t->drv[0] == 0 ? 0 : HF_EUNREACHABLE);
        return;
    }
    t->drv_ptr = ses;
    ses->t = t;
    ses->state = SES_ENDING;
    ses->lost = ses->leaving = true;
    ses->pid = (int64_t)t->drv[0];
    ses->started = (int64_t)t->drv[1];
    end(ses);
}

/* A leave may be several steps, and its caller may have gone: a timer makes somebody drive
 * until it is settled. To give back what is held is one step if the connection is idle and
 * the statement is prepared: it goes out with the next flush. */
static void see_to_it(struct sql *s, const struct sql_session *ses)
{
    if (ses && ses->state == SES_HELD && ses->conn->flying == 0 &&
        ses->conn->prepared & 1u << SQL_RELEASE)
        return;
    if (!timer_armed(&s->later_timer))
        s->store.env->timer(s->store.env, &s->later_timer, sql_now(s));
}

void hf__sql_session_leave(struct sql *s, struct ticket *t)
{
    struct sql_session *ses = t->drv_ptr;

    see_to_it(s, ses);
    if (!ses) {
        leave_forgotten(s, t);
        return;
    }
    switch (ses->state) {
    case SES_OPENING:
        left(ses, 0);
        break; /* the connection will serve another */
    case SES_WAITING:
        cancel(ses);
        break;
    case SES_CONFIRMING:
    case SES_HELD:
        release(ses);
        break;
    case SES_ENDED:
        left(ses, 0);
        bury(ses);
        break;
    case SES_ENDING:
        ses->leaving = true;
        end(ses);
        break;
    default:
        ses->leaving = true;
        break;
    }
}

/* Only a smaller weight: nobody could see another note. */
void hf__sql_session_amend(struct ticket *t)
{
    struct sql_session *ses = t->drv_ptr;

    if (ses && ses->state == SES_HELD && ses->sharing)
        return; /* asked again after UP: its answer is on the way */
    if (!ses || ses->state != SES_HELD || ses->shared || t->weight == HF_FULL) {
        ev_amended(t, ses && ses->state == SES_HELD ? HF_ENOTSUP : HF_ELOST);
        return;
    }
    say(ses, SQL_SHARE);
    ses->shared = ses->sharing = true;
}

void hf__sql_session_renew(struct life *const *lives, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct sql_session *ses = life_ticket(lives[i])->drv_ptr;

        if (ses && ses->state == SES_HELD)
            say(ses, SQL_PROVE);
    }
}

void hf__sql_sessions_forget(struct sql *s)
{
    list_for(n, &s->sessions) {
        struct sql_session *ses = container_of(n, struct sql_session, all);

        if (ses->t)
            (void)out(ses);
    }
    list_splice(&s->buried, &s->sessions);
}
