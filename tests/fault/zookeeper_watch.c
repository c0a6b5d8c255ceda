/* zookeeper_watch.c: what a client that was away is told when it is back: the end of
 * what it waits for, whether that came while it was away or later; and the mark of a
 * ticket that is to end.
 *
 * Sessions are so long that no safety look comes while a case runs: what is heard in
 * time is heard from a watch. */
#include "zookeeper_fault.h"

#include "proto/jute.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { SAFETY_MS = 50000 / 4 }; /* the least time until anybody looks unasked */

static const struct way {
    const char *name;
    hf_request holds, waits;
} ways[] = {
    { "exclusive", HF_REQUEST_INIT, HF_REQUEST_INIT },
    { "shared", HF_REQUEST_INIT, { .size = sizeof(hf_request), .mode = HF_READ } },
    { "permits",
      { .size = sizeof(hf_request), .mode = HF_PERMITS, .permits = 2, .capacity = 3 },
      { .size = sizeof(hf_request), .mode = HF_PERMITS, .permits = 3, .capacity = 3 } },
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

struct away {
    hf_client *holder, *waiter; /* the waiter is reached through the proxy */
    hf_lease *held[WAYS];
    struct pend *waits[WAYS];
};

static struct away all_wait(void)
{
    struct away w;

    use_one_by_proxy("ttl=50s");
    w.holder = opened_past();
    w.waiter = opened_at(rig.place->url);
    for (size_t i = 0; i < WAYS; i++) {
        w.held[i] = taken(w.holder, ways[i].name, &ways[i].holds);
        w.waits[i] = queued(w.waiter, ways[i].name, 1, &ways[i].waits);
    }
    return w;
}

static void all_granted(struct away *w, int64_t since)
{
    for (size_t i = 0; i < WAYS; i++) {
        hf_lease *l = pend_granted(w->waits[i]);

        CHECK_WITHIN(since, SAFETY_MS);
        given(l);
    }
    closed(w->holder);
    closed(w->waiter);
    done();
}

static void cut_off(void)
{
    proxy_refuse(proxy, true);
    proxy_drop(proxy);
    AWAIT(proxy_open(proxy) == 0);
}

/* It has gone while nobody could tell. */
static void watch_missed(void)
{
    struct away w = all_wait();
    int64_t since;

    cut_off();
    for (size_t i = 0; i < WAYS; i++)
        given(w.held[i]);
    for (size_t i = 0; i < WAYS; i++)
        CHECK(!pend_done(w.waits[i]));
    since = now_ms();
    proxy_refuse(proxy, false);
    all_granted(&w, since);
}

/* The watches of the old connection are gone; those of the new one tell. */
static void watch_set_again(void)
{
    struct away w = all_wait();
    size_t passed = proxy_passed(proxy, PROXY_DOWN);
    int64_t since;

    proxy_drop(proxy);
    AWAIT(proxy_passed(proxy, PROXY_DOWN) > passed);
    for (size_t i = 0; i < WAYS; i++)
        AWAIT(line_is(w.waiter, ways[i].name, 1, 1)); /* it is back */
    since = now_ms();
    for (size_t i = 0; i < WAYS; i++)
        given(w.held[i]);
    all_granted(&w, since);
}

/* ---- of a line that somebody deletes ---------------------------------------------- */

enum { HOLDERS = 70 }; /* so many that the line is watched, not each of them */
#define OTHERS "_c_0123456789abcdef" /* begins the names of tickets that are not ours */

static void delete_one(struct hand *h, const char *whose)
{
    const char *ticket = strstr(hand_children(h, "/fault/n"), whose);
    char path[1024];

    CHECK(ticket);
    snprintf(path, sizeof(path), "/fault/n/%.*s", (int)strcspn(ticket, "\n"), ticket);
    CHECK_NUM(hand_delete(h, path), ==, 0);
}

/* One of ours holds; now it is full, and one more waits. */
static struct pend *waits_behind_many(struct hand *h, hf_client *c, const hf_request *one)
{
    static const char ticket[] = "/fault/n/" OTHERS "0123456789abcdef-permits.1.70-lock-";
    struct pend *p;

    for (int i = 1; i < HOLDERS; i++)
        CHECK_NUM(hand_create(h, ticket, JUTE_EPHEMERAL_SEQUENTIAL), ==, 0);
    p = begun(c, "n", LIMIT_MS, one);
    AWAIT(count_lines(hand_children(h, "/fault/n")) > HOLDERS);
    CHECK(line_is(c, "n", HOLDERS, 1)); /* what it asked before is answered */
    return p;
}

/* The line is gone when it is listed and to be watched again: no watch is set then. The
 * next ticket makes the line anew, and who waits behind many there is told in time. */
static void line_deleted(void)
{
    const hf_request *one =
        HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = HOLDERS);
    struct pend *waits, *joins;
    hf_lease *held;
    int64_t since;
    hf_client *c;
    struct hand h;
    size_t kept;

    use_one_by_proxy("ttl=50s");
    h = hand_open(servers->servers[0].port, 60000);
    c = opened_at(rig.place->url);
    held = taken(c, "n", one);
    waits = waits_behind_many(&h, c, one);
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_UP);
    delete_one(&h, OTHERS);
    AWAIT(proxy_kept(proxy, PROXY_UP) > 0); /* it is told, and lists */
    kept = proxy_kept(proxy, PROXY_UP);
    joins = begun(c, "n", LIMIT_MS, one);
    AWAIT(proxy_kept(proxy, PROXY_UP) > kept);
    while (*hand_children(&h, "/fault/n"))
        delete_one(&h, "_c_");
    CHECK_NUM(hand_delete(&h, "/fault/n"), ==, 0);
    proxy_freeze(proxy, PROXY_PRESENT, 0);
    CHECK_RC(pend_end(waits, NULL), HF_EEVICTED);
    CHECK_RC(hf_release(held, E()), HF_ELOST);
    held = pend_granted(joins);
    waits = waits_behind_many(&h, c, one);
    since = now_ms();
    delete_one(&h, OTHERS);
    AWAIT(pend_done(waits));
    CHECK_WITHIN(since, SAFETY_MS);
    given(pend_granted(waits));
    given(held);
    hand_close(&h);
    closed(c);
    done();
}

/* ---- the mark -------------------------------------------------------------------- */

static void mark(hf_client *by, const char *name)
{
    struct seen s;

    CHECK(see(by, name, 0, &s) && !s.broken);
    CHECK_RC(hf_evict(by, name, s.id, 0, E()), 0);
    CHECK(see(by, name, 0, &s) && s.broken);
    CHECK_RC(hf_evict(by, name, s.id, 0, E()), 0); /* once more is not more */
}

/* At risk at once, and never again held; lost at the deadline that it had. */
static void ends_by_its_mark(struct two *t)
{
    int64_t held_until;

    AWAIT(told.risk == 1);
    held_until = now_ms() + hf_lease_remaining_ms(t->held);
    CHECK_NUM(hf_lease_state(t->held), ==, HF_AT_RISK);
    CHECK_RC(hf_lease_check(t->held), 0);
    CHECK(!pend_done(t->waits));
    AWAIT(told.lost == 1);
    CHECK_NUM(told.held, ==, 0);
    CHECK_NUM(told.lost_ms, >=, held_until - 2); /* both are rounded */
}

/* What else the session holds is not touched by it. */
static void marked(void)
{
    struct two t;
    hf_lease *other;

    use_one("ttl=6s");
    t = hold_and_wait();
    other = taken(t.a, "other", NULL);
    mark(t.b, "n");
    ends_by_its_mark(&t);
    CHECK_RC(hf_lease_check(other), 0);
    given(other);
    two_lost(&t);
    done();
}

/* The mark is written while the holder cannot be told. */
static void marked_while_away(void)
{
    struct two t;

    use_one_by_proxy("ttl=12s");
    t = hold_and_wait();
    cut_off();
    AWAIT(told.risk == 1); /* for want of a connection */
    mark(t.b, "n");
    proxy_refuse(proxy, false);
    ends_by_its_mark(&t);
    two_lost(&t);
    done();
}

/* Another program's ticket has nobody who would heed it. */
static void mark_of_another(void)
{
    hf_client *c;
    struct hand h;
    struct seen s;

    use_one("");
    h = hand_open(servers->servers[0].port, 10000);
    c = opened_directly(0);
    given(taken(c, "n", NULL));
    CHECK_NUM(hand_create(&h, "/fault/n/_c_0123456789abcdef0123456789abcdef-lock-",
                          JUTE_EPHEMERAL_SEQUENTIAL),
              ==, 0);
    CHECK(see(c, "n", 0, &s));
    CHECK_RC(hf_evict(c, "n", s.id, 0, E()), HF_ENOTSUP);
    CHECK(line_is(c, "n", 1, 0));
    CHECK_RC(hf_evict(c, "n", s.id, HF_EVICT_NOW, E()), 0);
    CHECK(line_is(c, "n", 0, 0));
    hand_close(&h);
    closed(c);
    done();
}

static void on_seen(hf_op *op, int rc, const hf_list *list, const hf_error *err, void *user)
{
    const hf_line *line = hf_list_at(list, 0);

    (void)op;
    (void)err;
    CHECK_RC(rc, 0);
    atomic_store((atomic_int *)user, line ? (int)hf_line_holders(line) : 0);
}

/* What changes while the watcher cannot be told is seen when it is connected again. */
static void watched_while_away(void)
{
    atomic_int holders = -1;
    hf_client *a, *b;
    hf_op *op = NULL;
    hf_lease *l;

    use_one_by_proxy("ttl=12s");
    a = opened();
    b = opened_directly(0);
    CHECK_RC(hf_watch_start(a, "n", on_seen, &holders, &op, E()), 0);
    AWAIT(holders == 0);
    for (int i = 0; i < 2; i++) {
        proxy_refuse(proxy, true);
        proxy_drop(proxy);
        AWAIT(proxy_open(proxy) == 0);
        l = taken(b, "n", NULL);
        STAYS(holders == 0, 100);
        proxy_refuse(proxy, false);
        AWAIT(holders == 1);
        given(l);
        AWAIT(holders == 0); /* and changes are told again */
    }
    hf_op_free(op);
    closed(a);
    closed(b);
    done();
}

const struct test_case zookeeper_watch_cases[] = {
    { "watch-missed", watch_missed, ON_ALL, 0, 0 },
    { "watch-set-again", watch_set_again, ON_ALL, 0, 0 },
    { "line-deleted", line_deleted, ON_ALL, 0, 0 },
    { "marked", marked, ON_ALL, 0, 0 },
    { "marked-while-away", marked_while_away, ON_ALL, 0, 0 },
    { "mark-of-another", mark_of_another, ON_ALL, 0, 0 },
    { "watched-while-away", watched_while_away, ON_ASYNC, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
