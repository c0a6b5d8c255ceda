/* line.c: the rule of the line, and the queue behind it.
 *
 * hf__local_line_step runs after every change of a line, always the same: while there is a
 * head of the queue: drop it if it is dead, else admit it if its weight fits (after
 * dropping dead holders, if that is what it takes), else stop. A holder is dead if its
 * expiry has passed or its process has no record; a waiter if its life has expired or is
 * gone, or its process has no record. The expiry of a new holder is copied from its life: a
 * grant moves nothing (G1, rule 8). The fence is above the mark of the name's bucket, and
 * the mark is raised before the commit: if the commit does not happen, a number is skipped
 * (G2).
 *
 * All of it happens in one transaction, in the gate: nothing runs beside it, and a kill
 * undoes all of it. What a grant must tell goes into the inbox in the same transaction,
 * so a lost wake delays a grant until the next look but never loses it.
 *
 * Who watches whom (G5). The head watches every process that holds; each other waiter
 * watches the process of its predecessor, so that a head that dies is noticed by the
 * next. Its record says which (watch). A new head whose watch already covers all holders
 * needs no message, and after a hand-off of an exclusive lock that is so: its predecessor
 * is the holder now. Otherwise it is told to look, once (WAITER_TOLD); and also if a
 * holder's expiry comes before its own next look, which is due one third into the ttl of
 * its life.
 */
#include "driver/local/local.h"

#include <string.h>
#include <time.h>

/* ---- life and death -------------------------------------------------------------- */

int hf__local_alive(struct tx *tx, uint64_t process)
{
    unsigned char key[KEY_PROCESS];
    MDB_val v;
    int rc;

    if (process == 0 || process == tx->sh->process)
        return 1;
    rc = hf__local_db_get(tx, key, hf__local_key_numbers(key, TABLE_PROCESS, &process, 1),
                          &v);
    return rc < 0 ? rc : rc == 0;
}

int hf__local_life_get(struct tx *tx, uint64_t process, uint64_t life, struct life_fix *ret)
{
    unsigned char key[KEY_LIFE];
    MDB_val v;
    int rc = hf__local_db_get(
        tx, key, hf__local_key_numbers(key, TABLE_LIFE, (uint64_t[]){ process, life }, 2),
        &v);

    if (rc != 0)
        return rc;
    if ((rc = hf__local_life_decode(ret, v.mv_data, v.mv_size)) < 0)
        return hf__fail(tx->err, rc, 0, tx->sh->path, "a damaged life");
    return 0;
}

int hf__local_life_put(struct tx *tx, uint64_t life, int64_t ttl_ms)
{
    const struct life_fix fix = { tx->now + ttl_ms * 1000, ttl_ms };
    unsigned char key[KEY_LIFE];
    const uint64_t n[] = { tx->sh->process, life };
    void *room;
    int rc = hf__local_db_put(tx, key, hf__local_key_numbers(key, TABLE_LIFE, n, 2),
                              sizeof fix, &room);

    if (rc == 0)
        memcpy(room, &fix, sizeof fix);
    return rc;
}

int hf__local_life_del(struct tx *tx, uint64_t life)
{
    unsigned char key[KEY_LIFE];
    const uint64_t n[] = { tx->sh->process, life };
    int rc = hf__local_db_del(tx, key, hf__local_key_numbers(key, TABLE_LIFE, n, 2));

    return rc < 0 ? rc : 0;
}

/* 1, 0 or HF_E*; fills *life if 1 */
int hf__local_waiter_alive(struct tx *tx, const struct local_waiter *w,
                           struct life_fix *life)
{
    int rc = hf__local_alive(tx, w->f.process);

    if (rc != 1)
        return rc;
    if ((rc = hf__local_life_get(tx, w->f.process, w->f.life, life)) != 0)
        return rc < 0 ? rc : 0;
    return life->expires_at > tx->now;
}

/* ---- lines ----------------------------------------------------------------------- */

static int broken_line(struct tx *tx, int rc)
{
    return hf__fail(tx->err, rc, 0, tx->sh->path, "%s",
                    rc == HF_ENOMEM ? "no memory"
                    : rc == HF_EVERSION
                        ? "a line of a newer format"
                        : "a damaged line; stop its users and remove the folder");
}

int hf__local_line_load(struct tx *tx, const struct key *k, struct local_line **ret)
{
    struct local_line *l = &tx->sh->line;
    MDB_val v;
    void *copy;
    int rc = hf__local_db_get(tx, k->bytes, k->len, &v);

    if (rc < 0)
        return rc;
    *ret = l;
    l->stored = rc == 0;
    if (rc == DB_NONE) {
        memset(&l->f, 0, sizeof l->f);
        l->f.format = RECORD_FORMAT;
        l->f.name_len = hf__local_key_cut(k) ? (uint16_t)k->full_len : 0;
        l->name = k->full;
        l->sum = 0;
        return 0;
    }
    if ((copy = hf__local_tx_copy(tx, v.mv_data, v.mv_size)) == NULL)
        return HF_ENOMEM;
    if ((rc = hf__local_line_decode(l, copy, v.mv_size)) < 0)
        return broken_line(tx, rc);
    if (hf__local_key_cut(k) &&
        (l->f.name_len != k->full_len || memcmp(l->name, k->full, k->full_len) != 0))
        return hf__fail(tx->err, HF_EINVAL, 0, tx->sh->path,
                        "the name cannot be told from another long one that is in use");
    return 0;
}

int hf__local_line_save(struct tx *tx, const struct key *k, struct local_line *l)
{
    void *room;
    int rc = 0;

    if (tx->sh->gate->followers > 0 &&
        (rc = hf__local_tell_followers(tx, TABLE_LINE, k->hash)) < 0)
        return rc;
    if (l->f.nholders == 0 && l->f.waiters == 0) {
        if (l->stored)
            rc = hf__local_db_del(tx, k->bytes, k->len);
        l->stored = false;
        return rc < 0 ? rc : 0;
    }
    if ((rc = hf__local_db_put(tx, k->bytes, k->len, hf__local_line_size(l), &room)) < 0)
        return rc;
    hf__local_line_encode(l, room);
    l->stored = true;
    return 0;
}

int hf__local_line_clean(struct tx *tx, struct local_line *l)
{
    size_t i = 0;

    while (i < l->f.nholders) {
        const struct local_holder *h = &l->holders[i];
        int rc = h->f.expires_at <= tx->now ? 0 : hf__local_alive(tx, h->f.process);

        if (rc < 0)
            return rc;
        if (rc == 0)
            hf__local_line_drop(l, i);
        else
            i++;
    }
    return 0;
}

static int64_t wall_now(const struct tx *tx)
{
    struct timespec ts;

    if (tx->ls)
        return tx->ls->store.env->wall(tx->ls->store.env);
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

uint64_t hf__local_line_fence(struct tx *tx, const struct key *k)
{
    uint64_t *mark = &tx->sh->gate->marks[k->hash % GATE_MARKS], fence = *mark + 1;
    int64_t wall = wall_now(tx);

    if (fence > (uint64_t)1 << 62)
        return 0;
    if (wall > 0 && (uint64_t)wall > fence && wall < (int64_t)1 << 60)
        fence = (uint64_t)wall;
    return *mark = fence;
}

/* ---- queue ----------------------------------------------------------------------- */

static int queue_read(struct tx *tx, const struct scan *s, struct local_waiter *w)
{
    void *copy;
    int rc;

    if (s->key.mv_size != KEY_QUEUE)
        return broken_line(tx, HF_EDAMAGED);
    w->seq = hf__local_key_number((const unsigned char *)s->key.mv_data + 9);
    if ((copy = hf__local_tx_copy(tx, s->value.mv_data, s->value.mv_size)) == NULL)
        return HF_ENOMEM;
    rc = hf__local_waiter_decode(w, copy, s->value.mv_size);
    return rc < 0 ? broken_line(tx, rc) : 0;
}

enum where { FIRST, BEFORE, AFTER };

static int queue_find(struct tx *tx, const struct local_line *l, enum where where,
                      uint64_t seq, struct local_waiter *w)
{
    unsigned char prefix[KEY_QUEUE], key[KEY_QUEUE];
    const uint64_t n[] = { l->f.id, where == AFTER ? seq + 1 : seq };
    struct scan s;
    int rc;

    hf__local_key_numbers(key, TABLE_QUEUE, n, 2);
    rc = hf__local_scan_open(&s, tx, prefix,
                             hf__local_key_numbers(prefix, TABLE_QUEUE, n, 1));
    if (rc < 0)
        return rc;
    rc = where == FIRST    ? hf__local_scan_first(&s)
         : where == BEFORE ? hf__local_scan_before(&s, key, sizeof key)
                           : hf__local_scan_from(&s, key, sizeof key);
    if (rc == 0)
        rc = queue_read(tx, &s, w);
    hf__local_scan_close(&s);
    return rc;
}

int hf__local_queue_first(struct tx *tx, const struct local_line *l, struct local_waiter *w)
{
    return queue_find(tx, l, FIRST, 0, w);
}

int hf__local_queue_before(struct tx *tx, const struct local_line *l, uint64_t seq,
                           struct local_waiter *w)
{
    return queue_find(tx, l, BEFORE, seq, w);
}

int hf__local_queue_get(struct tx *tx, uint64_t line, uint64_t seq, struct local_waiter *w)
{
    unsigned char key[KEY_QUEUE];
    const uint64_t n[] = { line, seq };
    MDB_val v;
    void *copy;
    int rc = hf__local_db_get(tx, key, hf__local_key_numbers(key, TABLE_QUEUE, n, 2), &v);

    if (rc != 0)
        return rc;
    if ((copy = hf__local_tx_copy(tx, v.mv_data, v.mv_size)) == NULL)
        return HF_ENOMEM;
    w->seq = seq;
    rc = hf__local_waiter_decode(w, copy, v.mv_size);
    return rc < 0 ? broken_line(tx, rc) : 0;
}

int hf__local_queue_put(struct tx *tx, const struct local_line *l,
                        const struct local_waiter *w)
{
    unsigned char key[KEY_QUEUE];
    const uint64_t n[] = { l->f.id, w->seq };
    void *room;
    int rc = hf__local_db_put(tx, key, hf__local_key_numbers(key, TABLE_QUEUE, n, 2),
                              hf__local_waiter_size(w), &room);

    if (rc == 0)
        hf__local_waiter_encode(w, room);
    return rc;
}

static int queue_del(struct tx *tx, struct local_line *l, uint64_t seq)
{
    unsigned char key[KEY_QUEUE];
    const uint64_t n[] = { l->f.id, seq };
    int rc = hf__local_db_del(tx, key, hf__local_key_numbers(key, TABLE_QUEUE, n, 2));

    if (rc == 0 && l->f.waiters > 0)
        l->f.waiters--;
    return rc < 0 ? rc : 0;
}

int hf__local_queue_remove(struct tx *tx, struct local_line *l, uint64_t seq)
{
    struct local_waiter before, after;
    int rc;

    if ((rc = queue_find(tx, l, AFTER, seq, &after)) < 0 || rc == DB_NONE)
        return rc < 0 ? rc : queue_del(tx, l, seq);
    if ((rc = hf__local_queue_before(tx, l, seq, &before)) < 0)
        return rc;
    /* Without a predecessor the next one is the head now; the step admits it. */
    if (rc == 0 && before.f.process != after.f.watch) {
        after.f.watch = before.f.process;
        if ((rc = hf__local_queue_put(tx, l, &after)) < 0)
            return rc;
        if (after.f.process != before.f.process &&
            (rc = hf__local_tell(tx, after.f.process, after.f.member, INBOX_LOOK,
                                 after.f.token, 0, 0)) < 0)
            return rc;
    }
    return queue_del(tx, l, seq);
}

/* ---- the step -------------------------------------------------------------------- */

static int admit(struct tx *tx, const struct key *k, struct local_line *l,
                 const struct local_waiter *w, const struct life_fix *life)
{
    struct local_holder h = { .f = { .process = w->f.process,
                                     .member = w->f.member,
                                     .weight = w->f.weight,
                                     .expires_at = life->expires_at,
                                     .joined_at = w->f.joined_at,
                                     .granted_at = tx->now,
                                     .owner = w->f.owner,
                                     .pid = w->f.pid,
                                     .note_len = w->f.note_len },
                              .note = w->note };
    int rc;

    memcpy(h.f.token, w->f.token, sizeof h.f.token);
    if ((h.f.fence = hf__local_line_fence(tx, k)) == 0)
        return broken_line(tx, HF_EDAMAGED);
    if ((rc = hf__local_line_add(l, &h)) < 0)
        return broken_line(tx, rc);
    if ((rc = queue_del(tx, l, w->seq)) < 0)
        return rc;
    return hf__local_tell(tx, w->f.process, w->f.member, INBOX_GRANTED, w->f.token,
                          h.f.fence, h.f.expires_at);
}

static bool must_look(const struct local_line *l, const struct local_waiter *w,
                      const struct life_fix *life)
{
    int64_t next_look_at = life->expires_at - renewals_us(life->ttl_ms, RENEWALS - 1);

    for (size_t i = 0; i < l->f.nholders; i++) {
        const struct local_holder *h = &l->holders[i];

        if (h->f.expires_at < next_look_at ||
            (h->f.process != 0 && h->f.process != w->f.process &&
             h->f.process != w->f.watch))
            return true;
    }
    return false;
}

static int tell_head(struct tx *tx, struct local_line *l, struct local_waiter *w,
                     const struct life_fix *life)
{
    int rc;

    if ((w->f.flags & WAITER_TOLD) || !must_look(l, w, life))
        return 0;
    w->f.flags |= WAITER_TOLD;
    if ((rc = hf__local_queue_put(tx, l, w)) < 0)
        return rc;
    return hf__local_tell(tx, w->f.process, w->f.member, INBOX_LOOK, w->f.token, 0, 0);
}

int hf__local_line_step(struct tx *tx, const struct key *k, struct local_line *l)
{
    struct life_fix life;
    struct local_waiter w;
    bool clean = false;
    int rc;

    while (l->f.waiters > 0) {
        if ((rc = hf__local_queue_first(tx, l, &w)) < 0)
            return rc;
        if (rc == DB_NONE)
            return broken_line(tx, HF_EDAMAGED);
        if ((rc = hf__local_waiter_alive(tx, &w, &life)) < 0)
            return rc;
        if (rc == 0) {
            if ((rc = queue_del(tx, l, w.seq)) < 0)
                return rc;
            continue;
        }
        if (w.f.weight > l->f.capacity - l->sum && !clean) {
            if ((rc = hf__local_line_clean(tx, l)) < 0)
                return rc;
            clean = true;
        }
        if (w.f.weight > l->f.capacity - l->sum)
            return tell_head(tx, l, &w, &life);
        if ((rc = admit(tx, k, l, &w, &life)) < 0)
            return rc;
    }
    return 0;
}

int hf__local_head_look(struct tx *tx, const struct local_line *l)
{
    struct local_waiter head;
    int rc;

    if (l->f.waiters == 0 || (rc = hf__local_queue_first(tx, l, &head)) == DB_NONE)
        return 0;
    return rc < 0 ? rc
                  : hf__local_tell(tx, head.f.process, head.f.member, INBOX_LOOK,
                                   head.f.token, 0, 0);
}

int hf__local_line_keep(struct tx *tx, const struct local_line *l, struct local_holder *h,
                        int64_t keep_ms)
{
    h->f.process = h->f.member = 0;
    h->f.expires_at = tx->now + keep_ms * 1000;
    return hf__local_head_look(tx, l);
}

/* ---- what a waiter sees ---------------------------------------------------------- */

/* Drops dead waiters between it and its living predecessor, so that the dead do not make
 * their followers look again and again. */
static int find_predecessor(struct tx *tx, struct local_line *l, uint64_t seq,
                            struct local_waiter *ret)
{
    struct life_fix life;
    int rc;

    if (l->f.waiters == 0)
        return DB_NONE;
    while ((rc = hf__local_queue_before(tx, l, seq, ret)) == 0) {
        if ((rc = hf__local_waiter_alive(tx, ret, &life)) != 0)
            return rc < 0 ? rc : 0;
        if ((rc = queue_del(tx, l, ret->seq)) < 0)
            return rc;
    }
    return rc;
}

/* Whom it must watch now, into its record; 1: that has changed */
static int see(struct tx *tx, struct local_line *l, struct local_waiter *w,
               struct queue_ahead *ret)
{
    struct waiter_fix was = w->f;
    struct local_waiter ahead;
    int rc = find_predecessor(tx, l, w->seq, &ahead);

    if (rc < 0)
        return rc;
    ret->first = rc == DB_NONE;
    ret->position = ret->first ? 1 : 0;
    ret->earliest_at = LOOP_NEVER;
    w->f.watch = ret->first ? 0 : ahead.f.process;
    if (ret->first)
        w->f.flags |= WAITER_TOLD;
    rc = hf__local_seen_add(tx, w->f.watch);
    for (size_t i = 0; ret->first && i < l->f.nholders && rc == 0; i++) {
        if (l->holders[i].f.expires_at < ret->earliest_at)
            ret->earliest_at = l->holders[i].f.expires_at;
        rc = hf__local_seen_add(tx, l->holders[i].f.process);
    }
    return rc < 0 ? rc : w->f.watch != was.watch || w->f.flags != was.flags;
}

int hf__local_queue_ahead(struct tx *tx, struct local_line *l, struct local_waiter *w,
                          struct queue_ahead *ret)
{
    int rc = see(tx, l, w, ret);

    return rc == 1 ? hf__local_queue_put(tx, l, w) : rc;
}

int hf__local_queue_join(struct tx *tx, struct local_line *l, struct local_waiter *w,
                         struct queue_ahead *ret)
{
    int rc = see(tx, l, w, ret);

    if (rc < 0 || (rc = hf__local_queue_put(tx, l, w)) < 0)
        return rc;
    ret->position = (uint32_t)++l->f.waiters;
    return 0;
}
