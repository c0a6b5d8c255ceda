/* local_events.c: the core's part in local_harness.h: keeps lives, and notes every event
 * that the driver raises. */
#include "local_harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lives, as the core keeps them ----------------------------------------------- */

void life_init(struct life *l, struct store *s, enum life_kind kind, int64_t ttl_ms)
{
    memset(l, 0, sizeof *l);
    l->store = s;
    l->kind = kind;
    l->ttl_ms = ttl_ms;
    list_init(&l->tickets);
    list_init(&l->due);
}

struct life *hf__life_new(struct store *s, enum life_kind kind, int64_t ttl_ms)
{
    struct life *l = malloc(sizeof *l);

    if (l)
        life_init(l, s, kind, ttl_ms);
    return l;
}

void hf__life_free(struct life *l)
{
    free(l);
}

static void unhang(struct ticket *t)
{
    if (!t->life)
        return;
    list_remove(&t->on_life);
    t->life->ntickets--;
    t->life = NULL;
}

void hf__hang(struct ticket *t, struct life *l)
{
    unhang(t);
    t->life = l;
    l->ntickets++;
    list_push(&l->tickets, &t->on_life);
}

/* ---- events ---------------------------------------------------------------------- */

static struct pass *pass_of(struct ticket *t)
{
    return container_of(t, struct pass, t);
}

void ev_waiting(struct ticket *t, uint32_t position, int64_t recheck_ms)
{
    struct pass *p = pass_of(t);

    p->waiting++;
    p->position = position;
    p->recheck_ms = recheck_ms;
}

void ev_granted(struct ticket *t, uint64_t fence, int64_t sent_at)
{
    struct pass *p = pass_of(t);

    t->fence = fence;
    p->granted++;
    p->sent_at = sent_at;
    t->own->sent_at = sent_at;
}

void ev_left(struct ticket *t, int rc)
{
    struct pass *p = pass_of(t);

    p->left++;
    p->why = rc;
    if (rc == 0)
        unhang(t);
}

void ev_gone(struct ticket *t, int why, int64_t retry_ms, const hf_error *err)
{
    struct pass *p = pass_of(t);

    assert_int_equal(retry_ms, why == HF_ELOST ? 0 : -1);
    p->gone++;
    p->why = why;
    if (err)
        p->err = *err;
    unhang(t);
}

void ev_amended(struct ticket *t, int rc)
{
    pass_of(t)->amended++;
    pass_of(t)->why = rc;
}

void ev_alive(struct life *l, int64_t sent_at, int64_t ttl_ms)
{
    l->sent_at = sent_at;
    l->given_ms = ttl_ms;
    list_for(n, &l->tickets)
        pass_of(container_of(n, struct ticket, on_life))->alive++;
}

void ev_dead(struct life *l)
{
    list_for(n, &l->tickets)
        pass_of(container_of(n, struct ticket, on_life))->dead = 1;
}

void ev_marked(struct ticket *t)
{
    pass_of(t)->marked = 1;
}

void ev_row(struct look *l, const struct row *r)
{
    struct glance *g = container_of(l, struct glance, look);
    struct seen_row *s = &g->rows[g->n];

    assert_true(g->n < 64);
    g->n++;
    s->row = *r;
    assert_true(r->name_len < sizeof s->name);
    memcpy(s->name, r->name, r->name_len);
    s->name[r->name_len] = '\0';
    if (r->has_ticket)
        snprintf(s->note, sizeof s->note, "%s", r->note);
}

/* ---- follows: the core's part of seam.h, rule 11 ---- */

static struct timer *again_timer(struct look *l, struct cell *c)
{
    return l ? &container_of(l, struct glance, look)->again
             : &container_of(c, struct drawer, cell)->again;
}

void ev_changed(struct look *l, struct cell *c)
{
    if (l)
        hf__driver_local.look(l->store, l);
    else
        hf__driver_local.cell(c->store, c);
}

static void look_again(struct timer *t)
{
    ev_changed(&container_of(t, struct glance, again)->look, NULL);
}

static void cell_again(struct timer *t)
{
    ev_changed(NULL, &container_of(t, struct drawer, again)->cell);
}

void side_stop(struct look *l, struct cell *c)
{
    struct store *s = l ? l->store : c->store;
    struct timer *t = again_timer(l, c);

    if (timer_armed(t))
        s->env->timer(s->env, t, LOOP_NEVER);
    hf__driver_local.stop(s, l, c);
}

static void follow_on(struct look *l, struct cell *c, int rc)
{
    struct store *s = l ? l->store : c->store;
    struct timer *t = again_timer(l, c);

    if (rc < 0) {
        side_stop(l, c);
        return;
    }
    if (c)
        c->verb = CELL_GET;
    if (!timer_armed(t))
        timer_init(t, l ? look_again : cell_again);
    s->env->timer(s->env, t, l ? l->again_at : c->again_at);
}

void ev_progress(struct look *l)
{
    (void)l;
}

void ev_done(struct look *l, struct cell *c, int rc, const hf_error *err)
{
    if (l ? l->follow : c->follow)
        follow_on(l, c, rc);
    if (l) {
        struct glance *g = container_of(l, struct glance, look);

        g->done++;
        g->rc = rc;
        if (err)
            g->err = *err;
    } else {
        struct drawer *d = container_of(c, struct drawer, cell);

        d->done++;
        d->rc = rc;
    }
}

void ev_store(struct store *s, int state, const hf_error *err)
{
    (void)s;
    (void)state;
    (void)err;
    fail(); /* this store is always up */
}
