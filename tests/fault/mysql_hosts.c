/* mysql_hosts.c: where a client finds the server, and whom it takes for it: several hosts,
 * names that move or lead nowhere for a long time, TLS, and a server that only says why
 * not. */
#include "certificates.h"
#include "mysql_fault.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names that we give ---------------------------------------------------------- */

#define NAME "my.test" /* leads to this machine, unless names hang */

static atomic_bool names_hang, moved; /* moved: to 127.0.0.2 */
static atomic_int hanging, by_library;

/* The library looks names up by this one instead of the C library's. The connector asks for
 * names with a port: it must not, because it does so in the loop. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (!host || strcmp(host, NAME) != 0 || hints->ai_flags & AI_NUMERICHOST)
        return real(host, service, hints, ret);
    atomic_fetch_add(&by_library, service != NULL);
    atomic_fetch_add(&hanging, 1);
    while (atomic_load(&names_hang))
        nap();
    atomic_fetch_sub(&hanging, 1);
    return real(atomic_load(&moved) ? "127.0.0.2" : "127.0.0.1", service, hints, ret);
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

static int64_t lines(struct server *s)
{
    return mariadb_number(s, "SELECT COUNT(*) FROM holdfast_line");
}

/* The machine of the first host does not answer at all; later it fails while it is in use.
 */
static void first_is_silent(void)
{
    struct proxy *first;
    hf_client *c;

    use_plain_server("");
    works(); /* makes the schema */
    first = proxy_new(server.port);
    use_url("mysql://holdfast@127.0.0.1:%d,127.0.0.1:%d/holdfast?connect_timeout=2s",
            proxy_port(first), server.port);
    proxy_freeze(first, PROXY_FUTURE | PROXY_PRESENT, PROXY_UP | PROXY_DOWN);
    works();
    proxy_freeze(first, PROXY_FUTURE | PROXY_PRESENT, 0);
    proxy_drop(first);
    c = opened();
    AWAIT(tried(c, nm("m"), NULL) == 0 && proxy_open(first) > 0);
    proxy_freeze(first, PROXY_FUTURE | PROXY_PRESENT, PROXY_UP | PROXY_DOWN);
    given(taken(c, nm("n"), NULL));
    closed(c);
    proxy_free(first);
    done();
}

/* The server that a name leads to becomes read-only, and the name is given to another. */
static void name_moves(void)
{
    static struct server other;
    hf_client *c;

    mariadb_make(&server);
    use_server("");
    mariadb_make(&other);
    other.port = server.port;
    mariadb_config(&other, "port=%d", other.port);
    mariadb_config(&other, "bind-address=127.0.0.2");
    mariadb_run(&other);
    use_url("mysql://holdfast@" NAME ":%d/holdfast", server.port);
    c = opened();
    given(taken(c, nm("n"), NULL));
    CHECK_NUM(lines(&server), ==, 1);
    atomic_store(&moved, true);
    mariadb_do(&server, "SET GLOBAL read_only=1");
    given(taken(c, nm("n"), NULL));
    CHECK_NUM(lines(&other), ==, 1);
    closed(c);
    CHECK_NUM(atomic_load(&by_library), ==, 0);
    server_remove(&other);
    done();
}

/* The connection is lost, and its name cannot be looked up: who holds is told in time. */
static void names_hang_while_held(void)
{
    hf_client *c;
    hf_lease *l, *none = NULL;

    use_plain_server("");
    works(); /* makes the schema */
    use_url("mysql://holdfast@" NAME ":%d/holdfast?connect_timeout=1s", server.port);
    c = prompted();
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = SHORT_MS));
    atomic_store(&names_hang, true);
    STAYS(hf_lease_check(l) == 0 && tried(c, nm("m"), NULL) == 0, 2 * SHORT_MS);
    kill_all("CONNECTION", "");
    AWAIT(atomic_load(&hanging) > 0);
    AWAIT(hf_lease_check(l) == HF_ELOST);
    CHECK_RC(rig.face->acquire(c, nm("m"), LIMIT_MS, NULL, &none, E()), HF_EUNREACHABLE);
    atomic_store(&names_hang, false);
    AWAIT(tried(c, nm("m"), NULL) == 0);
    rig.face->release(l, E());
    closed(c);
    CHECK_NUM(atomic_load(&by_library), ==, 0);
    done();
}

/* ---- TLS ------------------------------------------------------------------------- */

static void use_secure_server(void)
{
    mariadb_make(&server);
    certificates_make(server.dir);
    certificate_make(server.dir, "named", "subjectAltName=DNS:" NAME ",DNS:localhost\n");
    mariadb_config(&server, "ssl-ca=%s/ca.crt", server.dir);
    mariadb_config(&server, "ssl-cert=%s/named.crt", server.dir);
    mariadb_config(&server, "ssl-key=%s/named.key", server.dir);
    use_server("");
    works(); /* makes the schema */
    mariadb_do(&server, "ALTER USER holdfast@'%%' REQUIRE SSL");
}

static const char *secure_url(const char *host, const char *params)
{
    static char url[900];

    snprintf(url, sizeof(url), "mysql://holdfast@%s:%d/holdfast?connect_timeout=3s&ssl=%s",
             host, server.port, params);
    return url;
}

/* Each way in that is refused differs in one thing from the one that works. */
static void tls(void)
{
    char ca[300], strangers[300], client[700], dir[220];

    use_secure_server();
    snprintf(dir, sizeof(dir), "%s/others", server.dir);
    CHECK(mkdir(dir, 0700) == 0);
    certificates_make(dir);
    snprintf(ca, sizeof(ca), "verify&ssl_ca=%s/ca.crt", server.dir);
    snprintf(strangers, sizeof(strangers), "verify&ssl_ca=%s/ca.crt", dir);
    snprintf(client, sizeof(client), "%s&ssl_cert=%s/client.crt&ssl_key=%s/client.key", ca,
             server.dir, server.dir);

    use_url("%s", secure_url(NAME, ca));
    works();
    use_url("%s", secure_url("localhost", ca)); /* not the socket that goes by this name */
    works();
    use_url("%s", secure_url("127.0.0.1", "on")); /* as much as was asked for */
    works();
    expect_refusal(secure_url("127.0.0.1", "off"), HF_EAUTH, "denied");
    expect_refusal(secure_url(NAME, strangers), HF_EUNREACHABLE, "certificate");
    expect_refusal(secure_url("127.0.0.1", ca), HF_EUNREACHABLE, "certificate");
    mariadb_do(&server, "ALTER USER holdfast@'%%' REQUIRE X509");
    expect_refusal(secure_url(NAME, ca), HF_EAUTH, "denied");
    use_url("%s", secure_url(NAME, client));
    works();
    done();
}

/* ---- a server that only says why not ---------------------------------------------- */

static int refuser;

/* As a server that has no connection left: an error packet in place of a greeting. */
static void *refuse_all(void *arg)
{
    static const char error[] = "\x17\0\0\0\xff\x10\x04Too many connections";
    int fd;

    (void)arg;
    while ((fd = accept(refuser, NULL, NULL)) >= 0) {
        CHECK(write(fd, error, sizeof(error) - 1) == sizeof(error) - 1);
        close(fd);
    }
    return NULL;
}

static void answers_errors_only(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(at);
    char url[128];
    pthread_t thread;
    hf_client *c;

    refuser = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(refuser, (struct sockaddr *)&at, len) == 0 && listen(refuser, 16) == 0);
    CHECK(getsockname(refuser, (struct sockaddr *)&at, &len) == 0);
    CHECK(pthread_create(&thread, NULL, refuse_all, NULL) == 0);
    snprintf(url, sizeof(url), "mysql://holdfast@127.0.0.1:%d/holdfast?connect_timeout=2s",
             ntohs(at.sin_port));
    expect_refusal(url, HF_EUNREACHABLE, "Too many connections");
    shutdown(refuser, SHUT_RDWR);
    CHECK(pthread_join(thread, NULL) == 0);
    close(refuser);

    /* and one that answers each statement with an error: it is told, and nothing is held */
    use_plain_server("");
    c = opened();
    given(taken(c, nm("n"), NULL));
    mariadb_do(&server, "CREATE OR REPLACE PROCEDURE holdfast_leave(a BLOB, b BLOB, c BLOB,"
                        " d BIGINT) SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not me'");
    mariadb_do(&server, "CREATE OR REPLACE PROCEDURE holdfast_join(a BLOB, b BLOB, c BLOB,"
                        " d BIGINT, e BIGINT, f BIGINT, g BIGINT, h BIGINT, i BLOB,"
                        " j BIGINT, k BIGINT, l BIGINT, m BLOB, n BLOB, o BLOB)"
                        " SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not me'");
    CHECK_RC(tried(c, nm("new"), NULL), HF_EPROTO); /* one that is not there yet */
    CHECK(strstr(last_error()->text, "not me"));
    closed(c);
    done();
}

const struct test_case mysql_host_cases[] = {
    { "first-is-silent", first_is_silent, ON_ALL, 0, 0 },
    { "name-moves", name_moves, ON_ALL, 0, 0 },
    { "names-hang-while-held", names_hang_while_held, ON_ALL, 0, 0 },
    { "tls", tls, ON_ALL, 0, 0 },
    { "answers-errors-only", answers_errors_only, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
