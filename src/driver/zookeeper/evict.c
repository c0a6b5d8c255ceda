/* evict.c: ending a ticket by its token.
 *
 * It is found among the names. At once: its node is deleted. Else, if it holds, a mark is
 * written into its data, under its version so that nothing is overwritten, which its
 * holder watches; another program's ticket has nobody who would heed it (HF_ENOTSUP).
 *
 * One that waits is deleted, too, but only as long as it waits (G1): in one transaction
 * with checks that tickets ahead of it are there which leave it no room. Whoever counts
 * it among the holders must have seen one of those end.
 *
 * Goes wrong: its node is gone, or its data is another, or a ticket ahead of it is gone
 * when that comes to be done. It may have become shared, or hold, or has another note: it
 * is looked for again, and if it has left nothing is ended (HF_ENOENT). If the
 * transaction is refused (rights) it is marked, and its owner deletes it. */
#include "driver/zookeeper/look.h"

#include <string.h>

enum { AHEAD_MAX = 500 }; /* in one transaction */

static void none(struct job *j)
{
    j->rc = hf__fail(&j->err, HF_ENOENT, 0, j->zk->shown, "no such ticket in line '%s'",
                     j->query.look ? j->query.look->name : "");
}

static void again(struct job *j)
{
    if (!hf__zk_job_again(j))
        none(j);
}

static void answer_evicted(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct job *j = job_of(q);

    (void)z;
    j->open--;
    if (reply && (reply->err == JUTE_NO_NODE || reply->err == JUTE_BAD_VERSION))
        again(j);
    else if (!reply || reply->err != 0)
        hf__zk_job_fail(j, reply);
    hf__zk_job_finish(j);
}

static void end_it(struct job *j, int32_t version)
{
    char path[NODE_PATH_MAX];
    struct request *q = hf__zk_job_request(j, answer_evicted, 0);
    struct jute_out *o;

    if (!q)
        return;
    o = hf__zk_begin(j->zk, q, JUTE_DELETE);
    hf__jute_put_text(o, path, hf__zk_job_path(j, j->victim, path));
    hf__jute_put_int(o, version);
    hf__zk_send(j->zk, q);
}

static void answer_taken_out(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct job *j = job_of(q);
    int32_t failed = 0;

    (void)z;
    j->open--;
    if (reply)
        failed = reply->err != 0 ? reply->err : hf__jute_multi_error(&reply->body);
    if (!reply)
        hf__zk_job_fail(j, reply);
    else if (failed != 0)
        again(j);
    j->marks = failed != 0 && failed != JUTE_NO_NODE;
    hf__zk_job_finish(j);
}

/* False: it holds, or that cannot be done in one transaction. */
static bool take_out(struct job *j)
{
    struct ordered_span ahead = hf__ordered_whom(j->entries, j->victim);
    char path[NODE_PATH_MAX];
    struct request *q;
    struct jute_out *o;

    if (j->marks || j->victim < hf__ordered_holders(j->entries, j->n) ||
        ahead.to - ahead.from > AHEAD_MAX)
        return false;
    for (size_t i = ahead.from; i < ahead.to; i++)
        if (entry_unreadable(j->entries[i]))
            return false; /* another program's, of any length */
    q = hf__zk_job_request(j, answer_taken_out, 0);
    if (!q)
        return true;
    o = hf__zk_begin(j->zk, q, JUTE_MULTI);
    for (size_t i = ahead.from; i < ahead.to; i++) {
        hf__jute_put_part(o, JUTE_CHECK);
        hf__jute_put_text(o, path, hf__zk_job_path(j, i, path));
        hf__jute_put_int(o, -1);
    }
    hf__jute_put_part(o, JUTE_DELETE);
    hf__jute_put_text(o, path, hf__zk_job_path(j, j->victim, path));
    hf__jute_put_int(o, -1);
    hf__jute_put_part(o, 0);
    hf__zk_send(j->zk, q);
    return true;
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
    if (take_out(j))
        return;
    q = hf__zk_job_request(j, answer_evicted, 0);
    if (!q)
        return;
    o = hf__zk_begin(j->zk, q, JUTE_SET_DATA);
    hf__jute_put_text(o, path, hf__zk_job_path(j, j->victim, path));
    hf__jute_put_text(o, marked, n);
    hf__jute_put_int(o, stat->version);
    hf__zk_send(j->zk, q);
}

static void answer_victim(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct job *j = job_of(q);
    struct jute_text data = { NULL, 0 };
    struct jute_stat stat;
    struct record rec;

    j->open--;
    if (!j->query.look) {
        hf__zk_job_finish(j);
        return;
    }
    if (reply && reply->err == 0)
        data = hf__jute_text(&reply->body);
    if (reply && reply->err == JUTE_NO_NODE) {
        again(j);
    } else if (!reply || reply->err != 0 || !hf__jute_stat(&reply->body, &stat)) {
        hf__zk_job_fail(j, reply);
    } else {
        hf__zk_record_read(&rec, data.at, data.len);
        if (z->alone && memcmp(rec.token, j->query.look->token, HF_TOKEN) != 0)
            none(j);
        else if (j->query.look->now)
            end_it(j, z->alone ? stat.version : -1);
        else if (!rec.broken)
            mark_it(j, data, &stat);
    }
    hf__zk_job_finish(j);
}

static void evict_found(struct job *j)
{
    char path[NODE_PATH_MAX];
    unsigned char token[HF_TOKEN];
    struct request *q;

    for (j->victim = 0; j->victim < j->n && !j->zk->alone; j->victim++) {
        hf__zk_form_token(token, j->entries[j->victim]->name, j->entries[j->victim]->len);
        if (memcmp(token, j->query.look->token, HF_TOKEN) == 0 &&
            !entry_unreadable(j->entries[j->victim]))
            break;
    }
    if (j->victim == j->n) {
        none(j);
        return;
    }
    if (j->query.look->now && !j->zk->alone) {
        end_it(j, -1);
        return;
    }
    q = hf__zk_job_request(j, answer_victim, 0);
    if (q)
        hf__zk_send_path(j->zk, q, JUTE_GET_DATA, path,
                         hf__zk_job_path(j, j->victim, path));
}

void hf__zk_evict(struct store *s, struct look *look)
{
    if (zk_of(s)->alone && !look->now)
        hf__zk_not_here(zk_of(s), look, "a mark");
    else
        hf__zk_job_start(zk_of(s), look, evict_found, NULL);
}
