/* common.c: the beginning and the end of a process, the client, warnings, times and
 * numbers, and errors as messages and statuses.
 *
 * Goes well: a client of the store that source.c names. Goes wrong: an exit status, and the
 * library's own text, which carries no secret (G11). */
#include "cli.h"
#include "util/secret.h"
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

/* The library's text names the folder of `local:`, too. That of an error may be cut, but
 * not if it has only that folder. */
char *cli_shown_url(const char *url, const hf_client *client, const hf_error *err)
{
    if (client)
        return strdup(hf_client_url(client));
    return strlen(err->where) < 50 ? strdup(err->where) : hf__without_secrets(url);
}

/* 0, an exit status, or HF_ENOENT with *err. */
static int open_source(const struct cli *cli, hf_options *o, hf_client **ret,
                       char **ret_url, hf_error *err)
{
    struct cli_source source = { .url = NULL };
    int rc = cli_find_source(cli, &source);

    if (rc)
        return rc;
    cli_log(o);
    rc = hf_open(source.url, o, ret, err);
    if (rc < 0 && rc != HF_ENOENT)
        rc = cli_fail_source(&source, err);
    else if (ret_url && !(*ret_url = cli_shown_url(source.url, *ret, err)))
        rc = EXIT_SYSTEM;
    cli_free_source(&source);
    return rc;
}

int cli_open(const struct cli *cli, const hf_options *options, hf_client **ret)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_error err;

    if (options)
        o = *options;
    return open_source(cli, &o, ret, NULL, &err);
}

/* The library would say so, but there is no store to ask. */
static int check_name(const struct cli *cli, const char *name)
{
    enum { LONGEST = 512 };
    size_t n = name ? strlen(name) : 0;

    if (!name || (n > 0 && n <= LONGEST && hf__utf8_valid(name, n)))
        return 0;
    return cli_usage(cli, "a name is 1 to %d bytes of UTF-8", LONGEST);
}

int cli_open_existing(const struct cli *cli, const char *name, hf_client **ret,
                      char **ret_url)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_error err;
    int rc;

    *ret = NULL;
    o.drive = HF_DRIVE_APP | HF_OPEN_EXISTING;
    rc = open_source(cli, &o, ret, ret_url, &err);
    if (rc != HF_ENOENT)
        return rc;
    cli_say("%s: %s yet: nobody holds anything", err.where, err.text);
    return check_name(cli, name);
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
    case HF_ENOTSUP:
        return "holdfast-url(7) says what each store can do";
    case HF_EUNREACHABLE:
        if (err->sys == ETIMEDOUT)
            return "check the address, that a server of this kind is there, and that both "
                   "sides use TLS or neither does";
        return err->sys ? "check that the server runs and that the address is right" : NULL;
    case HF_EMISMATCH:
        return "use another name, or the same kind and number as the others";
    case HF_EAUTH: /* of a folder or a password file the text says it all */
        return err->where[0] == '/' || strstr(err->text, "holdfast schema")
                   ? NULL
                   : "check user, password and certificates; 'holdfast schema' prints the "
                     "rights that the user needs";
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

int cli_fail_name(const char *name, const hf_error *err)
{
    const char *text = err->text[0] ? err->text : hf_strerror(err->code);
    char shown[CLI_TEXT];

    cli_text(shown, sizeof shown, name);
    if (cli_exit_of(err->code) != EXIT_BUSY || strstr(text, shown))
        return cli_fail(err);
    cli_say("%s: %s", shown, text);
    return EXIT_BUSY;
}
