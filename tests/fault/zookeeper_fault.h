/* zookeeper_fault.h: what the fault tests on ZooKeeper share. A case has a process and
 * servers of its own, so the servers, the proxy and the place are global, and names need
 * not be told apart. */
#ifndef HF_TESTS_ZOOKEEPER_FAULT_H
#define HF_TESTS_ZOOKEEPER_FAULT_H

#include "proxy.h"
#include "rig.h"
#include "setup_zookeeper.h"

/* Of every session here that names no other. Slow machines get the longest that servers
 * give. */
enum { TTL_MS = TEST_SANITIZED ? 8000 : 2000 };
#define TTL (TEST_SANITIZED ? "ttl=8s" : "ttl=2s")

extern struct zk_place *servers;
extern struct proxy *proxy;

void use_one(const char *params);          /* one server */
void use_one_by_proxy(const char *params); /* reached through `proxy` */
void use_three(const char *params);
hf_client *opened_at(const char *url);
hf_client *opened_directly(size_t server); /* past the proxy, that server only */
void done(void);                           /* ends what was started */

/* One holds, one waits; each with a client of its own: the first reached as rig.place
 * says. */
struct two {
    hf_client *a, *b;
    hf_lease *held;
    struct pend *waits;
    uint64_t fence; /* of held */
};
struct two hold_and_wait(void);
void two_go_on(struct two *);
void two_lost(struct two *);

/* ---- a client of the test's own -------------------------------------------------- */

struct hand {
    int fd;
    int xid;
};

struct hand hand_open(int port, int timeout_ms);
void hand_close(struct hand *);                   /* ends its session */
int hand_delete(struct hand *, const char *path); /* 0 or the server's error */
int hand_create(struct hand *, const char *path, int mode);
bool hand_ping(struct hand *); /* false: no answer within half a second */
/* The children, one per line; "" if there are none, or no such node. Valid until the
 * next. */
const char *hand_children(struct hand *, const char *path);
size_t count_lines(const char *text);

#endif
