/* connect.c: how a stream comes up: addresses, one after the other; a socket; TLS.
 *
 * Goes well: a numeric address is known at once, a name is looked up (resolve.c); a
 * socket is made and connects; with TLS the handshake follows; then hf__stream_up.
 *
 * Goes wrong: an address that refuses is followed by the next at once, one that is silent
 * after its share of the time that is left; only when none is left the stream goes down,
 * with the reason that says most. A peer whose certificate is not right ends it at once:
 * another address of the same name would not make that better. Nothing is told inside
 * hf__stream_open: what fails there is told by the connect timer, in the loop's next
 * turn.
 */
#include "net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

/* Until a unix socket whose queue is full is tried again. */
enum { FULL_PAUSE_US = 10000 };

/* ---- why it failed --------------------------------------------------------------- */

static const char *address_text(const struct address *a, char *buf, size_t size)
{
    if (a->at.ss_family == AF_UNIX ||
        getnameinfo((const struct sockaddr *)&a->at, a->len, buf, (socklen_t)size, NULL, 0,
                    NI_NUMERICHOST) != 0)
        snprintf(buf, size, "it");
    return buf;
}

/* That this machine has no way to an address says less than how another one failed. */
static bool says_little(int sys)
{
    return sys == ENETUNREACH || sys == EAFNOSUPPORT || sys == EADDRNOTAVAIL;
}

static void note(struct stream *s, int sys, const char *what)
{
    char text[INET6_ADDRSTRLEN + 32];

    if (s->last.code && says_little(sys))
        return;
    hf__fail(&s->last, HF_EUNREACHABLE, sys, s->to.shown, "%s %s", what,
             address_text(&s->addresses->a[s->addresses->next - 1], text, sizeof text));
}

/* ---- sockets --------------------------------------------------------------------- */

static void set(int fd, int level, int option, int value)
{
    /* Each only makes things better; a socket that cannot do it still works. */
    setsockopt(fd, level, option, &value, sizeof value);
}

static void set_tcp_options(int fd)
{
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

/* Starts to connect to one address: 0 or errno. */
static int start(struct stream *s, const struct address *a)
{
    int sys = 0;

    s->fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0)
        return errno;
    if (a->at.ss_family != AF_UNIX)
        set_tcp_options(s->fd);
    if (connect(s->fd, (const struct sockaddr *)&a->at, a->len) < 0 &&
        errno != EINPROGRESS && errno != EINTR)
        sys = errno;
    if (sys == 0 && s->env->watch(s->env, &s->watch, s->fd, EPOLLOUT) < 0)
        sys = errno;
    if (sys)
        hf__stream_drop(s, false);
    return sys;
}

/* Tries addresses until one is on its way. */
static void try_next(struct stream *s)
{
    struct addresses *list = s->addresses;
    int64_t now = s->env->now(s->env), at = now; /* none is left: told in the next turn */

    s->state = STREAM_CONNECTING;
    while (s->fd < 0 && list->next < list->n) {
        int sys = start(s, &list->a[list->next++]);

        if (sys)
            note(s, sys, "cannot connect to");
        if (sys == EAGAIN && s->to.path) {
            list->next--;
            at = now + FULL_PAUSE_US;
            break;
        }
        if (sys == 0) /* its share, with those that are left */
            at = now + (s->connect_at - now) / (int64_t)(list->n - list->next + 1);
    }
    s->env->timer(s->env, &s->connect_timer, at);
}

static void give_up_this(struct stream *s, int sys, const char *what)
{
    note(s, sys, what);
    hf__stream_drop(s, false);
    try_next(s);
}

/* A socket that asks for a free port of its own machine may get its own as the peer's. */
static bool met_itself(int fd)
{
    struct sockaddr_storage own = { 0 }, peer = { 0 };
    socklen_t own_len = sizeof own, peer_len = sizeof peer;

    return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 &&
           own.ss_family != AF_UNIX && own_len == peer_len &&
           memcmp(&own, &peer, own_len) == 0;
}

/* ---- TLS ------------------------------------------------------------------------- */

static void tls_failed(struct stream *s, hf_error *err)
{
    hf__stream_where(s, err);
    if (err->code == HF_EAUTH) {
        hf__stream_down(s, err);
        return;
    }
    s->last = *err;
    hf__stream_drop(s, false);
    try_next(s);
}

/* True if it waits for the peer; else leave the stream alone. */
static bool shake(struct stream *s)
{
    hf_error err;
    int rc = s->to.tls->shake(s->session, &err);

    if (rc == 1)
        hf__stream_up(s);
    else if (rc != TLS_WANT_READ && rc != TLS_WANT_WRITE)
        tls_failed(s, &err);
    else if (s->env->watch(s->env, &s->watch, s->fd,
                           rc == TLS_WANT_READ ? EPOLLIN : EPOLLOUT) < 0)
        give_up_this(s, errno, "cannot wait for");
    else
        return true;
    return false;
}

static void connected(struct stream *s)
{
    socklen_t len = sizeof(int);
    hf_error err;
    int sys = 0;

    getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &sys, &len);
    if (sys == 0 && met_itself(s->fd))
        sys = ECONNREFUSED;
    if (sys) {
        give_up_this(s, sys, "cannot connect to");
    } else if (!s->to.tls) {
        hf__stream_up(s);
    } else if (s->to.tls->begin(&s->session, s->to.tls_context, s->fd,
                                s->to.host ? s->to.host : "localhost", &err) < 0) {
        tls_failed(s, &err);
    } else {
        s->state = STREAM_SHAKING;
        shake(s);
    }
}

/* ---- steps ----------------------------------------------------------------------- */

static bool writable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };

    return poll(&p, 1, 0) == 1;
}

/* The loop may call once for nothing, for a descriptor of the same number that is closed
 * now; SO_ERROR of a socket that still connects is 0. */
void hf__connect_step(struct stream *s)
{
    if (s->state == STREAM_SHAKING)
        shake(s);
    else if (writable(s->fd))
        connected(s);
}

/* What has come meanwhile counts: the loop may not have been driven for a while. */
void hf__connect_late(struct stream *s)
{
    hf_error err;

    if (s->state == STREAM_RESOLVING) {
        hf__fail(&err, HF_EUNREACHABLE, ETIMEDOUT, s->to.shown,
                 "cannot find the address of %s", s->to.host);
        hf__stream_down(s, &err);
        return;
    }
    if (s->fd < 0) {
        if (s->addresses->next < s->addresses->n && s->env->now(s->env) < s->connect_at)
            try_next(s);
        else
            hf__stream_down(s, &s->last);
        return;
    }
    if (s->state == STREAM_SHAKING) {
        if (shake(s))
            give_up_this(s, ETIMEDOUT, "no TLS handshake with");
    } else if (writable(s->fd)) {
        connected(s);
    } else {
        give_up_this(s, ETIMEDOUT, "cannot connect to");
    }
}

static void resolved(void *user, struct addresses *list, const hf_error *err)
{
    struct stream *s = user;
    hf_error why;

    s->resolve = NULL;
    if (!list) {
        why = *err;
        hf__stream_where(s, &why);
        hf__stream_down(s, &why);
        return;
    }
    s->addresses = list;
    try_next(s);
}

static int unix_address(struct addresses **ret, const char *path, hf_error *err)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    struct addresses *list;
    size_t len = strlen(path);

    if (len == 0 || len >= sizeof at.sun_path)
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "%s: the path of a socket has 1 to %zu bytes", path,
                        sizeof at.sun_path - 1);
    list = calloc(1, sizeof *list + sizeof *list->a);
    if (!list)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for an address");
    memcpy(at.sun_path, path, len + 1);
    memcpy(&list->a[0].at, &at, sizeof at);
    list->a[0].len = sizeof at;
    list->n = 1;
    *ret = list;
    return 0;
}

int hf__connect_begin(struct stream *s, hf_error *err)
{
    int rc;

    if (s->to.path)
        rc = unix_address(&s->addresses, s->to.path, err);
    else
        rc = hf__resolve_numeric(&s->addresses, s->to.host, s->to.port);
    if (rc == 0) {
        try_next(s);
        return 0;
    }
    if (rc == HF_ENOMEM)
        hf__fail(err, HF_ENOMEM, 0, s->to.shown, "no memory for an address");
    if (rc != HF_ENOENT)
        return rc;
    rc = hf__resolve_begin(&s->resolve, s->env, s->to.host, s->to.port, resolved, s, err);
    if (rc < 0)
        return rc;
    s->state = STREAM_RESOLVING;
    s->env->timer(s->env, &s->connect_timer, s->connect_at);
    return 0;
}
