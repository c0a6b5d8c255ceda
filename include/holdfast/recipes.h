/* recipes.h: what people build from locks: counters and ids, work that is done once, limits,
 * elections, latches, barriers. The same on each store that has the capability.
 *
 *     int64_t n;
 *     if (hf_count(c, "invoices", 1, &n, &e) == 0) ...     a number that nobody else gets
 *
 *     if (hf_once(c, "schema-7", 0, HF_FOREVER, NULL, migrate, db, &ret, &e) >= 0) ...
 *
 *     if (hf_rate(c, "mail", 10, 60000, HF_FOREVER, NULL, &e) == 0) send_mail();
 *
 * What they are made of. Beside the line of a name (holdfast.h) a store with HF_CAP_CELL keeps
 * one small durable record of that name, its cell. A recipe uses the line, the cell, or both:
 *
 *     recipe          line            cell      needs
 *     count, ids      -               number    HF_CAP_CELL
 *     once            exclusive       mark      HF_CAP_CELL; marks that expire: _CELL_EXPIRY
 *     rate            permits of N    -         HF_CAP_PERMITS, HF_CAP_KEEP
 *     election        exclusive       -         HF_CAP_LINE
 *     latch           -               number    HF_CAP_CELL
 *     barrier         permits of N    round     HF_CAP_PERMITS, HF_CAP_CELL, HF_CAP_LINE
 *
 * What the store cannot do is HF_ENOTSUP, and nothing has changed. The line is the same that
 * hf_acquire uses: a lock of that name excludes an election of that name. A name whose cell
 * belongs to another recipe, or whose line is of another kind or capacity, is HF_EMISMATCH,
 * and nothing has changed. So give each use a name of its own.
 *
 * A cell lasts as long as the store keeps its memory, which docs/guarantees.md says per
 * store: on local: until the machine is booted again. Cells are small; they stay until
 * hf_once_forget or hf_latch_clear, or expire as a mark can; counters and barriers stay.
 *
 * What all calls have in common
 *
 *   Errors are those of hf_acquire and hf_look; only what is special is named below. A failed
 *   call leaves nothing in the line. HF_EUNKNOWN: the request was sent and no answer came, so
 *   it may or may not have been done; HF_EUNREACHABLE: it was not sent, or asked for nothing.
 *   wait_ms, hf_request and cancel tokens are those of hf_acquire: of a request, ttl, note,
 *   owner, flags and cancel count; a mode, permits or capacity of its own is HF_EINVAL.
 *   Each call that asks the store has a started form (async.h: the callback runs once, in
 *   process(), wait() or hf_close(); hf_op_cancel ends what waits; hf_op_free at any time).
 *   Its numbers are read with hf_op_number(), in the callback or after it. hf_client_stop and
 *   hf_close end what waits with HF_ECLOSED.
 */
#ifndef HOLDFAST_RECIPES_H
#define HOLDFAST_RECIPES_H

#include <holdfast/async.h>
#include <holdfast/holdfast.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number that a started operation has found: of hf_count_start, hf_ids_next_start,
 * hf_latch_down_start and hf_latch_left_start what `ret` is in the blocking form. 0 before its
 * end, after a failure, and of all others. */
int64_t hf_op_number(const hf_op *);

/* ---- counters ----------------------------------------------------------------------- */

/* Adds `by` (1 or more) to the counter of that name and gives the sum; the first is `by`. In
 * the order in which the store does them the numbers only grow, and no two calls get the same,
 * as far as the store keeps its memory. by 0 reads it without changing it: 0 if it was never
 * used.
 * HF_EUNKNOWN: no answer came. The number may have been used up: a gap, never a duplicate. So
 * counting on is safe, but what is counted may then be one more than the calls that succeeded.
 * HF_EFULL: the sum would be more than INT64_MAX; nothing has changed. */
int hf_count(hf_client *, const char *name, int64_t by, int64_t *ret, hf_error *);
int hf_count_start(hf_client *, const char *name, int64_t by, hf_done *, void *user,
                   hf_op **ret, hf_error *);

/* Ids by the block: one request to the store reserves `block` (1 to 2^31) of them, which are
 * then handed out without asking it. Each is handed out once among all who use that counter,
 * hf_count included. They grow within one hf_ids; those of two interleave block by block. What
 * is left of a block when the process ends, and a block whose answer never came, is a gap.
 *     hf_ids *ids;
 *     hf_ids_open(c, "orders", 1000, &ids, &e);
 *     hf_ids_next(ids, &id, &e);
 * Any thread may call next. hf_ids_open asks the store for nothing. An hf_ids is given back by
 * hf_ids_close (takes NULL), before or after hf_close; ids that are reserved can be handed out
 * after hf_close, too. Operations of hf_ids_next_start that are not done end with HF_ECLOSED.
 * In a forked child it is HF_EFORKED: the parent hands those ids out. */
typedef struct hf_ids hf_ids;
int hf_ids_open(hf_client *, const char *name, int64_t block, hf_ids **ret, hf_error *);
int hf_ids_next(hf_ids *, int64_t *ret, hf_error *);
int hf_ids_next_start(hf_ids *, hf_done *, void *user, hf_op **ret, hf_error *);
void hf_ids_close(hf_ids *);

/* ---- once --------------------------------------------------------------------------- */

/* Work that is to be done one time among all instances. The promise: at most one at a time
 * (as any lock, G1), and never again once its success is recorded. "Exactly one time" nobody
 * can promise: a process may die when the work is done and its mark is not yet written, and
 * then another does it again. So the work should bear to be repeated, or use the fence.
 *
 * hf_once_begin returns
 *   0  with a lease: it is yours to do. Do it, then hf_once_done(lease). Or hf_release(lease):
 *      it failed, another may try. If the process dies, another may try.
 *   1  it is done already. No lease. Those who wait get this as soon as the mark is written.
 *   HF_EBUSY, HF_ETIMEDOUT  somebody else is at it.
 * keep_ms: how long the mark is to last, by the store's clock, from hf_once_done on; 0: until
 * hf_once_forget. Known before the work begins: HF_ENOTSUP without HF_CAP_CELL_EXPIRY, or
 * beyond what the store can do. */
int hf_once_begin(hf_client *, const char *name, int64_t keep_ms, int64_t wait_ms,
                  const hf_request *, hf_lease **ret, hf_error *);
int hf_once_begin_start(hf_client *, const char *name, int64_t keep_ms, int64_t wait_ms,
                        const hf_request *, hf_done *, void *user, hf_op **ret, hf_error *);

/* Writes the mark, then releases the lease, which it consumes whatever it returns (but for
 * HF_EINVAL, the lease is not of hf_once_begin, and HF_EREENTRANT). 0: recorded. HF_ELOST:
 * the lock had been lost, or another's mark is there: nothing is overwritten. (A mark that
 * another wrote and somebody forgot since cannot be noticed.) HF_EUNKNOWN: the store does not
 * answer; it may have been recorded. */
int hf_once_done(hf_lease *, hf_error *);
int hf_once_done_start(hf_lease *, hf_done *, void *user, hf_op **ret, hf_error *);

/* Begin, call, done. 1: it is done already, and the body was not called. 0: it was called, and
 * *ret_body is what it returned: 0 is recorded as done, anything else is not, and another may
 * try. Negative: hf_once_begin failed, or the body returned 0 and hf_once_done failed (then
 * *ret_body is set, too). The body returns, as that of hf_with. */
int hf_once(hf_client *, const char *name, int64_t keep_ms, int64_t wait_ms,
            const hf_request *, int (*body)(hf_lease *, void *user), void *user, int *ret_body,
            hf_error *);

/* Removes the mark: the work may be done again. 1: there was one; 0: there was none. Somebody
 * who is at it goes on, and may record it. */
int hf_once_forget(hf_client *, const char *name, hf_error *);
int hf_once_forget_start(hf_client *, const char *name, hf_done *, void *user, hf_op **ret,
                         hf_error *);

/* ---- limits ------------------------------------------------------------------------- */

/* Waits until one more start is allowed: at most n starts in any window of per_ms, by the
 * store's clock, first come first served. 0: start now. HF_EBUSY, HF_ETIMEDOUT: not yet.
 * A start counts from the moment when the store notes it, just before this call returns.
 * A store may let a window last longer (etcd: 2 s at least); then fewer starts are allowed.
 * Negative: do not start. If that is HF_EUNKNOWN, HF_ELOST or HF_ECLOSED, a start may have been
 * used up; never is one more than n allowed, unless somebody breaks (hf_evict) a start.
 * Each start stands in the line until its per_ms are over: all who use the name use the same
 * n (HF_EMISMATCH), and n is what it costs: up to some hundred is cheap everywhere; from some
 * thousand on local: and the servers feel each start (docs/guarantees.md). A finer limit of
 * the same slope is cheaper: 100 per second instead of 6,000 per minute. */
int hf_rate(hf_client *, const char *name, uint32_t n, int64_t per_ms, int64_t wait_ms,
            const hf_request *, hf_error *);
int hf_rate_start(hf_client *, const char *name, uint32_t n, int64_t per_ms, int64_t wait_ms,
                  const hf_request *, hf_done *, void *user, hf_op **ret, hf_error *);

/* ---- election ----------------------------------------------------------------------- */

/* Stands for election and waits until elected; the lease is the office: it may be lost
 * (hf_lease_check, hf_lease_on_change), and its fence is the number of the term. `value` (up
 * to 1,024 bytes of UTF-8; NULL: "") is what others see of the leader, its address, say; it is
 * the ticket's note, so the request has none. Those who wait are elected in their order. */
int hf_campaign(hf_client *, const char *name, const char *value, int64_t wait_ms,
                const hf_request *, hf_lease **ret, hf_error *);
int hf_campaign_start(hf_client *, const char *name, const char *value, int64_t wait_ms,
                      const hf_request *, hf_done *, void *user, hf_op **ret, hf_error *);

/* The leader shows another value: hf_lease_note; started: hf_note_start. */
int hf_proclaim(hf_lease *, const char *value, hf_error *);
/* Gives the office up: hf_release; started: hf_release_start. Consumes the lease. */
int hf_resign(hf_lease *, hf_error *);

typedef struct hf_leader_info { /* the caller's; layout is frozen */
    uint64_t fence;             /* 0: nobody leads */
    int64_t pid;
    int64_t age_ms;             /* since it was elected; -1: not known */
    char host[256];
    char value[1025];
} hf_leader_info;
#define HF_LEADER_NONE { 0, 0, 0, "", "" }

/* Who leads now. HF_ENOENT: nobody. A snapshot: it may be over before you read it. */
int hf_leader(hf_client *, const char *name, hf_leader_info *ret, hf_error *);

/* info: valid during the callback; NULL if nobody leads. */
typedef void hf_led(hf_op *, int rc, const hf_leader_info *, const hf_error *, void *user);
int hf_leader_start(hf_client *, const char *name, hf_led *, void *user, hf_op **ret,
                    hf_error *);

/* Waits until the leader or its value is another than `known` (the fence and value of it
 * count; fence 0: nobody), and writes who leads now, perhaps nobody: ret->fence is 0 then.
 * Changes that follow each other closely may be told as one.
 *     hf_leader_info now = HF_LEADER_NONE;
 *     while (hf_observe(c, "db", &now, HF_FOREVER, NULL, &now, &e) == 0) ...
 * HF_ETIMEDOUT, and with wait_ms 0 HF_EBUSY: no change. */
int hf_observe(hf_client *, const char *name, const hf_leader_info *known, int64_t wait_ms,
               hf_cancel *, hf_leader_info *ret, hf_error *);

/* Tells who leads now, perhaps nobody, and then each change, until hf_op_free; rc < 0 is the
 * last call. While the store is unreachable nothing is told. */
int hf_observe_start(hf_client *, const char *name, hf_led *, void *user, hf_op **ret,
                     hf_error *);

/* ---- latch -------------------------------------------------------------------------- */

/* Opens when n events have been counted, and stays open. It counts events, not parties: that
 * a process died which was to count one is not seen, so use a time limit; a barrier sees it.
 *
 * hf_latch_set: n is 0 (open at once) to INT64_MAX. 0: set. 1: it had been set to the same n
 * before, and is left as it is, however much of it is counted; so all parties may set it.
 * HF_EMISMATCH: it had been set to another n. */
int hf_latch_set(hf_client *, const char *name, int64_t n, hf_error *);
int hf_latch_set_start(hf_client *, const char *name, int64_t n, hf_done *, void *user,
                       hf_op **ret, hf_error *);

/* Counts `by` (1 or more) events; *left is what is left then, never below 0. HF_ENOENT: it is
 * not set. HF_EUNKNOWN: no answer came, it may or may not have been counted. */
int hf_latch_down(hf_client *, const char *name, int64_t by, int64_t *left, hf_error *);
int hf_latch_down_start(hf_client *, const char *name, int64_t by, hf_done *, void *user,
                        hf_op **ret, hf_error *);

/* Waits until it is open; one that is not set yet is waited for, too. HF_EBUSY (wait_ms 0),
 * HF_ETIMEDOUT. */
int hf_latch_wait(hf_client *, const char *name, int64_t wait_ms, hf_cancel *, hf_error *);
int hf_latch_wait_start(hf_client *, const char *name, int64_t wait_ms, hf_cancel *, hf_done *,
                        void *user, hf_op **ret, hf_error *);

/* How many events are still to be counted; 0: open. HF_ENOENT: it is not set. */
int hf_latch_left(hf_client *, const char *name, int64_t *ret, hf_error *);
int hf_latch_left_start(hf_client *, const char *name, hf_done *, void *user, hf_op **ret,
                        hf_error *);

/* Removes it, open or not, so that the name can be used anew. 1: there was one; 0: there was
 * none. Whoever waits for it waits for the next one of that name. */
int hf_latch_clear(hf_client *, const char *name, hf_error *);
int hf_latch_clear_start(hf_client *, const char *name, hf_done *, void *user, hf_op **ret,
                         hf_error *);

/* ---- barrier ------------------------------------------------------------------------ */

/* Waits until `parties` (1 to 1,024) callers have come; then all of them go on: 0. After that
 * the name is ready for the next round; who comes early to that waits in it.
 * HF_EPARTY: another party died, was cut off, or gave up before the barrier opened; the round
 * is over for all who had come, nobody of them has passed, and those who come now begin a new
 * one. HF_ETIMEDOUT, HF_EBUSY (wait_ms 0 and not the last to come), HF_ECANCELED: this caller
 * gave up, and does not pass. The others get HF_EPARTY; but if it gave up at the moment when
 * it came, before it had heard so, they may have counted it and passed. HF_ELOST: this caller
 * was cut off; HF_EUNKNOWN, HF_EUNREACHABLE, HF_ECLOSED (or hf_op_free): the others may have
 * passed or not.
 * A party that dies after the barrier opened is not missed, nor is one that no other had seen
 * yet. Others notice a death as soon as the store does: at once on local:, else after the ttl
 * of the request. All name the same number of parties (HF_EMISMATCH).
 * Each party follows the line: a round of n parties costs the store about n * n / 2 small
 * reads. */
int hf_barrier(hf_client *, const char *name, uint32_t parties, int64_t wait_ms,
               const hf_request *, hf_error *);
int hf_barrier_start(hf_client *, const char *name, uint32_t parties, int64_t wait_ms,
                     const hf_request *, hf_done *, void *user, hf_op **ret, hf_error *);

#ifdef __cplusplus
}
#endif
#endif
