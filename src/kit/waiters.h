/* waiters.h: the waiting lives of the scripted family. The tickets of one client that wait
 * in one line with one ttl share one expiry in the store, a "group"; wait_life is the
 * client's side of it. They hang on its life in the order of the queue.
 *
 * The safety look proves the group alive and finds what messages lost. It names the oldest
 * few tickets (WAIT_OLDEST). A grant takes the head of the queue, so if the oldest of ours
 * still waits, none of the others was granted; if all that were named are out, the next
 * ones are named (WAIT_CHUNK). Somebody else may have revoked a ticket in the middle: then
 * the store counts fewer in the group than we do, and all are named, chunk by chunk.
 *
 * One look is under way at a time (`asked`). Whoever wants another meanwhile sets `again`:
 * the one under way may have been executed before what it shall find. */
#ifndef HF_KIT_WAITERS_H
#define HF_KIT_WAITERS_H

#include "kit/seats.h"

enum { WAIT_OLDEST = 8, WAIT_CHUNK = 64 };

struct wait_life {
    struct list all;      /* waiters.all */
    struct map_node node; /* waiters.by_line */
    struct life *life;
    /* What the store called the expiry that our last answered request gave the group, and
     * when that request was sent: see G1 in scripted.h. */
    int64_t stamp, stamp_sent_at;
    unsigned pins; /* it stays, though no ticket may be on it */
    bool asked, again;
    /* the look that is under way: after how many of ours, and whom it names */
    size_t skip, n;
    unsigned char (*tokens)[HF_TOKEN]; /* `oldest`, or a chunk of its own */
    unsigned char oldest[WAIT_OLDEST][HF_TOKEN];
    size_t name_len;
    char name[];
};

struct waiters {
    struct store *store;
    struct map by_line; /* and ttl */
    struct list all;
    uint64_t hash_key[2]; /* names are chosen by strangers */
};

static inline struct wait_life *wait_life_of(const struct life *l) /* of LIFE_WAIT */
{
    return (struct wait_life *)(uintptr_t)l->drv[1];
}

static inline bool ticket_waits(const struct ticket *t)
{
    return t->life && t->life->kind == LIFE_WAIT;
}

int hf__waiters_init(struct waiters *, struct store *); /* 0 or HF_ENOMEM */
void hf__waiters_done(struct waiters *);                /* frees all; takes a zeroed one */
struct wait_life *hf__wait_get(struct waiters *, const struct ticket *); /* NULL: ENOMEM */
void hf__wait_unpin(struct waiters *, struct wait_life *); /* frees it if it is unused */
/* Onto this life, at its place in the queue. */
void hf__wait_hang(struct waiters *, struct ticket *, struct wait_life *, uint64_t number);
void hf__wait_off(struct waiters *, struct ticket *); /* onto its own, if it waits */
void hf__wait_answered(struct wait_life *, int64_t sent_at, int64_t stamp);

/* Names the tickets of the next look, `skip` of ours left out; at most `most`. */
void hf__wait_name(struct wait_life *, size_t skip, size_t most);
/* After a look that named some, of which `waiting` still wait, and by which the store has
 * `count` in the group: must another one follow, and after how many of ours? */
bool hf__wait_goes_on(const struct wait_life *, size_t waiting, size_t count,
                      size_t *ret_skip);

#endif
