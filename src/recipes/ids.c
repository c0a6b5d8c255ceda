/* ids.c: ids by the block: a counter, of which a range is reserved by one ADD and then
 * handed out from memory.
 *
 * The range that is left has a mutex of its own, so that handing out takes no lock of the
 * client. Whoever finds it empty stands in `waiting`, under the client's lock. The first
 * there asks for a block; when it comes all who wait are served in their order, and the
 * first that is left asks again. If the first fails, all fail with it; if it is freed, the
 * next one asks: the answer to the first, which nobody reads any more, is a gap.
 *
 * Nothing is handed out twice: a range comes from one answer of the store and is installed
 * once, when the one before is empty (only the first installs, and nobody takes from an
 * empty one); taking is under the mutex. A forked child has a copy of the range, which is
 * the parent's: it looks at the word that a fork wipes before it looks at anything else. */
#include "recipes/recipe.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct hf_ids {
    hf_client *client; /* counted in its refs */
    pthread_mutex_t lock;
    int64_t next, last; /* next > last: empty */
    int64_t block;
    struct list waiting; /* id_op.node */
    char name[];
};

struct id_op {
    struct composite g;
    struct cell_part cell;
    struct hf_ids *ids;
    struct list node; /* ids.waiting */
};

static struct id_op *of(struct composite *g)
{
    return container_of(g, struct id_op, g);
}

static bool take(struct hf_ids *ids, int64_t *ret)
{
    bool got;

    pthread_mutex_lock(&ids->lock);
    got = ids->next <= ids->last;
    if (got)
        *ret = ids->next++;
    pthread_mutex_unlock(&ids->lock);
    return got;
}

/* Returns the first of them, which is the caller's. */
static int64_t install(struct hf_ids *ids, int64_t last)
{
    int64_t mine = last - ids->block + 1;

    pthread_mutex_lock(&ids->lock);
    ids->next = mine + 1;
    ids->last = last;
    pthread_mutex_unlock(&ids->lock);
    return mine;
}

static struct id_op *first(struct hf_ids *ids)
{
    struct list *n = list_first(&ids->waiting);

    return n ? container_of(n, struct id_op, node) : NULL;
}

/* It does not wait any more, whatever the reason: the next one may be the first. */
static void ended(struct composite *g)
{
    struct id_op *o = of(g), *next;

    list_remove(&o->node);
    next = first(o->ids);
    if (next)
        hf__composite_resume(&next->g);
}

static void fail_all(struct hf_ids *ids, int rc, const hf_error *err)
{
    struct list *n;

    while ((n = list_pop(&ids->waiting)) != NULL)
        hf__op_end(&container_of(n, struct id_op, node)->g.op, rc, err);
}

static void next_id(struct composite *g)
{
    enum { BEGIN, WAITS, ASKED };
    struct id_op *o = of(g);
    hf_error err;
    int64_t last;
    int rc;

    switch (g->state) {
    case BEGIN:
        list_push(&o->ids->waiting, &o->node);
        g->state = WAITS;
        /* fall through */
    case WAITS:
        if (first(o->ids) != o)
            return; /* nobody is served before those who came first */
        if (take(o->ids, &g->number)) {
            hf__composite_end(g, 0);
            return;
        }
        o->cell.cell.add = o->ids->block;
        hf__part_cell(g, &o->cell, CELL_ADD);
        g->state = ASKED;
        return;
    case ASKED:
        if (!o->cell.op.done)
            return;
        err = g->err;
        rc = hf__recipe_counted(g, &o->cell, &last);
        if (rc < 0) {
            if (g->op.err)
                err = *g->op.err;
            fail_all(o->ids, rc, &err);
            return;
        }
        g->number = install(o->ids, last);
        hf__composite_end(g, 0);
        return;
    }
}

static struct composite *next_of(hf_client *c, const struct recipe_args *a,
                                 const struct listener *l, hf_error *err)
{
    struct hf_ids *ids = a->of;
    struct composite *g =
        hf__composite_new(c, sizeof(struct id_op), next_id, ids->name, l, err);

    if (g) {
        of(g)->ids = ids;
        list_init(&of(g)->node);
        g->ended = ended;
    }
    return g;
}

static bool forked(const struct hf_ids *ids)
{
    return *ids->client->alive == 0;
}

static int check_ids(const struct hf_ids *ids, hf_error *err)
{
    if (!ids)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the ids are NULL");
    return forked(ids) ? hf__fail(err, HF_EFORKED, 0, NULL,
                                  "the ids belong to the parent process: open your own")
                       : 0;
}

int hf_ids_next(hf_ids *ids, int64_t *ret, hf_error *err)
{
    int rc = check_ids(ids, err);

    if (rc == 0 && !ret)
        rc = hf__fail(err, HF_EINVAL, 0, NULL, "ret is NULL");
    if (rc < 0 || take(ids, ret))
        return rc;
    return hf__recipe_call(ids->client, next_of, (struct recipe_args){ .of = ids }, ret,
                           NULL, err);
}

int hf_ids_next_start(hf_ids *ids, hf_done *done, void *user, hf_op **ret, hf_error *err)
{
    int rc = check_ids(ids, err);

    return rc < 0
               ? rc
               : hf__recipe_start(ids->client, next_of, (struct recipe_args){ .of = ids },
                                  done, user, ret, err);
}

/* ---- opening, closing ------------------------------------------------------------ */

static struct hf_ids *new_ids(hf_client *c, const char *name, int64_t block)
{
    size_t len = strlen(name) + 1;
    struct hf_ids *ids = malloc(sizeof *ids + len);

    if (!ids)
        return NULL;
    *ids = (struct hf_ids){ .client = c, .next = 1, .block = block };
    pthread_mutex_init(&ids->lock, NULL);
    list_init(&ids->waiting);
    memcpy(ids->name, name, len);
    c->refs++;
    return ids;
}

int hf_ids_open(hf_client *c, const char *name, int64_t block, hf_ids **ret, hf_error *err)
{
    struct hf_ids *ids;
    int rc;

    if (!ret || block < 1 || block > (int64_t)1 << 31)
        return hf__fail(err, HF_EINVAL, 0, NULL, "%s",
                        ret ? "a block has 1 to 2^31 ids" : "ret is NULL");
    rc = hf__enter(c, err);
    if (rc < 0)
        return rc;
    rc = hf__check_name(&c->core, name, err);
    if (rc == 0) {
        ids = new_ids(c, name, block);
        if (ids)
            *ret = ids;
        else
            rc = hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for ids");
    }
    hf__leave(c);
    return rc;
}

void hf_ids_close(hf_ids *ids)
{
    hf_client *c = ids ? ids->client : NULL;

    if (!ids)
        return;
    if (hf__enter_any(c) < 0) { /* the mutex may be held by a thread that is not here */
        free(ids);
        hf__drop_forked(c);
        return;
    }
    fail_all(ids, HF_ECLOSED, NULL);
    c->refs--;
    hf__leave(c);
    pthread_mutex_destroy(&ids->lock);
    free(ids);
}
