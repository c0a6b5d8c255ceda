/* redlock_main.c: what goes wrong with Redlock, one case each.
 *
 *     fault-redlock [--face blocking|callback|foreign] [--jobs N] [--list] [--verbose] [CASE...]
 *
 * Each case starts the servers it breaks, in its own process. */
#include "rig.h"

#include <string.h>

extern const struct test_case redlock_nodes_cases[], redlock_guard_cases[],
    redlock_spread_cases[], redlock_others_cases[], redlock_libraries_cases[],
    redlock_free_cases[];

const struct test_case *const tables[] = {
    redlock_nodes_cases,
    redlock_guard_cases,
    redlock_spread_cases,
    redlock_others_cases,
    redlock_libraries_cases,
    redlock_free_cases,
    NULL,
};

static void nothing(struct place *p)
{
    memset(p, 0, sizeof(*p));
}

static const struct setup own_servers = { .name = "own",
                                          .start = nothing,
                                          .stop = nothing };
const struct setup *const setups[] = { &own_servers, NULL };

void negative_run(uint32_t missing)
{
    check_failed(__FILE__, __LINE__, "no case here needs capabilities (%x)", missing);
}

int main(int argc, char **argv)
{
    return run_cases(argc, argv);
}
