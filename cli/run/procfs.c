/* procfs.c: reads /proc.
 *
 * How it goes well: small files, one read each. How it goes wrong: whatever cannot be
 * read, because the process has gone or is another user's, is simply not there. A /proc
 * of another PID namespace, as `unshare -p` without --mount-proc leaves it, is not there
 * either: its numbers mean other processes to kill(2). All of it is async-signal-safe: a
 * guard may have been forked from a program with threads.
 */
#include "procfs.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* "PID/file", relative to /proc. */
static void path_of(char *buf, pid_t pid, const char *file)
{
    char digits[24];
    size_t n = 0;
    for (unsigned long v = (unsigned long)pid; v || n == 0; v /= 10)
        digits[n++] = (char)('0' + v % 10);
    while (n)
        *buf++ = digits[--n];
    *buf++ = '/';
    strcpy(buf, file);
}

static int open_of(int proc, pid_t pid, const char *file)
{
    char path[64];
    path_of(path, pid, file);
    return openat(proc, path, O_RDONLY | O_CLOEXEC);
}

static uint64_t number_at(const char **text)
{
    uint64_t v = 0;
    const char *p = *text;
    while (*p == ' ')
        p++;
    while (*p >= '0' && *p <= '9')
        v = v * 10 + (uint64_t)(*p++ - '0');
    while (*p && *p != ' ')
        p++;
    *text = p;
    return v;
}

/* ---- /proc itself ---------------------------------------------------------------- */

static bool file_has(int proc, pid_t pid, const char *file, const char *word)
{
    static char buf[1 << 16];
    size_t len = strlen(word), kept = 0;
    int fd = open_of(proc, pid, file);
    if (fd < 0)
        return false;
    bool found = false;
    for (;;) {
        ssize_t n = read(fd, buf + kept, sizeof buf - kept);
        if (n <= 0)
            break;
        size_t have = kept + (size_t)n;
        if (memmem(buf, have, word, len)) {
            found = true;
            break;
        }
        kept = have < len ? have : len - 1;
        memmove(buf, buf + have - kept, kept);
    }
    close(fd);
    return found;
}

/* A /proc knows us by our number in its namespace, or not at all. By chance that can be
 * the one that we have in our own; but then its status lists both. */
static bool is_own(int proc)
{
    char self[24], path[64], word[64] = "\nNSpid:\t";
    ssize_t n = readlinkat(proc, "self", self, sizeof self);
    path_of(path, getpid(), "");
    size_t len = strlen(path) - 1;
    if (n != (ssize_t)len || memcmp(self, path, len) != 0)
        return false;
    path[len] = '\t';
    strcat(word, path);
    return !file_has(proc, getpid(), "status", word);
}

int proc_open(void)
{
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0 || is_own(proc))
        return proc;
    close(proc);
    return -1;
}

bool proc_shows_all(int proc)
{
    struct proc p;
    return geteuid() == 0 || proc_read(proc, 1, &p);
}

/* ---- one process ----------------------------------------------------------------- */

/* False: gone, or dead and only waiting to be reaped. A dead first thread does not make a
 * dead process, so its number of threads is asked too. */
bool proc_read(int proc, pid_t pid, struct proc *ret)
{
    char buf[1024];
    int fd = open_of(proc, pid, "stat");
    if (fd < 0)
        return false;
    ssize_t n = read(fd, buf, sizeof buf - 1);
    close(fd);
    if (n <= 0)
        return false;
    buf[n] = 0;
    const char *p = strrchr(buf, ')');
    if (!p || p[1] != ' ')
        return false;
    char state = p[2];
    p += 3;
    uint64_t field[23] = { 0 };
    for (int i = 4; i <= 22; i++)
        field[i] = number_at(&p);
    *ret = (struct proc){ .pid = pid,
                          .ppid = (pid_t)field[4],
                          .group = (pid_t)field[5],
                          .session = (pid_t)field[6],
                          .start = field[22] };
    return !((state == 'Z' || state == 'X') && field[20] <= 1);
}

/* The word is random: found anywhere in the environment, it was inherited. */
bool proc_has_word(int proc, pid_t pid, const char *word)
{
    return file_has(proc, pid, "environ", word);
}

bool proc_has_socket(int proc, pid_t pid, int fd, uint64_t ino)
{
    char path[64], file[32] = "fd/";
    struct stat st;
    path_of(file + 3, fd, "");
    file[strlen(file) - 1] = 0;
    path_of(path, pid, file);
    return fstatat(proc, path, &st, 0) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == ino;
}

size_t proc_children(int proc, pid_t pid, pid_t thread, pid_t *ret, size_t n)
{
    char file[48] = "task/", buf[4096];
    size_t count = 0;
    path_of(file + 5, thread, "children");
    int fd = open_of(proc, pid, file);
    if (fd < 0)
        return 0;
    ssize_t len = read(fd, buf, sizeof buf - 1);
    close(fd);
    buf[len > 0 ? len : 0] = 0;
    for (const char *at = buf; *at >= '0' && *at <= '9' && count < n; at++) {
        pid_t child = (pid_t)number_at(&at);
        if (*at != ' ') /* cut off: not that number */
            break;
        ret[count++] = child;
    }
    return count;
}

/* ---- lists ----------------------------------------------------------------------- */

struct entry { /* what getdents64 gives */
    uint64_t ino;
    int64_t off;
    unsigned short len;
    unsigned char type;
    char name[];
};

pid_t proc_next(struct proc_list *l)
{
    while (l->fd >= 0) {
        if (l->at >= l->have) {
            l->have = syscall(SYS_getdents64, l->fd, l->buf, sizeof l->buf);
            l->at = 0;
            if (l->have <= 0)
                break;
        }
        const struct entry *e = (const void *)(l->buf + l->at);
        const char *name = e->name;
        l->at += e->len;
        if (*name >= '1' && *name <= '9')
            return (pid_t)number_at(&name);
    }
    return 0;
}

pid_t proc_first(struct proc_list *l, int proc, pid_t pid)
{
    l->fd = pid ? open_of(proc, pid, "task") : openat(proc, ".", O_RDONLY | O_CLOEXEC);
    l->have = l->at = 0;
    return proc_next(l);
}

void proc_end(struct proc_list *l)
{
    if (l->fd >= 0)
        close(l->fd);
}
