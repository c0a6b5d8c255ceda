/* sql.h: what the drivers of SQL databases share: the verbs of the seam as statements with
 * arguments, and what is made of their answers. It knows no connection and no dialect: a
 * database supplies a struct sql_wire, and sends one statement for each call.
 *
 *   core verb --> ticket.c, query.c: a call --> sql_wire.send --> the statement of its verb
 *   core event <-- kit/scripted, query.c <-- call's answer <-- the database
 *
 * Every call is answered exactly once; NULL means that no answer will come (the connection
 * is lost). An answer is given only when its transaction has ended: a commit that failed is
 * an error, one whose outcome is not known is no answer (G7). A statement that the database
 * undid because of others (serialization, deadlock, a time limit of the server) changed
 * nothing: it is sent again a little later (hf__sql_later), for as long as it takes.
 *
 * A line is a row; whoever changes it locks the row first. The argument why a place is not
 * granted twice is in the schema of each database. */
#ifndef HF_SQL_H
#define HF_SQL_H

#include "kit/link.h"
#include "kit/opening.h"
#include "kit/query.h"
#include "kit/scripted.h"

enum { SQL_CLIENT = 8, SQL_ARGS = 16, SQL_RENEW_MOST = 128 };

enum sql_verb {
    SQL_JOIN,
    SQL_WAIT,
    SQL_LEAVE,
    SQL_RENEW,
    SQL_AMEND,
    SQL_LOOK,
    SQL_LIST,
    SQL_CELL,
    SQL_EVICT,
    SQL_KEEP,
    SQL_SWEEP,
    /* of sessions (session.c): over the commands connection, then on their own */
    SQL_END,    /* ends a session, and waits until it has gone */
    SQL_CANCEL, /* ends its statement */
    SQL_UNDO,   /* after it the session has no lock */
    SQL_PROVE,
    /* Take the lock of a name: a row with the fence, HF_EBUSY, or no row if the name has
     * none (by rows) or it is another's. */
    SQL_TRY,
    SQL_LOCK,
    SQL_RELEASE,
    SQL_SHARE, /* a shared one instead */
    SQL_MAKE,  /* the row of a name */
    SQL_VERBS  /* a database may have more, of its own */
};

/* ---- arguments and answers ------------------------------------------------------- */

enum sql_kind { SQL_INT, SQL_BYTES, SQL_INTS };

struct sql_arg {
    enum sql_kind kind;
    int64_t number;
    const void *at; /* SQL_BYTES; SQL_INTS: int64_t of them */
    size_t n;
};

struct sql_args { /* what they point to stays until the statement is in a buffer */
    struct sql_arg at[SQL_ARGS];
    size_t n;
    bool nothing; /* what it is about has gone: not sent */
};

static inline void sql_int(struct sql_args *a, int64_t number)
{
    a->at[a->n++] = (struct sql_arg){ .kind = SQL_INT, .number = number };
}

static inline void sql_bytes(struct sql_args *a, const void *at, size_t n)
{
    a->at[a->n++] = (struct sql_arg){ .kind = SQL_BYTES, .at = at, .n = n };
}

static inline void sql_ints(struct sql_args *a, const int64_t *at, size_t n)
{
    a->at[a->n++] = (struct sql_arg){ .kind = SQL_INTS, .at = at, .n = n };
}

struct sql_reply {
    int code; /* < 0: refused, and `err` says why */
    hf_error err;
    /* of join, wait, leave, renew, amend, evict, keep: a list of numbers */
    const int64_t *numbers;
    size_t n;
    size_t rows; /* of look, list, cell */
    const void *own;
};

struct sql;
struct sql_call;
struct sql_session;

struct sql_wire {
    void (*send)(struct sql *, struct sql_call *);
    int64_t (*number)(const struct sql_reply *, size_t row, size_t column);
    /* "" and 0 if it is NULL */
    const void *(*bytes)(const struct sql_reply *, size_t row, size_t column, size_t *n);
    /* Somebody waits or follows: messages are wanted. If it listens already, one was
     * missed: do they still come? */
    void (*listen)(struct sql *);
    /* A session: zeroed, and with `connect` its connection is being opened, which ends in
     * hf__sql_session_up or _lost. NULL: no memory. The database frees those in sql.buried
     * when nobody can be inside them. */
    struct sql_session *(*attach)(struct sql *, bool connect);
    void (*say)(struct sql_session *, struct sql_call *);   /* in order, as a send */
    void (*detach)(struct sql_session *, const hf_error *); /* _lost follows, not inside */
    bool follows; /* messages tell of every change of what is followed */
};

struct sql_type {
    enum sql_verb verb;
    void (*build)(struct sql *, struct sql_call *, struct sql_args *);
    void (*answer)(struct sql *, struct sql_call *, const struct sql_reply *);
};

struct sql_call {
    struct link_call call;
    const struct sql_type *type;
};

/* NULL: no memory. `size`: of the struct that begins with the call. */
struct sql_call *hf__sql_call(const struct sql_type *, size_t size);
void hf__sql_send(struct sql *, struct sql_call *);
void hf__sql_answer(struct sql *, struct sql_call *, const struct sql_reply *); /* frees */
/* Sends it in about so long: it was undone by others. */
enum { SQL_LATER_US = 2000 };
void hf__sql_later(struct sql *, struct sql_call *, int64_t us);
/* The numbers of a good answer that has so many; NULL: another answer. */
const int64_t *hf__sql_numbers(const struct sql_reply *, size_t n);
/* Fills `err` and returns its code; for one that is not as expected, too. */
int hf__sql_refusal(const struct sql *, const struct sql_reply *, hf_error *);

/* ---- the store ------------------------------------------------------------------- */

/* How a name is locked: mode= of the URL. Names of one mode do not meet those of another.
 */
enum sql_mode { SQL_LINE, SQL_OPTIMISTIC, SQL_PESSIMISTIC, SQL_SERVER };

struct sql { /* the struct of a database begins with it */
    struct store store;
    const struct sql_wire *wire;
    enum sql_mode mode;
    struct opening open;
    const char *shown; /* of it */
    char *ns;
    size_t ns_len;
    unsigned char client[SQL_CLIENT];
    struct scripted scripted;
    struct echo echo; /* joins that were lost with connections that could not be ended */
    struct list looks, cells;     /* follows: drv_node */
    struct list sessions, buried; /* sql_session.all */
    struct list later;            /* sql_call.call.node */
    struct timer later_timer, listen_timer;
    int64_t swept_at;
    int64_t freed_at; /* mode=optimistic: when we last heard that some name is free */
    bool listens;     /* messages are wanted */
    bool heard;       /* and come: tested. Else whoever waits looks from time to time */
    bool up, served;
    /* of the renewal or the join that is being built */
    unsigned char tokens[SQL_RENEW_MOST * HF_TOKEN];
    int64_t lines[SQL_RENEW_MOST], ttls[SQL_RENEW_MOST];
};

static inline struct sql *sql_of(struct store *s)
{
    return container_of(s, struct sql, store);
}

static inline struct sql *sql_at(struct scripted *s)
{
    return container_of(s, struct sql, scripted);
}

static inline int64_t sql_now(const struct sql *s)
{
    return s->store.env->now(s->store.env);
}

/* `s` is zeroed, with driver and wire set; 0 or HF_ENOMEM. hf__sql_done in any case. */
int hf__sql_init(struct sql *, const struct url *, struct env *);
/* Reads mode=, and sets what the store can do then. `server`: what the database calls its
 * own locks, "advisory" or "named". 0 or HF_EINVAL. */
int hf__sql_read_mode(struct sql *, const struct url *, const char *server, hf_error *);
void hf__sql_done(struct sql *);
void hf__sql_up(struct sql *);
void hf__sql_down(struct sql *, const hf_error *);
void hf__sql_warn(struct sql *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What the server sends to this client's channel: a letter, and what it is about. */
void hf__sql_told(struct sql *, const char *text);
/* Messages come from now on, or do not: what came before may have been missed. */
void hf__sql_hears(struct sql *, bool);
void hf__sql_listen(struct sql *);
void hf__sql_joined(struct sql *, bool waits); /* one of ours has a place */
void hf__sql_sweep(struct sql *);              /* now and then: what nobody uses any more */
/* How long who waits may wait for a message, if messages do not come; else `ms`. */
int64_t hf__sql_recheck(const struct sql *, int64_t ms);

/* ---- locks that belong to a connection (session.c) ------------------------------- */

enum session_state {
    SES_OPENING,
    SES_TRYING,
    SES_WAITING,
    SES_CONFIRMING, /* granted, long after it was asked for */
    SES_HELD,
    SES_LEAVING,
    SES_IDLE,
    SES_ENDING,
    SES_ENDED
};

enum { SQL_LABEL = 64 }; /* what others see of a session */

struct sql_session { /* the struct of a database begins with it; ticket.drv_ptr */
    struct list all;
    struct sql *sql;
    struct ticket *t; /* NULL: it has none, or not any more */
    enum session_state state;
    bool shared;
    bool sharing; /* it becomes so: SQL_SHARE is not answered */
    bool leaving; /* the core has said so */
    bool told;    /* that the hold is lost */
    bool once;    /* not to be used again */
    bool lost;    /* there is no connection */
    /* as the server names it; ticket.drv[0], [1] too: it may have to be ended later */
    int64_t pid, started;
    int64_t ttl_ms; /* that the server was last told */
    uint64_t fence;
    unsigned pins, undos, tries; /* pins: calls on the commands connection */
    hf_error why;
    char label[SQL_LABEL], text[24];
};

static inline bool sql_has_sessions(const struct sql *s)
{
    return s->mode >= SQL_PESSIMISTIC;
}

void hf__sql_session_join(struct sql *, struct ticket *);
void hf__sql_session_leave(struct sql *, struct ticket *);
void hf__sql_session_amend(struct ticket *);
void hf__sql_session_renew(struct life *const *, size_t);
/* From the database: it is open; it has none any more. */
void hf__sql_session_up(struct sql_session *, int64_t pid, int64_t started);
void hf__sql_session_lost(struct sql_session *, const hf_error *);
void hf__sql_sessions_up(struct sql *);     /* the commands connection is */
void hf__sql_sessions_forget(struct sql *); /* all of them to `buried`; nothing is told */

/* ---- verbs (ticket.c, query.c) --------------------------------------------------- */

extern const struct scripted_ops hf__sql_scripted;
void hf__sql_join(struct store *, struct ticket *);
void hf__sql_leave(struct store *, struct ticket *);
void hf__sql_amend(struct store *, struct ticket *);
void hf__sql_renew(struct store *, struct life *const *, size_t);
void hf__sql_look(struct store *, struct look *);
void hf__sql_cell(struct store *, struct cell *);
void hf__sql_evict(struct store *, struct look *);
void hf__sql_stop(struct store *, struct look *, struct cell *);

#endif
