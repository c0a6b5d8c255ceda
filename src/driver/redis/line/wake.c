/* wake.c: the connection for messages: who is told what (G4).
 *
 * One channel per client ("...@CLIENT"; in a cluster one per bucket in which it waits), on
 * which scripts of others say: granted, evicted, marked, look. Each entry names a token
 * (kit/scripted.c). Channels named like keys tell that a
 * line or a cell that we follow has changed.
 *
 * Join; if told to wait and the channel is not confirmed yet: subscribe; when the
 * confirmation comes, everybody concerned looks. So a message is either heard, or the look
 * is made after it was sent. A message that is lost with the connection is found by the
 * look after the next confirmation, or by the safety look.
 *
 * Holders are told when somebody breaks their lock. A hold that is short is not worth a
 * second connection: it begins to listen when it has lasted half a second. */
#include "driver/redis/redis.h"
#include "util/bytes.h"

#include <stdio.h>
#include <string.h>

enum { ENTRY = 1 + HF_TOKEN + 8 + 8, HOLDERS_LISTEN_US = 500000, HOLDERS_LOOK_MOST = 1000 };

static bool is_cluster(const struct redis *r)
{
    return r->topology == TOPOLOGY_CLUSTER;
}

/* ---- subscribing ----------------------------------------------------------------- */

void hf__redis_wake_say(struct conn *conn, const char *word, const char *channel,
                        size_t len)
{
    struct redis *r = conn->node->redis;
    struct command *c = &r->command;

    if (!link_open(&conn->link))
        return;
    c->len = 0;
    c->failed = false;
    hf__redis_command_words(c, word, 1);
    hf__redis_command_arg(c, channel, len);
    conn->confirms = true;
    if (c->failed || hf__stream_write(&conn->stream, c->buf, c->len) < 0)
        hf__link_fail(&conn->link, HF_ENOMEM, "no memory to subscribe");
    hf__link_wrote(&conn->link);
}

static size_t own_channel(const struct redis *r, char name[KEY_MAX], unsigned bucket)
{
    size_t n = hf__redis_bucket_wake(r, name, bucket);

    memcpy(name + n, r->client, CLIENT_ID);
    return n + CLIENT_ID;
}

static void subscribe(struct redis *r, struct node *n, unsigned bucket)
{
    char name[KEY_MAX];

    hf__redis_wake_say(&n->messages, hf__redis_node_sharded(n) ? "SSUBSCRIBE" : "SUBSCRIBE",
                       name, own_channel(r, name, bucket));
}

void hf__redis_wake_greet(struct conn *conn)
{
    struct node *n = conn->node;
    struct redis *r = n->redis;

    if (!is_cluster(r))
        subscribe(r, n, 0);
    for (unsigned b = 0; is_cluster(r) && b < BUCKETS; b++)
        if (r->bucket_wanted[b] && hf__redis_cluster_of(r, b) == n)
            subscribe(r, n, b);
    hf__redis_follows_subscribe(r, n);
}

void hf__redis_wake_again(struct redis *r, struct node *n, unsigned bucket)
{
    subscribe(r, n, bucket);
    hf__redis_node_listen(n);
}

void hf__redis_wake_listen(struct redis *r, unsigned bucket)
{
    struct node *n = hf__redis_node_of(r, bucket);

    if (is_cluster(r) && !r->bucket_wanted[bucket]) {
        r->bucket_wanted[bucket] = true; /* if there is no node now, the next one asks */
        if (n) {
            n->asked_all = false; /* not about the holds of this bucket */
            hf__redis_wake_again(r, n, bucket);
        }
    }
    if (n && !n->listen_wanted)
        hf__redis_node_listen(n);
}

static bool is_heard(struct redis *r, unsigned bucket)
{
    const struct node *n = hf__redis_node_of(r, bucket);

    return !n || (is_cluster(r) ? r->bucket_wanted[bucket] : n->listen_wanted);
}

void hf__redis_wake_holder(struct redis *r, const struct ticket *t)
{
    struct env *env = r->store.env;

    if (!timer_armed(&r->listen_timer) &&
        !is_heard(r, is_cluster(r) ? ticket_bucket(t) : 0))
        env->timer(env, &r->listen_timer, env->now(env) + HOLDERS_LISTEN_US);
}

void hf__redis_wake_holders(struct timer *timer)
{
    struct redis *r = container_of(timer, struct redis, listen_timer);

    for (size_t i = 0; i <= r->scripted.seats.mask; i++)
        for (struct map_node *m = r->scripted.seats.slots[i]; m; m = m->next) {
            const struct ticket *t = container_of(m, struct ticket, drv_node);

            if (t->life == t->own)
                hf__redis_wake_listen(r, ticket_bucket(t));
        }
    hf__redis_conn_flush(r);
}

void hf__redis_wake_channel(struct redis *r, unsigned bucket, const char *channel,
                            size_t len, bool on)
{
    struct node *n = hf__redis_node_of(r, bucket);

    if (!n)
        return;
    hf__redis_wake_say(&n->messages,
                       hf__redis_node_sharded(n) ? on ? "SSUBSCRIBE" : "SUNSUBSCRIBE"
                       : on                      ? "SUBSCRIBE"
                                                 : "UNSUBSCRIBE",
                       channel, len);
    if (on && !n->listen_wanted)
        hf__redis_node_listen(n);
}

/* ---- hearing --------------------------------------------------------------------- */

/* With replicas=N a grant must be written by our own connection to be counted: by a look.
 */
static void hear(struct redis *r, const char *entry)
{
    enum told_kind what = entry[0] == 'x'                       ? TOLD_REVOKED
                          : entry[0] == 'm'                     ? TOLD_MARK
                          : entry[0] == 'g' && r->replicas == 0 ? TOLD_GRANT
                                                                : TOLD_LOOK;

    hf__scripted_told(&r->scripted, entry + 1, what, bytes_get(entry + 17, 8),
                      (int64_t)bytes_get(entry + 25, 8));
}

/* The bucket in the name of a channel; 0 outside a cluster; -1: not one of ours. */
static int channel_bucket(const struct redis *r, const char *channel, size_t len)
{
    unsigned bucket = 0;

    if (is_cluster(r) &&
        (len < r->prefix_len + 6 || sscanf(channel + r->prefix_len, "{%3x}", &bucket) != 1))
        return -1;
    return (int)(bucket % BUCKETS);
}

/* The bucket of a channel of our own; -1: another channel. */
static int own_bucket(const struct redis *r, const char *channel, size_t len)
{
    int bucket = channel_bucket(r, channel, len);
    char name[KEY_MAX];

    if (bucket < 0 || own_channel(r, name, (unsigned)bucket) != len ||
        memcmp(name, channel, len) != 0)
        return -1;
    return bucket;
}

/* Its slot has moved: the map is asked for, and whoever serves the slot then is asked to
 * tell us, also if it is the same server again. */
static void unsubscribed(struct redis *r, const redisReply *channel)
{
    int bucket = channel_bucket(r, channel->str, channel->len);

    if (bucket >= 0)
        r->unheard[bucket] = true;
    hf__redis_cluster_ask_later(r);
}

static void confirmed(struct conn *conn, const char *channel, size_t len)
{
    struct redis *r = conn->node->redis;
    int bucket = own_bucket(r, channel, len);

    if (bucket < 0) {
        hf__redis_follows_changed(r, channel, len);
        return;
    }
    bucket = is_cluster(r) ? bucket : -1;
    hf__redis_wait_look_all(r, bucket);
    /* the others learn it when they are renewed; after UP all are being renewed */
    if (r->scripted.seats.count <= HOLDERS_LOOK_MOST && !conn->node->asked_all)
        hf__redis_still_there(r, bucket);
}

static void told(struct redis *r, const redisReply *channel, const redisReply *text)
{
    if (own_bucket(r, channel->str, channel->len) < 0)
        hf__redis_follows_changed(r, channel->str, channel->len);
    else
        for (size_t at = 0; at + ENTRY <= text->len; at += ENTRY)
            hear(r, text->str + at);
}

void hf__redis_wake(struct conn *conn, const redisReply *reply)
{
    struct redis *r = conn->node->redis;
    hf_error err;

    if (reply->type == REDIS_REPLY_ERROR) {
        hf__redis_reply_error(r, reply, &err);
        r->store.env->log(r->store.env, HF_LOG_WARN, NULL, err.text);
        hf__link_break(&conn->link, &err);
        return;
    }
    if (!hf__redis_reply_text(reply, 1) || reply->elements != 3)
        return;
    if ((hf__redis_reply_is(reply, 0, "message") ||
         hf__redis_reply_is(reply, 0, "smessage")) &&
        hf__redis_reply_text(reply, 2))
        told(r, reply->element[1], reply->element[2]);
    else if (hf__redis_reply_is(reply, 0, "subscribe") ||
             hf__redis_reply_is(reply, 0, "ssubscribe"))
        confirmed(conn, reply->element[1]->str, reply->element[1]->len);
    else if (hf__redis_reply_is(reply, 0, "sunsubscribe") && is_cluster(r))
        unsubscribed(r, reply->element[1]);
}
