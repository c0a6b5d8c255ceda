/* ticket.h: what becomes of a ticket: a pure state machine.
 *
 * It knows no clock, no store and no memory: ticket_step(state, event) gives the next state
 * and what must now be done. The rest of the core turns the seam's events and its own
 * timers into these events, and effects into verbs and news. */
#ifndef HF_CORE_TICKET_H
#define HF_CORE_TICKET_H

/* From NEW to OUT. Only in HELD does the application have the lock. */
enum ticket_state {
    TICKET_NEW,        /* nothing was sent */
    TICKET_JOINING,    /* join was sent; the answer is open: it may or may not be in line */
    TICKET_WAITING,    /* in the queue */
    TICKET_CONFIRMING, /* granted, but too little of its time is left to say so (G1) */
    TICKET_HELD,
    TICKET_RETRYING, /* not in line; joins again, with another token, after a delay */
    /* leave was sent, or is to be repeated: still in line for all we know */
    TICKET_LEAVING,
    TICKET_OUT /* known to be out of the line, or out by its ttl */
};

/* What can happen to a ticket: answers of the store, our own clock, the caller. */
enum ticket_event {
    TICKET_START,
    TICKET_TOLD_WAIT,
    TICKET_GRANT,           /* with at least half of its ttl left */
    TICKET_GRANT_SHORT,     /* between a quarter and a half */
    TICKET_GRANT_THIN,      /* less, or past its deadline */
    TICKET_ALIVE,           /* its life was renewed and at least a quarter is left */
    TICKET_ALIVE_THIN,      /* renewed, but the answer took too long */
    TICKET_DEAD,            /* its life is dead; the driver still knows the ticket */
    TICKET_GONE,            /* the store dropped it: expired, or evicted */
    TICKET_GONE_A_WHILE,    /* not in line, and not to join again at once */
    TICKET_REFUSED,         /* the store would not take it */
    TICKET_REFUSED_IN_LINE, /* refused, but an earlier join may have succeeded: leave */
    TICKET_DEADLINE,        /* our own clock says the hold can no longer be trusted */
    TICKET_GIVE_UP,         /* release, cancel, time-out, close */
    TICKET_LEFT,
    TICKET_LEFT_UNKNOWN,
    TICKET_REPEAT,    /* time to repeat an unsettled leave */
    TICKET_FORGOTTEN, /* one ttl has passed since it could last have been renewed */
    TICKET_STORE_UP   /* the store is back: repeat what was unanswered */
};

/* What is to be done then: DO_* calls a verb or sets a timer, TELL_* is news for handles.
 */
enum ticket_effect {
    DO_JOIN = 1 << 0,
    DO_AGAIN = 1 << 1, /* once it is out: start anew with another token, at the end */
    DO_LEAVE = 1 << 2,
    DO_RENEW = 1 << 3,
    DO_REPEAT_LATER = 1 << 4,
    DO_RETRY = 1 << 11, /* nothing of it is left in the line: start anew after the delay */
    TELL_WAITING = 1 << 5,
    TELL_GRANTED = 1 << 6,
    TELL_REFUSED = 1 << 7,
    TELL_LOST = 1 << 8,
    TELL_UNSETTLED = 1 << 9,
    TELL_OUT = 1 << 10 /* nothing of it is left in the line */
};

/* Sets *state, returns effects. An event that means nothing in a state has no effect:
 * answers come late and twice. */
unsigned hf__ticket_step(enum ticket_state *state, enum ticket_event);

#endif
