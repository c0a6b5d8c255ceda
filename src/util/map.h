/* map.h: an intrusive hash map with chains. A map that cannot grow gets slower, not wrong,
 * so inserting never fails once hf__map_init succeeded. */
#ifndef HF_UTIL_MAP_H
#define HF_UTIL_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map_node {
    struct map_node *next, **link; /* link: what points at this one */
    uint64_t hash;
};

struct map {
    struct map_node **slots;
    size_t mask, count;
};

int hf__map_init(struct map *); /* 0 or HF_ENOMEM */
void hf__map_done(struct map *);
void hf__map_insert(struct map *, struct map_node *, uint64_t hash);
void hf__map_remove(struct map *, struct map_node *); /* must be in it */

/* The chain that may hold `hash`: for (n = map_chain(m, h); n; n = n->next) if (n->hash ==
 * h) */
static inline struct map_node *map_chain(const struct map *m, uint64_t hash)
{
    return m->slots[hash & m->mask];
}

/* the same in every process; not for chosen keys */
uint64_t hf__hash(const void *, size_t);
/* For keys that strangers choose, such as names: without the key nobody can find many that
 * meet. */
uint64_t hf__hash_keyed(const uint64_t key[2], const void *, size_t);

#endif
