/* test_local_gate.c: verbs that find the gate closed (deferred.c). The test itself is
 * inside the gate: the driver cannot tell that from another process that is stopped there.
 * What real processes do to each other is in test_local_kill.c and in the contract. */
#include "local_harness.h"
#include "sanitizer.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SOON_US = 1000000 * TEST_SLOW, SHORT_MS = 300 };

static bool no_memory;

void *__real_malloc(size_t);
void *__wrap_malloc(size_t);

void *__wrap_malloc(size_t n)
{
    return no_memory ? NULL : __real_malloc(n);
}

static bool closes_before_burial;

static void close_gate(void)
{
    assert_int_equal(hf__local_gate_enter(local_of(a.store)->sh, LIMIT_US / 1000, NULL), 0);
}

static void open_gate(void)
{
    hf__local_gate_leave(local_of(a.store)->sh);
}

bool __real_hf__local_remove_dead_seen(struct local *);
bool __wrap_hf__local_remove_dead_seen(struct local *);

bool __wrap_hf__local_remove_dead_seen(struct local *ls)
{
    if (closes_before_burial)
        close_gate();
    closes_before_burial = false;
    return __real_hf__local_remove_dead_seen(ls);
}

static int setup(void **state)
{
    folder_setup(state);
    assert_int_equal(side_open(&a, folder, "?connect_timeout=300ms"), 0);
    return side_open(&b, folder, "?connect_timeout=15s");
}

static void join_again(struct pass *p)
{
    hf__driver_local.join(p->t.store, &p->t);
}

static void join(struct pass *p, struct side *s, const char *name)
{
    pass_init(p, s, name);
    join_again(p);
}

static void look(struct glance *g, struct side *s, const char *name)
{
    glance_init(g, s, name);
    hf__driver_local.look(s->store, &g->look);
}

static void get_cell(struct drawer *d, struct side *s)
{
    drawer_init(d, s, CELL_GET, "c");
    hf__driver_local.cell(s->store, &d->cell);
}

static void leave(struct pass *p)
{
    hf__driver_local.leave(p->t.store, &p->t);
}

static bool idle(const struct side *s)
{
    const struct local *ls = local_of(s->store);

    return !ls->shut && list_empty(&ls->deferred) && loop_next(&s->loop) == LOOP_NEVER;
}

/* As hf_client_process does, for a while; the gate stays closed. */
static void turns(struct side *s)
{
    for (int i = 0; i < 5; i++)
        side_turn(s, hf__loop_now() + 20000);
}

/* ---- joins and leaves ------------------------------------------------------------ */

/* However many verbs: they wait in vain once. */
static void verbs_do_not_wait_one_after_another(void **state)
{
    enum { N = 1000 };
    struct pass *p = calloc(N, sizeof *p);
    int64_t began;

    (void)state;
    close_gate();
    began = hf__loop_now();
    for (int i = 0; i < N; i++)
        join(&p[i], &b, "x");
    turns(&b);
    assert_true(hf__loop_now() - began < SOON_US);
    for (int i = 0; i < N; i++)
        assert_int_equal(p[i].granted + p[i].waiting + p[i].gone, 0);
    open_gate();
    assert_int_equal(pass_answer(&p[0]), 1);
    for (int i = 1; i < N; i++) { /* in the order of their calls */
        assert_int_equal(pass_answer(&p[i]), 0);
        assert_int_equal(p[i].t.drv[1], i);
    }
    for (int i = N - 1; i >= 0; i--)
        assert_int_equal(pass_leave(&p[i]), 0);
    assert_true(idle(&b));
    free(p);
}

/* A newcomer waits behind those who wait for the gate, also if it opens just then. */
static void nobody_overtakes(void **state)
{
    struct pass p, q;

    (void)state;
    close_gate();
    join(&p, &b, "x");
    open_gate();
    join(&q, &b, "x");
    assert_int_equal(q.granted, 0);
    assert_int_equal(pass_answer(&p), 1);
    assert_int_equal(pass_answer(&q), 0);
    assert_int_equal(pass_leave(&q), 0);
    assert_int_equal(pass_leave(&p), 0);
}

static void a_join_that_never_ran_leaves_at_once(void **state)
{
    struct pass p, q;

    (void)state;
    close_gate();
    join(&p, &b, "x");
    join(&q, &b, "x");
    leave(&p);
    assert_int_equal(p.left, 1);
    assert_int_equal(p.why, 0);
    open_gate();
    assert_int_equal(pass_answer(&q), 1); /* p is not before it */
    assert_int_equal(p.granted + p.waiting + p.gone, 0);
    assert_int_equal(p.left, 1);
    assert_int_equal(pass_leave(&q), 0);
    assert_int_equal(side_records(&b, TABLE_LINE), 0);
}

/* A join that is repeated (seam, rule 2) has a ticket in line already. */
static void a_repeated_join_is_left_in_the_store(void **state)
{
    struct pass p;

    (void)state;
    pass_hold(&p, &b, "x");
    close_gate();
    join_again(&p);
    leave(&p);
    turns(&b);
    assert_int_equal(p.left, 0);
    open_gate();
    side_until(&b, &p.left);
    assert_int_equal(p.why, 0);
    assert_int_equal(p.granted, 1);
    assert_int_equal(side_records(&b, TABLE_LINE), 0);
}

static void a_leave_waits_for_the_gate(void **state)
{
    struct pass p, q, r;

    (void)state;
    pass_hold(&p, &b, "x");
    pass_wait(&q, &b, "x");
    close_gate();
    leave(&p);
    leave(&q);
    join(&r, &b, "x");
    turns(&b);
    assert_int_equal(p.left + q.left, 0);
    open_gate();
    side_until(&b, &q.left);
    assert_int_equal(p.left, 1);
    assert_int_equal(p.why, 0);
    assert_int_equal(q.why, 0);
    assert_int_equal(pass_answer(&r), 1);
    assert_int_equal(pass_leave(&r), 0);
    assert_int_equal(side_records(&b, TABLE_LINE), 0);
    assert_int_equal(side_records(&b, TABLE_QUEUE), 0);
}

/* The first verb of a process needs a number and a pipe before. */
static void the_first_verb_waits_too(void **state)
{
    struct pass p;

    (void)state;
    pass_init(&p, &b, "x");
    p.t.try_only = true;
    assert_int_equal(local_of(b.store)->sh->process, 0);
    close_gate();
    assert_int_equal(hf__driver_local.life_fds(b.store), HF_EBUSYSTORE);
    join_again(&p);
    turns(&b);
    assert_int_equal(hf__driver_local.life_fds(b.store), HF_EBUSYSTORE);
    assert_int_equal(p.gone, 0);
    open_gate();
    assert_int_equal(hf__driver_local.life_fds(b.store), 0); /* whoever drives, or not */
    assert_int_equal(pass_answer(&p), 1);
    assert_int_equal(pass_leave(&p), 0);
}

/* ---- limits ---------------------------------------------------------------------- */

static void limits_end_what_waits(void **state)
{
    struct pass p, q, h;
    struct glance *g = calloc(2, sizeof *g);
    struct drawer d = { 0 };
    int64_t began;
    char text[64];

    (void)state;
    pass_init(&q, &a, "x");
    q.t.try_only = true;
    pass_hold(&h, &a, "h");
    glance_init(&g[1], &a, "x");
    close_gate();
    began = hf__loop_now();
    join(&p, &a, "x");
    join_again(&q);
    hf__driver_local.amend(a.store, &h.t);
    look(&g[0], &a, "x");
    hf__driver_local.evict(a.store, &g[1].look);
    get_cell(&d, &a);
    assert_int_equal(pass_answer(&p), HF_EBUSYSTORE);
    assert_true(hf__loop_now() - began >= SHORT_MS * 1000 - 10000);
    snprintf(text, sizeof text, "blocked by process %d", (int)getpid());
    assert_non_null(strstr(p.err.text, text));
    assert_int_equal(pass_answer(&q), HF_EBUSYSTORE);
    side_until(&a, &h.amended);
    assert_int_equal(h.why, HF_EBUSYSTORE);
    for (int i = 0; i < 2; i++) {
        side_until_size(&a, &g[i].done, 1);
        assert_int_equal(g[i].rc, HF_EBUSYSTORE);
        assert_non_null(strstr(g[i].err.text, text));
    }
    side_until_size(&a, &d.done, 1);
    assert_int_equal(d.rc, HF_EBUSYSTORE);
    leave(&h);
    side_until(&a, &h.left);
    assert_int_equal(h.why, HF_EUNKNOWN);
    open_gate();
    assert_int_equal(pass_leave(&h), 0); /* again, as the core does */
    turns(&a);
    assert_true(idle(&a));
    assert_int_equal(p.gone + q.gone, 2);
    assert_int_equal(h.amended, 1);
    assert_int_equal(side_records(&a, TABLE_LINE), 0);
    free(g);
}

static int64_t frozen_at;

static int64_t frozen(struct env *e)
{
    (void)e;
    return frozen_at;
}

/* The core's limit for a call is as long and may start in the same microsecond: ours comes
 * before it, also if the pause between two tries is longer. */
static void a_limit_comes_before_that_of_the_core(void **state)
{
    const struct local *ls;
    struct pass h, p;
    struct side s;

    (void)state;
    assert_int_equal(side_open(&s, folder, "?connect_timeout=10ms"), 0);
    ls = local_of(s.store);
    pass_hold(&h, &s, "h");
    close_gate();
    pass_renew(&h); /* has no limit */
    while (ls->pause_ms < 20)
        side_turn(&s, hf__loop_now() + 20000);
    frozen_at = hf__loop_now();
    s.env.now = frozen;
    join(&p, &s, "x");
    assert_true(loop_next(&s.loop) < frozen_at + 10 * 1000);
    s.env.now = a.env.now;
    assert_int_equal(pass_answer(&p), HF_EBUSYSTORE);
    open_gate();
    side_until(&s, &h.alive);
    assert_int_equal(pass_leave(&h), 0);
    side_close(&s);
}

/* No room in the queue: whoever waits for an answer has one, the rest is left to others. */
static void without_memory_it_is_said(void **state)
{
    struct glance *g = calloc(2, sizeof *g);
    struct pass p, h, w;

    (void)state;
    pass_hold(&h, &b, "h");
    pass_wait(&w, &b, "h");
    g[0].look.follow = true;
    glance_at(&g[0], &b, "h", false);
    close_gate();
    no_memory = true;
    join(&p, &b, "x");
    look(&g[1], &b, "x");
    hf__driver_local.amend(b.store, &h.t);
    hf__driver_local.look(b.store, &g[0].look); /* ends the follow */
    pass_renew(&h);
    hf__local_attend(local_of(b.store), w.t.token);
    no_memory = false;
    assert_int_equal(p.gone, 1);
    assert_int_equal(p.why, HF_ENOMEM);
    assert_int_equal(p.err.code, HF_ENOMEM);
    assert_int_equal(g[1].rc, HF_ENOMEM);
    assert_int_equal(g[0].rc, HF_ENOMEM);
    assert_int_equal(h.why, HF_ENOMEM);
    no_memory = true;
    leave(&h);
    no_memory = false;
    assert_int_equal(h.left, 1);
    assert_int_equal(h.why, HF_EUNKNOWN);
    open_gate();
    turns(&b);
    assert_true(idle(&b));
    assert_int_equal(h.alive, 0);
    assert_int_equal(pass_leave(&h), 0); /* again, as the core does */
    side_until(&b, &w.granted);
    assert_int_equal(pass_leave(&w), 0);
    free(g);
}

/* ---- what is not wanted any more ------------------------------------------------- */

static void what_is_stopped_is_not_answered(void **state)
{
    struct glance *g = calloc(2, sizeof *g);
    struct drawer d = { 0 };

    (void)state;
    glance_init(&g[1], &b, "x"); /* of a token that nobody has */
    drawer_init(&d, &b, CELL_ADD, "c");
    close_gate();
    look(&g[0], &b, "x");
    hf__driver_local.evict(b.store, &g[1].look);
    hf__driver_local.cell(b.store, &d.cell);
    side_stop(&g[0].look, NULL);
    side_stop(NULL, &d.cell);
    open_gate();
    side_until_size(&b, &g[1].done, 1);
    assert_int_equal(g[1].rc, HF_ENOENT);
    turns(&b);
    assert_int_equal(g[0].done + d.done, 0);
    assert_int_equal(side_records(&b, TABLE_CELL), 0);
    assert_true(idle(&b));
    free(g);
}

static void a_leave_takes_the_amendment_along(void **state)
{
    struct pass p;

    (void)state;
    pass_hold(&p, &b, "x");
    close_gate();
    p.t.note = "for nobody";
    hf__driver_local.amend(b.store, &p.t);
    hf__driver_local.amend(b.store, &p.t); /* one answer is for both */
    leave(&p);
    open_gate();
    side_until(&b, &p.left);
    turns(&b);
    assert_int_equal(p.amended, 0);
    assert_int_equal(side_records(&b, TABLE_LINE), 0);
}

/* Broken by another while its amendment waits: nothing more is said about it. */
static void what_is_gone_is_forgotten(void **state)
{
    struct pass p, q;
    struct note note = { .kind = INBOX_EVICTED };

    (void)state;
    pass_hold(&p, &b, "x");
    memcpy(note.token, p.t.token, HF_TOKEN);
    assert_int_equal(evict(&a, "x", p.t.token, true), 0);
    close_gate();
    hf__driver_local.amend(b.store, &p.t);
    hf__local_hear(local_of(b.store), &note);
    assert_int_equal(p.gone, 1);
    join(&q, &b, "y");
    open_gate();
    assert_int_equal(pass_answer(&q), 1);
    assert_int_equal(p.amended, 0);
    assert_int_equal(pass_leave(&q), 0);
}

/* ---- renewals -------------------------------------------------------------------- */

static void renewals_are_made_when_the_gate_opens(void **state)
{
    enum { N = 600 }; /* more than one entry takes */
    struct pass *p = calloc(N, sizeof *p), w;
    struct life **lives = calloc(N + 1, sizeof(struct life *));
    int64_t opened;
    int before;

    (void)state;
    for (int i = 0; i < N; i++) {
        char name[16];

        snprintf(name, sizeof name, "n/%d", i);
        pass_hold(&p[i], &b, name);
        lives[i] = p[i].t.life;
    }
    pass_wait(&w, &b, "n/0");
    lives[N] = w.t.life;
    before = w.alive;
    close_gate();
    hf__driver_local.renew(b.store, lives, N + 1);
    hf__driver_local.renew(b.store, lives, N + 1); /* repeated, and still one */
    turns(&b);
    for (int i = 0; i < N; i++)
        assert_int_equal(p[i].alive + p[i].dead, 0);
    opened = hf__loop_now();
    open_gate();
    side_until(&b, &p[0].alive);
    turns(&b);
    for (int i = 0; i < N; i++) {
        assert_int_equal(p[i].alive, 1);
        assert_true(p[i].t.own->sent_at >= opened); /* not when it was asked for (G1) */
    }
    assert_int_equal(w.alive, before + 1);
    pass_leave(&w);
    for (int i = 0; i < N; i++)
        assert_int_equal(pass_leave(&p[i]), 0);
    free(lives);
    free(p);
}

/* The core counts its end from the last renewal that it knows of. */
static void what_is_given_up_is_not_renewed(void **state)
{
    struct pass p, q;

    (void)state;
    pass_hold(&p, &b, "x");
    pass_hold(&q, &b, "y");
    close_gate();
    pass_renew(&p);
    pass_renew(&q);
    leave(&p);
    q.t.own->dead = true; /* by the core, which has not called leave yet */
    open_gate();
    side_until(&b, &p.left);
    turns(&b);
    assert_int_equal(p.alive + q.alive, 0);
    q.t.own->dead = false;
    assert_int_equal(pass_leave(&q), 0);
}

/* ---- news ------------------------------------------------------------------------ */

/* A client of the same process is told by mail: to look whom to watch now, and that it
 * holds. */
static void mail_is_read_when_the_gate_opens(void **state)
{
    struct pass p, q, r;

    (void)state;
    pass_init(&p, &a, "x");
    pass_permits(&p, 1, 2);
    pass_init(&q, &a, "x");
    pass_permits(&q, 1, 2);
    q.t.barge = true;
    pass_init(&r, &b, "x");
    pass_permits(&r, 2, 2);
    assert_int_equal(pass_join(&p), 1);
    assert_int_equal(pass_join(&r), 0);
    assert_int_equal(pass_join(&q), 1); /* past r */
    close_gate();
    turns(&b);
    assert_int_equal(r.waiting, 1);
    open_gate();
    r.waiting = 0;
    side_until(&b, &r.waiting);
    assert_int_equal(pass_leave(&p), 0);
    assert_int_equal(pass_leave(&q), 0);
    close_gate();
    turns(&b);
    assert_int_equal(r.granted, 0);
    open_gate();
    side_until(&b, &r.granted);
    assert_int_equal(pass_leave(&r), 0);
    assert_int_equal(side_records(&b, TABLE_INBOX), 0);
}

/* The holder dies while the gate is closed: its ttl is not waited for. */
static void a_death_is_noticed_when_the_gate_opens(void **state)
{
    struct child c = child_start(folder, stand_in_line, NULL);
    struct glance *g = calloc(1, sizeof *g);
    struct pass p, q;

    (void)state;
    assert_int_equal(child_hear(&c), 'h');
    pass_wait(&p, &b, "x");
    g->look.follow = true;
    glance_at(g, &b, "x", false);
    close_gate();
    child_kill(&c, SIGKILL);
    turns(&b);
    assert_int_equal(p.granted, 0);
    open_gate();
    side_until(&b, &p.granted);
    side_until_size(&b, &g->done, 2);
    side_stop(&g->look, NULL);
    assert_int_equal(pass_leave(&p), 0);

    c = child_start(folder, stand_in_line, NULL);
    assert_int_equal(child_hear(&c), 'h');
    pass_init(&q, &b, "x");
    q.t.try_only = true;
    child_kill(&c, SIGKILL);
    closes_before_burial = true; /* between finding the dead and burying it */
    join_again(&q);
    assert_int_equal(q.gone, 0);
    open_gate();
    assert_int_equal(pass_answer(&q), 1);
    assert_int_equal(pass_leave(&q), 0);
    free(g);
}

/* ---- follows --------------------------------------------------------------------- */

static void a_follow_waits_and_goes_on(void **state)
{
    struct glance *g = calloc(1, sizeof *g);
    struct drawer d = { .cell = { .follow = true } };
    struct drawer put = { .cell = { .value = "1", .value_len = 1, .if_any = true } };
    struct pass p;

    (void)state;
    g->look.follow = true;
    close_gate();
    look(g, &b, "x");
    get_cell(&d, &b);
    turns(&b);
    assert_int_equal(g->done + d.done, 0);
    open_gate();
    side_until_size(&b, &g->done, 1);
    side_until_size(&b, &d.done, 1);
    assert_int_equal(side_records(&b, TABLE_FOLLOW), 2);

    pass_hold(&p, &a, "x");
    assert_int_equal(drawer_do(&put, &a, CELL_PUT, "c"), 0);
    close_gate(); /* b has not heard of it yet */
    turns(&b);
    assert_int_equal(g->done, 1);
    open_gate();
    side_until_size(&b, &g->done, 2);
    side_until_size(&b, &d.done, 2);
    assert_int_equal(g->n, 1);
    assert_int_equal(d.cell.version, put.cell.version);

    close_gate();
    side_stop(&g->look, NULL);
    side_stop(NULL, &d.cell);
    open_gate();
    turns(&b);
    assert_int_equal(side_records(&b, TABLE_FOLLOW), 0);
    assert_int_equal(local_of(b.store)->sh->gate->followers, 0);
    assert_true(idle(&b));
    pass_leave(&p);
    free(g);
}

/* An error is the last that is heard of a follow: the core has forgotten it by then. */
static void an_error_ends_a_follow(void **state)
{
    struct local *ls = local_of(b.store);
    struct glance *g = calloc(1, sizeof *g);
    struct drawer d = { .cell = { .follow = true } };
    struct pass p;

    (void)state;
    g->look.follow = true;
    glance_at(g, &b, "x", false);
    assert_int_equal(drawer_do(&d, &b, CELL_GET, "c"), 0);
    ls->sh->gate->state = 0; /* as if it had been replaced */
    hf__driver_local.look(b.store, &g->look);
    hf__driver_local.cell(b.store, &d.cell);
    ls->sh->gate->state = GATE_LIVE;
    assert_int_equal(g->rc, HF_EFOREIGN);
    assert_int_equal(d.rc, HF_EFOREIGN);
    assert_true(list_empty(&ls->looks) && list_empty(&ls->cells));
    pass_hold(&p, &a, "x");
    turns(&b);
    assert_int_equal(g->done, 2);
    assert_int_equal(pass_leave(&p), 0);
    free(g);
}

/* ---- closing --------------------------------------------------------------------- */

static void closing_waits_for_nobody(void **state)
{
    struct glance *g = calloc(2, sizeof *g);
    struct drawer d = { 0 };
    struct pass p, q, r;
    struct side s;
    int64_t began;

    (void)state;
    assert_int_equal(side_open(&s, folder, "?connect_timeout=15s"), 0);
    pass_hold(&p, &s, "x");
    pass_wait(&q, &s, "x");
    g[0].look.follow = true;
    glance_at(&g[0], &s, "x", false);
    close_gate();
    join(&r, &s, "x");
    pass_renew(&p);
    leave(&p);
    hf__local_attend(local_of(s.store), q.t.token);
    look(&g[1], &s, "x");
    get_cell(&d, &s);
    began = hf__loop_now();
    side_close(&s);
    assert_true(hf__loop_now() - began < SOON_US);
    open_gate();
    assert_int_equal(p.left + q.left + r.granted + (int)g[1].done + (int)d.done, 0);
    free(g);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, pair_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(verbs_do_not_wait_one_after_another),
        T(nobody_overtakes),
        T(a_join_that_never_ran_leaves_at_once),
        T(a_repeated_join_is_left_in_the_store),
        T(a_leave_waits_for_the_gate),
        T(the_first_verb_waits_too),
        T(limits_end_what_waits),
        T(a_limit_comes_before_that_of_the_core),
        T(without_memory_it_is_said),
        T(what_is_stopped_is_not_answered),
        T(a_leave_takes_the_amendment_along),
        T(what_is_gone_is_forgotten),
        T(renewals_are_made_when_the_gate_opens),
        T(what_is_given_up_is_not_renewed),
        T(mail_is_read_when_the_gate_opens),
        T(a_death_is_noticed_when_the_gate_opens),
        T(a_follow_waits_and_goes_on),
        T(an_error_ends_a_follow),
        T(closing_waits_for_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
