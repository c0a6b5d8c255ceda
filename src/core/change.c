/* change.c: operations on what is held: amend (note, downgrade) and renewal by hand.
 *
 * Each hangs on its hold (changers) until the store has answered. Amends are repeated when the store was
 * away; a renewal is answered by the first proof of life that was sent after it was asked for. A hold
 * that is lost ends them with HF_ELOST; without an answer in time they end with HF_EUNKNOWN (G7). */
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

static int start_change(struct hf_op *op, struct hold *h)
{
    struct client *c = op->client;

    if (h->state != TICKET_HELD || h->lost)
        return hf__fail(op->err, HF_ELOST, 0, c->url.shown, "the lock was lost: '%s'",
                        h->t.name);
    if (!list_empty(&h->changers))
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
    if (downgrade && h->parts.next->next != &h->parts)
        return hf__fail(op->err, HF_EBUSY, 0, op->client->url.shown,
                        "'%s' is held by several handles", h->t.name);
    if (note) {
        char *copy = strdup(note);

        if (!copy)
            return hf__fail(op->err, HF_ENOMEM, 0, NULL, "no memory for a note");
        free(h->note);
        h->t.note = h->note = copy;
    }
    if (downgrade)
        h->t.weight = 1;
    list_push(&h->changers, &op->on_hold);
    hf__client_todo(h, HOLD_AMEND);
    hf__op_wait_store(op);
    return 0;
}

int hf__renew(struct hf_op *op, struct hold *h, int64_t ttl_ms)
{
    struct life *l = h->t.life;
    int rc = start_change(op, h);

    if (rc < 0)
        return rc;
    if (ttl_ms > 0 && l->kind != LIFE_OWN && ttl_ms != h->t.ttl_ms)
        return hf__fail(op->err, HF_ENOTSUP, 0, op->client->url.shown,
                        "this store has no ttl per request");
    if (l->marked)
        return hf__fail(op->err, HF_ELOST, 0, op->client->url.shown,
                        "'%s' was broken and cannot be renewed", h->t.name);
    if (ttl_ms > 0 && l->kind == LIFE_OWN) {
        hf__life_ask(l, ttl_ms);
        hf__hold_grade(h, atomic_load(&h->grade)); /* its deadline may be nearer now */
    }
    op->began_at = op->client->env->now(op->client->env);
    list_push(&h->changers, &op->on_hold);
    hf__life_renew(l);
    hf__op_wait_store(op);
    return 0;
}

static void end_changers(struct hold *h, int kind, int rc)
{
    list_for_safe(n, &h->changers) {
        struct hf_op *op = container_of(n, struct hf_op, on_hold);

        if (kind < 0 || (int)op->kind == kind)
            hf__op_end(op, rc, NULL);
    }
}

bool hf__op_amends(const struct hold *h)
{
    const struct list *first = list_first(&h->changers);

    return first && container_of(first, struct hf_op, on_hold)->kind == OP_AMEND;
}

void hf__op_amended(struct hold *h, int rc)
{
    end_changers(h, OP_AMEND, rc);
}

void hf__op_renewed(struct hold *h)
{
    const struct life *l = h->t.life;

    list_for_safe(n, &h->changers) {
        struct hf_op *op = container_of(n, struct hf_op, on_hold);

        if (op->kind == OP_RENEW && (l->kind != LIFE_OWN || op->began_at <= l->sent_at)) {
            h->t.ttl_ms = l->kind == LIFE_OWN ? l->ttl_ms : h->t.ttl_ms;
            hf__op_end(op, 0, NULL);
        }
    }
}

void hf__op_changers_lost(struct hold *h)
{
    end_changers(h, -1, HF_ELOST);
}
