/* polls.c: threads that poll before they sleep (core/spin.h), on the simulated clock: each
 * operation is waited for by a thread that asks first whether to poll. Whatever the store
 * and the network do, what a process loses by polling in vain is bounded: a second's share
 * at once, and its part of the time since; and one poll more for each that was under way
 * when it was decided. No random number is drawn: old seeds stay what they are. */
#include "sim.h"

#include <inttypes.h>

static struct proc *proc_of(const struct sim_op *o)
{
    return &w.procs[o->c->proc];
}

void polls_start(struct proc *p)
{
    p->polls = (struct polls){ .since = w.now,
                               .spin = { .most_us = 500 + (int64_t)(p->id % 9000) } };
}

void polls_begin(struct sim_op *o)
{
    struct polls *p = &proc_of(o)->polls;

    o->began_at = w.now;
    p->spin.near = SPIN_TRUST; /* as if it had paid so far: only the budget says no */
    p->spin.vain = 0;
    o->poll_us = hf__spin_for(&p->spin, &p->budget, w.now);
    if (o->poll_us > 0 && ++p->open > p->most_open)
        p->most_open = p->open;
}

void polls_end(struct sim_op *o)
{
    struct polls *p = &proc_of(o)->polls;
    int64_t took = w.now - o->began_at, may;
    bool brought = took <= o->poll_us;

    if (o->poll_us == 0) {
        hf__spin_slept(&p->spin, took);
        return;
    }
    hf__spin_polled(&p->spin, &p->budget, brought ? took : o->poll_us, brought, w.now);
    p->open--;
    p->lost_us += brought ? 0 : o->poll_us;
    may = (SPIN_SAVED_US + w.now - p->since) / SPIN_SHARE +
          p->spin.most_us * (int64_t)p->most_open;
    if (p->lost_us > may)
        violate("cost",
                "process %d has polled in vain for %" PRId64 " us, and may for %" PRId64,
                (int)o->c->proc, p->lost_us, may);
}
