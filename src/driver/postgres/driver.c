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
        return hf__sql_no_memory(err);
    for (PQconninfoOption *o = all; o->keyword && n < KEYWORDS_TEXT; o++)
        if (!is_ours(o->keyword))
            n += (size_t)snprintf(text + n, KEYWORDS_TEXT - n, " %s", o->keyword);
    PQconninfoFree(all);
    return 0;
}

static int read_wake(struct postgres *p, const struct url *url, hf_error *err)
{
    const char *host = hf__url_param(url, "host");
    int rc = hf__sql_read_wake(url, &p->polls, err);

    p->sql.heard = !p->polls;
    if (rc == 0 && host && (url->nhosts > 0 || host[0] != '/'))
        rc = hf__fail(err, HF_EINVAL, 0, url->shown,
                      "URL: host= is the folder of a socket; a server stands before the "
                      "path");
    return rc;
}

/* ---- hosts that the URL does not name -------------------------------------------- */

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
        return hf__sql_no_memory(err);
    h->port = (uint16_t)(port[0] ? strtoul(port, NULL, 10) : PORT);
    snprintf(h->shown, sizeof h->shown, "%s:%u", host, (unsigned)h->port);
    o->nhosts++;
    return 0;
}

/* Names are to be looked up by us. Addresses and sockets libpq finds without blocking. */
static int read_hosts(struct sql *s, const struct url *url, hf_error *err)
{
    PQconninfoOption *all;
    const char *hosts, *ports;
    char host[256], port[16];
    int rc = 0;

    if (url->nhosts > 0 || hf__url_param(url, "host"))
        return 0;
    all = hf__postgres_settings(s, err);
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
        rc = add_host(&s->open, host, port, err);
    }
    PQconninfoFree(all);
    return rc;
}

int hf__postgres_read_url(struct sql *s, const struct url *url, hf_error *err)
{
    struct postgres *p = postgres_of(s);
    char known[KEYWORDS_TEXT];
    const struct opening_rules rules = { .params = known,
                                         .port = PORT,
                                         .tls_schemes =
                                             "another store: here they are "
                                             "sslmode=, sslrootcert=, sslcert=" };
    int rc = known_options(known, err);

    if (rc == 0)
        rc = hf__opening_read(&s->open, url, s->store.env, &rules, err);
    s->shown = s->open.shown;
    if (rc == 0)
        rc = read_wake(p, url, err);
    if (rc == 0)
        rc = hf__sql_read_mode(s, url, "advisory", err);
    if (rc == 0)
        rc = read_hosts(s, url, err);
    return rc;
}

/* ---- opening and closing --------------------------------------------------------- */

void hf__postgres_begin(struct sql *s)
{
    struct postgres *p = postgres_of(s);

    memcpy(p->channel, "hf_", 3);
    hf__hex(p->channel + 3, s->client, SQL_CLIENT);
    s->commands = &p->commands.c;
    hf__sql_conn_init(s->commands, s, hf__postgres_greet);
    hf__sql_conn_init(&p->messages.c, s, hf__postgres_listen_greet);
    p->messages.c.spare = true;
    timer_init(&p->hello_timer, hf__postgres_hello_fired);
}

void hf__postgres_end(struct sql *s)
{
    s->store.env->timer(s->store.env, &postgres_of(s)->hello_timer, LOOP_NEVER);
}

static int postgres_open(struct store **ret, const struct url *url, struct env *env,
                         hf_error *err)
{
    return hf__sql_open(&hf__postgres_wire, ret, url, env, err);
}

static void postgres_detail(char *text, size_t size)
{
    int version = PQlibVersion();

    snprintf(text, size, "PostgreSQL 14 or later; libpq %d.%d", version / 10000,
             version % 10000);
}

static char *postgres_admin(const struct url *url, hf_error *err)
{
    static const char *const grants[] = {
        "GRANT USAGE ON SCHEMA holdfast TO ",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO ",
        "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast TO ",
    };
    struct text t = { 0 };

    hf__text_add(&t, "%s", hf__postgres_schema);
    for (size_t i = 0; url->user && url->user[0] && i < sizeof grants / sizeof *grants;
         i++) {
        hf__text_add(&t, "%s", grants[i]);
        hf__sql_quote(&t, '"', url->user);
        hf__text_add(&t, ";\n");
    }
    return hf__sql_admin_text(&t, err);
}

const struct hf_driver hf__driver_postgres = {
    .name = "postgres",
    .schemes = "postgres postgresql",
    .open = postgres_open,
    SQL_DRIVER,
    .detail = postgres_detail,
    .admin = postgres_admin,
};
