/* setup_redis_many.c: several Redis servers as one store: under Sentinel, and as a Cluster.
 *
 * Both are written down in the servers' own files before they start (who is there, who
 * follows whom, who owns which slot), so that they need not find each other first. Ready
 * means: the replicas follow, the sentinels agree that they are enough to fail over, the
 * cluster's nodes all say that its state is good.
 */
#include "setup_redis.h"

#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SENTINELS = 3, REPLICAS = 2, MASTERS = 3, SLOTS = 16384, SILENCE_MS = 5000 };

/* ---- sentinel -------------------------------------------------------------------- */

static void sentinel_init(struct server *s)
{
    server_init(s, "sentinel");
    s->sentinel = true;
    redis_config(s, "bind 127.0.0.1\nport %d\nunixsocket %s\ndir .\nlogfile \"\"", s->port,
                 s->socket);
}

static void sentinel_id(char id[41], size_t i)
{
    snprintf(id, 41, "%040zx", i + 1);
}

static void sentinel_config(struct redis_place *r, size_t i, int ms)
{
    struct server *s = &r->servers[r->data + i];
    char id[41];

    sentinel_id(id, i);
    redis_config(s, "sentinel myid %s", id);
    redis_config(s, "sentinel monitor mymaster 127.0.0.1 %d 2", r->servers[0].port);
    redis_config(s, "sentinel down-after-milliseconds mymaster %d", ms);
    redis_config(s, "sentinel failover-timeout mymaster %d", 4 * ms);
    for (size_t k = 1; k < r->data; k++)
        redis_config(s, "sentinel known-replica mymaster 127.0.0.1 %d", r->servers[k].port);
    for (size_t k = 0; k < SENTINELS; k++) {
        sentinel_id(id, k);
        if (k != i)
            redis_config(s, "sentinel known-sentinel mymaster 127.0.0.1 %d %s",
                         r->servers[r->data + k].port, id);
    }
}

static bool sentinel_agrees(struct server *s)
{
    redisReply *reply = redis_ask(s, "SENTINEL CKQUORUM mymaster");
    bool ok = reply->type != REDIS_REPLY_ERROR;

    freeReplyObject(reply);
    return ok;
}

void redis_sentinel_start(struct place *p, int ms)
{
    redis_sentinel_start_with(p, ms, NULL);
}

static void sentinel_password(struct server *s, const char *password)
{
    redis_config(s, "requirepass %s\nsentinel sentinel-pass %s", password, password);
    snprintf(s->login, sizeof(s->login), "default %s", password);
}

void redis_sentinel_start_with(struct place *p, int ms, const char *password)
{
    struct redis_place *r = redis_place_new(p, 1 + REPLICAS);

    for (size_t i = 0; i < SENTINELS; i++)
        sentinel_init(&r->servers[r->n++]);
    for (size_t i = 0; i < r->data; i++) {
        if (i > 0)
            redis_config(&r->servers[i], "replicaof 127.0.0.1 %d", r->servers[0].port);
        redis_run(&r->servers[i]);
    }
    for (size_t i = 1; i < r->data; i++)
        AWAIT(strcmp(redis_info(&r->servers[i], "master_link_status"), "up") == 0);
    for (size_t i = 0; i < SENTINELS; i++) {
        sentinel_config(r, i, ms);
        if (password)
            sentinel_password(&r->servers[r->data + i], password);
        redis_run(&r->servers[r->data + i]);
    }
    for (size_t i = r->data; i < r->n; i++)
        AWAIT(sentinel_agrees(&r->servers[i]));
    snprintf(p->url, sizeof(p->url),
             "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/mymaster",
             r->servers[r->data].port, r->servers[r->data + 1].port,
             r->servers[r->data + 2].port);
}

struct server *redis_sentinel_master(struct redis_place *r)
{
    const char *told = redis_text(&r->servers[r->data], "SENTINEL GET-MASTER-ADDR-BY-NAME"
                                                        " mymaster");
    int port = 0;

    CHECK(sscanf(told, "%*s %d", &port) == 1);
    for (size_t i = 0; i < r->data; i++)
        if (r->servers[i].port == port)
            return &r->servers[i];
    check_failed(__FILE__, __LINE__, "unknown master: %s", told);
}

static bool follows(struct server *s, const struct server *master)
{
    return strcmp(redis_info(s, "role"), "slave") == 0 &&
           strtol(redis_info(s, "master_port"), NULL, 10) == master->port;
}

void redis_replicated(struct redis_place *r, struct server *master)
{
    int64_t offset = strtoll(redis_info(master, "master_repl_offset"), NULL, 10);

    for (size_t i = 0; i < r->data; i++) {
        struct server *s = &r->servers[i];

        if (s != master && follows(s, master))
            AWAIT(strtoll(redis_info(s, "slave_repl_offset"), NULL, 10) >= offset);
    }
}

static void sentinel_start(struct place *p)
{
    redis_sentinel_start(p, SILENCE_MS);
}

static void sentinel_unusable(struct place *p, char *url, size_t size)
{
    struct redis_place *r = p->own;

    snprintf(url, size, "redis+sentinel://127.0.0.1:%d/mymaster", r->dead_port);
}

/* ---- cluster --------------------------------------------------------------------- */

/* Nodes 0 to 2 own a third of the slots each, nodes 3 to 5 follow them. */
static void cluster_write(struct redis_place *r, size_t self)
{
    char line[512];

    file_put(r->servers[self].dir, "nodes.conf", "w", "");
    for (size_t i = 0; i < r->data; i++) {
        int port = r->servers[i].port, n = (int)i;
        const char *me = i == self ? "myself," : "";

        if (i < MASTERS)
            snprintf(line, sizeof(line),
                     "%040x 127.0.0.1:%d@%d %smaster - 0 0 %d connected %d-%d\n", n + 1,
                     port, port + 10000, me, n + 1, n * SLOTS / MASTERS,
                     (n + 1) * SLOTS / MASTERS - 1);
        else
            snprintf(line, sizeof(line),
                     "%040x 127.0.0.1:%d@%d %sslave %040x 0 0 %d connected\n", n + 1, port,
                     port + 10000, me, n + 1 - MASTERS, n + 1 - MASTERS);
        file_put(r->servers[self].dir, "nodes.conf", "a", line);
    }
    snprintf(line, sizeof(line), "vars currentEpoch %d lastVoteEpoch 0\n", MASTERS);
    file_put(r->servers[self].dir, "nodes.conf", "a", line);
}

static bool cluster_good(struct server *s)
{
    return strstr(redis_text(s, "CLUSTER INFO"), "cluster_state:ok") != NULL;
}

static void cluster_await(struct redis_place *r)
{
    for (size_t i = 0; i < r->data; i++)
        AWAIT(cluster_good(&r->servers[i]));
    for (size_t i = MASTERS; i < r->data; i++)
        AWAIT(strcmp(redis_info(&r->servers[i], "master_link_status"), "up") == 0 ||
              strcmp(redis_info(&r->servers[i], "role"), "master") == 0);
}

void redis_cluster_start(struct place *p, int ms)
{
    struct redis_place *r = redis_place_new(p, 2 * MASTERS);

    for (size_t i = 0; i < r->data; i++) {
        redis_config(&r->servers[i], "cluster-enabled yes");
        redis_config(&r->servers[i], "cluster-node-timeout %d", ms);
        redis_config(&r->servers[i], "cluster-config-file nodes.conf");
        cluster_write(r, i);
        redis_run(&r->servers[i]);
    }
    cluster_await(r);
    snprintf(p->url, sizeof(p->url),
             "redis+cluster://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", r->servers[0].port,
             r->servers[1].port, r->servers[2].port);
}

/* The port of the slot's owner as the first node sees it; 0: nobody, as between two owners.
 */
static int owner_port(struct redis_place *r, int slot)
{
    redisReply *all = redis_ask(&r->servers[0], "CLUSTER SLOTS");
    int port = 0;

    for (size_t k = 0; k < all->elements; k++) {
        redisReply **range = all->element[k]->element;

        if (slot >= range[0]->integer && slot <= range[1]->integer)
            port = (int)range[2]->element[1]->integer;
    }
    freeReplyObject(all);
    return port;
}

struct server *redis_cluster_owner(struct redis_place *r, int slot)
{
    int port;

    AWAIT((port = owner_port(r, slot)) != 0);
    for (size_t i = 0; i < r->data; i++)
        if (r->servers[i].port == port)
            return &r->servers[i];
    check_failed(__FILE__, __LINE__, "a stranger owns slot %d: port %d", slot, port);
}

static void cluster_start(struct place *p)
{
    redis_cluster_start(p, SILENCE_MS);
}

static void cluster_restart(struct place *p)
{
    redis_place_restart(p);
    cluster_await(p->own);
}

static void cluster_unusable(struct place *p, char *url, size_t size)
{
    struct redis_place *r = p->own;

    snprintf(url, size, "redis+cluster://127.0.0.1:%d", r->dead_port);
}

REDIS_SETUP(setup_redis_sentinel, "redis-sentinel", sentinel_start, redis_place_restart,
            sentinel_unusable, SETUP_TOPOLOGY);
REDIS_SETUP(setup_redis_cluster, "redis-cluster", cluster_start, cluster_restart,
            cluster_unusable, SETUP_TOPOLOGY);
