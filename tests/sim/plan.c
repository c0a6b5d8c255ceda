/* plan.c: a seed becomes a plan: the kind of store, its clients, and all that will be
 * done and will go wrong, with times. A plan is a list that can be shortened: that is
 * how a failing run is shrunk. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

enum {
    REFUSES = 0x5ef062,
    PUTS_OFF = 0x907,
    REPLACED = 0x4e914c,
    STOPS = 0x570b7,
    LIMIT = 0x11417,
    BOUNCES = 0xb0cce5,
    ECHOES = 0xec40,
    LIKE_ETCD = 0xe7cd,
    LAGS = 0x1def,
    IN_PARTS = 0xa133
};

static uint64_t state;

static uint64_t rnd(uint64_t below)
{
    state = mix(state);
    return state % below;
}

static bool chance(unsigned percent)
{
    return rnd(100) < percent;
}

const char *act_word(enum act_kind k)
{
    static const char *const words[ACT_KINDS] = { [A_ACQUIRE] = "acquire",
                                                  [A_CANCEL] = "cancel",
                                                  [A_RELEASE] = "release",
                                                  [A_DOWNGRADE] = "downgrade",
                                                  [A_NOTE] = "note",
                                                  [A_RENEW] = "renew by hand",
                                                  [A_LOOK] = "look",
                                                  [A_EVICT] = "evict",
                                                  [A_THREAD_ENDS] = "a thread ends",
                                                  [A_SHUT] = "close",
                                                  [A_STOP] = "stop",
                                                  [A_CUT] = "connection cut",
                                                  [A_SILENT] = "connection falls silent",
                                                  [A_FORK] = "process forks",
                                                  [A_PAUSE] = "process stands still",
                                                  [A_SUSPEND] = "machine suspended",
                                                  [A_KILL] = "process killed",
                                                  [A_DRIFT] =
                                                      "clock drifts within the bound",
                                                  [A_BEYOND] = "clock drifts beyond it",
                                                  [A_STORE_STOP] = "store stops",
                                                  [A_STORE_FORGETS] =
                                                      "store loses its memory",
                                                  [A_CLOCK] = "store's clock stepped",
                                                  [A_NO_MEMORY] = "no memory",
                                                  [A_FOLLOWER] = "its follower is cut off",
                                                  [A_END_HOLD] = "store ends a hold" };

    return words[k];
}

/* For how long a link waits for an answer: hardly longer than it takes; for up to two
 * seconds; for up to a ttl. */
static int64_t limit(const struct plan *p)
{
    uint64_t h = mix(p->seed ^ LIMIT);
    int64_t most[] = { 50, 2000, p->ttl_ms[0] };

    return 4 * (p->delay_us + p->jitter_us) / US + 5 + (int64_t)(h >> 16) % most[h % 3];
}

static void shape(struct plan *p)
{
    static const int64_t ttls[] = { 100, 300, 1000, 3000, 10000, 30000 };
    int64_t room;

    p->family = (enum family)rnd(FAMILIES);
    p->procs = 2 + (int)rnd(PROCS - 1);
    p->slots = 1 + (int)rnd(SLOTS);
    p->lines = 1 + (int)rnd(LINES - 2);
    p->nttls = 1 + (int)rnd(TTLS);
    for (int i = 0; i < TTLS; i++)
        p->ttl_ms[i] = ttls[rnd(6)] + (int64_t)rnd(3);
    for (int i = 0; i < LINES; i++)
        p->capacity[i] = chance(35) ? 1 + (int)rnd(4) : 0;
    for (int i = 0; i < PROCS; i++)
        p->ppm[i] = chance(50) ? (int32_t)rnd(18001) - 9000 : chance(50) ? -9000 : 0;
    room = p->ttl_ms[0] * US;
    for (int i = 1; i < p->nttls; i++)
        room = p->ttl_ms[i] * US < room ? p->ttl_ms[i] * US : room;
    p->delay_us = 10 + (int64_t)rnd(chance(50) ? 300 : (uint64_t)room / 60);
    p->jitter_us = (int64_t)rnd(chance(50) ? 100 : (uint64_t)room / 60);
    p->look_us = chance(40) ? (int64_t)rnd((uint64_t)room / 8) : 0;
    p->limit_ms = limit(p);
    p->eager = chance(60);
    p->by_wall = (p->family == SCRIPTED || p->family == LOOSE) && chance(50);
    p->deaths_by_dead = chance(50);
    p->busy = chance(20);
    p->calm = chance(25);
    p->like_etcd = p->family == ORDERED && mix(p->seed ^ LIKE_ETCD) % 2 == 0;
    p->lags = p->like_etcd && mix(p->seed ^ LAGS) % 2 == 0;
    p->wake_lost_ppm = chance(50) ? (uint32_t)rnd(300000) : 0;
    if (p->calm)
        return;
    p->puts_off = mix(p->seed ^ PUTS_OFF) % 6 == 0;
    /* drawn apart: old seeds mean what they meant */
    p->refuses = mix(p->seed ^ REFUSES) % 8 == 0;
    p->replaced = p->family == SCRIPTED && mix(p->seed ^ REPLACED) % 8 == 0;
    p->bounces = mix(p->seed ^ BOUNCES) % 5 == 0;
    p->echoes = p->family != ORDERED && mix(p->seed ^ ECHOES) % 3 == 0;
    p->parts = (p->family == SCRIPTED || (p->family == LOOSE && !p->echoes)) &&
               !(p->echoes && p->refuses) && mix(p->seed ^ IN_PARTS) % 3 == 0;
    p->slow_ppm = chance(30) ? (uint32_t)rnd(20000) : 0;
    p->twice_ppm = chance(30) ? (uint32_t)rnd(50000) : 0;
}

static void acquire(struct plan *p, struct act *a)
{
    int64_t ttl = p->ttl_ms[a->ttl];

    a->kind = A_ACQUIRE;
    a->mode = chance(40) ? HF_READ : HF_WRITE;
    a->permits = (uint8_t)rnd(8);
    a->lines = chance(10) ? (uint8_t)(1 + rnd((uint64_t)p->lines)) : 1;
    a->flags = (uint8_t)((chance(15) ? F_BARGE : 0) | (chance(40) ? F_REENTRANT : 0) |
                         (chance(8) ? F_NO_RENEW : 0) | (chance(8) ? F_MAX_HOLD : 0));
    a->wait_ms = p->calm || chance(40) ? HF_FOREVER
                 : chance(25)          ? 0
                                       : 1 + (int64_t)rnd((uint64_t)ttl * 3);
    if (a->thread == THREADS && a->wait_ms == HF_FOREVER)
        a->wait_ms = 2 * ttl; /* a deadlock through nobody's ticket is nobody's to find */
    a->hold_us = (int64_t)rnd((uint64_t)ttl * (chance(30) ? 3000 : 300)) + 1;
}

static void other(const struct plan *p, struct act *a)
{
    static const enum act_kind kinds[] = { A_CANCEL, A_RELEASE, A_DOWNGRADE, A_NOTE,
                                           A_RENEW,  A_LOOK,    A_EVICT,     A_THREAD_ENDS,
                                           A_SHUT,   A_EVICT };

    a->kind = kinds[rnd(sizeof kinds / sizeof kinds[0])];
    a->flags = (uint8_t)((chance(50) ? F_NOW : 0) | (chance(50) ? F_KEEP : 0));
    if (p->calm && (a->kind == A_CANCEL || a->kind == A_EVICT || a->kind == A_SHUT))
        a->kind = A_RELEASE;
    if (a->kind == A_SHUT && chance(80))
        a->kind = A_LOOK;
}

static void trouble(struct plan *p, struct act *a, uint32_t kinds)
{
    int64_t ttl = p->ttl_ms[0] * US;

    do
        a->kind = (enum act_kind)(A_CUT + rnd(ACT_KINDS - A_CUT));
    while (!(kinds & 1u << a->kind));
    a->dur_us = chance(60) ? (int64_t)rnd((uint64_t)ttl / 4) + 1
                           : (int64_t)rnd((uint64_t)ttl * 3) + 1;
    if (a->kind == A_NO_MEMORY)
        a->dur_us = (int64_t)rnd((uint64_t)ttl / 4) + 1;
    if ((p->family != LOOSE && a->kind == A_END_HOLD) ||
        (p->family != ORDERED && a->kind == A_FOLLOWER))
        a->kind = A_CUT;
}

/* In one run of eight clients are stopped, in the place of some looks. Drawn apart, like
 * `refuses`, and so that none of the old seeds is such a run. */
static void stop_some(struct plan *p)
{
    if (p->calm || mix(p->seed ^ STOPS) % 8 != 0)
        return;
    for (size_t i = 0; i < p->n; i++)
        if (p->acts[i].kind == A_LOOK && p->acts[i].rnd % 3 == 0)
            p->acts[i].kind = A_STOP;
}

static int by_time(const void *a, const void *b)
{
    const struct act *x = a, *y = b;

    return x->at < y->at ? -1 : x->at > y->at;
}

void plan_make(struct plan *p, uint64_t seed)
{
    unsigned trouble_percent, other_percent;
    uint32_t kinds = 1u << A_CUT;
    int64_t gap, t = 1000;

    memset(p, 0, offsetof(struct plan, acts));
    p->seed = seed;
    state = mix(seed ^ 0x9157);
    shape(p);
    p->n = 50 + rnd(chance(20) ? ACTS - 50 : 400);
    gap = p->ttl_ms[0] * US / (int64_t)(1 + rnd(chance(50) ? 8 : 60)) + 1;
    trouble_percent = p->calm ? 0 : (unsigned)rnd(chance(70) ? 8 : 25);
    other_percent = (unsigned)rnd(40);
    for (int k = A_CUT; k < ACT_KINDS; k++) /* a run has some kinds of trouble, not all */
        if (k == A_BEYOND || k == A_STORE_FORGETS ? chance(8) : chance(40))
            kinds |= 1u << k;
    if (kinds & 1u << A_STORE_FORGETS)
        kinds &= ~(1u << A_CLOCK); /* without memory or clock no store can order fences */
    for (size_t i = 0; i < p->n; i++) {
        struct act *a = &p->acts[i];

        memset(a, 0, sizeof *a);
        t += (int64_t)rnd((uint64_t)gap * 2);
        a->at = t;
        a->proc = (uint8_t)rnd((uint64_t)p->procs);
        a->slot = (uint8_t)rnd((uint64_t)p->slots);
        a->thread = (uint8_t)rnd(THREADS + 1);
        if (a->thread < THREADS) /* what an owner holds is known to the client it uses */
            a->slot = (uint8_t)(a->thread % p->slots);
        a->line = (uint8_t)rnd((uint64_t)p->lines);
        a->ttl = (uint8_t)rnd((uint64_t)p->nttls);
        a->rnd = (uint32_t)rnd(1u << 30);
        if (chance(trouble_percent))
            trouble(p, a, kinds);
        else if (chance(other_percent))
            other(p, a);
        else
            acquire(p, a);
    }
    stop_some(p);
    qsort(p->acts, p->n, sizeof p->acts[0], by_time);
    p->end = t + 1;
}
