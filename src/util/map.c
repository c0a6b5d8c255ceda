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

static void link_in(struct map_node **slot, struct map_node *n)
{
    n->next = *slot;
    n->link = slot;
    if (n->next)
        n->next->link = &n->next;
    *slot = n;
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
            link_in(&slots[n->hash & mask], n);
        }
    free(m->slots);
    m->slots = slots;
    m->mask = mask;
}

void hf__map_insert(struct map *m, struct map_node *n, uint64_t hash)
{
    if (m->count > m->mask)
        grow(m);
    n->hash = hash;
    link_in(&m->slots[hash & m->mask], n);
    m->count++;
}

void hf__map_remove(struct map *m, struct map_node *n)
{
    *n->link = n->next;
    if (n->next)
        n->next->link = n->link;
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

/* ---- SipHash-1-3 ----------------------------------------------------------------- */

struct sip {
    uint64_t a, b, c, d;
};

static uint64_t rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

static void sip_round(struct sip *s)
{
    s->a += s->b;
    s->c += s->d;
    s->b = rotate(s->b, 13) ^ s->a;
    s->d = rotate(s->d, 16) ^ s->c;
    s->a = rotate(s->a, 32) + s->d;
    s->c += s->b;
    s->d = rotate(s->d, 21) ^ s->a;
    s->b = rotate(s->b, 17) ^ s->c;
    s->c = rotate(s->c, 32);
}

static void sip_word(struct sip *s, uint64_t word)
{
    s->d ^= word;
    sip_round(s);
    s->a ^= word;
}

uint64_t hf__hash_keyed(const uint64_t key[2], const void *data, size_t len)
{
    struct sip s = { key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                     key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573 };
    const unsigned char *p = data;
    uint64_t last = (uint64_t)len << 56, word;

    for (; len >= 8; len -= 8, p += 8) {
        memcpy(&word, p, 8);
        sip_word(&s, word);
    }
    for (size_t i = 0; i < len; i++)
        last |= (uint64_t)p[i] << 8 * i;
    sip_word(&s, last);
    s.c ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(&s);
    return s.a ^ s.b ^ s.c ^ s.d;
}
