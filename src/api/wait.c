/* wait.c: blocking calls without a thread hop: the calling thread drives the loop itself.
 *
 * One thread at a time leads: it sleeps in the loop without the lock, takes the lock, runs
 * what became ready and queued, and looks whether its own operation is done. The others
 * follow: each sleeps on its own condition. The lock is held whenever `leading`, the list
 * of waiters or an operation's `done` is looked at or changed.
 *
 * Why nobody sleeps for ever:
 *  - A follower sleeps only while somebody leads (it looked under the lock). Its operation
 *    is completed under the lock, and op_done then signals it; the wait is a loop over
 *    `done`, so an early or doubled signal is harmless.
 *  - A leader whose operation is completed by another thread is woken through the loop; a
 *    wake sent before the sleep ends the sleep when it begins.
 *  - A leader's own operation, or the callback it waits for, may come of what it runs
 *    before it sleeps: `poked` says so, and it only looks into the loop then.
 *  - A leader that leaves promotes the first follower, under the same lock under which it
 *    stops leading. A follower that was signalled but has meanwhile found its operation
 *    done promotes the next one as it leaves.
 *  - Deadlines of operations are timers of the core in the loop, so any leader serves all
 *    of them, not only its own; a timer that becomes the earliest while the leader sleeps
 *    re-arms the timerfd, which is in the epoll set it sleeps on.
 *  - If nobody is inside, the keeper (keeper.c) serves the timers.
 *
 * Callbacks are never run here: they are queued. The application polls an outer epoll,
 * which has the loop's in it and is readable also as long as there are callbacks to run;
 * the leader sleeps on the loop's alone, so waiting callbacks do not keep it from sleeping.
 *
 * The process may have closed our descriptors (loop.h). The thread that finds that out ends
 * everything (hf__break_down): leases are lost, operations end with HF_ESYS, no verb is
 * called any more. It is looked for before each sleep and after a sleep that no descriptor
 * of ours has ended. A driver that writes to sockets must not write to those of the
 * program: there it is also looked for whenever the program may have run since, when a
 * thread comes in and when callbacks have returned. A look is a system call, so none is
 * made twice:
 *  - A call inside a callback does not look if nothing is sent before the callback returns
 *    (more_comes). Whoever sends it looks before: hf__run_callbacks, hf__lead (the keeper),
 *    or another thread that comes in.
 *  - The first sleep of a blocking call follows the look with which it came in, under the
 *    same lock; each further one the end of the sleep before it, which is either what a
 *    descriptor of ours told, or followed by a look.
 * One look for each call that sends is what remains. It cannot go: between two calls the
 * program may have closed our socket and have one of its own under its number, and to that
 * one a send is as good as to ours. Nothing in our memory tells. */
#include "api/api.h"

#include "api/perturb.h"
#include "core/url.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS = 64 };

/* A thread that is cancelled in one of our system calls would take the lock, or the lead,
 * with it: no cancellation between entering and leaving, callbacks included. */
static _Thread_local struct {
    int depth, before;
} shield;

static void lock(hf_client *c)
{
    if (shield.depth++ == 0)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &shield.before);
    PERTURB();
    pthread_mutex_lock(&c->lock);
}

static void unlock(hf_client *c)
{
    pthread_mutex_unlock(&c->lock);
    PERTURB();
    if (--shield.depth == 0)
        pthread_setcancelstate(shield.before, NULL);
}

static const char gone[] =
    "the program has closed descriptors of the client: open a new one";

void hf__break_down(hf_client *c)
{
    if (c->broken)
        return;
    c->broken = true;
    c->env.log(&c->env, HF_LOG_WARN, "", gone);
    hf__client_break(&c->core);
    hf__end_all(c, HF_ESYS, gone);
    list_for(n, &c->waiters)
        pthread_cond_signal(&container_of(n, struct waiter, node)->cond);
}

static bool writes_to_sockets(const hf_client *c)
{
    return c->core.store->starts_down;
}

void hf__look(hf_client *c)
{
    if (!c->closed && !c->broken &&
        (c->loop.broken || (writes_to_sockets(c) && !hf__loop_intact(&c->loop))))
        hf__break_down(c);
}

/* What callbacks start goes out in one piece when they have returned: sent one by one it is
 * a system call for each, here and in the server. Not if another thread is inside: a
 * callback may wait for that one, and it may be asleep. The next thread that leads sends it
 * all (hf__lead). The teller is not counted as inside. */
static bool more_comes(struct client *core)
{
    const hf_client *c = container_of(core, hf_client, core);

    return hf__callback_of() == c && !hf__on_teller() && c->inside == 1 && !c->leading;
}

/* A thread that enters is counted before it asks for the lock; one that leaves is taken off
 * the count under the lock. Every handle (the client until hf_close, a lease, an operation)
 * is one of `refs`, which change under the lock only. The memory is freed by the thread
 * that, as it leaves, finds no reference and no other thread counted. No thread can enter
 * after that: a call needs a handle, and giving that back is the last call on it. A thread
 * that waits for the lock is not overlooked: it is counted. hf_close waits until it is the
 * only one counted; a thread that enters later than that finds the client closed, and is
 * the one that frees it. */
static void come_in(hf_client *c)
{
    atomic_fetch_add(&c->entrants, 1);
    lock(c);
    if (!more_comes(&c->core))
        hf__look(c);
    hf__stop_if_asked(c);
}

static void go_out(hf_client *c)
{
    bool last = atomic_fetch_sub(&c->entrants, 1) == 1 && c->refs == 0;

    if (c->closing)
        pthread_cond_signal(&c->quiet);
    unlock(c);
    if (last) {
        hf__url_done(&c->core.url);
        hf__client_free(c);
    }
}

int hf__broken(hf_error *err)
{
    hf__fail(err, HF_ESYS, EBADF, NULL, "%s", gone);
    errno = EBADF; /* some calls have no hf_error */
    return HF_ESYS;
}

static int enter(hf_client *c, bool broken_too, hf_error *err)
{
    if (!c)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the client is NULL");
    if (*c->alive == 0)
        return hf__fail(err, HF_EFORKED, 0, NULL,
                        "the client belongs to the parent process: open one of your own");
    come_in(c);
    if (c->closing) {
        go_out(c);
        return hf__fail(err, HF_ECLOSED, 0, NULL, "the client is closed");
    }
    if (c->broken && !broken_too) {
        go_out(c);
        return hf__broken(err);
    }
    return 0;
}

int hf__enter(hf_client *c, hf_error *err)
{
    return enter(c, false, err);
}

static int not_in_callback(hf_error *err)
{
    return hf__in_callback()
               ? hf__fail(err, HF_EREENTRANT, 0, NULL,
                          "a blocking call inside a callback: use the *_start form")
               : 0;
}

int hf__enter_blocking(hf_client *c, hf_error *err)
{
    int rc = not_in_callback(err);

    return rc < 0 ? rc : enter(c, false, err);
}

int hf__enter_pump(hf_client *c)
{
    int rc = not_in_callback(NULL);

    return rc < 0 ? rc : enter(c, true, NULL);
}

int hf__enter_any(hf_client *c)
{
    if (*c->alive == 0)
        return HF_EFORKED;
    come_in(c);
    return 0;
}

void hf__leave(hf_client *c)
{
    if (!c->closed && !c->broken) {
        hf__run(c);
        if (hf__drained(c))
            hf__news(c);
        if (c->leading || c->app_fd >= 0)
            hf__loop_arm(&c->loop);
        hf__keeper_need(c);
    }
    go_out(c);
}

void hf__alone(hf_client *c)
{
    while (atomic_load(&c->entrants) > 1)
        pthread_cond_wait(&c->quiet, &c->lock);
}

/* The pipe is always writable: only the interest in it changes. */
void hf__show_news(hf_client *c)
{
    bool news = !list_empty(&c->ready) || (!list_empty(&c->changed) && !hf__tells(c));
    struct epoll_event ev = { .events = news ? EPOLLOUT : 0 };

    if (c->app_fd < 0 || news == c->news_shown || !hf__loop_intact(&c->loop))
        return;
    c->news_shown = news;
    epoll_ctl(c->app_fd, EPOLL_CTL_MOD, c->loop.anchor[1], &ev);
}

/* The leader looks whether it is done before it sleeps on. */
static void poke(hf_client *c)
{
    c->poked = true;
    if (c->asleep)
        hf__loop_wake(&c->loop);
}

void hf__news(hf_client *c)
{
    hf__show_news(c);
    if (!list_empty(&c->changed))
        pthread_cond_signal(&c->teller_news);
    poke(c); /* the leader may be in hf_client_wait */
    list_for(n, &c->waiters) {
        struct waiter *w = container_of(n, struct waiter, node);

        if (w->pumps)
            pthread_cond_signal(&w->cond);
    }
}

/* That there is something to read was told by a descriptor of ours. The time comes also to
 * those that have none any more, and the other end of what was closed hears just that; and
 * what they start is written to a descriptor. */
static bool suspicious(const hf_client *c, const struct epoll_event *evs, int n)
{
    for (int i = 0; i < n; i++)
        if (evs[i].data.fd == c->loop.timerfd || (evs[i].events & (EPOLLHUP | EPOLLERR)))
            return true;
    return n == 0;
}

/* Who waits for many answers gets them sooner if it sleeps: they come several at a time,
 * and what is sent next goes out in one piece. */
static bool few_answers(const hf_client *c)
{
    enum { FEW = 4 };
    int n = 0;

    list_for(o, &c->ops)
        if (++n > FEW)
            return false;
    return true;
}

/* spin: how to poll first; NULL: not at all. Polling is part of the sleep: others wake it
 * as they wake a sleep. */
static int sleep_in_loop(hf_client *c, struct epoll_event *evs, bool block,
                         struct spin *spin)
{
    int ms = block ? hf__loop_patience(loop_next(&c->loop)) : 0, n = 0;
    int64_t begin = spin ? hf__loop_now() : 0, poll_us = hf__spin_begin(spin, begin);
    bool slept;

    c->asleep = true;
    pthread_mutex_unlock(&c->lock);
    PERTURB();
    if (poll_us > 0)
        n = hf__spin_poll(&c->loop, evs, EVENTS, poll_us, begin);
    slept = n == 0;
    if (slept)
        n = hf__loop_sleep(&c->loop, evs, EVENTS, ms);
    PERTURB();
    pthread_mutex_lock(&c->lock);
    c->asleep = false;
    if (spin)
        hf__spin_end(spin, poll_us, slept, hf__loop_now() - begin);
    if (n < 0)
        c->loop.broken = true;
    else if (suspicious(c, evs, n))
        hf__loop_intact(&c->loop);
    return n;
}

/* looked: the descriptors were ours a moment ago, and the lock has not been given up since.
 * They are, too, when it returns, unless the client is broken. */
static int lead(hf_client *c, bool block, bool looked, struct spin *spin)
{
    struct epoll_event evs[EVENTS];
    int n = 0;

    c->poked = false;
    hf__stop_if_asked(c);
    if (looked ? !c->loop.broken : hf__loop_intact(&c->loop)) {
        hf__run(c); /* what a callback that still runs has started */
        c->leading = true;
        hf__loop_arm(&c->loop);
    }
    if (!c->loop.broken)
        n = sleep_in_loop(c, evs, block && !c->poked,
                          c->poked || !few_answers(c) ? NULL : spin);
    if (!c->loop.broken) {
        n = hf__loop_turn(&c->loop, evs, n);
        hf__stop_if_asked(c);
        hf__run(c);
        if (hf__drained(c))
            hf__news(c);
    } else {
        hf__break_down(c);
    }
    c->leading = false;
    return n;
}

int hf__lead(hf_client *c, bool block)
{
    return lead(c, block, false, NULL);
}

void hf__wait_turn(hf_client *c, struct waiter *w)
{
    if (c->leading) {
        hf__loop_arm(&c->loop); /* our own deadline may be the earliest now */
        list_push(&c->waiters, &w->node);
        PERTURB();
        pthread_cond_wait(&w->cond, &c->lock);
        list_remove(&w->node);
        w->looked = false;
    } else {
        w->leads = true;
        lead(c, true, w->looked, w->spin);
        w->leads = false;
        w->looked = true;
    }
}

void hf__promote(hf_client *c)
{
    struct list *n = list_first(&c->waiters);

    if (n && !c->leading)
        pthread_cond_signal(&container_of(n, struct waiter, node)->cond);
}

void hf__waiter_init(struct waiter *w, bool pumps)
{
    pthread_cond_init(&w->cond, NULL);
    list_init(&w->node);
    w->leads = w->looked = false;
    w->pumps = pumps;
    w->spin = NULL;
}

void hf__waiter_done(struct waiter *w)
{
    pthread_cond_destroy(&w->cond);
}

static struct spin *spin_of(hf_client *c, const struct hf_op *op)
{
    if (op->kind == OP_COMPOSITE)
        op = hf__composite_awaits(op);
    switch (op ? hf__op_awaits(op) : AWAITS_LONG) {
    case AWAITS_ANSWER:
        return &c->spins[SPIN_ANSWER];
    case AWAITS_GRANT:
        return &c->spins[SPIN_GRANT];
    default:
        return NULL;
    }
}

void hf__wait(hf_client *c, struct hf_op *op)
{
    struct waiter w;

    hf__waiter_init(&w, false);
    w.looked = writes_to_sockets(c); /* as it came in */
    op->waiter = &w;
    op->waited = true;
    c->inside++;
    while (!op->done) {
        w.spin = spin_of(c, op);
        hf__wait_turn(c, &w);
    }
    op->waiter = NULL;
    op->waited = false;
    c->inside--;
    hf__promote(c);
    hf__waiter_done(&w);
}

int hf__op_take(hf_client *c, struct hf_op *op, hf_list **list, hf_error *err)
{
    int rc;

    if (!op->done)
        hf__wait(c, op);
    rc = op->rc;
    if (rc < 0 && err && op->err)
        *err = *op->err;
    else if (rc < 0) /* there was no memory for a better one */
        hf__fail(err, rc, 0, NULL, "%s", hf_strerror(rc));
    if (rc >= 0 && list) {
        *list = op->list;
        op->list = NULL;
    }
    hf__op_drop(c, op);
    return rc;
}

/* ---- what the core tells --------------------------------------------------------- */

void hf__wake(hf_client *c, struct waiter *w)
{
    if (w->leads)
        poke(c);
    else
        pthread_cond_signal(&w->cond);
}

static void part_done(struct hf_op *part)
{
    const struct hf_op *whole = part->waiter;

    if (whole->kind == OP_COMPOSITE)
        hf__part_done(part);
    else
        hf__change_part_done(part);
}

static void op_done(struct hf_op *op)
{
    hf_client *c = op_client(op);

    if (!op->queued) /* a watch with news is in `ready`, and stays there */
        list_remove(&op->node);
    hf__cancel_detach(op);
    if (op->kind == OP_COMPOSITE)
        hf__composite_ended(op);
    if (op->part)
        part_done(op);
    else if (op->waited)
        hf__wake(c, op->waiter);
    else if (op->callback || op->kind == OP_WATCH) /* or `seen` in its place */
        hf__op_ready(op);
}

static void op_seen(struct hf_op *op)
{
    if (op->part)
        hf__part_seen(op);
    else
        hf__op_ready(op);
}

const struct host hf__host = { .op_done = op_done,
                               .more_comes = more_comes,
                               .op_seen = op_seen,
                               .lease_changed = hf__lease_changed };
