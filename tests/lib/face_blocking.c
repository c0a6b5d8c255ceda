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

const struct face face_blocking = {
    .name = "blocking",
    .open = hf_open,
    .close = hf_close,
    .acquire = hf_acquire,
    .acquire_all = hf_acquire_all,
    .release = hf_release,
    .begin = blocking_begin,
    .join = blocking_join,
};
