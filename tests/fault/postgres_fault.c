/* postgres_fault.c: starting, and what most fault cases end with. */
#include "postgres_fault.h"

#include <stdio.h>
#include <string.h>

struct server server;
struct proxy *proxy;

static void set_url(int port, const char *params)
{
    snprintf(rig.place->url, sizeof(rig.place->url),
             "postgres://holdfast@127.0.0.1:%d/postgres%s", port, params);
}

void use_server(const char *params)
{
    postgres_run(&server);
    set_url(server.port, params);
}

void use_plain_server(const char *params)
{
    postgres_init(&server);
    use_server(params);
}

void use_proxied_server(const char *params)
{
    postgres_start(&server);
    proxy = proxy_new(server.port);
    set_url(proxy_port(proxy), params);
}

hf_client *opened_at(const char *url, const hf_options *options)
{
    hf_client *c = NULL;

    CHECK_RC(rig.face->open(url, options, &c, E()), 0);
    return c;
}

hf_client *opened_directly(void)
{
    char url[128];

    snprintf(url, sizeof(url), "postgres://holdfast@127.0.0.1:%d/postgres", server.port);
    return opened_at(url, NULL);
}

void done(void)
{
    if (proxy)
        proxy_free(proxy);
    postgres_remove(&server);
}

int64_t end_backends(void)
{
    return postgres_number(&server, "SELECT count(pg_terminate_backend(pid)) FROM "
                                    "pg_stat_activity WHERE application_name = 'holdfast'");
}

int64_t tickets(void)
{
    return postgres_number(&server, "SELECT count(*) FROM holdfast.ticket");
}

bool lines_whole(void)
{
    return postgres_number(&server,
                           "SELECT count(*) FROM holdfast.line l, LATERAL (SELECT"
                           " count(*) FILTER (WHERE t.state = 1) n,"
                           " count(*) FILTER (WHERE t.state = 0) nw,"
                           " coalesce(sum(t.weight) FILTER (WHERE t.state = 1), 0) sum,"
                           " min(t.expiry) FILTER (WHERE t.state = 1) soonest"
                           " FROM holdfast.ticket t WHERE t.line = l.id) t"
                           " WHERE l.n <> t.n OR l.nw <> t.nw OR l.sum <> t.sum"
                           " OR l.soonest > t.soonest OR (l.n > 0 AND l.sum > l.cap)") == 0;
}

PGconn *lock_line(const char *name)
{
    char info[512];
    const char *const values[] = { name };
    PGconn *c;
    PGresult *r;

    snprintf(info, sizeof(info), "host=%s port=%d user=holdfast dbname=postgres",
             server.dir, server.port);
    c = PQconnectdb(info);
    CHECK(PQstatus(c) == CONNECTION_OK);
    PQclear(PQexec(c, "BEGIN"));
    r = PQexecParams(c,
                     "SELECT 1 FROM holdfast.line WHERE name = convert_to($1, 'UTF8') FOR "
                     "UPDATE",
                     1, NULL, values, NULL, NULL, 0);
    CHECK(PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) == 1);
    PQclear(r);
    return c;
}

void unlock_line(PGconn *c)
{
    PQclear(PQexec(c, "ROLLBACK"));
    PQfinish(c);
}

void ask_password(void)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/data", server.dir);
    file_put(path, "pg_hba.conf", "w",
             "local all all trust\nhost all holdfast 127.0.0.1/32 trust\n"
             "host all app 127.0.0.1/32 scram-sha-256\n");
}

atomic_int warned;

void hear(void *user, int level, const char *name, const char *text)
{
    (void)name;
    if (level == HF_LOG_WARN && strstr(text, user))
        atomic_fetch_add(&warned, 1);
}

struct two hold_and_wait(int64_t ttl_ms)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = ttl_ms);
    struct two t = { .a = prompted(), .b = opened() };

    t.held = taken(t.a, nm("n"), req);
    t.fence = hf_lease_fence(t.held);
    t.waits = queued(t.b, nm("n"), 1, req);
    return t;
}

void two_go_on(struct two *t)
{
    hf_lease *next;

    CHECK_RC(hf_lease_check(t->held), 0);
    CHECK(!pend_done(t->waits));
    given(t->held);
    next = pend_granted(t->waits);
    CHECK_NUM(hf_lease_fence(next), >, t->fence);
    CHECK_RC(hf_lease_check(next), 0);
    given(next);
    AWAIT(line_is(t->b, nm("n"), 0, 0));
    closed(t->a);
    closed(t->b);
    CHECK_NUM(tickets(), ==, 0);
}
