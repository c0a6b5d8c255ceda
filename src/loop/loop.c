/* loop.c: see loop.h.
 *
 * Wakes. The write end of an empty pipe is always writable. It is in the epoll set, but
 * nobody is interested in it; a wake asks for it once (EPOLLOUT | EPOLLONESHOT), and so the
 * sleep ends, now or when it begins. Nothing is written or read, so no file of somebody
 * else can be hit, and the call is safe in a signal handler. The timerfd is edge-triggered,
 * so that it need not be read.
 *
 * Whose descriptors are these? The pipe has an inode of its own (util/fd.h): while it is
 * there, nobody has closed all descriptors or a range with ours in it. A look costs a
 * system call, so it is made where others are made anyway. The moment between the look and
 * the use is not covered, nor is a program that closes one of our numbers by mistake and
 * opens another epoll instance or timerfd there.
 *
 * Why a removed watch cannot fire: epoll hands back pointers, and between hf__loop_sleep
 * (without the lock) and hf__loop_turn (with it) a watch may have been removed and freed.
 * So a turn does not touch what epoll returned before it has looked it up: each event
 * carries the descriptor, and `slots` maps a descriptor to the watch that has it now. A
 * descriptor that was closed and reused in between may fire the new watch once for nothing;
 * every handler reads until EAGAIN, so that costs a system call and harms nobody.
 *
 * A descriptor that is closed while it is watched is forgotten by epoll without a word, and
 * a new one often gets its number. A caller that watches that number again with the same
 * events is believed, and then watches nothing (env.h has the rule): to ask the kernel each
 * time would cost a system call per step of a connection. With other events, by another
 * watch, or after unwatch it is watched as it should be.
 *
 * What goes wrong: epoll_ctl may fail because memory or watches are used up (reported to
 * the caller); clock reads with valid arguments do not fail.
 */
#include "loop/loop.h"

#include <errno.h>
#include <holdfast/holdfast.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { TIMERS_PER_TURN = 4096, PATIENCE_MS = 15000, BEYOND_MS = 1000 };

int64_t hf__loop_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static int add(int epfd, int fd, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.fd = fd };

    return epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev);
}

int hf__loop_init(struct loop *l)
{
    memset(l, 0, sizeof *l);
    l->epfd = l->timerfd = l->anchor[0] = l->anchor[1] = -1;
    l->armed = LOOP_NEVER;
    list_init(&l->ready);
    if (hf__pipe_open(l->anchor, &l->anchor_id) < 0)
        return HF_ESYS;
    l->epfd = epoll_create1(EPOLL_CLOEXEC);
    l->timerfd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (l->epfd < 0 || l->timerfd < 0 || add(l->epfd, l->timerfd, EPOLLIN | EPOLLET) < 0 ||
        add(l->epfd, l->anchor[1], 0) < 0) {
        int saved = errno;

        hf__loop_done(l);
        errno = saved;
        return HF_ESYS;
    }
    return 0;
}

static bool ours(const struct loop *l)
{
    return hf__pipe_is(l->anchor[0], &l->anchor_id);
}

bool hf__loop_intact(struct loop *l)
{
    l->broken = l->broken || !ours(l);
    return !l->broken;
}

/* What is not ours any more is not ours to close. */
void hf__loop_stop(struct loop *l)
{
    const int fds[] = { l->epfd, l->timerfd, l->anchor[1] };
    bool intact = ours(l);

    for (size_t i = 0; intact && i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    l->epfd = l->timerfd = l->anchor[1] = -1;
    free(l->slots);
    l->slots = NULL;
    l->nslots = 0;
}

void hf__loop_done(struct loop *l)
{
    hf__loop_stop(l);
    if (ours(l))
        close(l->anchor[0]);
    l->anchor[0] = -1;
}

static int slot_for(struct loop *l, int fd)
{
    size_t need = (size_t)fd + 1, n = l->nslots ? l->nslots : 32;
    struct watch **slots;

    if (need <= l->nslots)
        return 0;
    while (n < need)
        n *= 2;
    slots = realloc(l->slots, n * sizeof *slots);
    if (!slots)
        return HF_ENOMEM;
    memset(slots + l->nslots, 0, (n - l->nslots) * sizeof *slots);
    l->slots = slots;
    l->nslots = n;
    return 0;
}

int hf__loop_watch(struct loop *l, struct watch *w, int fd, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.fd = fd };
    bool known = w->fd >= 0 && w->fd == fd && l->slots[fd] == w;
    int rc;

    if (known && w->events == events)
        return 0;
    if (!hf__loop_intact(l)) {
        errno = EBADF;
        return HF_ESYS;
    }
    if (!known)
        hf__loop_unwatch(l, w);
    if (slot_for(l, fd) < 0) {
        errno = ENOMEM;
        return HF_ESYS;
    }
    rc = epoll_ctl(l->epfd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev);
    if (rc < 0 && known && errno == ENOENT) /* another file has its number now */
        rc = epoll_ctl(l->epfd, EPOLL_CTL_ADD, fd, &ev);
    if (rc < 0)
        return HF_ESYS;
    l->slots[fd] = w;
    w->fd = fd;
    w->events = events;
    return 0;
}

void hf__loop_unwatch(struct loop *l, struct watch *w)
{
    if (w->fd >= 0 && l->slots[w->fd] == w && hf__loop_intact(l))
        epoll_ctl(l->epfd, EPOLL_CTL_DEL, w->fd, NULL);
    hf__loop_forget(l, w);
}

void hf__loop_forget(struct loop *l, struct watch *w)
{
    if (w->fd < 0)
        return;
    if (l->slots[w->fd] == w) /* else another watch has its number */
        l->slots[w->fd] = NULL;
    list_remove(&w->ready);
    w->fd = -1;
    w->events = 0;
}

void hf__loop_timer(struct loop *l, struct timer *t, int64_t at)
{
    if (at == LOOP_NEVER)
        hf__heap_remove(&l->timers, &t->node);
    else
        hf__heap_set(&l->timers, &t->node, at);
}

void hf__loop_arm(struct loop *l)
{
    int64_t at = loop_next(l);
    struct itimerspec its = { 0 };

    /* Too early is as good: it costs one turn that finds nothing, at most once per setting,
     * while timers that move further away with every call would cost a system call each. */
    if (at >= l->armed || !hf__loop_intact(l))
        return;
    if (at < 1)
        at = 1; /* zero would disarm */
    its.it_value.tv_sec = (time_t)(at / 1000000);
    its.it_value.tv_nsec = (long)(at % 1000000) * 1000;
    if (timerfd_settime(l->timerfd, TFD_TIMER_ABSTIME, &its, NULL) < 0)
        l->broken = true;
    l->armed = at;
}

static int wake(const struct loop *l)
{
    struct epoll_event ev = { .events = EPOLLOUT | EPOLLONESHOT, .data.fd = l->anchor[1] };

    return epoll_ctl(l->epfd, EPOLL_CTL_MOD, l->anchor[1], &ev);
}

void hf__loop_wake(struct loop *l)
{
    if (l->woken || !hf__loop_intact(l))
        return;
    l->woken = true;
    if (wake(l) < 0)
        l->broken = true;
}

void hf__loop_poke(const struct loop *l)
{
    if (ours(l))
        wake(l);
}

int hf__loop_patience(int64_t at)
{
    int64_t now = hf__loop_now();

    if (at - now >= (PATIENCE_MS - BEYOND_MS) * (int64_t)1000)
        return PATIENCE_MS;
    return (at > now ? (int)((at - now) / 1000) : 0) + BEYOND_MS;
}

int hf__loop_sleep(const struct loop *l, struct epoll_event *evs, int n, int ms)
{
    int got = epoll_wait(l->epfd, evs, n, ms);

    return got < 0 && errno == EINTR ? 0 : got; /* a turn for nothing */
}

static void collect(struct loop *l, const struct epoll_event *evs, int n)
{
    for (int i = 0; i < n; i++) {
        int fd = evs[i].data.fd;
        struct watch *w;

        if (fd == l->anchor[1]) {
            l->woken = false;
        } else if (fd == l->timerfd) {
            l->armed = LOOP_NEVER; /* it fired: whatever it was set to is past */
        } else if ((size_t)fd < l->nslots && (w = l->slots[fd]) != NULL) {
            w->got = evs[i].events;
            if (list_empty(&w->ready))
                list_push(&l->ready, &w->ready);
        }
    }
}

int hf__loop_turn(struct loop *l, const struct epoll_event *evs, int n)
{
    int64_t now = hf__loop_now();
    struct heap_node *t;
    struct list *r;
    int ran = 0;

    collect(l, evs, n);
    /* Bounded: a leader whose own call is done must be able to leave soon. */
    while ((t = heap_first(&l->timers)) != NULL && t->key <= now && ran < TIMERS_PER_TURN) {
        struct timer *timer = container_of(t, struct timer, node);

        hf__heap_remove(&l->timers, t);
        timer->fire(timer);
        ran++;
    }
    while ((r = list_pop(&l->ready)) != NULL) {
        struct watch *w = container_of(r, struct watch, ready);

        w->fire(w, w->got);
        ran++;
    }
    return ran;
}
