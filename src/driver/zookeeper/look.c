/* look.c: who holds and who waits in one line.
 *
 *   sync, getChildren2 -> getData of every ticket, all at once -> rows
 *
 * A sync first: what was done through other servers is seen. Tickets that go between the
 * list and their reading are left out; but an exclusive one may have become shared, which
 * is another node: then the line is read anew. Nothing is changed by looking (rule 7).
 *
 * A brief look, how much of a line is taken, is the list alone: from it everybody can
 * compute who holds (kit/ordered.h). No sync goes before it: a server that lags behind the
 * others answers with an older line.
 *
 * With mode=ephemeral the one node is the one ticket. An unanswered look ends with
 * HF_EUNREACHABLE. */
#include "driver/zookeeper/job.h"

#include <stdlib.h>
#include <string.h>

/* ---- rows ------------------------------------------------------------------------ */

int64_t hf__zk_age(const struct zk *z, const struct jute_stat *stat)
{
    int64_t ms = z->store.env->wall(z->store.env) / 1000 - stat->ctime;

    return ms > 0 ? ms : 0;
}

static void show_one(const struct job *j, size_t i, struct row *row, uint32_t position)
{
    const struct zk_seen *s = &j->seen[i];
    const struct ordered_entry *e = j->entries[i];
    struct ticket_record rec;

    hf__record_read(&rec, s->data, s->len);
    hf__record_row(row, &rec);
    if (rec.has_token)
        memcpy(row->token, rec.token, HF_TOKEN);
    else
        hf__zk_form_token(row->token, e->name, e->len);
    row->fence = position > 0 ? 0 : rec.fence > 0 ? rec.fence : (uint64_t)s->stat.czxid;
    row->position = position;
    row->weight = e->weight;
    row->age_ms = hf__zk_age(j->zk, &s->stat);
    row->joined = s->stat.czxid;
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

static struct row line_row(const struct job *j)
{
    return hf__ordered_row(j->query.look->name, j->query.look->name_len, j->entries, j->n);
}

/* One that has become shared meanwhile must not be missed under both its names. */
static bool torn(const struct job *j)
{
    for (size_t i = 0; i < j->n && !j->zk->alone; i++)
        if (!j->seen[i].data && j->entries[i]->kind == LINE_LOCK &&
            j->entries[i]->weight == HF_FULL)
            return true;
    return false;
}

static void show_all(struct job *j)
{
    struct row row;

    if (torn(j) && hf__zk_job_again(j))
        return;
    pack(j);
    if (j->n == 0)
        return;
    row = line_row(j);
    for (size_t i = 0; i < row.holders; i++)
        if (hf__zk_age(j->zk, &j->seen[i].stat) > row.oldest_ms)
            row.oldest_ms = hf__zk_age(j->zk, &j->seen[i].stat);
    for (size_t i = 0; i < j->n; i++)
        show_one(j, i, &row, i < row.holders ? 0 : (uint32_t)(i - row.holders + 1));
}

static void show_brief(struct job *j)
{
    struct row row;

    if (j->zk->alone)
        pack(j);
    if (j->n == 0)
        return;
    row = line_row(j);
    ev_row(j->query.look, &row);
}

/* ---- reading --------------------------------------------------------------------- */

static void read_all(struct job *j)
{
    for (size_t i = 0; i < j->n; i++)
        if (!entry_unreadable(j->entries[i]))
            hf__zk_job_read(j, i, false);
        else if ((j->seen[i].data = strdup("")) == NULL) /* it is there: no more is known */
            hf__zk_job_no_memory(j);
    j->next = show_all;
}

static void begin(struct job *j)
{
    bool brief = j->query.look->brief;

    if (!brief)
        hf__zk_sync(j->zk, j->dir, j->dir_len);
    hf__zk_job_list(j);
    j->next = brief ? show_brief : j->zk->alone ? show_all : read_all;
}

/* ---- verbs ----------------------------------------------------------------------- */

/* mode=ephemeral: HF_CAP_LINE is missing. */
void hf__zk_not_here(const struct zk *z, struct look *look, const char *what)
{
    hf__query_refuse(look, NULL, HF_ENOTSUP, z->open.shown, "%s: not with mode=ephemeral",
                     what);
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
    else
        hf__zk_job_start(z, look, NULL, begin);
}

void hf__zk_stop(struct store *s, struct look *look, struct cell *cell)
{
    (void)s;
    list_remove(look ? &look->drv_node : &cell->drv_node); /* a follow */
    hf__query_stop(look, cell);
}
