/* seats.h: what a driver knows of its tickets: which there are, by token, and, for the
 * scripted family, what is under way for each.
 *
 * A ticket is in the map from its first join (or a leave) until the event that ends it.
 * Requests and messages name it by token and look it up again when they are answered, so
 * that nobody speaks of a ticket which has left meanwhile. */
#ifndef HF_KIT_SEATS_H
#define HF_KIT_SEATS_H

#include "seam/seam.h"

/* NULL: not known */
struct ticket *hf__seat_find(const struct map *, const void *token);
void hf__seat_in(struct map *, struct ticket *);  /* nothing happens if it is in */
void hf__seat_out(struct map *, struct ticket *); /* nothing happens if it is not in */

/* In the scripted family ticket.drv holds this; drv[2] stays the store's.
 *
 *    joining leave woken leaving
 *       -      -     -      -     known to the store or on its way back: waits, holds, or a
 *                                 join was lost and the core will repeat it
 *       x      -     -      -     the join is not answered
 *       x      -     x      -     and a message about the ticket came before the answer
 *       x      x     -/x    -     and a leave came, which waits for the answer (G7)
 *       -      -     -      x     the leave is not answered
 *
 * No other combination is possible (the simulator checks it). `sent` and `echo` go with
 * each of them. */
struct seat_flags {
    uint64_t number; /* order in the queue, as the store numbers it */
    bool joining, leave, woken, leaving;
    bool sent; /* a join of this token may have come to the store */
    bool echo; /* and was lost with its connection */
};

_Static_assert(sizeof(struct seat_flags) <= 2 * sizeof(uint64_t), "it lies in ticket.drv");

static inline struct seat_flags *seat_of(const struct ticket *t)
{
    return (struct seat_flags *)(void *)(uintptr_t)t->drv;
}

static inline bool seat_idle(const struct ticket *t) /* nothing is under way for it */
{
    return !seat_of(t)->joining && !seat_of(t)->leaving;
}

#endif
