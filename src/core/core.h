/* core.h: the objects of the core and what its files offer each other and the layer above.
 *
 * Everything here runs under the client's lock, on whichever thread drives; the core itself
 * has no lock, no thread and no descriptor. The exceptions are marked "any thread": what
 * hf_lease_check reads.
 *
 * client  one opened store; owns holds, runs verbs, never inside an event
 * hold    one ticket and what becomes of it: in line, held, leaving
 * lease   a handle on one or more holds, given to the application
 * op      one started operation; done once, with a result
 */
#ifndef HF_CORE_H
#define HF_CORE_H

#include "core/ticket.h"
#include "seam/seam.h"
#include "util/list.h"
#include "util/map.h"
#include "util/pool.h"

#include <holdfast/async.h>
#include <holdfast/tool.h>
#include <stdatomic.h>
#include <stdbool.h>

struct hold;

struct client;

/* What the layer above gives the core: told when something has happened that a thread or a
 * callback of the application waits for. */
struct host {
    void (*op_done)(struct hf_op *);          /* op->done has just become true */
    void (*op_seen)(struct hf_op *);          /* OP_WATCH: op->list or op->rc is new */
    void (*lease_changed)(struct hf_lease *); /* its state may be another than told last */
    bool (*more_comes)(struct client *);      /* do not send yet; may be NULL */
};

/* One opened store. The lists hold work for hf__client_run: events only queue it, because
 * no verb may be called inside an event (seam.h, rule 1). */
struct client {
    struct store *store;
    struct env *env;
    const struct host *host;
    struct url url;
    int64_t ttl_ms; /* for requests that name none */
    /* any thread: what the store can do; final at the first UP */
    _Atomic uint32_t caps;
    _Atomic int64_t least_ttl_ms, most_ttl_ms; /* any thread; likewise */
    struct owner acts_for;                     /* hf_options.owner; both 0: none */
    char *acts_hints;                          /* the names that owner holds: "a\0b\0" */
    size_t acts_hints_len;
    bool up, stopped, closing, closed, running;
    bool known;           /* the store was up: caps and limits are the server's */
    bool shut, shut_done; /* the driver was told to end its session, and has */
    hf_error down;        /* why the store is down */
    struct list holds;    /* hold.node: all that are not OUT, or have handles */
    struct map by_place;  /* hold.by_place: HELD ones that belong to somebody */
    uint64_t hash_key[2]; /* random: names are chosen by strangers */
    struct map by_owner;  /* hold.by_owner: the same ones */
    /* hold.by_owner: WAITING ones of owners that may act elsewhere */
    struct map waiting;
    struct list todo;               /* hold.todo_node: with verbs to call */
    struct list due;                /* life.due: to renew */
    struct list walks;              /* deadlock walks that read */
    struct list asks;               /* looks and cells to start: ask.todo_node */
    struct list follows;            /* ask.on_follows: started and not stopped */
    struct list connects;           /* OP_CONNECT: op.on_connects */
    const volatile uint32_t *alive; /* any thread; 0 in a forked child */
    size_t unsettled;               /* holds in LEAVING */
    size_t asked;                   /* lives whose renewal is unanswered */
    /* last request that may have kept a shared waiting life alive */
    int64_t waits_kept_at;
    int64_t up_at; /* the last UP */
    /* spares: an acquire and its release need no allocator */
    struct pool lease_pool, hold_pool;
};

/* ---- holds ----------------------------------------------------------------------- */

/* At most one amend of a hold is on its way, so that no answer is taken for another's. */
enum amend_state {
    AMEND_NONE,
    AMEND_SENT, /* amend was called and is not answered; UP repeats it */
    AMEND_AGAIN /* besides, something has changed since: call it once more when it is
                   answered */
};

/* A ticket with its timers and handles. Its state moves by the table in ticket.c
 * (hf__hold_step). It lives until it is OUT and no lease or operation has it. */
struct hold {
    struct ticket t;
    struct client *client;
    enum ticket_state state;
    unsigned todo; /* DO_JOIN, DO_LEAVE: verbs to call; HOLD_AMEND */
    struct list node, todo_node;
    union {
        struct map_node by_owner;  /* HELD, WAITING */
        struct {                   /* else */
            struct hf_op *leaver;  /* the release that waits for it to be out */
            struct list on_leaver; /* its list: op.leaving */
        };
    };
    bool indexed : 1;    /* by_place and by_owner */
    bool in_waiting : 1; /* by_owner of client.waiting */
    bool again : 1;      /* DO_AGAIN */
    bool reentrant : 1;  /* an owner was named: G9 */
    bool no_renew : 1;
    bool lost : 1;
    bool joined_again : 1; /* join was called before with this token, and had no answer */
    /* LEAVING: it may be on a waiting life that it shares with others */
    bool queued : 1;
    bool leave_sent : 1; /* leave was called and is not answered */
    /* HELD: the store no longer has the HF_CAP_DEADLINE that it needs */
    bool uncertain : 1;
    uint8_t amend;     /* enum amend_state */
    uint16_t stepping; /* inside hf__hold_step: not to be freed */
    uint16_t pins;     /* leases that a callback has just now */
    uint64_t thread;   /* the thread that acquired it by a blocking call without owner; 0 */
    union {
        int64_t max_hold_ms; /* until it is HELD; 0: no limit */
        int64_t max_at;      /* HELD: its end; LOOP_NEVER */
    };
    int64_t join_sent_at; /* 0: join was never called with this token */
    int64_t join_ttl_ms;  /* as it joined; t.ttl_ms may have changed since */
    union {      /* ten thousand waiters count: what a hold needs only in some states */
        struct { /* HELD */
            struct map_node by_place;
            int64_t ends_at; /* given up then, whatever the store renews; LOOP_NEVER */
        };
        struct {                /* not HELD */
            int64_t settled_by; /* LEAVING: the store has ended it by then */
            /* why it must join again; NULL: it has been in line since */
            char *reason;
        };
    };
    struct timer timer;    /* WAITING: walk; HELD: max_hold; LEAVING, RETRYING: again */
    struct hf_op *op;      /* the acquire that wants it */
    struct hf_op *changer; /* the OP_AMEND or OP_RENEW that waits for its answer */
    struct lease_part *parts;
    union {
        struct walk *walk;     /* not HELD: WAITING, from its first walk on */
        struct ttl_move *move; /* HELD: another ttl that the store has not confirmed */
    };
    _Atomic int64_t until_at; /* any thread: check says held before this */
    uint32_t needs;           /* HF_CAP_*: without them it must not be granted */
    _Atomic uint32_t grade;   /* any thread: HF_HELD ... */
    _Atomic int64_t given_ms; /* any thread: the ttl that the store gave, while held */
    /* behind it: its own life, if it has one from the beginning; name NUL note NUL */
};

enum { HOLD_AMEND = 1 << 20, HF_HINTS_ROOM = 1024 };

struct acquire_spec { /* hf_request, checked */
    enum line_kind kind;
    int64_t weight, capacity;
    bool barge, no_renew;
    int64_t ttl_ms, max_hold_ms;
    struct owner owner; /* for the walk; for reentrancy if `reentrant` */
    bool reentrant;
    uint64_t thread; /* for the relock rule; 0: none */
    const char *note;
    uint32_t needs; /* HF_CAP_* */
};

struct hold *hf__hold_new(struct client *, const char *name, const struct acquire_spec *);
void hf__hold_step(struct hold *, enum ticket_event, int why, const hf_error *);
void hf__hold_release_memory(struct hold *); /* frees it if it is OUT and nobody has it */
void hf__hold_grade(struct hold *, uint32_t grade);
void hf__hold_run(struct hold *); /* calls one verb that is queued */
/* NULL: nobody waits for it to be out */
void hf__hold_leaver(struct hold *, struct hf_op *);
void hf__ttl_sent(struct hold *);            /* of hold->move, if there is one */
void hf__ttl_amended(struct hold *, int rc); /* the same */
void hf__hold_amend(struct hold *);          /* tell the store note, owner, weight */
/* HELD with HF_NO_RENEW, and its owner does not renew it just now. */
bool hf__hold_by_hand(const struct hold *);
/* A hold without renewal ends by its own life's deadline; where the life is shared by
 * others (a session), the core ends it one ttl after `from`: the grant, or its last renewal
 * by hand. */
void hf__hold_count_anew(struct hold *, int64_t from);
/* given up then, or at the end of max_hold */
void hf__hold_end_at(struct hold *, int64_t at);
bool hf__hold_trusted(const struct hold *); /* of one that was granted: still held */

void hf__held_add(struct hold *); /* became HELD */
void hf__held_remove(struct hold *);
void hf__waiting_add(struct hold *); /* became WAITING */
void hf__waiting_remove(struct hold *);
void hf__hold_walk_in(struct hold *, int64_t ms);
bool hf__hold_walks_within(const struct hold *, int64_t ms); /* it will, so soon */
void hf__hold_adopt(struct hold *, struct owner, bool reentrant);
/* Every name that an owner holds here, until `each` returns false. */
void hf__hold_each(const struct client *, struct owner,
                   bool (*each)(void *user, const char *name), void *user);
/* As many of them as a ticket carries, "a\0b\0"; returns the length. */
size_t hf__hold_hints(const struct client *, struct owner, char hints[HF_HINTS_ROOM]);
/* The hold on this lock that the request would re-enter, or wait for in vain (its own
 * thread's). */
struct hold *hf__hold_find(const struct client *, const char *name,
                           const struct acquire_spec *);

/* Its own life, if it has got one later: that is a block of its own. */
static inline struct life *hold_late_life(const struct hold *h)
{
    return h->t.own == (const struct life *)(h + 1) ? NULL : h->t.own;
}

/* Its note, if it was set later (hf_lease_note): likewise. */
static inline char *hold_late_note(const struct hold *h)
{
    const char *first = h->t.name + h->t.name_len + 1;

    return h->t.note == first ? NULL : (char *)(uintptr_t)h->t.note;
}

static inline struct hold *hold_of(struct ticket *t)
{
    return container_of(t, struct hold, t);
}

/* ---- lives ----------------------------------------------------------------------- */

void hf__life_init(struct life *, struct store *, enum life_kind, int64_t ttl_ms);
void hf__life_end(struct client *, struct life *); /* no timer, not due */
void hf__life_renew(struct life *);                /* now, at the next run */
/* The ttl to ask for from now on. A shorter one counts at once: from its sending the store
 * may end the life that much sooner, whether we hear its answer or not (G1). */
void hf__life_ask(struct life *, int64_t ttl_ms);
void hf__life_plan(struct life *); /* sets its timer for what comes next */
int64_t hf__deadline(int64_t sent_at, int64_t ttl_ms); /* G1: less drift */
/* when we call it lost: a little before */
int64_t hf__until(int64_t sent_at, int64_t ttl_ms);
void hf__unhang(struct ticket *);

/* ---- leases ---------------------------------------------------------------------- */

/* One name of a lease. A hold that is entered again (G9) has a part in each lease on it. */
struct lease_part {
    struct hold *hold;
    struct hf_lease *lease;
    struct lease_part *next, **link; /* hold.parts; link: what points at it, or NULL */
};

static inline bool hold_is_shared(const struct hold *h) /* several leases have it */
{
    return h->parts && h->parts->next;
}

/* What few leases have; of the layers above, freed with the lease. */
struct lease_extra {
    struct hf_lease *lease;
    char *ids;    /* of its tickets, once somebody has asked */
    void *recipe; /* what a recipe keeps with it */
    void (*on_change)(struct hf_lease *, int, void *);
    void *on_change_user;
    struct list changed_node; /* changes to be told */
    int fd;                   /* -1: none */
};

/* The handle of the application. What "any thread" reads of it (hf_lease_check) are the
 * atomics of its holds, which stay until it is released. */
struct hf_lease {
    struct client *client;
    struct lease_extra *extra; /* NULL: nothing */
    uint32_t n;
    unsigned char told; /* the state told last */
    bool given : 1;     /* the layer above: the application has it, and it is counted */
    bool telling : 1;   /* its callback runs */
    bool released : 1;  /* given back: its holds are not its own any more */
    /* and the thread that released it waits for the callback and frees it */
    bool awaited : 1;
    uint16_t runs; /* how often its callback has returned */
    struct lease_part parts[];
};

struct hf_lease *hf__lease_new(struct client *, size_t n);
void hf__lease_end(struct hf_lease *); /* its memory; takes NULL */
/* made at the first call; NULL: no memory */
struct lease_extra *hf__lease_extra(struct hf_lease *);
void hf__lease_extra_free(struct hf_lease *);
void hf__lease_attach(struct hf_lease *, size_t i, struct hold *);
struct hold *hf__lease_detach(struct hf_lease *, size_t i); /* NULL: nothing there */
/* While a callback uses the lease, what it may ask stays valid, even if the lease is
 * released meanwhile.
 */
void hf__lease_pin(struct hf_lease *);
void hf__lease_unpin(struct hf_lease *);
int hf__lease_state(const struct hf_lease *); /* any thread */

/* ---- operations ------------------------------------------------------------------ */

/* Of the layer above: OP_CHANGE, an OP_AMEND or OP_RENEW for each name of a lease;
 * OP_COMPOSITE, whatever a recipe is made of. */
enum op_kind {
    OP_ACQUIRE,
    OP_RELEASE,
    OP_AMEND,
    OP_RENEW,
    OP_ASK,
    OP_WATCH,
    OP_CHANGE,
    OP_CONNECT,
    OP_COMPOSITE
};
/* Which verb of the driver an ask is for. */
enum ask_kind { ASK_LOOK, ASK_EVICT, ASK_CELL };
struct ask;

/* One operation that was started. The core sets `done` once, with rc; then the layer above
 * wakes the thread that waits, or queues the callback. */
struct hf_op {
    struct client *client;
    int rc;
    uint8_t kind; /* enum op_kind */
    /* it wants `seen`, not `callback`; read without the lock, so no bit beside others */
    bool lists;
    bool done : 1;
    bool explained : 1; /* err has the text already */
    bool try_only : 1;
    bool waited : 1; /* a thread waits for it: `waiter` */
    bool queued : 1, running : 1, freed : 1, again : 1; /* the layer above */
    bool part : 1;          /* of the OP_CHANGE or OP_COMPOSITE in `waiter` */
    bool goes_on : 1;       /* it concerns what is held: hf_client_stop does not end it */
    bool lazy_err : 1;      /* err is allocated when there is something to say; free it */
    hf_error *err;          /* filled if rc < 0; may be NULL */
    struct timer timer;     /* the end of its waiting */
    struct hf_lease *lease; /* OP_ACQUIRE: being filled, then the result */
    union {
        struct {           /* OP_ACQUIRE */
            uint32_t next; /* how many of its holds are granted */
            /* of the next one, as the store told it last; 0: not known */
            uint32_t position;
            int64_t position_at; /* when it told that */
            struct all *all;     /* of several names: what is still to come */
        };
        struct {                 /* OP_RELEASE */
            struct list leaving; /* hold.on_leaver: not settled */
            /* with keep_ms: an answer before this proves that it was there */
            int64_t keep_by;
        };
        struct {                  /* OP_AMEND, OP_RENEW */
            struct hold *changes; /* whose changer it is; NULL: none's */
            int64_t began_at;     /* OP_RENEW: what was sent before does not answer it */
        };
        struct { /* OP_ASK, OP_WATCH: op_asks */
            struct ask *ask;
            struct hf_list *list; /* the result */
        };
        struct list on_connects; /* OP_CONNECT: client.connects */
    };
    int64_t end_at; /* when it stops waiting; LOOP_NEVER */
    /* the layer above */
    struct list node;
    union {
        void *waiter; /* a thread's, or the operation that it is part of */
        hf_done *callback;
        hf_seen *seen;
    };
    void *user;
    struct list on_cancel;
};

static inline bool op_asks(const struct hf_op *op)
{
    return op->kind == OP_ASK || op->kind == OP_WATCH;
}

void hf__op_init(struct hf_op *, struct client *, enum op_kind, hf_error *);
void hf__op_end(struct hf_op *, int rc, const hf_error *); /* done */
void hf__op_text(struct hf_op *, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void hf__op_free_names(struct hf_op *);
void hf__op_done_with(struct hf_op *); /* stops its timer */

/* Each starts op and may complete it at once (op->done). A negative result means it was not
 * started; err is filled. */
int hf__acquire(struct hf_op *, const char *const *names, size_t n, int64_t wait_ms,
                const struct acquire_spec *);
/* op may be NULL: nobody waits. 0, or HF_ELOST: it had been lost. The lease is the
 * caller's. */
int hf__release(struct hf_op *, struct hf_lease *, int64_t keep_ms);
int hf__amend(struct hf_op *, struct hold *, const char *note, bool downgrade);
int hf__renew(struct hf_op *, struct hold *, int64_t ttl_ms);
/* What is asked for stands in a look as the driver's verb reads it; its name is copied. */
int hf__ask(struct hf_op *, struct ask *, enum ask_kind, const struct look *, hf_error *);
int hf__cell(struct hf_op *, struct ask *, struct cell *, hf_error *);
/* done when the store is up, or refuses us */
int hf__connect(struct hf_op *, int64_t wait_ms);
void hf__op_connected(struct client *); /* up, or refused: OP_CONNECT */
/* gives up; done with rc. Run the client after it */
void hf__cancel(struct hf_op *, int rc);
int hf__op_stopped(struct hf_op *); /* the client is stopped: HF_ECLOSED, with its text */
void hf__op_wait_ask(struct hf_op *);
void hf__op_wait_store(struct hf_op *); /* for an answer, up to the connect time-out */
void hf__op_seen(struct hf_op *, int rc, const hf_error *); /* OP_WATCH: op->list is new */
void hf__op_progress(struct hf_op *); /* OP_ASK: its limit begins anew */
void hf__op_store_down(struct hf_op *);
void hf__op_granted(struct hf_op *, struct hold *);
/* OP_RELEASE: one more hold is out, or unknown */
void hf__op_settled(struct hf_op *, int rc);
void hf__op_changes(struct hf_op *, struct hold *); /* NULL: none any more */
bool hf__op_renews(const struct hold *);            /* an OP_RENEW waits for its answer */
/* What it waits for just now: one answer of a store that is up; a grant, as the next in
 * line; something that may take any time. */
enum op_awaits { AWAITS_ANSWER, AWAITS_GRANT, AWAITS_LONG };
enum op_awaits hf__op_awaits(const struct hf_op *);
void hf__op_amended(struct hold *, int rc);
void hf__op_renewed(struct hold *);
void hf__op_changer_lost(struct hold *);
void hf__op_refused(struct hf_op *, struct hold *, int why, const hf_error *);

/* ---- asking: looks, evictions, cells --------------------------------------------- */

/* The result of a look or a list: copies, which need neither client nor store any more. */
struct hf_ticket {
    char id[2 * HF_TOKEN + 1], owner[40];
    unsigned char token[HF_TOKEN];
    uint64_t fence;
    uint32_t position, permits;
    int mode, broken, kept;
    bool misfit; /* of another kind or N than its line: about to be withdrawn */
    int64_t pid, age_ms, expires_ms;
    struct owner owner_id;
    int64_t joined, weight;
    char *host, *note, *hints;
    size_t hints_len;
};

struct hf_line {
    char *name;
    size_t name_len;
    int mode;
    uint32_t capacity;
    int64_t full; /* the capacity in weight */
    int64_t held; /* of a brief look: the holders' weight */
    size_t holders, waiters, ntickets, room;
    int64_t oldest_ms;
    struct hf_ticket *tickets;
};

struct hf_list {
    struct hf_line *lines;
    size_t n, room;
};

struct ask { /* a look, an eviction or a cell request on its way */
    enum ask_kind kind;
    struct client *client;
    struct list todo_node;
    bool started, ended, follow;
    bool busy;              /* its verb was called and is not answered */
    bool again;             /* a follow that has changed meanwhile */
    struct list on_follows; /* client.follows */
    struct timer timer;     /* a follow: when it is asked again */
    struct look look;
    struct cell *cell;
    struct hf_list *list; /* being filled */
    int rc;               /* of a row that found no memory */
    /* called at ev_done; takes ask->list over (a follow: again after each change) */
    void (*answer)(struct ask *, int rc, const hf_error *);
    void *user;
    char *name;
};

/* The ask is the caller's; it must stay until `answer` was called (no follow) or
 * hf__ask_stop. */
int hf__ask_look(struct ask *, struct client *, const char *name, size_t len, bool list,
                 size_t limit, bool follow);
void hf__ask_run(struct ask *);  /* calls its verb */
void hf__ask_stop(struct ask *); /* at any time; frees what it owns */
void hf__ask_store_down(struct ask *);
void hf__ask_store_up(struct client *); /* follows are asked again */

/* ---- the deadlock walk (G10) ----------------------------------------------------- */

void hf__walk_plan(struct hold *);    /* it waits: when to look for a deadlock first */
void hf__walk_start(struct hold *);   /* now */
void hf__walk_restart(struct hold *); /* in a second: something has changed */
void hf__walk_stop(struct walk *);    /* takes NULL */

struct knot {  /* the owners that remain when all that can go on are removed */
    bool mine; /* the ticket asked about is part of it */
    unsigned char victim[HF_TOKEN]; /* the waiting ticket that joined last */
    uint64_t signature;             /* of its tickets and their states */
};

/* Pure. HF_ENOMEM, or 0. */
int hf__walk_reduce(const struct hf_list *, const unsigned char me[HF_TOKEN],
                    struct knot *);

/* ---- the client ------------------------------------------------------------------ */

int hf__client_init(struct client *, const struct hf_driver *, const struct url *,
                    const hf_options *, struct env *, const struct host *,
                    hf_error *); /* takes the url over on success */
void hf__client_todo(struct hold *, unsigned verbs);
bool hf__client_refused(const struct client *); /* down, and waiting will not change that */
void hf__client_run(struct client *);           /* calls what is queued; raises events */
void hf__client_stop(struct client *);  /* nothing new is started; what is held stays */
void hf__client_shut(struct client *);  /* gives up all holds, ends all waits */
void hf__client_break(struct client *); /* no verb any more; what is held is lost */
/* No verb comes after it; shut_done tells when the driver has ended its session, too. */
void hf__client_end_session(struct client *);
void hf__client_done(struct client *); /* closes the store */

/* ---- options, names, owners ------------------------------------------------------ */

int hf__check_options(const hf_options *in, hf_options *out, hf_error *);
int hf__check_request(const struct client *, const hf_request *in, bool blocking,
                      struct acquire_spec *out, hf_error *);
/* What the store must be able to do for this; 0, or HF_ENOTSUP with the reason. */
int hf__check_needs(const struct client *, uint32_t needs, int64_t ttl_ms, hf_error *);
int hf__check_name(const struct client *, const char *, hf_error *);
int hf__check_note(const char *, hf_error *);
/* Cells, for so long; 0: for ever. */
int hf__check_cell(const struct client *, int64_t ttl_ms, hf_error *);
int hf__check_keep(const struct client *, int64_t keep_ms, hf_error *);
int hf__check_id(const char *, unsigned char token[HF_TOKEN], hf_error *); /* of a ticket */

/* What sizeof gave in version 0.1, on every ABI. Frozen: programs say these sizes. */
enum {
    HF_OPTIONS_SIZE_0_1 = (2 * 4 + 8 + 3 * sizeof(void *) + _Alignof(hf_options) - 1) /
                          _Alignof(hf_options) * _Alignof(hf_options),
    HF_REQUEST_SIZE_0_1 = 6 * 4 + 3 * 8 + 2 * sizeof(void *),
    HF_BACKEND_SIZE_0_1 = 2 * 4 + 2 * sizeof(void *) + 256
};

/* A structure of the caller's, of the size that the caller's header has, into one of ours;
 * what the caller's lacks is zero. False: shorter than `least`, or not zero beyond what we
 * know. */
bool hf__copy_sized(void *to, size_t known, const void *from, size_t size, size_t least);
/* One of ours, begun by its size, into the caller's, which keeps its own size; what the
 * caller's has beyond ours stays as it is. */
void hf__fill_sized(void *to, uint32_t size, const void *from, size_t known);

/* of the calling thread; never used again in the process */
uint64_t hf__thread_number(void);
struct owner hf__owner_of_thread(uint64_t number);
struct owner hf__owner_of_number(uint64_t number);
void hf__owner_text(char *, size_t, struct owner);
bool hf__owner_parse(struct owner *, const char *, size_t len);

static inline bool owner_same(struct owner a, struct owner b)
{
    return a.process == b.process && a.number == b.number;
}

static inline bool owner_none(struct owner o)
{
    return o.process == 0 && o.number == 0;
}

/* ---- drivers --------------------------------------------------------------------- */

/* The driver for a scheme, loading its module if need be. */
int hf__driver_find(const char *scheme, const struct hf_driver **ret, hf_error *);
int hf__tls_find(const struct tls_module **ret, hf_error *); /* for env->tls */

#endif
