/* negative.c: what a store cannot do is refused with HF_ENOTSUP, and nothing changes:
 * never a silent downgrade. Runs in place of a case whose capability the setup does not
 * have.
 */
#include "api/cell.h"
#include "rig.h"

#include <string.h>

static void refused(hf_client *c, const hf_request *req)
{
    CHECK_RC(tried(c, nm("n"), req), HF_ENOTSUP);
    CHECK(last_error()->text[0]);
    CHECK_RC(tried(c, nm("n"), NULL), 0); /* nobody is in the way */
}

static void keep_refused(hf_client *c)
{
    hf_lease *l = taken(c, nm("n"), NULL);

    CHECK_RC(rig.face->release_after(l, 60000, E()), HF_ENOTSUP);
    CHECK_RC(hf_keep_renew(c, nm("n"), hf_lease_ticket(l), 60000, E()), HF_ENOTSUP);
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    CHECK_RC(tried(c, nm("n"), NULL), 0);
}

/* Waiters are not shown, and nothing is shown in their place; nothing is listed; a holder
 * can neither be marked nor change its note. */
static void line_hidden(hf_client *c)
{
    hf_client *other = opened();
    hf_lease *l = taken(c, nm("n"), HF_REQUEST(.note = "first"));
    struct pend *p = begun(other, nm("n"), HF_FOREVER, NULL);
    hf_list *list = NULL;
    struct seen s;

    STAYS(line_is(c, nm("n"), 1, 0), 300);
    if (rig.face->async)
        CHECK_RC(hf_op_position(p->op, NULL, NULL), HF_ENOTSUP);
    CHECK_RC(hf_keep_renew(c, nm("n"), hf_lease_ticket(l), 60000, E()), HF_ENOTSUP);
    CHECK_RC(rig.face->state(c, nm("n"), E()), HF_TAKEN);
    CHECK_RC(hf_ls(c, NULL, 0, &list, E()), HF_ENOTSUP);
    CHECK(!list && last_error()->text[0]);
    CHECK_RC(rig.face->note(l, "second", E()), HF_ENOTSUP);
    CHECK(see(other, nm("n"), 0, &s));
    CHECK_STR(s.note, "first");
    CHECK_RC(rig.face->evict(other, nm("n"), s.id, 0, E()), HF_ENOTSUP);
    CHECK(hf_lease_state(l) == HF_HELD && hf_lease_check(l) == 0);
    given(l);
    given(pend_granted(p));
    closed(other);
}

static void no_fence(hf_client *c)
{
    hf_lease *l = taken(c, nm("n"), NULL);

    CHECK_NUM(hf_lease_fence(l), ==, 0);
    given(l);
}

static void cell_refused(hf_client *c, int64_t ttl_ms)
{
    struct cell cell = { .verb = CELL_PUT, .name = nm("n"), .if_any = true };

    cell.name_len = strlen(cell.name);
    cell.ttl_ms = ttl_ms;
    CHECK_RC(hf__cell_call(c, &cell, E()), HF_ENOTSUP);
}

void negative_run(uint32_t missing)
{
    hf_client *c = opened();

    CHECK_RC(tried(c, nm("n"), NULL), 0);
    CHECK_NUM(hf_client_caps(c) & missing, ==, 0);
    if (missing & HF_CAP_SHARED)
        refused(c, HF_REQUEST(.mode = HF_READ));
    if (missing & HF_CAP_PERMITS)
        refused(c, HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = 2));
    if (missing & HF_CAP_BARGE)
        refused(c, HF_REQUEST(.flags = HF_BARGE));
    if (missing & HF_CAP_DEADLINE)
        refused(c, HF_REQUEST(.flags = HF_NEED_DEADLINE));
    if (missing & HF_CAP_TTL)
        refused(c, HF_REQUEST(.ttl_ms = 1000));
    if (missing & HF_CAP_KEEP)
        keep_refused(c);
    if (missing & HF_CAP_LINE)
        line_hidden(c);
    if (missing & HF_CAP_FENCE)
        no_fence(c);
    if (missing & HF_CAP_CELL)
        cell_refused(c, 0);
    if (missing & HF_CAP_CELL_EXPIRY)
        cell_refused(c, 1000);
    closed(c);
}
