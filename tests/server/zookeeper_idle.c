/* zookeeper_idle.c: what a client costs its servers while it does nothing, and what its
 * next acquire costs then; counted by the servers.
 *
 * The node of the line is made by hand, so that the servers do not remove it meanwhile and
 * its levels need not be made anew. */
#include "zookeeper_counts.h"
#include "zookeeper_fault.h"

#include <holdfast/async.h>

/* In one round trip the ticket is made and the line listed. With a base older than T/3 the
 * hold is renewed at once, for which nobody waits; nor does anybody wait for the watch on
 * its own node, which is set if it is held for longer than a moment, or for a ping. */
enum { T_MS = 8000, MOST_REQUESTS = 3 + 3, MOST_MS = T_MS / 8, ROUNDS = 6 };
#define IDLE_TTL "ttl=8s"

static void make_line(size_t server)
{
    struct hand h = hand_open(servers->servers[server].port, 10000);

    CHECK_NUM(hand_create(&h, "/fault", 0), ==, 0);
    CHECK_NUM(hand_create(&h, "/fault/n", 0), ==, 0);
    hand_close(&h);
}

/* Rounds in which an acquire after some idle time cost more than it may. The client has
 * been used before: the first acquire opens the session. */
static int dear_rounds(hf_client *c, const struct server *server)
{
    int dear = 0;

    given(taken(c, "n", NULL));
    for (int i = 0; i < ROUNDS; i++) {
        struct counts before, after;
        int64_t began, took, left;
        hf_lease *l;

        /* never a multiple of T/4: no ping is sent then */
        STAYS(true, T_MS * 5 / 8 + i * T_MS / 6);
        before = counts_of(server);
        began = now_ms();
        l = taken(c, "n", NULL);
        took = now_ms() - began;
        left = hf_lease_remaining_ms(l);
        after = counts_of(server);
        dear += after.requests - before.requests > MOST_REQUESTS ||
                after.writes - before.writes > 1 || took > MOST_MS || left <= T_MS / 4;
        given(l);
    }
    return dear;
}

/* One of them may meet with a machine that stands still. */
static void idle_acquire(void)
{
    hf_client *c;

    use_one(IDLE_TTL);
    make_line(0);
    c = opened();
    CHECK_NUM(dear_rounds(c, &servers->servers[0]), <=, 1);
    closed(c);
    done();
}

/* A follower, from which the leader hears of us by its heartbeats only. */
static void idle_acquire_by_follower(void)
{
    size_t follower;
    hf_client *c;

    use_three(IDLE_TTL, "");
    follower = (zk_leader(servers) + 1) % ZK_SERVERS;
    make_line(follower);
    for (size_t i = 0; i < ZK_SERVERS; i++)
        proxy_refuse(fronts[i], i != follower);
    c = opened();
    CHECK_NUM(dear_rounds(c, &servers->servers[follower]), <=, 1);
    closed(c);
    done();
}

/* The session is kept by pings. */
static void idle_writes_nothing(void)
{
    struct counts before, after;
    hf_client *c;

    use_one(IDLE_TTL);
    make_line(0);
    c = opened();
    given(taken(c, "n", NULL));
    before = counts_of(&servers->servers[0]);
    STAYS(true, 2 * T_MS + T_MS / 2);
    after = counts_of(&servers->servers[0]);
    CHECK_NUM(after.writes, ==, before.writes);
    CHECK_NUM(after.requests - before.requests, >, 5);
    CHECK_NUM(after.requests - before.requests, <=, 12);
    CHECK_NUM(after.connections, ==, 1);
    CHECK_NUM(zk_number(&servers->servers[0], "mntr", "zk_global_sessions\t"), ==, 1);
    given(taken(c, "n", NULL));
    closed(c);
    done();
}

/* ---- a loop that was not driven -------------------------------------------------- */

static void on_grant(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    (void)err;
    hf_op_free(op);
    CHECK_RC(rc, 0);
    *(hf_lease **)user = lease;
}

static bool turn(hf_client *c)
{
    CHECK(hf_client_process(c) >= 0);
    return true;
}

static hf_lease *granted(hf_client *c)
{
    hf_lease *l = NULL;
    hf_op *op;

    CHECK_RC(hf_acquire_start(c, "n", LIMIT_MS, NULL, on_grant, &l, &op, E()), 0);
    AWAIT((turn(c), l));
    return l;
}

/* Nothing was sent for so long that a grant would be at risk at once: the session is
 * attached again first. That is a greeting, which is not counted, and a write that settles
 * it; then the ticket is made: three round trips. Beside these three messages go the
 * watches, a renewal, and the list of the line. */
static void not_driven(void)
{
    struct counts before, after;
    hf_client *c;
    hf_lease *l;

    use_one(IDLE_TTL);
    make_line(0);
    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    CHECK_RC(hf_release_start(granted(c), NULL, NULL, NULL, E()), 0);
    STAYS(turn(c), 100);
    before = counts_of(&servers->servers[0]);
    STAYS(true, T_MS * 7 / 8);
    l = granted(c);
    after = counts_of(&servers->servers[0]);
    CHECK_NUM(hf_lease_remaining_ms(l), >, T_MS / 2);
    CHECK_NUM(after.writes - before.writes, ==, 2);
    CHECK_NUM(after.requests - before.requests, <=, 5);
    CHECK_RC(hf_release_start(l, NULL, NULL, NULL, E()), 0);
    hf_close(c);
    done();
}

const struct test_case idle_cases[] = {
    { "idle_acquire", idle_acquire, ON_ALL, 0, CASE_LONG },
    { "idle_acquire_by_follower", idle_acquire_by_follower, ON_ALL, 0, CASE_LONG },
    { "idle_writes_nothing", idle_writes_nothing, ON_ALL, 0, CASE_LONG },
    { "not_driven", not_driven, ON_CALLBACK, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
