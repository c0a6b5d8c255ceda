/* connect.c: how a connection of libpq comes up.
 *
 * Names are looked up by src/net, because libpq would block the loop for it; what libpq
 * then gets is every address, with the name beside it for TLS. libpq closes and opens
 * sockets as it likes while it connects, so the descriptor is unwatched before every call.
 */
#include "driver/postgres/postgres.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* ---- errors ---------------------------------------------------------------------- */

void hf__postgres_first_line(char *to, size_t size, const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    snprintf(to, size, "%.*s", (int)strcspn(text, "\n"), text);
}

/* Of several addresses libpq tells what became of each: the last one, to which the SQLSTATE
 * belongs. */
static const char *last_failure(const char *text)
{
    const char *last = text;

    for (const char *p = text; p; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (strncmp(p, "connection to server", 20) == 0)
            last = p;
    }
    return last;
}

/* What a server says while we log in comes as text only: "FATAL:  28P01: ..." */
static void find_state(char state[6], const char *text)
{
    state[0] = '\0';
    for (const char *p = strstr(text, ":  "); p; p = strstr(p + 1, ":  "))
        if (strlen(p) > 9 && p[8] == ':' &&
            strspn(p + 3, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5)
            snprintf(state, 6, "%.5s", p + 3);
}

static void connect_error(const struct pg_conn *c, hf_error *err)
{
    const char *text = c->pg ? PQerrorMessage(c->pg) : "no memory";
    char state[6], line[400];
    int code;

    find_state(state, text);
    hf__postgres_first_line(line, sizeof line, last_failure(text));
    code = state[0] ? hf__postgres_kind(state).code : HF_EUNREACHABLE;
    if (c->pg && PQconnectionNeedsPassword(c->pg))
        code = HF_EAUTH;
    else if (strncmp(line, "invalid ", 8) == 0)
        code = HF_EINVAL;
    if (code == HF_EPROTO)
        code = HF_EUNREACHABLE;
    hf__fail(err, code, 0, c->c.sql->shown, "%s", line);
}

void hf__postgres_lost(struct pg_conn *c)
{
    hf_error err;

    connect_error(c, &err);
    if (c->c.up)
        err.code = HF_EUNREACHABLE; /* the next greeting tells if we are refused for good */
    hf__sql_conn_lost(&c->c, &err);
}

/* ---- what libpq is given --------------------------------------------------------- */

enum { KEYWORDS_MAX = 64 };

struct keywords {
    const char *keys[KEYWORDS_MAX], *values[KEYWORDS_MAX];
    size_t n;
    struct text hosts, addresses, ports; /* with commas between them */
};

static void add_keyword(struct keywords *k, const char *key, const char *value)
{
    if (value && k->n + 1 < KEYWORDS_MAX) {
        k->keys[k->n] = key;
        k->values[k->n++] = value;
    }
}

/* Those of the URL that are not ours. */
static void add_params(struct keywords *k, const struct sql *s)
{
    static const char *const ours[] = { "wake", "password_file", "mode" };
    const size_t n = sizeof ours / sizeof *ours;

    for (size_t i = 0, j; i < s->nparams; i++) {
        for (j = 0; j < n && strcmp(s->params[i].key, ours[j]) != 0;)
            j++;
        if (j == n)
            add_keyword(k, s->params[i].key, s->params[i].value);
    }
}

/* Another address is the first after one was silent. */
static void add_addresses(struct keywords *k, const struct pg_conn *c)
{
    for (size_t i = 0; i < c->naddresses; i++) {
        const struct pg_address *a = &c->addresses[(c->turn + i) % c->naddresses];
        const char *comma = i > 0 ? "," : "";

        hf__text_add(&k->hosts, "%s%s", comma, a->host->host);
        hf__text_add(&k->addresses, "%s%s", comma, a->ip);
        hf__text_add(&k->ports, "%s%u", comma, (unsigned)a->host->port);
    }
    add_keyword(k, "host", k->hosts.buf);
    add_keyword(k, "hostaddr", k->addresses.buf);
    add_keyword(k, "port", k->ports.buf);
}

/* The later of two decides: those of the URL. GSS encryption would ask other servers,
 * blocking the loop, so it must be asked for. */
static void set_keywords(struct keywords *k, const struct pg_conn *c, const char *password)
{
    const struct sql *s = c->c.sql;

    add_keyword(k, "fallback_application_name", "holdfast");
    add_keyword(k, "client_encoding", "UTF8");
    add_keyword(k, "gssencmode", "disable");
    if (c->c.session) { /* a server that has gone without a word while we wait */
        add_keyword(k, "keepalives_idle", "10");
        add_keyword(k, "keepalives_interval", "5");
        add_keyword(k, "keepalives_count", "3");
        add_keyword(k, "tcp_user_timeout", "25000"); /* while data is unacknowledged */
    }
    if (c->naddresses > 1)
        add_keyword(k, "target_session_attrs", "read-write");
    add_keyword(k, "dbname", s->database[0] ? s->database : NULL);
    add_keyword(k, "user", s->open.login.user);
    add_keyword(k, "password", password[0] ? password : NULL);
    add_addresses(k, c);
    add_params(k, s);
}

/* libpq tells that only of a connection: one that is refused at once, because a value makes
 * no sense. */
PQconninfoOption *hf__postgres_settings(const struct sql *s, hf_error *err)
{
    struct keywords k = { .n = 0 };
    PQconninfoOption *all;
    bool taken = false;
    PGconn *pg;

    add_params(&k, s);
    add_keyword(&k, "sslmode", "none of these");
    pg = PQconnectStartParams(k.keys, k.values, 0);
    all = PQconninfo(pg);
    for (const PQconninfoOption *o = all; o && o->keyword; o++)
        taken |= strcmp(o->keyword, "sslmode") == 0 && o->val && strchr(o->val, ' ');
    if (!all) {
        hf__sql_no_memory(err);
    } else if (!taken) {
        const char *text = PQerrorMessage(pg);

        hf__fail(err, HF_EINVAL, 0, s->shown, "%.*s", (int)strcspn(text, "\n"), text);
        PQconninfoFree(all);
        all = NULL;
    }
    PQfinish(pg);
    return all;
}

/* libpq would print to stderr. */
static void ignore_notice(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}

/* ---- connecting ------------------------------------------------------------------ */

/* libpq goes on to the next address when one refuses, and not when one is silent. So each
 * has its part of the time. If all were too slow for that, each has all of it. */
static void take_turns(struct pg_conn *c)
{
    struct env *env = sql_env(&c->c);
    int64_t ms = c->c.sql->open.connect_ms;

    if (c->silent < c->naddresses)
        ms /= (int64_t)c->naddresses;
    env->timer(env, &c->c.timer, env->now(env) + ms * 1000);
}

static int start(struct pg_conn *c, hf_error *err)
{
    char password[PASSWORD_MAX + 1];
    struct keywords k = { .n = 0 };
    int rc = hf__login_password(&c->c.sql->open.login, password, err);

    if (rc < 0)
        return rc;
    if (c->naddresses > 1)
        take_turns(c);
    set_keywords(&k, c, password);
    if (!k.hosts.failed && !k.addresses.failed && !k.ports.failed)
        c->pg = PQconnectStartParams(k.keys, k.values, 0);
    explicit_bzero(password, sizeof password);
    free(k.hosts.buf);
    free(k.addresses.buf);
    free(k.ports.buf);
    if (!c->pg)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a connection");
    PQsetErrorVerbosity(c->pg, PQERRORS_VERBOSE);
    PQsetNoticeProcessor(c->pg, ignore_notice, NULL);
    if (PQstatus(c->pg) != CONNECTION_BAD && hf__sql_conn_watch(&c->c, EPOLLOUT) == 0)
        return 0;
    connect_error(c, err);
    PQfinish(c->pg);
    c->pg = NULL;
    return err->code;
}

/* Frees the list. 0 or HF_ENOMEM */
static int keep(struct pg_conn *c, struct addresses *list, hf_error *err)
{
    struct pg_address *all = realloc(c->addresses, (c->naddresses + list->n) * sizeof *all);

    for (size_t i = 0; all && i < list->n; i++)
        if (hf__sql_ip(all[c->naddresses].ip, &list->a[i]))
            all[c->naddresses++].host = &c->c.sql->open.hosts[c->next_host];
    if (all)
        c->addresses = all;
    free(list);
    return all ? 0 : hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a connection");
}

/* The names from next_host on; then libpq begins. */
static int look_up(struct pg_conn *c, hf_error *err)
{
    const struct opening *o = &c->c.sql->open;

    for (; c->next_host < o->nhosts; c->next_host++) {
        struct addresses *list;
        int rc = hf__sql_look_up(&c->c, &o->hosts[c->next_host], &list, err);

        if (rc == 0 && list)
            rc = keep(c, list, err);
        if (rc < 0 || !list)
            return rc;
    }
    return start(c, err);
}

int hf__postgres_found(struct sql_conn *k, struct addresses *list, hf_error *err)
{
    struct pg_conn *c = pg_conn_of(k);
    int rc = list ? keep(c, list, err) : 0;

    c->next_host++;
    if (!list && c->next_host == k->sql->open.nhosts && c->naddresses == 0)
        rc = err->code; /* none of them has an address */
    return rc == 0 ? look_up(c, err) : rc;
}

int hf__postgres_connect(struct sql_conn *k, int64_t ms, hf_error *err)
{
    struct pg_conn *c = pg_conn_of(k);
    struct env *env = sql_env(k);

    c->next_host = c->naddresses = 0;
    env->timer(env, &k->timer, env->now(env) + ms * 1000);
    return look_up(c, err);
}

bool hf__postgres_due(struct sql_conn *k)
{
    pg_conn_of(k)->turn++;
    pg_conn_of(k)->silent++;
    return false;
}

static bool begin(struct pg_conn *c)
{
    sql_env(&c->c)->timer(sql_env(&c->c), &c->c.timer, LOOP_NEVER);
    c->silent = 0;
    if (PQsetnonblocking(c->pg, 1) != 0 || PQenterPipelineMode(c->pg) != 1 ||
        hf__sql_conn_watch(&c->c, EPOLLIN) < 0)
        return false;
    c->c.up = true;
    hf__link_opened(&c->c.link);
    return true;
}

void hf__postgres_connect_step(struct pg_conn *c)
{
    struct env *env = sql_env(&c->c);
    bool good = false;

    env->unwatch(env, &c->c.watch); /* the socket may become another one */
    switch (PQconnectPoll(c->pg)) {
    case PGRES_POLLING_READING:
        good = hf__sql_conn_watch(&c->c, EPOLLIN) == 0;
        break;
    case PGRES_POLLING_WRITING:
        good = hf__sql_conn_watch(&c->c, EPOLLOUT) == 0;
        break;
    case PGRES_POLLING_OK:
        good = begin(c);
        break;
    default:
        break;
    }
    if (!good)
        hf__postgres_lost(c);
}
