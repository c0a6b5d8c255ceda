/* command.c: commands in the form that Redis reads them: an array of byte strings. Built
 * into one buffer that is reused; if memory runs out, no part of the command is sent. */
#include "driver/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *room_for(struct command *c, size_t n)
{
    if (c->len + n > c->room) {
        size_t room = c->room ? c->room : 1024;
        char *buf;

        while (room < c->len + n)
            room *= 2;
        buf = c->failed ? NULL : realloc(c->buf, room);
        if (!buf) {
            c->failed = true;
            return NULL;
        }
        c->buf = buf;
        c->room = room;
    }
    return c->buf + c->len;
}

/* A mark, a number, CR LF. */
static void put_count(struct command *c, char mark, size_t number)
{
    char digits[24], *p = digits + sizeof digits, *to;
    size_t n;

    *--p = '\n';
    *--p = '\r';
    do
        *--p = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    *--p = mark;
    n = (size_t)(digits + sizeof digits - p);
    to = room_for(c, n);
    if (to) {
        memcpy(to, p, n);
        c->len += n;
    }
}

void hf__redis_command_begin(struct command *c, size_t args)
{
    put_count(c, '*', args);
}

void hf__redis_command_arg(struct command *c, const void *bytes, size_t n)
{
    char *to;

    put_count(c, '$', n);
    to = room_for(c, n + 2);
    if (!to)
        return;
    if (n > 0)
        memcpy(to, bytes, n);
    memcpy(to + n, "\r\n", 2);
    c->len += n + 2;
}

void hf__redis_command_words(struct command *c, const char *words, size_t more)
{
    size_t n = 1;

    for (const char *p = words; (p = strchr(p, ' ')) != NULL; p++)
        n++;
    hf__redis_command_begin(c, n + more);
    for (; n > 0; n--) {
        size_t len = strcspn(words, " ");

        hf__redis_command_arg(c, words, len);
        words += len + 1;
    }
}

void hf__redis_command_text(struct command *c, const char *text)
{
    hf__redis_command_arg(c, text, strlen(text));
}

void hf__redis_command_number(struct command *c, int64_t number)
{
    char digits[24];

    hf__redis_command_arg(
        c, digits, (size_t)snprintf(digits, sizeof digits, "%lld", (long long)number));
}

void hf__redis_answer_ignored(struct redis *r, struct redis_call *q,
                              const redisReply *reply)
{
    (void)r;
    (void)q;
    (void)reply;
}
