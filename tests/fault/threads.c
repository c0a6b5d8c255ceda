/* threads.c: 500 threads on four clients of one store, blocking calls, a handful of names.
 *
 * Each thread does a random mix: waits, tries, timed waits, cancelled waits, shared and
 * exclusive locks, permits, nested locks in the order of names. What must never happen
 * is counted while it runs: two writers, a writer beside a reader, more permits than
 * there are, a lost update of an unprotected counter, a fence that does not grow. In the
 * end every line is empty and every descriptor but the client's own is gone. Meant for
 * ThreadSanitizer too.
 *
 *     threads [SEED [THREADS [ROUNDS]]]
 *
 * Most grants come from another client, so they need a thread that leads; and with a ttl of
 * ten minutes no safety look makes up for one that is missing. On the first client nobody
 * waits for a limited time or while holding something, so there is no timer either that
 * would bring the keeper in: a lost wake-up is a hang there. Twice: with the callers
 * driving and parked keepers, one of which renews a lease of three seconds beside it all,
 * and with resident keepers. Then once more, but the clients are stopped in the middle of
 * it, by a thread and by a signal handler: every thread comes back, with nothing left of
 * it; and the lease that is renewed beside it has a callback, so that its keeper listens
 * and tells. Built a second time with a shaken schedule (perturb.c). */
#include "check.h"
#include "perturb.h"
#include "setup.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOCKS = 5, CAPACITY = 7, WAIT_MS = 20, CLIENTS = 4, TTL_MS = 600000, LIMIT_S = 150 };

struct line {
    char name[24];
    long count;     /* protected by the exclusive lock alone */
    uint64_t fence; /* likewise */
    atomic_long writes;
    atomic_int readers, writers;
};

static struct line lines[LOCKS];
static atomic_int permits;
static atomic_long granted, refused, overlaps;
static atomic_bool endless, stopping; /* until the clients are stopped; they are */
static _Thread_local bool stopped;    /* this thread was told so */
static hf_client *clients[CLIENTS];
static _Thread_local hf_client *client; /* this thread's */
static _Thread_local bool plain;        /* of the first client */
static unsigned base_seed;
static int rounds = 20;

static int acquire(const char *name, int64_t wait_ms, const hf_request *req, hf_lease **ret)
{
    int rc = hf_acquire(client, name, wait_ms, req, ret, E());

    if (rc == 0) {
        atomic_fetch_add(&granted, 1);
        CHECK_RC(hf_lease_check(*ret), 0);
    } else {
        stopped = rc == HF_ECLOSED;
        CHECK(rc == HF_EBUSY || rc == HF_ETIMEDOUT || rc == HF_ECANCELED ||
              (stopped && stopping));
        atomic_fetch_add(&refused, 1);
    }
    return rc;
}

static int64_t patience(unsigned *seed)
{
    switch (rand_r(seed) % 4) {
    case 0:
        return 0;
    case 1:
        return plain ? HF_FOREVER : WAIT_MS;
    default:
        return HF_FOREVER;
    }
}

static void inside(struct line *l, hf_lease *lease, bool writes)
{
    if (writes) {
        if (atomic_fetch_add(&l->writers, 1) != 0 || atomic_load(&l->readers) != 0)
            atomic_fetch_add(&overlaps, 1);
        CHECK(hf_lease_fence(lease) > l->fence);
        l->fence = hf_lease_fence(lease);
        l->count++;
        atomic_fetch_add(&l->writes, 1);
        sched_yield();
        atomic_fetch_sub(&l->writers, 1);
    } else {
        atomic_fetch_add(&l->readers, 1);
        if (atomic_load(&l->writers) != 0)
            atomic_fetch_add(&overlaps, 1);
        sched_yield();
        atomic_fetch_sub(&l->readers, 1);
    }
}

/* What is held, asked about and changed by other calls. */
static void ask_about(const struct line *at, hf_lease *l, bool writes, unsigned *seed)
{
    int rc;

    switch (rand_r(seed) % 8) {
    case 0:
        CHECK_RC(hf_lease_note(l, "noted", E()), 0);
        break;
    case 1:
        rc = hf_name_state(client, at->name, E());
        CHECK(rc == (writes ? HF_TAKEN : HF_SHARED) || (rc == HF_ECLOSED && stopping));
        break;
    case 2:
        CHECK_NUM(hf_lease_mode(l), ==, writes ? HF_WRITE : HF_READ);
        break;
    case 3:
        rc = plain ? 0 : hf_lease_wait(l, 1, E()); /* it needs a timer */
        CHECK(rc == 0 || (rc == HF_ECLOSED && stopping));
        break;
    default:
        break;
    }
}

/* One lock, and perhaps a later one inside it: never against the order of names. */
static void lock_some(unsigned *seed)
{
    int i = rand_r(seed) % LOCKS, j = i + 1 + rand_r(seed) % LOCKS;
    bool writes = rand_r(seed) % 2;
    const hf_request *req = HF_REQUEST(.mode = writes ? HF_WRITE : HF_READ);
    hf_lease *l = NULL, *m = NULL;

    if (acquire(lines[i].name, patience(seed), req, &l) < 0)
        return;
    inside(&lines[i], l, writes);
    ask_about(&lines[i], l, writes, seed);
    if (!plain && j < LOCKS && acquire(lines[j].name, patience(seed), NULL, &m) == 0) {
        inside(&lines[j], m, true);
        CHECK_RC(hf_release(m, E()), 0);
    }
    CHECK_RC(hf_release(l, E()), 0);
}

static void permit_some(unsigned *seed)
{
    uint32_t n = 1 + (uint32_t)(rand_r(seed) % CAPACITY);
    const hf_request *req =
        HF_REQUEST(.mode = HF_PERMITS, .permits = n, .capacity = CAPACITY);
    hf_lease *l = NULL;

    if (acquire("permits", patience(seed), req, &l) < 0)
        return;
    if (atomic_fetch_add(&permits, (int)n) + (int)n > CAPACITY)
        atomic_fetch_add(&overlaps, 1);
    sched_yield();
    atomic_fetch_sub(&permits, (int)n);
    CHECK_RC(hf_release(l, E()), 0);
}

struct button {
    hf_cancel *cancel;
    int again; /* how often it is reset and fired once more, beside the wait */
};

static void *press(void *arg)
{
    struct button *b = arg;

    sched_yield();
    hf_cancel_fire(b->cancel);
    for (int i = 0; i < b->again; i++) {
        hf_cancel_reset(b->cancel);
        sched_yield();
        hf_cancel_fire(b->cancel);
    }
    return NULL;
}

/* What is shut stays so: only the button ends that wait. */
static void cancel_some(unsigned *seed)
{
    struct button b = { NULL, rand_r(seed) % 2 ? 10 : 0 };
    hf_lease *l = NULL;
    struct line *at = &lines[rand_r(seed) % LOCKS];
    bool shut = rand_r(seed) % 2;
    pthread_t t;

    CHECK_RC(hf_cancel_new(&b.cancel, E()), 0);
    CHECK(pthread_create(&t, NULL, press, &b) == 0);
    if (acquire(shut ? "shut" : at->name, HF_FOREVER, HF_REQUEST(.cancel = b.cancel), &l) ==
        0) {
        CHECK(!shut);
        inside(at, l, true);
        CHECK_RC(hf_release(l, E()), 0);
    }
    pthread_join(t, NULL);
    hf_cancel_free(b.cancel);
}

static void *run(void *arg)
{
    unsigned seed = base_seed + (unsigned)(uintptr_t)arg * 7919u;

    client = clients[(uintptr_t)arg % CLIENTS];
    plain = client == clients[0];

    for (int i = 0; !stopped && (endless || i < rounds); i++) {
        int what = rand_r(&seed) % 16;

        if (what == 0)
            cancel_some(&seed);
        else if (what < 5)
            permit_some(&seed);
        else
            lock_some(&seed);
    }
    return NULL;
}

static void all_empty(hf_client *c)
{
    hf_list *list = NULL;

    CHECK_RC(hf_ls(c, NULL, 0, &list, E()), 0);
    CHECK_NUM(hf_list_count(list), ==, 0);
    hf_list_free(list);
}

static void stop_in_handler(int sig)
{
    (void)sig;
    hf_client_stop(clients[0]);
}

/* When they have got somewhere. */
static void stop_all(void)
{
    long before = granted;

    signal(SIGUSR1, stop_in_handler);
    AWAIT(granted > before + 500);
    stopping = true;
    raise(SIGUSR1);
    for (int i = 1; i < CLIENTS; i++)
        CHECK_RC(hf_client_stop(clients[i]), 0);
}

static void run_all(size_t n)
{
    pthread_t *threads = calloc(n, sizeof(*threads));
    pthread_attr_t attr;

    CHECK(threads);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    for (size_t i = 0; i < n; i++)
        CHECK(pthread_create(&threads[i], &attr, run, (void *)i) == 0);
    if (endless)
        stop_all();
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    pthread_attr_destroy(&attr);
    free(threads);
}

static void lost(hf_lease *l, int state, void *user)
{
    (void)user;
    check_failed(__FILE__, __LINE__, "%s is in state %d", hf_lease_name(l), state);
}

static void one_drive(const char *url, uint32_t drive, size_t n)
{
    hf_client *keeps = NULL;
    hf_lease *kept = NULL, *shut = NULL;

    for (int i = 0; i < CLIENTS; i++)
        CHECK_RC(
            hf_open(url, HF_OPTIONS(.drive = drive, .ttl_ms = TTL_MS), &clients[i], E()),
            0);
    CHECK_RC(hf_open(url, HF_OPTIONS(.drive = drive, .ttl_ms = 3000), &keeps, E()), 0);
    CHECK_RC(hf_acquire(keeps, "kept", 0, NULL, &kept, E()), 0);
    CHECK_RC(hf_acquire(keeps, "shut", 0, HF_REQUEST(.ttl_ms = TTL_MS), &shut, E()), 0);
    if (endless)
        CHECK_RC(hf_lease_on_change(kept, lost, NULL, E()), 0);
    run_all(n);
    CHECK_NUM(overlaps, ==, 0);
    for (int i = 0; i < LOCKS; i++)
        CHECK_NUM(lines[i].count, ==, lines[i].writes);
    CHECK_RC(hf_release(kept, E()), 0);
    CHECK_RC(hf_release(shut, E()), 0);
    all_empty(keeps);
    hf_close(keeps);
    for (int i = 0; i < CLIENTS; i++)
        hf_close(clients[i]);
}

int main(int argc, char **argv)
{
    size_t n = argc > 2 ? strtoul(argv[2], NULL, 10) : 500;
    struct place place = { .pid = 0 };
    int fds = open_fds();

    base_seed = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : (unsigned)now_ms();
    if (argc > 3)
        rounds = (int)strtol(argv[3], NULL, 10);
    perturb_seed(base_seed);
    printf("# seed %u\n", base_seed);
    fflush(stdout);
    alarm(LIMIT_S * TEST_SLOW);
    setup_local.start(&place);
    for (int i = 0; i < LOCKS; i++)
        snprintf(lines[i].name, sizeof(lines[i].name), "lock/%d", i);
    one_drive(place.url, HF_DRIVE_CALLER, n);
    one_drive(place.url, HF_DRIVE_PROMPT, n);
    endless = true;
    one_drive(place.url, HF_DRIVE_CALLER, n);
    stopping = false;
    one_drive(place.url, HF_DRIVE_PROMPT, n);
    CHECK_NUM(granted, >, 2 * (long)n);
    setup_local.stop(&place);
    CHECK_NUM(open_fds(), ==, fds);
    printf("# %ld grants, %ld refusals\nok 1 - %zu-threads\n1..1\n", (long)granted,
           (long)refused, n);
    return 0;
}
