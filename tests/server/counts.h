/* counts.h: what the cases that count a server's work share. */
#ifndef HF_TESTS_COUNTS_H
#define HF_TESTS_COUNTS_H

#include "redis.h"
#include "rig.h"

enum { LONG_MS = 600000 }; /* a ttl of which nothing is renewed while a case runs */

extern struct server server; /* the one of this case */

/* A server of our own, and its URL in the place. */
void begin(void);
void end(void);

int64_t inner(void); /* commands inside scripts, since the server runs */
int64_t calls(const char *command);

/* Connections by the port, which the test itself does not use. */
int connections(void);

#endif
