/* redis_refused.c: a server that refuses something half-way: keys of a line that hold
 * something else, rights withdrawn, a login it does not know. Others do not suffer for it,
 * who waits is told (G11), secrets are not (G11), and when it is repaired the line goes on
 * (G7).
 */
#include "redis_fault.h"

#include <holdfast/tool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Puts something else in place of our key. */
static void spoil(const char *key)
{
    CHECK(key[0]);
    redis_do(&server, "DEL %s", key);
    redis_do(&server, "SET %s mine", key);
}

static const char *mark_key(void)
{
    static char key[1024];
    redisReply *keys = redis_ask(&server, "KEYS holdfast:*:m");

    CHECK(keys->type == REDIS_REPLY_ARRAY && keys->elements == 1);
    snprintf(key, sizeof(key), "%s", keys->element[0]->str);
    freeReplyObject(keys);
    return key;
}

/* A server without AUTH repeats all that came behind it. */
static void login_repeated(void)
{
    hf_client *c;
    hf_lease *l = NULL;

    redis_init(&server);
    redis_config(&server, "rename-command AUTH \"\"");
    redis_run(&server);
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://jobs:Tops3cret@127.0.0.1:%d",
             server.port);
    c = opened();
    CHECK_RC(rig.face->acquire(c, nm("n"), HF_FOREVER, NULL, &l, E()), HF_EAUTH);
    CHECK(!strstr(last_error()->text, "s3cret") && !strstr(last_error()->where, "s3cret"));
    closed(c);
    done();
}

/* Renewals of many lines go in one script, and a list looks at many. */
static void one_line_damaged(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = SHORT_MS);
    hf_lease *damaged, *cut, *sound;
    hf_list *list = NULL;
    hf_client *c;

    use_plain_server();
    c = prompted();
    damaged = taken(c, nm("damaged"), req);
    cut = taken(c, nm("cut"), req);
    sound = taken(c, nm("sound"), req);
    spoil(key_of(&server, "l", nm("damaged")));
    redis_do(&server, "HSET %s %b %b", key_of(&server, "l", nm("cut")), "", (size_t)0,
             "\2cut short", (size_t)10);
    AWAIT(hf_lease_state(damaged) == HF_LOST && hf_lease_state(cut) == HF_LOST);
    STAYS(hf_lease_check(sound) == 0, 2 * SHORT_MS);
    CHECK_RC(hf_ls(c, rig.base, 0, &list, E()), 0);
    CHECK_NUM(hf_list_count(list), ==, 1);
    CHECK_STR(hf_line_name(hf_list_at(list, 0)), nm("sound"));
    hf_list_free(list);
    CHECK_RC(rig.face->release(damaged, E()), HF_ELOST);
    CHECK_RC(rig.face->release(cut, E()), HF_ELOST);
    given(sound);
    closed(c);
    done();
}

/* The holder leaves, and what would admit the next one fails: the line is not blocked by
 * who has gone for longer than its ttl. */
static void failed_half_way(void)
{
    struct two t;
    hf_lease *next;
    char mark[1024];

    use_plain_server();
    t = hold_and_wait(SHORT_MS);
    strcpy(mark, mark_key());
    redis_do(&server, "DEL %s", mark);
    redis_do(&server, "RPUSH %s mine", mark);
    CHECK(rig.face->release(t.held, E()) < 0);
    redis_do(&server, "DEL %s", mark);
    next = pend_granted(t.waits);
    CHECK_RC(hf_lease_check(next), 0);
    given(next);
    AWAIT(line_is(t.b, nm("n"), 0, 0));
    CHECK_RC(tried(t.a, nm("n"), NULL), 0);
    closed(t.a);
    closed(t.b);
    done();
}

/* Who waits looks after a third of its ttl. */
static void waiters_damaged(void)
{
    struct two t;
    hf_lease *none = NULL;
    char key[1024];

    use_plain_server();
    t = hold_and_wait(SHORT_MS);
    strcpy(key, key_of(&server, "w", nm("n")));
    spoil(key);
    CHECK_RC(pend_end(t.waits, &none), HF_EDAMAGED);
    CHECK(!none && strstr(last_error()->text, "WRONGTYPE"));
    CHECK_RC(hf_lease_check(t.held), 0);
    redis_do(&server, "DEL %s", key);
    given(t.held);
    AWAIT(tried(t.b, nm("n"), NULL) == 0);
    closed(t.a);
    closed(t.b);
    done();
}

static void rights_withdrawn(void)
{
    hf_client *a, *b;
    hf_lease *held, *none = NULL;
    struct pend *waits;
    char url[128];

    use_plain_server();
    redis_do(&server, "ACL SETUSER locker on >pw ~* &* +@all");
    snprintf(url, sizeof(url), "redis://locker:pw@127.0.0.1:%d", server.port);
    a = prompted();
    b = opened_at(url, NULL);
    held = taken(a, nm("n"), NULL);
    waits = queued(b, nm("n"), 1, HF_REQUEST(.ttl_ms = SHORT_MS));
    redis_do(&server, "ACL SETUSER locker -zrange -hget");
    CHECK_RC(pend_end(waits, &none), HF_EAUTH);
    CHECK(!none);
    redis_do(&server, "ACL SETUSER locker +zrange +hget");
    /* keeps what waits with it */
    waits = queued(b, nm("n"), 1, HF_REQUEST(.ttl_ms = SHORT_MS));
    AWAIT(line_is(a, nm("n"), 1, 1)); /* and yet the place of the first one goes */
    given(held);
    given(pend_granted(waits));
    AWAIT(line_is(a, nm("n"), 0, 0));
    closed(a);
    closed(b);
    done();
}

/* What the library tells an administrator to run, by redis-cli; no password is in it. */
static void run_as_told(const char *url)
{
    char command[64], *text = NULL;
    FILE *cli;

    CHECK_RC(hf_admin_text(url, &text, E()), 0);
    CHECK(!strstr(text, "s3cret"));
    snprintf(command, sizeof(command), "redis-cli -p %d >/dev/null", server.port);
    cli = popen(command, "w");
    CHECK(cli && fputs(text, cli) >= 0 && pclose(cli) == 0);
    free(text);
    redis_do(&server, "ACL SETUSER %s >Tops3cret", "jo\"b's");
}

static const char *url_of(const char *query)
{
    static char url[128];

    snprintf(url, sizeof(url), "redis://jo%%22b%%27s:Tops3cret@127.0.0.1:%d?%s",
             server.port, query);
    return url;
}

/* A user with those rights has all it needs in its namespace, and none in another. */
static void rights_as_told(void)
{
    static const char *const modes[] = { "namespace=a+pp", "namespace=a+pp&mode=plain" };
    hf_lease *l = NULL;
    hf_list *list = NULL;
    hf_client *a, *b;
    struct pend *p;
    char *text = NULL;

    use_plain_server();
    CHECK_RC(hf_admin_text("redis:", &text, E()), 0); /* never `default`: all the others */
    CHECK(strncmp(text, "ACL SETUSER USER on ~holdfast::* &holdfast::* -@all ", 52) == 0);
    free(text);
    for (size_t i = 0; i < 2; i++) {
        run_as_told(url_of(modes[i]));
        a = opened_at(url_of(modes[i]), NULL);
        b = opened_at(url_of(modes[i]), NULL);
        l = taken(a, nm("n"), HF_REQUEST(.ttl_ms = SHORT_MS));
        CHECK_RC(tried(b, nm("n"), NULL), HF_EBUSY);
        p = begun(b, nm("n"), HF_FOREVER, NULL);
        CHECK_RC(hf_look(a, nm("n"), &list, E()), 0);
        hf_list_free(list);
        if (i == 0)
            await_line(a, nm("n"), 1, 1);
        STAYS(hf_lease_check(l) == 0, SHORT_MS); /* it is renewed */
        given(l);
        given(pend_granted(p));
        closed(a);
        a = opened_at(url_of(i == 0 ? "namespace=other" : "namespace=other&mode=plain"),
                      NULL);
        CHECK_RC(rig.face->acquire(a, nm("n"), 0, NULL, &l, E()), HF_EAUTH);
        closed(a);
        closed(b);
        redis_do(&server, "ACL DELUSER %s", "jo\"b's");
    }
    done();
}

/* replicas=N without the right to ask for them: said at once, with the server's reason. */
static void replicas_not_to_be_asked(void)
{
    hf_client *c;
    hf_lease *l = NULL;

    redis_start(&server);
    redis_do(&server, "ACL SETUSER u on >p ~* &* +@all -wait");
    snprintf(rig.place->url, sizeof(rig.place->url),
             "redis://u:p@127.0.0.1:%d?replicas=1&replica_timeout=1h", server.port);
    c = opened();
    CHECK_RC(rig.face->acquire(c, nm("n"), LIMIT_MS, NULL, &l, E()), HF_EREPLICAS);
    CHECK(!l && strstr(last_error()->text, "NOPERM"));
    AWAIT(line_is(c, nm("n"), 0, 0));
    closed(c);
    done();
}

const struct test_case redis_refused_cases[] = {
    { "login-repeated", login_repeated, ON_ALL, 0, 0 },
    { "one-line-damaged", one_line_damaged, ON_ALL, 0, 0 },
    { "failed-half-way", failed_half_way, ON_ALL, 0, 0 },
    { "waiters-damaged", waiters_damaged, ON_ALL, 0, 0 },
    { "rights-withdrawn", rights_withdrawn, ON_ALL, 0, 0 },
    { "rights-as-told", rights_as_told, ON_ALL, 0, 0 },
    { "replicas-not-to-be-asked", replicas_not_to_be_asked, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
