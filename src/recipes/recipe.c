/* recipe.c: see recipe.h. */
#include "recipes/recipe.h"

#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the two forms of a call ----------------------------------------------------- */

int hf__recipe_call(hf_client *c, hf__recipe *make, struct recipe_args a, int64_t *number,
                    hf_lease **lease, hf_error *err)
{
    hf_error local = { 0 };
    struct composite *g;
    int rc = hf__enter_blocking(c, err);

    if (rc < 0)
        return rc;
    if (!err)
        err = &local;
    a.blocking = true;
    g = make(c, &a, NULL, err);
    rc = g ? hf__composite_start(g, err) : err->code;
    if (rc == 0)
        rc = hf__composite_take(g, number, lease, err);
    hf__leave(c);
    return rc;
}

int hf__recipe_start(hf_client *c, hf__recipe *make, struct recipe_args a, hf_done *done,
                     void *user, hf_op **ret, hf_error *err)
{
    const struct listener l = { .done = done, .user = user };
    hf_error local = { 0 };
    struct composite *g;
    int rc;

    if (!done || !ret)
        return hf__fail(err, HF_EINVAL, 0, NULL, "callback and ret must not be NULL");
    rc = hf__enter(c, err);
    if (rc < 0)
        return rc;
    if (!err)
        err = &local;
    g = make(c, &a, &l, err);
    rc = g ? hf__composite_start(g, err) : err->code;
    if (rc == 0)
        *ret = &g->op;
    hf__leave(c);
    return rc;
}

int hf__recipe_request(hf_client *c, const struct recipe_args *a, uint32_t permits,
                       uint32_t needs, struct acquire_spec *ret, hf_error *err)
{
    int rc = hf__check_request(&c->core, a->req, a->blocking, ret, err);

    if (rc < 0)
        return rc;
    if (ret->kind != LINE_LOCK || ret->weight != HF_FULL)
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "hf_request: mode, permits and capacity are the recipe's own");
    if (permits > 0) {
        ret->kind = LINE_PERMITS;
        ret->weight = 1;
        ret->capacity = permits;
        needs |= HF_CAP_PERMITS;
    }
    ret->needs |= needs;
    return hf__check_needs(&c->core, ret->needs, ret->ttl_ms, err);
}

void hf__recipe_keep_request(struct acquire_spec *to, const struct acquire_spec *from,
                             char note[HF_NOTE_MAX + 1])
{
    *to = *from;
    to->note = strcpy(note, from->note); /* it was checked */
}

/* ---- cells ----------------------------------------------------------------------- */

/* One number, as we write it: no sign, no zero in front, no more than 64 bits. */
static bool read_number(const unsigned char **at, const unsigned char *end, uint64_t *ret)
{
    const unsigned char *p = *at;
    uint64_t n = 0;

    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(n, (uint64_t)10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
            return false;
    if (p == *at || (**at == '0' && p > *at + 1))
        return false;
    *at = p;
    *ret = n;
    return true;
}

bool hf__recipe_read(const struct cell *cell, const char *tag, uint64_t *numbers, size_t n)
{
    const unsigned char *p = cell->value, *end = p + cell->value_len;
    size_t len = strlen(tag);

    if (cell->version == 0 || cell->value_len < len || memcmp(p, tag, len) != 0)
        return false;
    p += len;
    for (size_t i = 0; i < n; i++)
        if (p == end || *p++ != ' ' || !read_number(&p, end, &numbers[i]))
            return false;
    return p == end;
}

bool hf__recipe_number(const struct cell *cell, int64_t *ret)
{
    const unsigned char *p = cell->value, *end = p + cell->value_len;
    uint64_t n = 0;

    if (cell->version != 0 && (!read_number(&p, end, &n) || p != end || n > INT64_MAX))
        return false;
    *ret = (int64_t)n;
    return true;
}

void hf__recipe_write(struct cell *cell, const char *tag, const uint64_t *numbers, size_t n)
{
    char *text = (char *)cell->value;
    int len = snprintf(text, sizeof cell->value, "%s", tag);

    for (size_t i = 0; i < n; i++)
        len +=
            snprintf(text + len, sizeof cell->value - (size_t)len, " %" PRIu64, numbers[i]);
    cell->value_len = (size_t)len;
}

void hf__recipe_refuse(struct composite *g, const struct cell *cell)
{
    char shown[48];

    hf__escape(shown, sizeof shown, (const char *)cell->value, cell->value_len);
    hf__composite_fail(g, HF_EMISMATCH,
                       "'%s' is in use by another recipe or another version of holdfast: "
                       "its record is '%s'",
                       g->name, shown);
}

void hf__recipe_cell_failed(struct composite *g, const struct cell_part *p)
{
    if (hf__part_unknown(p))
        hf__composite_fail(g, HF_EUNKNOWN, "'%s': no answer: %s", g->name, g->err.text);
    else
        hf__composite_end(g, p->op.rc);
}

/* ---- removing -------------------------------------------------------------------- */

struct removal {
    struct composite g;
    struct cell_part cell;
    const char *tag; /* a constant */
    size_t n;
};

static void removing(struct composite *g)
{
    enum { BEGIN, READ, REMOVED };
    struct removal *r = container_of(g, struct removal, g);
    struct cell *cell = &r->cell.cell;
    uint64_t numbers[RECORD_MOST];
    int rc = r->cell.op.rc;

    if (g->state == BEGIN) {
        hf__part_cell(g, &r->cell, CELL_GET);
        g->state = READ;
    } else if (!r->cell.op.done) {
        return;
    } else if (g->state == REMOVED && rc == 0) {
        hf__composite_end(g, 1);
    } else if (rc < 0 && !(g->state == REMOVED && rc == HF_EBUSY)) {
        hf__recipe_cell_failed(g, &r->cell);
    } else if (cell->version == 0) {
        hf__composite_end(g, 0);
    } else if (!hf__recipe_read(cell, r->tag, numbers, r->n)) {
        hf__recipe_refuse(g, cell);
    } else { /* as it was read; another one, and the answer says what is there now */
        cell->if_version = cell->version;
        hf__part_cell(g, &r->cell, CELL_DEL);
        g->state = REMOVED;
    }
}

struct composite *hf__recipe_remove(hf_client *c, const struct recipe_args *a,
                                    const struct listener *l, hf_error *err)
{
    struct composite *g =
        hf__composite_new(c, sizeof(struct removal), removing, a->name, l, err);

    if (g) {
        container_of(g, struct removal, g)->tag = a->value;
        container_of(g, struct removal, g)->n = (size_t)a->number;
    }
    return g;
}
