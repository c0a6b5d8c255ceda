/* world.h: what there is in a simulated world: the plan of a run, messages and events,
 * clients with what their drivers know, applications, the store. What is done with it, part
 * by part, is in sim.h. */
#ifndef HF_SIM_WORLD_H
#define HF_SIM_WORLD_H

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

enum { LAG_US = 1000000 }; /* of a member that lags behind, at most */

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
    bool lags;     /* and some of its reads are answered by a member that lags behind */
    bool replaced; /* half-way by servers that can do less */
    bool bounces;  /* some requests must be sent again */
    bool echoes;   /* an old connection cannot be ended at once */
    bool parts;    /* the store has several servers, each with some of the lines */
    /* no faults but lost wakes, no time-outs: deadlocks are clear */
    bool calm;
    int32_t ppm[PROCS];
    struct act acts[ACTS];
    size_t n;
    int64_t end;
};

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

enum read_what {
    READ_LIST,
    READ_ENTRY,
    READ_TRY,
    READ_FIND,
    READ_CHECK,
    READ_OWN,
    READ_OWN_NOW
};

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
    uint64_t shown; /* the next ticket of the same client, which was there then; or 0 */
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

#endif
