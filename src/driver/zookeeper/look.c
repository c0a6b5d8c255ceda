/* look.c: who holds and who waits in one line.
 *
 *   sync, getChildren2 -> getData of every ticket, all at once -> rows
 *
 * A sync first: what was done through other servers is seen. Tickets that go between the
 * list and their reading are left out; but an exclusive one may have become shared, which
 * is another node: then the line is read anew. Nothing is changed by looking (rule 7). A
 * look that follows sets watches with its reads (follow.c). An unanswered look ends with
 * HF_EUNREACHABLE. */
#include "driver/zookeeper/look.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 10 };

void hf__zk_job_fail(struct job *j, const struct jute_reply *reply)
{
    if (j->rc == 0)
        j->rc = hf__zk_error(j->zk, reply, &j->err);
}

static void no_memory(struct job *j)
{
    if (j->rc == 0)
        j->rc = hf__fail(&j->err, HF_ENOMEM, 0, NULL, "no memory for a look");
}

/* ---- the end --------------------------------------------------------------------- */

static int64_t age(const struct zk *z, int64_t ctime)
{
    int64_t ms = z->store.env->wall(z->store.env) / 1000 - ctime;

    return ms > 0 ? ms : 0;
}

static void show_one(const struct job *j, size_t i, struct row *row, uint32_t position,
                     struct record *rec)
{
    const struct zk_seen *s = &j->seen[i];
    const struct ordered_entry *e = j->entries[i];

    hf__zk_record_read(rec, s->data, s->len);
    row->has_ticket = true;
    if (rec->has_token)
        memcpy(row->token, rec->token, HF_TOKEN);
    else
        hf__zk_form_token(row->token, e->name, e->len);
    row->fence = position > 0 ? 0 : rec->fence > 0 ? rec->fence : (uint64_t)s->stat.czxid;
    row->position = position;
    row->weight = e->form.weight;
    row->owner = rec->owner;
    row->host = rec->host;
    row->pid = rec->pid;
    row->age_ms = age(j->zk, s->stat.ctime);
    row->expires_ms = rec->ttl_ms; /* if it died now; when it last renewed nobody can see */
    row->joined = s->stat.czxid;
    row->broken = rec->broken;
    row->note = rec->note;
    row->hints = rec->hints;
    row->hints_len = rec->hints_len;
    ev_row(j->query.look, row);
}

/* Only those that are still there. */
static void pack(struct job *j)
{
    size_t n = 0;

    for (size_t i = 0; i < j->n; i++) {
        if (!j->seen[i].data) {
            free(j->entries[i]);
            continue;
        }
        j->entries[n] = j->entries[i];
        j->seen[n++] = j->seen[i];
    }
    j->n = n;
}

static void show_all(struct job *j)
{
    struct record *rec = malloc(sizeof *rec);
    struct row row;

    if (!rec) {
        no_memory(j);
        return;
    }
    pack(j);
    if (j->n > 0)
        row =
            hf__ordered_row(j->query.look->name, j->query.look->name_len, j->entries, j->n);
    for (size_t i = 0; i < j->n && i < row.holders; i++)
        if (age(j->zk, j->seen[i].stat.ctime) > row.oldest_ms)
            row.oldest_ms = age(j->zk, j->seen[i].stat.ctime);
    for (size_t i = 0; i < j->n; i++)
        show_one(j, i, &row, i < row.holders ? 0 : (uint32_t)(i - row.holders + 1), rec);
    free(rec);
}

static void forget(struct job *j)
{
    for (size_t i = 0; j->seen && i < j->n; i++)
        free(j->seen[i].data);
    free(j->seen);
    hf__ordered_entries_free(j->entries, j->n);
    j->seen = NULL;
    j->entries = NULL;
    j->n = 0;
}

/* One that has become shared meanwhile must not be missed under both its names. */
static bool torn(const struct job *j)
{
    for (size_t i = 0; j->show && i < j->n; i++)
        if (!j->seen[i].data && j->entries[i]->form.kind == LINE_LOCK &&
            j->entries[i]->form.weight == HF_FULL)
            return true;
    return false;
}

static void read_line(struct job *);

static void tell(struct job *j)
{
    if (j->query.look && j->rc == 0 && j->show)
        j->show(j);
    hf__query_end(&j->query, j->rc, &j->err);
    forget(j);
    free(j);
}

bool hf__zk_job_again(struct job *j)
{
    if (!j->query.look || j->tries++ == TRIES)
        return false;
    forget(j);
    read_line(j);
    return true;
}

void hf__zk_job_finish(struct job *j)
{
    if (j->open == 0 && j->rc == 0 && torn(j))
        hf__zk_job_again(j);
    if (j->open == 0)
        tell(j);
}

/* ---- reading --------------------------------------------------------------------- */

struct request *hf__zk_job_request(struct job *j,
                                   void (*answer)(struct zk *, struct request *,
                                                  struct jute_reply *),
                                   size_t index)
{
    struct request *q = hf__zk_try_request(answer, sizeof(struct job_request));

    if (!q) {
        no_memory(j);
        return NULL;
    }
    container_of(q, struct job_request, q)->job = j;
    container_of(q, struct job_request, q)->index = index;
    j->open++;
    return q;
}

static void answer_data(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct job *j = job_of(q);
    struct zk_seen *s = &j->seen[container_of(q, struct job_request, q)->index];
    struct jute_text data;

    (void)z;
    j->open--;
    if (!reply || (reply->err != 0 && reply->err != JUTE_NO_NODE)) {
        hf__zk_job_fail(j, reply);
    } else if (reply->err == 0) {
        data = hf__jute_text(&reply->body);
        if (!hf__jute_stat(&reply->body, &s->stat)) {
            hf__zk_job_fail(j, reply);
        } else if ((s->data = malloc(data.len + 1)) == NULL) {
            no_memory(j);
        } else {
            memcpy(s->data, data.at, data.len);
            s->len = data.len;
        }
    }
    hf__zk_job_finish(j);
}

size_t hf__zk_job_path(const struct job *j, size_t index, char path[NODE_PATH_MAX])
{
    const struct ordered_entry *e = j->entries[index];
    size_t n = j->dir_len;

    memcpy(path, j->dir, n);
    path[n++] = '/';
    memcpy(path + n, e->name, e->len);
    return n + e->len;
}

static void send(struct job *j, struct request *q, enum jute_op op, const char *path,
                 size_t len)
{
    if (j->follow)
        hf__zk_send_watch(j->zk, q, op, path, len);
    else
        hf__zk_send_path(j->zk, q, op, path, len);
}

static void read_all(struct job *j)
{
    char path[NODE_PATH_MAX];

    for (size_t i = 0; i < j->n; i++) {
        struct request *q;

        if (entry_unreadable(j->entries[i])) {
            j->seen[i].data = strdup(""); /* it is there: that is all we know */
            continue;
        }
        q = hf__zk_job_request(j, answer_data, i);
        if (q)
            send(j, q, JUTE_GET_DATA, path, hf__zk_job_path(j, i, path));
    }
}

static void answer_watched(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct job *j = job_of(q);

    (void)z;
    j->open--;
    if (!reply)
        hf__zk_job_fail(j, reply);
    else if (reply->err == 0 && j->query.look)
        ev_changed(j->query.look, NULL); /* it came into being meanwhile */
    hf__zk_job_finish(j);
}

/* mode=ephemeral: the one node is the one ticket. */
static bool add_alone(struct job *j)
{
    static const char name[] = "_ephemeral";
    struct ordered_entry *e = calloc(1, sizeof *e + sizeof name);

    j->entries = calloc(2, sizeof *j->entries);
    if (!e || !j->entries) {
        free(e);
        return false;
    }
    e->form =
        (struct ordered_place){ .kind = LINE_LOCK, .weight = HF_FULL, .capacity = HF_FULL };
    e->len = sizeof name - 1;
    memcpy(e->name, name, sizeof name);
    j->entries[0] = e;
    j->n = 1;
    return true;
}

/* What stands behind the ticket of a look at the front is not read. */
static void cut_behind(struct job *j)
{
    unsigned char token[HF_TOKEN];
    size_t i = 0;

    for (; i < j->n; i++) {
        hf__zk_form_token(token, j->entries[i]->name, j->entries[i]->len);
        if (memcmp(token, j->query.look->token, HF_TOKEN) == 0)
            break;
    }
    while (j->n > i + 1)
        free(j->entries[--j->n]);
}

static void take_list(struct job *j, struct jute_in *children)
{
    bool good =
        j->zk->alone ? add_alone(j) : hf__zk_line_read(children, &j->entries, &j->n);

    if (good && j->query.look->front)
        cut_behind(j);

    j->seen = calloc(j->n + 1, sizeof *j->seen);
    if (good && j->seen)
        j->listed(j);
    else
        no_memory(j);
}

static void answer_children(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct job *j = job_of(q);

    j->open--;
    if (!j->query.look) {
        hf__zk_job_finish(j);
        return;
    }
    if (reply && reply->err == JUTE_NO_NODE && j->follow) {
        struct request *watch = hf__zk_job_request(j, answer_watched, 0);

        if (watch) /* to hear of it when there is one */
            hf__zk_send_watch(z, watch, JUTE_EXISTS, j->dir, j->dir_len);
    } else if (reply && reply->err == JUTE_NO_NODE) {
        j->listed(j); /* nobody */
    } else if (!reply || reply->err != 0) {
        hf__zk_job_fail(j, reply);
    } else {
        take_list(j, &reply->body);
    }
    hf__zk_job_finish(j);
}

static void read_line(struct job *j)
{
    struct request *q;

    hf__zk_sync(j->zk, j->dir, j->dir_len, hf__zk_ignore);
    q = hf__zk_job_request(j, answer_children, 0);
    if (q)
        send(j, q, JUTE_GET_CHILDREN2, j->dir, j->dir_len);
}

void hf__zk_job_start(struct zk *z, struct look *look, void (*listed)(struct job *),
                      void (*show)(struct job *))
{
    struct job *j = calloc(1, sizeof *j + DIR_MAX);

    if (!j) {
        hf__query_refuse(look, NULL, HF_ENOMEM, NULL, "no memory for a look");
        return;
    }
    j->zk = z;
    hf__query_begin(&j->query, look, NULL);
    j->listed = listed;
    j->show = show;
    j->follow = look->follow;
    j->dir_len = hf__zk_dir(z, j->dir, look->name, look->name_len);
    read_line(j);
    hf__zk_job_finish(j); /* if there was no memory to ask */
}

/* mode=ephemeral: HF_CAP_LINE is missing. */
void hf__zk_not_here(const struct zk *z, struct look *look, const char *what)
{
    hf__query_refuse(look, NULL, HF_ENOTSUP, z->shown, "%s: not with mode=ephemeral", what);
}

void hf__zk_look(struct store *s, struct look *look)
{
    struct zk *z = zk_of(s);

    if (look->follow)
        hf__zk_follow_start(z, look, NULL);
    if (look->list && z->alone)
        hf__zk_not_here(z, look, "a list of lines");
    else if (look->list)
        hf__zk_list(z, look);
    else if (look->brief)
        hf__zk_brief(z, look);
    else
        hf__zk_job_start(z, look, read_all, show_all);
}

/* ---- stopping -------------------------------------------------------------------- */

void hf__zk_stop(struct store *s, struct look *look, struct cell *cell)
{
    (void)s;
    list_remove(look ? &look->drv_node : &cell->drv_node); /* a follow */
    hf__query_stop(look, cell);
}
