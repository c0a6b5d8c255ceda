/* redis_many.c: one client that holds very many names: all are renewed in time, in
 * batches, by one connection, and another that listens. */
#include "counts.h"

#include <stdio.h>
#include <stdlib.h>

enum { NAMES = 10000, TTL_MS = 12000 * TEST_SLOW, BATCH = 50 };

/* None is lost or even overdue, looked at again and again for longer than two ttls. */
static void stay_held(hf_lease **leases)
{
    int64_t until = now_ms() + 2 * TTL_MS + TTL_MS / 2;

    while (now_ms() < until) {
        for (int i = 0; i < NAMES; i++) {
            CHECK_RC(hf_lease_check(leases[i]), 0);
            CHECK_NUM(hf_lease_state(leases[i]), ==, HF_HELD);
        }
        STAYS(true, 100);
    }
}

static void many_held(void)
{
    hf_lease **leases = calloc(NAMES, sizeof(*leases));
    hf_client *c;
    int64_t before, scripts;
    int64_t fill;

    CHECK(leases);
    begin();
    redis_do(&server, "CONFIG SET appendfsync no"); /* speed of disks is not asked here */
    c = prompted();
    fill = now_ms();
    for (int i = 0; i < NAMES; i++) {
        char name[64];

        snprintf(name, sizeof(name), "many/%d", i);
        leases[i] = taken(c, name, HF_REQUEST(.ttl_ms = TTL_MS));
    }
    printf("%d names taken in %lld ms\n", NAMES, (long long)(now_ms() - fill));
    before = calls("evalsha");
    stay_held(leases);
    scripts = calls("evalsha") - before;
    printf("kept for 2.5 ttls by %lld scripts\n", (long long)scripts);
    /* some three renewals in each ttl; one by one it would be a script for each */
    CHECK_NUM(scripts, >=, 2 * NAMES / BATCH);
    CHECK_NUM(scripts, <=, NAMES);
    CHECK_NUM(connections(), <=, 2);
    for (int i = 0; i < NAMES; i++)
        given(leases[i]);
    closed(c);
    free(leases);
    end();
}

const struct test_case many_cases[] = {
    { "many_held", many_held, ON_ALL, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
