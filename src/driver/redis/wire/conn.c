/* conn.c: one connection: commands go out in order, answers come back in the same order.
 *
 * Happy path: hf__redis_request_send builds the command into the stream's buffer; the flush
 * after the core's verbs sends everything in one go; each answer goes to the oldest
 * request.
 *
 * Goes wrong: an error reply may only mean "elsewhere" or "not yet": a server that has
 * forgotten a script gets its text (NOSCRIPT), a moved slot another node (MOVED, ASK), a
 * line that is just being moved another try a little later (TRYAGAIN). A server that is
 * loading or has become a replica is as good as gone: the connection is dropped, and node.c
 * opens another. An answer that does not come in time drops the connection too. Every
 * request of a lost connection is answered NULL, which is neither yes nor no (G7): the core
 * repeats it once the node is up again. */
#include "driver/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 16, LATER_US = 50000 };

/* ---- replies --------------------------------------------------------------------- */

static bool starts(const redisReply *reply, const char *word)
{
    return reply && reply->type == REDIS_REPLY_ERROR &&
           strncmp(reply->str, word, strlen(word)) == 0;
}

int64_t hf__redis_reply_number(const redisReply *reply, size_t i)
{
    if (!reply || reply->type != REDIS_REPLY_ARRAY || i >= reply->elements ||
        reply->element[i]->type != REDIS_REPLY_INTEGER)
        return 0;
    return reply->element[i]->integer;
}

bool hf__redis_reply_is(const redisReply *reply, size_t i, const char *text)
{
    return reply && reply->type == REDIS_REPLY_ARRAY && i < reply->elements &&
           reply->element[i]->type == REDIS_REPLY_STRING &&
           strcmp(reply->element[i]->str, text) == 0;
}

int hf__redis_reply_error(const struct redis *r, const redisReply *reply, hf_error *err)
{
    static const struct {
        const char *word;
        int code;
    } kinds[] = {
        { "NOAUTH", HF_EAUTH },
        { "WRONGPASS", HF_EAUTH },
        { "NOPERM", HF_EAUTH },
        { "ERR AUTH", HF_EAUTH },
        { "OOM", HF_EFULL },
        { "MISCONF", HF_EFULL },
        { "NOREPLICAS", HF_EREPLICAS },
        { "DENIED", HF_EAUTH },
        { "ERR max number of clients", HF_EUNREACHABLE },
    };

    if (!reply)
        return hf__fail(err, HF_EUNREACHABLE, 0, r->shown, "the connection was lost");
    if (hf__redis_reply_is(reply, 0, "f"))
        return hf__fail(
            err, HF_EVERSION, 0, r->shown,
            "the line was written in format %lld by another version of holdfast",
            (long long)hf__redis_reply_number(reply, 1));
    if (reply->type != REDIS_REPLY_ERROR)
        return hf__fail(err, HF_EPROTO, 0, r->shown, "an answer of an unexpected form");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (starts(reply, kinds[i].word))
            return hf__fail(err, kinds[i].code, 0, r->shown, "%s", reply->str);
    if (strstr(reply->str, "WRONGTYPE"))
        return hf__fail(err, HF_EDAMAGED, 0, r->shown,
                        "a key of the line holds something else: %s", reply->str);
    if (strstr(reply->str, "The user executing the script") ||
        strstr(reply->str, "ACL failure in script"))
        return hf__fail(err, HF_EAUTH, 0, r->shown, "%s", reply->str);
    if (strstr(reply->str, "OOM command not allowed"))
        return hf__fail(err, HF_EFULL, 0, r->shown, "%s", reply->str);
    return hf__fail(err, HF_EPROTO, 0, r->shown, "%s", reply->str);
}

/* ---- requests -------------------------------------------------------------------- */

struct request *hf__redis_request_new(const struct request_type *type, size_t size,
                                      unsigned bucket)
{
    struct request *q = calloc(1, size);

    if (q) {
        q->type = type;
        q->bucket = bucket;
        list_init(&q->node);
    }
    return q;
}

static void answer(struct redis *r, struct request *q, const redisReply *reply)
{
    q->type->answer(r, q, reply);
    free(q);
}

void hf__redis_request_script(struct command *c, const struct request *q, enum script_id id,
                              size_t keys, size_t args)
{
    const struct script *s = &hf__redis_scripts[id];

    hf__redis_command_begin(c, 3 + keys + args);
    if (q->text) {
        hf__redis_command_arg(c, "EVAL", 4);
        hf__redis_command_arg(c, s->text, s->len);
    } else {
        hf__redis_command_arg(c, "EVALSHA", 7);
        hf__redis_command_arg(c, s->sha, 40);
    }
    hf__redis_command_number(c, (int64_t)keys);
}

/* How long an answer may take; WAIT answers late by design. */
static int64_t limit_us(const struct redis *r)
{
    return (r->open.connect_ms + (r->replicas > 0 ? r->replica_ms : 0)) * 1000;
}

static void soiled(struct conn *conn)
{
    if (list_empty(&conn->on_dirty))
        list_push(&conn->node->redis->dirty, &conn->on_dirty);
}

void hf__redis_conn_send(struct conn *conn, struct request *q)
{
    struct redis *r = conn->node->redis;
    struct command *c = &r->command;
    hf_error err;

    c->len = 0;
    c->failed = c->nothing = false;
    q->type->build(r, q, c);
    q->sent_at = redis_now(r);
    if (c->nothing || conn->stream.state != STREAM_UP) {
        answer(r, q, NULL);
        return;
    }
    if (c->failed || hf__stream_write(&conn->stream, c->buf, c->len) < 0) {
        hf__fail(&err, HF_ENOMEM, 0, conn->node->shown, "no memory for a request");
        answer(r, q, NULL);
        hf__redis_conn_drop(conn, &err); /* or it would never be repeated */
        return;
    }
    if (list_empty(&conn->sent) && !timer_armed(&conn->limit))
        r->store.env->timer(r->store.env, &conn->limit, q->sent_at + limit_us(r));
    list_push(&conn->sent, &q->node);
    soiled(conn);
}

void hf__redis_request_send(struct redis *r, struct request *q)
{
    struct node *node = hf__redis_node_of(r, q->bucket);

    if (node)
        hf__redis_conn_send(&node->commands, q);
    else
        answer(r, q, NULL);
}

void hf__redis_conn_flush(struct redis *r)
{
    struct list *n;

    while ((n = list_pop(&r->dirty)) != NULL)
        hf__stream_flush(&container_of(n, struct conn, on_dirty)->stream);
}

/* ---- repeating ------------------------------------------------------------------- */

static void send_later(struct redis *r, struct request *q)
{
    struct env *env = r->store.env;

    if (list_empty(&r->later))
        env->timer(env, &r->later_timer, redis_now(r) + LATER_US);
    list_push(&r->later, &q->node);
}

void hf__redis_conn_look_later(struct redis *r)
{
    struct env *env = r->store.env;

    r->looks_owed = true;
    env->timer(env, &r->later_timer, redis_now(r) + LATER_US);
}

void hf__redis_conn_later(struct redis *r)
{
    struct list todo, *n;
    bool owed = r->looks_owed;

    r->looks_owed = false;
    list_init(&todo);
    list_splice(&todo, &r->later);
    while ((n = list_pop(&todo)) != NULL)
        hf__redis_request_send(r, container_of(n, struct request, node));
    if (owed)
        hf__redis_wait_look_all(r, -1);
    hf__redis_conn_flush(r);
}

void hf__redis_conn_later_lost(struct redis *r)
{
    struct list *n;

    while ((n = list_pop(&r->later)) != NULL)
        answer(r, container_of(n, struct request, node), NULL);
}

/* "MOVED 3999 127.0.0.1:6381"; the host may be empty: that of the server that says so. */
static bool parse_place(const struct conn *conn, const char *text, unsigned *slot,
                        char host[256], uint16_t *port)
{
    const char *place = strchr(text, ' '), *colon = strrchr(text, ':');
    unsigned long number;
    size_t n;

    if (!place || !colon || sscanf(place, "%u", slot) != 1 || *slot >= SLOTS)
        return false;
    place = strchr(place + 1, ' ');
    number = strtoul(colon + 1, NULL, 10);
    if (!place || colon < place || number == 0 || number > 65535)
        return false;
    n = (size_t)(colon - ++place);
    if (n >= 256)
        return false;
    if (n == 0)
        snprintf(host, 256, "%s", conn->node->host ? conn->node->host : "");
    else
        snprintf(host, 256, "%.*s", (int)n, place);
    *port = (uint16_t)number;
    return true;
}

static void build_asking(struct redis *r, struct request *q, struct command *c)
{
    (void)r;
    (void)q;
    hf__redis_command_begin(c, 1);
    hf__redis_command_text(c, "ASKING");
}

static void ignore(struct redis *r, struct request *q, const redisReply *reply)
{
    (void)r;
    (void)q;
    (void)reply;
}

/* The next command may touch a slot that is on its way here. */
static bool send_asking(struct conn *conn)
{
    static const struct request_type asking = { build_asking, ignore, false };
    struct request *q = hf__redis_request_new(&asking, sizeof *q, 0);

    if (q)
        hf__redis_conn_send(conn, q);
    return q != NULL;
}

static bool goes_elsewhere(struct conn *conn, struct request *q, const redisReply *reply)
{
    struct redis *r = conn->node->redis;
    bool ask = starts(reply, "ASK ");
    char host[256];
    unsigned slot;
    uint16_t port;
    struct node *node;

    if (r->topology != TOPOLOGY_CLUSTER || (!ask && !starts(reply, "MOVED ")) ||
        !parse_place(conn, reply->str, &slot, host, &port))
        return false;
    if (!ask)
        hf__redis_cluster_moved(r, slot, host, port);
    node = hf__redis_cluster_node(r, host, port);
    if (node && node->up && (!ask || send_asking(&node->commands)))
        hf__redis_conn_send(&node->commands, q);
    else
        send_later(r, q);
    return true;
}

/* Says whether the request goes on living. */
static bool repeated(struct conn *conn, struct request *q, const redisReply *reply)
{
    struct redis *r = conn->node->redis;

    if (!q->type->line || reply->type != REDIS_REPLY_ERROR)
        return false;
    if (starts(reply, "TRYAGAIN") || starts(reply, "BUSY ") ||
        starts(reply, "CLUSTERDOWN")) {
        send_later(r, q); /* as often as it takes: the caller's own time is what ends it */
        return true;
    }
    if (q->repeats++ >= REPEATS)
        return false;
    if (starts(reply, "NOSCRIPT")) {
        q->text = true;
        hf__redis_conn_send(conn, q);
        return true;
    }
    return goes_elsewhere(conn, q, reply);
}

static bool as_good_as_gone(const redisReply *reply)
{
    return starts(reply, "LOADING") || starts(reply, "READONLY") ||
           starts(reply, "MASTERDOWN") || starts(reply, "NOAUTH") ||
           starts(reply, "UNBLOCKED") || strstr(reply->str, "READONLY You can't write");
}

/* ---- what comes ------------------------------------------------------------------ */

static void take(struct conn *conn, redisReply *reply)
{
    struct redis *r = conn->node->redis;
    struct list *n;
    struct request *q;

    if (conn->messages && list_empty(&conn->sent)) {
        conn->message(conn, reply);
        return;
    }
    n = list_pop(&conn->sent);
    if (!n) {
        hf_error err;

        /* "ERR max number of clients reached" comes before any command is read */
        hf__redis_reply_error(r, reply, &err);
        hf__redis_conn_drop(conn, &err);
        return;
    }
    q = container_of(n, struct request, node);
    if (reply->type == REDIS_REPLY_ERROR && q->type->line && as_good_as_gone(reply)) {
        hf_error err;

        hf__redis_reply_error(r, reply, &err);
        if (err.code == HF_EPROTO)
            err.code = HF_EUNREACHABLE;
        answer(r, q, NULL);
        hf__redis_conn_drop(conn, &err);
    } else if (!repeated(conn, q, reply)) {
        answer(r, q, reply);
    }
}

static void on_data(struct stream *stream, const char *bytes, size_t n)
{
    struct conn *conn = container_of(stream, struct conn, stream);
    uint64_t opened = conn->opened;
    hf_error err;

    if (redisReaderFeed(conn->reader, bytes, n) != REDIS_OK) {
        hf__fail(&err, HF_ENOMEM, 0, conn->node->shown, "no memory for an answer");
        hf__redis_conn_drop(conn, &err);
        return;
    }
    while (conn->opened == opened && stream->state == STREAM_UP) {
        void *reply = NULL;

        if (redisReaderGetReply(conn->reader, &reply) != REDIS_OK) {
            hf__fail(&err, HF_EPROTO, 0, conn->node->shown, "not an answer of Redis: %s",
                     conn->reader->errstr);
            hf__redis_conn_drop(conn, &err);
            return;
        }
        if (!reply)
            break;
        take(conn, reply);
        freeReplyObject(reply);
    }
    hf__redis_conn_flush(conn->node->redis);
}

static void on_up(struct stream *stream)
{
    struct conn *conn = container_of(stream, struct conn, stream);

    conn->up(conn);
    hf__redis_conn_flush(conn->node->redis);
}

/* First DOWN, so that a release which is under way waits for UP; then every request. */
static void lost(struct conn *conn, const hf_error *err)
{
    struct redis *r = conn->node->redis;
    hf_error copy = *err;
    struct list todo, *n;

    conn->opened++;
    conn->messages = false;
    r->store.env->timer(r->store.env, &conn->limit, LOOP_NEVER);
    list_remove(&conn->on_dirty);
    redisReaderFree(conn->reader);
    conn->reader = NULL;
    list_init(&todo);
    list_splice(&todo, &conn->sent);
    if (conn == &conn->node->commands) {
        conn->node->up = false;
        hf__redis_state(r, &copy);
    }
    while ((n = list_pop(&todo)) != NULL)
        answer(r, container_of(n, struct request, node), NULL);
    conn->down(conn, &copy);
}

static void on_down(struct stream *stream, const hf_error *err)
{
    lost(container_of(stream, struct conn, stream), err);
}

void hf__redis_conn_drop(struct conn *conn, const hf_error *err)
{
    if (conn->stream.state == STREAM_CLOSED)
        return;
    hf__stream_close(&conn->stream);
    lost(conn, err);
}

static void ignore_loss(struct conn *conn, const hf_error *err)
{
    (void)conn;
    (void)err;
}

/* The node is not needed any more. */
void hf__redis_conn_lose_all(struct node *node)
{
    hf_error err;

    hf__fail(&err, HF_EUNREACHABLE, 0, node->shown,
             "the cluster does not name it any more");
    node->commands.down = node->messages.down = ignore_loss;
    hf__redis_conn_drop(&node->commands, &err);
    hf__redis_conn_drop(&node->messages, &err);
}

static void on_limit(struct timer *t)
{
    struct conn *conn = container_of(t, struct conn, limit);
    struct redis *r = conn->node->redis;
    struct list *n = list_first(&conn->sent);
    int64_t at;
    hf_error err;

    if (!n)
        return;
    at = container_of(n, struct request, node)->sent_at + limit_us(r);
    if (at > redis_now(r)) {
        r->store.env->timer(r->store.env, t, at);
        return;
    }
    hf__fail(&err, HF_EUNREACHABLE, 0, conn->node->shown, "no answer within %lld ms",
             (long long)r->open.connect_ms);
    hf__redis_conn_drop(conn, &err);
}

/* ---- life ------------------------------------------------------------------------ */

static const struct stream_events events = { on_up, on_data, on_down };

void hf__redis_conn_init(struct conn *conn, struct node *node)
{
    conn->node = node;
    list_init(&conn->sent);
    list_init(&conn->on_dirty);
    timer_init(&conn->limit, on_limit);
    hf__stream_init(&conn->stream, node->redis->store.env, &events);
}

void hf__redis_conn_done(struct conn *conn)
{
    struct list *n;
    struct env *env;

    if (!conn->node)
        return;
    env = conn->node->redis->store.env;
    hf__stream_done(&conn->stream);
    env->timer(env, &conn->limit, LOOP_NEVER);
    list_remove(&conn->on_dirty);
    while ((n = list_pop(&conn->sent)) != NULL)
        free(container_of(n, struct request, node));
    if (conn->reader)
        redisReaderFree(conn->reader);
    conn->reader = NULL;
}

int hf__redis_conn_open(struct conn *conn, hf_error *err)
{
    struct redis *r = conn->node->redis;
    const struct node *node = conn->node;
    struct stream_target to = { .host = node->host,
                                .port = node->port,
                                .path = node->path,
                                .connect_ms = r->open.connect_ms,
                                .tls = r->open.tls,
                                .tls_context = r->open.tls_context,
                                .shown = node->shown };
    int rc;

    conn->reader = redisReaderCreate();
    if (!conn->reader)
        return hf__fail(err, HF_ENOMEM, 0, node->shown, "no memory for a connection");
    conn->reader->maxbuf = 64 * 1024;
    rc = hf__stream_open(&conn->stream, &to, err);
    if (rc < 0) {
        redisReaderFree(conn->reader);
        conn->reader = NULL;
    }
    return rc;
}
