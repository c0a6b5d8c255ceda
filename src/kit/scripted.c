/* scripted.c: see scripted.h. Each verb and each answer is one function; what a ticket may
 * be in the middle of is the table in seats.h. */
#include "kit/scripted.h"

#include "kit/mutate.h"

#include <stdlib.h>
#include <string.h>

int hf__scripted_init(struct scripted *s, const struct scripted_ops *ops,
                      struct store *store)
{
    s->ops = ops;
    s->renew_most = 1;
    list_init(&s->renewals);
    if (hf__map_init(&s->seats) < 0)
        return HF_ENOMEM;
    return hf__waiters_init(&s->waiters, store);
}

void hf__scripted_done(struct scripted *s)
{
    struct list *n;

    if (!s->seats.slots)
        return;
    for (size_t i = 0; i <= s->seats.mask; i++)
        while (s->seats.slots[i]) {
            struct ticket *t = container_of(s->seats.slots[i], struct ticket, drv_node);

            hf__seat_out(&s->seats, t);
            hf__wait_off(&s->waiters, t);
        }
    hf__waiters_done(&s->waiters);
    while ((n = list_pop(&s->renewals)) != NULL)
        free(container_of(n, struct scripted_renewal, on));
    free(s->due);
    hf__map_done(&s->seats);
}

/* What was sent outlives what we know of the ticket: the core may have its leave repeated.
 */
static void forget(struct scripted *s, struct ticket *t)
{
    struct seat_flags none = { .sent = seat_of(t)->sent, .echo = seat_of(t)->echo };

    hf__seat_out(&s->seats, t);
    hf__wait_off(&s->waiters, t);
    *seat_of(t) = none;
}

static void left(struct scripted *s, struct ticket *t, int rc)
{
    forget(s, t);
    ev_left(t, rc);
}

static void gone(struct scripted *s, struct ticket *t, int why, int64_t retry_ms,
                 const hf_error *err)
{
    forget(s, t);
    ev_gone(t, why, retry_ms, err);
}

/* ---- leaving --------------------------------------------------------------------- */

static void send_leave(struct scripted *s, struct ticket *t)
{
    *seat_of(t) = (struct seat_flags){ .number = seat_of(t)->number,
                                       .sent = true,
                                       .echo = seat_of(t)->echo,
                                       .leaving = true };
    s->ops->leave(s, t);
}

void hf__scripted_leave(struct scripted *s, struct ticket *t)
{
    hf__seat_in(&s->seats, t); /* the core may repeat the leave of one that is forgotten */
    if (seat_of(t)->joining && !MUTANT(OVERTAKES))
        seat_of(t)->leave = true;
    else if (!seat_of(t)->sent && !MUTANT(OVERTAKES))
        left(s, t, 0);
    else if (!seat_of(t)->leaving)
        send_leave(s, t);
}

void hf__scripted_left(struct scripted *s, struct ticket *t, enum left_kind how)
{
    bool settled = how == LEFT_OUT || how == LEFT_NOT_THERE;

    if (settled && s->ops->echoes && (how == LEFT_NOT_THERE || seat_of(t)->echo) &&
        s->ops->echoes(s, t))
        settled = false; /* a lost join may still come */
    left(s, t,
         settled                                      ? 0
         : how == LEFT_NOTHING && !MUTANT(LEFT_BLIND) ? HF_EUNREACHABLE
                                                      : HF_EUNKNOWN);
}

/* ---- joining --------------------------------------------------------------------- */

void hf__scripted_join(struct scripted *s, struct ticket *t)
{
    if (hf__seat_find(&s->seats, t->token) != t)
        *seat_of(t) = (struct seat_flags){ 0 };
    hf__seat_in(&s->seats, t);
    if (seat_of(t)->joining)
        return; /* under way */
    seat_of(t)->joining = true;
    s->ops->join(s, t);
}

static void now_waits(struct scripted *s, struct ticket *t, int64_t sent_at,
                      const struct scripted_place *p, bool woken)
{
    struct wait_life *w = hf__wait_get(&s->waiters, t);

    if (!w) {
        gone(s, t, HF_ENOMEM, -1, NULL); /* the core leaves, because it may stand there */
        return;
    }
    w->pins++;
    hf__wait_hang(&s->waiters, t, w, p->number);
    hf__wait_answered(w, sent_at, p->stamp);
    ev_alive(w->life, sent_at, w->life->ttl_ms);
    ev_waiting(t, p->position, p->recheck_ms);
    if (woken)
        hf__scripted_look(s, w);
    hf__wait_unpin(&s->waiters, w);
}

static void now_holds(struct scripted *s, struct ticket *t, uint64_t fence, int64_t sent_at)
{
    struct wait_life *w = ticket_waits(t) ? wait_life_of(t->life) : NULL;

    if (w)
        w->pins++; /* the core takes the ticket off it */
    ev_granted(t, fence, sent_at);
    if (w)
        hf__wait_unpin(&s->waiters, w);
}

static void refused(struct scripted *s, struct ticket *t, const struct scripted_place *p,
                    bool leave)
{
    if (leave && (seat_of(t)->echo || p->code == HF_EREPLICAS))
        send_leave(s, t); /* it may stand in line */
    else if (leave && !MUTANT(REFUSED_LEAVE))
        left(s, t, 0);
    else if (!leave)
        gone(s, t, p->code, -1, p->err);
}

void hf__scripted_joined(struct scripted *s, struct ticket *t, int64_t sent_at,
                         const struct scripted_place *p)
{
    struct seat_flags *seat = seat_of(t);
    bool leave = seat->leave, woken = seat->woken && !MUTANT(NOT_WOKEN);

    if (MUTANT(OVERTAKES) && seat->leaving)
        return;
    seat->joining = seat->leave = seat->woken = false;
    if (p->kind != PLACE_UNSENT && !(p->kind == PLACE_NOTHING && MUTANT(SENT_FORGOTTEN)))
        seat->sent = true;
    if (p->kind == PLACE_NOTHING || p->kind == PLACE_UNSENT) {
        seat->echo = seat->echo || (p->kind == PLACE_NOTHING && !MUTANT(NO_ECHO));
        if (leave)
            left(s, t,
                 !seat->sent          ? 0
                 : MUTANT(LEFT_BLIND) ? HF_EUNKNOWN
                                      : HF_EUNREACHABLE);
    } else if (p->kind == PLACE_REFUSED) {
        refused(s, t, p, leave);
    } else if (leave) {
        send_leave(s, t);
    } else if (p->kind == PLACE_WAITS) {
        now_waits(s, t, sent_at, p, woken);
    } else {
        unsigned char token[HF_TOKEN];

        memcpy(token, t->token, HF_TOKEN);
        now_holds(s, t, p->fence, sent_at);
        t = hf__seat_find(&s->seats, token);
        if (t && woken) /* the message may have said that it was revoked */
            hf__scripted_ask(s, t);
    }
}

void hf__scripted_amended(struct scripted *s, const void *token, int rc)
{
    struct ticket *t = hf__seat_find(&s->seats, token);

    if (t)
        ev_amended(t, rc);
}

/* ---- the safety look ------------------------------------------------------------- */

static void look_from(struct scripted *s, struct wait_life *w, size_t skip, size_t most)
{
    hf__wait_name(w, skip, most);
    w->again = false;
    w->asked = true;
    w->pins++;
    s->ops->look(s, w);
}

void hf__scripted_look(struct scripted *s, struct wait_life *w)
{
    if (w->asked)
        w->again = !MUTANT(NOT_AGAIN);
    else
        look_from(s, w, 0, WAIT_OLDEST);
}

static struct ticket *named(const struct scripted *s, const struct wait_life *w, size_t i)
{
    struct ticket *t = hf__seat_find(&s->seats, w->tokens[i]);

    return t && t->life == w->life && (seat_idle(t) || MUTANT(LATE_LOOK)) ? t : NULL;
}

/* Rights, a damaged line, another format: those that were named are told, and the core
 * leaves for them. Other errors may pass: the next look asks again. */
static void look_refused(struct scripted *s, const struct wait_life *w,
                         const struct scripted_looked *l)
{
    if (l->code != HF_EAUTH && l->code != HF_EDAMAGED && l->code != HF_EVERSION)
        return;
    for (size_t i = 0; i < w->n; i++) {
        struct ticket *t = named(s, w, i);

        if (t)
            gone(s, t, l->code, -1, l->err);
    }
}

/* What became of each that was named. Returns how many of them still wait. */
static size_t tell_each(struct scripted *s, const struct wait_life *w, int64_t sent_at,
                        const struct scripted_looked *l)
{
    size_t waiting = 0;

    for (size_t i = 0; i < w->n; i++) {
        const struct scripted_place *p = &l->places[i];
        struct ticket *t = named(s, w, i);

        if (!t)
            continue;
        switch (p->kind) {
        case PLACE_HELD:
            now_holds(s, t, p->fence, sent_at);
            break;
        case PLACE_WAITS:
            ev_waiting(t, p->position, waiting++ == 0 ? l->recheck_ms : -1);
            break;
        case PLACE_REFUSED:
            gone(s, t, p->code, -1, p->err);
            break;
        default:
            gone(s, t, HF_ELOST, 0, NULL);
            break;
        }
    }
    return waiting;
}

static void looked(struct scripted *s, struct wait_life *w, int64_t sent_at,
                   const struct scripted_looked *l)
{
    size_t waiting, skip;

    if (l->renewed) {
        hf__wait_answered(w, sent_at, l->stamp);
        ev_alive(w->life, sent_at, w->life->ttl_ms);
    }
    waiting = tell_each(s, w, sent_at, l);
    if (w->life->ntickets == 0)
        return;
    if (w->again)
        look_from(s, w, 0, WAIT_OLDEST);
    else if (hf__wait_goes_on(w, waiting, l->count, &skip))
        look_from(s, w, skip, WAIT_CHUNK);
}

void hf__scripted_looked(struct scripted *s, struct wait_life *w, int64_t sent_at,
                         const struct scripted_looked *l)
{
    w->asked = !l && MUTANT(ASKED_STAYS);
    if (l && l->code < 0)
        look_refused(s, w, l);
    else if (l)
        looked(s, w, sent_at, l);
    hf__wait_unpin(&s->waiters, w);
}

/* ---- proving that holders live --------------------------------------------------- */

struct ticket *hf__scripted_holder(const struct scripted *s, const void *token)
{
    struct ticket *t = hf__seat_find(&s->seats, token);

    return t && t->life == t->own && seat_idle(t) ? t : NULL;
}

size_t hf__scripted_trim(const struct scripted *s, struct scripted_renewal *k)
{
    size_t n = 0;

    for (size_t i = 0; i < k->n; i++) {
        const struct ticket *t = hf__scripted_holder(s, k->holds[i].token);

        if (!t)
            continue;
        k->holds[n] = k->holds[i];
        if (k->holds[n].ttl_ms > 0)
            k->holds[n].ttl_ms = t->own->ttl_ms;
        n++;
    }
    return k->n = n;
}

/* Without memory nothing is sent, and the core asks again. */
static void gather(struct scripted *s, const struct ticket *t, int64_t ttl_ms)
{
    struct scripted_hold *h;

    if (s->ndue == s->room) {
        size_t room = s->room ? 2 * s->room : 16;

        h = realloc(s->due, room * sizeof *h);
        if (!h)
            return;
        s->due = h;
        s->room = room;
    }
    h = &s->due[s->ndue++];
    memcpy(h->token, t->token, HF_TOKEN);
    h->ttl_ms = ttl_ms;
    h->shard = s->ops->shard ? s->ops->shard(s, t) : 0;
}

static void send_renewal(struct scripted *s, const struct scripted_hold *holds, size_t n)
{
    struct scripted_renewal *k = calloc(1, sizeof *k + n * sizeof k->holds[0]);

    if (!k)
        return;
    memcpy(k->holds, holds, n * sizeof k->holds[0]);
    k->n = n;
    list_push(&s->renewals, &k->on);
    s->ops->renew(s, k);
}

static int by_shard(const void *a, const void *b)
{
    const struct scripted_hold *x = a, *y = b;

    return x->shard < y->shard ? -1 : x->shard > y->shard;
}

void hf__scripted_flush(struct scripted *s)
{
    size_t begin = 0, n = s->ndue;

    if (s->ops->shard && n > 1)
        qsort(s->due, n, sizeof s->due[0], by_shard);
    for (size_t i = 1; i <= n; i++)
        if (i == n || i - begin == s->renew_most ||
            s->due[i].shard != s->due[begin].shard) {
            send_renewal(s, s->due + begin, i - begin);
            begin = i;
        }
    s->ndue = 0;
}

void hf__scripted_renew(struct scripted *s, struct life *const *lives, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (lives[i]->kind == LIFE_WAIT)
            hf__scripted_look(s, wait_life_of(lives[i]));
        else
            gather(s, life_ticket(lives[i]), lives[i]->ttl_ms);
}

void hf__scripted_ask(struct scripted *s, const struct ticket *t)
{
    if (t->life == t->own)
        gather(s, t, 0);
}

void hf__scripted_split(struct scripted *s, struct scripted_renewal *k)
{
    for (size_t i = 0; i < k->n; i++)
        send_renewal(s, &k->holds[i], 1);
    hf__scripted_renewed(s, k, 0, NULL);
}

void hf__scripted_renewed(struct scripted *s, struct scripted_renewal *k, int64_t sent_at,
                          const unsigned char *answers)
{
    for (size_t i = 0; answers && i < k->n; i++) {
        struct ticket *t = hf__scripted_holder(s, k->holds[i].token);

        if (t && answers[i] == RENEWED)
            ev_alive(t->own, sent_at, k->holds[i].ttl_ms);
        else if (t && answers[i] == RENEWED_MARKED)
            ev_marked(t);
        else if (t && answers[i] == RENEWED_GONE)
            ev_dead(t->own);
    }
    list_remove(&k->on);
    free(k);
}

/* ---- messages -------------------------------------------------------------------- */

static void grant_told(struct scripted *s, struct ticket *t, uint64_t fence, int64_t stamp)
{
    const struct wait_life *w = wait_life_of(t->life);

    if (stamp == w->stamp || MUTANT(OUTDATED))
        now_holds(s, t, fence, w->stamp_sent_at);
    else
        hf__scripted_look(s, wait_life_of(t->life));
}

void hf__scripted_told(struct scripted *s, const void *token, enum told_kind what,
                       uint64_t fence, int64_t stamp)
{
    struct ticket *t = hf__seat_find(&s->seats, token);

    if (!t || seat_of(t)->leave || seat_of(t)->leaving)
        return;
    if (seat_of(t)->joining) {
        seat_of(t)->woken = true;
        return;
    }
    switch (what) {
    case TOLD_GRANT:
        if (ticket_waits(t)) /* else it is known already */
            grant_told(s, t, fence, stamp);
        break;
    case TOLD_REVOKED:
        gone(s, t, HF_EEVICTED, -1, NULL);
        break;
    case TOLD_MARK:
        if (t->life == t->own)
            ev_marked(t);
        break;
    case TOLD_LOOK:
        if (ticket_waits(t))
            hf__scripted_look(s, wait_life_of(t->life));
        break;
    }
}
