/* guard.h: the process that ends the command when its supervisor cannot. */
#ifndef HF_CLI_GUARD_H
#define HF_CLI_GUARD_H

#include "descend.h"

#include <stdatomic.h>

#define GUARD_NEVER INT64_MAX

/* Memory shared by supervisor, guard and, until it runs the command, the child. The
 * deadline stands here and not in messages: a guard that was stopped for a while reads
 * the newest one, and a renewal wakes nobody. */
struct guard_page {
    _Atomic int64_t deadline; /* CLOCK_BOOTTIME, ns: then the guard begins to kill */
    _Atomic int64_t term_at; /* before that: then it asks the command to end; GUARD_NEVER */
    atomic_int termed;       /* the guard has done so */
    atomic_int running;      /* there is something to kill */
    atomic_int killed;       /* the guard has begun to */
    int exec_errno;          /* the child's: why it could not run the command */
    struct family family;
};

/* The supervisor's side. Without a guard (pid 0) the command still runs: run_reap starts
 * another one. */
struct guard {
    struct guard_page *page;
    pid_t pid;   /* 0: there is none at present */
    int sock;    /* our end of the pair; -1 */
    int tickets; /* tickets.c; -1: none */
    char *title; /* where the kernel finds the arguments of this process */
    size_t title_room;
};

int64_t guard_now(void); /* CLOCK_BOOTTIME, ns */

/* The first argument of the program that the guard becomes to end its tickets, which it has
 * as this descriptor. */
#define GUARD_ENDING "hf-guard ending its tickets"
#define GUARD_KEEPING "hf-guard keeping its tickets" /* something may be left */
enum { GUARD_TICKETS_FD = 3 };

/* 0 or -errno; makes the page and the first guard. The struct is all 0, or was closed. */
int guard_open(struct guard *);
int guard_start(struct guard *); /* after the guard has died: another one */

/* Hands over the child's pidfd, then the descriptors by which the store sees that we
 * live. Called by the child itself before it runs the command, so that there is no moment
 * at which a command runs and its guard does not know. */
void guard_tell(const struct guard *, int pidfd, const int *life, size_t nlife);

/* Hands over the tickets, before the command is started. */
void guard_tickets(struct guard *, int fd);

/* When the guard asks the command to end (TERM and CONT; GUARD_NEVER: it does not), and
 * when it kills, unless later times are set before. Those are found by the guard when the
 * old ones have come; of earlier ones it is told. */
void guard_times(const struct guard *, int64_t term_at, int64_t kill_at);

/* Ends the guard, also a stopped one; nothing is killed any more. dismiss does not wait:
 * its end can go on beside the release of the lock. */
void guard_dismiss(const struct guard *);
void guard_close(struct guard *);

#endif
