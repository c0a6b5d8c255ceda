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

/* Another server in its place, as after a failover, is judged anew. */
static void warns_of_another_server(void)
{
    hf_client *c;

    use_plain_server();
    c = opened_with(HF_OPTIONS(.log = hear));
    given(taken(c, nm("n"), NULL));
    CHECK_STR(said, "");
    server_kill(&server);
    redis_config(&server, "maxmemory 100mb\nmaxmemory-policy allkeys-lru");
    redis_run(&server);
    given(taken(c, nm("n"), NULL));
    CHECK(strstr(said, "allkeys-lru"));
    CHECK(strchr(said, '\n') == strrchr(said, '\n')); /* once */
    closed(c);
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
    { "warns-of-another-server", warns_of_another_server, ON_ALL, 0, 0 },
    { "warns-of-forgetting", warns_of_forgetting, ON_ALL, 0, 0 },
    { "replica-refused", replica_refused, ON_ALL, 0, 0 },
    { "two-connections", two_connections, ON_ALL, 0, 0 },
    { "few-commands", few_commands, ON_ALL, 0, 0 },
    { "few-messages", few_messages, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
