/* ordered_seat.c: what becomes of a seat: the table in ordered.h, and nothing else. It
 * knows no line, no store and no memory. What must not go wrong here:
 *
 *  - A node that may be there is not forgotten (G7): an unanswered create is UNSURE and is
 *    looked for before another is made; an unanswered delete is told as unknown, and the
 *    core repeats it, or, if it was our own, sent again.
 *  - A seat that leaves is never granted: only WAITING becomes HELD.
 *  - A node whose name is not known now (RENAMING) does not end by the end of the old one.
 */
#include "kit/ordered.h"

#include "kit/ordered_mutants.h"

static unsigned go(enum seat_state *s, enum seat_state next, unsigned effects)
{
    *s = next;
    return effects;
}

/* NEW, UNSURE, TRYING, FINDING, CREATING: no node is known of. */
static unsigned step_before(enum seat_state *s, enum seat_event e)
{
    bool rests = *s == SEAT_NEW || *s == SEAT_UNSURE;

    switch (e) {
    case SEAT_JOIN:
    case SEAT_JOIN_TRY:
        if (*s == SEAT_UNSURE)
            return go(s, SEAT_FINDING, SEAT_DO_FIND);
        if (*s != SEAT_NEW)
            return 0;
        return e == SEAT_JOIN ? go(s, SEAT_CREATING, SEAT_DO_CREATE)
                              : go(s, SEAT_TRYING, SEAT_DO_TRY);
    case SEAT_LEAVE:
        if (*s == SEAT_TRYING)
            return go(s, SEAT_OUT, SEAT_TELL_LEFT);
        if (*s == SEAT_CREATING)
            return go(s, SEAT_ABORTING, 0);
        return go(s, SEAT_SEEKING, rests ? SEAT_DO_FIND : 0);
    case SEAT_LOST:
        return rests ? 0 : go(s, *s == SEAT_TRYING ? SEAT_NEW : SEAT_UNSURE, 0);
    case SEAT_SESSION_OVER:
        return rests ? go(s, SEAT_OVER, 0) : 0;
    case SEAT_ROOM:
        return *s == SEAT_TRYING ? go(s, SEAT_CREATING, SEAT_DO_CREATE) : 0;
    case SEAT_NO_ROOM:
        return *s == SEAT_TRYING ? go(s, SEAT_OUT, SEAT_TELL_GONE) : 0;
    case SEAT_MADE:
        return *s == SEAT_CREATING ? go(s, SEAT_CREATED, 0) : 0;
    case SEAT_NOT_MADE:
        return *s == SEAT_CREATING ? go(s, SEAT_OUT, SEAT_TELL_GONE) : 0;
    default:
        break;
    }
    if (*s != SEAT_FINDING)
        return 0;
    switch (e) {
    case SEAT_FOUND:
        return ORDERED_MUTANT(NOT_FOUND) ? go(s, SEAT_CREATING, SEAT_DO_CREATE)
                                         : go(s, SEAT_CREATED, 0);
    case SEAT_FOUND_OLD:
        return go(s, SEAT_WITHDRAWING, SEAT_KEEP_WHY | SEAT_DO_ERASE);
    case SEAT_FOUND_NONE:
        return go(s, SEAT_CREATING, SEAT_DO_CREATE);
    case SEAT_GONE:
    case SEAT_NOT_FOUND:
        return go(s, SEAT_OUT, SEAT_TELL_GONE);
    default:
        return 0;
    }
}

/* CREATED, WAITING, HELD: its node is there. */
static unsigned step_there(enum seat_state *s, enum seat_event e)
{
    bool held = *s == SEAT_HELD;

    switch (e) {
    case SEAT_JOIN:
    case SEAT_JOIN_TRY:
        return held                 ? SEAT_TELL_GRANTED
               : *s == SEAT_WAITING ? SEAT_TELL_WAITING
                                    : SEAT_DO_LIST;
    case SEAT_UP:
        return *s == SEAT_CREATED ? SEAT_DO_LIST : SEAT_DO_WATCH;
    case SEAT_PLACED:
        return *s == SEAT_CREATED ? go(s, SEAT_WAITING, 0) : 0;
    case SEAT_ADMITTED:
        return *s == SEAT_WAITING ? go(s, SEAT_HELD, SEAT_TELL_GRANTED) : 0;
    case SEAT_LEAVE:
        return go(s, SEAT_DELETING, SEAT_DO_ERASE);
    case SEAT_GONE:
        return go(s, SEAT_OUT, SEAT_TELL_GONE);
    case SEAT_WITHDRAW:
        return held ? 0 : go(s, SEAT_WITHDRAWING, SEAT_KEEP_WHY | SEAT_DO_ERASE);
    case SEAT_MARKED:
        return held ? SEAT_TELL_MARKED
                    : go(s, SEAT_WITHDRAWING, SEAT_KEEP_WHY | SEAT_DO_ERASE);
    case SEAT_RENAME:
        return held ? go(s, SEAT_RENAMING, 0) : 0;
    case SEAT_SESSION_OVER:
        return go(s, SEAT_OVER, 0);
    default:
        return 0;
    }
}

/* RENAMING; PARTING */
static unsigned step_renaming(enum seat_state *s, enum seat_event e)
{
    bool leaves = *s == SEAT_PARTING;

    switch (e) {
    case SEAT_RENAMED:
        return leaves ? go(s, SEAT_DELETING, SEAT_DO_ERASE)
                      : go(s, SEAT_HELD, SEAT_DO_WATCH);
    case SEAT_RENAME_GONE:
        return go(s, SEAT_OUT, leaves ? SEAT_TELL_LEFT : SEAT_TELL_GONE);
    case SEAT_MARKED:
        return leaves ? 0 : SEAT_TELL_MARKED;
    case SEAT_LEAVE:
        return go(s, SEAT_PARTING, 0);
    case SEAT_LOST:
        return leaves ? go(s, SEAT_OUT, SEAT_TELL_UNKNOWN) : 0;
    case SEAT_UP:
        return leaves ? 0 : SEAT_DO_CHECK;
    case SEAT_SESSION_OVER:
        return leaves ? 0 : go(s, SEAT_OVER, 0);
    default:
        return 0;
    }
}

/* WITHDRAWING, DOOMED, ORPHAN: it is to go, and nobody asked for that. */
static unsigned step_withdrawing(enum seat_state *s, enum seat_event e)
{
    bool doomed = *s == SEAT_DOOMED, orphan = *s == SEAT_ORPHAN;

    switch (e) {
    case SEAT_DELETED:
        return doomed ? 0 : go(s, SEAT_OUT, orphan ? 0 : SEAT_TELL_GONE);
    case SEAT_NOT_DELETED:
        return doomed || orphan ? 0 : go(s, SEAT_ORPHAN, SEAT_TELL_GONE);
    case SEAT_LEAVE:
        return orphan ? 0 : go(s, SEAT_DELETING, doomed ? SEAT_DO_ERASE : 0);
    case SEAT_LOST:
        return orphan ? 0 : go(s, SEAT_DOOMED, 0);
    case SEAT_JOIN:
    case SEAT_JOIN_TRY:
        return doomed ? go(s, SEAT_WITHDRAWING, SEAT_DO_ERASE) : 0;
    case SEAT_UP:
        return doomed ? go(s, SEAT_WITHDRAWING, SEAT_DO_ERASE) : orphan ? SEAT_DO_ERASE : 0;
    case SEAT_GONE:
        return doomed ? go(s, SEAT_OUT, SEAT_TELL_GONE) : 0;
    case SEAT_SESSION_OVER:
        return doomed ? go(s, SEAT_OVER, 0) : orphan ? go(s, SEAT_OUT, 0) : 0;
    default:
        return 0;
    }
}

/* SEEKING, ABORTING, DELETING */
static unsigned step_leaving(enum seat_state *s, enum seat_event e)
{
    bool seeking = *s == SEAT_SEEKING, aborting = *s == SEAT_ABORTING,
         deleting = *s == SEAT_DELETING;

    switch (e) {
    case SEAT_FOUND:
    case SEAT_FOUND_OLD:
        return seeking ? go(s, SEAT_DELETING, SEAT_DO_ERASE) : 0;
    case SEAT_FOUND_NONE:
    case SEAT_GONE:
        return seeking ? go(s, SEAT_OUT, SEAT_TELL_LEFT) : 0;
    case SEAT_MADE:
        return aborting ? go(s, SEAT_DELETING, SEAT_DO_ERASE) : 0;
    case SEAT_NOT_MADE:
        return aborting ? go(s, SEAT_OUT, SEAT_TELL_LEFT) : 0;
    case SEAT_DELETED:
        return deleting ? go(s, SEAT_OUT, SEAT_TELL_LEFT) : 0;
    case SEAT_NOT_FOUND:
        return seeking ? go(s, SEAT_OUT, SEAT_TELL_UNKNOWN) : 0;
    case SEAT_NOT_DELETED:
        return deleting ? go(s, SEAT_OUT, SEAT_TELL_UNKNOWN) : 0;
    case SEAT_LOST:
        return go(s, SEAT_OUT, SEAT_TELL_UNKNOWN);
    default:
        return 0;
    }
}

unsigned hf__seat_step(enum seat_state *s, enum seat_event e)
{
    if (e == SEAT_LEAVE_DOWN && *s < SEAT_ORPHAN)
        return go(s, SEAT_OUT, SEAT_TELL_UNKNOWN);
    switch (*s) {
    case SEAT_NEW:
    case SEAT_UNSURE:
    case SEAT_TRYING:
    case SEAT_FINDING:
    case SEAT_CREATING:
        return step_before(s, e);
    case SEAT_CREATED:
    case SEAT_WAITING:
    case SEAT_HELD:
        return step_there(s, e);
    case SEAT_RENAMING:
    case SEAT_PARTING:
        return step_renaming(s, e);
    case SEAT_WITHDRAWING:
    case SEAT_DOOMED:
    case SEAT_ORPHAN:
        return step_withdrawing(s, e);
    case SEAT_SEEKING:
    case SEAT_ABORTING:
    case SEAT_DELETING:
        return step_leaving(s, e);
    case SEAT_OVER:
        return e == SEAT_LEAVE || e == SEAT_LEAVE_DOWN ? go(s, SEAT_OUT, SEAT_TELL_LEFT)
                                                       : 0;
    case SEAT_OUT:
    case SEAT_STATES:
        break;
    }
    return 0;
}
