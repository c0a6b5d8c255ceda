/* change.c: amending a hold, breaking a ticket that is not ours, and prolonging a kept
 * one, which has no owner.
 *
 * Each enters the gate once and names the ticket by its token (G8). A ticket that is not
 * there is reported, and nothing changes. An eviction without `now` only marks the hold:
 * its expiry stays as its owner last set it and cannot be renewed, so the line moves when
 * the owner's own deadline has passed (G1). With `now` the next is admitted at once, and
 * only the fence protects the resource.
 */
#include "driver/local/local.h"

#include <string.h>

struct amend {
    struct ticket *t;
    struct key key;
    bool found;
};

static int amend(struct tx *tx, void *arg)
{
    struct amend *a = arg;
    const struct ticket *t = a->t;
    struct local_holder *h;
    struct local_line *l;
    int rc;

    a->found = false;
    if ((rc = hf__local_line_load(tx, &a->key, &l)) < 0)
        return rc;
    h = hf__local_line_find(l, t->token);
    if (!h || h->f.expires_at <= tx->now)
        return TX_READ;
    a->found = true;
    h->note = t->note;
    h->f.note_len = (uint16_t)strlen(t->note);
    h->f.owner = t->owner;
    if (t->weight < h->f.weight) {
        l->sum -= h->f.weight - t->weight;
        h->f.weight = t->weight;
    }
    if ((rc = hf__local_line_step(tx, &a->key, l)) < 0)
        return rc;
    return hf__local_line_save(tx, &a->key, l);
}

static int run_amend(struct local *ls, void *of)
{
    struct amend a;
    int rc;

    a.t = of;
    hf__local_key_name(&a.key, TABLE_LINE, ls->ns, a.t->name, a.t->name_len);
    rc = hf__local_tx_run(ls, amend, &a, true, NULL);
    if (rc == HF_EBUSYSTORE)
        return rc;
    if (rc == 0)
        hf__local_deliver(ls);
    ev_amended(a.t, rc < 0 ? rc : a.found ? 0 : HF_ELOST);
    return 0;
}

static void fail_amend(struct local *ls, void *of, int rc, const hf_error *err)
{
    (void)ls;
    (void)err;
    ev_amended(of, rc);
}

static const struct verb amend_verb = { .run = run_amend,
                                        .fail = fail_amend,
                                        .limit_ms = hf__local_gate_limit,
                                        .of_ticket = true };

void hf__local_amend(struct store *store, struct ticket *t)
{
    run_verb(local_of(store), &amend_verb, t);
}

struct evict {
    const struct look *look;
    struct key key;
    bool found;
};

static int evict_holder(struct tx *tx, const struct evict *e, struct local_line *l,
                        struct local_holder *h)
{
    uint64_t process = h->f.process, member = h->f.member;
    enum inbox_kind kind = INBOX_MARKED;
    int rc;

    if (e->look->now || process == 0) {
        kind = INBOX_EVICTED;
        hf__local_line_drop(l, (size_t)(h - l->holders));
    } else
        h->f.flags |= HOLDER_BROKEN;
    if ((rc = hf__local_tell(tx, process, member, kind, e->look->token, 0, 0)) < 0 ||
        (rc = hf__local_line_step(tx, &e->key, l)) < 0)
        return rc;
    return hf__local_line_save(tx, &e->key, l);
}

static int evict_waiter(struct tx *tx, struct evict *e, struct local_line *l)
{
    uint64_t seq = UINT64_MAX;
    struct local_waiter w;
    int rc;

    while ((rc = hf__local_queue_before(tx, l, seq, &w)) == 0) {
        seq = w.seq;
        if (memcmp(w.f.token, e->look->token, HF_TOKEN) == 0)
            break;
    }
    if (rc != 0)
        return rc < 0 ? rc : TX_READ;
    e->found = true;
    if ((rc = hf__local_queue_remove(tx, l, seq)) < 0 ||
        (rc = hf__local_tell(tx, w.f.process, w.f.member, INBOX_EVICTED, w.f.token, 0, 0)) <
            0 ||
        (rc = hf__local_line_step(tx, &e->key, l)) < 0)
        return rc;
    return hf__local_line_save(tx, &e->key, l);
}

/* Only of a ticket that its owner has left, or as good as, and that nobody has broken
 * before. */
static int keep_on(struct tx *tx, struct evict *e, struct local_line *l,
                   struct local_holder *h)
{
    int rc;

    if (!h || (h->f.process != 0 && !e->look->orphan) || (h->f.flags & HOLDER_BROKEN))
        return TX_READ;
    e->found = true;
    if ((rc = hf__local_line_keep(tx, l, h, e->look->keep_ms)) < 0 ||
        (rc = hf__local_line_step(tx, &e->key, l)) < 0)
        return rc;
    return hf__local_line_save(tx, &e->key, l);
}

static int evict(struct tx *tx, void *arg)
{
    struct evict *e = arg;
    struct local_holder *h;
    struct local_line *l;
    int rc;

    e->found = false;
    if ((rc = hf__local_line_load(tx, &e->key, &l)) < 0 ||
        (rc = hf__local_line_clean(tx, l)) < 0)
        return rc;
    h = hf__local_line_find(l, e->look->token);
    if (e->look->keep_ms > 0)
        return keep_on(tx, e, l, h);
    if (!h)
        return l->f.waiters > 0 ? evict_waiter(tx, e, l) : TX_READ;
    e->found = true;
    return evict_holder(tx, e, l, h);
}

static int run_evict(struct local *ls, void *of)
{
    struct look *look = of;
    struct evict e;
    hf_error err;
    int rc;

    e.look = look;
    hf__local_key_name(&e.key, TABLE_LINE, ls->ns, look->name, look->name_len);
    rc = hf__local_tx_run(ls, evict, &e, false, &err);
    if (rc == HF_EBUSYSTORE)
        return rc;
    if (rc == 0)
        hf__local_deliver(ls);
    if (rc == 0 && !e.found)
        rc = hf__fail(&err, HF_ENOENT, 0, ls->sh->path, "no such %sticket",
                      look->keep_ms > 0 ? "kept " : "");
    ev_done(look, NULL, rc, rc < 0 ? &err : NULL);
    return 0;
}

static void fail_evict(struct local *ls, void *of, int rc, const hf_error *err)
{
    (void)ls;
    ev_done(of, NULL, rc, err);
}

static const struct verb evict_verb = { .run = run_evict,
                                        .fail = fail_evict,
                                        .limit_ms = hf__local_gate_limit };

void hf__local_evict(struct store *store, struct look *look)
{
    run_verb(local_of(store), &evict_verb, look);
}
