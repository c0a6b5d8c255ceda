/* redis_limits.c: a server that throws clients out or refuses them: connections killed,
 * limits of buffers, clients and memory, passwords, and a key of ours that is something
 * else. Who holds keeps the lock or is told, who waits is served, a refused call leaves
 * nothing (G7) and says why (G11).
 */
#include "redis_fault.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A connection of the test's own that is there before the limit is. */
static redisContext *way_in(void)
{
    redisContext *c = redisConnectUnix(server.socket);

    CHECK(c && !c->err);
    return c;
}

static void tell(redisContext *c, const char *command)
{
    redisReply *r = redisCommand(c, command);

    CHECK(r && r->type != REDIS_REPLY_ERROR);
    freeReplyObject(r);
}

static void connections_killed(void)
{
    struct two t;

    use_plain_server();
    t = hold_and_wait(SHORT_MS);
    for (int i = 0; i < 5; i++) {
        redis_do(&server, "CLIENT KILL TYPE normal");
        redis_do(&server, "CLIENT KILL TYPE pubsub");
        STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), SHORT_MS / 3);
    }
    two_go_on(&t);
    done();
}

/* The message that it was admitted meets nobody: the place is found by looking. */
static void killed_at_the_grant(void)
{
    use_plain_server();
    for (int i = 0; i < 5; i++) {
        struct two t = hold_and_wait(SHORT_MS);

        redis_do(&server, "CLIENT KILL TYPE pubsub");
        two_go_on(&t);
    }
    done();
}

static int64_t subscriber_id(void)
{
    const char *list = redis_text(&server, "CLIENT LIST TYPE pubsub"), *id;

    id = strstr(list, "id=");
    return id ? strtoll(id + 3, NULL, 10) : 0;
}

/* More than the server keeps for a subscriber: it is thrown out, and comes back. What was
 * sent is nothing of ours and must do no harm. */
static void subscriber_over_limit(void)
{
    enum { JUNK = 100000 };
    static char junk[JUNK];
    struct two t;
    redisReply *channels;
    int64_t id;

    use_plain_server();
    redis_do(&server, "CONFIG SET client-output-buffer-limit %s", "pubsub 1024 0 0");
    t = hold_and_wait(SHORT_MS);
    AWAIT((id = subscriber_id()) != 0);
    channels = redis_ask(&server, "PUBSUB CHANNELS");
    CHECK(channels->type == REDIS_REPLY_ARRAY && channels->elements > 0);
    memset(junk, 'x', sizeof(junk));
    for (size_t i = 0; i < channels->elements; i++)
        redis_do(&server, "PUBLISH %s %b", channels->element[i]->str, junk, sizeof(junk));
    freeReplyObject(channels);
    AWAIT(subscriber_id() != id);
    two_go_on(&t);
    done();
}

/* Messages that are not ours, on our channel. */
static void strange_messages(void)
{
    static const char *const strange[] = { "",
                                           "x",
                                           "h",
                                           "{}",
                                           "\xff\xfe",
                                           "0123456789012345",
                                           "h 12345 67890 -1 99999999999999999999999999" };
    struct two t;
    redisReply *channels;

    use_plain_server();
    t = hold_and_wait(SHORT_MS);
    AWAIT(subscriber_id() != 0);
    channels = redis_ask(&server, "PUBSUB CHANNELS");
    for (size_t i = 0; i < channels->elements; i++)
        for (size_t k = 0; k < sizeof(strange) / sizeof(strange[0]); k++)
            redis_do(&server, "PUBLISH %s %s", channels->element[i]->str, strange[k]);
    freeReplyObject(channels);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), SHORT_MS);
    two_go_on(&t);
    done();
}

/* Who has his connections works on; a waiter that gets no second connection is served all
 * the same; who comes new is told why; and all is well when there is room again. */
static void too_many_clients(void)
{
    hf_client *a, *b, *late = NULL;
    redisContext *in;
    struct pend *p;
    hf_lease *l, *none = NULL;
    int rc;

    use_plain_server();
    in = way_in();
    a = opened();
    b = opened();
    given(taken(b, nm("other"), NULL)); /* it is connected now */
    l = taken(a, nm("n"), HF_REQUEST(.ttl_ms = SHORT_MS));
    tell(in, "CONFIG SET maxclients 1");
    late = opened();
    rc = rig.face->acquire(late, nm("n"), 0, NULL, &none, E());
    CHECK_RC(rc, HF_EUNREACHABLE);
    CHECK(last_error()->retry == 1 && strstr(last_error()->text, "max number of clients"));
    p = begun(b, nm("n"), HF_FOREVER, HF_REQUEST(.ttl_ms = SHORT_MS));
    STAYS(hf_lease_check(l) == 0 && !pend_done(p), SHORT_MS);
    given(l);
    given(pend_granted(p));
    tell(in, "CONFIG SET maxclients 1000");
    AWAIT(tried(late, nm("n"), NULL) == 0);
    redisFree(in);
    closed(a);
    closed(b);
    closed(late);
    done();
}

/* No memory for anything new: a newcomer is told so and leaves nothing, while holders renew
 * and leave, and waiters are admitted. */
static void out_of_memory(void)
{
    struct two t;
    hf_client *c;

    use_plain_server();
    t = hold_and_wait(SHORT_MS);
    c = opened();
    redis_do(&server, "CONFIG SET maxmemory 1");
    CHECK_RC(tried(c, nm("other"), NULL), HF_EFULL);
    CHECK(last_error()->retry == 1);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), 2 * SHORT_MS);
    two_go_on(&t);
    CHECK_RC(tried(c, nm("n"), NULL), HF_EFULL);
    redis_do(&server, "CONFIG SET maxmemory 0");
    CHECK(line_is(c, nm("other"), 0, 0));
    CHECK_RC(tried(c, nm("other"), NULL), 0);
    closed(c);
    done();
}

static void use_password(const char *of_client)
{
    redis_init(&server);
    redis_config(&server, "requirepass right");
    strcpy(server.login, "default right");
    redis_run(&server);
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://%s127.0.0.1:%d", of_client,
             server.port);
}

static void refused_login(const char *of_client)
{
    hf_client *c = NULL;
    hf_lease *l = NULL;
    int64_t start = now_ms();
    int rc;

    use_password(of_client);
    rc = rig.face->open(rig.place->url, NULL, &c, E());
    if (rc == 0)
        rc = rig.face->acquire(c, nm("n"), HF_FOREVER, NULL, &l, E());
    CHECK_RC(rc, HF_EAUTH);
    CHECK_WITHIN(start, LIMIT_MS / 2);
    CHECK(last_error()->retry == 0 && last_error()->where[0]);
    CHECK(!strstr(last_error()->text, "s3cret") && !strstr(last_error()->where, "s3cret"));
    closed(c);
    done();
}

static void wrong_password(void)
{
    refused_login(":s3cret@");
}

static void no_password(void)
{
    refused_login("");
}

static void unknown_user(void)
{
    refused_login("nobody:s3cret@");
}

/* A connection stays logged in; a new one is refused. Who holds is told before his time is
 * over, and everything works again with the password. */
static void password_changed(void)
{
    hf_client *c;
    hf_lease *l;
    int64_t changed, asked;

    use_password(":right@");
    c = prompted();
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = SHORT_MS));
    redis_do(&server, "CONFIG SET requirepass other");
    strcpy(server.login, "default other");
    STAYS(hf_lease_check(l) == 0, SHORT_MS);
    redis_do(&server, "CLIENT KILL TYPE normal");
    changed = now_ms();
    for (asked = now_ms(); hf_lease_check(l) == 0; asked = now_ms()) {
        CHECK_NUM(asked - changed, <=, SHORT_MS);
        nap();
    }
    AWAIT(hf_lease_state(l) == HF_LOST);
    CHECK_RC(tried(c, nm("n"), NULL), HF_EAUTH);
    CHECK(rig.face->release(l, E()) < 0);
    redis_do(&server, "CONFIG SET requirepass right");
    strcpy(server.login, "default right");
    AWAIT(tried(c, nm("n"), NULL) == 0);
    closed(c);
    done();
}

/* Something else under our name: said so, untouched, and no other name suffers. */
static void wrong_type(void)
{
    static const char *const kinds[] = { "l", "w", "q" };
    char key[1024];
    hf_client *c;
    hf_lease *l;
    struct pend *p;
    int rc;

    use_plain_server();
    c = opened();
    for (size_t i = 0; i < 3; i++) {
        l = taken(c, nm("n"), NULL);
        p = queued(c, nm("n"), 1, NULL);
        strcpy(key, key_of(&server, kinds[i], nm("n")));
        CHECK(key[0]);
        given(l);
        given(pend_granted(p));
        AWAIT(!key_of(&server, kinds[i], nm("n"))[0]);
        redis_do(&server, "SET %s %s", key, "mine");
        l = NULL;
        rc = rig.face->acquire(c, nm("n"), 0, NULL, &l, E());
        if (i == 0) {
            CHECK(rc == HF_EDAMAGED || rc == HF_EFOREIGN);
            CHECK(last_error()->retry == 0);
        } else if (rc == 0) { /* what only waiters touch does not harm the first */
            given(l);
        }
        CHECK_STR(redis_text(&server, "GET %s", key), "mine");
        CHECK_RC(tried(c, nm("other"), NULL), 0);
        redis_do(&server, "DEL %s", key);
        CHECK_RC(tried(c, nm("n"), NULL), 0);
    }
    closed(c);
    done();
}

static void on_seen(hf_op *op, int rc, const hf_list *list, const hf_error *err, void *user)
{
    const hf_line *line = hf_list_at(list, 0);

    (void)op;
    (void)err;
    CHECK_RC(rc, 0);
    atomic_store((atomic_int *)user, line ? (int)hf_line_holders(line) : 0);
}

/* What changes while the watcher cannot be told is seen when it is connected again. */
static void watched_while_away(void)
{
    atomic_int holders = -1;
    hf_client *a, *b;
    hf_op *op = NULL;
    hf_lease *l;

    use_proxied_server("");
    a = opened();
    b = opened_directly();
    CHECK_RC(hf_watch_start(a, "n", on_seen, &holders, &op, E()), 0);
    AWAIT(holders == 0);
    for (int i = 0; i < 2; i++) {
        proxy_refuse(proxy, true);
        proxy_drop(proxy);
        AWAIT(proxy_open(proxy) == 0);
        l = taken(b, "n", NULL);
        STAYS(holders == 0, 100);
        proxy_refuse(proxy, false);
        AWAIT(holders == 1);
        given(l);
        AWAIT(holders == 0); /* and changes are told again */
    }
    hf_op_free(op);
    closed(a);
    closed(b);
    done();
}

const struct test_case redis_limits_cases[] = {
    { "connections-killed", connections_killed, ON_ALL, 0, 0 },
    { "subscriber-killed-at-the-grant", killed_at_the_grant, ON_ALL, 0, 0 },
    { "subscriber-over-limit", subscriber_over_limit, ON_ALL, 0, 0 },
    { "strange-messages", strange_messages, ON_ALL, 0, 0 },
    { "too-many-clients", too_many_clients, ON_ALL, 0, 0 },
    { "out-of-memory", out_of_memory, ON_ALL, 0, 0 },
    { "wrong-password", wrong_password, ON_ALL, 0, 0 },
    { "no-password", no_password, ON_ALL, 0, 0 },
    { "unknown-user", unknown_user, ON_ALL, 0, 0 },
    { "password-changed", password_changed, ON_ALL, 0, 0 },
    { "wrong-type", wrong_type, ON_ALL, 0, 0 },
    { "watched-while-away", watched_while_away, ON_ASYNC, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
