/* spin.c: see spin.h. */
#include "core/spin.h"

#include "core/mutate.h"

int64_t hf__spin_for(const struct spin *s, const struct spin_budget *b, int64_t now)
{
    int64_t whole_at = atomic_load_explicit(&b->whole_at, memory_order_relaxed);

    if (s->most_us <= 0 || s->fast < SPIN_TRUST ||
        atomic_load_explicit(&b->alone, memory_order_relaxed) ||
        now < atomic_load_explicit(&b->pause_till, memory_order_relaxed))
        return 0;
    if (whole_at < now)
        whole_at = now;
    return whole_at + s->most_us * SPIN_SHARE <= now + SPIN_SAVED_US ? s->most_us : 0;
}

static void fast_or_not(struct spin *s, bool fast)
{
    if (!fast)
        s->fast = 0;
    else if (s->fast < SPIN_TRUST)
        s->fast++;
}

void hf__spin_slept(struct spin *s, int64_t took_us)
{
    fast_or_not(s, took_us <= s->most_us);
}

void hf__spin_polled(struct spin *s, struct spin_budget *b, int64_t took_us, bool brought,
                     int64_t now)
{
    int64_t was, next;

    fast_or_not(s, brought);
    if (brought || MUTANT(SPIN_FREE))
        return;
    was = atomic_load_explicit(&b->whole_at, memory_order_relaxed);
    do
        next = (was > now ? was : now) + took_us * SPIN_SHARE;
    while (!atomic_compare_exchange_weak_explicit(
        &b->whole_at, &was, next, memory_order_relaxed, memory_order_relaxed));
}

void hf__spin_pause(struct spin_budget *b, int64_t now)
{
    atomic_store_explicit(&b->pause_till, now + SPIN_PAUSE_US, memory_order_relaxed);
}
