/* sql_modes.c: cases of sql_modes.h. Two of the modes have a session of the server for each
 * ticket, which others may end: then the hold is lost, and said to be; whoever waits goes
 * on waiting; and nothing is left behind (G7). */
#include "sql_modes.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void use_mode(int i)
{
    char *p = strchr(rig.place->url, '?');

    if (p)
        *p = '\0';
    strcat(rig.place->url, "?connect_timeout=20s&mode=");
    strcat(rig.place->url, db.modes[i]);
}

const char *name_of(int i)
{
    return nm(db.modes[i]);
}

struct two begin_two(int i, int64_t ttl_ms)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = ttl_ms);
    struct two t = { 0 };

    use_mode(i);
    t.a = prompted();
    t.b = opened();
    t.held = taken(t.a, name_of(i), req);
    t.fence = hf_lease_fence(t.held);
    t.waits = begun(t.b, name_of(i), HF_FOREVER, req);
    AWAIT(db.waits(i, 1));
    return t;
}

void end_two(int i, struct two *t)
{
    hf_lease *next = pend_granted(t->waits);
    int rc;

    if (hf_client_caps(t->b) & HF_CAP_FENCE)
        CHECK_NUM(hf_lease_fence(next), >, t->fence);
    CHECK_RC(hf_lease_check(next), 0);
    rc = tried(t->a, name_of(i), NULL);
    if (rc == 0) /* was it lost, or did two hold it? */
        printf("# mode=%s: the one before: %s\n", db.modes[i],
               hf_strerror(hf_lease_check(next)));
    CHECK_RC(rc, HF_EBUSY);
    given(next);
    CHECK_RC(tried(t->a, name_of(i), NULL), 0);
    closed(t->a);
    closed(t->b);
    if (i < WITH_SESSIONS)
        AWAIT(db.nothing_left());
}

/* By others, while it holds: it is lost, and the next one has it. */
static void holder_ended(void)
{
    db.use("");
    for (int i = 0; i < WITH_SESSIONS; i++) {
        struct two t = begin_two(i, 60000);

        CHECK_NUM(db.end_holder(i), ==, 1);
        AWAIT(hf_lease_check(t.held) == HF_ELOST);
        CHECK_RC(rig.face->release(t.held, E()), HF_ELOST);
        end_two(i, &t);
    }
    db.done();
}

/* In the midst of the statement that waits: it waits on another session. */
static void waiter_ended(void)
{
    db.use("");
    for (int i = 0; i < WITH_SESSIONS; i++) {
        struct two t = begin_two(i, 60000);

        for (int k = 0; k < 2; k++) {
            CHECK_NUM(db.end_waiter(), ==, 1);
            AWAIT(db.waits(i, 1));
        }
        CHECK(!pend_done(t.waits) && hf_lease_check(t.held) == 0);
        given(t.held);
        end_two(i, &t);
    }
    db.done();
}

/* Also the one that controls: a wait can be ended all the same. */
static void control_ended(void)
{
    db.use("");
    for (int i = 0; i < WITH_SESSIONS; i++) {
        struct two t = begin_two(i, 60000);
        struct pend *p = begun(t.b, name_of(i), 4000, HF_REQUEST(.ttl_ms = 60000));

        AWAIT(db.waits(i, 2));
        CHECK_NUM(db.end_control(i), >=, 2);
        CHECK_RC(pend_end(p, NULL), HF_ETIMEDOUT);
        AWAIT(db.waits(i, 1));
        CHECK_RC(hf_lease_check(t.held), 0);
        given(t.held);
        end_two(i, &t);
    }
    db.done();
}

/* Whoever says nothing for its ttl has lost it, though its connection is whole. */
static void holder_stops(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = db.short_ms);

    db.use("");
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
        CHECK_WITHIN(start, db.short_ms + LIMIT_MS / 3);
        kid_continue(&k);
        AWAIT(kid_check(&k, 0).check == HF_ELOST);
        CHECK_RC(kid_release(&k, 0).rc, HF_ELOST);
        kid_end(&k);
        closed(c);
    }
    db.done();
}

static void server_crashes(void)
{
    db.use("");
    for (int i = 0; i < WITH_SESSIONS; i++) {
        struct two t = begin_two(i, 60000);

        db.crash();
        AWAIT(hf_lease_check(t.held) == HF_ELOST);
        rig.face->release(t.held, NULL);
        end_two(i, &t);
    }
    db.done();
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
    db.use_proxied("");
    for (int i = 0; i < ALL_MODES; i++) {
        hf_client *c, *direct = NULL;
        hf_lease *l;
        pthread_t thread;
        char url[512];

        use_mode(i);
        c = opened();
        db.direct(url, sizeof(url), db.modes[i]);
        CHECK_RC(rig.face->open(url, NULL, &direct, E()), 0);
        given(taken(c, name_of(i), NULL)); /* its statements are prepared */
        l = taken(c, name_of(i), HF_REQUEST(.ttl_ms = 60000));
        proxy_freeze(*db.proxy, PROXY_PRESENT, PROXY_DOWN);
        CHECK(pthread_create(&thread, NULL, release_it, l) == 0);
        AWAIT(tried(direct, name_of(i), NULL) == 0);
        proxy_drop(*db.proxy);
        pthread_join(thread, NULL);
        CHECK_RC(tried(c, name_of(i), NULL), 0);
        closed(c);
        closed(direct);
    }
    db.done();
}

/* None of them ends a hold or a wait of ours. */
static void low_limits(void)
{
    db.use("");
    use_mode(0);
    closed(opened());
    db.lower_limits();
    for (int i = 0; i < ALL_MODES; i++) {
        struct two t = begin_two(i, 60000);

        STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), 1500);
        given(t.held);
        end_two(i, &t);
    }
    db.done();
}

/* There are more tickets than connections: they come to their turn all the same. */
static void too_many_clients(void)
{
    enum { PENDS = 12 };

    db.use_small();
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
    db.done();
}

/* A wait ends about when the lock is given to it: whichever it is, the answer is true. */
static void cancel_meets_grant(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = 600000);
    unsigned seed = (unsigned)now_ms();
    int granted[ALL_MODES] = { 0 };

    printf("# seed %u\n", seed);
    srand(seed);
    db.use("");
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
    db.done();
}

const struct test_case sql_mode_cases[] = {
    { "mode-holder-ended", holder_ended, ON_ALL, 0, 0 },
    { "mode-waiter-ended", waiter_ended, ON_ALL, 0, 0 },
    { "mode-control-ended", control_ended, ON_ALL, 0, 0 },
    { "mode-holder-stops", holder_stops, ON_ALL, 0, 0 },
    { "mode-server-crashes", server_crashes, ON_ALL, 0, 0 },
    { "mode-release-is-cut", release_is_cut, ON_ALL, 0, 0 },
    { "mode-low-limits", low_limits, ON_ALL, 0, 0 },
    { "mode-too-many-clients", too_many_clients, ON_ALL, 0, 0 },
    { "mode-cancel-meets-grant", cancel_meets_grant, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
