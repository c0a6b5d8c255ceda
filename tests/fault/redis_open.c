/* redis_open.c: what a client says and does when it arrives: warnings about settings that
 * break locks, a replica refused, how many connections it makes, how much work a lock is.
 */
#include "redis_fault.h"

#include <stdio.h>
#include <string.h>

static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[4096];

static void hear(void *user, int level, const char *name, const char *text)
{
    (void)user;
    (void)name;
    if (level < HF_LOG_WARN)
        return;
    pthread_mutex_lock(&said_lock);
    strncat(said, text, sizeof(said) - strlen(said) - 1);
    strncat(said, "\n", sizeof(said) - strlen(said) - 1);
    pthread_mutex_unlock(&said_lock);
}

/* Opens, takes a lock, closes: everything that is to be said was said. */
static void hear_all(void)
{
    hf_client *c = opened_with(HF_OPTIONS(.log = hear));

    given(taken(c, nm("n"), NULL));
    given(taken(c, nm("n"), NULL));
    closed(c);
}

static void no_warning(void)
{
    use_plain_server();
    hear_all();
    CHECK_STR(said, "");
    done();
}

static void warns_of_eviction(void)
{
    redis_init(&server);
    redis_config(&server, "maxmemory 100mb\nmaxmemory-policy allkeys-lru");
    use_server();
    hear_all();
    CHECK(strstr(said, "allkeys-lru"));
    CHECK(strchr(said, '\n') == strrchr(said, '\n')); /* once */
    done();
}

static void warns_of_forgetting(void)
{
    redis_init(&server);
    redis_config(&server, "appendonly no");
    use_server();
    hear_all();
    CHECK(strstr(said, "persist"));
    CHECK(strchr(said, '\n') == strrchr(said, '\n'));
    done();
}

static size_t times(const char *word)
{
    size_t n = 0;

    for (const char *at = said; (at = strstr(at, word)); at++)
        n++;
    return n;
}

/* Without all rights it may take until the ttl to know that it is out. */
static void given_up(hf_lease *l)
{
    int rc = rig.face->release(l, E());

    CHECK(rc == 0 || rc == HF_EUNKNOWN);
}

/* What could not be checked is said once, however often the connection is lost. */
static void unchecked(const char *rights, const char *word)
{
    hf_client *c;

    said[0] = 0;
    redis_do(&server, "ACL SETUSER app reset on >pw ~* &* +@all %s", rights);
    c = opened_with(HF_OPTIONS(.log = hear));
    for (int i = 0; i < 3; i++) {
        given_up(taken(c, nm(rights), HF_REQUEST(.ttl_ms = 1000)));
        redis_do(&server, "CLIENT KILL TYPE normal");
    }
    given_up(taken(c, nm(rights), HF_REQUEST(.ttl_ms = 1000)));
    closed(c);
    CHECK_NUM(times(word), ==, 1);
    CHECK_NUM(times("not checked"), ==, 1);
    CHECK_NUM(times("\n"), <=, 2); /* without INFO old connections stay, which is said */
}

static void warns_of_unchecked(void)
{
    redis_init(&server);
    redis_config(&server, "appendonly no\nsave 3600 1");
    use_server();
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://app:pw@127.0.0.1:%d",
             server.port);
    unchecked("-info", "INFO is refused");
    unchecked("-config|get", "CONFIG GET is refused");
    done();
}

/* Managed services rename it. */
static void warns_of_renamed(void)
{
    redis_init(&server);
    redis_config(&server, "appendonly no\nsave 3600 1\nrename-command CONFIG \"\"");
    use_server();
    hear_all();
    CHECK_NUM(times("CONFIG GET is refused"), ==, 1);
    CHECK_NUM(times("\n"), ==, 1);
    done();
}

/* A join is under way when its connection is lost, and may be executed later. */
static void warns_of_kill(void)
{
    hf_client *c;
    struct pend *p;

    use_proxied_server("");
    redis_do(&server, "ACL SETUSER app on >pw ~* &* +@all -client|kill");
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://app:pw@127.0.0.1:%d",
             proxy_port(proxy));
    c = opened_with(HF_OPTIONS(.log = hear, .drive = HF_DRIVE_PROMPT));
    given(taken(c, nm("n"), NULL));
    CHECK_STR(said, "");
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
    p = begun(c, nm("n"), LIMIT_MS, NULL);
    AWAIT(proxy_kept(proxy, PROXY_UP) > 0);
    proxy_drop(proxy);
    given_up(pend_granted(p));
    CHECK_NUM(times("CLIENT KILL is refused: giving up"), ==, 1);
    closed(c);
    done();
}

static void warns_under_sentinel(void)
{
    struct redis_place *many;
    struct server *master;

    redis_sentinel_start(rig.place, SILENCE_MS * 10);
    many = rig.place->own;
    master = redis_sentinel_master(many);
    hear_all();
    CHECK_NUM(times("min-replicas-to-write is 0"), ==, 1);
    CHECK_NUM(times("\n"), ==, 1);
    redis_do(master, "CONFIG SET min-replicas-to-write 1");
    said[0] = 0;
    hear_all();
    CHECK_STR(said, "");
    redis_do(master, "CONFIG SET min-replicas-to-write 0");
    strcat(rig.place->url, "?replicas=1&replica_timeout=10s");
    hear_all();
    CHECK_STR(said, "");
    redis_place_stop(rig.place);
}

/* Another server behind the same address has settings of its own. */
static void warns_of_another(void)
{
    static struct server next;
    hf_client *c;

    use_proxied_server("");
    redis_init(&next);
    redis_config(&next, "maxmemory 100mb\nmaxmemory-policy allkeys-lru");
    redis_run(&next);
    c = opened_with(HF_OPTIONS(.log = hear));
    given(taken(c, nm("n"), NULL));
    CHECK_STR(said, "");
    proxy_aim(proxy, next.port);
    for (int i = 0; i < 3; i++) {
        proxy_drop(proxy);
        given(taken(c, nm("n"), NULL));
    }
    CHECK_NUM(times("allkeys-lru"), ==, 1);
    closed(c);
    server_remove(&next);
    done();
}

static void replica_refused(void)
{
    static struct server replica;
    hf_client *c = NULL;
    hf_lease *l = NULL;
    int rc;

    use_plain_server();
    redis_init(&replica);
    redis_config(&replica, "replicaof 127.0.0.1 %d", server.port);
    redis_run(&replica);
    AWAIT(strcmp(redis_info(&replica, "master_link_status"), "up") == 0);
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://127.0.0.1:%d", replica.port);
    rc = rig.face->open(rig.place->url, NULL, &c, E());
    if (rc == 0)
        rc = rig.face->acquire(c, nm("n"), HF_FOREVER, NULL, &l, E());
    CHECK(rc < 0 && !l);
    CHECK(strstr(last_error()->text, "replica"));
    closed(c);
    server_remove(&replica);
    done();
}

/* Those by the port, which the test itself does not use. */
static int connections(void)
{
    const char *at = redis_text(&server, "CLIENT LIST");
    int n = 0;

    for (; (at = strstr(at, " addr=127.0.0.1:")); at++)
        n++;
    return n;
}

/* Who neither waits nor holds for long needs one; how long it holds, the machine decides.
 */
static bool one_is_enough(void)
{
    hf_client *c = opened();
    int n;

    for (int i = 0; i < 20; i++)
        CHECK_RC(tried(c, nm("n"), NULL), 0);
    n = connections();
    CHECK_NUM(n, <=, 2);
    closed(c);
    AWAIT(connections() == 0);
    return n == 1;
}

/* However many locks and waiters: one connection, and a second one, to listen, once the
 * client waits or has held something for a while. */
static void two_connections(void)
{
    enum { NAMES = 50 };
    hf_client *a, *b;
    hf_lease *l[NAMES];
    struct pend *p[NAMES];
    char name[64];

    use_plain_server();
    AWAIT(one_is_enough());
    a = opened();
    b = opened();
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof(name), "%s-%d", rig.base, i);
        l[i] = taken(a, name, NULL);
    }
    CHECK_NUM(connections(), <=, 3);
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof(name), "%s-%d", rig.base, i);
        p[i] = queued(b, name, 1, NULL);
    }
    AWAIT(connections() >= 3);
    CHECK_NUM(connections(), <=, 4);
    for (int i = 0; i < NAMES; i++) {
        given(l[i]);
        given(pend_granted(p[i]));
    }
    closed(a);
    closed(b);
    done();
}

/* Commands inside the scripts, on the free path. */
static void few_commands(void)
{
    int64_t before, joined, left;
    hf_client *c;
    hf_lease *l;

    use_plain_server();
    c = opened();
    given(taken(c, nm("n"), NULL)); /* the scripts are known */
    before = redis_work(&server);
    l = taken(c, nm("n"), NULL);
    joined = redis_work(&server);
    given(l);
    left = redis_work(&server);
    fprintf(stderr, "join %lld, leave %lld commands, with the script itself\n",
            (long long)(joined - before), (long long)(left - joined));
    CHECK_NUM(joined - before, <=, 1 + 5);
    CHECK_NUM(left - joined, <=, 1 + 3);
    closed(c);
    done();
}

/* No message when nobody waits; one for one who waits. */
static void few_messages(void)
{
    hf_client *c;
    struct two t;

    use_plain_server();
    c = opened();
    for (int i = 0; i < 10; i++)
        given(taken(c, nm("n"), NULL));
    CHECK_NUM(redis_calls(&server, "publish"), ==, 0);
    closed(c);
    t = hold_and_wait(60000);
    two_go_on(&t);
    CHECK_NUM(redis_calls(&server, "publish"), ==, 1);
    done();
}

const struct test_case redis_open_cases[] = {
    { "no-warning", no_warning, ON_ALL, 0, 0 },
    { "warns-of-eviction", warns_of_eviction, ON_ALL, 0, 0 },
    { "warns-of-forgetting", warns_of_forgetting, ON_ALL, 0, 0 },
    { "warns-of-unchecked", warns_of_unchecked, ON_ALL, 0, 0 },
    { "warns-of-renamed", warns_of_renamed, ON_ALL, 0, 0 },
    { "warns-of-kill", warns_of_kill, ON_ALL, 0, 0 },
    { "warns-under-sentinel", warns_under_sentinel, ON_ALL, 0, 0 },
    { "warns-of-another", warns_of_another, ON_ALL, 0, 0 },
    { "replica-refused", replica_refused, ON_ALL, 0, 0 },
    { "two-connections", two_connections, ON_ALL, 0, 0 },
    { "few-commands", few_commands, ON_ALL, 0, 0 },
    { "few-messages", few_messages, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
