/* fuzz_etcd.c: what a server of etcd may send: messages of each kind, made of any bytes,
 * are read or refused, and what was read is written again as the same; and a connection
 * that gets frames made of the input: every call is answered exactly once, never inside its
 * sending, and without an answer only after DOWN. The stream is replaced by the harness. */
#include "driver/etcd/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *, size_t);
int __wrap_hf__stream_open(struct stream *, const struct stream_target *, hf_error *);
void __wrap_hf__stream_flush(struct stream *);

enum { CALLS = 64, FRAME = 9 };

static struct {
    struct env env;
    struct list dirty;
    struct etcd_conn c;
    int made, times[CALLS];
    bool sending, is_down;
} w;

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* ---- messages -------------------------------------------------------------------- */

static const ProtobufCMessageDescriptor *const answers[] = {
    &hf__etcd__range_response__descriptor,
    &hf__etcd__put_response__descriptor,
    &hf__etcd__delete_range_response__descriptor,
    &hf__etcd__txn_response__descriptor,
    &hf__etcd__lease_grant_response__descriptor,
    &hf__etcd__lease_revoke_response__descriptor,
    &hf__etcd__status_response__descriptor,
    &hf__etcd__authenticate_response__descriptor,
    &hf__etcd__lease_keep_alive_response__descriptor,
    &hf__etcd__watch_response__descriptor,
};
enum { KINDS = sizeof answers / sizeof *answers };

static void message(const ProtobufCMessageDescriptor *kind, const uint8_t *bytes, size_t n)
{
    ProtobufCMessage *m = protobuf_c_message_unpack(kind, NULL, n, bytes);
    unsigned char *out;
    size_t len;

    if (!m)
        return;
    len = protobuf_c_message_get_packed_size(m);
    out = malloc(len + 1);
    must(out && protobuf_c_message_pack(m, out) == len);
    protobuf_c_message_free_unpacked(m, NULL);
    free(out);
}

/* ---- a connection ---------------------------------------------------------------- */

static int64_t env_now(struct env *e)
{
    (void)e;
    return 1000000;
}

static void env_random(struct env *e, void *buf, size_t n)
{
    (void)e;
    memset(buf, 0, n);
}

static void env_timer(struct env *e, struct timer *t, int64_t at)
{
    (void)e; /* time stands still */
    (void)t;
    (void)at;
}

int __wrap_hf__stream_open(struct stream *s, const struct stream_target *to, hf_error *err)
{
    (void)err;
    s->to = *to;
    s->state = STREAM_CONNECTING;
    return 0;
}

void __wrap_hf__stream_flush(struct stream *s)
{
    s->out_at = s->out_len = 0;
}

struct probe {
    struct etcd_call call;
    int number;
};

static void answered(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    hf_error err;

    must(!w.sending && (a || w.is_down));
    must(!a || (a->status == GRPC_OK) == (a->body != NULL));
    if (!a || !a->body)
        must(hf__etcd_error(c, a, &err) < 0);
    w.times[((struct probe *)q)->number]++;
}

static void ask(enum etcd_rpc rpc, const void *request)
{
    struct etcd_call *q = hf__etcd_call(&w.c, answered, sizeof(struct probe));

    must(q && w.made < CALLS);
    ((struct probe *)q)->number = w.made++;
    w.sending = true;
    hf__etcd_send(&w.c, q, rpc, request);
    w.sending = false;
}

static void watched(struct etcd_conn *c, const Hf__Etcd__WatchResponse *r)
{
    (void)c;
    must(!w.sending && !r->created);
}

static int64_t limit_ms(const struct link *k)
{
    (void)k;
    return 1000;
}

static void greet(struct link *k)
{
    hf__link_up(k);
}

static void down(struct link *k, const hf_error *err)
{
    (void)k;
    must(err->code < 0);
    w.is_down = true;
}

static void lost(struct link *k, const hf_error *err)
{
    (void)err;
    k->wanted = false;
}

static void ask_some(void)
{
    Hf__Etcd__LeaseKeepAliveRequest kq = HF__ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;
    Hf__Etcd__WatchCreateRequest create = HF__ETCD__WATCH_CREATE_REQUEST__INIT;
    Hf__Etcd__WatchRequest wq = HF__ETCD__WATCH_REQUEST__INIT;
    Hf__Etcd__TxnRequest tq = HF__ETCD__TXN_REQUEST__INIT;

    wq.request_case = HF__ETCD__WATCH_REQUEST__REQUEST_CREATE_REQUEST;
    wq.create_request = &create;
    kq.id = 1;
    ask(ETCD_TXN, &tq); /* streams 1, 3, 5, 7 */
    ask(ETCD_KEEP_ALIVE, &kq);
    ask(ETCD_WATCH, &wq);
    ask(ETCD_TXN, &tq);
    ask(ETCD_KEEP_ALIVE, &kq);
    ask(ETCD_WATCH, &wq);
}

static void give(const void *bytes, size_t n)
{
    if (w.c.stream.state == STREAM_UP && n > 0)
        w.c.stream.on->data(&w.c.stream, bytes, n);
}

/* Type, flags, stream and length from the input, then the payload. */
static void frames(const uint8_t *p, size_t n)
{
    static const unsigned char settings[FRAME] = { 0, 0, 0, 4, 0, 0, 0, 0, 0 };
    static const unsigned char block[] = { 0x88, /* :status 200 */
                                           0x0f, 0x10, 16,  'a', 'p', 'p', 'l',
                                           'i',  'c',  'a', 't', 'i', /* content-type */
                                           'o',  'n',  '/', 'g', 'r', 'p', 'c' };

    give(settings, FRAME);
    while (n >= 4) {
        unsigned char frame[FRAME + 256] = { 0 };
        size_t len = p[3] < n - 4 ? p[3] : n - 4;

        frame[2] = (unsigned char)len;
        frame[3] = p[0] % 12;
        frame[4] = p[1];
        frame[8] = p[2] % 10;
        memcpy(frame + FRAME, p + 4, len);
        if (p[0] >= 200) { /* headers of a good beginning */
            frame[2] = sizeof block;
            frame[3] = 1;
            frame[4] = 4 | (p[1] & 1);
            memcpy(frame + FRAME, block, sizeof block);
            give(frame, FRAME + sizeof block);
        } else {
            give(frame, FRAME + len);
        }
        if (p[2] & 128 && w.made < CALLS - 6)
            ask_some();
        p += 4 + len;
        n -= 4 + len;
    }
}

static void connection(const uint8_t *bytes, size_t n)
{
    static const struct link_events events = { limit_ms, greet, down, hf__etcd_unanswered,
                                               lost };
    hf_error err = { .code = HF_EUNREACHABLE };

    memset(&w, 0, sizeof w);
    w.env = (struct env){ .now = env_now, .random = env_random, .timer = env_timer };
    list_init(&w.dirty);
    hf__etcd_conn_init(&w.c, &w.env, &events, &w.dirty, 8000);
    w.c.to = (struct stream_target){ .host = "there", .shown = "there:2379" };
    w.c.watched = watched;
    hf__link_start(&w.c.link);
    w.c.stream.state = STREAM_UP;
    w.c.stream.on->up(&w.c.stream);
    ask_some();
    hf__link_flush(&w.dirty);
    if (n > 0 && bytes[0] % 2)
        give(bytes + 1, n - 1);
    else if (n > 0)
        frames(bytes + 1, n - 1);
    hf__link_drop(&w.c.link, &err);
    hf__link_flush(&w.dirty);
    for (int i = 0; i < w.made; i++)
        must(w.times[i] == 1);
    hf__etcd_conn_done(&w.c);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0)
        return 0;
    if (bytes[0] < KINDS)
        message(answers[bytes[0]], bytes + 1, n - 1);
    else
        connection(bytes + 1, n - 1);
    return 0;
}
