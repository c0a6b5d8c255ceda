/* spin.c: see spin.h. */
#include "core/spin.h"

#include "core/mutate.h"

int64_t hf__spin_for(const struct spin *s, const struct spin_budget *b, int64_t now)
{
    int64_t whole_at = atomic_load_explicit(&b->whole_at, memory_order_relaxed);

    if (s->most_us <= 0 || s->near < (unsigned)SPIN_TRUST << s->vain ||
        now < atomic_load_explicit(&b->pause_till, memory_order_relaxed))
        return 0;
    if (whole_at < now)
        whole_at = now;
    return whole_at + s->most_us * SPIN_SHARE <= now + SPIN_SAVED_US ? s->most_us : 0;
}

/* Lately, rather than at any time before. */
static int64_t average(int64_t us, int64_t next)
{
    return us > 0 ? us + (next - us) / 4 : next;
}

void hf__spin_slept(struct spin *s, int64_t took_us)
{
    s->paid = 0;
    if (took_us > s->most_us * SPIN_NEAR) {
        s->near = 0;
        return;
    }
    s->sleep_us = average(s->sleep_us, took_us);
    if (s->near < SPIN_TRUST << SPIN_VAIN)
        s->near++;
}

void hf__spin_polled(struct spin *s, struct spin_budget *b, int64_t took_us, bool brought,
                     int64_t now)
{
    int64_t was, next;

    s->poll_us = average(s->poll_us, took_us);
    if (brought && s->poll_us * 3 <= s->sleep_us * 2) {
        s->vain = 0;
        if (++s->paid == SPIN_PAID)
            s->near = SPIN_TRUST - 1;
        return;
    }
    s->near = 0;
    s->poll_us = 0;
    if (s->vain < SPIN_VAIN)
        s->vain++;
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
