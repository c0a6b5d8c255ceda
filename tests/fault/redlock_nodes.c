/* redlock_nodes.c: nodes that are killed, paused, cut off, have their clock stepped,
 * forget. Up to two of five: nobody notices but those who count. Three: a clear error, and
 * nothing is left behind. */
#include "redlock_fault.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char no_guard[] = "?restart_guard=off";

/* A new client works too, and soon. */
static void newcomer(void)
{
    int64_t start = now_ms();
    hf_client *c = opened();

    given(taken(c, nm("newcomer"), NULL));
    CHECK_WITHIN(start, SOON_MS);
    closed(c);
}

static void two_killed(void)
{
    struct pair p;

    use_nodes(FIVE, no_guard);
    p = pair_begin();
    server_kill(&servers[0]);
    server_kill(&servers[3]);
    newcomer();
    pair_end(&p);
    nodes_done();
}

static void two_paused(void)
{
    struct pair p;

    use_nodes(FIVE, no_guard);
    p = pair_begin();
    server_freeze(&servers[1]);
    server_freeze(&servers[4]);
    newcomer();
    pair_end(&p);
    server_continue(&servers[1]);
    server_continue(&servers[4]);
    await_gone(nm("n"));
    await_gone(nm("newcomer"));
    nodes_done();
}

static void two_cut_off(void)
{
    struct pair p;

    use_proxied_nodes(FIVE, no_guard);
    p = pair_begin();
    for (int i = 2; i < 4; i++)
        proxy_freeze(proxies[i], PROXY_PRESENT | PROXY_FUTURE, PROXY_UP | PROXY_DOWN);
    newcomer();
    pair_end(&p);
    for (int i = 2; i < 4; i++)
        proxy_freeze(proxies[i], PROXY_PRESENT | PROXY_FUTURE, 0);
    await_gone(nm("n"));
    await_gone(nm("newcomer"));
    nodes_done();
}

/* Its keys expire at once; the holder gives it the key again with its next renewal. */
static void clock_jumped(void)
{
    struct pair p;
    int64_t expired;

    use_nodes(FIVE, no_guard);
    p = pair_begin();
    expired = strtoll(redis_info(&servers[2], "expired_keys"), NULL, 10);
    server_clock_step(&servers[2], 3600000);
    AWAIT(strtoll(redis_info(&servers[2], "expired_keys"), NULL, 10) > expired);
    AWAIT(nodes_of(nm("n"), p.value) == 5);
    server_clock_step(&servers[2], -7200000);
    pair_end(&p);
    nodes_done();
}

static void restarted_empty(void)
{
    struct pair p;

    use_nodes(FIVE, no_guard);
    p = pair_begin();
    redis_restart_empty(&servers[4]);
    AWAIT(nodes_of(nm("n"), p.value) == 5); /* given again */
    pair_end(&p);
    nodes_done();
}

/* Every node is started again, one after the other, while it is held: as each gets the key
 * back before the next one goes, it is never lost. */
static void restarted_in_turn(void)
{
    struct pair p;

    use_nodes(3, no_guard);
    p = pair_begin();
    for (int i = 0; i < 3; i++) {
        redis_restart_empty(&servers[i]);
        AWAIT(nodes_of(nm("n"), p.value) == 3);
    }
    pair_end(&p);
    nodes_done();
}

static void three_killed(void)
{
    hf_client *c;

    use_nodes(FIVE, no_guard);
    c = opened();
    await_marks(c);
    /* what a node has on disk when it dies stays for its ttl */
    given(taken(c, nm("n"), HF_REQUEST(.ttl_ms = HOLD_MS)));
    for (int i = 0; i < 3; i++)
        server_kill(&servers[i]);
    AWAIT(tried(c, nm("n"), NULL) == HF_EUNREACHABLE);
    CHECK(strstr(last_error()->text, "fewer than 3 of 5 nodes"));
    CHECK(strstr(last_error()->text, "cannot be reached"));
    for (int i = 0; i < 3; i++)
        redis_run(&servers[i]);
    await_gone(nm("n"));
    AWAIT(tried(c, nm("n"), NULL) == 0);
    await_gone(nm("n"));
    closed(c);
    nodes_done();
}

/* What reached them is undone behind it, when they go on. */
static void three_paused(void)
{
    hf_client *c;

    use_nodes(FIVE, no_guard);
    c = opened();
    await_marks(c);
    given(taken(c, nm("n"), NULL));
    for (int i = 0; i < 3; i++)
        server_freeze(&servers[i]);
    CHECK_RC(tried(c, nm("n"), NULL), HF_EUNREACHABLE);
    CHECK(strstr(last_error()->text, "fewer than 3 of 5 nodes"));
    for (int i = 0; i < 3; i++)
        server_continue(&servers[i]);
    await_gone(nm("n"));
    AWAIT(tried(c, nm("n"), NULL) == 0);
    closed(c);
    nodes_done();
}

/* All of them are slow for a moment: also a try waits for them. */
static void slow_for_a_moment(void)
{
    struct pend *p;
    hf_client *c;

    use_proxied_nodes(3, no_guard);
    c = opened();
    await_marks(c);
    given(taken(c, nm("n"), NULL));
    for (int i = 0; i < 3; i++)
        proxy_freeze(proxies[i], PROXY_PRESENT, PROXY_DOWN);
    p = begun(c, nm("n"), 0, NULL);
    STAYS(!pend_done(p), 300);
    for (int i = 0; i < 3; i++)
        proxy_freeze(proxies[i], PROXY_PRESENT, 0);
    given(pend_granted(p));
    closed(c);
    nodes_done();
}

/* The nodes did it and nobody was told: the caller gives up, and so does the key, long
 * before its ttl. */
static void answers_lost(void)
{
    hf_client *c;
    hf_lease *l = NULL;
    int rc;

    use_proxied_nodes(3, "?restart_guard=off&connect_timeout=500ms");
    c = opened();
    await_marks(c);
    given(taken(c, nm("n"), NULL));
    for (int i = 0; i < 3; i++)
        proxy_freeze(proxies[i], PROXY_PRESENT, PROXY_DOWN);
    rc = rig.face->acquire(c, nm("n"), 200, HF_REQUEST(.ttl_ms = 600000), &l, E());
    CHECK(rc == HF_ETIMEDOUT || rc == HF_EUNREACHABLE);
    for (int i = 0; i < 3; i++)
        proxy_freeze(proxies[i], PROXY_PRESENT, 0);
    await_gone(nm("n"));
    AWAIT(tried(c, nm("n"), NULL) == 0);
    closed(c);
    nodes_done();
}

/* Who was away when it was given back is told when it is there again, long before the ttl.
 */
static void told_when_back(void)
{
    hf_client *c;
    hf_lease *l;

    use_proxied_nodes(3, no_guard);
    c = opened();
    await_marks(c);
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 600000));
    AWAIT(nodes_with(nm("n")) == 3);
    proxy_refuse(proxies[0], true);
    proxy_drop(proxies[0]);
    given(l);
    AWAIT(nodes_with(nm("n")) == 1);
    proxy_refuse(proxies[0], false);
    AWAIT(tried(c, nm("m"), NULL) == 0 && nodes_with(nm("n")) == 0);
    closed(c);
    nodes_done();
}

/* A place is kept when a majority of the nodes has been told so, and has it: nodes that
 * never had the key do not count. Node 2 was away when it was taken, and node 1 does not
 * hear that it is to be kept. */
static void kept_by_a_majority(void)
{
    hf_client *c, *other;
    hf_lease *l;
    int rc;

    use_proxied_nodes(3, "?restart_guard=off&connect_timeout=500ms");
    c = opened();
    other = opened();
    await_marks(c);
    proxy_refuse(proxies[2], true);
    proxy_drop(proxies[2]);
    given(taken(c, nm("m"), NULL)); /* it knows that node 2 is away */
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = HOLD_MS));
    CHECK_NUM(nodes_with(nm("n")), ==, 2);
    proxy_freeze(proxies[1], PROXY_PRESENT, PROXY_UP);
    rc = rig.face->release_after(l, 60000, E());
    proxy_drop(proxies[1]);
    proxy_freeze(proxies[1], PROXY_PRESENT, 0);
    proxy_refuse(proxies[2], false);
    if (rc == 0) /* said to be kept, and it is not */
        STAYS(tried(other, nm("n"), NULL) != 0, 2 * HOLD_MS);
    CHECK_RC(rc, HF_EUNKNOWN);
    closed(c);
    closed(other);
    nodes_done();
}

/* The one node did it, and the connection is lost with the answer: it is not in its own
 * way. */
static void lost_with_its_answer(void)
{
    hf_client *c = NULL;
    struct pend *p;
    char url[100];

    use_proxied_nodes(1, no_guard);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d?mode=plain", proxy_port(proxies[0]));
    CHECK_RC(rig.face->open(url, NULL, &c, E()), 0);
    given(taken(c, nm("n"), NULL));
    proxy_freeze(proxies[0], PROXY_PRESENT, PROXY_DOWN);
    p = begun(c, nm("n"), HF_FOREVER, HF_REQUEST(.ttl_ms = 600000));
    AWAIT(nodes_with(nm("n")) == 1);
    proxy_drop(proxies[0]);
    given(pend_granted(p));
    await_gone(nm("n"));
    closed(c);
    nodes_done();
}

/* A server that has forgotten the scripts asks for their text. */
static void scripts_forgotten(void)
{
    hf_client *c;

    use_nodes(3, no_guard);
    c = opened();
    await_marks(c);
    given(taken(c, nm("n"), NULL));
    await_gone(nm("n"));
    redis_do(&servers[0], "SCRIPT FLUSH");
    server_freeze(&servers[0]);
    for (int i = 0; i < 5; i++)
        given(taken(c, nm("n"), HF_REQUEST(.ttl_ms = 600000)));
    server_continue(&servers[0]);
    AWAIT(tried(c, nm("m"), NULL) == 0 && redis_calls(&servers[0], "eval") > 0);
    await_gone(nm("n"));
    STAYS(nodes_with(nm("n")) == 0, 200);
    closed(c);
    nodes_done();
}

/* ---- marks ----------------------------------------------------------------------- */

static const char marks[] = "holdfast:redlock:marks";

/* Nodes that forgot their marks are given some again; fences go on growing. */
static void marks_given_again(void)
{
    hf_client *c;
    uint64_t last = 0;

    use_nodes(FIVE, no_guard);
    c = opened();
    for (int i = 0; i < 60; i++) {
        hf_lease *l = taken(c, nm("n"), NULL);

        CHECK_NUM(hf_lease_fence(l), >, last);
        last = hf_lease_fence(l);
        given(l);
        if (i == 20)
            redis_do(&servers[0], "DEL %s", marks);
        if (i == 40)
            redis_restart_empty(&servers[1]);
    }
    for (int n = 0; nodes_with(marks) < FIVE && n < 1000; n++)
        given(taken(c, nm("n"), NULL));
    CHECK_NUM(nodes_with(marks), ==, FIVE);
    closed(c);
    nodes_done();
}

/* On disk when it returns: else a server that writes down slowly may lose it when it is
 * killed. */
static void set_marks(struct server *s, uint64_t number)
{
    char run[13];

    snprintf(run, sizeof(run), "%.12s", redis_info(s, "run_id"));
    redis_do(s, "CONFIG SET appendfsync always");
    redis_do(s, "HSET %s run %s floor %llu top %llu", marks, run,
             (unsigned long long)number, (unsigned long long)number);
    redis_do(s, "CONFIG SET appendfsync everysec");
}

/* Marks of an earlier run may be older than what the node knew: with the clocks of all
 * clients far behind it, only the other nodes' marks can tell. */
static void old_mark_not_believed(void)
{
    const uint64_t far = 4000000000000000;
    hf_client *c;
    hf_lease *l;

    use_nodes(3, no_guard);
    c = opened();
    await_marks(c);
    given(taken(c, nm("n"), NULL));
    await_gone(nm("n"));
    closed(c);
    set_marks(&servers[1], far);
    redis_restart(&servers[2]);
    /* as an old snapshot has */
    redis_do(&servers[2], "HSET %s run anotherrun1 floor 5 top 5", marks);
    server_kill(&servers[1]);
    c = opened();
    CHECK_RC(tried(c, nm("n"), NULL), HF_EUNREACHABLE); /* only node 1 knows */
    CHECK(strstr(last_error()->text, "cannot be reached"));
    redis_run(&servers[1]);
    closed(c);
    c = opened();
    l = taken(c, nm("n"), NULL);
    CHECK_NUM(hf_lease_fence(l), >, (long long)far);
    given(l);
    closed(c);
    nodes_done();
}

/* A node that forgot is given marks for all names by the next grant of any: the others are
 * granted when another node falls out before they were used again. */
static void marks_for_all_names(void)
{
    char name[8];
    hf_client *c;

    use_nodes(3, no_guard);
    c = opened();
    await_marks(c);
    redis_restart_empty(&servers[0]);
    AWAIT(tried(c, nm("n"), NULL) == 0 && nodes_with(marks) == 3);
    server_kill(&servers[1]);
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "n%d", i);
        AWAIT(tried(c, nm(name), NULL) == 0);
    }
    closed(c);
    nodes_done();
}

enum { CROWD = 8, CROWD_PAIRS = 200 };

static void *one_of_crowd(void *arg)
{
    hf_client *c = NULL;
    hf_error err;

    CHECK_RC(hf_open(rig.place->url, NULL, &c, &err), 0);
    for (int i = 0; i < CROWD_PAIRS; i++) {
        hf_lease *l;

        CHECK_RC(hf_acquire(c, arg, HF_FOREVER, NULL, &l, &err), 0);
        CHECK_RC(hf_release(l, &err), 0);
    }
    hf_close(c);
    return NULL;
}

static int64_t scripts_run(void)
{
    int64_t calls = 0;

    for (size_t i = 0; i < 3; i++)
        calls += redis_calls(&servers[i], "evalsha");
    return calls;
}

/* Clients with a name each do not come between each other: a pair is a request to each node
 * for the key, and one that gives it back. */
static void names_of_their_own(void)
{
    char names[CROWD][8];
    pthread_t threads[CROWD];
    hf_client *c;
    int64_t calls;

    use_nodes(3, no_guard);
    c = opened();
    await_marks(c);
    calls = -scripts_run();
    for (size_t i = 0; i < CROWD; i++) {
        snprintf(names[i], sizeof names[i], "own%zu", i % CROWD);
        CHECK(pthread_create(&threads[i], NULL, one_of_crowd, names[i]) == 0);
    }
    for (size_t i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    calls += scripts_run();
    printf("# %.2f scripts a pair\n", (double)calls / (CROWD * CROWD_PAIRS));
    CHECK_NUM(calls, <, CROWD * CROWD_PAIRS * 15 / 2);
    closed(c);
    nodes_done();
}

/* One word about a name costs one request to each node; the fewest of several, because the
 * client may have something of its own to do. */
static void state_asks_each_once(void)
{
    hf_client *c;
    int64_t least[FIVE];

    use_nodes(FIVE, no_guard);
    c = opened();
    await_marks(c);
    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_FREE); /* loads the script */
    for (size_t i = 0; i < FIVE; i++)
        least[i] = INT64_MAX;
    for (int k = 0; k < 20; k++) {
        int64_t before[FIVE];

        for (size_t i = 0; i < FIVE; i++)
            before[i] = redis_calls(&servers[i], "evalsha");
        CHECK_RC(rig.face->state(c, nm("n"), E()), HF_FREE);
        for (size_t i = 0; i < FIVE; i++) {
            int64_t now = redis_calls(&servers[i], "evalsha") - before[i];

            least[i] = now < least[i] ? now : least[i];
        }
    }
    for (size_t i = 0; i < FIVE; i++)
        CHECK_NUM(least[i], ==, 1);
    closed(c);
    nodes_done();
}

const struct test_case redlock_nodes_cases[] = {
    { "two-killed", two_killed, ON_ALL, 0, 0 },
    { "two-paused", two_paused, ON_ALL, 0, 0 },
    { "two-cut-off", two_cut_off, ON_ALL, 0, 0 },
    { "clock-jumped", clock_jumped, ON_ALL, 0, 0 },
    { "restarted-empty", restarted_empty, ON_ALL, 0, 0 },
    { "restarted-in-turn", restarted_in_turn, ON_ALL, 0, 0 },
    { "three-killed", three_killed, ON_ALL, 0, 0 },
    { "three-paused", three_paused, ON_ALL, 0, 0 },
    { "slow-for-a-moment", slow_for_a_moment, ON_ALL, 0, 0 },
    { "answers-lost", answers_lost, ON_ALL, 0, 0 },
    { "told-when-back", told_when_back, ON_ALL, 0, 0 },
    { "kept-by-a-majority", kept_by_a_majority, ON_ALL, 0, 0 },
    { "lost-with-its-answer", lost_with_its_answer, ON_ALL, 0, 0 },
    { "scripts-forgotten", scripts_forgotten, ON_ALL, 0, 0 },
    { "marks-given-again", marks_given_again, ON_ALL, 0, 0 },
    { "marks-for-all-names", marks_for_all_names, ON_ALL, 0, 0 },
    { "names-of-their-own", names_of_their_own, ON_ALL, 0, 0 },
    { "state-asks-each-once", state_asks_each_once, ON_ALL, 0, 0 },
    { "old-mark-not-believed", old_mark_not_believed, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
