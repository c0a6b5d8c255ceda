/* grpc.h: one call of gRPC as its client sees it, without the HTTP/2 below it: header
 * blocks and bytes of DATA in, messages and a status out. A codec: it has no socket and no
 * clock, and what comes may be anything.
 *
 * An answer is a header block, any number of messages, and a header block with the status,
 * the trailers; or the status at once ("trailers only"). A message is a byte that says
 * whether it is compressed, its length in four bytes, and itself; where DATA frames begin
 * and end means nothing.
 *
 *   hf__grpc_block      a header block begins           hf__grpc_next   the next message
 *   hf__grpc_header     one header of it
 *   hf__grpc_data       some bytes of DATA
 *   hf__grpc_end        the stream has ended: status and text are decided
 *
 * Refused: a compressed message (we never say that we understand any), one larger than
 * GRPC_MESSAGE_MAX, as soon as its length is known, and more bytes than one such message
 * and a read of the stream can make. A stream that has ended without a status of its own,
 * with one that is no number, or with half a message, was not answered with OK. */
#ifndef HF_PROTO_GRPC_H
#define HF_PROTO_GRPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GRPC_PREFIX = 5, /* in front of each message */
    GRPC_MESSAGE_MAX = 16 << 20,
    GRPC_READ_MAX = 1 << 16, /* bytes between two times that messages are taken */
    GRPC_TEXT_MAX = 256,
    GRPC_TIMEOUT_MAX = 10 /* eight digits, a unit, NUL */
};

#define GRPC_STATUS(X)                                                                     \
    X(OK)                                                                                  \
    X(CANCELLED)                                                                           \
    X(UNKNOWN)                                                                             \
    X(INVALID_ARGUMENT)                                                                    \
    X(DEADLINE_EXCEEDED)                                                                   \
    X(NOT_FOUND)                                                                           \
    X(ALREADY_EXISTS)                                                                      \
    X(PERMISSION_DENIED)                                                                   \
    X(RESOURCE_EXHAUSTED)                                                                  \
    X(FAILED_PRECONDITION)                                                                 \
    X(ABORTED)                                                                             \
    X(OUT_OF_RANGE)                                                                        \
    X(UNIMPLEMENTED)                                                                       \
    X(INTERNAL)                                                                            \
    X(UNAVAILABLE)                                                                         \
    X(DATA_LOSS)                                                                           \
    X(UNAUTHENTICATED)

#define GRPC_NUMBER(name) GRPC_##name,
enum grpc_status { GRPC_STATUS(GRPC_NUMBER) GRPC_STATUSES };
#undef GRPC_NUMBER

/* How a stream of HTTP/2 can end besides by END_STREAM: RST_STREAM with one of these. */
enum grpc_reset {
    GRPC_RESET_NO_ERROR = 0,
    GRPC_RESET_REFUSED = 7,
    GRPC_RESET_CANCEL = 8,
    GRPC_RESET_CALM = 11,
    GRPC_RESET_SECURITY = 12
};

struct grpc_in { /* zeroed: nothing has come */
    unsigned char *buf;
    size_t at, len, room; /* bytes at .. len are not taken */
    int http;             /* :status of the last block; 0: it had none */
    bool seen;            /* a block has come */
    bool grpc;            /* and says that this is gRPC */
    bool has_status;      /* in the last block, and no DATA has followed it */
    bool bad;             /* refused: `status` and `text` say why */
    int status;
    char text[GRPC_TEXT_MAX]; /* grpc-message, percent-decoded; NUL-terminated */
};

struct grpc_message {
    const unsigned char *at;
    size_t len;
};

void hf__grpc_block(struct grpc_in *);
void hf__grpc_header(struct grpc_in *, const void *name, size_t name_len, const void *value,
                     size_t value_len);
int hf__grpc_data(struct grpc_in *, const void *, size_t); /* 0, HF_ENOMEM */
/* True: *ret is valid until hf__grpc_data or hf__grpc_rest. */
bool hf__grpc_next(struct grpc_in *, struct grpc_message *ret);
/* A stream that stays open gives back the memory of a large message that was taken. */
void hf__grpc_rest(struct grpc_in *);
/* reset: by RST_STREAM with `code`; else by END_STREAM */
void hf__grpc_end(struct grpc_in *, bool reset, uint32_t code);
void hf__grpc_done(struct grpc_in *); /* takes a zeroed one */

void hf__grpc_prefix(unsigned char at[GRPC_PREFIX], size_t len);
void hf__grpc_timeout(char ret[GRPC_TIMEOUT_MAX], int64_t ms); /* of grpc-timeout */
const char *hf__grpc_status_name(int status);

#endif
