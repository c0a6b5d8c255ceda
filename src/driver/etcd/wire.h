/* wire.h: one connection to a member of etcd: gRPC on HTTP/2 (nghttp2) on a stream of
 * src/net. What may be asked is the table of rpc.c; the messages are those of etcd.proto.
 *
 *   driver   greet, down, lost (kit/link.h), answers, what is watched
 *   rpc.c    messages in, messages out; which answer belongs to which call
 *   wire.c   the session of HTTP/2 as the transport of a link
 *
 * A connection is a link. A unary call is a stream of HTTP/2 of its own, and is answered
 * when that has ended: by its number, in any order (hf__link_matched). Keep-alives and
 * watches are messages on two streams that are opened with the first of them and stay: a
 * keep-alive is a call that the next message about its lease answers, the creation of a
 * watch one that the next `created` answers; the server works through each stream in order.
 * So everything that is asked is a call of the link, and the link's rules hold for all of
 * it: answered exactly once, never inside a send; after a loss DOWN first, then the
 * unanswered; late by the link's limit. If one of the two streams ends, the server cannot
 * tell us of leases or changes any more, and the connection is given up.
 *
 * Rejected: a layer of its own beside link. States, pauses, loss and lateness would stand
 * there a second time; what a connection of gRPC needs beyond order is one function.
 *
 * Deadlines. The server is told the limit of each unary call (grpc-timeout), and if it is
 * alive it answers by then: etcd with UNAVAILABLE, "request timed out", or gRPC below it
 * with DEADLINE_EXCEEDED. Whether the call is carried out later is not known then. A server
 * that does not even do that is late by the link's rule. HTTP/2's PING proves nothing about
 * a member and is not used: etcd closes connections that ping often.
 *
 * The server leaves (GOAWAY): calls that it has accepted are still answered; the link is
 * given up when none is left, or when something new is to be sent. Those that it has not
 * accepted are unanswered then, with the loss. */
#ifndef HF_DRIVER_ETCD_WIRE_H
#define HF_DRIVER_ETCD_WIRE_H

#include "etcd.pb-c.h"
#include "kit/wire.h"
#include "proto/grpc.h"

#include <nghttp2/nghttp2.h>

struct etcd_conn;
struct etcd_call;

enum etcd_rpc { /* request and answer: <Name>Request, <Name>Response of etcd.proto */
                ETCD_RANGE,
                ETCD_PUT,
                ETCD_DELETE_RANGE,
                ETCD_TXN,
                ETCD_LEASE_GRANT,
                ETCD_LEASE_REVOKE,
                ETCD_STATUS,
                ETCD_AUTHENTICATE,
                ETCD_KEEP_ALIVE, /* LeaseKeepAlive */
                ETCD_WATCH /* WatchRequest with a create_request; the answer is `created` */
};

struct etcd_stream {   /* one stream of HTTP/2 */
    struct list fresh; /* conn.fresh: something has come */
    int32_t id;        /* 0: nghttp2 has none */
    struct grpc_in in;
    bool ended;         /* by the server, or with the stream */
    unsigned char *out; /* bytes out_at .. out_len are still to be sent */
    size_t out_at, out_len, out_room;
    bool last; /* nothing follows these: half closed then */
    bool idle; /* nghttp2 has asked, and there was nothing */
};

struct etcd_answer {
    int status;       /* enum grpc_status */
    const char *text; /* what the server says about it */
    const void *body; /* the message, with GRPC_OK only; valid inside the callback */
};

/* NULL: no answer will come. The call is freed when it returns. */
typedef void etcd_answered(struct etcd_conn *, struct etcd_call *,
                           const struct etcd_answer *);

struct etcd_call { /* a driver's own struct starts with it */
    struct link_call call;
    enum etcd_rpc rpc;
    etcd_answered *answer;
    void *with;                /* the driver's own */
    int64_t limit_ms;          /* that the server is told; 0: the link's */
    int64_t lease;             /* of a keep-alive */
    struct list waits;         /* of a keep-alive or a watch: conn.waits */
    struct etcd_stream stream; /* of another; here `out` has the request of each */
};

enum etcd_shared { ETCD_ALIVE, ETCD_WATCHES, ETCD_SHARED };

struct etcd_conn {
    struct link link;
    struct stream stream;
    struct stream_target to; /* connect_ms is the link's; set before hf__link_start */
    /* What is watched: every WatchResponse that does not answer a creation: events (parts
     * of them, with `fragment`), `canceled` (compact_revision, cancel_reason), progress. */
    void (*watched)(struct etcd_conn *, const Hf__Etcd__WatchResponse *);
    nghttp2_session *session; /* NULL: closed */
    struct list fresh;        /* etcd_stream.fresh */
    size_t unary;             /* calls that have a stream of their own */
    bool leaving;             /* GOAWAY has come */
    bool no_memory;           /* in a callback of the session */
    char *token;              /* of Authenticate, sent with everything; NULL: none */
    int64_t ping_at;          /* when the server's ping is answered; 0: it is */
    uint8_t ping[8];          /* what it says */
    struct timer later;       /* armed: something is to be sent then */
    struct etcd_stream shared[ETCD_SHARED];
    struct list waits[ETCD_SHARED]; /* etcd_call.waits, the oldest first */
};

/* The table of events is the driver's, with hf__etcd_unanswered in it. A zeroed conn may be
 * given to hf__etcd_conn_done. */
void hf__etcd_conn_init(struct etcd_conn *, struct env *, const struct link_events *,
                        struct list *dirty, int64_t connect_ms);
void hf__etcd_conn_done(struct etcd_conn *);   /* nothing is told */
void hf__etcd_conn_forked(struct etcd_conn *); /* in the child: closes, tells nobody */
void hf__etcd_unanswered(struct link *, struct link_call *);

int hf__etcd_set_token(struct etcd_conn *, const char *); /* NULL: none. 0, HF_ENOMEM */

/* size: of the driver's struct, zeroed. NULL: no memory; the connection is given up. */
struct etcd_call *hf__etcd_call(struct etcd_conn *, etcd_answered *, size_t size);
/* The request is copied. Takes NULL: what there was no memory to ask for. */
void hf__etcd_send(struct etcd_conn *, struct etcd_call *, enum etcd_rpc,
                   const void *request);
/* Cancels a watch: not a call, and not sent at once. Servers do not answer about a watch
 * that they do not have. */
void hf__etcd_tell_watch(struct etcd_conn *, const Hf__Etcd__WatchRequest *);

/* An answer that is no success, as an error of ours; those of an RPC are its caller's. */
int hf__etcd_error(const struct etcd_conn *, const struct etcd_answer *, hf_error *);

/* ---- between wire.c and rpc.c ------------------------------------------------------ */

const char *hf__etcd_path(enum etcd_rpc);
void hf__etcd_take(struct etcd_conn *, struct etcd_stream *); /* something has come */
void hf__etcd_call_free(struct etcd_call *);

static inline bool hf__etcd_is_shared(const struct etcd_conn *c,
                                      const struct etcd_stream *s)
{
    return s >= c->shared && s < c->shared + ETCD_SHARED;
}
/* The driver has its answer: what the stream still says is nobody's. */
void hf__etcd_detach(struct etcd_conn *, struct etcd_stream *);
int hf__etcd_write(struct etcd_conn *, enum etcd_shared, const void *, size_t);
/* With the next request, or by a timer; the stream is open. */
int hf__etcd_write_later(struct etcd_conn *, enum etcd_shared, const void *, size_t);

#endif
