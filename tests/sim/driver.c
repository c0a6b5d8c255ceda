/* driver.c: the client's end of the network: one driver for all families. It
 * translates verbs into messages and answers into events, and keeps the seam's
 * promises: it forgets a ticket with its last event; it answers every leave, also
 * while the store is away; it reports UP only when the store refuses the requests of
 * older connections (G7); it takes sent_at before sending.
 *
 * SYNC (the embedded store): the answer comes inside the verb. The others go through the
 * kit: SCRIPTED and LOOSE in sender.c, ORDERED in ordered.c. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static struct sim_client *sim_of(struct store *s)
{
    return container_of(s, struct sim_client, store);
}

/* No verb comes after `shut`. */
static struct sim_client *in_use(struct store *s)
{
    struct sim_client *c = sim_of(s);

    if (c->core.shut)
        violate("G7", "client %u asks the store for something after its goodbye", c->id);
    return c;
}

static int64_t now_of(struct sim_client *c)
{
    return proc_now(&w.procs[c->proc]);
}

/* ---- tickets --------------------------------------------------------------------- */

static uint64_t token_of(const struct ticket *t)
{
    uint64_t x;

    memcpy(&x, t->token, sizeof x);
    return x;
}

struct dt *drv_ticket(struct sim_client *c, const struct ticket *t)
{
    return t->drv[0] ? &c->dts[t->drv[0] - 1] : NULL;
}

static struct dt *remember(struct sim_client *c, struct ticket *t, enum dt_state state)
{
    struct dt *d = drv_ticket(c, t);

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

void drv_forget(struct sim_client *c, struct dt *d)
{
    d->t->drv[0] = 0;
    mem_ticket(hold_of(d->t), false);
    d->t = NULL;
    d->state = DT_FREE;
    d->next_free = c->free_dt;
    c->free_dt = (int)(d - c->dts);
}

struct dt *drv_known(struct sim_client *c, const struct msg *m)
{
    struct dt *d = &c->dts[m->slot];

    return m->slot >= 0 && d->state != DT_FREE && d->gen == m->gen ? d : NULL;
}

struct msg drv_about(struct sim_client *c, enum msg_kind kind, const struct dt *d)
{
    const struct ticket *t = d->t;

    return (struct msg){ .kind = kind,
                         .line = (uint8_t)line_of(t->name),
                         .slot = (int)(d - c->dts),
                         .gen = d->gen,
                         .token = d->token,
                         .sent_at = now_of(c),
                         .ttl_ms = t->ttl_ms,
                         .weight = t->weight,
                         .capacity = t->capacity,
                         .lk = (uint8_t)t->kind,
                         .owner = t->owner };
}

void drv_gone(struct sim_client *c, struct dt *d, int why)
{
    struct ticket *t = d->t;
    bool evicted = why == HF_EEVICTED;
    int64_t retry_ms = why == HF_ELOST ? 0 : why == HF_EBUSYSTORE ? d->retry_ms : -1;

    drv_forget(c, d);
    if (retry_ms > 0) {
        tally_sight(S_PUT_OFF);
        t->drv[1] = (uint64_t)(now_of(c) + retry_ms * US);
    }
    t->drv[2] = evicted;
    ev_gone(t, why, retry_ms, NULL);
}

/* Each ticket has a connection of its own, say, and there are too many: it cannot join now,
 * or has lost its place. */
bool drv_put_off(struct sim_client *c, struct dt *d, unsigned one_in)
{
    uint64_t h = mix(w.plan->seed ^ d->token ^ one_in);

    if (!w.plan->puts_off || w.quiet || h % one_in != 0)
        return false;
    d->retry_ms = 5 + (int64_t)(h >> 32) % 200;
    SAY("client %u: ticket %04x cannot be in line for %lld ms", c->id, TOK(d->token),
        (long long)d->retry_ms);
    return true;
}

/* ---- lives ----------------------------------------------------------------------- */

int drv_ttl(int64_t ttl_ms)
{
    for (int i = 0; i < w.plan->nttls; i++)
        if (w.plan->ttl_ms[i] == ttl_ms)
            return i;
    return -1;
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
void drv_retire(struct sim_client *c, struct life *l)
{
    if (c->nold == TICKETS)
        abort();
    c->old_lives[c->nold++] = l;
}

void drv_session_dead(struct sim_client *c)
{
    struct life *l = c->session;

    c->inc++;
    if (!l)
        return;
    c->session = NULL;
    drv_retire(c, l);
    hf__ordered_over(&c->ordered);
    ev_dead(l);
}

/* ---- verbs ----------------------------------------------------------------------- */

uint32_t drv_hints(const struct ticket *t)
{
    uint32_t mask = 0;

    for (size_t i = 0; i < t->hints_len; i += strlen(t->hints + i) + 1)
        mask |= 1u << line_of(t->hints + i);
    return mask;
}

static void join(struct store *s, struct ticket *t)
{
    struct sim_client *c = in_use(s);
    struct dt *d;
    struct msg m;
    bool first;

    if (by_scripts()) {
        sender_join(c, t);
        return;
    }
    if (w.plan->family == ORDERED) {
        ordered_join(c, t);
        return;
    }
    first = !drv_ticket(c, t);
    d = remember(c, t, DT_JOINING);
    if (now_of(c) < (int64_t)t->drv[1])
        violate("liveness", "client %u joins %s again before it may", c->id, t->name);
    t->drv[1] = 0;
    if (t->drv[2])
        violate("G7", "client %u stands in line %s again after its eviction", c->id,
                t->name);
    if (!d) {
        ev_gone(t, HF_EFULL, -1, NULL);
        return;
    }
    if (first && drv_put_off(c, d, 8)) {
        drv_gone(c, d, HF_EBUSYSTORE);
        return;
    }
    m = drv_about(c, M_JOIN, d);
    m.try_only = t->try_only;
    m.barge = t->barge;
    m.hints = drv_hints(t);
    d->withdrawing = 0;
    d->woken = 0;
    SAY("client %u: join %s, ticket %04x%s", c->id, t->name, TOK(d->token),
        t->try_only ? ", only if free" : "");
    drv_send(c, &m);
}

static void leave(struct store *s, struct ticket *t)
{
    struct sim_client *c = in_use(s);
    struct dt *d;
    struct msg m;

    oracle_left(t);
    if (by_scripts()) {
        sender_leave(c, t);
        return;
    }
    if (w.plan->family == ORDERED) {
        hf__ordered_leave(&c->ordered, t);
        return;
    }
    d = remember(c, t, DT_LEAVING);
    if (!d) {
        ev_left(t, HF_EUNKNOWN);
        return;
    }
    m = drv_about(c, M_LEAVE, d);
    m.keep_ms = t->keep_ms;
    SAY("client %u: leave %s, ticket %04x", c->id, t->name, TOK(d->token));
    drv_send(c, &m);
}

static void amend(struct store *s, struct ticket *t)
{
    struct sim_client *c = in_use(s);
    struct msg m;

    if (by_scripts()) {
        sender_amend(c, t);
        return;
    }
    if (w.plan->family == ORDERED) {
        ordered_amend(c, t);
        return;
    }
    m = drv_about(c, M_AMEND, drv_ticket(c, t));
    drv_send(c, &m);
}

/* One that was left without success hangs on its life, too, and is not known here. */
static struct dt *first_on(struct sim_client *c, const struct life *l)
{
    list_for(n, &l->tickets) {
        struct dt *d = drv_ticket(c, container_of(n, struct ticket, on_life));

        if (d)
            return d;
    }
    return NULL;
}

static void renew(struct store *s, struct life *const *lives, size_t n)
{
    struct sim_client *c = in_use(s);

    if (by_scripts()) {
        hf__scripted_renew(&c->scripted, lives, n);
        return;
    }
    if (w.plan->family == ORDERED) {
        ordered_renew(c, lives, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct dt *d = first_on(c, lives[i]);
        struct msg m;

        if (!d)
            continue;
        m = drv_about(c, lives[i]->kind == LIFE_OWN ? M_RENEW : M_WAIT, d);
        m.ttl_ms = lives[i]->ttl_ms;
        if (m.kind == M_WAIT)
            m.inc = (uint32_t)lives[i]->drv[0];
        SAY("client %u: renew %s, ticket %04x%s", c->id, d->t->name, TOK(d->token),
            m.kind == M_WAIT ? " and those that wait with it" : "");
        drv_send(c, &m);
    }
}

static void ask(struct sim_client *c, struct look *l, enum msg_kind kind)
{
    struct msg m = { .kind = kind, .line = (uint8_t)line_of(l->name), .now = l->now };
    int i = 0;

    while (i < LOOKS && c->looks[i].look)
        i++;
    if (i == LOOKS || !wire_to(c, m.line)->up) {
        ev_done(l, NULL, i == LOOKS ? HF_EFULL : HF_EUNREACHABLE, NULL);
        return;
    }
    c->looks[i].look = l;
    m.slot = i;
    m.gen = ++c->looks[i].gen;
    memcpy(&m.token, l->token, sizeof m.token);
    SAY("client %u: %s %s", c->id, kind == M_LOOK ? "looks at" : "evicts from", l->name);
    drv_send(c, &m);
}

static void look(struct store *s, struct look *l)
{
    ask(in_use(s), l, M_LOOK);
}

static void evict(struct store *s, struct look *l)
{
    ask(in_use(s), l, M_EVICT);
}

static void stop(struct store *s, struct look *l, struct cell *cell)
{
    struct sim_client *c = sim_of(s);

    (void)cell;
    for (int i = 0; i < LOOKS; i++)
        if (c->looks[i].look == l)
            c->looks[i].look = NULL;
}

/* It may come after `shut`, but brings nothing new then. */
static void flush(struct store *s)
{
    if (by_scripts() && sim_of(s)->scripted.ndue > 0)
        hf__scripted_flush(&in_use(s)->scripted);
    hf__link_flush(&sim_of(s)->dirty);
}

/* ---- opening and closing --------------------------------------------------------- */

/* What the servers turn out to be able to do: known when one is reached. In some runs they
 * are replaced half-way by older ones. */
void driver_learns(struct sim_client *c)
{
    if (w.plan->family == LOOSE || (w.plan->replaced && w.now > w.plan->end / 2))
        c->store.caps &= ~(uint32_t)HF_CAP_DEADLINE;
}

static int open_store(struct store **ret, const struct url *u, struct env *env,
                      hf_error *err)
{
    static const uint32_t caps[FAMILIES] = { [SYNC] = 0x4ff,
                                             [SCRIPTED] = 0x4ff,
                                             [LOOSE] = 0x4ff, /* until its first UP */
                                             [ORDERED] = HF_CAP_DEADLINE | HF_CAP_FIFO |
                                                         HF_CAP_FENCE | HF_CAP_SHARED |
                                                         HF_CAP_PERMITS | HF_CAP_LINE };
    struct sim_client *c = container_of(env, struct sim_client, env);

    (void)u;
    (void)err;
    c->store = (struct store){ .driver = &sim_driver,
                               .env = env,
                               .caps = caps[w.plan->family],
                               .least_ttl_ms = 10,
                               .most_ttl_ms = 1000000,
                               .name_max = 512,
                               .starts_down = w.plan->family != SYNC };
    c->free_dt = -1;
    for (int i = TICKETS - 1; i >= 0; i--) {
        c->dts[i].next_free = c->free_dt;
        c->free_dt = i;
    }
    c->inc = 1;
    c->up = w.plan->family == SYNC;
    net_open(c);
    if (w.plan->family == ORDERED)
        ordered_open(c);
    *ret = &c->store;
    return by_scripts() ? sender_open(c) : 0;
}

static void shut(struct store *s)
{
    struct sim_client *c = sim_of(s);
    struct msg m = { .kind = M_BYE, .slot = -1, .sent_at = now_of(c) };

    if (w.plan->family == ORDERED && c->up && c->session)
        drv_send(c, &m);
    else
        ev_shut(s);
}

static void close_store(struct store *s)
{
    struct sim_client *c = sim_of(s);

    net_close(c);
    sender_close(c);
    if (w.plan->family == ORDERED)
        hf__ordered_close(&c->ordered);
    for (int i = 0; i < TICKETS; i++)
        if (c->dts[i].state != DT_FREE)
            drv_forget(c, &c->dts[i]);
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
}

const struct hf_driver sim_driver = { .name = "sim",
                                      .schemes = "sim",
                                      .open = open_store,
                                      .shut = shut,
                                      .close = close_store,
                                      .join = join,
                                      .leave = leave,
                                      .amend = amend,
                                      .renew = renew,
                                      .look = look,
                                      .evict = evict,
                                      .stop = stop,
                                      .flush = flush };
