/* main.c: the command `holdfast`: global options, then one verb.
 *
 * Goes well: the verb's own status. Goes wrong: an unknown verb or option is 64 before
 * anything was opened; output that could not be written (a full disk) is 71, so that a
 * script never takes half a list for the whole. A file that may not grow (ulimit -f) is an
 * error like a full disk, no death by SIGXFSZ in the midst of a store. */
#include "cli.h"
#include "run/run.h"

#include <signal.h>
#include <string.h>

static const struct cli_verb *const verbs[] = {
    &verb_run,    &verb_elect, &verb_once,    &verb_acquire,  &verb_renew,  &verb_release,
    &verb_leader, &verb_count, &verb_barrier, &verb_latch,    &verb_ls,     &verb_show,
    &verb_wait,   &verb_break, &verb_bench,   &verb_backends, &verb_schema, &verb_version,
};

static const struct cli_option main_options[] = {
    { 'u', "url", "URL", "the store; see below" },
    { 'v', "verbose", NULL, "show warnings about the store" },
    { 'V', "version", NULL, "show the version" },
    { 'h', "help", NULL, "show this help" },
    { 0, NULL, NULL, NULL },
};

static const struct cli_verb verb_main = {
    .usage = "holdfast [-v] [-u URL] VERB [options] [arguments]",
    .help = "Locks across processes and machines, in the store you already run.",
    .options = main_options,
};

struct wanted {
    struct cli cli;
    bool help, version;
};

static int set_main(void *ctx, const struct cli_option *o, const char *value)
{
    struct wanted *w = ctx;

    if (o->letter == 'u')
        w->cli.url = value;
    else if (o->letter == 'v')
        w->cli.verbose = true;
    else if (o->letter == 'V')
        w->version = true;
    else
        w->help = true;
    return 0;
}

static void print_help(FILE *out)
{
    cli_help(out, &verb_main);
    fputs("\nVerbs ('holdfast help VERB' tells more):\n", out);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        fprintf(out, "  %-10s %s\n", verbs[i]->name, verbs[i]->help);
    fprintf(out, "  %-10s %s\n", "help", "Show this help, or that of a verb.");
    fputs(
        "\nThe store: -u URL, else $HOLDFAST_URL, else the file named by "
        "$HOLDFAST_URL_FILE\n"
        "(chmod 600), else ~/.config/holdfast.conf, else /etc/holdfast.conf, else local:,\n"
        "which needs no server. 'holdfast backends' says which one it is.\n"
        "\nExit status:\n"
        "   0  done (run: the command's own status, or its signal)\n",
        out);
#define CLI_X(name, status, help, ...) fprintf(out, "%4d  %s\n", status, help);
    CLI_EXITS(CLI_X)
#undef CLI_X
}

static const struct cli_verb *find_verb(const char *name)
{
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return verbs[i];
    return NULL;
}

static int no_verb(const char *name)
{
    const struct cli cli = { .verb = NULL };
    char shown[256];

    return cli_usage(&cli, "unknown verb: %s", cli_word(shown, sizeof shown, name));
}

static bool asks_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int help_verb(int argc, char **argv)
{
    struct cli cli = { .verb = NULL };
    const struct cli_verb *verb;

    if (argc == 1 || (argc == 2 && (strcmp(argv[1], "help") == 0 || asks_help(argv[1])))) {
        print_help(stdout);
        return 0;
    }
    if (argc > 2)
        return cli_usage(&cli, "help takes one verb");
    verb = find_verb(argv[1]);
    if (!verb)
        return no_verb(argv[1]);
    return verb->run(&cli, 2, (char *[]){ argv[1], "--help", NULL });
}

static int dispatch(int argc, char **argv)
{
    struct wanted w = { .help = false };
    int at = cli_options(&verb_main, argc, argv, set_main, &w);
    const struct cli_verb *verb;

    if (at < 0)
        return cli_ended(at);
    if (w.help) {
        print_help(stdout);
        return 0;
    }
    if (w.version)
        return verb_version.run(&w.cli, 1, (char *[]){ "version", NULL });
    if (at == argc)
        return cli_usage(&w.cli, "a verb is missing");
    if (strcmp(argv[at], "help") == 0)
        return help_verb(argc - at, argv + at);
    verb = find_verb(argv[at]);
    if (!verb)
        return no_verb(argv[at]);
    w.cli.verb = verb->name;
    cli_set_volume(w.cli.verbose ? CLI_VERBOSE : CLI_NORMAL);
    if (!verb->supervises)
        signal(SIGXFSZ, SIG_IGN);
    return verb->run(&w.cli, argc - at, argv + at);
}

int main(int argc, char **argv)
{
    cli_begin();
    if (argc == 1 && strcmp(argv[0], GUARD_ENDING) == 0)
        return tickets_end(true);
    if (argc == 1 && strcmp(argv[0], GUARD_KEEPING) == 0)
        return tickets_end(false);
    return cli_end(dispatch(argc, argv));
}
