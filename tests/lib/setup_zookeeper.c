/* setup_zookeeper.c: ZooKeeper from the distribution's jars: one server, three of them,
 * TLS.
 *
 * Nothing is installed as a service: the class path is all that is taken from the
 * package; HF_TEST_ZOOKEEPER is that of servers of another release. forceSync=no: a killed
 * process loses nothing that the kernel has. PerfDisableSharedMem: else the machine of
 * Java stands still when a file of its own in /tmp is being written to the disk.
 * Restarting kills with SIGKILL. Blocking is SIGSTOP: the kernel goes on accepting
 * connections, and nobody answers. */
#include "setup_zookeeper.h"

#include "check.h"
#include "setup_redis.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

const char zk_class_path[] =
    "/usr/share/java/zookeeper.jar:/usr/share/java/zookeeper-jute.jar"
    ":/usr/share/java/slf4j-api.jar:/usr/share/java/slf4j-simple.jar"
    ":/usr/share/java/snappy-java.jar:/usr/share/java/metrics-core.jar"
    /* for TLS */
    ":/usr/share/java/netty-buffer.jar:/usr/share/java/netty-codec.jar"
    ":/usr/share/java/netty-common.jar:/usr/share/java/netty-handler.jar"
    ":/usr/share/java/netty-resolver.jar:/usr/share/java/netty-transport.jar"
    ":/usr/share/java/netty-transport-native-epoll.jar"
    ":/usr/share/java/netty-transport-native-unix-common.jar";

const char *zk_server_path(void)
{
    const char *other = getenv("HF_TEST_ZOOKEEPER");

    return other ? other : zk_class_path;
}

#define ZK_CAPS                                                                            \
    (HF_CAP_DEADLINE | HF_CAP_FIFO | HF_CAP_FENCE | HF_CAP_SHARED | HF_CAP_PERMITS |       \
     HF_CAP_LINE | HF_CAP_CELL)

/* ---- servers --------------------------------------------------------------------- */

void zk_config(struct server *s, const char *line, ...)
{
    char text[1024];
    va_list ap;
    int n;

    va_start(ap, line);
    n = vsnprintf(text, sizeof(text) - 1, line, ap);
    va_end(ap);
    CHECK(n > 0 && n < (int)sizeof(text) - 1);
    strcpy(text + n, "\n");
    file_put(s->dir, "zoo.cfg", "a", text);
}

static const char *java(void)
{
    static char found[512];
    const char *path = getenv("PATH");

    for (const char *p = path; !found[0] && p && *p; p += strcspn(p, ":"), p += *p == ':') {
        snprintf(found, sizeof(found), "%.*s/java", (int)strcspn(p, ":"), p);
        if (access(found, X_OK) != 0)
            found[0] = 0;
    }
    if (!found[0])
        check_failed(__FILE__, __LINE__, "no java in PATH");
    return found;
}

void zk_run(struct zk_place *z, size_t i)
{
#define FACTORY "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server."
    const char *factory =
        z->tls ? FACTORY "NettyServerCnxnFactory" : FACTORY "NIOServerCnxnFactory";
    const char *argv[] = { "java",
                           "-Xms32m",
                           "-Xmx192m",
                           "-XX:+UseSerialGC",
                           "-XX:TieredStopAtLevel=1",
                           "-Xshare:auto",
                           "-XX:+PerfDisableSharedMem",
                           "-Dzookeeper.forceSync=no",
                           "-Dzookeeper.preAllocSize=64",
                           "-Dzookeeper.admin.enableServer=false",
                           "-Dzookeeper.fastleader.maxNotificationInterval=1000",
                           "-Dzookeeper.cnxTimeout=1000",
                           "-Dzookeeper.4lw.commands.whitelist=*",
                           factory,
                           "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                           "-cp",
                           zk_server_path(),
                           "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                           "zoo.cfg",
                           NULL };

    server_spawn(&z->servers[i], java(), (char *const *)(void *)argv);
}

const char *zk_word(const struct server *s, const char *word)
{
    static char answer[65536];
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)s->port),
                             .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct timeval limit = { .tv_sec = 2 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t n = 0;
    ssize_t got;

    CHECK(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
        write(fd, word, strlen(word)) == (ssize_t)strlen(word))
        while (n < sizeof(answer) - 1 &&
               (got = read(fd, answer + n, sizeof(answer) - 1 - n)) > 0)
            n += (size_t)got;
    answer[n] = 0;
    close(fd);
    return answer;
}

int64_t zk_number(const struct server *s, const char *word, const char *field)
{
    const char *at = strstr(zk_word(s, word), field);

    return at ? strtoll(at + strlen(field), NULL, 0) : -1;
}

bool zk_serves(const struct server *s)
{
    return strstr(zk_word(s, "srvr"), "Mode: ") != NULL;
}

void zk_await(struct zk_place *z, size_t i)
{
    int64_t until =
        now_ms() + 4 * LIMIT_MS; /* a virtual machine of Java, and an election */

    while (!zk_serves(&z->servers[i])) {
        server_must_run(&z->servers[i]);
        CHECK_NUM(now_ms(), <, until);
        nap();
    }
}

size_t zk_leader(struct zk_place *z)
{
    int64_t until = now_ms() + 4 * LIMIT_MS;

    for (;;) {
        for (size_t i = 0; i < z->n; i++)
            if (server_runs(&z->servers[i]) &&
                strstr(zk_word(&z->servers[i], "srvr"), "Mode: leader"))
                return i;
        CHECK_NUM(now_ms(), <, until);
        nap();
    }
}

/* ---- places ---------------------------------------------------------------------- */

struct zk_place *zk_place_new(struct place *p, size_t n)
{
    struct zk_place *z = shared_new(sizeof(*z));

    p->own = z;
    p->pid = 0;
    z->n = n;
    z->dead_port = port_reserve(&z->dead_fd);
    for (size_t i = 0; i < n; i++) {
        struct server *s = &z->servers[i];

        server_init(s, "zookeeper");
        z->quorum[i] = port_reserve(&z->quorum_fd[i]);
        zk_config(s, "tickTime=%d\ninitLimit=20\nsyncLimit=6\ndataDir=data", ZK_TICK_MS);
        zk_config(s, "maxClientCnxns=0\nautopurge.purgeInterval=0\nsnapCount=100000");
        zk_config(s, "standaloneEnabled=true\nclientPortAddress=127.0.0.1");
    }
    strcpy(p->dir, z->servers[0].dir);
    return z;
}

void zk_ensemble(struct zk_place *z)
{
    for (size_t i = 0; i < z->n; i++) {
        struct server *s = &z->servers[i];
        char command[256], id[32];

        for (size_t k = 0; k < z->n; k++)
            zk_config(s, "server.%zu=127.0.0.1:%d:%d", k + 1,
                      z->seen[i][k] ? z->seen[i][k] : z->quorum[k],
                      z->elects[i][k] ? z->elects[i][k] : z->quorum[k] + 10000);
        snprintf(command, sizeof(command), "mkdir -p '%s/data'", s->dir);
        CHECK(system(command) == 0);
        snprintf(id, sizeof(id), "%zu\n", i + 1);
        file_put(s->dir, "data/myid", "w", id);
    }
}

/* The first session, or handshake, of a virtual machine that has just begun may take it
 * seconds. */
void zk_use_once(const char *url)
{
    int64_t until = now_ms() + 4 * LIMIT_MS;
    hf_client *c = NULL;
    hf_list *list = NULL;

    CHECK_RC(hf_open(url, NULL, &c, E()), 0);
    while (hf_look(c, "n", &list, E()) < 0) {
        CHECK_NUM(now_ms(), <, until);
        nap();
    }
    hf_list_free(list);
    hf_close(c);
}

void zk_start_all(struct zk_place *z)
{
    char url[64];

    for (size_t i = 0; i < z->n; i++)
        zk_run(z, i);
    for (size_t i = 0; i < z->n; i++)
        zk_await(z, i);
    for (size_t i = 0; i < z->n; i++) {
        snprintf(url, sizeof(url), "zk://127.0.0.1:%d/first", z->servers[i].port);
        zk_use_once(url);
    }
}

void zk_url(const struct zk_place *z, char *url, size_t size, const char *tail)
{
    int n = snprintf(url, size, "zk://");

    for (size_t i = 0; i < z->n; i++)
        n += snprintf(url + n, size - (size_t)n, "%s127.0.0.1:%d", i ? "," : "",
                      z->servers[i].port);
    n += snprintf(url + n, size - (size_t)n, "%s", tail);
    CHECK(n < (int)size);
}

void zk_place_stop(struct place *p)
{
    struct zk_place *z = p->own;

    for (size_t i = 0; i < z->n; i++) {
        server_remove(&z->servers[i]);
        close(z->quorum_fd[i]);
    }
    close(z->dead_fd);
    shared_free(z, sizeof(*z));
}

void zk_secure(struct zk_place *z, const char *who)
{
    struct server *s = &z->servers[0];
    char command[512];

    snprintf(command, sizeof(command),
             "cd '%s' && cat %s.key %s.crt >server.pem && cp ca.crt ca.pem", s->dir, who,
             who);
    CHECK(system(command) == 0);
    z->tls = true;
    zk_config(s, "clientPort=%d\nsecureClientPort=%d", s->port, s->port + 10000);
    zk_config(s, "ssl.keyStore.location=%s/server.pem\nssl.keyStore.type=PEM", s->dir);
    zk_config(s, "ssl.trustStore.location=%s/ca.pem\nssl.trustStore.type=PEM", s->dir);
    zk_config(s, "ssl.clientAuth=need\nssl.hostnameVerification=false");
}

static void restart(struct place *p)
{
    struct zk_place *z = p->own;

    for (size_t i = 0; i < z->n; i++)
        server_kill(&z->servers[i]);
    zk_start_all(z);
    if (z->tls)
        zk_use_once(p->url);
}

static void block(struct place *p)
{
    struct zk_place *z = p->own;

    for (size_t i = 0; i < z->n; i++)
        server_freeze(&z->servers[i]);
}

static void unblock(struct place *p)
{
    struct zk_place *z = p->own;

    for (size_t i = 0; i < z->n; i++)
        server_continue(&z->servers[i]);
}

static pid_t leader(struct place *p)
{
    struct zk_place *z = p->own;

    return z->servers[z->n > 1 ? zk_leader(z) : 0].pid;
}

/* Packets of clients; asking is one too. */
static int64_t work(struct place *p)
{
    struct zk_place *z = p->own;
    int64_t sum = 0;

    for (size_t i = 0; i < z->n; i++)
        sum += zk_number(&z->servers[i], "srvr", "Received: ") - 1;
    return sum;
}

static void unusable(struct place *p, char *url, size_t size)
{
    struct zk_place *z = p->own;

    snprintf(url, size, "zk://127.0.0.1:%d/contract", z->dead_port);
}

/* ---- the set-ups ----------------------------------------------------------------- */

static void one_start(struct place *p)
{
    struct zk_place *z = zk_place_new(p, 1);

    zk_config(&z->servers[0], "clientPort=%d", z->servers[0].port);
    zk_start_all(z);
    zk_url(z, p->url, sizeof(p->url), "/contract?ttl=6s");
}

static void rw_start(struct place *p)
{
    one_start(p);
    strcat(p->url, "&names=rw");
}

static void auth_start(struct place *p)
{
    one_start(p);
    strcat(p->url, "&auth=locker:s3cr@t");
}

static void alone_start(struct place *p)
{
    one_start(p);
    strcat(p->url, "&mode=ephemeral");
}

static void three_start(struct place *p)
{
    struct zk_place *z = zk_place_new(p, 3);

    for (size_t i = 0; i < 3; i++)
        zk_config(&z->servers[i], "clientPort=%d", z->servers[i].port);
    zk_ensemble(z);
    zk_start_all(z);
    zk_url(z, p->url, sizeof(p->url), "/contract?ttl=6s");
}

/* Handshakes cost a young virtual machine much: more time for them. */
static void tls_url(struct place *p, int port, char *url, size_t size)
{
    int n = snprintf(url, size,
                     "zks://localhost:%d/contract?ttl=12s&connect_timeout=20s"
                     "&tls_ca=%s/ca.crt&tls_cert=%s/client.crt",
                     port, p->dir, p->dir);

    n += snprintf(url + n, size - (size_t)n, "&tls_key=%s/client.key", p->dir);
    CHECK(n < (int)size);
}

static void tls_start(struct place *p)
{
    struct zk_place *z = zk_place_new(p, 1);

    certificates_make(z->servers[0].dir);
    zk_secure(z, "server");
    zk_start_all(z);
    tls_url(p, z->servers[0].port + 10000, p->url, sizeof(p->url));
    zk_use_once(p->url);
}

static void tls_unusable(struct place *p, char *url, size_t size)
{
    tls_url(p, ((struct zk_place *)p->own)->dead_port, url, size);
}

#define ZK_SETUP(of, name_, caps_, start_, unusable_, traits_)                             \
    const struct setup of = {                                                              \
        .name = name_,                                                                     \
        .caps = caps_,                                                                     \
        .traits = traits_,                                                                 \
        .start = start_,                                                                   \
        .stop = zk_place_stop,                                                             \
        .restart = restart,                                                                \
        .block = block,                                                                    \
        .unblock = unblock,                                                                \
        .unusable = unusable_,                                                             \
        .leader = leader,                                                                  \
        .work = work,                                                                      \
    }

ZK_SETUP(setup_zookeeper, "zookeeper", ZK_CAPS, one_start, unusable, 0);
ZK_SETUP(setup_zookeeper_three, "zookeeper-three", ZK_CAPS, three_start, unusable,
         SETUP_TOPOLOGY);
ZK_SETUP(setup_zookeeper_tls, "zookeeper-tls", ZK_CAPS, tls_start, tls_unusable,
         SETUP_TOPOLOGY);
ZK_SETUP(setup_zookeeper_auth, "zookeeper-auth", ZK_CAPS, auth_start, unusable,
         SETUP_TOPOLOGY);
ZK_SETUP(setup_zookeeper_rw, "zookeeper-rw", ZK_CAPS, rw_start, unusable, SETUP_TOPOLOGY);
ZK_SETUP(setup_zookeeper_ephemeral, "zookeeper-ephemeral",
         HF_CAP_DEADLINE | HF_CAP_FENCE | HF_CAP_CELL, alone_start, unusable,
         SETUP_TOPOLOGY);
