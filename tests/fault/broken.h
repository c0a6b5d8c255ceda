/* broken.h: connections that break, and servers that only refuse: what the caller is told
 * is the same on every store. Each store has a case of its own that calls these. */
#ifndef HF_TESTS_BROKEN_H
#define HF_TESTS_BROKEN_H

#include "proxy.h"
#include "rig.h"

enum { BROKEN_MS = 2000 };                      /* connect_timeout of the client */
#define BROKEN_TIMEOUT "connect_timeout=2000ms" /* the same for its URL */

/* A release is under way when all n connections break. If the servers can be reached again
 * it is repeated and succeeds; if not, it ends with HF_EUNKNOWN after the connect time-out.
 * The client of rig.place reaches the servers through the proxies, `direct` does not. */
void release_breaks(struct proxy *const *, size_t n, hf_client *direct);

/* A release whose connection is cut after so many bytes of answers, once: it is repeated,
 * and succeeds. */
void release_cut(struct proxy *, long bytes, hf_lease *);

/* The server cannot be reached for a while: it is tried again as often as its
 * connect_timeout asks for, so that a call finds it when it is back. */
enum { SHORT_TIMEOUT_MS = 400 };
#define SHORT_TIMEOUT "connect_timeout=400ms"
void short_timeout(struct proxy *);

/* A server that greets as the real one does, and answers every other request with an error:
 * `talk` serves one connection until its end. */
struct fake;
struct fake *fake_new(void (*talk)(int fd));
int fake_port(const struct fake *);
void fake_free(struct fake *);

/* The store at `url` answers errors only: the call fails with `code`, in its time. */
void only_errors(const char *url, int code);

#endif
