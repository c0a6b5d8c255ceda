/* torture.h: what the orchestrator, the workers and the oracle of torture share.
 *
 * One area of shared memory, made before the first fork, so that what a worker wrote is
 * there after kill -9. Workers only add; the oracle reads when all workers have ended.
 */
#ifndef HF_TESTS_TORTURE_H
#define HF_TESTS_TORTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { LOCKS = 4, PERMITS = LOCKS, LINES, CAPACITY = 5 };
enum { HOLDS = 1 << 20, EVENTS = 1 << 16 };

/* A hold that is certain from `from` to `till`; see torture_oracle.c. */
struct held {
    uint64_t fence;
    uint64_t id; /* of the hold; a downgrade makes a second record with the same */
    int64_t from;
    _Atomic int64_t till; /* 0: no check has said "held" since */
    pid_t pid;
    uint16_t line;
    uint16_t weight; /* permits; of a lock: 1 */
    bool exclusive;
};

enum what { ASKS, GRANTED, FAILED, LOST, RELEASED, KEPT, DOWN, KILLED, STOPPED, CONTINUED };

struct event {
    int64_t at;
    uint64_t fence;
    pid_t pid, tid;
    int rc;
    uint16_t line; /* LINES: of none */
    uint16_t what;
};

struct area {
    _Atomic uint64_t nholds, nevents, ids;
    _Atomic uint64_t resource[LINES]; /* the last fence that this resource accepted */
    _Atomic uint64_t refused;         /* writes that it did not */
    _Atomic uint64_t lost, deadlocks, blocked;
    atomic_int stop, failed;
    atomic_int breaks; /* tickets are broken in this round, so what is kept may end early */
    uint64_t last_fence[LINES]; /* the oracle's, over all rounds */
    struct held holds[HOLDS];
    struct event events[EVENTS];
};

extern struct area *area;
extern const char *const line_names[LINES];

/* ---- oracle ---------------------------------------------------------------------- */

int64_t now_us(void);
void event_add(enum what, unsigned line, pid_t pid, int rc, uint64_t fence);
void events_print(unsigned line, int64_t around); /* latest first; around 0: the last */
struct held *held_add(unsigned line, uint64_t id, uint64_t fence, bool exclusive,
                      unsigned weight, int64_t from);

/* Says what is wrong with the records of this round, and returns how many things are. */
int oracle_judge(bool say);
void oracle_forget(void);

/* ---- worker ---------------------------------------------------------------------- */

struct torture {
    const char *url;
    unsigned seed;
    int threads;
};

_Noreturn void worker(const struct torture *);

#endif
