/* store.c: stores that cannot be reached, are blocked, or are restarted while people
 * wait. An error comes within the connect time-out and says where (G11); a wait outlives
 * a restart (G7).
 */
#include "rig.h"

#include <stdio.h>
#include <string.h>

enum { CONNECT_MS = 700 };

static int open_and_acquire(int64_t wait_ms, int64_t *took)
{
    static const char limit[] = "connect_timeout=";
    const char *had = strstr(rig.place->url, limit);
    char url[600];
    hf_client *c = NULL;
    hf_lease *l = NULL;
    int64_t start = now_ms();
    int rc;

    if (had)
        snprintf(url, sizeof(url), "%.*s%s%dms%s", (int)(had - rig.place->url),
                 rig.place->url, limit, CONNECT_MS, had + strcspn(had, "&"));
    else
        snprintf(url, sizeof(url), "%s%c%s%dms", rig.place->url,
                 strchr(rig.place->url, '?') ? '&' : '?', limit, CONNECT_MS);
    rc = hf_open(url, NULL, &c, E());
    if (rc == 0)
        rc = hf_acquire(c, nm("n"), wait_ms, NULL, &l, E());
    *took = now_ms() - start;
    CHECK(!l);
    hf_close(c);
    return rc;
}

/* Who wants to know at the start whether the store is there. */
static void connects(void)
{
    hf_client *c = opened();

    CHECK_RC(hf_connect(c, LIMIT_MS, E()), 0);
    CHECK_RC(hf_connect(c, 0, E()), 0);
    CHECK(hf_client_caps(c) != 0);
    CHECK_RC(hf_client_stop(c), 0);
    CHECK_RC(hf_connect(c, LIMIT_MS, E()), HF_ECLOSED);
    closed(c);
}

static void blocked_store(void)
{
    struct kid k = kid_new();
    int64_t took;
    int rc;
    char pid[16];

    CHECK_RC(kid_acquire(&k, 0, nm("held"), LIMIT_MS, NULL, NULL), 0);
    rig.setup->block(rig.place);
    for (int i = 0; i < 2; i++) {
        rc = open_and_acquire(i ? HF_FOREVER : 0, &took);
        CHECK(rc == HF_EBUSYSTORE || rc == HF_EUNREACHABLE);
        CHECK_NUM(took, <, CONNECT_MS + LIMIT_MS / 3);
        CHECK(last_error()->retry == 1);
        CHECK(last_error()->where[0] && last_error()->text[0]);
        if (rig.place->pid && rc == HF_EBUSYSTORE) {
            snprintf(pid, sizeof(pid), "%d", (int)rig.place->pid);
            CHECK(strstr(last_error()->text, pid)); /* who is in the way */
        }
    }
    rig.setup->unblock(rig.place);
    CHECK_RC(kid_check(&k, 0).check, 0); /* blocked for less than its ttl: not lost */
    CHECK_RC(kid_release(&k, 0).rc, 0);
    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS, NULL, NULL), 0);
    kid_end(&k);
}

static void unusable_store(void)
{
    char url[600];
    hf_client *c = NULL;
    hf_lease *l = NULL;
    int64_t start = now_ms();
    int rc, fds = open_fds();

    rig.setup->unusable(rig.place, url, sizeof(url));
    rc = hf_open(url, NULL, &c, E());
    if (rc == 0)
        rc = hf_acquire(c, nm("n"), HF_FOREVER, NULL, &l, E());
    CHECK(rc < 0 && !l);
    CHECK_NUM(now_ms() - start, <, LIMIT_MS);
    CHECK(last_error()->code == rc && last_error()->text[0]);
    CHECK(strpbrk(last_error()->where, "/:") || strchr(last_error()->text, '/'));
    hf_close(c);
    CHECK_NUM(open_fds(), ==, fds);
}

/* Where there is no server, the nearest thing is the sudden end of everybody else. */
static void restarted_while_waiting(void)
{
    struct kid holder = kid_new(), ahead = kid_new();
    const hf_request *req =
        HF_REQUEST(.ttl_ms = ttl_of(rig.setup->traits & SETUP_SEES_DEATH ? 600000 : 3000));
    hf_client *c = opened();
    struct pend *p[3];

    CHECK_RC(kid_acquire(&holder, 0, nm("n"), LIMIT_MS, req, NULL), 0);
    kid_begin(&ahead, 0, nm("n"), HF_FOREVER, req);
    await_line(c, nm("n"), 1, 1);
    for (size_t i = 0; i < 3; i++)
        p[i] = queued(c, nm("n"), 2 + i, NULL);
    rig.setup->restart(rig.place);
    kid_kill(&ahead);
    kid_kill(&holder);
    for (int i = 0; i < 3; i++)
        given(pend_granted(p[i]));
    AWAIT(line_is(c, nm("n"), 0, 0));
    closed(c);
}

const struct test_case store_cases[] = {
    { "connects", connects, ON_ALL, 0, CASE_TOPOLOGY },
    { "blocked-store", blocked_store, ON_ALL, 0, CASE_OWN_STORE },
    { "unusable-store", unusable_store, ON_BLOCKING, 0, CASE_OWN_STORE },
    { "restarted-while-waiting", restarted_while_waiting, ON_ALL, HF_CAP_LINE,
      CASE_OWN_STORE | CASE_TOPOLOGY },
    { NULL, NULL, 0, 0, 0 },
};
