/* look.h: a job: several reads about one line and one answer to the core. look.c shows
 * what they found, evict.c ends one of the tickets. */
#ifndef HF_ZOOKEEPER_LOOK_H
#define HF_ZOOKEEPER_LOOK_H

#include "driver/zookeeper/zookeeper.h"

struct zk_seen {
    char *data; /* NULL: gone, or not read */
    size_t len;
    struct jute_stat stat;
};

struct job {
    struct zk *zk;
    struct query query;
    void (*listed)(struct job *); /* goes on: the tickets are in `entries` */
    void (*show)(struct job *);   /* all is read; NULL: there is nothing to show */
    bool follow;
    unsigned tries;
    bool marks; /* evict: a waiter cannot be taken out at once */
    struct ordered_entry **entries;
    struct zk_seen *seen;
    size_t n, open, victim;
    int rc;
    hf_error err;
    size_t dir_len;
    char dir[];
};

struct job_request {
    struct request q;
    struct job *job;
    size_t index;
};

static inline struct job *job_of(struct request *q)
{
    return container_of(q, struct job_request, q)->job;
}

/* The core is told if there is no memory. */
void hf__zk_job_start(struct zk *, struct look *, void (*listed)(struct job *),
                      void (*show)(struct job *));
struct request *hf__zk_job_request(struct job *,
                                   void (*answer)(struct zk *, struct request *,
                                                  struct jute_reply *),
                                   size_t index); /* NULL: no memory, which is noted */
size_t hf__zk_job_path(const struct job *, size_t index, char path[NODE_PATH_MAX]);
void hf__zk_job_fail(struct job *, const struct jute_reply *);
void hf__zk_job_finish(struct job *); /* if nothing is open any more */
bool hf__zk_job_again(struct job *);  /* lists anew; false: often enough, or stopped */
void hf__zk_not_here(const struct zk *, struct look *, const char *what);

#endif
