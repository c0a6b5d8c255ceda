/* redis_bench.c: `holdfast bench` on a Redis server, briefly: every case gives its row
 * with the raw limit beside it, whatever way the URL leads to the server, and nothing
 * stays behind. How fast it is, is not asked here. */
#include "counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number of a row; fails if it is null or missing. */
static double number(const char *row, const char *key)
{
    char quoted[64];
    const char *at;

    snprintf(quoted, sizeof(quoted), "\"%s\": ", key);
    at = strstr(row, quoted);
    if (!at || strncmp(at + strlen(quoted), "null", 4) == 0)
        check_failed(__FILE__, __LINE__, "no %s in %s", key, row);
    return strtod(at + strlen(quoted), NULL);
}

static void bench(const char *url)
{
    static const char *const cases[] = { "uncontended", "inflight", "contended",
                                         "contended",   "hand-off", "server" };
    char command[1024], row[1024], want[64];
    size_t n = 0;
    FILE *f;

    snprintf(command, sizeof(command),
             "%s -u '%s' bench --json --time 100ms uncontended inflight contended hand-off "
             "server",
             HOLDFAST, url);
    f = popen(command, "r");
    CHECK(f);
    for (; fgets(row, sizeof(row), f); n++) {
        CHECK_NUM(n, <, sizeof(cases) / sizeof(cases[0]));
        snprintf(want, sizeof(want), "{\"case\": \"%s\", \"backend\": \"redis", cases[n]);
        CHECK(strncmp(row, want, strlen(want)) == 0);
        CHECK(number(row, "pairs_per_s") > 0 && number(row, "raw_pairs_per_s") > 0);
        CHECK(number(row, "ratio_to_raw") > 0);
    }
    CHECK_NUM(pclose(f), ==, 0);
    CHECK_NUM(n, ==, sizeof(cases) / sizeof(cases[0]));
}

static void bench_rows(void)
{
    char url[512];

    redis_init(&server);
    redis_config(&server, "user judge on >a:b/c@d ~* &* +@all");
    redis_run(&server);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", server.port);
    bench(url);
    snprintf(url, sizeof(url), "redis://judge:a%%3Ab%%2Fc%%40d@127.0.0.1:%d/3?ttl=20s",
             server.port);
    bench(url);
    snprintf(url, sizeof(url), "redis+unix://%s?db=2", server.socket);
    bench(url);
    CHECK_STR(redis_text(&server, "KEYS holdfast-bench*"), "");
    CHECK_STR(redis_text(&server, "KEYS *:l:*"), "");
    end();
}

const struct test_case bench_cases[] = {
    { "bench_rows", bench_rows, ON_BLOCKING, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
