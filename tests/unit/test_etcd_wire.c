/* test_etcd_wire.c: the connection to etcd under a server that does what the test says,
 * frame by frame: answers in any order and in any pieces, streams that are reset, GOAWAY,
 * windows, too few streams, and things that no server should send. Every call is answered
 * exactly once, never inside its sending, and after a loss only after DOWN. */
#include "driver/etcd/wire.h"
#include "fake_clock.h"
#include "net/net.h"
#include "unit.h"

#include <stdbool.h>

enum { CALLS = 64, SENT_MAX = 4 << 20, IDS = 256, LIMIT_MS = 1000 };
enum { DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4 };

int __wrap_hf__stream_open(struct stream *, const struct stream_target *, hf_error *);
void __wrap_hf__stream_flush(struct stream *);
bool __wrap_hf__stream_read(struct stream *);
void *__real_malloc(size_t);
void *__wrap_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__wrap_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__wrap_realloc(void *, size_t);

struct probe { /* a call of the test */
    struct etcd_call call;
    int number;
};

static struct {
    struct list dirty;
    struct etcd_conn c;
    bool sending;
    int made, times[CALLS], status[CALLS]; /* status -1: no answer */
    char text[CALLS][128];
    int64_t value[CALLS]; /* of the answer: a revision, a ttl, an id of a watch */
    int again;            /* answers that ask again, inside */
    int downs, losses, before_down, with_losses, events, canceled;
    hf_error why;
    /* what the client has sent */
    unsigned char in[SENT_MAX];
    size_t in_at, in_len;
    nghttp2_hd_inflater *inflater;
    char asked[IDS][512]; /* its headers, by stream */
    size_t bodies[IDS], resets[IDS], windows[IDS], ended[IDS], opened, pings, acks;
    int32_t order[CALLS]; /* streams as they were opened */
    /* what is to be sent to it */
    unsigned char *out;
    size_t out_len;
    bool byte_by_byte;
    int fail_alloc; /* n > 0: the n-th allocation fails */
} w;

/* ---- the world ------------------------------------------------------------------- */

static bool fails(void)
{
    return w.fail_alloc > 0 && --w.fail_alloc == 0;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *at, size_t n)
{
    return fails() ? NULL : __real_realloc(at, n);
}

static void env_random(struct env *e, void *buf, size_t n)
{
    (void)e;
    memset(buf, 0, n);
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
    size_t n = s->out_len - s->out_at;

    assert_true(n <= sizeof w.in - w.in_len);
    if (n > 0)
        memcpy(w.in + w.in_len, s->out + s->out_at, n);
    w.in_len += n;
    s->out_at = s->out_len = 0;
}

bool __wrap_hf__stream_read(struct stream *s)
{
    (void)s;
    return false;
}

/* ---- the server: what it was sent ------------------------------------------------ */

static size_t number(const unsigned char *p, int bytes)
{
    size_t n = 0;

    while (bytes-- > 0)
        n = n << 8 | *p++;
    return n;
}

static void inflate(char *text, const unsigned char *p, size_t n)
{
    nghttp2_nv nv;
    int flags = 0;
    size_t len = 0;

    do {
        ssize_t used = nghttp2_hd_inflate_hd2(w.inflater, &nv, &flags, p, n, 1);

        assert_true(used >= 0);
        p += used;
        n -= (size_t)used;
        if (flags & NGHTTP2_HD_INFLATE_EMIT)
            len += (size_t)snprintf(text + len, 512 - len, "%s=%s\n", (char *)nv.name,
                                    (char *)nv.value);
    } while (!(flags & NGHTTP2_HD_INFLATE_FINAL));
    nghttp2_hd_inflate_end_headers(w.inflater);
}

static void take_frame(int type, int flags, size_t id, const unsigned char *p, size_t n)
{
    assert_true(id < IDS);
    switch (type) {
    case HEADERS:
        assert_true(flags & END_HEADERS);
        inflate(w.asked[id], p, n);
        w.order[w.opened++] = (int32_t)id;
        break;
    case DATA:
        w.bodies[id] += n;
        break;
    case RST:
        w.resets[id]++;
        break;
    case WINDOW:
        w.windows[id] += number(p, 4);
        break;
    case PING:
        w.pings += !(flags & ACK);
        w.acks += !!(flags & ACK);
        break;
    }
    if ((type == HEADERS || type == DATA) && (flags & END_STREAM))
        w.ended[id]++;
}

/* Everything that the client has to send is sent, and read. */
static void settle(void)
{
    hf__link_flush(&w.dirty);
    if (w.in_at == 0 && w.in_len >= 24) {
        assert_memory_equal(w.in, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
        w.in_at = 24;
    }
    while (w.in_len - w.in_at >= 9) {
        const unsigned char *p = w.in + w.in_at;
        size_t n = number(p, 3);

        if (n > w.in_len - w.in_at - 9)
            break;
        take_frame(p[3], p[4], number(p + 5, 4), p + 9, n);
        w.in_at += 9 + n;
    }
}

static bool was_sent(size_t i, const char *line)
{
    settle();
    return strstr(w.asked[w.order[i]], line) != NULL;
}

/* ---- the server: what it sends --------------------------------------------------- */

static void raw(const void *bytes, size_t n)
{
    w.out = __real_realloc(w.out, w.out_len + n + 1);
    memcpy(w.out + w.out_len, bytes, n);
    w.out_len += n;
}

static void frame(int type, int flags, int32_t id, const void *payload, size_t n)
{
    unsigned char head[9] = { (unsigned char)(n >> 16),
                              (unsigned char)(n >> 8),
                              (unsigned char)n,
                              (unsigned char)type,
                              (unsigned char)flags,
                              0,
                              0,
                              (unsigned char)(id >> 8),
                              (unsigned char)id };

    raw(head, sizeof head);
    raw(payload, n);
}

/* "name=value\n..." as literals that are not indexed */
static void headers(int32_t id, const char *lines, int flags)
{
    unsigned char block[1024];
    size_t n = 0;

    for (const char *at = lines; *at; at += strcspn(at, "\n") + 1) {
        size_t name = strcspn(at, "="), value = strcspn(at, "\n") - name - 1;

        block[n++] = 0;
        block[n++] = (unsigned char)name;
        memcpy(block + n, at, name);
        n += name;
        block[n++] = (unsigned char)value;
        memcpy(block + n, at + name + 1, value);
        n += value;
    }
    frame(HEADERS, flags | END_HEADERS, id, block, n);
}

#define BEGIN ":status=200\ncontent-type=application/grpc\n"

/* Gives the client what was written. */
static void deliver(void)
{
    unsigned char *out = w.out;
    size_t n = w.out_len, step = w.byte_by_byte ? 1 : 16384;

    w.out = NULL;
    w.out_len = 0;
    for (size_t at = 0; at < n && w.c.stream.state == STREAM_UP; at += step)
        w.c.stream.on->data(&w.c.stream, (char *)out + at, n - at < step ? n - at : step);
    free(out);
    settle();
}

/* A message of `size` bytes, with its prefix, in frames of at most 16 KiB. */
static void body(int32_t id, const ProtobufCMessage *m)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    unsigned char *bytes = __real_malloc(GRPC_PREFIX + n);

    hf__grpc_prefix(bytes, n);
    protobuf_c_message_pack(m, bytes + GRPC_PREFIX);
    for (size_t at = 0; at < GRPC_PREFIX + n; at += 16384)
        frame(DATA, 0, id, bytes + at,
              GRPC_PREFIX + n - at < 16384 ? GRPC_PREFIX + n - at : 16384);
    free(bytes);
}

static void put_answer(int32_t id, int64_t revision)
{
    Hf__Etcd__ResponseHeader header = HF__ETCD__RESPONSE_HEADER__INIT;
    Hf__Etcd__PutResponse r = HF__ETCD__PUT_RESPONSE__INIT;

    header.revision = revision;
    r.header = &header;
    headers(id, BEGIN, 0);
    body(id, &r.base);
    headers(id, "grpc-status=0\n", END_STREAM);
}

static void alive_answer(int32_t id, int64_t lease, int64_t ttl)
{
    Hf__Etcd__LeaseKeepAliveResponse r = HF__ETCD__LEASE_KEEP_ALIVE_RESPONSE__INIT;

    r.id = lease;
    r.ttl = ttl;
    body(id, &r.base);
}

static void watch_answer(int32_t id, int64_t watch, bool created, bool canceled)
{
    Hf__Etcd__WatchResponse r = HF__ETCD__WATCH_RESPONSE__INIT;

    r.watch_id = watch;
    r.created = created;
    r.canceled = canceled;
    body(id, &r.base);
}

/* ---- the client ------------------------------------------------------------------ */

static int ask(enum etcd_rpc rpc, const void *request);

static int put_of(size_t size)
{
    static uint8_t value[300000];
    Hf__Etcd__PutRequest q = HF__ETCD__PUT_REQUEST__INIT;

    q.key.data = value;
    q.key.len = size;
    return ask(ETCD_PUT, &q);
}

static int put(void)
{
    return put_of(10);
}

static int keep_alive(int64_t lease)
{
    Hf__Etcd__LeaseKeepAliveRequest q = HF__ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;

    q.id = lease;
    return ask(ETCD_KEEP_ALIVE, &q);
}

static int watch(void)
{
    Hf__Etcd__WatchCreateRequest create = HF__ETCD__WATCH_CREATE_REQUEST__INIT;
    Hf__Etcd__WatchRequest q = HF__ETCD__WATCH_REQUEST__INIT;

    q.request_case = HF__ETCD__WATCH_REQUEST__REQUEST_CREATE_REQUEST;
    q.create_request = &create;
    return ask(ETCD_WATCH, &q);
}

static void answered(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    int i = ((struct probe *)q)->number;

    assert_ptr_equal(c, &w.c);
    assert_false(w.sending);
    w.times[i]++;
    w.status[i] = a ? a->status : -1;
    snprintf(w.text[i], sizeof w.text[i], "%s", a ? a->text : "");
    if (a && a->body)
        w.value[i] = q->rpc == ETCD_KEEP_ALIVE
                         ? ((const Hf__Etcd__LeaseKeepAliveResponse *)a->body)->ttl
                     : q->rpc == ETCD_WATCH
                         ? ((const Hf__Etcd__WatchResponse *)a->body)->watch_id
                         : ((const Hf__Etcd__PutResponse *)a->body)->header->revision;
    if (w.again > 0) {
        w.again--;
        put();
    }
}

static int ask(enum etcd_rpc rpc, const void *request)
{
    struct etcd_call *q = hf__etcd_call(&w.c, answered, sizeof(struct probe));
    bool sending = w.sending;

    if (!q)
        return -1;
    assert_true(w.made < CALLS);
    ((struct probe *)q)->number = w.made++;
    w.sending = true;
    hf__etcd_send(&w.c, q, rpc, request);
    w.sending = sending;
    return w.made - 1;
}

static void watched(struct etcd_conn *c, const Hf__Etcd__WatchResponse *r)
{
    assert_ptr_equal(c, &w.c);
    assert_false(w.sending);
    w.events++;
    w.canceled += r->canceled != 0;
}

static int64_t limit_ms(const struct link *k)
{
    (void)k;
    return LIMIT_MS;
}

static void greet(struct link *k)
{
    hf__link_up(k);
}

static int unanswered(void)
{
    int n = 0;

    for (int i = 0; i < w.made; i++)
        n += w.times[i] > 0 && w.status[i] == -1;
    return n;
}

static void down(struct link *k, const hf_error *err)
{
    (void)k;
    assert_false(w.sending);
    w.downs++;
    w.why = *err;
    w.before_down += unanswered() - w.with_losses;
}

static void lost(struct link *k, const hf_error *err)
{
    (void)k;
    (void)err;
    w.losses++;
    w.with_losses = unanswered();
}

static void come_up(void)
{
    w.in_at = w.in_len = w.opened = 0;
    memset(w.asked, 0, sizeof w.asked);
    memset(w.bodies, 0, sizeof w.bodies);
    memset(w.ended, 0, sizeof w.ended);
    if (w.inflater)
        nghttp2_hd_inflate_del(w.inflater);
    assert_int_equal(nghttp2_hd_inflate_new(&w.inflater), 0);
    w.c.stream.state = STREAM_UP;
    w.c.stream.on->up(&w.c.stream);
    settle();
}

static int begin(void **state)
{
    static const struct link_events events = { limit_ms, greet, down, hf__etcd_unanswered,
                                               lost };

    (void)state;
    memset(&w, 0, sizeof w);
    clock_start(1000000000, env_random);
    list_init(&w.dirty);
    hf__etcd_conn_init(&w.c, &clk.env, &events, &w.dirty, 8000);
    w.c.to = (struct stream_target){ .host = "there", .shown = "there:2379" };
    w.c.watched = watched;
    hf__link_start(&w.c.link);
    come_up();
    frame(SETTINGS, 0, 0, "", 0);
    deliver();
    return 0;
}

/* Every call was answered once, also those that nobody has looked at: by then nothing is
 * left of them. */
static int end(void **state)
{
    (void)state;
    w.c.link.wanted = false;
    hf__fail(&w.why, HF_EUNREACHABLE, 0, "there", "over");
    hf__link_drop(&w.c.link, &w.why);
    hf__link_flush(&w.dirty);
    for (int i = 0; i < w.made; i++)
        assert_int_equal(w.times[i], 1);
    assert_int_equal(w.before_down, 0);
    assert_int_equal(w.pings, 0);
    hf__etcd_conn_done(&w.c);
    assert_true(clock_next() == LOOP_NEVER);
    nghttp2_hd_inflate_del(w.inflater);
    free(w.out);
    return 0;
}

static void answered_with(int i, int status, const char *text)
{
    assert_int_equal(w.times[i], 1);
    assert_int_equal(w.status[i], status);
    if (text)
        assert_string_equal(w.text[i], text);
}

/* The connection goes on: a call is answered. */
static void still_works(void)
{
    int i = put();

    settle();
    put_answer(w.order[w.opened - 1], 77);
    deliver();
    answered_with(i, GRPC_OK, "");
    assert_int_equal(w.value[i], 77);
    assert_int_equal(w.downs, 0);
}

static void given_up(int code, const char *text)
{
    assert_int_equal(w.downs, 1);
    assert_int_equal(w.losses, 1);
    assert_int_equal(w.why.code, code);
    assert_string_equal(w.why.text, text);
    for (int i = 0; i < w.made; i++)
        assert_int_equal(w.times[i], 1);
}

/* ---- calls ----------------------------------------------------------------------- */

static void a_request_says_what_it_must(void **state)
{
    Hf__Etcd__StatusRequest sq = HF__ETCD__STATUS_REQUEST__INIT;
    Hf__Etcd__AuthenticateRequest aq = HF__ETCD__AUTHENTICATE_REQUEST__INIT;

    (void)state;
    put();
    assert_true(was_sent(0, ":method=POST\n:scheme=http\n:path=/etcdserverpb.KV/Put\n"
                            ":authority=there:2379\n"));
    assert_true(was_sent(0, "te=trailers\n"));
    assert_true(was_sent(0, "content-type=application/grpc\n"));
    assert_true(was_sent(0, "hasleader=true\n"));
    assert_true(was_sent(0, "grpc-timeout=1000m\n"));
    assert_false(was_sent(0, "authorization"));
    assert_int_equal(w.bodies[w.order[0]], 5 + 12);
    assert_int_equal(w.ended[w.order[0]], 1);
    ask(ETCD_STATUS, &sq);
    assert_true(was_sent(1, "/etcdserverpb.Maintenance/Status\n"));
    assert_false(was_sent(1, "hasleader"));
    assert_int_equal(hf__etcd_set_token(&w.c, "abc.7"), 0);
    put();
    assert_true(was_sent(2, "authorization=abc.7\n"));
    ask(ETCD_AUTHENTICATE, &aq);
    assert_false(was_sent(3, "authorization"));
    keep_alive(1);
    assert_true(was_sent(4, "authorization=abc.7\n"));
    assert_false(was_sent(4, "grpc-timeout"));
    assert_int_equal(w.ended[w.order[4]], 0);
    assert_int_equal(w.windows[0] > (3 << 20), 1); /* of the connection */
}

static void answers_come_in_any_order(void **state)
{
    static const int order[] = { 3, 0, 4, 1, 2 };

    for (int pieces = 0; pieces < 2; pieces++) {
        for (int i = 0; i < 5; i++)
            put();
        settle();
        w.byte_by_byte = pieces;
        for (int i = 0; i < 5; i++)
            put_answer(w.order[order[i]], 100 + order[i]);
        deliver();
        for (int i = 0; i < 5; i++) {
            answered_with(i, GRPC_OK, "");
            assert_int_equal(w.value[i], 100 + i);
        }
        assert_int_equal(w.c.unary, 0);
        end(state);
        begin(state);
    }
}

/* An answer may ask again. */
static void asking_inside_an_answer(void **state)
{
    (void)state;
    w.again = 3;
    put();
    for (int i = 0; i < 4; i++) {
        settle();
        put_answer(w.order[i], i);
        deliver();
        answered_with(i, GRPC_OK, "");
    }
    assert_int_equal(w.made, 4);
}

static void an_error_is_the_callers(void **state)
{
    (void)state;
    put();
    settle();
    headers(w.order[0], BEGIN "grpc-status=5\ngrpc-message=not%20there\n", END_STREAM);
    deliver();
    answered_with(0, GRPC_NOT_FOUND, "not there");
    still_works();
}

/* What a server must not send fails one call, once; the connection goes on. */
static void nonsense_fails_its_call_only(void **state)
{
    static const char two[] = "\0\0\0\0\0\0\0\0\0\0", junk[] = "\0\0\0\0\2\377\377";

    (void)state;
    for (int i = 0; i < 10; i++)
        put();
    settle();
    for (int i = 0; i < 9; i++)
        headers(w.order[i], BEGIN, 0);
    headers(w.order[0], "grpc-status=0\n", END_STREAM); /* no message */
    frame(DATA, 0, w.order[1], two, 10);
    headers(w.order[1], "grpc-status=0\n", END_STREAM);
    frame(DATA, 0, w.order[2], junk, 7);
    headers(w.order[2], "grpc-status=0\n", END_STREAM);
    frame(DATA, 0, w.order[3], "\1\0\0\0\1x", 6); /* and nothing follows */
    frame(DATA, 0, w.order[4], "\0\177\0\0\0x", 6);
    frame(DATA, END_STREAM, w.order[5], two, 5);
    headers(w.order[6], "grpc-status=0\n", 0); /* trailers without an end: HTTP/2 forbids */
    frame(RST, 0, w.order[7], "\0\0\0\7", 4);
    frame(DATA, 0, w.order[8], two, 5);
    frame(RST, 0, w.order[8], "\0\0\0\0", 4);
    headers(w.order[9], ":status=503\ncontent-type=text/html\n", 0);
    frame(DATA, END_STREAM, w.order[9], "<html>", 6);
    deliver();
    for (int i = 0; i < 3; i++)
        answered_with(i, GRPC_INTERNAL, "an answer of an unexpected form");
    answered_with(3, GRPC_INTERNAL, "a compressed message");
    answered_with(4, GRPC_RESOURCE_EXHAUSTED, "a message of more than 16 MiB");
    answered_with(5, GRPC_UNKNOWN, "an answer without a status");
    answered_with(6, GRPC_INTERNAL, NULL);
    answered_with(7, GRPC_UNAVAILABLE, "the stream was reset, code 7");
    answered_with(8, GRPC_INTERNAL, "the stream was reset, code 0");
    answered_with(9, GRPC_UNAVAILABLE, "no gRPC, HTTP status 503");
    assert_int_equal(w.resets[w.order[3]], 1); /* the server is told to stop */
    assert_int_equal(w.resets[w.order[4]], 1);
    frame(DATA, 0, w.order[3], two, 5); /* it was on its way */
    deliver();
    still_works();
}

/* The answer comes while most of the request waits for the server's window. */
static void an_answer_before_the_end_of_the_request(void **state)
{
    (void)state;
    put_of(200000);
    settle();
    assert_int_equal(w.bodies[w.order[0]], 65535);
    headers(w.order[0], BEGIN "grpc-status=8\ngrpc-message=too large\n", END_STREAM);
    deliver();
    answered_with(0, GRPC_RESOURCE_EXHAUSTED, "too large");
    assert_int_equal(w.resets[w.order[0]], 1);
    frame(WINDOW, 0, 0, "\0\4\0\0", 4);
    frame(RST, 0, w.order[0], "\0\0\0\0", 4);
    deliver();
    assert_int_equal(w.bodies[w.order[0]], 65535);
    still_works();
}

static void windows_are_kept_and_given_back(void **state)
{
    static uint8_t value[10 << 20];
    Hf__Etcd__ResponseHeader header = HF__ETCD__RESPONSE_HEADER__INIT;
    Hf__Etcd__KeyValue kv = HF__ETCD__KEY_VALUE__INIT;
    Hf__Etcd__PutResponse r = HF__ETCD__PUT_RESPONSE__INIT;

    (void)state;
    put_of(200000);
    settle();
    assert_int_equal(w.bodies[w.order[0]], 65535);
    frame(WINDOW, 0, 0, "\0\20\0\0", 4);
    frame(WINDOW, 0, w.order[0], "\0\0\20\0", 4);
    deliver();
    assert_int_equal(w.bodies[w.order[0]], 65535 + 4096);
    frame(WINDOW, 0, w.order[0], "\0\20\0\0", 4);
    deliver();
    assert_int_equal(w.ended[w.order[0]], 1);
    header.revision = 5;
    kv.value.data = value;
    kv.value.len = sizeof value;
    r.header = &header;
    r.prev_kv = &kv;
    headers(w.order[0], BEGIN, 0);
    w.windows[0] = 0;
    body(w.order[0], &r.base);
    headers(w.order[0], "grpc-status=0\n", END_STREAM);
    deliver();
    answered_with(0, GRPC_OK, "");
    /* what is not given back yet is less than half of a window */
    assert_true(w.windows[0] >= sizeof value - (2 << 20));
    assert_true(w.windows[w.order[0]] >= sizeof value - (1 << 20));
}

/* Those that the server does not allow yet are kept back; a loss finds them, too. */
static void too_few_streams(void **state)
{
    (void)state;
    frame(SETTINGS, 0, 0, "\0\3\0\0\0\1", 6);
    deliver();
    for (int i = 0; i < 4; i++)
        put();
    settle();
    assert_int_equal(w.opened, 1);
    put_answer(w.order[0], 1);
    deliver();
    assert_int_equal(w.opened, 2);
    headers(w.order[1], BEGIN "grpc-status=2\n", END_STREAM);
    deliver();
    assert_int_equal(w.opened, 3);
    hf__stream_down(&w.c.stream, &w.why);
    answered_with(1, GRPC_UNKNOWN, "");
    answered_with(2, -1, NULL);
    answered_with(3, -1, NULL);
}

/* ---- streams --------------------------------------------------------------------- */

static void keep_alives_share_a_stream(void **state)
{
    (void)state;
    keep_alive(7);
    keep_alive(8);
    settle();
    keep_alive(7);
    settle();
    keep_alive(9);
    settle();
    assert_int_equal(w.opened, 1);
    assert_int_equal(w.bodies[w.order[0]], 4 * 7);
    headers(w.order[0], BEGIN, 0);
    alive_answer(w.order[0], 8, 80); /* a proxy may mix them up */
    alive_answer(w.order[0], 7, 71);
    deliver();
    answered_with(1, GRPC_OK, "");
    assert_int_equal(w.value[1], 80);
    assert_int_equal(w.value[0], 71);
    assert_int_equal(w.times[2], 0);
    w.byte_by_byte = true;
    alive_answer(w.order[0], 7, 0);
    alive_answer(w.order[0], 9, 90);
    deliver();
    assert_int_equal(w.value[2], 0);
    assert_int_equal(w.value[3], 90);
    still_works();
}

static void watches_share_a_stream(void **state)
{
    Hf__Etcd__WatchCancelRequest cancel = HF__ETCD__WATCH_CANCEL_REQUEST__INIT;
    Hf__Etcd__WatchRequest q = HF__ETCD__WATCH_REQUEST__INIT;
    size_t before;

    (void)state;
    watch();
    watch();
    settle();
    headers(w.order[0], BEGIN, 0);
    watch_answer(w.order[0], 40, true, false);
    watch_answer(w.order[0], 40, false, false);
    watch_answer(w.order[0], -1, true, true); /* refused */
    deliver();
    assert_int_equal(w.value[0], 40);
    assert_int_equal(w.value[1], -1);
    assert_int_equal(w.events, 1);
    before = w.bodies[w.order[0]];
    cancel.watch_id = 40;
    q.request_case = HF__ETCD__WATCH_REQUEST__REQUEST_CANCEL_REQUEST;
    q.cancel_request = &cancel;
    hf__etcd_tell_watch(&w.c, &q);
    settle();
    assert_int_equal(w.bodies[w.order[0]], before); /* nobody waits for it */
    clock_pass(1000, NULL);
    settle();
    assert_true(w.bodies[w.order[0]] > before);
    before = w.bodies[w.order[0]];
    cancel.watch_id = 41;
    hf__etcd_tell_watch(&w.c, &q);
    put(); /* takes it along */
    settle();
    assert_true(w.bodies[w.order[0]] > before);
    put_answer(w.order[1], 5);
    watch_answer(w.order[0], 40, false, true);
    deliver();
    assert_int_equal(w.canceled, 1);
    assert_int_equal(w.opened, 2);
    still_works();
}

static void an_answer_to_nothing_gives_it_up(void **state)
{
    static const char junk[] = "\0\0\0\0\2\377\377";

    for (int i = 0; i < 4; i++) {
        end(state);
        begin(state);
        put();
        if (i == 0 || i == 2)
            keep_alive(7);
        else
            watch();
        settle();
        headers(w.order[1], BEGIN, 0);
        if (i == 0)
            alive_answer(w.order[1], 8, 1);
        else if (i == 1) {
            watch_answer(w.order[1], 1, true, false);
            watch_answer(w.order[1], 2, true, false);
        } else {
            frame(DATA, 0, w.order[1], junk, 7);
        }
        put_answer(w.order[0], 1); /* came behind it: not trusted any more */
        deliver();
        given_up(HF_EPROTO, "an answer to nothing that was asked");
        answered_with(0, -1, NULL);
    }
}

static void without_its_streams_it_is_given_up(void **state)
{
    static const struct {
        const char *trailers;
        int code;
        const char *text;
    } of[] = {
        { "grpc-status=14\ngrpc-message=etcdserver: no leader\n", HF_EUNREACHABLE,
          "etcdserver: no leader (UNAVAILABLE)" },
        { "grpc-status=16\ngrpc-message=etcdserver: invalid auth token\n", HF_EAUTH,
          "etcdserver: invalid auth token (UNAUTHENTICATED)" },
        { "grpc-status=0\n", HF_EUNREACHABLE, "the server ended a stream" },
        { NULL, HF_EUNREACHABLE, "the stream was reset, code 8 (CANCELLED)" },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        end(state);
        begin(state);
        put();
        if (i % 2)
            watch();
        else
            keep_alive(1);
        settle();
        headers(w.order[1], BEGIN, 0);
        if (of[i].trailers)
            headers(w.order[1], of[i].trailers, END_STREAM);
        else
            frame(RST, 0, w.order[1], "\0\0\0\10", 4);
        deliver();
        given_up(of[i].code, of[i].text);
    }
}

/* ---- the connection -------------------------------------------------------------- */

static void a_server_that_leaves_answers_what_it_has(void **state)
{
    (void)state;
    put();
    put();
    watch();
    put();
    settle();
    frame(GOAWAY, 0, 0, "\0\0\0\3\0\0\0\0", 8); /* up to the second put */
    deliver();
    assert_int_equal(w.times[0] + w.times[1], 0);
    assert_int_equal(w.times[3], 0); /* it was not looked at: told with the loss */
    put_answer(w.order[1], 6);
    deliver();
    answered_with(1, GRPC_OK, "");
    assert_int_equal(w.downs, 0);
    put_answer(w.order[0], 5);
    deliver();
    answered_with(0, GRPC_OK, "");
    given_up(HF_EUNREACHABLE, "the server is stopping (GOAWAY)");
    answered_with(2, -1, NULL);
    answered_with(3, -1, NULL);
    clock_pass(1000000, NULL);
    assert_int_equal(w.c.link.state, LINK_OPENING);
    come_up();
    frame(SETTINGS, 0, 0, "", 0);
    deliver();
    w.downs = 0;
    still_works();
}

static void a_server_that_leaves_gets_nothing_new(void **state)
{
    (void)state;
    put();
    settle();
    frame(GOAWAY, 0, 0, "\177\377\377\377\0\0\0\0", 8);
    deliver();
    assert_int_equal(w.downs, 0);
    put();
    assert_int_equal(w.downs, 0);
    settle();
    given_up(HF_EUNREACHABLE, "it takes nothing more");
    assert_int_equal(w.opened, 1);
    end(state);
    begin(state); /* nothing is under way */
    frame(GOAWAY, 0, 0, "\0\0\0\0\0\0\0\0", 8);
    deliver();
    given_up(HF_EUNREACHABLE, "the server is stopping (GOAWAY)");
}

static void bytes_that_are_no_http2(void **state)
{
    static const char *const texts[] = { "HTTP/1.1 400 Bad Request\r\n\r\n",
                                         "\0\0\4\x0a\0\0\0\0\0....",
                                         "SSH-2.0-OpenSSH_9.2p1 Debian\r\n" };

    for (size_t i = 0; i < 3; i++)
        for (int pieces = 0; pieces < 2; pieces++) {
            end(state);
            begin(state);
            w.c.link.wanted = true;
            hf__link_drop(&w.c.link, &w.why);
            clock_pass(1000000, NULL);
            w.downs = w.losses = 0;
            come_up();
            put();
            settle();
            w.byte_by_byte = pieces;
            raw(texts[i], i == 1 ? 13 : strlen(texts[i]));
            deliver();
            given_up(HF_EPROTO, "the server does not speak HTTP/2");
        }
}

static void a_frame_that_must_not_be(void **state)
{
    (void)state;
    put();
    settle();
    put_answer(w.order[0], 9);
    put();
    frame(DATA, 0, 0, "x", 1);
    deliver();
    answered_with(0, GRPC_OK, ""); /* came before it */
    given_up(HF_EPROTO, "the server does not speak HTTP/2");
}

static void pings_are_answered_and_not_sent(void **state)
{
    (void)state;
    frame(PING, 0, 0, "12345678", 8);
    deliver();
    put(); /* what is sent meanwhile does not bring the answer along */
    settle();
    clock_pass(99999, NULL);
    settle();
    assert_int_equal(w.acks, 0);
    clock_pass(1, NULL);
    settle();
    assert_int_equal(w.acks, 1);
    put_answer(w.order[0], 1);
    deliver();
    clock_pass(60 * 1000000, NULL);
    settle();
    assert_int_equal(w.pings, 0);
    assert_int_equal(w.acks, 1);
    frame(PING, 0, 0, "12345678", 8);
    frame(PING, 0, 0, "87654321", 8);
    deliver();
    assert_int_equal(w.acks, 2); /* a server that sends more than one */
    clock_pass(100000, NULL);
    settle();
    assert_int_equal(w.acks, 3);
    still_works();
}

/* One call is not answered while others are: it is late all the same. */
static void a_call_that_is_never_answered(void **state)
{
    (void)state;
    put();
    settle();
    for (int i = 1; i <= 9; i++) {
        clock_pass(LIMIT_MS * 100, NULL);
        put();
        settle();
        put_answer(w.order[i], i);
        deliver();
        answered_with(i, GRPC_OK, "");
    }
    clock_pass(LIMIT_MS * 101, NULL);
    given_up(HF_EUNREACHABLE, "no answer within 1000 ms");
    answered_with(0, -1, NULL);
}

static void a_loss_tells_each_call_once(void **state)
{
    (void)state;
    put();
    keep_alive(3);
    watch();
    put_of(100000);
    settle();
    put_answer(w.order[3], 1);
    headers(w.order[0], BEGIN, 0); /* half of an answer */
    deliver();
    put(); /* in the buffer */
    w.again = 2;
    hf__fail(&w.why, HF_EUNREACHABLE, 0, "there", "broke");
    hf__stream_down(&w.c.stream, &w.why);
    assert_int_equal(w.downs, 1);
    answered_with(0, -1, NULL);
    answered_with(3, GRPC_OK, "");
    assert_int_equal(w.made, 7); /* two asked again, in vain */
    settle();
    answered_with(6, -1, NULL);
}

/* Nobody is told, and nothing is left; not even half of an answer. */
static void it_ends_with_calls_under_way(void **state)
{
    (void)state;
    put();
    keep_alive(3);
    watch();
    put_of(100000);
    settle();
    headers(w.order[0], BEGIN, 0);
    frame(DATA, 0, w.order[0], "\0\0\0\0\4a", 6);
    deliver();
    put(); /* in the buffer */
    hf__etcd_conn_done(&w.c);
    for (int i = 0; i < w.made; i++)
        assert_int_equal(w.times[i], 0);
    w.made = 0;
}

/* Whatever allocation fails, each call is answered once, and the next connection works. */
static void without_memory(void **state)
{
    int n = 0, failed;

    do {
        end(state);
        begin(state);
        w.fail_alloc = ++n;
        put();
        keep_alive(1);
        watch();
        settle();
        for (size_t i = 0; i < w.opened; i++) {
            headers(w.order[i], BEGIN, 0);
            if (strstr(w.asked[w.order[i]], "Put")) {
                frame(DATA, 0, w.order[i], "\0\0\0\0\4\12\2\30\5", 9);
                headers(w.order[i], "grpc-status=0\n", END_STREAM);
            } else if (strstr(w.asked[w.order[i]], "KeepAlive")) {
                alive_answer(w.order[i], 1, 10);
            } else {
                watch_answer(w.order[i], 4, true, false);
            }
        }
        deliver();
        clock_pass(0, NULL);
        failed = w.fail_alloc == 0;
        w.fail_alloc = 0;
        assert_int_equal(w.downs, failed ? 1 : 0);
        if (failed)
            assert_int_equal(w.why.code, HF_ENOMEM);
        for (int i = 0; i < w.made; i++)
            assert_int_equal(w.times[i], 1);
    } while (failed);
    assert_true(n > 10);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_request_says_what_it_must),
        CASE(answers_come_in_any_order),
        CASE(asking_inside_an_answer),
        CASE(an_error_is_the_callers),
        CASE(nonsense_fails_its_call_only),
        CASE(an_answer_before_the_end_of_the_request),
        CASE(windows_are_kept_and_given_back),
        CASE(too_few_streams),
        CASE(keep_alives_share_a_stream),
        CASE(watches_share_a_stream),
        CASE(an_answer_to_nothing_gives_it_up),
        CASE(without_its_streams_it_is_given_up),
        CASE(a_server_that_leaves_answers_what_it_has),
        CASE(a_server_that_leaves_gets_nothing_new),
        CASE(bytes_that_are_no_http2),
        CASE(a_frame_that_must_not_be),
        CASE(pings_are_answered_and_not_sent),
        CASE(a_call_that_is_never_answered),
        CASE(a_loss_tells_each_call_once),
        CASE(it_ends_with_calls_under_way),
        CASE(without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
