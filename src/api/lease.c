/* lease.c: leases in the hands of the application: giving back, being told of loss,
 * changing.
 *
 * The loss descriptor is an eventfd that is written when the state leaves HF_HELD and
 * drained when it returns, under the lock, so that it is readable exactly while the state
 * is another. */
#include "api/api.h"

#include "util/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct loss { /* a thread in hf_lease_wait, on its stack */
    struct limit limit;
    const struct hf_lease *lease;
    struct list node; /* client.losses */
};

static void show_on_fd(const struct hf_lease *l, int state)
{
    hf_client *c = lease_client(l);
    int fd = l->extra ? l->extra->fd : -1;
    uint64_t n = 1;

    if (fd < 0 || !hf__loop_intact(&c->loop))
        return;
    if (state == HF_HELD)
        (void)!read(fd, &n, sizeof n); /* non-blocking: already drained is fine */
    else
        (void)!write(fd, &n, sizeof n); /* full means readable */
}

static void wake_for_loss(hf_client *c, const struct hf_lease *l)
{
    list_for(n, &c->losses) {
        struct loss *loss = container_of(n, struct loss, node);

        if (loss->lease == l)
            hf__wake(c, &loss->limit.waiter);
    }
}

void hf__lease_changed(struct hf_lease *l)
{
    hf_client *c = lease_client(l);
    struct lease_extra *x = l->extra;
    int state;

    if (!l->given)
        return; /* not in the application's hands yet */
    state = hf__lease_state(l);
    show_on_fd(l, state);
    if (state == HF_LOST)
        wake_for_loss(c, l);
    if (x && x->on_change && state != l->told && !l->telling &&
        list_empty(&x->changed_node)) {
        list_push(&c->changed, &x->changed_node);
        hf__news(c);
    }
}

void hf__lease_given(hf_client *c, struct hf_lease *l)
{
    l->given = true;
    c->refs++;
}

/* ---- giving back ----------------------------------------------------------------- */

/* NULL: nobody is told of it any more. */
static void set_callback(struct hf_lease *l, void (*cb)(hf_lease *, int, void *),
                         void *user)
{
    struct lease_extra *x = l->extra;

    if (!x)
        return; /* it has none */
    lease_client(l)->listeners += (size_t)(cb != NULL) - (size_t)(x->on_change != NULL);
    list_remove(&x->changed_node);
    x->on_change = cb;
    x->on_change_user = user;
    l->told = HF_HELD;
}

/* Until the callback that runs just now, of what was registered before, has returned. It
 * runs on another thread, which does not wait for this one: inside a callback nobody waits
 * here, whichever lease it is about, so that no two callbacks can wait for each other. */
static void wait_for_callback(struct hf_lease *l)
{
    hf_client *c = lease_client(l);
    unsigned runs = l->runs;

    while (l->telling && l->runs == runs && !hf__in_callback())
        pthread_cond_wait(&c->told, &c->lock);
}

void hf__lease_free(struct hf_lease *l)
{
    hf_client *c = lease_client(l);

    if (l->extra && l->extra->fd >= 0 && hf__loop_intact(&c->loop))
        close(l->extra->fd);
    if (*c->alive) {
        hf__lease_end(l);
    } else { /* a thread that is not in this child may have been at work in the pool */
        hf__lease_extra_free(l);
        free(l);
    }
}

/* What concerns the whole hold is done by its only handle. */
static int only_handles(const struct hf_lease *l, hf_error *err)
{
    for (size_t i = 0; i < l->n; i++)
        if (hold_is_shared(l->parts[i].hold))
            return hf__fail(err, HF_EBUSY, 0, NULL, "'%s' is held by several handles",
                            l->parts[i].hold->t.name);
    return 0;
}

static int may_keep(const struct hf_lease *l, int64_t keep_ms, hf_error *err)
{
    int rc = hf__check_keep(l->client, keep_ms, err);

    return rc < 0 ? rc : only_handles(l, err);
}

int hf__lease_enter(struct hf_lease *l, const int64_t *keep_ms, hf_error *err)
{
    hf_client *c = lease_client(l);
    int rc;

    if (hf__enter_any(c) == 0) {
        rc = keep_ms && !c->closing ? may_keep(l, *keep_ms, err) : 0;
        if (rc < 0)
            hf__leave(c);
        return rc;
    }
    hf__lease_free(l);
    hf__drop_forked(c);
    return hf__fail(err, HF_EFORKED, 0, NULL, "the lease belongs to the parent process");
}

static int release_and_wait(hf_client *c, struct hf_lease *l, int64_t keep_ms,
                            hf_error *err)
{
    struct hf_op op;

    hf__op_init(&op, &c->core, OP_RELEASE, err);
    list_push(&c->ops, &op.node);
    hf__release(&op, l, keep_ms);
    if (!op.done)
        hf__wait(c, &op);
    return op.rc;
}

void hf__lease_mute(struct hf_lease *l)
{
    set_callback(l, NULL, NULL);
}

void hf__lease_silence(struct hf_lease *l)
{
    set_callback(l, NULL, NULL);
    wait_for_callback(l);
}

int hf__lease_drop(struct hf_lease *l, struct hf_op *op, int64_t keep_ms)
{
    hf_client *c = lease_client(l);
    int rc;

    set_callback(l, NULL, NULL);
    l->released = true;
    rc = hf__release(op, l, keep_ms);
    if (!l->telling) /* else its callback frees it */
        hf__lease_free(l);
    c->refs--;
    return rc;
}

int hf__lease_give_back(struct hf_lease *l, struct hf_op *op, bool wait,
                        const int64_t *keep, hf_error *err)
{
    hf_client *c = lease_client(l);
    bool closing = c->closing;
    bool waits = wait && !closing && !c->broken;
    int64_t keep_ms = keep ? *keep : 0;
    int rc;

    set_callback(l, NULL, NULL);
    /* before the lock is given up: its callback may run just now, or end */
    l->released = true;
    l->awaited = wait;
    if (waits)
        rc = release_and_wait(c, l, keep_ms, err);
    else
        rc = hf__release(op, l, keep_ms);
    if (closing)
        rc = hf__fail(err, HF_ECLOSED, 0, NULL, "the client is closed");
    else if (rc == HF_ELOST && !waits && !op)
        hf__fail(err, rc, 0, NULL, "%s", hf_strerror(rc));
    if (wait)
        wait_for_callback(l); /* after the release: the next one need not wait for it */
    if (!l->telling)          /* else its callback frees it */
        hf__lease_free(l);
    c->refs--;
    hf__leave(c);
    return rc;
}

static int release(hf_lease *l, const int64_t *keep_ms, hf_error *err)
{
    int rc = hf__lease_enter(l, keep_ms, err);

    return rc < 0 ? rc : hf__lease_give_back(l, NULL, !hf__in_callback(), keep_ms, err);
}

int hf_release(hf_lease *l, hf_error *err)
{
    return l ? release(l, NULL, err) : 0;
}

/* Asked and done in one section: else a handle that another thread gets between would make
 * it a release that keeps nothing. */
int hf_release_after(hf_lease *l, int64_t keep_ms, hf_error *err)
{
    return l ? release(l, &keep_ms, err)
             : hf__fail(err, HF_EINVAL, 0, NULL, "the lease is NULL");
}

/* ---- being told ------------------------------------------------------------------ */

static int no_extra(hf_error *err)
{
    return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory to be told of a lease");
}

int hf_lease_fd(hf_lease *l, hf_error *err)
{
    struct lease_extra *x;
    int rc;

    if (!l)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the lease is NULL");
    rc = hf__enter(lease_client(l), err);
    if (rc < 0)
        return rc;
    x = hf__lease_extra(l);
    if (x && x->fd < 0) {
        x->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (x->fd >= 0 && hf__lease_state(l) != HF_HELD)
            show_on_fd(l, HF_LOST);
    }
    rc = !x           ? no_extra(err)
         : x->fd >= 0 ? x->fd
                      : hf__fail(err, HF_ESYS, errno, NULL, "eventfd");
    hf__leave(lease_client(l));
    return rc;
}

/* Somebody must hear what the store has to say, and somebody must tell it. */
static int begin_to_listen(hf_client *c, hf_error *err)
{
    int rc = hf__teller_start(c, err);

    return rc < 0 ? rc : hf__keeper_listen(c, err);
}

int hf_lease_on_change(hf_lease *l, void (*cb)(hf_lease *, int, void *), void *user,
                       hf_error *err)
{
    int rc;

    if (!l)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the lease is NULL");
    rc = hf__enter(lease_client(l), err);
    if (rc < 0)
        return rc;
    if (cb && hf__tells(lease_client(l)))
        rc = begin_to_listen(lease_client(l), err);
    if (rc == 0 && cb && !hf__lease_extra(l))
        rc = no_extra(err);
    if (rc == 0) {
        set_callback(l, cb, user);
        hf__lease_changed(l);
        wait_for_callback(l);
    }
    hf__leave(lease_client(l));
    return rc;
}

/* Every loss is told by hf__lease_changed, which wakes us; one that is only due (nobody
 * renews any more) has a timer of the core, served by the thread that drives, which may be
 * this one. */
static int await_loss(hf_client *c, hf_lease *l, struct limit *limit)
{
    for (;;) {
        if (c->closing)
            return HF_ECLOSED;
        if (hf__lease_state(l) == HF_LOST)
            return HF_ELOST;
        if (c->core.stopped)
            return HF_ECLOSED;
        if (hf__loop_now() >= limit->end)
            return 0;
        hf__wait_turn(c, &limit->waiter);
    }
}

int hf_lease_wait(hf_lease *l, int64_t wait_ms, hf_error *err)
{
    struct loss me = { .lease = l };
    hf_client *c;
    int rc;

    if (!l)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the lease is NULL");
    c = lease_client(l);
    rc = hf__enter_blocking(c, err);
    if (rc < 0)
        return rc;
    hf__limit_begin(&me.limit, c, wait_ms, false);
    list_push(&c->losses, &me.node);
    rc = await_loss(c, l, &me.limit);
    list_remove(&me.node);
    hf__limit_end(&me.limit);
    hf__leave(c);
    return rc < 0 ? hf__fail(err, rc, 0, NULL, "%s", hf_strerror(rc)) : 0;
}

/* ---- owners ---------------------------------------------------------------------- */

int hf_lease_adopt(hf_lease *l, uint64_t owner, hf_error *err)
{
    struct owner o = { 0, 0 };
    int rc;

    if (!l)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the lease is NULL");
    rc = hf__enter(lease_client(l), err);
    if (rc < 0)
        return rc;
    if (owner == HF_OWNER_THREAD)
        o = hf__owner_of_thread(hf__thread_number());
    else if (owner != HF_OWNER_CALL)
        o = hf__owner_of_number(owner);
    rc = only_handles(l, err);
    for (size_t i = 0; rc == 0 && i < l->n; i++)
        hf__hold_adopt(l->parts[i].hold, o, owner != HF_OWNER_CALL);
    hf__leave(lease_client(l));
    return rc;
}

int hf_lease_owner(const hf_lease *l, char *buf, size_t size)
{
    char hints[HF_HINTS_ROOM], text[40 + 3 * HF_HINTS_ROOM];
    hf_client *c = l ? lease_client(l) : NULL;
    size_t n, len;
    int rc = l ? hf__enter(c, NULL) : HF_EINVAL;

    if (rc < 0)
        return rc;
    hf__owner_text(text, sizeof text, l->parts[0].hold->t.owner);
    len = hf__hold_hints(&c->core, l->parts[0].hold->t.owner, hints);
    hf__leave(c);
    n = strlen(text);
    for (size_t i = 0; i < len; i++) {
        unsigned char b = (unsigned char)hints[i];

        if (i == 0 || hints[i - 1] == '\0')
            text[n++] = ' ';
        if (b > ' ' && b < 0x7f && b != '%')
            text[n++] = (char)b;
        else if (b != '\0')
            n += (size_t)snprintf(text + n, 4, "%%%02x", b);
    }
    text[n] = '\0';
    return snprintf(buf, size, "%s", text);
}

/* ---- what it is ------------------------------------------------------------------ */

static int mode_of(const struct ticket *t)
{
    return t->kind == LINE_PERMITS ? HF_PERMITS : t->weight < HF_FULL ? HF_READ : HF_WRITE;
}

int hf_lease_mode(const hf_lease *l)
{
    int mode;

    if (!l)
        return HF_EINVAL;
    if (hf__enter_any(lease_client(l)) < 0)
        return HF_EFORKED;
    mode = mode_of(&l->parts[0].hold->t);
    for (size_t i = 1; i < l->n && mode == HF_WRITE; i++)
        mode = mode_of(&l->parts[i].hold->t);
    hf__leave(lease_client(l));
    return mode;
}

/* The texts are made under the lock by the first call that asks, and do not change after
 * that. */
const char *hf_lease_ticket_at(const hf_lease *l, size_t i)
{
    enum { ID = 2 * HF_TOKEN + 1 };
    hf_lease *mine = (hf_lease *)(uintptr_t)l;
    struct lease_extra *x;
    const char *id;

    if (!l || i >= l->n || hf__enter_any(lease_client(l)) < 0)
        return NULL;
    x = hf__lease_extra(mine);
    if (x && !x->ids && (x->ids = malloc(l->n * ID)) != NULL)
        for (size_t k = 0; k < l->n; k++)
            hf__hex(x->ids + k * ID, l->parts[k].hold->t.token, HF_TOKEN);
    id = x && x->ids ? x->ids + i * ID : NULL;
    hf__leave(lease_client(l));
    return id;
}

const char *hf_lease_ticket(const hf_lease *l)
{
    return hf_lease_ticket_at(l, 0);
}
