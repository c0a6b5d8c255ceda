/* test_local_process.c: the embedded driver between processes: hand-over, kill -9,
 * SIGSTOP, fork. Every wait for another process is far shorter than the ttl of 30 s, so
 * what happens here happens because a death was seen, not because a ticket expired. */
#include "driver/local/local.h"
#include "local_harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct side a;
static char *folder;

static int setup(void **state)
{
    (void)state;
    folder = folder_new();
    assert_int_equal(side_open(&a, folder, "?connect_timeout=2s"), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    side_close(&a);
    folder_free(folder);
    return 0;
}

/* Joins "x"; says h if it holds, w if it waits (then h when granted); leaves when told. */
static void stand_in_line(struct child *c, const char *where, void *arg)
{
    struct side s;
    struct pass p;
    int64_t end = hf__loop_now() + 60 * 1000000;

    (void)arg;
    if (side_open(&s, where, "") < 0)
        _exit(2);
    pass_init(&p, &s, "x");
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

static void hand_over(void **state)
{
    struct child c = child_start(folder, stand_in_line, NULL), d;
    struct pass p;

    (void)state;
    assert_int_equal(child_hear(&c), 'h');
    pass_init(&p, &a, "x");
    assert_int_equal(pass_join(&p), 0);
    d = child_start(folder, stand_in_line, NULL);
    assert_int_equal(child_hear(&d), 'w');
    child_end(&c);
    side_until(&a, &p.granted);
    assert_int_equal(p.granted, 1);
    pass_leave(&p);
    assert_int_equal(child_hear(&d), 'h');
    child_end(&d);
}

/* Holds that many names, says h, and leaves them all when told. */
static void hold_many(struct child *c, const char *where, void *arg)
{
    size_t n = *(size_t *)arg;
    struct pass *p = calloc(n, sizeof *p);
    struct side s;
    char name[32];

    if (!p || side_open(&s, where, "") < 0)
        _exit(2);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "line/%zu", i);
        pass_init(&p[i], &s, name);
        if (pass_join(&p[i]) != 1)
            _exit(3);
    }
    child_say(c, 'h');
    child_hear(c);
    for (size_t i = 0; i < n; i++)
        if (pass_leave(&p[i]) != 0)
            _exit(4);
    child_say(c, 'l');
    child_hear(c);
    side_close(&s);
    free(p);
}

/* Another process held n names and has left them; we waited and have not turned our loop.
 */
static struct pass *waited_for_many(struct child *c, size_t n)
{
    struct pass *p = calloc(n, sizeof *p);
    char name[32];

    assert_non_null(p);
    *c = child_start(folder, hold_many, &n);
    assert_int_equal(child_hear(c), 'h');
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "line/%zu", i);
        pass_init(&p[i], &a, name);
        assert_int_equal(pass_join(&p[i]), 0);
    }
    child_tell(c, 'l');
    assert_int_equal(child_hear(c), 'l');
    return p;
}

static void a_grant_comes_without_an_entry(void **state)
{
    struct shared *sh = local_of(a.store)->sh;
    struct child c;
    struct pass *p = waited_for_many(&c, 1), q;
    int alive = p->alive;

    (void)state;
    assert_int_equal(hf__local_gate_enter(sh, 1000, NULL), 0);
    side_until(&a, &p->granted); /* somebody is inside all the time */
    hf__local_gate_leave(sh);
    assert_ptr_equal(p->t.life, &p->t.own);
    assert_int_equal(side_records(&a, TABLE_MAIL), 1); /* until a later entry */
    pass_renew(p);
    assert_int_equal(p->alive, alive + 1);
    pass_leave(p);
    pass_init(&q, &a, "x");
    assert_int_equal(pass_join(&q), 1);
    assert_int_equal(side_records(&a, TABLE_MAIL), 0);
    pass_leave(&q);
    child_end(&c);
    free(p);
}

/* The slot in which a grant to us would stand. */
static struct grant *our_slot(void)
{
    const struct local *ls = local_of(a.store);

    for (size_t i = 0; i < GATE_GRANTS; i++) {
        struct grant *g = &ls->sh->gate->grants[i];

        if (g->process == ls->sh->process && g->member == ls->member)
            return g;
    }
    fail_msg("the grant stands in no slot");
    return NULL;
}

/* The message is read later: with the next turn, or before the client waits again. */
static void a_taken_grant_leaves_nothing_in_the_pipe(void **state)
{
    const struct local *ls = local_of(a.store);

    (void)state;
    for (int again = 0; again < 2; again++) {
        struct child c, d;
        struct pass *p = waited_for_many(&c, 1), q;
        struct pollfd pipe = { ls->wakefd, POLLIN, 0 };

        side_until(&a, &p->granted);
        assert_int_equal(poll(&pipe, 1, 0), 1);
        if (again) {
            d = child_start(folder, stand_in_line, NULL);
            assert_int_equal(child_hear(&d), 'h');
            pass_init(&q, &a, "x");
            assert_int_equal(pass_join(&q), 0);
        } else
            side_turn(&a, hf__loop_now());
        assert_int_equal(poll(&pipe, 1, 0), 0);
        assert_int_equal(p->granted, 1);
        pass_leave(p);
        if (again) {
            pass_leave(&q);
            child_kill(&d, SIGKILL);
        }
        child_end(&c);
        free(p);
    }
}

/* As a writer leaves it that is killed in the middle, or one that told another member. */
static void a_slot_is_not_believed(void **state)
{
    (void)state;
    for (int others = 0; others < 2; others++) {
        struct child c;
        struct pass *p = waited_for_many(&c, 1);
        struct grant *g = our_slot();

        if (others)
            g->member++;
        else
            g->turn++;
        g->fence += 1000;
        side_until(&a, &p->granted);
        assert_true(pass_holds(p));
        assert_int_not_equal(p->t.fence, g->fence);
        pass_leave(p);
        child_end(&c);
        free(p);
    }
}

/* The next writer puts it right. */
static void a_torn_slot_is_used_again(void **state)
{
    struct child c;
    struct pass *p = waited_for_many(&c, 1);
    struct grant *g = our_slot();

    (void)state;
    g->turn++;
    side_until(&a, &p->granted);
    pass_leave(p);
    child_end(&c);
    free(p);
    p = waited_for_many(&c, 1);
    assert_int_equal(g->turn % 2, 0);
    side_until(&a, &p->granted);
    assert_int_equal(p->t.fence, g->fence);
    pass_leave(p);
    child_end(&c);
    free(p);
}

static void the_mail_of_grants_does_not_pile_up(void **state)
{
    enum { N = STALE_MAX + 8 }; /* few enough to come by message */
    struct child c;
    struct pass *p = waited_for_many(&c, N);

    (void)state;
    for (int i = 0; i < N; i++)
        side_until(&a, &p[i].granted);
    assert_int_equal(side_records(&a, TABLE_MAIL), N);
    for (int i = 0; i < N; i++)
        pass_leave(&p[i]);
    assert_int_equal(side_records(&a, TABLE_MAIL), 0);
    child_end(&c);
    free(p);
}

/* More grants than a pipe takes messages: the rest is found in the mailbox. */
static void a_full_pipe_loses_no_grant(void **state)
{
    enum { N = 1000 };
    struct child c;
    struct pass *p = waited_for_many(&c, N);
    int64_t start = hf__loop_now();

    (void)state;
    for (int i = 0; i < N; i++) {
        side_until(&a, &p[i].granted);
        assert_int_equal(p[i].granted, 1);
        assert_int_equal(pass_leave(&p[i]), 0);
    }
    assert_true(hf__loop_now() - start < LIMIT_US);
    assert_int_equal(side_records(&a, TABLE_MAIL), 0);
    child_end(&c);
    free(p);
}

static void a_killed_holder_is_noticed(void **state)
{
    struct child c = child_start(folder, stand_in_line, NULL);
    struct pass p;

    (void)state;
    assert_int_equal(child_hear(&c), 'h');
    pass_init(&p, &a, "x");
    assert_int_equal(pass_join(&p), 0);
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
        pass_init(&p, &a, "x");
        p.t.try_only = true;
        assert_int_equal(pass_join(&p), HF_EBUSY);
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
        pass_init(&p, &a, "x");
        assert_int_equal(pass_join(&p), 0);
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
static void read_and_die(struct child *c, const char *where, void *arg)
{
    struct side s;
    struct pass p;

    (void)arg;
    if (side_open(&s, where, "") < 0)
        _exit(2);
    pass_init(&p, &s, "x");
    pass_shared(&p);
    if (pass_join(&p) != 1)
        _exit(3);
    child_say(c, 'h');
    child_hear(c);
    _exit(0);
}

static void the_head_watches_every_holder(void **state)
{
    struct child c[3];
    struct pass p;

    (void)state;
    for (int k = 0; k < 3; k++) {
        c[k] = child_start(folder, read_and_die, NULL);
        assert_int_equal(child_hear(&c[k]), 'h');
    }
    pass_init(&p, &a, "x");
    assert_int_equal(pass_join(&p), 0);
    child_kill(&c[1], SIGKILL);
    child_kill(&c[2], SIGKILL);
    side_turn(&a, hf__loop_now());
    assert_int_equal(p.granted, 0);
    child_kill(&c[0], SIGKILL);
    side_until(&a, &p.granted);
    assert_int_equal(p.granted, 1);
    pass_leave(&p);
}

/* ---- the gate -------------------------------------------------------------------- */

static void stop_inside(struct child *c, const char *where, void *arg)
{
    struct side s;
    struct shared *sh;

    (void)arg;
    if (side_open(&s, where, "") < 0)
        _exit(2);
    sh = local_of(s.store)->sh;
    if (hf__local_gate_enter(sh, 1000, NULL) < 0)
        _exit(3);
    child_say(c, 'i');
    child_hear(c);
    hf__local_gate_leave(sh);
    child_say(c, 'o');
    child_hear(c);
    side_close(&s);
}

static void a_stopped_process_is_named(void **state)
{
    struct child c;
    struct pass p, q;
    char text[64];
    int64_t began;

    (void)state;
    pass_init(&p, &a, "p");
    p.t.ttl_ms = 8000;
    assert_int_equal(pass_join(&p), 1);
    c = child_start(folder, stop_inside, NULL);
    assert_int_equal(child_hear(&c), 'i');
    child_kill(&c, SIGSTOP);

    pass_init(&q, &a, "x");
    began = hf__loop_now();
    assert_int_equal(pass_join(&q), HF_EBUSYSTORE);
    assert_true(hf__loop_now() - began < LIMIT_US);
    snprintf(text, sizeof text, "process %d, which is stopped", (int)c.pid);
    assert_non_null(strstr(q.err.text, text));
    assert_int_equal(pass_leave(&q), HF_EUNKNOWN);
    pass_renew(&p);
    assert_int_equal(p.alive, 0);
    assert_false(p.dead);

    child_kill(&c, SIGCONT);
    child_tell(&c, 'g');
    assert_int_equal(child_hear(&c), 'o');
    side_until(&a, &p.alive); /* it was not forgotten */
    assert_int_equal(pass_join(&q), 1);
    assert_int_equal(pass_leave(&q), 0);
    pass_leave(&p);
    child_end(&c);
}

/* Before a blocked gate a leave waits no longer than the ticket lives. */
static void leaving_waits_no_longer_than_the_ticket_lives(void **state)
{
    struct side s;
    struct pass p;
    struct child c;
    int64_t began;

    (void)state;
    assert_int_equal(side_open(&s, folder, "?connect_timeout=20s"), 0);
    pass_init(&p, &s, "x");
    p.t.ttl_ms = 400;
    assert_int_equal(pass_join(&p), 1);
    c = child_start(folder, stop_inside, NULL);
    assert_int_equal(child_hear(&c), 'i');
    child_kill(&c, SIGSTOP);
    began = hf__loop_now();
    assert_int_equal(pass_leave(&p), HF_EUNKNOWN);
    assert_true(hf__loop_now() - began < 10 * 1000000);
    child_kill(&c, SIGCONT);
    child_tell(&c, 'g');
    assert_int_equal(child_hear(&c), 'o');
    assert_int_equal(pass_leave(&p), 0); /* again, as the core does */
    side_close(&s);
    child_end(&c);
}

static void a_process_killed_inside_opens_the_gate(void **state)
{
    struct child c = child_start(folder, stop_inside, NULL);
    struct pass p, q;

    (void)state;
    assert_int_equal(child_hear(&c), 'i');
    pass_init(&p, &a, "x");
    hf__driver_local.join(a.store, &p.t);
    side_turn(&a, hf__loop_now());
    assert_int_equal(p.granted, 0);
    child_kill(&c, SIGKILL);
    pass_init(&q, &a, "y");
    assert_int_equal(pass_join(&q), 1);
    assert_int_equal(pass_answer(&p), 1);
    pass_leave(&p);
    pass_leave(&q);
}

/* A commit that was not counted in the gate does not count: the state before it is in
 * force. */
static int put_garbage(struct tx *tx, void *arg)
{
    struct child *c = arg;
    const char key[] = "Lx";
    void *room;

    if (hf__local_db_put(tx, key, 2, 5, &room) < 0)
        _exit(4);
    memcpy(room, "wrong", 5);
    if (mdb_txn_commit(tx->txn) != 0)
        _exit(5);
    child_say(c, 'c');
    child_hear(c);
    _exit(6);
}

static void die_in_commit(struct child *c, const char *where, void *arg)
{
    struct local *ls;
    struct side s;

    (void)arg;
    if (side_open(&s, where, "") < 0)
        _exit(2);
    ls = local_of(s.store);
    if (hf__local_gate_enter(ls->sh, 1000, NULL) == 0)
        hf__local_tx_inside(ls->sh, ls, put_garbage, c, false, NULL);
}

static void a_commit_that_was_not_finished_is_undone(void **state)
{
    struct pass p, q;

    (void)state;
    pass_init(&q, &a, "held");
    assert_int_equal(pass_join(&q), 1);
    for (int i = 0; i < 4; i++) { /* both meta pages, twice */
        struct child c = child_start(folder, die_in_commit, NULL);

        assert_int_equal(child_hear(&c), 'c');
        child_kill(&c, SIGKILL);
        pass_init(&p, &a, "x");
        assert_int_equal(pass_join(&p), 1);
        pass_leave(&p);
        pass_renew(&q);
        assert_int_equal(q.alive, i + 1);
        if (i % 2) {
            assert_int_equal(pass_join(&p), 1);
            pass_leave(&p);
            pass_renew(&q);
            q.alive = i + 1;
        }
    }
    pass_leave(&q);
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
    pass_init(&p, &a, "x");
    assert_int_equal(pass_join(&p), 0);
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
    pass_init(&p, &a, "x");
    assert_int_equal(pass_join(&p), 0);
    child_kill(&c, SIGKILL);
    side_turn(&a, hf__loop_now() + 300000);
    side_turn(&a, hf__loop_now() + 100000);
    assert_int_equal(p.granted, 0);
    pass_init(&q, &a, "x");
    q.t.try_only = true;
    assert_int_equal(pass_join(&q), HF_EBUSY);
    kill(guard, SIGKILL);
    side_until(&a, &p.granted);
    assert_int_equal(p.granted, 1);
    pass_leave(&p);
}

static void a_forked_handle_refuses(void **state)
{
    struct pass p, q;
    int status;
    pid_t pid;

    (void)state;
    pass_init(&p, &a, "x");
    assert_int_equal(pass_join(&p), 1);
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
static void close_everything(struct child *c, const char *where, void *arg)
{
    struct side s;
    struct pass p;

    (void)arg;
    if (side_open(&s, where, "") < 0)
        _exit(2);
    pass_init(&p, &s, "x");
    if (pass_join(&p) != 1)
        _exit(3);
    for (int fd = 3; fd < 256; fd++)
        if (fd != c->tell && fd != c->hear)
            close(fd);
    child_say(c, 'h');
    child_hear(c);
    _exit(0);
}

static void closing_descriptors_is_not_death(void **state)
{
    struct child c = child_start(folder, close_everything, NULL);
    struct pass p;

    (void)state;
    assert_int_equal(child_hear(&c), 'h');
    pass_init(&p, &a, "x");
    p.t.try_only = true;
    assert_int_equal(pass_join(&p), HF_EBUSY);
    side_close(&a); /* nobody seems to be inside; the next to open sweeps */
    assert_int_equal(side_open(&a, folder, ""), 0);
    pass_init(&p, &a, "x");
    p.t.try_only = true;
    assert_int_equal(pass_join(&p), HF_EBUSY);
    child_kill(&c, SIGKILL);
    assert_int_equal(pass_join(&p), 1);
    pass_leave(&p);
}

/* ---- kill -9 at random ----------------------------------------------------------- */

enum { WORKERS = 4, NAMES = 3, KILLS = 150 };

struct board {                 /* shared memory: what a resource would see */
    _Atomic int holder[NAMES]; /* worker + 1; 0: nobody */
    _Atomic uint64_t fence[NAMES];
    _Atomic int dying[WORKERS * (KILLS + 1)]; /* by life number */
    _Atomic int violations, grants;
};

struct work {
    struct board *board;
    int number; /* of this life */
    uint64_t seed;
};

static void claim(struct work *w, int name, uint64_t fence)
{
    struct board *b = w->board;
    int before = atomic_exchange(&b->holder[name], w->number + 1);

    if (before != 0 && !atomic_load(&b->dying[before - 1]))
        atomic_fetch_add(&b->violations, 1);
    if (atomic_exchange(&b->fence[name], fence) >= fence)
        atomic_fetch_add(&b->violations, 1);
    atomic_fetch_add(&b->grants, 1);
}

static void work(struct child *c, const char *where, void *arg)
{
    struct work *w = arg;
    uint64_t random = w->seed;
    struct pollfd told = { c->hear, POLLIN, 0 };
    struct side s;

    if (side_open(&s, where, "") < 0)
        _exit(2);
    while (poll(&told, 1, 0) == 0) {
        int n = (int)(test_random(&random) % NAMES);
        char name[] = { (char)('a' + n), '\0' };
        int64_t end = hf__loop_now() + 2 * LIMIT_US;
        struct pass p;

        pass_init(&p, &s, name);
        p.t.try_only = test_random(&random) % 4 == 0;
        pass_join(&p);
        if (test_random(&random) % 8 != 0)
            while (!p.granted && !p.gone && hf__loop_now() < end)
                side_turn(&s, hf__loop_now() + 100000);
        if (!p.granted && !p.gone && hf__loop_now() >= end)
            _exit(4); /* the line stands still */
        if (p.granted) {
            int me = w->number + 1;

            claim(w, n, p.t.fence);
            if (test_random(&random) % 2)
                pass_renew(&p);
            atomic_compare_exchange_strong(&w->board->holder[n], &me, 0);
        }
        if (!p.gone && pass_leave(&p) != 0)
            _exit(5);
    }
    side_close(&s);
}

static void kill_at_random(void **state)
{
    struct board *b =
        mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t random = test_seed();
    struct child c[WORKERS];
    int life[WORKERS], lives = 0;

    (void)state;
    assert_ptr_not_equal(b, MAP_FAILED);
    for (int i = 0; i < WORKERS; i++) {
        struct work w = { b, life[i] = lives++, test_random(&random) };

        c[i] = child_start(folder, work, &w);
    }
    for (int k = 0; k < KILLS; k++) {
        int i = (int)(test_random(&random) % WORKERS);
        struct timespec pause = { 0, (long)(test_random(&random) % 8000000) };
        struct work w = { b, lives, test_random(&random) };

        nanosleep(&pause, NULL); /* only varies the moment of the kill */
        atomic_store(&b->dying[life[i]], 1);
        child_kill(&c[i], SIGKILL);
        life[i] = lives++;
        c[i] = child_start(folder, work, &w);
    }
    for (int i = 0; i < WORKERS; i++)
        child_end(&c[i]);
    assert_int_equal(b->violations, 0);
    print_message("# %d grants, %d kills\n", b->grants, KILLS);
    for (int n = 0; n < NAMES; n++) {
        char name[] = { (char)('a' + n), '\0' };
        struct pass p;

        pass_init(&p, &a, name);
        p.t.try_only = true;
        assert_int_equal(pass_join(&p), 1);
        assert_true(p.t.fence > b->fence[n]);
        pass_leave(&p);
    }
    assert_int_equal(
        hf__local_check_tree(local_of(a.store)->sh, local_of(a.store)->sh->storefd, NULL),
        0);
    munmap(b, sizeof *b);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(hand_over),
        T(a_grant_comes_without_an_entry),
        T(the_mail_of_grants_does_not_pile_up),
        T(a_taken_grant_leaves_nothing_in_the_pipe),
        T(a_slot_is_not_believed),
        T(a_torn_slot_is_used_again),
        T(a_full_pipe_loses_no_grant),
        T(a_killed_holder_is_noticed),
        T(a_try_after_a_kill_succeeds),
        T(a_look_shows_no_dead),
        T(a_follower_sees_a_death),
        T(killed_waiters_do_not_block),
        T(the_head_watches_every_holder),
        T(a_stopped_process_is_named),
        T(leaving_waits_no_longer_than_the_ticket_lives),
        T(a_process_killed_inside_opens_the_gate),
        T(a_commit_that_was_not_finished_is_undone),
        T(a_forked_child_does_not_keep_the_parent_alive),
        T(a_guard_holds_back_the_news),
        T(a_forked_handle_refuses),
        T(closing_descriptors_is_not_death),
        T(kill_at_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
