/* job.c: what takes several requests and has one answer: an eviction, a change of a cell.
 * It ends once. A lease that was granted for what it was to write, and on which nothing was
 * put, is given back then. */
#include "driver/etcd/etcd.h"

#include <stdlib.h>
#include <string.h>

static const char no_memory[] = "no memory for a request";

struct etcd_job *hf__etcd_job(struct store *s, struct look *look, struct cell *cell)
{
    struct etcd_job *j = malloc(sizeof *j);

    if (!j) {
        hf__query_refuse(look, cell, HF_ENOMEM, NULL, no_memory);
        return NULL;
    }
    memset(j, 0, offsetof(struct etcd_job, value));
    j->e = etcd_of(s);
    hf__query_begin(&j->query, look, cell);
    return j;
}

void hf__etcd_job_end(struct etcd_job *j, int rc, const hf_error *err)
{
    hf__etcd_give_back(j->e, j->lease);
    hf__query_end(&j->query, rc, err);
    free(j);
}

void hf__etcd_job_fail(struct etcd_job *j, int code, const char *text)
{
    hf_error err;

    hf__etcd_job_end(j, hf__fail(&err, code, 0, j->e->open.shown, "%s", text), &err);
}

struct etcd_call *hf__etcd_job_ask(struct etcd_job *j, etcd_answered *answer)
{
    struct etcd_call *q = hf__etcd_ask(&j->e->conn, answer, j);

    if (!q)
        hf__etcd_job_fail(j, HF_ENOMEM, no_memory);
    return q;
}
