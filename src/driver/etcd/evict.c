/* evict.c: ending a ticket by its token, or letting a kept one last for longer, or one that
 * is held by an owner who is dead become a kept one.
 *
 * The line is read; what is done is one transaction that compares what was read, and if
 * that is another meanwhile the line is read again.
 *
 * At once, or if it is kept, so nobody's: its key is deleted. Else, if it holds, a mark is
 * written into its value, which its holder watches; another program's ticket has nobody who
 * would heed it (HF_ENOTSUP). One that waits is deleted, but only as long as it waits (G1):
 * with comparisons that tickets ahead of it are there which leave it no room. Whoever
 * counts it among the holders must have seen one of those end. */
#include "driver/etcd/etcd.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TRIES = 10, AHEAD_MAX = TXN_COMPARES - 1 };

static void read_line(struct etcd_job *);

static void done(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    struct etcd_job *j = q->with;
    hf_error err;
    int rc = hf__etcd_query_result(etcd_at(c), a, &err);

    bool changed = rc == 0 && !((const Hf__Etcd__TxnResponse *)a->body)->succeeded;

    if (changed || rc == HF_EAUTH)
        hf__etcd_give_back(j->e, j->lease);
    j->lease = 0;
    if (changed && j->query.look && j->tries++ < TRIES)
        read_line(j);
    else if (changed)
        hf__etcd_job_fail(j, HF_EBUSYSTORE, "the ticket changes all the time");
    else if (hf__etcd_no_lease(a))
        hf__etcd_job_fail(j, HF_ENOENT, "its lease is over");
    else
        hf__etcd_job_end(j, rc, &err);
}

static void key_at(struct etcd_key *k, const Hf__Etcd__KeyValue *kv)
{
    k->len = 0;
    hf__etcd_key_add(k, (const char *)kv->key.data, kv->key.len);
}

static void put(struct etcd_job *j, int64_t lease)
{
    struct etcd_call *q = hf__etcd_job_ask(j, done);
    struct etcd_txn txn;

    if (!q)
        return;
    hf__etcd_txn(&txn);
    hf__etcd_if_changed(&txn, &j->key, j->mod);
    hf__etcd_put(&txn.then, &j->key, j->value, j->len, lease);
    hf__etcd_txn_send(j->e, &txn, q);
}

/* ahead: those that must be there. Another program's may have a key of any length. */
static void delete (struct etcd_job *j, const Hf__Etcd__RangeResponse *r,
                    struct ordered_span ahead, int64_t created)
{
    struct etcd_call *q = hf__etcd_job_ask(j, done);
    struct etcd_txn txn;

    if (!q)
        return;
    hf__etcd_txn(&txn);
    hf__etcd_if_created(&txn, &j->key, created);
    for (size_t i = ahead.from; i < ahead.to; i++) {
        /* not of its creation: it may have become shared */
        hf__etcd_if_changed(&txn, &j->key, r->kvs[i]->mod_revision);
        txn.compares[txn.request.n_compare - 1].key = r->kvs[i]->key;
    }
    hf__etcd_delete(&txn.then, &j->key);
    hf__etcd_txn_send(j->e, &txn, q);
}

static void has_lease(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    struct etcd_job *j = q->with;
    const Hf__Etcd__LeaseGrantResponse *r = a ? a->body : NULL;
    char line[64], value[RECORD_MAX];
    hf_error err;
    int rc = hf__etcd_query_result(etcd_at(c), a, &err);

    if (rc < 0) {
        hf__etcd_job_end(j, rc, &err);
        return;
    }
    snprintf(line, sizeof line, "kept %" PRId64 "\n", etcd_wall_ms(j->e) + r->ttl * 1000);
    rc = (int)hf__record_set(value, j->value, j->len, line);
    j->len = (size_t)rc;
    memcpy(j->value, value, j->len);
    j->lease = r->id;
    put(j, r->id);
}

static void evict(struct etcd_job *j, const Hf__Etcd__RangeResponse *r,
                  struct ordered_entry **entries, size_t i, const struct ticket_record *rec)
{
    const struct look *look = j->query.look;
    const Hf__Etcd__KeyValue *kv = r->kvs[i];
    struct ordered_span ahead = { 0, 0 };
    bool held = i < hf__ordered_holders(entries, r->n_kvs);
    bool keeps = rec->kept_ms > 0 || (look->orphan && rec->ours && held && !rec->broken);
    struct etcd_call *q;

    key_at(&j->key, kv);
    j->mod = kv->mod_revision;
    if (look->keep_ms > 0 && (!keeps || kv->value.len > RECORD_MAX - 64)) {
        hf__etcd_job_fail(j, HF_ENOENT, "the ticket is no kept one");
    } else if (look->keep_ms > 0) {
        j->len = kv->value.len;
        memcpy(j->value, kv->value.data, kv->value.len);
        q = hf__etcd_job_ask(j, has_lease);
        if (q)
            hf__etcd_grant(j->e, q, look->keep_ms);
    } else if (look->now || rec->kept_ms > 0) {
        delete (j, r, ahead, kv->create_revision);
    } else if (rec->broken) {
        hf__etcd_job_end(j, 0, NULL);
    } else if ((j->len = hf__record_set(j->value, kv->value.data, kv->value.len,
                                        "broken\n")) == 0) {
        hf__etcd_job_fail(j, HF_ENOTSUP,
                          "the ticket is another program's, which would not heed a mark");
    } else {
        if (!held)
            ahead = hf__ordered_whom(entries, i);
        if (ahead.to > ahead.from && ahead.to - ahead.from <= AHEAD_MAX)
            delete (j, r, ahead, kv->create_revision);
        else
            put(j, kv->lease);
    }
}

static void has_line(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    struct etcd_job *j = q->with;
    const Hf__Etcd__RangeResponse *r = a ? a->body : NULL;
    struct ordered_entry **entries = NULL;
    unsigned char token[HF_TOKEN];
    struct ticket_record rec;
    hf_error err;
    size_t i = 0;
    int rc = hf__etcd_query_result(etcd_at(c), a, &err);

    if (rc < 0 || !j->query.look) {
        hf__etcd_job_end(j, rc, &err);
        return;
    }
    entries = hf__etcd_entries(r, j->key.len);
    for (; entries && i < r->n_kvs; i++) {
        hf__record_read(&rec, r->kvs[i]->value.data, r->kvs[i]->value.len);
        hf__etcd_token(token, &rec, entries[i]->name, entries[i]->len);
        if (memcmp(token, j->query.look->token, HF_TOKEN) == 0 &&
            r->kvs[i]->key.len <= KEY_MAX)
            break;
    }
    if (!entries)
        hf__etcd_job_fail(j, HF_ENOMEM, "no memory for an eviction");
    else if (i == r->n_kvs)
        hf__etcd_job_fail(j, HF_ENOENT, "no such ticket in that line");
    else
        evict(j, r, entries, i, &rec);
    hf__ordered_entries_free(entries, r->n_kvs);
}

static void read_line(struct etcd_job *j)
{
    struct etcd_call *q = hf__etcd_job_ask(j, has_line);
    Hf__Etcd__RangeRequest r;
    char end_of[KEY_MAX];

    if (!q)
        return;
    hf__etcd_line_key(&j->key, j->e, j->query.look->name, j->query.look->name_len);
    hf__etcd_range(&r, &j->key, end_of);
    r.sort_order = HF__ETCD__RANGE_REQUEST__SORT_ORDER__ASCEND;
    r.sort_target = HF__ETCD__RANGE_REQUEST__SORT_TARGET__CREATE;
    hf__etcd_send(&j->e->conn, q, ETCD_RANGE, &r);
}

void hf__etcd_evict(struct store *s, struct look *look)
{
    struct etcd_job *j = hf__etcd_job(s, look, NULL);

    if (j)
        read_line(j);
}
