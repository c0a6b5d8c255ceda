/* net.c: the simulated network between driver and store: a stream of requests and one of
 * answers for each client and part of the store (parts.c), a channel for news, and
 * connections that break, fall silent, or lead to a follower that is cut off. What is under
 * way when a connection breaks is executed or lost, and its answer is lost in any case.
 *
 * The client's end of it is src/kit/link.c, the one that ships: it opens the connection,
 * says what has no answer, gives up one that does not answer in time, and opens the next.
 * Here is its transport, and what it tells. Every request is a call of the link, but looks
 * and, in a store like etcd, reads: those have a stream of their own, and the link does not
 * know of them.
 *
 * Invariants of the link
 *  - a call is answered once, and not inside its own sending
 *  - what was sent and has no answer is told after DOWN, all of it before `lost`
 *  - no connection is given up whose answer has come, or without a cause
 *  - while the server cannot be reached it is not asked more and more often; when it can
 *    be, the link is up soon (oracle_links in oracle.c) */
#include "sim.h"

#include <string.h>

enum { CONNECT_MS = 2000, TRIES = 8, PAUSE_LEAST_MS = 110 };

static struct wire *wire_at(const struct link *k)
{
    return container_of(k, struct wire, link);
}

/* ---- sending --------------------------------------------------------------------- */

static int64_t delay(struct sim_client *c, uint64_t salt)
{
    const struct plan *p = w.plan;
    uint64_t h = mix(p->seed ^ p->salt ^ mix((uint64_t)c->id << 32 | ++c->sent) ^ salt);
    int64_t us = p->delay_us + (int64_t)(h % (uint64_t)(p->jitter_us + 1));

    if (!w.quiet && (h >> 40) % 1000000 < p->slow_ppm) {
        us += (int64_t)(mix(h) % (uint64_t)(p->ttl_ms[0] * US));
        tally_sight(S_SLOW);
        in_trouble(c, w.now + us);
    }
    return us;
}

static bool without_memory(const struct sim_client *c)
{
    return w.procs[c->proc].no_memory_until > w.now && draw(3) == 0;
}

/* Whether its answer comes in the order of the requests: then it is a call of the link. */
static bool in_order(enum msg_kind kind)
{
    return kind != M_LOOK && !(kind == M_READ && w.plan->like_etcd);
}

static struct ev *to_store(const struct wire *x, const struct msg *m)
{
    const struct sim_client *c = x->c;
    struct ev *e = new_event(E_TO_STORE, 0);

    e->id = c->id;
    e->m = *m;
    e->m.id = c->id;
    e->m.epoch = x->epoch;
    e->m.asked = ++w.asked;
    if (w.plan->family == ORDERED)
        e->m.inc = c->inc;
    if (m->names)
        m->names->refs++;
    return e;
}

static void send_off(struct wire *x, struct ev *e)
{
    if (x->silent) {
        tally_sight(S_UNSENT);
        free_event(e);
        return;
    }
    e->at = w.now + delay(x->c, 1);
    if (e->at < x->last_out)
        e->at = x->last_out; /* one stream: nothing overtakes */
    x->last_out = e->at;
    push_event(e);
}

/* No transport doubles a join behind what follows it: its ticket could stand up again. */
static bool doubled(const struct sim_client *c, const struct msg *m)
{
    if (m->kind == M_READ || m->kind == M_HELLO || m->kind == M_JOIN || w.quiet ||
        mix(w.plan->seed ^ (c->ncalls + c->sent) * 77) % 1000000 >= w.plan->twice_ppm)
        return false;
    tally_sight(S_TWICE);
    return true;
}

static void write_out(struct wire *x, const struct msg *m)
{
    for (int copies = doubled(x->c, m) ? 2 : 1; copies > 0; copies--) {
        struct ev *e = to_store(x, m);

        e->next = NULL;
        *x->out_end = e;
        x->out_end = &e->next;
    }
}

void drv_send(struct sim_client *c, struct msg *m)
{
    struct wire *x = wire_to(c, m->line);
    struct call *k;

    if (w.plan->family == SYNC) {
        m->id = c->id;
        m->epoch = x->epoch;
        m->asked = ++w.asked;
        store_receive(m);
    } else if (!in_order(m->kind)) {
        for (int copies = doubled(c, m) ? 2 : 1; copies > 0 && link_open(&x->link);
             copies--)
            send_off(x, to_store(x, m));
    } else if ((k = net_call(c, m->kind, m->line)) != NULL) {
        c->message = m;
        net_start(c, k);
        c->message = NULL;
    } else {
        hf__link_fail(&x->link, HF_ENOMEM, "no memory for a request");
    }
}

void store_reply(const struct msg *to, struct msg *a)
{
    struct sim_client *c = w.by_id[to->id];
    struct wire *x = c ? wire_to(c, to->line) : NULL;
    struct ev *e;

    a->kind = to->kind - M_HELLO + R_HELLO;
    if (!x || x->silent) {
        free_snap(a->snap);
        return;
    }
    if (w.plan->family == SYNC) {
        driver_receive(c, a);
        return;
    }
    e = new_event(E_TO_CLIENT, w.now + delay(c, 2));
    if (!in_order(to->kind))
        e->at += (int64_t)draw((uint64_t)w.plan->look_us + 1);
    else if (e->at < x->last_in)
        e->at = x->last_in;
    else
        x->last_in = e->at;
    e->id = c->id;
    e->m = *a;
    push_event(e);
}

/* Events of a store that are in one order with its answers. */
static void notify_in_order(struct wire *x, struct msg *m)
{
    struct ev *e = new_event(E_TO_CLIENT, w.now + delay(x->c, 3));

    if (e->at < x->last_in)
        e->at = x->last_in;
    x->last_in = e->at;
    m->epoch = x->epoch;
    e->id = x->c->id;
    e->m = *m;
    push_event(e);
}

/* News that was not asked for comes on a channel of its own: it may overtake, come
 * twice, much later, or not at all. Of a client's own nodes an ordered store loses nothing,
 * but a member that lags tells it late. */
void store_notify(uint8_t id, struct msg *m)
{
    struct sim_client *c = w.by_id[id];
    struct wire *x = c ? wire_to(c, m->line) : NULL;
    int64_t late = 0;
    int copies = 1;

    if (x && m->kind == N_FIRED && m->now && w.plan->lags && x->up && !w.quiet)
        late = (int64_t)draw(LAG_US);
    if (x && m->kind == N_FIRED && !x->silent && !x->stale && late == 0 &&
        (!w.plan->like_etcd || m->now || !x->up)) {
        if (m->now || w.quiet || !x->up || draw(1000000) >= w.plan->wake_lost_ppm / 4)
            notify_in_order(x, m);
        else
            tally_sight(S_WAKE_LOST);
        return;
    }
    if (!x || x->silent || x->stale || !x->up)
        return;
    if (!w.quiet && late == 0 && draw(1000000) < w.plan->wake_lost_ppm) {
        copies = (int)draw(3);
        late = copies == 1 ? (int64_t)draw((uint64_t)w.plan->ttl_ms[0] * US) : 0;
        tally_sight(copies == 0 ? S_WAKE_LOST : copies == 1 ? S_WAKE_LATE : S_WAKE_TWICE);
    }
    while (copies-- > 0) {
        struct ev *e = new_event(E_TO_CLIENT, w.now + delay(c, 3) + late);

        m->epoch = x->epoch;
        e->id = id;
        e->m = *m;
        push_event(e);
    }
}

/* ---- calls ----------------------------------------------------------------------- */

struct call *net_call(struct sim_client *c, enum msg_kind kind, int line)
{
    for (int i = 0; i < CALLS; i++)
        if (c->calls[i].number == 0) {
            c->calls[i] = (struct call){ .kind = kind,
                                         .number = ++c->ncalls,
                                         .to = wire_to(c, line) };
            return &c->calls[i];
        }
    return NULL;
}

/* Under a new number if it is sent again: another copy may be answered, too. */
void net_start(struct sim_client *c, struct call *k)
{
    k->number = ++c->ncalls;
    k->written = false;
    k->to->under_way++;
    c->sending = k;
    hf__link_send(&k->to->link, &k->wire);
    c->sending = NULL;
}

/* It has its answer, or is told that there is none: once, and not before it was sent. */
static struct call settled(struct wire *x, struct link_call *wire)
{
    struct call *k = container_of(wire, struct call, wire), was = *k;
    const struct sim_client *c = x->c;

    if (was.number == 0)
        violate("link", "a call of client %u is answered twice", c->id);
    if (c->sending == k)
        violate("link", "a call of client %u is answered inside its own sending", c->id);
    x->under_way--;
    x->owed -= was.number <= x->ncalls_down;
    k->number = 0;
    return was;
}

/* Of a doubled request the second answer is one too many. */
bool net_takes(struct sim_client *c, const struct msg *m, struct call *ret)
{
    struct wire *x = wire_to(c, m->line);
    struct link_call *first = hf__link_oldest(&x->link);
    uint64_t number = first ? container_of(first, struct call, wire)->number : UINT64_MAX;

    if (w.plan->family == SYNC)
        return true;
    if (!link_open(&x->link))
        return false;
    if (m->kind >= N_GRANT || !in_order(m->kind - R_HELLO + M_HELLO))
        return true;
    if (m->call > number)
        violate("link", "client %u does not know of a call that is answered", c->id);
    if (m->call != number)
        return false;
    hf__link_answered(&x->link);
    *ret = settled(x, first);
    return true;
}

/* ---- the transport --------------------------------------------------------------- */

/* Unless another connection takes its place before. */
static void happens(const struct wire *x, enum ev_kind kind, int64_t at)
{
    struct ev *e = new_event(kind, at);

    e->id = x->c->id;
    e->n = x->epoch;
    e->m.line = (uint8_t)(x - x->c->wires);
    push_event(e);
}

/* What has come to the client by now, and was not read. */
static struct ev *unread(const struct wire *x)
{
    struct ev *first = NULL;

    for (size_t i = 0; i < w.nheap; i++) {
        struct ev *e = w.heap[i];

        if (e->kind == E_TO_CLIENT && e->id == x->c->id && wire_has(x, &e->m) &&
            e->at <= w.now && (!first || e->seq < first->seq))
            first = e;
    }
    return first;
}

static bool read_stream(struct link *k)
{
    struct wire *x = wire_at(k);
    bool any = false;
    struct ev *e;

    while (link_open(k) && (e = unread(x)) != NULL) {
        struct msg m = e->m;

        e->kind = E_NOTHING;
        e->m.snap = NULL;
        driver_receive(x->c, &m);
        tally_sight(S_READ_LATE);
        any = true;
    }
    return any;
}

/* The connection is over; whatever comes of it is nobody's. */
static void hang_up(struct wire *x)
{
    struct ev *e;

    sender_cut(x);
    while ((e = x->out) != NULL) {
        x->out = e->next;
        tally_sight(S_UNSENT);
        free_event(e);
    }
    x->out_end = &x->out;
    x->epoch++;
    x->silent = x->stale = false;
}

/* The longest pause is an eighth of CONNECT_MS, and half of it is certain; the first ones
 * are shorter. */
static void not_too_often(const struct wire *x)
{
    int64_t least = ((int64_t)x->link.failed - TRIES) * PAUSE_LEAST_MS * US;

    if (w.now - x->lost_at < least)
        violate("link", "client %u has tried to connect %zu times within %lld ms", x->c->id,
                x->link.failed, (long long)(w.now - x->lost_at) / US);
}

/* Nobody answers: a refusal comes at once, or nothing until the time is over. */
static int open_stream(struct link *k, int64_t ms, hf_error *err)
{
    struct wire *x = wire_at(k);
    bool there = w.store_up && (x->blocked_until <= w.now || x->refused);
    int64_t us = delay(x->c, 4);

    not_too_often(x);
    if (without_memory(x->c))
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a connection");
    x->last_in = x->last_out = w.now;
    if (us > ms * US || (!there && mix(x->c->sent) % 4 == 0)) {
        there = false;
        us = ms * US;
    }
    happens(x, there ? E_OPENED : E_BREAK, w.now + us);
    return 0;
}

/* The link has given it up: because an answer is late, or for a reason of ours. */
static void close_stream(struct link *k)
{
    struct wire *x = wire_at(k);
    const struct sim_client *c = x->c;

    if (k->broken && k->why.code == HF_ENOMEM)
        tally_sight(S_NO_ROOM);
    if (k->broken && k->why.code == HF_EUNREACHABLE) {
        tally_sight(S_GIVEN_UP);
        if (unread(x))
            violate("link", "client %u gives a connection up whose answer has come", c->id);
        if (c->trouble_at + 2 * w.plan->limit_ms * US < w.now)
            violate("link", "client %u gives a connection up without a cause", c->id);
    }
    hang_up(x);
}

static int send_call(struct link *k, struct link_call *wire)
{
    struct sim_client *c = wire_at(k)->c;
    struct call *call = container_of(wire, struct call, wire);
    struct msg m;

    if (without_memory(c))
        return HF_ENOMEM;
    if (c->message)
        m = *c->message;
    else if (!sender_build(c, call, &m))
        return HF_ENOENT;
    m.call = call->number;
    m.sent_at = wire->sent_at;
    call->written = true;
    write_out(wire_at(k), &m);
    free_names(m.names);
    return 0;
}

static void flush_stream(struct link *k)
{
    struct wire *x = wire_at(k);
    struct ev *e;

    if (x->out && !w.quiet && !w.plan->calm && draw(5000) == 0) {
        tally_sight(S_UNFLUSHED);
        net_cut(x, 0);
        return;
    }
    while ((e = x->out) != NULL) {
        x->out = e->next;
        send_off(x, e);
    }
    x->out_end = &x->out;
}

static const struct link_transport transport = { open_stream, close_stream, send_call,
                                                 flush_stream, read_stream };

/* ---- what the link tells --------------------------------------------------------- */

static int64_t limit_ms(const struct link *k)
{
    (void)k;
    return w.plan->limit_ms;
}

static void greet(struct link *k)
{
    const struct wire *x = wire_at(k);
    struct msg m = { .kind = M_HELLO, .slot = -1, .line = (uint8_t)(x - x->c->wires) };

    drv_send(x->c, &m);
}

static void down(struct link *k, const hf_error *err)
{
    struct wire *x = wire_at(k);
    struct sim_client *c = x->c;
    bool was_up = c->up;

    SAY("client %u: %s%s%s", c->id, x->up ? "the connection breaks" : "cannot be connected",
        part_said(x), err->code == HF_EAUTH ? ", it is refused" : "");
    x->owed = x->under_way;
    x->ncalls_down = c->ncalls;
    if (x->up) {
        x->lost_at = w.now;
        in_trouble(c, w.now);
    }
    x->up = false;
    for (int i = 0; i < wires(); i++)
        if (c->wires[i].up)
            return; /* the store is up while one of its parts is */
    c->up = false;
    if (was_up && c->session)
        ev_risk(c->session);
    ev_store(&c->store, STORE_DOWN, err);
    if (was_up && w.plan->family == ORDERED)
        hf__ordered_down(&c->ordered);
}

static void unanswered(struct link *k, struct link_call *wire)
{
    struct wire *x = wire_at(k);
    struct sim_client *c = x->c;
    struct call was = settled(x, wire);

    if (was.written && was.number > x->ncalls_down)
        violate("link", "client %u: a call has no answer, and DOWN was not raised", c->id);
    if (was.kind == M_BYE)
        ev_shut(&c->store);
    sender_nothing(c, &was);
}

static void lost(struct link *k, const hf_error *err)
{
    struct wire *x = wire_at(k);
    struct sim_client *c = x->c;

    if (x->owed != 0)
        violate("link", "client %u: %d calls were lost and nobody was told", c->id,
                x->owed);
    for (int i = 0; i < LOOKS; i++) {
        struct look *l = c->looks[i].look;

        if (!l || wire_to(c, line_of(l->name)) != x)
            continue;
        c->looks[i].look = NULL;
        ev_done(l, NULL, HF_EUNREACHABLE, err);
    }
}

static const struct link_events events = { limit_ms, greet, down, unanswered, lost };

void net_up(struct wire *x)
{
    hf__link_up(&x->link);
    x->up = true;
    in_trouble(x->c, w.now); /* what ran out meanwhile is lost in the next moments */
}

void net_open(struct sim_client *c)
{
    list_init(&c->dirty);
    for (int i = 0; i < wires(); i++) {
        struct wire *x = &c->wires[i];

        x->c = c;
        x->up = w.plan->family == SYNC;
        x->lost_at = w.now;
        x->epoch = 1;
        x->out_end = &x->out;
        hf__link_init(&x->link, &c->env, &transport, &events, &c->dirty, CONNECT_MS);
        x->link.choices = 1 + (size_t)(w.plan->seed % 3);
    }
}

void net_close(struct sim_client *c)
{
    struct link_call *wire;

    for (int i = 0; i < wires(); i++) {
        struct wire *x = &c->wires[i];

        hf__link_done(&x->link);
        while ((wire = hf__link_take(&x->link)) != NULL)
            settled(x, wire);
        if (x->under_way != 0)
            violate("link", "client %u: %d calls were never answered", c->id, x->under_way);
    }
}

/* ---- faults ---------------------------------------------------------------------- */

/* For a while it is out of reach; or it answers, and will not have us. */
void net_cut(struct wire *x, int64_t blocked_us)
{
    struct sim_client *c = x->c;
    static const hf_error broke = { .code = HF_EUNREACHABLE };

    if (w.plan->family == SYNC)
        return;
    if (w.now + blocked_us > x->blocked_until) {
        x->blocked_until = w.now + blocked_us;
        x->refused = mix(w.plan->seed ^ (uint64_t)c->id << 32 ^ x->epoch) % 6 == 0;
    }
    in_trouble(c, x->blocked_until);
    if (x->link.state == LINK_CLOSED)
        return;
    if (!can(&w.procs[c->proc])) { /* it will see that when it goes on */
        x->silent = true;
        happens(x, E_BREAK, w.now);
        return;
    }
    hang_up(x);
    hf__link_lost(&x->link, &broke);
}

/* Nobody notices at once: the other end, or the follower's leader, is out of reach. */
void net_silent(struct wire *x, int64_t us, bool stale)
{
    SAY("client %u: %s%s for %lld ms", x->c->id,
        stale ? "its follower is cut off, and answers reads"
              : "the connection falls silent",
        part_said(x), (long long)us / US);
    x->silent = !stale;
    x->stale = stale;
    if (stale)
        order_cut_off(x->c);
    in_trouble(x->c, w.now + us);
    happens(x, E_BREAK, w.now + us);
}
