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

static struct side a, b;
static char *folder;

static int setup(void **state)
{
    (void)state;
    folder = folder_new();
    assert_int_equal(side_open(&a, folder, ""), 0);
    assert_int_equal(side_open(&b, folder, ""), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    side_close(&a);
    side_close(&b);
    folder_free(folder);
    return 0;
}

static void free_lock_is_granted_at_once(void **state)
{
    struct pass p;
    int64_t before = hf__loop_now();

    (void)state;
    pass_init(&p, &a, "x");
    assert_int_equal(pass_join(&p), 1);
    assert_true(p.t.fence > 0);
    assert_true(p.sent_at >= before && p.sent_at <= hf__loop_now());
    assert_ptr_equal(p.t.life, &p.t.own);
    assert_int_equal(pass_leave(&p), 0);
    assert_int_equal(pass_leave(&p), 0); /* may be repeated */
}

static void second_waits_and_is_told(void **state)
{
    struct pass p, q;

    (void)state;
    pass_init(&p, &a, "x");
    pass_init(&q, &b, "x");
    assert_int_equal(pass_join(&p), 1);
    assert_int_equal(pass_join(&q), 0);
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
    pass_init(&w, &a, "x");
    pass_init(&r3, &b, "x");
    pass_shared(&r1);
    pass_shared(&r2);
    pass_shared(&r3);
    assert_int_equal(pass_join(&r1), 1);
    assert_int_equal(pass_join(&r2), 1);
    assert_int_equal(pass_join(&w), 0);
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
    pass_init(&w, &a, "x");
    pass_init(&r2, &b, "x");
    pass_shared(&r);
    pass_shared(&r2);
    r2.t.barge = true;
    assert_int_equal(pass_join(&r), 1);
    assert_int_equal(pass_join(&w), 0);
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
    pass_init(&p, &a, "x");
    pass_init(&q, &a, "x");
    assert_int_equal(pass_join(&p), 1);
    fence = p.t.fence;
    assert_int_equal(pass_join(&p), 1);
    assert_int_equal(p.t.fence, fence);
    assert_int_equal(pass_join(&q), 0);
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
    pass_init(&p, &a, "x");
    pass_init(&q, &b, "x");
    assert_int_equal(pass_join(&p), 1);
    pass_renew(&p);
    assert_int_equal(p.alive, 1);
    b.ahead_us = 31 * 1000000;
    assert_int_equal(pass_join(&q), 1);
    assert_true(q.t.fence > p.t.fence);
    pass_renew(&p);
    assert_true(p.dead);
    assert_int_equal(pass_leave(&p), 0);
    assert_true(pass_holds(&q));
    pass_leave(&q);

    pass_init(&p, &a, "y");
    assert_int_equal(pass_join(&p), 1);
    a.ahead_us = 30 * 1000000;
    pass_renew(&p); /* still there, but too late */
    assert_true(p.dead);
    pass_leave(&p);
}

/* The grant copies the expiry of the waiting life, and says when that request was sent. */
static void a_grant_moves_no_expiry(void **state)
{
    struct pass p, q;
    struct glance g = { 0 };
    int64_t joined;

    (void)state;
    pass_init(&p, &a, "x");
    pass_init(&q, &b, "x");
    assert_int_equal(pass_join(&p), 1);
    assert_int_equal(pass_join(&q), 0);
    joined = q.t.life->sent_at;
    a.ahead_us = 10 * 1000000;
    b.ahead_us = 10 * 1000000;
    assert_int_equal(pass_leave(&p), 0);
    glance_at(&g, &a, "x", false);
    assert_int_equal(g.n, 1);
    assert_true(g.rows[0].row.expires_ms <= 20000);
    /* Another join on the same life must not make the old grant look younger. */
    pass_init(&p, &b, "x");
    assert_int_equal(pass_join(&p), 0);
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
    pass_init(&p, &a, "x");
    pass_init(&q, &b, "x");
    assert_int_equal(pass_join(&p), 1);
    assert_int_equal(pass_join(&q), 0);
    pass_leave(&p);
    assert_int_equal(q.granted, 0); /* b's loop has not turned */
    pass_renew(&q);
    assert_int_equal(q.granted, 1);
    assert_ptr_equal(q.t.life, &q.t.own);
    pass_renew(&q);
    assert_false(q.dead);
    pass_leave(&q);
}

/* Hands "x" from a to b, which turns its loop. */
static void hand_over(void)
{
    struct pass p, q;

    pass_init(&p, &a, "x");
    pass_init(&q, &b, "x");
    assert_int_equal(pass_join(&p), 1);
    assert_int_equal(pass_join(&q), 0);
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
        pass_init(&p[i], &a, name);
        pass_init(&q[i], &b, name);
        assert_int_equal(pass_join(&p[i]), 1);
        assert_int_equal(pass_join(&q[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pass_leave(&p[i]);
        side_until(&b, &q[i].granted);
        pass_leave(&q[i]);
    }
    assert_true(side_records(&a, TABLE_LIFE) <= STALE_MAX);
    side_close(&b); /* its process stays */
    assert_int_equal(side_records(&a, TABLE_LIFE) + side_records(&a, TABLE_MAIL), 0);
    assert_int_equal(side_open(&b, folder, ""), 0);
}

static void nonsense_in_the_pipe_harms_nobody(void **state)
{
    struct wake wake = { .kind = MAIL_GRANTED, .fix = { 1, INT64_MAX } };
    int fd = open(folder_file(folder, "w.1.1"), O_RDWR | O_NONBLOCK);
    struct pass p, q;

    (void)state;
    pass_init(&p, &a, "x");
    pass_init(&q, &b, "x");
    assert_int_equal(fd, -1); /* made when it is first needed */
    assert_int_equal(pass_join(&q), 1);
    assert_int_equal(pass_join(&p), 0);
    assert_true((fd = open(folder_file(folder, "w.1.2"), O_RDWR | O_NONBLOCK)) >= 0);
    assert_int_equal(local_of(a.store)->member, 2);
    assert_int_equal(write(fd, &wake, sizeof wake), sizeof wake); /* of nobody */
    side_turn(&a, 0);
    assert_int_equal(write(fd, "half a message", 14), 14);
    side_turn(&a, 0);
    memcpy(wake.token, p.t.token, HF_TOKEN);
    wake.kind = MAIL_EVICTED; /* only a grant is believed */
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
    pass_init(&p, &a, "x");
    pass_init(&q, &b, "x");
    pass_init(&r, &b, "x");
    assert_int_equal(pass_join(&p), 1);
    assert_int_equal(pass_join(&q), 0);
    b.ahead_us = 31 * 1000000;
    assert_int_equal(pass_join(&r), 1); /* the holder and the waiter have expired */
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
    pass_init(&p, &a, "x");
    pass_init(&q, &b, "x");
    assert_int_equal(pass_join(&p), 1);
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
    pass_init(&p, &a, "x");
    pass_init(&q, &b, "x");
    pass_shared(&q);
    assert_int_equal(pass_join(&p), 1);
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
    pass_init(&p, &a, "x");
    pass_init(&q, &b, "x");
    assert_int_equal(pass_join(&p), 1);
    assert_int_equal(pass_join(&q), 0);
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

    pass_init(&p, &a, "x");
    assert_int_equal(pass_join(&p), 0);
    assert_int_equal(evict(&b, "x", p.t.token, false), 0); /* a waiter goes at once */
    side_until(&a, &p.gone);
    pass_leave(&q);
}

static void names_do_not_touch(void **state)
{
    static const char *names[] = { "a", "a/b", "a/", "b", "A" };
    struct pass p[5], q[2], same;
    struct glance g = { 0 };
    char name[2][HF_NAME_MAX + 1];

    (void)state;
    for (int i = 0; i < 5; i++) {
        pass_init(&p[i], &a, names[i]);
        assert_int_equal(pass_join(&p[i]), 1);
    }
    for (int i = 0; i < 2; i++) { /* equal but for the last byte, too long for a key */
        memset(name[i], 'n', HF_NAME_MAX);
        name[i][HF_NAME_MAX] = '\0';
        name[i][HF_NAME_MAX - 1] = (char)('0' + i);
        pass_init(&q[i], &a, name[i]);
        assert_int_equal(pass_join(&q[i]), 1);
    }
    pass_init(&same, &b, name[0]);
    same.t.try_only = true;
    assert_int_equal(pass_join(&same), HF_EBUSY);
    glance_at(&g, &b, "a", true);
    assert_int_equal(g.n, 3);
    assert_string_equal(g.rows[0].name, "a");
    assert_string_equal(g.rows[1].name, "a/");
    assert_string_equal(g.rows[2].name, "a/b");
    glance_at(&g, &b, name[0], true);
    assert_int_equal(g.n, 1);
    assert_string_equal(g.rows[0].name, name[0]);
    g.look.limit = 2;
    glance_at(&g, &b, "", true);
    assert_int_equal(g.n, 2);
    for (int i = 0; i < 5; i++)
        pass_leave(&p[i]);
    for (int i = 0; i < 2; i++)
        pass_leave(&q[i]);
}

static void name_spaces_do_not_touch(void **state)
{
    struct side c;
    struct pass p, q;
    struct glance g = { 0 };
    char name[HF_NAME_MAX + 1], query[200];

    (void)state;
    memset(query, 0, sizeof query);
    strcpy(query, "?namespace=");
    memset(query + 11, 'z', 60);
    assert_int_equal(side_open(&c, folder, query), 0);
    memset(name, 'x', HF_NAME_MAX);
    name[HF_NAME_MAX] = '\0';
    pass_init(&p, &a, name);
    pass_init(&q, &c, name);
    assert_int_equal(pass_join(&p), 1);
    assert_int_equal(pass_join(&q), 1);
    glance_at(&g, &a, "", true);
    assert_int_equal(g.n, 1);
    glance_at(&g, &c, "", true);
    assert_int_equal(g.n, 1);
    assert_string_equal(g.rows[0].name, name);
    pass_leave(&p);
    pass_leave(&q);
    side_close(&c);
}

static void looking(void **state)
{
    struct pass p, q;
    struct glance g = { 0 };

    (void)state;
    pass_init(&p, &a, "x");
    p.t.note = "why";
    p.t.owner = (struct owner){ 7, 8 };
    pass_init(&q, &b, "x");
    q.t.hints = "one\0two";
    q.t.hints_len = 8;
    assert_int_equal(pass_join(&p), 1);
    assert_int_equal(pass_join(&q), 0);
    glance_at(&g, &a, "x", false);
    assert_int_equal(g.n, 2);
    assert_int_equal(g.rows[0].row.holders, 1);
    assert_int_equal(g.rows[0].row.waiters, 1);
    assert_int_equal(g.rows[0].row.fence, p.t.fence);
    assert_int_equal(g.rows[0].row.owner.number, 8);
    assert_string_equal(g.rows[0].note, "why");
    assert_int_equal(g.rows[0].row.position, 0);
    assert_int_equal(g.rows[1].row.position, 1);
    assert_int_equal(g.rows[1].row.fence, 0);
    assert_int_equal(g.rows[1].row.hints_len, 8);
    pass_leave(&q);
    pass_leave(&p);
}

static void following_a_line(void **state)
{
    struct pass p;
    struct glance *g = calloc(1, sizeof *g);

    (void)state;
    g->look.follow = true;
    glance_at(g, &b, "x", false);
    assert_int_equal(g->done, 1);
    assert_int_equal(g->n, 0);
    pass_init(&p, &a, "x");
    assert_int_equal(pass_join(&p), 1);
    side_until_size(&b, &g->done, 2);
    assert_int_equal(g->n, 1);
    g->n = 0;
    pass_leave(&p);
    side_until_size(&b, &g->done, 3);
    assert_int_equal(g->n, 0);
    side_stop(&g->look, NULL);
    assert_int_equal(pass_join(&p), 1);
    side_turn(&b, hf__loop_now() + 20000);
    assert_int_equal(g->done, 3);
    pass_leave(&p);
    free(g);
}

static void a_follower_sees_expiry(void **state)
{
    struct pass p;
    struct glance *g = calloc(1, sizeof *g);

    (void)state;
    pass_init(&p, &a, "x");
    p.t.ttl_ms = 2000;
    assert_int_equal(pass_join(&p), 1);
    g->look.follow = true;
    glance_at(g, &b, "x", false);
    assert_int_equal(g->n, 1);
    g->n = 0;
    side_until_size(&b, &g->done, 2);
    assert_int_equal(g->n, 0);
    side_stop(&g->look, NULL);
    pass_leave(&p);
    free(g);
}

static void cells(void **state)
{
    struct drawer d = { 0 }, f = { 0 };
    uint64_t version;

    (void)state;
    f.cell.follow = true;
    assert_int_equal(drawer_do(&f, &b, CELL_GET, "c"), 0);
    assert_int_equal(f.cell.version, 0);
    memcpy(d.cell.value, "5", 1);
    d.cell.value_len = 1;
    assert_int_equal(drawer_do(&d, &a, CELL_PUT, "c"), 0); /* if_version 0: only if none */
    version = d.cell.version;
    assert_true(version > 0);
    side_until_size(&b, &f.done, 2);
    assert_int_equal(f.cell.version, version);
    assert_int_equal(drawer_do(&d, &a, CELL_PUT, "c"), HF_EBUSY);
    assert_int_equal(d.cell.version, version);
    d.cell.add = 37;
    assert_int_equal(drawer_do(&d, &a, CELL_ADD, "c"), 0);
    assert_int_equal(d.cell.number, 42);
    assert_true(d.cell.version > version);
    version = d.cell.version;
    d.cell.if_version = version;
    assert_int_equal(drawer_do(&d, &a, CELL_DEL, "c"), 0);
    assert_int_equal(d.cell.version, 0);
    d.cell.if_any = true;
    d.cell.ttl_ms = 60000;
    memcpy(d.cell.value, "abc", 3);
    d.cell.value_len = 3;
    assert_int_equal(drawer_do(&d, &a, CELL_PUT, "c"), 0);
    assert_true(d.cell.version > version);
    assert_int_equal(drawer_do(&d, &a, CELL_ADD, "c"), HF_EINVAL);
    a.ahead_us = 61 * 1000000;
    assert_int_equal(drawer_do(&d, &a, CELL_GET, "c"), 0);
    assert_int_equal(d.cell.version, 0);
    side_stop(NULL, &f.cell);
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

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

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
        T(a_grant_moves_no_expiry),
        T(a_lost_wake_is_made_good_by_the_look),
        T(what_is_left_of_waiting_goes),
        T(nonsense_in_the_pipe_harms_nobody),
        T(no_message_into_a_strange_file),
        T(an_expired_waiter_is_gone),
        T(keeping),
        T(downgrade_admits_readers),
        T(eviction),
        T(names_do_not_touch),
        T(name_spaces_do_not_touch),
        T(looking),
        T(following_a_line),
        T(a_follower_sees_expiry),
        T(cells),
        T(many_tickets_in_one_line),
        T(many_lines),
        T(an_error_is_said_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
