/* face_blocking.c: the blocking calls as they are, and what all faces share.
 *
 * A background acquire is a thread in hf_acquire(). Its end is told through its outcome,
 * so that a case can look without joining. Goes wrong only if threads cannot be made.
 */
#include "check.h"
#include "face.h"

#include <stdlib.h>

void outcome_init(struct outcome *o)
{
    *o = (struct outcome){ .rc = 0 };
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
}

void outcome_set(struct outcome *o, int rc, hf_lease *lease, const hf_error *err)
{
    pthread_mutex_lock(&o->lock);
    CHECK(!o->done); /* exactly once */
    o->rc = rc;
    o->lease = lease;
    if (rc < 0 && err)
        o->err = *err;
    o->done = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

void outcome_wait(struct outcome *o)
{
    pthread_mutex_lock(&o->lock);
    while (!o->done)
        pthread_cond_wait(&o->changed, &o->lock);
    pthread_mutex_unlock(&o->lock);
}

bool outcome_done(struct outcome *o)
{
    bool done;

    pthread_mutex_lock(&o->lock);
    done = o->done;
    pthread_mutex_unlock(&o->lock);
    return done;
}

void outcome_fini(struct outcome *o)
{
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
}

static void *pend_thread(void *arg)
{
    struct pend *p = arg;
    hf_lease *lease = NULL;
    hf_error err = { 0 };
    int rc = hf_acquire(p->client, p->name, p->wait_ms, &p->req, &lease, &err);

    p->ended_ms = now_ms();
    outcome_set(&p->out, rc, lease, &err);
    return NULL;
}

static void blocking_begin(struct pend *p)
{
    CHECK(pthread_create(&p->thread, NULL, pend_thread, p) == 0);
}

static void blocking_join(struct pend *p)
{
    pthread_join(p->thread, NULL);
}

static int shown(int rc, hf_list *list, show_list *show, void *user)
{
    if (rc == 0)
        show(list, user);
    hf_list_free(list);
    return rc;
}

static int blocking_look(hf_client *c, const char *name, show_list *show, void *user,
                         hf_error *err)
{
    hf_list *list = NULL;
    int rc = hf_look(c, name, &list, err);

    return shown(rc, list, show, user);
}

static int blocking_ls(hf_client *c, const char *prefix, size_t limit, show_list *show,
                       void *user, hf_error *err)
{
    hf_list *list = NULL;
    int rc = hf_ls(c, prefix, limit, &list, err);

    return shown(rc, list, show, user);
}

const struct face face_blocking = {
    .name = "blocking",
    .open = hf_open,
    .close = hf_close,
    .acquire = hf_acquire,
    .acquire_all = hf_acquire_all,
    .release = hf_release,
    .release_after = hf_release_after,
    .renew = hf_lease_renew,
    .note = hf_lease_note,
    .downgrade = hf_lease_downgrade,
    .look = blocking_look,
    .ls = blocking_ls,
    .state = hf_name_state,
    .evict = hf_evict,
    .begin = blocking_begin,
    .join = blocking_join,
};
