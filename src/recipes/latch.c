/* latch.c: a number that is counted down to 0 and stays there: the cell "latch LEFT N".
 *
 * Every change is one compare-and-put of the whole record, so two who count at the same
 * time both count: the second is refused, gets the present state with that answer, and
 * counts from there. Each refusal means that another has counted, so all come to an end.
 * ADD would be one request less, but has no room to say whose number it is, and would count
 * below 0. A change without an answer may have been made: HF_EUNKNOWN, and it is not
 * repeated. */
#include "recipes/recipe.h"

static const char tag[] = "latch";
enum { LEFT, ALL, NUMBERS };

struct latch {
    struct composite g;
    struct cell_part cell;
    uint64_t by; /* hf_latch_set: n */
};

static struct latch *of(struct composite *g)
{
    return container_of(g, struct latch, g);
}

static struct composite *new_latch(hf_client *c, const struct recipe_args *a,
                                   void (*step)(struct composite *), int64_t least,
                                   const struct listener *l, hf_error *err)
{
    struct composite *g;

    if (a->number < least) {
        hf__fail(err, HF_EINVAL, 0, NULL, "a latch counts %s",
                 least > 0 ? "1 or more" : "0 or more");
        return NULL;
    }
    g = hf__composite_new(c, sizeof(struct latch), step, a->name, l, err);
    if (g)
        of(g)->by = (uint64_t)a->number;
    return g;
}

static void put(struct composite *g, uint64_t left, uint64_t all)
{
    struct latch *t = of(g);

    t->cell.cell.if_version = t->cell.cell.version;
    hf__recipe_write(&t->cell.cell, tag, (uint64_t[]){ left, all }, NUMBERS);
    hf__part_cell(g, &t->cell, CELL_PUT);
}

/* The cell is read, or was another than expected. False: the operation has ended. */
static bool present(struct composite *g, uint64_t now[NUMBERS])
{
    const struct cell_part *p = &of(g)->cell;

    if (p->op.rc < 0 && !(p->op.rc == HF_EBUSY && p->cell.verb == CELL_PUT)) {
        hf__recipe_cell_failed(g, p);
        return false;
    }
    if (p->cell.version == 0)
        return true;
    if (!hf__recipe_read(&p->cell, tag, now, NUMBERS)) {
        hf__recipe_refuse(g, &p->cell);
        return false;
    }
    return true;
}

static void not_set(struct composite *g)
{
    hf__composite_fail(g, HF_ENOENT, "the latch '%s' is not set", g->name);
}

/* ---- set ------------------------------------------------------------------------- */

static void setting(struct composite *g)
{
    enum { BEGIN, PUT };
    struct latch *t = of(g);
    uint64_t now[NUMBERS];

    switch (g->state) {
    case BEGIN:
        put(g, t->by, t->by); /* if there is none: version 0 */
        g->state = PUT;
        return;
    case PUT:
        if (!t->cell.op.done)
            return;
        if (t->cell.op.rc == 0) {
            hf__composite_end(g, 0);
        } else if (!present(g, now)) {
            return;
        } else if (t->cell.cell.version == 0) { /* it was removed in between */
            put(g, t->by, t->by);
        } else if (now[ALL] == t->by) {
            hf__composite_end(g, 1);
        } else {
            hf__composite_fail(g, HF_EMISMATCH, "the latch '%s' was set to %llu", g->name,
                               (unsigned long long)now[ALL]);
        }
        return;
    }
}

static struct composite *set(hf_client *c, const struct recipe_args *a,
                             const struct listener *l, hf_error *err)
{
    return new_latch(c, a, setting, 0, l, err);
}

int hf_latch_set(hf_client *c, const char *name, int64_t n, hf_error *err)
{
    return hf__recipe_call(c, set, (struct recipe_args){ .name = name, .number = n }, NULL,
                           NULL, err);
}

int hf_latch_set_start(hf_client *c, const char *name, int64_t n, hf_done *done, void *user,
                       hf_op **ret, hf_error *err)
{
    return hf__recipe_start(c, set, (struct recipe_args){ .name = name, .number = n }, done,
                            user, ret, err);
}

/* ---- down ------------------------------------------------------------------------ */

static void counting(struct composite *g)
{
    enum { BEGIN, READ, PUT };
    struct latch *t = of(g);
    uint64_t now[NUMBERS];

    if (g->state != BEGIN && !t->cell.op.done)
        return;
    if (g->state == BEGIN) {
        hf__part_cell(g, &t->cell, CELL_GET);
        g->state = READ;
    } else if (g->state == PUT && t->cell.op.rc == 0) {
        hf__composite_end(g, 0);
    } else if (!present(g, now)) {
        return;
    } else if (t->cell.cell.version == 0) {
        not_set(g);
    } else if (now[LEFT] == 0) {
        g->number = 0;
        hf__composite_end(g, 0);
    } else {
        now[LEFT] = now[LEFT] > t->by ? now[LEFT] - t->by : 0;
        g->number = (int64_t)now[LEFT];
        put(g, now[LEFT], now[ALL]);
        g->state = PUT;
    }
}

static struct composite *down(hf_client *c, const struct recipe_args *a,
                              const struct listener *l, hf_error *err)
{
    return new_latch(c, a, counting, 1, l, err);
}

int hf_latch_down(hf_client *c, const char *name, int64_t by, int64_t *left, hf_error *err)
{
    return hf__recipe_call(c, down, (struct recipe_args){ .name = name, .number = by },
                           left, NULL, err);
}

int hf_latch_down_start(hf_client *c, const char *name, int64_t by, hf_done *done,
                        void *user, hf_op **ret, hf_error *err)
{
    return hf__recipe_start(c, down, (struct recipe_args){ .name = name, .number = by },
                            done, user, ret, err);
}

/* ---- left, wait, clear ----------------------------------------------------------- */

static void reading(struct composite *g)
{
    enum { BEGIN, READ };
    struct latch *t = of(g);
    uint64_t now[NUMBERS];

    switch (g->state) {
    case BEGIN:
        hf__part_cell(g, &t->cell, CELL_GET);
        g->state = READ;
        return;
    case READ:
        if (!t->cell.op.done || !present(g, now))
            return;
        if (t->cell.cell.version == 0) {
            not_set(g);
            return;
        }
        g->number = (int64_t)now[LEFT];
        hf__composite_end(g, 0);
        return;
    }
}

static struct composite *left(hf_client *c, const struct recipe_args *a,
                              const struct listener *l, hf_error *err)
{
    return new_latch(c, a, reading, 0, l, err);
}

int hf_latch_left(hf_client *c, const char *name, int64_t *ret, hf_error *err)
{
    return hf__recipe_call(c, left, (struct recipe_args){ .name = name }, ret, NULL, err);
}

int hf_latch_left_start(hf_client *c, const char *name, hf_done *done, void *user,
                        hf_op **ret, hf_error *err)
{
    return hf__recipe_start(c, left, (struct recipe_args){ .name = name }, done, user, ret,
                            err);
}

static void waiting(struct composite *g)
{
    enum { BEGIN, FOLLOWS };
    struct latch *t = of(g);
    uint64_t now[NUMBERS];

    switch (g->state) {
    case BEGIN:
        hf__part_follow_cell(g, &t->cell);
        g->state = FOLLOWS;
        return;
    case FOLLOWS:
        if (t->cell.op.done) {
            hf__composite_end(g, t->cell.op.rc);
            return;
        }
        if (!hf__part_news(&t->cell.op) || !present(g, now))
            return;
        if (t->cell.cell.version != 0 && now[LEFT] == 0)
            hf__composite_end(g, 0);
        else if (g->op.try_only)
            hf__composite_fail(g, HF_EBUSY, "the latch '%s' is not open", g->name);
        return;
    }
}

static struct composite *await(hf_client *c, const struct recipe_args *a,
                               const struct listener *l, hf_error *err)
{
    struct composite *g = new_latch(c, a, waiting, 0, l, err);

    if (g)
        hf__composite_limit(g, a->wait_ms, true, a->cancel);
    return g;
}

int hf_latch_wait(hf_client *c, const char *name, int64_t wait_ms, hf_cancel *cancel,
                  hf_error *err)
{
    return hf__recipe_call(
        c, await,
        (struct recipe_args){ .name = name, .wait_ms = wait_ms, .cancel = cancel }, NULL,
        NULL, err);
}

int hf_latch_wait_start(hf_client *c, const char *name, int64_t wait_ms, hf_cancel *cancel,
                        hf_done *done, void *user, hf_op **ret, hf_error *err)
{
    return hf__recipe_start(
        c, await,
        (struct recipe_args){ .name = name, .wait_ms = wait_ms, .cancel = cancel }, done,
        user, ret, err);
}

int hf_latch_clear(hf_client *c, const char *name, hf_error *err)
{
    return hf__recipe_call(
        c, hf__recipe_remove,
        (struct recipe_args){ .name = name, .value = tag, .number = NUMBERS }, NULL, NULL,
        err);
}

int hf_latch_clear_start(hf_client *c, const char *name, hf_done *done, void *user,
                         hf_op **ret, hf_error *err)
{
    return hf__recipe_start(
        c, hf__recipe_remove,
        (struct recipe_args){ .name = name, .value = tag, .number = NUMBERS }, done, user,
        ret, err);
}
