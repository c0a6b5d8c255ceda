/* redis.h: the objects of the redis driver and what its files offer each other.
 *
 * redis    one opened store: what the URL said, the tickets, the nodes
 * node     one server: a connection for commands, and one for messages that is opened when
 *          a ticket first waits there
 * conn     one connection: a stream, a reader, and a link, which has the requests that
 *          are not answered, in order
 * request  one command on the wire, which can be built again (NOSCRIPT, MOVED, ASK)
 *
 * Reading order: lua/line.lua, lua/join.lua, conn.c, node.c, line.c, ticket.c, wait.c,
 * wake.c.
 */
#ifndef HF_REDIS_H
#define HF_REDIS_H

#include "driver/redis/script.h"
#include "kit/opening.h"
#include "kit/owner_record.h"
#include "kit/query.h"
#include "kit/scripted.h"
#include "kit/wire.h"
#include "net/tls.h"
#include "seam/seam.h"

#include <hiredis/hiredis.h>
#include <string.h>

struct redis;
struct node;
struct conn;
struct redis_call;

/* ---- commands on the wire (command.c) -------------------------------------------- */

struct command { /* RESP, being built */
    char *buf;
    size_t len, room;
    bool failed;  /* no memory */
    bool nothing; /* what it is about has gone: not sent */
};

void hf__redis_command_begin(struct command *, size_t args);
/* Begins it with these words, separated by spaces; so many arguments follow. */
void hf__redis_command_words(struct command *, const char *words, size_t more);
void hf__redis_command_arg(struct command *, const void *, size_t);
void hf__redis_command_text(struct command *, const char *);
void hf__redis_command_number(struct command *, int64_t);
/* For a struct request_type: nobody wants the answer. */
void hf__redis_answer_ignored(struct redis *, struct redis_call *, const redisReply *);

/* ---- keys (bucket.c) ------------------------------------------------------------- */

enum { BUCKETS = 1024, SLOTS = 16384, CLIENT_ID = 16, PREFIX_MAX = 420 };
enum { KEY_MAX = PREFIX_MAX + 16 + HF_NAME_MAX };

unsigned hf__redis_bucket(const char *name, size_t len);
static inline unsigned ticket_bucket(const struct ticket *t)
{
    return hf__redis_bucket(t->name, t->name_len);
}
unsigned hf__redis_bucket_slot(unsigned bucket);
/* "holdfast:NS:{3f1}:l:NAME"; kind l, w, q, c. Returns the length. */
size_t hf__redis_bucket_key(const struct redis *, char key[KEY_MAX], char kind,
                            const char *name, size_t len);
size_t hf__redis_bucket_mark(const struct redis *, char key[KEY_MAX], unsigned bucket);
/* What precedes the client in the name of the channel on which it is told. */
size_t hf__redis_bucket_wake(const struct redis *, char key[KEY_MAX], unsigned bucket);
/* The name in a key of kind l; NULL: not of ours. */
const char *hf__redis_bucket_name(const struct redis *, const char *key, size_t len,
                                  size_t *ret);
/* The namespace as it stands in keys: no '{', '}', ':', '%', '*', '?', '[', '\\'. */
int hf__redis_bucket_escape(char *dst, size_t size, const char *ns);

bool hf__redis_wants_redlock(const struct url *);      /* driver.c */
char *hf__redis_admin(const struct url *, hf_error *); /* admin.c */

/* ---- requests and connections (conn.c) ------------------------------------------- */

struct request_type {
    /* Appends the command; called again for every repetition. */
    void (*build)(struct redis *, struct redis_call *, struct command *);
    /* NULL: no answer will come (the connection is lost, or there is no way to the node).
     * The request is freed afterwards. */
    void (*answer)(struct redis *, struct redis_call *, const redisReply *);
    /* Of one bucket, by script: may be repeated elsewhere (MOVED, ASK, NOSCRIPT). */
    bool line;
    /* With replicas=N: does this answer grant or renew something? Then it waits for them
     * (confirm.c). NULL: never. */
    bool (*counts)(const redisReply *);
};

struct redis_call {
    struct link_call call;
    const struct request_type *type;
    void *about; /* the type's own: it stays until the answer */
    unsigned bucket;
    struct node *at; /* the node it was sent to; NULL: it waits to be sent */
    bool hopped;     /* it was sent on to another node, without a pause */
    bool text;       /* send the script itself, not its name */
    bool divisible;  /* TRYAGAIN is an answer: it can be asked in parts */
    /* While its answer waits for replicas: which, for how long, and whether the WAIT that
     * is under way counts for it. */
    redisReply *reply;
    int64_t until;
    bool counted;
    const hf_error *unsafe; /* with the answer: too few replicas have what it grants */
};

struct conn {
    struct node *node;
    struct stream stream;
    struct link link;
    redisReader *reader;
    const struct login *login; /* as whom; it may have none */
    bool confirms; /* of messages: a subscription was sent, and will be confirmed */
    void (*greet)(struct conn *);
    void (*lost)(struct conn *); /* after every request was answered NULL; may be NULL */
    void (*message)(struct conn *, const redisReply *);
};

void hf__redis_conn_init(struct conn *, struct node *);
void hf__redis_conn_done(struct conn *); /* nothing is told */
void hf__redis_conn_lose_all(
    struct node *); /* answers NULL to every request; before it is freed */
void hf__redis_conn_send(struct conn *, struct redis_call *);
void hf__redis_conn_flush(struct redis *);
void hf__redis_conn_later(struct timer *); /* repeats what a server wanted repeated later */
void hf__redis_conn_later_lost(struct redis *, int bucket); /* NULL for it; -1: for all */
struct redis_call *hf__redis_request_new(const struct request_type *, size_t size,
                                         unsigned bucket);
/* Makes a request and sends it: to the node of its bucket, or on this connection. Nothing
 * is answered inside. False: no memory. */
bool hf__redis_ask(struct redis *, const struct request_type *, void *about,
                   unsigned bucket);
bool hf__redis_ask_on(struct conn *, const struct request_type *, void *about);
/* For a request that must not wait: the connection is given up; after UP all is asked. */
void hf__redis_no_memory(struct redis *, unsigned bucket);
/* Tells the answer, and frees the request. */
void hf__redis_request_end(struct redis *, struct redis_call *, const redisReply *);
/* Tells that no answer will come, and that it is to be asked again. */
void hf__redis_request_lost(struct redis *, struct redis_call *);
/* To the node of its bucket. Nothing is answered inside; NULL soon if there is no way. */
void hf__redis_request_send(struct redis *, struct redis_call *);
/* EVALSHA or EVAL with so many keys and arguments to follow. */
void hf__redis_request_script(struct command *, const struct redis_call *, enum script_id,
                              size_t keys, size_t args);

/* A script about one line: its four keys, how to publish and where to. */
void hf__redis_line_script(struct redis *, struct command *, const struct redis_call *,
                           enum script_id, const char *name, size_t name_len, size_t args);

/* What an error reply means to the caller of a verb. */
int hf__redis_reply_error(const struct redis *, const redisReply *, hf_error *);
/* Lines of different slots cannot go in one script: remembered in redis.apart. */
bool hf__redis_reply_apart(struct redis *, const redisReply *);
int64_t hf__redis_reply_number(const redisReply *,
                               size_t i); /* of an array; 0 if it is none */
const char *hf__redis_reply_text(const redisReply *, size_t i); /* NULL if it is none */
bool hf__redis_reply_is(const redisReply *, size_t i, const char *text);

static inline bool reply_starts(const redisReply *reply, const char *word) /* an error */
{
    return reply && reply->type == REDIS_REPLY_ERROR &&
           strncmp(reply->str, word, strlen(word)) == 0;
}

static inline enum line_kind reply_kind(const redisReply *reply) /* its first */
{
    return hf__redis_reply_number(reply, 0) == LINE_PERMITS ? LINE_PERMITS : LINE_LOCK;
}

/* ---- nodes (node.c, greet.c, sentinel.c, cluster.c) ------------------------------ */

/* How a key is deleted if it has a certain value; what the server has. */
enum node_frees { FREES_BY_SCRIPT, FREES_BY_DELIFEQ, FREES_BY_DELEX };

struct node {
    struct redis *redis;
    struct list in_redis;
    char *host; /* NULL: a unix socket */
    char *path;
    uint16_t port;
    char shown[300];
    struct conn commands, messages;
    bool wanted, tried; /* in a cluster: the map names it; it was lost, or not reached */
    bool listen_wanted;
    bool asked_all;     /* since the messages were lost, the core asks about every hold */
    int64_t id, old_id; /* the server's name of our connection, and of the one before */
    struct echo echo;
    unsigned version;             /* 0x070000 */
    int64_t started_at;           /* on our clock; not after then */
    bool counts;                  /* a WAIT is under way */
    bool always;                  /* appendfsync always */
    unsigned warned;              /* WARN_*, of this run */
    bool aof, may_look, same_run; /* of the last greeting */
    enum node_frees frees;        /* redlock */
    char run_id[48];
};

struct node *hf__redis_node_new(struct redis *, const char *host, uint16_t port,
                                const char *path);
void hf__redis_node_free(struct node *);
void hf__redis_node_ready(struct node *); /* greeted */
/* Greeting went wrong: code, format ... */
#define hf__redis_node_fail(n, ...) hf__link_fail(&(n)->commands.link, __VA_ARGS__)
void hf__redis_node_listen(struct node *); /* subscribe, if it has not been done */
void hf__redis_node_move(struct node *, const char *host, uint16_t port);
/* From now on it is there; its connections are closed. */
void hf__redis_node_aim(struct node *, const char *host, uint16_t port);
struct node *hf__redis_node_of(struct redis *, unsigned bucket); /* NULL: none that is up */
void hf__redis_greet(struct conn *);                             /* commands */
void hf__redis_login(struct conn *);                             /* login.c */

/* In a cluster: messages of a slot stay at its node (SPUBLISH). Who publishes and who
 * subscribes both ask the node of the slot, so they agree while a cluster is upgraded. */
bool hf__redis_node_sharded(const struct node *);

/* What comes there while no request is unanswered is a message. */
static inline bool conn_hears(const struct conn *conn)
{
    return conn == &conn->node->messages;
}

static inline bool node_up(const struct node *n) /* greeted; old requests are impossible */
{
    return n->commands.link.state == LINK_UP;
}

int hf__redis_sentinel_start(struct redis *, hf_error *);
void hf__redis_sentinel_lost(
    struct redis *); /* the master is not to be reached: ask again */
void hf__redis_sentinel_done(struct redis *);

bool hf__redlock_up(struct redis *);
/* Why it is down; one: what the last node said. */
const hf_error *hf__redlock_why(const struct redis *, const hf_error *one, hf_error *all);
void hf__redlock_ready(struct node *);                     /* it is up, perhaps again */
void hf__redlock_cut(struct redis *, const struct node *); /* its connection was lost */
int hf__redlock_open(struct redis *, const struct url *, hf_error *);
void hf__redlock_close(struct redis *);

int hf__redis_cluster_start(struct redis *, hf_error *);
void hf__redis_cluster_done(struct redis *);
bool hf__redis_cluster_up(const struct redis *);
void hf__redis_cluster_ask_later(struct redis *); /* the map is old */
void hf__redis_cluster_ready(struct node *);
/* That of its slot, or NULL. It may be down. */
struct node *hf__redis_cluster_of(const struct redis *, unsigned bucket);
/* Something that was asked about a ticket of this bucket has no answer. */
void hf__redis_cluster_owes(struct redis *, unsigned bucket);
void hf__redis_cluster_read(struct redis *, const redisReply *, const struct node *teller);
/* Where "MOVED 3999 127.0.0.1:6381", or ASK, leads; NULL: not known. No host: that of the
 * server that says so. MOVED is believed at once. */
struct node *hf__redis_cluster_place(struct redis *, const struct node *teller,
                                     const char *text);

/* ---- tickets and waiting --------------------------------------------------------- */

/* The client's half is kit/scripted.c; these send for it (ticket.c, wait.c, renew.c). */
enum { LINES_PER_SCRIPT = 50 };
void hf__redis_send_join(struct scripted *, struct ticket *);
void hf__redis_send_leave(struct scripted *, struct ticket *);
void hf__redis_send_look(struct scripted *, struct wait_life *);
void hf__redis_send_renewal(struct scripted *, struct scripted_renewal *);
bool hf__redis_echoes(struct scripted *, const struct ticket *);
unsigned hf__redis_shard(struct scripted *, const struct ticket *);
/* A hold ends sooner: the first that waits is told to look. NULL: nothing is done. */
void hf__redis_tell_first(struct redis *, const struct ticket *);
void hf__redis_wait_look_all(struct redis *, int bucket); /* -1: of every bucket */

/* Ends a request whose answer, in .reply, counts on replicas: when enough of them have what
 * it has written, or that is given up (confirm.c). */
void hf__redis_confirm(struct redis *, struct redis_call *);

void hf__redis_wake(struct conn *, const redisReply *); /* a message came */
void hf__redis_wake_say(struct conn *, const char *word, const char *channel, size_t);
void hf__redis_wake_greet(struct conn *);
void hf__redis_wake_holder(struct redis *, const struct ticket *); /* it has been granted */
void hf__redis_wake_holders(struct timer *);
void hf__redis_wake_again(struct redis *, struct node *,
                          unsigned bucket); /* it has moved there */
/* Subscribes to the bucket's channel, then re-checks every waiter in that bucket. */
void hf__redis_wake_listen(struct redis *, unsigned bucket);
void hf__redis_wake_channel(struct redis *, unsigned bucket, const char *channel, size_t,
                            bool on);

/* ---- stored lines (line.c) ------------------------------------------------------- */

enum { LINE_FORMAT = 2 }; /* of line.lua; lines of another one are left alone */

/* A whole line, as look.lua gives it. 0, HF_EDAMAGED, HF_EVERSION, HF_ENOMEM. */
int hf__redis_line_rows(const char *name, size_t name_len, const redisReply *,
                        struct look *, int64_t *ret_next_ms, hf_error *);

/* ---- looking, cells, following (look.c, list.c, cell.c, follow.c) ---------------- */

struct redis_query { /* one request for a look, a cell or an eviction */
    struct redis_call q;
    const struct query_type *type;
    struct query query;
    size_t name_len;
    char name[]; /* terminated */
};

struct query_type { /* neither is called when it was stopped */
    void (*build)(struct redis *, const struct redis_query *, struct command *);
    int (*read)(struct redis *, struct redis_query *, const redisReply *, hf_error *);
};

enum { FOLLOW_MS = 30000 }; /* a look of a follow makes others publish for so long */

bool hf__redis_query_failed(const redisReply *);
/* Asks; if there is no memory the core is told. */
void hf__redis_query_send(struct redis *, const struct query_type *, struct look *,
                          struct cell *);
void hf__redis_list(struct redis *, struct look *);
void hf__redis_follow_start(struct redis *, struct look *, struct cell *);
void hf__redis_follow_end(struct redis *, struct look *, struct cell *);
/* When it is to be asked again; -1: nothing expires. */
int64_t hf__redis_follow_next(const struct redis *, int64_t expires_ms, bool cell);
void hf__redis_follows_changed(struct redis *, const char *channel, size_t);
void hf__redis_follows_subscribe(struct redis *, struct node *); /* NULL: every one */

/* ---- the store ------------------------------------------------------------------- */

enum topology { TOPOLOGY_ONE, TOPOLOGY_SENTINEL, TOPOLOGY_CLUSTER, TOPOLOGY_REDLOCK };

struct redis {
    struct store store;
    enum topology topology;
    struct opening open;
    char *master; /* its name, under Sentinel */
    struct login sentinel_login;
    int64_t db;
    char prefix[PREFIX_MAX];
    size_t prefix_len;
    char client[CLIENT_ID + 1];
    int64_t replicas, replica_ms;
    struct scripted scripted; /* tickets, also of redlock; waiting lives */
    struct list unconfirmed;  /* redis_call.call.node: answers that wait for replicas */
    struct list looks, cells; /* follows: drv_node */
    struct list nodes;
    struct list dirty; /* link.on_dirty */
    struct list later; /* request.call.node */
    struct timer later_timer;
    struct timer listen_timer; /* holders begin to listen: wake.c */
    struct node *one;          /* not in a cluster */
    struct node *voters[32];   /* redlock: its nodes */
    unsigned nnodes;           /* redlock */
    bool guard;                /* redlock: nodes that have just been started do not count */
    bool patient; /* redlock: nodes that did not answer at first were waited for */
    int64_t max_ttl_ms;
    uint64_t highest;   /* redlock: mark that we have seen */
    uint32_t blank;     /* redlock: nodes that had no mark when they were last heard of */
    struct list sights; /* redlock: looks */
    struct list debts;  /* redlock: keys to delete on nodes unreachable at release */
    bool bucket_wanted[BUCKETS]; /* in a cluster: somebody waits or has waited there */
    bool unheard[BUCKETS];       /* a server has ended our subscription there */
    struct sentinel *sentinel;
    struct cluster *cluster;
    struct command command; /* reused */
    unsigned warned;        /* WARN_*, of all servers */
    bool up, closing;
    bool apart;  /* lines of different slots do not share a script */
    bool served; /* it has been up: a refusal may pass, and is waited out */
};

#define node_in(list) container_of(list, struct node, in_redis)
#define node_for(n, r)                                                                     \
    for (struct node *n = node_in((r)->nodes.next); &n->in_redis != &(r)->nodes;           \
         n = node_in(n->in_redis.next))

static inline struct redis *redis_of(struct store *s)
{
    return container_of(s, struct redis, store);
}

static inline struct redis *redis_at(struct scripted *s)
{
    return container_of(s, struct redis, scripted);
}

static inline int64_t redis_now(const struct redis *r)
{
    return r->store.env->now(r->store.env);
}

/* Tells UP or DOWN if it has changed; err: why it may be down. */
void hf__redis_state(struct redis *, const hf_error *);

extern const struct hf_driver hf__driver_redis;

/* `params`: the parameters that are known, besides tls_*. */
int hf__redis_read_opening(struct redis *, const struct url *, const char *params,
                           hf_error *);
/* text NULL: it is not given, and *ret stays. */
int hf__redis_read_number(const struct url *, const char *what, const char *text,
                          int64_t most, int64_t *ret, hf_error *);
void hf__redis_close(struct store *);
void hf__redis_flush(struct store *);
void hf__redis_forked(struct store *);

void hf__redis_join(struct store *, struct ticket *);
void hf__redis_leave(struct store *, struct ticket *);
void hf__redis_amend(struct store *, struct ticket *);
void hf__redis_renew(struct store *, struct life *const *, size_t);
void hf__redis_still_there(struct redis *, int bucket); /* asks; -1: of every bucket */
void hf__redis_look(struct store *, struct look *);
void hf__redis_cell(struct store *, struct cell *);
void hf__redis_evict(struct store *, struct look *);
void hf__redis_stop(struct store *, struct look *, struct cell *);

#endif
