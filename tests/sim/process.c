/* process.c: simulated processes and their clients, and what befalls them: they are
 * paused, suspended, killed, started again, cut off, short of memory, given wrong
 * clocks; and the store stops. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static struct sim_client *client_pool[PROCS * SLOTS];

/* ---- clocks ---------------------------------------------------------------------- */

static void touch_all(const struct proc *p)
{
    for (int i = 0; i < SLOTS; i++)
        if (p->clients[i])
            touch(p->clients[i]);
}

static void set_clock(struct proc *p, int32_t ppm)
{
    p->base_p = proc_now(p);
    p->base_t = w.now;
    p->ppm = ppm;
    touch_all(p);
}

/* ---- what the core may use of the world ------------------------------------------ */

static struct sim_client *env_client(struct env *e)
{
    return container_of(e, struct sim_client, env);
}

static int64_t env_now(struct env *e)
{
    return proc_now(&w.procs[env_client(e)->proc]);
}

static int64_t env_wall(struct env *e)
{
    return env_now(e);
}

static void env_random(struct env *e, void *buf, size_t n)
{
    uint64_t x = mix(++w.tokens); /* never the same; the rest of a token stays 0 */

    (void)e;
    memset(buf, 0, n);
    memcpy(buf, &x, n < sizeof x ? n : sizeof x);
}

static void env_timer(struct env *e, struct timer *t, int64_t at)
{
    struct sim_client *c = env_client(e);

    if (at == LOOP_NEVER)
        hf__heap_remove(&c->timers, &t->node);
    else
        hf__heap_set(&c->timers, &t->node, at);
}

/* ---- clients --------------------------------------------------------------------- */

static struct url client_url(void)
{
    static char scheme[] = "sim", empty[] = "", shown[] = "sim:";

    return (struct url){
        .scheme = scheme, .path = empty, .ns = empty, .shown = shown, .connect_ms = 2000
    };
}

struct sim_client *open_client(int proc, int slot)
{
    static const hf_options none = HF_OPTIONS_INIT;
    int at = proc * SLOTS + slot;
    struct sim_client *c = client_pool[at];
    struct url url = client_url();
    hf_options o = none;

    if (w.ids == IDS)
        return NULL;
    if (!c && (c = client_pool[at] = malloc(sizeof *c)) == NULL)
        abort();
    memset(c, 0, sizeof *c);
    c->env = (struct env){
        .now = env_now, .wall = env_wall, .random = env_random, .timer = env_timer
    };
    c->alive_word = 1;
    c->core.alive = &c->alive_word;
    c->id = (uint8_t)w.ids++;
    c->proc = (uint8_t)proc;
    c->slot = (uint8_t)slot;
    list_init(&c->ops);
    list_init(&c->leases);
    w.current = proc;
    o.ttl_ms = w.plan->ttl_ms[0];
    if (hf__client_init(&c->core, &sim_driver, &url, &o, &c->env, &sim_host, NULL) < 0) {
        w.current = -1;
        return NULL;
    }
    w.current = -1;
    w.procs[proc].clients[slot] = c;
    w.by_id[c->id] = c;
    c->open = true;
    if (w.plan->family != SYNC)
        for (int i = 0; i < wires(); i++)
            hf__link_start(&c->wires[i].link);
    return c;
}

static void unlink_client(struct sim_client *c)
{
    c->open = false;
    w.by_id[c->id] = NULL;
    w.procs[c->proc].clients[c->slot] = NULL;
    w.next_true[c->proc * SLOTS + c->slot] = INT64_MAX;
}

void close_client(struct sim_client *c)
{
    w.current = c->proc;
    hf__client_done(&c->core);
    oracle_gone(c->id);
    work_drop_client(c);
    if (heap_first(&c->timers))
        violate("G7", "client %u is closed and has a timer that is set", c->id);
    w.current = -1;
    unlink_client(c);
    if (!w.procs[c->proc].clients[0] && !w.procs[c->proc].clients[1] &&
        w.procs[c->proc].nblocks > 0)
        violate("G7", "process %u has closed its clients and leaks %zu blocks of memory",
                c->proc, w.procs[c->proc].nblocks);
}

static void drop_client(struct sim_client *c)
{
    uint8_t id = c->id;

    oracle_gone(id);
    work_drop_client(c);
    unlink_client(c);
    if (w.plan->family == SYNC)
        store_process_died(id);
}

void settle(struct sim_client *c)
{
    if (!c->open)
        return;
    hf__client_run(&c->core);
    if (c->shutting && c->core.unsettled == 0 && !c->core.shut)
        hf__client_end_session(&c->core);
    work_drain();
    driver_tidy(c);
    touch(c);
}

/* ---- processes ------------------------------------------------------------------- */

void process_start(int i)
{
    struct proc *p = &w.procs[i];

    if (w.now > 1000)
        SAY("process %d starts, with client %u and what follows", i, (unsigned)w.ids);
    p->alive = true;
    p->beyond = false;
    p->gen++;
    p->id = mix(w.plan->seed + (uint64_t)i * 1000 + p->gen) << 2;
    p->base_t = w.now;
    p->base_p = 1000000000 + (int64_t)(mix(p->id) % 1000000000);
    p->ppm = w.plan->ppm[i];
    p->paused_until = p->no_memory_until = 0;
    p->ran_at = w.now;
    polls_start(p);
    for (int t = 0; t < THREADS; t++) {
        p->threads[t] = (struct sim_thread){ .number = ++w.numbers, .identity = w.numbers };
        list_init(&p->threads[t].leases);
    }
    for (int s = 0; s < w.plan->slots; s++) {
        struct sim_client *c = open_client(i, s);

        if (c)
            touch(c);
    }
}

static void kill_process(struct proc *p, int64_t restart_us)
{
    struct ev *e;

    SAY("process %d is killed", (int)(p - w.procs));
    p->alive = false;
    for (int i = 0; i < SLOTS; i++)
        if (p->clients[i])
            drop_client(p->clients[i]);
    mem_drop(p);
    e = new_event(E_RESTART, w.now + restart_us);
    e->id = (uint8_t)(p - w.procs);
    push_event(e);
}

/* The child has copies of all handles, and no use of them (G12). It opens a client of
 * its own; here it takes the place of a process that was killed, if there is one. */
static void fork_process(int i)
{
    SAY("process %d forks", i);
    oracle_forked(i);
    for (int k = 0; k < w.plan->procs; k++)
        if (!w.procs[k].alive && w.ids + SLOTS <= IDS) {
            process_start(k);
            break;
        }
}

static void pause_process(struct proc *p, int64_t us, bool suspend)
{
    SAY("process %d %s for %lld ms", (int)(p - w.procs),
        suspend ? "sleeps with its machine" : "stands still", (long long)us / US);
    if (w.now + us > p->paused_until)
        p->paused_until = w.now + us;
    p->ran_at = p->paused_until;
    if (p->paused_until > w.asleep_till)
        w.asleep_till = p->paused_until;
    if (suspend && MUTANT(MONOTONIC)) {
        p->base_p = proc_now(p) - us;
        p->base_t = w.now;
    }
    for (int i = 0; i < SLOTS; i++)
        if (p->clients[i])
            in_trouble(p->clients[i], p->paused_until);
    touch_all(p);
}

/* ---- faults ---------------------------------------------------------------------- */

static void cut(struct wire *x, int64_t us)
{
    w.current = x->c->proc;
    net_cut(x, us);
    settle(x->c);
    w.current = -1;
}

static void cut_all(struct sim_client *c, int64_t us)
{
    for (int i = 0; i < wires(); i++)
        cut(&c->wires[i], us);
}

static void lose_part(struct wire *x, int64_t us)
{
    w.current = x->c->proc;
    part_cut(x, us);
    settle(x->c);
    w.current = -1;
}

static void stop_store(const struct act *a)
{
    struct ev *e;

    SAY("store: stops for %lld ms%s", (long long)a->dur_us / US,
        a->kind == A_STORE_FORGETS ? " and loses its memory" : "");
    w.store_up = false;
    w.store_back = w.now + a->dur_us;
    for (int i = 0; i < PROCS * SLOTS; i++) {
        struct sim_client *c = w.procs[i / SLOTS].clients[i % SLOTS];

        if (!c)
            continue;
        cut_all(c, a->dur_us + (int64_t)(a->rnd % (20 * US)));
    }
    if (a->kind == A_STORE_FORGETS)
        store_forget();
    e = new_event(E_STORE_UP, w.now + a->dur_us);
    push_event(e);
}

/* Does it mean anything now? */
static bool befalls(const struct act *a, const struct proc *p, const struct wire *x)
{
    bool connected = x && w.plan->family != SYNC && x->up && !x->silent && !x->stale;

    switch (a->kind) {
    case A_CUT:
        return connected && can(p);
    case A_SILENT:
        return connected;
    case A_FOLLOWER:
        return connected && w.plan->family == ORDERED && w.store_up;
    case A_STORE_STOP:
    case A_STORE_FORGETS:
        return w.plan->family != SYNC && w.store_up;
    case A_FORK:
        return p->alive && can(p);
    case A_KILL:
        return p->alive;
    default:
        return true;
    }
}

static void no_memory(struct proc *p, int64_t us)
{
    SAY("process %d: little memory, for %lld ms", (int)(p - w.procs), (long long)us / US);
    p->no_memory_until = w.now + us;
    for (int i = 0; i < SLOTS; i++)
        if (p->clients[i])
            in_trouble(p->clients[i], p->no_memory_until);
}

void process_fault(const struct act *a)
{
    struct proc *p = &w.procs[a->proc];
    struct sim_client *c = p->clients[a->slot];
    struct wire *x = c ? wire_to(c, a->line) : NULL;

    if (!befalls(a, p, x))
        return;
    tally_act(a->kind);
    switch (a->kind) {
    case A_CUT:
        if (w.plan->parts && a->rnd % 4 > 0)
            lose_part(x, a->dur_us);
        else
            cut_all(c, a->dur_us);
        break;
    case A_SILENT:
    case A_FOLLOWER:
        net_silent(x, a->dur_us, a->kind == A_FOLLOWER);
        break;
    case A_PAUSE:
    case A_SUSPEND:
        pause_process(p, a->dur_us, a->kind == A_SUSPEND);
        break;
    case A_KILL:
        kill_process(p, a->dur_us);
        break;
    case A_FORK:
        fork_process(a->proc);
        break;
    case A_DRIFT:
        SAY("process %u: its clock drifts", a->proc);
        set_clock(p, (int32_t)(a->rnd % 18001) - 9000);
        break;
    case A_BEYOND:
        SAY("process %u: its clock drifts beyond the bound", a->proc);
        p->beyond = true;
        set_clock(p, -(int32_t)(20000 + a->rnd % 200000));
        break;
    case A_STORE_STOP:
    case A_STORE_FORGETS:
        stop_store(a);
        break;
    case A_CLOCK:
        store_clock(a->rnd & 1 ? a->dur_us : -a->dur_us);
        break;
    case A_NO_MEMORY:
        no_memory(p, a->dur_us);
        break;
    case A_END_HOLD:
        store_end_hold(a->rnd);
        break;
    default:
        break;
    }
}

void process_quiet(void)
{
    bool slept[PROCS] = { false };

    w.quiet = true;
    w.quiet_at = w.now;
    SAY("from here on nothing more goes wrong");
    for (int i = 0; i < w.plan->procs; i++) {
        struct proc *p = &w.procs[i];

        p->no_memory_until = 0;
        slept[i] = p->paused_until > w.now;
        if (slept[i])
            p->paused_until = p->ran_at = w.now;
        touch_all(p);
    }
    w.store_up = true;
    for (int i = 0; i < PROCS * SLOTS; i++) {
        struct sim_client *c = w.procs[i / SLOTS].clients[i % SLOTS];

        if (!c)
            continue;
        /* what was sent to a sleeper comes when it was to wake: what is sent from now on
         * would overtake it, which one ordered stream does not do */
        for (int k = 0; k < wires(); k++) {
            if (c->wires[k].silent || c->wires[k].stale || slept[c->proc])
                cut(&c->wires[k], 0);
            c->wires[k].blocked_until = 0;
        }
    }
    work_quiet();
}
