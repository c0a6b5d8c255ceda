/* gate.c: the one door of the store.
 *
 * A robust, process-shared mutex in the mapped file `gate`. Everything that reads or
 * writes the store happens behind it, so LMDB needs no lock of its own and no reader ever
 * pins old pages.
 *
 * How it goes wrong:
 *  - The owner is killed inside. The next one gets EOWNERDEAD and takes over; what was
 *    not committed is rolled back by hf__local_db_rollback, see db.c.
 *  - The owner is stopped inside (SIGSTOP, debugger, freezer). Nobody can tell when it
 *    goes on, so nobody may go round it; the others give up at their time limit with
 *    HF_EBUSYSTORE, which names it. They have changed nothing by then. An open client
 *    does not wait here for that long: deferred.c repeats what it could not do.
 *  - The lock word names its owner by the thread number of one PID namespace. In another
 *    one that number is somebody else, and the death of that one would open the gate
 *    under a living owner: so a process of another PID namespace is refused at open, and
 *    each entry checks that the gate has not been given to another namespace or replaced
 *    meanwhile (a program that closed all its descriptors looked like nobody to whoever
 *    did that).
 *
 * Upholds G1 (one step at a time), G11 (no hang, an error that names the culprit).
 */
#include "driver/local/local.h"

#include "util/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static uint64_t ns_inode(const char *path)
{
    struct stat st;

    return stat(path, &st) < 0 ? 0 : (uint64_t)st.st_ino;
}

int hf__local_place_here(struct place *p, hf_error *err)
{
    static const char file[] = "/proc/sys/kernel/random/boot_id";
    char text[37] = "", hex[33] = "";
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, 36);
    int sys = n < 0 ? errno : 0;

    if (fd >= 0)
        close(fd);
    for (size_t i = 0, o = 0; n == 36 && i < 36 && o < 32; i++)
        if (text[i] != '-')
            hex[o++] = text[i];
    if (!hf__unhex(p->boot, sizeof p->boot, hex))
        return hf__fail(err, HF_ESYS, sys, NULL, "cannot read %s%s", file,
                        sys == ENOENT ? " (is /proc mounted?)" : "");
    p->pid_ns = ns_inode("/proc/self/ns/pid");
    p->time_ns = ns_inode("/proc/self/ns/time");
    return 0;
}

uint32_t hf__local_gate_layout(void)
{
#ifdef __GLIBC__
    return 1u << 16 | (uint32_t)sizeof(struct gate);
#else
    return 2u << 16 | (uint32_t)sizeof(struct gate);
#endif
}

static int mutex_init(pthread_mutex_t *m)
{
    pthread_mutexattr_t attr;
    int rc;

    if ((rc = pthread_mutexattr_init(&attr)) != 0)
        return rc;
    rc = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    if (rc == 0)
        rc = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    if (rc == 0)
        rc = pthread_mutex_init(m, &attr);
    pthread_mutexattr_destroy(&attr);
    return rc;
}

int hf__local_gate_init(struct gate *g, const struct place *p)
{
    memset(g, 0, sizeof *g);
    memcpy(g->magic, GATE_MAGIC, sizeof g->magic);
    g->format = GATE_FORMAT;
    g->layout = hf__local_gate_layout();
    memcpy(g->boot, p->boot, sizeof g->boot);
    g->pid_ns = p->pid_ns;
    g->time_ns = p->time_ns;
    g->state = GATE_LIVE;
    g->map_size = STORE_FIRST;
    g->next_process = g->next_line = g->next_version = 1;
    return mutex_init(&g->mutex);
}

/* Bytes that are no mutex of ours must not reach the C library, which may abort on them. */
bool hf__local_gate_sound(const struct gate *g)
{
    bool kind = true;
#ifdef __GLIBC__
    pthread_mutex_t fresh;

    if (mutex_init(&fresh) != 0)
        return false;
    kind = g->mutex.__data.__kind == fresh.__data.__kind;
    pthread_mutex_destroy(&fresh);
#endif
    return kind && g->layout == hf__local_gate_layout() &&
           (g->state == GATE_LIVE || g->state == 0) && g->map_size >= STORE_FIRST &&
           g->map_size <= (uint64_t)1 << 40 && g->map_size % 4096 == 0;
}

struct timespec hf__local_in_ms(int64_t ms)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_sec += (time_t)(ms / 1000);
    ts.tv_nsec += (long)(ms % 1000) * 1000000;
    if (ts.tv_nsec >= 1000000000) {
        ts.tv_nsec -= 1000000000;
        ts.tv_sec++;
    }
    return ts;
}

#if defined(__SANITIZE_THREAD__)
#define NO_CLOCKLOCK 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_CLOCKLOCK 1
#endif
#endif

#ifdef NO_CLOCKLOCK
/* ThreadSanitizer does not know pthread_mutex_clocklock and would take every entry for a
 * race. */
static int lock_until(pthread_mutex_t *m, int64_t limit_ms)
{
    int64_t end = hf__loop_now() + limit_ms * 1000;
    int rc;

    while ((rc = pthread_mutex_trylock(m)) == EBUSY && hf__loop_now() < end)
        hf__local_folder_pause(100);
    return rc == EBUSY ? ETIMEDOUT : rc;
}
#else
static int lock_until(pthread_mutex_t *m, int64_t limit_ms)
{
    const struct timespec end = hf__local_in_ms(limit_ms);

    return pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &end);
}
#endif

int hf__local_gate_blocked(struct shared *sh, hf_error *err)
{
    uint32_t pid = __atomic_load_n(&sh->gate->inside, __ATOMIC_RELAXED); /* from outside */
    char path[64], stat[256] = "", *state;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    if ((f = fopen(path, "re")) != NULL) {
        if (!fgets(stat, sizeof stat, f))
            stat[0] = '\0';
        fclose(f);
    }
    state = strrchr(stat, ')');
    return hf__fail(err, HF_EBUSYSTORE, ETIMEDOUT, sh->path,
                    "the store is blocked by process %u%s", pid,
                    state && (state[2] == 'T' || state[2] == 't') ? ", which is stopped"
                    : state                                       ? ", which is inside it"
                                                                  : ", which has ended");
}

int hf__local_gate_try(struct shared *sh, int64_t wait_ms, hf_error *err)
{
    struct gate *g = sh->gate;
    int rc;

    if (atomic_load_explicit(&sh->forked, memory_order_relaxed))
        return hf__fail(err, HF_EFORKED, 0, NULL, "opened by the parent process");
    rc = pthread_mutex_trylock(&g->mutex);
    if (rc == EBUSY)
        rc = lock_until(&g->mutex, wait_ms);
    if (rc == EOWNERDEAD)
        rc = pthread_mutex_consistent(&g->mutex);
    if (rc == ETIMEDOUT)
        return HF_EBUSYSTORE;
    if (rc != 0)
        return hf__fail(err, HF_EDAMAGED, rc, sh->path, "the gate cannot be entered");
    if (g->state != GATE_LIVE || g->pid_ns != sh->place.pid_ns ||
        g->time_ns != sh->place.time_ns) {
        pthread_mutex_unlock(&g->mutex);
        return hf__fail(err, HF_EFOREIGN, 0, sh->path,
                        "the store was given to another namespace while it was open here");
    }
    __atomic_store_n(&g->inside, sh->pid, __ATOMIC_RELAXED);
    return 0;
}

int hf__local_gate_enter(struct shared *sh, int64_t limit_ms, hf_error *err)
{
    int rc = hf__local_gate_try(sh, limit_ms, err);

    return rc == HF_EBUSYSTORE ? hf__local_gate_blocked(sh, err) : rc;
}

void hf__local_gate_leave(struct shared *sh)
{
    pthread_mutex_unlock(&sh->gate->mutex);
}
