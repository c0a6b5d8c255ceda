/* postgres_modes.c: what goes wrong with mode=optimistic, pessimistic and advisory. The
 * last two have a session of the server for each ticket, which others may end: then the
 * hold is lost, and said to be; whoever waits goes on waiting; and nothing is left behind
 * (G7). */
#include "postgres_fault.h"
#include "sql_modes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void use_small(void)
{
    postgres_init(&server);
    postgres_config(&server, "max_connections = 8");
    postgres_config(&server, "superuser_reserved_connections = 0");
    use_server("");
}

static void direct(char *url, size_t size, const char *mode)
{
    snprintf(url, size, "postgres://holdfast@127.0.0.1:%d/postgres?mode=%s", server.port,
             mode);
}

static void crash(void)
{
    kill_server();
    run_server();
}

static void lower_limits(void)
{
    postgres_do(&server, "ALTER ROLE holdfast SET statement_timeout = '400ms'");
    postgres_do(&server, "ALTER ROLE holdfast SET lock_timeout = '200ms'");
    postgres_do(&server,
                "ALTER ROLE holdfast SET idle_in_transaction_session_timeout = '300ms'");
    postgres_do(&server, "ALTER ROLE holdfast SET idle_session_timeout = '300ms'");
    postgres_do(&server,
                "ALTER ROLE holdfast SET default_transaction_isolation = 'serializable'");
}

static int64_t end_holder(int i)
{
    (void)i;
    return postgres_number(&server, "SELECT count(pg_terminate_backend(pid)) FROM "
                                    "pg_stat_activity WHERE application_name LIKE "
                                    "'hf %%' AND state LIKE 'idle%%'");
}

static int64_t end_control(int i)
{
    (void)i;
    return end_sessions();
}

static int64_t end_waiter(void)
{
    return postgres_number(&server, "SELECT count(pg_terminate_backend(pid)) FROM "
                                    "pg_stat_activity WHERE wait_event_type = 'Lock'");
}

static bool nothing_left(void)
{
    return postgres_number(&server,
                           "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
                           "OR mode = 'RowShareLock'") == 0;
}

const struct database db = {
    .modes = { "pessimistic", "advisory", "optimistic" },
    .short_ms = SHORT_MS,
    .use = use_plain_server,
    .use_proxied = use_proxied_server,
    .use_small = use_small,
    .done = done,
    .proxy = &proxy,
    .direct = direct,
    .crash = crash,
    .lower_limits = lower_limits,
    .waits = waits,
    .end_holder = end_holder,
    .end_waiter = end_waiter,
    .end_control = end_control,
    .nothing_left = nothing_left,
};

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
    end_sessions();
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

/* The wait is cancelled before the server has read the statement that waits: a cancel that
 * finds nothing to end is repeated. */
static void cancel_comes_first(void)
{
    use_proxied_server("");
    for (int i = 0; i < WITH_SESSIONS; i++) {
        const hf_request *req = HF_REQUEST(.ttl_ms = 60000);
        hf_client *a, *b;
        struct pend *p;
        char url[512];
        int64_t start;
        hf_lease *l;
        int pid;

        use_mode(i);
        b = prompted();
        given(taken(b, name_of(i), req));
        pid = (int)postgres_number(&server, "SELECT pid FROM pg_stat_activity WHERE "
                                            "application_name LIKE 'hf %%'");
        direct(url, sizeof(url), db.modes[i]);
        a = opened_at(url, NULL);
        l = taken(a, name_of(i), req);
        proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
        p = begun(b, name_of(i), 1500, req);
        AWAIT(proxy_kept(proxy, PROXY_DOWN) > 0); /* it is held: so it will wait */
        CHECK(kill(pid, SIGSTOP) == 0);
        proxy_freeze(proxy, PROXY_PRESENT, 0);
        AWAIT(postgres_number(&server, "SELECT count(*) FROM pg_stat_activity WHERE query "
                                       "LIKE '%%pg_cancel_backend(a.pid)%%' AND pid <> "
                                       "pg_backend_pid() AND state = 'idle'") == 1);
        CHECK(kill(pid, SIGCONT) == 0);
        start = now_ms();
        CHECK_RC(pend_end(p, NULL), HF_ETIMEDOUT);
        AWAIT(postgres_number(&server,
                              "SELECT count(*) FROM pg_stat_activity WHERE pid = "
                              "%d",
                              pid) == 0);
        CHECK_WITHIN(start, 10000); /* not after connect_timeout */
        CHECK_RC(hf_lease_check(l), 0);
        given(l);
        CHECK_RC(tried(b, name_of(i), NULL), 0);
        closed(a);
        closed(b);
    }
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
    { "mode-unseen-sessions", unseen_sessions, ON_ALL, 0, 0 },
    { "advisory-session-on-standby", session_on_standby, ON_ALL, 0, 0 },
    { "mode-cancel-comes-first", cancel_comes_first, ON_ALL, 0, 0 },
    { "optimistic-followers-swept", followers_swept, ON_ALL, 0, 0 },
    { "pessimistic-rows-swept", mutexes_swept, ON_ALL, 0, 0 },
    { "modes-apart", modes_apart, ON_ALL, 0, 0 },
    { "advisory-other-program", other_program, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
