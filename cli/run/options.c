/* options.c: the options of `holdfast run`, and of `elect` and `once`, which have fewer.
 *
 * How it goes well: struct run_options is filled from the command line. How it goes
 * wrong: the message names the option and what it wants, nothing has been done, the
 * status is 64 (G11).
 */
#include "run.h"
#include "util/text.h"

#include <stdlib.h>
#include <string.h>

enum { VALUE_MAX = 1024 }; /* hf_campaign(3) */

/* What the verbs have in common. */
#define TRY 'n', "try", NULL, "do not wait: exit 75 if it is taken"
#define WAIT 'w', "wait", "T", "wait at most T; 0 is -n"
#define TTL 't', "ttl", "T", "the lock ends T after contact is lost (default 30s)"
#define GRACE 0, "grace", "T", "from TERM to KILL; at most a third of the ttl"
#define AT_MOST 0, "at-most", "T", "stop the command so that it has ended after T"
#define NOTE 0, "note", "TEXT", "why: shown to whoever looks"
#define BUSY_EXIT 'E', "busy-exit", "N", "exit status instead of 75"
#define COMMAND 'c', "command", "STRING", "run STRING with /bin/sh -c"
#define QUIET 'q', "quiet", NULL, "say nothing about the lock"
#define VERBOSE 'v', "verbose", NULL, "say more"
#define END 0, NULL, NULL, NULL

const struct cli_option run_options[] = {
    { TRY },
    { WAIT },
    { TTL },
    { 's', "shared", NULL, "shared: together with other shared ones" },
    { 'x', "exclusive", NULL, "exclusive: the default" },
    { 0, "permits", "K/N", "K permits of a semaphore that has N" },
    { 0, "rate", "N/T", "no lock: at most N starts in any time T" },
    { 0, "also", "NAME", "hold this name too: all or none (repeatable)" },
    { 0, "reenter", NULL, "run at once if a run around this one holds NAME" },
    { 0, "barge", NULL, "enter past the queue if there is room" },
    { 0, "at-least", "T", "keep the name for T, also if the command ends sooner" },
    { AT_MOST },
    { 0, "on-lost", "term|kill|warn", "when it is lost (default: term)" },
    { GRACE },
    { NOTE },
    { BUSY_EXIT },
    { COMMAND },
    { QUIET },
    { VERBOSE },
    { END },
};

const struct cli_option elect_options[] = {
    { 0, "value", "TEXT", "what 'holdfast leader' shows of this one" },
    { TRY },
    { WAIT },
    { TTL },
    { 0, "on-lost", "term|kill", "when the office is lost (default: term)" },
    { GRACE },
    { BUSY_EXIT },
    { COMMAND },
    { QUIET },
    { VERBOSE },
    { END },
};

const struct cli_option once_options[] = {
    { 0, "for", "T", "its success counts for T; else until --forget" },
    { 0, "forget", NULL, "without COMMAND: remove the record of its success" },
    { TRY },
    { WAIT },
    { TTL },
    { AT_MOST },
    { GRACE },
    { NOTE },
    { BUSY_EXIT },
    { COMMAND },
    { QUIET },
    { VERBOSE },
    { END },
};

static int bad(const struct run *r, const struct cli_option *o, const char *value,
               const char *wanted)
{
    char shown[256];
    cli_usage(r->cli, "--%s '%s': %s", o->name, cli_text(shown, sizeof shown, value),
              wanted);
    return -1;
}

/* Of "A/B" the number A, up to `most`; *ret_rest is B. */
static bool number_before_slash(const char *value, uint64_t most, uint64_t *ret,
                                const char **ret_rest)
{
    char first[24];
    const char *slash = strchr(value, '/');
    size_t len = slash ? (size_t)(slash - value) : 0;
    if (!slash || len >= sizeof first)
        return false;
    memcpy(first, value, len);
    first[len] = 0;
    *ret_rest = slash + 1;
    return cli_number(first, most, ret) && *ret >= 1;
}

static const uint64_t most_permits = UINT64_C(1) << 31;

static int set_permits(struct run *r, const struct cli_option *o, const char *value)
{
    const char *rest;
    uint64_t k, n;
    if (!number_before_slash(value, most_permits, &k, &rest) ||
        !cli_number(rest, most_permits, &n) || k > n)
        return bad(r, o, value,
                   "wants K/N, such as 1/3, with K from 1 to N, and N at most 2147483648");
    r->opt.request.mode = HF_PERMITS;
    r->opt.request.permits = (uint32_t)k;
    r->opt.request.capacity = (uint32_t)n;
    return 0;
}

static int set_rate(struct run *r, const struct cli_option *o, const char *value)
{
    const char *rest;
    uint64_t n;
    if (!number_before_slash(value, most_permits, &n, &rest) ||
        !hf__parse_time(rest, &r->opt.per_ms) || r->opt.per_ms == 0)
        return bad(r, o, value, "wants N/T, such as 10/1m, with N from 1 to 2147483648");
    r->opt.kind = RUN_RATE;
    r->opt.rate = (uint32_t)n;
    return 0;
}

static int set_on_lost(struct run *r, const struct cli_option *o, const char *value)
{
    static const char *const words[] = { "term", "kill", "warn" };
    bool elect = r->opt.kind == RUN_ELECT; /* two leaders are what it is to prevent */
    for (int i = 0; i < (elect ? 2 : 3); i++)
        if (strcmp(value, words[i]) == 0) {
            r->opt.on_lost = (enum on_lost)i;
            return 0;
        }
    return bad(r, o, value, elect ? "wants term or kill" : "wants term, kill or warn");
}

static int set_time(struct run *r, const struct cli_option *o, const char *value)
{
    const struct {
        const char *name;
        int64_t *at;
        bool zero; /* may be 0 */
    } times[] = {
        { "wait", &r->opt.wait_ms, true },        { "ttl", &r->opt.ttl_ms, false },
        { "grace", &r->opt.grace_ms, true },      { "at-least", &r->opt.at_least_ms, true },
        { "at-most", &r->opt.at_most_ms, false }, { "for", &r->opt.mark_ms, false },
    };
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        if (strcmp(o->name, times[i].name) != 0)
            continue;
        if (!hf__parse_time(value, times[i].at))
            return bad(r, o, value, CLI_TIME);
        if (*times[i].at == 0 && !times[i].zero)
            return bad(r, o, value, "must be more than 0");
        return 0;
    }
    return -1;
}

static int set_number(struct run *r, const struct cli_option *o, const char *value)
{
    uint64_t n;
    if (!cli_number(value, 255, &n))
        return bad(r, o, value, "wants a number from 0 to 255");
    r->opt.busy_exit = (int)n;
    return 0;
}

/* The library would speak of a note, which it is there. */
static int set_value(struct run *r, const struct cli_option *o, const char *value)
{
    size_t len = strlen(value);
    r->opt.value = value;
    if (len <= VALUE_MAX && hf__utf8_valid(value, len))
        return 0;
    cli_usage(r->cli, "--%s may have up to %d bytes of UTF-8", o->name, VALUE_MAX);
    return -1;
}

static int set_word(struct run *r, const struct cli_option *o, const char *value)
{
    if (strcmp(o->name, "also") == 0 && !*value)
        return bad(r, o, value, "wants a name");
    if (strcmp(o->name, "also") == 0)
        r->opt.names[++r->opt.nnames] = value;
    else if (strcmp(o->name, "note") == 0)
        r->opt.request.note = value;
    else if (strcmp(o->name, "value") == 0)
        return set_value(r, o, value);
    else if (strcmp(o->name, "permits") == 0)
        return set_permits(r, o, value);
    else if (strcmp(o->name, "rate") == 0)
        return set_rate(r, o, value);
    else if (strcmp(o->name, "on-lost") == 0)
        return set_on_lost(r, o, value);
    else if (strcmp(o->name, "busy-exit") == 0)
        return set_number(r, o, value);
    else if (strcmp(o->name, "command") == 0)
        r->opt.shell = value;
    else
        return set_time(r, o, value);
    return 0;
}

static int set(void *ctx, const struct cli_option *o, const char *value)
{
    struct run *r = ctx;
    if (o->arg)
        return set_word(r, o, value);
    if (strcmp(o->name, "barge") == 0)
        r->opt.request.flags |= HF_BARGE;
    else if (strcmp(o->name, "reenter") == 0)
        r->opt.reenter = true;
    else if (strcmp(o->name, "forget") == 0)
        r->opt.forget = true;
    switch (o->letter) {
    case 'n':
        r->opt.wait_ms = 0;
        break;
    case 's':
        r->opt.request.mode = HF_READ;
        break;
    case 'x':
        r->opt.request.mode = HF_WRITE;
        break;
    case 'q':
        r->opt.quiet = true;
        break;
    case 'v':
        r->opt.verbose = true;
        break;
    default:
        break;
    }
    return 0;
}

/* The kernel refuses to start a command with a longer one: better now than after the wait.
 */
static int check_fences(const struct run *r)
{
    enum { VARIABLE_MAX = 1 << 17, FENCE = 20 };
    size_t size = sizeof "HOLDFAST_FENCES=";
    for (size_t i = 0; r->opt.nnames > 1 && i < r->opt.nnames; i++) {
        size += FENCE + 2;
        for (const char *c = r->opt.names[i]; *c; c++)
            size += *c == '\n' || *c == '\\' ? 2 : 1;
    }
    if (size <= VARIABLE_MAX)
        return 0;
    return cli_usage(r->cli,
                     "the names of --also do not fit into HOLDFAST_FENCES: %d bytes",
                     VARIABLE_MAX);
}

/* What follows NAME. `NAME -c STRING`, as flock(1) has it, is understood too. */
static int take_command(struct run *r, int argc, char **argv, int at)
{
    static char *shell[] = { "/bin/sh", "-c", NULL, NULL };
    char shown[256];
    if (at < argc && strcmp(argv[at], "--") == 0)
        at++;
    else if (at + 2 == argc && strcmp(argv[at], "-c") == 0 && !r->opt.shell) {
        r->opt.shell = argv[at + 1];
        at = argc;
    }
    if (r->opt.shell) {
        if (at < argc)
            return cli_usage(r->cli, "-c runs its STRING: no COMMAND beside it");
        shell[2] = strdup(r->opt.shell);
        r->opt.command = shell;
        return shell[2] ? 0 : EXIT_SYSTEM;
    }
    if (at >= argc)
        return cli_usage(r->cli, "COMMAND is missing");
    if (argv[at][0] == '-' && strcmp(argv[at - 1], "--") != 0)
        return cli_usage(r->cli,
                         "%s: options go before NAME, and a COMMAND that begins with - "
                         "follows --",
                         cli_text(shown, sizeof shown, argv[at]));
    r->opt.command = argv + at;
    return 0;
}

/* What does not go together. */
static int check_kind(const struct run *r, int rest)
{
    const struct run_options *o = &r->opt;
    if (o->request.permits && o->request.mode != HF_PERMITS)
        return cli_usage(r->cli, "--permits is neither --shared nor exclusive");
    if (o->reenter && (o->nnames > 1 || o->request.mode == HF_PERMITS))
        return cli_usage(r->cli, "--reenter goes with one lock: no --also, no --permits");
    if (o->kind == RUN_RATE &&
        (o->nnames > 1 || o->request.mode || o->reenter || o->at_least_ms ||
         o->at_most_ms || o->grace_ms >= 0 || o->on_lost != LOST_TERM))
        return cli_usage(
            r->cli, "--rate holds no lock while the command runs: of the options about "
                    "a lock only -n, -w, -t, -E, --note and --barge go with it");
    if (o->forget && (rest || o->shell || o->mark_ms))
        return cli_usage(r->cli, "--forget takes NAME alone");
    return 0;
}

int run_read_options(struct run *r, const struct cli_verb *verb, int argc, char **argv)
{
    r->opt.names = calloc((size_t)argc + 1, sizeof *r->opt.names);
    if (!r->opt.names) {
        cli_say("out of memory");
        return EXIT_SYSTEM;
    }
    int at = cli_options(verb, argc, argv, set, r);
    if (at < 0)
        return at;
    if (at >= argc)
        return cli_usage(r->cli, "NAME is missing");
    r->opt.names[0] = argv[at];
    r->opt.nnames++;
    r->opt.verbose |= r->cli->verbose;
    cli_set_volume(r->opt.verbose ? CLI_VERBOSE : r->opt.quiet ? CLI_QUIET : CLI_NORMAL);
    int rc = check_kind(r, argc - at - 1);
    if (rc == 0)
        rc = check_fences(r);
    if (rc == 0 && !r->opt.forget)
        rc = take_command(r, argc, argv, at + 1);
    if (rc == 0 && !r->opt.forget && !r->opt.request.note && r->opt.kind != RUN_ELECT)
        r->opt.request.note = cli_note(r->note, sizeof r->note, r->opt.command[0]);
    return rc;
}
