/* redis_main.c: what goes wrong with Redis, one case each.
 *
 *     fault-redis [--face blocking|callback|foreign] [--jobs N] [--list] [--verbose]
 *     [CASE...]
 *
 * Each case starts the servers it breaks, in its own process. */
#include "rig.h"

extern const struct test_case redis_answers_cases[], redis_broken_cases[],
    redis_setups_cases[], redis_tools_cases[], redis_server_cases[], redis_limits_cases[],
    redis_net_cases[], redis_many_cases[], redis_open_cases[], redis_found_cases[],
    redis_refused_cases[], redis_cluster_cases[], redis_connect_cases[],
    redis_deploy_cases[], redis_login_cases[];

const struct test_case *const tables[] = {
    redis_answers_cases, redis_broken_cases, redis_setups_cases,  redis_tools_cases,
    redis_server_cases,  redis_limits_cases, redis_net_cases,     redis_many_cases,
    redis_open_cases,    redis_found_cases,  redis_refused_cases, redis_cluster_cases,
    redis_connect_cases, redis_deploy_cases, redis_login_cases,   NULL,
};
