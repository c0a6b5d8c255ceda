/* test_local_process.c: deaths of other processes, what they leave behind, fork. Every wait
 * for another process is far shorter than the ttl of 30 s, so what happens here happens
 * because a death was seen, not because a ticket expired. */
#include "local_harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void a_killed_holder_is_noticed(void **state)
{
    struct child c = child_start(folder, stand_in_line, NULL);
    struct pass p;

    (void)state;
    assert_int_equal(child_hear(&c), 'h');
    pass_wait(&p, &a, "x");
    child_kill(&c, SIGKILL);
    side_until(&a, &p.granted);
    assert_int_equal(p.granted, 1);
    pass_leave(&p);
}

static void a_try_after_a_kill_succeeds(void **state)
{
    struct pass p;
    int64_t end;

    (void)state;
    for (int unreaped = 0; unreaped < 2; unreaped++) {
        struct child c = child_start(folder, stand_in_line, NULL);

        assert_int_equal(child_hear(&c), 'h');
        assert_int_equal(pass_try(&p, &a, "x"), HF_EBUSY);
        if (unreaped) {
            struct pollfd ended = { c.hear, POLLIN, 0 };

            kill(c.pid, SIGKILL);
            poll(&ended, 1, LIMIT_US / 1000); /* a zombie is dead too */
        } else
            child_kill(&c, SIGKILL);
        end = hf__loop_now() + (unreaped ? LIMIT_US : 0);
        while (pass_join(&p) != 1)
            if (hf__loop_now() > end)
                fail_msg("%s", p.err.text);
        assert_true(pass_holds(&p));
        pass_leave(&p);
        if (unreaped)
            assert_int_equal(waitpid(c.pid, NULL, 0), c.pid);
    }
}

/* How often the loop has something to do, in a tenth of a second. */
static int turns_of_a(void)
{
    int64_t end = hf__loop_now() + 100000;
    int n = 0;

    for (; hf__loop_now() < end; n++)
        side_turn(&a, end);
    return n;
}

/* Whether the process has really ended cannot be asked: the next look asks again. */
static void a_death_without_a_free_descriptor(void **state)
{
    struct child c = child_start(folder, stand_in_line, NULL);
    struct pollfd ended = { c.hear, POLLIN, 0 };
    struct rlimit was, none;
    struct pass p;
    int turns;

    (void)state;
    assert_int_equal(child_hear(&c), 'h');
    pass_wait(&p, &a, "x");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = (struct rlimit){ (rlim_t)dup(0), was.rlim_max }; /* the lowest that is free */
    close((int)none.rlim_cur);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    kill(c.pid, SIGKILL);
    poll(&ended, 1, LIMIT_US / 1000);
    turns = turns_of_a();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_in_range(turns, 1, 20);
    assert_int_equal(p.granted, 0);
    pass_renew(&p);
    side_until(&a, &p.granted);
    pass_leave(&p);
    child_kill(&c, SIGKILL);
}

static void a_look_shows_no_dead(void **state)
{
    struct child c = child_start(folder, stand_in_line, NULL);
    struct glance g = { 0 };

    (void)state;
    assert_int_equal(child_hear(&c), 'h');
    glance_at(&g, &a, "x", false);
    assert_int_equal(g.n, 1);
    assert_int_equal(g.rows[0].row.pid, c.pid);
    child_kill(&c, SIGKILL);
    glance_at(&g, &a, "x", false);
    assert_int_equal(g.n, 0);
}

static void a_follower_sees_a_death(void **state)
{
    struct child c = child_start(folder, stand_in_line, NULL);
    struct glance *g = calloc(1, sizeof *g);

    (void)state;
    assert_int_equal(child_hear(&c), 'h');
    g->look.follow = true;
    glance_at(g, &a, "x", false);
    assert_int_equal(g->n, 1);
    g->n = 0;
    child_kill(&c, SIGKILL);
    side_until_size(&a, &g->done, 2);
    assert_int_equal(g->n, 0);
    side_stop(&g->look, NULL);
    free(g);
}

/* Follows "y" and holds "x". */
static void hold_and_follow(struct child *c, const char *where, void *arg)
{
    struct glance *g = calloc(1, sizeof *g);
    struct side s;

    if (!g || side_open(&s, where, "") < 0)
        _exit(2);
    g->look.follow = true;
    glance_at(g, &s, "y", false);
    stand_in_line(c, where, arg);
}

static void a_killed_follower_is_not_counted(void **state)
{
    struct child c = child_start(folder, hold_and_follow, NULL);
    const struct gate *gate = local_of(a.store)->sh->gate;
    struct pass p;

    (void)state;
    assert_int_equal(child_hear(&c), 'h');
    assert_int_equal(gate->followers, 1);
    pass_wait(&p, &a, "x");
    child_kill(&c, SIGKILL);
    side_until(&a, &p.granted);
    assert_int_equal(side_records(&a, TABLE_FOLLOW), 0);
    assert_int_equal(gate->followers, 0);
    pass_leave(&p);
}

/* Holder, three waiters; each of them but the last is killed, in each order. */
static void killed_waiters_do_not_block(void **state)
{
    static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                      { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct child c[3];
        struct pass p;

        for (int k = 0; k < 3; k++) {
            c[k] = child_start(folder, stand_in_line, NULL);
            assert_int_equal(child_hear(&c[k]), k == 0 ? 'h' : 'w');
        }
        pass_wait(&p, &a, "x");
        assert_int_equal(p.position, 3);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(p.granted, 0);
            child_kill(&c[orders[i][k]], SIGKILL);
            side_turn(&a, hf__loop_now() + 1000 * (i % 2)); /* noticed, or all at the end */
        }
        side_until(&a, &p.granted);
        assert_int_equal(pass_leave(&p), 0);
    }
}

/* Readers hold in two processes; the writer that waits must see both die. */
static void the_head_watches_every_holder(void **state)
{
    struct child c[3];
    struct pass p;

    (void)state;
    for (int k = 0; k < 3; k++) {
        c[k] = child_start(folder, stand_in_line, "shared");
        assert_int_equal(child_hear(&c[k]), 'h');
    }
    pass_wait(&p, &a, "x");
    child_kill(&c[1], SIGKILL);
    child_kill(&c[2], SIGKILL);
    side_turn(&a, hf__loop_now());
    assert_int_equal(p.granted, 0);
    child_kill(&c[0], SIGKILL);
    side_until(&a, &p.granted);
    assert_int_equal(p.granted, 1);
    pass_leave(&p);
}

/* ---- what the dead leave behind -------------------------------------------------- */

static int entries_read; /* of folders */

struct dirent *__real_readdir64(DIR *);
struct dirent *__wrap_readdir64(DIR *);

struct dirent *__wrap_readdir64(DIR *dir)
{
    entries_read++;
    return __real_readdir64(dir);
}

/* Two clients that are used and not closed. arg: "x" stays held. */
static int use_and_vanish(const char *held)
{
    struct side s[2];
    struct pass p[2];

    for (int i = 0; i < 2; i++) {
        if (side_open(&s[i], folder, "") < 0)
            return 2;
        pass_init(&p[i], &s[i], i == 1 && held ? held : "n");
        if (pass_join(&p[i]) != 1)
            return 3;
        if ((i == 0 || !held) && pass_leave(&p[i]) != 0)
            return 4;
    }
    return 0;
}

static size_t pipes(void)
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    const struct dirent *e;

    while ((e = __real_readdir64(dir)) != NULL)
        n += e->d_name[0] == 'w';
    closedir(dir);
    return n;
}

/* Programs that end without hf_close, beside one that stays: nobody meets them. */
static void leftovers_do_not_pile_up(void **state)
{
    enum { MANY = 3 * TIDY_EVERY, FEW = TIDY_EVERY + 1 };

    (void)state;
    for (int i = 0; i < MANY; i++)
        assert_int_equal(in_child(use_and_vanish, NULL), 0);
    assert_in_range(side_records(&a, TABLE_PROCESS), 0, FEW);
    assert_in_range(pipes(), 0, 2 * FEW);
}

/* A death, and a sweep of many, do not read the folder for each. */
static void burying_does_not_search(void **state)
{
    enum { MANY = TIDY_EVERY / 2 };
    struct pass p;

    (void)state;
    for (int i = 0; i < MANY; i++)
        assert_int_equal(in_child(use_and_vanish, NULL), 0);
    assert_int_equal(in_child(use_and_vanish, "x"), 0);
    entries_read = 0;
    assert_int_equal(pass_try(&p, &a, "x"), 1);
    assert_int_equal(entries_read, 0);
    pass_leave(&p);
    side_close(&a);
    assert_int_equal(side_open(&a, folder, ""), 0); /* alone: sweeps */
    assert_in_range(entries_read, 0, 3 * MANY + 10);
    assert_int_equal(side_records(&a, TABLE_PROCESS), 0);
    assert_int_equal(pipes(), 0);
}

/* ---- fork and descriptors -------------------------------------------------------- */

static pid_t sleeper(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        alarm(60);
        for (;;)
            pause();
    }
    return pid;
}

/* arg "guard": a grandchild keeps a copy of the life socket; else it keeps what fork gives.
 */
static void hold_with_grandchild(struct child *c, const char *where, void *arg)
{
    struct side s;
    struct pass p;
    pid_t pid;

    if (side_open(&s, where, "") < 0)
        _exit(2);
    pass_init(&p, &s, "x");
    if (pass_join(&p) != 1 || hf__driver_local.life_fds(s.store) != 0 ||
        s.store->nlife_fds != 1)
        _exit(3);
    if (arg && fcntl(s.store->life_fds[0], F_DUPFD_CLOEXEC, 3) < 0)
        _exit(4);
    pid = sleeper();
    if (write(c->tell, &pid, sizeof pid) != (ssize_t)sizeof pid)
        _exit(5);
    child_say(c, 'h');
    child_hear(c);
    _exit(0);
}

static void a_forked_child_does_not_keep_the_parent_alive(void **state)
{
    struct child c = child_start(folder, hold_with_grandchild, NULL);
    struct pass p;
    pid_t grandchild;

    (void)state;
    assert_int_equal(read(c.hear, &grandchild, sizeof grandchild), sizeof grandchild);
    assert_int_equal(child_hear(&c), 'h');
    pass_wait(&p, &a, "x");
    child_kill(&c, SIGKILL);
    side_until(&a, &p.granted);
    assert_int_equal(kill(grandchild, 0), 0);
    pass_leave(&p);
    kill(grandchild, SIGKILL);
}

static void a_guard_holds_back_the_news(void **state)
{
    struct child c = child_start(folder, hold_with_grandchild, "guard");
    struct pass p, q;
    pid_t guard;

    (void)state;
    assert_int_equal(read(c.hear, &guard, sizeof guard), sizeof guard);
    assert_int_equal(child_hear(&c), 'h');
    pass_wait(&p, &a, "x");
    child_kill(&c, SIGKILL);
    side_turn(&a, hf__loop_now() + 300000);
    side_turn(&a, hf__loop_now() + 100000);
    assert_int_equal(p.granted, 0);
    assert_int_equal(pass_try(&q, &a, "x"), HF_EBUSY);
    kill(guard, SIGKILL);
    side_until(&a, &p.granted);
    assert_int_equal(p.granted, 1);
    pass_leave(&p);
}

/* Where there is no /proc, by which the socket of the guard is found. */
static void try_in_a_chroot(struct child *c, const char *where, void *arg)
{
    struct side s;
    struct pass p;

    (void)arg;
    if (side_open(&s, where, "") < 0)
        _exit(2);
    pass_init(&p, &s, "x");
    p.t.try_only = true;
    if (pass_join(&p) != HF_EBUSY || !root_change(where))
        _exit(CANNOT);
    child_say(c, 'r');
    child_hear(c);
    child_say(c, pass_join(&p) == HF_EBUSY ? 'y' : 'n');
    child_hear(c);
}

static void a_guard_counts_in_a_chroot(void **state)
{
    struct child c = child_start(folder, hold_with_grandchild, "guard"), d;
    pid_t guard;

    (void)state;
    assert_int_equal(read(c.hear, &guard, sizeof guard), sizeof guard);
    assert_int_equal(child_hear(&c), 'h');
    d = child_start(folder, try_in_a_chroot, NULL);
    assert_int_equal(child_hear(&d), 'r');
    child_kill(&c, SIGKILL);
    child_tell(&d, 't');
    assert_int_equal(child_hear(&d), 'y');
    child_end(&d);
    kill(guard, SIGKILL);
}

static void a_forked_handle_refuses(void **state)
{
    struct pass p, q;
    int status;
    pid_t pid;

    (void)state;
    pass_hold(&p, &a, "x");
    pid = fork();
    if (pid == 0) {
        struct side s;

        pass_init(&q, &a, "y");
        if (pass_join(&q) != HF_EFORKED || pass_leave(&p) != HF_EUNKNOWN)
            _exit(1);
        hf__driver_local.forked(a.store);
        if (side_open(&s, folder, "") != 0) /* anew, as a process of its own */
            _exit(2);
        pass_init(&q, &s, "x");
        q.t.try_only = true;
        if (pass_join(&q) != HF_EBUSY)
            _exit(3);
        side_close(&s);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    pass_renew(&p);
    assert_int_equal(p.alive, 1);
    pass_leave(&p);
}

/* A daemon that closes all descriptors lives, and so do its tickets. */
static void closing_descriptors_is_not_death(void **state)
{
    struct child c = child_start(folder, hold_without_descriptors, NULL);
    struct pass p;

    (void)state;
    assert_int_equal(child_hear(&c), 'h');
    assert_int_equal(pass_try(&p, &a, "x"), HF_EBUSY);
    side_close(&a); /* nobody seems to be inside; the next to open sweeps */
    assert_int_equal(side_open(&a, folder, ""), 0);
    assert_int_equal(pass_try(&p, &a, "x"), HF_EBUSY);
    child_kill(&c, SIGKILL);
    assert_int_equal(pass_join(&p), 1);
    pass_leave(&p);
}

#define T(f) cmocka_unit_test_setup_teardown(f, alone_setup, alone_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_killed_holder_is_noticed),
        T(a_try_after_a_kill_succeeds),
        T(a_death_without_a_free_descriptor),
        T(a_look_shows_no_dead),
        T(a_follower_sees_a_death),
        T(a_killed_follower_is_not_counted),
        T(killed_waiters_do_not_block),
        T(the_head_watches_every_holder),
        T(leftovers_do_not_pile_up),
        T(burying_does_not_search),
        T(a_forked_child_does_not_keep_the_parent_alive),
        T(a_guard_holds_back_the_news),
        T(a_guard_counts_in_a_chroot),
        T(a_forked_handle_refuses),
        T(closing_descriptors_is_not_death),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
