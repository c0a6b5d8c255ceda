/* perturb.c: the schedule of tests/fault/threads.c, shaken: at each marked point of
 * src/api a thread goes on, yields, or sleeps for a moment, at random: by the seed of the
 * program. It is linked with a copy of the library that has these points. */
#include "api/perturb.h"
#include "perturb.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

static _Atomic uint32_t next_state;

void perturb_seed(unsigned seed)
{
    next_state = seed;
}

void hf__perturb(void)
{
    static _Thread_local uint32_t state;
    struct timespec moment = { 0, 0 };

    if (state == 0) /* of a new thread */
        state = (atomic_fetch_add(&next_state, 2) | 1) * 2654435761u;
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    moment.tv_nsec = (long)(state >> 16 & 0xffff) * 3; /* up to 0.2 ms */
    if (state % 64 == 0)
        nanosleep(&moment, NULL);
    else if (state % 4 == 0)
        sched_yield();
}
