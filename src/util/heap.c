/* heap.c: see heap.h. A tree in which no node has a smaller key than its parent.
 *
 * To insert is one comparison with the first node: the greater of the two becomes a child
 * of the other. A timer that is set and removed before it fires (nearly all of ours) mostly
 * stays a child without children, so that removing it is unlinking it. Only the removal of
 * a node with children costs more: they are merged in pairs from left to right and the
 * pairs into one tree from right to left, which is O(log n) amortised. Loops, not
 * recursion: the first node may have all others as children, and a tree may be as deep as
 * it has nodes. */
#include "util/heap.h"

/* Two trees into one. Both roots are unlinked; so is the result. */
static struct heap_node *merge(struct heap_node *a, struct heap_node *b)
{
    if (b->key < a->key) {
        struct heap_node *swap = a;

        a = b;
        b = swap;
    }
    b->next = a->child;
    if (b->next)
        b->next->link = &b->next;
    b->link = &a->child;
    a->child = b;
    return a;
}

static struct heap_node *merge_children(struct heap_node *n)
{
    struct heap_node *pairs = NULL, *tree;

    while ((tree = n) != NULL) {
        struct heap_node *other = tree->next;

        n = other ? other->next : NULL;
        if (other)
            tree = merge(tree, other);
        tree->next = pairs; /* a stack: the last pair comes first */
        pairs = tree;
    }
    tree = pairs;
    pairs = tree ? tree->next : NULL;
    while (pairs) {
        struct heap_node *rest = pairs->next;

        tree = merge(tree, pairs);
        pairs = rest;
    }
    return tree;
}

static void become_first(struct heap *h, struct heap_node *n)
{
    h->first = n;
    if (n) {
        n->next = NULL;
        n->link = &h->first;
    }
}

void hf__heap_remove(struct heap *h, struct heap_node *n)
{
    struct heap_node *tree;

    if (!n->link)
        return;
    *n->link = n->next;
    if (n->next)
        n->next->link = n->link;
    tree = merge_children(n->child);
    if (tree)
        become_first(h, h->first ? merge(h->first, tree) : tree);
    n->child = n->next = NULL;
    n->link = NULL;
}

void hf__heap_set(struct heap *h, struct heap_node *n, int64_t key)
{
    if (n->link && n->key == key)
        return;
    hf__heap_remove(h, n);
    n->key = key;
    become_first(h, h->first ? merge(h->first, n) : n);
}
