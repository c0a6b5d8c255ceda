/* ordered_seat.c: what becomes of a seat: the table of ordered.h. It knows no line, no
 * store and no memory. What must not go wrong here:
 *
 *  - A node that may be there is not forgotten (G7): an unanswered create is UNSURE and is
 *    looked for before another is made; an unanswered delete is told as unknown, and the
 *    core repeats it, or, if it was our own, sent again.
 *  - A seat that leaves is never granted: only WAITING becomes HELD.
 *  - A node whose name is not known now (RENAMING) does not end by the end of the old one.
 */
#include "kit/ordered.h"

#include "kit/mutate.h"

#define IN(state) (1u << SEAT_##state)
enum {
    STAY = SEAT_STATES,
    NO_NODE = IN(NEW) | IN(UNSURE),
    QUEUED = IN(CREATED) | IN(WAITING),
    THERE = QUEUED | IN(HELD),
    LEAVING = IN(SEEKING) | IN(ABORTING) | IN(PARTING) | IN(DELETING),
    DOWN = IN(ORPHAN) - 1 /* all before it */
};

static const struct {
    enum seat_event event;
    unsigned from; /* in which states */
    int to;
    unsigned effects;
} table[] = {
    { SEAT_JOIN, IN(NEW), SEAT_CREATING, SEAT_DO_CREATE },
    { SEAT_JOIN_TRY, IN(NEW), SEAT_TRYING, SEAT_DO_TRY },
    { SEAT_JOIN, IN(UNSURE), SEAT_FINDING, SEAT_DO_FIND },
    { SEAT_JOIN, IN(DOOMED), SEAT_WITHDRAWING, SEAT_DO_ERASE },
    { SEAT_JOIN, IN(CREATED), STAY, SEAT_DO_LIST },
    { SEAT_JOIN, IN(WAITING), STAY, SEAT_TELL_WAITING },
    { SEAT_JOIN, IN(HELD), STAY, SEAT_TELL_GRANTED },
    { SEAT_LEAVE, IN(TRYING) | IN(OVER), SEAT_OUT, SEAT_TELL_LEFT },
    { SEAT_LEAVE, NO_NODE, SEAT_SEEKING, SEAT_DO_FIND },
    { SEAT_LEAVE, IN(FINDING), SEAT_SEEKING, 0 },
    { SEAT_LEAVE, IN(CREATING), SEAT_ABORTING, 0 },
    { SEAT_LEAVE, IN(RENAMING), SEAT_PARTING, 0 },
    { SEAT_LEAVE, THERE | IN(DOOMED), SEAT_DELETING, SEAT_DO_ERASE },
    { SEAT_LEAVE, IN(WITHDRAWING), SEAT_DELETING, 0 },
    { SEAT_LEAVE_DOWN, IN(OVER), SEAT_OUT, SEAT_TELL_LEFT },
    { SEAT_LEAVE_DOWN, DOWN, SEAT_OUT, SEAT_TELL_UNKNOWN },
    { SEAT_LOST, IN(TRYING), SEAT_NEW, 0 },
    { SEAT_LOST, IN(FINDING) | IN(CREATING), SEAT_UNSURE, 0 },
    { SEAT_LOST, IN(WITHDRAWING), SEAT_DOOMED, 0 },
    { SEAT_LOST, LEAVING, SEAT_OUT, SEAT_TELL_UNKNOWN },
    { SEAT_UP, IN(CREATED), STAY, SEAT_DO_LIST },
    { SEAT_UP, IN(WAITING) | IN(HELD), STAY, SEAT_DO_WATCH },
    { SEAT_UP, IN(RENAMING), STAY, SEAT_DO_CHECK },
    { SEAT_UP, IN(DOOMED), SEAT_WITHDRAWING, SEAT_DO_ERASE },
    { SEAT_UP, IN(ORPHAN), STAY, SEAT_DO_ERASE },
    { SEAT_SESSION_OVER, NO_NODE | THERE | IN(RENAMING) | IN(DOOMED), SEAT_OVER, 0 },
    { SEAT_SESSION_OVER, IN(ORPHAN), SEAT_OUT, 0 },
    { SEAT_ROOM, IN(TRYING), SEAT_CREATING, SEAT_DO_CREATE },
    { SEAT_NO_ROOM, IN(TRYING), SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_MADE, IN(CREATING), SEAT_CREATED, 0 },
    { SEAT_MADE, IN(ABORTING), SEAT_DELETING, SEAT_DO_ERASE },
    { SEAT_NOT_MADE, IN(CREATING), SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_NOT_MADE, IN(ABORTING), SEAT_OUT, SEAT_TELL_LEFT },
    { SEAT_FOUND, IN(FINDING), SEAT_CREATED, 0 },
    { SEAT_FOUND, IN(SEEKING), SEAT_DELETING, SEAT_DO_ERASE },
    { SEAT_FOUND_OLD, IN(FINDING), SEAT_WITHDRAWING, SEAT_KEEP_WHY | SEAT_DO_ERASE },
    { SEAT_FOUND_OLD, IN(SEEKING), SEAT_DELETING, SEAT_DO_ERASE },
    { SEAT_FOUND_NONE, IN(FINDING), SEAT_CREATING, SEAT_DO_CREATE },
    { SEAT_FOUND_NONE, IN(SEEKING), SEAT_OUT, SEAT_TELL_LEFT },
    { SEAT_NOT_FOUND, IN(FINDING), SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_NOT_FOUND, IN(SEEKING), SEAT_OUT, SEAT_TELL_UNKNOWN },
    { SEAT_PLACED, IN(CREATED), SEAT_WAITING, 0 },
    { SEAT_ADMITTED, IN(WAITING), SEAT_HELD, SEAT_TELL_GRANTED },
    { SEAT_GONE, THERE | IN(FINDING) | IN(DOOMED), SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_GONE, IN(SEEKING), SEAT_OUT, SEAT_TELL_LEFT },
    { SEAT_WITHDRAW, QUEUED, SEAT_WITHDRAWING, SEAT_KEEP_WHY | SEAT_DO_ERASE },
    { SEAT_MARKED, QUEUED, SEAT_WITHDRAWING, SEAT_KEEP_WHY | SEAT_DO_ERASE },
    { SEAT_MARKED, IN(HELD) | IN(RENAMING), STAY, SEAT_TELL_MARKED },
    { SEAT_DELETED, IN(WITHDRAWING), SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_DELETED, IN(DELETING), SEAT_OUT, SEAT_TELL_LEFT },
    { SEAT_DELETED, IN(ORPHAN), SEAT_OUT, 0 },
    { SEAT_NOT_DELETED, IN(WITHDRAWING), SEAT_ORPHAN, SEAT_TELL_GONE },
    { SEAT_NOT_DELETED, IN(DELETING), SEAT_OUT, SEAT_TELL_UNKNOWN },
    { SEAT_RENAME, IN(HELD), SEAT_RENAMING, 0 },
    { SEAT_RENAMED, IN(RENAMING), SEAT_HELD, SEAT_DO_WATCH },
    { SEAT_RENAMED, IN(PARTING), SEAT_DELETING, SEAT_DO_ERASE },
    { SEAT_RENAME_GONE, IN(RENAMING), SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_RENAME_GONE, IN(PARTING), SEAT_OUT, SEAT_TELL_LEFT },
};

unsigned hf__seat_step(enum seat_state *s, enum seat_event e)
{
    if (e == SEAT_JOIN_TRY && *s != SEAT_NEW)
        e = SEAT_JOIN; /* it was tried before */
    if (e == SEAT_FOUND && MUTANT(NOT_FOUND))
        e = SEAT_FOUND_NONE;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].event == e && (table[i].from & 1u << *s)) {
            if (table[i].to != STAY)
                *s = (enum seat_state)table[i].to;
            return table[i].effects;
        }
    return 0; /* it means nothing now: answers come late and twice */
}
