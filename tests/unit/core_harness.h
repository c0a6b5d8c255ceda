/* core_harness.h: the core on a clock that we turn and a store that answers when we say so.
 *
 * What the core asks of the store is noted in `w` and answered by the test, by raising the
 * seam's events. The client's ttl is TTL, its connect time-out 3 s. */
#ifndef HF_TESTS_CORE_HARNESS_H
#define HF_TESTS_CORE_HARNESS_H

#include "fake_clock.h"
#include "unit.h"

#include "core/core.h"

enum { TTL = 9000, SEC = 1000000 };

struct core_world {
    struct store store;
    struct client c;
    uint32_t random;
    int stalled; /* what the driver knows of a join without answer; 0: nothing */
    /* what the core asked of the store, and has not been answered */
    struct ticket *joined, *left, *amended;
    struct look *looked;
    int looks, stops, seen; /* seen: answers of watches */
    struct life *renewed[8];
    size_t nrenewed;
    int joins, leaves, renewals, changes, shuts, cells;
    struct hf_op *done;
};

extern struct core_world w;

int core_setup(void **state);
int core_teardown(void **state);
/* Turns the clock, running every timer on its way. */
void core_pass(int64_t us);
/* of "n" */
void core_start(struct hf_op *, hf_error *, int64_t wait_ms, const hf_request *);
struct hf_lease *core_hold(int64_t wait_ms, const hf_request *); /* granted, fence 7 */
void core_release(struct hf_lease *); /* its leave is answered, if `w.left` is set */

#define CORE_TEST(f) cmocka_unit_test_setup_teardown(f, core_setup, core_teardown)

#endif
