/* net.h: what the files of src/net share: how a stream comes up (connect.c), where names
 * are looked up (resolve.c), how it goes down (stream.c). */
#ifndef HF_NET_NET_H
#define HF_NET_NET_H

#include "net/stream.h"
#include "net/tls.h"
#include "util/error.h"

#include <sys/socket.h>

/* Large enough for IPv4, IPv6 and unix sockets. */
struct address {
    socklen_t len;
    struct sockaddr_storage at;
};

/* All that a name stands for, tried in turn until one of them connects. */
struct addresses {
    size_t n, next; /* next: the first that has not been tried */
    struct address a[];
};

/* ---- stream.c -------------------------------------------------------------------- */

/* Closes the stream and tells; the last thing that is done with it. `why` may be in the
 * stream. */
void hf__stream_down(struct stream *, const hf_error *why);
void hf__stream_drop(struct stream *, bool tell_peer); /* session and descriptor */
void hf__stream_up(struct stream *);
void hf__stream_where(const struct stream *, hf_error *); /* adds the peer to the error */

/* ---- connect.c ------------------------------------------------------------------- */

int hf__connect_begin(struct stream *, hf_error *); /* 0, or HF_E* with nothing begun */
void hf__connect_step(struct stream *);             /* its descriptor is ready */
void hf__connect_late(struct stream *);             /* its timer has fired */

/* ---- resolve.c ------------------------------------------------------------------- */

/* A numeric address at once. 0, HF_ENOENT: it is a name; HF_ENOMEM. */
int hf__resolve_numeric(struct addresses **, const char *host, uint16_t port);

/* A name, on a thread; `done` is called in the loop's turn, once, with addresses that are
 * its to free, or with NULL and why. 0, or HF_E* with nothing begun. */
typedef void resolve_done(void *user, struct addresses *, const hf_error *);
int hf__resolve_begin(struct resolve **, struct env *, const char *host, uint16_t port,
                      resolve_done *, void *user, hf_error *);
void hf__resolve_cancel(struct resolve *); /* takes NULL; not after `done` */
void hf__resolve_forked(struct resolve *); /* takes NULL */

#endif
