/* zookeeper_tls.c: whom we take for the server, and what is said if the server does not
 * take us: an error that tells what is wrong, not a wait. Each way in that is refused
 * differs in one thing from the one that works. */
#include "zookeeper_fault.h"

#include "setup_redis.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { OF_SERVER, OF_STRANGERS }; /* whose authority has signed */
static char dirs[2][200];

struct way {
    const char *host, *ca, *client;
    int rc;
    const char *text;
};

static const char *url_by(const struct way *w)
{
    static char url[900];
    int n = snprintf(url, sizeof(url),
                     "zks://%s:%d/fault?ttl=8s&connect_timeout=20s&tls_ca=%s/ca.crt",
                     w->host, servers->servers[0].port + 10000, w->ca);

    if (w->client)
        n +=
            snprintf(url + n, sizeof(url) - (size_t)n,
                     "&tls_cert=%s/client.crt&tls_key=%s/client.key", w->client, w->client);
    CHECK(n < (int)sizeof(url));
    return url;
}

static void use_secure(void)
{
    servers = zk_place_new(rig.place, 1);
    snprintf(dirs[OF_SERVER], sizeof(dirs[0]), "%s", servers->servers[0].dir);
    snprintf(dirs[OF_STRANGERS], sizeof(dirs[0]), "%s/others", servers->servers[0].dir);
    CHECK(mkdir(dirs[OF_STRANGERS], 0700) == 0);
    for (int i = 0; i < 2; i++)
        certificates_make(dirs[i]);
    certificate_make(dirs[OF_SERVER], "localhost", /* which is not among its names */
                     "subjectAltName=DNS:other.example,IP:127.0.0.1\n");
    zk_secure(servers, "localhost");
    zk_start_all(servers);
}

static void go(const struct way *w)
{
    hf_client *c = opened_at(url_by(w));
    hf_lease *l = NULL;
    int rc = rig.face->acquire(c, "n", LIMIT_MS, NULL, &l, E());

    fprintf(stderr, "%s: %s\n", w->host, last_error()->text);
    CHECK_RC(rc, w->rc);
    CHECK(strstr(last_error()->text, w->text));
    if (l)
        given(l);
    closed(c);
}

static void tls_refusals(void)
{
    const char *good = dirs[OF_SERVER], *bad = dirs[OF_STRANGERS];
    const struct way ways[] = {
        { "127.0.0.1", good, good, 0, "" },
        { "localhost", good, good, HF_EAUTH, "it is for another host name" },
        { "127.0.0.1", bad, good, HF_EAUTH, "signed by an unknown authority" },
        { "127.0.0.1", good, NULL, HF_EAUTH, "requires a client certificate" },
        { "127.0.0.1", good, bad, HF_EAUTH, "the peer refused us" },
    };

    use_secure();
    zk_use_once(url_by(&ways[0]));
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        go(&ways[i]);
    go(&ways[0]);
    done();
}

const struct test_case zookeeper_tls_cases[] = {
    { "tls-refusals", tls_refusals, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
