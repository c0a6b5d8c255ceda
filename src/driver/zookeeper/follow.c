/* follow.c: being told of every change of a line or a cell.
 *
 * A follow looks with reads that set watches: on the children of the line and on the
 * data of its tickets, or on the cell; on what does not exist by exists. Any event about
 * them looks again: an event uses up the watch, so nothing is missed between. After a
 * lost connection everything is looked at anew. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

static void ask(struct zk *z, struct follow *f)
{
    if (f->job) {
        f->again = true;
        return;
    }
    f->again = false;
    if (f->look)
        hf__zk_look_send(z, f->look);
    else
        hf__zk_cell_send(z, f->cell, f->begun);
    /* f may be gone now */
}

void hf__zk_follow_start(struct zk *z, struct look *look, struct cell *cell)
{
    struct follow *f = calloc(1, sizeof *f + DIR_MAX);
    hf_error err;

    if (!f) {
        hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory to follow a name");
        ev_done(look, cell, HF_ENOMEM, &err);
        return;
    }
    f->look = look;
    f->cell = cell;
    f->dir_len = hf__zk_dir(z, f->dir, look ? look->name : cell->name,
                            look ? look->name_len : cell->name_len);
    if (look) {
        look->drv_ptr = f;
        list_push(&z->looks, &look->drv_node);
    } else {
        cell->drv_ptr = f;
        list_push(&z->cells, &cell->drv_node);
    }
    ask(z, f);
}

void hf__zk_follow_end(struct follow *f)
{
    if (!f)
        return;
    if (f->look) {
        if (f->job)
            hf__zk_look_stop(f->job);
        list_remove(&f->look->drv_node);
        f->look->drv_ptr = NULL;
    } else {
        if (f->job)
            hf__zk_cell_stop(f->job);
        list_remove(&f->cell->drv_node);
        f->cell->drv_ptr = NULL;
    }
    free(f);
}

void hf__zk_follow_answered(struct zk *z, struct follow *f)
{
    f->begun = true;
    if (f->again)
        ask(z, f);
}

static struct follow *follow_of(struct list *n, bool look)
{
    return look ? container_of(n, struct look, drv_node)->drv_ptr
                : container_of(n, struct cell, drv_node)->drv_ptr;
}

/* The line's own node, or one of its children: the cell for a cell, any other for a
 * line. */
static bool concerns(const struct follow *f, const char *path, size_t len)
{
    static const char cell[] = "/_cell";
    size_t rest = len - f->dir_len;
    bool is_cell;

    if (len < f->dir_len || memcmp(path, f->dir, f->dir_len) != 0)
        return false;
    path += f->dir_len;
    is_cell = rest == sizeof cell - 1 && memcmp(path, cell, rest) == 0;
    if (f->cell)
        return is_cell;
    return rest == 0 || (path[0] == '/' && !is_cell && !memchr(path + 1, '/', rest - 1));
}

void hf__zk_follow_event(struct zk *z, const char *path, size_t len)
{
    for (int look = 0; look < 2; look++)
        list_for_safe(n, look ? &z->looks : &z->cells) {
            struct follow *f = follow_of(n, look);

            if (concerns(f, path, len))
                ask(z, f);
        }
}

void hf__zk_follow_up(struct zk *z)
{
    for (int look = 0; look < 2; look++)
        list_for_safe(n, look ? &z->looks : &z->cells)
            ask(z, follow_of(n, look));
}
