/* run.c: `holdfast run`: runs a command while holding a name.
 *
 * How it goes well: options, guard, store, wait, then the command under supervise(), then
 * release. The guard comes before the store: its fork copies a small process. The client
 * is driven by our own poll, so no thread exists and signals are looked at at any time.
 *
 * How it goes wrong: every failure before the command starts leaves nothing behind and
 * has an exit status of its own. A lock that was lost while the command ran is 76,
 * whatever else there is to say (G6).
 */
#include "run.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t ms = 1000000, second = 1000000000;

/* ---- small parts ----------------------------------------------------------------- */

void run_say(const struct run *r, const char *fmt, ...)
{
    char text[2 * CLI_TEXT];
    va_list ap;
    if (r->opt.quiet)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    cli_say("%s", text);
}

static int system_error(const char *what, int error)
{
    cli_say("%s: %s", what, strerror(error));
    return EXIT_SYSTEM;
}

static void start_guard(struct run *r)
{
    int rc = guard_start(&r->guard);
    if (rc < 0) {
        r->guard_at = guard_now() + second;
        return;
    }
    if (!atomic_load(&r->guard.page->running))
        return;
    int pidfd = (int)syscall(SYS_pidfd_open, r->child, 0);
    guard_tell(&r->guard, pidfd, r->life, r->nlife);
    close(pidfd);
}

void run_reap(struct run *r)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (WIFSTOPPED(status)) {
            if (pid == r->child)
                r->stopped_by = WSTOPSIG(status);
        } else if (pid == r->child) {
            r->ended = true;
            r->status = status;
            r->guard.page->family.child = 0;
        } else if (pid == r->guard.pid) {
            r->guard.pid = 0;
            r->guard_at = atomic_load(&r->guard.page->killed) ? GUARD_NEVER : 0;
        }
    }
}

void run_turn(struct run *r, int64_t at)
{
    struct pollfd p[3] = { { .fd = hf_client_fd(r->client), .events = POLLIN },
                           { .fd = r->signals.fd, .events = POLLIN },
                           { .fd = r->timer, .events = POLLIN } };
    struct itimerspec t = { .it_value = { 0, 0 } };

    if (!r->guard.pid && guard_now() >= r->guard_at)
        start_guard(r);
    if (!r->guard.pid && r->guard_at < at)
        at = r->guard_at;
    if (hf_client_process(r->client) > 0)
        return;
    if (at != GUARD_NEVER) {
        t.it_value.tv_sec = at / second;
        t.it_value.tv_nsec = at > 0 ? at % second : 1;
    }
    timerfd_settime(r->timer, TFD_TIMER_ABSTIME, &t, NULL);
    poll(p, 3, -1);
}

/* ---- from the grant to the end --------------------------------------------------- */

static int run_command(struct run *r)
{
    char waited[32];
    size_t room = sizeof r->life / sizeof *r->life;
    int n = hf_client_life_fds(r->client, r->life, room);
    r->nlife = n < 0 ? 0 : (size_t)n < room ? (size_t)n : room;
    if (!run_set_environment(r))
        return system_error("cannot set the environment", errno);
    if (r->opt.verbose)
        run_say(r, "waited %s, fence %" PRIu64 "%s",
                cli_age(waited, sizeof waited, (r->granted_at - r->asked_at) / ms),
                hf_lease_fence(r->lease),
                hf_client_caps(r->client) & HF_CAP_DEADLINE
                    ? ""
                    : "; this store may end the lock at any moment");
    terminal_look(&r->terminal);
    return supervise(r);
}

/* The store cannot end a ticket by itself: hold it until then. A signal ends that. */
static void stay(struct run *r, int64_t until)
{
    char age[32];
    if (r->opt.verbose)
        run_say(r, "keeping the lock for %s more (--at-least)",
                cli_age(age, sizeof age, (until - guard_now()) / ms));
    while (guard_now() < until && !r->ended_by && hf_lease_check(r->lease) == 0) {
        run_turn(r, until);
        run_take_signals(r);
    }
}

static void give_back(struct run *r)
{
    char shown[CLI_TEXT];
    int64_t until = r->granted_at + r->opt.at_least_ms * ms;
    int64_t rest = r->ended ? (until - guard_now()) / ms : 0;
    int rc = HF_ENOTSUP;
    if (!r->lease)
        return;
    if (rest > 0 && !r->lost && !r->ended_by) {
        if (hf_client_caps(r->client) & HF_CAP_KEEP)
            rc = hf_release_after(r->lease, rest, &r->err);
        if (rc == HF_ENOTSUP || rc == HF_EINVAL)
            stay(r, until);
    }
    if (rc == HF_ENOTSUP || rc == HF_EINVAL)
        rc = hf_release(r->lease, &r->err);
    r->lease = NULL;
    if (rc == HF_ELOST && !r->lost) {
        run_say(r, "%s was lost while the command ran",
                cli_text(shown, sizeof shown, r->opt.names[0]));
        r->lost = true;
    } else if (rc < 0 && rc != HF_ELOST && r->opt.verbose)
        run_say(r, "release: %s; the lock ends by its ttl", hf_strerror(rc));
}

static int finish(struct run *r, int status)
{
    guard_dismiss(&r->guard);
    give_back(r);
    hf_close(r->client);
    guard_close(&r->guard);
    free(r->opt.names);
    if (r->lost)
        return EXIT_LOST;
    if (r->ended_by)
        signals_die(r->ended_by, false);
    if (status || !r->ended)
        return status;
    if (WIFSIGNALED(r->status)) {
        int sig = WTERMSIG(r->status);
        signals_die(sig, r->terminal.was_handed && (sig == SIGINT || sig == SIGQUIT));
    }
    return WEXITSTATUS(r->status);
}

static int run_main(struct cli *cli, int argc, char **argv)
{
    struct run r = { .cli = cli,
                     .opt = { .wait_ms = -1,
                              .ttl_ms = -1,
                              .grace_ms = -1,
                              .busy_exit = -1,
                              .request = HF_REQUEST_INIT } };
    int status = run_read_options(&r, argc, argv), rc;
    if (status) {
        free(r.opt.names);
        return status < 0 ? cli_ended(status) : status;
    }
    /* The guard before the store: there is no thread yet, and no descriptor to inherit. */
    if ((rc = signals_open(&r.signals)) < 0 || (rc = guard_open(&r.guard)) < 0)
        return system_error("cannot start the guard", -rc);
    r.timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (r.timer < 0)
        status = system_error("timerfd", errno);
    else
        status = run_open(&r);
    if (status == RUN_ON)
        status = run_refuse_nested(&r);
    if (status == RUN_ON)
        status = run_acquire(&r);
    if (status == RUN_ON)
        status = r.ended_by ? 0 : run_command(&r);
    return finish(&r, status);
}

const struct cli_verb verb_run = {
    .name = "run",
    .usage = "holdfast [-u URL] run [options] NAME [--] COMMAND [ARG...]",
    .help = "Runs COMMAND while holding NAME.",
    .details =
        "Options end at NAME. Times: 2.5 (seconds), 500ms, 30s, 5m, 1h.\n"
        "COMMAND finds HOLDFAST_NAME, HOLDFAST_FENCE, HOLDFAST_FENCES (--also),\n"
        "HOLDFAST_STORE, HOLDFAST_OWNER and HOLDFAST_RUN in its environment.\n"
        "Exit status: that of COMMAND, and its signal if it died of one; 75 busy, timed\n"
        "out or deadlock (or -E N); 76 the lock was lost while COMMAND ran, whatever\n"
        "COMMAND says; 126 and 127 COMMAND cannot be run or found.",
    .options = run_option_table,
    .run = run_main,
};
