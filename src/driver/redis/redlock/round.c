/* round.c: see round.h. Pure: answers in, verdict out. */
#include "driver/redis/redlock/round.h"

#include <string.h>

void hf__redis_round_init(struct round *r, unsigned n, uint64_t candidate)
{
    memset(r, 0, sizeof *r);
    r->n = n;
    r->need = n / 2 + 1;
    r->least = r->candidate = candidate;
    for (unsigned i = 0; i < n; i++)
        r->nodes[i].counts = true;
}

static void learn(struct round_node *node, enum round_mark what, uint64_t mark)
{
    node->marked = what == MARK_OWN || what == MARK_TAKEN;
    node->blank = !node->marked;
    if (what != MARK_NONE && mark > node->mark)
        node->mark = mark;
}

void hf__redis_round_vote(struct round *r, unsigned i, enum round_answer answer,
                          enum round_mark what, uint64_t mark, uint64_t top)
{
    struct round_node *node = &r->nodes[i];

    if (node->vote != ANSWER_NONE)
        return; /* too late for this round */
    node->vote = answer;
    node->taken = answer == ANSWER_YES && what == MARK_TAKEN;
    learn(node, what, mark);
    node->top = top;
    if (node->taken && r->n == 1)
        r->candidate = mark; /* a single node makes it fit */
}

void hf__redis_round_vote_failed(struct round *r, unsigned i)
{
    if (r->nodes[i].vote == ANSWER_NONE)
        r->nodes[i].vote = ANSWER_FAILED;
}

void hf__redis_round_raised(struct round *r, unsigned i, enum round_answer answer,
                            int64_t mark)
{
    r->nodes[i].raise = answer;
    if (answer == ANSWER_YES)
        learn(&r->nodes[i], MARK_OWN, r->candidate);
    else if (answer == ANSWER_NO && mark >= 0)
        learn(&r->nodes[i], MARK_OWN, (uint64_t)mark);
    else
        r->nodes[i].vote = ANSWER_FAILED; /* not ours any more, or it has forgotten since */
}

void hf__redis_round_cut(struct round *r, unsigned i)
{
    r->nodes[i].marked = r->nodes[i].blank = false;
}

void hf__redis_round_time_over(struct round *r)
{
    for (unsigned i = 0; i < r->n; i++) {
        const struct round_node *node = &r->nodes[i];

        if (!r->raising)
            hf__redis_round_vote_failed(r, i);
        else if (node->asked && node->raise == ANSWER_NONE)
            hf__redis_round_raised(r, i, ANSWER_FAILED, -1);
    }
}

unsigned hf__redis_round_votes(const struct round *r, enum round_answer answer)
{
    unsigned n = 0;

    for (unsigned i = 0; i < r->n; i++)
        n += r->nodes[i].counts && r->nodes[i].vote == answer;
    return n;
}

/* May nodes without a mark be given one? By one who knows a mark of every majority; or if
 * so many have none that no majority is left to have it. */
static bool may_seed(const struct round *r)
{
    unsigned marked = 0, blank = 0;

    for (unsigned i = 0; i < r->n; i++) {
        marked += r->nodes[i].counts && r->nodes[i].marked;
        blank += r->nodes[i].counts && r->nodes[i].blank;
    }
    return marked > r->n - r->need || blank >= r->need;
}

bool hf__redis_round_seeds(const struct round *r, unsigned i)
{
    const struct round_node *node = &r->nodes[i];

    return node->counts && node->vote == ANSWER_YES && node->blank && may_seed(r);
}

uint64_t hf__redis_round_floor(const struct round *r)
{
    uint64_t floor = r->candidate;

    for (unsigned i = 0; i < r->n; i++)
        if (r->nodes[i].top > floor)
            floor = r->nodes[i].top;
    return floor;
}

/* Asks every node that is ours to take a number above all that we know. */
static enum round_verdict raise_all(struct round *r)
{
    uint64_t highest = r->least - 1;
    unsigned able = 0;
    bool seed = may_seed(r), blank = false;

    for (unsigned i = 0; i < r->n; i++) {
        struct round_node *node = &r->nodes[i];

        if (node->mark > highest)
            highest = node->mark;
        node->asked = node->counts && node->vote == ANSWER_YES && (node->marked || seed);
        node->raise = ANSWER_NONE;
        able += node->asked;
        blank = blank || (node->counts && node->blank);
    }
    if (!r->raising && blank && hf__redis_round_votes(r, ANSWER_NONE) > 0)
        return ROUND_WAITS; /* all that can be reached get one at once */
    if (able < r->need) {
        r->forgot = !seed;
        return ROUND_LOST;
    }
    if (r->raises++ == ROUND_RAISES)
        return ROUND_LOST;
    r->raising = true;
    r->candidate = highest + 1;
    return ROUND_RAISE;
}

static enum round_verdict raised(struct round *r)
{
    unsigned yes = 0, open = 0, lower = 0;

    for (unsigned i = 0; i < r->n; i++) {
        const struct round_node *node = &r->nodes[i];

        if (!node->asked)
            continue;
        yes += node->raise == ANSWER_YES;
        open += node->raise == ANSWER_NONE;
        lower += node->raise == ANSWER_NO && node->vote == ANSWER_YES;
    }
    if (yes >= r->need)
        return ROUND_WON;
    if (yes + open >= r->need)
        return ROUND_WAITS;
    if (open > 0 && yes + open + lower >= r->need)
        return ROUND_WAITS; /* another number may do, when all have said their marks */
    return yes + lower >= r->need ? raise_all(r) : ROUND_LOST;
}

enum round_verdict hf__redis_round_verdict(struct round *r)
{
    unsigned yes = hf__redis_round_votes(r, ANSWER_YES), taken = 0;
    bool awaited = false;

    if (r->raising)
        return raised(r);
    for (unsigned i = 0; i < r->n; i++) {
        taken += r->nodes[i].counts && r->nodes[i].taken;
        awaited = awaited || (r->nodes[i].awaited && r->nodes[i].vote == ANSWER_NONE);
    }
    if (taken >= r->need)
        return awaited ? ROUND_WAITS : ROUND_WON;
    if (yes >= r->need)
        return raise_all(r);
    return yes + hf__redis_round_votes(r, ANSWER_NONE) >= r->need ? ROUND_WAITS
                                                                  : ROUND_LOST;
}
