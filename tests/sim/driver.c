/* driver.c: the client's end of the network: one driver for all families. It translates verbs
 * into messages and answers into events, and keeps the seam's promises: it forgets a ticket with
 * its last event; it answers every leave, also while the store is away; it reports UP only when
 * the store refuses the requests of older connections (G7); it takes sent_at before sending.
 *
 * SYNC (the embedded store): the answer comes inside the verb. ORDERED: the driver decides by the
 * line that it reads whether its ticket holds, and watches the ticket whose end concerns it. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static struct sim_client *sim_of(struct store *s)
{
    return container_of(s, struct sim_client, store);
}

static int64_t now_of(struct sim_client *c)
{
    return proc_now(&w.procs[c->proc]);
}

/* ---- sending ----------------------------------------------------------------------------- */

static int64_t delay(struct sim_client *c, uint64_t salt)
{
    const struct plan *p = w.plan;
    uint64_t h = mix(p->seed ^ mix((uint64_t)c->id << 32 | ++c->sent) ^ salt);
    int64_t us = p->delay_us + (int64_t)(h % (uint64_t)(p->jitter_us + 1));

    if (!w.quiet && (h >> 40) % 1000000 < p->slow_ppm) {
        us += (int64_t)(mix(h) % (uint64_t)(p->ttl_ms[0] * US));
        in_trouble(c, w.now + us);
    }
    return us;
}

static void queue_to_store(struct sim_client *c, const struct msg *m)
{
    struct ev *e = new_event(E_TO_STORE, w.now + delay(c, 1));

    if (e->at < c->last_out)
        e->at = c->last_out; /* one stream: nothing overtakes */
    c->last_out = e->at;
    e->id = c->id;
    e->m = *m;
    push_event(e);
}

static void send(struct sim_client *c, struct msg *m)
{
    m->id = c->id;
    m->epoch = c->epoch;
    if (w.plan->family == ORDERED)
        m->inc = c->inc;
    if (w.plan->family == SYNC) {
        store_receive(m);
        free_snap(m->snap);
        return;
    }
    queue_to_store(c, m);
    if (m->kind == M_READ || m->kind == M_HELLO || w.quiet ||
        mix(w.plan->seed ^ c->sent * 77) % 1000000 >= w.plan->twice_ppm)
        return;
    if (m->snap) {
        struct snap *copy = new_snap();

        memcpy(copy->rows, m->snap->rows, sizeof copy->rows);
        copy->n = m->snap->n;
        m->snap = copy;
    }
    queue_to_store(c, m);
}

void store_reply(const struct msg *to, struct msg *a)
{
    struct sim_client *c = w.by_id[to->id];
    struct ev *e;

    a->kind = to->kind - M_HELLO + R_HELLO;
    if (!c) {
        free_snap(a->snap);
        return;
    }
    if (w.plan->family == SYNC) {
        driver_receive(c, a);
        return;
    }
    e = new_event(E_TO_CLIENT, w.now + delay(c, 2));
    if (e->at < c->last_in)
        e->at = c->last_in;
    c->last_in = e->at;
    e->id = c->id;
    e->m = *a;
    push_event(e);
}

/* News that was not asked for comes on a channel of its own: it may overtake, come twice, or
 * not at all. */
void store_notify(uint8_t id, struct msg *m)
{
    struct sim_client *c = w.by_id[id];
    int copies = 1;

    if (!c || (!c->up && w.plan->family != SYNC))
        return;
    if (!w.quiet && draw(1000000) < w.plan->wake_lost_ppm)
        copies = (int)draw(2) * 2;
    while (copies-- > 0) {
        struct ev *e = new_event(E_TO_CLIENT, w.now + delay(c, 3));

        m->epoch = c->epoch;
        e->id = id;
        e->m = *m;
        push_event(e);
    }
}

/* ---- tickets ------------------------------------------------------------------------------- */

static uint64_t token_of(const struct ticket *t)
{
    uint64_t x;

    memcpy(&x, t->token, sizeof x);
    return x;
}

static struct dt *dt_of(struct sim_client *c, const struct ticket *t)
{
    return t->drv[0] ? &c->dts[t->drv[0] - 1] : NULL;
}

static struct dt *remember(struct sim_client *c, struct ticket *t, enum dt_state state)
{
    struct dt *d = dt_of(c, t);

    if (!d) {
        if (c->free_dt < 0)
            return NULL;
        d = &c->dts[c->free_dt];
        c->free_dt = d->next_free;
        *d = (struct dt){ .t = t, .gen = d->gen + 1, .token = token_of(t) };
        t->drv[0] = (uint64_t)(d - c->dts) + 1;
        mem_ticket(hold_of(t), true);
    }
    d->state = state;
    return d;
}

static void forget(struct sim_client *c, struct dt *d)
{
    d->t->drv[0] = 0;
    mem_ticket(hold_of(d->t), false);
    d->t = NULL;
    d->state = DT_FREE;
    d->next_free = c->free_dt;
    c->free_dt = (int)(d - c->dts);
}

static struct dt *known(struct sim_client *c, const struct msg *m)
{
    struct dt *d = &c->dts[m->slot];

    return m->slot >= 0 && d->state != DT_FREE && d->gen == m->gen ? d : NULL;
}

static struct msg about(struct sim_client *c, enum msg_kind kind, const struct dt *d)
{
    const struct ticket *t = d->t;

    return (struct msg){ .kind = kind, .line = (uint8_t)line_of(t->name), .slot = (int)(d - c->dts),
                         .gen = d->gen, .token = d->token, .sent_at = now_of(c),
                         .ttl_ms = t->ttl_ms, .weight = t->weight, .capacity = t->capacity,
                         .lk = (uint8_t)t->kind, .owner = t->owner };
}

static void gone(struct sim_client *c, struct dt *d, int why)
{
    struct ticket *t = d->t;

    forget(c, d);
    ev_gone(t, why, NULL);
}

/* ---- lives ----------------------------------------------------------------------------------- */

static int ttl_index(int64_t ttl_ms)
{
    for (int i = 0; i < w.plan->nttls; i++)
        if (w.plan->ttl_ms[i] == ttl_ms)
            return i;
    return -1;
}

/* The tickets that wait on a life, as far as we know. */
static struct snap *waiting_on(struct sim_client *c, const struct life *l)
{
    struct snap *s;

    if (!l || w.plan->family == ORDERED)
        return NULL;
    s = new_snap();
    list_for(n, &l->tickets) {
        const struct dt *d = dt_of(c, container_of(n, struct ticket, on_life));

        if (d && d->state == DT_WAITING && s->n < TICKETS)
            s->rows[s->n++].token = d->token;
    }
    return s;
}

void driver_tidy(struct sim_client *c)
{
    for (int i = 0; i < w.plan->lines; i++)
        for (int k = 0; k < w.plan->nttls; k++)
            if (c->waits[i][k] && c->waits[i][k]->ntickets == 0) {
                hf__life_free(c->waits[i][k]);
                c->waits[i][k] = NULL;
            }
    for (int i = 0; i < c->nold;) {
        if (c->old_lives[i]->ntickets > 0) {
            i++;
            continue;
        }
        hf__life_free(c->old_lives[i]);
        c->old_lives[i] = c->old_lives[--c->nold];
    }
}

/* The life is dead or of no use: who still hangs on it finds its own way. */
static void retire(struct sim_client *c, struct life *l)
{
    if (c->nold == TICKETS)
        abort();
    c->old_lives[c->nold++] = l;
}

static void session_dead(struct sim_client *c)
{
    struct life *l = c->session;

    c->inc++;
    if (!l)
        return;
    c->session = NULL;
    retire(c, l);
    ev_dead(l, HF_ELOST);
}

/* ---- deciding by reading (ORDERED) ------------------------------------------------------------- */

static const struct srow *row_of(const struct snap *s, uint64_t token, int *at)
{
    for (*at = 0; *at < s->n; ++*at)
        if (s->rows[*at].token == token)
            return &s->rows[*at];
    return NULL;
}

static bool in_prefix(const struct snap *s, int mine)
{
    const struct srow *head = &s->rows[0];
    int64_t sum = 0;

    for (int i = 0; i <= mine; i++) {
        const struct srow *r = &s->rows[i];

        if (r->kind != head->kind || r->capacity != head->capacity)
            return false;
        sum = sum_of(sum, r->weight);
        if (sum > head->capacity)
            return false;
    }
    return true;
}

/* Exclusive: the predecessor; shared: the nearest exclusive ahead; permits: any change. */
static uint64_t whom_to_watch(const struct snap *s, int mine)
{
    if (s->rows[mine].kind == LINE_PERMITS)
        return 0;
    for (int i = mine - 1; i >= 0; i--)
        if (s->rows[mine].weight > 1 || s->rows[i].weight > 1 ||
            s->rows[i].kind != s->rows[mine].kind)
            return s->rows[i].token;
    return 0;
}

static void read_again(struct sim_client *c, struct dt *d, uint64_t watch)
{
    struct msg m = about(c, M_READ, d);

    d->watch = m.watch = watch;
    send(c, &m);
}

static void withdraw(struct sim_client *c, struct dt *d, int why)
{
    struct msg m = about(c, M_LEAVE, d);

    if (d->withdrawing)
        return;
    d->withdrawing = why;
    send(c, &m);
}

static void decide(struct sim_client *c, struct dt *d, const struct snap *s)
{
    int mine;
    const struct srow *r = row_of(s, d->token, &mine);
    struct ticket *t = d->t;
    uint64_t watch;

    if (d->state != DT_JOINING && d->state != DT_WAITING)
        return;
    if (!r) {
        gone(c, d, HF_ELOST);
        return;
    }
    if (s->rows[0].kind != t->kind || s->rows[0].capacity != t->capacity) {
        withdraw(c, d, HF_EMISMATCH);
        return;
    }
    if (in_prefix(s, mine)) {
        d->state = DT_HELD;
        ev_granted(t, r->fence, t->life->sent_at);
        return;
    }
    watch = whom_to_watch(s, mine);
    d->state = DT_WAITING;
    ev_waiting(t, (uint32_t)mine, -1);
    if (d->state == DT_WAITING && d->watch != watch)
        read_again(c, d, watch);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

static uint32_t hints_of(const struct ticket *t)
{
    uint32_t mask = 0;

    for (size_t i = 0; i < t->hints_len; i += strlen(t->hints + i) + 1)
        mask |= 1u << line_of(t->hints + i);
    return mask;
}

static void join(struct store *s, struct ticket *t)
{
    struct sim_client *c = sim_of(s);
    struct dt *d = remember(c, t, DT_JOINING);
    struct msg m;

    if (!d) {
        ev_gone(t, HF_EFULL, NULL);
        return;
    }
    if (w.plan->family == ORDERED && !c->session) {
        c->session = hf__life_new(s, LIFE_WIDE, t->ttl_ms);
        if (!c->session) {
            gone(c, d, HF_ENOMEM);
            return;
        }
    }
    if (w.plan->family == ORDERED && t->life != c->session)
        hf__hang(t, c->session);
    m = about(c, M_JOIN, d);
    m.try_only = t->try_only;
    m.barge = t->barge;
    m.hints = hints_of(t);
    m.snap = waiting_on(c, c->waits[m.line][ttl_index(t->ttl_ms)]);
    d->withdrawing = 0;
    d->woken = 0;
    d->watch = 1; /* nobody's token */
    SAY("client %u: join %s, ticket %04x%s", c->id, t->name, TOK(d->token),
        t->try_only ? ", only if free" : "");
    send(c, &m);
}

static void leave(struct store *s, struct ticket *t)
{
    struct sim_client *c = sim_of(s);
    struct dt *d = remember(c, t, DT_LEAVING);
    struct msg m;

    oracle_left(t);
    if (!d || !c->up) {
        if (d)
            forget(c, d);
        ev_left(t, HF_EUNKNOWN);
        return;
    }
    m = about(c, M_LEAVE, d);
    m.keep_ms = t->keep_ms;
    SAY("client %u: leave %s, ticket %04x", c->id, t->name, TOK(d->token));
    send(c, &m);
}

static void amend(struct store *s, struct ticket *t)
{
    struct sim_client *c = sim_of(s);
    struct msg m = about(c, M_AMEND, dt_of(c, t));

    send(c, &m);
}

static struct ticket *first_on(const struct life *l)
{
    struct list *n = list_first(&l->tickets);

    return n ? container_of(n, struct ticket, on_life) : NULL;
}

static void renew(struct store *s, struct life *const *lives, size_t n)
{
    struct sim_client *c = sim_of(s);

    for (size_t i = 0; i < n; i++) {
        struct ticket *t = first_on(lives[i]);
        struct dt *d = t ? dt_of(c, t) : NULL;
        struct msg m;

        if (!d)
            continue;
        m = about(c, lives[i]->kind == LIFE_OWN    ? M_RENEW
                     : lives[i]->kind == LIFE_WAIT ? M_WAIT
                                                   : M_SESSION, d);
        m.ttl_ms = lives[i]->ttl_ms;
        if (m.kind == M_SESSION)
            m.slot = -1;
        if (m.kind == M_WAIT) {
            m.snap = waiting_on(c, lives[i]);
            m.inc = (uint32_t)lives[i]->drv[0];
        }
        SAY("client %u: renew %s, ticket %04x%s", c->id, t->name, TOK(d->token),
            m.kind == M_WAIT ? " and those that wait with it" : "");
        send(c, &m);
    }
}

static void ask(struct sim_client *c, struct look *l, enum msg_kind kind)
{
    struct msg m = { .kind = kind, .line = (uint8_t)line_of(l->name), .now = l->now };
    int i = 0;

    while (i < LOOKS && c->looks[i].look)
        i++;
    if (i == LOOKS) {
        ev_done(l, NULL, HF_EFULL, NULL);
        return;
    }
    c->looks[i].look = l;
    m.slot = i;
    m.gen = ++c->looks[i].gen;
    memcpy(&m.token, l->token, sizeof m.token);
    SAY("client %u: %s %s", c->id, kind == M_LOOK ? "looks at" : "evicts from", l->name);
    send(c, &m);
}

static void look(struct store *s, struct look *l)
{
    ask(sim_of(s), l, M_LOOK);
}

static void evict(struct store *s, struct look *l)
{
    ask(sim_of(s), l, M_EVICT);
}

static void stop(struct store *s, struct look *l, struct cell *cell)
{
    struct sim_client *c = sim_of(s);

    (void)cell;
    for (int i = 0; i < LOOKS; i++)
        if (c->looks[i].look == l)
            c->looks[i].look = NULL;
}

/* ---- answers ----------------------------------------------------------------------------------- */

/* The life of the group that the store has put a ticket into. If that is a new one, who hangs on
 * the old one's life is not renewed by this join. */
static struct life *life_of_group(struct sim_client *c, struct life **at, int64_t ttl_ms,
                                  uint32_t number)
{
    struct life *l = *at;

    if (l && (l->drv[0] == number || MUTANT(OLD_LIFE)))
        return l;
    l = hf__life_new(&c->store, LIFE_WAIT, ttl_ms);
    if (!l)
        return NULL;
    l->drv[0] = number;
    if (*at)
        retire(c, *at);
    return *at = l;
}

static void now_waits(struct sim_client *c, struct dt *d, const struct msg *m)
{
    struct ticket *t = d->t;
    struct life *l = life_of_group(c, &c->waits[m->line][ttl_index(t->ttl_ms)], t->ttl_ms,
                                   m->inc);

    if (!l) {
        withdraw(c, d, HF_ENOMEM);
        return;
    }
    d->state = DT_WAITING;
    if (t->life != l)
        hf__hang(t, l);
    ev_alive(l, m->sent_at, t->ttl_ms);
    if (d->woken) { /* the grant came first */
        d->state = DT_HELD;
        ev_granted(t, d->woken, m->sent_at);
        return;
    }
    ev_waiting(t, m->position, m->recheck_ms);
}

static void joined(struct sim_client *c, const struct msg *m)
{
    struct dt *d = known(c, m);

    if (!d)
        return;
    if (w.plan->family == ORDERED && m->inc == c->inc && m->rc == HF_ELOST && !m->again) {
        session_dead(c);
        return;
    }
    if (w.plan->family == ORDERED && m->again && c->session && m->inc == c->inc)
        ev_alive(c->session, m->sent_at, m->ttl_ms);
    d = known(c, m);
    if (d && d->state == DT_LEAVING && m->rc == 0 && m->fence && d->t->life != c->session)
        ev_granted(d->t, m->fence, m->sent_at); /* too late: its leave is on the way */
    if (!d || d->state != DT_JOINING)
        return;
    if (m->rc < 0) {
        gone(c, d, m->rc);
    } else if (w.plan->family == ORDERED) {
        decide(c, d, m->snap);
    } else if (m->fence) {
        d->state = DT_HELD;
        ev_granted(d->t, m->fence, m->sent_at);
    } else {
        now_waits(c, d, m);
    }
}

static void left(struct sim_client *c, const struct msg *m)
{
    struct dt *d = known(c, m);
    struct ticket *t;

    if (!d)
        return;
    t = d->t;
    if (d->state == DT_LEAVING) {
        forget(c, d);
        ev_left(t, 0);
    } else if (d->withdrawing) {
        gone(c, d, d->withdrawing);
    }
}

static void renewed(struct sim_client *c, const struct msg *m)
{
    struct dt *d = known(c, m);

    if (!d || d->state != DT_HELD)
        return;
    if (m->rc == 0)
        ev_alive(&d->t->own, m->sent_at, m->ttl_ms);
    else if (m->rc == HF_EBUSY || w.plan->deaths_by_dead)
        ev_dead(&d->t->own, m->rc);
    else
        gone(c, d, HF_ELOST);
}

static const struct srow *place(const struct sim_client *c, const struct snap *s,
                                const struct dt *d)
{
    for (int i = 0; i < s->n; i++)
        if (s->rows[i].mine && s->rows[i].gen == d->gen && s->rows[i].slot == d - c->dts)
            return &s->rows[i];
    return NULL;
}

/* The answer to a safety look: where each ticket of that life stands. */
static void looked(struct sim_client *c, const struct msg *m)
{
    struct life *l = c->waits[m->line][ttl_index(m->ttl_ms)];

    for (int i = 0; (!l || l->drv[0] != m->inc) && i < c->nold; i++)
        l = c->old_lives[i];
    if (!l || l->drv[0] != m->inc)
        return;
    ev_alive(l, m->sent_at, m->ttl_ms);
    list_for_safe(n, &l->tickets) {
        struct ticket *t = container_of(n, struct ticket, on_life);
        struct dt *d = dt_of(c, t);
        const struct srow *r = d ? place(c, m->snap, d) : NULL;

        if (!d || d->state != DT_WAITING)
            continue;
        if (!r) {
            gone(c, d, HF_ELOST);
        } else if (r->position == 0) {
            d->state = DT_HELD;
            ev_granted(t, r->fence, m->sent_at);
        } else {
            ev_waiting(t, r->position, r->expires_ms);
        }
    }
}

static void session_answered(struct sim_client *c, const struct msg *m)
{
    if (m->inc != c->inc || !c->session)
        return;
    if (m->rc < 0) {
        session_dead(c);
        return;
    }
    ev_alive(c->session, m->sent_at, m->ttl_ms);
    for (int i = 0; i < TICKETS; i++)
        if (c->dts[i].state == DT_WAITING)
            read_again(c, &c->dts[i], c->dts[i].watch == 1 ? 0 : c->dts[i].watch);
}

static size_t hint_text(uint32_t mask, char *buf)
{
    size_t n = 0;

    for (int i = 0; i < LINES; i++)
        if (mask & 1u << i) {
            memcpy(buf + n, line_names[i], 3);
            n += 3;
        }
    return n;
}

static void saw(struct sim_client *c, const struct msg *m)
{
    struct look *l = c->looks[m->slot].look;
    char hints[3 * LINES];

    if (!l || c->looks[m->slot].gen != m->gen)
        return;
    c->looks[m->slot].look = NULL;
    for (int i = 0; m->snap && i < m->snap->n; i++) {
        const struct srow *r = &m->snap->rows[i];
        struct row row = { .name = line_names[m->line], .name_len = 2, .kind = r->kind,
                           .capacity = r->capacity, .oldest_ms = -1, .has_ticket = true,
                           .fence = r->position ? 0 : r->fence, .position = r->position,
                           .weight = r->weight, .owner = r->owner, .host = "", .note = "",
                           .age_ms = -1, .expires_ms = -1, .joined = r->joined,
                           .broken = r->marked, .hints = hints,
                           .hints_len = hint_text(r->hints, hints) };

        memcpy(row.token, &r->token, sizeof r->token);
        ev_row(l, &row);
    }
    ev_done(l, NULL, m->rc, NULL);
}

static void told(struct sim_client *c, struct msg *m)
{
    struct dt *d = known(c, m);

    if (!d)
        return;
    if (m->kind == N_GONE && d->state != DT_LEAVING && d->state != DT_JOINING) {
        gone(c, d, HF_ELOST);
    } else if (m->kind == N_MARK && d->state == DT_HELD) {
        ev_dead(&d->t->own, HF_EBUSY);
    } else if (m->kind == N_FIRED && d->state == DT_WAITING) {
        read_again(c, d, d->watch);
    } else if (m->kind == N_GRANT && d->state == DT_JOINING) {
        d->woken = m->fence;
    } else if (m->kind == N_GRANT && d->state == DT_LEAVING && d->t->life) {
        ev_granted(d->t, m->fence, d->t->life->sent_at); /* too late, too */
    } else if (m->kind == N_GRANT && d->state == DT_WAITING && d->t->life) {
        d->state = DT_HELD;
        ev_granted(d->t, m->fence, d->t->life->sent_at);
    }
}

static void is_up(struct sim_client *c, const struct msg *m)
{
    if (c->up)
        return;
    c->up = true;
    if (m->rc == HF_ELOST && m->inc == c->inc)
        session_dead(c);
    ev_store(&c->store, STORE_UP, NULL);
}

static void decide_by(struct sim_client *c, const struct msg *m)
{
    struct dt *d = known(c, m);

    if (d)
        decide(c, d, m->snap);
}

static void amended(struct sim_client *c, const struct msg *m)
{
    struct dt *d = known(c, m);

    if (d && d->state == DT_HELD)
        ev_amended(d->t, m->rc);
}

void driver_receive(struct sim_client *c, struct msg *m)
{
    static void (*const handle[])(struct sim_client *, const struct msg *) = {
        is_up, joined, left, amended, renewed, looked, session_answered, saw, saw, decide_by
    };

    if (m->epoch == c->epoch && c->open) {
        if (m->kind >= N_GRANT)
            told(c, m);
        else
            handle[m->kind - R_HELLO](c, m);
    }
    free_snap(m->snap);
}

/* ---- the connection ---------------------------------------------------------------------------- */

static void try_later(struct sim_client *c, int64_t us)
{
    struct ev *e = new_event(E_RECONNECT, w.now + us);

    e->id = c->id;
    e->n = c->epoch;
    push_event(e);
}

void driver_connect(struct sim_client *c)
{
    struct msg m = { .kind = M_HELLO, .slot = -1, .sent_at = now_of(c) };

    if (c->up)
        return;
    if (c->blocked_until > w.now || !w.store_up) {
        try_later(c, 20 * US + (int64_t)(mix(c->sent++) % (50 * US)));
        return;
    }
    c->epoch++; /* also if the last attempt had no answer */
    c->last_in = c->last_out = w.now;
    send(c, &m);
    try_later(c, 4 * (w.plan->delay_us + w.plan->jitter_us) + 100 * US);
}

void driver_cut(struct sim_client *c, int64_t blocked_us)
{
    hf_error err = { .code = HF_EUNREACHABLE };

    if (w.plan->family == SYNC)
        return;
    if (w.now + blocked_us > c->blocked_until)
        c->blocked_until = w.now + blocked_us;
    in_trouble(c, c->blocked_until);
    if (!c->up) { /* its attempt to connect fails */
        c->epoch++;
        try_later(c, blocked_us);
        return;
    }
    SAY("client %u: the connection breaks, for %lld ms", c->id, (long long)blocked_us / US);
    c->up = false;
    c->epoch++;
    ev_store(&c->store, STORE_DOWN, &err);
    for (int i = 0; i < TICKETS; i++)
        if (c->dts[i].state == DT_LEAVING) {
            struct ticket *t = c->dts[i].t;

            forget(c, &c->dts[i]);
            ev_left(t, HF_EUNKNOWN);
        }
    for (int i = 0; i < LOOKS; i++)
        if (c->looks[i].look) {
            struct look *l = c->looks[i].look;

            c->looks[i].look = NULL;
            ev_done(l, NULL, HF_EUNREACHABLE, &err);
        }
    try_later(c, blocked_us);
}

/* ---- opening and closing -------------------------------------------------------------------------- */

static int open_store(struct store **ret, const struct url *u, struct env *env, hf_error *err)
{
    static const uint32_t caps[FAMILIES] = {
        [SYNC] = 0x4ff, [SCRIPTED] = 0x4ff, [LOOSE] = 0x4fe,
        [ORDERED] = HF_CAP_DEADLINE | HF_CAP_FIFO | HF_CAP_FENCE | HF_CAP_SHARED |
                    HF_CAP_PERMITS | HF_CAP_LINE
    };
    struct sim_client *c = container_of(env, struct sim_client, env);

    (void)u;
    (void)err;
    c->store = (struct store){ .driver = &sim_driver, .env = env,
                               .caps = caps[w.plan->family], .least_ttl_ms = 10,
                               .most_ttl_ms = 1000000, .name_max = 512,
                               .starts_down = w.plan->family != SYNC };
    c->free_dt = -1;
    for (int i = TICKETS - 1; i >= 0; i--) {
        c->dts[i].next_free = c->free_dt;
        c->free_dt = i;
    }
    c->inc = 1;
    c->up = w.plan->family == SYNC;
    c->epoch = 1;
    *ret = &c->store;
    return 0;
}

static void close_store(struct store *s)
{
    struct sim_client *c = sim_of(s);

    for (int i = 0; i < TICKETS; i++)
        if (c->dts[i].state != DT_FREE)
            forget(c, &c->dts[i]);
    for (int i = 0; i < LINES; i++)
        for (int k = 0; k < TTLS; k++) {
            hf__life_free(c->waits[i][k]);
            c->waits[i][k] = NULL;
        }
    for (int i = 0; i < c->nold; i++)
        hf__life_free(c->old_lives[i]);
    c->nold = 0;
    hf__life_free(c->session);
    c->session = NULL;
    ev_store(s, STORE_CLOSED, NULL);
}

const struct hf_driver sim_driver = { .name = "sim", .schemes = "sim", .open = open_store,
                                      .close = close_store, .join = join, .leave = leave,
                                      .amend = amend, .renew = renew, .look = look,
                                      .evict = evict, .stop = stop };
