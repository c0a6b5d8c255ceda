/* barrier_round.h: what a party at a barrier does next: a pure function of what it has
 * read.
 *
 * The record of a barrier is three fences, open_from <= open_to <= decided. Fences number
 * the places in the order of their grants, so they divide the parties into rounds:
 *
 *     ... open_from ] the round that opened last [ open_to ... broken rounds ... decided ]
 * the round that is not decided: all who hold a place with a greater fence
 *
 * A round is decided by one compare-and-put of the record: it opens, or it is broken. */
#ifndef HF_RECIPES_BARRIER_ROUND_H
#define HF_RECIPES_BARRIER_ROUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct barrier_record {
    uint64_t open_from, open_to, decided;
};

enum round_move {
    ROUND_WAIT,
    ROUND_PASS,   /* it has opened, and the party is one of it */
    ROUND_BROKEN, /* it was broken */
    ROUND_LOST,   /* the party has no place any more: nothing is known */
    ROUND_OPEN,   /* all have come: write `next` */
    ROUND_BREAK   /* a party is missing, or this one gives up: write `next` */
};

/* mine: the party's own fence. now: the fences of all places, as read last, in any order.
 * seen: fences that were read before; those that are decided or are in `now` are dropped
 * and those of `now` added, so that what remains unseen is missed next time. There is room
 * for `room` of them. */
struct barrier_view {
    uint64_t mine;
    size_t parties;
    const uint64_t *now;
    size_t nnow;
    uint64_t *seen;
    size_t nseen, room;
    bool gives_up;
};

enum round_move hf__barrier_move(struct barrier_view *, const struct barrier_record *,
                                 struct barrier_record *next);

#endif
