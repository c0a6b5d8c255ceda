/* run.h: what the parts of `holdfast run` share. */
#ifndef HF_CLI_RUN_H
#define HF_CLI_RUN_H

#include "cli.h"
#include "guard.h"

#include <signal.h>

/* --on-lost: what happens to the command when the lock is lost. */
enum on_lost { LOST_TERM, LOST_KILL, LOST_WARN };

/* For what the command waits. Of a limit (--rate) nothing is held while it runs. */
enum run_kind { RUN_LOCK, RUN_ELECT, RUN_ONCE, RUN_RATE };

/* The command line of `run`, `elect` or `once`, checked. */
struct run_options {
    enum run_kind kind;
    const char **names; /* names[0] is NAME, then those of --also */
    size_t nnames;
    char **command;
    const char *shell;                                          /* -c */
    int64_t wait_ms, ttl_ms, grace_ms, at_least_ms, at_most_ms; /* -1: not given */
    hf_request request;
    enum on_lost on_lost;
    int busy_exit;
    bool quiet, verbose, reenter;
    const char *value; /* elect: what others see of the leader */
    int64_t mark_ms;   /* once: how long its success counts; 0: for ever */
    bool forget;       /* once: there is no command */
    uint32_t rate;     /* RUN_RATE: so many starts */
    int64_t per_ms;    /* in any window of that length */
};

/* ---- terminal.c ------------------------------------------------------------------ */

/* Who has the terminal. A command that shares ours whole gets it like a shell's job does.
 */
struct terminal {
    int fd;         /* our controlling terminal; -1: none */
    pid_t home;     /* our own process group */
    bool whole;     /* stdin and stdout are that terminal, and we lead our group */
    bool own_group; /* the command gets a process group of its own */
    bool handed;    /* its group has the terminal now */
};

void terminal_look(struct terminal *);
bool terminal_foreground(const struct terminal *);
/* In the child before it runs the command, and in the supervisor; SIGTTOU is blocked. */
void terminal_hand(struct terminal *, pid_t group);
void terminal_take_back(struct terminal *);

/* ---- signals.c ------------------------------------------------------------------- */

/* Signals are read from a descriptor, so that they take their turn with lock and child. */
struct signals {
    int fd;           /* signalfd */
    sigset_t mask;    /* as holdfast was started */
    sigset_t ignored; /* the same: of those that we read */
    bool chld_ignored, pipe_ignored, xfsz_ignored;
};

int signals_open(struct signals *);                 /* 0 or -errno */
void signals_run(struct signals *, bool own_group); /* the command is about to start */
void signals_wait(struct signals *); /* and it has ended, and another will be started */
void signals_restore(const struct signals *); /* in the child */
/* The next signal, or 0. *ret_sent: a process sent it, not the terminal. */
int signals_next(const struct signals *, bool *ret_sent);
bool signals_end_wait(const struct signals *, int sig); /* by it a waiting run ends */
bool signals_stop_group(int sig); /* our own; false: nobody could continue us, so we run */
_Noreturn void signals_die(int sig);

/* ---- inner.c --------------------------------------------------------------------- */

enum { INNER_MAX = 64 };

struct guest { /* a run that asks to enter */
    int fd;
    bool inside; /* it runs its command under our lock */
};

struct inner {
    int epoll, door; /* -1: nobody can enter */
    struct guest guests[INNER_MAX];
    size_t nguests, inside;
};

/* ---- run*.c, spawn.c, supervise.c, standing.c ------------------------------------ */

/* Of the command: STOPPING after TERM, KILLING after the grace. It never goes back. */
enum phase { RUNNING, STOPPING, KILLING };

/* One `holdfast run`, from its options to its exit status; on the stack of its verb. */
struct run {
    struct cli *cli;
    struct run_options opt;
    char note[512]; /* if none was given */
    struct guard guard;
    struct signals signals;
    int timer;  /* timerfd on CLOCK_BOOTTIME */
    bool again; /* this is not the first term of an `elect` */

    /* from here on: of one term, run_again() begins with 0 */
    struct terminal terminal;
    struct cli_source source; /* until the grant */
    hf_client *client;
    hf_lease *lease;
    int life[4];
    size_t nlife;
    bool nested;        /* a run around us is alive */
    const char *parent; /* the owner for whom we act, as HOLDFAST_OWNER has it; NULL */
    struct inner inner;
    int outer; /* to the run whose lock we have entered; -1: the lock is our own */
    uint64_t outer_fence;

    /* the wait */
    hf_op *op;
    bool done; /* its callback ran: rc, lease, err */
    int rc;
    hf_error err;
    int ended_by; /* the signal that ended it; 0 */

    /* the run; times are CLOCK_BOOTTIME ns */
    int64_t asked_at, granted_at, deadline, kill_at, look_at;
    int64_t look_ms;
    int64_t grace, margin;
    enum phase phase;
    pid_t child;
    bool ended;       /* the child */
    int status;       /* of waitpid, once ended */
    int stopped_by;   /* a signal has just stopped it; 0 */
    int64_t guard_at; /* next try to start a guard */
    bool timed_out;   /* --at-most has ended it; the lock was not lost */
    bool lost, broken, told_risk, told_stop, told_denied;
    bool asked_to_end; /* by a signal, while the command ran */
    int unrecorded;    /* once: its success could not be recorded; an exit status */
    int64_t down_at;   /* since when the store is unreachable, with -v; 0: it is not */
};

/* Is a run that the environment names alive? */
bool inner_has_parent(void);
const char *inner_living_words(void); /* HOLDFAST_RUN, not longer than need be; NULL */
/* Enters NAME of such a run: r->outer. False: there is none that holds it, or would let us.
 */
bool inner_enter(struct run *);
bool inner_left_alone(const struct run *); /* the run that we have entered has ended */
void inner_listen(struct run *);           /* from now on others may enter */
void inner_serve(struct run *);
void inner_close(struct run *);

extern const struct cli_option run_options[], elect_options[], once_options[];
/* 0, exit status, CLI_HELP */
int run_read_options(struct run *, const struct cli_verb *, int argc, char **argv);

/* The life of a run: what a verb calls, in this order. run_begin reads the options and
 * prepares what all terms use: RUN_ON, or the exit status. run_term takes the lock, runs
 * the command, and gives back all that it took: the status for run_end, or RUN_AGAIN.
 * run_again: before another term, which finds the environment as the first one did. run_end
 * gives back the rest, and returns the exit status or dies of the signal that ended us. */
int run_begin(struct run *, enum run_kind, struct cli *, const struct cli_verb *, int argc,
              char **argv);
int run_term(struct run *);
void run_again(struct run *);
int run_end(struct run *, int status);

/* The steps to the lock. Each: RUN_ON, or the exit status, which -E may have made 0; or,
 * not in the first term, RUN_AGAIN: the store cannot be used at present, r->err says why.
 */
enum { RUN_ON = -1, RUN_AGAIN = -2 };
int run_open(struct run *);          /* the store */
int run_refuse_nested(struct run *); /* a name of a parent run */
int run_acquire(struct run *);       /* r->lease is ours, or r->ended_by is set */

/* May the command run? Our lease holds, or the run that we have entered is there. */
bool run_holds(const struct run *);

/* r->grace and r->margin, from the ttl that the store gave. It may become another while the
 * command runs: a server to which a session is attached anew may have other limits. */
void run_set_times(struct run *);

void run_take_signals(struct run *); /* without a command: one of them sets r->ended_by */
bool run_succeeded(const struct run *); /* the command has ended well, under the lock */

/* What a run changes of its own environment; keep notes how it was. */
void run_keep_environment(void);
void run_restore_environment(void);
bool run_set_environment(const struct run *);

/* Lets the client work; if it is idle, waits for it, a signal or the time `at`. */
void run_turn(struct run *, int64_t at);
void run_reap(struct run *); /* notes how the child is; a dead guard is replaced */
void run_say(const struct run *, const char *fmt, ...) /* unless -q; %s of cli_say */
    __attribute__((format(printf, 2, 3)));

/* A descriptor for the guard; -1. The program that the guard becomes; its exit status.
 * `certain`: nothing of the command is left. */
int tickets_write(const struct run *, const char *url);
int tickets_end(bool certain);

/* Runs the command to its end and to the end of whatever must not outlive the lock. 0, or
 * the exit status if it could not be started. */
int supervise(struct run *);

pid_t spawn(struct run *);            /* < 0: -errno */
int spawn_check(const char *command); /* 0: it can be run, as far as one can see; errno */
int run_cannot(const struct run *, int error); /* says so; the exit status */

/* The line "who holds it" of a waiting run. */
struct standing;
struct standing *standing_open(struct run *); /* NULL: nothing to be shown */
bool standing_changed(const struct standing *);
void standing_tick(struct standing *); /* says how it is; takes NULL, as all do */
void standing_close(struct standing *);

/* Says of each name that is held who holds it; false: none is, or the store cannot tell. */
bool standing_say_who(struct run *, const char *why);
/* Of --rate: that the starts are used up, and when the next is possible. */
void standing_say_starts(struct run *);

#endif
