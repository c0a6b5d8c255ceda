/* supervise.c: holds the lock while the command runs, and the command while the lock holds.
 *
 * How it goes well: one thread, one poll over the client, the signals and a timer. The
 * command ends, its status is ours. Each renewal moves the deadline that the guard reads.
 *
 * How it goes wrong, in three phases:
 *   RUNNING   the renewal is overdue, or the ticket was broken: at deadline - grace the
 *             command gets TERM, so that it can end in time. The lock was lost at a
 *             stroke: another may hold it already, TERM at once.
 *   STOPPING  waits for the command and all its descendants; then
 *   KILLING   early enough that the last one is gone at the deadline (G1).
 * A stop once begun is not taken back, and its exit status is 76 whatever the command says.
 *
 * ^Z: the command has stopped, so we give the terminal back and stop with our group (or ^Z
 * has stopped us all: signals.c); nobody renews then, and the guard ends the command: TERM
 * a grace before the deadline, KILL at it. On SIGCONT the lease is looked at first, and
 * only a held one lets the command go on, unless it has been told to end.
 */
#include "run.h"

#include <sys/stat.h>
#include <sys/wait.h>

static const int64_t ms = 1000000, second = 1000000000;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- signals to the command ------------------------------------------------------ */

static const struct family *family(struct run *r)
{
    struct family *f = &r->guard.page->family;
    struct stat st;
    if (f->life_fd >= 0 && !f->life_ino && fstat(r->life[0], &st) == 0)
        f->life_ino = st.st_ino;
    return f;
}

/* The command may have ended while runs that entered our lock go on. */
static void pass_on(struct run *r, int sig)
{
    if (r->ended && !r->inner.inside)
        return;
    if (r->terminal.own_group && !r->ended)
        kill(-r->child, sig);
    else
        descend_signal(family(r), sig);
}

/* ---- the deadline ---------------------------------------------------------------- */

/* When the command must have begun to stop, and when it must be killed. */
static void limits(const struct run *r, int64_t *term_at, int64_t *kill_at)
{
    *kill_at = r->deadline - r->margin;
    *term_at = least(r->deadline - r->grace, *kill_at);
    if (r->opt.at_most_ms > 0) {
        int64_t most = r->opt.at_most_ms * ms, end = r->granted_at + most;
        int64_t at = end - least(r->margin, most / 5);
        *kill_at = least(*kill_at, at);
        *term_at = least(*term_at, least(at, end - least(r->grace, most / 3)));
    }
}

/* The library counts in whole milliseconds: only a real change is passed on. */
static void follow_lease(struct run *r)
{
    int64_t at = GUARD_NEVER / 2, term_at, kill_at;
    if (r->lease)
        at = guard_now() + hf_lease_remaining_ms(r->lease) * ms;
    if (r->phase != RUNNING || (at < r->deadline + 5 * ms && at > r->deadline - 5 * ms))
        return;
    if (r->deadline && at > r->deadline)
        descend_note(&r->guard.page->family, r->guard.page->family.orphans);
    r->deadline = at;
    run_set_times(r);
    limits(r, &term_at, &kill_at);
    if (r->opt.on_lost != LOST_WARN)
        guard_times(&r->guard,
                    r->opt.on_lost == LOST_TERM ? term_at + r->margin / 4 : GUARD_NEVER,
                    kill_at + r->margin / 4);
}

/* -v: each loss of contact with the store, and its end. */
static void tell_contact(struct run *r)
{
    char age[32], reason[CLI_TEXT];
    hf_error err;
    if (!r->opt.verbose || !r->client)
        return;
    bool up = hf_connect(r->client, 0, &err) == 0;
    if (up == (r->down_at == 0))
        return;
    if (up)
        run_say(r, "the store answers again, after %s",
                cli_age(age, sizeof age, (guard_now() - r->down_at) / ms));
    else
        run_say(r, "the store does not answer: %s",
                cli_text(reason, sizeof reason, err.text));
    r->down_at = up ? 0 : guard_now();
}

static void on_renewed(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    (void)rc;
    (void)lease;
    (void)err;
    (void)user;
    hf_op_free(op);
}

/* Why is it at risk? A lease that was broken is not renewed again; of any other one more
 * attempt is just what it needs. */
static const char *why_at_risk(struct run *r, char *buf, size_t size)
{
    hf_error err;
    hf_op *op;
    r->broken = hf_renew_start(r->lease, 0, on_renewed, NULL, &op, &err) == HF_ELOST;
    if (r->broken)
        return "it was broken";
    if (hf_connect(r->client, 0, &err) < 0)
        return cli_text(buf, size, err.text);
    return "it was not renewed in time";
}

static void warn_at_risk(struct run *r, int64_t term_at)
{
    char age[32], shown[CLI_TEXT], why[CLI_TEXT];
    bool risk = r->lease && hf_lease_state(r->lease) == HF_AT_RISK;
    int64_t left = (term_at - guard_now()) / ms;
    cli_text(shown, sizeof shown, r->opt.names[0]);
    tell_contact(r);
    if (risk == r->told_risk)
        return;
    r->told_risk = risk;
    if (!risk) {
        run_say(r, "%s is held again", shown);
        return;
    }
    const char *reason = why_at_risk(r, why, sizeof why);
    if (r->opt.on_lost == LOST_WARN)
        run_say(r, "%s is at risk: %s", shown, reason);
    else
        run_say(r, "%s is at risk: %s; %sthe command is stopped in %s", shown, reason,
                r->broken ? "" : "unless it is renewed ",
                cli_age(age, sizeof age, left > 0 ? left : 0));
}

/* ---- stopping -------------------------------------------------------------------- */

static void begin_kill(struct run *r)
{
    r->phase = KILLING;
    r->look_ms = 1;
    r->look_at = 0;
}

/* TERM now, KILL at kill_at. What is stopped cannot handle TERM, so it is continued, but
 * never without the lock. */
static void begin_stop(struct run *r, int64_t kill_at)
{
    r->kill_at = kill_at;
    guard_times(&r->guard, GUARD_NEVER, kill_at + r->margin / 4);
    if (r->opt.on_lost == LOST_KILL) {
        begin_kill(r);
        return;
    }
    r->phase = STOPPING;
    r->look_ms = 5;
    r->look_at = guard_now();
    descend_signal(family(r), SIGTERM);
    if (run_holds(r))
        descend_signal(family(r), SIGCONT);
}

static void lost_suddenly(struct run *r)
{
    char shown[CLI_TEXT];
    bool warn = r->opt.on_lost == LOST_WARN;
    if (!r->lost)
        run_say(r, "%s was lost: %s", cli_text(shown, sizeof shown, r->opt.names[0]),
                warn ? "the command runs on (--on-lost warn), another may hold it now"
                     : "stopping the command at once");
    r->lost = true;
    if (!warn)
        begin_stop(r, guard_now() + least(r->grace, second));
}

static void out_of_time(struct run *r, int64_t kill_at)
{
    char shown[CLI_TEXT], age[32];
    bool most = r->opt.at_most_ms > 0 && kill_at < r->deadline - r->margin;
    cli_text(shown, sizeof shown, r->opt.names[0]);
    if (most)
        run_say(r, "%s: stopping the command, so that it has ended after %s (--at-most)",
                shown, cli_age(age, sizeof age, r->opt.at_most_ms));
    else
        run_say(r, "%s %s: stopping the command before another gets it", shown,
                r->broken ? "was broken" : "could not be renewed");
    *(most ? &r->timed_out : &r->lost) = true;
    begin_stop(r, kill_at);
}

/* With --on-lost warn the lock is given up and the command goes on. */
static void give_up(struct run *r)
{
    char shown[CLI_TEXT], age[32];
    bool least_counts = r->opt.at_least_ms > r->opt.at_most_ms;
    run_say(r, "%s is given up after the %s of %s: the command runs on",
            cli_text(shown, sizeof shown, r->opt.names[0]),
            cli_age(age, sizeof age, least_counts ? r->opt.at_least_ms : r->opt.at_most_ms),
            least_counts ? "--at-least" : "--at-most");
    r->timed_out = true;
    hf_release(r->lease, NULL);
    r->lease = NULL;
}

static int64_t step_running(struct run *r)
{
    int64_t now = guard_now(), term_at, kill_at;
    bool warn = r->opt.on_lost == LOST_WARN;
    if ((!r->lease && r->outer < 0) || (warn && r->lost))
        return GUARD_NEVER;
    if (!run_holds(r)) {
        lost_suddenly(r);
        return now;
    }
    follow_lease(r);
    limits(r, &term_at, &kill_at);
    warn_at_risk(r, term_at);
    if (warn) {
        int64_t end = r->granted_at + r->opt.at_most_ms * ms;
        if (r->opt.at_least_ms > r->opt.at_most_ms)
            end = r->granted_at + r->opt.at_least_ms * ms;
        if (r->opt.at_most_ms > 0 && now >= end)
            give_up(r);
        return r->opt.at_most_ms > 0 ? least(end, r->deadline) : r->deadline;
    }
    int64_t at = r->opt.on_lost == LOST_KILL ? kill_at : term_at;
    if (now >= at)
        out_of_time(r, kill_at);
    return least(at, r->deadline);
}

/* True: nothing of the command is left. */
static bool step_ending(struct run *r)
{
    int64_t now = guard_now();
    int left = 1;
    struct ending e = { .denied = 0 };
    if (r->phase == STOPPING && now >= r->kill_at)
        begin_kill(r);
    if (now < r->look_at)
        return false;
    if (r->phase == KILLING)
        left = descend_kill(family(r), &e);
    else if (r->ended)
        left = descend_signal(family(r), 0);
    if (e.denied && !r->told_denied)
        run_say(r, "%d processes of the command may not be signalled and run on", e.denied);
    r->told_denied = r->told_denied || e.denied;
    r->look_at = now + r->look_ms * ms;
    r->look_ms = least(r->look_ms * 2, 50);
    return left == 0 && (r->ended || e.denied);
}

/* ---- ^Z and signals -------------------------------------------------------------- */

static void go_on(struct run *r)
{
    while (r->client && hf_client_process(r->client) > 0)
        ;
    if (r->phase != RUNNING || r->ended)
        return;
    bool warn = r->opt.on_lost == LOST_WARN;
    if (!warn && (atomic_load(&r->guard.page->killed) || !run_holds(r))) {
        char shown[CLI_TEXT];
        run_say(r, "%s was lost while the command was stopped: it is killed",
                cli_text(shown, sizeof shown, r->opt.names[0]));
        r->lost = true;
        begin_kill(r);
        return;
    }
    if (atomic_load(&r->guard.page->termed)) {
        int64_t term_at, kill_at;
        limits(r, &term_at, &kill_at);
        r->lost = true;
        begin_stop(r, kill_at);
        return;
    }
    terminal_hand(&r->terminal, r->child);
    pass_on(r, SIGCONT);
}

static void suspend(struct run *r, int sig)
{
    bool job = sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU;
    char shown[CLI_TEXT], age[32];
    int64_t term_at, kill_at;
    /* a guard that has begun to kill stops its prey first */
    if (r->phase != RUNNING || r->ended || atomic_load(&r->guard.page->killed))
        return;
    if (r->terminal.fd < 0 || !r->terminal.own_group || (!job && !r->terminal.handed))
        return;
    /* the shell's fg of a job that runs gives us the terminal and says nothing */
    if (job && sig != SIGTSTP) {
        terminal_hand(&r->terminal, r->child);
        if (r->terminal.handed) {
            go_on(r);
            return;
        }
    }
    limits(r, &term_at, &kill_at);
    if (r->lease && !r->lost && !r->told_stop)
        run_say(r,
                "stopped: unless the command is continued within %s it %s, because %s goes "
                "to another then",
                cli_age(age, sizeof age, (term_at - guard_now()) / ms),
                r->opt.on_lost == LOST_WARN ? "runs without the lock" : "is ended",
                cli_text(shown, sizeof shown, r->opt.names[0]));
    r->told_stop = true;
    terminal_take_back(&r->terminal);
    if (!signals_stop_group(job ? sig : SIGTSTP) && sig != SIGTSTP)
        pass_on(r, SIGHUP); /* as the system does to what stopped and nobody can continue */
    go_on(r);
}

static void take_signals(struct run *r)
{
    bool sent;
    for (int sig; (sig = signals_next(&r->signals, &sent)) != 0;) {
        if (sig == SIGCHLD)
            run_reap(r);
        else if (sig == SIGCONT)
            go_on(r);
        else if (sent || (r->terminal.own_group && !r->terminal.handed))
            pass_on(r, sig); /* else it came from the terminal, to the command as well */
        r->asked_to_end |= sig == SIGTERM || sig == SIGINT || sig == SIGQUIT;
    }
    if (r->stopped_by) {
        int sig = r->stopped_by;
        r->stopped_by = 0;
        suspend(r, sig);
    }
}

/* The guard kills only when we were late, so the lock counts as lost. */
static void note_loss(struct run *r)
{
    char shown[CLI_TEXT];
    bool killed = atomic_load(&r->guard.page->killed);
    if (r->lost || (!killed && !r->lease))
        return;
    if (run_holds(r) && (!killed || r->timed_out))
        return;
    run_say(r, "%s %s", cli_text(shown, sizeof shown, r->opt.names[0]),
            killed ? "was not renewed in time: the guard has killed the command"
                   : "was lost while the command ran");
    r->lost = true;
}

int supervise(struct run *r)
{
    follow_lease(r);
    signals_run(&r->signals, r->terminal.own_group);
    r->child = spawn(r);
    int error = r->child < 0 ? -r->child : r->guard.page->exec_errno;
    if (error) {
        if (r->child > 0)
            waitpid(r->child, NULL, 0);
        terminal_take_back(&r->terminal);
        return r->child < 0 ? run_cannot(r, error), EXIT_SYSTEM : run_cannot(r, error);
    }
    for (;;) {
        int64_t at = GUARD_NEVER;
        take_signals(r);
        inner_serve(r);
        if (atomic_load(&r->guard.page->killed) && r->phase != KILLING) {
            note_loss(r);
            begin_kill(r);
        }
        if (r->phase == RUNNING && r->ended && !r->inner.inside)
            break;
        if (r->ended) /* and others are still inside */
            terminal_take_back(&r->terminal);
        if (r->phase == RUNNING)
            at = step_running(r);
        else if (step_ending(r))
            break;
        if (r->phase != RUNNING)
            at = r->phase == STOPPING ? least(r->kill_at, r->look_at) : r->look_at;
        run_turn(r, at);
    }
    terminal_take_back(&r->terminal);
    /* the news of a loss may have come beside that of the end */
    while (r->client && hf_client_process(r->client) > 0)
        ;
    note_loss(r);
    return 0;
}
