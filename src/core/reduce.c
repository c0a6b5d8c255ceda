/* reduce.c: whether the owners in some lines wait for each other in a way that never ends
 * (G10). Pure: a snapshot in, a verdict out.
 *
 * Not a search for cycles: with shared holds and permits a cycle need not be a deadlock. We
 * remove every owner that does not wait, and every owner of a waiting ticket that would fit
 * once the tickets of the removed owners are gone; and repeat. Every owner that remains
 * waits for another one that remains. The knot is those of them that we wait for and that
 * wait for us, over any number of steps, and that would wait for ever even if all others
 * went on: an owner that only stands behind a knot is served when the knot is untied, and
 * as a victim would not untie it. A ticket that does not fit its line's kind will be
 * withdrawn: its owner goes on. The victim is the one that joined last among those that
 * hold a line in which another of the knot waits, because only they follow it (walk.c).
 * Tickets that belong to nobody are taken as removed: we cannot know what they wait for,
 * and a false alarm is worse than a deadlock that its own time-out ends. */
#include "core/core.h"
#include "core/mutate.h"

#include <stdlib.h>
#include <string.h>

struct owned_ticket {
    const struct hf_ticket *t;
    size_t owner; /* index */
};

struct graph {
    struct owned_ticket
        *entries;           /* line after line, holders first, then the queue in order */
    struct owner *owners;   /* sorted, distinct */
    bool *removed, *blocks; /* by owner; blocks: by what it holds, another that remains */
    bool *ahead, *behind;   /* by owner: we wait for it; it waits for us */
    size_t n, nowners;
};

static int by_owner(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct owner));
}

static size_t owner_index(const struct graph *g, struct owner o)
{
    const struct owner *p = bsearch(&o, g->owners, g->nowners, sizeof o, by_owner);

    return p ? (size_t)(p - g->owners) : 0;
}

static int build(struct graph *g, const struct hf_list *l)
{
    size_t n = 0, kept = 0;

    for (size_t i = 0; i < l->n; i++)
        n += l->lines[i].ntickets;
    g->entries = calloc(n + 1, sizeof *g->entries);
    g->owners = calloc(n + 1, sizeof *g->owners);
    g->removed = calloc(n + 1, 4 * sizeof *g->removed);
    if (!g->entries || !g->owners || !g->removed)
        return HF_ENOMEM;
    g->blocks = g->removed + n + 1;
    g->ahead = g->blocks + n + 1;
    g->behind = g->ahead + n + 1;
    for (size_t i = 0; i < l->n; i++)
        for (size_t k = 0; k < l->lines[i].ntickets; k++) {
            g->entries[g->n].t = &l->lines[i].tickets[k];
            g->owners[g->n++] = l->lines[i].tickets[k].owner_id;
        }
    qsort(g->owners, n, sizeof *g->owners, by_owner);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || !owner_same(g->owners[i], g->owners[kept - 1]))
            g->owners[kept++] = g->owners[i];
    g->nowners = kept;
    for (size_t i = 0; i < n; i++)
        g->entries[i].owner = owner_index(g, g->entries[i].t->owner_id);
    return 0;
}

static void remove_idle(struct graph *g)
{
    for (size_t i = 0; i < g->nowners; i++)
        g->removed[i] = true;
    for (size_t i = 0; i < g->n; i++)
        if (g->entries[i].t->position > 0 && !owner_none(g->entries[i].t->owner_id))
            g->removed[g->entries[i].owner] = false;
}

static bool fits(const struct hf_line *line, int64_t sum, int64_t weight)
{
    if (MUTANT(PERMITS_CYCLE) && line->mode == HF_PERMITS)
        return sum == 0;
    return (MUTANT(SUM32) ? (int64_t)(uint32_t)(sum + weight) : sum + weight) <= line->full;
}

/* One pass over all lines; true if somebody more can go on. */
static bool pass(struct graph *g, const struct hf_list *l)
{
    const struct owned_ticket *e = g->entries;
    bool changed = false;

    for (size_t i = 0; i < l->n; i++) {
        int64_t sum = 0;

        for (size_t k = 0; k < l->lines[i].ntickets; k++, e++) {
            if (g->removed[e->owner])
                continue;
            if (e->t->position > 0 &&
                (e->t->misfit || fits(&l->lines[i], sum, e->t->weight))) {
                g->removed[e->owner] = changed = true;
                continue;
            }
            sum += e->t->weight;
        }
    }
    return changed;
}

/* Marks the owners that `me` waits for, directly or not; true if there is one more. An
 * owner waits for every ticket in front of its own. */
static bool look_ahead(struct graph *g, const struct hf_list *l, size_t me)
{
    const struct owned_ticket *e = g->entries + g->n;
    bool changed = false;

    for (size_t i = l->n; i-- > 0;) {
        bool waits = false;

        for (size_t k = l->lines[i].ntickets; k-- > 0;) {
            e--;
            if (g->removed[e->owner])
                continue;
            if (waits && !g->ahead[e->owner])
                g->ahead[e->owner] = changed = true;
            waits = waits || (e->t->position > 0 && (g->ahead[e->owner] || e->owner == me));
        }
    }
    return changed;
}

/* Marks the owners that wait for `me`, directly or not. */
static bool look_behind(struct graph *g, const struct hf_list *l, size_t me)
{
    const struct owned_ticket *e = g->entries;
    bool changed = false;

    for (size_t i = 0; i < l->n; i++) {
        bool blocked = false;

        for (size_t k = 0; k < l->lines[i].ntickets; k++, e++) {
            if (g->removed[e->owner])
                continue;
            if (blocked && e->t->position > 0 && !g->behind[e->owner])
                g->behind[e->owner] = changed = true;
            blocked = blocked || g->behind[e->owner] || e->owner == me;
        }
    }
    return changed;
}

/* Leaves those that `me` waits for and that wait for it, if there are any. Everybody among
 * them finds the same ones. */
static void untangle(struct graph *g, const struct hf_list *l, const unsigned char *token)
{
    size_t me = g->nowners;

    memset(g->ahead, 0, g->nowners * sizeof *g->ahead);
    memset(g->behind, 0, g->nowners * sizeof *g->behind);
    for (size_t i = 0; i < g->n; i++)
        if (memcmp(g->entries[i].t->token, token, HF_TOKEN) == 0)
            me = g->entries[i].owner;
    while (look_ahead(g, l, me))
        ;
    while (look_behind(g, l, me))
        ;
    for (size_t i = 0; i < g->nowners; i++)
        g->removed[i] = g->removed[i] || !g->ahead[i] || !g->behind[i];
}

static bool joined_later(const struct hf_ticket *a, const struct hf_ticket *b)
{
    if (a->joined != b->joined)
        return a->joined > b->joined;
    return memcmp(a->token, b->token, HF_TOKEN) > 0;
}

/* The owners that hold a line in which a remaining owner waits: only they see the knot. */
static void find_blockers(struct graph *g, const struct hf_list *l)
{
    const struct owned_ticket *e = g->entries;

    for (size_t i = 0; i < l->n; e += l->lines[i++].ntickets) {
        bool waits = false;

        for (size_t k = 0; k < l->lines[i].ntickets; k++)
            waits = waits || (e[k].t->position > 0 && !g->removed[e[k].owner]);
        for (size_t k = 0; waits && k < l->lines[i].ntickets; k++)
            if (e[k].t->position == 0)
                g->blocks[e[k].owner] = true;
    }
}

static void verdict(const struct graph *g, const unsigned char *me, struct knot *ret)
{
    const struct hf_ticket *victim = NULL;

    for (size_t i = 0; i < g->n; i++) {
        const struct hf_ticket *t = g->entries[i].t;

        if (g->removed[g->entries[i].owner])
            continue;
        ret->signature += hf__hash(t->token, HF_TOKEN) ^ (t->position > 0 ? 0x5555 : 0);
        if (t->position == 0)
            continue;
        if (memcmp(t->token, me, HF_TOKEN) == 0)
            ret->mine = true;
        if (g->blocks[g->entries[i].owner] && (!victim || joined_later(t, victim)))
            victim = t;
    }
    if (victim)
        memcpy(ret->victim, victim->token, HF_TOKEN);
}

int hf__walk_reduce(const struct hf_list *l, const unsigned char me[HF_TOKEN],
                    struct knot *ret)
{
    struct graph g = { 0 };
    int rc = build(&g, l);

    memset(ret, 0, sizeof *ret);
    if (rc == 0) {
        remove_idle(&g);
        while (pass(&g, l))
            ;
        do /* without the others some of them may be able to go on: they stood behind a knot
            */
            untangle(&g, l, me);
        while (pass(&g, l));
        find_blockers(&g, l);
        verdict(&g, me, ret);
    }
    free(g.entries);
    free(g.owners);
    free(g.removed);
    return rc;
}
