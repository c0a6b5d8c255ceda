/* once.c: work that is done one time among all instances: a lock, and a mark in the cell.
 *
 * Begin: read the mark; done: 1. Else stand in line, and follow the cell meanwhile: if the
 * mark is written while we wait, leave the line: 1. Granted: read the mark once more,
 * because whoever held the lock before may have written it just before it left. Still none:
 * the work is the caller's, and the version of the cell, as it was read under the lock,
 * goes with the lease. Done: write the mark if the cell still has that version, then
 * release.
 *
 * The mark is written only by somebody who holds the lock, or has lost it without having
 * noticed. In the second case either the next holder has written its own mark, and the
 * version differs: HF_ELOST; or it has not, and then the work was done by us, and is
 * recorded; it is the next holder who gets HF_ELOST then, for a second run. Either way the
 * mark is written once and what is written stays.
 *
 * A mark that was sent and not answered (the connection was lost): the cell is read, once
 * the driver has made sure that the old request cannot happen any more (G7). Our own fence
 * in it: recorded. The old version: written again. While nobody answers: HF_EUNKNOWN. */
#include "recipes/recipe.h"

#include <inttypes.h>
#include <stdlib.h>

static const char tag[] = "once";
enum { REPEATS = 3 };

struct mark { /* lease_extra.recipe */
    uint64_t version;
    int64_t keep_ms;
};

enum found { NOT_DONE, DONE, FOREIGN };

static enum found find(const struct cell *cell, uint64_t *fence)
{
    return cell->version == 0                     ? NOT_DONE
           : hf__recipe_read(cell, tag, fence, 1) ? DONE
                                                  : FOREIGN;
}

/* ---- begin ----------------------------------------------------------------------- */

struct begin {
    struct composite g;
    struct cell_part cell, follow;
    struct hf_op line;
    struct acquire_spec spec;
    int64_t keep_ms;
    char note[HF_NOTE_MAX + 1];
};

/* The whole is ended if the work need not or cannot be done. */
static bool ended_by(struct composite *g, const struct cell *cell)
{
    uint64_t fence;

    switch (find(cell, &fence)) {
    case NOT_DONE:
        return false;
    case DONE:
        hf__composite_end(g, 1);
        return true;
    default:
        hf__recipe_refuse(g, cell);
        return true;
    }
}

static void yours(struct composite *g, uint64_t version, int64_t keep_ms)
{
    struct lease_extra *x = hf__lease_extra(g->lease);
    struct mark *m = x ? malloc(sizeof *m) : NULL;

    if (!m) {
        hf__composite_fail(g, HF_ENOMEM, "no memory for a lease");
        return;
    }
    *m = (struct mark){ .version = version, .keep_ms = keep_ms };
    x->recipe = m;
    g->op.lease = g->lease;
    g->lease = NULL;
    hf__composite_end(g, 0);
}

/* The store has answered: what it can do is known now. */
static bool can_expire(struct composite *g, int64_t keep_ms)
{
    int rc = hf__check_cell(g->op.client, keep_ms, &g->err);

    if (rc < 0)
        hf__composite_end(g, rc);
    return rc == 0;
}

static void beginning(struct composite *g)
{
    enum { BEGIN, READ, STANDS, HOLDS };
    struct begin *b = container_of(g, struct begin, g);

    switch (g->state) {
    case BEGIN:
        hf__part_cell(g, &b->cell, CELL_GET);
        g->state = READ;
        return;
    case READ:
        if (!b->cell.op.done)
            return;
        if (b->cell.op.rc < 0) {
            hf__composite_end(g, b->cell.op.rc);
            return;
        }
        if (!can_expire(g, b->keep_ms) || ended_by(g, &b->cell.cell))
            return;
        if (!g->op.try_only)
            hf__part_follow_cell(g, &b->follow);
        hf__part_acquire(g, &b->line, hf__composite_rest_ms(g), &b->spec);
        g->state = STANDS;
        return;
    case STANDS:
        if (!g->op.try_only && hf__part_news(&b->follow.op) && ended_by(g, &b->follow.cell))
            return;
        if (!b->line.done)
            return;
        if (b->line.rc < 0) {
            hf__composite_end(g, b->line.rc);
            return;
        }
        if (!g->op.try_only)
            hf__part_cancel(&b->follow.op);
        hf__part_cell(g, &b->cell, CELL_GET);
        g->state = HOLDS;
        return;
    case HOLDS:
        if (!b->cell.op.done)
            return;
        if (b->cell.op.rc < 0)
            hf__composite_end(g, b->cell.op.rc);
        else if (!ended_by(g, &b->cell.cell))
            yours(g, b->cell.cell.version, b->keep_ms);
        return;
    }
}

static struct composite *begin(hf_client *c, const struct recipe_args *a,
                               const struct listener *l, hf_error *err)
{
    struct acquire_spec spec;
    struct composite *g;
    struct begin *b;

    if (a->number < 0) {
        hf__fail(err, HF_EINVAL, 0, NULL, "keep_ms is negative");
        return NULL;
    }
    if (hf__recipe_request(c, a, 0, HF_CAP_CELL, &spec, err) < 0 ||
        hf__check_cell(&c->core, a->number, err) < 0)
        return NULL;
    g = hf__composite_new(c, sizeof *b, beginning, a->name, l, err);
    if (!g)
        return NULL;
    b = container_of(g, struct begin, g);
    b->keep_ms = a->number;
    hf__recipe_keep_request(&b->spec, &spec, b->note);
    hf__composite_limit(g, a->wait_ms, false, a->req ? a->req->cancel : NULL);
    return g;
}

int hf_once_begin(hf_client *c, const char *name, int64_t keep_ms, int64_t wait_ms,
                  const hf_request *req, hf_lease **ret, hf_error *err)
{
    if (!ret)
        return hf__fail(err, HF_EINVAL, 0, NULL, "ret is NULL");
    return hf__recipe_call(
        c, begin,
        (struct recipe_args){
            .name = name, .number = keep_ms, .wait_ms = wait_ms, .req = req },
        NULL, ret, err);
}

int hf_once_begin_start(hf_client *c, const char *name, int64_t keep_ms, int64_t wait_ms,
                        const hf_request *req, hf_done *done, void *user, hf_op **ret,
                        hf_error *err)
{
    return hf__recipe_start(
        c, begin,
        (struct recipe_args){
            .name = name, .number = keep_ms, .wait_ms = wait_ms, .req = req },
        done, user, ret, err);
}

/* ---- done ------------------------------------------------------------------------ */

struct done {
    struct composite g;
    struct cell_part cell;
    struct hf_op release;
    struct mark mark;
    uint64_t fence;
    int repeats;
    int rc; /* of the mark */
};

static void write_mark(struct done *d)
{
    d->cell.cell.if_version = d->mark.version;
    d->cell.cell.ttl_ms = d->mark.keep_ms;
    hf__recipe_write(&d->cell.cell, tag, &d->fence, 1);
    hf__part_cell(&d->g, &d->cell, CELL_PUT);
}

static bool ours(const struct done *d)
{
    uint64_t fence;

    return find(&d->cell.cell, &fence) == DONE && fence == d->fence;
}

/* Of a PUT or a GET that is done. True: the cell is asked once more. */
static bool asks_again(struct done *d)
{
    const struct cell *cell = &d->cell.cell;
    int rc = d->cell.op.rc;

    if (hf__part_unknown(&d->cell) && d->repeats++ < REPEATS) {
        hf__part_cell(&d->g, &d->cell, CELL_GET);
        return true;
    }
    if (rc == 0 && cell->verb == CELL_GET && cell->version == d->mark.version) {
        write_mark(d);
        return true;
    }
    if (rc == 0 || rc == HF_EBUSY) {
        d->rc = cell->verb == CELL_PUT && rc == 0 ? 0 : ours(d) ? 0 : HF_ELOST;
    } else {
        d->rc = d->repeats > 0 || hf__part_unknown(&d->cell) ? HF_EUNKNOWN : rc;
    }
    return false;
}

static void end_done(struct done *d)
{
    if (d->rc == HF_ELOST)
        hf__composite_fail(&d->g, HF_ELOST,
                           "'%s': lost before its success was recorded; fence %" PRIu64,
                           d->g.name, d->fence);
    else if (d->rc == HF_EUNKNOWN)
        hf__composite_fail(&d->g, HF_EUNKNOWN,
                           "'%s': no answer: its success may have been recorded",
                           d->g.name);
    else
        hf__composite_end(&d->g, d->rc);
}

static void recording(struct composite *g)
{
    enum { BEGIN, WRITES, RELEASES };
    struct done *d = container_of(g, struct done, g);

    switch (g->state) {
    case BEGIN:
        if (hf_lease_check(g->lease) < 0) {
            d->rc = HF_ELOST;
            end_done(d);
            return;
        }
        write_mark(d);
        g->state = WRITES;
        return;
    case WRITES:
        if (!d->cell.op.done || asks_again(d))
            return;
        if (d->rc < 0) { /* the lease is released with us: another may try */
            end_done(d);
            return;
        }
        hf__part_release(g, &d->release, 0);
        g->state = RELEASES;
        return;
    case RELEASES:
        if (d->release.done) /* whatever became of it: the mark stands */
            end_done(d);
        return;
    }
}

/* Under the lock. Consumes the lease. */
static int begin_done(hf_lease *lease, const struct listener *l, struct composite **ret,
                      hf_error *err)
{
    const struct mark *m = lease->extra->recipe;
    struct composite *g = hf__composite_new(lease_client(lease), sizeof(struct done),
                                            recording, hf_lease_name(lease), l, err);
    struct done *d;

    if (!g) {
        hf__lease_drop(lease, NULL, 0);
        return HF_ENOMEM;
    }
    d = container_of(g, struct done, g);
    d->mark = *m;
    d->fence = hf_lease_fence(lease);
    g->lease = lease;
    g->op.goes_on = true;
    *ret = g;
    return hf__composite_start(g, err);
}

static int check_once(const hf_lease *l, hf_error *err)
{
    return l && l->extra && l->extra->recipe
               ? 0
               : hf__fail(err, HF_EINVAL, 0, NULL, "the lease is not of hf_once_begin");
}

/* Takes the lock. Closed: the lease is given back, and so it cannot be done any more. */
static int enter_done(hf_lease *l, hf_error *err)
{
    hf_client *c = lease_client(l);
    int rc = hf__lease_enter(l, NULL, err);

    if (rc == 0 && (c->closing || c->broken)) {
        bool closing = c->closing;

        hf__lease_drop(l, NULL, 0);
        hf__leave(c);
        return closing ? hf__fail(err, HF_ECLOSED, 0, NULL, "the client is closed")
                       : hf__broken(err);
    }
    return rc;
}

int hf_once_done(hf_lease *l, hf_error *err)
{
    hf_client *c = l ? lease_client(l) : NULL;
    struct composite *g;
    int rc = check_once(l, err);

    if (rc == 0 && hf__in_callback())
        rc = hf__fail(err, HF_EREENTRANT, 0, NULL,
                      "a blocking call inside a callback: use hf_once_done_start");
    if (rc == 0)
        rc = enter_done(l, err);
    if (rc < 0)
        return rc;
    hf__lease_silence(l);
    rc = begin_done(l, NULL, &g, err);
    if (rc == 0)
        rc = hf__composite_take(g, NULL, NULL, err);
    hf__leave(c);
    return rc;
}

int hf_once_done_start(hf_lease *l, hf_done *done, void *user, hf_op **ret, hf_error *err)
{
    hf_client *c = l ? lease_client(l) : NULL;
    struct composite *g;
    int rc = check_once(l, err);

    if (rc == 0 && (!done || !ret))
        rc = hf__fail(err, HF_EINVAL, 0, NULL, "callback and ret must not be NULL");
    if (rc == 0)
        rc = enter_done(l, err);
    if (rc < 0)
        return rc;
    hf__lease_mute(l); /* it is consumed */
    rc = begin_done(l, &(struct listener){ .done = done, .user = user }, &g, err);
    if (rc == 0)
        *ret = &g->op;
    hf__leave(c);
    return rc;
}

/* ---- all of it, and forgetting --------------------------------------------------- */

int hf_once(hf_client *c, const char *name, int64_t keep_ms, int64_t wait_ms,
            const hf_request *req, int (*body)(hf_lease *, void *), void *user,
            int *ret_body, hf_error *err)
{
    hf_lease *l;
    int rc, result;

    if (!body)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the body is NULL");
    rc = hf_once_begin(c, name, keep_ms, wait_ms, req, &l, err);
    if (rc != 0)
        return rc;
    result = body(l, user);
    if (ret_body)
        *ret_body = result;
    if (result == 0)
        return hf_once_done(l, err);
    hf_release(l, NULL);
    return 0;
}

static const struct recipe_args forget = { .value = tag, .number = 1 };

int hf_once_forget(hf_client *c, const char *name, hf_error *err)
{
    struct recipe_args a = forget;

    a.name = name;
    return hf__recipe_call(c, hf__recipe_remove, a, NULL, NULL, err);
}

int hf_once_forget_start(hf_client *c, const char *name, hf_done *done, void *user,
                         hf_op **ret, hf_error *err)
{
    struct recipe_args a = forget;

    a.name = name;
    return hf__recipe_start(c, hf__recipe_remove, a, done, user, ret, err);
}
