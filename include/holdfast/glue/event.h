/* glue/event.h: drives a client from a libevent base. Header only; compile with
 * libevent_core.
 *
 *     hf_open(url, HF_OPTIONS(.drive = HF_DRIVE_APP), &client, &err);
 *     glue = hf_event_attach(base, client);
 *     ... hf_acquire_start() and the rest of async.h; callbacks run in its loop ...
 *     hf_event_detach(glue);
 *     hf_close(client);
 *
 * Order of the end: detach, then hf_close, then event_base_free. Detach may be called in
 * a holdfast callback, hf_close may not. hf_close runs the callbacks that are still
 * owed, with HF_ECLOSED, in the thread that calls it.
 *
 * An attached client keeps event_base_dispatch() going. The base's loop must not stand
 * still for longer than a third of the ttl: it is what renews.
 * The manual: hf_glue(3), hf_async(3).
 */
#ifndef HOLDFAST_GLUE_EVENT_H
#define HOLDFAST_GLUE_EVENT_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <holdfast/async.h>
#include <stdlib.h>

typedef struct hf_event {
    struct event event;
    hf_client *client;
    int running, detached;
} hf_event;

static inline void hf__event_ready(evutil_socket_t fd, short what, void *user)
{
    hf_event *glue = (hf_event *)user;
    (void)fd;
    (void)what;
    glue->running = 1;
    int rc = hf_client_process(glue->client);
    glue->running = 0;
    if (glue->detached)
        free(glue);
    /* A closed or forked client would keep the descriptor readable: do not spin. */
    else if (rc < 0 && rc != HF_EREENTRANT)
        event_del(&glue->event);
}

/* NULL: out of memory, or libevent refused the descriptor. On the base's thread. */
static inline hf_event *hf_event_attach(struct event_base *base, hf_client *client)
{
    hf_event *glue = (hf_event *)calloc(1, sizeof(*glue));
    if (!glue)
        return NULL;
    glue->client = client;
    if (event_assign(&glue->event, base, hf_client_fd(client), EV_READ | EV_PERSIST,
                     hf__event_ready, glue) < 0 ||
        event_add(&glue->event, NULL) < 0) {
        free(glue);
        return NULL;
    }
    return glue;
}

/* Takes NULL. On the base's thread. */
static inline void hf_event_detach(hf_event *glue)
{
    if (!glue)
        return;
    event_del(&glue->event);
    glue->detached = 1;
    if (!glue->running)
        free(glue);
}

#endif
