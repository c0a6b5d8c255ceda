/* ask.c: looks, evictions and cells on their way to the store and back.
 *
 * Happy path: queued -> the verb is called (client.c) -> rows -> answer. Asking changes no
 * line but by evict, which names a ticket by its token (G8) and may therefore be repeated.
 * What the store has not answered when it becomes unreachable, the driver ends with an
 * error (seam.h, rule 6).
 *
 * A follow is asked again when it may have changed (rule 11): the driver has said so, its
 * time has come, or the store is up again. At most one question of it is under way. If it
 * changes meanwhile the answer may be older than the change, so it is told and the question
 * is asked once more. While the store is down nothing is queued: UP asks for all. An answer
 * of HF_EUNREACHABLE without DOWN (one server of several) is repeated after a second. */
#include "core/core.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { RETRY_US = 1000000 };

static void fired(struct timer *);
static void answer_op(struct ask *, int rc, const hf_error *);

static void init(struct ask *a, struct client *c, enum ask_kind kind)
{
    memset(a, 0, sizeof *a);
    list_init(&a->todo_node);
    list_init(&a->on_follows);
    timer_init(&a->timer, fired);
    a->kind = kind;
    a->client = c;
}

static void enqueue(struct ask *a)
{
    list_push(&a->client->asks, &a->todo_node);
}

static int ask(struct ask *a, struct client *c, enum ask_kind kind, const struct look *what)
{
    char *name = malloc(what->name_len + 1);

    init(a, c, kind);
    a->list = kind == ASK_LOOK ? calloc(1, sizeof *a->list) : NULL;
    if (!name || (kind == ASK_LOOK && !a->list)) {
        free(name);
        free(a->list);
        a->list = NULL;
        return HF_ENOMEM;
    }
    memcpy(name, what->name, what->name_len);
    name[what->name_len] = '\0';
    a->look = *what;
    a->look.name = a->name = name;
    a->look.store = c->store;
    a->look.core = a;
    list_init(&a->look.drv_node);
    a->follow = what->follow;
    enqueue(a);
    return 0;
}

int hf__ask_look(struct ask *a, struct client *c, const char *name, size_t len, bool list,
                 size_t limit, bool follow)
{
    return ask(a, c, ASK_LOOK,
               &(struct look){ .name = name,
                               .name_len = len,
                               .list = list,
                               .limit = limit,
                               .follow = follow });
}

static void ask_cell(struct ask *a, struct client *c, struct cell *cell)
{
    init(a, c, ASK_CELL);
    a->cell = cell;
    a->follow = cell->follow;
    cell->store = c->store;
    cell->core = a;
    list_init(&cell->drv_node);
    enqueue(a);
}

int hf__check_cell(const struct client *c, int64_t ttl_ms, hf_error *err)
{
    const struct store *s = c->store;

    if (!(c->caps & HF_CAP_CELL) || (ttl_ms > 0 && !(c->caps & HF_CAP_CELL_EXPIRY)))
        return hf__fail(err, HF_ENOTSUP, 0, c->url.shown, "this store does not have %s",
                        ttl_ms > 0 ? "cells that expire" : "cells");
    if (ttl_ms > 0 && (ttl_ms < s->least_cell_ttl_ms || ttl_ms > s->most_cell_ttl_ms))
        return hf__fail(err, HF_ENOTSUP, 0, c->url.shown,
                        "a cell for %lld ms: this store takes %lld to %lld ms",
                        (long long)ttl_ms, (long long)s->least_cell_ttl_ms,
                        (long long)s->most_cell_ttl_ms);
    return 0;
}

/* What the store can do may have become known since it was asked for. */
static void run_cell(struct ask *a)
{
    struct store *s = a->client->store;
    hf_error err;
    int rc = hf__check_cell(a->client, a->cell->ttl_ms, &err);

    if (rc < 0)
        ev_done(NULL, a->cell, rc, &err);
    else
        s->driver->cell(s, a->cell);
}

void hf__ask_run(struct ask *a)
{
    struct store *s = a->client->store;

    a->busy = true;
    a->again = false;
    if (a->follow && !a->started)
        list_push(&a->client->follows, &a->on_follows);
    a->started = true;
    a->look.again_at = LOOP_NEVER;
    if (a->cell)
        a->cell->again_at = LOOP_NEVER;
    if (a->kind == ASK_CELL)
        run_cell(a);
    else if (a->kind == ASK_EVICT)
        s->driver->evict(s, &a->look);
    else
        s->driver->look(s, &a->look);
}

/* The driver forgets it, if it has not by itself. */
static void end(struct ask *a)
{
    struct client *c = a->client;
    struct store *s = c->store;

    list_remove(&a->todo_node);
    list_remove(&a->on_follows);
    if (timer_armed(&a->timer))
        c->env->timer(c->env, &a->timer, LOOP_NEVER);
    if (a->started && !a->ended && s) /* a store that is closed has forgotten it */
        s->driver->stop(s, a->kind == ASK_CELL ? NULL : &a->look, a->cell);
    a->ended = true;
}

void hf__ask_stop(struct ask *a)
{
    end(a);
    hf_list_free(a->list);
    a->list = NULL;
    free(a->name);
    a->name = NULL;
}

/* ---- follows --------------------------------------------------------------------- */

static void ask_again(struct ask *a)
{
    if (a->busy)
        a->again = true;
    else if (a->client->up && !a->ended && list_empty(&a->todo_node))
        enqueue(a);
}

static void fired(struct timer *t)
{
    ask_again(container_of(t, struct ask, timer));
}

void ev_changed(struct look *look, struct cell *cell)
{
    ask_again(look ? look->core : cell->core);
}

void hf__ask_store_up(struct client *c)
{
    list_for(n, &c->follows)
        ask_again(container_of(n, struct ask, on_follows));
}

/* It was answered and goes on, unless with an error. */
static void follow_on(struct ask *a, int rc)
{
    struct env *env = a->client->env;

    if (rc == HF_EUNREACHABLE) {
        env->timer(env, &a->timer, env->now(env) + RETRY_US);
    } else if (rc < 0) {
        end(a);
    } else {
        if (a->cell)
            a->cell->verb = CELL_GET;
        env->timer(env, &a->timer, a->cell ? a->cell->again_at : a->look.again_at);
        if (a->again)
            ask_again(a);
    }
}

/* ---- rows become a list ---------------------------------------------------------- */

static struct hf_line *line_for(struct hf_list *l, const struct row *r)
{
    struct hf_line *line = l->n ? &l->lines[l->n - 1] : NULL;

    /* the rows of one line come one after the other */
    if (line && line->name_len == r->name_len &&
        memcmp(line->name, r->name, r->name_len) == 0)
        return line;
    if (l->n == l->room) {
        size_t room = l->room ? l->room * 2 : 4;
        struct hf_line *lines = realloc(l->lines, room * sizeof *lines);

        if (!lines)
            return NULL;
        l->lines = lines;
        l->room = room;
    }
    line = &l->lines[l->n];
    memset(line, 0, sizeof *line);
    line->name = strndup(r->name, r->name_len);
    if (!line->name)
        return NULL;
    l->n++;
    line->name_len = r->name_len;
    line->mode = r->kind == LINE_PERMITS ? HF_PERMITS : HF_WRITE;
    line->capacity = r->kind == LINE_PERMITS ? (uint32_t)r->capacity : 0;
    line->full = r->capacity;
    line->held = r->has_ticket ? 0 : r->weight;
    line->holders = (size_t)r->holders;
    line->waiters = (size_t)r->waiters;
    line->oldest_ms = r->oldest_ms;
    return line;
}

static int fill_ticket(struct hf_ticket *t, const struct row *r)
{
    memset(t, 0, sizeof *t);
    memcpy(t->token, r->token, HF_TOKEN);
    hf__hex(t->id, r->token, HF_TOKEN);
    /* a kept one keeps nobody from going on: it is no part of a deadlock (G10) */
    t->owner_id = r->kept ? (struct owner){ 0, 0 } : r->owner;
    hf__owner_text(t->owner, sizeof t->owner, t->owner_id);
    t->fence = r->fence;
    t->position = r->position;
    t->weight = r->weight;
    t->mode = r->kind == LINE_PERMITS ? HF_PERMITS
              : r->weight == HF_FULL  ? HF_WRITE
                                      : HF_READ;
    t->permits = r->kind == LINE_PERMITS ? (uint32_t)r->weight : 0;
    t->broken = r->broken;
    t->kept = r->kept;
    t->pid = r->pid;
    t->age_ms = r->age_ms;
    t->expires_ms = r->expires_ms;
    t->joined = r->joined;
    t->host = strdup(r->host ? r->host : "");
    t->note = strdup(r->note ? r->note : "");
    if (r->hints_len > 0 && (t->hints = malloc(r->hints_len)) != NULL) {
        memcpy(t->hints, r->hints, r->hints_len);
        t->hints_len = r->hints_len;
    }
    return t->host && t->note && (t->hints || r->hints_len == 0) ? 0 : HF_ENOMEM;
}

static int add_ticket(struct hf_line *line, const struct row *r)
{
    struct hf_ticket *t;
    int rc;

    if (line->ntickets == line->room) {
        size_t room = line->room ? line->room * 2 : 4;
        struct hf_ticket *tickets = realloc(line->tickets, room * sizeof *tickets);

        if (!tickets)
            return HF_ENOMEM;
        line->tickets = tickets;
        line->room = room;
    }
    t = &line->tickets[line->ntickets++];
    rc = fill_ticket(t, r);
    t->misfit = r->capacity != line->full ||
                (r->kind == LINE_PERMITS) != (line->mode == HF_PERMITS);
    return rc;
}

void ev_row(struct look *look, const struct row *r)
{
    struct ask *a = look->core;
    struct hf_line *line;

    if (a->rc < 0 || !a->list)
        return;
    line = line_for(a->list, r);
    if (!line || (r->has_ticket && add_ticket(line, r) < 0))
        a->rc = HF_ENOMEM;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct hf_line *)a)->name, ((const struct hf_line *)b)->name);
}

void ev_progress(struct look *look)
{
    struct ask *a = look->core;

    if (a->answer == answer_op)
        hf__op_progress(a->user);
}

static void free_line(struct hf_line *line)
{
    for (size_t t = 0; t < line->ntickets; t++) {
        free(line->tickets[t].host);
        free(line->tickets[t].note);
        free(line->tickets[t].hints);
    }
    free(line->tickets);
    free(line->name);
}

static void sort_and_cut(struct hf_list *l, size_t limit)
{
    if (l->n > 1) /* a store may keep its names in another order */
        qsort(l->lines, l->n, sizeof *l->lines, by_name);
    while (limit > 0 && l->n > limit)
        free_line(&l->lines[--l->n]);
}

void ev_done(struct look *look, struct cell *cell, int rc, const hf_error *err)
{
    struct ask *a = look ? look->core : cell->core;

    if (a->list)
        sort_and_cut(a->list, a->look.list ? a->look.limit : 0);
    a->busy = false;
    if (a->follow)
        follow_on(a, rc);
    else
        a->ended = true;
    if (a->follow && rc == HF_EUNREACHABLE) { /* it is asked again, from the beginning */
        while (a->list && a->list->n > 0)
            free_line(&a->list->lines[--a->list->n]);
        a->rc = 0;
        return;
    }
    if (a->rc < 0 && rc == 0) {
        rc = a->rc;
        err = NULL;
    }
    a->rc = 0;
    a->answer(a, rc, err);
}

/* ---- lists for the application --------------------------------------------------- */

void hf_list_free(hf_list *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n; i++)
        free_line(&l->lines[i]);
    free(l->lines);
    free(l);
}

size_t hf_list_count(const hf_list *l)
{
    return l ? l->n : 0;
}

const hf_line *hf_list_at(const hf_list *l, size_t i)
{
    return l && i < l->n ? &l->lines[i] : NULL;
}

const hf_ticket *hf_line_ticket(const hf_line *l, size_t i)
{
    return l && i < l->ntickets ? &l->tickets[i] : NULL;
}

#define GETTER(type, name, object, field, none)                                            \
    type name(const object *o)                                                             \
    {                                                                                      \
        return o ? o->field : none;                                                        \
    }

GETTER(const char *, hf_line_name, hf_line, name, NULL)
GETTER(int, hf_line_mode, hf_line, mode, HF_EINVAL)
GETTER(uint32_t, hf_line_capacity, hf_line, capacity, 0)
GETTER(size_t, hf_line_holders, hf_line, holders, 0)
GETTER(size_t, hf_line_waiters, hf_line, waiters, 0)
GETTER(int64_t, hf_line_oldest_ms, hf_line, oldest_ms, -1)
GETTER(size_t, hf_line_tickets, hf_line, ntickets, 0)
GETTER(const char *, hf_ticket_id, hf_ticket, id, NULL)
GETTER(uint64_t, hf_ticket_fence, hf_ticket, fence, 0)
GETTER(uint32_t, hf_ticket_position, hf_ticket, position, 0)
GETTER(int, hf_ticket_mode, hf_ticket, mode, HF_EINVAL)
GETTER(uint32_t, hf_ticket_permits, hf_ticket, permits, 0)
GETTER(const char *, hf_ticket_owner, hf_ticket, owner, NULL)
GETTER(const char *, hf_ticket_host, hf_ticket, host, NULL)
GETTER(int64_t, hf_ticket_pid, hf_ticket, pid, 0)
GETTER(int64_t, hf_ticket_age_ms, hf_ticket, age_ms, -1)
GETTER(int64_t, hf_ticket_expires_ms, hf_ticket, expires_ms, -1)
GETTER(int, hf_ticket_broken, hf_ticket, broken, 0)
GETTER(int, hf_ticket_kept, hf_ticket, kept, 0)
GETTER(const char *, hf_ticket_note, hf_ticket, note, NULL)

/* ---- operations that ask --------------------------------------------------------- */

static int name_state(const struct hf_list *l)
{
    const struct hf_line *line = l->n ? &l->lines[0] : NULL;

    return !line || line->held == 0  ? HF_FREE
           : line->held < line->full ? HF_SHARED
                                     : HF_TAKEN;
}

static void answer_op(struct ask *a, int rc, const hf_error *err)
{
    struct hf_op *op = a->user;

    if (op->done)
        return; /* a watch that ended because there was no memory; not freed yet */
    if (op->kind == OP_WATCH) {
        hf_list_free(op->list); /* a newer state of the line */
        op->list = a->list;
        a->list = calloc(1, sizeof *a->list);
        if (rc == 0 && !a->list) {
            rc = HF_ENOMEM;
            err = NULL;
        }
        hf__op_seen(op, rc, err);
        return;
    }
    if (rc == 0 && a->look.brief)
        rc = name_state(a->list);
    op->list = a->list;
    a->list = NULL;
    op->ask = NULL;
    free(a->name);
    a->name = NULL;
    hf__op_end(op, rc, err);
}

void hf__ask_store_down(struct ask *a)
{
    if (a->started) /* a follow: UP asks again */
        list_remove(&a->todo_node);
    else if (a->answer == answer_op)
        hf__op_store_down(a->user);
}

static void begin(struct hf_op *op, struct ask *a)
{
    a->answer = answer_op;
    a->user = op;
    op->ask = a;
    hf__op_wait_ask(op);
}

int hf__ask(struct hf_op *op, struct ask *a, enum ask_kind kind, const struct look *what,
            hf_error *err)
{
    int rc;

    if (op->client->stopped)
        return hf__fail(err, HF_ECLOSED, 0, NULL, "the client is stopped");
    rc = ask(a, op->client, kind, what);
    if (rc < 0)
        return hf__fail(err, rc, 0, NULL, "no memory for a question");
    begin(op, a);
    return 0;
}

int hf__cell(struct hf_op *op, struct ask *a, struct cell *cell, hf_error *err)
{
    int rc;

    if (op->client->stopped && !op->goes_on)
        return hf__fail(err, HF_ECLOSED, 0, NULL, "the client is stopped");
    rc = hf__check_cell(op->client, cell->ttl_ms, err);
    if (rc < 0)
        return rc;
    ask_cell(a, op->client, cell);
    begin(op, a);
    return 0;
}
