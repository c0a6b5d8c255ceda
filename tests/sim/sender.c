/* sender.c: what the kit (src/kit/scripted.h) needs of a store, for the scripted and the
 * loose family: sends its requests to the reference store and hands each answer back, once.
 * The client's half that is simulated is the one that ships.
 *
 * A connection that breaks answers "nothing" to all that is under way, after DOWN. In some
 * runs the store asks for a request once more (as a moved slot or a failed transaction
 * does), so that it comes behind others which were sent later; and in some the old
 * connection of a client cannot be ended: what was lost with it may be executed for a while
 * after UP (an echo), and the client knows for how long.
 *
 * Here stand two invariants of this family: a message that has come is understood (G4), and
 * no join makes a ticket whose owner has been told that it is out (G7). */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

bool by_scripts(void)
{
    return w.plan->family == SCRIPTED || w.plan->family == LOOSE;
}

static struct sim_client *client_at(struct scripted *s)
{
    return container_of(s, struct sim_client, scripted);
}

static int64_t now_of(const struct sim_client *c)
{
    return proc_now(&w.procs[c->proc]);
}

static uint64_t token_of(const void *token)
{
    uint64_t x;

    memcpy(&x, token, sizeof x);
    return x;
}

static struct ticket *find(const struct sim_client *c, uint64_t token)
{
    unsigned char whole[HF_TOKEN] = { 0 };

    memcpy(whole, &token, sizeof token);
    return hf__seat_find(&c->scripted.seats, whole);
}

/* The table of kit/seats.h. */
static bool allowed(const struct seat_flags *s)
{
    static const struct {
        bool joining, leave, woken, leaving;
    } table[] = { { 0, 0, 0, 0 }, { 1, 0, 0, 0 }, { 1, 0, 1, 0 },
                  { 1, 1, 0, 0 }, { 1, 1, 1, 0 }, { 0, 0, 0, 1 } };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (s->joining == table[i].joining && s->leave == table[i].leave &&
            s->woken == table[i].woken && s->leaving == table[i].leaving)
            return true;
    return false;
}

static void check_seat(const struct sim_client *c, uint64_t token)
{
    const struct ticket *t = c->open && !w.broke ? find(c, token) : NULL;

    if (t && !allowed(seat_of(t)) && !MUTANT(OVERTAKES))
        violate("G7", "client %u: ticket %04x is in a state that cannot be", c->id,
                TOK(token));
}

/* ---- names of tickets in a request ----------------------------------------------- */

static struct names *names_pool;

static struct names *new_names(const struct wait_life *l)
{
    struct names *n = names_pool;

    if (n)
        names_pool = n->next;
    else if ((n = malloc(sizeof *n)) == NULL)
        abort();
    n->refs = 1;
    n->n = l->n;
    for (size_t i = 0; i < l->n; i++)
        n->tokens[i] = token_of(l->tokens[i]);
    return n;
}

void free_names(struct names *n)
{
    if (!n || --n->refs > 0)
        return;
    n->next = names_pool;
    names_pool = n;
}

/* ---- calls ----------------------------------------------------------------------- */

static struct call *new_call(struct sim_client *c, enum msg_kind kind, struct ticket *t)
{
    struct call *k = net_call(c, kind, line_of(t->name));

    if (k) {
        k->t = t;
        memcpy(k->token, t->token, HF_TOKEN);
    }
    return k;
}

/* That of a join or a leave is there until they are answered, if all is well. */
static bool has_gone(const struct sim_client *c, const struct call *k)
{
    return MUTANT(OVERTAKES) && (k->kind == M_JOIN || k->kind == M_LEAVE) &&
           hf__seat_find(&c->scripted.seats, k->token) != k->t;
}

/* "Nothing": no answer will come, or the request could not be made. */
void sender_nothing(struct sim_client *c, const struct call *k)
{
    struct scripted_place nothing = { .kind = k->written ? PLACE_NOTHING : PLACE_UNSENT };

    if (!by_scripts() || has_gone(c, k))
        return;
    switch (k->kind) {
    case M_JOIN:
        if (k->written)
            echo_lost(&k->to->echo, k->t->ttl_ms);
        hf__scripted_joined(&c->scripted, k->t, k->wire.sent_at, &nothing);
        break;
    case M_LEAVE:
        hf__scripted_left(&c->scripted, k->t, LEFT_NOTHING);
        break;
    case M_WAIT:
        hf__scripted_looked(&c->scripted, k->w, k->wire.sent_at, NULL);
        break;
    case M_RENEW:
        hf__scripted_renewed(&c->scripted, k->k, k->wire.sent_at, NULL);
        break;
    default:
        break; /* of an amendment nothing is said: the core repeats it */
    }
}

static struct msg about(const struct ticket *t)
{
    return (struct msg){ .line = (uint8_t)line_of(t->name),
                         .token = token_of(t->token),
                         .ttl_ms = t->ttl_ms,
                         .weight = t->weight,
                         .capacity = t->capacity,
                         .lk = (uint8_t)t->kind,
                         .owner = t->owner,
                         .try_only = t->try_only,
                         .barge = t->barge,
                         .keep_ms = t->keep_ms,
                         .hints = drv_hints(t) };
}

/* As it is now. False: what it is about has gone. */
bool sender_build(struct sim_client *c, struct call *k, struct msg *m)
{
    const struct ticket *t = has_gone(c, k) ? NULL : k->t;

    if (k->kind == M_AMEND)
        t = hf__seat_find(&c->scripted.seats, k->token);
    if (k->kind == M_RENEW)
        t = hf__scripted_trim(&c->scripted, k->k) > 0
                ? hf__scripted_holder(&c->scripted, k->k->holds[0].token)
                : NULL;
    if (k->kind == M_WAIT) {
        *m = (struct msg){ .line = (uint8_t)line_of(k->w->name),
                           .ttl_ms = k->w->life->ttl_ms,
                           .names = new_names(k->w) };
    } else if (t) {
        *m = about(t);
    } else {
        return false;
    }
    if (k->kind == M_RENEW)
        m->ttl_ms = k->k->holds[0].ttl_ms;
    m->kind = k->kind;
    SAY("client %u: %s %s%s%04x%s", c->id,
        k->kind == M_JOIN    ? "join"
        : k->kind == M_LEAVE ? "leave"
        : k->kind == M_WAIT  ? "looks after its waiters of"
        : k->kind == M_RENEW ? "renew"
                             : "amend",
        line_names[m->line], k->kind == M_WAIT ? ", the oldest " : ", ticket ",
        TOK(k->kind != M_WAIT ? m->token
            : m->names->n > 0 ? m->names->tokens[0]
                              : 0),
        m->try_only && k->kind == M_JOIN ? ", only if free" : "");
    return true;
}

/* ---- what the kit asks for ------------------------------------------------------- */

static void send_join(struct scripted *s, struct ticket *t)
{
    static const struct scripted_place full = { .kind = PLACE_REFUSED, .code = HF_ENOMEM };
    struct sim_client *c = client_at(s);
    struct call *k = new_call(c, M_JOIN, t);

    if (!k) {
        hf__scripted_joined(s, t, 0, &full);
        return;
    }
    net_start(c, k);
    part_asked(k->to);
}

static void send_leave(struct scripted *s, struct ticket *t)
{
    struct call *k = new_call(client_at(s), M_LEAVE, t);

    if (!k) {
        hf__scripted_left(s, t, LEFT_UNKNOWN);
        return;
    }
    net_start(client_at(s), k);
}

static void send_look(struct scripted *s, struct wait_life *l)
{
    struct call *k = net_call(client_at(s), M_WAIT, line_of(l->name));

    if (!k) {
        hf__scripted_looked(s, l, 0, NULL);
        return;
    }
    k->w = l;
    net_start(client_at(s), k);
}

static void send_renewal(struct scripted *s, struct scripted_renewal *r)
{
    struct call *k = net_call(client_at(s), M_RENEW, (int)r->holds[0].shard);

    if (!k) {
        hf__scripted_renewed(s, r, 0, NULL);
        return;
    }
    k->k = r;
    net_start(client_at(s), k);
}

static bool echoes(struct scripted *s, const struct ticket *t)
{
    struct sim_client *c = client_at(s);

    return now_of(c) < wire_to(c, line_of(t->name))->echo.until;
}

static unsigned shard(struct scripted *s, const struct ticket *t)
{
    (void)s;
    return (unsigned)part_of_line(line_of(t->name));
}

int sender_open(struct sim_client *c)
{
    static const struct scripted_ops ops = { .join = send_join,
                                             .leave = send_leave,
                                             .look = send_look,
                                             .renew = send_renewal,
                                             .echoes = echoes,
                                             .shard = shard };

    int rc = hf__scripted_init(&c->scripted, &ops, &c->store);

    if (rc < 0)
        hf__scripted_done(&c->scripted);
    return rc;
}

void sender_close(struct sim_client *c)
{
    hf__scripted_done(&c->scripted);
}

/* ---- verbs ----------------------------------------------------------------------- */

void sender_join(struct sim_client *c, struct ticket *t)
{
    if (t->drv[2])
        violate("G7", "client %u stands in line %s again after its eviction", c->id,
                t->name);
    mem_ticket(hold_of(t), false); /* whether it is known is asked of the kit */
    hf__scripted_join(&c->scripted, t);
    check_seat(c, token_of(t->token));
}

void sender_leave(struct sim_client *c, struct ticket *t)
{
    uint64_t token = token_of(t->token);

    mem_ticket(hold_of(t), false);
    hf__scripted_leave(&c->scripted, t);
    check_seat(c, token);
}

void sender_amend(struct sim_client *c, struct ticket *t)
{
    struct call *k = new_call(c, M_AMEND, t);

    if (!k) {
        ev_amended(t, HF_ENOMEM);
        return;
    }
    net_start(c, k);
}

/* ---- answers --------------------------------------------------------------------- */

static void joined(struct sim_client *c, struct ticket *t, const struct msg *m)
{
    struct scripted_place p = { .kind = m->rc < 0  ? PLACE_REFUSED
                                        : m->fence ? PLACE_HELD
                                                   : PLACE_WAITS,
                                .code = m->rc,
                                .fence = m->fence,
                                .number = m->seq,
                                .position = m->position,
                                .recheck_ms = m->recheck_ms,
                                .stamp = m->stamp };

    if (p.kind == PLACE_HELD && seat_of(t)->leave)
        ev_granted(t, m->fence, m->sent_at); /* the kit does not tell it; others may */
    hf__scripted_joined(&c->scripted, t, m->sent_at, &p);
}

static void looked(struct sim_client *c, struct wait_life *l, const struct msg *m)
{
    struct scripted_place places[WAIT_CHUNK] = { { .kind = PLACE_NOTHING } };
    struct scripted_looked look = { .code = m->rc == HF_EAUTH ? HF_EAUTH : 0,
                                    .renewed = m->rc == 0,
                                    .stamp = m->stamp,
                                    .count = (size_t)m->capacity,
                                    .recheck_ms = m->recheck_ms,
                                    .places = places };

    for (int i = 0; m->snap && i < m->snap->n; i++) {
        const struct srow *r = &m->snap->rows[i];
        struct ticket *t = find(c, r->token);

        places[i] = (struct scripted_place){ .kind = r->position > 0 ? PLACE_WAITS
                                                     : r->fence      ? PLACE_HELD
                                                     : r->marked     ? PLACE_REFUSED
                                                                     : PLACE_LOST,
                                             .code = HF_EEVICTED,
                                             .fence = r->fence,
                                             .position = r->position };
        if (t && places[i].kind == PLACE_REFUSED && t->life == l->life && seat_idle(t))
            t->drv[2] = 1;
    }
    hf__scripted_looked(&c->scripted, l, m->sent_at, &look);
}

/* The store takes one hold at a time. */
static void renewed(struct sim_client *c, struct scripted_renewal *r, const struct msg *m)
{
    unsigned char answer = m->rc == 0 && m->ttl_ms == 0 ? RENEWED_UNSAID
                           : m->rc == 0                 ? RENEWED
                           : m->rc == HF_EBUSY          ? RENEWED_MARKED
                                                        : RENEWED_GONE;

    hf__scripted_renewed(&c->scripted, r, m->sent_at, &answer);
}

/* After a while, as it is then. */
static void repeat(struct sim_client *c, const struct call *was)
{
    struct call *k = net_call(c, was->kind, (int)(was->to - c->wires));
    struct ev *e = new_event(E_AGAIN, w.now + (int64_t)draw(20 * US));

    k->t = was->t;
    k->w = was->w;
    k->k = was->k;
    memcpy(k->token, was->token, HF_TOKEN);
    e->id = c->id;
    e->m.slot = (int)(k - c->calls);
    push_event(e);
}

void sender_again(struct sim_client *c, const struct msg *m)
{
    net_start(c, &c->calls[m->slot]);
    hf__link_flush(&c->dirty);
}

static void answered(struct sim_client *c, const struct msg *m, const struct call *k)
{
    if (m->bounced) {
        repeat(c, k);
        return;
    }
    if (has_gone(c, k))
        return;
    switch (k->kind) {
    case M_JOIN:
        joined(c, k->t, m);
        break;
    case M_LEAVE:
        hf__scripted_left(&c->scripted, k->t,
                          m->rc < 0  ? LEFT_UNKNOWN
                          : m->fence ? LEFT_OUT
                                     : LEFT_NOT_THERE);
        break;
    case M_WAIT:
        looked(c, k->w, m);
        break;
    case M_RENEW:
        renewed(c, k->k, m);
        break;
    default:
        hf__scripted_amended(&c->scripted, k->token, m->rc);
        break;
    }
}

/* ---- messages -------------------------------------------------------------------- */

/* It has come: so its ticket is granted, or something is under way that will find it. */
static void understood_soon(struct sim_client *c, const struct msg *m)
{
    const struct plan *p = w.plan;
    const struct ticket *t = find(c, m->token);
    struct ev *e;

    if (!t || (!ticket_waits(t) && !seat_of(t)->joining) || p->slow_ppm > 0 || p->refuses ||
        p->bounces)
        return;
    e = new_event(E_TOLD, w.now + 8 * (p->delay_us + p->jitter_us) + US);
    e->id = c->id;
    e->n = wire_to(c, m->line)->epoch;
    e->m = *m;
    e->m.sent_at = w.now;
    push_event(e);
}

void sender_understood(const struct ev *e)
{
    struct sim_client *c = w.by_id[e->id];
    const struct wire *x = c ? wire_to(c, e->m.line) : NULL;
    const struct proc *p = c ? &w.procs[c->proc] : NULL;
    const struct st *s = store_find(e->m.line, e->m.token);
    const struct ticket *t;

    if (!c || !c->open || x->epoch != e->n || x->silent || w.asleep_till > e->m.sent_at ||
        p->no_memory_until > e->m.sent_at || !s || !s->held || s->marked || st_dead(s) ||
        s->fence != e->m.fence)
        return;
    t = find(c, e->m.token);
    if (t && !seat_of(t)->leave && (ticket_waits(t) || seat_of(t)->joining) &&
        !seat_of(t)->leaving)
        violate("liveness",
                "client %u was told that ticket %04x is granted, and does nothing", c->id,
                TOK(e->m.token));
}

static void told(struct sim_client *c, const struct msg *m)
{
    struct ticket *t = find(c, m->token);
    unsigned char token[HF_TOKEN];

    if (!t)
        return;
    memcpy(token, t->token, HF_TOKEN);
    if (m->kind == N_GONE && seat_idle(t))
        t->drv[2] = 1;
    hf__scripted_told(&c->scripted, token,
                      m->kind == N_GRANT  ? TOLD_GRANT
                      : m->kind == N_MARK ? TOLD_MARK
                                          : TOLD_REVOKED,
                      m->fence, m->stamp);
    if (m->kind == N_GRANT)
        understood_soon(c, m);
}

/* False: not of this part. */
bool sender_receive(struct sim_client *c, const struct msg *m, const struct call *k)
{
    if (!by_scripts())
        return false;
    if (m->kind >= N_GRANT)
        told(c, m);
    else if (m->kind >= R_JOIN && m->kind <= R_WAIT)
        answered(c, m, k);
    else
        return false;
    check_seat(c, m->token);
    return true;
}

/* ---- connections ----------------------------------------------------------------- */

/* Joins that are under way when the connection is lost may come much later, if nobody can
 * end it: each once, and after the next greeting. */
void sender_cut(const struct wire *x)
{
    for (size_t i = 0; w.plan->echoes && !w.quiet && i < w.nheap; i++) {
        struct ev *e = w.heap[i], *late;

        if (e->kind != E_TO_STORE || e->id != x->c->id || e->m.kind != M_JOIN ||
            !wire_has(x, &e->m) || (e->m.held_up && draw(2) == 0))
            continue;
        late = new_event(E_TO_STORE, 0);
        late->id = e->id;
        late->m = e->m;
        late->next = w.late;
        w.late = late;
        e->m.epoch = 0; /* nobody's */
    }
}

void sender_greeted(const struct msg *m)
{
    int part = part_of_line(m->line);
    struct ev **at = &w.late, *e;

    if (w.plan->echoes)
        w.echo_until[m->id][part] = w.now + sender_echo_us();
    while ((e = *at) != NULL) {
        if (e->id != m->id || part_of_line(e->m.line) != part) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        e->at = w.now + (int64_t)draw((uint64_t)sender_echo_us());
        push_event(e);
    }
}

/* For so long after UP the store executes what an older connection has sent. The core
 * repeats an unsettled leave for at least 100 ms. */
int64_t sender_echo_us(void)
{
    int64_t us = 80 * US;

    for (int i = 0; i < w.plan->nttls; i++)
        us = w.plan->ttl_ms[i] * US / 4 < us ? w.plan->ttl_ms[i] * US / 4 : us;
    return us;
}

void sender_up(struct wire *x)
{
    if (!w.plan->echoes)
        x->echo.lost_ms = 0;
    echo_up(&x->echo, now_of(x->c));
}

/* ---- invariants ------------------------------------------------------------------ */

bool sender_gave_up(const struct sim_client *c, const struct msg *m)
{
    const struct ticket *t = find(c, m->token);

    return !t || seat_of(t)->leave || seat_of(t)->leaving;
}

bool sender_knows(const struct sim_client *c, const struct ticket *t)
{
    return by_scripts() && c->scripted.seats.slots &&
           hf__seat_find(&c->scripted.seats, t->token) == t;
}

/* A join has just made a ticket. */
void sender_joins(const struct msg *m)
{
    const struct sim_client *c = w.by_id[m->id];

    if (!by_scripts() || !c || !c->open || c->core.closing || c->core.closed ||
        w.procs[c->proc].beyond || !oracle_prompt() || find(c, m->token))
        return;
    list_for(n, &c->core.holds)
        if (token_of(container_of(n, struct hold, node)->t.token) == m->token)
            return;
    violate("G7",
            "a late join makes ticket %04x of client %u, which was told that it is out",
            TOK(m->token), c->id);
}
