/* store.c: stores that cannot be reached, are blocked, or are restarted while people
 * wait. An error comes within the connect time-out and says where (G11); a client that is
 * open keeps its callers' limits, and no thread waits for another's; a wait outlives a
 * restart (G7).
 */
#include "recipes.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CONNECT_MS = 700, PATIENT_MS = 20000, SOON_MS = 3000 * TEST_SLOW };

const char *url_with(int connect_ms, char url[600])
{
    static const char limit[] = "connect_timeout=";
    const char *had = strstr(rig.place->url, limit);

    if (had)
        snprintf(url, 600, "%.*s%s%dms%s", (int)(had - rig.place->url), rig.place->url,
                 limit, connect_ms, had + strcspn(had, "&"));
    else
        snprintf(url, 600, "%s%c%s%dms", rig.place->url,
                 strchr(rig.place->url, '?') ? '&' : '?', limit, connect_ms);
    return url;
}

static int open_and_acquire(int64_t wait_ms, int64_t *took)
{
    char url[600];
    hf_client *c = NULL;
    hf_lease *l = NULL;
    int64_t start = now_ms();
    int rc;

    rc = hf_open(url_with(CONNECT_MS, url), NULL, &c, E());
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

/* ---- a client that is open when its store stops to answer ------------------------ */

struct stuck { /* the process with the clients, and the case that blocks their store */
    int up[2], down[2];
};

static void say(int fd, int64_t n)
{
    CHECK(write(fd, &n, sizeof(n)) == (ssize_t)sizeof(n));
}

static int64_t hear(int fd)
{
    int64_t n;

    CHECK(read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n));
    return n;
}

static hf_client *open_patient(bool app)
{
    char url[600];
    hf_client *c = NULL;

    url_with(PATIENT_MS, url);
    if (app)
        CHECK_RC(hf_open(url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    else
        CHECK_RC(rig.face->open(url, NULL, &c, E()), 0);
    return c;
}

static void never_called(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    (void)op;
    (void)rc;
    (void)l;
    (void)err;
    (void)user;
    check_failed(__FILE__, __LINE__, "a callback of an operation that was freed");
}

/* hf_client_process never blocks, and what was started can be given up at once. */
static void start_and_free(hf_client *app)
{
    int64_t start = now_ms(), longest = 0;
    hf_op *op = NULL;

    CHECK_RC(hf_acquire_start(app, nm("freed"), HF_FOREVER,
                              HF_REQUEST(.ttl_ms = ttl_of(3000)), never_called, NULL, &op,
                              E()),
             0);
    for (int i = 0; i < 50; i++) {
        int64_t before = now_ms();

        CHECK(hf_client_process(app) >= 0);
        if (now_ms() - before > longest)
            longest = now_ms() - before;
        nap();
    }
    CHECK_NUM(longest, <, SOON_MS / 3);
    hf_op_free(op);
    CHECK_WITHIN(start, SOON_MS);
}

static bool names(int64_t pid)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", (int)pid);
    return strstr(last_error()->text, text);
}

static void limits_hold(hf_client *c, hf_lease *held, int64_t blocker)
{
    bool local = strcmp(rig.setup->name, "local") == 0; /* where a process is in the way */
    int64_t start = now_ms();
    hf_lease *l = NULL;
    hf_cancel *stop = NULL;
    struct pend *p;
    int rc = rig.face->acquire(c, nm("n"), 100, NULL, &l, E());

    CHECK(rc == HF_ETIMEDOUT && (!local || names(blocker)));
    CHECK_WITHIN(start, SOON_MS);
    CHECK_RC(hf_cancel_new(&stop, E()), 0);
    p = begun(c, nm("n"), HF_FOREVER, HF_REQUEST(.cancel = stop));
    STAYS(!pend_done(p), 100);
    start = now_ms();
    CHECK(hf_lease_fd(held, E()) >= 0); /* beside it */
    CHECK_RC(hf_lease_check(held), 0);
    hf_cancel_fire(stop);
    CHECK_RC(pend_end(p, NULL), HF_ECANCELED);
    CHECK_WITHIN(start, SOON_MS);
    hf_cancel_free(stop);
}

/* Without a limit of its own a call ends by the client's, and says who is in the way. */
static void culprit_is_named(hf_client *c, int64_t blocker)
{
    const char *both[] = { nm("m"), nm("n") };
    hf_lease *l = NULL;
    int rc = hf_acquire(c, nm("n"), 0, NULL, &l, E());

    CHECK(rc == HF_EBUSYSTORE ? names(blocker) : rc == HF_EUNREACHABLE);
    rc = hf_acquire_all(c, both, 2, 0, NULL, &l, E());
    CHECK(rc == HF_EBUSYSTORE ? names(blocker) : rc == HF_EUNREACHABLE);
}

static void use_while_blocked(void *arg)
{
    struct stuck *s = arg;
    char url[600];
    hf_client *c = open_patient(false), *app = open_patient(true), *quick = NULL;
    hf_lease *held = taken(c, nm("held"), NULL), *own = NULL;
    struct pend *p;
    int64_t blocker, start;

    CHECK_RC(hf_open(url_with(CONNECT_MS, url), NULL, &quick, E()), 0);
    CHECK_RC(tried(c, nm("n"), NULL), 0); /* it is connected, has a number, ... */
    CHECK_RC(hf_acquire(app, nm("own"), LIMIT_MS, HF_REQUEST(.ttl_ms = ttl_of(10000)), &own,
                        E()),
             0);
    say(s->up[1], 0);
    blocker = hear(s->down[0]);
    limits_hold(c, held, blocker);
    start_and_free(app);
    culprit_is_named(quick, blocker);
    start = now_ms();
    hf_close(app); /* which cannot give it back now */
    CHECK_WITHIN(start, SOON_MS);
    CHECK_RC(hf_release(own, E()), HF_ECLOSED);
    p = begun(c, nm("n"), HF_FOREVER, NULL);
    STAYS(!pend_done(p), 100);
    say(s->up[1], 0);
    hear(s->down[0]);
    given(pend_granted(p)); /* all goes on, */
    given(held);
    await_line(c, nm("n"), 0, 0); /* and nothing is left of what was given up */
    await_line(c, nm("freed"), 0, 0);
    await_line(c, nm("held"), 0, 0);
    hf_close(quick);
    closed(c);
}

/* In another process: where there is no server the set-up has clients of its own. */
static void blocked_beside_open_client(void)
{
    struct stuck s;
    pid_t pid;

    CHECK(pipe(s.up) == 0 && pipe(s.down) == 0);
    pid = proc_start(use_while_blocked, &s);
    close(s.up[1]); /* if it fails, there is nothing to hear */
    close(s.down[0]);
    hear(s.up[0]);
    rig.setup->block(rig.place);
    say(s.down[1], rig.place->pid);
    hear(s.up[0]);
    rig.setup->unblock(rig.place);
    say(s.down[1], 0);
    proc_end(pid);
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
    CHECK_WITHIN(start, LIMIT_MS);
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
    { "blocked-beside-open-client", blocked_beside_open_client, ON_ALL, HF_CAP_LINE,
      CASE_OWN_STORE },
    { "unusable-store", unusable_store, ON_BLOCKING, 0, CASE_OWN_STORE },
    { "restarted-while-waiting", restarted_while_waiting, ON_ALL, HF_CAP_LINE,
      CASE_OWN_STORE | CASE_TOPOLOGY },
    { NULL, NULL, 0, 0, 0 },
};
