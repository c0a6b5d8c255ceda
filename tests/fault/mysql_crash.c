/* mysql_crash.c: crash=fast: what becomes of the holds of a session that is gone, and of
 * those that have nothing to do with it. */
#include "kid.h"
#include "mysql_fault.h"

#include <string.h>
#include <unistd.h>

enum { LONG_TTL_MS = 600000, SOON_MS = TEST_SANITIZED ? 20000 : 10000 };

static const hf_request lasting = { .size = sizeof lasting, .ttl_ms = LONG_TTL_MS };

/* The session in which the client of this lease sends its commands. */
static int64_t kill_holder(void)
{
    return mariadb_number(&server,
                          "BEGIN NOT ATOMIC DECLARE i BIGINT DEFAULT (SELECT"
                          " IS_USED_LOCK(CONCAT('hf_s_', HEX(client))) FROM holdfast_ticket"
                          " WHERE state = 1); KILL i; SELECT i; END");
}

static int64_t kill_waiter(void)
{
    return mariadb_number(&server,
                          "BEGIN NOT ATOMIC DECLARE i BIGINT DEFAULT (SELECT"
                          " IS_USED_LOCK(CONCAT('hf_s_', HEX(client))) FROM holdfast_ticket"
                          " WHERE state = 0); KILL i; SELECT i; END");
}

/* Who waits, and who only tries, get the place of one that was killed. */
static void holder_is_killed(void)
{
    struct kid k, other;
    struct pend *p;
    hf_client *c;
    int64_t start;

    use_plain_server("?crash=fast");
    k = kid_new();
    other = kid_new();
    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS, &lasting, NULL), 0);
    CHECK_RC(kid_acquire(&other, 0, nm("m"), LIMIT_MS, &lasting, NULL), 0);
    c = opened();
    p = queued(c, nm("n"), 1, &lasting);
    start = now_ms();
    kid_kill(&k);
    given(pend_granted(p));
    CHECK_WITHIN(start, SOON_MS);
    start = now_ms();
    kid_kill(&other);
    AWAIT(tried(c, nm("m"), &lasting) == 0);
    CHECK_WITHIN(start, SOON_MS);
    CHECK(lines_whole());
    closed(c);
    done();
}

/* It lives, and the server ends its session: it knows that it has lost its lock before
 * another gets it, one that tries all the time. */
static void session_is_killed(void)
{
    hf_client *a, *b;
    hf_lease *l, *got = NULL;
    int64_t start;

    use_plain_server("?crash=fast");
    a = prompted();
    b = opened();
    for (int i = 0; i < 5; i++) {
        l = taken(a, nm("n"), &lasting);
        CHECK_NUM(kill_holder(), >, 0);
        start = now_ms();
        while (rig.face->acquire(b, nm("n"), 0, &lasting, &got, E()) == HF_EBUSY)
            CHECK_WITHIN(start, SOON_MS);
        CHECK(got);
        CHECK_RC(hf_lease_check(l), HF_ELOST);
        CHECK_RC(hf_lease_check(got), 0);
        given(got);
        (void)rig.face->release(l, E());
    }
    closed(a);
    closed(b);
    done();
}

/* It waits when its session ends, comes back, and is let in: it keeps its place. */
static void waiter_comes_back(void)
{
    hf_client *a, *b, *c;
    struct pend *p;
    hf_lease *l;

    use_plain_server("?crash=fast");
    a = opened();
    b = prompted();
    c = opened();
    l = taken(a, nm("n"), &lasting);
    p = queued(b, nm("n"), 1, &lasting);
    CHECK_NUM(kill_waiter(), >, 0);
    given(l);
    l = pend_granted(p);
    STAYS(tried(c, nm("n"), &lasting) == HF_EBUSY && hf_lease_check(l) == 0, 1500);
    given(l);
    closed(a);
    closed(b);
    closed(c);
    done();
}

/* One without the option keeps its hold beside others that have it, whatever becomes of its
 * session; and one with it if nothing happens. */
static void others_are_not_affected(void)
{
    hf_client *a, *b;
    hf_lease *l, *m;

    use_plain_server("?crash=fast");
    a = opened_directly();
    b = opened();
    given(taken(b, nm("n"), NULL)); /* such tickets were in this line */
    l = taken(a, nm("n"), &lasting);
    unfold();
    CHECK_NUM(kill_holder(), >, 0);
    m = taken(b, nm("m"), &lasting);
    CHECK_NUM(mariadb_number(&server, "SELECT COUNT(*) FROM holdfast_ticket"
                                      " WHERE state = 1 AND session = 0"),
              ==, 1);
    STAYS(tried(b, nm("n"), &lasting) == HF_EBUSY && hf_lease_check(l) == 0, 2000);
    CHECK_RC(hf_lease_check(m), 0);
    given(l);
    given(m);
    closed(a);
    closed(b);
    done();
}

/* A place that is to be kept after its owner has gone is kept. */
static void kept_place_stays(void)
{
    struct kid k;
    hf_client *c;

    use_plain_server("?crash=fast");
    k = kid_new();
    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS, &lasting, NULL), 0);
    CHECK_RC(kid_keep(&k, 0, LONG_TTL_MS).rc, 0);
    kid_kill(&k);
    c = opened();
    STAYS(tried(c, nm("n"), &lasting) == HF_EBUSY, 1500);
    closed(c);
    done();
}

static void refusals(void)
{
    static const struct {
        const char *params, *word;
    } bad[] = { { "?crash=slow", "only fast" },
                { "?crash=fast&mode=optimistic", "not for another mode" },
                { "?crash=fast&mode=pessimistic", "not for another mode" },
                { "?crash=fast&mode=named", "not for another mode" },
                { "?crash=fast&wake=poll", "wake=poll" } };
    char url[160];
    hf_client *c = NULL;
    hf_lease *l = NULL;

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        snprintf(url, sizeof(url), "mysql://holdfast@127.0.0.1:1/holdfast%s",
                 bad[i].params);
        CHECK_RC(rig.face->open(url, NULL, &c, E()), HF_EINVAL);
        CHECK(strstr(last_error()->text, bad[i].word));
    }
    mariadb_make(&server);
    mariadb_config(&server, "wsrep-on=ON");
    mariadb_config(&server, "wsrep-provider=none");
    mariadb_config(&server, "binlog-format=ROW");
    use_server("?crash=fast");
    expect_refusal(rig.place->url, HF_ENOTSUP, "Galera");
    server_remove(&server);

    use_plain_server("?crash=fast");
    c = opened();
    CHECK(!(hf_client_caps(c) & HF_CAP_DEADLINE));
    CHECK(hf_client_caps(c) & HF_CAP_FIFO);
    CHECK_RC(rig.face->acquire(c, nm("n"), LIMIT_MS, HF_REQUEST(.flags = HF_NEED_DEADLINE),
                               &l, E()),
             HF_ENOTSUP);
    closed(c);
    done();
}

const struct test_case mysql_crash_cases[] = {
    { "crash-holder-killed", holder_is_killed, ON_ALL, 0, 0 },
    { "crash-session-killed", session_is_killed, ON_ALL, 0, 0 },
    { "crash-waiter-back", waiter_comes_back, ON_ALL, 0, 0 },
    { "crash-others", others_are_not_affected, ON_ALL, 0, 0 },
    { "crash-kept", kept_place_stays, ON_ALL, 0, 0 },
    { "crash-refused", refusals, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
