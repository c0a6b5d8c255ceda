/* collect.c: removes records that nobody will touch again.
 *
 * The first process to open the folder collects, and so does a process before it refuses
 * anything because the store is full. Processes that are dead are removed; every line is
 * stepped, which drops dead and expired tickets; cells that have expired go. Whether a
 * process is dead is asked of each (its number, its start time, its life socket), never
 * concluded from the lock on the folder. Inside the gate the whole time: no ticket can be
 * renewed between being judged and being dropped. It makes no room for itself: if even that
 * runs out of pages, the caller says HF_EFULL. It runs without a client, so grants that it
 * makes only go into inboxes; the caller wakes their members.
 *
 * The tidying is the part of it that deals with processes, while others use the store: a
 * program that ends without hf_close, and that nobody waits for, leaves its record and its
 * files, and where one member stays for ever nobody opens the folder alone. So every
 * TIDY_EVERY-th process that enrols looks at all records, once, outside the gate (a dead
 * process stays dead), and removes some at a time. So there are never many more leftovers
 * than that, and the cost is shared by as many.
 *
 * A file belongs to nobody if its process has no record, because it is made after the
 * record; so files can be removed after the record or before it, and a kill in between
 * leaves what the next one finds.
 */
#include "driver/local/local.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AT_ONCE = 64 };

struct collection {
    int64_t now;       /* 0: whose clock it is cannot be known; nothing expires */
    struct seen *seen; /* all processes, then only the dead ones */
    size_t n, room, from;
};

/* clock: of the start times is that of our time namespace; else they tell nothing. */
static bool is_dead(const struct shared *sh, uint64_t process, const struct process_fix *p,
                    bool clock)
{
    uint64_t start;
    bool guarded;
    int fd;

    if (p->pid_ns != sh->place.pid_ns || p->pid == 0 || process == sh->process)
        return false;
    if (kill((pid_t)p->pid, 0) == 0 || errno == EPERM) {
        start = clock ? hf__local_process_start(sh, p->pid) : 0;
        if (start == 0 || p->start == 0 || start == p->start)
            return false;
    }
    guarded = hf__local_guarded(sh, process, &fd);
    hf__local_fd_close(fd);
    return !guarded;
}

static int list_processes(struct tx *tx, void *arg)
{
    const unsigned char table = TABLE_PROCESS;
    struct collection *w = arg;
    struct scan s;
    int rc = hf__local_scan_open(&s, tx, &table, 1);

    if (rc < 0)
        return rc;
    w->n = 0;
    for (rc = hf__local_scan_first(&s); rc == 0; rc = hf__local_scan_next(&s)) {
        struct process_fix p;
        void *seen = w->seen;

        if (s.key.mv_size != KEY_PROCESS ||
            hf__local_process_decode(&p, s.value.mv_data, s.value.mv_size) < 0)
            continue;
        if (hf__local_room(&seen, &w->room, w->n + 1, sizeof *w->seen) < 0)
            break;
        w->seen = seen;
        w->seen[w->n++] =
            (struct seen){ hf__local_key_number((const unsigned char *)s.key.mv_data + 1),
                           p };
    }
    hf__local_scan_close(&s);
    return rc < 0 ? rc : TX_READ;
}

static void keep_dead(const struct shared *sh, struct collection *w)
{
    size_t n = 0;

    for (size_t i = 0; i < w->n; i++)
        if (is_dead(sh, w->seen[i].process, &w->seen[i].fix, w->now != 0))
            w->seen[n++] = w->seen[i];
    w->n = n;
}

static int remove_some_dead(struct tx *tx, void *arg)
{
    const struct collection *w = arg;
    int rc = 0;

    for (size_t i = w->from; i < w->n && i < w->from + AT_ONCE && rc == 0; i++) {
        hf__local_remove_dead_files(tx->sh, w->seen[i].process);
        rc = hf__local_remove_dead_inside(tx, w->seen[i].process);
    }
    return rc;
}

int hf__local_files_remove(const struct shared *sh, struct tx *tx)
{
    int fd = openat(sh->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;

    if (!dir && fd >= 0)
        close(fd);
    while (dir && rc >= 0 && (e = readdir(dir)) != NULL)
        if ((e->d_name[0] == 'w' || e->d_name[0] == 'l') && e->d_name[1] == '.' &&
            (!tx || (rc = hf__local_alive(tx, strtoull(e->d_name + 2, NULL, 10))) == 0))
            unlinkat(sh->dirfd, e->d_name, 0);
    if (dir)
        closedir(dir);
    return rc < 0 ? rc : 0;
}

static int remove_strays(struct tx *tx, void *arg)
{
    int rc = hf__local_files_remove(tx->sh, tx);

    (void)arg;
    return rc < 0 ? rc : TX_READ;
}

void hf__local_tidy(struct local *ls)
{
    struct collection w = { .now = 1 };

    if (hf__local_tx_run(ls, list_processes, &w, false, NULL) == 0) {
        keep_dead(ls->sh, &w);
        while (w.from < w.n && hf__local_tx_run(ls, remove_some_dead, &w, false, NULL) == 0)
            w.from += AT_ONCE;
        hf__local_tx_run(ls, remove_strays, NULL, false, NULL);
    }
    free(w.seen);
}

/* ---- lines and cells ------------------------------------------------------------- */

static int step_line(struct tx *tx, const struct key *k)
{
    struct local_line *l;
    uint32_t holders;
    uint64_t waiters;
    int rc = hf__local_line_load(tx, k, &l);

    if (rc < 0)
        return rc;
    holders = l->f.nholders;
    waiters = l->f.waiters;
    if ((rc = hf__local_line_clean(tx, l)) < 0 || (rc = hf__local_line_step(tx, k, l)) < 0)
        return rc;
    if (l->f.nholders == holders && l->f.waiters == waiters && !tx->dirty)
        return 0;
    return hf__local_line_save(tx, k, l);
}

/* A key as it stands in the store; the full name may be in the record. */
static void key_of(struct key *k, const struct scan *s)
{
    struct line_fix fix;

    memset(k, 0, sizeof *k);
    k->len = s->key.mv_size < sizeof k->bytes ? s->key.mv_size : sizeof k->bytes;
    memcpy(k->bytes, s->key.mv_data, k->len);
    k->full = (const char *)k->bytes + 1;
    k->full_len = k->len - 1;
    if (k->bytes[0] == TABLE_LINE && s->value.mv_size >= sizeof fix) {
        memcpy(&fix, s->value.mv_data, sizeof fix);
        if (fix.name_len > 0 && fix.name_len <= sizeof k->text &&
            s->value.mv_size >= sizeof fix + fix.name_len) {
            memcpy(k->text, (const char *)s->value.mv_data + sizeof fix, fix.name_len);
            k->full = k->text;
            k->full_len = fix.name_len;
        }
    }
    k->hash = hf__hash(k->full, k->full_len);
}

static int drop_cell(struct tx *tx, const struct key *k, const struct scan *s)
{
    struct cell_record r;
    int rc = hf__local_cell_decode(&r, s->value.mv_data, s->value.mv_size);

    if (rc < 0 || r.f.expires_at == 0 || r.f.expires_at > tx->now)
        return rc;
    rc = hf__local_db_del(tx, k->bytes, k->len);
    return rc < 0 ? rc : 0;
}

static int collect_table(struct tx *tx, unsigned char table)
{
    struct key k = { .len = 0 };
    struct scan s;
    int rc = 0;

    /* Each record may delete itself and others: find the next one by key. */
    while (rc >= 0) {
        if ((rc = hf__local_scan_open(&s, tx, &table, 1)) < 0)
            return rc;
        if (k.len == 0)
            rc = hf__local_scan_first(&s);
        else if ((rc = hf__local_scan_from(&s, k.bytes, k.len)) == 0 &&
                 s.key.mv_size == k.len && memcmp(s.key.mv_data, k.bytes, k.len) == 0)
            rc = hf__local_scan_next(&s);
        if (rc == 0)
            key_of(&k, &s);
        if (rc == 0 && table == TABLE_CELL)
            rc = drop_cell(tx, &k, &s);
        hf__local_scan_close(&s);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        if (table == TABLE_LINE)
            rc = step_line(tx, &k);
    }
    return rc;
}

static int drop_expired(struct tx *tx, void *arg)
{
    int rc;

    tx->now = ((struct collection *)arg)->now;
    rc = collect_table(tx, TABLE_LINE);
    return rc < 0 ? rc : collect_table(tx, TABLE_CELL);
}

/* Kills may have left the number too high. */
static int count_followers(struct tx *tx, void *arg)
{
    const unsigned char table = TABLE_FOLLOW;
    uint64_t n = 0;
    struct scan s;
    int rc = hf__local_scan_open(&s, tx, &table, 1);

    (void)arg;
    if (rc < 0)
        return rc;
    for (rc = hf__local_scan_first(&s); rc == 0; rc = hf__local_scan_next(&s))
        n++;
    hf__local_scan_close(&s);
    if (rc >= 0)
        tx->sh->gate->followers = n;
    return rc < 0 ? rc : TX_READ;
}

int hf__local_collect(struct shared *sh, int64_t now, hf_error *err)
{
    struct collection w = { .now = now };
    int rc = hf__local_tx_once(sh, NULL, list_processes, &w, false, err);

    if (rc == 0)
        keep_dead(sh, &w);
    for (; w.from < w.n && rc == 0; w.from += AT_ONCE)
        rc = hf__local_tx_once(sh, NULL, remove_some_dead, &w, false, err);
    if (rc == 0)
        rc = hf__local_tx_once(sh, NULL, remove_strays, NULL, false, err);
    if (rc == 0)
        rc = hf__local_tx_once(sh, NULL, drop_expired, &w, false, err);
    if (rc == 0)
        rc = hf__local_tx_once(sh, NULL, count_followers, NULL, false, err);
    free(w.seen);
    return rc;
}
