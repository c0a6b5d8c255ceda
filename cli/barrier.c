/* barrier.c: `holdfast barrier`: waits until so many have come.
 *
 * Goes well: all of them end with 0, together. Goes wrong: the time is over, or another
 * party died or gave up: 75, for all who had come. A signal leaves the barrier first, so
 * that the others know at once. */
#include "cli.h"
#include "util/text.h"

#include <string.h>

enum { PARTIES_MOST = 1024 }; /* hf_barrier(3) */

struct meeting {
    uint64_t parties;
    int64_t wait_ms;
    hf_request request;
    char note[512];
};

static int set(void *ctx, const struct cli_option *o, const char *value)
{
    const struct cli cli = { .verb = "barrier" };
    struct meeting *m = ctx;
    int64_t *time = o->letter == 't' ? &m->request.ttl_ms : &m->wait_ms;
    const char *wanted = CLI_TIME;
    bool good;
    char shown[256];

    if (strcmp(o->name, "note") == 0) {
        m->request.note = value;
        return 0;
    }
    if (strcmp(o->name, "parties") == 0) {
        wanted = "wants a number from 1 to 1024";
        good = cli_number(value, PARTIES_MOST, &m->parties) && m->parties > 0;
    } else {
        good = hf__parse_time(value, time);
    }
    if (!good)
        cli_usage(&cli, "--%s '%s': %s", o->name, cli_text(shown, sizeof shown, value),
                  wanted);
    return good ? 0 : -1;
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct meeting m = { .wait_ms = HF_FOREVER, .request = HF_REQUEST_INIT };
    int at = cli_arguments(&verb_barrier, argc, argv, set, &m, 1, 1, "NAME"), rc;
    hf_client *client = NULL;
    hf_error err;

    if (at < 0)
        return cli_ended(at);
    if (!m.parties)
        return cli_usage(cli, "--parties is missing: how many are to come");
    if (!m.request.note)
        m.request.note = cli_note(m.note, sizeof m.note, NULL);
    rc = cli_open(cli, NULL, &client);
    if (rc)
        return rc;
    rc = cli_catch_signals(&m.request.cancel);
    if (rc == 0 &&
        hf_barrier(client, argv[at], (uint32_t)m.parties, m.wait_ms, &m.request, &err) < 0)
        rc = cli_fail_name(argv[at], &err);
    hf_close(client);
    return cli_ended_by_signal(rc);
}

static const struct cli_option options[] = {
    { 0, "parties", "N", "how many processes are to meet, up to 1,024" },
    { 'w', "wait", "T", "wait at most T; else for ever" },
    { 't', "ttl", "T", "a party counts as dead T after its last contact (default 30s)" },
    { 0, "note", "TEXT", "why: shown to whoever looks" },
    { 0, NULL, NULL, NULL },
};

const struct cli_verb verb_barrier = {
    .name = "barrier",
    .usage = "holdfast [-u URL] barrier --parties N [-w T] [-t T] [--note TEXT] NAME",
    .help = "Wait until N have come to NAME, then all go on.",
    .details =
        "Exit status: 75 the time was over, or another party died or gave up: nobody who\n"
        "had come has passed, and who comes now begins anew; 78 this store has no "
        "barriers.",
    .options = options,
    .run = run,
};
