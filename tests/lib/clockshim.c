/* clockshim.c: preloaded into a server under test, moves its wall clock.
 *
 * The offset in microseconds is read from a file that the test maps and changes while the
 * server runs ($HF_CLOCK_FILE), at each call. CLOCK_REALTIME, gettimeofday() and time() are
 * moved, every other clock is the kernel's. The real time comes by the bare system call: a
 * search for the next definition (dlsym) allocates memory, and an allocator that asks for
 * the time while it starts would wait for itself. Goes wrong: without the file nothing is
 * moved.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const _Atomic int64_t *offset_us;

__attribute__((constructor)) static void map_offset(void)
{
    const char *path = getenv("HF_CLOCK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at;

    if (fd < 0)
        return;
    at = mmap(NULL, sizeof(*offset_us), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED)
        offset_us = at;
}

static int64_t wall_ns(void)
{
    struct timespec ts;

    syscall(SYS_clock_gettime, CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec +
           (offset_us ? atomic_load(offset_us) * 1000 : 0);
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
    int64_t ns;

    if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)
        return (int)syscall(SYS_clock_gettime, id, ts);
    ns = wall_ns();
    ts->tv_sec = ns / 1000000000;
    ts->tv_nsec = ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    int64_t ns = wall_ns();

    (void)zone; /* no more in use */
    tv->tv_sec = ns / 1000000000;
    tv->tv_usec = ns % 1000000000 / 1000;
    return 0;
}

time_t time(time_t *ret)
{
    time_t now = wall_ns() / 1000000000;

    if (ret)
        *ret = now;
    return now;
}
