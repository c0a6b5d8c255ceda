/* backends.c: which stores this installation can talk to.
 *
 * Goes well: one line per driver the library knows of, with the URL schemes it serves and
 * where it is (for local: the default folder). A driver that is not there is listed all
 * the same, with the reason; asking is never an error. */
#include "cli.h"

#include <string.h>

static int set(void *ctx, const struct cli_option *o, const char *value)
{
    (void)o;
    (void)value;
    *(bool *)ctx = true;
    return 0;
}

static const char *state_name(uint32_t state)
{
    switch (state) {
    case HF_BACKEND_BUILTIN:
        return "builtin";
    case HF_BACKEND_MODULE:
        return "module";
    default:
        return "missing";
    }
}

static void print_json(const hf_backend *b, bool first)
{
    const char *word = b->schemes;
    bool begin = true;

    fputs(first ? "[\n  {\"name\": " : ",\n  {\"name\": ", stdout);
    json_string(stdout, b->name);
    fputs(", \"schemes\": [", stdout);
    while (*word) {
        char one[64];
        size_t len = strcspn(word, " ");

        snprintf(one, sizeof one, "%.*s", (int)len, word);
        fputs(begin ? "" : ", ", stdout);
        json_string(stdout, one);
        begin = false;
        word += len + strspn(word + len, " ");
    }
    printf("], \"state\": \"%s\", \"detail\": ", state_name(b->state));
    json_string(stdout, b->detail);
    putchar('}');
}

static void print_line(const hf_backend *b)
{
    char detail[4 * sizeof b->detail];

    printf("%-10s  %-8s  %s\n", b->name, state_name(b->state),
           cli_text(detail, sizeof detail, b->detail));
    printf("%-10s  %-8s  URLs: %s\n", "", "", b->schemes);
}

static int run(struct cli *cli, int argc, char **argv)
{
    bool json = false;
    int at = cli_arguments(&verb_backends, argc, argv, set, &json, 0, 0, "");
    hf_backend b = { .size = sizeof b };
    size_t i;

    (void)cli;
    if (at < 0)
        return cli_ended(at);
    for (i = 0; hf_backend_at(i, &b) == 0; i++)
        if (json)
            print_json(&b, i == 0);
        else
            print_line(&b);
    if (json)
        fputs(i ? "\n]\n" : "[]\n", stdout);
    return 0;
}

static const struct cli_option options[] = {
    { 0, "json", NULL, "print an array of objects" },
    { 0, NULL, NULL, NULL },
};

const struct cli_verb verb_backends = {
    .name = "backends",
    .usage = "holdfast backends [--json]",
    .help = "List the stores that holdfast can use here.",
    .details = "States: builtin (part of the library), module (loaded when first used),\n"
               "missing (not built or not installed; the line says which).",
    .options = options,
    .run = run,
};
