/* fake_clock.h: an env whose clock stands until a test turns it; timers fire on the way. */
#ifndef HF_TESTS_FAKE_CLOCK_H
#define HF_TESTS_FAKE_CLOCK_H

#include "loop/env.h"
#include "util/heap.h"

extern struct fake_clock {
    struct env env;
    int64_t now;
    struct heap timers;
} clk;

/* Without timers, at that time. */
void clock_start(int64_t now, void (*random)(struct env *, void *, size_t));
/* Turns the clock, running every timer on its way, and `after` behind each; may be NULL. */
void clock_pass(int64_t us, void (*after)(void));
int64_t clock_next(void); /* when the next timer fires; LOOP_NEVER */

#endif
