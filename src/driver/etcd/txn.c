/* txn.c: transactions, as the messages of etcd.proto want them: arrays of pointers. All of
 * it lies in one struct on the stack until it is sent. */
#include "driver/etcd/etcd.h"

#include <string.h>

void hf__etcd_txn(struct etcd_txn *t)
{
    hf__etcd__txn_request__init(&t->request);
    t->request.compare = t->compare;
    t->request.success = t->then.op;
    t->request.failure = t->otherwise.op;
    t->then.n = t->otherwise.n = 0;
}

static Hf__Etcd__Compare *compare(struct etcd_txn *t, const struct etcd_key *k,
                                  Hf__Etcd__Compare__Target target,
                                  Hf__Etcd__Compare__TargetUnionCase is)
{
    size_t i = t->request.n_compare++;
    Hf__Etcd__Compare *c = t->compare[i] = &t->compares[i];

    hf__etcd__compare__init(c);
    c->key = hf__etcd_bytes(k->at, k->len);
    c->target = target;
    c->target_union_case = is;
    return c;
}

void hf__etcd_if_created(struct etcd_txn *t, const struct etcd_key *k, int64_t revision)
{
    compare(t, k, HF__ETCD__COMPARE__TARGET__CREATE,
            HF__ETCD__COMPARE__TARGET_UNION_CREATE_REVISION)
        ->create_revision = revision;
}

void hf__etcd_if_changed(struct etcd_txn *t, const struct etcd_key *k, int64_t revision)
{
    compare(t, k, HF__ETCD__COMPARE__TARGET__MOD,
            HF__ETCD__COMPARE__TARGET_UNION_MOD_REVISION)
        ->mod_revision = revision;
}

/* No key begins so: in an empty range the server compares with 0. */
void hf__etcd_if_none(struct etcd_txn *t, const struct etcd_key *k, char end[KEY_MAX])
{
    hf__etcd_if_created(t, k, 0);
    hf__etcd_end_of(end, k);
    t->compares[t->request.n_compare - 1].range_end = hf__etcd_bytes(end, k->len);
}

void hf__etcd_end_of(char *end, const struct etcd_key *k)
{
    memcpy(end, k->at, k->len);
    end[k->len - 1]++; /* it ends with a slash, or in a name, which is UTF-8 */
}

/* end: room for its end, KEY_MAX bytes; NULL: one key. An empty key: all of them. */
void hf__etcd_range(Hf__Etcd__RangeRequest *r, const struct etcd_key *k, char *end)
{
    hf__etcd__range_request__init(r);
    r->key = hf__etcd_bytes(k->at, k->len);
    if (end && k->len == 0) {
        r->key = r->range_end = hf__etcd_bytes("", 1);
    } else if (end) {
        hf__etcd_end_of(end, k);
        r->range_end = hf__etcd_bytes(end, k->len);
    }
}

static Hf__Etcd__RequestOp *add(struct etcd_ops *o)
{
    Hf__Etcd__RequestOp *op = o->op[o->n] = &o->ops[o->n];

    hf__etcd__request_op__init(op);
    o->n++;
    return op;
}

void hf__etcd_put(struct etcd_ops *o, const struct etcd_key *k, const void *value,
                  size_t len, int64_t lease)
{
    Hf__Etcd__RequestOp *op = add(o);

    hf__etcd__put_request__init(&o->put);
    o->put.key = hf__etcd_bytes(k->at, k->len);
    o->put.value = hf__etcd_bytes(value, len);
    o->put.lease = lease;
    op->request_case = HF__ETCD__REQUEST_OP__REQUEST_REQUEST_PUT;
    op->request_put = &o->put;
}

void hf__etcd_get(struct etcd_ops *o, const struct etcd_key *k, char *end)
{
    Hf__Etcd__RangeRequest *r = &o->range[o->n];
    Hf__Etcd__RequestOp *op = add(o);

    hf__etcd_range(r, k, end);
    op->request_case = HF__ETCD__REQUEST_OP__REQUEST_REQUEST_RANGE;
    op->request_range = r;
}

void hf__etcd_delete(struct etcd_ops *o, const struct etcd_key *k)
{
    Hf__Etcd__RequestOp *op = add(o);

    hf__etcd__delete_range_request__init(&o->delete);
    o->delete.key = hf__etcd_bytes(k->at, k->len);
    op->request_case = HF__ETCD__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
    op->request_delete_range = &o->delete;
}

const Hf__Etcd__RangeResponse *hf__etcd_range_at(const Hf__Etcd__TxnResponse *r, size_t i)
{
    if (i >= r->n_responses ||
        r->responses[i]->response_case != HF__ETCD__RESPONSE_OP__RESPONSE_RESPONSE_RANGE)
        return NULL;
    return r->responses[i]->response_range;
}

void hf__etcd_txn_send(struct etcd *e, struct etcd_txn *t, struct etcd_call *q)
{
    t->request.n_success = t->then.n;
    t->request.n_failure = t->otherwise.n;
    hf__etcd_send(&e->conn, q, ETCD_TXN, &t->request);
}
