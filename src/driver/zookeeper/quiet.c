/* quiet.c: lines that nobody else uses for the time being: their tickets need no list.
 *
 * The server numbers the children of a line without gaps. So if our ticket has the number
 * after that of our last one, nobody has joined in between; and if the line was empty
 * when that one had left, nobody stands before us: the answer to create grants. If it has
 * another number the line is listed as ever, which costs one round trip more: so this is
 * expected only of lines where it was so the last time.
 *
 * It must be the same node of the line, which begins to count anew when it was removed
 * and made again. So a watch on it is set while a ticket of ours stands in it, and `last`
 * is believed only as long as that has told nothing: the server tells of a change before
 * it answers anything that shows it (conn.c). The watch goes with the connection, and
 * everything here with it. A watch of a line that is forgotten here for others stays until
 * the servers remove that line's node, which they do soon after it is used no more. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

enum { QUIET_MAX = 256 };

struct quiet {
    struct map_node node; /* zk.quiet_lines */
    struct list used;     /* zk.quiets, the longest unused first */
    int64_t last;         /* the number after which the line was empty; -1: not known */
    int64_t before;       /* the same without the watch: a hint */
    bool alone;           /* nobody came before our last one */
    bool same;            /* the node of the line is watched */
    size_t dir_len;
    char dir[];
};

struct quiet_request {
    struct request q;
    size_t len;
    char dir[];
};

static struct quiet *find(struct zk *z, const char *dir, size_t len)
{
    uint64_t hash = hf__hash_keyed(z->hash_key, dir, len);

    for (struct map_node *n = map_chain(&z->quiet_lines, hash); n; n = n->next) {
        struct quiet *q = container_of(n, struct quiet, node);

        if (n->hash == hash && q->dir_len == len && memcmp(q->dir, dir, len) == 0)
            return q;
    }
    return NULL;
}

static void forget(struct zk *z, struct quiet *q)
{
    hf__map_remove(&z->quiet_lines, &q->node);
    list_remove(&q->used);
    z->nquiet--;
    free(q);
}

void hf__zk_quiet_forget(struct zk *z)
{
    struct list *n;

    while ((n = list_first(&z->quiets)) != NULL)
        forget(z, container_of(n, struct quiet, used));
}

void hf__zk_quiet_event(struct zk *z, const char *path, size_t len)
{
    struct quiet *q = find(z, path, len);

    if (q)
        forget(z, q);
}

bool hf__zk_quiet_expected(const struct zk_line *line)
{
    const struct quiet *q = find(zk_in(line->line.of), line->dir, line->dir_len);

    return q && q->alone && q->same && q->last >= 0;
}

/* ---- the watch ------------------------------------------------------------------- */

static void answer_watch(struct zk *z, struct request *r, struct jute_reply *reply)
{
    const struct quiet_request *k = container_of(r, struct quiet_request, q);
    struct quiet *q = reply && reply->err == 0 ? find(z, k->dir, k->len) : NULL;

    if (q)
        q->same = true;
}

/* Without memory for it there is no watch, and lists go on. */
static void watch(struct zk *z, const struct quiet *q)
{
    struct request *r =
        hf__zk_try_request(answer_watch, sizeof(struct quiet_request) + q->dir_len);
    struct quiet_request *k;

    if (!r)
        return;
    k = container_of(r, struct quiet_request, q);
    k->len = q->dir_len;
    memcpy(k->dir, q->dir, q->dir_len);
    hf__zk_send_watch(z, r, JUTE_GET_DATA, q->dir, q->dir_len);
}

/* ---- coming and going ------------------------------------------------------------ */

static int64_t number_of(const struct zk_seat *s)
{
    struct ordered_place place;

    return hf__zk_place(&place, s->seat.name, strlen(s->seat.name)) ? place.seq : -1;
}

/* Its node has just been made, and is not in the view yet; true: nobody stands before it.
 */
bool hf__zk_quiet_created(struct zk_seat *s)
{
    const struct zk_line *line = line_of(s);
    struct zk *z = zk_in(line->line.of);
    struct quiet *q = find(z, line->dir, line->dir_len);
    int64_t number = number_of(s);
    bool quiet;

    if (!q)
        return false;
    quiet = q->same && q->last >= 0 && q->last + 1 == number && line->line.n == 0 &&
            !line->line.stale;
    q->alone = q->before >= 0 && q->before + 1 == number;
    if (q->alone && !q->same)
        watch(z, q);
    q->last = q->before = -1;
    return quiet;
}

/* Its node was there, with all that stood before it in the view, and has been deleted. */
void hf__zk_quiet_left(struct zk_seat *s)
{
    const struct zk_line *line = line_of(s);
    const struct ordered_line *view = &line->line;
    struct zk *z = zk_in(view->of);
    struct quiet *q = find(z, line->dir, line->dir_len);

    if (view->stale || view->lists > 0 || view->n > 1 ||
        (view->n == 1 && view->entries[0] != s->seat.entry))
        return;
    if (!q) {
        q = calloc(1, sizeof *q + line->dir_len);
        if (!q)
            return;
        q->dir_len = line->dir_len;
        memcpy(q->dir, line->dir, line->dir_len);
        hf__map_insert(&z->quiet_lines, &q->node,
                       hf__hash_keyed(z->hash_key, q->dir, q->dir_len));
        if (++z->nquiet > QUIET_MAX)
            forget(z, container_of(list_first(&z->quiets), struct quiet, used));
    } else {
        list_remove(&q->used);
    }
    list_push(&z->quiets, &q->used);
    q->before = number_of(s);
    q->last = q->same ? q->before : -1;
}
