/* redlock_others.c: beside others who lock with SET NX PX, as redis-py, redsync and
 * node-redlock do; beside keys that are no locks; and many holdfast clients at the same
 * moment. */
#include "redlock_fault.h"
#include "setup_redis.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char no_guard[] = "?restart_guard=off";

/* As redis-py's Lock releases. */
static const char release_script[] = "local token = redis.call('get', KEYS[1]) if not "
                                     "token or token ~= ARGV[1] then return 0 "
                                     "end redis.call('del', KEYS[1]) return 1";

static bool foreign_takes(struct server *s, const char *key, const char *value, int ms)
{
    redisReply *r = redis_ask(s, "SET %s %s NX PX %d", key, value, ms);
    bool ok = r && r->type == REDIS_REPLY_STATUS;

    freeReplyObject(r);
    return ok;
}

static int64_t foreign_gives(struct server *s, const char *key, const char *value)
{
    return redis_number(s, "EVAL %s 1 %s %s", release_script, key, value);
}

/* Both ways, on one node: the plain lock. */
static void excluded_both_ways(const char *url_end, const char *prefix)
{
    struct server *s = &servers[0];
    char key[300], url[300], value[2000];
    hf_client *c = NULL;
    struct pend *p;
    hf_lease *l;
    int64_t start;

    redis_init(s);
    redis_run(s);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d%s", s->port, url_end);
    CHECK_RC(rig.face->open(url, NULL, &c, E()), 0);
    snprintf(key, sizeof(key), "%s%s", prefix, nm("n"));

    l = taken(c, nm("n"), HF_REQUEST(.note = "why"));
    CHECK(!foreign_takes(s, key, "theirs", 10000));
    snprintf(value, sizeof(value), "%s", redis_text(s, "GET %s", key));
    CHECK_NUM(strspn(value, "0123456789abcdef"), ==, 48); /* 24 random bytes */
    CHECK_NUM(redis_number(s, "PTTL %s", key), >, 0);
    CHECK_NUM(foreign_gives(s, key, "theirs"), ==, 0);
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    CHECK_NUM(redis_number(s, "EXISTS %s", key), ==, 0);

    CHECK(foreign_takes(s, key, "theirs", 60000));
    CHECK_RC(tried(c, nm("n"), NULL), HF_EBUSY);
    CHECK(strstr(last_error()->text, "held by somebody else"));
    CHECK_STR(redis_text(s, "GET %s", key), "theirs");
    CHECK(line_is(c, nm("n"), 1, 0));
    p = begun(c, nm("n"), HF_FOREVER, HF_REQUEST(.ttl_ms = 6000));
    STAYS(!pend_done(p), 200);
    CHECK_NUM(foreign_gives(s, key, "theirs"), ==, 1); /* tells nobody */
    given(pend_granted(p));

    CHECK(foreign_takes(s, key, "dead", 700));
    start = now_ms();
    given(taken(c, nm("n"), NULL));
    CHECK_WITHIN(start, 700 + SOON_MS);
    closed(c);
    server_remove(s);
}

static void plain_and_others(void)
{
    excluded_both_ways("?mode=plain", "");
}

static void plain_in_namespace(void)
{
    excluded_both_ways("?mode=plain&namespace=app", "app:");
}

/* A foreign Redlock has a majority, a minority, and dies. */
static void redlock_and_others(void)
{
    hf_client *c;
    hf_lease *l;
    int64_t start;

    use_nodes(FIVE, no_guard);
    c = opened();
    l = taken(c, nm("n"), NULL);
    AWAIT(nodes_with(nm("n")) == FIVE);
    for (int i = 0; i < FIVE; i++)
        CHECK(!foreign_takes(&servers[i], nm("n"), "theirs", 10000));
    given(l);
    await_gone(nm("n"));
    for (int i = 0; i < 3; i++)
        CHECK(foreign_takes(&servers[i], nm("n"), "theirs", 60000));
    CHECK_RC(tried(c, nm("n"), NULL), HF_EBUSY);
    AWAIT(nodes_with(nm("n")) == 3); /* what a lost try took is given back */
    CHECK_NUM(foreign_gives(&servers[0], nm("n"), "theirs"), ==, 1);
    given(taken(c, nm("n"), NULL)); /* two are not a majority */
    CHECK_NUM(foreign_gives(&servers[1], nm("n"), "theirs"), ==, 1);
    CHECK_NUM(foreign_gives(&servers[2], nm("n"), "theirs"), ==, 1);
    await_gone(nm("n"));
    for (int i = 0; i < FIVE; i++)
        CHECK(foreign_takes(&servers[i], nm("n"), "dead", 500));
    start = now_ms();
    given(taken(c, nm("n"), NULL));
    CHECK_WITHIN(start, 500 + SOON_MS);
    closed(c);
    nodes_done();
}

static void key_of_another_type(void)
{
    hf_client *c;
    hf_lease *l = NULL;

    use_nodes(3, no_guard);
    c = opened();
    for (int i = 0; i < 3; i++)
        redis_do(&servers[i], "LPUSH %s x", nm("n"));
    CHECK_RC(tried(c, nm("n"), NULL), HF_EBUSY);
    CHECK(strstr(last_error()->text, "is a list, not a lock"));
    CHECK_RC(rig.face->acquire(c, nm("n"), 300, NULL, &l, E()), HF_ETIMEDOUT);
    for (int i = 0; i < 3; i++)
        CHECK_NUM(redis_number(&servers[i], "LLEN %s", nm("n")), ==, 1);
    for (int i = 0; i < 3; i++)
        redis_do(&servers[i], "DEL %s", nm("n"));
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = HOLD_MS));
    for (int i = 0; i < 3; i++) {
        redis_do(&servers[i], "DEL %s", nm("n"));
        redis_do(&servers[i], "HSET %s a b", nm("n"));
    }
    AWAIT(hf_lease_check(l) == HF_ELOST); /* somebody's hash is in its place */
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(c);
    nodes_done();
}

static void mark_is_reserved(void)
{
    hf_client *c, *d;

    use_nodes(3, no_guard);
    c = opened();
    CHECK_RC(tried(c, "holdfast:redlock:marks", NULL), HF_EINVAL);
    CHECK(strstr(last_error()->text, "key of the fences"));
    d = opened_with_params("?restart_guard=off&namespace=holdfast");
    CHECK_RC(tried(d, "redlock:marks", NULL), HF_EINVAL);
    CHECK_RC(tried(d, "holdfast:redlock:marks", NULL), 0);
    closed(c);
    closed(d);
    nodes_done();
}

/* A user that may use keys, but no channels. */
static void no_right_to_publish(void)
{
    struct server *s = &servers[0];
    hf_client *c = NULL;
    char url[200];

    redis_init(s);
    redis_config(s, "user default off");
    redis_config(s, "user admin on >of-the-test ~* &* +@all");
    redis_config(s, "user locker on >secret ~* resetchannels +@all");
    strcpy(s->login, "admin of-the-test");
    redis_run(s);
    snprintf(url, sizeof(url), "redis://locker:secret@127.0.0.1:%d?mode=plain", s->port);
    CHECK_RC(rig.face->open(url, NULL, &c, E()), 0);
    given(taken(c, nm("n"), NULL));
    CHECK_NUM(redis_number(s, "EXISTS %s", nm("n")), ==, 0);
    closed(c);
    server_remove(s);
}

/* ---- TLS ------------------------------------------------------------------------- */

/* Every node by TLS, with certificates on both sides, also for those who wait; and not with
 * an authority that did not sign theirs. */
static void over_tls(void)
{
    hf_client *c = NULL, *d = NULL;
    char url[600];
    struct pend *p;
    hf_lease *l;
    int n = 0;

    for (int i = 0; i < 3; i++) {
        redis_init(&servers[i]);
        certificates_make(servers[i].dir);
        redis_config(&servers[i],
                     "port 0\ntls-port %d\ntls-auth-clients yes\n"
                     "tls-ca-cert-file %s/ca.crt\ntls-cert-file %s/server.crt\n"
                     "tls-key-file %s/server.key",
                     servers[i].port, servers[0].dir, servers[0].dir, servers[0].dir);
        redis_run(&servers[i]);
        n += snprintf(url + n, sizeof(url) - (size_t)n, "%slocalhost:%d",
                      i ? "," : "redlocks://", servers[i].port);
    }
    snprintf(
        url + n, sizeof(url) - (size_t)n,
        "?restart_guard=off&tls_cert=%s/client.crt&tls_key=%s/client.key&tls_ca=%s/ca.crt",
        servers[0].dir, servers[0].dir, servers[0].dir);
    CHECK_RC(rig.face->open(url, NULL, &c, E()), 0);
    l = taken(c, nm("n"), NULL);
    p = begun(c, nm("n"), HF_FOREVER, NULL);
    STAYS(!pend_done(p), 100);
    given(l);
    given(pend_granted(p));
    closed(c);
    snprintf(url + strlen(url) - strlen(servers[0].dir) - strlen("/ca.crt"), 200,
             "%s/ca.crt", servers[1].dir);
    CHECK_RC(rig.face->open(url, NULL, &d, E()), 0);
    CHECK_RC(tried(d, nm("n"), NULL), HF_EAUTH);
    CHECK(strstr(last_error()->text, "certificate"));
    closed(d);
    for (int i = 0; i < 3; i++)
        server_remove(&servers[i]);
}

/* ---- who it is ------------------------------------------------------------------- */

/* A look says who has it, so that a run inside a run can tell that it would wait for its
 * parent. */
static void owner_is_shown(void)
{
    hf_client *c, *d;
    hf_lease *l;
    struct seen x;
    char owner[256];

    use_nodes(3, no_guard);
    c = opened();
    d = opened();
    l = taken(c, nm("n"), HF_REQUEST(.owner = 7, .note = "why 1-2 not"));
    CHECK_NUM(hf_lease_owner(l, owner, sizeof(owner)), >, 0);
    owner[strcspn(owner, " ")] = 0; /* what it holds comes behind it */
    CHECK(see(d, nm("n"), 0, &x));
    CHECK_STR(x.owner, owner);
    CHECK_STR(x.note, "why 1-2 not");
    CHECK_NUM(x.pid, ==, getpid());
    CHECK_NUM(x.position, ==, 0);
    CHECK_NUM(x.expires_ms, >, 0);
    given(l);
    l = taken(c, nm("n"), NULL);
    CHECK(see(d, nm("n"), 0, &x));
    CHECK(strcmp(x.owner, owner) != 0);
    given(l);
    closed(c);
    closed(d);
    nodes_done();
}

/* ---- at the same moment ---------------------------------------------------------- */

enum { VOTERS = 3, VOTES = 40 };

static pthread_barrier_t together;

static void *votes(void *arg)
{
    hf_client *c = opened();
    int64_t worst = 0;

    (void)arg;
    given(taken(c, nm("warm"), NULL));
    for (int i = 0; i < VOTES; i++) {
        int64_t start;

        pthread_barrier_wait(&together);
        start = now_ms();
        given(taken(c, nm("n"), NULL));
        if (now_ms() - start > worst)
            worst = now_ms() - start;
    }
    closed(c);
    return (void *)(intptr_t)worst;
}

/* Each of three often gets one of three nodes. All have had their turn soon. */
static void split_votes(void)
{
    pthread_t threads[VOTERS];
    int64_t start;

    use_nodes(VOTERS, no_guard);
    CHECK(pthread_barrier_init(&together, NULL, VOTERS) == 0);
    start = now_ms();
    for (int i = 0; i < VOTERS; i++)
        CHECK(pthread_create(&threads[i], NULL, votes, NULL) == 0);
    for (int i = 0; i < VOTERS; i++) {
        void *worst;

        CHECK(pthread_join(threads[i], &worst) == 0);
        fprintf(stderr, "# worst wait %d ms\n", (int)(intptr_t)worst);
        CHECK_NUM((intptr_t)worst, <, SOON_MS);
    }
    fprintf(stderr, "# %d turns in %d ms\n", VOTES * VOTERS, (int)(now_ms() - start));
    await_gone(nm("n"));
    nodes_done();
}

/* Those by the port, which the test itself does not use. */
static int connections(struct server *s)
{
    const char *at = redis_text(s, "CLIENT LIST");
    int n = 0;

    for (; (at = strstr(at, " addr=127.0.0.1:")); at++)
        n++;
    return n;
}

/* In whatever order they get it. */
static void serve(struct pend **p, int n)
{
    for (int left = n; left > 0; nap())
        for (int i = 0; i < n; i++)
            if (p[i] && pend_done(p[i])) {
                given(pend_granted(p[i]));
                p[i] = NULL;
                left--;
            }
}

static void two_connections(void)
{
    struct pend *p[10];
    hf_client *c;
    hf_lease *l = NULL;

    use_nodes(3, no_guard);
    c = opened();
    AWAIT(rig.face->acquire(c, nm("n"), 0, NULL, &l, E()) == 0); /* who waits listens */
    for (int i = 0; i < 3; i++)
        AWAIT(connections(&servers[i]) == 1);
    for (int i = 0; i < 10; i++)
        p[i] = begun(c, i < 5 ? nm("n") : nm("m"), HF_FOREVER, NULL);
    for (int i = 0; i < 3; i++)
        AWAIT(connections(&servers[i]) == 2);
    serve(p + 5, 5);
    given(l);
    serve(p, 5);
    for (int i = 0; i < 3; i++)
        CHECK_NUM(connections(&servers[i]), ==, 2);
    closed(c);
    nodes_done();
}

const struct test_case redlock_others_cases[] = {
    { "plain-and-others", plain_and_others, ON_ALL, 0, 0 },
    { "plain-in-namespace", plain_in_namespace, ON_ALL, 0, 0 },
    { "redlock-and-others", redlock_and_others, ON_ALL, 0, 0 },
    { "key-of-another-type", key_of_another_type, ON_ALL, 0, 0 },
    { "mark-is-reserved", mark_is_reserved, ON_ALL, 0, 0 },
    { "no-right-to-publish", no_right_to_publish, ON_ALL, 0, 0 },
    { "over-tls", over_tls, ON_ALL, 0, 0 },
    { "owner-is-shown", owner_is_shown, ON_ALL, 0, 0 },
    { "split-votes", split_votes, ON_BLOCKING, 0, 0 },
    { "two-connections", two_connections, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
