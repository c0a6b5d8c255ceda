/* login.c: see login.h.
 *
 * The file must belong to us or to root. Nobody else may write it: they could make us log
 * in as they like. Not everybody may read it; a group may, because that is how
 * orchestrators hand secrets to a process that is not root. It is checked by its
 * descriptor, so it cannot be exchanged between check and reading; symbolic links are
 * followed, because mounted secrets are links that are switched when they change. A FIFO or
 * a device is refused without waiting for it. */
#include "kit/login.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *unfit(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return "it is not a file";
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return "it belongs to another user";
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return "others may write it: chmod go-w it";
    if (st.st_mode & S_IROTH)
        return "everybody may read it: chmod o-r it";
    return NULL;
}

/* Up to `size` bytes; -1 with errno. */
static ssize_t read_all(int fd, char *text, size_t size)
{
    size_t n = 0;

    while (n < size) {
        ssize_t got = read(fd, text + n, size - n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -1 : (ssize_t)n;
        n += (size_t)got;
    }
    return (ssize_t)n;
}

static int cut_newline(const char *path, char *text, size_t n, hf_error *err)
{
    if (n > 0 && text[n - 1] == '\n')
        n--;
    if (n > 0 && text[n - 1] == '\r')
        n--;
    text[n] = '\0';
    if (n == 0 || strlen(text) != n)
        return hf__fail(err, HF_EAUTH, 0, path, "the file of the password %s",
                        n == 0 ? "is empty" : "contains a zero byte");
    return 0;
}

static int read_file(const char *path, char text[PASSWORD_MAX + 1], hf_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), rc;
    const char *why;
    ssize_t n;

    if (fd < 0)
        return hf__fail(err, HF_EAUTH, errno, path, "cannot open the file of the password");
    why = unfit(fd);
    if (why) {
        rc = hf__fail(err, HF_EAUTH, 0, path, "the file of the password: %s", why);
    } else if ((n = read_all(fd, text, PASSWORD_MAX + 1)) < 0) {
        rc = hf__fail(err, HF_EAUTH, errno, path, "cannot read the file of the password");
    } else if (n > PASSWORD_MAX) {
        rc = hf__fail(err, HF_EAUTH, 0, path, "the file of the password is too long");
    } else {
        rc = cut_newline(path, text, (size_t)n, err);
    }
    close(fd);
    return rc;
}

int hf__login_password(const struct login *l, char text[PASSWORD_MAX + 1], hf_error *err)
{
    size_t n = l->password ? strlen(l->password) : 0;

    if (l->file)
        return read_file(l->file, text, err);
    if (n > PASSWORD_MAX)
        return hf__fail(err, HF_EAUTH, 0, NULL, "the password is too long");
    memcpy(text, n > 0 ? l->password : "", n + 1);
    return 0;
}

static bool copy(char **ret, const char *text)
{
    *ret = text ? strdup(text) : NULL;
    return !text || *ret;
}

int hf__login_init(struct login *l, const char *user, const char *password,
                   const char *file, const char *where, hf_error *err)
{
    char text[PASSWORD_MAX + 1];
    int rc;

    user = user && user[0] ? user : NULL;
    if (password && file)
        return hf__fail(err, HF_EINVAL, 0, where,
                        "URL: a password and password_file=: give one of them");
    if (file && file[0] != '/')
        return hf__fail(err, HF_EINVAL, 0, where,
                        "URL: the path of a password file begins with '/'");
    if (!copy(&l->user, user) || !copy(&l->password, password) || !copy(&l->file, file))
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a login");
    rc = hf__login_password(l, text, err);
    explicit_bzero(text, sizeof text);
    return rc;
}

void hf__login_done(struct login *l)
{
    if (l->password)
        explicit_bzero(l->password, strlen(l->password));
    free(l->user);
    free(l->password);
    free(l->file);
    memset(l, 0, sizeof *l);
}
