/* heap.h: an intrusive 4-ary min-heap of int64 keys. Growing may fail, so room is taken
 * before it is needed: heap_reserve(n) makes the next heap_set of up to n members safe. */
#ifndef HF_UTIL_HEAP_H
#define HF_UTIL_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct heap_node {
    int64_t key;
    size_t pos; /* 1-based place in the heap; 0: not in it */
};

struct heap {
    struct heap_node **nodes;
    size_t count, room;
};

void hf__heap_done(struct heap *);
int hf__heap_reserve(struct heap *, size_t members); /* 0 or HF_ENOMEM */
void hf__heap_set(struct heap *, struct heap_node *, int64_t key); /* insert or move */
void hf__heap_remove(struct heap *, struct heap_node *);

static inline struct heap_node *heap_first(const struct heap *h)
{
    return h->count ? h->nodes[0] : NULL;
}

#endif
