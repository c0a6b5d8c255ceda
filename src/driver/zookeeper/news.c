/* news.c: what the server tells of lines: a ticket has ended or changed, the children
 * are others; and what becomes of the views when the connection goes and comes. Why an
 * entry may leave a view is said in line.c. */
#include "driver/zookeeper/zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the end of a ticket --------------------------------------------------------- */

static void must_list(struct line *line)
{
    line->stale = true;
    if (zk_up(line->zk) && line->lists == 0) /* one that is under way is late enough */
        hf__zk_line_list(line, line->children);
}

/* How many of somebody else's tickets stand before our first waiting seat of whose end
 * we would not hear. */
static size_t unseen(const struct line *line, const struct entry *but)
{
    size_t n = 0;

    for (size_t i = 0; i < line->n; i++) {
        const struct entry *e = line->entries[i];

        if (e->seat && e->seat->state == SEAT_WAITING)
            break;
        n += !e->seat && !e->watched && e != but;
    }
    return n;
}

/* Whoever comes in next must also know that its own node is there: asked now, that is
 * answered together with what is asked about the one before it. */
static void watch_next(struct line *line)
{
    for (size_t i = 0; i < line->n; i++) {
        struct entry *e = line->entries[i];

        if (e->seat && e->seat->state == SEAT_WAITING) {
            hf__zk_line_watch(line, e);
            return;
        }
    }
}

/* It may have become shared: then it has this name. */
static bool as_shared(struct line *line, const struct entry *e)
{
    static const char mark[] = "-lock-", shared[] = "-read-lock-";
    char name[NODE_MAX];
    size_t at = e->form.digits - (sizeof mark - 1);
    struct form form = e->form;
    struct entry *next;
    int n;

    if (e->form.digits < sizeof mark - 1)
        return false;
    n = snprintf(name, sizeof name, "%.*s%s%.*s", (int)at, e->name, shared,
                 (int)(e->len - e->form.digits), e->name + e->form.digits);
    if (n < 0 || (size_t)n >= sizeof name)
        return false;
    form.weight = 1;
    form.style = FORM_OTHER;
    form.digits += sizeof shared - sizeof mark;
    next = hf__zk_entry_new(&form, name, (size_t)n);
    if (!next)
        return false;
    for (size_t i = 0; i < line->n; i++)
        if (line->entries[i] == e)
            line->entries[i] = next;
    free((void *)(uintptr_t)e);
    hf__zk_line_watch(line, next);
    watch_next(line);
    return true;
}

void hf__zk_line_ended(struct line *line, struct entry *e)
{
    struct seat *s = e->seat;

    e->watched = false;
    if (s && s->amending)
        return; /* it is told by the answer to that */
    if (s) {
        bool leaving = s->state == SEAT_DELETING;

        hf__zk_line_cut(line, e);
        if (!leaving) /* not our doing: perhaps all of the line has gone, and is another now
                       */
            line->stale = true;
        /* of one that waits the list says what it was: an eviction, if that is answered;
         * the end of our session comes with such an event, too, and the connection ends */
        if (s->state == SEAT_HELD && !s->dead)
            hf__zk_seat_gone(s, HF_ELOST, NULL);
        if (line->stale && hf__zk_line_waits(line))
            must_list(line);
    } else if (!hf__zk_line_waits(line)) {
        line->stale = true; /* nobody of ours needs to know now */
        hf__zk_line_cut(line, e);
    } else if (e->form.weight == HF_FULL && e->form.kind == LINE_LOCK) {
        if (e->form.style != FORM_LOCK || unseen(line, e) > 0 || !as_shared(line, e))
            must_list(line);
    } else if (unseen(line, e) > 1) {
        must_list(line); /* one read, not one for each */
    } else {
        hf__zk_line_cut(line, e);
    }
    hf__zk_line_decide(line, false);
}

/* ---- events ---------------------------------------------------------------------- */

static void entry_event(struct line *line, enum jute_event type, struct entry *e)
{
    if (type == JUTE_DELETED) {
        hf__zk_line_ended(line, e);
        return;
    }
    e->watched = false;
    if (e->seat)
        hf__zk_line_watch(
            line, e); /* what has changed in our own node may be that it is to end */
    hf__zk_line_decide(line, false);
}

void hf__zk_line_event(struct zk *z, enum jute_event type, const char *path, size_t len)
{
    size_t at = len;
    struct line *line = hf__zk_line_of_dir(z, path, len);
    struct entry *e;

    if (type != JUTE_CHILDREN)
        hf__zk_quiet_event(z, path, len);
    if (line && (type == JUTE_CHILDREN || type == JUTE_DELETED)) {
        line->children = false;
        if (hf__zk_line_waits(line))
            hf__zk_line_list(line, line->children = type == JUTE_CHILDREN);
    }
    while (at > 0 && path[at - 1] != '/')
        at--;
    line = at > 1 && type != JUTE_CHILDREN ? hf__zk_line_of_dir(z, path, at - 1) : NULL;
    if (!line)
        return;
    line->pins++;
    if (z->alone) {
        hf__zk_alone_event(line, type);
    } else {
        e = hf__zk_line_find(line, path + at, len - at);
        if (e)
            entry_event(line, type, e);
    }
    line->pins--;
    hf__zk_line_drop(line);
}

/* ---- down and up ----------------------------------------------------------------- */

/* Every request has been answered, with nothing. Those that leave and were not told are
 * those for which there was no memory to ask. */
void hf__zk_line_down(struct zk *z)
{
    hf__zk_quiet_forget(z);
    list_for_safe(l, &z->all_lines) {
        struct line *line = container_of(l, struct line, all);

        for (size_t i = 0; i < line->n; i++)
            line->entries[i]->asking = false;
        line->pins++;
        list_for_safe(n, &line->seats)
            if (seat_in(n)->leave)
                hf__zk_seat_left(seat_in(n), HF_EUNKNOWN);
        line->pins--;
        hf__zk_line_drop(line);
    }
}

/* The watches have been set again, and what they had to tell has come. */
void hf__zk_line_up(struct zk *z)
{
    list_for_safe(l, &z->all_lines) {
        struct line *line = container_of(l, struct line, all);

        line->pins++;
        list_for_safe(n, &line->seats)
            hf__zk_seat_resume(seat_in(n));
        if (z->alone)
            hf__zk_alone_up(line);
        else if (line->stale && !list_empty(&line->seats))
            hf__zk_line_list(line, line->children);
        else
            hf__zk_line_decide(line, false);
        line->pins--;
        hf__zk_line_drop(line);
    }
}

void hf__zk_lines_look_again(struct zk *z)
{
    list_for_safe(l, &z->all_lines) {
        struct line *line = container_of(l, struct line, all);

        line->pins++;
        if (z->alone)
            hf__zk_alone_up(line);
        else
            hf__zk_line_look_again(line);
        line->pins--;
        hf__zk_line_drop(line);
    }
}
