/* spin.h: whether a thread that is about to sleep polls for a while first.
 *
 * To be woken takes longer than a server on the same machine takes to answer. A thread that
 * polls instead has its answer in half the time, and has used the processor for no longer
 * than going to sleep and waking up would have. If the answer does not come, what it used
 * is lost. So it polls only where that pays, and there is a budget for what is lost.
 *
 * Here is only what decides, from numbers: no clock, no system call, no lock.
 * src/api/spin.c has the rest.
 *
 * - Polling is tried after SPIN_TRUST sleeps in a row, of this kind and client, that ended
 *   within SPIN_NEAR times as long as we would poll: a sleeper hears of an answer only when
 *   it has been woken, which on an idle virtual machine takes longer than the answer did,
 *   so how long sleeps took does not tell whether polling pays. Polls tell: they pay while
 *   they bring the answer, on average in less than two thirds of the time that sleeps
 *   took lately; else the processor was used for nothing. One that paid is followed by
 *   others, and by one sleep now and then, to know how long those take; after one that
 *   did not it takes twice as many such sleeps as before it. So a store that is slow costs
 *   one poll now and then, and one that is far away costs none.
 * - The budget of the process is 5 % of one processor, of which a second's share may be
 *   used at once. A poll that brought the answer costs nothing; one in vain costs its time.
 *   It is one number, the time at which it is whole again, so that threads need no lock:
 *   each µs that is lost moves it by 20 µs, and nobody polls if the worst case would move
 *   it beyond a second from now. Threads that decide at the same moment do not see each
 *   other: then it is exceeded by one poll for each of them, and paid back.
 * - After a poll in which the thread lost its processor to another, or if the group of the
 *   process was throttled, nobody in the process polls for a second: somebody needs the
 *   processor more than we do. Nor where one processor is all we may use: the server could
 *   not run. */
#ifndef HF_CORE_SPIN_H
#define HF_CORE_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    SPIN_AUTO_US = 100,   /* spin=auto */
    SPIN_MOST_US = 10000, /* five of them are a second's share */
    SPIN_TRUST = 2,
    SPIN_NEAR = 8,
    SPIN_PAID = 256,         /* then there is a sleep */
    SPIN_VAIN = 6,           /* then it takes 128 sleeps before another */
    SPIN_SHARE = 20,         /* one part in so many of a processor's time */
    SPIN_SAVED_US = 1000000, /* for how long the budget may be saved up */
    SPIN_PAUSE_US = 1000000
};

/* Of one client and one kind of waiting; under its lock. */
struct spin {
    int64_t most_us; /* 0: never */
    unsigned near;   /* how many sleeps in a row were not much longer */
    unsigned vain;   /* how many polls in a row did not pay */
    unsigned paid;   /* how many did, since the last sleep */
    /* averages of lately: of sleeps that were not much longer, of polls since one failed */
    int64_t sleep_us, poll_us;
};

/* Of the process. */
struct spin_budget {
    _Atomic int64_t whole_at; /* when all of it is there again */
    _Atomic int64_t pause_till;
};

/* For how many µs to poll before this sleep; 0: not at all. */
int64_t hf__spin_for(const struct spin *, const struct spin_budget *, int64_t now);
/* A sleep before which nobody polled has ended after so long. */
void hf__spin_slept(struct spin *, int64_t took_us);
/* A poll has brought what it was for, after so many µs; or not, and took so many. */
void hf__spin_polled(struct spin *, struct spin_budget *, int64_t took_us, bool brought,
                     int64_t now);
void hf__spin_pause(struct spin_budget *, int64_t now);

#endif
