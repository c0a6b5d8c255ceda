/* latch.c: `holdfast latch`: waits until so many events were counted.
 *
 * Goes well: --set says how many, --down counts one, and those who wait go on when all are
 * counted; it stays open until --clear. Goes wrong: the time of a wait is over, or it is
 * not set: 75. It counts events, not processes: one that died and should have counted is
 * not missed, so waits have a limit. */
#include "cli.h"
#include "util/text.h"

#include <inttypes.h>
#include <string.h>

struct job {
    const struct cli_option *what; /* NULL: wait */
    int64_t n, by, wait_ms;
    bool by_given, wait_given;
};

enum { SET, DOWN, LEFT, CLEAR }; /* in the order of the table */

static const struct cli_option options[] = {
    { 0, "set", "N", "open when N events have been counted" },
    { 0, "down", NULL, "count one, and print how many are left" },
    { 0, "left", NULL, "print how many are left" },
    { 0, "clear", NULL, "remove it: the name can be used anew" },
    { 0, "by", "K", "with --down: count K" },
    { 'w', "wait", "T", "wait at most T; else for ever" },
    { 0, NULL, NULL, NULL },
};

static int set(void *ctx, const struct cli_option *o, const char *value)
{
    const struct cli cli = { .verb = "latch" };
    struct job *j = ctx;
    uint64_t n = 0;
    char shown[256];
    bool good = true;

    if (o->letter == 'w') {
        good = j->wait_given = hf__parse_time(value, &j->wait_ms);
    } else if (strcmp(o->name, "by") == 0) {
        good = cli_number(value, INT64_MAX, &n) && n > 0;
        j->by = (int64_t)n;
        j->by_given = true;
    } else if (j->what) {
        cli_usage(&cli, "--%s and --%s do not go together", j->what->name, o->name);
        return -1;
    } else {
        good = !value || cli_number(value, INT64_MAX, &n);
        j->what = o;
        j->n = (int64_t)n;
    }
    if (!good)
        cli_usage(&cli, "--%s '%s': %s", o->name, cli_text(shown, sizeof shown, value),
                  o->letter == 'w' ? CLI_TIME : "wants a number");
    return good ? 0 : -1;
}

static int wait_for(hf_client *client, const char *name, int64_t wait_ms)
{
    hf_cancel *cancel;
    hf_error err;
    char shown[CLI_TEXT];
    int rc = cli_catch_signals(&cancel), waited;

    if (rc)
        return rc;
    waited = hf_latch_wait(client, name, wait_ms, cancel, &err);
    if (waited != HF_ETIMEDOUT)
        return waited < 0 ? cli_fail_name(name, &err) : 0;
    cli_say(
        "%s: not open in time; 'holdfast latch --left' says how many events are missing",
        cli_text(shown, sizeof shown, name));
    return EXIT_BUSY;
}

static int change(hf_client *client, const char *name, const struct job *j)
{
    int64_t left = -1;
    hf_error err;
    int rc = 0;

    switch (j->what - options) {
    case SET:
        rc = hf_latch_set(client, name, j->n, &err);
        break;
    case DOWN:
        rc = hf_latch_down(client, name, j->by, &left, &err);
        break;
    case LEFT:
        rc = hf_latch_left(client, name, &left, &err);
        break;
    case CLEAR:
        rc = hf_latch_clear(client, name, &err);
        break;
    }
    if (rc < 0)
        return cli_fail_name(name, &err);
    if (left >= 0)
        printf("%" PRId64 "\n", left);
    return 0;
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct job j = { .by = 1, .wait_ms = HF_FOREVER };
    int at = cli_arguments(&verb_latch, argc, argv, set, &j, 1, 1, "NAME"), rc;
    hf_client *client = NULL;

    if (at < 0)
        return cli_ended(at);
    if (j.by_given && (!j.what || j.what != &options[DOWN]))
        return cli_usage(cli, "--by goes with --down");
    if (j.wait_given && j.what)
        return cli_usage(cli, "--%s does not wait", j.what->name);
    rc = cli_open(cli, NULL, &client);
    if (rc)
        return rc;
    rc = j.what ? change(client, argv[at], &j) : wait_for(client, argv[at], j.wait_ms);
    hf_close(client);
    return cli_ended_by_signal(rc);
}

const struct cli_verb verb_latch = {
    .name = "latch",
    .usage =
        "holdfast [-u URL] latch [-w T] NAME\n"
        "       holdfast [-u URL] latch --set N | --down [--by K] | --left | --clear NAME",
    .help = "Wait until the events of NAME were counted; count them.",
    .details =
        "All may --set it to the same N; it is left as it is then. One that is not set is\n"
        "waited for. Exit status: 75 the time was over, or it is not set (--down,\n"
        "--left); 64 it was set to another N; 78 this store has no latches.",
    .options = options,
    .run = run,
};
