/* setup_redlock.c: independent Redis servers: Redlock on three and five of them, and the
 * plain lock on one. They were all started just now, so the guard against forgetful nodes
 * is off; a fault test has it on. */
#include "check.h"
#include "setup_redis.h"

#include <stdio.h>

#define REDLOCK_CAPS (HF_CAP_DEADLINE | HF_CAP_FENCE | HF_CAP_KEEP | HF_CAP_TTL)

void redlock_start(struct place *p, size_t n, const char *query)
{
    struct redis_place *r = redis_place_new(p, n);
    int len = snprintf(p->url, sizeof(p->url), "redlock://");

    for (size_t i = 0; i < n; i++) {
        redis_run(&r->servers[i]);
        len += snprintf(p->url + len, sizeof(p->url) - (size_t)len, "%s127.0.0.1:%d",
                        i ? "," : "", r->servers[i].port);
    }
    len += snprintf(p->url + len, sizeof(p->url) - (size_t)len, "%s", query);
    CHECK(len < (int)sizeof(p->url));
}

static void three_start(struct place *p)
{
    redlock_start(p, 3, "?restart_guard=off");
}

static void five_start(struct place *p)
{
    redlock_start(p, 5, "?restart_guard=off");
}

static void plain_start(struct place *p)
{
    struct redis_place *r = redis_place_new(p, 1);

    redis_run(&r->servers[0]);
    snprintf(p->url, sizeof(p->url), "redis://127.0.0.1:%d?mode=plain", r->servers[0].port);
}

static void unusable(struct place *p, char *url, size_t size)
{
    struct redis_place *r = p->own;

    snprintf(url, size, "redlock://127.0.0.1:%d", r->dead_port);
}

#define REDLOCK_SETUP(of, name_, start_, traits_)                                          \
    const struct setup of = {                                                              \
        .name = name_,                                                                     \
        .caps = REDLOCK_CAPS,                                                              \
        .traits = traits_,                                                                 \
        .start = start_,                                                                   \
        .stop = redis_place_stop,                                                          \
        .restart = redis_place_restart,                                                    \
        .block = redis_place_block,                                                        \
        .unblock = redis_place_unblock,                                                    \
        .unusable = unusable,                                                              \
        .work = redis_place_work,                                                          \
    }

REDLOCK_SETUP(setup_redlock, "redlock", five_start, 0);
REDLOCK_SETUP(setup_redlock_three, "redlock-three", three_start, SETUP_TOPOLOGY);
REDLOCK_SETUP(setup_redis_plain, "redis-plain", plain_start, 0);
