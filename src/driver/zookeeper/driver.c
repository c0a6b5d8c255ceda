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

enum { PORT = 2181, TLS_PORT = 2281, TTL_MS = 30000, LEAST_TTL_MS = 100 };

/* ---- the URL --------------------------------------------------------------------- */

/* A password file is read only now: the nodes that are made belong to this very password.
 */
static int make_login(struct zk *z, const char *auth, const struct url *url, hf_error *err)
{
    char password[PASSWORD_MAX + 1] = "";
    int rc = 0;

    if (auth && login_wanted(&z->open.login))
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: auth= or password_file=");
    if (login_wanted(&z->open.login))
        rc = hf__login_password(&z->open.login, password, err);
    if (rc == 0 && (auth ? asprintf(&z->login, "%s", auth)
                         : asprintf(&z->login, "%s:%s", url->user, password)) < 0) {
        z->login = NULL;
        rc = hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
    }
    explicit_bzero(password, sizeof password);
    return rc;
}

static int read_options(struct zk *z, const struct url *url, hf_error *err)
{
    const char *mode = hf__url_param(url, "mode"), *names = hf__url_param(url, "names");
    const char *auth = hf__url_param(url, "auth");

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
    if (auth || url->user)
        return make_login(z, auth, url, err);
    if (hf__url_param(url, "password_file"))
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: password_file= needs a user");
    return 0;
}

static int read_url(struct zk *z, const struct url *url, hf_error *err)
{
    const struct opening_rules rules = { .params = "mode names auth password_file",
                                         .port = PORT,
                                         .tls_port = TLS_PORT,
                                         .tls = strcmp(url->scheme, "zks") == 0,
                                         .tls_schemes = "zks://",
                                         .shuffle = true };
    int rc, n;

    if (url->nhosts == 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: a host is missing");
    rc = hf__opening_read(&z->open, url, z->store.env, &rules, err);
    z->shown = z->open.shown;
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
    return 0;
}

/* ---- opening --------------------------------------------------------------------- */

static void free_zk(struct zk *z)
{
    struct env *env = z->store.env;

    hf__zk_conn_done(z);
    env->timer(env, &z->heartbeat, LOOP_NEVER);
    hf__opening_done(&z->open);
    if (z->login)
        explicit_bzero(z->login, strlen(z->login));
    explicit_bzero(&z->session, sizeof z->session);
    hf__zk_quiet_forget(z);
    hf__map_done(&z->lines);
    free(z->login);
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

static struct zk *new_zk(struct env *env)
{
    struct zk *z = calloc(1, sizeof *z);

    if (!z)
        return NULL;
    list_init(&z->dirty);
    list_init(&z->quiets);
    list_init(&z->alones);
    list_init(&z->looks);
    list_init(&z->cells);
    timer_init(&z->heartbeat, hf__zk_session_heartbeat);
    z->store.env = env;
    z->store.driver = &hf__driver_zookeeper;
    hf__ordered_init(&z->ordered, &hf__zk_ordered, &z->store);
    env->random(env, z->hash_key, sizeof z->hash_key);
    hf__zk_conn_init(z);
    if (hf__map_init(&z->lines) < 0) {
        free_zk(z);
        return NULL;
    }
    return z;
}

static int zk_open(struct store **ret, const struct url *url, struct env *env,
                   hf_error *err)
{
    struct zk *z = new_zk(env);
    int rc;

    if (!z)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
    rc = read_url(z, url, err);
    if (rc < 0) {
        free_zk(z);
        return rc;
    }
    set_caps(z);
    z->link.choices = z->open.nhosts;
    hf__link_start(&z->link);
    *ret = &z->store;
    return 0;
}

/* ---- closing --------------------------------------------------------------------- */

static void zk_close(struct store *s)
{
    struct zk *z = zk_of(s);
    struct list *n;

    while ((n = list_first(&z->looks)) != NULL)
        hf__zk_stop(s, container_of(n, struct look, drv_node), NULL);
    while ((n = list_first(&z->cells)) != NULL)
        hf__zk_stop(s, NULL, container_of(n, struct cell, drv_node));
    hf__zk_conn_close(z); /* told to nobody: it is freed with what it was about */
    hf__ordered_close(&z->ordered);
    hf__zk_alone_close(z);
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
