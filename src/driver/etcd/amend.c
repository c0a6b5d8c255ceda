/* amend.c: another note, owner or ttl of a held ticket; an exclusive one that becomes
 * shared. All of it is a put of the key, whose creation, and so its place and its fence,
 * stays; another ttl is another lease.
 *
 * Written under the revision of the value that we know, so that the mark of `break` is
 * never overwritten, and a put that a lost connection has left under way does nothing once
 * another has been done: if the revision is another, the value is read, and it is written
 * again.
 *
 * Another lease: from its call on the core counts the new ttl, because the answer may be
 * lost when the key hangs on that lease already. A lease that was there before may have
 * been renewed long ago. So it is renewed first (G1), by a keep-alive that is sent after
 * the call; a lease that is granted for it needs none. */
#include "driver/etcd/etcd.h"

static void drop_move(struct etcd_seat *s)
{
    if (s->moves)
        s->moves->seats--;
    s->moves = NULL;
}

/* One that `break` has marked has a life of its own, which is not renewed. Its deadline was
 * that of the old lease: it is not later than that of the new one (G1). */
static void move_life(struct ticket *t, struct life *l)
{
    if (t->life->kind == LIFE_WIDE) {
        hf__hang(t, l);
    } else if (l->sent_at + l->given_ms * 1000 <
               t->life->sent_at + t->life->given_ms * 1000) {
        t->life->sent_at = l->sent_at;
        t->life->given_ms = l->given_ms;
    }
}

static void is_amended(struct etcd_seat *s, int64_t revision)
{
    struct ticket *t = s->seat.t;
    struct ordered_line *line = s->seat.line;

    etcd_ticket(t)->mod = revision;
    line->pins++;
    if (s->moves) {
        s->lease->seats--;
        s->lease = s->moves;
        s->moves = NULL;
        move_life(t, s->lease->life);
    }
    if (s->seat.entry)
        hf__ordered_lighter(line, s->seat.entry, t->weight);
    if (s->lease->dead) { /* it has ended meanwhile, and the key with it */
        line->stale = true;
        ev_dead(t->life);
        hf__ordered_step(&s->seat, SEAT_SESSION_OVER, 0, NULL);
    } else {
        ev_amended(t, 0);
    }
    hf__ordered_decide(line, false); /* those behind it in this client */
    hf__ordered_line_unpin(line);
}

static void answer_amend(struct etcd_conn *c, struct etcd_call *q,
                         const struct etcd_answer *a)
{
    const Hf__Etcd__TxnResponse *r = a ? a->body : NULL;
    const Hf__Etcd__RangeResponse *key;
    struct ticket_record rec;
    hf_error err;
    int rc;
    struct etcd_seat *s = hf__etcd_seat_answered(c, q, a, &rc, &err);

    if (!s || s->seat.state != SEAT_HELD)
        return;
    key = rc == 0 ? hf__etcd_range_at(r, 0) : NULL;
    if (rc < 0) {
        drop_move(s);
        ev_amended(s->seat.t, rc);
    } else if (r->succeeded) {
        is_amended(s, hf__etcd_revision(a));
    } else if (!key || key->n_kvs == 0 ||
               key->kvs[0]->create_revision != (int64_t)s->seat.fence) {
        drop_move(s);
        hf__etcd_seat_missed(s);
        ev_amended(s->seat.t, HF_ELOST);
    } else {
        hf__record_read(&rec, key->kvs[0]->value.data, key->kvs[0]->value.len);
        etcd_ticket(s->seat.t)->mod = key->kvs[0]->mod_revision;
        s->marked = s->marked || rec.broken; /* the core is told by the watch */
        hf__etcd_amend_now(s);
    }
}

/* The lease that it goes to is there, and was renewed since. If not, another try comes with
 * the answer. */
static bool may_move(struct etcd_seat *s)
{
    struct etcd_lease *l = s->moves;

    s->to_amend = true;
    if (!hf__etcd_lease_ready(l))
        return false;
    if (l->alive_at < etcd_ticket(s->seat.t)->moves_at) {
        l->awaited = true;
        hf__etcd_lease_check(l);
        return false;
    }
    s->to_amend = false;
    return true;
}

void hf__etcd_amend_now(struct etcd_seat *s)
{
    struct etcd *e = etcd_in(s->seat.of);
    const struct etcd_lease *l = s->moves ? s->moves : s->lease;
    char value[RECORD_MAX];
    struct etcd_txn txn;
    struct etcd_key key;

    if (s->moves && s->moves->dead) {
        hf__etcd_amend(&e->store, s->seat.t); /* by another one */
        return;
    }
    if (s->moves && !may_move(s))
        return;
    hf__etcd_seat_key(s, &key);
    hf__etcd_txn(&txn);
    hf__etcd_if_changed(&txn, &key, etcd_ticket(s->seat.t)->mod);
    hf__etcd_put(&txn.then, &key, value, hf__etcd_seat_value(s, value, l->ttl_s, 0), l->id);
    hf__etcd_get(&txn.otherwise, &key, NULL);
    hf__etcd_txn_send(e, &txn, hf__etcd_seat_call(s, answer_amend));
}

void hf__etcd_amend(struct store *store, struct ticket *t)
{
    struct ordered_seat *seat = t->drv_ptr;
    struct etcd_seat *s = seat ? etcd_seat(seat) : NULL;
    hf_error err;

    if (!s || seat->state != SEAT_HELD) {
        ev_amended(t, HF_ELOST);
        return;
    }
    drop_move(s);
    if ((t->ttl_ms + 999) / 1000 != s->lease->ttl_s) {
        s->moves = hf__etcd_lease(etcd_of(store), t->ttl_ms, &err);
        if (!s->moves) {
            ev_amended(t, err.code);
            return;
        }
        s->moves->seats++;
        etcd_ticket(t)->moves_at = etcd_now(etcd_of(store));
    }
    hf__etcd_amend_now(s);
}
