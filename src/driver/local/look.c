/* look.c: who holds, who waits, which lines there are.
 *
 * One entry that copies everything out, then the events, outside the gate. Nothing is
 * written, and no expiry moves (rule 7). Dead and expired tickets are not shown; a
 * process that died without anybody noticing yet is noticed here: those that hold or wait
 * in what was read are asked outside the gate, the dead are removed, and the look is
 * repeated once.
 */
#include "driver/local/local.h"

#include <stdlib.h>
#include <string.h>

struct shown {
    struct list node;
    struct row row;
    char text[];
};

struct looking {
    struct look *look;
    struct list rows;
    size_t nlines;
    int64_t earliest_at;
};

static void free_rows(struct looking *k)
{
    struct list *n;

    while ((n = list_pop(&k->rows)) != NULL)
        free(container_of(n, struct shown, node));
}

struct texts {
    const char *name, *note, *hints;
    size_t name_len, note_len, hints_len;
};

static struct row *add_row(struct tx *tx, struct looking *k, const struct texts *s)
{
    struct shown *r = calloc(1, sizeof *r + s->name_len + s->note_len + s->hints_len + 2);

    if (!r) {
        hf__fail(tx->err, HF_ENOMEM, 0, tx->sh->path, "no memory");
        return NULL;
    }
    memcpy(r->text, s->name, s->name_len);
    r->row.name = r->text;
    r->row.name_len = s->name_len;
    r->row.note = r->text + s->name_len + 1;
    if (s->note_len > 0)
        memcpy(r->text + s->name_len + 1, s->note, s->note_len);
    r->row.hints = r->row.note + s->note_len + 1;
    if (s->hints_len > 0)
        memcpy(r->text + s->name_len + s->note_len + 2, s->hints, s->hints_len);
    r->row.hints_len = s->hints_len;
    r->row.host = tx->sh->host;
    list_push(&k->rows, &r->node);
    return &r->row;
}

static int64_t age_ms(int64_t now, int64_t since)
{
    return now > since ? (now - since) / 1000 : 0;
}

static void about_line(struct row *r, const struct local_line *l, uint64_t waiters,
                       int64_t now)
{
    r->kind = (enum line_kind)l->f.kind;
    r->capacity = l->f.capacity;
    r->holders = l->f.nholders;
    r->waiters = waiters;
    r->oldest_ms = -1;
    for (size_t i = 0; i < l->f.nholders; i++)
        if (age_ms(now, l->holders[i].f.granted_at) > r->oldest_ms)
            r->oldest_ms = age_ms(now, l->holders[i].f.granted_at);
}

/* Calls for every living waiter; counts them. */
typedef int each_waiter(struct tx *, struct looking *, const struct local_waiter *,
                        const struct life_fix *, uint64_t position);

static int waiters_of(struct tx *tx, struct looking *k, const struct local_line *l,
                      uint64_t *count, each_waiter *call)
{
    unsigned char prefix[KEY_QUEUE];
    struct scan s;
    int rc;

    *count = 0;
    if (l->f.waiters == 0)
        return 0;
    rc = hf__local_scan_open(&s, tx, prefix,
                             hf__local_key_numbers(prefix, TABLE_QUEUE, &l->f.id, 1));
    if (rc < 0)
        return rc;
    for (rc = hf__local_scan_first(&s); rc == 0; rc = hf__local_scan_next(&s)) {
        struct life_fix life;
        struct local_waiter w;

        if ((rc = hf__local_waiter_decode(&w, s.value.mv_data, s.value.mv_size)) < 0) {
            hf__fail(tx->err, rc, 0, tx->sh->path, "a damaged waiter");
            break;
        }
        if ((rc = hf__local_waiter_alive(tx, &w, &life)) < 0)
            break;
        if (rc == 1)
            ++*count;
        if (rc == 1 && (rc = call ? call(tx, k, &w, &life, *count) : 0) < 0)
            break;
        if (k->look->front && memcmp(w.f.token, k->look->token, HF_TOKEN) == 0)
            break;
    }
    hf__local_scan_close(&s);
    return rc < 0 ? rc : 0;
}

/* ---- one line -------------------------------------------------------------------- */

static uint16_t note_len(const struct looking *k, uint16_t len)
{
    return k->look->no_notes ? 0 : len;
}

static int show_holder(struct tx *tx, struct looking *k, const struct local_line *l,
                       const struct local_holder *h)
{
    const struct texts s = {
        k->look->name, h->note, NULL, k->look->name_len, note_len(k, h->f.note_len), 0
    };
    struct row *r = add_row(tx, k, &s);

    if (!r)
        return HF_ENOMEM;
    about_line(r, l, 0, tx->now);
    r->has_ticket = true;
    memcpy(r->token, h->f.token, sizeof r->token);
    r->fence = h->f.fence;
    r->weight = h->f.weight;
    r->owner = h->f.owner;
    r->pid = h->f.pid;
    r->age_ms = age_ms(tx->now, h->f.granted_at);
    r->expires_ms = (h->f.expires_at - tx->now) / 1000;
    r->joined = h->f.joined_at;
    r->broken = h->f.flags & HOLDER_BROKEN;
    r->kept = h->f.process == 0;
    if (h->f.expires_at < k->earliest_at)
        k->earliest_at = h->f.expires_at;
    return hf__local_seen_add(tx, h->f.process);
}

static int show_waiter(struct tx *tx, struct looking *k, const struct local_waiter *w,
                       const struct life_fix *life, uint64_t position)
{
    const struct texts s = {
        k->look->name, w->note, w->hints, k->look->name_len, note_len(k, w->f.note_len),
        w->f.hints_len
    };
    struct row *r = add_row(tx, k, &s);

    if (!r)
        return HF_ENOMEM;
    r->has_ticket = true;
    memcpy(r->token, w->f.token, sizeof r->token);
    r->position = (uint32_t)position;
    r->weight = w->f.weight;
    r->owner = w->f.owner;
    r->pid = w->f.pid;
    r->age_ms = age_ms(tx->now, w->f.joined_at);
    r->expires_ms = (life->expires_at - tx->now) / 1000;
    r->joined = w->f.joined_at;
    return hf__local_seen_add(tx, w->f.process);
}

/* They are asked afterwards whether they live. */
static int see_holders(struct tx *tx, const struct local_line *l)
{
    int rc = 0;

    for (size_t i = 0; i < l->f.nholders && tx->ls->nseen < SEEN_IN_TRY && rc == 0; i++)
        rc = hf__local_seen_add(tx, l->holders[i].f.process);
    return rc < 0 ? rc : TX_READ;
}

static int look_at_line(struct tx *tx, struct looking *k)
{
    struct local_line *l;
    struct key key;
    uint64_t waiters;
    int rc;

    hf__local_key_name(&key, TABLE_LINE, tx->ls->ns, k->look->name, k->look->name_len);
    if ((rc = hf__local_line_load(tx, &key, &l)) < 0 ||
        (rc = hf__local_line_clean(tx, l)) < 0)
        return rc;
    for (size_t i = 0; i < l->f.nholders && rc == 0; i++)
        rc = show_holder(tx, k, l, &l->holders[i]);
    if (rc < 0 || (rc = waiters_of(tx, k, l, &waiters, show_waiter)) < 0)
        return rc;
    list_for(n, &k->rows)
        about_line(&container_of(n, struct shown, node)->row, l, waiters, tx->now);
    return TX_READ;
}

/* The record of the line is enough: it has the holders, and how many wait. */
static int look_briefly(struct tx *tx, struct looking *k)
{
    const struct texts s = { .name = k->look->name, .name_len = k->look->name_len };
    struct local_line *l;
    struct key key;
    struct row *r;
    int rc;

    hf__local_key_name(&key, TABLE_LINE, tx->ls->ns, k->look->name, k->look->name_len);
    if ((rc = hf__local_line_load(tx, &key, &l)) < 0 ||
        (rc = hf__local_line_clean(tx, l)) < 0)
        return rc;
    if (l->f.nholders > 0) {
        if ((r = add_row(tx, k, &s)) == NULL)
            return HF_ENOMEM;
        about_line(r, l, l->f.waiters, tx->now);
        r->weight = l->sum;
    }
    return see_holders(tx, l);
}

/* ---- a list of lines ------------------------------------------------------------- */

/* Keys are cut at 470 bytes; the rest of the prefix is compared with the full name. */
static size_t list_prefix(struct key *k, const struct local *ls, const struct look *look)
{
    hf__local_key_name(k, TABLE_LINE, ls->ns, look->name, look->name_len);
    return 1 + (k->full_len < 470 ? k->full_len : 470);
}

static int show_line(struct tx *tx, struct looking *k, const struct scan *s,
                     const struct key *prefix)
{
    struct local_line *l = &tx->sh->line;
    size_t skip = prefix->full_len - k->look->name_len;
    struct texts t = { 0 };
    uint64_t waiters;
    struct row *r;
    int rc = hf__local_line_decode(l, s->value.mv_data, s->value.mv_size);

    if (rc < 0)
        return hf__fail(tx->err, rc, 0, tx->sh->path, "a damaged line");
    t.name = l->f.name_len ? l->name : (const char *)s->key.mv_data + 1;
    t.name_len = l->f.name_len ? l->f.name_len : s->key.mv_size - 1;
    if (t.name_len < prefix->full_len ||
        memcmp(t.name, prefix->full, prefix->full_len) != 0 ||
        memchr(t.name + skip, '\0', t.name_len - skip))
        return 0; /* another prefix, or another namespace */
    if ((rc = hf__local_line_clean(tx, l)) < 0 ||
        (rc = waiters_of(tx, k, l, &waiters, NULL)) < 0)
        return rc;
    if (l->f.nholders == 0 && waiters == 0)
        return 0;
    t.name += skip;
    t.name_len -= skip;
    if ((r = add_row(tx, k, &t)) == NULL)
        return HF_ENOMEM;
    about_line(r, l, waiters, tx->now);
    k->nlines++;
    rc = see_holders(tx, l);
    return rc < 0 ? rc : 0;
}

static int look_at_list(struct tx *tx, struct looking *k)
{
    struct key prefix;
    struct scan s;
    int rc = hf__local_scan_open(&s, tx, "", 0);

    if (rc < 0)
        return rc;
    s.plen = list_prefix(&prefix, tx->ls, k->look);
    memcpy(s.prefix, prefix.bytes, 1);
    memcpy(s.prefix + 1, prefix.full, s.plen - 1);
    k->nlines = 0;
    for (rc = hf__local_scan_first(&s); rc == 0; rc = hf__local_scan_next(&s)) {
        if (k->look->limit > 0 && k->nlines >= k->look->limit)
            break;
        if ((rc = show_line(tx, k, &s, &prefix)) < 0)
            break;
    }
    hf__local_scan_close(&s);
    return rc < 0 ? rc : TX_READ;
}

/* ---- the verb -------------------------------------------------------------------- */

static int look(struct tx *tx, void *arg)
{
    struct looking *k = arg;

    free_rows(k);
    k->earliest_at = LOOP_NEVER;
    return k->look->list    ? look_at_list(tx, k)
           : k->look->brief ? look_briefly(tx, k)
                            : look_at_line(tx, k);
}

static void fail(struct local *ls, void *of, int rc, const hf_error *err)
{
    (void)ls;
    ev_done(of, NULL, rc, err);
}

static void show(struct local *ls, struct looking *k)
{
    struct local_follow *f = k->look->drv_ptr;

    if (f)
        hf__local_post_set(ls, &f->post);
    k->look->again_at = k->earliest_at;
    list_for(n, &k->rows)
        ev_row(k->look, &container_of(n, struct shown, node)->row);
    free_rows(k);
    ev_done(k->look, NULL, 0, NULL);
}

static int run(struct local *ls, void *of)
{
    struct looking k = { .look = of };
    hf_error err;
    int rc = 0;

    list_init(&k.rows);
    if (k.look->follow && !k.look->drv_ptr)
        rc = hf__local_follow_start(ls, k.look, NULL, &err);
    if (rc == 0 && (rc = hf__local_tx_run(ls, look, &k, false, &err)) == 0 &&
        hf__local_remove_dead_seen(ls))
        rc = hf__local_tx_run(ls, look, &k, false, &err);
    if (rc == 0) {
        show(ls, &k);
        return 0;
    }
    free_rows(&k);
    if (rc != HF_EBUSYSTORE)
        fail(ls, of, rc, &err);
    return rc == HF_EBUSYSTORE ? rc : 0;
}

static const struct verb look_verb = { .run = run,
                                       .fail = fail,
                                       .limit_ms = hf__local_gate_limit };
static const struct verb again_verb = { .run = run, .fail = fail }; /* of a follow */

void hf__local_look(struct store *store, struct look *lk)
{
    run_verb(local_of(store), lk->drv_ptr ? &again_verb : &look_verb, lk);
}
