/* scripted.c: the requests of the reference store's scripted family, each one atomic
 * step. A token that is in line already answers its present place; renew, leave and
 * evict name the ticket (G8), and find it or change nothing. */
#include "sim.h"

#include <string.h>

/* ---- requests -------------------------------------------------------------------- */

static void answer_place(struct line *l, struct st *s, struct msg *a)
{
    a->rc = 0;
    if (s->held) {
        a->fence = s->fence;
        return;
    }
    a->fence = 0;
    a->seq = s->seq;
    a->inc = s->g->number;
    a->stamp = s->g->stamp;
    a->position = line_position(l, s);
    a->recheck_ms = line_recheck_ms(l, s);
}

static void queue_up(struct line *l, const struct msg *m, struct msg *a)
{
    struct grp *g = line_group(l, m->id, m->ttl_ms, true);
    struct st *s;

    if (!g) {
        a->rc = HF_EFULL;
        return;
    }
    s = new_st(m);
    s->g = g;
    g->n++;
    line_renew(g, m->sent_at);
    if (MUTANT(FENCE_AT_JOIN))
        s->fence = line_fence(l);
    list_push(&l->queue, &s->node);
    line_step(l);
    answer_place(l, s, a);
}

static void join_again(struct line *l, struct st *s, const struct msg *m, struct msg *a)
{
    if (s->held) {
        s->expires = w.now + s->ttl_ms * US;
        s->sent_at = m->sent_at;
    } else {
        line_renew(s->g, m->sent_at);
    }
    answer_place(l, s, a);
}

static void join(const struct msg *m, struct msg *a)
{
    struct line *l = &w.lines[m->line];
    struct st *s;
    bool empty;

    line_step(l);
    if ((s = store_find(m->line, m->token)) != NULL) {
        join_again(l, s, m, a);
        return;
    }
    sender_joins(m);
    empty = list_empty(&l->holders) && list_empty(&l->queue);
    if (empty) {
        l->kind = (enum line_kind)m->lk;
        l->capacity = m->capacity;
        l->sum = 0;
    }
    if (l->kind != (enum line_kind)m->lk || l->capacity != m->capacity) {
        a->rc = HF_EMISMATCH;
    } else if (line_fits(l, m->weight) && (m->barge || list_empty(&l->queue))) {
        s = new_st(m);
        line_grant(l, s);
        line_step(l);
        answer_place(l, s, a);
    } else if (m->try_only) {
        a->rc = HF_EBUSY;
    } else {
        queue_up(l, m, a);
    }
}

static void leave(const struct msg *m, struct msg *a)
{
    struct line *l = &w.lines[m->line];
    struct st *s = store_find(m->line, m->token);

    if (MUTANT(RELEASE_BY_NAME) && !list_empty(&l->holders))
        s = container_of(list_first(&l->holders), struct st, node);
    a->rc = 0;
    a->fence = s != NULL;
    if (s && s->held && m->keep_ms > 0) {
        s->expires = w.now + m->keep_ms * US;
        s->kept = s->told = true;
        tally_sight(S_KEPT);
        s->owner = (struct owner){ 0, 0 }; /* nobody's now: it ends by itself */
    } else if (s) {
        oracle_dropped(s, "G8");
        line_drop(l, s);
    }
    line_step(l);
}

static void amend(const struct msg *m, struct msg *a)
{
    struct line *l = &w.lines[m->line];
    struct st *s = line_find(&l->holders, m->token);

    a->rc = HF_ELOST;
    if (!s || st_dead(s))
        return;
    a->rc = 0;
    if (m->weight < s->weight) {
        l->sum -= s->weight - m->weight;
        s->weight = m->weight;
    }
    line_step(l);
}

static void renew(const struct msg *m, struct msg *a)
{
    struct st *s = line_find(&w.lines[m->line].holders, m->token);

    a->rc = HF_ELOST;
    if (!s || st_dead(s) || s->kept)
        return;
    a->rc = HF_EBUSY;
    if (s->marked)
        return;
    a->rc = 0;
    if (m->ttl_ms == 0)
        return; /* only asked */
    a->ttl_ms = s->ttl_ms = m->ttl_ms;
    s->expires = w.now + m->ttl_ms * US;
    s->sent_at = m->sent_at;
    s->told = true;
}

/* The safety look: proves the waiters alive, and answers with the places of them all. */
static void look_of_waiters(const struct msg *m, struct msg *a)
{
    struct line *l = &w.lines[m->line];
    struct grp *g = line_group(l, m->id, m->ttl_ms, false);

    a->snap = new_snap();
    a->rc = g && g->expires > w.now && g->number == m->inc ? 0 : HF_ELOST;
    if (a->rc == 0)
        line_renew(g, m->sent_at);
    line_step(l);
    fill_rows(a->snap, l, m->id);
}

/* One that was granted is renewed by this request of its owner, which may come late: when
 * the owner has renewed it for longer, that stays. A mark that its owner has not heard of
 * ends it. */
static struct srow place_of(const struct msg *m, uint64_t token)
{
    const struct line *l = &w.lines[m->line];
    struct st *s = store_find(m->line, token);
    struct srow r = { .token = token, .marked = s ? s->marked : oracle_was_evicted(token) };

    if (!s || s->marked || s->kept)
        return r;
    if (!s->held) {
        r.position = line_position(l, s);
        r.expires_ms = line_recheck_ms(l, s);
        return r;
    }
    r.fence = s->fence;
    if (s->expires < w.now + m->ttl_ms * US) {
        s->expires = w.now + m->ttl_ms * US;
        s->sent_at = m->sent_at;
    }
    s->told = true;
    return r;
}

/* The same for the kit: of those that are named. */
static void look_by_name(const struct msg *m, struct msg *a)
{
    struct line *l = &w.lines[m->line];
    struct grp *g = line_group(l, m->id, m->ttl_ms, false);
    bool first = true;

    a->rc = g && g->expires > w.now ? 0 : HF_ELOST;
    if (a->rc == 0)
        line_renew(g, m->sent_at);
    line_step(l);
    a->snap = new_snap();
    a->recheck_ms = -1;
    for (size_t i = 0; i < m->names->n; i++) {
        struct srow r = place_of(m, m->names->tokens[i]);

        if (r.position > 0 && first) {
            first = false;
            a->recheck_ms = r.expires_ms;
        }
        a->snap->rows[a->snap->n++] = r;
    }
    g = line_group(l, m->id, m->ttl_ms, false);
    a->capacity = g ? g->n : 0;
    a->stamp = g ? g->stamp : 0;
    if (!g)
        a->rc = HF_ELOST;
}

void fill_rows(struct snap *snap, const struct line *l, uint8_t id)
{
    const struct list *lists[2] = { &l->holders, &l->queue };
    uint32_t pos = 0;

    for (int i = 0; i < 2; i++)
        list_for(n, lists[i]) {
            const struct st *s = container_of(n, struct st, node);

            if (st_dead(s) || snap->n == ROWS)
                continue;
            snap->rows[snap->n++] =
                (struct srow){ .token = s->token,
                               .fence = s->fence,
                               .slot = s->slot,
                               .gen = s->gen,
                               .position = i == 0 ? 0 : ++pos,
                               .id = s->id,
                               .kind = s->lk,
                               .weight = s->weight,
                               .capacity = s->capacity,
                               .joined = s->joined,
                               .expires_ms = i == 0 ? line_recheck_ms(l, s) : -1,
                               .owner = s->owner,
                               .hints = s->hints,
                               .marked = s->marked,
                               .sent_at = s->sent_at,
                               .mine = s->id == id && (i == 1 || !s->told),
                               .shared = s->shared };
            if (i == 1)
                snap->rows[snap->n - 1].expires_ms = line_recheck_ms(l, s);
        }
}

static void evict(const struct msg *m, struct msg *a)
{
    struct line *l = &w.lines[m->line];
    struct st *s;

    line_step(l);
    s = store_find(m->line, m->token);
    a->rc = s ? 0 : HF_ENOENT;
    if (!s)
        return;
    if (s->held && !m->now && !s->kept) {
        s->marked = true;
        line_tell(s, N_MARK);
        return;
    }
    oracle_evicted(s);
    line_tell(s, N_GONE);
    line_drop(l, s);
    line_step(l);
}

static void scripted(struct msg *m, struct msg *a)
{
    switch (m->kind) {
    case M_JOIN:
        join(m, a);
        break;
    case M_LEAVE:
        leave(m, a);
        break;
    case M_AMEND:
        amend(m, a);
        break;
    case M_RENEW:
        renew(m, a);
        break;
    case M_WAIT:
        if (by_scripts())
            look_by_name(m, a);
        else
            look_of_waiters(m, a);
        break;
    case M_LOOK:
        line_clean(&w.lines[m->line]);
        a->snap = new_snap();
        a->rc = 0;
        fill_rows(a->snap, &w.lines[m->line], m->id);
        break;
    case M_EVICT:
        evict(m, a);
        break;
    default:
        break;
    }
}

static bool gave_up(const struct sim_client *c, const struct msg *m)
{
    if (by_scripts())
        return sender_gave_up(c, m);
    if (w.plan->family == ORDERED)
        return ordered_gave_up(c, m);
    return c->dts[m->slot].gen != m->gen || c->dts[m->slot].state == DT_LEAVING;
}

/* Requests come when nobody wants them any more. */
static void regard(const struct msg *m)
{
    struct sim_client *c = w.by_id[m->id];

    if (c && m->epoch < wire_to(c, m->line)->epoch)
        tally_sight(S_OLD);
    if (c && m->kind == M_JOIN && gave_up(c, m))
        tally_sight(S_AFTER);
}

/* It must be sent again: its place has moved, another transaction was in its way. */
static bool bounces(const struct msg *m)
{
    if (!w.plan->bounces || w.quiet || m->kind < M_JOIN || m->kind > M_WAIT || draw(20) > 0)
        return false;
    tally_sight(S_BOUNCED);
    return true;
}

/* Of a connection that is gone, and the store was not told that the next one is up; or it
 * was, and cannot end the old one at once. */
static bool too_old(struct msg *m)
{
    int part = part_of_line(m->line);

    if (m->held_up && w.quiet)
        return true;
    if (m->epoch >= w.conn_epoch[m->id][part] || MUTANT(OLD_REQUESTS))
        return false;
    if (m->epoch == 0 || w.now >= w.echo_until[m->id][part] ||
        (m->held_up && m->kind != M_JOIN))
        return true;
    tally_sight(S_ECHO);
    m->held_up = true;
    return false;
}

/* Rights are withdrawn for a while, some or all: nothing is done, and that is said. */
static bool refuses(const struct msg *m)
{
    struct sim_client *c = w.by_id[m->id];
    int64_t span = w.plan->ttl_ms[0] * US / 2;
    uint64_t h = mix(w.plan->seed ^ mix((uint64_t)m->id << 40 ^ (uint64_t)(w.now / span)));
    bool look = m->kind == M_WAIT || m->kind == M_READ;
    bool change = m->kind == M_JOIN || (m->kind == M_LEAVE && !m->withdraws);

    if (!w.plan->refuses || w.quiet || h % 100 >= 10 || !(look || change) ||
        (c &&
         wire_to(c, m->line)->stale)) /* a follower that is cut off knows nothing of that */
        return false;
    h >>= 32;
    return h % 3 == 0 || (h % 3 == 1 ? look : change);
}

static void refuse(const struct msg *m, struct msg *a)
{
    struct st *s = m->kind == M_LEAVE ? store_find(m->line, m->token) : NULL;

    if (s)
        s->leave_refused = true;
    a->rc = HF_EAUTH;
}

void store_receive(struct msg *m)
{
    struct sim_client *c = w.by_id[m->id];
    const struct wire *x = c ? wire_to(c, m->line) : NULL;
    int part = part_of_line(m->line);
    struct msg a = *m;

    a.snap = NULL;
    a.names = NULL;
    if (!w.store_up)
        return;
    regard(m);
    if (m->kind == M_HELLO && x && x->refused && x->blocked_until > w.now) {
        tally_sight(S_REFUSED);
        a.rc = HF_EAUTH;
    } else if (m->kind == M_HELLO) {
        if (m->epoch > w.conn_epoch[m->id][part])
            w.conn_epoch[m->id][part] = m->epoch; /* no older requests from now on (G7) */
        sender_greeted(m);
        a.rc = w.plan->family == ORDERED && w.sessions[m->id].inc == m->inc && m->inc > 0 &&
                       !w.sessions[m->id].alive
                   ? HF_ELOST
                   : 0;
        if (w.plan->family == ORDERED && c)
            order_greeted(c);
    } else if (too_old(m)) {
        return;
    } else if (by_scripts() && bounces(m)) {
        a.bounced = true;
    } else if (refuses(m)) {
        SAY("store: refuses client %u", m->id);
        tally_sight(S_REFUSED_IN_LINE);
        refuse(m, &a);
    } else if (w.plan->family == ORDERED) {
        order_receive(m);
        return;
    } else {
        scripted(m, &a);
    }
    store_reply(m, &a);
}
