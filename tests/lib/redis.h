/* redis.h: Redis servers for tests, over server.h, and a way to ask them things.
 *
 * Every server also listens on a unix socket, which is the test's own way in: it is there
 * whatever the port does (TLS, a proxy in front). */
#ifndef HF_TESTS_REDIS_H
#define HF_TESTS_REDIS_H

#include "server.h"

#include <hiredis/hiredis.h>

void redis_init(struct server *); /* folder, port and a plain configuration */
void redis_config(struct server *, const char *line, ...)
    __attribute__((format(printf, 2, 3))); /* before redis_run; a later line decides */
void redis_run(struct server *);           /* starts it, and it answers */
void redis_start(struct server *);         /* both, with nothing added */

/* Kills it with SIGKILL and starts it again, with what it had written to disk, or with
 * nothing. */
void redis_restart(struct server *);
void redis_restart_empty(struct server *);

/* One command on a connection of its own, as redisCommand formats it. A refusal is a
 * failure; redis_ask hands it back instead. The reply is the caller's to free. */
redisReply *redis_ask(struct server *, const char *fmt, ...);
void redis_do(struct server *, const char *fmt, ...);        /* anything but a refusal */
int64_t redis_number(struct server *, const char *fmt, ...); /* an integer */
/* A text, or the values of a list with a space between; valid until the next call. */
const char *redis_text(struct server *, const char *fmt, ...);

/* A field of INFO as text ("" if absent), valid until the next call. */
const char *redis_info(struct server *, const char *field);

/* How often commands ran, inside scripts too, without those by which servers and tests look
 * after each other. redis_calls counts one command: "evalsha", "client|kill". */
int64_t redis_work(struct server *);
int64_t redis_calls(struct server *, const char *command);
int64_t redis_errors(struct server *, const char *word); /* answers that began with it */
int64_t redis_time_us(struct server *);                  /* TIME */

#endif
