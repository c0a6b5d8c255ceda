/* process.c: this process's own number, record and life socket.
 *
 * The number comes from a counter in the gate and is never used twice, also not after a
 * kill between taking it and writing the record: so a ticket, a inbox or a socket can
 * never be taken for that of another process. The record is written before the first
 * ticket; a ticket whose process has no record is dead, and our own record goes only when
 * our last client closes.
 *
 * The life socket is listened on and never accepted; a guard keeps a copy of it. It is
 * made when it is asked for: no socket says the same as one without listener. It is
 * reached through /proc/self/fd/N/NAME: sun_path is too short for a long folder.
 */
#include "driver/local/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

uint64_t hf__local_process_start(const struct shared *sh, uint32_t pid)
{
    char path[64] = "/proc/self/stat", text[1024], *p;
    ssize_t n;
    int fd;

    if (pid != sh->pid && !sh->sees_others)
        return 0;
    if (pid != sh->pid)
        snprintf(path, sizeof path, "/proc/%u/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    p = strrchr(text, ')'); /* the name before it may contain anything */
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p, NULL, 10) : 0;
}

static int enrol(struct tx *tx, void *arg)
{
    const struct process_fix fix = { RECORD_FORMAT, tx->sh->pid, tx->sh->start,
                                     tx->sh->place.pid_ns };
    unsigned char key[KEY_PROCESS];
    uint64_t *process = arg;
    void *room;
    int rc;

    if (tx->sh->process != 0)
        return TX_READ; /* another client was faster */
    *process = tx->sh->gate->next_process++;
    rc = hf__local_db_put(tx, key, hf__local_key_numbers(key, TABLE_PROCESS, process, 1),
                          sizeof fix, &room);
    if (rc == 0)
        memcpy(room, &fix, sizeof fix);
    return rc;
}

/* Asks the gate also while the client counts it as shut: hf_client_life_fds may be called
 * where nobody drives the loop, and has nothing to do with what is queued. */
int hf__local_process_register(struct local *ls, hf_error *err)
{
    struct shared *sh = ls->sh;
    uint64_t process = 0;
    int rc = hf__local_gate_try(sh, ls->wait_ms, err);

    if (rc < 0)
        return rc;
    rc = hf__local_tx_inside(sh, ls, enrol, &process, true, err);
    if (rc == 0 && process != 0)
        sh->process = process;
    hf__local_gate_leave(sh);
    if (rc == 0 && process != 0 && process % TIDY_EVERY == 0)
        hf__local_tidy(ls);
    return rc;
}

static void socket_address(const struct shared *sh, struct sockaddr_un *a, uint64_t process)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    snprintf(a->sun_path, sizeof a->sun_path, "/proc/self/fd/%d/l.%llu", sh->dirfd,
             (unsigned long long)process);
}

/* That nobody listens is told by a file that is not there, or that refuses. "No such file"
 * for the address as a whole tells nothing: a chroot may have no /proc. */
bool hf__local_guarded(const struct shared *sh, uint64_t process, int *fd)
{
    struct sockaddr_un a;
    struct stat st;
    int rc;

    *fd = -1;
    socket_address(sh, &a, process);
    if (fstatat(sh->dirfd, strrchr(a.sun_path, '/') + 1, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
        errno == ENOENT)
        return !hf__local_folder_held(sh);
    if ((*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0)
        return true;
    rc = connect(*fd, (struct sockaddr *)&a, sizeof a) == 0 ? 0 : errno;
    if (rc == 0) {
        hf__local_fd_keep(*fd);
        return true;
    }
    close(*fd);
    *fd = -1;
    return rc != ECONNREFUSED || !hf__local_folder_held(sh);
}

/* Binds it anew. A name is never used twice, so one that is there is a leftover of
 * something that was not ours. Returns the descriptor or -1 with errno. */
static int socket_bind(const struct shared *sh, uint64_t process)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), saved;
    struct sockaddr_un a;

    if (fd < 0)
        return -1;
    socket_address(sh, &a, process);
    unlink(a.sun_path);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
        chmod(a.sun_path, sh->group ? 0660 : 0600) == 0 &&
        (!sh->group || chown(a.sun_path, (uid_t)-1, sh->gid) == 0)) {
        hf__local_fd_keep(fd);
        return fd;
    }
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* Called with the process's number, in the gate's absence: two clients may ask at once. */
int hf__local_process_socket(struct local *ls, hf_error *err)
{
    struct shared *sh = ls->sh;
    int rc = hf__local_gate_try(sh, ls->wait_ms, err);

    if (rc < 0)
        return rc;
    if (sh->lifefd < 0) {
        int fd = socket_bind(sh, sh->process);

        if (fd >= 0 && listen(fd, 4096) < 0) {
            hf__local_fd_close(fd);
            fd = -1;
        }
        sh->lifefd = fd;
        if (fd < 0)
            rc = hf__fail(err, HF_ESYS, errno, sh->path, "cannot make the life socket");
    }
    hf__local_gate_leave(sh);
    return rc;
}

static int resign(struct tx *tx, void *arg)
{
    return hf__local_remove_dead_inside(tx, *(uint64_t *)arg);
}

enum { RESIGN_MS = 100 };

void hf__local_process_end(struct shared *sh)
{
    struct sockaddr_un a;

    if (sh->process == 0)
        return;
    if (sh->lifefd >= 0) {
        socket_address(sh, &a, sh->process);
        unlink(a.sun_path);
    }
    /* If the gate is blocked now: whoever meets our record later finds us dead. */
    if (hf__local_gate_enter(sh, RESIGN_MS, NULL) == 0) {
        hf__local_tx_inside(sh, NULL, resign, &sh->process, false, NULL);
        hf__local_gate_leave(sh);
    }
}
