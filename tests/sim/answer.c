/* answer.c: the client's end of the network, the other half: what the store answers or
 * tells becomes events of the seam. For the kit that is in sender.c and ordered.c. */
#include "sim.h"

#include <string.h>

static void withdraw(struct sim_client *c, struct dt *d, int why)
{
    struct msg m = drv_about(c, M_LEAVE, d);

    if (d->withdrawing)
        return;
    d->withdrawing = why;
    m.withdraws = true;
    drv_send(c, &m);
}

/* ---- answers --------------------------------------------------------------------- */

/* The life of the group that the store has put a ticket into. If that is a new one,
 * who hangs on the old one's life is not renewed by this join. */
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
        drv_retire(c, *at);
    return *at = l;
}

static void now_waits(struct sim_client *c, struct dt *d, const struct msg *m)
{
    struct ticket *t = d->t;
    struct life *l =
        life_of_group(c, &c->waits[m->line][drv_ttl(t->ttl_ms)], t->ttl_ms, m->inc);

    if (!l) {
        withdraw(c, d, HF_ENOMEM);
        return;
    }
    d->state = DT_WAITING;
    if (t->life != l)
        hf__hang(t, l);
    ev_alive(l, m->sent_at, t->ttl_ms);
    d->seq = m->seq;
    if (d->woken && d->woken_seq == m->seq) { /* the grant came first */
        d->state = DT_HELD;
        ev_granted(t, d->woken, d->woken_sent);
        return;
    }
    ev_waiting(t, m->position, m->recheck_ms);
    if (d->state == DT_WAITING && drv_put_off(c, d, 9))
        withdraw(c, d, HF_EBUSYSTORE);
}

static void joined(struct sim_client *c, const struct msg *m)
{
    struct dt *d = drv_known(c, m);

    if (d && d->state == DT_LEAVING && m->rc == 0 && m->fence)
        ev_granted(d->t, m->fence, m->sent_at); /* too late: its leave is on the way */
    if (!d || d->state != DT_JOINING)
        return;
    if (m->rc < 0) {
        drv_gone(c, d, m->rc);
    } else if (m->fence) {
        d->state = DT_HELD;
        ev_granted(d->t, m->fence, m->sent_at);
    } else {
        now_waits(c, d, m);
    }
}

static void left(struct sim_client *c, const struct msg *m)
{
    struct dt *d = drv_known(c, m);
    struct ticket *t;

    if (!d)
        return;
    t = d->t;
    if (d->state == DT_LEAVING) {
        drv_forget(c, d);
        ev_left(t, m->rc < 0 ? HF_EUNKNOWN : 0);
    } else if (d->withdrawing) {
        drv_gone(c, d, d->withdrawing);
    }
}

static void renewed(struct sim_client *c, const struct msg *m)
{
    struct dt *d = drv_known(c, m);

    if (!d || d->state != DT_HELD)
        return;
    if (m->rc == 0)
        ev_alive(d->t->own, m->sent_at, m->ttl_ms);
    else if (m->rc == HF_EBUSY)
        ev_marked(d->t);
    else if (w.plan->deaths_by_dead)
        ev_dead(d->t->own);
    else
        drv_gone(c, d, HF_ELOST);
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
    struct life *l = c->waits[m->line][drv_ttl(m->ttl_ms)];

    for (int i = 0; (!l || l->drv[0] != m->inc) && i < c->nold; i++)
        l = c->old_lives[i];
    if (!l || l->drv[0] != m->inc)
        return;
    if (m->rc == 0)
        ev_alive(l, m->sent_at, m->ttl_ms);
    list_for_safe(n, &l->tickets) {
        struct ticket *t = container_of(n, struct ticket, on_life);
        struct dt *d = drv_ticket(c, t);
        const struct srow *r = d && m->snap ? place(c, m->snap, d) : NULL;

        if (!d || d->state != DT_WAITING || d->withdrawing)
            continue;
        if (m->rc == HF_EAUTH) {
            drv_gone(c, d, HF_EAUTH);
        } else if (!r) { /* the store remembers for a while whom it has evicted */
            drv_gone(c, d, oracle_was_evicted(d->token) ? HF_EEVICTED : HF_ELOST);
        } else if (r->position == 0) {
            d->state = DT_HELD;
            ev_granted(t, r->fence, r->sent_at);
        } else {
            ev_waiting(t, r->position, r->expires_ms);
        }
    }
}

static void session_answered(struct sim_client *c, const struct msg *m)
{
    if (m->inc != c->inc || !c->session)
        return;
    if (m->rc < 0) { /* it is over: that is said by the next greeting */
        hf__link_fail(&c->wires[0].link, HF_EPROTO, "the session is over");
        return;
    }
    ev_alive(c->session, m->sent_at, m->ttl_ms);
    hf__ordered_erase_again(&c->ordered);
    hf__ordered_look_again(&c->ordered);
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

/* One row for all that hold. */
static void saw_briefly(struct look *l, const struct msg *m)
{
    struct row row = { .name = line_names[m->line], .name_len = 2, .oldest_ms = -1 };

    for (int i = 0; m->snap && i < m->snap->n; i++) {
        const struct srow *r = &m->snap->rows[i];

        row.kind = r->kind;
        row.capacity = r->capacity;
        row.holders += r->position == 0;
        row.waiters += r->position > 0;
        row.weight += r->position == 0 ? r->weight : 0;
    }
    if (row.holders > 0)
        ev_row(l, &row);
    ev_done(l, NULL, m->rc, NULL);
}

static void saw(struct sim_client *c, const struct msg *m)
{
    struct look *l = c->looks[m->slot].look;
    char hints[3 * LINES];

    if (!l || c->looks[m->slot].gen != m->gen)
        return;
    c->looks[m->slot].look = NULL;
    if (l->brief) {
        saw_briefly(l, m);
        return;
    }
    for (int i = 0; m->snap && i < m->snap->n; i++) {
        const struct srow *r = &m->snap->rows[i];
        struct row row = { .name = line_names[m->line],
                           .name_len = 2,
                           .kind = r->kind,
                           .capacity = r->capacity,
                           .oldest_ms = -1,
                           .has_ticket = true,
                           .fence = r->position ? 0 : r->fence,
                           .position = r->position,
                           .weight = r->weight,
                           .owner = r->owner,
                           .host = "",
                           .note = "",
                           .age_ms = -1,
                           .expires_ms = -1,
                           .joined = r->joined,
                           .broken = r->marked,
                           .hints = hints,
                           .hints_len = hint_text(r->hints, hints) };

        memcpy(row.token, &r->token, sizeof r->token);
        ev_row(l, &row);
    }
    ev_done(l, NULL, m->rc, NULL);
}

static void told(struct sim_client *c, struct msg *m)
{
    struct dt *d = drv_known(c, m);

    if (!d)
        return;
    if (m->kind == N_GONE && d->state != DT_LEAVING && d->state != DT_JOINING) {
        drv_gone(c, d, oracle_was_evicted(d->token) ? HF_EEVICTED : HF_ELOST);
    } else if (m->kind == N_MARK && d->state == DT_HELD) {
        ev_marked(d->t);
    } else if (m->kind == N_GRANT && d->state == DT_JOINING) {
        d->woken = m->fence;
        d->woken_seq = m->seq;
        d->woken_sent = m->sent_at;
    } else if (m->kind == N_GRANT && d->state == DT_LEAVING && d->t->life) {
        ev_granted(d->t, m->fence, m->sent_at); /* too late, too */
    } else if (m->kind == N_GRANT && d->state == DT_WAITING && d->seq == m->seq &&
               !d->withdrawing) {
        d->state = DT_HELD;
        ev_granted(d->t, m->fence, m->sent_at);
    }
}

static void is_up(struct sim_client *c, const struct msg *m)
{
    struct wire *x = wire_to(c, m->line);
    bool was_up = c->up;

    if (m->rc == HF_EAUTH) {
        hf__link_fail(&x->link, HF_EAUTH, "refused");
        return;
    }
    net_up(x);
    c->up = true;
    if (m->rc == HF_ELOST && m->inc == c->inc)
        drv_session_dead(c);
    sender_up(x);
    if (was_up) {
        part_back(x);
    } else {
        driver_learns(c);
        ev_store(&c->store, STORE_UP, NULL);
    }
    if (w.plan->family == ORDERED)
        hf__ordered_up(&c->ordered);
}

static void amended(struct sim_client *c, const struct msg *m)
{
    struct dt *d = drv_known(c, m);

    if (d && d->state == DT_HELD)
        ev_amended(d->t, m->rc);
}

/* Nothing of the client is left at the store. */
static void said_bye(struct sim_client *c, const struct msg *m)
{
    (void)m;
    for (int i = 0; i < w.plan->lines; i++)
        list_for(n, &w.lines[i].queue)
            if (container_of(n, struct st, node)->id == c->id)
                violate("G7", "client %u has ended its session and has a ticket of %s",
                        c->id, line_names[i]);
    tally_sight(S_BYE);
    ev_shut(&c->store);
}

void driver_receive(struct sim_client *c, struct msg *m)
{
    static void (*const others[])(struct sim_client *, const struct msg *) = {
        is_up, joined, left, amended, renewed, looked, NULL, saw, saw, NULL, NULL
    };
    static void (*const ordered[])(struct sim_client *, const struct msg *) = {
        is_up, ordered_joined, ordered_left,     ordered_amended,
        NULL,  NULL,           session_answered, saw,
        saw,   ordered_read,   said_bye
    };
    const struct wire *x = wire_to(c, m->line);
    struct call call;

    if (m->epoch != x->epoch && m->kind < N_GRANT)
        tally_sight(S_UNHEARD);
    if (m->kind >= N_GRANT && x->last_in > w.now)
        tally_sight(S_OVERTAKEN);
    if (m->epoch == x->epoch && c->open && net_takes(c, m, &call) &&
        !sender_receive(c, m, &call)) {
        hf__ordered_told(&c->ordered, m->revision);
        if (m->kind == N_FIRED)
            ordered_fired(c, m);
        else if (m->kind >= N_GRANT)
            told(c, m);
        else if (w.plan->family == ORDERED)
            ordered[m->kind - R_HELLO](c, m);
        else
            others[m->kind - R_HELLO](c, m);
    }
    free_snap(m->snap);
    if (w.plan->family != SYNC) /* the core may be shut and not flush any more */
        hf__link_flush(&c->dirty);
}
