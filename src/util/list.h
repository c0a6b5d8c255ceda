/* list.h: an intrusive doubly linked list. A node that is in no list points at itself, so
 * list_remove may be repeated. */
#ifndef HF_UTIL_LIST_H
#define HF_UTIL_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *prev;
};

#define container_of(ptr, type, member)                                                    \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_insert_before(struct list *at, struct list *n)
{
    n->prev = at->prev;
    n->next = at;
    at->prev->next = n;
    at->prev = n;
}

static inline void list_push(struct list *l, struct list *n) /* at the end */
{
    list_insert_before(l, n);
}

static inline void list_remove(struct list *n)
{
    n->prev->next = n->next;
    n->next->prev = n->prev;
    list_init(n);
}

static inline struct list *list_first(const struct list *l)
{
    return l->next == l ? NULL : l->next;
}

static inline struct list *list_pop(struct list *l)
{
    struct list *n = list_first(l);

    if (n)
        list_remove(n);
    return n;
}

/* Moves all of `from` to the end of `to`. */
static inline void list_splice(struct list *to, struct list *from)
{
    if (list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

#define list_for(n, l) for (struct list *n = (l)->next; n != (l); n = n->next)
#define list_for_safe(n, l)                                                                \
    for (struct list *n = (l)->next, *n##_next = n->next; n != (l);                        \
         n = n##_next, n##_next = n->next)

#endif
