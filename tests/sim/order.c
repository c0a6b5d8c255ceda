/* order.c: the reference store's ordered family (ZooKeeper, etcd): nobody writes
 * "granted". A ticket belongs to a session and gets a number at its join, which is its
 * fence; the holders are the longest prefix of the line that fits. Waiters watch the
 * ticket whose end concerns them. A session that is not renewed ends, and its tickets
 * with it, at that moment. */
#include "sim.h"

#include <string.h>

/* In half of the runs of a store like etcd one watch also has the next ticket of who is
 * told: if that has not ended before, it is there now. */
static uint64_t shown_to(const struct line *l, struct watch_on at)
{
    if (!w.plan->like_etcd || at.fence == 0 || mix(w.plan->seed ^ 0x73686f77) % 2)
        return 0;
    list_for(n, &l->queue) {
        const struct st *s = container_of(n, struct st, node);

        if (s->id == at.id && s->fence > at.fence)
            return s->fence;
    }
    return 0;
}

/* of: whose node it is; `now` says that it is its own, `again` that it is still there. */
static void tell(const struct line *l, struct watch_on at, uint8_t of, bool changed)
{
    store_notify(at.id, &(struct msg){ .kind = N_FIRED,
                                       .id = at.id,
                                       .slot = -1,
                                       .fence = at.fence,
                                       .shown = changed ? 0 : shown_to(l, at),
                                       .revision = w.revision,
                                       .shared = at.shared,
                                       .now = at.fence && at.id == of,
                                       .again = changed,
                                       .line = (uint8_t)(l - w.lines) });
}

/* A node has ended or changed, or (fence 0) one has come. */
static void fire(struct line *l, uint64_t fence, bool shared, uint8_t of, bool changed)
{
    for (int i = 0; i < l->nwatches;) {
        struct watch_on at = l->watches[i];

        if (at.fence == 0 ? changed : at.fence != fence || at.shared != shared) {
            i++;
            continue;
        }
        l->watches[i] = l->watches[--l->nwatches];
        tell(l, at, of, changed);
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
    struct st was = *s;

    free_st(s);
    w.revision++;
    fire(l, was.fence, was.shared, was.id, false);
    regard(l);
}

static struct st *node_of(const struct line *l, uint64_t fence, bool shared)
{
    list_for(n, &l->queue) {
        struct st *s = container_of(n, struct st, node);

        if (s->fence == fence && s->shared == shared)
            return s;
    }
    return NULL;
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

static void join(struct msg *m, struct msg *a)
{
    struct line *l = &w.lines[m->line];
    struct st *s;

    if ((a->rc = attend(m)) < 0)
        return;
    s = new_st(m);
    a->fence = s->fence = ++w.revision;
    list_push(&l->queue, &s->node);
    fire(l, 0, false, s->id, false);
    regard(l);
}

/* What a follower knows that is cut off from its leader; and one that lags behind, and may
 * answer whatever need not be new. */
static struct old {
    struct snap lines[LINES];
    uint64_t revision;
    int64_t at;
} old[PROCS * SLOTS], lagging;

static void copy(struct old *o, uint8_t id)
{
    o->revision = w.revision;
    o->at = w.now;
    for (int i = 0; i < w.plan->lines; i++) {
        o->lines[i].n = 0;
        fill_rows(&o->lines[i], &w.lines[i], id);
    }
}

void order_cut_off(const struct sim_client *c)
{
    copy(&old[c->proc * SLOTS + c->slot], c->id);
}

/* Now and then it has everything, at the latest after LAG_US; a later one is of another
 * run. */
static bool lags(const struct msg *m)
{
    if (lagging.at > w.now || w.now - lagging.at > LAG_US ||
        lagging.revision > w.revision || mix(w.plan->seed ^ w.revision) % 16 == 0)
        copy(&lagging, 0);
    return w.plan->lags && m->kind == M_READ && lagging.revision < w.revision &&
           (m->what == READ_OWN || (m->what == READ_LIST && !m->again &&
                                    mix(w.plan->seed ^ (uint64_t)w.now) % 4 == 0));
}

/* The whole line, one node, or the nodes of one ticket. */
static struct snap *part_of(const struct msg *m, const struct snap *all)
{
    struct snap *s = new_snap();

    s->n = 0;
    for (int i = 0; i < all->n; i++) {
        const struct srow *r = &all->rows[i];

        if (m->what == READ_LIST || m->what == READ_TRY ||
            (m->what == READ_ENTRY && r->fence == m->fence && r->shared == m->shared) ||
            ((m->what == READ_CHECK || m->what == READ_OWN || m->what == READ_OWN_NOW) &&
             r->fence == m->fence) ||
            (m->what == READ_FIND && r->token == m->token))
            s->rows[s->n++] = *r;
    }
    return s;
}

static void read_old(const struct msg *m, const struct old *o)
{
    struct msg a = *m;

    tally_sight(S_OLD_READ);
    a.rc = 0;
    a.revision = o->revision;
    a.snap = part_of(m, &o->lines[m->line]);
    store_reply(m, &a);
}

static void watch(struct line *l, uint8_t id, uint64_t fence, bool shared)
{
    for (int i = 0; i < l->nwatches; i++) {
        const struct watch_on *at = &l->watches[i];

        if (at->id == id && at->fence == fence && at->shared == shared)
            return;
    }
    if (l->nwatches < ROWS)
        l->watches[l->nwatches++] =
            (struct watch_on){ .fence = fence, .shared = shared, .id = id };
}

/* A read, too, shows the store that the session lives; but its answer may come from a
 * follower that cannot tell the leader, so that nobody may count on it. */
static void read_line(const struct msg *m, struct msg *a)
{
    static struct snap all;
    struct line *l = &w.lines[m->line];
    struct sess *s = &w.sessions[m->id];

    if (s->alive && s->inc == m->inc)
        s->expires = w.now + s->ttl_ms * US;
    a->rc = 0;
    all.n = 0;
    fill_rows(&all, l, m->id);
    a->snap = part_of(m, &all);
    if (m->what == READ_ENTRY && a->snap->n > 0)
        watch(l, m->id, m->fence, m->shared);
    if (m->what == READ_LIST && m->again)
        watch(l, m->id, 0, false);
}

/* Its connection is a new one: the watches that it has are set again, and what they had to
 * tell is told before anything else. */
void order_greeted(struct sim_client *c)
{
    for (int i = 0; i < w.plan->lines; i++)
        for (int k = 0; k < w.lines[i].nwatches;)
            if (w.lines[i].watches[k].id == c->id)
                w.lines[i].watches[k] = w.lines[i].watches[--w.lines[i].nwatches];
            else
                k++;
    list_for(n, &c->ordered.lines) {
        const struct ordered_line *l = container_of(n, struct ordered_line, all);
        struct line *at = &w.lines[ordered_number(l)];

        if (l->watch == WATCH_SET)
            tell(at, (struct watch_on){ .id = c->id }, c->id, false);
        for (size_t i = 0; i < l->n; i++) {
            const struct ordered_entry *e = l->entries[i];
            bool shared = e->name[0] == 'r';
            const struct st *s = node_of(at, (uint64_t)e->seq, shared);

            if (e->watch != WATCH_SET)
                continue;
            if (s && s->weight == e->weight)
                watch(at, c->id, s->fence, shared);
            else
                tell(at,
                     (struct watch_on){
                         .id = c->id, .fence = (uint64_t)e->seq, .shared = shared },
                     c->id, s != NULL);
        }
    }
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
    bool lighter = s && m->weight < s->weight, was = s && s->shared;

    a->rc = s ? 0 : HF_ELOST;
    if (!lighter)
        return;
    s->weight = m->weight;
    s->shared = !w.plan->like_etcd;
    w.revision++;
    fire(l, s->fence, was, s->id, w.plan->like_etcd);
    regard(l);
}

static void evict(const struct msg *m, struct msg *a)
{
    struct st *s = store_find(m->line, m->token);

    a->rc = !m->now ? HF_ENOTSUP : s ? 0 : HF_ENOENT;
    if (a->rc < 0)
        return;
    oracle_evicted(s);
    order_drop(&w.lines[m->line], s);
}

void order_receive(struct msg *m)
{
    struct sim_client *c = w.by_id[m->id];
    struct msg a = *m;
    struct st *s;

    if (c && c->wires[0].stale && c->wires[0].epoch == m->epoch) {
        if (m->kind == M_READ && m->what != READ_OWN_NOW)
            read_old(m, &old[c->proc * SLOTS + c->slot]);
        else if (!w.plan->like_etcd && m->kind != M_LOOK)
            c->wires[0].silent = true; /* no answer overtakes the one that does not come */
        return;
    }
    if (lags(m)) {
        read_old(m, &lagging);
        return;
    }
    a.snap = NULL;
    switch (m->kind) {
    case M_JOIN:
        join(m, &a);
        break;
    case M_LEAVE:
        s = node_of(&w.lines[m->line], m->fence, m->shared);
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
    a.revision = w.revision;
    store_reply(m, &a);
}
