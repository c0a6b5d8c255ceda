/* version.c: which holdfast this is. The library is loaded at run time and may be another
 * one than the command was built with: then both are said. */
#include "cli.h"

#include <string.h>

static int run(struct cli *cli, int argc, char **argv)
{
    int at = cli_arguments(&verb_version, argc, argv, NULL, NULL, 0, 0, "");

    (void)cli;
    if (at < 0)
        return cli_ended(at);
    printf("holdfast %s", HF_VERSION_TEXT);
    if (strcmp(hf_version(), HF_VERSION_TEXT) != 0)
        printf(" (library %s)", hf_version());
    putchar('\n');
    return 0;
}

const struct cli_verb verb_version = {
    .name = "version",
    .usage = "holdfast version",
    .help = "Show the version.",
    .run = run,
};
