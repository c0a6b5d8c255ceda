/* wake.c: how who waits learns that it is its turn.
 *
 * What a call of this client did for another ticket of it stands in the answer (news). For
 * what other clients do, there are user locks: the session of a client owns one for each of
 * its tickets, and gives it back when the ticket has left; if it dies, the server does. The
 * first of our tickets that wait in a line waits for the lock of whoever must go before it:
 * on a session of its own, a waker. At most MY_WAKERS; who finds none looks every LOOK_US,
 * as who waits for a permit, or behind a ticket whose session is gone.
 *
 *   an answer: "w" TOKEN FRONT line since --> a waker: CALL holdfast_await
 *   its answer: "g" TOKEN ...: it holds;  "w" ...: the next one;  neither: nobody waits
 *
 * What others revoke, and whom they let in by that, is written to a table, where each
 * client looks every NOTICE_US while it has tickets that wait, or has held one for half a
 * second.
 *
 * A wake is only a reason to look: that a ticket holds is read from its row, after the
 * commit that granted it. A wake that is lost is found by the safety look (G4). */
#include "driver/mysql/mysql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_US = 200000, NOTICE_US = 2000000, AWAIT_S = 20 };

/* ---- those that look ------------------------------------------------------------- */

static void look_later(struct mysql *m, const unsigned char *token)
{
    struct env *env = m->sql.store.env;
    size_t room = m->lookers_room ? 2 * m->lookers_room : 16;
    void *p;

    if (m->nlookers == m->lookers_room) {
        p = realloc(m->lookers, room * sizeof *m->lookers);
        if (!p)
            return; /* the safety look finds it */
        m->lookers = p;
        m->lookers_room = room;
    }
    memcpy(m->lookers[m->nlookers++], token, HF_TOKEN);
    if (!timer_armed(&m->look_timer))
        env->timer(env, &m->look_timer, sql_now(&m->sql) + LOOK_US);
}

static void look_fired(struct timer *t)
{
    struct mysql *m = container_of(t, struct mysql, look_timer);
    size_t n = m->nlookers;

    m->nlookers = 0;
    for (size_t i = 0; i < n; i++)
        hf__scripted_told(&m->sql.scripted, m->lookers[i], TOLD_LOOK, 0, 0);
    hf__sql_flush(&m->sql.store);
}

/* ---- wakers ---------------------------------------------------------------------- */

static void build_await(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    const struct waker *w = q->about;

    sql_bytes(a, s->client, SQL_CLIENT);
    sql_bytes(a, w->front, HF_TOKEN);
    sql_int(a, w->line);
    sql_int(a, w->since);
    sql_int(a, AWAIT_S);
}

/* Its reads may have been done before the last one joined. */
static void waited(struct mysql *m, struct waker *w, bool failed)
{
    if (failed)
        look_later(m, w->token);
    if (w->joined)
        look_later(m, w->later);
    w->line = 0;
    w->joined = false;
}

/* What it says comes as news. */
static void answer_await(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    waited(mysql_of(s), q->about, !reply || reply->code < 0);
}

static void await(struct waker *w)
{
    static const struct sql_type type = { MY_AWAIT, build_await, answer_await };
    struct sql_call *q = hf__sql_call(&type, w);

    if (!q) {
        w->line = 0; /* the safety look finds it */
        return;
    }
    hf__sql_conn_send(&w->conn.c, q);
}

static void greet(struct sql_conn *c)
{
    struct waker *w = container_of(c, struct waker, conn.c);

    hf__link_up(&c->link);
    if (w->line != 0)
        await(w);
}

/* Of a ticket that waits, the first of ours in its line. `front` NULL: nobody to wait for.
 */
static void wait_for(struct mysql *m, const unsigned char *token,
                     const unsigned char *front, int64_t line, int64_t since)
{
    struct waker *w = NULL;

    for (size_t i = 0; i < MY_WAKERS; i++) {
        struct waker *x = &m->wakers[i];

        if (x->line == line) { /* it is waited for */
            x->joined = true;
            memcpy(x->later, token, HF_TOKEN);
            /* an earlier ticket of ours waited for somebody else, who may stand still */
            if (!front || memcmp(x->front, front, HF_TOKEN) != 0)
                look_later(m, token);
            return;
        }
        if (x->line == 0 && (!w || (x->conn.c.up && !w->conn.c.up)))
            w = x;
    }
    if (!w || !front) {
        look_later(m, token);
        return;
    }
    w->line = line;
    w->since = since;
    memcpy(w->token, token, HF_TOKEN);
    memcpy(w->front, front, HF_TOKEN);
    if (w->conn.c.up)
        await(w);
    else
        hf__link_start(&w->conn.c.link);
}

/* ---- what others have revoked ---------------------------------------------------- */

static void build_notices(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    (void)q;
    sql_int(a, mysql_of(s)->noticed);
}

static void answer_notices(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    const int64_t *n = hf__sql_numbers(reply, 1);
    struct mysql *m = mysql_of(s);

    (void)q;
    if (n)
        m->noticed = n[0];
    if (reply && s->up)
        hf__mysql_notices(m);
}

static void notice_fired(struct timer *t)
{
    static const struct sql_type type = { MY_NOTICES, build_notices, answer_notices };
    struct mysql *m = container_of(t, struct mysql, notice_timer);

    if (m->sql.scripted.seats.count == 0 || !m->sql.up)
        m->sql.listens = false; /* until the next one */
    else if (hf__sql_ask(&m->sql, &type, NULL))
        hf__sql_flush(&m->sql.store);
    else
        hf__mysql_notices(m);
}

void hf__mysql_notices(struct mysql *m)
{
    struct env *env = m->sql.store.env;

    env->timer(env, &m->notice_timer, sql_now(&m->sql) + NOTICE_US);
}

void hf__mysql_listen(struct sql *s)
{
    if (s->mode == SQL_LINE)
        hf__mysql_notices(mysql_of(s));
}

/* ---- news ------------------------------------------------------------------------ */

/* "w" TOKEN [FRONT] line since */
static void waits(struct mysql *m, const char *text)
{
    unsigned char token[HF_TOKEN], front[HF_TOKEN];
    char hex[2 * HF_TOKEN + 1], front_hex[2 * HF_TOKEN + 1];
    long long line, since;
    const char *rest = strchr(text, ' ');

    snprintf(hex, sizeof hex, "%.32s", text + 1);
    if (!rest || !hf__unhex(token, sizeof token, hex) ||
        sscanf(rest, " %lld %lld", &line, &since) != 2)
        return;
    snprintf(front_hex, sizeof front_hex, "%.*s",
             (int)(rest - text - 1 - (long)strlen(hex)), text + 1 + strlen(hex));
    wait_for(m, token, hf__unhex(front, sizeof front, front_hex) ? front : NULL, line,
             since);
}

void hf__mysql_news(struct mysql *m, const char *text, size_t len)
{
    char line[160];
    size_t n;

    for (; len > 0; text += n, len -= n) {
        const char *end = memchr(text, '\n', len);

        n = end ? (size_t)(end - text) + 1 : len;
        snprintf(line, sizeof line, "%.*s", (int)(end ? n - 1 : n), text);
        if (line[0] == 'w')
            waits(m, line);
        else
            hf__sql_told(&m->sql, line);
    }
}

/* ---- life ------------------------------------------------------------------------ */

void hf__mysql_wake_init(struct mysql *m)
{
    timer_init(&m->look_timer, look_fired);
    timer_init(&m->notice_timer, notice_fired);
    for (size_t i = 0; i < MY_WAKERS; i++) {
        hf__sql_conn_init(&m->wakers[i].conn.c, &m->sql, greet);
        m->wakers[i].conn.c.limit_ms += 1000 * AWAIT_S;
    }
}

void hf__mysql_wake_done(struct sql *s)
{
    s->store.env->timer(s->store.env, &mysql_of(s)->look_timer, LOOP_NEVER);
    s->store.env->timer(s->store.env, &mysql_of(s)->notice_timer, LOOP_NEVER);
    free(mysql_of(s)->lookers);
}

/* It may have been refused, and others cannot wait for it. */
void hf__mysql_waker_lost(struct sql_conn *c)
{
    struct waker *w = container_of(c, struct waker, conn.c);

    c->link.wanted = false;
    waited(mysql_of(c->sql), w, w->line != 0);
}

/* After UP everybody looks, and is told anew whom to wait for. */
void hf__mysql_wake_down(struct mysql *m, const hf_error *err)
{
    for (size_t i = 0; i < MY_WAKERS; i++) {
        m->wakers[i].conn.c.link.wanted = false;
        m->wakers[i].line = 0;
        m->wakers[i].joined = false;
        hf__link_break(&m->wakers[i].conn.c.link, err);
    }
}
