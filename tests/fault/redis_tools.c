/* redis_tools.c: the tools of the fault tests do what their names say: a fault that never
 * happened would let every test of it pass. No holdfast here, only Redis and its own
 * client.
 */
#include "redis.h"

#include "proxy.h"
#include "rig.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct server server;

static redisContext *through(struct proxy *p)
{
    redisContext *c = redisConnectWithTimeout(
        "127.0.0.1", proxy_port(p), (struct timeval){ .tv_sec = LIMIT_MS / 1000 });

    CHECK(c && !c->err);
    CHECK(redisSetTimeout(c, (struct timeval){ .tv_sec = LIMIT_MS / 1000 }) == REDIS_OK);
    return c;
}

static bool pongs(redisContext *c)
{
    redisReply *r = redisCommand(c, "PING");
    bool ok = r && r->type == REDIS_REPLY_STATUS && !strcmp(r->str, "PONG");

    freeReplyObject(r);
    return ok;
}

static void server_remembers(void)
{
    int64_t start = now_ms();

    redis_start(&server);
    fprintf(stderr, "started in %lld ms\n", (long long)(now_ms() - start));
    redis_do(&server, "SET a 1");
    redis_restart(&server);
    CHECK_STR(redis_text(&server, "GET a"), "1");
    redis_restart_empty(&server);
    CHECK_STR(redis_text(&server, "GET a"), "");
    server_remove(&server);
    CHECK(access(server.dir, F_OK) < 0);
}

static void server_frozen(void)
{
    struct proxy *p;
    redisContext *c;
    redisReply *r;

    redis_start(&server);
    p = proxy_new(server.port);
    c = through(p);
    CHECK(pongs(c));
    server_freeze(&server);
    CHECK(redisSetTimeout(c, (struct timeval){ .tv_usec = 200000 }) == REDIS_OK);
    r = redisCommand(c, "SET a 1");
    CHECK(!r && c->err);
    redisFree(c);
    server_continue(&server);
    AWAIT(redis_number(&server, "EXISTS a") == 1);
    proxy_free(p);
    server_remove(&server);
}

static void server_clock_stepped(void)
{
    static const int64_t steps_ms[] = { 3000, -3000, 60000, -60000, -3600000 };
    int64_t before, after, moved, asked;

    redis_init(&server);
    server_clock_able(&server);
    redis_run(&server);
    for (size_t i = 0; i < sizeof(steps_ms) / sizeof(steps_ms[0]); i++) {
        asked = now_ms();
        before = redis_time_us(&server);
        server_clock_step(&server, steps_ms[i]);
        after = redis_time_us(&server);
        moved = (after - before) / 1000 - steps_ms[i];
        CHECK_NUM(moved, >=, 0);
        CHECK_NUM(moved, <=, now_ms() - asked + 1);
    }
    redis_do(&server, "SET a 1 PX 50000");
    server_clock_step(&server, 60000);
    CHECK_NUM(redis_number(&server, "EXISTS a"), ==, 0);
    server_remove(&server);
}

static void proxy_late(void)
{
    struct proxy *p;
    redisContext *c;

    redis_start(&server);
    p = proxy_new(server.port);
    c = through(p);
    CHECK(pongs(c));
    proxy_freeze(p, PROXY_PRESENT, PROXY_UP);
    CHECK(redisAppendCommand(c, "SET late 1") == REDIS_OK);
    for (int done = 0; !done;)
        CHECK(redisBufferWrite(c, &done) == REDIS_OK);
    AWAIT(proxy_kept(p, PROXY_UP) > 0);
    redisFree(c);
    AWAIT(proxy_open(p) == 0);
    c = through(p); /* a new one passes */
    CHECK(pongs(c));
    CHECK_NUM(redis_number(&server, "EXISTS late"), ==, 0);
    proxy_freeze(p, PROXY_PRESENT, 0);
    AWAIT(redis_number(&server, "EXISTS late") == 1);
    AWAIT(strcmp(redis_info(&server, "connected_clients"), "2") == 0); /* c and this one */
    redisFree(c);
    proxy_free(p);
    server_remove(&server);
}

/* Of "+PONG\r\n", n bytes come, and the end. */
static void proxy_cut_in_half(void)
{
    struct proxy *p;

    redis_start(&server);
    p = proxy_new(server.port);
    for (long n = 0; n <= 7; n++) {
        redisContext *c = through(p);

        CHECK(pongs(c));
        proxy_cut_after(p, n);
        CHECK(pongs(c) == (n == 7));
        AWAIT(proxy_cuts(p) == (size_t)n + 1);
        AWAIT(proxy_passed(p, PROXY_DOWN) == (size_t)((n + 1) * 7 + n * (n + 1) / 2));
        proxy_cut_after(p, -1);
        redisFree(c);
    }
    proxy_free(p);
    server_remove(&server);
}

static void proxy_other_faults(void)
{
    struct proxy *p;
    redisContext *c, *hole;

    redis_start(&server);
    p = proxy_new(server.port);
    c = through(p);
    CHECK(pongs(c));
    proxy_freeze(p, PROXY_PRESENT | PROXY_FUTURE, PROXY_UP | PROXY_DOWN);
    hole = through(p);
    AWAIT(proxy_accepted(p) == 2);
    CHECK(redisSetTimeout(hole, (struct timeval){ .tv_usec = 200000 }) == REDIS_OK);
    CHECK(!pongs(hole));
    proxy_freeze(p, PROXY_PRESENT | PROXY_FUTURE, 0);
    CHECK(pongs(c));
    AWAIT(proxy_passed(p, PROXY_DOWN) == 3 * strlen("+PONG\r\n")); /* also into the hole */
    proxy_freeze(p, PROXY_PRESENT, PROXY_DOWN);
    redisAppendCommand(c, "INCR a");
    for (int done = 0; !done;)
        CHECK(redisBufferWrite(c, &done) == REDIS_OK);
    AWAIT(proxy_kept(p, PROXY_DOWN) == strlen(":1\r\n")); /* it happened, nobody is told */
    proxy_drop(p);
    CHECK(!pongs(c));
    CHECK_NUM(proxy_open(p), ==, 0);
    redisFree(c);
    redisFree(hole);
    proxy_refuse(p, true);
    c = through(p);
    CHECK(!pongs(c));
    redisFree(c);
    proxy_free(p);
    server_remove(&server);
}

const struct test_case redis_tools_cases[] = {
    { "tools-server-remembers", server_remembers, ON_ALL, 0, 0 },
    { "tools-server-frozen", server_frozen, ON_ALL, 0, 0 },
    { "tools-server-clock", server_clock_stepped, ON_ALL, 0, 0 },
    { "tools-proxy-late", proxy_late, ON_ALL, 0, 0 },
    { "tools-proxy-cut", proxy_cut_in_half, ON_ALL, 0, 0 },
    { "tools-proxy-others", proxy_other_faults, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
