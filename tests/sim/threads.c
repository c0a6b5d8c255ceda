/* threads.c: two mutations of the layer with threads, which the simulator does not have:
 * real threads, the embedded store, one schedule that shows each.
 *
 * leader-leaves: who leads and is done leaves without promoting another: then nobody
 * reads the wake of those who wait, and no timer is near that would bring the keeper.
 * keeper-skips: while a caller drives the keeper leaves a renewal to it, and the caller
 * does not know of it.
 *
 * Without a mutation both schedules must go well. Each runs in a process of its own, and
 * one that has not ended after LIMIT_S counts as failed, as a hang does. */
#include "check.h"
#include "setup.h"

#undef pthread_cond_signal
#undef hf__loop_arm
#undef hf__loop_patience

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG_MS = 600000, SHORT_MS = 2000, LIMIT_S = 20, WAITERS = 3 };
enum mutant { NONE, LEADER_LEAVES, KEEPER_SKIPS };

static enum mutant mutant;

int threads_signal(pthread_cond_t *cond, const char *in)
{
    if (mutant == LEADER_LEAVES && strcmp(in, "hf__promote") == 0)
        return 0;
    return pthread_cond_signal(cond);
}

void threads_arm(struct loop *l)
{
    if (mutant != KEEPER_SKIPS)
        hf__loop_arm(l);
}

int threads_patience(int64_t at)
{
    return mutant == KEEPER_SKIPS ? -1 : hf__loop_patience(at);
}

/* ---- the schedules --------------------------------------------------------------- */

struct call {
    hf_client *client;
    char name[16];
    pthread_t thread;
};

static void *take(void *arg)
{
    struct call *c = arg;
    hf_lease *l = NULL;

    CHECK_RC(hf_acquire(c->client, c->name, HF_FOREVER, NULL, &l, E()), 0);
    CHECK_RC(hf_release(l, E()), 0);
    return NULL;
}

static hf_client *open_with(const char *url, int64_t ttl_ms)
{
    hf_client *c = NULL;

    CHECK_RC(hf_open(url, HF_OPTIONS(.ttl_ms = ttl_ms), &c, E()), 0);
    return c;
}

static bool somebody_waits(hf_client *c, const char *name)
{
    hf_list *list = NULL;
    bool waits;

    CHECK_RC(hf_look(c, name, &list, E()), 0);
    waits = hf_list_count(list) == 1 && hf_line_waiters(hf_list_at(list, 0)) == 1;
    hf_list_free(list);
    return waits;
}

static void start(struct call *c, hf_client *mine, hf_client *other, const char *name)
{
    c->client = mine;
    snprintf(c->name, sizeof c->name, "%s", name);
    CHECK(pthread_create(&c->thread, NULL, take, c) == 0);
    AWAIT(somebody_waits(other, name));
}

/* Three threads of one client wait, the first of them leads; they are served in this
 * order. */
static void one_after_another(const char *url)
{
    hf_client *mine = open_with(url, LONG_MS), *other = open_with(url, LONG_MS);
    hf_lease *held[WAITERS];
    struct call calls[WAITERS];
    char name[16];

    for (int i = 0; i < WAITERS; i++) {
        snprintf(name, sizeof name, "name/%d", i);
        CHECK_RC(hf_acquire(other, name, 0, NULL, &held[i], E()), 0);
        start(&calls[i], mine, other, name);
    }
    for (int i = 0; i < WAITERS; i++) {
        CHECK_RC(hf_release(held[i], E()), 0);
        pthread_join(calls[i].thread, NULL);
    }
    hf_close(mine);
    hf_close(other);
}

/* A lease is kept, while another thread of the client waits, and leads, all the time. */
static void kept_beside_a_wait(const char *url)
{
    hf_client *mine = open_with(url, SHORT_MS), *other = open_with(url, LONG_MS);
    hf_lease *kept = NULL, *held = NULL;
    struct call call;

    CHECK_RC(hf_acquire(other, "held", 0, NULL, &held, E()), 0);
    start(&call, mine, other, "held");
    CHECK_RC(hf_acquire(mine, "kept", 0, NULL, &kept, E()), 0);
    STAYS(hf_lease_check(kept) == 0, 3 * SHORT_MS);
    CHECK_RC(hf_release(kept, E()), 0);
    CHECK_RC(hf_release(held, E()), 0);
    pthread_join(call.thread, NULL);
    hf_close(mine);
    hf_close(other);
}

/* ---- as a test ------------------------------------------------------------------- */

static bool goes_well(const char *url, enum mutant m, void (*schedule)(const char *))
{
    pid_t pid;
    int status;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        mutant = m;
        if (m != NONE)
            (void)!freopen("/dev/null", "w", stderr); /* what it says is meant to be so */
        alarm(LIMIT_S * TEST_SLOW);
        schedule(url);
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int result(bool ok, const char *name, int64_t began)
{
    static int cases;

    printf("%sok %d - %s # time=%.3fs\n", ok ? "" : "not ", ++cases, name,
           (double)(now_ms() - began) / 1000);
    return !ok;
}

int main(void)
{
    static const struct {
        enum mutant mutant;
        void (*schedule)(const char *);
        bool well;
        const char *name;
    } all[] = {
        { NONE, one_after_another, true, "threads that wait are served one after another" },
        { NONE, kept_beside_a_wait, true, "a lease is renewed by a thread that waits" },
        { LEADER_LEAVES, one_after_another, false,
          "finds the mutation leader-leaves (G4)" },
        { KEEPER_SKIPS, kept_beside_a_wait, false, "finds the mutation keeper-skips (G6)" },
    };
    int failed = 0;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct place place = { .pid = 0 };
        int64_t began = now_ms();
        bool well;

        setup_local.start(&place);
        well = goes_well(place.url, all[i].mutant, all[i].schedule);
        setup_local.stop(&place);
        failed += result(well == all[i].well, all[i].name, began);
    }
    printf("1..%zu\n", sizeof all / sizeof all[0]);
    return failed > 0;
}
