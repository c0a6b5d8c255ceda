/* round_world.h: Redlock's protocol (driver/redis/redlock/round.c) against simulated nodes,
 * at random.
 *
 * Clients run rounds for three names, two of them in one bucket, over nodes that lose
 * messages, answer late, have forgotten a script and want the request again, are started
 * again empty or with an old snapshot, at any moment; keys expire; clients pause and die.
 * Holders renew, and give the key to nodes that do not have it, at any moment. After every
 * grant and every renewal it is checked that no two leases of a name are valid at once
 * (G1), after every grant that fences are unique and grow with the grants of a name (G2),
 * and on every node that no request for a key is executed behind its giving back (G7).
 * Clocks help with nothing unless a case says so: all of them stand still, and the protocol
 * has to do it. At most so many nodes have forgotten at a time that a majority remembers;
 * beyond that G2 rests on clocks by definition. */
#ifndef HF_TESTS_ROUND_WORLD_H
#define HF_TESTS_ROUND_WORLD_H

#include "unit.h"

#include "driver/redis/redlock/round.h"

enum {
    NODES = 5,
    CLIENTS = 4,
    NAMES = 3,
    BUCKETS_OF_NAMES = 2,
    AHEAD = 3,
    QUEUE = 64,
    TTL = 1000,
    DRIFT = 12,
    STEPS = 4000
};

enum variant { SOUND, NAIVE, NO_GUARD, OLD_MARKS, COUNTED, REPEATED, SEEDED, FLOORLESS };

enum kind { LOCK, RAISE, FREE, ASSERT, EXTEND };

struct message { /* a request, and then its answer */
    enum kind kind;
    uint64_t value; /* of the round */
    unsigned name;
    uint64_t candidate;
    uint64_t floor; /* 0: it may not be seeded */
    int64_t ttl;
    unsigned renewal;
    /* the answer */
    bool again; /* not done: say it once more */
    int64_t said;
    enum round_mark what;
    uint64_t mark, top;
};

struct queue {
    struct message m[QUEUE];
    unsigned n;
};

struct link { /* of one client to one node */
    bool up;
    int64_t started_at; /* what the greeting told */
    unsigned run;
    struct queue out, back;
};

struct memory {
    struct {
        uint64_t value; /* 0: free */
        int64_t until;
    } keys[NAMES];
    uint64_t marks[BUCKETS_OF_NAMES], floor, top;
    unsigned mark_run; /* 0: no marks */
};

struct sim_node {
    struct memory now, snapshot;
    unsigned run;
    int64_t started_at;
    bool freed[STEPS]; /* this value was given back here */
};

struct sim_client {
    enum { IDLE, VOTES, HELD } state;
    struct link links[NODES];
    struct round round;
    uint64_t value, highest;
    uint32_t blank;
    unsigned name;
    int64_t sent_at, until;
    int64_t skew;
    uint32_t mine, missing;
    uint64_t fence;
    unsigned renewal, alive, lost;
    int64_t renewal_at;
};

struct world {
    uint64_t random;
    enum variant variant;
    bool clocks;
    unsigned n;
    int64_t now;
    uint64_t values;
    struct sim_node nodes[NODES];
    struct sim_client clients[CLIENTS];
    uint64_t last[NAMES]; /* fence of the last grant */
    struct {
        uint64_t fence;
        unsigned bucket;
    } * given; /* all of them */
    size_t ngiven;
    /* what happened: a run without it proves nothing */
    unsigned restarts, seconds, seeded, renewed, spread, repeated;
    const char *wrong;
};

/* One schedule, until something is wrong or STEPS are over. */
struct world *world_play(uint64_t seed, enum variant, bool clocks);
void world_end(struct world *);

#endif
