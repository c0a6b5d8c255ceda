/* owner.c: who a hold belongs to. Reentrancy by owner, counted in the client (G9); what
 * may not be nested is refused at once; holds move between threads and owners.
 */
#include "rig.h"

#include <string.h>

struct ask {
    hf_client *client;
    const char *name;
    const hf_request *req;
    hf_lease *lease;
};

static void *try_in_thread(void *arg)
{
    struct ask *a = arg;

    CHECK_RC(tried(a->client, a->name, a->req), HF_EBUSY);
    return NULL;
}

static void *take_in_thread(void *arg)
{
    struct ask *a = arg;

    a->lease = taken(a->client, a->name, a->req);
    return NULL;
}

static void *give_in_thread(void *arg)
{
    given(arg);
    return NULL;
}

/* At once: one that was found by walking the line would take a second or more, each time;
 * one that was not takes less if the machine lets it. */
static void refused_at_once(hf_client *c, int64_t wait_ms, const hf_request *req,
                            int (*acquire)(hf_client *, const char *, int64_t,
                                           const hf_request *, hf_lease **, hf_error *))
{
    hf_lease *none = NULL;
    int64_t start;

    AWAIT((start = now_ms(),
           CHECK_RC(acquire(c, nm("n"), wait_ms, req, &none, E()), HF_EDEADLK),
           now_ms() - start < 900));
    CHECK(!none);
}

static void enters_twice(hf_client *c, const char *name, const hf_request *req)
{
    hf_client *other = opened();
    hf_lease *outer = taken(c, name, req), *inner = taken(c, name, req);

    CHECK(outer != inner);
    CHECK(hf_lease_fence(outer) == hf_lease_fence(inner));
    CHECK(line_is(c, name, 1, 0));
    CHECK_RC(tried(other, name, NULL), HF_EBUSY);
    CHECK_RC(tried(other, name, HF_REQUEST(.owner = req->owner)), HF_EBUSY);
    CHECK_RC(tried(c, name, HF_REQUEST(.owner = 99)), HF_EBUSY);
    given(outer);
    CHECK_RC(hf_lease_check(inner), 0);
    CHECK(line_is(c, name, 1, 0));
    CHECK_RC(tried(other, name, NULL), HF_EBUSY);
    CHECK_RC(tried(c, name, req), 0);
    given(inner);
    CHECK(line_is(c, name, 0, 0));
    CHECK_RC(tried(other, name, NULL), 0);
    closed(other);
}

static void reentrant_number(void)
{
    hf_client *c = opened();

    enters_twice(c, nm("n"), HF_REQUEST(.owner = 7));
    enters_twice(c, nm("n"), HF_REQUEST(.mode = HF_READ, .owner = 7));
    closed(c);
}

static void reentrant_thread(void)
{
    const hf_request *req = HF_REQUEST(.owner = HF_OWNER_THREAD);
    hf_client *c = opened();
    struct ask ask = { c, nm("n"), req, NULL };
    hf_lease *l;

    enters_twice(c, nm("n"), req);
    l = taken(c, nm("n"), req);
    in_thread(try_in_thread, &ask);
    given(l);
    /* a thread that ended takes its identity with it, whoever gets its number next */
    in_thread(take_in_thread, &ask);
    for (int i = 0; i < 5; i++)
        in_thread(try_in_thread, &ask);
    given(ask.lease);
    CHECK(line_is(c, nm("n"), 0, 0));
    closed(c);
}

static void read_in_write(void)
{
    const hf_request *read = HF_REQUEST(.mode = HF_READ, .owner = 7);
    hf_client *c = opened();
    hf_lease *w = taken(c, nm("n"), HF_REQUEST(.mode = HF_WRITE, .owner = 7)), *r;

    r = taken(c, nm("n"), read);
    CHECK(hf_lease_fence(r) == hf_lease_fence(w));
    given(w); /* the ticket leaves, unchanged, with its last handle */
    CHECK_RC(tried(c, nm("n"), HF_REQUEST(.mode = HF_READ, .owner = 8)), HF_EBUSY);
    given(r);
    CHECK(line_is(c, nm("n"), 0, 0));
    closed(c);
}

static void write_in_read_refused(void)
{
    const hf_request *write = HF_REQUEST(.mode = HF_WRITE, .owner = 7);
    hf_client *c = opened();
    hf_lease *r = taken(c, nm("n"), HF_REQUEST(.mode = HF_READ, .owner = 7));

    refused_at_once(c, HF_FOREVER, write, rig.face->acquire);
    refused_at_once(c, 0, write, rig.face->acquire);
    CHECK(strstr(last_error()->text, "first and downgrade")); /* what to do instead */
    CHECK_RC(hf_lease_check(r), 0);
    CHECK(line_is(c, nm("n"), 1, 0));
    CHECK_RC(tried(c, nm("n"), HF_REQUEST(.mode = HF_READ, .owner = 8)), 0);
    given(r);
    CHECK(line_is(c, nm("n"), 0, 0));
    closed(c);
}

static void permits_not_reentrant(void)
{
    const hf_request *one =
        HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = 2, .owner = 7);
    hf_client *c = opened();
    hf_lease *a = taken(c, nm("n"), one), *b = taken(c, nm("n"), one);

    CHECK(hf_lease_fence(a) != hf_lease_fence(b));
    CHECK(line_is(c, nm("n"), 2, 0));
    CHECK_RC(tried(c, nm("n"), one), HF_EBUSY);
    given(a);
    given(b);
    closed(c);
}

static void lost_not_reentered(void)
{
    const hf_request *req = HF_REQUEST(.owner = 7);
    hf_client *c = prompted(), *other = opened();
    hf_lease *old = taken(c, nm("n"), req), *new;
    struct seen s;

    CHECK(see(other, nm("n"), 0, &s));
    CHECK_RC(rig.face->evict(other, nm("n"), s.id, HF_EVICT_NOW, E()), 0);
    AWAIT(hf_lease_check(old) == HF_ELOST);
    new = taken(c, nm("n"), req);
    CHECK(hf_lease_fence(new) > hf_lease_fence(old));
    CHECK_RC(rig.face->release(old, E()), HF_ELOST);
    CHECK_RC(hf_lease_check(new), 0);
    CHECK(line_is(other, nm("n"), 1, 0));
    given(new);
    closed(c);
    closed(other);
}

static void relock_refused(void)
{
    hf_client *c = opened();
    struct ask ask = { c, nm("n"), NULL, NULL };
    hf_lease *l = taken(c, nm("n"), NULL), *none = NULL;

    refused_at_once(c, HF_FOREVER, NULL, hf_acquire);
    refused_at_once(c, 5000, NULL, hf_acquire);
    CHECK(line_is(c, nm("n"), 1, 0));
    in_thread(try_in_thread, &ask); /* another thread is told that it is busy */
    in_thread(give_in_thread, l);
    l = taken(c, nm("n"), NULL); /* released by somebody: no relock any more */
    given(l);
    in_thread(take_in_thread, &ask); /* acquired by another thread: an ordinary wait */
    CHECK_RC(hf_acquire(c, nm("n"), 100, NULL, &none, E()), HF_ETIMEDOUT);
    given(ask.lease);
    closed(c);
}

static void relock_waits(void)
{
    hf_client *c = opened();
    hf_lease *l = taken(c, nm("n"), NULL);
    struct pend *p = queued(c, nm("n"), 1, NULL);

    STAYS(!pend_done(p), 1500); /* longer than it takes until a walk begins */
    given(l);
    given(pend_granted(p));
    closed(c);
}

static void lease_used_elsewhere(void)
{
    hf_client *c = opened();
    struct ask ask = { c, nm("n"), HF_REQUEST(.owner = HF_OWNER_THREAD), NULL };

    in_thread(take_in_thread, &ask);
    CHECK_RC(hf_lease_check(ask.lease), 0);
    CHECK(hf_lease_state(ask.lease) == HF_HELD && hf_lease_remaining_ms(ask.lease) > 0);
    CHECK_RC(rig.face->note(ask.lease, "from elsewhere", E()),
             hf_client_caps(c) & HF_CAP_LINE ? 0 : HF_ENOTSUP);
    CHECK(hf_lease_fd(ask.lease, E()) >= 0);
    in_thread(give_in_thread, ask.lease);
    CHECK(line_is(c, nm("n"), 0, 0));
    closed(c);
}

static void adopted(void)
{
    const hf_request *mine = HF_REQUEST(.owner = HF_OWNER_THREAD),
                     *seven = HF_REQUEST(.owner = 7);
    hf_client *c = opened();
    struct ask ask = { c, nm("n"), mine, NULL };
    hf_lease *inner;

    in_thread(take_in_thread, &ask);
    CHECK_RC(tried(c, nm("n"), mine), HF_EBUSY);
    CHECK_RC(hf_lease_adopt(ask.lease, HF_OWNER_THREAD, E()), 0);
    inner = taken(c, nm("n"), mine);
    CHECK(hf_lease_fence(inner) == hf_lease_fence(ask.lease));
    in_thread(try_in_thread, &ask);
    given(inner);
    CHECK_RC(hf_lease_adopt(ask.lease, 7, E()), 0);
    CHECK_RC(tried(c, nm("n"), mine), HF_EBUSY);
    CHECK_RC(tried(c, nm("n"), seven), 0);
    CHECK(line_is(c, nm("n"), 1, 0));
    given(ask.lease);
    ask.lease = taken(c, nm("n"), NULL); /* one that belongs to nobody can be adopted too */
    CHECK_RC(hf_lease_adopt(ask.lease, 7, E()), 0);
    CHECK_RC(tried(c, nm("n"), seven), 0);
    given(ask.lease);
    closed(c);
}

/* Refused, and the hold and its handles are as they were. */
static void refused_inside(hf_client *c, const hf_request *inner, const char *why)
{
    const char *const names[] = { nm("a"), nm("n") };
    hf_lease *none = NULL;

    CHECK_RC(rig.face->acquire(c, nm("n"), LIMIT_MS, inner, &none, E()), HF_EINVAL);
    CHECK(!none && strstr(last_error()->text, nm("n")) && strstr(last_error()->text, why));
    CHECK_RC(rig.face->acquire_all(c, names, 2, LIMIT_MS, inner, &none, E()), HF_EINVAL);
    CHECK(!none);
    AWAIT(line_is(c, nm("a"), 0, 0));
    CHECK(line_is(c, nm("n"), 1, 0));
}

/* What an inner request may say: its ttl and its note do not count, and what cannot be had
 * by one of several handles is refused. */
static void inner_request(void)
{
    const hf_request *plain = HF_REQUEST(.owner = 7, .note = "outer"),
                     *by_hand = HF_REQUEST(.owner = 7, .flags = HF_NO_RENEW),
                     *short_held = HF_REQUEST(.owner = 7, .max_hold_ms = 60000);
    hf_client *c = opened();
    hf_lease *outer = taken(c, nm("n"), plain), *inner;
    int64_t ttl = hf_lease_ttl_ms(outer);
    struct seen s;

    inner = taken(c, nm("n"),
                  HF_REQUEST(.owner = 7, .note = "inner", .ttl_ms = ttl_of(2 * ttl)));
    CHECK_NUM(hf_lease_ttl_ms(inner), ==, ttl);
    CHECK(see(c, nm("n"), 0, &s));
    CHECK_STR(s.note, "outer");
    given(inner);
    refused_inside(c, short_held, "max_hold_ms");
    refused_inside(c, by_hand, "HF_NO_RENEW");
    CHECK_RC(hf_lease_check(outer), 0);
    given(outer);
    outer = taken(c, nm("n"), by_hand);
    refused_inside(c, plain, "HF_NO_RENEW");
    given(taken(c, nm("n"), by_hand));
    given(outer);
    outer = taken(c, nm("n"), short_held); /* its end is that of all handles */
    given(taken(c, nm("n"), plain));
    given(outer);
    closed(c);
}

static void adopted_by_one_handle_only(void)
{
    const hf_request *seven = HF_REQUEST(.owner = 7), *eight = HF_REQUEST(.owner = 8);
    const char *const names[] = { nm("a"), nm("n") };
    hf_client *c = opened();
    hf_lease *outer = taken(c, nm("n"), seven), *inner = taken(c, nm("n"), seven),
             *all = NULL;

    CHECK_RC(hf_lease_adopt(outer, 8, E()), HF_EBUSY);
    CHECK(strstr(last_error()->text, "several handles"));
    CHECK_RC(tried(c, nm("n"), eight), HF_EBUSY);
    CHECK_RC(tried(c, nm("n"), seven), 0);
    given(inner);
    CHECK_RC(rig.face->acquire_all(c, names, 2, LIMIT_MS, seven, &all, E()), 0);
    CHECK_RC(hf_lease_adopt(all, 8, E()), HF_EBUSY); /* neither of its names */
    CHECK_RC(tried(c, nm("a"), eight), HF_EBUSY);
    given(all);
    CHECK_RC(hf_lease_adopt(outer, 8, E()), 0);
    CHECK_RC(tried(c, nm("n"), eight), 0);
    given(outer);
    closed(c);
}

/* A client that acts for an owner elsewhere knows what that owner holds. */
static void acts_for_owner(void)
{
    char text[1200];
    hf_client *c = opened(), *agent;
    hf_lease *l = taken(c, nm("n"), HF_REQUEST(.owner = 7));
    int len = hf_lease_owner(l, text, sizeof(text));

    CHECK(len > 0 && (size_t)len == strlen(text) && (size_t)len < sizeof(text));
    CHECK(hf_lease_owner(l, NULL, 0) == len);
    agent = opened_with(HF_OPTIONS(.owner = text));
    refused_at_once(agent, HF_FOREVER, NULL, rig.face->acquire);
    CHECK_RC(tried(agent, nm("other"), NULL), 0);
    closed(agent);
    CHECK_RC(hf_lease_check(l), 0);
    CHECK(line_is(c, nm("n"), 1, 0));
    given(l);
    closed(c);
}

const struct test_case owner_cases[] = {
    { "reentrant-number", reentrant_number, ON_ALL, HF_CAP_SHARED, 0 },
    { "reentrant-thread", reentrant_thread, ON_ALL, 0, 0 },
    { "read-in-write", read_in_write, ON_ALL, HF_CAP_SHARED, 0 },
    { "write-in-read-refused", write_in_read_refused, ON_ALL, HF_CAP_SHARED, 0 },
    { "permits-not-reentrant", permits_not_reentrant, ON_ALL, HF_CAP_PERMITS, 0 },
    { "lost-not-reentered", lost_not_reentered, ON_ALL, HF_CAP_LINE, 0 },
    { "relock-refused", relock_refused, ON_BLOCKING, 0, 0 },
    { "relock-waits", relock_waits, ON_ASYNC, HF_CAP_LINE, 0 },
    { "lease-used-elsewhere", lease_used_elsewhere, ON_ALL, 0, 0 },
    { "adopted", adopted, ON_ALL, 0, 0 },
    { "inner-request", inner_request, ON_ALL, 0, 0 },
    { "adopted-by-one-handle-only", adopted_by_one_handle_only, ON_ALL, 0, 0 },
    { "acts-for-owner", acts_for_owner, ON_ALL, HF_CAP_LINE, 0 },
    { NULL, NULL, 0, 0, 0 },
};
