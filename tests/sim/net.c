/* net.c: the simulated network between driver and store: a stream of requests and one of
 * answers for each client, a channel for news, and connections that break, fall silent,
 * or lead to a follower that is cut off. What is under way when a connection breaks is
 * executed or lost, and its answer is lost in any case. */
#include "sim.h"

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

static void queue_to_store(struct sim_client *c, const struct msg *m)
{
    struct ev *e;

    if (c->silent) {
        tally_sight(S_UNSENT);
        return;
    }
    e = new_event(E_TO_STORE, w.now + delay(c, 1));
    if (e->at < c->last_out)
        e->at = c->last_out; /* one stream: nothing overtakes */
    c->last_out = e->at;
    e->id = c->id;
    e->m = *m;
    if (m->names)
        m->names->refs++;
    push_event(e);
}

void drv_send(struct sim_client *c, struct msg *m)
{
    m->id = c->id;
    m->epoch = c->epoch;
    if (w.plan->family == ORDERED)
        m->inc = c->inc;
    if (w.plan->family == SYNC) {
        store_receive(m);
        return;
    }
    queue_to_store(c, m);
    /* no transport doubles a join behind what follows it: its ticket could stand up
     * again */
    if (m->kind == M_READ || m->kind == M_HELLO || m->kind == M_JOIN || w.quiet ||
        mix(w.plan->seed ^ c->sent * 77) % 1000000 >= w.plan->twice_ppm)
        return;
    tally_sight(S_TWICE);
    queue_to_store(c, m);
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
    if (a->kind == R_LOOK || (a->kind == R_READ && w.plan->like_etcd))
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

/* ---- the connection -------------------------------------------------------------- */

static void try_later(struct sim_client *c, int64_t us)
{
    struct ev *e = new_event(E_RECONNECT, w.now + us);

    e->id = c->id;
    e->n = c->epoch;
    push_event(e);
}

void driver_connect(struct sim_client *c)
{
    struct msg m = { .kind = M_HELLO, .slot = -1, .sent_at = proc_now(&w.procs[c->proc]) };

    if (c->up)
        return;
    if (c->blocked_until > w.now || !w.store_up) {
        try_later(c, 20 * US + (int64_t)(mix(c->sent++) % (50 * US)));
        return;
    }
    c->epoch++; /* also if the last attempt had no answer */
    c->last_in = c->last_out = w.now;
    drv_send(c, &m);
    try_later(c, 4 * (w.plan->delay_us + w.plan->jitter_us) + 100 * US);
}

/* Out of reach; or it answers, and will not have us: then nobody waits for it any longer.
 */
static int why_down(const struct sim_client *c)
{
    if (w.quiet || mix(w.plan->seed ^ (uint64_t)c->id << 32 ^ c->epoch) % 6 > 0)
        return HF_EUNREACHABLE;
    tally_sight(S_REFUSED);
    return HF_EAUTH;
}

void driver_cut(struct sim_client *c, int64_t blocked_us)
{
    hf_error err = { .code = why_down(c) };

    if (w.plan->family == SYNC)
        return;
    if (w.now + blocked_us > c->blocked_until)
        c->blocked_until = w.now + blocked_us;
    in_trouble(c, c->blocked_until);
    c->silent = c->stale = false;
    if (!c->up) { /* its attempt to connect fails */
        c->epoch++;
        ev_store(&c->store, STORE_DOWN, &err);
        try_later(c, blocked_us);
        return;
    }
    SAY("client %u: the connection breaks, for %lld ms%s", c->id,
        (long long)blocked_us / US, err.code == HF_EAUTH ? ", it is refused" : "");
    sender_cut(c, blocked_us);
    c->up = false;
    c->epoch++;
    if (c->session)
        ev_risk(c->session);
    ev_store(&c->store, STORE_DOWN, &err);
    sender_lost(c);
    if (w.plan->family == ORDERED)
        hf__ordered_down(&c->ordered);
    for (int i = 0; i < TICKETS; i++) {
        c->dts[i].withdrawing = 0; /* that leave may be lost: it is decided anew */
        if (c->dts[i].state == DT_LEAVING) {
            struct ticket *t = c->dts[i].t;

            drv_forget(c, &c->dts[i]);
            ev_left(t, HF_EUNKNOWN);
        }
    }
    for (int i = 0; i < LOOKS; i++)
        if (c->looks[i].look) {
            struct look *l = c->looks[i].look;

            c->looks[i].look = NULL;
            ev_done(l, NULL, HF_EUNREACHABLE, &err);
        }
    try_later(c, blocked_us);
}

/* Nobody notices at once: the other end, or the follower's leader, is out of reach. */
void driver_silent(struct sim_client *c, int64_t us, bool stale)
{
    struct ev *e;

    SAY("client %u: %s for %lld ms", c->id,
        stale ? "its follower is cut off, and answers reads"
              : "the connection falls silent",
        (long long)us / US);
    c->silent = !stale;
    c->stale = stale;
    if (stale)
        order_cut_off(c);
    in_trouble(c, w.now + us);
    e = new_event(E_BREAK, w.now + us);
    e->id = c->id;
    e->n = c->epoch;
    push_event(e);
}
