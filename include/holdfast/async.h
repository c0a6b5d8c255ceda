/* async.h: the same calls for programs with an event loop.
 *
 * A client has one descriptor, the same from hf_open to hf_close: poll it for input, level-
 * triggered, and call hf_client_process() when it is readable. Timers are inside. Header-only
 * glue for libuv, libevent, GLib and sd-event is in <holdfast/glue/>. With HF_DRIVE_APP
 * no thread is made and RENEWAL IS YOURS: process() must be called in time.
 *
 * The callback of an operation runs exactly once: in process(), wait(), or in the thread in
 * hf_close (HF_ECLOSED); none after hf_close returned. That of a watch runs at each change,
 * in the same places, until one with rc < 0, which is the last. The lease passed to a
 * callback belongs to it. What callbacks start, releases included, may be sent only when they
 * have returned, all of it in one piece: do not linger in one.
 */
#ifndef HOLDFAST_ASYNC_H
#define HOLDFAST_ASYNC_H

#include <holdfast/holdfast.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void hf_done(hf_op *, int rc, hf_lease *lease, const hf_error *, void *user);

/* As hf_acquire. The op is yours: hf_op_free it, in the callback or later. */
int hf_acquire_start(hf_client *, const char *name, int64_t wait_ms, const hf_request *,
                     hf_done *, void *user, hf_op **ret, hf_error *);
int hf_acquire_all_start(hf_client *, const char *const *names, size_t n, int64_t wait_ms,
                         const hf_request *, hf_done *, void *user, hf_op **ret, hf_error *);

/* As hf_release: consumes the lease whatever it returns (unless HF_EINVAL). done and ret may
 * be NULL: then nobody is told. HF_ECLOSED while the client closes: released, no callback.
 * It does not wait for an on_change callback that runs in another thread: if that matters,
 * end the callback first (hf_lease_on_change with NULL). */
int hf_release_start(hf_lease *, hf_done *, void *user, hf_op **ret, hf_error *);

/* As hf_connect. */
int hf_connect_start(hf_client *, int64_t wait_ms, hf_done *, void *user, hf_op **ret, hf_error *);

/* Its callback still runs once: with HF_ECANCELED, or with the grant that came first. */
void hf_op_cancel(hf_op *);

/* At any time, also in its callback. Before completion: the callback never runs and a grant
 * is released. While it runs in another thread: takes effect when it returns. */
void hf_op_free(hf_op *);

/* Follows a line: the callback gets its state now and after each change (changes close
 * together may be told once), until hf_op_free; rc < 0 is its last call. The list is valid
 * during the callback. */
typedef void hf_seen(hf_op *, int rc, const hf_list *, const hf_error *, void *user);
int hf_watch_start(hf_client *, const char *name, hf_seen *, void *user, hf_op **ret,
                   hf_error *);

int hf_client_fd(hf_client *);      /* never changes */
int hf_client_process(hf_client *); /* never blocks; > 0: did something; HF_EREENTRANT ... */

/* Waits until something was done or the time is over, and processes: for programs without a
 * loop. > 0: did something; 0: time over; HF_ECLOSED: closed, or stopped and nothing is left
 * (no lease, no operation, no callback) ... */
int hf_client_wait(hf_client *, int64_t wait_ms);

#ifdef __cplusplus
}
#endif
#endif
