/* keeper.c: the thread that renews leases while the application is elsewhere.
 *
 * It exists while the core has timers. Normally it is parked on a timer of its own, set to
 * the core's next one, and costs nothing: taking and releasing a lock touches it only if
 * the new timer is earlier than what it sleeps for. When it wakes, and nobody leads, it
 * leads until what became due is answered (renewals, leaves, requests of the driver's own)
 * and the store, if it was lost, is back; when somebody leads already, that thread serves
 * the timers, and the keeper looks again a little later. It ends when no timer is left.
 *
 * Resident (HF_DRIVE_PROMPT, or leases with a callback that the teller runs): it leads
 * whenever nobody else does, so callers follow, and what the store has to say is heard at
 * once. No callback runs on it, so that none can keep it from renewing.
 *
 * The timer counts on CLOCK_BOOTTIME: after a suspend it fires at once, as it must (G1,
 * G6). All signals are blocked on it: they belong to the application's threads. */
#include "api/api.h"

#include "api/perturb.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { LOOK_AGAIN_US = 50000 };

static bool resident(const hf_client *c)
{
    return c->drive == HF_DRIVE_PROMPT || (c->listeners > 0 && hf__tells(c));
}

static void set(hf_client *c, int64_t at)
{
    struct itimerspec its = { .it_value = { (time_t)(at / 1000000),
                                            (long)(at % 1000000) * 1000 + 1 } };

    c->keeper_at = at;
    if (hf__loop_intact(&c->loop))
        timerfd_settime(c->keeper_fd, TFD_TIMER_ABSTIME, &its, NULL);
}

/* The timer is not read: setting it anew makes it quiet. */
static void park(hf_client *c, int64_t at)
{
    struct pollfd timer = { .fd = c->keeper_fd, .events = POLLIN };

    set(c, at);
    if (c->loop.broken) {
        hf__break_down(c);
        return;
    }
    pthread_mutex_unlock(&c->lock);
    PERTURB();
    poll(&timer, 1, hf__loop_patience(at));
    PERTURB();
    pthread_mutex_lock(&c->lock);
}

/* Finding a store again takes several steps, each of which somebody must see answered: with
 * timers alone every step would take as long as its limit, and holds would end meanwhile.
 */
static bool work_left(const hf_client *c)
{
    return c->core.up ? c->core.asked > 0 || c->core.unsettled > 0 || c->core.store->awaits
                      : !list_empty(&c->core.holds);
}

static void serve(hf_client *c)
{
    do
        hf__lead(c, work_left(c));
    while (!c->keeper_stop && !c->broken && work_left(c));
    hf__promote(c);
}

/* Not the only leader: before we came here a caller may have taken the lead. Then we
 * follow, like anybody. */
static void stay(hf_client *c)
{
    struct waiter w;

    hf__waiter_init(&w, false);
    c->keeper_at = LOOP_NEVER;
    while (!c->keeper_stop && !c->broken && resident(c))
        hf__wait_turn(c, &w);
    hf__promote(c);
    hf__waiter_done(&w);
}

static void *keep(void *arg)
{
    hf_client *c = arg;

    pthread_mutex_lock(&c->lock);
    while (!c->keeper_stop && !c->broken) {
        int64_t at = loop_next(&c->loop), now = hf__loop_now();

        if (resident(c))
            stay(c);
        else if (at == LOOP_NEVER)
            break;
        else if (at > now)
            park(c, at);
        else if (c->leading)
            park(c, now + LOOK_AGAIN_US);
        else
            serve(c);
    }
    c->keeper_state = KEEPER_ENDED;
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

int hf__thread_start(pthread_t *ret, void *(*run)(void *), hf_client *c, hf_error *err)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(ret, NULL, run, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0 ? 0 : hf__fail(err, HF_ESYS, rc, NULL, "cannot start a thread");
}

int hf__keeper_start(hf_client *c, hf_error *err)
{
    int rc;

    if (c->keeper_state == KEEPER_ENDED)
        pthread_join(c->keeper, NULL); /* it has given the lock back for the last time */
    c->keeper_state = KEEPER_NONE;
    if (c->keeper_fd < 0)
        c->keeper_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
    if (c->keeper_fd < 0)
        return hf__fail(err, HF_ESYS, errno, NULL, "timerfd");
    rc = hf__thread_start(&c->keeper, keep, c, err);
    if (rc < 0)
        return rc;
    c->keeper_state = KEEPER_RUNS;
    c->keeper_at = LOOP_NEVER; /* it has not looked yet, and will */
    return 0;
}

void hf__keeper_need(hf_client *c)
{
    int64_t at = loop_next(&c->loop);

    if (at == LOOP_NEVER || c->drive == HF_DRIVE_APP || c->closing)
        return;
    if (c->keeper_state == KEEPER_RUNS) {
        if (at < c->keeper_at && c->keeper_at != LOOP_NEVER)
            set(c, at);
        return;
    }
    if (c->leading)
        return; /* that thread calls here again when it leaves */
    if (hf__keeper_start(c, NULL) < 0)
        c->env.log(&c->env, HF_LOG_WARN, "",
                   "no thread for renewal: leases end at their ttl unless calls are made");
}

int hf__keeper_listen(hf_client *c, hf_error *err)
{
    if (c->keeper_state != KEEPER_RUNS)
        return hf__keeper_start(c, err);
    if (c->keeper_at != LOOP_NEVER)
        set(c, 1);
    return 0;
}

void hf__keeper_end(hf_client *c)
{
    c->keeper_stop = true;
    if (c->keeper_state == KEEPER_RUNS) {
        set(c, 1);
        hf__loop_wake(&c->loop);
        list_for(n, &c->waiters)
            pthread_cond_signal(&container_of(n, struct waiter, node)->cond);
    }
    if (c->keeper_state != KEEPER_NONE) {
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->keeper, NULL);
        pthread_mutex_lock(&c->lock);
        c->keeper_state = KEEPER_NONE;
    }
    if (c->keeper_fd >= 0 && hf__loop_intact(&c->loop))
        close(c->keeper_fd);
    c->keeper_fd = -1;
}
