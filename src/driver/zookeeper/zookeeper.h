/* zookeeper.h: the objects of the zookeeper driver and what its files offer each other.
 *
 * zk       one opened store: what the URL said, the servers, the session, one connection
 * request  one message on the wire that is not answered yet
 * line     what this client knows of one line while it has a seat there: its view
 * entry    one ticket in a view, ours or not
 * seat     one ticket of ours: on its way in, waiting, holding, on its way out
 * job      a look, a list or an eviction: several reads, one answer
 *
 * Reading order: path.c, conn.c, session.c, view.c, line.c, news.c, seat.c, ticket.c,
 * find.c, quiet.c.
 */
#ifndef HF_ZOOKEEPER_H
#define HF_ZOOKEEPER_H

#include "kit/link.h"
#include "kit/opening.h"
#include "kit/query.h"
#include "net/stream.h"
#include "net/tls.h"
#include "proto/jute.h"
#include "seam/seam.h"

struct zk;
struct request;
struct line;
struct seat;

/* ---- names of nodes (path.c) ----------------------------------------------------- */

enum { ROOT_MAX = 1024, DIR_MAX = ROOT_MAX + 2 * HF_NAME_MAX * 3, NODE_MAX = 1024 };
enum { NODE_PATH_MAX = DIR_MAX + NODE_MAX, UUID_TEXT = 36 };

enum form_style {
    FORM_LOCK,  /* "-lock-": if it becomes shared, then as "-read-lock-" of the same uuid */
    FORM_WRITE, /* "__WRIT__", "__lock__": may become shared under any name */
    FORM_OTHER
};

struct form { /* what the name of a ticket's node says */
    enum form_style style;
    int64_t seq;
    enum line_kind kind;
    int64_t weight, capacity;
    size_t digits; /* where the number begins */
};

size_t hf__zk_dir(const struct zk *, char path[DIR_MAX], const char *name, size_t len);
int hf__zk_root(char root[ROOT_MAX], const char *path, const char *ns);
/* The last level of `path` as a part of a name; false: it is none. */
bool hf__zk_level(char *dst, size_t *ret, const char *level, size_t len);
bool hf__zk_form(struct form *, const char *node, size_t len); /* false: not a ticket's */
void hf__zk_form_token(unsigned char token[HF_TOKEN], const char *node, size_t len);
void hf__zk_uuid(char text[UUID_TEXT + 1], const unsigned char token[HF_TOKEN]);
/* The node without its number; `weight` may be smaller than the ticket's. */
size_t hf__zk_node(const struct zk *, char node[NODE_MAX], const struct ticket *);

/* ---- requests and the connection (conn.c) ---------------------------------------- */

struct request {
    struct link_call call;
    /* NULL: no answer will come. The request is freed afterwards. */
    void (*answer)(struct zk *, struct request *, struct jute_reply *);
    int32_t xid;
    bool renews; /* a write: answered it proves the session alive at the leader */
    bool sync;   /* the leader answers it, and need not be the leader any more */
    bool multi;  /* what failed stands in the body of its answer */
};

/* NULL: no memory. The second one gives the connection up then, and all is repeated. */
struct request *hf__zk_try_request(void (*answer)(struct zk *, struct request *,
                                                  struct jute_reply *),
                                   size_t size);
struct request *hf__zk_request(struct zk *,
                               void (*answer)(struct zk *, struct request *,
                                              struct jute_reply *),
                               size_t size);
/* begin, put the body, send. Nothing is answered inside (link.h). */
struct jute_out *hf__zk_begin(struct zk *, struct request *, enum jute_op);
void hf__zk_send(struct zk *, struct request *);
void hf__zk_send_path(struct zk *, struct request *, enum jute_op, const char *path,
                      size_t len); /* exists, getData, getChildren2 without a watch; sync */
void hf__zk_send_watch(struct zk *, struct request *, enum jute_op, const char *path,
                       size_t len);
void hf__zk_sync(struct zk *, const char *path, size_t len,
                 void (*answer)(struct zk *, struct request *, struct jute_reply *));
void hf__zk_ignore(struct zk *, struct request *, struct jute_reply *); /* an answer */
bool hf__zk_was_agreed(const struct jute_reply *);                      /* to a write */
void hf__zk_flush(struct zk *);
/* Gives the connection up at the next flush: code, format ... */
#define hf__zk_break(z, ...) hf__link_fail(&(z)->link, __VA_ARGS__)
void hf__zk_conn_init(struct zk *);
void hf__zk_conn_close(struct zk *); /* what is unanswered is told so */
void hf__zk_conn_done(struct zk *);

/* What an error of the server means to the caller of a verb. */
int hf__zk_error(const struct zk *, const struct jute_reply *, hf_error *);

/* ---- the session (session.c) ----------------------------------------------------- */

void hf__zk_session_greet(struct link *);
void hf__zk_session_greeted(struct zk *, const void *message, size_t len);
void hf__zk_session_auth(struct zk *, int32_t err);
void hf__zk_session_down(struct link *, const hf_error *);
void hf__zk_session_lost(struct link *, const hf_error *);
void hf__zk_session_answered(struct zk *, const struct request *,
                             const struct jute_reply *);
void hf__zk_session_renew(struct zk *); /* will be answered to the core */
/* If a grant would be at risk at once. True: what is to be sent waits for the next UP. */
bool hf__zk_session_attach_if_stale(struct zk *);
void hf__zk_session_tidy(struct zk *);
void hf__zk_session_end(struct zk *); /* ends in ev_shut */
void hf__zk_session_pulse(struct timer *);

/* ---- lines and seats (view.c, line.c, news.c, seat.c, ticket.c, amend.c) --------- */

struct entry {
    struct form form;
    struct seat *seat; /* NULL: somebody else's */
    bool watched;      /* the server will tell of its end */
    bool asking;       /* a read that sets the watch is under way */
    size_t len;
    char name[];
};

struct line {
    struct zk *zk;
    struct map_node node;
    struct list all;
    struct list seats;
    struct entry **entries; /* in the order of the line */
    size_t n, room;
    unsigned pins, lists; /* lists: how many are under way */
    bool stale; /* the view lacks something: nothing is decided by it until a list comes */
    bool children; /* a watch on the children is set */
    bool finding;  /* a list is under way for those that are looked for */
    size_t name_len, dir_len;
    char *name;
    char dir[];
};

enum seat_state {
    SEAT_NEW,
    SEAT_TRYING,  /* the line is read: would it hold? */
    SEAT_FINDING, /* an unanswered create is looked for */
    SEAT_CREATING,
    SEAT_CREATED, /* its node is there; what stands before it is not known yet */
    SEAT_WAITING,
    SEAT_HELD,
    SEAT_DELETING
};

struct seat {
    struct ticket *t; /* NULL: the core has heard the last of it */
    struct zk *zk;
    struct line *line;
    struct list in_line;
    struct list unwatched; /* zk.unwatched */
    int64_t watch_at;
    enum seat_state state;
    bool unsure;   /* a create of it was not answered */
    bool leave;    /* leave came */
    bool dead;     /* of a session that is over */
    bool amending; /* it may have become shared already */
    bool marked;   /* by `break` */
    unsigned char shares;
    bool asking; /* mode=ephemeral: a look at the node is under way */
    bool told;   /* that it waits */
    bool listed; /* the last list showed it */
    bool sought; /* the next list of find.c is to show it */
    bool placed; /* everything that stands before it is or was in the view */
    bool shared; /* it has become shared; its node is not its first */
    int why;     /* it withdraws, and this is told */
    unsigned char tries;
    unsigned pins;
    int32_t version;   /* of its node's data, as last heard of */
    uint32_t position; /* in the queue, as told last; 0: not told */
    uint64_t fence;
    char *name;    /* of its node; NULL: not known */
    char *becomes; /* its name if it has become shared */
};

struct seat_request {
    struct request q;
    struct seat *seat; /* pinned */
};

struct line_request {
    struct request q;
    struct line *line; /* pinned */
    bool watch;
    size_t len;
    char name[];
};

/* It counts, but its name is too long to ask for it: of its end only lists tell. */
static inline bool entry_unreadable(const struct entry *e)
{
    return e->len >= NODE_MAX;
}

static inline struct seat *seat_in(struct list *n) /* a member of line.seats */
{
    return container_of(n, struct seat, in_line);
}

static inline bool seat_waits(const struct seat *s)
{
    return (s->state == SEAT_CREATED || s->state == SEAT_WAITING) && !s->leave &&
           !s->dead && s->why == 0;
}

struct line *hf__zk_line_get(struct zk *, const char *name,
                             size_t len); /* NULL: no memory */
struct line *hf__zk_line_of_dir(struct zk *, const char *dir, size_t len);
void hf__zk_line_drop(struct line *);  /* frees it if nobody needs it */
void hf__zk_line_close(struct line *); /* the store is being closed: nothing is told */
struct entry *hf__zk_entry_new(const struct form *, const char *name, size_t len);
struct entry *hf__zk_line_find(const struct line *, const char *name, size_t len);
void hf__zk_line_cut(struct line *, const struct entry *); /* frees it */
void hf__zk_line_replace(struct line *, struct entry **,
                         size_t n); /* by a list; takes it */
bool hf__zk_same_kind(const struct form *, const struct form *);
void hf__zk_line_watch(struct line *, struct entry *);
void hf__zk_line_ended(struct line *, struct entry *); /* its node is gone */
void hf__zk_line_list(struct line *, bool watch);
void hf__zk_line_decide(struct line *, bool fresh);
bool hf__zk_line_add(struct line *,
                     struct seat *); /* its node is there; false: no memory */
/* known: its node is gone, too */
void hf__zk_line_remove_seat(struct line *, const struct seat *, bool known);
void hf__zk_line_event(struct zk *, enum jute_event, const char *path, size_t len);
void hf__zk_line_down(struct zk *);
void hf__zk_line_up(struct zk *);
void hf__zk_line_watch_own(struct line *, struct seat *);
void hf__zk_line_look_again(struct line *);
void hf__zk_lines_look_again(struct zk *);   /* those where a seat of ours waits */
bool hf__zk_line_waits(const struct line *); /* a seat of ours waits there */
size_t hf__zk_line_path(const struct line *, char path[NODE_PATH_MAX], const char *node,
                        size_t len);
/* The tickets among the children, in order; false: no memory, or a cut answer. */
bool hf__zk_line_read(struct jute_in *children, struct entry ***ret, size_t *ret_n);
size_t hf__zk_line_holders(struct entry *const *, size_t n);
void hf__zk_line_free(struct entry **, size_t n);
/* Would a ticket hold if it joined now? 0, HF_EBUSY, HF_EMISMATCH, HF_ENOMEM */
int hf__zk_line_would_hold(struct jute_in *children, const struct ticket *,
                           struct form *head);

static inline struct seat *seat_of(struct request *q)
{
    return container_of(q, struct seat_request, q)->seat;
}

bool hf__zk_quiet_expected(const struct line *); /* a ticket needs no list, as a rule */
bool hf__zk_quiet_created(struct seat *);        /* nobody stands before it */
void hf__zk_quiet_left(struct seat *);
void hf__zk_quiet_event(struct zk *, const char *path, size_t len);
void hf__zk_quiet_forget(struct zk *); /* all, with the connection */

struct seat *hf__zk_seat_new(struct zk *, struct ticket *); /* NULL: no memory */
/* The core hears the last of it now. Returns the ticket. known: its node is gone. */
struct ticket *hf__zk_seat_out(struct seat *, bool known);
size_t hf__zk_seat_path(const struct seat *, char path[NODE_PATH_MAX]);
void hf__zk_seat_delete(struct seat *);
void hf__zk_seat_create(struct seat *, bool levels);
void hf__zk_seat_send_create(struct seat *, const char *node, size_t len, enum jute_mode,
                             bool levels,
                             void (*answer)(struct zk *, struct request *,
                                            struct jute_reply *));
void hf__zk_seat_created(struct seat *); /* its node is there */
void hf__zk_seat_find(struct seat *);
struct request *hf__zk_seat_request(struct seat *, void (*)(struct zk *, struct request *,
                                                            struct jute_reply *));
bool hf__zk_seat_answered(struct seat *); /* the first thing to do; false: nobody cares */
void hf__zk_seat_left(struct seat *, int rc);
void hf__zk_seat_granted(struct seat *);
void hf__zk_seat_waits(struct seat *, uint32_t position);
void hf__zk_seat_gone(struct seat *, int why, const hf_error *);
void hf__zk_seat_withdraw(struct seat *, int why);
void hf__zk_seat_marked(struct seat *);
void hf__zk_seat_watch_later(struct seat *);
void hf__zk_seat_later(struct timer *);
void hf__zk_seat_resume(struct seat *);
void hf__zk_seat_close(struct seat *);
void hf__zk_orphans_delete(struct zk *);
void hf__zk_orphans_end(struct zk *); /* nothing of them is left, or nobody to do it */
void hf__zk_mkdirs(struct zk *, const char *dir, size_t len);
/* An answer that says NO_NODE after the levels were made says why they were not. */
void hf__zk_no_level(const struct zk *, struct jute_reply *, bool tried);

void hf__zk_join(struct store *, struct ticket *);
void hf__zk_leave(struct store *, struct ticket *);
void hf__zk_amend(struct store *, struct ticket *);
void hf__zk_renew(struct store *, struct life *const *, size_t);

/* ---- ?mode=ephemeral (ephemeral.c) ----------------------------------------------- */

void hf__zk_alone_start(struct seat *); /* goes on with it, whatever its state */
void hf__zk_alone_event(struct line *, enum jute_event);
void hf__zk_alone_up(struct line *);

/* ---- what stands in a ticket's node (record.c) ----------------------------------- */

struct record {
    struct owner owner;
    unsigned char token[HF_TOKEN];
    bool has_token;
    int64_t pid, ttl_ms;
    uint64_t fence; /* 0: that of its node */
    bool ours, broken;
    char host[256], note[HF_NOTE_MAX + 1], hints[HF_HINTS_MAX * (HF_NAME_MAX + 1)];
    size_t hints_len;
};

enum { RECORD_MAX = 512 + 256 + HF_NOTE_MAX + 3 * HF_HINTS_MAX * (HF_NAME_MAX + 8) };
size_t hf__zk_record_write(char to[RECORD_MAX], const struct zk *, const struct ticket *,
                           uint64_t fence, bool broken);
void hf__zk_record_read(struct record *, const char *,
                        size_t); /* what cannot be read is empty */
size_t hf__zk_record_mark(char to[RECORD_MAX], const char *,
                          size_t); /* 0: not ours, too long */

/* ---- looking, cells, following (look.c, list.c, cell.c, follow.c) ---------------- */

void hf__zk_look(struct store *, struct look *);
void hf__zk_evict(struct store *, struct look *);
char *hf__zk_admin(const struct url *, hf_error *); /* admin.c */
void hf__zk_cell(struct store *, struct cell *);
void hf__zk_stop(struct store *, struct look *, struct cell *);
void hf__zk_brief(struct zk *, struct look *);
void hf__zk_list(struct zk *, struct look *);
void hf__zk_follow_start(struct zk *, struct look *, struct cell *);
void hf__zk_follow_event(struct zk *, const char *path, size_t len);

/* ---- the store ------------------------------------------------------------------- */

enum names { NAMES_CURATOR, NAMES_RW };

struct heard { /* a request: its sending, and its answer */
    int64_t sent_at, heard_at;
};

struct zk {
    struct store store;
    char root[ROOT_MAX];
    size_t root_len;
    enum names names;
    bool alone;          /* mode=ephemeral */
    char *login;         /* "user:password" of digest; NULL: none */
    struct opening open; /* its hosts are the servers */
    const char *shown;   /* of it */

    size_t server; /* of open.hosts: the present one */
    struct stream stream;
    struct link link;
    struct list dirty; /* link.on_dirty */
    unsigned char *in;
    size_t in_len, in_room;
    struct jute_out out; /* reused */
    int32_t xid;
    bool closing;
    bool shut; /* the session is to end, and no other to be made */

    struct jute_session session; /* id 0: none */
    int64_t last_zxid;
    int64_t since;     /* last_zxid when this connection was greeted */
    bool seen_nothing; /* the greeting did not say it; no watches are set yet */
    int64_t asked_ms;  /* the time-out that we ask for */
    struct life *life; /* of the session */
    struct life *old;  /* of sessions that are over: life.drv[0] is the next */
    int64_t greet_at;
    int64_t base_at;              /* see session.c */
    struct heard recent, earlier; /* requests of this connection */
    struct heard next; /* the base that was proved, when; it is to be confirmed */
    int64_t look_at;   /* when those that wait ask again */
    bool renew_asked;  /* the core waits for an answer */
    bool attach_now;   /* the connection is given up for a new one, not for a fault */
    bool asked_anew;   /* for another time-out than before */
    int32_t level_error;
    struct timer pulse, later;

    struct map lines; /* line.node, by dir */
    struct list all_lines;
    struct map quiet_lines; /* quiet.c */
    uint64_t hash_key[2];   /* for names */
    struct list quiets;
    size_t nquiet;
    struct list unwatched;
    struct list orphans;      /* seat.in_line: forgotten by the core, to be deleted */
    struct list looks, cells; /* follows: drv_node */
};

static inline struct zk *zk_of(struct store *s)
{
    return container_of(s, struct zk, store);
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
