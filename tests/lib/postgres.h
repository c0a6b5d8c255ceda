/* postgres.h: PostgreSQL servers for tests, over server.h, and a way to ask them things.
 *
 * The server refuses to run as root: then it runs as `nobody`, who owns its folder. It
 * listens on its port and on a socket in its folder (postgres_socket), and trusts everybody
 * there. Its user is "holdfast", its database "postgres". */
#ifndef HF_TESTS_POSTGRES_H
#define HF_TESTS_POSTGRES_H

#include "server.h"

#include <libpq-fe.h>

void postgres_init(struct server *); /* folder, port, an empty database */
void postgres_config(struct server *, const char *line, ...)
    __attribute__((format(printf, 2, 3))); /* before postgres_run; a later line decides */
void postgres_run(struct server *);        /* starts it, and it answers */
void postgres_start(struct server *);      /* both, with nothing added */

/* A replica of one that runs, made and started; it streams. postgres_promote makes it a
 * server of its own. */
void postgres_replica(struct server *, struct server *of);
void postgres_promote(struct server *);

/* All its processes, not only the first. */
void postgres_kill(struct server *); /* SIGKILL: as a crash */
void postgres_freeze(struct server *);
void postgres_continue(struct server *);
void postgres_remove(struct server *);

/* One statement on a connection of its own; a refusal is a failure. */
void postgres_do(struct server *, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int64_t postgres_number(struct server *, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))); /* the first value, as a number */

int64_t postgres_work(struct server *); /* statements of others so far */

#endif
