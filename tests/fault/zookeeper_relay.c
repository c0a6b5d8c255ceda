/* zookeeper_relay.c: answers that a healthy server does not give, or seldom.
 *
 * A relay stands between client and server, message by message, and changes one answer
 * on its way. What is changed is what nothing else in these tests can bring about:
 * that a node which was just made belongs to another session (G1), and that a server
 * has too much to do for a list (G4). */
#include "zookeeper_fault.h"

#include "proto/jute.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum spoils { SPOIL_NOTHING, SPOIL_OWNER, SPOIL_LIST };

enum { /* where things are in a message, with its length */
       SESSION_AT = 12,
       XID_AT = 4,
       OP_AT = 8,
       ERR_AT = 16,
       BODY_AT = 20
};

static struct relay {
    int listener, server_port;
    atomic_int spoils, spoilt, accepted;
    pthread_t thread;
    unsigned char session[8]; /* of the connection */
    int32_t list;             /* the number of the request whose answer is meant */
} relay;

struct way {
    int from, to;
    bool greeted;
    size_t (*change)(struct way *, unsigned char *message, size_t len);
    unsigned char kept[1 << 16];
    size_t n;
};

/* ---- changing -------------------------------------------------------------------- */

static int32_t number_at(const unsigned char *at)
{
    return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 |
                     at[3]);
}

static void put_number(unsigned char *at, int32_t n)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)((uint32_t)n >> 8 * (3 - i));
}

static void spoilt(void)
{
    atomic_store(&relay.spoils, SPOIL_NOTHING);
    atomic_fetch_add(&relay.spoilt, 1);
}

static size_t asked(struct way *w, unsigned char *message, size_t len)
{
    if (w->greeted && relay.spoils == SPOIL_LIST &&
        number_at(message + OP_AT) == JUTE_GET_CHILDREN2)
        relay.list = number_at(message + XID_AT);
    w->greeted = true;
    return len;
}

static size_t answered(struct way *w, unsigned char *message, size_t len)
{
    int32_t xid = number_at(message + XID_AT);
    unsigned char *owner;

    if (!w->greeted) {
        memcpy(relay.session, message + SESSION_AT, sizeof(relay.session));
        w->greeted = true;
    } else if (relay.spoils == SPOIL_OWNER && xid > 0 && number_at(message + ERR_AT) == 0) {
        owner =
            memmem(message + BODY_AT, len - BODY_AT, relay.session, sizeof(relay.session));
        if (owner) {
            owner[7] ^= 1;
            spoilt();
        }
    } else if (relay.spoils == SPOIL_LIST && xid > 0 && xid == relay.list) {
        put_number(message, BODY_AT - 4);
        put_number(message + ERR_AT, JUTE_THROTTLED);
        len = BODY_AT;
        spoilt();
    }
    return len;
}

/* ---- passing on ------------------------------------------------------------------ */

static bool pass(struct way *w)
{
    ssize_t got = recv(w->from, w->kept + w->n, sizeof(w->kept) - w->n, 0);
    int64_t len;

    if (got <= 0)
        return false;
    w->n += (size_t)got;
    while ((len = hf__jute_length(w->kept, w->n)) > 0 && (size_t)len <= w->n) {
        size_t out = w->change(w, w->kept, (size_t)len);

        if (send(w->to, w->kept, out, MSG_NOSIGNAL) != (ssize_t)out)
            return false;
        w->n -= (size_t)len;
        memmove(w->kept, w->kept + len, w->n);
    }
    return true;
}

static void serve(int client)
{
    static struct way up, down;
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)relay.server_port),
                             .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct pollfd fds[] = { { .fd = client, .events = POLLIN },
                            { .fd = server, .events = POLLIN } };

    CHECK(server >= 0 && connect(server, (struct sockaddr *)&a, sizeof(a)) == 0);
    up = (struct way){ .from = client, .to = server, .change = asked };
    down = (struct way){ .from = server, .to = client, .change = answered };
    do
        CHECK(poll(fds, 2, -1) > 0);
    while ((!fds[0].revents || pass(&up)) && (!fds[1].revents || pass(&down)));
    close(client);
    close(server);
}

static void *run(void *arg)
{
    int fd;

    (void)arg;
    while ((fd = accept(relay.listener, NULL, NULL)) >= 0) {
        atomic_fetch_add(&relay.accepted, 1);
        serve(fd);
    }
    return NULL;
}

/* Makes it the store of this case. The client has one connection at a time. */
static hf_client *opened_by_relay(const char *params)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof(a);
    char url[200];

    use_one(params);
    relay.server_port = servers->servers[0].port;
    relay.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(relay.listener, (struct sockaddr *)&a, len) == 0);
    CHECK(listen(relay.listener, 16) == 0);
    CHECK(getsockname(relay.listener, (struct sockaddr *)&a, &len) == 0);
    CHECK(pthread_create(&relay.thread, NULL, run, NULL) == 0);
    snprintf(url, sizeof(url), "zk://127.0.0.1:%d/fault?%s", ntohs(a.sin_port), params);
    return opened_at(url);
}

/* When its client is closed. */
static void relay_end(void)
{
    shutdown(relay.listener, SHUT_RDWR);
    CHECK(pthread_join(relay.thread, NULL) == 0);
    close(relay.listener);
}

/* ---- cases ----------------------------------------------------------------------- */

/* Such an answer is not believed: the connection is made anew, and the ticket is
 * looked for. */
static void made_by_another_session(void)
{
    hf_client *c = opened_by_relay("ttl=12s"), *direct = opened_at(rig.place->url);
    struct seen s;
    hf_lease *l;
    int before;

    given(taken(c, "n", NULL));
    before = relay.accepted;
    atomic_store(&relay.spoils, SPOIL_OWNER);
    l = taken(c, "n", NULL);
    CHECK_NUM(relay.spoilt, ==, 1);
    CHECK_NUM(relay.accepted, >, before);
    CHECK(line_is(direct, "n", 1, 0) && see(direct, "n", 0, &s));
    CHECK(hf_lease_fence(l) == s.fence);
    given(l);
    CHECK(line_is(direct, "n", 0, 0));
    closed(c);
    closed(direct);
    relay_end();
    done();
}

/* What stood before it has gone, and who is next now cannot be asked at that moment:
 * it is asked again. */
static void list_throttled(void)
{
    hf_client *c = opened_by_relay("ttl=12s&names=rw"), *direct = opened_at(rig.place->url);
    hf_lease *l = taken(direct, "n", NULL);
    struct pend *p = queued(c, "n", 1, NULL);

    atomic_store(&relay.spoils, SPOIL_LIST);
    given(l);
    given(pend_granted(p));
    CHECK_NUM(relay.spoilt, ==, 1);
    closed(c);
    closed(direct);
    relay_end();
    done();
}

const struct test_case zookeeper_relay_cases[] = {
    { "made-by-another-session", made_by_another_session, ON_ALL, 0, 0 },
    { "list-throttled", list_throttled, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
