/* redis_counts.c: how many commands the scripts run inside a Redis server, by its own
 * count.
 *
 *     server-redis [--face blocking|callback|foreign] [--jobs N] [--list] [--verbose]
 *     [CASE...]
 *
 * Each case has a server of its own, on which nobody else does anything, so counts are
 * exact: one command more is a failure. Times are not asserted here but measured by
 * `holdfast bench`. */
#include "counts.h"

#include <holdfast/async.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct server server;

void begin(void)
{
    redis_start(&server);
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://127.0.0.1:%d", server.port);
}

void end(void)
{
    server_remove(&server);
}

int64_t calls(const char *command)
{
    return redis_calls(&server, command);
}

int64_t inner(void)
{
    static const char *const own[] = { "hmget", "hget",   "hset",   "hdel",      "hgetall",
                                       "zadd",  "zrem",   "zrange", "zrank",     "get",
                                       "set",   "del",    "time",   "pexpireat", "pexpire",
                                       "pttl",  "exists", "publish" };
    int64_t sum = 0, known = 0;

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        sum += calls(own[i]);
    /* nothing that a script does may stay unseen: these are all that come from outside */
    known = calls("eval") + calls("evalsha") + calls("subscribe") + calls("config|get") +
            calls("client|setname") + calls("client|id") + calls("client|kill") +
            calls("client|list") + calls("keys") + calls("config|resetstat");
    CHECK_NUM(redis_work(&server), ==, sum + known);
    return sum;
}

int connections(void)
{
    const char *at = redis_text(&server, "CLIENT LIST");
    int n = 0;

    for (; (at = strstr(at, " addr=127.0.0.1:")); at++)
        n++;
    return n;
}

/* A client that has loaded the scripts and listens: from now on only what is asked
 * happens. */
static hf_client *ready(void)
{
    hf_client *c = opened();
    hf_lease *held = taken(c, nm("first"), HF_REQUEST(.ttl_ms = LONG_MS));
    struct pend *waits = queued(c, nm("first"), 1, HF_REQUEST(.ttl_ms = LONG_MS));
    int64_t before;

    AWAIT(connections() == 2);
    given(held);
    given(pend_granted(waits));
    do {
        before = calls("evalsha");
        STAYS(true, 50);
    } while (calls("evalsha") != before);
    return c;
}

/* ---- the free path --------------------------------------------------------------- */

static void count_pairs(hf_client *c, const hf_request *req)
{
    for (int i = 0; i < 10; i++) {
        int64_t at = inner(), scripts = calls("evalsha");
        hf_lease *lease = taken(c, nm("n"), req);

        CHECK_NUM(inner() - at, <=, 5);
        CHECK_NUM(calls("evalsha") - scripts, ==, 1);
        at = inner();
        given(lease);
        CHECK_NUM(inner() - at, <=, 3);
        CHECK_NUM(calls("evalsha") - scripts, ==, 2);
    }
}

static void free_path(void)
{
    hf_client *c;
    int64_t published, texts;

    begin();
    c = ready();
    published = calls("publish");
    texts = calls("eval");
    count_pairs(c, HF_REQUEST(.ttl_ms = LONG_MS));
    count_pairs(c, HF_REQUEST(.ttl_ms = LONG_MS, .mode = HF_READ));
    count_pairs(
        c, HF_REQUEST(.ttl_ms = LONG_MS, .mode = HF_PERMITS, .permits = 2, .capacity = 3));
    CHECK_NUM(calls("publish"), ==, published); /* nobody waits */
    CHECK_NUM(calls("eval"), ==, texts);        /* scripts are loaded once */
    closed(c);
    end();
}

/* ---- hand-offs ------------------------------------------------------------------- */

struct queue {
    hf_client *client;
    hf_lease *granted; /* the last one */
    size_t waiting;
};

static void on_grant(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct queue *q = user;

    (void)err;
    hf_op_free(op);
    if (rc == HF_ECLOSED)
        return;
    CHECK_RC(rc, 0);
    q->waiting--;
    q->granted = lease;
}

/* Answers come in order, so all who joined before this stand in the queue after it. */
static void settle(const struct queue *q)
{
    hf_list *list;

    CHECK_RC(hf_look(q->client, nm("nobody"), &list, E()), 0);
    hf_list_free(list);
}

static void join(struct queue *q, size_t n)
{
    hf_op *op;

    for (size_t i = 0; i < n; i++) {
        CHECK_RC(hf_acquire_start(q->client, nm("n"), HF_FOREVER,
                                  HF_REQUEST(.ttl_ms = LONG_MS), on_grant, q, &op, E()),
                 0);
        q->waiting++;
        if (i % 100 == 99)
            settle(q);
    }
    settle(q);
}

static void await_grant(struct queue *q)
{
    int64_t until = now_ms() + LIMIT_MS;

    while (!q->granted) {
        CHECK(hf_client_wait(q->client, 1000) >= 0);
        CHECK(now_ms() < until);
    }
}

/* The hold goes to the next in the queue; what that took. */
static int64_t hand_over(struct queue *q)
{
    hf_lease *lease = q->granted;
    int64_t before = inner(), published = calls("publish");

    q->granted = NULL;
    CHECK_RC(hf_release_start(lease, NULL, NULL, NULL, E()), 0);
    await_grant(q);
    settle(q);
    CHECK_NUM(calls("publish") - published, ==, 1);
    return inner() - before;
}

/* One more at the end of the queue; what that took, without the look of settle(). */
static int64_t line_up(struct queue *q)
{
    int64_t before, look;

    before = inner();
    settle(q);
    look = inner() - before;
    before = inner();
    join(q, 1);
    return inner() - before - look;
}

struct cost {
    int64_t hand_over, join;
};

static struct cost cost_with(size_t waiters)
{
    struct queue q = { 0 };
    struct cost cost = { 0, 0 };

    begin();
    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &q.client, E()), 0);
    join(&q, 1);
    await_grant(&q);
    join(&q, waiters);
    AWAIT((hf_client_process(q.client), connections() == 2));
    settle(&q);
    hand_over(&q); /* whatever was still to be said has been said then */
    for (int i = 0; i < 5; i++) {
        struct cost now = { hand_over(&q), line_up(&q) };

        CHECK(i == 0 || (now.hand_over == cost.hand_over && now.join == cost.join));
        cost = now;
    }
    CHECK_NUM(connections(), ==, 2); /* however many wait */
    hf_release_start(q.granted, NULL, NULL, NULL, NULL);
    hf_close(q.client);
    end();
    return cost;
}

static void queue_length(void)
{
    struct cost few = cost_with(10), many = cost_with(10000);

    printf("a hand-off takes %lld commands, a join behind others %lld\n",
           (long long)few.hand_over, (long long)few.join);
    CHECK_NUM(few.hand_over, ==, many.hand_over);
    CHECK_NUM(few.join, ==, many.join);
}

/* ---- one word about a name ------------------------------------------------------- */

static void count_states(hf_client *c, int state)
{
    for (int i = 0; i < 10; i++) {
        int64_t at = inner(), scripts = calls("evalsha");

        CHECK_RC(rig.face->state(c, nm("n"), E()), state);
        CHECK_NUM(inner() - at, ==, 2); /* the time and the header */
        CHECK_NUM(calls("evalsha") - scripts, ==, 1);
    }
}

/* One request and the header of the line, however many wait. */
static void state_path(void)
{
    hf_client *c;
    hf_lease *held;
    struct pend *waits[20];

    begin();
    c = ready();
    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_FREE); /* loads the script */
    count_states(c, HF_FREE);
    held = taken(c, nm("n"), HF_REQUEST(.ttl_ms = LONG_MS));
    count_states(c, HF_TAKEN);
    for (size_t i = 0; i < 20; i++)
        waits[i] = queued(c, nm("n"), i + 1, HF_REQUEST(.ttl_ms = LONG_MS));
    count_states(c, HF_TAKEN);
    given(held);
    for (size_t i = 0; i < 20; i++)
        given(pend_granted(waits[i]));
    closed(c);
    end();
}

/* ---- fences ---------------------------------------------------------------------- */

static uint64_t stored_mark(const char *key)
{
    const char *text = redis_text(&server, "GET %s", key);
    char *rest;
    uint64_t number = strtoull(text, &rest, 10);

    CHECK_NUM(strlen(text), ==, 16);
    CHECK_STR(rest, "");
    return number;
}

static uint64_t fence_of_pair(hf_client *c)
{
    hf_lease *lease = taken(c, nm("n"), NULL);
    uint64_t fence = hf_lease_fence(lease);

    given(lease);
    return fence;
}

/* Sixteen digits: a number that became text with fewer would give the same fence
 * again. The mark is set ahead of the clock, so that each fence must be the one after
 * the last. */
static void fences_apart(void)
{
    hf_client *c;
    char key[256];
    uint64_t fence, ahead;
    hf_lease *held;
    struct pend *waits;

    begin();
    c = opened();
    fence = fence_of_pair(c);
    snprintf(key, sizeof(key), "%s", redis_text(&server, "KEYS *:m"));
    CHECK_NUM(stored_mark(key), ==, fence);
    ahead = fence + UINT64_C(3600000000);
    for (uint64_t start = ahead; ahead < start + 12; ahead++) {
        redis_do(&server, "SET %s %llu", key, (unsigned long long)ahead);
        CHECK_NUM(fence_of_pair(c), ==, ahead + 1);
        CHECK_NUM(stored_mark(key), ==, ahead + 1);
    }
    for (int i = 1; i <= 12; i++)
        CHECK_NUM(fence_of_pair(c), ==, ahead + (uint64_t)i);
    held = taken(c, nm("n"), NULL);
    CHECK_NUM(hf_lease_fence(held), ==, ahead + 13);
    waits = queued(c, nm("n"), 1, NULL);
    given(held); /* given by another's release, too */
    held = pend_granted(waits);
    CHECK_NUM(hf_lease_fence(held), ==, ahead + 14);
    CHECK_NUM(stored_mark(key), ==, ahead + 14);
    given(held);
    closed(c);
    end();
}

/* --------------------------------------------------------------------------------- */

static const struct test_case counts_cases[] = {
    { "free_path", free_path, ON_ALL, 0, 0 },
    { "state_path", state_path, ON_ALL, 0, 0 },
    { "queue_length", queue_length, ON_BLOCKING, 0, CASE_LONG },
    { "fences_apart", fences_apart, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
extern const struct test_case format_cases[], listing_cases[], many_cases[],
    renewal_cases[], script_cases[], walk_cases[];
#ifdef HOLDFAST
extern const struct test_case bench_cases[], redis_warnings_cases[];
#endif

const struct test_case *const tables[] = { counts_cases,  format_cases,
                                           listing_cases, many_cases,
                                           renewal_cases, script_cases,
                                           walk_cases,
#ifdef HOLDFAST
                                           bench_cases,   redis_warnings_cases,
#endif
                                           NULL };
