/* etcd_wire.c: the connection to etcd on a real member: each RPC, streams, much data, many
 * calls, and the ways in which a connection ends. */
#include "etcd_world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MANY = 1000,
    BIG_KEYS = 80,
    BIG_VALUE = 100000, /* 8 MB in all */
    LEASE_TTL = 2       /* the least that etcd gives */
};

extern const struct test_case etcd_member_cases[];

static void begin(void)
{
    etcd = etcd_place_new(1);
    etcd_start_all(etcd);
    world_begin(etcd->servers[0].port);
}

static void end(void)
{
    world_end();
    etcd_place_stop(etcd);
}

/* ---- each RPC -------------------------------------------------------------------- */

static void server_tells_who_it_is(void)
{
    Hf__Etcd__StatusRequest sq = HF__ETCD__STATUS_REQUEST__INIT;
    const Hf__Etcd__StatusResponse *status;

    begin();
    status = ok(ETCD_STATUS, &sq);
    CHECK(strncmp(status->version, "3.", 2) == 0);
    CHECK_NUM(status->leader, !=, 0);
    CHECK_NUM(status->leader, ==, status->header->member_id);
    end();
}

static void keys(void)
{
    Hf__Etcd__DeleteRangeRequest dq = HF__ETCD__DELETE_RANGE_REQUEST__INIT;
    Hf__Etcd__RangeRequest rq = HF__ETCD__RANGE_REQUEST__INIT;
    const Hf__Etcd__DeleteRangeResponse *deleted;
    const Hf__Etcd__RangeResponse *range;
    int64_t first, second;

    begin();
    second = put("k/b", "two", 0);
    first = put("k/a", "", 0);
    CHECK_NUM(first, ==, second + 1);
    rq.key = bytes("k/");
    rq.range_end = bytes("k0");
    rq.sort_order = HF__ETCD__RANGE_REQUEST__SORT_ORDER__ASCEND;
    rq.sort_target = HF__ETCD__RANGE_REQUEST__SORT_TARGET__CREATE;
    range = ok(ETCD_RANGE, &rq);
    CHECK_NUM(range->n_kvs, ==, 2);
    CHECK_NUM(range->count, ==, 2);
    CHECK_NUM(range->kvs[0]->create_revision, ==, second);
    CHECK(memcmp(range->kvs[0]->value.data, "two", 3) == 0);
    CHECK_NUM(range->kvs[1]->value.len, ==, 0);
    rq.limit = 1;
    rq.max_create_revision = first - 1;
    range = ok(ETCD_RANGE, &rq);
    CHECK_NUM(range->n_kvs, ==, 1);
    CHECK_NUM(range->more, ==, 0);
    dq.key = rq.key;
    dq.range_end = rq.range_end;
    dq.prev_kv = true;
    deleted = ok(ETCD_DELETE_RANGE, &dq);
    CHECK_NUM(deleted->deleted, ==, 2);
    CHECK_NUM(deleted->n_prev_kvs, ==, 2);
    end();
}

/* If there is nothing below t/, put t/k; else read the first. */
static const Hf__Etcd__TxnResponse *claim(void)
{
    Hf__Etcd__Compare compare = HF__ETCD__COMPARE__INIT, *compares[] = { &compare };
    Hf__Etcd__PutRequest pq = HF__ETCD__PUT_REQUEST__INIT;
    Hf__Etcd__RangeRequest rq = HF__ETCD__RANGE_REQUEST__INIT;
    Hf__Etcd__RequestOp then = HF__ETCD__REQUEST_OP__INIT, *thens[] = { &then };
    Hf__Etcd__RequestOp other = HF__ETCD__REQUEST_OP__INIT, *others[] = { &other };
    Hf__Etcd__TxnRequest q = HF__ETCD__TXN_REQUEST__INIT;

    compare.target = HF__ETCD__COMPARE__TARGET__CREATE;
    compare.key = bytes("t/");
    compare.range_end = bytes("t0");
    compare.target_union_case = HF__ETCD__COMPARE__TARGET_UNION_CREATE_REVISION;
    compare.create_revision = 0;
    pq.key = bytes("t/k");
    pq.value = bytes("v");
    then.request_case = HF__ETCD__REQUEST_OP__REQUEST_REQUEST_PUT;
    then.request_put = &pq;
    rq.key = compare.key;
    rq.range_end = compare.range_end;
    other.request_case = HF__ETCD__REQUEST_OP__REQUEST_REQUEST_RANGE;
    other.request_range = &rq;
    q.n_compare = q.n_success = q.n_failure = 1;
    q.compare = compares;
    q.success = thens;
    q.failure = others;
    return ok(ETCD_TXN, &q);
}

static void transactions(void)
{
    const Hf__Etcd__TxnResponse *r;
    int64_t revision;

    begin();
    r = claim();
    CHECK(r->succeeded && r->n_responses == 1);
    CHECK_NUM(r->responses[0]->response_case, ==,
              HF__ETCD__RESPONSE_OP__RESPONSE_RESPONSE_PUT);
    revision = r->header->revision;
    r = claim();
    CHECK(!r->succeeded && r->n_responses == 1);
    CHECK_NUM(r->responses[0]->response_case, ==,
              HF__ETCD__RESPONSE_OP__RESPONSE_RESPONSE_RANGE);
    CHECK_NUM(r->responses[0]->response_range->n_kvs, ==, 1);
    CHECK_NUM(r->responses[0]->response_range->kvs[0]->create_revision, ==, revision);
    CHECK_NUM(r->header->revision, ==, revision); /* nothing was written */
    end();
}

static void leases(void)
{
    Hf__Etcd__LeaseRevokeRequest rq = HF__ETCD__LEASE_REVOKE_REQUEST__INIT;
    const struct reply *o;
    int64_t lease;

    begin();
    lease = grant(60);
    put("l", "v", lease);
    CHECK_NUM(alive(lease), ==, 60);
    rq.id = lease;
    ok(ETCD_LEASE_REVOKE, &rq);
    CHECK_NUM(count_of("l"), ==, 0);
    CHECK_NUM(alive(lease), ==, 0); /* not an error */
    o = asked(ETCD_LEASE_REVOKE, &rq);
    CHECK_NUM(o->status, ==, GRPC_NOT_FOUND);
    CHECK_STR(o->text, "etcdserver: requested lease not found");
    CHECK_NUM(w.losses, ==, 0);
    end();
}

/* A lease that is kept alive outlives its time; one that is not ends, and its key with it,
 * which a watch tells. */
static void lease_expires(void)
{
    int64_t kept, left, until;

    begin();
    kept = grant(LEASE_TTL);
    left = grant(LEASE_TTL);
    watch("e/", "e0", 0, false);
    put("e/kept", "v", kept);
    put("e/left", "v", left);
    until = now_ms() + 3000 * LEASE_TTL;
    while (now_ms() < until) {
        int64_t next = now_ms() + 300;

        CHECK_NUM(alive(kept), ==, LEASE_TTL);
        while (now_ms() < next)
            turn();
    }
    UNTIL(w.nevents == 3);
    CHECK(w.events[2].deleted);
    CHECK_STR(w.events[2].key, "e/left");
    CHECK_NUM(count_of("e/kept"), ==, 1);
    CHECK_NUM(alive(left), ==, 0);
    end();
}

/* ---- watches --------------------------------------------------------------------- */

static void tell(int what, int64_t id)
{
    Hf__Etcd__WatchProgressRequest progress = HF__ETCD__WATCH_PROGRESS_REQUEST__INIT;
    Hf__Etcd__WatchCancelRequest cancel = HF__ETCD__WATCH_CANCEL_REQUEST__INIT;
    Hf__Etcd__WatchRequest q = HF__ETCD__WATCH_REQUEST__INIT;

    q.request_case = (Hf__Etcd__WatchRequest__RequestCase)what;
    cancel.watch_id = id;
    if (what == HF__ETCD__WATCH_REQUEST__REQUEST_CANCEL_REQUEST)
        q.cancel_request = &cancel;
    else
        q.progress_request = &progress;
    hf__etcd_tell_watch(&w.c, &q);
}

static void watches(void)
{
    Hf__Etcd__DeleteRangeRequest dq = HF__ETCD__DELETE_RANGE_REQUEST__INIT;
    int64_t a, b, revision;

    begin();
    a = watch("w/a", "", 0, false);
    b = watch("w/", "w0", 0, false);
    CHECK(a != b);
    revision = put("w/a", "abc", 0);
    UNTIL(w.nevents == 2);
    for (size_t i = 0; i < 2; i++) {
        CHECK_STR(w.events[i].key, "w/a");
        CHECK_NUM(w.events[i].revision, ==, revision);
        CHECK_NUM(w.events[i].value_len, ==, 3);
        CHECK(!w.events[i].deleted);
    }
    CHECK_NUM(w.events[0].watch_id + w.events[1].watch_id, ==, a + b);
    tell(HF__ETCD__WATCH_REQUEST__REQUEST_CANCEL_REQUEST, a);
    UNTIL(w.canceled_id == a);
    CHECK_NUM(w.compact_revision, ==, 0);
    tell(HF__ETCD__WATCH_REQUEST__REQUEST_PROGRESS_REQUEST, 0);
    UNTIL(w.progress == 1);
    dq.key = bytes("w/a");
    ok(ETCD_DELETE_RANGE, &dq);
    UNTIL(w.nevents == 3);
    CHECK(w.events[2].deleted && w.events[2].watch_id == b);
    CHECK_NUM(w.events[2].prev_len, ==, 3);
    end();
}

/* A watch from a revision that the server has thrown away. */
static void watch_of_the_past(void)
{
    int64_t first, last = 0;
    char args[64];

    begin();
    first = put("p", "1", 0);
    for (int i = 0; i < 5; i++)
        last = put("p", "2", 0);
    snprintf(args, sizeof(args), "compact %lld", (long long)last);
    etcd_ctl(etcd, args);
    watch("p", "", first, false);
    UNTIL(w.canceled_id != -2);
    CHECK_NUM(w.compact_revision, ==, last);
    CHECK_NUM(w.nevents, ==, 0);
    CHECK_NUM(w.losses, ==, 0); /* the stream goes on */
    watch("p", "", 0, false);
    end();
}

static void fill(const char *prefix)
{
    char key[KEY], *value = malloc(BIG_VALUE + 1);

    CHECK(value);
    memset(value, 'x', BIG_VALUE);
    value[BIG_VALUE] = 0;
    for (int i = 0; i < BIG_KEYS; i++) {
        snprintf(key, sizeof(key), "%s%03d", prefix, i);
        put(key, value, 0);
    }
    free(value);
}

static void events_in_fragments(void)
{
    int64_t from;

    begin();
    from = put("f/", "", 0);
    fill("f/");
    watch("f/", "f0", from, true);
    UNTIL(w.nevents == BIG_KEYS + 1);
    CHECK_NUM(w.fragments, >, 0);
    for (size_t i = 1; i < w.nevents; i++) {
        CHECK_NUM(w.events[i].revision, ==, from + (int64_t)i);
        CHECK_NUM(w.events[i].value_len, ==, BIG_VALUE);
    }
    end();
}

/* ---- much ------------------------------------------------------------------------ */

/* 8 MB several times at once, with small calls between them: windows are given back. */
static void big_answers(void)
{
    Hf__Etcd__RangeRequest q = HF__ETCD__RANGE_REQUEST__INIT;
    struct reply big[4], small;

    begin();
    fill("b/");
    q.key = bytes("b/");
    q.range_end = bytes("b0");
    for (int i = 0; i < 4; i++)
        ask(&big[i], ETCD_RANGE, &q);
    q.range_end = bytes("");
    ask(&small, ETCD_RANGE, &q);
    for (int i = 0; i < 4; i++) {
        const Hf__Etcd__RangeResponse *r;

        UNTIL(big[i].answers == 1);
        CHECK(!big[i].nothing && big[i].status == GRPC_OK);
        r = big[i].body;
        CHECK_NUM(r->n_kvs, ==, BIG_KEYS);
        for (size_t k = 0; k < BIG_KEYS; k++)
            CHECK_NUM(r->kvs[k]->value.len, ==, BIG_VALUE);
        reply_done(&big[i]);
    }
    UNTIL(small.answers == 1);
    reply_done(&small);
    CHECK_NUM(w.losses, ==, 0);
    end();
}

/* An answer that is too large fails its call, and nothing else. */
static void too_big_an_answer(void)
{
    Hf__Etcd__RangeRequest q = HF__ETCD__RANGE_REQUEST__INIT;
    const struct reply *o;

    begin();
    fill("b/1");
    fill("b/2");
    fill("b/3"); /* 24 MB */
    q.key = bytes("b/");
    q.range_end = bytes("b0");
    o = asked(ETCD_RANGE, &q);
    CHECK_NUM(o->status, ==, GRPC_RESOURCE_EXHAUSTED);
    CHECK_STR(o->text, "a message of more than 16 MiB");
    CHECK_NUM(count_of("b/1000"), ==, 1);
    CHECK_NUM(w.losses, ==, 0);
    end();
}

static void a_thousand_calls(void)
{
    static struct reply calls[MANY];
    Hf__Etcd__PutRequest q = HF__ETCD__PUT_REQUEST__INIT;
    Hf__Etcd__RangeRequest rq = HF__ETCD__RANGE_REQUEST__INIT;
    const Hf__Etcd__RangeResponse *r;
    int64_t lowest = INT64_MAX, highest = 0;
    char key[KEY];

    begin();
    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof(key), "m/%04d", i);
        q.key = bytes(key);
        ask(&calls[i], ETCD_PUT, &q);
    }
    for (int i = 0; i < MANY; i++) {
        const Hf__Etcd__PutResponse *put;

        UNTIL(calls[i].answers > 0);
        CHECK(!calls[i].nothing && calls[i].status == GRPC_OK);
        put = calls[i].body;
        lowest = put->header->revision < lowest ? put->header->revision : lowest;
        highest = put->header->revision > highest ? put->header->revision : highest;
        reply_done(&calls[i]);
    }
    CHECK_NUM(highest - lowest, ==, MANY - 1);
    for (int i = 0; i < MANY; i++)
        CHECK_NUM(calls[i].answers, ==, 1);
    rq.key = bytes("m/");
    rq.range_end = bytes("m0");
    r = ok(ETCD_RANGE, &rq);
    CHECK_NUM(r->n_kvs, ==, MANY);
    end();
}

/* ---- ends ------------------------------------------------------------------------ */

/* Calls of every kind are under way when the connection is cut: DOWN, then each is told
 * once that it has no answer; then the next connection works. */
static void cut_in_the_middle(void)
{
    enum { N = 60 };
    Hf__Etcd__LeaseKeepAliveRequest kq = HF__ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;
    Hf__Etcd__WatchCreateRequest create = HF__ETCD__WATCH_CREATE_REQUEST__INIT;
    Hf__Etcd__WatchRequest wq = HF__ETCD__WATCH_REQUEST__INIT;
    Hf__Etcd__PutRequest pq = HF__ETCD__PUT_REQUEST__INIT;
    static struct reply calls[N];
    struct proxy *proxy;

    etcd = etcd_place_new(1);
    etcd_start_all(etcd);
    proxy = proxy_new(etcd->servers[0].port);
    world_begin(proxy_port(proxy));
    kq.id = grant(60);
    CHECK_NUM(alive(kq.id), ==, 60);
    watch("c/", "c0", 0, false);
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
    create.key = pq.key = bytes("c/k");
    wq.request_case = HF__ETCD__WATCH_REQUEST__REQUEST_CREATE_REQUEST;
    wq.create_request = &create;
    for (int i = 0; i < N; i++)
        ask(&calls[i],
            i % 3 == 0   ? ETCD_PUT
            : i % 3 == 1 ? ETCD_KEEP_ALIVE
                         : ETCD_WATCH,
            i % 3 == 0   ? (const void *)&pq
            : i % 3 == 1 ? (const void *)&kq
                         : (const void *)&wq);
    UNTIL(proxy_kept(proxy, PROXY_DOWN) > 0); /* some answers were on their way */
    CHECK_NUM(w.unanswered, ==, 0);
    proxy_drop(proxy);
    UNTIL(w.losses == 1);
    CHECK_NUM(w.downs, ==, 1);
    CHECK_NUM(w.order, ==, 0);
    CHECK_NUM(w.unanswered, ==, N);
    for (int i = 0; i < N; i++)
        CHECK(calls[i].answers == 1 && calls[i].nothing);
    proxy_freeze(proxy, PROXY_FUTURE, 0);
    UNTIL(w.ups == 2);
    CHECK_NUM(count_of("c/k"), ==, 1);
    CHECK_NUM(alive(kq.id), ==, 60);
    watch("c/", "c0", 0, false);
    put("c/k", "again", 0);
    UNTIL(w.nevents > 0);
    world_end();
    proxy_free(proxy);
    etcd_place_stop(etcd);
}

static void cut_while_an_answer_comes(void)
{
    Hf__Etcd__RangeRequest q = HF__ETCD__RANGE_REQUEST__INIT;
    struct proxy *proxy;

    etcd = etcd_place_new(1);
    etcd_start_all(etcd);
    proxy = proxy_new(etcd->servers[0].port);
    world_begin(proxy_port(proxy));
    fill("x/");
    q.key = bytes("x/");
    q.range_end = bytes("x0");
    for (long n = 1; n < 8000000; n = n * 7 + 3) {
        int ups = w.ups;
        const struct reply *o;

        proxy_cut_after(proxy, n);
        o = asked(ETCD_RANGE, &q);
        CHECK(o->nothing);
        proxy_cut_after(proxy, -1);
        UNTIL(w.ups > ups);
    }
    ok(ETCD_RANGE, &q);
    world_end();
    proxy_free(proxy);
    etcd_place_stop(etcd);
}

/* The server is told to stop while streams are open. (3.4 then closes the connection and
 * sends no GOAWAY; what comes of one is in test_etcd_wire.) */
static void server_leaves(void)
{
    int64_t lease;

    begin();
    lease = grant(60);
    alive(lease);
    watch("g/", "g0", 0, false);
    CHECK(kill(etcd->servers[0].pid, SIGTERM) == 0);
    UNTIL(w.losses > 0);
    CHECK_NUM(w.why.code, ==, HF_EUNREACHABLE);
    UNTIL(!server_runs(&etcd->servers[0]));
    etcd_run(etcd, 0);
    UNTIL(w.ups == 2);
    etcd_await(etcd, 0);
    CHECK_NUM(alive(lease), ==, 60);
    end();
}

/* A member that stands still is late; what was asked is unanswered. */
static void server_stands_still(void)
{
    Hf__Etcd__PutRequest q = HF__ETCD__PUT_REQUEST__INIT;
    struct reply o;
    int64_t since;

    begin();
    put("s", "1", 0);
    w.limit_ms = 700;
    server_freeze(&etcd->servers[0]);
    q.key = bytes("s");
    since = now_ms();
    ask(&o, ETCD_PUT, &q);
    UNTIL(o.answers == 1);
    CHECK(o.nothing);
    CHECK_NUM(o.at_ms - since, >=, 700);
    CHECK_NUM(w.order, ==, 0);
    CHECK_STR(w.why.text, "no answer within 700 ms");
    server_continue(&etcd->servers[0]);
    w.limit_ms = LIMIT_MS;
    UNTIL(w.ups >= 2);
    put("s", "2", 0);
    end();
}

/* It speaks HTTP/1. */
static void another_protocol(void)
{
    etcd = etcd_place_new(1);
    etcd_start_all(etcd);
    world_open(etcd->health[0], NULL, NULL);
    w.no_up = true;
    UNTIL(w.losses > 0);
    CHECK_NUM(w.why.code, ==, HF_EPROTO);
    CHECK_STR(w.why.text, "the server does not speak HTTP/2");
    end();
}

static const struct test_case cases[] = {
    { "server-tells-who-it-is", server_tells_who_it_is, ON_BLOCKING, 0, 0 },
    { "keys", keys, ON_BLOCKING, 0, 0 },
    { "transactions", transactions, ON_BLOCKING, 0, 0 },
    { "leases", leases, ON_BLOCKING, 0, 0 },
    { "lease-expires", lease_expires, ON_BLOCKING, 0, 0 },
    { "watches", watches, ON_BLOCKING, 0, 0 },
    { "watch-of-the-past", watch_of_the_past, ON_BLOCKING, 0, 0 },
    { "events-in-fragments", events_in_fragments, ON_BLOCKING, 0, 0 },
    { "big-answers", big_answers, ON_BLOCKING, 0, 0 },
    { "too-big-an-answer", too_big_an_answer, ON_BLOCKING, 0, 0 },
    { "a-thousand-calls", a_thousand_calls, ON_BLOCKING, 0, 0 },
    { "cut-in-the-middle", cut_in_the_middle, ON_BLOCKING, 0, 0 },
    { "cut-while-an-answer-comes", cut_while_an_answer_comes, ON_BLOCKING, 0, 0 },
    { "server-leaves", server_leaves, ON_BLOCKING, 0, 0 },
    { "server-stands-still", server_stands_still, ON_BLOCKING, 0, 0 },
    { "another-protocol", another_protocol, ON_BLOCKING, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};

const struct test_case *const tables[] = { cases, etcd_member_cases, NULL };
