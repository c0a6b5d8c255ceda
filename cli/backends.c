/* backends.c: which stores this installation can talk to, and which one it would.
 *
 * Goes well: one line per driver the library knows of, with the URL schemes it serves and
 * where it is (for local: the default folder); then the store that a verb would use, and
 * where its URL comes from. A driver that is not there is listed all the same, with the
 * reason. Goes wrong: a setting that cannot be used is said last, with its exit status. */
#include "cli.h"

#include <stdlib.h>
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

struct selected {
    struct cli_source source;
    char *shown; /* its URL without secrets; NULL: there is none */
};

static bool serves(const hf_backend *b, const struct selected *s)
{
    const char *word = b->schemes;
    size_t len = s->shown ? strcspn(s->shown, ":") : 0;

    for (; len && *word; word += strcspn(word, " "), word += strspn(word, " "))
        if (strcspn(word, " ") == len && strncmp(word, s->shown, len) == 0)
            return true;
    return false;
}

/* The URL is shown only once the library has understood it: in a mistyped one a secret may
 * stand where nobody expects it. */
static int select_store(const struct cli *cli, struct selected *s)
{
    hf_client *client = NULL;
    hf_error err;
    int rc = cli_find_source(cli, &s->source);

    if (rc)
        return rc;
    rc = hf_open(s->source.url, HF_OPTIONS(.drive = HF_DRIVE_APP | HF_OPEN_EXISTING),
                 &client, &err);
    if (rc < 0 && rc != HF_ENOENT)
        return cli_fail_source(&s->source, &err);
    s->shown = cli_shown_url(s->source.url, client, &err);
    hf_close(client);
    return 0;
}

static void print_json(const hf_backend *b, bool first, const struct selected *s)
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
    if (serves(b, s)) {
        fputs(", \"store\": ", stdout);
        json_string(stdout, s->shown);
        fputs(", \"source\": ", stdout);
        json_string(stdout, s->source.from);
    } else {
        fputs(", \"store\": null, \"source\": null", stdout);
    }
    putchar('}');
}

static void print_line(const hf_backend *b)
{
    char detail[4 * sizeof b->detail];

    printf("%-10s  %-8s  %s\n", b->name, state_name(b->state),
           cli_text(detail, sizeof detail, b->detail));
    printf("%-10s  %-8s  URLs: %s\n", "", "", b->schemes);
}

static void print_selected(const struct selected *s)
{
    char text[CLI_TEXT];

    printf("\n%-10s  %s\n", "store", cli_text(text, sizeof text, s->shown));
    printf("%-10s  from %s\n", "", cli_text(text, sizeof text, s->source.from));
}

static int run(struct cli *cli, int argc, char **argv)
{
    bool json = false;
    int at = cli_arguments(&verb_backends, argc, argv, set, &json, 0, 0, ""), rc;
    struct selected s = { .shown = NULL };
    hf_backend b = { .size = sizeof b };
    size_t i;

    if (at < 0)
        return cli_ended(at);
    rc = select_store(cli, &s);
    for (i = 0; hf_backend_at(i, &b) == 0; i++)
        if (json)
            print_json(&b, i == 0, &s);
        else
            print_line(&b);
    if (json)
        fputs(i ? "\n]\n" : "[]\n", stdout);
    else if (s.shown)
        print_selected(&s);
    free(s.shown);
    cli_free_source(&s.source);
    return rc;
}

static const struct cli_option options[] = {
    { 0, "json", NULL, "print an array of objects" },
    { 0, NULL, NULL, NULL },
};

const struct cli_verb verb_backends = {
    .name = "backends",
    .usage = "holdfast [-u URL] backends [--json]",
    .help = "List the stores that holdfast can use here, and the one it would.",
    .details = "States: builtin (part of the library), module (loaded when first used),\n"
               "missing (not built or not installed; the line says which).",
    .options = options,
    .run = run,
};
