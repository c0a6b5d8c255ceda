/* zookeeper_quiet.c: a line that one client uses again and again is not listed each time:
 * what must make it look all the same. */
#include "zookeeper_fault.h"

#include <stdio.h>

static int64_t received(void)
{
    return zk_number(&servers->servers[0], "srvr", "Received: ");
}

/* Until a pair is create, delete, and the asking itself. Returns how many numbers have
 * been given out. */
static int become_quiet(hf_client *c)
{
    int64_t before;
    int n = 0;

    do {
        CHECK_NUM(n, <, 200); /* a slow one also watches its own node */
        before = received();
        given(taken(c, "n", NULL));
        n++;
    } while (received() - before > 3);
    return n;
}

static void ticket_path(char path[64], int number)
{
    snprintf(path, 64, "/fault/n/_c_other-lock-%010d", number);
}

/* Others have used it until exactly the number comes that we expect; one of them is
 * still there. */
static void make_anew(struct hand *h, int numbers)
{
    char path[64];

    CHECK_NUM(hand_delete(h, "/fault/n"), ==, 0);
    CHECK_NUM(hand_create(h, "/fault/n", 0), ==, 0);
    for (int i = 0; i < numbers; i++)
        CHECK_NUM(hand_create(h, "/fault/n/_c_other-lock-", 3), ==, 0);
    for (int i = 1; i < numbers; i++) {
        ticket_path(path, i);
        CHECK_NUM(hand_delete(h, path), ==, 0);
    }
}

/* Whoever stands there is waited for. */
static void waits_for(hf_client *c, struct hand *h, int number)
{
    struct pend *p = begun(c, "n", 2 * LIMIT_MS, NULL);
    char path[64];

    STAYS(!pend_done(p), 300);
    ticket_path(path, number);
    CHECK_NUM(hand_delete(h, path), ==, 0);
    given(pend_granted(p));
    hand_close(h);
    closed(c);
    done();
}

static void quiet_made_anew(void)
{
    struct hand h;
    hf_client *c;

    use_one("ttl=8s");
    c = prompted();
    h = hand_open(servers->servers[0].port, 8000);
    make_anew(&h, become_quiet(c));
    waits_for(c, &h, 0);
}

static void quiet_no_more(void)
{
    struct hand h;
    hf_client *c;
    int n;

    use_one("ttl=8s");
    c = prompted();
    h = hand_open(servers->servers[0].port, 8000);
    n = become_quiet(c);
    CHECK_NUM(hand_create(&h, "/fault/n/_c_other-lock-", 3), ==, 0);
    waits_for(c, &h, n);
}

/* While the connection was away nobody told of anything. */
static void quiet_cut_off(void)
{
    struct hand h;
    hf_client *c;
    int n;

    use_one_by_proxy("ttl=8s");
    c = prompted();
    h = hand_open(servers->servers[0].port, 8000);
    n = become_quiet(c);
    proxy_refuse(proxy, true);
    proxy_drop(proxy);
    make_anew(&h, n);
    proxy_refuse(proxy, false);
    waits_for(c, &h, 0);
}

const struct test_case zookeeper_quiet_cases[] = {
    { "quiet-made-anew", quiet_made_anew, ON_ALL, 0, 0 },
    { "quiet-no-more", quiet_no_more, ON_ALL, 0, 0 },
    { "quiet-cut-off", quiet_cut_off, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
