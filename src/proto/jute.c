/* jute.c: reads and writes ZooKeeper's messages; see jute.h.
 *
 * Goes well: a message is read from its first byte to its last, or written into a buffer
 * that grows. Goes wrong: a length that cannot be sets `bad`, and nothing is read behind
 * the end, whatever a server sends; nothing is allocated for a length that is only
 * announced. */
#include "proto/jute.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------- */

void hf__jute_open(struct jute_in *in, const void *bytes, size_t len)
{
    in->at = bytes;
    in->end = in->at + len;
    in->bad = false;
}

static uint64_t take(struct jute_in *in, size_t bytes)
{
    uint64_t number = 0;

    if (in->bad || (size_t)(in->end - in->at) < bytes) {
        in->bad = true;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++)
        number = number << 8 | *in->at++;
    return number;
}

int32_t hf__jute_int(struct jute_in *in)
{
    return (int32_t)(uint32_t)take(in, 4);
}

int64_t hf__jute_long(struct jute_in *in)
{
    return (int64_t)take(in, 8);
}

bool hf__jute_bool(struct jute_in *in)
{
    return take(in, 1) != 0;
}

struct jute_text hf__jute_text(struct jute_in *in)
{
    int32_t len = hf__jute_int(in);
    struct jute_text text = { "", 0 };

    if (in->bad || len == -1)
        return text;
    if (len < 0 || (size_t)len > (size_t)(in->end - in->at)) {
        in->bad = true;
        return text;
    }
    text.at = (const char *)in->at;
    text.len = (size_t)len;
    in->at += len;
    return text;
}

size_t hf__jute_count(struct jute_in *in, size_t least)
{
    int32_t n = hf__jute_int(in);

    if (in->bad || n == -1)
        return 0;
    if (n < 0 || (size_t)n > (size_t)(in->end - in->at) / least) {
        in->bad = true;
        return 0;
    }
    return (size_t)n;
}

int64_t hf__jute_length(const void *bytes, size_t have)
{
    struct jute_in in;
    int32_t len;

    if (have < 4)
        return 0;
    hf__jute_open(&in, bytes, 4);
    len = hf__jute_int(&in);
    return len < 0 || len > JUTE_MESSAGE_MAX ? -1 : (int64_t)len + 4;
}

/* ---- writing --------------------------------------------------------------------- */

static unsigned char *grow(struct jute_out *out, size_t bytes)
{
    if (out->failed)
        return NULL;
    if (out->room - out->len < bytes) {
        size_t room = out->room ? out->room : 256;
        unsigned char *buf;

        while (room - out->len < bytes)
            room *= 2;
        buf = realloc(out->buf, room);
        if (!buf) {
            out->failed = true;
            return NULL;
        }
        out->buf = buf;
        out->room = room;
    }
    out->len += bytes;
    return out->buf + out->len - bytes;
}

static void store(unsigned char *p, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)(number >> 8 * (bytes - 1 - i));
}

static void put(struct jute_out *out, uint64_t number, size_t bytes)
{
    unsigned char *p = grow(out, bytes);

    if (p)
        store(p, number, bytes);
}

void hf__jute_put_int(struct jute_out *out, int32_t number)
{
    put(out, (uint32_t)number, 4);
}

void hf__jute_put_long(struct jute_out *out, int64_t number)
{
    put(out, (uint64_t)number, 8);
}

void hf__jute_put_bool(struct jute_out *out, bool yes)
{
    put(out, yes, 1);
}

void hf__jute_put_bytes(struct jute_out *out, const void *bytes, size_t len)
{
    unsigned char *p = grow(out, len);

    if (p && len > 0)
        memcpy(p, bytes, len);
}

void hf__jute_put_text(struct jute_out *out, const void *text, size_t len)
{
    hf__jute_put_int(out, (int32_t)len);
    hf__jute_put_bytes(out, text, len);
}

size_t hf__jute_begin(struct jute_out *out)
{
    size_t begun = out->len;

    grow(out, 4);
    return begun;
}

void hf__jute_end(struct jute_out *out, size_t begun)
{
    if (!out->failed)
        store(out->buf + begun, out->len - begun - 4, 4);
}

/* ---- messages -------------------------------------------------------------------- */

void hf__jute_put_connect(struct jute_out *out, const struct jute_session *s,
                          int64_t last_zxid)
{
    size_t begun = hf__jute_begin(out);

    hf__jute_put_int(out, 0); /* version of the protocol */
    hf__jute_put_long(out, last_zxid);
    hf__jute_put_int(out, s->timeout_ms);
    hf__jute_put_long(out, s->id);
    hf__jute_put_text(out, s->password, JUTE_PASSWORD);
    hf__jute_put_bool(out, false); /* a server without the others is of no use */
    hf__jute_end(out, begun);
}

bool hf__jute_connected(const void *message, size_t len, struct jute_session *ret)
{
    struct jute_in in;
    struct jute_text password;

    hf__jute_open(&in, message, len);
    hf__jute_int(&in);
    ret->timeout_ms = hf__jute_int(&in);
    ret->id = hf__jute_long(&in);
    password = hf__jute_text(&in);
    if (in.bad || (ret->timeout_ms > 0 && password.len != JUTE_PASSWORD))
        return false;
    memset(ret->password, 0, JUTE_PASSWORD);
    if (password.len == JUTE_PASSWORD)
        memcpy(ret->password, password.at, JUTE_PASSWORD);
    return true;
}

void hf__jute_put_header(struct jute_out *out, int32_t xid, enum jute_op op)
{
    hf__jute_put_int(out, xid);
    hf__jute_put_int(out, op);
}

static void put_string(struct jute_out *out, const char *text)
{
    hf__jute_put_text(out, text, strlen(text));
}

void hf__jute_put_create(struct jute_out *out, const char *path, size_t path_len,
                         const void *data, size_t len, bool private_, enum jute_mode mode)
{
    enum { ALL_RIGHTS = 31 };

    hf__jute_put_text(out, path, path_len);
    hf__jute_put_text(out, data, len);
    hf__jute_put_int(out, 1);
    hf__jute_put_int(out, ALL_RIGHTS);
    put_string(out, private_ ? "auth" : "world");
    put_string(out, private_ ? "" : "anyone");
    hf__jute_put_int(out, (int32_t)mode);
}

void hf__jute_put_delete(struct jute_out *out, const char *path, size_t path_len,
                         int32_t version)
{
    hf__jute_put_text(out, path, path_len);
    hf__jute_put_int(out, version);
}

void hf__jute_put_set(struct jute_out *out, const char *path, size_t path_len,
                      const void *data, size_t len, int32_t version)
{
    hf__jute_put_text(out, path, path_len);
    hf__jute_put_text(out, data, len);
    hf__jute_put_int(out, version);
}

void hf__jute_put_part(struct jute_out *out, enum jute_op op)
{
    hf__jute_put_int(out, op ? (int32_t)op : -1);
    hf__jute_put_bool(out, op == 0);
    hf__jute_put_int(out, -1);
}

void hf__jute_put_auth(struct jute_out *out, const char *scheme, const char *login)
{
    hf__jute_put_int(out, 0);
    put_string(out, scheme);
    put_string(out, login);
}

bool hf__jute_reply(const void *message, size_t len, struct jute_reply *ret)
{
    hf__jute_open(&ret->body, message, len);
    ret->xid = hf__jute_int(&ret->body);
    ret->zxid = hf__jute_long(&ret->body);
    ret->err = hf__jute_int(&ret->body);
    return !ret->body.bad;
}

bool hf__jute_stat(struct jute_in *in, struct jute_stat *ret)
{
    ret->czxid = hf__jute_long(in);
    ret->mzxid = hf__jute_long(in);
    ret->ctime = hf__jute_long(in);
    ret->mtime = hf__jute_long(in);
    ret->version = hf__jute_int(in);
    ret->cversion = hf__jute_int(in);
    hf__jute_int(in); /* version of its ACL */
    ret->owner = hf__jute_long(in);
    hf__jute_int(in); /* length of its data */
    ret->children = hf__jute_int(in);
    ret->pzxid = hf__jute_long(in);
    return !in->bad;
}

bool hf__jute_node(struct jute_reply *reply, struct jute_text *data, struct jute_stat *stat)
{
    *data = hf__jute_text(&reply->body);
    return reply->err == 0 && hf__jute_stat(&reply->body, stat);
}

/* A failed multi answers one error for each part; that of a part that was only given up
 * with the others is JUTE_RUNTIME, or 0 for those before the one that failed. */
int32_t hf__jute_multi_error(struct jute_in *in)
{
    int32_t type, err, first = 0;

    for (;;) {
        type = hf__jute_int(in);
        if (hf__jute_bool(in) || in->bad)
            break;
        err = hf__jute_int(in);
        if (type != -1)
            return 0; /* the parts of a multi that was done */
        err = hf__jute_int(in);
        if (err != 0 && (first == 0 || first == JUTE_RUNTIME))
            first = err;
    }
    return first;
}
