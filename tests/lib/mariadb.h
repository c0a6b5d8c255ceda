/* mariadb.h: MariaDB servers for tests, over server.h, and a way to ask them things.
 *
 * A server listens on its port and on a socket in its folder. Its user "root" (socket) may
 * do everything; "holdfast" (everywhere) all in the database "holdfast", and both have no
 * password. */
#ifndef HF_TESTS_MARIADB_H
#define HF_TESTS_MARIADB_H

#include "server.h"

void mariadb_make(struct server *); /* folder, port, an empty database */
/* An option of the server, "name=value", before mariadb_run; a later one decides. */
void mariadb_config(struct server *, const char *option, ...)
    __attribute__((format(printf, 2, 3)));
void mariadb_run(struct server *);   /* starts it, and it answers */
void mariadb_begin(struct server *); /* both, with nothing added */

/* One statement, or several, on a connection of its own; a refusal is a failure. */
void mariadb_do(struct server *, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int64_t mariadb_number(struct server *, const char *fmt, ...)
    __attribute__((format(printf, 2,
                          3))); /* the first value of the last row set, as a number */
/* Lines for the program of an administrator, with its DELIMITER. */
void mariadb_script(struct server *, const char *text);

int64_t mariadb_work(struct server *); /* statements of holdfast so far */

/* Every ticket of every line, also those that stand in the row of their line. */
#define MARIADB_TICKETS                                                                    \
    "(SELECT line, token, state, weight, fence, expiry FROM holdfast_ticket UNION ALL"     \
    " SELECT id, token, 1, total, fence, soonest FROM holdfast_line WHERE token <> ''"     \
    " UNION ALL SELECT id, w_token, 0, cap, 0, 0 FROM holdfast_line WHERE w_token <> '') " \
    "t"

#endif
