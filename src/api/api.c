/* api.c: opening and closing, and the blocking calls: start, wait, take. */
#include "api/api.h"

#include "core/url.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { CLOSE_MS = 1000, LIFE_PAUSE_US = 5000 };

/* ---- open ------------------------------------------------------------------------ */

/* A page that the kernel wipes in a forked child: telling parent from child costs no system
 * call (G12). */
static int watch_forks(hf_client *c, hf_error *err)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);

    c->alive = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (c->alive == MAP_FAILED) {
        c->alive = NULL;
        return hf__fail(err, HF_ENOMEM, errno, NULL, "mmap");
    }
    if (madvise(c->alive, size, MADV_WIPEONFORK) < 0)
        return hf__fail(err, HF_ESYS, errno, NULL, "madvise(MADV_WIPEONFORK)");
    *c->alive = 1;
    c->core.alive = c->alive;
    return 0;
}

static hf_client *new_client(const hf_options *o)
{
    hf_client *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    hf__env_init(c);
    c->log = o->log;
    c->log_user = o->user;
    c->drive = o->drive & ~(uint32_t)HF_OPEN_EXISTING;
    c->refs = 1;
    c->keeper_fd = c->app_fd = -1;
    c->loop.epfd = c->loop.timerfd = c->loop.anchor[0] = c->loop.anchor[1] = -1;
    list_init(&c->waiters);
    list_init(&c->ops);
    list_init(&c->ready);
    list_init(&c->changed);
    list_init(&c->resumed);
    list_init(&c->cancels);
    list_init(&c->losses);
    hf__pool_init(&c->op_pool);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->quiet, NULL);
    pthread_cond_init(&c->teller_news, NULL);
    pthread_cond_init(&c->told, NULL);
    return c;
}

static void close_fds(hf_client *c)
{
    if (c->app_fd >= 0 && hf__loop_intact(&c->loop))
        close(c->app_fd);
    c->app_fd = -1;
    hf__loop_stop(&c->loop);
}

static void destroy_locks(hf_client *c)
{
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->quiet);
    pthread_cond_destroy(&c->teller_news);
    pthread_cond_destroy(&c->told);
}

void hf__client_free(hf_client *c)
{
    if (c->keeper_fd >= 0 && hf__loop_intact(&c->loop))
        close(c->keeper_fd);
    close_fds(c);
    /* leases that outlived hf_close have asked it about descriptors */
    hf__loop_done(&c->loop);
    if (!c->alive || *c->alive)
        /* else threads wait there that are not in this child: so would we */
        destroy_locks(c);
    hf__pool_done(&c->op_pool);
    if (c->alive)
        munmap(c->alive, (size_t)sysconf(_SC_PAGESIZE));
    free(c);
}

static int open_client(hf_client *c, const struct url *url, const hf_options *o,
                       hf_error *err)
{
    const struct hf_driver *driver;
    int rc = hf__driver_find(url->scheme, &driver, err);

    if (rc == 0)
        rc = hf__env_draw_key(c, err);
    if (rc == 0)
        rc = watch_forks(c, err);
    hf__spin_open(c, o->spin_us ? o->spin_us : url->spin_us);
    if (rc == 0 && hf__loop_init(&c->loop) < 0)
        rc = hf__fail(err, HF_ESYS, errno, NULL, "epoll");
    if (rc == 0)
        rc = hf__client_init(&c->core, driver, url, o, &c->env, &hf__host, err);
    if (rc < 0)
        return rc;
    if (c->drive == HF_DRIVE_PROMPT) {
        pthread_mutex_lock(&c->lock);
        rc = hf__keeper_start(c, err);
        pthread_mutex_unlock(&c->lock);
        if (rc < 0) {
            memset(&c->core.url, 0, sizeof c->core.url);
            hf__client_done(&c->core);
        }
    }
    return rc;
}

int hf_open(const char *text, const hf_options *given, hf_client **ret, hf_error *err)
{
    struct url url;
    hf_options o;
    hf_client *c;
    int rc;

    if (!ret)
        return hf__fail(err, HF_EINVAL, 0, NULL, "ret is NULL");
    rc = hf__check_options(given, &o, err);
    if (rc == 0)
        rc = hf__url_parse(&url, text, err);
    if (rc < 0)
        return rc;
    c = new_client(&o);
    rc = c ? open_client(c, &url, &o, err)
           : hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a client");
    if (rc < 0) {
        hf__url_refused(&url, err);
        hf__url_done(&url);
        if (c)
            hf__client_free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

/* ---- close ----------------------------------------------------------------------- */

static void patience_over(struct timer *t)
{
    (void)t; /* it has ended the sleep */
}

/* Drives until everything that was in line is known to be out and the store has ended our
 * session. The last quarter of the time is for the session, if the store has such: its end
 * takes out what is not settled, too. */
static void settle(hf_client *c)
{
    int64_t now = hf__loop_now(), end = now + CLOSE_MS * 1000;
    struct timer t;

    if (c->broken)
        return;
    timer_init(&t, patience_over);
    hf__loop_timer(&c->loop, &t, c->core.store->driver->shut ? now + CLOSE_MS * 750 : end);
    while (c->core.unsettled > 0 && timer_armed(&t) && !c->broken)
        hf__lead(c, true);
    if (!c->broken)
        hf__client_end_session(&c->core);
    hf__loop_timer(&c->loop, &t, end);
    while (!c->broken && !c->core.shut_done && timer_armed(&t))
        hf__lead(c, true);
    hf__loop_timer(&c->loop, &t, LOOP_NEVER);
}

void hf__ask_orphan(struct hf_op *op)
{
    if (!op_asks(op))
        return;
    if (op->ask) {
        hf_list_free(op->ask->list);
        free(op->ask->name);
    }
    hf_list_free(op->list);
}

static void free_orphan(struct hf_op *op)
{
    if (op->kind == OP_COMPOSITE)
        hf__composite_orphan(op);
    hf__ask_orphan(op);
    hf__op_free_names(op);
    if (op->lease)
        hf__lease_extra_free(op->lease);
    free(op->lease);
    free(op->err);
    free(op);
}

static void free_hold(struct hold *h)
{
    free((void *)(uintptr_t)h->t.hints);
    free(hold_late_note(h));
    if (h->state == TICKET_HELD)
        free(h->move);
    else
        free(h->reason);
    free(hold_late_life(h));
    free(h);
}

/* In the child of a fork: memory and our copies of descriptors only; there is one thread,
 * and the lock may have been held by one that does not exist here. */
void hf__drop_forked(hf_client *c)
{
    struct hf_op *op;
    struct list *n;

    if (--c->refs > 0)
        return;
    if (pthread_mutex_trylock(&c->lock) != 0)
        /* a thread that is not here was at work: nothing can be trusted, all is left */
        return;
    pthread_mutex_unlock(&c->lock);
    if (c->core.store && c->core.store->driver->forked)
        c->core.store->driver->forked(c->core.store);
    while ((op = c->orphans) != NULL) {
        c->orphans = op->user;
        free_orphan(op);
    }
    while ((n = list_pop(&c->core.holds)) != NULL)
        free_hold(container_of(n, struct hold, node));
    hf__map_done(&c->core.waiting);
    hf__map_done(&c->core.by_place);
    hf__map_done(&c->core.by_owner);
    hf__url_done(&c->core.url);
    free(c->core.acts_hints);
    hf__pool_done(&c->core.lease_pool);
    hf__pool_done(&c->core.hold_pool);
    hf__client_free(c);
}

void hf_close(hf_client *c)
{
    if (!c)
        return;
    if (hf__in_callback()) {
        c->env.log(&c->env, HF_LOG_WARN, "", "hf_close inside a callback: ignored");
        return;
    }
    if (hf__enter_any(c) < 0) {
        hf__drop_forked(c);
        return;
    }
    c->closing = true;
    if (!hf__loop_intact(&c->loop))
        hf__break_down(c); /* else the driver would close what is not its own */
    hf__end_all(c, HF_ECLOSED, NULL);
    hf__client_shut(&c->core);
    list_for(n, &c->waiters)
        pthread_cond_signal(&container_of(n, struct waiter, node)->cond);
    hf__loop_wake(&c->loop);
    hf__alone(c);
    hf__keeper_end(c);
    settle(c);
    hf__teller_end(c);
    while (hf__run_callbacks(c) > 0)
        ;
    hf__client_done(&c->core);
    hf__stop_no_more(c);
    close_fds(c);
    c->closed = true;
    c->refs--;
    hf__leave(c);
}

/* ---- locks ----------------------------------------------------------------------- */

static int run_acquire(hf_client *c, struct hf_op *op, const char *const *names, size_t n,
                       int64_t wait_ms, const hf_request *req, const struct acquire_spec *r)
{
    hf_cancel *cancel = req ? req->cancel : NULL;
    int rc;

    if (cancel && atomic_load(&cancel->fired))
        return hf__fail(op->err, HF_ECANCELED, 0, NULL, "cancelled before it began");
    rc = hf__acquire(op, names, n, wait_ms, r);
    if (rc < 0)
        return rc;
    if (!op->done) {
        if (cancel && (rc = hf__cancel_attach(c, op, cancel, op->err)) < 0)
            hf__cancel(op, rc);
        list_push(&c->ops, &op->node);
        if (op->done)
            list_remove(&op->node);
        else
            hf__wait(c, op);
    }
    return op->rc;
}

int hf_acquire_all(hf_client *c, const char *const *names, size_t n, int64_t wait_ms,
                   const hf_request *req, hf_lease **ret, hf_error *err)
{
    struct acquire_spec r;
    struct hf_op op;
    int rc;

    if (!ret || !names || n == 0)
        return hf__fail(err, HF_EINVAL, 0, NULL, "names and ret must not be NULL");
    rc = hf__enter_blocking(c, err);
    if (rc < 0)
        return rc;
    rc = hf__check_request(&c->core, req, true, &r, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = hf__check_name(&c->core, names[i], err);
    if (rc == 0) {
        hf__op_init(&op, &c->core, OP_ACQUIRE, err);
        rc = run_acquire(c, &op, names, n, wait_ms, req, &r);
    }
    if (rc == 0) {
        hf__lease_given(c, op.lease);
        *ret = op.lease;
    }
    hf__leave(c);
    return rc;
}

int hf_acquire(hf_client *c, const char *name, int64_t wait_ms, const hf_request *req,
               hf_lease **ret, hf_error *err)
{
    return hf_acquire_all(c, &name, 1, wait_ms, req, ret, err);
}

int hf_with(hf_client *c, const char *name, int64_t wait_ms, const hf_request *req,
            int (*body)(hf_lease *, void *), void *user, int *ret_body, hf_error *err)
{
    hf_error why = { 0 };
    hf_lease *l = NULL;
    int rc, result;

    if (!body)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the body is NULL");
    rc = hf_acquire(c, name, wait_ms, req, &l, err);
    if (rc < 0)
        return rc;
    result = body(l, user);
    if (ret_body)
        *ret_body = result;
    rc = hf_release(l, &why);
    if (rc == 0 || rc == HF_EUNKNOWN) /* the body had it to its end */
        return 0;
    return hf__fail(err, rc == HF_ECLOSED ? HF_ELOST : rc, 0, NULL, "%s", why.text);
}

/* ---- connecting ------------------------------------------------------------------ */

int hf_connect(hf_client *c, int64_t wait_ms, hf_error *err)
{
    struct hf_op op;
    int rc = hf__enter_blocking(c, err);

    if (rc < 0)
        return rc;
    hf__op_init(&op, &c->core, OP_CONNECT, err);
    list_push(&c->ops, &op.node);
    rc = hf__connect(&op, wait_ms);
    if (rc == 0 && !op.done)
        hf__wait(c, &op);
    list_remove(&op.node);
    hf__leave(c);
    return rc < 0 ? rc : op.rc;
}

/* ---- about the client ------------------------------------------------------------ */

uint32_t hf_client_caps(const hf_client *c)
{
    return c ? c->core.caps : 0;
}

const char *hf_client_url(const hf_client *c)
{
    return c ? c->core.url.shown : NULL;
}

int64_t hf_client_ttl_ms(const hf_client *c)
{
    return c ? c->core.ttl_ms : 0;
}

static int life_fds(hf_client *c, int *fds, size_t n)
{
    int rc = hf__enter(c, NULL), saved;
    const struct store *s;

    if (rc < 0)
        return rc;
    s = c->core.store;
    if (s->driver->life_fds)
        rc = s->driver->life_fds(c->core.store);
    for (size_t i = 0; rc == 0 && fds && i < n && i < s->nlife_fds; i++)
        fds[i] = s->life_fds[i];
    if (rc == 0)
        rc = (int)s->nlife_fds;
    saved = errno;
    hf__leave(c); /* runs what is queued */
    errno = saved;
    return rc;
}

/* A store that is blocked is asked again, and not waited for under the lock. */
int hf_client_life_fds(hf_client *c, int *fds, size_t n)
{
    const struct timespec pause = { .tv_nsec = LIFE_PAUSE_US * 1000 };
    int64_t end = c ? hf__loop_now() + c->core.url.connect_ms * 1000 : 0;
    int rc;

    while ((rc = life_fds(c, fds, n)) == HF_EBUSYSTORE && hf__loop_now() < end)
        nanosleep(&pause, NULL);
    return rc;
}
