/* query.c: questions about names, and orders about other people's tickets: hf_look, hf_ls,
 * hf_evict and their like, each as a started operation and as a blocking call.
 *
 * What is asked for is written into a struct look, as the driver's verb will read it
 * (seam.h). The blocking form starts the same operation without a callback, waits for it,
 * and takes the result. */
#include "api/api.h"

#include "api/cell.h"

#include <string.h>

/* The operation and what it asks; op first, so that hf__op_new can make it. */
struct query_op {
    struct hf_op op;
    struct ask ask;
};

/* Under the lock: checks the name, and starts. */
static int begin(hf_client *c, enum ask_kind kind, const struct look *what,
                 const struct listener *l, struct hf_op **ret, hf_error *err)
{
    int rc = what->list ? 0 : hf__check_name(&c->core, what->name, err);
    struct look look = *what;
    struct query_op *q;

    if (rc < 0)
        return rc;
    q = (struct query_op *)(void *)hf__op_new(c, OP_ASK, sizeof *q, l, err);
    if (!q)
        return HF_ENOMEM;
    look.name_len = strlen(look.name);
    rc = hf__ask(&q->op, &q->ask, kind, &look, err);
    if (rc < 0)
        hf__op_drop(c, &q->op);
    else
        *ret = &q->op;
    return rc;
}

static int start(hf_client *c, enum ask_kind kind, const struct look *what,
                 const struct listener *l, struct hf_op **ret, hf_error *err)
{
    int rc;

    if (!ret || (!l->done && !l->seen))
        return hf__fail(err, HF_EINVAL, 0, NULL, "callback and ret must not be NULL");
    rc = hf__enter(c, err);
    if (rc < 0)
        return rc;
    rc = begin(c, kind, what, l, ret, err);
    hf__leave(c);
    return rc;
}

static int ask(hf_client *c, enum ask_kind kind, const struct look *what, hf_list **list,
               hf_error *err)
{
    struct hf_op *op;
    int rc = hf__enter_blocking(c, err);

    if (rc < 0)
        return rc;
    rc = begin(c, kind, what, NULL, &op, err);
    if (rc == 0)
        rc = hf__op_take(c, op, list, err);
    hf__leave(c);
    return rc;
}

/* ---- looking --------------------------------------------------------------------- */

int hf__look_take(hf_client *c, const char *name, hf_list **ret, hf_error *err)
{
    struct hf_op *op;
    int rc = begin(c, ASK_LOOK, &(struct look){ .name = name }, NULL, &op, err);

    return rc < 0 ? rc : hf__op_take(c, op, ret, err);
}

static int ret_is_null(hf_error *err)
{
    return hf__fail(err, HF_EINVAL, 0, NULL, "ret is NULL");
}

int hf_look(hf_client *c, const char *name, hf_list **ret, hf_error *err)
{
    return ret ? ask(c, ASK_LOOK, &(struct look){ .name = name }, ret, err)
               : ret_is_null(err);
}

int hf_look_start(hf_client *c, const char *name, hf_seen *seen, void *user, hf_op **ret,
                  hf_error *err)
{
    return start(c, ASK_LOOK, &(struct look){ .name = name },
                 &(struct listener){ .seen = seen, .user = user }, ret, err);
}

static int check_prefix(const char *prefix, hf_error *err)
{
    if (prefix && strnlen(prefix, HF_NAME_MAX + 1) > HF_NAME_MAX)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the prefix is too long");
    return 0;
}

static struct look list_of(const char *prefix, size_t limit)
{
    return (struct look){ .name = prefix ? prefix : "", .list = true, .limit = limit };
}

int hf_ls(hf_client *c, const char *prefix, size_t limit, hf_list **ret, hf_error *err)
{
    const struct look what = list_of(prefix, limit);
    int rc = ret ? check_prefix(prefix, err) : ret_is_null(err);

    return rc < 0 ? rc : ask(c, ASK_LOOK, &what, ret, err);
}

int hf_ls_start(hf_client *c, const char *prefix, size_t limit, hf_seen *seen, void *user,
                hf_op **ret, hf_error *err)
{
    const struct look what = list_of(prefix, limit);
    int rc = check_prefix(prefix, err);

    return rc < 0 ? rc
                  : start(c, ASK_LOOK, &what,
                          &(struct listener){ .seen = seen, .user = user }, ret, err);
}

int hf_name_state(hf_client *c, const char *name, hf_error *err)
{
    return ask(c, ASK_LOOK, &(struct look){ .name = name, .brief = true }, NULL, err);
}

int hf_name_state_start(hf_client *c, const char *name, hf_done *done, void *user,
                        hf_op **ret, hf_error *err)
{
    return start(c, ASK_LOOK, &(struct look){ .name = name, .brief = true },
                 &(struct listener){ .done = done, .user = user }, ret, err);
}

/* One's own place, in the line that the acquire waits in. */
int hf_op_position(const hf_op *op, uint32_t *position, int64_t *age_ms)
{
    hf_client *c = op ? op_client(op) : NULL;
    bool known = false;
    int rc;

    if (!op || (op->kind != OP_ACQUIRE && op->kind != OP_COMPOSITE))
        return HF_EINVAL;
    rc = hf__enter(c, NULL);
    if (rc < 0)
        return rc;
    if (op->kind == OP_COMPOSITE)
        op = hf__composite_awaits(op);
    if (!(c->core.caps & HF_CAP_LINE))
        rc = HF_ENOTSUP;
    else
        known = op && op->kind == OP_ACQUIRE && !op->done && op->position > 0;
    if (rc == 0 && position)
        *position = known ? op->position : 0;
    if (rc == 0 && age_ms)
        *age_ms = known ? (hf__loop_now() - op->position_at) / 1000 : -1;
    hf__leave(c);
    return rc;
}

/* ---- breaking -------------------------------------------------------------------- */

static int eviction(struct look *what, const char *name, const char *id, uint32_t flags,
                    hf_error *err)
{
    *what = (struct look){ .name = name, .now = flags & HF_EVICT_NOW };
    if (flags & ~(uint32_t)HF_EVICT_NOW)
        return hf__fail(err, HF_EINVAL, 0, NULL, "hf_evict: flags 0x%x are not known",
                        flags & ~(uint32_t)HF_EVICT_NOW);
    return hf__check_id(id, what->token, err);
}

int hf_evict(hf_client *c, const char *name, const char *id, uint32_t flags, hf_error *err)
{
    struct look what;
    int rc = eviction(&what, name, id, flags, err);

    return rc < 0 ? rc : ask(c, ASK_EVICT, &what, NULL, err);
}

int hf_evict_start(hf_client *c, const char *name, const char *id, uint32_t flags,
                   hf_done *done, void *user, hf_op **ret, hf_error *err)
{
    struct look what;
    int rc = eviction(&what, name, id, flags, err);

    return rc < 0 ? rc
                  : start(c, ASK_EVICT, &what,
                          &(struct listener){ .done = done, .user = user }, ret, err);
}

/* ---- kept places ----------------------------------------------------------------- */

static int keep(hf_client *c, const char *name, const char *id, int64_t keep_ms,
                bool orphan, hf_error *err)
{
    struct look what = { .name = name, .keep_ms = keep_ms, .orphan = orphan };
    int rc = hf__check_id(id, what.token, err);

    if (rc == 0 && c)
        rc = hf__check_keep(&c->core, keep_ms, err);
    if (rc == 0 && c &&
        !(c->core.caps & HF_CAP_LINE)) /* it cannot tell a kept one from a held one */
        rc = hf__fail(err, HF_ENOTSUP, 0, c->core.url.shown,
                      "this store does not show its tickets");
    return rc < 0 ? rc : ask(c, ASK_EVICT, &what, NULL, err);
}

int hf_keep_renew(hf_client *c, const char *name, const char *id, int64_t keep_ms,
                  hf_error *err)
{
    return keep(c, name, id, keep_ms, false, err);
}

int hf_keep_orphan(hf_client *c, const char *name, const char *id, int64_t keep_ms,
                   hf_error *err)
{
    return keep(c, name, id, keep_ms, true, err);
}

/* ---- cells ----------------------------------------------------------------------- */

static int call_cell(hf_client *c, struct cell *cell, hf_error *err)
{
    struct query_op *q;
    int rc = hf__check_name(&c->core, cell->name, err);

    if (rc < 0)
        return rc;
    q = (struct query_op *)(void *)hf__op_new(c, OP_ASK, sizeof *q, NULL, err);
    if (!q)
        return HF_ENOMEM;
    cell->follow = false;
    rc = hf__cell(&q->op, &q->ask, cell, err);
    if (rc == 0)
        return hf__op_take(c, &q->op, NULL, err);
    hf__op_drop(c, &q->op);
    return rc;
}

int hf__cell_call(hf_client *c, struct cell *cell, hf_error *err)
{
    int rc = hf__enter_blocking(c, err);

    if (rc < 0)
        return rc;
    rc = call_cell(c, cell, err);
    hf__leave(c);
    return rc;
}
