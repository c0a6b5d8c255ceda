/* grpc.c: see grpc.h. What an answer says is not read, but for whether it is a success: the
 * limit is what the server and the kernel need. */
#include "stores/link.h"

#include "stores/grpc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PREFIX = 5, HEADERS = 6 };

struct call {
    unsigned char *out;
    size_t at, len;
    int slot;
};

/* ---- callbacks ------------------------------------------------------------------- */

static ssize_t read_call(nghttp2_session *s, int32_t id, uint8_t *buf, size_t size,
                         uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct call *c = source->ptr;
    size_t n = c->len - c->at < size ? c->len - c->at : size;

    (void)s, (void)id, (void)user;
    memcpy(buf, c->out + c->at, n);
    c->at += n;
    if (c->at == c->len)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static ssize_t read_watch(nghttp2_session *s, int32_t id, uint8_t *buf, size_t size,
                          uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct grpc_watch *w = source->ptr;
    size_t n = w->out_len - w->out_at;

    (void)s, (void)id, (void)user, (void)flags;
    if (n == 0) {
        w->idle = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n > size)
        n = size;
    memcpy(buf, w->out + w->out_at, n);
    w->out_at += n;
    if (w->out_at == w->out_len)
        w->out_at = w->out_len = 0;
    return (ssize_t)n;
}

static int on_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct grpc_link *k = user;

    (void)s, (void)frame, (void)flags;
    if (name_len == 11 && memcmp(name, "grpc-status", 11) == 0 &&
        (value_len != 1 || value[0] != '0'))
        k->failed = true;
    return 0;
}

/* Whole messages of the watch. */
static void take_watch(struct grpc_watch *w)
{
    size_t at = 0;

    while (w->in_len - at >= PREFIX) {
        const unsigned char *p = w->in + at;
        size_t len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
        Hf__Etcd__WatchResponse *r;

        if (w->in_len - at < PREFIX + len)
            break;
        r = hf__etcd__watch_response__unpack(NULL, len, p + PREFIX);
        if (r) {
            w->created += r->created != 0;
            for (size_t i = 0; i < r->n_events; i++)
                w->deleted += r->events[i]->type == HF__ETCD__EVENT__EVENT_TYPE__DELETE;
            w->revision = r->header ? r->header->revision : 0;
            hf__etcd__watch_response__free_unpacked(r, NULL);
        }
        at += PREFIX + len;
    }
    memmove(w->in, w->in + at, w->in_len - at);
    w->in_len -= at;
}

static int on_chunk(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *bytes,
                    size_t n, void *user)
{
    struct grpc_link *k = user;

    (void)s, (void)flags;
    if (!k->watch || k->watch->id != id)
        return 0;
    if (n > sizeof k->watch->in - k->watch->in_len)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    memcpy(k->watch->in + k->watch->in_len, bytes, n);
    k->watch->in_len += n;
    take_watch(k->watch);
    return 0;
}

static int on_close(nghttp2_session *s, int32_t id, uint32_t code, void *user)
{
    struct call *c = nghttp2_session_get_stream_user_data(s, id);
    struct grpc_link *k = user;

    if (!c)
        return 0;
    k->failed = k->failed || code != 0;
    k->open--;
    k->answered[k->n++ % 64] = c->slot;
    free(c->out);
    free(c);
    return 0;
}

/* ---- calls ----------------------------------------------------------------------- */

static int no_memory(void)
{
    cli_say("out of memory");
    return EXIT_SYSTEM;
}

static int32_t submit(struct grpc_link *k, const char *path, nghttp2_data_provider *from,
                      void *user)
{
    static const char *const names[HEADERS] = { ":method",    ":scheme", ":path",
                                                ":authority", "te",      "content-type" };
    const char *values[HEADERS] = { "POST",      "http",     path,
                                    "localhost", "trailers", "application/grpc" };
    nghttp2_nv nv[HEADERS];

    for (int i = 0; i < HEADERS; i++)
        nv[i] =
            (nghttp2_nv){ (uint8_t *)(uintptr_t)names[i], (uint8_t *)(uintptr_t)values[i],
                          strlen(names[i]), strlen(values[i]), NGHTTP2_NV_FLAG_NONE };
    return nghttp2_submit_request(k->session, NULL, nv, HEADERS, from, user);
}

static size_t pack(const ProtobufCMessage *m, unsigned char *to)
{
    size_t len = protobuf_c_message_pack(m, to + PREFIX);

    to[0] = 0;
    for (int i = 0; i < 4; i++)
        to[1 + i] = (unsigned char)(len >> 8 * (3 - i));
    return PREFIX + len;
}

int grpc_call(struct grpc_link *k, const char *path, const ProtobufCMessage *m, int slot)
{
    struct call *c = calloc(1, sizeof *c);
    nghttp2_data_provider from = { .source = { .ptr = c }, .read_callback = read_call };

    if (c)
        c->out = malloc(PREFIX + protobuf_c_message_get_packed_size(m));
    if (!c || !c->out) {
        free(c);
        return no_memory();
    }
    c->len = pack(m, c->out);
    c->slot = slot;
    k->open++;
    return submit(k, path, &from, c) < 0 ? no_memory() : 0;
}

int grpc_watch(struct grpc_link *k, const Hf__Etcd__WatchRequest *r)
{
    struct grpc_watch *w = k->watch;
    nghttp2_data_provider from = { .read_callback = read_watch };

    if (!w) {
        w = k->watch = calloc(1, sizeof *w);
        if (!w)
            return no_memory();
        w->link = k;
        from.source.ptr = w;
        w->id = submit(k, "/etcdserverpb.Watch/Watch", &from, NULL);
    }
    if (PREFIX + protobuf_c_message_get_packed_size(&r->base) > sizeof w->out - w->out_len)
        return link_broken("a watch");
    w->out_len += pack(&r->base, w->out + w->out_len);
    if (w->idle)
        nghttp2_session_resume_data(k->session, w->id);
    w->idle = false;
    return 0;
}

static int flush(struct grpc_link *k)
{
    const uint8_t *bytes;
    ssize_t n;
    int status = 0;

    while (status == 0 && (n = nghttp2_session_mem_send(k->session, &bytes)) > 0)
        status = link_send(k->fd, bytes, (size_t)n);
    return status;
}

int grpc_wait(struct grpc_link *k)
{
    size_t before = k->n, n;
    unsigned heard = k->watch ? k->watch->created + k->watch->deleted : 0;
    unsigned char in[65536];
    int status = flush(k);

    while (status == 0 && k->n == before &&
           (!k->watch || k->watch->created + k->watch->deleted == heard)) {
        status = link_more(k->fd, in, sizeof in, &n);
        if (status == 0 && nghttp2_session_mem_recv(k->session, in, n) < 0)
            status = link_broken("the server");
        if (status == 0)
            status = flush(k);
        if (status == 0 && k->failed)
            status = link_broken("an answer of the server");
    }
    return status;
}

int grpc_take(struct grpc_link *k)
{
    return k->n > 0 ? k->answered[--k->n] : -1;
}

/* ---- opening --------------------------------------------------------------------- */

int grpc_open(struct grpc_link **ret, const struct link_target *to)
{
    struct grpc_link *k = *ret = calloc(1, sizeof *k);
    nghttp2_session_callbacks *on;
    int status;

    if (!k || nghttp2_session_callbacks_new(&on) != 0)
        return no_memory();
    k->fd = -1;
    nghttp2_session_callbacks_set_on_header_callback(on, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(on, on_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(on, on_close);
    status = nghttp2_session_client_new(&k->session, on, k) == 0 ? 0 : no_memory();
    nghttp2_session_callbacks_del(on);
    if (status == 0)
        nghttp2_submit_settings(k->session, NGHTTP2_FLAG_NONE, NULL, 0);
    return status ? status : link_open(to, &k->fd);
}

void grpc_close(struct grpc_link *k)
{
    if (!k)
        return;
    nghttp2_session_del(k->session);
    if (k->fd >= 0)
        close(k->fd);
    free(k->watch);
    free(k);
}
