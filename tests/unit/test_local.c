/* test_local.c: the embedded driver's verbs, between two clients of one process. */
#include "local_harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void free_lock_is_granted_at_once(void **state)
{
    struct pass p;
    int64_t before = hf__loop_now();

    (void)state;
    pass_hold(&p, &a, "x");
    assert_true(p.t.fence > 0);
    assert_true(p.sent_at >= before && p.sent_at <= hf__loop_now());
    assert_ptr_equal(p.t.life, p.t.own);
    assert_int_equal(pass_leave(&p), 0);
    assert_int_equal(pass_leave(&p), 0); /* may be repeated */
}

static void second_waits_and_is_told(void **state)
{
    struct pass p, q;

    (void)state;
    pass_hold(&p, &a, "x");
    pass_wait(&q, &b, "x");
    assert_int_equal(q.position, 1);
    assert_true(q.recheck_ms > 29000 && q.recheck_ms <= 30001);
    assert_int_equal(pass_leave(&p), 0);
    side_until(&b, &q.granted);
    assert_true(q.t.fence > p.t.fence);
    assert_int_equal(pass_leave(&q), 0);
}

static void try_leaves_nothing(void **state)
{
    struct pass p, q;
    struct glance g = { 0 };

    (void)state;
    pass_init(&p, &a, "x");
    p.t.note = "the\nfirst";
    pass_init(&q, &b, "x");
    q.t.try_only = true;
    assert_int_equal(pass_join(&p), 1);
    assert_int_equal(pass_join(&q), HF_EBUSY);
    assert_non_null(strstr(q.err.text, "the\\x0afirst"));
    glance_at(&g, &b, "x", false);
    assert_int_equal(g.n, 1);
    assert_memory_equal(g.rows[0].row.token, p.t.token, HF_TOKEN);
    pass_leave(&p);
    glance_at(&g, &b, "x", false);
    assert_int_equal(g.n, 0);
}

static void first_come_first_served(void **state)
{
    struct pass p[6];

    (void)state;
    for (int i = 0; i < 6; i++) {
        pass_init(&p[i], i % 2 ? &b : &a, "x");
        assert_int_equal(pass_join(&p[i]), i == 0);
        if (i > 0)
            assert_int_equal(p[i].position, i);
    }
    for (int i = 0; i < 6; i++) {
        side_until(i % 2 ? &b : &a, &p[i].granted);
        for (int k = i + 1; k < 6; k++)
            assert_int_equal(p[k].granted, 0);
        if (i > 0)
            assert_true(p[i].t.fence > p[i - 1].t.fence);
        pass_leave(&p[i]);
    }
}

static void readers_share_and_writers_do_not_starve(void **state)
{
    struct pass r1, r2, w, r3;

    (void)state;
    pass_init(&r1, &a, "x");
    pass_init(&r2, &b, "x");
    pass_init(&r3, &b, "x");
    pass_shared(&r1);
    pass_shared(&r2);
    pass_shared(&r3);
    assert_int_equal(pass_join(&r1), 1);
    assert_int_equal(pass_join(&r2), 1);
    pass_wait(&w, &a, "x");
    assert_int_equal(pass_join(&r3), 0);
    pass_leave(&r1);
    assert_int_equal(w.granted, 0);
    pass_leave(&r2);
    side_until(&a, &w.granted);
    assert_int_equal(r3.granted, 0);
    pass_leave(&w);
    side_until(&b, &r3.granted);
    pass_leave(&r3);
}

static void permits_fill_up(void **state)
{
    struct pass p1, p2, p3, q;

    (void)state;
    pass_init(&p1, &a, "x");
    pass_init(&p2, &a, "x");
    pass_init(&p3, &b, "x");
    pass_init(&q, &b, "x");
    pass_permits(&p1, 2, 3);
    pass_permits(&p2, 1, 3);
    pass_permits(&p3, 1, 3);
    pass_permits(&q, 1, 4);
    assert_int_equal(pass_join(&p1), 1);
    assert_int_equal(pass_join(&p2), 1);
    assert_int_equal(pass_join(&p3), 0);
    assert_int_equal(pass_join(&q), HF_EMISMATCH);
    assert_non_null(strstr(q.err.text, "3 permits"));
    pass_init(&q, &b, "x");
    assert_int_equal(pass_join(&q), HF_EMISMATCH);
    pass_leave(&p2);
    side_until(&b, &p3.granted);
    pass_leave(&p1);
    pass_leave(&p3);
    assert_int_equal(pass_join(&q), 1); /* empty: any kind */
    pass_leave(&q);
}

static void barging_passes_the_queue(void **state)
{
    struct pass r, w, r2;

    (void)state;
    pass_init(&r, &a, "x");
    pass_init(&r2, &b, "x");
    pass_shared(&r);
    pass_shared(&r2);
    r2.t.barge = true;
    assert_int_equal(pass_join(&r), 1);
    pass_wait(&w, &a, "x");
    assert_int_equal(pass_join(&r2), 1);
    pass_leave(&r);
    assert_int_equal(w.granted, 0);
    pass_leave(&r2);
    side_until(&a, &w.granted);
    pass_leave(&w);
}

static void join_may_be_repeated(void **state)
{
    struct pass p, q;
    struct glance g = { 0 };
    uint64_t fence;

    (void)state;
    pass_hold(&p, &a, "x");
    fence = p.t.fence;
    assert_int_equal(pass_join(&p), 1);
    assert_int_equal(p.t.fence, fence);
    pass_wait(&q, &a, "x");
    assert_int_equal(pass_join(&q), 0);
    glance_at(&g, &b, "x", false);
    assert_int_equal(g.n, 2);
    pass_leave(&q);
    pass_leave(&p);
}

static void a_waiter_may_leave_from_the_middle(void **state)
{
    struct pass p[4];

    (void)state;
    for (int i = 0; i < 4; i++) {
        pass_init(&p[i], i % 2 ? &b : &a, "x");
        assert_int_equal(pass_join(&p[i]), i == 0);
    }
    assert_int_equal(pass_leave(&p[2]), 0);
    pass_leave(&p[0]);
    side_until(&b, &p[1].granted);
    pass_leave(&p[1]);
    side_until(&b, &p[3].granted);
    assert_int_equal(p[2].granted, 0);
    pass_leave(&p[3]);
}

static void an_expired_hold_is_lost_and_not_revived(void **state)
{
    struct pass p, q;

    (void)state;
    pass_hold(&p, &a, "x");
    pass_renew(&p);
    assert_int_equal(p.alive, 1);
    b.ahead_us = 31 * 1000000;
    pass_hold(&q, &b, "x");
    assert_true(q.t.fence > p.t.fence);
    pass_renew(&p);
    assert_true(p.dead);
    assert_int_equal(pass_leave(&p), 0);
    assert_true(pass_holds(&q));
    pass_leave(&q);

    pass_hold(&p, &a, "y");
    a.ahead_us = 30 * 1000000;
    pass_renew(&p); /* still there, but too late */
    assert_true(p.dead);
    pass_leave(&p);
}

/* The grant copies the expiry of the waiting life, and says when that request was sent. */
/* A hold that now ends earlier: the first that waits has its timer at the old end. */
static void a_shorter_renewal_is_told(void **state)
{
    struct pass p, q, r;

    (void)state;
    pass_hold(&p, &a, "x");
    pass_wait(&q, &b, "x");
    pass_wait(&r, &b, "x");
    q.waiting = r.waiting = 0;
    p.t.own->ttl_ms = 60000;
    pass_renew(&p);
    side_turn(&b, hf__loop_now() + 50000);
    assert_int_equal(q.waiting, 0); /* a later end needs no message */
    p.t.own->ttl_ms = 1000;
    pass_renew(&p);
    side_until(&b, &q.waiting);
    assert_true(q.recheck_ms <= 1001);
    assert_int_equal(r.waiting, 0);
    pass_leave(&r);
    pass_leave(&q);
    pass_leave(&p);
}

static void a_grant_moves_no_expiry(void **state)
{
    struct pass p, q;
    struct glance g = { 0 };
    int64_t joined;

    (void)state;
    pass_hold(&p, &a, "x");
    pass_wait(&q, &b, "x");
    joined = q.t.life->sent_at;
    a.ahead_us = 10 * 1000000;
    b.ahead_us = 10 * 1000000;
    assert_int_equal(pass_leave(&p), 0);
    glance_at(&g, &a, "x", false);
    assert_int_equal(g.n, 1);
    assert_true(g.rows[0].row.expires_ms <= 20000);
    /* Another join on the same life must not make the old grant look younger. */
    pass_wait(&p, &b, "x");
    side_until(&b, &q.granted);
    assert_int_equal(q.sent_at, joined);
    pass_leave(&q);
    side_until(&b, &p.granted);
    pass_leave(&p);
}

static void a_lost_wake_is_made_good_by_the_look(void **state)
{
    struct pass p, q;

    (void)state;
    pass_hold(&p, &a, "x");
    pass_wait(&q, &b, "x");
    pass_leave(&p);
    assert_int_equal(q.granted, 0); /* b's loop has not turned */
    pass_renew(&q);
    assert_int_equal(q.granted, 1);
    assert_ptr_equal(q.t.life, q.t.own);
    pass_renew(&q);
    assert_false(q.dead);
    pass_leave(&q);
}

/* Hands "x" from a to b, which turns its loop. */
static void hand_over(void)
{
    struct pass p, q;

    pass_hold(&p, &a, "x");
    pass_wait(&q, &b, "x");
    pass_leave(&p);
    side_until(&b, &q.granted);
    pass_leave(&q);
}

/* The life of the last wait goes with a later entry. */
static void what_is_left_of_waiting_goes(void **state)
{
    enum { N = 3 * STALE_MAX };
    struct pass p[N], q[N];
    char name[32];

    (void)state;
    for (int i = 0; i < 10; i++) {
        hand_over();
        assert_true(side_records(&a, TABLE_LIFE) <= 1);
    }
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "line/%d", i);
        pass_hold(&p[i], &a, name);
        pass_wait(&q[i], &b, name);
    }
    for (int i = 0; i < N; i++) {
        pass_leave(&p[i]);
        side_until(&b, &q[i].granted);
        pass_leave(&q[i]);
    }
    assert_true(side_records(&a, TABLE_LIFE) <= STALE_MAX);
    side_close(&b); /* its process stays */
    assert_int_equal(side_records(&a, TABLE_LIFE) + side_records(&a, TABLE_INBOX), 0);
    assert_int_equal(side_open(&b, folder, ""), 0);
}

static void nonsense_in_the_pipe_harms_nobody(void **state)
{
    struct wake wake = { .kind = INBOX_GRANTED, .fix = { 1, INT64_MAX } };
    int fd = open(folder_file(folder, "w.1.1"), O_RDWR | O_NONBLOCK);
    struct pass p, q;

    (void)state;
    assert_int_equal(fd, -1); /* made when it is first needed */
    pass_hold(&q, &b, "x");
    pass_wait(&p, &a, "x");
    assert_true((fd = open(folder_file(folder, "w.1.2"), O_RDWR | O_NONBLOCK)) >= 0);
    assert_int_equal(local_of(a.store)->member, 2);
    assert_int_equal(write(fd, &wake, sizeof wake), sizeof wake); /* of nobody */
    side_turn(&a, 0);
    assert_int_equal(write(fd, "half a message", 14), 14);
    side_turn(&a, 0);
    memcpy(wake.token, p.t.token, HF_TOKEN);
    wake.kind = INBOX_EVICTED; /* only a grant is believed */
    assert_int_equal(write(fd, &wake, sizeof wake), sizeof wake);
    side_turn(&a, 0);
    assert_int_equal(p.granted + p.gone, 0);
    pass_leave(&q);
    side_until(&a, &p.granted);
    pass_leave(&p);
    close(fd);
}

/* A program that closes all descriptors has its own file where our pipe was. */
static void no_message_into_a_strange_file(void **state)
{
    struct sender *s = NULL;
    struct stat st;
    FILE *f;

    (void)state;
    hand_over();
    for (size_t i = 0; i < SENDERS; i++)
        if (local_of(a.store)->senders[i].fd >= 0)
            s = &local_of(a.store)->senders[i];
    assert_non_null(s);
    assert_non_null(f = tmpfile());
    assert_int_equal(dup2(fileno(f), s->fd), s->fd);
    hand_over();
    assert_int_equal(fstat(fileno(f), &st), 0);
    assert_int_equal(st.st_size, 0);
    fclose(f);
}

static void an_expired_waiter_is_gone(void **state)
{
    struct pass p, q, r;

    (void)state;
    pass_hold(&p, &a, "x");
    pass_wait(&q, &b, "x");
    b.ahead_us = 31 * 1000000;
    pass_hold(&r, &b, "x"); /* the holder and the waiter have expired */
    pass_renew(&q);
    assert_int_equal(q.gone, 1);
    assert_int_equal(q.why, HF_ELOST);
    assert_true(pass_holds(&r));
    pass_leave(&r);
    pass_leave(&p);
}

static void keeping(void **state)
{
    struct pass p, q;

    (void)state;
    pass_init(&q, &b, "x");
    pass_hold(&p, &a, "x");
    p.t.keep_ms = 60000;
    assert_int_equal(pass_leave(&p), 0);
    q.t.try_only = true;
    assert_int_equal(pass_join(&q), HF_EBUSY);
    b.ahead_us = 59 * 1000000;
    assert_int_equal(pass_join(&q), HF_EBUSY);
    b.ahead_us = 61 * 1000000;
    assert_int_equal(pass_join(&q), 1);
    pass_leave(&q);
}

static void downgrade_admits_readers(void **state)
{
    struct pass p, q;
    struct glance g = { 0 };

    (void)state;
    pass_init(&q, &b, "x");
    pass_shared(&q);
    pass_hold(&p, &a, "x");
    assert_int_equal(pass_join(&q), 0);
    p.t.weight = 1;
    p.t.note = "now a reader";
    hf__driver_local.amend(a.store, &p.t);
    assert_int_equal(p.amended, 1);
    assert_int_equal(p.why, 0);
    side_until(&b, &q.granted);
    glance_at(&g, &b, "x", false);
    assert_int_equal(g.n, 2);
    assert_string_equal(g.rows[0].note, "now a reader");
    pass_leave(&p);
    pass_leave(&q);
    hf__driver_local.amend(a.store, &p.t);
    assert_int_equal(p.why, HF_ELOST);
}

static void eviction(void **state)
{
    struct pass p, q;
    unsigned char nobody[HF_TOKEN] = { 1 };

    (void)state;
    pass_hold(&p, &a, "x");
    pass_wait(&q, &b, "x");
    assert_int_equal(evict(&b, "x", nobody, true), HF_ENOENT);
    assert_int_equal(evict(&b, "y", p.t.token, true), HF_ENOENT);

    assert_int_equal(evict(&b, "x", p.t.token, false), 0);
    side_until(&a, &p.marked);
    pass_renew(&p);
    assert_int_equal(p.alive, 0); /* cannot be renewed */
    assert_int_equal(q.granted, 0);

    assert_int_equal(evict(&b, "x", p.t.token, true), 0);
    assert_int_equal(q.granted, 1); /* its own client: at once */
    side_until(&a, &p.gone);
    assert_int_equal(p.why, HF_EEVICTED);

    pass_wait(&p, &a, "x");
    assert_int_equal(evict(&b, "x", p.t.token, false), 0); /* a waiter goes at once */
    side_until(&a, &p.gone);
    pass_leave(&q);
}

static void many_tickets_in_one_line(void **state)
{
    enum { N = 2000 };
    struct pass *p = calloc(N, sizeof *p);

    (void)state;
    for (int i = 0; i < N; i++) {
        pass_init(&p[i], i % 2 ? &b : &a, "x");
        assert_int_equal(pass_join(&p[i]), i == 0);
    }
    for (int i = 0; i < N; i++) {
        side_until(i % 2 ? &b : &a, &p[i].granted);
        assert_int_equal(pass_leave(&p[i]), 0);
    }
    free(p);
}

static void many_lines(void **state)
{
    enum { N = 20000 };
    struct pass *p = calloc(N, sizeof *p);
    struct life **lives = calloc(N, sizeof *lives);
    struct glance g = { 0 };
    char name[32];

    (void)state;
    for (int i = 0; i < N; i++) { /* the map grows several times */
        snprintf(name, sizeof name, "line/%d", i);
        pass_init(&p[i], i % 2 ? &b : &a, name);
        assert_int_equal(pass_join(&p[i]), 1);
        lives[i] = p[i].t.life;
    }
    hf__driver_local.renew(a.store, lives, 1);
    assert_int_equal(p[0].alive, 1);
    for (int i = 0; i < N; i++)
        assert_int_equal(pass_leave(&p[i]), 0);
    glance_at(&g, &a, "", true);
    assert_int_equal(g.n, 0);
    free(lives);
    free(p);
}

static void an_error_is_said_once(void **state)
{
    const char *text = strerror(ENOENT), *first;
    hf_error err;

    (void)state;
    assert_int_equal(hf__local_db_error(&err, local_of(a.store)->sh, ENOENT), HF_ESYS);
    assert_non_null(first = strstr(err.text, text));
    assert_null(strstr(first + 1, text));
    assert_int_equal(hf__local_db_error(&err, local_of(a.store)->sh, MDB_BAD_VALSIZE),
                     HF_ESYS);
    assert_non_null(strstr(err.text, mdb_strerror(MDB_BAD_VALSIZE)));
}

#define T(f) cmocka_unit_test_setup_teardown(f, pair_setup, pair_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(free_lock_is_granted_at_once),
        T(second_waits_and_is_told),
        T(try_leaves_nothing),
        T(first_come_first_served),
        T(readers_share_and_writers_do_not_starve),
        T(permits_fill_up),
        T(barging_passes_the_queue),
        T(join_may_be_repeated),
        T(a_waiter_may_leave_from_the_middle),
        T(an_expired_hold_is_lost_and_not_revived),
        T(a_shorter_renewal_is_told),
        T(a_grant_moves_no_expiry),
        T(a_lost_wake_is_made_good_by_the_look),
        T(what_is_left_of_waiting_goes),
        T(nonsense_in_the_pipe_harms_nobody),
        T(no_message_into_a_strange_file),
        T(an_expired_waiter_is_gone),
        T(keeping),
        T(downgrade_admits_readers),
        T(eviction),
        T(many_tickets_in_one_line),
        T(many_lines),
        T(an_error_is_said_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
