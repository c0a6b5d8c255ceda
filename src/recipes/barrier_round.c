/* barrier_round.c: see barrier_round.h. */
#include "recipes/barrier_round.h"

static bool among(const uint64_t *all, size_t n, uint64_t fence)
{
    for (size_t i = 0; i < n; i++)
        if (all[i] == fence)
            return true;
    return false;
}

static void remember(struct barrier_view *r, uint64_t fence)
{
    if (r->nseen < r->room && !among(r->seen, r->nseen, fence))
        r->seen[r->nseen++] = fence;
}

static void forget_decided(struct barrier_view *r, uint64_t decided)
{
    size_t kept = 0;

    for (size_t i = 0; i < r->nseen; i++)
        if (r->seen[i] > decided)
            r->seen[kept++] = r->seen[i];
    r->nseen = kept;
}

static bool somebody_is_missing(const struct barrier_view *r)
{
    for (size_t i = 0; i < r->nseen; i++)
        if (!among(r->now, r->nnow, r->seen[i]))
            return true;
    return false;
}

static uint64_t greatest(const struct barrier_view *r)
{
    uint64_t most = r->mine;

    for (size_t i = 0; i < r->nseen; i++)
        if (r->seen[i] > most)
            most = r->seen[i];
    return most;
}

/* The round of our own fence is decided. A later one than that which opened last, and not
 * open: broken. An earlier one: we cannot have held our place since, or that one would not
 * have had room for all its parties. */
static enum round_move decided(uint64_t mine, const struct barrier_record *was)
{
    if (mine > was->open_to)
        return ROUND_BROKEN;
    return mine > was->open_from ? ROUND_PASS : ROUND_LOST;
}

enum round_move hf__barrier_move(struct barrier_view *r, const struct barrier_record *was,
                                 struct barrier_record *next)
{
    size_t come = 0;
    bool missing;

    if (r->mine <= was->decided)
        return decided(r->mine, was);
    if (!among(r->now, r->nnow, r->mine))
        return ROUND_LOST;
    forget_decided(r, was->decided);
    missing = somebody_is_missing(r);
    for (size_t i = 0; i < r->nnow; i++)
        if (r->now[i] > was->decided) {
            come++;
            remember(r, r->now[i]);
        }
    *next = *was;
    next->decided = greatest(r);
    if (missing)
        return ROUND_BREAK;
    if (come >= r->parties) {
        next->open_from = was->decided;
        next->open_to = next->decided;
        return ROUND_OPEN;
    }
    return r->gives_up ? ROUND_BREAK : ROUND_WAIT;
}
