/* own_main.c: the main program of cases that start the servers they need themselves, each
 * in its own process: one set-up that starts nothing, so no case can lack a capability. The
 * program has `tables`. */
#include "rig.h"

#include <string.h>

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
