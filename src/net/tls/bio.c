/* bio.c: OpenSSL's end of the wire. Its own socket BIO uses write(2), which raises
 * SIGPIPE in the application when the peer has closed; this one sends with MSG_NOSIGNAL.
 * It also remembers that a recv was short, so that looking for more costs no second
 * system call: the loop is level-triggered and says when there is more. What goes wrong
 * is left in the session (sys, eof) for explain.c. */
#include "net/tls/openssl.h"

#include <errno.h>
#include <openssl/bio.h>
#include <pthread.h>
#include <sys/socket.h>

static int bio_read(BIO *b, char *buf, int size)
{
    struct tls_session *s = BIO_get_data(b);
    ssize_t n;

    BIO_clear_retry_flags(b);
    if (s->drained) {
        BIO_set_retry_read(b);
        return -1;
    }
    do
        n = recv(s->fd, buf, (size_t)size, 0);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        s->drained = n < size;
    else if (n == 0)
        s->eof = true;
    else if (errno == EAGAIN)
        BIO_set_retry_read(b);
    else
        s->sys = errno;
    return (int)n;
}

static int bio_write(BIO *b, const char *buf, int size)
{
    struct tls_session *s = BIO_get_data(b);
    ssize_t n;

    BIO_clear_retry_flags(b);
    do
        n = send(s->fd, buf, (size_t)size, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        BIO_set_retry_write(b);
    else if (n < 0)
        s->sys = errno;
    return (int)n;
}

static long bio_ctrl(BIO *b, int what, long number, void *pointer)
{
    const struct tls_session *s = BIO_get_data(b);

    (void)number;
    (void)pointer;
    if (what == BIO_CTRL_EOF)
        return s->eof;
    return what == BIO_CTRL_FLUSH; /* nothing is kept back */
}

/* Made once for the process: sessions of every client use it. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static BIO_METHOD *method;

static void make_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "holdfast");

    if (m && BIO_meth_set_read(m, bio_read) && BIO_meth_set_write(m, bio_write) &&
        BIO_meth_set_ctrl(m, bio_ctrl))
        method = m;
    else
        BIO_meth_free(m);
}

int hf__tls_bio(struct tls_session *s)
{
    BIO *b;

    pthread_once(&once, make_method);
    b = method ? BIO_new(method) : NULL;
    if (!b)
        return HF_ENOMEM;
    BIO_set_data(b, s);
    BIO_set_init(b, 1);
    SSL_set_bio(s->ssl, b, b);
    return 0;
}
