/* zookeeper_fault.c: starting, what most fault cases end with, and a small client that
 * does by hand what nobody should do. */
#include "zookeeper_fault.h"

#include "proto/jute.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

struct zk_place *servers;
struct proxy *proxy;
struct proxy *fronts[ZK_SERVERS];
struct news told;

static char direct[512]; /* the URL past the proxies */

/* ---- starting -------------------------------------------------------------------- */

static void set_url(char *url, size_t size, const char *hosts, const char *params)
{
    const char *ttl = strstr(params, "ttl=") ? "" : TTL;
    int n = snprintf(url, size, "zk://%s/fault?%s%s%s", hosts, ttl,
                     *ttl && *params ? "&" : "", params);

    CHECK(n < (int)size);
}

/* Sessions may be long: so that a slow machine is no fault. */
static void configure(struct server *s)
{
    zk_config(s, "clientPort=%d\nmaxSessionTimeout=60000", s->port);
}

static void start_one(void)
{
    servers = zk_place_new(rig.place, 1);
    configure(&servers->servers[0]);
    zk_start_all(servers);
}

void use_one(const char *params)
{
    char host[64];

    start_one();
    snprintf(host, sizeof(host), "127.0.0.1:%d", servers->servers[0].port);
    set_url(rig.place->url, sizeof(rig.place->url), host, params);
}

void use_one_by_proxy(const char *params)
{
    char host[64];

    start_one();
    proxy = proxy_new(servers->servers[0].port);
    snprintf(host, sizeof(host), "127.0.0.1:%d", proxy_port(proxy));
    set_url(rig.place->url, sizeof(rig.place->url), host, params);
    snprintf(host, sizeof(host), "127.0.0.1:%d", servers->servers[0].port);
    set_url(direct, sizeof(direct), host, params);
}

static void three_hosts(char hosts[128], const int ports[ZK_SERVERS])
{
    snprintf(hosts, 128, "127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", ports[0], ports[1],
             ports[2]);
}

void use_three(const char *params, const char *limits)
{
    int there[ZK_SERVERS], by_proxy[ZK_SERVERS];
    char hosts[128];

    servers = zk_place_new(rig.place, ZK_SERVERS);
    for (size_t i = 0; i < ZK_SERVERS; i++) {
        configure(&servers->servers[i]);
        if (*limits)
            zk_config(&servers->servers[i], "%s", limits);
        there[i] = servers->servers[i].port;
        fronts[i] = proxy_new(there[i]);
        by_proxy[i] = proxy_port(fronts[i]);
    }
    zk_ensemble(servers);
    zk_start_all(servers);
    three_hosts(hosts, by_proxy);
    set_url(rig.place->url, sizeof(rig.place->url), hosts, params);
    three_hosts(hosts, there);
    set_url(direct, sizeof(direct), hosts, params);
}

hf_client *opened_at(const char *url)
{
    hf_client *c = NULL;

    CHECK_RC(rig.face->open(url, HF_OPTIONS(.drive = HF_DRIVE_PROMPT), &c, E()), 0);
    return c;
}

hf_client *opened_past(void)
{
    return opened_at(direct[0] ? direct : rig.place->url);
}

hf_client *opened_directly(size_t server)
{
    char url[128];

    snprintf(url, sizeof(url), "zk://127.0.0.1:%d/fault?%s", servers->servers[server].port,
             TTL);
    return opened_at(url);
}

void done(void)
{
    if (proxy)
        proxy_free(proxy);
    for (size_t i = 0; i < ZK_SERVERS; i++)
        if (fronts[i])
            proxy_free(fronts[i]);
    zk_place_stop(rig.place);
}

/* ---- two ------------------------------------------------------------------------- */

static void on_change(hf_lease *l, int state, void *user)
{
    struct news *n = user;

    (void)l;
    if (state == HF_LOST)
        atomic_store(&n->lost_ms, now_ms());
    atomic_fetch_add(state == HF_HELD      ? &n->held
                     : state == HF_AT_RISK ? &n->risk
                                           : &n->lost,
                     1);
}

void listen_to(hf_lease *l, struct news *n)
{
    CHECK_RC(hf_lease_on_change(l, on_change, n, E()), 0);
}

struct two hold_and_wait(void)
{
    struct two t = { .a = prompted() };

    t.b = opened_past();
    t.held = taken(t.a, "n", NULL);
    t.fence = hf_lease_fence(t.held);
    listen_to(t.held, &told);
    t.waits = queued(t.b, "n", 1, NULL);
    return t;
}

struct two hold_at(size_t server)
{
    struct two t;

    for (size_t i = 0; i < ZK_SERVERS; i++)
        proxy_refuse(fronts[i], i != server);
    t = hold_and_wait();
    CHECK(proxy_passed(fronts[server], PROXY_DOWN) > 0);
    for (size_t i = 0; i < ZK_SERVERS; i++)
        proxy_refuse(fronts[i], false);
    return t;
}

/* Asked in this order: whoever holds when the next has been granted, holds too long. */
void two_are_right(struct two *t)
{
    if (pend_done(t->waits))
        CHECK_RC(hf_lease_check(t->held), HF_ELOST);
}

bool line_looks(hf_client *c, size_t holders, size_t waiters)
{
    hf_list *list = NULL;
    const hf_line *line;
    bool so;

    if (hf_look(c, "n", &list, NULL) < 0)
        return false;
    line = hf_list_at(list, 0);
    so = (line ? hf_line_holders(line) : 0) == holders &&
         (line ? hf_line_waiters(line) : 0) == waiters;
    hf_list_free(list);
    return so;
}

static void finish(struct two *t)
{
    AWAIT(line_looks(t->b, 0, 0));
    closed(t->a);
    closed(t->b);
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
    finish(t);
}

void two_lost(struct two *t)
{
    hf_lease *next;

    AWAIT(hf_lease_state(t->held) == HF_LOST);
    CHECK_RC(hf_lease_check(t->held), HF_ELOST);
    next = pend_granted(t->waits);
    CHECK_NUM(hf_lease_fence(next), >, t->fence);
    CHECK_RC(hf_lease_check(next), 0);
    CHECK_RC(rig.face->release(t->held, E()), HF_ELOST);
    CHECK_RC(hf_lease_check(next), 0);
    CHECK(line_is(t->b, "n", 1, 0));
    given(next);
    finish(t);
}

/* ---- by hand --------------------------------------------------------------------- */

static unsigned char message[1 << 20];

static void send_all(struct hand *h, struct jute_out *out)
{
    CHECK(!out->failed);
    CHECK(send(h->fd, out->buf, out->len, MSG_NOSIGNAL) == (ssize_t)out->len);
    free(out->buf);
}

/* The length of the next message; 0: nothing came in time. */
static size_t receive(struct hand *h)
{
    unsigned char head[4];
    int64_t len;
    size_t at = 0;

    if (recv(h->fd, head, 4, MSG_WAITALL) != 4)
        return 0;
    len = hf__jute_length(head, 4) - 4;
    CHECK(len > 0 && len < (int64_t)sizeof(message));
    while (at < (size_t)len) {
        ssize_t n = recv(h->fd, message + at, (size_t)len - at, 0);

        CHECK(n > 0);
        at += (size_t)n;
    }
    return at;
}

static void patience(struct hand *h, int ms)
{
    struct timeval limit = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

    setsockopt(h->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

struct hand hand_open(int port, int timeout_ms)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct hand h = { .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    struct jute_session s = { .timeout_ms = timeout_ms };
    struct jute_out out = { 0 };

    CHECK(h.fd >= 0);
    CHECK(connect(h.fd, (struct sockaddr *)&a, sizeof(a)) == 0);
    patience(&h, LIMIT_MS);
    hf__jute_put_connect(&out, &s, 0);
    send_all(&h, &out);
    CHECK(hf__jute_connected(message, receive(&h), &s) && s.timeout_ms > 0);
    return h;
}

/* Returns the server's error; the body is left in *reply. */
static int call(struct hand *h, struct jute_out *out, struct jute_reply *reply)
{
    hf__jute_end(out, 0);
    send_all(h, out);
    CHECK(hf__jute_reply(message, receive(h), reply));
    CHECK(reply->xid == h->xid);
    return reply->err;
}

static struct jute_out begin(struct hand *h, enum jute_op op)
{
    struct jute_out out = { 0 };

    hf__jute_begin(&out);
    hf__jute_put_header(&out, ++h->xid, op);
    return out;
}

int hand_delete(struct hand *h, const char *path)
{
    struct jute_out out = begin(h, JUTE_DELETE);
    struct jute_reply reply;

    hf__jute_put_text(&out, path, strlen(path));
    hf__jute_put_int(&out, -1);
    return call(h, &out, &reply);
}

int hand_create(struct hand *h, const char *path, int mode)
{
    struct jute_out out = begin(h, JUTE_CREATE2);
    struct jute_reply reply;

    hf__jute_put_create(&out, path, strlen(path), "", 0, false, (enum jute_mode)mode);
    return call(h, &out, &reply);
}

int hand_allow(struct hand *h, const char *path, int rights)
{
    enum { SET_ACL = 7 };
    struct jute_out out = begin(h, (enum jute_op)SET_ACL);
    struct jute_reply reply;

    hf__jute_put_text(&out, path, strlen(path));
    hf__jute_put_int(&out, 1);
    hf__jute_put_int(&out, rights);
    hf__jute_put_text(&out, "world", 5);
    hf__jute_put_text(&out, "anyone", 6);
    hf__jute_put_int(&out, -1);
    return call(h, &out, &reply);
}

bool hand_ping(struct hand *h)
{
    struct jute_out out = { 0 };
    struct jute_reply reply;
    bool answered;

    hf__jute_begin(&out);
    hf__jute_put_header(&out, JUTE_XID_PING, JUTE_PING);
    hf__jute_end(&out, 0);
    send_all(h, &out);
    patience(h, (int)LIMIT_MS / 3);
    answered = hf__jute_reply(message, receive(h), &reply) && reply.xid == JUTE_XID_PING;
    patience(h, LIMIT_MS);
    return answered;
}

const char *hand_children(struct hand *h, const char *path)
{
    static char text[1 << 20];
    struct jute_out out = begin(h, JUTE_GET_CHILDREN2);
    struct jute_reply reply;
    size_t at = 0;

    hf__jute_put_text(&out, path, strlen(path));
    hf__jute_put_bool(&out, false);
    text[0] = 0;
    if (call(h, &out, &reply) != 0)
        return text;
    for (size_t n = hf__jute_count(&reply.body, 4); n > 0; n--) {
        struct jute_text name = hf__jute_text(&reply.body);

        CHECK(at + name.len + 2 < sizeof(text));
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%.*s\n", (int)name.len,
                               name.at);
    }
    return text;
}

void hand_close(struct hand *h)
{
    struct jute_out out = begin(h, JUTE_CLOSE);
    struct jute_reply reply;

    call(h, &out, &reply);
    close(h->fd);
}

size_t count_lines(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}
