/* grpc.h: a bare connection to an etcd server, for limits that owe nothing to the library:
 * blocking calls of gRPC on nghttp2. */
#ifndef HF_BENCH_GRPC_H
#define HF_BENCH_GRPC_H

#include "bench.h"
#include "stores/link.h"

#include "etcd.pb-c.h"

#include <nghttp2/nghttp2.h>

struct grpc_link {
    int fd;
    nghttp2_session *session;
    bool failed;      /* an answer was no success */
    size_t open;      /* calls that are not answered */
    int answered[64]; /* the slots of those that are, until they are taken */
    size_t n;
    struct grpc_watch *watch;
};

/* One message that comes back on a stream that stays open. */
struct grpc_watch {
    struct grpc_link *link;
    int32_t id;
    unsigned char out[4096], in[65536];
    size_t out_at, out_len, in_len;
    bool idle;
    unsigned created, deleted; /* told, and not used yet */
    int64_t revision;          /* of the last that has come */
};

int grpc_open(struct grpc_link **ret, const struct link_target *);
void grpc_close(struct grpc_link *); /* takes NULL */

/* A call; its slot, 0 to 63, is in `answered` when its answer has come. */
int grpc_call(struct grpc_link *, const char *path, const ProtobufCMessage *, int slot);
/* Sends, and waits until a call is answered or the watch has heard something. */
int grpc_wait(struct grpc_link *);
int grpc_take(struct grpc_link *); /* a slot that is answered; -1: none */
/* The request of a watch, on the one stream of watches. */
int grpc_watch(struct grpc_link *, const Hf__Etcd__WatchRequest *);

#endif
