/* cell.c: one small record per name beside its line.
 *
 * One entry per verb, so compare and change are one step. Versions come from one counter
 * in the gate and are never used twice, also not over deletion, expiry or a kill between
 * counting and committing: a version that was seen once names one value for ever. A cell
 * that has expired is absent; whoever changes it next replaces it.
 */
#include "driver/local/local.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct celling {
    struct cell *cell;
    enum cell_verb verb;
    struct key key;
    /* the state after the verb, copied out of the store */
    unsigned char value[HF_CELL_MAX];
    size_t len;
    uint64_t version;
    int64_t number, expires_at;
    int rc; /* HF_EBUSY: another version; HF_EINVAL: not a number */
};

static int load(struct tx *tx, struct celling *c)
{
    struct cell_record r;
    MDB_val v;
    int rc = hf__local_db_get(tx, c->key.bytes, c->key.len, &v);

    c->len = 0;
    c->version = 0;
    c->expires_at = 0;
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if ((rc = hf__local_cell_decode(&r, v.mv_data, v.mv_size)) < 0)
        return hf__fail(tx->err, rc, 0, tx->sh->path, "a damaged cell");
    if (hf__local_key_cut(&c->key) && (r.f.name_len != c->key.full_len ||
                                       memcmp(r.name, c->key.full, c->key.full_len) != 0))
        return hf__fail(tx->err, HF_EINVAL, 0, tx->sh->path,
                        "the name cannot be told from another long one that is in use");
    if (r.f.expires_at != 0 && r.f.expires_at <= tx->now)
        return 0;
    c->len = r.f.value_len;
    memcpy(c->value, r.value, c->len);
    c->version = r.f.version;
    c->expires_at = r.f.expires_at;
    return 0;
}

static int store(struct tx *tx, struct celling *c)
{
    size_t name = hf__local_key_cut(&c->key) ? c->key.full_len : 0;
    struct cell_fix fix = { RECORD_FORMAT, (uint16_t)name, (uint16_t)c->len, 0, 0 };
    unsigned char *p;
    void *room;
    int rc;

    if (c->cell->ttl_ms > 0)
        fix.expires_at = tx->now + c->cell->ttl_ms * 1000;
    fix.version = tx->sh->gate->next_version++;
    rc = hf__local_db_put(tx, c->key.bytes, c->key.len, sizeof fix + name + c->len, &room);
    if (rc < 0)
        return rc;
    p = room;
    memcpy(p, &fix, sizeof fix);
    memcpy(p + sizeof fix, c->key.full, name);
    memcpy(p + sizeof fix + name, c->value, c->len);
    c->version = fix.version;
    c->expires_at = fix.expires_at;
    return 0;
}

static int add(struct celling *c)
{
    char text[32], *end = text;
    long long was = 0;

    if (c->version != 0) {
        if (c->len == 0 || c->len >= sizeof text)
            return HF_EINVAL;
        memcpy(text, c->value, c->len);
        text[c->len] = '\0';
        errno = 0;
        was = strtoll(text, &end, 10);
        if (*end != '\0' || errno != 0)
            return HF_EINVAL;
    }
    if (__builtin_add_overflow((int64_t)was, c->cell->add, &c->number))
        return HF_EINVAL;
    c->len =
        (size_t)snprintf((char *)c->value, sizeof c->value, "%lld", (long long)c->number);
    return 0;
}

static int change(struct tx *tx, struct celling *c)
{
    int rc;

    if (c->verb == CELL_ADD) {
        if ((c->rc = add(c)) < 0)
            return TX_READ;
        rc = store(tx, c);
    } else if (c->verb == CELL_PUT) {
        c->len = c->cell->value_len;
        memcpy(c->value, c->cell->value, c->len);
        rc = store(tx, c);
    } else {
        rc = hf__local_db_del(tx, c->key.bytes, c->key.len);
        if (rc == DB_NONE)
            return TX_READ;
        c->len = 0;
        c->version = 0;
        c->expires_at = 0;
    }
    if (rc == 0 && tx->sh->gate->followers > 0)
        rc = hf__local_tell_followers(tx, TABLE_CELL, c->key.hash);
    return rc;
}

static int cell(struct tx *tx, void *arg)
{
    struct celling *c = arg;
    int rc = load(tx, c);

    c->rc = 0;
    if (rc < 0)
        return rc;
    if (c->verb == CELL_GET)
        return TX_READ;
    if (c->verb != CELL_ADD && !c->cell->if_any && c->cell->if_version != c->version) {
        c->rc = HF_EBUSY;
        return TX_READ;
    }
    return change(tx, c);
}

static void fail(struct local *ls, void *of, int rc, const hf_error *err)
{
    (void)ls;
    ev_done(NULL, of, rc, err);
}

static void answer(struct local *ls, const struct celling *c)
{
    struct cell *ce = c->cell;
    hf_error err;

    hf__local_deliver(ls);
    memcpy(ce->value, c->value, c->len);
    ce->value_len = c->len;
    ce->version = c->version;
    ce->number = c->number;
    ce->again_at = c->expires_at ? c->expires_at : LOOP_NEVER;
    if (c->rc == 0) {
        ev_done(NULL, ce, 0, NULL);
        return;
    }
    hf__fail(&err, c->rc, 0, ls->sh->path, "%s",
             c->rc == HF_EBUSY ? "the cell has another version"
                               : "the cell holds no number, or the sum is too great");
    fail(ls, ce, c->rc, &err);
}

static int run(struct local *ls, void *of)
{
    struct cell *ce = of;
    struct celling c;
    hf_error err;
    int rc = 0;

    c.cell = ce;
    c.verb = ce->verb;
    c.number = 0;
    hf__local_key_name(&c.key, TABLE_CELL, ls->ns, ce->name, ce->name_len);
    if (ce->follow && !ce->drv_ptr)
        rc = hf__local_follow_start(ls, NULL, ce, &err);
    if (rc == 0)
        rc = hf__local_tx_run(ls, cell, &c, ce->verb == CELL_PUT || ce->verb == CELL_ADD,
                              &err);
    if (rc == 0)
        answer(ls, &c);
    else if (rc != HF_EBUSYSTORE)
        fail(ls, ce, rc, &err);
    return rc == HF_EBUSYSTORE ? rc : 0;
}

static const struct verb cell_verb = { .run = run,
                                       .fail = fail,
                                       .limit_ms = hf__local_gate_limit };
static const struct verb again_verb = { .run = run, .fail = fail }; /* of a follow */

void hf__local_cell(struct store *store, struct cell *ce)
{
    run_verb(local_of(store), ce->drv_ptr ? &again_verb : &cell_verb, ce);
}
