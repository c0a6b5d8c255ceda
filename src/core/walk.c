/* walk.c: looks for a deadlock that a waiting ticket is part of (G10).
 *
 * An owner that holds something and has waited a second reads the line it waits in and the lines
 * it holds; every waiting ticket found there carries the names its owner holds, whose lines are
 * read too, and so on (at most 64 lines). Then reduce.c decides. If our ticket remains, all those
 * lines are read once more: since every first reading comes before every second one, and tokens
 * are never used twice, a ticket that is there both times in the same state was there at the
 * moment between: the deadlock was real. Only the victim, which everybody in the knot computes
 * alike, acts, on itself; the others look again later. Who knows that the others cannot see the knot,
 * because its own ticket does not carry all that its owner holds, acts too.
 *
 * No memory, a store that does not answer, a line that is gone: the walk ends without a verdict. */
#include "core/core.h"
#include "core/mutate.h"

#include <stdlib.h>
#include <string.h>

enum { LINES_MAX = 64 };

struct walk {
    struct hold *hold;
    struct ask ask;
    bool asking;
    int round;
    struct hf_list *lines; /* of this round */
    struct knot first;
    char *names[LINES_MAX];
    size_t n, next;
};

void hf__walk_stop(struct walk *w)
{
    if (!w)
        return;
    w->hold->walk = NULL;
    if (w->asking)
        hf__ask_stop(&w->ask);
    hf_list_free(w->lines);
    for (size_t i = 0; i < w->n; i++)
        free(w->names[i]);
    free(w);
}

static void add_name(struct walk *w, const char *name)
{
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->names[i], name) == 0)
            return;
    if (w->n < LINES_MAX && (w->names[w->n] = strdup(name)) != NULL)
        w->n++;
}

static void add_hints(struct walk *w, const char *hints, size_t len)
{
    if (len > 0 && hints[len - 1] != '\0')
        return; /* somebody else's idea of a hint */
    for (size_t i = 0; i < len; i += strlen(hints + i) + 1)
        add_name(w, hints + i);
}

/* Moves the line that was read into the walk's own list. */
static bool take_lines(struct walk *w, struct hf_list *from)
{
    struct hf_list *to = w->lines;

    for (size_t i = 0; i < from->n; i++) {
        struct hf_line *line, *lines = realloc(to->lines, (to->n + 1) * sizeof *lines);

        if (!lines)
            return false;
        to->lines = lines;
        line = &lines[to->n++];
        *line = from->lines[i];
        memset(&from->lines[i], 0, sizeof from->lines[i]);
        for (size_t k = 0; w->round == 0 && k < line->ntickets; k++)
            if (line->tickets[k].position > 0)
                add_hints(w, line->tickets[k].hints, line->tickets[k].hints_len);
    }
    return true;
}

static void read_next(struct walk *);

static void begin_round(struct walk *w, int round)
{
    hf_list_free(w->lines);
    w->lines = calloc(1, sizeof *w->lines);
    w->round = round;
    w->next = 0;
    if (w->lines && w->n > 0) /* else there was no memory */
        read_next(w);
    else
        hf__walk_stop(w);
}

static void give_in(struct walk *w)
{
    struct hf_op *op = w->hold->op;

    hf__walk_stop(w);
    if (!op)
        return;
    hf__op_text(op, HF_EDEADLK, "deadlock: its owner waits for somebody who waits for it");
    hf__cancel(op, HF_EDEADLK);
}

static bool is_among(const char *hints, size_t len, const char *name)
{
    for (size_t i = 0; i < len; i += strlen(hints + i) + 1)
        if (strcmp(hints + i, name) == 0)
            return true;
    return false;
}

/* Others walk by the hints of tickets. Ours may say less than its owner holds: there was no memory
 * for them, or it has come to hold more since. Then whoever is the victim may not see the knot. */
static bool unseen(const struct hold *h)
{
    char hints[HF_HINTS_ROOM];
    size_t len = hf__hold_hints(h->client, h->t.owner, hints);

    for (size_t i = 0; i < len; i += strlen(hints + i) + 1)
        if (!is_among(h->t.hints, h->t.hints_len, hints + i))
            return true;
    return false;
}

static void judge(struct walk *w)
{
    struct knot k;

    if (w->round == 0)
        hf__sim_read_once(w->hold);
    if (hf__walk_reduce(w->lines, w->hold->t.token, &k) < 0 || !k.mine) {
        hf__walk_stop(w);
    } else if (w->round == 0 && !MUTANT(ONE_READING)) {
        w->first = k;
        begin_round(w, 1);
    } else if ((k.signature == w->first.signature || MUTANT(ONE_READING)) &&
               (memcmp(k.victim, w->hold->t.token, HF_TOKEN) == 0 || unseen(w->hold))) {
        give_in(w);
    } else {
        hf__walk_stop(w);
    }
}

static void answered(struct ask *a, int rc, const hf_error *err)
{
    struct walk *w = a->user;
    struct hf_list *l = a->list;
    bool fine;

    (void)err;
    w->asking = false;
    a->list = NULL;
    fine = rc == 0 && take_lines(w, l);
    hf_list_free(l);
    free(a->name);
    a->name = NULL;
    if (!fine)
        hf__walk_stop(w);
    else if (w->next < w->n)
        read_next(w);
    else
        judge(w);
}

static void read_next(struct walk *w)
{
    const char *name = w->names[w->next++];

    if (hf__ask_look(&w->ask, w->hold->client, name, strlen(name), false, 0, false) < 0) {
        hf__walk_stop(w);
        return;
    }
    w->ask.answer = answered;
    w->ask.user = w;
    w->asking = true;
}

void hf__walk_start(struct hold *h)
{
    char hints[HF_HINTS_ROOM];
    size_t len = hf__hold_hints(h->client, h->t.owner, hints);
    struct walk *w;

    if (h->walk || len == 0 || !(h->client->caps & HF_CAP_LINE))
        return;
    w = calloc(1, sizeof *w);
    if (!w)
        return;
    w->hold = h;
    h->walk = w;
    add_name(w, h->t.name);
    add_hints(w, hints, len);
    begin_round(w, 0);
}
