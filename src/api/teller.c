/* teller.c: the thread that runs the callbacks of hf_lease_on_change.
 *
 * A callback may take long: it writes a log, it waits for a mutex of the application. So it
 * does not run on the thread that listens and renews (keeper.c) but on one of its own,
 * which never leads, and for which only hf_close waits, and a call that releases that very
 * lease (lease.c).
 *
 * Which thread runs a callback can be told beforehand: this one, with HF_DRIVE_PROMPT, and
 * with HF_DRIVE_CALLER as long as nobody has asked for hf_client_fd(). In the other cases
 * the application drives by itself, and changes of leases are told in hf_client_process()
 * and hf_client_wait(), like the ends of operations (async.c).
 *
 * It is started with the first callback that is registered, so that a lack of threads is an
 * error of the registration and not found out when there is a loss to tell; and it stays
 * until hf_close, which waits for it: it first tells everything that there is to tell. */
#include "api/api.h"

bool hf__tells(const hf_client *c)
{
    return c->drive == HF_DRIVE_PROMPT || (c->drive == HF_DRIVE_CALLER && c->app_fd < 0);
}

static _Thread_local bool on_teller;

bool hf__on_teller(void)
{
    return on_teller;
}

static void *tell(void *arg)
{
    hf_client *c = arg;

    on_teller = true;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        if (hf__tells(c) && hf__run_changes(c) > 0) {
            if (hf__drained(c)) /* a callback gave back the last lease */
                hf__news(c);
            continue;
        }
        if (c->teller_stop)
            break;
        pthread_cond_wait(&c->teller_news, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

int hf__teller_start(hf_client *c, hf_error *err)
{
    int rc = c->teller_runs ? 0 : hf__thread_start(&c->teller, tell, c, err);

    c->teller_runs = rc == 0;
    return rc;
}

void hf__teller_end(hf_client *c)
{
    if (!c->teller_runs)
        return;
    c->teller_stop = true;
    pthread_cond_signal(&c->teller_news);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->teller, NULL);
    pthread_mutex_lock(&c->lock);
    c->teller_runs = false;
}
