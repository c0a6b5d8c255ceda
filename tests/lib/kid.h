/* kid.h: other processes that use the store, moved like puppets.
 *
 * A kid is forked before the case opens a client of its own. It has one client (opened
 * at its first order, in the face under test) and numbered slots for leases. Orders go
 * over a socket; a kid that waits in an acquire answers later, and may be stopped or
 * killed in it.
 */
#ifndef HF_TESTS_KID_H
#define HF_TESTS_KID_H

#include <holdfast/tool.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { KID_SLOTS = 8, KID_LIFE_FDS = 4 };

struct kid {
    pid_t pid;
    int sock;
};

struct answer {
    int rc;
    uint64_t fence;
    int check, state; /* of the lease in the slot, before the order was carried out */
    int64_t remaining_ms;
    int64_t pid; /* kid_fork: of the grandchild */
    int fds[KID_LIFE_FDS];
    char text[256];
};

struct kid kid_new(void);

/* An acquire that is ordered now and answered later, and the answer. */
void kid_begin(struct kid *, int slot, const char *name, int64_t wait_ms,
               const hf_request *);
bool kid_answered(struct kid *);
struct answer kid_answer(struct kid *);

int kid_acquire(struct kid *, int slot, const char *name, int64_t wait_ms,
                const hf_request *, uint64_t *ret_fence);
struct answer kid_release(struct kid *, int slot);
struct answer kid_keep(struct kid *, int slot, int64_t keep_ms); /* hf_release_after */
struct answer kid_check(struct kid *, int slot);
struct answer kid_fork(struct kid *); /* a child of the kid that only sleeps */

/* Copies of the descriptors by which the store sees that the kid lives, as a guard has
 * them. Returns how many; they are the caller's to close. */
int kid_life_fds(struct kid *, int fds[KID_LIFE_FDS]);

void kid_stop(struct kid *);     /* SIGSTOP, and it has stopped */
void kid_continue(struct kid *); /* SIGCONT */
void kid_kill(struct kid *);     /* SIGKILL, and it is gone */
void kid_end(struct kid *);      /* releases nothing, closes its client; must end with 0 */

/* A process that runs body(arg) and must end with 0. */
pid_t proc_start(void (*body)(void *), void *arg);
void proc_end(pid_t);

#endif
