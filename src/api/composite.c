/* composite.c: see composite.h, which has the rules. */
#include "api/composite.h"

#include <holdfast/recipes.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct composite *of(struct hf_op *op)
{
    return container_of(op, struct composite, op);
}

static hf_client *client_of(const struct composite *g)
{
    return op_client(&g->op);
}

void hf__composite_resume(struct composite *g)
{
    if (!g->op.done && list_empty(&g->resume))
        list_push(&client_of(g)->resumed, &g->resume);
}

/* A step may end a part at once, or the part of another: round and round, until all is
 * said. */
void hf__run(hf_client *c)
{
    struct list *n;

    hf__client_run(&c->core);
    while ((n = list_pop(&c->resumed)) != NULL) {
        struct composite *g = container_of(n, struct composite, resume);

        g->step(g);
        hf__client_run(&c->core);
    }
}

/* ---- the whole ------------------------------------------------------------------- */

static void time_over(struct timer *t)
{
    struct composite *g = container_of(t, struct composite, timer);

    if (g->op.end_at <= hf__loop_now())
        hf__composite_give_up(&g->op, g->op.try_only ? HF_EUNREACHABLE : HF_ETIMEDOUT);
    else
        hf__composite_resume(g);
}

void hf__composite_wake_in(struct composite *g, int64_t ms)
{
    int64_t at = hf__loop_now() + ms * 1000;

    hf__loop_timer(&client_of(g)->loop, &g->timer, at < g->op.end_at ? at : g->op.end_at);
}

struct composite *hf__composite_new(hf_client *c, size_t size,
                                    void (*step)(struct composite *), const char *name,
                                    const struct listener *l, hf_error *err)
{
    struct composite *g;
    struct hf_op *op;

    if (hf__check_name(&c->core, name, err) < 0)
        return NULL;
    op = hf__op_new(c, OP_COMPOSITE, size, l, err);
    if (!op)
        return NULL;
    g = of(op);
    g->step = step;
    list_init(&g->resume);
    list_init(&g->parts);
    timer_init(&g->timer, time_over);
    g->name_len = strlen(name);
    memcpy(g->name, name, g->name_len + 1);
    return g;
}

void hf__composite_limit(struct composite *g, int64_t wait_ms, bool timed,
                         hf_cancel *cancel)
{
    int64_t now = hf__loop_now();

    g->waits = true;
    g->timed = timed;
    g->op.try_only = wait_ms <= 0;
    g->cancel = cancel;
    if (wait_ms > 0 && wait_ms < (LOOP_NEVER - now) / 1000 - 1)
        g->op.end_at = now + wait_ms * 1000;
    else if (wait_ms <= 0 && timed) /* a try waits for nobody but the store */
        g->op.end_at = now + client_of(g)->core.url.connect_ms * 1000;
}

int64_t hf__composite_rest_ms(const struct composite *g)
{
    int64_t rest;

    if (g->op.try_only)
        return 0;
    if (g->op.end_at == LOOP_NEVER)
        return HF_FOREVER;
    rest = (g->op.end_at - hf__loop_now() + 999) / 1000;
    return rest > 1 ? rest : 1; /* 0 would be a try */
}

int hf__composite_start(struct composite *g, hf_error *err)
{
    hf_client *c = client_of(g);
    int rc = 0;

    if (c->core.stopped && !g->op.goes_on)
        rc = hf__fail(err, HF_ECLOSED, 0, NULL, "the client is stopped");
    else if (g->cancel && atomic_load(&g->cancel->fired))
        hf__composite_end(g, HF_ECANCELED);
    else if (g->cancel)
        rc = hf__cancel_attach(c, &g->op, g->cancel, err);
    if (rc < 0) {
        g->op.freed = true; /* its end is not told */
        hf__cancel(&g->op, rc);
        hf__op_drop(c, &g->op);
        return rc;
    }
    if (!g->op.done && g->timed && g->op.end_at != LOOP_NEVER)
        hf__loop_timer(&c->loop, &g->timer, g->op.end_at);
    hf__composite_resume(g);
    hf__run(c);
    return 0;
}

int hf__composite_take(struct composite *g, int64_t *number, hf_lease **lease,
                       hf_error *err)
{
    hf_client *c = client_of(g);
    struct hf_op *op = &g->op;

    if (!op->done)
        hf__wait(c, op);
    if (op->rc >= 0 && number)
        *number = g->number;
    if (op->rc == 0 && lease) {
        *lease = op->lease;
        op->lease = NULL;
        hf__lease_given(c, *lease);
    }
    return hf__op_take(c, op, NULL, err);
}

void hf__composite_end(struct composite *g, int rc)
{
    hf__op_end(&g->op, rc, rc < 0 && g->err.code == rc ? &g->err : NULL);
}

void hf__composite_fail(struct composite *g, int rc, const char *fmt, ...)
{
    char text[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    hf__op_text(&g->op, rc, "%s", text);
    hf__op_end(&g->op, rc, NULL);
}

void hf__composite_give_up(struct hf_op *op, int rc)
{
    struct composite *g = of(op);

    if (op->done)
        return;
    hf__cancel_detach(op); /* whoever fires goes on with the next, see cancel.c */
    if (!g->waits)
        return;
    hf__loop_timer(&client_of(g)->loop, &g->timer, LOOP_NEVER);
    if (!g->unwinds) {
        if (rc == HF_ETIMEDOUT)
            hf__op_text(op, rc, "'%s': the time was over first", g->name);
        else if (rc == HF_EUNREACHABLE)
            hf__op_text(op, rc, "'%s': the store did not answer in time", g->name);
        hf__cancel(op, rc);
        return;
    }
    if (g->give_up == 0)
        g->give_up = rc;
    hf__composite_resume(g);
}

void hf__composite_ended(struct hf_op *op)
{
    struct composite *g = of(op);
    struct list *n;

    list_remove(&g->resume);
    hf__loop_timer(&client_of(g)->loop, &g->timer, LOOP_NEVER);
    while ((n = list_pop(&g->parts)) != NULL)
        hf__cancel(container_of(n, struct hf_op, node), HF_ECANCELED);
    if (g->lease && g->lease->given)
        hf__lease_drop(g->lease, NULL, 0);
    else if (g->lease) {
        hf__release(NULL, g->lease, 0);
        hf__lease_end(g->lease);
    }
    g->lease = NULL;
    if (g->ended)
        g->ended(g);
}

void hf__composite_orphan(struct hf_op *op)
{
    struct composite *g = of(op);

    list_for(n, &g->parts) {
        struct hf_op *part = container_of(n, struct hf_op, node);

        hf__ask_orphan(part);
        free(part->lease);
    }
    if (g->lease)
        hf__lease_extra_free(g->lease);
    free(g->lease);
}

const struct hf_op *hf__composite_awaits(const struct hf_op *op)
{
    const struct hf_op *part = container_of(op, const struct composite, op)->awaits;

    return part && !part->done ? part : NULL;
}

int64_t hf_op_number(const hf_op *op)
{
    const struct composite *g = container_of(op, const struct composite, op);
    int64_t number = 0;

    if (!op || op->kind != OP_COMPOSITE || hf__enter_any(op_client(op)) < 0)
        return 0;
    if (op->done && op->rc >= 0)
        number = g->number;
    hf__leave(op_client(op));
    return number;
}

/* ---- parts ----------------------------------------------------------------------- */

static void begin(struct composite *g, struct hf_op *part, enum op_kind kind)
{
    hf_client *c = client_of(g);

    g->err.code = 0;
    hf__op_init(part, &c->core, kind, &g->err);
    part->part = true;
    part->goes_on = g->op.goes_on;
    part->waiter = &g->op;
    g->awaits = part;
    list_push(&g->parts, &part->node);
}

/* The core has refused to start it. */
static void refused(struct hf_op *part, int rc)
{
    part->explained = true;
    hf__op_end(part, rc, NULL);
}

void hf__part_done(struct hf_op *part)
{
    struct composite *g = of(part->waiter);

    if (part->kind == OP_ACQUIRE && part->rc == 0) {
        g->lease = part->lease;
        part->lease = NULL;
    }
    if (part->kind == OP_WATCH && part->ask)
        hf__ask_stop(part->ask);
    if (part->kind == OP_WATCH) {
        hf_list_free(part->list);
        part->list = NULL;
    }
    hf__composite_resume(g);
}

void hf__part_seen(struct hf_op *part)
{
    part->again = true;
    hf__composite_resume(of(part->waiter));
}

bool hf__part_news(struct hf_op *part)
{
    bool news = part->again;

    part->again = false;
    return news;
}

static void ask(struct composite *g, struct cell_part *p, enum op_kind kind,
                enum cell_verb verb)
{
    int rc;

    begin(g, &p->op, kind);
    p->cell.verb = verb;
    p->cell.follow = kind == OP_WATCH;
    p->cell.name = g->name;
    p->cell.name_len = g->name_len;
    rc = hf__cell(&p->op, &p->ask, &p->cell, &g->err);
    if (rc < 0)
        refused(&p->op, rc);
}

void hf__part_cell(struct composite *g, struct cell_part *p, enum cell_verb verb)
{
    ask(g, p, OP_ASK, verb);
}

void hf__part_follow_cell(struct composite *g, struct cell_part *p)
{
    ask(g, p, OP_WATCH, CELL_GET);
}

static void look(struct composite *g, struct line_part *p, enum op_kind kind)
{
    const struct look what = { .name = g->name,
                               .name_len = g->name_len,
                               .follow = kind == OP_WATCH };
    int rc;

    begin(g, &p->op, kind);
    rc = hf__ask(&p->op, &p->ask, ASK_LOOK, &what, &g->err);
    if (rc < 0)
        refused(&p->op, rc);
}

void hf__part_follow_line(struct composite *g, struct line_part *p)
{
    look(g, p, OP_WATCH);
}

void hf__part_look(struct composite *g, struct line_part *p)
{
    look(g, p, OP_ASK);
}

void hf__part_acquire(struct composite *g, struct hf_op *part, int64_t wait_ms,
                      const struct acquire_spec *r)
{
    const char *name = g->name;
    int rc;

    begin(g, part, OP_ACQUIRE);
    rc = hf__acquire(part, &name, 1, wait_ms, r);
    if (rc < 0)
        refused(part, rc);
}

void hf__part_release(struct composite *g, struct hf_op *part, int64_t keep_ms)
{
    struct hf_lease *l = g->lease;

    g->lease = NULL;
    begin(g, part, OP_RELEASE);
    if (l->given) {
        hf__lease_drop(l, part, keep_ms);
    } else {
        hf__release(part, l, keep_ms);
        hf__lease_end(l);
    }
}

void hf__part_cancel(struct hf_op *part)
{
    if (part->client && !part->done)
        hf__cancel(part, HF_ECANCELED);
}

bool hf__part_unknown(const struct cell_part *p)
{
    return p->op.rc == HF_EUNREACHABLE && p->ask.started && p->cell.verb != CELL_GET;
}
