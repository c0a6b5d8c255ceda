/* options.c: one parser and one help printer for the option tables of all verbs.
 *
 * Goes well: `-w 5`, `-w5`, `--wait 5`, `--wait=5`, `-nq`, and `--` as the end of
 * options. Long names are never abbreviated: a script must not change its meaning when an
 * option is added. Goes wrong: an unknown option, a missing or unwanted value; the
 * message names the option, escaped, and the exit status is 64 before anything was done
 * (G11). */
#include "cli.h"

#include <string.h>

static const struct cli_option help_option = { 'h', "help", NULL, "show this help" };

struct parse {
    const struct cli_verb *verb;
    int argc, at; /* at: the word being read */
    char **argv;
    cli_set *set;
    void *ctx;
};

/* Without the value of the option: it may be a URL with a password. */
static int complain(const struct parse *p, const char *text, const char *option)
{
    const struct cli cli = { .verb = p->verb->name };
    char shown[256], name[64];

    snprintf(name, sizeof name, "%.*s", (int)strcspn(option, "="), option);
    cli_usage(&cli, "%s: %s", cli_text(shown, sizeof shown, name), text);
    return -EXIT_USAGE;
}

static const struct cli_option *find(const struct cli_verb *verb, char letter,
                                     const char *name, size_t len)
{
    const struct cli_option *o = verb->options;

    for (; o && o->name; o++)
        if (name ? strlen(o->name) == len && strncmp(o->name, name, len) == 0
                 : o->letter == letter)
            return o;
    o = &help_option;
    if (name ? strlen(o->name) == len && strncmp(o->name, name, len) == 0
             : o->letter == letter)
        return o;
    return NULL;
}

static int unknown(const struct parse *p, const char *option)
{
    if (strcmp(option, "-u") == 0 || strncmp(option, "--url", 5) == 0)
        return complain(p, "the URL goes before the verb: holdfast -u URL VERB ...",
                        option);
    return complain(p, "unknown option", option);
}

static int give(const struct parse *p, const struct cli_option *o, const char *value)
{
    if (o == &help_option) {
        cli_help(stdout, p->verb);
        return CLI_HELP;
    }
    return p->set(p->ctx, o, value) < 0 ? -EXIT_USAGE : 0;
}

static int take_long(struct parse *p, const char *word)
{
    const char *eq = strchr(word, '='), *value = eq ? eq + 1 : NULL;
    size_t len = eq ? (size_t)(eq - word) - 2 : strlen(word + 2);
    const struct cli_option *o = find(p->verb, 0, word + 2, len);

    if (!o)
        return unknown(p, word);
    if (!o->arg && value)
        return complain(p, "takes no value", word);
    if (o->arg && !value) {
        if (p->at + 1 >= p->argc)
            return complain(p, "a value is missing", word);
        value = p->argv[++p->at];
    }
    return give(p, o, value);
}

static int take_letters(struct parse *p, const char *word)
{
    for (const char *c = word + 1; *c; c++) {
        const struct cli_option *o = find(p->verb, *c, NULL, 0);
        char shown[3] = { '-', *c, '\0' };
        const char *value = NULL;
        int rc;

        if (!o)
            return unknown(p, shown);
        if (o->arg) {
            if (!c[1] && p->at + 1 >= p->argc)
                return complain(p, "a value is missing", shown);
            value = c[1] ? c + 1 : p->argv[++p->at];
        }
        rc = give(p, o, value);
        if (rc < 0 || o->arg)
            return rc;
    }
    return 0;
}

/* Reads the word at p->at with its value. 1: it is no option; 2: it is "--". */
static int take_word(struct parse *p)
{
    const char *word = p->argv[p->at];

    if (word[0] != '-' || word[1] == '\0')
        return 1;
    if (strcmp(word, "--") == 0)
        return 2;
    return word[1] == '-' ? take_long(p, word) : take_letters(p, word);
}

int cli_options(const struct cli_verb *verb, int argc, char **argv, cli_set *set, void *ctx)
{
    struct parse p = { verb, argc, 1, argv, set, ctx };

    for (; p.at < argc; p.at++) {
        int rc = take_word(&p);

        if (rc < 0)
            return rc;
        if (rc > 0)
            return rc == 2 ? p.at + 1 : p.at;
    }
    return argc;
}

int cli_arguments(const struct cli_verb *verb, int argc, char **argv, cli_set *set,
                  void *ctx, int least, int most, const char *what)
{
    struct parse p = { verb, argc, 1, argv, set, ctx };
    const struct cli cli = { .verb = verb->name };
    int n = 0, rc = 0;

    /* arguments gather at argv[1..n]: never beyond the word being read */
    for (; p.at < argc && rc != 2; p.at++) {
        rc = take_word(&p);
        if (rc < 0)
            return rc;
        if (rc == 1)
            argv[++n] = argv[p.at];
    }
    while (p.at < argc)
        argv[++n] = argv[p.at++];
    if (n < least)
        return -cli_usage(&cli, "%s is missing", what);
    if (n > most) {
        char shown[256];

        return -cli_usage(&cli, "one argument too many: %s",
                          cli_word(shown, sizeof shown, argv[most + 1]));
    }
    memmove(&argv[argc - n], &argv[1], (size_t)n * sizeof *argv);
    return argc - n;
}

int cli_ended(int result)
{
    return result == CLI_HELP ? 0 : -result;
}

static void help_line(FILE *out, const struct cli_option *o)
{
    char left[64];

    if (!o->help)
        return;
    snprintf(left, sizeof left, "%c%c%s--%s%s%s", o->letter ? '-' : ' ',
             o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name,
             o->arg ? " " : "", o->arg ? o->arg : "");
    fprintf(out, "  %-24s %s\n", left, o->help);
}

void cli_help(FILE *out, const struct cli_verb *verb)
{
    bool own = false;

    fprintf(out, "Usage: %s\n\n%s\n\nOptions:\n", verb->usage, verb->help);
    for (const struct cli_option *o = verb->options; o && o->name; o++) {
        help_line(out, o);
        own = own || strcmp(o->name, help_option.name) == 0;
    }
    if (!own)
        help_line(out, &help_option);
    if (verb->details)
        fprintf(out, "\n%s\n", verb->details);
}
