/* openssl.h: what the files of the module `tls` share. */
#ifndef HF_NET_TLS_OPENSSL_H
#define HF_NET_TLS_OPENSSL_H

#include "net/tls.h"

#include <openssl/ssl.h>
#include <stdbool.h>

/* Shared by the sessions of a client; not changed after context_new. */
struct tls_context {
    SSL_CTX *ssl;
    bool has_cert;
    size_t alpn_len;             /* 0: any protocol */
    unsigned char alpn[1 + 255]; /* on the wire: its length, then its name */
};

/* One connection. `sys`, `eof` and `drained` are noted by our own BIO (bio.c). */
struct tls_session {
    SSL *ssl;
    const struct tls_context *context;
    const char *host;
    int fd;
    int sys;      /* errno of the descriptor; 0: none */
    bool eof;     /* the peer closed */
    bool drained; /* the last recv was short: the next would find nothing */
    bool shaken, failed;
    bool asked_cert; /* the peer wanted a certificate of ours */
};

/* context.c */
int hf__tls_context_new(struct tls_context **, const struct tls_config *, hf_error *);
void hf__tls_context_free(struct tls_context *);

/* bio.c */
int hf__tls_bio(
    struct tls_session *); /* gives the session its end of the wire; 0, HF_ENOMEM */

/* explain.c: what a call that returned `rc` <= 0 means: a tls_want; TLS_FAILED fills
 * *err. */
int hf__tls_explain(struct tls_session *, int rc, hf_error *);
int hf__tls_no_protocol(struct tls_session *, hf_error *); /* TLS_FAILED */
const char *hf__tls_reason(void); /* the first reason in OpenSSL's queue, in words */

extern const struct tls_module hf__tls;

#endif
