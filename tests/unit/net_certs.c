/* net_certs.c: see net_certs.h. Keys are of curve P-256: quick to make. */
#include "net_certs.h"
#include "net_harness.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <unistd.h>

static void add(X509 *cert, int what, const char *value)
{
    X509_EXTENSION *e;
    X509V3_CTX ctx;

    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, cert, cert, NULL, NULL, 0);
    e = X509V3_EXT_conf_nid(NULL, &ctx, what, value);
    assert_non_null(e);
    assert_int_equal(X509_add_ext(cert, e, -1), 1);
    X509_EXTENSION_free(e);
}

static void write_files(struct cert *c, const char *folder, const char *name)
{
    FILE *f;

    snprintf(c->file, sizeof c->file, "%s/%s.pem", folder, name);
    snprintf(c->key_file, sizeof c->key_file, "%s/%s.key", folder, name);
    f = fopen(c->file, "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_X509(f, c->x509), 1);
    fclose(f);
    f = fopen(c->key_file, "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_PrivateKey(f, c->key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(f);
}

void cert_make(struct cert *c, const char *folder, const char *name,
               const struct cert *signer, const char *names, int days)
{
    static long serial = 1;
    long second = 86400L * days;
    X509_NAME *subject;

    c->key = EVP_EC_gen("P-256");
    c->x509 = X509_new();
    assert_non_null(c->key);
    assert_non_null(c->x509);
    X509_set_version(c->x509, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(c->x509), serial++);
    X509_gmtime_adj(X509_getm_notBefore(c->x509), -86400L * 30);
    X509_gmtime_adj(X509_getm_notAfter(c->x509), second);
    subject = X509_get_subject_name(c->x509);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1,
                               -1, 0);
    X509_set_issuer_name(c->x509, signer ? X509_get_subject_name(signer->x509) : subject);
    X509_set_pubkey(c->x509, c->key);
    add(c->x509, NID_basic_constraints, names ? "critical,CA:FALSE" : "critical,CA:TRUE");
    if (names)
        add(c->x509, NID_subject_alt_name, names);
    assert_true(X509_sign(c->x509, signer ? signer->key : c->key, EVP_sha256()) > 0);
    write_files(c, folder, name);
}

void cert_lock_key(const struct cert *c, const char *path)
{
    unsigned char word[] = "secret";
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(PEM_write_PrivateKey(f, c->key, EVP_aes_128_cbc(), word,
                                          sizeof word - 1, NULL, NULL),
                     1);
    fclose(f);
}

void cert_free(struct cert *c)
{
    X509_free(c->x509);
    EVP_PKEY_free(c->key);
    memset(c, 0, sizeof *c);
}

void tls_server_init(struct tls_server *t, const struct cert *c, int version)
{
    memset(t, 0, sizeof *t);
    t->fd = -1;
    t->ctx = SSL_CTX_new(TLS_server_method());
    assert_non_null(t->ctx);
    SSL_CTX_set_mode(t->ctx,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (version && version < TLS1_2_VERSION)
        assert_int_equal(SSL_CTX_set_cipher_list(t->ctx, "DEFAULT@SECLEVEL=0"), 1);
    assert_int_equal(SSL_CTX_set_min_proto_version(t->ctx, version), 1);
    assert_int_equal(SSL_CTX_set_max_proto_version(t->ctx, version), 1);
    assert_int_equal(SSL_CTX_use_certificate(t->ctx, c->x509), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(t->ctx, c->key), 1);
}

void tls_server_want_client(struct tls_server *t, const struct cert *authority)
{
    assert_int_equal(SSL_CTX_load_verify_file(t->ctx, authority->file), 1);
    SSL_CTX_set_verify(t->ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
}

static int choose(SSL *ssl, const unsigned char **out, unsigned char *len,
                  const unsigned char *in, unsigned in_len, void *arg)
{
    const struct tls_server *t = arg;

    (void)ssl;
    for (unsigned i = 0; i < in_len; i += 1u + in[i])
        if (in[i] == strlen(t->speaks) && memcmp(in + i + 1, t->speaks, in[i]) == 0) {
            *out = in + i + 1;
            *len = in[i];
            return SSL_TLSEXT_ERR_OK;
        }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

void tls_server_speaks(struct tls_server *t, const char *protocol)
{
    t->speaks = protocol;
    SSL_CTX_set_alpn_select_cb(t->ctx, choose, t);
}

static void drop(struct tls_server *t)
{
    SSL_free(t->ssl);
    t->ssl = NULL;
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
}

void tls_server_take(struct tls_server *t, int fd)
{
    drop(t);
    t->fd = fd;
    t->shaken = t->closed = t->failed = false;
    t->got = 0;
    t->sum = 0;
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    t->ssl = SSL_new(t->ctx);
    assert_int_equal(SSL_set_fd(t->ssl, fd), 1);
    SSL_set_accept_state(t->ssl);
}

static void heard(struct tls_server *t, const char *buf, size_t n)
{
    for (size_t i = 0; i < n && t->got + i + 1 < sizeof t->text; i++)
        t->text[t->got + i] = buf[i];
    t->sum = sum_of(t->sum, buf, n);
    t->got += n;
}

void tls_server_step(struct tls_server *t)
{
    void (*ours)(int);
    char buf[4096];
    int rc;

    if (!t->ssl || t->failed || t->paused)
        return;
    ERR_clear_error();
    ours = signal(SIGPIPE, SIG_IGN); /* the server may raise it: OpenSSL's own BIO does */
    rc = t->shaken ? SSL_read(t->ssl, buf, sizeof buf) : SSL_do_handshake(t->ssl);
    signal(SIGPIPE, ours);
    if (rc > 0 && t->shaken)
        heard(t, buf, (size_t)rc);
    else if (rc > 0)
        t->shaken = true;
    else if (SSL_get_error(t->ssl, rc) == SSL_ERROR_ZERO_RETURN)
        t->closed = true;
    else if (SSL_get_error(t->ssl, rc) != SSL_ERROR_WANT_READ &&
             SSL_get_error(t->ssl, rc) != SSL_ERROR_WANT_WRITE)
        t->failed = true;
}

void tls_server_say(struct tls_server *t, const void *data, size_t n)
{
    assert_int_equal(SSL_write(t->ssl, data, (int)n), (int)n);
}

void tls_server_done(struct tls_server *t)
{
    drop(t);
    SSL_CTX_free(t->ctx);
    memset(t, 0, sizeof *t);
    t->fd = -1;
}
