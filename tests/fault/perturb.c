/* perturb.c: the schedule of tests/fault/threads.c, shaken: at each marked point of src/sync a
 * thread goes on, yields, or sleeps for a moment, at random. It is linked with a copy of the
 * library that has these points. */
#include "sync/perturb.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

void hf__perturb(void)
{
    static _Atomic uint32_t threads;
    static _Thread_local uint32_t state;
    struct timespec moment = { 0, 0 };

    if (state == 0)
        state = (atomic_fetch_add(&threads, 1) + 1) * 2654435761u;
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    moment.tv_nsec = (long)(state >> 16 & 0xffff) * 3; /* up to 0.2 ms */
    if (state % 64 == 0)
        nanosleep(&moment, NULL);
    else if (state % 4 == 0)
        sched_yield();
}
