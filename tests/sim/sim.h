/* sim.h: the parts of the simulator.
 *
 * One world at a time: processes with clients (each a struct client of the core) and
 * threads, a store, a network, one true clock. Everything that happens is a step: a message
 * arrives, a timer fires, the plan acts. All of it follows from a seed, and so a run can be
 * repeated and shrunk.
 *
 * mem.c       the core's memory             world.c    clock, steps, the end of a run
 * plan.c      what shall happen             process.c  processes, clients, faults
 * driver.c    the seam: verbs               answer.c   the seam: answers become events
 * sender.c    both, for src/kit/scripted.h  ordered.c  both, for src/kit/ordered.h
 * net.c       messages, connections of      work.c     applications
 *             src/kit/link.h
 * lines.c     the reference store           order.c    its ordered family
 * scripted.c  requests of its other ones    main.c     command line, TAP
 * oracle.c    invariants                    knots.c    the one about deadlocks
 * shrink.c    a short history               tally.c    what has happened
 * wrong.c     bad input                     parts.c    a part of the store, lost and back
 * threads.c   a program of its own: two mutations of the layer with threads
 */
#ifndef HF_SIM_H
#define HF_SIM_H

#include "core/core.h"
#include "core/mutate.h"
#include "core/spin.h"
#include "kit/link.h"
#include "kit/mutate.h"
#include "kit/ordered.h"
#include "kit/scripted.h"
#include "util/heap.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    PROCS = 4,
    SLOTS = 2,   /* clients of a process at a time */
    THREADS = 3, /* of a process at a time */
    IDS = 120,   /* clients of a run */
    LINES = 8,
    TTLS = 3,
    TICKETS = 96, /* of a client */
    ROWS = 400,   /* of a line */
    LOOKS = 48,
    CALLS = 256, /* of a client that are under way */
    PARTS = 3,   /* of a store of several servers */
    ACTS = 1600,
    US = 1000 /* in a millisecond */
};

enum family { SYNC, SCRIPTED, ORDERED, LOOSE, FAMILIES };

/* Mutations that are not the core's but a driver's, a store's or the platform's. */
#define SIM_MUTANTS(X)                                                                     \
    X(RELEASE_BY_NAME, "release-by-name", "a release takes out whoever holds the name")    \
    X(FENCE_AT_JOIN, "fence-at-join", "the fence is given at the join, and some barge")    \
    X(READER_PAST, "reader-past-writer", "a reader is admitted past a waiting writer")     \
    X(MONOTONIC, "monotonic", "the clock stands still while the machine is suspended")     \
    X(REUSED_THREAD, "reused-thread", "a new thread gets the number of one that ended")    \
    X(OLD_LIFE, "old-life", "a join into a new group renews the life of the expired one")  \
    X(READ_RENEWS, "read-renews", "an answered read counts as a renewal of the session")   \
    X(OLD_REQUESTS, "old-requests", "requests of a broken connection may come after UP")

enum sim_mutant {
    MUTANT_SIM_BEGIN = 100,
#define HF_X(name, word, text) MUTANT_##name,
    SIM_MUTANTS(HF_X)
#undef HF_X
};

/* ---- plan ------------------------------------------------------------------------ */

enum act_kind {
    A_ACQUIRE,
    A_CANCEL,
    A_RELEASE,
    A_DOWNGRADE,
    A_NOTE,
    A_RENEW,
    A_LOOK,
    A_EVICT,
    A_THREAD_ENDS,
    A_SHUT,
    A_STOP,
    A_CUT,
    A_SILENT,
    A_PAUSE,
    A_SUSPEND,
    A_KILL,
    A_FORK,
    A_DRIFT,
    A_BEYOND,
    A_STORE_STOP,
    A_STORE_FORGETS,
    A_CLOCK,
    A_NO_MEMORY,
    A_FOLLOWER,
    A_END_HOLD,
    ACT_KINDS
};

struct act {
    int64_t at;
    enum act_kind kind;
    uint8_t proc, slot, thread; /* thread THREADS: nobody's, asynchronous */
    uint8_t line, lines;        /* lines: how many names, from `line` on */
    uint8_t mode, ttl;          /* HF_WRITE ...; index of the ttl */
    uint8_t permits, flags;     /* F_* */
    bool dropped;
    int64_t wait_ms, hold_us, dur_us;
    uint32_t rnd;
};
enum {
    F_BARGE = 1,
    F_REENTRANT = 2,
    F_NO_RENEW = 4,
    F_NOW = 8,
    F_KEEP = 16,
    F_MAX_HOLD = 32
};

struct plan {
    uint64_t seed;
    uint64_t salt; /* other delays, the rest alike */
    enum family family;
    int procs, slots, lines, nttls;
    int64_t ttl_ms[TTLS];
    int capacity[LINES];         /* 0: a lock; else permits */
    int64_t delay_us, jitter_us; /* of a message */
    int64_t look_us;             /* looks take so much longer, on a stream of their own */
    int64_t limit_ms;            /* of a link: for opening, and for an answer */
    uint32_t slow_ppm, wake_lost_ppm, twice_ppm;
    /* the store ends what expired at that moment, not when asked */
    bool eager;
    bool by_wall;        /* its expiries are times of its wall clock */
    bool deaths_by_dead; /* the driver says a lost hold by ev_dead, not ev_gone */
    bool busy;           /* an owner acts on several threads: waits and goes on */
    bool puts_off;       /* the driver cannot have some tickets in line for a while */
    bool refuses;        /* the store refuses some requests of a client for a while */
    bool like_etcd;      /* an ordered store: see ordered.c */
    bool replaced;       /* half-way by servers that can do less */
    bool bounces;        /* some requests must be sent again */
    bool echoes;         /* an old connection cannot be ended at once */
    bool parts;          /* the store has several servers, each with some of the lines */
    /* no faults but lost wakes, no time-outs: deadlocks are clear */
    bool calm;
    int32_t ppm[PROCS];
    struct act acts[ACTS];
    size_t n;
    int64_t end;
};

void plan_make(struct plan *, uint64_t seed);
const char *act_word(enum act_kind);

/* ---- random ---------------------------------------------------------------------- */

static inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* ---- messages -------------------------------------------------------------------- */

enum msg_kind {
    M_HELLO,
    M_JOIN,
    M_LEAVE,
    M_AMEND,
    M_RENEW,
    M_WAIT,
    M_SESSION,
    M_LOOK,
    M_EVICT,
    M_READ,
    M_BYE,
    R_HELLO,
    R_JOIN,
    R_LEAVE,
    R_AMEND,
    R_RENEW,
    R_WAIT,
    R_SESSION,
    R_LOOK,
    R_EVICT,
    R_READ,
    R_BYE,
    N_GRANT,
    N_GONE,
    N_MARK,
    N_FIRED
};

struct srow { /* a ticket as a store tells of it */
    uint64_t token, fence;
    int slot;
    uint32_t gen, position;
    uint8_t id, kind;
    int64_t weight, capacity, joined, expires_ms, sent_at;
    struct owner owner;
    uint32_t hints;
    bool marked, mine;
    bool shared; /* its node is not its first */
};

enum read_what { READ_LIST, READ_ENTRY, READ_TRY, READ_FIND, READ_CHECK };

struct snap {
    struct snap *next; /* in the pool */
    int n;
    struct srow rows[ROWS];
};

struct names { /* tickets that a request names; shared by its copies */
    struct names *next;
    int refs;
    size_t n;
    uint64_t tokens[WAIT_CHUNK];
};

struct msg {
    enum msg_kind kind;
    uint8_t id, line, lk; /* lk: the line's kind */
    bool try_only, barge, now, again, withdraws, bounced;
    /* ordered: what is read; fence: which node, and whether its second; watched: `again` */
    enum read_what what;
    bool shared;
    uint64_t revision;
    uint32_t epoch, gen, hints, position;
    bool held_up; /* it comes when its connection is gone */
    uint32_t inc; /* number of the session, or of a group of waiting tickets */
    int slot, rc;
    uint64_t token, fence, seq; /* seq: which coming of the ticket it is about */
    uint64_t call;              /* which of its client's it is, or answers */
    uint64_t asked;             /* number of this request, of all */
    int64_t sent_at, ttl_ms, weight, capacity, keep_ms, recheck_ms;
    int64_t stamp; /* of the expiry of a group of waiting tickets, or copied from it */
    struct owner owner;
    struct snap *snap;
    struct names *names;
};

enum ev_kind {
    E_TO_STORE,
    E_TO_CLIENT,
    E_RELEASE,
    E_OPENED,
    E_BREAK,
    E_SWEEP,
    E_SESSION,
    E_SHUT,
    E_CLOSED,
    E_STORE_UP,
    E_RESTART,
    E_AGAIN,
    E_NOTHING, /* was read out of turn */
    E_TOLD,
    E_HANGS
};

struct ev {
    int64_t at;
    uint64_t seq;
    enum ev_kind kind;
    uint8_t id; /* client, line or process */
    uint32_t n; /* epoch, generation */
    struct sim_lease *lease;
    struct msg m;
    struct ev *next;
};

/* ---- clients --------------------------------------------------------------------- */

enum dt_state { DT_FREE, DT_JOINING, DT_WAITING, DT_HELD, DT_LEAVING };

struct dt { /* what the driver knows of a ticket */
    struct ticket *t;
    uint64_t token, seq;
    uint64_t woken, woken_seq; /* a grant that came before the answer to the join */
    int64_t woken_sent;
    uint32_t gen;
    enum dt_state state;
    int withdrawing; /* why */
    int64_t retry_ms;
    int next_free;
};

struct call { /* of the link */
    struct link_call wire;
    struct wire *to;
    uint64_t number; /* 0: free; else they grow */
    enum msg_kind kind;
    bool written; /* the transport has it */
    /* of src/kit/scripted.h */
    struct ticket *t;
    struct wait_life *w;
    struct scripted_renewal *k;
    unsigned char token[HF_TOKEN]; /* of that ticket; one to amend may have left */
};

struct look_slot {
    struct look *look;
    uint32_t gen;
};

struct wire { /* the connection of a client to a part of the store */
    struct sim_client *c;
    struct link link;
    struct ev *out, **out_end; /* what the link has not flushed */
    bool up;
    bool silent;  /* whatever is sent is lost, until the connection breaks */
    bool stale;   /* answered by a follower that is cut off: reads only, and of that time */
    bool refused; /* while it is blocked it is greeted, and not wanted */
    uint32_t epoch;
    int64_t blocked_until, last_out, last_in;
    int64_t lost_at;      /* it is not up since */
    uint64_t ncalls_down; /* client's ncalls when it was lost */
    int under_way, owed;  /* not answered; of those that were lost with it */
    struct echo echo;
};

struct sim_client {
    struct env env;
    struct store store;
    struct client core;
    uint32_t alive_word;
    uint8_t id, proc, slot;
    bool open, shutting;
    /* timers */
    struct heap timers;
    int64_t next_true;
    /* connection */
    struct wire wires[PARTS], *back;
    struct list dirty;
    const struct msg *message; /* to be sent now */
    bool up;                   /* one of them is */
    uint64_t sent, ncalls;
    struct call calls[CALLS], *sending;
    int64_t trouble_at; /* when something last went wrong here */
    /* driver */
    struct dt dts[TICKETS];
    int free_dt;
    struct look_slot looks[LOOKS];
    struct ordered ordered; /* ordered: instead of dts */
    struct sim_seat *seats[TICKETS];
    uint32_t seat_gen;
    struct life *waits[LINES][TTLS];
    struct scripted scripted; /* scripted and loose: instead of dts and waits */
    struct life *session, *old_lives[TICKETS];
    int nold;
    uint32_t inc;
    struct list ops;    /* sim_op.on_client */
    struct list leases; /* sim_lease.on_client */
};

struct sim_thread {
    uint64_t number, identity; /* identity: never used again, whatever the number */
    struct sim_op *waiting;
    struct list leases; /* sim_lease.on_thread */
};

struct polls { /* what its threads do before they sleep: polls.c */
    struct spin spin;
    struct spin_budget budget;
    int64_t since, lost_us;
    unsigned open, most_open;
};

struct proc {
    struct polls polls;
    bool alive, beyond;
    uint32_t gen;
    uint64_t id;
    int64_t base_t, base_p, paused_until, ran_at; /* ran_at: end of the last pause */
    int32_t ppm;
    struct sim_client *clients[SLOTS];
    struct sim_thread threads[THREADS];
    int64_t no_memory_until;
    struct list blocks; /* memory */
    size_t nblocks;
};

/* ---- applications ---------------------------------------------------------------- */

struct sim_op {
    struct hf_op op;
    struct ask ask;
    struct sim_client *c;
    struct sim_thread *thread; /* NULL: nobody's */
    struct act act;
    struct list on_client;
    struct sim_lease *lease; /* of a release, amend, renew */
    bool evict, told;
    int64_t began_at, poll_us;
    size_t walked; /* 1 + which of its names a deadlock walk has read once for */
    bool stuck;    /* it was in a knot then */
    struct sim_op *next;
};

struct sim_lease {
    struct hf_lease *l;
    struct sim_client *c;
    struct sim_thread *thread;
    uint64_t identity; /* of the thread that acquired it */
    struct list on_client, on_thread;
    struct act act;
    bool overdue, changing;
    uint32_t gen;
    struct sim_lease *next;
};

/* ---- the store ------------------------------------------------------------------- */

struct grp { /* the waiting tickets of one client, line and ttl */
    uint8_t id;
    uint32_t number;
    int64_t ttl_ms, expires, sent_at, stamp;
    int n;
};

struct st { /* a ticket in the store */
    struct list node;
    bool held, marked, told, barge, kept, prefix;
    bool early, late; /* a step of the store's clock brought its end nearer; put it off */
    bool leave_refused;
    bool held_up; /* its join was */
    bool shared;  /* its node is not its first */
    uint8_t id, line, lk;
    int slot;
    uint32_t gen, hints, inc;
    uint64_t token, fence, seq;
    uint64_t asked; /* its join was sent later than those with smaller numbers */
    int64_t weight, capacity, ttl_ms, expires, sent_at, joined, stamp;
    struct owner owner;
    struct grp *g;
    struct st *next;
};

struct line {
    enum line_kind kind;
    int64_t capacity, sum, sweep_at;
    uint64_t last_fence, granted_fence, told_fence, told_exclusive;
    struct list holders, queue; /* ordered family: all in queue */
    struct grp grps[40];
    struct watch_on {
        uint64_t fence; /* of which node; 0: any change */
        bool shared;
        uint8_t id;
    } watches[ROWS];
    int nwatches;
    struct oh { /* a hold that an application has */
        struct hold *h;
        uint64_t token, identity;
        uint8_t id, proc;
        int handles;
        int64_t weight, told_at; /* told_at: on the process's clock; 0: not told lost */
        bool excused, by_hand;
    } held[ROWS];
    int nheld;
};

struct sess {
    uint32_t inc;
    int64_t expires, ttl_ms;
    bool alive;
};

struct world {
    const struct plan *plan;
    int64_t now;
    uint64_t steps, seq, rng, tokens, ids, numbers;
    int64_t moment; /* of the last steps, since */
    uint64_t moment_steps;
    struct ev **heap;
    size_t nheap, heap_room;
    struct ev *late; /* joins of lost connections: until the next one is greeted */
    size_t next_act;
    struct proc procs[PROCS];
    struct sim_client *by_id[IDS];
    uint32_t conn_epoch[IDS][PARTS];
    int64_t echo_until[IDS][PARTS]; /* until then older requests are executed, too */
    int64_t next_true[PROCS * SLOTS];
    struct line lines[LINES];
    struct sess sessions[IDS];
    bool store_up, quiet;
    int64_t store_back, wall, quiet_at, forgot_at;
    int64_t set_back;    /* by how much the store's clock was, in all */
    int64_t asleep_till; /* what came while a process slept is seen by then, not sooner */
    uint64_t revision, joins, asked;
    uint32_t groups;
    size_t ops, leases;
    struct tied {
        uint64_t seq; /* of a ticket in a knot */
        int64_t since;
    } tied[ROWS];
    int ntied;
    int64_t tied_look, links_look; /* when to look for them next, and at links */
    int64_t last_victim;
    int current; /* process whose code runs; -1: none */
    bool trace;
    uint64_t evicted[32];
    uint64_t
        evicted_early[32]; /* its fence, if it had not reached the prefix of its line */
    unsigned nevicted;
    /* the verdict */
    const char *broke; /* "G1" ... */
    char why[400];
};
extern struct world w;

/* ---- mem.c ----------------------------------------------------------------------- */
void mem_reset(void);
void mem_drop(struct proc *);            /* the process was killed */
void mem_ticket(void *hold, bool known); /* the driver knows a ticket in this block */

/* ---- world.c --------------------------------------------------------------------- */
void run_world(const struct plan *, int mutant, bool trace);
void push_event(struct ev *);
void free_event(struct ev *);
struct ev *new_event(enum ev_kind, int64_t at);
uint64_t draw(uint64_t below);
int64_t proc_now(const struct proc *);
void touch(struct sim_client *); /* its timers may have changed */
struct snap *new_snap(void);
void free_snap(struct snap *);
bool can(const struct proc *); /* runs now */
int64_t longest_ttl(void);     /* ms */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* polls.c */
void polls_start(struct proc *);
void polls_begin(struct sim_op *);
void polls_end(struct sim_op *);

void violate(const char *id, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define SAY(...) (w.trace ? say(__VA_ARGS__) : (void)0)
#define TOK(x) ((unsigned)((x)&0xffff))

/* ---- process.c ------------------------------------------------------------------- */
void process_start(int i);
void process_fault(const struct act *);
void process_quiet(void); /* no more faults */
struct sim_client *open_client(int proc, int slot);
void close_client(struct sim_client *); /* memory, driver: everything */
void settle(struct sim_client *);       /* after anything was done with a client */

/* ---- driver.c, answer.c ---------------------------------------------------------- */
extern const struct hf_driver sim_driver;
void driver_start(struct sim_client *);
void driver_learns(struct sim_client *); /* before UP */
void driver_receive(struct sim_client *, struct msg *);
void drv_retire(struct sim_client *c, struct life *l);
int drv_ttl(int64_t ttl_ms);
struct dt *drv_known(struct sim_client *c, const struct msg *m);
void drv_session_dead(struct sim_client *c);
void drv_forget(struct sim_client *c, struct dt *d);
struct dt *drv_ticket(struct sim_client *c, const struct ticket *t);
struct msg drv_about(struct sim_client *c, enum msg_kind kind, const struct dt *d);
void drv_gone(struct sim_client *c, struct dt *d, int why);
bool drv_put_off(struct sim_client *c, struct dt *d, unsigned one_in);
void driver_tidy(struct sim_client *);
uint32_t drv_hints(const struct ticket *t);

/* ---- net.c ------------------------------------------------------------------------ */
void net_open(struct sim_client *);
void net_close(struct sim_client *);
void net_cut(struct wire *, int64_t blocked_us);
void net_silent(struct wire *, int64_t us, bool stale); /* then it breaks */
void net_up(struct wire *);                             /* it was greeted */
/* A call that is built when it is sent; NULL: there are too many. */
struct call *net_call(struct sim_client *, enum msg_kind, int line);
void net_start(struct sim_client *, struct call *);
void drv_send(struct sim_client *, struct msg *); /* a call of its own, or no call */
/* A message has come. False: of no use any more. Else, if it is an answer, its call. */
bool net_takes(struct sim_client *, const struct msg *, struct call *ret);

/* ---- ordered.c -------------------------------------------------------------------- */
int ordered_number(const struct ordered_line *); /* of the line */
void ordered_open(struct sim_client *);
void ordered_join(struct sim_client *, struct ticket *);
void ordered_amend(struct sim_client *, struct ticket *);
void ordered_renew(struct sim_client *, struct life *const *, size_t);
void ordered_joined(struct sim_client *, const struct msg *);
void ordered_left(struct sim_client *, const struct msg *);
void ordered_amended(struct sim_client *, const struct msg *);
void ordered_read(struct sim_client *, const struct msg *);
void ordered_fired(struct sim_client *, const struct msg *);
bool ordered_gave_up(const struct sim_client *, const struct msg *);

/* ---- parts.c --------------------------------------------------------------------- */
int wires(void); /* of a client */
int part_of_line(int line);
struct wire *wire_to(struct sim_client *, int line);
bool wire_has(const struct wire *, const struct msg *); /* it is of this connection */
const char *part_said(const struct wire *);
void part_cut(struct wire *, int64_t us);
void part_asked(const struct wire *); /* a join was sent to it */
void part_back(struct wire *);        /* and another part was up all the time */

/* ---- sender.c -------------------------------------------------------------------- */
bool by_scripts(void); /* the client's half is that of src/kit/scripted.h */
int sender_open(struct sim_client *);
void sender_close(struct sim_client *);
void sender_join(struct sim_client *, struct ticket *);
void sender_leave(struct sim_client *, struct ticket *);
void sender_amend(struct sim_client *, struct ticket *);
bool sender_receive(struct sim_client *, const struct msg *, const struct call *);
bool sender_build(struct sim_client *, struct call *, struct msg *);
void sender_again(struct sim_client *, const struct msg *);
void sender_nothing(struct sim_client *, const struct call *);
void sender_cut(const struct wire *);
int64_t sender_echo_us(void);
void sender_greeted(const struct msg *); /* the store was */
void sender_up(struct wire *);
void sender_understood(const struct ev *);
bool sender_gave_up(const struct sim_client *, const struct msg *);
bool sender_knows(const struct sim_client *, const struct ticket *);
void sender_joins(const struct msg *);
void free_names(struct names *); /* one of its references */

/* ---- lines.c, scripted.c, order.c ------------------------------------------------ */
uint32_t line_position(const struct line *l, const struct st *s);
int64_t line_recheck_ms(const struct line *l, const struct st *s);
struct grp *line_group(struct line *l, uint8_t id, int64_t ttl_ms, bool make);
void line_renew(struct grp *g, int64_t sent_at);
uint64_t line_fence(struct line *l);
void line_step(struct line *l);
bool line_fits(const struct line *l, int64_t weight);
void line_grant(struct line *l, struct st *s);
void line_drop(struct line *l, struct st *s);
struct st *line_find(const struct list *l, uint64_t token);
void line_tell(const struct st *s, enum msg_kind kind);
void line_clean(struct line *l);
void store_init(void);
void store_receive(struct msg *); /* answers by store_reply */
void store_reply(const struct msg *to, struct msg *answer);
void store_notify(uint8_t id, struct msg *);
void store_sweep(int line);
void store_session(uint8_t id);
void store_forget(void);
void store_process_died(uint8_t id);
struct st *store_find(int line, uint64_t token);
void store_end_hold(uint32_t rnd); /* at any moment */
void store_clock(int64_t us);      /* its wall clock is stepped by so much */
void store_done(void);
bool store_empty(void);
void order_receive(struct msg *);
void order_drop(struct line *, struct st *);
void order_cut_off(const struct sim_client *); /* its follower has all up to now */
void order_greeted(struct sim_client *);       /* watches are set again */
struct st *new_st(const struct msg *);
void free_st(struct st *);
bool st_dead(const struct st *);
int64_t sum_of(int64_t a, int64_t b);
void fill_rows(struct snap *, const struct line *, uint8_t id);

/* ---- work.c ---------------------------------------------------------------------- */
extern const struct host sim_host;
void work_act(const struct act *);
void work_release(struct sim_lease *, int64_t keep_ms);
void work_shut(struct sim_client *, uint32_t rnd);
void work_drop_client(struct sim_client *); /* ops and leases of a client that is gone */
void work_quiet(void);
void work_end_ops(struct sim_client *);
void work_done(void);
void work_drain(void); /* operations that are done are taken note of */

/* ---- oracle.c -------------------------------------------------------------------- */
void oracle_store_grant(const struct st *);
void oracle_dropped(const struct st *, const char *id);
void oracle_told(struct sim_lease *, struct hold *, bool fresh);
void oracle_released(struct hold *);
void oracle_left(const struct ticket *); /* leave is being sent */
void oracle_lease_changed(struct hf_lease *);
void oracle_gone(uint8_t id); /* all of a client */
void oracle_evicted(const struct st *);
bool oracle_was_evicted(uint64_t token); /* lately */
bool oracle_prompt(void);                /* no request is under way for long */
void oracle_forgot(void);
void oracle_early(const struct st *); /* the store's clock ends it too early */
void oracle_forked(int proc);
void oracle_line(int line);
void oracle_full(void);
void oracle_deadlock(const struct sim_op *);
void oracle_knots(void); /* deadlocks are found soon */
void oracle_links(void); /* connections are made soon */
void oracle_freed(const struct hold *, bool known);
void oracle_end_of_client(struct sim_client *);

/* ---- wrong.c --------------------------------------------------------------------- */
void wrong_act(struct sim_client *, uint32_t rnd); /* something that must be refused */

/* ---- tally.c --------------------------------------------------------------------- */
#define SIM_SIGHTS(X)                                                                      \
    X(TOLD, "grants told")                                                                 \
    X(SHARED, "of shared locks")                                                           \
    X(PERMITS, "of permits")                                                               \
    X(BARGED, "to those who may barge")                                                    \
    X(SEVERAL, "of several names at once")                                                 \
    X(LIMITED, "with max_hold")                                                            \
    X(NOT_RENEWED, "that nobody renews")                                                   \
    X(KEPT, "places kept after a release")                                                 \
    X(REENTERED, "re-entries")                                                             \
    X(LOST, "losses told")                                                                 \
    X(DEADLOCK, "deadlocks found by a walk")                                               \
    X(REFUSED_OWN, "locks refused to an owner that has them")                              \
    X(EXPIRED, "tickets expired")                                                          \
    X(WAKE_LOST, "wakes lost")                                                             \
    X(WAKE_LATE, "wakes late")                                                             \
    X(WAKE_TWICE, "wakes doubled")                                                         \
    X(BOUNCED, "requests sent again behind others")                                        \
    X(ECHO, "joins executed after the next connection was up")                             \
    X(TWICE, "requests doubled")                                                           \
    X(SLOW, "messages late by up to a ttl")                                                \
    X(OVERTAKEN, "answers overtaken by a wake")                                            \
    X(UNSENT, "requests lost")                                                             \
    X(UNHEARD, "answers lost after the effect")                                            \
    X(OLD, "requests executed after their connection broke")                               \
    X(AFTER, "joins executed after the caller gave up")                                    \
    X(REFUSED, "clients refused by the store")                                             \
    X(REFUSED_IN_LINE, "requests refused by the store")                                    \
    X(GIVEN_UP, "connections given up because an answer was late")                         \
    X(READ_LATE, "answers that were there when they were called late")                     \
    X(UNFLUSHED, "connections lost while sending")                                         \
    X(NO_ROOM, "connections given up because memory was missing")                          \
    X(OLD_READ, "reads answered by a follower that was cut off")                           \
    X(PUT_OFF, "tickets to join again after a delay")                                      \
    X(PART, "parts of the store lost")                                                     \
    X(BYE, "sessions ended by their client")                                               \
    X(STARTED, "processes started again")                                                  \
    X(CLOCK_ON, "store's clock stepped forward")                                           \
    X(CLOCK_BACK, "store's clock set back")                                                \
    X(NO_MEMORY, "allocations failed")                                                     \
    X(WRONG, "bad input refused")
enum sight {
#define HF_X(name, word) S_##name,
    SIM_SIGHTS(HF_X)
#undef HF_X
        SIGHTS
};
void tally_act(enum act_kind);
void tally_sight(enum sight);
void tally_tell(void);
bool tally_missing(void); /* names what has never happened */

/* ---- shrink.c -------------------------------------------------------------------- */
size_t shrink(struct plan *, int mutant); /* how many acts are left */

static inline int line_of(const char *name)
{
    return name[1] - '0';
}

static inline struct sim_client *client_of(struct client *c)
{
    return container_of(c, struct sim_client, core);
}

static inline void in_trouble(struct sim_client *c, int64_t until)
{
    if (until > c->trouble_at)
        c->trouble_at = until;
}

extern const char *const line_names[LINES];

#endif
