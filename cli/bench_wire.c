/* bench_wire.c: a bare connection to a Redis server.
 *
 * Reads the few parts of a URL that lead to one server without TLS; whatever else is
 * in it was judged by the library, which has opened the same URL before. Goes wrong:
 * says why and returns an exit status; a server that never answers is ended by the
 * bench's own alarm. */
#include "bench_wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- commands ------------------------------------------------------------------- */

void wire_put(struct wire_text *t, const void *bytes, size_t n)
{
    if (n > sizeof t->bytes - t->len) /* the bench's own commands are all short */
        abort();
    memcpy(t->bytes + t->len, bytes, n);
    t->len += n;
}

static void put_count(struct wire_text *t, char mark, size_t number)
{
    char text[32];

    wire_put(t, text, (size_t)snprintf(text, sizeof text, "%c%zu\r\n", mark, number));
}

void wire_command(struct wire_text *t, size_t args)
{
    put_count(t, '*', args);
}

void wire_arg(struct wire_text *t, const void *bytes, size_t n)
{
    put_count(t, '$', n);
    wire_put(t, bytes, n);
    wire_put(t, "\r\n", 2);
}

void wire_word(struct wire_text *t, const char *word)
{
    wire_arg(t, word, strlen(word));
}

void wire_words(struct wire_text *t, const char *words)
{
    size_t n = 1;

    for (const char *p = words; *p; p++)
        n += *p == ' ';
    wire_command(t, n);
    while (n-- > 0) {
        size_t len = strcspn(words, " ");

        wire_arg(t, words, len);
        words += len + (n > 0);
    }
}

/* ---- replies -------------------------------------------------------------------- */

size_t wire_reply(const char *p, size_t n)
{
    const char *end = n > 0 ? memchr(p, '\n', n) : NULL;
    size_t line = end ? (size_t)(end - p) + 1 : 0, total = line;
    long count;

    if (!end || (*p != '$' && *p != '*'))
        return line;
    count = strtol(p + 1, NULL, 10);
    if (*p == '$')
        total += count < 0 ? 0 : (size_t)count + 2;
    for (; *p == '*' && count > 0; count--) {
        size_t one = wire_reply(p + total, n - total);

        if (one == 0)
            return 0;
        total += one;
    }
    return total <= n ? total : 0;
}

static int broken(const char *what)
{
    cli_say("bench: the bare connection: %s", what);
    return EXIT_UNREACHABLE;
}

int wire_send(struct wire *w, const void *bytes, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = send(w->fd, (const char *)bytes + at, len - at, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR)
            return broken(strerror(errno));
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int wire_flush(struct wire *w)
{
    int status = wire_send(w, w->out.bytes, w->out.len);

    w->out.len = 0;
    return status;
}

int wire_take(struct wire *w, const char **ret, size_t *ret_len)
{
    size_t len;

    while ((len = wire_reply(w->in + w->at, w->len - w->at)) == 0) {
        ssize_t n;

        if (w->at > 0) {
            memmove(w->in, w->in + w->at, w->len - w->at);
            w->len -= w->at;
            w->at = 0;
        }
        if (w->len == sizeof w->in)
            return broken("an answer that is too long");
        n = recv(w->fd, w->in + w->len, sizeof w->in - w->len, 0);
        if (n == 0)
            return broken("closed by the server");
        if (n < 0 && errno != EINTR)
            return broken(strerror(errno));
        w->len += n > 0 ? (size_t)n : 0;
    }
    *ret = w->in + w->at;
    *ret_len = len;
    w->at += len;
    return 0;
}

int wire_expect(struct wire *w, const char *start)
{
    const char *reply;
    size_t len, n = strlen(start);
    int status = wire_take(w, &reply, &len);

    if (status || (len >= n && memcmp(reply, start, n) == 0))
        return status;
    cli_say("bench: the server answered %.*s", (int)strcspn(reply, "\r\n"), reply);
    return *reply == '-' ? EXIT_REFUSED : EXIT_UNREACHABLE;
}

/* The text of INFO about something; NULL: it has said why not. */
static const char *info(struct wire *w, const char *command)
{
    const char *reply;
    size_t len;

    wire_words(&w->out, command);
    if (wire_flush(w) || wire_take(w, &reply, &len))
        return NULL;
    w->in[w->at - 1] = '\0'; /* in place of its last byte, which is taken */
    return reply;
}

static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    return at ? strtod(at + strlen(key), NULL) : 0;
}

static double usec_of(const char *stats, const char *command)
{
    const char *at = strstr(stats, command);

    return at ? number_after(at, "usec=") : 0;
}

int wire_spent(struct wire *w, struct wire_spent *ret)
{
    const char *text = info(w, "INFO commandstats");

    if (!text)
        return EXIT_UNREACHABLE;
    ret->script_us = usec_of(text, "cmdstat_evalsha:");
    ret->scripts = number_after(text, "cmdstat_evalsha:calls=");
    ret->del_us = usec_of(text, "cmdstat_del:");
    text = info(w, "INFO cpu");
    if (!text)
        return EXIT_UNREACHABLE;
    ret->cpu_us = (number_after(text, "used_cpu_sys_main_thread:") +
                   number_after(text, "used_cpu_user_main_thread:")) *
                  1e6;
    return 0;
}

/* ---- the URL -------------------------------------------------------------------- */

struct target {
    char user[256], password[256], host[256], port[8], path[108], db[16];
    bool local;
};

static int digit(char c)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;

    return !at ? -1 : at - digits < 16 ? (int)(at - digits) : (int)(at - digits) - 6;
}

static bool decode(char *to, size_t size, const char *s, const char *end)
{
    size_t n = 0;

    for (; s < end; s++) {
        if (n + 1 >= size)
            return false;
        if (*s == '%' && end - s > 2 && digit(s[1]) >= 0 && digit(s[2]) >= 0) {
            to[n++] = (char)(digit(s[1]) << 4 | digit(s[2]));
            s += 2;
        } else {
            to[n++] = *s;
        }
    }
    to[n] = '\0';
    return true;
}

/* user:password@ */
static bool read_login(struct target *t, const char *s, const char *at)
{
    const char *colon = memchr(s, ':', (size_t)(at - s));

    if (!colon)
        return decode(t->user, sizeof t->user, s, at);
    return decode(t->user, sizeof t->user, s, colon) &&
           decode(t->password, sizeof t->password, colon + 1, at);
}

/* host, host:port, [host]:port */
static bool read_host(struct target *t, const char *s, const char *end)
{
    const char *from = *s == '[' ? s + 1 : s;
    const char *to = *s == '[' ? memchr(s, ']', (size_t)(end - s)) : NULL;
    const char *colon = memchr(to ? to : s, ':', (size_t)(end - (to ? to : s)));

    strcpy(t->port, "6379");
    if (colon && !decode(t->port, sizeof t->port, colon + 1, end))
        return false;
    return decode(t->host, sizeof t->host, from, to ? to : colon ? colon : end);
}

static bool read_db(struct target *t, const char *params, const char *path, const char *end)
{
    const char *db = *params ? strstr(params, "db=") : NULL;

    if (!t->local && end - path > 1)
        return decode(t->db, sizeof t->db, path + 1, end);
    if (db && (db[-1] == '?' || db[-1] == '&'))
        return decode(t->db, sizeof t->db, db + 3, db + 3 + strcspn(db + 3, "&"));
    return true;
}

static bool read_url(struct target *t, const char *url)
{
    const char *s = strstr(url, "://"), *end, *at, *path;

    memset(t, 0, sizeof *t);
    if (!s)
        return false;
    t->local = strncmp(url, "redis+unix:", 11) == 0;
    s += 3;
    end = s + strcspn(s, "?");
    path = memchr(s, '/', (size_t)(end - s));
    path = path ? path : end;
    at = memchr(s, '@', (size_t)(path - s));
    if (at && !read_login(t, s, at))
        return false;
    s = at ? at + 1 : s;
    if (t->local ? !decode(t->path, sizeof t->path, path, end) : !read_host(t, s, path))
        return false;
    return read_db(t, end, path, end);
}

bool wire_possible(const char *url)
{
    return strncmp(url, "redis://", 8) == 0 || strncmp(url, "redis+unix:", 11) == 0;
}

/* ---- connecting ----------------------------------------------------------------- */

static int connect_unix(const char *path)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(to.sun_path, path, strlen(path) + 1);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static int connect_tcp(const char *host, const char *port)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
    int fd = -1, on = 1;

    if (getaddrinfo(host, port, &hints, &list) != 0)
        return -1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static int ask_ok(struct wire *w)
{
    int status = wire_flush(w);

    return status ? status : wire_expect(w, "+OK");
}

static int greet(struct wire *w, const struct target *t)
{
    int status = 0;

    if (t->password[0]) {
        wire_command(&w->out, t->user[0] ? 3 : 2);
        wire_word(&w->out, "AUTH");
        if (t->user[0])
            wire_word(&w->out, t->user);
        wire_word(&w->out, t->password);
        status = ask_ok(w);
    }
    if (status == 0 && t->db[0]) {
        wire_command(&w->out, 2);
        wire_word(&w->out, "SELECT");
        wire_word(&w->out, t->db);
        status = ask_ok(w);
    }
    return status;
}

int wire_open(struct wire **ret, const char *url)
{
    struct wire *w = calloc(1, sizeof *w);
    struct target t;
    int status = EXIT_SYSTEM;

    if (!w) {
        cli_say("out of memory");
        return status;
    }
    w->fd = -1;
    if (!read_url(&t, url))
        status = broken("a URL that it cannot read");
    else if ((w->fd = t.local ? connect_unix(t.path) : connect_tcp(t.host, t.port)) < 0)
        status = broken("cannot connect");
    else
        status = greet(w, &t);
    explicit_bzero(&t, sizeof t);
    if (status == 0)
        *ret = w;
    else
        wire_close(w);
    return status;
}

void wire_close(struct wire *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    explicit_bzero(w, sizeof *w); /* it has sent the password */
    free(w);
}
