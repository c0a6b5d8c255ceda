/* torture_oracle.c: did two hold at once who must not, and did fences grow?
 *
 * The argument. A worker reads the clock after the acquire has returned (`from`), and from
 * then on again and again: it reads the clock (t), asks hf_lease_check, and if that says
 * "held" it sets `till` to t. A lease that was lost is never held again, so at the
 * moment of that check, which is not before t, it had been held without a break since
 * before `from`. So [from, till] is certain, whatever happens to the process between two
 * of these steps: stopped past its deadline it goes on, asks, hears "lost", and `till`
 * stays at the last moment of which the library itself said that it was held; killed, it
 * leaves the same. Nothing is concluded from the time after `till`. CLOCK_BOOTTIME is one
 * clock for all processes, so two certain intervals of one lock that overlap, at least one
 * of them exclusive, are a broken G1; likewise permits that sum up to more than there are.
 * A place that was kept (hf_release_after) is certain up to the call plus the time.
 *
 * Fences. If one of two holds is exclusive and the certain interval of one begins before
 * that of the other, then it was granted before it, and its fence must be smaller (G2).
 * Two readers say nothing about each other.
 *
 * The resource. It accepts a fence that is not smaller than the last one. A write that is
 * refused says that a later holder has been here; so a check that is asked after that
 * must say "lost". This needs no clock at all; workers ask it on the spot.
 *
 * Goes wrong: says which two records, and prints the last events of the line.
 */
#include "torture.h"

#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SHOWN = 80, AROUND = 500000 };

struct area *area;

int64_t now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* ---- writing --------------------------------------------------------------------- */

void event_add(enum what what, unsigned line, pid_t pid, int rc, uint64_t fence)
{
    struct event *e = &area->events[atomic_fetch_add(&area->nevents, 1) % EVENTS];

    *e = (struct event){
        now_us(), fence, pid, gettid(), rc, (uint16_t)line, (uint16_t)what
    };
}

/* NULL: the round has been too long; what follows is not judged. */
struct held *held_add(unsigned line, uint64_t id, uint64_t fence, bool exclusive,
                      unsigned weight, int64_t from)
{
    uint64_t i = atomic_fetch_add(&area->nholds, 1);
    struct held *h = &area->holds[i];

    if (i >= HOLDS)
        return NULL;
    h->fence = fence;
    h->id = id;
    h->from = from;
    h->pid = getpid();
    h->line = (uint16_t)line;
    h->weight = (uint16_t)weight;
    h->exclusive = exclusive;
    return h; /* counts when `till` is set */
}

/* ---- telling --------------------------------------------------------------------- */

/* Of that line and of the processes: the last ones, or those around a moment. */
void events_print(unsigned line, int64_t around)
{
    static const char *const names[] = { "asks",     "granted",  "failed",    "lost",
                                         "released", "kept",     "downgrade", "KILLED",
                                         "STOPPED",  "CONTINUED" };
    uint64_t n = area->nevents, first = n > EVENTS ? n - EVENTS : 0, seen = 0;

    for (uint64_t i = n; i > first && seen < SHOWN; i--) {
        const struct event *e = &area->events[(i - 1) % EVENTS];

        if ((e->line == line || e->line == LINES) &&
            (around == 0 || (e->at < around + AROUND && e->at > around - AROUND))) {
            seen++;
            printf("#   %lld %d/%d %s rc %d fence %llu\n", (long long)e->at, (int)e->pid,
                   (int)e->tid, names[e->what], e->rc, (unsigned long long)e->fence);
        }
    }
    fflush(stdout);
}

static void show(const struct held *h)
{
    printf("#   %s %s pid %d fence %llu weight %u from %lld till %lld\n",
           line_names[h->line], h->exclusive ? "exclusive" : "shared", (int)h->pid,
           (unsigned long long)h->fence, h->weight, (long long)h->from, (long long)h->till);
}

static int wrong(bool say, const char *what, const struct held *a, const struct held *b)
{
    if (say) {
        printf("# %s\n", what);
        show(a);
        show(b);
        events_print(b->line, b->from);
        fflush(stdout);
    }
    return 1;
}

/* ---- judging --------------------------------------------------------------------- */

static int by_from(const void *a, const void *b)
{
    const struct held *x = *(struct held *const *)a, *y = *(struct held *const *)b;

    return x->from < y->from ? -1 : x->from > y->from;
}

static int judge_lock(struct held *const *all, size_t n, bool say)
{
    const struct held *writer = NULL, *reader = NULL; /* with the latest end so far */
    int bad = 0;

    for (size_t i = 0; i < n; i++) {
        const struct held *h = all[i];

        if (writer && writer->id != h->id && writer->till > h->from)
            bad += wrong(say, "a writer beside another holder", writer, h);
        if (h->exclusive && reader && reader->id != h->id && reader->till > h->from)
            bad += wrong(say, "a writer beside a reader", reader, h);
        if (h->exclusive && (!writer || h->till > writer->till))
            writer = h;
        if (!h->exclusive && (!reader || h->till > reader->till))
            reader = h;
    }
    return bad;
}

static int judge_permits(struct held *const *all, size_t n, bool say)
{
    int64_t longest = 0;
    int bad = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned sum = all[i]->weight;

        /* At the beginning of one: all that began before and have not ended. */
        for (size_t j = i; j-- > 0 && all[i]->from - all[j]->from < longest;)
            if (all[j]->till > all[i]->from)
                sum += all[j]->weight;
        if (all[i]->till - all[i]->from > longest)
            longest = all[i]->till - all[i]->from;
        if (sum > CAPACITY)
            bad += wrong(say, "too many permits", all[i], all[i > 0 ? i - 1 : 0]);
    }
    return bad;
}

static int judge_fences(struct held *const *all, size_t n, unsigned line, bool say)
{
    const struct held *writer = NULL, *any = NULL; /* with the greatest fence so far */
    uint64_t last = area->last_fence[line];
    int bad = 0;

    for (size_t i = 0; i < n; i++) {
        const struct held *h = all[i];

        if (h->fence <= last)
            bad += wrong(say, "a fence of an earlier round", h, h);
        if (writer && writer->id != h->id && writer->fence >= h->fence)
            bad += wrong(say, "a fence that is not above that of a writer", writer, h);
        if (h->exclusive && any && any->id != h->id && any->fence >= h->fence)
            bad += wrong(say, "a writer's fence that is not above an earlier one", any, h);
        if (h->exclusive && (!writer || h->fence > writer->fence))
            writer = h;
        if (!any || h->fence > any->fence)
            any = h;
    }
    if (any && any->fence > last)
        area->last_fence[line] = any->fence;
    return bad;
}

int oracle_judge(bool say)
{
    uint64_t n = area->nholds < HOLDS ? area->nholds : HOLDS;
    struct held **all = malloc((n + 1) * sizeof(*all));
    int bad = 0;

    CHECK(all);
    for (unsigned line = 0; line < LINES; line++) {
        size_t count = 0;
        int found;

        for (uint64_t i = 0; i < n; i++)
            if (area->holds[i].line == line && area->holds[i].till != 0)
                all[count++] = &area->holds[i];
        qsort(all, count, sizeof(*all), by_from);
        found =
            line == PERMITS ? judge_permits(all, count, say) : judge_lock(all, count, say);
        if (line != PERMITS)
            found += judge_fences(all, count, line, say);
        bad += found;
    }
    free(all);
    return bad;
}

void oracle_forget(void)
{
    uint64_t n = area->nholds < HOLDS ? area->nholds : HOLDS;

    memset(area->holds, 0, n * sizeof(*area->holds));
    area->nholds = 0;
}
