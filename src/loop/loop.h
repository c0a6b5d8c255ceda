/* loop.h: one epoll instance, one timerfd for a heap of timers, and a pipe for wakes.
 *
 * The epoll descriptor is what an application polls (hf_client_fd): it never changes, and
 * it is readable exactly when there is something to do. Only one thread sleeps in a loop at
 * a time and all calls but hf__loop_poke and the sleep itself are made under its owner's
 * lock.
 *
 * A program that closes descriptors which it does not know may have files of its own where
 * ours were. Before the loop uses one it looks (`anchor`): `broken` says that they are
 * gone. Then nothing is done with their numbers any more, and the loop never wakes anybody.
 *
 * Rules: `now` is read once per turn; a turn runs a bounded number of timers; a watch may
 * be removed in any callback, also its own and that of a watch that is ready in the same
 * turn; remove a watch before closing its descriptor.
 */
#ifndef HF_LOOP_H
#define HF_LOOP_H

#include "util/fd.h"
#include "util/heap.h"
#include "util/list.h"

#include <stdbool.h>
#include <stdint.h>

/* A descriptor and its callback; embedded in the object that it is about. */
struct watch {
    void (*fire)(struct watch *, uint32_t events); /* EPOLLIN ... */
    int fd;                                        /* -1: not watched */
    uint32_t events;
    struct list ready; /* in loop->ready while its event is pending */
    uint32_t got;
};

/* Fires once; not running while it is in no heap. */
struct timer {
    void (*fire)(struct timer *);
    struct heap_node node; /* key: µs on CLOCK_BOOTTIME */
};

/* `slots` finds the watch of an event by its descriptor, never by a pointer that epoll
 * kept: an event of a watch that was removed in the same turn finds nothing. */
struct loop {
    int epfd, timerfd;
    /* a pipe that stays empty: tells whether descriptors are ours, and wakes */
    int anchor[2];
    struct fd_id anchor_id;
    bool broken; /* they are not */
    struct heap timers;
    int64_t armed;        /* what timerfd is set to; INT64_MAX: disarmed */
    struct watch **slots; /* by descriptor: its present watch */
    size_t nslots;
    struct list ready;
    bool woken; /* a wake is under way */
};

#define LOOP_NEVER INT64_MAX

int hf__loop_init(struct loop *);  /* 0 or HF_ESYS with errno */
void hf__loop_stop(struct loop *); /* hf__loop_intact can still be asked, nothing else */
void hf__loop_done(struct loop *);

bool hf__loop_intact(struct loop *); /* are the descriptors still ours? false: broken */

int64_t hf__loop_now(void); /* µs on CLOCK_BOOTTIME */

static inline void watch_init(struct watch *w, void (*fire)(struct watch *, uint32_t))
{
    w->fire = fire;
    w->fd = -1;
    w->events = w->got = 0;
    list_init(&w->ready);
}

static inline void timer_init(struct timer *t, void (*fire)(struct timer *))
{
    t->fire = fire;
    t->node = (struct heap_node){ .key = LOOP_NEVER };
}

static inline bool timer_armed(const struct timer *t)
{
    return heap_has(&t->node);
}

/* 0 or HF_ESYS */
int hf__loop_watch(struct loop *, struct watch *, int fd, uint32_t events);
void hf__loop_unwatch(struct loop *, struct watch *);
void hf__loop_forget(struct loop *, struct watch *); /* its descriptor is closed already */

void hf__loop_timer(struct loop *, struct timer *, int64_t at); /* LOOP_NEVER: stop */

static inline int64_t loop_next(const struct loop *l)
{
    const struct heap_node *n = heap_first(&l->timers);

    return n ? n->key : LOOP_NEVER;
}

void hf__loop_arm(struct loop *);        /* timerfd fires at the next timer, or before */
void hf__loop_wake(struct loop *);       /* makes epfd readable once; under the lock */
void hf__loop_poke(const struct loop *); /* the same; any thread, any signal handler */

/* Sleeps until something is ready, or ms are over; without the lock. Returns the number of
 * events put into the caller's array, or -1: look whether the loop is intact. */
struct epoll_event;
int hf__loop_sleep(const struct loop *, struct epoll_event *, int n, int ms);
/* For how long to sleep at most if a timerfd is set to `at`: a little longer, and not for
 * ever. The timerfd is what ends the sleep; but if another thread closes that, nothing else
 * would. */
int hf__loop_patience(int64_t at);

/* Runs what hf__loop_sleep found and every due timer; under the lock. Returns how many ran.
 */
int hf__loop_turn(struct loop *, const struct epoll_event *, int n);

#endif
