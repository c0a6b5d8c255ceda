/* order.c: the reference store's ordered family (ZooKeeper, etcd): nobody writes
 * "granted". A ticket belongs to a session and gets a number at its join, which is its
 * fence; the holders are the longest prefix of the line that fits. Waiters watch the
 * ticket whose end concerns them. A session that is not renewed ends, and its tickets
 * with it, at that moment. */
#include "sim.h"

#include <string.h>

static void fire(struct line *l, uint64_t token)
{
    for (int i = 0; i < l->nwatches;) {
        struct watch_on at = l->watches[i];

        if (at.token != token && at.token != 0) {
            i++;
            continue;
        }
        l->watches[i] = l->watches[--l->nwatches];
        store_notify(at.id, &(struct msg){ .kind = N_FIRED,
                                           .id = at.id,
                                           .slot = at.slot,
                                           .gen = at.gen,
                                           .line = (uint8_t)(l - w.lines) });
    }
}

/* Who has come into the prefix by this step has been granted the place. */
static void regard(struct line *l)
{
    const struct st *head = NULL;
    int64_t sum = 0;

    list_for(n, &l->queue) {
        struct st *s = container_of(n, struct st, node);

        head = head ? head : s;
        if (s->lk != head->lk || s->capacity != head->capacity ||
            sum_of(sum, s->weight) > head->capacity)
            break;
        sum = sum_of(sum, s->weight);
        if (s->prefix)
            continue;
        s->prefix = true;
        oracle_store_grant(s);
    }
}

void order_drop(struct line *l, struct st *s)
{
    uint64_t token = s->token;

    free_st(s);
    fire(l, token);
    regard(l);
}

static void plan_session(uint8_t id)
{
    struct ev *e = new_event(E_SESSION, w.sessions[id].expires);

    e->id = id;
    e->n = w.sessions[id].inc;
    push_event(e);
}

static void end_session(uint8_t id, const char *rule)
{
    w.sessions[id].alive = false;
    for (int i = 0; i < w.plan->lines; i++)
        list_for_safe(n, &w.lines[i].queue) {
            struct st *t = container_of(n, struct st, node);

            if (t->id != id)
                continue;
            oracle_dropped(t, rule);
            order_drop(&w.lines[i], t);
        }
}

/* Its time may be over. */
void store_session(uint8_t id)
{
    struct sess *s = &w.sessions[id];

    if (!s->alive)
        return;
    if (!w.store_up) { /* an ensemble without a leader ends no session, and renews none */
        s->expires = w.now + s->ttl_ms * US;
        plan_session(id);
        return;
    }
    if (s->expires > w.now) {
        plan_session(id);
        return;
    }
    SAY("store: the session of client %u has ended", id);
    tally_sight(S_EXPIRED);
    end_session(id, "G1");
}

static int attend(const struct msg *m)
{
    struct sess *s = &w.sessions[m->id];

    if (m->inc < s->inc || (m->inc == s->inc && !s->alive))
        return HF_ELOST;
    if (m->inc > s->inc) {
        bool planned = s->alive;

        *s = (struct sess){ .inc = m->inc, .alive = true, .ttl_ms = m->ttl_ms };
        s->expires = w.now + m->ttl_ms * US;
        if (!planned)
            plan_session(m->id);
    }
    s->expires = w.now + m->ttl_ms * US;
    return 0;
}

static bool would_hold(const struct line *l, const struct msg *m, int *rc)
{
    const struct st *head = NULL;
    int64_t sum = 0;

    *rc = HF_EBUSY;
    list_for(n, &l->queue) {
        const struct st *s = container_of(n, struct st, node);

        head = head ? head : s;
        if (head->lk != m->lk || head->capacity != m->capacity) {
            *rc = HF_EMISMATCH;
            return false;
        }
        sum = sum_of(sum, s->weight);
    }
    return sum_of(sum, m->weight) <= m->capacity;
}

static void join(struct msg *m, struct msg *a)
{
    struct line *l = &w.lines[m->line];
    struct st *s;

    if ((a->rc = attend(m)) < 0)
        return;
    a->again = true; /* the session was renewed */
    s = store_find(m->line, m->token);
    if (!s && m->try_only && !would_hold(l, m, &a->rc))
        return;
    a->rc = 0;
    if (!s) {
        s = new_st(m);
        s->fence = ++w.revision;
        list_push(&l->queue, &s->node);
        regard(l);
    }
    a->fence = s->fence;
    a->snap = new_snap();
    fill_rows(a->snap, l, m->id);
}

/* What a follower knows that is cut off from its leader. */
static struct snap old[PROCS * SLOTS][LINES];

void order_cut_off(const struct sim_client *c)
{
    for (int i = 0; i < w.plan->lines; i++) {
        struct snap *s = &old[c->proc * SLOTS + c->slot][i];

        s->n = 0;
        fill_rows(s, &w.lines[i], c->id);
    }
}

static void read_old(const struct msg *m, const struct sim_client *c)
{
    const struct snap *s = &old[c->proc * SLOTS + c->slot][m->line];
    struct msg a = *m;

    tally_sight(S_OLD_READ);
    a.rc = 0;
    a.snap = new_snap();
    a.snap->n = s->n;
    memcpy(a.snap->rows, s->rows, (size_t)s->n * sizeof s->rows[0]);
    store_reply(m, &a);
}

static bool watched(const struct line *l, const struct msg *m)
{
    for (int i = 0; i < l->nwatches; i++) {
        const struct watch_on *at = &l->watches[i];

        if (at->id == m->id && at->slot == m->slot && at->gen == m->gen &&
            at->token == m->watch)
            return true;
    }
    return false;
}

/* A read, too, shows the store that the session lives; but its answer may come from a
 * follower that cannot tell the leader, so that nobody may count on it. */
static void read_line(const struct msg *m, struct msg *a)
{
    struct line *l = &w.lines[m->line];
    struct sess *s = &w.sessions[m->id];

    if (s->alive && s->inc == m->inc)
        s->expires = w.now + s->ttl_ms * US;
    a->rc = 0;
    a->snap = new_snap();
    fill_rows(a->snap, l, m->id);
    if (l->nwatches < ROWS && (m->watch == 0 || store_find(m->line, m->watch)) &&
        !watched(l, m))
        l->watches[l->nwatches++] = (struct watch_on){ m->watch, m->id, m->slot, m->gen };
}

/* For inspection, where the prefix stands as holders. */
static void look(const struct msg *m, struct msg *a)
{
    uint32_t pos = 0;
    int64_t sum = 0;
    bool room = true;

    a->rc = 0;
    a->snap = new_snap();
    fill_rows(a->snap, &w.lines[m->line], m->id);
    for (int i = 0; i < a->snap->n; i++) {
        struct srow *r = &a->snap->rows[i], *head = &a->snap->rows[0];

        room = room && r->kind == head->kind && r->capacity == head->capacity &&
               sum + r->weight <= head->capacity;
        sum += r->weight;
        r->position = room ? 0 : ++pos;
    }
}

static void amend(const struct msg *m, struct msg *a)
{
    struct line *l = &w.lines[m->line];
    struct st *s = store_find(m->line, m->token);

    a->rc = s ? 0 : HF_ELOST;
    if (s && m->weight < s->weight) {
        s->weight = m->weight;
        fire(l, s->token);
        regard(l);
    }
}

static void evict(const struct msg *m, struct msg *a)
{
    struct st *s = store_find(m->line, m->token);

    a->rc = !m->now ? HF_ENOTSUP : s ? 0 : HF_ENOENT;
    if (a->rc < 0)
        return;
    oracle_evicted(s);
    store_notify(s->id, &(struct msg){ .kind = N_GONE,
                                       .id = s->id,
                                       .slot = s->slot,
                                       .gen = s->gen,
                                       .token = s->token,
                                       .line = s->line });
    order_drop(&w.lines[m->line], s);
}

void order_receive(struct msg *m)
{
    const struct sim_client *c = w.by_id[m->id];
    struct msg a = *m;
    struct st *s;

    if (c && c->stale && c->epoch == m->epoch) {
        if (m->kind == M_READ)
            read_old(m, c);
        return;
    }
    a.snap = NULL;
    switch (m->kind) {
    case M_JOIN:
        join(m, &a);
        break;
    case M_LEAVE:
        s = store_find(m->line, m->token);
        if (MUTANT(RELEASE_BY_NAME) && !list_empty(&w.lines[m->line].queue))
            s = container_of(list_first(&w.lines[m->line].queue), struct st, node);
        if (s) {
            oracle_dropped(s, "G8");
            order_drop(&w.lines[m->line], s);
        }
        a.rc = 0;
        break;
    case M_AMEND:
        amend(m, &a);
        break;
    case M_SESSION:
        a.rc = attend(m);
        break;
    case M_READ:
        read_line(m, &a);
        break;
    case M_BYE:
        if (w.sessions[m->id].inc == m->inc)
            end_session(m->id, "G8");
        a.rc = 0;
        break;
    case M_LOOK:
        look(m, &a);
        break;
    case M_EVICT:
        evict(m, &a);
        break;
    default:
        return;
    }
    store_reply(m, &a);
}
