/* follow.c: being told of every change of a line or a cell.
 *
 * A cell's every change is published on a channel named like its key. A line's is only
 * while somebody follows it: a follower looks at it at least every ten seconds, and each
 * look says so for thirty. What nobody does is not published: that a hold or a cell
 * expires; so a follower also looks when the next expiry has passed. What is published
 * before the subscription is confirmed does not reach us: the confirmation counts as a
 * change. The core asks again (seam.h, rule 11); here are only the channels. */
#include "driver/redis/redis.h"

#include <string.h>

enum { AGAIN_MS = 10000 };

static struct look *look_in(struct list *n)
{
    return container_of(n, struct look, drv_node);
}

static struct cell *cell_in(struct list *n)
{
    return container_of(n, struct cell, drv_node);
}

struct channel {
    unsigned bucket;
    size_t len;
    char name[KEY_MAX];
};

static struct channel channel_of(const struct redis *r, const struct look *look,
                                 const struct cell *cell)
{
    const char *name = look ? look->name : cell->name;
    size_t len = look ? look->name_len : cell->name_len;
    struct channel c = { .bucket = hf__redis_bucket(name, len) };

    c.len = hf__redis_bucket_key(r, c.name, look ? 'l' : 'c', name, len);
    return c;
}

static void subscribe(struct redis *r, const struct channel *c, bool on)
{
    hf__redis_wake_channel(r, c->bucket, c->name, c->len, on);
}

/* Calls for each follow of this channel, or with NULL of all; returns how many. */
static size_t each(struct redis *r, const char *channel, size_t len,
                   void (*call)(struct redis *, struct look *, struct cell *, void *),
                   void *arg)
{
    size_t count = 0;

    for (int cells = 0; cells < 2; cells++)
        list_for_safe(n, cells ? &r->cells : &r->looks) {
            struct look *look = cells ? NULL : look_in(n);
            struct cell *cell = cells ? cell_in(n) : NULL;
            struct channel c = channel_of(r, look, cell);

            if (channel && (c.len != len || memcmp(c.name, channel, len) != 0))
                continue;
            count++;
            if (call)
                call(r, look, cell, arg);
        }
    return count;
}

void hf__redis_follow_start(struct redis *r, struct look *look, struct cell *cell)
{
    struct list *node = look ? &look->drv_node : &cell->drv_node;
    struct channel c;

    if (!list_empty(node))
        return; /* asked again */
    list_push(look ? &r->looks : &r->cells, node);
    c = channel_of(r, look, cell);
    subscribe(r, &c, true);
}

void hf__redis_follow_end(struct redis *r, struct look *look, struct cell *cell)
{
    struct list *node = look ? &look->drv_node : &cell->drv_node;
    struct channel c;

    if (list_empty(node))
        return;
    list_remove(node);
    c = channel_of(r, look, cell);
    if (each(r, c.name, c.len, NULL, NULL) == 0)
        subscribe(r, &c, false);
}

int64_t hf__redis_follow_next(const struct redis *r, int64_t expires_ms, bool cell)
{
    int64_t ms = expires_ms < 0 ? INT64_MAX : expires_ms + 1;

    if (!cell && ms > AGAIN_MS)
        ms = AGAIN_MS;
    return ms == INT64_MAX ? LOOP_NEVER : redis_now(r) + ms * 1000;
}

static void changed(struct redis *r, struct look *look, struct cell *cell, void *arg)
{
    (void)r;
    (void)arg;
    ev_changed(look, cell);
}

void hf__redis_follows_changed(struct redis *r, const char *channel, size_t len)
{
    each(r, channel, len, changed, NULL);
}

static void subscribe_at(struct redis *r, struct look *look, struct cell *cell, void *node)
{
    struct channel c = channel_of(r, look, cell);

    if (!node || hf__redis_node_of(r, c.bucket) == node)
        subscribe(r, &c, true);
}

void hf__redis_follows_subscribe(struct redis *r, struct node *n)
{
    each(r, NULL, 0, subscribe_at, n);
}
