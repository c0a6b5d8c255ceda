/* net_certs.h: certificates made while the test runs, and a TLS server that takes its
 * steps between the turns of the loop. */
#ifndef HF_TESTS_NET_CERTS_H
#define HF_TESTS_NET_CERTS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>

struct cert {
    X509 *x509;
    EVP_PKEY *key;
    char file[128], key_file[128]; /* PEM */
};

/* signer NULL: self-signed; names "DNS:a,IP:1.2.3.4" or NULL: an authority; days < 0:
 * expired */
void cert_make(struct cert *, const char *folder, const char *name,
               const struct cert *signer, const char *names, int days);
void cert_lock_key(const struct cert *, const char *path); /* a copy with a passphrase */
void cert_free(struct cert *);

struct tls_server {
    SSL_CTX *ctx;
    SSL *ssl; /* of the connection it has */
    int fd;
    bool shaken, closed, failed; /* closed: it was told that we close */
    bool paused;                 /* does not read */
    const char *speaks;
    char text[64];
    size_t got;
    unsigned sum;
};

void tls_server_init(struct tls_server *, const struct cert *, int version); /* 0: any */
void tls_server_want_client(struct tls_server *, const struct cert *authority);
void tls_server_speaks(struct tls_server *, const char *protocol); /* ALPN; no other */
void tls_server_take(struct tls_server *, int fd); /* non-blocking from here on */
void tls_server_step(struct tls_server *);
void tls_server_say(struct tls_server *, const void *, size_t); /* must fit */
void tls_server_done(struct tls_server *);

#endif
