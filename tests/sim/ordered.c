/* ordered.c: the client's end of the network in the ordered family: the requests of
 * src/kit/ordered.h become messages, answers and events are handed to it. What decides who
 * holds is the product's own code.
 *
 * In half of the runs the store is like ZooKeeper: answers and events come in one order,
 * and a ticket that becomes shared gets another node with the same number. In the others it
 * is like etcd: reads and events come on streams of their own, and a ticket that becomes
 * shared keeps its node. */
#include "sim.h"

#include "mem.h"

#include <stdio.h>
#include <string.h>

struct sim_seat {
    struct ordered_seat seat;
    uint32_t gen;
    int slot;
    bool shared;         /* its node is its second */
    uint32_t amended_in; /* the connection on which that was last asked for */
};

struct sim_line {
    struct ordered_line line;
    int number;
};

static struct sim_client *client_in(struct ordered *o)
{
    return container_of(o, struct sim_client, ordered);
}

static struct sim_seat *sim_seat(struct ordered_seat *s)
{
    return container_of(s, struct sim_seat, seat);
}

int ordered_number(const struct ordered_line *l)
{
    return container_of(l, struct sim_line, line)->number;
}

/* ---- names ----------------------------------------------------------------------- */

/* Of the first node of a ticket, or of that which it has as shared. */
static size_t name_node(char name[24], uint64_t fence, bool shared)
{
    return (size_t)snprintf(name, 24, "%c%llu", shared ? 'r' : 'w',
                            (unsigned long long)fence);
}

static struct ordered_place place_of(const struct srow *r)
{
    return (struct ordered_place){ (int64_t)r->fence, r->kind, r->weight, r->capacity };
}

static struct ordered_entry *entry_of(const struct srow *r)
{
    struct ordered_place place = place_of(r);
    char name[24];

    return hf__ordered_entry(&place, name, name_node(name, r->fence, r->shared));
}

/* ---- requests -------------------------------------------------------------------- */

/* About a seat; its slot and generation say which, whatever became of it meanwhile. */
static struct msg about(const struct ordered_seat *s, enum msg_kind kind)
{
    struct sim_client *c = client_in(s->of);
    const struct sim_seat *k = container_of(s, struct sim_seat, seat);
    struct msg m = { .kind = kind,
                     .line = (uint8_t)ordered_number(s->line),
                     .slot = k->slot,
                     .gen = k->gen,
                     .fence = s->fence,
                     .shared = k->shared,
                     .sent_at = proc_now(&w.procs[c->proc]) };

    if (s->t) {
        m.ttl_ms = s->t->ttl_ms;
        m.weight = s->t->weight;
        m.capacity = s->t->capacity;
        m.lk = (uint8_t)s->t->kind;
        m.owner = s->t->owner;
        memcpy(&m.token, s->t->token, sizeof m.token);
    }
    return m;
}

static void read_for(struct ordered_seat *s, enum read_what what)
{
    struct msg m = about(s, M_READ);

    m.what = what;
    drv_send(client_in(s->of), &m);
}

static void try(struct ordered_seat *s)
{
    read_for(s, READ_TRY);
}

static void find(struct ordered_seat *s)
{
    read_for(s, READ_FIND);
}

static void check(struct ordered_seat *s)
{
    read_for(s, READ_CHECK);
}

static void confirm(struct ordered_seat *s, bool strict)
{
    read_for(s, strict ? READ_OWN_NOW : READ_OWN);
}

static void create(struct ordered_seat *s)
{
    struct msg m = about(s, M_JOIN);

    m.hints = drv_hints(s->t);
    m.fence = 0;
    SAY("client %u: join %s, ticket %04x%s", client_in(s->of)->id, s->t->name, TOK(m.token),
        s->t->try_only ? ", only if free" : "");
    drv_send(client_in(s->of), &m);
    if (mix(w.plan->seed ^ m.token) % 2) /* or when it is answered */
        hf__ordered_list(s->line);
}

static void erase(struct ordered_seat *s, bool placed)
{
    struct msg m = about(s, M_LEAVE);

    (void)placed;
    m.withdraws = s->state == SEAT_WITHDRAWING || s->state == SEAT_ORPHAN;
    SAY("client %u: deletes node %llu of %s", client_in(s->of)->id,
        (unsigned long long)s->fence, line_names[m.line]);
    drv_send(client_in(s->of), &m);
}

static void list(struct ordered_line *l, bool watch)
{
    struct msg m = { .kind = M_READ,
                     .what = READ_LIST,
                     .line = (uint8_t)ordered_number(l),
                     .slot = -1,
                     .again = watch };

    drv_send(client_in(l->of), &m);
}

static bool watch(struct ordered_line *l, struct ordered_entry *e)
{
    struct msg m = { .kind = M_READ,
                     .what = READ_ENTRY,
                     .line = (uint8_t)ordered_number(l),
                     .slot = -1,
                     .fence = (uint64_t)e->seq,
                     .shared = e->name[0] == 'r' };

    drv_send(client_in(l->of), &m);
    return true;
}

static enum ordered_other other(const struct ordered_entry *e, struct ordered_entry **ret)
{
    struct ordered_place place = { e->seq, e->kind, 1, e->capacity };
    char name[24];

    if (e->seq % 5 == 0)
        return OTHER_UNKNOWN; /* such names there are, too */
    *ret = hf__ordered_entry(&place, name, name_node(name, (uint64_t)e->seq, true));
    return *ret ? OTHER_NAMED : OTHER_UNKNOWN;
}

/* ---- seats and lines ------------------------------------------------------------- */

static struct ordered_line *line_get(struct sim_client *c, int number)
{
    struct sim_line *l;

    list_for(n, &c->ordered.lines)
        if (ordered_number(container_of(n, struct ordered_line, all)) == number)
            return container_of(n, struct ordered_line, all);
    l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->number = number;
    hf__ordered_line_init(&c->ordered, &l->line);
    return &l->line;
}

static struct ordered_seat *new_seat(struct ordered *o, struct ticket *t)
{
    struct sim_client *c = client_in(o);
    struct sim_seat *s;
    int i = 0;

    while (i < TICKETS && c->seats[i])
        i++;
    s = i < TICKETS ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return NULL;
    s->seat.line = line_get(c, line_of(t->name));
    if (!s->seat.line) {
        free(s);
        return NULL;
    }
    s->slot = i;
    s->gen = ++c->seat_gen;
    c->seats[i] = s;
    mem_ticket(hold_of(t), false); /* whether it is known, drv_ptr says */
    return &s->seat;
}

static void free_seat(struct ordered_seat *s)
{
    client_in(s->of)->seats[sim_seat(s)->slot] = NULL;
    free(sim_seat(s));
}

static size_t name_of(const struct ordered_seat *s, char name[ORDERED_NAME_MAX])
{
    return name_node(name, s->fence, container_of(s, struct sim_seat, seat)->shared);
}

static void free_line(struct ordered_line *l)
{
    free(container_of(l, struct sim_line, line));
}

static int64_t sent_at(struct ordered *o)
{
    return client_in(o)->session->sent_at;
}

static void explain(const struct ordered_seat *s, int why, hf_error *err)
{
    (void)s;
    *err = (hf_error){ .code = why };
}

/* The connection is given up, at the next flush. */
static void give_up(struct sim_client *c, int code)
{
    hf__link_fail(&c->wires[0].link, code, "given up");
}

static void no_memory(struct ordered *o)
{
    give_up(client_in(o), HF_ENOMEM);
}

static const struct ordered_ops like_zookeeper = { .in_order = true,
                                                   .seat = new_seat,
                                                   .seat_free = free_seat,
                                                   .line_free = free_line,
                                                   .name = name_of,
                                                   .try = try,
                                                   .find = find,
                                                   .create = create,
                                                   .erase = erase,
                                                   .check = check,
                                                   .list = list,
                                                   .watch = watch,
                                                   .other = other,
                                                   .sent_at = sent_at,
                                                   .explain = explain,
                                                   .no_memory = no_memory };

/* ---- verbs ----------------------------------------------------------------------- */

void ordered_open(struct sim_client *c)
{
    static struct ordered_ops like_etcd;

    like_etcd = like_zookeeper;
    like_etcd.in_order = false;
    like_etcd.other = NULL;
    if (w.plan->lags || mix(w.plan->seed ^ 0x6f776e) % 2) /* or by a list */
        like_etcd.confirm = confirm;
    c->store.shares_lives = true;
    hf__ordered_init(&c->ordered, w.plan->like_etcd ? &like_etcd : &like_zookeeper,
                     &c->store);
}

void ordered_join(struct sim_client *c, struct ticket *t)
{
    if (!c->session)
        c->session = hf__life_new(&c->store, LIFE_WIDE, t->ttl_ms);
    if (!c->session) {
        ev_gone(t, HF_ENOMEM, -1, NULL);
        return;
    }
    if (t->life != c->session)
        hf__hang(t, c->session);
    hf__ordered_join(&c->ordered, t);
}

void ordered_amend(struct sim_client *c, struct ticket *t)
{
    struct ordered_seat *s = t->drv_ptr;
    struct msg m;

    if (!s || (s->state != SEAT_HELD && s->state != SEAT_RENAMING)) {
        ev_amended(t, HF_ELOST);
        return;
    }
    m = about(s, M_AMEND);
    if (!w.plan->like_etcd && s->entry && s->entry->weight > t->weight)
        hf__ordered_step(s, SEAT_RENAME, 0, NULL);
    sim_seat(s)->amended_in = c->wires[0].epoch;
    drv_send(c, &m);
}

void ordered_renew(struct sim_client *c, struct life *const *lives, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct msg m = { .kind = M_SESSION,
                         .slot = -1,
                         .ttl_ms = lives[i]->ttl_ms,
                         .sent_at = proc_now(&w.procs[c->proc]) };

        if (lives[i] == c->session)
            drv_send(c, &m);
    }
}

/* ---- answers --------------------------------------------------------------------- */

static struct ordered_seat *seat_asked_for(const struct sim_client *c, const struct msg *m)
{
    struct sim_seat *s = m->slot >= 0 ? c->seats[m->slot] : NULL;

    return s && s->gen == m->gen ? &s->seat : NULL;
}

/* The join that has come is one that nobody waits for any more. */
bool ordered_gave_up(const struct sim_client *c, const struct msg *m)
{
    const struct ordered_seat *s = seat_asked_for(c, m);

    return !s || s->state != SEAT_CREATING;
}

static struct ordered_line *line_known(struct sim_client *c, int number)
{
    list_for(n, &c->ordered.lines)
        if (ordered_number(container_of(n, struct ordered_line, all)) == number)
            return container_of(n, struct ordered_line, all);
    return NULL;
}

/* The whole line as entries; false: no memory. */
static bool entries_of(const struct snap *s, struct ordered_entry ***ret)
{
    struct ordered_entry **entries = calloc((size_t)s->n + 1, sizeof *entries);
    bool good = entries != NULL;

    for (int i = 0; good && i < s->n; i++)
        good = (entries[i] = entry_of(&s->rows[i])) != NULL;
    if (!good)
        hf__ordered_entries_free(entries, entries ? (size_t)s->n : 0);
    *ret = entries;
    return good;
}

static void set_name(struct ordered_seat *s, uint64_t fence, bool shared)
{
    s->fence = fence;
    sim_seat(s)->shared = shared;
}

void ordered_joined(struct sim_client *c, const struct msg *m)
{
    struct ordered_seat *s = seat_asked_for(c, m);
    struct ordered_place place = { (int64_t)m->fence, m->lk, m->weight, m->capacity };

    if (m->rc ==
        HF_ELOST) { /* there is no such session: that is said by the next greeting */
        give_up(c, HF_EPROTO);
        return;
    }
    if (m->rc == 0 && c->session && m->inc == c->inc)
        ev_alive(c->session, m->sent_at, m->ttl_ms);
    if (s && m->rc < 0)
        hf__ordered_step(s, SEAT_NOT_MADE, m->rc, NULL);
    if (!s || m->rc < 0)
        return;
    set_name(s, m->fence, false);
    hf__ordered_there(s, SEAT_MADE, &place, false, false);
}

void ordered_left(struct sim_client *c, const struct msg *m)
{
    struct ordered_seat *s = seat_asked_for(c, m);

    if (s && s->fence == m->fence)
        hf__ordered_step(s, m->rc == 0 ? SEAT_DELETED : SEAT_NOT_DELETED, m->rc, NULL);
}

static void tried(struct ordered_seat *s, const struct msg *m)
{
    struct ordered_entry **entries;
    int rc = m->rc;

    if (rc == 0 && !entries_of(m->snap, &entries)) {
        rc = HF_ENOMEM;
    } else if (rc == 0) {
        rc = hf__ordered_would_hold(entries, (size_t)m->snap->n, s->t);
        hf__ordered_entries_free(entries, (size_t)m->snap->n);
    }
    hf__ordered_step(s, rc == 0 ? SEAT_ROOM : SEAT_NO_ROOM, rc, NULL);
}

static void found(struct ordered_seat *s, const struct msg *m)
{
    const struct srow *r = m->rc == 0 && m->snap->n > 0 ? &m->snap->rows[0] : NULL;
    struct ordered_place place;

    if (s->state != SEAT_FINDING && s->state != SEAT_SEEKING)
        return;
    if (!r) {
        hf__ordered_step(s, m->rc < 0 ? SEAT_NOT_FOUND : SEAT_FOUND_NONE, m->rc, NULL);
    } else {
        set_name(s, r->fence, r->shared);
        place = place_of(r);
        hf__ordered_there(s, SEAT_FOUND, &place, false, false);
    }
}

static void renamed(struct ordered_seat *s, bool shared)
{
    struct ordered_place place = { (int64_t)s->fence, s->t->kind, shared ? 1 : HF_FULL,
                                   s->t->capacity };

    set_name(s, s->fence, shared);
    hf__ordered_renamed(s, &place);
}

/* After a lost connection: has it become shared? If the core asks for it again, the answer
 * to that says it. */
static void checked(struct ordered_seat *s, const struct msg *m)
{
    if (sim_seat(s)->amended_in == client_in(s->of)->wires[0].epoch)
        return;
    if (s->state != SEAT_RENAMING && s->state != SEAT_PARTING)
        return;
    if (m->rc < 0)
        give_up(client_in(s->of), HF_EPROTO);
    else if (m->snap->n > 0)
        renamed(s, m->snap->rows[0].shared);
    else
        hf__ordered_step(s, SEAT_RENAME_GONE, HF_ELOST, NULL);
}

/* Alone, before it is granted. */
static void confirmed(struct ordered_seat *s, const struct msg *m)
{
    bool there = m->rc == 0 && m->snap->n > 0;

    if (!hf__ordered_confirmed(s, m->rc, there, m->revision) && s->entry)
        hf__ordered_seen(s->line, s->entry, SEEN_GONE, 0);
}

static void listed(struct ordered_line *l, const struct msg *m)
{
    struct ordered_entry **entries;

    l->pins++;
    if (m->rc < 0)
        hf__ordered_not_listed(l, m->rc, m->again);
    else if (entries_of(m->snap, &entries))
        hf__ordered_listed(l, entries, (size_t)m->snap->n, m->revision, m->again);
    else
        give_up(client_in(l->of), HF_ENOMEM);
    l->pins--;
    hf__ordered_line_drop(l);
}

/* As if one watch told the end of both, in order: see hf__ordered_ended. */
static const struct ordered_seat *shown_by(struct ordered_line *l, const struct msg *m,
                                           const struct ordered_entry *e)
{
    const struct ordered_entry *next = hf__ordered_after(l, e);

    if (m->shown == 0 || !next || !next->seat || (uint64_t)next->seq != m->shown)
        return NULL;
    return next->seat;
}

static void seen(struct ordered_line *l, const struct msg *m, enum ordered_seen what)
{
    char name[24];
    size_t len = name_node(name, m->fence, m->shared);
    struct ordered_entry *e = hf__ordered_find(l, (int64_t)m->fence, name, len);

    if (e && what == SEEN_GONE && !e->seat && shown_by(l, m, e))
        hf__ordered_ended(l, e, shown_by(l, m, e), m->revision);
    else if (e)
        hf__ordered_seen(l, e, what,
                         m->snap && m->snap->n > 0 ? m->snap->rows[0].weight : 0);
}

void ordered_read(struct sim_client *c, const struct msg *m)
{
    struct ordered_seat *s = seat_asked_for(c, m);
    struct ordered_line *l = line_known(c, m->line);

    if (MUTANT(READ_RENEWS) && c->session && m->inc == c->inc &&
        proc_now(&w.procs[c->proc]) - m->sent_at < c->session->given_ms * US / 2)
        ev_alive(c->session, m->sent_at, c->session->given_ms);
    if (m->what == READ_TRY && s && s->state == SEAT_TRYING)
        tried(s, m);
    else if (m->what == READ_FIND && s)
        found(s, m);
    else if (m->what == READ_CHECK && s)
        checked(s, m);
    else if ((m->what == READ_OWN || m->what == READ_OWN_NOW) && s)
        confirmed(s, m);
    else if (m->what == READ_LIST && l)
        listed(l, m);
    else if (m->what == READ_ENTRY && l)
        seen(l, m, m->rc < 0 ? SEEN_REFUSED : m->snap->n == 0 ? SEEN_GONE : SEEN_THERE);
}

void ordered_amended(struct sim_client *c, const struct msg *m)
{
    struct ordered_seat *s = seat_asked_for(c, m);

    if (!s || !s->t)
        return;
    if (s->state == SEAT_RENAMING || s->state == SEAT_PARTING) {
        if (m->rc == 0)
            renamed(s, true);
        else
            hf__ordered_step(s, SEAT_RENAME_GONE, HF_ELOST, NULL);
        s = seat_asked_for(c, m);
    } else if (s->entry && m->rc == 0 && m->weight < s->entry->weight) {
        hf__ordered_lighter(s->line, s->entry, m->weight);
        hf__ordered_decide(s->line, false);
    }
    if (s && s->t && s->state == SEAT_HELD)
        ev_amended(s->t, m->rc);
}

/* An event: of one node, or of the line. */
void ordered_fired(struct sim_client *c, const struct msg *m)
{
    struct ordered_line *l = line_known(c, m->line);

    if (l && w.plan->like_etcd && m->revision > l->revision)
        l->revision = m->revision;
    if (l && m->fence == 0)
        hf__ordered_line_changed(l, false);
    else if (l)
        seen(l, m, m->again ? SEEN_CHANGED : SEEN_GONE);
}
