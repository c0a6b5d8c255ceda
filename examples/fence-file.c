/* fence-file.c: a file that only the holder of a lock can write.
 *
 * Nobody writes the file itself. All go through report_write(), the checker, which keeps
 * the last fence beside it, in FILE.fence: under flock(2) it compares, writes the fence,
 * then puts the new file in the place of the old one. Goes well: see paused.h. Goes wrong:
 * a crash between the two leaves the old text and the new fence, which refuses nobody who
 * may still write. A process that is paused inside the checker lets others wait for its
 * flock: it cannot have compared and then write late.
 *
 *     cc fence-file.c $(pkg-config --cflags --libs holdfast) -pthread && ./a.out
 */
#include "paused.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>

struct resource {
    const char *file, *fence, *next;
};

struct resource *resource_open(void)
{
    static struct resource report = { "report.txt", "report.txt.fence", "report.txt.next" };

    return &report;
}

/* All of it, and on the disk; false: errno says why. */
static bool put(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, text, n);

        if (done < 0)
            return false;
        text += done;
        n -= (size_t)done;
    }
    return fsync(fd) == 0;
}

static bool put_fence(int fd, uint64_t fence)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%020" PRIu64 "\n", fence); /* always as long */

    return lseek(fd, 0, SEEK_SET) == 0 && put(fd, text, (size_t)n);
}

static bool put_file(const struct resource *r, const char *text)
{
    int fd = open(r->next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = fd >= 0 && put(fd, text, strlen(text));

    if (fd >= 0)
        close(fd);
    return good && rename(r->next, r->file) == 0;
}

/* The checker. 1: written; 0: refused; -1: an error. */
int resource_write(struct resource *r, uint64_t fence, const char *text)
{
    int fd = open(r->fence, O_RDWR | O_CREAT | O_CLOEXEC, 0666), result = -1;
    char last[32] = "0";

    if (fd < 0 || flock(fd, LOCK_EX) < 0 || pread(fd, last, sizeof last - 1, 0) < 0)
        perror(r->fence);
    else if (fence < strtoull(last, NULL, 10))
        result = 0;
    else if (put_fence(fd, fence) && put_file(r, text))
        result = 1;
    else
        perror(r->file);
    if (fd >= 0)
        close(fd); /* ends the flock */
    return result;
}

void resource_read(struct resource *r, char *text, size_t size)
{
    int fd = open(r->file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);

    text[n > 0 ? n : 0] = 0;
    if (fd >= 0)
        close(fd);
}

void resource_close(struct resource *r)
{
    (void)r;
}

/* In a new folder: the fences of one store say nothing about those of another one, so a
 * file that was written under one must not be checked with the other's. */
int main(int argc, char **argv)
{
    const char *tmp = getenv("TMPDIR");
    char dir[4096];

    snprintf(dir, sizeof dir, "%s/fence-file-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir) || chdir(dir) < 0) {
        perror(dir);
        return 1;
    }
    int rc = paused_main(argc > 1 ? argv[1] : getenv("HOLDFAST_URL"));
    unlink("report.txt");
    unlink("report.txt.fence");
    rmdir(dir);
    return rc;
}
