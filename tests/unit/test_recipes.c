/* The pure parts of the recipes: the form of their records, and what a party at a barrier
 * does next. The barrier is also played: parties that come, die, are cut off and give up in
 * any order, each with its own, perhaps old, reading of line and record. */
#include "unit.h"

#include "recipes/barrier_round.h"
#include "recipes/recipe.h"

static struct cell cell_of(const char *text)
{
    struct cell c = { .version = 1, .value_len = strlen(text) };

    memcpy(c.value, text, c.value_len);
    return c;
}

static void records(void **state)
{
    static const char *const bad[] = {
        "",           "latch",      "latch 1",     "latch 1 2 3",
        "latch 1  2", "latch 1 2 ", "latch 01 2",  "latch -1 2",
        "latch +1 2", "latch a 2",  "latches 1 2", "latch 1 99999999999999999999"
    };
    uint64_t n[3] = { 0 };
    struct cell c = cell_of("latch 7 18446744073709551615");
    int64_t number = -1;

    (void)state;
    assert_true(hf__recipe_read(&c, "latch", n, 2));
    assert_true(n[0] == 7 && n[1] == UINT64_MAX);
    hf__recipe_write(&c, "barrier", (uint64_t[]){ 0, UINT64_MAX, 3 }, 3);
    assert_int_equal(c.value_len, strlen("barrier 0 18446744073709551615 3"));
    assert_memory_equal(c.value, "barrier 0 18446744073709551615 3", c.value_len);
    assert_true(hf__recipe_read(&c, "barrier", n, 3));
    assert_true(n[0] == 0 && n[1] == UINT64_MAX && n[2] == 3);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        c = cell_of(bad[i]);
        assert_false(hf__recipe_read(&c, "latch", n, 2));
        assert_false(hf__recipe_number(&c, &number));
    }
    c = cell_of("9223372036854775807");
    assert_true(hf__recipe_number(&c, &number));
    assert_true(number == INT64_MAX);
    c = cell_of("9223372036854775808");
    assert_false(hf__recipe_number(&c, &number));
    c.version = 0;
    assert_true(hf__recipe_number(&c, &number));
    assert_int_equal(number, 0);
    assert_false(hf__recipe_read(&c, "latch", n, 2));
}

/* ---- one party ------------------------------------------------------------------- */

static uint64_t seen[8];

static struct barrier_view view(uint64_t mine, size_t parties, const uint64_t *now,
                                size_t n)
{
    return (struct barrier_view){
        .mine = mine, .parties = parties, .now = now, .nnow = n, .seen = seen, .room = 8
    };
}

static void moves(void **state)
{
    const uint64_t two[] = { 11, 12 }, three[] = { 11, 12, 13 }, old[] = { 5, 11 };
    struct barrier_record was = { 3, 7, 10 }, next;
    struct barrier_view v = view(11, 3, two, 2);

    (void)state;
    assert_int_equal(hf__barrier_move(&v, &was, &next), ROUND_WAIT);
    v.now = three;
    v.nnow = 3;
    assert_int_equal(hf__barrier_move(&v, &was, &next), ROUND_OPEN);
    assert_true(next.open_from == 10 && next.open_to == 13 && next.decided == 13);
    v.now = two; /* 13 is gone before that was written */
    v.nnow = 2;
    assert_int_equal(hf__barrier_move(&v, &was, &next), ROUND_BREAK);
    assert_true(next.open_from == 3 && next.open_to == 7 && next.decided == 13);
    v = view(11, 3, two, 2);
    v.gives_up = true;
    assert_int_equal(hf__barrier_move(&v, &was, &next), ROUND_BREAK);
    assert_true(next.decided == 12);
    v = view(11, 2, two, 2); /* all are there: whoever wanted to give up passes */
    v.gives_up = true;
    assert_int_equal(hf__barrier_move(&v, &was, &next), ROUND_OPEN);
    v = view(11, 2, old, 2); /* places of decided rounds do not count */
    assert_int_equal(hf__barrier_move(&v, &was, &next), ROUND_WAIT);
    v = view(14, 2, two, 2);
    assert_int_equal(hf__barrier_move(&v, &was, &next), ROUND_LOST);
    v = view(9, 2, two, 2);
    assert_int_equal(hf__barrier_move(&v, &was, &next), ROUND_BROKEN);
    v = view(5, 2, two, 2);
    assert_int_equal(hf__barrier_move(&v, &was, &next), ROUND_PASS);
    v = view(3, 2, two, 2);
    assert_int_equal(hf__barrier_move(&v, &was, &next), ROUND_LOST);
}

/* ---- all of them ----------------------------------------------------------------- */

enum { PARTIES = 3, ACTORS = 5, STEPS = 400, PLAYS = 3000 };

enum result { NONE, PASSED, BROKE, GAVE_UP, WAS_LOST };

struct actor {
    bool holds, queued;
    uint64_t fence;
    uint64_t now[PARTIES], seen[2 * PARTIES];
    size_t nnow, nseen;
    bool has_line, gives_up, writes;
    struct barrier_record record, next;
    uint64_t version;
};

static struct {
    struct actor a[ACTORS];
    struct barrier_record record;
    uint64_t version, fence;
    uint64_t passed[STEPS * 2], broke[STEPS * 2]; /* fences */
    size_t npassed, nbroke;
} w;

static uint64_t random_state;

static unsigned pick(unsigned n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % n;
}

static size_t taken(void)
{
    size_t n = 0;

    for (int i = 0; i < ACTORS; i++)
        n += w.a[i].holds;
    return n;
}

static void admit(void)
{
    for (int i = 0; i < ACTORS; i++)
        if (w.a[i].queued && taken() < PARTIES) {
            w.a[i] = (struct actor){ .holds = true, .fence = ++w.fence };
            w.a[i].record = w.record; /* as read before it stood in line, or later */
            w.a[i].version = w.version;
        }
}

static void leave(struct actor *a, enum result r)
{
    if (r == PASSED)
        w.passed[w.npassed++] = a->fence;
    if (r == BROKE || r == GAVE_UP)
        w.broke[w.nbroke++] = a->fence;
    *a = (struct actor){ 0 };
    admit();
}

static void read_line(struct actor *a)
{
    a->nnow = 0;
    a->has_line = true;
    for (int i = 0; i < ACTORS; i++)
        if (w.a[i].holds)
            a->now[a->nnow++] = w.a[i].fence;
}

static void put(struct actor *a)
{
    a->writes = false;
    if (w.version == a->version) {
        w.record = a->next;
        w.version++;
    }
    a->record = w.record;
    a->version = w.version;
}

static void act(struct actor *a)
{
    struct barrier_view v = { .mine = a->fence,
                              .parties = PARTIES,
                              .now = a->has_line ? a->now : &a->fence,
                              .nnow = a->has_line ? a->nnow : 1,
                              .seen = a->seen,
                              .nseen = a->nseen,
                              .room = 2 * PARTIES,
                              .gives_up = a->gives_up };
    enum round_move m;

    if (a->writes || (!a->has_line && !a->gives_up))
        return;
    m = hf__barrier_move(&v, &a->record, &a->next);
    a->nseen = v.nseen;
    if (m == ROUND_OPEN || m == ROUND_BREAK)
        a->writes = true;
    else if (m == ROUND_PASS)
        leave(a, PASSED);
    else if (m == ROUND_BROKEN)
        leave(a, a->gives_up ? GAVE_UP : BROKE);
    else if (m == ROUND_LOST)
        leave(a, WAS_LOST);
}

static void step(struct actor *a)
{
    if (!a->holds && !a->queued) {
        a->queued = true;
        admit();
        return;
    }
    if (!a->holds)
        return;
    switch (pick(40)) {
    case 0: /* dies, or is cut off */
        leave(a, NONE);
        return;
    case 1:
        a->gives_up = true;
        break;
    default:
        if (pick(3) == 0)
            read_line(a);
        if (pick(3) == 0 && !a->writes) {
            a->record = w.record;
            a->version = w.version;
        }
        if (a->writes && pick(2) == 0)
            put(a);
    }
    act(a);
}

/* Those who have passed belong to rounds that opened: no more than PARTIES in each, and
 * nobody of such a round was told that it broke. The rounds are told apart by the record.
 */
static struct barrier_record opened[STEPS];
static size_t nopened;

static void note_open(void)
{
    if (nopened == 0 || opened[nopened - 1].open_to != w.record.open_to)
        opened[nopened++] = w.record;
}

static void check_rounds(void)
{
    for (size_t r = 1; r < nopened; r++) {
        size_t in = 0;

        for (size_t i = 0; i < w.npassed; i++)
            in += w.passed[i] > opened[r].open_from && w.passed[i] <= opened[r].open_to;
        assert_true(in <= PARTIES);
        /* fences are given one by one: so many had come */
        assert_true(opened[r].open_to - opened[r].open_from >= PARTIES);
        for (size_t i = 0; i < w.nbroke; i++)
            assert_false(w.broke[i] > opened[r].open_from &&
                         w.broke[i] <= opened[r].open_to);
        assert_true(opened[r].open_from >= opened[r - 1].open_to);
    }
    for (size_t i = 0; i < w.npassed; i++) {
        size_t in = 0;

        for (size_t r = 1; r < nopened; r++)
            in += w.passed[i] > opened[r].open_from && w.passed[i] <= opened[r].open_to;
        assert_int_equal(in, 1);
    }
}

static void played(void **state)
{
    size_t rounds = 0, passed = 0, broke = 0;

    (void)state;
    for (uint64_t play = 1; play <= PLAYS; play++) {
        random_state = play;
        memset(&w, 0, sizeof w);
        opened[0] = w.record;
        nopened = 1;
        for (int i = 0; i < STEPS; i++) {
            step(&w.a[pick(ACTORS)]);
            note_open();
        }
        check_rounds();
        rounds += nopened - 1;
        passed += w.npassed;
        broke += w.nbroke;
    }
    assert_true(rounds > PLAYS && passed > 2 * PLAYS && broke > PLAYS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(records), cmocka_unit_test(moves),
                                        cmocka_unit_test(played) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
