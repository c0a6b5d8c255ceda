/* round_world.c: see round_world.h. */
#include "round_world.h"

static unsigned pick(struct world *w, unsigned below)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (unsigned)(w->random >> 33) % below;
}

static bool chance(struct world *w, unsigned one_in)
{
    return pick(w, one_in) == 0;
}

/* ---- nodes: what the scripts do -------------------------------------------------- */

static enum round_mark mark_of(const struct world *w, const struct sim_node *node)
{
    if (node->now.mark_run == 0)
        return MARK_NONE;
    return node->now.mark_run == node->run || w->variant == OLD_MARKS ? MARK_OWN : MARK_OLD;
}

static unsigned bucket_of(unsigned name)
{
    return name % BUCKETS_OF_NAMES;
}

static uint64_t mark_for(const struct sim_node *node, unsigned name)
{
    uint64_t mark = node->now.marks[bucket_of(name)];

    return mark > node->now.floor ? mark : node->now.floor;
}

static void set_mark(struct sim_node *node, unsigned name, uint64_t mark, uint64_t ahead)
{
    node->now.marks[bucket_of(name)] = mark;
    if (mark > node->now.top)
        node->now.top = mark + ahead;
}

/* What it had, if anything, is of an earlier run. */
static void set_floor(struct world *w, struct sim_node *node, uint64_t floor)
{
    node->now.floor = node->now.top = floor;
    node->now.mark_run = node->run;
    w->seeded++;
}

static void take_key(struct world *w, struct sim_node *node, const struct message *m)
{
    if (node->freed[m->value])
        w->wrong = "a key was taken behind its giving back";
    node->now.keys[m->name].value = m->value;
    node->now.keys[m->name].until = w->now + m->ttl;
}

static void run_lock(struct world *w, struct sim_node *node, struct message *m)
{
    m->what = mark_of(w, node);
    m->mark = mark_for(node, m->name);
    m->top = node->now.top;
    m->said = 0;
    if (node->now.keys[m->name].value != 0)
        return;
    m->said = 1;
    take_key(w, node, m);
    if (w->variant == NAIVE) {
        node->now.mark_run = node->run;
        m->mark = ++node->now.marks[bucket_of(m->name)];
    } else if (m->what == MARK_OWN && m->mark < m->candidate) {
        set_mark(node, m->name, m->candidate, AHEAD);
        m->what = MARK_TAKEN;
        m->mark = m->candidate;
        m->top = node->now.top;
    }
}

static void run_raise(struct world *w, struct sim_node *node, struct message *m)
{
    if (node->now.keys[m->name].value != m->value) {
        m->said = -1;
    } else if (mark_of(w, node) != MARK_OWN && m->floor == 0) {
        m->said = -2;
    } else if (mark_for(node, m->name) >= m->candidate) {
        m->said = 0;
        m->mark = mark_for(node, m->name);
    } else {
        if (mark_of(w, node) != MARK_OWN)
            set_floor(w, node, m->floor);
        set_mark(node, m->name, m->candidate, 0);
        m->said = 1;
    }
}

static void run_assert(struct world *w, struct sim_node *node, struct message *m)
{
    m->said = node->now.keys[m->name].value == 0;
    if (m->said == 1)
        take_key(w, node, m);
    w->spread += m->said == 1;
}

static void run_extend(const struct world *w, struct sim_node *node, struct message *m)
{
    uint64_t value = node->now.keys[m->name].value;

    m->said = value == m->value ? 1 : value == 0 ? 0 : -1;
    if (m->said == 1)
        node->now.keys[m->name].until = w->now + m->ttl;
}

static void run_free(struct sim_node *node, const struct message *m)
{
    if (node->now.keys[m->name].value == m->value)
        node->now.keys[m->name].value = 0;
    node->freed[m->value] = true;
}

static void execute(struct world *w, struct sim_node *node, struct message *m)
{
    for (unsigned i = 0; i < NAMES; i++)
        if (node->now.keys[i].value != 0 && node->now.keys[i].until <= w->now)
            node->now.keys[i].value = 0;
    m->again = (m->kind == LOCK || m->kind == ASSERT) && chance(w, 30);
    if (m->again)
        return;
    switch (m->kind) {
    case LOCK:
        run_lock(w, node, m);
        break;
    case RAISE:
        run_raise(w, node, m);
        break;
    case ASSERT:
        run_assert(w, node, m);
        break;
    case EXTEND:
        run_extend(w, node, m);
        break;
    case FREE:
        run_free(node, m);
        break;
    }
}

/* ---- the net --------------------------------------------------------------------- */

static bool push(struct queue *q, const struct message *m)
{
    if (q->n == QUEUE)
        return false;
    q->m[q->n++] = *m;
    return true;
}

static struct message pop(struct queue *q)
{
    struct message m = q->m[0];

    memmove(q->m, q->m + 1, --q->n * sizeof q->m[0]);
    return m;
}

static bool send(struct world *w, struct sim_client *c, unsigned i, enum kind kind)
{
    struct message m = { .kind = kind,
                         .value = c->value,
                         .name = c->name,
                         .candidate = c->round.candidate,
                         .floor = !c->round.nodes[i].blank ? 0
                                  : w->variant == FLOORLESS
                                      ? c->round.candidate
                                      : hf__redis_round_floor(&c->round),
                         .ttl = kind == ASSERT ? c->until - w->now : TTL,
                         .renewal = c->renewal };

    return c->links[i].up && push(&c->links[i].out, &m);
}

/* ---- clients: what bid.c does ---------------------------------------------------- */

static void judge(struct world *, struct sim_client *);

static void give_back(struct world *w, struct sim_client *c)
{
    for (unsigned i = 0; i < w->n; i++)
        if (c->mine & 1u << i)
            send(w, c, i, FREE);
    c->state = IDLE;
}

static bool counts(const struct world *w, const struct link *l)
{
    return w->variant == NO_GUARD || w->variant == NAIVE || w->now - l->started_at > TTL;
}

static void start_round(struct world *w, struct sim_client *c)
{
    uint64_t clock = w->clocks ? (uint64_t)(1000000 + w->now + c->skew) : 1;

    c->state = VOTES;
    c->value = ++w->values;
    c->name = pick(w, NAMES);
    c->sent_at = w->now;
    c->mine = 0;
    hf__redis_round_init(&c->round, w->n, clock > c->highest ? clock : c->highest + 1);
    for (unsigned i = 0; i < w->n; i++) {
        c->round.nodes[i].counts = counts(w, &c->links[i]);
        c->round.nodes[i].awaited = c->round.nodes[i].counts && (c->blank & 1u << i);
        if (send(w, c, i, LOCK))
            c->mine |= 1u << i;
        else
            hf__redis_round_vote_failed(&c->round, i);
    }
    judge(w, c);
}

static void check_grant(struct world *w, const struct sim_client *c, uint64_t fence)
{
    for (unsigned i = 0; i < CLIENTS; i++) {
        const struct sim_client *o = &w->clients[i];

        if (o != c && o->state == HELD && o->name == c->name && o->until > w->now)
            w->wrong = "two hold it";
    }
    if (fence == 0)
        return; /* a renewal */
    if (fence <= w->last[c->name])
        w->wrong = "a fence went back";
    for (size_t i = 0; i < w->ngiven; i++)
        if (w->given[i].fence == fence && w->given[i].bucket == bucket_of(c->name))
            w->wrong = "a fence was given twice";
    w->last[c->name] = fence;
    w->given[w->ngiven].fence = fence;
    w->given[w->ngiven++].bucket = bucket_of(c->name);
}

static void seed(struct world *w, struct sim_client *c, unsigned i)
{
    if (hf__redis_round_seeds(&c->round, i))
        send(w, c, i, RAISE);
}

/* ---- holders: what keep.c does --------------------------------------------------- */

static void spread(struct world *w, struct sim_client *c)
{
    for (unsigned i = 0; i < w->n; i++)
        if (c->missing & 1u << i && (c->until > w->now || w->variant == COUNTED) &&
            send(w, c, i, ASSERT))
            c->mine |= 1u << i;
}

static void renew(struct world *w, struct sim_client *c)
{
    c->renewal++;
    c->renewal_at = w->now;
    c->alive = c->lost = 0;
    for (unsigned i = 0; i < w->n; i++)
        if (!send(w, c, i, EXTEND))
            c->missing |= 1u << i;
}

/* One more node has it. A majority that says so after the deadline revives nothing. */
static void lives(struct world *w, struct sim_client *c, unsigned i)
{
    c->missing &= ~(1u << i);
    if (!counts(w, &c->links[i]) || ++c->alive != c->round.need)
        return;
    if (c->until <= w->now && w->variant != COUNTED) {
        give_back(w, c);
        return;
    }
    c->until = c->renewal_at + TTL - DRIFT;
    w->renewed++;
    check_grant(w, c, 0);
    if (w->last[c->name] != c->fence)
        w->wrong = "it was renewed after another had it";
    spread(w, c);
}

static void hear_holder(struct world *w, struct sim_client *c, unsigned i,
                        const struct message *m)
{
    if (m->kind == ASSERT && m->said == 1) {
        c->missing &= ~(1u << i);
        if (w->variant == COUNTED && m->renewal == c->renewal)
            lives(w, c, i);
    }
    if (m->kind != EXTEND || m->renewal != c->renewal)
        return;
    if (m->said == 1) {
        lives(w, c, i);
        return;
    }
    c->missing |= 1u << i;
    if (w->variant == COUNTED)
        spread(w, c);
    else if (++c->lost == w->n - c->round.need + 1)
        give_back(w, c);
    else if (c->alive >= c->round.need)
        spread(w, c);
}

static void win(struct world *w, struct sim_client *c, uint64_t fence)
{
    c->until = c->sent_at + TTL - DRIFT;
    if (c->until <= w->now) {
        give_back(w, c);
        return;
    }
    c->state = HELD;
    c->fence = fence;
    c->missing = 0;
    w->seconds += c->round.raising;
    check_grant(w, c, fence);
    for (unsigned i = 0; i < w->n; i++)
        if (c->round.nodes[i].vote == ANSWER_NO || c->round.nodes[i].vote == ANSWER_FAILED)
            c->missing |= 1u << i;
    for (unsigned i = 0; i < w->n; i++)
        seed(w, c, i);
}

/* The greatest of what a majority counted up to. */
static void judge_naively(struct world *w, struct sim_client *c)
{
    unsigned yes = hf__redis_round_votes(&c->round, ANSWER_YES);
    uint64_t fence = 0;

    for (unsigned i = 0; i < w->n; i++)
        if (c->round.nodes[i].vote == ANSWER_YES && c->round.nodes[i].mark > fence)
            fence = c->round.nodes[i].mark;
    if (yes >= c->round.need)
        win(w, c, fence);
    else if (yes + hf__redis_round_votes(&c->round, ANSWER_NONE) < c->round.need)
        give_back(w, c);
}

static void judge(struct world *w, struct sim_client *c)
{
    if (w->variant == NAIVE) {
        judge_naively(w, c);
        return;
    }
    switch (hf__redis_round_verdict(&c->round)) {
    case ROUND_WAITS:
        return;
    case ROUND_LOST:
        give_back(w, c);
        return;
    case ROUND_WON:
        win(w, c, c->round.candidate);
        return;
    case ROUND_RAISE:
        break;
    }
    for (unsigned i = 0; i < w->n; i++)
        if (c->round.nodes[i].asked && !send(w, c, i, RAISE))
            hf__redis_round_raised(&c->round, i, ANSWER_FAILED, -1);
    judge(w, c);
}

/* What is out of date is not said again. */
static void say_again(struct world *w, struct sim_client *c, unsigned i,
                      const struct message *m)
{
    bool current = m->value == c->value && c->state != IDLE &&
                   (m->kind == LOCK || (c->state == HELD && c->until > w->now));

    w->repeated += current;
    if ((current || w->variant == REPEATED) && c->links[i].up)
        push(&c->links[i].out, m);
}

static void hear(struct world *w, struct sim_client *c, unsigned i, const struct message *m)
{
    if (m->again) {
        say_again(w, c, i, m);
        return;
    }
    if (m->kind == LOCK) {
        c->blank &= ~(1u << i);
        c->blank |= m->what == MARK_NONE || m->what == MARK_OLD ? 1u << i : 0;
    }
    if (m->value != c->value || c->state == IDLE || m->kind == FREE)
        return;
    if (m->kind == LOCK) {
        hf__redis_round_vote(&c->round, i, m->said == 1 ? ANSWER_YES : ANSWER_NO, m->what,
                             m->mark, m->top);
        if (m->mark > c->highest)
            c->highest = m->mark;
        if (m->said != 1)
            c->mine &= ~(1u << i);
    } else if (m->kind == RAISE && c->state == VOTES && c->round.raising &&
               m->candidate == c->round.candidate) {
        hf__redis_round_raised(&c->round, i, m->said == 1 ? ANSWER_YES : ANSWER_NO,
                               m->said == 0 ? (int64_t)m->mark : -1);
    }
    if (c->state == VOTES) {
        judge(w, c);
        return;
    }
    if (m->kind == LOCK && m->said == 1)
        c->missing &= ~(1u << i);
    else if (m->kind == LOCK)
        c->missing |= 1u << i;
    seed(w, c, i);
    hear_holder(w, c, i, m);
}

/* The client notices: what it asked and was not answered has failed. Requests may still
 * come to be executed until it connects again, which makes that impossible. */
static void cut(struct world *w, struct sim_client *c, unsigned i)
{
    struct link *l = &c->links[i];

    if (!l->up)
        return;
    l->up = false;
    l->back.n = 0;
    if (w->variant != SEEDED)
        hf__redis_round_cut(&c->round, i);
    if (c->state == HELD)
        c->missing |= 1u << i;
    if (c->state != VOTES)
        return;
    hf__redis_round_vote_failed(&c->round, i);
    if (c->round.raising && c->round.nodes[i].asked &&
        c->round.nodes[i].raise == ANSWER_NONE)
        hf__redis_round_raised(&c->round, i, ANSWER_FAILED, -1);
    judge(w, c);
}

static void connect_again(struct world *w, struct sim_client *c, unsigned i)
{
    struct link *l = &c->links[i];

    l->up = true;
    l->out.n = 0;
    l->run = w->nodes[i].run;
    l->started_at = w->nodes[i].started_at;
}

static void restart(struct world *w, unsigned i)
{
    struct sim_node *node = &w->nodes[i];
    unsigned forgotten = 1;

    for (unsigned k = 0; k < w->n; k++)
        forgotten += k != i && w->nodes[k].now.mark_run != w->nodes[k].run;
    if (forgotten > w->n - (w->n / 2 + 1))
        return;
    if (chance(w, 2))
        node->now = node->snapshot;
    else
        memset(&node->now, 0, sizeof node->now);
    node->run++;
    node->started_at = w->now;
    w->restarts++;
    for (unsigned k = 0; k < CLIENTS; k++) {
        w->clients[k].links[i].out.n = 0;
        cut(w, &w->clients[k], i);
    }
}

static void act(struct world *w, struct sim_client *c)
{
    if (c->state == IDLE && chance(w, 4)) {
        start_round(w, c);
    } else if (c->state == VOTES && chance(w, 12)) {
        hf__redis_round_time_over(&c->round);
        judge(w, c);
    } else if (c->state == HELD && chance(w, 4)) {
        spread(w, c);
    } else if (c->state == HELD && chance(w, 4)) {
        renew(w, c);
    } else if (c->state == HELD &&
               ((c->until <= w->now && w->variant != COUNTED) || chance(w, 12))) {
        if (chance(w, 6))
            c->state = IDLE; /* it died, and others find its keys until they expire */
        else
            give_back(w, c);
    }
}

/* A link with something on it, if there is one, so that most steps do something. */
static struct link *busy(struct world *w, bool back, unsigned *ret_client,
                         unsigned *ret_node)
{
    unsigned from = pick(w, CLIENTS * w->n);

    for (unsigned k = 0; k < CLIENTS * w->n; k++) {
        unsigned at = (from + k) % (CLIENTS * w->n);
        struct link *l = &w->clients[at / w->n].links[at % w->n];

        if ((back ? l->back.n : l->out.n) > 0) {
            *ret_client = at / w->n;
            *ret_node = at % w->n;
            return l;
        }
    }
    return NULL;
}

static void step(struct world *w)
{
    unsigned k = pick(w, CLIENTS), i = pick(w, w->n), what = pick(w, 1000);
    struct link *l;
    struct message m;

    w->now += chance(w, 250) ? pick(w, 2 * TTL) : pick(w, 3);
    if (what < 350) {
        if ((l = busy(w, false, &k, &i)) != NULL) {
            m = pop(&l->out);
            execute(w, &w->nodes[i], &m);
            if (l->up)
                push(&l->back, &m);
        }
    } else if (what < 700) {
        if ((l = busy(w, true, &k, &i)) != NULL) {
            m = pop(&l->back);
            hear(w, &w->clients[k], i, &m);
        }
    } else if (what < 970) {
        act(w, &w->clients[k]);
    } else if (what < 976) {
        cut(w, &w->clients[k], i);
    } else if (what < 990) {
        if (!w->clients[k].links[i].up)
            connect_again(w, &w->clients[k], i);
    } else if (what < 994) {
        w->nodes[i].snapshot = w->nodes[i].now;
    } else if (what < 996) {
        restart(w, i);
    }
}

/* ---- a schedule ------------------------------------------------------------------ */

struct world *world_play(uint64_t seed, enum variant variant, bool clocks)
{
    struct world *w = calloc(1, sizeof *w);

    assert_non_null(w);
    w->random = seed * 0x9e3779b97f4a7c15ULL + 1;
    for (int i = 0; i < 8; i++)
        pick(w, 2);
    w->variant = variant;
    w->clocks = clocks;
    w->n = 3 + pick(w, NODES - 2);
    w->given = calloc(STEPS, sizeof *w->given);
    assert_non_null(w->given);
    for (unsigned i = 0; i < w->n; i++) {
        w->nodes[i].run = 1;
        w->nodes[i].started_at = -2 * TTL;
    }
    for (unsigned k = 0; k < CLIENTS; k++) {
        w->clients[k].skew = (int64_t)pick(w, 20 * TTL);
        for (unsigned i = 0; i < w->n; i++)
            connect_again(w, &w->clients[k], i);
    }
    for (int s = 0; s < STEPS && !w->wrong; s++)
        step(w);
    return w;
}

void world_end(struct world *w)
{
    free(w->given);
    free(w);
}
