/* db.c: the LMDB side: one transaction per entry, room, and what a kill leaves behind.
 *
 * LMDB runs with WRITEMAP, NOSYNC and NOLOCK: pages are written in shared memory, nothing
 * is flushed (the store lives as long as the boot), and the gate stands for LMDB's lock.
 * There are only write transactions, one at a time in the whole machine; inspection is
 * one that is given up. So no reader pins pages, and an environment finds whatever others
 * committed, because LMDB picks the newer of its two meta pages at each begin.
 *
 * kill -9 inside. Transaction T writes only pages that neither T-1 nor T-2 uses, then the
 * meta page of T-2. LMDB means the transaction number to be the last store into that
 * page, but compilers have been seen to put it before the last bytes of the root: a kill
 * between the two would leave a new number on an old root. So a commit counts only when
 * gate->commit says so, which is written after mdb_txn_commit returned. Whoever enters
 * next and finds a newer number than that strikes the meta page out, and T-1 is in force
 * again, untouched. To undo a commit that had succeeded is right too: its process died
 * inside the gate, so nobody has been told of it; a ticket that it meant to give, take or
 * end is as it was before. Only fence marks and counters in the gate stay raised, which
 * harms nobody.
 *
 * Room. A mapped page without a block behind it is SIGBUS when the disk is full. So the
 * file's blocks are reserved before LMDB maps them, here and nowhere else, and the map is
 * never larger than what was reserved (gate->map_size). The order is: reserve, write
 * map_size, map; a kill between two of them leaves a file that is larger than needed.
 * (File systems that copy on write keep no such promise; the default folders are not on
 * them.) A process maps anew when it enters and finds another map_size than it has
 * mapped. What adds records is refused while less than RESERVE pages are free and the
 * file cannot grow: leaving needs some pages too, and must not be what a full disk
 * prevents.
 *
 * Goes wrong: HF_EFULL (nothing changed), HF_ENOMEM, HF_EDAMAGED, HF_ESYS.
 */
#include "driver/local/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, METAS = 2 * PAGE, STEP = 65536 };
enum { RESERVE = 48, MAIN = 1, FREE = 0, CHUNK = 16384 };
enum { FLAGS = MDB_NOSUBDIR | MDB_WRITEMAP | MDB_NOSYNC | MDB_NOLOCK | MDB_NOMEMINIT };

int hf__local_db_error(hf_error *err, const struct shared *sh, int rc)
{
    switch (rc) {
    case MDB_MAP_FULL:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return hf__fail(err, HF_EFULL, rc > 0 ? rc : 0, sh->path,
                        "no room left in the store");
    case ENOMEM:
        return hf__fail(err, HF_ENOMEM, rc, sh->path, "no memory");
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_PANIC:
    case MDB_BAD_TXN:
    case MDB_MAP_RESIZED:
        return hf__fail(err, HF_EDAMAGED, 0, sh->path,
                        "the store is damaged (%s); stop its users and remove the folder",
                        mdb_strerror(rc));
    default:
        if (rc > 0) /* whose text hf__fail adds */
            return hf__fail(err, HF_ESYS, rc, sh->path, "the store cannot be used");
        return hf__fail(err, HF_ESYS, 0, sh->path, "%s", mdb_strerror(rc));
    }
}

/* ---- environments ---------------------------------------------------------------- */

static int env_open(const char *path, size_t size, MDB_env **ret)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    int rc = mdb_env_create(&env);

    if (rc != 0)
        return rc;
    if ((rc = mdb_env_set_mapsize(env, size)) == 0 &&
        (rc = mdb_env_open(env, path, FLAGS, 0600)) == 0 &&
        (rc = mdb_txn_begin(env, NULL, 0, &txn)) == 0) {
        rc = mdb_dbi_open(txn, NULL, 0, &dbi); /* sets how keys compare; writes nothing */
        mdb_txn_abort(txn);
    }
    if (rc != 0) {
        mdb_env_close(env);
        return rc;
    }
    *ret = env;
    return 0;
}

/* Another map of the file that LMDB has open: a program that has dropped its rights could
 * not open it again. LMDB truncates the file to that size, and is left with a map that is
 * none if it cannot: so that is tried before. */
static int map_again(struct shared *sh, size_t size)
{
    struct stat st;
    int rc;

    if (fstat(sh->envfd, &st) < 0 || st.st_dev != sh->dev || st.st_ino != sh->store_ino)
        return EBADF; /* a file of the program's own */
    if (ftruncate(sh->envfd, (off_t)size) < 0)
        return errno;
    if ((rc = mdb_env_set_mapsize(sh->env, size)) != 0)
        hf__local_db_close(sh);
    return rc;
}

static int map_first(struct shared *sh, size_t size)
{
    char path[STORE_PATH];
    int rc;

    hf__local_folder_name(sh, path, "store");
    if ((rc = env_open(path, size, &sh->env)) != 0)
        return rc;
    mdb_env_get_fd(sh->env, &sh->envfd);
    fcntl(sh->envfd, F_SETFD, FD_CLOEXEC); /* LMDB has not done it in older versions */
    hf__local_fd_keep(sh->envfd);
    return 0;
}

int hf__local_db_open(struct shared *sh, hf_error *err)
{
    size_t size = (size_t)sh->gate->map_size;
    int rc;

    if (!hf__local_folder_held(sh))
        return hf__fail(err, HF_ESYS, EBADF, sh->path,
                        "the program has closed the store's descriptors");
    if ((rc = hf__local_check_header(sh, sh->storefd, err)) < 0 ||
        (rc = hf__local_db_rollback(sh, err)) < 0)
        return rc;
    if ((rc = sh->env ? map_again(sh, size) : map_first(sh, size)) != 0)
        return hf__local_db_error(err, sh, rc);
    sh->mapped = size;
    return 0;
}

void hf__local_db_close(struct shared *sh)
{
    if (!sh->env)
        return;
    hf__local_fd_forget(sh->envfd);
    mdb_env_close(sh->env);
    sh->env = NULL;
    sh->mapped = 0;
}

/* Makes an empty store; its first record says to which gate it belongs. */
int hf__local_db_create(struct shared *sh, const char *path, const unsigned char *id,
                        hf_error *err)
{
    const unsigned char table = TABLE_ID;
    MDB_val key = { sizeof table, (void *)(uintptr_t)&table }, value = { 16, NULL };
    MDB_env *env;
    MDB_txn *txn;
    int fd = -1, rc = env_open(path, STORE_FIRST, &env);

    if (rc != 0)
        return hf__local_db_error(err, sh, rc);
    value.mv_data = (void *)(uintptr_t)id;
    if ((rc = mdb_env_get_fd(env, &fd)) == 0 && (rc = hf__local_file_own(sh, fd)) == 0 &&
        (rc = hf__local_db_reserve(fd, METAS, STORE_FIRST)) == 0 &&
        (rc = mdb_txn_begin(env, NULL, 0, &txn)) == 0) {
        if ((rc = mdb_put(txn, MAIN, &key, &value, 0)) == 0)
            rc = mdb_txn_commit(txn);
        else
            mdb_txn_abort(txn);
    }
    mdb_env_close(env);
    return rc == 0 ? 0 : hf__local_db_error(err, sh, rc);
}

/* ---- room ------------------------------------------------------------------------ */

static int fill(int fd, size_t from, size_t size)
{
    static const char zeros[65536];

    while (from < size) {
        size_t n = size - from < sizeof zeros ? size - from : sizeof zeros;
        ssize_t done = pwrite(fd, zeros, n, (off_t)from);

        if (done < 0 && errno != EINTR)
            return errno;
        if (done > 0)
            from += (size_t)done;
    }
    return 0;
}

/* Blocks for the first `size` bytes, of which `from` are in use. Returns 0 or errno. */
int hf__local_db_reserve(int fd, size_t from, size_t size)
{
    struct rlimit lim;
    int rc;

    /* Going beyond the limit would raise SIGXFSZ. */
    if (getrlimit(RLIMIT_FSIZE, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY &&
        size > lim.rlim_cur)
        return EFBIG;
    do
        rc = fallocate(fd, 0, 0, (off_t)size) < 0 ? errno : 0;
    while (rc == EINTR);
    /* Old formats of ext, ramfs and others cannot: zeros behind what is in use. */
    return rc == EOPNOTSUPP ? fill(fd, from, size) : rc;
}

/* By half: others have files on this disk too, and /run/lock is small. */
static int grow(struct shared *sh, hf_error *err)
{
    size_t size = (sh->mapped + sh->mapped / 2) / STEP * STEP;
    int rc = hf__local_folder_held(sh) ? hf__local_db_reserve(sh->storefd, sh->mapped, size)
                                       : EBADF;

    if (rc != 0)
        return hf__local_db_error(err, sh, rc);
    sh->gate->map_size = size;
    return hf__local_db_open(sh, err);
}

/* LMDB shows its list of free pages to a read transaction only. Without its lock that is
 * just a look at the same meta page, over before anything is written. */
static int free_pages(MDB_env *env, size_t *ret)
{
    MDB_val key, value;
    MDB_cursor *c = NULL;
    MDB_txn *txn;
    size_t n, sum = 0;
    int rc = mdb_txn_begin(env, NULL, MDB_RDONLY, &txn);

    if (rc != 0)
        return rc;
    if ((rc = mdb_cursor_open(txn, FREE, &c)) == 0)
        while ((rc = mdb_cursor_get(c, &key, &value, MDB_NEXT)) == 0) {
            memcpy(&n, value.mv_data, sizeof n);
            sum += n;
        }
    if (c)
        mdb_cursor_close(c);
    mdb_txn_abort(txn);
    *ret = sum;
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* 0, or MDB_MAP_FULL if adding records might leave too little to remove any. */
static int room_left(struct tx *tx)
{
    MDB_envinfo info;
    size_t pages = tx->sh->mapped / PAGE, free = 0;
    int rc;

    mdb_env_info(tx->sh->env, &info);
    if (info.me_last_pgno + RESERVE < pages)
        return 0;
    if ((rc = free_pages(tx->sh->env, &free)) != 0)
        return rc;
    return pages - info.me_last_pgno + free > RESERVE ? 0 : MDB_MAP_FULL;
}

/* ---- transactions ---------------------------------------------------------------- */

static int begin(struct tx *tx)
{
    struct shared *sh = tx->sh;
    int rc;

    if ((!sh->env || sh->mapped != sh->gate->map_size) &&
        (rc = hf__local_db_open(sh, tx->err)) < 0)
        return rc;
    for (int tries = 0; tries < 2; tries++) {
        if ((rc = mdb_txn_begin(sh->env, NULL, 0, &tx->txn)) != 0)
            return hf__local_db_error(tx->err, sh, rc);
        if (mdb_txn_id(tx->txn) == sh->gate->commit + 1)
            return 0;
        mdb_txn_abort(tx->txn);
        tx->txn = NULL;
        if ((rc = hf__local_db_rollback(sh, tx->err)) < 0)
            return rc;
    }
    return hf__local_db_error(tx->err, sh, MDB_CORRUPTED);
}

int hf__local_db_rollback(struct shared *sh, hf_error *err)
{
    int rc = hf__local_folder_held(sh)
                 ? hf__local_meta_forget(sh->storefd, sh->gate->commit)
                 : HF_ESYS;

    return rc < 0 ? hf__local_db_error(err, sh, MDB_CORRUPTED) : 0;
}

static int end(struct tx *tx, int rc)
{
    MDB_txn *txn = tx->txn;
    size_t id = mdb_txn_id(txn);

    tx->txn = NULL;
    if (rc != 0 || !tx->dirty) {
        mdb_txn_abort(txn);
        return rc < 0 ? rc : 0;
    }
    if ((rc = mdb_txn_commit(txn)) != 0)
        return hf__local_db_error(tx->err, tx->sh, rc);
    __atomic_store_n(&tx->sh->gate->commit, (uint64_t)id, __ATOMIC_RELEASE);
    tx->sh->gate->followers -= tx->unfollowed;
    return 0;
}

/* One try, without making room. The gate is ours. */
int hf__local_tx_once(struct shared *sh, struct local *ls, tx_body *body, void *arg,
                      bool adds, hf_error *err)
{
    struct tx tx = { .sh = sh, .ls = ls, .err = err };
    bool drops = ls && ls->nstale > 0 && (adds || ls->nstale >= STALE_MAX);
    int rc;

    tx.now = ls ? ls->store.env->now(ls->store.env) : hf__loop_now();
    sh->arena_now = NULL;
    if (ls)
        ls->nnotes = ls->npokes = ls->nseen = 0;
    if ((rc = begin(&tx)) < 0)
        return rc;
    if (adds && (rc = room_left(&tx)) != 0)
        rc = hf__local_db_error(err, sh, rc);
    else
        rc = body(&tx, arg);
    if ((drops = drops && rc == 0))
        rc = hf__local_stale_drop(&tx);
    if ((rc = end(&tx, rc)) == 0 && drops)
        ls->nstale = 0;
    if (rc == 0 && ls)
        hf__local_grants_show(ls);
    return rc;
}

int hf__local_tx_inside(struct shared *sh, struct local *ls, tx_body *body, void *arg,
                        bool adds, hf_error *err)
{
    bool collected = false;
    int rc;

    while ((rc = hf__local_tx_once(sh, ls, body, arg, adds, err)) == HF_EFULL) {
        if (grow(sh, err) == 0)
            continue;
        if (collected || !sh->env || hf__local_collect(sh, hf__loop_now(), NULL) < 0)
            break;
        collected = true;
        /* Wake the tickets it admitted now: the next try starts with an empty list. */
        if (ls && hf__local_tx_once(sh, ls, hf__local_poke_unread, NULL, false, NULL) == 0)
            hf__local_poke(ls);
    }
    if (rc < 0 && ls)
        ls->nnotes = ls->npokes = ls->nseen = 0;
    return rc;
}

int hf__local_tx_run(struct local *ls, tx_body *body, void *arg, bool adds, hf_error *err)
{
    int rc = hf__local_enter(ls, err);

    if (rc < 0) {
        ls->nnotes = ls->npokes = ls->nseen = 0;
        return rc;
    }
    rc = hf__local_tx_inside(ls->sh, ls, body, arg, adds, err);
    hf__local_gate_leave(ls->sh);
    return rc;
}

/* ---- memory for the length of one body ------------------------------------------- */

struct arena_chunk {
    struct arena_chunk *next;
    size_t size, used;
    char bytes[];
};

static struct arena_chunk *chunk_for(struct shared *sh, size_t len)
{
    struct arena_chunk **p = sh->arena_now ? &sh->arena_now->next : &sh->arena, *c;

    if ((c = *p) == NULL || c->size < len) {
        size_t size = len > CHUNK ? len : CHUNK;

        if ((c = malloc(sizeof *c + size)) == NULL)
            return NULL;
        c->size = size;
        c->next = *p;
        *p = c;
    }
    c->used = 0;
    return sh->arena_now = c;
}

void *hf__local_tx_copy(struct tx *tx, const void *from, size_t len)
{
    struct arena_chunk *c = tx->sh->arena_now;
    size_t need = (len + 7) & ~(size_t)7;
    char *to;

    if ((!c || c->size - c->used < need) && (c = chunk_for(tx->sh, need)) == NULL) {
        hf__local_db_error(tx->err, tx->sh, ENOMEM);
        return NULL;
    }
    to = c->bytes + c->used;
    c->used += need;
    if (len > 0)
        memcpy(to, from, len);
    return to;
}

void hf__local_arena_done(struct shared *sh)
{
    for (struct arena_chunk *c = sh->arena, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    sh->arena = sh->arena_now = NULL;
}
