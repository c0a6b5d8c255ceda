/* ordered_view.c: the view of a line: its tickets in order, who of them holds, and whose
 * end concerns whom. Why that is safe is said in ordered.h. */
#include "kit/ordered.h"

#include <stdlib.h>
#include <string.h>

/* ---- who holds ------------------------------------------------------------------- */

bool hf__ordered_same_kind(const struct ordered_place *a, const struct ordered_place *b)
{
    return a->kind == b->kind && a->capacity == b->capacity;
}

/* What one takes from a line of `head`'s kind. */
static int64_t weight_in(const struct ordered_place *p, const struct ordered_place *head)
{
    return hf__ordered_same_kind(p, head) ? p->weight : head->capacity;
}

size_t hf__ordered_holders(struct ordered_entry *const *entries, size_t n)
{
    int64_t sum = 0;
    size_t i = 0;

    for (; i < n; i++) {
        const struct ordered_place *p = &entries[i]->form, *head = &entries[0]->form;

        if (sum + weight_in(p, head) > head->capacity || !hf__ordered_same_kind(p, head))
            break;
        sum += weight_in(p, head);
    }
    return i;
}

struct row hf__ordered_row(const char *name, size_t len,
                           struct ordered_entry *const *entries, size_t n)
{
    struct row row = { .name = name,
                       .name_len = len,
                       .kind = entries[0]->form.kind,
                       .capacity = entries[0]->form.capacity,
                       .holders = hf__ordered_holders(entries, n),
                       .oldest_ms = -1 };

    row.waiters = n - row.holders;
    for (size_t i = 0; i < row.holders; i++)
        row.weight += entries[i]->form.weight;
    return row;
}

/* From the nearest one on, until they fill what i would need; or one that does alone. */
struct ordered_span hf__ordered_whom(struct ordered_entry *const *entries, size_t i)
{
    const struct ordered_place *mine = &entries[i]->form;
    int64_t room = mine->capacity - mine->weight, sum = 0;

    for (size_t k = i; k-- > 0;) {
        int64_t weight = weight_in(&entries[k]->form, mine);

        if (weight > room)
            return (struct ordered_span){ k, k + 1 };
        sum += weight;
        if (sum > room)
            return (struct ordered_span){ k, i };
    }
    return (struct ordered_span){ 0, i };
}

int hf__ordered_would_hold(struct ordered_entry *const *entries, size_t n,
                           const struct ticket *t)
{
    struct ordered_place mine = { .kind = t->kind, .capacity = t->capacity };
    int64_t sum = 0;

    if (n > 0 && !hf__ordered_same_kind(&mine, &entries[0]->form))
        return HF_EMISMATCH;
    if (hf__ordered_holders(entries, n) < n)
        return HF_EBUSY;
    for (size_t i = 0; i < n; i++)
        sum += entries[i]->form.weight;
    return sum + t->weight > t->capacity ? HF_EBUSY : 0;
}

/* ---- entries --------------------------------------------------------------------- */

/* Numbers below 0 come first: whoever sorts by the text of the number thinks so, too. */
static int before(const struct ordered_entry *a, const struct ordered_entry *b)
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
    return before(*(struct ordered_entry *const *)a, *(struct ordered_entry *const *)b);
}

void hf__ordered_sort(struct ordered_entry **entries, size_t n)
{
    if (n > 1)
        qsort(entries, n, sizeof(struct ordered_entry *), by_place);
}

struct ordered_entry *hf__ordered_entry(const struct ordered_place *form, const char *name,
                                        size_t len)
{
    struct ordered_entry *e = calloc(1, sizeof *e + len + 1);

    if (e) {
        e->form = *form;
        e->len = len;
        memcpy(e->name, name, len);
    }
    return e;
}

void hf__ordered_entries_free(struct ordered_entry **entries, size_t n)
{
    for (size_t i = 0; entries && i < n; i++)
        free(entries[i]);
    free(entries);
}

/* ---- the view -------------------------------------------------------------------- */

static bool named(const struct ordered_entry *e, const char *name, size_t len)
{
    return e->len == len && memcmp(e->name, name, len) == 0;
}

/* The first one of that number, or of a greater one. */
static size_t first_at(const struct ordered_line *line, int64_t seq)
{
    size_t low = 0, high = line->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (line->entries[mid]->form.seq < seq)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct ordered_entry *hf__ordered_find(const struct ordered_line *line, int64_t seq,
                                       const char *name, size_t len)
{
    for (size_t i = first_at(line, seq); i < line->n && line->entries[i]->form.seq == seq;
         i++)
        if (named(line->entries[i], name, len))
            return line->entries[i];
    return NULL;
}

struct ordered_entry *hf__ordered_with(const struct ordered_line *line, int64_t seq,
                                       const void *own)
{
    for (size_t i = first_at(line, seq); i < line->n && line->entries[i]->form.seq == seq;
         i++)
        if (line->entries[i]->own == own)
            return line->entries[i];
    return NULL;
}

void hf__ordered_cut(struct ordered_line *line, struct ordered_entry *e)
{
    for (size_t i = first_at(line, e->form.seq); i < line->n; i++)
        if (line->entries[i] == e) {
            memmove(line->entries + i, line->entries + i + 1,
                    (--line->n - i) * sizeof(struct ordered_entry *));
            break;
        }
    if (e->seat)
        e->seat->entry = NULL;
    free(e);
}

bool hf__ordered_insert(struct ordered_line *line, struct ordered_entry *e)
{
    size_t i = line->n;

    if (line->n == line->room) {
        size_t room = line->room ? 2 * line->room : 4;
        struct ordered_entry **entries =
            realloc(line->entries, room * sizeof(struct ordered_entry *));

        if (!entries)
            return false;
        line->entries = entries;
        line->room = room;
    }
    for (; i > 0 && before(line->entries[i - 1], e) > 0; i--)
        line->entries[i] = line->entries[i - 1];
    line->entries[i] = e;
    line->n++;
    return true;
}

void hf__ordered_replace(struct ordered_line *line, struct ordered_entry **entries,
                         size_t n)
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        struct ordered_entry *e = entries[i];

        /* by number, then by name: the weight of an entry may have changed */
        while (at < line->n && line->entries[at]->form.seq < e->form.seq)
            at++;
        for (size_t k = at; k < line->n && line->entries[k]->form.seq == e->form.seq; k++)
            if (named(line->entries[k], e->name, e->len)) {
                e->watch = line->entries[k]->watch;
                e->own = line->entries[k]->own;
                e->seat = line->entries[k]->seat;
                line->entries[k]->seat = NULL;
                if (e->seat)
                    e->seat->entry = e;
            }
    }
    for (size_t i = 0; i < line->n; i++)
        if (line->entries[i]->seat)
            line->entries[i]->seat->entry = NULL;
    hf__ordered_entries_free(line->entries, line->n);
    line->entries = entries;
    line->n = n;
    line->room = n;
}
