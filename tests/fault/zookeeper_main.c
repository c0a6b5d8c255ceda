/* zookeeper_main.c: what goes wrong with ZooKeeper, one case each.
 *
 *     fault-zookeeper [--face blocking|callback|foreign] [--jobs N] [--list] [--verbose]
 *     [CASE...]
 *
 * Each case starts the servers it breaks, in its own process. */
#include "rig.h"

extern const struct test_case zookeeper_broken_cases[], zookeeper_net_cases[],
    zookeeper_nodes_cases[], zookeeper_ensemble_cases[], zookeeper_curator_cases[],
    zookeeper_stress_cases[], zookeeper_watch_cases[], zookeeper_limits_cases[],
    zookeeper_found_cases[], zookeeper_quiet_cases[], zookeeper_rights_cases[],
    zookeeper_relay_cases[], zookeeper_kazoo_cases[], zookeeper_tls_cases[],
    zookeeper_close_cases[], zookeeper_set_back_cases[];

const struct test_case *const tables[] = { zookeeper_broken_cases,
                                           zookeeper_stress_cases,
                                           zookeeper_ensemble_cases,
                                           zookeeper_net_cases,
                                           zookeeper_nodes_cases,
                                           zookeeper_curator_cases,
                                           zookeeper_watch_cases,
                                           zookeeper_limits_cases,
                                           zookeeper_found_cases,
                                           zookeeper_quiet_cases,
                                           zookeeper_rights_cases,
                                           zookeeper_relay_cases,
                                           zookeeper_kazoo_cases,
                                           zookeeper_tls_cases,
                                           zookeeper_close_cases,
                                           zookeeper_set_back_cases,
                                           NULL };
