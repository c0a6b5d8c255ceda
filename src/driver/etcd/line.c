/* line.c: the lines in which this client has seats: what the server tells of their keys, in
 * the terms of kit/ordered.h, which decides by it. The number of a ticket is the revision
 * of its creation.
 *
 * Reads for the view are serializable: the member that we are connected to answers from
 * what it has. That is enough, because whoever holds at any revision after its own create
 * holds until its own key ends; an old answer only makes us wait for longer. But nothing
 * may be older than what we have been told already (`least`): then a majority is asked.
 *
 * A key of ours that is missing (an event, a list, a read) may have been ended by somebody,
 * or its lease has: then all tickets on it have ended. A held ticket is lost in both cases,
 * and that is told at once. One that waits is evicted or joins again, so the lease is asked
 * first, and nothing is decided in that line until a list has come afterwards. */
#include "driver/etcd/etcd.h"

#include <stdlib.h>
#include <string.h>

struct line_call {
    struct etcd_call call;
    struct etcd_line *line; /* pinned */
    bool watch, strict;
    int64_t least, watch_id;
};

static void send_list(struct etcd_line *, bool watch, bool strict);
static void read_ticket(struct etcd_watch *, bool strict);

static struct etcd *etcd_with(const struct etcd_line *line)
{
    return etcd_in(line->line.of);
}

/* ---- lines ------------------------------------------------------------------------- */

struct etcd_line *hf__etcd_line(struct etcd *e, const char *name, size_t len)
{
    struct etcd_line *line;
    struct etcd_key k;
    uint64_t hash;

    hf__etcd_line_key(&k, e, name, len);
    hash = hf__hash_keyed(e->hash_key, k.at, k.len);
    for (struct map_node *n = map_chain(&e->lines, hash); n; n = n->next) {
        line = container_of(n, struct etcd_line, node);
        if (n->hash == hash && line->key_len == k.len &&
            memcmp(line->key, k.at, k.len) == 0)
            return line;
    }
    line = calloc(1, sizeof *line + k.len);
    if (!line)
        return NULL;
    line->key_len = k.len;
    memcpy(line->key, k.at, k.len);
    list_init(&line->to_create);
    hf__map_insert(&e->lines, &line->node, hash);
    hf__ordered_line_init(&e->ordered, &line->line);
    return line;
}

void hf__etcd_line_free(struct ordered_line *l)
{
    struct etcd_line *line = etcd_line(l);

    if (line->whole)
        hf__etcd_watch_end(line->whole);
    hf__map_remove(&etcd_with(line)->lines, &line->node);
    free(line);
}

void hf__etcd_line_key_of(const struct etcd_line *line, struct etcd_key *k,
                          const char *node, size_t len)
{
    k->len = 0;
    hf__etcd_key_add(k, line->key, line->key_len);
    hf__etcd_key_add(k, node, len);
}

static struct line_call *line_call(struct etcd_line *line, etcd_answered *answer,
                                   bool strict)
{
    struct etcd *e = etcd_with(line);
    struct etcd_call *q = hf__etcd_call(&e->conn, answer, sizeof(struct line_call));
    struct line_call *k;

    if (!q)
        return NULL;
    k = container_of(q, struct line_call, call);
    k->line = line;
    k->strict = strict;
    k->least = (int64_t)e->ordered.revision;
    line->line.pins++;
    return k;
}

/* It says less than we know: asked again, a majority answers. */
static bool too_old(struct etcd *e, const struct line_call *k, const struct etcd_answer *a)
{
    if (hf__etcd_revision(a) >= k->least)
        return false;
    if (k->strict)
        hf__link_fail(&e->conn.link, HF_EUNREACHABLE, "the servers were set back");
    return true;
}

/* ---- lists ------------------------------------------------------------------------- */

struct ordered_entry *hf__etcd_entry(const Hf__Etcd__KeyValue *kv,
                                     const struct ticket_record *rec, size_t dir_len)
{
    const struct ordered_place place = { kv->create_revision, rec->kind, rec->weight,
                                         rec->capacity };
    struct ordered_entry *entry = hf__ordered_entry(
        &place, (const char *)kv->key.data + dir_len, kv->key.len - dir_len);

    if (entry)
        entry->kept = rec->kept_ms > 0;
    return entry;
}

struct ordered_entry **hf__etcd_entries(const Hf__Etcd__RangeResponse *r, size_t dir_len)
{
    struct ordered_entry **entries = calloc(r->n_kvs + 1, sizeof *entries);
    struct ticket_record rec;

    for (size_t i = 0; entries && i < r->n_kvs; i++) {
        hf__record_read(&rec, r->kvs[i]->value.data, r->kvs[i]->value.len);
        entries[i] = hf__etcd_entry(r->kvs[i], &rec, dir_len);
        if (!entries[i]) {
            hf__ordered_entries_free(entries, i);
            return NULL;
        }
    }
    return entries;
}

/* Those leases, once each. */
static size_t add_lease(struct etcd_lease **due, size_t n, struct etcd_lease *l)
{
    for (size_t i = 0; i < n; i++)
        if (due[i] == l)
            return n;
    due[n] = l;
    return n + 1;
}

/* A key of ours is missing, and it is not known why. A held one is lost in any case. One
 * that is there and was made a kept one is ours no more. Leases are asked after the walk:
 * one that is over takes its seats with it. */
static bool misses(struct etcd_line *line, struct ordered_entry **entries, size_t n,
                   int64_t revision)
{
    const struct ordered_line list = { .entries = entries, .n = n };
    struct etcd_lease *due[LEASES_MAX];
    size_t ndue = 0;
    bool any = false;

    list_for_safe(at, &line->line.seats) {
        struct ordered_seat *s = container_of(at, struct ordered_seat, in_line);
        struct etcd_lease *l = etcd_seat(s)->lease;
        const struct ordered_entry *there;
        char name[ORDERED_NAME_MAX];

        if ((s->state != SEAT_CREATED && s->state != SEAT_WAITING &&
             s->state != SEAT_HELD) ||
            s->fence > (uint64_t)revision)
            continue;
        there =
            hf__ordered_find(&list, (int64_t)s->fence, name, hf__etcd_seat_name(s, name));
        if (there && there->kept) {
            hf__etcd_seat_kept(etcd_seat(s));
        } else if (there || !l || l->dead) {
            continue;
        } else if (s->state == SEAT_HELD) {
            ndue = add_lease(due, ndue, l);
        } else if (etcd_ticket(s->t)->gone_at == 0 ||
                   etcd_ticket(s->t)->gone_at > l->alive_at) {
            hf__etcd_seat_missed(etcd_seat(s));
            any = true;
        }
    }
    for (size_t i = 0; i < ndue; i++)
        hf__etcd_lease_check(due[i]);
    return any;
}

void hf__etcd_line_listed(struct etcd_line *line, const Hf__Etcd__RangeResponse *r,
                          struct ordered_entry *last, int64_t revision, bool watch)
{
    struct ordered_entry **entries = hf__etcd_entries(r, line->key_len);
    size_t n = r->n_kvs;

    line->line.pins++;
    if (entries && last)
        entries[n++] = last;
    if (!entries) {
        free(last);
        hf__link_fail(&etcd_with(line)->conn.link, HF_ENOMEM, "no memory for a line");
    } else {
        hf__ordered_sort(entries, n);
        if (misses(line, entries, n, revision)) {
            line->line.lists -= line->line.lists > 0;
            hf__ordered_entries_free(entries, n);
        } else {
            hf__ordered_listed(&line->line, entries, n, (uint64_t)revision, watch);
        }
    }
    hf__ordered_line_unpin(&line->line);
}

static void listed(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    struct line_call *k = container_of(q, struct line_call, call);
    struct etcd *e = etcd_at(c);
    hf_error err;
    int rc = a ? hf__etcd_query_result(e, a, &err) : 1;

    if (rc == 0 && too_old(e, k, a))
        send_list(k->line, k->watch, true);
    else if (rc == 0)
        hf__etcd_line_listed(k->line, a->body, NULL, hf__etcd_revision(a), k->watch);
    else if (rc < 0 && rc != HF_EUNREACHABLE)
        hf__ordered_not_listed(&k->line->line, rc, k->watch);
    hf__ordered_line_unpin(&k->line->line);
}

static void send_list(struct etcd_line *line, bool watch, bool strict)
{
    struct line_call *k = line_call(line, listed, strict);
    Hf__Etcd__RangeRequest r;
    struct etcd_key key;
    char end[KEY_MAX];

    if (!k)
        return;
    k->watch = watch;
    hf__etcd_line_key_of(line, &key, "", 0);
    hf__etcd_range(&r, &key, end);
    r.serializable = !strict;
    hf__etcd_send(&etcd_with(line)->conn, &k->call, ETCD_RANGE, &r);
}

/* Many that join a long line, one after the other: a list for each would be more than a
 * server can bear. So it is put off while creates are under way or wait for their lease.
 * Whatever ends the last of them comes here, through hf__etcd_create_next: what is put off
 * counts as a list under way, and nobody else would ask for it. Not in a short line, where
 * the next holder often is one of those that wait for the list. */
void hf__etcd_line_list_due(struct etcd_line *line)
{
    if (!line->list_due || ((line->creating || !list_empty(&line->to_create)) &&
                            !line->line.stale && line->made < line->line.n / 8))
        return;
    line->list_due = false;
    line->made = 0;
    send_list(line, false, false);
}

/* The watch stays: only the first list of it waits. */
void hf__etcd_line_list(struct ordered_line *l, bool watch)
{
    struct etcd_line *line = etcd_line(l);

    if (!watch) {
        line->list_due = true;
        hf__etcd_line_list_due(line);
        return;
    }
    if (line->whole)
        send_list(line, watch, false);
    else
        line->whole = hf__etcd_watch(line, NULL);
}

/* ---- one ticket -------------------------------------------------------------------- */

/* Made a kept one, by who took its owner for dead: nobody's, and it stays. */
void hf__etcd_seat_kept(struct etcd_seat *s)
{
    struct ordered_seat *seat = &s->seat;

    if (seat->state != SEAT_CREATED && seat->state != SEAT_WAITING &&
        seat->state != SEAT_HELD)
        return;
    if (seat->entry)
        seat->entry->seat = NULL;
    seat->entry = NULL;
    hf__ordered_step(seat, SEAT_GONE, HF_ELOST, NULL);
}

/* What it is now, by a read or an event. */
static void is_there(struct etcd_line *line, struct ordered_entry *entry,
                     const Hf__Etcd__KeyValue *kv)
{
    struct etcd_seat *s = entry->seat ? etcd_seat(entry->seat) : NULL;
    struct etcd_ticket *t = s ? etcd_ticket(s->seat.t) : NULL;
    int64_t weight = entry->weight;
    struct ticket_record rec;
    bool broken = false;

    hf__record_read(&rec, kv->value.data, kv->value.len);
    line->line.pins++;       /* that may have been its last seat */
    if (rec.weight < weight) /* it only becomes less */
        weight = rec.weight;
    if (s && kv->mod_revision >= t->mod) {
        t->mod = kv->mod_revision;
        broken = s->marked = s->marked || rec.broken;
        if (rec.kept_ms > 0)
            hf__etcd_seat_kept(s);
    }
    hf__ordered_seen(&line->line, entry, broken ? SEEN_MARKED : SEEN_THERE, weight);
    hf__ordered_line_unpin(&line->line);
}

/* A holder is told at once: the next one may hold by now. */
static void is_gone(struct etcd_line *line, struct ordered_entry *entry)
{
    struct ordered_seat *s = entry->seat;
    struct etcd_lease *held = s && s->state == SEAT_HELD ? etcd_seat(s)->lease : NULL;

    if (s && (s->state == SEAT_CREATED || s->state == SEAT_WAITING))
        hf__etcd_seat_missed(etcd_seat(s));
    else
        hf__ordered_seen(&line->line, entry, SEEN_GONE, 0);
    if (held)
        hf__etcd_lease_check(held); /* the others on it may have ended, too */
}

static bool is_named(const struct etcd_line *line, const struct ordered_entry *e,
                     const ProtobufCBinaryData *key)
{
    return key->len == line->key_len + e->len &&
           memcmp(key->data + line->key_len, e->name, e->len) == 0;
}

/* Of that creation. */
static const Hf__Etcd__KeyValue *find_key(const struct etcd_line *line,
                                          const Hf__Etcd__RangeResponse *r,
                                          const struct ordered_entry *e)
{
    for (size_t i = 0; i < r->n_kvs; i++)
        if (r->kvs[i]->create_revision == e->seq && is_named(line, e, &r->kvs[i]->key))
            return r->kvs[i];
    return NULL;
}

/* The other one of a pair, our own. */
static const struct ordered_entry *other_of(const struct etcd_watch *w)
{
    const struct ordered_entry *next =
        w->with != 0 ? hf__ordered_after(&w->line->line, w->entry) : NULL;

    return next && next->seat && next->seq == w->with ? next : NULL;
}

static bool shows_other(const struct etcd_watch *w, const Hf__Etcd__RangeResponse *r)
{
    const struct ordered_entry *own = other_of(w);
    const Hf__Etcd__KeyValue *kv = own ? find_key(w->line, r, own) : NULL;
    const struct etcd_lease *lease = own ? etcd_seat(own->seat)->lease : NULL;

    return kv && lease && kv->lease == lease->id;
}

/* By name, as the server sorts them. */
static bool sorts_before(const struct ordered_entry *a, const struct ordered_entry *b)
{
    size_t n = a->len < b->len ? a->len : b->len;
    int order = memcmp(a->name, b->name, n);

    return order < 0 || (order == 0 && a->len < b->len);
}

int64_t hf__etcd_line_pair(const struct etcd_line *line, const struct ordered_entry *e)
{
    const struct ordered_entry *own = hf__ordered_after(&line->line, e);
    bool first;

    if (e->seat || e->len + line->key_len >= KEY_MAX || !own || !own->seat ||
        own->seat->state != SEAT_WAITING)
        return 0;
    first = sorts_before(e, own);
    for (size_t i = 0; i < line->line.n; i++) {
        const struct ordered_entry *at = line->line.entries[i];

        if (at != e && at != own && sorts_before(first ? e : own, at) &&
            sorts_before(at, first ? own : e))
            return 0;
    }
    return own->seq;
}

void hf__etcd_line_range(const struct etcd_watch *w, Hf__Etcd__RangeRequest *r,
                         struct etcd_key *from, struct etcd_key *end)
{
    const struct ordered_entry *entry = w->entry, *last = entry ? other_of(w) : NULL;

    if (last && sorts_before(last, entry)) {
        entry = last;
        last = w->entry;
    }
    hf__etcd_line_key_of(w->line, from, entry ? entry->name : "", entry ? entry->len : 0);
    hf__etcd_range(r, from, entry ? NULL : end->at);
    if (!last)
        return;
    hf__etcd_line_key_of(w->line, end, last->name, last->len);
    hf__etcd_key_add(end, "", 1); /* the end is not in the range */
    r->range_end = hf__etcd_bytes(end->at, end->len);
}

static void ticket_read(struct etcd_conn *c, struct etcd_call *q,
                        const struct etcd_answer *a)
{
    struct line_call *k = container_of(q, struct line_call, call);
    const Hf__Etcd__RangeResponse *r = a ? a->body : NULL;
    const Hf__Etcd__KeyValue *kv = NULL;
    struct etcd *e = etcd_at(c);
    struct etcd_watch *w = hf__etcd_watch_of(e, k->watch_id);
    struct ordered_entry *entry = w ? w->entry : NULL;
    hf_error err;
    int rc = a ? hf__etcd_query_result(e, a, &err) : 1;

    if (entry && rc == 0)
        kv = find_key(k->line, r, entry);
    if (entry && rc == 0 && too_old(e, k, a)) {
        read_ticket(w, true);
    } else if (kv) {
        w->shows = shows_other(w, r);
        is_there(k->line, entry, kv);
    } else if (entry && rc == 0) {
        hf__etcd_watch_end(w);
        is_gone(k->line, entry);
    } else if (entry && rc < 0 && rc != HF_EUNREACHABLE) {
        hf__etcd_line_refused(w);
    }
    hf__ordered_line_unpin(&k->line->line);
}

static void read_ticket(struct etcd_watch *w, bool strict)
{
    struct line_call *k = line_call(w->line, ticket_read, strict);
    Hf__Etcd__RangeRequest r;
    struct etcd_key from, end;

    if (!k)
        return; /* the connection is given up */
    k->watch_id = (int64_t)w->node.hash;
    hf__etcd_line_range(w, &r, &from, &end);
    r.serializable = !strict;
    hf__etcd_send(&etcd_with(w->line)->conn, &k->call, ETCD_RANGE, &r);
}

void hf__etcd_line_watched(struct etcd_watch *w)
{
    if (w->entry)
        read_ticket(w, false);
    else
        send_list(w->line, true, false);
}

/* The rights to watch are missing. */
void hf__etcd_line_refused(struct etcd_watch *w)
{
    struct etcd_line *line = w->line;
    struct ordered_entry *entry = w->entry;

    hf__etcd_watch_end(w);
    if (entry)
        hf__ordered_seen(&line->line, entry, SEEN_REFUSED, 0);
    else
        hf__ordered_not_listed(&line->line, HF_EAUTH, true);
}

/* One that is watched is only read: it is looked at again. */
bool hf__etcd_line_watch(struct ordered_line *l, struct ordered_entry *entry)
{
    struct etcd_line *line = etcd_line(l);
    struct etcd_watch *w = hf__etcd_watch_of(etcd_with(line), entry->own);

    if (entry->len > KEY_MAX - line->key_len)
        return false; /* another program's */
    if (!w)
        hf__etcd_watch(line, entry);
    else if (w->created)
        read_ticket(w, false);
    return true;
}

static void changed_at(struct etcd_line *line, const Hf__Etcd__Event *ev)
{
    if ((uint64_t)ev->kv->mod_revision > line->line.revision)
        line->line.revision = (uint64_t)ev->kv->mod_revision;
}

/* Of the line as a whole. Who has just joined stands behind all that is known, and concerns
 * nobody. A list that is under way either has the change or is older than it, and comes
 * again. */
static void line_event(struct etcd_line *line, const Hf__Etcd__Event *ev)
{
    if (ev->type == HF__ETCD__EVENT__EVENT_TYPE__PUT &&
        ev->kv->create_revision == ev->kv->mod_revision)
        return;
    changed_at(line, ev);
    if (line->line.lists > 0)
        line->line.stale = true;
    else
        hf__ordered_line_changed(&line->line, false);
}

void hf__etcd_line_event(struct etcd_watch *w, const Hf__Etcd__Event *ev, bool shows)
{
    struct etcd_line *line = w->line;
    struct ordered_entry *entry = w->entry;
    const struct ordered_entry *own = NULL;
    bool put = ev->type == HF__ETCD__EVENT__EVENT_TYPE__PUT;

    if (!entry) {
        line_event(line, ev);
        return;
    }
    if (w->with != 0 && !is_named(line, entry, &ev->kv->key))
        return; /* our own has a watch of its own; or it is somebody's between them */
    if (ev->kv->mod_revision < entry->seq)
        return; /* of a ticket that had that name before, told by a member that lags */
    changed_at(line, ev);
    if (put && ev->kv->create_revision == entry->seq) {
        is_there(line, entry, ev->kv);
        return;
    }
    if (shows && !put)
        own = other_of(w);
    hf__etcd_watch_end(w);
    if (own)
        hf__ordered_ended(&line->line, entry, own->seat, (uint64_t)ev->kv->mod_revision);
    else
        is_gone(line, entry);
}

/* ---- leases and the connection ----------------------------------------------------- */

void hf__etcd_seat_missed(struct etcd_seat *s)
{
    struct etcd *e = etcd_in(s->seat.of);
    struct etcd_ticket *t = etcd_ticket(s->seat.t);

    s->seat.line->stale = true;
    if (s->seat.line->revision < e->ordered.revision) /* an older list has it still */
        s->seat.line->revision = e->ordered.revision;
    hf__etcd_line_list_due(etcd_line(s->seat.line));
    if (t->gone_at ==
        0) /* a keep-alive from now on is enough, however often it is missed */
        t->gone_at = etcd_now(e);
    if (!s->lease || s->lease->dead) {
        hf__ordered_list(s->seat.line);
        return;
    }
    s->lease->awaited = true;
    hf__etcd_lease_check(s->lease);
}

/* Every seat on it, in every line; those may go meanwhile. */
static void each_seat(struct etcd_lease *l,
                      void (*call)(struct etcd_seat *, int, const hf_error *), int rc,
                      const hf_error *err)
{
    list_for_safe(n, &l->of->ordered.lines) {
        struct etcd_line *line = container_of(n, struct etcd_line, line.all);

        line->line.pins++;
        list_for_safe(k, &line->line.seats) {
            struct etcd_seat *s = container_of(k, struct etcd_seat, seat.in_line);

            if (s->lease == l || s->moves == l)
                call(s, rc, err);
        }
        hf__ordered_line_unpin(&line->line);
    }
}

/* It waits in etcd_line.to_create. */
static bool is_queued(const struct etcd_seat *s)
{
    return !list_empty(&s->seat.queue) &&
           (s->seat.state == SEAT_CREATING || s->seat.state == SEAT_ABORTING);
}

/* What waits for it is refused. */
static void not_made(struct etcd_seat *s, int rc, const hf_error *err)
{
    bool amends = s->to_amend;

    s->to_amend = false;
    if (amends && s->seat.state == SEAT_HELD)
        ev_amended(s->seat.t, rc);
    if (!is_queued(s))
        return;
    list_remove(&s->seat.queue);
    hf__etcd_seat_not_made(s, rc, err);
}

static void made(struct etcd_seat *s, int rc, const hf_error *err)
{
    bool amends = s->to_amend;

    (void)rc;
    (void)err;
    s->to_amend = false;
    if (amends && s->seat.state == SEAT_HELD)
        hf__etcd_amend_now(s);
}

static void lives(struct etcd_seat *s, int rc, const hf_error *err)
{
    if (s->seat.t && etcd_ticket(s->seat.t)->gone_at != 0)
        hf__ordered_list(s->seat.line);
    made(s, rc, err);
}

void hf__etcd_lease_lives(struct etcd_lease *l)
{
    l->awaited = false;
    each_seat(l, lives, 0, NULL);
}

/* Creates in a pass of their own: seats that leave meanwhile go with it. */
static void create_on(struct etcd *e)
{
    list_for_safe(n, &e->ordered.lines) {
        struct etcd_line *line = container_of(n, struct etcd_line, line.all);

        line->line.pins++;
        hf__etcd_create_next(line);
        if (line->line.stale && hf__ordered_line_waits(&line->line))
            hf__ordered_list(&line->line);
        hf__ordered_line_unpin(&line->line);
    }
}

void hf__etcd_lease_made(struct etcd_lease *l, int rc, const hf_error *err)
{
    each_seat(l, rc < 0 ? not_made : made, rc, err);
    create_on(l->of);
}

/* Those that `break` has marked live on a life of their own. One that goes to another lease
 * may be there already, and the answer lost: its key is looked for when it leaves. */
static void over(struct etcd_seat *s, int rc, const hf_error *err)
{
    struct ordered_seat *seat = &s->seat;

    if (s->lease->dead && seat->state == SEAT_HELD && seat->t->life != s->lease->life)
        ev_dead(seat->t->life);
    seat->line->stale = true;
    if (s->to_amend && !s->lease->dead)
        made(s, rc, err); /* another one for it to go to */
    else if (s->to_amend || is_queued(s))
        not_made(s, rc, err);
    else if (s->lease->dead && !s->moves)
        hf__ordered_step(seat, SEAT_SESSION_OVER, 0, NULL);
}

/* Others of ours in those lines wait on. */
void hf__etcd_lines_over(struct etcd *e, struct etcd_lease *l)
{
    each_seat(l, over, HF_ELOST, NULL);
    create_on(e);
}

/* The watches are gone: everything is read anew when the store is up. */
void hf__etcd_lines_down(struct etcd *e)
{
    list_for(n, &e->ordered.lines) {
        struct ordered_line *line = container_of(n, struct ordered_line, all);

        line->stale = true;
        line->revision = 0;
        line->watch = WATCH_NONE;
        for (size_t i = 0; i < line->n; i++)
            line->entries[i]->watch = WATCH_NONE;
        list_for(k, &line->seats)
            container_of(k, struct etcd_seat, seat.in_line)->to_amend = false;
        while (list_pop(&etcd_line(line)->to_create))
            ;
        etcd_line(line)->creating = etcd_line(line)->list_due = false;
    }
    hf__ordered_down(&e->ordered);
}
