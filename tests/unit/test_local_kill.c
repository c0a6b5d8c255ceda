/* test_local_kill.c: processes that are stopped or killed inside the store. */
#include "local_harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

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
    pass_hold(&q, &a, "y");
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
    pass_hold(&q, &a, "held");
    for (int i = 0; i < 4; i++) { /* both meta pages, twice */
        struct child c = child_start(folder, die_in_commit, NULL);

        assert_int_equal(child_hear(&c), 'c');
        child_kill(&c, SIGKILL);
        pass_hold(&p, &a, "x");
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
    struct board *board = w->board;
    int before = atomic_exchange(&board->holder[name], w->number + 1);

    if (before != 0 && !atomic_load(&board->dying[before - 1]))
        atomic_fetch_add(&board->violations, 1);
    if (atomic_exchange(&board->fence[name], fence) >= fence)
        atomic_fetch_add(&board->violations, 1);
    atomic_fetch_add(&board->grants, 1);
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
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t random = test_seed();
    struct child c[WORKERS];
    int life[WORKERS], lives = 0;

    (void)state;
    assert_ptr_not_equal(board, MAP_FAILED);
    for (int i = 0; i < WORKERS; i++) {
        struct work w = { board, life[i] = lives++, test_random(&random) };

        c[i] = child_start(folder, work, &w);
    }
    for (int k = 0; k < KILLS; k++) {
        int i = (int)(test_random(&random) % WORKERS);
        struct timespec pause = { 0, (long)(test_random(&random) % 8000000) };
        struct work w = { board, lives, test_random(&random) };

        nanosleep(&pause, NULL); /* only varies the moment of the kill */
        atomic_store(&board->dying[life[i]], 1);
        child_kill(&c[i], SIGKILL);
        life[i] = lives++;
        c[i] = child_start(folder, work, &w);
    }
    for (int i = 0; i < WORKERS; i++)
        child_end(&c[i]);
    assert_int_equal(board->violations, 0);
    print_message("# %d grants, %d kills\n", board->grants, KILLS);
    for (int n = 0; n < NAMES; n++) {
        char name[] = { (char)('a' + n), '\0' };
        struct pass p;

        assert_int_equal(pass_try(&p, &a, name), 1);
        assert_true(p.t.fence > board->fence[n]);
        pass_leave(&p);
    }
    assert_int_equal(
        hf__local_check_tree(local_of(a.store)->sh, local_of(a.store)->sh->storefd, NULL),
        0);
    munmap(board, sizeof *board);
}

#define T(f) cmocka_unit_test_setup_teardown(f, alone_setup, alone_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_stopped_process_is_named),
        T(leaving_waits_no_longer_than_the_ticket_lives),
        T(a_process_killed_inside_opens_the_gate),
        T(a_commit_that_was_not_finished_is_undone),
        T(kill_at_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
