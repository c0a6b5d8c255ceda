/* jute.h: the wire form of ZooKeeper's messages. A pure codec: bytes in, bytes out.
 *
 * Everything is big-endian: int 4 bytes, long 8, bool 1; strings and buffers are an int
 * length (-1: null) and that many bytes; vectors an int count (-1: null) and their
 * members. A message on the wire is an int length and that many bytes.
 *
 * Reading never goes beyond the end: what is cut short or has an impossible length sets
 * `bad` and gives zeros from then on, so a reader may take a whole message and ask once.
 * Writing fails only without memory; that too is checked once at the end. */
#ifndef HF_PROTO_JUTE_H
#define HF_PROTO_JUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- bytes ----------------------------------------------------------------------- */

struct jute_in {
    const unsigned char *at, *end;
    bool bad;
};

struct jute_text { /* points into the message; not terminated */
    const char *at;
    size_t len;
};

void hf__jute_open(struct jute_in *, const void *, size_t);
int32_t hf__jute_int(struct jute_in *);
int64_t hf__jute_long(struct jute_in *);
bool hf__jute_bool(struct jute_in *);
struct jute_text hf__jute_text(struct jute_in *); /* string or buffer; null is empty */
/* The number of members to follow, none of which is shorter than `least` bytes. */
size_t hf__jute_count(struct jute_in *, size_t least);

struct jute_out {
    unsigned char *buf;
    size_t len, room;
    bool failed; /* no memory */
};

void hf__jute_put_int(struct jute_out *, int32_t);
void hf__jute_put_long(struct jute_out *, int64_t);
void hf__jute_put_bool(struct jute_out *, bool);
void hf__jute_put_text(struct jute_out *, const void *, size_t);
void hf__jute_put_bytes(struct jute_out *, const void *, size_t); /* as they are */

/* A message: `begin` leaves room for its length, which `end` fills in. */
size_t hf__jute_begin(struct jute_out *);
void hf__jute_end(struct jute_out *, size_t begun);

/* The whole length, with its own four bytes, of the message that starts here; 0: four
 * bytes are not there yet; -1: no message of ours is so long, or it is negative. */
enum { JUTE_MESSAGE_MAX = 64 << 20 };
int64_t hf__jute_length(const void *, size_t have);

/* ---- numbers of the protocol ----------------------------------------------------- */

enum jute_op {
    JUTE_CREATE = 1,
    JUTE_DELETE = 2,
    JUTE_EXISTS = 3,
    JUTE_GET_DATA = 4,
    JUTE_SET_DATA = 5,
    JUTE_SYNC = 9,
    JUTE_PING = 11,
    JUTE_GET_CHILDREN2 = 12,
    JUTE_CHECK = 13,
    JUTE_MULTI = 14,
    JUTE_CREATE2 = 15,
    JUTE_CREATE_CONTAINER = 19,
    JUTE_AUTH = 100,
    JUTE_SET_WATCHES = 101,
    JUTE_CLOSE = -11
};

enum { /* xids of what is no request of the caller's */
       JUTE_XID_EVENT = -1,
       JUTE_XID_PING = -2,
       JUTE_XID_AUTH = -4,
       JUTE_XID_WATCHES = -8
};

enum jute_mode {
    JUTE_PERSISTENT = 0,
    JUTE_EPHEMERAL = 1,
    JUTE_EPHEMERAL_SEQUENTIAL = 3,
    JUTE_CONTAINER = 4
};

enum jute_error {
    JUTE_RUNTIME = -2, /* in a multi: another part failed */
    JUTE_UNIMPLEMENTED = -6,
    JUTE_BAD_ARGUMENTS = -8,
    JUTE_NO_NODE = -101,
    JUTE_NO_AUTH = -102,
    JUTE_BAD_VERSION = -103,
    JUTE_NO_CHILDREN = -108, /* the parent is ephemeral */
    JUTE_NODE_EXISTS = -110,
    JUTE_NOT_EMPTY = -111,
    JUTE_EXPIRED = -112,
    JUTE_INVALID_ACL = -114,
    JUTE_AUTH_FAILED = -115,
    JUTE_MOVED = -118,
    JUTE_QUOTA = -125,
    JUTE_THROTTLED = -127
};

enum jute_event { JUTE_CREATED = 1, JUTE_DELETED = 2, JUTE_CHANGED = 3, JUTE_CHILDREN = 4 };

/* ---- messages -------------------------------------------------------------------- */

enum { JUTE_PASSWORD = 16 };

struct jute_session {
    int64_t id;
    unsigned char password[JUTE_PASSWORD];
    int32_t timeout_ms; /* 0 in an answer: there is no such session any more */
};

struct jute_reply {
    int32_t xid, err;
    int64_t zxid; /* 0: none */
    struct jute_in body;
};

struct jute_stat {
    int64_t czxid, mzxid, ctime, mtime, owner, pzxid;
    int32_t version, cversion, children;
};

void hf__jute_put_connect(struct jute_out *, const struct jute_session *,
                          int64_t last_zxid);
bool hf__jute_connected(const void *message, size_t len, struct jute_session *ret);

void hf__jute_put_header(struct jute_out *, int32_t xid, enum jute_op);
void hf__jute_put_create(struct jute_out *, const char *path, size_t path_len,
                         const void *data, size_t len, bool private_, enum jute_mode);
/* The body of a delete, and of a check. -1: whatever the version. */
void hf__jute_put_delete(struct jute_out *, const char *path, size_t path_len,
                         int32_t version);
void hf__jute_put_set(struct jute_out *, const char *path, size_t path_len,
                      const void *data, size_t len, int32_t version);
void hf__jute_put_part(struct jute_out *, enum jute_op); /* of a multi; 0: its end */
void hf__jute_put_auth(struct jute_out *, const char *scheme, const char *login);

bool hf__jute_reply(const void *message, size_t len, struct jute_reply *ret);
bool hf__jute_stat(struct jute_in *, struct jute_stat *);
/* The answer to getData, also an empty one; false: it is an error, or cut. */
bool hf__jute_node(struct jute_reply *, struct jute_text *data, struct jute_stat *);
/* Of a multi: the first part that failed of itself, or 0. */
int32_t hf__jute_multi_error(struct jute_in *);

#endif
