/* zookeeper_close.c: hf_close ends the session, by the server's own count: when it has
 * returned, neither the session nor its nodes are there, and a server that does not answer
 * costs no more than the time for settling. */
#include "zookeeper_fault.h"

/* The servers answer in time, however busy the machine is. */
enum { SETTLES_MS = 1000, SLACK_MS = TEST_SANITIZED ? 4000 : 1500 };

static int64_t sessions(void)
{
    return zk_number(&servers->servers[0], "mntr", "zk_global_sessions\t");
}

static int64_t ephemerals(void)
{
    return zk_number(&servers->servers[0], "mntr", "zk_ephemerals_count\t");
}

/* With what was held and waited for, and with nothing. */
static void session_closed(void)
{
    hf_client *holder, *idle;
    struct pend *p;
    hf_lease *held;

    use_one("ttl=30s"); /* long: nothing here expires */
    CHECK_NUM(sessions(), ==, 0);
    holder = opened();
    idle = opened();
    CHECK_NUM(tried(idle, "other", NULL), ==, 0);
    held = taken(holder, "n", NULL);
    p = begun(holder, "n", HF_FOREVER, NULL);
    AWAIT(line_is(idle, "n", 1, 1));
    CHECK_NUM(sessions(), ==, 2);
    closed(idle);
    CHECK_NUM(sessions(), ==, 1);
    closed(holder);
    CHECK_NUM(sessions(), ==, 0);
    CHECK_NUM(ephemerals(), ==, 0);
    CHECK_RC(pend_end(p, NULL), HF_ECLOSED);
    CHECK_RC(rig.face->release(held, E()), HF_ECLOSED);
    done();
}

/* At any point of the session's making. */
static void closed_at_once(void)
{
    enum { TIMES = 60, STEPS = 6 };

    use_one("ttl=30s");
    for (int i = 0; i < TIMES; i++) {
        hf_client *c = NULL;

        CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
        for (int k = 0; k < i % STEPS; k++)
            CHECK(hf_client_wait(c, k < 3 ? 0 : 2) >= 0);
        hf_close(c);
        CHECK_NUM(sessions(), ==, 0);
    }
    done();
}

static void close_unheard(void)
{
    static const unsigned ways[] = { PROXY_UP, PROXY_DOWN, PROXY_UP | PROXY_DOWN };
    /* what could not be told stays until its session ends */
    static const char *const names[] = { "a", "b", "c", "d", "e", "f" };
    int64_t began;

    use_one_by_proxy("ttl=30s");
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        for (int holds = 0; holds < 2; holds++) {
            hf_client *c = opened();
            hf_lease *l = taken(c, names[2 * i + (size_t)holds], NULL);

            if (!holds)
                given(l);
            proxy_freeze(proxy, PROXY_PRESENT, ways[i]);
            began = now_ms();
            closed(c);
            CHECK_WITHIN(began, SETTLES_MS + SLACK_MS);
            if (holds)
                CHECK_RC(rig.face->release(l, E()), HF_ECLOSED);
            proxy_drop(proxy);
            proxy_freeze(proxy, PROXY_PRESENT, 0);
        }
    done();
}

/* Nobody is there to say goodbye to: nothing is waited for. */
static void closed_while_down(void)
{
    hf_client *c;
    int64_t began;

    use_one_by_proxy("ttl=30s&connect_timeout=2s");
    c = opened();
    given(taken(c, "n", NULL));
    proxy_refuse(proxy, true);
    proxy_drop(proxy);
    CHECK_RC(tried(c, "n", NULL), HF_EUNREACHABLE);
    began = now_ms();
    closed(c);
    CHECK_WITHIN(began, SETTLES_MS);
    done();
}

/* Two are not for the callback face, which asks the store for a lock to end its thread. */
const struct test_case zookeeper_close_cases[] = {
    { "session-closed", session_closed, ON_ALL, 0, 0 },
    { "closed-at-once", closed_at_once, ON_BLOCKING, 0, 0 },
    { "close-unheard", close_unheard, ON_BLOCKING | ON_FOREIGN, 0, 0 },
    { "closed-while-down", closed_while_down, ON_BLOCKING | ON_FOREIGN, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
