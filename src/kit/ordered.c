/* ordered.c: lines in which this client has seats: what is known of them becomes events of
 * the seats (ordered_seat.c), and their effects become requests of the store and events of
 * the core. The argument why this is right stands in ordered.h.
 *
 * A seat lives as long as the core may ask for its ticket or a request of it is under way.
 * What is lost with a connection is told by one call, hf__ordered_down, to all seats: no
 * request needs an answer that says so. */
#include "kit/ordered.h"

#include "kit/mutate.h"

#include <stdlib.h>
#include <string.h>

/* A node of our own is watched after one or two of WATCH_LATER_US. */
enum { WATCH_LATER_US = 30000, SPAN_MOST = 64, ENTRIES_PER_READ = 256 };

static void watch_own(struct ordered_seat *);

static struct ordered_seat *seat_in(struct list *n) /* a member of line.seats */
{
    return container_of(n, struct ordered_seat, in_line);
}

/* ---- seats ----------------------------------------------------------------------- */

static void free_seat(struct ordered_seat *s)
{
    if (s->pins > 0 || !list_empty(&s->in_line))
        return;
    s->of->ops->seat_free(s);
}

static struct ordered_seat *new_seat(struct ordered *o, struct ticket *t)
{
    struct ordered_seat *s = o->ops->seat(o, t);

    if (!s)
        return NULL;
    s->t = t;
    s->of = o;
    t->drv_ptr = s;
    list_init(&s->queue);
    list_push(&s->line->seats, &s->in_line);
    return s;
}

void hf__ordered_pin(struct ordered_seat *s)
{
    s->pins++;
}

bool hf__ordered_unpin(struct ordered_seat *s)
{
    s->pins--;
    if (!list_empty(&s->in_line) && !s->of->closing)
        return true;
    free_seat(s);
    return false;
}

/* Its node is there. false: no memory */
static bool add(struct ordered_seat *s, const struct ordered_place *form)
{
    struct ordered_line *line = s->line;
    char name[ORDERED_NAME_MAX];
    size_t len = s->of->ops->name(s, name);
    struct ordered_entry *e = hf__ordered_find(line, form->seq, name, len);

    if (!e) {
        e = hf__ordered_entry(form, name, len);
        if (!e || !hf__ordered_insert(line, e)) {
            free(e);
            return false;
        }
    }
    e->seat = s;
    s->entry = e;
    return true;
}

/* The core has heard the last of it; it stays in its line only as an orphan. */
static struct ticket *forget(struct ordered_seat *s)
{
    struct ticket *t = s->t;

    if (t)
        t->drv_ptr = NULL;
    s->t = NULL;
    list_remove(&s->queue);
    if (s->state != SEAT_ORPHAN)
        list_remove(&s->in_line);
    return t;
}

/* A node that may still be there stays in the view, as if it were somebody else's: those
 * behind it go on waiting until it is known to be gone. */
static void tell_last(struct ordered_seat *s, unsigned effects, int why,
                      const hf_error *err)
{
    bool known = s->state != SEAT_ORPHAN && !(effects & SEAT_TELL_UNKNOWN);
    struct ordered_line *line = s->line;
    struct ticket *t;
    hf_error text;

    why = why != 0 ? why : s->why;
    if ((effects & SEAT_TELL_GONE) && !err && why != HF_EBUSY && why != HF_ELOST) {
        s->of->ops->explain(s, why, &text);
        err = &text;
    }
    t = forget(s);
    if (s->entry)
        s->entry->seat = NULL;
    if (s->entry && (known || MUTANT(LEFT_UNSEEN)))
        hf__ordered_cut(line, s->entry);
    s->entry = NULL;
    line->pins++;
    hf__ordered_decide(line, false); /* those behind it in this client */
    hf__ordered_line_unpin(line);
    free_seat(s);
    if (effects & SEAT_TELL_GONE)
        ev_gone(t, why, why == HF_ELOST ? 0 : -1, err);
    else
        ev_left(t, effects & SEAT_TELL_LEFT ? 0 : HF_EUNKNOWN);
}

/* The node of one's own is watched when it has been there for a moment: most are gone by
 * then. */
static void watch_later(struct ordered_seat *s)
{
    struct ordered *o = s->of;
    struct env *env = o->store->env;

    if (!list_empty(&s->queue))
        return;
    list_push(&o->fresh, &s->queue);
    if (!timer_armed(&o->later))
        env->timer(env, &o->later, env->now(env) + WATCH_LATER_US);
}

static void later(struct timer *t)
{
    struct ordered *o = container_of(t, struct ordered, later);
    struct env *env = o->store->env;
    struct list *n;

    while ((n = list_pop(&o->unwatched)) != NULL)
        watch_own(container_of(n, struct ordered_seat, queue));
    list_splice(&o->unwatched, &o->fresh);
    if (!list_empty(&o->unwatched))
        env->timer(env, &o->later, env->now(env) + WATCH_LATER_US);
    if (o->store->driver->flush)
        o->store->driver->flush(o->store);
}

/* Effects become requests and events. why, err: of an event that has a reason. */
void hf__ordered_step(struct ordered_seat *s, enum seat_event e, int why,
                      const hf_error *err)
{
    const struct ordered_ops *ops = s->of->ops;
    enum seat_state from = s->state;
    unsigned effects = hf__seat_step(&s->state, e);

    if (effects & SEAT_KEEP_WHY)
        s->why = why;
    if (effects & SEAT_DO_TRY)
        ops->try(s);
    if (effects & SEAT_DO_FIND)
        ops->find(s);
    if (effects & SEAT_DO_CREATE)
        ops->create(s);
    if (effects & SEAT_DO_ERASE)
        ops->erase(s, from == SEAT_WAITING || from == SEAT_HELD || from == SEAT_PARTING);
    if (effects & SEAT_DO_CHECK)
        ops->check(s);
    if (effects & SEAT_DO_LIST)
        hf__ordered_list(s->line);
    if (effects & SEAT_DO_WATCH)
        watch_own(s);
    if (effects & SEAT_TELL_WAITING)
        ev_waiting(s->t, s->position, -1);
    if (effects & SEAT_TELL_GRANTED) {
        watch_later(s);
        ev_granted(s->t, s->fence,
                   ops->sent_at ? ops->sent_at(s->of) : s->t->life->sent_at);
    }
    if ((effects & SEAT_TELL_MARKED) && s->t->life && s->t->life->kind == LIFE_WIDE)
        ev_marked(s->t);
    if (effects & SEAT_TELL_LAST)
        tell_last(s, effects, why, err);
    else if (from == SEAT_ORPHAN && s->state == SEAT_OUT) {
        list_remove(&s->in_line);
        hf__ordered_line_drop(s->line);
        free_seat(s);
    }
}

/* ---- lines ----------------------------------------------------------------------- */

void hf__ordered_line_init(struct ordered *o, struct ordered_line *line)
{
    line->of = o;
    list_init(&line->seats);
    list_push(&o->lines, &line->all);
}

void hf__ordered_line_drop(struct ordered_line *line)
{
    if (!list_empty(&line->seats) || line->pins > 0)
        return;
    list_remove(&line->all);
    hf__ordered_empty(line);
    line->of->ops->line_free(line);
}

void hf__ordered_line_unpin(struct ordered_line *line)
{
    line->pins--;
    hf__ordered_line_drop(line);
}

bool hf__ordered_line_waits(const struct ordered_line *line)
{
    list_for(n, &line->seats)
        if (seat_in(n)->state == SEAT_WAITING)
            return true;
    return false;
}

static void send_list(struct ordered_line *line, bool watch)
{
    if (!line->of->up)
        return;
    line->lists++;
    if (watch)
        line->watch = WATCH_ASKED;
    line->of->ops->list(line, watch);
}

void hf__ordered_list(struct ordered_line *line)
{
    if (line->lists == 0)
        send_list(line, false);
}

/* Nothing is decided until a list has come. */
static void must_list(struct ordered_line *line)
{
    line->stale = true;
    hf__ordered_list(line);
}

static void watch_line(struct ordered_line *line)
{
    if (line->watch == WATCH_NONE)
        send_list(line, true);
}

static void watch(struct ordered_line *line, struct ordered_entry *e)
{
    if (e->watch != WATCH_NONE || !line->of->up)
        return;
    if (line->of->ops->watch(line, e))
        e->watch = WATCH_ASKED;
    else
        watch_line(line);
}

static void watch_own(struct ordered_seat *s)
{
    if (s->entry)
        watch(s->line, s->entry);
}

/* ---- deciding -------------------------------------------------------------------- */

/* Again when its place in the queue is another by a tenth: not for each of ten thousand at
 * every hand-off. */
static void tell_waits(struct ordered_seat *s, uint32_t position)
{
    uint32_t told = s->position;

    if (told == 0 || position > told || position + told / 10 < told ||
        (position < 10 && position != told)) {
        s->position = position;
        ev_waiting(s->t, position, -1);
    }
}

static void decide_waiting(struct ordered_line *line, size_t i, size_t holders)
{
    struct ordered_seat *s = line->entries[i]->seat;
    struct ordered_span on = hf__ordered_whom(line->entries, i);

    if (s->t->try_only) {
        hf__ordered_step(s, SEAT_WITHDRAW, HF_EBUSY, NULL);
        return;
    }
    if (on.to - on.from > SPAN_MOST)
        watch_line(line);
    else
        for (size_t k = on.from; k < on.to; k++)
            watch(line, line->entries[k]);
    /* what a grant needs to know is asked while there is time; and it may be evicted */
    watch(line, line->entries[i]);
    tell_waits(s, (uint32_t)(i - holders + 1));
}

static void confirm(struct ordered_seat *s, bool strict)
{
    if (s->confirming)
        return;
    s->confirming = true;
    s->least = strict ? 0 : s->of->revision;
    s->of->ops->confirm(s, strict);
}

static void decide_one(struct ordered_line *line, size_t i, size_t holders, bool fresh)
{
    struct ordered_entry *e = line->entries[i];
    bool in_order = line->of->ops->in_order;

    if (!hf__ordered_same_kind(e, line->entries[0]))
        hf__ordered_step(e->seat, SEAT_WITHDRAW, HF_EMISMATCH, NULL);
    else if (i >= holders)
        decide_waiting(line, i, holders);
    else if (fresh || e->seat == line->shown || (in_order && e->watch == WATCH_SET) ||
             MUTANT(OWN_UNSEEN))
        hf__ordered_step(e->seat, SEAT_ADMITTED, 0, NULL);
    else if (in_order)
        watch(line, e);
    else if (line->of->ops->confirm)
        confirm(e->seat, false);
    else
        hf__ordered_list(line);
}

/* fresh: a list has just shown what is there. Nothing in here takes an entry out of the
 * view. */
void hf__ordered_decide(struct ordered_line *line, bool fresh)
{
    size_t holders;

    if (line->stale || !line->of->up)
        return;
    holders = hf__ordered_holders(line->entries, line->n);
    for (size_t i = 0; i < line->n; i++) {
        const struct ordered_seat *s = line->entries[i]->seat;

        if (s && s->state == SEAT_WAITING)
            decide_one(line, i, holders, fresh);
    }
}

/* All that keeps it out may have come back into the view meanwhile, by a list. */
static void admit(struct ordered_seat *s)
{
    const struct ordered_line *line = s->line;
    size_t holders = hf__ordered_holders(line->entries, line->n);

    for (size_t i = 0; i < holders; i++)
        if (line->entries[i] == s->entry) {
            hf__ordered_step(s, SEAT_ADMITTED, 0, NULL);
            return;
        }
}

bool hf__ordered_confirmed(struct ordered_seat *s, int rc, bool there, uint64_t revision)
{
    s->confirming = false;
    if (s->state != SEAT_WAITING)
        return true;
    if (rc < 0)
        hf__ordered_list(s->line); /* which says what is to be done then */
    else if (revision < s->least && !MUTANT(OLD_CONFIRM))
        confirm(s, true);
    else if (!there)
        return false;
    else if (!s->line->stale && s->of->up && s->entry)
        admit(s);
    return true;
}

/* ---- lists ----------------------------------------------------------------------- */

/* A list that was older than its node has taken it out of the view. */
static bool adopt(struct ordered_line *line, struct ordered_seat *s)
{
    char name[ORDERED_NAME_MAX];
    size_t len = line->of->ops->name(s, name);

    for (size_t i = 0; i < line->n && !s->entry; i++) {
        struct ordered_entry *e = line->entries[i];

        if (!e->seat && e->len == len && memcmp(e->name, name, len) == 0) {
            s->entry = e;
            e->seat = s;
        }
    }
    return s->entry != NULL;
}

/* Of our nodes that are older than the list it is known now what stands before them, or
 * that they are gone: we are heard, so our session lives and somebody else has ended
 * them. */
static void place_seats(struct ordered_line *line, uint64_t revision)
{
    list_for_safe(n, &line->seats) {
        struct ordered_seat *s = seat_in(n);
        bool held = s->state == SEAT_HELD, doomed = s->state == SEAT_DOOMED;

        if ((s->state != SEAT_CREATED && s->state != SEAT_WAITING && !held && !doomed) ||
            (s->fence > revision && !MUTANT(OLD_LIST)))
            continue;
        if (!s->entry && !adopt(line, s))
            hf__ordered_step(s, SEAT_GONE,
                             held     ? HF_ELOST
                             : doomed ? 0
                                      : HF_EEVICTED,
                             NULL);
        else
            hf__ordered_step(s, SEAT_PLACED, 0, NULL);
    }
}

/* It is not known what stands before a seat of ours, or what became of it: an older list
 * has taken out the entry of one that waits. */
static bool needs_list(const struct ordered_line *line)
{
    list_for(n, &line->seats) {
        const struct ordered_seat *s = seat_in(n);

        if (s->state == SEAT_CREATED || (s->state == SEAT_WAITING && !s->entry))
            return true;
    }
    return line->stale && hf__ordered_line_waits(line);
}

void hf__ordered_unlisted(struct ordered_line *line)
{
    if (line->lists > 0)
        line->lists--;
    if (needs_list(line))
        hf__ordered_list(line);
}

void hf__ordered_listed(struct ordered_line *line, struct ordered_entry **entries, size_t n,
                        uint64_t revision, bool watched)
{
    if (line->lists > 0)
        line->lists--;
    if (watched)
        line->watch = WATCH_SET;
    line->pins++;
    if (revision < line->revision) { /* answers may overtake each other */
        hf__ordered_entries_free(entries, n);
        line->stale = line->stale || line->lists == 0; /* somebody has waited for it */
    } else {
        hf__ordered_sort(entries, n);
        hf__ordered_replace(line, entries, n);
        line->revision = revision;
        line->stale = false;
        place_seats(line, revision);
        hf__ordered_decide(line, true);
    }
    if (needs_list(line)) /* that list was older than something of ours */
        hf__ordered_list(line);
    hf__ordered_line_unpin(line);
}

/* Those of whom it is not known what stands before them, and if it is for want of rights
 * all others, too: they would wait for news that nobody sends. */
void hf__ordered_not_listed(struct ordered_line *line, int rc, bool watched)
{
    if (line->lists > 0)
        line->lists--;
    if (watched)
        line->watch = WATCH_NONE;
    list_for_safe(n, &line->seats) {
        struct ordered_seat *s = seat_in(n);

        if (s->state == SEAT_CREATED || rc == HF_EAUTH)
            hf__ordered_step(s, SEAT_WITHDRAW, rc, NULL);
    }
}

/* ---- the end of a ticket --------------------------------------------------------- */

static struct ordered_entry *first_waiting(const struct ordered_line *line, size_t *at)
{
    for (*at = 0; *at < line->n; ++*at) {
        const struct ordered_seat *s = line->entries[*at]->seat;

        if (s && s->state == SEAT_WAITING)
            return line->entries[*at];
    }
    return NULL;
}

/* Somebody else's ticket of whose end we would not hear. */
static bool unseen(const struct ordered_entry *e)
{
    return !e->seat && e->watch == WATCH_NONE;
}

/* The first of ours that waits may have been let in by the end of tickets that nobody of
 * ours watched. So the line is listed, which is one request; or they are read by
 * themselves, if the line is so long that this is less work for the store. */
static bool should_list(const struct ordered_line *line, const struct ordered_entry *but)
{
    size_t first, n = 0;

    first_waiting(line, &first);
    for (size_t i = 0; i < first; i++)
        n += line->entries[i] != but && unseen(line->entries[i]);
    return n > 1 + line->n / ENTRIES_PER_READ;
}

static void refresh(struct ordered_line *line)
{
    size_t first;

    if (line->stale || line->lists > 0 || !first_waiting(line, &first) ||
        first < hf__ordered_holders(line->entries, line->n))
        return;
    if (should_list(line, NULL)) {
        must_list(line);
        return;
    }
    for (size_t i = 0; i < first; i++)
        if (unseen(line->entries[i]))
            watch(line, line->entries[i]);
}

static void ended_own(struct ordered_line *line, struct ordered_entry *e)
{
    struct ordered_seat *s = e->seat;
    bool ours = s->state == SEAT_DELETING || s->state == SEAT_WITHDRAWING;

    if (s->state == SEAT_RENAMING || s->state == SEAT_PARTING)
        return; /* it is told by the answer to that */
    hf__ordered_cut(line, e);
    if (!ours) /* perhaps all of the line has gone, and is another now */
        line->stale = true;
    /* of one that waits the list says what it was: an eviction, if that is answered; the
     * end of our session comes with such an event, too, and the connection ends */
    if (s->state == SEAT_HELD)
        hf__ordered_step(s, SEAT_GONE, HF_ELOST, NULL);
    if (line->stale && needs_list(line))
        hf__ordered_list(line);
}

enum concern { NO_CONCERN, OF_LATER, OF_FIRST };

/* Which of our waiting seats it keeps out: the first of them, a later one, none. */
static enum concern concern(const struct ordered_line *line, const struct ordered_entry *e)
{
    enum concern who = OF_FIRST;

    for (size_t i = 0; i < line->n; i++) {
        const struct ordered_seat *s = line->entries[i]->seat;
        struct ordered_span on;

        if (!s || s->state != SEAT_WAITING || i == 0)
            continue;
        on = hf__ordered_whom(line->entries, i);
        for (size_t k = on.from; k < on.to; k++)
            if (line->entries[k] == e)
                return who;
        who = OF_LATER;
    }
    return NO_CONCERN;
}

static void ended_others(struct ordered_line *line, struct ordered_entry *e, bool first)
{
    const struct ordered_ops *ops = line->of->ops;
    struct ordered_entry *as = NULL;
    enum ordered_other other = OTHER_NONE;

    if (ops->other && e->weight == HF_FULL && e->kind == LINE_LOCK &&
        !MUTANT(GONE_WITH_NAME)) /* a list would say that, too */
        other = first && should_list(line, e) ? OTHER_UNKNOWN : ops->other(e, &as);
    if (other == OTHER_UNKNOWN && !MUTANT(STALE_DECIDES)) {
        must_list(line);
        return;
    }
    hf__ordered_cut(line, e);
    if (as && hf__ordered_insert(line, as)) { /* there was room: one has just gone */
        watch(line, as);
    } else if (as) {
        free(as);
        must_list(line);
    }
}

static void ended(struct ordered_line *line, struct ordered_entry *e)
{
    enum concern who = e->seat ? NO_CONCERN : concern(line, e);

    e->watch = WATCH_NONE;
    if (e->seat)
        ended_own(line, e);
    else if (who != NO_CONCERN)
        ended_others(line, e, who == OF_FIRST);
    else if (e->weight < HF_FULL) /* else it may have another name: not asked for now */
        hf__ordered_cut(line, e);
    if (who == OF_FIRST)
        refresh(line);
    hf__ordered_decide(line, false);
}

void hf__ordered_ended(struct ordered_line *line, struct ordered_entry *e,
                       const struct ordered_seat *shown, uint64_t revision)
{
    line->pins++;
    line->shown = revision >= line->gone ? shown : NULL;
    ended(line, e);
    line->shown = NULL;
    hf__ordered_line_unpin(line);
}

/* ---- what the store was told of a line ------------------------------------------- */

void hf__ordered_seen(struct ordered_line *line, struct ordered_entry *e,
                      enum ordered_seen what, int64_t weight)
{
    line->pins++;
    switch (what) {
    case SEEN_GONE:
        ended(line, e);
        break;
    case SEEN_FOREIGN:
        if (e->seat && e->seat->state != SEAT_HELD)
            hf__ordered_step(e->seat, SEAT_WITHDRAW, HF_ELOST, NULL);
        else
            ended(line, e);
        break;
    case SEEN_CHANGED:
        e->watch = WATCH_NONE;
        if (e->seat) /* what has changed in our own node may be that it is to end */
            watch(line, e);
        hf__ordered_decide(line, false);
        break;
    case SEEN_MARKED:
        e->watch = WATCH_SET;
        if (e->seat)
            hf__ordered_step(e->seat, SEAT_MARKED, HF_EEVICTED, NULL);
        break;
    case SEEN_THERE:
        e->watch = WATCH_SET;
        if (weight > 0)
            hf__ordered_lighter(line, e, weight);
        hf__ordered_decide(line, false);
        break;
    case SEEN_REFUSED: /* then whoever waits behind it looks at the whole line */
        e->watch = WATCH_NONE;
        watch_line(line);
        break;
    }
    hf__ordered_line_unpin(line);
}

void hf__ordered_line_changed(struct ordered_line *line, bool gone)
{
    line->watch = WATCH_NONE;
    if (!line->of->up)
        line->stale = true; /* it is listed then */
    else if (hf__ordered_line_waits(line))
        send_list(line, !gone);
}

/* ---- what the store was told of a seat ------------------------------------------- */

void hf__ordered_there(struct ordered_seat *s, enum seat_event e,
                       const struct ordered_place *form, bool placed, bool fresh)
{
    struct ordered_line *line = s->line;

    if (!add(s, form)) { /* UNSURE again */
        s->of->ops->no_memory(s->of);
        e = SEAT_LOST;
    }
    line->pins++;
    hf__ordered_step(s, e, 0, NULL);
    if (e == SEAT_LOST || s->state != SEAT_CREATED) {
        ; /* it leaves */
    } else {
        watch_later(s);
        if (placed || (MUTANT(EARLY_VIEW) && !line->stale)) {
            hf__ordered_step(s, SEAT_PLACED, 0, NULL);
            hf__ordered_decide(line, fresh);
        } else {
            hf__ordered_list(line); /* one under way may be late enough */
        }
    }
    hf__ordered_line_unpin(line);
}

/* In the view in the same breath: those behind it in this client see a shared ticket. */
void hf__ordered_renamed(struct ordered_seat *s, const struct ordered_place *form)
{
    struct ordered_line *line = s->line;

    if (s->entry)
        hf__ordered_cut(line, s->entry);
    if (!add(s, form)) {
        line->stale = true;
        line->of->ops->no_memory(line->of);
    }
    hf__ordered_step(s, SEAT_RENAMED, 0, NULL);
    hf__ordered_decide(line, false);
}

/* ---- verbs of the core ----------------------------------------------------------- */

void hf__ordered_join(struct ordered *o, struct ticket *t)
{
    struct ordered_seat *s = t->drv_ptr ? t->drv_ptr : new_seat(o, t);
    hf_error err;

    if (s) {
        hf__ordered_step(s, t->try_only && o->ops->try ? SEAT_JOIN_TRY : SEAT_JOIN, 0,
                         NULL);
        return;
    }
    hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a request");
    ev_gone(t, HF_ENOMEM, -1, &err);
}

/* Without memory the connection is given up, and the leave repeated after UP: before the
 * owner of the ticket joins another line, where it would seem to wait in both (G10). */
void hf__ordered_leave(struct ordered *o, struct ticket *t)
{
    struct ordered_seat *s = t->drv_ptr;

    if (!s && o->up && (s = new_seat(o, t)) == NULL) /* forgotten: its node is looked for */
        o->ops->no_memory(o);
    if (s)
        hf__ordered_step(s, o->up ? SEAT_LEAVE : SEAT_LEAVE_DOWN, 0, NULL);
    else
        ev_left(t, HF_EUNKNOWN);
}

/* ---- down and up ----------------------------------------------------------------- */

/* Every line, pinned while something is done with it. */
static void each_line(struct ordered *o, void (*with)(struct ordered_line *))
{
    list_for_safe(n, &o->lines) {
        struct ordered_line *line = container_of(n, struct ordered_line, all);

        line->pins++;
        with(line);
        hf__ordered_line_unpin(line);
    }
}

static void each_seat(struct ordered_line *line, enum seat_event e)
{
    list_for_safe(n, &line->seats)
        hf__ordered_step(seat_in(n), e, 0, NULL);
}

static void line_down(struct ordered_line *line)
{
    line->stale = line->stale || line->lists > 0;
    line->lists = 0;
    if (line->watch == WATCH_ASKED)
        line->watch = WATCH_NONE;
    for (size_t i = 0; i < line->n; i++)
        if (line->entries[i]->watch == WATCH_ASKED)
            line->entries[i]->watch = WATCH_NONE;
    list_for(n, &line->seats)
        seat_in(n)->confirming = false;
    each_seat(line, SEAT_LOST);
}

void hf__ordered_down(struct ordered *o)
{
    o->up = false;
    each_line(o, line_down);
}

static void line_up(struct ordered_line *line)
{
    each_seat(line, SEAT_UP);
    if (line->stale && !list_empty(&line->seats))
        hf__ordered_list(line);
    else
        hf__ordered_decide(line, false);
}

void hf__ordered_up(struct ordered *o)
{
    o->up = true;
    each_line(o, line_up);
}

static void line_over(struct ordered_line *line)
{
    line->stale = true;
    line->revision = 0;
    line->watch = WATCH_NONE;
    for (size_t i = 0; i < line->n; i++)
        line->entries[i]->watch = WATCH_NONE;
    each_seat(line, SEAT_SESSION_OVER);
}

void hf__ordered_over(struct ordered *o)
{
    each_line(o, line_over);
}

static void line_erase_again(struct ordered_line *line)
{
    list_for_safe(n, &line->seats)
        if (seat_in(n)->state == SEAT_ORPHAN)
            hf__ordered_step(seat_in(n), SEAT_UP, 0, NULL);
}

void hf__ordered_erase_again(struct ordered *o)
{
    each_line(o, line_erase_again);
}

/* A store may drop a watch event if the client lacks read permission when it fires. Asked
 * is about what our first waiting seat waits for. */
static void line_look_again(struct ordered_line *line)
{
    struct ordered_span on;
    size_t first;

    if (line->lists > 0 || !hf__ordered_line_waits(line) || MUTANT(NO_LOOK))
        return;
    if (line->stale || line->watch == WATCH_SET) { /* stale: its list was refused */
        send_list(line, line->watch == WATCH_SET);
        return;
    }
    if (!first_waiting(line, &first) || first == 0)
        return;
    on = hf__ordered_whom(line->entries, first);
    for (size_t i = on.from; i < on.to; i++) {
        if (line->entries[i]->watch == WATCH_SET)
            line->entries[i]->watch = WATCH_NONE;
        watch(line, line->entries[i]);
    }
}

void hf__ordered_look_again(struct ordered *o)
{
    each_line(o, line_look_again);
}

/* ---- opening and closing --------------------------------------------------------- */

void hf__ordered_init(struct ordered *o, const struct ordered_ops *ops, struct store *store)
{
    *o = (struct ordered){ .ops = ops, .store = store };
    list_init(&o->lines);
    list_init(&o->unwatched);
    list_init(&o->fresh);
    timer_init(&o->later, later);
}

static void line_close(struct ordered_line *line)
{
    struct list *n;

    while ((n = list_first(&line->seats)) != NULL) {
        struct ordered_seat *s = seat_in(n);

        forget(s);
        if (s->entry) /* which goes with the line, after it */
            s->entry->seat = NULL;
        s->entry = NULL;
        list_remove(n);
        free_seat(s);
    }
}

void hf__ordered_close(struct ordered *o)
{
    struct env *env = o->store->env;

    o->closing = true;
    o->up = false;
    env->timer(env, &o->later, LOOP_NEVER);
    each_line(o, line_close);
}
