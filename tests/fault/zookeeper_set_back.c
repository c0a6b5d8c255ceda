/* zookeeper_set_back.c: servers that know less than their clients have seen: their data is
 * gone, or a backup was restored. They refuse whoever has seen more, before they look at
 * the session. What was held is told lost, and the servers are used again. */
#include "zookeeper_fault.h"

#include <stdio.h>
#include <stdlib.h>

/* In the folder of the one server, which does not run. */
static void in_folder(const char *order)
{
    char command[512];

    snprintf(command, sizeof(command), "cd '%s' && %s", servers->servers[0].dir, order);
    CHECK(system(command) == 0);
}

static void exchange_data(const char *order)
{
    server_kill(&servers->servers[0]);
    in_folder(order);
    zk_run(servers, 0);
    zk_await(servers, 0);
}

/* The number of the last transaction is as much greater. */
static void go_ahead(hf_client *c)
{
    for (int i = 0; i < 100; i++)
        given(taken(c, "other", NULL));
}

static void lost_then_used(hf_client *c, hf_lease *l)
{
    AWAIT(hf_lease_check(l) == HF_ELOST);
    given(taken(c, "n", NULL));
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    given(taken(c, "other", NULL));
    AWAIT(line_is(c, "n", 0, 0));
}

static void data_gone(void)
{
    hf_client *c;
    hf_lease *l;

    use_one("");
    c = opened();
    l = taken(c, "n", NULL);
    go_ahead(c);
    exchange_data("rm -r data");
    lost_then_used(c, l);
    closed(c);
    done();
}

/* The session and the node of the holder are in the backup. */
static void backup_restored(void)
{
    hf_client *c;
    hf_lease *l;

    use_one("ttl=12s");
    c = opened();
    l = taken(c, "n", NULL);
    exchange_data("cp -r data backup");
    go_ahead(c);
    CHECK_RC(hf_lease_check(l), 0); /* it was attached in time */
    exchange_data("rm -r data && mv backup data");
    lost_then_used(c, l);
    closed(c);
    done();
}

static void allow_sessions_of(int ms)
{
    char order[64];

    snprintf(order, sizeof(order), "echo maxSessionTimeout=%d >>zoo.cfg", ms);
    exchange_data(order);
}

/* A server that allows longer sessions than before gives its leader's clock a longer time,
 * but not its log: when it starts again, it counts the first one. So the client does (G1).
 */
static void sessions_may_be_longer(void)
{
    enum { FIRST_MS = 20 * ZK_TICK_MS, LATER_MS = 20 * FIRST_MS };
    hf_client *c;
    hf_lease *l;

    use_one("ttl=60s");
    allow_sessions_of(FIRST_MS);
    c = opened();
    l = taken(c, "n", NULL);
    CHECK_NUM(hf_lease_remaining_ms(l), <=, FIRST_MS);
    allow_sessions_of(LATER_MS);
    STAYS(hf_lease_remaining_ms(l) <= FIRST_MS, FIRST_MS * 3 / 2);
    CHECK_RC(hf_lease_check(l), 0); /* attached in time, and kept */
    given(l);
    closed(c);
    done();
}

const struct test_case zookeeper_set_back_cases[] = {
    { "data-gone", data_gone, ON_ALL, 0, CASE_LONG },
    { "backup-restored", backup_restored, ON_ALL, 0, CASE_LONG },
    { "sessions-may-be-longer", sessions_may_be_longer, ON_ALL, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
