/* count.c: counters: one ADD of a cell. The store does them one after the other, so the
 * sums of two calls differ by at least what the later one adds.
 *
 * No answer: the sum may have been made. Then nobody gets it: a gap (HF_EUNKNOWN). It is
 * never repeated here, because the first one may have counted. */
#include "recipes/recipe.h"

struct count {
    struct composite g;
    struct cell_part cell;
    int64_t by;
};

int hf__recipe_counted(struct composite *g, const struct cell_part *p, int64_t *ret)
{
    const struct cell *cell = &p->cell;
    int64_t number = 0;
    int rc = p->op.rc;

    if (rc == 0 && hf__recipe_number(cell, &number)) {
        *ret = number;
        return 0;
    }
    if (rc == HF_EINVAL && hf__recipe_number(cell, &number)) {
        rc = HF_EFULL;
        hf__composite_fail(g, rc, "'%s' has counted to the end", g->name);
    } else if (rc == 0 || rc == HF_EINVAL) {
        rc = HF_EMISMATCH;
        hf__recipe_refuse(g, cell);
    } else {
        hf__recipe_cell_failed(g, p);
    }
    return rc;
}

static void counting(struct composite *g)
{
    enum { BEGIN, ASKED };
    struct count *n = container_of(g, struct count, g);

    switch (g->state) {
    case BEGIN:
        n->cell.cell.add = n->by;
        hf__part_cell(g, &n->cell, n->by > 0 ? CELL_ADD : CELL_GET);
        g->state = ASKED;
        return;
    case ASKED:
        if (n->cell.op.done && hf__recipe_counted(g, &n->cell, &g->number) == 0)
            hf__composite_end(g, 0);
        return;
    }
}

static struct composite *count(hf_client *c, const struct recipe_args *a,
                               const struct listener *l, hf_error *err)
{
    struct composite *g;

    if (a->number < 0) {
        hf__fail(err, HF_EINVAL, 0, NULL, "a counter only grows");
        return NULL;
    }
    g = hf__composite_new(c, sizeof(struct count), counting, a->name, l, err);
    if (g)
        container_of(g, struct count, g)->by = a->number;
    return g;
}

int hf_count(hf_client *c, const char *name, int64_t by, int64_t *ret, hf_error *err)
{
    return hf__recipe_call(c, count, (struct recipe_args){ .name = name, .number = by },
                           ret, NULL, err);
}

int hf_count_start(hf_client *c, const char *name, int64_t by, hf_done *done, void *user,
                   hf_op **ret, hf_error *err)
{
    return hf__recipe_start(c, count, (struct recipe_args){ .name = name, .number = by },
                            done, user, ret, err);
}
