/* redlock_free.c: giving back where the server has compare-and-delete as a command: DELIFEQ
 * (Valkey 9.0) and DELEX (Redis 8.4). The servers of the distribution have neither, so a
 * front stands before each of them that has: it passes commands on one by one, says in
 * COMMAND INFO that it knows it, and does it by a script. */
#include "redlock_fault.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

static const char delete_if[] =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end "
    "return 0";

enum knows { KNOWS_DELIFEQ, KNOWS_DELEX };

static struct front {
    struct server *server;
    int listener, port;
    enum knows knows;
    atomic_bool refuses;    /* as an ACL does */
    atomic_int conditional; /* such commands came */
} fronts[3];

struct visit { /* one connection */
    struct front *front;
    int fd;
    redisContext *server;
};

/* ---- answers, written down again ------------------------------------------------- */

static void say(int fd, const void *bytes, size_t n)
{
    const char *p = bytes;

    while (n > 0) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);

        if (sent <= 0)
            return; /* the reader is gone, and is told by its own end */
        p += sent;
        n -= (size_t)sent;
    }
}

static void say_line(int fd, char mark, const char *text)
{
    char line[700];

    say(fd, line, (size_t)snprintf(line, sizeof(line), "%c%s\r\n", mark, text));
}

static void say_reply(int fd, const redisReply *r)
{
    char number[32];

    switch (r->type) {
    case REDIS_REPLY_INTEGER:
        snprintf(number, sizeof(number), "%lld", r->integer);
        say_line(fd, ':', number);
        break;
    case REDIS_REPLY_NIL:
        say_line(fd, '$', "-1");
        break;
    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_ERROR:
        say_line(fd, r->type == REDIS_REPLY_ERROR ? '-' : '+', r->str);
        break;
    case REDIS_REPLY_ARRAY:
        snprintf(number, sizeof(number), "%zu", r->elements);
        say_line(fd, '*', number);
        for (size_t i = 0; i < r->elements; i++)
            say_reply(fd, r->element[i]);
        break;
    default:
        snprintf(number, sizeof(number), "%zu", (size_t)r->len);
        say_line(fd, '$', number);
        say(fd, r->str, r->len);
        say(fd, "\r\n", 2);
    }
}

/* ---- the front ------------------------------------------------------------------- */

/* Only what a client needs to see of it: that it is there. */
static void say_known(const struct visit *v)
{
    static const char known[] = "*2\r\n$1\r\nx\r\n:-3\r\n", none[] = "*-1\r\n";
    bool delex = v->front->knows == KNOWS_DELEX;

    say_line(v->fd, '*', "2");
    say(v->fd, delex ? none : known, (delex ? sizeof(none) : sizeof(known)) - 1);
    say(v->fd, delex ? known : none, (delex ? sizeof(known) : sizeof(none)) - 1);
}

static void pass_on(const struct visit *v, size_t n, const char **args, const size_t *lens)
{
    redisReply *r = redisCommandArgv(v->server, (int)n, args, lens);

    if (r)
        say_reply(v->fd, r);
    else
        shutdown(v->fd, SHUT_RDWR); /* the server is gone */
    freeReplyObject(r);
}

static void delete_key(const struct visit *v, const redisReply *key,
                       const redisReply *value)
{
    const char *args[] = { "EVAL", delete_if, "1", key->str, value->str };
    const size_t lens[] = { 4, sizeof(delete_if) - 1, 1, key->len, value->len };

    atomic_fetch_add(&v->front->conditional, 1);
    if (atomic_load(&v->front->refuses))
        say_line(v->fd, '-', "NOPERM this user has no permissions to run it");
    else
        pass_on(v, 5, args, lens);
}

static bool is(const redisReply *command, const char *word)
{
    return strcasecmp(command->element[0]->str, word) == 0;
}

static void serve(const struct visit *v, const redisReply *c)
{
    const char *args[64];
    size_t lens[64];

    if (is(c, "COMMAND"))
        say_known(v);
    else if (is(c, "DELIFEQ") && v->front->knows == KNOWS_DELIFEQ && c->elements == 3)
        delete_key(v, c->element[1], c->element[2]);
    else if (is(c, "DELEX") && v->front->knows == KNOWS_DELEX && c->elements == 4 &&
             strcmp(c->element[2]->str, "IFEQ") == 0)
        delete_key(v, c->element[1], c->element[3]);
    else {
        for (size_t i = 0; i < c->elements; i++) {
            args[i] = c->element[i]->str;
            lens[i] = c->element[i]->len;
        }
        pass_on(v, c->elements, args, lens);
    }
}

/* Messages come unasked: from the first subscription on, bytes pass as they are. */
static void relay(const struct visit *v)
{
    struct pollfd p[2] = { { .fd = v->fd, .events = POLLIN },
                           { .fd = v->server->fd, .events = POLLIN } };
    char buf[4096];

    for (;;) {
        poll(p, 2, -1);
        for (int i = 0; i < 2; i++) {
            ssize_t n = p[i].revents ? recv(p[i].fd, buf, sizeof(buf), 0) : 1;

            if (n <= 0)
                return;
            if (p[i].revents)
                say(p[1 - i].fd, buf, (size_t)n);
        }
    }
}

static void converse(const struct visit *v, redisReader *reader)
{
    char buf[4096];
    ssize_t n;

    while ((n = recv(v->fd, buf, sizeof(buf), 0)) > 0) {
        void *c = NULL;

        if (memmem(buf, (size_t)n, "SUBSCRIBE", 9)) { /* first on its connection */
            say(v->server->fd, buf, (size_t)n);
            relay(v);
            return;
        }
        redisReaderFeed(reader, buf, (size_t)n);
        while (redisReaderGetReply(reader, &c) == REDIS_OK && c) {
            serve(v, c);
            freeReplyObject(c);
        }
    }
}

static void *visit(void *arg)
{
    struct visit *v = arg;
    redisReader *reader = redisReaderCreate();

    v->server = redisConnectUnix(v->front->server->socket);
    if (reader && v->server && !v->server->err)
        converse(v, reader);
    close(v->fd);
    redisReaderFree(reader);
    redisFree(v->server);
    free(v);
    return NULL;
}

static void *welcome(void *arg)
{
    struct front *f = arg;
    pthread_t thread;
    int fd;

    while ((fd = accept(f->listener, NULL, NULL)) >= 0) {
        struct visit *v = calloc(1, sizeof(*v));

        CHECK(v);
        *v = (struct visit){ .front = f, .fd = fd };
        CHECK(pthread_create(&thread, NULL, visit, v) == 0);
        pthread_detach(thread);
    }
    return NULL;
}

static void front_start(struct front *f, struct server *s, enum knows knows)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(at);
    pthread_t thread;

    f->server = s;
    f->knows = knows;
    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(f->listener >= 0 && bind(f->listener, (struct sockaddr *)&at, len) == 0 &&
          listen(f->listener, 64) == 0 &&
          getsockname(f->listener, (struct sockaddr *)&at, &len) == 0);
    f->port = ntohs(at.sin_port);
    CHECK(pthread_create(&thread, NULL, welcome, f) == 0);
    pthread_detach(thread);
}

/* ---- cases ----------------------------------------------------------------------- */

static void use_fronts(enum knows knows)
{
    use_nodes(3, ""); /* the URL is not used */
    for (int i = 0; i < 3; i++)
        front_start(&fronts[i], &servers[i], knows);
    snprintf(rig.place->url, sizeof(rig.place->url),
             "redlock://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d?restart_guard=off",
             fronts[0].port, fronts[1].port, fronts[2].port);
}

static int conditional(void)
{
    int n = 0;

    for (int i = 0; i < 3; i++)
        n += atomic_load(&fronts[i].conditional);
    return n;
}

static const char hash_instead[] =
    "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'theirs', 1)";
static const char text_instead[] = "return redis.call('SET', KEYS[1], 'theirs')";

/* Each of three nodes is given it back by the command, those who wait are told, and nothing
 * of another's goes. */
static void by_command(enum knows knows)
{
    hf_client *a, *b;
    struct pend *p;
    hf_lease *l;
    int before;

    use_fronts(knows);
    a = opened();
    b = opened();
    await_marks(a);
    given(taken(b, nm("warm"), NULL));
    await_gone(nm("warm"));
    l = taken(a, nm("n"), HF_REQUEST(.ttl_ms = 600000));
    AWAIT(nodes_with(nm("n")) == 3);
    p = begun(b, nm("n"), HF_FOREVER, HF_REQUEST(.ttl_ms = 600000));
    for (int i = 0; i < 3; i++)
        AWAIT(redis_number(&servers[i], "EVAL %s 0",
                           "return #redis.call('PUBSUB', 'CHANNELS')") == 1);
    before = conditional();
    given(l);
    l = pend_granted(p);
    AWAIT(redis_calls(&servers[0], "publish") > 0);
    AWAIT(nodes_with(nm("n")) == 3); /* what it lacks is given to it */
    CHECK_NUM(conditional(), >=, before + 3);
    for (int i = 0; i < 3; i++) /* somebody's, and somebody's of another type */
        redis_do(&servers[i], "EVAL %s 1 %s", i < 2 ? hash_instead : text_instead, nm("n"));
    before = conditional();
    given(l);
    AWAIT(conditional() >= before + 3);
    CHECK_NUM(nodes_with(nm("n")), ==, 3);
    CHECK_NUM(redis_number(&servers[0], "HLEN %s", nm("n")), ==, 1);
    closed(a);
    closed(b);
    nodes_done();
}

static void by_delifeq(void)
{
    by_command(KNOWS_DELIFEQ);
}

static void by_delex(void)
{
    by_command(KNOWS_DELEX);
}

/* It was taken and given back everywhere, and nobody tried the command. */
static bool without_it(hf_client *c)
{
    int before = conditional();

    if (tried(c, nm("n"), HF_REQUEST(.ttl_ms = 600000)) < 0)
        return false;
    await_gone(nm("n"));
    return conditional() == before;
}

/* Known, but not allowed: by script, and not asked for again. */
static void not_allowed(void)
{
    hf_client *c;

    use_fronts(KNOWS_DELIFEQ);
    for (int i = 0; i < 3; i++)
        atomic_store(&fronts[i].refuses, true);
    c = opened();
    for (int i = 0; i < 3; i++)
        AWAIT(tried(c, nm("n"), HF_REQUEST(.ttl_ms = 600000)) == 0 &&
              atomic_load(&fronts[i].conditional) > 0);
    await_gone(nm("n"));
    AWAIT(without_it(c));
    closed(c);
    nodes_done();
}

/* What is left to expire is no deletion. */
static void left_to_expire(void)
{
    hf_client *c;

    use_fronts(KNOWS_DELIFEQ);
    c = opened();
    await_marks(c);
    CHECK_RC(hf_release_after(taken(c, nm("n"), HF_REQUEST(.ttl_ms = 600000)), 60000, E()),
             0);
    AWAIT(nodes_with(nm("n")) == 3);
    for (int i = 0; i < 3; i++)
        AWAIT(redis_number(&servers[i], "PTTL %s", nm("n")) <= 60000);
    CHECK_NUM(nodes_with(nm("n")), ==, 3);
    closed(c);
    nodes_done();
}

const struct test_case redlock_free_cases[] = {
    { "free-by-delifeq", by_delifeq, ON_ALL, 0, 0 },
    { "free-by-delex", by_delex, ON_ALL, 0, 0 },
    { "free-not-allowed", not_allowed, ON_ALL, 0, 0 },
    { "free-left-to-expire", left_to_expire, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
