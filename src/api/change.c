/* change.c: changes of what is held: renewal by hand, note, downgrade; each as a started
 * operation and as a blocking call.
 *
 * A lease may have several names. Each of its holds is changed by an operation of the core
 * of its own (core/change.c), all at the same time; the application has one operation
 * (OP_CHANGE) around them, which ends when the last of them has. One that fails does not
 * keep the others from being tried; the first failure is the result. If none could even be
 * started, the call itself fails.
 *
 * All of it happens under the client's lock. The parts lie in the memory of the whole. The
 * core ends each part once, and the last one ends the whole; nothing ends while they are
 * being started (open is one too many). Freeing the whole before that ends its parts first,
 * so no hold points into freed memory. hf_close finds whole and parts in client.ops and
 * ends them without giving up the lock in between: whichever comes first, the whole is told
 * once. */
#include "api/api.h"

#include <inttypes.h>
#include <string.h>

/* An OP_CHANGE and its parts, one for each name of the lease; in one piece of memory. */
struct change {
    struct hf_op op;
    size_t n, open; /* of parts: all, not ended yet */
    int rc;         /* of the first that failed */
    hf_error err;
    struct hf_op parts[];
};

/* What to change, the same for each part. */
struct what {
    enum op_kind kind; /* OP_AMEND, OP_RENEW */
    const char *note;  /* OP_AMEND: NULL: stays */
    bool downgrade;
    int64_t ttl_ms;
};

static struct change *change_of(struct hf_op *op)
{
    return container_of(op, struct change, op);
}

/* The text of the first failure stays. */
static void failed(struct change *g, int rc)
{
    if (g->rc == 0)
        g->rc = rc;
    for (size_t i = 0; i < g->n; i++)
        g->parts[i].err = NULL;
}

static void ended(struct change *g, int rc)
{
    if (rc < 0)
        failed(g, rc);
    if (--g->open == 0)
        hf__op_end(&g->op, g->rc, g->rc < 0 ? &g->err : NULL);
}

void hf__change_part_done(struct hf_op *part)
{
    ended(change_of(part->waiter), part->rc);
}

/* False: it could not be started. */
static bool begin_part(struct change *g, size_t i, struct hold *h, const struct what *w)
{
    struct hf_op *part = &g->parts[i];
    hf_client *c = op_client(&g->op);
    int rc;

    hf__op_init(part, &c->core, w->kind, g->rc == 0 ? &g->err : NULL);
    part->part = true;
    part->waiter = &g->op;
    list_push(&c->ops, &part->node);
    g->open++;
    rc = w->kind == OP_RENEW ? hf__renew(part, h, w->ttl_ms)
                             : hf__amend(part, h, w->note, w->downgrade);
    if (rc == 0)
        return true;
    list_remove(&part->node);
    part->done = true;
    g->open--;
    failed(g, rc);
    return false;
}

/* Under the lock. */
static int begin(hf_lease *lease, const struct what *w, const struct listener *l,
                 struct hf_op **ret, hf_error *err)
{
    hf_client *c = lease_client(lease);
    struct change *g = (struct change *)(void *)hf__op_new(
        c, OP_CHANGE, sizeof *g + lease->n * sizeof g->parts[0], l, err);
    bool begun = false;
    int rc;

    if (!g)
        return HF_ENOMEM;
    g->n = lease->n;
    g->open = 1; /* nothing ends before all are started */
    for (size_t i = 0; i < g->n; i++)
        begun = begin_part(g, i, lease->parts[i].hold, w) || begun;
    if (begun) {
        *ret = &g->op;
        ended(g, 0);
        return 0;
    }
    rc = g->rc;
    if (err)
        *err = g->err;
    hf__op_drop(c, &g->op);
    return rc;
}

void hf__change_drop(struct hf_op *op)
{
    struct change *g = change_of(op);

    for (size_t i = 0; i < g->n; i++)
        if (g->parts[i].client && !g->parts[i].done)
            hf__cancel(&g->parts[i], HF_ECANCELED);
}

static int change(hf_lease *lease, const struct what *w, hf_error *err)
{
    struct hf_op *op;
    int rc = hf__enter_blocking(lease_client(lease), err);

    if (rc < 0)
        return rc;
    rc = begin(lease, w, NULL, &op, err);
    if (rc == 0)
        rc = hf__op_take(lease_client(lease), op, NULL, err);
    hf__leave(lease_client(lease));
    return rc;
}

static int start(hf_lease *lease, const struct what *w, hf_done *done, void *user,
                 hf_op **ret, hf_error *err)
{
    const struct listener l = { .done = done, .user = user };
    int rc;

    if (!done || !ret)
        return hf__fail(err, HF_EINVAL, 0, NULL, "callback and ret must not be NULL");
    rc = hf__enter(lease_client(lease), err);
    if (rc < 0)
        return rc;
    rc = begin(lease, w, &l, ret, err);
    hf__leave(lease_client(lease));
    return rc;
}

static int check_lease(const hf_lease *l, hf_error *err)
{
    return l ? 0 : hf__fail(err, HF_EINVAL, 0, NULL, "the lease is NULL");
}

/* ---- renewal by hand ------------------------------------------------------------- */

static int renewal(struct what *w, const hf_lease *l, int64_t ttl_ms, hf_error *err)
{
    int rc = check_lease(l, err);

    *w = (struct what){ .kind = OP_RENEW, .ttl_ms = ttl_ms };
    if (rc == 0 && ttl_ms < 0)
        return hf__fail(err, HF_EINVAL, 0, NULL, "ttl_ms is negative");
    if (rc == 0 && ttl_ms > 0 &&
        (ttl_ms < l->client->least_ttl_ms || ttl_ms > l->client->most_ttl_ms))
        return hf__fail(err, HF_ENOTSUP, 0, NULL,
                        "ttl %" PRId64 " ms: this store takes %" PRId64 " to %" PRId64
                        " ms",
                        ttl_ms, l->client->least_ttl_ms, l->client->most_ttl_ms);
    return rc;
}

int hf_lease_renew(hf_lease *l, int64_t ttl_ms, hf_error *err)
{
    struct what w;
    int rc = renewal(&w, l, ttl_ms, err);

    return rc < 0 ? rc : change(l, &w, err);
}

int hf_renew_start(hf_lease *l, int64_t ttl_ms, hf_done *done, void *user, hf_op **ret,
                   hf_error *err)
{
    struct what w;
    int rc = renewal(&w, l, ttl_ms, err);

    return rc < 0 ? rc : start(l, &w, done, user, ret, err);
}

/* ---- downgrade, note ------------------------------------------------------------- */

static const struct what to_shared = { .kind = OP_AMEND, .downgrade = true };

int hf_lease_downgrade(hf_lease *l, hf_error *err)
{
    int rc = check_lease(l, err);

    return rc < 0 ? rc : change(l, &to_shared, err);
}

int hf_downgrade_start(hf_lease *l, hf_done *done, void *user, hf_op **ret, hf_error *err)
{
    int rc = check_lease(l, err);

    return rc < 0 ? rc : start(l, &to_shared, done, user, ret, err);
}

static int noting(struct what *w, const hf_lease *l, const char *note, hf_error *err)
{
    int rc = check_lease(l, err);

    *w = (struct what){ .kind = OP_AMEND, .note = note ? note : "" };
    return rc < 0 ? rc : hf__check_note(note, err);
}

int hf_lease_note(hf_lease *l, const char *note, hf_error *err)
{
    struct what w;
    int rc = noting(&w, l, note, err);

    return rc < 0 ? rc : change(l, &w, err);
}

int hf_note_start(hf_lease *l, const char *note, hf_done *done, void *user, hf_op **ret,
                  hf_error *err)
{
    struct what w;
    int rc = noting(&w, l, note, err);

    return rc < 0 ? rc : start(l, &w, done, user, ret, err);
}
