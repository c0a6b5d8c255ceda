/* command.c: commands in the form that Redis reads them: an array of byte strings. Built
 * into one buffer that is reused; if memory runs out, no part of the command is sent. */
#include "driver/redis/redis.h"
#include "util/text.h"

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

enum { COUNT_MAX = 1 + 20 + 2 };

/* A mark, a number, CR LF; at most COUNT_MAX bytes. */
static char *put_count(char *to, char mark, size_t number)
{
    *to++ = mark;
    if (number >= 100) {
        to += hf__decimal(to, number);
    } else { /* nearly all are as short as that */
        if (number >= 10)
            *to++ = (char)('0' + number / 10);
        *to++ = (char)('0' + number % 10);
    }
    *to++ = '\r';
    *to++ = '\n';
    return to;
}

void hf__redis_command_begin(struct command *c, size_t args)
{
    char *to = room_for(c, COUNT_MAX);

    if (to)
        c->len = (size_t)(put_count(to, '*', args) - c->buf);
}

void hf__redis_command_arg(struct command *c, const void *bytes, size_t n)
{
    char *to = room_for(c, COUNT_MAX + n + 2);

    if (!to)
        return;
    to = put_count(to, '$', n);
    if (n > 0)
        memcpy(to, bytes, n);
    memcpy(to + n, "\r\n", 2);
    c->len = (size_t)(to + n + 2 - c->buf);
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
    char digits[1 + 20];
    bool minus = number < 0;

    digits[0] = '-';
    hf__redis_command_arg(
        c, digits + !minus,
        minus + hf__decimal(digits + 1, minus ? 0 - (uint64_t)number : (uint64_t)number));
}

void hf__redis_answer_ignored(struct redis *r, struct redis_call *q,
                              const redisReply *reply)
{
    (void)r;
    (void)q;
    (void)reply;
}
