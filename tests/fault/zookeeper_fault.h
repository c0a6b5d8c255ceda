/* zookeeper_fault.h: what the fault tests on ZooKeeper share. A case has a process and
 * servers of its own, so the servers, the proxy and the place are global, and names need
 * not be told apart. */
#ifndef HF_TESTS_ZOOKEEPER_FAULT_H
#define HF_TESTS_ZOOKEEPER_FAULT_H

#include "proxy.h"
#include "rig.h"
#include "setup_zookeeper.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/types.h>

/* Of every session here that names no other. Slow machines get the longest that servers
 * give. */
enum { TTL_MS = TEST_SANITIZED ? 8000 : 4000 };
#define TTL (TEST_SANITIZED ? "ttl=8s" : "ttl=4s")

extern struct zk_place *servers;
extern struct proxy *proxy;
extern struct proxy *fronts[ZK_SERVERS];

void use_one(const char *params);                       /* one server */
void use_one_by_proxy(const char *params);              /* reached through `proxy` */
void use_three(const char *params, const char *limits); /* by `fronts` */
hf_client *opened_at(const char *url);
hf_client *opened_past(void);              /* past the proxies */
hf_client *opened_directly(size_t server); /* that server only, and TTL */
void done(void);                           /* ends what was started */

/* The one server is stopped, its memory is changed (Doctor.java), and it is started again.
 */
void doctor(const char *order);

/* How often each grade was told of a lease. */
struct news {
    atomic_int risk, held, lost;
    atomic_llong lost_ms; /* when */
};
void listen_to(hf_lease *, struct news *);

/* One holds, one waits; each with a client of its own: the first reached as rig.place
 * says, the second past the proxies. */
struct two {
    hf_client *a, *b;
    hf_lease *held;
    struct pend *waits;
    uint64_t fence; /* of held */
};
extern struct news told; /* of its holder */
struct two hold_and_wait(void);
struct two hold_at(size_t server); /* of three: the holder has begun there */
void two_are_right(struct two *);  /* whatever is going on */
/* As line_is, but a look may fail: while servers look for a leader. */
bool line_looks(hf_client *, size_t holders, size_t waiters);
void two_go_on(struct two *);
void two_lost(struct two *);

/* ---- a program beside us (zookeeper_program.c) ----------------------------------- */

struct program {
    pid_t pid;
    FILE *to, *from;
};

struct program program_start(const char *const argv[]); /* and it is ready */
void program_ask(struct program *, const char *order);
const char *program_answer(struct program *); /* waits for it; valid until the next */
bool program_answered(struct program *);      /* there is one that was not read yet */
const char *program_say(struct program *, const char *order); /* asks, and waits */
void program_end(struct program *);

/* ---- a client of the test's own -------------------------------------------------- */

struct hand {
    int fd;
    int xid;
};

struct hand hand_open(int port, int timeout_ms);
void hand_close(struct hand *);                   /* ends its session */
int hand_delete(struct hand *, const char *path); /* 0 or the server's error */
int hand_create(struct hand *, const char *path, int mode);
int hand_allow(struct hand *, const char *path, int rights); /* to everybody */
bool hand_ping(struct hand *);                               /* false: no answer */
/* The children, one per line; "" if there are none, or no such node. Valid until the
 * next. */
const char *hand_children(struct hand *, const char *path);
size_t count_lines(const char *text);

#endif
