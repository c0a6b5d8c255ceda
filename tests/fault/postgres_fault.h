/* postgres_fault.h: what the fault tests on PostgreSQL share. */
#ifndef HF_TESTS_POSTGRES_FAULT_H
#define HF_TESTS_POSTGRES_FAULT_H

#include "postgres.h"
#include "proxy.h"
#include "rig.h"
#include "sql_lines.h"

#include <stdatomic.h>

/* A session of the test with an open transaction; one that has locked the row of a line, or
 * a whole table, until it is ended. */
PGconn *begun_session(void);
PGconn *lock_line(const char *name);
PGconn *lock_table(const char *name);
void unlock_line(PGconn *);

/* Before use_server: "app", which comes by the network, has to log in. */
void ask_password(void);

/* For hf_options.log: warnings with the text that is `user`. */
extern atomic_int warned;
void hear(void *user, int level, const char *name, const char *text);

#endif
