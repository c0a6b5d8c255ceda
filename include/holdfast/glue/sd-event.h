/* glue/sd-event.h: drives a client from an sd-event loop. Header only; compile with
 * libsystemd.
 *
 *     hf_open(url, HF_OPTIONS(.drive = HF_DRIVE_APP), &client, &err);
 *     hf_sd_event_attach(event, client, &source);
 *     ... hf_acquire_start() and the rest of async.h; callbacks run in the loop ...
 *     source = hf_sd_event_detach(source);
 *     hf_close(client);
 *
 * Order of the end: detach, then hf_close: sd-event wants the descriptor open while the
 * source exists. Detach may be called in a holdfast callback, hf_close may not. hf_close
 * runs the callbacks that are still owed, with HF_ECLOSED, in the thread that calls it.
 *
 * The source has default priority; sd_event_source_set_priority() changes it. The loop
 * must not stand still for longer than a third of the ttl: it is what renews.
 * The manual: hf_glue(3), hf_async(3).
 */
#ifndef HOLDFAST_GLUE_SD_EVENT_H
#define HOLDFAST_GLUE_SD_EVENT_H

#include <errno.h>
#include <holdfast/async.h>
#include <sys/epoll.h>
#include <systemd/sd-event.h>

static inline int hf__sd_event_ready(sd_event_source *source, int fd, uint32_t revents,
                                    void *client)
{
    int rc = hf_client_process((hf_client *)client);
    (void)source;
    (void)fd;
    (void)revents;
    /* A negative answer makes sd-event switch the source off: right for a closed or
     * forked client, whose descriptor would stay readable. */
    return rc < 0 && rc != HF_EREENTRANT ? -EIO : 0;
}

/* 0 or more with *ret, or a negative errno of sd_event_add_io. */
static inline int hf_sd_event_attach(sd_event *event, hf_client *client,
                                     sd_event_source **ret)
{
    return sd_event_add_io(event, ret, hf_client_fd(client), EPOLLIN, hf__sd_event_ready,
                           client);
}

/* Takes NULL, returns NULL. */
static inline sd_event_source *hf_sd_event_detach(sd_event_source *source)
{
    return sd_event_source_disable_unref(source);
}

#endif
