/* common.c: the beginning and the end of a process, the client, warnings, times and
 * numbers, and errors as messages and statuses.
 *
 * Goes well: a client of the store that source.c names. Goes wrong: an exit status, and the
 * library's own text, which carries no secret (G11). */
#include "cli.h"
#include "util/text.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pwd.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

__attribute__((format(printf, 2, 0))) static void say(const char *verb, const char *fmt,
                                                      va_list ap)
{
    char line[2 * CLI_TEXT];

    /* one write per line: several processes may share this stderr */
    vsnprintf(line, sizeof line, fmt, ap);
    fprintf(stderr, "holdfast: %s%s%s\n", verb ? verb : "", verb ? ": " : "", line);
}

void cli_say(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say(NULL, fmt, ap);
    va_end(ap);
}

int cli_usage(const struct cli *cli, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say(cli->verb, fmt, ap);
    va_end(ap);
    fprintf(stderr, "Try: holdfast help%s%s\n", cli->verb ? " " : "",
            cli->verb ? cli->verb : "");
    return EXIT_USAGE;
}

/* ---- the process ----------------------------------------------------------------- */

/* A closed 0, 1 or 2 would be given to the next file that is opened, and a message would
 * then be written into the store. For reading only: output to a closed 1 is an error. */
void cli_begin(void)
{
    int fd;

    do
        fd =
            open("/dev/null", O_RDONLY | O_CLOEXEC); /* the command finds it closed again */
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

int cli_end(int status)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0) {
        cli_say("cannot write the output: %s", strerror(errno));
        status = EXIT_SYSTEM;
    }
    return status;
}

/* ---- warnings -------------------------------------------------------------------- */

static enum cli_volume volume;

void cli_set_volume(enum cli_volume v)
{
    volume = v;
}

void cli_warn(const char *fmt, ...)
{
    va_list ap;

    if (volume == CLI_QUIET || (volume == CLI_NORMAL && !isatty(STDERR_FILENO)))
        return;
    va_start(ap, fmt);
    say("warning", fmt, ap);
    va_end(ap);
}

/* What the library warns of. A driver repeats itself at each connection; once is enough for
 * a terminal. */
static void on_log(void *user, int level, const char *name, const char *text)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t said[16];
    char shown[CLI_TEXT], about[CLI_TEXT];
    uint64_t key = 1;
    bool before = false;

    (void)user;
    if (level < HF_LOG_WARN)
        return;
    for (const char *p = text; *p; p++)
        key = (key ^ (unsigned char)*p) * 1099511628211u;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < 16 && !before; i++) {
        before = said[i] == key;
        if (said[i])
            continue;
        said[i] = key;
        break;
    }
    pthread_mutex_unlock(&lock);
    if (before && volume != CLI_VERBOSE)
        return;
    cli_text(shown, sizeof shown, text);
    if (name && *name)
        cli_warn("%s: %s", cli_text(about, sizeof about, name), shown);
    else
        cli_warn("%s", shown);
}

void cli_log(hf_options *o)
{
    o->log = on_log;
}

/* ---- the store ------------------------------------------------------------------- */

int cli_open(const struct cli *cli, const hf_options *options, hf_client **ret)
{
    struct cli_source source = { .url = NULL };
    hf_options o = HF_OPTIONS_INIT;
    hf_error err;
    int rc = cli_find_source(cli, &source);

    if (rc)
        return rc;
    if (options)
        o = *options;
    cli_log(&o);
    rc = hf_open(source.url, &o, ret, &err);
    cli_free_source(&source);
    return rc < 0 ? cli_fail(&err) : 0;
}

/* ---- notes ----------------------------------------------------------------------- */

/* Without the arguments of the program: they may hold secrets. */
const char *cli_note(char *buf, size_t size, const char *program)
{
    const struct passwd *user = getpwuid(geteuid());
    const char *slash = program ? strrchr(program, '/') : NULL;
    char number[24];

    snprintf(number, sizeof number, "%ld", (long)geteuid());
    if (slash)
        program = slash + 1;
    snprintf(buf, size, "%s%s%s", user ? user->pw_name : number, program ? ": " : "",
             program ? program : "");
    if (!hf__utf8_valid(buf, strlen(buf)))
        snprintf(buf, size, "%s", number);
    return buf;
}

/* ---- times and numbers ----------------------------------------------------------- */

bool cli_number(const char *text, uint64_t most, uint64_t *ret)
{
    uint64_t n = 0;

    if (!*text)
        return false;
    for (; *text; text++) {
        uint64_t digit = (uint64_t)(*text - '0');

        if (*text < '0' || *text > '9' || digit > most || n > (most - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    *ret = n;
    return true;
}

int64_t cli_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- errors ---------------------------------------------------------------------- */

int cli_exit_of(int rc)
{
    static const struct {
        int status, errors[16]; /* the rest are HF_OK */
    } exits[] = {
#define CLI_X(name, status, help, ...) { status, { __VA_ARGS__ } },
        CLI_EXITS(CLI_X)
#undef CLI_X
    };

    if (rc == 0)
        return 0;
    for (size_t i = 0; i < sizeof exits / sizeof *exits; i++)
        for (size_t k = 0; k < sizeof exits[i].errors / sizeof *exits[i].errors; k++)
            if (exits[i].errors[k] == rc)
                return exits[i].status;
    return EXIT_BUG;
}

/* What to do about it, where the text alone does not say so. */
static const char *advice(const hf_error *err)
{
    switch (err->code) {
    case HF_EMISMATCH:
        return "'holdfast show NAME' says how it is used";
    case HF_ENOTSUP:
        return "holdfast-url(7) says what each store can do";
    case HF_EUNREACHABLE:
        return "check that the server runs, that the address is right, and that both sides "
               "use "
               "TLS or none does";
    case HF_EAUTH: /* of a folder the text says it all */
        return err->where[0] == '/'
                   ? NULL
                   : "check the user, the password and their rights; with TLS "
                     "tls_ca= and tls_cert=";
    case HF_EFULL:
        return "make room in the store, then try again";
    case HF_EMODULE:
        return "'holdfast backends' says what is installed";
    case HF_EUNKNOWN:
        return "look with 'holdfast show NAME' before trying again";
    case HF_EBUG:
        return "please report it";
    default:
        return NULL;
    }
}

int cli_fail(const hf_error *err)
{
    const char *text = err->text[0] ? err->text : hf_strerror(err->code);
    const char *what = advice(err);

    cli_say("%s%s%s%s%s%s", err->where, err->where[0] ? ": " : "", text, what ? " (" : "",
            what ? what : "", what ? ")" : "");
    return cli_exit_of(err->code);
}
