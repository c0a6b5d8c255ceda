/* fence-redis.c: a key of Redis that only the holder of a lock can write.
 *
 * The key is a hash of fence and text, and a script compares and writes: Redis runs nothing
 * beside it. Goes well: see paused.h. Goes wrong: the script answers 0 and has changed
 * nothing, so the writer knows that another one holds the name now.
 *
 *     cc fence-redis.c $(pkg-config --cflags --libs holdfast hiredis) -pthread
 *     ./a.out redis://127.0.0.1:6379
 *
 * The lock may be in any store (HOLDFAST_URL), the key in any Redis (the argument, or the
 * URL of the lock).
 */
#include "paused.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>

/* Lua has no integers of 64 bits, only numbers that are exact up to 2^53. So fences are
 * compared as decimal text without leading zeros: the longer one is the greater. */
static const char script[] =
    "local last, fence = redis.call('HGET', KEYS[1], 'fence') or '0', ARGV[1]\n"
    "if #fence < #last or (#fence == #last and fence < last) then return 0 end\n"
    "redis.call('HSET', KEYS[1], 'fence', fence, 'text', ARGV[2])\n"
    "return 1\n";

struct resource {
    redisContext *redis;
};

static char host[256];
static int port;

struct resource *resource_open(void)
{
    struct resource *r = malloc(sizeof *r);

    if (!r)
        return NULL;
    r->redis = redisConnect(host, port);
    if (r->redis && !r->redis->err)
        return r;
    fprintf(stderr, "%s:%d: %s\n", host, port, r->redis ? r->redis->errstr : "no memory");
    resource_close(r);
    return NULL;
}

int resource_write(struct resource *r, uint64_t fence, const char *text)
{
    redisReply *reply =
        redisCommand(r->redis, "EVAL %s 1 report %" PRIu64 " %s", script, fence, text);
    int taken = reply && reply->type == REDIS_REPLY_INTEGER ? (int)reply->integer : -1;

    if (taken < 0)
        fprintf(stderr, "%s\n", reply ? reply->str : r->redis->errstr);
    freeReplyObject(reply);
    return taken;
}

void resource_read(struct resource *r, char *text, size_t size)
{
    redisReply *reply = redisCommand(r->redis, "HGET report text");

    snprintf(text, size, "%s",
             reply && reply->type == REDIS_REPLY_STRING ? reply->str : "");
    freeReplyObject(reply);
}

void resource_close(struct resource *r)
{
    redisFree(r->redis);
    free(r);
}

int main(int argc, char **argv)
{
    const char *url = getenv("HOLDFAST_URL"), *redis = argc > 1 ? argv[1] : url;

    if (!redis || sscanf(redis, "redis://%255[^:/]:%d", host, &port) != 2) {
        fprintf(stderr, "usage: %s redis://HOST:PORT\n", argv[0]);
        return 1;
    }
    return paused_main(url);
}
