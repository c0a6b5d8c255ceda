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
};

struct level { /* a node that is being read */
    struct zk_listing *l;
    struct row row; /* of its line, if it is one */
    char node[];    /* as in `names`: "" is the root; else the line's name and a slash */
};

/* ---- the tree -------------------------------------------------------------------- */

/* Names below this one, or it itself, may begin with the prefix. */
static bool may_match(const struct zk_listing *l, const char *name, size_t len)
{
    size_t n = len < l->l.prefix_len ? len : l->l.prefix_len;

    return memcmp(name, l->l.prefix, n) == 0 &&
           (len >= l->l.prefix_len || l->l.prefix[len] == '/');
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

static void ask(struct level *v, enum jute_op op, const char *path, size_t len,
                void answer(struct zk_call *, struct jute_reply *))
{
    struct zk_listing *l = v->l;
    struct zk_call *q = hf__zk_try_request(l->zk, answer, v, "", 0);

    if (q) {
        l->l.open++;
        hf__zk_send_path(q, op, path, len, false);
    } else {
        hf__listing_no_memory(&l->l);
        free(v);
    }
}

static void failed(struct zk_listing *l, const struct jute_reply *reply)
{
    hf_error err;

    hf__listing_fail(&l->l, hf__zk_error(l->zk, reply, &err), &err);
}

static void answer_oldest(struct zk_call *q, struct jute_reply *reply)
{
    struct level *v = q->about;
    struct zk_listing *l = v->l;
    struct jute_stat stat;

    hf__listing_answered(&l->l);
    if (reply && reply->err == 0 && hf__jute_stat(&reply->body, &stat))
        v->row.oldest_ms = hf__zk_age(l->zk, &stat);
    if (reply)
        hf__listing_row(&l->l, &v->row);
    else
        failed(l, reply);
    free(v);
    go_on(l);
}

/* It has these tickets: the first one holds. */
static void is_line(struct level *v, struct ordered_entry **entries, size_t n)
{
    struct zk_listing *l = v->l;
    const char *name = v->node + 1;
    char path[NODE_PATH_MAX];

    v->row = hf__ordered_row(name, strlen(name), entries, n);
    if (!hf__listing_names(&l->l, name, v->row.name_len) || !is_wanted(l, name)) {
        free(v);
        return;
    }
    if (l->found.most > 0 && !hf__names_add(&l->found, name, v->row.name_len))
        hf__listing_no_memory(&l->l);
    hf__names_settle(&l->found);
    if (entry_unreadable(entries[0])) {
        hf__listing_row(&l->l, &v->row);
        free(v);
        return;
    }
    n = hf__zk_dir(l->zk, path, name, v->row.name_len);
    ask(v, JUTE_EXISTS, path, hf__zk_path(path, path, n, entries[0]->name, entries[0]->len),
        answer_oldest);
}

static void take_children(struct level *v, struct jute_in children)
{
    struct zk_listing *l = v->l;
    struct jute_in all = children;
    struct ordered_entry **entries = NULL;
    size_t n = 0;

    for (size_t i = hf__jute_count(&all, 4); i > 0 && l->l.rc == 0; i--) {
        struct jute_text level = hf__jute_text(&all);
        struct form form;

        if (!all.bad && !hf__zk_form(&form, level.at, level.len))
            add(l, v->node, level.at, level.len);
    }
    if (v->node[0] != '\0' && !hf__zk_line_read(&children, &entries, &n))
        hf__listing_no_memory(&l->l);
    if (n > 0)
        is_line(v, entries, n);
    else
        free(v);
    hf__ordered_entries_free(entries, n);
}

static void answer_children(struct zk_call *q, struct jute_reply *reply)
{
    struct level *v = q->about;
    struct zk_listing *l = v->l;

    hf__listing_answered(&l->l);
    if (reply && reply->err == 0 && listing_goes_on(&l->l)) {
        take_children(v, reply->body);
        v = NULL;
    } else if (!reply || (reply->err != 0 && reply->err != JUTE_NO_NODE &&
                          reply->err != JUTE_NO_AUTH)) {
        failed(l, reply);
    }
    l->refused = l->refused || (reply && reply->err == JUTE_NO_AUTH);
    free(v);
    go_on(l);
}

static void ask_children(struct zk_listing *l, const char *node)
{
    size_t len = strlen(node), n = l->zk->root_len;
    struct level *v = calloc(1, sizeof *v + len + 1);
    char path[DIR_MAX];

    if (!v) {
        hf__listing_no_memory(&l->l);
        return;
    }
    v->l = l;
    memcpy(v->node, node, len);
    memcpy(path, l->zk->root, n);
    if (len > 0)
        n = hf__zk_dir(l->zk, path, node + 1, len - 1);
    ask(v, JUTE_GET_CHILDREN2, path, n, answer_children);
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
                         hf__fail(&err, HF_EAUTH, 0, l->zk->open.shown,
                                  "there are nodes, but their ACLs show none of them"),
                         &err);
    }
    hf__names_done(&l->found);
    hf__listing_end(&l->l);
    free(l);
}

void hf__zk_list(struct zk *z, struct look *look)
{
    struct zk_listing *l = hf__listing_new(sizeof *l, look);

    if (!l)
        return;
    l->zk = z;
    l->found.most = look->limit;
    hf__zk_sync(z, z->root, z->root_len);
    ask_children(l, "");
    go_on(l); /* if there was no memory to ask */
}
