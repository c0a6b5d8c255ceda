/* job.c: the steps of a job (job.h), and the reads that they have in common.
 *
 * Goes wrong: the first failure is kept, and told when nothing is under way any more. A job
 * that is stopped ends in the same way, and tells nobody. With follow the reads set watches
 * (follow.c); of a node that is not there exists does. */
#include "driver/zookeeper/job.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 10, CELL_TRIES = 10000 };

void hf__zk_job_fail(struct job *j, const struct jute_reply *reply)
{
    if (j->rc == 0)
        j->rc = hf__zk_error(j->zk, reply, &j->err);
}

void hf__zk_job_no_memory(struct job *j)
{
    if (j->rc == 0)
        j->rc = hf__fail(&j->err, HF_ENOMEM, 0, NULL, "no memory for a request");
}

/* ---- steps ----------------------------------------------------------------------- */

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

static void go_on(struct job *j)
{
    while (j->open == 0 && j->next && j->rc == 0 && query_wanted(&j->query)) {
        void (*step)(struct job *) = j->next;

        j->next = NULL;
        step(j);
    }
    if (j->open > 0)
        return;
    hf__query_end(&j->query, j->rc, &j->err);
    forget(j);
    free(j);
}

bool hf__zk_job_again(struct job *j)
{
    if (!query_wanted(&j->query) || j->tries == 0)
        return false;
    j->tries--;
    forget(j);
    j->begin(j);
    return true;
}

static void answer_job(struct zk_call *q, struct jute_reply *reply)
{
    struct job *j = q->about;

    j->open--;
    if (reply)
        q->then(q, reply);
    else
        hf__zk_job_fail(j, NULL);
    go_on(j);
}

struct zk_call *hf__zk_job_request(struct job *j,
                                   void then(struct zk_call *, struct jute_reply *))
{
    struct zk_call *q = hf__zk_try_request(j->zk, answer_job, j, "", 0);

    if (!q) {
        hf__zk_job_no_memory(j);
        return NULL;
    }
    q->then = then;
    j->open++;
    return q;
}

/* ---- reading --------------------------------------------------------------------- */

static bool follows(const struct job *j)
{
    return j->query.look ? j->query.look->follow : j->query.cell && j->query.cell->follow;
}

static void answer_absent(struct zk_call *q, struct jute_reply *reply)
{
    struct job *j = q->about;

    if (reply->err == 0 && query_wanted(&j->query))
        ev_changed(j->query.look, j->query.cell); /* it came into being meanwhile */
}

/* To hear of it when there is one. */
static void await(struct job *j, const char *path, size_t len)
{
    hf__zk_send_path(hf__zk_job_request(j, answer_absent), JUTE_EXISTS, path, len, true);
}

static void answer_data(struct zk_call *q, struct jute_reply *reply)
{
    struct job *j = q->about;
    struct zk_seen *s = &j->seen[q->index];
    char path[NODE_PATH_MAX];
    struct jute_text data;

    if (reply->err == JUTE_NO_NODE && q->flag && follows(j)) {
        await(j, path, hf__zk_job_path(j, q->index, path));
    } else if (reply->err != JUTE_NO_NODE) {
        if (!hf__jute_node(reply, &data, &s->stat)) {
            hf__zk_job_fail(j, reply);
        } else if ((s->data = malloc(data.len + 1)) == NULL) {
            hf__zk_job_no_memory(j);
        } else {
            memcpy(s->data, data.at, data.len);
            s->len = data.len;
        }
    }
}

size_t hf__zk_job_path(const struct job *j, size_t index, char path[NODE_PATH_MAX])
{
    return hf__zk_path(path, j->dir, j->dir_len, j->entries[index]->name,
                       j->entries[index]->len);
}

void hf__zk_job_read(struct job *j, size_t index, bool may_come)
{
    char path[NODE_PATH_MAX];
    struct zk_call *q = hf__zk_job_request(j, answer_data);

    if (!q)
        return;
    q->index = index;
    q->flag = may_come;
    hf__zk_send_path(q, JUTE_GET_DATA, path, hf__zk_job_path(j, index, path), follows(j));
}

void hf__zk_job_read_nodes(struct job *j, const char *const *names, size_t n)
{
    static const struct ordered_place place = { .kind = LINE_LOCK,
                                                .weight = HF_FULL,
                                                .capacity = HF_FULL };

    j->entries = calloc(n, sizeof *j->entries);
    j->seen = calloc(n, sizeof *j->seen);
    for (; j->entries && j->seen && j->n < n; j->n++) {
        j->entries[j->n] = hf__ordered_entry(&place, names[j->n], strlen(names[j->n]));
        if (!j->entries[j->n])
            break;
    }
    if (j->n < n)
        hf__zk_job_no_memory(j);
    for (size_t i = 0; j->rc == 0 && i < n; i++)
        hf__zk_job_read(j, i, i == 0);
}

size_t hf__zk_job_find(const struct job *j)
{
    unsigned char token[HF_TOKEN];
    size_t i = 0;

    for (; i < j->n; i++) {
        hf__zk_form_token(token, j->entries[i]->name, j->entries[i]->len);
        if (memcmp(token, j->query.look->token, HF_TOKEN) == 0)
            break;
    }
    return i;
}

/* What stands behind the ticket of a look at the front is not read. */
static void cut_behind(struct job *j)
{
    size_t i = hf__zk_job_find(j);

    while (j->n > i + 1)
        free(j->entries[--j->n]);
}

static void answer_children(struct zk_call *q, struct jute_reply *reply)
{
    struct job *j = q->about;
    bool none = reply->err == JUTE_NO_NODE;

    if (none && follows(j)) {
        await(j, j->dir, j->dir_len);
    } else if (reply->err != 0 && !none) {
        hf__zk_job_fail(j, reply);
    } else if (!none && query_wanted(&j->query)) {
        if (!hf__zk_line_read(&reply->body, &j->entries, &j->n) ||
            (j->seen = calloc(j->n + 1, sizeof *j->seen)) == NULL)
            hf__zk_job_no_memory(j);
        else if (j->query.look->front)
            cut_behind(j);
    }
}

void hf__zk_job_list(struct job *j)
{
    static const char *const alone = ALONE_NODE;

    if (j->zk->alone)
        hf__zk_job_read_nodes(j, &alone, 1);
    else
        hf__zk_send_path(hf__zk_job_request(j, answer_children), JUTE_GET_CHILDREN2, j->dir,
                         j->dir_len, follows(j));
}

void hf__zk_job_start(struct zk *z, struct look *look, struct cell *cell,
                      void begin(struct job *))
{
    struct job *j = calloc(1, sizeof *j);

    if (!j) {
        hf__query_refuse(look, cell, HF_ENOMEM, NULL, "no memory for a request");
        return;
    }
    j->zk = z;
    hf__query_begin(&j->query, look, cell);
    j->begin = begin;
    j->tries = look ? TRIES : CELL_TRIES;
    j->dir_len = hf__zk_dir(z, j->dir, look ? look->name : cell->name,
                            look ? look->name_len : cell->name_len);
    begin(j);
    go_on(j); /* if there was no memory to ask */
}
