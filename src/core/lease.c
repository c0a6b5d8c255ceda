/* lease.c: handles on holds, and what may be asked of them without the lock.
 *
 * hf_lease_check and its like read only: the lease itself (constant after it was handed
 * out), the hold's until_at, grade and given_ms (atomic), the clock, and the word that a
 * fork wipes. So they need no lock, no system call, and may run in a signal handler.
 * until_at grows at renewals and becomes 0 at loss, release of the last handle and close:
 * an old value read beside a renewal is an earlier deadline, which is safe (G1). */
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

/* hf_lease_check in a signal handler must not take a lock, which is what 64 bits at once
 * would be on some machines of 32 bits. The second macro: clang calls them "sometimes
 * lock-free" on i386 by the alignment of a plain int64_t; that of an _Atomic one is 8
 * there, too. */
#if ATOMIC_LLONG_LOCK_FREE != 2 && !defined __GCC_HAVE_SYNC_COMPARE_AND_SWAP_8
#error                                                                                     \
    "hf_lease_check needs lock-free atomic access to 64 bits; a newer -march= may have it"
#endif

static size_t size_of(size_t n)
{
    return sizeof(struct hf_lease) + n * sizeof(struct lease_part);
}

struct lease_extra *hf__lease_extra(struct hf_lease *l)
{
    struct lease_extra *x = l->extra ? l->extra : calloc(1, sizeof *x);

    if (!x || l->extra)
        return x;
    x->lease = l;
    x->fd = -1;
    list_init(&x->changed_node);
    l->extra = x;
    return x;
}

void hf__lease_extra_free(struct hf_lease *l)
{
    if (!l->extra)
        return;
    free(l->extra->ids);
    free(l->extra->recipe);
    free(l->extra);
    l->extra = NULL;
}

void hf__lease_end(struct hf_lease *l)
{
    if (!l)
        return;
    hf__lease_extra_free(l);
    hf__pool_put(&l->client->lease_pool, l, size_of(l->n));
}

struct hf_lease *hf__lease_new(struct client *c, size_t n)
{
    struct hf_lease *l = hf__pool_get(&c->lease_pool, size_of(n));

    if (!l)
        return NULL;
    l->client = c;
    l->n = (uint32_t)n;
    return l;
}

void hf__lease_attach(struct hf_lease *l, size_t i, struct hold *h)
{
    struct lease_part *p = &l->parts[i];

    *p = (struct lease_part){ .lease = l, .hold = h, .next = h->parts, .link = &h->parts };
    if (p->next)
        p->next->link = &p->next;
    h->parts = p;
}

struct hold *hf__lease_detach(struct hf_lease *l, size_t i)
{
    struct lease_part *p = &l->parts[i];

    if (p->link)
        *p->link = p->next;
    if (p->next)
        p->next->link = p->link;
    p->next = NULL;
    p->link = NULL;
    return p->hold;
}

void hf__lease_pin(struct hf_lease *l)
{
    for (size_t i = 0; i < l->n; i++)
        l->parts[i].hold->pins++;
}

void hf__lease_unpin(struct hf_lease *l)
{
    for (size_t i = 0; i < l->n; i++) {
        l->parts[i].hold->pins--;
        hf__hold_release_memory(l->parts[i].hold);
    }
}

static int64_t now_of(const struct hf_lease *l)
{
    return l->client->env->now(l->client->env);
}

static int64_t until_of(const struct hf_lease *l)
{
    int64_t until = INT64_MAX;

    for (size_t i = 0; i < l->n; i++) {
        int64_t at =
            atomic_load_explicit(&l->parts[i].hold->until_at, memory_order_acquire);

        if (at < until)
            until = at;
    }
    return until;
}

/* The clock is read last: a pause between the two makes the answer later, not wrong (G1).
 */
static bool in_time(const struct hf_lease *l)
{
    int64_t until = until_of(l);

    return until > now_of(l);
}

int hf__lease_state(const struct hf_lease *l)
{
    uint32_t worst = HF_HELD;

    for (size_t i = 0; i < l->n; i++) {
        uint32_t g = atomic_load_explicit(&l->parts[i].hold->grade, memory_order_acquire);

        if (g > worst)
            worst = g;
    }
    return in_time(l) ? (int)worst : HF_LOST;
}

int hf_lease_check(const hf_lease *l)
{
    if (!l)
        return HF_EINVAL;
    if (*l->client->alive == 0)
        return HF_EFORKED;
    return in_time(l) ? 0 : HF_ELOST;
}

int hf_lease_state(const hf_lease *l)
{
    if (!l)
        return HF_EINVAL;
    return *l->client->alive == 0 ? HF_LOST : hf__lease_state(l);
}

int64_t hf_lease_remaining_ms(const hf_lease *l)
{
    int64_t until, now;

    if (hf_lease_check(l) < 0)
        return 0;
    until = until_of(l);
    now = now_of(l);
    return until > now ? (until - now) / 1000 : 0;
}

int64_t hf_lease_ttl_ms(const hf_lease *l)
{
    int64_t least = INT64_MAX;

    for (size_t i = 0; l && i < l->n; i++) {
        int64_t ms =
            atomic_load_explicit(&l->parts[i].hold->given_ms, memory_order_relaxed);

        if (ms < least)
            least = ms;
    }
    return l ? least : 0;
}

uint64_t hf_lease_fence(const hf_lease *l)
{
    return l ? l->parts[0].hold->t.fence : 0;
}

uint64_t hf_lease_fence_of(const hf_lease *l, const char *name)
{
    for (size_t i = 0; l && name && i < l->n; i++)
        if (strcmp(l->parts[i].hold->t.name, name) == 0)
            return l->parts[i].hold->t.fence;
    return 0;
}

const char *hf_lease_name(const hf_lease *l)
{
    return l ? l->parts[0].hold->t.name : NULL;
}

size_t hf_lease_count(const hf_lease *l)
{
    return l ? l->n : 0;
}

const char *hf_lease_name_at(const hf_lease *l, size_t i)
{
    return l && i < l->n ? l->parts[i].hold->t.name : NULL;
}

uint32_t hf_lease_permits(const hf_lease *l)
{
    const struct ticket *t = l ? &l->parts[0].hold->t : NULL;

    return t && t->kind == LINE_PERMITS ? (uint32_t)t->weight : 0; /* which never changes */
}
