/* rpc.c: what can be asked of etcd, as messages on the streams of wire.c.
 *
 * Goes well: a request is packed behind its prefix; the answer is unpacked, given to the
 * callback, and freed when that returns.
 *
 * Goes wrong: an answer of a call of its own that cannot be read is given to the caller as
 * INTERNAL, since asking on another connection would bring the same again; one on a shared
 * stream, where it could concern anything, gives the connection up. */
#include "driver/etcd/wire.h"

#include <stdlib.h>
#include <string.h>

#define RPC(path, name)                                                                    \
    {                                                                                      \
        "/etcdserverpb." path, &hf__etcd__##name##_response__descriptor                    \
    }
static const struct {
    const char *path;
    const ProtobufCMessageDescriptor *answer;
} rpcs[] = {
    [ETCD_RANGE] = RPC("KV/Range", range),
    [ETCD_PUT] = RPC("KV/Put", put),
    [ETCD_DELETE_RANGE] = RPC("KV/DeleteRange", delete_range),
    [ETCD_TXN] = RPC("KV/Txn", txn),
    [ETCD_LEASE_GRANT] = RPC("Lease/LeaseGrant", lease_grant),
    [ETCD_LEASE_REVOKE] = RPC("Lease/LeaseRevoke", lease_revoke),
    [ETCD_STATUS] = RPC("Maintenance/Status", status),
    [ETCD_AUTHENTICATE] = RPC("Auth/Authenticate", authenticate),
    [ETCD_KEEP_ALIVE] = RPC("Lease/LeaseKeepAlive", lease_keep_alive),
    [ETCD_WATCH] = RPC("Watch/Watch", watch),
};

const char *hf__etcd_path(enum etcd_rpc rpc)
{
    return rpcs[rpc].path;
}

int hf__etcd_error(const struct etcd_conn *c, const struct etcd_answer *a, hf_error *err)
{
    int code = HF_EPROTO;

    if (!a)
        return hf__fail(err, HF_EUNREACHABLE, 0, c->to.shown, "the connection was lost");
    switch (a->status) {
    case GRPC_CANCELLED:
    case GRPC_DEADLINE_EXCEEDED:
    case GRPC_ABORTED:
    case GRPC_UNAVAILABLE:
        code = HF_EUNREACHABLE;
        break;
    case GRPC_PERMISSION_DENIED:
    case GRPC_UNAUTHENTICATED:
        code = HF_EAUTH;
        break;
    case GRPC_RESOURCE_EXHAUSTED:
        code = HF_EFULL;
        break;
    case GRPC_UNIMPLEMENTED:
        code = HF_EVERSION;
        break;
    }
    return hf__fail(err, code, 0, c->to.shown, "%s (%s)", a->text,
                    hf__grpc_status_name(a->status));
}

/* ---- asking ---------------------------------------------------------------------- */

struct etcd_call *hf__etcd_call(struct etcd_conn *c, etcd_answered *answer, size_t size)
{
    struct etcd_call *q = calloc(1, size);

    if (!q) {
        hf__link_fail(&c->link, HF_ENOMEM, "no memory for a request");
        return NULL;
    }
    q->answer = answer;
    list_init(&q->call.node);
    list_init(&q->waits);
    list_init(&q->stream.fresh);
    return q;
}

void hf__etcd_call_free(struct etcd_call *q)
{
    list_remove(&q->waits);
    list_remove(&q->stream.fresh);
    hf__grpc_done(&q->stream.in);
    free(q->stream.out);
    free(q);
}

/* The bytes of one message, or NULL. */
static unsigned char *pack(const ProtobufCMessage *m, size_t *ret_len)
{
    size_t len = protobuf_c_message_get_packed_size(m);
    unsigned char *out = malloc(GRPC_PREFIX + len);

    if (!out)
        return NULL;
    hf__grpc_prefix(out, len);
    protobuf_c_message_pack(m, out + GRPC_PREFIX);
    *ret_len = GRPC_PREFIX + len;
    return out;
}

void hf__etcd_send(struct etcd_conn *c, struct etcd_call *q, enum etcd_rpc rpc,
                   const void *request)
{
    if (!q)
        return;
    q->rpc = rpc;
    if (rpc == ETCD_KEEP_ALIVE)
        q->lease = ((const Hf__Etcd__LeaseKeepAliveRequest *)request)->id;
    q->stream.out = pack(request, &q->stream.out_len);
    q->stream.last = true;
    hf__link_send(&c->link, &q->call);
}

void hf__etcd_tell_watch(struct etcd_conn *c, const Hf__Etcd__WatchRequest *request)
{
    unsigned char *out;
    size_t len;
    int rc = HF_ENOMEM;

    if (!link_open(&c->link) || c->leaving)
        return; /* what is watched there ends with the connection */
    out = pack(&request->base, &len);
    if (out)
        rc = hf__etcd_write_later(c, ETCD_WATCHES, out, len);
    free(out);
    if (rc < 0)
        hf__link_fail(&c->link, rc, "no memory for a request");
}

/* ---- answers --------------------------------------------------------------------- */

static void *unpack(enum etcd_rpc rpc, const struct grpc_message *m)
{
    return protobuf_c_message_unpack(rpcs[rpc].answer, NULL, m->len, m->at);
}

static void discard(void *message)
{
    protobuf_c_message_free_unpacked(message, NULL);
}

static void answer(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    hf__link_matched(&c->link, &q->call);
    q->answer(c, q, a);
    hf__etcd_call_free(q);
}

void hf__etcd_unanswered(struct link *k, struct link_call *call)
{
    struct etcd_conn *c = container_of(k, struct etcd_conn, link);
    struct etcd_call *q = container_of(call, struct etcd_call, call);

    q->answer(c, q, NULL);
    hf__etcd_call_free(q);
}

/* Exactly one message belongs to OK. */
static void take_unary(struct etcd_conn *c, struct etcd_call *q)
{
    struct grpc_in *in = &q->stream.in;
    struct etcd_answer a = { 0 };
    struct grpc_message m, more;
    void *body = NULL;

    if (!q->stream.ended && !in->bad)
        return;
    a.status = in->status;
    a.text = in->text;
    if (!in->bad && in->status == GRPC_OK) {
        if (hf__grpc_next(in, &m) && !hf__grpc_next(in, &more) && !in->bad)
            body = unpack(q->rpc, &m);
        if (!body) {
            a.status = GRPC_INTERNAL;
            a.text = "an answer of an unexpected form";
        }
    }
    a.body = body;
    hf__etcd_detach(c, &q->stream);
    answer(c, q, &a);
    discard(body);
}

static struct etcd_call *call_of(struct list *n)
{
    return n ? container_of(n, struct etcd_call, waits) : NULL;
}

static bool take_alive(struct etcd_conn *c, const Hf__Etcd__LeaseKeepAliveResponse *r)
{
    struct etcd_answer a = { .text = "", .body = r };

    list_for(n, &c->waits[ETCD_ALIVE])
        if (call_of(n)->lease == r->id) { /* nearly always the first */
            answer(c, call_of(n), &a);
            return true;
        }
    return false;
}

static bool take_watch(struct etcd_conn *c, const Hf__Etcd__WatchResponse *r)
{
    struct etcd_answer a = { .text = "", .body = r };
    struct etcd_call *q = call_of(list_first(&c->waits[ETCD_WATCHES]));

    if (!r->created)
        c->watched(c, r);
    else if (q)
        answer(c, q, &a);
    return !r->created || q;
}

static void shared_ended(struct etcd_conn *c, const struct grpc_in *in)
{
    const struct etcd_answer a = { .status = in->status, .text = in->text };
    hf_error err;

    if (c->leaving)
        return; /* it ends with the last of the calls */
    if (in->status == GRPC_OK)
        hf__fail(&err, HF_EUNREACHABLE, 0, c->to.shown, "the server ended a stream");
    else
        hf__etcd_error(c, &a, &err);
    hf__link_break(&c->link, &err);
}

static void take_shared(struct etcd_conn *c, enum etcd_shared which)
{
    struct etcd_stream *s = &c->shared[which];
    struct grpc_message m;

    while (link_open(&c->link) && hf__grpc_next(&s->in, &m)) {
        void *body = unpack(which == ETCD_ALIVE ? ETCD_KEEP_ALIVE : ETCD_WATCH, &m);

        if (!body || !(which == ETCD_ALIVE ? take_alive(c, body) : take_watch(c, body)))
            hf__link_fail(&c->link, HF_EPROTO, "an answer to nothing that was asked");
        discard(body);
    }
    hf__grpc_rest(&s->in);
    if (s->ended || s->in.bad)
        shared_ended(c, &s->in);
}

void hf__etcd_take(struct etcd_conn *c, struct etcd_stream *s)
{
    if (hf__etcd_is_shared(c, s))
        take_shared(c, s == c->shared ? ETCD_ALIVE : ETCD_WATCHES);
    else
        take_unary(c, container_of(s, struct etcd_call, stream));
}
