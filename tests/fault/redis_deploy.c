/* redis_deploy.c: Redis as it is deployed: names and addresses that lead to another server
 * after a failover, proxies in front of shards.
 */
#include "redis_fault.h"

#include <dlfcn.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILOVER_TTL_MS = 12000 };

static struct server other;

/* ---- a name that we give --------------------------------------------------------- */

#define NAME "redis.test"
static _Atomic(const char *) name_leads_to = "127.0.0.1";

/* The library looks names up by this one instead of the C library's. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(host && strcmp(host, NAME) == 0 ? atomic_load(&name_leads_to) : host,
                service, hints, ret);
}

/* ---- a failover without Sentinel ------------------------------------------------- */

/* Now `other` is the master, and `server` its replica; what it had has been replicated. */
static void swap_roles(const char *other_host)
{
    int64_t offset = strtoll(redis_info(&server, "master_repl_offset"), NULL, 10);

    AWAIT(strtoll(redis_info(&other, "slave_repl_offset"), NULL, 10) >= offset);
    redis_do(&other, "REPLICAOF NO ONE");
    redis_do(&server, "REPLICAOF %s %d", other_host, other.port);
    redis_do(&server, "CLIENT KILL TYPE normal");
    AWAIT(strcmp(redis_info(&server, "master_link_status"), "up") == 0);
}

/* The address of the store leads to the old master for a while after that. Who uses the
 * store waits for the new one, and so does whoever comes now. */
static void demoted(const char *other_host, void (*leads_to_other)(void))
{
    struct two t = hold_and_wait(FAILOVER_TTL_MS);
    struct pend *p, *late;
    hf_client *c;
    int64_t greetings;

    swap_roles(other_host);
    p = begun(t.a, nm("other"), LIMIT_MS, NULL);
    greetings = redis_calls(&server, "client|setname");
    AWAIT(redis_calls(&server, "client|setname") >= greetings + 6);
    CHECK_RC(hf_lease_check(t.held), 0);
    CHECK(!pend_done(t.waits) && !pend_done(p));
    c = opened();
    late = begun(c, nm("late"), LIMIT_MS, NULL);
    leads_to_other();
    given(pend_granted(late));
    closed(c);
    given(pend_granted(p));
    two_renewed(&t);
    two_go_on(&t);
    server_remove(&other);
    done();
}

static void aim_proxy(void)
{
    proxy_aim(proxy, other.port);
}

static void address_of_a_replica(void)
{
    use_proxied_server("");
    redis_init(&other);
    redis_config(&other, "replicaof 127.0.0.1 %d", server.port);
    redis_run(&other);
    AWAIT(strcmp(redis_info(&other, "master_link_status"), "up") == 0);
    demoted("127.0.0.1", aim_proxy);
}

static void aim_name(void)
{
    atomic_store(&name_leads_to, "127.0.0.2");
}

/* On the same port, as names have none. */
static void name_of_a_replica(void)
{
    use_plain_server();
    redis_init(&other);
    other.port = server.port;
    redis_config(&other, "bind 127.0.0.2\nport %d\nreplicaof 127.0.0.1 %d", server.port,
                 server.port);
    redis_run(&other);
    AWAIT(strcmp(redis_info(&other, "master_link_status"), "up") == 0);
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://" NAME ":%d", server.port);
    demoted("127.0.0.2", aim_name);
}

/* ---- a proxy that hides shards --------------------------------------------------- */

/* Such a proxy looks like one server, and refuses a script about lines of several slots. A
 * cluster of one node does the same, if it may not tell us that it is one. */
static void use_hidden_shards(void)
{
    redis_init(&server);
    redis_config(&server,
                 "cluster-enabled yes\nappendfsync no\nuser app on >pw ~* &* +@all -info");
    use_server();
    redis_do(&server, "CLUSTER ADDSLOTSRANGE 0 16383");
    AWAIT(strstr(redis_text(&server, "CLUSTER INFO"), "cluster_state:ok"));
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://app:pw@127.0.0.1:%d",
             server.port);
}

static void hidden_shards(void)
{
    enum { NAMES = 60, TTL_MS = 2 * SHORT_MS }; /* more than fit into one script */
    static hf_lease *leases[NAMES];
    hf_list *list = NULL;
    hf_client *c, *lister;
    char name[80];

    use_hidden_shards();
    c = prompted();
    lister = opened();
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof(name), "%s-%d", rig.base, i);
        leases[i] = taken(c, name, HF_REQUEST(.ttl_ms = TTL_MS));
    }
    for (int i = 0; i < 2; i++) { /* before it knows, and after */
        CHECK_RC(hf_ls(lister, rig.base, 0, &list, E()), 0);
        CHECK_NUM(hf_list_count(list), ==, NAMES);
        hf_list_free(list);
    }
    for (int i = 0; i < NAMES; i++)
        STAYS(hf_lease_check(leases[i]) == 0, 2 * TTL_MS / NAMES);
    for (int i = 0; i < NAMES; i++)
        given(leases[i]);
    closed(c);
    closed(lister);
    done();
}

const struct test_case redis_deploy_cases[] = {
    { "address-of-a-replica", address_of_a_replica, ON_ALL, 0, 0 },
    { "name-of-a-replica", name_of_a_replica, ON_ALL, 0, 0 },
    { "hidden-shards", hidden_shards, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
