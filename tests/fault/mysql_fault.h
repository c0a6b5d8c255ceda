/* mysql_fault.h: what the fault tests on MariaDB share. */
#ifndef HF_TESTS_MYSQL_FAULT_H
#define HF_TESTS_MYSQL_FAULT_H

#include "mariadb.h"
#include "proxy.h"
#include "rig.h"
#include "sql_lines.h"

#include <mysql.h>
#include <mysqld_error.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct test_case mysql_race_cases[], mysql_host_cases[], mysql_mode_cases[],
    mysql_crash_cases[], mysql_folded_cases[];

/* Sessions of the library: KILL CONNECTION, or KILL QUERY. Returns how many. */
int64_t kill_all(const char *what, const char *condition);
int64_t waiting_for_rows(void); /* sessions */
void unfold(void);              /* the only hold gets a row of its own, as by many a verb */

#endif
