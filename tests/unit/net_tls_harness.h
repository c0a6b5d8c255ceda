/* net_tls_harness.h: a stream with TLS and a server of OpenSSL on loopback, with
 * certificates that are made for each case. */
#ifndef HF_TESTS_NET_TLS_HARNESS_H
#define HF_TESTS_NET_TLS_HARNESS_H

#include "net_certs.h"
#include "net_harness.h"

extern const struct tls_module hf__tls;

extern struct tls_server t;
/* `good` is of `authority`, for localhost and 127.0.0.1 */
extern struct cert authority, other_authority, good;
extern struct tls_context *context; /* trusts `authority`; of tls_to */

int tls_setup(void **state);
int tls_teardown(void **state);
#define CASE(f) cmocka_unit_test_setup_teardown(f, tls_setup, tls_teardown)

void tls_pump(void); /* lets the server work; for net_pump */
struct tls_context *make_context(const char *ca, const char *cert, const char *key);
struct stream_target tls_to(const char *host);
/* Opens a stream to the server, which has this certificate, until something is told. */
void meet(const char *host, const struct cert *, int version);
void meet_well(const char *host, int version); /* with `good`, until both are up */
void talk(const char *host, int version);      /* meets well, and words go both ways */
void part(void);                               /* ends both sides */
/* The stream is told of its end, once, with this code and text. */
void expect_down(int code, const char *text);
void expect_refusal(const char *host, const struct cert *, int code, const char *text);

#endif
