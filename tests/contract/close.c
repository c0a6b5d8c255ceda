/* close.c: the ends of clients and processes. hf_close gives everything up and ends
 * every wait (rule 6); a forked child has nothing and harms nothing (G12); nothing is
 * left in memory, descriptors or threads.
 */
#include "rig.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void close_releases_all(void)
{
    static const char *const names[] = { "a", "b", "c" };
    hf_client *a = opened(), *b = opened();
    hf_lease *l[3], *busy = taken(b, nm("d"), NULL);
    struct pend *next[3], *mine;

    for (int i = 0; i < 3; i++) {
        l[i] = taken(a, nm(names[i]), NULL);
        next[i] = queued(b, nm(names[i]), 1, NULL);
    }
    mine = queued(a, nm("d"), 1, NULL);
    closed(a);
    CHECK_RC(pend_end(mine, NULL), HF_ECLOSED);
    for (int i = 0; i < 3; i++) {
        CHECK_RC(hf_lease_check(l[i]), HF_ELOST);
        CHECK_NUM(hf_lease_state(l[i]), ==, HF_LOST);
        CHECK_STR(hf_lease_name(l[i]), nm(names[i]));
        CHECK(hf_lease_fence(l[i]) > 0);
        CHECK_RC(rig.face->release(l[i], E()), HF_ECLOSED);
        given(pend_granted(next[i]));
    }
    CHECK(line_is(b, nm("d"), 1, 0));
    given(busy);
    closed(b);
}

static void close_beside_calls(void)
{
    enum { N = 8 };
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(b, nm("n"), NULL);
    struct pend *p[N];

    for (size_t i = 0; i < N; i++)
        p[i] = queued(a, nm("n"), i + 1, NULL);
    closed(a);
    for (int i = 0; i < N; i++)
        CHECK(!rig.face->async || pend_done(p[i])); /* no callback after hf_close */
    for (int i = 0; i < N; i++)
        CHECK_RC(pend_end(p[i], NULL), HF_ECLOSED);
    CHECK(line_is(b, nm("n"), 1, 0));
    given(l);
    CHECK_RC(tried(b, nm("n"), NULL), 0);
    closed(b);
}

static int threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    CHECK(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void use_and_close(void)
{
    hf_client *a = opened(), *b = prompted();
    hf_lease *l = taken(a, nm("n"), NULL), *m = taken(a, nm("m"), NULL);
    struct pend *p = queued(b, nm("n"), 1, NULL);
    hf_cancel *stop = NULL;
    hf_list *list = NULL;

    CHECK(hf_lease_fd(l, E()) >= 0);
    CHECK_RC(hf_cancel_new(&stop, E()), 0);
    CHECK_RC(rig.face->acquire(b, nm("n"), 5, HF_REQUEST(.cancel = stop),
                               &(hf_lease *){ 0 }, E()),
             HF_ETIMEDOUT);
    CHECK_RC(hf_ls(a, rig.base, 0, &list, E()), 0);
    given(l);
    l = pend_granted(p);
    CHECK(hf_lease_fd(l, E()) >= 0);
    closed(a);
    closed(b);
    CHECK_RC(rig.face->release(l, E()), HF_ECLOSED);
    CHECK_RC(rig.face->release(m, E()), HF_ECLOSED);
    CHECK_NUM(hf_list_count(list), >=, 1);
    hf_list_free(list);
    hf_cancel_free(stop);
}

static void *nothing(void *arg)
{
    return arg;
}

/* What a hundred uses leave in the heap. */
static size_t grown(void)
{
    size_t before = mallinfo2().uordblks, after;

    for (int i = 0; i < 100; i++)
        use_and_close();
    after = mallinfo2().uordblks;
    return after > before ? after - before : 0;
}

/* A leak takes as much every time; the caches of the allocator, which it counts as in use,
 * are full at some time. */
static void nothing_leaks(void)
{
    enum { ROUNDS = 5 };
    int fds, tasks;
    size_t heap, kept = strstr(rig.place->url, "tls_ca=") ? 1600 : 160;

    in_thread(nothing, NULL); /* a sanitizer has a thread of its own from the first on */
    tasks = threads();
    for (int i = 0; i < 20; i++) /* what is made once for all */
        use_and_close();
    AWAIT(threads() == tasks);
    fds = open_fds();
    heap = grown();
    for (int i = 1; i < ROUNDS && heap > 100 * kept && !TEST_SANITIZED; i++)
        heap = grown();
    AWAIT(threads() == tasks);
    CHECK_NUM(open_fds(), ==, fds);
    if (!TEST_SANITIZED) /* there, the leak check at the end sees more */
        CHECK_NUM(heap, <=, 100 * kept);
}

struct parent {
    hf_client *client;
    hf_lease *lease;
    hf_op *op, *look, *note;
};

static void never(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    (void)op;
    (void)l;
    (void)err;
    (void)user;
    CHECK_RC(rc, HF_ECLOSED); /* in the parent, at its close */
}

static void either_way(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    (void)op;
    (void)rc;
    (void)l;
    (void)err;
    (void)user;
}

/* The child: every call answers HF_EFORKED, and giving back touches no store. */
_Noreturn static void forked(struct parent *p)
{
    hf_lease *l = NULL;
    hf_list *list = NULL;
    hf_op *op = NULL;
    hf_client *own = NULL;

    CHECK_RC(hf_acquire(p->client, nm("new"), 0, NULL, &l, E()), HF_EFORKED);
    CHECK_RC(hf_acquire_start(p->client, nm("new"), 0, NULL, never, NULL, &op, E()),
             HF_EFORKED);
    CHECK_RC(hf_look(p->client, nm("n"), &list, E()), HF_EFORKED);
    CHECK_RC(hf_ls(p->client, NULL, 0, &list, E()), HF_EFORKED);
    CHECK_RC(hf_evict(p->client, nm("n"), "00000000000000000000000000000000", 0, E()),
             HF_EFORKED);
    CHECK_RC(hf_name_state(p->client, nm("n"), E()), HF_EFORKED);
    CHECK_RC(hf_keep_renew(p->client, nm("n"), "00000000000000000000000000000000", 1, E()),
             HF_EFORKED);
    CHECK_RC(hf_name_state_start(p->client, nm("n"), never, NULL, &op, E()), HF_EFORKED);
    CHECK_RC(hf_op_position(p->op, NULL, NULL), HF_EFORKED);
    CHECK_RC(hf_client_process(p->client), HF_EFORKED);
    CHECK_RC(hf_client_wait(p->client, 0), HF_EFORKED);
    CHECK_RC(hf_lease_note(p->lease, "child", E()), HF_EFORKED);
    CHECK_RC(hf_lease_downgrade(p->lease, E()), HF_EFORKED);
    CHECK_RC(hf_lease_renew(p->lease, 0, E()), HF_EFORKED);
    CHECK_RC(hf_note_start(p->lease, "child", never, NULL, &op, E()), HF_EFORKED);
    CHECK_RC(hf_lease_wait(p->lease, 0, E()), HF_EFORKED);
    CHECK_RC(hf_lease_mode(p->lease), HF_EFORKED);
    CHECK(!hf_lease_ticket(p->lease) && !op);
    CHECK(hf_lease_check(p->lease) != 0);
    CHECK_RC(hf_release(p->lease, E()), HF_EFORKED);
    hf_op_free(p->op);
    hf_op_free(p->look);
    hf_op_free(p->note);
    hf_close(p->client);
    if (TEST_SANITIZED) /* see sanitizer.h */
        _exit(0);
    CHECK_RC(hf_open(rig.place->url, NULL, &own, E()), 0);
    CHECK_RC(hf_acquire(own, nm("n"), 0, NULL, &l, E()), HF_EBUSY);
    CHECK_RC(hf_acquire(own, nm("child"), 0, NULL, &l, E()), 0);
    CHECK_RC(hf_release(l, E()), 0);
    hf_close(own);
    _exit(0);
}

static void forked_child_has_nothing(void)
{
    struct kid k = kid_new();
    struct parent p = { .client = opened() };
    hf_lease *busy;

    CHECK_RC(kid_acquire(&k, 0, nm("busy"), LIMIT_MS, NULL, NULL), 0);
    p.lease = taken(p.client, nm("n"), HF_REQUEST(.ttl_ms = 3000));
    CHECK_RC(
        hf_acquire_start(p.client, nm("busy"), HF_FOREVER, NULL, never, NULL, &p.op, E()),
        0);
    await_line(p.client, nm("busy"), 1, 1);
    for (int i = 0; i < 3; i++) {
        pid_t pid;

        /* answered by then, or not */
        CHECK_RC(hf_name_state_start(p.client, nm("n"), either_way, NULL, &p.look, E()), 0);
        CHECK_RC(hf_note_start(p.lease, "parent", either_way, NULL, &p.note, E()), 0);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            forked(&p);
        proc_end(pid);
        hf_op_free(p.look);
        hf_op_free(p.note);
        CHECK_RC(hf_lease_check(p.lease), 0);
        CHECK(line_is(p.client, nm("n"), 1, 0));
        CHECK(line_is(p.client, nm("busy"), 1, 1));
        CHECK_RC(kid_acquire(&k, 1, nm("n"), 0, NULL, NULL), HF_EBUSY);
    }
    STAYS(hf_lease_check(p.lease) == 0, 3500); /* and renewal still goes on */
    given(p.lease);
    CHECK_RC(kid_acquire(&k, 1, nm("n"), 0, NULL, NULL), 0);
    hf_op_free(p.op);
    AWAIT(line_is(p.client, nm("busy"), 1, 0));
    CHECK_RC(kid_release(&k, 0).rc, 0);
    busy = taken(p.client, nm("busy"), NULL);
    given(busy);
    kid_end(&k);
    closed(p.client);
}

/* The first half of an end: who waits is told, who holds goes on, also beyond the ttl. */
static void stop_ends_waits_only(void)
{
    enum { N = 4, TTL_MS = 3000 };
    hf_client *a = opened(), *b = opened();
    hf_lease *busy = taken(b, nm("n"), NULL), *l = NULL, *none = NULL;
    hf_list *list = NULL;
    struct pend *p[N], *next;

    l = taken(a, nm("l"), HF_REQUEST(.ttl_ms = ttl_of(TTL_MS)));
    for (size_t i = 0; i < N; i++)
        p[i] = queued(a, nm("n"), i + 1, NULL);
    CHECK_RC(hf_client_stop(a), 0);
    for (int i = 0; i < N; i++)
        CHECK_RC(pend_end(p[i], NULL), HF_ECLOSED);
    await_line(b, nm("n"), 1, 0);
    CHECK_RC(rig.face->acquire(a, nm("m"), 0, NULL, &none, E()), HF_ECLOSED);
    CHECK_RC(rig.face->acquire(a, nm("m"), LIMIT_MS, NULL, &none, E()), HF_ECLOSED);
    CHECK_RC(hf_look(a, nm("n"), &list, E()), HF_ECLOSED);
    CHECK(line_is(b, nm("m"), 0, 0));
    STAYS(hf_lease_check(l) == 0, TTL_MS * 3 / 2);
    CHECK(line_is(b, nm("l"), 1, 0));
    next = queued(b, nm("l"), 1, NULL);
    given(l);
    given(pend_granted(next));
    closed(a);
    given(busy);
    closed(b);
}

const struct test_case close_cases[] = {
    { "stop-ends-waits-only", stop_ends_waits_only, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "close-releases-all", close_releases_all, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "close-beside-calls", close_beside_calls, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "nothing-leaks", nothing_leaks, ON_ALL, HF_CAP_LINE, 0 },
    { "forked-child-has-nothing", forked_child_has_nothing, ON_ALL,
      HF_CAP_LINE | HF_CAP_TTL, CASE_TOPOLOGY },
    { NULL, NULL, 0, 0, 0 },
};
