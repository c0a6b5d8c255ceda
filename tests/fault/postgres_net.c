/* postgres_net.c: a network that loses, delays and cuts, and a pooler in between. */
#include "postgres_fault.h"

#include <holdfast/tool.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A join that was lost with its connection may still be executed where that is not ended:
 * so the release is not sure to be the last word. */
static bool reaches(hf_client *c)
{
    hf_lease *l = NULL;
    int rc = rig.face->acquire(c, nm("g"), 0, HF_REQUEST(.ttl_ms = SHORT_MS), &l, E());

    if (rc == 0) {
        rc = rig.face->release(l, E());
        CHECK(rc == 0 || rc == HF_EUNKNOWN);
        return true;
    }
    return false;
}

static int64_t last_fence(void)
{
    return postgres_number(&server,
                           "SELECT fence FROM holdfast.line WHERE name = convert_to('%s', "
                           "'UTF8')",
                           nm("n"));
}

/* The same where the old connection may not be ended, as on some managed servers: the join
 * is executed late, and left for as long as that can happen. */
static void end_is_refused(void)
{
    char url[256], *text = NULL;
    hf_client *c, *direct;
    hf_lease *l = NULL;
    int64_t fence;

    use_proxied_server("");
    direct = opened_directly();
    snprintf(url, sizeof(url), "postgres://app@127.0.0.1:%d/postgres?connect_timeout=1s",
             proxy_port(proxy));
    postgres_do(&server, "CREATE ROLE app LOGIN;"
                         "REVOKE ALL ON FUNCTION pg_terminate_backend FROM PUBLIC");
    CHECK_RC(hf_admin_text(url, &text, E()), 0);
    postgres_do(&server, "%s", text);
    free(text);
    c = opened_at(url, HF_OPTIONS(.log = hear, .user = (void *)"could not be ended",
                                  .drive = HF_DRIVE_PROMPT));
    given(taken(c, nm("n"), NULL));
    fence = last_fence();
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
    CHECK_RC(rig.face->acquire(c, nm("n"), 200, HF_REQUEST(.ttl_ms = 60000), &l, E()),
             HF_ETIMEDOUT);
    AWAIT(reaches(c));
    CHECK_NUM(atomic_load(&warned), ==, 1);
    proxy_freeze(proxy, PROXY_PRESENT, 0); /* now it comes */
    AWAIT(last_fence() > fence);
    AWAIT(line_is(direct, nm("n"), 0, 0));
    STAYS(line_is(direct, nm("n"), 0, 0), 300);
    closed(c);
    closed(direct);
    done();
}

/* A wait ends while its client greets the server on another connection, and the join is
 * still under way on the one before, which is not ended yet: the leave comes after that. */
static void leave_while_greeting(void)
{
    struct pend *p;
    hf_client *c;
    PGconn *lock;
    int64_t start;

    use_proxied_server("?connect_timeout=3s");
    c = prompted();
    given(taken(c, nm("n"), NULL));
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
    start = now_ms();
    p = begun(c, nm("n"), 4500, HF_REQUEST(.ttl_ms = 600000));
    AWAIT(proxy_kept(proxy, PROXY_UP) > 0);
    lock = lock_table("holdfast.format"); /* the greeting reads it */
    AWAIT(postgres_number(&server, "SELECT count(*) FROM pg_stat_activity WHERE "
                                   "wait_event_type = 'Lock'") == 1);
    AWAIT(now_ms() > start + 4900); /* the wait is over, and the greeting not late */
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP | PROXY_DOWN);
    unlock_line(lock);
    AWAIT(postgres_number(&server, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 0);
    start = now_ms();
    AWAIT(now_ms() > start + 100);                  /* what is behind it is executed */
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN); /* now the join comes */
    AWAIT(tickets() == 1);
    proxy_freeze(proxy, PROXY_PRESENT, 0);
    CHECK(pend_end(p, NULL) != 0);
    AWAIT(tickets() == 0);
    closed(c);
    done();
}

/* The connection breaks while the schema is made: another one makes it. */
static void making_is_cut(void)
{
    hf_client *c;
    struct pend *p;
    PGconn *other;

    make_server();
    run_server();
    proxy = proxy_new(server.port);
    set_url(rig.place->url, sizeof(rig.place->url), proxy_port(proxy), "");
    other = begun_session();
    PQclear(PQexec(other, "CREATE SCHEMA holdfast")); /* ours waits for it */
    c = opened();
    p = begun(c, nm("n"), LIMIT_MS, NULL);
    AWAIT(postgres_number(&server, "SELECT count(*) FROM pg_stat_activity WHERE "
                                   "wait_event_type = 'Lock'") == 1);
    proxy_drop(proxy);
    unlock_line(other);
    given(pend_granted(p));
    closed(c);
    done();
}

/* ---- messages that do not come --------------------------------------------------- */

/* Long before the safety look, 20 s later. */
static void hand_over(hf_client *a, hf_client *b)
{
    int64_t start = now_ms();
    hf_lease *l = taken(a, nm("n"), HF_REQUEST(.ttl_ms = 60000));
    struct pend *p = queued(b, nm("n"), 1, HF_REQUEST(.ttl_ms = 60000));

    given(l);
    given(pend_granted(p));
    CHECK_WITHIN(start, 15000);
}

static void wake_is_poll(void)
{
    hf_client *a, *b;

    use_plain_server("?wake=poll");
    a = opened();
    b = opened();
    hand_over(a, b);
    CHECK_NUM(postgres_number(&server, "SELECT count(*) FROM pg_stat_activity WHERE "
                                       "application_name = 'holdfast'"),
              ==, 2); /* no connection for messages */
    closed(a);
    closed(b);
    done();
}

/* Nothing comes any more over the connection for messages, and it does not break: its
 * backend has stopped. The first grant that is found by a look gives it away. */
static void listener_is_deaf(void)
{
    enum { TTL_MS = 6000 };
    hf_client *a, *b;
    hf_lease *l;
    struct pend *p;
    int deaf;

    use_plain_server("?wake=poll");
    a = opened(); /* does not listen */
    *strchr(rig.place->url, '?') = '\0';
    b = prompted();
    hand_over(a, b);
    AWAIT(
        (deaf = (int)postgres_number(&server, "SELECT max(pid) FROM pg_stat_activity WHERE "
                                              "query LIKE 'LISTEN%%'")) > 0);
    l = taken(a, nm("n"), HF_REQUEST(.ttl_ms = TTL_MS));
    p = queued(b, nm("n"), 1, HF_REQUEST(.ttl_ms = TTL_MS));
    CHECK(kill(deaf, SIGSTOP) == 0);
    given(l);
    given(pend_granted(p)); /* by the safety look */
    AWAIT(postgres_number(&server,
                          "SELECT count(*) FROM pg_stat_activity WHERE query LIKE "
                          "'LISTEN%%' AND pid <> %d",
                          deaf) > 0);
    hand_over(a, b);
    CHECK(kill(deaf, SIGCONT) == 0);
    closed(a);
    closed(b);
    done();
}

static struct server pooler;

static void pooler_start(int sessions)
{
    struct passwd *nobody = getpwnam("nobody");
    char text[1024], uid[32], gid[32];
    char *argv[] = { (char *)"setpriv",
                     uid,
                     gid,
                     (char *)"--clear-groups",
                     (char *)"--pdeathsig=KILL",
                     (char *)"/usr/sbin/pgbouncer",
                     (char *)"pool.ini",
                     NULL };

    server_init(&pooler, "pgbouncer");
    snprintf(text, sizeof(text),
             "[databases]\npostgres = host=127.0.0.1 port=%d dbname=postgres "
             "user=holdfast\n[pgbouncer]\n"
             "listen_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\n"
             "auth_type = any\npool_mode = transaction\ndefault_pool_size = %d\n"
             "ignore_startup_parameters = extra_float_digits\n",
             server.port, pooler.port, sessions);
    file_put(pooler.dir, "pool.ini", "w", text);
    if (getuid() == 0) {
        CHECK(nobody && chown(pooler.dir, nobody->pw_uid, nobody->pw_gid) == 0);
        snprintf(uid, sizeof(uid), "--reuid=%d", (int)nobody->pw_uid);
        snprintf(gid, sizeof(gid), "--regid=%d", (int)nobody->pw_gid);
        server_spawn(&pooler, "/usr/bin/setpriv", argv);
    } else {
        server_spawn(&pooler, argv[5], argv + 5);
    }
}

static bool pooler_answers(void)
{
    char info[128];
    PGconn *c;
    bool ok;

    snprintf(info, sizeof(info), "host=127.0.0.1 port=%d user=holdfast dbname=postgres",
             pooler.port);
    c = PQconnectdb(info);
    ok = PQstatus(c) == CONNECTION_OK;

    PQfinish(c);
    return ok;
}

/* Without a line: one who waits finds that it is free. */
static void hand_over_unseen(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = 60000);
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("o"), req);
    struct pend *p = begun(b, nm("o"), HF_FOREVER, req);
    int64_t start;

    AWAIT(postgres_number(&server, "SELECT count(*) FROM holdfast.follow") == 1);
    start = now_ms();
    given(l);
    given(pend_granted(p));
    CHECK_WITHIN(start, 15000); /* its safety look comes after 20 s */
    closed(a);
    closed(b);
}

/* Transactions of several clients share some sessions: everything works, but nobody is
 * told, which is found out. What others are given has no setting of ours. */
static void pooled(int sessions)
{
    hf_client *a, *b;
    hf_lease *l;
    uint64_t fence;
    char url[256];

    use_plain_server("");
    pooler_start(sessions);
    snprintf(url, sizeof(url),
             "postgres://holdfast@127.0.0.1:%d/postgres?connect_timeout=20s", pooler.port);
    AWAIT((server_must_run(&pooler), pooler_answers()));
    snprintf(rig.place->url, sizeof(rig.place->url), "%s&mode=advisory", url);
    a = opened();
    CHECK_RC(tried(a, nm("f"), NULL), HF_ENOTSUP); /* its sessions are not one's own */
    closed(a);
    snprintf(rig.place->url, sizeof(rig.place->url), "%s&mode=optimistic", url);
    hand_over_unseen();
    strcpy(rig.place->url, url);
    a = opened();
    b = opened_with(HF_OPTIONS(.log = hear, .user = (void *)"no message comes through"));
    l = taken(a, nm("f"), NULL);
    fence = hf_lease_fence(l);
    given(l);
    for (int i = 0; i < 3; i++)
        hand_over(a, b);
    l = taken(b, nm("f"), NULL);
    CHECK_NUM(hf_lease_fence(l), >, fence);
    /* its sessions end: nothing is lost */
    postgres_do(&server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                         "application_name = 'holdfast'");
    AWAIT(reaches(a) && reaches(b));
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    AWAIT(tickets() == 0);
    hand_over(a, b);
    CHECK_NUM(atomic_load(&warned), ==, 1); /* once, for both connections that b has had */
    closed(a);
    closed(b);
    server_remove(&pooler);
    done();
}

static void some_sessions(void)
{
    pooled(3);
}

/* The session that listens is also the one that notifies, so that one's own message comes
 * back: to the wrong connection, and only if it is one's own. */
static void one_session(void)
{
    pooled(1);
}

const struct test_case postgres_net_cases[] = {
    { "end-is-refused", end_is_refused, ON_ALL, 0, 0 },
    { "leave-while-greeting", leave_while_greeting, ON_ALL, 0, 0 },
    { "making-is-cut", making_is_cut, ON_ALL, 0, 0 },
    { "wake-is-poll", wake_is_poll, ON_ALL, 0, 0 },
    { "listener-is-deaf", listener_is_deaf, ON_ALL, 0, 0 },
    { "pooled", some_sessions, ON_ALL, 0, 0 },
    { "pooled-by-one", one_session, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
