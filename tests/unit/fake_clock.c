/* fake_clock.c: see fake_clock.h. */
#include "fake_clock.h"

struct fake_clock clk;

static int64_t now(struct env *e)
{
    (void)e;
    return clk.now;
}

static void set_timer(struct env *e, struct timer *t, int64_t at)
{
    (void)e;
    if (at == LOOP_NEVER)
        hf__heap_remove(&clk.timers, &t->node);
    else
        hf__heap_set(&clk.timers, &t->node, at);
}

void clock_start(int64_t at, void (*random)(struct env *, void *, size_t))
{
    clk = (struct fake_clock){ .now = at };
    clk.env = (struct env){ .now = now, .random = random, .timer = set_timer };
}

void clock_pass(int64_t us, void (*after)(void))
{
    int64_t end = clk.now + us;
    struct heap_node *n;

    while ((n = heap_first(&clk.timers)) != NULL && n->key <= end) {
        struct timer *t = container_of(n, struct timer, node);

        if (n->key > clk.now)
            clk.now = n->key;
        hf__heap_remove(&clk.timers, n);
        t->fire(t);
        if (after)
            after();
    }
    clk.now = end;
}

int64_t clock_next(void)
{
    const struct heap_node *n = heap_first(&clk.timers);

    return n ? n->key : LOOP_NEVER;
}
