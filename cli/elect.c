/* elect.c: `holdfast elect`: runs a command while this one leads.
 *
 * The leader is the holder of an exclusive lock, and its note is the value that others see.
 * A term in office is one `run`, of the same code: the guard, the stop before the deadline,
 * the exit statuses. So at most one command of all candidates runs at a time (G1).
 *
 * Goes well: it waits in line until it is elected, and runs the command. If that ends by
 * itself the office is given up, and we exit as it did.
 *
 * Goes wrong: the office is lost. The command is stopped as by `run`; when nothing of it is
 * left we stand again, behind the others, as a new owner with a new guard. A store that
 * cannot be used then is tried again for as long as it takes: it was good when we began.
 * What a new try cannot change (rights, another kind of line) ends us. SIGTERM, SIGINT or
 * SIGQUIT ends us for good: in line at once, in office when the command has ended. */
#include "run/run.h"

static const int64_t second = 1000000000;

/* Lets a second pass, unless a signal ends us. There is no term, so no guard is wanted. */
static void rest(struct run *r)
{
    int64_t end = guard_now() + second;

    r->guard_at = GUARD_NEVER;
    while (guard_now() < end && !r->ended_by) {
        run_turn(r, end);
        run_take_signals(r);
    }
}

/* After a term: is there to be another one? */
static bool stands_again(struct run *r, int status, bool *told)
{
    char name[CLI_TEXT], why[CLI_TEXT];
    bool away = status == RUN_AGAIN;

    if (r->ended_by || r->asked_to_end || (!away && !r->lost))
        return false;
    cli_text(name, sizeof name, r->opt.names[0]);
    if (away && !*told)
        run_say(r, "%s: %s; standing again when it answers", name,
                cli_text(why, sizeof why, r->err.text));
    else if (!away)
        run_say(r, "%s: standing again", name);
    *told = away;
    run_again(r);
    if (away)
        rest(r);
    bool on = !r->ended_by;
    r->guard_at = 0;
    return on;
}

static int elect(struct cli *cli, int argc, char **argv)
{
    struct run r;
    bool told = false;
    int status = run_begin(&r, RUN_ELECT, cli, &verb_elect, argc, argv);

    if (status != RUN_ON)
        return status;
    do
        status = run_term(&r);
    while (stands_again(&r, status, &told));
    return run_end(&r, status);
}

const struct cli_verb verb_elect = {
    .name = "elect",
    .usage = "holdfast [-u URL] elect [options] NAME [--] COMMAND [ARG...]",
    .help = "Run COMMAND while leading NAME; stand again when that is lost.",
    .details = "Options end at NAME. One of all who elect NAME leads; 'holdfast leader "
               "NAME' says\n"
               "who. When the office is lost COMMAND is stopped before another leads. When "
               "COMMAND\n"
               "ends by itself the office is given up.\n"
               "Exit status: that of COMMAND, as of run; 75 not elected in time (or -E N); "
               "78 this\n"
               "store cannot show who leads.",
    .options = elect_options,
    .supervises = true,
    .run = elect,
};
