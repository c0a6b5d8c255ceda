/* check.c: is this an LMDB file that may be mapped and walked without harm?
 *
 * LMDB trusts its file: a page number beyond the map or a node beyond its page is a
 * crash. So each open looks at the two meta pages, and whoever opens the folder first
 * (nobody is inside) walks all pages that are in use. What a program's stray pointer does
 * to the mapped pages while the store is in use cannot be caught; records are checked by
 * record.c whenever they are read.
 *
 * The layout below is that of LMDB's data version 1 (all of 0.9) on a machine with 64
 * bits. Goes wrong: HF_EDAMAGED with advice; the file is not touched.
 */
#include "driver/local/local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, DEPTH = 32 };
enum { P_BRANCH = 1, P_LEAF = 2, P_OVERFLOW = 4, P_META = 8, NODE_BIG = 1 };

struct page_head {
    uint64_t pgno;
    uint16_t pad, flags;
    uint16_t lower, upper; /* overflow: number of pages, 32 bits */
};

struct tree {
    uint32_t pad;
    uint16_t flags, depth;
    uint64_t branches, leaves, overflows, entries, root;
};

struct meta {
    uint32_t magic, version;
    uint64_t address, map_size;
    struct tree trees[2]; /* free pages, main */
    uint64_t last_page, txn;
};

struct page_node {
    uint16_t lo, hi, flags, key_size;
};

static int damaged(const struct shared *sh, hf_error *err, const char *what)
{
    return hf__fail(err, HF_EDAMAGED, 0, sh->path,
                    "the store is damaged (%s); stop its users and remove the folder",
                    what);
}

static bool read_meta(int fd, size_t i, struct meta *m)
{
    unsigned char page[sizeof(struct page_head) + sizeof *m];
    struct page_head head;

    if (pread(fd, page, sizeof page, (off_t)(i * PAGE)) != (ssize_t)sizeof page)
        return false;
    memcpy(&head, page, sizeof head);
    memcpy(m, page + sizeof head, sizeof *m);
    return (head.flags & P_META) && m->magic == 0xBEEFC0DE && m->version == 1;
}

static bool meta_sound(const struct meta *m, uint64_t size)
{
    uint64_t pages = size / PAGE;

    if (m->trees[0].pad != PAGE || m->trees[0].flags != (MDB_NOSUBDIR | MDB_INTEGERKEY) ||
        m->trees[1].flags != 0 || m->last_page < 1 || m->last_page >= pages)
        return false;
    for (size_t i = 0; i < 2; i++)
        if (m->trees[i].root != UINT64_MAX &&
            (m->trees[i].root < 2 || m->trees[i].root > m->last_page))
            return false;
    return true;
}

/* The meta page that is in force once what does not count is struck out. */
static bool current_meta(int fd, uint64_t commit, struct meta *ret)
{
    struct meta m[2];
    size_t i;

    if (!read_meta(fd, 0, &m[0]) || !read_meta(fd, 1, &m[1]))
        return false;
    i = commit & 1;
    if (m[i].txn != commit || m[!i].txn == commit)
        return false;
    *ret = m[i];
    return true;
}

int hf__local_check_header(const struct shared *sh, int fd, hf_error *err)
{
    struct stat st;
    struct meta m;

    if (sysconf(_SC_PAGESIZE) != PAGE)
        return hf__fail(err, HF_ENOTSUP, 0, sh->path,
                        "only for machines with pages of 4 KiB");
    if (fstat(fd, &st) < 0)
        return hf__fail(err, HF_ESYS, errno, sh->path, "fstat of the store");
    if ((uint64_t)st.st_size < sh->gate->map_size)
        return damaged(sh, err, "its file is too short");
    if (!current_meta(fd, sh->gate->commit, &m))
        return damaged(sh, err, "its first pages");
    return meta_sound(&m, sh->gate->map_size) ? 0 : damaged(sh, err, "its roots");
}

int hf__local_meta_forget(int fd, uint64_t after)
{
    const off_t at = (off_t)(sizeof(struct page_head) + offsetof(struct meta, txn));
    const uint64_t none = 0;
    struct meta m;

    for (size_t i = 0; i < 2; i++) {
        if (!read_meta(fd, i, &m))
            return HF_EDAMAGED;
        if (m.txn > after &&
            pwrite(fd, &none, sizeof none, at + (off_t)(i * PAGE)) != (ssize_t)sizeof none)
            return HF_ESYS;
    }
    return 0;
}

/* ---- walking --------------------------------------------------------------------- */

struct page_walk {
    const unsigned char *map;
    uint64_t last;
    unsigned char
        *used; /* one bit per page: a page in two places is damage, and no loops */
    bool free_tree;
    uint64_t entries;
    MDB_val before; /* the greatest key so far; its data is NULL before the first */
    MDB_val bound;  /* what the branch above says of the next leaf's keys; or NULL */
};

/* As LMDB compares them: keys out of order make a search miss what is there, and a scan
 * turn in circles. */
static int compare(const struct page_walk *w, const MDB_val *a, const MDB_val *b)
{
    size_t n = a->mv_size < b->mv_size ? a->mv_size : b->mv_size;
    uint64_t x, y;
    int d;

    if (w->free_tree && n == sizeof x) {
        memcpy(&x, a->mv_data, sizeof x);
        memcpy(&y, b->mv_data, sizeof y);
        return x < y ? -1 : x > y;
    }
    d = memcmp(a->mv_data, b->mv_data, n);
    return d != 0 ? d : a->mv_size < b->mv_size ? -1 : a->mv_size > b->mv_size;
}

static bool in_order(struct page_walk *w, const unsigned char *key, size_t len, bool leaf,
                     bool first)
{
    const MDB_val k = { len, (void *)(uintptr_t)key };

    if (!leaf && first)
        return true; /* the first key of a branch means nothing */
    if (len == 0 || (w->free_tree && len != sizeof(uint64_t)) ||
        (w->before.mv_data && compare(w, &k, &w->before) <= 0))
        return false;
    if (!leaf) {
        w->bound = k;
        return true;
    }
    if (w->bound.mv_data && compare(w, &k, &w->bound) < 0)
        return false;
    w->before = k;
    w->bound.mv_data = NULL;
    return true;
}

static bool use(struct page_walk *w, uint64_t pgno, uint64_t n)
{
    if (pgno < 2 || pgno > w->last || n < 1 || n > w->last - pgno + 1)
        return false;
    for (uint64_t p = pgno; p < pgno + n; p++) {
        if (w->used[p / 8] & 1u << p % 8)
            return false;
        w->used[p / 8] = (unsigned char)(w->used[p / 8] | 1u << p % 8);
    }
    return true;
}

/* The list of free pages in a record of the first tree: no page may be free and in use. */
static bool free_list(struct page_walk *w, const unsigned char *data, uint64_t size)
{
    uint64_t n, pgno;

    if (size < sizeof n)
        return false;
    memcpy(&n, data, sizeof n);
    if (n > size / sizeof n - 1)
        return false;
    for (uint64_t i = 1; i <= n; i++) {
        memcpy(&pgno, data + i * sizeof pgno, sizeof pgno);
        if (!use(w, pgno, 1))
            return false;
    }
    return true;
}

static bool leaf_node(struct page_walk *w, const unsigned char *page, size_t at,
                      const struct page_node *n)
{
    uint64_t size = (uint64_t)n->lo | (uint64_t)n->hi << 16, pgno, pages;
    size_t data = at + sizeof *n + n->key_size;
    struct page_head big;

    if (n->flags != NODE_BIG)
        return n->flags == 0 && data + size <= PAGE &&
               (!w->free_tree || free_list(w, page + data, size));
    if (data + sizeof pgno > PAGE)
        return false;
    memcpy(&pgno, page + data, sizeof pgno);
    if (pgno < 2 || pgno > w->last)
        return false;
    memcpy(&big, w->map + pgno * PAGE, sizeof big);
    pages = (uint64_t)big.lower | (uint64_t)big.upper << 16;
    return big.pgno == pgno && (big.flags & P_OVERFLOW) && use(w, pgno, pages) &&
           sizeof big + size <= pages * PAGE &&
           (!w->free_tree || free_list(w, w->map + pgno * PAGE + sizeof big, size));
}

/* depth: how many levels there are from this page down */
static bool walk_page(struct page_walk *w, uint64_t pgno, unsigned depth)
{
    const unsigned char *page = w->map + pgno * PAGE;
    struct page_head head;
    size_t count;

    if (!use(w, pgno, 1))
        return false;
    memcpy(&head, page, sizeof head);
    if (head.pgno != pgno || (head.flags != P_BRANCH && head.flags != P_LEAF) ||
        (head.flags == P_LEAF) != (depth == 1) || head.lower < sizeof head ||
        head.lower > head.upper || head.upper > PAGE)
        return false;
    count = (head.lower - sizeof head) / 2;
    for (size_t i = 0; i < count; i++) {
        struct page_node n;
        uint16_t at;

        memcpy(&at, page + sizeof head + 2 * i, sizeof at);
        if (at < head.upper || at + sizeof n > PAGE)
            return false;
        memcpy(&n, page + at, sizeof n);
        if (n.key_size > 511 || at + sizeof n + n.key_size > PAGE ||
            !in_order(w, page + at + sizeof n, n.key_size, head.flags == P_LEAF, i == 0))
            return false;
        if (head.flags == P_BRANCH
                ? !walk_page(w, n.lo | (uint64_t)n.hi << 16 | (uint64_t)n.flags << 32,
                             depth - 1)
                : !leaf_node(w, page, at, &n))
            return false;
    }
    if (head.flags == P_LEAF)
        w->entries += count;
    return count > (head.flags == P_BRANCH ? 1 : 0);
}

int hf__local_check_tree(const struct shared *sh, int fd, hf_error *err)
{
    size_t size = (size_t)sh->gate->map_size;
    struct page_walk w = { 0 };
    struct meta m;
    bool ok = true;
    int rc = hf__local_check_header(sh, fd, err);
    void *map;

    if (rc < 0)
        return rc;
    current_meta(fd, sh->gate->commit, &m);
    map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    w.map = map;
    w.last = m.last_page;
    w.used = calloc(1, size / PAGE / 8 + 1);
    if (map == MAP_FAILED || !w.used)
        rc = hf__fail(err, HF_ENOMEM, errno, sh->path, "no memory to check the store");
    for (size_t i = 0; i < 2 && rc == 0 && ok; i++) {
        w.free_tree = i == 0;
        w.before.mv_data = w.bound.mv_data = NULL;
        w.entries = 0;
        ok = m.trees[i].root == UINT64_MAX ||
             (m.trees[i].depth > 0 && m.trees[i].depth < DEPTH &&
              walk_page(&w, m.trees[i].root, m.trees[i].depth));
        ok = ok && w.entries == m.trees[i].entries;
    }
    if (map != MAP_FAILED)
        munmap(map, size);
    free(w.used);
    return rc < 0 || ok ? rc : damaged(sh, err, "its pages");
}
