/* stop.c: the first half of an end: from now on nobody waits and nothing new begins, while
 * what is held stays held. hf_close is the second half.
 *
 * hf_client_stop may be called in a signal handler, so all it does is to set a flag and to
 * wake the leader. The rest is done under the lock by the first thread that gets there:
 * every call checks the flag on entry (hf__stop_if_asked), and so does a leader after each
 * sleep. Nothing can be missed: the flag is set before the wake, so the woken thread sees
 * it; and if no thread sleeps, the next sleep ends at once, and a call that enters before
 * that sees the flag too. With nobody inside there is nobody to be ended but started
 * operations, whose callbacks run in the next hf_client_process() or hf_client_wait().
 *
 * The core refuses what is new (client.stopped). What waits is ended here: acquires, looks,
 * lists, evictions, watches. Releases and changes of leases go on: they concern what is
 * held. */
#include "api/api.h"

#include <errno.h>
#include <sched.h>

int hf_client_stop(hf_client *c)
{
    int saved = errno;

    if (!c)
        return HF_EINVAL;
    if (*c->alive == 0)
        return HF_EFORKED; /* the loop is the parent's, too */
    atomic_fetch_add(&c->stoppers, 1);
    atomic_store(&c->stop, true);
    if (!atomic_load(&c->ended))
        hf__loop_poke(&c->loop);
    atomic_fetch_sub(&c->stoppers, 1);
    errno = saved;
    return 0;
}

/* Before the loop is closed. A caller that comes after that sees `ended`, one that came
 * before is counted; none of them waits for anything. */
void hf__stop_no_more(hf_client *c)
{
    atomic_store(&c->ended, true);
    while (atomic_load(&c->stoppers) > 0)
        sched_yield();
}

static bool goes_on(const struct hf_op *op)
{
    return op->kind == OP_RELEASE || op->kind == OP_AMEND || op->kind == OP_RENEW ||
           op->kind == OP_CHANGE || op->goes_on;
}

void hf__stop_if_asked(hf_client *c)
{
    struct list all, *n;
    struct hf_op *op;

    if (!atomic_load(&c->stop) || c->core.stopped || c->closing || c->broken)
        return;
    hf__client_stop(&c->core);
    list_init(&all);
    list_splice(&all, &c->ops);
    while ((n = list_pop(&all)) != NULL) {
        op = container_of(n, struct hf_op, node);
        if (goes_on(op))
            list_push(&c->ops, n);
        else
            hf__cancel(op, hf__op_stopped(op));
    }
    list_for_safe(r, &c->ready) { /* a watch with news that nobody has seen yet */
        op = container_of(r, struct hf_op, node);
        if (!op->done)
            hf__cancel(op, hf__op_stopped(op));
    }
    hf__news(c); /* threads that wait for callbacks check whether any will come */
    /* and threads that wait for a loss check whether it can come */
    list_for(w, &c->waiters)
        pthread_cond_signal(&container_of(w, struct waiter, node)->cond);
}

bool hf__drained(const hf_client *c)
{
    return c->core.stopped && list_empty(&c->ops) && list_empty(&c->ready) &&
           list_empty(&c->core.holds);
}
