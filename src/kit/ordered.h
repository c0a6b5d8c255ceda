/* ordered.h: tickets in stores in which nobody writes "granted" (ZooKeeper, etcd): every
 * client computes from the same ordered line who holds, and watches the tickets whose end
 * concerns it. The store carries out what stands in struct ordered_ops and reports what it
 * was told with the functions at the end of this file.
 *
 *   ordered   one client of a store        line   a line in which this client has seats
 *   entry     one ticket in the view of a line, ours or not
 *   seat      one ticket of ours, from its first request until the core has heard the last
 *             of it: (state, event) -> (state, effects), hf__seat_step
 *
 * States                                   What the store may have of the ticket
 *   NEW          nothing was sent          nothing
 *   UNSURE       nothing is under way      perhaps a node: a create was not answered
 *   TRYING       the line is being read    nothing
 *   FINDING      its node is looked for    perhaps a node; it will be adopted
 *   CREATING     create is under way       perhaps a node
 *   CREATED      what stands before it     a node
 *                is not known yet
 *   WAITING      all that stands before    a node
 *                it is in the view
 *   HELD                                   a node
 *   RENAMING     held; its node is being   a node, under the old name or the new one
 *                replaced by another
 *   WITHDRAWING  our own delete is under way: `why` is told when it is answered
 *   DOOMED       that delete was not answered: it is sent again when the store is back
 *   SEEKING      leave: its node is looked for, to be deleted
 *   ABORTING     leave: create is under way
 *   PARTING      leave: RENAMING
 *   DELETING     leave: delete is under way
 *   ORPHAN       the core was told, but the delete was refused: repeated as long as the
 *                session lives
 *   OVER         its session is over, and the node with it; the core will leave it
 *   OUT          nothing; forgotten
 *
 * Events, and what they do (others mean nothing in that state)
 *   JOIN         NEW: CREATING; UNSURE: FINDING; DOOMED: WITHDRAWING; CREATED: list;
 *   JOIN_TRY     WAITING, HELD: told again. JOIN_TRY in NEW: TRYING
 *   LEAVE        TRYING: left; NEW, UNSURE, FINDING: SEEKING; CREATING: ABORTING;
 *                CREATED, WAITING, HELD, DOOMED, WITHDRAWING: DELETING; RENAMING: PARTING;
 *                OVER: left
 *   LEAVE_DOWN   the store is unreachable: every one is left as unknown, but OVER: left
 *   LOST         the connection is lost, and no answer will come: TRYING: NEW; FINDING,
 *                CREATING: UNSURE; WITHDRAWING: DOOMED; those that leave: left as unknown
 *   UP           CREATED: list; WAITING, HELD: watch its own node; RENAMING: which name?;
 *                DOOMED: WITHDRAWING; ORPHAN: delete
 *   SESSION_OVER everything that rests: OVER; ORPHAN: OUT
 *   ROOM, NO_ROOM         TRYING: CREATING, refused
 *   MADE, NOT_MADE        CREATING: CREATED, refused; ABORTING: DELETING, left
 *   FOUND        FINDING: CREATED; SEEKING: DELETING
 *   FOUND_OLD    a node of an earlier session: FINDING: WITHDRAWING; SEEKING: DELETING
 *   FOUND_NONE   FINDING: CREATING; SEEKING: left
 *   NOT_FOUND    the store refused to say: FINDING: refused; SEEKING: left as unknown
 *   PLACED       CREATED: WAITING
 *   ADMITTED     WAITING: HELD
 *   GONE         its node is not there: CREATED, WAITING, DOOMED, FINDING: refused; HELD:
 *                lost; SEEKING: left. WITHDRAWING, DELETING: their answer says it
 *   WITHDRAW     CREATED, WAITING: WITHDRAWING
 *   MARKED       by `break`: CREATED, WAITING: WITHDRAWING; HELD, RENAMING: told
 *   DELETED      WITHDRAWING: `why` is told; DELETING: left; ORPHAN: OUT
 *   NOT_DELETED  WITHDRAWING: ORPHAN; DELETING: left as unknown
 *   RENAME       HELD: RENAMING
 *   RENAMED      the name is known: RENAMING: HELD; PARTING: DELETING
 *   RENAME_GONE  there is neither: RENAMING: lost; PARTING: left
 *
 * Why nobody holds who must not (G1)
 *
 * The holders are the longest prefix of the tickets, in the order of their numbers, that
 * fits in the capacity that the head ticket names; a ticket of another kind or capacity
 * than the head's counts as the whole capacity until its owner withdraws it. Everybody
 * computes the same from the same nodes.
 *
 * The view of a line is the sorted list of its tickets as the store listed them after our
 * own node was made (PLACED). So it has everything that stood before us: a later ticket
 * gets a greater number. From then on what stands before a seat only becomes less, with
 * one exception below; entries leave the view when the store has told of their end (an
 * event, or "not there"), or when we have ended them. A seat is admitted when it lies in
 * the prefix of the view: all that kept it out is known to be gone, for good. An entry
 * that is gone unseen only makes us wait for longer. Whether the session is still ours is
 * decided by its deadline.
 *
 * The exception: an exclusive ticket may become shared. Where that keeps its node (etcd),
 * the entry only becomes lighter. Where it makes another node with the same number in one
 * step (ZooKeeper), somebody else's exclusive entry that has gone is replaced in the view
 * by the name that it would have as shared, which is read before anything is decided by its
 * absence; where that name cannot be known the line is listed anew, and the view is stale,
 * that is decides nothing, until the list has come.
 *
 * A grant also needs that our own node was seen after everything before it had gone: a
 * list has shown it just now; or a watch on it is set, and events come in order
 * (ops.in_order), so that its end would have been told before the end that lets us in; or
 * it was read alone (ops.confirm), at a revision that is not before anything that the store
 * had told when that read was sent (ordered.revision). By then all that stood before it had
 * gone; from then on it holds until its own node ends. An older read proves nothing: the
 * node may have ended while others still stood before it, and then the next one holds.
 *
 * Or the event that lets it in shows its own node (hf__ordered_ended), without any read:
 * the store says that at revision E, at which the last ticket before it ended, its own node
 * was there. That is enough if all others before it had gone by E. Each of them has left
 * the view because of something that was told before: it ended not later than the greatest
 * revision that had been told by then, which is kept (line.gone; a ticket that became
 * lighter counts, too). So E >= line.gone proves it. If a ticket that only waited ends at E
 * and the holder ended later than that, but was heard of sooner, E is smaller, and the node
 * is read.
 *
 * Whom a waiting seat watches (G4), and why it is not forgotten: a set of entries before
 * it whose weights, with its own, exceed the capacity (hf__ordered_whom). While all of
 * them are there it cannot be admitted; when one ends it is told, takes the view, reads
 * what it has not seen of those before it, and watches the next set. An exclusive ticket
 * watches its predecessor, a shared one the nearest exclusive ahead, permits the nearest
 * ones that fill the capacity: so a ticket that ends is told to those that it may let in,
 * not to the whole line. Only where the set would be large the line itself is watched. */
#ifndef HF_KIT_ORDERED_H
#define HF_KIT_ORDERED_H

#include "seam/seam.h"

struct ordered;
struct ordered_line;
struct ordered_seat;

/* ---- the view of a line (ordered_view.c) ----------------------------------------- */

struct ordered_place { /* what counts of a ticket */
    int64_t seq;       /* its number: the order of the line */
    enum line_kind kind;
    int64_t weight, capacity;
};

enum ordered_watch { WATCH_NONE, WATCH_ASKED, WATCH_SET }; /* the store tells of its end */

enum { ORDERED_NAME_MAX = 1024 }; /* of our own nodes, with NUL */

/* Small, because a line may have ten thousand of them, and every client in it, too. It
 * stays where it is for as long as it is in the view. */
struct ordered_entry {
    int64_t seq;
    uint32_t weight, capacity;
    struct ordered_seat *seat; /* NULL: somebody else's */
    uint32_t own;              /* the store's own: what tells it of its end; 0: nothing */
    uint32_t len : 24;
    uint32_t kind : 1;  /* enum line_kind */
    uint32_t watch : 2; /* enum ordered_watch */
    uint32_t kept : 1;  /* the store's own: nobody's (struct row) */
    char name[];        /* the store's name of its node */
};

struct ordered_span {
    size_t from, to;
};

/* NULL: no memory */
struct ordered_entry *hf__ordered_entry(const struct ordered_place *, const char *name,
                                        size_t len);
void hf__ordered_entries_free(struct ordered_entry **, size_t n);
void hf__ordered_sort(struct ordered_entry **, size_t n);
bool hf__ordered_same_kind(const struct ordered_entry *, const struct ordered_entry *);
/* How many from the head hold. */
size_t hf__ordered_holders(struct ordered_entry *const *, size_t n);
/* What a row says of the line; there is at least one entry. */
struct row hf__ordered_row(const char *name, size_t len, struct ordered_entry *const *,
                           size_t n);
/* Entry i does not hold: while all of the span are there it cannot. */
struct ordered_span hf__ordered_whom(struct ordered_entry *const *, size_t i);
/* Would a ticket hold if it joined now? 0, HF_EBUSY, HF_EMISMATCH */
int hf__ordered_would_hold(struct ordered_entry *const *, size_t n, const struct ticket *);

struct ordered_line { /* a store's own struct starts with it */
    struct ordered *of;
    struct list all; /* ordered.lines */
    struct list seats;
    struct ordered_entry **entries; /* in the order of the line */
    size_t n, room;
    unsigned pins, lists; /* requests of the store about it, and lists of these */
    bool stale; /* the view lacks something: nothing is decided by it until a list comes */
    /* of the last list; where events are not in order with lists also of the last event:
     * an older list is not believed */
    uint64_t revision;
    uint64_t gone; /* whatever has left the view had ended by then */
    /* during hf__ordered_ended: its node was there when all before it had gone */
    const struct ordered_seat *shown;
    enum ordered_watch watch; /* of the line as a whole: any change */
};

struct ordered_entry *hf__ordered_find(const struct ordered_line *, int64_t seq,
                                       const char *name, size_t len);
/* The next one in the view, or NULL. */
struct ordered_entry *hf__ordered_after(const struct ordered_line *,
                                        const struct ordered_entry *);
bool hf__ordered_insert(struct ordered_line *, struct ordered_entry *); /* takes it */
void hf__ordered_cut(struct ordered_line *, struct ordered_entry *);    /* frees it */
void hf__ordered_empty(struct ordered_line *);                          /* all of them */
/* By a list; takes it. What was in the view and is in the list stays, with its watch and
 * its seat, and is as the list says. */
void hf__ordered_replace(struct ordered_line *, struct ordered_entry **, size_t n);

/* ---- a seat (ordered_seat.c) ------------------------------------------------------ */

enum seat_state {
    SEAT_NEW,
    SEAT_UNSURE,
    SEAT_TRYING,
    SEAT_FINDING,
    SEAT_CREATING,
    SEAT_CREATED,
    SEAT_WAITING,
    SEAT_HELD,
    SEAT_RENAMING,
    SEAT_WITHDRAWING,
    SEAT_DOOMED,
    SEAT_SEEKING,
    SEAT_ABORTING,
    SEAT_PARTING,
    SEAT_DELETING,
    SEAT_ORPHAN,
    SEAT_OVER,
    SEAT_OUT,
    SEAT_STATES
};

enum seat_event {
    SEAT_JOIN,
    SEAT_JOIN_TRY,
    SEAT_LEAVE,
    SEAT_LEAVE_DOWN,
    SEAT_LOST,
    SEAT_UP,
    SEAT_SESSION_OVER,
    SEAT_ROOM,
    SEAT_NO_ROOM,
    SEAT_MADE,
    SEAT_NOT_MADE,
    SEAT_FOUND,
    SEAT_FOUND_OLD,
    SEAT_FOUND_NONE,
    SEAT_NOT_FOUND,
    SEAT_PLACED,
    SEAT_ADMITTED,
    SEAT_GONE,
    SEAT_WITHDRAW,
    SEAT_MARKED,
    SEAT_DELETED,
    SEAT_NOT_DELETED,
    SEAT_RENAME,
    SEAT_RENAMED,
    SEAT_RENAME_GONE,
    SEAT_EVENTS
};

enum seat_effect {
    SEAT_DO_TRY = 1 << 0, /* of the store: ordered_ops */
    SEAT_DO_FIND = 1 << 1,
    SEAT_DO_CREATE = 1 << 2,
    SEAT_DO_ERASE = 1 << 3,
    SEAT_DO_CHECK = 1 << 4,
    SEAT_DO_LIST = 1 << 5,
    SEAT_DO_WATCH = 1 << 6, /* its own node */
    SEAT_KEEP_WHY = 1 << 7,
    SEAT_TELL_WAITING = 1 << 8, /* of the core: the events of the seam */
    SEAT_TELL_GRANTED = 1 << 9,
    SEAT_TELL_MARKED = 1 << 10,
    SEAT_TELL_GONE = 1 << 11, /* the last three: it is forgotten */
    SEAT_TELL_LEFT = 1 << 12,
    SEAT_TELL_UNKNOWN = 1 << 13
};
enum { SEAT_TELL_LAST = SEAT_TELL_GONE | SEAT_TELL_LEFT | SEAT_TELL_UNKNOWN };

/* Sets *state, returns effects. */
unsigned hf__seat_step(enum seat_state *state, enum seat_event);

struct ordered_seat { /* a store's own struct starts with it; also ticket.drv_ptr */
    struct ticket *t; /* NULL: the core has heard the last of it */
    struct ordered *of;
    struct ordered_line *line;   /* while it is in it */
    struct list in_line;         /* line.seats; none: it is only pinned */
    struct ordered_entry *entry; /* its entry in the view; NULL: none */
    struct list queue; /* the store's own until its node is there; then ordered.unwatched */
    enum seat_state state;
    int why;                 /* of WITHDRAWING and DOOMED */
    unsigned pins : 31;      /* requests of the store about it */
    unsigned confirming : 1; /* ops.confirm is under way */
    uint32_t position;       /* in the queue, as told last; 0: not told */
    uint64_t least;          /* an older answer to the confirm proves nothing */
    uint64_t fence;          /* the revision of its create */
};

/* ---- what the store does ----------------------------------------------------------- */

enum ordered_other { OTHER_NONE, OTHER_NAMED, OTHER_UNKNOWN };

/* Each request is answered once with the function or event named beside it, or, when the
 * connection is lost, not at all: then hf__ordered_down is called. Nothing is answered
 * inside. What cannot be sent for want of memory gives the connection up. */
struct ordered_ops {
    /* Events come in the order of the answers, and none is lost while the connection
     * stands. If not, a list must show a node before its ticket is granted. */
    bool in_order;
    /* A seat in its line, all zero else; NULL: no memory. free: also of half of one. */
    struct ordered_seat *(*seat)(struct ordered *, struct ticket *);
    void (*seat_free)(struct ordered_seat *);
    void (*line_free)(struct ordered_line *);
    /* The name of its node, which is there; returns the length */
    size_t (*name)(const struct ordered_seat *, char name[ORDERED_NAME_MAX]);
    /* ROOM, NO_ROOM. May be NULL: `create` itself makes nothing where a try would not
     * hold, and answers NOT_MADE */
    void (*try)(struct ordered_seat *);
    void (*find)(struct ordered_seat *);   /* FOUND..., NOT_FOUND, GONE */
    void (*create)(struct ordered_seat *); /* MADE, NOT_MADE */
    /* DELETED, NOT_DELETED. placed: all that stood before it was known */
    void (*erase)(struct ordered_seat *, bool placed);
    void (*check)(struct ordered_seat *); /* RENAMED, RENAME_GONE; may be NULL */
    /* of all tickets; watch: and of every change of the line. hf__ordered_listed */
    void (*list)(struct ordered_line *, bool watch);
    /* Reads one, and is told of its end or change. hf__ordered_seen. false: it cannot be
     * read by itself: watch the line */
    bool (*watch)(struct ordered_line *, struct ordered_entry *);
    /* One with `own` leaves the view; NULL: there are none */
    void (*unwatch)(struct ordered_line *, struct ordered_entry *);
    /* An exclusive ticket of somebody else's is not there: may it stand in line as shared?
     * OTHER_NAMED: as *ret, malloc'ed. May be NULL: never under another name. */
    enum ordered_other (*other)(const struct ordered_entry *, struct ordered_entry **ret);
    /* Reads the node of a seat that would hold, alone. hf__ordered_confirmed. strict: what
     * it is now; else the answer may be old. May be NULL: the line is listed */
    void (*confirm)(struct ordered_seat *, bool strict);
    /* What a grant counts from (seam.h); may be NULL: what its life does. */
    int64_t (*sent_at)(struct ordered *);
    void (*explain)(const struct ordered_seat *, int why, hf_error *);
    void (*no_memory)(struct ordered *); /* gives the connection up, not inside */
};

struct ordered {
    const struct ordered_ops *ops;
    struct store *store;
    struct list lines;
    /* seats whose nodes are to be watched: when the timer fires, and the next time */
    struct list unwatched, fresh;
    struct timer later;
    uint64_t revision; /* where events are not in order: the greatest that was told, of
                          whatever; hf__ordered_told */
    bool up, closing;
};

void hf__ordered_init(struct ordered *, const struct ordered_ops *, struct store *);
void hf__ordered_close(struct ordered *); /* tells nothing; requests are gone already */
void hf__ordered_line_init(struct ordered *, struct ordered_line *);
void hf__ordered_line_drop(struct ordered_line *);        /* frees it if nobody needs it */
void hf__ordered_line_unpin(struct ordered_line *);       /* one of `pins`; may free it */
bool hf__ordered_line_waits(const struct ordered_line *); /* a seat of ours waits there */

/* ---- verbs of the core ------------------------------------------------------------- */

void hf__ordered_join(struct ordered *, struct ticket *);
void hf__ordered_leave(struct ordered *, struct ticket *);

/* ---- what the store was told ------------------------------------------------------- */

/* Requests under way hold a seat or a line in memory. unpin is the first thing to do with
 * an answer; false: nobody cares any more. */
void hf__ordered_pin(struct ordered_seat *);
bool hf__ordered_unpin(struct ordered_seat *);

/* An answer that is an event of the seat, and its reason. */
void hf__ordered_step(struct ordered_seat *, enum seat_event, int why, const hf_error *);
/* MADE, FOUND: its node is there; its name is known, its fence set. placed: nothing can
 * stand before it that is not in the view; fresh: and it has just been seen after all that.
 */
void hf__ordered_there(struct ordered_seat *, enum seat_event, const struct ordered_place *,
                       bool placed, bool fresh);
/* Takes the entries, sorted or not. revision: everything up to it is in them, so a seat
 * that was made later is not decided by it. */
void hf__ordered_listed(struct ordered_line *, struct ordered_entry **, size_t n,
                        uint64_t revision, bool watch);
void hf__ordered_not_listed(struct ordered_line *, int rc, bool watch);
/* One that was counted in `lists` does not come, as it was part of a request that did
 * nothing: whoever relied on it gets another. */
void hf__ordered_unlisted(struct ordered_line *);
enum ordered_seen {
    SEEN_THERE,   /* and watched */
    SEEN_GONE,    /* also the event */
    SEEN_CHANGED, /* the event: it may be lighter, or marked */
    SEEN_MARKED,  /* there, ours, and marked by `break` */
    SEEN_FOREIGN, /* there, ours by name, of another session */
    SEEN_REFUSED
};
/* weight: of one that is there; 0: as it was */
void hf__ordered_seen(struct ordered_line *, struct ordered_entry *, enum ordered_seen,
                      int64_t weight);
/* SEEN_GONE by an event that also says that the node of that seat was there when the other
 * one ended, at that revision. */
void hf__ordered_ended(struct ordered_line *, struct ordered_entry *,
                       const struct ordered_seat *shown, uint64_t revision);
/* It has become shared. */
void hf__ordered_lighter(struct ordered_line *, struct ordered_entry *, int64_t weight);
/* Before what an answer or an event says is made use of. */
static inline void hf__ordered_told(struct ordered *o, uint64_t revision)
{
    if (revision > o->revision)
        o->revision = revision;
}
/* rc < 0: it was refused. False: it is not there, and the store says what follows. */
bool hf__ordered_confirmed(struct ordered_seat *, int rc, bool there, uint64_t revision);
void hf__ordered_line_changed(struct ordered_line *, bool gone); /* the event */
/* RENAMED: its name is that of the node. */
void hf__ordered_renamed(struct ordered_seat *, const struct ordered_place *);

void hf__ordered_list(struct ordered_line *); /* unless one is under way */
void hf__ordered_decide(struct ordered_line *, bool fresh);
void hf__ordered_down(struct ordered *); /* every request is answered or will not be */
/* Old requests are impossible, watches are set again, and what they had to tell was told.
 */
void hf__ordered_up(struct ordered *);
void hf__ordered_over(struct ordered *);        /* the session, while down */
void hf__ordered_look_again(struct ordered *);  /* the safety look (G4) */
void hf__ordered_erase_again(struct ordered *); /* the orphans */

#endif
