/* source.c: where the URL of the store comes from.
 *
 * The sources, in this order: -u, $HOLDFAST_URL, the file of $HOLDFAST_URL_FILE, the user's
 * ~/.config/holdfast.conf, /etc/holdfast.conf, "local:". The two files exist so that cron,
 * sudo and su, which drop the environment, meet in one store. So the home is that of the
 * effective user as the system knows it, never $HOME, which sudo may leave as it was.
 *
 * Goes well: the first source that is there decides alone; ttl and namespace of a
 * configuration file belong to the url of the same file. Goes wrong: a source that is there
 * but cannot be read or understood is an error, never a reason to go on to the next one:
 * two jobs in two stores both run. A file that somebody else could have written is refused,
 * because it could send us to a store of theirs. No message quotes a URL, which may hold a
 * password. */
#include "cli.h"
#include "util/secret.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 4096 };

#define SYSTEM_FILE "/etc/holdfast.conf"
#define USER_FILE ".config/holdfast.conf"

static const char space[] = " \t\r\n";

static int no_memory(void)
{
    cli_say("out of memory");
    return EXIT_SYSTEM;
}

static int given_url(const char *url, const char *from, char **ret)
{
    if (!*url) {
        cli_say("%s is empty: name a store such as local: or leave it out", from);
        return EXIT_USAGE;
    }
    *ret = strdup(url);
    return *ret ? 0 : no_memory();
}

/* ---- files ----------------------------------------------------------------------- */

enum kind {
    URL_FILE,   /* a secret, perhaps mounted by a container's runtime */
    USER_CONF,  /* the user's own */
    SYSTEM_CONF /* for everybody: readable by all, so without a password */
};

/* Who may have written it, and who may read what it holds. A FIFO would hang. */
static int check_file(int fd, enum kind kind, const char *shown)
{
    struct stat st;
    uid_t owner = kind == SYSTEM_CONF ? 0 : geteuid();

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        cli_say("%s is not a file", shown);
        return EXIT_USAGE;
    }
    if (st.st_uid != owner && !(kind == URL_FILE && st.st_uid == 0)) {
        cli_say("%s belongs to user %ld: it must be %s", shown, (long)st.st_uid,
                kind == SYSTEM_CONF ? "root's" : "yours");
        return EXIT_USAGE;
    }
    if (st.st_mode & (S_IWGRP | S_IWOTH)) {
        cli_say("%s can be changed by others: chmod go-w it", shown);
        return EXIT_USAGE;
    }
    if (kind == USER_CONF && st.st_mode & (S_IRWXG | S_IRWXO)) {
        cli_say("%s is open to others: chmod 600 it", shown);
        return EXIT_USAGE;
    }
    /* Kubernetes gives a secret to a group, Docker to all of the container: root's file,
     * which the user cannot change. A file of one's own can be closed. */
    if (kind == URL_FILE && st.st_uid != 0 && st.st_mode & S_IRWXO) {
        cli_say("%s is open to others: chmod 600 it", shown);
        return EXIT_USAGE;
    }
    if (kind == URL_FILE && st.st_mode & (S_IRWXG | S_IRWXO))
        cli_warn("%s can be read by others", shown);
    return 0;
}

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

/* The file as text. 0, or an exit status; -1: there is none (never of a URL_FILE). */
static int read_file(const char *path, enum kind kind, const char *shown,
                     char text[FILE_MAX + 1])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), n, rc;

    if (fd < 0 && kind != URL_FILE && (errno == ENOENT || errno == ENOTDIR))
        return -1;
    if (fd < 0) {
        cli_say("cannot open %s: %s", shown, strerror(errno));
        return EXIT_SYSTEM;
    }
    rc = check_file(fd, kind, shown);
    n = rc ? 0 : read_all(fd, text, FILE_MAX + 1);
    if (n < 0) {
        cli_say("cannot read %s: %s", shown, strerror(errno));
        rc = EXIT_SYSTEM;
    } else if (rc == 0 && (n > FILE_MAX || memchr(text, '\0', (size_t)n))) {
        cli_say("%s is not text of at most %d bytes", shown, FILE_MAX);
        rc = EXIT_USAGE;
    } else {
        text[n] = '\0';
    }
    close(fd);
    return rc;
}

static char *trimmed(char *text)
{
    char *end;

    text += strspn(text, space);
    for (end = text + strlen(text); end > text && strchr(space, end[-1]);)
        end--;
    *end = '\0';
    return text;
}

/* The one line of the file, without the white space around it. */
static int read_url_file(const char *path, const char *from, char **ret)
{
    char text[FILE_MAX + 1], shown[CLI_TEXT + 32], *url;
    int rc, n = snprintf(shown, sizeof shown, "%s: ", from);

    cli_text(shown + n, sizeof shown - (size_t)n, path);
    rc = read_file(path, URL_FILE, shown, text);
    if (rc == 0) {
        url = trimmed(text);
        if (!*url || strpbrk(url, space)) {
            cli_say("%s must hold one URL and nothing else", shown);
            rc = EXIT_USAGE;
        } else {
            rc = given_url(url, from, ret);
        }
    }
    explicit_bzero(text, sizeof text);
    return rc;
}

/* ---- configuration files --------------------------------------------------------- */

enum { KEY_URL, KEY_URL_FILE, KEY_TTL, KEY_NAMESPACE, KEYS };
static const char *const keys[KEYS] = { "url", "url_file", "ttl", "namespace" };

/* Lines "key = value"; empty ones, and those that begin with #. */
static int read_line(char *line, const char **values, const char *shown, int number)
{
    char *eq = strchr(line, '='), *value;

    if (!*line || *line == '#')
        return 0;
    value = eq ? trimmed(eq + 1) : line;
    if (eq)
        *eq = '\0';
    line = trimmed(line);
    for (int i = 0; eq && *value && i < KEYS; i++)
        if (strcmp(line, keys[i]) == 0 && !values[i]) {
            values[i] = value;
            return 0;
        }
    cli_say("%s: line %d is not 'KEY = VALUE' with a KEY of url, url_file, ttl, namespace "
            "that was not given before",
            shown, number);
    return EXIT_USAGE;
}

static int read_lines(char *text, const char **values, const char *shown)
{
    char *line, *rest = text;
    int rc = 0;

    for (int number = 1; rc == 0 && (line = strsep(&rest, "\n")); number++)
        rc = read_line(trimmed(line), values, shown, number);
    if (rc == 0 && !values[KEY_URL] == !values[KEY_URL_FILE]) {
        cli_say("%s must have one of url and url_file", shown);
        rc = EXIT_USAGE;
    }
    return rc;
}

/* Adds "?key=value" to the URL; a key that the URL has itself is refused when it is
 * opened. */
static int add_option(char **url, const char *key, const char *value)
{
    char *more = malloc(strlen(*url) + strlen(key) + 3 * strlen(value) + 3), *to;

    if (!more)
        return no_memory();
    to = more + sprintf(more, "%s%c%s=", *url, strchr(*url, '?') ? '&' : '?', key);
    for (; *value; value++)
        to += sprintf(to, isalnum((unsigned char)*value) ? "%c" : "%%%02x",
                      (unsigned char)*value);
    explicit_bzero(*url, strlen(*url));
    free(*url);
    *url = more;
    return 0;
}

static bool has_secret(const char *url)
{
    char *shown = hf__without_secrets(url);
    bool has = !shown || strcmp(shown, url) != 0;

    free(shown);
    return has;
}

static int url_of_conf(const char *const *values, enum kind kind, const char *shown,
                       char **ret)
{
    const char *file = values[KEY_URL_FILE];
    int rc;

    if (file && file[0] != '/') {
        cli_say("%s: url_file must be an absolute path", shown);
        return EXIT_USAGE;
    }
    if (kind == SYSTEM_CONF && values[KEY_URL] && has_secret(values[KEY_URL])) {
        cli_say("%s: everybody can read the password in url: put the URL into a file "
                "(chmod 600) and name it in url_file",
                shown);
        return EXIT_USAGE;
    }
    rc = file ? read_url_file(file, shown, ret) : given_url(values[KEY_URL], shown, ret);
    for (int i = KEY_TTL; rc == 0 && i < KEYS; i++)
        if (values[i] && (rc = add_option(ret, keys[i], values[i])) != 0)
            free(*ret);
    return rc;
}

/* 0, an exit status, or -1: there is no such file. */
static int read_conf(const char *path, enum kind kind, struct cli_source *ret)
{
    char text[FILE_MAX + 1], shown[CLI_TEXT];
    const char *values[KEYS] = { NULL };
    int rc = read_file(path, kind, cli_text(shown, sizeof shown, path), text);

    if (rc == 0)
        rc = read_lines(text, values, shown);
    if (rc == 0)
        rc = url_of_conf(values, kind, shown, &ret->url);
    explicit_bzero(text, sizeof text);
    snprintf(ret->from, sizeof ret->from, "%s", path);
    return rc;
}

static int read_user_conf(struct cli_source *ret)
{
    char path[PATH_MAX];
    const struct passwd *user;

    errno = 0;
    user = getpwuid(geteuid());
    if (!user && errno && errno != ENOENT && errno != ESRCH) {
        cli_say("cannot find the home of user %ld: %s", (long)geteuid(), strerror(errno));
        return EXIT_SYSTEM;
    }
    if (!user || user->pw_dir[0] != '/')
        return -1;
    snprintf(path, sizeof path, "%s/" USER_FILE, user->pw_dir);
    return read_conf(path, USER_CONF, ret);
}

/* ---- all of them ----------------------------------------------------------------- */

static int from_word(struct cli_source *ret, const char *from, const char *url)
{
    snprintf(ret->from, sizeof ret->from, "%s", from);
    return given_url(url, from, &ret->url);
}

int cli_find_source(const struct cli *cli, struct cli_source *ret)
{
    const char *url = getenv("HOLDFAST_URL"), *file = getenv("HOLDFAST_URL_FILE");
    int rc;

    if (cli->url) {
        if (has_secret(cli->url))
            cli_say("warning: everybody on this machine can see the password after -u; put "
                    "the URL into a file (chmod 600) and name it in HOLDFAST_URL_FILE");
        return from_word(ret, "-u", cli->url);
    }
    if (url)
        return from_word(ret, "HOLDFAST_URL", url);
    if (file) {
        snprintf(ret->from, sizeof ret->from, "HOLDFAST_URL_FILE: %s", file);
        return read_url_file(file, "HOLDFAST_URL_FILE", &ret->url);
    }
    rc = read_user_conf(ret);
    if (rc == -1)
        rc = read_conf(SYSTEM_FILE, SYSTEM_CONF, ret);
    return rc == -1 ? from_word(ret, "the default", "local:") : rc;
}

/* A refused URL is not quoted, but named by its source. */
int cli_fail_source(const struct cli_source *source, hf_error *err)
{
    if (err->code == HF_EINVAL && !err->where[0])
        cli_text(err->where, sizeof err->where, source->from);
    return cli_fail(err);
}

void cli_free_source(struct cli_source *source)
{
    if (source->url)
        explicit_bzero(source->url, strlen(source->url));
    free(source->url);
    source->url = NULL;
}
