/* stream.h: one non-blocking byte stream: TCP, a unix socket, TLS over either.
 *
 * States: NEW -> (resolving -> connecting -> shaking hands) -> UP -> CLOSED. Everything
 * that can go wrong ends in one call of on->down, after which the stream is CLOSED, has no
 * descriptor and may be opened again (not from inside on->down: set a timer) or done with.
 * Nothing is called after hf__stream_close or hf__stream_done.
 *
 * Callbacks run in the loop's turn, and on->down also inside hf__stream_flush; never inside
 * hf__stream_open, hf__stream_write. A callback may close its stream.
 *
 * Reading: on->data gets what came; it must take all of it. Writing: hf__stream_write
 * appends to a buffer and fails only without memory (or at WRITE_MAX bytes, a peer that
 * does not read, or when CLOSED); hf__stream_flush sends what it can and waits for room for
 * the rest. What is written before UP is sent then.
 *
 * Deadlines: `connect_ms` covers resolving, connecting and shaking hands together; several
 * addresses share it. Who waits for an answer calls hf__stream_read when its time is over:
 * what has come by then counts as in time, however late that is.
 */
#ifndef HF_NET_STREAM_H
#define HF_NET_STREAM_H

#include "loop/env.h"
#include "util/list.h"

#include <stdbool.h>

struct stream;
struct tls_module;
struct tls_context;

/* What the owner of a stream is told. */
struct stream_events {
    void (*up)(struct stream *);
    void (*data)(struct stream *, const char *, size_t); /* at least one byte */
    /* HF_EUNREACHABLE, HF_ENOMEM; with TLS also HF_EAUTH, and HF_EPROTO: that is no TLS */
    void (*down)(struct stream *, const hf_error *);
};

struct stream_target { /* strings live as long as the stream is open */
    const char *host;  /* a name or an address; NULL with a path */
    uint16_t port;
    const char *path; /* of a unix socket; NULL with a host */
    int64_t connect_ms;
    /* NULL: in the clear; with a path, for the name localhost */
    const struct tls_module *tls;
    struct tls_context *tls_context;
    const char *shown; /* where it goes, for messages: "host:port" */
};

struct addresses;
struct resolve;
struct tls_session;

/* Embedded in the object that uses it. Descriptor and session exist only while it is not
 * CLOSED. */
struct stream {
    struct env *env;
    const struct stream_events *on;
    void *user; /* the owner's own */
    struct stream_target to;
    int state; /* enum stream_state */
    int fd;
    struct watch watch;
    struct timer connect_timer;
    int64_t connect_at; /* when connect_ms is over */
    struct resolve *resolve;
    struct addresses *addresses; /* while it connects */
    struct tls_session *session;
    char *out; /* bytes out_at .. out_len are still to be sent */
    size_t out_at, out_len, out_room;
    bool wipe;    /* what is in there is a secret: overwritten once it is sent */
    bool blocked; /* there was no room for all of it: waits for EPOLLOUT */
    /* the peer takes nothing more: what it said last is still to be read */
    bool broken;
    bool read_wants_write; /* TLS */
    bool write_wants_read;
    bool *gone;    /* in on->data: set when the stream is closed there */
    hf_error last; /* why the address before this one failed, or why it is broken */
};

/* In the order in which a connection comes up; RESOLVING and SHAKING may be left out. */
enum stream_state {
    STREAM_CLOSED,
    STREAM_RESOLVING,
    STREAM_CONNECTING,
    STREAM_SHAKING,
    STREAM_UP
};

/* A zeroed stream may be given to hf__stream_done. */
void hf__stream_init(struct stream *, struct env *, const struct stream_events *);
void hf__stream_done(struct stream *);

/* Starts to connect; the outcome is told by on->up or on->down. 0, or HF_E* with nothing
 * begun. */
int hf__stream_open(struct stream *, const struct stream_target *, hf_error *);
void hf__stream_close(struct stream *);

/* 0, HF_ENOMEM, HF_EUNREACHABLE */
int hf__stream_write(struct stream *, const void *, size_t);
void hf__stream_flush(struct stream *);
void hf__stream_wipe(struct stream *); /* what is written and not sent is a secret */
/* Reads what has come by now, as the loop's turn does: it is given to on->data, or ends in
 * on->down. False: there was nothing. */
bool hf__stream_read(struct stream *);

/* In a forked child: closes descriptors and frees memory without telling the peer anything.
 */
void hf__stream_forked(struct stream *);

#endif
