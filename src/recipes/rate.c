/* rate.c: at most n starts in any window of per_ms: a line of n permits, of which each
 * start takes one and leaves it taken for per_ms.
 *
 * Why no more than n: a start is allowed when the store has answered, before the deadline
 * of the lease (core/hold.c, is_kept), that the permit will be kept for per_ms from that
 * moment of its clock on. Until then the permit was held, so between two starts with the
 * same permit lie per_ms at least; and there are n permits. Who waits stands in the line:
 * first come, first served.
 *
 * What goes wrong takes a start away, and gives none: if the permit is lost before it was
 * kept (HF_ELOST) another may have it; if nobody answers (HF_EUNKNOWN) it is kept, or ends
 * by its ttl. In both cases the caller does not start. */
#include "recipes/recipe.h"

struct rate {
    struct composite g;
    struct hf_op line, keep;
    struct acquire_spec spec;
    int64_t per_ms;
    char note[HF_NOTE_MAX + 1];
};

static void starting(struct composite *g)
{
    enum { BEGIN, STANDS, KEEPS };
    struct rate *r = container_of(g, struct rate, g);
    int rc;

    switch (g->state) {
    case BEGIN:
        hf__part_acquire(g, &r->line, hf__composite_rest_ms(g), &r->spec);
        g->state = STANDS;
        return;
    case STANDS:
        if (!r->line.done)
            return;
        if (r->line.rc < 0) {
            hf__composite_end(g, r->line.rc);
            return;
        }
        rc = hf__check_keep(g->op.client, r->per_ms, &g->err); /* now that it is known */
        if (rc < 0) {
            hf__composite_end(g, rc);
            return;
        }
        g->waits = false; /* what is asked for now goes on to its end */
        hf__part_release(g, &r->keep, r->per_ms);
        g->state = KEEPS;
        return;
    case KEEPS:
        if (r->keep.done)
            hf__composite_end(g, r->keep.rc);
        return;
    }
}

static struct composite *rate(hf_client *c, const struct recipe_args *a,
                              const struct listener *l, hf_error *err)
{
    struct acquire_spec spec;
    struct composite *g;
    struct rate *r;

    if (a->number < 1 || a->number > HF_FULL) {
        hf__fail(err, HF_EINVAL, 0, NULL, "n must be 1 to 2^31");
        return NULL;
    }
    if (hf__recipe_request(c, a, (uint32_t)a->number, HF_CAP_KEEP, &spec, err) < 0 ||
        hf__check_keep(&c->core, a->per_ms, err) < 0)
        return NULL;
    g = hf__composite_new(c, sizeof *r, starting, a->name, l, err);
    if (!g)
        return NULL;
    r = container_of(g, struct rate, g);
    r->per_ms = a->per_ms;
    hf__recipe_keep_request(&r->spec, &spec, r->note);
    hf__composite_limit(g, a->wait_ms, false, a->req ? a->req->cancel : NULL);
    return g;
}

int hf_rate(hf_client *c, const char *name, uint32_t n, int64_t per_ms, int64_t wait_ms,
            const hf_request *req, hf_error *err)
{
    return hf__recipe_call(
        c, rate,
        (struct recipe_args){
            .name = name, .number = n, .per_ms = per_ms, .wait_ms = wait_ms, .req = req },
        NULL, NULL, err);
}

int hf_rate_start(hf_client *c, const char *name, uint32_t n, int64_t per_ms,
                  int64_t wait_ms, const hf_request *req, hf_done *done, void *user,
                  hf_op **ret, hf_error *err)
{
    return hf__recipe_start(
        c, rate,
        (struct recipe_args){
            .name = name, .number = n, .per_ms = per_ms, .wait_ms = wait_ms, .req = req },
        done, user, ret, err);
}
