/* seam.h: the seam between the core and its drivers, and all that both must know.
 *
 * The core decides (time-outs, retries, renewal, validity, reentrancy, late grants,
 * deadlock walk, loss grades); a driver only translates verbs into its store's terms and
 * answers with events. Everything here happens under the client's lock, on whichever thread
 * drives.
 *
 * Rules
 *  1 An event may be raised inside the verb that causes it (local does); the core calls no
 *    verb but `stop` inside an event, it queues.
 *  2 `join` is repeatable: a token that is already in line answers its present place and
 *    never makes a second ticket. `leave` may come at any time after `join`, also before
 *    any answer; the driver then makes sure that a join on the wire leaves nothing, and
 *    ends in ev_left.
 *  3 After ev_left, ev_gone, ev_done (no follow) and `close` nothing more comes about that
 *    object and the driver has forgotten it. Every `leave` ends in ev_left, also while the
 *    store is down: ev_left(HF_EUNKNOWN) means that it could not be settled now; the core
 *    calls `leave` again (of a ticket the driver has forgotten) until the ticket is out by
 *    its ttl. ev_left(HF_EUNREACHABLE): it had no answer, and what was sent before it may
 *    still be done; then the core calls `leave` again until one has an answer. It calls
 *    `leave` after ev_gone without a retry, too, if the ticket may stand in line: it
 *    waited, an earlier join had no answer, or the reason is HF_EREPLICAS (it was granted,
 *    and that is not safe) or HF_ENOMEM (for the answer, perhaps). ev_dead does not forget
 *    the tickets on that life: the core calls `leave` for each.
 *  4 `sent_at` is taken before the bytes go out.
 *  5 Drivers hold no timer but those of their own protocol.
 *  6 DOWN is not loss. A driver raises it before it answers what a lost connection leaves
 *    unanswered: after DOWN, and if it ends with HF_EUNREACHABLE, an unsettled ev_left lets
 *    a release wait for up to connect_timeout; else the release would end at once. After UP
 *    the core repeats what was unanswered (renew for holders and waiters, leave for
 *    leavers, join for joiners, amend); before it reports UP the driver makes old requests
 *    impossible (G7). Looks, cells and evictions that DOWN leaves unanswered the driver
 *    ends with ev_done(HF_EUNREACHABLE). A store of several servers may lose one of them
 *    and stay up: what is asked of that one has no answer (a leave: HF_EUNREACHABLE). When
 *    it is back the driver makes old requests impossible there, too, and raises ev_back,
 *    which is UP for those tickets only that it names. It must name every ticket of which
 *    something had no answer since the last UP or ev_back.
 *  7 The safety look is `renew` of a waiting life: besides ev_alive it may answer
 *    ev_granted, ev_waiting or ev_gone for the tickets on it. `look` is inspection only and
 *    never moves an expiry; it must not be older than its call (the deadlock walk rests on
 *    that), and names the line's capacity in every row. A renewal that cannot be made now
 *    is simply not answered; the core repeats it.
 *  8 A grant never changes a ticket's expiry; only its owner's own requests do (G1).
 *  9 The thread that drives changes from call to call. A library that must stay on one
 *    thread gets a thread of its driver's own, which tells ours by an eventfd.
 * 10 `shut` comes when every leave is settled, or there is no time to wait for the rest.
 *    Only `flush` and `close` follow; `close` may come before ev_shut. A driver that cannot
 *    reach its store raises ev_shut at once.
 * 11 A look or cell with `follow` is asked again and again until `stop`, which the core
 *    calls after an error, too: after ev_changed, at its `again_at`, and after UP, because
 *    something may have changed meanwhile. From its first call until `stop` the driver
 *    raises ev_changed whenever what it answered may have changed since it was read, also
 *    while the next answer is under way. HF_EUNREACHABLE does not end a follow. A cell's
 *    verb is done once; then it is CELL_GET.
 *
 * Times: names ending in _at are microseconds on CLOCK_BOOTTIME (env->now); durations end
 * in _ms.
 */
#ifndef HF_SEAM_SEAM_H
#define HF_SEAM_SEAM_H

#include "loop/env.h"
#include "util/error.h"
#include "util/list.h"
#include "util/map.h"

#include <holdfast/holdfast.h>
#include <stdbool.h>
#include <stdint.h>

struct client; /* the core's; a driver only hands it back */
struct store;

/* ---- what the outside gives ------------------------------------------------------ */

struct url_param {
    char *key, *value;
};

struct url_host {
    char *host;    /* without brackets */
    uint16_t port; /* 0: not given */
};

struct url { /* every part percent-decoded; absent parts are NULL (path: "") */
    char *scheme, *user, *password, *path; /* path with its leading slash, if any */
    struct url_host *hosts;
    size_t nhosts;
    struct url_param *params; /* without those that the core has taken */
    size_t nparams;
    char *ns;           /* namespace=; "" if none */
    int64_t ttl_ms;     /* ttl=; 0: not given */
    int64_t connect_ms; /* connect_timeout= */
    int64_t spin_us;    /* spin=, as hf_options.spin_us; 0: auto, or not given */
    bool existing;      /* of the call: do not make a store that is not there: HF_ENOENT */
    char *shown;        /* the whole URL without secrets */
};

/* The value of a parameter or NULL. hf__url_known refuses every key that is not among the
 * space-separated words of `keys`. */
const char *hf__url_param(const struct url *, const char *key);
int hf__url_known(const struct url *, const char *keys, hf_error *);

/* ---- what stands in a line ------------------------------------------------------- */

#define HF_FULL                                                                            \
    ((int64_t)1 << 31) /* capacity of a lock, and weight of an exclusive ticket */
enum { HF_TOKEN = 16, HF_NAME_MAX = 512, HF_NOTE_MAX = 1024, HF_HINTS_MAX = 16 };

enum line_kind { LINE_LOCK = 0, LINE_PERMITS = 1 };

struct owner { /* both 0: belongs to nobody */
    uint64_t process, number;
};

enum life_kind {
    LIFE_OWN,  /* of one ticket; the core's */
    LIFE_WAIT, /* the waiting tickets of one client, line and ttl; the driver's */
    LIFE_WIDE  /* session, lease, connection; the driver's */
};

/* What the store watches to see that an owner lives. `join` hangs the ticket on one; the
 * core renews lives, never tickets; a dead life loses every ticket on it. */
struct life {
    struct store *store;
    enum life_kind kind;
    bool asked, marked, dead, risk_told, lost_told; /* the core's own */
    int64_t ttl_ms;                                 /* asked for at each renewal */
    int64_t sent_at;     /* sending of the last answered request that renewed it; 0: none */
    int64_t given_ms;    /* the ttl that the store gave then */
    struct list tickets; /* ticket.on_life */
    size_t ntickets;
    uint64_t drv[2]; /* the driver's own */
    /* the core's own */
    struct timer timer;
    struct list due;
    int64_t tried_at; /* sending of the last renewal, answered or not */
    int64_t recheck_at;
    int64_t asked_at; /* since when ttl_ms is asked for; 0: since the join */
};

struct ticket {
    struct store *store;
    struct life *life;
    struct life *own; /* for LIFE_OWN; NULL: store.shares_lives, and none is needed */
    struct list on_life;
    const char *name;             /* without namespace; NUL-terminated */
    uint16_t name_len, hints_len; /* of `name`; of `hints` */
    uint8_t kind;                 /* enum line_kind */
    bool barge, try_only;
    unsigned char token[HF_TOKEN];
    int64_t weight, capacity;
    int64_t ttl_ms, keep_ms; /* keep_ms > 0 with leave: let the store end it then */
    const char *note;        /* "" if none */
    struct owner owner;
    const char *hints; /* names the owner already holds: "a\0b\0"; at most 16 */
    uint64_t fence;    /* set by ev_granted */
    union {            /* the driver's own */
        struct {
            uint64_t drv[3];
            struct map_node drv_node; /* kit/seats.h */
        };
        uint64_t drv_all[6];
    };
    void *drv_ptr;
};

/* Of a LIFE_OWN: the ticket that hangs on it, or NULL. A driver is asked to renew lives
 * that have one. */
static inline struct ticket *life_ticket(const struct life *l)
{
    struct list *first = list_first(&l->tickets);

    return first ? container_of(first, struct ticket, on_life) : NULL;
}

/* Lives. hf__hang moves a ticket onto a life (from another, if it hangs on one). A
 * LIFE_WAIT or LIFE_WIDE life belongs to the driver, which frees it when no ticket is on
 * it. */
void hf__hang(struct ticket *, struct life *);
/* NULL: no memory */
struct life *hf__life_new(struct store *, enum life_kind, int64_t ttl_ms);
void hf__life_free(struct life *); /* takes NULL */

/* ---- times that core and drivers agree upon -------------------------------------- */

/* How much faster than ours the clock of a store may run while a ttl passes (G1): 1 % and
 * 2 ms. */
static inline int64_t drift_us(int64_t ttl_ms)
{
    return ttl_ms * 10 + 2000;
}

/* A life is renewed so often in each ttl; one renewal may fail before its holds are at
 * risk. tools/make-scripts puts the number into the scripts. */
enum { RENEWALS = 3 };

static inline int64_t renewals_us(int64_t ttl_ms, int n) /* the time that n of them take */
{
    return ttl_ms * 1000 * n / RENEWALS;
}

/* ---- looking, cells -------------------------------------------------------------- */

struct row {          /* strings are valid during ev_row */
    const char *name; /* without namespace */
    size_t name_len;
    enum line_kind kind;
    int64_t capacity;
    uint64_t holders, waiters;
    int64_t oldest_ms; /* age of the oldest hold; -1: none */
    bool has_ticket;   /* false: a row of a list, only the above */
    unsigned char token[HF_TOKEN];
    uint64_t fence;    /* 0: waits */
    uint32_t position; /* 0: holds */
    int64_t weight;    /* of a brief look: the sum of the holders' */
    struct owner owner;
    const char *host; /* NUL-terminated */
    int64_t pid;
    int64_t age_ms, expires_ms; /* -1: not known */
    /* the store's time or number of joining: for choosing a victim only */
    int64_t joined;
    bool broken;
    bool kept;        /* left by a leave with keep_ms: nobody's, nobody renews it */
    const char *note; /* NUL-terminated */
    const char *hints;
    size_t hints_len;
};

struct look {
    struct store *store;
    const char *name; /* the line, or with `list` the prefix */
    size_t name_len;
    bool list, follow;
    bool brief;   /* of one line: one row without a ticket, or none if nobody holds; one
                     request (to each   node), which may be a little older than the call */
    size_t limit; /* of lines in a list; 0: none. The first by name, in any order; if more
                     rows come the core drops the last of them */
    unsigned char token[HF_TOKEN]; /* evict, front */
    /* Hints for cheaper answers; more may be answered than asked for. */
    bool no_notes;   /* notes may be left out */
    bool front;      /* only `token` and what stands in front of it */
    bool now;        /* evict: at once; else only end its renewal */
    int64_t keep_ms; /* evict: > 0: end nothing, but let a kept ticket last for so long from
                        now; HF_ENOENT if it is not a kept one. Only with HF_CAP_KEEP */
    bool orphan;     /* with keep_ms: one that is held, too; it becomes a kept one */
    int64_t again_at;     /* out, follow: ask again then; LOOP_NEVER, as the core sets it:
                             ev_changed will tell everything */
    struct list drv_node; /* the driver's own (init by the core) */
    void *drv_ptr;
    void *core;
};

enum cell_verb { CELL_GET, CELL_PUT, CELL_ADD, CELL_DEL };
enum { HF_CELL_MAX = 1024 };

/* One small durable record per name beside its line. PUT and DEL with if_version: only if
 * the present version is that one (0: only if there is none), else HF_EBUSY with the
 * present state; if_any ignores it. ADD adds `add` to a decimal number (absent: 0). ttl_ms
 * > 0: PUT and ADD let it expire then. Every change gives a greater version, also over DEL
 * and expiry. */
struct cell {
    struct store *store;
    enum cell_verb verb;
    const char *name;
    size_t name_len;
    bool if_any, follow; /* follow: rule 11 */
    uint64_t if_version;
    int64_t add, ttl_ms;
    /* in: the value to put; out: the present value. version 0: there is none */
    unsigned char value[HF_CELL_MAX];
    size_t value_len;
    uint64_t version;
    int64_t number;   /* out, ADD: the sum */
    int64_t again_at; /* as in a look */
    struct list drv_node;
    void *drv_ptr;
    void *core;
};

/* ---- stores and drivers ---------------------------------------------------------- */

struct store { /* a driver's own struct starts with it */
    const struct hf_driver *driver;
    struct env *env;
    struct client *client; /* set by the core after open, before any verb */
    uint32_t caps;         /* HF_CAP_*; set by open or before the first UP */
    int64_t least_ttl_ms, most_ttl_ms;
    int64_t least_cell_ttl_ms, most_cell_ttl_ms; /* with HF_CAP_CELL_EXPIRY */
    size_t name_max;
    char *shown;      /* set by open, taken by the core: the URL without secrets and with
                         what was left to the driver; NULL: it left nothing */
    bool starts_down; /* set by open: verbs wait for the first UP */
    /* set by open: every ticket hangs on a LIFE_WIDE, unless it was marked */
    bool shares_lives;
    bool awaits; /* the driver's own: it has asked something by itself, and the answer
                    should be read when it comes. The keeper drives until then */
    /* descriptors whose last close tells the store that the process died */
    int life_fds[2];
    size_t nlife_fds;
};

struct hf_driver {
    const char *name;    /* "local" */
    const char *schemes; /* "redis rediss redis+unix ..." */
    int (*open)(struct store **, const struct url *, struct env *, hf_error *);
    /* Ends the session with the store, so that nothing of this client is left there;
     * ev_shut when the store has answered. May be NULL: there are no sessions. */
    void (*shut)(struct store *);
    void (*close)(struct store *); /* frees all, waits for nothing; no event follows */
    void (*join)(struct store *, struct ticket *);
    void (*leave)(struct store *, struct ticket *);
    /* of a held ticket: note, owner, smaller weight; another ttl on a life that others
     * share: onto one that was begun or renewed after this call (G1: the core counts the
     * new ttl from the call) */
    void (*amend)(struct store *, struct ticket *);
    void (*renew)(struct store *, struct life *const *, size_t n);
    void (*look)(struct store *, struct look *);
    void (*cell)(struct store *, struct cell *);
    void (*evict)(struct store *, struct look *);
    void (*stop)(struct store *, struct look *, struct cell *); /* no ev_done follows */
    void (*flush)(struct store *); /* after verbs: send what they wrote; may be NULL */
    /* make store->life_fds now; 0 or HF_E*: HF_EBUSYSTORE: ask again; with HF_ESYS errno
     * says why; may be NULL */
    int (*life_fds)(struct store *);
    /* Why a join has no answer yet, if the driver knows: HF_EBUSYSTORE and the text, or 0;
     * may be NULL. Its call is about to end by its own limit. */
    int (*stalled)(struct store *, const struct ticket *, hf_error *);
    /* in the child: free memory, touch nothing; may be NULL */
    void (*forked)(struct store *);
    void (*detail)(char *, size_t); /* for `holdfast backends`; may be NULL */
    /* What would an administrator run so that this store can be used? Lines, malloc'ed,
     * without a password; NULL: see the error. May be NULL: nothing. */
    char *(*admin)(const struct url *, hf_error *);
};

/* The events by short names; the symbols themselves stay in our name space. */
#define ev_waiting hf__ev_waiting
#define ev_granted hf__ev_granted
#define ev_left hf__ev_left
#define ev_gone hf__ev_gone
#define ev_amended hf__ev_amended
#define ev_alive hf__ev_alive
#define ev_dead hf__ev_dead
#define ev_marked hf__ev_marked
#define ev_risk hf__ev_risk
#define ev_row hf__ev_row
#define ev_progress hf__ev_progress
#define ev_done hf__ev_done
#define ev_changed hf__ev_changed
#define ev_store hf__ev_store
#define ev_back hf__ev_back
#define ev_shut hf__ev_shut

enum store_state { STORE_UP, STORE_DOWN };

/* position: 1 is the head of the queue; 0: not known, or as told before. recheck -1: none
 */
void ev_waiting(struct ticket *, uint32_t position, int64_t recheck_ms);
/* sent_at: of the owner's own last answered request (its join, or its life's sent_at) */
void ev_granted(struct ticket *, uint64_t fence, int64_t sent_at);
void ev_left(struct ticket *, int rc);
/* retry_ms >= 0: the ticket is not in line, for a reason that passes: HF_ELOST (expired;
 * 0), a lost race, a connection of its own that was refused or broke. What was held is
 * lost. Who waits joins again after retry_ms, at the end and with another token; the driver
 * spreads retry_ms if many may be told at once. If the caller's limit passes before that,
 * the call fails as it does for any limit (HF_ETIMEDOUT; a try, whose limit is
 * connect_timeout: HF_EUNREACHABLE), and the text of `err` is in its error. -1: the call
 * ends with `why`: HF_EBUSY (a try), HF_EEVICTED (somebody has taken it out of the queue,
 * of which the driver is sure: a hold is lost then), HF_EMISMATCH ... */
void ev_gone(struct ticket *, int why, int64_t retry_ms, const hf_error *);
void ev_amended(struct ticket *, int rc);
void ev_alive(struct life *, int64_t sent_at, int64_t ttl_ms); /* the ttl it really gave */
void ev_dead(struct life *);
/* Of a held ticket: evict has marked it. It stays held until its deadline and is renewed no
 * more. If it hangs on a life that others share, the core gives it its own; without memory
 * for that it is lost at once. */
void ev_marked(struct ticket *);
void ev_risk(struct life *); /* nobody answers just now; ends with the next ev_alive */
void ev_row(struct look *, const struct row *);
/* of a list: the store has answered something; the time limit begins anew */
void ev_progress(struct look *);
void ev_done(struct look *, struct cell *, int rc, const hf_error *);
void ev_changed(struct look *, struct cell *); /* of a follow: it is to be asked again */
void ev_store(struct store *, int state, const hf_error *);
/* A part of a store that is up has come back: rule 6. Nothing happens while it is down. */
void ev_back(struct store *, bool (*concerns)(struct store *, const struct ticket *));
void ev_shut(struct store *);

/* ---- modules --------------------------------------------------------------------- */

struct hf_module {        /* the one symbol of a module, named hf_module */
    const char *build_id; /* HF_BUILD_ID */
    const struct hf_driver *drivers[4];
    const struct tls_module *tls; /* of the module tls; else NULL */
};

#endif
