/* async.h: the same calls for programs with an event loop: each call that waits for the store
 * has a form that starts it and tells the end (but not those of tool.h).
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
 * A callback must return: an exception or a longjmp out of one ends the program, or the client
 * takes it for running for ever and cannot be closed.
 */
#ifndef HOLDFAST_ASYNC_H
#define HOLDFAST_ASYNC_H

#include <holdfast/holdfast.h>

#ifdef __cplusplus
extern "C" {
#endif

/* lease: of an acquire; else NULL. */
typedef void hf_done(hf_op *, int rc, hf_lease *lease, const hf_error *, void *user);
/* The list is valid during the callback, and belongs to the library. */
typedef void hf_seen(hf_op *, int rc, const hf_list *, const hf_error *, void *user);

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

/* As hf_release_after: HF_ENOTSUP, HF_EINVAL, HF_EBUSY: the handle is still yours; else as
 * hf_release_start. */
int hf_release_after_start(hf_lease *, int64_t keep_ms, hf_done *, void *user, hf_op **ret,
                           hf_error *);

/* As hf_lease_renew, hf_lease_note, hf_lease_downgrade. The lease may be released before the
 * end: then it is HF_ELOST, or what the store answered first. */
int hf_renew_start(hf_lease *, int64_t ttl_ms, hf_done *, void *user, hf_op **ret, hf_error *);
int hf_note_start(hf_lease *, const char *note, hf_done *, void *user, hf_op **ret,
                  hf_error *);
int hf_downgrade_start(hf_lease *, hf_done *, void *user, hf_op **ret, hf_error *);

/* As hf_look, hf_ls, hf_evict; hf_name_state: rc is the state. */
int hf_look_start(hf_client *, const char *name, hf_seen *, void *user, hf_op **ret,
                  hf_error *);
int hf_ls_start(hf_client *, const char *prefix, size_t limit, hf_seen *, void *user,
                hf_op **ret, hf_error *);
int hf_evict_start(hf_client *, const char *name, const char *ticket_id, uint32_t flags,
                   hf_done *, void *user, hf_op **ret, hf_error *);
int hf_name_state_start(hf_client *, const char *name, hf_done *, void *user, hf_op **ret,
                        hf_error *);

/* Where an acquire stands in its queue (several names: in that which it waits for now; or a
 * recipe that waits in a line): 1 is
 * the head; 0 is not known: the store has not answered yet, or the wait is over. As the store
 * told it last, age_ms ago (-1: not known); others may have left since. Asking causes no
 * request; hf_async(3) says when each store tells it. HF_ENOTSUP where lines cannot be looked
 * at. Both may be NULL. */
int hf_op_position(const hf_op *, uint32_t *position, int64_t *age_ms);

/* As hf_connect. */
int hf_connect_start(hf_client *, int64_t wait_ms, hf_done *, void *user, hf_op **ret,
                     hf_error *);

/* Ends an acquire, a look or a wait for the store. Its callback still runs once: with HF_ECANCELED, or with the
 * grant or answer that came first. What gives back or changes something goes on to its end. */
void hf_op_cancel(hf_op *);

/* At any time, also in its callback. Before completion: the callback never runs, a grant is
 * released, and a change may or may not have been made. While it runs in another thread: takes
 * effect when it returns. */
void hf_op_free(hf_op *);

/* Follows a line: the callback gets its state now and after each change (changes close
 * together may be told once), until hf_op_free; rc < 0 is its last call. */
int hf_watch_start(hf_client *, const char *name, hf_seen *, void *user, hf_op **ret,
                   hf_error *);

int hf_client_fd(hf_client *);      /* never changes; HF_ESYS: errno says why */
int hf_client_process(hf_client *); /* never blocks; > 0: did something; HF_EREENTRANT ... */

/* Waits until something was done or the time is over, and processes: for programs without a
 * loop. > 0: did something; 0: time over; HF_ECLOSED: closed, or stopped and nothing is left
 * (no lease, no operation, no callback) ... */
int hf_client_wait(hf_client *, int64_t wait_ms);

#ifdef __cplusplus
}
#endif
#endif
