/* build.c: new files for a folder that has none, or whose files are of another boot; and
 * a new home for those of another namespace. Under the exclusive flock on the folder.
 *
 * New files are made under other names and renamed, the gate last: a mapped file is never
 * truncated, and a kill at any point leaves either the old gate (of another boot: built
 * again) or none (built again) or the new pair. An old gate that somebody still has
 * mapped is told that it is out of use before it is replaced; a kill in between leaves
 * that word in it, and it is built again.
 *
 * Re-homing keeps the tickets: a kept one lives on by its expiry, and one of a process
 * that cannot be seen from here ends by its ttl. It writes the new namespace into the
 * gate inside the gate, so a process of the old one that was overlooked is refused at its
 * next entry. Expiries count on the clock of a time namespace: with another clock there
 * must be none.
 */
#include "driver/local/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

static int write_all(int fd, const void *data, size_t len)
{
    ssize_t n = pwrite(fd, data, len, 0);

    return n == (ssize_t)len ? 0 : n < 0 ? errno : ENOSPC;
}

static int build_gate(struct shared *sh, const unsigned char id[16], hf_error *err)
{
    struct gate g;
    int fd, rc = hf__local_gate_init(&g, &sh->place);

    if (rc != 0)
        return hf__fail(err, HF_ESYS, rc, sh->path, "robust mutexes do not work here");
    memcpy(g.id, id, sizeof g.id);
    g.commit = 1; /* that of hf__local_db_create */
    fd = openat(sh->dirfd, "gate.new", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                0600);
    if (fd < 0)
        return hf__local_db_error(err, sh, errno);
    if ((rc = hf__local_file_own(sh, fd)) == 0)
        rc = write_all(fd, &g, sizeof g);
    close(fd);
    return rc == 0 ? 0 : hf__local_db_error(err, sh, rc);
}

int hf__local_folder_build(struct shared *sh, hf_error *err)
{
    unsigned char id[16];
    char path[STORE_PATH];
    int rc;

    if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
        return hf__fail(err, HF_ESYS, errno, sh->path, "getrandom");
    unlinkat(sh->dirfd, "store.new", 0);
    unlinkat(sh->dirfd, "gate.new", 0);
    hf__local_folder_name(sh, path, "store.new");
    if ((rc = hf__local_db_create(sh, path, id, err)) < 0 ||
        (rc = build_gate(sh, id, err)) < 0)
        goto fail;
    if (sh->gate)
        sh->gate->state = 0;
    hf__local_files_remove(sh, NULL);
    if (renameat(sh->dirfd, "store.new", sh->dirfd, "store") < 0 ||
        renameat(sh->dirfd, "gate.new", sh->dirfd, "gate") < 0) {
        rc = hf__fail(err, HF_ESYS, errno, sh->path, "rename");
        goto fail;
    }
    return 0;

fail:
    unlinkat(sh->dirfd, "store.new", 0);
    unlinkat(sh->dirfd, "gate.new", 0);
    return rc;
}

static int times_are_left(struct tx *tx, void *arg)
{
    static const unsigned char tables[] = { TABLE_LINE, TABLE_CELL, TABLE_LIFE };
    bool *left = arg;

    for (size_t i = 0; i < sizeof tables && !*left; i++) {
        struct scan s;
        int rc = hf__local_scan_open(&s, tx, &tables[i], 1);

        if (rc < 0)
            return rc;
        *left = (rc = hf__local_scan_first(&s)) == 0;
        hf__local_scan_close(&s);
        if (rc < 0)
            return rc;
    }
    return TX_READ;
}

int hf__local_folder_rehome(struct shared *sh, int64_t limit_ms, hf_error *err)
{
    struct place here = sh->place;
    struct gate *g = sh->gate;
    bool left = false;
    int rc;

    sh->place.pid_ns = g->pid_ns; /* enter as one of them */
    sh->place.time_ns = g->time_ns;
    rc = hf__local_gate_enter(sh, limit_ms, err);
    sh->place = here;
    if (rc < 0)
        return rc;
    if (g->time_ns != here.time_ns &&
        (rc = hf__local_check_tree(sh, sh->storefd, err)) == 0 &&
        (rc = hf__local_collect(sh, 0, err)) == 0)
        rc = hf__local_tx_inside(sh, NULL, times_are_left, &left, false, err);
    if (rc == 0 && left)
        rc = hf__fail(
            err, HF_EFOREIGN, 0, sh->path,
            "holds tickets or cells of another time namespace, with another clock");
    if (rc == 0) {
        g->pid_ns = here.pid_ns;
        g->time_ns = here.time_ns;
    }
    hf__local_gate_leave(sh);
    return rc;
}
