/* etcd_world.c: see etcd_world.h. */
#include "etcd_world.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>

struct etcd_place *etcd;
struct world w;

/* ---- the world ------------------------------------------------------------------- */

static int64_t env_now(struct env *e)
{
    (void)e;
    return hf__loop_now();
}

static void env_random(struct env *e, void *buf, size_t n)
{
    (void)e;
    CHECK(getrandom(buf, n, 0) == (ssize_t)n);
}

static int env_watch(struct env *e, struct watch *at, int fd, uint32_t events)
{
    (void)e;
    return hf__loop_watch(&w.loop, at, fd, events);
}

static void env_unwatch(struct env *e, struct watch *at)
{
    (void)e;
    hf__loop_unwatch(&w.loop, at);
}

static void env_timer(struct env *e, struct timer *t, int64_t at)
{
    (void)e;
    hf__loop_timer(&w.loop, t, at);
}

void turn(void)
{
    struct epoll_event evs[8];
    int n;

    hf__link_flush(&w.dirty);
    hf__loop_arm(&w.loop);
    n = hf__loop_sleep(&w.loop, evs, 8, 10);
    hf__loop_turn(&w.loop, evs, n);
}

/* ---- the link -------------------------------------------------------------------- */

static int64_t limit_ms(const struct link *k)
{
    (void)k;
    return w.limit_ms;
}

static void greet(struct link *k)
{
    if (w.no_up)
        return;
    w.ups++;
    hf__link_up(k);
}

static void down(struct link *k, const hf_error *err)
{
    (void)k;
    w.downs++;
    w.order = w.unanswered;
    w.why = *err;
}

static void lost(struct link *k, const hf_error *err)
{
    (void)k;
    (void)err;
    w.losses++;
}

static void unanswered(struct link *k, struct link_call *c)
{
    w.unanswered++;
    hf__etcd_unanswered(k, c);
}

static void watched(struct etcd_conn *c, const Hf__Etcd__WatchResponse *r)
{
    (void)c;
    w.responses++;
    w.fragments += r->fragment ? 1 : 0;
    w.progress += r->n_events == 0 && !r->canceled ? 1 : 0;
    if (r->canceled) {
        w.canceled_id = r->watch_id;
        w.compact_revision = r->compact_revision;
        snprintf(w.cancel_reason, sizeof(w.cancel_reason), "%s", r->cancel_reason);
    }
    for (size_t i = 0; i < r->n_events; i++) {
        const Hf__Etcd__Event *e = r->events[i];
        struct seen_event *s = &w.events[w.nevents++];

        CHECK_NUM(w.nevents, <, EVENTS);
        CHECK(e->kv && e->kv->key.len < KEY);
        s->watch_id = r->watch_id;
        s->deleted = e->type == HF__ETCD__EVENT__EVENT_TYPE__DELETE;
        memcpy(s->key, e->kv->key.data, e->kv->key.len);
        s->key[e->kv->key.len] = 0;
        s->revision = e->kv->mod_revision;
        s->value_len = (int64_t)e->kv->value.len;
        s->prev_len = e->prev_kv ? (int64_t)e->prev_kv->value.len : -1;
    }
}

void world_open(int port, const struct tls_module *tls, struct tls_context *context)
{
    static const struct link_events events = { limit_ms, greet, down, unanswered, lost };

    memset(&w, 0, sizeof(w));
    w.canceled_id = -2;
    w.limit_ms = LIMIT_MS; /* a starved server is not what is tested */
    w.env = (struct env){ .now = env_now,
                          .random = env_random,
                          .watch = env_watch,
                          .unwatch = env_unwatch,
                          .timer = env_timer };
    CHECK(hf__loop_init(&w.loop) == 0);
    list_init(&w.dirty);
    hf__etcd_conn_init(&w.c, &w.env, &events, &w.dirty, CONNECT_MS);
    w.c.watched = watched;
    snprintf(w.shown, sizeof(w.shown), "localhost:%d", port);
    w.c.to = (struct stream_target){ .host = "127.0.0.1",
                                     .port = (uint16_t)port,
                                     .tls = tls,
                                     .tls_context = context,
                                     .shown = w.shown };
    hf__link_start(&w.c.link);
}

void world_begin(int port)
{
    world_open(port, NULL, NULL);
    UNTIL(w.ups == 1);
}

void world_end(void)
{
    hf__etcd_conn_done(&w.c);
    CHECK(loop_next(&w.loop) == LOOP_NEVER);
    hf__loop_done(&w.loop);
}

/* ---- calls ----------------------------------------------------------------------- */

static void answered(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    struct reply *to = ((struct asked *)q)->to;
    unsigned char *packed;
    size_t n;

    CHECK(c == &w.c);
    to->answers++;
    to->at_ms = now_ms();
    to->nothing = !a;
    if (!a)
        return;
    to->status = a->status;
    snprintf(to->text, sizeof(to->text), "%s", a->text);
    CHECK((a->status == GRPC_OK) == (a->body != NULL));
    if (!a->body)
        return;
    n = protobuf_c_message_get_packed_size(a->body);
    packed = malloc(n + 1);
    CHECK(packed);
    protobuf_c_message_pack(a->body, packed);
    to->body = protobuf_c_message_unpack(((const ProtobufCMessage *)a->body)->descriptor,
                                         NULL, n, packed);
    CHECK(to->body);
    free(packed);
}

void ask_within(struct reply *to, enum etcd_rpc rpc, const void *request, int64_t ms)
{
    struct etcd_call *q = hf__etcd_call(&w.c, answered, sizeof(struct asked));

    CHECK(q);
    memset(to, 0, sizeof(*to));
    ((struct asked *)q)->to = to;
    q->limit_ms = ms;
    hf__etcd_send(&w.c, q, rpc, request);
    CHECK_NUM(to->answers, ==, 0); /* never inside a send */
}

void ask(struct reply *to, enum etcd_rpc rpc, const void *request)
{
    ask_within(to, rpc, request, 0);
}

void reply_done(struct reply *o)
{
    protobuf_c_message_free_unpacked(o->body, NULL);
    o->body = NULL;
}

const struct reply *asked(enum etcd_rpc rpc, const void *request)
{
    static struct reply o;

    reply_done(&o);
    ask(&o, rpc, request);
    UNTIL(o.answers == 1);
    return &o;
}

const void *ok(enum etcd_rpc rpc, const void *request)
{
    const struct reply *o = asked(rpc, request);

    if (o->nothing || o->status != GRPC_OK)
        check_failed(__FILE__, __LINE__, "rpc %d: %s %s (%s)", (int)rpc,
                     o->nothing ? "no answer" : hf__grpc_status_name(o->status), o->text,
                     w.why.text);
    return o->body;
}

ProtobufCBinaryData bytes(const char *text)
{
    return (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)text, .len = strlen(text) };
}

int64_t put(const char *key, const char *value, int64_t lease)
{
    Hf__Etcd__PutRequest q = HF__ETCD__PUT_REQUEST__INIT;
    const Hf__Etcd__PutResponse *r;

    q.key = bytes(key);
    q.value = bytes(value);
    q.lease = lease;
    r = ok(ETCD_PUT, &q);
    return r->header->revision;
}

int64_t grant(int64_t ttl)
{
    Hf__Etcd__LeaseGrantRequest q = HF__ETCD__LEASE_GRANT_REQUEST__INIT;
    const Hf__Etcd__LeaseGrantResponse *r;

    q.ttl = ttl;
    r = ok(ETCD_LEASE_GRANT, &q);
    CHECK_NUM(r->ttl, >=, ttl);
    CHECK(r->id != 0);
    return r->id;
}

int64_t alive(int64_t lease)
{
    Hf__Etcd__LeaseKeepAliveRequest q = HF__ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;
    const Hf__Etcd__LeaseKeepAliveResponse *r;

    q.id = lease;
    r = ok(ETCD_KEEP_ALIVE, &q);
    CHECK_NUM(r->id, ==, lease);
    return r->ttl;
}

int64_t count_of(const char *key)
{
    Hf__Etcd__RangeRequest q = HF__ETCD__RANGE_REQUEST__INIT;
    const Hf__Etcd__RangeResponse *r;

    q.key = bytes(key);
    q.count_only = true;
    r = ok(ETCD_RANGE, &q);
    return r->count;
}

int64_t watch(const char *key, const char *end, int64_t from, bool fragment)
{
    Hf__Etcd__WatchCreateRequest create = HF__ETCD__WATCH_CREATE_REQUEST__INIT;
    Hf__Etcd__WatchRequest q = HF__ETCD__WATCH_REQUEST__INIT;
    const Hf__Etcd__WatchResponse *r;

    create.key = bytes(key);
    create.range_end = bytes(end);
    create.start_revision = from;
    create.prev_kv = true;
    create.fragment = fragment;
    q.request_case = HF__ETCD__WATCH_REQUEST__REQUEST_CREATE_REQUEST;
    q.create_request = &create;
    r = ok(ETCD_WATCH, &q);
    CHECK(r->created && !r->canceled);
    return r->watch_id;
}
