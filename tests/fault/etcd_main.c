/* etcd_main.c: what goes wrong with etcd, one case each.
 *
 *     fault-etcd [--face blocking|callback|foreign] [--jobs N] [--list] [--verbose]
 * [CASE...]
 *
 * Each case starts the servers it breaks, in its own process. */
#include "rig.h"

extern const struct test_case etcd_net_cases[], etcd_keys_cases[], etcd_cluster_cases[];

const struct test_case *const tables[] = { etcd_cluster_cases, etcd_net_cases,
                                           etcd_keys_cases, NULL };
