/* heap.h: an intrusive min-heap of int64 keys (a pairing heap). Its nodes hold their own
 * links, so it needs no memory and no call can fail. A zeroed heap is empty and a zeroed
 * node is in no heap. A heap that is not empty must not be moved: its first node points at
 * it. */
#ifndef HF_UTIL_HEAP_H
#define HF_UTIL_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
    int64_t key;
    struct heap_node *child; /* the first of its children: none has a smaller key */
    struct heap_node *next;  /* sibling */
    struct heap_node **link; /* the pointer that points at this node; NULL: not in a heap */
};

struct heap {
    struct heap_node *first;
};

void hf__heap_set(struct heap *, struct heap_node *, int64_t key); /* insert or move */
void hf__heap_remove(struct heap *, struct heap_node *); /* nothing if it is in none */

static inline struct heap_node *heap_first(const struct heap *h)
{
    return h->first;
}

static inline bool heap_has(const struct heap_node *n)
{
    return n->link != NULL;
}

#endif
