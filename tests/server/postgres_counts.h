/* postgres_counts.h: a PostgreSQL server that counts what it is asked to do. */
#ifndef HF_TESTS_POSTGRES_COUNTS_H
#define HF_TESTS_POSTGRES_COUNTS_H

#include "postgres.h"
#include "rig.h"

enum { LONG_MS = 600000 }; /* a ttl of which nothing is renewed meanwhile */

extern struct server server;

void begin_with(const char *config); /* starts `server`; NULL: nothing is added */
void end(void);

int64_t calls(const char *function); /* of the schema, so far */
int64_t connections(void);           /* of the library, now */

#endif
