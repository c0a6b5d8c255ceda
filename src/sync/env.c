/* env.c: what the core and the drivers get of the world: the loop, the clocks, randomness. */
#include "sync/sync.h"

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

/* Buffered: a system call per token would be half the cost of an uncontended acquire. A forked
 * child has no use of it (HF_EFORKED), so no two processes draw the same bytes. */
static void random_bytes(struct env *e, void *buf, size_t n)
{
    hf_client *c = client_of(e);

    if (n > c->random_left) {
        size_t got = 0;

        while (got < sizeof c->random) {
            ssize_t r = getrandom(c->random + got, sizeof c->random - got, 0);

            if (r > 0)
                got += (size_t)r;
        }
        c->random_left = sizeof c->random;
    }
    c->random_left -= n;
    memcpy(buf, c->random + c->random_left, n);
    explicit_bzero(c->random + c->random_left, n);
}

static int watch(struct env *e, struct watch *w, int fd, uint32_t events)
{
    return hf__loop_watch(&client_of(e)->loop, w, fd, events);
}

static void unwatch(struct env *e, struct watch *w)
{
    hf__loop_unwatch(&client_of(e)->loop, w);
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
                           .timer = timer,
                           .log = log_line,
                           .tls = tls };
}
