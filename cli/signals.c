/* signals.c: a wait that a signal ends, for verbs that run no command.
 *
 * Goes well: the handler fires a cancel token, the call leaves the line and returns, and
 * then we die of the signal, as the caller expects. Goes wrong: a second signal does not
 * wait for the store; what is left in a line ends by its ttl. */
#include "cli.h"

#include <signal.h>

static hf_cancel *cancel;
static volatile sig_atomic_t ended_by;

static void on_signal(int sig)
{
    if (ended_by) /* SA_RESETHAND: it ends us when we return, also if it is another one */
        raise(sig);
    ended_by = sig;
    hf_cancel_fire(cancel);
}

int cli_catch_signals(hf_cancel **ret)
{
    static const int sigs[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
    struct sigaction a = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND }, old;
    hf_error err;

    if (hf_cancel_new(&cancel, &err) < 0)
        return cli_fail(&err);
    *ret = cancel;
    for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++)
        if (sigaction(sigs[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(sigs[i], &a, NULL);
    return 0;
}

int cli_ended_by_signal(int status)
{
    if (ended_by && status)
        raise(ended_by); /* SA_RESETHAND */
    return status;
}
