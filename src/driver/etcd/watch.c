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

struct watch_call {
    struct etcd_call call;
    int64_t id; /* whatever becomes of it meanwhile */
};

struct etcd_watch *hf__etcd_watch_of(const struct etcd *e, int64_t id)
{
    for (struct map_node *n = map_chain(&e->watches, (uint64_t)id); n; n = n->next)
        if (n->hash == (uint64_t)id)
            return container_of(n, struct etcd_watch, node);
    return NULL;
}

static struct etcd_watch *new_watch(struct etcd *e, struct list *all, size_t len)
{
    struct etcd_watch *w = calloc(1, sizeof *w + len + 1);

    if (!w) {
        hf__link_fail(&e->conn.link, HF_ENOMEM, "no memory for a watch");
        return NULL;
    }
    w->of = e;
    w->id = ++e->watch_id;
    w->node_len = len;
    hf__map_insert(&e->watches, &w->node, (uint64_t)w->id);
    list_push(all, &w->all);
    return w;
}

struct etcd_watch *hf__etcd_watch(struct etcd *e, struct list *all)
{
    return new_watch(e, all, 0);
}

struct etcd_watch *hf__etcd_new_ticket_watch(struct etcd_line *line,
                                             const struct ordered_entry *entry)
{
    struct etcd *e = etcd_in(line->line.of);
    struct etcd_watch *w = new_watch(e, &line->watches, entry->len);

    if (!w)
        return NULL;
    w->line = line;
    w->seq = entry->form.seq;
    memcpy(w->name, entry->name, entry->len);
    hf__map_insert(&e->tickets, &w->by_seq, (uint64_t)w->seq);
    return w;
}

struct etcd_watch *hf__etcd_ticket_watch(struct etcd_line *line,
                                         const struct ordered_entry *entry)
{
    const struct map *tickets = &etcd_in(line->line.of)->tickets;
    uint64_t seq = (uint64_t)entry->form.seq;

    for (struct map_node *n = map_chain(tickets, seq); n; n = n->next) {
        struct etcd_watch *w = container_of(n, struct etcd_watch, by_seq);

        if (n->hash == seq && w->line == line && w->node_len == entry->len &&
            memcmp(w->name, entry->name, entry->len) == 0)
            return w;
    }
    return NULL;
}

static void forget(struct etcd_watch *w)
{
    hf__map_remove(&w->of->watches, &w->node);
    if (w->seq > 0)
        hf__map_remove(&w->of->tickets, &w->by_seq);
    list_remove(&w->all);
    if (w->line && w->line->whole == w)
        w->line->whole = NULL;
    free(w);
}

void hf__etcd_watch_end(struct etcd_watch *w)
{
    Hf__Etcd__WatchCancelRequest cancel = HF__ETCD__WATCH_CANCEL_REQUEST__INIT;
    Hf__Etcd__WatchRequest r = HF__ETCD__WATCH_REQUEST__INIT;

    cancel.watch_id = w->id;
    r.request_case = HF__ETCD__WATCH_REQUEST__REQUEST_CANCEL_REQUEST;
    r.cancel_request = &cancel;
    hf__etcd_tell_watch(&w->of->conn, &r);
    forget(w);
}

/* ---- what is told ------------------------------------------------------------------ */

/* Whoever needs it makes another one. */
static void cancelled(struct etcd_watch *w)
{
    struct etcd_line *line = w->line;
    struct look *look = w->look;
    struct cell *cell = w->cell;
    struct ordered_entry *entry =
        line ? hf__ordered_find(&line->line, w->seq, w->name, w->node_len) : NULL;
    bool whole = line && line->whole == w;

    forget(w);
    if (whole)
        hf__ordered_line_changed(&line->line, false);
    else if (entry)
        hf__ordered_seen(&line->line, entry, SEEN_CHANGED, 0);
    else if (look || cell)
        ev_changed(look, cell);
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
        else if (w && !w->line && i == 0 && w->created)
            ev_changed(w->look, w->cell);
    }
    if (r->canceled && hf__etcd_watch_of(e, r->watch_id))
        cancelled(hf__etcd_watch_of(e, r->watch_id));
}

static void created(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    const Hf__Etcd__WatchResponse *r = a ? a->body : NULL;
    struct etcd_watch *w =
        hf__etcd_watch_of(etcd_at(c), container_of(q, struct watch_call, call)->id);
    void (*go_on)(void *);
    hf_error err;

    if (!w || !r)
        return;
    hf__etcd_result(etcd_at(c), a, &err);
    if (r->canceled && c->token && !etcd_at(c)->refused) {
        /* every change of rights makes old tokens worthless: with a new one, once more */
        etcd_at(c)->refused = true;
        hf__link_fail(&c->link, HF_EUNREACHABLE, "a watch was refused");
        return;
    }
    etcd_at(c)->refused = r->canceled;
    w->created = true;
    go_on = w->go_on;
    w->go_on = NULL;
    if (r->canceled && w->look == NULL && w->cell == NULL) {
        hf__etcd_line_refused(w);
        return;
    }
    go_on(w->with); /* without rights the read says so */
}

void hf__etcd_watch_send(struct etcd_watch *w, const struct etcd_key *k, bool range)
{
    struct etcd_conn *c = &w->of->conn;
    struct etcd_call *q = hf__etcd_call(c, created, sizeof(struct watch_call));
    Hf__Etcd__WatchCreateRequest create = HF__ETCD__WATCH_CREATE_REQUEST__INIT;
    Hf__Etcd__WatchRequest r = HF__ETCD__WATCH_REQUEST__INIT;
    Hf__Etcd__RangeRequest of;
    char end[KEY_MAX];

    if (!q)
        return;
    container_of(q, struct watch_call, call)->id = w->id;
    hf__etcd_range(&of, k, range ? end : NULL);
    create.key = of.key;
    create.range_end = of.range_end;
    create.watch_id = w->id;
    r.request_case = HF__ETCD__WATCH_REQUEST__REQUEST_CREATE_REQUEST;
    r.create_request = &create;
    hf__etcd_send(c, q, ETCD_WATCH, &r);
}

/* ---- follows ----------------------------------------------------------------------- */

static struct etcd_watch *follow_of(struct etcd *e, const struct look *look,
                                    const struct cell *cell)
{
    list_for(n, &e->follows) {
        struct etcd_watch *w = container_of(n, struct etcd_watch, all);

        if (w->look == look && w->cell == cell)
            return w;
    }
    return NULL;
}

void hf__etcd_follow(struct etcd *e, struct look *look, struct cell *cell,
                     void (*go_on)(void *with), void *with)
{
    bool follows = look ? look->follow : cell->follow;
    struct etcd_watch *w = follows ? follow_of(e, look, cell) : NULL;
    struct etcd_key k;

    if (!follows || w || !(w = hf__etcd_watch(e, &e->follows))) {
        go_on(with);
        return;
    }
    w->look = look;
    w->cell = cell;
    w->go_on = go_on;
    w->with = with;
    if (cell)
        hf__etcd_cell_key(&k, e, cell->name, cell->name_len);
    else
        hf__etcd_line_key(&k, e, look->name, look->name_len);
    if (look && look->list)
        k.len--; /* the slash */
    hf__etcd_watch_send(w, &k, look != NULL);
}

void hf__etcd_unfollow(struct etcd *e, const struct look *look, const struct cell *cell)
{
    struct etcd_watch *w = follow_of(e, look, cell);
    void (*go_on)(void *) = w ? w->go_on : NULL;
    void *with = w ? w->with : NULL;

    if (w)
        hf__etcd_watch_end(w);
    if (go_on)
        go_on(with); /* it finds that nobody waits for it */
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
        struct etcd_watch *w = container_of(n, struct etcd_watch, all);
        void (*go_on)(void *) = w->go_on;
        void *with = w->with;

        forget(w);
        if (go_on)
            go_on(with); /* it is not answered */
    }
}
