/* test_etcd_answers.c: what the driver concludes from answers. From one that is no success:
 * refused, so nothing was done and nothing will be, and the connection stays; or nobody
 * knows (G7), and the connection is given up: then the ticket is looked for on another one.
 * The texts are those of etcd 3.4 to 3.6 (rpctypes/error.go); some of these answers no test
 * can bring a healthy server to. */
#include "driver/etcd/etcd.h"
#include "fake_clock.h"
#include "unit.h"

static const struct {
    int status;
    const char *text;
    int rc; /* > 0: nobody knows; else what its caller is told */
} cases[] = {
    { GRPC_NOT_FOUND, "etcdserver: requested lease not found", HF_EPROTO },
    { GRPC_FAILED_PRECONDITION, "etcdserver: lease already exists", HF_EPROTO },
    { GRPC_OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted",
      HF_EPROTO },
    { GRPC_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", HF_EFULL },
    { GRPC_PERMISSION_DENIED, "etcdserver: permission denied", HF_EAUTH },
    { GRPC_INVALID_ARGUMENT, "etcdserver: key is not provided", HF_EPROTO },
    { GRPC_UNIMPLEMENTED, "unknown service", HF_EVERSION },
    { GRPC_RESOURCE_EXHAUSTED, "etcdserver: too many requests", 1 },
    { GRPC_RESOURCE_EXHAUSTED, "the stream was reset, code 11", 1 },
    { GRPC_UNAVAILABLE, "etcdserver: request timed out", 1 },
    { GRPC_UNAVAILABLE,
      "etcdserver: request timed out, possibly due to previous leader failure", 1 },
    { GRPC_UNAVAILABLE, "etcdserver: request timed out, possibly due to connection lost",
      1 },
    { GRPC_UNAVAILABLE,
      "etcdserver: request timed out, waiting for the applied index took too long", 1 },
    { GRPC_UNAVAILABLE, "etcdserver: leader changed", 1 },
    { GRPC_UNAVAILABLE, "etcdserver: no leader", 1 },
    { GRPC_UNAVAILABLE, "etcdserver: server stopped", 1 },
    { GRPC_UNAVAILABLE, "etcdserver: rpc not supported for learner", 1 },
    { GRPC_UNAVAILABLE, "etcdserver: corrupt cluster", 1 },
    { GRPC_DEADLINE_EXCEEDED, "context deadline exceeded", 1 },
    { GRPC_CANCELLED, "etcdserver: request cancelled", 1 },
    { GRPC_UNKNOWN, "etcdserver: not leader", 1 },
    { GRPC_INTERNAL, "an answer of an unexpected form", 1 },
    { GRPC_DATA_LOSS, "etcdserver: corrupt alarm", 1 },
    { GRPC_UNAUTHENTICATED, "etcdserver: invalid auth token", 1 },
    { GRPC_INVALID_ARGUMENT, "etcdserver: revision of auth store is old", 1 },
    { GRPC_INVALID_ARGUMENT, "etcdserver: user name is empty", 1 },
};

static void env_random(struct env *e, void *buf, size_t n)
{
    (void)e;
    memset(buf, 0, n);
}

static struct etcd *connected(struct list *dirty)
{
    struct etcd *e = calloc(1, sizeof *e);

    assert_non_null(e);
    list_init(dirty);
    list_init(&e->leases);
    e->open.nhosts = 1;
    clock_start(1000000000, env_random);
    hf__etcd_conn_init(&e->conn, &clk.env, &hf__etcd_events, dirty, 1000);
    e->conn.to.shown = "here";
    e->conn.link.state = LINK_UP;
    return e;
}

static void answers_are_refusals_or_leave_it_open(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct etcd_answer a = { .status = cases[i].status, .text = cases[i].text };
        struct list dirty;
        struct etcd *e = connected(&dirty);
        hf_error err;

        assert_int_equal(hf__etcd_result(e, &a, &err), cases[i].rc);
        assert_int_equal(e->conn.link.broken, cases[i].rc > 0);
        assert_int_equal(hf__etcd_no_lease(&a), i == 0);
        /* a look or a cell is always told something */
        assert_true(hf__etcd_query_result(e, &a, &err) < 0);
        list_remove(&e->conn.link.on_dirty);
        e->conn.link.state = LINK_CLOSED;
        hf__etcd_conn_done(&e->conn);
        free(e);
    }
}

static void no_answer_leaves_it_open(void **state)
{
    struct list dirty;
    struct etcd *e = connected(&dirty);
    hf_error err;

    (void)state;
    assert_int_equal(hf__etcd_result(e, NULL, &err), 1);
    assert_false(e->conn.link.broken); /* it is lost already */
    assert_int_equal(hf__etcd_query_result(e, NULL, &err), HF_EUNREACHABLE);
    e->conn.link.state = LINK_CLOSED;
    hf__etcd_conn_done(&e->conn);
    free(e);
}

static struct etcd_lease *granted(struct etcd *e)
{
    struct etcd_lease *l = calloc(1, sizeof *l);

    assert_non_null(l);
    l->life = hf__life_new(&e->store, LIFE_WIDE, 10000);
    assert_non_null(l->life);
    l->of = e;
    l->id = 7;
    l->life->sent_at = clk.now;
    list_push(&e->leases, &l->node);
    return l;
}

/* Keep-alives go to the leader, and take longer than a list of our own member. A waiter
 * whose key is missing in each list until the first keep-alive has been answered must not
 * ask for a later one in each of them: it would be answered as late as the next. */
static void a_key_is_missed_from_the_first_time_on(void **state)
{
    struct list dirty;
    struct etcd *e = connected(&dirty);
    struct etcd_line *line = calloc(1, sizeof *line + 4);
    struct ticket t = { .name = "n" };
    struct etcd_seat s = { .seat.t = &t, .seat.state = SEAT_WAITING, .seat.fence = 5 };
    struct link_call *call;
    int64_t first;

    (void)state;
    assert_non_null(line);
    e->conn.link.state = LINK_CLOSED; /* nothing is sent */
    e->store.env = &clk.env;
    hf__ordered_init(&e->ordered, &hf__etcd_ordered, &e->store);
    hf__ordered_line_init(&e->ordered, &line->line);
    list_init(&line->to_create);
    s.seat.of = &e->ordered;
    s.seat.line = &line->line;
    s.lease = granted(e);
    list_push(&line->line.seats, &s.seat.in_line);
    hf__etcd_seat_missed(&s);
    first = clk.now;
    clk.now += 6000;
    hf__etcd_line_listed(line, &(Hf__Etcd__RangeResponse)HF__ETCD__RANGE_RESPONSE__INIT,
                         NULL, 9, false);
    assert_int_equal(s.seat.state, SEAT_WAITING);
    assert_true(etcd_ticket(&t)->gone_at <=
                first); /* a keep-alive that was sent then is enough */
    while ((call = hf__link_take(&e->conn.link)) != NULL)
        hf__etcd_call_free(container_of(call, struct etcd_call, call));
    list_remove(&s.seat.in_line);
    list_remove(&s.lease->node);
    free(s.lease->life);
    free(s.lease);
    free(line);
    hf__etcd_conn_done(&e->conn);
    free(e);
}

/* ---- what is old ----------------------------------------------------------------- */

/* A line with a ticket of somebody else's (a.1, created at 9) and one of ours that waits
 * (7.1, created at 12). Nothing is sent. */
static struct world {
    struct list dirty;
    struct etcd *e;
    struct etcd_line *line;
    struct ticket t;
    struct etcd_seat s;
} wd;

static struct ordered_entry *entry(int64_t seq, const char *name)
{
    const struct ordered_place place = { seq, LINE_LOCK, HF_FULL, HF_FULL };
    struct ordered_entry *e = hf__ordered_entry(&place, name, strlen(name));

    assert_non_null(e);
    assert_true(hf__ordered_insert(&wd.line->line, e));
    return e;
}

static struct ordered_entry *begin(void)
{
    struct ordered_entry *other;

    memset(&wd, 0, sizeof wd);
    wd.e = connected(&wd.dirty);
    wd.e->conn.link.state = LINK_CLOSED;
    wd.e->store.env = &clk.env;
    assert_int_equal(hf__map_init(&wd.e->watches), 0);
    assert_int_equal(hf__map_init(&wd.e->lines), 0);
    hf__ordered_init(&wd.e->ordered, &hf__etcd_ordered, &wd.e->store);
    wd.e->ordered.up = true;
    wd.line = calloc(1, sizeof *wd.line + 2);
    assert_non_null(wd.line);
    memcpy(wd.line->key, "n/", 2);
    wd.line->key_len = 2;
    list_init(&wd.line->to_create);
    hf__map_insert(&wd.e->lines, &wd.line->node, 1);
    hf__ordered_line_init(&wd.e->ordered, &wd.line->line);
    wd.t = (struct ticket){ .name = "n", .weight = HF_FULL, .capacity = HF_FULL };
    wd.s = (struct etcd_seat){ .seat = { .t = &wd.t,
                                         .of = &wd.e->ordered,
                                         .line = &wd.line->line,
                                         .state = SEAT_WAITING,
                                         .fence = 12 },
                               .key_lease = 7,
                               .number = 1 };
    list_init(&wd.s.seat.queue);
    wd.s.lease = granted(wd.e);
    wd.s.lease->life->given_ms = 10000;
    list_push(&wd.line->line.seats, &wd.s.seat.in_line);
    other = entry(9, "a.1");
    wd.s.seat.entry = entry(12, "7.1");
    wd.s.seat.entry->seat = &wd.s.seat;
    return other;
}

static void end(void)
{
    struct link_call *call;

    while ((call = hf__link_take(&wd.e->conn.link)) != NULL)
        hf__etcd_call_free(container_of(call, struct etcd_call, call));
    list_remove(&wd.s.seat.in_line);
    wd.line->line.pins = 0;
    hf__ordered_line_drop(&wd.line->line);
    list_remove(&wd.s.lease->node);
    free(wd.s.lease->life);
    free(wd.s.lease);
    hf__map_done(&wd.e->watches);
    hf__map_done(&wd.e->lines);
    hf__etcd_conn_done(&wd.e->conn);
    free(wd.e);
}

static void tell_end(uint32_t watch, int64_t revision)
{
    Hf__Etcd__KeyValue kv = HF__ETCD__KEY_VALUE__INIT;
    Hf__Etcd__Event ev = HF__ETCD__EVENT__INIT, *evs[] = { &ev };
    Hf__Etcd__ResponseHeader header = HF__ETCD__RESPONSE_HEADER__INIT;
    Hf__Etcd__WatchResponse r = HF__ETCD__WATCH_RESPONSE__INIT;

    kv.key = hf__etcd_bytes("n/a.1", 5);
    kv.mod_revision = header.revision = revision;
    ev.type = HF__ETCD__EVENT__EVENT_TYPE__DELETE;
    ev.kv = &kv;
    r.header = &header;
    r.watch_id = watch;
    r.events = evs;
    r.n_events = 1;
    hf__etcd_watched(&wd.e->conn, &r);
}

/* Names are used again. Behind a proxy that spreads streams over the members a watch may
 * begin at one that lags, and tells of the end of the ticket that had the name before. */
static void the_end_of_an_earlier_ticket_of_that_name_means_nothing(void **state)
{
    struct ordered_entry *other = begin();
    uint32_t id;

    (void)state;
    assert_non_null(hf__etcd_watch(wd.line, other));
    id = other->own;
    tell_end(id, 8);
    assert_int_equal(wd.line->line.n, 2);
    assert_false(wd.s.seat.confirming);
    tell_end(id, 13);
    assert_int_equal(wd.line->line.n, 1);
    assert_true(wd.s.seat.confirming);
    end();
}

/* A read says that our key has gone. A list that was sent before that, and is older, shows
 * it still, and now first in line. */
static void a_ticket_that_has_gone_is_not_granted_by_an_older_list(void **state)
{
    Hf__Etcd__KeyValue kv = HF__ETCD__KEY_VALUE__INIT, *kvs[] = { &kv };
    Hf__Etcd__RangeResponse r = HF__ETCD__RANGE_RESPONSE__INIT;

    (void)state;
    begin();
    wd.line->line.lists = 1;
    hf__ordered_told(&wd.e->ordered, 20);
    hf__etcd_seat_missed(&wd.s);
    kv.key = hf__etcd_bytes("n/7.1", 5);
    kv.create_revision = kv.mod_revision = 12;
    kv.lease = 7;
    r.kvs = kvs;
    r.n_kvs = 1;
    hf__etcd_line_listed(wd.line, &r, NULL, 15, false);
    assert_int_equal(wd.s.seat.state, SEAT_WAITING);
    assert_true(wd.line->line.stale);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_refusals_or_leave_it_open),
        cmocka_unit_test(no_answer_leaves_it_open),
        cmocka_unit_test(a_key_is_missed_from_the_first_time_on),
        cmocka_unit_test(the_end_of_an_earlier_ticket_of_that_name_means_nothing),
        cmocka_unit_test(a_ticket_that_has_gone_is_not_granted_by_an_older_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
