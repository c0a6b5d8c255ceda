/* walk.c: looks for a deadlock that a waiting ticket is part of (G10).
 *
 * An owner that holds something and has waited a second reads the line it waits in and the
 * lines it holds; every waiting ticket found there carries names its owner holds (at most 16),
 * whose lines are read too, and so on. Then reduce.c decides. If our ticket remains, all those
 * lines are read once more: since every first reading comes before every second one, and tokens
 * are never used twice, a ticket that is there both times in the same state was there at the
 * moment between: the deadlock was real. Only the victim, which everybody in the knot computes
 * alike, acts, on itself; the others look again later. Who finds the same knot again then, and
 * knows that others may not see it, because its own ticket does not name the line in which they
 * wait for its owner, acts too.
 *
 * No memory, a store that does not answer, a line that is gone: the walk ends without a verdict. */
#include "core/core.h"
#include "core/mutate.h"

#include <stdlib.h>
#include <string.h>

/* Of the lines that its owner holds, and besides these. */
enum { OWN_MAX = 1024, LINES_MAX = 64 };

struct walk {
    struct hold *hold;
    struct ask ask;
    bool asking;
    int round;
    struct hf_list *lines; /* of this round */
    struct knot first;
    size_t n, next, room;
    struct {
        uint64_t hash;
        char *text;
    } names[];
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
        free(w->names[i].text);
    free(w);
}

static void add_name(struct walk *w, const char *name)
{
    uint64_t hash = hf__hash(name, strlen(name));

    if (w->n == w->room)
        return;
    for (size_t i = 0; i < w->n; i++)
        if (w->names[i].hash == hash && strcmp(w->names[i].text, name) == 0)
            return;
    w->names[w->n].hash = hash;
    if ((w->names[w->n].text = strdup(name)) != NULL)
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

static bool waited_for(const struct hf_line *line, struct owner owner)
{
    bool holds = false, waits = false;

    for (size_t i = 0; i < line->ntickets; i++) {
        const struct hf_ticket *t = &line->tickets[i];

        holds = holds || (t->position == 0 && owner_same(t->owner_id, owner));
        waits = waits || t->position > 0;
    }
    return holds && waits;
}

/* Others walk by the hints of tickets. Ours may not name a line in which somebody waits for
 * its owner: there was no memory, or no room for that many, or the owner has come to hold it
 * since. Then whoever is the victim may not see the knot. */
static bool unseen(const struct walk *w)
{
    const struct ticket *t = &w->hold->t;

    for (size_t i = 0; i < w->lines->n; i++) {
        const struct hf_line *line = &w->lines->lines[i];

        if (waited_for(line, t->owner) && !is_among(t->hints, t->hints_len, line->name))
            return true;
    }
    return false;
}

/* Must we untie it? If the victim has not done so until our next walk, it may not see it. */
static bool is_ours(struct walk *w, const struct knot *k)
{
    uint64_t last = w->hold->knot;

    w->hold->knot = k->signature;
    return memcmp(k->victim, w->hold->t.token, HF_TOKEN) == 0 ||
           (last == k->signature && unseen(w));
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
    } else if ((k.signature == w->first.signature || MUTANT(ONE_READING)) && is_ours(w, &k)) {
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
    const char *name = w->names[w->next++].text;

    if (hf__ask_look(&w->ask, w->hold->client, name, strlen(name), false, 0, false) < 0) {
        hf__walk_stop(w);
        return;
    }
    w->ask.answer = answered;
    w->ask.user = w;
    w->asking = true;
}

static bool count_own(void *user, const char *name)
{
    size_t *n = user;

    (void)name;
    return ++*n < OWN_MAX;
}

static bool add_own(void *user, const char *name)
{
    struct walk *w = user;

    add_name(w, name);
    return w->n <= OWN_MAX;
}

void hf__walk_start(struct hold *h)
{
    size_t own = 0;
    struct walk *w;

    hf__hold_each(h->client, h->t.owner, count_own, &own);
    if (h->walk || own == 0 || !(h->client->caps & HF_CAP_LINE))
        return;
    w = calloc(1, sizeof *w + (own + LINES_MAX) * sizeof w->names[0]);
    if (!w)
        return;
    w->room = own + LINES_MAX;
    w->hold = h;
    h->walk = w;
    add_name(w, h->t.name);
    hf__hold_each(h->client, h->t.owner, add_own, w);
    begin_round(w, 0);
}
