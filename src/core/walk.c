/* walk.c: looks for a deadlock that a waiting ticket is part of (G10).
 *
 * An owner that holds something and has waited a second reads the lines that it holds. If
 * nobody waits in any of them, nobody waits for this owner by what it holds, and the walk
 * ends: that is the usual case, and costs one read for each name held. Else it reads the
 * line it waits in, as far as its own ticket, and goes backwards: each ticket that waits in
 * a line read so far carries names that its owner holds (at most 16), whose lines are read
 * too, and so on. Then reduce.c decides. If our ticket remains, all those lines are read
 * once more: since every first reading comes before every second one, and tokens are never
 * used twice, a ticket that is there both times in the same state was there at the moment
 * between: the deadlock was real.
 *
 * Who acts. A deadlock is completed by one of three events.
 *  - A join. The new ticket is the one that joined last, so nobody stands behind it, so
 *    those in the deadlock that wait for its owner wait in a line that its owner holds. The
 *    victim is the ticket that joined last among the owners that hold a line in which
 *    another of the deadlock waits: it is the new one. It has waited for a second only, so
 *    its first walk finds the deadlock.
 *  - A grant to an owner that waits elsewhere (it acts on several threads). Its waiting
 *    ticket does not name the new line, so the victim by the first rule may not see the
 *    deadlock. This owner is restarted by the grant. If it finds the same deadlock in two
 *    walks and knows that its own ticket does not name a line in which others wait for it,
 *    it acts itself. (In the rare case that the victim by the first rule does see it, and
 *    at the same time, both do.)
 *  - The end of one of several waits of an owner that acts on several threads: that one
 *    might have been granted. Its other waits are restarted, too.
 * So others need not look often: each walk that finds nothing doubles the time to the next,
 * up to about a minute, with jitter, so that many waiters do not read all at once. A new
 * waiter in a line that the owner holds, or a grant to the owner, starts again with a
 * second. One walk at a time is under way for a client and a line that it waits in.
 *
 * Of the line that the owner waits in, tickets behind its own are not read. Those tickets
 * joined later: in a deadlock that needs one of them, that one or a later one is the
 * victim.
 *
 * No memory, a store that does not answer, a line that is gone: the walk ends without a
 * verdict, and is repeated after the same time. */
#include "core/core.h"
#include "core/mutate.h"

#include <stdlib.h>
#include <string.h>

enum {
    OWN_MAX = 1024, /* of the lines that the owner holds */
    LINES_MAX = 64, /* besides these */
    FIRST_MS = 1000,
    MOST_MS = 64000,
    TURN_MS = 50 /* another walk for the same line is under way */
};

/* The search of one waiting hold, kept between two walks for their period. A deadlock is
 * believed only if a second reading of the same lines finds it too: lines that were read
 * one after the other may show a circle that never was there at one time. */
struct walk {
    struct hold *hold;
    struct list node;  /* client.walks while it reads */
    int64_t period_ms; /* until the next walk */
    /* something has happened since it began: the next one follows in a second */
    bool soon;
    bool looked;  /* `newest` is known */
    bool lacking; /* there was no memory for a name */
    /* the latest join in a line that the owner holds, as of the last walk */
    int64_t newest;
    /* signature of what the last walk left to another victim; 0: nothing */
    uint64_t knot;
    /* while it reads */
    struct ask ask;
    bool asking, second;   /* second: the second reading */
    struct hf_list *lines; /* of this reading */
    struct knot first;
    size_t n, next, own, room; /* own: the first names are of lines that the owner holds */
    struct walk_name {
        uint64_t hash;
        char *text;
    } * names;
};

/* ---- when ------------------------------------------------------------------------ */

static int64_t with_jitter(struct client *c, int64_t ms)
{
    unsigned char r;

    c->env->random(c->env, &r, 1);
    return ms * 3 / 4 + ms * r / 510;
}

static void next_in(struct hold *h, int64_t ms)
{
    hf__hold_walk_in(h, with_jitter(h->client, ms));
}

static void stop_reading(struct walk *w)
{
    if (w->asking)
        hf__ask_stop(&w->ask);
    w->asking = false;
    hf_list_free(w->lines);
    w->lines = NULL;
    for (size_t i = 0; i < w->n; i++)
        free(w->names[i].text);
    free(w->names);
    w->names = NULL;
    w->n = w->next = w->own = 0;
    list_remove(&w->node);
}

void hf__walk_stop(struct walk *w)
{
    if (!w)
        return;
    w->hold->walk = NULL;
    stop_reading(w);
    free(w);
}

static void failed(struct walk *w)
{
    stop_reading(w);
    next_in(w->hold, w->period_ms);
}

static void found_nothing(struct walk *w)
{
    if (w->lacking) {
        failed(w);
        return;
    }
    stop_reading(w);
    w->period_ms = w->soon                      ? FIRST_MS
                   : w->period_ms * 2 < MOST_MS ? w->period_ms * 2
                                                : MOST_MS;
    w->soon = false;
    next_in(w->hold, w->period_ms);
}

static bool any(void *user, const char *name)
{
    (void)name;
    *(bool *)user = true;
    return false;
}

static bool holds_something(const struct hold *h)
{
    bool holds = false;

    hf__hold_each(h->client, h->t.owner, any, &holds);
    return holds;
}

/* The owner that this client acts for says that it holds this very name. */
static bool waits_for_itself(const struct hold *h)
{
    const struct client *c = h->client;

    for (size_t i = 0; owner_same(h->t.owner, c->acts_for) && i < c->acts_hints_len;
         i += strlen(c->acts_hints + i) + 1)
        if (strcmp(c->acts_hints + i, h->t.name) == 0)
            return true;
    return false;
}

void hf__walk_plan(struct hold *h)
{
    if (!(h->client->caps & HF_CAP_LINE) || !holds_something(h))
        return; /* until its owner is granted something: hf__walk_restart */
    if (waits_for_itself(h))
        hf__hold_walk_in(h, 0);
    else
        next_in(h, FIRST_MS);
}

void hf__walk_restart(struct hold *h)
{
    if (MUTANT(NO_RESTART))
        return;
    if (h->walk)
        h->walk->period_ms = FIRST_MS;
    if (h->walk && h->walk->lines)
        h->walk->soon = true;
    else if (!hf__hold_walks_within(
                 h, FIRST_MS)) /* else one event after another would put it off */
        next_in(h, FIRST_MS);
}

/* ---- reading --------------------------------------------------------------------- */

static void add_name(struct walk *w, const char *name)
{
    uint64_t hash = hf__hash_keyed(w->hold->client->hash_key, name, strlen(name));

    if (w->n == w->room)
        return;
    for (size_t i = 0; i < w->n; i++)
        if (w->names[i].hash == hash && strcmp(w->names[i].text, name) == 0)
            return;
    w->names[w->n].hash = hash;
    if ((w->names[w->n].text = strdup(name)) != NULL)
        w->n++;
    else
        w->lacking = true;
}

static void add_hints(struct walk *w, const char *hints, size_t len)
{
    if (len > 0 && hints[len - 1] != '\0')
        return; /* not written by this library */
    for (size_t i = 0; i < len; i += strlen(hints + i) + 1)
        add_name(w, hints + i);
}

static void add_hints_of(struct walk *w, const struct hf_line *line)
{
    for (size_t i = 0; i < line->ntickets; i++)
        if (line->tickets[i].position > 0)
            add_hints(w, line->tickets[i].hints, line->tickets[i].hints_len);
}

/* Moves the line that was read into the walk's own list. */
static bool take_lines(struct walk *w, struct hf_list *from)
{
    struct hf_list *to = w->lines;
    bool held = w->next <= w->own;

    for (size_t i = 0; i < from->n; i++) {
        struct hf_line *lines = realloc(to->lines, (to->n + 1) * sizeof *lines);

        if (!lines)
            return false;
        to->lines = lines;
        lines[to->n] = from->lines[i];
        memset(&from->lines[i], 0, sizeof from->lines[i]);
        to->n++;
        if (!w->second && !held)
            add_hints_of(w, &lines[to->n - 1]);
    }
    return true;
}

/* Somebody waits in a line that the owner holds. Notices the latest of them. */
static bool somebody_waits(struct walk *w)
{
    int64_t newest = INT64_MIN;
    bool waits = false;

    for (size_t i = 0; i < w->lines->n; i++)
        for (size_t k = 0; k < w->lines->lines[i].ntickets; k++) {
            const struct hf_ticket *t = &w->lines->lines[i].tickets[k];

            if (t->position > 0 && t->joined > newest)
                newest = t->joined;
            waits = waits || t->position > 0;
        }
    if (w->looked && waits && newest > w->newest)
        w->soon = true;
    w->newest = newest;
    w->looked = true;
    return waits;
}

static void read_next(struct walk *w);

static void begin_reading(struct walk *w, bool second)
{
    hf_list_free(w->lines);
    w->lines = calloc(1, sizeof *w->lines);
    w->second = second;
    w->next = 0;
    if (w->lines && w->n > 0) /* else there was no memory */
        read_next(w);
    else
        failed(w);
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

/* Our ticket does not name a line in which somebody waits for its owner: the owner has come
 * to hold it since, or holds more than a ticket names. Then the victim may not see the
 * deadlock. */
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

/* Is it for us to end it? If not, the victim does; if it has not by our next walk, it may
 * not see it. */
static bool is_ours(struct walk *w, const struct knot *k)
{
    uint64_t last = w->knot;

    w->knot = k->signature;
    return memcmp(k->victim, w->hold->t.token, HF_TOKEN) == 0 ||
           (last == k->signature && unseen(w));
}

static void judge(struct walk *w)
{
    struct knot k;

    if (!w->second)
        hf__sim_read_once(w->hold);
    if (hf__walk_reduce(w->lines, w->hold->t.token, &k) < 0) {
        failed(w);
    } else if (!k.mine) {
        found_nothing(w);
    } else if (!w->second && !MUTANT(ONE_READING)) {
        w->first = k;
        begin_reading(w, true);
    } else if (k.signature != w->first.signature && !MUTANT(ONE_READING)) {
        failed(w); /* it moves: look again */
    } else if (is_ours(w, &k)) {
        give_in(w);
    } else {
        w->soon = true; /* the victim's to end, and gone soon */
        found_nothing(w);
    }
}

/* Every line that the owner holds has been read for the first time: is there anything to
 * follow? */
static bool goes_on(struct walk *w)
{
    if (w->second || w->next != w->own)
        return true;
    if (!somebody_waits(w))
        return false;
    add_name(w, w->hold->t.name);
    for (size_t i = 0; i < w->lines->n; i++)
        add_hints_of(w, &w->lines->lines[i]);
    return true;
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
        failed(w);
    else if (!goes_on(w))
        found_nothing(w);
    else if (w->next < w->n)
        read_next(w);
    else
        judge(w);
}

static void read_next(struct walk *w)
{
    const struct ticket *t = &w->hold->t;
    const char *name = w->names[w->next++].text;

    if (hf__ask_look(&w->ask, w->hold->client, name, strlen(name), false, 0, false) < 0) {
        failed(w);
        return;
    }
    w->ask.look.no_notes = true;
    if (strcmp(name, t->name) == 0) {
        w->ask.look.front = true;
        memcpy(w->ask.look.token, t->token, HF_TOKEN);
    }
    w->ask.answer = answered;
    w->ask.user = w;
    w->asking = true;
}

/* ---- starting -------------------------------------------------------------------- */

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
    return w->n < OWN_MAX;
}

static bool line_is_walked(const struct hold *h)
{
    list_for(n, &h->client->walks) {
        const struct hold *other = container_of(n, struct walk, node)->hold;

        if (other->t.name_len == h->t.name_len &&
            memcmp(other->t.name, h->t.name, h->t.name_len) == 0)
            return true;
    }
    return false;
}

static struct walk *walk_of(struct hold *h)
{
    struct walk *w = h->walk ? h->walk : calloc(1, sizeof *w);

    if (w && !h->walk) {
        w->hold = h;
        w->period_ms = FIRST_MS;
        list_init(&w->node);
        h->walk = w;
    }
    return w;
}

void hf__walk_start(struct hold *h)
{
    size_t own = 0;
    struct walk *w;

    /* Only owners that hold something walk: see the head. */
    hf__hold_each(h->client, h->t.owner, count_own, &own);
    if (own == 0 || !(h->client->caps & HF_CAP_LINE) || (h->walk && h->walk->lines))
        return;
    if (line_is_walked(h)) {
        next_in(h, TURN_MS);
        return;
    }
    w = walk_of(h);
    if (!w) {
        next_in(h, FIRST_MS);
        return;
    }
    w->lacking = false;
    w->room = own + LINES_MAX;
    w->names = calloc(w->room, sizeof *w->names);
    if (!w->names) {
        failed(w);
        return;
    }
    list_push(&h->client->walks, &w->node);
    hf__hold_each(h->client, h->t.owner, add_own, w);
    w->own = w->n;
    begin_reading(w, false);
}
