/* net.c: the simulated network between driver and store: a stream of requests and one of
 * answers for each client, a channel for news, and connections that break, fall silent,
 * or lead to a follower that is cut off. What is under way when a connection breaks is
 * executed or lost, and its answer is lost in any case.
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

static struct sim_client *client_at(const struct link *k)
{
    return container_of(k, struct sim_client, link);
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

static struct ev *to_store(struct sim_client *c, const struct msg *m)
{
    struct ev *e = new_event(E_TO_STORE, 0);

    e->id = c->id;
    e->m = *m;
    e->m.id = c->id;
    e->m.epoch = c->epoch;
    if (w.plan->family == ORDERED)
        e->m.inc = c->inc;
    if (m->names)
        m->names->refs++;
    return e;
}

static void send_off(struct sim_client *c, struct ev *e)
{
    if (c->silent) {
        tally_sight(S_UNSENT);
        free_event(e);
        return;
    }
    e->at = w.now + delay(c, 1);
    if (e->at < c->last_out)
        e->at = c->last_out; /* one stream: nothing overtakes */
    c->last_out = e->at;
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

static void write_out(struct sim_client *c, const struct msg *m)
{
    for (int copies = doubled(c, m) ? 2 : 1; copies > 0; copies--) {
        struct ev *e = to_store(c, m);

        e->next = NULL;
        *c->out_end = e;
        c->out_end = &e->next;
    }
}

void drv_send(struct sim_client *c, struct msg *m)
{
    struct call *k;

    if (w.plan->family == SYNC) {
        m->id = c->id;
        m->epoch = c->epoch;
        store_receive(m);
    } else if (!in_order(m->kind)) {
        for (int copies = doubled(c, m) ? 2 : 1; copies > 0 && link_open(&c->link);
             copies--)
            send_off(c, to_store(c, m));
    } else if ((k = net_call(c, m->kind)) != NULL) {
        c->message = m;
        net_start(c, k);
        c->message = NULL;
    } else {
        hf__link_fail(&c->link, HF_ENOMEM, "no memory for a request");
    }
}

void store_reply(const struct msg *to, struct msg *a)
{
    struct sim_client *c = w.by_id[to->id];
    struct ev *e;

    a->kind = to->kind - M_HELLO + R_HELLO;
    if (!c || c->silent) {
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
    else if (e->at < c->last_in)
        e->at = c->last_in;
    else
        c->last_in = e->at;
    e->id = c->id;
    e->m = *a;
    push_event(e);
}

/* Events of a store that are in one order with its answers. */
static void notify_in_order(struct sim_client *c, struct msg *m)
{
    struct ev *e = new_event(E_TO_CLIENT, w.now + delay(c, 3));

    if (e->at < c->last_in)
        e->at = c->last_in;
    c->last_in = e->at;
    m->epoch = c->epoch;
    e->id = c->id;
    e->m = *m;
    push_event(e);
}

/* News that was not asked for comes on a channel of its own: it may overtake, come
 * twice, much later, or not at all. Of a client's own nodes an ordered store loses nothing.
 */
void store_notify(uint8_t id, struct msg *m)
{
    struct sim_client *c = w.by_id[id];
    int64_t late = 0;
    int copies = 1;

    if (c && m->kind == N_FIRED && !c->silent && !c->stale &&
        (!w.plan->like_etcd || m->now || !c->up)) {
        if (m->now || w.quiet || !c->up || draw(1000000) >= w.plan->wake_lost_ppm / 4)
            notify_in_order(c, m);
        else
            tally_sight(S_WAKE_LOST);
        return;
    }
    if (!c || c->silent || c->stale || (!c->up && w.plan->family != SYNC))
        return;
    if (!w.quiet && draw(1000000) < w.plan->wake_lost_ppm) {
        copies = (int)draw(3);
        late = copies == 1 ? (int64_t)draw((uint64_t)w.plan->ttl_ms[0] * US) : 0;
        tally_sight(copies == 0 ? S_WAKE_LOST : copies == 1 ? S_WAKE_LATE : S_WAKE_TWICE);
    }
    while (copies-- > 0) {
        struct ev *e = new_event(E_TO_CLIENT, w.now + delay(c, 3) + late);

        m->epoch = c->epoch;
        e->id = id;
        e->m = *m;
        push_event(e);
    }
}

/* ---- calls ----------------------------------------------------------------------- */

struct call *net_call(struct sim_client *c, enum msg_kind kind)
{
    for (int i = 0; i < CALLS; i++)
        if (c->calls[i].number == 0) {
            c->calls[i] = (struct call){ .kind = kind, .number = ++c->ncalls };
            return &c->calls[i];
        }
    return NULL;
}

/* Under a new number if it is sent again: another copy may be answered, too. */
void net_start(struct sim_client *c, struct call *k)
{
    k->number = ++c->ncalls;
    k->written = false;
    c->under_way++;
    c->sending = k;
    hf__link_send(&c->link, &k->wire);
    c->sending = NULL;
}

/* It has its answer, or is told that there is none: once, and not before it was sent. */
static struct call settled(struct sim_client *c, struct link_call *wire)
{
    struct call *k = container_of(wire, struct call, wire), was = *k;

    if (was.number == 0)
        violate("link", "a call of client %u is answered twice", c->id);
    if (c->sending == k)
        violate("link", "a call of client %u is answered inside its own sending", c->id);
    c->under_way--;
    c->owed -= was.number <= c->ncalls_down;
    k->number = 0;
    return was;
}

/* Of a doubled request the second answer is one too many. */
bool net_takes(struct sim_client *c, const struct msg *m, struct call *ret)
{
    struct link_call *first = hf__link_oldest(&c->link);
    uint64_t number = first ? container_of(first, struct call, wire)->number : UINT64_MAX;

    if (w.plan->family == SYNC)
        return true;
    if (!link_open(&c->link))
        return false;
    if (m->kind >= N_GRANT || !in_order(m->kind - R_HELLO + M_HELLO))
        return true;
    if (m->call > number)
        violate("link", "client %u does not know of a call that is answered", c->id);
    if (m->call != number)
        return false;
    hf__link_answered(&c->link);
    *ret = settled(c, first);
    return true;
}

/* ---- the transport --------------------------------------------------------------- */

/* What has come to the client by now, and was not read. */
static struct ev *unread(const struct sim_client *c)
{
    struct ev *first = NULL;

    for (size_t i = 0; i < w.nheap; i++) {
        struct ev *e = w.heap[i];

        if (e->kind == E_TO_CLIENT && e->id == c->id && e->m.epoch == c->epoch &&
            e->at <= w.now && (!first || e->seq < first->seq))
            first = e;
    }
    return first;
}

static bool read_stream(struct link *k)
{
    struct sim_client *c = client_at(k);
    bool any = false;
    struct ev *e;

    while (link_open(k) && (e = unread(c)) != NULL) {
        struct msg m = e->m;

        e->kind = E_NOTHING;
        e->m.snap = NULL;
        driver_receive(c, &m);
        tally_sight(S_READ_LATE);
        any = true;
    }
    return any;
}

/* The connection is over; whatever comes of it is nobody's. */
static void hang_up(struct sim_client *c)
{
    struct ev *e;

    sender_cut(c);
    while ((e = c->out) != NULL) {
        c->out = e->next;
        tally_sight(S_UNSENT);
        free_event(e);
    }
    c->out_end = &c->out;
    c->epoch++;
    c->silent = c->stale = false;
}

/* The longest pause is an eighth of CONNECT_MS, and half of it is certain; the first ones
 * are shorter. */
static void not_too_often(const struct sim_client *c)
{
    int64_t least = ((int64_t)c->link.failed - TRIES) * PAUSE_LEAST_MS * US;

    if (w.now - c->lost_at < least)
        violate("link", "client %u has tried to connect %zu times within %lld ms", c->id,
                c->link.failed, (long long)(w.now - c->lost_at) / US);
}

/* Nobody answers: a refusal comes at once, or nothing until the time is over. */
static int open_stream(struct link *k, int64_t ms, hf_error *err)
{
    struct sim_client *c = client_at(k);
    bool there = w.store_up && (c->blocked_until <= w.now || c->refused);
    int64_t us = delay(c, 4);
    struct ev *e;

    not_too_often(c);
    if (without_memory(c))
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a connection");
    c->last_in = c->last_out = w.now;
    if (us > ms * US || (!there && mix(c->sent) % 4 == 0)) {
        there = false;
        us = ms * US;
    }
    e = new_event(there ? E_OPENED : E_BREAK, w.now + us);
    e->id = c->id;
    e->n = c->epoch;
    push_event(e);
    return 0;
}

/* The link has given it up: because an answer is late, or for a reason of ours. */
static void close_stream(struct link *k)
{
    struct sim_client *c = client_at(k);

    if (k->broken && k->why.code == HF_ENOMEM)
        tally_sight(S_NO_ROOM);
    if (k->broken && k->why.code == HF_EUNREACHABLE) {
        tally_sight(S_GIVEN_UP);
        if (unread(c))
            violate("link", "client %u gives a connection up whose answer has come", c->id);
        if (c->trouble_at + 2 * w.plan->limit_ms * US < w.now)
            violate("link", "client %u gives a connection up without a cause", c->id);
    }
    hang_up(c);
}

static int send_call(struct link *k, struct link_call *wire)
{
    struct sim_client *c = client_at(k);
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
    write_out(c, &m);
    free_names(m.names);
    return 0;
}

static void flush_stream(struct link *k)
{
    struct sim_client *c = client_at(k);
    struct ev *e;

    if (c->out && !w.quiet && !w.plan->calm && draw(5000) == 0) {
        tally_sight(S_UNFLUSHED);
        net_cut(c, 0);
        return;
    }
    while ((e = c->out) != NULL) {
        c->out = e->next;
        send_off(c, e);
    }
    c->out_end = &c->out;
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
    struct msg m = { .kind = M_HELLO, .slot = -1 };

    drv_send(client_at(k), &m);
}

static void down(struct link *k, const hf_error *err)
{
    struct sim_client *c = client_at(k);
    bool was_up = c->up;

    SAY("client %u: %s%s", c->id, was_up ? "the connection breaks" : "cannot be connected",
        err->code == HF_EAUTH ? ", it is refused" : "");
    c->up = false;
    c->owed = c->under_way;
    c->ncalls_down = c->ncalls;
    if (was_up) {
        c->lost_at = w.now;
        in_trouble(c, w.now);
    }
    if (was_up && c->session)
        ev_risk(c->session);
    ev_store(&c->store, STORE_DOWN, err);
    if (was_up && w.plan->family == ORDERED)
        hf__ordered_down(&c->ordered);
}

static void unanswered(struct link *k, struct link_call *wire)
{
    struct sim_client *c = client_at(k);
    struct call was = settled(c, wire);

    if (was.written && was.number > c->ncalls_down)
        violate("link", "client %u: a call has no answer, and DOWN was not raised", c->id);
    if (was.kind == M_BYE)
        ev_shut(&c->store);
    sender_nothing(c, &was);
}

static void lost(struct link *k, const hf_error *err)
{
    struct sim_client *c = client_at(k);

    if (c->owed != 0)
        violate("link", "client %u: %d calls were lost and nobody was told", c->id,
                c->owed);
    for (int i = 0; i < LOOKS; i++)
        if (c->looks[i].look) {
            struct look *l = c->looks[i].look;

            c->looks[i].look = NULL;
            ev_done(l, NULL, HF_EUNREACHABLE, err);
        }
}

static const struct link_events events = { limit_ms, greet, down, unanswered, lost };

void net_up(struct sim_client *c)
{
    hf__link_up(&c->link);
    c->up = true;
    in_trouble(c, w.now); /* what ran out meanwhile is lost in the next moments */
}

void net_open(struct sim_client *c)
{
    c->lost_at = w.now;
    c->epoch = 1;
    c->out_end = &c->out;
    list_init(&c->dirty);
    hf__link_init(&c->link, &c->env, &transport, &events, &c->dirty, CONNECT_MS);
    c->link.choices = 1 + (size_t)(w.plan->seed % 3);
}

void net_close(struct sim_client *c)
{
    struct link_call *wire;

    hf__link_done(&c->link);
    while ((wire = hf__link_take(&c->link)) != NULL)
        settled(c, wire);
    if (c->under_way != 0)
        violate("link", "client %u: %d calls were never answered", c->id, c->under_way);
}

/* ---- faults ---------------------------------------------------------------------- */

static void breaks_at(const struct sim_client *c, int64_t at)
{
    struct ev *e = new_event(E_BREAK, at);

    e->id = c->id;
    e->n = c->epoch;
    push_event(e);
}

/* For a while it is out of reach; or it answers, and will not have us. */
void net_cut(struct sim_client *c, int64_t blocked_us)
{
    static const hf_error broke = { .code = HF_EUNREACHABLE };

    if (w.plan->family == SYNC)
        return;
    if (w.now + blocked_us > c->blocked_until) {
        c->blocked_until = w.now + blocked_us;
        c->refused = mix(w.plan->seed ^ (uint64_t)c->id << 32 ^ c->epoch) % 6 == 0;
    }
    in_trouble(c, c->blocked_until);
    if (c->link.state == LINK_CLOSED)
        return;
    if (!can(&w.procs[c->proc])) { /* it will see that when it goes on */
        c->silent = true;
        breaks_at(c, w.now);
        return;
    }
    hang_up(c);
    hf__link_lost(&c->link, &broke);
}

/* Nobody notices at once: the other end, or the follower's leader, is out of reach. */
void net_silent(struct sim_client *c, int64_t us, bool stale)
{
    SAY("client %u: %s for %lld ms", c->id,
        stale ? "its follower is cut off, and answers reads"
              : "the connection falls silent",
        (long long)us / US);
    c->silent = !stale;
    c->stale = stale;
    if (stale)
        order_cut_off(c);
    in_trouble(c, w.now + us);
    breaks_at(c, w.now + us);
}
