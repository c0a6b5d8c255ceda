/* fd.c: see fd.h. */
#include "util/fd.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIPE_SIZE = 4096 };

static bool identify(int fd, struct fd_id *ret)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return false;
    *ret = (struct fd_id){ st.st_dev, st.st_ino };
    return true;
}

int hf__pipe_open(int fds[2], struct fd_id *ret)
{
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    /* a user may have only so many pages in pipes */
    fcntl(fds[0], F_SETPIPE_SZ, PIPE_SIZE);
    if (identify(fds[0], ret))
        return 0;
    close(fds[0]);
    close(fds[1]);
    return -1;
}

bool hf__pipe_is(int fd, const struct fd_id *id)
{
    struct fd_id now;

    return fd >= 0 && identify(fd, &now) && now.dev == id->dev && now.ino == id->ino;
}
