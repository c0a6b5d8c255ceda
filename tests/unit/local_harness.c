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
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
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

/* ---- lives, as the core keeps them ----------------------------------------------- */

static void life_init(struct life *l, struct store *s, enum life_kind kind, int64_t ttl_ms)
{
    memset(l, 0, sizeof *l);
    l->store = s;
    l->kind = kind;
    l->ttl_ms = ttl_ms;
    list_init(&l->tickets);
    list_init(&l->due);
}

struct life *hf__life_new(struct store *s, enum life_kind kind, int64_t ttl_ms)
{
    struct life *l = malloc(sizeof *l);

    if (l)
        life_init(l, s, kind, ttl_ms);
    return l;
}

void hf__life_free(struct life *l)
{
    free(l);
}

static void unhang(struct ticket *t)
{
    if (!t->life)
        return;
    list_remove(&t->on_life);
    t->life->ntickets--;
    t->life = NULL;
}

void hf__hang(struct ticket *t, struct life *l)
{
    unhang(t);
    t->life = l;
    l->ntickets++;
    list_push(&l->tickets, &t->on_life);
}

/* ---- events ---------------------------------------------------------------------- */

static struct pass *pass_of(struct ticket *t)
{
    return container_of(t, struct pass, t);
}

void ev_waiting(struct ticket *t, uint32_t position, int64_t recheck_ms)
{
    struct pass *p = pass_of(t);

    p->waiting++;
    p->position = position;
    p->recheck_ms = recheck_ms;
}

void ev_granted(struct ticket *t, uint64_t fence, int64_t sent_at)
{
    struct pass *p = pass_of(t);

    t->fence = fence;
    p->granted++;
    p->sent_at = sent_at;
    t->own.sent_at = sent_at;
}

void ev_left(struct ticket *t, int rc)
{
    struct pass *p = pass_of(t);

    p->left++;
    p->why = rc;
    if (rc == 0)
        unhang(t);
}

void ev_gone(struct ticket *t, int why, int64_t retry_ms, const hf_error *err)
{
    struct pass *p = pass_of(t);

    assert_int_equal(retry_ms, why == HF_ELOST ? 0 : -1);
    p->gone++;
    p->why = why;
    if (err)
        p->err = *err;
    unhang(t);
}

void ev_amended(struct ticket *t, int rc)
{
    pass_of(t)->amended++;
    pass_of(t)->why = rc;
}

void ev_alive(struct life *l, int64_t sent_at, int64_t ttl_ms)
{
    l->sent_at = sent_at;
    l->given_ms = ttl_ms;
    list_for(n, &l->tickets)
        pass_of(container_of(n, struct ticket, on_life))->alive++;
}

void ev_dead(struct life *l)
{
    list_for(n, &l->tickets)
        pass_of(container_of(n, struct ticket, on_life))->dead = 1;
}

void ev_marked(struct ticket *t)
{
    pass_of(t)->marked = 1;
}

void ev_row(struct look *l, const struct row *r)
{
    struct glance *g = container_of(l, struct glance, look);
    struct seen_row *s = &g->rows[g->n];

    assert_true(g->n < 64);
    g->n++;
    s->row = *r;
    assert_true(r->name_len < sizeof s->name);
    memcpy(s->name, r->name, r->name_len);
    s->name[r->name_len] = '\0';
    if (r->has_ticket)
        snprintf(s->note, sizeof s->note, "%s", r->note);
}

/* ---- follows: the core's part of seam.h, rule 11 ---- */

static struct timer *again_timer(struct look *l, struct cell *c)
{
    return l ? &container_of(l, struct glance, look)->again
             : &container_of(c, struct drawer, cell)->again;
}

void ev_changed(struct look *l, struct cell *c)
{
    if (l)
        hf__driver_local.look(l->store, l);
    else
        hf__driver_local.cell(c->store, c);
}

static void look_again(struct timer *t)
{
    ev_changed(&container_of(t, struct glance, again)->look, NULL);
}

static void cell_again(struct timer *t)
{
    ev_changed(NULL, &container_of(t, struct drawer, again)->cell);
}

void side_stop(struct look *l, struct cell *c)
{
    struct store *s = l ? l->store : c->store;
    struct timer *t = again_timer(l, c);

    if (timer_armed(t))
        s->env->timer(s->env, t, LOOP_NEVER);
    hf__driver_local.stop(s, l, c);
}

static void follow_on(struct look *l, struct cell *c, int rc)
{
    struct store *s = l ? l->store : c->store;
    struct timer *t = again_timer(l, c);

    if (rc < 0) {
        side_stop(l, c);
        return;
    }
    if (c)
        c->verb = CELL_GET;
    if (!timer_armed(t))
        timer_init(t, l ? look_again : cell_again);
    s->env->timer(s->env, t, l ? l->again_at : c->again_at);
}

void ev_progress(struct look *l)
{
    (void)l;
}

void ev_done(struct look *l, struct cell *c, int rc, const hf_error *err)
{
    if (l ? l->follow : c->follow)
        follow_on(l, c, rc);
    if (l) {
        struct glance *g = container_of(l, struct glance, look);

        g->done++;
        g->rc = rc;
        if (err)
            g->err = *err;
    } else {
        struct drawer *d = container_of(c, struct drawer, cell);

        d->done++;
        d->rc = rc;
    }
}

void ev_store(struct store *s, int state, const hf_error *err)
{
    (void)s;
    (void)state;
    (void)err;
    fail(); /* this store is always up */
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
    s->env = (struct env){ env_now,     env_wall,  env_random, env_watch,
                           env_unwatch, env_timer, env_log,    NULL };
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
    p->t.name_len = strlen(p->name);
    p->t.kind = LINE_LOCK;
    p->t.weight = p->t.capacity = HF_FULL;
    p->t.ttl_ms = 30000;
    p->t.note = "";
    p->t.hints = "";
    list_init(&p->t.on_life);
    env_random(&s->env, p->t.token, HF_TOKEN);
    life_init(&p->t.own, s->store, LIFE_OWN, p->t.ttl_ms);
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
    p->t.own.ttl_ms = p->t.ttl_ms;
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

/* ---- children -------------------------------------------------------------------- */

struct child child_start(const char *where,
                         void (*body)(struct child *, const char *, void *), void *arg)
{
    int up[2], down[2];
    struct child c;
    pid_t parent = getpid();

    assert_int_equal(pipe2(up, 0), 0);
    assert_int_equal(pipe2(down, 0), 0);
    fflush(NULL);
    c.pid = fork();
    assert_true(c.pid >= 0);
    if (c.pid == 0) {
        struct child me = { getpid(), up[1], down[0] };

        close(up[0]);
        close(down[1]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        body(&me, where, arg);
        _exit(0);
    }
    close(up[1]);
    close(down[0]);
    c.tell = down[1];
    c.hear = up[0];
    return c;
}

void child_say(struct child *c, char byte)
{
    if (write(c->tell, &byte, 1) != 1)
        _exit(1);
}

void child_hold(struct side *s, struct pass *p, const char *where)
{
    if (side_open(s, where, "") < 0)
        _exit(2);
    pass_init(p, s, "x");
    if (pass_join(p) != 1)
        _exit(3);
}

void stand_in_line(struct child *c, const char *where, void *arg)
{
    struct side s;
    struct pass p;
    int64_t end = hf__loop_now() + 60 * 1000000;

    if (side_open(&s, where, "") < 0)
        _exit(2);
    pass_init(&p, &s, "x");
    if (arg)
        pass_shared(&p);
    if (pass_join(&p) == 0) {
        child_say(c, 'w');
        while (!p.granted && !p.gone) {
            struct pollfd fds[2] = { { c->hear, POLLIN, 0 }, { s.loop.epfd, POLLIN, 0 } };

            poll(fds, 2, 1000);
            if (fds[0].revents || hf__loop_now() > end)
                break;
            side_turn(&s, hf__loop_now());
        }
    }
    if (p.granted) {
        child_say(c, 'h');
        child_hear(c);
    }
    if (pass_leave(&p) != 0)
        _exit(3);
    side_close(&s);
}

void hold_without_descriptors(struct child *c, const char *where, void *arg)
{
    struct side s;
    struct pass p;

    (void)arg;
    child_hold(&s, &p, where);
    for (int fd = 3; fd < 256; fd++)
        if (fd != c->tell && fd != c->hear)
            close(fd);
    child_say(c, 'h');
    child_hear(c);
    _exit(0);
}

void child_tell(struct child *c, char byte)
{
    assert_int_equal(write(c->tell, &byte, 1), 1);
}

char child_hear(struct child *c)
{
    struct pollfd p = { .fd = c->hear, .events = POLLIN };
    char byte = 0;

    if (poll(&p, 1, LIMIT_US / 1000) != 1)
        return 0;
    return read(c->hear, &byte, 1) == 1 ? byte : 0;
}

void child_kill(struct child *c, int sig)
{
    assert_int_equal(kill(c->pid, sig), 0);
    if (sig == SIGSTOP) {
        assert_int_equal(waitpid(c->pid, NULL, WUNTRACED), c->pid);
        return;
    }
    if (sig == SIGCONT)
        return;
    assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
    close(c->tell);
    close(c->hear);
}

void child_end(struct child *c)
{
    int status;

    child_tell(c, 'q'); /* closing would not do: later children have copies of the pipe */
    close(c->tell);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(c->hear);
}

int in_child(int (*body)(const char *), const char *arg)
{
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0)
        _exit(body(arg));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        fail_msg("ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

bool file_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        close(fd);
    return good;
}

static bool map_id(const char *path, unsigned id)
{
    char text[32];

    snprintf(text, sizeof text, "%u %u 1\n", id, id);
    return file_write(path, text);
}

bool namespace_enter(int flags)
{
    const uid_t uid = geteuid();
    const gid_t gid = getegid();

    if (uid == 0)
        return unshare(flags) == 0;
    return unshare(CLONE_NEWUSER | flags) == 0 &&
           file_write("/proc/self/setgroups", "deny") &&
           map_id("/proc/self/uid_map", uid) && map_id("/proc/self/gid_map", gid);
}

bool root_change(const char *where)
{
    const char *root = folder_file(where, "../root");

    return mkdir(root, 0700) == 0 && namespace_enter(0) && chroot(root) == 0 &&
           chdir("/") == 0;
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
