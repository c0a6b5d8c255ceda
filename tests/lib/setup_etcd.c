/* setup_etcd.c: etcd from the distribution's package: one member or three.
 *
 * Nothing is installed as a service: the programs etcd and etcdctl are all that is taken
 * from the packages; HF_TEST_ETCD is a server of another release, without known faults of
 * leases. Whether a member serves is asked at an address of its own, in the clear also with
 * TLS. */
#include "setup_etcd.h"

#include "check.h"
#include "setup_redis.h"
#include <holdfast/holdfast.h>
#include <holdfast/tool.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { PEER = 10000, ARGS = 32 };

struct etcd_place *etcd_place_new(size_t members)
{
    struct etcd_place *e = shared_new(sizeof(*e));

    CHECK(members <= ETCD_SERVERS);
    e->n = members;
    e->dead_port = port_reserve(&e->dead_fd);
    for (size_t i = 0; i < members; i++) {
        server_init(&e->servers[i], "etcd");
        e->health[i] = port_reserve(&e->health_fd[i]);
    }
    return e;
}

void etcd_secure(struct etcd_place *e)
{
    e->tls = true;
}

/* Arguments of one start: one text for each, all in `text`. */
struct args {
    const char *argv[ARGS];
    char text[4096];
    size_t n, used;
};

static void arg(struct args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void arg(struct args *a, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(a->text + a->used, sizeof(a->text) - a->used, fmt, ap);
    va_end(ap);
    CHECK(n >= 0 && (size_t)n < sizeof(a->text) - a->used && a->n < ARGS - 1);
    a->argv[a->n++] = a->text + a->used;
    a->used += (size_t)n + 1;
}

static int peer_port(const struct etcd_place *e, size_t i)
{
    return e->peer_port[i] ? e->peer_port[i] : e->servers[i].port + PEER;
}

static void cluster(char *text, size_t size, const struct etcd_place *e)
{
    size_t n = 0;

    for (size_t i = 0; i < e->n; i++)
        n += (size_t)snprintf(text + n, size - n, "%sm%zu=http://127.0.0.1:%d",
                              i ? "," : "", i, peer_port(e, i));
    CHECK(n < size);
}

void etcd_run(struct etcd_place *e, size_t i)
{
    const char *program = getenv("HF_TEST_ETCD"), *scheme = e->tls ? "https" : "http";
    int port = e->servers[i].port;
    struct args a = { .n = 0 };
    char members[256];

    cluster(members, sizeof(members), e);
    arg(&a, "etcd");
    arg(&a, "--name=m%zu", i);
    arg(&a, "--data-dir=data");
    arg(&a, "--listen-client-urls=%s://127.0.0.1:%d", scheme, port);
    arg(&a, "--advertise-client-urls=%s://localhost:%d", scheme, port);
    arg(&a, "--listen-peer-urls=http://127.0.0.1:%d", port + PEER);
    arg(&a, "--initial-advertise-peer-urls=http://127.0.0.1:%d", peer_port(e, i));
    arg(&a, "--initial-cluster=%s", members);
    arg(&a, "--listen-metrics-urls=http://127.0.0.1:%d", e->health[i]);
    arg(&a, "--logger=zap");
    arg(&a, "--log-level=warn");
    if (e->tls) {
        arg(&a, "--client-cert-auth");
        arg(&a, "--trusted-ca-file=%s/ca.crt", e->servers[0].dir);
        arg(&a, "--cert-file=%s/server.crt", e->servers[0].dir);
        arg(&a, "--key-file=%s/server.key", e->servers[0].dir);
    }
    server_spawn(&e->servers[i], program ? program : "/usr/bin/etcd",
                 (char *const *)(void *)a.argv);
}

/* What it says at this path, in a buffer that the next call uses again. */
static const char *ask(const struct etcd_place *e, size_t i, const char *path)
{
    static char answer[262144];
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)e->health[i]),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct timeval limit = { .tv_sec = 2 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), m;
    char request[128];
    size_t n = 0;
    ssize_t got;

    CHECK(fd >= 0);
    m = snprintf(request, sizeof(request), "GET %s HTTP/1.0\r\n\r\n", path);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 &&
        write(fd, request, (size_t)m) == m)
        while (n < sizeof(answer) - 1 &&
               (got = read(fd, answer + n, sizeof(answer) - 1 - n)) > 0)
            n += (size_t)got;
    answer[n] = 0;
    close(fd);
    return answer;
}

void etcd_await(struct etcd_place *e, size_t i)
{
    int64_t until = now_ms() + 4 * LIMIT_MS; /* an election among them */

    while (!strstr(ask(e, i, "/health"), "\"health\":\"true\"")) {
        server_must_run(&e->servers[i]);
        CHECK_NUM(now_ms(), <, until);
        for (int naps = 0; naps < 10; naps++) /* each asking is a line in its log */
            nap();
    }
}

void etcd_start_all(struct etcd_place *e)
{
    for (size_t i = 0; i < e->n; i++)
        etcd_run(e, i);
    for (size_t i = 0; i < e->n; i++)
        etcd_await(e, i);
}

size_t etcd_leader(struct etcd_place *e)
{
    int64_t until = now_ms() + 4 * LIMIT_MS;

    for (;;) {
        for (size_t i = 0; i < e->n; i++)
            if (server_runs(&e->servers[i]) &&
                strstr(ask(e, i, "/metrics"), "\netcd_server_is_leader 1"))
                return i;
        CHECK_NUM(now_ms(), <, until);
        nap();
    }
}

void etcd_place_stop(struct etcd_place *e)
{
    for (size_t i = 0; i < e->n; i++) {
        server_remove(&e->servers[i]);
        close(e->health_fd[i]);
    }
    close(e->dead_fd);
    shared_free(e, sizeof(*e));
}

void etcd_ctl(const struct etcd_place *e, const char *args)
{
    char command[512];
    int n = snprintf(command, sizeof(command),
                     "ETCDCTL_API=3 etcdctl --command-timeout=60s --endpoints=127.0.0.1:%d "
                     "%s >>'%s/log' 2>&1",
                     e->servers[0].port, args, e->servers[0].dir);

    CHECK(n < (int)sizeof(command));
    CHECK_NUM(system(command), ==, 0);
}

/* rules: commands of etcdctl, one in a line: what "locker" may do. */
static void enable_auth(const struct etcd_place *e, char *rules)
{
    char *rest = NULL;

    etcd_ctl(e, "user add root:s3cr@t");
    etcd_ctl(e, "user grant-role root root");
    etcd_ctl(e, "user add locker:s3cr@t");
    for (char *line = strtok_r(rules, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        CHECK(strncmp(line, "etcdctl ", 8) == 0);
        if (!strstr(line, "user add")) /* which asks for the password */
            etcd_ctl(e, line + 8);
    }
    etcd_ctl(e, "auth enable");
}

void etcd_auth(const struct etcd_place *e)
{
    char *text = NULL;

    CHECK_RC(hf_admin_text("etcd://locker@127.0.0.1/locks", &text, E()), 0);
    enable_auth(e, text);
    free(text);
}

void etcd_auth_slash(const struct etcd_place *e)
{
    char rules[] = "etcdctl role add locks\n"
                   "etcdctl role grant-permission locks --prefix=true readwrite /locks\n"
                   "etcdctl user grant-role locker locks";

    enable_auth(e, rules);
}

int64_t etcd_number(struct etcd_place *e, size_t i, const char *metric)
{
    double sum = 0;

    for (const char *at = ask(e, i, "/metrics"); at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, metric, strlen(metric)) == 0)
            sum += strtod(strchr(at, ' '), NULL);
    }
    return (int64_t)sum;
}

void etcd_url(const struct etcd_place *e, char *url, size_t size, const char *tail)
{
    int n = snprintf(url, size, "etcd://");

    for (size_t i = 0; i < e->n; i++)
        n += snprintf(url + n, size - (size_t)n, "%s127.0.0.1:%d", i ? "," : "",
                      e->servers[i].port);
    n += snprintf(url + n, size - (size_t)n, "%s", tail);
    CHECK(n < (int)size);
}

/* ---- the set-ups ----------------------------------------------------------------- */

static void stop(struct place *p)
{
    etcd_place_stop(p->own);
}

static void restart(struct place *p)
{
    struct etcd_place *e = p->own;

    for (size_t i = 0; i < e->n; i++)
        server_kill(&e->servers[i]);
    etcd_start_all(e);
}

static void block(struct place *p)
{
    struct etcd_place *e = p->own;

    for (size_t i = 0; i < e->n; i++)
        server_freeze(&e->servers[i]);
}

static void unblock(struct place *p)
{
    struct etcd_place *e = p->own;

    for (size_t i = 0; i < e->n; i++)
        server_continue(&e->servers[i]);
}

static pid_t leader(struct place *p)
{
    struct etcd_place *e = p->own;

    return e->servers[etcd_leader(e)].pid;
}

/* Messages of clients: calls of their own, keep-alives, watches. */
static int64_t work(struct place *p)
{
    struct etcd_place *e = p->own;
    int64_t sum = 0;

    for (size_t i = 0; i < e->n; i++)
        sum += etcd_number(e, i, "grpc_server_msg_received_total");
    return sum;
}

static void unusable(struct place *p, char *url, size_t size)
{
    snprintf(url, size, "etcd://127.0.0.1:%d/locks",
             ((struct etcd_place *)p->own)->dead_port);
}

static struct etcd_place *begin(struct place *p, size_t members)
{
    struct etcd_place *e = etcd_place_new(members);

    p->own = e;
    p->pid = 0;
    strcpy(p->dir, e->servers[0].dir);
    etcd_url(e, p->url, sizeof(p->url), "/locks?ttl=9s&connect_timeout=12s");
    return e;
}

static void one_start(struct place *p)
{
    etcd_start_all(begin(p, 1));
}

static void three_start(struct place *p)
{
    etcd_start_all(begin(p, 3));
}

static void auth_start(struct place *p)
{
    struct etcd_place *e = begin(p, 1);

    etcd_start_all(e);
    etcd_auth(e);
    snprintf(p->url, sizeof(p->url),
             "etcd://locker:s3cr%%40t@127.0.0.1:%d/locks?ttl=9s&connect_timeout=12s",
             e->servers[0].port);
}

static void tls_url(struct place *p, int port, char *url, size_t size)
{
    int n =
        snprintf(url, size,
                 "etcds://localhost:%d/locks?ttl=9s&connect_timeout=12s&tls_ca=%s/ca.crt"
                 "&tls_cert=%s/client.crt",
                 port, p->dir, p->dir);

    n += snprintf(url + n, size - (size_t)n, "&tls_key=%s/client.key", p->dir);
    CHECK(n < (int)size);
}

static void tls_start(struct place *p)
{
    struct etcd_place *e = begin(p, 1);

    certificates_make(e->servers[0].dir);
    etcd_secure(e);
    etcd_start_all(e);
    tls_url(p, e->servers[0].port, p->url, sizeof(p->url));
}

static void tls_unusable(struct place *p, char *url, size_t size)
{
    tls_url(p, ((struct etcd_place *)p->own)->dead_port, url, size);
}

/* Without HF_CAP_DEADLINE: the distribution's is 3.4.23. A join is a write of a majority,
 * and those of one client in one line go one after the other. */
#define ETCD_SETUP(of, name_, start_, unusable_, traits_)                                  \
    const struct setup of = {                                                              \
        .name = name_,                                                                     \
        .caps = HF_CAP_FIFO | HF_CAP_FENCE | HF_CAP_SHARED | HF_CAP_PERMITS |              \
                HF_CAP_LINE | HF_CAP_TTL | HF_CAP_KEEP | HF_CAP_CELL | HF_CAP_CELL_EXPIRY, \
        .traits = traits_,                                                                 \
        .start = start_,                                                                   \
        .stop = stop,                                                                      \
        .restart = restart,                                                                \
        .block = block,                                                                    \
        .unblock = unblock,                                                                \
        .unusable = unusable_,                                                             \
        .leader = leader,                                                                  \
        .work = work,                                                                      \
        .waiters = 2000,                                                                   \
        .server = "HF_TEST_ETCD",                                                          \
        .newer_caps = HF_CAP_DEADLINE,                                                     \
    }

ETCD_SETUP(setup_etcd, "etcd", one_start, unusable, 0);
ETCD_SETUP(setup_etcd_three, "etcd-three", three_start, unusable, SETUP_TOPOLOGY);
ETCD_SETUP(setup_etcd_tls, "etcd-tls", tls_start, tls_unusable, SETUP_TOPOLOGY);
ETCD_SETUP(setup_etcd_auth, "etcd-auth", auth_start, unusable, SETUP_TOPOLOGY);
