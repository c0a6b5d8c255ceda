/* op.c: operations: what they have in common, acquire, release (change.c has the others).
 * Each is done once (host->op_done), with a result; the layer above turns that into a
 * return value or a callback.
 *
 * An acquire of several names takes them one after another in the order of their bytes; if
 * one fails, those already taken are given back before the failure is told to anybody.
 *
 * An operation that gives up (time-out, cancel) is done at once; its ticket leaves behind
 * it, and a grant that comes meanwhile is taken back by that leave (G7). */
#include "core/core.h"
#include "core/mutate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNHEARD_MS = 500 };

struct all { /* the rest of an acquire of several names */
    struct acquire_spec req;
    const char **names;
    char text[];
};

static void fired(struct timer *);

void hf__op_init(struct hf_op *op, struct client *c, enum op_kind kind, hf_error *err)
{
    memset(op, 0, sizeof *op);
    op->client = c;
    op->kind = (uint8_t)kind;
    op->err = err;
    op->end_at = LOOP_NEVER;
    timer_init(&op->timer, fired);
    if (kind == OP_RELEASE)
        list_init(&op->leaving);
    if (kind == OP_CONNECT)
        list_init(&op->on_connects);
    list_init(&op->node);
    list_init(&op->on_cancel);
}

void hf__op_free_names(struct hf_op *op)
{
    if (op->kind == OP_ACQUIRE && op->all) {
        free(op->all->names);
        free(op->all);
        op->all = NULL;
    }
}

void hf__op_done_with(struct hf_op *op)
{
    struct env *env = op->client->env;

    env->timer(env, &op->timer, LOOP_NEVER);
    if (op->kind == OP_CONNECT)
        list_remove(&op->on_connects);
    if (op->kind == OP_AMEND || op->kind == OP_RENEW)
        hf__op_changes(op, NULL);
    hf__op_free_names(op);
}

/* Ten thousand waiters need no room for ten thousand messages. */
static hf_error *room_for_error(struct hf_op *op)
{
    if (!op->err && op->lazy_err)
        op->err = calloc(1, sizeof *op->err);
    return op->err;
}

void hf__op_end(struct hf_op *op, int rc, const hf_error *err)
{
    if (op->done)
        return;
    op->done = true;
    op->rc = rc;
    if (rc < 0 && room_for_error(op)) {
        if (err)
            *op->err = *err;
        else if (!op->explained)
            hf__fail(op->err, rc, 0, op->client->url.shown, "%s", hf_strerror(rc));
    }
    hf__op_done_with(op);
    op->client->host->op_done(op);
}

void hf__op_text(struct hf_op *op, int rc, const char *fmt, ...)
{
    hf_error *err = room_for_error(op);
    char text[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    hf__fail(err, rc, 0, op->client->url.shown, "%s", text);
    if (err && rc == HF_EUNREACHABLE)
        err->sys = ETIMEDOUT; /* nothing else is known */
    op->explained = true;
}

/* The text is the driver's own, and says where. */
static void because_down(struct hf_op *op, int rc)
{
    hf_error *err = room_for_error(op);

    if (err) {
        *err = op->client->down;
        err->code = rc;
    }
    op->explained = true;
}

/* The layer above has tried what could be done at once; from now on it waits. */
static void arm(struct hf_op *op)
{
    struct env *env = op->client->env;
    int64_t at = op->end_at, now;

    if (op->done)
        return;
    /* G11: an unreachable store is told within the connect time-out */
    if (!op->client->up) {
        now = env->now(env);
        if (at > now + op->client->url.connect_ms * 1000)
            at = now + op->client->url.connect_ms * 1000;
        if (hf__client_refused(op->client))
            at = now;
    }
    env->timer(env, &op->timer, at);
}

/* The store has gone while nothing is known of this one: told within the connect time-out,
 * or at once if waiting does not help, unless it comes back before. */
void hf__op_store_down(struct hf_op *op)
{
    struct env *env = op->client->env;
    int64_t at = env->now(env) + op->client->url.connect_ms * 1000;

    if (!timer_armed(&op->timer) || op->timer.node.key > at ||
        hf__client_refused(op->client))
        arm(op);
}

static int64_t end_of(struct client *c, int64_t wait_ms)
{
    int64_t now = c->env->now(c->env);

    if (wait_ms > (LOOP_NEVER - now) / 1000 - 1)
        return LOOP_NEVER;
    return now + (wait_ms > 0 ? wait_ms : 0) * 1000;
}

void hf__op_wait_store(struct hf_op *op)
{
    hf__client_run(op->client);
    op->end_at = end_of(op->client, op->client->url.connect_ms);
    arm(op);
}

void hf__op_wait_ask(struct hf_op *op)
{
    if (op->kind == OP_ASK) {
        hf__op_wait_store(op);
    } else { /* a watch has no end */
        hf__client_run(op->client);
        arm(op);
    }
}

void hf__op_progress(struct hf_op *op)
{
    if (op->kind != OP_ASK || op->done)
        return;
    op->end_at = end_of(op->client, op->client->url.connect_ms);
    arm(op);
}

int hf__op_stopped(struct hf_op *op)
{
    hf__op_text(op, HF_ECLOSED, "the client is stopped");
    return HF_ECLOSED;
}

void hf__op_seen(struct hf_op *op, int rc, const hf_error *err)
{
    struct env *env = op->client->env;

    if (rc < 0) {
        hf__op_end(op, rc, err);
        return;
    }
    /* arm() may have set the limit for the first answer: it must not end the watch when the
     * store is down at that moment */
    env->timer(env, &op->timer, op->end_at);
    op->client->host->op_seen(op);
}

/* ---- acquire --------------------------------------------------------------------- */

static void give_back(struct hf_lease *l, size_t i)
{
    struct hold *h = hf__lease_detach(l, i);

    if (!h)
        return;
    h->op = NULL;
    h->stepping++; /* it may be out already, lost while the others were waited for */
    if (!h->parts && !(MUTANT(ALL_KEEPS) && h->state == TICKET_HELD))
        hf__hold_step(h, TICKET_GIVE_UP, 0, NULL);
    h->stepping--;
    hf__hold_release_memory(h);
}

static void abandon(struct hf_op *op)
{
    struct hf_lease *l = op->lease;

    op->lease = NULL;
    for (size_t i = 0; l && i < l->n; i++)
        give_back(l, i);
    hf__lease_end(l);
}

static int refuse_own(struct hf_op *op, const char *name, const struct hold *h,
                      const char *why)
{
    hf__op_text(op, HF_EDEADLK, "'%s' is held by the caller itself, fence %" PRIu64 ": %s",
                name, h->t.fence, why);
    return HF_EDEADLK;
}

static const char no_upgrade[] =
    "exclusive inside shared would never be granted. Release it and acquire exclusively, "
    "or acquire exclusively first and downgrade";

/* One hold has one end: what another handle asks for cannot be had, and is not left out in
 * silence. */
static int reenter(struct hf_op *op, size_t i, struct hold *h, const struct acquire_spec *r)
{
    const char *why = NULL;

    if (r->weight > h->t.weight)
        return refuse_own(op, h->t.name, h, no_upgrade);
    if (r->max_hold_ms > 0)
        why = "max_hold_ms is for the first acquire";
    else if (r->no_renew && !h->no_renew)
        why = "it is renewed, whatever HF_NO_RENEW says here";
    else if (!r->no_renew && h->no_renew)
        why = "it is not renewed: say HF_NO_RENEW here, too";
    if (why) {
        hf__op_text(op, HF_EINVAL, "'%s' is held by its owner already: %s", h->t.name, why);
        return HF_EINVAL;
    }
    hf__lease_attach(op->lease, i, h);
    return 1;
}

/* 1: reentered, nothing to wait for; 0: standing in line; negative: refused. */
static int enter(struct hf_op *op, size_t i, const char *name, const struct acquire_spec *r)
{
    struct client *c = op->client;
    struct hold *h;

    if (r->kind == LINE_LOCK && r->reentrant) {
        h = hf__hold_find(c, name, r);
        if (h)
            return reenter(op, i, h, r);
    } else if (r->kind == LINE_LOCK && r->thread && !op->try_only) {
        h = hf__hold_find(c, name, r);
        if (h && (r->weight > 1 || h->t.weight > 1))
            return refuse_own(op, name, h,
                              r->weight > h->t.weight ? no_upgrade
                                                      : "name an owner to lock it again");
    }
    h = hf__hold_new(c, name, r);
    if (!h) {
        hf__op_text(op, HF_ENOMEM, "no memory for a ticket");
        return HF_ENOMEM;
    }
    hf__lease_attach(op->lease, i, h);
    h->op = op;
    h->t.try_only = op->try_only;
    hf__hold_step(h, TICKET_START, 0, NULL);
    return 0;
}

static void fail(struct hf_op *op, int rc)
{
    abandon(op);
    hf__op_end(op, rc, NULL);
}

/* All of them are granted. The first may be lost by now: then there is no lock to speak of.
 */
static void all_granted(struct hf_op *op)
{
    for (size_t i = 0; op->all && i < op->lease->n; i++)
        if (!hf__hold_trusted(op->lease->parts[i].hold)) {
            hf__op_text(op, HF_ELOST, "lost while waiting for the others: '%s'",
                        op->all->names[i]);
            fail(op, HF_ELOST);
            return;
        }
    hf__op_end(op, 0, NULL);
}

/* Goes on with the names that are left; ends the operation when there are none. */
static void go_on(struct hf_op *op)
{
    while (op->next < op->lease->n) {
        int rc = enter(op, op->next, op->all->names[op->next], &op->all->req);

        if (rc == 0)
            return;
        if (rc < 0) {
            fail(op, rc);
            return;
        }
        op->next++;
    }
    all_granted(op);
}

void hf__op_granted(struct hf_op *op, struct hold *h)
{
    h->op = NULL;
    op->next++;
    op->position = 0;
    go_on(op);
}

void hf__op_refused(struct hf_op *op, struct hold *h, int why, const hf_error *err)
{
    h->op = NULL;
    abandon(op);
    hf__op_end(op, why, err);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static struct all *copy_all(const char *const *names, size_t *n,
                            const struct acquire_spec *r)
{
    size_t bytes = strlen(r->note) + 1, used = 0, kept = 0;
    struct all *all;

    for (size_t i = 0; i < *n; i++)
        bytes += strlen(names[i]) + 1;
    all = malloc(sizeof *all + bytes);
    if (!all)
        return NULL;
    all->names = malloc(*n * sizeof *all->names);
    if (!all->names) {
        free(all);
        return NULL;
    }
    all->req = *r;
    for (size_t i = 0; i < *n; i++) {
        all->names[i] = strcpy(all->text + used, names[i]);
        used += strlen(names[i]) + 1;
    }
    all->req.note = strcpy(all->text + used, r->note);
    /* Everybody takes names in this order, so two of these cannot wait for each other; a
     * name that was given twice is taken once. */
    qsort(all->names, *n, sizeof *all->names, by_bytes);
    for (size_t i = 0; i < *n; i++)
        if (i == 0 || strcmp(all->names[i], all->names[kept - 1]) != 0)
            all->names[kept++] = all->names[i];
    *n = kept;
    return all;
}

int hf__acquire(struct hf_op *op, const char *const *names, size_t n, int64_t wait_ms,
                const struct acquire_spec *r)
{
    struct client *c = op->client;
    int rc;

    if (c->stopped && !MUTANT(STOP_STARTS))
        return hf__op_stopped(op);
    op->try_only = wait_ms <= 0;
    if (n > 1 && !(op->all = copy_all(names, &n, r)))
        goto no_memory;
    op->lease = hf__lease_new(c, n);
    if (!op->lease)
        goto no_memory;
    rc = enter(op, 0, op->all ? op->all->names[0] : names[0], op->all ? &op->all->req : r);
    if (rc < 0) {
        abandon(op);
        hf__op_done_with(op);
        return rc;
    }
    if (rc == 1) {
        op->next++;
        go_on(op);
    }
    hf__client_run(c);
    if (!op->done) /* a try waits for nobody but the store */
        op->end_at = end_of(c, op->try_only ? c->url.connect_ms : wait_ms);
    arm(op);
    return 0;

no_memory:
    hf__op_done_with(op);
    hf__op_text(op, HF_ENOMEM, "no memory for an operation");
    return HF_ENOMEM;
}

void hf__cancel(struct hf_op *op, int rc)
{
    if (op->done)
        return;
    if (op->kind == OP_ACQUIRE) {
        abandon(op);
    } else if (op->kind == OP_RELEASE) {
        list_for_safe(n, &op->leaving)
            hf__hold_leaver(container_of(n, struct hold, on_leaver), NULL);
    } else if (op_asks(op) && op->ask) {
        hf__ask_stop(op->ask);
    }
    hf__op_end(op, rc, NULL);
}

/* What an acquire waits for. */
static const struct hold *awaited(const struct hf_op *op)
{
    return op->kind == OP_ACQUIRE && op->next < op->lease->n
               ? op->lease->parts[op->next].hold
               : NULL;
}

enum op_awaits hf__op_awaits(const struct hf_op *op)
{
    const struct hold *h = op->kind == OP_ACQUIRE ? awaited(op) : NULL;

    if (!op->client->up || op->kind == OP_CONNECT || op->kind == OP_WATCH ||
        (h && h->state == TICKET_RETRYING))
        return AWAITS_LONG;
    if (h && h->state == TICKET_WAITING)
        return op->position == 1 ? AWAITS_GRANT : AWAITS_LONG;
    return AWAITS_ANSWER;
}

/* It is known to be in line: an outage of the store is waited out. */
static bool stands(const struct hf_op *op)
{
    const struct hold *h = awaited(op);

    return h && h->state == TICKET_WAITING && !op->try_only &&
           !hf__client_refused(op->client);
}

/* Not a word about its join for so long: that is no busy lock, but a store, or a part of
 * it, that cannot be reached. */
static bool unheard(const struct hf_op *op, const struct hold *h)
{
    struct env *env = op->client->env;

    return h && h->state == TICKET_JOINING && op->client->store->starts_down &&
           env->now(env) - h->join_sent_at >= UNHEARD_MS * 1000;
}

/* The end of its waiting. What is in the way, if the driver knows that, is part of the
 * text. */
static void out_of_time(struct hf_op *op)
{
    struct store *s = op->client->store;
    const struct hold *h = awaited(op);
    hf_error why = { 0 };
    int stalled = h && s->driver->stalled ? s->driver->stalled(s, &h->t, &why) : 0;
    const char *reason = stalled < 0 ? why.text : h && h->reason ? h->reason : "";
    bool waits = op->kind == OP_ACQUIRE && !op->try_only;
    int rc = waits && (stalled < 0 || !unheard(op, h)) ? HF_ETIMEDOUT
             : stalled < 0                             ? stalled
                                                       : HF_EUNREACHABLE;

    hf__op_text(op, rc, "%s%s%s",
                rc == HF_ETIMEDOUT ? "not granted in time"
                                   : "the store did not answer in time",
                reason[0] ? ": " : "", reason);
    hf__cancel(op, rc);
}

/* The store has not answered anything about it: if the store is unreachable when the time
 * is over, that is the reason to give. */
static bool unanswered(const struct hf_op *op)
{
    const struct hold *h = awaited(op);

    return !h || h->state == TICKET_JOINING || h->state == TICKET_RETRYING;
}

static void fired(struct timer *t)
{
    struct hf_op *op = container_of(t, struct hf_op, timer);
    struct client *c = op->client;
    int64_t now = c->env->now(c->env);

    if (op->kind == OP_RELEASE || op->kind == OP_AMEND || op->kind == OP_RENEW) {
        hf__cancel(op, HF_EUNKNOWN);
    } else if (now < op->end_at && stands(op)) {
        c->env->timer(c->env, &op->timer, op->end_at);
    } else if (!c->up && (now < op->end_at || hf__client_refused(c) || op->try_only ||
                          unanswered(op))) {
        int rc = hf__client_refused(c) ? c->down.code : HF_EUNREACHABLE;

        if (c->down.code)
            because_down(op, rc);
        else
            hf__op_text(op, rc, "the store did not answer in time");
        hf__cancel(op, rc);
    } else if (now < op->end_at) {
        c->env->timer(c->env, &op->timer, op->end_at);
    } else {
        out_of_time(op);
    }
}

/* ---- connect --------------------------------------------------------------------- */

void hf__op_connected(struct client *c)
{
    struct list *n;

    while ((c->up || hf__client_refused(c)) && (n = list_pop(&c->connects)) != NULL) {
        struct hf_op *op = container_of(n, struct hf_op, on_connects);

        if (!c->up)
            because_down(op, c->down.code);
        hf__op_end(op, c->up ? 0 : c->down.code, NULL);
    }
}

int hf__connect(struct hf_op *op, int64_t wait_ms)
{
    struct client *c = op->client;

    if (c->stopped)
        return hf__op_stopped(op);
    /* not the connect time-out: the caller has said how long */
    op->end_at = end_of(c, wait_ms);
    c->env->timer(c->env, &op->timer, op->end_at);
    list_push(&c->connects, &op->on_connects);
    hf__op_connected(c);
    return 0;
}

/* ---- release --------------------------------------------------------------------- */

int hf__release(struct hf_op *op, struct hf_lease *l, int64_t keep_ms)
{
    struct client *c = l->client;
    int64_t now = c->env->now(c->env);
    bool lost = false;

    if (op)
        op->keep_by = LOOP_NEVER;
    for (size_t i = 0; i < l->n; i++) {
        struct hold *h = hf__lease_detach(l, i);
        int64_t until = atomic_load(&h->until_at);

        /* the deadline counts even if no thread has run the loop since */
        bool over = h->lost || until <= now;

        lost = lost || over;
        if ((!h->parts || MUTANT(FIRST_HANDLE)) && h->state == TICKET_HELD) {
            atomic_store(&h->until_at, 0);
            h->t.keep_ms = over ? 0 : keep_ms; /* what was lost is not kept */
            hf__hold_step(h, TICKET_GIVE_UP, 0, NULL);
            if (op) { /* its leave is queued, not called yet */
                hf__hold_leaver(h, op);
                if (until < op->keep_by)
                    op->keep_by = until;
            }
        }
        hf__hold_release_memory(h);
    }
    if (op)
        op->rc = lost ? HF_ELOST : 0;
    hf__client_run(c);
    if (op && !op->done) {
        op->end_at = end_of(c, c->url.connect_ms);
        if (list_empty(&op->leaving))
            hf__op_end(op, op->rc, NULL);
        else
            arm(op);
    }
    return lost ? HF_ELOST : 0;
}

void hf__op_settled(struct hf_op *op, int rc)
{
    if (rc < 0 && op->rc == 0)
        op->rc = rc;
    if (list_empty(&op->leaving))
        hf__op_end(op, op->rc, NULL);
}
