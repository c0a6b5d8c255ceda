/* redis_setups.c: the set-ups themselves: each starts, remembers over a restart, can be
 * blocked, and the larger ones replace a master that dies. No holdfast here. */
#include "setup_redis.h"

#include "rig.h"

#include <stdio.h>
#include <string.h>

/* Does it answer within a moment? */
static bool answers(struct server *s)
{
    struct timeval moment = { .tv_usec = 300000 };
    redisContext *c = redisConnectUnixWithTimeout(s->socket, moment);
    redisReply *r;

    CHECK(c && !c->err);
    redisSetTimeout(c, moment);
    r = redisCommand(c, "PING");
    freeReplyObject(r);
    redisFree(c);
    return r != NULL;
}

static void writes(struct redis_place *r)
{
    for (size_t i = 0; i < r->data; i++)
        if (strcmp(redis_info(&r->servers[i], "role"), "master") == 0) {
            redis_do(&r->servers[i], "FUNCTION FLUSH"); /* written to disk, of no slot */
            return;
        }
}

static void one(const struct setup *setup)
{
    struct place p = { .pid = 0 };
    struct redis_place *r;
    int64_t start = now_ms(), work;
    char url[600];

    setup->start(&p);
    fprintf(stderr, "%s: %lld ms, %s\n", setup->name, (long long)(now_ms() - start), p.url);
    r = p.own;
    work = setup->work(&p);
    writes(r);
    CHECK_NUM(setup->work(&p), >, work);
    setup->block(&p);
    for (size_t i = 0; i < r->n; i++)
        CHECK(!answers(&r->servers[i]));
    setup->unblock(&p);
    for (size_t i = 0; i < r->n; i++)
        AWAIT(answers(&r->servers[i]));
    start = now_ms();
    setup->restart(&p);
    fprintf(stderr, "%s: restarted in %lld ms\n", setup->name,
            (long long)(now_ms() - start));
    setup->unusable(&p, url, sizeof(url));
    CHECK(strcmp(url, p.url) != 0);
    setup->stop(&p);
}

static void plain(void)
{
    one(&setup_redis);
}

static void by_unix(void)
{
    one(&setup_redis_unix);
}

static void tls(void)
{
    one(&setup_redis_tls);
}

static void acl(void)
{
    one(&setup_redis_acl);
}

static void sentinel(void)
{
    one(&setup_redis_sentinel);
}

static void cluster(void)
{
    one(&setup_redis_cluster);
}

static void sentinel_fails_over(void)
{
    struct place p = { .pid = 0 };
    struct redis_place *r;
    struct server *old;
    int64_t start;

    redis_sentinel_start(&p, 1500);
    r = p.own;
    old = redis_sentinel_master(r);
    CHECK(old == &r->servers[0]);
    redis_do(old, "SET a 1");
    redis_replicated(r, old);
    start = now_ms();
    server_kill(old);
    AWAIT(redis_sentinel_master(r) != old);
    AWAIT(strcmp(redis_info(redis_sentinel_master(r), "role"), "master") == 0);
    fprintf(stderr, "failed over in %lld ms\n", (long long)(now_ms() - start));
    CHECK_STR(redis_text(redis_sentinel_master(r), "GET a"), "1");
    redis_run(old);
    AWAIT(strcmp(redis_info(old, "role"), "slave") == 0);
    setup_redis_sentinel.stop(&p);
}

static void cluster_fails_over(void)
{
    struct place p = { .pid = 0 };
    struct redis_place *r;
    int64_t start;

    redis_cluster_start(&p, 1500);
    r = p.own;
    CHECK(redis_cluster_owner(r, 0) == &r->servers[0]);
    CHECK(redis_cluster_owner(r, 16383) == &r->servers[2]);
    start = now_ms();
    server_kill(&r->servers[2]);
    AWAIT(redis_cluster_owner(r, 16383) != &r->servers[2]);
    fprintf(stderr, "failed over in %lld ms\n", (long long)(now_ms() - start));
    CHECK(redis_cluster_owner(r, 16383) == &r->servers[5]);
    redis_run(&r->servers[2]);
    AWAIT(strcmp(redis_info(&r->servers[2], "role"), "slave") == 0);
    setup_redis_cluster.stop(&p);
}

const struct test_case redis_setups_cases[] = {
    { "setup-plain", plain, ON_ALL, 0, 0 },
    { "setup-unix", by_unix, ON_ALL, 0, 0 },
    { "setup-tls", tls, ON_ALL, 0, 0 },
    { "setup-acl", acl, ON_ALL, 0, 0 },
    { "setup-sentinel", sentinel, ON_ALL, 0, 0 },
    { "setup-cluster", cluster, ON_ALL, 0, 0 },
    { "setup-sentinel-fails-over", sentinel_fails_over, ON_ALL, 0, 0 },
    { "setup-cluster-fails-over", cluster_fails_over, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
