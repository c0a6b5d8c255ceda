/* lines.c: the reference store, written from the design and not from any driver: lines
 * of tickets, kept by requests that each are one atomic step. Here the scripted family
 * (Redis, SQL, the embedded store): a request that makes room admits the next in the
 * same step and tells their clients; every hold has an expiry of its own; the waiting
 * tickets of one client, line and ttl share one. Whoever comes first drops what has
 * expired; an `eager` store drops it at the moment.
 *
 * A grant copies the expiry of its waiters' group and moves nothing (G1). It also
 * copies, and tells, when the request that set this expiry was sent, by its owner's
 * clock: the owner may have sent others since, which renewed the group but not the hold. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static struct st *pool;

struct st *new_st(const struct msg *m)
{
    struct st *s = pool;

    if (s)
        pool = s->next;
    else if ((s = malloc(sizeof *s)) == NULL)
        abort();
    memset(s, 0, sizeof *s);
    s->id = m->id;
    s->line = m->line;
    s->lk = m->lk;
    s->slot = m->slot;
    s->gen = m->gen;
    s->token = m->token;
    s->weight = m->weight;
    s->capacity = m->capacity;
    s->ttl_ms = m->ttl_ms;
    s->owner = m->owner;
    s->hints = m->hints;
    s->barge = m->barge;
    s->joined = w.now;
    s->seq = ++w.joins;
    s->asked = m->asked;
    s->held_up = m->held_up;
    list_init(&s->node);
    return s;
}

void free_st(struct st *s)
{
    list_remove(&s->node);
    s->next = pool;
    pool = s;
}

int64_t sum_of(int64_t a, int64_t b)
{
    return MUTANT(SUM32) ? (int64_t)(uint32_t)(a + b) : a + b;
}

bool st_dead(const struct st *s)
{
    if (w.plan->family == ORDERED)
        return false; /* its session takes it along */
    return (s->held ? s->expires : s->g->expires) <= w.now;
}

struct st *line_find(const struct list *l, uint64_t token)
{
    list_for(n, l) {
        struct st *s = container_of(n, struct st, node);

        if (s->token == token)
            return s;
    }
    return NULL;
}

struct st *store_find(int line, uint64_t token)
{
    struct st *s = line_find(&w.lines[line].holders, token);

    return s ? s : line_find(&w.lines[line].queue, token);
}

struct grp *line_group(struct line *l, uint8_t id, int64_t ttl_ms, bool make)
{
    struct grp *empty = NULL;

    for (size_t i = 0; i < sizeof l->grps / sizeof l->grps[0]; i++) {
        struct grp *g = &l->grps[i];

        if (g->n > 0 && g->id == id && g->ttl_ms == ttl_ms)
            return g;
        if (g->n == 0 && !empty)
            empty = g;
    }
    if (make && empty)
        *empty = (struct grp){ .id = id, .ttl_ms = ttl_ms, .number = ++w.groups };
    return make ? empty : NULL;
}

void line_drop(struct line *l, struct st *s)
{
    if (s->held)
        l->sum =
            MUTANT(SUM32) ? (int64_t)(uint32_t)(l->sum - s->weight) : l->sum - s->weight;
    else
        s->g->n--;
    free_st(s);
}

/* max(mark + 1, the store's wall clock) */
uint64_t line_fence(struct line *l)
{
    uint64_t wall = (uint64_t)(w.now + w.wall);

    l->last_fence = wall > l->last_fence ? wall : l->last_fence + 1;
    return l->last_fence;
}

void line_grant(struct line *l, struct st *s)
{
    if (s->g) {
        s->expires = s->g->expires;
        s->sent_at = s->g->sent_at;
        s->stamp = s->g->stamp;
        s->g->n--;
        s->g = NULL;
    } else {
        s->expires = w.now + s->ttl_ms * US;
        s->told = true; /* the answer is on its way, and says so */
    }
    list_remove(&s->node);
    list_push(&l->holders, &s->node);
    s->held = true;
    l->sum = sum_of(l->sum, s->weight);
    if (s->fence == 0)
        s->fence = line_fence(l);
    SAY("store: %s granted to ticket %04x of client %u, fence %llu", line_names[s->line],
        TOK(s->token), s->id, (unsigned long long)s->fence);
    oracle_store_grant(s);
}

void line_tell(const struct st *s, enum msg_kind kind)
{
    struct msg m = { .kind = kind,
                     .id = s->id,
                     .slot = s->slot,
                     .gen = s->gen,
                     .token = s->token,
                     .fence = s->fence,
                     .line = s->line,
                     .seq = s->seq,
                     .stamp = s->stamp,
                     .sent_at = s->sent_at };

    store_notify(s->id, &m);
}

bool line_fits(const struct line *l, int64_t weight)
{
    return sum_of(l->sum, weight) <= l->capacity;
}

static void drop_dead(struct line *l, struct list *from)
{
    list_for_safe(n, from) {
        struct st *s = container_of(n, struct st, node);

        if (!st_dead(s))
            continue;
        SAY("store: ticket %04x of client %u has expired", TOK(s->token), s->id);
        tally_sight(S_EXPIRED);
        oracle_dropped(s, "G1");
        line_drop(l, s);
    }
}

void line_clean(struct line *l)
{
    drop_dead(l, &l->holders);
    drop_dead(l, &l->queue);
}

static void admit(struct line *l)
{
    list_for_safe(n, &l->queue) {
        struct st *s = container_of(n, struct st, node);

        if (line_fits(l, s->weight)) {
            line_grant(l, s);
            line_tell(s, N_GRANT);
        } else if (!MUTANT(READER_PAST)) {
            break;
        }
    }
}

static int64_t earliest(const struct line *l)
{
    int64_t at = INT64_MAX;

    list_for(n, &l->holders)
        if (container_of(n, struct st, node)->expires < at)
            at = container_of(n, struct st, node)->expires;
    return at;
}

/* Drops what has expired, admits whom that and the request make room for. */
void line_step(struct line *l)
{
    struct list *head;
    int64_t at;

    line_clean(l);
    admit(l);
    head = list_first(&l->queue);
    if (!w.plan->eager || !head)
        return;
    at = earliest(l);
    if (container_of(head, struct st, node)->g->expires < at)
        at = container_of(head, struct st, node)->g->expires;
    if (l->sweep_at > w.now && l->sweep_at <= at)
        return;
    l->sweep_at = at;
    if (at < INT64_MAX) {
        struct ev *e = new_event(E_SWEEP, at);

        e->id = (uint8_t)(l - w.lines);
        push_event(e);
    }
}

void store_sweep(int line)
{
    w.lines[line].sweep_at = 0;
    if (w.store_up)
        line_step(&w.lines[line]);
}

uint32_t line_position(const struct line *l, const struct st *s)
{
    uint32_t p = 0;

    list_for(n, &l->queue) {
        p++;
        if (n == &s->node)
            break;
    }
    return p;
}

/* The first waiter is told when the earliest hold ahead of it ends. */
int64_t line_recheck_ms(const struct line *l, const struct st *s)
{
    int64_t at = earliest(l);

    if (list_first(&l->queue) != &s->node || at == INT64_MAX)
        return -1;
    return at <= w.now ? 1 : (at - w.now) / US + 1;
}

/* By a request of its owner, sent at that time of the owner's own clock. */
void line_renew(struct grp *g, int64_t sent_at)
{
    g->expires = w.now + g->ttl_ms * US;
    g->stamp = (w.now + w.wall) / US + g->ttl_ms;
    g->sent_at = sent_at;
}

/* ---- what happens to a store ----------------------------------------------------- */

void store_init(void)
{
    for (int i = 0; i < LINES; i++) {
        list_init(&w.lines[i].holders);
        list_init(&w.lines[i].queue);
    }
    w.store_up = true;
}

static void empty_line(struct line *l)
{
    struct list *n;

    while ((n = list_first(&l->holders)) != NULL || (n = list_first(&l->queue)) != NULL)
        free_st(container_of(n, struct st, node));
    memset(l->grps, 0, sizeof l->grps);
    l->sum = 0;
    l->nwatches = 0;
}

void store_done(void)
{
    for (int i = 0; i < LINES; i++)
        if (w.lines[i].holders.next)
            empty_line(&w.lines[i]);
}

/* Its memory is lost; by its wall clock fences still grow. */
void store_forget(void)
{
    for (int i = 0; i < LINES; i++) {
        empty_line(&w.lines[i]);
        w.lines[i].last_fence = 0;
    }
    for (int i = 0; i < IDS; i++)
        w.sessions[i].alive = false;
    oracle_forgot();
}

static void drop_of(struct line *l, uint8_t id)
{
    list_for_safe(n, &l->holders)
        if (container_of(n, struct st, node)->id == id &&
            !container_of(n, struct st, node)->kept)
            line_drop(l, container_of(n, struct st, node));
    list_for_safe(n, &l->queue)
        if (container_of(n, struct st, node)->id == id)
            line_drop(l, container_of(n, struct st, node));
    line_step(l);
}

void store_process_died(uint8_t id)
{
    for (int i = 0; i < LINES; i++)
        drop_of(&w.lines[i], id);
}

void store_end_hold(uint32_t rnd)
{
    struct line *l = &w.lines[rnd % (unsigned)w.plan->lines];
    struct list *n = list_first(&l->holders);

    if (!n || w.plan->family != LOOSE)
        return;
    SAY("store: ends the hold of ticket %04x",
        TOK(container_of(n, struct st, node)->token));
    oracle_evicted(container_of(n, struct st, node));
    line_tell(container_of(n, struct st, node), N_GONE);
    line_drop(l, container_of(n, struct st, node));
    line_step(l);
}

static void put_off(struct st *s, int64_t us)
{
    s->early = s->early || us < 0;
    s->late = s->late || us > 0;
    if (s->held)
        s->expires += us;
    if (us < 0)
        oracle_early(s);
}

/* What it has stamped with times of that clock ends so much sooner or later (redis,
 * SQL). */
void store_clock(int64_t us)
{
    SAY("store: its clock is stepped by %lld ms", (long long)us / US);
    tally_sight(us > 0 ? S_CLOCK_ON : S_CLOCK_BACK);
    w.wall += us;
    if (!w.plan->by_wall)
        return;
    w.set_back += us < 0 ? -us : 0;
    for (int i = 0; i < w.plan->lines; i++) {
        struct line *l = &w.lines[i];

        list_for(n, &l->holders)
            put_off(container_of(n, struct st, node), -us);
        list_for(n, &l->queue)
            put_off(container_of(n, struct st, node), -us);
        for (size_t k = 0; k < sizeof l->grps / sizeof l->grps[0]; k++)
            l->grps[k].expires -= us;
        l->sweep_at = 0;
        if (w.store_up && w.plan->eager)
            line_step(l);
    }
}

bool store_empty(void)
{
    for (int i = 0; i < w.plan->lines; i++) {
        if (w.plan->family != ORDERED)
            line_clean(&w.lines[i]);
        if (!list_empty(&w.lines[i].holders) || !list_empty(&w.lines[i].queue))
            return false;
    }
    return true;
}
