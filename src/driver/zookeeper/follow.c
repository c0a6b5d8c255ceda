/* follow.c: being told of every change of a line or a cell.
 *
 * A follow looks with reads that set watches: on the children of the line and on the data
 * of its tickets, or on the cell; on what does not exist by exists. An event about any of
 * them is a change: it uses up the watch, and the core asks again (seam.h, rule 11), which
 * sets the next one before it reads, so nothing is missed between. A lost connection takes
 * the watches with it; after UP the core asks again, too. */
#include "driver/zookeeper/zookeeper.h"

#include <string.h>

void hf__zk_follow_start(struct zk *z, struct look *look, struct cell *cell)
{
    struct list *node = look ? &look->drv_node : &cell->drv_node;

    if (list_empty(node)) /* else it is asked again */
        list_push(look ? &z->looks : &z->cells, node);
}

/* Is `path` the node of this line or one of its children? Of the children the cell's is
 * meant, or all others. */
static bool concerns(const struct zk *z, const char *name, size_t name_len, bool of_cell,
                     const char *path, size_t len)
{
    static const char cell[] = "/_cell";
    char dir[DIR_MAX];
    size_t dir_len = hf__zk_dir(z, dir, name, name_len), rest = len - dir_len;
    bool is_cell;

    if (len < dir_len || memcmp(path, dir, dir_len) != 0)
        return false;
    path += dir_len;
    is_cell = rest == sizeof cell - 1 && memcmp(path, cell, rest) == 0;
    if (of_cell)
        return is_cell;
    return rest == 0 || (path[0] == '/' && !is_cell && !memchr(path + 1, '/', rest - 1));
}

void hf__zk_follow_event(struct zk *z, const char *path, size_t len)
{
    list_for_safe(n, &z->looks) {
        struct look *look = container_of(n, struct look, drv_node);

        if (concerns(z, look->name, look->name_len, false, path, len))
            ev_changed(look, NULL);
    }
    list_for_safe(n, &z->cells) {
        struct cell *cell = container_of(n, struct cell, drv_node);

        if (concerns(z, cell->name, cell->name_len, true, path, len))
            ev_changed(NULL, cell);
    }
}
