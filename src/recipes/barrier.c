/* barrier.c: all parties meet: presence in a line of as many permits as there are parties,
 * and a record in the cell that decides each round (barrier_round.h).
 *
 * A party reads the record (is it a barrier's?), stands in the line, and when it has a
 * place follows line and cell. What it does next is hf__barrier_move, each time one of them
 * changes:
 *
 *   all places are taken by parties of this round   put: it opens
 *   a party that was there is gone                  put: it is broken
 *   this party gives up (time, cancel)              look at the line, put: it is broken
 *   the record says how this round was decided      leave the line, return
 *
 * Each put is "if the record is still the one that I have read", so a round is decided
 * once.
 *
 * Nobody passes alone. Whoever opens has seen N places at the same time, all granted after
 * what was decided before: one round. Each of them either passes, or is dead, or was cut
 * off (HF_ELOST): who gives up must break the round first, and that put changes the
 * version, so a put that opens by an older reading is refused. A party that dies after it
 * was seen, and before the put, counts as one that died just after the barrier opened.
 *
 * Nobody passes who was not counted. A party believes that a round opened only while its
 * own place is certainly still its own (hf_lease_check). As there are N places, it was one
 * of the N that were seen.
 *
 * Rounds do not mix. Who comes early to the next round waits in the queue until a party of
 * the old one has left, and its fence is greater than all that were counted. The old ones
 * still find how theirs was decided: no later round can open while they hold a place, and
 * later rounds that break do not touch open_from and open_to.
 *
 * A record that nobody has answered about (the connection was lost) is tried again: it may
 * have been written, then the next one is refused with the state that it made. */
#include "recipes/barrier_round.h"
#include "recipes/recipe.h"

#include <string.h>

static const char tag[] = "barrier";
enum { PARTIES_MOST = 1024, REPEATS = 3 };

enum barrier_state { BEGIN, READ, STANDS, MEETS };

struct barrier {
    struct composite g;
    struct cell_part put, follow; /* put: also the first read */
    struct line_part line, last_look;
    struct hf_op place;
    struct acquire_spec spec;
    struct barrier_record record, next;
    uint64_t version; /* of record */
    bool writes;      /* put is under way */
    bool broke;       /* this party has broken the round */
    bool has_line;
    bool looks, looked; /* the last look is under way, is done */
    int repeats;
    size_t nnow, nseen;
    char note[HF_NOTE_MAX + 1];
    uint64_t fences[]; /* now: parties; seen: twice as many */
};

static struct barrier *of(struct composite *g)
{
    return container_of(g, struct barrier, g);
}

/* The newest state that was read; versions only grow. False: it is another recipe's, and
 * the operation has ended. */
static bool learn(struct barrier *b, const struct cell *cell)
{
    uint64_t n[3];

    if (cell->version <= b->version)
        return true;
    if (!hf__recipe_read(cell, tag, n, 3)) {
        hf__recipe_refuse(&b->g, cell);
        return false;
    }
    b->version = cell->version;
    b->record = (struct barrier_record){ n[0], n[1], n[2] };
    return true;
}

static void write_next(struct barrier *b)
{
    const uint64_t n[3] = { b->next.open_from, b->next.open_to, b->next.decided };

    b->put.cell.if_version = b->version;
    hf__recipe_write(&b->put.cell, tag, n, 3);
    hf__part_cell(&b->g, &b->put, CELL_PUT);
    b->writes = true;
}

/* The put is done. False: the operation has ended. */
static bool written(struct barrier *b)
{
    int rc = b->put.op.rc;

    b->writes = false;
    if (rc == 0) {
        b->broke = b->next.open_to == b->record.open_to;
        b->record = b->next;
        b->version = b->put.cell.version;
        return true;
    }
    if (rc == HF_EBUSY)
        return learn(b, &b->put.cell);
    if (hf__part_unknown(&b->put) && b->g.give_up == 0 && b->repeats++ < REPEATS)
        return true;
    hf__recipe_cell_failed(&b->g, &b->put);
    return false;
}

static void read_line(struct barrier *b, const hf_list *list)
{
    const hf_line *line = hf_list_at(list, 0);
    size_t parties = (size_t)b->spec.capacity;

    b->nnow = 0;
    b->has_line = true;
    for (size_t i = 0; i < hf_line_tickets(line) && b->nnow < parties; i++) {
        const hf_ticket *t = hf_line_ticket(line, i);

        if (hf_ticket_position(t) == 0)
            b->fences[b->nnow++] = hf_ticket_fence(t);
    }
}

static enum round_move move(struct barrier *b)
{
    size_t parties = (size_t)b->spec.capacity;
    uint64_t mine = hf_lease_fence(b->g.lease);
    struct barrier_view r = { .mine = mine,
                              .parties = parties,
                              .now = b->has_line ? b->fences : &mine,
                              .nnow = b->has_line ? b->nnow : 1,
                              .seen = b->fences + parties,
                              .nseen = b->nseen,
                              .room = 2 * parties,
                              .gives_up = b->g.give_up != 0 };
    enum round_move m = hf__barrier_move(&r, &b->record, &b->next);

    b->nseen = r.nseen;
    return m;
}

static void lost(struct barrier *b)
{
    hf__composite_fail(&b->g, HF_ELOST, "'%s': cut off; the others may have passed or not",
                       b->g.name);
}

static void broken(struct barrier *b)
{
    int rc = b->g.give_up;

    if (b->broke && (rc == HF_ETIMEDOUT || rc == HF_EBUSY))
        hf__composite_fail(&b->g, rc, "'%s': not all of %lld parties have come", b->g.name,
                           (long long)b->spec.capacity);
    else if (b->broke && rc != 0)
        hf__composite_end(&b->g, rc);
    else
        hf__composite_fail(&b->g, HF_EPARTY, "'%s': another party has left the barrier",
                           b->g.name);
}

/* Why it should not go on, if there is a reason. */
static void look_for_reasons(struct barrier *b)
{
    struct composite *g = &b->g;

    if (g->give_up == 0 && b->follow.op.done)
        g->give_up = b->follow.op.rc;
    if (g->give_up == 0 && b->line.op.done)
        g->give_up = b->line.op.rc;
}

/* Who gives up tells all who have come by then, also those of whom it has not heard yet. If
 * the store does not answer that, it tells those it knows. */
static bool has_looked(struct barrier *b)
{
    if (!b->looks && !b->looked) {
        hf__part_look(&b->g, &b->last_look);
        b->looks = true;
    }
    if (b->looks && b->last_look.op.done) {
        if (b->last_look.op.rc == 0)
            read_line(b, b->last_look.op.list);
        b->looks = false;
        b->looked = true;
    }
    return b->looked;
}

static void ended(struct composite *g)
{
    hf_list_free(of(g)->last_look.op.list);
    of(g)->last_look.op.list = NULL;
}

/* When it is cut off nothing else would call it. */
static void wake_when_lost(struct composite *g)
{
    hf__composite_wake_in(g, hf_lease_remaining_ms(g->lease) + 1);
}

static void meet(struct barrier *b)
{
    struct composite *g = &b->g;

    if (b->writes && (!b->put.op.done || !written(b)))
        return;
    if (hf__part_news(&b->follow.op) && !learn(b, &b->follow.cell))
        return;
    if (hf__part_news(&b->line.op))
        read_line(b, b->line.op.list);
    look_for_reasons(b);
    if (hf_lease_check(g->lease) < 0) {
        lost(b);
        return;
    }
    if (!b->has_line && g->give_up == 0) {
        wake_when_lost(g);
        return;
    }
    if (g->give_up != 0 && !has_looked(b))
        return;
    switch (move(b)) {
    case ROUND_PASS:
        hf__composite_end(g, 0);
        return;
    case ROUND_BROKEN:
        broken(b);
        return;
    case ROUND_LOST:
        lost(b);
        return;
    case ROUND_OPEN:
    case ROUND_BREAK:
        write_next(b);
        return;
    case ROUND_WAIT:
        if (g->op.try_only)
            hf__composite_give_up(&g->op, HF_EBUSY);
        else
            wake_when_lost(g);
        return;
    }
}

static void meeting(struct composite *g)
{
    struct barrier *b = of(g);

    if (g->give_up != 0 && g->state != MEETS && !g->lease) {
        hf__composite_end(g, g->give_up); /* nobody has seen us */
        return;
    }
    switch ((enum barrier_state)g->state) {
    case BEGIN:
        hf__part_cell(g, &b->put, CELL_GET);
        g->state = READ;
        return;
    case READ:
        if (!b->put.op.done)
            return;
        if (b->put.op.rc < 0) {
            hf__composite_end(g, b->put.op.rc);
            return;
        }
        if (!learn(b, &b->put.cell))
            return;
        hf__part_acquire(g, &b->place, hf__composite_rest_ms(g), &b->spec);
        g->state = STANDS;
        return;
    case STANDS:
        if (!b->place.done)
            return;
        if (b->place.rc < 0) {
            hf__composite_end(g, b->place.rc);
            return;
        }
        hf__part_follow_cell(g, &b->follow);
        hf__part_follow_line(g, &b->line);
        wake_when_lost(g);
        g->state = MEETS;
        if (g->give_up != 0)
            hf__composite_resume(g);
        return;
    case MEETS:
        meet(b);
        return;
    }
}

static struct composite *barrier(hf_client *c, const struct recipe_args *a,
                                 const struct listener *l, hf_error *err)
{
    struct acquire_spec spec;
    struct recipe_args nobodys = *a;
    struct composite *g;
    struct barrier *b;

    nobodys.blocking = false; /* a place is no part of a deadlock */
    if (a->number < 1 || a->number > PARTIES_MOST) {
        hf__fail(err, HF_EINVAL, 0, NULL, "a barrier has 1 to %d parties", PARTIES_MOST);
        return NULL;
    }
    if (hf__recipe_request(c, &nobodys, (uint32_t)a->number, HF_CAP_CELL | HF_CAP_LINE,
                           &spec, err) < 0)
        return NULL;
    g = hf__composite_new(c, sizeof *b + 3 * (size_t)a->number * sizeof b->fences[0],
                          meeting, a->name, l, err);
    if (!g)
        return NULL;
    b = of(g);
    hf__recipe_keep_request(&b->spec, &spec, b->note);
    hf__composite_limit(g, a->wait_ms, false, a->req ? a->req->cancel : NULL);
    g->unwinds = true;
    g->ended = ended;
    return g;
}

int hf_barrier(hf_client *c, const char *name, uint32_t parties, int64_t wait_ms,
               const hf_request *req, hf_error *err)
{
    return hf__recipe_call(
        c, barrier,
        (struct recipe_args){
            .name = name, .number = parties, .wait_ms = wait_ms, .req = req },
        NULL, NULL, err);
}

int hf_barrier_start(hf_client *c, const char *name, uint32_t parties, int64_t wait_ms,
                     const hf_request *req, hf_done *done, void *user, hf_op **ret,
                     hf_error *err)
{
    return hf__recipe_start(
        c, barrier,
        (struct recipe_args){
            .name = name, .number = parties, .wait_ms = wait_ms, .req = req },
        done, user, ret, err);
}
