/* sql_lines.c: what goes wrong with the lines of any database; see sql_lines.h. */
#include "sql_lines.h"
#include "broken.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROCESSES_MOST = 10 };

struct server server;
struct proxy *proxy;

/* ---- beginning and ending -------------------------------------------------------- */

void use_server(const char *params)
{
    run_server();
    set_url(rig.place->url, sizeof(rig.place->url), server.port, params);
}

void use_plain_server(const char *params)
{
    make_server();
    use_server(params);
}

hf_client *opened_at(const char *url, const hf_options *options)
{
    hf_client *c = NULL;

    CHECK_RC(rig.face->open(url, options, &c, E()), 0);
    return c;
}

hf_client *opened_directly(void)
{
    char url[128];

    set_url(url, sizeof(url), server.port, "");
    return opened_at(url, NULL);
}

/* The schema is there: making it takes longer than the time-outs here. */
void use_proxied_server(const char *params)
{
    hf_client *c;

    make_server();
    run_server();
    c = opened_directly();
    given(taken(c, nm("first"), NULL));
    closed(c);
    proxy = proxy_new(server.port);
    set_url(rig.place->url, sizeof(rig.place->url), proxy_port(proxy), params);
}

void done(void)
{
    if (proxy)
        proxy_free(proxy);
    remove_server();
}

void expect_refusal(const char *url, int code, const char *word)
{
    hf_client *c = opened_at(url, NULL);
    hf_lease *l = NULL;

    CHECK_RC(rig.face->acquire(c, nm("n"), LIMIT_MS, NULL, &l, E()), code);
    CHECK(strstr(last_error()->text, word));
    closed(c);
}

struct two hold_and_wait(int64_t ttl_ms)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = ttl_ms);
    struct two t = { .a = prompted(), .b = opened() };

    t.held = taken(t.a, nm("n"), req);
    t.fence = hf_lease_fence(t.held);
    t.waits = queued(t.b, nm("n"), 1, req);
    return t;
}

void two_go_on(struct two *t)
{
    hf_lease *next;

    CHECK_RC(hf_lease_check(t->held), 0);
    CHECK(!pend_done(t->waits));
    given(t->held);
    next = pend_granted(t->waits);
    CHECK_NUM(hf_lease_fence(next), >, t->fence);
    CHECK_RC(hf_lease_check(next), 0);
    given(next);
    AWAIT(line_is(t->b, nm("n"), 0, 0));
    closed(t->a);
    closed(t->b);
    CHECK_NUM(tickets(), ==, 0);
    CHECK(lines_whole());
}

bool both_answer(struct two *t)
{
    return tried(t->a, nm("a"), NULL) == 0 && tried(t->b, nm("b"), NULL) == 0;
}

struct overlap {
    atomic_int inside, overlaps;
    atomic_llong fence;
};

static struct overlap *overlap;

static void contend(void *arg)
{
    hf_client *c = opened();

    (void)arg;
    for (int i = 0; i < 25; i++) {
        hf_lease *l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 60000));

        if (atomic_fetch_add(&overlap->inside, 1) > 0)
            atomic_fetch_add(&overlap->overlaps, 1);
        if (atomic_exchange(&overlap->fence, (long long)hf_lease_fence(l)) >=
            (long long)hf_lease_fence(l))
            atomic_fetch_add(&overlap->overlaps, 1);
        atomic_fetch_sub(&overlap->inside, 1);
        given(l);
    }
    closed(c);
}

void exclude_each_other(int processes)
{
    pid_t pids[PROCESSES_MOST];

    CHECK_NUM(processes, <=, PROCESSES_MOST);
    overlap = shared_new(sizeof(*overlap));
    for (int i = 0; i < processes; i++)
        pids[i] = proc_start(contend, NULL);
    for (int i = 0; i < processes; i++)
        proc_end(pids[i]);
    CHECK_NUM(atomic_load(&overlap->overlaps), ==, 0);
    CHECK_NUM(tickets(), ==, 0);
    CHECK(lines_whole());
    shared_free(overlap, sizeof(*overlap));
}

/* ---- servers --------------------------------------------------------------------- */

/* The holder keeps its lease, the waiter its place. */
static void sessions_end(void)
{
    struct two t;

    use_plain_server("");
    t = hold_and_wait(60000);
    for (int i = 0; i < 3; i++) {
        CHECK_NUM(end_sessions(), >=, 2);
        AWAIT(both_answer(&t));
    }
    two_go_on(&t);
    done();
}

/* A crash, and its recovery: what was answered is there. */
static void server_crashes(void)
{
    struct two t;

    use_plain_server("");
    t = hold_and_wait(60000);
    kill_server();
    run_server();
    AWAIT(both_answer(&t));
    two_go_on(&t);
    done();
}

static void clock_stepped_back(void)
{
    hf_client *c;
    hf_lease *l;
    uint64_t fence;

    make_server();
    server_clock_able(&server);
    use_server("");
    c = opened();
    l = taken(c, nm("n"), NULL);
    fence = hf_lease_fence(l);
    given(l);
    server_clock_step(&server, -3600 * 1000);
    l = taken(c, nm("n"), NULL);
    CHECK_NUM(hf_lease_fence(l), ==, fence + 1);
    given(l);
    /* also when the line has gone in between */
    age_and_sweep(0);
    CHECK_NUM(line_rows(), ==, 0);
    l = taken(c, nm("n"), NULL);
    CHECK_NUM(hf_lease_fence(l), ==, fence + 2);
    given(l);
    closed(c);
    done();
}

static void swept(void)
{
    hf_client *c;
    hf_lease *l;

    use_plain_server("");
    c = opened();
    given(taken(c, nm("gone"), NULL));
    l = taken(c, nm("held"), NULL);
    age_and_sweep(600000);
    CHECK_NUM(line_rows(), ==, 1);
    CHECK(line_is(c, nm("held"), 1, 0));
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    closed(c);
    done();
}

/* ---- the network ----------------------------------------------------------------- */

static void release_is_under_way(void)
{
    hf_client *direct;

    use_proxied_server("?" BROKEN_TIMEOUT);
    direct = opened_directly();
    release_breaks(&proxy, 1, direct);
    closed(direct);
    done();
}

static void timeout_is_short(void)
{
    use_proxied_server("?" SHORT_TIMEOUT);
    short_timeout(proxy);
    done();
}

/* The join is committed, and its answer is lost with the connection. */
static void answer_is_cut(void)
{
    hf_client *c;
    struct pend *p;
    hf_lease *l;

    use_proxied_server("");
    c = opened();
    given(taken(c, nm("n"), NULL));
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
    p = begun(c, nm("n"), LIMIT_MS, NULL);
    AWAIT(tickets() == 1);
    CHECK(!pend_done(p));
    proxy_drop(proxy);
    l = pend_granted(p);
    CHECK_NUM(tickets(), ==, 1); /* the same one */
    given(l);
    CHECK_NUM(tickets(), ==, 0);
    closed(c);
    done();
}

/* A join is held back by the network, its client gives up on the connection, and leaves on
 * another one: the old one was ended before, so what comes late leaves nothing. */
static void join_comes_late(void)
{
    hf_client *c, *direct;
    hf_lease *l = NULL;

    use_proxied_server("?connect_timeout=1s");
    direct = opened_directly();
    c = opened();
    given(taken(c, nm("n"), NULL));
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
    CHECK_RC(rig.face->acquire(c, nm("n"), 200, HF_REQUEST(.ttl_ms = 60000), &l, E()),
             HF_ETIMEDOUT);
    AWAIT(proxy_accepted(proxy) >= 2 && tried(c, nm("other"), NULL) == 0);
    proxy_freeze(proxy, PROXY_PRESENT, 0);
    STAYS(line_is(direct, nm("n"), 0, 0), 500);
    CHECK_NUM(tickets(), ==, 0);
    closed(c);
    closed(direct);
    done();
}

/* ---- several clients --------------------------------------------------------------- */

struct client_thread {
    pthread_t thread;
    hf_client *c;
    unsigned seed;
    int64_t longest_ms;
};

enum { CLIENTS = 6, WAITING_CLIENTS = 3, GRANTS = 600 };

static atomic_int served;

static void *takes_once(void *arg)
{
    const struct client_thread *t = arg;

    given(taken(t->c, nm("n"), NULL));
    atomic_fetch_add(&served, 1);
    AWAIT(atomic_load(&served) == CLIENTS); /* nobody goes before that */
    return NULL;
}

/* The first ones find no schema, one of them makes it, and all stay. */
static void first_ones_stay(void)
{
    struct client_thread t[CLIENTS];

    use_plain_server("");
    for (int i = 0; i < CLIENTS; i++) {
        t[i].c = opened();
        CHECK(pthread_create(&t[i].thread, NULL, takes_once, &t[i]) == 0);
    }
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(t[i].thread, NULL);
    for (int i = 0; i < CLIENTS; i++)
        closed(t[i].c);
    done();
}

static void *waits_briefly(void *arg)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = 3 * LIMIT_MS);
    struct client_thread *t = arg;

    while (atomic_load(&served) < GRANTS) {
        bool patient = rand_r(&t->seed) % 3 == 0;
        int64_t since = now_ms();
        hf_lease *l = NULL;
        int rc = rig.face->acquire(t->c, nm("n"), patient ? LIMIT_MS : rand_r(&t->seed) % 8,
                                   req, &l, E());

        if (rc == 0) {
            atomic_fetch_add(&served, 1);
            CHECK_RC(rig.face->release(l, E()), 0);
        } else if (patient) {
            CHECK_RC(rc, 0);
        }
        if (now_ms() - since > t->longest_ms)
            t->longest_ms = now_ms() - since;
    }
    return NULL;
}

/* Most give up after a few ms and come again: whoever is let in is told so, and need not
 * find out by its safety look, a third of the ttl later. */
static void brief_waits(void)
{
    struct client_thread t[WAITING_CLIENTS];
    unsigned seed = (unsigned)now_ms();

    printf("# seed %u\n", seed);
    use_plain_server("");
    for (int i = 0; i < WAITING_CLIENTS; i++) {
        t[i] = (struct client_thread){ .c = opened(), .seed = seed + (unsigned)i };
        given(taken(t[i].c, nm("first"), NULL));
    }
    for (int i = 0; i < WAITING_CLIENTS; i++)
        CHECK(pthread_create(&t[i].thread, NULL, waits_briefly, &t[i]) == 0);
    for (int i = 0; i < WAITING_CLIENTS; i++)
        pthread_join(t[i].thread, NULL);
    for (int i = 0; i < WAITING_CLIENTS; i++) {
        CHECK_NUM(t[i].longest_ms, <, LIMIT_MS / 2);
        closed(t[i].c);
    }
    CHECK_NUM(tickets(), ==, 0);
    done();
}

/* The holder stands still with its session, and is evicted: the next one is told. */
static void evicted_while_stopped(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = 6 * LIMIT_MS);
    struct pend *p;
    struct seen s;
    struct kid k;
    hf_client *c, *next;
    int64_t since;

    use_plain_server("");
    k = kid_new();
    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS, req, NULL), 0);
    c = opened();
    next = prompted();
    p = queued(next, nm("n"), 1, req);
    kid_stop(&k);
    CHECK(see(c, nm("n"), 0, &s));
    CHECK_RC(rig.face->evict(c, nm("n"), s.id, HF_EVICT_NOW, E()), 0);
    since = now_ms();
    given(pend_granted(p));
    CHECK_WITHIN(since, LIMIT_MS / 2);
    kid_kill(&k);
    closed(c);
    closed(next);
    done();
}

/* The holder stands still with its session, and its time ends. Who has waited for it and
 * given up waits again, for another one: that one counts now. */
static void waits_for_another(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = 6 * LIMIT_MS);
    hf_client *c, *next;
    hf_lease *l = NULL;
    struct pend *p;
    struct kid k;
    int64_t since;

    use_plain_server("");
    k = kid_new();
    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS, HF_REQUEST(.ttl_ms = db.short_ms), NULL),
             0);
    c = opened();
    next = prompted();
    kid_stop(&k);
    CHECK_RC(rig.face->acquire(next, nm("n"), 300, req, &l, E()), HF_ETIMEDOUT);
    l = taken(c, nm("n"), req);
    p = queued(next, nm("n"), 1, req);
    since = now_ms();
    given(l);
    given(pend_granted(p));
    CHECK_WITHIN(since, LIMIT_MS / 4);
    kid_kill(&k);
    closed(c);
    closed(next);
    done();
}

const struct test_case sql_line_cases[] = {
    { "sessions-end", sessions_end, ON_ALL, 0, 0 },
    { "server-crashes", server_crashes, ON_ALL, 0, 0 },
    { "clock-stepped-back", clock_stepped_back, ON_ALL, 0, 0 },
    { "swept", swept, ON_ALL, 0, 0 },
    { "release-breaks", release_is_under_way, ON_ALL, 0, 0 },
    { "short-timeout", timeout_is_short, ON_ALL, 0, 0 },
    { "answer-is-cut", answer_is_cut, ON_ALL, 0, 0 },
    { "join-comes-late", join_comes_late, ON_ALL, 0, 0 },
    { "first-ones-stay", first_ones_stay, ON_BLOCKING, 0, 0 },
    { "brief-waits", brief_waits, ON_BLOCKING, 0, 0 },
    { "evicted-while-stopped", evicted_while_stopped, ON_ALL, 0, 0 },
    { "waits-for-another", waits_for_another, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
