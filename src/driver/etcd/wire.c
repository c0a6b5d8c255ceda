/* wire.c: a session of HTTP/2 as the transport of a link.
 *
 * Goes well: calls submit requests, a flush makes nghttp2 write its frames into the stream;
 * bytes that come are given to nghttp2, whose callbacks only put headers and data into the
 * etcd_stream that they belong to, and that on `fresh`. When nghttp2 has returned, what is
 * fresh is looked at, and the driver told. So nothing of the driver runs inside nghttp2: it
 * may send, and give the connection up, and the session is never freed below its own feet.
 *
 * Why nghttp2 has no stream of a call that was freed: a call is freed when it was answered
 * (hf__etcd_detach takes the stream's pointer away, and resets what is still open), or when
 * the link is lost, and the session is freed before anybody is told of that. The source of
 * a request's bytes is found by the stream's pointer, too.
 *
 * Windows: everything that comes is taken at once, so nghttp2 gives it back as it comes;
 * they are large so that an answer of some MB does not wait for a round trip per 64 KiB.
 * More streams than the server allows are kept back by nghttp2.
 *
 * Pings: a server of gRPC sends one with whatever it receives, unless one is unanswered, to
 * estimate the bandwidth. Answered at once, each request would be two messages to and fro,
 * and two wake-ups of each side. So the answer waits for PING_US: then a busy connection
 * sees ten of them in a second. One that asks whether we are alive has seconds. What is
 * said about a watch that has ended waits for a moment, too, or for the next request:
 * nobody waits for it, but somebody does for the grant that came with the end.
 *
 * Goes wrong: bytes that are no HTTP/2, or missing memory, give the connection up. */
#include "driver/etcd/wire.h"

#include <stdlib.h>
#include <string.h>

enum {
    STREAM_WINDOW = 1 << 20,
    CONN_WINDOW = 4 << 20,
    OUT_FIRST = 256,
    OUT_KEPT = 4096, /* a larger buffer is given back when it is empty */
    HEADERS = 10,
    PING_US = 100000,
    MOMENT_US = 1000
};

static struct etcd_conn *conn_at(const struct link *k)
{
    return container_of(k, struct etcd_conn, link);
}

/* ---- callbacks of the session ---------------------------------------------------- */

static struct etcd_stream *stream_at(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static void came(struct etcd_conn *c, struct etcd_stream *s)
{
    if (list_empty(&s->fresh))
        list_push(&c->fresh, &s->fresh);
}

static void ended(struct etcd_conn *c, struct etcd_stream *s, bool reset, uint32_t code)
{
    if (s->ended)
        return;
    s->ended = true;
    hf__grpc_end(&s->in, reset, code);
    came(c, s);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame,
                            void *user)
{
    struct etcd_stream *s = stream_at(session, frame->hd.stream_id);

    (void)user;
    if (s)
        hf__grpc_block(&s->in);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame,
                     const uint8_t *name, size_t name_len, const uint8_t *value,
                     size_t value_len, uint8_t flags, void *user)
{
    struct etcd_stream *s = stream_at(session, frame->hd.stream_id);

    (void)flags;
    (void)user;
    if (s)
        hf__grpc_header(&s->in, name, name_len, value, value_len);
    return 0;
}

static int on_chunk(nghttp2_session *session, uint8_t flags, int32_t id,
                    const uint8_t *bytes, size_t n, void *user)
{
    struct etcd_stream *s = stream_at(session, id);
    struct etcd_conn *c = user;

    (void)flags;
    if (!s)
        return 0;
    if (hf__grpc_data(&s->in, bytes, n) < 0) {
        c->no_memory = true;
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    came(c, s);
    return 0;
}

static void send_at(struct etcd_conn *c, int64_t at)
{
    if (!timer_armed(&c->later) || c->later.node.key > at)
        c->link.env->timer(c->link.env, &c->later, at);
}

static int64_t now_of(const struct etcd_conn *c)
{
    return c->link.env->now(c->link.env);
}

static int answer_ping(struct etcd_conn *c)
{
    c->ping_at = 0;
    return nghttp2_submit_ping(c->session, NGHTTP2_FLAG_ACK, c->ping);
}

/* One is kept; a server that does not wait for the answer gets the others at once. */
static int on_ping(struct etcd_conn *c, const nghttp2_ping *ping)
{
    int rc = c->ping_at > 0 ? answer_ping(c) : 0;

    memcpy(c->ping, ping->opaque_data, sizeof c->ping);
    c->ping_at = now_of(c) + PING_US;
    send_at(c, c->ping_at);
    return rc;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct etcd_conn *c = user;
    struct etcd_stream *s;

    if (frame->hd.type == NGHTTP2_GOAWAY)
        c->leaving = true;
    if (frame->hd.type == NGHTTP2_PING && !(frame->hd.flags & NGHTTP2_FLAG_ACK))
        return on_ping(c, &frame->ping);
    if ((frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) ||
        !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    s = stream_at(session, frame->hd.stream_id);
    if (s)
        ended(c, s, false, 0);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    struct etcd_stream *s = stream_at(session, id);
    struct etcd_conn *c = user;

    if (!s)
        return 0;
    s->id = 0;
    if (!c->leaving || code != NGHTTP2_REFUSED_STREAM)
        ended(c, s, true, code);
    else if (!hf__etcd_is_shared(c, s))
        c->unary--; /* the server has not looked at it: unanswered, with the loss */
    return 0;
}

static void drop_out(struct etcd_stream *s)
{
    s->out_at = s->out_len = 0;
    if (s->out_room <= OUT_KEPT)
        return;
    free(s->out);
    s->out = NULL;
    s->out_room = 0;
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t size,
                       uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct etcd_stream *s = stream_at(session, id);
    size_t n;

    (void)source;
    (void)user;
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* detached: it is being reset */
    n = s->out_len - s->out_at;
    if (n == 0 && !s->last) {
        s->idle = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n > size)
        n = size;
    memcpy(buf, s->out + s->out_at, n);
    s->out_at += n;
    if (s->out_at == s->out_len) {
        drop_out(s);
        if (s->last)
            *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return (ssize_t)n;
}

/* ---- requests -------------------------------------------------------------------- */

struct headers {
    nghttp2_nv nv[HEADERS];
    size_t n;
};

/* Both live for as long as the connection is open. */
static void add(struct headers *h, const char *name, const char *value)
{
    h->nv[h->n++] = (nghttp2_nv){
        .name = (uint8_t *)(uintptr_t)name,
        .value = (uint8_t *)(uintptr_t)value,
        .namelen = strlen(name),
        .valuelen = strlen(value),
        .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE,
    };
}

/* Opens a stream. limit_ms 0: it stays open. */
static int submit(struct etcd_conn *c, struct etcd_stream *s, enum etcd_rpc rpc,
                  int64_t limit_ms)
{
    const nghttp2_data_provider source = { .read_callback = on_read };
    struct headers h = { .n = 0 };
    char timeout[GRPC_TIMEOUT_MAX];
    int32_t id;

    add(&h, ":method", "POST");
    add(&h, ":scheme", c->to.tls ? "https" : "http");
    add(&h, ":path", hf__etcd_path(rpc));
    add(&h, ":authority", c->to.shown);
    add(&h, "te", "trailers");
    add(&h, "content-type", "application/grpc");
    add(&h, "user-agent", "holdfast");
    if (rpc != ETCD_STATUS && rpc != ETCD_AUTHENTICATE)
        add(&h, "hasleader", "true"); /* a member that sees none refuses at once */
    if (limit_ms > 0) {
        hf__grpc_timeout(timeout, limit_ms);
        add(&h, "grpc-timeout", timeout);
        h.nv[h.n - 1].flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
    }
    if (c->token && rpc != ETCD_AUTHENTICATE) {
        add(&h, "authorization", c->token);
        h.nv[h.n - 1].flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX;
    }
    id = nghttp2_submit_request(c->session, NULL, h.nv, h.n, &source, s);
    if (id < 0) /* no numbers are left: a new connection has them */
        return id == NGHTTP2_ERR_NOMEM ? HF_ENOMEM : HF_EUNREACHABLE;
    s->id = id;
    return 0;
}

void hf__etcd_detach(struct etcd_conn *c, struct etcd_stream *s)
{
    c->unary--;
    if (s->id == 0)
        return;
    nghttp2_session_set_stream_user_data(c->session, s->id, NULL);
    /* Does nothing to a stream that both sides have closed. If there is no memory for it
     * the stream stays with the session, and harms nobody. */
    nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL);
    hf__link_wrote(&c->link);
}

static int append(struct etcd_stream *s, const void *bytes, size_t n)
{
    size_t room = s->out_room ? s->out_room : OUT_FIRST;
    unsigned char *out;

    while (room - s->out_len < n)
        room *= 2;
    if (room != s->out_room) {
        out = realloc(s->out, room);
        if (!out)
            return HF_ENOMEM;
        s->out = out;
        s->out_room = room;
    }
    memcpy(s->out + s->out_len, bytes, n);
    s->out_len += n;
    return 0;
}

static void resume(struct etcd_conn *c, struct etcd_stream *s)
{
    if (s->idle && s->id != 0)
        nghttp2_session_resume_data(c->session, s->id);
    s->idle = false;
}

int hf__etcd_write(struct etcd_conn *c, enum etcd_shared which, const void *bytes, size_t n)
{
    struct etcd_stream *s = &c->shared[which];
    int rc = append(s, bytes, n);

    if (rc < 0)
        return rc;
    if (s->id == 0 && !s->ended)
        return submit(c, s, which == ETCD_ALIVE ? ETCD_KEEP_ALIVE : ETCD_WATCH, 0);
    resume(c, s);
    return 0;
}

int hf__etcd_write_later(struct etcd_conn *c, enum etcd_shared which, const void *bytes,
                         size_t n)
{
    send_at(c, now_of(c) + MOMENT_US);
    return append(&c->shared[which], bytes, n);
}

static void is_due(struct timer *t)
{
    struct etcd_conn *c = container_of(t, struct etcd_conn, later);

    if (c->ping_at > now_of(c))
        send_at(c, c->ping_at);
    else if (c->ping_at > 0 && answer_ping(c) < 0)
        hf__link_fail(&c->link, HF_ENOMEM, "no memory for an answer");
    resume(c, &c->shared[ETCD_WATCHES]);
    hf__link_wrote(&c->link);
    hf__link_flush(c->link.dirty);
}

/* ---- the transport --------------------------------------------------------------- */

static int send_call(struct link *k, struct link_call *call)
{
    struct etcd_call *q = container_of(call, struct etcd_call, call);
    struct etcd_conn *c = conn_at(k);
    enum etcd_shared which = q->rpc == ETCD_WATCH ? ETCD_WATCHES : ETCD_ALIVE;
    int rc;

    if (!q->stream.out)
        return HF_ENOMEM;
    if (c->leaving)
        return HF_EUNREACHABLE;
    resume(c, &c->shared[ETCD_WATCHES]);
    if (q->rpc != ETCD_WATCH && q->rpc != ETCD_KEEP_ALIVE) {
        rc = submit(c, &q->stream, q->rpc, q->limit_ms ? q->limit_ms : k->on->limit_ms(k));
        c->unary += rc == 0;
        return rc;
    }
    rc = hf__etcd_write(c, which, q->stream.out, q->stream.out_len);
    if (rc == 0)
        list_push(&c->waits[which], &q->waits);
    return rc;
}

/* Tells of everything that has come. */
static void take_fresh(struct etcd_conn *c)
{
    struct list *n;

    while (link_open(&c->link) && (n = list_pop(&c->fresh)) != NULL)
        hf__etcd_take(c, container_of(n, struct etcd_stream, fresh));
    if (c->leaving && c->unary == 0)
        hf__link_fail(&c->link, HF_EUNREACHABLE, "the server is stopping (GOAWAY)");
}

static void session_failed(struct etcd_conn *c, ssize_t rc)
{
    if (rc == NGHTTP2_ERR_NOMEM || c->no_memory)
        hf__link_fail(&c->link, HF_ENOMEM, "no memory for an answer");
    else if (rc < 0 || !nghttp2_session_want_read(c->session))
        hf__link_fail(&c->link, HF_EPROTO, "the server does not speak HTTP/2");
}

static void flush_session(struct link *k)
{
    struct etcd_conn *c = conn_at(k);
    const uint8_t *bytes;
    ssize_t n = 0;
    int rc = 0;

    if (!c->session)
        return;
    while (rc == 0 && (n = nghttp2_session_mem_send(c->session, &bytes)) > 0)
        rc = hf__stream_write(&c->stream, bytes, (size_t)n);
    if (rc < 0)
        hf__link_fail(k, rc, "it takes nothing more");
    take_fresh(c);
    session_failed(c, n);
    hf__stream_flush(&c->stream); /* may end in on_down: the last thing that is done */
}

static void on_data(struct stream *stream, const char *bytes, size_t n)
{
    struct etcd_conn *c = container_of(stream, struct etcd_conn, stream);
    ssize_t rc = nghttp2_session_mem_recv(c->session, (const uint8_t *)bytes, n);

    take_fresh(c);
    session_failed(c, rc);
    hf__link_wrote(&c->link); /* windows, acknowledgements */
    hf__link_flush(c->link.dirty);
}

static void stream_reset(struct etcd_stream *s)
{
    list_remove(&s->fresh);
    hf__grpc_done(&s->in);
    free(s->out);
    memset(s, 0, sizeof *s);
    list_init(&s->fresh);
}

/* Before anybody is told: calls are freed then. */
static void forget(struct etcd_conn *c)
{
    c->link.env->timer(c->link.env, &c->later, LOOP_NEVER);
    nghttp2_session_del(c->session);
    c->session = NULL;
    while (list_pop(&c->fresh))
        ;
    for (int i = 0; i < ETCD_SHARED; i++)
        stream_reset(&c->shared[i]);
    c->unary = 0;
    c->leaving = c->no_memory = false;
    c->ping_at = 0;
}

static int begin_session(struct etcd_conn *c)
{
    const nghttp2_settings_entry settings[] = {
        { NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
        { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW },
    };
    nghttp2_session_callbacks *on;
    nghttp2_option *option;
    int rc = nghttp2_option_new(&option);

    if (rc < 0)
        return rc;
    nghttp2_option_set_no_auto_ping_ack(option, 1);
    rc = nghttp2_session_callbacks_new(&on);
    if (rc < 0) {
        nghttp2_option_del(option);
        return rc;
    }
    nghttp2_session_callbacks_set_on_begin_headers_callback(on, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(on, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(on, on_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(on, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(on, on_close);
    rc = nghttp2_session_client_new2(&c->session, on, c, option);
    nghttp2_session_callbacks_del(on);
    nghttp2_option_del(option);
    if (rc == 0)
        rc = nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings,
                                     sizeof settings / sizeof *settings);
    if (rc == 0)
        rc = nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0,
                                                   CONN_WINDOW);
    return rc;
}

static int open_conn(struct link *k, int64_t ms, hf_error *err)
{
    struct etcd_conn *c = conn_at(k);
    int rc = begin_session(c);

    k->where = c->to.shown;
    c->to.connect_ms = ms;
    if (rc < 0)
        rc = hf__fail(err, HF_ENOMEM, 0, c->to.shown, "no memory for a connection");
    else
        rc = hf__stream_open(&c->stream, &c->to, err);
    if (rc < 0)
        forget(c);
    return rc;
}

static void close_conn(struct link *k)
{
    struct etcd_conn *c = conn_at(k);

    hf__wire_close(k);
    forget(c);
}

static const struct link_transport transport = { open_conn, close_conn, send_call,
                                                 flush_session, hf__wire_read };

static void on_down(struct stream *stream, const hf_error *err)
{
    forget(container_of(stream, struct etcd_conn, stream));
    hf__wire_down(stream, err);
}

static const struct stream_events stream_events = { hf__wire_up, on_data, on_down };

/* ---- life ------------------------------------------------------------------------ */

int hf__etcd_set_token(struct etcd_conn *c, const char *token)
{
    char *copy = token ? strdup(token) : NULL;

    if (token && !copy)
        return HF_ENOMEM;
    if (c->token)
        explicit_bzero(c->token, strlen(c->token));
    free(c->token);
    c->token = copy;
    return 0;
}

void hf__etcd_conn_init(struct etcd_conn *c, struct env *env, const struct link_events *on,
                        struct list *dirty, int64_t connect_ms)
{
    memset(c, 0, sizeof *c);
    list_init(&c->fresh);
    timer_init(&c->later, is_due);
    for (int i = 0; i < ETCD_SHARED; i++) {
        list_init(&c->shared[i].fresh);
        list_init(&c->waits[i]);
    }
    hf__stream_init(&c->stream, env, &stream_events);
    hf__link_init(&c->link, env, &transport, on, dirty, connect_ms);
    hf__wire_join(&c->link, &c->stream);
}

void hf__etcd_conn_done(struct etcd_conn *c)
{
    struct link_call *call;

    if (!c->link.env)
        return;
    hf__link_done(&c->link);
    while ((call = hf__link_take(&c->link)) != NULL)
        hf__etcd_call_free(container_of(call, struct etcd_call, call));
    hf__stream_done(&c->stream);
    hf__etcd_set_token(c, NULL);
}

void hf__etcd_conn_forked(struct etcd_conn *c)
{
    hf__stream_forked(&c->stream);
}
