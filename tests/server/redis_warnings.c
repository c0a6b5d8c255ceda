/* redis_warnings.c: the command shows what the library warns of, if it is asked to. */
#include "redis.h"
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static struct server server;

/* What `holdfast` with these words says on standard error. */
static const char *said(const char *words)
{
    static char text[4096];
    char command[1024];
    FILE *f;

    CHECK(snprintf(command, sizeof(command), "exec '%s' %s 2>&1 >/dev/null", HOLDFAST,
                   words) < (int)sizeof(command));
    f = popen(command, "r");
    CHECK(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = 0;
    CHECK(pclose(f) == 0);
    return text;
}

static void warnings_shown(void)
{
    static const char *const loud[] = { "run -v n true", "-v run n true", "-v ls",
                                        "--verbose show n", "-v wait n" };
    static const char *const quiet[] = { "run n true", "ls", "show n", "wait n" };
    char url[64];

    redis_init(&server);
    redis_config(&server, "maxmemory 100mb\nmaxmemory-policy allkeys-lru");
    redis_run(&server);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", server.port);
    setenv("HOLDFAST_URL", url, 1);
    for (size_t i = 0; i < sizeof(loud) / sizeof(loud[0]); i++)
        CHECK(strstr(said(loud[i]), "holdfast: warning: 127.0.0.1:"));
    CHECK(strstr(said(loud[0]), "allkeys-lru"));
    for (size_t i = 0; i < sizeof(quiet) / sizeof(quiet[0]); i++)
        CHECK_STR(said(quiet[i]), "");
    server_remove(&server);
}

const struct test_case redis_warnings_cases[] = {
    { "warnings_shown", warnings_shown, ON_BLOCKING, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
