/* proxy.h: a network that obeys: a TCP proxy in a thread, moved by the test.
 *
 * Bytes pass as they come until a direction of a connection is frozen: then they are kept,
 * and so is the end of the stream, and both go on in order when it is thawed. So a request
 * can be held back while its sender gives up and closes, and reach the server later, as
 * from a slow router. Each call has taken effect when it returns. Nothing here waits for
 * time to pass.
 */
#ifndef HF_TESTS_PROXY_H
#define HF_TESTS_PROXY_H

#include <stdbool.h>
#include <stddef.h>

struct proxy;

enum { PROXY_UP = 1, PROXY_DOWN = 2 };        /* to the server; to the client */
enum { PROXY_PRESENT = 1, PROXY_FUTURE = 2 }; /* which connections are meant */

struct proxy *proxy_new(int server_port);
int proxy_port(const struct proxy *);
void proxy_free(struct proxy *); /* cuts everything */

/* From now on these directions of these connections are frozen, the others pass. Frozen
 * both ways, PRESENT and FUTURE: a black hole that accepts. 0: all passes again. */
void proxy_freeze(struct proxy *, unsigned which, unsigned directions);

/* Both ways of all connections, present and future, whose first bytes have this text: where
 * several come to one server, and only the header of a request says from whom. NULL: none.
 */
void proxy_freeze_those(struct proxy *, const char *text);

/* Each connection, present and future, lives for this many more bytes to the client and is
 * cut on both sides then. Negative: no more. */
void proxy_cut_after(struct proxy *, long bytes);

void proxy_drop(struct proxy *);                 /* cuts every present connection */
void proxy_refuse(struct proxy *, bool refuse);  /* cuts each new one at once */
void proxy_aim(struct proxy *, int server_port); /* new ones lead there */
/* From now on this word is made unreadable on its way to the client, as by a proxy that
 * does not pass on everything. It stays where it is; NULL: no more. */
void proxy_hide(struct proxy *, const char *word);

/* What happened so far. */
size_t proxy_kept(struct proxy *, unsigned directions); /* bytes frozen now */
size_t proxy_passed(struct proxy *, unsigned directions);
size_t proxy_accepted(struct proxy *); /* connections, ever */
size_t proxy_open(struct proxy *);     /* connections whose client is still there */
size_t proxy_cuts(struct proxy *);     /* connections that proxy_cut_after ended */

#endif
