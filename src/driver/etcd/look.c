/* look.c: who holds and who waits in one line: one read of it, which has everything; which
 * lines there are: pages of all keys. Nothing is changed by looking (rule 7). */
#include "driver/etcd/etcd.h"
#include "kit/listing.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 1000 };

struct look_call {
    struct etcd_call call;
    struct query query;
};

/* ---- one line ---------------------------------------------------------------------- */

static int64_t age(const struct etcd *e, const struct ticket_record *rec)
{
    int64_t ms = etcd_wall_ms(e) - rec->since_ms;

    return !rec->ours ? -1 : ms > 0 ? ms : 0;
}

static void show_one(const struct etcd *e, struct look *look, struct row *row,
                     const Hf__Etcd__KeyValue *kv, const struct ordered_entry *entry)
{
    struct ticket_record rec;

    hf__record_read(&rec, kv->value.data, kv->value.len);
    hf__record_row(row, &rec);
    hf__etcd_token(row->token, &rec, entry->name, entry->len);
    row->fence = row->position > 0 ? 0 : (uint64_t)kv->create_revision;
    row->weight = rec.weight;
    row->age_ms = age(e, &rec);
    row->kept = rec.kept_ms > 0;
    if (row->kept) {
        row->expires_ms = rec.kept_ms - etcd_wall_ms(e);
        row->expires_ms = row->expires_ms > 0 ? row->expires_ms : 0;
    }
    row->joined = kv->create_revision;
    ev_row(look, row);
}

/* The answer is sorted by creation, as the entries are. */
static void show(struct etcd *e, struct look *look, const Hf__Etcd__RangeResponse *r,
                 struct ordered_entry **entries)
{
    struct row row = hf__ordered_row(look->name, look->name_len, entries, r->n_kvs);
    struct ticket_record rec;
    bool seen = false;

    for (size_t i = 0; i < row.holders; i++) {
        hf__record_read(&rec, r->kvs[i]->value.data, r->kvs[i]->value.len);
        if (age(e, &rec) > row.oldest_ms)
            row.oldest_ms = age(e, &rec);
    }
    if (look->brief) {
        ev_row(look, &row);
        return;
    }
    for (size_t i = 0; i < r->n_kvs && !seen; i++) {
        row.position = i < row.holders ? 0 : (uint32_t)(i - row.holders + 1);
        show_one(e, look, &row, r->kvs[i], entries[i]);
        seen = look->front && memcmp(row.token, look->token, HF_TOKEN) == 0;
    }
}

static void has_line(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    struct query *query = &container_of(q, struct look_call, call)->query;
    const Hf__Etcd__RangeResponse *r = a ? a->body : NULL;
    struct look *look = query->look;
    struct etcd *e = etcd_at(c);
    struct ordered_entry **entries;
    struct etcd_key k;
    hf_error err;
    int rc = hf__etcd_query_result(e, a, &err);

    if (!look)
        return;
    if (rc == 0 && r->n_kvs > 0) {
        hf__etcd_line_key(&k, e, look->name, look->name_len);
        entries = hf__etcd_entries(r, k.len);
        if (entries)
            show(e, look, r, entries);
        else
            rc = hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a look");
        hf__ordered_entries_free(entries, r->n_kvs);
    }
    hf__query_end(query, rc, &err);
}

static void read_line(void *with)
{
    struct look_call *q = with;
    struct look *look = q->query.look;
    Hf__Etcd__RangeRequest r;
    struct etcd_key k;
    char end[KEY_MAX];
    struct etcd *e;

    if (!look) { /* stopped while its watch was made */
        hf__etcd_call_free(&q->call);
        return;
    }
    e = etcd_of(look->store);
    hf__etcd_line_key(&k, e, look->name, look->name_len);
    hf__etcd_range(&r, &k, end);
    r.sort_order = HF__ETCD__RANGE_REQUEST__SORT_ORDER__ASCEND;
    r.sort_target = HF__ETCD__RANGE_REQUEST__SORT_TARGET__CREATE;
    r.serializable = look->brief;
    hf__etcd_send(&e->conn, &q->call, ETCD_RANGE, &r);
}

/* ---- which lines there are --------------------------------------------------------- */

struct lines {
    struct listing l;
    struct etcd *e;
    struct etcd_key from;
    char end[KEY_MAX];
    size_t end_len;
    struct ordered_line line; /* its tickets so far */
    int64_t oldest_ms;        /* of the first of them by number */
    size_t name_len;
    char name[HF_NAME_MAX + 1];
};

static void line_ends(struct lines *l)
{
    struct row row;

    if (l->line.n > 0) {
        row = hf__ordered_row(l->name, l->name_len, l->line.entries, l->line.n);
        row.oldest_ms = l->oldest_ms;
        hf__listing_row(&l->l, &row);
    }
    hf__ordered_entries_free(l->line.entries, l->line.n);
    memset(&l->line, 0, sizeof l->line);
}

static void add_ticket(struct lines *l, const Hf__Etcd__KeyValue *kv)
{
    char name[HF_NAME_MAX + 1];
    struct ordered_entry *entry;
    struct ticket_record rec;
    size_t len;

    if (!hf__etcd_line_name(l->e, &kv->key, name, &len))
        return;
    if (len != l->name_len || memcmp(name, l->name, len) != 0) {
        line_ends(l);
        memcpy(l->name, name, len + 1);
        l->name_len = len;
    }
    hf__record_read(&rec, kv->value.data, kv->value.len);
    entry = hf__etcd_entry(kv, &rec, 0);
    if (!entry || !hf__ordered_insert(&l->line, entry)) {
        free(entry);
        hf__listing_no_memory(&l->l);
    } else if (l->line.entries[0] == entry) {
        l->oldest_ms = age(l->e, &rec);
    }
}

static void next_page(void *with);

static void end_list(struct lines *l)
{
    line_ends(l);
    hf__listing_end(&l->l);
    free(l);
}

static void has_page(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    struct lines *l = q->with;
    const Hf__Etcd__RangeResponse *r = a ? a->body : NULL;
    hf_error err;
    int rc = hf__etcd_query_result(etcd_at(c), a, &err);

    hf__listing_answered(&l->l);
    if (rc < 0)
        hf__listing_fail(&l->l, rc, &err);
    for (size_t i = 0; r && i < r->n_kvs; i++)
        add_ticket(l, r->kvs[i]);
    if (r && r->more && r->n_kvs > 0 && listing_goes_on(&l->l) &&
        r->kvs[r->n_kvs - 1]->key.len < KEY_MAX) {
        l->from.len = 0; /* behind the last one */
        hf__etcd_key_add(&l->from, (const char *)r->kvs[r->n_kvs - 1]->key.data,
                         r->kvs[r->n_kvs - 1]->key.len);
        hf__etcd_key_add(&l->from, "", 1);
        next_page(l);
    } else {
        end_list(l);
    }
}

static void next_page(void *with)
{
    struct lines *l = with;
    struct etcd_call *q = hf__etcd_ask(&l->e->conn, has_page, l);
    Hf__Etcd__RangeRequest r = HF__ETCD__RANGE_REQUEST__INIT;

    if (!q) {
        hf__listing_no_memory(&l->l);
        end_list(l);
        return;
    }
    r.key = hf__etcd_bytes(l->from.at, l->from.len);
    r.range_end = hf__etcd_bytes(l->end, l->end_len);
    r.limit = PAGE;
    l->l.open++;
    hf__etcd_send(&l->e->conn, q, ETCD_RANGE, &r);
}

static void list(struct etcd *e, struct look *look)
{
    struct lines *l;

    if (e->raw) {
        hf__query_refuse(look, NULL, HF_ENOTSUP, e->open.shown,
                         "a list of lines: not with names=raw");
        return;
    }
    l = hf__listing_new(sizeof *l, look);
    if (!l)
        return;
    l->e = e;
    hf__etcd_line_key(&l->from, e, look->name, look->name_len);
    l->from.len--; /* the slash: any name that begins so */
    l->end_len = l->from.len > 0 ? l->from.len : 1;
    if (l->from.len > 0)
        hf__etcd_end_of(l->end, &l->from);
    else
        hf__etcd_key_add(&l->from, "", 1); /* all keys: "\0" to "\0" */
    hf__etcd_follow(e, look, NULL, next_page, l);
}

/* ---- verbs ------------------------------------------------------------------------- */

void hf__etcd_look(struct store *s, struct look *look)
{
    struct etcd *e = etcd_of(s);
    struct etcd_call *q;

    if (look->list) {
        list(e, look);
        return;
    }
    q = hf__etcd_call(&e->conn, has_line, sizeof(struct look_call));
    if (!q) {
        hf__query_refuse(look, NULL, HF_ENOMEM, NULL, "no memory for a look");
        return;
    }
    hf__query_begin(&container_of(q, struct look_call, call)->query, look, NULL);
    hf__etcd_follow(e, look, NULL, read_line, container_of(q, struct look_call, call));
}

void hf__etcd_stop(struct store *s, struct look *look, struct cell *cell)
{
    hf__query_stop(look, cell);
    hf__etcd_unfollow(etcd_of(s), look, cell);
}
