/* etcd.h: the objects of the etcd driver and what its files offer each other.
 *
 * etcd    one opened store: what the URL said, one connection, leases, lines, watches
 * lease   a lease of etcd: the life of all tickets of one ttl
 * line    a line in which this client has seats, as kit/ordered.h keeps it, and its keys
 * seat    one ticket of ours, as kit/ordered.h keeps it, and its key
 * watch   something that the server tells us the changes of
 * job     an eviction, or what is done with a cell
 *
 * Reading order: wire.h, key.c, txn.c, session.c, lease.c, kit/ordered.h, watch.c, line.c,
 * ticket.c, amend.c.
 */
#ifndef HF_DRIVER_ETCD_ETCD_H
#define HF_DRIVER_ETCD_ETCD_H

#include "driver/etcd/wire.h"
#include "kit/opening.h"
#include "kit/ordered.h"
#include "kit/query.h"
#include "kit/ticket_record.h"
#include "net/tls.h"

struct etcd;

/* ---- keys (key.c) ------------------------------------------------------------------ */

enum { BASE_MAX = 1024, KEY_MAX = BASE_MAX + 3 * HF_NAME_MAX + 128, LEASES_MAX = 8 };

struct etcd_key {
    size_t len;
    char at[KEY_MAX];
};

int hf__etcd_base(struct etcd *, const struct url *, hf_error *);
void hf__etcd_line_key(struct etcd_key *, const struct etcd *, const char *name,
                       size_t len); /* of the line, with the slash at its end */
void hf__etcd_cell_key(struct etcd_key *, const struct etcd *, const char *name, size_t);
void hf__etcd_epoch_key(struct etcd_key *, const struct etcd *, int64_t lease);
void hf__etcd_key_add(struct etcd_key *, const char *, size_t);
/* The name of a ticket's key in its line. */
size_t hf__etcd_node(char *node, int64_t lease, uint64_t number); /* 40 bytes at most */
/* The name of the line of a key below the base; false: it is none. */
bool hf__etcd_line_name(const struct etcd *, const ProtobufCBinaryData *key, char *name,
                        size_t *ret_len);
void hf__etcd_token(unsigned char token[HF_TOKEN], const struct ticket_record *,
                    const char *node, size_t len);

static inline ProtobufCBinaryData hf__etcd_bytes(const void *at, size_t len)
{
    return (ProtobufCBinaryData){ len, (uint8_t *)(uintptr_t)at };
}

/* ---- transactions (txn.c) ---------------------------------------------------------- */

enum { TXN_COMPARES = 100, TXN_OPS = 3 };

struct etcd_txn {
    Hf__Etcd__TxnRequest request;
    Hf__Etcd__Compare compares[TXN_COMPARES], *compare[TXN_COMPARES];
    struct etcd_ops {
        Hf__Etcd__RequestOp ops[TXN_OPS], *op[TXN_OPS];
        Hf__Etcd__RangeRequest range[TXN_OPS];
        Hf__Etcd__PutRequest put;
        Hf__Etcd__DeleteRangeRequest delete;
        size_t n;
    } then, otherwise;
};

/* Of a range: everything that begins with the key. Keys and values are not copied. */
void hf__etcd_txn(struct etcd_txn *);
/* Takes the counts, and sends it. */
void hf__etcd_txn_send(struct etcd *, struct etcd_txn *, struct etcd_call *);
/* The key was created, or changed last, at that revision; 0: there is none. */
void hf__etcd_if_created(struct etcd_txn *, const struct etcd_key *, int64_t revision);
void hf__etcd_if_changed(struct etcd_txn *, const struct etcd_key *, int64_t revision);
void hf__etcd_if_none(struct etcd_txn *, const struct etcd_key *, char end[KEY_MAX]);
void hf__etcd_put(struct etcd_ops *, const struct etcd_key *, const void *, size_t,
                  int64_t lease);
void hf__etcd_get(struct etcd_ops *, const struct etcd_key *, char *end);
void hf__etcd_delete(struct etcd_ops *, const struct etcd_key *);
void hf__etcd_range(Hf__Etcd__RangeRequest *, const struct etcd_key *, char *end);
void hf__etcd_end_of(char *end, const struct etcd_key *);
const Hf__Etcd__RangeResponse *hf__etcd_range_at(const Hf__Etcd__TxnResponse *, size_t);

/* A call with a pointer of the driver's. NULL: no memory, the connection is given up. */
static inline struct etcd_call *hf__etcd_ask(struct etcd_conn *c, etcd_answered *answer,
                                             void *with)
{
    struct etcd_call *q = hf__etcd_call(c, answer, sizeof *q);

    if (q)
        q->with = with;
    return q;
}

/* ---- the connection (session.c) ---------------------------------------------------- */

/* What an answer says: 1: nothing, and nothing is to be done: the connection is lost, or is
 * given up here because nobody knows what has become of the request; 0; HF_E*: refused. */
int hf__etcd_result(struct etcd *, const struct etcd_answer *, hf_error *);
/* The same of a look or a cell: never 1. */
int hf__etcd_query_result(struct etcd *, const struct etcd_answer *, hf_error *);
int64_t hf__etcd_revision(const struct etcd_answer *); /* of one with GRPC_OK */
bool hf__etcd_no_lease(const struct etcd_answer *);    /* "requested lease not found" */
void hf__etcd_settled(struct etcd *); /* one of `unproved` has been answered */
void hf__etcd_next_member(struct etcd *);
void hf__etcd_shut(struct store *);
extern const struct link_events hf__etcd_events;

/* ---- leases (lease.c) -------------------------------------------------------------- */

struct etcd_lease {
    struct list node; /* etcd.leases, or etcd.old */
    struct etcd *of;
    struct life *life;
    int64_t id; /* 0: not granted yet */
    int64_t ttl_s;
    int64_t epoch;      /* what its creates compare; see lease.c */
    bool asked, proved; /* grant or proof under way; creates of before are impossible */
    bool dead;
    int64_t alive_at; /* sending of the last answered keep-alive */
    unsigned seats, idle;
    bool awaited; /* by a seat: its key is missing, or is to go there */
};

/* NULL: HF_ENOTSUP, too many, or HF_ENOMEM */
struct etcd_lease *hf__etcd_lease(struct etcd *, int64_t ttl_ms, hf_error *);
bool hf__etcd_lease_ready(struct etcd_lease *); /* else hf__etcd_lease_made comes */
void hf__etcd_lease_prove(struct etcd_lease *);
void hf__etcd_lease_over(struct etcd_lease *, bool revoke);
void hf__etcd_lease_check(struct etcd_lease *); /* does it live? hf__etcd_lease_lives */
bool hf__etcd_lease_late(const struct etcd_lease *);
void hf__etcd_leases_down(struct etcd *);
void hf__etcd_leases_tidy(struct etcd *);
void hf__etcd_leases_end(struct etcd *); /* revokes all, then ev_shut */
void hf__etcd_lease_free(struct etcd_lease *);
void hf__etcd_renew(struct store *, struct life *const *, size_t);
void hf__etcd_pulse(struct timer *);
void hf__etcd_pulse_later(struct etcd *);
/* One of its own, for a key that nobody renews. `answer`: of LeaseGrant */
void hf__etcd_grant(struct etcd *, struct etcd_call *, int64_t ttl_ms);
void hf__etcd_give_back(struct etcd *, int64_t id); /* nothing was put on it; 0: none */

/* ---- watches (watch.c) ------------------------------------------------------------- */

struct etcd_watch {              /* of a line or of one of its tickets */
    struct map_node node;        /* etcd.watches, by its id */
    struct etcd_line *line;      /* NULL: a follow */
    struct ordered_entry *entry; /* the ticket, whose `own` is the id; NULL: all of them */
    int64_t with;       /* the number of the next one, ours, which it also has; 0: none */
    bool created, told; /* by the server; told: an event */
    bool shows;         /* that one is there; see watch.c */
};

struct etcd_follow {
    struct etcd_watch watch;
    struct list all;   /* etcd.follows */
    struct look *look; /* or */
    struct cell *cell;
    void (*go_on)(void *with); /* when it has been created */
    void *with;
};

/* NULL: no memory, and the connection is given up. entry NULL: of the whole line */
struct etcd_watch *hf__etcd_watch(struct etcd_line *, struct ordered_entry *);
struct etcd_watch *hf__etcd_watch_of(const struct etcd *, int64_t id);
void hf__etcd_watch_end(struct etcd_watch *);
void hf__etcd_unwatch(struct ordered_line *, struct ordered_entry *);
void hf__etcd_watched(struct etcd_conn *, const Hf__Etcd__WatchResponse *);
void hf__etcd_watches_down(struct etcd *);
void hf__etcd_watch_probe(struct etcd *); /* then hf__etcd_settled */
/* Before it is read: the follow is watched. `go_on` is called now or later, not after
 * `stop`. */
void hf__etcd_follow(struct etcd *, struct look *, struct cell *, void (*go_on)(void *with),
                     void *with);
void hf__etcd_unfollow(struct etcd *, const struct look *, const struct cell *);

/* ---- lines and seats (line.c, ticket.c, amend.c); see kit/ordered.h ---------------- */

struct etcd_line {
    struct ordered_line line;
    struct map_node node; /* etcd.lines */
    struct etcd_watch *whole;
    struct list to_create; /* ordered_seat.queue: in the order of their joins */
    bool creating;         /* one of them is under way */
    bool list_due;         /* a list was asked for, and is not sent yet */
    size_t made;           /* tickets of ours since the last list */
    size_t key_len;
    char key[];
};

enum { SLOTS = 64 }; /* numbers that each connection uses again */

struct etcd_seat {
    struct ordered_seat seat;
    struct etcd_lease *lease; /* NULL: not known */
    struct etcd_lease *moves; /* where an amend puts it; NULL: nowhere */
    int64_t key_lease;        /* in the name of its key */
    uint64_t number;          /* likewise; 0: it has none yet */
    bool chosen : 1;          /* that number, by this seat */
    bool to_amend : 1;        /* when the lease is there, and was renewed */
    bool marked : 1;
    bool erased : 1; /* a plain delete was sent */
    bool tries : 1;  /* its create is to make nothing if it does not hold */
    bool lists : 1;  /* its create also reads the line */
};

struct etcd_ticket { /* lies in ticket.drv_all: of a seat that the core has not done with */
    int64_t key_lease; /* these two also when it has no seat, for who looks for its key */
    uint64_t number;
    int64_t mod;      /* the revision of its value, as last heard of */
    int64_t since;    /* ms since 1970 */
    int64_t gone_at;  /* its key was missed then for the first time; 0: never */
    int64_t moves_at; /* seat.moves must have been renewed since; see amend.c */
};
_Static_assert(sizeof(struct etcd_ticket) <= sizeof((struct ticket *)0)->drv_all,
               "it lies there");

extern const struct ordered_ops hf__etcd_ordered;

struct etcd_line *hf__etcd_line(struct etcd *, const char *name, size_t len);
void hf__etcd_line_free(struct ordered_line *);
void hf__etcd_line_list(struct ordered_line *, bool watch);
void hf__etcd_line_list_due(struct etcd_line *); /* sends it if it is time */
bool hf__etcd_line_watch(struct ordered_line *, struct ordered_entry *);
/* Takes the tickets of an answer, and `last`, which may be NULL. */
void hf__etcd_line_listed(struct etcd_line *, const Hf__Etcd__RangeResponse *,
                          struct ordered_entry *last, int64_t revision, bool watch);
void hf__etcd_line_key_of(const struct etcd_line *, struct etcd_key *, const char *node,
                          size_t len);
struct ordered_entry *hf__etcd_entry(const Hf__Etcd__KeyValue *,
                                     const struct ticket_record *, size_t dir_len);
/* The tickets among the keys of a line, and room for one more; NULL: no memory */
struct ordered_entry **hf__etcd_entries(const Hf__Etcd__RangeResponse *, size_t dir_len);
/* shows: see watch.c */
void hf__etcd_line_event(struct etcd_watch *, const Hf__Etcd__Event *, bool shows);
/* What a watch of a line is about. The keys are room for it. */
void hf__etcd_line_range(const struct etcd_watch *, Hf__Etcd__RangeRequest *,
                         struct etcd_key *from, struct etcd_key *end);
/* The next ticket is ours, waits, and nothing lies between their names: its number; or 0 */
int64_t hf__etcd_line_pair(const struct etcd_line *, const struct ordered_entry *);
void hf__etcd_line_watched(struct etcd_watch *); /* it has been created */
void hf__etcd_line_refused(struct etcd_watch *);
void hf__etcd_lines_down(struct etcd *);
void hf__etcd_lines_over(struct etcd *, struct etcd_lease *);
void hf__etcd_seat_missed(struct etcd_seat *); /* by a read, or an event */
void hf__etcd_seat_kept(struct etcd_seat *);   /* hangs on a lease that is not ours */
/* The lease has been granted or proved (0), or has not; or it lives on. */
void hf__etcd_lease_made(struct etcd_lease *, int rc, const hf_error *);
void hf__etcd_lease_lives(struct etcd_lease *);

struct etcd_call *hf__etcd_seat_call(struct etcd_seat *, etcd_answered *); /* pins it */
/* The seat of an answer, unpinned; NULL: nobody cares, or the connection is lost. *rc: as
 * hf__etcd_result */
struct etcd_seat *hf__etcd_seat_answered(struct etcd_conn *, struct etcd_call *,
                                         const struct etcd_answer *, int *rc, hf_error *);
size_t hf__etcd_seat_name(const struct ordered_seat *, char name[ORDERED_NAME_MAX]);
void hf__etcd_seat_key(const struct etcd_seat *, struct etcd_key *);
size_t hf__etcd_seat_value(const struct etcd_seat *, char value[RECORD_MAX], int64_t ttl_s,
                           int64_t kept_ms);
void hf__etcd_seat_not_made(struct etcd_seat *, int rc, const hf_error *);
void hf__etcd_numbers_lost(struct etcd *); /* with the connection */
void hf__etcd_create_next(struct etcd_line *);
void hf__etcd_amend_now(struct etcd_seat *);
void hf__etcd_join(struct store *, struct ticket *);
void hf__etcd_leave(struct store *, struct ticket *);
void hf__etcd_amend(struct store *, struct ticket *);

/* ---- looking, cells (job.c, look.c, evict.c, cell.c) --------------------------------- */

struct etcd_job { /* an eviction or a cell: several requests, one answer */
    struct query query;
    struct etcd *e;
    struct etcd_key key;
    int64_t lease; /* nothing was put on it yet; 0: none */
    int64_t mod;   /* of the ticket */
    unsigned tries;
    size_t len; /* of what is written */
    char value[RECORD_MAX];
};

/* NULL: no memory, and it was refused */
struct etcd_job *hf__etcd_job(struct store *, struct look *, struct cell *);
struct etcd_call *hf__etcd_job_ask(struct etcd_job *, etcd_answered *); /* NULL: ended */
void hf__etcd_job_end(struct etcd_job *, int rc, const hf_error *);     /* frees it */
void hf__etcd_job_fail(struct etcd_job *, int code, const char *text);

void hf__etcd_look(struct store *, struct look *);
void hf__etcd_evict(struct store *, struct look *);
void hf__etcd_cell(struct store *, struct cell *);
void hf__etcd_stop(struct store *, struct look *, struct cell *);

/* ---- the store --------------------------------------------------------------------- */

struct etcd {
    struct store store;
    struct opening open;
    struct etcd_conn conn;
    struct list dirty;
    size_t member;    /* of open.hosts: the present one */
    size_t visited;   /* of them: before the first UP, until an old release is found */
    bool old_release; /* an answer about a lease is not certain */
    bool seen;        /* it has been up */
    bool shut;
    bool refused; /* the last watch, for want of rights */
    bool keeps;   /* it keeps places: names are often taken */
    /* The numbers of keys: SLOTS after the first are used again, by this connection; the
     * other is the last that was chosen. See ticket.c */
    uint64_t slots, numbers;
    uint64_t cluster; /* its number; 0: not known */
    bool raw;         /* names=raw */
    size_t base_len;  /* before the names of lines: "", or with a slash at its end */
    char base[BASE_MAX + 2];

    struct list leases, old; /* etcd_lease.node; old: over, but not forgotten */
    struct timer pulse;
    size_t unproved; /* what is awaited before UP: leases, the read, the probe */

    struct ordered ordered;
    struct map lines, watches;
    uint64_t hash_key[2];
    struct list follows; /* etcd_follow.all */
    uint32_t watch_id;
};

static inline struct etcd *etcd_of(struct store *s)
{
    return container_of(s, struct etcd, store);
}

static inline struct etcd *etcd_in(struct ordered *o)
{
    return container_of(o, struct etcd, ordered);
}

static inline struct etcd *etcd_at(struct etcd_conn *c)
{
    return container_of(c, struct etcd, conn);
}

static inline struct etcd_line *etcd_line(struct ordered_line *l)
{
    return container_of(l, struct etcd_line, line);
}

static inline struct etcd_seat *etcd_seat(struct ordered_seat *s)
{
    return container_of(s, struct etcd_seat, seat);
}

static inline struct etcd_ticket *etcd_ticket(const struct ticket *t)
{
    return (struct etcd_ticket *)(void *)(uintptr_t)t->drv_all;
}

static inline struct etcd_lease *etcd_lease_of(const struct life *l) /* a LIFE_WIDE */
{
    return (struct etcd_lease *)(uintptr_t)l->drv[0];
}

static inline int64_t etcd_now(const struct etcd *e)
{
    return e->store.env->now(e->store.env);
}

static inline int64_t etcd_wall_ms(const struct etcd *e)
{
    return e->store.env->wall(e->store.env) / 1000;
}

extern const struct hf_driver hf__driver_etcd;

#endif
