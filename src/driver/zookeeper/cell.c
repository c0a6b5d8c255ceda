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
#include "driver/zookeeper/job.h"

#include <string.h>

enum { CELL, DIR, NODES }; /* what is read: the entries of the job */

/* ---- changing -------------------------------------------------------------------- */

static void answer_change(struct zk_call *q, struct jute_reply *reply)
{
    struct job *j = q->about;
    struct cell *cell = j->query.cell;

    hf__zk_no_level(j->zk, reply, !j->seen[DIR].data);
    switch (reply->err) {
    case 0:
        if (cell)
            cell->version = cell->verb == CELL_DEL ? 0 : (uint64_t)reply->zxid;
        break;
    case JUTE_NO_NODE:
    case JUTE_NODE_EXISTS:
    case JUTE_BAD_VERSION:
    case JUTE_NOT_EMPTY:
        if (!hf__zk_job_again(j))
            hf__zk_job_refuse(j, HF_EBUSYSTORE, "the cell changes all the time");
        break;
    default:
        hf__zk_job_fail(j, reply);
    }
}

/* To what stands in the cell's struct. */
static void change(struct job *j)
{
    const struct zk_seen *now = &j->seen[CELL], *dir = &j->seen[DIR];
    const struct cell *cell = j->query.cell;
    char path[NODE_PATH_MAX];
    size_t len = hf__zk_job_path(j, CELL, path);
    struct zk_call *q;
    struct jute_out *o;

    if (!dir->data)
        hf__zk_mkdirs(j->zk, j->dir, j->dir_len);
    q = hf__zk_job_request(j, answer_change);
    if (!q)
        return;
    o = hf__zk_begin(q, JUTE_MULTI);
    if (!now->data) {
        hf__jute_put_part(o, JUTE_CREATE);
        hf__jute_put_create(o, path, len, cell->value, cell->value_len,
                            j->zk->login != NULL, JUTE_PERSISTENT);
    } else {
        hf__jute_put_part(o, JUTE_CHECK);
        hf__jute_put_delete(o, j->dir, j->dir_len, dir->stat.version);
        hf__jute_put_part(o, cell->verb == CELL_DEL ? JUTE_DELETE : JUTE_SET_DATA);
        if (cell->verb == CELL_DEL) {
            hf__jute_put_delete(o, path, len, now->stat.version);
            hf__jute_put_part(o, JUTE_SET_DATA);
            hf__jute_put_set(o, j->dir, j->dir_len, dir->data, dir->len, -1);
        } else {
            hf__jute_put_set(o, path, len, cell->value, cell->value_len, now->stat.version);
        }
    }
    hf__zk_send(q);
}

static bool add(struct cell *cell, const struct zk_seen *now)
{
    cell->value_len = hf__cell_sum(cell, now->data, now->len, cell->value);
    return cell->value_len > 0;
}

static void tell(struct cell *cell, const struct zk_seen *now)
{
    cell->value_len = now->data ? now->len : 0;
    if (now->data)
        memcpy(cell->value, now->data, now->len);
    cell->version = now->data ? (uint64_t)now->stat.mzxid : 0;
}

static void decide(struct job *j)
{
    const struct zk_seen *now = &j->seen[CELL];
    struct cell *cell = j->query.cell;
    enum cell_verb verb = cell->verb;
    uint64_t version = now->data ? (uint64_t)now->stat.mzxid : 0;

    if (now->len > HF_CELL_MAX) {
        hf__zk_job_fail(j, &(struct jute_reply){ 0 }); /* of another form */
    } else if ((verb == CELL_PUT || verb == CELL_DEL) && !cell->if_any &&
               cell->if_version != version) {
        tell(cell, now);
        hf__zk_job_refuse(j, HF_EBUSY, "the cell has another version");
    } else if (verb == CELL_GET || (verb == CELL_DEL && !now->data)) {
        tell(cell, now);
    } else if (verb == CELL_ADD && !add(cell, now)) {
        tell(cell, now);
        hf__zk_job_refuse(j, HF_EINVAL,
                          "the cell holds no number, or the sum is too great");
    } else {
        if (verb == CELL_DEL)
            cell->value_len = 0;
        change(j);
    }
}

static void begin(struct job *j)
{
    static const char *const nodes[NODES] = { "_cell", "" };

    hf__zk_sync(j->zk, j->dir, j->dir_len);
    hf__zk_job_read_nodes(j, nodes, NODES);
    j->next = decide;
}

void hf__zk_cell(struct store *s, struct cell *cell)
{
    if (cell->follow)
        hf__zk_follow_start(zk_of(s), NULL, cell);
    hf__zk_job_start(zk_of(s), NULL, cell, begin);
}
