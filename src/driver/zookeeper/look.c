/* look.c: who holds and who waits in one line; ending a ticket by its token.
 *
 *   sync, getChildren2 -> getData of every ticket, all at once -> rows
 *
 * A sync first: what was done through other servers is seen. Tickets that go between the
 * list and their reading are left out. Nothing is changed by looking (rule 7). A look
 * that follows sets watches with its reads (follow.c). An unanswered look ends with
 * HF_EUNREACHABLE.
 *
 * Eviction finds the ticket by its token among the names. At once: its node is deleted.
 * Else a mark is written into its data, under its version so that nothing is
 * overwritten, which its holder watches; another program's ticket has nobody who would
 * heed it (HF_ENOTSUP). */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

struct seen {
    char *data; /* NULL: gone, or not read */
    size_t len;
    struct jute_stat stat;
};

struct job {
    struct zk *zk;
    struct look *look; /* NULL: stopped */
    bool evict, follow;
    struct entry **entries;
    struct seen *seen;
    size_t n, open, victim;
    int rc;
    hf_error err;
    size_t dir_len;
    char dir[];
};

struct job_request {
    struct request q;
    struct job *job;
    size_t index;
};

static struct job *job_of(struct request *q)
{
    return container_of(q, struct job_request, q)->job;
}

static void fail(struct job *j, const struct jute_reply *reply)
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

static void show(const struct job *j, size_t i, struct row *row, uint32_t position)
{
    const struct seen *s = &j->seen[i];
    const struct entry *e = j->entries[i];
    struct record *rec = malloc(sizeof *rec);

    if (!rec)
        return;
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
    ev_row(j->look, row);
    free(rec);
}

static void show_all(struct job *j)
{
    size_t n = 0, holders;
    struct row row = { .name = j->look->name,
                       .name_len = j->look->name_len,
                       .oldest_ms = -1 };

    for (size_t i = 0; i < j->n; i++) { /* those that are still there */
        struct entry *e = j->entries[i];

        if (!j->seen[i].data) {
            free(e);
            continue;
        }
        j->entries[n] = e;
        j->seen[n++] = j->seen[i];
    }
    j->n = n;
    holders = hf__zk_line_holders(j->entries, n);
    row.holders = holders;
    row.waiters = n - holders;
    for (size_t i = 0; i < holders; i++)
        if (age(j->zk, j->seen[i].stat.ctime) > row.oldest_ms)
            row.oldest_ms = age(j->zk, j->seen[i].stat.ctime);
    for (size_t i = 0; i < n; i++) {
        row.kind = j->entries[0]->form.kind;
        row.capacity = j->entries[0]->form.capacity;
        show(j, i, &row, i < holders ? 0 : (uint32_t)(i - holders + 1));
    }
}

static void free_job(struct job *j)
{
    for (size_t i = 0; j->seen && i < j->n; i++)
        free(j->seen[i].data);
    free(j->seen);
    hf__zk_line_free(j->entries, j->n);
    free(j);
}

static void finish(struct job *j)
{
    struct look *look = j->look;
    struct follow *f = look && j->follow ? look->drv_ptr : NULL;
    struct zk *z = j->zk;
    int rc = j->rc;
    hf_error err = j->err;

    if (j->open > 0)
        return;
    if (look && rc == 0 && !j->evict)
        show_all(j);
    free_job(j);
    if (!look)
        return;
    if (f)
        f->job = NULL;
    else
        look->drv_ptr = NULL;
    if (f && rc == HF_EUNREACHABLE)
        return; /* it is taken up again */
    if (f && rc < 0)
        hf__zk_follow_end(f);
    ev_done(look, NULL, rc, rc < 0 ? &err : NULL);
    if (f && rc == 0)
        hf__zk_follow_answered(z, f);
}

/* ---- reading --------------------------------------------------------------------- */

static struct request *
request(struct job *j, void (*answer)(struct zk *, struct request *, struct jute_reply *),
        size_t index)
{
    struct request *q = hf__zk_request(answer, sizeof(struct job_request));

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
    struct seen *s = &j->seen[container_of(q, struct job_request, q)->index];
    struct jute_text data;

    (void)z;
    j->open--;
    if (!reply || (reply->err != 0 && reply->err != JUTE_NO_NODE)) {
        fail(j, reply);
    } else if (reply->err == 0) {
        data = hf__jute_text(&reply->body);
        if (!hf__jute_stat(&reply->body, &s->stat)) {
            fail(j, reply);
        } else if ((s->data = malloc(data.len + 1)) == NULL) {
            no_memory(j);
        } else {
            memcpy(s->data, data.at, data.len);
            s->len = data.len;
        }
    }
    finish(j);
}

static void read_data(struct job *j, size_t i)
{
    char path[NODE_PATH_MAX];
    const struct entry *e = j->entries[i];
    struct request *q = request(j, answer_data, i);
    size_t n = j->dir_len;

    if (!q)
        return;
    memcpy(path, j->dir, n);
    path[n++] = '/';
    memcpy(path + n, e->name, e->len);
    n += e->len;
    if (j->follow)
        hf__zk_send_watch(j->zk, q, JUTE_GET_DATA, path, n);
    else
        hf__zk_send_path(j->zk, q, JUTE_GET_DATA, path, n);
}

static void evict_found(struct job *);

static void answer_watched(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct job *j = job_of(q);

    (void)z;
    j->open--;
    if (!reply)
        fail(j, reply);
    else if (reply->err == 0 && j->look && j->look->drv_ptr)
        ((struct follow *)j->look->drv_ptr)->again =
            true; /* it came into being meanwhile */
    finish(j);
}

/* mode=ephemeral: the one node is the one ticket. */
static bool add_alone(struct job *j)
{
    static const char name[] = "_ephemeral";
    struct entry *e = calloc(1, sizeof *e + sizeof name);

    j->entries = calloc(2, sizeof *j->entries);
    if (!e || !j->entries) {
        free(e);
        return false;
    }
    e->form = (struct form){ .kind = LINE_LOCK, .weight = HF_FULL, .capacity = HF_FULL };
    e->len = sizeof name - 1;
    memcpy(e->name, name, sizeof name);
    j->entries[0] = e;
    j->n = 1;
    return true;
}

static void read_all(struct job *j, struct jute_in *children)
{
    bool good =
        j->zk->alone ? add_alone(j) : hf__zk_line_read(children, &j->entries, &j->n);

    j->seen = calloc(j->n + 1, sizeof *j->seen);
    if (!good || !j->seen) {
        no_memory(j);
        return;
    }
    if (j->evict) {
        evict_found(j);
        return;
    }
    for (size_t i = 0; i < j->n; i++)
        read_data(j, i);
}

static void answer_children(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct job *j = job_of(q);

    j->open--;
    if (!j->look) {
        finish(j);
        return;
    }
    if (reply && reply->err == JUTE_NO_NODE && j->follow) {
        struct request *watch = request(j, answer_watched, 0);

        if (watch) /* to hear of it when there is one */
            hf__zk_send_watch(z, watch, JUTE_EXISTS, j->dir, j->dir_len);
    } else if (reply && reply->err == JUTE_NO_NODE) {
        if (j->evict)
            j->rc = hf__fail(&j->err, HF_ENOENT, 0, z->shown, "no such ticket in line '%s'",
                             j->look->name);
    } else if (!reply || reply->err != 0) {
        fail(j, reply);
    } else {
        read_all(j, &reply->body);
    }
    finish(j);
}

static struct job *start(struct zk *z, struct look *look, bool evict)
{
    struct job *j = calloc(1, sizeof *j + DIR_MAX);
    struct request *q;

    if (!j)
        return NULL;
    j->zk = z;
    j->look = look;
    j->evict = evict;
    j->follow = look->follow && !evict;
    j->dir_len = hf__zk_dir(z, j->dir, look->name, look->name_len);
    hf__zk_sync(z, j->dir, j->dir_len);
    q = request(j, answer_children, 0);
    if (!q) {
        free_job(j);
        return NULL;
    }
    if (j->follow)
        hf__zk_send_watch(z, q, JUTE_GET_CHILDREN2, j->dir, j->dir_len);
    else
        hf__zk_send_path(z, q, JUTE_GET_CHILDREN2, j->dir, j->dir_len);
    return j;
}

static void no_memory_for(struct look *look)
{
    hf_error err;

    hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a look");
    ev_done(look, NULL, HF_ENOMEM, &err);
}

void hf__zk_look_send(struct zk *z, struct look *look)
{
    struct follow *f = look->follow ? look->drv_ptr : NULL;
    struct job *j = start(z, look, false);

    if (!j) {
        hf__zk_follow_end(f);
        no_memory_for(look);
    } else if (f) {
        f->job = j;
    } else {
        look->drv_ptr = j;
    }
}

/* mode=ephemeral: HF_CAP_LINE is missing. */
static void not_here(const struct zk *z, struct look *look, const char *what)
{
    hf_error err;

    hf__fail(&err, HF_ENOTSUP, 0, z->shown, "%s: not with mode=ephemeral", what);
    ev_done(look, NULL, HF_ENOTSUP, &err);
}

void hf__zk_look(struct store *s, struct look *look)
{
    if (look->list && zk_of(s)->alone)
        not_here(zk_of(s), look, "a list of lines");
    else if (look->follow)
        hf__zk_follow_start(zk_of(s), look, NULL);
    else if (look->list)
        hf__zk_list(zk_of(s), look);
    else
        hf__zk_look_send(zk_of(s), look);
}

void hf__zk_look_stop(void *job)
{
    ((struct job *)job)->look = NULL;
}

/* ---- evicting -------------------------------------------------------------------- */

static void none(struct job *j)
{
    j->rc = hf__fail(&j->err, HF_ENOENT, 0, j->zk->shown, "no such ticket in line '%s'",
                     j->look ? j->look->name : "");
}

static void answer_evicted(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct job *j = job_of(q);

    (void)z;
    j->open--;
    if (reply && (reply->err == JUTE_NO_NODE || reply->err == JUTE_BAD_VERSION))
        none(j);
    else if (!reply || reply->err != 0)
        fail(j, reply);
    finish(j);
}

static size_t victim_path(const struct job *j, char path[NODE_PATH_MAX])
{
    const struct entry *e = j->entries[j->victim];
    size_t n = j->dir_len;

    memcpy(path, j->dir, n);
    path[n++] = '/';
    memcpy(path + n, e->name, e->len);
    return n + e->len;
}

static void end_it(struct job *j, int32_t version)
{
    char path[NODE_PATH_MAX];
    struct request *q = request(j, answer_evicted, 0);
    struct jute_out *o;

    if (!q)
        return;
    o = hf__zk_begin(j->zk, q, JUTE_DELETE);
    hf__jute_put_text(o, path, victim_path(j, path));
    hf__jute_put_int(o, version);
    hf__zk_send(j->zk, q);
}

static void mark_it(struct job *j, struct jute_text data, const struct jute_stat *stat)
{
    char path[NODE_PATH_MAX], marked[RECORD_MAX];
    size_t n = hf__zk_record_mark(marked, data.at, data.len);
    struct request *q;
    struct jute_out *o;

    if (n == 0) {
        j->rc = hf__fail(&j->err, HF_ENOTSUP, 0, j->zk->shown,
                         "the ticket is another program's, which would not heed a mark");
        return;
    }
    q = request(j, answer_evicted, 0);
    if (!q)
        return;
    o = hf__zk_begin(j->zk, q, JUTE_SET_DATA);
    hf__jute_put_text(o, path, victim_path(j, path));
    hf__jute_put_text(o, marked, n);
    hf__jute_put_int(o, stat->version);
    hf__zk_send(j->zk, q);
}

static void answer_victim(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct job *j = job_of(q);
    struct jute_text data;
    struct jute_stat stat;
    struct record rec;

    j->open--;
    if (!j->look) {
        finish(j);
        return;
    }
    if (reply && reply->err == JUTE_NO_NODE) {
        none(j);
    } else if (!reply || reply->err != 0) {
        fail(j, reply);
    } else {
        data = hf__jute_text(&reply->body);
        if (!hf__jute_stat(&reply->body, &stat)) {
            fail(j, reply);
            finish(j);
            return;
        }
        hf__zk_record_read(&rec, data.at, data.len);
        if (z->alone && memcmp(rec.token, j->look->token, HF_TOKEN) != 0)
            none(j);
        else if (j->look->now)
            end_it(j, z->alone ? stat.version : -1);
        else if (!rec.broken)
            mark_it(j, data, &stat);
    }
    finish(j);
}

static void evict_found(struct job *j)
{
    char path[NODE_PATH_MAX];
    unsigned char token[HF_TOKEN];
    struct request *q;

    for (j->victim = 0; j->victim < j->n && !j->zk->alone; j->victim++) {
        hf__zk_form_token(token, j->entries[j->victim]->name, j->entries[j->victim]->len);
        if (memcmp(token, j->look->token, HF_TOKEN) == 0)
            break;
    }
    if (j->victim == j->n) {
        none(j);
        return;
    }
    if (j->look->now && !j->zk->alone) {
        end_it(j, -1);
        return;
    }
    q = request(j, answer_victim, 0);
    if (q)
        hf__zk_send_path(j->zk, q, JUTE_GET_DATA, path, victim_path(j, path));
}

void hf__zk_evict(struct store *s, struct look *look)
{
    struct job *j;

    if (zk_of(s)->alone && !look->now) {
        not_here(zk_of(s), look, "a mark");
        return;
    }
    j = start(zk_of(s), look, true);
    if (j)
        look->drv_ptr = j;
    else
        no_memory_for(look);
}

/* ---- stopping -------------------------------------------------------------------- */

void hf__zk_stop(struct store *s, struct look *look, struct cell *cell)
{
    (void)s;
    if ((look && look->follow) || (cell && cell->follow)) {
        hf__zk_follow_end(look ? look->drv_ptr : cell->drv_ptr);
    } else if (look && look->drv_ptr) {
        if (look->list)
            hf__zk_list_stop(look->drv_ptr);
        else
            hf__zk_look_stop(look->drv_ptr);
        look->drv_ptr = NULL;
    } else if (cell && cell->drv_ptr) {
        hf__zk_cell_stop(cell->drv_ptr);
        cell->drv_ptr = NULL;
    }
}
