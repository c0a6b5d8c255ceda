/* folder.c: choosing, judging and entering the folder.
 *
 * Which: the URL's path, else /run/lock/holdfast-UID where /run/lock is a sticky folder
 * that everybody may write in, else /var/tmp/holdfast-UID. The environment has no say: a
 * job started by cron and a login shell must meet.
 *
 * Entering. A shared flock is held on the folder as long as it is open; an exclusive one
 * means that nobody is inside. The gate file is looked at under either:
 *
 *   sound, of this boot and these namespaces   go in
 *   missing, out of use, or of another boot    needs the exclusive lock; made by build.c
 *   of another PID or time namespace           needs the exclusive lock; re-homed
 *   newer format, other C library, garbage     refused
 *
 * A flock is not converted atomically: after a failed conversion we hold nothing, and
 * after a successful one another process may have been here in between. So every turn of
 * the loop starts from nothing and looks again. Two first comers cannot block each other:
 * who asks for the exclusive lock has given up its shared one. Waiting for a lock is
 * bounded, because its holder may be stopped.
 *
 * The exclusive lock is a courtesy, not a proof: a program that closes all descriptors
 * loses its flock and goes on. So it is never the reason to drop a living process's
 * ticket (collect.c asks for each process whether it lives), and a gate that is replaced
 * says so (gate->state).
 *
 * Goes wrong: HF_EAUTH (not ours, or open to others), HF_EINVAL, HF_EFOREIGN,
 * HF_EVERSION, HF_EDAMAGED, HF_EBUSYSTORE, HF_EFULL. Upholds G1, G11.
 */
#include "driver/local/local.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

void hf__local_folder_default(char *path, size_t size)
{
    struct stat st;
    bool run = lstat("/run/lock", &st) == 0 && S_ISDIR(st.st_mode) &&
               (st.st_mode & S_ISVTX) && (st.st_mode & S_IWOTH);

    snprintf(path, size, "%s/holdfast-%u", run ? "/run/lock" : "/var/tmp",
             (unsigned)geteuid());
}

void hf__local_folder_name(const struct shared *sh, char path[STORE_PATH], const char *file)
{
    snprintf(path, STORE_PATH, "/proc/self/fd/%d/%s", sh->dirfd, file);
}

int hf__local_file_own(const struct shared *sh, int fd)
{
    if (!sh->group)
        return fchmod(fd, 0600) < 0 ? errno : 0;
    return fchown(fd, (uid_t)-1, sh->gid) < 0 || fchmod(fd, 0660) < 0 ? errno : 0;
}

/* ---- judging --------------------------------------------------------------------- */

static bool in_group(gid_t gid)
{
    int n = getgroups(0, NULL);
    gid_t *all = n > 0 ? calloc((size_t)n, sizeof *all) : NULL;
    bool found = gid == getegid();

    if (all && (n = getgroups(n, all)) > 0)
        for (int i = 0; i < n; i++)
            found = found || all[i] == gid;
    free(all);
    return found;
}

static int check_rights(struct shared *sh, const struct stat *st, hf_error *err)
{
    unsigned mode = st->st_mode & 0777;

    if (sh->group) {
        sh->gid = st->st_gid;
        if (mode != 0770)
            return hf__fail(err, HF_EAUTH, 0, sh->path,
                            "a folder shared by a group must have mode 0770, not %04o",
                            mode);
        if (geteuid() != 0 && !in_group(st->st_gid)) /* root may enter as it is */
            return hf__fail(err, HF_EAUTH, 0, sh->path,
                            "belongs to group %u, of which this process is no member",
                            (unsigned)st->st_gid);
        return 0;
    }
    if (st->st_uid != geteuid())
        return hf__fail(err, HF_EAUTH, 0, sh->path, "belongs to user %u, not to user %u",
                        (unsigned)st->st_uid, (unsigned)geteuid());
    if (mode & 077)
        return hf__fail(err, HF_EAUTH, 0, sh->path,
                        "others may enter (mode %04o); name a folder of your own (mode "
                        "0700), or use share=group",
                        mode);
    return 0;
}

/* Where another machine may be on the other side, neither flock nor shared memory nor
 * process numbers mean what they must. */
static int check_file_system(const struct shared *sh, hf_error *err)
{
    static const unsigned long net[] = {
        0x6969,     /* NFS */
        0x517B,     /* SMB */
        0xFF534D42, /* CIFS */
        0xFE534D42, /* SMB2 */
        0x65735546, /* FUSE: nobody knows what is behind */
        0x01021997, /* 9P */
        0x00C36400, /* CEPH */
        0x5346414F, /* AFS */
        0x6B414653, /* kAFS */
        0x73757245, /* CODA */
        0x7461636F, /* OCFS2 */
        0x01161970, /* GFS2 */
        0x0BD00BD0, /* LUSTRE */
        0x47504653, /* GPFS */
        0x564C,     /* NCP */
        0xBACBACBC  /* VM host folder */
    };
    struct statfs fs;

    if (fstatfs(sh->dirfd, &fs) < 0)
        return hf__fail(err, HF_ESYS, errno, sh->path, "statfs");
    for (size_t i = 0; i < sizeof net / sizeof *net; i++)
        if (((unsigned long)fs.f_type & 0xffffffff) == net[i])
            return hf__fail(err, HF_EFOREIGN, 0, sh->path,
                            "is on a network file system (type %lx); name a local folder",
                            net[i]);
    return 0;
}

static int no_store(const struct shared *sh, hf_error *err)
{
    return hf__fail(err, HF_ENOENT, 0, sh->path, "there is no store");
}

static int open_folder(struct shared *sh, hf_error *err)
{
    struct stat st;
    bool made = !sh->existing && mkdir(sh->path, 0700) == 0;

    if (!made && !sh->existing && errno != EEXIST && errno != EROFS)
        return hf__fail(err, errno == EACCES ? HF_EAUTH : HF_EINVAL, errno, sh->path,
                        "cannot make the folder");
    sh->dirfd = open(sh->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sh->dirfd < 0 && lstat(sh->path, &st) == 0 && !S_ISDIR(st.st_mode))
        return hf__fail(err, HF_EINVAL, 0, sh->path, "is %s, not a folder",
                        S_ISLNK(st.st_mode) ? "a symbolic link" : "a file");
    if (sh->dirfd < 0 && errno == ENOENT && sh->existing)
        return no_store(sh, err);
    if (sh->dirfd < 0 && errno == ENOENT)
        return hf__fail(err, HF_ESYS, EROFS, sh->path, "cannot make the folder");
    if (sh->dirfd < 0)
        return hf__fail(err, errno == EACCES ? HF_EAUTH : HF_ESYS, errno, sh->path,
                        "cannot open the folder");
    hf__local_fd_keep(sh->dirfd);
    if ((sh->rootfd = open("/", O_PATH | O_CLOEXEC)) < 0 || fstat(sh->rootfd, &st) < 0)
        return hf__fail(err, HF_ESYS, errno, "/", "cannot open the root");
    hf__local_fd_keep(sh->rootfd);
    sh->root_dev = st.st_dev;
    sh->root_ino = st.st_ino;
    if (made && sh->group && fchmod(sh->dirfd, 0770) < 0)
        return hf__fail(err, HF_ESYS, errno, sh->path, "chmod");
    if (fstat(sh->dirfd, &st) < 0)
        return hf__fail(err, HF_ESYS, errno, sh->path, "fstat");
    sh->dev = st.st_dev;
    sh->ino = st.st_ino;
    return check_rights(sh, &st, err);
}

static int share_of(struct shared *sh, const struct url *url, hf_error *err)
{
    const char *share = hf__url_param(url, "share");

    if (share && strcmp(share, "group") != 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "share=%s: only share=group is known", share);
    sh->group = share != NULL;
    return 0;
}

int hf__local_folder_open(struct shared *sh, const struct url *url, hf_error *err)
{
    char path[64];
    int rc;

    if (url->nhosts > 0 || url->user || url->password)
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "a local store has no host and no user; write local:///folder");
    if (url->path[0] != '\0' && url->path[0] != '/')
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "the folder must be an absolute path");
    if ((rc = hf__url_known(url, "share", err)) < 0 || (rc = share_of(sh, url, err)) < 0)
        return rc;
    hf__local_folder_default(path, sizeof path);
    sh->existing = url->existing;
    sh->path = strdup(url->path[0] ? url->path : path);
    if (!sh->path)
        return hf__fail(err, HF_ENOMEM, errno, NULL, "no memory");
    if ((rc = open_folder(sh, err)) < 0)
        return rc;
    return check_file_system(sh, err);
}

bool hf__local_folder_held(const struct shared *sh)
{
    struct stat dir, store;

    return fstat(sh->dirfd, &dir) == 0 && dir.st_dev == sh->dev && dir.st_ino == sh->ino &&
           fstat(sh->storefd, &store) == 0 && store.st_dev == sh->dev &&
           store.st_ino == sh->store_ino;
}

static bool leads_to(int at, const char *path, dev_t dev, ino_t ino)
{
    struct stat st;

    if (fstatat(at, path, &st, 0) < 0)
        return errno == EACCES;
    return st.st_dev == dev && st.st_ino == ino;
}

/* A program may drop its rights or change its root when it has opened the store: the first
 * cannot look any more and goes on, the second looks from the root that it had. */
bool hf__local_folder_same(struct shared *sh)
{
    const char *path = sh->path;
    char gate[PATH_MAX];
    int at = AT_FDCWD;

    if (!leads_to(at, "/", sh->root_dev, sh->root_ino)) {
        at = sh->rootfd;
        path += strspn(path, "/");
    }
    return snprintf(gate, sizeof gate, "%s/gate", path) < (int)sizeof gate &&
           leads_to(at, path, sh->dev, sh->ino) &&
           leads_to(at, gate, sh->dev, sh->gate_ino);
}

/* ---- entering -------------------------------------------------------------------- */

enum { FOREIGN_US = 300000 };
enum sight_of_gate { GATE_GOOD, GATE_NEW, GATE_ELSEWHERE, GATE_REFUSED };

static void drop_gate(struct shared *sh)
{
    if (sh->gate)
        munmap(sh->gate, sizeof *sh->gate);
    sh->gate = NULL;
    hf__local_fd_close(sh->storefd);
    sh->storefd = -1;
}

static int no_gate(const struct shared *sh, hf_error *err)
{
    return hf__fail(err, HF_EDAMAGED, 0, sh->path,
                    "its file `gate` is not a gate; stop its users and remove it");
}

static int other_format(const struct shared *sh, uint32_t format, hf_error *err)
{
    return hf__fail(err, HF_EVERSION, 0, sh->path,
                    "the store has format %u, this library knows %u", format, GATE_FORMAT);
}

/* It has another size: that of another format, or it is no gate. DB_NONE: of a boot that
 * is over. */
static int other_size(const struct shared *sh, int fd, hf_error *err)
{
    struct gate g;
    const ssize_t head = offsetof(struct gate, pid_ns);

    if (pread(fd, &g, (size_t)head, 0) != head ||
        memcmp(g.magic, GATE_MAGIC, sizeof g.magic) != 0 || g.format == GATE_FORMAT)
        return no_gate(sh, err);
    if (memcmp(g.boot, sh->place.boot, sizeof g.boot) != 0)
        return DB_NONE;
    return other_format(sh, g.format, err);
}

static int map_gate(struct shared *sh, hf_error *err)
{
    struct stat st;
    void *map = MAP_FAILED;
    int fd = openat(sh->dirfd, "gate", O_RDWR | O_NOFOLLOW | O_CLOEXEC), sys = errno;

    if (fd < 0 && sys == ENOENT)
        return DB_NONE;
    if (fd >= 0 && fstat(fd, &st) == 0) {
        if (!S_ISREG(st.st_mode) || (size_t)st.st_size != sizeof *sh->gate) {
            int rc = S_ISREG(st.st_mode) ? other_size(sh, fd, err) : no_gate(sh, err);

            close(fd);
            return rc;
        }
        map = mmap(NULL, sizeof *sh->gate, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        sys = errno;
        sh->gate_ino = st.st_ino;
    }
    if (fd >= 0)
        close(fd);
    if (map == MAP_FAILED)
        return hf__fail(err, sys == EACCES ? HF_EAUTH : HF_ESYS, sys, sh->path,
                        "cannot open the gate");
    sh->gate = map;
    return 0;
}

static int open_store(struct shared *sh, hf_error *err)
{
    sh->storefd = openat(sh->dirfd, "store", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (sh->storefd >= 0) {
        struct stat st;

        hf__local_fd_keep(sh->storefd);
        if (fstat(sh->storefd, &st) < 0)
            return hf__fail(err, HF_ESYS, errno, sh->path, "fstat of the store");
        sh->store_ino = st.st_ino;
        return 0;
    }
    if (errno == ENOENT)
        return DB_NONE;
    return hf__fail(err, errno == EACCES ? HF_EAUTH : HF_ESYS, errno, sh->path,
                    "cannot open the store");
}

/* Sets *seen; err is filled with what to say if it does not get better. */
static int look_at_gate(struct shared *sh, enum sight_of_gate *seen, hf_error *err)
{
    const struct gate *g;
    int rc = map_gate(sh, err);

    *seen = GATE_NEW;
    if (rc != 0)
        return rc == DB_NONE ? hf__fail(err, HF_EBUSYSTORE, 0, sh->path,
                                        "in use, but its gate is missing"),
               0             : rc;
    g = sh->gate;
    *seen = GATE_REFUSED;
    if (memcmp(g->magic, GATE_MAGIC, sizeof g->magic) != 0)
        return no_gate(sh, err);
    if (memcmp(g->boot, sh->place.boot, sizeof g->boot) != 0) {
        *seen = GATE_NEW;
        hf__fail(err, HF_EFOREIGN, 0, sh->path, "in use by another machine");
        return 0;
    }
    if (g->format != GATE_FORMAT)
        return other_format(sh, g->format, err);
    if (g->layout != hf__local_gate_layout())
        return hf__fail(
            err, HF_EVERSION, 0, sh->path,
            "the store was made by a program with another C library or word size");
    if (!hf__local_gate_sound(g))
        return hf__fail(err, HF_EDAMAGED, 0, sh->path,
                        "its gate is damaged; stop its users and remove the folder");
    if (g->state != GATE_LIVE) { /* the process that was replacing it was killed */
        *seen = GATE_NEW;
        hf__fail(err, HF_EBUSYSTORE, 0, sh->path, "in use, but its gate is out of use");
        return 0;
    }
    if ((rc = open_store(sh, err)) != 0) {
        *seen = GATE_NEW;
        return rc == DB_NONE ? hf__fail(err, HF_EBUSYSTORE, 0, sh->path,
                                        "in use, but its store is missing"),
               0             : rc;
    }
    *seen = GATE_GOOD;
    if (g->pid_ns != sh->place.pid_ns || g->time_ns != sh->place.time_ns) {
        *seen = GATE_ELSEWHERE;
        hf__fail(err, HF_EFOREIGN, 0, sh->path,
                 "in use by processes of another %s namespace",
                 g->pid_ns != sh->place.pid_ns ? "PID" : "time");
    }
    return 0;
}

static bool lock(struct shared *sh, int how)
{
    int rc;

    do
        rc = flock(sh->dirfd, how | LOCK_NB);
    while (rc < 0 && errno == EINTR);
    return rc == 0;
}

/* Alone: builds, re-homes, checks and collects. Under the exclusive lock. */
static int alone(struct shared *sh, enum sight_of_gate seen, int64_t limit_ms,
                 hf_error *err)
{
    int rc = 0;

    if (seen == GATE_NEW)
        return sh->existing && faccessat(sh->dirfd, "store", F_OK, 0) < 0
                   ? no_store(sh, err)
                   : hf__local_folder_build(sh, err);
    if (seen == GATE_ELSEWHERE)
        rc = hf__local_folder_rehome(sh, limit_ms, err);
    if (rc == 0 && (rc = hf__local_gate_enter(sh, limit_ms, err)) == 0) {
        if ((rc = hf__local_check_tree(sh, sh->storefd, err)) == 0)
            rc = hf__local_collect(sh, hf__loop_now(), err);
        hf__local_gate_leave(sh);
    }
    return rc;
}

static int turn(struct shared *sh, int64_t limit_ms, bool *done, hf_error *err)
{
    enum sight_of_gate seen;
    bool ex = lock(sh, LOCK_EX);
    int rc;

    drop_gate(sh);
    hf__local_db_close(sh);
    if (!ex && !lock(sh, LOCK_SH)) {
        hf__fail(err, HF_EBUSYSTORE, 0, sh->path,
                 "another process is setting the store up");
        return 0;
    }
    if ((rc = look_at_gate(sh, &seen, err)) < 0)
        return rc;
    if (ex && ((rc = alone(sh, seen, limit_ms, err)) < 0 || seen == GATE_NEW))
        return rc; /* if new: look again at what was built */
    if (ex && !lock(sh, LOCK_SH))
        return 0;
    *done = ex || seen == GATE_GOOD;
    return 0;
}

static int check_pair(struct tx *tx, void *arg)
{
    const unsigned char table = TABLE_ID;
    MDB_val v;
    int rc = hf__local_db_get(tx, &table, sizeof table, &v);

    (void)arg;
    if (rc < 0)
        return rc;
    if (rc == DB_NONE || v.mv_size != 16 || memcmp(v.mv_data, tx->sh->gate->id, 16) != 0)
        return hf__fail(tx->err, HF_EDAMAGED, 0, tx->sh->path,
                        "gate and store do not belong together; stop its users and remove "
                        "the folder");
    return TX_READ;
}

void hf__local_folder_pause(int64_t us)
{
    struct timespec ts = { (time_t)(us / 1000000), (long)(us % 1000000) * 1000 };

    nanosleep(&ts, NULL);
}

int hf__local_folder_enter(struct shared *sh, int64_t limit_ms, hf_error *err)
{
    int64_t began = hf__loop_now(), end = began + limit_ms * 1000, pause_us = 50;
    bool done = false;
    hf_error why = { 0 };
    int rc;

    if ((rc = hf__local_place_here(&sh->place, err)) < 0)
        return rc;
    while ((rc = turn(sh, limit_ms, &done, &why)) == 0 && !done && hf__loop_now() < end) {
        /* Others who want to re-home it are gone in a moment; those who use it are not. */
        if (why.code == HF_EFOREIGN && end > began + FOREIGN_US)
            end = began + FOREIGN_US;
        hf__local_folder_pause(pause_us);
        if (pause_us < 2000)
            pause_us *= 2;
    }
    if (rc < 0 || !done) {
        if (err)
            *err = why;
        return rc < 0 ? rc : why.code;
    }
    if ((rc = hf__local_gate_enter(sh, limit_ms, err)) < 0)
        return rc;
    rc = hf__local_tx_inside(sh, NULL, check_pair, NULL, false, err);
    hf__local_gate_leave(sh);
    atomic_store(&sh->checked_at, hf__loop_now());
    return rc;
}
