/* lease.c: leases: one for each ttl that is asked for, in whole seconds, rounded up; at
 * most LEASES_MAX, of which those that nobody uses give way. One that nobody has used for
 * some ttls is revoked. Kept tickets and cells that expire have leases of their own
 * (hf__etcd_ grant), which nobody renews.
 *
 * G1: the leader counts the ttl from when a keep-alive reaches it, so a lease lives at
 * least until the sending of the last answered keep-alive (or of the grant) + ttl; a new
 * leader starts all leases anew, which only makes them longer. What is sent when that time
 * is over by our own clock proves nothing: such a lease is given up, whatever the server
 * says. Nothing else of what we send renews it.
 *
 * G7, the epoch. A create that a lost connection has left under way may be carried out
 * later, at any time; its lease is renewed for the others, so that ticket would stand in
 * line for ever. So every create compares the revision of the key <base>/client/<lease>,
 * which is 0 as long as there is none. Before a new connection is said to be up, that key
 * is written (a proof): from then on the old creates do nothing. The proof also says
 * whether the lease is there. The key hangs on the lease and goes with it.
 *
 * States of a lease: not granted (id 0) -> granted, proved -> (connection lost) not proved
 * -> proved ... -> dead. Creates wait for a lease that is not proved. If a
 * proof is refused, because the database is full or rights were taken, the connection comes
 * up all the same: what is held is renewed, and creates ask for a proof again, and so do
 * leaves of tickets that are not found, which are not settled before there is one. */
#include "driver/etcd/etcd.h"

#include <stdlib.h>

enum { IDLE_BEATS = 12 }; /* thirds of the shortest ttl */

/* ---- objects ----------------------------------------------------------------------- */

void hf__etcd_lease_free(struct etcd_lease *l)
{
    list_remove(&l->node);
    hf__life_free(l->life);
    free(l);
}

static bool unused(const struct etcd_lease *l)
{
    return l->life->ntickets == 0 && l->seats == 0;
}

void hf__etcd_leases_tidy(struct etcd *e)
{
    list_for_safe(n, &e->old) {
        struct etcd_lease *l = container_of(n, struct etcd_lease, node);

        if (unused(l))
            hf__etcd_lease_free(l);
    }
}

static struct etcd_lease *new_lease(struct etcd *e, int64_t ttl_s)
{
    struct etcd_lease *l = calloc(1, sizeof *l);

    if (!l)
        return NULL;
    l->life = hf__life_new(&e->store, LIFE_WIDE, ttl_s * 1000);
    if (!l->life) {
        free(l);
        return NULL;
    }
    l->life->drv[0] = (uint64_t)(uintptr_t)l;
    l->of = e;
    l->ttl_s = ttl_s;
    list_push(&e->leases, &l->node);
    return l;
}

struct etcd_lease *hf__etcd_lease(struct etcd *e, int64_t ttl_ms, hf_error *err)
{
    int64_t ttl_s = (ttl_ms + 999) / 1000;
    struct etcd_lease *idle = NULL, *l;
    size_t n = 0;

    list_for_safe(at, &e->leases) {
        l = container_of(at, struct etcd_lease, node);
        if (l->ttl_s == ttl_s && hf__etcd_lease_late(l)) {
            hf__etcd_lease_over(l, true);
            continue;
        }
        if (l->ttl_s == ttl_s)
            return l;
        idle = unused(l) && !idle ? l : idle;
        n++;
    }
    if (n >= LEASES_MAX && !idle) {
        hf__fail(err, HF_ENOTSUP, 0, e->open.shown,
                 "a ttl of %lld s: %d others are in use, and a client has no more leases",
                 (long long)ttl_s, (int)LEASES_MAX);
        return NULL;
    }
    if (n >= LEASES_MAX)
        hf__etcd_lease_over(idle, true);
    l = new_lease(e, ttl_s);
    if (!l)
        hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a lease");
    return l;
}

static struct etcd_lease *answered(struct etcd_call *q)
{
    struct etcd_lease *l = q->with;

    l->seats--;
    return l;
}

static struct etcd_call *ask(struct etcd_lease *l, etcd_answered *answer)
{
    struct etcd_call *q = hf__etcd_ask(&l->of->conn, answer, l);

    l->seats += q != NULL; /* until it is answered */
    return q;
}

/* ---- the end ----------------------------------------------------------------------- */

static void revoked(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    bool last = !answered(q)->dead; /* of those that the store is shut with */
    struct etcd *e = etcd_at(c);
    hf_error err;

    hf__etcd_leases_tidy(e);
    if (!e->shut)
        hf__etcd_result(e, a, &err);
    else if (last && a && --e->unproved == 0)
        ev_shut(&e->store);
}

static void revoke(struct etcd *e, struct etcd_call *q, int64_t id)
{
    Hf__Etcd__LeaseRevokeRequest r = HF__ETCD__LEASE_REVOKE_REQUEST__INIT;

    r.id = id;
    hf__etcd_send(&e->conn, q, ETCD_LEASE_REVOKE, &r);
}

static void given_back(struct etcd_conn *c, struct etcd_call *q,
                       const struct etcd_answer *a)
{
    hf_error err;

    (void)q;
    if (!etcd_at(c)->shut)
        hf__etcd_result(etcd_at(c), a, &err);
}

void hf__etcd_give_back(struct etcd *e, int64_t id)
{
    if (id != 0)
        revoke(e, hf__etcd_ask(&e->conn, given_back, NULL), id);
}

void hf__etcd_lease_over(struct etcd_lease *l, bool with_revoke)
{
    struct etcd *e = l->of;

    if (l->dead)
        return;
    l->dead = true;
    list_remove(&l->node);
    list_push(&e->old, &l->node);
    if (with_revoke && l->id != 0)
        revoke(e, ask(l, revoked), l->id);
    hf__etcd_lines_over(e, l);
    ev_dead(l->life);
}

void hf__etcd_leases_end(struct etcd *e)
{
    e->unproved = 1;
    list_for_safe(n, &e->leases) {
        struct etcd_lease *l = container_of(n, struct etcd_lease, node);

        e->unproved += l->id != 0;
        if (l->id != 0)
            revoke(e, ask(l, revoked), l->id);
    }
    if (--e->unproved == 0)
        ev_shut(&e->store);
}

/* ---- granting and proving ---------------------------------------------------------- */

void hf__etcd_grant(struct etcd *e, struct etcd_call *q, int64_t ttl_ms)
{
    Hf__Etcd__LeaseGrantRequest r = HF__ETCD__LEASE_GRANT_REQUEST__INIT;

    r.ttl = (ttl_ms + 999) / 1000;
    hf__etcd_send(&e->conn, q, ETCD_LEASE_GRANT, &r);
}

static void granted(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    const Hf__Etcd__LeaseGrantResponse *r = a ? a->body : NULL;
    struct etcd_lease *l = answered(q);
    struct etcd *e = etcd_at(c);
    hf_error err;
    int rc = hf__etcd_result(e, a, &err);

    l->asked = false;
    if (rc > 0 || l->dead)
        return;
    if (rc == 0) {
        l->id = r->id;
        l->proved = true; /* no connection before this one knows it */
        l->alive_at = q->call.sent_at;
        ev_alive(l->life, q->call.sent_at, r->ttl * 1000);
        if (!timer_armed(&e->pulse) ||
            e->pulse.node.key > etcd_now(e) + renewals_us(l->ttl_s * 1000, 1))
            hf__etcd_pulse_later(e);
    }
    hf__etcd_lease_made(l, rc, &err);
}

static void proved(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    struct etcd_lease *l = answered(q);
    struct etcd *e = etcd_at(c);
    hf_error err;
    int rc = hf__etcd_result(e, a, &err);

    l->asked = false;
    if (rc > 0 || l->dead || e->shut)
        return;
    if (rc == 0) {
        l->epoch = hf__etcd_revision(a);
        l->proved = true;
    } else if (hf__etcd_no_lease(a)) {
        hf__etcd_lease_over(l, false);
    }
    if (e->conn.link.state == LINK_SETTLING)
        hf__etcd_settled(e);
    else if (!l->dead)
        hf__etcd_lease_made(l, rc, &err);
}

void hf__etcd_lease_prove(struct etcd_lease *l)
{
    Hf__Etcd__PutRequest r = HF__ETCD__PUT_REQUEST__INIT;
    struct etcd_call *q = ask(l, proved);
    struct etcd_key k;

    l->asked = true;
    hf__etcd_epoch_key(&k, l->of, l->id);
    r.key = hf__etcd_bytes(k.at, k.len);
    r.lease = l->id;
    hf__etcd_send(&l->of->conn, q, ETCD_PUT, &r);
}

bool hf__etcd_lease_ready(struct etcd_lease *l)
{
    struct etcd_call *q;

    if (l->id != 0 && l->proved)
        return true;
    if (!l->asked && l->id != 0) {
        hf__etcd_lease_prove(l);
    } else if (!l->asked && (q = ask(l, granted)) != NULL) {
        l->asked = true;
        hf__etcd_grant(l->of, q, l->ttl_s * 1000);
    }
    return false;
}

void hf__etcd_leases_down(struct etcd *e)
{
    list_for(n, &e->leases) {
        struct etcd_lease *l = container_of(n, struct etcd_lease, node);

        l->asked = l->proved = false;
    }
    hf__etcd_leases_tidy(e);
}

/* ---- keeping alive ----------------------------------------------------------------- */

bool hf__etcd_lease_late(const struct etcd_lease *l)
{
    const struct life *life = l->life;

    return l->id != 0 && etcd_now(l->of) >= life->sent_at + life->given_ms * 1000 -
                                                drift_us(life->given_ms);
}

static void alive(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    const Hf__Etcd__LeaseKeepAliveResponse *r = a ? a->body : NULL;
    struct etcd_lease *l = answered(q);
    struct etcd *e = etcd_at(c);

    e->store.awaits = false;
    if (!r || l->dead)
        return;
    if (r->ttl <= 0) {
        hf__etcd_lease_over(l, false);
        return;
    }
    l->alive_at = q->call.sent_at;
    ev_alive(l->life, q->call.sent_at, r->ttl * 1000);
    if (l->awaited)
        hf__etcd_lease_lives(l);
}

/* One that is late is over: it must not be granted by, and is not renewed. */
void hf__etcd_lease_check(struct etcd_lease *l)
{
    Hf__Etcd__LeaseKeepAliveRequest r = HF__ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;

    if (l->dead || l->id == 0)
        return;
    if (hf__etcd_lease_late(l)) {
        hf__etcd_lease_over(l, true);
        return;
    }
    r.id = l->id;
    hf__etcd_send(&l->of->conn, ask(l, alive), ETCD_KEEP_ALIVE, &r);
}

void hf__etcd_renew(struct store *s, struct life *const *lives, size_t n)
{
    struct etcd *e = etcd_of(s);

    for (size_t i = 0; i < n; i++)
        if (lives[i]->kind == LIFE_WIDE)
            hf__etcd_lease_check(etcd_lease_of(lives[i]));
    hf__ordered_look_again(&e->ordered);
}

void hf__etcd_pulse_later(struct etcd *e)
{
    struct env *env = e->store.env;
    int64_t least = 0;

    list_for(n, &e->leases) {
        const struct etcd_lease *l = container_of(n, struct etcd_lease, node);

        if (least == 0 || l->ttl_s < least)
            least = l->ttl_s;
    }
    env->timer(env, &e->pulse,
               least > 0 ? etcd_now(e) + renewals_us(least * 1000, 1) : LOOP_NEVER);
}

/* All that the core has not just renewed: those without tickets, so that the next acquire
 * finds them, and those that a ticket has just come to. */
void hf__etcd_pulse(struct timer *t)
{
    struct etcd *e = container_of(t, struct etcd, pulse);

    hf__ordered_erase_again(&e->ordered);
    list_for_safe(n, &e->leases) {
        struct etcd_lease *l = container_of(n, struct etcd_lease, node);

        l->idle = unused(l) && l->id != 0 ? l->idle + 1 : 0;
        if (l->idle > IDLE_BEATS) {
            hf__etcd_lease_over(l, true);
        } else if (l->id != 0 &&
                   etcd_now(e) >= l->life->sent_at + renewals_us(l->ttl_s * 1000, 1) / 2) {
            e->store.awaits = true;
            hf__etcd_lease_check(l);
        }
    }
    hf__etcd_leases_tidy(e);
    hf__etcd_pulse_later(e);
    hf__link_flush(&e->dirty);
}
