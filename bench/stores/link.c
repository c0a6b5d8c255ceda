/* link.c: a bare connection to a server.
 *
 * Reads the few parts of a URL that lead to one server without TLS; whatever else is
 * in it was judged by the library, which has opened the same URL before. Goes wrong:
 * says why and returns an exit status; a server that never answers is ended by the
 * bench's own alarm. */
#include "stores/link.h"
#include "util/text.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int link_broken(const char *what)
{
    cli_say("bench: the bare connection: %s", what);
    return EXIT_UNREACHABLE;
}

/* ---- bytes ----------------------------------------------------------------------- */

int link_send(int fd, const void *bytes, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = send(fd, (const char *)bytes + at, len - at, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR)
            return link_broken(strerror(errno));
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int link_more(int fd, void *to, size_t room, size_t *ret)
{
    ssize_t n;

    if (room == 0)
        return link_broken("an answer that is too long");
    do
        n = recv(fd, to, room, bench_polls ? MSG_DONTWAIT : 0);
    while (n < 0 && (errno == EINTR || (bench_polls && errno == EAGAIN)));
    if (n == 0)
        return link_broken("closed by the server");
    if (n < 0)
        return link_broken(strerror(errno));
    *ret = (size_t)n;
    return 0;
}

/* ---- the URL --------------------------------------------------------------------- */

static bool decode(char *to, size_t size, const char *s, const char *end)
{
    size_t n = 0;

    for (; s < end; s++) {
        if (n + 1 >= size)
            return false;
        if (*s == '%' && end - s > 2 && hf__hex_digit(s[1]) >= 0 &&
            hf__hex_digit(s[2]) >= 0) {
            to[n++] = (char)(hf__hex_digit(s[1]) << 4 | hf__hex_digit(s[2]));
            s += 2;
        } else {
            to[n++] = *s;
        }
    }
    to[n] = '\0';
    return true;
}

/* user:password@ */
static bool read_login(struct link_target *t, const char *s, const char *at)
{
    const char *colon = memchr(s, ':', (size_t)(at - s));

    if (!colon)
        return decode(t->user, sizeof t->user, s, at);
    return decode(t->user, sizeof t->user, s, colon) &&
           decode(t->password, sizeof t->password, colon + 1, at);
}

/* host, host:port, [host]:port */
static bool read_host(struct link_target *t, const char *s, const char *end)
{
    const char *from = *s == '[' ? s + 1 : s;
    const char *to = *s == '[' ? memchr(s, ']', (size_t)(end - s)) : NULL;
    const char *colon = memchr(to ? to : s, ':', (size_t)(end - (to ? to : s)));

    if (colon && !decode(t->port, sizeof t->port, colon + 1, end))
        return false;
    return decode(t->host, sizeof t->host, from, to ? to : colon ? colon : end);
}

bool link_read(struct link_target *t, const char *url, const char *port)
{
    const char *s = strstr(url, "://"), *end, *at, *path;

    memset(t, 0, sizeof *t);
    strncpy(t->port, port, sizeof t->port - 1);
    if (!s)
        return false;
    s += 3;
    end = s + strcspn(s, "?");
    path = memchr(s, '/', (size_t)(end - s));
    path = path ? path : end;
    at = memchr(s, '@', (size_t)(path - s));
    if (at && !read_login(t, s, at))
        return false;
    return read_host(t, at ? at + 1 : s, path) &&
           decode(t->path, sizeof t->path, path, end);
}

bool link_option(const char *url, const char *key, char *to, size_t size)
{
    const char *s = strchr(url, '?');
    size_t len = strlen(key);

    for (; s; s = strchr(s, '&')) {
        s++;
        if (strncmp(s, key, len) == 0 && s[len] == '=')
            return decode(to, size, s + len + 1, s + strcspn(s, "&"));
    }
    return false;
}

/* ---- connecting ------------------------------------------------------------------ */

static int connect_unix(const char *path)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    int fd;

    if (strlen(path) >= sizeof to.sun_path)
        return -1;
    memcpy(to.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
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

int link_open(const struct link_target *t, int *ret_fd)
{
    int fd = t->host[0] ? connect_tcp(t->host, t->port) : connect_unix(t->path);

    if (fd < 0)
        return link_broken("cannot connect");
    *ret_fd = fd;
    return 0;
}
