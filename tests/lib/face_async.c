/* face_async.c: the callback face and the foreign-loop face.
 *
 * Both open the client with HF_DRIVE_APP and give it one driving thread; they differ in
 * how that thread sleeps. A call starts its operation and waits for the callback's
 * outcome. The callback face is ended by an operation whose callback says stop, because
 * nothing else wakes a thread in hf_client_wait(); the foreign loop has a descriptor for
 * that.
 *
 * Goes wrong: a library that forgets to make its descriptor readable, or to wake the
 * waiting thread, hangs the case, and its time limit reports it.
 */
#include "check.h"
#include "face.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct driver {
    hf_client *client;
    bool foreign;
    int stopfd;
    bool stop; /* callback face: only touched by the driving thread */
    pthread_t thread;
    struct driver *next;
};

static pthread_mutex_t drivers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct driver *drivers;

static void drive_callback(struct driver *d)
{
    while (!d->stop) {
        int rc = hf_client_wait(d->client, HF_FOREVER);

        if (rc == HF_ECLOSED) /* the case has stopped it, and given all leases back */
            return;
        if (rc < 0)
            check_failed(__FILE__, __LINE__, "hf_client_wait gave %s", hf_errname(rc));
    }
}

static void drive_foreign(struct driver *d)
{
    struct pollfd fds[2] = { { .fd = hf_client_fd(d->client), .events = POLLIN },
                             { .fd = d->stopfd, .events = POLLIN } };

    CHECK(fds[0].fd >= 0);
    for (;;) {
        int rc = 0;

        if (poll(fds, 2, -1) < 0)
            continue;
        if (fds[0].revents)
            rc = hf_client_process(d->client);
        if (rc < 0)
            check_failed(__FILE__, __LINE__, "hf_client_process gave %s", hf_errname(rc));
        CHECK(hf_client_fd(d->client) == fds[0].fd);
        if (fds[1].revents)
            return;
    }
}

static void *drive(void *arg)
{
    struct driver *d = arg;

    if (d->foreign)
        drive_foreign(d);
    else
        drive_callback(d);
    return NULL;
}

static int async_open(const char *url, const hf_options *given, hf_client **ret,
                      hf_error *err, bool foreign)
{
    hf_options options = HF_OPTIONS_INIT;
    struct driver *d;
    int rc;

    if (given)
        options = *given;
    options.drive = HF_DRIVE_APP;
    rc = hf_open(url, &options, ret, err);
    if (rc < 0)
        return rc;
    d = calloc(1, sizeof(*d));
    CHECK(d);
    d->client = *ret;
    d->foreign = foreign;
    d->stopfd = eventfd(0, EFD_CLOEXEC);
    CHECK(d->stopfd >= 0);
    pthread_mutex_lock(&drivers_lock);
    d->next = drivers;
    drivers = d;
    pthread_mutex_unlock(&drivers_lock);
    CHECK(pthread_create(&d->thread, NULL, drive, d) == 0);
    return 0;
}

static int callback_open(const char *url, const hf_options *options, hf_client **ret,
                         hf_error *err)
{
    return async_open(url, options, ret, err, false);
}

static int foreign_open(const char *url, const hf_options *options, hf_client **ret,
                        hf_error *err)
{
    return async_open(url, options, ret, err, true);
}

/* NULL: opened past the face. */
static struct driver *driver_of(const hf_client *c)
{
    struct driver *d;

    pthread_mutex_lock(&drivers_lock);
    for (d = drivers; d && d->client != c;)
        d = d->next;
    pthread_mutex_unlock(&drivers_lock);
    return d;
}

static struct driver *driver_take(hf_client *c)
{
    struct driver **at, *d;

    pthread_mutex_lock(&drivers_lock);
    for (at = &drivers; (d = *at) && d->client != c;)
        at = &d->next;
    CHECK(d);
    *at = d->next;
    pthread_mutex_unlock(&drivers_lock);
    return d;
}

static void on_stop(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct driver *d = user;

    (void)rc;
    (void)err;
    if (lease)
        hf_release_start(lease, NULL, NULL, NULL, NULL);
    hf_op_free(op);
    d->stop = true;
}

static void async_close(hf_client *c)
{
    struct driver *d = driver_take(c);
    char name[64];
    hf_op *op;
    int rc;

    if (d->foreign) {
        CHECK(eventfd_write(d->stopfd, 1) == 0);
    } else {
        snprintf(name, sizeof(name), "face/stop/%d/%p", (int)getpid(), (void *)d);
        rc = hf_acquire_start(c, name, 0, NULL, on_stop, d, &op, E());
        CHECK(rc == 0 || rc == HF_ECLOSED);
    }
    pthread_join(d->thread, NULL);
    hf_close(c);
    close(d->stopfd);
    free(d);
}

static void on_done(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    (void)op;
    outcome_set(user, rc, lease, err);
}

/* Waits for a started call and gives its operation back. */
static int outcome_take(struct outcome *o, hf_op *op, hf_lease **ret, hf_error *err)
{
    int rc;

    outcome_wait(o);
    hf_op_free(op);
    rc = o->rc;
    if (rc < 0 && err)
        *err = o->err;
    if (rc >= 0 && ret)
        *ret = o->lease;
    CHECK(rc >= 0 || !o->lease);
    outcome_fini(o);
    return rc;
}

static int async_acquire(hf_client *c, const char *name, int64_t wait_ms,
                         const hf_request *req, hf_lease **ret, hf_error *err)
{
    struct outcome o;
    hf_op *op;
    int rc;

    outcome_init(&o);
    rc = hf_acquire_start(c, name, wait_ms, req, on_done, &o, &op, err);
    return rc < 0 ? rc : outcome_take(&o, op, ret, err);
}

static int async_acquire_all(hf_client *c, const char *const *names, size_t n,
                             int64_t wait_ms, const hf_request *req, hf_lease **ret,
                             hf_error *err)
{
    struct outcome o;
    hf_op *op;
    int rc;

    outcome_init(&o);
    rc = hf_acquire_all_start(c, names, n, wait_ms, req, on_done, &o, &op, err);
    return rc < 0 ? rc : outcome_take(&o, op, ret, err);
}

static int async_release(hf_lease *lease, hf_error *err)
{
    struct outcome o;
    hf_op *op;
    int rc;

    outcome_init(&o);
    rc = hf_release_start(lease, on_done, &o, &op, err);
    return rc < 0 ? rc : outcome_take(&o, op, NULL, err);
}

static int async_release_after(hf_lease *lease, int64_t keep_ms, hf_error *err)
{
    struct outcome o;
    hf_op *op;
    int rc;

    outcome_init(&o);
    rc = hf_release_after_start(lease, keep_ms, on_done, &o, &op, err);
    return rc < 0 ? rc : outcome_take(&o, op, NULL, err);
}

static int async_renew(hf_lease *lease, int64_t ttl_ms, hf_error *err)
{
    struct outcome o;
    hf_op *op;
    int rc;

    outcome_init(&o);
    rc = hf_renew_start(lease, ttl_ms, on_done, &o, &op, err);
    return rc < 0 ? rc : outcome_take(&o, op, NULL, err);
}

static int async_note(hf_lease *lease, const char *note, hf_error *err)
{
    struct outcome o;
    hf_op *op;
    int rc;

    outcome_init(&o);
    rc = hf_note_start(lease, note, on_done, &o, &op, err);
    return rc < 0 ? rc : outcome_take(&o, op, NULL, err);
}

static int async_downgrade(hf_lease *lease, hf_error *err)
{
    struct outcome o;
    hf_op *op;
    int rc;

    outcome_init(&o);
    rc = hf_downgrade_start(lease, on_done, &o, &op, err);
    return rc < 0 ? rc : outcome_take(&o, op, NULL, err);
}

struct view {
    struct outcome out;
    show_list *show;
    void *user;
};

static void on_seen(hf_op *op, int rc, const hf_list *list, const hf_error *err, void *user)
{
    struct view *v = user;

    (void)op;
    if (rc == 0)
        v->show(list, v->user);
    outcome_set(&v->out, rc, NULL, err);
}

static int async_look(hf_client *c, const char *name, show_list *show, void *user,
                      hf_error *err)
{
    struct view v = { .show = show, .user = user };
    hf_op *op;
    int rc;

    if (!driver_of(c))
        return face_blocking.look(c, name, show, user, err);
    outcome_init(&v.out);
    rc = hf_look_start(c, name, on_seen, &v, &op, err);
    return rc < 0 ? rc : outcome_take(&v.out, op, NULL, err);
}

static int async_ls(hf_client *c, const char *prefix, size_t limit, show_list *show,
                    void *user, hf_error *err)
{
    struct view v = { .show = show, .user = user };
    hf_op *op;
    int rc;

    if (!driver_of(c))
        return face_blocking.ls(c, prefix, limit, show, user, err);
    outcome_init(&v.out);
    rc = hf_ls_start(c, prefix, limit, on_seen, &v, &op, err);
    return rc < 0 ? rc : outcome_take(&v.out, op, NULL, err);
}

static int async_state(hf_client *c, const char *name, hf_error *err)
{
    struct outcome o;
    hf_op *op;
    int rc;

    if (!driver_of(c))
        return hf_name_state(c, name, err);
    outcome_init(&o);
    rc = hf_name_state_start(c, name, on_done, &o, &op, err);
    return rc < 0 ? rc : outcome_take(&o, op, NULL, err);
}

static int async_evict(hf_client *c, const char *name, const char *id, uint32_t flags,
                       hf_error *err)
{
    struct outcome o;
    hf_op *op;
    int rc;

    if (!driver_of(c))
        return hf_evict(c, name, id, flags, err);
    outcome_init(&o);
    rc = hf_evict_start(c, name, id, flags, on_done, &o, &op, err);
    return rc < 0 ? rc : outcome_take(&o, op, NULL, err);
}

static void on_pend(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct pend *p = user;

    (void)op;
    p->ended_ms = now_ms();
    outcome_set(&p->out, rc, lease, err);
}

static void async_begin(struct pend *p)
{
    hf_error err = { 0 };
    int rc =
        hf_acquire_start(p->client, p->name, p->wait_ms, &p->req, on_pend, p, &p->op, &err);

    if (rc < 0)
        outcome_set(&p->out, rc, NULL, &err);
}

static void async_join(struct pend *p)
{
    hf_op_free(p->op);
}

const struct face face_callback = {
    .name = "callback",
    .async = true,
    .open = callback_open,
    .close = async_close,
    .acquire = async_acquire,
    .acquire_all = async_acquire_all,
    .release = async_release,
    .release_after = async_release_after,
    .renew = async_renew,
    .note = async_note,
    .downgrade = async_downgrade,
    .look = async_look,
    .ls = async_ls,
    .state = async_state,
    .evict = async_evict,
    .begin = async_begin,
    .join = async_join,
};

const struct face face_foreign = {
    .name = "foreign",
    .async = true,
    .open = foreign_open,
    .close = async_close,
    .acquire = async_acquire,
    .acquire_all = async_acquire_all,
    .release = async_release,
    .release_after = async_release_after,
    .renew = async_renew,
    .note = async_note,
    .downgrade = async_downgrade,
    .look = async_look,
    .ls = async_ls,
    .state = async_state,
    .evict = async_evict,
    .begin = async_begin,
    .join = async_join,
};
