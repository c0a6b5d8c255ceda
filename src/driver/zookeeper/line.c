/* line.c: the lines in which this client has seats: what the server tells of their nodes,
 * in the terms of kit/ordered.h, which decides by it.
 *
 * Lists are getChildren2; one ticket is watched by getData, which leaves nothing behind on
 * a node that is gone. ZooKeeper executes the requests of a session in order, and tells of
 * a change before it answers anything that shows it; the zxid of an answer is the revision.
 *
 * An exclusive ticket becomes shared by one step that makes a node with the same number and
 * deletes the old one (amend.c). The name of a "-lock-" as shared is known; that of
 * "__WRIT__" and "__lock__" is not. */
#include "driver/zookeeper/zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lines ----------------------------------------------------------------------- */

static struct zk_line *line_of_dir(struct zk *z, const char *dir, size_t len)
{
    uint64_t hash = hf__hash_keyed(z->hash_key, dir, len);

    for (struct map_node *n = map_chain(&z->lines, hash); n; n = n->next) {
        struct zk_line *line = container_of(n, struct zk_line, node);

        if (n->hash == hash && line->dir_len == len && memcmp(line->dir, dir, len) == 0)
            return line;
    }
    return NULL;
}

struct zk_line *hf__zk_line_get(struct zk *z, const char *name, size_t len)
{
    char dir[DIR_MAX];
    size_t n = hf__zk_dir(z, dir, name, len);
    struct zk_line *line = line_of_dir(z, dir, n);

    if (line)
        return line;
    line = calloc(1, sizeof *line + n + len + 1);
    if (!line)
        return NULL;
    line->dir_len = n;
    line->name = line->dir + n;
    memcpy(line->dir, dir, n);
    memcpy(line->name, name, len);
    list_init(&line->quiet);
    line->last = line->before = -1;
    hf__map_insert(&z->lines, &line->node, hf__hash_keyed(z->hash_key, dir, n));
    hf__ordered_line_init(&z->ordered, &line->line);
    return line;
}

void hf__zk_line_free_ops(struct ordered_line *l)
{
    hf__map_remove(&zk_in(l->of)->lines, &zk_line(l)->node);
    free(zk_line(l));
}

size_t hf__zk_line_path(const struct zk_line *line, char path[NODE_PATH_MAX],
                        const char *node, size_t len)
{
    return hf__zk_path(path, line->dir, line->dir_len, node, len);
}

/* ---- lists ----------------------------------------------------------------------- */

/* The children that are tickets, sorted; false: no memory, or not of the form it should
 * have. */
bool hf__zk_line_read(struct jute_in *in, struct ordered_entry ***ret, size_t *ret_n)
{
    size_t n = hf__jute_count(in, 4), k = 0;
    struct ordered_entry **entries = calloc(n + 1, sizeof *entries);
    bool good = entries != NULL;

    for (size_t i = 0; good && i < n; i++) {
        struct jute_text name = hf__jute_text(in);
        struct form form;

        if (in->bad || !hf__zk_form(&form, name.at, name.len))
            continue;
        entries[k] = hf__ordered_entry(&form.place, name.at, name.len);
        good = entries[k++] != NULL;
    }
    if (!good || in->bad) {
        hf__ordered_entries_free(entries, k);
        return false;
    }
    hf__ordered_sort(entries, k);
    *ret = entries;
    *ret_n = k;
    return true;
}

static void answer_list(struct zk_call *q, struct jute_reply *reply)
{
    struct ordered_line *line = q->about;
    bool none = reply->err == JUTE_NO_NODE;
    struct ordered_entry **entries = NULL;
    hf_error err;
    size_t n = 0;

    if (none && q->flag) /* then no watch was set */
        line->watch = WATCH_NONE;
    if (reply->err != 0 && !none)
        hf__ordered_not_listed(line, hf__zk_error(q->zk, reply, &err), q->flag);
    else if (!none && !hf__zk_line_read(&reply->body, &entries, &n))
        hf__zk_break(q->zk, HF_ENOMEM, "no memory for a line");
    else
        hf__ordered_listed(line, entries, n, (uint64_t)reply->zxid, q->flag && !none);
}

static void answer_line(struct zk_call *q, struct jute_reply *reply)
{
    struct ordered_line *line = q->about;

    if (reply)
        q->then(q, reply);
    hf__ordered_line_unpin(line);
}

struct zk_call *hf__zk_line_request(struct ordered_line *line,
                                    void then(struct zk_call *, struct jute_reply *),
                                    const char *name, size_t len)
{
    struct zk_call *q = hf__zk_request(zk_in(line->of), answer_line, line, name, len);

    if (!q)
        return NULL;
    q->then = then;
    line->pins++;
    return q;
}

void hf__zk_line_list(struct ordered_line *l, bool watch)
{
    const struct zk_line *line = zk_line(l);
    struct zk_call *q = hf__zk_line_request(l, answer_list, "", 0);

    if (!q)
        return;
    q->flag = watch;
    hf__zk_send_path(q, JUTE_GET_CHILDREN2, line->dir, line->dir_len, watch);
}

/* ---- one ticket ------------------------------------------------------------------ */

static struct ordered_entry *find(const struct zk_line *line, const char *name, size_t len)
{
    struct form form;

    return hf__zk_form(&form, name, len)
               ? hf__ordered_find(&line->line, form.place.seq, name, len)
               : NULL;
}

enum ordered_seen hf__zk_seat_read(struct zk_seat *s, struct jute_reply *reply)
{
    struct jute_text data;
    struct jute_stat stat;
    struct ticket_record rec;

    if (!hf__jute_node(reply, &data, &stat) || stat.owner != zk_in(s->seat.of)->session.id)
        return SEEN_FOREIGN;
    hf__record_read(&rec, data.at, data.len);
    s->version = stat.version;
    s->marked = s->marked || rec.broken;
    return rec.broken ? SEEN_MARKED : SEEN_THERE;
}

static void answer_watch(struct zk_call *q, struct jute_reply *reply)
{
    struct zk_line *line = zk_line(q->about);
    struct ordered_entry *e = find(line, q->name, q->len);
    struct env *env = q->zk->store.env;
    enum ordered_seen what = SEEN_THERE;
    hf_error err;

    if (!e)
        return;
    if (reply->err == JUTE_NO_NODE) {
        what = SEEN_GONE;
    } else if (reply->err != 0) {
        hf__zk_error(q->zk, reply, &err);
        env->log(env, HF_LOG_WARN, line->name, err.text);
        what = SEEN_REFUSED;
    } else if (e->seat) {
        what = hf__zk_seat_read(zk_seat(e->seat), reply);
    }
    hf__ordered_seen(&line->line, e, what, 0);
}

bool hf__zk_line_watch(struct ordered_line *l, struct ordered_entry *e)
{
    char path[NODE_PATH_MAX];

    if (entry_unreadable(e))
        return false;
    hf__zk_send_path(hf__zk_line_request(l, answer_watch, e->name, e->len), JUTE_GET_DATA,
                     path, hf__zk_line_path(zk_line(l), path, e->name, e->len), true);
    return true; /* else the connection is given up */
}

enum ordered_other hf__zk_line_other(const struct ordered_entry *e,
                                     struct ordered_entry **ret)
{
    static const char mark[] = "-lock-", shared[] = "-read-lock-";
    char name[NODE_MAX];
    struct form form;
    int n;

    if (!hf__zk_form(&form, e->name, e->len) || !form.renames)
        return OTHER_UNKNOWN;
    n = snprintf(name, sizeof name, "%.*s%s%.*s", (int)(form.digits - (sizeof mark - 1)),
                 e->name, shared, (int)(e->len - form.digits), e->name + form.digits);
    if (n < 0 || (size_t)n >= sizeof name)
        return OTHER_UNKNOWN;
    form.place.weight = 1;
    *ret = hf__ordered_entry(&form.place, name, (size_t)n);
    return *ret ? OTHER_NAMED : OTHER_UNKNOWN;
}

/* ---- events ---------------------------------------------------------------------- */

void hf__zk_line_event(struct zk *z, enum jute_event type, const char *path, size_t len)
{
    struct zk_line *line = line_of_dir(z, path, len);
    const char *slash = memrchr(path, '/', len);
    struct ordered_entry *e = NULL;

    if (z->alone) {
        hf__zk_alone_event(z, type, path, len);
        return;
    }
    if (line && (type == JUTE_CHILDREN || type == JUTE_DELETED))
        hf__ordered_line_changed(&line->line, type == JUTE_DELETED);
    if (line && type != JUTE_CHILDREN)
        hf__zk_quiet_end(line);
    line = slash && type != JUTE_CHILDREN ? line_of_dir(z, path, (size_t)(slash - path))
                                          : NULL;
    if (line)
        e = find(line, slash + 1, len - (size_t)(slash + 1 - path));
    if (e)
        hf__ordered_seen(&line->line, e, type == JUTE_DELETED ? SEEN_GONE : SEEN_CHANGED,
                         0);
}

/* ---- down and up ----------------------------------------------------------------- */

void hf__zk_line_down(struct zk *z)
{
    hf__zk_quiet_forget(z);
    list_for(n, &z->ordered.lines)
        zk_line_in(n)->finding = false;
    hf__ordered_down(&z->ordered);
    hf__zk_alone_down(z);
}

/* Those that `break` has marked live on a life of their own. */
void hf__zk_lines_over(struct zk *z, const struct life *life)
{
    list_for(n, &z->ordered.lines)
        list_for(k, &zk_line_in(n)->line.seats) {
            const struct ordered_seat *s = container_of(k, struct ordered_seat, in_line);

            if (s->state == SEAT_HELD && s->t->life && s->t->life != life)
                ev_dead(s->t->life);
        }
    hf__ordered_over(&z->ordered);
    hf__zk_alone_over(z);
}
