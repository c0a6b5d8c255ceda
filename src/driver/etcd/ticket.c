/* ticket.c: what a seat asks for: create, find, confirm, delete. What follows from the
 * answers is decided by kit/ordered.h.
 *
 *   join:   one transaction: if there is no such key, and the epoch of the lease is ours
 *           (lease.c), read the line, and put the key; else read the key
 *   try:    the same, if there is nothing in the line besides. If there is something, and
 *           the ticket would hold beside it, as a join, and it withdraws if it does not
 * hold after all: a failed try leaves nothing, and writes nothing if the line is taken
 *   leave:  delete. With keep_ms: a lease of its own is granted, and the key put on it
 *
 * The line is read within the transaction, so the list is as new as the create: usually a
 * ticket is granted by that answer. It is read before the put: nobody comes in between, so
 * the line is what was read and the new ticket, and a free line costs nothing to read, to
 * send and to take apart. Where others of ours wait already it is read
 * afterwards, once for many that join.
 *
 * The server carries requests of one connection out in any order. So the creates of one
 * line go one after the other: who joins first stands first (FIFO also within a client).
 *
 * The key of a ticket is known before it is made, and its token is in its value: a create
 * that was not answered is looked for by its key. If it is not there, and its lease is
 * proved, it never will be (lease.c), and is made. If the lease is not, it waits for the
 * proof with that; and of one that leaves it is not known then.
 *
 * Names of keys are used again: the server keeps the name of every key that was
 * deleted until the history is compacted, often for an hour, and reads of the line go over
 * all of them; with a name for each ticket an acquire takes three times as long after ten
 * thousand others. Two tickets never share a key: a create compares that there is none. If
 * there is another one, left by a ticket whose end is not known, another name is chosen.
 * Which ticket a key is about is said by the revision of its creation, everywhere but in a
 * plain delete.
 *
 * A plain delete ends whatever has that name; a transaction that compares the creation ends
 * one ticket only (G8), and takes the server half as long again. A seat sends one plain
 * delete, the first one for a name that it has chosen itself. That ends no other ticket of
 * ours, because no other has that name from the sending until it is carried out or never
 * will be:
 *   - until it is answered the seat is in its line, and choose_number leaves its name out;
 *   - if the connection is lost before, it may be carried out at any time; but names of one
 *     connection are not chosen by the next one;
 *   - an answer that leaves it open gives the connection up (session.c); after any other
 *     one it has been carried out, or was refused for good;
 *   - what is not among the SLOTS is never chosen again, nor is a lease that is over.
 * The name has a lease of ours in it, so it is nobody else's. Whatever is sent later for
 * the same ticket, or for one that was looked for, compares. */
#include "driver/etcd/etcd.h"

#include <stdlib.h>
#include <string.h>

/* ---- seats ------------------------------------------------------------------------- */

static void send_create(struct etcd_seat *);

static struct ordered_seat *new_seat(struct ordered *o, struct ticket *t)
{
    struct etcd_seat *s = calloc(1, sizeof *s);
    struct etcd_line *line = s ? hf__etcd_line(etcd_in(o), t->name, t->name_len) : NULL;

    if (!line) {
        free(s);
        return NULL;
    }
    s->seat.line = &line->line;
    *etcd_ticket(t) = (struct etcd_ticket){ .key_lease = etcd_ticket(t)->key_lease,
                                            .number = etcd_ticket(t)->number };
    if (t->life && t->life->kind == LIFE_WIDE) {
        s->lease = etcd_lease_of(t->life);
        s->lease->seats++;
    }
    return &s->seat;
}

/* The lowest that no other of ours has: mostly the first ones have the first. If there is
 * none, or `again` is false, one that is never chosen again. */
static void choose_number(struct etcd_seat *s, bool again)
{
    struct etcd *e = etcd_in(s->seat.of);
    uint64_t used = again ? 0 : UINT64_MAX;

    list_for(n, &s->seat.line->seats) {
        uint64_t slot =
            container_of(n, struct etcd_seat, seat.in_line)->number - e->slots - 1;

        if (used == UINT64_MAX)
            break;
        if (slot < SLOTS)
            used |= (uint64_t)1 << slot;
    }
    s->chosen = true;
    s->number = 0;
    for (unsigned i = 0; i < SLOTS && s->number == 0; i++)
        if (!(used >> i & 1))
            s->number = e->slots + 1 + i;
    if (s->number == 0)
        s->number = ++e->numbers;
}

/* What was sent may be carried out at any time: by another connection none of those numbers
 * is chosen. */
void hf__etcd_numbers_lost(struct etcd *e)
{
    e->slots = e->numbers;
    e->numbers += SLOTS;
}

static void free_seat(struct ordered_seat *seat)
{
    struct etcd_seat *s = etcd_seat(seat);

    if (s->lease)
        s->lease->seats--;
    if (s->moves)
        s->moves->seats--;
    free(s);
}

struct etcd_call *hf__etcd_seat_call(struct etcd_seat *s, etcd_answered *answer)
{
    struct etcd_call *q = hf__etcd_ask(&etcd_in(s->seat.of)->conn, answer, s);

    if (q)
        hf__ordered_pin(&s->seat);
    return q;
}

struct etcd_seat *hf__etcd_seat_answered(struct etcd_conn *c, struct etcd_call *q,
                                         const struct etcd_answer *a, int *rc,
                                         hf_error *err)
{
    struct etcd_seat *s = q->with;
    bool wanted = hf__ordered_unpin(&s->seat);

    *rc = hf__etcd_result(etcd_at(c), a, err);
    return wanted && *rc <= 0 ? s : NULL;
}

void hf__etcd_seat_key(const struct etcd_seat *s, struct etcd_key *k)
{
    char name[ORDERED_NAME_MAX];

    hf__etcd_line_key_of(etcd_line(s->seat.line), k, name,
                         hf__etcd_seat_name(&s->seat, name));
}

size_t hf__etcd_seat_value(const struct etcd_seat *s, char value[RECORD_MAX], int64_t ttl_s,
                           int64_t kept_ms)
{
    const struct etcd *e = etcd_in(s->seat.of);
    const struct ticket_facts facts = { .host = e->open.host,
                                        .pid = e->open.pid,
                                        .since_ms = etcd_ticket(s->seat.t)->since,
                                        .ttl_ms = ttl_s * 1000,
                                        .form = true,
                                        .token = true,
                                        .broken = s->marked,
                                        .kept_ms = kept_ms };

    return hf__record_write(value, s->seat.t, &facts);
}

/* The lease that its key was made with stays in its name, whatever lease it hangs on. */
size_t hf__etcd_seat_name(const struct ordered_seat *seat, char name[ORDERED_NAME_MAX])
{
    const struct etcd_seat *s = container_of(seat, struct etcd_seat, seat);

    return hf__etcd_node(name, s->key_lease, s->number);
}

static void explain(const struct ordered_seat *s, int why, hf_error *err)
{
    const struct ordered_entry *head = s->line->n > 0 ? s->line->entries[0] : NULL;
    const char *shown = etcd_in(s->of)->open.shown;

    if (why == HF_EMISMATCH)
        hf__mismatch(err, shown, s->t->name, head ? head->kind : LINE_LOCK,
                     head ? head->capacity : HF_FULL);
    else
        hf__fail(err, why, 0, shown, "%s", hf_strerror(why));
}

/* ---- creating ---------------------------------------------------------------------- */

static struct ordered_place place_of(const struct etcd_seat *s, int64_t create)
{
    const struct ticket *t = s->seat.t;

    return (struct ordered_place){ create, t->kind, t->weight, t->capacity };
}

/* Not another ticket's under the same name. */
static bool is_ours(const struct etcd_seat *s, const Hf__Etcd__RangeResponse *r)
{
    struct ticket_record rec;

    if (r->n_kvs != 1)
        return false;
    hf__record_read(&rec, r->kvs[0]->value.data, r->kvs[0]->value.len);
    return rec.has_token && memcmp(rec.token, s->seat.t->token, HF_TOKEN) == 0;
}

static void is_made(struct etcd_seat *s, enum seat_event event, int64_t create, int64_t mod)
{
    const struct ordered_place place = place_of(s, create);

    etcd_line(s->seat.line)->made++;
    s->seat.fence = (uint64_t)create;
    etcd_ticket(s->seat.t)->mod = mod;
    etcd_ticket(s->seat.t)->gone_at = 0;
    hf__ordered_there(&s->seat, event, &place, false, false);
}

/* 0: it may be made although there are others. */
static int would_hold(struct etcd_seat *s, const Hf__Etcd__RangeResponse *r, hf_error *err)
{
    struct etcd *e = etcd_in(s->seat.of);
    struct ordered_entry **entries = hf__etcd_entries(r, etcd_line(s->seat.line)->key_len);
    int rc;

    if (!entries)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a line");
    hf__ordered_sort(entries, r->n_kvs);
    rc = hf__ordered_would_hold(entries, r->n_kvs, s->seat.t);
    if (rc == HF_EMISMATCH)
        hf__mismatch(err, e->open.shown, s->seat.t->name, entries[0]->kind,
                     entries[0]->capacity);
    hf__ordered_entries_free(entries, r->n_kvs);
    return rc;
}

static void create_again(struct etcd_seat *s) /* unless it leaves */
{
    if (s->seat.state == SEAT_CREATING)
        send_create(s);
    else
        hf__ordered_step(&s->seat, SEAT_NOT_MADE, 0, NULL);
}

/* Its conditions were not met. taken: there is a key of that name. */
static void not_made(struct etcd_seat *s, bool taken, const Hf__Etcd__RangeResponse *line)
{
    hf_error err;
    int rc;

    if (s->tries && line && line->n_kvs > 0) {
        rc = would_hold(s, line, &err);
        s->tries = false;
        if (rc < 0)
            hf__ordered_step(&s->seat, SEAT_NOT_MADE, rc, rc == HF_EBUSY ? NULL : &err);
        else
            create_again(s);
        return;
    }
    if (taken) {
        choose_number(s, false);
        create_again(s);
        return;
    }
    s->lease->proved = false; /* the epoch is another, or has gone with the lease */
    list_push(&etcd_line(s->seat.line)->to_create, &s->seat.queue);
}

/* before: the line, without it; or NULL. The seat may be gone when that is told. */
static void is_created(struct etcd_seat *s, const Hf__Etcd__RangeResponse *before,
                       int64_t revision)
{
    struct etcd_line *line = etcd_line(s->seat.line);
    const struct ordered_place place = place_of(s, revision);
    bool lists = s->lists;
    char name[ORDERED_NAME_MAX];
    struct ordered_entry *entry =
        before ? hf__ordered_entry(&place, name, hf__etcd_seat_name(&s->seat, name)) : NULL;

    is_made(s, SEAT_MADE, revision, revision);
    if (entry)
        hf__etcd_line_listed(line, before, entry, revision, false);
    else if (lists)
        hf__ordered_unlisted(&line->line);
}

static void answer_create(struct etcd_conn *c, struct etcd_call *q,
                          const struct etcd_answer *a)
{
    const Hf__Etcd__TxnResponse *r = a ? a->body : NULL;
    const Hf__Etcd__RangeResponse *key, *list;
    struct ordered_line *line;
    hf_error err;
    int rc;
    struct etcd_seat *s = hf__etcd_seat_answered(c, q, a, &rc, &err);

    if (!s)
        return;
    line = s->seat.line;
    line->pins++;
    etcd_line(line)->creating = false;
    key = r && !r->succeeded ? hf__etcd_range_at(r, 0) : NULL;
    list = r && s->lists ? hf__etcd_range_at(r, r->succeeded ? 0 : 1) : NULL;
    if (s->lists && (rc < 0 || !r->succeeded))
        hf__ordered_unlisted(line);
    if (hf__etcd_no_lease(a))
        hf__etcd_lease_over(s->lease, false);
    if (rc < 0)
        hf__ordered_step(&s->seat, SEAT_NOT_MADE, hf__etcd_no_lease(a) ? HF_ELOST : rc,
                         &err);
    else if (r->succeeded)
        is_created(s, list, hf__etcd_revision(a));
    else if (key && is_ours(s, key))
        is_made(s, SEAT_MADE, key->kvs[0]->create_revision, key->kvs[0]->mod_revision);
    else
        not_made(s, key && key->n_kvs > 0, list);
    hf__etcd_create_next(etcd_line(line));
    hf__ordered_line_unpin(line);
}

static void send_create(struct etcd_seat *s)
{
    struct etcd *e = etcd_in(s->seat.of);
    struct ordered_line *l = s->seat.line;
    struct etcd_call *q = hf__etcd_seat_call(s, answer_create);
    struct etcd_ticket *t = etcd_ticket(s->seat.t);
    struct etcd_key key, line, epoch;
    char value[RECORD_MAX], end[2][KEY_MAX];
    struct etcd_txn txn;

    etcd_line(l)->creating = true;
    if (!s->chosen)
        choose_number(s, !e->keeps);
    t->key_lease = s->key_lease = s->lease->id;
    t->number = s->number;
    t->since = etcd_wall_ms(e);
    if (!q)
        return; /* the connection is given up */
    hf__etcd_seat_key(s, &key);
    hf__etcd_line_key_of(etcd_line(l), &line, "", 0);
    hf__etcd_epoch_key(&epoch, e, s->lease->id);
    hf__etcd_txn(&txn);
    hf__etcd_if_created(&txn, &key, 0);
    hf__etcd_if_changed(&txn, &epoch, s->lease->epoch);
    if (s->tries)
        hf__etcd_if_none(&txn, &line, end[0]);
    hf__etcd_get(&txn.otherwise, &key, NULL);
    if (s->tries)
        hf__etcd_get(&txn.otherwise, &line, end[0]);
    s->lists = s->tries || !hf__ordered_line_waits(l);
    if (s->lists) {
        l->lists++;
        hf__etcd_get(&txn.then, &line, end[1]);
    }
    hf__etcd_put(&txn.then, &key, value, hf__etcd_seat_value(s, value, s->lease->ttl_s, 0),
                 s->lease->id);
    hf__etcd_txn_send(e, &txn, q);
}

/* One that was to be made, and is not. If it leaves, and may have been sent on an older
 * connection, it is not known what becomes of that before there is a proof (lease.c). */
void hf__etcd_seat_not_made(struct etcd_seat *s, int rc, const hf_error *err)
{
    bool open = s->seat.state == SEAT_ABORTING && s->number != 0 && !s->lease->proved &&
                !s->lease->dead;

    hf__ordered_step(&s->seat, open ? SEAT_LOST : SEAT_NOT_MADE, rc, err);
}

/* The first whose lease is there: that of another may take a moment. One that leaves before
 * it was sent is not made, nor is one whose lease has ended: nobody would say more of it.
 */
void hf__etcd_create_next(struct etcd_line *line)
{
    list_for_safe(n, &line->to_create) {
        struct etcd_seat *s = container_of(n, struct etcd_seat, seat.queue);
        bool wanted = s->seat.state == SEAT_CREATING && !s->lease->dead;

        if (line->creating)
            break;
        if (wanted && !hf__etcd_lease_ready(s->lease))
            continue;
        list_remove(n);
        if (wanted)
            send_create(s);
        else
            hf__etcd_seat_not_made(s, HF_ELOST, NULL);
    }
    hf__etcd_line_list_due(line);
}

static void create(struct ordered_seat *seat)
{
    struct etcd_seat *s = etcd_seat(seat);

    s->tries = seat->t->try_only;
    list_push(&etcd_line(seat->line)->to_create, &seat->queue);
    hf__etcd_create_next(etcd_line(seat->line));
}

/* ---- reading its key --------------------------------------------------------------- */

static void read_key(struct etcd_seat *s, etcd_answered *answer, bool strict)
{
    struct etcd *e = etcd_in(s->seat.of);
    struct etcd_call *q = hf__etcd_seat_call(s, answer);
    Hf__Etcd__RangeRequest r;
    struct etcd_key key;

    hf__etcd_seat_key(s, &key);
    hf__etcd_range(&r, &key, NULL);
    r.serializable = !strict;
    hf__etcd_send(&e->conn, q, ETCD_RANGE, &r);
}

static void answer_find(struct etcd_conn *c, struct etcd_call *q,
                        const struct etcd_answer *a)
{
    const Hf__Etcd__RangeResponse *r = a ? a->body : NULL;
    const Hf__Etcd__KeyValue *kv;
    hf_error err;
    int rc;
    struct etcd_seat *s = hf__etcd_seat_answered(c, q, a, &rc, &err);

    if (!s)
        return;
    kv = rc == 0 && is_ours(s, r) ? r->kvs[0] : NULL;
    if (rc < 0) {
        hf__ordered_step(&s->seat, SEAT_NOT_FOUND, rc, &err);
    } else if (!kv && s->seat.state == SEAT_SEEKING && s->lease && !s->lease->dead &&
               s->lease->id != 0 && !hf__etcd_lease_ready(s->lease)) {
        hf__ordered_step(&s->seat, SEAT_NOT_FOUND, HF_EUNKNOWN, NULL);
    } else if (!kv) {
        hf__ordered_step(&s->seat, SEAT_FOUND_NONE, 0, NULL);
    } else if (s->seat.state == SEAT_FINDING && s->lease && kv->lease != s->lease->id) {
        s->seat.fence = (uint64_t)kv->create_revision;
        hf__ordered_step(&s->seat, SEAT_FOUND_OLD, HF_ELOST, NULL);
    } else {
        is_made(s, SEAT_FOUND, kv->create_revision, kv->mod_revision);
    }
}

static void find(struct ordered_seat *seat)
{
    struct etcd_seat *s = etcd_seat(seat);

    s->key_lease = etcd_ticket(seat->t)->key_lease;
    s->number = etcd_ticket(seat->t)->number;
    read_key(s, answer_find, true);
}

static void answer_confirm(struct etcd_conn *c, struct etcd_call *q,
                           const struct etcd_answer *a)
{
    const Hf__Etcd__RangeResponse *r = a ? a->body : NULL;
    hf_error err;
    int rc;
    struct etcd_seat *s = hf__etcd_seat_answered(c, q, a, &rc, &err);
    bool there;

    if (!s)
        return;
    there =
        rc == 0 && r->n_kvs == 1 && r->kvs[0]->create_revision == (int64_t)s->seat.fence;
    if (there && s->seat.state == SEAT_WAITING && r->kvs[0]->lease != s->lease->id)
        hf__etcd_seat_kept(s); /* our lease says nothing about it */
    else if (!hf__ordered_confirmed(&s->seat, rc, there,
                                    rc == 0 ? (uint64_t)hf__etcd_revision(a) : 0))
        hf__etcd_seat_missed(s);
}

static void confirm(struct ordered_seat *seat, bool strict)
{
    read_key(etcd_seat(seat), answer_confirm, strict);
}

/* ---- deleting ---------------------------------------------------------------------- */

static void answer_erase(struct etcd_conn *c, struct etcd_call *q,
                         const struct etcd_answer *a)
{
    hf_error err;
    int rc;
    struct etcd_seat *s = hf__etcd_seat_answered(c, q, a, &rc, &err);

    if (s)
        hf__ordered_step(&s->seat, rc == 0 ? SEAT_DELETED : SEAT_NOT_DELETED, rc,
                         rc < 0 ? &err : NULL);
}

/* It stays in the view, as somebody else's. */
static void answer_keep(struct etcd_conn *c, struct etcd_call *q,
                        const struct etcd_answer *a)
{
    const Hf__Etcd__TxnResponse *r = a ? a->body : NULL;
    struct etcd_seat *s = q->with;

    etcd_at(c)->keeps = true;
    if (r && r->succeeded && s->seat.entry) {
        s->seat.entry->seat = NULL;
        s->seat.entry = NULL;
    }
    answer_erase(c, q, a);
}

static void answer_keep_lease(struct etcd_conn *c, struct etcd_call *q,
                              const struct etcd_answer *a)
{
    const Hf__Etcd__LeaseGrantResponse *r = a ? a->body : NULL;
    struct etcd *e = etcd_at(c);
    struct etcd_call *next;
    char value[RECORD_MAX];
    struct etcd_txn txn;
    struct etcd_key key;
    hf_error err;
    int rc;
    struct etcd_seat *s = hf__etcd_seat_answered(c, q, a, &rc, &err);

    if (!s)
        return;
    next = rc == 0 ? hf__etcd_seat_call(s, answer_keep) : NULL;
    if (rc < 0)
        hf__ordered_step(&s->seat, SEAT_NOT_DELETED, rc, &err);
    if (!next)
        return;
    hf__etcd_seat_key(s, &key);
    hf__etcd_txn(&txn);
    hf__etcd_if_created(&txn, &key, (int64_t)s->seat.fence);
    hf__etcd_put(&txn.then, &key, value,
                 hf__etcd_seat_value(s, value, r->ttl, etcd_wall_ms(e) + r->ttl * 1000),
                 r->id);
    hf__etcd_txn_send(e, &txn, next);
}

static void erase(struct ordered_seat *seat, bool placed)
{
    struct etcd_seat *s = etcd_seat(seat);
    struct etcd *e = etcd_in(seat->of);
    bool keeps = seat->state == SEAT_DELETING && seat->t && seat->t->keep_ms > 0;
    struct etcd_call *q = hf__etcd_seat_call(s, keeps ? answer_keep_lease : answer_erase);
    bool plain = s->chosen && !s->erased;
    Hf__Etcd__DeleteRangeRequest r = HF__ETCD__DELETE_RANGE_REQUEST__INIT;
    struct etcd_txn txn;
    struct etcd_key key;

    (void)placed;
    if (!q)
        return;
    if (keeps) {
        hf__etcd_grant(e, q, seat->t->keep_ms);
        return;
    }
    hf__etcd_seat_key(s, &key);
    s->erased = true;
    if (plain) {
        r.key = hf__etcd_bytes(key.at, key.len);
        hf__etcd_send(&e->conn, q, ETCD_DELETE_RANGE, &r);
        return;
    }
    hf__etcd_txn(&txn);
    hf__etcd_if_created(&txn, &key, (int64_t)seat->fence);
    hf__etcd_delete(&txn.then, &key);
    hf__etcd_txn_send(e, &txn, q);
}

/* ---- verbs ------------------------------------------------------------------------- */

static void no_memory(struct ordered *o)
{
    hf__link_fail(&etcd_in(o)->conn.link, HF_ENOMEM, "no memory for a line");
}

const struct ordered_ops hf__etcd_ordered = {
    .seat = new_seat,
    .seat_free = free_seat,
    .line_free = hf__etcd_line_free,
    .name = hf__etcd_seat_name,
    .find = find,
    .create = create,
    .erase = erase,
    .list = hf__etcd_line_list,
    .watch = hf__etcd_line_watch,
    .unwatch = hf__etcd_unwatch,
    .confirm = confirm,
    .explain = explain,
    .no_memory = no_memory,
};

void hf__etcd_join(struct store *store, struct ticket *t)
{
    struct etcd *e = etcd_of(store);
    struct etcd_lease *l;
    hf_error err;

    if (!t->drv_ptr) {
        l = hf__etcd_lease(e, t->ttl_ms, &err);
        if (!l) {
            ev_gone(t, err.code, -1, &err);
            return;
        }
        hf__hang(t, l->life);
    }
    hf__ordered_join(&e->ordered, t);
}

void hf__etcd_leave(struct store *store, struct ticket *t)
{
    hf__ordered_leave(&etcd_of(store)->ordered, t);
}
