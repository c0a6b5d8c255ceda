/* client.c: one opened store: calls verbs, never inside an event; closes.
 *
 * Verbs are queued (holds in `todo`, asks, lives in `due`) by events, timers and
 * operations, and called here until nothing is left. A verb may raise events at once (the
 * embedded store does), which queue more. The order: leaves and joins as they came, then
 * looks, then renewals, all that are due in one batch. While the store is down only leaves
 * are called (the driver answers that they are not settled); the rest waits for UP, when
 * everything unanswered is repeated. */
#include "core/core.h"
#include "core/mutate.h"
#include "util/text.h"

#include <stdlib.h>
#include <string.h>

enum { TTL_MS = 30000, BATCH = 256 };

/* "ID name name ...", names percent-encoded: what hf_lease_owner wrote. */
static int parse_acts_for(struct client *c, const char *text, hf_error *err)
{
    size_t id = strcspn(text, " "), len = 0;
    char *out = malloc(strlen(text) + 2);

    if (!out)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for the owner");
    c->acts_hints = out;
    if (!hf__owner_parse(&c->acts_for, text, id))
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "hf_options: owner is not of hf_lease_owner");
    /* %00 is no escape here: it would end the name */
    for (const char *p = text + id; *p; p++) {
        const char hex[3] = { p[1], p[1] ? p[2] : '\0', '\0' };

        if (*p == ' ') {
            if (len > 0)
                out[len++] = '\0';
        } else if (*p == '%' && hf__unhex(out + len, 1, hex) && out[len] != '\0') {
            len++;
            p += 2;
        } else {
            out[len++] = *p;
        }
    }
    if (len > 0)
        out[len++] = '\0';
    c->acts_hints_len = len;
    return 0;
}

/* Capabilities and limits are those of the first UP. Later the store can only come to do
 * less (an older member of a cluster, a rolling upgrade): what was promised once is not
 * taken for granted again. */
static void learn(struct client *c)
{
    const struct store *s = c->store;

    if (!c->known) {
        c->caps = s->caps;
        c->least_ttl_ms = s->least_ttl_ms;
        c->most_ttl_ms = s->most_ttl_ms;
    } else {
        c->caps &= s->caps;
        if (s->least_ttl_ms > c->least_ttl_ms)
            c->least_ttl_ms = s->least_ttl_ms;
        if (s->most_ttl_ms < c->most_ttl_ms)
            c->most_ttl_ms = s->most_ttl_ms;
    }
    c->known = true;
}

static int set_ttl(struct client *c, hf_error *err)
{
    c->ttl_ms = c->url.ttl_ms ? c->url.ttl_ms : TTL_MS;
    return hf__check_needs(c, 0, c->ttl_ms, err);
}

int hf__client_init(struct client *c, const struct hf_driver *driver, const struct url *url,
                    const hf_options *o, struct env *env, const struct host *host,
                    hf_error *err)
{
    int rc = 0;

    c->env = env;
    c->host = host;
    c->url = *url;
    if (o->ttl_ms)
        c->url.ttl_ms = o->ttl_ms; /* a store may need it to connect */
    c->url.existing = o->drive & HF_OPEN_EXISTING;
    list_init(&c->holds);
    list_init(&c->todo);
    list_init(&c->due);
    list_init(&c->asks);
    list_init(&c->follows);
    list_init(&c->connects);
    list_init(&c->walks);
    hf__pool_init(&c->lease_pool);
    hf__pool_init(&c->hold_pool);
    env->random(env, c->hash_key, sizeof c->hash_key);
    if (hf__map_init(&c->waiting) < 0 || hf__map_init(&c->by_place) < 0 ||
        hf__map_init(&c->by_owner) < 0)
        rc = hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a client");
    if (rc == 0 && o->owner)
        rc = parse_acts_for(c, o->owner, err);
    if (rc == 0)
        rc = driver->open(&c->store, &c->url, env, err);
    if (rc == 0) {
        c->store->client = c;
        learn(c);
        c->up = c->known = !c->store->starts_down;
        rc = set_ttl(c, err);
    }
    if (rc < 0) {
        memset(&c->url, 0, sizeof c->url); /* still the caller's */
        hf__client_done(c);
        return rc;
    }
    if (c->store->shown) {
        free(c->url.shown);
        c->url.shown = c->store->shown;
        c->store->shown = NULL;
    }
    return 0;
}

/* What is unsettled now is renewed by nobody and out by its ttl. */
static void forget(struct client *c)
{
    list_for_safe(n, &c->holds)
        hf__hold_step(container_of(n, struct hold, node), TICKET_FORGOTTEN, 0, NULL);
}

void hf__client_done(struct client *c)
{
    c->closed = true;
    list_for(n, &c->holds)
        hf__unhang(&container_of(n, struct hold, node)->t);
    if (c->store)
        c->store->driver->close(c->store);
    c->store = NULL;
    forget(c);
    hf__map_done(&c->waiting);
    hf__map_done(&c->by_place);
    hf__map_done(&c->by_owner);
    free(c->acts_hints);
    c->acts_hints = NULL;
    hf__pool_done(&c->lease_pool);
    hf__pool_done(&c->hold_pool);
}

void hf__client_todo(struct hold *h, unsigned verbs)
{
    h->todo |= verbs;
    if (list_empty(&h->todo_node))
        list_push(&h->client->todo, &h->todo_node);
}

static void run_hold(struct client *c, struct hold *h)
{
    if (!c->up && !(h->todo & DO_LEAVE)) {
        list_remove(&h->todo_node); /* UP brings it back */
        return;
    }
    if ((h->todo & (h->todo - 1)) == 0 || (h->todo & DO_LEAVE))
        list_remove(&h->todo_node);
    hf__hold_run(h);
}

static void run_due(struct client *c)
{
    struct life *batch[BATCH];
    int64_t now = c->env->now(c->env);
    size_t n = 0;
    struct list *d;

    while (n < BATCH && (d = list_pop(&c->due)) != NULL) {
        struct life *l = container_of(d, struct life, due);

        if (l->dead || l->ntickets == 0 || (MUTANT(SKIP_RENEW) && c->asked > 0) ||
            (MUTANT(STOP_NO_RENEW) && c->stopped))
            continue;
        l->tried_at = now;
        if (l->kind == LIFE_WAIT)
            c->waits_kept_at = now;
        c->asked += !l->asked;
        l->asked = true;
        hf__life_plan(l);
        batch[n++] = l;
    }
    if (n > 0)
        c->store->driver->renew(c->store, batch, n);
}

/* Calls the next verb that is queued; false: none is. */
static bool run_next(struct client *c)
{
    struct list *n = list_first(&c->todo), *a = list_first(&c->asks);

    if (n) {
        run_hold(c, container_of(n, struct hold, todo_node));
    } else if (a && c->up) {
        list_remove(a);
        hf__ask_run(container_of(a, struct ask, todo_node));
    } else if (!list_empty(&c->due) && c->up) {
        run_due(c);
    } else {
        return false;
    }
    return true;
}

void hf__client_run(struct client *c)
{
    if (c->running || c->closed || c->shut)
        return;
    c->running = true;
    do {
        while (run_next(c))
            ;
        if (c->store->driver->flush && !(c->host->more_comes && c->host->more_comes(c)))
            /* may find the store down, and queue leaves */
            c->store->driver->flush(c->store);
    } while (!list_empty(&c->todo));
    c->running = false;
}

/* Asks for what the store, as it is now known to be, does not have: it is refused, never
 * granted with less. A hold whose deadline is no longer certain is at risk from now on. */
static bool refused_by_needs(struct client *c, struct hold *h)
{
    hf_error err;

    if (h->state == TICKET_HELD) {
        h->uncertain = h->needs & HF_CAP_DEADLINE & ~c->caps;
        hf__hold_grade(h, atomic_load(&h->grade));
        return false;
    }
    if (!h->op || MUTANT(CAPS_AT_CALL) ||
        hf__check_needs(c, h->needs, h->t.ttl_ms, &err) == 0)
        return false;
    if (h->state == TICKET_LEAVING) { /* to join again: it does not, and still leaves */
        hf__op_refused(h->op, h, err.code, &err);
        return false;
    }
    hf__hold_step(h,
                  h->join_sent_at > 0 && h->state != TICKET_RETRYING
                      ? TICKET_REFUSED_IN_LINE
                      : TICKET_REFUSED,
                  err.code, &err);
    return true;
}

/* Renewed by hand, and no renewal was asked for. */
static bool left_alone(const struct hold *h)
{
    return hf__hold_by_hand(h) && h->t.life && h->t.life == h->t.own;
}

static void repeat(struct hold *h)
{
    if (!left_alone(h) && (h->state == TICKET_JOINING || !h->leave_sent))
        hf__hold_step(h, TICKET_STORE_UP, 0, NULL);
    if (h->state == TICKET_HELD && (h->amend != AMEND_NONE || (h->todo & HOLD_AMEND))) {
        h->amend = AMEND_NONE;
        hf__hold_amend(h);
    }
}

/* Repeats what was unanswered (seam rule 6). */
static void up(struct client *c)
{
    c->up = true;
    c->up_at = c->env->now(c->env);
    learn(c);
    list_for_safe(n, &c->holds) {
        struct hold *h = container_of(n, struct hold, node);

        if (!refused_by_needs(c, h) && !MUTANT(UP_FORGETS))
            repeat(h);
    }
    hf__ask_store_up(c);
    hf__op_connected(c);
}

/* UP for a part of the store. Requests of lost connections were possible until now, so
 * up_at moves, for all tickets: that only makes the others repeat a leave for longer. */
void ev_back(struct store *s, bool (*concerns)(struct store *, const struct ticket *))
{
    struct client *c = s->client;

    if (!c || !c->up)
        return;
    if (!MUTANT(BACK_UNTIMED))
        c->up_at = c->env->now(c->env);
    list_for_safe(n, &c->holds) {
        struct hold *h = container_of(n, struct hold, node);

        if (concerns(s, &h->t) && !MUTANT(BACK_FORGETS))
            repeat(h);
    }
}

/* The store can be reached and will not have us: waiting does not change that. */
bool hf__client_refused(const struct client *c)
{
    switch (c->down.code) {
    case HF_EINVAL:
    case HF_EAUTH:
    case HF_ENOTSUP:
    case HF_EVERSION:
    case HF_EMODULE:
        return !c->up;
    default:
        return false;
    }
}

static void down(struct client *c, const hf_error *err)
{
    c->up = false;
    if (err)
        c->down = *err;
    list_for_safe(n, &c->holds) {
        struct hold *h = container_of(n, struct hold, node);

        if (h->op && (h->state == TICKET_JOINING || h->state == TICKET_RETRYING ||
                      hf__client_refused(c)))
            hf__op_store_down(h->op);
    }
    list_for_safe(n, &c->asks)
        hf__ask_store_down(container_of(n, struct ask, todo_node));
    hf__op_connected(c);
}

void ev_store(struct store *s, int state, const hf_error *err)
{
    struct client *c = s->client;

    if (!c)
        return;
    if (state == STORE_UP && !c->up)
        up(c);
    else if (state == STORE_DOWN)
        down(c, err);
}

/* No more acquiring, looking or evicting: such operations are refused from now on. What is
 * held stays held, is renewed, and is given up by its owner or by hf__client_shut. The
 * caller has a list of its operations and cancels those that wait. */
void hf__client_stop(struct client *c)
{
    c->stopped = true;
    list_for_safe(n, &c->holds) {
        struct hold *h = container_of(n, struct hold, node);

        if (MUTANT(STOP_RELEASES) && h->state == TICKET_HELD)
            hf__hold_step(h, TICKET_GIVE_UP, 0, NULL);
    }
}

/* No more holding: what is in line leaves. The caller has cancelled every operation, and
 * drives until `unsettled` is 0 or its patience is over. */
void hf__client_shut(struct client *c)
{
    c->closing = true;
    list_for_safe(n, &c->holds) {
        struct hold *h = container_of(n, struct hold, node);

        h->lost = true;
        hf__hold_grade(h, HF_LOST);
        hf__hold_step(h, TICKET_GIVE_UP, 0, NULL);
    }
    hf__client_run(c);
}

void hf__client_end_session(struct client *c)
{
    const struct hf_driver *driver = c->store->driver;

    c->shut = true;
    c->shut_done = !driver->shut;
    if (driver->shut)
        driver->shut(c->store);
    if (driver->flush)
        driver->flush(c->store);
}

void ev_shut(struct store *s)
{
    s->client->shut_done = true;
}

/* The process has closed the descriptors of the client, and may have files of its own in
 * their places: no driver may write to them, or close them. Its memory is left. */
void hf__client_break(struct client *c)
{
    c->store = NULL;
    c->closed = true;
    list_for_safe(n, &c->holds) {
        struct hold *h = container_of(n, struct hold, node);

        h->lost = true;
        hf__hold_grade(h, HF_LOST);
    }
}
