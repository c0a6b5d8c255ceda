/* redlock_fault.h: what the fault tests on Redlock share. A case has a process of its own,
 * so the servers are global. */
#ifndef HF_TESTS_REDLOCK_FAULT_H
#define HF_TESTS_REDLOCK_FAULT_H

#include "proxy.h"
#include "redis.h"
#include "rig.h"

enum { FIVE = 5, HOLD_MS = 2500 * TEST_SLOW, SOON_MS = 2000 * TEST_SLOW };

extern struct server servers[FIVE];
extern struct proxy *proxies[FIVE];

/* Starts n servers and makes them the store of this case; params: of the URL. */
void use_nodes(size_t n, const char *params);
void use_proxied_nodes(size_t n, const char *params);
hf_client *opened_with_params(const char *params); /* the same nodes */
void nodes_done(void);

size_t nodes_with(const char *key);                  /* how many have it now */
size_t nodes_of(const char *key, const char *value); /* with that value */
void await_gone(const char *key);                    /* from every node that can be asked */

void await_marks(hf_client *); /* every node has one */

/* One holds, with a ttl of HOLD_MS, and all nodes have its key; one waits. */
struct pair {
    hf_client *a, *b;
    hf_lease *held;
    struct pend *waits;
    char value[256]; /* of its key */
};
struct pair pair_begin(void);
/* It is held still, over two ttls and with nobody beside it; then the other has it soon,
 * with a greater fence. */
void pair_end(struct pair *);

#endif
