/* etcd_fault.h: what the fault tests on etcd share. A case has a process and servers of its
 * own, so the servers, the proxies and the place are global, and names need not be told
 * apart. */
#ifndef HF_TESTS_ETCD_FAULT_H
#define HF_TESTS_ETCD_FAULT_H

#include "proxy.h"
#include "rig.h"
#include "setup_etcd.h"

enum { PEER = 10000, TTL_MS = TEST_SANITIZED ? 8000 : 4000 };

extern int lease_s; /* of the URLs; TTL_MS unless it is set before use_members */
extern void (*before_start)(void); /* called by use_members; NULL: nothing */
extern struct etcd_place *members;
extern struct proxy *fronts[ETCD_SERVERS]; /* of each member, one also of one */

/* Started, and reached through `fronts`. params: more of the URL, begins with '&' */
void use_members(size_t n, const char *params);
void use_directly(const char *params); /* one, and no proxy: no thread of ours runs */
void done(void);                       /* ends what was started */

hf_client *opened_past(void); /* past the proxies, prompt */
/* They wait at this member only, from the next hold_and_wait on. */
void wait_at(size_t member);

/* Of etcdctl, at member 0 in the clear; valid until the next. */
const char *ctl(const char *args, ...) __attribute__((format(printf, 1, 2)));
/* The key of the i-th ticket of the line n, in the order of creation. */
const char *key_of(hf_client *, size_t i, char key[256]);
long long lease_in(const char *key); /* its number, of the key's name */

/* One holds, reached as rig.place says; one waits, past the proxies. */
struct two {
    hf_client *a, *b;
    hf_lease *held;
    struct pend *waits;
};
struct two hold_and_wait(void);
void two_are_right(struct two *); /* whatever is going on: never both */
void two_go_on(struct two *);     /* the holder holds and gives, the waiter gets */
void two_lost(struct two *);      /* the holder is told, the waiter gets it */
/* The same, where the ticket was ended by hand: both are told of it, in any order. */
void two_ended(struct two *);

#endif
