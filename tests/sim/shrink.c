/* shrink.c: a failing plan becomes a short one that breaks the same guarantee: parts
 * of it are left out, large ones first, as long as it still fails. */
#include "sim.h"

#include <string.h>

enum { STEPS_MOST = 200 * 1000 * 1000 }; /* then it is short enough: about a minute */

static uint64_t steps;

static bool still(struct plan *p, int mutant, const char *id)
{
    run_world(p, mutant, false);
    steps += w.steps;
    return w.broke && strcmp(w.broke, id) == 0;
}

static size_t left(const struct plan *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n; i++)
        n += !p->acts[i].dropped;
    return n;
}

/* Drops the next `size` acts from `from` on that are not dropped; returns where it
 * stopped. */
static size_t drop(struct plan *p, size_t from, size_t size, size_t dropped[], size_t *n)
{
    for (*n = 0; from < p->n && *n < size; from++)
        if (!p->acts[from].dropped) {
            p->acts[from].dropped = true;
            dropped[(*n)++] = from;
        }
    return from;
}

static bool pass(struct plan *p, int mutant, const char *id, size_t size)
{
    static size_t dropped[ACTS];
    bool any = false;
    size_t n;

    for (size_t i = 0; i < p->n && steps < STEPS_MOST;) {
        i = drop(p, i, size, dropped, &n);
        if (n == 0)
            break;
        if (still(p, mutant, id)) {
            any = true;
            continue;
        }
        while (n > 0)
            p->acts[dropped[--n]].dropped = false;
    }
    return any;
}

void shrink(struct plan *p, int mutant)
{
    char id[16];

    steps = 0;
    run_world(p, mutant, false);
    if (!w.broke)
        return;
    strncpy(id, w.broke, sizeof id - 1);
    id[sizeof id - 1] = '\0';
    for (size_t size = left(p) / 2 + 1; size > 0;)
        if (!pass(p, mutant, id, size) || size > 1)
            size /= 2;
}
