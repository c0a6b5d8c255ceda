/* net_wraps.c: between the library and the system. The linker puts the __wrap_ functions
 * there: they count, they make names up, they fail when told to. */
#include "net_harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>

int net_fail_watch, net_fail_alloc, net_fail_socket, net_fail_thread;
int net_sends, net_recvs;
bool net_meet_itself, net_block_send, net_signals_blocked;

/* ---- between library and system -------------------------------------------------- */

void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
ssize_t __real_send(int, const void *, size_t, int);
ssize_t __real_recv(int, void *, size_t, int);
int __real_connect(int, const struct sockaddr *, socklen_t);
int __real_getaddrinfo(const char *, const char *, const struct addrinfo *,
                       struct addrinfo **);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);
ssize_t __wrap_send(int, const void *, size_t, int);
ssize_t __wrap_recv(int, void *, size_t, int);
int __wrap_connect(int, const struct sockaddr *, socklen_t);
int __wrap_getaddrinfo(const char *, const char *, const struct addrinfo *,
                       struct addrinfo **);
void __wrap_freeaddrinfo(struct addrinfo *);

int __real_socket(int, int, int);
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_socket(int, int, int);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

bool net_fails(int *countdown)
{
    return *countdown > 0 && --*countdown == 0;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return net_fails(&net_fail_alloc) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return net_fails(&net_fail_alloc) ? NULL : __real_realloc(old, size);
}

int __wrap_socket(int family, int type, int protocol)
{
    if (!net_fails(&net_fail_socket))
        return __real_socket(family, type, protocol);
    errno = EMFILE;
    return -1;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*work)(void *), void *arg)
{
    return net_fails(&net_fail_thread) ? EAGAIN
                                       : __real_pthread_create(thread, attr, work, arg);
}

ssize_t __wrap_send(int fd, const void *data, size_t n, int flags)
{
    net_sends++;
    if (net_block_send) {
        errno = EAGAIN;
        return -1;
    }
    return __real_send(fd, data, n, flags);
}

ssize_t __wrap_recv(int fd, void *data, size_t n, int flags)
{
    net_recvs++;
    return __real_recv(fd, data, n, flags);
}

/* 192.0.2.0/24 is a network that this machine has no way to. */
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)to;

    if (to->sa_family == AF_INET && ntohl(in->sin_addr.s_addr) >> 8 == 0xc00002) {
        errno = ENETUNREACH;
        return -1;
    }
    if (net_meet_itself)
        assert_int_equal(bind(fd, to, len), 0);
    return __real_connect(fd, to, len);
}

/* ---- names ----------------------------------------------------------------------- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    const char *name, *addresses;
    int gai, now, most;
    bool blocked;
} made_up = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

void net_name(const char *name, const char *addresses, int gai, bool blocked)
{
    pthread_mutex_lock(&made_up.mutex);
    made_up.name = name;
    made_up.addresses = addresses;
    made_up.gai = gai;
    made_up.blocked = blocked;
    made_up.most = 0;
    pthread_mutex_unlock(&made_up.mutex);
}

void net_unblock(void)
{
    pthread_mutex_lock(&made_up.mutex);
    made_up.blocked = false;
    pthread_cond_broadcast(&made_up.changed);
    pthread_mutex_unlock(&made_up.mutex);
}

int net_lookups(int *most)
{
    int now;

    pthread_mutex_lock(&made_up.mutex);
    now = made_up.now;
    if (most)
        *most = made_up.most;
    pthread_mutex_unlock(&made_up.mutex);
    return now;
}

static struct addrinfo *one_address(const char *text, struct addrinfo *next)
{
    struct {
        struct addrinfo info;
        struct sockaddr_in at;
    } *a = __real_calloc(1, sizeof *a);

    a->at.sin_family = AF_INET;
    assert_int_equal(inet_pton(AF_INET, text, &a->at.sin_addr), 1);
    a->info.ai_family = AF_INET;
    a->info.ai_addr = (struct sockaddr *)&a->at;
    a->info.ai_addrlen = sizeof a->at;
    a->info.ai_next = next;
    a->info.ai_protocol = -1; /* ours */
    return &a->info;
}

static bool all_blocked(void)
{
    sigset_t mask;

    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGKILL && sig != SIGSTOP && sigismember(&mask, sig) != 1)
            return false;
    return true;
}

static int answer(struct addrinfo **ret)
{
    char words[256], *save = NULL, *list[8];
    int n = 0;

    made_up.now++;
    if (made_up.now > made_up.most)
        made_up.most = made_up.now;
    net_signals_blocked = all_blocked();
    while (made_up.blocked)
        pthread_cond_wait(&made_up.changed, &made_up.mutex);
    made_up.now--;
    *ret = NULL;
    if (made_up.gai) {
        errno = EMFILE;
        return made_up.gai;
    }
    snprintf(words, sizeof words, "%s", made_up.addresses);
    for (char *w = strtok_r(words, " ", &save); w && n < 8; w = strtok_r(NULL, " ", &save))
        list[n++] = w;
    while (n > 0)
        *ret = one_address(list[--n], *ret);
    return 0;
}

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret)
{
    int rc;

    pthread_mutex_lock(&made_up.mutex);
    if (!made_up.name || strcmp(host, made_up.name) != 0 ||
        hints->ai_flags & AI_NUMERICHOST) {
        pthread_mutex_unlock(&made_up.mutex);
        return __real_getaddrinfo(host, service, hints, ret);
    }
    rc = answer(ret);
    pthread_mutex_unlock(&made_up.mutex);
    return rc;
}

void __real_freeaddrinfo(struct addrinfo *);

void __wrap_freeaddrinfo(struct addrinfo *list)
{
    if (list && list->ai_protocol != -1) {
        __real_freeaddrinfo(list);
        return;
    }
    while (list) {
        struct addrinfo *next = list->ai_next;

        free(list);
        list = next;
    }
}
