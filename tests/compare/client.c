/* client.c: what tools/compare lets act on a store, each as a process of its own.
 *
 *     compare-client hold URL NAME TTL_MS
 *     compare-client load URL NAME TTL_MS CLIENTS MS own|one
 *     compare-client crowd URL NAME TTL_MS WAITERS MS
 *
 * `hold` acquires and says each change of its state on a line with the time
 * (CLOCK_MONOTONIC, ns): `waits T`, `held T FENCE`, `risk T L`, `lost T L`, `error T TEXT`.
 * L is when check said "held" for the last time; the time is taken before it is asked, so
 * that being stopped in between does not move it. The input `release` gives it back:
 * `released T`, taken before the call, and `left T` after it.
 *
 * `load` opens so many clients, each with a thread, which acquire and release as fast as
 * they can: each a name of its own, or all the same one. `crowd` is one client with so many
 * waiters in one line: whoever is granted releases and joins again. Both say `ready` when
 * all are connected, or stand in line, begin at the input `go`, and print one object of
 * JSON. Every one ends with its input. */
#include <holdfast/async.h>
#include <holdfast/holdfast.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_MOST = 256, TICK_MS = 2, CONNECT_MS = 60000, WARM_PART = 3 };

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

_Noreturn static void fail(const hf_error *err)
{
    fprintf(stderr, "compare-client: %s: %s (%s)\n", hf_errname(err->code), err->text,
            err->where);
    exit(1);
}

static void say(const char *what, int64_t at)
{
    printf("%s %" PRId64 "\n", what, at);
    fflush(stdout);
}

static hf_client *opened(const char *url, int64_t ttl_ms, uint32_t drive)
{
    hf_client *c = NULL;
    hf_error err;

    if (hf_open(url, HF_OPTIONS(.drive = drive, .ttl_ms = ttl_ms), &c, &err) < 0 ||
        hf_connect(c, CONNECT_MS, &err) < 0)
        fail(&err);
    return c;
}

/* Says that it is ready, and waits until it may begin. */
static void await_go(void)
{
    char line[16];

    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        exit(1);
}

/* The figures are out; whoever has them may look at this process first. */
static void await_end(void)
{
    char line[16];

    fflush(stdout);
    while (fgets(line, sizeof line, stdin))
        ;
}

/* ---- hold ------------------------------------------------------------------------ */

struct actor {
    hf_client *client;
    const char *name;
    hf_op *op;       /* while it waits */
    hf_lease *lease; /* while it holds */
    int state;       /* HF_HELD ... as said last */
    int64_t held_at; /* check said so then, for the last time */
    bool waits;      /* said */
    bool over;       /* given back */
};

static void granted(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct actor *a = user;

    hf_op_free(op);
    a->op = NULL;
    if (rc < 0) {
        printf("error %" PRId64 " %s\n", now_ns(), err->text);
        fflush(stdout);
        return;
    }
    a->lease = lease;
    a->state = HF_HELD;
    printf("held %" PRId64 " %" PRIu64 "\n", now_ns(), hf_lease_fence(lease));
    fflush(stdout);
}

static void join(struct actor *a)
{
    hf_error err;

    a->waits = false;
    if (hf_acquire_start(a->client, a->name, HF_FOREVER, NULL, granted, a, &a->op, &err) <
        0)
        fail(&err);
}

static void tell_waiting(struct actor *a)
{
    uint32_t position = 0;

    /* a store without a queue has no positions to tell: it waits since it has asked */
    if (hf_op_position(a->op, &position, NULL) == 0 && position == 0)
        return;
    a->waits = true;
    say("waits", now_ns());
}

static void tell_state(struct actor *a)
{
    int64_t at = now_ns();
    int held = hf_lease_check(a->lease) == 0;
    int state = held ? hf_lease_state(a->lease) : HF_LOST;

    if (held)
        a->held_at = at;
    if (state == a->state)
        return;
    a->state = state;
    printf("%s %" PRId64 " %" PRId64 "\n",
           state == HF_HELD   ? "held"
           : state == HF_LOST ? "lost"
                              : "risk",
           now_ns(), a->held_at);
    fflush(stdout);
}

static void release(struct actor *a)
{
    int64_t at = now_ns();

    if (!a->lease)
        return;
    hf_release(a->lease, NULL);
    a->lease = NULL;
    a->over = true;
    say("released", at);
    say("left", now_ns());
}

static int hold(hf_client *client, const char *name)
{
    struct actor a = { .client = client, .name = name };
    struct pollfd fds[2] = { { .fd = 0, .events = POLLIN },
                             { .fd = hf_client_fd(client), .events = POLLIN } };
    char input[64];

    join(&a);
    for (;;) {
        if (a.lease) /* before anything else: it may have been stopped just now */
            tell_state(&a);
        poll(fds, 2, TICK_MS);
        if (a.lease)
            tell_state(&a);
        hf_client_process(client);
        if (a.op && !a.waits)
            tell_waiting(&a);
        if (fds[0].revents && read(0, input, sizeof input) <= 0)
            break;
        if (fds[0].revents)
            release(&a);
        else if (!a.op && !a.lease && !a.over)
            join(&a); /* an error, which was said */
    }
    hf_release(a.lease, NULL);
    hf_op_free(a.op);
    return 0;
}

/* ---- load ------------------------------------------------------------------------ */

struct loader {
    pthread_t thread;
    hf_client *client;
    char name[256];
    uint64_t pairs;
};

static struct {
    struct loader loaders[CLIENTS_MOST];
    atomic_llong until; /* 0: not yet */
    pthread_barrier_t begin;
    int64_t warm_ns;
} load_of;

static void pair(const struct loader *l)
{
    hf_lease *lease;
    hf_error err;

    if (hf_acquire(l->client, l->name, HF_FOREVER, NULL, &lease, &err) < 0 ||
        hf_release(lease, &err) < 0)
        fail(&err);
}

static void *work(void *arg)
{
    struct loader *l = arg;

    /* the first pairs make and load what later ones find: connections, caches, compiled
     * code */
    for (int64_t until = now_ns() + load_of.warm_ns; now_ns() < until;)
        pair(l);
    pthread_barrier_wait(&load_of.begin);
    pthread_barrier_wait(&load_of.begin);
    for (;;) {
        pair(l);
        if (now_ns() >= atomic_load(&load_of.until))
            return NULL;
        l->pairs++;
    }
}

static void print_load(unsigned clients, int64_t ms)
{
    uint64_t sum = 0, least = UINT64_MAX, most = 0;

    for (unsigned i = 0; i < clients; i++) {
        uint64_t n = load_of.loaders[i].pairs;

        sum += n;
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    printf("{\"pairs\": %" PRIu64 ", \"seconds\": %.3f, \"least\": %" PRIu64
           ", \"most\": %" PRIu64 "}\n",
           sum, (double)ms / 1e3, least, most);
    await_end();
}

static int load(char **argv, unsigned clients, int64_t ms, bool own)
{
    if (clients < 1 || clients > CLIENTS_MOST)
        return 2;
    load_of.warm_ns = ms * 1000000 / WARM_PART;
    pthread_barrier_init(&load_of.begin, NULL, clients + 1);
    for (unsigned i = 0; i < clients; i++) {
        struct loader *l = &load_of.loaders[i];

        l->client = opened(argv[2], atoll(argv[4]), HF_DRIVE_CALLER);
        if (own)
            snprintf(l->name, sizeof l->name, "%s/%u", argv[3], i);
        else
            snprintf(l->name, sizeof l->name, "%s", argv[3]);
        if (pthread_create(&l->thread, NULL, work, l) != 0)
            return 1;
    }
    pthread_barrier_wait(&load_of.begin);
    await_go();
    atomic_store(&load_of.until, now_ns() + ms * 1000000);
    pthread_barrier_wait(&load_of.begin);
    for (unsigned i = 0; i < clients; i++)
        pthread_join(load_of.loaders[i].thread, NULL);
    print_load(clients, ms);
    for (unsigned i = 0; i < clients; i++)
        hf_close(load_of.loaders[i].client);
    return 0;
}

/* ---- crowd ----------------------------------------------------------------------- */

struct crowd {
    hf_client *client;
    const char *name;
    uint64_t grants;
    bool counts;
};

static void stand(struct crowd *);

static void turn(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct crowd *c = user;

    hf_op_free(op);
    if (rc == HF_ECLOSED)
        return;
    if (rc < 0)
        fail(err);
    c->grants += c->counts;
    hf_release_start(lease, NULL, NULL, NULL, NULL);
    stand(c);
}

static void stand(struct crowd *c)
{
    hf_op *op;
    hf_error err;
    int rc = hf_acquire_start(c->client, c->name, HF_FOREVER, NULL, turn, c, &op, &err);

    if (rc < 0 && rc != HF_ECLOSED)
        fail(&err);
}

/* Until the store shows them all; where it cannot, until it has answered once. */
static void await_crowd(const struct crowd *c, size_t n)
{
    size_t seen = 0;
    hf_error err;

    while (seen < n) {
        hf_list *list = NULL;

        if (hf_look(c->client, c->name, &list, &err) < 0)
            fail(&err);
        if (hf_list_count(list) > 0)
            seen = hf_line_waiters(hf_list_at(list, 0));
        hf_list_free(list);
        if (!(hf_client_caps(c->client) & HF_CAP_LINE))
            break;
        hf_client_wait(c->client, 10);
    }
}

static int crowd(hf_client *client, const char *name, size_t n, int64_t ms)
{
    struct crowd c = { .client = client, .name = name };
    hf_lease *lease;
    hf_error err;
    int64_t until;

    if (hf_acquire(client, name, HF_FOREVER, NULL, &lease, &err) < 0)
        fail(&err);
    for (size_t i = 0; i < n; i++)
        stand(&c);
    await_crowd(&c, n);
    await_go();
    until = now_ns() + ms * 1000000;
    c.counts = true;
    hf_release_start(lease, NULL, NULL, NULL, NULL);
    while (now_ns() < until)
        hf_client_wait(client, TICK_MS);
    c.counts = false;
    printf("{\"grants\": %" PRIu64 ", \"seconds\": %.3f}\n", c.grants, (double)ms / 1e3);
    await_end();
    hf_client_stop(client);
    return 0;
}

int main(int argc, char **argv)
{
    hf_client *client;
    int status = 2;

    if (argc < 5) {
        fprintf(stderr, "usage: %s hold|load|crowd URL NAME TTL_MS ...\n", argv[0]);
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* stopped, it would not see the end of its input */
    if (strcmp(argv[1], "load") == 0 && argc == 8)
        return load(argv, (unsigned)atoi(argv[5]), atoll(argv[6]),
                    strcmp(argv[7], "own") == 0);
    client = opened(argv[2], atoll(argv[4]), HF_DRIVE_APP);
    if (strcmp(argv[1], "hold") == 0 && argc == 5)
        status = hold(client, argv[3]);
    else if (strcmp(argv[1], "crowd") == 0 && argc == 7)
        status = crowd(client, argv[3], (size_t)atoll(argv[5]), atoll(argv[6]));
    hf_close(client);
    return status;
}
