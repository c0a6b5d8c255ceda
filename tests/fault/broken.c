/* broken.c: see broken.h. */
#include "broken.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- a release that is under way ------------------------------------------------- */

struct breaker {
    struct proxy *const *proxies;
    size_t n;
    bool come_back;
};

/* A majority decides, and a server may have been connected to after the others. */
static bool is_under_way(const struct breaker *b)
{
    size_t kept = 0;

    for (size_t i = 0; i < b->n; i++)
        kept += proxy_kept(b->proxies[i], PROXY_UP) > 0;
    return 2 * kept > b->n;
}

/* When the request is on its way, and has come to no server. */
static void *break_all(void *arg)
{
    struct breaker *b = arg;

    AWAIT(is_under_way(b));
    for (size_t i = 0; i < b->n; i++)
        proxy_refuse(b->proxies[i], true);
    for (size_t i = 0; i < b->n; i++)
        proxy_drop(b->proxies[i]);
    for (size_t i = 0; b->come_back && i < b->n; i++)
        proxy_refuse(b->proxies[i], false);
    return NULL;
}

static int release_with(struct breaker *b, hf_lease *l)
{
    pthread_t thread;
    int rc;

    for (size_t i = 0; i < b->n; i++)
        proxy_freeze(b->proxies[i], PROXY_PRESENT, PROXY_UP);
    CHECK(pthread_create(&thread, NULL, break_all, b) == 0);
    rc = rig.face->release(l, E());
    pthread_join(thread, NULL);
    return rc;
}

void release_breaks(struct proxy *const *proxies, size_t n, hf_client *direct)
{
    struct breaker b = { proxies, n, true };
    hf_client *c = prompted();
    int64_t start;

    for (int i = 0; i < 3; i++) {
        CHECK_RC(release_with(&b, taken(c, nm("n"), NULL)), 0);
        AWAIT(tried(direct, nm("n"), NULL) == 0);
    }
    b.come_back = false;
    start = now_ms();
    CHECK_RC(release_with(&b, taken(c, nm("n"), NULL)), HF_EUNKNOWN);
    CHECK_NUM(now_ms() - start, >=, BROKEN_MS);
    for (size_t i = 0; i < n; i++)
        proxy_refuse(proxies[i], false);
    AWAIT(tried(direct, nm("n"), NULL) == 0); /* it is repeated, long before its ttl */
    closed(c);
}

struct healer {
    struct proxy *proxy;
    size_t cuts;
    atomic_bool over;
};

static void *heal(void *arg)
{
    struct healer *h = arg;

    while (!atomic_load(&h->over) && proxy_cuts(h->proxy) == h->cuts)
        nap();
    proxy_cut_after(h->proxy, -1);
    return NULL;
}

void release_cut(struct proxy *p, long bytes, hf_lease *l)
{
    struct healer h = { .proxy = p, .cuts = proxy_cuts(p) };
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, heal, &h) == 0);
    proxy_cut_after(p, bytes);
    CHECK_RC(rig.face->release(l, E()), 0);
    atomic_store(&h.over, true);
    pthread_join(thread, NULL);
}

/* ---- a short connect_timeout ----------------------------------------------------- */

static void await_tries(struct proxy *p, size_t n)
{
    size_t before = proxy_cuts(p);

    AWAIT(proxy_cuts(p) >= before + n);
}

void short_timeout(struct proxy *p)
{
    enum { TRIES = 8 };
    hf_client *c = prompted();
    int64_t start;

    given(taken(c, nm("n"), NULL));
    proxy_cut_after(p, 0); /* greetings are not answered */
    proxy_drop(p);
    await_tries(p, TRIES); /* pauses have become as long as they get */
    start = now_ms();
    await_tries(p, TRIES);
    CHECK_WITHIN(start, TRIES * SHORT_TIMEOUT_MS);
    proxy_cut_after(p, -1);
    AWAIT(tried(c, nm("n"), NULL) == 0);
    closed(c);
}

/* ---- errors only ----------------------------------------------------------------- */

enum { TALKS_MAX = 64 };

struct talk { /* one connection, with a thread of its own */
    int fd;
    pthread_t thread;
    void (*talk)(int fd);
};

struct fake {
    int fd, port;
    pthread_t thread;
    void (*talk)(int fd);
    struct talk talks[TALKS_MAX];
    size_t n;
};

static void *serve_one(void *arg)
{
    const struct talk *t = arg;

    t->talk(t->fd);
    shutdown(t->fd, SHUT_RDWR); /* closed when all is over: its number stays ours */
    return NULL;
}

static void *serve(void *arg)
{
    struct fake *f = arg;
    int fd;

    while ((fd = accept(f->fd, NULL, NULL)) >= 0) {
        CHECK(f->n < TALKS_MAX);
        f->talks[f->n] = (struct talk){ .fd = fd, .talk = f->talk };
        CHECK(pthread_create(&f->talks[f->n].thread, NULL, serve_one, &f->talks[f->n]) ==
              0);
        f->n++;
    }
    return NULL;
}

struct fake *fake_new(void (*talk)(int fd))
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof(a);
    struct fake *f = calloc(1, sizeof(*f));

    CHECK(f);
    f->talk = talk;
    f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(f->fd, (struct sockaddr *)&a, len) == 0 && listen(f->fd, 16) == 0);
    CHECK(getsockname(f->fd, (struct sockaddr *)&a, &len) == 0);
    f->port = ntohs(a.sin_port);
    CHECK(pthread_create(&f->thread, NULL, serve, f) == 0);
    return f;
}

int fake_port(const struct fake *f)
{
    return f->port;
}

void fake_free(struct fake *f)
{
    shutdown(f->fd, SHUT_RDWR);
    pthread_join(f->thread, NULL);
    for (size_t i = 0; i < f->n; i++) {
        shutdown(f->talks[i].fd, SHUT_RDWR);
        pthread_join(f->talks[i].thread, NULL);
        close(f->talks[i].fd);
    }
    close(f->fd);
    free(f);
}

void only_errors(const char *url, int code)
{
    hf_client *c = NULL;
    hf_lease *l = NULL;
    int64_t start = now_ms();

    CHECK_RC(rig.face->open(url, NULL, &c, E()), 0);
    for (int i = 0; i < 2; i++) { /* a try, and one that would wait */
        CHECK_RC(rig.face->acquire(c, nm("n"), i ? HF_FOREVER : 0, NULL, &l, E()), code);
        CHECK(!l && last_error()->text[0]);
    }
    CHECK_WITHIN(start, LIMIT_MS / 2);
    closed(c);
}
