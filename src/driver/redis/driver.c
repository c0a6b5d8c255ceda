/* driver.c: the redis driver's face: what a URL says, opening, closing, the table of verbs.
 *
 * Opening only begins: names are resolved and servers greeted by the loop, and the core
 * hears UP or why not. Closing is at once: what could be settled was settled before. */
#include "driver/redis/redis.h"
#include "util/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS "mode replicas replica_timeout db password_file"

enum { LEAST_TTL_MS = 100, PORT = 6379, SENTINEL_PORT = 26379 };

/* ---- the URL --------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

int hf__redis_read_number(const struct url *url, const char *what, const char *text,
                          int64_t most, int64_t *ret, hf_error *err)
{
    char *end;
    long long number;

    if (!text)
        return 0;
    errno = 0;
    number = strtoll(text, &end, 10);
    if (*text == '\0' || *end != '\0' || errno != 0 || number < 0 || number > most)
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "URL: %s '%s' is not a number from 0 to %lld", what, text,
                        (long long)most);
    *ret = number;
    return 0;
}

static int read_options(struct redis *r, const struct url *url, hf_error *err)
{
    const char *timeout = hf__url_param(url, "replica_timeout");
    const char *mode = hf__url_param(url, "mode");

    if (mode) /* mode=plain has not come here */
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: mode=%s: only plain is known",
                        mode);
    r->replica_ms = 100;
    if (timeout && (!hf__parse_time(timeout, &r->replica_ms) || r->replica_ms <= 0))
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "URL: replica_timeout=%s is not a time", timeout);
    if (hf__redis_read_number(url, "replicas=", hf__url_param(url, "replicas"), 64,
                              &r->replicas, err) < 0 ||
        hf__redis_read_number(url, "db=", hf__url_param(url, "db"), 1 << 20, &r->db, err) <
            0)
        return HF_EINVAL;
    if (r->db > 0 && r->topology == TOPOLOGY_CLUSTER)
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "URL: a cluster has no numbered databases");
    return 0;
}

/* "/0", or under Sentinel "/master" and "/master/0". */
static int read_path(struct redis *r, const struct url *url, hf_error *err)
{
    const char *path = url->path[0] == '/' ? url->path + 1 : url->path;
    const char *db = path;

    if (r->topology == TOPOLOGY_SENTINEL) {
        size_t n = strcspn(path, "/");

        if (n == 0)
            return hf__fail(
                err, HF_EINVAL, 0, url->shown,
                "URL: redis+sentinel://host,host/MASTER needs the master's name");
        r->master = strndup(path, n);
        if (!r->master)
            return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory");
        db = path[n] == '/' ? path + n + 1 : path + n;
    }
    if (*db == '\0')
        return 0;
    return hf__redis_read_number(url, "the database", db, 1 << 20, &r->db, err);
}

/* Redis would take a user without a password for nobody, and give it the default user's
 * rights. */
static int check_login(const struct login *l, const struct url *url, hf_error *err)
{
    if (l->user && !login_wanted(l))
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: a user without a password");
    return 0;
}

int hf__redis_read_opening(struct redis *r, const struct url *url, const char *params,
                           hf_error *err)
{
    const struct opening_rules rules = { .params = params,
                                         .port = r->topology == TOPOLOGY_SENTINEL
                                                     ? SENTINEL_PORT
                                                     : PORT,
                                         .tls = strncmp(url->scheme, "rediss", 6) == 0 ||
                                                strcmp(url->scheme, "redlocks") == 0,
                                         .tls_schemes = "rediss:// or redlocks://" };
    int rc = hf__opening_read(&r->open, url, r->store.env, &rules, err);

    return rc < 0 ? rc : check_login(&r->open.login, url, err);
}

static int read_url(struct redis *r, const struct url *url, hf_error *err)
{
    char ns[PREFIX_MAX - 16];
    bool local = ends_with(url->scheme, "+unix");
    int rc;

    r->topology = ends_with(url->scheme, "+sentinel")  ? TOPOLOGY_SENTINEL
                  : ends_with(url->scheme, "+cluster") ? TOPOLOGY_CLUSTER
                                                       : TOPOLOGY_ONE;
    r->apart = r->topology == TOPOLOGY_CLUSTER;
    if (local ? url->nhosts > 0 || url->path[0] != '/' : url->nhosts == 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        local ? "URL: redis+unix:///path/of/socket"
                              : "URL: a host is missing");
    if (!local && r->topology == TOPOLOGY_ONE && url->nhosts > 1)
        return hf__fail(
            err, HF_EINVAL, 0, url->shown,
            "URL: one host only; several need redis+sentinel:// or redis+cluster://");
    rc = hf__redis_read_opening(r, url,
                                r->topology == TOPOLOGY_SENTINEL ? OPTIONS
                                    " sentinel_user sentinel_password "
                                    "sentinel_password_file"
                                                                 : OPTIONS,
                                err);
    if (rc == 0 && r->topology == TOPOLOGY_SENTINEL)
        rc = hf__login_init(&r->sentinel_login, hf__url_param(url, "sentinel_user"),
                            hf__url_param(url, "sentinel_password"),
                            hf__url_param(url, "sentinel_password_file"), url->shown, err);
    if (rc == 0)
        rc = check_login(&r->sentinel_login, url, err);
    if (rc == 0 && !local)
        rc = read_path(r, url, err);
    if (rc == 0)
        rc = read_options(r, url, err);
    if (rc == 0 && hf__redis_bucket_escape(ns, sizeof ns, url->ns) < 0)
        rc = hf__fail(err, HF_EINVAL, 0, url->shown, "URL: the namespace is too long");
    if (rc == 0)
        r->prefix_len = (size_t)snprintf(r->prefix, sizeof r->prefix, "holdfast:%s:", ns);
    return rc;
}

/* ---- opening --------------------------------------------------------------------- */

static void free_redis(struct redis *r)
{
    struct list *n;

    hf__redis_sentinel_done(r);
    hf__redis_cluster_done(r);
    while ((n = list_first(&r->nodes)) != NULL)
        hf__redis_node_free(node_in(n));
    list_splice(&r->later, &r->unconfirmed);
    while ((n = list_pop(&r->later)) != NULL) {
        struct redis_call *q = container_of(n, struct redis_call, call.node);

        freeReplyObject(q->reply);
        free(q);
    }
    r->store.env->timer(r->store.env, &r->later_timer, LOOP_NEVER);
    r->store.env->timer(r->store.env, &r->listen_timer, LOOP_NEVER);
    hf__opening_done(&r->open);
    hf__login_done(&r->sentinel_login);
    hf__scripted_done(&r->scripted);
    free(r->command.buf);
    free(r->master);
    free(r);
}

static struct redis *new_redis(struct env *env)
{
    struct redis *r = calloc(1, sizeof *r);
    static const struct scripted_ops ops = { .join = hf__redis_send_join,
                                             .leave = hf__redis_send_leave,
                                             .look = hf__redis_send_look,
                                             .renew = hf__redis_send_renewal,
                                             .echoes = hf__redis_echoes,
                                             .shard = hf__redis_shard };
    unsigned char id[CLIENT_ID / 2];

    if (!r)
        return NULL;
    list_init(&r->unconfirmed);
    list_init(&r->looks);
    list_init(&r->cells);
    list_init(&r->sights);
    list_init(&r->debts);
    list_init(&r->nodes);
    list_init(&r->dirty);
    list_init(&r->later);
    timer_init(&r->later_timer, hf__redis_conn_later);
    timer_init(&r->listen_timer, hf__redis_wake_holders);
    r->store.env = env;
    r->store.driver = &hf__driver_redis;
    r->store.starts_down = true;
    r->store.caps = HF_CAP_DEADLINE | HF_CAP_FIFO | HF_CAP_FENCE | HF_CAP_BARGE |
                    HF_CAP_SHARED | HF_CAP_PERMITS | HF_CAP_LINE | HF_CAP_KEEP |
                    HF_CAP_CELL | HF_CAP_CELL_EXPIRY | HF_CAP_TTL;
    r->store.least_ttl_ms = LEAST_TTL_MS;
    r->store.most_ttl_ms = (int64_t)366 * 24 * 3600 * 1000;
    r->store.least_cell_ttl_ms = 1;
    r->store.most_cell_ttl_ms = r->store.most_ttl_ms;
    r->store.name_max = HF_NAME_MAX;
    env->random(env, id, sizeof id);
    hf__hex(r->client, id, sizeof id);
    if (hf__scripted_init(&r->scripted, &ops, &r->store) < 0) {
        free_redis(r);
        return NULL;
    }
    r->scripted.renew_most = LINES_PER_SCRIPT;
    return r;
}

static int start(struct redis *r, const struct url *url, hf_error *err)
{
    const struct opening_host *h = r->open.nhosts > 0 ? &r->open.hosts[0] : NULL;

    if (r->topology == TOPOLOGY_CLUSTER)
        return hf__redis_cluster_start(r, err);
    r->one = hf__redis_node_new(r, h && r->topology != TOPOLOGY_SENTINEL ? h->host : NULL,
                                h && r->topology != TOPOLOGY_SENTINEL ? h->port : PORT,
                                h ? NULL : url->path);
    if (!r->one)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a connection");
    if (r->topology == TOPOLOGY_SENTINEL)
        return hf__redis_sentinel_start(r, err);
    hf__link_start(&r->one->commands.link);
    return 0;
}

bool hf__redis_wants_redlock(const struct url *url)
{
    const char *mode = hf__url_param(url, "mode");

    return strncmp(url->scheme, "redlock", 7) == 0 || (mode && strcmp(mode, "plain") == 0);
}

static int redis_open(struct store **ret, const struct url *url, struct env *env,
                      hf_error *err)
{
    struct redis *r = new_redis(env);
    int rc;

    if (!r)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
    if (hf__redis_wants_redlock(url)) {
        rc = hf__redlock_open(r, url, err);
    } else {
        rc = read_url(r, url, err);
        if (rc == 0)
            rc = start(r, url, err);
    }
    if (rc < 0) {
        free_redis(r);
        return rc;
    }
    *ret = &r->store;
    return 0;
}

/* ---- closing --------------------------------------------------------------------- */

void hf__redis_close(struct store *s)
{
    struct redis *r = redis_of(s);
    struct list *n;

    r->closing = true;
    while ((n = list_first(&r->looks)) != NULL)
        hf__redis_stop(s, container_of(n, struct look, drv_node), NULL);
    while ((n = list_first(&r->cells)) != NULL)
        hf__redis_stop(s, NULL, container_of(n, struct cell, drv_node));
    hf__redis_conn_flush(r);
    hf__redlock_close(r);
    free_redis(r);
}

void hf__redis_flush(struct store *s)
{
    hf__redis_conn_flush(redis_of(s));
}

/* In the child: the sockets are the parent's, and so is everything that is on them. */
void hf__redis_forked(struct store *s)
{
    struct redis *r = redis_of(s);

    node_for(n, r) {
        hf__stream_forked(&n->commands.stream);
        hf__stream_forked(&n->messages.stream);
    }
}

static void redis_detail(char *text, size_t size)
{
    snprintf(text, size, "Redis 6.2 or later, Valkey; hiredis %d.%d.%d", HIREDIS_MAJOR,
             HIREDIS_MINOR, HIREDIS_PATCH);
}

const struct hf_driver hf__driver_redis = {
    .name = "redis",
    .schemes = "redis rediss redis+unix redis+sentinel rediss+sentinel redis+cluster "
               "rediss+cluster redlock redlocks",
    .open = redis_open,
    .close = hf__redis_close,
    .join = hf__redis_join,
    .leave = hf__redis_leave,
    .amend = hf__redis_amend,
    .renew = hf__redis_renew,
    .look = hf__redis_look,
    .cell = hf__redis_cell,
    .evict = hf__redis_evict,
    .stop = hf__redis_stop,
    .flush = hf__redis_flush,
    .forked = hf__redis_forked,
    .detail = redis_detail,
    .admin = hf__redis_admin,
};
