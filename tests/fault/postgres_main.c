/* postgres_main.c: what goes wrong with PostgreSQL, one case each.
 *
 *     fault-postgres [--face blocking|callback|foreign] [--jobs N] [--list] [--verbose]
 *     [CASE...]
 *
 * Each case starts the servers it breaks, in its own process. */
#include "rig.h"
#include "sql_lines.h"

extern const struct test_case postgres_server_cases[], postgres_net_cases[],
    postgres_race_cases[], postgres_host_cases[], postgres_operator_cases[],
    postgres_mode_cases[];

const struct test_case *const tables[] = {
    postgres_server_cases, postgres_net_cases,      postgres_race_cases,
    postgres_host_cases,   postgres_operator_cases, postgres_mode_cases,
    sql_mode_cases,        sql_line_cases,          NULL
};
