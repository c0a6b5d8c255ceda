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
 * everything here with it. A quiet line is kept for a while without a seat of ours. A watch
 * of one that is forgotten for others stays until the servers remove that line's node,
 * which they do soon after it is used no more. */
#include "driver/zookeeper/zookeeper.h"

#include <string.h>

enum { QUIET_MAX = 256 };

static bool is_quiet(const struct zk_line *line)
{
    return !list_empty(&line->quiet);
}

void hf__zk_quiet_end(struct zk_line *line)
{
    struct zk *z = zk_in(line->line.of);

    if (!is_quiet(line))
        return;
    list_remove(&line->quiet);
    z->nquiet--;
    line->last = line->before = -1;
    line->alone = line->same = false;
    hf__ordered_line_unpin(&line->line);
}

void hf__zk_quiet_forget(struct zk *z)
{
    struct list *n;

    while ((n = list_first(&z->quiets)) != NULL)
        hf__zk_quiet_end(container_of(n, struct zk_line, quiet));
}

bool hf__zk_quiet_expected(const struct zk_line *line)
{
    return line->alone && line->same && line->last >= 0;
}

/* ---- the watch ------------------------------------------------------------------- */

static void answer_watch(struct zk_call *q, struct jute_reply *reply)
{
    struct zk_line *line = zk_line(q->about);

    line->same = reply->err == 0 && is_quiet(line);
}

static void watch(struct zk_line *line)
{
    hf__zk_send_path(hf__zk_line_request(&line->line, answer_watch, "", 0), JUTE_GET_DATA,
                     line->dir, line->dir_len, true);
}

/* ---- coming and going ------------------------------------------------------------ */

static int64_t number_of(const struct zk_seat *s)
{
    struct form form;

    return hf__zk_form(&form, s->name, strlen(s->name)) ? form.place.seq : -1;
}

/* Its node has just been made, and is not in the view yet; true: nobody stands before it.
 */
bool hf__zk_quiet_created(struct zk_seat *s)
{
    struct zk_line *line = line_of(s);
    int64_t number = number_of(s);
    bool quiet;

    if (!is_quiet(line))
        return false;
    quiet = line->same && line->last >= 0 && line->last + 1 == number &&
            line->line.n == 0 && !line->line.stale;
    line->alone = line->before >= 0 && line->before + 1 == number;
    if (line->alone && !line->same)
        watch(line);
    line->last = line->before = -1;
    return quiet;
}

/* Its node was there, with all that stood before it in the view, and has been deleted. A
 * view that others stand in is not kept without a seat of ours. */
void hf__zk_quiet_left(struct zk_seat *s)
{
    struct zk_line *line = line_of(s);
    const struct ordered_line *view = &line->line;
    struct zk *z = zk_in(view->of);

    if (view->stale || view->lists > 0 || view->n > 1 ||
        (view->n == 1 && view->entries[0] != s->seat.entry)) {
        hf__zk_quiet_end(line);
        return;
    }
    if (!is_quiet(line)) {
        line->line.pins++;
        if (++z->nquiet > QUIET_MAX)
            hf__zk_quiet_end(container_of(list_first(&z->quiets), struct zk_line, quiet));
    }
    list_remove(&line->quiet);
    list_push(&z->quiets, &line->quiet);
    line->before = number_of(s);
    line->last = line->same ? line->before : -1;
}
