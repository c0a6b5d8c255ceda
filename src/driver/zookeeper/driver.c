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

/* One of two words, of which the first is the default; *ret: it is the second. */
static int choose(bool *ret, const struct url *url, const char *param, const char *first,
                  const char *second, hf_error *err)
{
    const char *word = hf__url_param(url, param);

    *ret = word && strcmp(word, second) == 0;
    if (!word || *ret || strcmp(word, first) == 0)
        return 0;
    return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: %s=%s: %s or %s", param, word,
                    first, second);
}

static int read_options(struct zk *z, const struct url *url, hf_error *err)
{
    const char *auth = hf__url_param(url, "auth");
    int rc = choose(&z->alone, url, "mode", "line", "ephemeral", err);

    if (rc == 0)
        rc = choose(&z->names_rw, url, "names", "curator", "rw", err);
    if (rc < 0)
        return rc;
    if (auth && (!strchr(auth, ':') || url->user))
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: auth=USER:PASSWORD, once");
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

/* ---- opening and closing --------------------------------------------------------- */

/* Also of one that could not be opened. */
static void zk_close(struct store *s)
{
    struct zk *z = zk_of(s);
    struct list *n;

    while ((n = list_first(&z->looks)) != NULL)
        hf__zk_stop(s, container_of(n, struct look, drv_node), NULL);
    while ((n = list_first(&z->cells)) != NULL)
        hf__zk_stop(s, NULL, container_of(n, struct cell, drv_node));
    hf__zk_conn_done(z); /* told to nobody: it is freed with what it was about */
    hf__ordered_close(&z->ordered);
    hf__zk_alone_close(z);
    hf__zk_session_done(z);
    hf__opening_done(&z->open);
    if (z->login)
        explicit_bzero(z->login, strlen(z->login));
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
    z->store.starts_down = z->store.shares_lives = true;
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
        zk_close(&z->store);
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
        zk_close(&z->store);
        return rc;
    }
    set_caps(z);
    z->link.choices = z->open.nhosts;
    hf__link_start(&z->link);
    *ret = &z->store;
    return 0;
}

/* ---- verbs ----------------------------------------------------------------------- */

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
    .shut = hf__zk_session_end,
    .close = zk_close,
    .join = hf__zk_join,
    .leave = hf__zk_leave,
    .amend = hf__zk_amend,
    .renew = hf__zk_renew,
    .look = hf__zk_look,
    .cell = hf__zk_cell,
    .evict = hf__zk_evict,
    .stop = hf__zk_stop,
    .flush = hf__zk_flush,
    .forked = zk_forked,
    .detail = zk_detail,
    .admin = hf__zk_admin,
};
