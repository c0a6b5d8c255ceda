/* cell.c: one small record per name, outside of its line: the key <base>/cell/<name>. Its
 * version is the revision of its last change, which grows with every change of the store.
 *
 *   [a lease, if it expires] -> [what is there, if it is added to] -> one transaction
 *
 * A sum is written only if the cell is still what was read; else what it is now comes with
 * the answer, and is added to. A change that is not answered is HF_EUNREACHABLE: it may or
 * may not have happened. */
#include "driver/etcd/etcd.h"

#include <string.h>

enum { TRIES = 10000 };

static void sum(struct etcd_job *);

static bool tell(struct etcd_job *j, const Hf__Etcd__RangeResponse *r)
{
    struct cell *cell = j->query.cell;

    cell->value_len = cell->version = 0;
    if (!r || r->n_kvs == 0)
        return true;
    if (r->kvs[0]->value.len > HF_CELL_MAX)
        return false;
    cell->version = (uint64_t)r->kvs[0]->mod_revision;
    cell->value_len = r->kvs[0]->value.len;
    if (cell->value_len > 0)
        memcpy(cell->value, r->kvs[0]->value.data, cell->value_len);
    return true;
}

/* ---- changing ---------------------------------------------------------------------- */

static void changed(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    struct etcd_job *j = q->with;
    struct cell *cell = j->query.cell;
    const Hf__Etcd__TxnResponse *r = a ? a->body : NULL;
    hf_error err;
    int rc = hf__etcd_query_result(etcd_at(c), a, &err);

    if (rc == 0 ? r->succeeded : rc != HF_EAUTH)
        j->lease = 0; /* it has been written, or may be */
    if (rc < 0 || !cell) {
        hf__etcd_job_end(j, rc, &err);
    } else if (r->succeeded) {
        memcpy(cell->value, j->value, j->len);
        cell->value_len = j->len;
        cell->version = cell->verb == CELL_DEL ? 0 : (uint64_t)hf__etcd_revision(a);
        hf__etcd_job_end(j, 0, NULL);
    } else if (!tell(j, hf__etcd_range_at(r, 0))) {
        hf__etcd_job_fail(j, HF_EPROTO, "the cell is another program's");
    } else if (cell->verb == CELL_ADD && j->tries++ < TRIES) {
        sum(j); /* of what it is now */
    } else {
        hf__etcd_job_fail(j, cell->verb == CELL_ADD ? HF_EBUSYSTORE : HF_EBUSY,
                          "the cell has another version");
    }
}

static void change(struct etcd_job *j)
{
    const struct cell *cell = j->query.cell;
    struct etcd_call *q = hf__etcd_job_ask(j, changed);
    struct etcd_txn txn;

    if (!q)
        return;
    hf__etcd_txn(&txn);
    if (cell->verb == CELL_ADD || !cell->if_any)
        hf__etcd_if_changed(
            &txn, &j->key,
            (int64_t)(cell->verb == CELL_ADD ? cell->version : cell->if_version));
    if (cell->verb == CELL_DEL)
        hf__etcd_delete(&txn.then, &j->key);
    else
        hf__etcd_put(&txn.then, &j->key, j->value, j->len, j->lease);
    hf__etcd_get(&txn.otherwise, &j->key, NULL);
    hf__etcd_txn_send(j->e, &txn, q);
}

static void sum(struct etcd_job *j)
{
    struct cell *cell = j->query.cell;

    j->len = hf__cell_sum(cell, cell->version > 0 ? cell->value : NULL, cell->value_len,
                          j->value);
    if (j->len > 0)
        change(j);
    else
        hf__etcd_job_fail(j, HF_EINVAL,
                          "the cell holds no number, or the sum is too great");
}

/* ---- reading ----------------------------------------------------------------------- */

static void was_read(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    struct etcd_job *j = q->with;
    hf_error err;
    int rc = hf__etcd_query_result(etcd_at(c), a, &err);

    if (rc < 0 || !j->query.cell)
        hf__etcd_job_end(j, rc, &err);
    else if (!tell(j, a->body))
        hf__etcd_job_fail(j, HF_EPROTO, "the cell is another program's");
    else if (j->query.cell->verb == CELL_GET)
        hf__etcd_job_end(j, 0, NULL);
    else
        sum(j);
}

static void read_it(void *with)
{
    struct etcd_job *j = with;
    struct etcd_call *q;
    Hf__Etcd__RangeRequest r;

    if (!j->query.cell) {
        hf__etcd_job_end(j, 0, NULL);
        return;
    }
    if (j->query.cell->verb == CELL_PUT || j->query.cell->verb == CELL_DEL) {
        change(j);
        return;
    }
    q = hf__etcd_job_ask(j, was_read);
    if (!q)
        return; /* it has ended */
    hf__etcd_range(&r, &j->key, NULL);
    hf__etcd_send(&j->e->conn, q, ETCD_RANGE, &r);
}

static void has_lease(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    struct etcd_job *j = q->with;
    hf_error err;
    int rc = hf__etcd_query_result(etcd_at(c), a, &err);

    if (rc < 0) {
        hf__etcd_job_end(j, rc, &err);
        return;
    }
    j->lease = ((const Hf__Etcd__LeaseGrantResponse *)a->body)->id;
    read_it(j);
}

static void begin(void *with)
{
    struct etcd_job *j = with;
    const struct cell *cell = j->query.cell;
    struct etcd_call *q;

    if (!cell || cell->ttl_ms == 0 || (cell->verb != CELL_PUT && cell->verb != CELL_ADD)) {
        read_it(j);
        return;
    }
    q = hf__etcd_job_ask(j, has_lease);
    if (q)
        hf__etcd_grant(j->e, q, cell->ttl_ms);
}

void hf__etcd_cell(struct store *s, struct cell *cell)
{
    struct etcd_job *j = hf__etcd_job(s, NULL, cell);

    if (!j)
        return;
    j->len = cell->verb == CELL_PUT ? cell->value_len : 0;
    memcpy(j->value, cell->value, j->len);
    hf__etcd_cell_key(&j->key, j->e, cell->name, cell->name_len);
    hf__etcd_follow(j->e, NULL, cell, begin, j);
}
