/* api.h: the client as an application has it: a lock, a loop, and who drives.
 *
 * One mutex guards everything of a client but what hf_lease_check reads. One thread at a
 * time, the leader, sleeps in the loop; it drops the lock only for the sleep. See wait.c
 * for the argument why nobody sleeps for ever. */
#ifndef HF_API_H
#define HF_API_H

#include "core/core.h"
#include "core/spin.h"
#include "loop/loop.h"
#include "util/prf.h"

#include <pthread.h>

struct waiter { /* a thread in a blocking call, on its stack */
    pthread_cond_t cond;
    struct list node; /* client.waiters while it follows */
    bool leads;
    bool looked; /* the descriptors were ours when it took the lock, and it has it since */
    bool pumps;  /* hf_client_wait: wants any callback, not one operation */
    /* how to poll before it sleeps; NULL: not at all */
    struct spin *spin;
};

struct limit { /* a thread that waits until something happens, or the time is over */
    struct waiter waiter;
    struct timer timer;
    hf_client *client;
    int64_t end; /* LOOP_NEVER: no limit */
};

/* What a thread may poll for: each kind has a speed of its own. */
enum spin_kind { SPIN_ANSWER, SPIN_GRANT, SPIN_CALLBACK, SPINS };

/* ENDED: to be joined; another one may be started then. */
enum keeper_state { KEEPER_NONE, KEEPER_RUNS, KEEPER_ENDED };

/* The client of the application: the core's client with its lock, its loop and the threads
 * that drive it. At most one thread leads, which sleeps in the loop without the lock
 * (wait.c). */
struct hf_client {
    struct env env;
    struct client core;
    struct loop loop;
    pthread_mutex_t lock;
    unsigned refs;        /* open, leases, started operations */
    atomic_uint entrants; /* calls under way, also those that wait for the lock: wait.c */
    unsigned inside;      /* threads in a blocking call, process() or wait() */
    bool leading;         /* somebody leads */
    bool asleep;          /* the leader is in the loop, without the lock */
    /* something was done since the leader last looked whether it is done */
    bool poked;
    struct spin spins[SPINS]; /* what polling was good for lately */
    /* what the application polls: the loop and news; -1: not asked for */
    int app_fd;
    bool news_shown; /* app_fd is readable because there are callbacks to run */
    bool closing, closed;
    bool broken;          /* the process has closed our descriptors */
    atomic_bool stop;     /* hf_client_stop was called; core.stopped: and taken note of */
    atomic_bool ended;    /* the loop is about to be closed: do not wake it */
    atomic_uint stoppers; /* threads in hf_client_stop */
    struct list waiters;  /* followers */
    struct list ops;      /* op.node: not done */
    struct list ready;    /* op.node: done (or seen), callback to be run */
    struct list changed;  /* lease_extra.changed_node: on_change to be run */
    struct list resumed;  /* composite.resume: steps to be called */
    struct list cancels;  /* cancel_watch.node */
    struct list losses;   /* threads in hf_lease_wait: lease.c */
    struct pool op_pool;  /* spares for hf__op_new */
    pthread_cond_t quiet; /* hf_close waits for the others that came in */
    uint32_t drive;
    pthread_t keeper;
    enum keeper_state keeper_state;
    bool keeper_stop;
    int keeper_fd;     /* its timer */
    int64_t keeper_at; /* what that is set to; LOOP_NEVER: it is not parked */
    size_t listeners;  /* leases with an on_change callback */
    pthread_t teller;  /* runs on_change callbacks: teller.c */
    bool teller_runs, teller_stop;
    pthread_cond_t teller_news; /* it sleeps here */
    pthread_cond_t told;        /* an on_change callback has returned */
    uint32_t *alive;            /* a page that a fork wipes */
    struct hf_op *orphans; /* in a forked child: freed with the client; linked by `user` */
    void (*log)(void *, int, const char *, const char *);
    void *log_user;
    unsigned char random[8 * PRF_BLOCK], random_key[PRF_KEY];
    size_t random_left;
    uint64_t random_blocks; /* how many were computed from the key */
};

static inline hf_client *op_client(const struct hf_op *op)
{
    return container_of(op->client, hf_client, core);
}

static inline hf_client *lease_client(const struct hf_lease *l)
{
    return container_of(l->client, hf_client, core);
}

/* env.c */
void hf__env_init(struct hf_client *);
/* 0 or HF_ESYS; before the first use */
int hf__env_draw_key(struct hf_client *, hf_error *);

/* wait.c */
int hf__enter(hf_client *, hf_error *); /* takes the lock; HF_EFORKED, HF_ECLOSED */
int hf__enter_blocking(hf_client *, hf_error *); /* also HF_EREENTRANT */
/* to give something back: also when closed */
int hf__enter_any(hf_client *);
int hf__enter_pump(hf_client *);   /* to run callbacks: also when broken */
void hf__leave(hf_client *);       /* runs what is queued, gives the lock back;
                                      frees the client if it was the last reference */
void hf__alone(hf_client *);       /* waits until no other call is under way */
void hf__drop_forked(hf_client *); /* in a forked child: one reference less */
void hf__client_free(hf_client *); /* memory and descriptors, but not core's */
void hf__news(hf_client *);        /* there is a callback to run */
void hf__show_news(hf_client *);   /* app_fd says whether there is one */
int hf__broken(hf_error *);        /* HF_ESYS, and why */
/* its descriptors are gone: all of it ends */
void hf__break_down(hf_client *);
void hf__look(hf_client *);                       /* the program has run: are they? */
int hf__lead(hf_client *, bool block);            /* one turn; returns how much it did */
void hf__wait_turn(hf_client *, struct waiter *); /* leads one turn, or follows */
void hf__wake(hf_client *, struct waiter *);
void hf__promote(hf_client *);              /* on leaving: somebody else leads, if any */
void hf__wait(hf_client *, struct hf_op *); /* until it is done */
void hf__waiter_init(struct waiter *, bool pumps);
void hf__waiter_done(struct waiter *);
/* Of an operation without a callback: waits for it, takes the result, frees it. */
int hf__op_take(hf_client *, struct hf_op *, hf_list **, hf_error *);
extern const struct host hf__host;

/* spin.c */
struct epoll_event;
void hf__spin_open(hf_client *, int64_t us); /* hf_options.spin_us, or the URL's */
/* For how many µs to poll; s may be NULL: 0. */
int64_t hf__spin_begin(const struct spin *, int64_t now);
/* As hf__loop_sleep, without the lock; 0: in vain. */
int hf__spin_poll(const struct loop *, struct epoll_event *, int n, int64_t us,
                  int64_t begin);
/* The sleep has ended, before which was polled for so long (0: not at all), in vain if
 * `slept`. */
void hf__spin_end(struct spin *, int64_t polled_us, bool slept, int64_t took_us);

/* stop.c */
void hf__stop_if_asked(hf_client *); /* takes note of hf_client_stop */
void hf__stop_no_more(hf_client *);  /* hf_client_stop does not touch the loop any more */
bool hf__drained(const hf_client *); /* stopped, and nothing is left to be driven or told */

/* keeper.c */
void hf__keeper_need(hf_client *); /* there are timers and nobody leads */
int hf__keeper_start(hf_client *, hf_error *);
/* `listeners` has grown: it must be resident now */
int hf__keeper_listen(hf_client *, hf_error *);
/* no signals on it */
int hf__thread_start(pthread_t *, void *(*)(void *), hf_client *, hf_error *);
void hf__keeper_end(hf_client *); /* under the lock, which it gives up meanwhile */

/* teller.c */
bool hf__tells(const hf_client *); /* on_change callbacks run on the teller, nowhere else */
bool hf__on_teller(void);          /* this thread is one */
int hf__teller_start(hf_client *, hf_error *);
void hf__teller_end(hf_client *); /* under the lock, which it gives up meanwhile */

/* async.c */
struct listener { /* the receiver of an operation's end */
    hf_done *done;
    hf_seen *seen;
    void *user;
};
/* A started operation, `size` bytes that begin with it; NULL: no memory. Without a listener
 * it is for hf__op_take. hf__op_drop frees it, and what nobody has taken of its result. */
struct hf_op *hf__op_new(hf_client *, enum op_kind, size_t size, const struct listener *,
                         hf_error *);
void hf__op_drop(hf_client *, struct hf_op *);
/* Under the lock. Between the two the thread counts as inside. */
void hf__limit_begin(struct limit *, hf_client *, int64_t wait_ms, bool pumps);
void hf__limit_end(struct limit *);
int hf__run_callbacks(hf_client *);     /* those that are told in process() */
int hf__run_changes(hf_client *);       /* of on_change only */
const hf_client *hf__callback_of(void); /* whose callback this thread runs; or NULL */
bool hf__in_callback(void);
void hf__op_ready(struct hf_op *);
/* why: the text; NULL: that of rc */
void hf__end_all(hf_client *, int rc, const char *why);

/* cancel.c */
struct hf_cancel {
    _Atomic int fired;
    int fds[2]; /* a pipe; the first is readable while it is fired */
    struct fd_id id;
};
int hf__cancel_attach(hf_client *, struct hf_op *, hf_cancel *, hf_error *);
void hf__cancel_detach(struct hf_op *);

/* async.c: a line or a cell that is followed; a recipe may begin with it */
typedef void hf__cell_seen(struct cell *, int rc, void *user);
struct watcher {
    struct hf_op op;
    struct ask ask;
    hf__cell_seen *cell_seen; /* NULL: op.seen */
    struct cell *cell;
};

/* change.c */
void hf__change_part_done(struct hf_op *part); /* of an OP_CHANGE has ended */
void hf__change_drop(struct hf_op *);          /* ends what is still under way of it */

/* lease.c */
void hf__lease_changed(struct hf_lease *);
void hf__lease_given(hf_client *, struct hf_lease *); /* it goes to the application */
/* To give it back; forked: has done so. With keep_ms it may be refused (hf_release_after):
 * then nothing has changed and the lock is not taken. */
int hf__lease_enter(struct hf_lease *, const int64_t *keep_ms, hf_error *);
/* Entered; consumes the lease and leaves. With op: that operation is the release. */
int hf__lease_give_back(struct hf_lease *, struct hf_op *, bool wait,
                        const int64_t *keep_ms, hf_error *);
void hf__lease_free(struct hf_lease *);
/* Under the lock: ends its on_change callback, and waits for one that runs. */
/* hf_look by one who has entered, blocking. */
int hf__look_take(hf_client *, const char *name, hf_list **, hf_error *);
void hf__lease_mute(struct hf_lease *); /* as silence, but one that runs may still run */
void hf__lease_silence(struct hf_lease *);
/* Under the lock: gives back a lease of the application's; nobody waits here. */
int hf__lease_drop(struct hf_lease *, struct hf_op *, int64_t keep_ms);

/* composite.c */
void hf__run(hf_client *);                /* calls what is queued, verbs and steps */
void hf__part_done(struct hf_op *part);   /* of an OP_COMPOSITE has ended */
void hf__part_seen(struct hf_op *part);   /* has news */
void hf__composite_ended(struct hf_op *); /* its end, whoever ends it */
void hf__composite_give_up(struct hf_op *, int rc); /* rule 4 */
void hf__ask_orphan(struct hf_op *);       /* in a forked child: what it was to bring */
void hf__composite_orphan(struct hf_op *); /* in a forked child: what its parts own */
const struct hf_op *hf__composite_awaits(const struct hf_op *);

#endif
