/* heap.c: see heap.h. Four children a node: a timer that is set and removed before it fires
 * (nearly all of ours) moves by one or two levels only. */
#include "util/heap.h"

#include <holdfast/holdfast.h>
#include <stdlib.h>

enum { CHILDREN = 4 };

void hf__heap_done(struct heap *h)
{
    free(h->nodes);
    h->nodes = NULL;
    h->count = h->room = 0;
}

int hf__heap_reserve(struct heap *h, size_t members)
{
    size_t room = h->room ? h->room : 16;
    struct heap_node **nodes;

    if (members <= h->room)
        return 0;
    while (room < members)
        room *= 2;
    nodes = realloc(h->nodes, room * sizeof *nodes);
    if (!nodes)
        return HF_ENOMEM;
    h->nodes = nodes;
    h->room = room;
    return 0;
}

static void place(struct heap *h, size_t i, struct heap_node *n)
{
    h->nodes[i] = n;
    n->pos = i + 1;
}

static void sift_up(struct heap *h, size_t i, struct heap_node *n)
{
    while (i > 0) {
        size_t parent = (i - 1) / CHILDREN;

        if (h->nodes[parent]->key <= n->key)
            break;
        place(h, i, h->nodes[parent]);
        i = parent;
    }
    place(h, i, n);
}

static void sift_down(struct heap *h, size_t i, struct heap_node *n)
{
    for (;;) {
        size_t first = i * CHILDREN + 1, least = first;

        if (first >= h->count)
            break;
        for (size_t c = first + 1; c < first + CHILDREN && c < h->count; c++)
            if (h->nodes[c]->key < h->nodes[least]->key)
                least = c;
        if (h->nodes[least]->key >= n->key)
            break;
        place(h, i, h->nodes[least]);
        i = least;
    }
    place(h, i, n);
}

static void settle(struct heap *h, size_t i, struct heap_node *n)
{
    if (i > 0 && h->nodes[(i - 1) / CHILDREN]->key > n->key)
        sift_up(h, i, n);
    else
        sift_down(h, i, n);
}

void hf__heap_set(struct heap *h, struct heap_node *n, int64_t key)
{
    n->key = key;
    if (n->pos == 0) {
        h->count++; /* the caller has reserved the room */
        sift_up(h, h->count - 1, n);
    } else {
        settle(h, n->pos - 1, n);
    }
}

void hf__heap_remove(struct heap *h, struct heap_node *n)
{
    size_t i = n->pos;
    struct heap_node *last;

    if (i == 0)
        return;
    n->pos = 0;
    last = h->nodes[--h->count];
    if (last != n)
        settle(h, i - 1, last);
}
