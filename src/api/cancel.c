/* cancel.c: cancel tokens. Fired from any thread or signal handler: a flag and a byte in a
 * pipe, which stays readable. A client watches the pipe while one of its operations waits
 * with the token; the leading thread then cancels those operations. A pipe, not an eventfd,
 * because it can be told from a file that the program has opened in its place (util/fd.h).
 */
#include "api/api.h"
#include "api/perturb.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

struct cancel_watch { /* one per client and button */
    struct watch watch;
    struct list node; /* client.cancels */
    struct list ops;  /* op.on_cancel */
    hf_client *client;
    hf_cancel *cancel;
    int fd; /* our copy: several clients may watch one token */
};

int hf_cancel_new(hf_cancel **ret, hf_error *err)
{
    hf_cancel *b;

    if (!ret)
        return hf__fail(err, HF_EINVAL, 0, NULL, "ret is NULL");
    b = calloc(1, sizeof *b);
    if (!b)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a cancel token");
    if (hf__pipe_open(b->fds, &b->id) < 0) {
        int sys = errno;

        free(b);
        return hf__fail(err, HF_ESYS, sys, NULL, "pipe");
    }
    *ret = b;
    return 0;
}

static bool intact(const hf_cancel *b)
{
    return hf__pipe_is(b->fds[0], &b->id) && hf__pipe_is(b->fds[1], &b->id);
}

/* A full pipe is as good. */
static void mark(const hf_cancel *b)
{
    if (!intact(b))
        return;
    while (write(b->fds[1], "", 1) < 0 && errno == EINTR)
        ;
}

static void drain(const hf_cancel *b)
{
    char some[256];
    ssize_t n = intact(b) ? 1 : 0;

    while (n > 0 || (n < 0 && errno == EINTR))
        n = read(b->fds[0], some, sizeof some);
}

void hf_cancel_fire(hf_cancel *b)
{
    int saved = errno;

    if (!b)
        return;
    atomic_store(&b->fired, 1);
    PERTURB();
    mark(b);
    errno = saved;
}

void hf_cancel_reset(hf_cancel *b)
{
    if (!b)
        return;
    drain(b);
    PERTURB();
    atomic_store(&b->fired, 0);
}

/* Its descriptor is readable. Without the flag it was reset meanwhile, beside being fired,
 * or a forked child has fired its copy: left readable it would wake us for ever. */
static bool is_fired(const hf_cancel *b)
{
    if (atomic_load(&b->fired))
        return true;
    PERTURB();
    drain(b);
    PERTURB();
    if (!atomic_load(&b->fired))
        return false;
    PERTURB();
    mark(b); /* fired just now: others watch it too */
    return true;
}

void hf_cancel_free(hf_cancel *b)
{
    if (!b)
        return;
    if (intact(b)) {
        close(b->fds[0]);
        close(b->fds[1]);
    }
    free(b);
}

static void end_watch(struct cancel_watch *cw)
{
    hf__loop_unwatch(&cw->client->loop, &cw->watch);
    if (cw->fd >= 0 && hf__loop_intact(&cw->client->loop))
        close(cw->fd);
    list_remove(&cw->node);
    free(cw);
}

/* It is off the list then. */
static void cancel(struct hf_op *op)
{
    if (op->kind == OP_COMPOSITE)
        hf__composite_give_up(op, HF_ECANCELED);
    else
        hf__cancel(op, HF_ECANCELED);
}

static struct cancel_watch *find_watch(hf_client *c, const hf_cancel *b)
{
    list_for(n, &c->cancels) {
        struct cancel_watch *cw = container_of(n, struct cancel_watch, node);

        if (cw->cancel == b)
            return cw;
    }
    return NULL;
}

/* What ends may end others on the same token; the last one ends the watch
 * (hf__cancel_detach). So it is looked up each time. */
static void fired(struct watch *w, uint32_t events)
{
    struct cancel_watch *cw = container_of(w, struct cancel_watch, watch);
    hf_client *c = cw->client;
    hf_cancel *b = cw->cancel;

    (void)events;
    if (!is_fired(b))
        return;
    while ((cw = find_watch(c, b)) != NULL)
        cancel(container_of(cw->ops.next, struct hf_op, on_cancel));
}

static struct cancel_watch *watch_for(hf_client *c, hf_cancel *b)
{
    struct cancel_watch *cw = find_watch(c, b);

    if (cw)
        return cw;
    cw = calloc(1, sizeof *cw);
    if (!cw)
        return NULL;
    cw->client = c;
    cw->cancel = b;
    cw->fd = intact(b) ? fcntl(b->fds[0], F_DUPFD_CLOEXEC, 0) : -1;
    if (cw->fd < 0 && !intact(b))
        errno = EBADF; /* another file may have its number */
    watch_init(&cw->watch, fired);
    list_init(&cw->ops);
    list_push(&c->cancels, &cw->node);
    if (cw->fd < 0 || hf__loop_watch(&c->loop, &cw->watch, cw->fd, EPOLLIN) < 0) {
        int sys = errno;

        end_watch(cw);
        errno = sys;
        return NULL;
    }
    return cw;
}

int hf__cancel_attach(hf_client *c, struct hf_op *op, hf_cancel *b, hf_error *err)
{
    struct cancel_watch *cw = watch_for(c, b);

    if (!cw) {
        op->explained = err == op->err;
        return hf__fail(err, HF_ESYS, errno, NULL, "cannot watch the cancel token");
    }
    list_push(&cw->ops, &op->on_cancel);
    return 0;
}

void hf__cancel_detach(struct hf_op *op)
{
    struct list *next = op->on_cancel.next;
    bool last = next != &op->on_cancel && next == op->on_cancel.prev;

    list_remove(&op->on_cancel);
    if (last) /* what remains is the head of the list */
        end_watch(container_of(next, struct cancel_watch, ops));
}
