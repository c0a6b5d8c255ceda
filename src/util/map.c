/* map.c: see map.h. */
#include "util/map.h"

#include <holdfast/holdfast.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 64 };

int hf__map_init(struct map *m)
{
    m->slots = calloc(FIRST_SLOTS, sizeof(struct map_node *));
    m->mask = FIRST_SLOTS - 1;
    m->count = 0;
    return m->slots ? 0 : HF_ENOMEM;
}

void hf__map_done(struct map *m)
{
    free(m->slots);
    m->slots = NULL;
    m->count = 0;
}

static void grow(struct map *m)
{
    size_t mask = m->mask * 2 + 1;
    struct map_node **slots = calloc(mask + 1, sizeof(struct map_node *));

    if (!slots)
        return;
    for (size_t i = 0; i <= m->mask; i++)
        for (struct map_node *n = m->slots[i], *next; n; n = next) {
            next = n->next;
            n->next = slots[n->hash & mask];
            slots[n->hash & mask] = n;
        }
    free(m->slots);
    m->slots = slots;
    m->mask = mask;
}

void hf__map_insert(struct map *m, struct map_node *n, uint64_t hash)
{
    struct map_node **slot;

    if (m->count > m->mask)
        grow(m);
    slot = &m->slots[hash & m->mask];
    n->hash = hash;
    n->next = *slot;
    *slot = n;
    m->count++;
}

void hf__map_remove(struct map *m, struct map_node *n)
{
    struct map_node **p = &m->slots[n->hash & m->mask];

    while (*p != n)
        p = &(*p)->next;
    *p = n->next;
    m->count--;
}

uint64_t hf__hash(const void *data, size_t len)
{
    const unsigned char *p = data;
    uint64_t h = 0x9e3779b97f4a7c15u ^ len, w;

    for (; len >= 8; len -= 8, p += 8) {
        memcpy(&w, p, 8);
        h = (h ^ w) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    for (w = 0; len > 0; len--)
        w = w << 8 | p[len - 1];
    h = (h ^ w) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 29;
}
