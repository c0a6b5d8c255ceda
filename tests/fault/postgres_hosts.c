/* postgres_hosts.c: where a client finds the server, and how it logs in: several hosts,
 * names that lead to several addresses or to none for a long time, what libpq reads besides
 * the URL, TLS. */
#include "postgres_fault.h"

#include <dlfcn.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names that we give ---------------------------------------------------------- */

#define NAME "pg.test"         /* leads to this machine, unless names hang */
#define SEVERAL "several.test" /* to 127.0.0.2, then to 127.0.0.1 */

static atomic_bool names_hang;
static atomic_int hanging, by_libpq;

static int several(const struct addrinfo *hints, struct addrinfo **ret)
{
    int rc = getaddrinfo("127.0.0.2", NULL, hints, ret);

    return rc ? rc : getaddrinfo("127.0.0.1", NULL, hints, &(*ret)->ai_next);
}

/* The library looks names up by this one instead of the C library's. libpq asks for names
 * with a port: it must not, because it does so in the loop. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (host && strcmp(host, SEVERAL) == 0)
        return several(hints, ret);
    if (!host || strcmp(host, NAME) != 0 || hints->ai_flags & AI_NUMERICHOST)
        return real(host, service, hints, ret);
    atomic_fetch_add(&by_libpq, service != NULL);
    atomic_fetch_add(&hanging, 1);
    while (atomic_load(&names_hang))
        nap();
    atomic_fetch_sub(&hanging, 1);
    return real("127.0.0.1", service, hints, ret);
}

static void use_url(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void use_url(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(rig.place->url, sizeof(rig.place->url), fmt, ap);
    va_end(ap);
}

static void works(void)
{
    hf_client *c = opened();

    given(taken(c, nm("n"), NULL));
    closed(c);
}

/* ---- several --------------------------------------------------------------------- */

/* The machine of the first host does not answer at all, as when it has lost its power. */
static void first_is_silent(void)
{
    hf_client *c;

    use_proxied_server("");
    proxy_freeze(proxy, PROXY_FUTURE | PROXY_PRESENT, PROXY_UP | PROXY_DOWN);
    use_url("postgres://holdfast@127.0.0.1:%d,127.0.0.1:%d/postgres?connect_timeout=2s",
            proxy_port(proxy), server.port);
    c = opened();
    given(taken(c, nm("n"), NULL)); /* the first call, too */
    closed(c);
    done();
}

/* The first one fails while it is in use: the other one was promoted, say. */
static void first_becomes_silent(void)
{
    struct two t;

    use_proxied_server("");
    use_url("postgres://holdfast@127.0.0.1:%d,127.0.0.1:%d/postgres?connect_timeout=2s",
            proxy_port(proxy), server.port);
    t = hold_and_wait(60000);
    CHECK_NUM(proxy_accepted(proxy), >, 0);
    proxy_freeze(proxy, PROXY_FUTURE | PROXY_PRESENT, PROXY_UP | PROXY_DOWN);
    AWAIT(tried(t.a, nm("a"), NULL) == 0 && tried(t.b, nm("b"), NULL) == 0);
    two_go_on(&t);
    done();
}

/* One name has the addresses of a server that cannot be written to, and of one that can. */
static void name_of_several(void)
{
    static struct server other;

    postgres_init(&server);
    use_server("");
    postgres_init(&other);
    other.port = server.port;
    postgres_config(&other,
                    "port = %d\nlisten_addresses = '127.0.0.2'\n"
                    "default_transaction_read_only = on",
                    other.port);
    postgres_run(&other);
    use_url("postgres://holdfast@" SEVERAL ":%d/postgres", server.port);
    works();
    CHECK_NUM(postgres_number(&server, "SELECT count(*) FROM holdfast.line"), ==, 1);
    postgres_remove(&other);
    done();
}

/* ---- names that hang ------------------------------------------------------------- */

static int64_t listeners(void)
{
    return postgres_number(&server,
                           "SELECT count(*) FROM pg_stat_activity WHERE query LIKE "
                           "'LISTEN%%'");
}

/* One connection is lost, and its name cannot be looked up: the other one goes on. When
 * both are lost, who holds is told in time. */
static void names_hang_while_held(void)
{
    hf_client *c;
    hf_lease *l, *none = NULL;

    use_plain_server("");
    use_url("postgres://holdfast@" NAME ":%d/postgres?connect_timeout=1s", server.port);
    c = prompted();
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = SHORT_MS));
    AWAIT(listeners() == 1);
    atomic_store(&names_hang, true);
    postgres_do(&server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                         "query LIKE 'LISTEN%%'");
    AWAIT(atomic_load(&hanging) > 0);
    STAYS(hf_lease_check(l) == 0 && tried(c, nm("m"), NULL) == 0, 2 * SHORT_MS);
    end_sessions();
    AWAIT(hf_lease_check(l) == HF_ELOST);
    CHECK_RC(rig.face->acquire(c, nm("m"), LIMIT_MS, NULL, &none, E()), HF_EUNREACHABLE);
    atomic_store(&names_hang, false);
    AWAIT(tried(c, nm("m"), NULL) == 0);
    rig.face->release(l, E());
    closed(c);
    CHECK_NUM(atomic_load(&by_libpq), ==, 0);
    done();
}

/* ---- what libpq reads besides the URL -------------------------------------------- */

static void put_private(const char *name, const char *text)
{
    char path[300];

    file_put(server.dir, name, "w", text);
    snprintf(path, sizeof(path), "%s/%s", server.dir, name);
    CHECK(chmod(path, 0600) == 0);
}

/* A password file is asked by the name of the host, a service says all of it; names are
 * looked up by us there, too, and those of the environment. */
static void files_of_libpq(void)
{
    char text[1024], path[300];

    postgres_init(&server);
    ask_password();
    use_server("");
    postgres_do(&server, "CREATE ROLE app LOGIN PASSWORD 'right'");
    postgres_do(&server, "GRANT CREATE ON DATABASE postgres TO app");
    snprintf(text, sizeof(text), NAME ":%d:postgres:app:right\n", server.port);
    put_private("passwords", text);
    use_url("postgres://app@" NAME ":%d/postgres?passfile=%s/passwords", server.port,
            server.dir);
    works();
    snprintf(text, sizeof(text),
             "[mine]\nhost=" NAME "\nport=%d\nuser=app\ndbname=postgres\n"
             "passfile=%s/passwords\n",
             server.port, server.dir);
    put_private("services", text);
    snprintf(path, sizeof(path), "%s/services", server.dir);
    setenv("PGSERVICEFILE", path, 1);
    use_url("postgres:///?service=mine");
    works();
    use_url("postgres:///?service=nosuch");
    {
        hf_client *c = NULL;

        CHECK_RC(rig.face->open(rig.place->url, NULL, &c, E()), HF_EINVAL);
        CHECK(strstr(last_error()->text, "nosuch"));
    }
    setenv("PGHOST", NAME, 1);
    snprintf(text, sizeof(text), "%d", server.port);
    setenv("PGPORT", text, 1);
    use_url("postgres://app@/postgres?passfile=%s/passwords", server.dir);
    works();
    setenv("PGHOST", server.dir, 1); /* the folder of a socket */
    use_url("postgres://holdfast@/postgres");
    works();
    CHECK_NUM(atomic_load(&by_libpq), ==, 0);
    done();
}

/* The name is verified, though libpq is given the address. */
static void tls(void)
{
    char command[1024], text[256];
    hf_client *c;
    hf_lease *l = NULL;

    postgres_init(&server);
    snprintf(command, sizeof(command),
             "cd '%s/data' && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256"
             " -nodes -days 2 -keyout server.key -out server.crt -subj /CN=" NAME
             " >/dev/null 2>&1 && chmod 600 server.key && chown --reference=. server.*",
             server.dir);
    CHECK(system(command) == 0);
    postgres_config(&server, "ssl = on");
    snprintf(text, sizeof(text), "%s/data", server.dir);
    file_put(text, "pg_hba.conf", "w",
             "local all all trust\nhostssl all all 127.0.0.1/32 "
             "trust\n");
    use_server("");
    use_url("postgres://holdfast@" NAME
            ":%d/postgres?sslmode=verify-full&sslrootcert=%s/data/server.crt",
            server.port, server.dir);
    CHECK(chmod(text, 0711) == 0 || getuid() != 0);
    works();
    CHECK_NUM(postgres_number(&server, "SELECT count(*) FROM holdfast.line"), ==, 1);
    use_url("postgres://holdfast@127.0.0.1:%d/postgres?sslmode=verify-full"
            "&sslrootcert=%s/data/server.crt&connect_timeout=2s",
            server.port, server.dir);
    c = opened();
    CHECK_RC(rig.face->acquire(c, nm("n"), LIMIT_MS, NULL, &l, E()), HF_EUNREACHABLE);
    CHECK(strstr(last_error()->text, "certificate"));
    closed(c);
    CHECK_NUM(atomic_load(&by_libpq), ==, 0);
    done();
}

const struct test_case postgres_host_cases[] = {
    { "first-is-silent", first_is_silent, ON_ALL, 0, 0 },
    { "first-becomes-silent", first_becomes_silent, ON_ALL, 0, 0 },
    { "name-of-several", name_of_several, ON_ALL, 0, 0 },
    { "names-hang-while-held", names_hang_while_held, ON_ALL, 0, 0 },
    { "files-of-libpq", files_of_libpq, ON_ALL, 0, 0 },
    { "tls", tls, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
