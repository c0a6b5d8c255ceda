/* sync.h: the client as an application has it: a lock, a loop, and who drives.
 *
 * One mutex guards everything of a client but what hf_lease_check reads. One thread at a time,
 * the leader, sleeps in the loop; it drops the lock only for the sleep. See wait.c for the
 * argument why nobody sleeps for ever. */
#ifndef HF_SYNC_H
#define HF_SYNC_H

#include "core/core.h"
#include "loop/loop.h"

#include <pthread.h>

struct waiter { /* a thread in a blocking call, on its stack */
    pthread_cond_t cond;
    struct list node; /* client.waiters while it follows */
    bool leads;
    bool pumps; /* hf_client_wait: wants any callback, not one operation */
};

struct limit { /* a thread that waits until something happens, or the time is over */
    struct waiter waiter;
    struct timer timer;
    hf_client *client;
    int64_t end; /* LOOP_NEVER: no limit */
};

enum keeper_state { KEEPER_NONE, KEEPER_RUNS, KEEPER_ENDED };

struct hf_client {
    struct env env;
    struct client core;
    struct loop loop;
    pthread_mutex_t lock;
    unsigned refs;       /* open, leases, started operations */
    unsigned inside;     /* threads in a blocking call, process() or wait() */
    bool leading;        /* somebody leads */
    bool asleep;         /* the leader is in the loop, without the lock */
    int app_fd;          /* what the application polls: the loop and news_fd; -1: not asked for */
    int news_fd;         /* readable while there are callbacks to run */
    bool news_shown;
    bool closing, closed;
    struct list waiters; /* followers */
    struct list ops;     /* op.node: not done */
    struct list ready;   /* op.node: done (or seen), callback to be run */
    struct list changed; /* lease.changed_node: on_change to be run */
    struct list cancels; /* cancel_watch.node */
    struct list losses;  /* threads in hf_lease_wait: lease.c */
    pthread_cond_t quiet; /* hf_close waits for the threads inside */
    uint32_t drive;
    pthread_t keeper;
    enum keeper_state keeper_state;
    bool keeper_stop;
    int keeper_fd;       /* its timer */
    int64_t keeper_at;   /* what that is set to */
    uint32_t *alive;     /* a page that a fork wipes */
    struct hf_op *orphans; /* in a forked child: freed with the client; linked by `user` */
    void (*log)(void *, int, const char *, const char *);
    void *log_user;
    unsigned char random[512];
    size_t random_left;
};

/* env.c */
void hf__env_init(struct hf_client *);

/* wait.c */
int hf__enter(hf_client *, hf_error *);        /* takes the lock; HF_EFORKED, HF_ECLOSED */
int hf__enter_blocking(hf_client *, hf_error *); /* also HF_EREENTRANT */
int hf__enter_any(hf_client *);                /* to give something back: also when closed */
void hf__leave(hf_client *);                   /* runs what is queued, gives the lock back;
                                                  frees the client if it was the last reference */
void hf__drop_forked(hf_client *);             /* in a forked child: one reference less */
void hf__news(hf_client *);                    /* there is a callback to run */
void hf__show_news(hf_client *);               /* news_fd says whether there is one */
int hf__lead(hf_client *, bool block);         /* one turn; returns how much it did */
void hf__wait_turn(hf_client *, struct waiter *); /* leads one turn, or follows */
void hf__wake(hf_client *, struct waiter *);
void hf__promote(hf_client *);                 /* on leaving: somebody else leads, if any */
void hf__wait(hf_client *, struct hf_op *);    /* until it is done */
void hf__waiter_init(struct waiter *, bool pumps);
void hf__waiter_done(struct waiter *);
/* Of an operation without a callback: waits for it, takes the result, frees it. */
int hf__op_take(hf_client *, struct hf_op *, hf_list **, hf_error *);
extern const struct host hf__host;

/* keeper.c */
void hf__keeper_need(hf_client *); /* there are timers and nobody leads */
int hf__keeper_start(hf_client *, hf_error *);
void hf__keeper_end(hf_client *);  /* under the lock, which it gives up meanwhile */

/* async.c */
struct listener { /* who is told of the end of an operation */
    hf_done *done;
    hf_seen *seen;
    void *user;
};
/* A started operation, `size` bytes that begin with it; NULL: no memory. Without a listener it is for
 * hf__op_take. hf__op_drop frees it, and what nobody has taken of its result. */
struct hf_op *hf__op_new(hf_client *, enum op_kind, size_t size, const struct listener *,
                         hf_error *);
void hf__op_drop(hf_client *, struct hf_op *);
/* Under the lock; HF_ENOMEM. Between the two the thread counts as inside. */
void hf__limit_begin(struct limit *, hf_client *, int64_t wait_ms, bool pumps);
void hf__limit_end(struct limit *);
int hf__run_callbacks(hf_client *, bool keeper);
const hf_client *hf__callback_of(void); /* whose callback this thread runs; or NULL */
bool hf__in_callback(void);
void hf__op_ready(struct hf_op *);
void hf__end_all(hf_client *, int rc);

/* cancel.c */
struct hf_cancel {
    _Atomic int fired;
    int fd;
};
int hf__cancel_attach(hf_client *, struct hf_op *, hf_error *); /* op->cancel */
void hf__cancel_detach(struct hf_op *);

/* change.c */
void hf__change_part_done(struct hf_op *part); /* of an OP_CHANGE has ended */
void hf__change_drop(struct hf_op *);          /* ends what is still under way of it */

/* lease.c */
void hf__lease_changed(struct hf_lease *);
void hf__lease_given(hf_client *, struct hf_lease *); /* it goes to the application */
/* To give it back; forked: has done so. With keep_ms it may be refused (hf_release_after): then nothing
 * has changed and the lock is not taken. */
int hf__lease_enter(struct hf_lease *, const int64_t *keep_ms, hf_error *);
/* Entered; consumes the lease and leaves. With op: that operation is the release. */
int hf__lease_give_back(struct hf_lease *, struct hf_op *, bool wait, const int64_t *keep_ms,
                        hf_error *);
void hf__lease_free(struct hf_lease *);

#endif
