/* driver.c: the zookeeper driver's face: what a URL says, opening, closing, the table of
 * verbs.
 *
 * Opening only begins: names are resolved and a session is made by the loop, and the
 * core hears UP or why not. Closing ends the session, which takes with it whatever of
 * ours is left in lines. */
#include "driver/zookeeper/zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PORT = 2181, TLS_PORT = 2281, TTL_MS = 30000, LEAST_TTL_MS = 100 };

/* ---- the URL --------------------------------------------------------------------- */

static int read_options(struct zk *z, const struct url *url, hf_error *err)
{
    const char *mode = hf__url_param(url, "mode"), *names = hf__url_param(url, "names");
    const char *auth = hf__url_param(url, "auth");
    int rc = hf__url_known(url, "mode names auth tls_ca tls_cert tls_key", err), n;

    if (rc < 0)
        return rc;
    if (mode && strcmp(mode, "ephemeral") != 0 && strcmp(mode, "line") != 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: mode=%s: line or ephemeral",
                        mode);
    if (names && strcmp(names, "rw") != 0 && strcmp(names, "curator") != 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: names=%s: curator or rw",
                        names);
    if (auth && (!strchr(auth, ':') || url->user))
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: auth=USER:PASSWORD, once");
    z->alone = mode && strcmp(mode, "ephemeral") == 0;
    z->names = names && strcmp(names, "rw") == 0 ? NAMES_RW : NAMES_CURATOR;
    if (auth) {
        z->login = strdup(auth);
    } else if (url->user) {
        n = asprintf(&z->login, "%s:%s", url->user, url->password ? url->password : "");
        z->login = n < 0 ? NULL : z->login;
    }
    if ((auth || url->user) && !z->login)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
    return 0;
}

static int read_tls(struct zk *z, const struct url *url, hf_error *err)
{
    const struct tls_config config = { .ca = hf__url_param(url, "tls_ca"),
                                       .cert = hf__url_param(url, "tls_cert"),
                                       .key = hf__url_param(url, "tls_key") };
    struct env *env = z->store.env;
    int rc;

    if (strcmp(url->scheme, "zks") != 0) {
        if (config.ca || config.cert || config.key)
            return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: tls_* needs zks://");
        return 0;
    }
    rc = env->tls(env, &z->tls, err);
    if (rc == 0)
        rc = z->tls->context_new(&z->tls_context, &config, err);
    return rc;
}

/* In an order of our own: the clients of an ensemble spread over it. */
static void shuffle(struct zk *z)
{
    for (size_t i = z->nservers; i > 1; i--) {
        uint32_t dice;
        struct zk_server swap = z->servers[i - 1];
        size_t k;

        z->store.env->random(z->store.env, &dice, sizeof dice);
        k = dice % i;
        z->servers[i - 1] = z->servers[k];
        z->servers[k] = swap;
    }
}

static int read_servers(struct zk *z, const struct url *url, hf_error *err)
{
    uint16_t port = strcmp(url->scheme, "zks") == 0 ? TLS_PORT : PORT;

    if (url->nhosts == 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: a host is missing");
    z->servers = calloc(url->nhosts, sizeof *z->servers);
    for (size_t i = 0; z->servers && i < url->nhosts; i++) {
        struct zk_server *s = &z->servers[i];

        s->host = strdup(url->hosts[i].host);
        s->port = url->hosts[i].port ? url->hosts[i].port : port;
        if (!s->host)
            break;
        snprintf(s->shown, sizeof s->shown, strchr(s->host, ':') ? "[%s]:%u" : "%s:%u",
                 s->host, (unsigned)s->port);
        z->nservers++;
    }
    if (z->nservers < url->nhosts)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
    shuffle(z);
    return 0;
}

static int read_url(struct zk *z, const struct url *url, hf_error *err)
{
    int rc = read_servers(z, url, err), n;

    if (rc == 0)
        rc = read_options(z, url, err);
    if (rc < 0)
        return rc;
    n = hf__zk_root(z->root, url->path, url->ns);
    if (n < 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "URL: '%s' is not a path of ZooKeeper, or too long", url->path);
    z->root_len = (size_t)n;
    z->asked_ms = url->ttl_ms ? url->ttl_ms : TTL_MS;
    return read_tls(z, url, err);
}

/* ---- opening --------------------------------------------------------------------- */

static void free_zk(struct zk *z)
{
    struct env *env = z->store.env;

    hf__zk_conn_done(z);
    env->timer(env, &z->retry, LOOP_NEVER);
    env->timer(env, &z->pulse, LOOP_NEVER);
    if (z->tls)
        z->tls->context_free(z->tls_context);
    if (z->login)
        explicit_bzero(z->login, strlen(z->login));
    explicit_bzero(&z->session, sizeof z->session);
    hf__zk_quiet_forget(z);
    hf__map_done(&z->quiet_lines);
    hf__map_done(&z->lines);
    for (size_t i = 0; i < z->nservers; i++)
        free(z->servers[i].host);
    free(z->servers);
    free(z->login);
    free(z->shown);
    free(z);
}

static void set_caps(struct zk *z)
{
    z->store.caps = HF_CAP_DEADLINE | HF_CAP_FENCE | HF_CAP_CELL;
    if (!z->alone)
        z->store.caps |= HF_CAP_FIFO | HF_CAP_SHARED | HF_CAP_PERMITS | HF_CAP_LINE;
    z->store.least_ttl_ms = LEAST_TTL_MS;
    z->store.most_ttl_ms = INT32_MAX;
    z->store.name_max = HF_NAME_MAX;
    z->store.starts_down = true;
}

static struct zk *new_zk(const struct url *url, struct env *env)
{
    struct zk *z = calloc(1, sizeof *z);

    if (!z)
        return NULL;
    list_init(&z->sent);
    list_init(&z->quiets);
    list_init(&z->alones);
    list_init(&z->looks);
    list_init(&z->cells);
    timer_init(&z->retry, hf__zk_session_retry);
    timer_init(&z->pulse, hf__zk_session_pulse);
    z->store.env = env;
    z->store.driver = &hf__driver_zookeeper;
    hf__ordered_init(&z->ordered, &hf__zk_ordered, &z->store);
    z->connect_ms = url->connect_ms;
    env->random(env, z->hash_key, sizeof z->hash_key);
    gethostname(z->host, sizeof z->host - 1);
    z->pid = getpid();
    z->shown = strdup(url->shown);
    hf__zk_conn_init(z);
    if (!z->shown || hf__map_init(&z->lines) < 0 || hf__map_init(&z->quiet_lines) < 0) {
        free_zk(z);
        return NULL;
    }
    return z;
}

static int zk_open(struct store **ret, const struct url *url, struct env *env,
                   hf_error *err)
{
    struct zk *z = new_zk(url, env);
    int rc;

    if (!z)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
    rc = read_url(z, url, err);
    if (rc < 0) {
        free_zk(z);
        return rc;
    }
    set_caps(z);
    hf__zk_session_start(z);
    *ret = &z->store;
    return 0;
}

/* ---- closing --------------------------------------------------------------------- */

/* What is still unanswered is told to nobody: it is freed with what it was about. */
static void forget(struct zk *z)
{
    struct list todo, *n;

    list_init(&todo);
    list_splice(&todo, &z->sent);
    z->link = LINK_CLOSED;
    z->closing = true;
    while ((n = list_pop(&todo)) != NULL) {
        struct request *q = container_of(n, struct request, node);

        q->answer(z, q, NULL);
        free(q);
    }
    hf__ordered_close(&z->ordered);
    hf__zk_alone_close(z);
}

static void zk_close(struct store *s)
{
    struct zk *z = zk_of(s);
    struct list *n;

    while ((n = list_first(&z->looks)) != NULL)
        hf__zk_stop(s, container_of(n, struct look, drv_node), NULL);
    while ((n = list_first(&z->cells)) != NULL)
        hf__zk_stop(s, NULL, container_of(n, struct cell, drv_node));
    forget(z);
    if (z->life) {
        z->life->drv[0] = (uint64_t)(uintptr_t)z->old;
        z->old = z->life;
        z->life = NULL;
    }
    hf__zk_session_tidy(z);
    free_zk(z);
}

static void zk_shut(struct store *s)
{
    hf__zk_session_end(zk_of(s));
}

static void zk_flush(struct store *s)
{
    hf__zk_flush(zk_of(s));
}

/* In the child: the socket is the parent's, and so is the session. */
static void zk_forked(struct store *s)
{
    hf__stream_forked(&zk_of(s)->stream);
}

static void zk_detail(char *text, size_t size)
{
    snprintf(text, size, "ZooKeeper 3.5 or later; own client");
}

const struct hf_driver hf__driver_zookeeper = {
    .name = "zookeeper",
    .schemes = "zk zks",
    .open = zk_open,
    .shut = zk_shut,
    .close = zk_close,
    .join = hf__zk_join,
    .leave = hf__zk_leave,
    .amend = hf__zk_amend,
    .renew = hf__zk_renew,
    .look = hf__zk_look,
    .cell = hf__zk_cell,
    .evict = hf__zk_evict,
    .stop = hf__zk_stop,
    .flush = zk_flush,
    .forked = zk_forked,
    .detail = zk_detail,
    .admin = hf__zk_admin,
};
