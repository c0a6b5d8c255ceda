/* list.c: which lines there are: a walk over the tree below the root, some nodes at a
 * time, then one row for each line in the order of names. Levels that no name gives are
 * other programs' and are left alone; so are subtrees whose names cannot begin with the
 * prefix. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

enum { AT_A_TIME = 64 };

struct found { /* a node to look at, then perhaps a line */
    char *name;
    struct ordered_place head;
    size_t holders, waiters;
    int64_t oldest_ms;
};

struct listing {
    struct zk *zk;
    struct look *look; /* NULL: stopped */
    struct found *found;
    size_t n, room, next, open;
    int rc;
    hf_error err;
    size_t prefix_len;
    char prefix[];
};

struct listing_request {
    struct request q;
    struct listing *l;
    size_t index; /* of found; SIZE_MAX: the root */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct found *)a)->name, ((const struct found *)b)->name);
}

static void show(struct listing *l)
{
    size_t shown = 0;

    if (l->n > 1)
        qsort(l->found, l->n, sizeof *l->found, by_name);
    for (size_t i = 0; i < l->n; i++) {
        const struct found *f = &l->found[i];
        struct row row = { .name = f->name,
                           .name_len = strlen(f->name),
                           .kind = f->head.kind,
                           .capacity = f->head.capacity,
                           .holders = f->holders,
                           .waiters = f->waiters,
                           .oldest_ms = f->oldest_ms };

        if (f->holders == 0 || row.name_len < l->prefix_len ||
            memcmp(f->name, l->prefix, l->prefix_len) != 0)
            continue;
        if (l->look->limit > 0 && shown++ == l->look->limit)
            break;
        ev_row(l->look, &row);
    }
}

static void end_listing(struct listing *l)
{
    struct look *look = l->look;
    int rc = l->rc;
    hf_error err = l->err;

    if (look && rc == 0)
        show(l);
    for (size_t i = 0; i < l->n; i++) {
        free(l->found[i].name);
    }
    free(l->found);
    free(l);
    if (look) {
        look->drv_ptr = NULL;
        ev_done(look, NULL, rc, rc < 0 ? &err : NULL);
    }
}

static void no_memory(struct listing *l)
{
    if (l->rc == 0)
        l->rc = hf__fail(&l->err, HF_ENOMEM, 0, NULL, "no memory for a list");
}

/* ---- the tree -------------------------------------------------------------------- */

/* Names below this one, or it itself, may begin with the prefix. */
static bool may_match(const struct listing *l, const char *name, size_t len)
{
    size_t n = len < l->prefix_len ? len : l->prefix_len;

    return memcmp(name, l->prefix, n) == 0 &&
           (len >= l->prefix_len || l->prefix[len] == '/');
}

static void add(struct listing *l, size_t parent, const char *level, size_t len)
{
    char name[2 * HF_NAME_MAX + 2];
    size_t at = 0, n;

    if (parent != SIZE_MAX) {
        at = strlen(l->found[parent].name);
        memcpy(name, l->found[parent].name, at);
        name[at++] = '/';
    }
    if (!hf__zk_level(name + at, &n, level, len) || at + n > HF_NAME_MAX)
        return;
    name[at + n] = '\0';
    if (!may_match(l, name, at + n))
        return;
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        struct found *found = realloc(l->found, room * sizeof *found);

        if (!found) {
            no_memory(l);
            return;
        }
        l->found = found;
        l->room = room;
    }
    l->found[l->n] = (struct found){ .name = strdup(name), .oldest_ms = -1 };
    if (l->found[l->n].name)
        l->n++;
    else
        no_memory(l);
}

static void go_on(struct listing *);

static struct request *request(struct listing *l, size_t index,
                               void (*answer)(struct zk *, struct request *,
                                              struct jute_reply *))
{
    struct request *q = hf__zk_try_request(answer, sizeof(struct listing_request));

    if (!q) {
        no_memory(l);
        return NULL;
    }
    container_of(q, struct listing_request, q)->l = l;
    container_of(q, struct listing_request, q)->index = index;
    l->open++;
    return q;
}

static void answer_oldest(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct listing_request *k = container_of(q, struct listing_request, q);
    struct listing *l = k->l;
    struct jute_stat stat;

    l->open--;
    if (!reply) {
        l->rc = l->rc ? l->rc : hf__zk_error(z, reply, &l->err);
    } else if (reply->err == 0 && hf__jute_stat(&reply->body, &stat)) {
        int64_t ms = z->store.env->wall(z->store.env) / 1000 - stat.ctime;

        l->found[k->index].oldest_ms = ms > 0 ? ms : 0;
    }
    go_on(l);
}

static void ask_oldest(struct listing *l, size_t index, const char *node, size_t len)
{
    char path[NODE_PATH_MAX];
    const char *name = l->found[index].name;
    struct request *q = request(l, index, answer_oldest);
    size_t n = hf__zk_dir(l->zk, path, name, strlen(name));

    if (!q)
        return;
    path[n++] = '/';
    memcpy(path + n, node, len);
    hf__zk_send_path(l->zk, q, JUTE_EXISTS, path, n + len);
}

static void is_line(struct listing *l, size_t index, struct jute_in children)
{
    struct ordered_entry **entries = NULL;
    struct found *f = &l->found[index];
    size_t n = 0;

    if (!hf__zk_line_read(&children, &entries, &n)) {
        no_memory(l);
        return;
    }
    if (n > 0) {
        f->head = entries[0]->form;
        f->holders = hf__ordered_holders(entries, n);
        f->waiters = n - f->holders;
        if (!entry_unreadable(entries[0]))
            ask_oldest(l, index, entries[0]->name, entries[0]->len);
    }
    hf__ordered_entries_free(entries, n);
}

static void answer_children(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct listing_request *k = container_of(q, struct listing_request, q);
    struct listing *l = k->l;

    l->open--;
    if (!reply ||
        (reply->err != 0 && reply->err != JUTE_NO_NODE && reply->err != JUTE_NO_AUTH)) {
        l->rc = l->rc ? l->rc : hf__zk_error(z, reply, &l->err);
    } else if (reply->err == 0 && l->look) {
        struct jute_in all = reply->body;

        for (size_t n = hf__jute_count(&all, 4); n > 0 && l->rc == 0; n--) {
            struct jute_text name = hf__jute_text(&all);
            struct form form;

            if (!all.bad && !hf__zk_form(&form, name.at, name.len))
                add(l, k->index, name.at, name.len);
        }
        if (k->index != SIZE_MAX && l->rc == 0)
            is_line(l, k->index, reply->body);
    }
    go_on(l);
}

static void ask_children(struct listing *l, size_t index)
{
    char path[DIR_MAX];
    struct request *q = request(l, index, answer_children);
    size_t n = l->zk->root_len;

    if (!q)
        return;
    if (index == SIZE_MAX)
        memcpy(path, l->zk->root, n);
    else
        n = hf__zk_dir(l->zk, path, l->found[index].name, strlen(l->found[index].name));
    hf__zk_send_path(l->zk, q, JUTE_GET_CHILDREN2, path, n);
}

static void go_on(struct listing *l)
{
    while (l->look && l->rc == 0 && l->next < l->n && l->open < AT_A_TIME)
        ask_children(l, l->next++);
    if (l->open == 0)
        end_listing(l);
}

void hf__zk_list(struct zk *z, struct look *look)
{
    struct listing *l = calloc(1, sizeof *l + look->name_len + 1);
    hf_error err;

    if (!l) {
        hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a list");
        ev_done(look, NULL, HF_ENOMEM, &err);
        return;
    }
    l->zk = z;
    l->look = look;
    l->prefix_len = look->name_len;
    memcpy(l->prefix, look->name, look->name_len);
    look->drv_ptr = l;
    hf__zk_sync(z, z->root, z->root_len, hf__zk_ignore);
    ask_children(l, SIZE_MAX);
    if (l->open == 0)
        end_listing(l);
}

void hf__zk_list_stop(void *listing)
{
    ((struct listing *)listing)->look = NULL;
}
