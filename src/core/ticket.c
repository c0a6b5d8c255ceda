/* ticket.c: see ticket.h.
 *
 * Happy path: NEW -start-> JOINING -grant-> HELD -give up-> LEAVING -left-> OUT, or by way
 * of WAITING. The rules worth keeping in mind:
 *
 *  - Nothing is said to be out before the store said so or its ttl has passed (G7): an
 *    answer that never came keeps the ticket in JOINING or LEAVING.
 *  - A grant that arrives after give-up finds LEAVING and changes nothing: the leave that
 *    is under way names the ticket by its token and takes the grant back (G7, G8).
 *  - A hold that was lost is left too: if the store still has it, nobody need wait for its
 *    expiry. It can no longer become HELD (G1). So is one that is refused although it
 *    may stand in line: it waited when its rights were taken away, or its first join got no
 *    answer and the second was refused.
 *  - A waiter whose place has gone stands in line again with a new token, once the old one
 *    is out; a late grant of the old one names a token that nobody has any more. If it must
 *    not join again at once it is RETRYING meanwhile, in no line. */
#include "core/ticket.h"

#include "core/mutate.h"

static unsigned go(enum ticket_state *state, enum ticket_state next, unsigned effects)
{
    *state = next;
    return effects;
}

/* JOINING, WAITING and CONFIRMING: in line or nearly, and wanted. */
static unsigned step_wanting(enum ticket_state *s, enum ticket_event e)
{
    switch (e) {
    case TICKET_TOLD_WAIT:
        return *s == TICKET_CONFIRMING ? 0 : go(s, TICKET_WAITING, TELL_WAITING);
    case TICKET_GRANT:
        return go(s, TICKET_HELD, TELL_GRANTED);
    case TICKET_GRANT_SHORT:
        return go(s, TICKET_HELD, TELL_GRANTED | DO_RENEW);
    case TICKET_GRANT_THIN:
        return go(s, TICKET_CONFIRMING, DO_RENEW);
    case TICKET_ALIVE:
        return *s == TICKET_CONFIRMING ? go(s, TICKET_HELD, TELL_GRANTED) : 0;
    case TICKET_ALIVE_THIN:
        return *s == TICKET_CONFIRMING ? DO_RENEW : 0;
    case TICKET_GONE:
        return go(s, TICKET_OUT, DO_AGAIN | TELL_OUT);
    case TICKET_GONE_A_WHILE:
        return go(s, TICKET_RETRYING, DO_RETRY);
    case TICKET_DEAD:
        return go(s, TICKET_LEAVING, DO_AGAIN | DO_LEAVE);
    case TICKET_REFUSED:
        return go(s, TICKET_OUT, TELL_REFUSED | TELL_OUT);
    case TICKET_REFUSED_IN_LINE:
        return go(s, TICKET_LEAVING, TELL_REFUSED | DO_LEAVE);
    case TICKET_GIVE_UP:
        if (MUTANT(FORGET_JOIN) && *s == TICKET_JOINING)
            return go(s, TICKET_OUT, TELL_OUT);
        return go(s, TICKET_LEAVING, DO_LEAVE);
    case TICKET_STORE_UP:
        return *s == TICKET_JOINING ? DO_JOIN : DO_RENEW;
    default:
        return 0;
    }
}

static unsigned step_held(enum ticket_state *s, enum ticket_event e)
{
    switch (e) {
    case TICKET_DEAD:
    case TICKET_DEADLINE:
    case TICKET_REFUSED_IN_LINE:
        return go(s, TICKET_LEAVING, TELL_LOST | DO_LEAVE);
    case TICKET_GONE:
    case TICKET_GONE_A_WHILE:
        return go(s, TICKET_OUT, TELL_LOST | TELL_OUT);
    case TICKET_GIVE_UP:
        return go(s, TICKET_LEAVING, DO_LEAVE);
    case TICKET_STORE_UP:
        return DO_RENEW;
    default:
        return 0;
    }
}

static unsigned step_leaving(enum ticket_state *s, enum ticket_event e)
{
    switch (e) {
    case TICKET_LEFT:
    case TICKET_GONE:
    case TICKET_GONE_A_WHILE:
    case TICKET_REFUSED:
    case TICKET_FORGOTTEN:
        return go(s, TICKET_OUT, TELL_OUT);
    case TICKET_LEFT_UNKNOWN:
        return TELL_UNSETTLED | DO_REPEAT_LATER;
    case TICKET_REPEAT:
    case TICKET_STORE_UP:
        return DO_LEAVE;
    default:
        return 0;
    }
}

unsigned hf__ticket_step(enum ticket_state *s, enum ticket_event e)
{
    switch (*s) {
    case TICKET_NEW:
    case TICKET_RETRYING:
        if (e == TICKET_START)
            return go(s, TICKET_JOINING, DO_JOIN);
        if (e == TICKET_REFUSED)
            return go(s, TICKET_OUT, TELL_REFUSED | TELL_OUT);
        return e == TICKET_GIVE_UP ? go(s, TICKET_OUT, TELL_OUT) : 0;
    case TICKET_JOINING:
    case TICKET_WAITING:
    case TICKET_CONFIRMING:
        return step_wanting(s, e);
    case TICKET_HELD:
        return step_held(s, e);
    case TICKET_LEAVING:
        return step_leaving(s, e);
    case TICKET_OUT:
        break;
    }
    return 0;
}
