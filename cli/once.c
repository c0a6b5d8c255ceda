/* once.c: `holdfast once`: runs a command unless it has been done, on whichever machine.
 *
 * One `run`, of the same code, with a mark beside the lock. Goes well: done already: 0 at
 * once. Else we wait for whoever is at it; if its success is recorded meanwhile, 0. Else
 * the command is ours to run, under the lock, with the guard; if it ends with 0 that is
 * recorded before the lock is given back.
 *
 * Goes wrong: the command fails, is killed, or we are: nothing is recorded, the lock ends
 * as that of a run does, and the next one tries. The lock is lost: 76, nothing is recorded.
 * The command succeeded and the store does not answer: 69, it may be done again. A crash
 * between the two: the same. So the command has to bear a repetition, or use its fence. */
#include "run/run.h"

static int forget(struct run *r)
{
    hf_client *client = NULL;
    char name[CLI_TEXT];
    hf_error err;
    int rc = cli_open_existing(r->cli, r->opt.names[0], &client, NULL);

    if (rc == 0 && client && (rc = hf_once_forget(client, r->opt.names[0], &err)) < 0)
        rc = cli_fail(&err);
    else if (rc >= 0 && client && r->opt.verbose)
        run_say(r, "%s %s", cli_text(name, sizeof name, r->opt.names[0]),
                rc ? "is forgotten" : "was not done");
    hf_close(client);
    return rc > 1 ? rc : 0;
}

static int once(struct cli *cli, int argc, char **argv)
{
    struct run r;
    int status = run_begin(&r, RUN_ONCE, cli, &verb_once, argc, argv);

    if (status != RUN_ON)
        return status;
    return run_end(&r, r.opt.forget ? forget(&r) : run_term(&r));
}

const struct cli_verb verb_once = {
    .name = "once",
    .usage = "holdfast [-u URL] once [options] NAME [--] COMMAND [ARG...]\n"
             "       holdfast [-u URL] once --forget NAME",
    .help = "Run COMMAND unless it has succeeded before, here or elsewhere.",
    .details =
        "Options end at NAME. One at a time runs COMMAND, the others wait until it has\n"
        "succeeded (exit status 0, without running it) or failed (the next one tries).\n"
        "Exit status: that of COMMAND, as of run; 0 also if it has been done; 75 somebody "
        "is\n"
        "at it (or -E N); 76 the lock was lost; 69 also if COMMAND has succeeded and that\n"
        "could not be recorded; 78 this store has no such records.",
    .options = once_options,
    .supervises = true,
    .run = once,
};
