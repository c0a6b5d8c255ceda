/* context.c: certificates and keys from the files that the URL names.
 *
 * Read once, when a client is opened. Goes wrong: HF_EINVAL with the name of the file. A
 * key with a passphrase is refused: OpenSSL would ask for it on the terminal, and a
 * library must not.
 *
 * OpenSSL's clean-up at exit is turned off: a thread of ours may be in a session while
 * the program ends.
 */
#include "net/tls/openssl.h"
#include "util/error.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse_passphrase(char *buf, int size, int writing, void *asked)
{
    (void)buf;
    (void)size;
    (void)writing;
    if (asked)
        *(bool *)asked = true;
    return -1;
}

/* 0, or HF_EINVAL for a file that cannot be read at all. */
static int readable(const char *what, const char *path, struct stat *st, hf_error *err)
{
    if (stat(path, st) < 0 || access(path, R_OK) < 0)
        return hf__fail(err, HF_EINVAL, errno, NULL, "TLS: cannot read %s %s", what, path);
    return 0;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n > m && strcmp(name + n - m, end) == 0;
}

/* OpenSSL finds a certificate in a folder by the hash in its name; those that were merely
 * put there are read too. */
static int load_folder(SSL_CTX *ssl, const char *path, hf_error *err)
{
    char file[PATH_MAX];
    const struct dirent *e;
    DIR *dir = opendir(path);

    if (!dir || SSL_CTX_load_verify_dir(ssl, path) != 1) {
        if (dir)
            closedir(dir);
        return hf__fail(err, HF_EINVAL, errno, NULL, "TLS: cannot read the folder %s",
                        path);
    }
    while ((e = readdir(dir)) != NULL) {
        if (!ends_with(e->d_name, ".pem") && !ends_with(e->d_name, ".crt"))
            continue;
        if (snprintf(file, sizeof file, "%s/%s", path, e->d_name) < (int)sizeof file)
            SSL_CTX_load_verify_file(ssl, file); /* one that is none harms nobody */
    }
    closedir(dir);
    ERR_clear_error();
    return 0;
}

static int load_authorities(SSL_CTX *ssl, const char *path, hf_error *err)
{
    struct stat st;
    int rc;

    if (!path) {
        if (SSL_CTX_set_default_verify_paths(ssl) == 1)
            return 0;
        return hf__fail(err, HF_ESYS, 0, NULL,
                        "TLS: cannot read the system's authorities: %s", hf__tls_reason());
    }
    rc = readable("the authorities in", path, &st, err);
    if (rc < 0)
        return rc;
    if (S_ISDIR(st.st_mode))
        return load_folder(ssl, path, err);
    if (SSL_CTX_load_verify_file(ssl, path) != 1)
        return hf__fail(err, HF_EINVAL, 0, NULL, "TLS: no certificate in %s: %s", path,
                        hf__tls_reason());
    return 0;
}

static int load_key(SSL_CTX *ssl, const char *cert, const char *key, hf_error *err)
{
    bool asked = false;
    int rc;

    SSL_CTX_set_default_passwd_cb_userdata(ssl, &asked);
    rc = SSL_CTX_use_PrivateKey_file(ssl, key, SSL_FILETYPE_PEM);
    SSL_CTX_set_default_passwd_cb_userdata(ssl, NULL);
    if (rc == 1)
        return 0;
    if (asked)
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "TLS: the key %s has a passphrase, which nobody can enter", key);
    return hf__fail(err, HF_EINVAL, 0, NULL, "TLS: no key for %s in %s: %s", cert, key,
                    hf__tls_reason());
}

static int load_own(SSL_CTX *ssl, const struct tls_config *config, hf_error *err)
{
    const char *key = config->key ? config->key : config->cert;
    struct stat st;

    if (!config->cert)
        return hf__fail(err, HF_EINVAL, 0, NULL, "TLS: a key without its certificate: %s",
                        key);
    if (readable("the certificate", config->cert, &st, err) < 0 ||
        readable("the key", key, &st, err) < 0)
        return HF_EINVAL;
    if (SSL_CTX_use_certificate_chain_file(ssl, config->cert) != 1)
        return hf__fail(err, HF_EINVAL, 0, NULL, "TLS: no certificate in %s: %s",
                        config->cert, hf__tls_reason());
    return load_key(ssl, config->cert, key, err);
}

static int set_up(SSL_CTX *ssl, const struct tls_config *config, hf_error *err)
{
    int rc;

    SSL_CTX_set_default_passwd_cb(ssl, refuse_passphrase);
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(ssl,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(ssl, 1);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    rc = load_authorities(ssl, config->ca, err);
    if (rc == 0 && (config->cert || config->key))
        rc = load_own(ssl, config, err);
    return rc;
}

static int set_protocol(struct tls_context *context, const char *name, hf_error *err)
{
    size_t len = name ? strlen(name) : 0;

    if (len == 0)
        return 0;
    if (len > 255)
        return hf__fail(err, HF_EINVAL, 0, NULL, "TLS: no name of a protocol: %s", name);
    context->alpn[0] = (unsigned char)len;
    memcpy(context->alpn + 1, name, len);
    context->alpn_len = 1 + len;
    if (SSL_CTX_set_alpn_protos(context->ssl, context->alpn, (unsigned)(1 + len)) != 0)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for TLS");
    return 0;
}

int hf__tls_context_new(struct tls_context **ret, const struct tls_config *config,
                        hf_error *err)
{
    struct tls_context *context;
    int rc;

    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
    ERR_clear_error();
    context = calloc(1, sizeof *context);
    if (!context || !(context->ssl = SSL_CTX_new(TLS_client_method()))) {
        rc = hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for TLS");
    } else {
        rc = set_up(context->ssl, config, err);
        if (rc == 0)
            rc = set_protocol(context, config->alpn, err);
        context->has_cert = config->cert != NULL;
    }
    ERR_clear_error();
    if (rc < 0)
        hf__tls_context_free(context);
    else
        *ret = context;
    return rc;
}

void hf__tls_context_free(struct tls_context *context)
{
    if (!context)
        return;
    SSL_CTX_free(context->ssl);
    free(context);
}
