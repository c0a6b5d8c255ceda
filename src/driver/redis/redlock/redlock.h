/* redlock.h: the objects of Redlock, and of the plain lock, which is Redlock with one node.
 *
 * bid     one ticket on its way: rounds (bid.c), between them (rest.c), renewals
 *         (keep.c), its end (leave.c)
 * ballot  one request of a bid to one node (ballot.c) */
#ifndef HF_REDIS_REDLOCK_H
#define HF_REDIS_REDLOCK_H

#include "driver/redis/redis.h"
#include "driver/redis/redlock/round.h"

enum { VALUE_HEX = 48, VALUE_MAX = VALUE_HEX + 400 + HF_NOTE_MAX };

extern const char hf__redlock_marks[]; /* the key of every node's marks */

struct bid { /* ticket.drv_ptr */
    struct redis *redis;
    struct ticket *t;
    enum bid_state {
        BID_VOTES, /* a round is under way */
        BID_CLEAN, /* it was lost: what it took is given back */
        BID_RESTS, /* until the next round */
        BID_HELD,
        BID_LEAVES /* given back on all nodes */
    } state;
    struct round round;
    uint64_t number; /* of the exchange: older answers mean nothing */
    int64_t began_at, sent_at;
    struct timer timer;
    unsigned tries;
    unsigned open;    /* CLEAN, LEAVES: answers to come */
    unsigned prompt;  /* CLEAN: those of nodes that answer fast */
    unsigned freed;   /* nodes that are free of it, or keep it as asked */
    bool listening;   /* for its key to be given back */
    bool told;        /* it was, while a round was under way */
    bool waiting;     /* the core knows that it waits */
    uint32_t mine;    /* nodes on which the key may be ours */
    uint32_t missing; /* HELD: nodes that are not known to have it */
    unsigned spreads; /* HELD: how often these were given it, since it was last renewed */
    int64_t kept_at, kept_ms; /* HELD: a majority has it for so long from then on */
    unsigned alive, lost;     /* HELD: answers to the renewal under way */
    uint64_t renewal;
    int64_t renewal_at, renewal_ms;
    int64_t free_in_ms; /* when the key in our way expires; -1: not known */
    bool foreign;       /* it is of another type */
    char type[16];
    hf_error said;    /* the last error of a node; code 0: none */
    uint32_t refused; /* nodes whose last answer was an error that does not pass */
    unsigned denials; /* rounds in a row in which those made a majority impossible */
    size_t value_len;
    char value[VALUE_MAX];
};

enum ballot_kind { BALLOT_LOCK, BALLOT_RAISE, BALLOT_EXTEND, BALLOT_ASSERT, BALLOT_FREE };

struct ballot { /* q.bucket: the node */
    struct redis_call q;
    enum ballot_kind kind;
    unsigned char token[HF_TOKEN]; /* the bid may be gone when the answer comes */
    uint64_t number;
    uint64_t candidate;
    uint64_t floor; /* RAISE: what it may be seeded with; 0: it may not */
    bool tell, prompt;
    enum node_frees by; /* FREE */
    int64_t ttl_ms;
    int64_t until; /* FREE: it has expired by then */
    size_t value_len, key_len;
    char text[]; /* value, key */
};

/* ---- redlock.c ------------------------------------------------------------------- */

size_t hf__redlock_key(const struct redis *, char key[KEY_MAX], const char *name,
                       size_t len);
size_t hf__redlock_channel(char channel[KEY_MAX + 32], const char *key, size_t len);
unsigned hf__redlock_need(const struct redis *);
bool hf__redlock_reserved(const struct redis *, const char *name, size_t len);
bool hf__redlock_counts(const struct redis *, const struct node *);
void hf__redlock_listen(struct redis *, struct ticket *);
void hf__redlock_unlisten(struct redis *, struct ticket *,
                          bool was); /* if nobody else waits for it */
/* Why too few nodes can vote. */
bool hf__redlock_denied(const struct bid *); /* no majority without nodes that refuse */
int hf__redlock_too_few(const struct redis *, const struct bid *, hf_error *);

/* ---- ballot.c -------------------------------------------------------------------- */

/* False: there is no way to the node, or no memory. Else hf__redlock_answer comes, later.
 */
bool hf__redlock_send(struct bid *, enum ballot_kind, unsigned node, uint64_t number);
void hf__redlock_value(struct bid *);
/* to be given back when it is there again */
void hf__redlock_owe(struct bid *, unsigned node);
void hf__redlock_debts_end(struct redis *);
int64_t hf__redlock_left_us(const struct bid *);          /* HELD: until its deadline */
bool hf__redlock_lags(const struct bid *, unsigned node); /* it owes an old answer */
int64_t hf__redlock_node_us(const struct bid *);          /* how long one node may take */

/* ---- leave.c --------------------------------------------------------------------- */

void hf__redlock_leave(struct store *, struct ticket *);
void hf__redlock_leave_late(struct bid *); /* too few have answered */
void hf__redlock_free_all(struct bid *);
void hf__redlock_freed(struct bid *, const struct ballot *, const redisReply *);

/* ---- bid.c, keep.c, rest.c ------------------------------------------------------- */

void hf__redlock_answer(struct bid *, const struct ballot *, const redisReply *);
bool hf__redlock_outdated(const struct bid *, const struct ballot *);
void hf__redlock_kept(struct bid *, int64_t at, int64_t ms); /* a majority has it */
void hf__redlock_spread(struct bid *, uint32_t nodes);       /* gives it to them too */
void hf__redlock_lacks(struct bid *, unsigned node, bool);   /* it has voted late */
void hf__redlock_asserted(struct bid *, unsigned node, const redisReply *);
void hf__redlock_extended(struct bid *, unsigned node, const redisReply *);
void hf__redlock_join(struct store *, struct ticket *);
void hf__redlock_renew(struct store *, struct life *const *, size_t);
void hf__redlock_told(struct redis *, const char *channel,
                      size_t len);                                /* a key became free */
struct bid *hf__redlock_bid_new(struct redis *, struct ticket *); /* NULL: no memory */
void hf__redlock_bid_free(struct bid *);
void hf__redlock_bid_end(struct bid *); /* and its ticket is not ours any more */
void hf__redlock_bid_timer(struct bid *, int64_t at);
void hf__redlock_bid_rest(struct bid *); /* until the next round, or ends it */
void hf__redlock_bid_wait(struct bid *); /* the same time once more */

/* ---- look.c ---------------------------------------------------------------------- */

void hf__redlock_look(struct store *, struct look *);
void hf__redlock_evict(struct store *, struct look *);
void hf__redlock_stop(struct store *, struct look *, struct cell *);
void hf__redlock_looks_end(struct redis *);

#endif
