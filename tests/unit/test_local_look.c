/* test_local_look.c: names, looking at lines, following them, cells. */
#include "local_harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void names_do_not_touch(void **state)
{
    static const char *names[] = { "a", "a/b", "a/", "b", "A" };
    struct pass p[5], q[2], same;
    struct glance g = { 0 };
    char name[2][HF_NAME_MAX + 1];

    (void)state;
    for (int i = 0; i < 5; i++)
        pass_hold(&p[i], &a, names[i]);
    for (int i = 0; i < 2; i++) { /* equal but for the last byte, too long for a key */
        memset(name[i], 'n', HF_NAME_MAX);
        name[i][HF_NAME_MAX] = '\0';
        name[i][HF_NAME_MAX - 1] = (char)('0' + i);
        pass_hold(&q[i], &a, name[i]);
    }
    assert_int_equal(pass_try(&same, &b, name[0]), HF_EBUSY);
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
    pass_hold(&p, &a, name);
    pass_hold(&q, &c, name);
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
    pass_hold(&p, &a, "x");
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

#define T(f) cmocka_unit_test_setup_teardown(f, pair_setup, pair_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(names_do_not_touch), T(name_spaces_do_not_touch), T(looking),
        T(following_a_line),   T(a_follower_sees_expiry),   T(cells),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
