/* setup_redis.h: what the set-ups with Redis servers share.
 *
 * The servers of a place lie in memory that cases share with the runner. Data servers come
 * first, then those that only watch (sentinels). */
#ifndef HF_TESTS_SETUP_REDIS_H
#define HF_TESTS_SETUP_REDIS_H

#include "certificates.h"
#include "redis.h"
#include "setup.h"

enum { REDIS_SERVERS = 8 };

struct redis_place {
    struct server servers[REDIS_SERVERS];
    size_t n, data;
    int dead_port, dead_fd; /* where nobody listens */
};

#define REDIS_CAPS                                                                         \
    (HF_CAP_DEADLINE | HF_CAP_FIFO | HF_CAP_FENCE | HF_CAP_BARGE | HF_CAP_SHARED |         \
     HF_CAP_PERMITS | HF_CAP_LINE | HF_CAP_KEEP | HF_CAP_CELL | HF_CAP_CELL_EXPIRY |       \
     HF_CAP_TTL)

#define REDIS_SETUP(of, name_, start_, restart_, unusable_, traits_)                       \
    const struct setup of = {                                                              \
        .name = name_,                                                                     \
        .caps = REDIS_CAPS,                                                                \
        .traits = traits_,                                                                 \
        .start = start_,                                                                   \
        .stop = redis_place_stop,                                                          \
        .restart = restart_,                                                               \
        .block = redis_place_block,                                                        \
        .unblock = redis_place_unblock,                                                    \
        .unusable = unusable_,                                                             \
        .work = redis_place_work,                                                          \
    }

struct redis_place *redis_place_new(struct place *, size_t data);
void redis_place_stop(struct place *);
void redis_place_restart(struct place *); /* the data servers, killed all at once */
void redis_place_block(struct place *);
void redis_place_unblock(struct place *);
int64_t redis_place_work(struct place *);

/* One master with two replicas, and three sentinels that call it "mymaster"; and three
 * masters with a replica each. The place's url is set. `ms`: how long a server may be
 * silent until it is given up. */
void redis_sentinel_start(struct place *, int ms);
void redis_sentinel_start_with(struct place *, int ms, const char *password); /* theirs */
void redis_cluster_start(struct place *, int ms);
struct server *redis_sentinel_master(struct redis_place *); /* as the sentinels see it */
void redis_replicated(struct redis_place *, struct server *master); /* all it did so far */
/* n servers that do not know of each other; query: of the url. */
void redlock_start(struct place *, size_t n, const char *query);
struct server *redis_cluster_owner(struct redis_place *, int slot);

#endif
