/* session.c: one TLS connection on a descriptor that a stream owns; the module's table.
 *
 * Goes well: begin, shake until it is done, read and write, end. Each call either does
 * something or says what it waits for; none blocks. The certificate is checked for the
 * name or the address that was asked for; there is no way to turn that off. Renegotiation
 * is refused, so writing waits for reading only in a handshake.
 *
 * Goes wrong: explain.c says how. After a failure nothing is sent any more, not even the
 * news that we close. In a forked child `end` frees only: the connection is the parent's.
 */
#include "net/tls/openssl.h"
#include "util/error.h"

#include <arpa/inet.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

static int note_request(SSL *ssl, void *unused)
{
    struct tls_session *s = SSL_get_app_data(ssl);

    (void)unused;
    s->asked_cert = true;
    return 1;
}

/* An address without its %zone, a name without the dot of the root: as certificates have
 * it. */
static bool plain_host(const char *host, char *buf, size_t size, bool *numeric)
{
    size_t len = strcspn(host, "%");
    unsigned char address[16];

    if (len == 0 || len >= size)
        return false;
    memcpy(buf, host, len);
    buf[len] = '\0';
    *numeric =
        inet_pton(AF_INET, buf, address) == 1 || inet_pton(AF_INET6, buf, address) == 1;
    if (!*numeric && len > 1 && buf[len - 1] == '.')
        buf[len - 1] = '\0';
    return true;
}

static bool set_host(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
    char plain[256];
    bool numeric;

    if (!plain_host(host, plain, sizeof plain, &numeric))
        return false;
    if (numeric)
        return X509_VERIFY_PARAM_set1_ip_asc(param, plain) == 1;
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(param, plain, 0) == 1 &&
           SSL_set_tlsext_host_name(ssl, plain) == 1;
}

static void end(struct tls_session *s, int tell_peer)
{
    if (!s)
        return;
    if (tell_peer && s->shaken && !s->failed)
        SSL_shutdown(s->ssl);
    SSL_free(s->ssl);
    ERR_clear_error();
    free(s);
}

static int begin(struct tls_session **ret, struct tls_context *context, int fd,
                 const char *host, hf_error *err)
{
    struct tls_session *s = calloc(1, sizeof *s);
    int rc = HF_ENOMEM;

    ERR_clear_error();
    if (!s || !(s->ssl = SSL_new(context->ssl)))
        goto fail;
    s->context = context;
    s->host = host;
    s->fd = fd;
    if (SSL_set_app_data(s->ssl, s) != 1 || hf__tls_bio(s) < 0)
        goto fail;
    SSL_set_cert_cb(s->ssl, note_request, NULL); /* for a better message if we have none */
    if (!set_host(s->ssl, host)) {
        rc = HF_EAUTH;
        goto fail;
    }
    SSL_set_connect_state(s->ssl);
    *ret = s;
    return 0;

fail:
    end(s, 0);
    if (rc == HF_ENOMEM)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for TLS");
    return hf__fail(err, rc, 0, NULL, "TLS: no certificate can be for %s", host);
}

/* What an earlier call left must not be taken for the outcome of this one: after a failed
 * write, reading may still find the alert that says why. */
static void begin_call(struct tls_session *s)
{
    ERR_clear_error();
    s->sys = 0;
}

/* A peer that knows nothing of such protocols goes on as if none had been named. */
static bool agreed(const struct tls_session *s)
{
    const struct tls_context *c = s->context;
    const unsigned char *name = NULL;
    unsigned len = 0;

    if (c->alpn_len == 0)
        return true;
    SSL_get0_alpn_selected(s->ssl, &name, &len);
    return len == c->alpn[0] && memcmp(name, c->alpn + 1, len) == 0;
}

static int shake(struct tls_session *s, hf_error *err)
{
    int rc;

    begin_call(s);
    rc = SSL_do_handshake(s->ssl);
    if (rc != 1)
        return hf__tls_explain(s, rc, err);
    s->shaken = true;
    return agreed(s) ? 1 : hf__tls_no_protocol(s, err);
}

static ssize_t session_read(struct tls_session *s, void *buf, size_t size, hf_error *err)
{
    int rc;

    begin_call(s);
    rc = SSL_read(s->ssl, buf, size > INT_MAX ? INT_MAX : (int)size);
    return rc > 0 ? rc : hf__tls_explain(s, rc, err);
}

static ssize_t session_write(struct tls_session *s, const void *data, size_t size,
                             hf_error *err)
{
    int rc;

    begin_call(s);
    rc = SSL_write(s->ssl, data, size > INT_MAX ? INT_MAX : (int)size);
    if (rc > 0)
        return rc;
    rc = hf__tls_explain(s, rc, err);
    if (rc != TLS_EOF)
        return rc;
    hf__fail(err, HF_EUNREACHABLE, 0, NULL, "the peer closed the connection");
    return TLS_FAILED;
}

const struct tls_module hf__tls = { .context_new = hf__tls_context_new,
                                    .context_free = hf__tls_context_free,
                                    .begin = begin,
                                    .shake = shake,
                                    .read = session_read,
                                    .write = session_write,
                                    .end = end };
