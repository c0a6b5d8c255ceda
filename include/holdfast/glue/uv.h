/* glue/uv.h: drives a client from a libuv loop. Header only; compile with libuv.
 *
 *     hf_open(url, HF_OPTIONS(.drive = HF_DRIVE_APP), &client, &err);
 *     hf_uv_attach(&glue, loop, client);
 *     ... hf_acquire_start() and the rest of async.h; callbacks run in the loop ...
 *     hf_uv_detach(&glue, NULL);
 *     hf_close(client);
 *
 * Order of the end: detach, then hf_close. hf_close may follow at once (libuv lets go of
 * the descriptor inside detach), but not in a holdfast callback. The struct is libuv's
 * until `closed` was called, one turn of the loop later. hf_close runs the callbacks
 * that are still owed, with HF_ECLOSED, in the thread that calls it.
 *
 * All calls on the loop's thread. An attached client keeps uv_run() going; if it should
 * not, uv_unref((uv_handle_t *)&glue.poll). The loop must not stand still for longer
 * than a third of the ttl: it is what renews.
 * The manual: hf_glue(3), hf_async(3).
 */
#ifndef HOLDFAST_GLUE_UV_H
#define HOLDFAST_GLUE_UV_H

#include <holdfast/async.h>
#include <uv.h>

typedef struct hf_uv {
    uv_poll_t poll;
    hf_client *client;
    void (*closed)(struct hf_uv *);
} hf_uv;

static inline void hf__uv_ready(uv_poll_t *poll, int status, int events)
{
    hf_uv *glue = (hf_uv *)poll->data;
    int rc = hf_client_process(glue->client);
    (void)status;
    (void)events;
    /* A closed or forked client would keep the descriptor readable: do not spin. */
    if (rc < 0 && rc != HF_EREENTRANT && !uv_is_closing((uv_handle_t *)poll))
        uv_poll_stop(poll);
}

/* 0, or libuv's own negative code (uv_strerror). */
static inline int hf_uv_attach(hf_uv *glue, uv_loop_t *loop, hf_client *client)
{
    int fd = hf_client_fd(client);
    int rc = fd < 0 ? UV_EBADF : uv_poll_init(loop, &glue->poll, fd);
    if (rc < 0)
        return rc;
    glue->client = client;
    glue->closed = NULL;
    glue->poll.data = glue;
    return uv_poll_start(&glue->poll, UV_READABLE, hf__uv_ready);
}

static inline void hf__uv_closed(uv_handle_t *handle)
{
    hf_uv *glue = (hf_uv *)handle->data;
    if (glue->closed)
        glue->closed(glue);
}

/* `closed` may be NULL, or free the struct. */
static inline void hf_uv_detach(hf_uv *glue, void (*closed)(hf_uv *))
{
    glue->closed = closed;
    uv_close((uv_handle_t *)&glue->poll, hf__uv_closed);
}

#endif
