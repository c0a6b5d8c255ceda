/* redis_cluster.c: slots that move in a Cluster, masters that die, and maps that are old,
 * while a lock is held and while it is waited for.
 */
#include "redis_fault.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    DOWN_MS = 1500,     /* of who is to be given up */
    PATIENT_MS = 15000, /* where nobody is */
    FAILOVER_TTL_MS = 30000,
    LONG_TTL_MS = 6 * LIMIT_MS /* its safety look comes too late for a test */
};

static struct redis_place *many;

/* The slot of the line, and who has it: some node has its key. */
static int slot_of_line(struct server **ret_owner)
{
    for (size_t i = 0; i < many->data; i++) {
        struct server *s = &many->servers[i];
        const char *key;

        if (strcmp(redis_info(s, "role"), "master") != 0)
            continue;
        key = key_of(s, "l", nm("n"));
        if (key[0]) {
            *ret_owner = s;
            return (int)redis_number(s, "CLUSTER KEYSLOT %s", key);
        }
    }
    check_failed(__FILE__, __LINE__, "nobody has the line");
}

static void node_id(struct server *s, char id[41])
{
    snprintf(id, 41, "%s", redis_text(s, "CLUSTER MYID"));
}

static void migrate_begin(int slot, struct server *from, struct server *to)
{
    char id[41];

    node_id(from, id);
    redis_do(to, "CLUSTER SETSLOT %d IMPORTING %s", slot, id);
    node_id(to, id);
    redis_do(from, "CLUSTER SETSLOT %d MIGRATING %s", slot, id);
}

/* Moves up to n keys; returns whether some are left. */
static bool migrate_keys(int slot, struct server *from, struct server *to, int n)
{
    redisReply *keys = redis_ask(from, "CLUSTER GETKEYSINSLOT %d %d", slot, n);

    for (size_t i = 0; i < keys->elements; i++)
        redis_do(from, "MIGRATE 127.0.0.1 %d %s 0 5000 REPLACE", to->port,
                 keys->element[i]->str);
    freeReplyObject(keys);
    return redis_number(from, "CLUSTER COUNTKEYSINSLOT %d", slot) > 0;
}

static void migrate_end(int slot, struct server *to)
{
    char id[41];

    node_id(to, id);
    redis_do(to, "CLUSTER SETSLOT %d NODE %s", slot, id);
    for (size_t i = 0; i < many->data; i++)
        if (&many->servers[i] != to &&
            !strcmp(redis_info(&many->servers[i], "role"), "master"))
            redis_do(&many->servers[i], "CLUSTER SETSLOT %d NODE %s", slot, id);
}

/* There and back, slowly: nobody loses anything at any point of it. */
static void cluster_migration(void)
{
    struct two t;
    struct server *from, *to;
    int slot;

    redis_cluster_start(rig.place, PATIENT_MS);
    many = rig.place->own;
    t = hold_and_wait(3 * SHORT_MS);
    slot = slot_of_line(&from);
    to = from == &many->servers[0] ? &many->servers[1] : &many->servers[0];
    for (int i = 0; i < 2; i++) {
        struct server *back = from;
        bool left = true;

        migrate_begin(slot, from, to);
        STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), SHORT_MS);
        while (left) {
            left = migrate_keys(slot, from, to, 1);
            STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), SHORT_MS / 4);
        }
        STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), SHORT_MS);
        migrate_end(slot, to);
        STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), 2 * SHORT_MS);
        CHECK(line_is(t.b, nm("n"), 1, 1));
        from = to;
        to = back;
    }
    two_go_on(&t);
    redis_place_stop(rig.place);
}

static unsigned bucket_of(const char *name) /* as bucket.c has it */
{
    uint32_t h = 2166136261u;

    for (const char *p = name; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    return (h ^ h >> 10 ^ h >> 20) % 1024;
}

static bool all_held(hf_lease *const *leases, int n)
{
    for (int i = 0; i < n; i++)
        if (hf_lease_check(leases[i]) != 0)
            return false;
    return true;
}

/* Holds of one bucket are renewed together. While some of its keys are here and some there,
 * a server serves scripts of one key only. */
static void cluster_migration_of_many(void)
{
    enum { NAMES = 6, TTL_MS = 2 * SHORT_MS };
    hf_lease *leases[NAMES];
    hf_client *c;
    struct server *from, *to;
    int slot, n = 0;
    bool left = true;

    redis_cluster_start(rig.place, PATIENT_MS);
    many = rig.place->own;
    c = prompted();
    leases[n++] = taken(c, nm("n"), HF_REQUEST(.ttl_ms = TTL_MS));
    slot = slot_of_line(&from);
    to = from == &many->servers[0] ? &many->servers[1] : &many->servers[0];
    for (int i = 0; n < NAMES; i++) {
        char name[64];

        snprintf(name, sizeof(name), "%s-%d", rig.base, i);
        if (bucket_of(name) == bucket_of(nm("n")))
            leases[n++] = taken(c, name, HF_REQUEST(.ttl_ms = TTL_MS));
    }
    redis_do(from, "CLIENT KILL TYPE normal"); /* from now on they are due together */
    STAYS(all_held(leases, NAMES), 500);
    migrate_begin(slot, from, to);
    for (int i = 0; i < NAMES / 2; i++)
        left = migrate_keys(slot, from, to, 1);
    CHECK(left);
    STAYS(all_held(leases, NAMES), 2 * TTL_MS);
    while (migrate_keys(slot, from, to, 10))
        ;
    migrate_end(slot, to);
    STAYS(all_held(leases, NAMES), TTL_MS);
    for (int i = 0; i < NAMES; i++)
        given(leases[i]);
    closed(c);
    redis_place_stop(rig.place);
}

/* Admitted on another node than the one where it was joined. */
static void cluster_migration_then_release(void)
{
    struct two t;
    struct server *from, *to;
    int slot;

    redis_cluster_start(rig.place, PATIENT_MS);
    many = rig.place->own;
    t = hold_and_wait(FAILOVER_TTL_MS);
    slot = slot_of_line(&from);
    to = from == &many->servers[0] ? &many->servers[1] : &many->servers[0];
    migrate_begin(slot, from, to);
    while (migrate_keys(slot, from, to, 10))
        ;
    migrate_end(slot, to);
    two_go_on(&t);
    redis_place_stop(rig.place);
}

/* replicas=1, while a slot is moved: what the new node has written counts when a replica of
 * the new node has it; that the old node's replica has nothing to read says nothing (G1).
 */
static void cluster_migration_replicas(void)
{
    struct server *from, *to, *replica;
    hf_client *c;
    hf_lease *l;
    int slot;

    redis_cluster_start(rig.place, PATIENT_MS);
    many = rig.place->own;
    strcat(rig.place->url, "?replicas=1&replica_timeout=1s");
    c = prompted();
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 3 * SHORT_MS));
    slot = slot_of_line(&from);
    to = from == &many->servers[0] ? &many->servers[1] : &many->servers[0];
    replica = to + 3;
    migrate_begin(slot, from, to);
    while (migrate_keys(slot, from, to, 10))
        ;
    STAYS(hf_lease_check(l) == 0, 6 * SHORT_MS);
    server_freeze(replica);
    AWAIT(hf_lease_check(l) == HF_ELOST);
    server_continue(replica);
    migrate_end(slot, to);
    given(taken(c, nm("n"), NULL));
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    closed(c);
    redis_place_stop(rig.place);
}

/* A slot that no node has for a while: who waits is served when one has it. */
static void cluster_slot_without_node(void)
{
    struct server *from;
    struct pend *p;
    hf_client *c;
    hf_lease *l;
    int slot;

    redis_cluster_start(rig.place, PATIENT_MS);
    many = rig.place->own;
    c = prompted();
    l = taken(c, nm("n"), NULL);
    slot = slot_of_line(&from);
    given(l);
    closed(c);
    for (size_t i = 0; i < many->data; i++)
        redis_do(&many->servers[i], "CONFIG SET cluster-require-full-coverage no");
    redis_do(from, "FLUSHALL");
    for (size_t i = 0; i < many->data; i++)
        redis_do(&many->servers[i], "CLUSTER DELSLOTS %d", slot);
    c = prompted();
    p = begun(c, nm("n"), LIMIT_MS, NULL);
    STAYS(!pend_done(p), 2 * SHORT_MS);
    redis_do(from, "CLUSTER ADDSLOTS %d", slot);
    given(pend_granted(p));
    closed(c);
    redis_place_stop(rig.place);
}

static void cluster_failover(void)
{
    struct two t;
    struct server *owner;

    redis_cluster_start(rig.place, DOWN_MS);
    many = rig.place->own;
    t = hold_and_wait(FAILOVER_TTL_MS);
    slot_of_line(&owner);
    redis_replicated(many, owner);
    server_kill(owner);
    two_renewed(&t);
    redis_run(owner);
    two_go_on(&t);
    redis_place_stop(rig.place);
}

/* A node stands still when it is asked, for longer than the ttl of who asked and gave up.
 * What it then does is taken back: nobody waits for its expiry (G7). */
static void node_stands_still(void)
{
    struct server *owner;
    struct pend *p;
    hf_client *a, *b;
    hf_lease *l;

    redis_cluster_start(rig.place, 2 * LIMIT_MS);
    many = rig.place->own;
    strcat(rig.place->url, "?connect_timeout=2s");
    a = prompted();
    l = taken(a, nm("n"), NULL);
    slot_of_line(&owner);
    given(l);
    server_freeze(owner);
    p = begun(a, nm("n"), SHORT_MS, HF_REQUEST(.ttl_ms = 2 * SHORT_MS));
    CHECK_RC(pend_end(p, &l), HF_EUNREACHABLE);
    STAYS(true, 3 * SHORT_MS);
    server_continue(owner);
    b = opened();
    CHECK_RC(rig.face->acquire(b, nm("n"), SHORT_MS, NULL, &l, E()), 0);
    given(l);
    closed(b);
    closed(a);
    redis_place_stop(rig.place);
}

static void *release(void *lease)
{
    CHECK_RC(hf_release(lease, E()), 0);
    return NULL;
}

/* A node is lost with the leave that it was sent: the release waits until it is back. */
static void node_lost_in_a_release(void)
{
    struct server *owner;
    hf_client *c;
    hf_lease *l;
    pthread_t t;

    redis_cluster_start(rig.place, 2 * LIMIT_MS);
    many = rig.place->own;
    strcat(rig.place->url, "?connect_timeout=30s");
    c = opened();
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = LONG_TTL_MS));
    slot_of_line(&owner);
    server_freeze(owner);
    CHECK(pthread_create(&t, NULL, release, l) == 0);
    STAYS(true, SHORT_MS / 3);
    server_kill(owner);
    STAYS(true, SHORT_MS / 3);
    redis_run(owner);
    pthread_join(t, NULL);
    given(taken(c, nm("n"), NULL));
    closed(c);
    redis_place_stop(rig.place);
}

/* Many names, so all nodes: no call ever meets keys of two slots. */
static void cluster_many_names(void)
{
    enum { NAMES = 300 };
    static hf_lease *leases[NAMES];
    hf_client *c;
    char name[64];

    redis_cluster_start(rig.place, PATIENT_MS);
    many = rig.place->own;
    c = opened();
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof(name), "%s-%d", rig.base, i);
        leases[i] = taken(c, name, HF_REQUEST(.ttl_ms = 4 * SHORT_MS));
    }
    STAYS(hf_lease_check(leases[0]) == 0 && hf_lease_check(leases[NAMES - 1]) == 0,
          5 * SHORT_MS);
    for (int i = 0; i < NAMES; i++)
        given(leases[i]);
    for (size_t i = 0; i < 3; i++)
        CHECK_NUM(redis_calls(&many->servers[i], "evalsha"), >, NAMES / 10);
    closed(c);
    redis_place_stop(rig.place);
}

/* ---- finding the nodes ----------------------------------------------------------- */

static void use_cluster(int ms)
{
    redis_cluster_start(rig.place, ms);
    many = rig.place->own;
}

/* Names of every node. */
static void take_some(void)
{
    hf_client *c = opened();
    char name[64];

    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof(name), "%s-%d", rig.base, i);
        given(taken(c, name, NULL));
    }
    closed(c);
}

/* The masters of the day the URL was written have all been replaced since. */
static void seeds_are_replicas(void)
{
    use_cluster(PATIENT_MS);
    snprintf(rig.place->url, sizeof(rig.place->url),
             "redis+cluster://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d",
             many->servers[3].port, many->servers[4].port, many->servers[5].port);
    take_some();
    redis_place_stop(rig.place);
}

/* One of the URL has left the cluster and knows nobody any more. */
static void seed_has_left(void)
{
    use_cluster(PATIENT_MS);
    redis_do(&many->servers[3], "CLUSTER RESET SOFT");
    snprintf(rig.place->url, sizeof(rig.place->url),
             "redis+cluster://127.0.0.1:%d,127.0.0.1:%d", many->servers[0].port,
             many->servers[3].port);
    for (int i = 0; i < 3; i++)
        take_some();
    snprintf(rig.place->url, sizeof(rig.place->url),
             "redis+cluster://127.0.0.1:%d,127.0.0.1:%d", many->servers[3].port,
             many->servers[0].port);
    take_some();
    redis_place_stop(rig.place);
}

/* Nodes that do not name a host: it is the one that was asked. */
static void unknown_endpoints(void)
{
    use_cluster(PATIENT_MS);
    for (size_t i = 0; i < many->data; i++)
        redis_do(&many->servers[i],
                 "CONFIG SET cluster-preferred-endpoint-type unknown-endpoint");
    take_some();
    redis_place_stop(rig.place);
}

/* ---- messages -------------------------------------------------------------------- */

static void move_slot(int slot, struct server *from, struct server *to)
{
    migrate_begin(slot, from, to);
    while (migrate_keys(slot, from, to, 10))
        ;
    migrate_end(slot, to);
}

/* Each has a channel of its own, also the holder. */
static int clients_listening(struct server *s)
{
    const char *at = redis_text(s, "PUBSUB SHARDCHANNELS");
    int n = 0;

    for (; (at = strchr(at, '@')); at++)
        n++;
    return n;
}

/* The slot is back before the waiting client has asked where it is: its subscription has
 * ended all the same. */
static void slot_there_and_back(void)
{
    hf_client *a;
    hf_lease *held;
    struct server *from, *to;
    struct kid kid;
    int slot;

    use_cluster(PATIENT_MS);
    kid = kid_new();
    a = prompted();
    held = taken(a, nm("n"), HF_REQUEST(.ttl_ms = LONG_TTL_MS));
    kid_begin(&kid, 0, nm("n"), LIMIT_MS, HF_REQUEST(.ttl_ms = LONG_TTL_MS));
    await_line(a, nm("n"), 1, 1);
    slot = slot_of_line(&from);
    to = from == &many->servers[0] ? &many->servers[1] : &many->servers[0];
    AWAIT(clients_listening(from) == 2);
    kid_stop(&kid);
    move_slot(slot, from, to);
    move_slot(slot, to, from);
    AWAIT(redis_cluster_owner(many, slot) == from);
    kid_continue(&kid);
    AWAIT(clients_listening(from) == 2);
    given(held);
    CHECK_RC(kid_answer(&kid).rc, 0);
    CHECK_RC(kid_release(&kid, 0).rc, 0);
    kid_end(&kid);
    closed(a);
    redis_place_stop(rig.place);
}

/* A cluster in the middle of an upgrade: the node of the line does not know SPUBLISH. Here
 * it may not say its version, and these commands are refused. */
static void mixed_versions(void)
{
    struct server *owner;
    struct two t;
    hf_client *c;
    hf_lease *l;
    char rest[400];

    use_cluster(PATIENT_MS);
    c = opened();
    l = taken(c, nm("n"), NULL);
    slot_of_line(&owner);
    given(l);
    closed(c);
    for (size_t i = 0; i < many->data; i++)
        redis_do(&many->servers[i], "ACL SETUSER app on >pw ~* &* +@all");
    redis_do(owner, "ACL SETUSER app -info -ssubscribe -spublish");
    snprintf(rest, sizeof(rest), "%.399s", strstr(rig.place->url, "//") + 2);
    snprintf(rig.place->url, sizeof(rig.place->url), "redis+cluster://app:pw@%s", rest);
    t = hold_and_wait(LONG_TTL_MS);
    AWAIT(redis_text(owner, "PUBSUB CHANNELS holdfast:*")[0]);
    two_go_on(&t);
    redis_place_stop(rig.place);
}

/* ---- redirections ---------------------------------------------------------------- */

static int64_t redirections(void)
{
    int64_t n = 0;

    for (size_t i = 0; i < many->data; i++)
        n += redis_errors(&many->servers[i], "MOVED");
    return n;
}

/* Two nodes name each other while a slot is handed over, because the source was told first.
 * Whoever asks waits, and asks in turns; a redirection is never the answer. */
static void redirected_in_a_circle(void)
{
    struct server *from, *to;
    char id[41], name[64];
    hf_client *c;
    struct pend *p;
    hf_lease *l;
    int64_t n;
    int slot;

    use_cluster(PATIENT_MS);
    c = prompted();
    l = taken(c, nm("n"), NULL);
    slot = slot_of_line(&from);
    given(l);
    to = from == &many->servers[0] ? &many->servers[1] : &many->servers[0];
    snprintf(name, sizeof(name), "%s",
             redis_text(from, "CLUSTER GETKEYSINSLOT %d 1", slot));
    redis_do(from, "DEL %s", name); /* the mark: only an empty slot can be handed over */
    node_id(to, id);
    redis_do(from, "CLUSTER SETSLOT %d NODE %s", slot, id);
    n = redirections();
    p = begun(c, nm("n"), LIMIT_MS, NULL);
    STAYS(!pend_done(p), 1500);
    n = redirections() - n;
    CHECK_NUM(n, >=, 4);
    CHECK_NUM(n, <=, 100);
    redis_do(to, "CLUSTER SETSLOT %d NODE %s", slot, id);
    given(pend_granted(p));
    closed(c);
    redis_place_stop(rig.place);
}

/* A node of a cluster that does not say that it is one, under redis://. */
static void cluster_as_one_server(void)
{
    int refused = 0, rc;
    hf_client *c;
    char name[64];

    use_cluster(PATIENT_MS);
    redis_do(&many->servers[0], "ACL SETUSER app on >pw ~* &* +@all -info");
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://app:pw@127.0.0.1:%d",
             many->servers[0].port);
    c = opened();
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "%s-%d", rig.base, i);
        rc = tried(c, name, NULL);
        CHECK(rc == 0 || rc == HF_ENOTSUP);
        CHECK(rc == 0 || strstr(last_error()->text, "redis+cluster://"));
        refused += rc < 0;
    }
    CHECK_NUM(refused, >, 0);
    closed(c);
    redis_place_stop(rig.place);
}

const struct test_case redis_cluster_cases[] = {
    { "cluster-migration", cluster_migration, ON_ALL, 0, CASE_LONG },
    { "cluster-migration-of-many", cluster_migration_of_many, ON_ALL, 0, CASE_LONG },
    { "cluster-migration-then-release", cluster_migration_then_release, ON_ALL, 0,
      CASE_LONG },
    { "cluster-migration-replicas", cluster_migration_replicas, ON_ALL, 0, CASE_LONG },
    { "cluster-slot-without-node", cluster_slot_without_node, ON_ALL, 0, CASE_LONG },
    { "cluster-failover", cluster_failover, ON_ALL, 0, CASE_LONG },
    { "cluster-node-stands-still", node_stands_still, ON_ALL, 0, CASE_LONG },
    { "cluster-node-lost-in-a-release", node_lost_in_a_release, ON_ALL, 0, CASE_LONG },
    { "cluster-many-names", cluster_many_names, ON_ALL, 0, CASE_LONG },
    { "cluster-seeds-are-replicas", seeds_are_replicas, ON_ALL, 0, 0 },
    { "cluster-seed-has-left", seed_has_left, ON_ALL, 0, 0 },
    { "cluster-unknown-endpoints", unknown_endpoints, ON_ALL, 0, 0 },
    { "cluster-slot-there-and-back", slot_there_and_back, ON_ALL, 0, 0 },
    { "cluster-mixed-versions", mixed_versions, ON_ALL, 0, 0 },
    { "cluster-redirected-in-a-circle", redirected_in_a_circle, ON_ALL, 0, 0 },
    { "cluster-as-one-server", cluster_as_one_server, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
