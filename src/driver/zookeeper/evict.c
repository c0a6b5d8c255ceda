/* evict.c: ending a ticket by its token.
 *
 * It is found among the names. At once: its node is deleted. Else a mark is written into
 * its data, under its version so that nothing is overwritten, which its holder watches;
 * another program's ticket has nobody who would heed it (HF_ENOTSUP).
 *
 * Goes wrong: its node is gone, or its data is another, when that comes to be done. It may
 * have become shared, or has another note: it is looked for again, and if it has left
 * nothing is ended (HF_ENOENT). */
#include "driver/zookeeper/look.h"

#include <string.h>

static void none(struct job *j)
{
    j->rc = hf__fail(&j->err, HF_ENOENT, 0, j->zk->shown, "no such ticket in line '%s'",
                     j->look ? j->look->name : "");
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
    if (!j->look) {
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
        if (z->alone && memcmp(rec.token, j->look->token, HF_TOKEN) != 0)
            none(j);
        else if (j->look->now)
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
        if (memcmp(token, j->look->token, HF_TOKEN) == 0 &&
            !entry_unreadable(j->entries[j->victim]))
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
