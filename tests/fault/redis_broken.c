/* redis_broken.c: what broken.h says, on one Redis server. */
#include "broken.h"
#include "redis_fake.h"
#include "redis_fault.h"

#include <stdio.h>

static void release_is_under_way(void)
{
    hf_client *direct;

    use_proxied_server("?" BROKEN_TIMEOUT);
    direct = opened_directly();
    release_breaks(&proxy, 1, direct);
    closed(direct);
    done();
}

static void timeout_is_short(void)
{
    use_proxied_server("?" SHORT_TIMEOUT);
    short_timeout(proxy);
    done();
}

static void errors_only(void)
{
    struct fake *f = fake_new(redis_fake_talk);
    char url[128];

    snprintf(url, sizeof(url), "redis://127.0.0.1:%d?" BROKEN_TIMEOUT, fake_port(f));
    redis_only_errors(url);
    fake_free(f);
}

const struct test_case redis_broken_cases[] = {
    { "release-breaks", release_is_under_way, ON_ALL, 0, 0 },
    { "short-timeout", timeout_is_short, ON_ALL, 0, 0 },
    { "errors-only", errors_only, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
