/* held.c: who holds what in this client: by name, for re-entry and for the rule that a thread does not
 * wait for itself (G9); by owner, for the names that a ticket carries for others' deadlock walks (G10).
 *
 * A hold is in here exactly while it is HELD (hold.c). What is found is trusted only if its time is not
 * over: nobody may have driven us, and so told us, since then. */
#include "core/core.h"

#include <string.h>

static uint64_t owner_hash(struct owner o)
{
    return hf__hash(&o, sizeof o);
}

void hf__held_add(struct hold *h)
{
    struct client *c = h->client;

    hf__map_insert(&c->by_name, &h->by_name, hf__hash(h->t.name, h->t.name_len));
    if (!owner_none(h->t.owner))
        hf__map_insert(&c->by_owner, &h->by_owner, owner_hash(h->t.owner));
    h->indexed = true;
}

void hf__held_remove(struct hold *h)
{
    if (!h->indexed)
        return;
    hf__map_remove(&h->client->by_name, &h->by_name);
    if (!owner_none(h->t.owner))
        hf__map_remove(&h->client->by_owner, &h->by_owner);
    h->indexed = false;
}

void hf__hold_adopt(struct hold *h, struct owner owner, bool reentrant)
{
    bool was = h->indexed;

    hf__held_remove(h);
    h->t.owner = owner;
    h->reentrant = reentrant;
    h->thread = 0;
    if (was) {
        hf__held_add(h);
        hf__hold_amend(h); /* others' walks must not find the old owner */
    }
}

/* Held, and its time is not over: also if nobody has driven us, and so told us, since then. */
bool hf__hold_trusted(const struct hold *h)
{
    struct env *env = h->client->env;

    return !h->lost && atomic_load(&h->until_at) > env->now(env);
}

struct hold *hf__hold_find(const struct client *c, const char *name, struct owner owner)
{
    size_t n = strlen(name);
    uint64_t hash = hf__hash(name, n);

    for (struct map_node *m = map_chain(&c->by_name, hash); m; m = m->next) {
        struct hold *h = container_of(m, struct hold, by_name);

        if (m->hash == hash && h->reentrant && h->t.kind == LINE_LOCK &&
            hf__hold_trusted(h) && owner_same(h->t.owner, owner) &&
            h->t.name_len == n && memcmp(h->t.name, name, n) == 0)
            return h;
    }
    return NULL;
}

struct hold *hf__hold_of_thread(const struct client *c, const char *name, uint64_t thread)
{
    size_t n = strlen(name);
    uint64_t hash = hf__hash(name, n);

    for (struct map_node *m = map_chain(&c->by_name, hash); m; m = m->next) {
        struct hold *h = container_of(m, struct hold, by_name);

        if (m->hash == hash && h->thread == thread && h->t.kind == LINE_LOCK &&
            hf__hold_trusted(h) && h->t.name_len == n && memcmp(h->t.name, name, n) == 0)
            return h;
    }
    return NULL;
}

void hf__hold_each(const struct client *c, struct owner owner,
                   bool (*each)(void *user, const char *name), void *user)
{
    uint64_t hash = owner_hash(owner);

    if (owner_none(owner))
        return;
    if (owner_same(owner, c->acts_for))
        for (size_t i = 0; i < c->acts_hints_len; i += strlen(c->acts_hints + i) + 1)
            if (!each(user, c->acts_hints + i))
                return;
    for (struct map_node *m = map_chain(&c->by_owner, hash); m; m = m->next) {
        struct hold *h = container_of(m, struct hold, by_owner);

        if (m->hash == hash && owner_same(h->t.owner, owner) && !each(user, h->t.name))
            return;
    }
}

struct hints {
    char *text;
    size_t len;
    int count;
};

static bool hint_add(void *user, const char *name)
{
    struct hints *h = user;
    size_t n = strlen(name) + 1;

    if (h->count == HF_HINTS_MAX || h->len + n > HF_HINTS_ROOM)
        return false;
    memcpy(h->text + h->len, name, n);
    h->len += n;
    h->count++;
    return true;
}

size_t hf__hold_hints(const struct client *c, struct owner owner, char hints[HF_HINTS_ROOM])
{
    struct hints h = { .text = hints };

    hf__hold_each(c, owner, hint_add, &h);
    return h.len;
}
