/* env.c: what the core and the drivers get of the world: the loop, the clocks, randomness.
 */
#include "api/api.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static hf_client *client_of(struct env *e)
{
    return container_of(e, hf_client, env);
}

static int64_t now(struct env *e)
{
    (void)e;
    return hf__loop_now();
}

static int64_t wall(struct env *e)
{
    struct timespec ts;

    (void)e;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* ---- randomness --------------------------------------------------------------------
 *
 * Buffered: a system call per token would be half the cost of an uncontended acquire. A
 * forked child has no use of it (HF_EFORKED), so no two processes draw the same bytes.
 *
 * The kernel may stop giving random bytes (a filter of system calls that was set up after
 * hf_open). Then they are computed from a key that hf_open has drawn: block number n is
 * prf(key, n), and no number is used twice. Tokens must be unique, for the life of the
 * store: without the key these blocks cannot be told from random bytes, so two tokens of
 * one client are alike no sooner than two random ones, and so are those of two clients,
 * because each has a key of its own (256 bits, used for nothing else). */

static bool draw(unsigned char *to, size_t n)
{
    while (n > 0) {
        ssize_t got = getrandom(to, n, 0);

        if (got < 0 && errno != EINTR)
            return false;
        if (got > 0) {
            to += got;
            n -= (size_t)got;
        }
    }
    return true;
}

int hf__env_draw_key(hf_client *c, hf_error *err)
{
    if (draw(c->random_key, sizeof c->random_key))
        return 0;
    return hf__fail(err, HF_ESYS, errno, NULL,
                    "the kernel gives no random bytes: getrandom");
}

static void refill(hf_client *c)
{
    if (!draw(c->random, sizeof c->random))
        for (size_t i = 0; i < sizeof c->random; i += PRF_BLOCK)
            hf__prf(c->random + i, c->random_key, c->random_blocks++);
    c->random_left = sizeof c->random;
}

static void random_bytes(struct env *e, void *buf, size_t n)
{
    hf_client *c = client_of(e);

    if (n > c->random_left)
        refill(c);
    c->random_left -= n;
    memcpy(buf, c->random + c->random_left, n);
    explicit_bzero(c->random + c->random_left, n);
}

/* ---- the loop, and the rest ------------------------------------------------------ */

static int watch(struct env *e, struct watch *w, int fd, uint32_t events)
{
    return hf__loop_watch(&client_of(e)->loop, w, fd, events);
}

static void unwatch(struct env *e, struct watch *w)
{
    hf__loop_unwatch(&client_of(e)->loop, w);
}

static void forget(struct env *e, struct watch *w)
{
    hf__loop_forget(&client_of(e)->loop, w);
}

static void timer(struct env *e, struct timer *t, int64_t at)
{
    hf__loop_timer(&client_of(e)->loop, t, at);
}

static void log_line(struct env *e, int level, const char *name, const char *text)
{
    hf_client *c = client_of(e);

    if (c->log)
        c->log(c->log_user, level, name, text);
}

static int tls(struct env *e, const struct tls_module **ret, hf_error *err)
{
    (void)e;
    return hf__tls_find(ret, err);
}

void hf__env_init(struct hf_client *c)
{
    c->env = (struct env){ .now = now,
                           .wall = wall,
                           .random = random_bytes,
                           .watch = watch,
                           .unwatch = unwatch,
                           .forget = forget,
                           .timer = timer,
                           .log = log_line,
                           .tls = tls };
}
