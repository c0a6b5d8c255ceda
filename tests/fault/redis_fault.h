/* redis_fault.h: what the fault tests on Redis share. A case has a process of its own, so
 * the server, the proxy and the place are global. */
#ifndef HF_TESTS_REDIS_FAULT_H
#define HF_TESTS_REDIS_FAULT_H

#include "proxy.h"
#include "redis.h"
#include "rig.h"
#include "setup_redis.h"

enum {
    SHORT_MS = TEST_SANITIZED ? 6000 : 3000, /* a ttl that ends within a test */
    SILENCE_MS = 2000 /* a connect_timeout that ends, and is enough for a busy machine */
};

extern struct server server;
extern struct proxy *proxy;

/* Starts `server` (after redis_init and what the case adds to its configuration), and makes
 * it the store of this case: opened(), kids. */
void use_server(void);
void use_plain_server(void);
void use_proxied_server(const char *params); /* the store is reached through `proxy` */
hf_client *opened_directly(void);            /* past the proxy */
hf_client *opened_at(const char *url, const hf_options *);
void done(void); /* ends what was started */

/* One holds (with the ttl), one waits; each with a client of its own. */
struct two {
    hf_client *a, *b;
    hf_lease *held;
    struct pend *waits;
    uint64_t fence; /* of held */
};
struct two hold_and_wait(int64_t ttl_ms);

/* Nothing is lost until the hold was renewed twice: once at least by a request that was
 * sent after now. */
void two_renewed(const struct two *);

/* Nothing was lost: still one holder and one waiter; the release admits it, with a greater
 * fence, and the line is empty in the end. */
void two_go_on(struct two *);
/* The hold was lost: so it says, and the waiter has or gets the place, with a greater
 * fence. */
void two_lost(struct two *);

/* Our key of this kind ("l": the line itself) for the name; "" if there is none. Valid
 * until the next call. */
const char *key_of(struct server *, const char *kind, const char *name);

enum { ENDLESS_MS = 600000 }; /* no look, renewal or end of it within a case */
#define ENDLESS HF_REQUEST(.ttl_ms = ENDLESS_MS)

/* Through the proxy; connected, so that what is frozen next is a request. user: "" or
 * "name:password@" */
hf_client *connected_by_proxy(const char *user, int64_t answer_ms);

#endif
