/* list.c: which lines there are: a walk over the tree below the root, in the order of
 * names, some nodes at a time.
 *
 *   getChildren2 of a node -> its children are names to read; its tickets make it a line
 *   exists of the line's first ticket -> how long it has been held -> a row
 *
 * A child's name comes after its parent's, so the least name that is not read yet comes
 * before all that are still unknown. With a limit the walk ends when that many lines are
 * found and no name before the last of them is left to be read. Requests that run ahead may
 * find a few lines more. Levels that no name gives are other programs' and are left alone;
 * so are subtrees whose names cannot begin with the prefix. What an ACL hides is left out,
 * unless it is all there is: an empty list would say that nobody holds anything. */
#include "driver/zookeeper/zookeeper.h"
#include "kit/listing.h"

#include <stdlib.h>
#include <string.h>

enum { AT_A_TIME = 64 };

struct zk_listing {
    /* Its names are nodes that were not read yet, each level with a slash before it: a name
     * may begin with an empty level, and would be taken for the root without it. */
    struct listing l;
    struct name_set found; /* with a limit: the first so many lines */
    struct zk *zk;
    bool refused; /* an ACL hides a node */
    size_t prefix_len;
    char prefix[];
};

struct listing_request {
    struct request q;
    struct zk_listing *l;
    struct row row; /* of a line */
    size_t name_len;
    char name[]; /* of a line; of a node: as in `names`, "" is the root */
};

static struct listing_request *of(struct request *q)
{
    return container_of(q, struct listing_request, q);
}

/* ---- the tree -------------------------------------------------------------------- */

/* Names below this one, or it itself, may begin with the prefix. */
static bool may_match(const struct zk_listing *l, const char *name, size_t len)
{
    size_t n = len < l->prefix_len ? len : l->prefix_len;

    return memcmp(name, l->prefix, n) == 0 &&
           (len >= l->prefix_len || l->prefix[len] == '/');
}

static void add(struct zk_listing *l, const char *parent, const char *level, size_t len)
{
    char node[2 * HF_NAME_MAX + 3];
    size_t at = strlen(parent), n;

    memcpy(node, parent, at);
    node[at++] = '/';
    if (!hf__zk_level(node + at, &n, level, len) || at + n > HF_NAME_MAX + 1 ||
        !may_match(l, node + 1, at + n - 1))
        return;
    if (!hf__names_add(&l->l.names, node, at + n))
        hf__listing_no_memory(&l->l);
}

/* Could a line of this name still be among those that are asked for? */
static bool is_wanted(const struct zk_listing *l, const char *name)
{
    size_t limit = l->l.query.look->limit;

    return limit == 0 || l->found.n < limit || strcmp(name, l->found.at[limit - 1]) < 0;
}

static void go_on(struct zk_listing *);

static struct listing_request *request(struct zk_listing *l, const char *name,
                                       void (*answer)(struct zk *, struct request *,
                                                      struct jute_reply *))
{
    size_t len = strlen(name);
    struct request *q =
        hf__zk_try_request(answer, sizeof(struct listing_request) + len + 1);

    if (!q) {
        hf__listing_no_memory(&l->l);
        return NULL;
    }
    of(q)->l = l;
    of(q)->name_len = len;
    memcpy(of(q)->name, name, len + 1);
    l->l.open++;
    return of(q);
}

static void failed(struct zk_listing *l, const struct jute_reply *reply)
{
    hf_error err;

    hf__listing_fail(&l->l, hf__zk_error(l->zk, reply, &err), &err);
}

static void answer_oldest(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct listing_request *k = of(q);
    struct zk_listing *l = k->l;
    struct jute_stat stat;

    hf__listing_answered(&l->l);
    if (!reply) {
        failed(l, reply);
    } else {
        if (reply->err == 0 && hf__jute_stat(&reply->body, &stat)) {
            int64_t ms = z->store.env->wall(z->store.env) / 1000 - stat.ctime;

            k->row.oldest_ms = ms > 0 ? ms : 0;
        }
        k->row.name = k->name;
        k->row.name_len = k->name_len;
        hf__listing_row(&l->l, &k->row);
    }
    go_on(l);
}

static void ask_oldest(struct zk_listing *l, const char *name, const struct row *row,
                       const struct ordered_entry *first)
{
    char path[NODE_PATH_MAX];
    struct listing_request *k = request(l, name, answer_oldest);
    size_t n = hf__zk_dir(l->zk, path, name, strlen(name));

    if (!k)
        return;
    k->row = *row;
    path[n++] = '/';
    memcpy(path + n, first->name, first->len);
    hf__zk_send_path(l->zk, &k->q, JUTE_EXISTS, path, n + first->len);
}

/* It has these tickets: the first one holds. */
static void is_line(struct zk_listing *l, const char *name, struct ordered_entry **entries,
                    size_t n)
{
    struct row row = hf__ordered_row(name, strlen(name), entries, n);

    if (row.name_len < l->prefix_len || memcmp(name, l->prefix, l->prefix_len) != 0 ||
        !is_wanted(l, name))
        return;
    if (l->found.most > 0 && !hf__names_add(&l->found, name, row.name_len))
        hf__listing_no_memory(&l->l);
    hf__names_settle(&l->found);
    if (entry_unreadable(entries[0]))
        hf__listing_row(&l->l, &row);
    else
        ask_oldest(l, name, &row, entries[0]);
}

static void take_children(struct zk_listing *l, const char *node, struct jute_in children)
{
    struct jute_in all = children;
    struct ordered_entry **entries = NULL;
    size_t n = 0;

    for (size_t i = hf__jute_count(&all, 4); i > 0 && l->l.rc == 0; i--) {
        struct jute_text level = hf__jute_text(&all);
        struct form form;

        if (!all.bad && !hf__zk_form(&form, level.at, level.len))
            add(l, node, level.at, level.len);
    }
    if (node[0] == '\0')
        return;
    if (!hf__zk_line_read(&children, &entries, &n))
        hf__listing_no_memory(&l->l);
    else if (n > 0)
        is_line(l, node + 1, entries, n);
    hf__ordered_entries_free(entries, n);
}

static void answer_children(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct zk_listing *l = of(q)->l;

    (void)z;
    hf__listing_answered(&l->l);
    if (!reply ||
        (reply->err != 0 && reply->err != JUTE_NO_NODE && reply->err != JUTE_NO_AUTH))
        failed(l, reply);
    else if (reply->err == 0 && listing_goes_on(&l->l))
        take_children(l, of(q)->name, reply->body);
    l->refused = l->refused || (reply && reply->err == JUTE_NO_AUTH);
    go_on(l);
}

static void ask_children(struct zk_listing *l, const char *node)
{
    char path[DIR_MAX];
    struct listing_request *k = request(l, node, answer_children);
    size_t n = l->zk->root_len;

    if (!k)
        return;
    if (node[0] == '\0')
        memcpy(path, l->zk->root, n);
    else
        n = hf__zk_dir(l->zk, path, node + 1, strlen(node + 1));
    hf__zk_send_path(l->zk, &k->q, JUTE_GET_CHILDREN2, path, n);
}

/* Not more than are still missing: each may be a line. */
static size_t at_a_time(const struct zk_listing *l)
{
    size_t limit = l->l.query.look->limit, found = l->found.n;

    if (limit == 0 || limit > found + AT_A_TIME)
        return AT_A_TIME;
    return limit > found ? limit - found : 1;
}

static void go_on(struct zk_listing *l)
{
    struct name_set *s = &l->l.names;
    char *node;

    while (listing_goes_on(&l->l) && l->l.open < at_a_time(l) && s->first < s->n) {
        if (l->l.query.look->limit > 0)
            hf__names_settle(s);
        if (!is_wanted(l, s->at[s->first] + 1))
            break;
        node = hf__names_take(s);
        ask_children(l, node);
        free(node);
    }
    if (l->l.open > 0)
        return;
    if (l->refused && l->l.shown == 0 && l->l.rc == 0) {
        hf_error err;

        hf__listing_fail(&l->l,
                         hf__fail(&err, HF_EAUTH, 0, l->zk->shown,
                                  "there are nodes, but their ACLs show none of them"),
                         &err);
    }
    hf__names_done(&l->found);
    hf__listing_end(&l->l);
    free(l);
}

void hf__zk_list(struct zk *z, struct look *look)
{
    struct zk_listing *l = calloc(1, sizeof *l + look->name_len + 1);

    if (!l) {
        hf__query_refuse(look, NULL, HF_ENOMEM, NULL, "no memory for a list");
        return;
    }
    l->zk = z;
    l->found.most = look->limit;
    l->prefix_len = look->name_len;
    memcpy(l->prefix, look->name, look->name_len);
    hf__listing_begin(&l->l, look);
    hf__zk_sync(z, z->root, z->root_len, hf__zk_ignore);
    ask_children(l, "");
    go_on(l); /* if there was no memory to ask */
}
