/* session.c: the session: attaching, attaching again, and what counts as proof that it
 * lives.
 *
 *   closed -> opening -> greeting -> settling -> up -> lost -> (next server) -> opening ...
 *
 * Settling: the same session has been attached on this connection, so the servers refuse
 * what an older connection of it may still have on the way (the server closes the old
 * connection; the leader refuses requests of a session that has moved). The watches are
 * set again, which tells what was missed. Then a write is awaited: when it is answered,
 * everything that was ever executed for this session can be seen here. Only then the
 * store is said to be up (G7).
 *
 * G1, the deadline. A server answers pings and reads by itself, also for seconds after
 * the leader has given the session up. A leader answers syncs and takes sessions back by
 * itself, also for seconds after a majority has made another one. So only an answered
 * write counts, which a majority has agreed to: every T/4 one that changes nothing. But
 * even that need not have moved the leader's clock for the session: a follower tells it
 * of the sessions it has heard of with its answer to the leader's next heartbeat, every
 * half tick. So what counts is the sending of a write (base) that another answered write
 * was sent at least T/4 after its answer: T is at least two ticks, so a heartbeat went
 * out between the two, its answer was on the same ordered stream as the second write,
 * and that reached the leader. If there was another leader in between, its
 * clock for the session began after base with all of T: at its election, or when we were
 * attached at its side, without which it would not have taken the second write. The
 * core's deadline is base + T - drift. Making a session counts at once: it is a write,
 * and the leader starts its clock with it.
 *
 * While there is no connection, what is held is at risk; it is held again when the session
 * has been attached in time.
 *
 * The session is over when a server says so (time-out 0, or another number): all tickets
 * are, too. If our own clock says so first, the core lets go of what is held; the nodes
 * are deleted if the session turns out to be alive. A client that is closed ends its
 * session, or its nodes would stay until the time-out. */
#include "driver/zookeeper/zookeeper.h"

#include <string.h>

enum { BACK_OFF_US = 20000, BACK_OFF_MAX_US = 1000000, WATCHES_PER_MESSAGE = 64 << 10 };

/* ---- proof of life --------------------------------------------------------------- */

static int64_t quarter_us(const struct zk *z)
{
    return (int64_t)z->session.timeout_ms * 250;
}

static void tell_alive(struct zk *z)
{
    z->renew_asked = false;
    ev_alive(z->life, z->base_at, z->session.timeout_ms);
}

/* If the base is old, an answer that does not move it would only be asked for again at
 * once: then it waits for the next that does. */
static void tell_if_asked(struct zk *z)
{
    if (z->link == LINK_UP && z->life && z->renew_asked &&
        zk_now(z) - z->base_at < 2 * quarter_us(z))
        tell_alive(z);
}

void hf__zk_session_renewed(struct zk *z, int64_t sent_at)
{
    bool moved = sent_at - z->heard_at >= quarter_us(z);

    if (moved) {
        z->base_at = z->last_at;
        z->last_at = sent_at;
        z->heard_at = zk_now(z);
    }
    if (z->link == LINK_UP && z->life && moved)
        tell_alive(z);
    else
        tell_if_asked(z);
}

/* A write that changes nothing. Also if it fails it has been through a majority, unless it
 * was refused because the session is over. That it was answered is counted for every write
 * (conn.c). */
static void prove(struct zk *z,
                  void (*answer)(struct zk *, struct request *, struct jute_reply *))
{
    static const char top[] = "/";
    struct request *q = hf__zk_request(z, answer, sizeof *q);
    struct jute_out *o;

    if (!q)
        return;
    q->renews = true;
    o = hf__zk_begin(z, q, JUTE_MULTI);
    hf__jute_put_part(o, JUTE_CHECK);
    hf__jute_put_text(o, top, sizeof top - 1);
    hf__jute_put_int(o, -1);
    hf__jute_put_part(o, 0);
    hf__zk_send(z, q);
}

static void heard(struct zk *z, struct request *q, struct jute_reply *reply)
{
    (void)q;
    if (reply)
        tell_if_asked(z);
}

/* A write only if it can move the base; else the answer to anything says that we are
 * heard. */
void hf__zk_session_renew(struct zk *z)
{
    z->renew_asked = true;
    if (zk_now(z) - z->heard_at >= quarter_us(z))
        prove(z, hf__zk_ignore);
    else
        hf__zk_sync(z, z->root, z->root_len, heard);
}

/* Also while nothing is held: the next acquire shall find a session. */
void hf__zk_session_pulse(struct timer *t)
{
    struct zk *z = container_of(t, struct zk, pulse);
    struct env *env = z->store.env;
    int64_t due = z->heard_at + quarter_us(z);

    if (z->link != LINK_UP)
        return;
    hf__ordered_erase_again(&z->ordered);
    if (zk_now(z) >= z->look_at) {
        hf__zk_lines_look_again(z);
        z->look_at = zk_now(z) + 3 * quarter_us(z);
    }
    if (zk_now(z) >= due) {
        prove(z, hf__zk_ignore);
        due = zk_now(z) + quarter_us(z);
    }
    env->timer(env, &z->pulse, due);
    hf__zk_flush(z);
}

/* ---- the end of a session -------------------------------------------------------- */

void hf__zk_session_tidy(struct zk *z)
{
    struct life **at = &z->old;

    while (*at) {
        struct life *l = *at, *next = (struct life *)(uintptr_t)l->drv[0];

        if (l->ntickets > 0) {
            at = (struct life **)(void *)&l->drv[0];
            continue;
        }
        *at = next;
        hf__life_free(l);
    }
}

static void session_over(struct zk *z)
{
    struct life *l = z->life;

    memset(&z->session, 0, sizeof z->session);
    z->life = NULL;
    z->last_zxid = 0;
    hf__zk_lines_over(z, l);
    if (!l)
        return;
    l->drv[0] = (uint64_t)(uintptr_t)z->old;
    z->old = l;
    ev_dead(l);
}

/* ---- ending it ------------------------------------------------------------------- */

static void ended(struct zk *z, struct request *q, struct jute_reply *reply)
{
    (void)q;
    if (reply)
        ev_shut(&z->store); /* else hf__zk_session_down does, or nobody waits any more */
}

/* The server deletes the ephemeral nodes of a session before it answers that the session
 * is closed. One that is just being made is awaited, or it would live until its
 * time-out, as one does that no server has just now. */
void hf__zk_session_end(struct zk *z)
{
    struct env *env = z->store.env;
    struct request *q = NULL;

    z->shut = true;
    env->timer(env, &z->pulse, LOOP_NEVER);
    if (z->link == LINK_GREETING && !z->broken)
        return;
    if (z->link >= LINK_SETTLING && !z->broken)
        q = hf__zk_try_request(ended, sizeof *q);
    if (!q) {
        ev_shut(&z->store);
        return;
    }
    hf__zk_begin(z, q, JUTE_CLOSE);
    hf__zk_send(z, q);
}

/* ---- opening --------------------------------------------------------------------- */

static void try_later(struct zk *z, bool at_once)
{
    struct env *env = z->store.env;
    uint32_t dice;

    if (z->back_off_us == 0)
        z->back_off_us = BACK_OFF_US;
    env->random(env, &dice, sizeof dice);
    env->timer(env, &z->retry,
               at_once ? 0 : zk_now(z) + z->back_off_us / 2 + dice % (z->back_off_us / 2));
    if (!at_once && z->back_off_us < BACK_OFF_MAX_US &&
        z->back_off_us < z->connect_ms * 1000 / 8) /* calls wait for no longer than that */
        z->back_off_us *= 2;
}

void hf__zk_session_start(struct zk *z)
{
    hf_error err;

    if (z->link != LINK_CLOSED || z->stream.state != STREAM_CLOSED)
        return;
    if (hf__zk_conn_open(z, &err) < 0) {
        hf__zk_session_down(z, &err);
        return;
    }
    z->link = LINK_OPENING;
}

void hf__zk_session_retry(struct timer *t)
{
    struct zk *z = container_of(t, struct zk, retry);

    hf__zk_session_start(z);
    hf__zk_flush(z);
}

/* The next server at once, until all have been tried: then with a pause. */
void hf__zk_session_down(struct zk *z, const hf_error *err)
{
    if (z->shut) {
        ev_shut(&z->store);
        return;
    }
    z->store.env->timer(z->store.env, &z->pulse, LOOP_NEVER);
    z->renew_asked = false;
    if (z->life)
        ev_risk(z->life);
    hf__zk_line_down(z);
    z->server = (z->server + 1) % z->nservers;
    z->failed++;
    try_later(z, z->failed < z->nservers);
    ev_store(&z->store, STORE_DOWN, err);
}

void hf__zk_session_greet(struct zk *z)
{
    struct jute_session s = z->session;

    z->link = LINK_GREETING;
    z->greet_at = zk_now(z);
    s.timeout_ms = (int32_t)z->asked_ms;
    z->out.len = 0;
    z->out.failed = false;
    hf__jute_put_connect(&z->out, &s, z->last_zxid);
    if (z->out.failed || hf__stream_write(&z->stream, z->out.buf, z->out.len) < 0)
        hf__zk_break(z, HF_ENOMEM, "no memory for a request");
    hf__zk_expect(z);
}

/* ---- settling -------------------------------------------------------------------- */

static void up(struct zk *z)
{
    struct env *env = z->store.env;

    z->link = LINK_UP;
    z->failed = 0;
    z->back_off_us = 0;
    z->look_at = zk_now(z) + 3 * quarter_us(z);
    env->timer(env, &z->pulse, z->heard_at + quarter_us(z));
    ev_store(&z->store, STORE_UP, NULL);
    hf__zk_line_up(z);
    hf__zk_follow_up(z);
    if (z->life->ntickets == 0)
        return;
    /* held again, when it is known whether somebody has broken something meanwhile */
    z->renew_asked = true;
    hf__zk_sync(z, z->root, z->root_len, heard);
}

static void settled(struct zk *z, struct request *q, struct jute_reply *reply)
{
    hf_error err;

    (void)q;
    if (!reply || z->shut)
        return;
    if (!hf__zk_was_agreed(reply)) {
        int code = hf__zk_error(z, reply, &err);

        hf__zk_break(z, code, "%s", err.text);
        return;
    }
    up(z);
}

static void write_special(struct zk *z)
{
    hf__jute_end(&z->out, 0);
    if (z->out.failed || hf__stream_write(&z->stream, z->out.buf, z->out.len) < 0)
        hf__zk_break(z, HF_ENOMEM, "no memory for a request");
    z->dirty = true;
}

static void begin_special(struct zk *z, int32_t xid, enum jute_op op)
{
    z->out.len = 0;
    z->out.failed = false;
    hf__jute_begin(&z->out);
    hf__jute_put_header(&z->out, xid, op);
}

static void send_auth(struct zk *z)
{
    begin_special(z, JUTE_XID_AUTH, JUTE_AUTH);
    hf__jute_put_auth(&z->out, "digest", z->login);
    write_special(z);
}

/* Some of the data watches, then if there are no more the watches on children. */
static bool put_watches(struct zk *z, struct list **at, size_t *index)
{
    char path[NODE_PATH_MAX];
    size_t counted = z->out.len;
    int32_t n = 0;

    hf__jute_put_int(&z->out, 0);
    for (; *at != &z->ordered.lines; *at = (*at)->next, *index = 0) {
        struct zk_line *line = zk_line_in(*at);

        for (; *index < line->line.n; ++*index) {
            const struct ordered_entry *e = line->line.entries[*index];

            if (z->out.len > WATCHES_PER_MESSAGE)
                break;
            if (e->watch != WATCH_SET)
                continue;
            hf__jute_put_text(&z->out, path, hf__zk_line_path(line, path, e->name, e->len));
            n++;
        }
        if (*index < line->line.n)
            break;
    }
    if (!z->out.failed)
        for (int i = 0; i < 4; i++)
            z->out.buf[counted + (size_t)i] = (unsigned char)((uint32_t)n >> 8 * (3 - i));
    hf__jute_put_int(&z->out, 0); /* watches on what does not exist: none of ours */
    return *at == &z->ordered.lines;
}

static void put_child_watches(struct zk *z)
{
    int32_t n = 0;

    list_for(l, &z->ordered.lines)
        n += zk_line_in(l)->line.watch == WATCH_SET;
    hf__jute_put_int(&z->out, n);
    list_for(l, &z->ordered.lines) {
        struct zk_line *line = zk_line_in(l);

        if (line->line.watch == WATCH_SET)
            hf__jute_put_text(&z->out, line->dir, line->dir_len);
    }
}

static void send_watches(struct zk *z, int64_t since)
{
    struct list *at = z->ordered.lines.next;
    size_t index = 0;
    bool last = list_empty(&z->ordered.lines);

    while (!last && !z->broken) {
        begin_special(z, JUTE_XID_WATCHES, JUTE_SET_WATCHES);
        hf__jute_put_long(&z->out, since);
        last = put_watches(z, &at, &index);
        if (last)
            put_child_watches(z);
        else
            hf__jute_put_int(&z->out, 0);
        write_special(z);
    }
}

void hf__zk_session_auth(struct zk *z, int32_t err)
{
    if (err != 0)
        hf__zk_break(z, HF_EAUTH, "the login was refused");
}

/* A longer time than was asked for would keep a dead owner's place for longer (G5). What
 * is held already is not given up for it. */
static bool too_long(struct zk *z, const struct jute_session *s)
{
    if (s->timeout_ms <= z->asked_ms ||
        (!z->asked_anew && z->life && z->life->ntickets > 0))
        return false;
    hf__zk_break(z, HF_ENOTSUP, "a ttl of %lld ms: the servers give no less than %d ms",
                 (long long)z->asked_ms, s->timeout_ms);
    return true;
}

static bool begin_session(struct zk *z, const struct jute_session *s)
{
    z->life = hf__life_new(&z->store, LIFE_WIDE, s->timeout_ms);
    if (!z->life) {
        hf__zk_break(z, HF_ENOMEM, "no memory for a session");
        return false;
    }
    z->base_at = z->last_at = z->greet_at;
    z->heard_at = zk_now(z);
    return true;
}

void hf__zk_session_greeted(struct zk *z, const void *message, size_t len)
{
    struct jute_session s;
    int64_t since = z->last_zxid;
    bool again = z->session.id != 0;

    if (!hf__jute_connected(message, len, &s)) {
        hf__zk_break(z, HF_EPROTO, "not an answer of ZooKeeper");
        return;
    }
    if (s.timeout_ms <= 0 || s.id == 0 || (again && s.id != z->session.id)) {
        if (again) {
            session_over(z);
            z->failed = 0;
            z->back_off_us = 0; /* that server is there, and takes us with a new one */
        }
        hf__zk_break(z, HF_EUNREACHABLE, "the session is over");
        return;
    }
    if (too_long(z, &s) || (!again && !begin_session(z, &s)))
        return;
    z->session = s;
    z->asked_anew = false;
    z->link = LINK_SETTLING;
    if (z->shut) {
        hf__zk_session_end(z);
        return;
    }
    if (z->login)
        send_auth(z);
    if (again)
        send_watches(z, since);
    else
        tell_alive(z);
    prove(z, settled);
}
