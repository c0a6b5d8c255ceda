/* tls.h: what the module `tls` gives the streams. The library itself does not need OpenSSL:
 * the module is loaded when a URL first asks for TLS (env->tls).
 *
 * A context holds what was read from files and is shared by the streams of a client; a
 * session is one connection. Versions below TLS 1.2 are refused. The peer's certificate is
 * always verified, against `ca` or the system's; the host name (or address) must be in it.
 */
#ifndef HF_NET_TLS_H
#define HF_NET_TLS_H

#include <holdfast/holdfast.h>
#include <stddef.h>
#include <sys/types.h>

struct tls_context;
struct tls_session;

/* What the URL says about TLS. */
struct tls_config {
    const char *ca;   /* file or folder of PEM certificates; NULL: the system's */
    const char *cert; /* chain of our own, PEM; NULL: none */
    const char *key;  /* its key, PEM; NULL: in `cert` */
    const char *alpn; /* the protocol that the peer must agree to, "h2"; NULL: any */
};

/* Instead of a number of bytes: which event to wait for before the same call is repeated,
 * or that the connection has ended. */
enum tls_want { TLS_WANT_READ = -1, TLS_WANT_WRITE = -2, TLS_FAILED = -3, TLS_EOF = 0 };

/* The one table that the module gives; all sessions work on a non-blocking descriptor. */
struct tls_module {
    int (*context_new)(struct tls_context **, const struct tls_config *, hf_error *);
    void (*context_free)(struct tls_context *); /* takes NULL */
    /* `host` must live as long as the session */
    int (*begin)(struct tls_session **, struct tls_context *, int fd, const char *host,
                 hf_error *);
    /* 1: done; tls_want */
    int (*shake)(struct tls_session *, hf_error *);
    /* bytes or tls_want */
    ssize_t (*read)(struct tls_session *, void *, size_t, hf_error *);
    ssize_t (*write)(struct tls_session *, const void *, size_t, hf_error *);
    void (*end)(struct tls_session *, int tell_peer); /* takes NULL; never blocks */
};

#endif
