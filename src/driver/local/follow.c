/* follow.c: being told of every change of a line or a cell.
 *
 * A follower is one record per client and name (a list: one for all lines). Whoever
 * changes a line or a cell notifies its followers in the same transaction. The number of
 * followers in the gate only saves looking: it is raised before a record is written and
 * lowered after one is gone, so a kill leaves it too high, never too low. What no member
 * does cannot be notified: that a holder dies or expires, that a cell expires. So a
 * follower watches the holders' processes, and asks again at the next expiry. Before a
 * closed gate the answer waits, and so does the record of a follow that has ended: it costs
 * the others entries that nobody needs. The core asks again (seam.h, rule 11); here is only
 * what tells it to.
 */
#include "driver/local/local.h"

#include <stdlib.h>

struct follow_change {
    const struct local_follow *f;
    bool add, gone;
};

static size_t follow_key(unsigned char key[KEY_FOLLOW], const struct tx *tx,
                         const struct local_follow *f)
{
    const uint64_t who[] = { tx->sh->process, tx->ls->member };
    unsigned char tail[KEY_FOLLOW];
    size_t len = hf__local_key_numbers(key, TABLE_FOLLOW, &f->hash, 1);

    key[len++] = (unsigned char)f->table;
    hf__local_key_numbers(tail, f->table, who, 2);
    for (size_t i = 0; i < 16; i++)
        key[len + i] = tail[1 + i];
    return len + 16;
}

static int change(struct tx *tx, void *arg)
{
    struct follow_change *c = arg;
    unsigned char key[KEY_FOLLOW];
    size_t len = follow_key(key, tx, c->f);
    MDB_val v;
    void *room;
    int rc = hf__local_db_get(tx, key, len, &v);

    if (rc < 0 || (rc == 0) == c->add)
        return rc < 0 ? rc : TX_READ;
    if (c->add) {
        tx->sh->gate->followers++;
        return hf__local_db_put(tx, key, len, 0, &room);
    }
    c->gone = true;
    return hf__local_db_del(tx, key, len);
}

int hf__local_follow_start(struct local *ls, struct look *look, struct cell *cell,
                           hf_error *err)
{
    struct local_follow *f = calloc(1, sizeof *f);
    struct follow_change c = { f, true, false };
    struct key k;
    int rc = hf__local_prepare(ls, err);

    if (rc < 0) {
        free(f);
        return rc;
    }
    if (!f)
        return hf__fail(err, HF_ENOMEM, 0, ls->sh->path, "no memory");
    f->table = look ? TABLE_LINE : TABLE_CELL;
    if (!look || !look->list) {
        hf__local_key_name(&k, f->table, ls->ns, look ? look->name : cell->name,
                           look ? look->name_len : cell->name_len);
        f->hash = k.hash;
    }
    if ((rc = hf__local_tx_run(ls, change, &c, true, err)) < 0) {
        free(f);
        return rc;
    }
    if (look) {
        look->drv_ptr = f;
        list_push(&ls->looks, &look->drv_node);
    } else {
        cell->drv_ptr = f;
        list_push(&ls->cells, &cell->drv_node);
    }
    return 0;
}

static bool others_follow(struct local *ls, const struct local_follow *f)
{
    list_for(n, &ls->looks) {
        const struct local_follow *o = container_of(n, struct look, drv_node)->drv_ptr;

        if (o != f && o->hash == f->hash && o->table == f->table)
            return true;
    }
    list_for(n, &ls->cells) {
        const struct local_follow *o = container_of(n, struct cell, drv_node)->drv_ptr;

        if (o != f && o->hash == f->hash && o->table == f->table)
            return true;
    }
    return false;
}

static int unfollow(struct local *ls, void *of)
{
    struct follow_change c = { of, false, false };
    int rc = others_follow(ls, of) ? DB_NONE : hf__local_enter(ls, NULL);

    if (rc == HF_EBUSYSTORE)
        return rc;
    if (rc == 0) {
        if (hf__local_tx_inside(ls->sh, ls, change, &c, false, NULL) == 0 && c.gone &&
            ls->sh->gate->followers > 0)
            ls->sh->gate->followers--;
        hf__local_gate_leave(ls->sh);
    }
    free(of);
    return 0;
}

static const struct verb unfollow_verb = { .run = unfollow, .drop = free };

void hf__local_follow_stop(struct local *ls, struct local_follow *f, struct list *node)
{
    list_remove(node);
    hf__local_post_clear(ls, f->post);
    run_verb(ls, &unfollow_verb, f);
}

void hf__local_stop(struct store *store, struct look *look, struct cell *cell)
{
    struct local *ls = local_of(store);

    hf__local_defer_drop(ls, look ? (void *)look : cell);
    if (look && look->drv_ptr) {
        hf__local_follow_stop(ls, look->drv_ptr, &look->drv_node);
        look->drv_ptr = NULL;
    }
    if (cell && cell->drv_ptr) {
        hf__local_follow_stop(ls, cell->drv_ptr, &cell->drv_node);
        cell->drv_ptr = NULL;
    }
}

void hf__local_follow_changed(struct local *ls, enum table table, uint64_t hash)
{
    if (table == TABLE_LINE)
        list_for_safe(n, &ls->looks) {
            struct look *look = container_of(n, struct look, drv_node);
            const struct local_follow *f = look->drv_ptr;

            if (f->hash == hash)
                ev_changed(look, NULL);
        }
    else
        list_for_safe(n, &ls->cells) {
            struct cell *cell = container_of(n, struct cell, drv_node);
            const struct local_follow *f = cell->drv_ptr;

            if (f->hash == hash)
                ev_changed(NULL, cell);
        }
}

void hf__local_follow_death(struct local *ls, const struct peer *p)
{
    list_for_safe(n, &ls->looks) {
        struct look *look = container_of(n, struct look, drv_node);
        const struct local_follow *f = look->drv_ptr;

        if (hf__local_post_has(f->post, p))
            ev_changed(look, NULL);
    }
}
