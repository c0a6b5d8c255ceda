/* local_harness.h: stands in for the core, so that tests can drive the embedded driver
 * through its table of verbs: records every event, keeps lives as the core does, and runs
 * a real loop. Renewal happens only when a test asks for it. */
#ifndef HF_TEST_LOCAL_HARNESS_H
#define HF_TEST_LOCAL_HARNESS_H

#include "driver/local/local.h"
#include "seam/seam.h"

#include <sys/types.h>

extern const struct hf_driver hf__driver_local;

struct side { /* one client */
    struct loop loop;
    struct env env;
    struct url url;
    struct store *store;
    int64_t ahead_us; /* its clock is that far ahead */
    hf_error err;     /* of open */
};

enum { LIMIT_US = 20 * 1000000 }; /* less than the safety look of a wait */

struct pass { /* one ticket and what was said about it */
    struct ticket t;
    struct life own;
    char name[HF_NAME_MAX + 1];
    int granted, waiting, left, gone, amended; /* how often */
    int why;                                   /* of gone, left or amended */
    int dead, marked;
    int alive;
    int64_t sent_at, recheck_ms;
    uint32_t position;
    hf_error err;
};

struct seen_row {
    struct row row;
    char name[2 * HF_NAME_MAX], note[HF_NOTE_MAX + 1];
};

struct glance { /* a look and its answers */
    struct look look;
    struct seen_row rows[64];
    size_t n, done;
    int rc;
    hf_error err;
    struct timer again; /* a follow, as the core does it: seam.h, rule 11 */
};

struct drawer { /* a cell and its answers */
    struct cell cell;
    size_t done;
    int rc;
    struct timer again;
};

void life_init(struct life *, struct store *, enum life_kind, int64_t ttl_ms);

/* Each case has a folder of its own below a temporary one. */
extern char *folder;
int folder_setup(void **state); /* chooses the name: the driver makes it */
int folder_teardown(void **state);
extern struct side a, b; /* clients of that folder: `a` alone, or both */
int alone_setup(void **state);
int alone_teardown(void **state);
int pair_setup(void **state);
int pair_teardown(void **state);
char *folder_file(const char *folder, const char *file); /* static buffer */

int side_open(struct side *, const char *folder,
              const char *query); /* "" or "?share=group" */
void side_close(struct side *);
void side_turn(struct side *, int64_t until_us); /* one turn, sleeping at most so long */

/* Drives until *what is not 0; fails the test after LIMIT_US. */
void side_until(struct side *, const int *what);
void side_until_size(struct side *, const size_t *what, size_t least);

size_t side_records(struct side *, enum table); /* how many the store has */

void pass_init(struct pass *, struct side *, const char *name);
void pass_shared(struct pass *);
void pass_permits(struct pass *, int64_t weight, int64_t capacity);
/* These drive until there is an answer, which may have to wait for the gate. */
int pass_join(struct pass *); /* 1: holds, 0: waits, else why it is gone */
int pass_try(struct pass *, struct side *, const char *name); /* with try_only */
int pass_answer(struct pass *); /* the same, of a join that was called before */
int pass_leave(struct pass *);  /* the rc of ev_left */
void pass_renew(struct pass *);
bool pass_holds(const struct pass *);
/* Macros, so that a failure names its line. */
#define pass_hold(p, s, name) (pass_init(p, s, name), assert_int_equal(pass_join(p), 1))
#define pass_wait(p, s, name) (pass_init(p, s, name), assert_int_equal(pass_join(p), 0))

/* With a client that is opened and closed again: nothing more; takes a lock and leaves it
 * behind as a kept one; tries to take one, and leaves it. */
int open_and_close(const char *query);
void use_once(const char *name);
int try_once(const char *name); /* as pass_join */

void glance_init(struct glance *, struct side *, const char *name);
void drawer_init(struct drawer *, struct side *, enum cell_verb, const char *name);
/* These drive until there is an answer. */
void glance_at(struct glance *, struct side *, const char *name, bool list);
void side_stop(struct look *, struct cell *); /* a follow; one of the two is NULL */
int evict(struct side *, const char *name, const unsigned char *token, bool now);
int drawer_do(struct drawer *, struct side *, enum cell_verb, const char *name);

/* A child process that opens the folder, runs `body` and then waits to be told. Its pipe
 * tells what it has reached: child_wait returns the byte. */
struct child {
    pid_t pid;
    int tell, hear;
};
struct child child_start(const char *folder,
                         void (*body)(struct child *, const char *, void *), void *arg);
/* Bodies. Joins "x", shared if there is an arg; says h if it holds, w if it waits (then h
 * when granted); leaves when told. */
void stand_in_line(struct child *, const char *, void *);
/* Holds "x", has closed all its descriptors, says h and waits. */
void hold_without_descriptors(struct child *, const char *, void *);
void child_hold(struct side *, struct pass *, const char *where); /* "x", or ends */
void child_say(struct child *, char);                             /* in the child */
char child_hear(struct child *); /* in either: the next byte; 0: the end */
void child_tell(struct child *, char);
void child_kill(struct child *,
                int sig);       /* and reaps it unless sig is SIGSTOP or SIGCONT */
void child_end(struct child *); /* lets it go on and reaps it */

enum { CANNOT = 77 }; /* said by a child whose rights do not suffice */
/* What `body` returns in a child process; fails the test if a signal ends it. */
int in_child(int (*body)(const char *), const char *arg);
bool file_write(const char *path, const char *text);
/* A new namespace; a user who has no right to one is given it inside one of his own. */
bool namespace_enter(int flags);
bool root_change(const char *where); /* to an empty folder beside that one */

extern struct place pretend; /* added to the namespaces in which the driver finds itself */
extern long pretend_fs;      /* the type of every file system; 0: the true one */
extern const mode_t *pretend_run_lock; /* what /run/lock is; 0: it is not there */

uint64_t test_seed(void); /* HF_SEED or random; printed */
uint64_t test_random(uint64_t *state);

#endif
