/* sql.h: what the drivers of SQL databases share: the verbs of the seam as statements with
 * arguments, and what is made of their answers. It knows no dialect: a database supplies a
 * struct sql_wire, and each call is one statement of it.
 *
 *   core verb --> ticket.c, query.c: a call --> conn.c --> sql_wire.send: its statement
 *   core event <-- kit/scripted, query.c <-- call's answer <-- conn.c <-- the library
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

struct sql_wire;

/* What an error means for a statement. */
enum sql_fate {
    SQL_REFUSED,
    SQL_UNDONE, /* because of others or of a limit: it changed nothing, and is sent again */
    SQL_LOCKED, /* the same, by the limit for a lock */
    SQL_GONE /* the session ends, the server has become read-only, or the schema has gone:
                another connection finds out */
};

struct sql_reply {
    const struct sql_wire *wire;
    int code; /* < 0: refused, and `err` says why */
    hf_error err;
    enum sql_fate fate;
    /* of join, wait, leave, renew, amend, evict, keep: a list of numbers */
    const int64_t *numbers;
    size_t n;
    size_t rows; /* of look, list, cell */
    const void *own;
};

struct sql;
struct sql_call;
struct sql_conn;
struct sql_session;
struct addresses;
struct text;

/* A database: its dialect, and what its library does. Of a connection it is told nothing
 * that conn.c does for it. */
struct sql_wire {
    const struct hf_driver *driver;
    size_t size, conn_size; /* of the structs that begin with a struct sql, a sql_conn */
    /* The statement of a verb, by mode; NULL: that of SQL_LINE. */
    const char *const *const *texts;
    size_t most;    /* calls that the library has at a time, on one connection */
    unsigned turns; /* addresses of a host that are tried without a pause; 0: all at once */
    int64_t locked_us; /* before a call that ended as SQL_LOCKED is sent again */
    /* An answer may take so long, whatever connect_timeout is: its row may be locked. Else
     * one line that is stuck would take the connection from all others. */
    int64_t least_ms;
    bool follows; /* messages tell of every change of what is followed */

    int (*read_url)(struct sql *, const struct url *, hf_error *);
    void (*begin)(struct sql *); /* makes `commands`, and what else it has */
    void (*end)(struct sql *);   /* frees what is its own, of a store half made, too */
    /* Somebody waits or follows: messages are wanted. If it listens already, one was
     * missed: do they still come? */
    void (*listen)(struct sql *);
    void (*attach)(struct sql_conn *); /* greets on a connection of a session */
    void (*down)(struct sql_conn *, const hf_error *); /* not of a session */

    /* Of a connection: as struct link_transport, on the loop. */
    int (*open)(struct sql_conn *, int64_t ms, hf_error *);
    int (*found)(struct sql_conn *, struct addresses *, hf_error *); /* hf__sql_look_up */
    bool (*due)(struct sql_conn *); /* its timer; false: it is too late */
    void (*ready)(struct sql_conn *, uint32_t events);
    int (*send)(struct sql_conn *, struct sql_call *, struct sql_args *);
    void (*flush)(struct sql_conn *);
    void (*read)(struct sql_conn *); /* only while it is up */
    void (*close)(struct sql_conn *);
    void (*done)(struct sql_conn *);        /* frees what is left after close */
    int (*socket)(const struct sql_conn *); /* -1: there is none */

    int64_t (*number)(const struct sql_reply *, size_t row, size_t column);
    /* "" and 0 if it is NULL */
    const void *(*bytes)(const struct sql_reply *, size_t row, size_t column, size_t *n);
};

static inline int64_t sql_number_at(const struct sql_reply *r, size_t row, size_t column)
{
    return r->wire->number(r, row, column);
}

static inline const void *sql_bytes_at(const struct sql_reply *r, size_t row, size_t column,
                                       size_t *n)
{
    return r->wire->bytes(r, row, column, n);
}

struct sql_type {
    unsigned verb; /* of enum sql_verb, or of the database's own */
    void (*build)(struct sql *, struct sql_call *,
                  struct sql_args *); /* NULL: no arguments */
    void (*answer)(struct sql *, struct sql_call *, const struct sql_reply *);
};

struct sql_call {
    struct link_call call;
    const struct sql_type *type;
    struct sql_conn *on; /* that it was sent on */
    void *about;         /* what its type makes of them */
    int64_t number;
};

/* NULL: no memory. `size`: of a struct that begins with the call. */
struct sql_call *hf__sql_call(const struct sql_type *, void *about);
struct sql_call *hf__sql_call_of(const struct sql_type *, size_t size);
void hf__sql_send(struct sql *, struct sql_call *);
bool hf__sql_ask(struct sql *, const struct sql_type *, void *about); /* false: no memory */
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
    struct sql_conn *commands; /* where calls go */
    struct list conns;         /* sql_conn.all */
    struct list dirty;         /* link.on_dirty */
    enum sql_mode mode;
    int64_t join_flags; /* for every join, besides its own */
    struct opening open;
    const char *shown; /* of it */
    char *ns;
    size_t ns_len;
    char *database;           /* the URL's path; "": it has none */
    struct url_param *params; /* of the URL */
    size_t nparams;
    unsigned char client[SQL_CLIENT];
    struct scripted scripted;
    struct echo echo; /* joins that were lost with connections that could not be ended */
    struct list looks, cells;     /* follows: drv_node */
    struct list sessions, buried; /* sql_session.all */
    struct list later;            /* sql_call.call.node */
    struct timer later_timer, listen_timer, leave_timer;
    int64_t swept_at;
    int64_t freed_at; /* mode=optimistic: when we last heard that some name is free */
    bool listens;     /* messages are wanted */
    bool heard;       /* and come: tested. Else whoever waits looks from time to time */
    bool up, served;
    unsigned warned; /* of what: bits of the database's own */
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

/* Between half of it and half more: what many do at one moment must not meet again. */
int64_t hf__sql_about(const struct sql *, int64_t time);

/* The verbs of the seam for opening and closing; open is called by that of a database. */
int hf__sql_open(const struct sql_wire *, struct store **, const struct url *, struct env *,
                 hf_error *);
void hf__sql_close(struct store *);
void hf__sql_flush(struct store *); /* sends what was asked for, frees what is over */
void hf__sql_forked(struct store *);
/* Reads mode=, and sets what the store can do then. `server`: what the database calls its
 * own locks, "advisory" or "named". 0 or HF_EINVAL. */
int hf__sql_read_mode(struct sql *, const struct url *, const char *server, hf_error *);
/* Reads wake=: true for poll. 0 or HF_EINVAL. */
int hf__sql_read_wake(const struct url *, bool *ret_polls, hf_error *);
int hf__sql_no_memory(hf_error *); /* for a store; HF_ENOMEM */
/* For what an administrator runs: a name as SQL quotes it, and the text that was made. */
void hf__sql_quote(struct text *, char quote, const char *name);
char *hf__sql_admin_text(struct text *, hf_error *);            /* NULL: no memory */
const char *hf__sql_param(const struct sql *, const char *key); /* NULL: not given */
void hf__sql_up(struct sql *);
void hf__sql_down(struct sql *, const hf_error *);
void hf__sql_warn(struct sql *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void hf__sql_warn_once(struct sql *, unsigned which, const char *text); /* sql.warned */

/* What the server sends to this client's channel: a letter, and what it is about. */
void hf__sql_told(struct sql *, const char *text);
/* Messages come from now on, or do not: what came before may have been missed. */
void hf__sql_hears(struct sql *, bool);
void hf__sql_listen(struct sql *);
void hf__sql_joined(struct sql *, bool waits); /* one of ours has a place */
void hf__sql_leaves(struct sql *);             /* one of ours gives it up */
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

struct sql_session { /* ticket.drv_ptr */
    struct list all;
    struct sql *sql;
    struct sql_conn *conn; /* NULL: it has none of its own */
    struct ticket *t;      /* NULL: it has none, or not any more */
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
/* Who waits for a lock is not late: how much longer than others it may take, in ms. (That
 * the server has gone without a word is noticed by TCP.) */
int64_t hf__sql_session_patience(const struct sql_session *, const struct link *);
void hf__sql_sessions_up(struct sql *);     /* the commands connection is */
void hf__sql_sessions_forget(struct sql *); /* all of them to `buried`; nothing is told */
void hf__sql_bury(struct sql *); /* frees those; not inside what happens on a connection */

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

/* What the table of verbs of every database has. */
#define SQL_DRIVER                                                                         \
    .close = hf__sql_close, .join = hf__sql_join, .leave = hf__sql_leave,                  \
    .amend = hf__sql_amend, .renew = hf__sql_renew, .look = hf__sql_look,                  \
    .cell = hf__sql_cell, .evict = hf__sql_evict, .stop = hf__sql_stop,                    \
    .flush = hf__sql_flush, .forked = hf__sql_forked

#endif
