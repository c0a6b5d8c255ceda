/* table.c: records by key, and scans over the records that share a prefix.
 *
 * LMDB's pointers are valid until the next write of the same transaction; whoever keeps
 * bytes over a write copies them first (hf__local_tx_copy). Goes wrong: HF_EFULL,
 * HF_EDAMAGED, HF_ENOMEM; the body passes that on and the transaction is given up, so
 * nothing has changed.
 */
#include "driver/local/local.h"

#include "util/text.h"

#include <string.h>

enum { MAIN = 1, KEY_WHOLE = 500, KEY_HEAD = 470 };

int hf__local_db_get(struct tx *tx, const void *key, size_t len, MDB_val *ret)
{
    MDB_val k = { len, (void *)(uintptr_t)key };
    int rc = mdb_get(tx->txn, MAIN, &k, ret);

    return rc == 0              ? 0
           : rc == MDB_NOTFOUND ? DB_NONE
                                : hf__local_db_error(tx->err, tx->sh, rc);
}

int hf__local_db_put(struct tx *tx, const void *key, size_t len, size_t size, void **room)
{
    MDB_val k = { len, (void *)(uintptr_t)key }, v = { size, NULL };
    int rc = mdb_put(tx->txn, MAIN, &k, &v, MDB_RESERVE);

    if (rc != 0)
        return hf__local_db_error(tx->err, tx->sh, rc);
    tx->dirty = true;
    *room = v.mv_data;
    return 0;
}

int hf__local_db_del(struct tx *tx, const void *key, size_t len)
{
    MDB_val k = { len, (void *)(uintptr_t)key };
    int rc = mdb_del(tx->txn, MAIN, &k, NULL);

    if (rc == MDB_NOTFOUND)
        return DB_NONE;
    if (rc != 0)
        return hf__local_db_error(tx->err, tx->sh, rc);
    tx->dirty = true;
    return 0;
}

/* ---- scans ----------------------------------------------------------------------- */

int hf__local_scan_open(struct scan *s, struct tx *tx, const void *prefix, size_t len)
{
    int rc = mdb_cursor_open(tx->txn, MAIN, &s->cursor);

    s->tx = tx;
    s->plen = len;
    memcpy(s->prefix, prefix, len);
    if (rc != 0) {
        s->cursor = NULL;
        return hf__local_db_error(tx->err, tx->sh, rc);
    }
    return 0;
}

static int land(struct scan *s, int rc)
{
    if (rc == MDB_NOTFOUND)
        return DB_NONE;
    if (rc != 0)
        return hf__local_db_error(s->tx->err, s->tx->sh, rc);
    return s->key.mv_size >= s->plen && memcmp(s->key.mv_data, s->prefix, s->plen) == 0
               ? 0
               : DB_NONE;
}

int hf__local_scan_from(struct scan *s, const void *key, size_t len)
{
    s->key.mv_data = (void *)(uintptr_t)key;
    s->key.mv_size = len;
    return land(s, mdb_cursor_get(s->cursor, &s->key, &s->value, MDB_SET_RANGE));
}

int hf__local_scan_first(struct scan *s)
{
    return hf__local_scan_from(s, s->prefix, s->plen);
}

int hf__local_scan_before(struct scan *s, const void *key, size_t len)
{
    int rc;

    s->key.mv_data = (void *)(uintptr_t)key;
    s->key.mv_size = len;
    rc = mdb_cursor_get(s->cursor, &s->key, &s->value, MDB_SET_RANGE);
    if (rc == MDB_NOTFOUND)
        rc = mdb_cursor_get(s->cursor, &s->key, &s->value, MDB_LAST);
    else if (rc == 0)
        rc = mdb_cursor_get(s->cursor, &s->key, &s->value, MDB_PREV);
    return land(s, rc);
}

int hf__local_scan_next(struct scan *s)
{
    return land(s, mdb_cursor_get(s->cursor, &s->key, &s->value, MDB_NEXT));
}

int hf__local_scan_del(struct scan *s)
{
    int rc = mdb_cursor_del(s->cursor, 0);

    if (rc != 0)
        return hf__local_db_error(s->tx->err, s->tx->sh, rc);
    s->tx->dirty = true;
    return 0;
}

void hf__local_scan_close(struct scan *s)
{
    if (s->cursor)
        mdb_cursor_close(s->cursor);
    s->cursor = NULL;
}

int hf__local_db_del_prefix(struct tx *tx, const void *prefix, size_t len)
{
    struct scan s;
    int rc = hf__local_scan_open(&s, tx, prefix, len);

    if (rc < 0)
        return rc;
    while ((rc = hf__local_scan_first(&s)) == 0 && (rc = hf__local_scan_del(&s)) == 0)
        ;
    hf__local_scan_close(&s);
    return rc < 0 ? rc : 0;
}

/* ---- keys ------------------------------------------------------------------------ */

static void big_endian(unsigned char *p, uint64_t n)
{
    for (int i = 7; i >= 0; i--, n >>= 8)
        p[i] = (unsigned char)n;
}

size_t hf__local_key_numbers(unsigned char *key, enum table table, const uint64_t *n,
                             size_t count)
{
    key[0] = (unsigned char)table;
    for (size_t i = 0; i < count; i++)
        big_endian(key + 1 + 8 * i, n[i]);
    return 1 + 8 * count;
}

uint64_t hf__local_key_number(const unsigned char *p)
{
    uint64_t n = 0;

    for (int i = 0; i < 8; i++)
        n = n << 8 | p[i];
    return n;
}

/* Names contain no NUL, so "namespace NUL name" is nobody else's. A name that is too long
 * for a key is cut and a hash of all of it appended; the record then holds the name
 * itself. Such a key is longer than any that was not cut. */
void hf__local_key_name(struct key *k, enum table table, const char *ns, const char *name,
                        size_t len)
{
    size_t nslen = strlen(ns), n = nslen ? nslen + 1 + len : len;
    uint64_t hash[2];

    memcpy(k->text, ns, nslen + 1);
    memcpy(k->text + (nslen ? nslen + 1 : 0), name, len);
    k->hash = hf__hash(k->text, n);
    k->full = k->text;
    k->full_len = n;
    k->bytes[0] = (unsigned char)table;
    if (n <= KEY_WHOLE) {
        memcpy(k->bytes + 1, k->text, n);
        k->len = 1 + n;
        return;
    }
    hash[0] = k->hash;
    hash[1] = hf__hash(k->text + KEY_HEAD / 2, n - KEY_HEAD / 2);
    memcpy(k->bytes + 1, k->text, KEY_HEAD);
    k->bytes[1 + KEY_HEAD] = 0xff;
    hf__hex((char *)k->bytes + 2 + KEY_HEAD, hash, sizeof hash);
    k->len = 2 + KEY_HEAD + 2 * sizeof hash;
}

bool hf__local_key_cut(const struct key *k)
{
    return k->full_len > KEY_WHOLE;
}
