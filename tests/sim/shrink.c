/* shrink.c: a failing plan becomes a short one that breaks the same guarantee: parts of
 * it are left out, large ones first, as long as it still fails; what is left is made
 * plainer.
 *
 * What is left out also shifts the delays of all later messages, and a failure often
 * hangs on a race. So each attempt is made with a few other delays, too; with more of
 * them if time is left. */
#include "sim.h"

#include <string.h>

/* so many steps: half a minute */
enum { STEPS_MOST = 150 * 1000 * 1000, SALTS_MOST = 200 };

static uint64_t steps, salts;

static bool still(struct plan *p, int mutant, const char *id)
{
    uint64_t salt = p->salt;

    for (uint64_t i = 0; i < salts && steps < STEPS_MOST; i++) {
        p->salt = i == 0 ? salt : i - 1;
        run_world(p, mutant, false);
        steps += w.steps;
        if (w.broke && strcmp(w.broke, id) == 0)
            return true;
    }
    p->salt = salt;
    return false;
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

/* What was to come after the failure. */
static void cut_off(struct plan *p)
{
    for (size_t i = 0; i < p->n; i++)
        p->acts[i].dropped = p->acts[i].dropped || p->acts[i].at > w.now;
}

static void shorter(struct plan *p, int mutant, const char *id)
{
    for (size_t size = left(p) / 2 + 1; size > 0;)
        if (!pass(p, mutant, id, size) || size > 1)
            size /= 2;
}

static void make_plain(struct plan *p, int what)
{
    switch (what) {
    case 0:
        p->slow_ppm = 0;
        break;
    case 1:
        p->twice_ppm = 0;
        break;
    case 2:
        p->wake_lost_ppm = 0;
        break;
    case 3:
        p->look_us = 0;
        break;
    case 4:
        memset(p->ppm, 0, sizeof p->ppm);
        break;
    case 5:
        p->refuses = p->replaced = false;
        break;
    default:
        p->jitter_us = 0;
        break;
    }
}

/* Fewer things that may go wrong, and acquires without ado. */
static void plainer(struct plan *p, int mutant, const char *id)
{
    static struct plan before;

    for (int i = 0; i <= 6; i++) {
        before = *p;
        make_plain(p, i);
        if (!still(p, mutant, id))
            *p = before;
    }
    for (size_t i = 0; i < p->n; i++) {
        struct act was = p->acts[i];

        if (was.dropped || was.kind != A_ACQUIRE || (was.flags == 0 && was.lines == 1))
            continue;
        p->acts[i].flags = 0;
        p->acts[i].lines = 1;
        if (!still(p, mutant, id))
            p->acts[i] = was;
    }
}

size_t shrink(struct plan *p, int mutant)
{
    char id[16];

    steps = 0;
    run_world(p, mutant, false);
    if (!w.broke)
        return left(p);
    strncpy(id, w.broke, sizeof id - 1);
    id[sizeof id - 1] = '\0';
    if (!w.quiet)
        cut_off(p);
    for (salts = 3; salts <= SALTS_MOST && steps < STEPS_MOST; salts *= 4) {
        shorter(p, mutant, id);
        plainer(p, mutant, id);
    }
    return left(p);
}
