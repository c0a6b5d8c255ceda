/* driver.c: the postgres driver's face: what a URL says, opening, closing, the table of
 * verbs. Opening only begins: names are looked up and the server is greeted by the loop,
 * and the core hears UP or why not. Closing is at once: what could be settled was settled
 * before. */
#include "driver/postgres/postgres.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS "wake host password_file mode"

enum { PORT = 5432, KEYWORDS_TEXT = 1500 };

/* ---- the URL --------------------------------------------------------------------- */

/* connect_timeout is the core's; of what libpq knows, these are no setting of a client. */
static bool is_ours(const char *key)
{
    return strcmp(key, "connect_timeout") == 0 || strcmp(key, "replication") == 0;
}

/* OPTIONS, and every keyword of this libpq. */
static int known_options(char text[KEYWORDS_TEXT], hf_error *err)
{
    PQconninfoOption *all = PQconndefaults();
    size_t n = (size_t)snprintf(text, KEYWORDS_TEXT, "%s", OPTIONS);

    if (!all)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
    for (PQconninfoOption *o = all; o->keyword && n < KEYWORDS_TEXT; o++)
        if (!is_ours(o->keyword))
            n += (size_t)snprintf(text + n, KEYWORDS_TEXT - n, " %s", o->keyword);
    PQconninfoFree(all);
    return 0;
}

static bool is_option(const char *key)
{
    return strcmp(key, "wake") == 0 || strcmp(key, "password_file") == 0 ||
           strcmp(key, "mode") == 0;
}

static int read_params(struct postgres *p, const struct url *url, hf_error *err)
{
    p->path = strdup(url->path[0] == '/' ? url->path + 1 : url->path);
    p->params = calloc(url->nparams + 1, sizeof *p->params);
    if (!p->path || !p->params)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
    p->dbname = p->path[0] ? p->path : NULL;
    for (size_t i = 0; i < url->nparams; i++) {
        struct url_param *to = &p->params[p->nparams];

        if (is_option(url->params[i].key))
            continue;
        p->nparams++;
        to->key = strdup(url->params[i].key);
        to->value = strdup(url->params[i].value);
        if (!to->key || !to->value)
            return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
    }
    return 0;
}

static int read_wake(struct postgres *p, const struct url *url, hf_error *err)
{
    const char *wake = hf__url_param(url, "wake"), *host = hf__url_param(url, "host");

    if (wake && strcmp(wake, "poll") != 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: wake=%s: only poll is known",
                        wake);
    p->polls = wake != NULL;
    p->sql.heard = !wake;
    if (host && (url->nhosts > 0 || host[0] != '/'))
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "URL: host= is the folder of a socket; a server stands before the "
                        "path");
    return 0;
}

/* ---- hosts that the URL does not name -------------------------------------------- */

/* What libpq would take from a service file, the environment and its defaults; NULL, and
 * `err` says why. It tells that only of a connection: one that is refused at once, because
 * a value makes no sense. */
static PQconninfoOption *ask_libpq(const struct postgres *p, hf_error *err)
{
    const char **keys = calloc(2 * (p->nparams + 2), sizeof *keys);
    const char **values = keys ? keys + p->nparams + 2 : NULL;
    PQconninfoOption *all = NULL;
    PGconn *c = NULL;
    bool taken = false;

    for (size_t i = 0; keys && i < p->nparams; i++) {
        keys[i] = p->params[i].key;
        values[i] = p->params[i].value;
    }
    if (keys) {
        keys[p->nparams] = "sslmode";
        values[p->nparams] = "none of these";
        c = PQconnectStartParams(keys, values, 0);
        all = PQconninfo(c);
    }
    for (const PQconninfoOption *o = all; o && o->keyword; o++)
        taken |= strcmp(o->keyword, "sslmode") == 0 && o->val && strchr(o->val, ' ');
    if (!all) {
        hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
    } else if (!taken) {
        const char *text = PQerrorMessage(c);

        hf__fail(err, HF_EINVAL, 0, p->sql.shown, "%.*s", (int)strcspn(text, "\n"), text);
        PQconninfoFree(all);
        all = NULL;
    }
    PQfinish(c);
    free(keys);
    return all;
}

static const char *value_of(const PQconninfoOption *all, const char *key)
{
    for (; all->keyword; all++)
        if (strcmp(all->keyword, key) == 0)
            return all->val ? all->val : "";
    return "";
}

/* The next word of a list; the last one stays. */
static void next_word(const char **list, char *word, size_t size)
{
    size_t n = strcspn(*list, ",");

    snprintf(word, size, "%.*s", (int)n, *list);
    if ((*list)[n])
        *list += n + 1;
}

static int add_host(struct opening *o, const char *host, const char *port, hf_error *err)
{
    struct opening_host *more = realloc(o->hosts, (o->nhosts + 1) * sizeof *more);
    struct opening_host *h = more ? &more[o->nhosts] : NULL;

    if (more)
        o->hosts = more;
    if (h)
        h->host = strdup(host);
    if (!h || !h->host)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
    h->port = (uint16_t)(port[0] ? strtoul(port, NULL, 10) : PORT);
    snprintf(h->shown, sizeof h->shown, "%s:%u", host, (unsigned)h->port);
    o->nhosts++;
    return 0;
}

/* Names are to be looked up by us. Addresses and sockets libpq finds without blocking. */
static int read_hosts(struct postgres *p, const struct url *url, hf_error *err)
{
    PQconninfoOption *all;
    const char *hosts, *ports;
    char host[256], port[16];
    int rc = 0;

    if (url->nhosts > 0 || hf__url_param(url, "host"))
        return 0;
    all = ask_libpq(p, err);
    if (!all)
        return err->code;
    hosts = value_of(all, "host");
    ports = value_of(all, "port");
    if (!hosts[0] || strchr("/@", hosts[0]) || value_of(all, "hostaddr")[0])
        hosts = "";
    for (bool more = hosts[0]; more && rc == 0;) {
        more = strchr(hosts, ',') != NULL;
        next_word(&hosts, host, sizeof host);
        next_word(&ports, port, sizeof port);
        rc = add_host(&p->sql.open, host, port, err);
    }
    PQconninfoFree(all);
    return rc;
}

static int read_url(struct postgres *p, const struct url *url, hf_error *err)
{
    char known[KEYWORDS_TEXT];
    const struct opening_rules rules = { .params = known,
                                         .port = PORT,
                                         .tls_schemes =
                                             "another store: here they are "
                                             "sslmode=, sslrootcert=, sslcert=" };
    int rc = known_options(known, err);

    if (rc == 0)
        rc = hf__opening_read(&p->sql.open, url, p->sql.store.env, &rules, err);
    p->sql.shown = p->sql.open.shown;
    if (rc == 0)
        rc = read_wake(p, url, err);
    if (rc == 0)
        rc = hf__sql_read_mode(&p->sql, url, "advisory", err);
    if (rc == 0)
        rc = read_params(p, url, err);
    if (rc == 0)
        rc = read_hosts(p, url, err);
    return rc;
}

/* ---- opening and closing --------------------------------------------------------- */

static void free_postgres(struct postgres *p)
{
    struct env *env = p->sql.store.env;

    hf__postgres_conn_done(&p->commands);
    hf__postgres_conn_done(&p->messages);
    hf__sql_sessions_forget(&p->sql);
    hf__postgres_bury(p);
    env->timer(env, &p->hello_timer, LOOP_NEVER);
    for (size_t i = 0; i < p->nparams; i++) {
        if (p->params[i].value)
            explicit_bzero(p->params[i].value, strlen(p->params[i].value));
        free(p->params[i].key);
        free(p->params[i].value);
    }
    free(p->params);
    free(p->path);
    hf__sql_done(&p->sql);
    free(p);
}

static int postgres_open(struct store **ret, const struct url *url, struct env *env,
                         hf_error *err)
{
    struct postgres *p = calloc(1, sizeof *p);
    int rc;

    if (!p)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
    p->sql.store.driver = &hf__driver_postgres;
    p->sql.wire = &hf__postgres_wire;
    list_init(&p->dirty);
    timer_init(&p->hello_timer, hf__postgres_hello_fired);
    rc = hf__sql_init(&p->sql, url, env);
    if (rc < 0)
        hf__fail(err, rc, 0, NULL, "no memory for a store");
    if (rc == 0)
        rc = read_url(p, url, err);
    if (rc < 0) {
        free_postgres(p);
        return rc;
    }
    memcpy(p->channel, "hf_", 3);
    hf__hex(p->channel + 3, p->sql.client, SQL_CLIENT);
    hf__postgres_conn_init(&p->commands, p, hf__postgres_greet);
    hf__postgres_conn_init(&p->messages, p, hf__postgres_listen_greet);
    hf__link_start(&p->commands.link);
    *ret = &p->sql.store;
    return 0;
}

static void postgres_close(struct store *s)
{
    struct postgres *p = postgres_of(sql_of(s));
    struct list *n;

    while ((n = list_first(&p->sql.looks)) != NULL)
        hf__sql_stop(s, container_of(n, struct look, drv_node), NULL);
    while ((n = list_first(&p->sql.cells)) != NULL)
        hf__sql_stop(s, NULL, container_of(n, struct cell, drv_node));
    hf__postgres_flush(p);
    free_postgres(p);
}

static void postgres_flush(struct store *s)
{
    hf__postgres_flush(postgres_of(sql_of(s)));
}

static void postgres_forked(struct store *s)
{
    hf__postgres_conn_forked(&postgres_of(sql_of(s))->commands);
    hf__postgres_conn_forked(&postgres_of(sql_of(s))->messages);
    list_for(n, &sql_of(s)->sessions)
        hf__postgres_conn_forked(&container_of(n, struct pg_attached, ses.all)->conn);
}

static void postgres_detail(char *text, size_t size)
{
    int version = PQlibVersion();

    snprintf(text, size, "PostgreSQL 14 or later; libpq %d.%d", version / 10000,
             version % 10000);
}

/* An identifier, as SQL quotes it. */
static void add_user(struct text *t, const char *user)
{
    hf__text_add(t, "\"");
    for (; *user; user++)
        hf__text_add(t, *user == '"' ? "\"\"" : "%c", *user);
    hf__text_add(t, "\"");
}

static char *postgres_admin(const struct url *url, hf_error *err)
{
    static const char *const grants[] = {
        "GRANT USAGE ON SCHEMA holdfast TO ",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO ",
        "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast TO ",
    };
    struct text t = { 0 };
    char *made;

    hf__text_add(&t, "%s", hf__postgres_schema);
    for (size_t i = 0; url->user && url->user[0] && i < sizeof grants / sizeof *grants;
         i++) {
        hf__text_add(&t, "%s", grants[i]);
        add_user(&t, url->user);
        hf__text_add(&t, ";\n");
    }
    made = hf__text_take(&t);
    if (!made)
        hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a text");
    return made;
}

const struct hf_driver hf__driver_postgres = {
    .name = "postgres",
    .schemes = "postgres postgresql",
    .open = postgres_open,
    .close = postgres_close,
    .join = hf__sql_join,
    .leave = hf__sql_leave,
    .amend = hf__sql_amend,
    .renew = hf__sql_renew,
    .look = hf__sql_look,
    .cell = hf__sql_cell,
    .evict = hf__sql_evict,
    .stop = hf__sql_stop,
    .flush = postgres_flush,
    .forked = postgres_forked,
    .detail = postgres_detail,
    .admin = postgres_admin,
};
