/* redis_fake.c: see redis_fake.h. */
#include "redis_fake.h"

#include "broken.h"
#include "check.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

_Atomic(const char *) redis_fake_error;
_Atomic(int) redis_fake_master;

/* Up for long enough that a restart guard lets it vote. */
static const char info[] =
    "redis_version:7.0.0\r\nrun_id:0123456789abcdef\r\nrole:master\r\n"
    "uptime_in_seconds:1000000\r\naof_enabled:1\r\n";

static bool greets(const char *word)
{
    static const char *const words[] = { "AUTH",   "SELECT",  "CLIENT",
                                         "CONFIG", "COMMAND", "SCRIPT" };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(word, words[i]) == 0)
            return true;
    return false;
}

static void answer(int fd, const redisReply *command)
{
    const char *word = command->elements > 0 ? command->element[0]->str : "";
    char text[512];
    int n;

    if (strcasecmp(word, "INFO") == 0)
        n = snprintf(text, sizeof(text), "$%zu\r\n%s\r\n", sizeof(info) - 1, info);
    else if (strcasecmp(word, "SENTINEL") == 0)
        n = snprintf(text, sizeof(text), "*2\r\n$9\r\n127.0.0.1\r\n$5\r\n%05d\r\n",
                     redis_fake_master);
    else if (strcasecmp(word, "CLUSTER") == 0)
        n = snprintf(text, sizeof(text),
                     "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n",
                     redis_fake_master);
    else if (greets(word))
        n = snprintf(text, sizeof(text), "+OK\r\n");
    else
        n = snprintf(text, sizeof(text), "-%s\r\n", redis_fake_error);
    send(fd, text, (size_t)n, MSG_NOSIGNAL);
}

void redis_fake_talk(int fd)
{
    redisReader *reader = redisReaderCreate();
    char in[8192];
    ssize_t n;

    while ((n = recv(fd, in, sizeof(in), 0)) > 0) {
        void *command = NULL;

        CHECK(redisReaderFeed(reader, in, (size_t)n) == REDIS_OK);
        while (redisReaderGetReply(reader, &command) == REDIS_OK && command) {
            answer(fd, command);
            freeReplyObject(command);
        }
    }
    redisReaderFree(reader);
}

void redis_only_errors(const char *url)
{
    static const struct {
        const char *error;
        int code;
    } cases[] = { { "NOPERM this user has no permissions", HF_EAUTH },
                  { "OOM command not allowed when used memory > 'maxmemory'.", HF_EFULL },
                  { "ERR something else", HF_EPROTO } };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        redis_fake_error = cases[i].error;
        only_errors(url, cases[i].code);
    }
}
