/* holdfast.h: one lock API over many stores.
 *
 * A lock is a line. Whoever wants it takes a ticket and stands in the line of that name:
 * holders in front, a queue behind, and the head of the queue is admitted while its weight
 * and the holders' weight fit in the line's capacity. An exclusive lock weighs as much as
 * the whole line, a shared one weighs 1, a semaphore of N has capacity N. So there are two
 * kinds of line: locks (exclusive and shared exclude each other) and permits.
 *
 *     hf_client *c;
 *     hf_lease *l;
 *     hf_error e;
 *     if (hf_open("local:", NULL, &c, &e) < 0) ...
 *     if (hf_acquire(c, "jobs/42", HF_FOREVER, NULL, &l, &e) == 0) {
 *         write_to_resource(hf_lease_fence(l));
 *         hf_release(l, NULL);
 *     }
 *     hf_close(c);
 *
 * What to know before anything else
 *
 *   A lease ends by itself when its owner is cut off from the store for the ttl. Ask
 *   hf_lease_check() before each step that must not happen twice, and hand the fence to the
 *   resource: it is a number that grows with every grant of the name, and a resource that
 *   refuses a smaller one than it has seen is safe even from a process that slept through
 *   its own deadline.
 *
 * Ownership, in seven rules
 *
 * 1 What a call gives you, you give back once: hf_close, hf_release, hf_op_free,
 *   hf_list_free, hf_cancel_free; all take NULL. Also after loss, after hf_close and after
 *   an error: a handle is memory until it is given back.
 * 2 Strings you pass are copied. Strings you get live as long as the handle they came from.
 * 3 Any thread may call anything on any handle; giving back is the last call on it.
 * 4 hf_release consumes its handle whatever it returns; what is left is done in the background.
 * 5 The callback of a started operation runs once (a watch: at each change, up to a last
 *   call), in hf_client_process(), hf_client_wait() or hf_close(). That of
 *   hf_lease_on_change runs at each change of state: on a thread of the client's own; but
 *   with HF_DRIVE_APP, and with HF_DRIVE_CALLER once hf_client_fd() was called, where the
 *   others run. No callback runs inside the call that starts or registers it. It may start,
 *   cancel, release and free; a blocking call in it is HF_EREENTRANT. A callback
 *   returns: it is not left by longjmp or a C++ exception, and neither are the body of
 *   hf_with and a log function.
 * 6 hf_close releases every hold, ends every wait (HF_ECLOSED), waits for the answers of the
 *   store for at most 1 s, and is not called in a callback. Calls that are under way in other
 *   threads return first; none may begin once it has returned: hf_client_stop, join your
 *   threads, then hf_close.
 * 7 In a forked child every call that would use the store answers HF_EFORKED; giving back
 *   frees memory and touches no store. Names, fences, url and caps can still be read, a
 *   lease's state is HF_LOST. The parent's locks are untouched. A child that was forked in
 *   a callback does not return from it.
 *
 * Return values: 0 (or a positive count) is success, negative is HF_E*. `ret` parameters are
 * written on success only, hf_error on failure only; both may be NULL if the caller does not
 * need them and has nothing to give back. Times are milliseconds. The ids G1 to G12 in
 * comments are explained in docs/guarantees.md, per store.
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HF_VERSION_MAJOR 0
#define HF_VERSION_MINOR 1
#define HF_VERSION_PATCH 0
#define HF_VERSION_TEXT "0.1.0"

typedef struct hf_client hf_client; /* one opened store */
typedef struct hf_lease hf_lease;   /* one per successful acquire, never shared */
typedef struct hf_op hf_op;         /* one started operation (async.h) */
typedef struct hf_cancel hf_cancel; /* a reusable cancel token for waits */
typedef struct hf_list hf_list;     /* a snapshot of lines */
typedef struct hf_line hf_line;     /* one line of a snapshot */
typedef struct hf_ticket hf_ticket; /* one place in a line of a snapshot */

/* ---- errors ------------------------------------------------------------------------- */

/* X(symbol, number, text, worth retrying the same call later?) */
#define HF_ERRORS(X)                                                                       \
    X(HF_EINVAL, -1, "invalid argument", 0)                                                \
    X(HF_ENOMEM, -2, "out of memory", 1)                                                   \
    X(HF_ESYS, -3, "a system call failed", 0)                                              \
    X(HF_EBUG, -4, "a defect in holdfast", 0)                                              \
    X(HF_EBUSY, -5, "held by somebody else", 1)                                            \
    X(HF_ETIMEDOUT, -6, "not granted in time", 1)                                          \
    X(HF_ECANCELED, -7, "cancelled", 1)                                                    \
    X(HF_EDEADLK, -8, "waiting would deadlock", 0)                                         \
    X(HF_ELOST, -9, "the lock was lost", 0)                                                \
    X(HF_EUNKNOWN, -10, "the outcome is not known yet", 1)                                 \
    X(HF_EMISMATCH, -11, "the name is in use with another kind or capacity", 0)            \
    X(HF_ENOTSUP, -12, "not supported by this store", 0)                                   \
    X(HF_EUNREACHABLE, -13, "the store cannot be reached", 1)                              \
    X(HF_EAUTH, -14, "refused by the store: login or rights", 0)                           \
    X(HF_EBUSYSTORE, -15, "the store is blocked by another process", 1)                    \
    X(HF_EFULL, -16, "the store has no room left", 1)                                      \
    X(HF_EDAMAGED, -17, "the store is damaged", 0)                                         \
    X(HF_EVERSION, -18, "made for another version of holdfast", 0)                         \
    X(HF_EFOREIGN, -19, "the store belongs to another namespace or machine", 0)            \
    X(HF_ENOENT, -20, "no such ticket", 0)                                                 \
    X(HF_EPROTO, -21, "the store answered something unexpected", 0)                        \
    X(HF_ECLOSED, -22, "the client is closed", 0)                                          \
    X(HF_EFORKED, -23, "the handle belongs to the parent process", 0)                      \
    X(HF_EREENTRANT, -24, "a blocking call inside a callback", 0)                          \
    X(HF_EMODULE, -25, "the driver module cannot be loaded", 0)                            \
    X(HF_EREPLICAS, -26, "too few replicas have confirmed the grant", 1)                   \
    X(HF_EEVICTED, -27, "taken out of the queue by an administrator", 0)                   \
    X(HF_EPARTY, -28, "another party has left the barrier", 1)

enum {
#define HF_X(symbol, number, text, retry) symbol = number,
    HF_ERRORS(HF_X)
#undef HF_X
    HF_OK = 0
};

typedef struct hf_error { /* the caller's; filled on failure only; layout is frozen */
    int32_t code;         /* HF_E* */
    int32_t sys;          /* errno, or 0 */
    int32_t store;        /* the store's own number, or 0 */
    uint32_t retry;       /* 1: the same call may succeed later */
    char where[64];       /* "redis://10.0.0.5:6379"; no secrets */
    char text[256];       /* UTF-8, one line, no secrets, control characters escaped */
} hf_error;

const char *hf_strerror(int code); /* "held by somebody else"; never NULL */
const char *hf_errname(int code);  /* "HF_EBUSY"; never NULL */
const char *hf_version(void);      /* of the library in use: "0.1.0" */

/* ---- clients ------------------------------------------------------------------------ */

/* Who drives the client's work (renewal, loss notice, leaving) between calls:
 * CALLER: the calling thread drives while it waits, and a parked thread wakes up only when
 *         something is due. The fastest for blocking calls, and the default.
 * PROMPT: a resident thread always listens, so that loss is known at once also when no call
 *         is under way. CALLER does the same while a lease has an on_change callback and
 *         nobody has asked for hf_client_fd().
 * APP:    no thread. RENEWAL IS YOURS: poll hf_client_fd(), call hf_client_process(). */
enum { HF_DRIVE_CALLER = 0, HF_DRIVE_PROMPT = 1, HF_DRIVE_APP = 2 };
/* With one of them: a local: store that is not there is not made, but HF_ENOENT. For those
 * who only look. Of a server it changes nothing. */
enum { HF_OPEN_EXISTING = 1 << 8 };

enum { HF_LOG_DEBUG = 0, HF_LOG_INFO = 1, HF_LOG_WARN = 2 };

/* hf_options and hf_request may grow. They begin with their size: a library that knows more
 * takes what an older header lacks as zero, the default; one that knows less refuses what
 * it does not know unless it is zero. */
typedef struct hf_options {
    uint32_t size;          /* sizeof(hf_options) */
    uint32_t drive;         /* HF_DRIVE_*, | HF_OPEN_EXISTING */
    int64_t ttl_ms;         /* for requests that name none; 0: the URL's ttl=, or 30 s */
    void (*log)(void *user, int level, const char *name, const char *text);
    void *user;             /* passed to log, which may run on any thread and must not call us */
    const char *owner;      /* act for this owner of another process: hf_lease_owner (tool.h) */
    int64_t spin_us;        /* how long a blocking call polls before it sleeps; 0: the URL's
                               spin=, or as long as pays; HF_SPIN_NEVER */
} hf_options;
#define HF_OPTIONS_INIT { sizeof(hf_options), 0, 0, NULL, NULL, NULL, 0 }
#define HF_SPIN_NEVER (-1)
#ifndef __cplusplus
#define HF_OPTIONS(...) (&(hf_options){ .size = sizeof(hf_options), __VA_ARGS__ })
#endif

/* What the opened store can do (it depends on the URL and on the server's version). What it
 * cannot do is HF_ENOTSUP, never a silent downgrade. */
enum {
    HF_CAP_DEADLINE = 1 << 0,     /* hf_lease_check is certain (G1) */
    HF_CAP_FIFO = 1 << 1,         /* first come, first served (G3) */
    HF_CAP_FENCE = 1 << 2,        /* fences grow (G2) */
    HF_CAP_BARGE = 1 << 3,        /* HF_BARGE */
    HF_CAP_SHARED = 1 << 4,       /* HF_READ */
    HF_CAP_PERMITS = 1 << 5,      /* HF_PERMITS */
    HF_CAP_LINE = 1 << 6,         /* hf_look with waiters and notes, hf_ls, hf_evict */
    HF_CAP_KEEP = 1 << 7,         /* hf_release_after outlives the process */
    HF_CAP_CELL = 1 << 8,         /* cells: small records beside a line */
    HF_CAP_CELL_EXPIRY = 1 << 9,  /* cells that expire */
    HF_CAP_TTL = 1 << 10          /* a ttl per request */
};

/* Opens a store: "local:", "local:///dir", "redis://..."; holdfast-url(7). Does not wait for
 * a server: an unreachable one shows at the first call.
 * HF_EINVAL (the text says which part), HF_EMODULE, HF_EAUTH, HF_EFOREIGN, HF_EVERSION,
 * HF_ENOENT (HF_OPEN_EXISTING) ... */
int hf_open(const char *url, const hf_options *, hf_client **ret, hf_error *);
void hf_close(hf_client *); /* rule 6 */

/* Waits until the store has been reached, so that a daemon can fail at its start. 0, and from
 * then on hf_client_caps is what the server can do; HF_EUNREACHABLE with the last reason when
 * the time is over; at once HF_EAUTH, HF_ENOTSUP, HF_EVERSION ... if the store refuses this
 * client for good. wait_ms 0 only asks. local: is always reached. */
int hf_connect(hf_client *, int64_t wait_ms, hf_error *);

/* The first half of an orderly end; any thread, any callback, any signal handler. From now
 * on nobody waits and nothing new begins: acquires, looks, lists, evictions, watches,
 * hf_connect and hf_lease_wait are HF_ECLOSED, those that wait as well as new ones (a started
 * one is told so in its callback). What is held stays held and renewed, and the other calls
 * on a lease work, until hf_release or hf_close. May be repeated, but not once hf_close has
 * been called. 0, HF_EINVAL, HF_EFORKED. */
int hf_client_stop(hf_client *);

/* Loads the modules for these URL schemes now ("redis tls"): before chroot or seccomp. */
int hf_preload(const char *schemes, hf_error *);

uint32_t hf_client_caps(const hf_client *);    /* HF_CAP_* */
const char *hf_client_url(const hf_client *);  /* without secrets */

/* ---- requests ----------------------------------------------------------------------- */

#define HF_FOREVER INT64_MAX /* wait_ms; 0 or less: do not wait */

enum { HF_MUTEX = 0, HF_READ = 1, HF_WRITE = 2, HF_PERMITS = 3 }; /* MUTEX is WRITE */

enum {
    HF_BARGE = 1u << 0,        /* enter past the queue when there is room */
    HF_NO_RENEW = 1u << 1,     /* the lease ends at its ttl unless hf_lease_renew is called */
    HF_NEED_DEADLINE = 1u << 2 /* refuse a store whose check is not certain */
};

/* Re-entry (G9). A request for a lock that its owner holds already enters that hold again: a
 * further handle, released as any other. Of such a request mode, owner, wait and cancel count.
 * The hold keeps its ttl and its note. It has one end, so max_hold_ms is HF_EINVAL, and so is
 * HF_NO_RENEW that says otherwise than the hold's own. */
#define HF_OWNER_CALL 0u            /* a new owner for each acquire: never reentrant */
#define HF_OWNER_THREAD UINT64_MAX  /* the calling thread */

typedef struct hf_request { /* all but name and wait; NULL: an exclusive, renewed lock */
    uint32_t size;          /* sizeof(hf_request) */
    uint32_t mode;          /* HF_MUTEX, HF_READ, HF_WRITE, HF_PERMITS */
    uint32_t flags;         /* HF_BARGE ... */
    uint32_t permits;       /* HF_PERMITS: how many, 1 to capacity; else 0 */
    uint32_t capacity;      /* HF_PERMITS: of the whole line, up to 2^31; else 0 */
    uint32_t reserved;      /* 0 */
    int64_t ttl_ms;         /* 0: the client's. Below what the store can do: HF_ENOTSUP */
    int64_t max_hold_ms;    /* 0: none. Then the place is given up and the lease is lost */
    uint64_t owner;         /* HF_OWNER_CALL, HF_OWNER_THREAD or a number of yours (G9) */
    const char *note;       /* up to 1,024 bytes of UTF-8, shown to whoever looks */
    hf_cancel *cancel;      /* ends the wait with HF_ECANCELED when fired */
} hf_request;
#define HF_REQUEST_INIT { sizeof(hf_request), 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL }
#ifndef __cplusplus
#define HF_REQUEST(...) (&(hf_request){ .size = sizeof(hf_request), __VA_ARGS__ })
#endif

/* ---- locks -------------------------------------------------------------------------- */

/* Takes a place in the line of `name` (1 to 512 bytes of UTF-8) and waits for the grant.
 * 0 with *ret; HF_EBUSY (did not want to wait), HF_ETIMEDOUT, HF_ECANCELED, HF_EDEADLK,
 * HF_EMISMATCH, HF_ENOTSUP, HF_EINVAL, HF_EUNREACHABLE ... A failed call leaves nothing in
 * the line (G7).
 * There is no upgrade: HF_WRITE inside HF_READ of the same owner, or in a blocking call of the
 * same thread, is HF_EDEADLK at once, because two readers who both wanted it would wait for
 * each other for ever. Take HF_WRITE first and hf_lease_downgrade() it when reading is enough;
 * or release, acquire HF_WRITE, and read again: somebody may have written in between.
 *     hf_acquire(c, "jobs/42", HF_FOREVER, NULL, &lease, &err);
 *     hf_acquire(c, "jobs/42", 0, HF_REQUEST(.mode = HF_READ, .note = "report"), &lease, NULL);
 */
int hf_acquire(hf_client *, const char *name, int64_t wait_ms, const hf_request *,
               hf_lease **ret, hf_error *);

/* All of them or none, as one lease. Taken in the order of their bytes, so that two callers
 * cannot block each other; a name given twice counts once. HF_ELOST: one was lost while
 * waiting for another. */
int hf_acquire_all(hf_client *, const char *const *names, size_t n, int64_t wait_ms,
                   const hf_request *, hf_lease **ret, hf_error *);

/* Gives the place up and admits the next. Consumes the handle whatever it returns: 0;
 * HF_ELOST it had been lost before; HF_EUNKNOWN still being settled behind the scenes;
 * HF_ECLOSED it was given up by hf_close. Returns when an on_change callback of this lease
 * that runs in another thread has returned. In a callback it waits for nothing, and 0 only
 * means that the store will be told, when the callback has returned at the latest. */
int hf_release(hf_lease *, hf_error *);

/* Gives the handle up but leaves the place taken for `keep_ms` from now, also beyond the ttl
 * and the end of this process. HF_ENOTSUP, HF_EINVAL, and HF_EBUSY if the hold has other
 * handles: nothing changed, the handle is still yours; else as hf_release. HF_EUNKNOWN: the
 * answer came only when the lease would have been over: perhaps nothing is kept. */
int hf_release_after(hf_lease *, int64_t keep_ms, hf_error *);

/* Acquire, call, release. *ret_body is what the body returned; the result is that of the
 * acquire, else HF_ELOST if the lease was lost while the body ran. The body must return: an
 * exception or a longjmp out of it ends the program or leaves the lock held (C++: with() of
 * holdfast.hpp). */
int hf_with(hf_client *, const char *name, int64_t wait_ms, const hf_request *,
            int (*body)(hf_lease *, void *user), void *user, int *ret_body, hf_error *);

/* ---- leases ------------------------------------------------------------------------- */

enum { HF_HELD = 0, HF_AT_RISK = 1, HF_LOST = 2 }; /* at risk: renewal overdue, or broken */

/* 0: held, and the store cannot yet have given the place to another (G1); else HF_ELOST, in
 * a forked child HF_EFORKED. No lock, no system call; any thread, any signal handler. */
int hf_lease_check(const hf_lease *);
int hf_lease_state(const hf_lease *);             /* HF_HELD, HF_AT_RISK, HF_LOST */
int64_t hf_lease_remaining_ms(const hf_lease *);  /* until check says lost; never negative */

/* The ttl that the store really gave: a server may give less than was asked for (ZooKeeper
 * cuts the time-out of a session to its own limits, also when the session is attached to
 * another server). Several names: the least. A lost lease: the last one. */
int64_t hf_lease_ttl_ms(const hf_lease *);

uint64_t hf_lease_fence(const hf_lease *);        /* several names: of the first in byte order */
uint64_t hf_lease_fence_of(const hf_lease *, const char *name); /* 0: not in this lease */
const char *hf_lease_name(const hf_lease *);      /* several names: the first by bytes */
size_t hf_lease_count(const hf_lease *);          /* how many names it has */
const char *hf_lease_name_at(const hf_lease *, size_t i); /* by bytes; NULL beyond the end */

/* How the place is held: HF_READ, HF_WRITE or HF_PERMITS. HF_READ after a downgrade; HF_WRITE
 * for a handle that has re-entered an exclusive hold, whatever it asked for. Several names:
 * HF_WRITE only if all are held exclusively. */
int hf_lease_mode(const hf_lease *);
uint32_t hf_lease_permits(const hf_lease *);      /* HF_PERMITS: how many; else 0 */

/* Sleeps until the lease is lost (HF_ELOST) or the time is over (0), and drives the client
 * meanwhile. At risk is not lost. HF_ECLOSED (stop, close), HF_EREENTRANT ...
 * No other thread may release the lease meanwhile. */
int hf_lease_wait(hf_lease *, int64_t wait_ms, hf_error *);

/* A descriptor that is readable while the state is not HF_HELD. Made at the first call, the
 * lease's own: do not read or close it. */
int hf_lease_fd(hf_lease *, hf_error *);

/* Tells each change of state, and the present one if it is not HF_HELD. One callback per
 * lease; NULL ends it. Where it runs: rule 5. When this call has returned, and when
 * hf_release has, the callback that was there before does not run any more; so do not hold
 * a mutex then that the callback takes. (Inside a callback neither of them waits.) HF_ESYS: no
 * thread could be made. */
int hf_lease_on_change(hf_lease *, void (*cb)(hf_lease *, int state, void *user), void *user,
                       hf_error *);

/* Changes. Of several names each is tried, whatever becomes of the others; the result is the
 * first failure. HF_EBUSY: another change of the same hold is under way. HF_EUNKNOWN: no answer
 * in time; the store may or may not have done it. HF_ELOST, HF_ENOTSUP ...
 * With HF_NO_RENEW: counts the ttl anew from now; ttl_ms 0: as before. */
int hf_lease_renew(hf_lease *, int64_t ttl_ms, hf_error *);

/* Exclusive to shared; nobody gets between, the fence stays. HF_EBUSY with several handles. */
int hf_lease_downgrade(hf_lease *, hf_error *);
int hf_lease_note(hf_lease *, const char *note, hf_error *);

/* From now on the lease belongs to this owner (HF_OWNER_THREAD: the calling thread), for
 * reentrancy and for deadlock detection: call it after handing a lease to another thread.
 * HF_EBUSY if one of its holds has other handles: they would change their owner, too. */
int hf_lease_adopt(hf_lease *, uint64_t owner, hf_error *);

/* ---- cancel tokens ------------------------------------------------------------------- */

int hf_cancel_new(hf_cancel **ret, hf_error *);
void hf_cancel_fire(hf_cancel *);  /* any thread, any signal handler; stays fired */
void hf_cancel_reset(hf_cancel *);
void hf_cancel_free(hf_cancel *);  /* not while a call uses it */

/* ---- looking ------------------------------------------------------------------------ */

/* HF_FREE: nobody holds it. HF_SHARED: readers hold it, or some permits of a semaphore are
 * taken and at least one is left. HF_TAKEN: held exclusively, or all permits are taken. */
enum { HF_FREE = 0, HF_SHARED = 1, HF_TAKEN = 2 };

/* One of these, or an error. One small request, whatever the length of the queue. A snapshot to
 * be shown, never a reason to go ahead: it may be over before you read it. */
int hf_name_state(hf_client *, const char *name, hf_error *);

/* One line with all its tickets; a name that nobody uses gives an empty list. */
int hf_look(hf_client *, const char *name, hf_list **ret, hf_error *);

/* The lines whose name starts with prefix (NULL or "": all), in order, at most limit (0: no
 * limit), without their tickets. */
int hf_ls(hf_client *, const char *prefix, size_t limit, hf_list **ret, hf_error *);
void hf_list_free(hf_list *);

size_t hf_list_count(const hf_list *);
const hf_line *hf_list_at(const hf_list *, size_t i); /* NULL beyond the end */

const char *hf_line_name(const hf_line *);
int hf_line_mode(const hf_line *);             /* HF_WRITE: a lock; HF_PERMITS */
uint32_t hf_line_capacity(const hf_line *);    /* HF_PERMITS: N; a lock: 0 */
size_t hf_line_holders(const hf_line *);
size_t hf_line_waiters(const hf_line *);
int64_t hf_line_oldest_ms(const hf_line *);    /* age of the oldest hold; -1: none */
size_t hf_line_tickets(const hf_line *);       /* in this snapshot: hf_look only */
const hf_ticket *hf_line_ticket(const hf_line *, size_t i); /* holders first, then the queue */

const char *hf_ticket_id(const hf_ticket *);   /* names it for hf_evict */
uint64_t hf_ticket_fence(const hf_ticket *);   /* 0: waits, or the store does not tell it */
uint32_t hf_ticket_position(const hf_ticket *);/* 0: holds; 1: the head of the queue */
int hf_ticket_mode(const hf_ticket *);         /* HF_READ, HF_WRITE, HF_PERMITS */
uint32_t hf_ticket_permits(const hf_ticket *); /* HF_PERMITS: how many; else 0 */
const char *hf_ticket_owner(const hf_ticket *);/* "" if it belongs to nobody in particular */
const char *hf_ticket_host(const hf_ticket *);
int64_t hf_ticket_pid(const hf_ticket *);
int64_t hf_ticket_age_ms(const hf_ticket *);   /* since it was granted, or joined */
int64_t hf_ticket_expires_ms(const hf_ticket *); /* from the snapshot on; -1: not known */
int hf_ticket_broken(const hf_ticket *);       /* 1: marked by hf_evict, ends at its expiry */
int hf_ticket_kept(const hf_ticket *);         /* 1: left by hf_release_after: has no owner, ends then */
const char *hf_ticket_note(const hf_ticket *);

enum { HF_EVICT_NOW = 1u << 0 };

/* Breaks that one ticket or nothing (HF_ENOENT). By default it only ends its renewal: the
 * owner is told at once and the line moves at its expiry (a place that hf_release_after
 * left has no owner any more and ends at once). HF_EVICT_NOW admits the next at
 * once; from then on only the fence protects the resource. A ticket that waits loses its
 * place, in both cases: its call fails with HF_EEVICTED, and it does not join again. */
int hf_evict(hf_client *, const char *name, const char *ticket_id, uint32_t flags,
             hf_error *);

#ifdef __cplusplus
}
#endif
#endif
