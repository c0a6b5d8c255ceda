/* redlock_main.c: what goes wrong with Redlock, one case each.
 *
 *     fault-redlock [--face blocking|callback|foreign] [--jobs N] [--list] [--verbose]
 *     [CASE...]
 *
 * Each case starts the servers it breaks, in its own process. */
#include "rig.h"

extern const struct test_case redlock_broken_cases[], redlock_nodes_cases[],
    redlock_guard_cases[], redlock_spread_cases[], redlock_others_cases[],
    redlock_libraries_cases[], redlock_free_cases[], redlock_refused_cases[];

const struct test_case *const tables[] = {
    redlock_broken_cases, redlock_nodes_cases,   redlock_guard_cases,
    redlock_spread_cases, redlock_others_cases,  redlock_libraries_cases,
    redlock_free_cases,   redlock_refused_cases, NULL,
};
