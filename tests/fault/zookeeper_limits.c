/* zookeeper_limits.c: the ends of ranges: the shortest and the longest session that the
 * servers give, and the last numbers of a line. */
#include "zookeeper_fault.h"

#include "proto/jute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- how long a session lives ---------------------------------------------------- */

enum { LEAST_MS = 2 * ZK_TICK_MS };

static hf_client *with_ttl(const char *ttl)
{
    char url[128];

    snprintf(url, sizeof(url), "zk://127.0.0.1:%d/fault?ttl=%s", servers->servers[0].port,
             ttl);
    return opened_at(url);
}

static void refused(hf_client *c)
{
    hf_lease *l = NULL;
    char text[64];

    snprintf(text, sizeof(text), "no less than %d ms", LEAST_MS);
    CHECK_RC(rig.face->acquire(c, "n", LIMIT_MS, NULL, &l, E()), HF_ENOTSUP);
    CHECK(strstr(last_error()->text, text));
    CHECK_RC(rig.face->acquire(c, "n", 0, NULL, &l, E()), HF_ENOTSUP);
    CHECK(!l);
    closed(c);
}

/* On a slow machine the shortest session may end at any time; then it is taken anew. */
static bool pair_works(hf_client *c, int64_t most_ms)
{
    hf_lease *l = NULL;
    int64_t left;

    if (rig.face->acquire(c, "n", LIMIT_MS, NULL, &l, E()) < 0)
        return false;
    left = hf_lease_remaining_ms(l);
    CHECK_NUM(left, <=, most_ms);
    return rig.face->release(l, E()) == 0 && left > 0;
}

static void shortest_session(void)
{
    char least[32], less[32], url[128];
    hf_client *c = NULL;

    use_one("");
    snprintf(least, sizeof(least), "%dms", LEAST_MS);
    snprintf(less, sizeof(less), "%dms", LEAST_MS - 1);
    c = with_ttl(least);
    AWAIT(pair_works(c, LEAST_MS));
    closed(c);
    refused(with_ttl(less));
    /* the same said by an option: the driver hears of it with the first ticket */
    snprintf(url, sizeof(url), "zk://127.0.0.1:%d/fault", servers->servers[0].port);
    CHECK_RC(rig.face->open(url, HF_OPTIONS(.ttl_ms = LEAST_MS - 1), &c, E()), 0);
    refused(c);
    done();
}

/* Servers cut what is too long; what was given counts. */
static void longest_session(void)
{
    enum { MOST_MS = 60000 };
    hf_client *c;

    use_one("");
    c = with_ttl("10m");
    CHECK(pair_works(c, MOST_MS));
    closed(c);
    done();
}

/* ---- the last numbers ------------------------------------------------------------ */

void doctor(const char *order)
{
    char command[4096];
    int n = snprintf(command, sizeof(command),
                     "exec java -Xshare:auto -XX:TieredStopAtLevel=1 "
                     "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn "
                     "-cp '%s' '%s/Doctor.java' '%s/data' %s >&2",
                     zk_server_path(), SOURCES, servers->servers[0].dir, order);

    CHECK(n < (int)sizeof(command));
    server_kill(&servers->servers[0]);
    CHECK(system(command) == 0);
    zk_run(servers, 0);
    zk_await(servers, 0);
}

/* Many at once, so that the server gives numbers out before it has stored the last. */
static void all_refused(hf_client *a, hf_client *b)
{
    enum { MANY = 12 };
    struct pend *p[MANY];
    hf_lease *l = NULL;

    for (size_t i = 0; i < MANY; i++)
        p[i] = begun(i % 2 ? a : b, "n", HF_FOREVER, NULL);
    for (size_t i = 0; i < MANY; i++)
        CHECK_RC(pend_end(p[i], &l), HF_EFULL);
    CHECK(strstr(last_error()->text, "used up its numbers"));
    CHECK(!l);
}

/* Where numbers end servers give the same one twice, or negative ones. No such ticket is
 * granted; the two before them are, one after the other; a new node begins anew. */
static void numbers_used_up(void)
{
    hf_client *a, *b;
    hf_lease *l;
    struct pend *p;
    struct hand h;
    uint64_t fence;

    use_one("ttl=8s");
    a = opened();
    given(taken(a, "n", NULL));
    closed(a);
    doctor("number /fault/n 2147483645");
    a = opened();
    b = opened();
    l = taken(a, "n", NULL);
    p = queued(b, "n", 1, NULL);
    h = hand_open(servers->servers[0].port, 10000);
    CHECK(strstr(hand_children(&h, "/fault/n"), "-lock-2147483646\n"));
    all_refused(a, b);
    AWAIT(line_is(a, "n", 1, 1));
    CHECK(!pend_done(p));
    given(l);
    l = pend_granted(p);
    all_refused(a, b);
    CHECK_RC(hf_lease_check(l), 0);
    fence = hf_lease_fence(l);
    given(l);
    CHECK_RC(tried(a, "n", NULL), HF_EFULL);
    AWAIT(line_is(a, "n", 0, 0));
    CHECK_NUM(hand_delete(&h, "/fault/n"), ==, 0); /* as servers do with empty containers */
    l = taken(b, "n", NULL);
    CHECK_NUM(hf_lease_fence(l), >, fence);
    given(l);
    hand_close(&h);
    closed(a);
    closed(b);
    done();
}

const struct test_case zookeeper_limits_cases[] = {
    { "shortest-session", shortest_session, ON_ALL, 0, 0 },
    { "longest-session", longest_session, ON_ALL, 0, 0 },
    { "numbers-used-up", numbers_used_up, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
