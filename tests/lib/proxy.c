/* proxy.c: the thread that moves the bytes, and the orders of the test.
 *
 * One mutex protects everything; the thread lets go of it only in poll(2). An order changes
 * the state, wakes the thread through an eventfd and returns when the thread has gone round
 * with it, so what comes after it in the test comes after it on the wire. A direction is a
 * pipe: bytes read and not yet written, and whether the end was read. Memory is its only
 * limit: what is kept must be kept whole, however much it is. Goes wrong: a side that fails
 * is closed, and the other side too as soon as what was already read for it is written.
 */
#include "proxy.h"

#include "check.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNS_MAX = 256, CHUNK = 65536, HEAD = 1024 };

struct way { /* one direction of one connection */
    char *kept;
    size_t n, room;
    bool ended; /* the end of the stream was read */
    bool told;  /* ... and passed on */
};

struct conn {
    int client, server; /* -1: closed */
    struct way up, down;
    unsigned frozen; /* PROXY_UP, PROXY_DOWN */
    long left;       /* bytes to the client until the cut; negative: no cut */
    bool used;
    char head[HEAD]; /* what its client sent first */
    size_t head_len;
};

struct proxy {
    pthread_mutex_t lock;
    pthread_cond_t turned;
    pthread_t thread;
    int listener, wake, port, server_port;
    unsigned long asked, done; /* orders given, and those the thread has gone round with */
    bool ends, refuse;
    const char *hidden; /* a word that clients do not get to see */
    unsigned frozen;    /* of future connections */
    long left;          /* likewise */
    const char *those;
    size_t accepted, cuts, passed_up, passed_down;
    struct conn conns[CONNS_MAX];
};

/* ---- one connection -------------------------------------------------------------- */

/* Also for a process that was forked meanwhile and has a copy of it. */
static void close_side(int *fd)
{
    if (*fd >= 0) {
        shutdown(*fd, SHUT_RDWR);
        close(*fd);
    }
    *fd = -1;
}

static void cut(struct conn *c)
{
    close_side(&c->client);
    close_side(&c->server);
    free(c->up.kept);
    free(c->down.kept);
    memset(c, 0, sizeof(*c));
}

static void fill(struct way *w, int *from)
{
    ssize_t n;

    if (w->room - w->n < CHUNK) {
        w->room = w->n + 2 * CHUNK;
        w->kept = realloc(w->kept, w->room);
        CHECK(w->kept);
    }
    n = recv(*from, w->kept + w->n, CHUNK, MSG_DONTWAIT);
    if (n > 0)
        w->n += (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        w->ended = true;
}

static void hide(struct way *w, const char *word)
{
    char *at;

    while (word && w->n > 0 && (at = memmem(w->kept, w->n, word, strlen(word))) != NULL)
        memset(at, '-', strlen(word));
}

/* Writes at most `limit` bytes of it; returns how many. */
static size_t drain(struct way *w, int *to, size_t limit)
{
    size_t want = w->n < limit ? w->n : limit;
    ssize_t n = 0;

    if (want && *to >= 0) {
        n = send(*to, w->kept, want, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            close_side(to); /* nobody there: what is left has no reader */
        n = n < 0 ? 0 : n;
        memmove(w->kept, w->kept + n, w->n - (size_t)n);
        w->n -= (size_t)n;
    }
    if (*to < 0)
        w->n = 0;
    if (w->ended && !w->told && w->n == 0) {
        if (*to >= 0)
            shutdown(*to, SHUT_WR);
        w->told = true;
    }
    return (size_t)n;
}

static unsigned frozen(const struct proxy *p, const struct conn *c)
{
    if (p->those && memmem(c->head, c->head_len, p->those, strlen(p->those)))
        return PROXY_UP | PROXY_DOWN;
    return c->frozen;
}

static void move_up(struct proxy *p, struct conn *c)
{
    if (!(frozen(p, c) & PROXY_UP))
        p->passed_up += drain(&c->up, &c->server, c->up.n);
}

/* Returns true when the connection has come to its cut. */
static bool move_down(struct proxy *p, struct conn *c)
{
    size_t n, limit = c->left < 0 ? c->down.n : (size_t)c->left;

    if (frozen(p, c) & PROXY_DOWN)
        return false;
    n = drain(&c->down, &c->client, limit);
    p->passed_down += n;
    if (c->left >= 0)
        c->left -= (long)n;
    return c->left == 0 && (n || c->down.n);
}

static void move(struct proxy *p, struct conn *c)
{
    move_up(p, c);
    if (move_down(p, c)) {
        p->cuts++;
        cut(c);
    } else if (c->up.told && c->down.told) {
        cut(c);
    }
}

/* ---- the thread ------------------------------------------------------------------ */

static int connect_server(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    CHECK(fd >= 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void accept_one(struct proxy *p)
{
    int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC), on = 1, server;
    struct conn *c = p->conns;

    if (fd < 0)
        return;
    server = p->refuse ? -1 : connect_server(p->server_port);
    if (server < 0) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    while (c->used)
        CHECK(++c < p->conns + CONNS_MAX);
    *c = (struct conn){
        .client = fd, .server = server, .frozen = p->frozen, .left = p->left, .used = true
    };
    p->accepted++;
}

static short wants(const struct way *in, const struct way *out, bool stays)
{
    return (short)((in->ended ? 0 : POLLIN) | (out->n && !stays ? POLLOUT : 0));
}

static void fill_up(struct conn *c)
{
    size_t had = c->up.n, n;

    fill(&c->up, &c->client);
    n = c->up.n - had;
    n = n < HEAD - c->head_len ? n : HEAD - c->head_len;
    memcpy(c->head + c->head_len, c->up.kept + had, n);
    c->head_len += n;
}

static void serve(struct proxy *p, struct conn *c, short client, short server)
{
    if (client & (POLLIN | POLLHUP | POLLERR) && !c->up.ended)
        fill_up(c);
    if (server & (POLLIN | POLLHUP | POLLERR) && !c->down.ended)
        fill(&c->down, &c->server);
    hide(&c->down, p->hidden);
    move(p, c);
}

static int prepare(struct proxy *p, struct pollfd *fds, struct conn **of)
{
    int n = 2;

    fds[0] = (struct pollfd){ .fd = p->wake, .events = POLLIN };
    fds[1] = (struct pollfd){ .fd = p->listener, .events = POLLIN };
    for (struct conn *c = p->conns; c < p->conns + CONNS_MAX; c++) {
        short client, server;

        if (!c->used)
            continue;
        client = wants(&c->up, &c->down, frozen(p, c) & PROXY_DOWN);
        server = wants(&c->down, &c->up, frozen(p, c) & PROXY_UP);
        of[n] = c;
        /* a side with nothing to be told is left out: its hang-up would not rest */
        fds[n++] = (struct pollfd){ .fd = client ? c->client : -1, .events = client };
        fds[n++] = (struct pollfd){ .fd = server ? c->server : -1, .events = server };
    }
    return n;
}

static void *turn(void *arg)
{
    static const size_t most = 2 + 2 * CONNS_MAX;
    struct proxy *p = arg;
    struct pollfd *fds = calloc(most, sizeof(*fds));
    struct conn **of = calloc(most, sizeof(*of));
    uint64_t count;

    CHECK(fds && of);
    pthread_mutex_lock(&p->lock);
    while (!p->ends) {
        unsigned long asked = p->asked;
        int n;

        for (struct conn *c = p->conns; c < p->conns + CONNS_MAX; c++)
            if (c->used)
                move(p, c);
        p->done = asked;
        pthread_cond_broadcast(&p->turned);
        n = prepare(p, fds, of);
        pthread_mutex_unlock(&p->lock);
        poll(fds, (nfds_t)n, -1);
        pthread_mutex_lock(&p->lock);
        if (fds[0].revents)
            CHECK(read(p->wake, &count, sizeof(count)) == (ssize_t)sizeof(count));
        for (int i = 2; i < n; i += 2)
            if (of[i]->used && (fds[i].revents || fds[i + 1].revents))
                serve(p, of[i], fds[i].revents, fds[i + 1].revents);
        if (fds[1].revents)
            accept_one(p);
    }
    pthread_mutex_unlock(&p->lock);
    free(fds);
    free(of);
    return NULL;
}

/* ---- orders ---------------------------------------------------------------------- */

static void order(struct proxy *p)
{
    pthread_mutex_lock(&p->lock);
}

/* Ends an order: the thread has it when this returns. */
static void ordered(struct proxy *p)
{
    uint64_t one = 1;
    unsigned long mine = ++p->asked;

    CHECK(write(p->wake, &one, sizeof(one)) == (ssize_t)sizeof(one));
    while (p->done < mine)
        pthread_cond_wait(&p->turned, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

struct proxy *proxy_new(int server_port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof(a);
    struct proxy *p = calloc(1, sizeof(*p));

    CHECK(p);
    p->server_port = server_port;
    p->left = -1;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(p->listener >= 0 && p->wake >= 0);
    CHECK(bind(p->listener, (struct sockaddr *)&a, sizeof(a)) == 0);
    CHECK(listen(p->listener, 64) == 0);
    CHECK(getsockname(p->listener, (struct sockaddr *)&a, &len) == 0);
    p->port = ntohs(a.sin_port);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->turned, NULL);
    CHECK(pthread_create(&p->thread, NULL, turn, p) == 0);
    return p;
}

int proxy_port(const struct proxy *p)
{
    return p->port;
}

void proxy_free(struct proxy *p)
{
    uint64_t one = 1;

    pthread_mutex_lock(&p->lock);
    p->ends = true;
    CHECK(write(p->wake, &one, sizeof(one)) == (ssize_t)sizeof(one));
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    for (struct conn *c = p->conns; c < p->conns + CONNS_MAX; c++)
        if (c->used)
            cut(c);
    close(p->listener);
    close(p->wake);
    pthread_cond_destroy(&p->turned);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void proxy_freeze(struct proxy *p, unsigned which, unsigned directions)
{
    order(p);
    if (which & PROXY_FUTURE)
        p->frozen = directions;
    for (struct conn *c = p->conns; c < p->conns + CONNS_MAX; c++)
        if (c->used && which & PROXY_PRESENT)
            c->frozen = directions;
    ordered(p);
}

void proxy_freeze_those(struct proxy *p, const char *text)
{
    order(p);
    p->those = text;
    ordered(p);
}

void proxy_cut_after(struct proxy *p, long bytes)
{
    order(p);
    p->left = bytes;
    for (struct conn *c = p->conns; c < p->conns + CONNS_MAX; c++)
        c->left = bytes;
    ordered(p);
}

void proxy_drop(struct proxy *p)
{
    order(p);
    for (struct conn *c = p->conns; c < p->conns + CONNS_MAX; c++)
        if (c->used)
            cut(c);
    ordered(p);
}

void proxy_refuse(struct proxy *p, bool refuse)
{
    order(p);
    p->refuse = refuse;
    ordered(p);
}

void proxy_hide(struct proxy *p, const char *word)
{
    order(p);
    p->hidden = word;
    ordered(p);
}

void proxy_aim(struct proxy *p, int server_port)
{
    order(p);
    p->server_port = server_port;
    ordered(p);
}

size_t proxy_kept(struct proxy *p, unsigned directions)
{
    size_t n = 0;

    order(p);
    for (struct conn *c = p->conns; c < p->conns + CONNS_MAX; c++) {
        if (directions & c->frozen & PROXY_UP)
            n += c->up.n;
        if (directions & c->frozen & PROXY_DOWN)
            n += c->down.n;
    }
    ordered(p);
    return n;
}

size_t proxy_passed(struct proxy *p, unsigned directions)
{
    size_t n;

    order(p);
    n = (directions & PROXY_UP ? p->passed_up : 0) +
        (directions & PROXY_DOWN ? p->passed_down : 0);
    ordered(p);
    return n;
}

size_t proxy_accepted(struct proxy *p)
{
    size_t n;

    order(p);
    n = p->accepted;
    ordered(p);
    return n;
}

size_t proxy_open(struct proxy *p)
{
    size_t n = 0;

    order(p);
    for (struct conn *c = p->conns; c < p->conns + CONNS_MAX; c++)
        n += c->used && !c->up.ended;
    ordered(p);
    return n;
}

size_t proxy_cuts(struct proxy *p)
{
    size_t n;

    order(p);
    n = p->cuts;
    ordered(p);
    return n;
}
