/* redis_fault.c: starting, and what most fault cases end with. */
#include "redis_fault.h"

#include <stdio.h>
#include <string.h>

struct server server;
struct proxy *proxy;

void use_server(void)
{
    redis_run(&server);
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://127.0.0.1:%d", server.port);
}

void use_plain_server(void)
{
    redis_init(&server);
    use_server();
}

void use_proxied_server(const char *params)
{
    redis_start(&server);
    proxy = proxy_new(server.port);
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://127.0.0.1:%d%s",
             proxy_port(proxy), params);
}

hf_client *opened_at(const char *url, const hf_options *options)
{
    hf_client *c = NULL;

    CHECK_RC(rig.face->open(url, options, &c, E()), 0);
    return c;
}

hf_client *opened_directly(void)
{
    char url[128];

    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", server.port);
    return opened_at(url, NULL);
}

void done(void)
{
    if (proxy)
        proxy_free(proxy);
    server_remove(&server);
}

struct two hold_and_wait(int64_t ttl_ms)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = ttl_ms);
    struct two t = { .a = prompted(), .b = opened() };

    t.held = taken(t.a, nm("n"), req);
    t.fence = hf_lease_fence(t.held);
    t.waits = queued(t.b, nm("n"), 1, req);
    return t;
}

void two_renewed(const struct two *t)
{
    for (int i = 0; i < 2; i++) {
        int64_t left = hf_lease_remaining_ms(t->held), before;

        AWAIT((CHECK_RC(hf_lease_check(t->held), 0), CHECK(!pend_done(t->waits)),
               before = left, left = hf_lease_remaining_ms(t->held), left > before));
    }
}

static void finish(struct two *t)
{
    AWAIT(line_is(t->b, nm("n"), 0, 0));
    closed(t->a);
    closed(t->b);
}

void two_go_on(struct two *t)
{
    hf_lease *next;

    CHECK_RC(hf_lease_check(t->held), 0);
    CHECK(!pend_done(t->waits));
    given(t->held);
    next = pend_granted(t->waits);
    CHECK_NUM(hf_lease_fence(next), >, t->fence);
    CHECK_RC(hf_lease_check(next), 0);
    given(next);
    finish(t);
}

void two_lost(struct two *t)
{
    hf_lease *next;

    AWAIT(hf_lease_state(t->held) == HF_LOST);
    CHECK_RC(hf_lease_check(t->held), HF_ELOST);
    next = pend_granted(t->waits);
    CHECK_NUM(hf_lease_fence(next), >, t->fence);
    CHECK_RC(hf_lease_check(next), 0);
    CHECK_RC(rig.face->release(t->held, E()), HF_ELOST);
    CHECK_RC(hf_lease_check(next), 0); /* whose place it was takes nothing away */
    CHECK(line_is(t->b, nm("n"), 1, 0));
    given(next);
    finish(t);
}

const char *key_of(struct server *s, const char *kind, const char *name)
{
    static char key[1024];
    redisReply *keys = redis_ask(s, "KEYS holdfast:*:%s:%s", kind, name);

    CHECK(keys->type == REDIS_REPLY_ARRAY && keys->elements <= 1);
    snprintf(key, sizeof(key), "%s", keys->elements ? keys->element[0]->str : "");
    freeReplyObject(keys);
    return key;
}

hf_client *connected_by_proxy(const char *user, int64_t answer_ms)
{
    char url[128];
    hf_client *c;

    snprintf(url, sizeof(url), "redis://%s127.0.0.1:%d?connect_timeout=%lldms", user,
             proxy_port(proxy), (long long)answer_ms);
    c = opened_at(url, HF_OPTIONS(.drive = HF_DRIVE_PROMPT));
    CHECK_RC(tried(c, nm("other"), NULL), 0);
    return c;
}
