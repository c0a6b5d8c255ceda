/* view.c: lines in which this client has seats, and the tickets in them that it knows
 * of: the view.
 *
 * Entries are kept in the order of their numbers, as everybody else sorts them. The
 * longest prefix that fits in the capacity of the head ticket holds; a ticket of another
 * kind or capacity than the head's counts as the whole capacity (G1). What may be
 * concluded from a view is said in line.c. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

/* ---- lines ----------------------------------------------------------------------- */

struct line *hf__zk_line_of_dir(struct zk *z, const char *dir, size_t len)
{
    uint64_t hash = hf__hash_keyed(z->hash_key, dir, len);

    for (struct map_node *n = map_chain(&z->lines, hash); n; n = n->next) {
        struct line *line = container_of(n, struct line, node);

        if (n->hash == hash && line->dir_len == len && memcmp(line->dir, dir, len) == 0)
            return line;
    }
    return NULL;
}

struct line *hf__zk_line_get(struct zk *z, const char *name, size_t len)
{
    char dir[DIR_MAX];
    size_t n = hf__zk_dir(z, dir, name, len);
    struct line *line = hf__zk_line_of_dir(z, dir, n);

    if (line)
        return line;
    line = calloc(1, sizeof *line + n + len + 1);
    if (!line)
        return NULL;
    line->zk = z;
    line->dir_len = n;
    line->name_len = len;
    line->name = line->dir + n;
    memcpy(line->dir, dir, n);
    memcpy(line->name, name, len);
    list_init(&line->seats);
    hf__map_insert(&z->lines, &line->node, hf__hash_keyed(z->hash_key, dir, n));
    list_push(&z->all_lines, &line->all);
    return line;
}

void hf__zk_line_free(struct entry **entries, size_t n)
{
    for (size_t i = 0; entries && i < n; i++)
        free(entries[i]);
    free(entries);
}

void hf__zk_line_drop(struct line *line)
{
    if (!list_empty(&line->seats) || line->pins > 0)
        return;
    hf__map_remove(&line->zk->lines, &line->node);
    list_remove(&line->all);
    hf__zk_line_free(line->entries, line->n);
    free(line);
}

void hf__zk_line_close(struct line *line)
{
    struct list *n;

    while ((n = list_first(&line->seats)) != NULL)
        hf__zk_seat_close(container_of(n, struct seat, in_line));
    hf__zk_line_drop(line);
}

size_t hf__zk_line_path(const struct line *line, char path[NODE_PATH_MAX], const char *node,
                        size_t len)
{
    if (len > NODE_MAX - 1)
        len = NODE_MAX - 1;
    memcpy(path, line->dir, line->dir_len);
    path[line->dir_len] = '/';
    memcpy(path + line->dir_len + 1, node, len);
    return line->dir_len + 1 + len;
}

bool hf__zk_line_waits(const struct line *line)
{
    list_for(n, &line->seats)
        if (seat_in(n)->state == SEAT_WAITING && seat_waits(seat_in(n)))
            return true;
    return false;
}

/* ---- entries --------------------------------------------------------------------- */

/* Numbers below 0 come first: whoever sorts by the text of the number thinks so, too. */
static int before(const struct entry *a, const struct entry *b)
{
    int64_t x = a->form.seq, y = b->form.seq;

    if (x != y)
        return x < y ? -1 : 1;
    if (a->form.weight != b->form.weight) /* a writer that also reads, of another program */
        return a->form.weight > b->form.weight ? -1 : 1;
    return a->len != b->len ? (a->len < b->len ? -1 : 1) : memcmp(a->name, b->name, a->len);
}

static int by_place(const void *a, const void *b)
{
    return before(*(struct entry *const *)a, *(struct entry *const *)b);
}

static void sort(struct entry **entries, size_t n)
{
    if (n > 1)
        qsort(entries, n, sizeof(struct entry *), by_place);
}

struct entry *hf__zk_entry_new(const struct form *form, const char *name, size_t len)
{
    struct entry *e = calloc(1, sizeof *e + len + 1);

    if (e) {
        e->form = *form;
        e->len = len;
        memcpy(e->name, name, len);
    }
    return e;
}

struct entry *hf__zk_line_find(const struct line *line, const char *name, size_t len)
{
    for (size_t i = 0; i < line->n; i++)
        if (line->entries[i]->len == len && memcmp(line->entries[i]->name, name, len) == 0)
            return line->entries[i];
    return NULL;
}

void hf__zk_line_cut(struct line *line, const struct entry *e)
{
    for (size_t i = 0; i < line->n; i++)
        if (line->entries[i] == e) {
            memmove(line->entries + i, line->entries + i + 1,
                    (--line->n - i) * sizeof *line->entries);
            free((void *)(uintptr_t)e);
            return;
        }
}

static bool insert(struct line *line, struct entry *e)
{
    if (line->n == line->room) {
        size_t room = line->room ? 2 * line->room : 4;
        struct entry **entries = realloc(line->entries, room * sizeof *entries);

        if (!entries)
            return false;
        line->entries = entries;
        line->room = room;
    }
    line->entries[line->n++] = e;
    if (line->n > 1 && before(line->entries[line->n - 2], e) > 0)
        sort(line->entries, line->n);
    return true;
}

void hf__zk_line_remove_seat(struct line *line, const struct seat *s, bool known)
{
    for (size_t i = 0; i < line->n; i++) {
        if (line->entries[i]->seat != s)
            continue;
        line->entries[i]->seat = NULL;
        if (known)
            hf__zk_line_cut(line, line->entries[i]);
        return;
    }
}

bool hf__zk_line_add(struct line *line, struct seat *s)
{
    struct form form;
    struct entry *e = hf__zk_line_find(line, s->name, strlen(s->name));

    if (!e) {
        if (!hf__zk_form(&form, s->name, strlen(s->name)))
            return false;
        e = hf__zk_entry_new(&form, s->name, strlen(s->name));
        if (!e || !insert(line, e)) {
            free(e);
            return false;
        }
    }
    e->seat = s;
    return true;
}

/* ---- lists ----------------------------------------------------------------------- */

/* The children that are tickets, sorted; false: no memory, or not of the form it should
 * have. */
bool hf__zk_line_read(struct jute_in *in, struct entry ***ret, size_t *ret_n)
{
    size_t n = hf__jute_count(in, 4), k = 0;
    struct entry **entries = calloc(n + 1, sizeof *entries);
    bool good = entries != NULL;

    for (size_t i = 0; good && i < n; i++) {
        struct jute_text name = hf__jute_text(in);
        struct form form;

        if (in->bad || !hf__zk_form(&form, name.at, name.len))
            continue;
        entries[k] = hf__zk_entry_new(&form, name.at, name.len);
        good = entries[k++] != NULL;
    }
    if (!good || in->bad) {
        hf__zk_line_free(entries, k);
        return false;
    }
    sort(entries, k);
    *ret = entries;
    *ret_n = k;
    return true;
}

/* What was known of an entry stays known: of watches the server tells, whatever is
 * listed. */
static void take_over(struct line *line, struct entry **entries, size_t n)
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        struct entry *e = entries[i];

        while (at < line->n && before(line->entries[at], e) < 0)
            at++;
        if (at < line->n && line->entries[at]->len == e->len &&
            memcmp(line->entries[at]->name, e->name, e->len) == 0) {
            e->watched = line->entries[at]->watched;
            e->asking = line->entries[at]->asking;
            e->seat = line->entries[at]->seat;
        }
    }
}

void hf__zk_line_replace(struct line *line, struct entry **entries, size_t n)
{
    take_over(line, entries, n);
    hf__zk_line_free(line->entries, line->n);
    line->entries = entries;
    line->n = n;
    line->room = n + 1;
}

/* ---- who holds ------------------------------------------------------------------- */

bool hf__zk_same_kind(const struct form *a, const struct form *b)
{
    return a->kind == b->kind && a->capacity == b->capacity;
}

/* How many from the head hold. */
size_t hf__zk_line_holders(struct entry *const *entries, size_t n)
{
    int64_t sum = 0;
    size_t i = 0;

    for (; i < n; i++) {
        const struct form *f = &entries[i]->form, *head = &entries[0]->form;
        int64_t weight = hf__zk_same_kind(f, head) ? f->weight : head->capacity;

        if (sum + weight > head->capacity || (i > 0 && !hf__zk_same_kind(f, head)))
            break;
        sum += weight;
    }
    return i;
}

int hf__zk_line_would_hold(struct jute_in *children, const struct ticket *t,
                           struct form *head)
{
    struct entry **entries, *mine;
    struct form form = { .kind = t->kind, .weight = t->weight, .capacity = t->capacity };
    size_t n;
    int rc = 0;

    if (!hf__zk_line_read(children, &entries, &n))
        return HF_ENOMEM;
    mine = hf__zk_entry_new(&form, "", 0);
    if (mine) {
        entries[n] = mine;
        if (n > 0)
            *head = entries[0]->form;
        if (n > 0 && !hf__zk_same_kind(&form, head))
            rc = HF_EMISMATCH;
        else if (hf__zk_line_holders(entries, n + 1) <= n)
            rc = HF_EBUSY;
    }
    hf__zk_line_free(entries, n);
    rc = mine ? rc : HF_ENOMEM;
    free(mine);
    return rc;
}
