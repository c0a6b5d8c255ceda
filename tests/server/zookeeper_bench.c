/* zookeeper_bench.c: `holdfast bench` on a ZooKeeper server, briefly: every case gives its
 * row with the raw limit beside it, whatever root and login the URL names, and nothing
 * stays behind but empty containers, which the server removes. */
#include "rows.h"
#include "zookeeper_fault.h"

#include <stdio.h>
#include <string.h>

static void bench_rows(void)
{
    char url[512];
    struct hand h;
    int port;

    use_one("");
    port = servers->servers[0].port;
    snprintf(url, sizeof(url), "zk://127.0.0.1:%d", port);
    rows_of(url, "zk", "uncontended inflight contended hand-off");
    snprintf(url, sizeof(url), "zk://judge:a%%3Ab%%2Fc@127.0.0.1:%d/of/bench/?ttl=4s",
             port);
    rows_of(url, "zk", "uncontended inflight hand-off");
    snprintf(url, sizeof(url), "zk://127.0.0.1:%d/by-option?auth=judge:s3cr%%40t", port);
    rows_of(url, "zk", "uncontended");
    h = hand_open(port, TTL_MS);
    CHECK_STR(hand_children(&h, "/holdfast"), "holdfast-bench\n");
    CHECK_STR(hand_children(&h, "/by-option"), "");
    hand_close(&h);
    AWAIT(zk_number(&servers->servers[0], "mntr", "zk_ephemerals_count\t") == 0);
    done();
}

static void verbs(void)
{
    char url[512];

    use_one("");
    snprintf(url, sizeof(url), "zk://127.0.0.1:%d/verbs?ttl=8s", servers->servers[0].port);
    verbs_on(url);
    done();
}

const struct test_case bench_cases[] = {
    { "verbs", verbs, ON_BLOCKING, 0, CASE_LONG },
    { "bench_rows", bench_rows, ON_BLOCKING, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
