/* count.c: `holdfast count`: the next number of a counter.
 *
 * Goes well: one line with the sum, which nobody else gets. Goes wrong: no answer of the
 * store (69), or the number cannot be written (71): it may have been used up. A gap, never
 * a number that two have got. */
#include "cli.h"

#include <inttypes.h>
#include <string.h>

static int set(void *ctx, const struct cli_option *o, const char *value)
{
    const struct cli cli = { .verb = "count" };
    uint64_t n;
    char shown[256];

    (void)o;
    if (cli_number(value, INT64_MAX, &n)) {
        *(int64_t *)ctx = (int64_t)n;
        return 0;
    }
    cli_usage(&cli, "--by '%s': wants a number, 0 to look",
              cli_text(shown, sizeof shown, value));
    return -1;
}

/* Full is the store, or the counter: that one is asked where it stands. */
static int fail(hf_client *client, const char *name, int64_t by, const hf_error *err)
{
    char shown[CLI_TEXT];
    int64_t sum;

    if (err->code != HF_EFULL || hf_count(client, name, 0, &sum, NULL) < 0 ||
        sum <= INT64_MAX - by)
        return cli_fail(err);
    cli_say("%s: %" PRId64 " + %" PRId64 " is more than %" PRId64,
            cli_text(shown, sizeof shown, name), sum, by, INT64_MAX);
    return cli_exit_of(err->code);
}

static int run(struct cli *cli, int argc, char **argv)
{
    int64_t by = 1, sum;
    int at = cli_arguments(&verb_count, argc, argv, set, &by, 1, 1, "NAME"), rc;
    hf_client *client = NULL;
    hf_error err;

    if (at < 0)
        return cli_ended(at);
    rc = cli_open(cli, NULL, &client);
    if (rc)
        return rc;
    if (hf_count(client, argv[at], by, &sum, &err) < 0)
        rc = fail(client, argv[at], by, &err);
    else
        printf("%" PRId64 "\n", sum);
    hf_close(client);
    return rc;
}

static const struct cli_option options[] = {
    { 0, "by", "K", "add K (default 1); 0 only looks" },
    { 0, NULL, NULL, NULL },
};

const struct cli_verb verb_count = {
    .name = "count",
    .usage = "holdfast [-u URL] count [--by K] NAME",
    .help = "Count NAME up and print the sum, which nobody else gets.",
    .details =
        "With --by K the K numbers up to the one that is printed are yours. A number\n"
        "whose printing failed is a gap. Exit status 78: this store does not count.",
    .options = options,
    .run = run,
};
