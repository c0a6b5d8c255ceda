/* seats.c: tickets by token. Tokens are random, so eight bytes of one are its hash. */
#include "kit/seats.h"

#include <string.h>

static uint64_t token_hash(const void *token)
{
    uint64_t h;

    memcpy(&h, token, sizeof h);
    return h;
}

struct ticket *hf__seat_find(const struct map *m, const void *token)
{
    uint64_t hash = token_hash(token);

    for (struct map_node *n = map_chain(m, hash); n; n = n->next) {
        struct ticket *t = container_of(n, struct ticket, drv_node);

        if (n->hash == hash && memcmp(t->token, token, HF_TOKEN) == 0)
            return t;
    }
    return NULL;
}

void hf__seat_in(struct map *m, struct ticket *t)
{
    if (hf__seat_find(m, t->token) != t)
        hf__map_insert(m, &t->drv_node, token_hash(t->token));
}

void hf__seat_out(struct map *m, struct ticket *t)
{
    if (hf__seat_find(m, t->token) == t)
        hf__map_remove(m, &t->drv_node);
}
