/* etcd.c: the least that an etcd server could do for the same, on a connection of our own.
 *
 *   a pair      a put of a ticket's key and its deletion, each a transaction without
 *               conditions, and awaited: a lock cannot do without transactions, which cost
 *               the server more than a plain put
 *   in flight   the same by one connection, so many under way at once
 *   a hand-off  a deletion and the event that tells the other of it; keys and watches are
 *               made in advance, HAND of them, outside of the time
 *   too late    the same by a client that watches from a revision that was read just
 *               before, as Go's Mutex does: the server counts such a watch as one that lags
 *               behind. Beside it, and beside ours then, somebody writes another key
 *
 * Keys are as long as the library's, with as much in them, and lie where no name of a lock
 * leads to. They hang on no lease: what is left after a kill stays. */
#include "stores/link.h"

#include "stores/grpc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { HAND = 32, FLIGHT_MOST = 64, KEY_MOST = 1400 };

struct raw {
    struct grpc_link *link;
    int round; /* of hand-offs: watches stay, so no key is used twice */
    int hand;  /* the key that is deleted in this one */
    char base[KEY_MOST - 128];
};

static ProtobufCBinaryData key(const struct raw *r, char text[KEY_MOST], int index, int i)
{
    int n = snprintf(text, KEY_MOST, "%s%d/0123456789abcdef.0123456789abcdef01234567%08x",
                     r->base, index, (unsigned)i);

    return (ProtobufCBinaryData){ (size_t)n, (uint8_t *)text };
}

static int del(struct raw *r, int index, int i, int slot)
{
    Hf__Etcd__DeleteRangeRequest q = HF__ETCD__DELETE_RANGE_REQUEST__INIT;
    char text[KEY_MOST];

    q.key = key(r, text, index, i);
    return grpc_call(r->link, "/etcdserverpb.KV/DeleteRange", &q.base, slot);
}

static int txn(struct raw *r, Hf__Etcd__RequestOp *op, int slot)
{
    Hf__Etcd__TxnRequest q = HF__ETCD__TXN_REQUEST__INIT;

    q.n_success = 1;
    q.success = &op;
    return grpc_call(r->link, "/etcdserverpb.KV/Txn", &q.base, slot);
}

static int put(struct raw *r, int index, int i, int slot)
{
    static char value[200];
    Hf__Etcd__PutRequest q = HF__ETCD__PUT_REQUEST__INIT;
    Hf__Etcd__RequestOp op = HF__ETCD__REQUEST_OP__INIT;
    char text[KEY_MOST];

    memset(value, 'v', sizeof value);
    q.key = key(r, text, index, i);
    q.value = (ProtobufCBinaryData){ sizeof value, (uint8_t *)value };
    op.request_case = HF__ETCD__REQUEST_OP__REQUEST_REQUEST_PUT;
    op.request_put = &q;
    return txn(r, &op, slot);
}

static int del_txn(struct raw *r, int index, int i, int slot)
{
    Hf__Etcd__DeleteRangeRequest q = HF__ETCD__DELETE_RANGE_REQUEST__INIT;
    Hf__Etcd__RequestOp op = HF__ETCD__REQUEST_OP__INIT;
    char text[KEY_MOST];

    q.key = key(r, text, index, i);
    op.request_case = HF__ETCD__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
    op.request_delete_range = &q;
    return txn(r, &op, slot);
}

/* All that are under way. */
static int answers(struct raw *r)
{
    int status = 0;

    while (status == 0 && r->link->open > 0) {
        status = grpc_wait(r->link);
        while (grpc_take(r->link) >= 0)
            ;
    }
    return status;
}

/* ---- opening --------------------------------------------------------------------- */

static int raw_open(struct worker *w)
{
    struct raw *r = w->raw = calloc(1, sizeof *r);
    struct link_target to;
    const char *path;

    if (!r) {
        cli_say("out of memory");
        return EXIT_SYSTEM;
    }
    if (!link_read(&to, w->bench->url, "2379"))
        return link_broken("the URL");
    path = to.path[0] == '/' ? to.path + 1 : to.path;
    snprintf(r->base, sizeof r->base, "%.1000s%s/bench/%s/", path, path[0] ? "/" : "",
             strrchr(w->bench->prefix, '/') + 1);
    return grpc_open(&r->link, &to);
}

static void raw_close(struct worker *w)
{
    struct raw *r = w->raw;

    if (!r)
        return;
    grpc_close(r->link);
    free(r);
    w->raw = NULL;
}

/* ---- pairs ----------------------------------------------------------------------- */

static int raw_pair(struct worker *w)
{
    struct raw *r = w->raw;
    int status = put(r, w->index, 0, 0);

    if (status == 0)
        status = answers(r);
    if (status == 0)
        status = del_txn(r, w->index, 0, 0);
    return status ? status : answers(r);
}

/* ---- hand-off -------------------------------------------------------------------- */

static int watch(struct raw *r, int index, int i, int64_t start)
{
    Hf__Etcd__WatchCreateRequest create = HF__ETCD__WATCH_CREATE_REQUEST__INIT;
    Hf__Etcd__WatchRequest q = HF__ETCD__WATCH_REQUEST__INIT;
    char text[KEY_MOST];
    int status;

    create.key = key(r, text, index, i);
    create.start_revision = start;
    q.request_case = HF__ETCD__WATCH_REQUEST__REQUEST_CREATE_REQUEST;
    q.create_request = &create;
    status = grpc_watch(r->link, &q);
    while (status == 0 && r->link->watch->created == 0)
        status = grpc_wait(r->link);
    if (status == 0)
        r->link->watch->created--;
    return status;
}

/* Keys of our own, and watches on those of the other. */
static int deal(struct worker *w, int round)
{
    struct raw *r = w->raw;
    char go = 'p';
    int status = 0;

    for (int i = 0; i < HAND && status == 0; i++)
        status = put(r, w->index, round * HAND + i, 0);
    if (status == 0)
        status = answers(r);
    if (status == 0)
        status = bench_meet(w, &go);
    for (int i = 0; i < HAND && status == 0; i++)
        status = watch(r, 1 - w->index, round * HAND + i, 0);
    return status ? status : bench_meet(w, &go);
}

static int get(struct raw *r)
{
    int status = 0;

    while (status == 0 && r->link->watch->deleted == 0) {
        status = grpc_wait(r->link);
        while (grpc_take(r->link) >= 0) /* of the deletion before */
            ;
    }
    r->link->watch->deleted--;
    return status;
}

static int give(struct worker *w)
{
    struct raw *r = w->raw;
    int status = del(r, w->index, r->hand, 0);

    return status ? status : answers(r);
}

static int take(struct worker *w)
{
    return get(w->raw);
}

static int look(struct worker *w)
{
    Hf__Etcd__RangeRequest q = HF__ETCD__RANGE_REQUEST__INIT;
    struct raw *r = w->raw;
    char text[KEY_MOST];
    int status;

    q.key = key(r, text, w->index, 0);
    status = grpc_call(r->link, "/etcdserverpb.KV/Range", &q.base, 0);
    return status ? status : answers(r);
}

static const struct bench_turn turn = { look, give, take };

static int play(struct worker *w, int round)
{
    struct raw *r = w->raw;
    int status = 0;

    for (int i = 0; i < HAND && status == 0; i++) {
        r->hand = round * HAND + i;
        status = bench_turn(w, &turn);
    }
    return status;
}

static int raw_turns(struct worker *w, int64_t until)
{
    struct raw *r = w->raw;
    char go = 'p';
    int status = 0;

    for (; status == 0 && go == 'p'; r->round++) {
        status = deal(w, r->round);
        if (status == 0)
            status = play(w, r->round);
        go = bench_now() < until ? 'p' : 'q';
        if (status == 0)
            status = bench_meet(w, &go);
    }
    return status;
}

/* ---- hand-off of one who listens too late ---------------------------------------- */

/* The other's key is there, and is deleted when we watch it. */
static int late_get(struct worker *w, int i, int64_t *took)
{
    struct raw *r = w->raw;
    int status = bench_told(w, took); /* it is there */

    if (status == 0) /* of nothing, for the revision */
        status = watch(r, w->index, -1 - i, 0);
    if (status == 0)
        status = watch(r, 1 - w->index, i, r->link->watch->revision);
    if (status == 0)
        status = bench_tell(w, 0);
    return status ? status : bench_take(w, &turn, took);
}

static int late_give(struct worker *w, int i, int64_t *took)
{
    struct raw *r = w->raw;
    int status = put(r, w->index, i, 0);

    if (status == 0)
        status = answers(r);
    if (status == 0)
        status = bench_tell(w, 0);
    if (status == 0)
        status = bench_told(w, took); /* it watches */
    r->hand = i;
    return status ? status : bench_give(w, &turn, took);
}

static int raw_late(struct worker *w, int64_t until)
{
    struct raw *r = w->raw;
    char go = 'p';
    int status = 0;

    for (; status == 0 && go == 'p'; r->round++) {
        int i = r->round + 1000000; /* not those of raw_turns */
        int64_t there = 0, back = 0;

        status = w->index == 0 ? late_give(w, i, &there) : late_get(w, i, &there);
        if (status == 0)
            status = w->index == 0 ? late_get(w, i, &back) : late_give(w, i, &back);
        if (status == 0 && w->index == 0)
            bench_count_turns(w, there, back);
        go = bench_now() < until ? 'p' : 'q';
        if (status == 0)
            status = bench_meet(w, &go);
    }
    return status;
}

/* Not as fast as it can: the server shall have time for the others. */
static int raw_disturb(struct worker *w, int64_t until)
{
    const struct timespec pause = { .tv_nsec = 2000000 };
    struct raw *r = w->raw;
    int status = 0;

    while (status == 0 && bench_now() < until) {
        status = put(r, w->index, 0, 0);
        if (status == 0)
            status = answers(r);
        nanosleep(&pause, NULL);
    }
    return status;
}

/* ---- many in flight -------------------------------------------------------------- */

static int raw_flight(struct worker *w, int n, int64_t until)
{
    struct raw *r = w->raw;
    int64_t since[FLIGHT_MOST], start = bench_now(), now;
    bool holds[FLIGHT_MOST] = { false };
    int status = 0, i;

    for (i = 0; i < n && i < FLIGHT_MOST && status == 0; i++) {
        since[i] = start;
        status = put(r, w->index, i, i);
    }
    while (status == 0 && r->link->open > 0) {
        status = grpc_wait(r->link);
        while (status == 0 && (i = grpc_take(r->link)) >= 0) {
            now = bench_now();
            if (holds[i]) {
                w->slice->pairs++;
                samples_add(&w->slice->samples, (double)(now - since[i]) / 1e3);
                since[i] = now;
            }
            holds[i] = !holds[i];
            if (holds[i])
                status = del_txn(r, w->index, i, i);
            else if (now < until)
                status = put(r, w->index, i, i);
        }
    }
    w->slice->ns = bench_now() - start;
    return status;
}

/* Of several servers the library chooses one, and the limit must be that of the same one.
 */
static bool serves(const char *url)
{
    return strncmp(url, "etcd://", 7) == 0 &&
           !memchr(url + 7, ',', strcspn(url + 7, "/?")) &&
           !memchr(url + 7, '@', strcspn(url + 7, "/?"));
}

const struct bench_raw bench_raw_etcd = { .serves = serves,
                                          .open = raw_open,
                                          .close = raw_close,
                                          .pair = raw_pair,
                                          .turns = raw_turns,
                                          .turns_late = raw_late,
                                          .disturb = raw_disturb,
                                          .flight = raw_flight,
                                          .pair_most = 1.2,
                                          .turns_most = 1.3,
                                          .late_most = 1 / 20.0,
                                          .flight_most = 1 / 0.8,
                                          .polls = true,
                                          .is = "sleeping" };
