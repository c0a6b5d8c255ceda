/* zookeeper_main.c: what goes wrong with ZooKeeper, one case each.
 *
 *     fault-zookeeper [--face blocking|callback|foreign] [--jobs N] [--list] [--verbose] [CASE...]
 *
 * Each case starts the servers it breaks, in its own process. */
#include "rig.h"

#include <string.h>

extern const struct test_case zookeeper_net_cases[], zookeeper_nodes_cases[],
    zookeeper_ensemble_cases[], zookeeper_curator_cases[], zookeeper_stress_cases[],
    zookeeper_watch_cases[], zookeeper_limits_cases[], zookeeper_found_cases[],
    zookeeper_quiet_cases[];

const struct test_case *const tables[] = {
    zookeeper_stress_cases,  zookeeper_ensemble_cases,
    zookeeper_net_cases,     zookeeper_nodes_cases,
    zookeeper_curator_cases, zookeeper_watch_cases,
    zookeeper_limits_cases,  zookeeper_found_cases,
    zookeeper_quiet_cases,   NULL
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
