/* watch.c: what the server tells us the changes of: tickets, lines, and what is followed.
 *
 * A watch begins at "now" (start 0) and is counted upon when `created` has come, with the
 * revision W. What is read after that at W or later misses nothing: the read has what was
 * before, the watch tells the rest. (A start that is not after the server's present
 * revision makes the watch a late one, which the server serves every 100 ms only.)
 *
 * Watches of one connection are not in order with each other, nor with reads. A watch ends
 * with the key that it is about, with its line, or with `stop`; a connection takes all of
 * them with it. One that the server ends (`canceled`) is made anew by who needs it. */
#include "driver/etcd/etcd.h"

#include <stdlib.h>
#include <string.h>

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

static struct etcd_watch *new_watch(struct etcd *e, struct list *all, size_t size)
{
    struct etcd_watch *w = calloc(1, size);

    if (!w) {
        hf__link_fail(&e->conn.link, HF_ENOMEM, "no memory for a watch");
        return NULL;
    }
    hf__map_insert(&e->watches, &w->node, (uint64_t)++e->watch_id);
    list_push(all, &w->all);
    return w;
}

struct ordered_entry *hf__etcd_watched_entry(const struct etcd_watch *w)
{
    return w->seq > 0 ? hf__ordered_with(&w->line->line, w->seq, w) : NULL;
}

static void forget(struct etcd_watch *w)
{
    struct ordered_entry *entry = hf__etcd_watched_entry(w);

    if (entry)
        entry->own = NULL;
    if (w->line && w->line->whole == w)
        w->line->whole = NULL;
    hf__map_remove(&etcd_with(w)->watches, &w->node);
    list_remove(&w->all);
    free(w);
}

void hf__etcd_watch_end(struct etcd_watch *w)
{
    Hf__Etcd__WatchCancelRequest cancel = HF__ETCD__WATCH_CANCEL_REQUEST__INIT;
    Hf__Etcd__WatchRequest r = HF__ETCD__WATCH_REQUEST__INIT;

    cancel.watch_id = (int64_t)w->node.hash;
    r.request_case = HF__ETCD__WATCH_REQUEST__REQUEST_CANCEL_REQUEST;
    r.cancel_request = &cancel;
    hf__etcd_tell_watch(&etcd_with(w)->conn, &r);
    forget(w);
}

/* ---- what is told ------------------------------------------------------------------ */

/* Whoever needs it makes another one. */
static void cancelled(struct etcd_watch *w)
{
    const struct etcd_follow *f = container_of(w, struct etcd_follow, watch);
    struct ordered_entry *entry = hf__etcd_watched_entry(w);
    struct etcd_line *line = w->line;
    struct look *look = line ? NULL : f->look;
    struct cell *cell = line ? NULL : f->cell;
    bool whole = line && line->whole == w;

    forget(w);
    if (whole)
        hf__ordered_line_changed(&line->line, false);
    else if (entry)
        hf__ordered_seen(&line->line, entry, SEEN_CHANGED, 0);
    else if (look || cell)
        ev_changed(look, cell);
}

static void changed(const struct etcd_watch *w)
{
    const struct etcd_follow *f = container_of(w, struct etcd_follow, watch);

    if (w->created)
        ev_changed(f->look, f->cell);
}

void hf__etcd_watched(struct etcd_conn *c, const Hf__Etcd__WatchResponse *r)
{
    struct etcd *e = etcd_at(c);

    if (r->header)
        hf__ordered_told(&e->ordered, (uint64_t)r->header->revision);
    for (size_t i = 0; i < r->n_events; i++) {
        struct etcd_watch *w = hf__etcd_watch_of(e, r->watch_id);

        if (w && w->line && r->events[i]->kv)
            hf__etcd_line_event(w, r->events[i]);
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

static void send_watch(struct etcd_watch *w, const struct etcd_key *k, bool range)
{
    struct etcd_conn *c = &etcd_with(w)->conn;
    /* by its number: whatever becomes of it meanwhile */
    struct etcd_call *q = hf__etcd_ask(c, created, (void *)(uintptr_t)w->node.hash);
    Hf__Etcd__WatchCreateRequest create = HF__ETCD__WATCH_CREATE_REQUEST__INIT;
    Hf__Etcd__WatchRequest r = HF__ETCD__WATCH_REQUEST__INIT;
    Hf__Etcd__RangeRequest of;
    char end[KEY_MAX];

    if (!q)
        return;
    create.watch_id = (int64_t)w->node.hash;
    hf__etcd_range(&of, k, range ? end : NULL);
    create.key = of.key;
    create.range_end = of.range_end;
    r.request_case = HF__ETCD__WATCH_REQUEST__REQUEST_CREATE_REQUEST;
    r.create_request = &create;
    hf__etcd_send(c, q, ETCD_WATCH, &r);
}

struct etcd_watch *hf__etcd_watch(struct etcd_line *line, struct ordered_entry *entry)
{
    struct etcd_watch *w = new_watch(etcd_in(line->line.of), &line->watches, sizeof *w);
    struct etcd_key k;

    if (!w)
        return NULL;
    w->line = line;
    w->seq = entry ? entry->form.seq : 0;
    if (entry)
        entry->own = w;
    hf__etcd_line_key_of(line, &k, entry ? entry->name : "", entry ? entry->len : 0);
    send_watch(w, &k, !entry);
    return w;
}

/* ---- follows ----------------------------------------------------------------------- */

static struct etcd_follow *follow_of(struct etcd *e, const struct look *look,
                                     const struct cell *cell)
{
    list_for(n, &e->follows) {
        struct etcd_follow *f = container_of(n, struct etcd_follow, watch.all);

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
    struct etcd_follow *f;
    struct etcd_key k;

    if (follows && !follow_of(e, look, cell))
        w = new_watch(e, &e->follows, sizeof *f);
    if (!w) {
        call(with);
        return;
    }
    f = container_of(w, struct etcd_follow, watch);
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
    send_watch(w, &k, look != NULL);
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

        while ((n = list_first(&line->watches)) != NULL)
            forget(container_of(n, struct etcd_watch, all));
    }
    while ((n = list_first(&e->follows)) != NULL) {
        struct etcd_follow *f = container_of(n, struct etcd_follow, watch.all), was = *f;

        forget(&f->watch);
        go_on(&was); /* it is not answered */
    }
}
