/* cell.c: one small record per name beside its line: the node <root>/<name>/_cell.
 *
 *   sync, getData of the line's node and of the cell -> what is there -> one multi that
 *   changes it if it is still that -> again if it is not
 *
 * A cell's version is the node's mzxid, which grows with every change, also over
 * deletion. The server compares another number, which begins at 0 in every node that is
 * made: alone it could not tell a cell from one that was deleted and made anew as often.
 * So a deletion also writes the node of the line (with the data it had), and every
 * change checks that node's number, too. Both repeat only if the line's node is removed
 * and made again between a read and the write that follows it, which takes the server a
 * minute, longer than the session would live. A change that is not answered is
 * HF_EUNREACHABLE: it may or may not have happened. No expiry. */
#include "driver/zookeeper/zookeeper.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 10000 };

struct cell_job {
    struct zk *zk;
    struct query query;
    unsigned open, tries;
    /* what was read */
    bool failed, has_dir, there;
    struct jute_reply why;
    char *dir_data;
    size_t dir_data_len;
    int32_t dir_version, version;
    uint64_t mzxid;
    size_t len;
    unsigned char value[HF_CELL_MAX];
    /* what is written */
    unsigned char next[HF_CELL_MAX];
    size_t next_len;
    size_t path_len, dir_len; /* the path of the line's node is the beginning */
    char path[NODE_PATH_MAX];
};

struct cell_request {
    struct request q;
    struct cell_job *job;
};

static struct cell_job *job_of(struct request *q)
{
    return container_of(q, struct cell_request, q)->job;
}

static void read_it(struct cell_job *);

/* ---- the end --------------------------------------------------------------------- */

static void finish(struct cell_job *j, int rc, const hf_error *err)
{
    hf__query_end(&j->query, rc, err);
    free(j->dir_data);
    free(j);
}

static void fail(struct cell_job *j, const struct jute_reply *reply)
{
    hf_error err;
    int rc = hf__zk_error(j->zk, reply, &err);

    finish(j, rc, &err);
}

static void fail_with(struct cell_job *j, int code, const char *text)
{
    hf_error err;

    hf__fail(&err, code, 0, j->zk->shown, "%s", text);
    finish(j, code, &err);
}

static void tell(struct cell_job *j, const void *value, size_t len, uint64_t version)
{
    struct cell *cell = j->query.cell;

    if (!cell)
        return;
    memcpy(cell->value, value, len);
    cell->value_len = len;
    cell->version = version;
}

static struct request *request(struct cell_job *j,
                               void (*answer)(struct zk *, struct request *,
                                              struct jute_reply *))
{
    struct request *q = hf__zk_try_request(answer, sizeof(struct cell_request));

    if (q) {
        container_of(q, struct cell_request, q)->job = j;
        j->open++;
    }
    return q;
}

/* ---- changing -------------------------------------------------------------------- */

static void again(struct cell_job *j)
{
    if (!j->query.cell)
        finish(j, 0, NULL);
    else if (j->tries++ < TRIES)
        read_it(j);
    else
        fail_with(j, HF_EBUSYSTORE, "the cell changes all the time");
}

static void answer_change(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct cell_job *j = job_of(q);
    struct jute_reply part = { 0 };

    j->open--;
    if (!reply) {
        fail(j, NULL);
        return;
    }
    part.err = reply->err ? reply->err : hf__jute_multi_error(&reply->body);
    hf__zk_no_level(z, &part, !j->has_dir);
    switch (part.err) {
    case 0:
        tell(j, j->next, j->next_len,
             j->query.cell && j->query.cell->verb == CELL_DEL ? 0 : (uint64_t)reply->zxid);
        finish(j, 0, NULL);
        break;
    case JUTE_NO_NODE:
    case JUTE_NODE_EXISTS:
    case JUTE_BAD_VERSION:
    case JUTE_NOT_EMPTY:
        again(j);
        break;
    default:
        fail(j, &part);
    }
}

static void put_path(struct jute_out *o, const struct cell_job *j, bool dir)
{
    hf__jute_put_text(o, j->path, dir ? j->dir_len : j->path_len);
}

static void change(struct cell_job *j)
{
    struct zk *z = j->zk;
    struct request *q;
    struct jute_out *o;

    if (!j->has_dir)
        hf__zk_mkdirs(z, j->path, j->dir_len);
    q = request(j, answer_change);
    if (!q) {
        fail_with(j, HF_ENOMEM, "no memory for a cell");
        return;
    }
    o = hf__zk_begin(z, q, JUTE_MULTI);
    if (!j->there) {
        hf__jute_put_part(o, JUTE_CREATE);
        hf__jute_put_create(o, j->path, j->path_len, j->next, j->next_len, z->login != NULL,
                            JUTE_PERSISTENT);
    } else {
        bool del = j->query.cell->verb == CELL_DEL;

        hf__jute_put_part(o, JUTE_CHECK);
        put_path(o, j, true);
        hf__jute_put_int(o, j->dir_version);
        hf__jute_put_part(o, del ? JUTE_DELETE : JUTE_SET_DATA);
        put_path(o, j, false);
        if (!del)
            hf__jute_put_text(o, j->next, j->next_len);
        hf__jute_put_int(o, j->version);
        if (del) {
            hf__jute_put_part(o, JUTE_SET_DATA);
            put_path(o, j, true);
            hf__jute_put_text(o, j->dir_data, j->dir_data_len);
            hf__jute_put_int(o, -1);
        }
    }
    hf__jute_put_part(o, 0);
    hf__zk_send(z, q);
}

/* The sum of the number that is there and what is to be added; false: there is none. */
static bool add(struct cell_job *j)
{
    char text[HF_CELL_MAX + 1], *end = text;
    int64_t number = 0;

    if (j->there) {
        memcpy(text, j->value, j->len);
        text[j->len] = '\0';
        errno = 0;
        number = strtoll(text, &end, 10);
        if (j->len == 0 || *end != '\0' || errno != 0)
            return false;
    }
    if (__builtin_add_overflow(number, j->query.cell->add, &number))
        return false;
    j->query.cell->number = number;
    j->next_len = (size_t)snprintf((char *)j->next, sizeof j->next, "%" PRId64, number);
    return true;
}

static void decide(struct cell_job *j)
{
    struct cell *cell = j->query.cell;
    enum cell_verb verb = cell->verb;
    uint64_t version = j->there ? j->mzxid : 0;

    if ((verb == CELL_PUT || verb == CELL_DEL) && !cell->if_any &&
        cell->if_version != version) {
        tell(j, j->value, j->there ? j->len : 0, version);
        fail_with(j, HF_EBUSY, "the cell has another version");
    } else if (verb == CELL_GET || (verb == CELL_DEL && !j->there)) {
        tell(j, j->value, j->there ? j->len : 0, version);
        finish(j, 0, NULL);
    } else if (verb == CELL_ADD && !add(j)) {
        tell(j, j->value, j->there ? j->len : 0, version);
        fail_with(j, HF_EINVAL, "the cell holds no number, or the sum is too great");
    } else {
        if (verb == CELL_DEL)
            j->next_len = 0;
        change(j);
    }
}

/* ---- reading --------------------------------------------------------------------- */

static void was_read(struct cell_job *j)
{
    if (j->open > 0)
        return;
    if (j->failed)
        fail(j, j->why.xid == -1 ? NULL : &j->why);
    else if (!j->query.cell)
        finish(j, 0, NULL);
    else
        decide(j);
}

static bool bad(struct cell_job *j, const struct jute_reply *reply)
{
    if (reply && (reply->err == 0 || reply->err == JUTE_NO_NODE))
        return false;
    j->failed = true;
    j->why = reply ? *reply : (struct jute_reply){ .xid = -1 };
    return true;
}

static void answer_dir(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct cell_job *j = job_of(q);
    struct jute_text data;
    struct jute_stat stat;

    (void)z;
    j->open--;
    if (!bad(j, reply) && reply->err == 0) {
        data = hf__jute_text(&reply->body);
        if (!hf__jute_stat(&reply->body, &stat))
            j->failed = true;
        free(j->dir_data);
        j->dir_data = malloc(data.len + 1);
        j->failed = j->failed || !j->dir_data;
        if (j->dir_data)
            memcpy(j->dir_data, data.at, data.len);
        j->dir_data_len = data.len;
        j->dir_version = stat.version;
        j->has_dir = true;
    }
    was_read(j);
}

static void answer_absent(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct cell_job *j = job_of(q);

    (void)z;
    j->open--;
    if (!bad(j, reply) && reply->err == 0 && j->query.cell)
        ev_changed(NULL, j->query.cell); /* it came into being meanwhile */
    was_read(j);
}

static void answer_cell(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct cell_job *j = job_of(q);
    struct jute_text data;
    struct jute_stat stat;

    j->open--;
    if (!bad(j, reply) && reply->err == 0) {
        data = hf__jute_text(&reply->body);
        if (!hf__jute_stat(&reply->body, &stat) || data.len > HF_CELL_MAX) {
            j->failed = true;
            j->why = *reply;
        } else {
            memcpy(j->value, data.at, data.len);
            j->len = data.len;
            j->there = true;
            j->version = stat.version;
            j->mzxid = (uint64_t)stat.mzxid;
        }
    } else if (reply && reply->err == JUTE_NO_NODE && j->query.cell &&
               j->query.cell->follow) {
        struct request *watch = request(j, answer_absent);

        if (watch) /* to hear of it when there is one */
            hf__zk_send_watch(z, watch, JUTE_EXISTS, j->path, j->path_len);
        else
            j->failed = true;
    }
    was_read(j);
}

static void read_it(struct cell_job *j)
{
    struct zk *z = j->zk;
    struct request *dir, *cell;

    j->failed = j->has_dir = j->there = false;
    j->len = 0;
    hf__zk_sync(z, j->path, j->dir_len, hf__zk_ignore);
    dir = request(j, answer_dir);
    cell = request(j, answer_cell);
    if (!dir || !cell) {
        free(dir);
        free(cell);
        fail_with(j, HF_ENOMEM, "no memory for a cell");
        return;
    }
    hf__zk_send_path(z, dir, JUTE_GET_DATA, j->path, j->dir_len);
    if (j->query.cell->follow)
        hf__zk_send_watch(z, cell, JUTE_GET_DATA, j->path, j->path_len);
    else
        hf__zk_send_path(z, cell, JUTE_GET_DATA, j->path, j->path_len);
}

void hf__zk_cell(struct store *s, struct cell *cell)
{
    static const char node[] = "/_cell";
    struct zk *z = zk_of(s);
    struct cell_job *j = calloc(1, sizeof *j);

    if (cell->follow)
        hf__zk_follow_start(z, NULL, cell);
    if (!j) {
        hf__query_refuse(NULL, cell, HF_ENOMEM, NULL, "no memory for a cell");
        return;
    }
    j->zk = z;
    j->next_len = cell->verb == CELL_PUT ? cell->value_len : 0;
    memcpy(j->next, cell->value, j->next_len);
    j->dir_len = hf__zk_dir(z, j->path, cell->name, cell->name_len);
    memcpy(j->path + j->dir_len, node, sizeof node - 1);
    j->path_len = j->dir_len + sizeof node - 1;
    hf__query_begin(&j->query, NULL, cell);
    read_it(j);
}
