/* zookeeper.h: the objects of the zookeeper driver and what its files offer each other.
 *
 * zk       one opened store: what the URL said, the servers, the session, one connection
 * zk_call  one message on the wire that is not answered yet
 * line     a line in which this client has seats, as kit/ordered.h keeps it, and its path
 * seat     one ticket of ours, as kit/ordered.h keeps it, and its node
 * job      a look, a list or an eviction: several reads, one answer
 *
 * Reading order: path.c, conn.c, session.c, kit/ordered.h, line.c, ticket.c, find.c,
 * amend.c, quiet.c.
 */
#ifndef HF_ZOOKEEPER_H
#define HF_ZOOKEEPER_H

#include "kit/opening.h"
#include "kit/ordered.h"
#include "kit/query.h"
#include "kit/ticket_record.h"
#include "kit/wire.h"
#include "net/tls.h"
#include "proto/jute.h"
#include "seam/seam.h"

struct zk;
struct zk_call;

/* ---- names of nodes (path.c) ----------------------------------------------------- */

enum {
    ROOT_MAX = 1024,
    DIR_MAX = ROOT_MAX + 2 * HF_NAME_MAX * 3,
    NODE_MAX = ORDERED_NAME_MAX
};
enum { NODE_PATH_MAX = DIR_MAX + NODE_MAX };

struct form { /* what the name of a ticket's node says */
    struct ordered_place place;
    /* an exclusive "-lock-": if it becomes shared, then as "-read-lock-" of the same uuid;
     * "__WRIT__" and "__lock__" may do so under any name */
    bool renames;
    size_t digits; /* where the number begins */
};

size_t hf__zk_dir(const struct zk *, char path[DIR_MAX], const char *name, size_t len);
/* A node below `dir`, which may be `path` itself; "" is `dir`. */
size_t hf__zk_path(char path[NODE_PATH_MAX], const char *dir, size_t dir_len,
                   const char *node, size_t len);
int hf__zk_root(char root[ROOT_MAX], const char *path, const char *ns);
/* The last level of `path` as a part of a name; false: it is none. */
bool hf__zk_level(char *dst, size_t *ret, const char *level, size_t len);
bool hf__zk_form(struct form *, const char *node, size_t len); /* false: not a ticket's */
void hf__zk_form_token(unsigned char token[HF_TOKEN], const char *node, size_t len);
/* The node without its number; `weight` may be smaller than the ticket's. */
size_t hf__zk_node(const struct zk *, char node[NODE_MAX], const struct ticket *);

/* ---- requests and the connection (conn.c) ---------------------------------------- */

struct zk_call {
    struct link_call call;
    struct zk *zk;
    /* reply NULL: no answer will come. The request is freed afterwards. */
    void (*answer)(struct zk_call *, struct jute_reply *);
    void *about; /* whom the answer concerns: a seat, a line, a job ... */
    /* Its own handling of an answer, if there is one and somebody cares. */
    void (*then)(struct zk_call *, struct jute_reply *);
    size_t index;
    bool flag;
    int32_t xid;
    enum jute_op op;
    size_t len;
    char name[]; /* of the node that is meant */
};

/* NULL: no memory. The second one gives the connection up then, and all is repeated. */
struct zk_call *hf__zk_try_request(struct zk *,
                                   void answer(struct zk_call *, struct jute_reply *),
                                   void *about, const char *name, size_t len);
struct zk_call *hf__zk_request(struct zk *,
                               void answer(struct zk_call *, struct jute_reply *),
                               void *about, const char *name, size_t len);
/* begin, put the body, send. Nothing is answered inside (link.h). */
struct jute_out *hf__zk_begin(struct zk_call *, enum jute_op);
struct jute_out *hf__zk_begin_as(struct zk *, int32_t xid, enum jute_op);
void hf__zk_send(struct zk_call *);
/* exists, getData, getChildren2; sync, which has no watch. These two take NULL: for what
 * there was no memory to ask, which its maker has dealt with. */
void hf__zk_send_path(struct zk_call *, enum jute_op, const char *path, size_t len,
                      bool watch);
void hf__zk_send_delete(struct zk_call *, const char *path, size_t len, int32_t version);
/* The node of a ticket; NULL as well. */
void hf__zk_send_create(struct zk_call *, const struct ticket *, const char *path,
                        size_t len, enum jute_mode);
/* So that what is read afterwards is not older than this. */
void hf__zk_sync(struct zk *, const char *path, size_t len);
bool hf__zk_was_agreed(const struct jute_reply *); /* to a write */
void hf__zk_flush(struct store *);
/* Gives the connection up at the next flush: code, format ... */
#define hf__zk_break(z, ...) hf__link_fail(&(z)->link, __VA_ARGS__)
void hf__zk_conn_init(struct zk *);
void hf__zk_conn_done(struct zk *); /* what is unanswered is told so */

/* What an error of the server means to the caller of a verb. */
int hf__zk_error(const struct zk *, const struct jute_reply *, hf_error *);

/* ---- the session (session.c) ----------------------------------------------------- */

void hf__zk_session_greet(struct link *);
void hf__zk_session_greeted(struct zk *, const void *message, size_t len);
void hf__zk_session_down(struct link *, const hf_error *);
void hf__zk_session_lost(struct link *, const hf_error *);
void hf__zk_session_answered(struct zk *, const struct zk_call *,
                             const struct jute_reply *);
void hf__zk_session_renew(struct zk *); /* will be answered to the core */
/* If a grant would be at risk at once. True: what is to be sent waits for the next UP. */
bool hf__zk_session_attach_if_stale(struct zk *);
void hf__zk_session_tidy(struct zk *);
void hf__zk_session_end(struct store *); /* ends in ev_shut */
void hf__zk_session_done(struct zk *);
void hf__zk_session_heartbeat(struct timer *);

/* ---- lines and seats (line.c, ticket.c, find.c, amend.c); see kit/ordered.h -------- */

struct zk_line {
    struct ordered_line line;
    struct map_node node; /* zk.lines */
    bool finding;         /* a list is under way for those that are looked for */
    struct list quiet;    /* quiet.c: zk.quiets, the longest unused first; then pinned */
    int64_t last;         /* the number after which the line was empty; -1: not known */
    int64_t before;       /* the same without the watch: a hint */
    bool alone;           /* nobody came before our last one */
    bool same;            /* the node of the line is watched */
    size_t dir_len;
    char *name; /* behind dir */
    char dir[];
};

struct zk_seat {
    struct ordered_seat seat;
    bool sought;          /* the next list of find.c is to show it */
    unsigned char tries;  /* how often the levels above were made */
    unsigned char shares; /* requests about becoming shared */
    bool marked;          /* its record has the mark of `break` */
    bool renamed;         /* its node is not its first: its record says the fence */
    int32_t version;      /* of its node's data, as last heard of */
    char *name;           /* of its node; NULL: not known */
    char *becomes;        /* the name as shared while that is under way */
};

/* It counts as a ticket, but its name is too long to watch; only a list shows its removal.
 */
static inline bool entry_unreadable(const struct ordered_entry *e)
{
    return e->len >= NODE_MAX;
}

static inline struct zk_line *zk_line(struct ordered_line *l)
{
    return container_of(l, struct zk_line, line);
}

static inline struct zk_line *line_of(const struct zk_seat *s)
{
    return zk_line(s->seat.line);
}

static inline struct zk_line *zk_line_in(struct list *n) /* a member of ordered.lines */
{
    return container_of(n, struct zk_line, line.all);
}

extern const struct ordered_ops hf__zk_ordered;

struct zk_line *hf__zk_line_get(struct zk *, const char *name,
                                size_t len); /* NULL: no memory */
void hf__zk_line_event(struct zk *, enum jute_event, const char *path, size_t len);
void hf__zk_line_down(struct zk *);
void hf__zk_lines_over(struct zk *, const struct life *); /* with the session of `life` */
size_t hf__zk_line_path(const struct zk_line *, char path[NODE_PATH_MAX], const char *node,
                        size_t len);
/* The tickets among the children, in order; false: no memory, or a cut answer. */
bool hf__zk_line_read(struct jute_in *children, struct ordered_entry ***ret, size_t *ret_n);
void hf__zk_line_free_ops(struct ordered_line *);
/* Pins the line, for an answer about this node of it. `then` comes only with one. */
struct zk_call *hf__zk_line_request(struct ordered_line *,
                                    void then(struct zk_call *, struct jute_reply *),
                                    const char *name, size_t len);
void hf__zk_line_list(struct ordered_line *, bool watch);
bool hf__zk_line_watch(struct ordered_line *, struct ordered_entry *);
enum ordered_other hf__zk_line_other(const struct ordered_entry *, struct ordered_entry **);

bool hf__zk_quiet_expected(const struct zk_line *); /* a ticket needs no list, as a rule */
bool hf__zk_quiet_created(struct zk_seat *);        /* nobody stands before it */
void hf__zk_quiet_left(struct zk_seat *);
void hf__zk_quiet_end(struct zk_line *); /* its node has changed; may free it */
void hf__zk_quiet_forget(struct zk *);   /* all, with the connection */

static inline struct zk_seat *zk_seat(struct ordered_seat *s)
{
    return container_of(s, struct zk_seat, seat);
}

/* Pins the seat. `then` comes only if there is an answer, and the seat is still there. */
struct zk_call *hf__zk_seat_request(struct zk_seat *,
                                    void then(struct zk_call *, struct jute_reply *));
size_t hf__zk_seat_path(const struct zk_seat *, char path[NODE_PATH_MAX]);
/* What its own node says of it: THERE, MARKED, FOREIGN. */
enum ordered_seen hf__zk_seat_read(struct zk_seat *, struct jute_reply *);
void hf__zk_seat_find(struct ordered_seat *);
void hf__zk_seat_check(struct ordered_seat *); /* amend.c */
void hf__zk_mkdirs(struct zk *, const char *dir, size_t len);
/* An answer that says NO_NODE after the levels were made says why they were not. */
void hf__zk_no_level(const struct zk *, struct jute_reply *, bool tried);

void hf__zk_join(struct store *, struct ticket *);
void hf__zk_leave(struct store *, struct ticket *);
void hf__zk_amend(struct store *, struct ticket *);
void hf__zk_renew(struct store *, struct life *const *, size_t);

/* ---- ?mode=ephemeral (ephemeral.c) ----------------------------------------------- */

#define ALONE_NODE "_ephemeral" /* below the node of the line */

void hf__zk_alone_join(struct zk *, struct ticket *);
void hf__zk_alone_leave(struct zk *, struct ticket *);
void hf__zk_alone_event(struct zk *, enum jute_event, const char *path, size_t len);
void hf__zk_alone_down(struct zk *);
void hf__zk_alone_up(struct zk *); /* also to look again */
void hf__zk_alone_over(struct zk *);
void hf__zk_alone_close(struct zk *);

/* What stands in a ticket's node. fence: 0 if the node is its first. */
size_t hf__zk_record(char to[RECORD_MAX], const struct zk *, const struct ticket *,
                     uint64_t fence, bool broken);

/* ---- looking, cells, following (look.c, list.c, cell.c, follow.c) ---------------- */

void hf__zk_look(struct store *, struct look *);
void hf__zk_evict(struct store *, struct look *);
char *hf__zk_admin(const struct url *, hf_error *); /* admin.c */
void hf__zk_cell(struct store *, struct cell *);
void hf__zk_stop(struct store *, struct look *, struct cell *);
void hf__zk_list(struct zk *, struct look *);
int64_t hf__zk_age(const struct zk *, const struct jute_stat *); /* ms, by our clock */
void hf__zk_follow_start(struct zk *, struct look *, struct cell *);
void hf__zk_follow_event(struct zk *, const char *path, size_t len);

/* ---- the store ------------------------------------------------------------------- */

struct heard { /* a request: its sending, and its answer */
    int64_t sent_at, heard_at;
};

struct zk {
    struct store store;
    char root[ROOT_MAX];
    size_t root_len;
    bool alone;          /* mode=ephemeral */
    bool names_rw;       /* names=rw */
    char *login;         /* "user:password" of digest; NULL: none */
    struct opening open; /* its hosts are the servers */

    size_t server; /* of open.hosts: the present one */
    struct stream stream;
    struct link link;
    struct list dirty;   /* link.on_dirty */
    struct jute_out in;  /* what has come and is no whole message yet */
    struct jute_out out; /* reused */
    int32_t xid;
    bool shut; /* the session is to end, and no other to be made */

    struct jute_session session; /* id 0: none */
    int64_t last_zxid;           /* all changes up to it were told; moves while up */
    bool seen_nothing;           /* the greeting did not say it; no watches are set yet */
    int64_t asked_ms;            /* the time-out that we ask for */
    struct life *life;           /* of the session */
    struct life *old;            /* of sessions that are over: life.drv[0] is the next */
    int64_t greet_at;
    int64_t base_at;              /* see session.c */
    struct heard recent, earlier; /* requests of this connection */
    struct heard next; /* the base that was proved, when; it is to be confirmed */
    int64_t look_at;   /* when those that wait ask again */
    bool renew_asked;  /* the core waits for an answer */
    bool attach_now;   /* the connection is given up for a new one, not for a fault */
    int32_t level_error;
    struct timer heartbeat;

    struct ordered ordered;
    struct map lines;     /* zk_line.node, by dir */
    uint64_t hash_key[2]; /* for names */
    struct list quiets;   /* zk_line.quiet */
    size_t nquiet;
    struct list alones;       /* ephemeral.c */
    struct list looks, cells; /* follows: drv_node */
};

static inline struct zk *zk_of(struct store *s)
{
    return container_of(s, struct zk, store);
}

static inline struct zk *zk_in(struct ordered *o)
{
    return container_of(o, struct zk, ordered);
}

static inline int64_t zk_now(const struct zk *z)
{
    return z->store.env->now(z->store.env);
}

static inline bool zk_up(const struct zk *z)
{
    return z->link.state == LINK_UP;
}

extern const struct hf_driver hf__driver_zookeeper;

#endif
