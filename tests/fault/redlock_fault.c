/* redlock_fault.c: starting nodes, and what most cases end with. */
#include "redlock_fault.h"

#include <stdio.h>
#include <string.h>

struct server servers[FIVE];
struct proxy *proxies[FIVE];
static size_t nodes;

static void make_url(char *url, size_t size, const char *params)
{
    int len = snprintf(url, size, "redlock://");

    for (size_t i = 0; i < nodes; i++)
        len += snprintf(url + len, size - (size_t)len, "%s127.0.0.1:%d", i ? "," : "",
                        proxies[i] ? proxy_port(proxies[i]) : servers[i].port);
    len += snprintf(url + len, size - (size_t)len, "%s", params);
    CHECK((size_t)len < size);
}

static void start(size_t n, bool proxied, const char *params)
{
    nodes = n;
    for (size_t i = 0; i < n; i++) {
        redis_init(&servers[i]);
        redis_config(&servers[i], "appendfsync everysec"); /* or it is trusted at once */
        server_clock_able(&servers[i]);
        redis_run(&servers[i]);
        proxies[i] = proxied ? proxy_new(servers[i].port) : NULL;
    }
    make_url(rig.place->url, sizeof(rig.place->url), params);
}

void use_nodes(size_t n, const char *params)
{
    start(n, false, params);
}

void use_proxied_nodes(size_t n, const char *params)
{
    start(n, true, params);
}

hf_client *opened_with_params(const char *params)
{
    hf_client *c = NULL;
    char url[512];

    make_url(url, sizeof(url), params);
    CHECK_RC(rig.face->open(url, NULL, &c, E()), 0);
    return c;
}

void nodes_done(void)
{
    for (size_t i = 0; i < nodes; i++) {
        if (proxies[i])
            proxy_free(proxies[i]);
        server_remove(&servers[i]);
    }
}

size_t nodes_with(const char *key)
{
    size_t n = 0;

    for (size_t i = 0; i < nodes; i++)
        n += server_runs(&servers[i]) && redis_number(&servers[i], "EXISTS %s", key) == 1;
    return n;
}

void await_gone(const char *key)
{
    AWAIT(nodes_with(key) == 0);
}

/* A set of nodes is as good as its marks: a new one has them after the first grants. */
void await_marks(hf_client *c)
{
    AWAIT(tried(c, nm("marks"), NULL) == 0 &&
          nodes_with("holdfast:redlock:marks") == nodes);
}

size_t nodes_of(const char *key, const char *value)
{
    size_t n = 0;

    for (size_t i = 0; i < nodes; i++)
        n += server_runs(&servers[i]) &&
             strcmp(redis_text(&servers[i], "GET %s", key), value) == 0;
    return n;
}

struct pair pair_begin(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = HOLD_MS);
    struct pair p = { .a = prompted(), .b = opened() };

    await_marks(p.a);
    p.held = taken(p.a, nm("n"), req);
    AWAIT(nodes_with(nm("n")) == nodes);
    snprintf(p.value, sizeof(p.value), "%s", redis_text(&servers[0], "GET %s", nm("n")));
    p.waits = begun(p.b, nm("n"), HF_FOREVER, req);
    return p;
}

void pair_end(struct pair *p)
{
    uint64_t fence = hf_lease_fence(p->held);
    hf_lease *next;
    int64_t start;

    STAYS(hf_lease_check(p->held) == 0 && !pend_done(p->waits), 2 * HOLD_MS);
    AWAIT(hf_lease_state(p->held) == HF_HELD); /* a late renewal is a risk for a moment */
    start = now_ms();
    given(p->held);
    next = pend_granted(p->waits);
    CHECK_WITHIN(start, SOON_MS);
    CHECK_NUM(hf_lease_fence(next), >, fence);
    CHECK_RC(hf_lease_check(next), 0);
    given(next);
    closed(p->a);
    closed(p->b);
}
