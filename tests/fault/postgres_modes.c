/* postgres_modes.c: what goes wrong with mode=optimistic, pessimistic and advisory. The
 * last two have a session of the server for each ticket, which others may end: then the
 * hold is lost, and said to be; whoever waits goes on waiting; and nothing is left behind
 * (G7). */
#include "postgres_fault.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const modes[] = { "pessimistic", "advisory", "optimistic" };
enum { WITH_SESSIONS = 2, ALL_MODES = 3 };

static void use_mode(int i)
{
    char *p = strchr(rig.place->url, '?');

    if (p)
        *p = '\0';
    strcat(rig.place->url, "?connect_timeout=20s&mode=");
    strcat(rig.place->url, modes[i]);
}

static const char *name_of(int i)
{
    return nm(modes[i]);
}

/* How many of our sessions wait for a lock. */
static int64_t waiting(void)
{
    return postgres_number(&server, "SELECT count(*) FROM pg_stat_activity WHERE pid <> "
                                    "pg_backend_pid() AND wait_event_type = 'Lock'");
}

static bool waits(int i, int64_t n)
{
    return i < WITH_SESSIONS
               ? waiting() == n
               : postgres_number(&server, "SELECT count(*) FROM holdfast.follow") == n;
}

static struct two begin_two(int i, int64_t ttl_ms)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = ttl_ms);
    struct two t = { 0 };

    use_mode(i);
    t.a = prompted();
    t.b = opened();
    t.held = taken(t.a, name_of(i), req);
    t.fence = hf_lease_fence(t.held);
    t.waits = begun(t.b, name_of(i), HF_FOREVER, req);
    AWAIT(waits(i, 1));
    return t;
}

/* The other has it now, and when it gives it back nothing is left. */
static void end_two(int i, struct two *t)
{
    hf_lease *next = pend_granted(t->waits);

    if (hf_client_caps(t->b) & HF_CAP_FENCE)
        CHECK_NUM(hf_lease_fence(next), >, t->fence);
    CHECK_RC(tried(t->a, name_of(i), NULL), HF_EBUSY);
    given(next);
    CHECK_RC(tried(t->a, name_of(i), NULL), 0);
    closed(t->a);
    closed(t->b);
    if (i < WITH_SESSIONS)
        AWAIT(postgres_number(&server,
                              "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
                              "OR mode = 'RowShareLock'") == 0);
}

/* By others, while it holds: it is lost, and the next one has it. */
static void holder_ended(void)
{
    use_plain_server("");
    for (int i = 0; i < WITH_SESSIONS; i++) {
        struct two t = begin_two(i, 60000);

        CHECK_NUM(postgres_number(&server,
                                  "SELECT count(pg_terminate_backend(pid)) FROM "
                                  "pg_stat_activity WHERE application_name LIKE 'hf %%' "
                                  "AND state LIKE 'idle%%'"),
                  ==, 1);
        AWAIT(hf_lease_check(t.held) == HF_ELOST);
        CHECK_RC(rig.face->release(t.held, E()), HF_ELOST);
        end_two(i, &t);
    }
    done();
}

/* In the midst of the statement that waits: it waits on another session. */
static void waiter_ended(void)
{
    use_plain_server("");
    for (int i = 0; i < WITH_SESSIONS; i++) {
        struct two t = begin_two(i, 60000);

        for (int k = 0; k < 2; k++) {
            CHECK_NUM(postgres_number(&server,
                                      "SELECT count(pg_terminate_backend(pid)) FROM "
                                      "pg_stat_activity WHERE wait_event_type = 'Lock'"),
                      ==, 1);
            AWAIT(waits(i, 1));
        }
        CHECK(!pend_done(t.waits) && hf_lease_check(t.held) == 0);
        given(t.held);
        end_two(i, &t);
    }
    done();
}

/* Also the one that controls: a wait can be ended all the same. */
static void control_ended(void)
{
    use_plain_server("");
    for (int i = 0; i < WITH_SESSIONS; i++) {
        struct two t = begin_two(i, 60000);
        struct pend *p = begun(t.b, name_of(i), 4000, HF_REQUEST(.ttl_ms = 60000));

        AWAIT(waits(i, 2));
        CHECK_NUM(end_backends(), >=, 2);
        CHECK_RC(pend_end(p, NULL), HF_ETIMEDOUT);
        AWAIT(waits(i, 1));
        CHECK_RC(hf_lease_check(t.held), 0);
        given(t.held);
        end_two(i, &t);
    }
    done();
}

/* Whoever says nothing for its ttl has lost it, though its connection is whole. */
static void holder_stops(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = SHORT_MS);

    use_plain_server("");
    for (int i = 0; i < ALL_MODES; i++) {
        struct kid k;
        hf_client *c;
        int64_t start;

        use_mode(i);
        k = kid_new();
        CHECK_RC(kid_acquire(&k, 0, name_of(i), LIMIT_MS, req, NULL), 0);
        c = opened();
        CHECK_RC(tried(c, name_of(i), req), HF_EBUSY);
        kid_stop(&k);
        start = now_ms();
        given(taken(c, name_of(i), req));
        CHECK_NUM(now_ms() - start, <, SHORT_MS + LIMIT_MS / 3);
        kid_continue(&k);
        AWAIT(kid_check(&k, 0).check == HF_ELOST);
        CHECK_RC(kid_release(&k, 0).rc, HF_ELOST);
        kid_end(&k);
        closed(c);
    }
    done();
}

static void server_crashes(void)
{
    use_plain_server("");
    for (int i = 0; i < WITH_SESSIONS; i++) {
        struct two t = begin_two(i, 60000);

        postgres_kill(&server);
        postgres_run(&server);
        AWAIT(hf_lease_check(t.held) == HF_ELOST);
        rig.face->release(t.held, NULL);
        end_two(i, &t);
    }
    done();
}

static void *release_it(void *arg)
{
    CHECK_RC(rig.face->release(arg, E()), 0);
    return NULL;
}

/* The commit is done, and its answer is lost with the connections: what became of it is
 * found out before the release answers. */
static void release_is_cut(void)
{
    use_proxied_server("");
    for (int i = 0; i < ALL_MODES; i++) {
        hf_client *c, *direct;
        hf_lease *l;
        pthread_t thread;
        char url[512];

        use_mode(i);
        c = opened();
        snprintf(url, sizeof(url), "postgres://holdfast@127.0.0.1:%d/postgres?mode=%s",
                 server.port, modes[i]);
        direct = opened_at(url, NULL);
        l = taken(c, name_of(i), HF_REQUEST(.ttl_ms = 60000));
        proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
        CHECK(pthread_create(&thread, NULL, release_it, l) == 0);
        AWAIT(tried(direct, name_of(i), NULL) == 0);
        proxy_drop(proxy);
        pthread_join(thread, NULL);
        CHECK_RC(tried(c, name_of(i), NULL), 0);
        closed(c);
        closed(direct);
    }
    done();
}

/* None of them ends a hold or a wait of ours. */
static void low_limits(void)
{
    use_plain_server("");
    use_mode(0);
    closed(opened());
    postgres_do(&server, "ALTER ROLE holdfast SET statement_timeout = '400ms'");
    postgres_do(&server, "ALTER ROLE holdfast SET lock_timeout = '200ms'");
    postgres_do(&server,
                "ALTER ROLE holdfast SET idle_in_transaction_session_timeout = '300ms'");
    postgres_do(&server, "ALTER ROLE holdfast SET idle_session_timeout = '300ms'");
    postgres_do(&server,
                "ALTER ROLE holdfast SET default_transaction_isolation = 'serializable'");
    for (int i = 0; i < ALL_MODES; i++) {
        struct two t = begin_two(i, 60000);

        STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), 1500);
        given(t.held);
        end_two(i, &t);
    }
    done();
}

/* There are more tickets than connections: they come to their turn all the same. */
static void too_many_clients(void)
{
    enum { PENDS = 12 };

    postgres_init(&server);
    postgres_config(&server, "max_connections = 8");
    postgres_config(&server, "superuser_reserved_connections = 0");
    use_server("");
    for (int i = 0; i < WITH_SESSIONS; i++) {
        struct pend *p[PENDS];
        hf_client *c;
        hf_lease *l;

        use_mode(i);
        c = opened();
        l = taken(c, name_of(i), NULL);
        for (int k = 0; k < PENDS; k++)
            p[k] = begun(c, name_of(i), LIMIT_MS, NULL);
        for (int k = 0; k < PENDS; k++) { /* whichever it is */
            given(l);
            for (l = NULL; !l; nap())
                for (int j = 0; j < PENDS && !l; j++)
                    if (p[j] && pend_done(p[j])) {
                        l = pend_granted(p[j]);
                        p[j] = NULL;
                    }
        }
        given(l);
        CHECK_RC(tried(c, name_of(i), NULL), 0);
        closed(c);
    }
    done();
}

/* A wait ends about when the lock is given to it: whichever it is, the answer is true. */
static void cancel_meets_grant(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = 600000);
    unsigned seed = (unsigned)now_ms();
    int granted[ALL_MODES] = { 0 };

    printf("# seed %u\n", seed);
    srand(seed);
    use_plain_server("");
    for (int i = 0; i < ALL_MODES; i++) {
        hf_client *a, *b;

        use_mode(i);
        a = opened();
        b = opened();
        for (int k = 0; k < 60; k++) {
            hf_lease *l = taken(a, name_of(i), req), *next = NULL;
            struct pend *p = begun(b, name_of(i), 20, req);
            int64_t at = now_ms() + 14 + rand() % 10;
            int rc;

            while (now_ms() < at)
                ;
            given(l);
            rc = pend_end(p, &next);
            /* the last: a busy machine has said nothing for half a second */
            CHECK(rc == 0 || rc == HF_ETIMEDOUT || rc == HF_EUNREACHABLE);
            granted[i] += rc == 0;
            if (rc == 0)
                given(next);
            AWAIT(tried(a, name_of(i), NULL) == 0); /* long before the ttl */
        }
        closed(a);
        closed(b);
    }
    printf("# granted %d %d %d of 60\n", granted[0], granted[1], granted[2]);
    done();
}

/* ---- sessions that must not be used ---------------------------------------------- */

/* The role changes at login to one that may not see what the first one does: a session
 * could not be found again, to end it. */
static void unseen_sessions(void)
{
    hf_client *c;
    hf_lease *l;
    int64_t now;

    use_plain_server("");
    c = opened();
    given(taken(c, nm("first"), NULL)); /* makes the schema */
    closed(c);
    postgres_do(&server, "CREATE ROLE app; CREATE ROLE door LOGIN; GRANT app TO door;"
                         " ALTER ROLE door SET role = app;"
                         " GRANT ALL ON SCHEMA holdfast TO app;"
                         " GRANT ALL ON ALL TABLES IN SCHEMA holdfast TO app");
    snprintf(rig.place->url, sizeof(rig.place->url),
             "postgres://door@127.0.0.1:%d/postgres", server.port);
    c = opened_with(HF_OPTIONS(.log = hear, .user = (void *)"may not see"));
    l = taken(c, nm("line"), HF_REQUEST(.ttl_ms = 60000));
    now = postgres_number(&server, "SELECT holdfast.clock()");
    end_backends();
    AWAIT(postgres_number(&server,
                          "SELECT count(*) FROM pg_stat_activity WHERE application_name = "
                          "'holdfast' AND extract(epoch FROM backend_start) * 1000000 < "
                          "%lld",
                          (long long)now) == 0);
    AWAIT(tried(c, nm("line"), NULL) == HF_EBUSY);
    given(l);
    CHECK_NUM(atomic_load(&warned), ==, 1); /* once */
    closed(c);
    for (int i = 0; i < WITH_SESSIONS; i++) {
        use_mode(i);
        c = opened();
        l = NULL;
        CHECK_RC(rig.face->acquire(c, name_of(i), LIMIT_MS, NULL, &l, E()), HF_ENOTSUP);
        CHECK(strstr(last_error()->text, "may not see"));
        closed(c);
    }
    done();
}

/* Commands go to the primary, and a new session to a standby, which has advisory locks of
 * its own: what is held on the primary is not granted there. */
static void session_on_standby(void)
{
    static const char rows[] = "SELECT count(*) FROM holdfast.attach()";
    hf_client *c, *direct;
    struct server replica;
    char url[512];
    hf_lease *l, *none = NULL;
    struct seen s;
    int rc;

    use_proxied_server("");
    postgres_replica(&replica, &server);
    use_mode(1);
    c = opened();
    snprintf(url, sizeof(url), "postgres://holdfast@127.0.0.1:%d/postgres?mode=advisory",
             server.port);
    direct = opened_at(url, NULL);
    l = taken(direct, name_of(1), HF_REQUEST(.ttl_ms = 60000));
    CHECK(see(c, name_of(1), 0, &s)); /* it is connected */
    AWAIT(postgres_number(&replica, "SELECT count(*) FROM pg_proc WHERE proname = "
                                    "'attach'") == 1);
    CHECK_NUM(postgres_number(&server, "%s", rows), ==, 1);
    CHECK_NUM(postgres_number(&replica, "%s", rows), ==, 0);
    proxy_aim(proxy, replica.port);
    rc = rig.face->acquire(c, name_of(1), 1000, NULL, &none, E());
    CHECK(rc != 0 && !none);
    CHECK_RC(hf_lease_check(l), 0);
    proxy_aim(proxy, server.port);
    CHECK_RC(tried(c, name_of(1), NULL), HF_EBUSY);
    given(l);
    CHECK_RC(tried(c, name_of(1), NULL), 0);
    closed(c);
    closed(direct);
    postgres_remove(&replica);
    done();
}

/* ---- what is in the database ----------------------------------------------------- */

/* Modes are stores of their own; fences grow also when a sweep has removed the rows. */
static void modes_apart(void)
{
    hf_client *c[ALL_MODES + 1];
    hf_lease *l[ALL_MODES + 1];
    uint64_t fences[ALL_MODES + 1];

    use_plain_server("");
    c[ALL_MODES] = opened();
    for (int i = 0; i < ALL_MODES; i++) {
        use_mode(i);
        c[i] = opened();
    }
    for (int i = 0; i <= ALL_MODES; i++) {
        l[i] = taken(c[i], nm("n"), NULL);
        CHECK_RC(tried(c[i], nm("n"), NULL), HF_EBUSY); /* one's own client, too */
        fences[i] = hf_lease_fence(l[i]);
    }
    for (int i = 0; i <= ALL_MODES; i++)
        given(l[i]);
    postgres_do(&server, "UPDATE holdfast.line SET fence = fence + 1000000000000");
    postgres_do(&server, "UPDATE holdfast.lease SET version = version + 1000000000000, "
                         "expiry = 0");
    postgres_do(&server, "UPDATE holdfast.mutex SET version = version + 1000000000000");
    CHECK_NUM(postgres_number(&server, "SELECT (holdfast.sweep(-2000000000))[1]"), ==, 3);
    CHECK_NUM(postgres_number(&server, "SELECT (SELECT count(*) FROM holdfast.lease) + "
                                       "(SELECT count(*) FROM holdfast.mutex)"),
              ==, 0);
    for (int i = 0; i <= ALL_MODES; i++) {
        l[i] = taken(c[i], nm("n"), NULL);
        if (fences[i] > 0)
            CHECK_NUM(hf_lease_fence(l[i]), >, fences[i] + 1000000000000);
        given(l[i]);
        closed(c[i]);
    }
    done();
}

/* Rows of a lock that is in use, by clients that have gone without a word. */
static void followers_swept(void)
{
    struct kid k;
    hf_client *a, *b;
    hf_lease *l;
    struct pend *p;

    use_plain_server("");
    use_mode(2);
    k = kid_new();
    a = opened();
    b = opened();
    l = taken(a, name_of(2), HF_REQUEST(.ttl_ms = 60000));
    kid_begin(&k, 0, name_of(2), HF_FOREVER, HF_REQUEST(.ttl_ms = 1000));
    AWAIT(waits(2, 1));
    kid_kill(&k);
    p = begun(b, name_of(2), HF_FOREVER, HF_REQUEST(.ttl_ms = 60000));
    AWAIT(waits(2, 2));
    AWAIT(postgres_number(&server, "SELECT count(*) FROM holdfast.follow WHERE till < "
                                   "holdfast.clock()") == 1);
    postgres_do(&server, "SELECT holdfast.sweep(600000)");
    CHECK(waits(2, 2)); /* not before its time */
    AWAIT((postgres_do(&server, "SELECT holdfast.sweep(0)"), waits(2, 1)));
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    given(pend_granted(p)); /* it was told, long before it would look */
    closed(a);
    closed(b);
    done();
}

/* The holder of a new row dies: it writes no version. That is not idle, and later it is. */
static void mutexes_swept(void)
{
    static const char rows[] = "SELECT count(*) FROM holdfast.mutex";
    struct kid k;
    hf_client *c;
    hf_lease *l;

    use_plain_server("");
    use_mode(0);
    k = kid_new();
    CHECK_RC(kid_acquire(&k, 0, name_of(0), LIMIT_MS, NULL, NULL), 0);
    kid_kill(&k);
    AWAIT(postgres_number(&server, "SELECT count(*) FROM pg_locks WHERE mode = "
                                   "'RowShareLock'") == 0);
    CHECK_NUM(postgres_number(&server, "SELECT (holdfast.sweep(600000))[1]"), ==, 0);
    CHECK_NUM(postgres_number(&server, "%s", rows), ==, 1);
    c = opened();
    l = taken(c, name_of(0), HF_REQUEST(.ttl_ms = 60000));
    CHECK_NUM(postgres_number(&server, "SELECT (holdfast.sweep(0))[1]"), ==, 0); /* held */
    given(l);
    AWAIT(postgres_number(&server, "SELECT (holdfast.sweep(0))[1]") == 1);
    CHECK_NUM(postgres_number(&server, "%s", rows), ==, 0);
    CHECK_RC(tried(c, name_of(0), NULL), 0);
    closed(c);
    done();
}

/* The key is the one in the manual: other programs meet us there, and are seen. */
static void other_program(void)
{
    char info[512], text[256];
    hf_client *c;
    hf_lease *l;
    PGconn *other;
    struct seen s;

    use_plain_server("");
    use_mode(1);
    c = opened();
    l = taken(c, "job", HF_REQUEST(.note = "a note of more than 27 byt\u00e9s"));
    CHECK(see(c, "job", 0, &s));
    CHECK_STR(s.note, "a note of more than 27 byt?");
    given(l);
    l = taken(c, "job", HF_REQUEST(.note = "ours"));
    snprintf(info, sizeof(info), "host=%s port=%d user=holdfast dbname=postgres",
             server.dir, server.port);
    other = PQconnectdb(info);
    snprintf(text, sizeof(text), "SELECT pg_advisory_lock(hashtextextended('job', 0))");
    CHECK(PQsendQuery(other, text) == 1);
    AWAIT(waiting() == 1);
    CHECK(see(c, "job", 0, &s));
    CHECK_STR(s.note, "ours");
    given(l);
    PQclear(PQgetResult(other));
    CHECK_RC(tried(c, "job", NULL), HF_EBUSY);
    CHECK(see(c, "job", 0, &s));
    CHECK_STR(s.note, "a lock of another program");
    CHECK_RC(rig.face->evict(c, "job", s.id, HF_EVICT_NOW, E()), 0);
    AWAIT(tried(c, "job", NULL) == 0);
    PQfinish(other);
    closed(c);
    done();
}

const struct test_case postgres_mode_cases[] = {
    { "mode-holder-ended", holder_ended, ON_ALL, 0, 0 },
    { "mode-waiter-ended", waiter_ended, ON_ALL, 0, 0 },
    { "mode-control-ended", control_ended, ON_ALL, 0, 0 },
    { "mode-holder-stops", holder_stops, ON_ALL, 0, 0 },
    { "mode-server-crashes", server_crashes, ON_ALL, 0, 0 },
    { "mode-release-is-cut", release_is_cut, ON_ALL, 0, 0 },
    { "mode-low-limits", low_limits, ON_ALL, 0, 0 },
    { "mode-too-many-clients", too_many_clients, ON_ALL, 0, 0 },
    { "mode-cancel-meets-grant", cancel_meets_grant, ON_ALL, 0, 0 },
    { "mode-unseen-sessions", unseen_sessions, ON_ALL, 0, 0 },
    { "advisory-session-on-standby", session_on_standby, ON_ALL, 0, 0 },
    { "optimistic-followers-swept", followers_swept, ON_ALL, 0, 0 },
    { "pessimistic-rows-swept", mutexes_swept, ON_ALL, 0, 0 },
    { "modes-apart", modes_apart, ON_ALL, 0, 0 },
    { "advisory-other-program", other_program, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
