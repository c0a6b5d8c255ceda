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
#include <stddef.h>
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

int run_cannot(const struct run *r, int error)
{
    char shown[CLI_TEXT];
    cli_say("cannot run '%s': %s", cli_text(shown, sizeof shown, r->opt.command[0]),
            strerror(error));
    return error == ENOENT ? EXIT_NOTFOUND : EXIT_NOEXEC;
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
    struct pollfd p[] = { { .fd = r->client ? hf_client_fd(r->client) : -1,
                            .events = POLLIN },
                          { .fd = r->signals.fd, .events = POLLIN },
                          { .fd = r->timer, .events = POLLIN },
                          { .fd = r->inner.epoll, .events = POLLIN },
                          { .fd = r->outer, .events = POLLIN } };
    struct itimerspec t = { .it_value = { 0, 0 } };

    if (!r->guard.pid && guard_now() >= r->guard_at)
        start_guard(r);
    if (!r->guard.pid && r->guard_at < at)
        at = r->guard_at;
    if (r->client && hf_client_process(r->client) > 0)
        return;
    if (at != GUARD_NEVER) {
        t.it_value.tv_sec = at / second;
        t.it_value.tv_nsec = at > 0 ? at % second : 1;
    }
    timerfd_settime(r->timer, TFD_TIMER_ABSTIME, &t, NULL);
    poll(p, sizeof p / sizeof *p, -1);
}

bool run_holds(const struct run *r)
{
    return r->lease ? hf_lease_check(r->lease) == 0 : r->outer >= 0 && !inner_left_alone(r);
}

/* ---- from the grant to the end --------------------------------------------------- */

/* By what our end is seen: by the store, or by the run whose lock we have entered. */
static void find_life(struct run *r)
{
    size_t room = sizeof r->life / sizeof *r->life;
    int n = 1;
    if (r->lease)
        n = hf_client_life_fds(r->client, r->life, room);
    else
        r->life[0] = r->outer;
    r->nlife = n < 0 ? 0 : (size_t)n < room ? (size_t)n : room;
}

static void say_granted(const struct run *r)
{
    char waited[32], name[CLI_TEXT], store[CLI_TEXT], number[32] = "no fence";
    uint64_t fence =
        r->lease ? hf_lease_fence_of(r->lease, r->opt.names[0]) : r->outer_fence;
    cli_text(name, sizeof name, r->opt.names[0]);
    if (fence > 0)
        snprintf(number, sizeof number, "fence %" PRIu64, fence);
    if (!r->lease)
        run_say(r, "%s is held by a run around this one, %s", name, number);
    else
        run_say(r, "%s in %s: waited %s, %s%s", name,
                cli_text(store, sizeof store, hf_client_url(r->client)),
                cli_age(waited, sizeof waited, (r->granted_at - r->asked_at) / ms), number,
                hf_client_caps(r->client) & HF_CAP_DEADLINE
                    ? ""
                    : "; this store may end the lock at any moment");
}

/* A store that sees our end by a descriptor needs no more. */
static void give_tickets(struct run *r)
{
    int fd = r->lease && r->nlife == 0 ? tickets_write(r, r->source.url) : -1;
    if (fd >= 0)
        guard_tickets(&r->guard, fd);
    cli_free_source(&r->source);
}

static int run_command(struct run *r)
{
    find_life(r);
    give_tickets(r);
    if (!run_set_environment(r))
        return system_error("cannot set the environment", errno);
    if (r->opt.verbose)
        say_granted(r);
    inner_listen(r);
    terminal_look(&r->terminal);
    int status = supervise(r);
    inner_close(r);
    return status;
}

/* Inside the lock of another run there is nothing to wait for, and no store to talk to. */
static bool enter(struct run *r)
{
    if (!r->opt.reenter || !r->nested || !inner_enter(r))
        return false;
    hf_close(r->client);
    r->client = NULL;
    r->granted_at = guard_now();
    return true;
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

static void on_released(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct run *r = user;
    (void)lease;
    (void)err;
    r->done = true;
    r->rc = rc;
    r->op = NULL;
    hf_op_free(op);
}

bool run_succeeded(const struct run *r)
{
    return r->ended && !r->lost && !r->timed_out && WIFEXITED(r->status) &&
           WEXITSTATUS(r->status) == 0;
}

/* Gives the lease back, or leaves the name taken for keep_ms. A store that cannot be
 * reached is not waited for: the command has ended, and so should we; hf_close tries once
 * more. But what is to be recorded is worth as much time as the lock still lasts. */
static int release(struct run *r, int64_t keep_ms)
{
    bool record = r->opt.kind == RUN_ONCE && run_succeeded(r);
    int64_t end = guard_now() + (record ? hf_lease_remaining_ms(r->lease) * ms : second);
    int rc;
    r->done = false;
    if (record)
        rc = hf_once_done_start(r->lease, on_released, r, &r->op, &r->err);
    else if (keep_ms > 0)
        rc = hf_release_after_start(r->lease, keep_ms, on_released, r, &r->op, &r->err);
    else
        rc = hf_release_start(r->lease, on_released, r, &r->op, &r->err);
    if (rc == HF_ENOTSUP || rc == HF_EINVAL)
        return rc;
    r->lease = NULL;
    while (rc == 0 && !r->done && guard_now() < end) {
        run_turn(r, end);
        if (record) /* that may take long: the second signal ends it */
            run_take_signals(r);
    }
    rc = rc < 0 ? rc : r->done ? r->rc : HF_EUNKNOWN;
    if (record && rc < 0)
        r->unrecorded = cli_exit_of(rc);
    return rc;
}

static void give_back(struct run *r)
{
    char shown[CLI_TEXT], age[32];
    int64_t until = r->granted_at + r->opt.at_least_ms * ms;
    int64_t rest = r->ended ? (until - guard_now()) / ms : 0;
    int rc = HF_ENOTSUP;
    if (!r->lease)
        return;
    int64_t ends = hf_lease_remaining_ms(r->lease);
    if (rest > 0 && !r->lost && !r->ended_by) {
        if (hf_client_caps(r->client) & HF_CAP_KEEP)
            rc = release(r, rest);
        if (rc == HF_ENOTSUP || rc == HF_EINVAL)
            stay(r, until);
    }
    if (r->lease && r->lost) {
        hf_release_start(r->lease, NULL, NULL, NULL, NULL);
        r->lease = NULL;
    } else if (r->lease)
        rc = release(r, 0);
    if (r->lost)
        return;
    cli_text(shown, sizeof shown, r->opt.names[0]);
    if (rc == HF_ELOST) {
        run_say(r, "%s was lost while the command ran", shown);
        r->lost = true;
    } else if (r->unrecorded)
        run_say(r, "%s: that the command succeeded may not be recorded: %s", shown,
                hf_strerror(rc));
    else if (rc < 0)
        run_say(r, "%s could not be given back: %s; it ends by itself in %s at the latest",
                shown, hf_strerror(rc),
                cli_age(age, sizeof age, ends > rest ? ends : rest));
}

int run_end(struct run *r, int status)
{
    free(r->opt.names);
    if (r->lost)
        return EXIT_LOST;
    if (r->ended_by)
        signals_die(r->ended_by);
    if (r->timed_out)
        return EXIT_TIMEOUT;
    if (status || !r->ended)
        return status;
    if (WIFSIGNALED(r->status))
        signals_die(WTERMSIG(r->status));
    return r->unrecorded ? r->unrecorded : WEXITSTATUS(r->status);
}

int run_begin(struct run *r, enum run_kind kind, struct cli *cli,
              const struct cli_verb *verb, int argc, char **argv)
{
    int rc;
    *r = (struct run){ .cli = cli,
                       .outer = -1,
                       .inner = { .epoll = -1, .door = -1 },
                       .opt = { .kind = kind,
                                .wait_ms = -1,
                                .ttl_ms = -1,
                                .grace_ms = -1,
                                .busy_exit = -1,
                                .request = HF_REQUEST_INIT } };
    int status = run_read_options(r, verb, argc, argv);
    if (status == 0 && !r->opt.forget && (rc = spawn_check(r->opt.command[0])) != 0)
        status = run_cannot(r, rc); /* rather now than after an hour in line */
    if (status) {
        free(r->opt.names);
        return status < 0 ? cli_ended(status) : status;
    }
    if (r->opt.forget)
        return RUN_ON;
    run_keep_environment();
    if ((rc = signals_open(&r->signals)) < 0)
        return system_error("signalfd", -rc);
    r->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    return r->timer < 0 ? system_error("timerfd", errno) : RUN_ON;
}

/* A start was allowed. There is no lock to be held, so nothing of us is needed any more. */
static int start_alone(struct run *r)
{
    hf_close(r->client);
    r->client = NULL;
    guard_close(&r->guard);
    signals_restore(&r->signals);
    execvp(r->opt.command[0], r->opt.command);
    return run_cannot(r, errno);
}

static int hold_and_run(struct run *r)
{
    int status = run_open(r);
    if (status == RUN_ON && !enter(r)) {
        status = r->opt.kind == RUN_RATE ? RUN_ON : run_refuse_nested(r);
        if (status == RUN_ON)
            status = run_acquire(r);
    }
    if (status != RUN_ON || r->ended_by)
        return status == RUN_ON ? 0 : status;
    return r->opt.kind == RUN_RATE ? start_alone(r) : run_command(r);
}

int run_term(struct run *r)
{
    /* The guard before the store: there is no thread yet, and no descriptor to inherit. */
    int rc = guard_open(&r->guard);
    if (rc < 0)
        return system_error("cannot start the guard", -rc);
    int status = hold_and_run(r);
    guard_dismiss(&r->guard);
    give_back(r);
    hf_close(r->client);
    r->client = NULL;
    guard_close(&r->guard);
    cli_free_source(&r->source);
    return status;
}

void run_again(struct run *r)
{
    if (r->terminal.fd > STDERR_FILENO)
        close(r->terminal.fd);
    memset(&r->terminal, 0, sizeof *r - offsetof(struct run, terminal));
    r->outer = r->inner.epoll = r->inner.door = -1;
    r->again = true;
    signals_wait(&r->signals);
    run_restore_environment();
}

static int run_main(struct cli *cli, int argc, char **argv)
{
    struct run r;
    int status = run_begin(&r, RUN_LOCK, cli, &verb_run, argc, argv);
    return status == RUN_ON ? run_end(&r, run_term(&r)) : status;
}

const struct cli_verb verb_run = {
    .name = "run",
    .usage = "holdfast [-u URL] run [options] NAME [--] COMMAND [ARG...]",
    .help = "Run COMMAND while holding NAME.",
    .details =
        "Options end at NAME. Times: 2.5 (seconds), 500ms, 30s, 1h30m, 2d.\n"
        "COMMAND finds HOLDFAST_NAME, HOLDFAST_FENCE, HOLDFAST_FENCES (--also),\n"
        "HOLDFAST_STORE, HOLDFAST_OWNER and HOLDFAST_RUN in its environment.\n"
        "--rate: NAME is the name of a limit; no lock is held while COMMAND runs.\n"
        "Exit status: that of COMMAND, and its signal if it died of one; 75 busy, timed\n"
        "out or deadlock (or -E N); 76 the lock was lost while COMMAND ran, whatever\n"
        "COMMAND says; 124 --at-most has ended it; 126 and 127 COMMAND cannot be run or\n"
        "found.",
    .options = run_options,
    .supervises = true,
    .run = run_main,
};
