/* explain.c: what went wrong with TLS, in words.
 *
 * HF_EAUTH: the peer's certificate is not right, or the peer does not want us (an alert).
 * HF_EPROTO: what came is not TLS, or no version or protocol of ours. HF_EUNREACHABLE:
 * the connection broke, or damaged bytes came later: another connection may do better.
 */
#include "net/tls/openssl.h"
#include "util/error.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <string.h>

const char *hf__tls_reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_error());

    return text ? text : "unknown error";
}

static const char *verify_text(long result)
{
    switch (result) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
        return "it is for another host name";
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return "it is for another address";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        return "signed by an unknown authority (tls_ca= names the file of the right one)";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        return "self-signed, and not among the authorities we trust (tls_ca= names a file "
               "with it)";
    default:
        return X509_verify_cert_error_string(result);
    }
}

/* "tlsv1 alert unknown ca" -> "unknown ca" */
static const char *alert_text(void)
{
    const char *text = hf__tls_reason(), *alert = strstr(text, "alert ");

    return alert ? alert + strlen("alert ") : text;
}

int hf__tls_no_protocol(struct tls_session *s, hf_error *err)
{
    s->failed = true;
    hf__fail(err, HF_EPROTO, 0, NULL, "TLS: the peer does not agree to the protocol %.*s",
             (int)s->context->alpn[0], (const char *)s->context->alpn + 1);
    return TLS_FAILED;
}

static int alerted(struct tls_session *s, int alert, hf_error *err)
{
    if (alert == SSL_AD_NO_APPLICATION_PROTOCOL)
        return hf__tls_no_protocol(s, err);
    if (alert == SSL_AD_INTERNAL_ERROR)
        return hf__fail(err, HF_EUNREACHABLE, 0, NULL,
                        "TLS: the peer has an internal error");
    if (s->asked_cert && !s->context->has_cert)
        return hf__fail(err, HF_EAUTH, 0, NULL,
                        "TLS: the peer requires a client certificate (%s)", alert_text());
    return hf__fail(err, HF_EAUTH, 0, NULL, "TLS: the peer refused us: %s", alert_text());
}

static int from_queue(struct tls_session *s, hf_error *err)
{
    unsigned long first = ERR_peek_error();
    int reason = ERR_GET_REASON(first);
    long verified = SSL_get_verify_result(s->ssl);

    if (reason == ERR_R_MALLOC_FAILURE)
        return hf__fail(err, HF_EUNREACHABLE, ENOMEM, NULL, "TLS");
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED && verified != X509_V_OK)
        return hf__fail(err, HF_EAUTH, 0, NULL,
                        "TLS: the certificate for %s is refused: %s", s->host,
                        verify_text(verified));
    if (ERR_GET_LIB(first) == ERR_LIB_SSL && reason >= SSL_AD_REASON_OFFSET)
        return alerted(s, reason - SSL_AD_REASON_OFFSET, err);
    if (s->shaken)
        return hf__fail(err, HF_EUNREACHABLE, 0, NULL, "TLS: %s", hf__tls_reason());
    if (reason == SSL_R_UNSUPPORTED_PROTOCOL)
        return hf__fail(err, HF_EPROTO, 0, NULL, "TLS: the peer has no TLS 1.2 or later");
    return hf__fail(err, HF_EPROTO, 0, NULL, "the peer does not speak TLS: %s",
                    hf__tls_reason());
}

int hf__tls_explain(struct tls_session *s, int rc, hf_error *err)
{
    int what = SSL_get_error(s->ssl, rc);

    if (what == SSL_ERROR_WANT_READ) {
        s->drained = false;
        return TLS_WANT_READ;
    }
    if (what == SSL_ERROR_WANT_WRITE)
        return TLS_WANT_WRITE;
    s->failed = what != SSL_ERROR_ZERO_RETURN;
    if (s->shaken && (s->eof || what == SSL_ERROR_ZERO_RETURN))
        return TLS_EOF;
    if (s->sys)
        hf__fail(err, HF_EUNREACHABLE, s->sys, NULL, "TLS: the connection broke");
    else if (s->eof || what != SSL_ERROR_SSL)
        hf__fail(err, HF_EUNREACHABLE, 0, NULL,
                 "the peer closed the connection in the TLS handshake");
    else
        from_queue(s, err);
    ERR_clear_error();
    return TLS_FAILED;
}
