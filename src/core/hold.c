/* hold.c: one ticket and what becomes of it. Turns the seam's events and our timers into
 * steps of the state machine (ticket.c), and its effects into verbs (queued: client.c calls
 * them), news for operations and leases, and timers.
 *
 * A hold lives as long as the store may know its ticket (state not OUT), or a handle or an
 * operation points at it. G7: nothing is freed before the ticket is known to be out.
 *
 * What another thread may read without the lock: until_at and grade (hf_lease_check). They
 * are written before the news of a grant and, on loss, before the place is given up. */
#include "core/core.h"
#include "core/mutate.h"

#include <stdlib.h>
#include <string.h>

static void fired(struct timer *);

static void new_token(struct hold *h)
{
    struct env *env = h->client->env;

    env->random(env, h->t.token, sizeof h->t.token);
    h->join_sent_at = 0;
    h->t.keep_ms = 0;
}

static void fill(struct hold *h, const char *name, const struct acquire_spec *r)
{
    size_t n = strlen(name);
    char *text = (char *)(h + 1);

    if (!h->client->store->shares_lives) {
        h->t.own = (struct life *)(h + 1);
        text += sizeof *h->t.own;
    }
    memcpy(text, name, n + 1);
    memcpy(text + n + 1, r->note, strlen(r->note) + 1);
    h->t.name = text;
    h->t.name_len = (uint16_t)n;
    h->t.note = text + n + 1;
    h->t.store = h->client->store;
    h->t.kind = (uint8_t)r->kind;
    h->t.barge = r->barge;
    h->t.weight = r->weight;
    h->t.capacity = r->capacity;
    h->t.ttl_ms = r->ttl_ms;
    h->t.owner = r->owner;
    h->reentrant = r->reentrant;
    h->no_renew = r->no_renew;
    h->thread = r->thread;
    h->max_hold_ms = r->max_hold_ms;
    h->needs = r->needs;
}

/* Of its memory, from its name on. */
static size_t text_size(const char *name, const char *note)
{
    return strlen(name) + strlen(note) + 2;
}

/* Its ticket has a new token, and a life that knows nothing of the one before. */
static void new_life(struct hold *h)
{
    h->join_ttl_ms = h->t.ttl_ms;
    if (hold_late_life(h)) {
        hf__life_free(h->t.own);
        h->t.own = NULL;
    }
    if (h->t.own)
        hf__life_init(h->t.own, h->t.store, LIFE_OWN, h->t.ttl_ms);
}

struct hold *hf__hold_new(struct client *c, const char *name, const struct acquire_spec *r)
{
    size_t life = c->store->shares_lives ? 0 : sizeof(struct life);
    struct hold *h =
        hf__pool_get(&c->hold_pool, sizeof *h + life + text_size(name, r->note));

    if (!h)
        return NULL;
    h->client = c;
    fill(h, name, r);
    new_token(h);
    new_life(h);
    timer_init(&h->timer, fired);
    list_init(&h->t.on_life);
    list_init(&h->todo_node);
    list_init(&h->on_leaver);
    list_push(&c->holds, &h->node);
    return h;
}

void hf__hold_release_memory(struct hold *h)
{
    struct env *env = h->client->env;
    size_t size;

    if ((h->state != TICKET_OUT && h->state != TICKET_NEW) || h->stepping || h->pins ||
        h->op || h->leaver || h->parts || h->changer)
        return;
    list_remove(&h->node);
    list_remove(&h->todo_node);
    env->timer(env, &h->timer, LOOP_NEVER);
    free((void *)(uintptr_t)h->t.hints);
    free(hold_late_note(h));
    free(h->reason);
    free(hold_late_life(h)); /* not_in_line has ended it; its store may be closed by now */
    size = (size_t)(h->t.name - (char *)h);
    size += text_size(h->t.name, h->t.name + h->t.name_len + 1);
    hf__pool_put(&h->client->hold_pool, h, size);
}

/* The names its owner holds go with the ticket, for others' walks (G10). False: no memory.
 */
static bool set_hints(struct hold *h)
{
    char hints[HF_HINTS_ROOM], *copy = NULL;
    size_t len = MUTANT(NO_HINTS) ? 0 : hf__hold_hints(h->client, h->t.owner, hints);

    if (len > 0) {
        copy = malloc(len);
        if (!copy)
            return false;
        memcpy(copy, hints, len);
    }
    free((void *)(uintptr_t)h->t.hints);
    h->t.hints = copy;
    h->t.hints_len = (uint16_t)len;
    return true;
}

void hf__hold_leaver(struct hold *h, struct hf_op *op)
{
    list_remove(&h->on_leaver);
    h->leaver = op;
    if (op)
        list_push(&op->leaving, &h->on_leaver);
}

/* ---- validity and loss ----------------------------------------------------------- */

static void set_until(struct hold *h)
{
    const struct life *l = h->t.life;
    int64_t until = 0;

    if (h->state == TICKET_HELD && !h->lost && l) {
        until = hf__until(l->sent_at, l->given_ms);
        until = until < h->ends_at ? until : h->ends_at;
    }
    atomic_store_explicit(&h->until_at, until, memory_order_release);
    if (until > 0 && l) /* what was given last stays to be asked for after a loss */
        atomic_store_explicit(&h->given_ms, l->given_ms, memory_order_relaxed);
}

void hf__hold_grade(struct hold *h, uint32_t grade)
{
    set_until(h);
    if (h->uncertain && grade == HF_HELD)
        grade = HF_AT_RISK;
    if (atomic_exchange(&h->grade, grade) == grade)
        return;
    for (const struct lease_part *p = h->parts; p; p = p->next)
        h->client->host->lease_changed(p->lease);
}

static void lose(struct hold *h)
{
    h->lost = true;
    hf__hold_grade(h, HF_LOST);
    hf__op_changer_lost(h);
}

void hf__hold_amend(struct hold *h)
{
    if (h->amend == AMEND_NONE)
        hf__client_todo(h, HOLD_AMEND);
    else
        h->amend = AMEND_AGAIN;
}

/* ---- steps ----------------------------------------------------------------------- */

static void set_timer(struct hold *h, int64_t at)
{
    h->client->env->timer(h->client->env, &h->timer, at);
}

static int64_t now_of(const struct hold *h)
{
    return h->client->env->now(h->client->env);
}

static int64_t plus_ms(int64_t at, int64_t ms)
{
    return ms > (LOOP_NEVER - at) / 1000 - 1 ? LOOP_NEVER : at + ms * 1000;
}

void hf__hold_walk_in(struct hold *h, int64_t ms)
{
    set_timer(h, plus_ms(now_of(h), ms));
}

bool hf__hold_walks_within(const struct hold *h, int64_t ms)
{
    return timer_armed(&h->timer) && h->timer.node.key <= plus_ms(now_of(h), ms);
}

bool hf__hold_by_hand(const struct hold *h)
{
    return h->no_renew && h->state == TICKET_HELD && !hf__op_renews(h);
}

void hf__hold_end_at(struct hold *h, int64_t at)
{
    h->ends_at = at < h->max_at ? at : h->max_at;
    set_timer(h, h->ends_at);
    set_until(h);
}

void hf__hold_count_anew(struct hold *h, int64_t from)
{
    bool here = h->no_renew && h->t.life && h->t.life->kind == LIFE_WIDE;

    hf__hold_end_at(h, here ? plus_ms(from, h->t.ttl_ms) : LOOP_NEVER);
}

static void keep_reason(struct hold *h, const hf_error *err)
{
    free(h->reason);
    h->reason = err ? strdup(err->text) : NULL;
}

static void became_held(struct hold *h)
{
    /* the clock is not read for a hold that is simply renewed */
    int64_t now = h->max_hold_ms > 0 || h->no_renew ? now_of(h) : 0;

    hf__walk_stop(h->walk);
    keep_reason(h, NULL);
    hf__held_add(h);
    h->max_at = h->max_hold_ms > 0 ? plus_ms(now, h->max_hold_ms) : LOOP_NEVER;
    hf__hold_count_anew(h, now);
    hf__hold_grade(h, h->t.life && h->t.life->marked ? HF_AT_RISK : HF_HELD);
}

/* by_owner was in its place. */
static void no_leaver(struct hold *h)
{
    h->leaver = NULL;
    list_init(&h->on_leaver);
}

static void no_longer_held(struct hold *h)
{
    hf__held_remove(h);
    free(h->move);
    h->walk = NULL;
    no_leaver(h);
    h->settled_by = 0;
    h->reason = NULL;
}

/* How long after the last request that could have kept it alive the store has ended a
 * ticket, even if its clock is slower than ours. */
static int64_t out_after_ms(int64_t ttl_ms)
{
    return ttl_ms + ttl_ms / 50 + 10;
}

/* The store has ended the ticket by then, if `last` is when it did our last request. */
static int64_t end_after(const struct hold *h, int64_t last)
{
    int64_t ttl_ms = h->t.ttl_ms;

    if (h->join_ttl_ms > ttl_ms)
        ttl_ms = h->join_ttl_ms; /* another was asked for, and may not be answered */
    if (h->t.own && h->t.own->ttl_ms > ttl_ms)
        ttl_ms = h->t.own->ttl_ms;
    return plus_ms(last, out_after_ms(ttl_ms));
}

/* The store has ended the ticket by then, whatever became of our requests. */
static int64_t latest_end(const struct hold *h)
{
    int64_t last = h->join_sent_at;

    if (h->t.life && h->t.life->tried_at > last)
        last = h->t.life->tried_at;
    return end_after(h, last);
}

static void began_leaving(struct hold *h, bool queued)
{
    h->client->unsettled++;
    h->queued = queued;
    h->settled_by = latest_end(h);
    hf__walk_stop(h->walk);
    set_timer(h, LOOP_NEVER);
    if (h->t.life && h->t.life == h->t.own) {
        h->t.own->dead = true; /* a place that is given up is not renewed */
        hf__life_end(h->client, h->t.own);
    }
}

static void start_anew(struct hold *h)
{
    h->again = false;
    new_token(h);
    new_life(h);
    hf__hold_step(h, TICKET_START, 0, NULL);
}

static void not_in_line(struct hold *h)
{
    if (h->t.own)
        hf__life_end(h->client, h->t.own);
    hf__unhang(&h->t);
    set_timer(h, LOOP_NEVER);
    hf__walk_stop(h->walk);
    h->todo = 0;
    h->leave_sent = false;
    list_remove(&h->todo_node);
    hf__op_changer_lost(h);
    if (h->op)
        h->op->position = 0;
}

/* A place that was to be kept is known to be so only if the store said that it took the
 * leave, and said it before the hold could have ended there: a leave that comes too late
 * finds nothing, and is answered as any other. */
static bool is_kept(const struct hold *h, const struct hf_op *leaver, int why)
{
    return why == 0 && now_of(h) < leaver->keep_by;
}

static void is_out(struct hold *h, int why)
{
    struct hf_op *leaver = h->leaver;

    not_in_line(h);
    if (h->again && h->op) {
        h->state = TICKET_NEW;
        start_anew(h);
        return;
    }
    hf__hold_leaver(h, NULL);
    if (leaver)
        hf__op_settled(leaver,
                       h->t.keep_ms == 0 || is_kept(h, leaver, why) ? 0 : HF_EUNKNOWN);
}

/* While the store, or that part of it, is unreachable the release waits for up to
 * connect_timeout: the leave is repeated as soon as it can be reached again. */
static void unsettled(struct hold *h, int why)
{
    struct hf_op *leaver = h->leaver;

    if ((!h->client->up || why == HF_EUNREACHABLE) && !h->client->closing)
        return;
    hf__hold_leaver(h, NULL);
    if (leaver)
        hf__op_settled(leaver, HF_EUNKNOWN);
}

/* The ticket goes from one state to another: what that means for the client's books. */
static void moved(struct hold *h, enum ticket_state old)
{
    if (old == TICKET_HELD && h->state != TICKET_HELD)
        no_longer_held(h);
    if (old == TICKET_WAITING && h->state != TICKET_WAITING) {
        hf__waiting_remove(h);
        no_leaver(h);
    }
    if (old == TICKET_LEAVING && h->state != TICKET_LEAVING)
        h->client->unsettled--;
    if (old != TICKET_LEAVING && h->state == TICKET_LEAVING)
        began_leaving(h, old != TICKET_HELD);
}

static void arrange(struct hold *h, unsigned effects)
{
    if (effects & DO_AGAIN)
        h->again = true;
    if (effects & (DO_JOIN | DO_LEAVE))
        hf__client_todo(h, effects & (DO_JOIN | DO_LEAVE));
    if ((effects & DO_RENEW) && h->t.life)
        hf__life_renew(h->t.life);
    if ((effects & DO_REPEAT_LATER) && h->client->up) /* else UP repeats it */
        set_timer(h, plus_ms(now_of(h), h->t.ttl_ms < 800 ? 100 : 1000));
}

static void tell(struct hold *h, unsigned effects, int why, const hf_error *err)
{
    if (effects & TELL_UNSETTLED)
        unsettled(h, why);
    if (effects & TELL_GRANTED) {
        became_held(h);
        if (h->op)
            hf__op_granted(h->op, h);
    }
    if ((effects & TELL_REFUSED) && h->op)
        hf__op_refused(h->op, h, why, err);
    if (effects & DO_RETRY)
        not_in_line(h);
    if (effects & TELL_OUT)
        is_out(h, why);
}

void hf__hold_step(struct hold *h, enum ticket_event e, int why, const hf_error *err)
{
    enum ticket_state old = h->state;
    unsigned effects = hf__ticket_step(&h->state, e);

    h->stepping++; /* what is told may give back the last handle */
    moved(h, old);
    if (effects & TELL_LOST)
        lose(h);
    arrange(h, effects);
    if ((effects & TELL_WAITING) && old != TICKET_WAITING) {
        hf__waiting_add(h);
        hf__walk_plan(h);
    }
    if (effects & TELL_WAITING)
        keep_reason(h, NULL);
    tell(h, effects, why, err);
    if (--h->stepping == 0 && h->state == TICKET_OUT)
        hf__hold_release_memory(h);
}

/* A session or lease lives on, renewed for the others on it, and its tickets with it. So
 * does the life that the waiting tickets of a line share: every join and look of theirs
 * keeps it. While the store, or that part of it, is unreachable nobody knows when it does
 * what was sent before: as late as just before UP or ev_back, or a little later, if the
 * driver cannot prevent that and says that nothing is settled. So this is asked when a
 * leave has just been answered: that leave has taken out what came a little later. */
static bool out_by_now(struct hold *h)
{
    const struct life *l = h->t.life;
    int64_t now = now_of(h);

    if (!h->client->up)
        return false;
    if (now < end_after(h, h->client->up_at))
        return false;
    if (h->queued && now < plus_ms(h->client->waits_kept_at, out_after_ms(h->t.ttl_ms)))
        return false;
    return now >= h->settled_by && (!l || l->kind != LIFE_WIDE || l->dead);
}

static void fired(struct timer *t)
{
    struct hold *h = container_of(t, struct hold, timer);

    switch (h->state) {
    case TICKET_WAITING:
        hf__walk_start(h);
        break;
    case TICKET_HELD:
        hf__hold_step(h, TICKET_DEADLINE, HF_ELOST, NULL);
        break;
    case TICKET_RETRYING:
        start_anew(h);
        break;
    case TICKET_LEAVING:
        if (h->leave_sent)
            set_timer(h, plus_ms(now_of(h), 1000));
        else
            hf__hold_step(h, TICKET_REPEAT, 0, NULL);
        break;
    default:
        break;
    }
}

/* ---- verbs ----------------------------------------------------------------------- */

static void call_leave(struct hold *h)
{
    struct store *s = h->client->store;

    h->todo = 0;
    if (h->join_sent_at == 0) {
        hf__hold_step(h, TICKET_LEFT, 0, NULL); /* the store has never heard of it */
        return;
    }
    h->leave_sent = true;
    s->driver->leave(s, &h->t);
}

static void call_join(struct hold *h)
{
    struct store *s = h->client->store;

    h->todo &= ~(unsigned)DO_JOIN;
    if (h->op)
        h->op->position = 0; /* not known before the store has said it */
    if (!set_hints(h)) {
        hf__hold_step(h, h->join_sent_at > 0 ? TICKET_REFUSED_IN_LINE : TICKET_REFUSED,
                      HF_ENOMEM, NULL);
        return;
    }
    h->joined_again = h->join_sent_at > 0;
    h->join_sent_at = h->client->waits_kept_at = now_of(h);
    s->driver->join(s, &h->t);
}

void hf__hold_run(struct hold *h)
{
    struct store *s = h->client->store;

    if (h->todo & DO_LEAVE) {
        call_leave(h);
    } else if (h->todo & DO_JOIN) {
        call_join(h);
    } else if (h->todo & HOLD_AMEND) {
        h->todo &= ~(unsigned)HOLD_AMEND;
        h->amend = AMEND_SENT;
        hf__ttl_sent(h);
        s->driver->amend(s, &h->t);
    }
}

/* ---- events ---------------------------------------------------------------------- */

void ev_waiting(struct ticket *t, uint32_t position, int64_t recheck_ms)
{
    struct hold *h = hold_of(t);

    if (position > 0 && h->op) { /* else the store does not say it this time */
        h->op->position = position;
        h->op->position_at = now_of(h);
    }
    if (recheck_ms >= 0 && t->life) {
        /* Only the head of the queue is told such a time: the last answer is the truth. */
        t->life->recheck_at = plus_ms(now_of(h), recheck_ms) + 1000;
        hf__life_plan(t->life);
    }
    hf__hold_step(h, TICKET_TOLD_WAIT, 0, NULL);
}

/* A grant by another's release counts from our own last answered request: the life that the
 * ticket waited on, whose expiry the grant copied and did not move (G1). */
static void own_life(struct hold *h, int64_t sent_at)
{
    struct ticket *t = &h->t;
    const struct life *from = t->life;

    if (from && from->kind == LIFE_WIDE)
        return;
    t->own->sent_at = sent_at;
    t->own->given_ms = from ? from->given_ms : t->ttl_ms;
    t->own->tried_at = from && from->tried_at > sent_at ? from->tried_at : sent_at;
    t->own->risk_told = t->own->lost_told = false;
    hf__hang(t, t->own);
}

static enum ticket_event how_good(const struct hold *h)
{
    const struct life *l = h->t.life;
    int64_t ttl = l->given_ms * 1000, left;

    if (MUTANT(THIN))
        return TICKET_GRANT;
    left = hf__deadline(l->sent_at, l->given_ms) - h->client->env->now(h->client->env);
    return left * 4 < ttl   ? TICKET_GRANT_THIN
           : left * 2 < ttl ? TICKET_GRANT_SHORT
                            : TICKET_GRANT;
}

void ev_granted(struct ticket *t, uint64_t fence, int64_t sent_at)
{
    struct hold *h = hold_of(t);

    if (MUTANT(LATE_GRANT) && h->state == TICKET_LEAVING)
        h->state = TICKET_WAITING;
    if (h->state != TICKET_JOINING && h->state != TICKET_WAITING)
        return; /* given up meanwhile (the leave takes it back), or told twice */
    t->fence = fence;
    own_life(h, MUTANT(GRANT_MOVES) ? now_of(h) : sent_at);
    hf__hold_step(h, how_good(h), 0, NULL);
    if (t->life)
        hf__life_plan(t->life);
}

void ev_left(struct ticket *t, int rc)
{
    struct hold *h = hold_of(t);

    h->leave_sent = false;
    hf__hold_step(h,
                  rc == 0                                  ? TICKET_LEFT
                  : rc != HF_EUNREACHABLE && out_by_now(h) ? TICKET_FORGOTTEN
                                                           : TICKET_LEFT_UNKNOWN,
                  rc, NULL);
}

/* A refusal says nothing about a ticket that may stand in line; two of them say that it may
 * have got there. */
static bool may_stand(const struct hold *h, int why)
{
    return h->state == TICKET_JOINING
               ? h->joined_again || why == HF_EREPLICAS || why == HF_ENOMEM
           : h->state == TICKET_LEAVING
               ? !h->leave_sent /* which is to come, and settles it */
               : true;
}

/* Not before retry_ms have passed: for as long the hold is in no line, and joins again. */
static void gone_a_while(struct hold *h, int64_t retry_ms, int why, const hf_error *err)
{
    h->stepping++; /* nobody may want it any more */
    hf__hold_step(h, TICKET_GONE_A_WHILE, why, err);
    if (h->state == TICKET_RETRYING) {
        keep_reason(h, err);
        if (!MUTANT(RETRY_FORGOTTEN))
            set_timer(h, plus_ms(now_of(h), MUTANT(RETRY_AT_ONCE) ? 0 : retry_ms));
    }
    h->stepping--;
    hf__hold_release_memory(h);
}

void ev_gone(struct ticket *t, int why, int64_t retry_ms, const hf_error *err)
{
    struct hold *h = hold_of(t);

    if (retry_ms > 0)
        gone_a_while(h, retry_ms, why, err);
    else if (retry_ms == 0 || (why == HF_EEVICTED && h->state == TICKET_HELD))
        /* the first join, which had no answer, may put it there again: then a leave */
        hf__hold_step(h, h->joined_again ? TICKET_DEAD : TICKET_GONE, why, err);
    else
        hf__hold_step(h, may_stand(h, why) ? TICKET_REFUSED_IN_LINE : TICKET_REFUSED, why,
                      err);
}

void ev_amended(struct ticket *t, int rc)
{
    struct hold *h = hold_of(t);
    bool again = h->amend == AMEND_AGAIN;

    if (h->amend == AMEND_NONE)
        return; /* told twice */
    if (t->life)
        hf__life_plan(t->life); /* it may be another one now, with nobody else on it */
    h->amend = rc == HF_EUNKNOWN && !again ? AMEND_SENT : AMEND_NONE; /* UP repeats it */
    if (again && h->state == TICKET_HELD)
        hf__hold_amend(h); /* the answer is not about what was asked for since */
    else
        hf__op_amended(h, rc);
}
