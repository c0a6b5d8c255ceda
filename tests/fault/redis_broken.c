/* redis_broken.c: what broken.h says, on one Redis server, under Sentinel and in a Cluster.
 */
#include "broken.h"
#include "redis_fake.h"
#include "redis_fault.h"

#include <stdio.h>
#include <string.h>

static void release_is_under_way(void)
{
    hf_client *direct;

    use_proxied_server("?" BROKEN_TIMEOUT);
    direct = opened_directly();
    release_breaks(&proxy, 1, direct);
    closed(direct);
    done();
}

/* The sentinel only names the master, which is a real one. */
static void release_under_sentinel(void)
{
    struct fake *sentinel = fake_new(redis_fake_talk);
    hf_client *direct;

    use_proxied_server("");
    redis_fake_error = "ERR unknown command";
    redis_fake_master = proxy_port(proxy);
    snprintf(rig.place->url, sizeof(rig.place->url),
             "redis+sentinel://127.0.0.1:%d/mymaster?" BROKEN_TIMEOUT, fake_port(sentinel));
    direct = opened_directly();
    release_breaks(&proxy, 1, direct);
    closed(direct);
    fake_free(sentinel);
    done();
}

/* One node, which names the proxy as its address. The direct way in is that of a server:
 * this user cannot see that it is a cluster. */
static void release_in_cluster(void)
{
    hf_client *direct;
    char url[128];

    redis_init(&server);
    proxy = proxy_new(server.port);
    redis_config(&server, "cluster-enabled yes\ncluster-announce-ip 127.0.0.1");
    redis_config(&server, "cluster-announce-port %d", proxy_port(proxy));
    redis_config(&server, "user app on >pw ~* &* +@all -info");
    redis_run(&server);
    redis_do(&server, "CLUSTER ADDSLOTSRANGE 0 16383");
    AWAIT(strstr(redis_text(&server, "CLUSTER INFO"), "cluster_state:ok"));
    snprintf(rig.place->url, sizeof(rig.place->url),
             "redis+cluster://127.0.0.1:%d?" BROKEN_TIMEOUT, proxy_port(proxy));
    snprintf(url, sizeof(url), "redis://app:pw@127.0.0.1:%d", server.port);
    direct = opened_at(url, NULL);
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
    static const char *const forms[][2] = { { "redis", "" },
                                            { "redis+sentinel", "/m" },
                                            { "redis+cluster", "" } };
    struct fake *f = fake_new(redis_fake_talk);
    char url[128];

    redis_fake_master = fake_port(f);
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        snprintf(url, sizeof(url), "%s://127.0.0.1:%d%s?" BROKEN_TIMEOUT, forms[i][0],
                 fake_port(f), forms[i][1]);
        redis_only_errors(url);
    }
    fake_free(f);
}

const struct test_case redis_broken_cases[] = {
    { "release-breaks", release_is_under_way, ON_ALL, 0, 0 },
    { "release-breaks-sentinel", release_under_sentinel, ON_ALL, 0, 0 },
    { "release-breaks-cluster", release_in_cluster, ON_ALL, 0, 0 },
    { "short-timeout", timeout_is_short, ON_ALL, 0, 0 },
    { "errors-only", errors_only, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
