/* tsan.c: descriptors that ThreadSanitizer does not see being made.
 *
 * It takes a descriptor for an object that is made by open, socket and so on, and ended by
 * close. It knows neither timerfd_create nor the open inside of opendir. So where such a
 * descriptor gets a number that another thread has just closed, its close looks like a
 * race with that thread (and the report fails, because the maker is not known). Here both
 * are made by calls that it knows. */
#include "sanitizer.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#if TEST_TSAN
/* In the place of one that it has seen. */
int timerfd_create(clockid_t clock, int flags)
{
    int unseen = (int)syscall(SYS_timerfd_create, clock, flags), fd;

    if (unseen < 0)
        return -1;
    fd = eventfd(0, 0);
    if (fd >= 0)
        syscall(SYS_dup3, unseen, fd, flags & TFD_CLOEXEC ? O_CLOEXEC : 0);
    syscall(SYS_close, unseen);
    return fd;
}

DIR *opendir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (fd >= 0 && !dir)
        close(fd);
    return dir;
}

#endif
