/* stream.c: a stream that is up: bytes in, bytes out, and how it ends.
 *
 * Goes well: hf__stream_write gathers, hf__stream_flush makes one send; the answer makes
 * the descriptor readable, one recv takes it, on->data gets it. A round trip is these two
 * system calls: a read that did not fill the buffer has emptied the socket, and if more
 * came meanwhile the loop, which is level-triggered, says so.
 *
 * Goes wrong: every failure ends in hf__stream_down, which first gives everything back
 * and then tells, so that nothing can be told twice. A peer that has closed may have said
 * why in bytes that we have not read (a server that is full, a TLS alert): a failed send
 * therefore does not end the stream, it makes it `broken`; the next turn reads what is
 * there and ends it then.
 *
 * A write to a closed connection must not raise SIGPIPE in the application: MSG_NOSIGNAL
 * here, and the same in the module `tls`.
 */
#include "net/net.h"
#include "util/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    READ_SIZE = 16384,  /* on the stack; the most that a TLS record holds */
    READS_PER_TURN = 8, /* other streams want their turn */
    OUT_FIRST = 4096,
    OUT_KEPT = 65536, /* a larger buffer is given back when it is empty */
    WRITE_MAX = 64 << 20
};

void hf__stream_where(const struct stream *s, hf_error *err)
{
    hf__escape(err->where, sizeof err->where, s->to.shown, strlen(s->to.shown));
}

/* ---- coming and going ------------------------------------------------------------ */

void hf__stream_drop(struct stream *s, bool tell_peer)
{
    if (s->session)
        s->to.tls->end(s->session, tell_peer);
    s->session = NULL;
    if (s->fd < 0)
        return;
    s->env->unwatch(s->env, &s->watch);
    close(s->fd);
    s->fd = -1;
}

static void wipe(struct stream *s)
{
    if (s->wipe && s->out)
        explicit_bzero(s->out, s->out_len);
    s->wipe = false;
}

static void forget(struct stream *s)
{
    free(s->addresses);
    s->addresses = NULL;
    wipe(s);
    free(s->out);
    s->out = NULL;
    s->out_at = s->out_len = s->out_room = 0;
    s->blocked = s->broken = s->read_wants_write = s->write_wants_read = false;
    s->last.code = 0;
    s->state = STREAM_CLOSED;
    if (s->gone)
        *s->gone = true;
    s->gone = NULL;
}

static void end(struct stream *s, bool tell_peer)
{
    if (s->state == STREAM_CLOSED)
        return;
    hf__resolve_cancel(s->resolve);
    s->resolve = NULL;
    hf__stream_drop(s, tell_peer);
    s->env->timer(s->env, &s->connect_timer, LOOP_NEVER);
    forget(s);
}

void hf__stream_close(struct stream *s)
{
    end(s, s->state == STREAM_UP && !s->broken);
}

void hf__stream_down(struct stream *s, const hf_error *why)
{
    hf_error err = *why;

    end(s, false);
    s->on->down(s, &err);
}

static void down_sys(struct stream *s, int sys, const char *what)
{
    hf_error err;

    hf__fail(&err, HF_EUNREACHABLE, sys, s->to.shown, "%s", what);
    hf__stream_down(s, &err);
}

void hf__stream_forked(struct stream *s)
{
    if (s->state == STREAM_CLOSED)
        return;
    hf__resolve_forked(s->resolve);
    s->resolve = NULL;
    if (s->session)
        s->to.tls->end(s->session, false);
    s->session = NULL;
    /* Not unwatched: the epoll instance is still the parent's. */
    if (s->fd >= 0)
        close(s->fd);
    s->fd = s->watch.fd = -1;
    forget(s);
}

int hf__stream_open(struct stream *s, const struct stream_target *to, hf_error *err)
{
    int rc;

    if (s->state != STREAM_CLOSED)
        return hf__fail(err, HF_EBUG, 0, to->shown, "the stream is open already");
    s->to = *to;
    s->connect_at = s->env->now(s->env) + to->connect_ms * 1000;
    rc = hf__connect_begin(s, err);
    if (rc < 0)
        s->state = STREAM_CLOSED;
    return rc;
}

/* ---- the watch ------------------------------------------------------------------- */

static bool rewatch(struct stream *s)
{
    bool write = s->read_wants_write || (s->blocked && !s->write_wants_read);

    if (s->env->watch(s->env, &s->watch, s->fd, EPOLLIN | (write ? EPOLLOUT : 0u)) == 0)
        return true;
    down_sys(s, errno, "cannot wait for the connection");
    return false;
}

/* The next turn reads, whatever the descriptor says. */
static void read_again(struct stream *s)
{
    s->env->timer(s->env, &s->connect_timer, s->env->now(s->env));
}

void hf__stream_up(struct stream *s)
{
    s->state = STREAM_UP;
    free(s->addresses);
    s->addresses = NULL;
    s->last.code = 0;
    s->env->timer(s->env, &s->connect_timer, LOOP_NEVER);
    if (s->session)
        read_again(s); /* the last of the handshake may have brought bytes along */
    s->blocked = s->out_at < s->out_len;
    if (rewatch(s))
        s->on->up(s);
}

/* ---- writing --------------------------------------------------------------------- */

static int make_room(struct stream *s, size_t n)
{
    size_t used = s->out_len - s->out_at, room = s->out_room ? s->out_room : OUT_FIRST;
    char *out;

    if (n > WRITE_MAX || used > WRITE_MAX - n)
        return HF_EUNREACHABLE;
    if (s->out_at < s->out_room / 2)
        room *= 2; /* else many small writes to a slow peer would each move everything */
    if (s->out_at > 0) {
        memmove(s->out, s->out + s->out_at, used);
        if (s->wipe)
            explicit_bzero(s->out + used, s->out_at);
        s->out_at = 0;
        s->out_len = used;
    }
    while (room < used + n)
        room *= 2;
    if (room == s->out_room)
        return 0;
    out = s->wipe ? malloc(room) : realloc(s->out, room);
    if (!out)
        return HF_ENOMEM;
    if (s->wipe) { /* realloc would leave a copy behind */
        memcpy(out, s->out, used);
        explicit_bzero(s->out, s->out_room);
        free(s->out);
    }
    s->out = out;
    s->out_room = room;
    return 0;
}

int hf__stream_write(struct stream *s, const void *data, size_t n)
{
    int rc;

    if (s->state == STREAM_CLOSED)
        return HF_EUNREACHABLE;
    if (s->broken || n == 0)
        return 0; /* as if it were on its way to a peer that is gone */
    if (n > s->out_room - s->out_len) {
        rc = make_room(s, n);
        if (rc < 0)
            return rc;
    }
    memcpy(s->out + s->out_len, data, n);
    s->out_len += n;
    return 0;
}

void hf__stream_wipe(struct stream *s)
{
    s->wipe = s->out_at < s->out_len;
}

static void drop_out(struct stream *s)
{
    wipe(s);
    s->out_at = s->out_len = 0;
    if (s->out_room <= OUT_KEPT)
        return;
    free(s->out);
    s->out = NULL;
    s->out_room = 0;
}

static ssize_t send_plain(const struct stream *s, hf_error *err)
{
    ssize_t n;

    do
        n = send(s->fd, s->out + s->out_at, s->out_len - s->out_at, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return n;
    if (errno == EAGAIN)
        return TLS_WANT_WRITE;
    hf__fail(err, HF_EUNREACHABLE, errno, NULL, "cannot send");
    return TLS_FAILED;
}

static void send_failed(struct stream *s)
{
    s->broken = true;
    s->blocked = s->write_wants_read = false;
    drop_out(s);
    read_again(s);
    rewatch(s);
}

static void send_some(struct stream *s)
{
    ssize_t n;

    s->blocked = s->write_wants_read = false;
    do {
        if (s->session)
            n = s->to.tls->write(s->session, s->out + s->out_at, s->out_len - s->out_at,
                                 &s->last);
        else
            n = send_plain(s, &s->last);
        if (n == TLS_FAILED) {
            hf__stream_where(s, &s->last);
            send_failed(s);
            return;
        }
        if (n > 0)
            s->out_at += (size_t)n;
    } while (n > 0 && s->session && s->out_at < s->out_len); /* a record at a time */
    if (s->out_at == s->out_len) {
        drop_out(s);
    } else {
        s->blocked = true;
        s->write_wants_read = n == TLS_WANT_READ;
    }
    rewatch(s);
}

void hf__stream_flush(struct stream *s)
{
    if (s->state == STREAM_UP && s->out_at < s->out_len && !s->blocked)
        send_some(s);
}

/* ---- reading --------------------------------------------------------------------- */

static ssize_t receive_plain(const struct stream *s, char *buf, size_t size, hf_error *err)
{
    ssize_t n;

    do
        n = recv(s->fd, buf, size, 0);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        return n;
    if (n == 0)
        return TLS_EOF;
    if (errno == EAGAIN)
        return TLS_WANT_READ;
    hf__fail(err, HF_EUNREACHABLE, errno, NULL, "the connection broke");
    return TLS_FAILED;
}

/* Nothing more can be read now: true if that is no reason to end the stream. */
static bool read_ended(struct stream *s, ssize_t n, hf_error *err)
{
    if (n == TLS_WANT_READ || n == TLS_WANT_WRITE) {
        s->read_wants_write = n == TLS_WANT_WRITE;
        return rewatch(s);
    }
    if (n == TLS_EOF)
        hf__fail(err, HF_EUNREACHABLE, 0, NULL, "the peer closed the connection");
    hf__stream_where(s, err);
    hf__stream_down(s, err);
    return false;
}

/* END: leave the stream alone. */
enum read_result { READ_NOTHING, READ_SOMETHING, READ_END };

static enum read_result read_some(struct stream *s)
{
    char buf[READ_SIZE];
    enum read_result result = READ_NOTHING;
    bool gone = false;
    hf_error err;

    for (int i = 0; i < READS_PER_TURN; i++) {
        ssize_t n = s->session ? s->to.tls->read(s->session, buf, sizeof buf, &err)
                               : receive_plain(s, buf, sizeof buf, &err);

        if (n <= 0)
            return read_ended(s, n, &err) ? result : READ_END;
        result = READ_SOMETHING;
        s->gone = &gone;
        s->on->data(s, buf, (size_t)n);
        if (gone)
            return READ_END;
        s->gone = NULL;
        if (!s->session && (size_t)n < sizeof buf)
            return result;
    }
    if (s->session)
        read_again(s); /* what the session has already, the descriptor does not show */
    return result;
}

/* ---- what the loop calls --------------------------------------------------------- */

static void on_event(struct watch *w, uint32_t events)
{
    struct stream *s = container_of(w, struct stream, watch);

    if (s->state != STREAM_UP) {
        hf__connect_step(s);
        return;
    }
    if ((events & ~(uint32_t)EPOLLOUT) || s->read_wants_write)
        if (read_some(s) == READ_END)
            return;
    if (s->blocked && ((events & EPOLLOUT) || s->write_wants_read))
        send_some(s);
}

/* A session may say that there is nothing because its last recv was short, once. */
static enum read_result look(struct stream *s)
{
    enum read_result result = read_some(s);

    return result == READ_NOTHING && s->session ? read_some(s) : result;
}

static void on_connect_timer(struct timer *t)
{
    struct stream *s = container_of(t, struct stream, connect_timer);
    enum read_result result;

    if (s->state != STREAM_UP) {
        hf__connect_late(s);
        return;
    }
    result = look(s);
    if (result == READ_END || !s->broken)
        return;
    if (result == READ_SOMETHING)
        read_again(s);
    else
        hf__stream_down(s, &s->last);
}

bool hf__stream_read(struct stream *s)
{
    return s->state == STREAM_UP && look(s) != READ_NOTHING;
}

void hf__stream_init(struct stream *s, struct env *env, const struct stream_events *on)
{
    memset(s, 0, sizeof *s);
    s->env = env;
    s->on = on;
    s->state = STREAM_CLOSED;
    s->fd = -1;
    watch_init(&s->watch, on_event);
    timer_init(&s->connect_timer, on_connect_timer);
}

void hf__stream_done(struct stream *s)
{
    if (!s->env)
        return;
    end(s, s->state == STREAM_UP && !s->broken);
}
