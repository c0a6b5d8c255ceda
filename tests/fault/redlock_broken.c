/* redlock_broken.c: what broken.h says, on three independent Redis servers. */
#include "broken.h"
#include "redis_fake.h"
#include "redlock_fault.h"

#include <stdio.h>

enum { THREE = 3 };

static void release_is_under_way(void)
{
    hf_client *direct = NULL;
    char url[256];

    use_proxied_nodes(THREE, "?restart_guard=off&" BROKEN_TIMEOUT);
    snprintf(url, sizeof(url),
             "redlock://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d?restart_guard=off",
             servers[0].port, servers[1].port, servers[2].port);
    CHECK_RC(rig.face->open(url, NULL, &direct, E()), 0);
    await_marks(direct);
    release_breaks(proxies, THREE, direct);
    closed(direct);
    nodes_done();
}

static void errors_only(void)
{
    struct fake *f[THREE];
    char url[256];

    for (size_t i = 0; i < THREE; i++)
        f[i] = fake_new(redis_fake_talk);
    snprintf(url, sizeof(url),
             "redlock://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d?" BROKEN_TIMEOUT,
             fake_port(f[0]), fake_port(f[1]), fake_port(f[2]));
    redis_only_errors(url);
    for (size_t i = 0; i < THREE; i++)
        fake_free(f[i]);
}

const struct test_case redlock_broken_cases[] = {
    { "release-breaks", release_is_under_way, ON_ALL, 0, 0 },
    { "errors-only", errors_only, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
