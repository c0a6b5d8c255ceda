/* watch.c: what the server tells us the changes of: tickets, lines, and what is followed.
 *
 * A watch begins at "now" (start 0) and is counted upon when `created` has come, with the
 * revision W. What is read after that at W or later misses nothing: the read has what was
 * before, the watch tells the rest. (A start that is not after the server's present
 * revision makes the watch a late one, which the server serves every 100 ms only.)
 *
 * Watches of one connection are not in order with each other, nor with reads. So the end of
 * the ticket before ours does not say that our own key was there then, and it has to be
 * read (kit/ordered.h, confirm); but one watch tells its events in the order of their
 * revisions, and leaves none out. So where nothing lies between the two keys, by name, the
 * watch of the other one is made of the range from one to the other (a pair), and read as a
 * whole. Its first event, if that is the end of the other one, at E, shows our own key
 * (`shows`):
 *
 *   - our key was there at the read, at R >= W, on our lease. Had it ended or been changed
 *     between R and E, that would have been told first, or, if one transaction has ended
 *     both, in the same message: a message with more than one event shows nothing.
 *   - a watch that lags behind tells late, and in order. What may be lost, by faults of
 *     releases before 3.4.35 and 3.5.16, is lost when history is compacted below a watch
 *     that lags. A watch begins to lag with an event that the server cannot send, keeps
 * that one, and tells it first. So the first event follows what was read without a gap. A
 *     message of later than its event (header.revision > E) shows nothing.
 *   - a server that ends the watch (compaction) does not tell an event of it.
 *   - that the ticket before ours had only waited: hf__ordered_ended, by E.
 *   - that our lease has ended: its keys have, too, which is an event of our own key; and
 *     by our own clock before that (lease.c).
 *
 * Whoever joins between the two names is told to us, too, and then the read is made: that
 * is a message more for two or three watches of a line, however long it is. A watch ends
 * with the key that it is about, with its line, or with `stop`; a connection takes all of
 * them with it. One that the server ends (`canceled`) is made anew by who needs it.
 *
 * The numbers of watches are ours. The grpc-proxy of etcd gives them others, so that what
 * it says of one watch would be taken for another: the end of a ticket that lives (G1). So
 * every connection begins with a watch of which only the number counts (the probe). */
#include "driver/etcd/etcd.h"

#include <stdlib.h>
#include <string.h>

static const int64_t PROBE = (int64_t)1 << 32; /* no other watch has it */

struct etcd_watch *hf__etcd_watch_of(const struct etcd *e, int64_t id)
{
    for (struct map_node *n = map_chain(&e->watches, (uint64_t)id); n; n = n->next)
        if (n->hash == (uint64_t)id)
            return container_of(n, struct etcd_watch, node);
    return NULL;
}

static struct etcd *etcd_with(const struct etcd_watch *w)
{
    const struct etcd_follow *f = container_of(w, struct etcd_follow, watch);

    if (w->line)
        return etcd_in(w->line->line.of);
    return etcd_of(f->look ? f->look->store : f->cell->store);
}

static struct etcd_watch *new_watch(struct etcd *e, size_t size)
{
    struct etcd_watch *w = calloc(1, size);

    if (!w) {
        hf__link_fail(&e->conn.link, HF_ENOMEM, "no memory for a watch");
        return NULL;
    }
    do
        e->watch_id++;
    while (e->watch_id == 0 || hf__etcd_watch_of(e, e->watch_id));
    hf__map_insert(&e->watches, &w->node, e->watch_id);
    return w;
}

static void forget(struct etcd_watch *w)
{
    hf__map_remove(&etcd_with(w)->watches, &w->node);
    if (!w->line)
        list_remove(&container_of(w, struct etcd_follow, watch)->all);
    else if (w->entry)
        w->entry->own = 0;
    else
        w->line->whole = NULL;
    free(w);
}

static void cancel(struct etcd_conn *c, int64_t id)
{
    Hf__Etcd__WatchCancelRequest end = HF__ETCD__WATCH_CANCEL_REQUEST__INIT;
    Hf__Etcd__WatchRequest r = HF__ETCD__WATCH_REQUEST__INIT;

    end.watch_id = id;
    r.request_case = HF__ETCD__WATCH_REQUEST__REQUEST_CANCEL_REQUEST;
    r.cancel_request = &end;
    hf__etcd_tell_watch(c, &r);
}

void hf__etcd_watch_end(struct etcd_watch *w)
{
    cancel(&etcd_with(w)->conn, (int64_t)w->node.hash);
    forget(w);
}

void hf__etcd_unwatch(struct ordered_line *line, struct ordered_entry *entry)
{
    hf__etcd_watch_end(hf__etcd_watch_of(etcd_in(line->of), entry->own));
}

/* ---- what is told ------------------------------------------------------------------ */

/* Whoever needs it makes another one. */
static void cancelled(struct etcd_watch *w)
{
    const struct etcd_follow *f = container_of(w, struct etcd_follow, watch);
    struct ordered_entry *entry = w->entry;
    struct etcd_line *line = w->line;
    struct look *look = line ? NULL : f->look;
    struct cell *cell = line ? NULL : f->cell;

    forget(w);
    if (entry)
        hf__ordered_seen(&line->line, entry, SEEN_CHANGED, 0);
    else if (line)
        hf__ordered_line_changed(&line->line, false);
    else
        ev_changed(look, cell);
}

static void changed(const struct etcd_watch *w)
{
    const struct etcd_follow *f = container_of(w, struct etcd_follow, watch);

    if (w->created)
        ev_changed(f->look, f->cell);
}

/* Once: whatever comes next may have a gap before it. */
static bool shows(struct etcd_watch *w, const Hf__Etcd__WatchResponse *r)
{
    bool first = w->shows && !w->told && r->n_events == 1 && r->header &&
                 r->header->revision == r->events[0]->kv->mod_revision;

    w->told = true;
    return first;
}

void hf__etcd_watched(struct etcd_conn *c, const Hf__Etcd__WatchResponse *r)
{
    struct etcd *e = etcd_at(c);

    if (r->header)
        hf__ordered_told(&e->ordered, (uint64_t)r->header->revision);
    for (size_t i = 0; i < r->n_events; i++) {
        struct etcd_watch *w = hf__etcd_watch_of(e, r->watch_id);

        if (w && w->line && r->events[i]->kv)
            hf__etcd_line_event(w, r->events[i], shows(w, r));
        else if (w && !w->line && i == 0)
            changed(w);
    }
    if (r->canceled && hf__etcd_watch_of(e, r->watch_id))
        cancelled(hf__etcd_watch_of(e, r->watch_id));
}

static void go_on(struct etcd_follow *f)
{
    void (*call)(void *) = f->go_on;

    f->go_on = NULL;
    if (call)
        call(f->with);
}

static void created(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    const Hf__Etcd__WatchResponse *r = a ? a->body : NULL;
    struct etcd *e = etcd_at(c);
    struct etcd_watch *w = hf__etcd_watch_of(e, (int64_t)(uintptr_t)q->with);
    hf_error err;

    if (!w || !r)
        return;
    hf__etcd_result(e, a, &err);
    if (r->canceled && c->token && !e->refused) {
        /* every change of rights makes old tokens worthless: with a new one, once more */
        e->refused = true;
        hf__link_fail(&c->link, HF_EUNREACHABLE, "a watch was refused");
        return;
    }
    e->refused = r->canceled;
    w->created = true;
    if (!w->line)
        go_on(container_of(w, struct etcd_follow, watch)); /* refused: so is the read */
    else if (r->canceled)
        hf__etcd_line_refused(w);
    else
        hf__etcd_line_watched(w);
}

static void send_create(struct etcd_conn *c, struct etcd_call *q, int64_t id,
                        const Hf__Etcd__RangeRequest *of)
{
    Hf__Etcd__WatchCreateRequest create = HF__ETCD__WATCH_CREATE_REQUEST__INIT;
    Hf__Etcd__WatchRequest r = HF__ETCD__WATCH_REQUEST__INIT;

    create.watch_id = id;
    create.key = of->key;
    create.range_end = of->range_end;
    r.request_case = HF__ETCD__WATCH_REQUEST__REQUEST_CREATE_REQUEST;
    r.create_request = &create;
    hf__etcd_send(c, q, ETCD_WATCH, &r);
}

static void send_watch(struct etcd_watch *w, const Hf__Etcd__RangeRequest *of)
{
    struct etcd_conn *c = &etcd_with(w)->conn;

    /* by its number: whatever becomes of it meanwhile */
    send_create(c, hf__etcd_ask(c, created, (void *)(uintptr_t)w->node.hash),
                (int64_t)w->node.hash, of);
}

static void probed(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    const Hf__Etcd__WatchResponse *r = a ? a->body : NULL;

    (void)q;
    if (!r || etcd_at(c)->shut)
        return;
    if (!r->canceled && r->watch_id != PROBE) {
        hf__link_fail(&c->link, HF_EVERSION,
                      "watches have other numbers than asked for: a grpc-proxy, or older "
                      "than etcd 3.4");
        return;
    }
    if (!r->canceled) /* else the rights are missing: whoever needs them is told */
        cancel(c, PROBE);
    hf__etcd_settled(etcd_at(c));
}

void hf__etcd_watch_probe(struct etcd *e)
{
    Hf__Etcd__RangeRequest of;
    struct etcd_key k;

    hf__etcd_epoch_key(&k, e, 0);
    hf__etcd_range(&of, &k, NULL);
    send_create(&e->conn, hf__etcd_ask(&e->conn, probed, NULL), PROBE, &of);
}

struct etcd_watch *hf__etcd_watch(struct etcd_line *line, struct ordered_entry *entry)
{
    struct etcd_watch *w = new_watch(etcd_in(line->line.of), sizeof *w);
    Hf__Etcd__RangeRequest of;
    struct etcd_key from, end;

    if (!w)
        return NULL;
    w->line = line;
    w->entry = entry;
    if (entry) {
        w->with = hf__etcd_line_pair(line, entry);
        entry->own = (uint32_t)w->node.hash;
    }
    hf__etcd_line_range(w, &of, &from, &end);
    send_watch(w, &of);
    return w;
}

/* ---- follows ----------------------------------------------------------------------- */

static struct etcd_follow *follow_of(struct etcd *e, const struct look *look,
                                     const struct cell *cell)
{
    list_for(n, &e->follows) {
        struct etcd_follow *f = container_of(n, struct etcd_follow, all);

        if (f->look == look && f->cell == cell)
            return f;
    }
    return NULL;
}

void hf__etcd_follow(struct etcd *e, struct look *look, struct cell *cell,
                     void (*call)(void *with), void *with)
{
    bool follows = look ? look->follow : cell->follow;
    struct etcd_watch *w = NULL;
    Hf__Etcd__RangeRequest of;
    struct etcd_follow *f;
    struct etcd_key k, end;

    if (follows && !follow_of(e, look, cell))
        w = new_watch(e, sizeof *f);
    if (!w) {
        call(with);
        return;
    }
    f = container_of(w, struct etcd_follow, watch);
    list_push(&e->follows, &f->all);
    f->look = look;
    f->cell = cell;
    f->go_on = call;
    f->with = with;
    if (cell)
        hf__etcd_cell_key(&k, e, cell->name, cell->name_len);
    else
        hf__etcd_line_key(&k, e, look->name, look->name_len);
    if (look && look->list)
        k.len--; /* the slash */
    hf__etcd_range(&of, &k, look ? end.at : NULL);
    send_watch(w, &of);
}

/* What has not gone on finds that nobody waits for it. */
void hf__etcd_unfollow(struct etcd *e, const struct look *look, const struct cell *cell)
{
    struct etcd_follow *f = follow_of(e, look, cell), was;

    if (!f)
        return;
    was = *f;
    hf__etcd_watch_end(&f->watch);
    go_on(&was);
}

/* ---- the end of the connection ----------------------------------------------------- */

void hf__etcd_watches_down(struct etcd *e)
{
    struct list *n;

    list_for(at, &e->ordered.lines) {
        struct etcd_line *line = container_of(at, struct etcd_line, line.all);

        for (size_t i = 0; i < line->line.n; i++)
            if (line->line.entries[i]->own)
                forget(hf__etcd_watch_of(e, line->line.entries[i]->own));
        if (line->whole)
            forget(line->whole);
    }
    while ((n = list_first(&e->follows)) != NULL) {
        struct etcd_follow *f = container_of(n, struct etcd_follow, all), was = *f;

        forget(&f->watch);
        go_on(&was); /* it is not answered */
    }
}
