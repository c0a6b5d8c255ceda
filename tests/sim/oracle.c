/* oracle.c: the invariants. It looks from outside, at the true time: at what the store
 * has and at what applications were told, never at how the core came to it.
 *
 * Checked where something changes: a grant in the store, a grant or a loss told to
 * an application, a release, a freed ticket; and all leases after every step. */
#include "sim.h"

#include <inttypes.h>
#include <string.h>

static uint64_t token_of(const struct ticket *t)
{
    uint64_t x;

    memcpy(&x, t->token, sizeof x);
    return x;
}

static struct oh *find(const struct hold *h)
{
    struct line *l = &w.lines[line_of(h->t.name)];

    for (int i = 0; i < l->nheld; i++)
        if (l->held[i].h == h)
            return &l->held[i];
    return NULL;
}

static bool certain(void)
{
    return w.plan->family != LOOSE;
}

static bool held(const struct oh *o)
{
    const struct proc *p = &w.procs[o->proc];

    return o->handles > 0 && !o->excused && !p->beyond &&
           atomic_load(&o->h->until_at) > proc_now(p);
}

/* The clock on which the owner counts, less drift: G1's deadline. */
static int64_t deadline(const struct hold *h)
{
    const struct life *l = h->t.life;

    return l ? l->sent_at + l->given_ms * 990 - 2000 : INT64_MAX;
}

/* ---- G1, G2, G3 ------------------------------------------------------------------ */

static int64_t sum_held(const struct line *l, uint64_t except)
{
    int64_t sum = 0;

    for (int i = 0; i < l->nheld; i++)
        if (l->held[i].token != except && held(&l->held[i]))
            sum += l->held[i].h->t.weight;
    return sum;
}

void oracle_line(int line)
{
    const struct line *l = &w.lines[line];
    int64_t sum = certain() ? sum_held(l, 0) : 0;

    for (int i = 0; i < l->nheld; i++)
        if (held(&l->held[i]) && sum > l->held[i].h->t.capacity)
            violate("G1",
                    "%s: check says held for leases of weight %" PRId64 " in %" PRId64,
                    line_names[line], sum, l->held[i].h->t.capacity);
}

/* Also where the store may end a hold sooner: nobody believes in one for longer than its
 * ttl. */
static void believed(const struct oh *o)
{
    if (o->handles > 0 && o->h->t.life && atomic_load(&o->h->until_at) > deadline(o->h))
        violate("G1", "%s: check would say held beyond the deadline", o->h->t.name);
}

static void in_turn(const struct st *s)
{
    list_for(n, &w.lines[s->line].queue) {
        const struct st *o = container_of(n, struct st, node);

        if (o != s && o->seq < s->seq && !st_dead(o))
            violate("G3", "%s: ticket %04x is granted before %04x, which came first",
                    line_names[s->line], TOK(s->token), TOK(o->token));
    }
}

void oracle_store_grant(const struct st *s)
{
    struct line *l = &w.lines[s->line];

    if (s->fence <= l->granted_fence)
        violate("G2", "%s: fence %" PRIu64 " is granted after %" PRIu64,
                line_names[s->line], s->fence, l->granted_fence);
    l->granted_fence = s->fence;
    if (w.plan->family != ORDERED && !s->barge)
        in_turn(s);
    if (certain() && sum_held(l, s->token) + s->weight > s->capacity)
        violate("G1", "%s: granted to ticket %04x while check says held elsewhere",
                line_names[s->line], TOK(s->token));
}

/* Its time is over (G1), or somebody's leave takes it out (G8): then nobody may rely on
 * it. */
void oracle_dropped(const struct st *s, const char *id)
{
    const struct line *l = &w.lines[s->line];

    for (int i = 0; certain() && i < l->nheld; i++)
        if (l->held[i].token == s->token && held(&l->held[i]))
            violate(id,
                    "%s: ticket %04x is taken out of the line while its check says held",
                    line_names[s->line], TOK(s->token));
}

bool oracle_was_evicted(uint64_t token)
{
    for (unsigned i = 0; i < 32; i++)
        if (w.evicted[i] == token)
            return true;
    return false;
}

/* Nobody has let it in: it was taken out of an ordered line before its turn came. */
static bool never_admitted(uint64_t token, uint64_t fence)
{
    for (unsigned i = 0; i < 32; i++)
        if (w.evicted[i] == token && w.evicted_early[i] == fence)
            return true;
    return false;
}

static void fence_told(struct line *l, const struct oh *o)
{
    bool exclusive = o->h->t.weight == o->h->t.capacity;
    uint64_t fence = o->h->t.fence;

    if (o->excused || w.procs[o->proc].beyond || !certain())
        return;
    if (fence <= (exclusive ? l->told_fence : l->told_exclusive))
        violate("G2", "%s: fence %" PRIu64 " is told after %" PRIu64, o->h->t.name, fence,
                exclusive ? l->told_fence : l->told_exclusive);
    if (fence > l->told_fence)
        l->told_fence = fence;
    if (exclusive)
        l->told_exclusive = fence;
}

/* With less than a quarter of its time left a grant is confirmed before it is told. */
static void time_left(const struct oh *o)
{
    const struct hold *h = o->h;
    int64_t left = deadline(h) - proc_now(&w.procs[o->proc]);

    if (certain() && h->t.life && left * 4 < h->t.life->given_ms * US)
        violate("G1", "%s is told as granted with %" PRId64 " ms of %" PRId64 " left",
                h->t.name, left / US, h->t.life->given_ms);
}

/* It may have been re-entered by an acquire of several names that still waits for the
 * others: then it is the same hold that will be told again. */
static bool re_entered(const struct hold *h)
{
    return hold_is_shared(h);
}

/* Of one that was granted: max_at has the place of max_hold_ms since. */
static bool limited(const struct hold *h)
{
    return h->max_at != LOOP_NEVER;
}

static void count_grant(const struct sim_lease *l, const struct hold *h)
{
    tally_sight(S_TOLD);
    if (h->t.kind == LINE_PERMITS)
        tally_sight(S_PERMITS);
    else if (h->t.weight == 1)
        tally_sight(S_SHARED);
    if (h->t.barge)
        tally_sight(S_BARGED);
    if (l->l->n > 1)
        tally_sight(S_SEVERAL);
    if (limited(h))
        tally_sight(S_LIMITED);
    if (h->no_renew)
        tally_sight(S_NOT_RENEWED);
}

void oracle_told(struct sim_lease *l, struct hold *h, bool fresh)
{
    struct line *line = &w.lines[line_of(h->t.name)];
    const struct st *s = store_find(line_of(h->t.name), token_of(&h->t));
    struct oh *o = find(h);

    if (o) {
        tally_sight(S_REENTERED);
        if (o->identity != l->identity)
            violate("G9", "%s is re-entered by another owner", h->t.name);
        o->handles++;
        return;
    }
    count_grant(l, h);
    if (h->needs & ~l->c->store.caps)
        violate("G1", "%s is granted although the store cannot do what it needs",
                h->t.name);
    if (line->nheld == ROWS)
        return;
    o = &line->held[line->nheld++];
    *o = (struct oh){ .h = h,
                      .token = token_of(&h->t),
                      .identity = l->identity,
                      .id = l->c->id,
                      .proc = l->c->proc,
                      .handles = 1,
                      .by_hand = h->no_renew || limited(h) };
    o->excused = oracle_was_evicted(o->token) ||
                 (s ? s->early : w.forgot_at >= 0 || w.plan->by_wall);
    if (never_admitted(o->token, h->t.fence))
        violate("G1",
                "%s is granted to ticket %04x, which had left the line while it waited",
                h->t.name, TOK(o->token));
    /* one that was ended may have joined again before its owner heard of the grant */
    if (s && s->fence != h->t.fence && !oracle_was_evicted(o->token))
        violate("G2", "%s: the store gave fence %" PRIu64 ", told is %" PRIu64, h->t.name,
                s->fence, h->t.fence);
    if (h->lost)
        return; /* one of several names, lost before the last was granted */
    fence_told(line, o);
    if (fresh && !re_entered(h))
        time_left(o);
    oracle_line(line_of(h->t.name));
}

/* ---- G6 -------------------------------------------------------------------------- */

static bool stood_still(const struct oh *o, int64_t since)
{
    const struct proc *p = &w.procs[o->proc];
    int64_t d = w.now - p->ran_at;

    return proc_now(p) - d - d * p->ppm / 1000000 >= since - 60 * US;
}

/* A renewal could not be answered, or was not wanted. */
static bool has_cause(const struct oh *o)
{
    struct sim_client *c = w.by_id[o->id];
    const struct life *l = o->h->t.life;
    int64_t span = (l ? l->given_ms : 0) * 1100 + 100 * US;

    return o->excused || o->by_hand || !certain() || w.procs[o->proc].beyond || !c ||
           c->core.closing || !wire_to(c, line_of(o->h->t.name))->up || (l && l->marked) ||
           (c->trouble_at > 0 && c->trouble_at + span > w.now) ||
           (w.store_back > 0 && w.store_back + span > w.now) || w.forgot_at >= 0;
}

void oracle_lease_changed(struct hf_lease *l)
{
    for (size_t i = 0; i < l->n; i++) {
        struct hold *h = l->parts[i].hold;
        struct oh *o = h ? find(h) : NULL;
        int64_t now;

        if (!o || atomic_load(&h->grade) != HF_LOST || o->told_at)
            continue;
        now = o->told_at = proc_now(&w.procs[o->proc]);
        SAY("client %u: %s is lost", o->id, h->t.name);
        tally_sight(S_LOST);
        if (certain() && now > deadline(h) && !stood_still(o, deadline(h)))
            violate("G6", "loss of %s is told %" PRId64 " us after the deadline", h->t.name,
                    now - deadline(h));
        if (!has_cause(o))
            violate("G6", "%s is lost without a cause", h->t.name);
    }
}

static void told_in_time(const struct oh *o)
{
    if (o->handles > 0 && !o->told_at && certain() && can(&w.procs[o->proc]) &&
        o->h->t.life && proc_now(&w.procs[o->proc]) > deadline(o->h) + 1 && !o->h->lost &&
        !stood_still(o, deadline(o->h)))
        violate("G6", "nobody was told that %s is lost", o->h->t.name);
}

/* ---- G7, G8, G9 ------------------------------------------------------------------ */

static void remove_held(struct line *l, struct oh *o)
{
    *o = l->held[--l->nheld];
}

void oracle_released(struct hold *h)
{
    struct oh *o = find(h);

    if (o && --o->handles == 0 && !re_entered(h))
        remove_held(&w.lines[line_of(h->t.name)], o);
}

void oracle_left(const struct ticket *t)
{
    const struct hold *h = container_of(t, struct hold, t);
    const struct oh *o = find(h);

    if (o && o->handles > 0 && !h->lost)
        violate("G9", "%s is left while %d handles on it are in use", t->name, o->handles);
}

void oracle_gone(uint8_t id)
{
    for (int i = 0; i < LINES; i++)
        for (int k = 0; k < w.lines[i].nheld;)
            if (w.lines[i].held[k].id == id)
                remove_held(&w.lines[i], &w.lines[i].held[k]);
            else
                k++;
}

/* From now on only the fence protects. */
void oracle_evicted(const struct st *s)
{
    struct line *l = &w.lines[s->line];

    w.evicted_early[w.nevicted % 32] =
        w.plan->family == ORDERED && !s->prefix ? s->fence : 0;
    w.evicted[w.nevicted++ % 32] = s->token;
    for (int i = 0; i < l->nheld; i++)
        if (l->held[i].token == s->token)
            l->held[i].excused = true;
}

void oracle_forgot(void)
{
    w.forgot_at = w.now;
    for (int i = 0; i < LINES; i++)
        for (int k = 0; k < w.lines[i].nheld; k++)
            w.lines[i].held[k].excused = true;
}

/* A clock that was set forward ends holds before their time: not G1 but the store's
 * section in docs/guarantees.md speaks of these. One that was set back only ends them
 * later (G5, G7). */
void oracle_early(const struct st *s)
{
    struct line *l = &w.lines[s->line];

    for (int i = 0; i < l->nheld; i++)
        if (l->held[i].token == s->token)
            l->held[i].excused = true;
}

static void in_child(const struct sim_client *c)
{
    list_for(n, &c->leases) {
        const struct hf_lease *l = container_of(n, struct sim_lease, on_client)->l;

        if (hf_lease_check(l) != HF_EFORKED || hf_lease_state(l) != HF_LOST)
            violate("G12", "a lease of client %u is good in a forked child", c->id);
    }
}

/* The word that says whether the memory is the opener's own is 0 in the child. */
void oracle_forked(int proc)
{
    for (int i = 0; i < SLOTS; i++) {
        struct sim_client *c = w.procs[proc].clients[i];

        if (!c)
            continue;
        c->alive_word = 0;
        in_child(c);
        c->alive_word = 1;
    }
}

/* Is nothing under way for longer than the time by which the core waits longer than one
 * ttl? That an older request cannot come after that is the driver's part of G7. */
bool oracle_prompt(void)
{
    return w.plan->slow_ppm == 0 && w.plan->delay_us + w.plan->jitter_us < 8 * US;
}

void oracle_freed(const struct hold *h, bool known)
{
    const struct sim_client *c = container_of(h->client, struct sim_client, core);
    struct oh *o = find(h);
    const struct st *s;

    if (o)
        remove_held(&w.lines[line_of(h->t.name)], o);
    if (c->core.closing || c->core.closed || w.broke)
        return;
    if (known || sender_knows(c, &h->t)) {
        violate("G7", "ticket %04x of %s is forgotten, and nobody has told the store",
                TOK(token_of(&h->t)), h->t.name);
        return;
    }
    s = store_find(line_of(h->t.name), token_of(&h->t));
    if (s && s->late)
        return; /* it was over, and is not any more: the store's clock was set back */
    if (s && !st_dead(s) && !s->kept && !w.procs[c->proc].beyond && oracle_prompt())
        violate("G7", "ticket %04x of %s is out for its owner and still in the line",
                TOK(s->token), h->t.name);
}

void oracle_full(void)
{
    for (int i = 0; i < w.plan->lines; i++) {
        oracle_line(i);
        for (int k = 0; k < w.lines[i].nheld; k++) {
            believed(&w.lines[i].held[k]);
            told_in_time(&w.lines[i].held[k]);
        }
    }
}

void oracle_end_of_client(struct sim_client *c)
{
    /* the link does not move this timer for every answer; and it may be saying goodbye */
    for (int i = 0; i < wires(); i++)
        if (c->wires[i].under_way == 0 || c->core.shut)
            hf__heap_remove(&c->timers, &c->wires[i].link.late.node);
    if (!list_empty(&c->core.holds))
        violate(
            "G7", "client %u still has ticket %04x of %s at the end", c->id,
            TOK(token_of(&container_of(list_first(&c->core.holds), struct hold, node)->t)),
            container_of(list_first(&c->core.holds), struct hold, node)->t.name);
    else if (c->core.unsettled || c->core.asked || heap_first(&c->timers))
        violate("G7", "client %u: %zu unsettled, %zu unanswered, %s timer set at the end",
                c->id, c->core.unsettled, c->core.asked,
                heap_first(&c->timers) ? "a" : "no");
}

/* A link that is wanted is up soon after its server can be reached: an attempt may just
 * have begun and end at its limit, then comes a pause, on a clock that may be slow. */
void oracle_links(void)
{
    const struct plan *p = w.plan;
    int64_t bound =
        (p->limit_ms + 250) * 1300 + 8 * (p->delay_us + p->jitter_us) + 100 * US;

    if (p->family == SYNC || w.now < w.links_look)
        return;
    w.links_look = w.now + 50 * US;
    for (int i = 0; i < PROCS * SLOTS * wires(); i++) {
        int slot = i / wires();
        const struct sim_client *c = w.procs[slot / SLOTS].clients[slot % SLOTS];
        const struct wire *x = c ? &c->wires[i % wires()] : NULL;

        if (x && !x->up && w.store_up && w.now > c->trouble_at + bound &&
            w.now > x->lost_at + bound && can(&w.procs[c->proc]) &&
            /* a client that was opened while memory was short is in trouble, too */
            w.now > w.procs[c->proc].no_memory_until + bound)
            violate("link", "client %u is not connected, %lld ms after it could be", c->id,
                    (long long)(w.now - c->trouble_at) / US);
    }
}
