/* local_harness.c: see local_harness.h. */
#include "local_harness.h"

#include "core/url.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

/* ---- where we are ---------------------------------------------------------------- */

struct place pretend;

int __real_hf__local_place_here(struct place *, hf_error *);
int __wrap_hf__local_place_here(struct place *, hf_error *);

int __wrap_hf__local_place_here(struct place *p, hf_error *err)
{
    int rc = __real_hf__local_place_here(p, err);

    p->pid_ns += pretend.pid_ns;
    p->time_ns += pretend.time_ns;
    return rc;
}

long pretend_fs;
const mode_t *pretend_run_lock;

/* With large files these are the names behind fstatfs and lstat. */
int __real_fstatfs64(int, struct statfs *);
int __wrap_fstatfs64(int, struct statfs *);
int __real_lstat64(const char *, struct stat *);
int __wrap_lstat64(const char *, struct stat *);

int __wrap_fstatfs64(int fd, struct statfs *fs)
{
    int rc = __real_fstatfs64(fd, fs);

    if (pretend_fs)
        fs->f_type = pretend_fs;
    return rc;
}

int __wrap_lstat64(const char *path, struct stat *st)
{
    if (!pretend_run_lock || strcmp(path, "/run/lock") != 0)
        return __real_lstat64(path, st);
    st->st_mode = *pretend_run_lock;
    errno = ENOENT;
    return st->st_mode ? 0 : -1;
}

/* ---- the outside ----------------------------------------------------------------- */

static struct side *side_of(struct env *e)
{
    return container_of(e, struct side, env);
}

static int64_t env_now(struct env *e)
{
    return hf__loop_now() + side_of(e)->ahead_us;
}

static int64_t env_wall(struct env *e)
{
    struct timespec ts;

    (void)e;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static void env_random(struct env *e, void *to, size_t n)
{
    (void)e;
    assert_int_equal(getrandom(to, n, 0), n);
}

static int env_watch(struct env *e, struct watch *w, int fd, uint32_t events)
{
    return hf__loop_watch(&side_of(e)->loop, w, fd, events);
}

static void env_unwatch(struct env *e, struct watch *w)
{
    hf__loop_unwatch(&side_of(e)->loop, w);
}

static void env_timer(struct env *e, struct timer *t, int64_t at)
{
    hf__loop_timer(&side_of(e)->loop, t, at);
}

static void env_log(struct env *e, int level, const char *name, const char *text)
{
    (void)e;
    (void)level;
    (void)name;
    (void)text;
}

/* ---- folders --------------------------------------------------------------------- */

char *folder;

int folder_setup(void **state)
{
    char base[] = "/tmp/hf-local-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(base));
    assert_true(asprintf(&folder, "%s/store", base) > 0);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

int folder_teardown(void **state)
{
    (void)state;
    *strrchr(folder, '/') = '\0';
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
    return 0;
}

char *folder_file(const char *where, const char *file)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", where, file);
    return path;
}

/* ---- sides ----------------------------------------------------------------------- */

int side_open(struct side *s, const char *where, const char *query)
{
    char text[2048];
    int rc;

    memset(s, 0, sizeof *s);
    s->env = (struct env){ .now = env_now,
                           .wall = env_wall,
                           .random = env_random,
                           .watch = env_watch,
                           .timer = env_timer,
                           .log = env_log,
                           .unwatch = env_unwatch };
    assert_int_equal(hf__loop_init(&s->loop), 0);
    snprintf(text, sizeof text, "local://%s%s", where, query);
    rc = hf__url_parse(&s->url, text, &s->err);
    if (rc == 0 && (rc = hf__driver_local.open(&s->store, &s->url, &s->env, &s->err)) < 0)
        hf__url_done(&s->url);
    if (rc < 0) {
        hf__loop_done(&s->loop);
        assert_int_equal(rc, s->err.code);
        assert_true(s->err.text[0] != '\0');
    }
    return rc;
}

void side_close(struct side *s)
{
    hf__driver_local.close(s->store);
    hf__url_done(&s->url);
    hf__loop_done(&s->loop);
}

void side_turn(struct side *s, int64_t until_us)
{
    int64_t now = hf__loop_now(), next = loop_next(&s->loop);
    struct epoll_event evs[16];
    struct pollfd p = { .fd = s->loop.epfd, .events = POLLIN };
    int64_t wait_us = (next < until_us ? next : until_us) - now;

    poll(&p, 1, wait_us > 0 ? (int)(wait_us / 1000) + 1 : 0);
    hf__loop_turn(&s->loop, evs, hf__loop_sleep(&s->loop, evs, 16, false));
}

void side_until(struct side *s, const int *what)
{
    int64_t end = hf__loop_now() + LIMIT_US;

    while (*what == 0) {
        if (hf__loop_now() > end)
            fail_msg("nothing happened in twenty seconds");
        side_turn(s, end);
    }
}

void side_until_size(struct side *s, const size_t *what, size_t least)
{
    int64_t end = hf__loop_now() + LIMIT_US;

    while (*what < least) {
        if (hf__loop_now() > end)
            fail_msg("%zu of %zu after twenty seconds", *what, least);
        side_turn(s, end);
    }
}

struct count {
    unsigned char table;
    size_t n;
};

static int count_records(struct tx *tx, void *arg)
{
    struct count *c = arg;
    struct scan s;
    int rc = hf__local_scan_open(&s, tx, &c->table, 1);

    assert_int_equal(rc, 0);
    c->n = 0;
    for (rc = hf__local_scan_first(&s); rc == 0; rc = hf__local_scan_next(&s))
        c->n++;
    hf__local_scan_close(&s);
    return rc < 0 ? rc : TX_READ;
}

size_t side_records(struct side *s, enum table table)
{
    struct count c = { .table = (unsigned char)table };
    struct local *ls = local_of(s->store);

    assert_int_equal(hf__local_gate_enter(ls->sh, LIMIT_US / 1000, NULL), 0);
    assert_int_equal(hf__local_tx_inside(ls->sh, ls, count_records, &c, false, NULL), 0);
    hf__local_gate_leave(ls->sh);
    return c.n;
}

struct side a, b;

int alone_setup(void **state)
{
    folder_setup(state);
    return side_open(&a, folder, "?connect_timeout=2s");
}

int alone_teardown(void **state)
{
    side_close(&a);
    return folder_teardown(state);
}

int pair_setup(void **state)
{
    return alone_setup(state) < 0 ? -1 : side_open(&b, folder, "");
}

int pair_teardown(void **state)
{
    side_close(&b);
    return alone_teardown(state);
}

/* ---- tickets --------------------------------------------------------------------- */

void pass_init(struct pass *p, struct side *s, const char *name)
{
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", name);
    p->t.store = s->store;
    p->t.name = p->name;
    p->t.name_len = (uint16_t)strlen(p->name);
    p->t.kind = LINE_LOCK;
    p->t.weight = p->t.capacity = HF_FULL;
    p->t.ttl_ms = 30000;
    p->t.note = "";
    p->t.hints = "";
    list_init(&p->t.on_life);
    env_random(&s->env, p->t.token, HF_TOKEN);
    p->t.own = &p->own;
    life_init(p->t.own, s->store, LIFE_OWN, p->t.ttl_ms);
}

void pass_shared(struct pass *p)
{
    p->t.weight = 1;
}

void pass_permits(struct pass *p, int64_t weight, int64_t capacity)
{
    p->t.kind = LINE_PERMITS;
    p->t.weight = weight;
    p->t.capacity = capacity;
}

static struct side *side_of_pass(const struct pass *p)
{
    return side_of(p->t.store->env);
}

int pass_answer(struct pass *p)
{
    int64_t end = hf__loop_now() + LIMIT_US;

    while (!p->granted && !p->waiting && !p->gone) {
        if (hf__loop_now() > end)
            fail_msg("a join had no answer in twenty seconds");
        side_turn(side_of_pass(p), end);
    }
    return p->granted ? 1 : p->gone ? p->why : 0;
}

int pass_join(struct pass *p)
{
    p->granted = p->waiting = p->gone = p->why = 0;
    p->t.own->ttl_ms = p->t.ttl_ms;
    hf__driver_local.join(p->t.store, &p->t);
    return pass_answer(p);
}

int pass_try(struct pass *p, struct side *s, const char *name)
{
    pass_init(p, s, name);
    p->t.try_only = true;
    return pass_join(p);
}

int pass_leave(struct pass *p)
{
    p->left = 0;
    hf__driver_local.leave(p->t.store, &p->t);
    side_until(side_of_pass(p), &p->left);
    assert_int_equal(p->left, 1);
    return p->why;
}

void pass_renew(struct pass *p)
{
    struct life *l = p->t.life;

    assert_non_null(l);
    hf__driver_local.renew(p->t.store, &l, 1);
}

bool pass_holds(const struct pass *p)
{
    return p->granted && !p->gone && !p->left && p->dead != HF_ELOST;
}

void use_once(const char *name)
{
    struct side s;
    struct pass p;

    assert_int_equal(side_open(&s, folder, ""), 0);
    pass_hold(&p, &s, name);
    p.t.keep_ms = 3600 * 1000;
    assert_int_equal(pass_leave(&p), 0);
    side_close(&s);
}

int try_once(const char *name)
{
    struct side s;
    struct pass p;
    int rc;

    assert_int_equal(side_open(&s, folder, ""), 0);
    pass_init(&p, &s, name);
    p.t.try_only = true;
    rc = pass_join(&p);
    if (rc == 1)
        pass_leave(&p);
    side_close(&s);
    return rc;
}

int open_and_close(const char *query)
{
    struct side s;
    int rc = side_open(&s, folder, query);

    if (rc == 0)
        side_close(&s);
    else
        print_message("# %s\n", s.err.text);
    return rc;
}

void glance_init(struct glance *g, struct side *s, const char *name)
{
    g->look.store = s->store;
    g->look.name = name;
    g->look.name_len = strlen(name);
    list_init(&g->look.drv_node);
    g->n = g->done = 0;
}

void glance_at(struct glance *g, struct side *s, const char *name, bool list)
{
    glance_init(g, s, name);
    g->look.list = list;
    hf__driver_local.look(s->store, &g->look);
    side_until_size(s, &g->done, 1);
}

int evict(struct side *s, const char *name, const unsigned char *token, bool now)
{
    struct glance *g = calloc(1, sizeof *g);
    int rc;

    assert_non_null(g);
    glance_init(g, s, name);
    g->look.now = now;
    memcpy(g->look.token, token, HF_TOKEN);
    hf__driver_local.evict(s->store, &g->look);
    side_until_size(s, &g->done, 1);
    rc = g->rc;
    free(g);
    return rc;
}

void drawer_init(struct drawer *d, struct side *s, enum cell_verb verb, const char *name)
{
    d->cell.store = s->store;
    d->cell.verb = verb;
    d->cell.name = name;
    d->cell.name_len = strlen(name);
    list_init(&d->cell.drv_node);
    d->done = 0;
}

int drawer_do(struct drawer *d, struct side *s, enum cell_verb verb, const char *name)
{
    drawer_init(d, s, verb, name);
    hf__driver_local.cell(s->store, &d->cell);
    side_until_size(s, &d->done, 1);
    return d->rc;
}

/* ---- chance ---------------------------------------------------------------------- */

uint64_t test_seed(void)
{
    const char *given = getenv("HF_SEED");
    uint64_t seed;

    if (given)
        seed = strtoull(given, NULL, 0);
    else
        assert_int_equal(getrandom(&seed, sizeof seed, 0), sizeof seed);
    print_message("# seed: HF_SEED=0x%llx\n", (unsigned long long)seed);
    return seed;
}

uint64_t test_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}
