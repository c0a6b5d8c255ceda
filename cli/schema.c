/* schema.c: what an administrator would run so that a store can be used: tables of a
 * database, rights of a user. Nothing is opened; the driver says it by the URL alone.
 *
 * Goes well: lines for the tool of that store (psql, redis-cli), and nothing else. Goes
 * wrong: a store that needs no such thing is an error, so that a script that pipes the
 * lines on does not take silence for success. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* "postgres" is short for "postgres:". */
static int named(const char *word, struct cli_source *ret)
{
    ret->url = malloc(strlen(word) + 2);
    if (!ret->url) {
        cli_say("out of memory");
        return EXIT_SYSTEM;
    }
    strcpy(ret->url, word);
    if (!strchr(word, ':'))
        strcat(ret->url, ":");
    return 0;
}

static int run(struct cli *cli, int argc, char **argv)
{
    int at = cli_arguments(&verb_schema, argc, argv, NULL, NULL, 0, 1, "URL"), rc;
    struct cli_source source = { .url = NULL };
    char *text = NULL;
    hf_error err;

    if (at < 0)
        return cli_ended(at);
    rc = at < argc ? named(argv[at], &source) : cli_find_source(cli, &source);
    if (rc)
        return rc;
    if (hf_admin_text(source.url, &text, &err) < 0)
        rc = cli_fail(&err);
    else
        fputs(text, stdout);
    free(text);
    cli_free_source(&source);
    return rc;
}

const struct cli_verb verb_schema = {
    .name = "schema",
    .usage = "holdfast [-u URL] schema [URL|STORE]",
    .help = "Show what an administrator runs so that a store can be used.",
    .details =
        "Lines for the tool of the store: 'holdfast schema postgres | psql'. With a\n"
        "user in the URL also the rights that this user needs; words in capitals, such\n"
        "as USER, stand for what the URL does not name.",
    .run = run,
};
