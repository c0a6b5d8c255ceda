/* driver.c: the etcd driver's face: what a URL says, opening, closing, the table of verbs.
 *
 * Opening only begins: names are resolved and a member is asked by the loop, and the core
 * hears UP or why not. Closing revokes the leases, which takes with it whatever of ours is
 * left in lines. */
#include "driver/etcd/etcd.h"
#include "util/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT = 2379, LEAST_TTL_MS = 1000 };
#define MOST_TTL_MS ((int64_t)9000000000000) /* etcd grants no more */

static int read_url(struct etcd *e, const struct url *url, hf_error *err)
{
    const struct opening_rules rules = { .params = "names password_file",
                                         .port = PORT,
                                         .tls = strcmp(url->scheme, "etcds") == 0,
                                         .tls_schemes = "etcds://",
                                         .alpn = "h2",
                                         .shuffle = true };
    const char *names = hf__url_param(url, "names");
    int rc;

    if (url->nhosts == 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: a host is missing");
    if (names && strcmp(names, "raw") != 0 && strcmp(names, "escaped") != 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: names=%s: escaped or raw",
                        names);
    e->raw = names && strcmp(names, "raw") == 0;
    rc = hf__opening_read(&e->open, url, e->store.env, &rules, err);
    if (rc == 0 && !e->open.login.user != !login_wanted(&e->open.login))
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "URL: a user and a password, or neither");
    return rc < 0 ? rc : hf__etcd_base(e, url, err);
}

static void free_etcd(struct etcd *e)
{
    struct env *env = e->store.env;

    hf__etcd_conn_done(&e->conn);
    env->timer(env, &e->pulse, LOOP_NEVER);
    hf__opening_done(&e->open);
    hf__map_done(&e->lines);
    hf__map_done(&e->watches);
    free(e);
}

static struct etcd *new_etcd(struct env *env)
{
    struct etcd *e = calloc(1, sizeof *e);

    if (!e)
        return NULL;
    e->store = (struct store){
        .env = env,
        .driver = &hf__driver_etcd,
        .caps = HF_CAP_DEADLINE | HF_CAP_FIFO | HF_CAP_FENCE | HF_CAP_SHARED |
                HF_CAP_PERMITS | HF_CAP_LINE | HF_CAP_TTL | HF_CAP_KEEP | HF_CAP_CELL |
                HF_CAP_CELL_EXPIRY,
        .least_ttl_ms = LEAST_TTL_MS,
        .most_ttl_ms = MOST_TTL_MS,
        .least_cell_ttl_ms = 2 * LEAST_TTL_MS,
        .most_cell_ttl_ms = MOST_TTL_MS,
        .name_max = HF_NAME_MAX,
        .starts_down = true,
        .shares_lives = true,
    };
    e->numbers = SLOTS;
    list_init(&e->dirty);
    list_init(&e->leases);
    list_init(&e->old);
    list_init(&e->follows);
    timer_init(&e->pulse, hf__etcd_pulse);
    hf__ordered_init(&e->ordered, &hf__etcd_ordered, &e->store);
    env->random(env, e->hash_key, sizeof e->hash_key);
    if (hf__map_init(&e->lines) < 0 || hf__map_init(&e->watches) < 0) {
        free_etcd(e);
        return NULL;
    }
    return e;
}

static int etcd_open(struct store **ret, const struct url *url, struct env *env,
                     hf_error *err)
{
    struct etcd *e = new_etcd(env);
    int rc;

    if (!e)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
    rc = read_url(e, url, err);
    if (rc < 0) {
        free_etcd(e);
        return rc;
    }
    hf__etcd_conn_init(&e->conn, env, &hf__etcd_events, &e->dirty, e->open.connect_ms);
    e->conn.watched = hf__etcd_watched;
    e->conn.link.choices = e->open.nhosts;
    hf__etcd_next_member(e);
    hf__link_start(&e->conn.link);
    *ret = &e->store;
    return 0;
}

/* What is still unanswered is told to nobody. */
static void etcd_close(struct store *s)
{
    struct etcd *e = etcd_of(s);
    struct link_call *call;
    struct list *n;

    e->shut = true;
    hf__link_done(&e->conn.link);
    while ((call = hf__link_take(&e->conn.link)) != NULL)
        hf__etcd_unanswered(&e->conn.link, call);
    hf__etcd_watches_down(e);
    while ((call = hf__link_take(&e->conn.link)) != NULL) /* of follows */
        hf__etcd_unanswered(&e->conn.link, call);
    hf__ordered_close(&e->ordered);
    list_splice(&e->old, &e->leases);
    while ((n = list_first(&e->old)) != NULL)
        hf__etcd_lease_free(container_of(n, struct etcd_lease, node));
    free_etcd(e);
}

static void etcd_flush(struct store *s)
{
    hf__link_flush(&etcd_of(s)->dirty);
}

/* In the child: the socket is the parent's, and so are the leases. */
static void etcd_forked(struct store *s)
{
    hf__etcd_conn_forked(&etcd_of(s)->conn);
}

static void add_quoted(struct text *t, const char *word, size_t len)
{
    hf__text_add(t, " '");
    for (size_t i = 0; i < len; i++)
        hf__text_add(t, word[i] == '\'' ? "'\\''" : "%c", word[i]);
    hf__text_add(t, "'");
}

/* Where authentication is enabled: a role that may do everything below the prefix, and
 * nothing else, for a user of the same name. Lines for a shell. */
static char *etcd_admin(const struct url *url, hf_error *err)
{
    const char *user = url->user ? url->user : "USER";
    struct etcd e = { .base_len = 0 };
    struct text t = { 0 };
    char *made = NULL;

    if (hf__etcd_base(&e, url, err) < 0)
        return NULL;
    if (e.base_len == 0 && url->nhosts > 0)
        hf__text_add(&t, "# without a prefix in the URL: all keys of the cluster\n");
    hf__text_add(&t, "etcdctl role add");
    add_quoted(&t, user, strlen(user));
    hf__text_add(&t, "\netcdctl role grant-permission --prefix=true");
    add_quoted(&t, user, strlen(user));
    hf__text_add(&t, " readwrite");
    if (e.base_len == 0 && url->nhosts == 0) /* a scheme alone */
        add_quoted(&t, "PREFIX/", 7);
    else
        add_quoted(&t, e.base, e.base_len);
    hf__text_add(&t, "\netcdctl user add");
    add_quoted(&t, user, strlen(user));
    hf__text_add(&t, "\netcdctl user grant-role");
    add_quoted(&t, user, strlen(user));
    add_quoted(&t, user, strlen(user));
    hf__text_add(&t, "\n");
    made = hf__text_take(&t);
    if (!made)
        hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a text");
    return made;
}

static void etcd_detail(char *text, size_t size)
{
    snprintf(text, size, "etcd 3.4 or later; nghttp2 %s, protobuf-c %s",
             nghttp2_version(0)->version_str, protobuf_c_version());
}

const struct hf_driver hf__driver_etcd = {
    .name = "etcd",
    .schemes = "etcd etcds",
    .open = etcd_open,
    .shut = hf__etcd_shut,
    .close = etcd_close,
    .join = hf__etcd_join,
    .leave = hf__etcd_leave,
    .amend = hf__etcd_amend,
    .renew = hf__etcd_renew,
    .look = hf__etcd_look,
    .cell = hf__etcd_cell,
    .evict = hf__etcd_evict,
    .stop = hf__etcd_stop,
    .flush = etcd_flush,
    .forked = etcd_forked,
    .detail = etcd_detail,
    .admin = etcd_admin,
};
