/* bench.c: starts holdfast-bench, the program behind `holdfast bench`.
 *
 * It is a program of its own because few need it: it knows the protocols of the stores.
 * Goes well: it takes the place of this process, with the same arguments behind the path
 * of this command, so its output, its help and its exit status are those of the verb.
 * Goes wrong: 71 if it is not installed; the message names where it was looked for. */
#include "cli.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Cuts the last part off a path; the root is "". */
static void to_parent(char *path)
{
    char *slash = strrchr(path, '/');

    if (slash)
        *slash = '\0';
}

/* Where the program is, for the command at `self`: that of the same build tree, else where
 * BENCH_PROGRAM says, which is relative to the command's folder. So a tree that was
 * installed elsewhere (DESTDIR) or moved uses its own. */
static void find(const char *self, char *ret, size_t size)
{
    const char *rest = BENCH_PROGRAM;
    char folder[PATH_MAX], *last;

    snprintf(folder, sizeof folder, "%s", self);
    to_parent(folder);
    last = strrchr(folder, '/');
    if (last && strcmp(last, "/cli") == 0)
        rest = "../bench/holdfast-bench";
    for (; strncmp(rest, "../", 3) == 0; rest += 3)
        to_parent(folder);
    snprintf(ret, size, "%s%s%s", rest[0] == '/' ? "" : folder, rest[0] == '/' ? "" : "/",
             rest);
}

static int run(struct cli *cli, int argc, char **argv)
{
    char self[PATH_MAX], program[2 * PATH_MAX], shown[CLI_TEXT];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char **args = calloc((size_t)argc + 4, sizeof *args);
    int at = 0;

    if (n < 0 || !args) {
        cli_say("bench: %s", n < 0 ? "cannot read /proc/self/exe" : "out of memory");
        free(args);
        return EXIT_SYSTEM;
    }
    self[n] = '\0';
    find(self, program, sizeof program);
    args[at++] = self;
    if (cli->url) {
        args[at++] = "-u";
        args[at++] = (char *)cli->url;
    }
    memcpy(&args[at], argv, (size_t)argc * sizeof *args);
    execv(program, args);
    cli_text(shown, sizeof shown, program);
    if (errno == ENOENT)
        cli_say("bench is not installed: there is no %s", shown);
    else
        cli_say("bench: cannot start %s: %s", shown, strerror(errno));
    free(args);
    return EXIT_SYSTEM;
}

const struct cli_verb verb_bench = { .name = "bench", .help = CLI_BENCH_HELP, .run = run };
