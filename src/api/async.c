/* async.c: started operations and their callbacks, and the descriptor.
 *
 * An operation that is done goes to `ready`; process(), wait() or hf_close take it from
 * there and run its callback without the lock. Exactly once: it is taken off the list under
 * the lock by one thread. hf_op_free: not done -> cancelled, and its callback never runs;
 * done and queued -> off the list, a grant in it is released; its callback runs just now ->
 * freed when it returns. */
#include "api/api.h"

#include "api/cell.h"
#include "api/perturb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static _Thread_local unsigned in_callback;
static _Thread_local const hf_client *callback_of; /* the innermost */

bool hf__in_callback(void)
{
    return in_callback > 0;
}

const hf_client *hf__callback_of(void)
{
    return callback_of;
}

static const hf_client *callback_begins(const hf_client *c)
{
    const hf_client *before = callback_of;

    in_callback++;
    callback_of = c;
    return before;
}

static void callback_ends(const hf_client *before)
{
    in_callback--;
    callback_of = before;
}

struct hf_op *hf__op_new(hf_client *c, enum op_kind kind, size_t size,
                         const struct listener *l, hf_error *err)
{
    struct hf_op *op = hf__pool_get(&c->op_pool, size);

    if (!op) {
        hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for an operation");
        return NULL;
    }
    hf__op_init(op, &c->core, kind, NULL);
    op->lazy_err = true;
    if (l) {
        op->lists = l->seen != NULL;
        if (op->lists)
            op->seen = l->seen;
        else
            op->callback = l->done;
        op->user = l->user;
    }
    list_push(&c->ops, &op->node);
    c->refs++;
    return op;
}

/* With what the application will never get. */
void hf__op_drop(hf_client *c, struct hf_op *op)
{
    struct hf_lease *l = op->done && op->rc == 0 ? op->lease : NULL;

    list_remove(&op->node);
    if (op_asks(op)) {
        if (op->ask)
            hf__ask_stop(op->ask);
        hf_list_free(op->list);
    }
    if (op->kind == OP_CHANGE)
        hf__change_drop(op);
    if (l) {
        hf__release(NULL, l, 0);
        hf__lease_end(l);
    }
    hf__op_done_with(op);
    free(op->err);
    if (op->kind == OP_ACQUIRE || op->kind == OP_RELEASE)
        hf__pool_put(&c->op_pool, op, sizeof *op);
    else /* some are larger, and they are rare */
        free(op);
    c->refs--;
}

void hf__op_ready(struct hf_op *op)
{
    hf_client *c = op_client(op);

    if (op->freed)
        return;
    if (op->running) {
        op->again = true; /* a watch: told once more when its callback has returned */
        return;
    }
    if (!op->queued) {
        list_remove(&op->node);
        list_push(&c->ready, &op->node);
        op->queued = true;
    }
    hf__news(c);
}

/* The application's part; without the lock. */
static void call(struct hf_op *op, int rc, struct hf_lease *lease, const hf_list *list,
                 const hf_error *err)
{
    struct watcher *w = container_of(op, struct watcher, op);
    const hf_client *before;
    hf_error none;

    if (rc < 0 && !err) {
        hf__fail(&none, rc, 0, NULL, "%s", hf_strerror(rc));
        err = &none;
    }
    before = callback_begins(op_client(op));
    if (op->kind == OP_WATCH && w->cell_seen)
        w->cell_seen(w->cell, rc, op->user);
    else if (op->lists)
        op->seen(op, rc, list, err, op->user);
    else
        op->callback(op, rc, lease, err, op->user);
    callback_ends(before);
}

static void run_op(hf_client *c, struct hf_op *op)
{
    struct hf_lease *lease =
        (op->kind == OP_ACQUIRE || op->kind == OP_COMPOSITE) && op->rc == 0 ? op->lease
                                                                            : NULL;
    struct hf_list *list = op_asks(op) ? op->list : NULL;
    int rc = op->done ? op->rc : 0;
    /* a watch that goes on may get one meanwhile */
    const hf_error *err = rc < 0 ? op->err : NULL;

    op->lease = NULL;
    if (op_asks(op))
        op->list = NULL;
    op->queued = false;
    op->running = true;
    if (!op->done)
        list_push(&c->ops, &op->node);
    if (lease)
        hf__lease_given(c, lease);
    pthread_mutex_unlock(&c->lock);
    call(op, rc, lease, list, err);
    hf_list_free(list);
    PERTURB();
    pthread_mutex_lock(&c->lock);
    op->running = false;
    if (op->freed)
        hf__op_drop(c, op);
    else if (op->again) {
        op->again = false;
        hf__op_ready(op);
    }
}

static void run_change(hf_client *c, struct hf_lease *l)
{
    void (*cb)(hf_lease *, int, void *) = l->extra ? l->extra->on_change : NULL;
    void *user = l->extra ? l->extra->on_change_user : NULL;
    const hf_client *before;
    int state = hf__lease_state(l);

    if (!cb || state == l->told)
        return;
    l->told = (unsigned char)state;
    l->telling = true;
    hf__lease_pin(l);
    pthread_mutex_unlock(&c->lock);
    before = callback_begins(c);
    cb(l, state, user);
    callback_ends(before);
    pthread_mutex_lock(&c->lock);
    l->telling = false;
    l->runs++;
    pthread_cond_broadcast(&c->told);
    hf__lease_unpin(l);
    if (!l->released)
        hf__lease_changed(l); /* what has changed meanwhile */
    else if (!l->awaited)
        hf__lease_free(l);
}

static size_t length(const struct list *l)
{
    size_t n = 0;

    list_for(i, l)
        n++;
    return n;
}

/* Only those that are there now: a callback may start what is done at once, and so on for
 * ever, while our caller has other things to do. */
int hf__run_changes(hf_client *c)
{
    size_t changes = length(&c->changed);
    struct list *n;
    int ran = 0;

    for (; changes > 0 && (n = list_pop(&c->changed)) != NULL; changes--, ran++)
        run_change(c, container_of(n, struct lease_extra, changed_node)->lease);
    return ran;
}

int hf__run_callbacks(hf_client *c)
{
    bool tell = !hf__tells(c) && !list_empty(&c->changed);
    size_t ops = length(&c->ready);
    struct list *n;
    int ran = 0;

    if (tell || ops > 0) { /* a callback may take long, or wait for a thread that follows */
        hf__promote(c);
        /* what has become due since it looked, such as a new lease's renewal */
        hf__keeper_need(c);
    }
    if (tell)
        ran = hf__run_changes(c);
    for (; ops > 0 && (n = list_pop(&c->ready)) != NULL; ops--, ran++)
        run_op(c, container_of(n, struct hf_op, node));
    if (ran > 0)
        hf__look(c);
    hf__run(c); /* what the callbacks started */
    hf__show_news(c);
    return ran;
}

/* ---- starting -------------------------------------------------------------------- */

/* Why it was not started. */
static void explain(const struct hf_op *op, int rc, hf_error *err)
{
    if (err && op->err)
        *err = *op->err;
    else
        hf__fail(err, rc, 0, NULL, "%s", hf_strerror(rc));
}

static int acquire(hf_client *c, const char *const *names, size_t n, int64_t wait_ms,
                   const hf_request *req, const struct listener *l, hf_op **ret,
                   hf_error *err)
{
    hf_cancel *cancel = req ? req->cancel : NULL;
    struct acquire_spec r;
    struct hf_op *op;
    int rc = hf__check_request(&c->core, req, false, &r, err);

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = hf__check_name(&c->core, names[i], err);
    if (rc < 0)
        return rc;
    op = hf__op_new(c, OP_ACQUIRE, sizeof *op, l, err);
    if (!op)
        return HF_ENOMEM;
    /* a token that was fired before the start ends it, as it would a moment later */
    if (cancel && atomic_load(&cancel->fired)) {
        hf__op_end(op, HF_ECANCELED, NULL);
    } else {
        rc = hf__acquire(op, names, n, wait_ms, &r);
        if (rc < 0)
            explain(op, rc, err);
        else if (!op->done && cancel)
            rc = hf__cancel_attach(c, op, cancel, err);
    }
    if (rc < 0) {
        op->freed = true; /* the caller has no handle, so its end must not be told */
        hf__cancel(op, rc);
        hf__op_drop(c, op);
        return rc;
    }
    *ret = op;
    return 0;
}

int hf_acquire_all_start(hf_client *c, const char *const *names, size_t n, int64_t wait_ms,
                         const hf_request *req, hf_done *done, void *user, hf_op **ret,
                         hf_error *err)
{
    const struct listener l = { .done = done, .user = user };
    int rc;

    if (!done || !ret || !names || n == 0)
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "names, callback and ret must not be NULL");
    rc = hf__enter(c, err);
    if (rc < 0)
        return rc;
    rc = acquire(c, names, n, wait_ms, req, &l, ret, err);
    hf__leave(c);
    return rc;
}

int hf_acquire_start(hf_client *c, const char *name, int64_t wait_ms, const hf_request *req,
                     hf_done *done, void *user, hf_op **ret, hf_error *err)
{
    return hf_acquire_all_start(c, &name, 1, wait_ms, req, done, user, ret, err);
}

static int release(hf_lease *l, const int64_t *keep_ms, const struct listener *to,
                   hf_op **ret, hf_error *err)
{
    hf_client *c = l ? lease_client(l) : NULL;
    struct hf_op *op = NULL;
    int rc;

    if (!l || (to->done && !ret))
        return hf__fail(err, HF_EINVAL, 0, NULL, "the lease or ret is NULL");
    rc = hf__lease_enter(l, keep_ms, err);
    if (rc < 0)
        return rc;
    if (!to->done || c->closing || c->broken)
        return hf__lease_give_back(l, NULL, false, keep_ms, err);
    op = hf__op_new(c, OP_RELEASE, sizeof *op, to, err);
    if (op)
        *ret = op;
    hf__lease_give_back(l, op, false, keep_ms, NULL);
    return op ? 0 : HF_ENOMEM;
}

int hf_release_start(hf_lease *l, hf_done *done, void *user, hf_op **ret, hf_error *err)
{
    return release(l, NULL, &(struct listener){ .done = done, .user = user }, ret, err);
}

int hf_release_after_start(hf_lease *l, int64_t keep_ms, hf_done *done, void *user,
                           hf_op **ret, hf_error *err)
{
    return release(l, &keep_ms, &(struct listener){ .done = done, .user = user }, ret, err);
}

int hf_watch_start(hf_client *c, const char *name, hf_seen *seen, void *user, hf_op **ret,
                   hf_error *err)
{
    const struct listener l = { .seen = seen, .user = user };
    struct watcher *w;
    int rc;

    if (!seen || !ret)
        return hf__fail(err, HF_EINVAL, 0, NULL, "callback and ret must not be NULL");
    rc = hf__enter(c, err);
    if (rc < 0)
        return rc;
    rc = hf__check_name(&c->core, name, err);
    w = rc == 0 ? (struct watcher *)(void *)hf__op_new(c, OP_WATCH, sizeof *w, &l, err)
                : NULL;
    if (rc == 0 && !w)
        rc = HF_ENOMEM;
    if (w) {
        rc = hf__ask(
            &w->op, &w->ask, ASK_LOOK,
            &(struct look){ .name = name, .name_len = strlen(name), .follow = true }, err);
        if (rc < 0)
            hf__op_drop(c, &w->op);
        else
            *ret = &w->op;
    }
    hf__leave(c);
    return rc;
}

int hf_connect_start(hf_client *c, int64_t wait_ms, hf_done *done, void *user, hf_op **ret,
                     hf_error *err)
{
    const struct listener l = { .done = done, .user = user };
    struct hf_op *op;
    int rc;

    if (!done || !ret)
        return hf__fail(err, HF_EINVAL, 0, NULL, "callback and ret must not be NULL");
    rc = hf__enter(c, err);
    if (rc < 0)
        return rc;
    op = hf__op_new(c, OP_CONNECT, sizeof *op, &l, err);
    if (op) {
        rc = hf__connect(op, wait_ms);
        if (rc < 0) {
            explain(op, rc, err);
            hf__op_drop(c, op);
        } else {
            *ret = op;
        }
    }
    hf__leave(c);
    return op ? rc : HF_ENOMEM;
}

int hf__cell_follow(hf_client *c, struct cell *cell, hf__cell_seen *seen, void *user,
                    hf_op **ret, hf_error *err)
{
    struct watcher *w;
    int rc = hf__enter(c, err);

    if (rc < 0)
        return rc;
    w = (struct watcher *)(void *)hf__op_new(c, OP_WATCH, sizeof *w, NULL, err);
    if (w) {
        w->cell_seen = seen;
        w->cell = cell;
        w->op.user = user;
        cell->verb = CELL_GET;
        cell->follow = true;
        rc = hf__cell(&w->op, &w->ask, cell, err);
        if (rc < 0)
            hf__op_drop(c, &w->op);
        else
            *ret = &w->op;
    }
    hf__leave(c);
    return w ? rc : HF_ENOMEM;
}

/* ---- ending ---------------------------------------------------------------------- */

void hf_op_cancel(hf_op *op)
{
    hf_client *c = op ? op_client(op) : NULL;

    if (!op || hf__enter_any(c) < 0)
        return;
    if (!op->done && (op->kind == OP_ACQUIRE || op->kind == OP_CONNECT ||
                      (op->kind == OP_ASK && op->ask->kind == ASK_LOOK)))
        hf__cancel(op, HF_ECANCELED);
    else if (op->kind == OP_COMPOSITE)
        hf__composite_give_up(op, HF_ECANCELED);
    hf__leave(c);
}

void hf_op_free(hf_op *op)
{
    hf_client *c = op ? op_client(op) : NULL;

    if (!op)
        return;
    if (hf__enter_any(c) < 0) {
        op->user = c->orphans; /* what the driver has of it goes first */
        c->orphans = op;
        hf__drop_forked(c);
        return;
    }
    op->freed = true;
    if (!op->done)
        hf__cancel(op, HF_ECANCELED);
    if (!op->running)
        hf__op_drop(c, op);
    hf__leave(c);
}

static void end_one(struct hf_op *op, int rc, const char *why)
{
    if (why && !op->done)
        hf__op_text(op, rc, "%s", why);
    hf__cancel(op, rc);
}

void hf__end_all(hf_client *c, int rc, const char *why)
{
    struct list *n;

    while ((n = list_first(&c->ops)) != NULL) {
        list_remove(n);
        end_one(container_of(n, struct hf_op, node), rc, why);
    }
    list_for_safe(r, &c->ready) /* a watch with news that nobody has seen yet */
        end_one(container_of(r, struct hf_op, node), rc, why);
}

/* ---- the descriptor -------------------------------------------------------------- */

static int make_app_fd(hf_client *c)
{
    struct epoll_event ev = { .events = EPOLLIN }, none = { .events = 0 };
    int fd = epoll_create1(EPOLL_CLOEXEC);

    if (fd < 0 || !hf__loop_intact(&c->loop) ||
        epoll_ctl(fd, EPOLL_CTL_ADD, c->loop.epfd, &ev) < 0 ||
        epoll_ctl(fd, EPOLL_CTL_ADD, c->loop.anchor[1], &none) < 0) {
        int saved = fd < 0 || hf__loop_intact(&c->loop) ? errno : EBADF;

        if (fd >= 0)
            close(fd);
        errno = saved;
        return HF_ESYS;
    }
    c->app_fd = fd; /* from now on on_change callbacks run in process() (teller.c) */
    hf__news(c);
    return 0;
}

int hf_client_fd(hf_client *c)
{
    int rc = hf__enter(c, NULL), saved;

    if (rc < 0)
        return rc;
    if (c->app_fd >= 0 || (rc = make_app_fd(c)) == 0)
        rc = c->app_fd;
    saved = errno;
    hf__leave(c); /* runs what is queued */
    errno = saved;
    return rc;
}

static void inside_ends(hf_client *c)
{
    c->inside--;
    hf__promote(c);
}

int hf_client_process(hf_client *c)
{
    int rc = hf__enter_pump(c), did = 0;

    if (rc < 0)
        return rc;
    c->inside++;
    if (!c->leading && !c->broken)
        did = hf__lead(c, false);
    did += hf__run_callbacks(c);
    if (did <= 0 && c->broken)
        did = HF_ESYS;
    inside_ends(c);
    hf__leave(c);
    return did;
}

static void time_over(struct timer *t)
{
    struct limit *l = container_of(t, struct limit, timer);

    hf__wake(l->client, &l->waiter);
}

void hf__limit_begin(struct limit *l, hf_client *c, int64_t wait_ms, bool pumps)
{
    int64_t now = hf__loop_now();

    l->client = c;
    l->end = LOOP_NEVER;
    if (wait_ms < (LOOP_NEVER - now) / 1000 - 1)
        l->end = now + (wait_ms > 0 ? wait_ms : 0) * 1000;
    timer_init(&l->timer, time_over);
    hf__waiter_init(&l->waiter, pumps);
    c->inside++;
    hf__loop_timer(&c->loop, &l->timer, l->end);
}

void hf__limit_end(struct limit *l)
{
    hf_client *c = l->client;

    hf__loop_timer(&c->loop, &l->timer, LOOP_NEVER);
    inside_ends(c);
    hf__waiter_done(&l->waiter);
}

static int pump(hf_client *c, struct waiter *w, int64_t end)
{
    bool turned = false;

    for (;; turned = true) {
        int did = hf__run_callbacks(c);

        if (did > 0)
            return did;
        if (c->closing)
            return HF_ECLOSED;
        if (c->broken)
            return HF_ESYS;
        if (hf__drained(c))
            return HF_ECLOSED;
        if (turned && hf__loop_now() >= end)
            return 0;
        hf__wait_turn(c, w);
    }
}

int hf_client_wait(hf_client *c, int64_t wait_ms)
{
    struct limit l;
    int rc = hf__enter_pump(c);

    if (rc < 0)
        return rc;
    hf__limit_begin(&l, c, wait_ms, true);
    l.waiter.spin = &c->spins[SPIN_CALLBACK];
    rc = pump(c, &l.waiter, l.end);
    hf__limit_end(&l);
    hf__leave(c);
    return rc;
}
