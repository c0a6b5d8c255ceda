/* line.c: what this client knows of a line in which it has seats, and what follows from
 * it.
 *
 * Nobody writes "granted" in ZooKeeper. The holders are the longest prefix of the
 * tickets, in the order of their numbers, that fits in the capacity that the head ticket
 * names; a ticket of another kind or capacity than the head's counts as the whole
 * capacity until its owner withdraws it. Everybody computes the same from the same
 * nodes.
 *
 * The view of a line is the sorted list of its tickets as a list of the children gave
 * it, sent after our own node was made on the same connection. So it has everything that
 * stood before us: the server had executed everything up to our own create when it made
 * that list. From then on what stands before a seat only becomes less, with one
 * exception below; entries leave the view when the server has told of their end (an
 * event, or "no node"), or when we have ended them. A seat is granted when it lies in
 * the prefix of the view: all that kept it out is known to be gone, by committed
 * deletions. An entry that is gone unseen only makes us wait for longer. That is G1's
 * exclusion; that we still are whom we believe to be is the session's deadline
 * (session.c).
 *
 * The exception: an exclusive ticket may become shared, by one step that makes a node
 * with the same number and deletes the old one. Somebody else's "-lock-" that has gone
 * is therefore replaced in the view by the name it would have as shared, which is read
 * before anything is decided by its absence; where that name cannot be known
 * ("__WRIT__", "__lock__"), the line is listed anew, and the view is stale, that is
 * decides nothing, until the list has come.
 *
 * A grant also needs that our own node is there: the list showed it just now, or a watch
 * on it is set, whose event would have come before the one that lets us in.
 *
 * Watches (G4): an exclusive seat watches its predecessor, a shared one the nearest
 * ticket ahead that is not shared, by getData, which leaves nothing behind on a node
 * that is gone; tickets of our own are watched anyway. Permits watch the children of the
 * line, once for all. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

/* ---- listing --------------------------------------------------------------------- */

/* Whatever became of the order of the view: its name is there. */
static bool known(struct line *line, struct seat *s)
{
    struct entry *e = hf__zk_line_find(line, s->name, strlen(s->name));

    if (e)
        e->seat = s;
    return e != NULL;
}

/* Our seats whose nodes the list should have shown: answers come in order, so every node
 * that we know of was there, or gone, before the list was made. */
static void miss(struct line *line)
{
    list_for(n, &line->seats)
        seat_in(n)->listed = false;
    for (size_t i = 0; i < line->n; i++)
        if (line->entries[i]->seat)
            line->entries[i]->seat->listed = true;
    list_for_safe(n, &line->seats) {
        struct seat *s = seat_in(n);

        if (!s->name || s->dead || s->amending ||
            (s->state != SEAT_CREATED && s->state != SEAT_WAITING && s->state != SEAT_HELD))
            continue;
        if (!s->listed && !known(line, s)) {
            /* we are heard, so our session lives and somebody else has ended it */
            hf__zk_seat_gone(s,
                             s->state == SEAT_HELD ? HF_ELOST
                             : s->why != 0         ? s->why
                                                   : HF_EEVICTED,
                             NULL);
            continue;
        }
        s->placed = true;
        if (s->state == SEAT_CREATED)
            s->state = SEAT_WAITING; /* now it is known what stands before it */
    }
}

static void merge(struct line *line, struct entry **entries, size_t n)
{
    hf__zk_line_replace(line, entries, n);
    line->stale = false;
    miss(line);
    hf__zk_line_decide(line, true);
}

/* Those of whom it is not known what stands before them, and if it is for want of rights
 * all others, too: they would wait for news that nobody sends. */
static void refuse_all(struct line *line, const struct jute_reply *reply)
{
    list_for_safe(n, &line->seats) {
        hf_error err;
        int rc = hf__zk_error(line->zk, reply, &err);

        if (seat_waits(seat_in(n)) && (seat_in(n)->state == SEAT_CREATED || rc == HF_EAUTH))
            hf__zk_seat_withdraw(seat_in(n), rc);
    }
}

static void answer_list(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct line_request *k = container_of(q, struct line_request, q);
    struct line *line = k->line;
    struct entry **entries = NULL;
    size_t n = 0;

    line->lists--;
    if (!reply) {
        line->stale = true;
    } else if (reply->err == JUTE_NO_NODE) {
        line->children = false;
        entries = calloc(1, sizeof *entries);
        if (entries)
            merge(line, entries, 0);
        else
            hf__zk_break(z, HF_ENOMEM, "no memory for a line");
    } else if (reply->err != 0) {
        line->children = line->children && !k->watch; /* no watch was set */
        refuse_all(line, reply);
    } else if (!hf__zk_line_read(&reply->body, &entries, &n)) {
        hf__zk_break(z, HF_ENOMEM, "no memory for a line");
    } else {
        line->children = line->children || k->watch;
        merge(line, entries, n);
    }
    line->pins--;
    hf__zk_line_drop(line);
}

void hf__zk_line_list(struct line *line, bool watch)
{
    struct zk *z = line->zk;
    struct request *q = hf__zk_request(z, answer_list, sizeof(struct line_request));
    struct line_request *k;

    if (!q)
        return;
    k = container_of(q, struct line_request, q);
    k->line = line;
    k->watch = watch;
    line->lists++;
    line->pins++;
    if (watch)
        hf__zk_send_watch(z, q, JUTE_GET_CHILDREN2, line->dir, line->dir_len);
    else
        hf__zk_send_path(z, q, JUTE_GET_CHILDREN2, line->dir, line->dir_len);
}

/* Once for all; lost with the session or by its event. */
static void watch_children(struct line *line)
{
    if (!line->children) {
        hf__zk_line_list(line, true);
        line->children = true;
    }
}

/* ---- watching one ticket --------------------------------------------------------- */

static void read_own(struct line *line, struct entry *e, struct jute_reply *reply)
{
    struct jute_text data = hf__jute_text(&reply->body);
    struct jute_stat stat;
    struct record rec;

    if (!hf__jute_stat(&reply->body, &stat) || stat.owner != line->zk->session.id) {
        if (e->seat->state == SEAT_HELD) /* of another session: not ours any more */
            hf__zk_line_ended(line, e);
        else
            hf__zk_seat_withdraw(e->seat, HF_ELOST);
        return;
    }
    hf__zk_record_read(&rec, data.at, data.len);
    e->seat->version = stat.version;
    if (rec.broken)
        hf__zk_seat_marked(e->seat);
    else
        hf__zk_line_decide(line, false);
}

static void answer_watch(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct line_request *k = container_of(q, struct line_request, q);
    struct line *line = k->line;
    struct entry *e = hf__zk_line_find(line, k->name, k->len);
    hf_error err;

    if (e)
        e->asking = false;
    if (e && reply && reply->err == JUTE_NO_NODE) {
        hf__zk_line_ended(line, e);
    } else if (e && reply && reply->err == 0) {
        e->watched = true;
        if (e->seat)
            read_own(line, e, reply);
        else
            hf__zk_line_decide(line, false);
    } else if (e &&
               reply) { /* rights: then whoever waits behind it looks at the children */
        hf__zk_error(z, reply, &err);
        z->store.env->log(z->store.env, HF_LOG_WARN, line->name, err.text);
        watch_children(line);
    }
    line->pins--;
    hf__zk_line_drop(line);
}

void hf__zk_line_watch(struct line *line, struct entry *e)
{
    struct zk *z = line->zk;
    char path[NODE_PATH_MAX];
    struct request *q;
    struct line_request *k;

    if (e->watched || e->asking || !zk_up(z))
        return;
    if (entry_unreadable(e)) {
        watch_children(line);
        return;
    }
    q = hf__zk_request(z, answer_watch, sizeof *k + e->len);
    if (!q)
        return;
    k = container_of(q, struct line_request, q);
    k->line = line;
    k->len = e->len;
    memcpy(k->name, e->name, e->len);
    e->asking = true;
    line->pins++;
    hf__zk_send_watch(z, q, JUTE_GET_DATA, path,
                      hf__zk_line_path(line, path, e->name, e->len));
}

void hf__zk_line_watch_own(struct line *line, struct seat *s)
{
    for (size_t i = 0; i < line->n; i++)
        if (line->entries[i]->seat == s) {
            hf__zk_line_watch(line, line->entries[i]);
            return;
        }
}

/* ---- deciding -------------------------------------------------------------------- */

/* Whose end concerns the seat at `i`, which does not hold. */
static struct entry *target(const struct line *line, size_t i)
{
    const struct form *mine = &line->entries[i]->form;

    if (mine->weight == HF_FULL)
        return line->entries[i - 1];
    while (i-- > 0)
        if (line->entries[i]->form.weight == HF_FULL ||
            line->entries[i]->form.kind != LINE_LOCK)
            return line->entries[i];
    return NULL;
}

static void decide_waiting(struct line *line, size_t i, size_t holders)
{
    struct entry *e = line->entries[i], *on;
    struct seat *s = e->seat;

    if (s->t && s->t->try_only) {
        hf__zk_seat_withdraw(s, HF_EBUSY);
        return;
    }
    if (e->form.kind == LINE_PERMITS) {
        watch_children(line);
    } else if ((on = target(line, i)) != NULL) {
        hf__zk_line_watch(line, on);
        /* what a grant needs to know is asked while there is time; and it may be evicted */
        hf__zk_line_watch(line, e);
    }
    hf__zk_seat_waits(s, (uint32_t)(i - holders + 1));
}

static void decide_one(struct line *line, size_t i, size_t holders, bool fresh)
{
    struct entry *e = line->entries[i];
    struct seat *s = e->seat;

    if (!hf__zk_same_kind(&e->form, &line->entries[0]->form))
        hf__zk_seat_withdraw(s, HF_EMISMATCH);
    else if (i >= holders)
        decide_waiting(line, i, holders);
    else if (fresh || e->watched)
        hf__zk_seat_granted(s);
    else
        hf__zk_line_watch(line, e);
}

/* fresh: a list has just shown what is there. Nothing in here takes an entry out of the
 * view. */
void hf__zk_line_decide(struct line *line, bool fresh)
{
    size_t holders;

    if (line->stale || !zk_up(line->zk) || line->zk->alone)
        return;
    holders = hf__zk_line_holders(line->entries, line->n);
    for (size_t i = 0; i < line->n; i++) {
        struct seat *s = line->entries[i]->seat;

        if (s && s->state == SEAT_WAITING && seat_waits(s))
            decide_one(line, i, holders, fresh);
    }
}

/* The safety look (G4): servers keep events back from who may not read a node at that
 * moment, and the watch is gone then. Asked is about what our first waiting seat waits for.
 */
void hf__zk_line_look_again(struct line *line)
{
    struct entry *on = NULL;

    if (line->lists > 0 || !hf__zk_line_waits(line))
        return;
    if (line->stale || line->children) { /* stale: its list was refused */
        hf__zk_line_list(line, line->children);
        return;
    }
    for (size_t i = 1; i < line->n && !on; i++)
        if (line->entries[i]->seat && line->entries[i]->seat->state == SEAT_WAITING)
            on = target(line, i);
    if (on) {
        on->watched = false;
        hf__zk_line_watch(line, on);
    }
}
