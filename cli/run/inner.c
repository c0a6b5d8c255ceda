/* inner.c: runs inside a run.
 *
 * The environment tells a run of the runs around it, but it outlives them: in daemons, in a
 * tmux, in the file of at(1). So nothing in it is believed unless a run that it names
 * answers. Each run has a random word, which stands in HOLDFAST_RUN behind those of the
 * runs around it, and listens under that word, on a socket in the abstract namespace, for
 * as long as it supervises its command. The kernel ends the socket with the process.
 *
 * Re-entering (--reenter). The inner run asks each run around it, the nearest first: do you
 * hold this name in this store, for me too? One that does answers with its fence. Then the
 * inner run takes no lock: it starts its command at once, and holds the connection for as
 * long as anything of the command lives. States of a connection, at the holder:
 *
 *   asking   accepted; its question has not come. Ends: refused (closed), or
 *   inside   answered. Ends when the other end is closed.
 *
 * Invariant: while a connection is inside, the holder does not give the name back.
 *  - The holder is one thread. It answers only while it runs its command, the lease holds
 * by its own clock (G1) and no stop has begun; it leaves that state only when its command
 * has ended and nobody is inside; then the socket is closed, and who asks later is refused.
 *  - The inner run dies: its guard has a copy of the connection, and ends when nothing of
 *    the command is left.
 *  - The holder loses the lock: what is inside carries the holder's word, as all its
 *    descendants do, and is stopped before the deadline with them.
 *  - The holder dies: its guard does the same. And the inner run sees the end of the
 *    connection, and stops its command itself: should both have been killed.
 *  - A holder that is stopped does not answer: the inner run stands in line, as without
 *    --reenter, where a name of a parent run is refused.
 * Rejected: to ask the store. It shows a holder that died a moment ago until the ttl is
 * over, and nothing would hold the name when the holder's command ends before the inner
 * one.
 *
 * Only our own user may enter: `local:` is another store for each user. And only a run of
 * our own user is believed: every user can read the word in /proc/net/unix, and listen
 * under it when the run has ended.
 */
#include "run.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_MS = 5000, QUESTION_MAX = 1 << 14, WORDS_MAX = 16 };

static socklen_t address_of(struct sockaddr_un *a, const char *word, size_t len)
{
    static const char before[] = "holdfast-run-";
    const size_t start = offsetof(struct sockaddr_un, sun_path) + 1;
    *a = (struct sockaddr_un){ .sun_family = AF_UNIX };
    int n =
        snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%s%.*s", before, (int)len, word);
    return (socklen_t)(start + (size_t)n);
}

static bool is_ours(int fd)
{
    struct ucred who;
    socklen_t size = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
           who.uid == geteuid();
}

/* Connects to the run of a word; -1: there is none, or it does not listen any more. */
static int connect_to(const char *word, size_t len)
{
    struct sockaddr_un a;
    if (len == 0 || len >= FAMILY_WORD)
        return -1;
    socklen_t size = address_of(&a, word, len);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, size) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The last word of a text of `*len` bytes; shortens the text by it. NULL: no more. */
static const char *last_word(const char *text, size_t *len, size_t *ret_len)
{
    while (*len && text[*len - 1] == ' ')
        --*len;
    size_t end = *len;
    while (*len && text[*len - 1] != ' ')
        --*len;
    *ret_len = end - *len;
    return *ret_len ? text + *len : NULL;
}

/* ---- in the inner run ------------------------------------------------------------ */

bool inner_has_parent(void)
{
    const char *words = getenv("HOLDFAST_RUN"), *word;
    size_t len = words ? strlen(words) : 0, n;
    while ((word = last_word(words, &len, &n))) {
        int fd = connect_to(word, n);
        if (fd >= 0) {
            close(fd);
            return true;
        }
    }
    return false;
}

/* Only the words of those who do not answer are dropped, and only of a long list: one in
 * another network namespace cannot answer, and finds what it has started by its word. */
const char *inner_living_words(void)
{
    char *words = getenv("HOLDFAST_RUN");
    size_t len = words ? strlen(words) : 0, n, count = 0, end = len;
    const char *word;
    while ((word = last_word(words, &len, &n))) {
        int fd = ++count > WORDS_MAX ? connect_to(word, n) : -1;
        if (fd >= 0)
            close(fd);
        else if (count > WORDS_MAX) {
            size_t at = (size_t)(word - words), skip = n + (word[n] == ' ');
            memmove(words + at, words + at + skip, end - at - skip + 1);
            end -= skip;
        }
    }
    return words;
}

/* The question: mode, store and name, each ended by a NUL. */
static size_t question(const struct run *r, char *buf)
{
    int n = snprintf(buf, QUESTION_MAX, "%c%c%s%c%s",
                     r->opt.request.mode == HF_READ ? 'r' : 'w', 0,
                     hf_client_url(r->client), 0, r->opt.names[0]);
    return n < QUESTION_MAX ? (size_t)n + 1 : 0;
}

/* Reads the fence. False: refused, or no answer. */
static bool answered(int fd, uint64_t *ret)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    char text[32] = "";
    if (poll(&p, 1, ANSWER_MS) <= 0 || recv(fd, text, sizeof text - 1, 0) <= 0)
        return false;
    *ret = strtoull(text, NULL, 10);
    return true;
}

bool inner_enter(struct run *r)
{
    const char *words = getenv("HOLDFAST_RUN"), *word;
    size_t len = words ? strlen(words) : 0, n;
    char text[QUESTION_MAX];
    size_t size = question(r, text);
    while (size && (word = last_word(words, &len, &n))) {
        int fd = connect_to(word, n);
        if (fd >= 0 && is_ours(fd) && send(fd, text, size, MSG_NOSIGNAL) == (ssize_t)size &&
            answered(fd, &r->outer_fence)) {
            r->outer = fd;
            return true;
        }
        if (fd >= 0)
            close(fd);
    }
    return false;
}

bool inner_left_alone(const struct run *r)
{
    struct pollfd p = { .fd = r->outer, .events = POLLIN };
    return poll(&p, 1, 0) > 0;
}

/* ---- in the run around it -------------------------------------------------------- */

void inner_listen(struct run *r)
{
    struct inner *in = &r->inner;
    struct sockaddr_un a;
    struct epoll_event ev = { .events = EPOLLIN, .data.fd = -1 };
    const char *word = r->guard.page->family.word;
    socklen_t size = address_of(&a, word, strlen(word));
    in->epoll = epoll_create1(EPOLL_CLOEXEC);
    in->door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (in->epoll < 0 || in->door < 0 || bind(in->door, (struct sockaddr *)&a, size) < 0 ||
        listen(in->door, 16) < 0 || epoll_ctl(in->epoll, EPOLL_CTL_ADD, in->door, &ev) < 0)
        inner_close(r);
}

static void let_go(struct inner *in, size_t i)
{
    close(in->guests[i].fd);
    in->inside -= in->guests[i].inside;
    in->guests[i] = in->guests[--in->nguests];
}

static void accept_guest(struct inner *in)
{
    int fd = accept4(in->door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    struct epoll_event ev = { .events = EPOLLIN, .data.fd = fd };
    if (in->nguests == INNER_MAX || !is_ours(fd) ||
        epoll_ctl(in->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
        close(fd);
    else
        in->guests[in->nguests++] = (struct guest){ .fd = fd };
}

static bool holds(const hf_lease *lease, const char *name)
{
    for (size_t i = 0; i < hf_lease_count(lease); i++)
        if (strcmp(hf_lease_name_at(lease, i), name) == 0)
            return true;
    return false;
}

/* A shared hold can be entered by a shared one only. */
static bool may_enter(const struct run *r, const char *text, size_t len)
{
    const char *store = text + 2, *name = memchr(store, 0, len > 2 ? len - 2 : 0);
    if (len < 4 || !name || text[1] || text[len - 1] || ++name == text + len)
        return false;
    if (!r->lease || r->lost || r->phase != RUNNING || hf_lease_check(r->lease) < 0)
        return false;
    int mode = hf_lease_mode(r->lease);
    return strcmp(store, hf_client_url(r->client)) == 0 && holds(r->lease, name) &&
           (mode == HF_WRITE || (mode == HF_READ && text[0] == 'r'));
}

/* False: it is to be let go. */
static bool hear(struct run *r, struct guest *g)
{
    char text[QUESTION_MAX], fence[24];
    ssize_t n = recv(g->fd, text, sizeof text, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n > 0 && g->inside)
        return true;
    if (n <= 0 || !may_enter(r, text, (size_t)n))
        return false;
    const char *name = strchr(text + 2, 0) + 1;
    int len = snprintf(fence, sizeof fence, "%" PRIu64, hf_lease_fence_of(r->lease, name));
    if (send(g->fd, fence, (size_t)len, MSG_NOSIGNAL) != len)
        return false;
    g->inside = true;
    r->inner.inside++;
    return true;
}

void inner_serve(struct run *r)
{
    struct inner *in = &r->inner;
    struct epoll_event ev[8];
    int n = in->epoll < 0 ? 0 : epoll_wait(in->epoll, ev, 8, 0);
    for (int k = 0; k < n; k++) {
        if (ev[k].data.fd < 0) {
            accept_guest(in);
            continue;
        }
        for (size_t i = 0; i < in->nguests; i++)
            if (in->guests[i].fd == ev[k].data.fd) {
                if (!hear(r, &in->guests[i]))
                    let_go(in, i);
                break;
            }
    }
}

void inner_close(struct run *r)
{
    struct inner *in = &r->inner;
    while (in->nguests)
        let_go(in, in->nguests - 1);
    if (in->door >= 0)
        close(in->door);
    if (in->epoll >= 0)
        close(in->epoll);
    in->door = in->epoll = -1;
}
