/* ls.c: the lines in use, in the order of their names.
 *
 * Goes well: a table, or with --json one array. Nothing in use is an empty list and no
 * error. Asks the store for one line more than --limit, so as to say that there are more.
 */
#include "cli.h"

#include <inttypes.h>

struct ls {
    bool json;
    uint64_t limit; /* 0: none */
};

static int set(void *ctx, const struct cli_option *o, const char *value)
{
    const struct cli cli = { .verb = "ls" };
    struct ls *ls = ctx;
    char shown[256];

    if (o->name[0] == 'j') {
        ls->json = true;
        return 0;
    }
    if (cli_number(value, UINT32_MAX, &ls->limit) && ls->limit > 0)
        return 0;
    cli_usage(&cli, "--limit '%s': wants a number from 1 on",
              cli_text(shown, sizeof shown, value));
    return -1;
}

static void print_json(const hf_list *list, size_t n)
{
    fputs("[", stdout);
    for (size_t i = 0; i < n; i++) {
        const hf_line *line = hf_list_at(list, i);

        fputs(i ? ",\n  {\"name\": " : "\n  {\"name\": ", stdout);
        json_string(stdout, hf_line_name(line));
        printf(", \"holders\": %zu, \"waiters\": %zu, \"oldest_age_ms\": ",
               hf_line_holders(line), hf_line_waiters(line));
        json_number_or_null(stdout, hf_line_oldest_ms(line));
        printf(", \"mode\": \"%s\"}",
               hf_line_mode(line) == HF_PERMITS ? "permits" : "lock");
    }
    fputs(n ? "\n]\n" : "]\n", stdout);
}

/* The name stands last: it may be long, and then only its own line is. */
static void print_table(const hf_list *list, size_t n)
{
    char name[CLI_TEXT], age[32];

    if (n > 0)
        printf("%7s  %7s  %-12s  %-12s  %s\n", "HOLDERS", "WAITERS", "OLDEST", "KIND",
               "NAME");
    for (size_t i = 0; i < n; i++) {
        const hf_line *line = hf_list_at(list, i);
        int64_t oldest = hf_line_oldest_ms(line);
        char kind[32] = "lock";

        if (hf_line_mode(line) == HF_PERMITS)
            snprintf(kind, sizeof kind, "permits/%" PRIu32, hf_line_capacity(line));
        printf("%7zu  %7zu  %-12s  %-12s  %s\n", hf_line_holders(line),
               hf_line_waiters(line), oldest < 0 ? "-" : cli_age(age, sizeof age, oldest),
               kind, cli_text(name, sizeof name, hf_line_name(line)));
    }
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct ls ls = { false, 0 };
    int at = cli_arguments(&verb_ls, argc, argv, set, &ls, 0, 1, ""), rc;
    hf_client *client = NULL;
    hf_list *list = NULL;
    hf_error err;
    size_t n;

    if (at < 0)
        return cli_ended(at);
    rc = cli_open_existing(cli, NULL, &client, NULL);
    if (rc)
        return rc;
    if (client)
        rc = hf_ls(client, at < argc ? argv[at] : NULL, ls.limit ? (size_t)ls.limit + 1 : 0,
                   &list, &err);
    if (rc < 0) {
        rc = cli_fail(&err);
    } else {
        n = hf_list_count(list);
        if (ls.limit && n > ls.limit) {
            n = (size_t)ls.limit;
            cli_say("there are more than %zu: raise --limit or give a PREFIX", n);
        }
        if (ls.json)
            print_json(list, n);
        else
            print_table(list, n);
    }
    hf_list_free(list);
    hf_close(client);
    return rc;
}

static const struct cli_option options[] = {
    { 0, "json", NULL, "print one array of objects" },
    { 0, "limit", "N", "show at most N names" },
    { 0, NULL, NULL, NULL },
};

const struct cli_verb verb_ls = {
    .name = "ls",
    .usage = "holdfast [-u URL] ls [--json] [--limit N] [PREFIX]",
    .help = "List the names in use (that start with PREFIX).",
    .options = options,
    .run = run,
};
