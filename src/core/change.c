/* change.c: operations on what is held: amend (note, downgrade, another ttl on a shared
 * life) and renewal by hand.
 *
 * Each is the changer of its hold until the store has answered. An amend tells the store
 * the whole present state of the ticket (note, owner, weight, ttl); one is under way at a
 * time, and what changes meanwhile is told by another one behind it, so an answer is never
 * about something else. A change without an answer is repeated when the store can be
 * reached again, even if the operation that asked for it has given up: on this side the
 * change already counts.
 *
 * A renewal of a ticket's own life is answered by the first proof of life that was sent
 * after it was asked for. A life that is shared (a session) is renewed for all its tickets
 * anyway: any proof of life answers, and the hold itself counts its ttl anew from when it
 * was asked for.
 *
 * A hold that is lost ends them with HF_ELOST; without an answer in time they end with
 * HF_EUNKNOWN (G7). */
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

void hf__op_changes(struct hf_op *op, struct hold *h)
{
    if (op->changes)
        op->changes->changer = NULL;
    op->changes = h;
    if (h)
        h->changer = op;
}

static int start_change(struct hf_op *op, struct hold *h)
{
    struct client *c = op->client;

    if (h->state != TICKET_HELD || h->lost)
        return hf__fail(op->err, HF_ELOST, 0, c->url.shown, "the lock was lost: '%s'",
                        h->t.name);
    if (h->changer)
        return hf__fail(op->err, HF_EBUSY, 0, c->url.shown,
                        "another change of the hold on '%s' is under way", h->t.name);
    return 0;
}

int hf__amend(struct hf_op *op, struct hold *h, const char *note, bool downgrade)
{
    int rc = start_change(op, h);

    if (rc < 0)
        return rc;
    if (downgrade && (h->t.kind != LINE_LOCK || !(h->client->caps & HF_CAP_SHARED)))
        return hf__fail(op->err, HF_ENOTSUP, 0, op->client->url.shown,
                        "'%s' cannot become a shared lock", h->t.name);
    /* another handle may rely on the lock being exclusive */
    if (downgrade && hold_is_shared(h))
        return hf__fail(op->err, HF_EBUSY, 0, op->client->url.shown,
                        "'%s' is held by several handles", h->t.name);
    if (note) {
        char *copy = strdup(note);

        if (!copy)
            return hf__fail(op->err, HF_ENOMEM, 0, NULL, "no memory for a note");
        free(hold_late_note(h));
        h->t.note = copy;
    }
    if (downgrade)
        h->t.weight = 1;
    hf__op_changes(op, h);
    hf__hold_amend(h);
    hf__op_wait_store(op);
    return 0;
}

/* Another ttl on a life that others share means another life: the driver moves the ticket
 * there, by an amend. Until that is answered the store may count either of both: the old
 * life, which is renewed for its other tickets, or the new one, which nobody renews yet,
 * from the sending on. So the hold ends with the earlier of the two (G1), whatever is
 * renewed meanwhile, even if the operation has given up. */
struct ttl_move {
    int64_t began_at;   /* the last request for it */
    int64_t old_ttl_ms; /* what to go back to if it is refused */
    int64_t old_end_at;
    unsigned sent; /* how often: a refusal says nothing about those before it */
};

static int move_to_ttl(struct hf_op *op, struct hold *h, int64_t ttl_ms)
{
    struct ttl_move *m = h->move ? h->move : malloc(sizeof *m);
    int64_t now = op->client->env->now(op->client->env), end_at;

    if (!m)
        return hf__fail(op->err, HF_ENOMEM, 0, NULL, "no memory for another ttl");
    if (!h->move)
        *m = (struct ttl_move){ .old_ttl_ms = h->t.ttl_ms, .old_end_at = h->ends_at };
    m->began_at = now;
    h->move = m;
    if (ttl_ms > 0)
        h->t.ttl_ms = ttl_ms;
    end_at = hf__until(now, h->t.ttl_ms);
    hf__hold_end_at(h, end_at < h->ends_at ? end_at : h->ends_at);
    op->kind = OP_AMEND;
    hf__hold_amend(h);
    return 0;
}

void hf__ttl_sent(struct hold *h)
{
    if (h->state == TICKET_HELD && h->move)
        h->move->sent++;
}

void hf__ttl_amended(struct hold *h, int rc)
{
    struct ttl_move *m = h->move;

    if (!m || rc == HF_EUNKNOWN)
        return; /* it is repeated */
    h->move = NULL;
    if (rc == 0) {
        hf__hold_count_anew(h, m->began_at);
    } else {
        h->t.ttl_ms = m->old_ttl_ms;
        if (m->sent <= 1)
            hf__hold_end_at(h, m->old_end_at);
    }
    free(m);
}

/* A renewal by hand of a ticket's own life, or of one that others share. */
static void renew_life(struct hf_op *op, struct hold *h, int64_t ttl_ms)
{
    struct life *l = h->t.life;

    op->began_at = op->client->env->now(op->client->env);
    if (ttl_ms > 0 && l->kind == LIFE_OWN) {
        hf__life_ask(l, ttl_ms);
        hf__hold_grade(h, atomic_load(&h->grade)); /* its deadline may be nearer now */
    }
    hf__life_renew(l);
}

int hf__renew(struct hf_op *op, struct hold *h, int64_t ttl_ms)
{
    const struct life *l = h->t.life;
    int rc = start_change(op, h);

    if (rc == 0 && ttl_ms > 0 && ttl_ms != h->t.ttl_ms)
        rc = hf__check_needs(op->client, HF_CAP_TTL, ttl_ms, op->err);
    if (rc < 0)
        return rc;
    if (l->marked)
        return hf__fail(op->err, HF_ELOST, 0, op->client->url.shown,
                        "'%s' was broken and cannot be renewed", h->t.name);
    if (h->move || (l->kind != LIFE_OWN && ttl_ms > 0 && ttl_ms != h->t.ttl_ms)) {
        rc = move_to_ttl(op, h, ttl_ms);
        if (rc < 0)
            return rc;
    } else {
        renew_life(op, h, ttl_ms);
    }
    hf__op_changes(op, h);
    hf__op_wait_store(op);
    return 0;
}

bool hf__op_renews(const struct hold *h)
{
    return h->changer && h->changer->kind == OP_RENEW;
}

void hf__op_amended(struct hold *h, int rc)
{
    if (h->state == TICKET_HELD)
        hf__ttl_amended(h, rc);
    if (h->changer && h->changer->kind == OP_AMEND)
        hf__op_end(h->changer, rc, NULL);
}

void hf__op_renewed(struct hold *h)
{
    const struct life *l = h->t.life;
    struct hf_op *op = h->changer;

    if (!op || op->kind != OP_RENEW || (l->kind == LIFE_OWN && op->began_at > l->sent_at))
        return;
    if (l->kind == LIFE_OWN)
        h->t.ttl_ms = l->ttl_ms;
    if (h->state == TICKET_HELD)
        hf__hold_count_anew(h, op->began_at);
    hf__op_end(op, 0, NULL);
}

void hf__op_changer_lost(struct hold *h)
{
    if (h->changer)
        hf__op_end(h->changer, HF_ELOST, NULL);
}
