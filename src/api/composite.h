/* composite.h: an operation that is made of others: a recipe (src/recipes).
 *
 * It has one resumable function, `step`, and parts: operations of the core that lie in its
 * memory. Whenever a part is done, or a part that follows something has news, the step is
 * called: it reads where it is (`state`), looks which of its parts are done, starts others,
 * or ends the whole (hf__composite_end). A step that finds nothing new returns.
 *
 * Rules
 *  1 Steps run under the client's lock, never inside an event of the seam: a part that ends
 *    only queues its whole, and hf__run calls the steps when the core has called its verbs.
 *    Every thread that may have ended a part comes to hf__run before it gives up the lock.
 *  2 A part that could not be started is done, with its error: a step has one way to go on.
 *  3 The whole is done once, whoever ends it: its step, hf_op_free, hf_client_stop,
 * hf_close. In that moment all parts are cancelled and a lease that it has is released
 *    (hf__composite_ended); so a step need not undo anything before it ends.
 *  4 Cancel tokens, hf_op_cancel and its time limit do not end it but set `give_up` and
 * call the step, if it `unwinds`; else they end it as they end an acquire. An operation
 * that changes something and does not wait has `waits` false and cannot be cancelled. */
#ifndef HF_API_COMPOSITE_H
#define HF_API_COMPOSITE_H

#include "api/api.h"

struct composite {
    struct hf_op op; /* OP_COMPOSITE; first */
    void (*step)(struct composite *);
    int state;
    void (*ended)(struct composite *); /* it is done, by whomever; may be NULL */
    bool waits, timed, unwinds;
    int give_up;                /* HF_ECANCELED, HF_ETIMEDOUT, HF_EBUSY; 0 */
    struct list resume;         /* client.resumed */
    struct list parts;          /* hf_op.node: those that are not done */
    const struct hf_op *awaits; /* the part for which it waits just now; or NULL */
    struct timer timer;
    struct hf_lease *lease; /* its own; released with it unless it goes to op.lease */
    hf_cancel *cancel;      /* of hf__composite_limit; NULL: none */
    hf_error err;           /* of the part that failed last */
    int64_t number;         /* hf_op_number */
    size_t name_len;
    char name[HF_NAME_MAX + 1];
};

/* A request about the cell of that name, or a follow of it. */
struct cell_part {
    struct hf_op op;
    struct ask ask;
    struct cell cell;
};

/* A line that is looked at or followed: op.list is its newest state. */
struct line_part {
    struct hf_op op;
    struct ask ask;
};

/* Under the lock. `size` bytes that begin with a composite; NULL: err says why. The name is
 * checked. */
struct composite *hf__composite_new(hf_client *, size_t size,
                                    void (*step)(struct composite *), const char *name,
                                    const struct listener *, hf_error *);
/* It waits, for so long; before hf__composite_start. timed: its own timer ends it; else one
 * of its parts has that limit (hf__composite_rest_ms). */
void hf__composite_limit(struct composite *, int64_t wait_ms, bool timed, hf_cancel *);
/* Calls its step. Negative: it was not started, and is freed. */
int hf__composite_start(struct composite *, hf_error *);
/* Without a listener: waits for it, takes what it has found, frees it. */
int hf__composite_take(struct composite *, int64_t *number, hf_lease **, hf_error *);
/* The end, with the text of the part that failed with rc, or that of rc itself. */
void hf__composite_end(struct composite *, int rc);
void hf__composite_fail(struct composite *, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int64_t hf__composite_rest_ms(const struct composite *); /* of its time limit */

void hf__composite_resume(struct composite *); /* its step is to be called */
/* Again in so many ms, or at its own limit if that comes first. */
void hf__composite_wake_in(struct composite *, int64_t ms);

/* Each starts a part. A part that is done may be started once more. */
void hf__part_cell(struct composite *, struct cell_part *, enum cell_verb);
void hf__part_follow_cell(struct composite *, struct cell_part *);
void hf__part_follow_line(struct composite *, struct line_part *);
/* Once; the list is the caller's, to free when it is done with it. */
void hf__part_look(struct composite *, struct line_part *);
void hf__part_acquire(struct composite *, struct hf_op *, int64_t wait_ms,
                      const struct acquire_spec *);
/* Of composite.lease, which is consumed. */
void hf__part_release(struct composite *, struct hf_op *, int64_t keep_ms);
void hf__part_cancel(struct hf_op *);
/* Of a part that follows: it has told something since it was asked about this last. */
bool hf__part_news(struct hf_op *);
/* It was sent, and no answer came: it may or may not have been done. */
bool hf__part_unknown(const struct cell_part *);

#endif
