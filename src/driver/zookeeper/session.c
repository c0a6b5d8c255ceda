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
 * store is said to be up (G7), and only then last_zxid moves: a connection that is lost
 * before may have executed some of the messages with watches only, and the next one must
 * ask for all changes since the last UP.
 *
 * G1, the deadline. The leader expires a session T after it last heard of it (its
 * touchSession). So the core's deadline is base + T - drift, where base is a time of ours
 * that the leader heard of us after. What the servers do, from 3.5 to 3.9 (in brackets
 * where):
 *
 *  a A write does not move the leader's clock: it only checks that the session is known,
 *    not being closed, and owned by the server it comes from [PrepRequestProcessor,
 *    SessionTrackerImpl.checkSession].
 *  b Every request moves the clock of the server that it is sent to, also a read or a ping
 *    [submitRequestNow]. If that is the leader, or the only server, it is the clock that
 *    counts. A follower keeps a list of those it has heard of, and sends it with its answer
 *    to the leader's next heartbeat, every half tick [LearnerSessionTracker, Learner.ping,
 *    Leader.lead, LearnerHandler PING]. An observer behind a follower's observer port needs
 *    two such steps.
 *  c Attaching again asks the leader, who moves its clock [LearnerHandler REVALIDATE,
 *    ZooKeeperServer.revalidateSession]. Making a session starts it there [createSession].
 *  d What a server sends to its leader (c, the answers of b, writes) is one stream, which
 *    the leader handles in order. A server that goes over to another leader, or is leader
 * no more, closes its clients' connections first [Learner.shutdown, Leader.shutdown]. So
 *    there is one leader, L, to one connection of ours.
 *  e A server answers pings and reads by itself, also for seconds after the leader has
 * given the session up. A leader answers syncs and (c) by itself, also for seconds after a
 *    majority has made another one. A write is answered when a majority has agreed to it.
 *  f The T of a session is settled anew each time it is attached, in the memory of the
 *    leader; the log has the T that it was made with, and a server that starts, or becomes
 *    leader, goes by that. So ours never grows: attaching again asks for the T it has, and
 *    if the servers give a longer one, it is not counted on.
 *
 * So only an answered write W is a proof: by d it came by L, which was the leader then, and
 * knew the session (a). If another leader follows, a majority has left L, at least one of
 * them after it agreed to W; the new one starts the clocks of all sessions anew with all
 * of their T (f) after that. So what is to be shown is that L's clock was moved after base.
 *
 *  1 base = greet_at, the sending of the greeting of W's connection. By c and d L had
 *    handled the question for the session before W came to it. Nothing is assumed of times.
 *    The same for a new session.
 *  2 base = the sending of any request P of the same connection whose answer was here T/4
 *    before W was sent, if besides a later request D, a write or a sync, was answered that
 * was sent when W had been answered. The server heard of us between P and its answer (b). L
 *    sent a heartbeat before it agreed to W, both on one ordered stream; so when W was
 *    answered the server had answered the heartbeat, and said that it had heard of us. D
 *    came to L behind that (d). No delay of the network matters; it is assumed that L
 * itself lets no T/4 pass without a heartbeat. Half a tick passes between two, and T is at
 * least two ticks if the servers' minSessionTimeout is as shipped; more ticks, more room.
 *
 * Two such P are kept: `recent`, and `earlier`, whose answer was here T/4 before that of
 * `recent`. With one request every T/4, base is then no older than T/2 and two round trips.
 * While there are tickets, W is sent every T/4 and changes nothing, and D is a sync. While
 * there are none a ping is sent, which is a P: no base is needed then. The create of the
 * next ticket is a W, and D confirms its grant. If even so base would be older than 2 T/3
 * (the process stood still, or its loop was not driven), the session is attached again,
 * which by 1 takes two round trips, before the ticket is made, or the grant confirmed.
 *
 * While there is no connection, what is held is at risk; it is held again when the session
 * has been attached in time.
 *
 * The session is over when a server says so (time-out 0, or another number): all tickets
 * are, too. If our own clock says so first, the core lets go of what is held; the nodes
 * are deleted if the session turns out to be alive. A client that is closed ends its
 * session, or its nodes would stay until the time-out.
 *
 * Servers that were set back (a backup was restored, or their data is gone) take nobody who
 * has seen more than they have: they close without an answer, before they look at the
 * session. So if nobody has answered for T, when nothing is held any more by our own clock,
 * we say that we have seen nothing. Then the session is refused, or it was in the backup.
 * The settling write tells: its number is greater than all that we have seen, or it belongs
 * to another history, and the session, its tickets and its watches do, too: it is over.
 * A server that was only late has caught up when that write is answered. The watches are
 * set after it: before, the server would tell that nodes are gone which it has not made
 * yet. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

enum { WATCHES_PER_MESSAGE = 64 << 10 };

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
    if (zk_up(z) && z->life && z->renew_asked && zk_now(z) - z->base_at < 2 * quarter_us(z))
        tell_alive(z);
}

/* What a write that is sent at this time proves (2), once it is confirmed. */
static int64_t provable(const struct zk *z, int64_t sent_at)
{
    int64_t heard_before = sent_at - quarter_us(z);

    if (z->recent.heard_at <= heard_before)
        return z->recent.sent_at;
    return z->earlier.heard_at <= heard_before ? z->earlier.sent_at : 0;
}

static bool move_base(struct zk *z, int64_t at)
{
    if (at <= z->base_at)
        return false;
    z->base_at = at;
    return true;
}

/* Answered it proves the session alive at the leader; creating a level is not counted. */
static bool is_write(enum jute_op op)
{
    return op == JUTE_CREATE2 || op == JUTE_DELETE || op == JUTE_SET_DATA ||
           op == JUTE_MULTI;
}

void hf__zk_session_answered(struct zk *z, const struct zk_call *q,
                             const struct jute_reply *reply)
{
    int64_t sent_at = q->call.sent_at, now = zk_now(z);
    bool write = is_write(q->op) && hf__zk_was_agreed(reply), moved = false;
    /* the leader answers it, and need not be the leader any more */
    bool sync = q->op == JUTE_SYNC && reply->err == 0;

    if ((write || sync) && sent_at >= z->next.heard_at)
        moved = move_base(z, z->next.sent_at);
    if (write) {
        int64_t next = provable(z, sent_at);

        moved = move_base(z, z->greet_at) || moved;
        if (next > z->next.sent_at)
            z->next = (struct heard){ next, now };
    }
    if (now - z->recent.heard_at >= quarter_us(z)) {
        z->earlier = z->recent;
        z->recent = (struct heard){ sent_at, now };
    }
    if (zk_up(z) && z->life && moved)
        tell_alive(z);
}

/* A hold would be at risk as soon as it was granted. */
static bool stale(const struct zk *z)
{
    int64_t now = zk_now(z), base = provable(z, now);

    if (base < z->next.sent_at)
        base = z->next.sent_at;
    if (base < z->base_at)
        base = z->base_at;
    return now - base > (int64_t)z->session.timeout_ms * 2000 / 3;
}

bool hf__zk_session_attach_if_stale(struct zk *z)
{
    if (!zk_up(z) || !link_open(&z->link) || !stale(z))
        return false;
    z->attach_now = true;
    hf__zk_break(z, HF_EUNREACHABLE, "the session was not kept up");
    return true;
}

/* A write that changes nothing. Also if it fails it has been through a majority, unless it
 * was refused because the session is over. That it was answered is counted for every write
 * (conn.c). */
static void prove(struct zk *z, void answer(struct zk_call *, struct jute_reply *),
                  bool heartbeat)
{
    struct zk_call *q = hf__zk_request(z, answer, NULL, "", 0);
    struct jute_out *o;

    if (!q)
        return;
    q->flag = heartbeat;
    o = hf__zk_begin(q, JUTE_MULTI);
    hf__jute_put_part(o, JUTE_CHECK);
    hf__jute_put_delete(o, "/", 1, -1);
    hf__zk_send(q);
}

static void heartbeat_later(struct zk *z)
{
    struct env *env = z->store.env;

    env->timer(env, &z->heartbeat, z->recent.heard_at + quarter_us(z));
}

static void heard(struct zk_call *q, struct jute_reply *reply)
{
    if (!reply)
        return;
    tell_if_asked(q->zk);
    if (q->flag) {
        q->zk->store.awaits = false;
        heartbeat_later(q->zk);
    }
}

/* The server answers a ping in its turn, as it does any request. */
static void ask(struct zk *z, enum jute_op op, bool heartbeat)
{
    struct zk_call *q = hf__zk_request(z, heard, NULL, "", 0);

    if (!q)
        return;
    q->flag = heartbeat;
    if (op == JUTE_SYNC) {
        hf__zk_send_path(q, JUTE_SYNC, z->root, z->root_len, false);
        return;
    }
    q->xid = JUTE_XID_PING;
    hf__zk_begin_as(z, q->xid, JUTE_PING);
    hf__zk_send(q);
}

static void confirm(struct zk_call *q, struct jute_reply *reply)
{
    if (reply)
        ask(q->zk, JUTE_SYNC, q->flag);
}

/* A write only if it can move the base; else a sync confirms an earlier one, or says at
 * least that we are heard. */
void hf__zk_session_renew(struct zk *z)
{
    z->renew_asked = true;
    if (hf__zk_session_attach_if_stale(z))
        return; /* up() tells */
    if (z->next.sent_at <= z->base_at && provable(z, zk_now(z)) > z->base_at)
        prove(z, confirm, false);
    else
        ask(z, JUTE_SYNC, false);
}

/* Other requests are heard, too: only a write can use that. */
static bool heartbeat_due(const struct zk *z)
{
    int64_t now = zk_now(z);

    return now >= z->recent.heard_at + quarter_us(z) ||
           (z->life->ntickets > 0 && provable(z, now) > z->base_at);
}

/* Also while nothing is held: the next acquire shall find a session. */
void hf__zk_session_heartbeat(struct timer *t)
{
    struct zk *z = container_of(t, struct zk, heartbeat);

    if (!zk_up(z))
        return;
    hf__ordered_erase_again(&z->ordered);
    if (zk_now(z) >= z->look_at) {
        hf__ordered_look_again(&z->ordered);
        hf__zk_alone_up(z);
        z->look_at = zk_now(z) + 3 * quarter_us(z);
    }
    if (!z->store.awaits && heartbeat_due(z)) { /* conn.c has a limit for the answer */
        z->store.awaits = true;
        if (z->life->ntickets > 0)
            prove(z, confirm, true);
        else
            ask(z, JUTE_PING, true);
    } else if (!z->store.awaits) {
        heartbeat_later(z);
    }
    hf__zk_flush(&z->store);
}

/* ---- the end of a session -------------------------------------------------------- */

static void keep_old(struct zk *z, struct life *l)
{
    l->drv[0] = (uint64_t)(uintptr_t)z->old;
    z->old = l;
}

/* A life that tickets still hang on is kept until the core has left them. */
void hf__zk_session_tidy(struct zk *z)
{
    struct life *l = z->old, *next;

    for (z->old = NULL; l; l = next) {
        next = (struct life *)(uintptr_t)l->drv[0];
        if (l->ntickets > 0)
            keep_old(z, l);
        else
            hf__life_free(l);
    }
}

void hf__zk_session_done(struct zk *z)
{
    struct env *env = z->store.env;

    env->timer(env, &z->heartbeat, LOOP_NEVER);
    if (z->life)
        keep_old(z, z->life);
    hf__zk_session_tidy(z);
    explicit_bzero(&z->session, sizeof z->session);
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
    keep_old(z, l);
    ev_dead(l);
}

/* ---- ending it ------------------------------------------------------------------- */

/* Without an answer hf__zk_session_lost tells it, or nobody waits any more. */
static void ended(struct zk_call *q, struct jute_reply *reply)
{
    if (reply)
        ev_shut(&q->zk->store);
}

/* The server deletes the ephemeral nodes of a session before it answers that the session
 * is closed. One that is just being made is awaited, or it would live until its
 * time-out, as one does that no server has just now. */
void hf__zk_session_end(struct store *s)
{
    struct zk *z = zk_of(s);
    struct env *env = s->env;
    struct zk_call *q = NULL;

    z->shut = true;
    z->link.wanted = false;
    env->timer(env, &z->heartbeat, LOOP_NEVER);
    if (link_open(&z->link) && z->link.state == LINK_GREETING)
        return;
    if (link_open(&z->link))
        q = hf__zk_try_request(z, ended, NULL, "", 0);
    if (!q) {
        ev_shut(&z->store);
        return;
    }
    hf__zk_begin(q, JUTE_CLOSE);
    hf__zk_send(q);
}

/* ---- coming and going ------------------------------------------------------------ */

/* Something that is not answered as requests are. */
static void write_out(struct zk *z)
{
    if (z->out.failed || hf__stream_write(&z->stream, z->out.buf, z->out.len) < 0)
        hf__zk_break(z, HF_ENOMEM, "no memory for a request");
    hf__link_wrote(&z->link);
}

/* DOWN before the requests are told that nothing comes: a release that is under way then
 * waits for UP. */
void hf__zk_session_down(struct link *k, const hf_error *err)
{
    struct zk *z = container_of(k, struct zk, link);
    struct env *env = z->store.env;

    z->store.awaits = false;
    if (z->shut)
        return;
    env->timer(env, &z->heartbeat, LOOP_NEVER);
    z->renew_asked = false;
    ev_store(&z->store, STORE_DOWN, err);
    if (z->life)
        ev_risk(z->life);
}

/* A server that ends closes the connections of all its clients in the same moment: they
 * come to the next one spread over some time, which is short beside T and beside what calls
 * wait for. Later tries follow the link's own rule. */
static void choose_time(struct zk *z)
{
    struct env *env = z->store.env;
    int64_t most = z->open.connect_ms * 1000 / 8, us = quarter_us(z) / 8;
    uint32_t dice;

    if (z->attach_now) {
        env->timer(env, &z->link.retry, 0);
    } else if (z->link.failed == 1 && z->session.id != 0) {
        env->random(env, &dice, sizeof dice);
        env->timer(env, &z->link.retry, zk_now(z) + dice % ((us < most ? us : most) + 1));
    }
    z->attach_now = false;
}

void hf__zk_session_lost(struct link *k, const hf_error *err)
{
    struct zk *z = container_of(k, struct zk, link);

    (void)err;
    if (z->shut) {
        ev_shut(&z->store);
        return;
    }
    hf__zk_line_down(z);
    z->server = (z->server + 1) % z->open.nhosts;
    choose_time(z);
}

void hf__zk_session_greet(struct link *k)
{
    struct zk *z = container_of(k, struct zk, link);
    struct jute_session s = z->session;

    z->greet_at = zk_now(z);
    z->seen_nothing =
        z->session.id != 0 && z->greet_at - z->recent.sent_at > 4 * quarter_us(z);
    if (s.id == 0)
        s.timeout_ms = (int32_t)z->asked_ms;
    z->out.len = 0;
    z->out.failed = false;
    hf__jute_put_connect(&z->out, &s, z->seen_nothing ? 0 : z->last_zxid);
    write_out(z);
}

/* ---- settling -------------------------------------------------------------------- */

static void up(struct zk *z)
{
    hf__link_up(&z->link);
    z->look_at = zk_now(z) + 3 * quarter_us(z);
    heartbeat_later(z);
    ev_store(&z->store, STORE_UP, NULL);
    hf__ordered_up(&z->ordered); /* what the watches had to tell has come */
    hf__zk_alone_up(z);
    if (z->life->ntickets == 0) {
        tell_alive(z);
        return;
    }
    /* held again, when it is known whether somebody has broken something meanwhile */
    z->renew_asked = true;
    ask(z, JUTE_SYNC, false);
}

static void send_auth(struct zk *z)
{
    hf__zk_begin_as(z, JUTE_XID_AUTH, JUTE_AUTH);
    hf__jute_put_auth(&z->out, "digest", z->login);
    hf__jute_end(&z->out, 0);
    write_out(z);
    hf__stream_wipe(&z->stream);
    if (z->out.buf)
        explicit_bzero(z->out.buf, z->out.len);
}

/* A message has three lists: watches on the data of nodes, on what does not exist, which we
 * have none of, and on children. Of these one is filled. */
struct watch_list {
    enum { ON_DATA, ON_CHILDREN = 2, LISTS } which;
    int32_t n;
    struct jute_out paths;
};

static void send_watch_list(struct zk *z, struct watch_list *w)
{
    if (w->n == 0)
        return;
    hf__zk_begin_as(z, JUTE_XID_WATCHES, JUTE_SET_WATCHES);
    hf__jute_put_long(&z->out, z->last_zxid);
    for (int i = 0; i < LISTS; i++) {
        hf__jute_put_int(&z->out, i == (int)w->which ? w->n : 0);
        if (i == (int)w->which)
            hf__jute_put_bytes(&z->out, w->paths.buf, w->paths.len);
    }
    hf__jute_end(&z->out, 0);
    z->out.failed = z->out.failed || w->paths.failed;
    write_out(z);
    w->n = 0;
    w->paths.len = 0;
}

/* In messages that are not too long: servers take no more than 1 MiB. */
static void add_watch(struct zk *z, struct watch_list *w, const char *path, size_t len)
{
    hf__jute_put_text(&w->paths, path, len);
    w->n++;
    if (w->paths.len >= WATCHES_PER_MESSAGE)
        send_watch_list(z, w);
}

static void send_watches(struct zk *z)
{
    struct watch_list data = { .which = ON_DATA }, children = { .which = ON_CHILDREN };
    char path[NODE_PATH_MAX];

    list_for(at, &z->ordered.lines) {
        const struct zk_line *line = zk_line_in(at);

        if (line->line.watch == WATCH_SET)
            add_watch(z, &children, line->dir, line->dir_len);
        for (size_t i = 0; i < line->line.n; i++) {
            const struct ordered_entry *e = line->line.entries[i];

            if (e->watch == WATCH_SET)
                add_watch(z, &data, path, hf__zk_line_path(line, path, e->name, e->len));
        }
    }
    send_watch_list(z, &data);
    send_watch_list(z, &children);
    free(data.paths.buf);
    free(children.paths.buf);
}

/* That server is there, and takes us with a new one. */
static void over(struct zk *z, const char *why)
{
    session_over(z);
    hf__link_forgive(&z->link);
    hf__zk_break(z, HF_EUNREACHABLE, "%s", why);
}

static void settled(struct zk_call *q, struct jute_reply *reply)
{
    struct zk *z = q->zk;
    hf_error err;

    if (!reply || z->shut)
        return;
    if (!hf__zk_was_agreed(reply)) {
        int code = hf__zk_error(z, reply, &err);

        hf__zk_break(z, code, "%s", err.text);
    } else if (reply->zxid < z->last_zxid) {
        over(z, "the servers were set back");
    } else if (z->seen_nothing) { /* now it has seen what we have */
        z->seen_nothing = false;
        send_watches(z);
        prove(z, settled, false);
    } else {
        z->last_zxid = reply->zxid;
        up(z);
    }
}

/* A longer time than was asked for would keep a dead owner's place for longer (G5). What
 * is held already is not given up for it. */
static bool too_long(struct zk *z, const struct jute_session *s)
{
    if (s->timeout_ms <= z->asked_ms || (z->life && z->life->ntickets > 0))
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
    z->base_at = z->greet_at;
    return true;
}

void hf__zk_session_greeted(struct zk *z, const void *message, size_t len)
{
    struct jute_session s;
    bool again = z->session.id != 0;

    if (!hf__jute_connected(message, len, &s)) {
        hf__zk_break(z, HF_EPROTO, "not an answer of ZooKeeper");
        return;
    }
    if (s.timeout_ms <= 0 || s.id == 0 || (again && s.id != z->session.id)) {
        if (again)
            over(z, "the session is over");
        else
            hf__zk_break(z, HF_EUNREACHABLE, "no session was given");
        return;
    }
    if (too_long(z, &s) || (!again && !begin_session(z, &s)))
        return;
    if (again && s.timeout_ms > z->session.timeout_ms)
        s.timeout_ms = z->session.timeout_ms; /* f */
    z->session = s;
    hf__link_settle(&z->link);
    z->recent = z->earlier = (struct heard){ z->greet_at, zk_now(z) };
    z->next = (struct heard){ 0, 0 };
    if (z->shut) {
        hf__zk_session_end(&z->store);
        return;
    }
    if (z->login)
        send_auth(z);
    if (!again)
        tell_alive(z);
    else if (!z->seen_nothing)
        send_watches(z);
    prove(z, settled, false);
}
