/* ordered_view.c: the view of a line: its tickets in order, who of them holds, and whose
 * end concerns whom. Why that is safe is said in ordered.h. */
#include "kit/ordered.h"

#include <stdlib.h>
#include <string.h>

/* ---- who holds ------------------------------------------------------------------- */

bool hf__ordered_same_kind(const struct ordered_entry *a, const struct ordered_entry *b)
{
    return a->kind == b->kind && a->capacity == b->capacity;
}

/* What one takes from a line of `head`'s kind. */
static int64_t weight_in(const struct ordered_entry *e, const struct ordered_entry *head)
{
    return hf__ordered_same_kind(e, head) ? e->weight : head->capacity;
}

size_t hf__ordered_holders(struct ordered_entry *const *entries, size_t n)
{
    int64_t sum = 0;
    size_t i = 0;

    for (; i < n; i++) {
        const struct ordered_entry *e = entries[i], *head = entries[0];

        if (sum + weight_in(e, head) > head->capacity || !hf__ordered_same_kind(e, head))
            break;
        sum += weight_in(e, head);
    }
    return i;
}

struct row hf__ordered_row(const char *name, size_t len,
                           struct ordered_entry *const *entries, size_t n)
{
    struct row row = { .name = name,
                       .name_len = len,
                       .kind = entries[0]->kind,
                       .capacity = entries[0]->capacity,
                       .holders = hf__ordered_holders(entries, n),
                       .oldest_ms = -1 };

    row.waiters = n - row.holders;
    for (size_t i = 0; i < row.holders; i++)
        row.weight += entries[i]->weight;
    return row;
}

/* From the nearest one on, until they fill what i would need; or one that does alone. */
struct ordered_span hf__ordered_whom(struct ordered_entry *const *entries, size_t i)
{
    const struct ordered_entry *mine = entries[i];
    int64_t room = (int64_t)mine->capacity - mine->weight, sum = 0;

    for (size_t k = i; k-- > 0;) {
        int64_t weight = weight_in(entries[k], mine);

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
    int64_t sum = 0;

    if (n > 0 && (t->kind != entries[0]->kind || t->capacity != entries[0]->capacity))
        return HF_EMISMATCH;
    if (hf__ordered_holders(entries, n) < n)
        return HF_EBUSY;
    for (size_t i = 0; i < n; i++)
        sum += entries[i]->weight;
    return sum + t->weight > t->capacity ? HF_EBUSY : 0;
}

/* ---- entries --------------------------------------------------------------------- */

enum { LEN_MAX = (1 << 24) - 1 }; /* no message of a store is that long */
_Static_assert(HF_FULL <= UINT32_MAX, "weights and capacities have 32 bits");

/* Numbers below 0 come first: whoever sorts by the text of the number thinks so, too. */
static int before(const struct ordered_entry *a, const struct ordered_entry *b)
{
    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    if (a->weight != b->weight) /* a writer that also reads, of another program */
        return a->weight > b->weight ? -1 : 1;
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
    struct ordered_entry *e = len <= LEN_MAX ? calloc(1, sizeof *e + len + 1) : NULL;

    if (!e)
        return NULL;
    e->seq = form->seq;
    e->kind = form->kind & 1;
    e->weight = (uint32_t)form->weight;
    e->capacity = (uint32_t)form->capacity;
    e->len = len & LEN_MAX;
    memcpy(e->name, name, len);
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

        if (line->entries[mid]->seq < seq)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Where the view has a ticket of that number and name; NULL: nowhere. */
static struct ordered_entry **place_in(const struct ordered_line *line, int64_t seq,
                                       const char *name, size_t len)
{
    for (size_t i = first_at(line, seq); i < line->n && line->entries[i]->seq == seq; i++)
        if (named(line->entries[i], name, len))
            return &line->entries[i];
    return NULL;
}

struct ordered_entry *hf__ordered_find(const struct ordered_line *line, int64_t seq,
                                       const char *name, size_t len)
{
    struct ordered_entry **at = place_in(line, seq, name, len);

    return at ? *at : NULL;
}

struct ordered_entry *hf__ordered_after(const struct ordered_line *line,
                                        const struct ordered_entry *e)
{
    for (size_t i = first_at(line, e->seq); i + 1 < line->n; i++)
        if (line->entries[i] == e)
            return line->entries[i + 1];
    return NULL;
}

/* What was told so far is why something leaves the view, or is lighter. */
static void known_now(struct ordered_line *line)
{
    if (line->of && line->of->revision > line->gone)
        line->gone = line->of->revision;
}

void hf__ordered_lighter(struct ordered_line *line, struct ordered_entry *e, int64_t weight)
{
    if (weight >= e->weight)
        return;
    e->weight = (uint32_t)weight;
    known_now(line);
}

static void drop(struct ordered_line *line, struct ordered_entry *e)
{
    if (e->own)
        line->of->ops->unwatch(line, e);
    if (e->seat)
        e->seat->entry = NULL;
    free(e);
}

void hf__ordered_cut(struct ordered_line *line, struct ordered_entry *e)
{
    known_now(line);
    for (size_t i = first_at(line, e->seq); i < line->n; i++)
        if (line->entries[i] == e) {
            memmove(line->entries + i, line->entries + i + 1,
                    (--line->n - i) * sizeof(struct ordered_entry *));
            break;
        }
    drop(line, e);
}

void hf__ordered_empty(struct ordered_line *line)
{
    for (size_t i = 0; i < line->n; i++)
        drop(line, line->entries[i]);
    free(line->entries);
    line->entries = NULL;
    line->n = line->room = 0;
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
    known_now(line);
    for (size_t i = 0; i < n; i++) {
        struct ordered_entry *listed = entries[i];
        /* not by its weight, which may have changed */
        struct ordered_entry **at = place_in(line, listed->seq, listed->name, listed->len);

        if (!at)
            continue;
        entries[i] = *at;
        *at = listed; /* which nobody knows, and goes with those that are not listed */
        entries[i]->kind = listed->kind;
        entries[i]->weight = listed->weight;
        entries[i]->capacity = listed->capacity;
        entries[i]->kept = listed->kept;
    }
    hf__ordered_empty(line);
    line->entries = entries;
    line->n = n;
    line->room = n;
}
