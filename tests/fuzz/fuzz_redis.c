/* fuzz_redis.c: the redis driver under a server that says anything. The input is a list of
 * steps: connections come up and break, the clock goes on, a caller acquires, gives up,
 * releases and looks, and in between come answers and messages, well-formed ones and any
 * bytes. The driver must not crash, and must keep the seam's rules, which the core above it
 * relies on; stored lines and records, made of any bytes, are read or refused. Streams are
 * replaced by the harness (hf__stream_open and hf__stream_flush are wrapped): what is
 * written goes nowhere. */
#define request core_request /* the driver has a struct of that name too */
#include "core/core.h"
#undef request
#include "core/url.h"
#include "driver/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *, size_t);
int __wrap_hf__stream_open(struct stream *, const struct stream_target *, hf_error *);
void __wrap_hf__stream_flush(struct stream *);

enum { OPS = 4 };

static struct {
    struct env env;
    struct client c;
    struct heap timers;
    int64_t now;
    uint32_t random;
    struct hf_op ops[OPS];
    bool started[OPS];
    struct hf_op look_op;
    struct ask look;
    bool looking;
    const uint8_t *in;
    size_t left;
} w;

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* ---- the world ------------------------------------------------------------------- */

static int64_t env_now(struct env *e)
{
    (void)e;
    return w.now;
}

static void env_random(struct env *e, void *buf, size_t n)
{
    (void)e;
    memset(buf, 0, n);
    w.random++;
    memcpy(buf, &w.random, n < sizeof w.random ? n : sizeof w.random);
}

static int env_watch(struct env *e, struct watch *watch, int fd, uint32_t events)
{
    (void)e;
    (void)watch;
    (void)fd;
    (void)events;
    return 0;
}

static void env_unwatch(struct env *e, struct watch *watch)
{
    (void)e;
    (void)watch;
}

static void env_timer(struct env *e, struct timer *t, int64_t at)
{
    (void)e;
    if (at == LOOP_NEVER)
        hf__heap_remove(&w.timers, &t->node);
    else
        hf__heap_set(&w.timers, &t->node, at);
}

static void env_log(struct env *e, int level, const char *name, const char *text)
{
    (void)e;
    (void)level;
    (void)name;
    must(strlen(text) < 4096);
}

int __wrap_hf__stream_open(struct stream *s, const struct stream_target *to, hf_error *err)
{
    (void)err;
    s->to = *to;
    s->state = STREAM_CONNECTING;
    return 0;
}

void __wrap_hf__stream_flush(struct stream *s)
{
    s->out_at = s->out_len = 0;
}

/* ---- the caller ------------------------------------------------------------------ */

static void nothing(struct hf_op *op)
{
    (void)op;
}

static void lease_changed(struct hf_lease *l)
{
    (void)l;
}

static void give_back(struct hf_op *op)
{
    if (op->rc == 0 && op->lease) {
        hf__release(NULL, op->lease, 0);
        free(op->lease);
    }
    op->lease = NULL;
}

static void toggle(unsigned i, unsigned how)
{
    const char *name = how & 1 ? "n" : "m";
    struct hf_op *op = &w.ops[i];
    hf_request req = HF_REQUEST_INIT;
    struct acquire_spec r;

    req.mode = how & 2 ? HF_READ : HF_MUTEX;
    if (w.started[i]) {
        if (!op->done)
            hf__cancel(op, HF_ECANCELED);
        give_back(op);
        w.started[i] = false;
    } else if (hf__check_request(&w.c, &req, false, &r, NULL) == 0) {
        hf__op_init(op, &w.c, OP_ACQUIRE, NULL);
        w.started[i] = hf__acquire(op, &name, 1, how & 4 ? HF_FOREVER : 0, &r) == 0;
    }
}

static void end_look(void)
{
    if (w.looking && !w.look_op.done)
        hf__cancel(&w.look_op, HF_ECANCELED);
    if (w.looking)
        hf_list_free(w.look_op.list);
    w.look_op.list = NULL;
    w.looking = false;
}

static void start_look(unsigned how)
{
    struct look what = { .name = how & 1 ? "" : "n",
                         .name_len = how & 1 ? 0 : 1,
                         .list = how & 1,
                         .limit = how >> 4,
                         .brief = (how & 11) == 8,
                         .token[HF_TOKEN - 1] = 5,
                         .now = how & 4,
                         .keep_ms = how & 8 ? 1000 : 0 };

    end_look();
    hf__op_init(&w.look_op, &w.c, OP_ASK, NULL);
    w.looking = hf__ask(&w.look_op, &w.look, (how & 3) == 2 ? ASK_EVICT : ASK_LOOK, &what,
                        NULL) == 0;
}

/* ---- the server ------------------------------------------------------------------ */

static unsigned byte(void)
{
    if (w.left == 0)
        return 0;
    w.left--;
    return *w.in++;
}

static struct conn *conn_of(bool messages)
{
    struct node *n = redis_of(w.c.store)->one;

    return messages ? &n->messages : &n->commands;
}

/* hiredis allocates what the head of an array announces; that is not what is tested. */
static bool boasts(const char *bytes, size_t n)
{
    size_t digits = 0;

    for (size_t i = 0; i < n; i++)
        if ((digits = bytes[i] >= '0' && bytes[i] <= '9' ? digits + 1 : 0) > 7)
            return true;
    return false;
}

static void say(struct conn *conn, const char *bytes, size_t n)
{
    char *copy;

    if (conn->stream.state != STREAM_UP || n == 0 || boasts(bytes, n) ||
        !(copy = malloc(n)))
        return;
    memcpy(copy, bytes, n); /* so that reading beyond it is seen */
    conn->stream.on->data(&conn->stream, copy, n);
    free(copy);
}

static void say_any(struct conn *conn)
{
    size_t n = byte();

    n = n < w.left ? n : w.left;
    w.in += n;
    w.left -= n;
    say(conn, (const char *)w.in - n, n);
}

static void connect_all(void)
{
    static const char greeting[] =
        "+OK\r\n:7\r\n$82\r\nredis_version:7.0.15\r\nrun_id:012345abcd\r\n"
        "role:master\r\nmaxmemory:0\r\naof_enabled:1\r\n\r\n"
        "*2\r\n$4\r\nsave\r\n$0\r\n\r\n:1\r\n";

    for (int i = 0; i < 2; i++) {
        struct conn *conn = conn_of(i);

        if (conn->stream.state != STREAM_CONNECTING)
            continue;
        conn->stream.state = STREAM_UP;
        conn->stream.on->up(&conn->stream);
        if (i == 0)
            say(conn, greeting, sizeof greeting - 1);
    }
}

static void answer(unsigned which)
{
    static const char *const answers[] = {
        "*3\r\n$1\r\nh\r\n:#\r\n:0\r\n",
        "*4\r\n$1\r\nw\r\n:5000\r\n:-1\r\n:#\r\n",
        "*1\r\n$1\r\nb\r\n",
        "*3\r\n$1\r\nm\r\n:1\r\n:#\r\n",
        "*2\r\n$1\r\nf\r\n:#\r\n",
        ":#\r\n",
        "-NOSCRIPT No matching script.\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-BUSY Redis is busy running a script.\r\n",
        "*1\r\n:#\r\n",
        "*4\r\n:5000\r\n:1\r\n:-1\r\n:#\r\n",
        "*5\r\n:5000\r\n:2\r\n:7\r\n:1\r\n:#\r\n",
        "*3\r\n:9000\r\n*2\r\n$0\r\n\r\n$58\r\n",
        "*2\r\n$1\r\n0\r\n*1\r\n$21\r\nholdfast::{3f1}:l:n#\r\n",
        "-MOVED 1 127.0.0.1:#\r\n",
    };
    const char *from = answers[which % (sizeof answers / sizeof *answers)];
    char text[200];
    size_t n = 0;

    for (; *from; from++)
        if (*from == '#')
            n += (size_t)snprintf(text + n, 8, "%u", byte());
        else
            text[n++] = *from;
    say(conn_of(false), text, n);
}

/* A message on our channel about one of the first tickets. */
static void message(unsigned kind)
{
    const struct redis *r = redis_of(w.c.store);
    char channel[KEY_MAX], text[KEY_MAX + 200], *p = text;
    size_t n = hf__redis_bucket_wake(r, channel, 0);

    memcpy(channel + n, r->client, CLIENT_ID);
    n += CLIENT_ID;
    p += sprintf(p, "*3\r\n$7\r\nmessage\r\n$%zu\r\n", n);
    memcpy(p, channel, n);
    p += n;
    p += sprintf(p, "\r\n$33\r\n");
    memset(p, 0, 33);
    p[0] = "gxml"[kind % 4];
    p[1] = (char)byte(); /* the token, as env_random makes it */
    p[24] = 9;
    p[31] = 5000 >> 8;
    p[32] = (char)(5000 & 255);
    memcpy(p + 33, "\r\n", 2);
    say(conn_of(true), text, (size_t)(p + 35 - text));
}

static void pass(int64_t us)
{
    int64_t end = w.now + us;
    struct heap_node *n;

    for (int i = 0; i < 1000 && (n = heap_first(&w.timers)) != NULL && n->key <= end; i++) {
        struct timer *t = container_of(n, struct timer, node);

        if (n->key > w.now)
            w.now = n->key;
        hf__heap_remove(&w.timers, n);
        t->fire(t);
        hf__client_run(&w.c);
    }
    w.now = end;
}

static void lose(struct conn *conn)
{
    hf_error err;

    hf__fail(&err, HF_EUNREACHABLE, 0, NULL, "lost");
    hf__link_break(&conn->link, &err);
}

static void step(unsigned what)
{
    switch (what & 7) {
    case 0:
        connect_all();
        break;
    case 1:
        say_any(conn_of(what & 8));
        break;
    case 2:
        answer(what >> 3);
        break;
    case 3:
        message(what >> 3);
        break;
    case 4:
        pass((int64_t)byte() * 50000);
        break;
    case 5:
        toggle(what >> 3 & (OPS - 1), what >> 5);
        break;
    case 6:
        start_look(what);
        break;
    default:
        lose(conn_of(what & 8));
        break;
    }
    hf__client_run(&w.c);
}

/* ---- what is stored -------------------------------------------------------------- */

static redisReply text_of(const char *bytes, size_t n)
{
    redisReply reply = { .type = REDIS_REPLY_STRING };

    reply.str = malloc(n + 1);
    must(reply.str != NULL);
    memcpy(reply.str, bytes, n);
    reply.str[n] = '\0';
    reply.len = n;
    return reply;
}

static void read_rows(const redisReply *reply)
{
    struct ask a;
    hf_error err;
    int64_t next;

    memset(&a, 0, sizeof a);
    if (hf__ask_look(&a, &w.c, "n", 1, false, 0, false) < 0)
        return;
    hf__redis_line_rows("n", 1, reply, &a.look, &next, &err);
    hf__ask_stop(&a);
}

/* A line whose header, holder, its owner, waiter and group are these bytes. */
static void line_of(const char *data, size_t size)
{
    size_t half = size / 2;
    redisReply fields[10] = {
        text_of("", 0),
        text_of(data, size < 58 ? size : 58),
        text_of("0123456789abcdef", HF_TOKEN),
        text_of(data, size < 57 ? size : 57),
        text_of("r0123456789abcdef", 1 + HF_TOKEN),
        text_of(data, size),
        text_of("fedcba9876543210", HF_TOKEN),
        text_of(data + half, size - half),
        text_of(data, size < 25 ? size : 25),
        text_of(data, size < 12 ? size : 12),
    };
    redisReply *all[10], parts[3] = { { .type = REDIS_REPLY_INTEGER, .integer = 1 },
                                      { .type = REDIS_REPLY_ARRAY, .elements = 6 },
                                      { .type = REDIS_REPLY_ARRAY, .elements = 4 } };
    redisReply *three[3] = { &parts[0], &parts[1], &parts[2] };
    const redisReply line = { .type = REDIS_REPLY_ARRAY, .elements = 3, .element = three };

    for (size_t i = 0; i < 10; i++)
        all[i] = &fields[i];
    parts[1].element = all;
    parts[2].element = all + 6;
    fields[1].str[0] = LINE_FORMAT; /* our format, or all ends there */
    read_rows(&line);
    for (size_t i = 0; i < 10; i++)
        free(fields[i].str);
}

static void stored(const uint8_t *data, size_t size)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;
    struct owner_record rec;

    if (size > 0) {
        redisReply copy = text_of((const char *)data, size);

        copy.str[0] = 1;
        if (hf__owner_record_read(&rec, copy.str, size) == 0)
            must(rec.hints_len == 0 || rec.hints[rec.hints_len - 1] == '\0');
        free(copy.str);
        line_of((const char *)data, size);
    }
    if (reader && !boasts((const char *)data, size) &&
        redisReaderFeed(reader, (const char *)data, size) == REDIS_OK &&
        redisReaderGetReply(reader, &reply) == REDIS_OK && reply) {
        read_rows(reply);
        freeReplyObject(reply);
    }
    redisReaderFree(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct host host = { .op_done = nothing,
                                      .op_seen = nothing,
                                      .lease_changed = lease_changed };
    static const hf_options none = HF_OPTIONS_INIT;
    static const uint32_t alive = 1;
    struct url url;

    memset(&w, 0, sizeof w);
    w.c.alive = &alive;
    w.now = 1000000000;
    w.in = data;
    w.left = size;
    w.env = (struct env){ .now = env_now,
                          .random = env_random,
                          .watch = env_watch,
                          .unwatch = env_unwatch,
                          .timer = env_timer,
                          .log = env_log };
    must(hf__url_parse(&url,
                       size % 2 ? "redis+unix:///s?ttl=3s" : "redis+unix:///s?replicas=1",
                       NULL) == 0);
    must(hf__client_init(&w.c, &hf__driver_redis, &url, &none, &w.env, &host, NULL) == 0);
    stored(data, size);
    for (int i = 0; i < 200 && w.left > 0; i++)
        step(byte());
    end_look();
    for (unsigned i = 0; i < OPS; i++)
        if (w.started[i])
            toggle(i, 0);
    hf__client_shut(&w.c);
    hf__client_done(&w.c);
    hf__url_done(&w.c.url);
    must(!heap_first(&w.timers));
    return 0;
}
