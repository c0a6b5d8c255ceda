/* listing.c: names in order, and the end of a list. Every answer of the store is reported
 * (ev_progress), so that the time limit is one for each answer and not for the whole list:
 * a list of a million names takes a while, from a server that is quite well. */
#include "kit/listing.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void cut(struct name_set *s)
{
    while (s->most > 0 && s->n - s->first > s->most) {
        free(s->at[--s->n]);
        s->cut = true;
    }
}

static void sort_all(struct name_set *s)
{
    size_t n = s->first;

    qsort(s->at + s->first, s->n - s->first, sizeof *s->at, by_name);
    for (size_t i = s->first; i < s->n; i++) {
        if (n > s->first && strcmp(s->at[n - 1], s->at[i]) == 0)
            free(s->at[i]);
        else
            s->at[n++] = s->at[i];
    }
    s->n = n;
}

/* The name that stands behind the sorted ones comes among them. */
static void insert(struct name_set *s, char *name)
{
    size_t low = s->first, high = s->sorted;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(s->at[mid], name);

        if (order == 0) {
            free(name);
            return;
        }
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    memmove(s->at + low + 1, s->at + low, (s->sorted - low) * sizeof *s->at);
    s->at[low] = name;
    s->sorted++;
}

void hf__names_settle(struct name_set *s)
{
    size_t added = s->n - s->sorted, end = s->n;

    if (added > 32 + (s->sorted - s->first) / 64) {
        sort_all(s);
    } else {
        /* insert moves only what lies before the name that it is given */
        for (size_t i = s->sorted; i < end; i++)
            insert(s, s->at[i]);
        s->n = s->sorted;
    }
    cut(s);
    s->sorted = s->n;
}

static bool make_room(struct name_set *s)
{
    size_t room = s->room ? 2 * s->room : 64;
    char **at;

    if (s->n < s->room)
        return true;
    if ((at = realloc(s->at, room * sizeof *at)) == NULL)
        return false;
    s->at = at;
    s->room = room;
    return true;
}

bool hf__names_add(struct name_set *s, const char *name, size_t len)
{
    if (!make_room(s) || (s->at[s->n] = strndup(name, len)) == NULL)
        return false;
    s->n++;
    if (s->most > 0 && s->n - s->first > 2 * s->most + 1000)
        hf__names_settle(s);
    return true;
}

char *hf__names_take(struct name_set *s)
{
    if (s->first == s->n)
        return NULL;
    if (s->sorted == s->first)
        s->sorted++;
    return s->at[s->first++];
}

void hf__names_done(struct name_set *s)
{
    for (size_t i = s->first; i < s->n; i++)
        free(s->at[i]);
    free(s->at);
    memset(s, 0, sizeof *s);
}

/* ---- the list -------------------------------------------------------------------- */

void hf__listing_begin(struct listing *l, struct look *look)
{
    hf__query_begin(&l->query, look, NULL);
    l->prefix_len = look->name_len;
    memcpy(l->prefix, look->name, look->name_len);
}

void *hf__listing_new(size_t size, struct look *look)
{
    struct listing *l = calloc(1, size);

    if (l)
        hf__listing_begin(l, look);
    else
        hf__query_refuse(look, NULL, HF_ENOMEM, NULL, "no memory for a list");
    return l;
}

bool hf__listing_names(const struct listing *l, const char *name, size_t len)
{
    return len >= l->prefix_len && memcmp(name, l->prefix, l->prefix_len) == 0;
}

void hf__listing_answered(struct listing *l)
{
    l->open--;
    if (l->query.look)
        ev_progress(l->query.look);
}

void hf__listing_row(struct listing *l, const struct row *row)
{
    if (!listing_goes_on(l))
        return;
    l->shown++;
    ev_row(l->query.look, row);
}

void hf__listing_fail(struct listing *l, int rc, const hf_error *err)
{
    if (l->rc < 0)
        return;
    l->rc = rc;
    l->err = *err;
}

void hf__listing_no_memory(struct listing *l)
{
    hf_error err;

    hf__listing_fail(l, hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a list"), &err);
}

void hf__listing_end(struct listing *l)
{
    hf__names_done(&l->names);
    hf__query_end(&l->query, l->rc, &l->err);
}
