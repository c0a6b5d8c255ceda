/* postgres_fault.h: what the fault tests on PostgreSQL share. A case has a process of its
 * own, so the server, the proxy and the place are global. */
#ifndef HF_TESTS_POSTGRES_FAULT_H
#define HF_TESTS_POSTGRES_FAULT_H

#include "postgres.h"
#include "proxy.h"
#include "rig.h"

#include <stdatomic.h>

enum { SHORT_MS = TEST_SANITIZED ? 6000 : 3000 }; /* a ttl that ends within a test */

extern struct server server;
extern struct proxy *proxy;

/* Starts `server` (after postgres_init and what the case adds to its configuration), and
 * makes it the store of this case: opened(), kids. */
void use_server(const char *params);
void use_plain_server(const char *params);
void use_proxied_server(const char *params); /* the store is reached through `proxy` */
hf_client *opened_at(const char *url, const hf_options *);
hf_client *opened_directly(void); /* past the proxy */
void done(void);                  /* ends what was started */

/* Ends the backends of every client of the library; returns how many. */
int64_t end_backends(void);
/* How many tickets stand in the tables. */
int64_t tickets(void);
/* The counts of every line are those of its tickets, as schema.sql says. */
bool lines_whole(void);

/* A session of the test that has locked the row of a line, until it is ended. */
PGconn *lock_line(const char *name);
void unlock_line(PGconn *);

/* Before use_server: "app", which comes by the network, has to log in. */
void ask_password(void);

/* For hf_options.log: warnings with the text that is `user`. */
extern atomic_int warned;
void hear(void *user, int level, const char *name, const char *text);

/* One holds, one waits; each with a client of its own. */
struct two {
    hf_client *a, *b;
    hf_lease *held;
    struct pend *waits;
    uint64_t fence; /* of held */
};
struct two hold_and_wait(int64_t ttl_ms);
/* Nothing was lost: still one holder and one waiter; the release admits it, with a greater
 * fence, and the line is empty in the end. */
void two_go_on(struct two *);

#endif
