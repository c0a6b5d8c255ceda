/* shared.c: what one process has of one folder, and what a fork does to it.
 *
 * LMDB must not be opened twice in one process, and the gate's robust mutex tells threads
 * apart but not clients: so all clients of a process share one `shared` per folder, found
 * by device and inode in a table. The table is the library's one global object.
 *
 * Opening waits for other processes, and so does the end of the last client: the table's
 * mutex is not held meanwhile. The shared is in the table all that time and `busy`: whoever
 * wants the same folder waits for it, for its own limit (LMDB must be open once only), and
 * nobody else waits. One thread makes it busy and that thread ends it.
 *
 * Fork. The child has copies of our descriptors: of the flock on the folder, which would
 * say that we are inside, and of the life socket, which would say that we live. The
 * handler that pthread_atfork runs in the child closes them all (they are kept in one
 * list for that), marks every shared as foreign and empties the table, so that the child
 * may open the store anew. The handler before the fork takes both mutexes, so table and
 * list are whole; and the folder is opened with the table's mutex held, so its descriptor,
 * on which the flock is, is in the list. LMDB's memory in the child is left alone: closing
 * it would close descriptors a second time.
 *
 * Upholds G12.
 */
#include "driver/local/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t mutex; /* before fds_mutex; not while waiting for others */
    pthread_cond_t free;   /* one is not busy any more */
    pthread_once_t once;
    struct list shareds, foreign;
    pthread_mutex_t fds_mutex; /* after the gate */
    int *fds;
    size_t nfds, room;
} table = { .mutex = PTHREAD_MUTEX_INITIALIZER,
            .once = PTHREAD_ONCE_INIT,
            .shareds = { &table.shareds, &table.shareds },
            .foreign = { &table.foreign, &table.foreign },
            .fds_mutex = PTHREAD_MUTEX_INITIALIZER };

static void make_cond(void)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&table.free, &attr);
    pthread_condattr_destroy(&attr);
}

static void before_fork(void)
{
    pthread_mutex_lock(&table.mutex);
    pthread_mutex_lock(&table.fds_mutex);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&table.fds_mutex);
    pthread_mutex_unlock(&table.mutex);
}

static void in_child(void)
{
    list_for(n, &table.shareds)
        atomic_store(&container_of(n, struct shared, node)->forked, true);
    list_splice(&table.foreign, &table.shareds);
    for (size_t i = 0; i < table.nfds; i++)
        close(table.fds[i]);
    table.nfds = 0;
    make_cond(); /* those who wait are not here */
    after_fork();
}

static void set_up(void)
{
    make_cond();
    pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- descriptors ----------------------------------------------------------------- */

void hf__local_fd_keep(int fd)
{
    void *fds;

    pthread_mutex_lock(&table.fds_mutex);
    fds = table.fds;
    /* Without memory it is not in the list; it is close-on-exec anyway. */
    if (hf__local_room(&fds, &table.room, table.nfds + 1, sizeof *table.fds) == 0) {
        table.fds = fds;
        table.fds[table.nfds++] = fd;
    }
    pthread_mutex_unlock(&table.fds_mutex);
}

void hf__local_fd_forget(int fd)
{
    pthread_mutex_lock(&table.fds_mutex);
    for (size_t i = 0; i < table.nfds; i++)
        if (table.fds[i] == fd) {
            table.fds[i] = table.fds[--table.nfds];
            break;
        }
    pthread_mutex_unlock(&table.fds_mutex);
}

void hf__local_fd_close(int fd)
{
    if (fd < 0)
        return;
    hf__local_fd_forget(fd);
    close(fd);
}

int hf__local_room(void **array, size_t *room, size_t need, size_t size)
{
    size_t n = *room ? *room : 8;
    void *more;

    if (need <= *room)
        return 0;
    while (n < need)
        n *= 2;
    more = realloc(*array, n * size);
    if (!more)
        return HF_ENOMEM;
    *array = more;
    *room = n;
    return 0;
}

/* ---- shareds --------------------------------------------------------------------- */

static void destroy(struct shared *sh)
{
    hf__local_db_close(sh);
    hf__local_arena_done(sh);
    hf__local_line_done(&sh->line);
    hf__local_fd_close(sh->lifefd);
    hf__local_fd_close(sh->storefd);
    if (sh->gate)
        munmap(sh->gate, sizeof *sh->gate);
    hf__local_fd_close(sh->rootfd);
    hf__local_fd_close(sh->dirfd); /* last: with it goes the flock */
    free(sh->path);
    free(sh);
}

/* In a new PID namespace /proc may still be that of the old one, where our numbers belong
 * to other processes: then nothing can be read about a process but about ourselves. By
 * chance we may have the same number in both, so this is asked for: it has one number of
 * us for each namespace from its own down to ours. */
static bool proc_is_ours(void)
{
    char text[4096] = "", *numbers;
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        close(fd);
    numbers = n > 0 ? strstr(text, "\nNSpid:\t") : NULL;
    return numbers && strtol(numbers + 8, &numbers, 10) == getpid() && *numbers == '\n';
}

static struct shared *blank(void)
{
    struct shared *sh = calloc(1, sizeof *sh);

    if (!sh)
        return NULL;
    sh->dirfd = sh->storefd = sh->rootfd = sh->lifefd = -1;
    sh->pid = (uint32_t)getpid();
    sh->sees_others = proc_is_ours();
    sh->start = hf__local_process_start(sh, sh->pid);
    if (gethostname(sh->host, sizeof sh->host) < 0)
        strcpy(sh->host, "localhost");
    sh->host[sizeof sh->host - 1] = '\0';
    list_init(&sh->node);
    return sh;
}

static struct shared *find(const struct shared *like)
{
    list_for(n, &table.shareds) {
        struct shared *sh = container_of(n, struct shared, node);

        if (sh->dev == like->dev && sh->ino == like->ino)
            return sh;
    }
    return NULL;
}

/* A folder that is open already: it must be open in the same way, and still be the same. */
static int reuse(struct shared *sh, const struct shared *like, hf_error *err)
{
    if (sh->group != like->group)
        return hf__fail(err, HF_EINVAL, 0, sh->path,
                        "open in this process with another share=");
    if (!hf__local_folder_same(sh))
        return hf__fail(err, HF_EDAMAGED, 0, sh->path,
                        "its files were replaced while it is open in this process");
    sh->refs++;
    return 0;
}

/* The one of that folder, or NULL; when nobody is entering or leaving it. */
static int find_idle(struct shared **ret, const struct shared *like, int64_t limit_ms,
                     hf_error *err)
{
    const struct timespec end = hf__local_in_ms(limit_ms);
    int rc = 0;

    while ((*ret = find(like)) != NULL && (*ret)->busy) {
        if (rc == ETIMEDOUT)
            return hf__fail(err, HF_EBUSYSTORE, rc, like->path,
                            "another thread of this process is opening or closing it");
        rc = pthread_cond_timedwait(&table.free, &table.mutex, &end);
    }
    return 0;
}

static void drop(struct shared *sh)
{
    list_remove(&sh->node);
    destroy(sh);
}

int hf__local_shared_get(struct shared **ret, const struct url *url, hf_error *err)
{
    struct shared *sh = blank(), *old = NULL;
    int64_t began = hf__loop_now(), left_ms;
    int rc;

    if (!sh)
        return hf__fail(err, HF_ENOMEM, errno, NULL, "no memory");
    pthread_once(&table.once, set_up);
    pthread_mutex_lock(&table.mutex);
    if ((rc = hf__local_folder_open(sh, url, err)) == 0)
        rc = find_idle(&old, sh, url->connect_ms, err);
    if (rc < 0 || old) {
        if (rc == 0 && (rc = reuse(old, sh, err)) == 0)
            *ret = old;
        destroy(sh);
        goto out;
    }
    sh->refs = 1;
    sh->busy = true;
    list_push(&table.shareds, &sh->node);
    pthread_mutex_unlock(&table.mutex);
    left_ms = url->connect_ms - (hf__loop_now() - began) / 1000;
    rc = hf__local_folder_enter(sh, left_ms > 0 ? left_ms : 0, err);
    pthread_mutex_lock(&table.mutex);
    sh->busy = false;
    pthread_cond_broadcast(&table.free);
    if (rc < 0)
        drop(sh);
    else
        *ret = sh;
out:
    pthread_mutex_unlock(&table.mutex);
    return rc;
}

void hf__local_shared_put(struct shared *sh)
{
    if (atomic_load(&sh->forked))
        return; /* memory of the parent's LMDB: left alone */
    pthread_mutex_lock(&table.mutex);
    if (--sh->refs == 0) {
        sh->busy = true;
        pthread_mutex_unlock(&table.mutex);
        hf__local_process_end(sh);
        pthread_mutex_lock(&table.mutex);
        drop(sh);
        pthread_cond_broadcast(&table.free);
    }
    pthread_mutex_unlock(&table.mutex);
}
