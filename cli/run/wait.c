/* wait.c: `holdfast run` until it holds the lock, or knows that it will not.
 *
 * How it goes well: the store is opened without threads, we stand in line, and one poll
 * sees to the client, the signals and the line on the terminal.
 *
 * How it goes wrong: busy, timed out, deadlock, evicted: 75 (or -E N), and nothing is left
 * in the line. A signal leaves the line and then ends us as it would have. A place that was
 * lost while we were stopped is taken anew. An `elect` that stands again waits out what may
 * pass: it was there when the store was. A nested run for a name of its parent would
 * wait for itself: it is refused at once.
 */
#include "run.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t ms = 1000000, second = 1000000000;
enum { TELL_MS = 300 };

static int busy(const struct run *r)
{
    return r->opt.busy_exit >= 0 ? r->opt.busy_exit : EXIT_BUSY;
}

/* A new term may find the store away: that passes. */
static int fail(const struct run *r)
{
    return r->again && r->err.retry ? RUN_AGAIN : cli_fail(&r->err);
}

/* ---- the store ------------------------------------------------------------------- */

/* A hold is renewed until two thirds of its ttl have passed without an answer. The last
 * third is left for ending the command. */
static int64_t most_grace(int64_t ttl_ms)
{
    return ttl_ms / 3;
}

static int check_grace(const struct run *r, int64_t ttl_ms)
{
    char age[32];
    if (r->opt.grace_ms <= most_grace(ttl_ms))
        return 0;
    return cli_usage(r->cli,
                     "--grace may be at most a third of the ttl (%s): the command must "
                     "have ended before another gets the lock",
                     cli_age(age, sizeof age, most_grace(ttl_ms)));
}

/* The same against the ttl that the store gave: it may be less than what was asked for. */
static int check_given(const struct run *r)
{
    char grace[32], given[32];
    int64_t ttl_ms = hf_lease_ttl_ms(r->lease);
    if (r->opt.grace_ms <= most_grace(ttl_ms))
        return RUN_ON;
    cli_say("--grace %s is more than a third of the ttl that the store gave (%s)",
            cli_age(grace, sizeof grace, r->opt.grace_ms),
            cli_age(given, sizeof given, ttl_ms));
    return EXIT_NOTSUP;
}

void run_set_times(struct run *r)
{
    /* inside the lock of another run there is no ttl */
    int64_t ttl_ms = r->lease ? hf_lease_ttl_ms(r->lease) : 30000, grace = r->opt.grace_ms;
    if (grace < 0)
        grace = ttl_ms / 6 < 5000 ? ttl_ms / 6 : 5000;
    r->grace = (grace < most_grace(ttl_ms) ? grace : most_grace(ttl_ms)) * ms;
    /* how long killing may take on a busy machine: to be woken, to look, to see them die */
    int64_t margin = ttl_ms / 10 < 100 ? 100 : ttl_ms / 10 > 1000 ? 1000 : ttl_ms / 10;
    r->margin = (margin < ttl_ms / 5 ? margin : ttl_ms / 5) * ms;
}

/* ---- the run around us ----------------------------------------------------------- */

/* Does that owner hold the name? 1 with its fence (0: the store cannot tell it), 0, or a
 * negative error. */
static int held_by(struct run *r, const char *name, const char *owner, uint64_t *ret_fence)
{
    hf_list *list;
    size_t len = strcspn(owner, " ");
    int held = 0, rc = hf_look(r->client, name, &list, &r->err);
    if (rc < 0)
        return rc;
    const hf_line *line = hf_list_at(list, 0);
    for (size_t i = 0; line && i < hf_line_tickets(line); i++) {
        const hf_ticket *t = hf_line_ticket(line, i);
        const char *other = hf_ticket_owner(t);
        if (hf_ticket_position(t) > 0 || strlen(other) != len ||
            memcmp(other, owner, len) != 0)
            continue;
        held = 1;
        *ret_fence = hf_ticket_fence(t);
    }
    hf_list_free(list);
    return held;
}

/* The names of an owner's text are percent-encoded. */
static void decode(char *to, size_t size, const char *from, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < size; i++)
        if (from[i] == '%' && i + 2 < len) {
            to[n++] = (char)(hf__hex_digit(from[i + 1]) * 16 + hf__hex_digit(from[i + 2]));
            i += 2;
        } else {
            to[n++] = from[i];
        }
    to[n] = 0;
}

/* Does the store show that owner with one of the names that it held? 1, 0, negative. */
static int still_holds(struct run *r, const char *owner)
{
    char name[CLI_TEXT];
    uint64_t fence;
    int rc = 0;
    for (const char *at = owner + strcspn(owner, " "); *at && rc == 0;) {
        at += strspn(at, " ");
        size_t len = strcspn(at, " ");
        decode(name, sizeof name, at, len);
        if (len)
            rc = held_by(r, name, owner, &fence);
        at += len;
    }
    return rc;
}

/* ---- the store ------------------------------------------------------------------- */

static int open_as(struct run *r, const char *url, const char *owner)
{
    hf_options o = HF_OPTIONS_INIT;
    o.drive = HF_DRIVE_APP;
    o.owner = owner;
    if (r->opt.ttl_ms > 0) /* not that of the request: of a session it cannot be */
        o.ttl_ms = r->opt.ttl_ms;
    cli_log(&o);
    /* without a parent we are an owner ourselves, so that our children can name us */
    r->opt.request.owner = owner ? HF_OWNER_CALL : 1;
    r->parent = owner;
    hf_close(r->client);
    r->client = NULL;
    return hf_open(url, &o, &r->client, &r->err);
}

/* The owner in the environment counts while it holds something: an environment outlives its
 * run, and two jobs of a daemon that was started there are not one owner. A run around us
 * answers for itself; of one on another machine, or in another network namespace, the store
 * is asked. The library has one code for a bad URL and a bad owner, so the URL is tried
 * alone. */
static int open_for_parent(struct run *r, const char *url, const char *owner)
{
    if (r->nested && open_as(r, url, owner) == 0)
        return 0;
    if (r->nested && r->err.code != HF_EINVAL)
        return fail(r);
    if (open_as(r, url, NULL) < 0)
        return cli_fail_source(&r->source, &r->err);
    if (!r->nested) {
        int rc = owner ? still_holds(r, owner) : 0;
        if (rc < 0)
            return fail(r);
        if (rc == 0 || open_as(r, url, owner) == 0)
            return 0;
    }
    cli_say("HOLDFAST_OWNER is not what a holdfast run has set: unset it");
    return EXIT_USAGE;
}

/* A run inside a run of another store protects from nobody whom the outer one keeps out. */
static int check_store(const struct run *r)
{
    char ours[CLI_TEXT], theirs[CLI_TEXT], from[CLI_TEXT];
    const char *store = getenv("HOLDFAST_STORE");
    if (r->cli->url || !r->nested || !store || strcmp(store, hf_client_url(r->client)) == 0)
        return 0;
    return cli_usage(r->cli,
                     "the run around this one holds its names in %s, but the store here is "
                     "%s (%s): name "
                     "the store with -u if that is meant",
                     cli_text(theirs, sizeof theirs, store),
                     cli_text(ours, sizeof ours, hf_client_url(r->client)),
                     cli_text(from, sizeof from, r->source.from));
}

int run_open(struct run *r)
{
    const char *owner = getenv("HOLDFAST_OWNER");
    int rc = cli_find_source(r->cli, &r->source);
    if (rc)
        return rc;
    r->nested = inner_has_parent();
    rc = open_for_parent(r, r->source.url, owner && *owner ? owner : NULL);
    if (rc == 0)
        rc = check_grace(r, hf_client_ttl_ms(r->client));
    if (rc == 0)
        rc = check_store(r);
    return rc ? rc : RUN_ON;
}

/* Waiting for a name that our own parent holds would deadlock. */
static int refuse_own(struct run *r, const char *name)
{
    char shown[CLI_TEXT], number[40] = "";
    uint64_t fence = 0;
    int rc = held_by(r, name, r->parent, &fence);
    if (rc <= 0)
        return rc < 0 ? fail(r) : 0;
    if (fence > 0) /* redlock cannot tell it */
        snprintf(number, sizeof number, ", fence %" PRIu64, fence);
    run_say(r, "%s is held by your parent run%s", cli_text(shown, sizeof shown, name),
            number);
    return EXIT_BUSY;
}

int run_refuse_nested(struct run *r)
{
    for (size_t i = 0; r->parent && i < r->opt.nnames; i++) {
        int rc = refuse_own(r, r->opt.names[i]);
        if (rc)
            return rc == EXIT_BUSY ? busy(r) : rc;
    }
    return RUN_ON;
}

/* ---- waiting --------------------------------------------------------------------- */

static void on_done(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct run *r = user;
    r->done = true;
    r->rc = rc;
    r->lease = lease;
    if (rc < 0 && err)
        r->err = *err;
    r->op = NULL;
    hf_op_free(op);
}

static int64_t rest_of_wait(const struct run *r)
{
    if (r->opt.wait_ms < 0)
        return HF_FOREVER;
    int64_t rest = r->opt.wait_ms - (guard_now() - r->asked_at) / ms;
    return rest > 0 ? rest : 0;
}

static int join(struct run *r)
{
    const struct run_options *o = &r->opt;
    const char *name = o->names[0];
    int64_t wait = rest_of_wait(r);
    r->done = false;
    switch (o->kind) {
    case RUN_ELECT:
        return hf_campaign_start(r->client, name, o->value, wait, &o->request, on_done, r,
                                 &r->op, &r->err);
    case RUN_ONCE:
        return hf_once_begin_start(r->client, name, o->mark_ms, wait, &o->request, on_done,
                                   r, &r->op, &r->err);
    case RUN_RATE:
        return hf_rate_start(r->client, name, o->rate, o->per_ms, wait, &o->request,
                             on_done, r, &r->op, &r->err);
    case RUN_LOCK:
        break;
    }
    if (o->nnames == 1)
        return hf_acquire_start(r->client, name, wait, &o->request, on_done, r, &r->op,
                                &r->err);
    return hf_acquire_all_start(r->client, o->names, o->nnames, wait, &o->request, on_done,
                                r, &r->op, &r->err);
}

void run_take_signals(struct run *r)
{
    bool sent;
    for (int sig; (sig = signals_next(&r->signals, &sent)) != 0;) {
        if (sig == SIGCHLD)
            run_reap(r);
        else if (!signals_end_wait(&r->signals, sig))
            continue;
        else if (r->ended_by) { /* asked twice: the store ends our place by the ttl */
            guard_close(&r->guard);
            signals_die(sig);
        } else {
            r->ended_by = sig;
            if (r->op)
                hf_op_cancel(r->op);
        }
    }
}

/* Waits for the answer to one join. */
static void await(struct run *r, bool show)
{
    struct standing *line = NULL;
    int64_t tell_at = show ? guard_now() + TELL_MS * ms : GUARD_NEVER;
    while (hf_client_process(r->client) > 0 && !r->done)
        ;
    while (!r->done) {
        run_take_signals(r);
        if (guard_now() >= tell_at || standing_changed(line)) {
            if (!line)
                line = standing_open(r);
            standing_tick(line);
            tell_at = guard_now() + second;
        }
        run_turn(r, tell_at);
    }
    standing_close(line);
}

/* Of several names one may have been lost while we waited, stopped, for the others. */
static bool lost_already(struct run *r)
{
    if (r->lease && hf_lease_check(r->lease) < 0) {
        hf_release(r->lease, NULL);
        r->lease = NULL;
        return true;
    }
    return r->rc == HF_ELOST;
}

/* There is nothing to be held: the start is allowed, or the work has been done. */
static int go_without(const struct run *r)
{
    char shown[CLI_TEXT], waited[32];
    cli_text(shown, sizeof shown, r->opt.names[0]);
    if (r->opt.verbose && r->opt.kind == RUN_ONCE)
        run_say(r, "%s is done already", shown);
    else if (r->opt.verbose)
        run_say(r, "%s: waited %s for a start", shown,
                cli_age(waited, sizeof waited, (r->granted_at - r->asked_at) / ms));
    return r->opt.kind == RUN_ONCE ? 0 : RUN_ON;
}

int run_acquire(struct run *r)
{
    bool show = !r->opt.quiet && (r->opt.verbose || isatty(STDERR_FILENO));
    char shown[CLI_TEXT];
    r->asked_at = guard_now();
    do {
        r->rc = join(r);
        if (r->rc == 0)
            await(r, show);
    } while (!r->ended_by && lost_already(r));
    r->granted_at = guard_now();
    if (r->ended_by)
        return RUN_ON;
    if (r->rc >= 0)
        return r->lease ? check_given(r) : go_without(r);
    bool taken = r->rc == HF_EBUSY || r->rc == HF_ETIMEDOUT;
    if (!taken && r->rc != HF_EDEADLK && r->rc != HF_EEVICTED)
        return fail(r);
    if (taken && r->opt.kind == RUN_RATE) {
        standing_say_starts(r);
        return busy(r);
    }
    if (taken && standing_say_who(r, r->rc == HF_EBUSY ? "" : "not granted in time: "))
        return busy(r);
    run_say(r, "%s%s: %s", cli_text(shown, sizeof shown, r->opt.names[0]),
            r->opt.nnames > 1 ? " (and the other --also names)" : "",
            r->err.text[0] ? r->err.text : hf_strerror(r->rc));
    return busy(r);
}
