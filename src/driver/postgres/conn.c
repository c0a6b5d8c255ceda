/* conn.c: one connection: libpq as the transport of a link (kit/link.h).
 *
 * Opening: names are looked up by src/net, because libpq would block the loop for it; what
 * libpq then gets is every address, with the name beside it for TLS. libpq closes and opens
 * sockets as it likes while it connects, so the descriptor is unwatched before every call.
 *
 * Up: pipeline mode. A call is one statement and a Sync, so it is a transaction of its own,
 * and many are under way. For each the server sends its rows, then what became of the
 * commit, then that it is ready: only that last message makes an answer. Rows of a
 * statement whose commit failed are overwritten by the error; if the connection breaks
 * before it, nobody knows, and the call stays unanswered (G7). An error that libpq made up
 * itself has no SQLSTATE and is no answer either, nor is one that ends the session.
 *
 * libpq never gives back what it needs for each call under way, so it is given FLYING_MOST
 * of them at a time; the others wait in `backlog`, and are sent when answers come. Joins
 * come last: many of them must not keep renewals and looks waiting. (What follows the join
 * of a ticket comes after its answer anyway: kit/scripted.)
 *
 * Statements are prepared at their first use if the session is ours alone. Behind a
 * transaction pooler they are sent as text every time.
 *
 * schema.sql has many statements, which only the simple protocol takes: pipeline mode is
 * left for it. */
#include "driver/postgres/postgres.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    NUMBERS_MAX = 3 + SQL_RENEW_MOST,
    INT8_LEN = 8,
    FLYING_MOST = 128,
    MESSAGES_TRIES = 4,
    MESSAGES_US = 10000000,
    LOCKED_US =
        100000 /* another call is let in before a row that is locked is tried again */
};

#define OWN "pg_catalog."
#define IS " OPERATOR(" OWN "=) "

static const char *const texts[PG_VERBS] = {
    [SQL_JOIN] = "SELECT holdfast.join($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15)",
    [SQL_WAIT] = "SELECT holdfast.wait($1,$2,$3,$4,$5)",
    [SQL_LEAVE] = "SELECT holdfast.leave($1,$2,$3,$4)",
    [SQL_RENEW] = "SELECT holdfast.renew($1,$2,$3,$4)",
    [SQL_AMEND] = "SELECT holdfast.amend($1,$2,$3,$4,$5,$6,$7,$8)",
    [SQL_LOOK] = "SELECT * FROM holdfast.look($1,$2,$3,$4,$5,$6)",
    [SQL_LIST] = "SELECT * FROM holdfast.list($1,$2,$3,$4,$5)",
    [SQL_CELL] = "SELECT * FROM holdfast.cell($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)",
    [SQL_EVICT] = "SELECT holdfast.evict($1,$2,$3,$4)",
    [SQL_KEEP] = "SELECT holdfast.keep($1,$2,$3,$4,$5)",
    [SQL_SWEEP] = "SELECT holdfast.sweep($1)",
    /* Like the functions, these use nothing but what is the server's own: types that are
     * words of the language, functions and operators of pg_catalog. */
    [PG_HELLO] =
        "SELECT " OWN "pg_backend_pid()::bigint, (extract(epoch FROM a.backend_start)"
        " OPERATOR(" OWN "*) 1000000::numeric)::bigint,"
        " " OWN "current_setting('server_version_num')::bigint,"
        " CASE WHEN " OWN "pg_is_in_recovery() THEN 1 ELSE 0 END::bigint,"
        " CASE WHEN " OWN "current_setting('transaction_read_only')" IS
        "'on' THEN 1 ELSE 0 END::bigint,"
        " CASE WHEN " OWN "current_setting('fsync')" IS "'off' THEN 1 ELSE 0 END::bigint,"
        " CASE WHEN " OWN "current_setting('full_page_writes')" IS
        "'off' THEN 1 ELSE 0 END::bigint,"
        " CASE WHEN " OWN "to_regclass('holdfast.format') IS NULL THEN 0 ELSE 1"
        " END::bigint,"
        " CASE WHEN " OWN "to_regclass('holdfast.format') IS NULL"
        " AND NOT " OWN "pg_try_advisory_xact_lock(7525353031127561076)"
        " THEN 1 ELSE 0 END::bigint"
        " FROM " OWN "pg_stat_activity a WHERE a.pid" IS OWN "pg_backend_pid()",
    [SQL_END] =
        "SELECT CASE WHEN " OWN "pg_terminate_backend(a.pid, $3::bigint) THEN 1 ELSE 0"
        " END::bigint FROM " OWN "pg_stat_activity a WHERE a.pid::bigint" IS "$1::bigint"
        " AND (extract(epoch FROM a.backend_start)"
        " OPERATOR(" OWN "*) 1000000::numeric)::bigint" IS "$2::bigint",
    [SQL_CANCEL] =
        "SELECT CASE WHEN " OWN "pg_cancel_backend(a.pid) THEN 1 ELSE 0 END::bigint"
        " FROM " OWN "pg_stat_activity a WHERE a.pid::bigint" IS "$1::bigint"
        " AND (extract(epoch FROM a.backend_start)"
        " OPERATOR(" OWN "*) 1000000::numeric)::bigint" IS "$2::bigint",
    [PG_ATTACH] = "SELECT * FROM holdfast.attach()",
    [PG_SHAPE] =
        "SELECT " OWN "max(version), (SELECT " OWN "count(DISTINCT p.proname) FROM " OWN
        "pg_proc p, " OWN "unnest('{join,wait,leave,renew,amend,look,list,cell,evict,keep,"
        "sweep,claim,seek,drop,prolong,peek,attach,row_of,row_pids,key_pids}'::" OWN
        "name[]) f WHERE p.pronamespace" IS "'holdfast'::" OWN
        "regnamespace AND p.proname" IS "f)"
        " FROM holdfast.format",
    [PG_NOTIFY] = "SELECT " OWN "pg_notify(" OWN "convert_from($1,'UTF8')," OWN
                  "convert_from($2,'UTF8'))",
};

/* With mode=optimistic; what is not here is as above. */
static const char *const optimistic[PG_VERBS] = {
    [SQL_JOIN] =
        "SELECT holdfast.claim($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15)",
    [SQL_WAIT] = "SELECT holdfast.seek($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11)",
    [SQL_LEAVE] = "SELECT holdfast.drop($1,$2,$3,$4)",
    [SQL_RENEW] = "SELECT holdfast.prolong($1,$2,$3,$4)",
    [SQL_LOOK] = "SELECT * FROM holdfast.peek($1,$2)",
    [SQL_EVICT] = "SELECT holdfast.drop($1,$2,$3,$4)",
};

/* The clock is read when the lock is there: a subquery that locks is done first. */
#define ROW_LOCK(wait)                                                                     \
    "SELECT greatest(l.version+1,(date_part('epoch',clock_timestamp())*1000000)::int8),"   \
    "set_config('application_name',$3,false) FROM (SELECT x.version FROM holdfast.mutex "  \
    "x WHERE x.ns=$1 AND x.name=$2 AND $4::int8=0 FOR UPDATE" wait ") l"
#define HOLDERS(pids) pids "($1,$2) p, LATERAL holdfast.holder(p.pid,p.weight) h"
#define LOOK_AT(pids) "SELECT h.* FROM " HOLDERS(pids)
#define END_ONE(pids)                                                                      \
    "SELECT ARRAY[" OWN "count(CASE WHEN " OWN "pg_terminate_backend(p.pid::integer) "     \
    "THEN 1 END)] FROM " HOLDERS(pids) " WHERE h.r_token" IS "$3 AND $4::bigint"           \
                                       " OPERATOR(" OWN ">) 0::bigint"

static const char *const pessimistic[PG_VERBS] = {
    [SQL_UNDO] = "ROLLBACK",
    [SQL_PROVE] = "SELECT set_config('idle_in_transaction_session_timeout',$1,false)",
    [SQL_TRY] = ROW_LOCK(" NOWAIT"),
    [SQL_LOCK] = ROW_LOCK(""),
    [SQL_RELEASE] =
        "UPDATE holdfast.mutex x SET version=$3 WHERE x.ns=$1 AND x.name=$2 AND "
        "$4::int8=0",
    [SQL_MAKE] = "SELECT holdfast.row_of($1,$2)",
    [SQL_LOOK] = LOOK_AT("holdfast.row_pids"),
    [SQL_EVICT] = END_ONE("holdfast.row_pids"),
};

/* The key is in the manual: other programs compute it, too. */
#define KEY "hashtextextended($2,CASE $1 WHEN '' THEN 0 ELSE hashtextextended($1,0) END)"
#define BY_KEY(function)                                                                   \
    "CASE $4::int8 WHEN 0 THEN " function "(" KEY ") ELSE " function "_shared(" KEY ") "   \
    "END"
#define LABEL "set_config('application_name',$3,false)"

static const char *const advisory[PG_VERBS] = {
    [SQL_UNDO] = "SELECT pg_advisory_unlock_all()",
    [SQL_PROVE] = "SELECT set_config('idle_session_timeout',$1,false)",
    [SQL_TRY] = "SELECT 0::int8," LABEL " WHERE " BY_KEY("pg_try_advisory_lock"),
    [SQL_LOCK] = "SELECT 0::int8," BY_KEY("pg_advisory_lock") "," LABEL,
    [SQL_RELEASE] = "SELECT " BY_KEY("pg_advisory_unlock") ",$3::int8",
    [SQL_SHARE] = "SELECT pg_advisory_lock_shared(" KEY "),pg_advisory_unlock(" KEY ")",
    [SQL_LOOK] = LOOK_AT("holdfast.key_pids"),
    [SQL_EVICT] = END_ONE("holdfast.key_pids"),
};

static const char *text_of(const struct pg_conn *c, unsigned verb)
{
    static const char *const *const modes[] = { texts, optimistic, pessimistic, advisory };
    const char *own = modes[c->of->sql.mode][verb];

    return own ? own : texts[verb];
}

static struct pg_conn *conn_at(const struct link *k)
{
    return container_of(k, struct pg_conn, link);
}

static struct env *env_of(const struct pg_conn *c)
{
    return c->of->sql.store.env;
}

/* ---- errors ---------------------------------------------------------------------- */

int hf__postgres_code(const char *state)
{
    static const struct {
        const char *state; /* or its beginning */
        int code;
    } kinds[] = {
        { "28", HF_EAUTH },        { "42501", HF_EAUTH },     { "3D000", HF_EINVAL },
        { "53100", HF_EFULL },     { "53200", HF_EFULL },     { "0A000", HF_ENOTSUP },
        { "XX001", HF_EDAMAGED },  { "XX002", HF_EDAMAGED },  { "53", HF_EUNREACHABLE },
        { "57", HF_EUNREACHABLE }, { "08", HF_EUNREACHABLE },
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(state, kinds[i].state, strlen(kinds[i].state)) == 0)
            return kinds[i].code;
    return HF_EPROTO;
}

/* Undone because of others or of a limit: 40001 serialization, 40P01 deadlock, 55P03 lock
 * limit, 57014 statement limit; 26000: it is not prepared (any more). */
static bool undone(const char *state)
{
    return strncmp(state, "40", 2) == 0 || strcmp(state, "55P03") == 0 ||
           strcmp(state, "57014") == 0 || strcmp(state, "26000") == 0;
}

/* The session ends, the server has become a replica, or the schema has gone: another
 * connection finds out. */
static bool as_good_as_gone(const char *state)
{
    return strncmp(state, "57P", 3) == 0 || strncmp(state, "08", 2) == 0 ||
           strcmp(state, "25006") == 0 || strcmp(state, "3F000") == 0 ||
           strcmp(state, "42883") == 0;
}

/* The first line, without what verbosity has put around it. */
static void first_line(char *to, size_t size, const char *text)
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
    first_line(line, sizeof line, last_failure(text));
    code = state[0] ? hf__postgres_code(state) : HF_EUNREACHABLE;
    if (c->pg && PQconnectionNeedsPassword(c->pg))
        code = HF_EAUTH;
    else if (strncmp(line, "invalid ", 8) == 0)
        code = HF_EINVAL;
    if (code == HF_EPROTO)
        code = HF_EUNREACHABLE;
    hf__fail(err, code, 0, c->of->sql.shown, "%s", line);
}

/* ---- closing --------------------------------------------------------------------- */

static void close_pq(struct link *k)
{
    struct pg_conn *c = conn_at(k);
    struct env *env = env_of(c);

    env->unwatch(env, &c->watch);
    env->timer(env, &c->connect_timer, LOOP_NEVER);
    hf__resolve_cancel(c->resolve);
    c->resolve = NULL;
    PQclear(c->result);
    c->result = NULL;
    PQfinish(c->pg);
    c->pg = NULL;
    c->up = c->making = c->direct = false;
    c->prepared = 0;
    c->flying = 0;
}

/* Not inside open, close and send. */
static void lost(struct pg_conn *c, const hf_error *err)
{
    hf_error copy = *err;

    close_pq(&c->link);
    hf__link_lost(&c->link, &copy);
}

static void lost_connecting(struct pg_conn *c)
{
    hf_error err;

    connect_error(c, &err);
    lost(c, &err);
}

static void connect_late(struct timer *t)
{
    struct pg_conn *c = container_of(t, struct pg_conn, connect_timer);
    hf_error err;

    hf__fail(&err, HF_EUNREACHABLE, 0, c->of->sql.shown, "no connection within %lld ms",
             (long long)c->of->sql.open.connect_ms);
    c->turn++;
    c->silent++;
    lost(c, &err);
    hf__postgres_flush(c->of);
}

/* ---- opening --------------------------------------------------------------------- */

static void add_word(struct text *t, const char *word)
{
    hf__text_add(t, "%s%s", t->len > 0 ? "," : "", word);
}

static void add_address(struct pg_conn *c, const struct opening_host *h,
                        const struct address *a)
{
    char ip[INET6_ADDRSTRLEN], port[8];
    const void *at = a->at.ss_family == AF_INET6
                         ? (const void *)&((const struct sockaddr_in6 *)&a->at)->sin6_addr
                         : (const void *)&((const struct sockaddr_in *)&a->at)->sin_addr;

    if (!inet_ntop(a->at.ss_family, at, ip, sizeof ip))
        return;
    snprintf(port, sizeof port, "%u", (unsigned)h->port);
    add_word(&c->hosts, h->host);
    add_word(&c->addresses, ip);
    add_word(&c->ports, port);
    c->naddresses++;
}

static void add_addresses(struct pg_conn *c, struct addresses *list)
{
    for (size_t i = 0; list && i < list->n; i++)
        add_address(c, &c->of->sql.open.hosts[c->next_host], &list->a[i]);
    free(list);
}

enum { KEYWORDS_MAX = 64 };

struct keywords {
    const char *keys[KEYWORDS_MAX], *values[KEYWORDS_MAX];
    size_t n;
};

static void add_keyword(struct keywords *k, const char *key, const char *value)
{
    if (value && k->n + 1 < KEYWORDS_MAX) {
        k->keys[k->n] = key;
        k->values[k->n++] = value;
    }
}

/* The later of two decides: those of the URL. GSS encryption would ask other servers,
 * blocking the loop, so it must be asked for. */
static void set_keywords(struct keywords *k, const struct pg_conn *c, const char *password)
{
    const struct postgres *p = c->of;

    add_keyword(k, "fallback_application_name", "holdfast");
    add_keyword(k, "client_encoding", "UTF8");
    add_keyword(k, "gssencmode", "disable");
    if (c->attached) { /* a server that has gone without a word while we wait */
        add_keyword(k, "keepalives_idle", "10");
        add_keyword(k, "keepalives_interval", "5");
        add_keyword(k, "keepalives_count", "3");
        add_keyword(k, "tcp_user_timeout", "25000"); /* while data is unacknowledged */
    }
    if (c->naddresses > 1)
        add_keyword(k, "target_session_attrs", "read-write");
    add_keyword(k, "dbname", p->dbname);
    add_keyword(k, "user", p->sql.open.login.user);
    add_keyword(k, "password", password[0] ? password : NULL);
    if (p->sql.open.nhosts > 0) {
        add_keyword(k, "host", c->hosts.buf);
        add_keyword(k, "hostaddr", c->addresses.buf);
        add_keyword(k, "port", c->ports.buf);
    }
    for (size_t i = 0; i < p->nparams; i++)
        add_keyword(k, p->params[i].key, p->params[i].value);
}

/* libpq would print to stderr. */
static void ignore_notice(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}

static void on_ready(struct watch *, uint32_t);

static int watch(struct pg_conn *c, uint32_t events)
{
    struct env *env = env_of(c);

    return env->watch(env, &c->watch, PQsocket(c->pg), events);
}

/* The first n words go to the end. */
static void rotate(struct text *t, size_t n)
{
    struct text turned = { 0 };
    char *rest = t->buf;

    for (; n > 0; n--)
        rest = strchr(rest, ',') + 1;
    if (rest == t->buf)
        return;
    rest[-1] = '\0';
    hf__text_add(&turned, "%s,%s", rest, t->buf);
    free(t->buf);
    *t = turned;
}

/* libpq goes on to the next address when one refuses, and not when one is silent. So each
 * has its part of the time, and after a silence the next one is the first. If all were too
 * slow for that, each has all of it. */
static void take_turns(struct pg_conn *c)
{
    struct text *all[] = { &c->hosts, &c->addresses, &c->ports };
    struct env *env = env_of(c);
    int64_t ms = c->of->sql.open.connect_ms;

    for (size_t i = 0; i < 3; i++)
        if (!all[i]->failed)
            rotate(all[i], c->turn % c->naddresses);
    if (c->silent < c->naddresses)
        ms /= (int64_t)c->naddresses;
    env->timer(env, &c->connect_timer, env->now(env) + ms * 1000);
}

static int start(struct pg_conn *c, hf_error *err)
{
    char password[PASSWORD_MAX + 1];
    struct keywords k = { .n = 0 };
    int rc = hf__login_password(&c->of->sql.open.login, password, err);

    if (rc < 0)
        return rc;
    if (c->naddresses > 1)
        take_turns(c);
    set_keywords(&k, c, password);
    if (!c->hosts.failed && !c->addresses.failed && !c->ports.failed)
        c->pg = PQconnectStartParams(k.keys, k.values, 0);
    explicit_bzero(password, sizeof password);
    if (!c->pg)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a connection");
    PQsetErrorVerbosity(c->pg, PQERRORS_VERBOSE);
    PQsetNoticeProcessor(c->pg, ignore_notice, NULL);
    if (PQstatus(c->pg) != CONNECTION_BAD && watch(c, EPOLLOUT) == 0)
        return 0;
    connect_error(c, err);
    PQfinish(c->pg);
    c->pg = NULL;
    return err->code;
}

static int look_up(struct pg_conn *, hf_error *);

static void looked_up(void *user, struct addresses *list, const hf_error *why)
{
    struct pg_conn *c = user;
    hf_error err = *why;
    int rc = 0;

    c->resolve = NULL;
    add_addresses(c, list);
    c->next_host++;
    if (!list && c->next_host == c->of->sql.open.nhosts && c->hosts.len == 0)
        rc = why->code; /* none of them has an address */
    if (rc == 0)
        rc = look_up(c, &err);
    if (rc < 0)
        lost(c, &err);
    hf__postgres_flush(c->of);
}

/* The names from next_host on; then libpq begins. */
static int look_up(struct pg_conn *c, hf_error *err)
{
    const struct opening *o = &c->of->sql.open;

    for (; c->next_host < o->nhosts; c->next_host++) {
        const struct opening_host *h = &o->hosts[c->next_host];
        struct addresses *list;
        int rc = hf__resolve_numeric(&list, h->host, h->port);

        if (rc == HF_ENOENT)
            return hf__resolve_begin(&c->resolve, env_of(c), h->host, h->port, looked_up, c,
                                     err);
        if (rc < 0)
            return hf__fail(err, rc, 0, NULL, "no memory for a connection");
        add_addresses(c, list);
    }
    return start(c, err);
}

static void forget_hosts(struct pg_conn *c)
{
    struct text *all[] = { &c->hosts, &c->addresses, &c->ports };

    for (size_t i = 0; i < 3; i++) {
        free(all[i]->buf);
        memset(all[i], 0, sizeof *all[i]);
    }
    c->next_host = c->naddresses = 0;
}

static int open_pq(struct link *k, int64_t ms, hf_error *err)
{
    struct pg_conn *c = conn_at(k);
    struct env *env = env_of(c);
    int rc;

    forget_hosts(c);
    env->timer(env, &c->connect_timer, env->now(env) + ms * 1000);
    rc = look_up(c, err);
    if (rc < 0)
        env->timer(env, &c->connect_timer, LOOP_NEVER);
    return rc;
}

static void connect_step(struct pg_conn *c)
{
    struct env *env = env_of(c);
    int rc = 0;

    env->unwatch(env, &c->watch); /* the socket may become another one */
    switch (PQconnectPoll(c->pg)) {
    case PGRES_POLLING_READING:
        rc = watch(c, EPOLLIN);
        break;
    case PGRES_POLLING_WRITING:
        rc = watch(c, EPOLLOUT);
        break;
    case PGRES_POLLING_OK:
        env->timer(env, &c->connect_timer, LOOP_NEVER);
        c->up = true;
        c->silent = 0;
        if (PQsetnonblocking(c->pg, 1) == 0 && PQenterPipelineMode(c->pg) == 1 &&
            watch(c, EPOLLIN) == 0) {
            hf__link_opened(&c->link);
            return;
        }
        rc = -1;
        break;
    default:
        rc = -1;
        break;
    }
    if (rc < 0)
        lost_connecting(c);
}

/* ---- sending --------------------------------------------------------------------- */

struct values { /* of the arguments, as libpq takes them */
    const char *at[SQL_ARGS];
    int len[SQL_ARGS], format[SQL_ARGS];
    uint64_t ints[SQL_ARGS];
    struct text lists; /* one after the other, each with its NUL */
    size_t list_at[SQL_ARGS];
};

static void write_list(struct values *v, size_t i, const struct sql_arg *a)
{
    const int64_t *n = a->at;

    v->list_at[i] = v->lists.len;
    hf__text_add(&v->lists, "{");
    for (size_t j = 0; j < a->n; j++)
        hf__text_add(&v->lists, "%s%lld", j > 0 ? "," : "", (long long)n[j]);
    hf__text_add(&v->lists, "}%c", '\0');
}

static bool write_values(struct values *v, const struct sql_args *a)
{
    for (size_t i = 0; i < a->n; i++) {
        v->format[i] = a->at[i].kind != SQL_INTS;
        if (a->at[i].kind == SQL_INT) {
            v->ints[i] = htobe64((uint64_t)a->at[i].number);
            v->at[i] = (const char *)&v->ints[i];
            v->len[i] = INT8_LEN;
        } else if (a->at[i].kind == SQL_BYTES) {
            v->at[i] = a->at[i].n > 0 ? a->at[i].at : "";
            v->len[i] = (int)a->at[i].n;
        } else {
            write_list(v, i, &a->at[i]);
        }
    }
    for (size_t i = 0; i < a->n && !v->lists.failed; i++)
        if (a->at[i].kind == SQL_INTS)
            v->at[i] = v->lists.buf + v->list_at[i];
    return !v->lists.failed;
}

static void statement_name(char name[16], unsigned verb)
{
    snprintf(name, 16, "holdfast%u", verb);
}

struct prepare_call {
    struct sql_call q;
    unsigned verb;
    struct pg_conn *c;
};

static int send_prepare(struct pg_conn *c, struct sql_call *q)
{
    unsigned verb = container_of(q, struct prepare_call, q)->verb;
    char name[16];

    statement_name(name, verb);
    return PQsendPrepare(c->pg, name, text_of(c, verb), 0, NULL);
}

/* LISTEN takes no parameters; the channel is made of digits. */
static int send_listen(struct pg_conn *c)
{
    char text[64];

    snprintf(text, sizeof text, "LISTEN %s", c->of->channel);
    return PQsendQueryParams(c->pg, text, 0, NULL, NULL, NULL, NULL, 1);
}

static bool sent_alone(struct pg_conn *c, const char *text)
{
    return PQsendQueryParams(c->pg, text, 0, NULL, NULL, NULL, NULL, 1) == 1;
}

/* A row lock lasts for as long as its transaction. What is sent before one Sync is
 * answered together: the last result counts, or the first error. */
static bool begins(struct pg_conn *c, unsigned verb)
{
    return c->of->sql.mode != SQL_PESSIMISTIC || (verb != SQL_TRY && verb != SQL_LOCK) ||
           sent_alone(c, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
}

static bool ends(struct pg_conn *c, unsigned verb)
{
    return c->of->sql.mode != SQL_PESSIMISTIC || verb != SQL_RELEASE ||
           sent_alone(c, "COMMIT");
}

static int send_pq(struct link *k, struct link_call *call)
{
    struct pg_conn *c = conn_at(k);
    struct sql_call *q = container_of(call, struct sql_call, call);
    unsigned verb = q->type->verb;
    struct values v = { .lists = { 0 } };
    struct sql_args a = { .n = 0 };
    char name[16];
    int sent = 0;

    q->type->build(&c->of->sql, q, &a);
    if (a.nothing)
        return HF_ENOENT;
    if (!write_values(&v, &a)) {
        free(v.lists.buf);
        return HF_ENOMEM;
    }
    statement_name(name, verb);
    if (!begins(c, verb))
        sent = 0;
    else if (verb == PG_PREPARE)
        sent = send_prepare(c, q);
    else if (verb == PG_LISTEN)
        sent = send_listen(c);
    else if (c->prepared & 1u << verb)
        sent = PQsendQueryPrepared(c->pg, name, (int)a.n, v.at, v.len, v.format, 1);
    else
        sent = PQsendQueryParams(c->pg, text_of(c, verb), (int)a.n, NULL, v.at, v.len,
                                 v.format, 1);
    free(v.lists.buf);
    c->flying++;
    return sent == 1 && ends(c, verb) && PQpipelineSync(c->pg) == 1 ? 0 : HF_EUNREACHABLE;
}

static void build_nothing(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    (void)s;
    (void)q;
    (void)a;
}

static void answer_prepare(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct prepare_call *k = container_of(q, struct prepare_call, q);

    (void)s;
    if (reply && reply->code < 0)
        k->c->prepared &= ~(1u << k->verb);
}

static void prepare(struct pg_conn *c, unsigned verb)
{
    static const struct sql_type type = { (enum sql_verb)PG_PREPARE, build_nothing,
                                          answer_prepare };
    struct sql_call *q;

    if (!c->direct || verb >= SQL_VERBS || (c->prepared & 1u << verb) ||
        !link_open(&c->link))
        return;
    q = hf__sql_call(&type, sizeof(struct prepare_call));
    if (!q)
        return; /* as text, then */
    container_of(q, struct prepare_call, q)->verb = verb;
    container_of(q, struct prepare_call, q)->c = c;
    c->prepared |= 1u << verb;
    hf__link_send(&c->link, &q->call);
}

void hf__postgres_send(struct pg_conn *c, struct sql_call *q)
{
    if (c->flying >= FLYING_MOST && link_open(&c->link)) {
        list_push(&c->backlog[q->type->verb != SQL_JOIN], &q->call.node);
        return;
    }
    prepare(c, q->type->verb);
    hf__link_send(&c->link, &q->call);
}

/* NULL: there is none. */
static struct sql_call *next_in_backlog(struct pg_conn *c)
{
    struct list *n = list_pop(&c->backlog[1]);

    if (!n)
        n = list_pop(&c->backlog[0]);
    return n ? container_of(n, struct sql_call, call.node) : NULL;
}

static void send_more(struct pg_conn *c)
{
    struct sql_call *q;

    while (c->flying < FLYING_MOST && (q = next_in_backlog(c)) != NULL)
        hf__postgres_send(c, q);
}

static void send_flush(struct link *k)
{
    struct pg_conn *c = conn_at(k);
    hf_error err;
    int rc;

    if (!c->up)
        return;
    rc = PQflush(c->pg);
    if (rc >= 0 && watch(c, rc > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN) == 0)
        return;
    connect_error(c, &err);
    err.code = HF_EUNREACHABLE;
    lost(c, &err);
}

/* ---- answers --------------------------------------------------------------------- */

static int64_t read_int(const char *at)
{
    uint64_t number;

    memcpy(&number, at, sizeof number);
    return (int64_t)be64toh(number);
}

/* An array of int8 in binary: dimensions, flags, type, length, lower bound (4 bytes each),
 * then each with its length. Returns how many; -1: it is none, or too long. */
static int read_numbers(const PGresult *res, int64_t *numbers)
{
    const char *at = PQgetvalue(res, 0, 0);
    int len = PQgetlength(res, 0, 0);
    uint32_t head[5] = { 0 };

    if (len < 12)
        return -1;
    memcpy(head, at, len < 20 ? 12 : 20);
    if (ntohl(head[0]) == 0)
        return 0;
    if (ntohl(head[0]) != 1 || ntohl(head[3]) > NUMBERS_MAX ||
        len != 20 + 12 * (int)ntohl(head[3]))
        return -1;
    for (size_t i = 0; i < ntohl(head[3]); i++)
        numbers[i] = read_int(at + 20 + 12 * i + 4);
    return (int)ntohl(head[3]);
}

static int64_t reply_number(const struct sql_reply *r, size_t row, size_t column)
{
    const PGresult *res = r->own;

    if ((int)column >= PQnfields(res) ||
        PQgetlength(res, (int)row, (int)column) != INT8_LEN)
        return 0;
    return read_int(PQgetvalue(res, (int)row, (int)column));
}

static const void *reply_bytes(const struct sql_reply *r, size_t row, size_t column,
                               size_t *n)
{
    const PGresult *res = r->own;

    *n = 0;
    if ((int)column >= PQnfields(res))
        return "";
    *n = (size_t)PQgetlength(res, (int)row, (int)column);
    return PQgetvalue(res, (int)row, (int)column);
}

static const char *state_of(const PGresult *res)
{
    const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

    return state ? state : "";
}

static void refusal(const struct pg_conn *c, const PGresult *res, hf_error *err)
{
    const char *text = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);

    hf__fail(err, hf__postgres_code(state_of(res)), 0, c->of->sql.shown, "%s (%s)",
             text ? text : "an error without a text", state_of(res));
}

static bool is_error(const PGresult *res)
{
    return PQresultStatus(res) != PGRES_TUPLES_OK &&
           PQresultStatus(res) != PGRES_COMMAND_OK;
}

/* Its transaction has ended. */
static void answered(struct pg_conn *c)
{
    struct link_call *first = hf__link_oldest(&c->link);
    struct sql_call *q = first ? container_of(first, struct sql_call, call) : NULL;
    int64_t numbers[NUMBERS_MAX];
    struct sql_reply reply = { .own = c->result };
    PGresult *res = c->result;

    c->result = NULL;
    c->flying--;
    if (!q || !res) {
        hf__link_fail(&c->link, HF_EPROTO, "an answer that nobody asked for");
    } else if (is_error(res) && q->type->verb < SQL_VERBS && undone(state_of(res)) &&
               !c->attached) {
        if (strcmp(state_of(res), "26000") == 0)
            c->prepared = 0;
        hf__link_answered(&c->link);
        hf__sql_later(&c->of->sql, q,
                      strcmp(state_of(res), "55P03") == 0 ? LOCKED_US : SQL_LATER_US);
    } else {
        hf__link_answered(&c->link);
        if (is_error(res)) {
            refusal(c, res, &reply.err);
            if (c->attached && undone(state_of(res)))
                reply.err.code =
                    strcmp(state_of(res), "55P03") == 0 ? HF_EBUSY : HF_EUNREACHABLE;
            reply.code = reply.err.code;
        } else if (PQresultStatus(res) == PGRES_TUPLES_OK) {
            reply.rows = (size_t)PQntuples(res);
            if (reply.rows == 1 && PQnfields(res) == 1 && q->type->verb < SQL_END) {
                int n = read_numbers(res, numbers);

                reply.numbers = numbers;
                reply.n = n < 0 ? 0 : (size_t)n;
            }
        }
        hf__sql_answer(&c->of->sql, q, &reply);
    }
    PQclear(res);
}

/* One result. An error takes the place of rows: the commit has failed. */
static void take(struct pg_conn *c, PGresult *res)
{
    hf_error err;

    if (PQresultStatus(res) == PGRES_PIPELINE_SYNC) {
        PQclear(res);
        answered(c);
        return;
    }
    if (is_error(res) && (!state_of(res)[0] || as_good_as_gone(state_of(res)))) {
        refusal(c, res, &err);
        err.code = HF_EUNREACHABLE; /* the next greeting tells if we are refused for good */
        hf__link_break(&c->link, &err);
        PQclear(res);
    } else if (!c->result || !is_error(c->result)) {
        PQclear(c->result);
        c->result = res;
    } else {
        PQclear(res);
    }
}

/* schema.sql has run, if no result is left. */
static void take_made(struct pg_conn *c, PGresult *res)
{
    char state[6], line[300];

    if (res && is_error(res)) {
        PQclear(c->result);
        c->result = res;
        return;
    }
    PQclear(res);
    if (res)
        return;
    c->making = false;
    snprintf(state, sizeof state, "%s", c->result ? state_of(c->result) : "");
    first_line(line, sizeof line,
               c->result ? PQresultErrorField(c->result, PG_DIAG_MESSAGE_PRIMARY) : "");
    if (PQenterPipelineMode(c->pg) != 1)
        snprintf(state, sizeof state, "08000");
    hf__postgres_made(c, c->result ? state : NULL, line);
    PQclear(c->result);
    c->result = NULL;
}

static void take_results(struct pg_conn *c)
{
    while (link_open(&c->link) && (c->making || hf__link_oldest(&c->link)) &&
           !PQisBusy(c->pg)) {
        PGresult *res = PQgetResult(c->pg);

        if (c->making)
            take_made(c, res);
        else if (res)
            take(c, res);
        else if (PQstatus(c->pg) == CONNECTION_BAD)
            break;
    }
}

/* A pooler may hand us a session that listens for another connection of ours: what comes
 * there by chance says nothing about what will come (greet.c). */
static void take_messages(struct pg_conn *c)
{
    PGnotify *n;

    while (link_open(&c->link) && (n = PQnotifies(c->pg)) != NULL) {
        /* behind a pooler one of ours may come by the wrong connection, and only then */
        if (c == &c->of->messages && strcmp(n->relname, c->of->channel) == 0)
            hf__postgres_notified(c->of, n->extra);
        PQfreemem(n);
    }
}

/* What came before the end of the connection is still read. */
static void receive(struct pg_conn *c)
{
    bool good = PQconsumeInput(c->pg) == 1;
    hf_error err;

    take_results(c);
    take_messages(c);
    send_more(c);
    if ((good && PQstatus(c->pg) == CONNECTION_OK) || c->link.broken)
        return;
    connect_error(c, &err);
    err.code = HF_EUNREACHABLE;
    lost(c, &err);
}

static void on_ready(struct watch *w, uint32_t events)
{
    struct pg_conn *c = container_of(w, struct pg_conn, watch);

    if (events & EPOLLOUT && c->up)
        hf__link_wrote(&c->link);
    if (c->up)
        receive(c);
    else
        connect_step(c);
    hf__postgres_flush(c->of);
}

static bool read_pq(struct link *k)
{
    struct pg_conn *c = conn_at(k);
    struct link_call *before = hf__link_oldest(k);

    if (c->up)
        receive(c);
    return c->up && hf__link_oldest(k) != before;
}

static const struct link_transport transport = { open_pq, close_pq, send_pq, send_flush,
                                                 read_pq };

/* ---- the schema ------------------------------------------------------------------ */

bool hf__postgres_make(struct pg_conn *c)
{
    c->making =
        PQexitPipelineMode(c->pg) == 1 && PQsendQuery(c->pg, hf__postgres_schema) == 1;
    if (!c->making)
        hf__link_fail(&c->link, HF_EUNREACHABLE, "%s", PQerrorMessage(c->pg));
    hf__link_wrote(&c->link);
    return c->making;
}

/* ---- what the link tells --------------------------------------------------------- */

/* Who waits for a lock is not late: its limit begins anew all the time. (That the server
 * has gone without a word is noticed by TCP.) */
static int64_t limit_ms(const struct link *k)
{
    const struct pg_conn *c = conn_at(k);
    const struct link_call *first = hf__link_oldest(k);
    bool waits = c->attached && first && c->attached->ses.state == SES_WAITING;
    int64_t from = waits && first->sent_at > k->since ? first->sent_at : k->since;

    return c->of->sql.open.connect_ms +
           (waits ? (env_of(c)->now(env_of(c)) - from) / 1000 : 0);
}

static void greet(struct link *k)
{
    conn_at(k)->greet(conn_at(k));
}

static void down(struct link *k, const hf_error *err)
{
    struct postgres *p = conn_at(k)->of;
    hf_error last = *err;

    if (conn_at(k)->attached)
        return;
    if (k == &p->messages.link) {
        hf__postgres_unheard(p);
        return;
    }
    if (p->old.pid == 0)
        p->old = p->session;
    p->session.pid = 0;
    p->messages.link.wanted = false; /* until it is up again */
    hf__link_break(&p->messages.link, err);
    if (p->sql.served && last.code != HF_EVERSION) /* what refuses us now may pass */
        last.code = HF_EUNREACHABLE;
    hf__sql_down(&p->sql, &last);
}

static void unanswered(struct link *k, struct link_call *call)
{
    hf__sql_answer(&conn_at(k)->of->sql, container_of(call, struct sql_call, call), NULL);
}

static void link_lost(struct link *k, const hf_error *err)
{
    struct pg_conn *c = conn_at(k);
    struct env *env = env_of(c);
    struct sql_call *q;
    uint32_t dice;

    while ((q = next_in_backlog(c)) != NULL)
        hf__sql_answer(&c->of->sql, q, NULL);
    if (c->attached)
        hf__sql_session_lost(&c->attached->ses, err);
    else if (k == &c->of->messages.link && k->wanted && k->failed > MESSAGES_TRIES) {
        /* it can be done without; the server may have too many clients already */
        env->random(env, &dice, sizeof dice);
        env->timer(env, &k->retry, env->now(env) + MESSAGES_US / 2 + dice % MESSAGES_US);
    }
}

static const struct link_events events = { limit_ms, greet, down, unanswered, link_lost };

/* ---- for driver.c and ../sql ----------------------------------------------------- */

void hf__postgres_conn_init(struct pg_conn *c, struct postgres *p,
                            void (*greeting)(struct pg_conn *))
{
    c->of = p;
    c->greet = greeting;
    list_init(&c->backlog[0]);
    list_init(&c->backlog[1]);
    watch_init(&c->watch, on_ready);
    timer_init(&c->connect_timer, connect_late);
    hf__link_init(&c->link, p->sql.store.env, &transport, &events, &p->dirty,
                  p->sql.open.connect_ms);
    c->link.where = p->sql.shown;
}

void hf__postgres_conn_done(struct pg_conn *c)
{
    struct link_call *call;
    struct sql_call *q;

    if (!c->of)
        return;
    hf__link_done(&c->link);
    while ((call = hf__link_take(&c->link)) != NULL)
        free(container_of(call, struct sql_call, call));
    while ((q = next_in_backlog(c)) != NULL)
        free(q);
    forget_hosts(c);
}

/* The socket is the parent's: what libpq says at its end must not reach the server. */
void hf__postgres_conn_forked(struct pg_conn *c)
{
    int fd = c->pg ? PQsocket(c->pg) : -1, null;

    hf__resolve_forked(c->resolve);
    c->resolve = NULL;
    if (fd < 0)
        return;
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup3(null, fd, O_CLOEXEC);
        close(null);
    } else {
        close(fd);
    }
}

void hf__postgres_flush(struct postgres *p)
{
    hf__scripted_flush(&p->sql.scripted);
    hf__link_flush(&p->dirty);
    hf__postgres_bury(p);
}

/* Not inside anything that happens on their connections. */
void hf__postgres_bury(struct postgres *p)
{
    struct list *n;

    while ((n = list_pop(&p->sql.buried)) != NULL) {
        struct pg_attached *a = container_of(n, struct pg_attached, ses.all);

        hf__postgres_conn_done(&a->conn);
        free(a);
    }
}

static struct sql_session *wire_attach(struct sql *s, bool connect)
{
    struct pg_attached *a = calloc(1, sizeof *a);

    if (!a)
        return NULL;
    a->ses.sql = s;
    if (connect) {
        hf__postgres_conn_init(&a->conn, postgres_of(s), hf__postgres_attach_greet);
        a->conn.attached = a;
        hf__link_start(&a->conn.link);
        a->conn.link.wanted = false; /* once */
    }
    return &a->ses;
}

static struct pg_conn *conn_of(struct sql_session *ses)
{
    return &container_of(ses, struct pg_attached, ses)->conn;
}

static void wire_say(struct sql_session *ses, struct sql_call *q)
{
    hf__postgres_send(conn_of(ses), q);
}

static void wire_detach(struct sql_session *ses, const hf_error *err)
{
    hf__link_break(&conn_of(ses)->link, err);
}

static void wire_send(struct sql *s, struct sql_call *q)
{
    hf__postgres_send(&postgres_of(s)->commands, q);
}

static void wire_listen(struct sql *s)
{
    struct postgres *p = postgres_of(s);

    if (p->polls || !s->up)
        return;
    if (p->messages.link.state == LINK_UP)
        hf__postgres_test(p);
    else
        hf__link_start(&p->messages.link);
}

const struct sql_wire hf__postgres_wire = {
    wire_send,   reply_number, reply_bytes, wire_listen,
    wire_attach, wire_say,     wire_detach, true,
};
