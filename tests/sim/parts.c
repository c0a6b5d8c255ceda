/* parts.c: a store of several servers, each of which has some of the lines. A client may
 * lose one of them and keep the others, as in a cluster: the store stays up, what is asked
 * of the lost part has no answer, and when it is back ev_back names the tickets of its
 * lines (seam.h, rule 6). Of the families whose client's half is src/kit/scripted.h.
 *
 * A part that is lost stands still, perhaps: what is under way to it is done late, in
 * order, until it is back; then what older connections have sent is impossible (G7), or
 * possible for a while, and the client knows for how long (sender.c).
 *
 * What has no answer is owed: as in src/driver/redis/wire/cluster.c the flag is set before
 * that is told, and ev_back clears it. It may be told after the part is back: then ev_back
 * comes once more. */
#include "sim.h"

#include <stdlib.h>

enum { OWED_US = 10 * US, UNDER_WAY = 1024, HANGS = 50 /* one join in so many */ };

int part_of_line(int line)
{
    return w.plan->parts ? line % PARTS : 0;
}

bool part_lost(const struct sim_client *c, int part)
{
    return c->lost_parts & 1u << part;
}

bool part_current(const struct sim_client *c, const struct msg *m)
{
    return m->epoch == c->epoch && m->part_epoch == c->part_epoch[part_of_line(m->line)];
}

static void come_back(const struct sim_client *c, int part, int64_t us)
{
    struct ev *e = new_event(E_PART, w.now + us);

    e->id = c->id;
    e->n = c->part_epoch[part];
    e->m.line = (uint8_t)part;
    push_event(e);
}

void part_owes(struct sim_client *c, int part)
{
    if (!w.plan->parts || !c->up)
        return; /* UP names all */
    c->owed_parts |= 1u << part;
    if (!part_lost(c, part))
        come_back(c, part, OWED_US);
}

/* ---- losing it ------------------------------------------------------------------- */

static int in_order(const void *a, const void *b)
{
    const struct ev *x = *(struct ev *const *)a, *y = *(struct ev *const *)b;

    return x->at != y->at ? (x->at < y->at ? -1 : 1) : (x->seq < y->seq ? -1 : 1);
}

/* What is under way comes later by `us`; the originals are nobody's. */
static void hold_up(const struct sim_client *c, int part, int64_t us)
{
    struct ev *all[UNDER_WAY];
    size_t n = 0;

    for (size_t i = 0; i < w.nheap && n < UNDER_WAY; i++)
        if (w.heap[i]->kind == E_TO_STORE && w.heap[i]->id == c->id &&
            part_current(c, &w.heap[i]->m) && part_of_line(w.heap[i]->m.line) == part)
            all[n++] = w.heap[i];
    qsort(all, n, sizeof *all, in_order);
    for (size_t i = 0; i < n; i++) {
        struct ev *late = new_event(E_TO_STORE, all[i]->at + us);

        late->id = c->id;
        late->m = all[i]->m;
        late->m.held_up = true;
        if (late->m.names)
            late->m.names->refs++;
        all[i]->m.epoch = 0;
        push_event(late);
    }
}

/* Until it is back, or a little longer. */
static int64_t how_long(int64_t us)
{
    if (w.plan->echoes && draw(2) == 0)
        return us + (int64_t)draw((uint64_t)sender_echo_us());
    return (int64_t)draw((uint64_t)us);
}

void part_cut(struct sim_client *c, int part, int64_t us)
{
    static const hf_error err = { .code = HF_EUNREACHABLE };

    SAY("client %u: part %d of the store is lost for %lld ms", c->id, part,
        (long long)us / US);
    hold_up(c, part, how_long(us));
    c->lost_parts |= 1u << part;
    c->part_epoch[part]++;
    in_trouble(c, w.now + us);
    come_back(c, part, us);
    sender_lost(c, part);
    for (int i = 0; i < LOOKS; i++) {
        struct look *l = c->looks[i].look;

        if (!l || part_of_line(line_of(l->name)) != part)
            continue;
        c->looks[i].look = NULL;
        ev_done(l, NULL, HF_EUNREACHABLE, &err);
    }
}

/* It stands still as soon as it was asked, now and then: the worst moment. */
void part_asked(const struct sim_client *c, int part)
{
    struct ev *e;

    if (!w.plan->parts || w.quiet || draw(HANGS) > 0)
        return;
    e = new_event(E_HANGS, w.now + 1);
    e->id = c->id;
    e->n = c->epoch;
    e->m.line = (uint8_t)part;
    e->m.ttl_ms = 1 + (int64_t)draw((uint64_t)w.plan->ttl_ms[0] * 3);
    push_event(e);
}

/* What a part was still to do late is lost: the next connection may be up before that. */
void parts_cut(struct sim_client *c)
{
    for (size_t i = 0; w.plan->parts && i < w.nheap; i++)
        if (w.heap[i]->kind == E_TO_STORE && w.heap[i]->id == c->id &&
            !part_current(c, &w.heap[i]->m))
            w.heap[i]->m.epoch = 0;
    c->lost_parts = c->owed_parts = 0;
}

/* ---- and having it back ---------------------------------------------------------- */

static bool concerns(struct store *s, const struct ticket *t)
{
    const struct sim_client *c = container_of(s, struct sim_client, store);

    return part_of_line(line_of(t->name)) == c->part_back;
}

void part_back(struct sim_client *c, int part)
{
    if (part_lost(c, part)) {
        SAY("client %u: part %d of the store is back", c->id, part);
        tally_sight(S_PART);
        w.part_epoch[c->id][part] = c->part_epoch[part];
        if (w.plan->echoes)
            w.echo_until[c->id][part] = w.now + sender_echo_us();
        sender_up(c, part);
        c->lost_parts &= ~(1u << part);
        c->owed_parts |= 1u << part; /* its news was lost */
    }
    if (!(c->owed_parts & 1u << part))
        return;
    c->owed_parts &= ~(1u << part);
    c->part_back = part;
    ev_back(&c->store, concerns);
}
