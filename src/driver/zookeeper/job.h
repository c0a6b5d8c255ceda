/* job.h: a job: several requests about one line, and one answer to the core. It goes in
 * steps: each asks for something, and the next one is made when all of that is answered.
 * look.c shows what was read, evict.c ends one of the tickets, cell.c changes a cell. */
#ifndef HF_ZOOKEEPER_JOB_H
#define HF_ZOOKEEPER_JOB_H

#include "driver/zookeeper/zookeeper.h"

struct zk_seen {
    char *data; /* NULL: gone, or not read */
    size_t len;
    struct jute_stat stat;
};

struct job {
    struct zk *zk;
    struct query query;
    void (*begin)(struct job *); /* the first step, also when all is read again */
    void (*next)(struct job *);  /* the step after this one; NULL: none */
    unsigned tries;              /* that are left */
    bool marks;                  /* evict: a waiter cannot be taken out at once */
    struct ordered_entry **entries;
    struct zk_seen *seen; /* of each entry */
    size_t n, open, victim;
    int rc; /* of the first failure */
    hf_error err;
    size_t dir_len;
    char dir[DIR_MAX];
};

/* The core is told if there is no memory. */
void hf__zk_job_start(struct zk *, struct look *, struct cell *, void begin(struct job *));
/* Requests: a step may make several. What cannot be asked for is a failure of the job. */
struct zk_call *hf__zk_job_request(struct job *,
                                   void then(struct zk_call *, struct jute_reply *));
/* The line's tickets become the entries; with mode=ephemeral the one node, which is read.
 */
void hf__zk_job_list(struct job *);
/* An entry's node. may_come: it is watched, if somebody follows, also before it is there.
 */
void hf__zk_job_read(struct job *, size_t index, bool may_come);
/* These nodes become the entries, and each is read; "" is the line's own. The first one is
 * watched, if somebody follows, also before it is there. */
void hf__zk_job_read_nodes(struct job *, const char *const *names, size_t n);

bool hf__zk_job_again(
    struct job *); /* from the beginning; false: often enough, or stopped */
/* The entry with the token of the look; j->n: none. */
size_t hf__zk_job_find(const struct job *);
void hf__zk_job_fail(struct job *, const struct jute_reply *);
/* code, format ... */
#define hf__zk_job_refuse(j, code, ...)                                                    \
    ((j)->rc = hf__fail(&(j)->err, code, 0, (j)->zk->open.shown, __VA_ARGS__))
void hf__zk_job_no_memory(struct job *);
size_t hf__zk_job_path(const struct job *, size_t index, char path[NODE_PATH_MAX]);
void hf__zk_not_here(const struct zk *, struct look *, const char *what);

#endif
