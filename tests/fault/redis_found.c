/* redis_found.c: defects of the driver that reading found, each in the situation that
 * showed it: somebody waits and is not told, what is written in the store is damaged, a
 * node of a cluster is lost. Waiting that must not end by the safety look has a ttl of
 * which a third is more than patience.
 */
#include "redis_fault.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- who waits and is not told --------------------------------------------------- */

/* The holder leaves and the store keeps the place for a while: who waits for a long time
 * comes when that is over, and need not wait for its own next look (G4). */
static void kept_place_ends(void)
{
    enum { KEEP_MS = 1000 };
    hf_client *a, *b;
    hf_lease *l;
    struct pend *p;
    int64_t start;

    use_plain_server();
    a = opened();
    b = prompted();
    l = taken(a, nm("n"), ENDLESS);
    p = queued(b, nm("n"), 1, ENDLESS);
    AWAIT(redis_text(&server, "PUBSUB CHANNELS")[0]);
    start = now_ms();
    CHECK_RC(hf_release_after(l, KEEP_MS, E()), 0);
    l = pend_granted(p);
    CHECK_NUM(now_ms() - start, >=, KEEP_MS);
    given(l);
    closed(a);
    closed(b);
    done();
}

/* The next is admitted, has a short ttl, and dies. Whoever is first in the queue now must
 * know that, though it looks seldom (G4, G5). */
static void short_hold_before_long_wait(void)
{
    struct kid kid;
    hf_client *a, *c;
    hf_lease *l;
    struct pend *p;

    use_plain_server();
    kid = kid_new();
    a = opened();
    c = prompted();
    l = taken(a, nm("n"), ENDLESS);
    kid_begin(&kid, 0, nm("n"), HF_FOREVER, HF_REQUEST(.ttl_ms = SHORT_MS));
    await_line(a, nm("n"), 1, 1);
    p = queued(c, nm("n"), 2, ENDLESS);
    AWAIT(strchr(redis_text(&server, "PUBSUB CHANNELS"), ' ')); /* both listen */
    given(l);
    AWAIT(kid_answered(&kid));
    CHECK_RC(kid_answer(&kid).rc, 0);
    kid_kill(&kid);
    given(pend_granted(p));
    closed(a);
    closed(c);
    done();
}

struct shortening {
    int held[2], go[2]; /* pipes */
};

/* Holds, makes the hold shorter when it is told to, and dies. */
static void make_shorter(void *arg)
{
    struct shortening *s = arg;
    hf_client *c = opened();
    hf_lease *l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = ENDLESS_MS, .flags = HF_NO_RENEW));
    char byte = 'h';

    CHECK_NUM(write(s->held[1], &byte, 1), ==, 1);
    CHECK_NUM(read(s->go[0], &byte, 1), ==, 1);
    CHECK_RC(rig.face->renew(l, SHORT_MS, E()), 0);
    _exit(0);
}

/* Until nothing more is asked: who waits has looked after it began to listen. */
static void await_quiet(void)
{
    int64_t before;

    AWAIT(strchr(redis_text(&server, "PUBSUB CHANNELS"), '@'));
    do {
        before = redis_calls(&server, "evalsha");
        STAYS(true, 1000);
    } while (redis_calls(&server, "evalsha") != before);
}

/* A hold is made shorter by its owner, and ends then. Who is first in the queue must know
 * it, though it looks seldom (G5). */
static void hold_made_shorter(void)
{
    struct shortening s;
    hf_client *c;
    struct pend *p;
    pid_t pid;
    char byte;

    use_plain_server();
    CHECK(pipe(s.held) == 0 && pipe(s.go) == 0);
    pid = proc_start(make_shorter, &s);
    CHECK_NUM(read(s.held[0], &byte, 1), ==, 1);
    c = prompted();
    p = queued(c, nm("n"), 1, ENDLESS);
    await_quiet();
    CHECK_NUM(write(s.go[1], "g", 1), ==, 1);
    proc_end(pid);
    given(pend_granted(p));
    closed(c);
    done();
}

/* One goes in before others who wait, with a short ttl, and dies: the first of them must
 * know, because it may be all that is in its way in the end (G5). */
static void short_hold_barges(void)
{
    struct kid kid;
    hf_client *a, *c;
    hf_lease *one;
    struct pend *p;

    use_plain_server();
    kid = kid_new();
    a = opened();
    c = prompted();
    one = taken(
        a, nm("n"),
        HF_REQUEST(.ttl_ms = ENDLESS_MS, .mode = HF_PERMITS, .permits = 1, .capacity = 2));
    p = queued(
        c, nm("n"), 1,
        HF_REQUEST(.ttl_ms = ENDLESS_MS, .mode = HF_PERMITS, .permits = 2, .capacity = 2));
    await_quiet();
    CHECK_RC(kid_acquire(&kid, 0, nm("n"), 0,
                         HF_REQUEST(.ttl_ms = SHORT_MS, .mode = HF_PERMITS, .permits = 1,
                                    .capacity = 2, .flags = HF_BARGE),
                         NULL),
             0);
    kid_kill(&kid);
    given(one);
    given(pend_granted(p));
    closed(a);
    closed(c);
    done();
}

/* A writer waits for readers and dies. It is not in the way of other readers when its time
 * is over, though nobody but them comes by (G4, G5). */
static void reader_behind_dead_writer(void)
{
    const hf_request *reads = HF_REQUEST(.ttl_ms = ENDLESS_MS, .mode = HF_READ);
    struct kid kid;
    hf_client *a;
    hf_lease *l;

    use_plain_server();
    kid = kid_new();
    a = opened();
    l = taken(a, nm("n"), reads);
    kid_begin(&kid, 0, nm("n"), HF_FOREVER, HF_REQUEST(.ttl_ms = SHORT_MS));
    await_line(a, nm("n"), 1, 1);
    CHECK_RC(tried(a, nm("n"), reads), HF_EBUSY);
    kid_kill(&kid);
    AWAIT(tried(a, nm("n"), reads) == 0);
    given(l);
    closed(a);
    done();
}

/* More waiters of one client than a look names, and the last of them is evicted while no
 * message comes through and the server has no memory left. It is found, and then the
 * looking ends. */
static void looking_ends(void)
{
    enum { WAITERS = 9 };
    struct pend *p[WAITERS];
    hf_client *a, *b;
    hf_lease *l;
    struct seen s;
    int64_t before;

    use_proxied_server("");
    a = connected_by_proxy("", LIMIT_MS);
    b = opened_directly();
    l = taken(b, nm("n"), ENDLESS);
    for (size_t i = 0; i < WAITERS; i++) {
        p[i] = begun(a, nm("n"), HF_FOREVER, ENDLESS);
        await_line(b, nm("n"), 1, i + 1);
    }
    AWAIT(redis_text(&server, "PUBSUB CHANNELS")[0]);
    proxy_refuse(proxy, true);
    redis_do(&server, "CLIENT KILL TYPE pubsub");
    redis_do(&server, "CONFIG SET maxmemory 1");
    CHECK(see(b, nm("n"), WAITERS, &s) && s.position == WAITERS);
    CHECK_RC(hf_evict(b, nm("n"), s.id, HF_EVICT_NOW, E()), 0);
    proxy_refuse(proxy, false);
    CHECK_RC(pend_end(p[WAITERS - 1], NULL), HF_EEVICTED);
    before = redis_calls(&server, "evalsha");
    STAYS(!pend_done(p[0]), 500);
    CHECK_NUM(redis_calls(&server, "evalsha") - before, <, 20);
    redis_do(&server, "CONFIG SET maxmemory 0");
    given(l);
    for (size_t i = 0; i + 1 < WAITERS; i++)
        given(pend_granted(p[i]));
    closed(a);
    closed(b);
    done();
}

/* A user without rights to channels: nobody can be told, but what was written is complete,
 * the release says so, and who waits finds it by looking. */
static void no_right_to_publish(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = SHORT_MS);
    hf_client *a, *b;
    hf_lease *l;
    struct pend *p;

    use_plain_server();
    redis_do(&server, "ACL SETUSER u on >p ~* resetchannels +@all");
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://u:p@127.0.0.1:%d",
             server.port);
    a = prompted();
    b = prompted();
    l = taken(a, nm("n"), req);
    p = queued(b, nm("n"), 1, req);
    given(l);
    given(pend_granted(p));
    AWAIT(line_is(a, nm("n"), 0, 0));
    closed(a);
    closed(b);
    done();
}

/* ---- what is written in the store ------------------------------------------------ */

/* The hints of every waiter of the line become 256 bytes without an end. */
static const char endless_hints[] =
    "local z = string.char(0)"
    " local record = string.char(1) .. z:rep(7) .. string.char(5) .. z:rep(7) .."
    " string.char(9) .. z:rep(8) .. z .. z .. z .. string.char(1, 0) .. string.rep('h', "
    "256)"
    " local all, n = redis.call('HGETALL', KEYS[1]), 0"
    " for i = 1, #all, 2 do if #all[i] == 16 then n = n + 1"
    " redis.call('HSET', KEYS[1], all[i], all[i + 1]:sub(1, 48) .. record) end end"
    " return n";

/* Who looks for a deadlock reads the hints of others. What is not of the form is not read
 * beyond its end, and is told as damaged. */
static void hints_without_end(void)
{
    hf_client *a, *b, *c;
    hf_lease *l, *held, *none = NULL;
    hf_list *list = NULL;
    struct pend *p;

    use_plain_server();
    a = prompted();
    b = opened();
    c = prompted();
    l = taken(b, nm("n"), HF_REQUEST(.ttl_ms = ENDLESS_MS, .owner = 9));
    held = taken(a, nm("held"), HF_REQUEST(.owner = 7));
    p = queued(c, nm("n"), 1, ENDLESS);
    CHECK_NUM(
        redis_number(&server, "EVAL %s 1 %s", endless_hints, key_of(&server, "w", nm("n"))),
        ==, 1);
    CHECK_RC(hf_look(b, nm("n"), &list, E()), HF_EDAMAGED);
    CHECK(rig.face->acquire(a, nm("n"), 4 * SILENCE_MS, HF_REQUEST(.owner = 7), &none,
                            E()) < 0);
    given(held);
    given(l);
    given(pend_granted(p));
    closed(a);
    closed(b);
    closed(c);
    done();
}

/* ---- cluster --------------------------------------------------------------------- */

/* Takes n names whose lines are on this server. */
static void taken_on(struct server *s, hf_client *c, const char *names[],
                     hf_lease *leases[], size_t n)
{
    char suffix[16];

    for (int i = 0; n > 0; i++) {
        const char *name;
        hf_lease *l;

        snprintf(suffix, sizeof(suffix), "%d", i);
        name = nm(suffix);
        l = taken(c, name, ENDLESS);
        if (key_of(s, "l", name)[0]) {
            n--;
            names[n] = name;
            leases[n] = l;
        } else {
            given(l);
        }
    }
}

static size_t clients_of(struct server *s)
{
    size_t n = 0;

    for (const char *at = redis_text(s, "CLIENT LIST");
         (at = strstr(at, "name=holdfast")) != NULL; at++)
        n++;
    return n;
}

/* The node of the line dies, its replica takes over. Who waits listens there too (G4): it
 * has looked there when the lock is released, and its next look is far away. */
static void failover_then_release(void)
{
    struct redis_place *many;
    struct server *old, *owner;
    hf_client *a, *b;
    const char *name;
    hf_lease *l;
    struct pend *p;

    redis_cluster_start(rig.place, 2000);
    many = rig.place->own;
    a = prompted();
    b = prompted();
    old = redis_cluster_owner(many, 8000);
    taken_on(old, a, &name, &l, 1);
    p = queued(b, name, 1, ENDLESS);
    redis_replicated(many, old);
    server_kill(old);
    AWAIT((owner = redis_cluster_owner(many, 8000)) != old);
    AWAIT(clients_of(owner) >= 2 && redis_calls(owner, "evalsha") >= 2);
    STAYS(hf_lease_check(l) == 0 && !pend_done(p), SHORT_MS);
    given(l);
    given(pend_granted(p));
    closed(a);
    closed(b);
    redis_place_stop(rig.place);
}

static void *listed(void *client)
{
    hf_list *list = NULL;
    hf_error err;

    if (hf_ls(client, "", 0, &list, &err) == 0)
        hf_list_free(list);
    return NULL;
}

/* A list is made: the first node has told its names, the last has not; now the first dies.
 * Then its lines cannot be looked at, which is known at once, in the middle of asking. */
static void node_lost_in_a_list(void)
{
    enum { NAMES = 3 };
    struct redis_place *many;
    const char *names[NAMES];
    hf_lease *leases[NAMES];
    pthread_t thread;
    hf_client *a;

    redis_cluster_start(rig.place, (int)LIMIT_MS);
    many = rig.place->own;
    a = prompted();
    taken_on(&many->servers[0], a, names, leases, NAMES);
    server_freeze(&many->servers[2]);
    CHECK(pthread_create(&thread, NULL, listed, a) == 0);
    AWAIT(redis_calls(&many->servers[1], "scan") > 0);
    server_kill(&many->servers[0]);
    server_continue(&many->servers[2]);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < NAMES; i++)
        CHECK_RC(hf_lease_check(leases[i]), 0);
    closed(a);
    for (size_t i = 0; i < NAMES; i++)
        CHECK_RC(hf_release(leases[i], E()), HF_ECLOSED);
    redis_place_stop(rig.place);
}

/* Away for a while, and that ends later than the limit of the connection with which the
 * call began: who is known to stand in line waits on. */
static void outage_soon_after_joining(void)
{
    struct two t;
    int64_t began;

    use_plain_server();
    strcat(rig.place->url, "?connect_timeout=2s");
    began = now_ms();
    t = hold_and_wait(LIMIT_MS);
    server_kill(&server);
    STAYS(!pend_done(t.waits), 2500 - (now_ms() - began));
    redis_run(&server);
    two_go_on(&t);
    done();
}

/* Nobody calls anything while the lock is held: the way back to the store must not take
 * longer for that. */
static void connection_lost_while_idle(void)
{
    hf_client *c;
    hf_lease *l;

    use_proxied_server("");
    c = opened();
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 4000));
    proxy_drop(proxy);
    AWAIT(proxy_accepted(proxy) > 1);
    STAYS(hf_lease_check(l) == 0, 6000);
    given(l);
    closed(c);
    done();
}

const struct test_case redis_found_cases[] = {
    { "connection-lost-while-idle", connection_lost_while_idle, ON_BLOCKING, 0, 0 },
    { "outage-soon-after-joining", outage_soon_after_joining, ON_ALL, 0, 0 },
    { "kept-place-ends", kept_place_ends, ON_ALL, 0, 0 },
    { "short-hold-before-long-wait", short_hold_before_long_wait, ON_ALL, 0, 0 },
    { "hold-made-shorter", hold_made_shorter, ON_ALL, 0, 0 },
    { "short-hold-barges", short_hold_barges, ON_ALL, 0, 0 },
    { "reader-behind-dead-writer", reader_behind_dead_writer, ON_ALL, 0, 0 },
    { "looking-ends", looking_ends, ON_ALL, 0, 0 },
    { "no-right-to-publish", no_right_to_publish, ON_ALL, 0, 0 },
    { "hints-without-end", hints_without_end, ON_ALL, 0, 0 },
    { "cluster-failover-then-release", failover_then_release, ON_ALL, 0, CASE_LONG },
    { "cluster-node-lost-in-a-list", node_lost_in_a_list, ON_ALL, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
