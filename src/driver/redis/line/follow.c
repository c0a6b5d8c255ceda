/* follow.c: being told of every change of a line or a cell.
 *
 * A cell's every change is published on a channel named like its key. A line's is only
 * while somebody follows it: a follower looks at it at least every ten seconds, and each
 * look says so for thirty. What nobody does is not published: that a hold or a cell
 * expires; so a follower also looks when the next expiry has passed. After a lost
 * connection everything is looked at anew. */
#include "driver/redis/redis.h"

#include <stdlib.h>
#include <string.h>

enum { FOLLOW_MS = 30000, AGAIN_MS = 10000 };

static void ask(struct redis *r, struct follow *f)
{
    if (f->asking) {
        f->again = true;
        return;
    }
    f->again = false;
    if (f->look)
        hf__redis_look_send(r, f->look, FOLLOW_MS);
    else
        hf__redis_cell_send(r, f->cell, f->begun);
    /* f may be gone now */
}

static void fired(struct timer *t)
{
    struct follow *f = container_of(t, struct follow, timer);
    struct redis *r = f->redis;

    if (r->up)
        ask(r, f);
    hf__redis_conn_flush(r);
}

static struct follow *follow_of(struct list *n, bool look)
{
    return look ? container_of(n, struct look, drv_node)->drv_ptr
                : container_of(n, struct cell, drv_node)->drv_ptr;
}

void hf__redis_follow_start(struct redis *r, struct look *look, struct cell *cell)
{
    const char *name = look ? look->name : cell->name;
    size_t name_len = look ? look->name_len : cell->name_len;
    struct follow *f = calloc(1, sizeof *f + KEY_MAX);
    hf_error err;

    if (!f) {
        hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory to follow a name");
        ev_done(look, cell, HF_ENOMEM, &err);
        return;
    }
    f->redis = r;
    f->look = look;
    f->cell = cell;
    f->bucket = hf__redis_bucket(name, name_len);
    f->channel_len = hf__redis_bucket_key(r, f->channel, look ? 'l' : 'c', name, name_len);
    timer_init(&f->timer, fired);
    if (look) {
        look->drv_ptr = f;
        list_push(&r->looks, &look->drv_node);
    } else {
        cell->drv_ptr = f;
        list_push(&r->cells, &cell->drv_node);
    }
    hf__redis_wake_channel(r, f->bucket, f->channel, f->channel_len, true);
    ask(r, f);
}

void hf__redis_follow_end(struct redis *r, struct follow *f)
{
    struct env *env = r->store.env;

    if (!f)
        return;
    if (f->asking) {
        f->asking->look = NULL;
        f->asking->cell = NULL;
    }
    env->timer(env, &f->timer, LOOP_NEVER);
    if (f->look) {
        list_remove(&f->look->drv_node);
        f->look->drv_ptr = NULL;
    } else {
        list_remove(&f->cell->drv_node);
        f->cell->drv_ptr = NULL;
    }
    if (!hf__redis_follows_find(r, f->channel, f->channel_len, NULL))
        hf__redis_wake_channel(r, f->bucket, f->channel, f->channel_len, false);
    free(f);
}

void hf__redis_follow_next(struct follow *f, int64_t expires_ms)
{
    struct env *env = f->redis->store.env;
    int64_t ms = f->look ? AGAIN_MS : INT64_MAX / 4000;

    f->begun = true;
    if (f->again)
        ms = 0; /* it has changed while we asked */
    else if (expires_ms >= 0 && expires_ms + 1 < ms)
        ms = expires_ms + 1;
    env->timer(env, &f->timer, env->now(env) + ms * 1000);
}

/* By its timer, because an answer may end any of them; and marked, because the answer that
 * is under way now sets the timer too. */
static void look_soon(struct follow *f)
{
    struct env *env = f->redis->store.env;

    f->again = true;
    env->timer(env, &f->timer, 0);
}

/* ---- all of them ----------------------------------------------------------------- */

static struct follow *find_in(struct list *all, bool look, const char *channel, size_t len,
                              const struct follow *after)
{
    bool reached = after == NULL;

    list_for(n, all) {
        struct follow *f = follow_of(n, look);

        if (reached && f->channel_len == len && memcmp(f->channel, channel, len) == 0)
            return f;
        reached = reached || f == after;
    }
    return NULL;
}

struct follow *hf__redis_follows_find(struct redis *r, const char *channel, size_t len,
                                      const struct follow *after)
{
    struct follow *f = NULL;

    if (!after || after->look)
        f = find_in(&r->looks, true, channel, len, after);
    return f ? f
             : find_in(&r->cells, false, channel, len, after && after->cell ? after : NULL);
}

void hf__redis_follows_changed(struct redis *r, const char *channel, size_t len)
{
    struct follow *f = NULL;

    while ((f = hf__redis_follows_find(r, channel, len, f)) != NULL)
        look_soon(f);
}

void hf__redis_follows_subscribe(struct redis *r, const struct node *n)
{
    for (int look = 0; look < 2; look++)
        list_for(at, look ? &r->looks : &r->cells) {
            const struct follow *f = follow_of(at, look);

            if (hf__redis_node_of(r, f->bucket) == n)
                hf__redis_wake_channel(r, f->bucket, f->channel, f->channel_len, true);
        }
}

void hf__redis_follows_again(struct redis *r)
{
    for (int look = 0; look < 2; look++)
        list_for(at, look ? &r->looks : &r->cells) {
            struct follow *f = follow_of(at, look);

            hf__redis_wake_channel(r, f->bucket, f->channel, f->channel_len, true);
            look_soon(f);
        }
}
