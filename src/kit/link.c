/* link.c: one connection with calls that are answered once; the rules are in link.h.
 *
 * Why a call is answered once: it is in one list at a time. hf__link_send puts it into
 * `sent` or `unsent`; an answer takes it out of `sent`; a loss moves both lists to one of
 * its own before it tells anybody, so that what is sent meanwhile (to a closed link: it
 * goes to `unsent`) waits for the next flush, and nothing is told twice.
 *
 * Why a call is answered at all: while one is in `sent`, the timer `late` is set, and ends
 * in an answer or a loss. While one is in `unsent`, or the link is broken, the timer `turn`
 * is set, and flushes if nobody does before. */
#include "kit/link.h"

#include "kit/mutate.h"

#include <string.h>

enum {
    PAUSE_US = 20000,
    PAUSE_MAX_US = 1000000,
    PAUSE_LEAST_US = 1000,
    FLUSHES =
        1000 /* what is unanswered may ask again, which is refused too: not for ever */
};

static int64_t now_of(const struct link *k)
{
    return k->env->now(k->env);
}

static void set_timer(const struct link *k, struct timer *t, int64_t at)
{
    if (at != LOOP_NEVER || timer_armed(t))
        k->env->timer(k->env, t, at);
}

void hf__link_wrote(struct link *k)
{
    if (list_empty(&k->on_dirty))
        list_push(k->dirty, &k->on_dirty);
}

/* Something is to be told, and not now. */
static void tell_soon(struct link *k)
{
    hf__link_wrote(k);
    set_timer(k, &k->turn, now_of(k));
}

/* ---- late answers ---------------------------------------------------------------- */

/* LOOP_NEVER: none is waited for. */
static int64_t late_at(const struct link *k)
{
    const struct link_call *first = hf__link_oldest(k);
    int64_t from = k->since;

    if (!first && k->state != LINK_GREETING)
        return LOOP_NEVER;
    if (first && first->sent_at > from)
        from = first->sent_at;
    return from + k->on->limit_ms(k) * 1000;
}

/* The timer may be early: it is not moved for every answer. */
static void expect(struct link *k)
{
    int64_t at = late_at(k);

    if (!timer_armed(&k->late) || k->late.node.key > at)
        set_timer(k, &k->late, at);
}

static void late_fired(struct timer *t)
{
    struct link *k = container_of(t, struct link, late);
    bool heard;

    if (late_at(k) > now_of(k)) {
        expect(k);
        return;
    }
    heard = !MUTANT(LATE_UNREAD) && k->via->read(k);
    if (k->state < LINK_GREETING)
        return;
    if (late_at(k) > now_of(k)) {
        expect(k);
    } else if (heard) { /* part of a long answer: the next turn reads on */
        set_timer(k, &k->late, now_of(k));
    } else {
        hf__link_fail(k, HF_EUNREACHABLE, "no answer within %lld ms",
                      (long long)k->on->limit_ms(k));
    }
    hf__link_flush(k->dirty);
}

/* ---- calls ----------------------------------------------------------------------- */

void hf__link_refuse(struct link *k, struct link_call *c)
{
    list_push(&k->unsent, &c->node);
    tell_soon(k);
}

void hf__link_send(struct link *k, struct link_call *c)
{
    int rc;

    c->sent_at = now_of(k);
    if (!link_open(k)) {
        if (MUTANT(INSIDE_SEND))
            k->on->unanswered(k, c);
        else
            hf__link_refuse(k, c);
        return;
    }
    rc = k->via->send(k, c);
    if (rc < 0) {
        hf__link_refuse(k, c);
        if (rc != HF_ENOENT)
            hf__link_fail(k, rc, "%s",
                          rc == HF_ENOMEM ? "no memory for a request"
                                          : "it takes nothing more");
        return;
    }
    list_push(&k->sent, &c->node);
    if (list_first(&k->sent) == &c->node)
        expect(k);
    hf__link_wrote(k);
}

struct link_call *hf__link_oldest(const struct link *k)
{
    struct list *n = list_first(&k->sent);

    return n ? container_of(n, struct link_call, node) : NULL;
}

void hf__link_matched(struct link *k, struct link_call *c)
{
    if (list_first(&k->sent) == &c->node)
        k->since = now_of(k);
    list_remove(&c->node);
}

void hf__link_answered(struct link *k)
{
    (void)list_pop(&k->sent);
    k->since = now_of(k);
}

struct link_call *hf__link_take(struct link *k)
{
    struct list *n = list_pop(&k->sent);

    if (!n)
        n = list_pop(&k->unsent);
    return n ? container_of(n, struct link_call, node) : NULL;
}

static void tell_unanswered(struct link *k, struct list *todo)
{
    struct list *n;

    while ((n = list_pop(todo)) != NULL)
        k->on->unanswered(k, container_of(n, struct link_call, node));
}

/* ---- loss ------------------------------------------------------------------------ */

/* The next pause in µs, within half of pause_us and all of it. */
static int64_t next_pause(struct link *k)
{
    int64_t most = k->connect_ms * 1000 / 8, pause;
    uint32_t dice;

    if (most > PAUSE_MAX_US)
        most = PAUSE_MAX_US;
    if (most < PAUSE_LEAST_US)
        most = PAUSE_LEAST_US;
    if (k->pause_us == 0)
        k->pause_us = PAUSE_US;
    if (k->pause_us > most && !MUTANT(LONG_PAUSE))
        k->pause_us = most;
    k->env->random(k->env, &dice, sizeof dice);
    pause = k->pause_us / 2 + dice % (k->pause_us / 2);
    k->pause_us *= MUTANT(SAME_PAUSE) ? 1 : 2;
    return pause;
}

static void try_later(struct link *k)
{
    set_timer(k, &k->retry, now_of(k) + (k->failed < k->choices ? 0 : next_pause(k)));
}

void hf__link_lost(struct link *k, const hf_error *err)
{
    hf_error copy = *err;
    struct list todo;

    k->state = LINK_CLOSED;
    k->broken = false;
    k->failed++;
    set_timer(k, &k->late, LOOP_NEVER);
    set_timer(k, &k->turn, LOOP_NEVER);
    list_remove(&k->on_dirty);
    list_init(&todo);
    list_splice(&todo, &k->sent);
    list_splice(&todo, &k->unsent);
    if (MUTANT(LOST_CALL))
        (void)list_pop(&todo);
    if (MUTANT(BEFORE_DOWN))
        tell_unanswered(k, &todo);
    k->on->down(k, &copy);
    tell_unanswered(k, &todo);
    k->on->lost(k, &copy);
    if (k->wanted && k->state == LINK_CLOSED && !timer_armed(&k->retry) &&
        !MUTANT(STAYS_CLOSED))
        try_later(k);
}

void hf__link_drop(struct link *k, const hf_error *err)
{
    if (k->state == LINK_CLOSED)
        return;
    k->via->close(k);
    hf__link_lost(k, err);
}

void hf__link_break(struct link *k, const hf_error *err)
{
    if (k->broken || k->state == LINK_CLOSED)
        return;
    k->why = *err;
    k->broken = true;
    tell_soon(k);
}

void hf__link_fail(struct link *k, int code, const char *fmt, ...)
{
    hf_error err;
    va_list ap;

    va_start(ap, fmt);
    hf__vfail(&err, code, 0, k->where, fmt, ap);
    va_end(ap);
    hf__link_break(k, &err);
}

/* ---- flushing -------------------------------------------------------------------- */

static void flush(struct link *k)
{
    struct list todo;

    if (k->broken)
        hf__link_drop(k, &k->why);
    else
        k->via->flush(k);
    if (list_empty(&k->unsent))
        return;
    set_timer(k, &k->turn, LOOP_NEVER);
    list_init(&todo);
    list_splice(&todo, &k->unsent);
    tell_unanswered(k, &todo);
}

void hf__link_flush(struct list *dirty)
{
    struct list *n;

    for (int i = 0; i < FLUSHES && (n = list_pop(dirty)) != NULL; i++)
        flush(container_of(n, struct link, on_dirty));
}

static void turn_fired(struct timer *t)
{
    struct link *k = container_of(t, struct link, turn);

    hf__link_wrote(k);
    hf__link_flush(k->dirty);
}

/* ---- states ---------------------------------------------------------------------- */

void hf__link_start(struct link *k)
{
    hf_error err;

    k->wanted = true;
    if (k->state != LINK_CLOSED)
        return;
    set_timer(k, &k->retry, LOOP_NEVER);
    k->state = LINK_OPENING;
    if (k->via->open(k, k->on->limit_ms(k), &err) < 0)
        hf__link_break(k, &err);
}

static void retry_fired(struct timer *t)
{
    struct link *k = container_of(t, struct link, retry);

    if (k->wanted)
        hf__link_start(k);
    hf__link_flush(k->dirty);
}

void hf__link_forgive(struct link *k)
{
    k->failed = 0;
    k->pause_us = 0;
}

void hf__link_opened(struct link *k)
{
    k->state = LINK_GREETING;
    k->since = now_of(k);
    k->on->greet(k);
    expect(k);
    hf__link_wrote(k);
    hf__link_flush(k->dirty);
}

void hf__link_settle(struct link *k)
{
    k->state = LINK_SETTLING;
}

void hf__link_up(struct link *k)
{
    k->state = LINK_UP;
    hf__link_forgive(k);
}

/* ---- life ------------------------------------------------------------------------ */

void hf__link_init(struct link *k, struct env *env, const struct link_transport *via,
                   const struct link_events *on, struct list *dirty, int64_t connect_ms)
{
    memset(k, 0, sizeof *k);
    k->env = env;
    k->via = via;
    k->on = on;
    k->dirty = dirty;
    k->connect_ms = connect_ms;
    k->choices = 1;
    list_init(&k->sent);
    list_init(&k->unsent);
    list_init(&k->on_dirty);
    timer_init(&k->retry, retry_fired);
    timer_init(&k->late, late_fired);
    timer_init(&k->turn, turn_fired);
}

void hf__link_done(struct link *k)
{
    if (!k->env)
        return;
    k->via->close(k);
    k->state = LINK_CLOSED;
    k->wanted = k->broken = false;
    set_timer(k, &k->retry, LOOP_NEVER);
    set_timer(k, &k->late, LOOP_NEVER);
    set_timer(k, &k->turn, LOOP_NEVER);
    list_remove(&k->on_dirty);
}
