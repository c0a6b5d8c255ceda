/* common.c: the beginning and the end of a process, where the URL comes from, times and
 * numbers, and errors as messages and statuses.
 *
 * Goes well: a client of the store that -u, the environment or the default names. Goes
 * wrong: a setting that is there but cannot be used is an error, never a reason to fall
 * back: a misspelt store must not turn into the local one and let two machines in. No
 * message quotes the URL itself, which may hold a password; the library's texts carry
 * none either (G11). */
#include "cli.h"
#include "util/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { URL_FILE_MAX = 4096 };

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
 * then be written into the store. */
void cli_begin(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC); /* the command finds it closed again */
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

/* ---- the URL --------------------------------------------------------------------- */

static int read_all(int fd, char *buf, size_t size)
{
    size_t n = 0;

    while (n < size) {
        ssize_t got = read(fd, buf + n, size - n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    return (int)n;
}

/* The file is ours alone, and a file: a FIFO would hang, and what others may write could
 * send us to a store of theirs. */
static int check_url_file(int fd, const char *shown)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        cli_say("HOLDFAST_URL_FILE: %s is not a file", shown);
        return EXIT_USAGE;
    }
    if (st.st_mode & (S_IRWXG | S_IRWXO)) {
        cli_say("HOLDFAST_URL_FILE: %s is open to others: chmod 600 it", shown);
        return EXIT_USAGE;
    }
    return 0;
}

static int given_url(const char *url, const char *from, char **ret)
{
    if (!*url) {
        cli_say("%s is empty: name a store such as local: or leave it out", from);
        return EXIT_USAGE;
    }
    *ret = strdup(url);
    if (*ret)
        return 0;
    cli_say("out of memory");
    return EXIT_SYSTEM;
}

/* The one line of the file, without the white space around it. */
static int url_of_text(char *text, const char *shown, char **ret)
{
    static const char space[] = " \t\r\n";
    char *start = text + strspn(text, space), *end = text + strlen(text);

    while (end > start && strchr(space, end[-1]))
        end--;
    *end = '\0';
    if (!*start || strpbrk(start, space)) {
        cli_say("HOLDFAST_URL_FILE: %s must hold one URL and nothing else", shown);
        return EXIT_USAGE;
    }
    return given_url(start, "HOLDFAST_URL_FILE", ret);
}

static int read_url_file(const char *path, char **ret)
{
    char text[URL_FILE_MAX + 1], shown[CLI_TEXT];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), rc, n = 0;

    cli_text(shown, sizeof shown, path);
    if (fd < 0) {
        cli_say("HOLDFAST_URL_FILE: cannot open %s: %s", shown, strerror(errno));
        return EXIT_SYSTEM;
    }
    rc = check_url_file(fd, shown);
    if (rc == 0) {
        n = read_all(fd, text, sizeof text);
        if (n < 0) {
            cli_say("HOLDFAST_URL_FILE: cannot read %s: %s", shown, strerror(errno));
            rc = EXIT_SYSTEM;
        } else if (n > URL_FILE_MAX || memchr(text, '\0', (size_t)n)) {
            cli_say("HOLDFAST_URL_FILE: %s must hold one URL and nothing else", shown);
            rc = EXIT_USAGE;
        }
    }
    close(fd);
    if (rc == 0) {
        text[n] = '\0';
        rc = url_of_text(text, shown, ret);
    }
    explicit_bzero(text, sizeof text);
    return rc;
}

static void warn_of_password(const char *url)
{
    char *shown = hf__without_secrets(url);

    if (shown && strcmp(shown, url) != 0)
        cli_say("warning: everybody on this machine can see the password after -u; put "
                "the URL into a file (chmod 600) and name it in HOLDFAST_URL_FILE");
    free(shown);
}

int cli_url(const struct cli *cli, char **ret)
{
    const char *url = getenv("HOLDFAST_URL"), *file = getenv("HOLDFAST_URL_FILE");

    if (cli->url) {
        warn_of_password(cli->url);
        return given_url(cli->url, "-u", ret);
    }
    if (url)
        return given_url(url, "HOLDFAST_URL", ret);
    if (file)
        return read_url_file(file, ret);
    return given_url("local:", "the default", ret);
}

/* May run on any thread. */
static void show_warning(void *user, int level, const char *name, const char *text)
{
    char shown[CLI_TEXT], named[CLI_TEXT];

    (void)user;
    if (level >= HF_LOG_WARN)
        cli_say("warning: %s%s%s", cli_text(named, sizeof named, name ? name : ""),
                name && *name ? ": " : "", cli_text(shown, sizeof shown, text));
}

void cli_log(const struct cli *cli, hf_options *options)
{
    if (cli->verbose)
        options->log = show_warning;
}

int cli_open(const struct cli *cli, const hf_options *options, hf_client **ret)
{
    hf_options o = HF_OPTIONS_INIT;
    char *url = NULL;
    hf_error err;
    int rc = cli_url(cli, &url);

    if (rc)
        return rc;
    if (options)
        o = *options;
    cli_log(cli, &o);
    rc = hf_open(url, &o, ret, &err);
    explicit_bzero(url, strlen(url));
    free(url);
    return rc < 0 ? cli_fail(&err) : 0;
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
        return "check that the server runs and that the address is right";
    case HF_EAUTH: /* of a folder the text says it all */
        return err->where[0] == '/' ? NULL
                                    : "check the user, the password and their rights";
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
