/* redlock_guard.c: nodes that were started a moment ago: they may have forgotten a key on
 * which somebody still counts, so their votes do not count until that is over. */
#include "redlock_fault.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* Uptime is told in whole seconds, so a node counts between 2 and 4 seconds after its
 * start: the seconds of the clock that began, so the first may be a moment. */
static const char guarded[] = "?max_ttl=2s&ttl=2s";
enum { GUARD_MS = 2000 };

static void uptime_over_guard(struct server *s)
{
    AWAIT(strtoll(redis_info(s, "uptime_in_seconds"), NULL, 10) > GUARD_MS / 1000 + 1);
}

static hf_client *opened_when_all_count(void)
{
    hf_client *c = opened();

    for (int i = 0; i < FIVE; i++)
        uptime_over_guard(&servers[i]);
    await_marks(c);
    return c;
}

static void young_nodes_refused(void)
{
    hf_client *c;
    hf_lease *l = NULL;
    char started[100];

    use_nodes(3, ""); /* with 60 s */
    c = opened();
    snprintf(started, sizeof(started), "127.0.0.1:%d was started ", servers[0].port);
    CHECK_RC(tried(c, nm("n"), NULL), HF_EUNREACHABLE);
    CHECK(strstr(last_error()->text, "fewer than 2 of 3 nodes"));
    CHECK(strstr(last_error()->text, started));
    CHECK(strstr(last_error()->text, "; wait 6") || strstr(last_error()->text, "; wait 5"));
    CHECK(strstr(last_error()->text, "appendfsync always"));
    CHECK(strstr(last_error()->text, "restart_guard=off"));
    /* who would wait is told too */
    CHECK_RC(rig.face->acquire(c, nm("n"), HF_FOREVER, NULL, &l, E()), HF_EUNREACHABLE);
    CHECK_RC(tried(c, nm("n"), HF_REQUEST(.ttl_ms = 61000)), HF_ENOTSUP);
    await_gone(nm("n"));
    closed(c);
    nodes_done();
}

static int64_t ms_of_second(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_nsec / 1000000;
}

/* The clock's second ends between the start of the nodes and the first question after their
 * age. */
static void older_by_a_moment(void)
{
    hf_client *c;
    int64_t start;

    AWAIT(ms_of_second() > 300 && ms_of_second() < 500);
    start = now_ms();
    use_nodes(3, guarded);
    AWAIT(ms_of_second() < 300);
    c = opened();
    AWAIT(tried(c, nm("n"), NULL) == 0);
    CHECK_NUM(now_ms() - start, >, GUARD_MS);
    closed(c);
    nodes_done();
}

static void always_is_trusted(void)
{
    hf_client *c;

    use_nodes(3, "");
    for (int i = 0; i < 3; i++)
        redis_do(&servers[i], "CONFIG SET appendfsync always");
    c = opened();
    await_marks(c);
    given(taken(c, nm("n"), NULL));
    closed(c);
    nodes_done();
}

/* A holds three of five; one of them forgets it. Without the guard the three that are free
 * make a second holder, which shows that this is how it happens; with it there is none
 * until the first one's time is over. */
static void no_second_lock(void)
{
    hf_client *a, *b, *careless;
    hf_lease *l, *second;
    uint64_t fence;
    int64_t until;

    use_nodes(FIVE, guarded);
    a = opened_when_all_count();
    b = opened();
    careless = opened_with_params("?restart_guard=off");
    given(taken(b, nm("warm"), NULL));
    given(taken(careless, nm("warm"), NULL));
    l = taken(a, nm("n"), HF_REQUEST(.ttl_ms = GUARD_MS, .flags = HF_NO_RENEW));
    fence = hf_lease_fence(l);
    until = now_ms() + hf_lease_remaining_ms(l);
    AWAIT(nodes_with(nm("n")) == FIVE);
    redis_do(&servers[3], "DEL %s", nm("n"));
    redis_do(&servers[4], "DEL %s", nm("n"));
    redis_restart_empty(&servers[2]);
    while (now_ms() < until - 300) {
        int rc = tried(b, nm("n"), NULL), held = hf_lease_check(l);

        if (now_ms() >= until)
            break;
        CHECK(rc == HF_EBUSY || rc == HF_EUNREACHABLE); /* one that is slow has not voted */
        CHECK_RC(held, 0);
    }
    second = taken(careless, nm("n"), NULL);
    CHECK(hf_lease_check(l) == 0 || now_ms() >= until);
    given(second);
    AWAIT(hf_lease_check(l) == HF_ELOST);
    second = taken(b, nm("n"), NULL);
    CHECK_NUM(hf_lease_fence(second), >, fence);
    given(second);
    (void)rig.face->release(l, E());
    closed(a);
    closed(b);
    closed(careless);
    nodes_done();
}

/* ---- a round that is older than the run of a server ------------------------------ */

static void *busy(void *arg)
{
    freeReplyObject(redis_ask(arg, "EVAL %s 0", "while true do end"));
    return NULL;
}

static bool answers_busy(struct server *s)
{
    redisReply *r = redis_ask(s, "PING");
    bool is = r->type == REDIS_REPLY_ERROR && strncmp(r->str, "BUSY", 4) == 0;

    freeReplyObject(r);
    return is;
}

/* Node 0 is busy with a script and wants the request for its vote again later; before that
 * an empty server takes its place, which does not count yet, and may not be given marks by
 * what the round has heard before. */
static void asked_again_after_a_restart(void)
{
    struct server *young = &servers[3];
    pthread_t thread;
    hf_client *c;

    use_proxied_nodes(3, guarded);
    redis_init(young);
    redis_config(young, "appendfsync everysec");
    redis_run(young);
    redis_do(&servers[0], "CONFIG SET lua-time-limit 1");
    for (int i = 0; i < 3; i++)
        uptime_over_guard(&servers[i]);
    for (int i = 0; i < 5; i++) {
        hf_lease *l;

        redis_restart_empty(young);
        c = prompted();
        await_marks(c);
        l = taken(c, nm("n"), NULL);
        AWAIT(nodes_with(nm("n")) == 3);
        given(l);
        await_gone(nm("n"));
        CHECK(pthread_create(&thread, NULL, busy, &servers[0]) == 0);
        AWAIT(answers_busy(&servers[0]));
        l = taken(c, nm("n"), NULL);
        nap(); /* for the answer of node 0 */
        proxy_aim(proxies[0], young->port);
        proxy_drop(proxies[0]);
        STAYS(redis_number(young, "EXISTS holdfast:redlock:marks") == 0, 200);
        given(l);
        redis_do(&servers[0], "SCRIPT KILL");
        pthread_join(thread, NULL);
        proxy_aim(proxies[0], servers[0].port);
        closed(c);
    }
    server_remove(young);
    nodes_done();
}

/* ---- everything at once ---------------------------------------------------------- */

enum { WORKERS = 3, CHAOS_MS = 9000 };

static struct {
    pthread_mutex_t mutex;
    hf_lease *held[WORKERS];
    uint64_t last;
    int grants, overlaps, inversions;
    bool end;
} chaos = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* Both valid at one moment: mine is asked again after the other's. */
static void look_for_others(int me)
{
    for (int i = 0; i < WORKERS; i++)
        if (i != me && chaos.held[i] && hf_lease_check(chaos.held[i]) == 0 &&
            hf_lease_check(chaos.held[me]) == 0)
            chaos.overlaps++;
}

static bool enter(int me, hf_lease *l)
{
    bool end;

    pthread_mutex_lock(&chaos.mutex);
    chaos.held[me] = l;
    look_for_others(me);
    if (hf_lease_check(l) == 0) {
        chaos.inversions += hf_lease_fence(l) <= chaos.last;
        chaos.last = hf_lease_fence(l);
        chaos.grants++;
    }
    end = chaos.end;
    pthread_mutex_unlock(&chaos.mutex);
    return !end;
}

static void *work(void *arg)
{
    int me = (int)(intptr_t)arg;
    hf_client *c = opened();
    bool goes_on = true;

    while (goes_on) {
        hf_lease *l = NULL;

        if (hf_acquire(c, nm("n"), LIMIT_MS, HF_REQUEST(.ttl_ms = GUARD_MS), &l, E()) < 0) {
            pthread_mutex_lock(&chaos.mutex);
            goes_on = !chaos.end;
            pthread_mutex_unlock(&chaos.mutex);
            continue;
        }
        goes_on = enter(me, l);
        for (int i = 0; i < 3; i++)
            nap();
        pthread_mutex_lock(&chaos.mutex);
        look_for_others(me);
        chaos.held[me] = NULL;
        pthread_mutex_unlock(&chaos.mutex);
        (void)hf_release(l, E());
    }
    closed(c);
    return NULL;
}

static int grants(void)
{
    int n;

    pthread_mutex_lock(&chaos.mutex);
    n = chaos.grants;
    pthread_mutex_unlock(&chaos.mutex);
    return n;
}

/* One fault of two nodes, progress while it lasts, and its end. Forgetful ones may vote
 * again before the next fault. No clock is stepped here: a holder may have a bare majority
 * just then, and what that means stands in guarantees.md; clock-jumped has the other case.
 */
static void one_fault(unsigned dice)
{
    struct server *a = &servers[dice % FIVE],
                  *b = &servers[(dice + 1 + dice / 5 % 4) % FIVE];
    int before, kind = (int)(dice / 20 % 3);

    if (kind == 0) {
        server_freeze(a);
        server_freeze(b);
    } else if (kind == 1) {
        server_kill(a);
        server_kill(b);
    } else {
        redis_restart_empty(a);
        server_freeze(b);
    }
    before = grants();
    AWAIT(grants() > before + 5);
    if (kind == 0 || kind == 2)
        server_continue(b);
    if (kind == 0)
        server_continue(a);
    if (kind == 1) {
        redis_run(a);
        redis_run(b);
        uptime_over_guard(b);
    }
    if (kind == 1 || kind == 2)
        uptime_over_guard(a);
    before = grants();
    AWAIT(grants() > before + 5);
}

static void faults_at_random(void)
{
    pthread_t threads[WORKERS];
    int64_t until;
    unsigned seed;
    hf_client *c;

    CHECK(getrandom(&seed, sizeof(seed), 0) == sizeof(seed));
    if (getenv("HF_SEED"))
        seed = (unsigned)strtoul(getenv("HF_SEED"), NULL, 0);
    fprintf(stderr, "# seed: HF_SEED=%u\n", seed);
    use_nodes(FIVE, guarded);
    c = opened_when_all_count();
    for (int i = 0; i < WORKERS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i) == 0);
    until = now_ms() + CHAOS_MS;
    while (now_ms() < until)
        one_fault((unsigned)rand_r(&seed) >> 4);
    pthread_mutex_lock(&chaos.mutex);
    chaos.end = true;
    pthread_mutex_unlock(&chaos.mutex);
    for (int i = 0; i < WORKERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    fprintf(stderr, "# %d grants\n", chaos.grants);
    CHECK_NUM(chaos.overlaps, ==, 0);
    CHECK_NUM(chaos.inversions, ==, 0);
    await_gone(nm("n"));
    closed(c);
    nodes_done();
}

const struct test_case redlock_guard_cases[] = {
    { "young-nodes-refused", young_nodes_refused, ON_ALL, 0, 0 },
    { "older-by-a-moment", older_by_a_moment, ON_ALL, 0, 0 },
    { "always-is-trusted", always_is_trusted, ON_ALL, 0, 0 },
    { "no-second-lock", no_second_lock, ON_ALL, 0, 0 },
    { "asked-again-after-a-restart", asked_again_after_a_restart, ON_ALL, 0, 0 },
    { "faults-at-random", faults_at_random, ON_BLOCKING, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
