/* election.c: a leader: an exclusive lock, whose note is the leader's value.
 *
 * The office is the lock, so its fence is the term. Who leads is read from the line: the
 * holder of the exclusive ticket, unless it was left by hf_release_after, which is
 * nobody's. Observing is following the line; only changes of term or value are told, of all
 * that happens there (others stand for election, give up, renew). */
#include "recipes/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- who leads ------------------------------------------------------------------- */

/* False: the line is one of permits. Nobody leads: ret->fence is 0. */
static bool leader_of(const hf_list *list, hf_leader_info *ret)
{
    const hf_line *line = hf_list_at(list, 0);
    const hf_ticket *t = hf_line_ticket(line, 0);

    memset(ret, 0, sizeof *ret);
    if (line && hf_line_mode(line) == HF_PERMITS)
        return false;
    if (!t || hf_ticket_position(t) != 0 || hf_ticket_mode(t) != HF_WRITE ||
        hf_ticket_kept(t))
        return true;
    ret->fence = hf_ticket_fence(t);
    ret->pid = hf_ticket_pid(t);
    ret->age_ms = hf_ticket_age_ms(t);
    snprintf(ret->host, sizeof ret->host, "%s", hf_ticket_host(t));
    snprintf(ret->value, sizeof ret->value, "%s", hf_ticket_note(t));
    return true;
}

static bool same(const hf_leader_info *a, const hf_leader_info *b)
{
    return a->fence == b->fence && (a->fence == 0 || strcmp(a->value, b->value) == 0);
}

/* Of an answer; the capabilities are known then. */
static int read_leader(const struct client *c, const char *name, const hf_list *list,
                       hf_leader_info *ret, hf_error *err)
{
    /* the limits of a ttl may be changing: only asked for if it is refused */
    int rc = c->caps & HF_CAP_LINE ? 0 : hf__check_needs(c, HF_CAP_LINE, c->ttl_ms, err);

    if (rc == 0 && !leader_of(list, ret))
        rc = hf__fail(err, HF_EMISMATCH, 0, c->url.shown,
                      "'%s' is a line of permits: nobody can lead there", name);
    return rc;
}

static int nobody(const struct client *c, const char *name, hf_error *err)
{
    return hf__fail(err, HF_ENOENT, 0, c->url.shown, "nobody leads '%s'", name);
}

int hf_leader(hf_client *c, const char *name, hf_leader_info *ret, hf_error *err)
{
    hf_leader_info now;
    hf_list *list;
    int rc;

    if (!ret)
        return hf__fail(err, HF_EINVAL, 0, NULL, "ret is NULL");
    rc = hf__enter_blocking(c, err);
    if (rc < 0)
        return rc;
    rc = hf__look_take(c, name, &list, err);
    if (rc == 0) {
        rc = read_leader(&c->core, name, list, &now, err);
        hf_list_free(list);
        if (rc == 0 && now.fence == 0)
            rc = nobody(&c->core, name, err);
    }
    hf__leave(c);
    if (rc == 0)
        *ret = now;
    return rc;
}

/* ---- being told ------------------------------------------------------------------ */

/* A look or a watch of the line, and what was told of it. The callbacks of one operation
 * never run at the same time, and it is freed when the last has returned. */
struct observer {
    struct watcher w; /* first */
    hf_led *led;
    void *user;
    bool told, over;
    hf_leader_info last;
    char name[HF_NAME_MAX + 1];
};

static void seen(hf_op *op, int rc, const hf_list *list, const hf_error *err, void *user)
{
    struct observer *o = user;
    hf_leader_info now;
    hf_error why;

    if (o->over)
        return;
    if (rc == 0) {
        rc = read_leader(op->client, o->name, list, &now, &why);
        if (rc == 0 && op->kind == OP_ASK && now.fence == 0)
            rc = nobody(op->client, o->name, &why);
        err = &why;
    }
    if (rc < 0) {
        o->over = true;
        o->led(op, rc, NULL, err, o->user);
    } else if (!o->told || !same(&o->last, &now)) {
        o->told = true;
        o->last = now;
        o->led(op, 0, now.fence ? &now : NULL, NULL, o->user);
    }
}

static int observe(hf_client *c, enum op_kind kind, const char *name, hf_led *led,
                   void *user, hf_op **ret, hf_error *err)
{
    struct observer *o;
    int rc = hf__check_name(&c->core, name, err);

    if (rc == 0)
        rc = hf__check_needs(&c->core, HF_CAP_LINE, c->core.ttl_ms, err);
    if (rc < 0)
        return rc;
    o = (struct observer *)(void *)hf__op_new(c, kind, sizeof *o,
                                              &(struct listener){ .seen = seen }, err);
    if (!o)
        return HF_ENOMEM;
    o->w.op.user = o;
    o->led = led;
    o->user = user;
    strcpy(o->name, name);
    rc = hf__ask(&o->w.op, &o->w.ask, ASK_LOOK,
                 &(struct look){ .name = o->name,
                                 .name_len = strlen(o->name),
                                 .follow = kind == OP_WATCH },
                 err);
    if (rc < 0)
        hf__op_drop(c, &o->w.op);
    else
        *ret = &o->w.op;
    return rc;
}

static int start(hf_client *c, enum op_kind kind, const char *name, hf_led *led, void *user,
                 hf_op **ret, hf_error *err)
{
    int rc;

    if (!led || !ret)
        return hf__fail(err, HF_EINVAL, 0, NULL, "callback and ret must not be NULL");
    rc = hf__enter(c, err);
    if (rc < 0)
        return rc;
    rc = observe(c, kind, name, led, user, ret, err);
    hf__leave(c);
    return rc;
}

int hf_leader_start(hf_client *c, const char *name, hf_led *led, void *user, hf_op **ret,
                    hf_error *err)
{
    return start(c, OP_ASK, name, led, user, ret, err);
}

int hf_observe_start(hf_client *c, const char *name, hf_led *led, void *user, hf_op **ret,
                     hf_error *err)
{
    return start(c, OP_WATCH, name, led, user, ret, err);
}

/* ---- waiting for a change -------------------------------------------------------- */

struct leader_wait {
    struct composite g;
    struct line_part line;
    const hf_leader_info *known;
    hf_leader_info *ret; /* the caller's: it waits */
};

static void observing(struct composite *g)
{
    enum { BEGIN, FOLLOWS };
    struct leader_wait *w = container_of(g, struct leader_wait, g);
    hf_leader_info now;
    int rc;

    switch (g->state) {
    case BEGIN:
        hf__part_follow_line(g, &w->line);
        g->state = FOLLOWS;
        return;
    case FOLLOWS:
        if (w->line.op.done) {
            hf__composite_end(g, w->line.op.rc);
            return;
        }
        if (!hf__part_news(&w->line.op))
            return;
        rc = read_leader(g->op.client, g->name, w->line.op.list, &now, &g->err);
        if (rc == 0 && same(w->known, &now))
            rc = g->op.try_only ? hf__fail(&g->err, HF_EBUSY, 0, g->op.client->url.shown,
                                           "'%s': the leader is the same", g->name)
                                : 1;
        if (rc == 0)
            *w->ret = now;
        if (rc <= 0)
            hf__composite_end(g, rc);
        return;
    }
}

static struct composite *await_change(hf_client *c, const struct recipe_args *a,
                                      const struct listener *l, hf_error *err)
{
    struct composite *g;

    if (hf__check_needs(&c->core, HF_CAP_LINE, c->core.ttl_ms, err) < 0)
        return NULL;
    g = hf__composite_new(c, sizeof(struct leader_wait), observing, a->name, l, err);
    if (!g)
        return NULL;
    container_of(g, struct leader_wait, g)->known = a->known;
    container_of(g, struct leader_wait, g)->ret = a->of;
    hf__composite_limit(g, a->wait_ms, true, a->cancel);
    return g;
}

int hf_observe(hf_client *c, const char *name, const hf_leader_info *known, int64_t wait_ms,
               hf_cancel *cancel, hf_leader_info *ret, hf_error *err)
{
    static const hf_leader_info none = HF_LEADER_NONE;

    if (!ret)
        return hf__fail(err, HF_EINVAL, 0, NULL, "ret is NULL");
    return hf__recipe_call(c, await_change,
                           (struct recipe_args){ .name = name,
                                                 .wait_ms = wait_ms,
                                                 .cancel = cancel,
                                                 .known = known ? known : &none,
                                                 .of = ret },
                           NULL, NULL, err);
}

/* ---- the office ------------------------------------------------------------------ */

/* The value is the note. */
static int campaign_request(hf_client *c, const hf_request *given, const char *value,
                            hf_request *ret, hf_error *err)
{
    static const hf_request none = HF_REQUEST_INIT;

    *ret = none;
    if (given && !hf__copy_sized(ret, sizeof *ret, given, given->size, HF_REQUEST_SIZE_0_1))
        return hf__fail(err, HF_EINVAL, 0, NULL, "hf_request: size or unknown bytes");
    ret->size = sizeof *ret;
    if (ret->note)
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "hf_request: the value is the note of a campaign");
    if (ret->mode != HF_MUTEX && ret->mode != HF_WRITE)
        return hf__fail(err, HF_EINVAL, 0, NULL, "hf_request: a leader is alone");
    ret->note = value;
    return c ? hf__check_needs(&c->core, HF_CAP_LINE, c->core.ttl_ms, err)
             : hf__fail(err, HF_EINVAL, 0, NULL, "the client is NULL");
}

int hf_campaign(hf_client *c, const char *name, const char *value, int64_t wait_ms,
                const hf_request *given, hf_lease **ret, hf_error *err)
{
    hf_request req;
    int rc = campaign_request(c, given, value, &req, err);

    return rc < 0 ? rc : hf_acquire(c, name, wait_ms, &req, ret, err);
}

int hf_campaign_start(hf_client *c, const char *name, const char *value, int64_t wait_ms,
                      const hf_request *given, hf_done *done, void *user, hf_op **ret,
                      hf_error *err)
{
    hf_request req;
    int rc = campaign_request(c, given, value, &req, err);

    return rc < 0 ? rc : hf_acquire_start(c, name, wait_ms, &req, done, user, ret, err);
}

int hf_proclaim(hf_lease *l, const char *value, hf_error *err)
{
    return hf_lease_note(l, value, err);
}

int hf_resign(hf_lease *l, hf_error *err)
{
    return hf_release(l, err);
}
