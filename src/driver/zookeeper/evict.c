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
#include "driver/zookeeper/job.h"

#include <string.h>

enum { AHEAD_MAX = 500 }; /* in one transaction */

static void none(struct job *j)
{
    hf__zk_job_refuse(j, HF_ENOENT, "no such ticket in line '%s'",
                      j->query.look ? j->query.look->name : "");
}

static void again(struct job *j)
{
    if (!hf__zk_job_again(j))
        none(j);
}

static void answer_ended(struct zk_call *q, struct jute_reply *reply)
{
    struct job *j = q->about;

    j->marks = q->op == JUTE_MULTI && reply->err != 0 && reply->err != JUTE_NO_NODE;
    if (reply->err == JUTE_NO_NODE || reply->err == JUTE_BAD_VERSION || j->marks)
        again(j);
    else if (reply->err != 0)
        hf__zk_job_fail(j, reply);
}

static void end_it(struct job *j, int32_t version)
{
    char path[NODE_PATH_MAX];

    hf__zk_send_delete(hf__zk_job_request(j, answer_ended), path,
                       hf__zk_job_path(j, j->victim, path), version);
}

/* False: it holds, or that cannot be done in one transaction. */
static bool take_out(struct job *j)
{
    struct ordered_span ahead = hf__ordered_whom(j->entries, j->victim);
    char path[NODE_PATH_MAX];
    struct zk_call *q;
    struct jute_out *o;

    if (j->marks || j->victim < hf__ordered_holders(j->entries, j->n) ||
        ahead.to - ahead.from > AHEAD_MAX)
        return false;
    for (size_t i = ahead.from; i < ahead.to; i++)
        if (entry_unreadable(j->entries[i]))
            return false; /* another program's, of any length */
    q = hf__zk_job_request(j, answer_ended);
    if (!q)
        return true;
    o = hf__zk_begin(q, JUTE_MULTI);
    for (size_t i = ahead.from; i < ahead.to; i++) {
        hf__jute_put_part(o, JUTE_CHECK);
        hf__jute_put_delete(o, path, hf__zk_job_path(j, i, path), -1);
    }
    hf__jute_put_part(o, JUTE_DELETE);
    hf__jute_put_delete(o, path, hf__zk_job_path(j, j->victim, path), -1);
    hf__zk_send(q);
    return true;
}

static void mark_it(struct job *j)
{
    const struct zk_seen *s = &j->seen[j->victim];
    char path[NODE_PATH_MAX], marked[RECORD_MAX];
    size_t n = hf__record_set(marked, s->data, s->len, "broken\n");
    struct zk_call *q;

    if (n == 0) {
        hf__zk_job_refuse(j, HF_ENOTSUP,
                          "the ticket is another program's, which would not heed a mark");
        return;
    }
    if (take_out(j))
        return;
    q = hf__zk_job_request(j, answer_ended);
    if (!q)
        return;
    hf__jute_put_set(hf__zk_begin(q, JUTE_SET_DATA), path,
                     hf__zk_job_path(j, j->victim, path), marked, n, s->stat.version);
    hf__zk_send(q);
}

static void evict_read(struct job *j)
{
    const struct zk_seen *s = &j->seen[j->victim];
    struct ticket_record rec;

    if (!s->data) { /* with mode=ephemeral it has no other name */
        (j->zk->alone ? none : again)(j);
        return;
    }
    hf__record_read(&rec, s->data, s->len);
    if (j->zk->alone && memcmp(rec.token, j->query.look->token, HF_TOKEN) != 0)
        none(j);
    else if (j->query.look->now)
        end_it(j, j->zk->alone ? s->stat.version : -1);
    else if (!rec.broken)
        mark_it(j);
}

static void evict_found(struct job *j)
{
    j->victim = hf__zk_job_find(j);
    if (j->victim == j->n || entry_unreadable(j->entries[j->victim])) {
        none(j);
    } else if (j->query.look->now) {
        end_it(j, -1);
    } else {
        hf__zk_job_read(j, j->victim, false);
        j->next = evict_read;
    }
}

static void begin(struct job *j)
{
    hf__zk_sync(j->zk, j->dir, j->dir_len);
    hf__zk_job_list(j);
    j->next = j->zk->alone ? evict_read : evict_found;
}

void hf__zk_evict(struct store *s, struct look *look)
{
    if (zk_of(s)->alone && !look->now)
        hf__zk_not_here(zk_of(s), look, "a mark");
    else
        hf__zk_job_start(zk_of(s), look, NULL, begin);
}
