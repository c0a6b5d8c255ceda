/* etcd_keys.c: what others do to our keys and leases: deleted and revoked by hand,
 * compacted away, a full database, changed rights; other programs that lock; and leases
 * that are too many. */
#include "api/cell.h"
#include "etcd_fault.h"

#include <holdfast/tool.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void holder_key_deleted(void)
{
    struct two t;
    char key[256];

    use_members(1, "");
    t = hold_and_wait();
    ctl("del %s", key_of(t.a, 0, key));
    two_ended(&t);
    done();
}

/* By the event itself: nothing that the holder asks now is answered. */
static void holder_told_by_event(void)
{
    struct two t;
    char key[256];
    int64_t since;

    use_members(1, "");
    t = hold_and_wait();
    STAYS(hf_lease_check(t.held) == 0, 300); /* its key is watched now */
    key_of(t.a, 0, key);
    proxy_freeze(fronts[0], PROXY_PRESENT | PROXY_FUTURE, PROXY_UP);
    since = now_ms();
    ctl("del %s", key);
    AWAIT(hf_lease_check(t.held) == HF_ELOST);
    CHECK_WITHIN(since, TTL_MS / 2);
    proxy_freeze(fronts[0], PROXY_PRESENT | PROXY_FUTURE, 0);
    two_ended(&t);
    done();
}

/* The one that waited behind it gets on, and not before the holder has gone. */
static void waiter_key_deleted(void)
{
    struct two t;
    struct pend *middle;
    hf_lease *none = NULL;
    char key[256];

    use_members(1, "");
    t = hold_and_wait();
    middle = t.waits;
    t.waits = queued(t.b, "n", 2, NULL);
    ctl("del %s", key_of(t.a, 1, key));
    CHECK_RC(pend_end(middle, &none), HF_EEVICTED);
    STAYS(!pend_done(t.waits), 200);
    two_go_on(&t);
    done();
}

/* Deleted before the holder's, and both are heard of at once: what has ended is not granted
 * by the end of the other one. */
static void waiter_deleted_unheard(void)
{
    hf_client *c, *past;
    struct pend *middle, *last;
    hf_lease *held, *none = NULL;
    char key[256];

    use_members(1, "");
    c = prompted();
    past = opened_past();
    held = taken(past, "n", NULL);
    middle = queued(c, "n", 1, NULL);
    last = queued(past, "n", 2, NULL);
    STAYS(!pend_done(middle), 300); /* all that it watches is watched */
    key_of(past, 1, key);
    proxy_freeze(fronts[0], PROXY_PRESENT | PROXY_FUTURE, PROXY_DOWN);
    ctl("del %s", key);
    given(held);
    held = pend_granted(last);
    proxy_freeze(fronts[0], PROXY_PRESENT | PROXY_FUTURE, 0);
    CHECK_RC(pend_end(middle, &none), HF_EEVICTED);
    CHECK_RC(hf_lease_check(held), 0);
    given(held);
    closed(c);
    closed(past);
    done();
}

/* Tickets one after the other have the same key; tickets at the same time never. One that
 * is taken, here by a key that nobody of ours has made, is not waited for. */
static void names_used_again(void)
{
    hf_client *c;
    struct pend *p;
    hf_lease *l;
    char first[256], key[256];

    use_members(1, "");
    c = prompted();
    l = taken(c, "n", NULL);
    key_of(c, 0, first);
    p = queued(c, "n", 1, NULL);
    CHECK(strcmp(key_of(c, 1, key), first) != 0);
    given(l);
    given(pend_granted(p));
    given(taken(c, "n", NULL));
    l = taken(c, "n", NULL);
    CHECK_STR(key_of(c, 0, key), first);
    given(l);
    ctl("put %s x", first);
    p = queued(c, "n", 1, NULL);
    STAYS(!pend_done(p), 200);
    ctl("del %s", first);
    given(pend_granted(p));
    closed(c);
    done();
}

/* It is told by the event alone, and has no other ticket in that line. */
static void holder_kept(void)
{
    hf_client *c, *past;
    hf_lease *l;

    use_members(1, "");
    c = prompted();
    past = opened_past();
    l = taken(c, "n", NULL);
    STAYS(hf_lease_check(l) == 0, 300); /* its key is watched now */
    CHECK_RC(hf_keep_orphan(past, "n", hf_lease_ticket(l), LIMIT_MS, E()), 0);
    AWAIT(hf_lease_check(l) == HF_ELOST);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    CHECK(line_is(past, "n", 1, 0));
    given(taken(c, "m", NULL));
    closed(c);
    closed(past);
    done();
}

/* One that waits is made a kept one when it holds already and has not heard of that. Its
 * key hangs on a lease of its own then, which nobody renews: it is not held by it. If the
 * end of the holder before it is what it hears first, it is granted by that, and lost. */
static void waiter_kept(void)
{
    struct two t;
    struct pend *waits;
    struct seen s;

    use_members(1, "&connect_timeout=30s");
    t.a = opened_past();
    t.b = prompted();
    t.held = taken(t.a, "n", NULL);
    waits = begun(t.b, "n", 4 * LIMIT_MS, HF_REQUEST(.ttl_ms = 60000));
    AWAIT(line_is(t.a, "n", 1, 1));
    STAYS(!pend_done(waits), 300);
    proxy_freeze(fronts[0], PROXY_PRESENT, PROXY_DOWN);
    given(t.held);
    AWAIT(see(t.a, "n", 0, &s) && s.position == 0);
    CHECK_RC(hf_keep_orphan(t.a, "n", s.id, TTL_MS, E()), 0);
    STAYS(!pend_done(waits), 300);
    proxy_freeze(fronts[0], PROXY_PRESENT, 0);
    t.held = pend_granted(waits);
    if (hf_lease_fence(t.held) == s.fence) {
        AWAIT(hf_lease_check(t.held) == HF_ELOST);
        CHECK(line_is(t.a, "n", 1, 0)); /* it is still kept */
        CHECK_RC(rig.face->release(t.held, E()), HF_ELOST);
        t.held = taken(t.b, "n", HF_REQUEST(.ttl_ms = 60000));
    }
    CHECK(hf_lease_fence(t.held) > s.fence);
    STAYS(hf_lease_check(t.held) == 0, TTL_MS * 3 / 2);
    given(t.held);
    closed(t.a);
    closed(t.b);
    done();
}

/* The same while its client is cut off: back again it reads the line, in which its ticket
 * stands first. */
static void waiter_kept_while_down(void)
{
    struct two t;
    struct pend *waits;
    struct seen s;

    use_members(1, "&connect_timeout=30s");
    t.a = opened_past();
    t.b = prompted();
    t.held = taken(t.a, "n", NULL);
    waits = begun(t.b, "n", 4 * LIMIT_MS, HF_REQUEST(.ttl_ms = 60000));
    AWAIT(line_is(t.a, "n", 1, 1));
    STAYS(!pend_done(waits), 300);
    proxy_refuse(fronts[0], true);
    proxy_drop(fronts[0]);
    given(t.held);
    AWAIT(see(t.a, "n", 0, &s) && s.position == 0);
    CHECK_RC(hf_keep_orphan(t.a, "n", s.id, TTL_MS, E()), 0);
    proxy_refuse(fronts[0], false);
    t.held = pend_granted(waits);
    CHECK(hf_lease_fence(t.held) > s.fence);
    given(t.held);
    closed(t.a);
    closed(t.b);
    done();
}

static void holder_lease_revoked(void)
{
    struct two t;
    char key[256];

    use_members(1, "");
    t = hold_and_wait();
    ctl("lease revoke %llx", lease_in(key_of(t.a, 0, key)));
    two_ended(&t);
    done();
}

/* It joins again, and never holds by the old ticket. */
static void waiter_lease_revoked(void)
{
    struct two t;
    char key[256], again[256];

    use_members(1, "");
    t = hold_and_wait();
    key_of(t.a, 1, key);
    ctl("lease revoke %llx", lease_in(key));
    AWAIT(line_is(t.a, "n", 1, 1));
    CHECK(strcmp(key_of(t.a, 1, again), key) != 0);
    two_go_on(&t);
    done();
}

/* A waiter in the middle that gives up is no grant for the one behind it. */
static void middle_cancels(void)
{
    struct two t;
    struct pend *middle;
    hf_client *c;
    hf_lease *none = NULL;

    use_members(1, "");
    t = hold_and_wait();
    middle = t.waits;
    c = opened_past();
    t.waits = queued(c, "n", 2, NULL);
    closed(t.b); /* its lease is revoked */
    CHECK(pend_end(middle, &none) < 0);
    t.b = c;
    STAYS(!pend_done(t.waits), 300);
    two_go_on(&t);
    done();
}

/* All that was before now. */
static void compact(void)
{
    const char *at = strstr(ctl("get other -w json"), "\"revision\":");
    long long revision;

    CHECK(at && sscanf(at, "\"revision\":%lld", &revision) == 1);
    ctl("compact %lld", revision);
}

static void compacted(void)
{
    struct two t;

    use_members(1, "");
    t = hold_and_wait();
    for (int i = 0; i < 20; i++)
        ctl("put other %d", i);
    compact();
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), 300);
    two_go_on(&t);
    done();
}

/* The server cannot get rid of what it has to tell the waiter, so that watch lags behind,
 * and is compacted away: the server ends it, and the waiter makes another one. */
static void compacted_past_watch(void)
{
    static const char slow[] = "etcd_debugging_mvcc_slow_watcher_total",
                      watch[] = "grpc_server_msg_received_total{grpc_method=\"Watch\"";
    char note[1001] = "";
    int64_t asked;
    struct two t;

    lease_s = 120; /* nothing is late meanwhile */
    use_members(1, "&connect_timeout=60s");
    t.a = opened_past();
    t.b = prompted();
    t.held = taken(t.a, "n", NULL);
    t.waits = begun(t.b, "n", 4 * LIMIT_MS, NULL);
    AWAIT(line_is(t.a, "n", 1, 1));
    STAYS(!pend_done(t.waits), 300); /* it watches now */
    proxy_freeze(fronts[0], PROXY_PRESENT, PROXY_DOWN);
    memset(note, 'x', sizeof(note) - 1);
    for (int i = 0; i < 8000 && etcd_number(members, 0, slow) == 0; i++)
        for (int k = 0; k < 50; k++)
            CHECK_RC(rig.face->note(t.held, note, E()), 0);
    CHECK_NUM(etcd_number(members, 0, slow), >, 0);
    asked = etcd_number(members, 0, watch);
    compact();
    proxy_freeze(fronts[0], PROXY_PRESENT, 0);
    AWAIT(etcd_number(members, 0, watch) > asked);
    two_go_on(&t);
    done();
}

/* A snapshot of before is restored under running clients: what it does not know is lost,
 * and everybody goes on with new leases. */
static void set_back(void)
{
    struct server *s;
    char command[1024];
    struct two t;

    use_members(1, "");
    s = &members->servers[0];
    ctl("snapshot save '%s/snap' >&2", s->dir);
    t = hold_and_wait();
    server_kill(s);
    snprintf(
        command, sizeof(command),
        "cd '%s' && rm -rf data && ETCDCTL_API=3 etcdctl snapshot restore snap --name m0 "
        "--data-dir data --initial-cluster m0=http://127.0.0.1:%d "
        "--initial-advertise-peer-urls http://127.0.0.1:%d >>log 2>&1",
        s->dir, s->port + 10000, s->port + 10000);
    CHECK_NUM(system(command), ==, 0);
    etcd_start_all(members);
    two_ended(&t);
    done();
}

static void fill_up(void)
{
    for (int i = 0; i < 40 && !strstr(ctl("alarm list"), "NOSPACE"); i++)
        ctl("put fill%d \"$(head -c 100000 /dev/zero | tr '\\0' x)\" 2>&1 || true", i);
    CHECK(strstr(ctl("alarm list"), "NOSPACE"));
}

/* What is held stays held and can be given; nothing new is made; it goes on afterwards. */
static void database_full(void)
{
    struct two t;
    hf_lease *none = NULL;

    setenv("ETCD_QUOTA_BACKEND_BYTES", "1000000", 1);
    use_members(1, "");
    t = hold_and_wait();
    fill_up();
    CHECK_RC(rig.face->acquire(t.a, "m", LIMIT_MS, NULL, &none, E()), HF_EFULL);
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), TTL_MS * 3 / 2);
    proxy_drop(fronts[0]); /* no proof can be written now */
    AWAIT(rig.face->acquire(t.a, "m", LIMIT_MS, NULL, &none, E()) == HF_EFULL);
    CHECK_RC(hf_lease_check(t.held), 0);
    CHECK_RC(rig.face->release(t.held, E()), 0);
    given(pend_granted(t.waits));
    ctl("del --prefix fill");
    ctl("defrag");
    ctl("alarm disarm");
    AWAIT(tried(t.a, "m", NULL) == 0);
    closed(t.a);
    closed(t.b);
    done();
}

/* Joins come when their callers have given up and the client is long on another connection,
 * of which no proof could be written (lease.c): the lease is alive, so such tickets would
 * stand in line for ever. Not each of them is carried out: their connection ends, too. */
static void create_late_and_full(void)
{
    enum { JOINS = 30 };
    struct pend *p[JOINS];
    hf_client *c, *past;
    hf_lease *other;
    hf_lease *none = NULL;

    lease_s = 60;
    setenv("ETCD_QUOTA_BACKEND_BYTES", "1000000", 1);
    use_members(1, "&connect_timeout=1s");
    c = prompted();
    past = opened_past();
    other = taken(c, "other", NULL); /* the lease is used, and renewed */
    proxy_freeze(fronts[0], PROXY_PRESENT | PROXY_FUTURE, PROXY_UP);
    for (int i = 0; i < JOINS; i++) {
        char name[8];

        snprintf(name, sizeof(name), "n%d", i);
        p[i] = begun(c, name, 500, NULL);
    }
    fill_up();
    for (int i = 0; i < JOINS; i++)
        CHECK(pend_end(p[i], &none) < 0);
    proxy_freeze(fronts[0], PROXY_FUTURE, 0);
    AWAIT(rig.face->acquire(c, "m", LIMIT_MS, NULL, &none, E()) == HF_EFULL);
    STAYS(hf_lease_check(other) == 0, 1500); /* it leaves */
    ctl("del --prefix fill");
    ctl("defrag");
    ctl("alarm disarm");
    STAYS(hf_lease_check(other) == 0, 1500);
    proxy_freeze(fronts[0], PROXY_PRESENT, 0); /* now it comes */
    STAYS(!strstr(ctl("get --prefix --keys-only fault/n"), "fault/n"), 500);
    CHECK_RC(hf_lease_check(other), 0);
    given(other);
    closed(c);
    closed(past);
    done();
}

/* Another program's ticket may have a name of any length: whoever waits behind it can be
 * broken all the same. */
static void broken_behind_long_key(void)
{
    struct pend *p;
    hf_lease *none = NULL;
    hf_client *c;
    struct seen s;

    use_members(1, "");
    c = prompted();
    ctl("put fault/n/$(head -c 100000 /dev/zero | tr '\\0' k) x");
    p = queued(c, "n", 1, NULL);
    CHECK(see(c, "n", 1, &s));
    CHECK_RC(rig.face->evict(c, "n", s.id, 0, E()), 0);
    CHECK_RC(pend_end(p, &none), HF_EEVICTED);
    CHECK(line_is(c, "n", 1, 0));
    closed(c);
    done();
}

/* ---- leases ---------------------------------------------------------------------- */

static void ninth_lease(void)
{
    hf_lease *l[8], *more = NULL;
    hf_client *c;

    use_members(1, "");
    c = opened();
    for (int i = 0; i < 8; i++) {
        char name[8];

        snprintf(name, sizeof(name), "n%d", i);
        l[i] = taken(c, name, HF_REQUEST(.ttl_ms = 10000 + i * 1000));
    }
    CHECK_RC(rig.face->acquire(c, "n", LIMIT_MS, HF_REQUEST(.ttl_ms = 20000), &more, E()),
             HF_ENOTSUP);
    CHECK(strstr(last_error()->text, "leases"));
    CHECK_RC(rig.face->renew(l[0], 20000, E()), HF_ENOTSUP);
    CHECK_RC(hf_lease_check(l[0]), 0);
    CHECK_NUM(hf_lease_ttl_ms(l[0]), ==, 10000);
    given(taken(c, "m", HF_REQUEST(.ttl_ms = 9500))); /* rounded up: one of the eight */
    given(l[7]);
    l[7] = taken(c, "n7", HF_REQUEST(.ttl_ms = 20000)); /* in the place of the other */
    CHECK_RC(rig.face->renew(l[0], 20000, E()), 0);
    CHECK_NUM(hf_lease_ttl_ms(l[0]), ==, 20000);
    for (int i = 0; i < 8; i++)
        given(l[i]);
    closed(c);
    done();
}

/* A cell that expires has a lease of its own; one that is not written leaves none. */
static void cell_not_written(void)
{
    struct cell cell = {
        .verb = CELL_PUT, .name = "n", .name_len = 1, .if_version = 1, .ttl_ms = 600000
    };
    hf_client *c;

    use_directly("");
    c = opened();
    for (int i = 0; i < 5; i++)
        CHECK_RC(hf__cell_call(c, &cell, E()), HF_EBUSY);
    cell.if_version = 0;
    CHECK_RC(hf__cell_call(c, &cell, E()), 0);
    AWAIT(strstr(ctl("lease list"), "found 1 leases"));
    closed(c);
    done();
}

/* Nor does one for which the rights are missing, which is not known before. */
static void cell_refused(void)
{
    struct cell cell = {
        .verb = CELL_PUT, .name = "n", .name_len = 1, .if_any = true, .ttl_ms = 600000
    };
    hf_client *c;

    use_members(1, "");
    etcd_auth(members);
    snprintf(rig.place->url, sizeof(rig.place->url),
             "etcd://locker:s3cr%%40t@127.0.0.1:%d/others", proxy_port(fronts[0]));
    c = opened();
    CHECK_RC(hf__cell_call(c, &cell, E()), HF_EAUTH);
    cell.verb = CELL_ADD;
    CHECK_RC(hf__cell_call(c, &cell, E()), HF_EAUTH);
    AWAIT(strstr(ctl("--user root:s3cr@t lease list"), "found 0 leases"));
    closed(c);
    done();
}

/* ---- releases and names ---------------------------------------------------------- */

static char warned[512];

static void hear(void *user, int level, const char *store, const char *message)
{
    (void)user;
    (void)store;
    if (level == HF_LOG_WARN)
        snprintf(warned, sizeof(warned), "%s", message);
}

/* The distribution's release is an old one; so counts a member that cannot be asked. */
static void release_is_old(const char *words)
{
    hf_client *c;

    warned[0] = '\0';
    c = opened_with(HF_OPTIONS(.log = hear));
    given(taken(c, "n", NULL));
    CHECK(!(hf_client_caps(c) & HF_CAP_DEADLINE));
    CHECK(strstr(warned, words));
    CHECK_RC(tried(c, "n", HF_REQUEST(.flags = HF_NEED_DEADLINE)), HF_ENOTSUP);
    closed(c);
}

static void old_release(void)
{
    use_directly("&connect_timeout=8s");
    if (!getenv("HF_TEST_ETCD"))
        release_is_old("etcd 3.4.");
    snprintf(rig.place->url, sizeof(rig.place->url),
             "etcd://127.0.0.1:%d,127.0.0.1:%d/fault?connect_timeout=8s",
             members->dead_port, members->servers[0].port);
    release_is_old("a lease may end before its ttl");
    done();
}

/* names=raw: a slash in a name is one in the key, as for etcdctl; so the line a/b lies
 * inside of the line a. */
static void raw_names(void)
{
    hf_list *list = NULL;
    struct pend *p;
    hf_client *c;
    hf_lease *l;

    use_directly("&names=raw");
    c = opened();
    l = taken(c, "a/b", NULL);
    CHECK(strstr(ctl("get --prefix --keys-only fault/a/b/"), "fault/a/b/"));
    CHECK_RC(tried(c, "a", NULL), HF_EBUSY);
    CHECK_RC(tried(c, "ab", NULL), 0);
    p = begun(c, "a", LIMIT_MS, NULL);
    AWAIT(line_is(c, "a", 1, 1));
    CHECK_RC(hf_ls(c, "", 0, &list, E()), HF_ENOTSUP);
    given(l);
    given(pend_granted(p));
    closed(c);
    done();
}

/* ---- rights ---------------------------------------------------------------------- */

/* Every change of users and roles makes the tokens of all others old. */
static void rights_changed(void)
{
    struct pend *p[4];
    hf_client *c;
    hf_lease *l;

    use_members(1, "");
    etcd_auth(members);
    snprintf(rig.place->url, sizeof(rig.place->url),
             "etcd://locker:s3cr%%40t@127.0.0.1:%d/locks?ttl=4s", proxy_port(fronts[0]));
    c = prompted();
    l = taken(c, "n", NULL);
    p[0] = queued(c, "n", 1, NULL); /* its watches are made with the first token */
    for (size_t i = 0; i < 3; i++) {
        ctl("--user root:s3cr@t role add other%zu", i);
        CHECK_RC(hf_lease_check(l), 0);
        p[i + 1] = queued(c, "n", i + 2, NULL);
        AWAIT(tried(c, "m", NULL) == 0);
    }
    for (int i = 0; i < 4; i++) {
        given(l);
        l = pend_granted(p[i]);
    }
    given(l);
    ctl("--user root:s3cr@t role revoke-permission locker --prefix=true locks/");
    AWAIT(tried(c, "m", NULL) == HF_EAUTH);
    closed(c);
    done();
}

/* Nothing that is sent uses it for longer than it lasts: then it has expired. */
static void token_expired(void)
{
    hf_client *c, *past;
    struct pend *p;
    hf_lease *l;

    setenv("ETCD_AUTH_TOKEN_TTL", "1", 1);
    use_members(1, "");
    etcd_auth(members);
    snprintf(rig.place->url, sizeof(rig.place->url),
             "etcd://locker:s3cr%%40t@127.0.0.1:%d/locks?ttl=9s", proxy_port(fronts[0]));
    c = prompted();
    past = prompted();
    l = taken(c, "n", NULL);
    p = begun(past, "n", LIMIT_MS, NULL);
    STAYS(hf_lease_check(l) == 0 && !pend_done(p), 2500);
    given(taken(c, "m", NULL));
    CHECK_NUM(proxy_accepted(fronts[0]), >=, 3); /* logged in again */
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    given(pend_granted(p));
    closed(c);
    closed(past);
    done();
}

static void wrong_password(void)
{
    hf_client *c;
    hf_lease *none = NULL;

    use_members(1, "");
    etcd_auth(members);
    snprintf(rig.place->url, sizeof(rig.place->url),
             "etcd://locker:wrong@127.0.0.1:%d/locks", proxy_port(fronts[0]));
    c = opened();
    CHECK_RC(rig.face->acquire(c, "n", LIMIT_MS, NULL, &none, E()), HF_EAUTH);
    CHECK(!strstr(last_error()->text, "wrong@"));
    closed(c);
    snprintf(rig.place->url, sizeof(rig.place->url), "etcd://127.0.0.1:%d/locks",
             proxy_port(fronts[0]));
    c = opened();
    CHECK_RC(rig.face->acquire(c, "n", LIMIT_MS, NULL, &none, E()), HF_EAUTH);
    closed(c);
    done();
}

/* What an administrator is told can be given to a shell as it is. */
static void told_to_administrators(void)
{
    char *text = NULL;

    rig.place->own = members = etcd_place_new(1);
    CHECK_RC(hf_admin_text("etcds://jo'bs:Tops3cret@h1,h2/a%20b", &text, E()), 0);
    CHECK_STR(text, "etcdctl role add 'jo'\\''bs'\n"
                    "etcdctl role grant-permission --prefix=true 'jo'\\''bs' readwrite "
                    "'a b/'\n"
                    "etcdctl user add 'jo'\\''bs'\n"
                    "etcdctl user grant-role 'jo'\\''bs' 'jo'\\''bs'\n");
    free(text);
    CHECK_RC(hf_admin_text("etcd:", &text, E()), 0); /* never all keys by mistake */
    CHECK(strstr(text, "readwrite 'PREFIX/'\n"));
    free(text);
    CHECK_RC(hf_admin_text("etcd://h", &text, E()), 0);
    CHECK(strncmp(text, "# ", 2) == 0 && strstr(text, "readwrite ''\n"));
    free(text);
    done();
}

/* ---- other programs -------------------------------------------------------------- */

static FILE *etcdctl_lock(void)
{
    char command[512];
    FILE *f;

    snprintf(command, sizeof(command),
             "ETCDCTL_API=3 exec etcdctl --endpoints=127.0.0.1:%d lock fault/n --ttl=10 -- "
             "sh -c "
             "'echo got; read x <%s/go; echo gone'",
             members->servers[0].port, members->servers[0].dir);
    f = popen(command, "r");
    CHECK(f);
    return f;
}

static void heard(FILE *f, const char *word)
{
    char line[64];

    CHECK(fgets(line, sizeof(line), f));
    CHECK(strncmp(line, word, strlen(word)) == 0);
}

/* etcdctl waits for us, and we for it: in the order of joining. */
static void beside_etcdctl(void)
{
    char command[256];
    struct pend *p;
    hf_client *c;
    hf_lease *l;
    FILE *f;

    use_members(1, "");
    snprintf(command, sizeof(command), "mkfifo '%s/go'", members->servers[0].dir);
    CHECK_NUM(system(command), ==, 0);
    c = opened_past();
    l = taken(c, "n", NULL);
    f = etcdctl_lock();
    await_line(c, "n", 1, 1);
    p = queued(c, "n", 2, NULL);
    given(l);
    heard(f, "got");
    CHECK(!pend_done(p));
    CHECK_RC(tried(c, "n", NULL), HF_EBUSY);
    snprintf(command, sizeof(command), "echo >'%s/go'", members->servers[0].dir);
    CHECK_NUM(system(command), ==, 0);
    heard(f, "gone");
    given(pend_granted(p));
    pclose(f);
    AWAIT(line_is(c, "n", 0, 0));
    closed(c);
    done();
}

const struct test_case etcd_keys_cases[] = {
    { "holder-key-deleted", holder_key_deleted, ON_BLOCKING, 0, 0 },
    { "holder-told-by-event", holder_told_by_event, ON_BLOCKING, 0, 0 },
    { "waiter-key-deleted", waiter_key_deleted, ON_BLOCKING, 0, 0 },
    { "waiter-deleted-unheard", waiter_deleted_unheard, ON_BLOCKING, 0, 0 },
    { "names-used-again", names_used_again, ON_BLOCKING, 0, 0 },
    { "holder-kept", holder_kept, ON_BLOCKING, 0, 0 },
    { "waiter-kept", waiter_kept, ON_BLOCKING, 0, 0 },
    { "waiter-kept-while-down", waiter_kept_while_down, ON_BLOCKING, 0, 0 },
    { "holder-lease-revoked", holder_lease_revoked, ON_BLOCKING, 0, 0 },
    { "waiter-lease-revoked", waiter_lease_revoked, ON_BLOCKING, 0, 0 },
    { "middle-cancels", middle_cancels, ON_BLOCKING, 0, 0 },
    { "compacted", compacted, ON_BLOCKING, 0, 0 },
    { "compacted-past-watch", compacted_past_watch, ON_BLOCKING, 0, CASE_LONG },
    { "set-back", set_back, ON_BLOCKING, 0, 0 },
    { "database-full", database_full, ON_BLOCKING, 0, 0 },
    { "create-late-and-full", create_late_and_full, ON_BLOCKING, 0, CASE_LONG },
    { "broken-behind-long-key", broken_behind_long_key, ON_BLOCKING, 0, 0 },
    { "ninth-lease", ninth_lease, ON_BLOCKING, 0, 0 },
    { "cell-not-written", cell_not_written, ON_BLOCKING, 0, 0 },
    { "cell-refused", cell_refused, ON_BLOCKING, 0, 0 },
    { "old-release", old_release, ON_BLOCKING, 0, 0 },
    { "raw-names", raw_names, ON_BLOCKING, 0, 0 },
    { "rights-changed", rights_changed, ON_BLOCKING, 0, 0 },
    { "token-expired", token_expired, ON_BLOCKING, 0, 0 },
    { "wrong-password", wrong_password, ON_BLOCKING, 0, 0 },
    { "told-to-administrators", told_to_administrators, ON_BLOCKING, 0, 0 },
    { "beside-etcdctl", beside_etcdctl, ON_BLOCKING, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
