/* link.h: one connection to a server that answers calls, in order or each by its own
 * number: opening it, opening it again, which calls are not answered yet, and what becomes
 * of them when it breaks.
 *
 *   CLOSED -> OPENING -> GREETING -> SETTLING -> UP
 *      ^         |           |           |        |
 *      +---------+--- lost --+-----------+--------+      after a pause: OPENING
 *
 * OPENING    the transport connects, within limit_ms
 * GREETING   on->greet logs in, and finds out which server it is
 * SETTLING   if the store needs it: requests of an older connection are being made
 *            impossible (G7)
 * UP         declared by the driver; earlier failures are forgotten
 *
 * Rules
 *  1 A call is answered exactly once: by the driver, which takes it off the list with
 *    hf__link_answered (or hf__link_matched, if answers are not in order), or with nothing,
 *    by on->unanswered. Never inside hf__link_send: a call that cannot be sent is
 *    unanswered at the next flush, or in the next turn of the loop if that comes first.
 *  2 Loss is told in this order: on->down, which raises DOWN; on->unanswered for every
 *    call, the oldest first; on->lost. When a driver hears that a call has no answer, the
 *    core therefore knows of DOWN already, and repeats it after UP (seam.h, rule 6).
 *  3 hf__link_break gives the connection up at the next flush: for an answer that makes
 *    no sense, or if memory is missing (then everything is repeated). hf__link_drop does
 *    it at once; not while this link's transport hands over what it has read.
 *  4 An answer is late when the oldest call has been next in turn for longer than
 *    limit_ms: since it was sent, or since the oldest call before it was answered. A busy
 *    server is not given up as long as it answers; but answers to younger calls do not
 *    count: a server that can read and no longer write is found by its oldest write. Before
 *    an answer is called late, the transport reads once more: a process that was stopped
 *    finds the answer there.
 *  5 After a loss the link is opened again while it is wanted: at once until each of
 *    `choices` servers has failed in a row, then after a pause. Pauses double from 20 ms
 *    to 1 s, but are never longer than an eighth of connect_ms: a call that waits for
 *    connect_ms must find a server that has become healthy. Half of each pause is random,
 *    so that the clients of a server that comes back do not all come at once.
 *
 * The link has no socket. Its transport is a table of functions: a stream of src/net, a
 * library with a socket of its own, or a test.
 */
#ifndef HF_KIT_LINK_H
#define HF_KIT_LINK_H

#include "loop/env.h"
#include "util/error.h"
#include "util/list.h"

#include <stdbool.h>

struct link;
struct stream;

enum link_state { LINK_CLOSED, LINK_OPENING, LINK_GREETING, LINK_SETTLING, LINK_UP };

struct link_call { /* part of a driver's own struct */
    struct list node;
    int64_t sent_at;
};

/* How bytes go. It reports hf__link_opened, and hf__link_lost when it has broken and closed
 * itself; neither inside open, close or send. */
struct link_transport {
    int (*open)(struct link *, int64_t ms, hf_error *); /* 0, or HF_E*: nothing was begun */
    void (*close)(struct link *); /* nothing is told; may be closed already */
    /* Puts the call into a buffer. 0; HF_ENOENT: what it was about has gone; HF_E* */
    int (*send)(struct link *, struct link_call *); /* else the link is given up */
    void (*flush)(
        struct link *);          /* sends what is in the buffer; may end in hf__link_lost */
    bool (*read)(struct link *); /* what has come by now; false: nothing had */
};

struct link_events {
    int64_t (*limit_ms)(const struct link *); /* of opening, and of an answer */
    void (*greet)(struct link *);
    void (*down)(struct link *, const hf_error *);
    void (*unanswered)(struct link *, struct link_call *);
    /* May choose another server, and when to try it: by setting link.retry. */
    void (*lost)(struct link *, const hf_error *);
};

struct link {
    struct env *env;
    const struct link_transport *via;
    const struct link_events *on;
    struct stream *stream; /* of a link on wire.h */
    enum link_state state;
    bool wanted;       /* to be opened again after a loss */
    bool broken;       /* to be given up at the next flush, because of `why` */
    const char *where; /* the server, for messages */
    size_t choices;    /* servers that can be tried one after the other */
    size_t failed;     /* losses in a row without UP */
    int64_t connect_ms, pause_us;
    int64_t since;      /* when it was opened, or the oldest call was answered last */
    struct list sent;   /* link_call.node, the oldest first */
    struct list unsent; /* to be unanswered at the next flush */
    struct list *dirty; /* the driver's: links that a flush is to look at */
    struct list on_dirty;
    struct timer retry, late, turn; /* turn: a flush that nobody else makes */
    hf_error why;
};

/* `dirty` is an initialised list, which the links of one store share. A zeroed link may be
 * given to hf__link_done. */
void hf__link_init(struct link *, struct env *, const struct link_transport *,
                   const struct link_events *, struct list *dirty, int64_t connect_ms);
void hf__link_done(struct link *); /* nothing is told; calls that are left: take them */
struct link_call *hf__link_take(struct link *); /* the oldest that has no answer, or NULL */

void hf__link_start(struct link *); /* opens it if it is closed, and again if it is lost */
void hf__link_forgive(struct link *); /* no pause: something else than before is tried */

/* From the transport. */
void hf__link_opened(struct link *);
void hf__link_lost(struct link *, const hf_error *);

/* From the driver. */
void hf__link_settle(struct link *);
void hf__link_up(struct link *);
void hf__link_send(struct link *, struct link_call *);
void hf__link_refuse(struct link *, struct link_call *); /* as one that cannot be sent */
void hf__link_wrote(struct link *); /* something that has no answer: to be flushed */
struct link_call *hf__link_oldest(const struct link *);
void hf__link_answered(struct link *); /* the oldest is the caller's now */
void hf__link_matched(struct link *, struct link_call *); /* this one is, of those sent */
void hf__link_break(struct link *, const hf_error *);
void hf__link_fail(struct link *, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4))); /* hf__link_break with this error */
void hf__link_drop(struct link *, const hf_error *);
void hf__link_flush(struct list *dirty);

static inline bool link_open(const struct link *k)
{
    return k->state >= LINK_GREETING && !k->broken;
}

#endif
