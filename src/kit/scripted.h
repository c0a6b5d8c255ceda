/* scripted.h: the client's half of the scripted family: stores in which one atomic step of
 * the server admits the next in line and tells its client (Redis; SQL databases). It keeps
 * the promises of the seam; a store supplies five functions that send, and says what came
 * back. It knows no connection and no codec, and has no timer.
 *
 *   core verb ---> hf__scripted_join ---> ops->join      sends
 *   core event <-- hf__scripted_joined <-- the store     once; also inside ops->join
 *
 * Every request that is sent is answered exactly once; "nothing" means that no answer will
 * come (the connection is lost, there is no way to the server). Then DOWN is raised, if it
 * has not been, and the core repeats after UP what was not answered.
 * Nothing here touches a ticket, a wait_life or a renewal after handing it to `ops`.
 *
 * What the store must do
 *   join    puts the ticket in line, or answers the place it has: never a second one. Sets
 *           the expiry: of the hold, or of the group of waiting tickets (waiters.h).
 *   look    renews the group (if there is one), admits whom it can, and says of each named
 *           ticket where it is. A hold among them is renewed like the group: it is ours,
 *           and this is our request; but if it lasts for longer, that stays: the look may
 *           be late, and its owner have renewed it since.
 *   renew   renews holds; never revives one that is over.
 *   leave   takes the ticket out, wherever it is.
 *   messages may be lost, doubled, late, and may overtake answers.
 *
 * G1, sent_at of a grant. A hold counts from the sending of a request that has set the
 * expiry it has. By a join or a look that finds it: that request set it. By a message: the
 * grant copied the group's expiry as it stood then, and the message names that expiry (the
 * "stamp"). If it is the stamp of our last answered request it counts from that one's
 * sending. Else we have asked for more since, answered or not, and nobody knows which of
 * our requests gave this hold its time: a look finds out. Two requests may get the same
 * stamp; then the expiry is the same, and it lies a ttl after the sending of either.
 *
 * G7, leaving. A leave that comes while the join is unanswered waits for that answer: a
 * store may have to repeat a request (a moved slot, a serialization failure), and the join
 * must not come behind its own leave. If no answer comes, the leave has none either, and
 * the core repeats it, until a server answers that may never come back; but of what was
 * never sent nothing is to be taken out. A join that was lost with its connection may still
 * be executed: its echo. Before it reports UP the store makes that impossible, if it can;
 * for as long as it cannot (ops->echoes) a leave settles nothing if the ticket was not
 * there, or if another join of it was lost. A refused join says nothing about an earlier
 * one: the core leaves.
 *
 * G8. Every request names a ticket by its token, and its answer is given to the ticket that
 * has this token then, if there is one and nothing else is under way for it.
 *
 * A message about a ticket whose join is unanswered cannot be understood yet: it is
 * remembered, and the ticket looks (or asks, if it holds) as soon as the answer is there.
 */
#ifndef HF_KIT_SCRIPTED_H
#define HF_KIT_SCRIPTED_H

#include "kit/waiters.h"

struct scripted;

/* Joins that were lost with a connection to a server, and may still be executed for as long
 * as their ttl, if the store could not end that connection. */
struct echo {
    int64_t lost_ms; /* the longest ttl of those that were lost since it was last up */
    int64_t until;
};

static inline void echo_lost(struct echo *e, int64_t ttl_ms)
{
    if (e->lost_ms < ttl_ms)
        e->lost_ms = ttl_ms;
}

/* It is up again, and the old connection was not ended. One of an even older connection
 * may come later. */
static inline void echo_up(struct echo *e, int64_t now)
{
    int64_t until = now + e->lost_ms * 1000;

    if (e->lost_ms > 0 && e->until < until)
        e->until = until;
    e->lost_ms = 0;
}

struct scripted_hold { /* to be renewed */
    unsigned char token[HF_TOKEN];
    int64_t ttl_ms; /* 0: only asks whether it holds */
    unsigned shard;
};

struct scripted_renewal { /* holds to be renewed by one request */
    struct list on;       /* scripted.renewals: those that are not answered */
    size_t n;
    struct scripted_hold holds[];
};

struct scripted_ops {
    void (*join)(struct scripted *, struct ticket *);
    void (*leave)(struct scripted *, struct ticket *);
    void (*look)(struct scripted *, struct wait_life *); /* names .tokens, .n of them */
    void (*renew)(struct scripted *, struct scripted_renewal *);
    /* A join of this ticket that was lost may still be executed. NULL: never. */
    bool (*echoes)(struct scripted *, const struct ticket *);
    /* Only holds of one shard can be renewed by one request. NULL: there is one shard. */
    unsigned (*shard)(struct scripted *, const struct ticket *);
};

struct scripted {
    const struct scripted_ops *ops;
    struct map seats; /* ticket.drv_node, by token */
    struct waiters waiters;
    struct list renewals;
    size_t renew_most;         /* holds in one request */
    struct scripted_hold *due; /* renewals that wait for the flush */
    size_t ndue, room;
};

enum place_kind {
    PLACE_NOTHING, /* no answer will come */
    PLACE_UNSENT,  /* nor was it sent: there is no way to the server */
    PLACE_HELD,    /* fence */
    PLACE_WAITS,   /* position; of a join also number, recheck_ms, stamp */
    PLACE_LOST,    /* of a look: not in line: it has expired */
    PLACE_REFUSED  /* code, err; HF_EREPLICAS: it may stand in line all the same */
};

struct scripted_place { /* what the store says of one ticket */
    enum place_kind kind;
    int code;
    const hf_error *err; /* may be NULL */
    uint64_t fence, number;
    uint32_t position;
    int64_t recheck_ms, stamp;
};

struct scripted_looked { /* the answer to a look */
    int code;            /* < 0: refused; else 0 */
    const hf_error *err;
    bool renewed; /* there is such a group; its stamp */
    int64_t stamp;
    size_t count; /* tickets in the group */
    int64_t recheck_ms;
    const struct scripted_place *places; /* one for each that was named */
};

enum left_kind {
    LEFT_NOTHING, /* no answer will come */
    LEFT_UNKNOWN, /* refused, or it could not be sent */
    LEFT_NOT_THERE,
    LEFT_OUT
};
enum renewed_kind { RENEWED_GONE, RENEWED, RENEWED_MARKED, RENEWED_UNSAID };
enum told_kind { TOLD_GRANT, TOLD_REVOKED, TOLD_MARK, TOLD_LOOK };

/* `s` zeroed; 0 or HF_ENOMEM. */
int hf__scripted_init(struct scripted *, const struct scripted_ops *, struct store *);
void hf__scripted_done(struct scripted *); /* forgets all; nothing is told */

void hf__scripted_join(struct scripted *, struct ticket *);
void hf__scripted_leave(struct scripted *, struct ticket *);
void hf__scripted_renew(struct scripted *, struct life *const *, size_t);
void hf__scripted_look(struct scripted *, struct wait_life *);
void hf__scripted_ask(struct scripted *, const struct ticket *); /* does it still hold? */
/* Sends the renewals and questions that were gathered since the last one: the core names
 * holds in pieces, and many of one shard go into one request. */
void hf__scripted_flush(struct scripted *);

void hf__scripted_joined(struct scripted *, struct ticket *, int64_t sent_at,
                         const struct scripted_place *);
void hf__scripted_left(struct scripted *, struct ticket *, enum left_kind);
void hf__scripted_amended(struct scripted *, const void *token, int rc);
void hf__scripted_looked(struct scripted *, struct wait_life *, int64_t sent_at,
                         const struct scripted_looked *); /* NULL: nothing */
/* One renewed_kind for each hold; NULL: nothing. Frees the renewal. */
void hf__scripted_renewed(struct scripted *, struct scripted_renewal *, int64_t sent_at,
                          const unsigned char *);
/* Instead of an answer: the store takes these only one by one, so they are sent again, each
 * alone. Frees the renewal. */
void hf__scripted_split(struct scripted *, struct scripted_renewal *);
void hf__scripted_told(struct scripted *, const void *token, enum told_kind, uint64_t fence,
                       int64_t stamp);

/* It, if it holds and is not leaving; else NULL. */
struct ticket *hf__scripted_holder(const struct scripted *, const void *token);
/* Before a renewal is sent, and sent again: without those that have left, and with the ttls
 * that are asked for by now. Returns n. */
size_t hf__scripted_trim(const struct scripted *, struct scripted_renewal *);

#endif
