/* cli.h: what the verbs of the command share. The command uses public symbols only; of the
 * library's own helpers util/text.c and util/secret.c are compiled in. What
 * common.c, source.c, options.c and text.c have is shared with holdfast-bench, too. */
#ifndef HF_CLI_H
#define HF_CLI_H

#include <holdfast/recipes.h>
#include <holdfast/tool.h>
#include <stdbool.h>
#include <stdio.h>

/* Exit statuses: X(name, status, what --help says, the errors that end so or HF_OK). All of
 * them stand in holdfast(1), and those of errors in holdfast-errors(7): tools/check-docs
 * compares. */
#define CLI_EXITS(X)                                                                       \
    X(USAGE, 64, "bad usage", HF_EINVAL, HF_EMISMATCH)                                     \
    X(UNREACHABLE, 69, "the store cannot be reached or used", HF_EUNKNOWN,                 \
      HF_EUNREACHABLE, HF_EBUSYSTORE, HF_EFULL, HF_EDAMAGED, HF_EVERSION, HF_EFOREIGN,     \
      HF_EPROTO, HF_EMODULE, HF_EREPLICAS)                                                 \
    X(BUG, 70, "a defect in holdfast", HF_EBUG, HF_ECLOSED, HF_EFORKED, HF_EREENTRANT)     \
    X(SYSTEM, 71, "a system error: memory, processes, files", HF_ENOMEM, HF_ESYS)          \
    X(BUSY, 75, "busy, not granted in time, or nothing to break", HF_EBUSY, HF_ETIMEDOUT,  \
      HF_ECANCELED, HF_EDEADLK, HF_ENOENT, HF_EEVICTED, HF_EPARTY)                         \
    X(LOST, 76, "the lock was lost while the command ran", HF_ELOST)                       \
    X(REFUSED, 77, "refused by the store: login or rights", HF_EAUTH)                      \
    X(NOTSUP, 78, "not supported by this store", HF_ENOTSUP)                               \
    X(TIMEOUT, 124, "the command was ended by --at-most", HF_OK)                           \
    X(NOEXEC, 126, "the command cannot be executed", HF_OK)                                \
    X(NOTFOUND, 127, "the command was not found", HF_OK)

enum {
#define CLI_X(name, status, help, ...) EXIT_##name = status,
    CLI_EXITS(CLI_X)
#undef CLI_X
};

struct cli {
    const char *url;  /* -u, or NULL */
    const char *verb; /* "run" */
    bool verbose;     /* -v before the verb */
};

/* ---- options.c ------------------------------------------------------------------- */

/* One option of a verb. Tables of these make both the parser and --help. */
struct cli_option {
    char letter;      /* 0: long form only */
    const char *name; /* "wait" */
    const char *arg;  /* "T", or NULL for a flag */
    const char *help; /* one line; NULL: accepted, not shown */
};

struct cli_verb {
    const char *name, *usage, *help;
    const char *details;              /* a few lines below the options; may be NULL */
    const struct cli_option *options; /* ends with name NULL; may be NULL */
    bool supervises; /* it runs a command, to which it gives its signals as it got them */
    /* argv[0] is the verb; returns the exit status */
    int (*run)(struct cli *, int argc, char **argv);
};

extern const struct cli_verb verb_run, verb_elect, verb_once, verb_acquire, verb_renew,
    verb_release, verb_leader, verb_count, verb_barrier, verb_latch, verb_ls, verb_show,
    verb_wait, verb_break, verb_bench, verb_backends, verb_schema, verb_version;

/* Of a verb that is a program of its own: the rest of its help stands there. */
#define CLI_BENCH_HELP "Measure holdfast beside the least that this machine could do."

enum { CLI_HELP = -1000 }; /* help was asked for and printed */

typedef int cli_set(void *ctx, const struct cli_option *, const char *value);

/* Reads options from argv[1] on, up to the first argument that is none or to "--". For
 * each calls set(ctx, option, value); a negative result of it ends with EXIT_USAGE (it
 * has said why). Returns the index of the first argument, or 0 - exit status (--help was
 * given: -1000). */
int cli_options(const struct cli_verb *, int argc, char **argv, cli_set *set, void *ctx);

/* The same for verbs whose options may also follow their arguments: argv is reordered,
 * and argv[result] to argv[argc - 1] are the arguments. Fewer than `least` or more than
 * `most` of them is EXIT_USAGE; `what` names them in the message. */
int cli_arguments(const struct cli_verb *, int argc, char **argv, cli_set *set, void *ctx,
                  int least, int most, const char *what);

/* The exit status for a negative result of the two. */
int cli_ended(int result);

void cli_help(FILE *, const struct cli_verb *);

/* ---- common.c -------------------------------------------------------------------- */

/* The first and the last call of a program. The latter returns the exit status: 71 if the
 * output of what went well could not be written. */
void cli_begin(void);
int cli_end(int status);

int cli_open(const struct cli *, const hf_options *, hf_client **ret); /* 0, exit status */
/* For verbs that take no lock: makes no store. 0 with *ret NULL: there is none, which has
 * been said, so nobody holds `name` (NULL: anything). *ret_url is its URL without secrets,
 * malloc'd; may be NULL. */
int cli_open_existing(const struct cli *, const char *name, hf_client **ret,
                      char **ret_url);

/* The URL of a client without secrets, malloc'd; of none: as HF_ENOENT with *err names it.
 */
char *cli_shown_url(const char *url, const hf_client *, const hf_error *err);

/* A warning is said on a terminal; with CLI_VERBOSE everywhere, with CLI_QUIET nowhere.
 * Those of the library come through the log: cli_open sees to it, cli_log for other calls.
 */
enum cli_volume { CLI_NORMAL, CLI_QUIET, CLI_VERBOSE };
void cli_set_volume(enum cli_volume);
void cli_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void cli_log(hf_options *);

/* What hf__parse_time (util/text.h) takes. */
#define CLI_TIME "wants a time such as 2.5, 500ms, 30s, 5m, 1h30m, 2d; at most 366 days"
/* "user: program": a note for those who give none. `program` may be NULL. Returns buf. */
const char *cli_note(char *buf, size_t size, const char *program);

bool cli_number(const char *text, uint64_t most, uint64_t *ret);
int64_t cli_now_ms(void); /* CLOCK_BOOTTIME */

int cli_exit_of(int rc);        /* HF_E* to exit status; one that is not known: EXIT_BUG */
int cli_fail(const hf_error *); /* says it, returns the exit status */
int cli_fail_name(const char *name, const hf_error *); /* what was not granted is named */

/* One line on stderr after "holdfast: ". cli_usage names the verb and returns EXIT_USAGE.
 */
void cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int cli_usage(const struct cli *, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- source.c -------------------------------------------------------------------- */

struct cli_source {
    char *url;       /* with its secrets */
    char from[4352]; /* "-u", "HOLDFAST_URL", "/etc/holdfast.conf" ...; not escaped */
};

/* Which store? 0 or an exit status, having said why. */
int cli_find_source(const struct cli *, struct cli_source *ret);
void cli_free_source(struct cli_source *);
int cli_fail_source(const struct cli_source *, hf_error *); /* cli_fail of its hf_open */

/* ---- text.c ---------------------------------------------------------------------- */

enum { CLI_TEXT = 4 * 1024 + 1 }; /* holds any escaped name or note */

/* Text for a terminal: control characters escaped. Returns buf. */
const char *cli_text(char *buf, size_t size, const char *text);
/* The same in quotes, of a word that does not belong where it stands: it may be a URL with
 * a password, and is not shown then. */
const char *cli_word(char *buf, size_t size, const char *text);
/* "3.2 s", "5 min", "2 h 10 min". Returns buf. */
const char *cli_age(char *buf, size_t size, int64_t ms);

void json_string(FILE *, const char *);      /* quoted, escaped */
void json_number_or_null(FILE *, int64_t n); /* negative: null */

/* ---- signals.c ------------------------------------------------------------------- */

/* From now on the first SIGINT, SIGTERM, SIGHUP or SIGQUIT fires *ret, so that a wait
 * leaves its line; the second one ends us as always. One wait per process. 0, exit status.
 */
int cli_catch_signals(hf_cancel **ret);
/* After it: a call that failed because of a signal ends us by that signal; else `status`.
 */
int cli_ended_by_signal(int status);

/* ---- show.c ---------------------------------------------------------------------- */

/* One ticket as an indented block of lines, the way `show` prints it. */
void cli_ticket(FILE *, const hf_ticket *);

#endif
