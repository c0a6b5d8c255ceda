/* mysql_modes.c: what goes wrong with mode=optimistic, pessimistic and named of MariaDB,
 * besides what is the same in every database (sql_modes.c). */
#include "mysql_fault.h"

#include <mysql.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- the database ---------------------------------------------------------------- */

#define WAITS "(state = 'User lock' OR COALESCE(info, '') LIKE 'UPDATE holdfast_mutex x%')"

static bool waits(int i, int64_t n)
{
    return i >= WITH_SESSIONS || /* nowhere: it tries again */
           mariadb_number(&server,
                          "SELECT COUNT(*) FROM information_schema.processlist"
                          " WHERE user = 'holdfast' AND %s",
                          WAITS) == n;
}

static void use_small(void)
{
    mariadb_make(&server);
    mariadb_config(&server, "max-connections=10");
    use_server("");
}

static void direct(char *url, size_t size, const char *mode)
{
    snprintf(url, size, "mysql://holdfast@127.0.0.1:%d/holdfast?mode=%s", server.port,
             mode);
}

static void crash(void)
{
    kill_server();
    run_server();
}

static void lower_limits(void)
{
    mariadb_do(&server, "SET GLOBAL wait_timeout=1, GLOBAL interactive_timeout=1,"
                        " GLOBAL max_statement_time=0.4, GLOBAL innodb_lock_wait_timeout=1,"
                        " GLOBAL lock_wait_timeout=1, GLOBAL idle_transaction_timeout=1,"
                        " GLOBAL idle_write_transaction_timeout=1,"
                        " GLOBAL idle_readonly_transaction_timeout=1,"
                        " GLOBAL tx_isolation='SERIALIZABLE'");
}

/* Sessions that are, or are not, the holder's, and for which the rest is true, too. */
static int64_t end_those(int i, const char *which, const char *rest)
{
    char text[256];
    hf_client *c = opened();
    struct seen s;

    CHECK(see(c, name_of(i), 0, &s));
    closed(c);
    snprintf(text, sizeof(text), "AND id %s %lld AND %s", which, (long long)s.pid, rest);
    return kill_all("CONNECTION", text);
}

static int64_t end_holder(int i)
{
    return end_those(i, "=", "TRUE");
}

static int64_t end_waiter(void)
{
    return kill_all("CONNECTION", "AND " WAITS);
}

static int64_t end_control(int i)
{
    return end_those(i, "<>", "NOT " WAITS);
}

static bool nothing_left(void)
{
    return mariadb_number(&server,
                          "SELECT COUNT(*) FROM information_schema.innodb_trx"
                          " WHERE trx_rows_modified > 0 OR trx_rows_locked > 0") == 0;
}

const struct database db = {
    .modes = { "pessimistic", "named", "optimistic" },
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

/* ---- sessions -------------------------------------------------------------------- */

/* By others: GET_LOCK answers NULL then, and a row lock an error. Neither is a grant, and
 * who waits goes on waiting. */
static void waiter_interrupted(void)
{
    use_plain_server("");
    for (int i = 0; i < WITH_SESSIONS; i++) {
        struct two t = begin_two(i, 60000);

        for (int k = 0; k < 3; k++) {
            CHECK_NUM(kill_all("QUERY", "AND " WAITS), ==, 1);
            AWAIT(waits(i, 1));
        }
        CHECK(!pend_done(t.waits) && hf_lease_check(t.held) == 0);
        given(t.held);
        end_two(i, &t);
    }
    done();
}

/* The server ends a session that is idle; it is not used again. */
static void idle_then_acquire(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = 1000);

    use_plain_server("");
    for (int i = 0; i < WITH_SESSIONS; i++) {
        hf_client *c;

        use_mode(i);
        c = opened();
        given(taken(c, name_of(i), req));
        AWAIT(mariadb_number(&server, "SELECT COUNT(*) FROM information_schema.processlist"
                                      " WHERE user = 'holdfast'") == 1);
        given(taken(c, name_of(i), req));
        closed(c);
    }
    done();
}

struct counter {
    hf_client *c;
    const char *name;
    int n;
};

static void *count(void *arg)
{
    struct counter *x = arg;

    for (int i = 0; i < 10; i++) {
        hf_lease *l = taken(x->c, x->name, HF_REQUEST(.ttl_ms = 60000));
        int n = x->n;

        nap();
        x->n = n + 1;
        given(l);
    }
    return NULL;
}

/* User locks nest within a session, and rows are their owner's: threads of one client
 * exclude each other all the same. */
static void threads_exclude(void)
{
    enum { THREADS = 4 };

    use_plain_server("");
    for (int i = 0; i < ALL_MODES; i++) {
        struct counter x = { .name = name_of(i) };

        use_mode(i);
        x.c = opened();
        in_threads(THREADS, count, &x);
        CHECK_NUM(x.n, ==, THREADS * 10);
        closed(x.c);
    }
    done();
}

/* A replica has user locks of its own. */
static void session_on_replica(void)
{
    hf_client *c;
    hf_lease *l = NULL;

    use_plain_server("");
    use_mode(1);
    c = opened();
    CHECK_RC(tried(c, nm("first"), NULL), 0);
    CHECK_NUM(kill_all("CONNECTION", "ORDER BY id DESC LIMIT 1"), ==,
              1); /* the free session */
    mariadb_do(&server, "SET GLOBAL read_only=1");
    CHECK(rig.face->acquire(c, name_of(1), 1000, NULL, &l, E()) != 0);
    mariadb_do(&server, "SET GLOBAL read_only=0");
    CHECK_RC(tried(c, name_of(1), NULL), 0);
    closed(c);
    done();
}

/* A server with wsrep_on and no provider says of itself what a node of a cluster says. */
static void galera(void)
{
    hf_client *a, *b;
    hf_lease *l = NULL;
    struct pend *p;

    mariadb_make(&server);
    mariadb_config(&server, "wsrep-on=ON");
    mariadb_config(&server, "wsrep-provider=none");
    mariadb_config(&server, "binlog-format=ROW");
    use_server("");
    for (int i = 0; i < WITH_SESSIONS; i++) {
        use_mode(i);
        a = opened();
        CHECK_RC(rig.face->acquire(a, nm("n"), LIMIT_MS, NULL, &l, E()), HF_ENOTSUP);
        CHECK(strstr(last_error()->text, "Galera"));
        closed(a);
    }
    direct(rig.place->url, sizeof(rig.place->url), "line");
    a = opened();
    b = opened();
    l = taken(a, nm("n"), HF_REQUEST(.ttl_ms = 600000));
    p = queued(b, nm("n"), 1, HF_REQUEST(.ttl_ms = 600000));
    CHECK_NUM(mariadb_number(&server, "SELECT COUNT(*) FROM information_schema.processlist"
                                      " WHERE user = 'holdfast'"),
              ==, 2); /* no connection that waits */
    given(l);
    given(pend_granted(p));
    closed(a);
    closed(b);
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
    given(taken(c[ALL_MODES], nm("n"), NULL)); /* it makes the schema */
    for (int i = 0; i < ALL_MODES; i++) {
        use_mode(i);
        c[i] = opened();
    }
    for (int i = 0; i <= ALL_MODES; i++) {
        l[i] = taken(c[i], nm("n"), NULL);
        CHECK_RC(tried(c[i], nm("n"), NULL), HF_EBUSY); /* one's own client, too */
        fences[i] = hf_lease_fence(l[i]);
    }
    CHECK_NUM(fences[1], ==, 0);
    for (int i = 0; i <= ALL_MODES; i++)
        given(l[i]);
    mariadb_do(&server, "UPDATE holdfast_line SET fence = fence + 1000000000000");
    mariadb_do(&server, "UPDATE holdfast_lease SET version = version + 1000000000000,"
                        " expiry = 0");
    mariadb_do(&server, "UPDATE holdfast_mutex SET version = version + 1000000000000");
    CHECK_NUM(mariadb_number(&server, "CALL holdfast_sweep(-2000000000)"), ==, 3);
    CHECK_NUM(mariadb_number(&server, "SELECT (SELECT COUNT(*) FROM holdfast_lease) +"
                                      " (SELECT COUNT(*) FROM holdfast_mutex)"),
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

/* The holder of a row dies: its fence is not written, and that of the next one, who has
 * waited since before, is greater all the same. A row that is locked is not swept. */
static void holder_dies(void)
{
    struct kid k;
    struct pend *p;
    hf_client *c;
    hf_lease *l;
    uint64_t fence = 0;

    use_plain_server("");
    use_mode(0);
    k = kid_new();
    CHECK_RC(kid_acquire(&k, 0, name_of(0), LIMIT_MS, NULL, &fence), 0);
    CHECK_NUM(fence, >, 0);
    c = opened();
    p = begun(c, name_of(0), HF_FOREVER, HF_REQUEST(.ttl_ms = 60000));
    AWAIT(waits(0, 1));
    CHECK_NUM(mariadb_number(&server, "CALL holdfast_sweep(-2000000000)"), ==, 0);
    kid_kill(&k);
    l = pend_granted(p);
    CHECK_NUM(hf_lease_fence(l), >, fence);
    given(l);
    CHECK_NUM(mariadb_number(&server, "CALL holdfast_sweep(-2000000000)"), ==, 1);
    CHECK_RC(tried(c, name_of(0), NULL), 0);
    closed(c);
    done();
}

static void *sweep(void *arg)
{
    (void)arg;
    mariadb_do(&server, "BEGIN NOT ATOMIC FOR i IN 1..3000 DO CALL holdfast_sweep(600000);"
                        " END FOR; END");
    return NULL;
}

/* A sweep that finds nothing to remove is in nobody's way: a free name is not refused. */
static void swept_beside(void)
{
    pthread_t thread;
    hf_client *c;

    use_plain_server("");
    use_mode(0);
    c = opened();
    CHECK_RC(tried(c, name_of(0), NULL), 0);
    CHECK(pthread_create(&thread, NULL, sweep, NULL) == 0);
    for (int i = 0; i < 300; i++)
        CHECK_RC(tried(c, name_of(0), NULL), 0);
    pthread_join(thread, NULL);
    closed(c);
    done();
}

/* The key is the one in the manual: other programs meet us there, and are seen. */
static void other_program(void)
{
    static const char *const keys[][3] = {
        { "", "job", "'job'" },
        { "", "a job", "CONCAT('hf_', SHA1(CONCAT('', X'00', 'a job')))" },
        { "?namespace=apps", "job", "CONCAT('hf_', SHA1(CONCAT('apps', X'00', 'job')))" },
    };
    char text[256];
    struct seen s;

    use_plain_server("");
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        MYSQL *other = mysql_init(NULL);
        hf_client *c;
        hf_lease *l;

        snprintf(rig.place->url, sizeof(rig.place->url),
                 "mysql://holdfast@127.0.0.1:%d/holdfast%s%cmode=named", server.port,
                 keys[i][0], keys[i][0][0] ? '&' : '?');
        c = opened();
        l = taken(c, keys[i][1], HF_REQUEST(.note = "a note of more than 27 byt\u00e9s"));
        CHECK(see(c, keys[i][1], 0, &s));
        CHECK_STR(s.note, "a note of more than 27 byt?");
        CHECK_NUM(mariadb_number(&server, "SELECT IS_USED_LOCK(%s)", keys[i][2]), ==,
                  s.pid);
        given(l);
        CHECK(mysql_real_connect(other, NULL, "holdfast", "", "holdfast", 0, server.socket,
                                 0));
        snprintf(text, sizeof(text), "DO GET_LOCK(%s, 0)", keys[i][2]);
        CHECK(mysql_query(other, text) == 0);
        CHECK_RC(tried(c, keys[i][1], NULL), HF_EBUSY);
        CHECK(see(c, keys[i][1], 0, &s));
        CHECK_STR(s.note, "a lock of another program");
        CHECK_RC(rig.face->evict(c, keys[i][1], s.id, HF_EVICT_NOW, E()), 0);
        AWAIT(tried(c, keys[i][1], NULL) == 0);
        mysql_close(other);
        closed(c);
    }
    done();
}

const struct test_case mysql_mode_cases[] = {
    { "mode-waiter-interrupted", waiter_interrupted, ON_ALL, 0, 0 },
    { "mode-idle-then-acquire", idle_then_acquire, ON_ALL, 0, 0 },
    { "mode-threads-exclude", threads_exclude, ON_ALL, 0, 0 },
    { "named-session-on-replica", session_on_replica, ON_ALL, 0, 0 },
    { "galera", galera, ON_ALL, 0, 0 },
    { "modes-apart", modes_apart, ON_ALL, 0, 0 },
    { "pessimistic-holder-dies", holder_dies, ON_ALL, 0, 0 },
    { "pessimistic-swept-beside", swept_beside, ON_ALL, 0, 0 },
    { "named-other-program", other_program, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
