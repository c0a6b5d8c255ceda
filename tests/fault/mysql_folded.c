/* mysql_folded.c: holds that stand in the row of their line (schema.sql): who looks, and
 * who renews beside a line that is locked. */
#include "mysql_fault.h"

#include <holdfast/recipes.h>

enum { HANDED_ON = TEST_SANITIZED ? 300 : 1500 };

static atomic_bool over;

/* A line that is handed on and on without a gap, by the server itself: there is no faster
 * one. */
static void *hand_on(void *arg)
{
    (void)arg;
    mariadb_do(&server,
               "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;"
               "SET @holdfast_client = X'0000000000000001', @holdfast_wake = 0;"
               "CALL hand_on(%d)",
               HANDED_ON);
    atomic_store(&over, true);
    return NULL;
}

static void make_hand_on(void)
{
    mariadb_script(
        &server,
        "USE holdfast;\n"
        "DELIMITER $$\n"
        "CREATE PROCEDURE hand_on(p_many BIGINT)\n"
        "BEGIN\n"
        "  DECLARE i BIGINT DEFAULT 0;\n"
        "  WHILE i < p_many DO\n"
        "    CALL holdfast_join('', 'n', UNHEX(MD5(i + 1)), 0, 2147483648, 2147483648,\n"
        "      600000, 0, X'0000000000000001', 1, 1, 1, 'h', '', '');\n"
        "    CALL holdfast_leave('', 'n', UNHEX(MD5(i)), 0);\n"
        "    SET i = i + 1;\n"
        "  END WHILE;\n"
        "END $$\n");
}

static void has_a_holder(const hf_list *list, void *user)
{
    const hf_line *line = hf_list_at(list, 0);

    *(bool *)user = line && hf_line_holders(line) == 1;
}

static void looked_at_while_handed_on(void)
{
    pthread_t thread;
    hf_client *c;
    int64_t looks = 0;

    use_plain_server("");
    c = opened();
    given(taken(c, "n", NULL));
    make_hand_on();
    mariadb_do(&server,
               "SET @holdfast_client = X'0000000000000001', @holdfast_wake = 0;"
               "CALL holdfast_join('', 'n', UNHEX(MD5(0)), 0, 2147483648,"
               " 2147483648, 600000, 0, X'0000000000000001', 1, 1, 1, 'h', '', '')");
    CHECK_NUM(pthread_create(&thread, NULL, hand_on, NULL), ==, 0);
    while (!atomic_load(&over)) {
        bool held = false;

        CHECK_RC(rig.face->look(c, "n", has_a_holder, &held, E()), 0);
        CHECK(held);
        looks++;
    }
    pthread_join(thread, NULL);
    printf("# %lld looks\n", (long long)looks);
    closed(c);
    done();
}

/* Somebody has locked the row of a line for a while, in which the hold there is to be
 * renewed. What we hold in another one is renewed all the same; and the hold there is when
 * the row is free again. */
static void renewed_beside_a_locked_line(void)
{
    const hf_request brief = { .size = sizeof brief, .ttl_ms = SHORT_MS };
    const hf_request longer = { .size = sizeof longer, .ttl_ms = 4 * SHORT_MS };
    MYSQL *other = mysql_init(NULL);
    hf_lease *stuck, *lease;
    hf_client *c;

    use_plain_server("");
    c = opened();
    given(taken(c, nm("stuck"), &brief)); /* the rows are there: both are taken by one */
    given(taken(c, nm("n"), &brief));
    stuck = taken(c, nm("stuck"), &longer);
    lease = taken(c, nm("n"), &brief);
    CHECK_NUM(
        mariadb_number(&server, "SELECT COUNT(*) FROM holdfast_line WHERE token <> ''"), ==,
        2);
    CHECK(mysql_real_connect(other, "127.0.0.1", "holdfast", NULL, "holdfast",
                             (unsigned)server.port, NULL, 0));
    /* else it locks every row that it reads */
    CHECK_NUM(mysql_query(other, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"),
              ==, 0);
    CHECK_NUM(mysql_query(other, "BEGIN"), ==, 0);
    CHECK_NUM(mysql_query(other, "UPDATE holdfast_line SET seq = seq + 1 WHERE name LIKE"
                                 " '%stuck'"),
              ==, 0);
    CHECK_NUM(mysql_affected_rows(other), ==, 1);
    STAYS(hf_lease_check(lease) == 0, 5 * SHORT_MS / 2);
    CHECK_NUM(mysql_query(other, "ROLLBACK"), ==, 0);
    mysql_close(other);
    STAYS(hf_lease_check(lease) == 0 && hf_lease_check(stuck) == 0, 2 * SHORT_MS);
    given(lease);
    given(stuck);
    closed(c);
    done();
}

/* The same with the row of a ticket, which every hold has that was renewed once. If a limit
 * ends a wait, a server that is set so undoes the whole transaction: what was renewed in it
 * was not. The client may not go by that, and so loses nothing. */
static void renewed_beside_a_locked_ticket(void)
{
    const hf_request brief = { .size = sizeof brief, .ttl_ms = SHORT_MS };
    const hf_request longer = { .size = sizeof longer, .ttl_ms = 6 * SHORT_MS };
    MYSQL *lock = mysql_init(NULL);
    hf_lease *stuck, *lease;
    hf_client *c, *d;

    make_server();
    mariadb_config(&server, "innodb_rollback_on_timeout=ON");
    use_server("?connect_timeout=30s");
    c = opened();
    d = opened();
    stuck = taken(c, nm("stuck"), &longer);
    lease = taken(c, nm("n"), &brief);
    AWAIT(mariadb_number(&server, "SELECT COUNT(*) FROM holdfast_ticket") == 2);
    CHECK(mysql_real_connect(lock, NULL, "root", "", "holdfast", 0, server.socket, 0));
    CHECK(mysql_query(lock, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED") == 0);
    CHECK(mysql_query(
              lock,
              "SET @line = (SELECT id FROM holdfast_line WHERE name LIKE '%stuck')") == 0);
    CHECK(mysql_query(lock, "BEGIN") == 0);
    CHECK(mysql_query(lock, "UPDATE holdfast_ticket SET owner = owner + 1"
                            " WHERE line = @line") == 0);
    CHECK_NUM(mysql_affected_rows(lock), ==, 1);
    STAYS(hf_lease_check(lease) == 0 && tried(d, nm("n"), NULL) == HF_EBUSY,
          7 * SHORT_MS / 2);
    CHECK(mysql_query(lock, "ROLLBACK") == 0);
    mysql_close(lock);
    STAYS(hf_lease_check(lease) == 0 && hf_lease_check(stuck) == 0, 2 * SHORT_MS);
    given(lease);
    given(stuck);
    closed(c);
    closed(d);
    done();
}

/* To make the schema may take longer than this connect_timeout. */
static hf_client *opened_in_haste(const char *params)
{
    hf_client *c;

    use_plain_server("");
    c = opened();
    given(taken(c, nm("stuck"), NULL));
    closed(c);
    strcat(rig.place->url, params);
    return prompted();
}

/* For long. */
static MYSQL *lock_stuck(void)
{
    MYSQL *c = mysql_init(NULL);

    CHECK(mysql_real_connect(c, NULL, "root", "", "holdfast", 0, server.socket, 0));
    CHECK(mysql_query(c, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED") == 0);
    CHECK(mysql_query(c, "BEGIN") == 0);
    CHECK(mysql_query(c, "UPDATE holdfast_line SET seq = seq + 1"
                         " WHERE name LIKE '%/stuck%'") == 0);
    CHECK_NUM(mysql_affected_rows(c), >, 0);
    return c;
}

/* Somebody has locked the row of one line. What this client has in other lines goes on: all
 * share one connection. */
static void stuck(const char *params)
{
    const hf_request brief = { .size = sizeof brief, .ttl_ms = SHORT_MS };
    hf_client *c;
    struct pend *p;
    hf_lease *l;
    MYSQL *lock;

    c = opened_in_haste(params);
    l = taken(c, nm("n"), &brief);
    lock = lock_stuck();
    p = begun(c, nm("stuck"), LIMIT_MS, NULL);
    STAYS(hf_lease_check(l) == 0, 2 * SHORT_MS);
    AWAIT(tried(c, nm("other"), NULL) == 0);
    CHECK(!pend_done(p));
    mysql_close(lock);
    given(pend_granted(p));
    given(l);
    closed(c);
    CHECK_NUM(tickets(), ==, 0);
    done();
}

static void one_line_is_stuck(void)
{
    stuck("?connect_timeout=20s");
}

/* The server gives up waiting for the row after a second: so long the client waits, too. */
static void stuck_for_longer(void)
{
    stuck("?connect_timeout=900ms");
}

/* More lines in which it holds something: to wait for each of them in turn would be too
 * long for the others. */
static void holds_are_stuck(void)
{
    enum { STUCK = 6 };
    const hf_request brief = { .size = sizeof brief, .ttl_ms = SHORT_MS };
    const hf_request longer = { .size = sizeof longer, .ttl_ms = 6 * SHORT_MS };
    hf_lease *l, *stuck[STUCK];
    hf_client *c;
    MYSQL *lock;
    char name[32];

    c = opened_in_haste("?connect_timeout=900ms");
    for (int i = 0; i < STUCK; i++) {
        snprintf(name, sizeof name, "stuck-%d", i);
        stuck[i] = taken(c, nm(name), &longer);
    }
    l = taken(c, nm("n"), &brief);
    lock = lock_stuck();
    STAYS(hf_lease_check(l) == 0, 4 * SHORT_MS);
    mysql_close(lock);
    for (int i = 0; i < STUCK; i++) {
        CHECK_RC(hf_lease_check(stuck[i]), 0);
        given(stuck[i]);
    }
    given(l);
    closed(c);
    CHECK_NUM(tickets(), ==, 0);
    done();
}

static void *give(void *lease)
{
    given(lease);
    return NULL;
}

/* Many calls that each wait for a row of their own: a renewal waits for one of them, not
 * for all. */
static void leaves_are_stuck(void)
{
    enum { STUCK = 6 };
    const hf_request brief = { .size = sizeof brief, .ttl_ms = SHORT_MS };
    const hf_request longer = { .size = sizeof longer, .ttl_ms = 600000 };
    hf_lease *l, *stuck[STUCK];
    pthread_t threads[STUCK];
    hf_client *c;
    MYSQL *lock;
    char name[32];

    c = opened_in_haste("?connect_timeout=30s");
    for (int i = 0; i < STUCK; i++) {
        snprintf(name, sizeof name, "stuck-%d", i);
        stuck[i] = taken(c, nm(name), &longer);
    }
    l = taken(c, nm("n"), &brief);
    lock = lock_stuck();
    for (int i = 0; i < STUCK; i++)
        CHECK(pthread_create(&threads[i], NULL, give, stuck[i]) == 0);
    STAYS(hf_lease_check(l) == 0, 4 * SHORT_MS);
    mysql_close(lock);
    for (int i = 0; i < STUCK; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    given(l);
    closed(c);
    CHECK_NUM(tickets(), ==, 0);
    done();
}

/* COMMIT would begin another transaction, and what is written next not be committed. */
static void commits_chain(void)
{
    hf_client *c;
    hf_lease *l;

    make_server();
    mariadb_config(&server, "completion-type=CHAIN");
    use_server("");
    c = opened();
    for (int i = 0; i < 3; i++) {
        l = taken(c, nm("n"), NULL);
        CHECK_NUM(tickets(), ==, 1); /* as others see it */
        given(l);
        CHECK_NUM(tickets(), ==, 0);
    }
    closed(c);
    done();
}

/* The server's clock is set back while somebody waits: who got in is told all the same, not
 * by its safety look. The second time its ticket has a row of its own. */
static void handed_on_by_an_earlier_clock(void)
{
    const hf_request longer = { .size = sizeof longer, .ttl_ms = 600000 };
    hf_client *a, *b;
    hf_lease *l;
    struct pend *p;

    make_server();
    server_clock_able(&server);
    use_server("");
    a = opened();
    b = opened();
    for (int i = 0; i < 2; i++) {
        l = taken(a, nm("n"), &longer);
        p = queued(b, nm("n"), 1, &longer);
        if (i > 0)
            mariadb_do(&server, "BEGIN NOT ATOMIC DECLARE l ROW TYPE OF holdfast_line;"
                                " SELECT * INTO l FROM holdfast_line x WHERE x.token <> '';"
                                " CALL holdfast_unfold(l); END");
        server_clock_step(&server, -3600 * 1000);
        given(l);
        given(pend_granted(p));
    }
    closed(a);
    closed(b);
    done();
}

/* A barrier gives its place back when it returns, and nobody waits for that; it takes
 * several steps. They are seen to, before the next timer of the client comes, which would
 * be a second later. */
static void left_unattended(void)
{
    enum { TIMES = 5 };
    hf_client *a, *b;
    int64_t ms = 0, start;

    use_plain_server("");
    a = opened();
    given(taken(a, nm("n"), NULL)); /* makes the schema */
    b = opened();
    for (int i = 0; i < TIMES; i++) {
        CHECK_RC(hf_barrier(b, nm("n"), 3, 300, NULL, E()), HF_ETIMEDOUT);
        start = now_ms();
        await_line(a, nm("n"), 0, 0);
        ms += now_ms() - start;
    }
    check_within(__FILE__, __LINE__, "it has left", ms, TIMES * 400);
    closed(a);
    closed(b);
    done();
}

/* Very many readers get in at once: what their waker says has room for all of them. */
static void many_get_in(void)
{
    hf_client *c;

    use_plain_server("");
    c = opened();
    given(taken(c, "n", NULL));
    mariadb_script(
        &server,
        "USE holdfast;\n"
        "DELIMITER $$\n"
        "CREATE PROCEDURE many_get_in(p_many BIGINT)\n"
        "BEGIN\n"
        "  DECLARE i, v_line BIGINT DEFAULT 0;\n"
        "  CALL holdfast_join('', 'n', UNHEX(MD5(-1)), 0, 2147483648, 2147483648,\n"
        "    600000, 0, X'0000000000000001', 1, 1, 1, 'h', '', '');\n"
        "  WHILE i < p_many DO\n"
        "    CALL holdfast_join('', 'n', UNHEX(MD5(i)), 0, 2147483648, 1,\n"
        "      600000, 0, X'0000000000000002', 1, 1, 1, 'h', '', '');\n"
        "    SET i = i + 1;\n"
        "  END WHILE;\n"
        "  CALL holdfast_leave('', 'n', UNHEX(MD5(-1)), 0);\n"
        "  SELECT id INTO v_line FROM holdfast_line WHERE name = 'n';\n"
        "  CALL holdfast_await(X'0000000000000002', UNHEX(MD5(-1)), v_line, 0, 1);\n"
        "END $$\n");
    mariadb_do(&server, "SET @holdfast_client = X'0000000000000001', @holdfast_wake = 0;"
                        "CALL many_get_in(1500)"); /* an error is a failure */
    CHECK_NUM(mariadb_number(&server, "SELECT n FROM holdfast_line"), ==, 1500);
    closed(c);
    done();
}

/* A schema of version 1 in which somebody made a line before it was brought up to date. */
static void lines_of_version_one(void)
{
    const hf_request brief = { .size = sizeof brief, .ttl_ms = SHORT_MS };
    hf_client *c;
    hf_lease *lease;

    use_plain_server("");
    c = opened();
    given(taken(c, "n", NULL));
    closed(c);
    mariadb_do(&server,
               "ALTER TABLE holdfast_line DROP COLUMN crc; ALTER TABLE"
               " holdfast_ticket DROP COLUMN session; DELETE FROM holdfast_format");
    c = opened(); /* runs the script */
    lease = taken(c, "n", &brief);
    STAYS(hf_lease_check(lease) == 0, 2 * SHORT_MS);
    given(lease);
    closed(c);
    done();
}

const struct test_case mysql_folded_cases[] = {
    { "looked-at-while-handed-on", looked_at_while_handed_on, ON_BLOCKING, 0, 0 },
    { "renewed-beside-a-locked-line", renewed_beside_a_locked_line, ON_BLOCKING, 0, 0 },
    { "one-line-is-stuck", one_line_is_stuck, ON_ALL, 0, 0 },
    { "stuck-for-longer", stuck_for_longer, ON_ALL, 0, 0 },
    { "holds-are-stuck", holds_are_stuck, ON_BLOCKING, 0, 0 },
    { "leaves-are-stuck", leaves_are_stuck, ON_BLOCKING, 0, 0 },
    { "commits-chain", commits_chain, ON_BLOCKING, 0, 0 },
    { "handed-on-by-an-earlier-clock", handed_on_by_an_earlier_clock, ON_BLOCKING, 0, 0 },
    { "left-unattended", left_unattended, ON_BLOCKING, 0, 0 },
    { "many-get-in", many_get_in, ON_BLOCKING, 0, 0 },
    { "renewed-beside-a-locked-ticket", renewed_beside_a_locked_ticket, ON_BLOCKING, 0, 0 },
    { "lines-of-version-one", lines_of_version_one, ON_BLOCKING, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
