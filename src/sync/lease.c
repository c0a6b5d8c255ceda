/* lease.c: leases in the hands of the application: giving back, being told of loss, changing.
 *
 * The loss descriptor is an eventfd that is written when the state leaves HF_HELD and drained
 * when it returns, under the lock, so that it is readable exactly while the state is another. */
#include "sync/sync.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void show_on_fd(const struct hf_lease *l, int state)
{
    hf_client *c = l->owner;
    uint64_t n = 1;

    if (l->fd < 0 || !hf__loop_intact(&c->loop))
        return;
    if (state == HF_HELD)
        (void)!read(l->fd, &n, sizeof n); /* non-blocking: already drained is fine */
    else
        (void)!write(l->fd, &n, sizeof n); /* full means readable */
}

void hf__lease_changed(struct hf_lease *l)
{
    hf_client *c = l->owner;
    int state;

    if (!c)
        return; /* not in the application's hands yet */
    state = hf__lease_state(l);
    show_on_fd(l, state);
    if (l->on_change && state != l->told && !l->telling && list_empty(&l->changed_node)) {
        list_push(&c->changed, &l->changed_node);
        hf__news(c);
    }
}

void hf__lease_given(hf_client *c, struct hf_lease *l)
{
    l->owner = c;
    c->refs++;
}

/* ---- giving back --------------------------------------------------------------------------- */

/* NULL: nobody is told of it any more. */
static void set_callback(struct hf_lease *l, void (*cb)(hf_lease *, int, void *), void *user)
{
    hf_client *c = l->owner;

    c->listeners += (size_t)(cb != NULL) - (size_t)(l->on_change != NULL);
    list_remove(&l->changed_node);
    l->on_change = cb;
    l->on_change_user = user;
    l->told = HF_HELD;
}

/* Until the callback that runs just now, of what was registered before, has returned. It runs on
 * another thread, which does not wait for this one: inside a callback nobody waits here, whichever
 * lease it is about, so that no two callbacks can wait for each other. */
static void wait_for_callback(struct hf_lease *l)
{
    hf_client *c = l->owner;
    unsigned runs = l->runs;

    while (l->telling && l->runs == runs && !hf__in_callback())
        pthread_cond_wait(&c->told, &c->lock);
}

void hf__lease_free(struct hf_lease *l)
{
    hf_client *c = l->owner;

    if (l->fd >= 0 && hf__loop_intact(&c->loop))
        close(l->fd);
    free(l);
}

int hf__lease_enter(struct hf_lease *l, hf_error *err)
{
    hf_client *c = l->owner;

    if (hf__enter_any(c) == 0)
        return 0;
    hf__lease_free(l);
    hf__drop_forked(c);
    return hf__fail(err, HF_EFORKED, 0, NULL, "the lease belongs to the parent process");
}

static int release_and_wait(hf_client *c, struct hf_lease *l, int64_t keep_ms, hf_error *err)
{
    struct hf_op op;

    hf__op_init(&op, &c->core, OP_RELEASE, err);
    op.owner = c;
    list_push(&c->ops, &op.node);
    hf__release(&op, l, keep_ms);
    if (!op.done)
        hf__wait(c, &op);
    return op.rc;
}

int hf__lease_give_back(struct hf_lease *l, struct hf_op *op, bool wait, int64_t keep_ms,
                        hf_error *err)
{
    hf_client *c = l->owner;
    bool closing = c->closing;
    int rc;

    set_callback(l, NULL, NULL);
    l->released = true; /* before the lock is given up: its callback may run just now, or end */
    l->awaited = wait;
    if (wait && !closing && !c->broken)
        rc = release_and_wait(c, l, keep_ms, err);
    else
        rc = hf__release(op, l, keep_ms);
    if (closing)
        rc = hf__fail(err, HF_ECLOSED, 0, NULL, "the client is closed");
    else if (rc == HF_ELOST && !op && (!wait || c->broken))
        hf__fail(err, rc, 0, NULL, "%s", hf_strerror(rc));
    if (wait)
        wait_for_callback(l); /* after the release: the next one need not wait for it */
    if (!l->telling) /* else its callback frees it */
        hf__lease_free(l);
    c->refs--;
    hf__leave(c);
    return rc;
}

int hf_release(hf_lease *l, hf_error *err)
{
    int rc = l ? hf__lease_enter(l, err) : 0;

    return !l || rc < 0 ? rc : hf__lease_give_back(l, NULL, !hf__in_callback(), 0, err);
}

static int may_keep(const struct hf_lease *l, int64_t keep_ms, hf_error *err)
{
    if (keep_ms <= 0 || keep_ms > l->client->most_ttl_ms)
        return hf__fail(err, HF_EINVAL, 0, NULL, "keep_ms %" PRId64 " is out of range", keep_ms);
    if (!(l->client->caps & HF_CAP_KEEP))
        return hf__fail(err, HF_ENOTSUP, 0, l->client->url.shown,
                        "this store cannot end a place by itself");
    for (size_t i = 0; i < l->n; i++)
        if (l->parts[i].hold->parts.next->next != &l->parts[i].hold->parts)
            return hf__fail(err, HF_EBUSY, 0, NULL, "'%s' is held by several handles",
                            l->parts[i].hold->t.name);
    return 0;
}

/* Asked and done in one section: else a handle that another thread gets between would make it a
 * release that keeps nothing. */
int hf_release_after(hf_lease *l, int64_t keep_ms, hf_error *err)
{
    int rc;

    if (!l)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the lease is NULL");
    rc = hf__lease_enter(l, err);
    if (rc < 0)
        return rc;
    rc = ((hf_client *)l->owner)->closed ? 0 : may_keep(l, keep_ms, err);
    if (rc == 0)
        return hf__lease_give_back(l, NULL, !hf__in_callback(), keep_ms, err);
    hf__leave(l->owner);
    return rc;
}

/* ---- being told ------------------------------------------------------------------------------ */

int hf_lease_fd(hf_lease *l, hf_error *err)
{
    int rc;

    if (!l)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the lease is NULL");
    rc = hf__enter(l->owner, err);
    if (rc < 0)
        return rc;
    if (l->fd < 0) {
        l->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (l->fd >= 0 && hf__lease_state(l) != HF_HELD)
            show_on_fd(l, HF_LOST);
    }
    rc = l->fd >= 0 ? l->fd : hf__fail(err, HF_ESYS, errno, NULL, "eventfd");
    hf__leave(l->owner);
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
    rc = hf__enter(l->owner, err);
    if (rc < 0)
        return rc;
    if (cb && hf__tells(l->owner))
        rc = begin_to_listen(l->owner, err);
    if (rc == 0) {
        set_callback(l, cb, user);
        hf__lease_changed(l);
        wait_for_callback(l);
    }
    hf__leave(l->owner);
    return rc;
}

/* ---- changing ---------------------------------------------------------------------------------- */

enum change { CHANGE_NOTE, CHANGE_WEIGHT, CHANGE_TTL };

static int change_one(hf_client *c, struct hold *h, enum change what, const char *note,
                      int64_t ttl_ms, hf_error *err)
{
    struct hf_op op;
    int rc;

    hf__op_init(&op, &c->core, what == CHANGE_TTL ? OP_RENEW : OP_AMEND, err);
    op.owner = c;
    list_push(&c->ops, &op.node);
    rc = what == CHANGE_TTL ? hf__renew(&op, h, ttl_ms)
                            : hf__amend(&op, h, note, what == CHANGE_WEIGHT);
    if (rc == 0 && !op.done)
        hf__wait(c, &op);
    list_remove(&op.node);
    return rc < 0 ? rc : op.rc;
}

static int change(hf_lease *l, enum change what, const char *note, int64_t ttl_ms,
                  hf_error *err)
{
    hf_client *c;
    int rc;

    if (!l)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the lease is NULL");
    c = l->owner;
    rc = hf__enter_blocking(c, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < l->n; i++)
        rc = change_one(c, l->parts[i].hold, what, note, ttl_ms, err);
    hf__leave(c);
    return rc;
}

int hf_lease_renew(hf_lease *l, int64_t ttl_ms, hf_error *err)
{
    if (ttl_ms < 0)
        return hf__fail(err, HF_EINVAL, 0, NULL, "ttl_ms is negative");
    if (l && ttl_ms > 0 &&
        (ttl_ms < l->client->least_ttl_ms || ttl_ms > l->client->most_ttl_ms))
        return hf__fail(err, HF_ENOTSUP, 0, NULL,
                        "ttl %" PRId64 " ms: this store takes %" PRId64 " to %" PRId64 " ms",
                        ttl_ms, l->client->least_ttl_ms, l->client->most_ttl_ms);
    return change(l, CHANGE_TTL, NULL, ttl_ms, err);
}

int hf_lease_downgrade(hf_lease *l, hf_error *err)
{
    return change(l, CHANGE_WEIGHT, NULL, 0, err);
}

int hf_lease_note(hf_lease *l, const char *note, hf_error *err)
{
    int rc = hf__check_note(note, err);

    return rc < 0 ? rc : change(l, CHANGE_NOTE, note ? note : "", 0, err);
}

int hf_lease_adopt(hf_lease *l, uint64_t owner, hf_error *err)
{
    struct owner o = { 0, 0 };
    int rc;

    if (!l)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the lease is NULL");
    rc = hf__enter(l->owner, err);
    if (rc < 0)
        return rc;
    if (owner == HF_OWNER_THREAD)
        o = hf__owner_of_thread(hf__thread_number());
    else if (owner != HF_OWNER_CALL)
        o = hf__owner_of_number(owner);
    for (size_t i = 0; i < l->n; i++)
        hf__hold_adopt(l->parts[i].hold, o, owner != HF_OWNER_CALL);
    hf__leave(l->owner);
    return 0;
}

int hf_lease_owner(const hf_lease *l, char *buf, size_t size)
{
    char hints[HF_HINTS_ROOM], text[40 + 3 * HF_HINTS_ROOM];
    hf_client *c = l ? l->owner : NULL;
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
