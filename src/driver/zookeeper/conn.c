/* conn.c: the one connection: the messages of ZooKeeper on a link (kit/link.h), which has
 * the requests that are not answered, in order; events come between the answers.
 *
 * Happy path: a request is built into a buffer of ours and written to the stream; the
 * flush after the core's verbs sends everything in one go; each answer goes to the
 * oldest request. ZooKeeper executes the requests of a session in order, and tells of a
 * change before it answers anything that shows it: what line.c concludes rests on both.
 *
 * Goes wrong: an answer that does not come within a quarter of the session's time, or
 * that is not what was asked for, gives the connection up, and session.c tries the next
 * server. Every request of a lost connection is answered NULL, which is neither yes nor
 * no (G7). */
#include "driver/zookeeper/zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hf__zk_error(const struct zk *z, const struct jute_reply *reply, hf_error *err)
{
    static const struct {
        int32_t err;
        int code;
        const char *text;
    } known[] = {
        { 0, HF_EPROTO, "an answer of an unexpected form" },
        { JUTE_NO_AUTH, HF_EAUTH, "the node's ACL does not allow it" },
        { JUTE_INVALID_ACL, HF_EAUTH, "the login was refused" },
        { JUTE_AUTH_FAILED, HF_EAUTH, "the login was refused" },
        { JUTE_QUOTA, HF_EFULL, "the quota of the node is used up" },
        { JUTE_THROTTLED, HF_EFULL, "the server has too much to do" },
        { JUTE_NO_CHILDREN, HF_EDAMAGED,
          "a level of the path is an ephemeral node of another program" },
        { JUTE_UNIMPLEMENTED, HF_EVERSION, "the server is older than 3.5" },
    };

    if (!reply)
        return hf__fail(err, HF_EUNREACHABLE, 0, z->open.shown, "the connection was lost");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].err == reply->err)
            return hf__fail(err, known[i].code, 0, z->open.shown, "%s", known[i].text);
    return hf__fail(err, HF_EPROTO, 0, z->open.shown, "error %d of the server", reply->err);
}

/* ---- sending --------------------------------------------------------------------- */

struct zk_call *hf__zk_try_request(struct zk *z,
                                   void answer(struct zk_call *, struct jute_reply *),
                                   void *about, const char *name, size_t len)
{
    struct zk_call *q = calloc(1, sizeof *q + len + 1);

    if (!q)
        return NULL;
    q->zk = z;
    q->answer = answer;
    q->about = about;
    q->len = len;
    memcpy(q->name, name, len);
    return q;
}

struct zk_call *hf__zk_request(struct zk *z,
                               void answer(struct zk_call *, struct jute_reply *),
                               void *about, const char *name, size_t len)
{
    struct zk_call *q = hf__zk_try_request(z, answer, about, name, len);

    if (!q)
        hf__zk_break(z, HF_ENOMEM, "no memory for a request");
    return q;
}

struct jute_out *hf__zk_begin_as(struct zk *z, int32_t xid, enum jute_op op)
{
    z->out.len = 0;
    z->out.failed = false;
    hf__jute_begin(&z->out);
    hf__jute_put_header(&z->out, xid, op);
    return &z->out;
}

struct jute_out *hf__zk_begin(struct zk_call *q, enum jute_op op)
{
    struct zk *z = q->zk;

    z->xid = z->xid == INT32_MAX ? 1 : z->xid + 1;
    q->xid = z->xid;
    q->op = op;
    return hf__zk_begin_as(z, q->xid, op);
}

void hf__zk_send(struct zk_call *q)
{
    if (q->op == JUTE_MULTI)
        hf__jute_put_part(&q->zk->out, 0);
    hf__jute_end(&q->zk->out, 0);
    hf__link_send(&q->zk->link, &q->call);
}

void hf__zk_send_path(struct zk_call *q, enum jute_op op, const char *path, size_t len,
                      bool watch)
{
    if (!q)
        return;
    hf__jute_put_text(hf__zk_begin(q, op), path, len);
    if (op != JUTE_SYNC)
        hf__jute_put_bool(&q->zk->out, watch);
    hf__zk_send(q);
}

void hf__zk_send_delete(struct zk_call *q, const char *path, size_t len, int32_t version)
{
    if (!q)
        return;
    hf__jute_put_delete(hf__zk_begin(q, JUTE_DELETE), path, len, version);
    hf__zk_send(q);
}

static void ignore(struct zk_call *q, struct jute_reply *reply)
{
    (void)q;
    (void)reply;
}

void hf__zk_sync(struct zk *z, const char *path, size_t len)
{
    hf__zk_send_path(hf__zk_request(z, ignore, NULL, "", 0), JUTE_SYNC, path, len, false);
}

/* ---- what comes ------------------------------------------------------------------ */

static void take_event(struct zk *z, struct jute_in *body)
{
    int32_t type = hf__jute_int(body);
    struct jute_text path;

    hf__jute_int(body); /* state of the session */
    path = hf__jute_text(body);
    if (body->bad || type < JUTE_CREATED || type > JUTE_CHILDREN)
        return;
    hf__zk_line_event(z, (enum jute_event)type, path.at, path.len);
    hf__zk_follow_event(z, path.at, path.len);
}

/* These answers to a write come from the leader, and a majority has agreed to them. */
bool hf__zk_was_agreed(const struct jute_reply *reply)
{
    return reply->err == 0 || reply->err == JUTE_NO_NODE || reply->err == JUTE_NO_AUTH;
}

static void take_answer(struct zk *z, struct jute_reply *reply)
{
    struct link_call *c = hf__link_oldest(&z->link);
    struct zk_call *q = c ? container_of(c, struct zk_call, call) : NULL;
    int32_t failed = reply->err;

    if (!q || q->xid != reply->xid) {
        hf__zk_break(z, HF_EPROTO, "an answer to nothing that was asked");
        return;
    }
    if (failed == 0 && q->op == JUTE_MULTI) /* what failed of it stands in the body */
        failed = hf__jute_multi_error(&reply->body);
    /* Such an answer proves nothing, and nothing that is asked here will be done. A multi
     * that was refused for it is answered as if it had only failed: all servers do so with
     * a session that is over, those of 3.5 also with one that has moved. */
    if (failed == JUTE_EXPIRED || failed == JUTE_MOVED) {
        hf__zk_break(z, HF_EUNREACHABLE, "the session is over, or elsewhere");
        return; /* it stays unanswered */
    }
    hf__link_answered(&z->link);
    hf__zk_session_answered(z, q, reply);
    reply->err = failed;
    q->answer(q, reply);
    free(q);
}

static void take(struct zk *z, const unsigned char *message, size_t len)
{
    struct jute_reply reply;

    if (z->link.state == LINK_GREETING) {
        hf__zk_session_greeted(z, message, len);
        return;
    }
    if (!hf__jute_reply(message, len, &reply)) {
        hf__zk_break(z, HF_EPROTO, "a cut answer");
        return;
    }
    /* Before UP session.c does it. Of one change there may be several events, which newer
     * servers number, too: it is seen when something that was asked for is answered. */
    if (zk_up(z) && reply.xid != JUTE_XID_EVENT && reply.zxid > z->last_zxid)
        z->last_zxid = reply.zxid;
    switch (reply.xid) {
    case JUTE_XID_EVENT:
        take_event(z, &reply.body);
        break;
    case JUTE_XID_AUTH:
        if (reply.err != 0)
            hf__zk_break(z, HF_EAUTH, "the login was refused");
        break;
    case JUTE_XID_WATCHES:
        break;
    default:
        take_answer(z, &reply);
    }
}

/* ---- the transport --------------------------------------------------------------- */

static struct zk *zk_at(const struct link *k)
{
    return container_of(k, struct zk, link);
}

static void on_data(struct stream *stream, const char *bytes, size_t n)
{
    struct zk *z = container_of(stream, struct zk, stream);
    size_t at = 0;

    hf__jute_put_bytes(&z->in, bytes, n);
    if (z->in.failed)
        hf__zk_break(z, HF_ENOMEM, "no memory for an answer");
    while (link_open(&z->link)) {
        int64_t len = hf__jute_length(z->in.buf + at, z->in.len - at);

        if (len < 0)
            hf__zk_break(z, HF_EPROTO, "not an answer of ZooKeeper");
        if (len <= 0 || (uint64_t)len > z->in.len - at)
            break;
        take(z, z->in.buf + at + 4, (size_t)len - 4);
        at += (size_t)len;
    }
    if (at > 0)
        memmove(z->in.buf, z->in.buf + at, z->in.len - at);
    z->in.len -= at;
    hf__zk_flush(&z->store);
}

static const struct stream_events stream_events = { hf__wire_up, on_data, hf__wire_down };

static int open_stream(struct link *k, int64_t ms, hf_error *err)
{
    struct zk *z = zk_at(k);
    const struct opening_host *s = &z->open.hosts[z->server];
    struct stream_target to = { .host = s->host,
                                .port = s->port,
                                .tls = z->open.tls,
                                .tls_context = z->open.tls_context,
                                .shown = s->shown,
                                .connect_ms = ms };

    k->where = s->shown;
    z->in.len = 0;
    z->in.failed = false;
    return hf__stream_open(&z->stream, &to, err);
}

static int send_request(struct link *k, struct link_call *c)
{
    struct zk *z = zk_at(k);

    (void)c; /* it is the one in z->out */
    return z->out.failed ? HF_ENOMEM : hf__stream_write(&z->stream, z->out.buf, z->out.len);
}

static const struct link_transport transport = { open_stream, hf__wire_close, send_request,
                                                 hf__wire_flush, hf__wire_read };

/* What is held must not be lost for one server that does not answer, and a call that
 * waits for no longer than connect_ms shall have found the one that does. */
static int64_t patience_ms(const struct link *k)
{
    const struct zk *z = zk_at(k);
    int64_t each = z->open.connect_ms / (int64_t)z->open.nhosts,
            quarter = z->session.timeout_ms / 4;

    return z->session.id != 0 && (quarter < each || k->state >= LINK_SETTLING) ? quarter
                                                                               : each;
}

static void unanswered(struct link *k, struct link_call *c)
{
    struct zk_call *q = container_of(c, struct zk_call, call);

    (void)k;
    q->answer(q, NULL);
    free(q);
}

static const struct link_events events = { patience_ms, hf__zk_session_greet,
                                           hf__zk_session_down, unanswered,
                                           hf__zk_session_lost };

void hf__zk_flush(struct store *s)
{
    hf__link_flush(&zk_of(s)->dirty);
    hf__zk_session_tidy(zk_of(s));
}

/* ---- life ------------------------------------------------------------------------ */

void hf__zk_conn_init(struct zk *z)
{
    hf__stream_init(&z->stream, z->store.env, &stream_events);
    hf__link_init(&z->link, z->store.env, &transport, &events, &z->dirty,
                  z->open.connect_ms);
    hf__wire_join(&z->link, &z->stream);
}

void hf__zk_conn_done(struct zk *z)
{
    struct link_call *c;

    hf__link_done(&z->link);
    while ((c = hf__link_take(&z->link)) != NULL)
        unanswered(&z->link, c);
    hf__stream_done(&z->stream);
    free(z->in.buf);
    free(z->out.buf);
}
