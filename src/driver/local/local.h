/* local.h: the embedded driver's own objects.
 *
 *   folder  the directory with `gate` and `store`
 *   gate    a page of shared memory with the one mutex through which everybody enters
 *           the store
 *   shared  what one process has of one folder: gate, LMDB environment, process number;
 *           counted
 *   local   one client's view: its tickets, its wake pipe, the processes it watches
 *   verb    a request of the core, or work of our own, that may have to wait for the gate
 *   tx      one entry: gate held, one LMDB write transaction open
 *
 * Who may touch what: `gate`, `env` and everything in `shared` marked "gate" only by the
 * thread that is inside the gate; `local` only under its client's lock; the table of
 * shareds and the list of descriptors under the table's mutex.
 */
#ifndef HF_LOCAL_H
#define HF_LOCAL_H

#include "driver/local/record.h"
#include "seam/seam.h"

#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* ---- gate ------------------------------------------------------------------------ */

enum { GATE_FORMAT = 2, GATE_MARKS = 1024, GATE_GRANTS = 128, GATE_LIVE = 1 };
#define GATE_MAGIC "holdfst\n"

/* The last grant to any of the members that share the slot; see wake.c. */
struct grant {
    uint64_t turn; /* odd: is being written, or whoever wrote it was killed */
    uint64_t process, member;
    uint64_t token[HF_TOKEN / 8];
    uint64_t fence, expires_at;
    uint64_t zero; /* up to the size of a cache line */
};

struct gate { /* the file `gate`, mapped shared */
    char magic[8];
    uint32_t format;
    uint32_t layout; /* of the mutex: another C library cannot use it */
    unsigned char boot[16];
    uint64_t pid_ns, time_ns; /* inode numbers; 0: the kernel has none */
    unsigned char id[16];     /* also in the store: the two belong together */
    uint32_t state;           /* GATE_LIVE; else replaced by a new one */
    uint32_t inside;          /* pid of the process that is, or was last, inside */
    uint64_t map_size;        /* of the store; its file has that much reserved */
    uint64_t commit;          /* the last LMDB transaction that counts */
    uint64_t next_process, next_line, next_version;
    uint64_t followers; /* at least as many as there are */
    pthread_mutex_t mutex;
    uint64_t marks[GATE_MARKS]; /* the last fence of the names in each bucket */
    _Alignas(64) struct grant grants[GATE_GRANTS];
};

struct place { /* what must be equal for two processes to share a gate */
    unsigned char boot[16];
    uint64_t pid_ns, time_ns;
};

struct shared;
struct local;

int hf__local_place_here(struct place *, hf_error *);
uint32_t hf__local_gate_layout(void);
int hf__local_gate_init(struct gate *, const struct place *);
bool hf__local_gate_sound(const struct gate *);
/* HF_EBUSYSTORE: it stayed closed, for which hf__local_gate_blocked has the text. */
int hf__local_gate_try(struct shared *, int64_t wait_ms, hf_error *);
/* names the process that is inside */
int hf__local_gate_blocked(struct shared *, hf_error *);
int hf__local_gate_enter(struct shared *, int64_t limit_ms, hf_error *); /* with the text */
void hf__local_gate_leave(struct shared *);
struct timespec hf__local_in_ms(int64_t ms); /* of CLOCK_MONOTONIC */

/* ---- shared ---------------------------------------------------------------------- */

struct arena_chunk;

struct shared {
    struct list node; /* in the table */
    unsigned refs;    /* table */
    bool busy;        /* table: one thread is entering or leaving the folder */
    dev_t dev, root_dev;
    ino_t ino, gate_ino, store_ino, root_ino;
    char *path;
    bool group;    /* ?share=group */
    bool existing; /* not to be made */
    gid_t gid;
    int dirfd, storefd;
    int rootfd; /* "/", where the path begins, also after a chroot */
    struct gate *gate;
    struct place place;
    uint32_t pid;
    uint64_t start;   /* our own start time */
    bool sees_others; /* /proc numbers processes as we do */
    char host[256];
    _Atomic bool forked;        /* we are the child: hands off */
    _Atomic int64_t checked_at; /* when the path was last seen to be ours */
    /* gate: */
    MDB_env *env;
    int envfd; /* LMDB's own, while env is open */
    size_t mapped;
    uint64_t process; /* our number; 0: none yet */
    uint64_t next_member, next_life;
    int lifefd;
    struct local_line line; /* scratch */
    struct arena_chunk *arena, *arena_now;
};

int hf__local_shared_get(struct shared **, const struct url *, hf_error *);
void hf__local_shared_put(struct shared *);
void hf__local_fd_keep(int fd); /* closed in a forked child */
void hf__local_fd_forget(int fd);
void hf__local_fd_close(int fd); /* takes -1 */

/* ---- folder ---------------------------------------------------------------------- */

/* FIRST: /run/lock has 5 MiB on many systems, for all users. */
enum { STORE_FIRST = 1 << 18, STORE_PATH = 64 };

void hf__local_folder_default(char *, size_t);
/* dirfd, dev, ino */
int hf__local_folder_open(struct shared *, const struct url *, hf_error *);
/* blocks: for what another process ends in a moment */
void hf__local_folder_pause(int64_t us);
int hf__local_folder_enter(struct shared *, int64_t limit_ms, hf_error *); /* gate, env */
int hf__local_folder_build(struct shared *, hf_error *);
int hf__local_folder_rehome(struct shared *, int64_t limit_ms, hf_error *);
bool hf__local_folder_held(const struct shared *); /* our descriptors are still our own */
/* the path still leads to what we have open, as far as we may look */
bool hf__local_folder_same(struct shared *);
void hf__local_folder_name(const struct shared *, char path[STORE_PATH], const char *file);
int hf__local_file_own(const struct shared *, int fd); /* mode and group of a new file */

/* ---- store ----------------------------------------------------------------------- */

struct key {
    unsigned char bytes[512];
    size_t len;
    uint64_t hash;    /* of the full name */
    const char *full; /* the full name, if the key does not hold it */
    size_t full_len;
    char text[2 * HF_NAME_MAX + 2];
};

/* The tables, each a first byte of the keys of LMDB's main database: a table of its own
 * would cost one more page to copy in every transaction. */
enum table {
    TABLE_ID = 'I',      /* -> gate.id */
    TABLE_PROCESS = 'P', /* process -> process_fix */
    TABLE_LINE = 'L',    /* full name -> line */
    TABLE_QUEUE = 'Q',   /* line id, seq -> waiter */
    TABLE_LIFE = 'V',    /* process, life -> life_fix */
    TABLE_INBOX = 'M',   /* process, member, kind, token -> inbox_fix */
    TABLE_CELL = 'C',    /* full name -> cell */
    TABLE_FOLLOW = 'F'   /* hash of full name, table, process, member -> nothing */
};

enum { TX_READ = 1 }; /* a body's answer: nothing is to be written */
enum { DB_NONE = 1 }; /* no such record */

struct tx {
    struct shared *sh;
    struct local *ls; /* NULL while opening */
    MDB_txn *txn;
    int64_t now;
    hf_error *err;
    bool dirty;
    uint64_t unfollowed; /* subtracted from gate->followers once this is committed */
};

typedef int tx_body(struct tx *, void *arg);

/* Enters the gate, runs the body in a transaction, commits if it returned 0 and wrote. A
 * body may run twice (the map grew): it must start anew each time. `adds`: it may need
 * room that a full store does not have. Returns 0 or HF_E*; HF_EBUSYSTORE, without a text:
 * the gate is closed, the body has not run. */
int hf__local_tx_run(struct local *, tx_body *, void *arg, bool adds, hf_error *);
int hf__local_tx_once(struct shared *, struct local *, tx_body *, void *arg, bool adds,
                      hf_error *); /* the gate is ours; makes no room */
int hf__local_tx_inside(struct shared *, struct local *, tx_body *, void *arg, bool adds,
                        hf_error *); /* the gate is ours */
void *hf__local_tx_copy(struct tx *, const void *,
                        size_t); /* valid until the body ends; or NULL */

/* maps what gate->map_size says; inside the gate */
int hf__local_db_open(struct shared *, hf_error *);
void hf__local_db_close(struct shared *);
int hf__local_db_create(struct shared *, const char *path, const unsigned char *id,
                        hf_error *);
int hf__local_db_rollback(struct shared *, hf_error *);
int hf__local_db_reserve(int fd, size_t from, size_t size); /* 0 or errno */
void hf__local_arena_done(struct shared *);
int hf__local_db_error(hf_error *, const struct shared *, int mdb);
/* 0, DB_NONE, HF_E* */
int hf__local_db_get(struct tx *, const void *key, size_t len, MDB_val *);
int hf__local_db_put(struct tx *, const void *key, size_t len, size_t size, void **room);
int hf__local_db_del(struct tx *, const void *key, size_t len); /* 0, DB_NONE, HF_E* */
int hf__local_db_del_prefix(struct tx *, const void *prefix, size_t len);

struct scan { /* the records whose key starts with a prefix, in order */
    struct tx *tx;
    MDB_cursor *cursor;
    unsigned char prefix[512];
    size_t plen;
    MDB_val key, value;
};

int hf__local_scan_open(struct scan *, struct tx *, const void *prefix, size_t len);
int hf__local_scan_first(struct scan *);                             /* 0, DB_NONE, HF_E* */
int hf__local_scan_from(struct scan *, const void *key, size_t len); /* at or after */
/* the last one before */
int hf__local_scan_before(struct scan *, const void *key, size_t len);
int hf__local_scan_next(struct scan *);
/* the present one; then hf__local_scan_next goes on */
int hf__local_scan_del(struct scan *);
void hf__local_scan_close(struct scan *);

int hf__local_check_header(const struct shared *, int fd, hf_error *);
int hf__local_check_tree(const struct shared *, int fd, hf_error *);
int hf__local_meta_forget(int fd, uint64_t after); /* invalidates a newer meta page */

/* Keys: a table byte and big-endian numbers. */
enum { KEY_PROCESS = 9, KEY_QUEUE = 17, KEY_LIFE = 17, KEY_INBOX = 34, KEY_FOLLOW = 26 };
size_t hf__local_key_numbers(unsigned char *, enum table, const uint64_t *, size_t n);
uint64_t hf__local_key_number(const unsigned char *); /* of 8 bytes */
bool hf__local_key_cut(const struct key *);           /* the record must hold the name */
void hf__local_key_name(struct key *, enum table, const char *ns, const char *name,
                        size_t len);

/* ---- lines ----------------------------------------------------------------------- */

int hf__local_line_load(struct tx *, const struct key *, struct local_line **);
int hf__local_line_save(struct tx *, const struct key *, struct local_line *);
int hf__local_line_clean(struct tx *, struct local_line *); /* drops dead holders */
int hf__local_line_step(struct tx *, const struct key *, struct local_line *);
/* Tells the first that waits to look again: whom to watch, and which hold ends first. */
int hf__local_head_look(struct tx *, const struct local_line *);
/* The hold goes on without its owner, for so long from now. */
int hf__local_line_keep(struct tx *, const struct local_line *, struct local_holder *,
                        int64_t keep_ms);
/* 0: the marks are damaged */
uint64_t hf__local_line_fence(struct tx *, const struct key *);
int hf__local_alive(struct tx *, uint64_t process); /* 1, 0 or HF_E* */
int hf__local_waiter_alive(struct tx *, const struct local_waiter *, struct life_fix *);
int hf__local_queue_get(struct tx *, uint64_t line, uint64_t seq, struct local_waiter *);
int hf__local_queue_first(struct tx *, const struct local_line *, struct local_waiter *);
int hf__local_queue_before(struct tx *, const struct local_line *, uint64_t seq,
                           struct local_waiter *);
int hf__local_queue_put(struct tx *, const struct local_line *,
                        const struct local_waiter *);
/* tells the successor */
int hf__local_queue_remove(struct tx *, struct local_line *, uint64_t seq);
int hf__local_life_put(struct tx *, uint64_t life, int64_t ttl_ms);
int hf__local_life_get(struct tx *, uint64_t process, uint64_t life, struct life_fix *);
int hf__local_life_del(struct tx *, uint64_t life);

/* What a waiting ticket sees ahead of it. */
struct queue_ahead {
    bool first;
    uint32_t position;   /* 0: not known */
    int64_t earliest_at; /* expiry among the holders; only if first */
};
int hf__local_queue_ahead(struct tx *, struct local_line *, struct local_waiter *,
                          struct queue_ahead *);
int hf__local_queue_join(struct tx *, struct local_line *, struct local_waiter *,
                         struct queue_ahead *);

/* ---- inbox ----------------------------------------------------------------------- */

enum inbox_kind {                 /* in the order in which they are to be read */
                  INBOX_LOOK = 1, /* look again whom to watch */
                  INBOX_GRANTED,  /* value: fence; and the expiry that the hold has */
                  INBOX_MARKED,
                  INBOX_EVICTED,
                  INBOX_CHANGED, /* value: hash of the name; token: its table byte */
                  INBOX_EXPIRED  /* a note of our own only */
};

struct note { /* news for a ticket of our own, told after the gate is left */
    enum inbox_kind kind;
    unsigned char token[HF_TOKEN];
    struct inbox_fix fix;
};

/* What goes through a wake pipe. */
struct wake {
    uint64_t kind; /* INBOX_GRANTED: this is it; 0: see the inbox */
    unsigned char token[HF_TOKEN];
    struct inbox_fix fix;
};

struct poke {
    uint64_t process, member;
    struct wake wake;
};

struct stale {                     /* a record of ours that nobody needs any more */
    uint64_t life;                 /* its number; 0: it is the entry of a grant */
    unsigned char token[HF_TOKEN]; /* to this ticket */
};

int hf__local_tell(struct tx *, uint64_t process, uint64_t member, enum inbox_kind,
                   const unsigned char *token, uint64_t value, int64_t expires_at);
int hf__local_note(struct tx *, enum inbox_kind, const unsigned char *token, uint64_t value,
                   int64_t expires_at); /* for a ticket of our own */
int hf__local_tell_followers(struct tx *, enum table, uint64_t hash);
int hf__local_inbox_read(struct tx *); /* moves our inbox into notes */
/* a body: hf__local_poke will wake every member with an entry */
int hf__local_poke_unread(struct tx *, void *);
int hf__local_inbox_forget(struct tx *, enum inbox_kind, const unsigned char *token);
void hf__local_hear(struct local *, const struct note *);
/* hf__local_poke, and tells our own; not inside the gate */
void hf__local_deliver(struct local *);

int hf__local_wake_open(struct local *, hf_error *); /* the wake pipe and our number */
void hf__local_wake_close(struct local *);
void hf__local_wake_rest(struct local *);   /* reads what a grant has left in our pipe */
void hf__local_grants_show(struct local *); /* inside the gate, after the commit */
void hf__local_poke(struct local *);        /* wakes the others; best outside the gate */

/* ---- processes ------------------------------------------------------------------- */

struct seen { /* a process that stands in our way */
    uint64_t process;
    struct process_fix fix;
};

struct peer {
    struct map_node node; /* by process */
    struct list idle;     /* in local->idle while refs is 0 */
    struct local *ls;
    uint64_t process;
    uint32_t pid;
    uint64_t start;
    unsigned refs;
    int pidfd, guardfd; /* guardfd: connected to the life socket of a dead process */
    struct watch watch;
};

struct post { /* whom a waiting ticket (ticket.drv_ptr) or a follower watches */
    size_t n;
    struct peer *peers[];
};

/* gives this process its number */
int hf__local_process_register(struct local *, hf_error *);
/* before the last client goes */
void hf__local_process_end(struct shared *);
int hf__local_process_socket(struct local *, hf_error *);
/* Of a dead process: a guard has its life socket (*fd: connected to it, or -1: that could
 * not be done now). false is for ever: nobody has it, nobody will. */
bool hf__local_guarded(const struct shared *, uint64_t process, int *fd);
uint64_t hf__local_process_start(const struct shared *, uint32_t pid); /* 0: not known */
int hf__local_seen_add(struct tx *, uint64_t process);
bool hf__local_peer_dead(struct local *, const struct seen *); /* for good */
int hf__local_remove_dead(struct local *, uint64_t process);
bool hf__local_remove_dead_seen(
    struct local *); /* the dead in local->seen; were there any? */
int hf__local_remove_dead_inside(struct tx *, uint64_t process);
void hf__local_remove_dead_files(const struct shared *,
                                 uint64_t process); /* but see collect.c */
/* Watches all in local->seen; returns a dead one that is to be removed, or 0. */
uint64_t hf__local_post_set(struct local *, struct post **);
void hf__local_post_clear(struct local *, struct post *); /* takes NULL */
bool hf__local_post_has(const struct post *, const struct peer *);
void hf__local_peers_done(struct local *);
int hf__local_collect(struct shared *, int64_t now,
                      hf_error *); /* inside the gate; now 0: no clock */
/* The pipes and sockets of all processes, or (tx) of those that have no record. */
int hf__local_files_remove(const struct shared *, struct tx *);
enum { TIDY_EVERY = 64 };
void hf__local_tidy(struct local *); /* of each so many processes that enrol, by one */

/* ---- verbs that wait for the gate: deferred.c ------------------------------------ */

/* One kind of request. `of`: the ticket, look, cell or follow that it is about. */
struct verb {
    /* 0: done and answered. HF_EBUSYSTORE: the gate is closed; nothing was told about `of`,
     * which still exists, and the same call may be made again. */
    int (*run)(struct local *, void *of);
    /* Answers that it could not be done; NULL: nobody waits for an answer. */
    void (*fail)(struct local *, void *of, int rc, const hf_error *);
    int64_t (*limit_ms)(const struct local *, const void *of); /* NULL: no limit */
    void (*drop)(void *of); /* frees what is ours alone; NULL: nothing is */
    bool of_ticket;
};

struct deferred; /* a verb that waits; at most one for each `of` */

int hf__local_enter(struct local *, hf_error *); /* 0, HF_EBUSYSTORE or HF_E* */
/* until the gate is open */
void hf__local_defer(struct local *, const struct verb *, void *of);
void hf__local_defer_drop_ticket(struct ticket *);         /* without an answer */
void hf__local_defer_drop(struct local *, const void *of); /* of others than tickets */
bool hf__local_defer_has(const struct ticket *, const struct verb *);
void hf__local_defer_init(struct local *);
void hf__local_defer_done(struct local *);
void hf__local_defer_free(struct local *);                        /* memory only */
int64_t hf__local_gate_limit(const struct local *, const void *); /* the usual limit_ms */

/* ---- clients --------------------------------------------------------------------- */

enum { GATE_MS = 5000 };
enum { LEAST_TTL_MS = 100 };
enum { SENDERS = 16, LIVES_PER_ENTRY = 256, SEEN_IN_TRY = 64, STALE_MAX = 32 };

struct sender { /* the wake pipe of another member */
    uint64_t process, member;
    int fd, size;
};

struct wait { /* a LIFE_WAIT life: life.drv[1] points at it, life.drv[0] is its number */
    struct map_node node; /* by line and ttl; of the newest only */
    bool indexed;
    struct list all; /* in local->all_waits */
    unsigned pins;   /* in use further up: not to be freed */
    bool late;       /* its renewal waits for the gate */
    struct life *life;
};

struct local {
    struct store store;
    struct shared *sh;
    char *ns;
    int64_t gate_ms;
    uint64_t member;    /* 0: none yet */
    struct map tickets; /* by token: all that may be in line */
    struct map waits;
    uint64_t hash_key[2]; /* for names */
    struct map peers;
    struct list idle; /* peers that nobody needs now */
    size_t nidle;
    struct watch wake;
    int wakefd;
    bool unread; /* a grant was taken from its slot, its message is still in the pipe */
    unsigned char taken[HF_TOKEN]; /* by which ticket */
    struct sender senders[SENDERS];
    struct note *notes;
    size_t nnotes, notes_room;
    struct poke *pokes;
    size_t npokes, pokes_room;
    struct seen *seen; /* filled by a body for hf__local_post_set */
    size_t nseen, seen_room;
    struct list all_waits;
    struct stale *stale;
    size_t nstale, stale_room;
    struct list looks, cells; /* followed */
    struct list deferred;     /* deferred.node, in the order of their coming */
    bool shut;                /* the gate was closed: until `retry` nobody asks again */
    int64_t wait_ms;          /* how long one entry may wait for the gate */
    int64_t pause_ms;         /* between two tries */
    int64_t retry_at, end_at; /* when `retry` fires; the earliest limit in `deferred` */
    struct timer retry;
};

extern const struct hf_driver hf__driver_local;

/* Now, or deferred. */
static inline void run_verb(struct local *ls, const struct verb *v, void *of)
{
    if (ls->shut || v->run(ls, of) == HF_EBUSYSTORE)
        hf__local_defer(ls, v, of);
}

static inline struct wait *wait_of(const struct life *l)
{
    return (struct wait *)(uintptr_t)l->drv[1];
}

static inline struct local *local_of(struct store *s)
{
    return (struct local *)(void *)s;
}

/* ticket.drv: 0 line id, 1 seq + 1 (0: not queued as far as we know), 2 points at its
 * struct deferred. life.drv of a life of one ticket: 0 its renewal is late (renew.c) */
struct ticket *hf__local_ticket_find(struct local *, const unsigned char *token);
void hf__local_ticket_out(struct local *,
                          struct ticket *); /* forgets it: before ev_left, ev_gone */
void hf__local_ticket_granted(struct local *, struct ticket *, uint64_t fence,
                              int64_t expires_at);
void hf__local_ticket_in(struct local *, struct ticket *); /* remembers it */
void hf__local_attend(struct local *,
                      const unsigned char *token); /* looks for a waiting ticket */
/* our number and wake pipe, if not yet */
int hf__local_prepare(struct local *, hf_error *);
/* 0 or HF_ENOMEM */
int hf__local_room(void **array, size_t *room, size_t need, size_t size);

static inline uint64_t post_ticket(struct local *ls, struct ticket *t)
{
    struct post *post = t->drv_ptr;
    uint64_t corpse = hf__local_post_set(ls, &post);

    t->drv_ptr = post;
    return corpse;
}

int64_t hf__local_recheck_ms(const struct queue_ahead *, int64_t now);

struct wait *hf__local_wait_find(struct local *, const struct key *, int64_t ttl_ms);
struct wait *hf__local_wait_new(struct local *, int64_t ttl_ms); /* NULL: no memory */
void hf__local_wait_unindex(struct local *, struct wait *);      /* no newcomers */
/* for newcomers */
void hf__local_wait_index(struct local *, struct wait *, const struct key *);
/* frees it if no ticket is on it */
void hf__local_wait_drop(struct local *, struct life *);
void hf__local_wait_free(struct local *, struct wait *); /* takes NULL */
void hf__local_stale_add(struct local *, uint64_t life, const unsigned char *token);
int hf__local_stale_drop(struct tx *); /* inside the gate */

void hf__local_join(struct store *, struct ticket *);
void hf__local_leave(struct store *, struct ticket *);
void hf__local_amend(struct store *, struct ticket *);
void hf__local_evict(struct store *, struct look *);
void hf__local_renew(struct store *, struct life *const *, size_t n);
void hf__local_look(struct store *, struct look *);
void hf__local_cell(struct store *, struct cell *);
void hf__local_stop(struct store *, struct look *, struct cell *);

/* ---- following ------------------------------------------------------------------- */

struct local_follow { /* look.drv_ptr, cell.drv_ptr */
    enum table table;
    uint64_t hash;     /* 0: a list, every line */
    struct post *post; /* of a line: the processes that hold */
};

int hf__local_follow_start(struct local *, struct look *, struct cell *, hf_error *);
void hf__local_follow_stop(struct local *, struct local_follow *, struct list *node);
void hf__local_follow_changed(struct local *, enum table, uint64_t hash);
void hf__local_follow_death(struct local *, const struct peer *);

#endif
