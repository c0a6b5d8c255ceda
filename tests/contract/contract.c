/* contract.c: the contract suite: the same cases on every store and in every face.
 *
 *     contract [--face blocking|callback|foreign] [--setup local] [--jobs N]
 *              [--all|--brief] [--list] [--verbose] [CASE...]
 *
 * Of a store's other ways to be set up only the cases that depend on that are run, but with
 * --all; with --brief only those are run anywhere.
 *
 * The guarantees G1 to G12 are what the cases speak of; each file says which. */
#include "rig.h"

extern const struct test_case exclusion_cases[], line_cases[], owner_cases[], fence_cases[],
    crash_cases[], life_cases[], loss_cases[], cancel_cases[], close_cases[], look_cases[],
    deadlock_cases[], name_cases[], args_cases[], whole_cases[], async_cases[],
    many_cases[], store_cases[], cell_cases[], started_cases[], facts_cases[], kept_cases[],
    calls_cases[], recipe_cases[], count_cases[], once_cases[], rate_cases[],
    election_cases[], latch_cases[], barrier_cases[];

const struct test_case *const tables[] = {
    exclusion_cases, line_cases,   owner_cases,    fence_cases, crash_cases,    life_cases,
    loss_cases,      cancel_cases, close_cases,    look_cases,  deadlock_cases, name_cases,
    args_cases,      whole_cases,  async_cases,    many_cases,  store_cases,    cell_cases,
    started_cases,   facts_cases,  kept_cases,     calls_cases, recipe_cases,   count_cases,
    once_cases,      rate_cases,   election_cases, latch_cases, barrier_cases,  NULL,
};

int main(int argc, char **argv)
{
    return run_cases(argc, argv);
}
