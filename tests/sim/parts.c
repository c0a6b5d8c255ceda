/* parts.c: a store of several servers, each of which has some of the lines. A client has a
 * connection to each of them, and may lose one and keep the others, as in a cluster: the
 * store is up while one of its parts is, what is asked of a lost part has no answer, and
 * when it is back ev_back names the tickets of its lines (seam.h, rule 6). Of the families
 * whose client's half is src/kit/scripted.h; the others have one part.
 *
 * A part that is lost stands still, perhaps: what is under way to it is done late, in
 * order, until it is greeted by the next connection; then what older ones have sent is
 * impossible (G7), or joins are possible for a while, and the client knows for how long
 * (sender.c). */
#include "sim.h"

#include <stdlib.h>

enum { UNDER_WAY = 1024, HANGS = 50 /* one join in so many */ };

int wires(void)
{
    return w.plan->parts ? PARTS : 1;
}

int part_of_line(int line)
{
    return line % wires();
}

struct wire *wire_to(struct sim_client *c, int line)
{
    return &c->wires[part_of_line(line)];
}

bool wire_has(const struct wire *x, const struct msg *m)
{
    return m->epoch == x->epoch && part_of_line(m->line) == x - x->c->wires;
}

const char *part_said(const struct wire *x)
{
    static const char *const names[] = { " (part 0)", " (part 1)", " (part 2)" };

    return w.plan->parts ? names[x - x->c->wires] : "";
}

/* ---- losing it ------------------------------------------------------------------- */

static int in_order(const void *a, const void *b)
{
    const struct ev *x = *(struct ev *const *)a, *y = *(struct ev *const *)b;

    return x->at != y->at ? (x->at < y->at ? -1 : 1) : (x->seq < y->seq ? -1 : 1);
}

/* What is under way comes later by `us`; the originals are nobody's. */
static void hold_up(const struct wire *x, int64_t us)
{
    struct ev *all[UNDER_WAY];
    size_t n = 0;

    for (size_t i = 0; i < w.nheap && n < UNDER_WAY; i++)
        if (w.heap[i]->kind == E_TO_STORE && w.heap[i]->id == x->c->id &&
            wire_has(x, &w.heap[i]->m))
            all[n++] = w.heap[i];
    qsort(all, n, sizeof *all, in_order);
    for (size_t i = 0; i < n; i++) {
        struct ev *late = new_event(E_TO_STORE, all[i]->at + us);

        late->id = all[i]->id;
        late->m = all[i]->m;
        late->m.held_up = true;
        if (late->m.names)
            late->m.names->refs++;
        all[i]->m.epoch = 0;
        push_event(late);
    }
}

void part_cut(struct wire *x, int64_t us)
{
    tally_sight(S_PART);
    hold_up(x, (int64_t)draw((uint64_t)us + 1));
    net_cut(x, us);
}

/* It stands still as soon as it was asked, now and then: the worst moment. */
void part_asked(const struct wire *x)
{
    struct ev *e;

    if (!w.plan->parts || w.quiet || draw(HANGS) > 0)
        return;
    e = new_event(E_HANGS, w.now + 1);
    e->id = x->c->id;
    e->n = x->epoch;
    e->m.line = (uint8_t)(x - x->c->wires);
    e->m.ttl_ms = 1 + (int64_t)draw((uint64_t)w.plan->ttl_ms[0] * 3);
    push_event(e);
}

/* ---- and having it back ---------------------------------------------------------- */

static bool concerns(struct store *s, const struct ticket *t)
{
    struct sim_client *c = container_of(s, struct sim_client, store);

    return wire_to(c, line_of(t->name)) == c->back;
}

void part_back(struct wire *x)
{
    SAY("client %u:%s is back", x->c->id, part_said(x));
    x->c->back = x;
    ev_back(&x->c->store, concerns);
}
