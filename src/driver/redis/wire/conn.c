/* conn.c: one connection: commands of Redis on a link (kit/link.h), which has the requests
 * that are not answered, in order.
 *
 * Happy path: hf__redis_request_send builds the command into the stream's buffer; the flush
 * after the core's verbs sends everything in one go; each answer goes to the oldest
 * request.
 *
 * Goes wrong: an error reply may only mean "elsewhere" or "not yet": a server that has
 * forgotten a script gets its text (NOSCRIPT), a moved slot another node (MOVED, ASK), a
 * line that is just being moved another try a little later (TRYAGAIN). CROSSSLOT comes
 * from a proxy that hides shards behind one address: from then on lines are renewed and
 * listed by bucket, as in a cluster. A server that is loading or has become a replica is as
 * good as gone: the connection is given up, and another is opened. Every request of a lost
 * connection is answered NULL, which is neither yes nor no (G7): the core repeats it once
 * the node is up again. */
#include "driver/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LATER_US = 50000 };

/* ---- replies --------------------------------------------------------------------- */

int64_t hf__redis_reply_number(const redisReply *reply, size_t i)
{
    if (!reply || reply->type != REDIS_REPLY_ARRAY || i >= reply->elements ||
        reply->element[i]->type != REDIS_REPLY_INTEGER)
        return 0;
    return reply->element[i]->integer;
}

const char *hf__redis_reply_text(const redisReply *reply, size_t i)
{
    if (!reply || reply->type != REDIS_REPLY_ARRAY || i >= reply->elements ||
        reply->element[i]->type != REDIS_REPLY_STRING)
        return NULL;
    return reply->element[i]->str;
}

bool hf__redis_reply_is(const redisReply *reply, size_t i, const char *text)
{
    const char *is = hf__redis_reply_text(reply, i);

    return is && strcmp(is, text) == 0;
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
        return hf__fail(err, HF_EUNREACHABLE, 0, r->open.shown, "the connection was lost");
    if (hf__redis_reply_is(reply, 0, "f"))
        return hf__fail(
            err, HF_EVERSION, 0, r->open.shown,
            "the line was written in format %lld by another version of holdfast",
            (long long)hf__redis_reply_number(reply, 1));
    if (reply->type != REDIS_REPLY_ERROR)
        return hf__fail(err, HF_EPROTO, 0, r->open.shown,
                        "an answer of an unexpected form");
    if (reply_starts(reply, "MOVED ") || reply_starts(reply, "ASK "))
        return hf__fail(err, HF_ENOTSUP, 0, r->open.shown,
                        "it is a node of a cluster: use redis+cluster:// (%s)", reply->str);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (reply_starts(reply, kinds[i].word))
            return hf__fail(err, kinds[i].code, 0, r->open.shown, "%s", reply->str);
    if (strstr(reply->str, "WRONGTYPE"))
        return hf__fail(err, HF_EDAMAGED, 0, r->open.shown,
                        "a key of the line holds something else: %s", reply->str);
    if (strstr(reply->str, "The user executing the script") ||
        strstr(reply->str, "ACL failure in script"))
        return hf__fail(err, HF_EAUTH, 0, r->open.shown, "%s", reply->str);
    if (strstr(reply->str, "OOM command not allowed"))
        return hf__fail(err, HF_EFULL, 0, r->open.shown, "%s", reply->str);
    return hf__fail(err, HF_EPROTO, 0, r->open.shown, "%s", reply->str);
}

bool hf__redis_reply_apart(struct redis *r, const redisReply *reply)
{
    if (!reply_starts(reply, "CROSSSLOT"))
        return false;
    r->apart = true;
    return true;
}

/* ---- requests -------------------------------------------------------------------- */

struct redis_call *hf__redis_request_new(const struct request_type *type, size_t size,
                                         unsigned bucket)
{
    struct redis_call *q = malloc(size); /* faster than calloc, which uses no cache of its
                                            own in glibc before 2.41 */

    if (q) {
        memset(q, 0, size);
        q->type = type;
        q->bucket = bucket;
    }
    return q;
}

void hf__redis_request_end(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    q->type->answer(r, q, reply);
    freeReplyObject(q->reply);
    free(q);
}

void hf__redis_request_lost(struct redis *r, struct redis_call *q)
{
    if (r->cluster && q->type->line)
        hf__redis_cluster_owes(r, q->bucket);
    hf__redis_request_end(r, q, NULL);
}

void hf__redis_request_script(struct command *c, const struct redis_call *q,
                              enum script_id id, size_t keys, size_t args)
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

void hf__redis_conn_send(struct conn *conn, struct redis_call *q)
{
    q->at = conn->node;
    hf__link_send(&conn->link, &q->call);
}

/* Without a node for it any link will do that says so: there is always one. */
void hf__redis_request_send(struct redis *r, struct redis_call *q)
{
    struct node *node = hf__redis_node_of(r, q->bucket);
    struct node *any = node_in(list_first(&r->nodes));

    q->at = NULL;
    if (node)
        hf__redis_conn_send(&node->commands, q);
    else
        hf__link_refuse(&any->commands.link, &q->call);
}

bool hf__redis_ask(struct redis *r, const struct request_type *type, void *about,
                   unsigned bucket)
{
    struct redis_call *q = hf__redis_request_new(type, sizeof *q, bucket);

    if (q) {
        q->about = about;
        hf__redis_request_send(r, q);
    }
    return q != NULL;
}

bool hf__redis_ask_on(struct conn *conn, const struct request_type *type, void *about)
{
    struct redis_call *q = hf__redis_request_new(type, sizeof *q, 0);

    if (q) {
        q->about = about;
        hf__redis_conn_send(conn, q);
    }
    return q != NULL;
}

void hf__redis_no_memory(struct redis *r, unsigned bucket)
{
    struct node *n = hf__redis_node_of(r, bucket);

    if (n)
        hf__redis_node_fail(n, HF_ENOMEM, "no memory for a request");
}

void hf__redis_conn_flush(struct redis *r)
{
    hf__scripted_flush(&r->scripted);
    hf__link_flush(&r->dirty);
}

/* ---- repeating ------------------------------------------------------------------- */

static void send_later(struct redis *r, struct redis_call *q)
{
    struct env *env = r->store.env;

    if (list_empty(&r->later))
        env->timer(env, &r->later_timer, redis_now(r) + LATER_US);
    q->at = NULL;
    list_push(&r->later, &q->call.node);
}

void hf__redis_conn_later(struct timer *t)
{
    struct redis *r = container_of(t, struct redis, later_timer);
    struct list todo, *n;

    list_init(&todo);
    list_splice(&todo, &r->later);
    while ((n = list_pop(&todo)) != NULL)
        hf__redis_request_send(r, container_of(n, struct redis_call, call.node));
    hf__redis_conn_flush(r);
}

void hf__redis_conn_later_lost(struct redis *r, int bucket)
{
    struct list todo, *n;

    list_init(&todo);
    list_for_safe(at, &r->later)
        if (bucket < 0 ||
            container_of(at, struct redis_call, call.node)->bucket == (unsigned)bucket) {
            list_remove(at);
            list_push(&todo, at);
        }
    while ((n = list_pop(&todo)) != NULL)
        hf__redis_request_end(r, container_of(n, struct redis_call, call.node), NULL);
}

/* The next command may touch a slot that is on its way here. */
static void build_asking(struct redis *r, struct redis_call *q, struct command *c)
{
    (void)r;
    (void)q;
    hf__redis_command_words(c, "ASKING", 0);
}

/* The first redirection is followed at once, the next after a pause, and so on, for as long
 * as it takes: two nodes may name each other while a slot is being handed over. */
static void go_elsewhere(struct conn *conn, struct redis_call *q, const redisReply *reply)
{
    static const struct request_type asking = { .build = build_asking,
                                                .answer = hf__redis_answer_ignored };
    struct redis *r = conn->node->redis;
    struct node *node = hf__redis_cluster_place(r, conn->node, reply->str);
    bool ask = reply_starts(reply, "ASK ");

    q->hopped = !q->hopped && node && node_up(node) &&
                (!ask || hf__redis_ask_on(&node->commands, &asking, NULL));
    if (q->hopped)
        hf__redis_conn_send(&node->commands, q);
    else
        send_later(r, q);
}

/* Says whether the request goes on living: it is repeated as often as it takes, and the
 * caller's own time is what ends it. */
static bool repeated(struct conn *conn, struct redis_call *q, const redisReply *reply)
{
    struct redis *r = conn->node->redis;

    if (!q->type->line || reply->type != REDIS_REPLY_ERROR)
        return false;
    if (q->divisible && reply_starts(reply, "TRYAGAIN"))
        return false;
    if (reply_starts(reply, "TRYAGAIN") || reply_starts(reply, "BUSY ") ||
        reply_starts(reply, "CLUSTERDOWN")) {
        q->hopped = false;
        send_later(r, q);
    } else if (reply_starts(reply, "NOSCRIPT") && !q->text) {
        q->text = true;
        hf__redis_conn_send(conn, q);
    } else if (r->topology == TOPOLOGY_CLUSTER &&
               (reply_starts(reply, "MOVED ") || reply_starts(reply, "ASK "))) {
        go_elsewhere(conn, q, reply);
    } else {
        return false;
    }
    return true;
}

static bool as_good_as_gone(const redisReply *reply)
{
    return reply_starts(reply, "LOADING") || reply_starts(reply, "READONLY") ||
           reply_starts(reply, "MASTERDOWN") || reply_starts(reply, "NOAUTH") ||
           reply_starts(reply, "UNBLOCKED") ||
           strstr(reply->str, "READONLY You can't write");
}

/* ---- what comes ------------------------------------------------------------------ */

static void take_message(struct conn *conn, const redisReply *reply)
{
    if (conn->link.state == LINK_GREETING && reply->type != REDIS_REPLY_ERROR)
        hf__link_up(&conn->link);
    conn->message(conn, reply);
}

/* What it grants may have to wait for replicas. */
static void finish(struct redis *r, struct redis_call *q, redisReply *reply)
{
    q->reply = reply;
    if (r->replicas > 0 && q->type->counts && q->type->counts(reply))
        hf__redis_confirm(r, q);
    else
        hf__redis_request_end(r, q, reply);
}

/* The reply is its own from now on. */
static void take(struct conn *conn, redisReply *reply)
{
    struct redis *r = conn->node->redis;
    struct link_call *c = hf__link_oldest(&conn->link);
    struct redis_call *q = c ? container_of(c, struct redis_call, call) : NULL;
    hf_error err;

    if (!q && conn_hears(conn)) {
        take_message(conn, reply);
    } else if (!q) { /* "ERR max number of clients reached" comes before any command is read
                      */
        hf__redis_reply_error(r, reply, &err);
        hf__link_break(&conn->link, &err);
    } else if (reply->type == REDIS_REPLY_ERROR && q->type->line &&
               as_good_as_gone(reply)) {
        hf__redis_reply_error(r, reply, &err);
        err.code = HF_EUNREACHABLE; /* the next greeting tells if we are refused for good */
        hf__link_break(&conn->link, &err); /* it stays unanswered */
    } else {
        hf__link_answered(&conn->link);
        if (!repeated(conn, q, reply)) {
            finish(r, q, reply);
            return;
        }
    }
    freeReplyObject(reply);
}

/* ---- the transport --------------------------------------------------------------- */

static struct conn *conn_at(const struct link *k)
{
    return container_of(k, struct conn, link);
}

static void on_data(struct stream *stream, const char *bytes, size_t n)
{
    struct conn *conn = container_of(stream, struct conn, stream);
    void *reply;

    if (redisReaderFeed(conn->reader, bytes, n) != REDIS_OK)
        hf__link_fail(&conn->link, HF_ENOMEM, "no memory for an answer");
    while (link_open(&conn->link)) {
        reply = NULL;
        if (redisReaderGetReply(conn->reader, &reply) != REDIS_OK)
            hf__link_fail(&conn->link, HF_EPROTO, "not an answer of Redis: %s",
                          conn->reader->errstr);
        if (!reply)
            break;
        take(conn, reply);
    }
    hf__redis_conn_flush(conn->node->redis);
}

static const struct stream_events stream_events = { hf__wire_up, on_data, hf__wire_down };

static int open_stream(struct link *k, int64_t ms, hf_error *err)
{
    struct conn *conn = conn_at(k);
    const struct node *node = conn->node;
    struct redis *r = node->redis;
    struct stream_target to = { .host = node->host,
                                .port = node->port,
                                .path = node->path,
                                .connect_ms = ms,
                                .tls = r->open.tls,
                                .tls_context = r->open.tls_context,
                                .shown = node->shown };

    conn->confirms = false;
    conn->reader = redisReaderCreate();
    if (!conn->reader || (!node->host && !node->path)) /* no memory for its name */
        return hf__fail(err, HF_ENOMEM, 0, node->shown, "no memory for a connection");
    conn->reader->maxbuf = 64 * 1024;
    return hf__stream_open(&conn->stream, &to, err);
}

static int send_request(struct link *k, struct link_call *call)
{
    struct redis *r = conn_at(k)->node->redis;
    struct redis_call *q = container_of(call, struct redis_call, call);
    struct command *c = &r->command;

    c->len = 0;
    c->failed = c->nothing = false;
    q->type->build(r, q, c);
    if (c->nothing || c->failed)
        return c->nothing ? HF_ENOENT : HF_ENOMEM;
    return hf__stream_write(&conn_at(k)->stream, c->buf, c->len);
}

static const struct link_transport transport = { open_stream, hf__wire_close, send_request,
                                                 hf__wire_flush, hf__wire_read };

/* ---- what the link tells --------------------------------------------------------- */

/* WAIT answers late by design. */
static int64_t limit_ms(const struct link *k)
{
    const struct redis *r = conn_at(k)->node->redis;

    return r->open.connect_ms +
           (r->replicas > 0 && k->state > LINK_OPENING ? r->replica_ms : 0);
}

static void greet(struct link *k)
{
    struct conn *conn = conn_at(k);

    hf__redis_login(conn);
    conn->greet(conn);
    if (conn_hears(conn) && !conn->confirms && link_open(k))
        hf__link_up(k); /* there is nothing to hear, so far */
}

static void down(struct link *k, const hf_error *err)
{
    struct conn *conn = conn_at(k);
    hf_error last = *err;

    redisReaderFree(conn->reader);
    conn->reader = NULL;
    if (conn != &conn->node->commands)
        return;
    conn->node->tried = true;
    if (k->failed < k->choices) /* another sentinel is asked, before we call it refused */
        last.code = HF_EUNREACHABLE;
    hf__redis_state(conn->node->redis, &last);
}

static void unanswered(struct link *k, struct link_call *c)
{
    hf__redis_request_lost(conn_at(k)->node->redis,
                           container_of(c, struct redis_call, call));
}

static void lost(struct link *k, const hf_error *err)
{
    (void)err;
    if (conn_at(k)->lost)
        conn_at(k)->lost(conn_at(k));
}

static const struct link_events events = { limit_ms, greet, down, unanswered, lost };

/* ---- life ------------------------------------------------------------------------ */

/* The node is not needed any more. */
void hf__redis_conn_lose_all(struct node *node)
{
    struct conn *both[] = { &node->commands, &node->messages };
    hf_error err;

    hf__fail(&err, HF_EUNREACHABLE, 0, node->shown,
             "the cluster does not name it any more");
    list_remove(&node->in_redis); /* nothing more is asked of it */
    for (size_t i = 0; i < 2; i++) {
        both[i]->lost = NULL;
        both[i]->link.wanted = false;
        hf__link_drop(&both[i]->link, &err);
    }
}

void hf__redis_conn_init(struct conn *conn, struct node *node)
{
    struct redis *r = node->redis;

    conn->node = node;
    conn->login = &r->open.login;
    hf__stream_init(&conn->stream, r->store.env, &stream_events);
    hf__link_init(&conn->link, r->store.env, &transport, &events, &r->dirty,
                  r->open.connect_ms);
    hf__wire_join(&conn->link, &conn->stream);
    conn->link.where = node->shown;
}

void hf__redis_conn_done(struct conn *conn)
{
    struct link_call *c;

    if (!conn->node)
        return;
    hf__link_done(&conn->link);
    while ((c = hf__link_take(&conn->link)) != NULL)
        free(container_of(c, struct redis_call, call));
    hf__stream_done(&conn->stream);
    if (conn->reader)
        redisReaderFree(conn->reader);
}
