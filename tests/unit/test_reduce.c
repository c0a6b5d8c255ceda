/* The verdict over a snapshot of lines: deadlock or not, and who gives way (G10). */
#include "unit.h"

#include "core/core.h"

enum { LINES = 4, TICKETS = 8 };

static struct hf_line lines[LINES];
static struct hf_ticket tickets[LINES][TICKETS];
static struct hf_list list;

static void clear(void)
{
    memset(lines, 0, sizeof lines);
    memset(tickets, 0, sizeof tickets);
    list = (struct hf_list){ .lines = lines };
}

/* Adds a ticket of owner `who` to line i; its token is `who` and the line. */
static void add(size_t i, int64_t full, unsigned who, int64_t weight, uint32_t position,
                int64_t joined)
{
    struct hf_ticket *t = &tickets[i][lines[i].ntickets++];

    if (list.n <= i)
        list.n = i + 1;
    lines[i].tickets = tickets[i];
    lines[i].full = full;
    t->token[0] = (unsigned char)who;
    t->token[1] = (unsigned char)i;
    t->token[2] = (unsigned char)position;
    t->owner_id = (struct owner){ who, who };
    t->weight = weight;
    t->position = position;
    t->joined = joined;
}

static void holds(size_t i, unsigned who)
{
    add(i, HF_FULL, who, HF_FULL, 0, 0);
}

static void waits(size_t i, unsigned who, uint32_t position, int64_t joined)
{
    add(i, HF_FULL, who, HF_FULL, position, joined);
}

static struct knot ask(unsigned who, size_t line, uint32_t position)
{
    unsigned char me[HF_TOKEN] = { (unsigned char)who, (unsigned char)line,
                                   (unsigned char)position };
    struct knot k;

    assert_int_equal(hf__walk_reduce(&list, me, &k), 0);
    return k;
}

static void two_who_wait_for_each_other(void **state)
{
    struct knot k;

    (void)state;
    clear();
    holds(0, 1);
    waits(0, 2, 1, 20);
    holds(1, 2);
    waits(1, 1, 1, 10);
    k = ask(1, 1, 1);
    assert_true(k.mine);
    assert_int_equal(k.victim[0], 2); /* joined last */
    assert_int_equal(k.signature, ask(2, 0, 1).signature);
}

/* It joined last, but to give way would help nobody, and holding nothing it does not walk.
 */
static void who_only_stands_behind_is_no_victim(void **state)
{
    struct knot k;

    (void)state;
    clear();
    holds(0, 1);
    waits(0, 2, 1, 20);
    waits(0, 3, 2, 30);
    holds(1, 2);
    waits(1, 1, 1, 10);
    k = ask(1, 1, 1);
    assert_true(k.mine);
    assert_int_equal(k.victim[0], 2);
    assert_false(ask(3, 0, 2).mine);
}

/* 3 joined last and holds something, but those in the knot wait for it only because it
 * stands in front of 2: it does not look for a deadlock, and giving way would end none. */
static void who_blocks_by_its_place_only_is_no_victim(void **state)
{
    struct knot k;

    (void)state;
    clear();
    holds(0, 1);
    waits(0, 3, 1, 30);
    waits(0, 2, 2, 20); /* behind it, by a store whose numbers are not in order */
    holds(1, 2);
    waits(1, 1, 1, 10);
    holds(2, 3);
    k = ask(1, 1, 1);
    assert_true(k.mine);
    assert_int_equal(k.victim[0], 2);
}

static void three_in_a_ring(void **state)
{
    (void)state;
    clear();
    for (unsigned i = 0; i < 3; i++) {
        holds(i, i + 1);
        waits(i, (i + 1) % 3 + 1, 1, 10 + i);
    }
    assert_true(ask(2, 0, 1).mine);
    assert_int_equal(ask(1, 2, 1).victim[0], 1);
}

static void a_chain_is_no_deadlock(void **state)
{
    (void)state;
    clear();
    holds(0, 1);
    waits(0, 2, 1, 10);
    holds(1, 2);
    waits(1, 3, 1, 20);
    assert_false(ask(2, 0, 1).mine);
    assert_false(ask(3, 1, 1).mine);
}

/* S(2) is held by A and B; C holds M and waits for S; A waits for M: a cycle, but B will
 * go. */
static void permit_cycle_with_a_way_out(void **state)
{
    (void)state;
    clear();
    add(0, 2, 1, 1, 0, 0);
    add(0, 2, 2, 1, 0, 0);
    add(0, 2, 3, 1, 1, 10);
    holds(1, 3);
    waits(1, 1, 1, 20);
    assert_false(ask(1, 1, 1).mine);
    assert_false(ask(3, 0, 1).mine);
}

static void permit_cycle_without(void **state)
{
    (void)state;
    clear();
    add(0, 2, 1, 2, 0, 0);
    add(0, 2, 3, 1, 1, 10);
    holds(1, 3);
    waits(1, 1, 1, 20);
    assert_true(ask(1, 1, 1).mine);
}

static void reader_behind_a_waiting_writer(void **state)
{
    (void)state;
    /* 1 reads x; 2 waits to write x; 3 waits to read x, behind 2; 1 waits for y of 3 */
    clear();
    add(0, HF_FULL, 1, 1, 0, 0);
    add(0, HF_FULL, 2, HF_FULL, 1, 5);
    add(0, HF_FULL, 3, 1, 2, 6);
    holds(1, 3);
    waits(1, 1, 1, 9);
    assert_true(ask(3, 0, 2).mine);
    assert_true(ask(1, 1, 1).mine);
}

static void waiting_for_oneself(void **state)
{
    (void)state;
    clear();
    add(0, HF_FULL, 1, 1, 0, 0);
    waits(0, 1, 1, 10);
    assert_true(ask(1, 0, 1).mine);
}

/* 4 waits for itself. 2 would get its permits if 4 went on, though it is in its own way
 * too. */
static void behind_a_knot_and_behind_oneself(void **state)
{
    (void)state;
    clear();
    add(0, 4, 2, 2, 0, 0);
    add(0, 4, 4, 1, 0, 0);
    add(0, 4, 2, 2, 1, 30);
    add(1, 1, 4, 1, 0, 0);
    add(1, 1, 4, 1, 1, 20);
    assert_false(ask(2, 0, 1).mine);
    assert_true(ask(4, 1, 1).mine);
    assert_int_equal(ask(4, 1, 1).victim[0], 4);
}

/* It will be refused, and then its owner gives back what the other waits for. */
static void ticket_of_another_kind_is_withdrawn(void **state)
{
    (void)state;
    clear();
    holds(0, 1);
    waits(0, 2, 1, 20);
    holds(1, 2);
    waits(1, 1, 1, 10);
    tickets[1][1].misfit = true;
    assert_false(ask(2, 0, 1).mine);
}

static void those_who_belong_to_nobody_are_left_out(void **state)
{
    (void)state;
    clear();
    holds(0, 0);
    waits(0, 2, 1, 20);
    holds(1, 2);
    waits(1, 0, 1, 10);
    assert_false(ask(2, 0, 1).mine);
}

static void writers_sum_beyond_32_bits(void **state)
{
    (void)state;
    clear(); /* in 32 bits two writers would sum to 0, and the third would fit */
    holds(0, 1);
    waits(0, 2, 1, 1);
    waits(0, 3, 2, 2);
    holds(1, 3);
    waits(1, 1, 1, 9);
    assert_true(ask(3, 0, 2).mine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_who_wait_for_each_other),
        cmocka_unit_test(who_only_stands_behind_is_no_victim),
        cmocka_unit_test(who_blocks_by_its_place_only_is_no_victim),
        cmocka_unit_test(three_in_a_ring),
        cmocka_unit_test(a_chain_is_no_deadlock),
        cmocka_unit_test(permit_cycle_with_a_way_out),
        cmocka_unit_test(permit_cycle_without),
        cmocka_unit_test(reader_behind_a_waiting_writer),
        cmocka_unit_test(waiting_for_oneself),
        cmocka_unit_test(behind_a_knot_and_behind_oneself),
        cmocka_unit_test(ticket_of_another_kind_is_withdrawn),
        cmocka_unit_test(those_who_belong_to_nobody_are_left_out),
        cmocka_unit_test(writers_sum_beyond_32_bits),
    };

    return cmocka_run_group_tests_name("reduce", tests, NULL, NULL);
}
