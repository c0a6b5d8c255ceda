/* redis_bench.c: `holdfast bench` on a Redis server, briefly: every case gives its row
 * with the raw limit beside it, whatever way the URL leads to the server, and nothing
 * stays behind. How fast it is, is not asked here. */
#include "counts.h"

#include "rows.h"

#include <stdio.h>

static void bench(const char *url)
{
    rows_of(url, "redis", "uncontended inflight contended hand-off server");
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

static void verbs(void)
{
    char url[512];

    redis_start(&server);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d?ttl=6s", server.port);
    verbs_on(url);
    snprintf(url, sizeof(url), "redis+unix://%s?db=2&ttl=6s", server.socket);
    verbs_on(url);
    end();
}

const struct test_case bench_cases[] = {
    { "verbs", verbs, ON_BLOCKING, 0, CASE_LONG },
    { "bench_rows", bench_rows, ON_BLOCKING, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
