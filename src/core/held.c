/* held.c: an index of what is held in this client: by name and owner, for re-entry and for
 * the rule that a thread does not wait for itself (G9); by owner, for the names that a
 * ticket carries for others' deadlock walks (G10).
 *
 * A hold that belongs to somebody is in the index exactly while it is HELD (hold.c). A hold
 * that is found may have expired: if no thread has run the loop since, its expiry has not
 * been noticed yet, so its deadline is checked too. Adding and removing take the same time
 * however much one owner holds. */
#include "core/core.h"

#include <string.h>

static uint64_t owner_hash(struct owner o)
{
    return hf__hash(&o, sizeof o);
}

/* A search is for one owner's hold on a name, so the owner is part of the hash: the holds
 * of any number of other readers of that name are elsewhere in the map. */
static uint64_t place_hash(const struct client *c, const char *name, size_t n,
                           uint64_t owner)
{
    return hf__hash_keyed(c->hash_key, name, n) ^ owner;
}

/* What an owner comes to hold while it waits elsewhere may complete a deadlock. */
static void restart_walks(struct client *c, struct owner owner, uint64_t hash)
{
    for (struct map_node *m = map_chain(&c->waiting, hash); m; m = m->next) {
        struct hold *h = container_of(m, struct hold, by_owner);

        if (m->hash == hash && owner_same(h->t.owner, owner))
            hf__walk_restart(h);
    }
}

/* Not a call without owner: its thread waits in it, and is granted nothing meanwhile. But
 * if the client acts for an owner of another process, the calls of all threads belong to
 * that one. */
void hf__waiting_add(struct hold *h)
{
    if (owner_none(h->t.owner) ||
        (h->thread != 0 && !owner_same(h->t.owner, h->client->acts_for)))
        return;
    hf__map_insert(&h->client->waiting, &h->by_owner, owner_hash(h->t.owner));
    h->in_waiting = true;
}

void hf__waiting_remove(struct hold *h)
{
    if (!h->in_waiting)
        return;
    hf__map_remove(&h->client->waiting, &h->by_owner);
    h->in_waiting = false;
    /* those of its other waits, which do without this one now */
    restart_walks(h->client, h->t.owner, h->by_owner.hash);
}

void hf__held_add(struct hold *h)
{
    struct client *c = h->client;
    uint64_t owner = owner_hash(h->t.owner);

    if (owner_none(h->t.owner))
        return; /* nobody asks for it */
    hf__map_insert(&c->by_place, &h->by_place,
                   place_hash(c, h->t.name, h->t.name_len, owner));
    hf__map_insert(&c->by_owner, &h->by_owner, owner);
    h->indexed = true;
    restart_walks(c, h->t.owner, owner);
}

void hf__held_remove(struct hold *h)
{
    if (!h->indexed)
        return;
    hf__map_remove(&h->client->by_place, &h->by_place);
    hf__map_remove(&h->client->by_owner, &h->by_owner);
    h->indexed = false;
}

void hf__hold_adopt(struct hold *h, struct owner owner, bool reentrant)
{
    hf__held_remove(h);
    h->t.owner = owner;
    h->reentrant = reentrant;
    h->thread = 0;
    if (h->state == TICKET_HELD) {
        hf__held_add(h);
        hf__hold_amend(h); /* others' walks must not find the old owner */
    }
}

/* Held, and its time is not over. Checks the deadline itself: if no thread has run the loop
 * since, the expiry has not been noticed yet.
 */
bool hf__hold_trusted(const struct hold *h)
{
    struct env *env = h->client->env;

    return !h->lost && atomic_load(&h->until_at) > env->now(env);
}

struct hold *hf__hold_find(const struct client *c, const char *name,
                           const struct acquire_spec *r)
{
    size_t n = strlen(name);
    uint64_t hash;

    if (c->by_place.count == 0)
        return NULL; /* the usual case: the name need not be hashed */
    hash = place_hash(c, name, n, owner_hash(r->owner));
    for (struct map_node *m = map_chain(&c->by_place, hash); m; m = m->next) {
        struct hold *h = container_of(m, struct hold, by_place);
        bool same = r->reentrant ? h->reentrant : r->thread > 0 && h->thread == r->thread;

        if (m->hash == hash && same && h->t.kind == LINE_LOCK && hf__hold_trusted(h) &&
            owner_same(h->t.owner, r->owner) && h->t.name_len == n &&
            memcmp(h->t.name, name, n) == 0)
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

/* The names for a ticket, as they are collected: "a\0b\0". */
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
