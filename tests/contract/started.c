/* started.c: calls that are started (async.h) besides acquire and release: looks, lists,
 * states, evictions and changes of a lease. The faces make them one at a time, from
 * outside; here they meet: freed early, closed over, started in a callback, two of them on
 * one lease, one on a lease that is released meanwhile.
 */
#include "rig.h"

#include <stdatomic.h>
#include <string.h>

static const char nobody[] = "00000000000000000000000000000000";

static hf_client *undriven(void)
{
    hf_client *c = NULL;

    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    return c;
}

struct told {
    atomic_int calls, rc;
};

static void on_done(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct told *t = user;

    (void)op;
    CHECK(!lease && (rc >= 0 || (err && err->code == rc && err->text[0])));
    atomic_store(&t->rc, rc);
    atomic_fetch_add(&t->calls, 1);
}

static void on_seen(hf_op *op, int rc, const hf_list *list, const hf_error *err, void *user)
{
    CHECK(rc < 0 || hf_list_count(list) <= 1);
    on_done(op, rc, NULL, err, user);
}

/* By whoever drives in this face. */
static bool turned(hf_client *c)
{
    if (!rig.face->async)
        CHECK(hf_client_wait(c, 1) >= 0);
    return true;
}

/* The n-th kind of question; false: there are no more. */
static bool asked(hf_client *c, int n, struct told *t, hf_op **op)
{
    switch (n) {
    case 0:
        CHECK_RC(hf_look_start(c, nm("n"), on_seen, t, op, E()), 0);
        return true;
    case 1:
        CHECK_RC(hf_name_state_start(c, nm("n"), on_done, t, op, E()), 0);
        return true;
    case 2:
        CHECK_RC(hf_evict_start(c, nm("n"), nobody, HF_EVICT_NOW, on_done, t, op, E()), 0);
        return true;
    case 3:
        CHECK_RC(hf_ls_start(c, nm("n"), 1, on_seen, t, op, E()), 0);
        return true;
    default:
        return false;
    }
}

/* The n-th kind of change. */
static bool changed(hf_lease *l, int n, struct told *t, hf_op **op)
{
    switch (n) {
    case 0:
        CHECK_RC(hf_renew_start(l, 0, on_done, t, op, E()), 0);
        return true;
    case 1:
        CHECK_RC(hf_note_start(l, "another", on_done, t, op, E()), 0);
        return true;
    case 2:
        CHECK_RC(hf_downgrade_start(l, on_done, t, op, E()), 0);
        return true;
    default:
        return false;
    }
}

enum { KINDS = 4 };

/* Right after the start, or in between: the callback never runs. */
static void freed_early(void)
{
    hf_client *c = opened();
    hf_lease *l = taken(c, nm("n"), NULL);
    struct told t = { 0 };
    hf_op *op;

    for (int n = 0; asked(c, n, &t, &op); n++)
        hf_op_free(op);
    for (int n = 0; changed(l, n, &t, &op); n++) {
        hf_op_free(op);
        AWAIT(rig.face->note(l, "third", E()) == 0); /* that one is over by then */
    }
    if (!rig.face->async) /* a driven one may have been told before */
        STAYS((turned(c), t.calls == 0), 100);
    given(l);
    closed(c);
}

/* Nobody drives but hf_close: each is told once, in there. A store that answers inside the
 * call has answered. */
static void closed_over(void)
{
    bool at_once = strncmp(rig.place->url, "local:", 6) == 0;
    hf_client *c = undriven();
    struct told t[KINDS] = { { 0 } };
    hf_op *op[KINDS] = { NULL };

    for (int n = 0; asked(c, n, &t[n], &op[n]); n++)
        CHECK_NUM(t[n].calls, ==, 0);
    hf_close(c);
    for (int n = 0; n < KINDS; n++) {
        CHECK_NUM(t[n].calls, ==, 1);
        CHECK_RC(t[n].rc, !at_once ? HF_ECLOSED : n == 2 ? HF_ENOENT : 0);
        hf_op_free(op[n]);
    }
}

static void changed_and_closed(void)
{
    hf_client *c = undriven();
    hf_lease *l = NULL;
    struct told t = { 0 };
    hf_op *op;

    CHECK_RC(hf_acquire(c, nm("n"), LIMIT_MS, NULL, &l, E()), 0);
    CHECK_RC(hf_note_start(l, "another", on_done, &t, &op, E()), 0);
    hf_close(c);
    CHECK_NUM(t.calls, ==, 1);
    CHECK(t.rc == 0 || t.rc == HF_ECLOSED);
    hf_op_free(op);
    CHECK(hf_lease_mode(l) == HF_WRITE && hf_lease_ticket(l) && hf_lease_ttl_ms(l) > 0);
    CHECK_STR(hf_lease_name_at(l, 0), nm("n"));
    CHECK_RC(hf_note_start(l, "late", on_done, &t, &op, E()), HF_ECLOSED);
    CHECK_RC(hf_lease_wait(l, 0, E()), HF_ECLOSED);
    CHECK_RC(hf_release(l, E()), HF_ECLOSED);
}

/* A look can be cancelled; what changes something goes on to its end. */
static void cancelled(void)
{
    hf_client *c = opened();
    hf_lease *l = taken(c, nm("n"), NULL);
    struct told look = { 0 }, note = { 0 };
    hf_op *ops[2];

    CHECK_RC(hf_look_start(c, nm("n"), on_seen, &look, &ops[0], E()), 0);
    hf_op_cancel(ops[0]);
    CHECK_RC(hf_note_start(l, "another", on_done, &note, &ops[1], E()), 0);
    hf_op_cancel(ops[1]);
    AWAIT((turned(c), look.calls == 1 && note.calls == 1));
    CHECK(look.rc == 0 || look.rc == HF_ECANCELED);
    CHECK_RC(note.rc, 0);
    hf_op_free(ops[0]);
    hf_op_free(ops[1]);
    given(l);
    closed(c);
}

struct nested {
    hf_client *client;
    struct told told[KINDS + 1];
    hf_op *ops[KINDS + 1];
    hf_lease *lease;
    atomic_bool begun;
};

static void start_more(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct nested *k = user;

    (void)err;
    CHECK_RC(rc, 0);
    hf_op_free(op);
    k->lease = lease;
    CHECK_RC(hf_name_state(k->client, nm("n"), E()), HF_EREENTRANT);
    CHECK_RC(hf_lease_wait(lease, 0, E()), HF_EREENTRANT);
    for (int n = 0; asked(k->client, n, &k->told[n], &k->ops[n]); n++)
        CHECK_NUM(k->told[n].calls, ==, 0);
    CHECK_RC(hf_note_start(lease, "inside", on_done, &k->told[KINDS], &k->ops[KINDS], E()),
             0);
    atomic_store(&k->begun, true);
}

static void started_in_a_callback(void)
{
    struct nested k = { .client = opened() };
    hf_op *op;
    struct seen s;

    CHECK_RC(hf_acquire_start(k.client, nm("n"), LIMIT_MS, NULL, start_more, &k, &op, E()),
             0);
    AWAIT((turned(k.client), k.begun));
    for (int n = 0; n <= KINDS; n++) {
        AWAIT((turned(k.client), k.told[n].calls == 1));
        CHECK_RC(k.told[n].rc, n == 1 ? HF_TAKEN : n == 2 ? HF_ENOENT : 0);
        hf_op_free(k.ops[n]);
    }
    CHECK(see(k.client, nm("n"), 0, &s));
    CHECK_STR(s.note, "inside");
    given(k.lease);
    closed(k.client);
}

/* One at a time on one hold. A store that answers inside the call has done the first by
 * then. */
static void two_changes(void)
{
    hf_client *c = undriven();
    hf_lease *l = NULL;
    struct told first = { 0 }, second = { 0 };
    hf_op *ops[2] = { NULL, NULL };
    int rc;

    CHECK_RC(hf_acquire(c, nm("n"), LIMIT_MS, NULL, &l, E()), 0);
    CHECK_RC(hf_note_start(l, "first", on_done, &first, &ops[0], E()), 0);
    rc = hf_note_start(l, "second", on_done, &second, &ops[1], E());
    if (rc < 0) {
        CHECK_RC(rc, HF_EBUSY);
        CHECK(strstr(last_error()->text, "another change"));
        CHECK(last_error()->retry && !ops[1]);
    }
    AWAIT((hf_client_process(c), first.calls == 1 && second.calls == (rc == 0)));
    CHECK_RC(first.rc, 0);
    CHECK_RC(hf_lease_note(l, "third", E()), 0);
    hf_op_free(ops[0]);
    hf_op_free(ops[1]);
    CHECK_RC(hf_release(l, E()), 0);
    hf_close(c);
}

static void changed_then_released(void)
{
    hf_client *c = opened();
    struct told t = { 0 };
    hf_op *op;

    for (int i = 0; i < 10; i++) {
        hf_lease *l = taken(c, nm("n"), NULL);

        t.calls = 0;
        CHECK_RC(hf_note_start(l, "going", on_done, &t, &op, E()), 0);
        given(l);
        AWAIT((turned(c), t.calls == 1));
        CHECK(t.rc == 0 || t.rc == HF_ELOST);
        hf_op_free(op);
    }
    CHECK(line_is(c, nm("n"), 0, 0));
    closed(c);
}

static bool note_is(hf_client *c, const char *name, const char *note)
{
    struct seen s;

    return see(c, name, 0, &s) && strcmp(s.note, note) == 0;
}

/* What fails for one name is done for the others. */
static void several_names_changed(void)
{
    const char *const names[] = { nm("a"), nm("b"), nm("c") };
    hf_client *c = prompted(), *other = opened();
    hf_lease *l = NULL;
    struct seen s;

    CHECK_RC(rig.face->acquire_all(c, names, 3, LIMIT_MS, NULL, &l, E()), 0);
    CHECK_RC(rig.face->note(l, "all", E()), 0);
    CHECK(note_is(other, names[0], "all") && note_is(other, names[1], "all"));
    CHECK(note_is(other, names[2], "all"));
    CHECK_RC(rig.face->renew(l, 0, E()), 0);
    CHECK(see(other, names[1], 0, &s));
    CHECK_RC(rig.face->evict(other, names[1], s.id, HF_EVICT_NOW, E()), 0);
    AWAIT(hf_lease_state(l) == HF_LOST);
    CHECK_RC(rig.face->note(l, "two", E()), HF_ELOST);
    CHECK(strstr(last_error()->text, names[1]));
    CHECK(note_is(other, names[0], "two") && note_is(other, names[2], "two"));
    CHECK(line_is(other, names[1], 0, 0));
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(c);
    closed(other);
}

const struct test_case started_cases[] = {
    { "freed-early", freed_early, ON_ALL, HF_CAP_LINE | HF_CAP_SHARED, 0 },
    { "closed-over", closed_over, ON_ALL, HF_CAP_LINE, 0 },
    { "changed-and-closed", changed_and_closed, ON_ALL, HF_CAP_LINE, 0 },
    { "cancelled-look", cancelled, ON_ALL, HF_CAP_LINE, 0 },
    { "started-in-a-callback", started_in_a_callback, ON_ALL, HF_CAP_LINE, 0 },
    { "two-changes", two_changes, ON_ALL, HF_CAP_LINE, 0 },
    { "changed-then-released", changed_then_released, ON_ALL, HF_CAP_LINE, 0 },
    { "several-names-changed", several_names_changed, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { NULL, NULL, 0, 0, 0 },
};
