/* query.c: questions about lines, and orders that are no ticket's: look, list, evict, keep,
 * cells, and following them. Each is one statement (a long list: one for each PAGE of it).
 * Unanswered they end with HF_EUNREACHABLE; a change may have happened then, or not.
 *
 * Following: while somebody follows a name, every change of its line or cell is told to the
 * channels of those clients. A question with `follow` says so for FOLLOW_MS, and is asked
 * again at least every AGAIN_MS. What nobody does is not told, that a hold or a cell
 * expires: so it is also asked again when the next expiry has passed. */
#include "driver/sql/sql.h"
#include "kit/listing.h"

#include <stdlib.h>
#include <string.h>

enum { FOLLOW_MS = 30000, AGAIN_MS = 10000, UNHEARD_MS = 500, PAGE = 500 };
enum { FLAG_REVOKED = 1, FLAG_KEPT = 2 };

struct query_call {
    struct sql_call q;
    struct query query;
    size_t name_len;
    char name[]; /* terminated */
};

static struct query_call *of(struct sql_call *q)
{
    return container_of(q, struct query_call, q);
}

static void ask(struct sql *s, const struct sql_type *type, struct look *look,
                struct cell *cell)
{
    size_t len = look ? look->name_len : cell->name_len;
    struct sql_call *q = hf__sql_call_of(type, sizeof(struct query_call) + len + 1);

    if (!q) {
        hf__query_refuse(look, cell, HF_ENOMEM, NULL, "no memory for a request");
        return;
    }
    of(q)->name_len = len;
    memcpy(of(q)->name, look ? look->name : cell->name, len);
    hf__query_begin(&of(q)->query, look, cell);
    hf__sql_send(s, q);
}

/* The first arguments; false: nobody asks any more. */
static bool name_args(const struct sql *s, struct sql_args *a, const struct query_call *k)
{
    a->nothing = !query_wanted(&k->query);
    sql_bytes(a, s->ns, s->ns_len);
    sql_bytes(a, k->name, k->name_len);
    return !a->nothing;
}

/* ---- following ------------------------------------------------------------------- */

static void follow(struct sql *s, struct list *all, struct list *node)
{
    if (list_empty(node))
        list_push(all, node);
    if (!s->listens)
        hf__sql_listen(s);
}

/* expires_ms < 0: nothing expires. */
static int64_t again_at(const struct sql *s, int64_t expires_ms)
{
    bool told = s->heard && s->mode == SQL_LINE && s->wire->follows;
    int64_t ms = told ? AGAIN_MS : UNHEARD_MS;

    if (expires_ms >= 0 && expires_ms < ms)
        ms = expires_ms + 1;
    return sql_now(s) + ms * 1000;
}

/* ---- one line -------------------------------------------------------------------- */

enum look_column {
    LOOK_NOW,
    LOOK_KIND,
    LOOK_CAPACITY,
    LOOK_TOKEN,
    LOOK_STATE,
    LOOK_FLAGS,
    LOOK_WEIGHT,
    LOOK_FENCE,
    LOOK_EXPIRY,
    LOOK_JOINED,
    LOOK_GRANTED,
    LOOK_PROCESS,
    LOOK_OWNER,
    LOOK_PID,
    LOOK_HOST,
    LOOK_NOTE,
    LOOK_HINTS
};

static void build_look(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    const struct look *look = of(q)->query.look;

    if (!name_args(s, a, of(q)) || s->mode != SQL_LINE)
        return;
    sql_bytes(a, s->client, SQL_CLIENT);
    sql_int(a, look->follow ? FOLLOW_MS : 0);
    sql_bytes(a, look->token, look->front ? HF_TOKEN : 0);
    sql_int(a, !look->no_notes);
}

/* From then to now, in ms; not less than 0. */
static int64_t since(int64_t now_us, int64_t then_us)
{
    return now_us > then_us ? (now_us - then_us) / 1000 : 0;
}

/* What stands there was written by others. */
static const char *text_at(const struct sql_reply *reply, size_t row, size_t column,
                           char *buf, size_t size)
{
    size_t n;
    const void *at = sql_bytes_at(reply, row, column, &n);

    if (n >= size)
        n = size - 1;
    memcpy(buf, at, n);
    buf[n] = '\0';
    return buf;
}

static bool show(const struct sql_reply *reply, size_t i, struct row *row,
                 struct look *look)
{
    int64_t (*number)(const struct sql_reply *, size_t, size_t) = reply->wire->number;
    bool held = number(reply, i, LOOK_STATE) == 1;
    int64_t now = number(reply, i, LOOK_NOW), flags = number(reply, i, LOOK_FLAGS);
    char host[256], note[HF_NOTE_MAX + 1];
    const void *token;
    size_t n;

    row->has_ticket = !look->brief;
    token = sql_bytes_at(reply, i, LOOK_TOKEN, &n);
    if (n != HF_TOKEN)
        return false;
    memcpy(row->token, token, n);
    row->fence = held ? (uint64_t)number(reply, i, LOOK_FENCE) : 0;
    row->position = held ? 0 : (uint32_t)(i - row->holders + 1);
    row->weight = number(reply, i, LOOK_WEIGHT);
    row->owner.process = (uint64_t)number(reply, i, LOOK_PROCESS);
    row->owner.number = (uint64_t)number(reply, i, LOOK_OWNER);
    row->host = text_at(reply, i, LOOK_HOST, host, sizeof host);
    row->pid = number(reply, i, LOOK_PID);
    row->joined = number(reply, i, LOOK_JOINED);
    row->age_ms = since(now, held ? number(reply, i, LOOK_GRANTED) : row->joined);
    row->expires_ms =
        number(reply, i, LOOK_EXPIRY) == 0 ? -1 : since(number(reply, i, LOOK_EXPIRY), now);
    row->broken = held && (flags & FLAG_REVOKED);
    row->kept = held && (flags & FLAG_KEPT);
    row->note = text_at(reply, i, LOOK_NOTE, note, sizeof note);
    row->hints = sql_bytes_at(reply, i, LOOK_HINTS, &row->hints_len);
    if (row->hints_len > 0 && row->hints[row->hints_len - 1] != '\0')
        return false;
    ev_row(look, row);
    return true;
}

/* Rows are in order: those that hold, then the queue. */
static int show_all(const struct sql *s, const struct sql_reply *reply, struct look *look,
                    const char *name, size_t name_len, int64_t *ret_expires_ms,
                    hf_error *err)
{
    struct row row = { .name = name, .name_len = name_len, .oldest_ms = -1 };
    size_t n;

    if (reply->rows == 1 && (sql_bytes_at(reply, 0, LOOK_TOKEN, &n), n == 0))
        return 0; /* nobody is there */
    for (size_t i = 0; i < reply->rows; i++) {
        int64_t now = sql_number_at(reply, i, LOOK_NOW), ms;

        if (sql_number_at(reply, i, LOOK_STATE) != 1) {
            row.waiters++;
            continue;
        }
        row.holders++;
        ms = since(now, sql_number_at(reply, i, LOOK_GRANTED));
        if (ms > row.oldest_ms)
            row.oldest_ms = ms;
        ms = since(sql_number_at(reply, i, LOOK_EXPIRY), now);
        if (!sql_has_sessions(s) && (*ret_expires_ms < 0 || ms < *ret_expires_ms))
            *ret_expires_ms = ms;
    }
    for (size_t i = 0; i < reply->rows; i++) {
        row.kind =
            sql_number_at(reply, i, LOOK_KIND) == LINE_PERMITS ? LINE_PERMITS : LINE_LOCK;
        row.capacity = sql_number_at(reply, i, LOOK_CAPACITY);
        if (!show(reply, i, &row, look))
            return hf__fail(err, HF_EDAMAGED, 0, s->shown, "a damaged ticket");
    }
    return 0;
}

static void answer_look(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct query_call *k = of(q);
    struct look *look = k->query.look;
    int64_t expires_ms = -1;
    hf_error err;
    int rc;

    if (!look)
        return; /* stopped */
    rc = reply && reply->code == 0
             ? show_all(s, reply, look, k->name, k->name_len, &expires_ms, &err)
             : hf__sql_refusal(s, reply, &err);
    look->again_at = again_at(s, expires_ms);
    hf__query_end(&k->query, rc, &err);
}

/* ---- many lines, and how much of one is taken ------------------------------------ */

enum list_column {
    LIST_NAME,
    LIST_KIND,
    LIST_CAPACITY,
    LIST_HOLDERS,
    LIST_WAITERS,
    LIST_OLDEST,
    LIST_WEIGHT
};

static void read_line(const struct sql_reply *reply, size_t i, struct row *row)
{
    memset(row, 0, sizeof *row);
    row->name = sql_bytes_at(reply, i, LIST_NAME, &row->name_len);
    row->kind =
        sql_number_at(reply, i, LIST_KIND) == LINE_PERMITS ? LINE_PERMITS : LINE_LOCK;
    row->capacity = sql_number_at(reply, i, LIST_CAPACITY);
    row->holders = (uint64_t)sql_number_at(reply, i, LIST_HOLDERS);
    row->waiters = (uint64_t)sql_number_at(reply, i, LIST_WAITERS);
    row->oldest_ms = sql_number_at(reply, i, LIST_OLDEST);
    row->weight = sql_number_at(reply, i, LIST_WEIGHT);
}

/* The only name from this one up to, and without, the next possible one. */
static void build_brief(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    const struct query_call *k = of(q);

    sql_bytes(a, s->ns, s->ns_len);
    sql_bytes(a, "", 0);
    sql_bytes(a, k->name, k->name_len);
    sql_bytes(a, k->name, k->name_len + 1); /* with its NUL */
    sql_int(a, 1);
}

static void answer_brief(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct query *query = &of(q)->query;
    struct row row;
    hf_error err;
    int rc = 0;

    if (!query->look)
        return;
    if (!reply || reply->code < 0) {
        rc = hf__sql_refusal(s, reply, &err);
    } else if (reply->rows > 0) {
        read_line(reply, 0, &row);
        if (row.holders > 0)
            ev_row(query->look, &row);
    }
    hf__query_end(query, rc, &err);
}

struct sql_listing {
    struct listing l;
    size_t prefix_len, below_len, after_len;
    size_t page; /* how many are asked for at a time */
    /* names that begin with prefix are those below this one: the prefix with its last byte
     * raised; empty: none is above */
    unsigned char below[HF_NAME_MAX];
    char after[HF_NAME_MAX]; /* the last name so far */
    char prefix[];
};

static void build_list(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    const struct sql_listing *l = q->about;

    sql_bytes(a, s->ns, s->ns_len);
    sql_bytes(a, l->after, l->after_len);
    sql_bytes(a, l->prefix, l->prefix_len);
    sql_bytes(a, l->below, l->below_len);
    sql_int(a, (int64_t)l->page);
}

static void ask_page(struct sql *, struct sql_listing *);

static void answer_list(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct sql_listing *l = q->about;
    struct row row = { 0 };
    hf_error err;

    hf__listing_answered(&l->l);
    if (!reply || reply->code < 0)
        hf__listing_fail(&l->l, hf__sql_refusal(s, reply, &err), &err);
    for (size_t i = 0; reply && i < reply->rows && listing_goes_on(&l->l); i++) {
        read_line(reply, i, &row);
        if (row.name_len <= HF_NAME_MAX) {
            hf__listing_row(&l->l, &row);
            memcpy(l->after, row.name, row.name_len);
            l->after_len = row.name_len;
        }
    }
    if (listing_goes_on(&l->l) && reply && reply->rows == l->page &&
        (l->l.query.look->limit == 0 || l->l.shown < l->l.query.look->limit))
        ask_page(s, l);
    if (l->l.open > 0)
        return;
    hf__listing_end(&l->l);
    free(l);
}

static void ask_page(struct sql *s, struct sql_listing *l)
{
    static const struct sql_type type = { SQL_LIST, build_list, answer_list };
    size_t limit = l->l.query.look->limit;

    l->page = limit > 0 && limit - l->l.shown < PAGE ? limit - l->l.shown : PAGE;
    if (hf__sql_ask(s, &type, l))
        l->l.open++;
    else
        hf__listing_no_memory(&l->l);
}

static void list(struct sql *s, struct look *look)
{
    struct sql_listing *l = calloc(1, sizeof *l + look->name_len + 1);

    if (!l) {
        hf__query_refuse(look, NULL, HF_ENOMEM, NULL, "no memory for a list");
        return;
    }
    l->prefix_len = l->below_len = look->name_len;
    memcpy(l->prefix, look->name, look->name_len);
    memcpy(l->below, look->name, look->name_len);
    while (l->below_len > 0 && l->below[l->below_len - 1] == 0xff)
        l->below_len--;
    if (l->below_len > 0)
        l->below[l->below_len - 1]++;
    hf__listing_begin(&l->l, look);
    ask_page(s, l);
    if (l->l.open == 0) { /* no memory */
        hf__listing_end(&l->l);
        free(l);
    }
}

void hf__sql_look(struct store *store, struct look *look)
{
    static const struct sql_type whole = { SQL_LOOK, build_look, answer_look };
    static const struct sql_type brief = { SQL_LIST, build_brief, answer_brief };
    struct sql *s = sql_of(store);

    if (look->follow)
        follow(s, &s->looks, &look->drv_node);
    if (look->list && s->mode != SQL_LINE)
        hf__query_refuse(look, NULL, HF_ENOTSUP, s->shown,
                         "this store cannot list its locks");
    else if (look->list)
        list(s, look);
    else
        ask(s, look->brief && s->mode == SQL_LINE ? &brief : &whole, look, NULL);
}

/* ---- evicting, and prolonging what is kept --------------------------------------- */

static void build_evict(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    const struct look *look = of(q)->query.look;

    if (!name_args(s, a, of(q)))
        return;
    sql_bytes(a, look->token, HF_TOKEN);
    sql_int(a, look->keep_ms > 0 ? look->keep_ms : look->now);
    if (look->keep_ms > 0)
        sql_int(a, look->orphan);
}

static void answer_evict(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct query *query = &of(q)->query;
    const int64_t *n = hf__sql_numbers(reply, 1);
    hf_error err;
    int rc = 0;

    if (!query->look)
        return;
    if (!n)
        rc = hf__sql_refusal(s, reply, &err);
    else if (n[0] == 0)
        rc = hf__fail(&err, HF_ENOENT, 0, s->shown, "no such %sticket in line '%s'",
                      query->look->keep_ms > 0 ? "kept " : "", query->look->name);
    hf__query_end(query, rc, &err);
}

void hf__sql_evict(struct store *store, struct look *look)
{
    static const struct sql_type evict = { SQL_EVICT, build_evict, answer_evict };
    static const struct sql_type keep = { SQL_KEEP, build_evict, answer_evict };

    if (sql_of(store)->mode != SQL_LINE && !look->now)
        hf__query_refuse(look, NULL, HF_ENOTSUP, sql_of(store)->shown,
                         "this store cannot end a renewal; only break --now");
    else
        ask(sql_of(store), look->keep_ms > 0 ? &keep : &evict, look, NULL);
}

/* ---- cells ----------------------------------------------------------------------- */

enum cell_column { CELL_RC, CELL_VERSION, CELL_DATA, CELL_EXPIRES };

static void build_cell(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    const struct cell *cell = of(q)->query.cell;

    if (!name_args(s, a, of(q)))
        return;
    sql_bytes(a, s->client, SQL_CLIENT);
    sql_int(a, cell->follow ? FOLLOW_MS : 0);
    sql_int(a, cell->verb); /* the function counts alike */
    sql_int(a, cell->if_any);
    sql_int(a, (int64_t)cell->if_version);
    sql_int(a, cell->add);
    sql_int(a, cell->ttl_ms);
    sql_bytes(a, cell->value, cell->verb == CELL_PUT ? cell->value_len : 0);
}

static int read_cell(const struct sql *s, struct cell *cell, const struct sql_reply *reply,
                     hf_error *err)
{
    const void *data;
    char text[32];
    size_t n;

    if (!reply || reply->code < 0)
        return hf__sql_refusal(s, reply, err);
    data = reply->rows == 1 ? sql_bytes_at(reply, 0, CELL_DATA, &n) : NULL;
    if (!data || n > HF_CELL_MAX)
        return hf__fail(err, HF_EPROTO, 0, s->shown, "an answer of an unexpected form");
    memcpy(cell->value, data, n);
    cell->value_len = n;
    cell->version = (uint64_t)sql_number_at(reply, 0, CELL_VERSION);
    if (cell->verb == CELL_ADD)
        cell->number = strtoll(text_at(reply, 0, CELL_DATA, text, sizeof text), NULL, 10);
    switch (sql_number_at(reply, 0, CELL_RC)) {
    case 0:
        return 0;
    case -1:
        return hf__fail(err, HF_EBUSY, 0, s->shown, "the cell has another version");
    default:
        return hf__fail(err, HF_EINVAL, 0, s->shown,
                        "the cell holds no number, or the sum is too great");
    }
}

static void answer_cell(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct query *query = &of(q)->query;
    hf_error err;
    int rc;

    if (!query->cell)
        return;
    rc = read_cell(s, query->cell, reply, &err);
    query->cell->again_at =
        again_at(s, rc == 0 ? sql_number_at(reply, 0, CELL_EXPIRES) : -1);
    hf__query_end(query, rc, &err);
}

void hf__sql_cell(struct store *store, struct cell *cell)
{
    static const struct sql_type type = { SQL_CELL, build_cell, answer_cell };
    struct sql *s = sql_of(store);

    if (cell->follow)
        follow(s, &s->cells, &cell->drv_node);
    ask(s, &type, NULL, cell);
}

/* ---- stopping -------------------------------------------------------------------- */

void hf__sql_stop(struct store *store, struct look *look, struct cell *cell)
{
    (void)store;
    list_remove(look ? &look->drv_node : &cell->drv_node);
    hf__query_stop(look, cell);
}
