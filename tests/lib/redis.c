/* redis.c: configures, starts and asks Redis servers.
 *
 * The program is redis-server from the PATH, or the same program under the name by which a
 * distribution's tools bring it (redis-check-rdb: it behaves by the name it is called), so
 * no package with a service is needed. Everything is written to disk before it is answered
 * (appendfsync always): what a killed server must remember, it remembers. Goes wrong: a
 * server that does not answer in time or ends by itself fails the test, and its log is
 * printed.
 */
#include "redis.h"

#include "check.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char base_config[] = "bind 127.0.0.1\n"
                                  "daemonize no\n"
                                  "save \"\"\n"
                                  "appendonly yes\n"
                                  "appendfsync always\n"
                                  "aof-use-rdb-preamble yes\n"
                                  "repl-diskless-sync yes\n"
                                  "repl-diskless-sync-delay 0\n"
                                  "loglevel notice\n"
                                  "logfile \"\"\n"
                                  "dir .\n";

void redis_init(struct server *s)
{
    server_init(s, "redis");
    file_put(s->dir, "redis.conf", "w", base_config);
    redis_config(s, "port %d", s->port);
    redis_config(s, "unixsocket %s", s->socket);
}

void redis_config(struct server *s, const char *line, ...)
{
    char text[2048];
    va_list ap;
    int n;

    va_start(ap, line);
    n = vsnprintf(text, sizeof(text) - 1, line, ap);
    va_end(ap);
    CHECK(n > 0 && n < (int)sizeof(text) - 1);
    strcpy(text + n, "\n");
    file_put(s->dir, "redis.conf", "a", text);
}

static const char *program(void)
{
    static char found[512];
    static const char *const names[] = { "redis-server", "redis-check-rdb" };
    const char *path = getenv("PATH");

    for (size_t i = 0; !found[0] && i < 2; i++)
        for (const char *p = path; p && *p; p += strcspn(p, ":"), p += *p == ':') {
            snprintf(found, sizeof(found), "%.*s/%s", (int)strcspn(p, ":"), p, names[i]);
            if (access(found, X_OK) == 0)
                break;
            found[0] = 0;
        }
    if (!found[0])
        check_failed(__FILE__, __LINE__,
                     "neither redis-server nor redis-check-rdb in PATH");
    return found;
}

/* NULL: nobody there. */
static redisContext *enter(struct server *s)
{
    redisContext *c = redisConnectUnixWithTimeout(
        s->socket, (struct timeval){ .tv_sec = LIMIT_MS / 1000 });
    redisReply *r;
    char user[64], password[64];

    signal(SIGPIPE, SIG_IGN); /* hiredis writes to servers that are just going */
    CHECK(c);
    if (c->err) {
        redisFree(c);
        return NULL;
    }
    CHECK(redisSetTimeout(c, (struct timeval){ .tv_sec = LIMIT_MS / 1000 }) == REDIS_OK);
    if (sscanf(s->login, "%63s %63s", user, password) == 2) {
        r = redisCommand(c, "AUTH %s %s", user, password);
        freeReplyObject(r);
    }
    return c;
}

static bool answers(struct server *s)
{
    redisContext *c = enter(s);
    redisReply *r = c ? redisCommand(c, "PING") : NULL;
    bool ok = r && !(r->type == REDIS_REPLY_ERROR && !strncmp(r->str, "LOADING", 7));

    freeReplyObject(r);
    if (c)
        redisFree(c);
    return ok;
}

void redis_run(struct server *s)
{
    char *argv[] = { (char *)"redis-server", (char *)"redis.conf",
                     (char *)(s->sentinel ? "--sentinel" : NULL), NULL };

    server_spawn(s, program(), argv);
    AWAIT((server_must_run(s), answers(s)));
}

void redis_start(struct server *s)
{
    redis_init(s);
    redis_run(s);
}

void redis_restart(struct server *s)
{
    server_kill(s);
    redis_run(s);
}

void redis_restart_empty(struct server *s)
{
    char path[256];

    server_kill(s);
    snprintf(path, sizeof(path), "%s/appendonlydir", s->dir);
    folder_remove(path);
    snprintf(path, sizeof(path), "%s/dump.rdb", s->dir);
    unlink(path);
    redis_run(s);
}

/* ---- asking ---------------------------------------------------------------------- */

/* Sentinels throw everybody out of a server whose part they change: then we ask once more.
 */
static bool may_ask_again(const char *fmt)
{
    static const char *const questions[] = { "INFO", "GET", "EXISTS", "CLIENT LIST" };

    for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++)
        if (strncmp(fmt, questions[i], strlen(questions[i])) == 0)
            return true;
    return false;
}

static redisReply *ask(struct server *s, const char *fmt, va_list ap)
{
    redisReply *r = NULL;

    for (int i = 0; !r; i++) {
        redisContext *c = enter(s);
        va_list copy;

        if (!c)
            check_failed(__FILE__, __LINE__, "the server on port %d is not there", s->port);
        va_copy(copy, ap);
        r = redisvCommand(c, fmt, copy);
        va_end(copy);
        if (!r && (i == 5 || !may_ask_again(fmt)))
            check_failed(__FILE__, __LINE__, "%s: port %d: %s", fmt, s->port, c->errstr);
        redisFree(c);
    }
    return r;
}

redisReply *redis_ask(struct server *s, const char *fmt, ...)
{
    redisReply *r;
    va_list ap;

    va_start(ap, fmt);
    r = ask(s, fmt, ap);
    va_end(ap);
    return r;
}

static redisReply *good(struct server *s, const char *fmt, va_list ap)
{
    redisReply *r = ask(s, fmt, ap);

    if (r->type == REDIS_REPLY_ERROR)
        check_failed(__FILE__, __LINE__, "%s: port %d: %s", fmt, s->port, r->str);
    return r;
}

void redis_do(struct server *s, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    freeReplyObject(good(s, fmt, ap));
    va_end(ap);
}

int64_t redis_number(struct server *s, const char *fmt, ...)
{
    redisReply *r;
    int64_t n;
    va_list ap;

    va_start(ap, fmt);
    r = good(s, fmt, ap);
    va_end(ap);
    CHECK(r->type == REDIS_REPLY_INTEGER);
    n = r->integer;
    freeReplyObject(r);
    return n;
}

static char text[1 << 18];

static void add_text(const redisReply *r)
{
    size_t at = strlen(text);

    switch (r->type) {
    case REDIS_REPLY_INTEGER:
        snprintf(text + at, sizeof(text) - at, "%s%lld", at ? " " : "", r->integer);
        break;
    case REDIS_REPLY_ARRAY:
        for (size_t i = 0; i < r->elements; i++)
            add_text(r->element[i]);
        break;
    case REDIS_REPLY_NIL:
        break;
    default:
        snprintf(text + at, sizeof(text) - at, "%s%s", at ? " " : "", r->str);
    }
}

const char *redis_text(struct server *s, const char *fmt, ...)
{
    redisReply *r;
    va_list ap;

    va_start(ap, fmt);
    r = good(s, fmt, ap);
    va_end(ap);
    text[0] = 0;
    add_text(r);
    freeReplyObject(r);
    return text;
}

const char *redis_info(struct server *s, const char *field)
{
    const char *all = redis_text(s, "INFO everything"), *at = all;
    static char value[512];
    size_t n = strlen(field);

    value[0] = 0;
    while (*at) {
        size_t line = strcspn(at, "\r\n");

        if (line > n && at[n] == ':' && strncmp(at, field, n) == 0)
            snprintf(value, sizeof(value), "%.*s", (int)(line - n - 1), at + n + 1);
        at += line;
        at += strspn(at, "\r\n");
    }
    return value;
}

/* ---- counting -------------------------------------------------------------------- */

static bool is_housekeeping(const char *command, size_t n)
{
    static const char *const names[] = { "info",  "ping",     "auth",  "hello",
                                         "psync", "replconf", "select" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == n && strncmp(command, names[i], n) == 0)
            return true;
    return false;
}

/* Lines are "cmdstat_client|kill:calls=3,usec=..."; `only` NULL: all but housekeeping. */
static int64_t count_calls(struct server *s, const char *only)
{
    const char *at = redis_text(s, "INFO commandstats");
    int64_t sum = 0;

    while ((at = strstr(at, "cmdstat_"))) {
        size_t n;

        at += strlen("cmdstat_");
        n = strcspn(at, ":");
        if (only ? strlen(only) == n && !strncmp(at, only, n) : !is_housekeeping(at, n)) {
            CHECK(strncmp(at + n, ":calls=", 7) == 0);
            sum += strtoll(at + n + 7, NULL, 10);
        }
    }
    return sum;
}

int64_t redis_work(struct server *s)
{
    return count_calls(s, NULL);
}

int64_t redis_calls(struct server *s, const char *command)
{
    return count_calls(s, command);
}

int64_t redis_errors(struct server *s, const char *word)
{
    char field[64];
    long long n = 0;

    snprintf(field, sizeof(field), "errorstat_%s", word);
    sscanf(redis_info(s, field), "count=%lld", &n);
    return n;
}

int64_t redis_time_us(struct server *s)
{
    long long seconds, us;

    CHECK(sscanf(redis_text(s, "TIME"), "%lld %lld", &seconds, &us) == 2);
    return (int64_t)seconds * 1000000 + us;
}
