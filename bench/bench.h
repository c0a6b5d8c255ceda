/* bench.h: what the parts of holdfast-bench share, the program behind `holdfast bench`:
 * cases/ has what is measured, stores/ the raw limit of each store.
 *
 * Every figure is a ratio measured in one run: slices of our work and of the raw limit
 * take turns, each slice gives one rate, and the medians of the rates are compared. So a
 * noisy moment of the machine spoils one slice, not the figure. */
#ifndef HF_BENCH_H
#define HF_BENCH_H

#include "cli.h"

#include <math.h>

enum {
    BENCH_ROUNDS = 31,
    BENCH_SAMPLES = 32768,
    BENCH_EXTRAS = 6,
    BENCH_QUANTILES = 24,
    BENCH_LOOKS = 5 /* before a release that hands over; each is a round trip */
};

struct bench_raw;

struct bench {
    char *url;
    char dir[512];    /* private: for raw files, and for the store if no URL was given */
    char backend[32]; /* "local" */
    char prefix[64];  /* of all names, so that nobody else's are touched */
    bool local;       /* the limits are those of a store on this machine */
    const struct bench_raw *raw; /* NULL: its limit cannot be measured */
    bool own;                    /* no URL was given: the store is in dir */
    bool json, progress;
    int processors;      /* that we may use */
    double busy_percent; /* of all of them, by others, before we began; NAN: not known */
    bool named;          /* the cases were chosen */
    int64_t time_ns;     /* for each case */
    const char *command; /* the holdfast that has started us */
    char **args;         /* of this program */
};

/* Times of single pairs. When the room is used up every second one goes, and from then on
 * only every second one comes in: memory is bounded, and early and late count alike. */
struct samples {
    size_t n;
    uint32_t every, skip;
    double us[BENCH_SAMPLES];
};

/* What one worker did in one slice. */
struct slice {
    uint64_t pairs;
    int64_t ns;
    int64_t cpu_ns; /* of the worker's thread; 0: not measured */
    struct samples samples;
};

/* All slices of one kind. */
struct tally {
    double rate[BENCH_ROUNDS];
    size_t rounds;
    double cpu_us, pairs; /* of all slices in which it was measured */
    struct samples samples;
};

/* One line of the result; NAN: there is no such figure. */
struct bench_row {
    const char *name;
    char setup[32]; /* "4 threads" */
    int threads, processes;
    double rate, p50, p99, raw, raw_p50, ratio;
    double quantiles[BENCH_QUANTILES]; /* at bench_parts; only with a p50 */
    double client_us, raw_client_us;   /* processor time of the worker, for each pair */
    const char *raw_is;                /* which one, where there are two; or NULL */
    const char *limit_of;              /* the figure that has a target, or NULL */
    double value, limit;
    struct {
        const char *key;
        double value;
    } extra[BENCH_EXTRAS];
};

struct worker {
    const struct bench *bench;
    int index;
    hf_client *client;
    int fd;           /* of the raw limit on this machine */
    void *raw;        /* of that of a server */
    const char *name; /* the lock */
    void *shared;     /* between the processes of a crew */
    struct slice *slice;
    int status; /* exit status, 0: fine */
};

/* Works until that time (bench_now) and counts into w->slice. Returns an exit status,
 * having said why. */
typedef int bench_work(struct worker *, bool raw, int64_t until);

/* How the raw limit of a store is measured: as bench_work, each worker by its own
 * means, which open has made. A `most` is the largest ratio that is good enough. */
struct bench_raw {
    bool (*serves)(const char *url); /* whether it can be measured there */
    int (*open)(struct worker *);
    void (*close)(struct worker *); /* also of what was half opened */
    int (*pair)(struct worker *);
    int (*turns)(struct worker *, int64_t until);         /* of two processes; NULL: none */
    int (*flight)(struct worker *, int n, int64_t until); /* NULL: none */
    /* of the server, since it runs: time in scripts, and how many; NULL: cannot be told */
    int (*spent)(struct worker *, double *us, double *calls);
    /* Hand-offs once more, in a row of its own, while a third process writes what is none
     * of their business: against a client that begins to listen too late. NULL: none */
    int (*turns_late)(struct worker *, int64_t until);
    int (*disturb)(struct worker *, int64_t until);
    double pair_most, turns_most, flight_most, late_most;
    bool polls;                  /* it heeds bench_polls: its pair is measured both ways */
    const char *is;              /* said where a store has two limits of a pair */
    const struct bench_raw *too; /* the other one, in a row of its own; NULL: none */
};
extern const struct bench_raw *const bench_raws[]; /* of every store; ends with NULL */

/* URLs whose limits need a library: another program, beside this one, is linked with it. */
struct bench_apart {
    const char *scheme, *program; /* "etcd:" */
};
extern const struct bench_apart bench_aparts[]; /* ends with NULL */

/* One slice of ours or of the raw limit, added to the tally. Returns an exit status. */
typedef int bench_slice(void *ctx, bool raw, int64_t ns, struct tally *);

typedef int bench_case(const struct bench *);
bench_case bench_uncontended, bench_inflight, bench_contended, bench_handoff, bench_waiters,
    bench_held, bench_server, bench_run;

/* ---- statistics.c ---------------------------------------------------------------- */

extern const double bench_parts[BENCH_QUANTILES];
int64_t bench_now(void);   /* ns, CLOCK_MONOTONIC */
double bench_memory(void); /* bytes that the allocator has given out; NAN: not known */
void bench_machine(struct bench *); /* what it is like just now; takes 0.2 s */
void samples_add(struct samples *, double us);
/* The time that this part of them did not exceed; NAN: there are none. */
double samples_at(struct samples *, double part);
void tally_add(struct tally *, const struct slice *, size_t n); /* of n workers at once */
double tally_rate(const struct tally *);                        /* median; NAN: no slice */

/* BENCH_ROUNDS times a slice of ours and, if `raw` is given, one of the raw limit. */
int bench_alternate(const struct bench *, const char *what, bench_slice *, void *ctx,
                    struct tally *ours, struct tally *raw);

/* A row with what the tallies say; `raw` may be NULL. */
void bench_fill(struct bench_row *, const char *name, struct tally *ours,
                struct tally *raw);

void bench_limit(struct bench_row *, double most); /* of the ratio */

/* ---- output.c -------------------------------------------------------------------- */

void bench_head(const struct bench *);
void bench_print(const struct bench *, const struct bench_row *);
void bench_progress(const struct bench *, const char *what, int done, int of);
void bench_quiet(const struct bench *); /* takes the progress line away */

/* ---- crew.c ---------------------------------------------------------------------- */

struct crew;

/* n processes that each open the store, then work in slices as they are told. */
int crew_start(struct crew **ret, const struct bench *, int n, const char *name,
               void *shared, bench_work *);
int crew_slice(struct crew *, bool raw, int64_t ns, struct tally *);
void crew_end(struct crew *); /* takes NULL */

void *bench_shared(size_t size); /* zeroed, shared with children; NULL: no memory */

/* ---- cases/pair.c ---------------------------------------------------------------- */

int bench_open(const struct bench *, uint32_t drive, int64_t ttl_ms, hf_client **ret);
bench_work bench_pairs; /* acquire and release, or the raw limit's pair */
/* The raw limit does not sleep while it waits: what a client could reach that uses the
 * processor instead. */
extern bool bench_polls;

/* ---- cases/handoff.c ------------------------------------------------------------- */

int bench_lost_peer(void); /* says it; returns an exit status */
/* Both have come here; the first says whether the game goes on. Returns an exit status. */
int bench_meet(const struct worker *, char *go);

/* The raw limit of a hand-off. All return an exit status. */
struct bench_turn {
    int (*look)(struct worker *); /* a round trip that changes nothing */
    int (*give)(struct worker *);
    int (*take)(struct worker *); /* returns when the other has given */
};
/* One hand-off there and one back, counted. As in ours, each begins when the other has
 * waited while the server was asked BENCH_LOOKS times: one that begins at the moment of the
 * hand-off before it finds a server that is still awake. */
int bench_turn(struct worker *, const struct bench_turn *);
int bench_turns(struct worker *, const struct bench_turn *, int64_t until);
/* The parts of it. *took: from the giving on, of both */
int bench_give(struct worker *, const struct bench_turn *, int64_t *took);
int bench_take(struct worker *, const struct bench_turn *, int64_t *took);
int bench_tell(const struct worker *, int64_t number); /* the other one */
int bench_told(const struct worker *, int64_t *ret);
void bench_count_turns(struct worker *, int64_t there, int64_t back);

#endif
